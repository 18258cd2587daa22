"""The answers that were kept of a large grid, as text for a person and as data for a program."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from offload import __version__
from offload.given import surely
from offload.printing import number_text, write_heading, write_line, write_table
from offload.report_sweep import write_uncounted
from offload.sweeps.points import Point
from offload.sweeps.reduced import Reduced
from offload.sweeps.reductions import Reduction
from offload.units import format_bytes, format_seconds, many

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away
MOST_ROWS = 24


def write_reduced(found: Reduced, of: str, console: Console) -> None:
    """Print what was swept, each answer, what binds how often and what fits."""
    write_line(console, f"Sweep of {of}: {many(found.size, 'point')}", style="bold")
    write_heading(console, "Swept")
    rows = [[axis.path, f"{len(axis):,}", f"{axis.shown(0)} to {axis.shown(len(axis) - 1)}"] for axis in found.axes]
    write_table(console, ["axis", "values", "from, to"], rows, right={1})
    for one, points in found.answers.items():
        _write_points(one, points, found, console)
    if found.binds is not None:
        write_heading(console, "What binds, by points")
        for name, times in found.binds.items():
            write_line(console, f"{name}: {times:,} ({100 * times / surely(found.made):.3g} %)")
        write_heading(console, "What fits")
        write_line(console, f"{found.fit:,} of {many(found.size, 'point')} fit.")
    write_uncounted(found.uncounted or {}, found.size, console)
    if found.wrong:
        write_heading(console, f"No step can be made at {many(sum(found.wrong.values()), 'point')}")
        for text, times in found.wrong.items():
            write_line(console, f"- {times:,}: {' '.join(text.split())}")


def _title(one: Reduction, found: Reduced) -> str:
    by = one.by.replace("tokens_per_s", "tokens")
    if one.kind == "best":
        return f"Best that fit, by {by}"
    if one.kind == "min":
        return f"Best for each {found.axes[one.axis].path} that fit, by {by}"
    return f"Of those that fit, what no other beats in {' and '.join(one.names)} (of equal ones the first)"


def _write_points(one: Reduction, points: tuple[Point, ...], found: Reduced, console: Console) -> None:
    write_heading(console, _title(one, found))
    if not points:
        unknown = sum((found.uncounted or {}).values())
        write_line(console, "No point fits." if not unknown else "Of no point that fits the times are known.")
        return
    axes = list(found.axes)
    heads = [axis.path for axis in axes] + ["floor", "tokens/s", "binds", "spare"]
    shown = points[:MOST_ROWS]
    rows = [[*(axis.shown(at) for axis, at in zip(axes, point.place, strict=True)), format_seconds(surely(point.floor)),
             number_text(point.tokens_per_s), point.binding, "-" if point.spare is None else format_bytes(point.spare)]
            for point in shown]  # fmt: skip
    right = {at for at, axis in enumerate(axes) if axis.numbers is not None} | {len(axes), len(axes) + 1, len(axes) + 3}
    write_table(console, heads, rows, right=right, named=True)
    if len(points) > len(shown):
        write_line(console, f"{len(points) - len(shown):,} more are not shown: --json lists all.", style="dim")


def reduced_to_json(found: Reduced, of: str) -> dict[str, Any]:
    """The same as plain data: seconds, bytes; null for what is not known."""
    return {"format": FORMAT, "offload_version": __version__, "of": of, **found.to_json()}
