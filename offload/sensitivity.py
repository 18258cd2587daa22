"""What would change it: single changes to a plan or its machine, each evaluated anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from offload.bounds import Floor, floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.designs.placement import portions_in_layers
from offload.errors import OffloadError
from offload.models import weigh
from offload.plan import UNLIMITED, Overlap
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

    gain = T / T', the useful speed-up of any upgrade of the bottleneck, as far as peak rates are known. None where
    nothing else has a floor.
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
    overlap = plan.overlap
    if any(slot.buffers != UNLIMITED for slot in step.slots):
        if overlap.kind == "none":
            yield "2 buffers instead of no overlap", lambda: compile_step(
                step.topology, replace(plan, overlap=Overlap("buffers", 2)))
        elif overlap.buffers != UNLIMITED:
            more = overlap.buffers + 1
            yield f"{more} buffers instead of {more - 1}", lambda: compile_step(
                step.topology, replace(plan, overlap=replace(overlap, buffers=more)))


def _design_variants(step: Step) -> Iterator[tuple[str, Callable[[], Step]]]:
    plan, topology = step.plan, step.topology
    _, workload, placement, _, _ = plan.origin
    for memory, count, now in most_layers(step)[:2]:
        if count != now:
            fits = "all that fit" if count > now else "the most that fit"
            yield f"{count} layers in {memory} instead of {now} ({fits})", lambda memory=memory, count=count: _again(
                step, placement=_with_layers(placement, memory, count))
    yield f"batch {2 * workload.batch} instead of {workload.batch}", lambda: _again(
        step, workload=replace(workload, batch=2 * workload.batch))
    gpus = sorted(name for name, processor in topology.processors.items() if processor.kind == "gpu")
    if placement.compute == "local" and len(gpus) == 1:
        if any(not row.transfer and row.lane != gpus[0] for row in step.rows):
            yield f"stream to {gpus[0]} the layers that run elsewhere", lambda: _again(
                step, placement=replace(placement, compute=gpus[0]))
    elif placement.compute != "local":
        yield "run layers where they live instead of streaming them", lambda: _again(
            step, placement=replace(placement, compute="local"))


def _again(step: Step, workload: Workload | None = None, placement: Placement | None = None) -> Step:
    """The step of the same model with another workload or placement."""
    model, asked, placed, weights, kv = step.plan.origin
    return compile_step(step.topology, plan_model(
        model, step.topology, workload or asked, placement or placed, weights=weights, kv=kv,
        overlap=step.plan.overlap,
    ))  # fmt: skip


def _with_layers(placement: Placement, memory: str, count: int) -> Placement:
    portions = tuple((name, Portion("layers", count) if name == memory else portion)
                     for name, portion in placement.weights)  # fmt: skip
    return replace(placement, weights=portions)


def most_layers(step: Step) -> list[tuple[str, int, int]]:
    """(memory, most whole layers that fit in it, layers there now) for each memory that does not take the rest.

    The rest of the layers moves to or from the memory that takes it. Empty for a plan by hand, and where nothing fits.
    """
    if step.plan.origin is None:
        return []
    model, _, placement, weights, _ = step.plan.origin
    if not any(portion.kind == "rest" for _, portion in placement.weights):
        return []
    sizes = weigh(model, weights).layers
    counts = portions_in_layers(placement, sizes)
    found = []
    for memory, now in counts:
        if dict(placement.weights)[memory].kind == "rest":
            continue
        others = sum(count for name, count in counts if name != memory and dict(placement.weights)[name].kind != "rest")
        most = len(sizes) - others
        spot = step.topology.memories[memory]
        free = most * max(sizes) if spot.capacity is None else (
            spot.capacity * spot.count - sum(step.occupied.get(memory, {}).values()))  # fmt: skip
        guess = max(0, min(most, now + free // max(sizes)))

        def fits(count: int, memory: str = memory) -> bool:
            return not missing(_again(step, placement=_with_layers(placement, memory, count)))

        while guess > 0 and not fits(guess):
            guess -= 1
        if guess == 0 and not fits(0):
            continue
        while guess < most and fits(guess + 1):
            guess += 1
        found.append((memory, guess, now))
    return found


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
    if resource.kind == "limit":
        return f"limit {resource.name} twice as high"
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
