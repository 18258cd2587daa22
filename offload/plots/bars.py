"""What figures of bars have in common: a row for each thing, its name on the left, its figures on the right."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from offload.plots import style
from offload.plots.labels import Spot
from offload.plots.page import Page, in_the_middle, line_height, shortened, text_width, wrapped
from offload.printing import clean
from offload.units import format_share

ROW = 8.0  # mm from one row to the next
LEAST_UP = 34.0  # mm
NAME = 52.0  # mm that a name on the left may take
FIGURE = 52.0  # ... and one on the right
BESIDE = 1.4  # mm between a bar and its figure
MOST_ROWS = 24

Thing = TypeVar("Thing")


def rows_page(ax: Any, count: int, row: float = ROW) -> Page:
    """A page whose axes have so many rows, each of so many mm."""
    return Page(ax, max(LEAST_UP, count * row + 4))


def set_rows(page: Page, names: Sequence[str], right: Sequence[str] = ()) -> None:
    """Name the rows, the first at the top. right : what is written behind each.

    To be called once the horizontal axis has its limits.
    """
    for axes, texts, wide in ((page.axes, names, NAME), (None, right, FIGURE)):
        if axes is None:
            if not right:
                continue
            axes = page.axes.twinx()
            page.panels[0].append(axes)
        axes.set_ylim(len(names) - 0.5, -0.5)
        shown, sizes = fitted([clean(text) for text in texts], wide, page.up / len(names))
        axes.set_yticks(range(len(names)), shown)
        for label, size in zip(axes.get_yticklabels(), sizes, strict=True):
            label.set_size(size)
            label.set_linespacing(1.05)
        axes.tick_params(axis="y", length=0)


def fitted(texts: Sequence[str], wide: float, high: float) -> tuple[list[str], list[float]]:
    """Names of rows, none wider or higher than so many mm, and the size of their letters.

    A long one goes on in a second line, in smaller letters, where the row has room; what is still cut, is cut where
    those that differ still do: at its end, else in its middle.
    """
    small = style.LETTERS - 2
    shown, sizes = [], []
    for text in texts:
        if text_width(text) <= wide:
            shown.append(text)
            sizes.append(style.LETTERS)
            continue
        lines = wrapped(text, wide, small, most=2) if high >= 2 * line_height(small) else []
        cut = not lines or lines[-1].endswith("...") or any("..." in line for line in lines)
        shown.append(shortened(text, wide, small) if cut else "\n".join(lines))
        sizes.append(small)
    meant: dict[str, set[str]] = {}
    for one, text in zip(shown, texts, strict=True):
        meant.setdefault(one, set()).add(text)
    apart = [in_the_middle(text, wide, size) if len(meant[one]) > 1 else one
             for one, text, size in zip(shown, texts, sizes, strict=True)]  # fmt: skip
    return apart, sizes


def at_end(page: Page, row: float, low: float, high: float, text: str, **look: Any) -> None:
    """A figure behind a bar from low to high, or before it where there is no room."""
    spots = [Spot(high, row, (1, 0), BESIDE), Spot(low, row, (-1, 0), BESIDE, cost=3.0),
             Spot(high, row, (-1, 0), BESIDE, cost=30.0)]  # fmt: skip
    page.label(text, spots, leader=False, **{"size": style.LETTERS - 1} | look)


def grouped(things: Iterable[Thing], key: Callable[[Thing], Hashable]) -> list[list[Thing]]:
    """Things with one key together, in the order of their first."""
    found: dict[Hashable, list[Thing]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return list(found.values())


def near(value: float | None) -> float | None:
    """A figure to nine digits, so that equal ones are one whatever the order in which they were added up."""
    return None if value is None else float(f"{value:.9g}")


def share_text(share: float) -> str:
    """A share in words; one that is not nothing, and less than a thousandth, as that."""
    return "< 0.1 %" if 0 < share < 1e-3 else format_share(share, 2)


def per_second(tokens: float, seconds: float) -> str:
    """Tokens per second in words."""
    return f"{style.three(tokens / seconds)} tok/s"

