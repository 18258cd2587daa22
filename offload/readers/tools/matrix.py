"""Square tables of GPUs (and NICs), as nvidia-smi and rocm-smi print them: a heading of names, then a row for each.

Tabs, tabs turned to blanks, and Markdown tables read alike: the cells of the square hold no blanks and are never empty,
so they are counted; what stands behind them is matched with the headings by tabs, by number or by place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from offload.readers.tools.text import Line, Text

GPU = re.compile(r"GPU([0-9]{1,4})$")
NAME = re.compile(r"[A-Za-z]\w{0,30}[0-9]\w{0,30}$")
CELL = re.compile(r"(?:X|NV[0-9#]+)$")
LONGEST = 4000  # characters of a line
BEHIND = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
BEFORE = re.compile(r"^(?:.{0,60}?[\]:>)]\s*)?(?=[\s|]*GPU[0-9])")  # a logger's words


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its cells under the names of the heading, and those behind the square by their headings ("" if empty)."""

    line: int
    cells: tuple[str, ...]
    behind: dict[str, str]


@dataclass(slots=True)
class Matrix:
    """A table: the line of its heading, the names of its columns, its rows by name; `cut` : rows with cells missing."""

    line: int
    names: tuple[str, ...]
    headings: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)
    cut: list[tuple[int, str]] = field(default_factory=list)

    def cell(self, first: str, second: str) -> str | None:
        """The cell in a row and a column; None where the row is missing."""
        row = self.rows.get(first)
        return None if row is None else row.cells[self.names.index(second)]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every two names once, in the order of the heading."""
        for place, first in enumerate(self.names):
            for second in self.names[place + 1 :]:
                yield first, second

    def square(self) -> tuple[object, ...]:
        """What two prints of one machine have alike."""
        return self.names, tuple((name, row.cells) for name, row in sorted(self.rows.items()))


def matrices(text: Text) -> list[Matrix]:
    """Every table in a text that has a row at least. Raises ReadingError for more of them than anyone saves."""
    return text.once("matrices", lambda: _matrices(text)) if "GPU" in text.whole else []


def _matrices(text: Text) -> list[Matrix]:
    found: list[Matrix] = []
    heading = ""
    for line in text.without_prefixes():
        if len(line.text) > LONGEST or "GPU" not in line.text and not (found and _first(line.text) in found[-1].names):
            continue
        told = _plain(line.text)
        if (names := _heading(told)) is not None:
            found.append(Matrix(line.number, names, tuple(BEHIND.findall(told))))
            heading = told
        elif found:
            _add(found[-1], Line(line.number, told), heading)
    return [one for one in found if one.rows or one.cut]


def gpu_number(name: str) -> int | None:
    """The number in "GPU3"; None for what is no GPU."""
    match = GPU.match(name)
    return int(match[1]) if match else None


def _plain(line: str) -> str:
    line = BEFORE.sub("", line, count=1)
    stripped = line.strip()
    return stripped.strip("|").replace("|", "\t") if stripped.startswith("|") else line


def _first(line: str) -> str:
    return (line.replace("|", " ").split(maxsplit=1) or [""])[0]


def _heading(line: str) -> tuple[str, ...] | None:
    """The names in a heading; None for another line."""
    behind = BEHIND.search(line)
    names = tuple((line[: behind.start()] if behind else line).split())
    if not names or not GPU.match(names[0]) or len(set(names)) != len(names):
        return None
    return names if all(NAME.match(name) and not CELL.match(name) for name in names) else None


def _add(matrix: Matrix, line: Line, heading: str) -> None:
    words = list(re.finditer(r"\S+", line.text))
    if not words or words[0].group() not in matrix.names or words[0].group() in matrix.rows:
        return
    name = words[0].group()
    cells = tuple(word.group() for word in words[1 : len(matrix.names) + 1])
    if len(cells) < len(matrix.names):
        if cells:
            matrix.cut.append((line.number, name))
        return
    end = words[len(matrix.names)].end()
    matrix.rows[name] = Row(line.number, cells, _behind(matrix.headings, line.text, end, heading))


def _behind(headings: tuple[str, ...], line: str, end: int, heading: str) -> dict[str, str]:
    """The cells behind the square by their headings, as far as it is clear which is which."""
    rest = line[end:]
    if "\t" in rest:
        fields = [one.strip() for one in rest.split("\t")[1:]]
        told = dict(zip(headings[:2], fields, strict=False))
        last = [one for one in fields[2:] if one]  # two tabs stand before GPU NUMA ID
        if len(headings) > 2 and last:
            told[headings[2]] = last[-1]
        return told
    words = list(re.finditer(r"\S+", rest))
    if len(words) == len(headings):
        return {name: word.group() for name, word in zip(headings, words, strict=True)}
    places = {match.group(): match.start() for match in BEHIND.finditer(heading)}
    told = {}
    for word in words:
        under = [name for name in headings if abs(places[name] - (word.start() + end)) <= 2]
        if len(under) == 1:
            told[under[0]] = word.group()
    return told
