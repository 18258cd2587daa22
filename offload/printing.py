"""Pieces of text that every report is made of: headings, wrapped lines, lists and tables.

They keep the console's width, whatever it is, and no character of a name reaches the terminal that could steer it.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offload.ranges import fold, folded, runs

PAGE = 120  # columns that a report may count on where it is made for a page
FIRST_COLUMN = 12  # characters that a table's first column keeps before the table is printed as a list

# A line of dashes under the headings and nothing else.
_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def clean(text: str) -> str:
    """The text without control characters: names come from files, and none may steer the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A paragraph, as `write_line` has it."""

    text: str
    style: str
    indent: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table, as `write_table` has it."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: set[int]
    bold: set[int]


class Pieces(Console):
    """A console that keeps what a report writes as pieces, for a page that lays them out itself."""

    def __init__(self) -> None:
        super().__init__(width=PAGE, color_system=None, file=io.StringIO(), legacy_windows=False)
        self.pieces: list[Heading | Line | Items | Rows] = []

    def print(self, *objects: Any, **more: Any) -> None:
        """Keep a text as a line; empty lines are the page's own."""
        if objects:
            self.pieces.append(Line(clean(" ".join(map(str, objects))), str(more.get("style") or ""), 0))


def write_heading(console: Console, text: str) -> None:
    """Print an empty line and a title."""
    if isinstance(console, Pieces):
        console.pieces.append(Heading(text))
        return
    console.print()
    write_line(console, text, style="bold")


def write_line(console: Console, text: str, style: str = "", indent: int = 0, hang: int = 2) -> None:
    """Print one paragraph set in by `indent`, wrapped at the console's width; its further lines `hang` deeper."""
    if isinstance(console, Pieces):
        console.pieces.append(Line(text, style, indent))
        return
    width = max(console.width, 16)
    first, further = " " * indent, " " * (indent + hang)
    wrap = textwrap.TextWrapper(width, first, further, break_on_hyphens=False)
    for line in wrap.wrap(clean(text)):
        console.print(Text(line, style=style), no_wrap=True, overflow="ignore", crop=False)


def write_list(title: str, items: Sequence[str], console: Console) -> None:
    """Print a title and its items, a dash before each; nothing where there is none."""
    if not items:
        return
    write_heading(console, title)
    if isinstance(console, Pieces):
        console.pieces.append(Items(tuple(items)))
        return
    for item in items:
        write_line(console, f"- {item}")


def write_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    bold: Collection[int] = (),
    named: bool = False,
) -> None:
    """Print a table, or where the console is too narrow for it a list: the first cell, and under it the others.

    named : in a list the first cell has its heading too, as it is told by it alone.
    """
    if isinstance(console, Pieces):
        console.pieces.append(Rows(headings, rows, set(right), set(bold)))
        return
    others = sum(max(cell_len(cell) for cell in column) + 3 for column in list(zip(headings, *rows, strict=True))[1:])
    if others + FIRST_COLUMN > console.width:
        for index, row in enumerate(rows):
            write_line(console, f"{headings[0]}: {row[0]}" if named else row[0], style="bold" if index in bold else "")
            for heading, cell in zip(headings[1:], row[1:], strict=True):
                if cell:
                    write_line(console, f"{heading}: {cell}" if heading else cell, indent=4)
        return
    table = Table(box=_RULE, show_edge=False, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(
            Text(heading), justify="right" if index in right else "left", no_wrap=index > 0, overflow="fold"
        )
    for index, row in enumerate(rows):
        table.add_row(*(Text(clean(cell)) for cell in row), style="bold" if index in bold else "")
    console.print(table)


def number_text(value: float | None) -> str:
    """A plain number with three significant digits (whole above a thousand)."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def and_text(names: Sequence[str]) -> str:
    """Names in words: "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def fold_rows(rows: Iterable[Sequence[str]], named: Sequence[int] = (0,)) -> list[list[str]]:
    """A row for each run of rows that are the same but for the numbers in the cells that are `named` (0: the first).

    Rows keep the order of the first of each run.
    """
    groups: dict[tuple[str, ...], dict[str, Sequence[str]]] = {}
    for cells in rows:
        figures = tuple(cell for column, cell in enumerate(cells) if column not in named)
        groups.setdefault(figures, {})["\n".join(cells[column] for column in named)] = cells
    found = []
    for group in groups.values():
        for run in runs(group):
            cells = list(group[run[0]])
            for column in named:
                cells[column] = folded([group[one][column] for one in run])
            found.append(cells)
    return found


def fold_notes(notes: Iterable[str]) -> list[str]:
    """Notes "NAME: text"; those that say the same of several names as one, "hbm0..7: text"."""
    heads: dict[str, list[str]] = {}
    for note in notes:
        head, colon, text = note.partition(": ")
        heads.setdefault(text if colon and " " not in head else f"\n{note}", []).append(head)
    return [f"{fold(names)}: {text}" if text[0] != "\n" else text[1:] for text, names in heads.items() if text]
