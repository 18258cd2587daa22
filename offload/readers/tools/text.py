"""A tool's output as lines without the dirt that comes with pasting: terminal codes, log prefixes, Markdown fences.

Every line keeps its number in the file. Nothing else is changed: tabs and runs of blanks mean columns in some formats.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from string import ascii_letters
from typing import Any, TypeVar, cast

from offload.errors import ReadingError

# lspci -vvv of a server with eight GPUs prints the most, about a MB in 25,000 lines; what is far longer is a log with
# an output in it, and reading that would take more than a second.
LONGEST = 2 * 2**20  # characters
MOST_LINES = 50_000
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
TERMINAL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
BEGINS = frozenset("[(0123456789" + ascii_letters)  # what logs' prefixes begin with
DECODER = json.JSONDecoder()
STARTS = re.compile(r'\{(?=\s*["}])|\[(?=\s*["{\[\]\d.tfn-])')
FIRST_PIECE = 2**12  # characters
AT_THE_END = 32  # an error so near the end of a piece may be that of the cut
ONE_ERROR = 192  # what an error costs, in characters that are looked at: some 5 us beside 20 ns (timed)
PATIENCE = 6  # how often the whole of a text is looked through for JSON that turns out to be none
SHORT = 2**16  # characters: looking through so few costs nothing
Kept = TypeVar("Kept")
FENCE = re.compile(r"^\s*(?:```|~~~)\S*\s*$")
# What loggers put before a line: a time, "host:pid:tid [rank]", "[rank0]:", "INFO 01-02 03:04:05 module.py:12]".
PREFIX = re.compile(
    r"""^(?:
        (?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?\s+
           (?:[\w.-]{1,64}\ [\w./@-]{1,64}\[\d+\]:\s)?)                                  # journalctl -o short-iso
      | (?:[A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ [\w.-]{1,64}\ [\w./@-]{1,64}(?:\[\d+\])?:\s)  # journalctl, syslog
      | (?:[A-Za-z0-9][\w.-]{0,62}[-_]\d{1,3}\ +\|\ )                                    # docker compose
      | (?:\[\d+,\d+\]<std(?:out|err)>:\s?)                                             # mpirun --tag-output
      | (?:\(\w+(?:\ pid=\d+)?(?:,\ ip=[\d.]+)?\)\s+)
      | (?:\[rank\d+\]:?\s*)
    )+""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number from 1 and its text without terminal codes and without the end of the line."""

    number: int
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A cleaned output. whole : all of it as one text, lines at their numbers (fences are empty lines)."""

    lines: tuple[Line, ...]
    whole: str
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Text:
        """A text of lines, which stay at their numbers."""
        kept = tuple(lines)
        return cls(kept, "\n".join([line.text for line in kept]))

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def once(self, name: str, make: Callable[[], Kept]) -> Kept:
        """What `make` gives, made once for a text and a name: several readers look at the same."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast(Kept, self._kept[name])

    def without_prefixes(self) -> Text:
        """The same lines without what loggers put before them (times, ranks, workers)."""
        return self.once("without prefixes", self._without_prefixes)

    def _without_prefixes(self) -> Text:
        lines, changed = list(self.lines), False
        for at, line in enumerate(lines):
            if line.text[:1] in BEGINS and (prefix := PREFIX.match(line.text)):
                lines[at], changed = Line(line.number, line.text[prefix.end() :]), True
        return Text.of(lines) if changed else self

    def line_of(self, offset: int) -> int:
        """The number of the line that holds a character of `whole`."""
        return bisect_right(self._starts(), offset)

    def start_of(self, line: int) -> int:
        """Where in `whole` a line starts, its number counted from the first line of this text, which is 1."""
        return self._starts()[line - 1]

    def _starts(self) -> list[int]:
        return self.once("starts", lambda: [0, *(one.end() for one in re.finditer("\n", self.whole))])

    def json_values(self, key: str | None = None) -> Iterator[tuple[int, Any]]:
        """Every JSON object or list that stands in the text, with the line where it starts; `key` : those that have it.

        What stands before, between and after them is passed over. Raises ReadingError for JSON nested too deep, and for
        broken JSON that would have to be looked through from very many places.
        """
        whole, at = self.whole, 0
        last = len(whole) if key is None else whole.rfind(f'"{key}"')
        patience = PATIENCE * max(len(whole), SHORT)
        for start in STARTS.finditer(whole):
            if start.start() > last:
                return
            if start.start() < at:
                continue
            try:
                value, after, cost = _decoded(whole, start.start())
            except RecursionError:
                raise ReadingError(f"line {self.line_of(start.start())}: the JSON is nested too deep.") from None
            if after:
                at = after
                if key is None or (isinstance(value, dict) and key in value):
                    yield self.line_of(start.start()), value
            elif (patience := patience - cost) < 0:
                raise ReadingError(f"line {self.line_of(start.start())}: JSON that is cut or broken, many times over. "
                                   "Give whole outputs.")  # fmt: skip


def _decoded(whole: str, start: int) -> tuple[Any, int, int]:
    """A JSON value that starts at a place and where it ends, 0 where it is none; the characters that were looked at.

    It is read from pieces that grow, as an error costs as much as the text that is given is long.
    """
    size = FIRST_PIECE
    while True:
        piece = whole[start : start + size]
        try:
            value, end = DECODER.raw_decode(piece)
            return value, start + end, size
        except json.JSONDecodeError as error:
            is_cut = error.pos > len(piece) - AT_THE_END or error.msg.startswith("Unterminated string")
            if not is_cut or start + size >= len(whole):
                return None, 0, ONE_ERROR + (len(piece) if is_cut else error.pos)
        except ValueError:  # a number of thousands of digits
            return None, 0, ONE_ERROR + len(piece)
        size *= 8


def clean(content: str, longest: int = LONGEST, most_lines: int = MOST_LINES) -> Text:
    """An output's content as a Text. Raises ReadingError where it is empty or far longer than any tool's output."""
    if len(content) > longest:
        raise ReadingError(f"{len(content):,} characters are more than any of these tools prints, at most {longest:,}. "
                           "Give the part of it that the tool printed.")  # fmt: skip
    if not content.strip():
        raise ReadingError("is empty.")
    lines = re.split(r"\r\n|\n|\r(?!\n)", content.removeprefix("\ufeff"))
    if len(lines) > most_lines:
        raise ReadingError(f"{len(lines):,} lines are more than any of these tools prints, at most {most_lines:,}. "
                           "Give the part of it that the tool printed.")  # fmt: skip
    if CONTROL.search(content):
        lines = [TERMINAL.sub("", line).rstrip("\r") if CONTROL.search(line) else line for line in lines]
    return Text.of([Line(number, "" if _is_fence(line) else line) for number, line in enumerate(lines, 1)])


def _is_fence(line: str) -> bool:
    return ("```" in line or "~~~" in line) and FENCE.match(line) is not None
