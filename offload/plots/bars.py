"""What figures of bars have in common: a row for each thing, its name on the left, its figures on the right."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from offload.plots import style
from offload.plots.labels import Spot
from offload.plots.page import Page, shortened
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
        axes.set_yticks(range(len(names)), [shortened(clean(text), wide) for text in texts])
        axes.tick_params(axis="y", length=0)


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
    return f"{style.short(float(f'{tokens / seconds:.3g}'))} tok/s"

