"""A tool's output as lines without the dirt that comes with pasting: terminal codes, log prefixes, Markdown fences.

Every line keeps its number in the file. Nothing else is changed: tabs and runs of blanks mean columns in some formats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from offload.errors import ReadingError

LONGEST = 16 * 2**20  # characters
TERMINAL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
FENCE = re.compile(r"^\s*(?:```|~~~)\S*\s*$")
# What loggers put before a line: a time, "host:pid:tid [rank]", "[rank0]:", "INFO 01-02 03:04:05 module.py:12]".
PREFIX = re.compile(
    r"""^(?:
        (?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?\s+)
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


@dataclass(frozen=True, slots=True)
class Text:
    """A cleaned output. whole : all of it as one text, lines at their numbers (fences are empty lines)."""

    lines: tuple[Line, ...]
    whole: str

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Text:
        """A text of lines, which stay at their numbers."""
        kept = tuple(lines)
        return cls(kept, "\n".join(line.text for line in kept))

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def without_prefixes(self) -> Text:
        """The same lines without what loggers put before them (times, ranks, workers)."""
        return Text.of(Line(line.number, PREFIX.sub("", line.text)) for line in self.lines)

    def line_of(self, offset: int) -> int:
        """The number of the line that holds a character of `whole`."""
        return self.whole.count("\n", 0, offset) + 1

    def json_values(self, key: str | None = None) -> Iterator[tuple[int, Any]]:
        """Every JSON object or list that stands in the text, with the line where it starts; `key` : those that have it.

        What stands before, between and after them is passed over. Raises ReadingError for JSON nested too deep.
        """
        whole, at = self.whole, 0
        last = len(whole) if key is None else whole.rfind(f'"{key}"')
        decoder = json.JSONDecoder()
        for start in re.finditer(r"[{\[]", whole):
            if start.start() > last:
                return
            if start.start() < at:
                continue
            try:
                value, at = decoder.raw_decode(whole, start.start())
            except ValueError:
                continue
            except RecursionError:
                raise ReadingError(f"line {self.line_of(start.start())}: the JSON is nested too deep.") from None
            if key is None or (isinstance(value, dict) and key in value):
                yield self.line_of(start.start()), value


def clean(content: str) -> Text:
    """An output's content as a Text. Raises ReadingError where it is empty or far longer than any tool's output."""
    if len(content) > LONGEST:
        raise ReadingError(f"{len(content):,} characters are more than any of these tools prints, at most {LONGEST:,}.")
    if not content.strip():
        raise ReadingError("is empty.")
    lines = re.split(r"\r\n|\n|\r(?!\n)", content.removeprefix("\ufeff"))
    cleaned = (TERMINAL.sub("", line).rstrip("\r") for line in lines)
    return Text.of(Line(number, "" if FENCE.match(line) else line) for number, line in enumerate(cleaned, 1))
