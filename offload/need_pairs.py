"""Two changes at a time: two faster parts, a change of the plan with one faster part, two changes of the plan.

"Cheapest" is the least product of factors by which parts get faster; changes of the plan cost nothing in it and are
told apart. A lower bound goes with each answer: floors at the rates in question bound every time of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from math import inf, sqrt
from typing import Any, cast

from offload.capacity import missing
from offload.errors import OffloadError
from offload.need_axis import Axis
from offload.need_designs import KINDS, axes, buffers_text
from offload.need_rates import CLOSE, NEAR, PAIRED, Lever, Limit, Pair, Part, Search, Target, groups_of
from offload.prompts import least as floor_of
from offload.step import Step

SPREAD = tuple(2.0**power for power in (-3, -2, -1, -0.5, -0.25, -0.1, 0.1, 0.25, 0.5, 1, 2, 3))
TRIES = 3  # pairs whose expected times are searched, those first whose floors allow most
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """A change of the plan: kind and names as of `Lever`, the value now and the new one."""

    kind: str
    names: Names
    now: int | str
    value: int | str


@dataclass(frozen=True, slots=True)
class WithPart:
    """A change of the plan that does not reach the target by itself, and the part that then has to be faster.

    floor, expected : by the least factor, of all parts (`Part`); None where no part does, however fast. left : where
    the floor allows none, the part that leaves least; left_expected : where it allows one and none reaches it, the same
    of the floor at sustained rates, or of expected times where that floor would do. Without a part and what is left, no
    part does it by a smaller factor than without the change. due : the longest that a step may take with the change
    [s]; a batch changes it.
    """

    setting: Setting
    due: float
    floor: Part | None
    expected: Part | None
    left: Limit | None
    left_expected: Limit | None


@dataclass(frozen=True, slots=True)
class Two:
    """Two changes of the plan, neither of which reaches the target by itself.

    first, second : kind and names as of `Lever`. floor, expected : the values of both from which the floor allows it
    and the expected time reaches it (`seconds`), None where none that was tried does. end : both as far as was tried,
    with the floor and its bottleneck there, what is due then [s], and whether it fits: numbers as far as they do beside
    the first.
    """

    first: tuple[str, Names]
    second: tuple[str, Names]
    now: tuple[Any, Any]
    floor: tuple[Any, Any] | None
    expected: tuple[Any, Any] | None
    seconds: float | None
    end: tuple[Any, Any]
    end_floor: float
    end_bottleneck: Names
    end_due: float
    end_fits: bool


# Two faster parts.


def two_parts(search: Search, groups: Sequence[Names], singles: Sequence[float | None], grade: str) -> Pair | None:
    """The pair with the least product of factors, where it is less than every single factor.

    What is reached is convex in both x, so that the product has one maximum along the edge of it (for floors). For
    expected times that edge, at sustained rates, bounds every pair's product from below. Where the schedule keeps to
    it, the pair is proved; else factors about it are tried, and the least that was found is told.
    """
    limit = min((one for one in singles if one is not None), default=inf)
    edges = sorted(_edges(search, groups, singles, grade, limit), key=lambda edge: -edge[1][0] * edge[1][1])
    bounds = [1 / (x * y) for _, (x, y) in edges]
    best: Pair | None = None
    for bound, (names, xs) in list(zip(bounds, edges, strict=True))[: TRIES if grade == "value" else 1]:
        if bound >= limit * (1 - NEAR):
            break
        at, seconds = (xs, floor_of(search.faster(*zip(names, xs, strict=True))).seconds) if grade == "peak" else (
            _traced(search, names, xs, limit))  # fmt: skip
        if at is not None and 1 / (at[0] * at[1]) < limit * (1 - NEAR):
            best = Pair(names, (1 / at[0], 1 / at[1]), seconds, bounds[0])
            limit = best.product
    return best


def least_left(search: Search, groups: Sequence[Names], grade: str) -> Limit | None:
    """Of all pairs infinitely fast the one that leaves the least floor: where that is too long, no pair can do.

    At sustained rates, where it is not too long, the one that leaves the least expected time.
    """
    limits = [search.limit(*two, grade=grade) for two in combinations(groups, 2)]
    good = [one for one in limits if one.floor <= search.due * (1 + CLOSE)]
    if grade == "peak" or not good:
        return min(limits, key=lambda one: one.floor, default=None)
    timed = [Limit(one.names, one.floor, one.bottleneck, search.expected(search.faster(*((names, 0.0) for names in
             one.names)))) for one in good]  # fmt: skip
    return min(timed, key=lambda one: cast(float, one.expected))


def _edges(
    search: Search, groups: Sequence[Names], singles: Sequence[float | None], grade: str, limit: float
) -> Iterator[tuple[tuple[Names, Names], tuple[float, float]]]:
    """For each pair that may be cheaper than `limit`, where the floor's edge has its least product of factors."""
    due = search.due * (1 + CLOSE)
    for (i, a), (j, b) in combinations(enumerate(groups), 2):
        if floor_of(search.faster((a, 0.0), (b, 0.0)), grade).seconds > due:
            continue
        if grade == "peak" and not _both_help(search, (a, b), (singles[i], singles[j])):
            continue
        first, second = (search.largest(search.floors(grade, one, (other, 0.0))) for one, other in ((a, b), (b, a)))
        if not first or not second or first * second * limit <= 1:
            continue
        xs = _best_xs(search, a, b, grade, first)
        if xs is not None and xs[0] * xs[1] * limit > 1:
            yield (a, b), xs


def _both_help(search: Search, names: tuple[Names, Names], singles: tuple[float | None, ...]) -> bool:
    """Whether each part lowers the floor where the other alone reaches what is due."""
    for one, other, factor in ((*names, singles[0]), (*names[::-1], singles[1])):
        if factor is not None:
            alone = floor_of(search.faster((one, 1 / factor))).seconds
            if floor_of(search.faster((one, 1 / factor), (other, 0.0))).seconds >= alone * (1 - CLOSE):
                return False
    return True


def _best_xs(search: Search, a: Names, b: Names, grade: str, most: float) -> tuple[float, float] | None:
    """Where the product of both x is largest along the floor's edge, by golden sections."""

    @cache
    def other(x: float) -> float:
        return search.largest(lambda y: floor_of(search.faster((a, x), (b, y)), grade).seconds) or 0.0

    golden = (sqrt(5) - 1) / 2
    low, high = 0.0, most
    left, right = high - golden * (high - low), low + golden * (high - low)
    tried = {most, left, right}
    while high - low > PAIRED / 2 * high:
        if left * other(left) >= right * other(right):
            high, right = right, left
            left = high - golden * (high - low)
        else:
            low, left = left, right
            right = low + golden * (high - low)
        tried |= {left, right}
    x = max(tried, key=lambda x: x * other(x))
    return (x, other(x)) if x * other(x) > 0 else None


def _traced(
    search: Search, names: tuple[Names, Names], xs: tuple[float, float], limit: float
) -> tuple[tuple[float, float] | None, float]:
    """The largest product of both x at which the expected time is known to reach what is due, and that time [s].

    From where the floor's edge is best: both x down together first, then one x set and the other searched, and that
    again about the best. A set x is left out where the floor, or the time there, shows that it is no better.
    """
    due = search.due * (1 + CLOSE)

    def at(x: float, y: float) -> Step:
        return search.faster((names[0], x), (names[1], y))

    best, product, seconds = None, 1 / limit, inf
    found = search.below(lambda scale: at(xs[0] * scale, xs[1] * scale), 1.0)
    if found is not None:
        best, seconds = (xs[0] * found[0], xs[1] * found[0]), found[1]
        product = max(product, best[0] * best[1])
        if found[0] == 1.0:
            return best, seconds
    for start in (xs[0], None):
        for factor in SPREAD if start is not None else [factor**0.2 for factor in SPREAD[2:-2]]:
            x = factor * (start if start is not None else (best or xs)[0])
            y = product / x * (1 + NEAR)
            if x > 1 or y > 1 or floor_of(at(x, y), "value").seconds > due:
                continue
            if best is not None and search.expected(at(x, y)) > due:
                continue
            found = search.expected_from(partial(at, x))
            if found is not None and x * found[0] > product:
                best, product, seconds = (x, found[0]), x * found[0], found[1]
    return best, seconds


# A change of the plan with a faster part.


def with_parts(
    target: Target, varied: Sequence[Axis], alone: Sequence[Lever], rates: Sequence[Lever]
) -> Iterator[WithPart]:
    """For the values of each axis that do not reach the target, the part that then has to be faster.

    All values of formats; of numbers a few, evenly apart, with the last; none of what reaches it alone. Values that do
    not fit are left out, and those with which no part does it by less than one of `rates` without them.
    """
    limits = (min((cast(float, one.floor) for one in rates if one.floor is not None), default=inf),
              min((cast(float, one.expected) for one in rates if one.expected is not None), default=inf))  # fmt: skip
    reached = {(one.kind, one.names): one.expected for one in alone}
    for axis in varied:
        done = reached.get((axis.kind, axis.names))
        for value in axis.few(2 if axis.kind in ("batch", "context") else 4):
            if value == done or (done is not None and axis.kind not in ("weights", "kv")):
                break
            try:
                step = axis.at(value)
                one = None if missing(step) else _with_part(axis, value, step, target, limits)
            except OffloadError:
                continue  # no such variant on this machine
            if one is not None:
                yield one


def _with_part(
    axis: Axis, value: Any, step: Step, target: Target, limits: tuple[float, float]
) -> WithPart | None:
    search = Search(step, target)
    groups = groups_of(step)
    if not groups or search.reaches(step, "value"):
        return None
    now = floor_of(step).seconds
    part: Part | None = Part((), 1.0, now, 1.0)
    left: Limit | None = None
    if now > search.due * (1 + CLOSE):
        part, left = search.least(groups, "peak", limits[0])
    expected, other = None, None
    if left is None or part is not None:
        expected, other = search.least(groups, "value", limits[1])
    if (part is None or not part.names) and left is None and expected is None and other is None:
        return None
    return WithPart(Setting(axis.kind, axis.names, axis.now, value), search.due, part, expected,
                    None if part is not None else left, None if expected is not None else other)  # fmt: skip


# Two changes of the plan.


def two_settings(
    step: Step, target: Target, varied: Sequence[Axis], alone: Sequence[Lever]
) -> Iterator[Two]:
    """Each two kinds of change of which neither reaches the target by itself.

    The first is each smaller format, or a few numbers with the last; the second is anything of a later kind in `KINDS`,
    as far as it fits beside the first.
    """
    levers = {(one.kind, one.names): one for one in alone}
    ordered = sorted(varied, key=lambda axis: KINDS.index(axis.kind))
    for place, axis in enumerate(ordered):
        key = (axis.kind, axis.names)
        if axis.kind == "buffers" or (key in levers and levers[key].expected is not None):
            continue
        later = {(one.kind, one.names) for one in ordered[: place + 1]}
        yield from _seconds(target, axis, later, levers, Search(step, target).reaches(step, "peak"))


def _seconds(
    target: Target, axis: Axis, before: set[tuple[str, Names]], levers: dict[tuple[str, Names], Lever], allowed: bool
) -> Iterator[Two]:
    """What goes with one axis; before : the axes that have had their turn."""
    single = levers.get((axis.kind, axis.names))
    kinds = KINDS[KINDS.index(axis.kind) + (axis.kind != "layers") :]
    if not allowed and (single is None or single.floor is None):
        kinds = kinds[:-1]  # buffers change no floor

    @cache
    def beside(value: Any, kind: str) -> dict[tuple[str, Names], Axis]:
        try:
            found = axes(axis.at(value), target, (kind,))[0]
        except OffloadError:
            return {}  # no such variant on this machine
        return {(one.kind, one.names): one for one in found if one.values}

    tried = axis.few(2)
    for key, other in [found for kind in kinds for found in beside(tried[-1], kind).items()]:
        lever = levers.get(key)
        if key in before or (lever is not None and lever.expected is not None):
            continue

        def chosen(grade: str, key: tuple[str, Names] = key) -> tuple[Any, Any] | None:
            for value in tried:
                second = beside(value, key[0]).get(key)
                found = None if second is None else second.first(target, grade, fitting=True, whole=False).value
                if found is not None:
                    return value, found
            return None

        if other.bound(other.values[-1]) is None:
            continue  # no such variant on this machine
        least: tuple[Any, Any] | None
        if allowed:
            least = (axis.now, other.now)
        elif single is not None and single.floor is not None:
            least = (single.floor, other.now)
        elif lever is not None and lever.floor is not None:
            least = (axis.now, lever.floor)
        else:
            least = chosen("peak")
        found = chosen("value") if least is not None else None
        seconds = None if found is None else beside(found[0], key[0])[key].expected(found[1])
        end = (tried[-1], other.values[-1])
        if least is None:
            seconds_of = {value: beside(value, key[0])[key] for value in tried if key in beside(value, key[0])}
            ends = [(value, one.least(target, fitting=True)) for value, one in seconds_of.items()]
            end = min((one for one in ends if one[1] is not None), default=end,
                      key=lambda one: _share(seconds_of[one[0]], one[1], target))  # fmt: skip
        second = beside(end[0], key[0])[key]
        last, bound = second.at(end[1]), second.known(end[1])
        as_text = [buffers_text(one) if key[0] == "buffers" else one for one in (end[1], (found or end)[1])]
        yield Two((axis.kind, axis.names), key, (axis.now, other.now), least,
                  None if found is None else (found[0], as_text[1]), seconds, (end[0], as_text[0]),
                  bound.seconds, bound.bottleneck, target.due(last), not missing(last))  # fmt: skip


def _share(axis: Axis, value: Any, target: Target) -> float:
    """The floor with a value, of what is due."""
    return axis.known(value).seconds / target.due(axis.at(value))
