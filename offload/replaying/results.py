"""What a replay found: times measured beside those of the model, bytes moved beside the plan's loads, and whether the
run kept to the plan, which is checked on the times that were recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

from offload.bounds import floor
from offload.plan import UNLIMITED
from offload.replaying.doing import Moved
from offload.replaying.items import Program, round_of
from offload.replaying.layout import Home, Layout, Move
from offload.replaying.running import Record
from offload.replaying.scaling import PAGE
from offload.schedules import Timeline, cold_timeline, schedule, serial, solo_seconds, steady_timeline
from offload.step import Step, loads, seconds_of_rows

SHOWN_ROUNDS = 3  # of a timeline


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of so many runs [s]."""

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread | None:
        """The spread of some times; None of none."""
        return cls(median(times), min(times), max(times), len(times)) if times else None


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the model says of the step that was run [s]. floor : None where no resource has a peak."""

    floor: float | None
    seconds: float
    low: float
    high: float
    cold: float
    serial: float
    policy: str


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """A task: how often it happens in a step, what it takes alone and in the schedule, and what it took [s]."""

    name: str
    transfer: bool
    count: float
    alone: float
    planned: float | None
    measured: Spread | None


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """A resource in an average step: the plan's load and what was really moved [B or FLOP]; seconds of work at its
    sustained rates, and seconds in which any task that uses it ran. moved : None where it cannot be counted.

    why : where the two differ, what that comes from.
    """

    name: str
    unit: str
    load: float
    moved: float | None
    busy: float
    in_use: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class SlotsUsed:
    """Buffers of a move: how many the plan gives it (0: no limit), and how many were in use at once at most."""

    name: str
    buffers: int
    most: int


@dataclass(frozen=True, slots=True)
class RateUsed:
    """A rate that the prediction is made with: its ends [B/s or FLOP/s], and where it is from."""

    resource: str
    access: str
    unit: str
    low: float
    value: float
    high: float
    source: str
    assumed: bool


@dataclass(slots=True)
class Replay:
    """A plan's step as it was run and as the model has it. Times in seconds, amounts in bytes and FLOP.

    step : what was run and predicted. factor : the part of the plan's bytes and FLOP; because : why not all. periods :
    of each counted step, or mean step of a round. first : the first step, from empty buffers. wrong : what the checks
    found. timelines : (predicted, measured) from empty buffers, for figures.
    """

    step: Step
    factor: float
    because: tuple[str, ...]
    predicted: Predicted
    steps: int
    warm: int
    periods: tuple[float, ...]
    first: float | None
    tasks: tuple[TaskTimes, ...]
    resources: tuple[ResourceUse, ...]
    slots: tuple[SlotsUsed, ...]
    rates: tuple[RateUsed, ...]
    checked: Mapping[str, int]
    wrong: tuple[str, ...]
    timelines: tuple[Timeline, Timeline | None]
    stands: Mapping[str, str]
    how: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    storage: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # "read" -> (asked, by the drives) [B]
    interrupted: bool = False
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> Spread | None:
        """A step, back to back [s]; None where not one ended."""
        return Spread.of(self.periods)

    @property
    def ratio(self) -> float | None:
        """measured / schedule; None where nothing was measured or nothing takes time."""
        return None if self.measured is None or not self.predicted.seconds else (
            self.measured.median / self.predicted.seconds)

    @property
    def below_floor(self) -> bool:
        """Whether it was faster than the floor, which a true peak forbids."""
        return (self.measured is not None and self.predicted.floor is not None
                and self.measured.median < self.predicted.floor)  # fmt: skip


def predicted_of(step: Step) -> Predicted:
    """The model's times of a step."""
    found = schedule(step)
    least = floor(step).seconds
    return Predicted(least or None, found.seconds, found.low, found.high, found.cold_seconds, serial(step).seconds,
                     found.policy)  # fmt: skip


def rates_of(step: Step) -> tuple[RateUsed, ...]:
    """Each rate that the schedule is made with, and its source."""
    asked = dict.fromkeys((use.resource, use.access) for row in step.rows for use in row.uses)
    found = []
    for name, access in asked:
        resource = step.resources[name]
        if resource.unit == "s":
            continue
        rate = resource.sustained_at(access)
        peak = cast(float, resource.peak)  # where there is no other
        ends = (peak, peak, peak) if rate is None else (rate.low, rate.value, rate.high)
        known = access if access in resource.sustained else ""
        found.append(RateUsed(name, known, resource.unit, *ends, resource.source, known in resource.assumed))
    return tuple(dict.fromkeys(found))


def planned_timeline(step: Step) -> Timeline:
    """The schedule's timeline from empty buffers: some rounds, or one step alone where they are too long."""
    return steady_timeline(step, rounds=SHOWN_ROUNDS) or cold_timeline(step)


def measured_timeline(step: Step, program: Program, record: Record, steps: int) -> Timeline | None:
    """The first steps of a run, from empty buffers, for figures."""
    kept = [place for place, item in enumerate(program.items)
            if item.step < steps and record.ended[place] is not None]  # fmt: skip
    if not kept:
        return None
    spot = {place: number for number, place in enumerate(kept)}
    spans = [record.span(place) for place in kept]
    start = min(begun for begun, _ in spans)
    waits = []
    for place in kept:
        item = program.items[place]
        on = {*item.needs, *item.frees, *(() if item.after is None else (item.after,))}
        waits.append(tuple(sorted(spot[one] for one in on if one in spot)))
    return Timeline(
        tuple(step.instances[program.items[place].instance] for place in kept),
        tuple(begun - start for begun, _ in spans), tuple(ended - start for _, ended in spans),
        tuple(waits), steps,
    )  # fmt: skip


def periods_of(step: Step, program: Program, record: Record, lead: int, steps: int) -> tuple[float, ...]:
    """Seconds of each counted step: from the end of the step before to its own; of rounds a step's mean."""
    ends = _ends(program, record)
    size = round_of(step)
    found = []
    for first in range(lead, lead + steps, size):
        before, last = ends.get(first - 1), ends.get(first + size - 1)
        if before is None or last is None:
            break
        found.append((last - before) / size)
    return tuple(found)


def _ends(program: Program, record: Record) -> dict[int, float]:
    """When each step ended of which all was done; before what the next steps have done already."""
    ends: dict[int, float] = {}
    for place, item in enumerate(program.items):
        end = record.ended[place]
        ends[item.step] = max(ends.get(item.step, 0.0), float("inf") if end is None else end)
    for number in range(program.steps):
        ends.setdefault(number, ends.get(number - 1, 0.0))
    return {number: end for number, end in ends.items() if 0 < end < float("inf")}


def first_of(program: Program, record: Record) -> float | None:
    """Seconds of the first step, from empty buffers."""
    end = _ends(program, record).get(0)
    begins = [begun for place, begun in enumerate(record.begun)
              if begun is not None and program.items[place].step == 0]  # fmt: skip
    return None if end is None or not begins else end - min(begins)


def tasks_of(step: Step, planned: Timeline, program: Program, record: Record, counted: range) -> tuple[TaskTimes, ...]:
    """Each row's times."""
    took: list[list[float]] = [[] for _ in step.rows]
    for place, item in enumerate(program.items):
        if item.step in counted and record.ended[place] is not None:
            begun, ended = record.span(place)
            took[step.instances[item.instance]].append(ended - begun)
    known: list[list[float]] = [[] for _ in step.rows]
    for row, start, end in zip(planned.rows, planned.starts, planned.ends, strict=True):
        if row is not None:
            known[row].append(end - start)
    return tuple(
        TaskTimes(row.name, row.transfer, count * row.weight, alone, median(plan) if plan else None, Spread.of(times))
        for row, count, alone, plan, times in zip(step.rows, step.counts, solo_seconds(step), known, took, strict=True)
    )


def resources_of(
    step: Step, layout: Layout, program: Program, record: Record, counted: range
) -> tuple[ResourceUse, ...]:
    """Each resource's loads: planned, and really moved over the counted steps that ended, by step."""
    done = _ends(program, record)
    steps = [number for number in counted if number in done]
    size = round_of(step)
    steps = steps[: len(steps) // size * size]
    moved: dict[str, float] = {}
    spans: dict[str, list[tuple[float, float]]] = {}
    padded: set[str] = set()
    # From the end of the step before to that of the last one, as its periods are: fetches of the next step run before.
    since, until = (done.get(steps[0] - 1, 0.0), done[steps[-1]]) if steps else (0.0, 0.0)
    for place, item in enumerate(program.items):
        if record.ended[place] is None:
            continue
        row = step.rows[step.instances[item.instance]]
        begun, ended = record.span(place)
        if ended > since and begun < until:
            for name in dict.fromkeys(use.resource for use in row.uses):
                spans.setdefault(name, []).append((max(begun, since), min(ended, until)))
        if item.step not in steps:
            continue
        for name, amount, pages in _amounts(step, layout, item.instance, record.moved[place]):
            moved[name] = moved.get(name, 0.0) + amount
            if pages:
                padded.add(name)
    due = loads(step, least=False)
    busy: dict[str, float] = {}
    for row, count, times in zip(step.rows, step.counts, seconds_of_rows(step, "value"), strict=True):
        for name, time in times.items():
            busy[name] = busy.get(name, 0.0) + count * row.weight * time
    found = []
    for name, resource in step.resources.items():
        total = moved.get(name) if steps else None
        total = None if total is None or resource.kind == "limit" or resource.unit == "s" else total / len(steps)
        why = _why(resource.unit, due[name], total, name in padded)
        found.append(ResourceUse(name, resource.unit, due[name], total, busy.get(name, 0.0),
                                 _union(spans.get(name, [])) / len(steps) if steps else 0.0, why))  # fmt: skip
    return tuple(found)


def _amounts(step: Step, layout: Layout, instance: int, moved: Moved) -> list[tuple[str, float, bool]]:
    """What an item put on each resource, by what it counted: (resource, amount, whether in whole pages)."""
    operation, topology = layout.operations[instance], step.topology
    found = []
    if isinstance(operation, Move):
        writes = set(topology.ways.port(operation.memory, "write"))
        for name, _, each in operation.stage.uses:
            amount = moved.written if name in writes else moved.read
            found.append((name, each * amount, amount != operation.size))
        return found
    homes = step.plan.tensors
    for number, (spot, _) in enumerate((*operation.reads, *operation.writes)):
        write = number >= len(operation.reads)
        memory = spot.memory if isinstance(spot, Home) else layout.move(spot.instance).memory
        find = topology.write_route if write else topology.read_route
        stage = (find(operation.processor, memory) if write else find(memory, operation.processor)).stages[0]
        found += [(name, each * moved.parts[number], False) for name, _, each in stage.uses]
    if moved.flops and homes is not None:
        found.append((f"{operation.processor}.flops", moved.flops, False))
    return found


def _why(unit: str, due: float, moved: float | None, padded: bool) -> str:
    if moved is None or abs(moved - due) <= max(1e-9 * due, 0.5 if unit == "B" else 0.0):
        return ""
    if unit == "FLOP":
        return "the kernel does whole products: the nearest to the plan"
    return f"requests past the page cache are whole pages of {PAGE} B" if padded else "differs"


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds that any of the spans covers."""
    total, reach = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total


# Checks, by the step's own table: what was run knows nothing of them.


def checks_of(step: Step, program: Program, record: Record) -> tuple[dict[str, int], tuple[str, ...],
                                                                     tuple[SlotsUsed, ...]]:  # fmt: skip
    """How many waits, turns and takings of buffers were looked at, what was not kept, and buffers in use at most."""
    times = {(item.step, item.instance): record.span(place)
             for place, item in enumerate(program.items) if record.ended[place] is not None}  # fmt: skip
    checked = {"waits": 0, "turns": 0, "buffers": 0}
    wrong: list[str] = []

    def follows(kind: str, later: tuple[int, int], earlier: tuple[int, int]) -> None:
        if later in times and earlier in times:
            checked[kind] += 1
            if times[later][0] < times[earlier][1]:
                names = [f"{step.rows[step.instances[i]].name} of step {s + 1}" for s, i in (later, earlier)]
                wrong.append(f"{names[0]} began before {names[1]} had ended")

    for number in range(program.steps):
        for instance, waits in enumerate(step.waits):
            for wait in waits:
                follows("waits", (number, instance), (number, wait.on))
        for later, earlier, tokens in step.wraps:
            follows("waits", (number, earlier), (number - tokens, later))
    queues: dict[str, list[tuple[int, int]]] = {}
    for item in program.items:
        lane = "all" if step.plan.overlap.kind == "none" else step.rows[step.instances[item.instance]].lane
        queues.setdefault(lane, []).append((item.step, item.instance))
    for queue in queues.values():
        for before, after in zip(queue, queue[1:], strict=False):
            follows("turns", after, before)
    used = []
    for slots in step.slots:
        most, count = _most_held(slots, times, program.steps)
        checked["buffers"] += count
        urgent = step.rows[step.instances[slots.fetches[0]]].urgent
        limit = UNLIMITED if urgent else slots.buffers
        used.append(SlotsUsed(slots.name, limit, most))
        if limit != UNLIMITED and most > limit and all(slots.releases):
            wrong.append(f"{slots.name}: {most} buffers were in use at once, and the plan has {limit}")
    return checked, tuple(wrong), tuple(used)


def _most_held(slots: Any, times: Mapping[tuple[int, int], tuple[float, float]], steps: int) -> tuple[int, int]:
    """The most buffers that were taken at once, and how many times one was taken."""
    changes: list[tuple[float, int]] = []
    taken = 0
    for number in range(steps):
        for fetch, given in zip(slots.fetches, slots.releases, strict=True):
            if (number, fetch) not in times:
                continue
            taken += 1
            begun, ended = times[number, fetch]
            back = [times[number + later, release][1] for release, later in given if (number + later, release) in times]
            changes += [(begun, 1), (max([ended, *back]), -1)]
    held = most = 0
    for _, change in sorted(changes):  # at one time what is given back comes first
        held += change
        most = max(most, held)
    return most, taken
