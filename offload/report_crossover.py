"""Where streaming to a GPU gets faster than running in place, as a line for a person and as data."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from offload.crossover import Crossover
from offload.printing import write_heading, write_line
from offload.units import format_bytes, format_seconds


def write_crossover(found: Crossover, console: Console) -> None:
    """Print from how many tokens in a pass what runs on a CPU had better be streamed."""
    write_heading(console, "Run in place or stream")
    one, other = (format_seconds(seconds) for seconds in found.seconds)
    if found.tokens is None:
        write_line(console, f"What runs on {found.first}: up to {found.most:,} tokens in a pass that is faster than "
                            f"streaming it to {found.second}: {one} against {other} there.")
        return
    count = f"{found.tokens:,} token" + ("" if found.tokens == 1 else "s")
    before = ""
    if found.before is not None:
        slower = [format_seconds(seconds) for seconds in found.before]
        before = f"; with {found.tokens - 1:,} {slower[1]} against {slower[0]}"
    write_line(console, f"What runs on {found.first}: from {count} in a pass streaming it to "
                        f"{found.second} is faster: {other} against {one} (passes of a prompt, expected "
                        f"times{before}).")
    for memory, size in found.lacks.items():
        write_line(console, f"Streamed, {format_bytes(size)} would lack in {memory}: fewer layers fit beside buffers.")


def crossover_to_json(found: Crossover | None) -> dict[str, Any] | None:
    """The same as data; null where a plan runs nothing on a CPU beside a GPU."""
    if found is None:
        return None
    pair = ("in_place", "streamed")
    return {
        "tokens": found.tokens, "most": found.most, "runs_on": found.first, "streams_to": found.second,
        "seconds": dict(zip(pair, found.seconds, strict=True)),
        "before": None if found.before is None else dict(zip(pair, found.before, strict=True)),
        "lacks": found.lacks,
    }  # fmt: skip
