"""Answers on standard output: a report for a person, or data for a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from offload.errors import OutputError

PIPED_WIDTH = 100  # columns where the output is no terminal and COLUMNS says nothing
NARROWEST = 24


def put(text: str = "") -> None:
    """Write a text at once. Raises OutputError where that cannot be, BrokenPipeError where nobody reads."""
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the answer cannot be written: {error.strerror or error}.") from None


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
