"""What is worth choosing from: the points of a grid that no other beats in two figures at once."""

from __future__ import annotations

from typing import Any

import numpy

from offload.errors import PlotError
from offload.plots import style
from offload.plots.labels import around
from offload.plots.page import Page
from offload.plots.style import drawn
from offload.printing import clean
from offload.sweeps.grid import FIGURES, Grid
from offload.units import format_bytes, format_seconds

MOST_DOTS = 20_000  # of dominated points that a figure holds; of more evenly spread ones
RATIO = 8.0
MOST_NAMES = 8
LEAST_APART = 0.09  # of the axes, between points that are named
WORDS = {"floor": "floor of a step", "serial": "serial time of a step", "overlapped": "expected time of a step",
         "tokens_per_s": "tokens per second, at most", "spare": "left in the fullest memory"}  # fmt: skip


@drawn
def pareto_front(grid: Grid, x: str = "spare", y: str = "floor", *, ax: Any = None, subject: str = "") -> Any:
    """The points of a grid by two figures or axes, and the front of those that no other beats in both.

    x, y : as `Grid.pareto` takes them: floor, serial, overlapped, tokens_per_s, spare, or an axis of numbers; with a -
    before an axis more of it is better. Only points that fit. Each point of the front is named by its values. Behind
    the front lies what no point reaches, hatched. Returns the axes. Raises PlotError where nothing fits, OffloadError
    for what the grid does not have.
    """
    if x == y:
        raise PlotError(f"a front needs two figures, and both are {x}. Name two, as floor,spare.")
    front = grid.pareto(x, y)
    if not front:
        if grid.array("fits").any():
            raise PlotError("no figure: of no point that fits the times are known, as no rate is of "
                            f"{'; '.join(grid.parts)}.")  # fmt: skip
        raise PlotError("no figure: no point fits. Give more memory, or sweep smaller values.")
    page = Page(ax)
    axes = page.axes
    scales, columns, towards = [], [], []
    for name in (x, y):
        values, unit, label, sign = _column(grid, name)
        scales.append(unit)
        columns.append(values / unit)
        towards.append(sign)
        page.words(axes, **{"x" if name == x else "y": label})
    at = [int(numpy.ravel_multi_index(point.place, grid.shape)) for point in front]
    fits = grid.allowed(True, x, y).ravel() & ~numpy.isnan(columns[0]) & ~numpy.isnan(columns[1])
    places = numpy.flatnonzero(fits)
    for key, values in zip(("x", "y"), columns, strict=True):
        low, high = float(values[places].min()), float(values[places].max())
        ends = [float(one) for one in values[at]]
        log = low > 0 and max(ends) / min(ends) > RATIO
        room = (high / low) ** 0.08 if log else (high - low) * 0.08 or abs(high) * 0.08 or 1.0
        page.limits(key, low / room if log else low - room, high * room if log else high + room, log=log)
    chosen = places[:: max(1, -(-len(places) // MOST_DOTS))]
    axes.plot(columns[0][chosen], columns[1][chosen], linestyle="none", marker="o", markersize=3, zorder=2, gid="faint",
              color=style.now().faint, label="points", rasterized=len(chosen) > 3000)  # fmt: skip
    xs, ys = columns[0][at], columns[1][at]
    order = numpy.lexsort((ys, xs))
    xs, ys = xs[order], ys[order]
    _front(axes, xs, ys, towards)
    named = _named(page, columns[0][at], columns[1][at], order)
    varied = [axis for axis in grid.axes if len({front[place].texts[axis.path] for place in order}) > 1]
    for place in named:
        point = front[place]
        text = ", ".join(f"{axis.path.rpartition('.')[2]} {_value(grid, axis, point)}" for axis in varied)
        away = [(-towards[0], -towards[1]), (-towards[0], 0), (0, -towards[1])]
        page.label(text or _values(grid, point), around(columns[0][at[place]], columns[1][at[place]], away),
                   size=style.LETTERS - 1)  # fmt: skip
    entries: list[tuple[str, dict[str, Any]]] = [
        ("no point beats it in both", {"color": style.colour(0), "linewidth": 1.6, "marker": "o", "markersize": 5}),
        ("other points that fit", {"linestyle": "none", "marker": "o", "markersize": 3, "color": style.now().faint}),
        ("no point reaches this", {"patch": style.forbidden()}),
    ]
    same = [f"{axis.path} {_value(grid, axis, front[0])}" for axis in grid.axes if axis not in varied]
    notes = [f"{len(front):,} of {len(places):,} points that fit"]
    if same:
        notes.append(f"All of the front have {clean(', '.join(same))}")
    if len(named) < len(order):
        notes.append(f"{len(named)} of them are named")
    return page.finish(_finding(grid, front, x, y), subject, entries, notes)


def _named(page: Page, xs: numpy.ndarray, ys: numpy.ndarray, order: numpy.ndarray) -> list[int]:
    """The points of a front that are named: both ends, and some between that lie apart."""
    to_axes = (page.axes.transData + page.axes.transAxes.inverted()).transform
    places = to_axes(numpy.column_stack([xs, ys]))
    kept: list[int] = []
    for place in (order[0], order[-1], *order):
        if len(kept) < MOST_NAMES and all(numpy.hypot(*(places[place] - places[one])) >= LEAST_APART for one in kept):
            kept.append(int(place))
    return kept


def _values(grid: Grid, point: Any) -> str:
    """A point that stands alone, by all of its values."""
    return ", ".join(f"{axis.path.rpartition('.')[2]} {_value(grid, axis, point)}" for axis in grid.axes)


def _value(grid: Grid, axis: Any, point: Any) -> str:
    return clean(axis.shown(point.place[grid.axes.index(axis)]))


def _column(grid: Grid, name: str) -> tuple[numpy.ndarray, float, str, int]:
    """Values at each point, the size of their unit, their axis' label, and which way is better: 1 right or up, -1."""
    bare = name.removeprefix("-")
    turned = -1 if name.startswith("-") else 1
    if bare in FIGURES or bare == "tokens":
        values = numpy.asarray(grid.figure(bare), dtype=float).ravel()
        bare = "tokens_per_s" if bare == "tokens" else bare
        if bare in ("tokens_per_s", "spare"):
            unit, unit_name = (1e9, " (GB)") if bare == "spare" else (1.0, "")
            return values, unit, f"{WORDS[bare]}{unit_name}", turned
        unit, unit_name = style.time_unit(float(numpy.nanmin(values)))
        return values, unit, f"{WORDS[bare]} ({unit_name})", -turned
    number = grid.axis(bare)
    axis = grid.axes[number]
    if axis.numbers is None:
        raise PlotError(f"{axis.path} has no order: its values are no numbers. Name a figure or another axis.")
    shape = [1] * len(grid.axes)
    shape[number] = len(axis)
    values = numpy.broadcast_to(axis.numbers.reshape(shape), grid.shape).astype(float).ravel()
    unit, unit_name = (1e9, f"G{axis.unit}") if axis.unit in ("B", "B/s") else (1.0, axis.unit)
    return values, unit, clean(f"{axis.path}{f' ({unit_name})' if unit_name else ''}"), -turned


def _front(axes: Any, xs: numpy.ndarray, ys: numpy.ndarray, towards: list[int]) -> None:
    """The front as a stair, and the side of it that no point reaches."""
    from matplotlib.patches import Polygon

    u, v = -towards[0] * xs, -towards[1] * ys  # less is better in both
    order = numpy.lexsort((v, u))
    u, v = u[order], v[order]
    ends = [sorted(-sign * end for end in limits) for sign, limits in
            zip(towards, (axes.get_xlim(), axes.get_ylim()), strict=True)]  # fmt: skip
    stair = [(u[0], ends[1][1])]
    for place in range(len(u)):
        stair += [(u[place], v[place - 1])] if place else []
        stair.append((u[place], v[place]))
    stair.append((ends[0][1], v[-1]))
    corners = [(ends[0][1], ends[1][0]), (ends[0][0], ends[1][0]), (ends[0][0], ends[1][1])]
    back = numpy.array([-towards[0], -towards[1]])
    axes.add_patch(Polygon(numpy.array(stair + corners) * back, closed=True, zorder=0.5, label="not reached",
                           **style.forbidden()))  # fmt: skip
    axes.plot(*(numpy.array(stair) * back).T, zorder=4, label="stair", color=style.colour(0),
              linewidth=1.6)
    axes.plot(xs, ys, linestyle="none", marker="o", markersize=5, color=style.colour(0), zorder=5, label="front")


def _finding(grid: Grid, front: list[Any], x: str, y: str) -> str:
    first, last = front[0], front[-1]
    if len(front) == 1:
        return f"One point beats all others: {_told(grid, first, x)} and {_told(grid, first, y)}"
    ends = [f"{_told(grid, one, x)} with {_told(grid, one, y)}" for one in (first, last)]
    return f"{len(front):,} choices: from {ends[0]} to {ends[1]}"


def _told(grid: Grid, point: Any, name: str) -> str:
    bare = name.removeprefix("-")
    bare = "tokens_per_s" if bare == "tokens" else bare
    if bare not in FIGURES:
        axis = grid.axes[grid.axis(bare)]
        return f"{clean(axis.path.rpartition('.')[2])} {_value(grid, axis, point)}"
    value = getattr(point, bare)
    if bare == "tokens_per_s":
        return f"{style.three(value)} tok/s"
    return f"{format_bytes(value)} left" if bare == "spare" else format_seconds(value)
