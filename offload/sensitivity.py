"""What would change it: single changes to a plan or its machine, each evaluated anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from offload.bounds import Floor, floor
from offload.compiler import compile_step
from offload.errors import OffloadError
from offload.plan import UNLIMITED
from offload.schedules import schedule
from offload.step import Step
from offload.topology import Resource, Topology


@dataclass(frozen=True, slots=True)
class Change:
    """One single change and what the step would then take [s]. gain : new over old expected tokens per second."""

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

    gain = T / T', the useful speed-up of any upgrade of the bottleneck. None where nothing else has a floor.
    """
    if not bound.bottleneck:
        return None
    gone = bound.bottleneck if bound.rule == "load" else bound.bottleneck[:1]
    resources = {
        name: replace(resource, peak=None) if name in gone else resource for name, resource in step.resources.items()
    }
    after = floor(replace(step, resources=resources))
    if not after.bottleneck or after.seconds <= 0:
        return None
    return NextBottleneck(after.bottleneck[0], bound.seconds / after.seconds)


def changes(step: Step, seconds: float, bound: Floor, sustained: Floor) -> tuple[Change, ...]:
    """A few single changes, each re-evaluated: faster resources, more layers, batch, buffers, another placement.

    seconds : the present expected time of a step [s]. Those that do not fit say so.
    """
    present = step.plan.tokens / seconds
    found = []
    for what, changed in _variants(step, bound, sustained):
        try:
            variant = changed()
            after = schedule(variant, ends=False).seconds
            if after <= 0:
                continue
            lacks = _lacks(variant)
            found.append(Change(what + lacks, after, variant.plan.tokens / after / present, floor(variant).seconds))
        except OffloadError:
            continue  # no such variant on this machine (no route, no processor)
    return tuple(found)


def _variants(step: Step, bound: Floor, sustained: Floor) -> Iterator[tuple[str, Callable[[], Step]]]:
    names = list(dict.fromkeys([*sustained.bottleneck, *bound.bottleneck]))[:3]
    done = set()
    for name in names:
        group = _together(step.topology, name)
        if group & done or step.resources[name].unit == "s":  # a given time is no part to buy
            continue
        done |= group
        text = _faster_text(step.resources[name], group, group & set(step.resources))
        yield text, lambda group=group: _faster(step, group)
    plan = step.plan
    if plan.origin is not None:
        yield from _design_variants(step)
    if plan.overlap.kind == "buffers" and plan.overlap.buffers != UNLIMITED and any(
        slot.buffers != UNLIMITED for slot in step.slots
    ):
        more = plan.overlap.buffers + 1
        yield f"{more} buffers instead of {more - 1}", lambda: compile_step(
            step.topology, replace(plan, overlap=replace(plan.overlap, buffers=more)))


def _design_variants(step: Step) -> Iterator[tuple[str, Callable[[], Step]]]:
    from offload.designs import Placement, Portion, Workload, plan_decode

    plan, topology = step.plan, step.topology
    model, workload, placement, weights, kv = plan.origin

    def again(workload: Workload = workload, placement: Placement = placement) -> Step:
        return compile_step(topology, plan_decode(model, topology, workload, placement, weights=weights, kv=kv,
                                                  overlap=plan.overlap))

    more = most_layers(step)
    if more is not None:
        memory, count, now = more
        if count != now:
            rest = placement.weights[1][0]
            portions = ((memory, Portion("layers", count)), (rest, Portion("rest")))
            fits = "all that fit" if count > now else "the most that fit"
            yield f"{count} layers in {memory} instead of {now} ({fits})", lambda: again(
                placement=replace(placement, weights=portions))
    yield f"batch {2 * workload.batch} instead of {workload.batch}", lambda: again(
        replace(workload, batch=2 * workload.batch))
    gpus = sorted(name for name, processor in topology.processors.items() if processor.kind == "gpu")
    if placement.compute == "local" and len(gpus) == 1:
        if any(not row.transfer and row.lane != gpus[0] for row in step.rows):
            yield f"stream all layers to {gpus[0]} instead of running them where they live", lambda: again(
                placement=replace(placement, compute=gpus[0]))
    elif placement.compute != "local":
        yield "run layers where they live instead of streaming them", lambda: again(
            placement=replace(placement, compute="local"))


def most_layers(step: Step) -> tuple[str, int, int] | None:
    """(memory, most whole layers that fit in it, layers there now) for a placement over two memories, else None."""
    from offload.designs import Portion, plan_decode
    from offload.designs.placement import portions_in_layers
    from offload.models import weigh

    if step.plan.origin is None:
        return None
    model, workload, placement, weights, kv = step.plan.origin
    if len(placement.weights) != 2 or placement.weights[1][1].kind != "rest":
        return None
    memory = placement.weights[0][0]
    layers = weigh(model, weights).layers
    now = portions_in_layers(placement, layers)[0][1]

    def fits(count: int) -> bool:
        portions = ((memory, Portion("layers", count)), (placement.weights[1][0], Portion("rest")))
        plan = plan_decode(model, step.topology, workload, replace(placement, weights=portions), weights=weights,
                           kv=kv, overlap=step.plan.overlap)
        return missing(compile_step(step.topology, plan)).get(memory, 0) == 0

    low, high = 0, len(layers)
    if not fits(0):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return memory, low, now


def missing(step: Step) -> dict[str, int]:
    """Bytes that do not fit, by memory (only those that lack some)."""
    lacking = {}
    for name, parts in step.occupied.items():
        memory = step.topology.memories[name]
        if memory.capacity is not None:
            over = sum(parts.values()) - memory.capacity * memory.count
            if over > 0:
                lacking[name] = over
    return lacking


def _lacks(step: Step) -> str:
    from offload.units import format_bytes

    lacking = missing(step)
    if not lacking:
        return ""
    return " (does not fit: " + ", ".join(f"{name} lacks {format_bytes(over)}" for name, over in lacking.items()) + ")"


def _together(topology: Topology, name: str) -> set[str]:
    """What one upgrade makes faster: a memory's ports with its processors' own rates from it, a link with the caps over
    it alone, a drive with its link (a second drive brings its own)."""
    memory = name.split(".")[0]
    if memory in topology.memories:
        own = [f"{processor}.{kind}" for processor in topology.processors_of(memory) for kind in ("reads", "writes")]
        if topology.memories[memory].kind in ("nvme", "disk"):
            for link in topology.links.values():
                own += _of_link(topology, link.name) if memory in (link.a, link.b) else ()
        return {name for name in (memory, f"{memory}.read", f"{memory}.write", *own) if name in topology.resources}
    if memory in topology.processors and not name.endswith(".flops"):
        return _together(topology, topology.processors[memory].memory)
    if memory in topology.links:
        link = topology.links[memory]
        drives = [end for end in (link.a, link.b) if end in topology.memories
                  and topology.memories[end].kind in ("nvme", "disk")]  # fmt: skip
        return _together(topology, drives[0]) if drives else _of_link(topology, memory)
    return {name}


def _of_link(topology: Topology, name: str) -> set[str]:
    caps = {limit.name for limit in topology.limits.values() if {over.split(".")[0] for over in limit.over} == {name}}
    return {other for other in topology.resources if other == name or other.startswith(f"{name}.")} | caps


def _faster_text(resource: Resource, group: set[str], used: set[str]) -> str:
    drive = next((name for name in sorted(group) if name.endswith((".read", ".write"))), None)
    if drive is not None:
        return f"twice the drives of {drive.rsplit('.', 1)[0]}, each on a link of its own"
    if resource.kind == "link":
        return f"link {resource.name.split('.')[0]} twice as fast"
    if resource.kind == "processor" and resource.unit == "FLOP":
        return f"twice the arithmetic of {resource.name.split('.')[0]}"
    return f"{' and '.join(sorted(used))} twice as fast (channels or speed)"


def _faster(step: Step, names: set[str]) -> Step:
    resources = {
        name: replace(
            resource,
            peak=None if resource.peak is None else 2 * resource.peak,
            sustained={access: interval.scaled(2) for access, interval in resource.sustained.items()},
        ) if name in names else resource
        for name, resource in step.resources.items()
    }
    return replace(step, resources=resources)
