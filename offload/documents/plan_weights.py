"""What a plan says of its weights besides their homes: a page cache, rows split between processors, stated blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from offload.designs import Placement
from offload.designs.homes import home_names, is_mixed
from offload.designs.page_cache import PASSES, PageCache, check_free, check_page_cache
from offload.designs.split import check_split
from offload.documents.marks import Document, as_written
from offload.documents.named import no_node, no_nodes, plain
from offload.documents.shapes import ByteCount, Shape, quantity
from offload.errors import ModelError, PlanError, TopologyError
from offload.models import Model
from offload.models.architecture import MOST_LAYERS, STATED
from offload.models.stated import Blocks, stated_model
from offload.topology import Topology
from offload.units import parse_flop, parse_share

Flop = Annotated[float, quantity(parse_flop)]
SPLIT = "{gpu0: 20%, cpu0: rest}"


def read_row_share(value: object) -> float | None:
    """`60%` of each layer's rows, or None for `rest`."""
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    if text == "rest":
        return None
    if "%" not in text:
        raise ValueError(f'"{text}" is no share of rows. Write "20%" or "rest", as {SPLIT}.')
    try:
        return parse_share(text)
    except ValueError:
        raise ValueError(f'"{text}" is no share of rows. Write a percentage above 0 and up to 100, as "20%".') from None


class PageCacheShape(Shape):
    """The host memory that keeps pages of weights that live on a drive."""

    model_config = ConfigDict(title="a page cache")
    memory: str
    free: ByteCount | None = None
    pinned: bool = False


def _some_bytes(value: int) -> int:
    if value < 1:
        raise ValueError("a block has weights, at least 1 B: leave a block without any out.")
    return value


class BlocksShape(Shape):
    """Alike blocks of a model that is stated: the figures are of each one."""

    model_config = ConfigDict(title="blocks")
    count: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    bytes: Annotated[ByteCount, AfterValidator(_some_bytes)]
    flops: Flop = 0.0


RowShare = Annotated[float | None, BeforeValidator(read_row_share)]


def weights_written_out(value: dict[str, Any]) -> dict[str, Any]:
    """The shorthand: `page_cache: dram0` of a placement, one map of `blocks` of a model."""
    placement, model = value.get("placement"), value.get("model")
    if isinstance(placement, dict) and isinstance(placement.get("page_cache"), str):
        value = value | {"placement": placement | {"page_cache": {"memory": placement["page_cache"]}}}
    if isinstance(model, dict) and isinstance(model.get("blocks"), dict):
        value = value | {"model": model | {"blocks": [model["blocks"]]}}
    guessing = value.get("speculation")
    if isinstance(guessing, dict):  # its model likewise
        value = value | {"speculation": weights_written_out(guessing)}
    return value


def of_shape(shape: Any) -> dict[str, Any]:
    """A placement's fields of this kind, from its shape."""
    asked = shape.page_cache
    found: dict[str, Any] = {"layout": shape.layout}
    if asked is not None:
        found["page_cache"] = PageCache(asked.memory, asked.free, asked.pinned)
    if shape.split:
        found["split"] = tuple(shape.split.items())
        found["compute"] = next(iter(shape.split))
    return found


def no_homes(topology: Topology, home: str) -> str:
    """What is wrong with the memories of a home of weights; "" where all are known."""
    if not is_mixed(home):
        return no_nodes(topology, home, "memory")
    try:
        names = home_names(home)
    except PlanError as error:
        return str(error).partition(": ")[2]
    return next((wrong for wrong in (no_node(topology, name, "memory") for name in names) if wrong), "")


def check_weights(document: Document, placement: Placement, topology: Topology) -> None:
    """Note what is wrong with a page cache and a split; keys that have no effect beside others are wrong too."""
    cache, split = placement.page_cache, placement.split
    if cache is not None:
        place = ("placement", "page_cache")
        inner = (*place, "memory") if isinstance(document.get(place), dict) else place
        hosts = [name for name, one in topology.memories.items() if one.kind in ("dram", "unified")]
        if wrong := no_node(topology, cache.memory, "memory", fit=hosts):
            document.mistake(inner, wrong)
        else:
            _told(document, inner, lambda: check_page_cache(topology, cache))
            _told(document, (*place, "free"), lambda: check_free(topology, cache))
        way = document.get(("placement", "host_memory"))
        if way is not None and not placement.host_memory.startswith(PASSES):
            document.mistake(("placement", "host_memory"), f'"{way}": what lies in a page cache goes to a device as '
                             '"page cache". Drop this key, or page_cache.')
    if split:
        place = ("placement", "split")
        if document.get(("placement", "compute")) is not None:
            document.mistake(("placement", "compute"), "split says which processors run the layers. Drop this key.",
                             key=True)
        if document.get(("placement", "experts")) is not None:
            first, last = split[0][0], split[-1][0]
            document.mistake(("placement", "experts"), "rows are split of whole layers, and experts placed apart are "
                             "none. Drop this key: each processor has its share of every expert's rows; or drop split, "
                             f"and write compute: {first} with experts: {{home: {_own(topology, last)}, compute: "
                             f"{last}}}, which has experts on one and all else on the other.", key=True)
        if placement.tensors:
            document.mistake(("placement", "tensors"), "rows are split of whole layers, and tensors placed by pattern "
                             "are none. Drop this key, or split: a pattern places what matches in the memory of the "
                             "processor that is to run it.", key=True)
        for name, _ in split:
            if wrong := no_node(topology, name, "processor"):
                document.mistake((*place, name), wrong, key=True)
                return
        if not _told(document, place, lambda: check_split(topology, split)):
            return
        lead = topology.memory_of(split[0][0])
        for name, _ in split[1:]:
            own = topology.memory_of(name)
            try:
                topology.route(lead, own)
                topology.route(own, lead)
            except TopologyError as error:
                document.mistake((*place, name), plain(error, topology), key=True)


def _told(document: Document, place: tuple[Any, ...], check: Callable[[], None]) -> bool:
    """Whether a check passes; what it says otherwise is noted."""
    try:
        check()
    except PlanError as error:
        document.mistake(place, str(error).partition(": ")[2])
        return False
    return True


def model_of_blocks(document: Document, shape: Any) -> tuple[Model | None, str]:
    """The model that blocks state, and its format; None where keys beside them belong to other models."""
    sound = True
    for key in ("config", "gguf", "like", "weights", "kv", "give"):
        if document.get(("model", key)) is not None:
            document.reject(("model", key), "belongs to a model that is known or read from files; blocks state theirs "
                            "by themselves. Drop it.")  # fmt: skip
            sound = False
    for key, text in (("kv", "blocks keep no KV cache"), ("experts", "blocks have no experts"),
                      ("tensors", "blocks have no tensors by name"), ("attention", "blocks keep no KV cache"),
                      ("kv_block", "blocks keep no KV cache"), ("cache", "blocks keep no KV cache"),
                      ("hand_over", "blocks keep no KV cache")):  # fmt: skip
        if document.get(("placement", key)) is not None:
            document.reject(("placement", key), f"{text}. Drop it.")
            sound = False
    if not sound:
        return None, ""
    kinds = [Blocks(one.count, one.bytes, one.flops) for one in shape.blocks]
    try:
        return stated_model(shape.name or "stated model", kinds, shape.row or 0), STATED
    except ModelError as error:
        document.mistake(("model", "blocks"), str(error))
        return None, ""


def check_phase(document: Document, model: Model, phase: str) -> bool:
    """Whether a model has a phase of this kind: blocks are denoised or decoded, other models not denoised."""
    if model.family == STATED and phase not in ("decode", "denoise"):
        document.mistake(("workload", "phase"), f"{phase} goes through the positions of a prompt, and blocks say "
                         "nothing of positions. Write denoise, or decode.")
        return False
    if model.family != STATED and phase == "denoise":
        document.mistake(("workload", "phase"), "denoise is of a diffusion model, which is stated in blocks: model: "
                         "{blocks: {count: 40, bytes: 700 MB, flops: 1.2 TFLOP}}.")
        return False
    if model.family == STATED and document.get(("workload", "context")) is not None:
        document.mistake(("workload", "context"), "blocks keep nothing of a context. Drop it.", key=True)
        return False
    return True


def _own(topology: Topology, processor: str) -> str:
    """The memory of a processor, as an example of one; of a name that is none, any memory."""
    known = topology.processors.get(processor)
    return next(iter(topology.memories)) if known is None else known.memory
