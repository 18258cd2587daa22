"""Rates of a topology file: grades checked against each other, and a link's two directions from what was written.

The peak of a link comes from its encoding (`pcie`, `nvlink`), from `rate` or from half of `both_directions`; `forward`
and `backward` say what differs in one direction. A headline figure that adds both directions is caught here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offload import units
from offload.documents.marks import Document, Location
from offload.documents.topology_shape import FlopRateShape, LinkShape, RateShape
from offload.topology import Interval, Rate

SLACK = 1 + 1e-9  # figures are written with a few digits
HEADLINES = (600e9, 900e9, 1800e9)  # totals of both directions of NVLink 3, 4, 5 and of C2C, as data sheets print them


def rate_of(shape: RateShape | FlopRateShape, source: str = "") -> Rate:
    """A rate as it is written; `source` is where it comes from unless it says so itself."""
    return Rate(shape.peak, shape.rated, intervals(shape.sustained), shape.source or source, shape.unknown)


def intervals(sustained: Mapping[str, float | tuple[float, float, float]]) -> dict[str, Interval]:
    """Sustained figures by kind of access, with their ends."""
    return {
        access: Interval(*figure) if isinstance(figure, tuple) else Interval.exact(figure)
        for access, figure in sustained.items()
    }


def check(document: Document, rate: Rate, place: Location, sustained: Location | None = None) -> None:
    """Note what is not above zero, above the peak, or both known and unknown; `sustained` stands there."""
    show = units.format_flops if "flops" in place else units.format_rate
    figures = [((*place, "peak"), rate.peak, "peak"), ((*place, "rated"), rate.rated, "rated")]
    for access, figure in rate.sustained.items():
        spot = (*(sustained or (*place, "sustained")), access)
        figures += [(spot, figure.low, "sustained"), (spot, figure.high, "sustained")]
    known = [(spot, figure, grade) for spot, figure, grade in figures if figure is not None]
    for spot, figure, grade in known:
        if not figure > 0:
            document.mistake(spot, 'is not above zero. For no link remove it; for a rate not known write "unknown".')
        elif rate.peak and grade != "peak" and figure > rate.peak * SLACK:
            message = f"{grade} {show(figure, 4)} is above the peak, {show(rate.peak, 4)}, which nothing exceeds."
            document.mistake(spot, f"{message} Check bits against bytes, one direction against both, and the peak.")
    if not known and not rate.unknown:
        document.mistake(place, 'has no figure. Give peak, rated or sustained, or write "unknown".')
    if rate.unknown and known:
        document.mistake(place, "is said to be unknown and has a figure. Keep one of them.")


def link_rates(document: Document, shape: LinkShape, place: Location, source: str) -> tuple[Rate, Rate, bool]:
    """A link's rates from its first end to its second and back, and whether one figure had to serve for both."""
    both, both_place = _both(document, shape, place)
    if both is None and shape.forward is None and shape.backward is None:
        message = "a link needs its rate: pcie: 4 x16, nvlink: 4 x18, rate: 25 GB/s (one direction), both_directions:"
        document.mistake(place, f"{message} 900 GB/s, forward and backward, or rate: unknown.", key=True)
        return Rate(), Rate(), False
    found: list[Rate] = []
    for key in ("forward", "backward"):
        own = getattr(shape, key)
        if own is None and both is None:
            continue
        spot = both_place if own is None else (*place, key)
        sustained = (*spot, "sustained")
        rate = rate_of(own or both, source)
        if own is not None and both is not None:
            rate = replace(rate, peak=rate.peak or both.peak, rated=rate.rated or both.rated)
        if not rate.sustained and both is not None and both.sustained:
            rate, sustained = replace(rate, sustained=intervals(both.sustained)), (*both_place, "sustained")
        if not rate.sustained:
            rate, sustained = replace(rate, sustained=intervals(shape.sustained)), (*place, "sustained")
        check(document, rate, spot, sustained)
        found.append(_times(rate, shape.count))
    one_figure = both_place[-1] == "rate" and shape.pcie is None and shape.nvlink is None
    symmetric = len(found) == 1 or (one_figure and shape.forward is None and shape.backward is None)
    return found[0], found[-1], symmetric


def _both(document: Document, shape: LinkShape, place: Location) -> tuple[RateShape | None, Location]:
    """What holds in each direction alike, and where it is written."""
    given = [key for key in ("pcie", "nvlink", "both_directions") if getattr(shape, key) is not None]
    for other in given[1:]:
        document.mistake((*place, other), f'both "{given[0]}" and "{other}" are given. Keep one.', key=True)
    if not given:
        _refuse_headline(document, shape, place)
        return shape.rate, (*place, "rate")
    spot = (*place, given[0])
    if shape.both_directions is not None:
        if shape.rate is not None:
            document.mistake(spot, '"rate" is one direction and "both_directions" their sum. Keep one.', key=True)
        return _peak(shape.both_directions / 2), spot
    if shape.pcie:
        peak, what = units.pcie_rate(*shape.pcie), "PCIe {} x{}".format(*shape.pcie)
    else:
        peak, what = units.nvlink_rate(*shape.nvlink), "NVLink {} x{}".format(*shape.nvlink)
    if shape.rate is None:
        return _peak(peak), spot
    if shape.rate.peak is not None and shape.rate.peak > peak * SLACK:
        total = units.format_rate(shape.rate.peak)
        message = f"{total} is more than {what} carries in one direction, {units.format_rate(peak, 4)}."
        message += f" Remove the rate, as {given[0]} says it; a sum of both directions is both_directions: {total}."
        document.mistake((*place, "rate"), message)
    return shape.rate.model_copy(update={"peak": shape.rate.peak or peak, "unknown": False}), (*place, "rate")


def _peak(rate: float) -> RateShape:
    return RateShape.model_construct(peak=rate)


def _refuse_headline(document: Document, shape: LinkShape, place: Location) -> None:
    name = str(place[-1]).lower()
    nvlink = shape.kind in ("nvlink", "c2c") or (shape.kind is None and name.startswith(("nv", "c2c")))
    if nvlink and shape.rate and shape.rate.peak in HEADLINES:
        total, half = units.format_rate(shape.rate.peak), units.format_rate(shape.rate.peak / 2)
        message = f"{total} is the sum of both directions in data sheets."
        message += f" Write both_directions: {total}, or rate: {half};"
        message += f" where one direction alone has {total}, write forward: {total} and backward: {total}."
        document.mistake((*place, "rate"), message)


def _times(rate: Rate, count: int) -> Rate:
    """The rate of `count` links side by side."""
    if count == 1:
        return rate
    sustained = {access: figure.scaled(float(count)) for access, figure in rate.sustained.items()}
    peak, rated = (figure * count if figure else figure for figure in (rate.peak, rate.rated))
    return replace(rate, peak=peak, rated=rated, sustained=sustained)
