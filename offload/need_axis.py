"""One thing of a plan that varies, and the first of its values with which a target is allowed or reached.

Nothing is said of all values from one of them alone. Where they are few each is tried. Of many numbers some are ruled
out by a bound: no load falls as a batch or a context grows, so that no floor does, and between two numbers the floor is
at least that of the smaller, and what is due at most what is due with the larger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

from offload.capacity import missing
from offload.errors import OffloadError
from offload.need_rates import CLOSE, Target
from offload.prompts import Bound, expected, least
from offload.step import Step

FEW = 4  # values of a long axis that are combined with other changes
WHOLE = 512  # numbers of layers, each of which is tried
SOME = 6  # numbers of layers that are tried first beside another change
SHORT = 24  # other numbers, each of which is tried from the first on that the floor allows
TRIES = 120  # floors that are asked to rule out numbers between
FORMATS = ("weights", "kv")
GROWING = ("batch", "context")  # no load falls as they grow


@dataclass(frozen=True, slots=True)
class First:
    """The value nearest to now that does, None where none was found. sure : no nearer one does, or none at all."""

    value: Any | None
    sure: bool


class TooMany(Exception):
    """More floors than are asked."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What may vary. kind : as of `Lever`; names : the memory of the layers. values : the nearest to `now` first.

    at : the step with a value; raises OffloadError where there is no such variant.
    """

    kind: str
    names: tuple[str, ...]
    now: int | str
    values: Sequence[Any]
    at: Callable[[Any], Step]
    floors: dict[tuple[str, Any], Bound | None] = field(default_factory=dict, compare=False, repr=False)
    times: dict[Any, float] = field(default_factory=dict, compare=False, repr=False)

    def few(self, most: int = FEW) -> list[Any]:
        """All values of formats, of buffers the first, else at most so many, evenly apart, with the last."""
        count = len(self.values)
        if self.kind == "buffers":
            return list(self.values[:1])
        if self.kind in FORMATS or count <= most:
            return list(self.values)
        return [self.values[count * (one + 1) // most - 1] for one in range(most)]

    def bound(self, value: Any, grade: str = "peak") -> Bound | None:
        """The floor with a value; None where there is no such variant."""
        if (grade, value) not in self.floors:
            try:
                self.floors[grade, value] = least(self.at(value), grade)
            except OffloadError:
                self.floors[grade, value] = None
        return self.floors[grade, value]

    def known(self, value: Any) -> Bound:
        """The floor with a value of which there is a variant."""
        return cast(Bound, self.bound(value))

    def expected(self, value: Any) -> float:
        """The expected time with a value [s]."""
        if value not in self.times:
            self.times[value] = expected(self.at(value))
        return self.times[value]

    def fits(self, value: Any) -> bool:
        """Whether there is room in every memory."""
        try:
            return not missing(self.at(value))
        except OffloadError:
            return False

    def reaches(self, value: Any, target: Target, grade: str) -> bool:
        """Whether the floor allows the target ("peak"), or the expected time reaches it ("value")."""
        bound = self.bound(value, grade)
        if bound is None:
            return False
        due = target.due(self.at(value)) * (1 + CLOSE)
        return bound.seconds <= due and (grade == "peak" or self.expected(value) <= due)

    def least(self, target: Target, fitting: bool = False) -> Any | None:
        """Of the values whose floor was asked the one with the least for what is due; perhaps of those that fit."""
        tried = [value for (grade, value), bound in self.floors.items() if grade == "peak" and bound is not None
                 and (not fitting or self.fits(value))]  # fmt: skip
        return min(tried, key=lambda one: self.known(one).seconds / target.due(self.at(one)), default=None)

    def first(self, target: Target, grade: str, fitting: bool = False, whole: bool = True) -> First:
        """The value nearest to now with which the target is allowed ("peak") or reached ("value").

        fitting : and with which there is room. Formats, layers and what is short are tried one by one; of buffers
        those in `values`, and no more is known. Of many others the first that the floor allows is searched by ruling
        out what lies between two; from there on values ever further apart are tried, and halved where one does.
        whole : try each number of layers; else some of them.
        """

        def good(value: Any) -> bool:
            return self.reaches(value, target, grade) and (not fitting or self.fits(value))

        if self.kind == "layers" and not whole and len(self.values) > SOME:
            return self._some(target, grade, good)
        if self.kind not in GROWING and (self.kind != "layers" or len(self.values) <= WHOLE):
            return First(next((value for value in self.values if good(value)), None), True)
        start, end = self._room() if fitting else (0, len(self.values) - 1)
        if start > end:
            return First(None, True)
        opened, ruled = start, False  # whether all before `opened` is ruled out
        if self.kind in GROWING:
            try:
                found = self._open(target, grade, start, end, [TRIES])
                if found is None or grade == "peak":
                    return First(None if found is None else self.values[found], True)
                opened, ruled = found, True
            except TooMany:
                pass
        if ruled and end - opened < SHORT:
            return First(next((value for value in self.values[opened : end + 1] if good(value)), None), True)
        low = opened - 1
        apart = [opened + 4**power - 1 for power in range(20)]
        parts = [opened + (end - opened) * part // 4 for part in (1, 2, 3)]
        for high in sorted({place for place in (*apart, *parts, end) if place <= end}):
            if good(self.values[high]):
                break
            low = high
        else:
            return First(None, False)
        value = self._halved(good, low, high)
        return First(value, ruled and value == self.values[opened])

    def _halved(self, good: Callable[[Any], bool], low: int, high: int) -> Any:
        """A value that does where the one before it does not, after a place that does not, up to one that does."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if good(self.values[middle]) else (middle, high)
        return self.values[high]

    def _some(self, target: Target, grade: str, good: Callable[[Any], bool]) -> First:
        """Some of many values: a few evenly apart, then between them towards the least floor of what is due."""
        last = len(self.values) - 1
        places = [last * part // (SOME - 1) for part in range(SOME)]
        for low, high in zip([-1, *places], places, strict=False):
            if good(self.values[high]):
                return First(self._halved(good, low, high), False)

        def share(place: int) -> float:
            bound = self.bound(self.values[place], grade)
            return inf if bound is None else bound.seconds / self._due(target, self.values[place])

        best = min(places, key=share)
        apart = last // (SOME - 1)
        while apart > 1:
            apart = (apart + 1) // 2
            for place in (best - apart, best + apart):
                if 0 <= place <= last and share(place) < share(best):
                    if good(self.values[place]):
                        return First(self._halved(good, max(at for at in places if at < place), place), False)
                    best = place
        return First(None, False)

    def _room(self) -> tuple[int, int]:
        """The places of the first and the last value that fits: what is occupied grows with a batch or a context."""
        last = len(self.values) - 1
        if self.kind not in GROWING or self.fits(max(self.values[0], self.values[-1])):
            return 0, last
        falling = self.values[0] > self.values[-1]
        if not self.fits(self.values[last if falling else 0]):
            return 1, 0
        low, high = (-1, last) if falling else (0, last + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(self.values[middle]) is falling else (middle, high)
        return (high, last) if falling else (0, low)

    def _due(self, target: Target, value: Any) -> float:
        """The longest that the step with a value may take [s]; infinite where there is no such variant."""
        try:
            return target.due(self.at(value))
        except OffloadError:
            return inf

    def _open(self, target: Target, grade: str, low: int, high: int, left: list[int]) -> int | None:
        """The first place from `low` to `high` that the floor does not rule out. Raises TooMany."""
        smaller, larger = sorted((self.values[low], self.values[high]))
        left[0] -= 1
        if left[0] < 0:
            raise TooMany
        bound = self.bound(smaller, grade)
        if bound is not None and bound.seconds > self._due(target, larger) * (1 + CLOSE):
            return None
        if low == high:
            return low if bound is not None else None
        middle = (low + high) // 2
        found = self._open(target, grade, low, middle, left)
        return found if found is not None else self._open(target, grade, middle + 1, high, left)
