"""A figure of a grid over two axes as a heat map, with the regions in which one thing binds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from offload.errors import PlotError
from offload.plots import style
from offload.plots.labels import FAR, Spot, around
from offload.plots.lines import untold
from offload.plots.page import Page
from offload.plots.style import drawn
from offload.plots.subject import alike
from offload.printing import clean
from offload.sweeps.grid import ORDER_NAME, Grid
from offload.units import format_seconds

RATIO = 8.0  # an axis whose ends are further apart is logarithmic
PLAIN = 6_000  # cells that a vector file holds as shapes; more are an image in it
WIDE, MOST_TRIED = 4.0, 48  # a name is so many times as wide as high; so many places along an axis are tried
LOOKED_AT = 9  # places at which is asked which times add
LEVEL = 1.02  # the scale of colours of values nearer to each other has one tick, and is named by it
COLOURS = "cividis"  # told apart by the colour-blind, and rising in lightness
NAMES = {"floor": "floor of a step", "serial": "serial time of a step", "overlapped": "expected time of a step"}


@drawn
def heat_map(
    grid: Grid, *, ax: Any = None, figure: str = "floor", subject: str = "",
    chain: Callable[[Sequence[int]], Sequence[str]] | None = None,
) -> Any:  # fmt: skip
    """A time of a grid over two axes of numbers (the first along, the second up), and what binds the floor where.

    figure : "floor", "serial" or "overlapped" [s]. Lines part the regions in which one thing binds; each is named.
    chain : the resources at which times add, at a place of the grid; a few places are asked. What does not fit is
    hatched, and what has no step is left free. Returns the axes. Raises PlotError for a grid of
    other axes, OffloadError for a figure that it does not have.
    """
    first, second = _two_axes(grid)
    if figure not in NAMES:
        raise PlotError(f'no heat map of "{figure}". Times are floor, serial, overlapped.')
    seconds = numpy.asarray(grid.figure(figure), dtype=float)
    if figure != "floor":
        told = grid.told_times(figure)
        if told is None:
            raise PlotError(f"no figure: no {NAMES[figure]} is known at any point of the grid, as no rate is of "
                            f"{'; '.join(grid.parts)}. Draw the floor.")  # fmt: skip
        seconds = numpy.asarray(told, dtype=float)
    if numpy.isnan(seconds).all():
        raise PlotError("no figure: no step can be made at any point of the grid.")
    page = Page(ax)
    axes = page.axes
    edges = []
    for name, axis in (("x", first), ("y", second)):
        log = axis.numbers[0] > 0 and axis.numbers[-1] / axis.numbers[0] >= RATIO
        edge, scale = _edges(axis.numbers.astype(float), log), scale_of(axis)
        edges.append(edge / scale[0])
        page.limits(name, edges[-1][0], edges[-1][-1], log=log, whole=axis.numbers.dtype.kind == "i" and not log)
        page.words(axes, **{name: axis_words(axis, scale[1])})
    unit, unit_name = style.time_unit(float(numpy.nanmin(seconds)))
    mesh = _cells(axes, edges, seconds.T / unit)
    _colour_bar(page, mesh, f"{NAMES[figure]} ({unit_name})")
    _unfit(axes, edges, grid)
    entries = []
    adding = _adding(grid, chain)
    if _regions(page, edges, grid, adding):
        entries.append(("another thing binds beyond", {"color": style.now().ink, "linewidth": 1.8}))
    if (~grid.array("fits") & ~numpy.isnan(grid.array("floor"))).any():
        entries.append(("does not fit", {"patch": _HATCHED | {"facecolor": "#7C7B78"}}))
    notes = ["Back-to-back steps", *untold(grid)]
    if ORDER_NAME in grid.array("binding_name"):
        notes.append("Times add: a token passes several resources one after another")
    if adding:
        notes.append(f"Which ones was looked at in {min(LOOKED_AT, _places(grid).size)} places of the map")
    return page.finish(_finding(grid, figure, seconds, adding), subject, entries, notes)


def _two_axes(grid: Grid) -> tuple[Any, Any]:
    if len(grid.axes) != 2 or any(axis.numbers is None or len(axis) < 2 for axis in grid.axes):
        has = " x ".join(axis.path for axis in grid.axes) or "none"
        raise PlotError(f"a heat map is drawn over two axes of at least two numbers each, and this grid has {has}. "
                        "Give --over twice, or take a part of the grid with grid.at(...).")  # fmt: skip
    return grid.axes


def _edges(values: numpy.ndarray, log: bool) -> numpy.ndarray:
    """Where cells around values meet. Shape (n + 1,)."""
    at = numpy.log(values) if log else values
    middle = (at[1:] + at[:-1]) / 2
    ends = numpy.concatenate([[at[0] - (middle[0] - at[0])], middle, [at[-1] + (at[-1] - middle[-1])]])
    return numpy.exp(ends) if log else ends


def scale_of(axis: Any) -> tuple[float, str]:
    """What an axis' values are divided by, and the unit that they are then in."""
    if axis.unit in ("B/s", "B"):
        return 1e9, f"G{axis.unit}"
    if axis.unit in ("FLOP/s", "FLOP"):
        return 1e12, f"T{axis.unit}"
    return 1.0, axis.unit


def axis_words(axis: Any, unit: str) -> str:
    """An axis in words, with its unit."""
    known = {"batch": "sequences", "context": "positions", "prompt": "positions", "gpu-layers": "layers at the GPU"}
    last = axis.path.rpartition(".")[2]
    unit = unit or known.get(last, "")
    return f"{last if last in known else axis.path}{f' ({unit})' if unit else ''}"


def _cells(axes: Any, edges: list[numpy.ndarray], values: numpy.ndarray) -> Any:
    from matplotlib.colors import LogNorm

    low, high = float(numpy.nanmin(values)), float(numpy.nanmax(values))
    return axes.pcolormesh(*edges, numpy.ma.masked_invalid(values), cmap=COLOURS, zorder=0.5, gid="faint",
                           norm=LogNorm(low, high if high > low else low * 1.01), rasterized=values.size > PLAIN,
                           edgecolors="face", linewidth=0.2)  # fmt: skip


def _colour_bar(page: Page, mesh: Any, label: str) -> None:
    """The scale of colours; on axes that are given it is cut off them."""
    if page.own:
        bar = page.figure.colorbar(mesh, cax=page.panel(4.0))
    else:
        bar = page.figure.colorbar(mesh, ax=page.axes)
    bar.set_label(label)
    low, high = mesh.norm.vmin, mesh.norm.vmax
    ticks = style.round_ticks(low, high) if high > low * LEVEL else [float(numpy.ma.min(mesh.get_array()))]
    bar.set_ticks(ticks, labels=[style.three(tick) for tick in ticks])
    bar.ax.set_yticks([], minor=True)


def _unfit(axes: Any, edges: list[numpy.ndarray], grid: Grid) -> None:
    """Hatch the points that do not fit: one shape, so that its lines go through."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    out = ~grid.array("fits") & ~numpy.isnan(grid.array("floor"))
    shapes = []
    for column in range(out.shape[0]):
        bounds = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], out[column].astype(int), [0]])))
        x0, x1 = edges[0][column], edges[0][column + 1]
        for begin, end in bounds.reshape(-1, 2):
            y0, y1 = edges[1][begin], edges[1][end]
            shapes.append(Path([(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], closed=True))
    if shapes:
        whole = Path.make_compound_path(*shapes)
        axes.add_patch(PathPatch(whole, zorder=1.5, label="does not fit", facecolor="none", **_HATCHED))


_HATCHED = {"edgecolor": "#FFFFFF", "hatch": "////", "linewidth": 0}


def _regions(page: Page, edges: list[numpy.ndarray], grid: Grid, adding: str) -> bool:
    """Part what binds by lines, and name each region where it is widest; whether there are several."""
    from matplotlib.collections import LineCollection

    binding = numpy.where(numpy.isnan(grid.array("floor")), -9, grid.array("binding"))
    lines = []
    for i, j in zip(*numpy.nonzero(binding[1:] != binding[:-1]), strict=True):
        lines.append([(edges[0][i + 1], edges[1][j]), (edges[0][i + 1], edges[1][j + 1])])
    for i, j in zip(*numpy.nonzero(binding[:, 1:] != binding[:, :-1]), strict=True):
        lines.append([(edges[0][i], edges[1][j + 1]), (edges[0][i + 1], edges[1][j + 1])])
    if lines:
        for color, width in ((style.now().paper, 3.4), (style.now().ink, 1.8)):
            page.axes.add_collection(LineCollection(lines, colors=color, linewidths=width, zorder=3, gid="faint",
                                                    capstyle="projecting"))  # fmt: skip
    centres = [(edge[1:] * edge[:-1]) ** 0.5 if scale == "log" else (edge[1:] + edge[:-1]) / 2
               for edge, scale in zip(edges, (page.axes.get_xscale(), page.axes.get_yscale()), strict=True)]
    codes = set(binding.flat) - {-9}
    for code in sorted(codes, key=lambda one: -int((binding == one).sum())):
        name = str(grid.binding_names[code])
        added = f"{adding}: times add" if adding else "times add"
        page.label(added if name == ORDER_NAME else f"{name} binds", _inside(binding == code, centres),
                   avoid_lines=False, weight="bold")  # fmt: skip
    return bool(lines)


def _inside(region: numpy.ndarray, centres: list[numpy.ndarray]) -> Callable[[Any], list[Spot]]:
    """Places for a name: where a region has most room round it for something wide; else beside the region."""

    def spots(axes: Any) -> list[Spot]:
        steps = [max(1, -(-count // MOST_TRIED)) for count in region.shape]
        seen = region[:: steps[0], :: steps[1]]
        xs, ys = (centre[::step] for centre, step in zip(centres, steps, strict=True))
        if not seen.any():
            return []
        grid = numpy.stack(numpy.meshgrid(xs, ys, indexing="ij"), axis=-1)
        places = axes.transData.transform(grid.reshape(-1, 2)).reshape(grid.shape) / (WIDE, 1.0)
        inside, outside = places[seen], places[~seen]
        box = axes.bbox
        room = numpy.minimum.reduce([inside[:, 0] - box.x0 / WIDE, box.x1 / WIDE - inside[:, 0],
                                     inside[:, 1] - box.y0, box.y1 - inside[:, 1]])  # fmt: skip
        for begin in range(0, len(outside), 512):
            apart = numpy.abs(inside[:, None] - outside[None, begin : begin + 512]).max(axis=2)
            room = numpy.minimum(room, apart.min(axis=1))
        order = numpy.argsort(-room, kind="stable")
        points = grid[seen]
        widest = points[order[0]]
        beside = [one for one in around(*widest) if one.gap > FAR]
        return [*(Spot(*points[one]) for one in order[:60]), *beside]

    return spots


def _places(grid: Grid) -> numpy.ndarray:
    """The places, counted through, at which the order of a step binds."""
    return numpy.flatnonzero(~numpy.isnan(grid.array("floor")) & (grid.array("binding_name") == ORDER_NAME))


def _adding(grid: Grid, chain: Callable[[Sequence[int]], Sequence[str]] | None) -> str:
    """The resources at which times add at all places that are asked, in words; nothing where none is at all of them."""
    places = _places(grid)
    if chain is None or not places.size:
        return ""
    asked = dict.fromkeys(places[numpy.linspace(0, places.size - 1, LOOKED_AT).astype(int)].tolist())
    found = [chain([int(one) for one in numpy.unravel_index(place, grid.shape)]) for place in asked]
    common = sorted(set(found[0]).intersection(*found[1:]), key=list(found[0]).index)
    others = " and others" if any(set(one) - set(common) for one in found) else ""
    return f"{alike(common)}{others}" if common else ""


def _finding(grid: Grid, figure: str, seconds: numpy.ndarray, adding: str) -> str:
    told = grid.summary()
    binds = list(told.binds.items())
    words: list[str] = []
    times_add = f"times add on {adding}" if adding else "times add"
    for name, count in binds[:3]:
        share = 100 * count / told.made
        of = "" if words else " of the points"
        what = times_add if name == ORDER_NAME else f"{clean(name)} binds"
        words.append(f"{what} at {share:.0f} %{of}")
    if len(binds) == 1:
        words = [f"{times_add} everywhere" if binds[0][0] == ORDER_NAME else f"{clean(binds[0][0])} binds everywhere"]
    low, high = float(numpy.nanmin(seconds)), float(numpy.nanmax(seconds))
    kind = {"floor": "floor", "serial": "serial time", "overlapped": "expected time"}[figure]
    fit = "" if told.fit == told.made else f"; {100 * told.fit / told.made:.0f} % fit"
    ends = [format_seconds(low), format_seconds(high)]
    span = " to ".join(dict.fromkeys(ends))
    return f"{'An' if figure == 'overlapped' else 'A'} {kind} of {span}: {', '.join(words)}{fit}"
