"""Figures: a curve's values drawn on paper. Nothing is computed here but where ink goes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from offload import __version__
from offload.curves import Curve, Piece
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
from offload.printing import and_text, clean
from offload.ranges import folded, runs
from offload.study import Study
from offload.units import format_rate, format_seconds

UP = 80.0  # the height of the axes [mm]
BAND, BOX = 24.0, 4 * LINE + 4  # kept free under the curves and, at the present rate, above them [mm]
MOST_PER_DECADE = 100.0  # mm: flat curves do not fill the figure
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def draw_floor(curve: Curve, study: Study, path: str) -> None:
    """Draw a curve to an .svg, .png or .pdf file, which is replaced. Raises PlotError as `draw_on_paper`."""
    draw_on_paper(path, lambda figure: _Sheet(figure, curve, study).draw())


class _Sheet(Sheet):
    """The figure of a floor."""

    def __init__(self, figure: Any, curve: Curve, study: Study):
        super().__init__(figure)
        self.curve, self.study, self.up = curve, study, UP
        self.low, self.high = curve.points[0].rate, curve.points[-1].rate
        present = curve.present
        self.least = min(point.floor for point in curve.points)
        most = max(point.serial for point in curve.points)
        spans = ((most, UP - BAND - 4), (present.serial, UP - BAND - BOX - 6))
        self.decade = min([MOST_PER_DECADE, *(room / math.log10(top / self.least) for top, room in spans
                                              if top > self.least * 1.001)])  # fmt: skip
        self.bottom = self.least * 10 ** (-BAND / self.decade)
        self.top = self.bottom * 10 ** (UP / self.decade)
        self.unit, self.unit_name = next((unit for unit in UNITS if present.floor >= unit[0]), UNITS[-1])
        tokens = curve.tokens
        self.ticks = [round_ticks(self.bottom / self.unit, self.top / self.unit),
                      round_ticks(tokens / self.top, tokens / self.bottom)]  # fmt: skip
        # Beside the axes stand the ticks, their labels and the axis' own label.
        left, right = (EDGE + LINE + 4 + max(text_width(f"{tick:g}") for tick in ticks) for ticks in self.ticks)
        self.left, self.across = left, WIDTH - left - right

    def draw(self) -> None:
        heading = [(line, "bold") for line in wrapped(self.study.title, WIDTH - 2 * EDGE, bold=True)]
        heading += [(line, "normal") for line in wrapped(self._machine(), WIDTH - 2 * EDGE)]
        entries = self._entries()
        columns = columns_of(entries)
        caption = wrapped(self._caption(), WIDTH - 2 * EDGE)
        rows = math.ceil(len(entries) / columns)
        self.base = 4 + len(caption) * LINE + 2 + rows * (LINE + 1) + 14
        self.frame(heading, caption, 2 * LINE + 2 if self.curve.marks else 3)
        self._axes()
        self._curves()
        self._names()
        self._present()
        self.legend(entries, columns, self.base - 14)

    # What is written.

    def _machine(self) -> str:
        study = self.study
        if study.topology_title and study.topology and study.topology_title != study.topology:
            return f"on {study.topology_title} ({study.topology})"
        return f"on {study.topology_title or study.topology}"

    def _caption(self) -> str:
        workload = self.study.workload
        words = [str(workload["phase"])] if "phase" in workload else []
        told = ("batch", "prompt", "generate", "context", "tokens", "overlap")
        words += [f"{key.replace('_', ' ')} {workload[key]}" for key in told if workload.get(key) is not None]
        scaled = runs(self.curve.scaled)
        others = [folded(run) for run in scaled if self.curve.over not in (folded(run), *run)]
        single = len(others) == 1 and len(scaled[0]) == 1
        with_it = f" {and_text(others)} {'is' if single else 'are'} scaled with it." if others else ""
        text = f"{', '.join(words)}. " if words else ""
        steps = "Back-to-back steps" if self.study.request is None else "Decode steps at the mean context"
        return (f"{text}{steps} over the peak rate of {self.curve.over}; sustained rates keep their share "
                f"of it.{with_it} offload {__version__}")  # fmt: skip

    def _entries(self) -> list[tuple[str, dict[str, Any]]]:
        """What the legend says, with the look of each line."""
        entries = []
        for piece in self.curve.pieces:
            name = f"floor: {clean(piece.name)}{' (times add)' if piece.adds else ''}"
            entries.append((shortened(name, WIDTH - 30), self._look(piece)))
        policy = self.curve.policy
        entries.append((f"expected ({policy})", _EXPECTED))
        entries.append(("serial", _SERIAL))
        return list({name: (name, look) for name, look in entries}.values())

    def _look(self, piece: Piece) -> dict[str, Any]:
        """The colour and the style of a piece, the same wherever the same binds."""
        names = list(dict.fromkeys(one.name for one in self.curve.pieces))
        number = names.index(piece.name) % len(COLOURS)
        return {"color": COLOURS[number], "linestyle": STYLES[number], "linewidth": 3.0}

    # Where it goes.

    def _place(self, rate: float, seconds: float) -> tuple[float, float]:
        """Millimetres from the axes' lower left corner."""
        across = self.across * math.log(rate / self.low) / math.log(self.high / self.low)
        return across, self.decade * math.log10(seconds / self.bottom)

    def _axes(self) -> None:
        axes, curve = self.axes, self.curve
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(self.low / 1e9, self.high / 1e9)
        axes.set_ylim(self.bottom / self.unit, self.top / self.unit)
        axes.set_xlabel(shortened(f"peak rate of {clean(curve.over)} (GB/s)", self.across))
        axes.set_ylabel(f"time per step ({self.unit_name})")
        tokens = axes.twinx()
        tokens.set_yscale("log")
        tokens.set_ylim(curve.tokens / self.bottom, curve.tokens / self.top)
        tokens.set_ylabel("tokens per second")
        along = round_ticks(self.low / 1e9, self.high / 1e9)
        for axis, ticks in zip((axes.xaxis, axes.yaxis, tokens.yaxis), (along, *self.ticks), strict=True):
            set_ticks(axis, ticks)
        for mark in curve.marks:
            axes.axvline(mark.rate / 1e9, color=FAINT, linewidth=0.9, zorder=1)
            across = self._place(mark.rate, self.bottom)[0]
            family, _, width = mark.name.rpartition(" ")
            self.note(across, UP + 1, f"{family}\n{width}", ha="center", va="bottom", color=GREY, linespacing=1.0)

    def _curves(self) -> None:
        axes, curve = self.axes, self.curve
        rates = [point.rate / 1e9 for point in curve.points]
        floors = [point.floor / self.unit for point in curve.points]
        axes.fill_between(rates, floors, self.bottom / self.unit, color=FILL, linewidth=0, zorder=0.5)
        axes.plot(rates, [point.serial / self.unit for point in curve.points], zorder=5.2, **_SERIAL)
        known = [index for index, point in enumerate(curve.points) if point.expected is not None]
        axes.plot(rates, self._expected(known), markevery=known, zorder=5.4, **_EXPECTED)
        for piece in curve.pieces:
            start, end = piece.start * (1 - 1e-9), piece.end * (1 + 1e-9)
            along = [point for point in curve.points if start <= point.rate <= end]
            axes.plot([point.rate / 1e9 for point in along], [point.floor / self.unit for point in along],
                      solid_capstyle="butt", zorder=5, **self._look(piece))  # fmt: skip
        for piece in curve.pieces[1:]:
            corner = min(curve.points, key=lambda point, piece=piece: abs(point.rate - piece.start))
            axes.plot([corner.rate / 1e9], [corner.floor / self.unit], marker="D", markersize=6, color="black",
                      markerfacecolor="white", zorder=6)  # fmt: skip
        self.note(3, 3, "impossible\non this machine", ha="left", va="bottom", color=GREY, style="italic",
                   linespacing=1.1)  # fmt: skip

    def _expected(self, known: list[int]) -> list[float]:
        """The schedule at every rate, in the axis' unit: straight between those known, but never above serial."""
        seconds = []
        for index, point in enumerate(self.curve.points):
            left = max(i for i in known if i <= index)
            right = min(i for i in known if i >= index)
            a, b = self.curve.points[left], self.curve.points[right]
            part = 0.0 if left == right else math.log(point.rate / a.rate) / math.log(b.rate / a.rate)
            seconds.append(min(a.expected * (b.expected / a.expected) ** part, point.serial) / self.unit)
        return seconds

    def _names(self) -> None:
        """The name of what binds under each piece of the floor that is long enough for it."""
        places = [self._place(point.rate, point.floor) for point in self.curve.points]
        centre = self.across / 2
        for piece in self.curve.pieces:
            start, end = (self._place(rate, self.least)[0] for rate in (piece.start, piece.end))
            sides = [(start, min(end, centre)), (max(start, centre), end)] if start < centre < end else [(start, end)]
            left, right = max(sides, key=lambda side: (round(side[1] - side[0], 6), side[0]))
            middle = (left + right) / 2
            (x0, y0), (x1, y1) = next(
                ((a, b) for a, b in pairwise(places) if a[0] <= middle <= b[0] and b[0] > a[0]), places[-2:]
            )
            slope = (y1 - y0) / (x1 - x0)
            up = y0 + slope * (middle - x0)
            angle = math.atan(slope)
            name = shortened(clean(piece.name), 60)
            if text_width(name) * math.cos(angle) > right - left - 5:
                continue
            away = 3.6  # from the curve, at a right angle
            self.note(middle + away * math.sin(angle), up - away * math.cos(angle), name, rotation=math.degrees(angle),
                       rotation_mode="anchor", ha="center", va="center", color=self._look(piece)["color"],
                       weight="bold", zorder=7)  # fmt: skip

    def _present(self) -> None:
        """The present rate as a line, with its numbers beside it."""
        from matplotlib.patches import Rectangle

        axes, present = self.axes, self.curve.present
        rate = present.rate / 1e9
        axes.axvline(rate, color="black", linewidth=1.2, zorder=2)
        times = [("serial", present.serial), ("expected", present.expected), ("floor", present.floor)]
        for _, seconds in times:
            axes.plot([rate], [seconds / self.unit], marker="o", markersize=5, color="black", zorder=8)
        lines = [("now", format_rate(present.rate, 4)), *((name, format_seconds(time)) for name, time in times)]
        left, wide = self.across / 2 + 2.5, max(text_width("".join(line), bold=True) for line in lines) + 9
        axes.add_patch(Rectangle(
            (left / self.across, (UP - BOX - 2.5) / UP), wide / self.across, BOX / UP, transform=axes.transAxes,
            facecolor="white", edgecolor="black", linewidth=0.8, zorder=9))  # fmt: skip
        for number, (name, text) in enumerate(lines):
            look = {"va": "center_baseline", "weight": "normal" if number else "bold", "zorder": 10}
            up = UP - 4.5 - LINE * (number + 0.5)
            self.note(left + 2.5, up, name, ha="left", **look)
            self.note(left + wide - 2.5, up, text, ha="right", **look)


_EXPECTED = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.4, "marker": "o", "markersize": 4,
             "markerfacecolor": "white"}  # fmt: skip
_SERIAL = {"color": "0.35", "linestyle": (0, (1, 1.5)), "linewidth": 1.6}
