"""Paper: what every figure has in common, from the size of letters to the bytes of its file.

A figure is 160 mm wide with letters that are still 6 pt high where it is printed at half of that. Colours are told
apart by the colour-blind (Okabe and Ito), and line styles differ too. The same values give the same bytes: no date,
no random name, no setting of the person who runs it.
"""

from __future__ import annotations

import math
import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from offload import __version__
from offload.errors import PlotError
from offload.printing import clean

FORMATS = (".svg", ".png", ".pdf")
WIDTH, LETTERS = 160.0, 12.0  # mm; pt, which is 6 pt in print at 80 mm
EDGE = 4.0  # round everything [mm]
LINE = 5.4  # from one line of text to the next [mm]
INCH = 25.4
MOST_LINES = 3  # of a title
MOST_LETTERS = 200  # of a line, before its width is looked at: no line holds as many
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("solid", (0, (7, 1.2)), (0, (3.5, 1)), (0, (1.5, 0.8)), (0, (7, 1, 1.5, 1)), (0, (3, 1, 1, 1, 1, 1)))
FILL, FAINT, GREY = "0.92", "0.78", "0.35"
MOST_TICKS = 9


def draw_on_paper(path: str, sheet: Callable[[Any], None]) -> None:
    """Draw what `sheet` puts on a Matplotlib figure to an .svg, .png or .pdf file, which is replaced.

    Raises PlotError where Matplotlib is missing, the suffix is another or the file cannot be written.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        ending = f'ends in "{suffix}"' if suffix else "has no ending"
        raise PlotError(f'no figure: "{path}" {ending}. End it in {", ".join(FORMATS[:-1])} or {FORMATS[-1]}.')
    image = _render(sheet, suffix[1:])
    try:
        with open(path, "wb") as file:
            file.write(image)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PlotError(f'no figure: "{path}" cannot be written: {why}. Name a file in a folder that exists and may be '
                        "written to.") from None  # fmt: skip


def _render(sheet: Callable[[Any], None], format_: str) -> bytes:
    try:
        with _no_display():
            import matplotlib
            from matplotlib.figure import Figure
    except ImportError as error:
        wrong = f"no figure: Matplotlib cannot be imported ({error}). Install it: pip install matplotlib"
        raise PlotError(wrong) from None
    made = {"svg": {"Date": None, "Creator": f"offload {__version__}"}, "png": {"Software": f"offload {__version__}"},
            "pdf": {"CreationDate": None, "Creator": f"offload {__version__}"}}  # fmt: skip
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "font.size": LETTERS, "axes.labelsize": LETTERS, "xtick.labelsize": LETTERS, "ytick.labelsize": LETTERS,
            "svg.fonttype": "none", "svg.hashsalt": "offload", "pdf.fonttype": 42, "text.parse_math": False,
        })  # fmt: skip
        figure = Figure()
        sheet(figure)
        target = BytesIO()
        figure.savefig(target, format=format_, dpi=200, metadata=made[format_])
    return target.getvalue()


@contextmanager
def _no_display() -> Iterator[None]:
    """A person's choice of a window system, good or bad, is none of a figure in a file."""
    chosen = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"
    try:
        yield
    finally:
        del os.environ["MPLBACKEND"]
        if chosen is not None:
            os.environ["MPLBACKEND"] = chosen


class Sheet:
    """One figure, laid out in millimetres from its lower left corner.

    height : of the figure. across, up : size of its axes, `left` and `base` from the corner.
    """

    height: float
    left: float
    base: float
    across: float
    up: float
    axes: Any

    def __init__(self, figure: Any):
        self.figure = figure

    def frame(self, heading: list[tuple[str, str]], caption: list[str], above: float) -> None:
        """Set the size, write heading (text, weight) and caption, and make the axes. above : from the axes to both."""
        self.height = self.base + self.up + above + len(heading) * LINE + 5
        self.figure.set_size_inches(WIDTH / INCH, self.height / INCH)
        for number, (line, weight) in enumerate(heading):
            self.text(EDGE, self.height - 3 - LINE * (number + 0.5), line, weight=weight)
        for number, line in enumerate(reversed(caption)):
            self.text(EDGE, 3 + LINE * (number + 0.5), line, color=GREY)
        self.axes = self.figure.add_axes((self.left / WIDTH, self.base / self.height, self.across / WIDTH,
                                          self.up / self.height))  # fmt: skip

    def text(self, across: float, up: float, text: str, **look: Any) -> None:
        """Text anywhere."""
        self.figure.text(across / WIDTH, up / self.height, text, va="center", **look)

    def note(self, across: float, up: float, text: str, **look: Any) -> None:
        """Text inside the axes, from their corner."""
        self.axes.text(across / self.across, up / self.up, text, transform=self.axes.transAxes, **look)

    def legend(self, entries: list[tuple[str, dict[str, Any]]], columns: int, top: float) -> None:
        """Samples of the lines with their names, in rows from `top` down."""
        from matplotlib.lines import Line2D

        for number, (name, look) in enumerate(entries):
            row, column = divmod(number, columns)
            across, up = EDGE + column * WIDTH / 2, top - (LINE + 1) * (row + 0.5)
            self.figure.add_artist(Line2D(
                [across / WIDTH, (across + 6) / WIDTH, (across + 12) / WIDTH], [up / self.height] * 3,
                solid_capstyle="butt", **{**look, "markevery": [1]}))  # fmt: skip
            self.text(across + 14, up, name)


def columns_of(entries: list[tuple[str, dict[str, Any]]]) -> int:
    """Columns of a legend whose names find room beside each other."""
    return 2 if all(text_width(name) < WIDTH / 2 - 20 for name, _ in entries) else 1


def set_ticks(axis: Any, ticks: list[float], text: Callable[[float], str] = "{:g}".format) -> None:
    """Ticks of an axis, and no others."""
    axis.set_ticks(ticks, [text(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def text_width(text: str, bold: bool = False) -> float:
    """How wide a line of text is [mm]."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    look = FontProperties(size=LETTERS, weight="bold" if bold else "normal")
    return text_to_path.get_text_width_height_descent(text, look, ismath=False)[0] / 72 * INCH


def shortened(text: str, width: float, bold: bool = False) -> str:
    """The text, or as much of it as fits with dots behind."""
    text = text[:MOST_LETTERS]
    if text_width(text, bold) <= width:
        return text
    fits = bisect_right(range(len(text)), width, key=lambda count: text_width(f"{text[:count]}...", bold))
    return f"{text[: max(0, fits - 1)].rstrip()}..."


def wrapped(text: str, width: float, bold: bool = False) -> list[str]:
    """The text in lines no wider than `width` [mm], at most so many."""
    lines = [""]
    for word in clean(" ".join(text.split())).split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if len(lines) > MOST_LINES:
            break
        if not lines[-1] or text_width(longer[:MOST_LETTERS], bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = [f"{lines[MOST_LINES - 1]} ..."]
    return [shortened(line, width, bold) for line in lines if line]


def round_ticks(low: float, high: float) -> list[float]:
    """Round figures between two others: as few as tell the scale, four at least where they can be had."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(k / 10 for k in range(10, 100))):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) >= 4:
            break
    return ticks[:: math.ceil(len(ticks) / MOST_TICKS)] if ticks else []
