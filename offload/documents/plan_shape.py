"""What may stand in a plan file: shorthand written out to maps, and the shape of each part."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from offload.designs import Portion, Routing
from offload.documents import plan_experts
from offload.documents.marks import as_written
from offload.documents.plan_kv import Cached, KvBlockShape, kv_written_out
from offload.documents.plan_training import TrainingShape
from offload.documents.plan_weights import BlocksShape, PageCacheShape, RowShare, weights_written_out
from offload.documents.shape_parallel import ParallelShape, parallel_written_out
from offload.documents.shapes import ByteCount, ByteInterval, FlopInterval, Seconds, SecondsInterval, Shape, Share
from offload.plan import UNLIMITED, GivenTime, Overlap
from offload.units import parse_bytes, parse_share

MOST_NAMED = 300  # tasks by name: each queues by itself, and is timed against every other one
MOST_TIMED = 100_000  # names times instances: what of each queue may run beside each instance
MOST_INSTANCES = 20_000  # tasks times repetitions of one step: each is laid out, at about half a millisecond
MOST_TOKENS = 10**12
MOST_DRAFTED = 64  # passes of a draft model in a step
Repeat = Annotated[int, Field(ge=1, le=MOST_INSTANCES)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Positions = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
HostMemory = Literal["pinned", "pageable", "page cache", "page cache, write-allocate"]
_LAYERS = re.compile(r"(\d{1,7}) +(?:layers?|blocks?)")
_BELOW = re.compile(r"-\d+ *layers?", re.IGNORECASE)
PORTIONS = '"38 layers", "50%", "20 GB" or "rest"'
PARTS = '"50%", "10 GB" or "rest"'
OVERLAPS = "none, full or {buffers: 2} (1 or more)"
_STEPS = re.compile(r"(\d{1,9}) +steps?")


def _portion(value: object) -> Portion:
    """`38 layers`, `50%`, `20 GB` or `rest` of a model's layers."""
    if isinstance(value, dict | list | bool) or value is None:
        raise ValueError(f"must be a portion: {PORTIONS}.")
    text = as_written(value)
    if match := _LAYERS.fullmatch(text):
        return Portion("layers", int(match[1]))
    if re.search("layer", text, re.IGNORECASE):
        least = "fewer layers than none" if _BELOW.fullmatch(text) else "no number of whole layers"
        raise ValueError(f'"{text}" is {least}. Write "38 layers", from "0 layers" to all of the model\'s.')
    if text not in ("rest", "all") and not re.search("[0-9]", text):
        raise ValueError(f'"{text}" is no portion. Write {PORTIONS}.')
    return Portion(*_part_of(text, f'"{text} layers", '))


def _home(value: object) -> tuple[str, float | int | None]:
    """A share, bytes or the rest of a tensor in one memory, as (kind, figure)."""
    if isinstance(value, dict | list | bool) or value is None:
        raise ValueError(f"must be a part of the tensor: {PARTS}.")
    text = as_written(value)
    if text not in ("rest", "all") and not re.search("[0-9]", text):
        raise ValueError(f'"{text}" is no part of a tensor. Write {PARTS}.')
    kind, figure = _part_of(text)
    return kind, None if kind == "rest" else figure


def _part_of(text: str, also: str = "") -> tuple[str, float]:
    """`50%`, `20 GB` or `rest` as (kind, figure); also : a further spelling of a number without a unit."""
    if text in ("rest", "all"):
        return "rest", 0
    if re.fullmatch(r"\d+", text):
        raise ValueError(f'"{text}" has no unit. Write {also}"{text}%" or "{text} GB".')
    if (match := re.fullmatch(r"0?(\.\d+)|1\.0+", text)) is not None:
        raise ValueError(f'"{text}" has no unit. Write "{100 * float(match[0]):g}%" or "{text} GB".')
    if "%" in text:
        if re.fullmatch(r"0+(\.0+)?\s*%", text):
            return "share", 0.0
        try:
            return "share", parse_share(text)
        except ValueError:
            raise ValueError(f'"{text}" is no share of the whole. Write a percentage up to 100, like "50%".') from None
    return "bytes", parse_bytes(text)


def _every(value: object) -> tuple[int, bool]:
    """(steps between, once a step): `layer` is once a repetition, `step` once a step, `4 steps` every fourth step."""
    text = as_written(value) if not isinstance(value, dict | list) and value is not None else ""
    if text in ("layer", "repetition"):
        return 1, False
    if text == "step":
        return 1, True
    if (match := _STEPS.fullmatch(text)) and int(match[1]) >= 1:
        return int(match[1]), False
    raise ValueError(f'"{text}" says no rhythm. Write "layer" (once a repetition), "step" or "4 steps".')


def read_overlap(value: object) -> Overlap:
    """`none`, `full`, a number of buffers, or `{buffers: 2}`."""
    if isinstance(value, dict) and set(value) == {"buffers"}:
        value = value["buffers"]
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    if text == "none":
        return Overlap("none")
    if text == "full":
        return Overlap("buffers", UNLIMITED)
    if re.fullmatch(r"[1-9]\d{0,6}", text):
        return Overlap("buffers", int(text))
    if text == "simulate":
        raise ValueError(f'"simulate" is not built yet. Write {OVERLAPS}.')
    given = f', not "{text}"' if text else ""
    raise ValueError(f"must be {OVERLAPS}{given}.")


def _map_like(example: str) -> BeforeValidator:
    """A map that is no map is refused with what one looks like."""

    def read(value: object) -> object:
        if isinstance(value, dict) and value:
            return value
        given = "an empty map" if value == {} else "a list" if isinstance(value, list) else f'"{as_written(value)}"'
        raise ValueError(f"must be a map of memories, not {given}. Write {example}.")

    return BeforeValidator(read)


class ModelShape(Shape):
    """Which model, in which formats."""

    model_config = ConfigDict(title="a model")
    name: str | None = None
    config: str | None = None
    gguf: str | None = None
    like: str | None = None
    give: dict[str, Any] = {}
    weights: str | None = None
    kv: str | None = None
    blocks: list[BlocksShape] | None = None
    row: ByteCount | None = None


class WorkloadShape(Shape):
    """What is asked of the model: one step of a phase."""

    model_config = ConfigDict(title="a workload")
    phase: Literal["decode", "prefill", "generate", "denoise", "train"] = "decode"
    batch: Tokens = 1
    context: Positions | None = None
    prompt: Tokens | None = None
    generate: Tokens | None = None
    steps: Count | None = None
    in_flight: Count = 1
    chunk: Tokens | None = None
    cached: Cached | None = None
    micro_batches: Count | None = None


class ExpertsShape(Shape):
    """Where the experts that a router chooses live and run, apart from the rest of their layers."""

    model_config = ConfigDict(title="experts")
    home: Annotated[
        dict[str, Annotated[Portion, BeforeValidator(_portion)]],
        _map_like("{dram0: 20 layers, hbm0: rest}"),
    ] | None = None
    compute: str = ""
    access: Literal["copy", "in_place", "on_demand"] | None = None
    routing: Annotated[Routing, BeforeValidator(plan_experts.read_routing)] | None = None
    cache: plan_experts.CacheShape | None = None
    prefetch: plan_experts.PrefetchShape | None = None
    numa: Literal["local", "interleave", "duplicate"] | None = None


class PlacementShape(Shape):
    """Where weights and KV cache live and where layers run."""

    model_config = ConfigDict(title="a placement")
    weights: Annotated[
        dict[str, Annotated[Portion, BeforeValidator(_portion)]],
        _map_like("{hbm0: 38 layers, dram0: rest}"),
    ]
    compute: str = "local"
    kv: Annotated[
        dict[str, Annotated[Portion, BeforeValidator(_portion)]],
        _map_like("dram0, {hbm0: 20 layers, dram0: rest} or {hbm0: 60%, dram0: rest}"),
    ] = {"with layer": Portion("rest")}
    reserve: ByteCount | None = None
    host_memory: HostMemory = "pinned"
    via: list[str] = []
    experts: ExpertsShape | None = None
    access: Literal["copy", "in_place"] = "copy"
    layout: Literal["interleaved", "interleaved_streamed_first", "streamed_first", "streamed_last"] = "interleaved"
    page_cache: PageCacheShape | None = None
    split: dict[str, RowShare] | None = None
    parallel: ParallelShape | None = None
    tensors: dict[str, str] = {}
    numa: Literal["local", "interleave", "duplicate"] | None = None
    attention: str = ""
    kv_block: KvBlockShape | None = None
    cache: Annotated[
        dict[str, Annotated[Portion, BeforeValidator(_portion)]],
        _map_like("dram0, or {hbm0: 50%, dram0: rest}"),
    ] | None = None
    hand_over: str = ""


class TimeShape(Shape):
    """A time that is stated instead of counted: what it takes, and what it never goes below."""

    model_config = ConfigDict(title="a time")
    sustained: SecondsInterval | None = None
    peak: Seconds | None = None
    source: str = ""

    def given(self) -> GivenTime:
        """The value. Raises ValueError where there is none, or where it is less than the least it can be."""
        if self.sustained is None:
            raise ValueError('a time needs "sustained", what it takes: {sustained: 0.965 ms}.')
        low, value, high = self.sustained
        if self.peak is not None and self.peak > low:
            raise ValueError(f"the peak time {self.peak:g} s is the least that it can take, yet it is said to take "
                             f"{low:g} s. Lower it, or leave it out.")
        return GivenTime(low, value, high, self.peak or 0.0, self.source)


class CostShape(Shape):
    """A named cost after each layer, once a step, or at each hand-over to another processor."""

    model_config = ConfigDict(title="a cost")
    each: Literal["layer", "step", "hand-over"]
    time: TimeShape


class TensorShape(Shape):
    """A tensor of a plan by hand; `bytes` is one repetition's."""

    model_config = ConfigDict(title="a tensor")
    bytes: ByteInterval
    home: Annotated[
        dict[str, Annotated[tuple[str, Any], BeforeValidator(_home)]],
        _map_like("dram0, or {dram0: 50%, hbm0: rest}"),
    ]
    shared: bool = False
    what: str = ""


class MoveShape(Shape):
    """A task that moves a tensor."""

    model_config = ConfigDict(title="a move")
    move: str
    to: str
    after: list[str] = []
    every: Annotated[tuple[int, bool], BeforeValidator(_every)] = (1, False)
    via: list[str] = []
    buffers: Count | None = None
    host_memory: HostMemory = "pinned"


class ComputeShape(Shape):
    """A task that computes."""

    model_config = ConfigDict(title="a compute")
    compute: str
    flops: FlopInterval = (0.0, 0.0, 0.0)
    format: str | None = None
    reads: list[str] = []
    writes: list[str] = []
    after: list[str] = []
    every: Annotated[tuple[int, bool], BeforeValidator(_every)] = (1, False)
    time: TimeShape | None = None


class CollectiveShape(Shape):
    """A task in which ranks exchange a tensor: each has all of it or a part, at first or in the end."""

    model_config = ConfigDict(title="a collective")
    collective: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
    of: str
    over: str
    algorithm: Literal[
        "ring", "rabenseifner", "recursive_doubling", "tree", "pairwise", "binomial", "in_network"
    ] | None = None
    after: list[str] = []
    every: Annotated[tuple[int, bool], BeforeValidator(_every)] = (1, False)


class BlockShape(Shape):
    """Tasks that repeat."""

    model_config = ConfigDict(title="a block")
    repeat: Repeat = 1
    tasks: dict[str, Any]


class SpeculationShape(Shape):
    """Tokens that are guessed, and checked by one pass of the model."""

    model_config = ConfigDict(title="speculation")
    draft: Annotated[int, Field(ge=1, le=MOST_DRAFTED)]
    accept: Share
    model: ModelShape | None = None
    home: str = ""
    compute: str = "local"


class PlanShape(Shape):
    """The top of a plan file: by placement (`model`, `placement`) or by hand (`tensors`, `tasks` or `blocks`)."""

    model_config = ConfigDict(title="a plan")
    topology: str
    title: str = ""
    schema_: str = Field(default="", alias="$schema")
    model: ModelShape | None = None
    workload: WorkloadShape | None = None
    placement: PlacementShape | None = None
    training: TrainingShape | None = None
    costs: dict[str, CostShape] | None = None
    speculation: SpeculationShape | None = None
    tensors: dict[str, Any] | None = None
    repeat: Repeat | None = None
    blocks: list[Any] | None = None
    tasks: dict[str, Any] | None = None
    tokens: Tokens = 1
    in_flight: Count = 1
    overlap: Annotated[Overlap, BeforeValidator(read_overlap)] = Overlap()


def tensor_written_out(value: Any) -> Any:
    """`home: dram0` is all of it there."""
    if isinstance(value, dict) and isinstance(value.get("home"), str):
        return value | {"home": {value["home"]: "rest"}}
    return value


def task_written_out(value: Any) -> Any:
    """`after: x` is a list of one, `time: 2 ms` what it takes."""
    if not isinstance(value, dict):
        return value
    return time_written_out(value) | {
        key: [value[key]] for key in ("after", "reads", "writes", "via") if isinstance(value.get(key), str)
    }


def time_written_out(value: dict[str, Any]) -> dict[str, Any]:
    """`time: 2 ms` is what it takes."""
    time = value.get("time")
    return value if time is None or isinstance(time, dict) else value | {"time": {"sustained": time}}


def plan_written_out(value: Any) -> Any:
    """The shorthand at the top of a plan: `via: dram0` of a placement, `time: 2 ms` of a cost."""
    if not isinstance(value, dict):
        return value
    value = weights_written_out(value)
    placement, costs = value.get("placement"), value.get("costs")
    if isinstance(placement, dict) and isinstance(placement.get("via"), str):
        placement = placement | {"via": [placement["via"]]}
    experts = placement.get("experts") if isinstance(placement, dict) else None
    if isinstance(experts, dict) and isinstance(experts.get("home"), str):
        placement = placement | {"experts": experts | {"home": {experts["home"]: "rest"}}}
    if isinstance(placement, dict):
        value = value | {"placement": parallel_written_out(kv_written_out(placement))}
    if isinstance(costs, dict):
        value = value | {"costs": {name: time_written_out(cost) if isinstance(cost, dict) else cost
                                   for name, cost in costs.items()}}
    return value
