"""Times over a whole number: layers that live at the GPU, drives in a set. Linear, because times add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from offload.drive_counts import DriveCounts
from offload.errors import PlotError
from offload.plots import style
from offload.plots.labels import ABOVE, beside_line
from offload.plots.page import Page
from offload.plots.style import Colours, drawn
from offload.plots.subject import Dot, sources
from offload.printing import clean
from offload.sweeps.grid import ORDER_NAME, Grid
from offload.units import format_seconds

WEIGHTS = "placement.weights."
FLAT = 6.0  # times what fits: an axis up to what does not fit would leave nothing to see of what does
TOP = 1.08  # the upper edge, in times of the longest time


@drawn
def residency(grid: Grid, *, ax: Any = None, subject: str = "", measured: Sequence[Dot] = ()) -> Any:
    """The time of a token over how much of the model lives at the GPU, and beside it tokens per second.

    grid : over one axis of numbers, as "gpu-layers=0:80" or "placement.weights.hbm0=0 layers:80 layers"; with its
    overlapped times where they were asked for. measured : x in the axis' plain units. A token's times add, so the time
    falls in a straight line, and its reciprocal, what engines print, rises ever steeper. Where the plan does not fit is
    hatched. A figure of its own has two panels; axes that are given take the time, with tokens per second on the right.
    Returns the axes of the time. Raises PlotError for a grid of other axes.
    """
    axis = one_axis(grid, "residency")
    where = _where(axis)
    xs = axis.numbers
    page = Page(ax)
    tokens = grid.array("tokens")
    unit, unit_name = style.time_unit(float(numpy.nanmax(grid.array("floor") / tokens)))
    series = [("floor", grid.floor), ("expected", grid.told_times("overlapped")), ("serial", grid.told_times("serial"))]
    per_token = {name: values / tokens / unit for name, values in series if values is not None}
    tops = [float(numpy.nanmax(values)) for values in per_token.values()]
    tops += [dot.seconds / unit / float(numpy.nanmax(tokens)) for dot in measured]
    low, high = float(xs[0]), float(xs[-1])
    name = _axis_words(axis)
    page.limits("x", low, high, whole=True)
    page.limits("y", 0.0, max(tops) * TOP)
    panels = [(page.axes, per_token)]
    if page.own:
        right = page.panel()
        rates = {key: 1 / (values * unit) for key, values in per_token.items()}
        page.limit(right, "x", low, high, whole=True)
        most, seen = _most_seen(grid, rates, [tokens.flat[0] / dot.seconds for dot in measured])
        page.limit(right, "y", 0.0, seen * TOP)
        page.words(right, name, "tokens per second")
        panels.append((right, rates))
    else:
        page.tokens(1.0, unit)
    page.words(page.axes, name, f"time per token ({unit_name})")
    looks = {"floor": style.look(0), "expected": style.expected(), "serial": style.serial()}
    unfit = unfit_spans(grid)
    for axes, values in panels:
        floor = values["floor"]
        above = axes.get_ylim()[1]
        if axes is page.axes:
            axes.fill_between(xs, floor, 0, zorder=0.5, **style.forbidden())
        else:
            axes.fill_between(xs, floor, above, zorder=0.5, **style.forbidden())
        for key in reversed(values):
            every = {"markevery": max(1, len(xs) // 10)} if key == "expected" else {}
            axes.plot(xs, values[key], zorder=5, label=key, **looks[key], **every)
        shade_unfit(axes, xs, unfit)
        for number, dot in enumerate(measured):
            y = dot.seconds / tokens.flat[0] / unit if axes is page.axes else tokens.flat[0] / dot.seconds
            axes.plot([dot.x], [y], zorder=9, label=f"measured: {dot.name}", **style.measured(number))
    name_unfit(page, axis, xs, unfit)
    for dot in measured:
        text = f"{dot.name}\n{format_seconds(dot.seconds)}"
        page.beside(dot.x, dot.seconds / tokens.flat[0] / unit, text, ABOVE)
    entries = [("floor", looks["floor"])]
    entries += [(key, looks[key]) for key in ("expected", "serial") if key in per_token]
    entries.append(("impossible on this machine", {"patch": style.forbidden()}))
    if measured:
        entries.append(("measured", style.measured()))
    notes = ["Times of a token, back to back", binds_along(grid), *untold(grid), *sources(measured)]
    if page.own and seen < most:
        notes.append(f"Tokens per second of what does not fit go on to {style.three(most)}, above the axis")
    return page.finish(_residency_finding(grid, axis, where), subject, entries, notes)


def _most_seen(grid: Grid, rates: Mapping[str, numpy.ndarray], measured: Sequence[float]) -> tuple[float, float]:
    """The most tokens per second, and up to how many the axis goes: not so far that what fits lies on its zero."""
    most = max([float(numpy.nanmax(values)) for values in rates.values()] + list(measured))
    fits = grid.array("fits") & ~numpy.isnan(grid.array("floor"))
    if not fits.any():
        return most, most
    fitting = max([float(numpy.nanmax(values[fits])) for values in rates.values()] + list(measured))
    return most, most if most < FLAT * fitting else 2 * fitting


def untold(grid: Grid) -> list[str]:
    """A note where times depend on parts without a rate; none where all are known."""
    if grid.uncounted is None or (grid.uncounted < 0).all():
        return []
    parts = "; ".join(grid.parts[place] for place in numpy.unique(grid.uncounted[grid.uncounted >= 0]))
    return [f"Where a time depends on {clean(parts)}, of which no rate is known, the floor alone is drawn"]


def unfit_spans(grid: Grid) -> list[tuple[int, int]]:
    """The places of a grid of one axis at which a step is made and does not fit, in runs: (first, last)."""
    out = ~grid.array("fits") & ~numpy.isnan(grid.array("floor"))
    bounds = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], out.astype(int), [0]])))
    return [(int(first), int(end) - 1) for first, end in bounds.reshape(-1, 2)]


def shade_unfit(axes: Any, xs: numpy.ndarray, spans: Sequence[tuple[int, int]]) -> None:
    """Veil what does not fit, between lines at the first and the last value of each run that the axis does not end."""
    for first, last in spans:
        axes.axvspan(float(xs[first]), float(xs[last]), zorder=4, facecolor=style.now().paper, alpha=0.55, linewidth=0,
                     label="does not fit")  # fmt: skip
        for place in {first, last} - {0, len(xs) - 1}:
            axes.axvline(float(xs[place]), color=style.now().grey, linewidth=1.0, linestyle=(0, (2, 1)), zorder=6,
                         gid="faint")  # fmt: skip


def name_unfit(page: Page, axis: Any, xs: numpy.ndarray, spans: Sequence[tuple[int, int]]) -> None:
    """Say of each run from which value on, or to which, it does not fit."""
    low, high = page.axes.get_ylim()
    log = page.axes.get_yscale() == "log"
    heights = [low * (high / low) ** part if log else low + (high - low) * part
               for part in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)]  # fmt: skip
    for first, last in spans:
        ends = f"{axis.shown(first)} to {axis.shown(last)}"
        if first == 0 or last == len(axis) - 1:
            ends = f"up to {axis.shown(last)}" if last < len(axis) - 1 else f"from {axis.shown(first)} on"
        place = last if first == 0 and last < len(axis) - 1 else first
        page.label(f"does not fit\n{ends}", beside_line(float(xs[place]), heights), leader=False,
                   color=style.now().grey)  # fmt: skip


def one_axis(grid: Grid, what: str) -> Any:
    """The only axis of a grid, of numbers. Raises PlotError for another grid."""
    if len(grid.axes) != 1 or grid.axes[0].numbers is None or len(grid.axes[0]) < 2:
        has = " x ".join(axis.path for axis in grid.axes) or "none"
        raise PlotError(f"{what} is drawn over one axis of at least two numbers, and this grid has {has}. Give one "
                        "--over, or take a part of the grid with grid.at(...).")  # fmt: skip
    return grid.axes[0]


def _axis_words(axis: Any) -> str:
    if axis.path in ("gpu-layers", "gpu_layers"):
        return "layers whose weights live at the GPU"
    if axis.path.startswith(WEIGHTS):
        return clean(f"weights in {axis.path.removeprefix(WEIGHTS)} ({axis.unit or 'count'})")
    return clean(f"{axis.path}{f' ({axis.unit})' if axis.unit else ''}")


def binds_along(grid: Grid) -> str:
    """What binds the floor along a grid of one axis, in words."""
    axis, names = grid.axes[0], grid.array("binding_name")
    told, start = [], 0
    places = [place for place in range(len(axis)) if names[place]]
    for at, place in enumerate(places):
        last = at + 1 == len(places) or names[places[at + 1]] != names[place]
        if last:
            name = "times add" if names[place] == ORDER_NAME else f"{names[place]} binds"
            ends = dict.fromkeys((axis.shown(places[start]), axis.shown(place)))
            told.append(f"{' to '.join(ends)}: {name}")
            start = at + 1
    return f"What binds the floor at {'; '.join(told[:4])}{'; ...' if len(told) > 4 else ''}"


def _where(axis: Any) -> str:
    """Where what an axis counts lives. Raises PlotError for an axis that counts nothing of a model."""
    if axis.path in ("gpu-layers", "gpu_layers"):
        return "at the GPU"
    if axis.path.startswith(WEIGHTS):
        return f"in {clean(axis.path.removeprefix(WEIGHTS))}"
    raise PlotError(f"residency is drawn over how much of a model lives in a memory, as gpu-layers=0:80 or "
                    f"placement.weights.hbm0, and this grid is over {clean(axis.path)}: draw it with offload sweep "
                    "--plot.")  # fmt: skip


def _residency_finding(grid: Grid, axis: Any, where: str) -> str:
    best = grid.best(1, by="floor")
    if not best:
        return "What it takes is not known" if grid.array("fits").any() else "It fits nowhere"
    point, expected = best[0], grid.told_times("overlapped")
    figure, tokens = grid.array("floor") if expected is None else expected, grid.array("tokens")
    kind = "floor" if expected is None else "expected"
    first = next(place for place in range(len(axis)) if not numpy.isnan(figure[place]))
    rate, before = tokens[point.place] / figure[point.place], tokens[first] / figure[first]
    if point.place[0] == first:
        return f"More of it {where} gains nothing: {style.three(rate)} tok/s at {axis.shown(first)}"
    least = point.place[0]
    part = (least - first) // 2 + first
    half = tokens[part] / figure[part]
    return (f"{axis.shown(first)} to {axis.shown(least)}{'' if axis.unit else ' layers'} {where}: "
            f"{style.three(before)} to {style.three(rate)} tok/s ({kind}), and half of them only "
            f"{style.three(half)}")  # fmt: skip


@drawn
def drives(result: DriveCounts, *, ax: Any = None, subject: str = "", measured: Sequence[Dot] = ()) -> Any:
    """The time of a step over the number of drives in a set, and from how many on another thing binds.

    result : from `drive_counts`. measured : x is a number of drives. Time per step on the left, tokens per second on
    the right. Returns the axes.
    """
    page = Page(ax)
    counts = result.counts
    xs = [one.drives for one in counts]
    unit, unit_name = style.time_unit(counts[0].floor)
    top = max([one.serial for one in counts] + [one.high for one in counts] + [dot.seconds for dot in measured])
    page.limits("x", xs[0] - 0.4, xs[-1] + 0.4, whole=True, most=max(9, len(xs)))
    page.limits("y", 0.0, top / unit * TOP)
    each = " in each set" if result.sets > 1 else ""
    page.words(page.axes, f"drives{each} of {result.drive}", f"time per step ({unit_name})")
    page.tokens(result.tokens, unit)
    axes, colours = page.axes, Colours([one.binding for one in counts])
    floors = [one.floor / unit for one in counts]
    for one, y in zip(counts, floors, strict=True):
        axes.bar([one.drives], [y], width=0.8, zorder=0.5, **style.forbidden())
        axes.plot([one.drives - 0.4, one.drives + 0.4], [y, y], solid_capstyle="butt", zorder=5, label="floor",
                  color=colours[one.binding], linewidth=3.2)  # fmt: skip
        ends = [one.low / unit, one.high / unit]
        axes.plot([one.drives] * 2, ends, color=style.now().ink, linewidth=7, alpha=0.22, solid_capstyle="butt",
                  zorder=4, label="interval")  # fmt: skip
    axes.plot(xs, [one.expected / unit for one in counts], zorder=6, label="expected", **style.expected())
    axes.plot(xs, [one.serial / unit for one in counts], zorder=4.5, label="serial", **style.serial())
    for number, dot in enumerate(measured):
        axes.plot([dot.x], [dot.seconds / unit], zorder=9, label=f"measured: {dot.name}", **style.measured(number))
        page.beside(dot.x, dot.seconds / unit, f"{dot.name}\n{format_seconds(dot.seconds)}", ABOVE)
    now = next(one for one in counts if one.drives == result.present)
    heights = [top / unit * TOP * part / 20 for part in range(18, 1, -1)]
    page.label(f"your box: {now.drives}\nexpected {format_seconds(now.expected)}\nfloor {format_seconds(now.floor)}",
               beside_line(now.drives, heights), leader=False)  # fmt: skip
    axes.axvline(now.drives, color=style.now().ink, linewidth=1.0, zorder=2, label="present", gid="faint")
    entries = [(f"floor: {clean(name)}{' (times add)' if any(o.adds for o in counts if o.binding == name) else ''}",
                {"color": colours[name], "linewidth": 3.2}) for name in colours.names]  # fmt: skip
    entries.append((f"expected ({result.policy})", style.expected()))
    if any(one.low < one.high for one in counts):
        entries.append(("its interval", {"patch": style.band()}))
    entries += [("serial", style.serial()), ("impossible on this machine", {"patch": style.forbidden()})]  # fmt: skip
    if measured:
        entries.append(("measured", style.measured()))
    notes = ["Back-to-back steps; a drive brings its own rate and link, what it shares with others stays", "Capacity "
             "is not looked at", *sources(measured)]  # fmt: skip
    return page.finish(_drives_finding(result, now), subject, entries, notes)


def _drives_finding(result: DriveCounts, now: Any) -> str:
    first, last, enough = result.counts[0], result.counts[-1], result.enough
    if enough == first.drives:
        return f"One drive is enough: {clean(first.binding)} binds whatever their number"
    if enough is not None:
        at = next(one for one in result.counts if one.drives == enough)
        verb = "bind" if " and " in clean(at.binding) else "binds"
        rate = f"{format_seconds(at.floor)} ({style.three(result.tokens / at.floor)} tok/s)"
        return f"With {enough} drives {clean(at.binding)} {verb}: more of them bring no step under {rate}"
    return (f"{clean(last.binding)} binds up to {last.drives} drives: the floor falls from "
            f"{format_seconds(first.floor)} to {format_seconds(last.floor)}")  # fmt: skip
