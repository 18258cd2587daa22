"""What an import did, for a person: what it wrote, from which line, what it assumed, what contradicts, is unknown."""

from __future__ import annotations

from rich.console import Console

from offload.importing import Imported, from_of
from offload.printing import fold_notes, fold_rows, write_heading, write_line, write_list, write_table
from offload.readers.tools.finding import Fact
from offload.units import format_bytes_both, format_rate, format_seconds


def shown(fact: Fact) -> str:
    """A fact's value with its unit."""
    if isinstance(fact.value, bool | str):
        return str(fact.value)
    if fact.unit == "B/s":
        return format_rate(fact.value)
    if fact.unit == "s":
        return format_seconds(fact.value)
    return format_bytes_both(fact.value, 4) if fact.unit == "B" else f"{fact.value:g}"


def write_import(imported: Imported, path: str | None, console: Console) -> None:
    """Print an import. path : the file that the topology is written to, None where it follows on standard output."""
    write_line(console, f"{imported.topology.title}, from the outputs of {', '.join(imported.tools)}", style="bold")
    if imported.written:
        write_heading(console, "Taken into the topology")
        rows = fold_rows([[one.what, str(one.value), one.origin] for one in imported.written], (0, 2))
        write_table(console, ["what", "value", "from"], rows)
    worked_out = [f"{one.what}: {shown(one)}, from {from_of(one)}" for one in imported.derived]
    write_list("Worked out", fold_notes(worked_out), console)
    lists = {"Assumed": imported.assumed, "Contradicts": imported.contradicts, "Unknown": imported.unknown,
             "Not used": imported.not_used}  # fmt: skip
    for title, notes in lists.items():
        write_list(title, fold_notes(notes), console)
    console.print()
    write_line(console, f"Written to {path}" if path else "The topology (-o FILE writes it to a file):")
