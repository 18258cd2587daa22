"""What uncertain figures leave open: intervals of answers, what may bind, what to measure, whether a ranking holds.

Bounds and recurrences fall as a rate rises and rise with a load, so their interval over a box of them is exact at two
corners: all rates at their low and all loads at their high ends, and the other way round. The same holds in every
smaller box, which settles comparisons: where the worst of one in a box is better than the best of the other, no point
of the box says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from offload.bounds import TIE, cycle_seconds, floor, load_seconds
from offload.compiler import compile_step
from offload.errors import FormulaError
from offload.plan import Amount, at_loads, loads_open
from offload.ranges import fold, runs
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Interval
from offload.topology.resources import at_least

CHAIN = "the chain of computes"  # what binds where the order of a step takes longest, in `may_bind`
ROUNDS = 8  # over the figures, in which the chain is shown to bind nowhere or is named
CLOSE = 1e-4  # of a figure, that a crossing is found to
BOXES = 400  # that a comparison is split into before it stays open
Box = Mapping[str, tuple[Amount, Amount]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A sustained rate with two ends that a step uses: of all resources `names`, which are alike. [B/s or FLOP/s]

    accesses : the kinds of access with this rate. unit "s" : a time that is stated; the rate is its value over it.
    load : it is no rate but the bytes of the tensor, or the FLOP of the tasks, that `names` names. [B or FLOP]
    """

    names: tuple[str, ...]
    accesses: tuple[str, ...]
    interval: Interval
    unit: str
    load: bool = False

    @property
    def slow(self) -> float:
        """The end at which steps take longest: the low one of a rate, the high one of a load."""
        return self.interval.high if self.load else self.interval.low

    @property
    def fast(self) -> float:
        """The other end."""
        return self.interval.low if self.load else self.interval.high


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
    """The sustained rates and the loads with two ends that a step's tasks have.

    Resources that are alike and equal are one figure.
    """
    used = dict.fromkeys((use.resource, use.access) for row in step.rows for use in row.uses if use.load)
    alike: dict[tuple[str, Interval, str], dict[str, dict[str, None]]] = {}
    for name, access in used:
        resource = step.resources[name]
        stated = access if access in resource.sustained else ""
        interval = resource.sustained_at(access)
        if interval is not None and interval.low < interval.high and resource.follows not in step.resources:
            what = stated.rpartition(" ")[0] if resource.unit == "s" else stated  # a cost has a time for each task
            alike.setdefault((what, interval, resource.unit), {}).setdefault(name, {})[stated] = None
    rates = [
        Figure(tuple(run), tuple(dict.fromkeys(one for name in run for one in names[name])), interval, unit)
        for (_, interval, unit), names in alike.items() for run in runs(names)
    ]  # fmt: skip
    loads = [Figure((name,), (), interval, unit, load=True)
             for (name, interval), unit in loads_open(step.plan).items()]  # fmt: skip
    return (*rates, *loads)


def known(step: Step, figure: Figure, value: float) -> Step:
    """The step with a figure measured: its ends and its value are this one."""
    return _within(step, {figure: Interval.exact(value)})


def _within(step: Step, given: Mapping[Figure, Interval]) -> Step:
    """The step with other ends of some of its figures."""
    resources = dict(step.resources)
    for figure, interval in given.items():
        for name in () if figure.load else figure.names:
            sustained = {**resources[name].sustained, **dict.fromkeys(figure.accesses, interval)}
            resources[name] = replace(resources[name], sustained=sustained)
    for name, one in resources.items():
        led = resources.get(one.follows)
        if led is not None and one.alone is not None and one.peak is not None:  # both are one figure
            rate = at_least(one.alone, led.sustained[""], one.peak)
            resources[name] = replace(one, sustained={**one.sustained, "": rate})
    loads = {(one.names[0], one.unit, one.interval): interval for one, interval in given.items() if one.load}
    if not loads:
        return replace(step, resources=resources)
    plan = at_loads(step.plan, lambda *load: loads.get(load, load[2]))
    return replace(compile_step(step.topology, plan), resources=resources)


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
        # At its slow end with the others fast, and at its fast end with the others slow; the other corners are `ends`.
        slow = floor(known(step, figure, figure.slow), "high").seconds
        fast = floor(known(step, figure, figure.fast), "low").seconds
        left = max(ends[1] - slow, fast - ends[0])
        if best is None or left < best[0]:
            best = left, figure
    measure, binding = None, may_bind(step)
    if best is not None and best[0] < (ends[1] - ends[0]) * (1 - 1e-9):
        measure = _settled(step, best[1], expected, binding)
    return Open(
        figures, expected, ends, (serial(step, "high").seconds, serial(step, "low").seconds), binding, measure
    )


def _settled(step: Step, figure: Figure, expected: tuple[float, float], binding: tuple[str, ...]) -> Settled:
    slow, fast = (known(step, figure, end) for end in (figure.slow, figure.fast))
    at_slow, at_fast = (schedule(one) for one in (slow, fast))
    worse = at_slow if at_slow.high - at_slow.low >= at_fast.high - at_fast.low else at_fast
    return Settled(figure, max(worse.low, expected[0]), min(worse.high, expected[1]), _decides(step, figure, binding))


def _decides(step: Step, figure: Figure, binding: tuple[str, ...]) -> bool:
    """Whether nothing but this figure leaves open what binds: the largest of the other loads is one time throughout.

    Nor may another figure leave open a time that this one changes. Where the chain may bind too, it may cross them
    within the figure, and nothing is claimed. binding : what `may_bind` names.
    """
    if len(binding) == 1 or CHAIN in binding:
        return len(binding) == 1
    slow, fast = (_times(step, end) for end in ("low", "high"))
    at_slow, at_fast = (known(step, figure, end) for end in (figure.slow, figure.fast))
    if figure.load:
        longest, least = _times(at_slow, "low"), _times(at_fast, "low")
        own = {name for name in slow if longest[name] != least[name]}
    else:
        own = {*figure.names}
    left = [[_times(one, end) for end in ("low", "high")] for one in (at_slow, at_fast)]
    ends = {max((times[name] for name in slow if name not in own), default=0.0) for times in (slow, fast)}
    return len(ends) == 1 and all(low[name] == high[name] for low, high in left for name in own)


def may_bind(step: Step) -> tuple[str, ...]:
    """All that bind the floor at sustained rates somewhere within the figures; alike resources by their first.

    None that binds is missing. With rates alone, each of which one resource (or alike ones) has for itself, and with
    one open load each that is named binds at some point; the chain is named too where an open load leaves it undecided,
    and with several open loads each resource is compared with each other one by itself.

    A resource may where it takes at its slow end at least as long as every other at its fast end, and as the chain with
    the resource slow and all else fast: the rates are independent, so that point exists. A load is the same wherever it
    is put, so it is taken where it favours the resource most. For the chain see `_chain_may`.
    """
    slow, fast = (_times(step, end) for end in ("low", "high"))
    spans, figures = _spans(step), figures_of(step)
    led = {name: one.follows for name, one in step.resources.items() if one.follows}
    names = [name for name, time in slow.items() if time > 0 and _outlasts(step, figures, name, spans, led)]
    firsts = [run[0] for run in runs(names)]
    return (*firsts, *((CHAIN,) if _chain_may(step, figures, fast) else ()))


def _outlasts(
    step: Step, figures: Sequence[Figure], name: str, spans: tuple[Span, Span], led: Mapping[str, str]
) -> bool:
    """Whether a resource takes as long as all others and the chain at some point of the loads, itself at slow rates."""
    within = _reaches(name, spans, led)
    if within is None:
        return False
    loads = [one for one in figures if one.load]
    point = {one: Interval.exact(one.slow if name in one.names else one.fast) for one in figures if not one.load}

    def left(share: float) -> float:
        """By how much the chain is longer with an open load so far between its ends; convex in it. [s]"""
        there = point | {one: Interval.exact(one.interval.low + share * (one.interval.high - one.interval.low))
                         for one in loads}  # fmt: skip
        at = _within(step, there)
        time = _times(at, "value")[name]
        return cycle_seconds(at, "value") - time * (1 + TIE)

    if len(loads) > 1:  # the chain with all loads low, the resource with all of them high
        at = _within(step, point | {one: Interval.exact(one.fast) for one in loads})
        return cycle_seconds(at, "value") <= _times(step, "low")[name] * (1 + TIE)
    if not loads:
        return left(0.0) <= 0
    first, last = within
    if min(left(first), left(last)) <= 0:
        return True
    while last - first > 1e-6:  # the least of a convex function, by thirds
        third = (last - first) / 3
        one, other = left(first + third), left(last - third)
        if min(one, other) <= 0:
            return True
        first, last = (first, last - third) if one < other else (first + third, last)
    return False


def _chain_may(step: Step, figures: Sequence[Figure], fast: Mapping[str, float]) -> bool:
    """Whether the chain of computes may take longer than every load somewhere within the figures.

    Starts with all figures slow, where the chain is longest. Where a resource takes as long, a figure of its own must
    be faster for the chain to bind: down to where they are equal, or to no point at all, and then the chain binds
    nowhere. Each step keeps every point at which it binds below itself, since the chain falls with each figure. What is
    not settled in a few rounds is named. An open load is taken slow in the chain and fast in the resources, which may
    name the chain though it binds nowhere.
    """
    rates = [one for one in figures if not one.load]
    slowest = _times(step, "low")
    own: dict[Figure, list[str]] = {}
    for one in rates:
        quick = _times(known(step, one, one.fast), "low")
        own[one] = [name for name in fast if quick[name] < slowest[name]]
    point = {one: one.slow for one in figures}
    fixed = max((fast[name] for name in fast if not any(name in names for names in own.values())), default=0.0)

    def chain(at: Mapping[Figure, float]) -> float:
        return cycle_seconds(_within(step, {one: Interval.exact(end) for one, end in at.items()}), "value")

    def binds(figure: Figure, value: float) -> bool:
        """Whether the chain is longer than what a figure slows, with all else that is open at its fast end there."""
        there = {one: Interval.exact(value if one is figure else one.fast) for one in figures}
        times = _times(_within(step, there), "value")
        longest = max((times[name] for name in own[figure]), default=0.0)
        return chain(point | {figure: value}) > longest * (1 + TIE)

    for _ in range(ROUNDS):
        if chain(point) <= fixed * (1 + TIE):
            return False
        least = 1.0  # by what share a figure was lowered most
        for figure in rates:
            if binds(figure, point[figure]):
                continue
            if not binds(figure, figure.fast):
                return False
            # The chain is convex in what a rate's tasks take, and what a resource takes is a line: one crossing.
            before = slow = 1 / point[figure]
            swift = 1 / figure.fast
            while slow - swift > CLOSE * slow:
                middle = (slow + swift) / 2
                slow, swift = (slow, middle) if binds(figure, 1 / middle) else (middle, swift)
            point[figure] = 1 / slow
            least = min(least, slow / before)
        if least > 1 - 2 * CLOSE:
            break
    return True


def _times(step: Step, end: str) -> Mapping[str, float]:
    return load_seconds(step, end).resource_seconds


Span = tuple[Mapping[str, float], list[Mapping[str, float]]]


def _spans(step: Step) -> tuple[Span, Span]:
    """At slow and at fast rates, each resource's time with all loads at their low ends, and what each load adds."""
    loads = [one for one in figures_of(step) if one.load]
    low = _within(step, {one: Interval.exact(one.interval.low) for one in loads})
    raised = [_within(step, {one: Interval.exact(one.interval.high if one is further else one.interval.low)
                             for one in loads}) for further in loads]  # fmt: skip
    found: list[Span] = []
    for end in ("low", "high"):
        base = _times(low, end) if loads else _times(step, end)
        more = [_times(one, end) for one in raised]
        found.append((dict.fromkeys(step.resources, 0.0) | {**base},
                      [{name: times.get(name, 0.0) - base.get(name, 0.0) for name in step.resources}
                       for times in more]))  # fmt: skip
    return found[0], found[1]


def _reaches(name: str, spans: tuple[Span, Span], led: Mapping[str, str]) -> tuple[float, float] | None:
    """Where in the loads a resource at slow rates takes at least as long as each other at fast rates; None nowhere.

    Of a single open load from which to which share of its interval; else (0, 1).

    led : those that follow another, with which they move: such are compared at slow rates both.
    """
    (base, more), (fast, fast_more) = spans
    least, most = 0.0, 1.0  # of a single open load, as a share of its interval: where no other one takes longer so far
    for other in fast:
        if other == name:
            continue
        one_figure = led.get(other, other) == led.get(name, name)
        others, others_more = (base, more) if one_figure else (fast, fast_more)
        slack = base[name] - others[other]
        gains = [one[name] - two[other] for one, two in zip(more, others_more, strict=True)]
        if slack + sum(gain for gain in gains if gain > 0) < -TIE * others[other]:
            return None
        if len(gains) == 1 and gains[0] > 0:
            least = max(least, -slack / gains[0])
        elif len(gains) == 1 and gains[0] < 0:
            most = min(most, slack / -gains[0])
    return (min(least, most), most) if least <= most * (1 + TIE) else None


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
            raise FormulaError(f"{name}: {low}..{high} is no interval; write the low end first, above zero.")
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
    """Which of two steps takes less time, whatever their uncertain rates and loads are.

    Figures of one name and one interval are common and move together, others apart. seconds : of a step at the "low" or
    "high" ends of its rates, falling in every rate and rising in every load (default: the floor at sustained rates).
    The points of `Order` are rates or loads of the common figures by name.
    """
    own, other = ({_key(one): one for one in figures_of(step)} for step in (first, second))
    common = {key: one for key, one in own.items() if key in other and other[key].interval == one.interval}

    def within(step: Step, box: Box, figures: Mapping[str, Figure]) -> tuple[float, float]:
        given = {figures[key]: Interval(low, (low + high) / 2, high) for key, (low, high) in box.items()}
        step = _within(step, given)
        return seconds(step, "high"), seconds(step, "low")

    box = {key: (one.interval.low, one.interval.high) for key, one in common.items()}
    return order(lambda box: within(first, box, own), lambda box: within(second, box, other), box)


def _key(figure: Figure) -> str:
    """A name of a figure that two steps may share."""
    if figure.load:
        return f"{figure.names[0]} [{figure.unit}]"
    return f"{fold(figure.names)} {figure.accesses[0]}".strip()


def in_words(names: Sequence[str]) -> str:
    """Names of what may bind, in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
