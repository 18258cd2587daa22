"""One tree of errors: each class is one cause, each message says where, what, what is allowed and the fix.

Everything a user can get wrong ends as an `OffloadError`; the command line prints its text and exits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self


class OffloadError(ValueError):
    """Anything a person can mend by changing what they gave."""


class UnitError(OffloadError):
    """A quantity's text is no number with a unit of the kind that is due."""


class TopologyError(OffloadError):
    """A topology's values contradict each other (unknown node, self-loop, zero rate)."""


class RouteError(TopologyError):
    """No route leads from one node to another; the message lists what is reachable."""


class PlanError(OffloadError):
    """A plan's values contradict each other or its topology."""


class ModelError(OffloadError):
    """A model is not known, or its description lacks a value that may not be guessed."""


class ReadingError(OffloadError):
    """A tool's output is not of the kind that was expected, or says nothing that can be used."""


class CapacityError(OffloadError):
    """A placement does not fit; the message says what is missing and what would fit."""


class FormulaError(OffloadError):
    """A formula's text cannot be read, or it is given numbers that it does not hold for."""


class PlotError(OffloadError):
    """A figure cannot be drawn or written; the message says what would help."""


class OutputError(OffloadError):
    """The answer cannot be written to standard output."""


class FileError(OffloadError, OSError):
    """A file cannot be opened or read; an OSError too, with its number and the file's name where the system gave them.

    Its text is the whole message.
    """

    def __str__(self) -> str:
        return str(self.args[0])

    def of(self, error: OSError, path: object) -> Self:
        """The same with what the system said."""
        self.errno, self.strerror = error.errno, error.strerror
        self.filename = str(path) if error.filename is None else error.filename
        return self


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file; a FileNotFoundError too."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a file: `line` and `column` count from 1 (0 where the file has no place for it).

    origin : what gave the value instead of the file, as "--set workload.batch=8".
    """

    line: int
    column: int
    key: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        if self.origin:
            told = self.key.replace("[", ".").replace("]", "") in self.origin
            return f"{self.origin}: {self.message}" if told else f"{self.origin}, {self.key}: {self.message}"
        place = f"line {self.line}, column {self.column}" if self.line else "file"
        return f"{place}, {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class DocumentError(OffloadError):
    """All mistakes of one file at once, each with its place. advice : lines that go below them."""

    def __init__(self, file: str, mistakes: list[Mistake], advice: str = ""):
        self.file = file
        self.mistakes = tuple(sorted(mistakes, key=lambda m: (m.line, m.column)))
        count = f"{len(mistakes)} mistake" + ("" if len(mistakes) == 1 else "s")
        lines = [f"{file}: {count}", *(f"  {mistake}" for mistake in self.mistakes), advice]
        super().__init__("\n".join(filter(None, lines)))


def did_you_mean(given: object, allowed: Iterable[object], what: str = "Allowed") -> str:
    """The tail of a message about an unknown name: what is allowed, and the nearest of it."""
    names = sorted(str(name) for name in allowed)
    if not names:
        return f"{what}: none."
    text = str(given)
    folded = {name.casefold(): name for name in names}
    asked = text.strip().casefold()
    near = get_close_matches(asked, folded, n=1, cutoff=0.6)
    if near and 1 < len(holders := [one for one in folded if one.endswith(asked)]) <= 3:
        near = holders  # each is as likely
    shown = ", ".join(names) if len(names) <= 24 else ", ".join(names[:24]) + f", ... ({len(names)})"
    meant = " or ".join(f'"{folded[one]}"' for one in near)
    return f"{what}: {shown}." + (f" Did you mean {meant}?" if meant else "")


def one_line(value: object, longest: int = 60) -> str:
    """A text from outside for a message: short, in one line, and without what a terminal would obey."""
    try:
        text = str(value)
    except ValueError:  # a whole number of more digits than Python writes out
        text = "a number of thousands of digits"
    cut = text[:longest]
    if not cut.isprintable():
        cut = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)
    return cut + "..." if len(text) > longest else cut


def shown(value: object, longest: int = 60) -> str:
    """A value from outside for a message: `one_line`, a text in quotes."""
    return one_line(repr(value) if isinstance(value, str) else value, longest)
