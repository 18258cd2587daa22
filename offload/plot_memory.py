"""The figure of `offload memory`: how many requests fit against how long each is. Only where ink goes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from offload import __version__
from offload.memory import Memory
from offload.memory_curve import Concurrency, FitCurve
from offload.paper import (
    COLOURS,
    EDGE,
    FAINT,
    FILL,
    GREY,
    LINE,
    STYLES,
    WIDTH,
    Sheet,
    columns_of,
    draw_on_paper,
    round_ticks,
    set_ticks,
    shortened,
    text_width,
    wrapped,
)
from offload.plots.requests import finding
from offload.units import format_bytes, format_share

UP = 80.0  # the height of the axes [mm]
LEAST = 0.75  # requests at the lower edge: one request is seen
ABOVE = 1.6  # the upper edge, in times of the most requests
ASIDE = 0.02  # of the width, right of the furthest dot, so that none is cut
EACH = 5  # up to so many requests each number is a tick


def draw_concurrency(found: Concurrency, answer: Memory, path: str) -> None:
    """Draw to an .svg, .png or .pdf file, which is replaced. Raises PlotError as `draw_on_paper`."""
    draw_on_paper(path, lambda figure: _Sheet(figure, found, answer).draw())


class _Sheet(Sheet):
    def __init__(self, figure: Any, found: Concurrency, answer: Memory):
        super().__init__(figure)
        self.found, self.answer, self.up = found, answer, UP
        lengths = [fit.length for curve in found.curves for fit in curve.points]
        counts = [fit.requests for curve in found.curves for fit in curve.points]
        dots = [fit for fit in (found.admitted, found.asked) if fit is not None]
        self.low = min(lengths)
        self.high = max([*lengths, 2 * self.low, *(fit.length for fit in dots), *(length for _, length in found.marks)])
        if found.limit is not None:
            self.high = max(self.high, found.limit)
        self.high = max([self.high, *(fit.length * (fit.length / self.low) ** ASIDE for fit in dots)])
        if not all(curve.endless for curve in found.curves):
            self.high *= 1.05
        most = max([*counts, *(fit.requests for fit in dots)])
        self.top = ABOVE * most
        self.ticks = [tick for tick in round_ticks(LEAST, self.top) if tick == int(tick)]
        if most <= EACH:
            self.ticks = [float(tick) for tick in range(1, most + 1)]
        self.along = round_ticks(self.low, self.high)
        self.left = EDGE + LINE + 4 + max(text_width(_count(tick)) for tick in self.ticks)
        self.across = WIDTH - self.left - EDGE - max(text_width(_count(tick)) for tick in self.along) / 2

    def draw(self) -> None:
        heading = [(line, "bold") for line in wrapped(finding(self.found, self.answer), WIDTH - 2 * EDGE, bold=True)]
        heading += [(line, "normal") for line in wrapped(self._memory(), WIDTH - 2 * EDGE)]
        entries = self._entries()
        columns = columns_of(entries)
        caption = wrapped(self._caption(), WIDTH - 2 * EDGE)
        self.base = 4 + len(caption) * LINE + 2 + math.ceil(len(entries) / columns) * (LINE + 1) + 14
        marks = self._marks()
        rows = max((row for _, _, row in marks), default=-1) + 1
        self.frame(heading, caption, rows * LINE + 3)
        self._axes(marks)
        self._curves()
        self.legend(entries, columns, self.base - 14)

    # What is written.

    def _memory(self) -> str:
        answer = self.answer
        rank, serving = answer.budget.tightest, answer.serving
        ranks = serving.tp * serving.pp
        weights = f"weights in {answer.weights}, " if answer.weights else ""
        where = f"on each of {ranks} GPUs" if serving.tp == ranks > 1 else "on the tightest GPU" if ranks > 1 else ""
        return f"{weights}{format_bytes(rank.left)} for KV {where}".rstrip()

    def _caption(self) -> str:
        serving = self.answer.serving
        block = f" in blocks of {serving.block}" if serving.block > 1 else ""
        prefix = f", {serving.shared_prefix:,} positions of it shared" if serving.shared_prefix else ""
        return (f"Every request is held at the same length{block}{prefix}. Lengths asked for: "
                f"{self.answer.lengths.text}. offload {__version__}")  # fmt: skip

    def _entries(self) -> list[tuple[str, dict[str, Any]]]:
        entries = [(f"KV in {curve.format}", _look(number)) for number, curve in enumerate(self.found.curves)]
        if self.found.admitted is not None:
            fit = self.found.admitted
            share = format_share(self.answer.risk)
            entries.append((f"admitted at {share} risk: {fit.requests:,}, mean {fit.length:,}", _ADMITTED))
        if self.found.asked is not None:
            entries.append((f"asked: {self.found.asked.requests:,} of {self.found.asked.length:,}", _ASKED))
        return entries

    # Where it goes.

    def _place(self, length: float) -> float:
        """Millimetres from the axes' left edge."""
        return self.across * math.log(length / self.low) / math.log(self.high / self.low)

    def _marks(self) -> list[tuple[str, float, int]]:
        """Labels of the vertical lines above the axes, with their lengths and the row that has room for each."""
        named = [(f"{name} {length:,}", length) for name, length in self.found.marks]
        if self.found.limit is not None:
            named.append((f"model's limit {self.found.limit:,}", self.found.limit))
        ends: list[float] = []  # of the labels in each row
        found = []
        for text, length in sorted(named, key=lambda one: one[1]):
            if not self.low <= length <= self.high:
                continue
            start = self._label(text, length)
            row = next((number for number, end in enumerate(ends) if end + 3 <= start), len(ends))
            ends[row : row + 1] = [start + text_width(text)]
            found.append((text, float(length), row))
        return found

    def _label(self, text: str, length: float) -> float:
        """Where a label begins: centred over its line, and inside the paper."""
        wide = text_width(text)
        return min(max(self._place(length) - wide / 2, EDGE - self.left), WIDTH - EDGE - self.left - wide)

    def _axes(self, marks: list[tuple[str, float, int]]) -> None:
        axes = self.axes
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(self.low, self.high)
        axes.set_ylim(LEAST, self.top)
        axes.set_xlabel(shortened("positions of each request", self.across))
        axes.set_ylabel("requests that fit")
        set_ticks(axes.xaxis, self.along, _count)
        set_ticks(axes.yaxis, self.ticks, _count)
        for text, length, row in marks:
            limit = length == self.found.limit
            axes.axvline(length, color="black" if limit else FAINT, linewidth=1.2 if limit else 0.9, zorder=1.5)
            self.note(self._label(text, length), UP + 1 + row * LINE, text, ha="left", va="bottom", color=GREY)

    def _curves(self) -> None:
        axes = self.axes
        highest = max(self.found.curves, key=lambda curve: curve.points[-1].length)
        lengths, counts = self._line(highest)
        axes.fill_between([*lengths, self.high], [*counts, counts[-1]], self.top, color=FILL, linewidth=0, zorder=0.5)
        for number, curve in enumerate(self.found.curves):
            axes.plot(*self._line(curve), solid_capstyle="butt", zorder=5, **_look(number))
        for fit, look in ((self.found.admitted, _ADMITTED), (self.found.asked, _ASKED)):
            if fit is not None and fit.requests:
                axes.plot([fit.length], [fit.requests], zorder=8, **look)
        words = "does not fit"
        lines = [self._place(length) for _, length in self.found.marks]
        if self.found.limit is not None and self.found.limit >= self.low:
            lines.append(self._place(self.found.limit))
        place = self._beside(lines, text_width(words))
        if place is not None:
            self.note(place, UP - 3, words, ha="left", va="top", color=GREY, style="italic", zorder=6)

    def _line(self, curve: FitCurve) -> tuple[list[float], list[float]]:
        """A curve as it is drawn: down to the edge where not one request fits, or on to the border."""
        last = curve.points[-1]
        end = (self.high, last.requests) if curve.endless else (last.length, LEAST)
        return [*(fit.length for fit in curve.points), end[0]], [*(fit.requests for fit in curve.points), end[1]]

    def _beside(self, lines: list[float], wide: float) -> float | None:
        """Where a word has room beside the vertical lines, as far right as can be; None where nowhere."""
        edges = sorted({0.0, self.across, *(line for line in lines if 0 < line < self.across)})
        room = [right - 2 - wide for left, right in pairwise(edges) if right - left >= wide + 4]
        return max((one for one in room if one > self.across / 4), default=None)


def _look(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number], "linestyle": STYLES[number], "linewidth": 3.0}


def _count(value: float) -> str:
    """A tick: thousands and millions written short."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {name}"
    return f"{value:g}"


_ADMITTED = {"color": "black", "linestyle": "none", "marker": "o", "markersize": 8}
_ASKED = {"color": "black", "linestyle": "none", "marker": "D", "markersize": 8, "markerfacecolor": "white"}
