"""Commands and their output as pages show them: a block of `sh`, then one of `text` with what it prints.

A line "..." stands for lines that are left out; what stands between two of them is whole. After a change of what the
program prints, `python -m tests.shown docs/questions/*.md` writes the pages anew with the same cuts.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.commands import ROOT, Done, run

CUT = "..."
SHOWN = re.compile(r"^```sh\n(?P<command>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.S | re.M)


class Shown(NamedTuple):
    """A command of a page, and the lines that the page shows of its output (none: only its exit status counts)."""

    command: str
    output: str | None


def shown_in(text: str) -> list[Shown]:
    return [Shown(found["command"].replace("\\\n", " ").strip(), found["output"]) for found in SHOWN.finditer(text)]


@contextlib.contextmanager
def a_folder_of_its_own() -> Iterator[Path]:
    """A folder in which the paths of a page lead to what the repository holds, and what commands write stays apart."""
    with tempfile.TemporaryDirectory() as name:
        for folder in ("examples", "topologies", "offload"):
            (Path(name) / folder).symlink_to(ROOT / folder)
        yield Path(name)


def done(command: str, folder: Path) -> Done:
    """What a line `offload ...` prints there, on a terminal of the usual width."""
    name, *words = shlex.split(command)
    if name != "offload":
        raise ValueError(f"a page shows a command that is not ours: {command}")
    return run(*words, cwd=folder, COLUMNS="100")


def parts_of(output: str) -> list[list[str]]:
    """The lines between cuts; the first part begins, and the last one ends the output unless a cut stands there."""
    parts: list[list[str]] = [[]]
    for line in output.splitlines():
        if line == CUT:
            parts.append([])
        else:
            parts[-1].append(line.rstrip())
    return parts


def missing_from(output: str, real: str) -> str:
    """The first line of an excerpt that the real output does not have there; nothing where it has all in order."""
    lines, at = [line.rstrip() for line in real.splitlines()], 0
    parts = parts_of(output)
    for number, part in enumerate(parts):
        starts = range(at, len(lines) - len(part) + 1)
        if number == 0:
            starts = starts[:1]
        if number == len(parts) - 1:
            starts = [one for one in starts if one == len(lines) - len(part)]
        found = next((one for one in starts if lines[one : one + len(part)] == part), None)
        if found is None:
            return next((line for line in part if line not in lines), part[0] if part else "(lines without a cut)")
        at = found + len(part)
    return ""


def renewed(output: str, real: str) -> str:
    """The excerpt with the same cuts, of what is printed now: each part the lines most like those of then."""
    lines, at, parts = [line.rstrip() for line in real.splitlines()], 0, parts_of(output)
    written: list[list[str]] = []
    for number, part in enumerate(parts):
        starts = range(at, len(lines) - len(part) + 1)
        if number == 0:
            starts = starts[:1]
        if number == len(parts) - 1:
            starts = starts[-1:]
        best = max(starts, key=lambda one: (_alike(part, lines[one : one + len(part)]), -one), default=at)
        written.append(lines[best : best + len(part)])
        at = best + len(part)
    return "\n".join("\n".join(part) if part else "" for part in _with_cuts(written)) + "\n"


def _with_cuts(parts: list[list[str]]) -> Iterator[list[str]]:
    for number, part in enumerate(parts):
        if number:
            yield [CUT]
        if part:
            yield part


def _alike(old: list[str], new: list[str]) -> float:
    return sum(difflib.SequenceMatcher(None, one, other).ratio() for one, other in zip(old, new, strict=True))


def write_anew(page: Path) -> bool:
    """Whether the page was changed."""
    text = page.read_text(encoding="utf-8")
    with a_folder_of_its_own() as folder:

        def filled(found: re.Match[str]) -> str:
            printed = done(found["command"].replace("\\\n", " ").strip(), folder).stdout
            if found["output"] is None:
                return found[0]
            return found[0].replace(found["output"], renewed(found["output"], printed))

        new = SHOWN.sub(filled, text)
    page.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, "is written anew" if write_anew(Path(path)) else "is as it was")
