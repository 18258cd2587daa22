"""How much faster parts of a step have to be: one kind of part, or two, for its floor and for its expected time.

A floor falls along a convex curve as a part's time per byte does (it is a maximum of sums of loads times that time), so
its least factor is found by Newton's method. Expected times are searched from the floor at sustained rates on, and the
value told has been evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import cast

from offload.errors import UnitError
from offload.measured import LONGEST, read_measurement
from offload.prompts import busy, expected, in_chunks, tokens_of
from offload.prompts import least as floor_of
from offload.ranges import runs
from offload.sensitivity import scaled, together
from offload.step import Step, sustained_rate

CLOSE = 1e-9  # relative: a time this close to the target's reaches it
NEAR = 1e-3  # relative: how near the least factor of an expected time is searched
PAIRED = 0.01  # relative: how near the least product of two factors is searched
ROUNDS = 60  # of a search that halves
SHARES = (0.7, 0.4, 0.1)  # of a time per byte, tried where an infinitely fast part is no help


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked: seconds of a step [s], or tokens/s of all sequences together; the other is None.

    Of a prompt in chunks: seconds to its first token, or its positions per second.
    """

    text: str
    seconds: float | None = None
    tokens_per_s: float | None = None

    def due(self, step: Step) -> float:
        """The longest that the step may take [s]."""
        return self.seconds if self.seconds is not None else tokens_of(step) / cast(float, self.tokens_per_s)


@dataclass(frozen=True, slots=True)
class Lever:
    """One thing changed, all else as it is.

    kind : "rate" (value: times as fast), "batch", "context", "layers", "buffers", "weights", "kv". names : the
    resources that get faster together, or the memory of the layers. rates : of the first of `names`, (peak, sustained)
    now. now : the value now. floor : the value from which the floor allows the target; expected : the one from which
    the expected time reaches it, `seconds` with it; None where none does. end : the last value that was tried
    (infinitely fast, the most that fits), with the floor and its bottleneck there: for a rate, what forbids the target
    however fast the part is. sure : of `floor` and of `expected`, whether no value nearer to now does, or none at all
    where it is None: each was tried, or a bound rules it out. least_floor : of the values that were asked, for what is
    due, the least floor.
    """

    kind: str
    names: tuple[str, ...]
    now: float | int | str
    floor: float | int | str | None
    expected: float | int | str | None
    seconds: float | None
    end: float | int | str
    end_floor: float
    end_bottleneck: tuple[str, ...]
    rates: tuple[float | None, float | None] = (None, None)
    unit: str = ""
    sure: tuple[bool, bool] = (True, True)
    least_floor: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One faster part: its names, the factor, and the time with it [s]; no names where none has to be faster.

    at_least : no part reaches the target with a smaller factor: proved, by floors at the rates in question.
    """

    names: tuple[str, ...]
    factor: float
    seconds: float
    at_least: float

    @property
    def proved(self) -> bool:
        """Whether the factor is the least there is."""
        return self.factor <= self.at_least * (1 + NEAR)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two parts faster together, by the least product of their factors that was found; seconds : the time with them.

    at_least : no two parts reach the target with a smaller product: proved, by floors at the rates in question, to 1 %.
    """

    names: tuple[tuple[str, ...], tuple[str, ...]]
    factors: tuple[float, float]
    seconds: float
    at_least: float

    @property
    def product(self) -> float:
        """Both factors multiplied."""
        return self.factors[0] * self.factors[1]

    @property
    def proved(self) -> bool:
        """Whether the product is the least there is, to 1 %."""
        return self.product <= self.at_least * (1 + PAIRED)


@dataclass(frozen=True, slots=True)
class Limit:
    """Parts that are infinitely fast, the floor that is left [s], and what then binds it.

    expected : where the floor is that at sustained rates and would do, the expected time that is left [s].
    """

    names: tuple[tuple[str, ...], ...]
    floor: float
    bottleneck: tuple[str, ...]
    expected: float | None = None


def read_target(text: str, step: Step) -> Target:
    """The target that a text such as "10 tok/s" or "200 ms" says. Raises UnitError with what to write."""
    try:
        read = read_measurement(text)
    except UnitError as error:
        plain = " ".join(text.split())[:LONGEST]
        if "not above zero" in str(error) or plain.startswith(("-", "\u2212")):
            raise UnitError(f'"{plain}" is not above zero. Write a speed such as "10 tok/s", or a time such as '
                            '"200 ms".') from None  # fmt: skip
        if ".." in plain:
            raise UnitError(f'"{plain}": one speed, not a range; give the end that you need.') from None
        if re.search(r"[0-9],[0-9]{3}", plain):
            written = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", plain)
            raise UnitError(f'"{plain}": write it without a comma, as "{written}".') from None
        if re.search(r"[eE][-+]?[0-9]{3}", plain):
            raise UnitError(f'"{plain}" is beyond any machine. Write a speed such as "10 tok/s".') from None
        raise UnitError(f'"{plain}" is no target. Write "10 tok/s" (of all sequences together) or "200 ms" (of one '
                        "step).") from None  # fmt: skip
    if in_chunks(step) and read.per:
        raise UnitError(f'"{read.text}": a prompt in chunks has one target, the time to its first token. Write it as '
                        '"35 s", or write "... tok/s" of the whole prompt.')
    if read.unit == "tok/s":
        return Target(read.text, tokens_per_s=read.value)
    if read.unit == "s/token" and step.plan.tokens != 1:
        raise UnitError(f'"{read.text}": a step yields {step.plan.tokens:g} tokens here, and the time of a token may '
                        'be a step\'s or a share of it. Write "... ms/step", or "... tok/s" of all sequences together.')
    return Target(read.text, seconds=read.value)


def groups_of(step: Step) -> list[tuple[str, ...]]:
    """The resources that get faster together, the busiest group first; parts that are alike are one.

    Within a group first those with a peak rate.
    """
    names = [name for name, resource in step.resources.items() if resource.unit != "s"]
    found: list[frozenset[str]] = []
    for run in runs(names):
        group = frozenset(set().union(*(together(step.topology, name) for name in run)) & set(names))
        if not any(group <= other for other in found):
            found = [other for other in found if not other < group] + [group]
    times = _busy(step)
    proved = {name: resource.peak is not None for name, resource in step.resources.items()}
    ordered = [tuple(sorted(group, key=lambda name: (not proved[name], -times[name], name))) for group in found]
    return sorted(ordered, key=lambda group: (-max(times[name] for name in group), group))


def _busy(step: Step) -> Mapping[str, float]:
    """How long each resource is busy in a step at sustained rates [s]."""
    return busy(step, "value")


class Search:
    """Times of a step with parts changed, and the least change that reaches what is due."""

    def __init__(self, step: Step, target: Target):
        self.step, self.target = step, target
        self.due = target.due(step)

    def expected(self, step: Step) -> float:
        return expected(step)

    def reaches(self, step: Step, grade: str) -> bool:
        """Whether a step's floor ("peak") allows the target, or its expected time ("value") reaches it."""
        due = self.target.due(step) * (1 + CLOSE)
        if grade == "peak":
            return floor_of(step).seconds <= due
        return floor_of(step, "value").seconds <= due and self.expected(step) <= due

    # Rates: x is 1 / factor, so that infinitely fast is 0 and floors are convex in it.

    def faster(self, *parts: tuple[tuple[str, ...], float]) -> Step:
        step = self.step
        for names, x in parts:
            if x != 1:
                step = scaled(step, names, 1 / x if x else inf)
        return step

    def limit(self, *groups: tuple[str, ...], grade: str = "peak") -> Limit:
        """The floor with some parts infinitely fast."""
        bound = floor_of(self.faster(*((names, 0.0) for names in groups)), grade)
        return Limit(groups, bound.seconds, bound.bottleneck)

    def faster_by(self, names: tuple[str, ...], *others: tuple[tuple[str, ...], float]) -> Callable[[float], Step]:
        """The step by x of some parts, and others faster as they say."""
        return lambda x: self.faster((names, x), *others)

    def floors(
        self, grade: str, names: tuple[str, ...], *others: tuple[tuple[str, ...], float]
    ) -> Callable[[float], float]:
        """The floor by x of some parts, and others faster as they say [s]."""
        return lambda x: floor_of(self.faster((names, x), *others), grade).seconds

    def largest(self, seconds: Callable[[float], float]) -> float | None:
        """The largest x in 0..1 at which a convex, rising `seconds` is at most what is due; None where none is."""
        due = self.due * (1 + CLOSE)
        time = seconds(1.0)
        if time <= due:
            return 1.0
        if seconds(0.0) > due:
            return None
        low, high = 0.0, 1.0  # reached at low, not at high
        for _ in range(ROUNDS):
            beside = high * 1e-6
            slope = (time - seconds(high - beside)) / beside
            guess = high - (time - self.due) / slope if slope > 0 else 0.0  # by a tangent, which lies below the curve
            if not low < guess < high:
                guess = (low + high) / 2
            reached = seconds(guess)
            if reached > due:
                high, time = guess, reached
            elif reached >= self.due * (1 - CLOSE):
                return guess
            else:
                low = guess
            if high - low <= CLOSE * high:
                break
        return low

    def rate(self, names: tuple[str, ...]) -> Lever:
        """How much faster some parts have to be."""
        end = self.limit(names)
        least = self.largest(self.floors("peak", names))
        high = self.largest(self.floors("value", names))
        found = self.below(self.faster_by(names), high) if high else None
        resource = self.step.resources[names[0]]
        accesses = sorted({use.access for row in self.step.rows for use in row.uses if use.resource == names[0]})
        now = (resource.peak, sustained_rate(resource, accesses[0] if accesses else ""))
        x, seconds = found if found else (None, None)
        return Lever(
            "rate", names, 1.0, _factor(least), _factor(x), seconds, inf, end.floor, end.bottleneck, now,
            resource.unit, (True, not high or x == high), end.floor,
        )  # fmt: skip

    def expected_from(self, at: Callable[[float], Step]) -> tuple[float, float] | None:
        """The largest x found at which the expected time reaches the target, with that time [s]; None where none is.

        The floor at sustained rates is below every expected time, so nothing above its own x can do.
        """
        high = self.largest(lambda x: floor_of(at(x), "value").seconds)
        return None if not high else self.below(at, high)

    def below(self, at: Callable[[float], Step], high: float) -> tuple[float, float] | None:
        """The same from a `high` on that nothing above can do."""
        due = self.due * (1 + CLOSE)
        above = self.expected(at(high))
        if above <= due:
            return high, above
        low = best = inf
        for x in [max(2 * self.due / above - 1, 0.5) * high, 0.0, *(share * high for share in SHARES)]:
            low, best = x, self.expected(at(x))  # a faster part may also crowd out what runs beside it
            if best <= due:
                break
            high, above = (low, best) if low else (high, above)
        if best > due:
            return None
        for turn in range(ROUNDS):
            if low and high - low <= NEAR * low:
                break
            straight = low + (due - best) / (above - best) * (high - low) if above > best else high
            guess = (straight * (1 - NEAR / 3), low * (1 + NEAR * 0.9), (low + high) / 2)[turn % 3]
            guess = guess if low < guess < high else (low + high) / 2
            seconds = self.expected(at(guess))
            if seconds <= due:
                low, best = guess, seconds
            else:
                high, above = guess, seconds
        return (low, best) if low else None

    def least(
        self, groups: Sequence[tuple[str, ...]], grade: str, limit: float = inf
    ) -> tuple[Part | None, Limit | None]:
        """The part that has to be faster by the least factor, by floors ("peak") or expected times ("value").

        With it the part that leaves least if infinitely fast: the reason where none is enough. Both are None where
        the floor shows that no part does it by less than the factor `limit`.
        """
        due = self.due * (1 + CLOSE)
        times = busy(self.step, grade)
        others = {names: max((time for name, time in times.items() if name not in names), default=0.0)
                  for names in groups}  # fmt: skip
        limits: dict[tuple[str, ...], Limit] = {}
        for names in sorted(groups, key=others.__getitem__):
            if limits and others[names] > due and others[names] >= min(one.floor for one in limits.values()):
                break  # the loads of the others alone take longer
            limits[names] = self.limit(names, grade=grade)
        left = min(limits.values(), key=lambda one: one.floor)
        highs = {}
        for names in (names for names, one in limits.items() if one.floor <= due):
            high = self.largest(self.floors(grade, names))
            if high:
                highs[names] = high
        if not highs:
            return None, left
        order = sorted(highs, key=lambda names: -highs[names])
        most = highs[order[0]]
        if 1 / most >= limit * (1 - NEAR):
            return None, None
        if grade == "peak":
            return Part(order[0], 1 / most, floor_of(self.faster((order[0], most))).seconds, 1 / most), left
        best: Part | None = None
        for names in order:
            if best is not None:
                if 1 / highs[names] >= best.factor:
                    break
                if self.expected(self.faster((names, (1 - NEAR) / best.factor))) > self.due * (1 + CLOSE):
                    continue
            found = self.below(self.faster_by(names), highs[names])
            if found is not None and (best is None or 1 / found[0] < best.factor):
                best = Part(names, 1 / found[0], found[1], 1 / most)
        if best is None:
            reached = {names: self.expected(self.faster((names, 0.0))) for names in order}
            names = min(reached, key=reached.__getitem__)
            left = replace(limits[names], expected=reached[names])
        return best, left


def _factor(x: float | None) -> float | None:
    return None if not x else 1 / x
