"""Answers on standard output: a report for a person, or data for a program."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from offload.errors import OffloadError, OutputError
from offload.files import named, overwritten, replace_file, same_file

PIPED_WIDTH = 100  # columns where the output is no terminal and COLUMNS says nothing
NARROWEST = 24


def put(text: str = "") -> None:
    """Write a text at once. Raises OutputError where that cannot be, BrokenPipeError where nobody reads."""
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


def check_outputs(files: Mapping[str, str | None]) -> None:
    """Refuse files to be written, by option, that are one file, the one that standard output goes to, or were read.

    Asked before any work, and again once all is read. Raises OffloadError.
    """
    given = {option: path for option, path in files.items() if path is not None}
    before: dict[str, str] = {}
    for option, path in given.items():
        for other, taken in before.items():
            if same_file(path, taken):
                raise OffloadError(f"{other} {named(taken)} and {option} {named(path)} are one file, which would hold "
                                   "only what is written last. Name another for one of them.")  # fmt: skip
        before[option] = path
        if _is_output(path):
            raise OffloadError(f"{option} {named(path)}: the report goes to this file too. Name another for one.")
        if (read := overwritten(path)) is not None:
            where = "" if read == path else f" ({named(read)})"
            raise OffloadError(f"{option} {named(path)}: this file is read here{where} and would be overwritten. "
                               "Name another.")  # fmt: skip


def _is_output(path: str) -> bool:
    """Whether standard output goes to a file."""
    try:
        there, out = os.stat(path), os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # there is no such file, or standard output is none
        return False
    return stat.S_ISREG(out.st_mode) and os.path.samestat(there, out)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the answer cannot be written: {error.strerror or error}.") from None


def write_file(path: str, text: str, option: str = "-o") -> None:
    """Write a text to the file of an option, whole or not at all. Raises OutputError where that cannot be."""
    try:
        replace_file(path, text.encode("utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OutputError(f"{option} {named(path)} cannot be written: {why}.") from None


def print_json(answer: Any) -> None:
    """Print plain data as JSON."""
    put(json.dumps(answer, indent=2, allow_nan=False) + "\n")


def print_report(write: Any, *values: Any) -> None:
    """Print a report: all of it or, where it fails, nothing."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    columns = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    if columns.isascii() and columns.isdigit() and 0 < int(columns) < 10_000:
        width = max(int(columns), NARROWEST)
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
    console = Console(width=width, color_system=None if plain else "auto", legacy_windows=False)
    with _writing(), console.capture() as captured:  # which writes as it ends, if nothing
        write(*values, console)
    text = captured.get()
    if plain:  # tables fill their lines with spaces
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    put(text)
