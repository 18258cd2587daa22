"""The risk that what many requests keep, added up, exceeds the room there is: sums of a distribution with itself.

Amounts are whole numbers of a unit (a block, or the bytes that all amounts are multiples of). Several ranks hold parts
of the same requests: it overflows where any of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from offload.errors import ModelError
from offload.models.whole import check_whole

if TYPE_CHECKING:
    import numpy as np

MOST_CELLS = 2**17  # of a distribution; beyond, several units are counted as one
ERROR = 1e-10  # of a probability, absolute: rounding of the transforms, summed over all of them
VAGUE = 0.25  # of the first of cells: what requests must have of it to be small beside one
LEAST_RISK = 1e-8
LARGEST_POWER = 30  # of two: so many requests are looked at


class Amount(Protocol):
    """A distribution of what one request keeps, in whole units."""

    def at_most(self, ends: np.ndarray) -> np.ndarray:
        """P(amount <= end) for each whole end."""

    def mean_up_to(self, ends: np.ndarray) -> np.ndarray:
        """E[the smaller of amount and end] for each whole end."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank holds of each request, and the room that it has.

    amount : of one request, None where all keep the same, which room accounts for. room : units that there are for so
    many requests, falling with their number; below 0 that number does not fit whatever the amounts.
    """

    amount: Amount | None
    room: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Risk:
    """Probability that what `requests` keep exceeds what there is.

    error : how far it may be off. 1e-10, rounding, up to 131,072 units; beyond, several units are one cell, and it is
    the difference to cells twice as wide; all of the risk where requests are small beside a cell. Such cells spread
    sums and leave their mean, so a small risk is overstated.
    least : of several parts that differ, the largest risk of one; the value is then their sum, which bounds the risk
    that any overflows from above. None of one part.
    """

    requests: int
    value: float
    error: float
    least: float | None = None


def evenly(first: int, last: int, points: int) -> list[int]:
    """Up to `points` whole numbers from first to last."""
    return sorted({first + (last - first) * index // max(1, points - 1) for index in range(points)})


class Overflow:
    """The risk of any number of requests, for several questions.

    In cells of one unit where they are few enough; otherwise in wider ones, and in twice as wide ones.
    """

    def __init__(self, parts: Sequence[Part]):
        self.parts = tuple(parts)
        self.sums: list[tuple[_Sums, ...]] = []
        self.known: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {}
        for part in self.parts:
            units = max(0, part.room(1))
            width = -(-units // MOST_CELLS) or 1
            widths = (width,) if width == 1 else (width, 2 * width)
            self.sums.append(() if part.amount is None else tuple(_Sums(part.amount, units, one) for one in widths))

    def risk(self, requests: int) -> Risk:
        """The risk of overflow of so many requests."""
        check_whole("requests", requests, 0, 10**9)
        return self.curve([requests])[0]

    def curve(self, counts: Sequence[int]) -> tuple[Risk, ...]:
        """The risk for each number of requests, given in rising order."""
        found = []
        vague = [bool(sums) and sums[0].vague for sums in self.sums]
        for count, values, wider in zip(counts, *self.by_part(counts), strict=True):
            error = max(ERROR, sum(max(abs(a - b), a * unsure) for a, b, unsure in
                                   zip(values, wider, vague, strict=True)))  # fmt: skip
            least = max(values) if len(values) > 1 else None
            found.append(Risk(count, min(1.0, sum(values)), error, least))
        return tuple(found)

    def by_part(self, counts: Sequence[int]) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
        """The risk of each part for each number of requests; the same in the widest cells."""
        if all(count in self.known for count in counts):
            return [self.known[count][0] for count in counts], [self.known[count][1] for count in counts]
        found: tuple[list[Sequence[float]], list[Sequence[float]]] = ([], [])
        for part, sums in zip(self.parts, self.sums, strict=True):
            room = [part.room(count) if count else 0 for count in counts]
            rows = [one.risks(counts, room) for one in sums] or [[float(one < 0) for one in room]]
            found[0].append(rows[0])
            found[1].append(rows[-1])
        values, wider = ([tuple(one) for one in zip(*rows, strict=True)] for rows in found)
        self.known |= zip(counts, zip(values, wider, strict=True), strict=True)
        return values, wider

    def most(self, risk: float) -> int:
        """The most requests whose risk of overflow is at most `risk`: bit by bit, from the highest.

        Raises ModelError unless 1e-8 <= risk < 1.
        """
        if isinstance(risk, bool) or not isinstance(risk, int | float) or not LEAST_RISK <= risk < 1:
            wrong = f"the risk of overflow is {str(risk)[:60]}; it must be from {LEAST_RISK:g} to below 1"
            raise ModelError(f"{wrong}, as 0.01 or 1 %.")
        power, count = 0, 0
        held: list[np.ndarray | None] = [None] * len(self.parts)
        limit = risk + ERROR
        while power < LARGEST_POWER and self._tried(0, power, held, limit)[0] <= limit:
            power += 1
        while power:
            power -= 1
            value, tried = self._tried(count, power, held, limit)
            if value <= limit:
                count, held = count + (1 << power), tried
        return count

    def _tried(
        self, count: int, power: int, held: Sequence[np.ndarray | None], limit: float
    ) -> tuple[float, list[np.ndarray | None]]:
        """The risk of 2^power requests more than those whose sums are held, as far as the limit, and the sums."""
        value = 0.0
        found: list[np.ndarray | None] = []
        for part, sums, own in zip(self.parts, self.sums, held, strict=True):
            room = part.room(count + (1 << power))
            value += float(room < 0)
            if not sums or value > limit:  # what is too many for one part needs no look at the others
                found.append(None)
                continue
            held_then = sums[0].step(power) if own is None else sums[0].add(own, sums[0].step(power), power)
            found.append(held_then)
            value += sums[0].risk_of(held_then, room)
        return value, found


def _smooth(least: int) -> int:
    """The next number that a transform is quick for: powers of two, or them times 9/8, 5/4, 3/2 or 15/8."""
    power = max(0, least.bit_length() - 4)
    return min(one << power for one in (8, 9, 10, 12, 15, 16) if one << power >= least)


class _Sums:
    """Distributions of sums over cells of `width` units; what is missing to 1 has overflowed.

    An amount inside a wide cell counts at either end, the more at the nearer one, so that its mean is kept: however
    many are added up, their sum's mean is right, and its spread too large by at most what a cell adds to each.
    A sum at a cell's end stands for the sums within half a cell of it; of the last ones a part fits.
    """

    def __init__(self, amount: Amount, units: int, width: int):
        self.amount, self.width = amount, width
        self.cells = sum(self.fitting(units)[:2])
        self.size = _smooth(2 * self.cells)  # of a transform: nothing wraps around
        self.steps: list[np.ndarray] = []  # sums of 1, 2, 4, ... requests
        self.spectra: dict[int, np.ndarray] = {}  # their transforms, by the power

    def one(self) -> np.ndarray:
        """The distribution of one request."""
        import numpy as np

        if self.width == 1:
            return np.diff(self.amount.at_most(np.arange(self.cells)), prepend=0.0)
        means = self.amount.mean_up_to(np.arange(self.cells + 1, dtype=np.float64) * self.width) / self.width
        return -np.diff(np.diff(means), prepend=1.0)  # E[hat((amount - end) / width)] by second differences

    @property
    def vague(self) -> bool:
        """Whether requests are so small beside a cell that it spreads their sums more than they do themselves."""
        return self.width > 1 and self.cells > 0 and bool(self.step(0)[0] > VAGUE)

    def fitting(self, units: int) -> tuple[int, bool, float]:
        """Cells whose sums fit, whether a part of the next fits too, and which, as if sums were spread evenly."""
        whole, part = divmod(2 * units + 1 + self.width, 2 * self.width)
        return whole, part > 0, part / (2 * self.width)

    def step(self, power: int) -> np.ndarray:
        """The sum of 2^power requests."""
        while len(self.steps) <= power:
            last = len(self.steps) - 1
            self.steps.append(self.add(None, self.steps[-1], last) if self.steps else self.one())
        return self.steps[power]

    def add(self, left: np.ndarray | None, right: np.ndarray, power: int | None = None) -> np.ndarray:
        """The sum of both. left : None for the same as right. power : of a step on the right, which is transformed
        once; so is what is added over and over, by its number below 0."""
        import numpy as np

        second = None if power is None else self.spectra.get(power)
        if second is None:
            second = np.fft.rfft(right, self.size)
            if power is not None:
                self.spectra[power] = second
        first = second if left is None else np.fft.rfft(left, self.size)
        return np.fft.irfft(first * second, self.size)[: self.cells]

    def sum_of(self, requests: int) -> np.ndarray | None:
        """The sum of one or more requests; None of none."""
        total = None
        for power in range(requests.bit_length()):
            if requests >> power & 1:
                total = self.step(power) if total is None else self.add(total, self.step(power), power)
        return total

    def risks(self, counts: Sequence[int], rooms: Sequence[int]) -> list[float]:
        """The risk of each number of requests in its room, each sum made from the one before."""
        found, total, last = [], None, 0
        more: dict[int, np.ndarray | None] = {}
        for count, room in zip(counts, rooms, strict=True):
            ahead, last = count - last, count
            if ahead not in more:
                more[ahead] = self.sum_of(ahead)
            step = more[ahead]
            total = step if total is None else total if step is None else self.add(total, step, -ahead)
            found.append(0.0 if total is None else self.risk_of(total, room))
        return found

    def risk_of(self, total: np.ndarray, room: int) -> float:
        if room < 0:
            return 1.0
        whole, more, part = self.fitting(room)
        value = float(1 - total[:whole].sum() - (part * total[whole] if more else 0.0))
        return min(max(value, 0.0), 1.0)  # rounding may leave [0, 1] by 1e-10
