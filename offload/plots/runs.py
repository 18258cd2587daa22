"""Two timelines of one step, one under the other for each resource: as the schedule has it, and as it was run."""

from __future__ import annotations

from typing import Any

from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import MOST_ROWS, rows_page, set_rows, share_text
from offload.plots.gantt import Lane, _draw, _look, _names, _pale, _shown, lanes_of
from offload.plots.style import drawn
from offload.plots.subject import alike
from offload.schedules import Timeline
from offload.step import Step
from offload.units import format_seconds


@drawn
def replayed(step: Step, predicted: Timeline, measured: Timeline | None, *, ax: Any = None, subject: str = "") -> Any:
    """Two rows for each resource, both from empty buffers: the tasks of the schedule, and below it those that were run.

    A task is full where it is limited by the resource in the model, and pale where it passes at less than its rate.
    measured : with as many steps as were run. Returns the axes: time along. Raises PlotError where nothing was run.
    """
    if measured is None or not measured.seconds > 0:
        raise PlotError("no figure: nothing was run.")
    alone = {name: () for name in step.resources}
    both = [_by_name(lanes_of(step, step, alone, one)) for one in (predicted, measured)]
    names = [name for name in both[0] if name in both[1]][: MOST_ROWS // 2]
    if not names:
        raise PlotError("no figure: no resource is used.")
    shown = [lane for name in names for lane in (both[0][name], both[1][name])]
    end = max(predicted.seconds, measured.seconds)
    page = rows_page(ax, len(shown), 9.0)
    unit, unit_name = style.time_unit(end)
    page.limits("x", 0.0, end / unit)
    page.words(page.axes, f"time ({unit_name})")
    ends = (predicted.seconds, measured.seconds)
    kinds = ("schedule", "run")
    set_rows(page, [f"{alike(one.names)}, {kinds[number % 2]}" for number, one in enumerate(shown)],
             [f"at work {share_text(_covered(one) / ends[number % 2])}" for number, one in enumerate(shown)])
    tasks = _names(shown, end)
    for number, name in enumerate(tasks):
        _draw(page.axes, shown, name, tasks, number, unit, end)
    for row in range(1, len(shown) - 1, 2):
        page.axes.axhline(row + 0.5, color=style.now().faint, linewidth=0.6, zorder=0.2, gid="faint")
    entries = [(_shown(name, step, predicted), {"patch": _look(number)}) for number, name in enumerate(tasks)]
    entries.append(("passes at less than the resource's rate", {"patch": _pale({"facecolor": style.now().grey})}))
    notes = [f"{predicted.steps} steps of the schedule and {measured.steps} that were run, from empty buffers"]
    said = f"The schedule takes {format_seconds(predicted.seconds)}, the run {format_seconds(measured.seconds)}"
    return page.finish(said, subject, entries, notes)


def _by_name(lanes: list[Lane]) -> dict[str, Lane]:
    """A lane for each resource by itself."""
    return {name: Lane([name], lane.kind, lane.busy, lane.blocks) for lane in lanes for name in lane.names}


def _covered(lane: Lane) -> float:
    """Seconds in which anything is at work on it."""
    total, reach = 0.0, 0.0
    for start, end, *_ in sorted(lane.blocks):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total
