"""The house style: what every figure has in common, from its colours to the bytes of its file.

A figure is 170 mm wide with letters of 10 pt. Colours are told apart by the colour-blind (Okabe and Ito) and line
styles differ too. It carries its own ground, so that it is legible on a page of any colour; `theme("dark")` draws it
for a dark one. What is certain is a solid line with the forbidden side hatched, what is expected is dashed, an interval
is a band, what was measured is a filled mark with its source. The same values give the same bytes: no date, no random
name, no setting of the person who runs it. Matplotlib is imported where it is used.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from typing import Any, TypeVar

from offload import __version__
from offload.errors import PlotError, did_you_mean
from offload.files import write_whole

FORMATS = (".svg", ".png", ".pdf")
WIDTH, UP = 170.0, 82.0  # mm: the figure's width, the height of its axes
LETTERS, TITLE = 10.0, 12.0  # pt
INCH, DPI = 25.4, 100
MOST_TICKS = 9
READABLE = 4.5  # contrast of letters with their ground (WCAG 2, level AA)
STYLES = ("solid", (0, (7, 1.2)), (0, (3.5, 1)), (0, (1.5, 0.8)), (0, (7, 1, 1.5, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")

Drawn = TypeVar("Drawn", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a ground. colours : of what is told apart; the same hues in each theme."""

    name: str
    paper: str
    ink: str
    grey: str
    faint: str
    fill: str
    hatch: str
    colours: tuple[str, ...]


LIGHT = Theme("light", "#FFFFFF", "#000000", "#595959", "#C4C4C4", "#EFEFEF", "#CFCFCF",
              ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"))  # fmt: skip
DARK = Theme("dark", "#14181C", "#F2F2F2", "#B0B4B8", "#50565C", "#22272C", "#454B51",
             ("#3D9BD6", "#E8742A", "#1DB48A", "#D88FB8", "#7CCBF5", "#F0B73A"))  # fmt: skip
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}
_CHOSEN: ContextVar[Theme | None] = ContextVar("theme", default=None)


def now() -> Theme:
    """The theme that is drawn in."""
    return _CHOSEN.get() or LIGHT


@contextmanager
def theme(name: str | Theme) -> Iterator[Theme]:
    """Figures drawn inside are for a "light" or a "dark" page, or in colours that are given. Raises PlotError for
    another name.
    """
    if not isinstance(name, Theme) and name not in THEMES:
        raise PlotError(f'no theme "{name}". {did_you_mean(str(name), THEMES, "Themes")}')
    chosen = name if isinstance(name, Theme) else THEMES[name]
    token = _CHOSEN.set(chosen)
    try:
        yield chosen
    finally:
        _CHOSEN.reset(token)


# Colours.


def luminance(colour: Any) -> float:
    """The relative luminance of a colour, 0 to 1 (WCAG 2)."""
    from matplotlib.colors import to_rgb

    parts = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one: Any, other: Any) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def readable(colour: Any) -> Any:
    """The colour, as much nearer to ink as letters of it need to be read on the paper."""
    from matplotlib.colors import to_hex, to_rgb

    ink, there = to_rgb(now().ink), to_rgb(colour)
    for part in range(0, 21):
        mixed: Any = tuple(a + (b - a) * part / 20 for a, b in zip(there, ink, strict=True))
        if contrast(mixed, now().paper) >= READABLE:
            return to_hex(mixed)
    return now().ink


def look(number: int) -> dict[str, Any]:
    """Colour and style of the line of the n-th thing that is told apart: certain, so thick."""
    return {"color": colour(number), "linestyle": STYLES[number % len(STYLES)], "linewidth": 2.8}


def colour(number: int) -> str:
    """The colour of the n-th thing that is told apart."""
    return now().colours[number % len(now().colours)]


class Colours:
    """One look for each name, the same wherever the name stands, in the order in which they are first asked for."""

    def __init__(self, names: Sequence[str] = ()):
        self.names = list(dict.fromkeys(names))

    def number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def __getitem__(self, name: str) -> str:
        return colour(self.number(name))

    def look(self, name: str) -> dict[str, Any]:
        return look(self.number(name))


def expected() -> dict[str, Any]:
    """The look of what is expected: a schedule at sustained rates."""
    return {"color": now().ink, "linestyle": (0, (4, 2)), "linewidth": 1.3, "marker": "o", "markersize": 3.6,
            "markerfacecolor": now().paper}  # fmt: skip


def serial() -> dict[str, Any]:
    """The look of the sum of all tasks' own times."""
    return {"color": now().grey, "linestyle": (0, (1, 1.5)), "linewidth": 1.5}


def rated() -> dict[str, Any]:
    """The look of what a data sheet says."""
    return {"color": now().grey, "linestyle": (0, (6, 1.5, 1, 1.5)), "linewidth": 1.3}


def measured(number: int = 0) -> dict[str, Any]:
    """The look of what was measured."""
    return {"color": now().ink, "linestyle": "none", "marker": ("*", *MARKERS)[number % (1 + len(MARKERS))],
            "markersize": 9 if number == 0 else 7, "markeredgecolor": now().paper, "markeredgewidth": 0.6}  # fmt: skip


def forbidden() -> dict[str, Any]:
    """The look of a region where nothing can be."""
    return {"facecolor": now().fill, "edgecolor": now().hatch, "hatch": "////", "linewidth": 0}


def band() -> dict[str, Any]:
    """The look of an interval."""
    return {"facecolor": now().ink, "alpha": 0.16, "linewidth": 0}


# Ticks.


def round_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Round figures between two others above 0, in ratios: few, yet four at least where they can be had."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(k / 10 for k in range(10, 100))):
        ticks = [float(f"{step}e{power}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) >= 4:
            break
    return ticks[:: math.ceil(len(ticks) / most)] if ticks else []


def even_ticks(low: float, high: float, most: int = MOST_TICKS, whole: bool = False) -> list[float]:
    """Round figures between two others, evenly spaced. whole : whole numbers only."""
    if not high > low:
        return [low]
    power = math.floor(math.log10((high - low) / most))
    steps = (float(f"{step}e{p}") for p in range(power, power + 3) for step in (1, 2, 2.5, 5))
    step = next(one for one in steps if (high - low) / one <= most and not (whole and one != int(one)))
    first = math.ceil(low / step - 1e-9)
    return [float(f"{count * step:.12g}") for count in range(first, math.floor(high / step + 1e-9) + 1)]


def set_ticks(axis: Any, ticks: Sequence[float], text: Callable[[float], str] = "{:g}".format) -> None:
    """Ticks of an axis, and no others."""
    axis.set_ticks(list(ticks), [text(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def short(value: float) -> str:
    """A number of a tick: thousands and more written short."""
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.6g} {name}"
    return f"{value:,.6g}" if abs(value) >= 1e-4 or not value else f"{value:g}"


def three(value: float) -> str:
    """A number of a sentence: three digits, with thousands parted and never a power of ten."""
    return short(float(f"{value:.3g}"))


TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is written: (its seconds, its name)."""
    return next((unit for unit in TIMES if seconds >= unit[0]), TIMES[-1])


# Drawing and writing.


def drawn(function: Drawn) -> Drawn:
    """A function `x(result, *, ax=None, ...) -> Axes` that draws in the house style, whatever the process has set.

    On axes that are given, the theme follows their ground unless one is chosen. Raises PlotError without Matplotlib.
    """

    @wraps(function)
    def inside(*args: Any, ax: Any = None, **more: Any) -> Any:
        chosen = _CHOSEN.get()
        if chosen is None and ax is not None:
            chosen = DARK if luminance(ax.get_facecolor()) < 0.2 else LIGHT
        token = _CHOSEN.set(chosen)
        try:
            with house_style():
                return function(*args, ax=ax, **more)
        finally:
            _CHOSEN.reset(token)

    return inside  # type: ignore[return-value]


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib with the settings of the house, and with those of the process again behind it."""
    matplotlib = _matplotlib()
    there = now()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "font.size": LETTERS, "axes.labelsize": LETTERS, "xtick.labelsize": LETTERS, "ytick.labelsize": LETTERS,
            "legend.fontsize": LETTERS, "axes.titlesize": TITLE, "axes.linewidth": 0.8, "hatch.linewidth": 0.6,
            "figure.facecolor": there.paper, "axes.facecolor": there.paper, "savefig.facecolor": "auto",
            "text.color": there.ink, "axes.labelcolor": there.ink, "axes.edgecolor": there.ink,
            "xtick.color": there.ink, "ytick.color": there.ink, "text.parse_math": False,
            "svg.fonttype": "none", "svg.hashsalt": "offload", "pdf.fonttype": 42,
            "font.sans-serif": ["DejaVu Sans", "Verdana"],  # an .svg names them with each text
        })  # fmt: skip
        yield


def new_figure(up: float = UP) -> Any:
    """An empty figure of the house's width, for axes of a height [mm]; `Page.finish` gives it its own."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH / INCH, (up + 40) / INCH), dpi=DPI)


def save(axes: Any, path: str) -> None:
    """Write the figure of axes to an .svg, .png or .pdf file, which is replaced; the same figure gives the same bytes.

    Raises PlotError where the suffix is another or the file cannot be written.
    """
    def refused(why: str) -> PlotError:
        wrong = f'no figure: "{path}" cannot be written: {why}.'
        return PlotError(f"{wrong} Name a file in a folder that exists and may be written to.")

    write_whole(path, render(axes, format_of(path)), refused)


def format_of(path: str) -> str:
    """The format that a file's suffix asks for. Raises PlotError for one that is not written."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        ending = f'ends in "{suffix}"' if suffix else "has no ending"
        raise PlotError(f'no figure: "{path}" {ending}. End it in {", ".join(FORMATS[:-1])} or {FORMATS[-1]}.')
    return suffix[1:]


def render(axes: Any, format_: str) -> bytes:
    """The figure of axes as the bytes of an "svg", "png" or "pdf" file."""
    own = f"offload {__version__}"
    made: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": own}, "png": {"Software": own},
                                       "pdf": {"CreationDate": None, "Creator": own}}  # fmt: skip
    figure = axes.get_figure()
    told = {"Title": str(figure.get_label())} if figure.get_label() else {}
    with house_style():
        target = BytesIO()
        figure.savefig(target, format=format_, dpi=200, metadata=made[format_] | told)
    return target.getvalue()


def _matplotlib() -> Any:
    """Matplotlib. A person's choice of a window system, good or bad, is none of a figure in a file."""
    chosen = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        wrong = f"no figure: Matplotlib cannot be imported ({error}). Install it: pip install matplotlib"
        raise PlotError(wrong) from None
    finally:
        del os.environ["MPLBACKEND"]
        if chosen is not None:
            os.environ["MPLBACKEND"] = chosen
    return matplotlib
