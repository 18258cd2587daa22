"""What the system tells of itself: files below a root and programs, both of which tests replace.

Nothing here raises for what is not there or may not be read: that is None, and whoever asks says what it means.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 20.0  # seconds that a program may take
MOST = 2**21  # bytes of a file below /sys or /proc
Run = Callable[[list[str]], str | None]


def run_program(words: list[str]) -> str | None:
    """What a program prints; None where it is not there, fails or takes too long."""
    if shutil.which(words[0]) is None:
        return None
    try:
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL,
                              env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class System:
    """root : where /sys and /proc lie; run : a program's words -> what it prints, or None."""

    root: Path = Path("/")
    run: Run = field(default=run_program)

    def path(self, name: str) -> Path:
        """A path below the root, from one that begins with "/"."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """A file's text, without blanks around it."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read(MOST).decode(errors="replace").strip()
        except (OSError, ValueError):
            return None

    def number(self, name: str) -> int | None:
        """A file's whole number, decimal or with 0x before it."""
        try:
            return int(self.text(name) or "", 0)
        except ValueError:
            return None

    def names(self, name: str) -> list[str]:
        """The names in a folder, those with numbers in the order of these; none where it cannot be read."""
        try:
            found = os.listdir(self.path(name))
        except OSError:
            return []
        return sorted(found, key=lambda one: [int(part) if part.isdigit() else part for part in
                                              re.split(r"(\d+)", one)])  # fmt: skip

    def real(self, name: str) -> str | None:
        """Where a link leads, as a path from the root; None where there is nothing."""
        try:
            path = self.path(name).resolve(strict=True)
            return "/" + str(path.relative_to(self.root.resolve()))
        except (OSError, ValueError, RuntimeError):
            return None


def numbers_of(text: str | None) -> tuple[int, ...]:
    """The numbers of a list as "0-3,8": of processors, of nodes. Empty where it says none."""
    found: list[int] = []
    for part in (text or "").split(","):
        ends = part.strip().split("-")
        if all(one.isascii() and one.isdigit() for one in ends) and len(ends) <= 2:
            found += range(int(ends[0]), int(ends[-1]) + 1)
    return tuple(dict.fromkeys(found))


def fields(text: str | None, separator: str = ":") -> Iterable[tuple[str, str]]:
    """(key, value) of each line "key: value"."""
    for line in (text or "").splitlines():
        key, found, value = line.partition(separator)
        if found:
            yield key.strip(), value.strip()


def kib(text: str | None) -> int | None:
    """Bytes of "16314 kB", as the kernel writes KiB; of "32K" and "8M", as it writes sizes of caches."""
    found = re.fullmatch(r"(\d{1,15})\s*(kB|K|M|G)?", (text or "").strip())
    if found is None:
        return None
    return int(found[1]) * {"kB": 2**10, "K": 2**10, "M": 2**20, "G": 2**30}.get(found[2] or "", 1)
