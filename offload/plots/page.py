"""A page: axes with their heading above, their legend and notes below, all measured, so that nothing lies on another.

On a figure of its own a page is laid out in millimetres and as high as it needs to be; on axes that are given, heading,
legend and notes hang on them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from offload import __version__
from offload.plots.labels import LEADING, Label, Room, Spot, along, around, corners
from offload.plots.style import (
    DPI,
    INCH,
    LETTERS,
    TITLE,
    UP,
    WIDTH,
    even_ticks,
    new_figure,
    now,
    round_ticks,
    set_ticks,
    short,
)
from offload.printing import clean

EDGE, GAP = 4.0, 7.0  # mm: round the page, between panels
MOST_LINES = 4  # of a heading; of notes twice as many
MOST_LETTERS = 200  # of a line, before its width is looked at: no line holds as many
_TOGETHER = re.compile(  # the space between a number and its unit, at which no line ends
    r"(?<=offload) (?=\d)|(?<=\d) (?=(?:[numµ]?s|h|%|[kMGTP]?i?B(?:/s)?|[kMGTP]?FLOP(?:/s)?|tok/s)(?![A-Za-z]))")
SAMPLE_MM = 11.0  # of a legend, with the space to its name
APART = 5.2  # least distance of ticks on the tokens' axis [mm]


class Page:
    """Axes in the house style. up : the height of the axes [mm], where they are not given."""

    def __init__(self, ax: Any = None, up: float = UP):
        self.own = ax is None
        self.up = up
        self.figure = new_figure(up) if ax is None else ax.get_figure()
        self.axes = self.figure.add_axes((0.1, 0.2, 0.8, 0.6)) if ax is None else ax
        self.panels: list[list[Any]] = [[self.axes]]  # each with its twins
        self.fixed: dict[int, float] = {}  # panels of a fixed width [mm]
        self.labels: list[Label] = []
        self.marks: list[tuple[str, float]] = []
        self.dropped: list[str] = []
        self.kept: list[tuple[float, float, float, float]] = []

    # What is drawn.

    def panel(self, width: float | None = None) -> Any:
        """Further axes to the right, of a width [mm] or as wide as the first. Only on a figure of the page's own."""
        axes = self.figure.add_axes((0.5, 0.2, 0.3, 0.6), label=f"panel {len(self.panels)}")
        if width is not None:
            self.fixed[len(self.panels)] = width
        self.panels.append([axes])
        return axes

    def tokens(self, tokens: float, unit: float, axes: Any = None, label: str = "tokens per second") -> Any:
        """An axis on the right in tokens per second: `tokens` over the time on the left, in units of `unit` s.

        To be called once the left axis has its limits and scale.
        """
        left = axes or self.axes
        right = left.twinx()
        low, high = left.get_ylim()
        logarithmic = left.get_yscale() == "log"
        right.set_yscale(left.get_yscale())
        right.set_ylim(low, high)
        least = low if logarithmic else max(low, (high - low) / 60)
        rates = round_ticks(tokens / (high * unit), tokens / (least * unit), 40)
        placed: list[tuple[float, float]] = []
        for rate in rates:
            seconds = tokens / rate / unit
            part = (math.log(seconds / low) / math.log(high / low) if logarithmic else (seconds - low) / (high - low))
            if all(abs(part - other) * self.up >= APART for _, other in placed):
                placed.append((rate, part))
        right.set_yticks([tokens / rate / unit for rate, _ in placed], [short(rate) for rate, _ in placed])
        right.set_yticks([], minor=True)
        right.set_ylabel(label)
        next(group for group in self.panels if left in group).append(right)
        return right

    def limits(self, axis: str, low: float, high: float, *, log: bool = False, whole: bool = False,
               text: Callable[[float], str] = short, most: int = 9) -> None:  # fmt: skip
        """Limits, scale and round ticks of an axis, "x" or "y"."""
        self.limit(self.axes, axis, low, high, log=log, whole=whole, text=text, most=most)

    @staticmethod
    def limit(axes: Any, axis: str, low: float, high: float, *, log: bool = False, whole: bool = False,
              text: Callable[[float], str] = short, most: int = 9) -> None:  # fmt: skip
        """The same of other axes than the first."""
        if not high > low:
            high = low * 1.01 if log else low + 1
        getattr(axes, f"set_{axis}scale")("log" if log else "linear")
        getattr(axes, f"set_{axis}lim")(low, high)
        ticks = round_ticks(low, high, most) if log else even_ticks(low, high, most, whole)
        if whole:
            ticks = [tick for tick in ticks if tick == int(tick)] or [low]
        set_ticks(axes.xaxis if axis == "x" else axes.yaxis, ticks, text)

    def words(self, axes: Any, x: str | None = None, y: str | None = None) -> None:
        """Name the axes of a panel, as far as there is room."""
        if x is not None:
            axes.set_xlabel(shortened(clean(x), (0.62 if len(self.panels) == 1 else 0.4) * WIDTH))
        if y is not None:
            axes.set_ylabel(shortened(clean(y), self.up))

    def above(self, name: str, x: float) -> None:
        """A faint vertical line at a value of the first axes, with its name above them (a "\\n" parts lines)."""
        self.axes.axvline(x, color=now().faint, linewidth=0.9, zorder=1, gid="faint")
        self.marks.append((clean_lines(name, WIDTH / 3), x))

    def label(self, text: str, spots: Sequence[Spot] | Callable[[Any], Sequence[Spot]], *, leader: bool = True,
              avoid_lines: bool = True, **look: Any) -> None:  # fmt: skip
        """A label at the first of its places that is free (`labels`), once all is drawn."""
        full = clean(" ".join(text.split()))
        self.labels.append(Label(clean_lines(text, WIDTH / 2), spots, full, look, leader, avoid_lines))

    def keep_free(self, left: float, low: float, right: float, high: float) -> None:
        """Let no label lie on a box of the first axes' data."""
        self.kept.append((left, low, right, high))

    def beside(self, x: float, y: float, text: str, first: Sequence[tuple[float, float]] = (), **look: Any) -> None:
        """A label beside a point. first : directions that are preferred."""
        self.label(text, around(x, y, first), **look)

    def along(self, xs: Sequence[float], ys: Sequence[float], text: str, side: float = -1, **look: Any) -> None:
        """A label beside a line, turned with it. side : 1 above, -1 below, 0 either."""
        self.label(text, along(xs, ys, side), leader=False, **look)

    # How it is laid out.

    def finish(self, title: str, subtitle: str = "", entries: Sequence[tuple[str, dict[str, Any]]] = (),
               notes: Sequence[str] = (), most: int = 2 * MOST_LINES) -> Any:  # fmt: skip
        """Lay out the page and return its axes.

        title : the finding. entries : of the legend, (name, look of a line, or {"patch": look of an area}).
        notes : under the figure, the sources among them, in `most` lines.
        """
        if self.own:
            self.figure.set_label(clean(" ".join(title.split())))
        left, across = self._across()
        shift = -left if self.own else 0.0
        wide = WIDTH - 2 * EDGE if self.own else across
        top = self._marks_above(left, across) + 2.5
        room = Room(self.axes, [one for group in self.panels for one in group][1:])
        for x0, y0, x1, y1 in self.kept:
            ends = self.axes.transData.transform([(x0, y0), (x1, y1)])
            room.take(corners(*ends[0], *ends[1]))
        for label in self.labels:
            if not room.put(label):
                self.dropped.append(label.full or label.text.replace("\n", " "))
        top = self._heading(title, subtitle, shift, wide, top)
        below = self._below()
        below = self._legend(entries, shift, wide, below + 2.5)
        notes = [*notes, f"offload {__version__}"]
        if self.dropped:
            notes.insert(-1, f"Without room for its name: {', '.join(dict.fromkeys(self.dropped))}")
        text = " ".join(f"{note.rstrip('.')}." for note in notes[:-1] if note) + f" {notes[-1]}"
        lines = wrapped(text, wide, LETTERS - 1, most=most)
        if not lines[-1].endswith(notes[-1]):  # cut; who made it is told all the same
            lines = [*wrapped(text, wide, LETTERS - 1, most=most - 1), notes[-1]]
        for line in lines:
            self._hang(line, shift, -below - 1.5, size=LETTERS - 1, color=now().grey, va="top")
            below += line_height(LETTERS - 1)
        if self.own:
            self._set_height(below + 1.5 + EDGE - 1, top + EDGE - 1)
        return self.axes

    def _across(self) -> tuple[float, float]:
        """Set the axes side by side; the mm left of the first and its width."""
        if not self.own:
            box = self.axes.bbox
            per = INCH / self.figure.dpi
            self.up = box.height * per
            return box.x0 * per, box.width * per
        self._set_height(30.0, 30.0, [(WIDTH * 0.15, WIDTH * 0.5)] * len(self.panels))
        overhangs = [self._overhang(group) for group in self.panels]
        free = WIDTH - 2 * EDGE - sum(left + right for left, right in overhangs) - GAP * (len(self.panels) - 1)
        free -= sum(self.fixed.values())
        each = free / (len(self.panels) - len(self.fixed))
        self.places = []
        at = EDGE
        for number, (left, right) in enumerate(overhangs):
            width = self.fixed.get(number, each)
            self.places.append((at + left, width))
            at += left + width + right + GAP
        self._set_height(30.0, 30.0, self.places)
        return self.places[0][0] - EDGE, self.places[0][1]

    def _overhang(self, group: Sequence[Any]) -> tuple[float, float]:
        """What stands out of axes to the left and to the right [mm]."""
        boxes = [axes.get_tightbbox(self._renderer()) for axes in group]
        per, box = INCH / self.figure.dpi, group[0].bbox
        return (max(0.0, box.x0 - min(one.x0 for one in boxes)) * per,
                max(0.0, max(one.x1 for one in boxes) - box.x1) * per)  # fmt: skip

    def _below(self) -> float:
        """What stands out of the axes at their lower side [mm]."""
        boxes = [axes.get_tightbbox(self._renderer()) for group in self.panels for axes in group]
        below: float = max(0.0, self.axes.bbox.y0 - min(box.y0 for box in boxes)) * INCH / self.figure.dpi
        return below

    def _renderer(self) -> Any:
        from matplotlib.backends.backend_agg import RendererAgg

        return cast("Any", RendererAgg)(*self.figure.bbox.size, self.figure.dpi)

    def _set_height(self, base: float, top: float, places: Sequence[tuple[float, float]] | None = None) -> None:
        height = base + self.up + top
        self.figure.set_size_inches(WIDTH / INCH, height / INCH)
        for group, (left, width) in zip(self.panels, places or self.places, strict=True):
            for axes in group:
                axes.set_position((left / WIDTH, base / height, width / WIDTH, self.up / height))

    def _hang(self, text: str, across: float, up: float, *, from_top: bool = False, **look: Any) -> Any:
        """Text at so many mm from the lower (or upper) left corner of the axes."""
        return self.axes.annotate(
            text, (0, 1 if from_top else 0), xycoords="axes fraction", xytext=(across / INCH * 72, up / INCH * 72),
            textcoords="offset points", annotation_clip=False, **look)  # fmt: skip

    def _marks_above(self, left: float, across: float) -> float:
        """Write the names of marks above the axes, in rows; the height that they take [mm]."""
        size = LETTERS - 1
        low, high = self.axes.get_xlim()
        logarithmic = self.axes.get_xscale() == "log"
        ends: list[float] = []
        rows: list[tuple[str, float, float, int]] = []
        for name, x in sorted(self.marks, key=lambda one: one[1]):
            if not low <= x <= high:
                continue
            part = math.log(x / low) / math.log(high / low) if logarithmic else (x - low) / (high - low)
            wide = max(text_width(line, size) for line in name.split("\n"))
            most = (WIDTH - EDGE if self.own else math.inf) - (left + EDGE)
            start = min(max(part * across - wide / 2, -left), most - wide)
            row = next((number for number, end in enumerate(ends) if end + 2.2 <= start), len(ends))
            ends[row : row + 1] = [start + wide]
            rows.append((name, x, start + wide / 2 - part * across, row))
        heights: list[float] = [0.0] * (len(ends) + 1)
        for number in range(len(ends)):
            lines = max(name.count("\n") + 1 for name, _, _, row in rows if row == number)
            heights[number + 1] = heights[number] + lines * line_height(size) + 0.6
        for name, x, aside, row in rows:
            self.axes.annotate(
                name, (x, 1), xycoords=self.axes.get_xaxis_transform(), textcoords="offset points", ha="center",
                xytext=(aside / INCH * 72, (1 + heights[row]) / INCH * 72), annotation_clip=False, va="bottom",
                size=size, color=now().grey, linespacing=1.05)  # fmt: skip
        return heights[-1]

    def _heading(self, title: str, subtitle: str, shift: float, wide: float, top: float) -> float:
        """Write title and subtitle from `top` mm above the axes upwards; where they end."""
        lines: list[tuple[str, dict[str, Any]]] = []
        lines += [(line, {"size": TITLE, "weight": "bold"}) for line in balanced(title, wide, TITLE, bold=True)]
        lines += [(line, {"size": LETTERS, "color": now().grey}) for line in wrapped(subtitle, wide, LETTERS)]
        top += sum(line_height(look["size"]) for _, look in lines)
        end = top
        for line, look in lines:
            end -= line_height(look["size"])
            self._hang(line, shift, end, from_top=True, va="bottom", **look)
        return top

    def _legend(self, entries: Sequence[tuple[str, dict[str, Any]]], shift: float, wide: float, below: float) -> float:
        """Draw the legend from `below` mm under the axes down; where it ends."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch
        from matplotlib.transforms import ScaledTranslation

        if not entries:
            return below
        named = {shortened(clean(name), wide - SAMPLE_MM - 2): shape for name, shape in entries}
        columns = _columns([text_width(name) + SAMPLE_MM + 6 for name in named], wide)
        handles = [Patch(**shape["patch"]) if "patch" in shape else Line2D([], [], **shape)
                   for shape in named.values()]  # fmt: skip
        corner = self.axes.transAxes + ScaledTranslation(shift / INCH, -below / INCH, self.figure.dpi_scale_trans)
        legend = self.axes.legend(
            handles, list(named), loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=corner, ncols=columns,
            frameon=False, borderaxespad=0, borderpad=0, handlelength=2.9, handletextpad=0.7, columnspacing=1.6,
            labelspacing=0.4)  # fmt: skip
        height: float = legend.get_window_extent(self._renderer()).height * INCH / self.figure.dpi
        return below + height + 0.5


def _columns(widths: Sequence[float], wide: float) -> int:
    """The most columns in which entries of a legend, filled one column after another, have room."""
    for columns in range(min(6, len(widths)), 1, -1):
        rows, more = divmod(len(widths), columns)
        at, needed = 0, 0.0
        for column in range(columns):
            height = rows + (column < more)
            needed += max(widths[at : at + height])
            at += height
        if needed <= wide:
            return columns
    return 1


def line_height(size: float) -> float:
    """From one line of letters of a size [pt] to the next [mm]."""
    return size * LEADING / 72 * INCH


@lru_cache(maxsize=5000)
def text_width(text: str, size: float = LETTERS, bold: bool = False) -> float:
    """How wide a line of text is [mm]."""
    from matplotlib.font_manager import FontProperties

    look = FontProperties(size=size, weight="bold" if bold else "normal")
    wide: float = _ruler().get_text_width_height_descent(text, look, ismath=False)[0]
    return wide / DPI * INCH


@cache
def _ruler() -> Any:
    """What measures text: letters fitted to pixels, which are the widest that any format has."""
    from matplotlib.backends.backend_agg import RendererAgg

    return cast("Any", RendererAgg)(1, 1, DPI)


def shortened(text: str, width: float, size: float = LETTERS, bold: bool = False) -> str:
    """The text, or as much of it as fits with dots behind."""
    from bisect import bisect_right

    text = text[:MOST_LETTERS]
    if text_width(text, size, bold) <= width:
        return text
    fits = bisect_right(range(len(text)), width, key=lambda count: text_width(f"{text[:count]}...", size, bold))
    return f"{text[: max(0, fits - 1)].rstrip()}..."


def in_the_middle(text: str, width: float, size: float = LETTERS) -> str:
    """The text, or its begin and its end with dots between them: of paths the ends tell more than the begins."""
    text = text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS // 2]}{text[-MOST_LETTERS // 2 :]}"
    if text_width(text, size) <= width:
        return text
    for kept in range(len(text) - 1, 1, -1):
        end = kept * 3 // 5
        short_ = f"{text[: kept - end]}...{text[len(text) - end :]}"
        if text_width(short_, size) <= width:
            return short_
    return "..."


def wrapped(text: str, width: float, size: float = LETTERS, bold: bool = False, most: int = MOST_LINES) -> list[str]:
    """The text in lines no wider than `width` [mm], at most so many."""
    lines = [""]
    for word in _TOGETHER.sub("\u00a0", clean(" ".join(text.split()))).split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if len(lines) > most:
            break
        if not lines[-1] or text_width(longer[:MOST_LETTERS], size, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines[most - 1 :] = [f"{lines[most - 1]} ..."]
    return [shortened(line.replace("\u00a0", " "), width, size, bold) for line in lines if line]


def balanced(text: str, width: float, size: float, bold: bool = False) -> list[str]:
    """The text in as few lines as `wrapped`, about equally wide, so that no word stands alone in the last."""
    lines = wrapped(text, width, size, bold)
    narrow = width
    while len(lines) > 1 and narrow > width / 2:
        narrow -= 2.0
        closer = wrapped(text, narrow, size, bold)
        if len(closer) > len(lines) or closer[-1].endswith("..."):
            break
        lines = closer
    return lines


def clean_lines(text: str, wide: float) -> str:
    """A text of some lines without control characters, none wider than so many mm."""
    return "\n".join(shortened(clean(line), wide) for line in text.split("\n"))
