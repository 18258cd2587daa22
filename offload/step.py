"""A compiled step: the table of tasks by resources, and what waits for what.

Everything finite is a resource and everything that happens is a task; a task puts an amount of work on each resource
that it uses. Bounds and schedules read nothing but this table. A task that repeats is one row with many instances,
so the table stays small; amounts may be arrays that broadcast (one value for each point of a sweep).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from offload.plan import UNLIMITED, Amount, Plan
from offload.topology import Interval, Resource, Topology
from offload.tracing import key_of

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Use:
    """What one instance puts on a resource: least (floors) and expected (schedules) amount [B or FLOP], and how.

    fewest, most : the ends of the expected amount where the plan's loads have two; None where it is one figure.
    """

    resource: str
    least: Amount
    load: Amount
    access: str
    fewest: Amount | None = None
    most: Amount | None = None

    def amount(self, grade: str) -> Amount:
        """The expected amount at an end of the figures: "low" rates go with the most, "high" ones with the fewest."""
        end = self.most if grade == "low" else self.fewest if grade == "high" else None
        return self.load if end is None else end


@dataclass(frozen=True, slots=True)
class Movement:
    """What one instance of a row moves or reads, for the report; destination None is a read where the data lives."""

    what: str
    bytes: Amount
    source: str
    destination: str | None
    runs_on: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """A task's line in the table. weight is the share of steps in which it happens (1/every).

    lane : what it queues in (a processor's name, a transfer's name). latency [s] as (least, typical).
    urgent : a transfer of small state that goes before prefetched bulk. moved : what each instance moves and reads.
    places : (memory, share) of what an instance of a transfer brings, where it arrives. holds : the most that it may
    bring, which its slot holds, where what it moves is only expected [B]. apart : where independent
    replicas have parts of it, how many times as long as one of them waits all of it takes.
    """

    name: str
    lane: str
    transfer: bool
    uses: tuple[Use, ...]
    latency: tuple[float, float] = (0.0, 0.0)
    every: int = 1
    urgent: bool = False
    moved: tuple[Movement, ...] = ()
    places: tuple[tuple[str, float], ...] = ()
    holds: Amount | None = None
    apart: float = 1.0

    @property
    def weight(self) -> float:
        return 1.0 / self.every


@dataclass(frozen=True, slots=True)
class Wait:
    """An instance waits for another. streams : it may start on the first tile and ends no earlier (floors only)."""

    on: int
    streams: bool


@dataclass(frozen=True, slots=True)
class Slots:
    """Buffers of one move: instance fetches[i] takes a slot that releases[i] give back: (instance, steps later).

    buffers : how many slots (`UNLIMITED` for one each); places (memory, share) and size [B] say where and how large
    one is. expected : what one holds on average [B].
    """

    name: str
    fetches: tuple[int, ...]
    releases: tuple[tuple[tuple[int, int], ...], ...]
    buffers: int
    places: tuple[tuple[str, float], ...]
    size: Amount
    expected: Amount

    @property
    def count(self) -> int:
        """How many slots there are: no more than are used."""
        return len(self.fetches) if self.buffers == UNLIMITED else min(self.buffers, len(self.fetches))


@dataclass(frozen=True, slots=True)
class Step:
    """The compiled table. instances[i] is the row of the i-th instance; waits[i] names only earlier instances.

    wraps : (later, earlier, steps): `earlier` waits for what `later` was that many steps before.
    first_compute, last_compute : the ends of the data cycle (in `wraps` too), None where the plan has none.
    occupied : memory -> part -> bytes.
    """

    title: str
    topology: Topology
    plan: Plan
    resources: Mapping[str, Resource]
    rows: tuple[Row, ...]
    instances: tuple[int, ...]
    waits: tuple[tuple[Wait, ...], ...]
    slots: tuple[Slots, ...]
    wraps: tuple[tuple[int, int, int], ...]
    first_compute: int | None
    last_compute: int | None
    occupied: Mapping[str, Mapping[str, Amount]]
    assumptions: tuple[str, ...] = ()
    # What follows of tasks and their order alone, for all steps made of this one by other rates or rows.
    shared: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    _known: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def counts(self) -> list[int]:
        """How many instances each row has in one step."""
        counts = [0] * len(self.rows)
        for row in self.instances:
            counts[row] += 1
        return counts


def remembered(step: Step, key: object, make: Callable[[], Known]) -> Known:
    """What follows from a step alone, made at the first use; nobody changes it."""
    if key not in step._known:
        step._known[key] = make()
    known: Known = step._known[key]
    return known


# Seconds: amounts over rates, at one grade.


def sustained_rate(resource: Resource, access: str, end: str = "value") -> float:
    """The sustained rate of a resource for a kind of access [B/s or FLOP/s]; end is "low", "value" or "high"."""
    interval: Interval | None = resource.sustained_at(access)
    if interval is None:
        return peak_of(resource)
    rate: float = getattr(interval, end)
    return rate


def peak_of(resource: Resource) -> float:
    """The peak of a resource that a floor counts, or of one without a sustained rate: these have one [B/s or FLOP/s]"""
    return cast(float, resource.peak)


def seconds_of_rows(step: Step, grade: str) -> Sequence[Mapping[str, Amount]]:
    """`row_seconds` of each row, worked out once for a step."""
    return remembered(step, ("seconds", grade), lambda: tuple(row_seconds(step, row, grade) for row in step.rows))


def at_end(step: Step, grade: str) -> Step:
    """The step with single figures: every sustained rate and every load as it is at one end ("low", "value", "high").

    It equals the step compiled from a plan and a topology that give those figures. With no ends it is the step itself.
    """
    if not has_ends(step):
        return step

    def make() -> Step:
        resources = {
            name: replace(one, sustained={access: Interval.exact(getattr(rate, grade))
                                          for access, rate in one.sustained.items()})
            for name, one in step.resources.items()
        }  # fmt: skip
        rows = tuple(
            replace(row, uses=tuple(replace(use, load=use.amount(grade), fewest=None, most=None) for use in row.uses))
            if any(use.most is not None or use.fewest is not None for use in row.uses) else row
            for row in step.rows
        )
        return replace(step, resources=resources, rows=rows)

    return remembered(step, ("end", grade), make)


def has_ends(step: Step) -> bool:
    """Whether a sustained rate or a load of the step has two ends."""
    return any(
        len({rate.low, rate.value, rate.high}) > 1 for one in step.resources.values() for rate in one.sustained.values()
    ) or any(use.most is not None for row in step.rows for use in row.uses)


def row_seconds(step: Step, row: Row, grade: str) -> dict[str, Amount]:
    """Seconds that one instance of a row keeps each resource busy.

    grade : "peak" (least loads over peak rates; resources without a peak are left out), or "low", "value", "high"
    (expected loads over that end of the sustained rates; of loads with two ends the most at low rates).
    """
    seconds: dict[str, Amount] = {}
    for use in row.uses:
        resource = step.resources[use.resource]
        if grade == "peak":
            if resource.peak is None:
                continue
            time = use.least / resource.peak
        else:
            time = use.amount(grade) / sustained_rate(resource, use.access, grade)
        seconds[use.resource] = seconds.get(use.resource, 0.0) + time
    return seconds


def loads(step: Step, least: bool, alone: bool = False, grade: str = "value") -> dict[str, Amount]:
    """The load of each resource in one step [B or FLOP]: least or expected, by the average step or a step alone.

    grade : the end of the expected load, as in `row_seconds`.
    """
    totals: dict[str, Amount] = {name: 0.0 for name in step.resources}
    for row, count in zip(step.rows, step.counts, strict=True):
        weight = count if alone or row.every == 1 else count / row.every
        for use in row.uses:
            totals[use.resource] = totals[use.resource] + weight * (use.least if least else use.amount(grade))
    return totals


def distinct(step: Step) -> tuple[Step, Mapping[str, tuple[str, ...]]]:
    """The step without resources that are like another one, and for each that stays the others like it.

    Two are alike where every row puts the same on both and they serve it at the same rates (ranks that work alike), so
    each time of a schedule or a bound is the same without the second. Amounts are numbers, traced ones alike where they
    are made alike.
    """
    columns: dict[str, list[tuple[int, str, object]]] = {name: [] for name in step.resources}
    for number, row in enumerate(step.rows):
        for use in row.uses:
            amounts = (use.least, use.amount("high"), use.load, use.amount("low"))
            columns[use.resource].append((number, use.access, key_of(amounts)))
    first: dict[object, str] = {}
    like: dict[str, list[str]] = {}
    for name, resource in step.resources.items():
        rates = tuple((access, rate.low, rate.value, rate.high) for access, rate in sorted(resource.sustained.items()))
        served = (resource.kind, resource.unit, key_of((resource.cache, resource.peak, rates)),
                  tuple(sorted(columns[name], key=lambda one: one[:2])))  # fmt: skip
        kept = first.setdefault(served, name)
        like.setdefault(kept, []).append(name)
    if len(like) == len(step.resources):
        return step, {name: () for name in like}
    rows = tuple(replace(row, uses=tuple(use for use in row.uses if use.resource in like)) for row in step.rows)
    resources = {name: step.resources[name] for name in like}
    return replace(step, rows=rows, resources=resources), {name: tuple(names[1:]) for name, names in like.items()}
