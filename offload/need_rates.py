"""How much faster parts of a step have to be: one kind of part, or two, for its floor and for its expected time.

A floor falls along a convex curve as a part's time per byte does (it is a maximum of sums of loads times that time), so
its least factor is found by Newton's method. Expected times are searched from the floor at sustained rates on, and the
value told has been evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt

from offload.bounds import floor, load_seconds
from offload.errors import UnitError
from offload.measured import LONGEST, read_measurement
from offload.ranges import runs
from offload.schedules import schedule
from offload.sensitivity import scaled, together
from offload.step import Step, sustained_rate

CLOSE = 1e-9  # relative: a time this close to the target's reaches it
NEAR = 1e-3  # relative: how near the least factor of an expected time is searched
ROUNDS = 60  # of a search that halves


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked: seconds of a step [s], or tokens/s of all sequences together; the other is None."""

    text: str
    seconds: float | None = None
    tokens_per_s: float | None = None

    def due(self, step: Step) -> float:
        """The longest that the step may take [s]."""
        return self.seconds if self.seconds is not None else float(step.plan.tokens) / self.tokens_per_s


@dataclass(frozen=True, slots=True)
class Lever:
    """One thing changed, all else as it is.

    kind : "rate" (value: times as fast), "batch", "context", "layers", "buffers", "weights", "kv". names : the
    resources that get faster together, or the memory of the layers. rates : of the first of `names`, (peak, sustained)
    now. now : the value now. floor : the value from which the floor allows the target; expected : the one from which
    the expected time reaches it, `seconds` with it; None where none does. end : the last value that was tried
    (infinitely fast, the most that fits), with the floor and its bottleneck there: for a rate, what forbids the target
    however fast the part is.
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


@dataclass(frozen=True, slots=True)
class Pair:
    """Two parts faster together, by the least product of their factors that was found; seconds : the time with them."""

    names: tuple[tuple[str, ...], tuple[str, ...]]
    factors: tuple[float, float]
    seconds: float

    @property
    def product(self) -> float:
        """Both factors multiplied."""
        return self.factors[0] * self.factors[1]


@dataclass(frozen=True, slots=True)
class Limit:
    """Parts that are infinitely fast, the floor that is left [s], and what then binds it."""

    names: tuple[tuple[str, ...], ...]
    floor: float
    bottleneck: tuple[str, ...]


def read_target(text: str, step: Step) -> Target:
    """The target that a text such as "10 tok/s" or "200 ms" says. Raises UnitError with what to write."""
    try:
        read = read_measurement(text)
    except UnitError:
        plain = " ".join(text.split())[:LONGEST]
        if ".." in plain:
            raise UnitError(f'"{plain}": one speed, not a range; give the end that you need.') from None
        if re.search(r"[0-9],[0-9]{3}", plain):
            written = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", plain)
            raise UnitError(f'"{plain}": write it without a comma, as "{written}".') from None
        if re.search(r"[eE][-+]?[0-9]{3}", plain):
            raise UnitError(f'"{plain}" is beyond any machine. Write a speed such as "10 tok/s".') from None
        raise UnitError(f'"{plain}" is no target. Write "10 tok/s" (of all sequences together) or "200 ms" (of one '
                        "step).") from None  # fmt: skip
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
    return load_seconds(step, "value").resource_seconds


class Search:
    """Times of a step with parts changed, and the least change that reaches what is due."""

    def __init__(self, step: Step, target: Target):
        self.step, self.target = step, target
        self.due = target.due(step)

    def expected(self, step: Step) -> float:
        return schedule(step, ends=False).seconds

    def reaches(self, step: Step, grade: str) -> bool:
        """Whether a step's floor ("peak") allows the target, or its expected time ("value") reaches it."""
        due = self.target.due(step) * (1 + CLOSE)
        if grade == "peak":
            return floor(step).seconds <= due
        return floor(step, "value").seconds <= due and self.expected(step) <= due

    # Rates: x is 1 / factor, so that infinitely fast is 0 and floors are convex in it.

    def faster(self, *parts: tuple[tuple[str, ...], float]) -> Step:
        step = self.step
        for names, x in parts:
            if x != 1:
                step = scaled(step, names, 1 / x if x else inf)
        return step

    def limit(self, *groups: tuple[str, ...]) -> Limit:
        """The floor with some parts infinitely fast."""
        bound = floor(self.faster(*((names, 0.0) for names in groups)))
        return Limit(groups, bound.seconds, bound.bottleneck)

    def largest(self, seconds: Callable[[float], float]) -> float | None:
        """The largest x in 0..1 at which a convex, rising `seconds` is at most what is due; None where none is."""
        due = self.due * (1 + CLOSE)
        if seconds(1.0) <= due:
            return 1.0
        if seconds(0.0) > due:
            return None
        low, high, time = 0.0, 1.0, seconds(1.0)  # reached at low, not at high
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
        least = self.largest(lambda x: floor(self.faster((names, x))).seconds)
        found = self.expected_from(lambda x: self.faster((names, x)))
        resource = self.step.resources[names[0]]
        accesses = sorted({use.access for row in self.step.rows for use in row.uses if use.resource == names[0]})
        now = (resource.peak, sustained_rate(resource, accesses[0] if accesses else ""))
        x, seconds = found if found else (None, None)
        return Lever(
            "rate", names, 1.0, _factor(least), _factor(x), seconds, inf, end.floor, end.bottleneck, now,
            resource.unit,
        )  # fmt: skip

    def expected_from(self, at: Callable[[float], Step]) -> tuple[float, float] | None:
        """The largest x at which the expected time reaches the target, with that time [s]; None where none does.

        The floor at sustained rates is below every expected time, so nothing above its own x can do.
        """
        high = self.largest(lambda x: floor(at(x), "value").seconds)
        if high is None or high == 0:
            return None
        due = self.due * (1 + CLOSE)
        seconds = self.expected(at(high))
        if seconds <= due:
            return high, seconds
        best = self.expected(at(0.0))
        if best > due:
            return None
        low = 0.0
        for _ in range(ROUNDS):
            middle = (low + high) / 2
            seconds = self.expected(at(middle))
            if seconds <= due:
                low, best = middle, seconds
            else:
                high = middle
            if low and high - low <= NEAR * low:
                break
        return (low, best) if low else None

    def pair(self, groups: Sequence[tuple[str, ...]], singles: Sequence[float | None], grade: str) -> Pair | None:
        """The pair with the least product of factors, where it is less than every single factor.

        What is reached is convex in both x, so that the product has one maximum along the edge of it (for floors;
        expected times take the best pair of the floor at sustained rates, both as much faster as it then takes).
        """
        best: Pair | None = None
        limit = min((one for one in singles if one is not None), default=inf)
        for (i, a), (j, b) in combinations(enumerate(groups), 2):
            if not self._may_help((a, b), (singles[i], singles[j]), grade):
                continue
            xs = self._best_xs(a, b, grade)
            if xs is None or xs[0] * xs[1] * limit <= 1 + NEAR:
                continue
            found = self._reached(a, b, xs, grade)
            if found is not None and found.product < limit * (1 - NEAR):
                best, limit = found, found.product
        return best

    def _may_help(self, names: tuple[tuple[str, ...], ...], singles: tuple[float | None, ...], grade: str) -> bool:
        """Whether both together reach it, and each helps where the other alone reaches it."""
        if floor(self.faster((names[0], 0.0), (names[1], 0.0)), grade).seconds > self.due * (1 + CLOSE):
            return False
        for one, other, factor in ((*names, singles[0]), (*names[::-1], singles[1])):
            if factor is not None:
                alone = floor(self.faster((one, 1 / factor)), grade).seconds
                if floor(self.faster((one, 1 / factor), (other, 0.0)), grade).seconds >= alone * (1 - CLOSE):
                    return False
        return True

    def _best_xs(self, a: tuple[str, ...], b: tuple[str, ...], grade: str) -> tuple[float, float] | None:
        most = self.largest(lambda x: floor(self.faster((a, x), (b, 0.0)), grade).seconds)
        if not most:
            return None

        def other(x: float) -> float:
            return self.largest(lambda y: floor(self.faster((a, x), (b, y)), grade).seconds) or 0.0

        golden = (sqrt(5) - 1) / 2
        low, high = 0.0, most
        left, right = high - golden * (high - low), low + golden * (high - low)
        at = {x: other(x) for x in (left, right, most)}
        while high - low > 0.01 * most:
            if left * at[left] >= right * at[right]:
                high, right = right, left
                left = high - golden * (high - low)
            else:
                low, left = left, right
                right = low + golden * (high - low)
            for x in (left, right):
                if x not in at:
                    at[x] = other(x)
        x = max(at, key=lambda x: x * at[x])
        return (x, at[x]) if x * at[x] > 0 else None

    def _reached(self, a: tuple[str, ...], b: tuple[str, ...], xs: tuple[float, float], grade: str) -> Pair | None:
        if grade == "peak":
            return Pair((a, b), (1 / xs[0], 1 / xs[1]), floor(self.faster((a, xs[0]), (b, xs[1]))).seconds)
        found = self.expected_from(lambda scale: self.faster((a, xs[0] * scale), (b, xs[1] * scale)))
        if found is None:
            return None
        scale, seconds = found
        return Pair((a, b), (1 / (xs[0] * scale), 1 / (xs[1] * scale)), seconds)


def _factor(x: float | None) -> float | None:
    return None if not x else 1 / x
