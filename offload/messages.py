"""Latency and message size: alpha + n / B, queue depth, chunks over hops, measured curves and the fit to them.

Pure functions, exact where given Fractions. Time is modelled, never an efficiency that steps up with size: that makes a
larger message faster than a smaller one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational

from offload.errors import FormulaError, shown
from offload.events import maximum
from offload.given import as_written, finite, finite_arrays, not_negative, pairs, plain, plainly, positive, whole
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A link by a start-up time alpha [s] and a rate B [B/s]: a message of n bytes takes alpha + n / B (Hockney 1994).

    alpha is a pure delay: the link is free meanwhile, so several messages may share it. Time is monotone, concave in n
    for one message, and subadditive. LogGP maps to it by alpha = L + 2 o and B = 1 / G.
    """

    alpha: Amount
    bandwidth: Amount

    def __post_init__(self) -> None:
        for name in ("alpha", "bandwidth"):
            object.__setattr__(self, name, plain(getattr(self, name), arrays=True))
        not_negative("alpha", self.alpha)
        positive("bandwidth", self.bandwidth)

    @property
    @finite
    def half(self) -> Amount:
        """n_half [B]: the size that reaches half of the rate, alpha B."""
        return self.alpha * self.bandwidth

    @finite_arrays
    def seconds(self, size: Amount) -> Amount:
        """One message of `size` bytes [s]."""
        return self.alpha + not_negative("size", size, arrays=True) / self.bandwidth

    @finite_arrays
    def rate(self, size: Amount) -> Amount:
        """What one message at a time reaches [B/s]: B n / (n + n_half)."""
        not_negative("size", size, arrays=True)
        if not self.alpha:
            return self.bandwidth  # for any size, an empty message too
        return self.bandwidth * size / (size + self.half)

    @finite_arrays
    def throughput(self, size: Amount, depth: int) -> Amount:
        """Messages of `size` bytes with `depth` under way [B/s]: min(B, q s / (alpha + s / B)) (Little's law)."""
        whole("depth", depth, 1)
        reached = depth * positive("size", size, arrays=True) / self.seconds(size)
        return -maximum(-reached, -self.bandwidth)

    @plainly
    def depth(self, size: Amount) -> int:
        """The least depth that reaches the rate B: ceil(1 + n_half / s); floats count by the decimals they show."""
        half = as_written(self.alpha) * as_written(self.bandwidth)
        return 1 + math.ceil(half / as_written(positive("size", size)))

    @finite
    def in_turn(self, total: Amount, size: Amount) -> Amount:
        """`total` bytes in chunks of `size`, each started when the one before has ended [s]: ceil(D / s) alpha + D / B.

        The last chunk may be smaller; floats count by the decimals they show.
        """
        chunks = math.ceil(as_written(not_negative("total", total)) / as_written(positive("size", size)))
        return chunks * self.alpha + total / self.bandwidth


@dataclass(frozen=True, slots=True)
class Chunking:
    """The best chunks for a path of hops: of any size (chunk_bytes, seconds), and in a whole number of equal ones.

    whole_seconds >= seconds, which the closed form gives.
    """

    chunk_bytes: Amount
    seconds: Amount
    chunks: int
    whole_chunk_bytes: Amount
    whole_seconds: Amount


@finite
def chunk_seconds(amount: Amount, link: AlphaBeta, hops: int, chunk: Amount) -> Amount:
    """`amount` bytes over `hops` equal hops in chunks of `chunk` bytes [s]: (h - 1 + D / s) (alpha + s / B).

    Each chunk pays alpha on each hop, and occupies it meanwhile. D / s need not be whole.
    """
    whole("hops", hops, 1)
    _link(link)
    return (hops - 1 + positive("amount", amount) / positive("chunk", chunk)) * (link.alpha + chunk / link.bandwidth)


@finite
def best_chunks(amount: Amount, link: AlphaBeta, hops: int) -> Chunking:
    """The chunk size that makes `chunk_seconds` least.

    s* = sqrt(D alpha B / (h - 1)) and T(s*) = (sqrt(D / B) + sqrt((h - 1) alpha))^2 (inequality of arithmetic and
    geometric means), at most the whole message (s* = D, also for one hop). Without latency s* = 0: the smaller the
    better. Whole counts: the better of floor and ceil of D / s*, since T is convex in the count, from one chunk to
    chunks of one byte. Exact for Fractions whose roots are rational.
    """
    positive("amount", amount)
    whole("hops", hops, 1)
    _link(link)
    chunk = amount if hops == 1 else _root(amount * link.alpha * link.bandwidth / (hops - 1))
    if not chunk < amount:
        chunk, seconds = amount, chunk_seconds(amount, link, hops, amount)
    else:
        moved, begun = amount / link.bandwidth, (hops - 1) * link.alpha
        seconds = moved + begun + 2 * _root(moved * begun)
    most = max(1, math.floor(amount))
    near = {most} if not chunk else {max(1, min(most, count))
                                     for count in (math.floor(amount / chunk), math.ceil(amount / chunk))}  # fmt: skip
    timed = sorted((chunk_seconds(amount, link, hops, _part(amount, count)), count) for count in near)
    least, count = timed[0]
    return Chunking(chunk, seconds, count, _part(amount, count), least)


def _link(link: AlphaBeta) -> None:
    if not isinstance(link, AlphaBeta):
        raise FormulaError(f"link: {shown(link)} is no link; give AlphaBeta(alpha, bandwidth).")


def _part(amount: Amount, count: int) -> Amount:
    """amount / count, exact where amount is no float."""
    return amount / count if not isinstance(amount, Rational) else Fraction(amount) / count


def _root(value: Amount) -> Amount:
    """The square root, rational where it is."""
    if isinstance(value, Rational):
        exact = Fraction(value)
        root = Fraction(math.isqrt(exact.numerator), math.isqrt(exact.denominator))
        if root * root == exact:
            return root
    return math.sqrt(value)


# Measured points.


@dataclass(frozen=True, slots=True)
class TimeCurve:
    """Seconds over bytes by straight lines between measured points, (size, seconds) by rising size.

    Below the first point its time (a smaller message takes no longer), above the last the slope of the last line.
    Raises FormulaError on fewer than two points, sizes that do not rise, and times that fall or are not above 0.
    """

    points: tuple[tuple[Amount, Amount], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _points(self.points))
        for (size, time), (larger, later) in zip(self.points, self.points[1:], strict=False):
            if not larger > size:
                raise FormulaError(f"points: {shown(size)} B is followed by {shown(larger)} B; sort them by size, one "
                                   "time for each.")
            if later < time:
                raise FormulaError(f"points: {shown(larger)} B takes {shown(later)} s, less than the {shown(time)} s "
                                   f"of {shown(size)} B. A larger message is not faster: measure again, or fit a line "
                                   "with `fit`.")

    @property
    def shape(self) -> str:
        """How time bends with size: "line", "concave" (costs per byte fall), "convex" (they rise) or "neither"."""
        slopes = [
            Fraction(later - time) / Fraction(larger - size)
            for (size, time), (larger, later) in zip(self.points, self.points[1:], strict=False)
        ]
        falls = any(after < before for before, after in zip(slopes, slopes[1:], strict=False))
        rises = any(after > before for before, after in zip(slopes, slopes[1:], strict=False))
        if falls and rises:
            return "neither"
        return "concave" if falls else "convex" if rises else "line"

    @plainly
    def measured(self, size: Amount) -> bool:
        """Whether a size lies within the points, so that its time is no extrapolation."""
        within: bool = self.points[0][0] <= not_negative("size", size) <= self.points[-1][0]
        return within

    @finite
    def seconds(self, size: Amount) -> Amount:
        """The time of `size` bytes [s]. Raises FormulaError above the last point where the last line is flat."""
        not_negative("size", size)
        sizes = [at for at, _ in self.points]
        if size <= sizes[0]:
            return self.points[0][1]
        place = min(bisect_left(sizes, size), len(sizes) - 1)
        (low, early), (high, late) = self.points[place - 1 : place + 1]
        if size > high and late == early:
            raise FormulaError(f"{shown(low)} B and {shown(high)} B take the same {shown(late)} s, so nothing tells "
                               f"the time of {shown(size)} B; measure a size at least that large.")
        if size <= high:  # rounding may not pass the ends, so that the curve rises to the last bit across points
            return min(late, early + (late - early) * ((size - low) / (high - low)))
        return late + (late - early) * ((size - high) / (high - low))


@dataclass(frozen=True, slots=True)
class Fit:
    """alpha + n / B through measured points, with its error: the largest and the root mean square of (fit - t) / t.

    errors : (fit - t) / t of each point, in their order.
    """

    link: AlphaBeta
    errors: tuple[Amount, ...]

    @property
    def worst(self) -> Amount:
        """The largest relative error, without its sign."""
        return max(abs(error) for error in self.errors)

    @property
    @finite
    def typical(self) -> float:
        """The root mean square of the relative errors."""
        return math.sqrt(sum(error * error for error in self.errors) / len(self.errors))


@finite
def fit(points: Sequence[tuple[Amount, Amount]]) -> Fit:
    """The alpha >= 0 and B that make the sum of squared relative errors of alpha + n / B least.

    points : (size [B], seconds), in any order, of at least two sizes. Relative errors let small messages count as much
    as large ones. Where the best line starts below 0, the best one through 0. Exact for Fractions. Raises FormulaError
    where times do not grow with size, so that no finite rate fits.
    """
    given = _points(points)
    if len({size for size, _ in given}) < 2:
        raise FormulaError("points: all have the same size; alpha and B need at least two sizes.")
    exact = not any(isinstance(value, float) for point in given for value in point)
    # In exact rationals: of floats too, since the normal equations of sizes over many decades lose all digits.
    rows = [(Fraction(size), 1 / Fraction(time)) for size, time in given]
    ones = sum(weight * weight for _, weight in rows)
    firsts = sum(size * weight * weight for size, weight in rows)
    squares = sum(size * size * weight * weight for size, weight in rows)
    weights = sum(weight for _, weight in rows)
    moments = sum(size * weight for size, weight in rows)
    area = ones * squares - firsts * firsts
    alpha, slope = (weights * squares - moments * firsts) / area, (moments * ones - weights * firsts) / area
    if alpha < 0:
        alpha, slope = Fraction(0), moments / squares
    if slope <= 0:
        raise FormulaError("points: larger messages take no longer than smaller ones, so no rate fits; measure larger "
                           "sizes, up to where time grows with them.")
    errors = [(alpha + slope * size) * weight - 1 for size, weight in rows]
    if exact:
        return Fit(AlphaBeta(alpha, 1 / slope), tuple(errors))
    return Fit(AlphaBeta(float(alpha), float(1 / slope)), tuple(float(error) for error in errors))


def _points(points: Sequence[tuple[Amount, Amount]]) -> tuple[tuple[Amount, Amount], ...]:
    found = tuple(pairs("points", points, "(bytes, seconds)"))
    if len(found) < 2:
        raise FormulaError(f"points: {len(found)} given; give at least two.")
    for number, (size, time) in enumerate(found):
        not_negative(f"points[{number}] bytes", size)
        positive(f"points[{number}] seconds", time)
    return found
