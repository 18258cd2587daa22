"""The answer of a sweep, as text for a person and as data for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from rich.console import Console

from offload import __version__
from offload.given import surely
from offload.printing import Pieces, fold_notes, number_text, write_heading, write_line, write_list, write_table
from offload.sweeps.axes import Axis
from offload.sweeps.grid import Grid
from offload.sweeps.points import Crossover, Point, Summary
from offload.units import format_bytes, format_seconds, many

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away
MOST_ROWS = 12  # of a table over an axis
MOST_CHANGES = 12
MOST_WRONG = 6
CELL = 11  # columns that a floor takes in a table over two axes, with what stands between


@dataclass(frozen=True, slots=True)
class Answer:
    """What a sweep is told with. of : what was swept; best : the best points that fit, by a figure. assumptions,
    not_modelled : of the step at the best point, or where none fits at the least floor.
    """

    of: str
    title: str
    grid: Grid
    summary: Summary
    crossovers: Sequence[Crossover]
    best: Sequence[Point]
    by: str
    assumptions: Sequence[str]
    not_modelled: Sequence[str]


def write_sweep(answer: Answer, console: Console) -> None:
    """Print what was swept, the floors, the best points, what binds where, what fits, and what is assumed."""
    grid, summary = answer.grid, answer.summary
    write_line(console, f"Sweep of {answer.of}: {many(summary.points, 'point')}", style="bold")
    write_line(console, f"{'At the best point: ' if summary.points > 1 else ''}{answer.title}")
    write_grid(answer, console)
    write_list("Not modelled", list(answer.not_modelled), console)
    notes = [note for note in fold_notes(answer.assumptions) if not note.startswith("--over ")]
    write_list("Assumptions (of the best point)" if grid.axes else "Assumptions", notes, console)


def of_grid(grid: Grid, by: str = "floor") -> Answer:
    """What a grid says without its plan. Raises OffloadError without floor, spare and binding, and as `Grid.best`."""
    return Answer("", "", grid, grid.summary(), grid.crossovers(), grid.best(by=by), by, (), ())


def write_grid(answer: Answer, console: Console) -> None:
    """Print what the grid itself says: axes, floors, the best points, what binds where, what fits."""
    grid, summary = answer.grid, answer.summary
    if grid.axes:
        write_heading(console, "Swept")
        rows = [[axis.path, f"{len(axis):,}", _values(axis)] for axis in grid.axes]
        write_table(console, ["axis", "values", "which"], rows, right={1})
        for axis in grid.axes if grid.size > 1 else ():
            if len(axis) > 1 and not grid.depends_on(axis.path):
                write_line(console, f"No figure here depends on {axis.path}.")
    _write_ends(summary, grid, console)
    _write_best(answer, console)
    _write_over(grid, console)
    _write_crossovers(answer, console)
    _write_fit(summary, grid, console)
    write_uncounted(summary.uncounted, summary.points, console)
    _write_wrong(summary, grid, console)


def write_uncounted(parts: Mapping[str, int], points: int, console: Console) -> None:
    """By which parts without a rate much goes, and at how many points."""
    if not parts:
        return
    unknown = sum(parts.values())
    write_heading(console, "Times are not known at " + ("any point" if unknown == points else many(unknown, "point")))
    for text, count in parts.items():
        write_line(console, f"- {count:,}: no rate is known of {text}, on which the time depends")
    write_line(console, "Their floors hold, and may be far too low; serial and overlapped times are at least so long. "
                        "None of them is among the best, but by spare.")


def _values(axis: Axis) -> str:
    count = len(axis)
    if axis.given is not None:
        return ", ".join(axis.given) if count <= 6 else ", ".join((*axis.given[:3], "...", axis.given[-1]))
    if count == 1:
        return axis.shown(0)
    numbers = surely(axis.numbers)
    steps = numpy.diff(numbers[:3]).tolist()
    by_one = axis.unit in ("", "layers") and steps and steps[0] == 1 and numbers[-1] - numbers[0] == count - 1
    ratios = not by_one and count > 2 and abs(steps[1] - steps[0]) > 1e-6 * abs(steps[1])
    return f"{axis.shown(0)} to {axis.shown(count - 1)}" + (", in about equal ratios" if ratios else "")


def _where(point: Point, grid: Grid) -> str:
    told = [f"{axis.path} {axis.shown(at)}" for axis, at in zip(grid.axes, point.place, strict=True)]
    return f" at {', '.join(told)}" if told else ""


def _write_ends(summary: Summary, grid: Grid, console: Console) -> None:
    write_heading(console, "Floor: no schedule on this machine is faster")
    for what, point in (("Smallest", summary.smallest), ("Largest", summary.largest)):
        if point is None or what == "Largest" and point.floor == surely(summary.smallest).floor:
            continue
        fits = "fits" if point.fits else f"does not fit, {format_bytes(-surely(point.spare))} short"
        speed = f" ({number_text(point.tokens_per_s)} tokens/s)"
        known = f"; what it takes is not known (no rate of {point.uncounted})" if point.uncounted else ""
        write_line(console, f"{what}: {format_seconds(surely(point.floor))}{speed}{_where(point, grid)}: "
                            f"{point.binding} binds; it {fits}{known}.")
    if len(summary.binds) > 1:
        told = ", ".join(f"{name} at {_share(count, summary.made)}" for name, count in summary.binds.items())
        write_line(console, f"What binds, by points: {told}.")


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.3g} %" if count < of else "all"


def _write_best(answer: Answer, console: Console) -> None:
    if not answer.best or len(answer.grid.axes) == 0:
        return
    grid = answer.grid
    write_heading(console, f"Best that fit, by {answer.by.replace('_', ' ').replace('tokens per s', 'tokens')}")
    overlapped = any(point.overlapped is not None for point in answer.best)
    heads = [axis.path for axis in grid.axes] + ["floor", "tokens/s", *(["overlapped"] if overlapped else []), "serial",
                                                 "binds", "spare"]
    rows = []
    for point in answer.best:
        values = [axis.shown(at) for axis, at in zip(grid.axes, point.place, strict=True)]
        least = ">= " if point.uncounted else ""
        more = [least + _seconds(point.overlapped)] if overlapped else []
        rows.append([*values, _floor(point), number_text(point.tokens_per_s), *more, least + _seconds(point.serial),
                     point.binding, "-" if point.spare is None else format_bytes(point.spare)])
    right = {place for place, axis in enumerate(grid.axes) if axis.numbers is not None}
    right |= set(range(len(grid.axes), len(heads))) - {len(heads) - 2}
    write_table(console, heads, rows, right=right, named=True)


def _seconds(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _sampled(count: int, most: int) -> list[int]:
    """At most so many places of an axis, evenly spread, with the first and the last."""
    return sorted({round(one) for one in numpy.linspace(0, count - 1, min(count, max(2, most))).tolist()})


def _write_over(grid: Grid, console: Console) -> None:
    """The floor along one axis, or over two."""
    if len(grid.axes) not in (1, 2) or grid.size < 2:
        return
    down = grid.axes[0]
    picked = _sampled(len(down), MOST_ROWS)
    numbers = {0} if down.numbers is not None else set()
    write_heading(console, f"Floor over {' and '.join(axis.path for axis in grid.axes)}")
    if len(grid.axes) == 1:
        rows = []
        for at in picked:
            point = grid.point((at,))
            rows.append([down.shown(at), _floor(point), number_text(point.tokens_per_s), point.binding])
        write_table(console, [down.path, "floor", "tokens/s", "binds"], rows, right={*numbers, 1, 2}, named=True)
        shown = [grid.point((at,)) for at in picked]
    else:
        across = grid.axes[1]
        room = console.width - max(len(down.path), *(len(down.shown(at)) for at in picked)) - 3
        columns = _sampled(len(across), max(2, min(8, room // (CELL + 2))))
        points = [[grid.point((at, other)) for other in columns] for at in picked]
        rows = [[down.shown(at), *map(_floor, line)] for at, line in zip(picked, points, strict=True)]
        write_line(console, f"across: {across.path}", style="dim")
        write_table(console, [down.path, *(across.shown(other) for other in columns)], rows,
                    right={*numbers, *range(1, len(columns) + 1)}, named=True)
        shown = [point for line in points for point in line]
    left = grid.size - len(shown)
    way = "to_csv(FILE)" if isinstance(console, Pieces) else "-o FILE"
    marks = ["* does not fit."] if any("*" in _floor(point) for point in shown) else []
    marks += ["? times are not known."] if any(point.uncounted for point in shown) else []
    marks += ["-: no step can be made."] if any(point.floor is None for point in shown) else []
    marks += [f"{left:,} more points are not shown: {way} writes all."] if left else []
    if marks:
        write_line(console, " ".join(marks), style="dim")


def _floor(point: Point) -> str:
    return "-" if point.floor is None else format_seconds(point.floor) + ("" if point.fits else "*") + (
        "?" if point.uncounted else "")


def _write_crossovers(answer: Answer, console: Console) -> None:
    if len(answer.grid.axes) == 0 or answer.summary.made < 2:
        return
    write_heading(console, "Where what binds changes")
    if not answer.crossovers:
        binding = next(iter(answer.summary.binds))
        told = "The same binds at all points" if len(answer.summary.binds) == 1 else "It changes along no axis"
        write_line(console, f"{told}: {binding}." if len(answer.summary.binds) == 1 else f"{told} by itself.")
        return
    groups: dict[tuple[str, str, str], list[Crossover]] = {}
    for one in answer.crossovers:
        groups.setdefault((one.path, one.before, one.after), []).append(one)
    rows = []
    for (path, before, after), group in list(groups.items())[:MOST_CHANGES]:
        axis = answer.grid.axes[answer.grid.axis(path)]
        lines, of = sum(one.lines for one in group), group[0].of
        first, last = group[0].place, group[-1].place
        between = f"{axis.shown(first)} and {axis.shown(first + 1)}"
        if len(group) > 1:
            between = f"{axis.shown(first)} and {axis.shown(last + 1)}, at {len(group):,} places"
        rows.append([path, before, after, between, f"{lines:,} of {of:,}"])
    write_table(console, ["along", "from", "to", "between", "lines"], rows, right={4})
    if len(groups) > MOST_CHANGES:
        way = "crossovers()" if isinstance(console, Pieces) else "--json"
        write_line(console, f"{len(groups) - MOST_CHANGES:,} more changes are not shown: {way} lists all.",
                   style="dim")
    if any(one.of > 1 for one in answer.crossovers):
        write_line(console, "lines: along the axis, one for each choice of values of the other axes.", style="dim")


def _write_fit(summary: Summary, grid: Grid, console: Console) -> None:
    write_heading(console, "What fits")
    if not summary.made:
        write_line(console, "No step can be made at any point.")
        return
    if summary.fit == summary.made:
        write_line(console, "Everything fits at " + ("all points." if summary.made == summary.points else
                                                     f"all {summary.made:,} points where a step can be made."))
    else:
        write_line(console, f"{summary.fit:,} of {many(summary.points, 'point')} fit." if summary.fit else
                   f"No point of {summary.points:,} fits.")
    if summary.nearest is not None:
        write_line(console, f"Of those that do not, the nearest lacks {format_bytes(-surely(summary.nearest.spare))} "
                            f"in the fullest memory{_where(summary.nearest, grid)}.")
    if numpy.isnan(surely(grid.spare)[~numpy.isnan(surely(grid.floor))]).any():
        write_line(console, "Where the sizes of memories are not known, all is taken to fit.")


def _write_wrong(summary: Summary, grid: Grid, console: Console) -> None:
    if not grid.wrong:
        return
    write_heading(console, f"No step can be made at {many(summary.points - summary.made, 'point')}")
    for text, count in list(grid.wrong.items())[:MOST_WRONG]:
        write_line(console, f"- {count:,}: {' '.join(text.split())}")
    if len(grid.wrong) > MOST_WRONG:
        write_line(console, f"- and {len(grid.wrong) - MOST_WRONG:,} more reasons")


def sweep_to_json(answer: Answer) -> dict[str, Any]:
    """The same as plain data: seconds, bytes, bytes/s; what does not exist is null. All points: `-o FILE.json`."""
    grid, summary = answer.grid, answer.summary
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "title": answer.title,
        "of": answer.of,
        "axes": [{"path": axis.path, "unit": axis.unit, "count": len(axis), "first": _value(axis, 0),
                  "last": _value(axis, len(axis) - 1)} for axis in grid.axes],
        "points": summary.points,
        "made": summary.made,
        "fit": summary.fit,
        "smallest": _point(summary.smallest),
        "largest": _point(summary.largest),
        "by": answer.by,
        "best": [_point(one) for one in answer.best],
        "nearest": _point(summary.nearest),
        "binds": dict(summary.binds),
        "crossovers": [{"path": one.path, "low": one.low, "high": one.high, "from": one.before, "to": one.after,
                        "lines": one.lines, "of": one.of} for one in answer.crossovers],
        "wrong": [{"text": text, "points": count} for text, count in grid.wrong.items()],
        "uncounted": [{"parts": text, "points": count} for text, count in summary.uncounted.items()],
        "not_modelled": list(answer.not_modelled),
        "assumptions": list(answer.assumptions),
    }  # fmt: skip


def _value(axis: Axis, place: int) -> float | str:
    return axis.text(place) if axis.numbers is None else axis.numbers[place].item()


def _point(point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {
        "values": dict(point.values), "texts": dict(point.texts), "floor_seconds": point.floor,
        "serial_seconds": point.serial, "overlapped_seconds": point.overlapped, "tokens_per_step": point.tokens,
        "tokens_per_s": point.tokens_per_s, "binding": point.binding, "fits": point.fits, "spare_bytes": point.spare,
        "uncounted": point.uncounted,
    }  # fmt: skip
