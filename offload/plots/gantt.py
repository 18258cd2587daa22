"""When each task of a step uses each resource: the schedule that the trace for Perfetto shows, on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import MOST_ROWS, per_second, rows_page, set_rows, share_text
from offload.plots.style import drawn
from offload.plots.subject import alike, at_least, left_out, without_rate
from offload.ranges import fold
from offload.schedules import Timeline, cold_timeline, schedule, steady_timeline
from offload.step import Step, distinct, seconds_of_rows
from offload.topology.shares import DRIVES
from offload.uncounted import uncounted
from offload.units import format_seconds

LANE = 0.74  # of a row: the height of what is drawn in it
FULL = 0.98  # of the time of a task: a resource that is busy for as long limits it
MOST_BLOCKS = 2_000  # of a lane, that are drawn one by one; of more each column is filled where anything is at work
COLUMNS = 1_500
MOST_NAMES = 11  # tasks that are told apart; the further ones, those that take least, have one colour
MOST_ALIKE = 3  # of many lanes, those that differ in numbers alone: the first, one between, the last
WIDE = 110.0  # mm that a lane is about
EDGED = 1.0  # mm: blocks that are wider on average have an edge, which parts them
HATCHES = ("", "////")
OTHERS = "others"
_NUMBER = re.compile(r"\d+")


@dataclass
class Lane:
    """A resource, or several at which the same happens. blocks : (start, end, name, limits, line) of each task on it.

    busy : seconds of work at the sustained rate. lines : how many tasks are beside each other at most.
    """

    names: list[str]
    kind: int
    busy: float = 0.0
    blocks: list[tuple[float, float, str, bool, int]] = field(default_factory=list)

    @property
    def lines(self) -> int:
        return max(line for *_, line in self.blocks) + 1


@drawn
def timeline(
    step: Step, *, steps: int | None = None, until: float | None = None, ax: Any = None, subject: str = ""
) -> Any:
    """A lane for each resource and in it the tasks that use it, by the expected schedule.

    One step alone from empty buffers, or with `steps` as many rounds back to back, from empty buffers too. A task is
    full where it is limited by the resource, and pale where it passes at less than its rate. until : how much of it
    is drawn [s]. Returns the axes: time along. Raises PlotError where nothing happens or rounds would be too long,
    PlanError as `schedule`.
    """
    whole = step
    step, others = distinct(step)
    found = cold_timeline(step) if steps is None else steady_timeline(step, rounds=steps)
    if found is None:
        raise PlotError("no figure: so many steps are too long to lay out, or no round runs as the period says. Draw "
                        "one step alone.")  # fmt: skip
    if not found.seconds > 0:
        raise PlotError("no figure: this step takes no time.")
    lanes = lanes_of(whole, step, others, found)
    shown = _shown_of(lanes)
    if until is not None and not 0 < until:
        raise PlotError("no figure up to a time that is not above 0.")
    end = found.seconds if until is None else min(until, found.seconds)
    page = rows_page(ax, len(shown), 9.0)
    unit, unit_name = style.time_unit(end)
    page.limits("x", 0.0, end / unit)
    page.words(page.axes, f"time ({unit_name})")
    set_rows(page, [alike(one.names) for one in shown],
             [f"busy {share_text(one.busy / found.seconds)}" for one in shown])  # fmt: skip
    names = _names(shown, end)
    for number, name in enumerate(names):
        _draw(page.axes, shown, name, names, number, unit, end)
    for row in range(len(shown) - 1):
        page.axes.axhline(row + 0.5, color=style.now().faint, linewidth=0.6, zorder=0.2, gid="faint")
    entries = [(_shown(name, step, found), {"patch": _look(number)}) for number, name in enumerate(names)]
    entries.append(("passes at less than the resource's rate", {"patch": _pale({"facecolor": style.now().grey})}))
    times = schedule(whole, ends=False)
    notes = [f"By the expected schedule ({times.policy}), from empty buffers",
             f"Busy: at the sustained rate, of {'the time that is drawn' if end == found.seconds else 'all'}"]
    if end < found.seconds:
        notes.insert(0, f"The first {format_seconds(end)} of {format_seconds(found.seconds)}")
    notes += left_out(uncounted(whole))
    if len(lanes) > len(shown):
        notes.append(f"Not drawn: {alike([name for one in lanes if one not in shown for name in one.names])}")
    return page.finish(_finding(whole, found, lanes, times, steps), subject, entries, notes)


def lanes_of(whole: Step, step: Step, others: Any, found: Timeline) -> list[Lane]:
    """A lane for each resource that something uses; those at which the same happens at the same times are one.

    The order is that of a byte's way: drives, their links, host memory, links, GPUs' memory, processors.
    """
    solo = seconds_of_rows(step, "value")
    lanes: dict[Any, Lane] = {}
    users: dict[str, list[int]] = {name: [] for name in step.resources}
    for i in sorted(range(len(found.rows)), key=lambda i: (found.starts[i], i)):
        own_row = found.rows[i]
        if own_row is not None:
            for name in dict.fromkeys(use.resource for use in step.rows[own_row].uses):
                users[name].append(i)
    for name, tasks in users.items():
        lane = Lane([name, *others[name]], _kind(whole, name))
        free: list[float] = []
        for i in tasks:
            start, end = found.starts[i], found.ends[i]
            if not end > start:
                continue
            row = cast(int, found.rows[i])
            line = next((line for line, at in enumerate(free) if at <= start * (1 + 1e-12)), len(free))
            free[line : line + 1] = [end]
            own = solo[row].get(name, 0.0)
            limits = own >= FULL * max(solo[row].values(), default=0.0) and own > 0
            lane.blocks.append((start, end, step.rows[row].name, limits, line))
            lane.busy += own
        if lane.blocks:
            same = (lane.kind, _NUMBER.sub("#", name),
                    tuple((round(a / found.seconds, 9), round(b / found.seconds, 9), _NUMBER.sub("#", task), *rest)
                          for a, b, task, *rest in lane.blocks))  # fmt: skip
            kept = lanes.setdefault(same, lane)
            if kept is not lane:
                kept.names += lane.names
    return sorted(lanes.values(), key=lambda one: one.kind)


def _shown_of(lanes: list[Lane]) -> list[Lane]:
    """The lanes that are drawn: all, or of many alike some, or the busiest."""
    if len(lanes) > MOST_ROWS:
        groups: dict[tuple[int, str], list[Lane]] = {}
        for lane in lanes:
            groups.setdefault((lane.kind, _NUMBER.sub("#", lane.names[0])), []).append(lane)
        lanes = [some[round(place * (len(some) - 1) / (MOST_ALIKE - 1))] if len(some) > MOST_ALIKE else some[place]
                 for some in groups.values() for place in range(min(MOST_ALIKE, len(some)))]  # fmt: skip
    return sorted(sorted(lanes, key=lambda one: -one.busy)[:MOST_ROWS], key=lanes.index)


def _kind(step: Step, name: str) -> int:
    """Where on a byte's way a resource stands."""
    topology, part = step.topology, name.split(".")[0]
    if part in topology.memories:
        kind = topology.memories[part].kind
        return 0 if kind in DRIVES else 5 if kind == "hbm" else 2
    if part in topology.links:
        link = topology.links[part]
        ends = [topology.memories[end].kind for end in (link.a, link.b) if end in topology.memories]
        return 1 if any(kind in DRIVES for kind in ends) else 3
    return 4 if part in topology.limits else 6


def _names(lanes: list[Lane], most: float) -> list[str]:
    """Tasks that begin before a time, by what they are without numbers, the longest first; then the others, if any."""
    total: dict[str, float] = {}
    for lane in lanes:
        for start, end, name, *_ in lane.blocks:
            if start >= most:
                continue
            stem = _NUMBER.sub("#", name)
            total[stem] = total.get(stem, 0.0) + end - start
    names = sorted(total, key=lambda name: -total[name])
    return names if len(names) <= MOST_NAMES + 1 else [*names[:MOST_NAMES], OTHERS]


def _shown(stem: str, step: Step, found: Timeline) -> str:
    """A task in words: those that differ in numbers as a range."""
    rows = dict.fromkeys(step.rows[row].name for row in found.rows if row is not None)
    return fold([name for name in rows if _NUMBER.sub("#", name) == stem]) or stem


def _look(number: int, edged: bool = True) -> dict[str, Any]:
    colours = len(style.now().colours)
    return {"facecolor": style.colour(number), "edgecolor": style.now().paper, "linewidth": 0.4 if edged else 0.0,
            "hatch": HATCHES[number // colours % len(HATCHES)]}  # fmt: skip


def _pale(look: dict[str, Any], edged: bool = True) -> dict[str, Any]:
    from matplotlib.colors import to_hex, to_rgb

    mixed: Any = [0.3 * a + 0.7 * b for a, b in zip(to_rgb(look["facecolor"]), to_rgb(style.now().paper), strict=True)]
    edge = {"edgecolor": look["facecolor"], "linewidth": 0.5 if edged else 0.15}
    return look | edge | {"facecolor": to_hex(mixed)}


def _draw(axes: Any, lanes: list[Lane], name: str, names: list[str], number: int, unit: float, most: float) -> None:
    """All blocks of a task as two shapes: where it is limited, and where it passes."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    for limits in (True, False):
        shapes, widths = [], []
        for row, lane in enumerate(lanes):
            high = LANE / lane.lines
            for start, end, line in _blocks(lane, name, names, limits, most):
                end = min(end, most)
                widths.append((end - start) / most * WIDE)
                x0, x1, y0 = start / unit, end / unit, row - LANE / 2 + line * high
                y1 = y0 + high
                shapes.append(Path([(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], closed=True))
        if shapes:
            edged = sum(widths) / len(widths) > EDGED
            look = _look(number, edged)
            axes.add_patch(PathPatch(Path.make_compound_path(*shapes), zorder=3 if limits else 2.5,
                                     label=f"{name}: {'limited' if limits else 'passes'}",
                                     **(look if limits else _pale(look, edged))))  # fmt: skip


def _blocks(
    lane: Lane, name: str, names: list[str], limits: bool, most: float
) -> Iterator[tuple[float, float, int]]:
    def mine(task: str) -> bool:
        stem = _NUMBER.sub("#", task)
        return stem == name or (name == OTHERS and stem not in names)

    found = [(start, end, line) for start, end, task, full, line in lane.blocks
             if full == limits and start < most and mine(task)]  # fmt: skip
    if len(lane.blocks) <= MOST_BLOCKS:
        yield from found
        return
    # Columns that hold any of it, put together where they touch.
    for line in sorted({line for *_, line in found}):
        spans = [(start, min(end, most)) for start, end, at in found if at == line]
        taken = sorted({column for start, end in spans
                        for column in range(int(start / most * COLUMNS), int(end / most * COLUMNS) + 1)})  # fmt: skip
        first = None
        for place, column in enumerate(taken):
            first = column if first is None else first
            if place + 1 == len(taken) or taken[place + 1] > column + 1:
                yield first / COLUMNS * most, min(1.0, (column + 1) / COLUMNS) * most, line
                first = None


def _finding(step: Step, found: Timeline, lanes: list[Lane], times: Any, steps: int | None) -> str:
    busiest = max(lanes, key=lambda one: one.busy)
    name, verb = alike(busiest.names), "is" if len(busiest.names) == 1 else "are each"
    share = share_text(busiest.busy / found.seconds)
    if open_ := uncounted(step):
        many = "One step alone takes" if steps is None else f"{found.steps} steps back to back take"
        return f"{many} {at_least(open_, found.seconds)}; its length is open: {without_rate(open_)}"
    if steps is None:
        return f"One step alone takes {format_seconds(found.seconds)}; {name} {verb} busy for {share} of it"
    rate = f" ({per_second(float(step.plan.tokens), times.seconds)})" if times.seconds > 0 else ""
    return (f"{found.steps} steps back to back take {format_seconds(found.seconds)}, in the long run "
            f"{format_seconds(times.seconds)} each{rate}; {name} {verb} busy for {share}")  # fmt: skip


