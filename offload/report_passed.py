"""What processors pass to one another, as text: transfers, latency, and their share of a step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from offload.passed import Passed
from offload.printing import write_heading, write_line, write_table
from offload.units import format_seconds, format_share


def write_passed(rows: Sequence[Passed], console: Console) -> None:
    """Print a line for each kind; nothing where nothing passes."""
    if not rows:
        return
    write_heading(console, "Between processors")
    table = [[row.what, format_seconds(row.transfer_seconds), format_seconds(row.latency_seconds),
              format_seconds(row.transfer_seconds + row.latency_seconds),
              "<0.1 %" if 0 < row.share < 0.001 else format_share(row.share)] for row in rows]  # fmt: skip
    write_table(console, ["what", "transfers", "latency", "both", "share"], table, right={1, 2, 3, 4})
    write_line(console, "Each alone, all of a step one after another, at sustained rates; the share is of the expected "
                        "time.", style="dim")
