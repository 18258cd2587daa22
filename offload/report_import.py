"""What an import did, for a person: what it wrote, from which line, what it assumed, what contradicts, is unknown."""

from __future__ import annotations

from rich.console import Console

from offload.importing import Imported
from offload.printing import fold_rows, write_heading, write_line, write_list, write_table


def write_import(imported: Imported, path: str | None, console: Console) -> None:
    """Print an import. path : the file that the topology is written to, None where it follows on standard output."""
    write_line(console, f"{imported.topology.title}, from the outputs of {', '.join(imported.tools)}", style="bold")
    if imported.written:
        write_heading(console, "Taken into the topology")
        rows = fold_rows([[one.what, str(one.value), one.origin] for one in imported.written], (0, 2))
        write_table(console, ["what", "value", "from"], rows)
    write_list("Assumed", imported.assumed, console)
    write_list("Contradicts", imported.contradicts, console)
    write_list("Unknown", imported.unknown, console)
    write_list("Not used", imported.not_used, console)
    console.print()
    write_line(console, f"Written to {path}" if path else "The topology (-o FILE writes it to a file):")
