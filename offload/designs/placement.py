"""Where a model's layers live and run: portions of memories, turned into a home and a processor for each layer."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from offload.designs.homes import home_in_short, home_names, is_mixed
from offload.designs.page_cache import PageCache
from offload.designs.ranks import Parallel
from offload.designs.routing import UNIFORM, ExpertCache, Routing
from offload.errors import PlanError, did_you_mean
from offload.models.formats import KV_FORMATS
from offload.plan import GivenTime
from offload.ranges import fold, in_short, listed
from offload.topology import Topology

if TYPE_CHECKING:
    from offload.designs.speculation import Speculation

RUNTIME_RESERVE = 1_500_000_000  # CUDA context, kernels' workspace, allocator slack: bytes kept free on a GPU's memory


WEIGHTS = "placement.weights"
ACTIVATION_BYTES = 2  # hidden states are 16-bit between layers
CONTEXT = 4096  # positions, where none is said


@dataclass(frozen=True, slots=True)
class Portion:
    """How much of a model a memory holds. kind: "layers" (count), "share" (0..1), "bytes" [B] or "rest"."""

    kind: str
    value: float = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the model: one step of a phase, for `batch` sequences.

    "decode" : one new position in each; context : positions that attention reads, the new one included.
    "prefill" : `prompt` new positions in each, after `context` positions that are there already.
    "generate" : a prompt, then `generate` tokens one after another; the context grows from prompt + 1.
    "denoise" : one of `steps` passes of a diffusion model, each after the one before.
    in_flight : such steps under way at once. room : positions that the KV cache keeps room for, where that is more.
    shortest : the shortest context of those that a decode step stands for, where they are several. chunk : a prompt
    comes in passes of so many positions; 0 is one pass. outputs : positions of each sequence that the head runs for, 0
    in a chunk that another follows. speculation : tokens are drafted, and checked by one pass (a decode step).
    cached : how much of the prompt is found in a cache, a "share" or a number of "positions"; its last one is computed
    anyway.
    """

    phase: str = "decode"
    batch: Any = 1
    context: Any = CONTEXT
    in_flight: int = 1
    prompt: Any = 0
    generate: int = 0
    room: Any = None
    shortest: Any = None
    steps: int = 1
    chunk: int = 0
    outputs: int = 1
    speculation: Speculation | None = None
    cached: Portion | None = None


@dataclass(frozen=True, slots=True)
class KvBlock:
    """KV is copied block by block of `tokens` positions, each copy after the one before.

    each : copies of a block: keys and values of each layer by themselves ("side"), a "layer", or all of the "model" at
    once. per_copy : what a copy takes besides its bytes; None is the latency of its links.
    """

    tokens: int
    each: str = "side"
    per_copy: GivenTime | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """A named cost that is stated instead of counted, an estimate: `time` after each "layer", once a "step", or at each
    "hand-over" of the hidden row to another processor.
    """

    name: str
    each: str
    time: GivenTime


LAYOUTS = ("interleaved", "interleaved_streamed_first", "streamed_first", "streamed_last")  # of layers, in order
NUMA = ("local", "interleave", "duplicate")  # how weights in the memories of several sockets are read
ACCESS = ("copy", "in_place", "on_demand")  # how weights that live elsewhere come to where they are used


@dataclass(frozen=True, slots=True)
class Experts:
    """Where the experts that a router chooses live and run, apart from the rest of their layers.

    home : (memory, portion) as `Placement.weights`. compute : "local", a processor, or "" for the placement's. access :
    "copy" brings all experts of a layer each step, "on_demand" the chosen ones once the router has run, "in_place"
    reads the chosen ones where they are. Without a home they are with their layers. routing : how tokens choose them.
    cache : those of a layer that are kept where they need no fetch. prefetch : the share of what is fetched ahead,
    while the layer before runs, that is right; None fetches nothing ahead. numa : as of `Placement`.
    """

    home: tuple[tuple[str, Portion], ...] = ()
    compute: str = ""
    access: str = "copy"
    routing: Routing = UNIFORM
    cache: ExpertCache | None = None
    prefetch: float | None = None
    numa: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights and KV cache live and where layers run.

    weights : (memory, portion) in the order named. compute : "local" (each layer where its weights live, or on the
    nearest processor where that memory has none) or a processor's name (the other layers stream to it). kv :
    "with layer" (the memory of the processor that runs the layer), a memory, or (memory, portion) with layers or shares
    of the positions of each. attention : the processor that attends to KV where it lies elsewhere, "" for none.
    kv_block : how KV is copied, None for a copy a layer. cache : (memory, portion), the tiers that serve what is found
    of a prompt. hand_over : the memory that a prefill's KV is sent on to. reserve : bytes kept free for the
    runtime in the memory of each GPU that runs anything [B]; None is RUNTIME_RESERVE. A range of names ("hbm0..7",
    "gpu0..7") is several that work alike: each holds and does an equal part of every layer (tensor parallel).
    host_memory : how fetched bytes pass host memory (`HOST_MEMORY`). via : nodes that fetches of weights pass.
    costs : named costs. experts : where experts are, if not with their layers. access : how weights that live
    elsewhere come, "copy" or "in_place" (read over the link, never copied). layout : in which order streamed layers and
    those that stay lie, one of `LAYOUTS`. page_cache : the host memory that keeps pages of weights on drives. split :
    (processor, share of each layer's rows; None is the rest), of which the first is also `compute`. A memory of weights
    may be several with parts by their rates ("dram0 + cxl0"). parallel : how a range shares each layer, tensor parallel
    where it is None. tensors : (pattern of GGUF names, memory) of tensors that live elsewhere than their layer; the
    first that matches counts. numa : of weights in the memories of several sockets that run there: "local" or "" (each
    reads its own part), "interleave" (each finds an equal part of what it reads in every memory) or "duplicate" (each
    memory has all of it).
    """

    weights: tuple[tuple[str, Portion], ...]
    compute: str = "local"
    kv: str | tuple[tuple[str, Portion], ...] = "with layer"
    reserve: int | None = None
    host_memory: str = "pinned"
    via: tuple[str, ...] = ()
    costs: tuple[Cost, ...] = ()
    experts: Experts | None = None
    access: str = "copy"
    layout: str = "interleaved"
    page_cache: PageCache | None = None
    split: tuple[tuple[str, float | None], ...] = ()
    parallel: Parallel | None = None
    tensors: tuple[tuple[str, str], ...] = ()
    numa: str = ""
    attention: str = ""
    kv_block: KvBlock | None = None
    cache: tuple[tuple[str, Portion], ...] = ()
    hand_over: str = ""


def experts_placement(placement: Placement) -> Placement:
    """The placement as that of experts: their homes as weights, and where they run."""
    asked = cast("Experts", placement.experts)
    return replace(placement, weights=asked.home or placement.weights, compute=asked.compute or placement.compute)


@dataclass(frozen=True, slots=True)
class LayerHome:
    """One layer's weights live in `memory` and run on `processor`; either may be a range of names."""

    memory: str
    processor: str


def portions_in_layers(
    placement: Placement, layer_bytes: Sequence[int], key: str = WEIGHTS
) -> list[tuple[str, int]]:
    """Whole layers per memory, in the order named; shares and bytes round down, at most one memory takes the rest.

    Shares that add up to the whole model place all of it: the last one takes what the others' rounding leaves. key :
    what errors speak of. Raises PlanError where they do not add up to the model.
    """
    count = len(layer_bytes)
    whole = _whole_by_shares([portion for _, portion in placement.weights])
    taken: list[tuple[str, int | None]] = []
    for index, (memory, portion) in enumerate(placement.weights):
        if portion.kind == "rest" or index == whole:
            taken.append((memory, None))
        elif portion.kind == "layers":
            taken.append((memory, int(portion.value)))
        elif portion.kind == "share":
            taken.append((memory, math.floor(count * portion.value + 1e-9)))
        else:
            taken.append((memory, _whole_layers(portion.value, layer_bytes)))
    given = sum(number for _, number in taken if number is not None)
    rests = [memory for memory, number in taken if number is None]
    if len(rests) > 1:
        raise PlanError(f"{key}: {' and '.join(rests)} both take the rest; one memory may.")
    if given > count:
        shown = " and ".join(f"{number} in {memory}" for memory, number in taken if number)
        raise PlanError(f"{key}: {shown} are more than the model's {count} layers. Place "
                        f"{given - count} fewer.")
    if given < count and not rests:
        raise PlanError(
            f"{key}: {given} of {count} layers are placed; add `MEMORY: rest` or place "
            f"{count - given} more (shares and bytes round down to whole layers)."
        )
    return [(memory, count - given if number is None else number) for memory, number in taken]


def _whole_by_shares(portions: Sequence[Portion]) -> int | None:
    """The place of the last share where shares alone add up to all of a model; else None."""
    shares = [portion.value for portion in portions if portion.kind == "share"]
    if len(shares) < len(portions) or abs(sum(shares) - 1) > 1e-9:
        return None
    return max(index for index, share in enumerate(shares) if share)


def _whole_layers(size: float, layer_bytes: Sequence[int]) -> int:
    """How many layers surely fit in `size` bytes, whichever they are: the largest first."""
    fit = 0
    for one in sorted(layer_bytes, reverse=True):
        size -= one
        if size < 0:
            break
        fit += 1
    return fit


def place_layers(
    topology: Topology, placement: Placement, layer_bytes: Sequence[int], key: str = WEIGHTS
) -> list[LayerHome]:
    """A home and a processor for each layer.

    Layers that run in place lie together: the first memory named takes the last layers (as llama.cpp's -ngl does).
    Layers streamed to a processor are spread evenly among those that are resident there, a resident one first, or as
    the placement's layout says.
    """
    counts = portions_in_layers(placement, layer_bytes, key)
    runs_on = {memory: runs(topology, placement, memory, key) for memory, _ in counts}
    groups: dict[str, list[tuple[str, int]]] = {}
    for memory, count in counts:
        groups.setdefault(runs_on[memory], []).append((memory, count))
    homes: list[LayerHome] = []
    for processor, parts in reversed(list(groups.items())):
        own = memories_of(topology, processor)
        resident = [part for part in parts if part[0] == own]
        streamed = [part for part in parts if part[0] != own]
        homes += [LayerHome(memory, processor) for memory in _laid_out(resident, streamed, placement.layout)]
    return homes


def _laid_out(resident: list[tuple[str, int]], streamed: list[tuple[str, int]], layout: str) -> list[str]:
    """The memory of each of a processor's layers, in order."""
    if layout not in LAYOUTS:
        raise PlanError(f'placement.layout: no layout "{layout}". {did_you_mean(layout, LAYOUTS, "Layouts")}')
    if layout in ("interleaved", "interleaved_streamed_first"):
        pattern: list[str] = []
        for memory, count in resident + streamed:
            pattern = spread(pattern, memory, count)
        return pattern if layout == "interleaved" else pattern[::-1]
    stays = [memory for memory, count in resident for _ in range(count)]
    comes: list[str] = []
    for memory, count in streamed:
        comes = spread(comes, memory, count)
    return comes + stays if layout == "streamed_first" else stays + comes


def spread(base: list[str], memory: str, count: int) -> list[str]:
    """`count` more places among `base` as evenly as can be, none of them first where base has room."""
    total = len(base) + count
    rest = iter(base)
    return [
        memory if (i + 1) * count // total > i * count // total else next(rest)
        for i in range(total)
    ]


def check_kv(topology: Topology, kv: str | tuple[tuple[str, Portion], ...]) -> bool:
    """True where `kv` is "with layer" or memories that may hold a KV cache; raises PlanError where it is not."""
    memories = topology.memories
    if not isinstance(kv, str):
        return all([check_kv(topology, name) for name, _ in kv])
    if kv == "with layer":
        return True
    if "," in kv or ".." in kv:
        names = _known(kv, memories, "placement.kv", "memory", topology, ("with layer",))
        return all([check_kv(topology, name) for name in names])
    if kv in topology.processors:
        raise PlanError(f'placement.kv: "{kv}" is a processor; its memory is {topology.processors[kv].memory}.')
    if kv not in memories:
        hint = did_you_mean(kv, ["with layer", *memories], "Allowed")
        if kv in KV_FORMATS:
            hint = f"It is a format: model.kv, or --kv-format {kv}. {hint}"
        raise PlanError(f'placement.kv: no memory "{kv}" in topology {topology.name}. {hint}')
    return True


def in_short_names(placement: Placement) -> Placement:
    """The placement with every range of names in its shortest writing, so that equal ones have equal names."""
    weights = tuple((home_in_short(memory), portion) for memory, portion in placement.weights)
    experts = placement.experts
    if experts is not None:
        home = tuple((home_in_short(memory), portion) for memory, portion in experts.home)
        kept = experts.cache and replace(experts.cache, memory=in_short(experts.cache.memory))
        experts = replace(experts, home=home, compute=in_short(experts.compute), cache=kept)
    tensors = tuple((pattern, home_in_short(memory)) for pattern, memory in placement.tensors)
    kv = placement.kv
    kv = in_short(kv) if isinstance(kv, str) else tuple((in_short(name), portion) for name, portion in kv)
    cache = tuple((in_short(name), portion) for name, portion in placement.cache)
    return replace(placement, weights=weights, compute=in_short(placement.compute), kv=kv, experts=experts,
                   tensors=tensors, cache=cache, attention=in_short(placement.attention),
                   hand_over=in_short(placement.hand_over))


def memories_of(topology: Topology, processors: str) -> str:
    """The memory that a processor works in; of a range of processors the range of their memories."""
    return fold([topology.processors[name].memory for name in listed(processors)])


def with_some_ranks(topology: Topology, memories: str, processors: str) -> str:
    """What is wrong with memories that some of the processors work in, and not all of them; "" where it is none."""
    own = listed(memories_of(topology, processors))
    part = [name for name in own if name in home_names(memories)]
    if not part or len(part) == len(own):
        return ""
    return (f"{fold(part)} is a part of the memory of {processors}: each of them takes an equal part. Write "
            f"{fold(own)}, or a memory that is none of theirs.")


def equal_homes(memories: str) -> tuple[tuple[str, float], ...]:
    """The memories of a range with an equal share each."""
    names = listed(memories)
    return tuple((name, 1 / len(names)) for name in names)


def runs(topology: Topology, placement: Placement, memory: str, key: str = WEIGHTS) -> str:
    """The processor that runs what lives in a memory (a range of them: of memories). PlanError where it must choose."""
    text = ", ".join(home_names(memory)) if is_mixed(memory) else memory
    names = _known(text, topology.memories, key, "memory", topology, ())
    if placement.compute != "local":
        chosen = fold(_known(placement.compute, topology.processors, "placement.compute", "processor", topology,
                             ("local",)))
        return chosen
    found = []
    if is_mixed(memory):  # who works in one of them reads the others from there
        names = [name for name in names if topology.processors_of(name)] or names[:1]
    for name in names:
        here = sorted(topology.processors_of(name), key=lambda name: topology.processors[name].kind != "gpu")
        if len(here) > 1:
            choice = " or ".join(f"`compute: {name}`" for name in here)
            shown = ", ".join(here)
            raise PlanError(f"placement.compute: {name} has {len(here)} processors ({shown}); write {choice}.")
        found.append(here[0] if here else topology.nearest_processor(name))
    found = list(dict.fromkeys(found))
    if is_mixed(memory) and len(found) > 1:
        raise PlanError(f'placement.compute: processors work in several memories of "{memory}" ({", ".join(found)}); '
                        f"write `compute: {found[0]}`, or split rows between them.")
    return fold(found)


def _known(
    text: str, known: Collection[str], key: str, kind: str, topology: Topology, also: tuple[str, ...]
) -> list[str]:
    """The names that a text stands for, each of them known; raises PlanError."""
    try:
        names = listed(text)
    except ValueError as error:
        raise PlanError(f"{key}: {error}") from None
    for name in names:
        if name not in known:
            hint = did_you_mean(name, [*also, *known], "Allowed" if also else f"{kind.capitalize()} names")
            raise PlanError(f'{key}: no {kind} "{name}" in topology {topology.name}. {hint}')
    return names
