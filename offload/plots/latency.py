"""The least time of a step over the rate of a link or a memory: the law, what binds along it, where one's box is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from offload.curves import Curve, Piece
from offload.plots import style
from offload.plots.labels import ABOVE, beside_line
from offload.plots.page import Page
from offload.plots.style import Colours, drawn, format_of, save
from offload.plots.subject import Dot, at_least, left_out, sources, subject, workload
from offload.printing import and_text, clean
from offload.products import products
from offload.ranges import folded, runs
from offload.study import Study
from offload.units import format_rate, format_seconds

ROOM_BELOW, ROOM_ABOVE = 2.6, 1.5  # in ratios: kept free under the least floor and over the most serial


@drawn
def latency_floor(curve: Curve, *, ax: Any = None, study: Study | None = None, measured: Sequence[Dot] = ()) -> Any:
    """The floor of a step over the peak rate of one link or memory, with the expected and the serial time above it.

    curve : from `floor_curve`. study : of the same step, for its name, its interval and its notes. measured : times of
    this step where that rate is x [B/s]. Below the floor nothing is possible. Returns the axes: GB/s along, times on
    the left, tokens per second on the right. Raises PlotError without Matplotlib.
    """
    page = Page(ax)
    times = [curve.points[0], curve.points[-1], curve.present]
    every = [point.floor for point in times] + [point.serial for point in times] + [dot.seconds for dot in measured]
    unit, unit_name = style.time_unit(curve.present.floor)
    low, high = curve.points[0].rate, curve.points[-1].rate
    page.limits("x", low / 1e9, high / 1e9, log=True)
    page.limits("y", min(every) / ROOM_BELOW / unit, max(every) * ROOM_ABOVE / unit, log=True)
    page.words(page.axes, f"peak rate of {curve.over} (GB/s)", f"time per step ({unit_name})")
    page.tokens(curve.tokens, unit)
    colours = Colours([piece.name for piece in curve.pieces])
    _marks(page, curve, low, high)
    _curves(page, curve, unit, colours)
    _measured(page, measured, unit)
    _present(page, curve, study, unit)
    entries = [(f"floor: {clean(one.name)}{' (times add)' if one.adds else ''}", colours.look(one.name))
               for one in curve.pieces]  # fmt: skip
    least = ", at least" if _open(study) else ""
    entries += [(f"expected ({curve.policy}){least}", style.expected()), (f"serial{least}", style.serial()),
                ("impossible on this machine", {"patch": style.forbidden()})]  # fmt: skip
    if measured:
        entries.append(("measured", style.measured()))
    notes = [*_notes(curve, study), *left_out(_open(study)), *sources(measured)]
    return page.finish(_finding(curve), subject(study), entries, notes)


def _open(study: Study | None) -> Sequence[str]:
    """The parts without a rate by which much of the step goes."""
    return () if study is None else study.uncounted


def draw_floor(curve: Curve, study: Study, path: str) -> None:
    """Draw the floor to an .svg, .png or .pdf file, which is replaced. Raises PlotError as `save`."""
    format_of(path)
    save(latency_floor(curve, study=study), path)


def _finding(curve: Curve) -> str:
    present = curve.present
    rate = f"{format_seconds(present.floor)} ({style.three(curve.tokens / present.floor)} tok/s)"
    here = _piece(curve, curve.rate)
    after = curve.pieces[curve.pieces.index(here) + 1 :]
    name = clean(here.name)
    binds = f"{name} {'bind' if len(here.parts) > 1 else 'binds'}{', whose times add' if here.adds else ''}"
    level = not set(here.resources) & set(curve.scaled)
    text = f"No step takes less than {rate} at {format_rate(curve.rate)}: {binds}"
    if level:
        return f"{text}, so a faster {clean(curve.over)} gains nothing"
    if after:
        return f"{text} up to {format_rate(after[0].start)}, from there {clean(after[0].name)}"
    return f"{text}, up to ten times that rate"


def _piece(curve: Curve, rate: float) -> Piece:
    return next((piece for piece in curve.pieces if piece.start <= rate <= piece.end), curve.pieces[-1])


def _marks(page: Page, curve: Curve, low: float, high: float) -> None:
    """Products on the axis: of the axis' own link where it has known ones, else of its kind."""
    if curve.marks:
        for mark in curve.marks:
            family, _, width = mark.name.rpartition(" ")
            page.above(f"{family}\n{width}", mark.rate / 1e9)
        return
    for product in products(curve.kind, low, high) if curve.kind else ():
        page.above(product.name.replace(" x", "\nx"), product.rate / 1e9)


def _curves(page: Page, curve: Curve, unit: float, colours: Colours) -> None:
    axes = page.axes
    rates = [point.rate / 1e9 for point in curve.points]
    floors = [point.floor / unit for point in curve.points]
    axes.fill_between(rates, floors, axes.get_ylim()[0], zorder=0.5, **style.forbidden())
    axes.plot(rates, [point.serial / unit for point in curve.points], zorder=5.2, label="serial", **style.serial())
    known = [index for index, point in enumerate(curve.points) if point.expected is not None]
    axes.plot(rates, _expected(curve, known, unit), markevery=known, zorder=5.4, label="expected", **style.expected())
    for piece in curve.pieces:
        start, end = piece.start * (1 - 1e-9), piece.end * (1 + 1e-9)
        part = [point for point in curve.points if start <= point.rate <= end]
        xs, ys = [point.rate / 1e9 for point in part], [point.floor / unit for point in part]
        axes.plot(xs, ys, solid_capstyle="butt", zorder=5, label=piece.name, **colours.look(piece.name))
        page.along(xs, ys, piece.name, -1, color=colours[piece.name], weight="bold")
    for piece in curve.pieces[1:]:
        corner = min(curve.points, key=lambda point: abs(point.rate - piece.start))
        x, y = corner.rate / 1e9, corner.floor / unit
        axes.plot([x], [y], marker="D", markersize=6, color=style.now().ink, markerfacecolor=style.now().paper,
                  zorder=6, label="crossover")  # fmt: skip
        page.beside(x, y, format_rate(piece.start), [(0.3, -1), (-0.3, -1)])


def _expected(curve: Curve, known: list[int], unit: float) -> list[float]:
    """The schedule at every rate, in the axis' unit: straight between those known, but never above serial."""
    seconds = []
    for index, point in enumerate(curve.points):
        left = max(i for i in known if i <= index)
        right = min(i for i in known if i >= index)
        a, b = curve.points[left], curve.points[right]
        part = 0.0 if left == right else math.log(point.rate / a.rate) / math.log(b.rate / a.rate)
        one, other = cast(float, a.expected), cast(float, b.expected)
        seconds.append(min(one * (other / one) ** part, point.serial) / unit)
    return seconds


def _present(page: Page, curve: Curve, study: Study | None, unit: float) -> None:
    """One's own box as a line, with its times beside it and its interval where rates leave one open."""
    axes, present = page.axes, curve.present
    rate = present.rate / 1e9
    axes.axvline(rate, color=style.now().ink, linewidth=1.2, zorder=2, label="present")
    if study is not None and not study.uncounted and study.overlapped.low < study.overlapped.high:
        ends = sorted((study.overlapped.low, study.overlapped.high))
        axes.plot([rate, rate], [end / unit for end in ends], color=style.now().ink, linewidth=7, alpha=0.25,
                  solid_capstyle="butt", zorder=4, label="interval")  # fmt: skip
    lines = [f"your box: {format_rate(present.rate)}"]
    expected = cast(float, present.expected)  # of one's own rate it is known
    for name, seconds in (("serial", present.serial), ("expected", expected), ("floor", present.floor)):
        axes.plot([rate], [seconds / unit], marker="o", markersize=5, color=style.now().ink, zorder=8)
        lines.append(f"{name} {at_least(() if name == 'floor' else _open(study), seconds, '>=')}")
    low, high = axes.get_ylim()
    heights = [low * (high / low) ** (part / 20) for part in range(19, 0, -1)]
    page.label("\n".join(lines), beside_line(rate, heights), leader=False)


def _measured(page: Page, dots: Sequence[Dot], unit: float) -> None:
    for number, dot in enumerate(dots):
        page.axes.plot([dot.x / 1e9], [dot.seconds / unit], zorder=9, label=f"measured: {dot.name}",
                       **style.measured(number))  # fmt: skip
        page.beside(dot.x / 1e9, dot.seconds / unit, f"{dot.name}\n{format_seconds(dot.seconds)}",
                    ABOVE)  # fmt: skip


def _notes(curve: Curve, study: Study | None) -> list[str]:
    others = [folded(run) for run in runs(curve.scaled) if curve.over not in (folded(run), *run)]
    steps = "Back-to-back steps"
    if study is not None and study.request is not None:
        chunk = study.workload.get("phase") == "prefill"
        steps = "One chunk after another at that context" if chunk else "Decode steps at the mean context"
    notes = [workload(study.workload).capitalize()] if study is not None else []
    notes.append(f"{steps} over the peak rate of {clean(curve.over)}; sustained rates keep their share of it")
    if others:
        notes.append(f"Scaled with it: {clean(and_text(others))}")
    return notes
