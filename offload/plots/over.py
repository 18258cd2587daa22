"""A sweep as a figure: over one axis times and tokens per second, coloured by what binds; over two axes a map."""

from __future__ import annotations

from typing import Any

import numpy

from offload.errors import PlotError
from offload.plots import style
from offload.plots.heat import RATIO, axis_words, heat_map, scale_of
from offload.plots.lines import binds_along, name_unfit, one_axis, shade_unfit, unfit_spans, untold
from offload.plots.page import Page
from offload.plots.style import Colours, drawn
from offload.printing import clean
from offload.sweeps.grid import ORDER_NAME, Grid
from offload.units import format_seconds


def swept(grid: Grid, *, ax: Any = None, subject: str = "") -> Any:
    """The figure of a sweep: `over_axis` of one axis, `heat_map` of two; axes of one value stand in the line above it.

    Raises PlotError for other grids.
    """
    alone = {axis.path: axis.text(0) for axis in grid.axes if len(axis) == 1}
    if 0 < len(alone) < len(grid.axes):
        grid, said = grid.at(alone), ", ".join(f"{path} {value}" for path, value in alone.items())
        subject = f"{subject}, {said}" if subject else said
    if len(grid.axes) == 2:
        return heat_map(grid, ax=ax, subject=subject)
    if len(grid.axes) == 1:
        return over_axis(grid, ax=ax, subject=subject)
    raise PlotError(f"no figure of a sweep over {len(grid.axes)} axes: sweep one or two, or ask for a front: offload "
                    "plot pareto.")  # fmt: skip


@drawn
def over_axis(grid: Grid, *, ax: Any = None, subject: str = "") -> Any:
    """The time of a step over one axis of numbers, coloured by what binds the floor, and tokens per second beside it.

    A figure of its own has two panels; axes that are given take the time alone. Returns the axes of the time. Raises
    PlotError for a grid of other axes.
    """
    axis = one_axis(grid, "a sweep")
    floor = grid.array("floor")
    if numpy.isnan(floor).all():
        raise PlotError("no figure: no step can be made at any point of the grid.")
    page = Page(ax)
    scale, unit_of_axis = scale_of(axis)
    xs = axis.numbers / scale
    unit, unit_name = style.time_unit(float(numpy.nanmin(floor)))
    seconds = {"floor": floor, "expected": grid.told_times("overlapped"), "serial": grid.told_times("serial")}
    times = {name: values / unit for name, values in seconds.items() if values is not None}
    rates = {name: grid.array("tokens") / (values * unit) for name, values in times.items()}
    panels = [(page.axes, times)]
    if page.own:
        panels.append((page.panel(), rates))
    words = axis_words(axis, unit_of_axis)
    for axes, values in panels:
        _limits(page, axes, "x", float(xs[0]), float(xs[-1]), whole=axis.numbers.dtype.kind == "i" and scale == 1)
        low = min(float(numpy.nanmin(one)) for one in values.values())
        high = max(float(numpy.nanmax(one)) for one in values.values())
        log = low > 0 and high / low > RATIO
        page.limit(axes, "y", low / 1.6 if log else 0.0, high * (1.3 if log else 1.08), log=log)
        page.words(axes, words, f"time per step ({unit_name})" if axes is page.axes else "tokens per second")
    made = ~numpy.isnan(floor)
    names = grid.array("binding_name")
    colours = Colours([name for name in names if name])
    spans = unfit_spans(grid)
    for axes, values in panels:
        edge = axes.get_ylim()[0 if axes is page.axes else 1]
        axes.fill_between(xs, values["floor"], edge, zorder=0.5, **style.forbidden())
        for key, look in (("serial", style.serial()), ("expected", style.expected())):
            if key in values:
                every = {"markevery": max(1, len(xs) // 10)} if key == "expected" else {}
                axes.plot(xs, values[key], zorder=5, label=key, **look, **every)
        for first, last in _runs(names, made):
            axes.plot(xs[first : last + 2], values["floor"][first : last + 2], zorder=5.5, solid_capstyle="butt",
                      label=f"floor: {names[first]}", **colours.look(names[first]))  # fmt: skip
        shade_unfit(axes, xs, spans)
    name_unfit(page, axis, xs, spans)
    entries = [(f"floor: {'times add' if name == ORDER_NAME else clean(name)}", colours.look(name))
               for name in colours.names]  # fmt: skip
    entries += [(key, look) for key, look in (("expected", style.expected()), ("serial", style.serial()))
                if key in times]  # fmt: skip
    entries.append(("impossible on this machine", {"patch": style.forbidden()}))
    notes = ["Back-to-back steps; tokens per second of all sequences together", binds_along(grid), *untold(grid)]
    if spans:
        notes.append("What does not fit is pale")
    return page.finish(_finding(grid, axis), subject, entries, notes)


def _limits(page: Page, axes: Any, name: str, low: float, high: float, whole: bool) -> None:
    log = low > 0 and high / low >= RATIO
    page.limit(axes, name, low, high, log=log, whole=whole and not log, most=6)


def _runs(names: numpy.ndarray, made: numpy.ndarray) -> list[tuple[int, int]]:
    """Places along which one thing binds, in runs: (first, last)."""
    found: list[tuple[int, int]] = []
    for place in numpy.flatnonzero(made):
        if found and found[-1][1] == place - 1 and names[place] == names[found[-1][0]]:
            found[-1] = (found[-1][0], int(place))
        else:
            found.append((int(place), int(place)))
    return found


def _finding(grid: Grid, axis: Any) -> str:
    floor, rates = grid.array("floor"), grid.array("tokens_per_s")
    made = numpy.flatnonzero(~numpy.isnan(floor))
    first, last = int(made[0]), int(made[-1])
    path = clean(axis.path.rpartition(".")[2] if axis.path.count(".") else axis.path)
    name = clean(axis.path) if path in ("rate", "count", "capacity", "bytes") else path
    text = (f"{name} {axis.shown(first)} to {axis.shown(last)}: no step under {format_seconds(floor[first])} to "
            f"{format_seconds(floor[last])}, at most {style.three(rates[first])} to {style.three(rates[last])} "
            "tok/s")  # fmt: skip
    names = grid.array("binding_name")
    ends = [("times add" if names[place] == ORDER_NAME else f"{clean(names[place])} binds") for place in (first, last)]
    return f"{text}; {ends[0]}" + (f", then {ends[1]}" if ends[0] != ends[1] else "")
