"""Tables of figures with numbered rows and columns, as tools print them: a line of column numbers, then the rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offload.readers.tools.text import Line

GB = 1e9
LEAST, MOST = 1e-12, 1e15
HEAD = re.compile(r"\s*(?:D\\D|D/D|GPU|CPU)?\s*((?:[0-9]{1,4}\s+)*[0-9]{1,4})\s*$", re.ASCII)
FIGURE = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
ABSENT = ("N/A", "n/a", "nan", "-nan", "-")


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of a table, with the numbers of its row and column and its line."""

    row: int
    column: int
    value: float
    line: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table's figures. columns, rows : their numbers. zeros : cells that say 0, which are no rates; absent : how many
    say that they have none; odd : what is wrong, in words; after : the index of the first line after it."""

    cells: tuple[Cell, ...]
    columns: tuple[int, ...]
    rows: tuple[int, ...]
    zeros: tuple[tuple[int, int], ...]
    absent: int
    odd: tuple[str, ...]
    after: int


def figure(said: Any) -> float | None:
    """A figure above 0 that a tool prints, as text or JSON; None for N/A, nan, 0, below 0 and all that is no figure.

    None too for what no tool measures (below 10^-12, from 10^15): such a figure is damaged.
    """
    if isinstance(said, bool) or not isinstance(said, str | int | float):
        return None
    if isinstance(said, str):
        said = said.strip()
        if not FIGURE.fullmatch(said):
            return None
    try:
        value = float(said)
    except OverflowError:
        return None
    return value if LEAST <= value < MOST else None


def table(lines: Sequence[Line], at: int, blanks: bool = False) -> Table | None:
    """The table whose line of column numbers is at index `at` of the lines; None where none starts there.

    blanks : whether empty lines stand between its rows. It ends at the first line that is no row of it.
    """
    head = HEAD.match(lines[at].text) if at < len(lines) else None
    if head is None:
        return None
    columns = tuple(int(word) for word in head[1].split())
    if len(set(columns)) < len(columns):
        return None
    cells: list[Cell] = []
    rows: list[int] = []
    odd: list[str] = []
    zeros: list[tuple[int, int]] = []
    absent, at = 0, at + 1
    while at < len(lines):
        line = lines[at]
        words = line.text.split()
        if not words and blanks:
            at += 1
            continue
        if not words or not re.fullmatch(r"[0-9]{1,4}", words[0], re.ASCII):
            break
        row = int(words[0])
        if len(words) != len(columns) + 1:
            odd.append(f"line {line.number}: {len(words) - 1} figures in a row of {len(columns)} columns: left out.")
        elif row in rows:
            odd.append(f"line {line.number}: row {row} stands twice in its table: the second is left out.")
        else:
            rows.append(row)
            for column, word in zip(columns, words[1:], strict=True):
                value = figure(word)
                if value is not None:
                    cells.append(Cell(row, column, value, line.number))
                elif word in ABSENT:
                    absent += 1
                elif re.fullmatch(r"0(?:\.0*)?", word):
                    zeros.append((row, column))
                else:
                    odd.append(f"line {line.number}: {word!r:.40} is no figure: left out.")
        at += 1
    return Table(tuple(cells), columns, tuple(rows), tuple(zeros), absent, tuple(odd), at)


def unmarked(said: str) -> str:
    """A line without the rank that mpirun puts before it: "[1,0]<stdout>:"."""
    return re.sub(r"^\[[0-9]+,[0-9]+\]<std(?:out|err)>: ?", "", said)


def once(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes without those that are said again, in their order."""
    return tuple(dict.fromkeys(notes))
