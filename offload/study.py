"""The answer to one question: everything that is known about one plan on one topology, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from offload.bounds import Floor, floor, load_seconds
from offload.capacity import Room, again, layers_that_fit, missing, missing_at_mean, room
from offload.compiler import compile_step
from offload.designs.hints import of_mean
from offload.displayed import Displayed, Pictured
from offload.errors import OffloadError
from offload.intervals import Open, what_is_open
from offload.kv_tiers import HandOver, Hit, hand_over_of, hit_of, kv_remarks
from offload.passed import Passed, passed
from offload.plan import Plan
from offload.ranges import fold
from offload.requests import Generation, generation
from offload.schedules import Schedule, Serial, hideable, schedule, serial
from offload.sensitivity import Change, NextBottleneck, changes, next_bottleneck, not_told_apart
from offload.step import Step, loads
from offload.topology import Topology
from offload.training import TrainingTimes, training_times
from offload.uncounted import uncounted


@dataclass(frozen=True, slots=True)
class Moved:
    """One row of what is read or moved each step. every: "layer", "step", "4 steps". bytes per step [B].

    A read where the data lives has destination None and names the processor in runs_on. count : how often a step.
    """

    what: str
    bytes: float
    source: str
    destination: str | None
    every: str
    runs_on: str | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One resource of the step: expected and least load per step, rates, the times they imply, share of the step.

    peak_seconds : of the least load, what a cache may spare taken off. share : sustained_seconds / expected time.
    """

    name: str
    kind: str
    load: float
    least: float
    unit: str
    peak: float | None
    sustained: float | None
    assumed: bool
    peak_seconds: float | None
    sustained_seconds: float | None
    share: float | None
    binding: bool


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One memory: capacity and use [B], by part. missing is what does not fit (0 where it fits).

    missing_at_mean : what would not fit if buffers held what is fetched on average, not the most.
    """

    name: str
    capacity: int | None
    used: int
    parts: Mapping[str, int]
    missing: int = 0
    missing_at_mean: int = 0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second of all sequences together; per_sequence is of the expected time.

    None: nothing bounds it; but for the floor also where much goes by parts without a rate (`Study.uncounted`).
    """

    floor: float | None
    overlapped: float | None
    serial: float | None
    per_sequence: float | None


@dataclass(frozen=True, slots=True)
class Study(Displayed, Pictured):
    """What `evaluate` returns."""

    title: str
    topology: str
    topology_title: str
    workload: Mapping[str, Any]
    moves: tuple[Moved, ...]
    floor: Floor
    floor_sustained: Floor
    serial: Serial
    overlapped: Schedule
    hideable_share: float | None
    hideable_among_transfers: float | None
    tokens_per_s: Throughput
    resources: tuple[ResourceRow, ...]
    memory: tuple[MemoryRow, ...]
    next_bottleneck: NextBottleneck | None
    changes: tuple[Change, ...]
    not_modelled: tuple[str, ...]
    assumptions: tuple[str, ...]
    first_limit: str = ""  # the first thing that breaks the memory budget, in words
    room: tuple[Room, ...] = ()  # the most that fits: batch, context, layers in each memory
    request: Generation | None = None  # the whole request, of which this is one step
    training: TrainingTimes | None = None  # of a training step
    open: Open | None = None  # what uncertain rates leave open
    hit: Hit | None = None  # a cached prefix, loaded or computed
    hand_over: HandOver | None = None  # of a prefill's KV
    of_mean: bool = False  # whether expected loads, and what follows of them, are means over steps: of experts chosen

    passed: tuple[Passed, ...] = ()  # what processors pass to one another, and how long that takes alone
    uncounted: tuple[str, ...] = ()  # without a rate, and much depends on them: times are at least so long

    @property
    def fits(self) -> bool:
        """Whether every memory holds what the plan puts there."""
        return all(row.missing == 0 for row in self.memory)


def evaluate(topology: Topology, plan: Plan) -> Study:
    """Floor, schedule, memory and what would change them, for one plan on one topology.

    Amounts must be numbers. Raises PlanError and RouteError as `compile_step` does; a plan that does not fit is
    evaluated all the same and says what is missing.

    >>> from offload import evaluate, load_plan
    >>> plan, topology = load_plan("examples/by-hand.yaml")
    >>> study = evaluate(topology, plan)
    >>> study.floor.seconds <= study.overlapped.seconds <= study.serial.seconds
    True
    """
    step = compile_step(topology, plan)
    bound, sustained = floor(step), floor(step, "value")
    layers = layers_that_fit(step)
    alone, overlapped, hidden = serial(step), schedule(step), hideable(step)
    unknown = uncounted(step)
    told = overlapped.seconds > 0 and not unknown
    found = changes(step, overlapped.seconds, bound, sustained, layers) if told else ()
    return Study(
        title=plan.title,
        topology=topology.name,
        topology_title=topology.title,
        workload=_workload(plan),
        moves=_moves(step),
        floor=bound,
        floor_sustained=sustained,
        serial=alone,
        overlapped=overlapped,
        hideable_share=hidden.behind_compute,
        hideable_among_transfers=hidden.among_transfers,
        tokens_per_s=Throughput(
            _rate(plan.tokens_at_most, bound.seconds),
            None if unknown else _rate(plan.tokens, overlapped.seconds),
            None if unknown else _rate(plan.tokens, alone.seconds),
            None if unknown else _rate(plan.tokens / plan.sequences, overlapped.seconds),
        ),
        resources=_resources(step, bound, overlapped.seconds),
        memory=_memory(step),
        next_bottleneck=next_bottleneck(step, bound),
        changes=found,
        not_modelled=(*plan.not_modelled, *not_told_apart(found)),
        assumptions=assumptions_of(step),
        first_limit=_first_limit(step),
        room=room(step, layers),
        request=None if plan.request is None else _request(step),
        training=training_times(step, overlapped, bound.seconds),
        open=what_is_open(step, (overlapped.low, overlapped.high)),
        hit=hit_of(step),
        hand_over=hand_over_of(step),
        of_mean=of_mean(plan),
        passed=passed(step, overlapped.seconds),
        uncounted=unknown,
    )


def _request(step: Step) -> Generation:
    """The times of a whole request; with speculation, of the same without it too."""
    found = generation(step.topology, step.plan)
    workload = None if step.plan.origin is None else step.plan.origin[1]
    if workload is None or workload.speculation is None:
        return found
    try:
        plain = again(step, workload=replace(workload, speculation=None)).plan
        return replace(found, without_speculation=generation(step.topology, plain).total)
    except OffloadError:
        return found  # no such plan: there is nothing to compare with


def _workload(plan: Plan) -> dict[str, Any]:
    """What was asked; what is as usual is left out."""
    shown = {**plan.workload, "overlap": str(plan.overlap)}
    if "batch" not in shown and plan.tokens != 1:
        shown["tokens"] = plan.tokens
    if plan.in_flight != 1:
        shown["in_flight"] = plan.in_flight
    return shown


def _rate(tokens: float, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None


def _moves(step: Step) -> tuple[Moved, ...]:
    sums: dict[tuple[str, str, str | None, str | None, int], tuple[float, int]] = {}
    for row, count in zip(step.rows, step.counts, strict=True):
        for part in row.moved:
            key = (part.what, part.source, part.destination, part.runs_on, row.every)
            size, times = sums.get(key, (0.0, 0))
            sums[key] = (size + count / row.every * part.bytes, times + count)
    return tuple(
        Moved(what, size, source, destination, _every(every, times), runs_on, times)
        for (what, source, destination, runs_on, every), (size, times) in sums.items()
    )


def _every(steps: int, count: int) -> str:
    if steps > 1:
        return f"{steps} steps"
    return "layer" if count > 1 else "step"


def _resources(step: Step, bound: Floor, seconds: float) -> tuple[ResourceRow, ...]:
    expected, least = loads(step, least=False), loads(step, least=True)
    at_peak = load_seconds(step, "peak").resource_seconds
    at_sustained = load_seconds(step, "value").resource_seconds
    used = {(use.resource, use.access) for row in step.rows for use in row.uses}
    rows = []
    for name, resource in step.resources.items():
        accesses = {access for used_name, access in used if used_name == name}
        assumed = any((access if access in resource.sustained else "") in resource.assumed for access in accesses)
        time = at_sustained[name]
        load = expected[name]
        if load > 0 and time > 0:
            rate = load / time
        else:
            interval = resource.sustained_at(min(accesses))
            rate = interval.value if interval else resource.peak
        rows.append(ResourceRow(
            name, resource.kind, load, least[name], resource.unit, resource.peak, rate, assumed, at_peak.get(name),
            time, time / seconds if seconds > 0 else None, name in bound.bottleneck,
        ))
    order = {"memory": 0, "link": 1, "limit": 2, "processor": 3}
    return tuple(sorted(rows, key=lambda row: (-(row.sustained_seconds or 0), order.get(row.kind, 4), row.name)))


def _memory(step: Step) -> tuple[MemoryRow, ...]:
    lacking, at_mean = missing(step), missing_at_mean(step)
    rows = []
    for name in sorted(step.occupied):
        memory = step.topology.memories[name]
        parts = {part: amount for part, amount in step.occupied[name].items() if amount}
        capacity = None if memory.capacity is None else memory.capacity * memory.count
        rows.append(MemoryRow(name, capacity, sum(parts.values()), parts, lacking.get(name, 0),
                              at_mean.get(name, 0)))
    return tuple(rows)


def _first_limit(step: Step) -> str:
    """What fills a memory first as the context or the number of requests grows."""
    from offload.units import format_bytes

    lacking = missing(step)
    if lacking:
        return "; ".join(f"{name} lacks {format_bytes(over)}" for name, over in sorted(lacking.items()))
    context, batch = step.plan.workload.get("context"), step.plan.workload.get("batch")
    if step.plan.workload.get("phase") == "prefill":  # the cache has room for the prompt too, all of its chunks
        asked = step.plan.origin[1]
        context = asked.context + asked.prompt
    tightest = None
    for name, parts in step.occupied.items():
        memory, cache = step.topology.memories[name], parts.get("KV cache", 0)
        if memory.capacity is None or not cache or not context:
            continue
        free = memory.capacity * memory.count - sum(parts.values())
        positions = free * context * batch // cache
        if tightest is None or positions < tightest[1]:
            tightest = (name, positions)
    if tightest is None:
        return ""
    name, positions = tightest
    return (f"{name} fills first: room for {positions // batch:,} more positions of context in each sequence, or "
            f"{positions // context:,} more requests of {context:,}")


def assumptions_of(step: Step) -> tuple[str, ...]:
    """The plan's and the step's assumptions, and those of the topology about parts that the step uses."""
    notes = [*step.plan.assumptions, *step.assumptions, *kv_remarks(step)]
    parts = {name.split(".")[0] for name in step.resources}
    others = {*step.topology.memories, *step.topology.processors, *step.topology.links, *step.topology.limits}
    for note in step.topology.assumptions:
        subject = note.partition(":")[0]
        part = subject.split(".")[0]
        used = subject in step.resources or (subject not in step.topology.resources and part in parts)
        if used or part not in others:
            notes.append(note)
    bare = [name for name, one in step.resources.items() if one.kind == "memory" and one.unit == "B" and not one.cache
            and name in step.topology.memories and step.topology.memories[name].kind in ("dram", "hbm", "unified")]
    if bare:
        notes.append(f"no cache is stated in front of {fold(bare)}: its floor counts every byte")
    unproved = [name for name, resource in step.resources.items() if resource.peak is None]
    if unproved:
        notes.append(f"no peak rate is known of {fold(unproved)}: left out of floors")
    return tuple(dict.fromkeys(notes))
