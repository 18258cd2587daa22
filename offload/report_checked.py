"""Checked files as text for a person: what each is, its mistakes with their places, its warnings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from offload.checking import Checked, Told
from offload.errors import Mistake
from offload.printing import write_line


def write_checked(files: Sequence[Checked], console: Console) -> None:
    """Print what was found in each file, and how many are sound."""
    for one in files:
        kind = one.kind or "not read"
        words = [_count(len(one.mistakes), "mistake"), _count(len(one.warnings), "warning")]
        verdict = " and ".join(word for word in words if word) or "sound"
        write_line(console, f"{one.file}: {kind}, {verdict}", style="bold" if verdict != "sound" else "")
        for mistake in one.mistakes:
            first, *further = _mistake(one, mistake).splitlines()
            write_line(console, first, indent=2, hang=4)
            for line in further:  # the mistakes of a file that this one names
                write_line(console, line.strip(), indent=6, hang=4)
        for warning in one.warnings:
            where = f"line {warning.line}, " if warning.line else ""
            elsewhere = f"{warning.file}: " if warning.file != one.file else ""
            write_line(console, f"{elsewhere}{where}{warning.part}: {warning.says} [{warning.code}]", indent=2, hang=4)
            write_line(console, f"If it is meant: {warning.meant}", indent=6, style="dim")
    if any(one.warnings for one in files):
        write_line(console, "A warning says what is probably not meant; --allow CODE leaves one out.", style="dim")
    if len(files) > 1:
        wrong = sum(bool(one.mistakes) for one in files)
        doubted = sum(bool(one.warnings) for one in files)
        words = [f"{len(files)} files", f"{wrong} with mistakes", f"{doubted} with warnings"]
        write_line(console, ", ".join(words))


def _mistake(one: Checked, told: Told) -> str:
    text = str(Mistake(told.line, told.column, told.key, told.message)) if told.line or told.key else told.message
    return text if told.file == one.file else f"{told.file}: {text}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else ""
