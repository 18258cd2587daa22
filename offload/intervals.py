"""What uncertain rates leave open: intervals of answers, what may bind, what to measure, whether a ranking holds.

Bounds and recurrences fall as a rate rises, so their interval over a box of rates is exact at two corners: all rates at
their low ends, and all at their high ends. The same holds in every smaller box, which settles comparisons: where the
worst of one in a box is better than the best of the other, no point of the box says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from offload.bounds import floor, load_seconds
from offload.errors import FormulaError
from offload.plan import Amount
from offload.ranges import fold, runs
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Interval

CHAIN = "the chain of computes"  # what binds where the order of a step takes longest, in `may_bind`
BOXES = 400  # that a comparison is split into before it stays open
Box = Mapping[str, tuple[Amount, Amount]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A sustained rate with two ends that a step uses: of all resources `names`, which are alike. [B/s or FLOP/s]

    accesses : the kinds of access with this rate. unit "s" : a time that is stated; the rate is its value over it.
    """

    names: tuple[str, ...]
    accesses: tuple[str, ...]
    interval: Interval
    unit: str


@dataclass(frozen=True, slots=True)
class Settled:
    """A figure to measure. low, high : the expected interval that is left where it turns out at the worse end [s].

    binding : whether what binds is known with it, whatever it turns out to be.
    """

    figure: Figure
    low: float
    high: float
    binding: bool


@dataclass(frozen=True, slots=True)
class Open:
    """What a step's figures leave open, times as (low, high) [s].

    floor_sustained, serial : of back-to-back steps. may_bind : all that bind the floor at sustained rates somewhere
    within the figures (`CHAIN` is the order); one where it is certain. measure : the figure that settles most.
    """

    figures: tuple[Figure, ...]
    expected: tuple[float, float]
    floor_sustained: tuple[float, float]
    serial: tuple[float, float]
    may_bind: tuple[str, ...]
    measure: Settled | None


def figures_of(step: Step) -> tuple[Figure, ...]:
    """The sustained rates with two ends that a step's tasks use; resources that are alike and equal are one figure."""
    used = dict.fromkeys((use.resource, use.access) for row in step.rows for use in row.uses if use.load)
    alike: dict[tuple[str, Interval, str], dict[str, dict[str, None]]] = {}
    for name, access in used:
        resource = step.resources[name]
        stated = access if access in resource.sustained else ""
        interval = resource.sustained_at(access)
        if interval is not None and interval.low < interval.high:
            what = stated.rpartition(" ")[0] if resource.unit == "s" else stated  # a cost has a time for each task
            alike.setdefault((what, interval, resource.unit), {}).setdefault(name, {})[stated] = None
    return tuple(
        Figure(tuple(run), tuple(dict.fromkeys(one for name in run for one in names[name])), interval, unit)
        for (_, interval, unit), names in alike.items() for run in runs(names)
    )  # fmt: skip


def known(step: Step, figure: Figure, value: float) -> Step:
    """The step with a figure measured: its ends and its value are this one."""
    resources = dict(step.resources)
    for name in figure.names:
        sustained = {**resources[name].sustained, **dict.fromkeys(figure.accesses, Interval.exact(value))}
        resources[name] = replace(resources[name], sustained=sustained)
    return replace(step, resources=resources)


def what_is_open(step: Step, expected: tuple[float, float]) -> Open | None:
    """The intervals of a step's answers, what may bind, and which figure to measure; None where no figure is open.

    expected : (low, high) of its schedule [s]. The figure to measure narrows the floor at sustained rates most, at the
    worse of its ends.
    """
    figures = figures_of(step)
    if not figures:
        return None
    ends = (floor(step, "high").seconds, floor(step, "low").seconds)
    best: tuple[float, Figure] | None = None
    for figure in figures:
        # At its low end with the others high, and at its high end with the others low; the other corners are `ends`.
        slow = floor(known(step, figure, figure.interval.low), "high").seconds
        fast = floor(known(step, figure, figure.interval.high), "low").seconds
        left = max(ends[1] - slow, fast - ends[0])
        if best is None or left < best[0]:
            best = left, figure
    measure = None
    if best is not None and best[0] < (ends[1] - ends[0]) * (1 - 1e-9):
        measure = _settled(step, best[1], expected)
    return Open(
        figures, expected, ends, (serial(step, "high").seconds, serial(step, "low").seconds), may_bind(step), measure
    )


def _settled(step: Step, figure: Figure, expected: tuple[float, float]) -> Settled:
    slow, fast = (known(step, figure, end) for end in (figure.interval.low, figure.interval.high))
    at_slow, at_fast = (schedule(one) for one in (slow, fast))
    worse = at_slow if at_slow.high - at_slow.low >= at_fast.high - at_fast.low else at_fast
    return Settled(figure, max(worse.low, expected[0]), min(worse.high, expected[1]), _decides(step, figure))


def _decides(step: Step, figure: Figure) -> bool:
    """Whether nothing but this figure leaves open what binds: the largest of the other loads is one time throughout.

    Where the chain may bind too, it may cross them within the figure, and nothing is claimed.
    """
    binding = may_bind(step)
    slow, fast = (load_seconds(step, end).resource_seconds for end in ("low", "high"))
    others = [name for name in slow if name not in figure.names]
    ends = {max((times[name] for name in others), default=0.0) for times in (slow, fast)}
    return len(binding) == 1 or (CHAIN not in binding and len(ends) == 1)


def may_bind(step: Step) -> tuple[str, ...]:
    """All that bind the floor at sustained rates somewhere within the figures; alike resources by their first.

    A resource may where it takes at its slow end at least as long as every other at its fast end: the figures are
    independent, so that point exists. The chain may where at its slow end it beats all loads at their fast ends.
    """
    slow, fast = (load_seconds(step, end).resource_seconds for end in ("low", "high"))
    due = max(fast.values(), default=0.0)
    cycles = [floor(step, end).cycle_seconds for end in ("low", "high")]
    names = [name for name, time in slow.items() if time > 0 and time >= max(due, cycles[1])]
    firsts = [run[0] for run in runs(names)]
    return (*firsts, *((CHAIN,) if cycles[0] > due and cycles[0] > 0 else ()))


# Two plans with figures in common.


@dataclass(frozen=True, slots=True)
class Order:
    """Which of two is faster within a box of common figures.

    faster : "first" or "second" where that is so at every point; "depends" where each is somewhere, at the points
    `first_at` and `second_at`; "open" where neither could be shown.
    """

    faster: str
    first_at: Mapping[str, Amount] | None = None
    second_at: Mapping[str, Amount] | None = None


def order(
    first: Callable[[Box], tuple[Amount, Amount]], second: Callable[[Box], tuple[Amount, Amount]], common: Box
) -> Order:
    """Which of two times is the smaller one, whatever the common figures are.

    first, second : the least and the largest time in a box, over figures of their own too. common : figure -> (low,
    high), low > 0. Corners alone prove nothing: 1 + x is below max(1.1, 2.1 x) at x = 0 and at 1 and above it between.
    So the box is halved along its widest side until the worst of one is below the best of the other (branch and
    bound), or one is shown to be faster here and the other there. Raises FormulaError for ends that are out of order.
    """
    for name, (low, high) in common.items():
        if not 0 < low <= high < inf:
            raise FormulaError(f"{name}: {low}..{high} is no interval of rates; write the low end first, above zero.")
    waiting: list[Box] = [dict(common)]
    at: dict[str, Mapping[str, Amount]] = {}
    left = False
    for _ in range(BOXES):
        if not waiting:
            break
        box = waiting.pop(0)
        a, b = first(box), second(box)
        for low, high in (a, b):
            if not low <= high:
                raise FormulaError(f"a time of {low} to {high} is no interval; give the least and the largest time.")
        point = {name: (low + high) / 2 for name, (low, high) in box.items()}
        if a[1] < b[0] or b[1] < a[0]:
            at.setdefault("first" if a[1] < b[0] else "second", point)
        else:
            wide = max(box, key=lambda name: box[name][1] / box[name][0], default=None)
            if wide is None or box[wide][0] == box[wide][1]:
                left = True
                continue
            low, high = box[wide]
            waiting += [{**box, wide: (low, point[wide])}, {**box, wide: (point[wide], high)}]
        if len(at) == 2:
            return Order("depends", at["first"], at["second"])
    if waiting or left or not at:
        return Order("open", at.get("first"), at.get("second"))
    return Order(next(iter(at)))


def faster_step(
    first: Step, second: Step, seconds: Callable[[Step, str], float] = lambda step, end: floor(step, end).seconds
) -> Order:
    """Which of two steps takes less time, whatever their uncertain rates are.

    Rates of one name and one interval are common and move together, others apart. seconds : of a step at the "low" or
    "high" ends of its rates, falling in every rate (default: the floor at sustained rates). The points of `Order` are
    rates of the common figures by name.
    """
    own, other = ({f"{fold(one.names)} {one.accesses[0]}".strip(): one for one in figures_of(step)}
                  for step in (first, second))  # fmt: skip
    common = {key: one for key, one in own.items() if key in other and other[key].interval == one.interval}

    def within(step: Step, box: Box, figures: Mapping[str, Figure]) -> tuple[float, float]:
        resources = dict(step.resources)
        for key, (low, high) in box.items():
            ends = dict.fromkeys(figures[key].accesses, Interval(low, (low + high) / 2, high))
            for name in figures[key].names:
                resources[name] = replace(resources[name], sustained={**resources[name].sustained, **ends})
        step = replace(step, resources=resources)
        return seconds(step, "high"), seconds(step, "low")

    box = {key: (one.interval.low, one.interval.high) for key, one in common.items()}
    return order(lambda box: within(first, box, own), lambda box: within(second, box, other), box)


def in_words(names: Sequence[str]) -> str:
    """Names of what may bind, in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
