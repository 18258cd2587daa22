"""How long each resource is busy in a step: what is certain of it at its peak rate, what is expected at the sustained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import MOST_ROWS, at_end, grouped, near, per_second, rows_page, set_rows, share_text
from offload.plots.style import drawn
from offload.plots.subject import alike, left_out, subject, without_rate, workload
from offload.study import ResourceRow, Study
from offload.units import format_bytes, format_flop, format_flops, format_rate, format_seconds

ROOM = 1.16
HALF = 0.36  # of a row: the height of a bar


@drawn
def load_bars(study: Study, *, ax: Any = None) -> Any:
    """The time that each resource needs for its loads of a step: least loads at the peak rate, expected ones at the
    sustained rate; the busiest first, those that are alike in one row.

    No step is shorter than the longest bar at a peak rate. Returns the axes: time along. Raises PlotError where a step
    loads nothing.
    """
    rows = _rows(study)
    shown = rows[:MOST_ROWS]
    page = rows_page(ax, len(shown), 11.0)
    times = [time for one in shown for time in (one[0].peak_seconds, one[0].sustained_seconds) if time]
    longest = max([*times, study.overlapped.seconds, study.floor.seconds])
    unit, unit_name = style.time_unit(longest)
    page.limits("x", 0.0, longest * ROOM / unit)
    page.words(page.axes, f"busy in each step ({unit_name})")
    set_rows(page, [alike([one.name for one in group]) for group in shown], [_amount(group[0]) for group in shown])
    axes = page.axes
    if study.floor.seconds > 0:
        axes.axvspan(0, study.floor.seconds / unit, zorder=0.4, label="impossible", **style.forbidden())
        axes.axvline(study.floor.seconds / unit, color=style.now().ink, linewidth=1.2, zorder=2, gid="faint")
        page.above(f"floor\n{_told(study, study.floor.seconds, least=True)}", study.floor.seconds / unit)
    interval = study.overlapped.low < study.overlapped.high and not study.uncounted
    if interval:
        axes.axvspan(study.overlapped.low / unit, study.overlapped.high / unit, zorder=0.6, label="interval",
                     **style.band())  # fmt: skip
    sign = ">= " if study.uncounted else ""
    page.above(f"expected step\n{sign}{_told(study, study.overlapped.seconds)}", study.overlapped.seconds / unit)
    for row, group in enumerate(shown):
        _bars(page, row, group[0], unit)
    entries = [(f"least loads, peak rate{words}", {"patch": _peak(binds)})
               for binds, words in ((False, ""), (True, ": binds the floor"))
               if any(one[0].binding == binds and one[0].peak_seconds for one in shown)]  # fmt: skip
    entries.append(("expected loads, sustained rate", {"patch": _sustained()}))
    if study.floor.seconds > 0:
        entries.append(("no step ends here", {"patch": style.forbidden()}))
    if interval:
        entries.append(("expected step, its interval", {"patch": style.band()}))
    notes = [workload(study.workload).capitalize(), "Back-to-back steps"]
    notes += left_out(study.uncounted)
    if any(one[0].peak_seconds is None for one in shown):
        notes.append("Without a full bar no peak rate is known, and nothing is certain of it")
    if len(rows) > len(shown):
        most = max(one[0].sustained_seconds or 0.0 for one in rows[MOST_ROWS:])
        names = alike([one.name for group in rows[MOST_ROWS:] for one in group])
        notes.append(f"Not drawn, none busy for more than {format_seconds(most)}: {names}")
    return page.finish(_finding(study, rows), subject(study), entries, notes)


def _rows(study: Study) -> list[list[ResourceRow]]:
    """The rows of what is loaded; those with the same figures, that a range may stand for, together."""
    loaded = [one for one in study.resources if one.load or one.least]
    if not loaded:
        raise PlotError("no figure: this step loads nothing.")
    return grouped(loaded, lambda one: (one.kind, one.unit, one.binding, near(one.load), near(one.peak_seconds),
                                        near(one.sustained_seconds)))  # fmt: skip


def _peak(binds: bool) -> dict[str, Any]:
    colour = style.colour(1 if binds else 0)
    return {"facecolor": colour, "edgecolor": style.now().ink if binds else colour, "linewidth": 1.2 if binds else 0.6}


def _sustained() -> dict[str, Any]:
    return {"facecolor": style.now().paper, "edgecolor": style.now().ink, "linestyle": (0, (3, 1.5)), "linewidth": 1.1}


def _bars(page: Any, row: int, one: ResourceRow, unit: float) -> None:
    for seconds, up, look, name in ((one.peak_seconds, -HALF / 2, _peak(one.binding), "peak"),
                                    (one.sustained_seconds, HALF / 2, _sustained(), "sustained")):  # fmt: skip
        if seconds is None:
            continue
        page.axes.barh([row + up], [seconds / unit], height=HALF, zorder=3, label=f"{name}: {one.name}", **look)
        rate = one.peak if name == "peak" else one.sustained
        shown = format_flops if one.unit == "FLOP" else format_rate
        at = f" at {shown(rate)}" if rate and one.unit != "s" else ""
        assumed = " (assumed)" if name == "sustained" and one.assumed else ""
        at_end(page, row + up, 0.0, seconds / unit, f"{format_seconds(seconds)}{at}{assumed}", size=style.LETTERS - 2)


def _amount(one: ResourceRow) -> str:
    """The expected load in words."""
    known = {"B": format_bytes, "FLOP": format_flop}
    return known.get(one.unit, format_seconds)(one.load)


def _told(study: Study, seconds: float, least: bool = False) -> str:
    rate = study.tokens_per_s.floor if least else study.tokens_per_s.overlapped
    return format_seconds(seconds) if not rate else f"{format_seconds(seconds)}, {per_second(rate, 1.0)}"


def _finding(study: Study, rows: Sequence[Sequence[ResourceRow]]) -> str:
    first = rows[0]
    name, verb = alike([one.name for one in first]), "is" if len(first) == 1 else "are each"
    if study.uncounted:
        busy = format_seconds(first[0].sustained_seconds or 0.0)
        return f"{name} {verb} busy for {busy} of a step; its length is open: {without_rate(study.uncounted)}"
    busy = f"{name} {verb} busy for {share_text(first[0].share)} of the expected step" if first[0].share else name
    if len(rows) == 1:
        return f"{busy}, and nothing else is"
    second = rows[1]
    other = alike([one.name for one in second])
    return f"{busy}, {other} for {share_text(second[0].share or 0.0)}"
