"""Rates of a topology file: grades checked against each other, and a link's two directions from what was written.

The peak of a link comes from its encoding (`pcie`, `nvlink`), from `rate` or from half of `both_directions`; `forward`
and `backward` say what differs in one direction. A headline figure that adds both directions is caught here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from offload import units
from offload.documents.marks import Document, Location, as_written
from offload.documents.topology_shape import Access, FlopRateShape, LinkShape, Part, RateShape
from offload.topology import Interval, Rate
from offload.units.reading import CHANNELS

SLACK = 1 + 1e-9  # figures are written with a few digits
OTHER_KINDS = {  # of a link that says its generation and width: kinds that it cannot be (CXL and networks use PCIe)
    "pcie": ("nvlink", "c2c", "upi", "sata"),
    "nvlink": ("pcie", "c2c", "upi", "xgmi", "cxl", "sata", "ethernet", "infiniband"),
}
HEADLINES = (600e9, 900e9, 1800e9)  # totals of both directions of NVLink 3, 4, 5 and of C2C, as data sheets print them
PCIE_HEADLINES = {32e9: 3, 64e9: 4, 128e9: 5, 256e9: 6}  # totals of both directions of 16 lanes, by generation


NO_EFFECT = "has no effect: every rate beside it has its own sustained figure. Keep one of them."


def rate_of(
    document: Document,
    shape: RateShape | FlopRateShape,
    place: Location,
    source: str = "",
    sustained: Mapping[Access, Any] | None = None,
    sustained_place: Location | None = None,
) -> Rate:
    """A checked rate. source : where it is from unless it says so itself. sustained : figures that stand elsewhere,
    for a rate that has none of its own.
    """
    rate = Rate(shape.peak, shape.rated, {}, shape.source or source, shape.unknown, channels=_channels(document, place))
    if shape.sustained and sustained:
        document.mistake(sustained_place or (*place, "sustained"), NO_EFFECT, key=True)
    if shape.sustained or not sustained:
        return with_sustained(document, rate, place, shape.sustained, (*place, "sustained"))
    return with_sustained(document, rate, place, sustained, sustained_place or (*place, "sustained"))


def with_sustained(
    document: Document, rate: Rate, place: Location, sustained: Mapping[Access, Any], sustained_place: Location
) -> Rate:
    """The rate with its sustained figures, checked; percentages are of the peak, else of the rated figure."""
    base, of = (rate.peak, "peak") if rate.peak is not None else (rate.rated, "the rated figure")
    found: dict[str, Interval] = {}
    shares = []
    for access, figure in sustained.items():
        if not isinstance(figure, Part):
            found[access] = Interval(*figure) if isinstance(figure, tuple) else Interval.exact(figure)
        elif base is None:
            message = f'"{figure.text}" of what? No peak or rated figure is given. Give one, or the rate itself.'
            document.mistake((*sustained_place, access), message)
            document.refused.add(document.known((*sustained_place, access)))
        else:
            found[access] = Interval(figure.low, figure.value, figure.high).scaled(base)
            shares.append(f"{access} {figure.text} of {of}".strip())
    if sustained and not found:
        return replace(rate, unknown=True)  # told; that it has no figure is no second mistake
    if shares:
        stated = f"sustained: {', '.join(shares)}, as stated"
        rate = replace(rate, source="; ".join(filter(None, [rate.source, stated])))
    rate = replace(rate, sustained=found)
    _check(document, rate, place, sustained_place)
    return rate


def _check(document: Document, rate: Rate, place: Location, sustained: Location) -> None:
    """Note what is not above zero, above the peak, or both known and unknown; `sustained` stands there."""
    show = units.format_flops if "flops" in place else units.format_rate
    figures = [((*place, "peak"), rate.peak, "peak"), ((*place, "rated"), rate.rated, "rated")]
    for access, ends in rate.sustained.items():
        spot = (*sustained, access)
        figures += [(spot, ends.low, "sustained"), (spot, ends.high, "sustained")]
    known = [(spot, figure, grade) for spot, figure, grade in figures if figure is not None]
    for spot, figure, grade in known:
        if not figure > 0:
            document.mistake(spot, _not_above_zero(document, spot, show(figure)))
        elif rate.peak and grade != "peak" and figure > rate.peak * SLACK:
            peak = units.format_apart(rate.peak, figure, show)
            message = f"{grade} {show(figure, 4)} is above the peak, {peak}, which nothing exceeds."
            document.mistake(spot, f"{message} Check bits against bytes, one direction against both, and the peak.")
    if not known and not rate.unknown:
        document.mistake(place, 'has no figure. Give peak, rated or sustained, or write "unknown".')
    if rate.unknown and known:
        document.mistake(place, "is said to be unknown and has a figure. Keep one of them.")


def _not_above_zero(document: Document, spot: Location, shown: str) -> str:
    written = document.get(document.known(spot))
    text = shown if isinstance(written, dict | list) or written is None else as_written(written)
    parts = {"links": "link", "limits": "limit"}
    part = next((parts[name] for name in spot if name in parts), "rate")
    where = f"Where there is no such {part}, remove it"
    return f'"{text}" is not above zero. {where}; a rate that is not known is written "unknown".'


def link_rates(document: Document, shape: LinkShape, place: Location, source: str) -> tuple[Rate, Rate, bool]:
    """A link's rates from its first end to its second and back, and whether one figure had to serve for both."""
    both, both_place = _both(document, shape, place)
    if both is None and shape.forward is None and shape.backward is None:
        message = "a link needs its rate: pcie: 4 x16, nvlink: 4 x18, rate: 25 GB/s (one direction), both_directions:"
        document.mistake(place, f"{message} 900 GB/s, forward and backward, or rate: unknown.", key=True)
        return Rate(), Rate(), False
    found: list[Rate] = []
    needed = not shape.sustained
    for key in ("forward", "backward"):
        own = getattr(shape, key)
        if own is None and both is None:
            continue
        spot = both_place if own is None else (*place, key)
        stated, at = shape.sustained, (*place, "sustained")
        rate = Rate(source=source, unknown=False)
        for level, level_place in ((both, both_place), (own, (*place, key))):  # the nearer one wins
            if level is None:
                continue
            peak = rate.peak if level.peak is None else level.peak
            rated = rate.rated if level.rated is None else level.rated
            rate = Rate(peak, rated, {}, level.source or rate.source, level.unknown)
            if level.sustained:
                stated, at = level.sustained, (*level_place, "sustained")
        needed = needed or stated is shape.sustained
        _within(document, shape, both, own, (*place, key))
        rate = with_sustained(document, rate, spot, stated, at)
        found.append(_times(rate, shape.count))
    if not needed:
        document.mistake((*place, "sustained"), NO_EFFECT, key=True)
    one_figure = both_place[-1] == "rate" and shape.pcie is None and shape.nvlink is None
    symmetric = len(found) == 1 or (one_figure and shape.forward is None and shape.backward is None)
    return found[0], found[-1], symmetric


def _within(
    document: Document, shape: LinkShape, both: RateShape | None, own: RateShape | None, place: Location
) -> None:
    """Refuse a direction's own peak above what the link's generation and width, or half of its headline, carry."""
    widths = {"pcie": shape.pcie, "nvlink": shape.nvlink, "both_directions": shape.both_directions}
    key = next((key for key, value in widths.items() if value is not None), None)
    if key is None or both is None or both.peak is None or own is None or own.peak is None:
        return
    if own.peak <= both.peak * SLACK:
        return
    most = units.format_apart(both.peak, own.peak, units.format_rate)
    document.mistake(
        (*place, "peak"),
        f'{units.format_rate(own.peak, 4)} is more than "{key}" says of one direction, {most}. Keep one of them.',
    )


def _both(document: Document, shape: LinkShape, place: Location) -> tuple[RateShape | None, Location]:
    """What holds in each direction alike, and where it is written."""
    given = [key for key in ("pcie", "nvlink", "both_directions") if getattr(shape, key) is not None]
    for other in given[1:]:
        document.mistake((*place, other), f'both "{given[0]}" and "{other}" are given. Keep one.', key=True)
    if given and shape.kind in OTHER_KINDS.get(given[0], ()):
        document.mistake((*place, "kind"), f'"{given[0]}" says the kind: {given[0]}, not {shape.kind}. Keep one.')
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
        width = cast("tuple[int, int]", shape.nvlink)
        peak, what = units.nvlink_rate(*width), "NVLink {} x{}".format(*width)
    if shape.rate is None:
        return _peak(peak), spot
    if shape.rate.peak is not None and shape.rate.peak > peak * SLACK:
        total = units.format_rate(shape.rate.peak)
        message = f"{total} is more than {what} carries in one direction, {units.format_rate(peak, 4)}."
        message += f" Remove the rate, as {given[0]} says it; a sum of both directions is both_directions: {total}."
        document.mistake((*place, "rate"), message)
    peak = peak if shape.rate.peak is None else shape.rate.peak
    return shape.rate.model_copy(update={"peak": peak, "unknown": False}), (*place, "rate")


def _channels(document: Document, place: Location) -> int | None:
    """Of a peak written as "6000 MT/s x 2" the channels."""
    texts = (document.get(document.known(spot)) for spot in ((*place, "peak"), place))
    found = next((CHANNELS.fullmatch(text.strip()) for text in texts if isinstance(text, str)), None)
    return None if found is None else int(found[2])


def _peak(rate: float) -> RateShape:
    return RateShape.model_construct(peak=rate)


def _refuse_headline(document: Document, shape: LinkShape, place: Location) -> None:
    """A total of both directions, as data sheets print it, given as the rate of one."""
    name = str(place[-1]).lower()
    figure = None if shape.rate is None else shape.rate.rated if shape.rate.peak is None else shape.rate.peak
    if figure is None:
        return
    total, half = units.format_rate(figure), units.format_rate(figure / 2)
    alone = f"where one direction alone has {total}, write forward: {total} and backward: {total}."
    if _is(shape, name, ("nvlink", "c2c"), ("nv", "c2c")) and figure in HEADLINES:
        message = f"{total} is the sum of both directions in data sheets."
        message += f" Write both_directions: {total}, or rate: {half}; {alone}"
        if figure == min(HEADLINES) and _is(shape, name, ("nvlink",), ("nv",)):
            message += " That is of an A100; the bridge of an RTX 3090 or an A6000 is both_directions: 112.5 GB/s."
        document.mistake((*place, "rate"), message)
    elif _is(shape, name, ("pcie",), ("pcie",)) and figure in PCIE_HEADLINES:
        summed = PCIE_HEADLINES[figure]
        each = units.format_rate(units.pcie_rate(summed, 16), 4)
        message = f"{total} is the sum of both directions of PCIe {summed} x16, which carries {each} each way"
        works = f"Write pcie: {summed} x16"
        if summed < 6:
            each = units.format_rate(units.pcie_rate(summed + 1, 16), 4)
            message += f", or what PCIe {summed + 1} x16 signals before its encoding, which leaves {each} each way"
            works += f" or pcie: {summed + 1} x16"
        document.mistake((*place, "rate"), f"{message}. {works}; {alone}")


def _is(shape: LinkShape, name: str, kinds: tuple[str, ...], starts: tuple[str, ...]) -> bool:
    """Whether a link is of some kinds: it says so, or says nothing and has a name that does."""
    return shape.kind in kinds or (shape.kind is None and name.startswith(starts))


def _times(rate: Rate, count: int) -> Rate:
    """The rate of `count` links side by side."""
    if count == 1:
        return rate
    sustained = {access: figure.scaled(float(count)) for access, figure in rate.sustained.items()}
    peak, rated = (None if figure is None else figure * count for figure in (rate.peak, rate.rated))
    return replace(rate, peak=peak, rated=rated, sustained=sustained)
