"""Latency, rate and n_half from a family of results: rates against size, or against requests in flight.

    fit_sizes([(2**20, 9.5e9), (2**23, 20.1e9), (2**26, 25.3e9)])     # Fit(latency=..., rate=..., half=...)

Against size: time = latency + size / rate (Hockney), least squares of the shares of time, so that every size weighs
the same. n_half = latency x rate is the size at half the rate. Against requests q of one size s in flight: rate =
min(B, q x s / t), t the time of one request, latency = t - s / B. What the model does not hold for is refused with the
reason, never rounded or cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offload.readers.tools.finding import Measured, describe_rate

FEWEST = 3  # sizes or depths: two points fit any line
SURE = 2  # standard errors that a figure must be above 0
POOR = 0.10  # the largest residual that is still a fit, as a share of the time
MOST = 1024  # points
# Notes that size brings.
BY_SIZE = re.compile(r"[,;] (?:small requests[^,;]*|from size and time)|^small requests[^,;]*")
SLOWEST, FASTEST, LARGEST = 1e-3, 1e18, 2**60  # B/s, B/s, bytes: no tool measures beyond


@dataclass(frozen=True, slots=True)
class Fit:
    """latency [s], rate [B/s] for endless sizes, half : n_half [bytes]; residual : root mean square over the points of
    the share by which their times (rates, against depth) differ from the model; over : "size" or "depth"."""

    latency: float
    rate: float
    half: float
    residual: float
    points: int
    over: str = "size"


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a family gives no latency."""

    why: str


def fit_sizes(points: Iterable[tuple[int, float]]) -> Fit | NoFit:
    """Latency and rate of (size [bytes], rate [B/s]) pairs; a size may stand several times.

    Refused (NoFit): fewer than three sizes, a figure not above 0, a negative latency or rate, times that differ from
    the line by more than a tenth, a latency or a rate that is lost in the scatter.
    """
    given = _checked(points, "size")
    if isinstance(given, NoFit):
        return given
    # One row a point: 1 = latency x (rate / size) + (1 / B) x rate, which is the line over the point's own time.
    rows = [(Fraction(rate) / size, Fraction(rate)) for size, rate in given]
    aa, ab, bb = sum(u * u for u, _ in rows), sum(u * v for u, v in rows), sum(v * v for _, v in rows)
    a, b = sum(u for u, _ in rows), sum(v for _, v in rows)
    determinant = aa * bb - ab * ab  # 0 only where all sizes are equal
    latency, slope = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if latency < 0:
        return NoFit(f"the line asks for a negative latency ({float(latency):.3g} s): small sizes are faster than "
                     "large ones, or the rates are capped by something else")  # fmt: skip
    if slope <= 0:
        return NoFit("time does not grow with size: there is no rate in these figures")
    residual = _mean_square(float(1 - latency * u - slope * v) for u, v in rows)
    if residual > POOR:
        return NoFit(f"times differ from latency + size / rate by {residual:.0%} (root mean square), "
                     f"more than {POOR:.0%}")  # fmt: skip
    scatter = residual * math.sqrt(len(given) / (len(given) - 2))  # two figures are drawn from the points
    error = scatter * math.sqrt(bb / determinant)
    if latency < SURE * error:
        return NoFit(f"the latency is lost in the scatter: {float(latency):.3g} s, with a standard error of "
                     f"{error:.3g} s. Measure smaller sizes.")  # fmt: skip
    if slope < SURE * scatter * math.sqrt(aa / determinant):
        return NoFit(f"the rate is lost in the scatter of {scatter:.1%}. Measure larger sizes.")
    return Fit(float(latency), float(1 / slope), float(latency / slope), residual, len(given))


def fit_depths(size: int, points: Iterable[tuple[int, float]]) -> Fit | NoFit:
    """Latency and rate of (requests in flight, rate [B/s]) pairs of requests of one size [bytes].

    Depths up to some point are told by the time of one request, those above by the rate: the parting with the least
    squares of relative differences. Refused as fit_sizes, and where the rate still grows at the greatest depth.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= LARGEST:
        return NoFit(f"a size of {size} is no whole number above 0 and up to 2^60")
    given = _checked(points, "depth")
    if isinstance(given, NoFit):
        return given
    partings = []
    depths = sorted({depth for depth, _ in given})
    for last in depths[:-1]:
        # A request's time from depths up to `last`, the rate from those above, each by least squares of shares.
        each = _scale([rate / (depth * size) for depth, rate in given if depth <= last])
        full = _scale([rate for depth, rate in given if depth > last])
        squares = _mean_square(min(full, each * depth * size) / rate - 1 for depth, rate in given)
        partings.append((squares, 1 / each, full))
    residual, request, rate = min(partings)
    if residual > POOR:
        return NoFit(f"rates differ from min(rate, depth x size / time) by {residual:.0%} (root mean square), "
                     f"more than {POOR:.0%}")  # fmt: skip
    if depths[-2] * size / request < rate * (1 - max(POOR, SURE * residual)):
        return NoFit("the rate still grows at the greatest depth: it is not the most there is. Measure deeper.")
    scatter = residual * math.sqrt(len(given) / (len(given) - 2))
    if depths[0] * size / request >= rate * (1 - SURE * scatter):
        return NoFit("the rate does not grow with depth: one request already fills it. Measure smaller sizes.")
    latency = request - size / rate
    if latency < 0:
        return NoFit(f"a request of {request:.3g} s is shorter than its size at the full rate, {size / rate:.3g} s: "
                     "a negative latency")  # fmt: skip
    if latency < SURE * scatter * request:
        return NoFit(f"the latency is lost in the scatter of {scatter:.1%}. Measure smaller sizes.")
    return Fit(latency, rate, latency * rate, residual, len(given), "depth")


def fit_families(rates: Sequence[Measured]) -> list[tuple[str, Fit | NoFit]]:
    """Every family of rates that differ in size alone, or in depth alone, with its words and its fit; families of one
    point are left out."""
    found: list[tuple[str, Fit | NoFit]] = []
    for over, members in families_of(rates):
        points = [((one.size if over == "size" else one.depth) or 0, one.rate) for one in members]
        fitted = fit_sizes(points) if over == "size" else fit_depths(members[0].size or 0, points)
        found.append((f"{describe_rate(members[0])}, over {over}", fitted))
    return found


def families_of(rates: Sequence[Measured]) -> Iterator[tuple[str, list[Measured]]]:
    """Rates that differ in size alone, or in depth alone ("size" or "depth"), by the number in which they do; those of
    one number are left out."""
    for over in ("size", "depth"):
        families: dict[tuple[object, ...], list[Measured]] = {}
        for rate in rates:
            if rate.size is None or (over == "depth" and rate.depth is None):
                continue
            alike = (rate.source, rate.destination, rate.access, rate.when, rate.streams, rate.threads, rate.operation,
                     rate.ranks, BY_SIZE.sub("", rate.note))  # fmt: skip
            families.setdefault((*alike, rate.depth if over == "size" else rate.size), []).append(rate)
        for members in families.values():
            if len({one.size if over == "size" else one.depth for one in members}) > 1:
                yield over, members


def _checked(points: Iterable[tuple[int, float]], what: str) -> list[tuple[int, float]] | NoFit:
    given = list(points)
    if len(given) > MOST:
        return NoFit(f"{len(given)} figures are too many, at most {MOST}")
    for place, rate in given:
        if isinstance(place, bool) or not isinstance(place, int) or not 0 < place <= LARGEST:
            return NoFit(f"a {what} of {place} is no whole number above 0 and up to 2^60")
        if isinstance(rate, bool) or not SLOWEST <= rate <= FASTEST:
            return NoFit(f"a rate of {rate} at {what} {place} is no number from {SLOWEST} to {FASTEST:.0e} B/s")
    different = len({place for place, _ in given})
    if different < FEWEST:
        return NoFit(f"{different} different {what}s are too few, at least {FEWEST}")
    return given


def _mean_square(shares: Iterable[float]) -> float:
    given = list(shares)
    return math.sqrt(math.fsum(share * share for share in given) / len(given))


def _scale(figures: list[float]) -> float:
    """The figure x with the least squares of x / figure - 1."""
    return math.fsum(1 / figure for figure in figures) / math.fsum(1 / figure**2 for figure in figures)
