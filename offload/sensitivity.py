"""What would change it: single changes to a plan or its machine, each evaluated anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from offload.bounds import Floor, floor
from offload.capacity import LayersIn, again, missing
from offload.compiler import compile_step
from offload.designs import Placement
from offload.designs.homes import home_names
from offload.designs.placement import memories_of
from offload.designs.placement import runs as runs_on
from offload.errors import OffloadError
from offload.plan import UNLIMITED, Amount, Overlap
from offload.ranges import fold, runs
from offload.schedules import schedule
from offload.step import Step
from offload.topology import Resource, Topology
from offload.undone import batch_past, memories_of_gpus, undone

EQUAL = 0.005  # relative difference of tokens per second below which two changes are taken to be equal
FAR = ("numa: how much slower a CPU's own reads of another socket's memory are, beyond the rate of the link between "
       "them: interleave and duplicate come out equal here, and on real sockets duplicate may be faster")  # fmt: skip
OUTSIDE = {"output head", "final norm"}  # what runs outside of layers


@dataclass(frozen=True, slots=True)
class Change:
    """One single change and what the step would then take [s].

    gain : new over old expected tokens per second; of a diffusion model items of the batch, which each step advances.
    """

    what: str
    seconds: float
    gain: float
    floor_seconds: float


@dataclass(frozen=True, slots=True)
class NextBottleneck:
    """What binds once the present bottleneck is gone, and how much faster the floor could then be at most."""

    name: str
    gain: float


def next_bottleneck(step: Step, bound: Floor) -> NextBottleneck | None:
    """Take the binding resources away (for a chain the one that takes longest) and see what the floor becomes.

    gain = T / T', the useful speed-up of any upgrade of the bottleneck, as far as peak rates are known. None where
    nothing else has a floor.
    """
    if not bound.bottleneck:
        return None
    gone = binding(bound)
    resources = {
        name: replace(resource, peak=None) if name in gone else resource for name, resource in step.resources.items()
    }
    after = floor(replace(step, resources=resources))
    if not after.bottleneck or after.seconds <= 0:
        return None
    return NextBottleneck(fold(runs(binding(after))[0]), bound.seconds / after.seconds)


def binding(bound: Floor) -> tuple[str, ...]:
    """What has to be faster for the floor to fall: all that tie, or of a chain what takes longest."""
    if bound.rule == "load" or not bound.terms:
        return bound.bottleneck
    return (bound.terms[0].resource, *bound.terms[0].also)


def changes(
    step: Step, seconds: float, bound: Floor, sustained: Floor, layers: Sequence[LayersIn] = ()
) -> tuple[Change, ...]:
    """A few single changes, each re-evaluated: faster resources, more layers, batch, buffers, each technique undone.

    seconds : the present expected time of a step [s]. layers : of `layers_that_fit`. Those that do not fit say so.
    The present schedule runs as well on faster parts, or with a buffer more, so none of these takes longer.
    """
    present = _yield(step) / seconds
    found = []
    for what, changed, allows in _variants(step, bound, sustained, layers):
        try:
            variant = changed()
            if _is_same(variant, step):
                continue  # what it changes has no effect here
            after = schedule(variant, ends=False).seconds
            if allows:
                after = min(after, seconds)
            if after <= 0:
                continue
            lacks = _lacks(variant)
            found.append(Change(what + lacks, after, _yield(variant) / after / present, floor(variant).seconds))
        except OffloadError:
            continue  # no such variant on this machine (no route, no processor)
    return tuple(found)


def not_told_apart(found: Sequence[Change]) -> tuple[str, ...]:
    """What is not modelled where pages in turn over sockets take as long as a copy on each, as a line of the report."""
    pair = ("numa: interleave instead of duplicate", "numa: duplicate instead of interleave")
    if any(one.what.endswith(pair) and abs(one.gain - 1) < EQUAL for one in found):
        return (FAR,)
    return ()


def _is_same(one: Step, other: Step) -> bool:
    """Whether two steps do the same on the same resources."""
    return one is not other and one.resources == other.resources and all(
        getattr(one.plan, name) == getattr(other.plan, name)
        for name in ("tensors", "blocks", "held", "overlap", "tokens", "in_flight")
    )


def _yield(step: Step) -> Amount:
    """What a step yields, to compare batches: tokens; of a diffusion model the items that it advances."""
    plan = step.plan
    return plan.workload["batch"] if plan.workload.get("phase") == "denoise" else plan.tokens


def _variants(
    step: Step, bound: Floor, sustained: Floor, layers: Sequence[LayersIn]
) -> Iterator[tuple[str, Callable[[], Step], bool]]:
    """What changes, the step with it, and whether it allows whatever the present one does, in the same time."""
    alike = runs(dict.fromkeys([*sustained.bottleneck, *bound.bottleneck]))[:3]  # ranks that work alike go together
    done: set[str] = set()
    for names in alike:
        group = set().union(*(together(step.topology, name) for name in names))
        if group & done or step.resources[names[0]].unit == "s":  # a given time is no part to buy
            continue
        done |= group
        text = _faster_text(step.resources[names[0]], names, group, group & set(step.resources))
        yield text, partial(scaled, step, group, 2), True
    plan = step.plan
    if plan.origin is not None:
        yield from ((*variant, False) for variant in _design_variants(step, layers))
    yield from ((*variant, False) for variant in (*undone(step), *batch_past(step, sustained)))
    overlap = plan.overlap
    if any(slot.buffers != UNLIMITED for slot in step.slots):
        if overlap.kind == "none":
            yield "2 buffers instead of no overlap", lambda: compile_step(
                step.topology, replace(plan, overlap=Overlap("buffers", 2))), True
        elif overlap.buffers != UNLIMITED:
            more = overlap.buffers + 1
            yield f"{more} buffers instead of {more - 1}", lambda: compile_step(
                step.topology, replace(plan, overlap=replace(overlap, buffers=more))), True


def _design_variants(step: Step, layers: Sequence[LayersIn]) -> Iterator[tuple[str, Callable[[], Step]]]:
    plan, topology = step.plan, step.topology
    _, workload, placement, _, _ = plan.origin
    for one in _layers_to_move(topology, placement, layers):
        fits = "all that fit" if one.most > one.now else "the most that fit"
        yield f"{one.most} layers in {one.memory} instead of {one.now} ({fits})", partial(
            again, step, placement=one.placement)
    yield f"batch {2 * workload.batch} instead of {workload.batch}", lambda: again(
        step, workload=replace(workload, batch=2 * workload.batch))
    gpus = sorted(name for name, processor in topology.processors.items() if processor.kind == "gpu")
    if placement.compute == "local" and len(gpus) == 1:
        experts = placement.experts and replace(placement.experts, compute="")
        if not placement.attention and any(not row.transfer and row.lane != gpus[0] for row in step.rows):
            yield f"stream to {gpus[0]} {_elsewhere(step, gpus[0])}", lambda: again(
                step, placement=replace(placement, compute=gpus[0], experts=experts))
    elif placement.compute == "local" or placement.split:
        return
    elif any(row.transfer and not row.urgent for row in step.rows):
        yield "run layers where they live instead of streaming them", lambda: again(
            step, placement=replace(placement, compute="local"))


def _layers_to_move(topology: Topology, placement: Placement, layers: Sequence[LayersIn]) -> list[LayersIn]:
    """The first two memories that may have other layers; none takes layers away from a memory where they run.

    Where the rest lies with its own processor, more layers elsewhere are no gain, but more of the rest are.
    """
    rest = next((name for name, portion in placement.weights if portion.kind == "rest"), None)
    at_home = rest is not None and _runs_at(topology, placement, rest)
    gpus = memories_of_gpus(topology)

    def away(one: LayersIn) -> bool:
        if rest is None or not at_home or one.memory == rest or one.most < one.now:
            return False
        off_gpu = set(home_names(rest)) <= gpus and not set(home_names(one.memory)) <= gpus
        return off_gpu or not _runs_at(topology, placement, one.memory)

    some = [one for one in layers if one.most != one.now]
    leave = any(away(one) for one in some)
    return [one for one in some if not away(one) and (leave or not one.takes_rest)][:2]


def _runs_at(topology: Topology, placement: Placement, home: str) -> bool:
    """Whether layers that live in a memory run on its own processor."""
    try:
        return memories_of(topology, runs_on(topology, placement, home)) == home
    except OffloadError:
        return False  # nothing runs there


def _elsewhere(step: Step, gpu: str) -> str:
    """What runs on another processor than a GPU, in words."""
    if step.plan.origin[2].experts is not None:
        return "what runs elsewhere"
    whats = {part.what for row in step.rows if not row.transfer and row.lane != gpu for part in row.moved}
    return "the output head, which runs elsewhere" if whats <= OUTSIDE else "the layers that run elsewhere"


def _lacks(step: Step) -> str:
    from offload.units import format_bytes

    lacking = missing(step)
    if not lacking:
        return ""
    texts: dict[str, list[str]] = {}
    for name, over in lacking.items():
        texts.setdefault(format_bytes(over), []).append(name)
    return " (does not fit: " + ", ".join(f"{fold(names)} lacks {size}" for size, names in texts.items()) + ")"


def together(topology: Topology, name: str) -> set[str]:
    """The resources that one upgrade of a resource makes faster, by name.

    A memory's ports go with its processors' own rates from it, a link's directions with the caps over it alone, a
    drive with its link (a second drive brings its own).
    """
    memory = name.split(".")[0]
    if memory in topology.memories:
        own = [f"{processor}.{kind}" for processor in topology.processors_of(memory) for kind in ("reads", "writes")]
        if topology.memories[memory].kind in ("nvme", "disk"):
            for link in topology.links.values():
                own += _of_link(topology, link.name) if memory in (link.a, link.b) else ()
        return {name for name in (memory, f"{memory}.read", f"{memory}.write", *own) if name in topology.resources}
    if memory in topology.processors and not name.endswith(".flops"):
        return together(topology, topology.processors[memory].memory)
    if memory in topology.links:
        link = topology.links[memory]
        drives = [end for end in (link.a, link.b) if end in topology.memories
                  and topology.memories[end].kind in ("nvme", "disk")]  # fmt: skip
        return together(topology, drives[0]) if drives else _of_link(topology, memory)
    return {name}


def _of_link(topology: Topology, name: str) -> set[str]:
    caps = {limit.name for limit in topology.limits.values() if {over.split(".")[0] for over in limit.over} == {name}}
    return {other for other in topology.resources if other == name or other.startswith(f"{name}.")} | caps


def _faster_text(resource: Resource, names: list[str], group: set[str], used: set[str]) -> str:
    parts = fold(name.split(".")[0] for name in names)
    drives = sorted({name.rsplit(".", 1)[0] for name in group if name.endswith((".read", ".write"))})
    if drives:
        return f"twice the drives of {fold(drives)}, each on a link of its own"
    if resource.kind == "limit":
        return f"limit {fold(names)} twice as high"
    if resource.kind == "link":
        return f"link {parts} twice as fast"
    if resource.kind == "processor" and resource.unit == "FLOP":
        return f"twice the arithmetic of {parts}"
    return f"{' and '.join(fold(run) for run in runs(sorted(used)))} twice as fast (channels or speed)"


def scaled(step: Step, names: Collection[str], factor: float) -> Step:
    """The step with the peak and the sustained rates of some resources times a factor [1]; latencies stay."""
    resources = {
        name: replace(
            resource,
            peak=None if resource.peak is None else factor * resource.peak,
            sustained={access: interval.scaled(factor) for access, interval in resource.sustained.items()},
        ) if name in names else resource
        for name, resource in step.resources.items()
    }
    return replace(step, resources=resources)
