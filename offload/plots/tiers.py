"""What lies in each memory: parts on top of each other, against what it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import MOST_ROWS, grouped, rows_page, set_rows, share_text
from offload.plots.style import drawn
from offload.plots.subject import alike, subject
from offload.study import MemoryRow, Study
from offload.units import format_bytes

HATCHES = ("", "////", "....", "\\\\\\\\")  # a second way to tell parts apart, and the only one from the seventh on
EDGED = 1.0  # % of a memory: thinner parts have no edge, which would hide them
MOST_PARTS = 8  # that are told apart; of more those that differ in numbers are one
_NUMBER = re.compile(r"\d+")


@drawn
def memory_stack(study: Study, *, ax: Any = None) -> Any:
    """The bytes in each memory by part, as a share of its capacity; what does not fit reaches beyond it, hatched.

    Memories of unknown capacity show the parts of what they hold, without a border. Returns the axes: % along.
    Raises PlotError where the plan holds nothing in memories.
    """
    groups = _groups(study)
    if not groups:
        raise PlotError("no figure: this plan says of no memory what lies in it.")
    shown = groups[:MOST_ROWS]
    page = rows_page(ax, len(shown), 10.0)
    most = max([100.0 * one[0].used / one[0].capacity for one in shown if one[0].capacity] + [100.0])
    page.limits("x", 0.0, most * 1.02, most=8)
    page.words(page.axes, "share of the memory's capacity (%)")
    set_rows(page, [alike([one.name for one in group]) for group in shown], [_told(group) for group in shown])
    held = [part for group in shown for part in group[0].parts]
    named = _named(held)
    parts = list(dict.fromkeys(named.values()))
    for row, group in enumerate(shown):
        _stack(page.axes, row, group[0], parts, named)
    if most > 100:
        page.axes.axvspan(100, most * 1.02, zorder=0.4, label="beyond", **style.forbidden())
    entries = [(part, {"patch": _look(number)}) for number, part in enumerate(parts)]
    if any(one[0].capacity for one in shown):
        entries.append(("capacity", {"patch": {"facecolor": "none", "edgecolor": style.now().ink, "linewidth": 1.2}}))
    if most > 100:
        entries.append(("does not fit", {"patch": style.forbidden()}))
    notes = [f"Of unknown capacity: {alike([one.name for group in shown for one in group if one.capacity is None])}"
             if any(group[0].capacity is None for group in shown) else "", study.first_limit]  # fmt: skip
    if len(groups) > len(shown):
        notes.append(f"Not drawn, as none is as full: {alike([o.name for g in groups[MOST_ROWS:] for o in g])}")
    return page.finish(_finding(study, groups), subject(study), entries, notes)


def _groups(study: Study) -> list[list[MemoryRow]]:
    """Memories that hold the same together, the fullest first."""
    held = [one for one in study.memory if one.used or one.missing]
    groups = grouped(held, lambda one: (one.capacity, one.missing, tuple(one.parts.items())))
    return sorted(groups, key=lambda group: -(group[0].used / group[0].capacity if group[0].capacity else 0.0))


def _look(number: int) -> dict[str, Any]:
    colours = len(style.now().colours)
    return {"facecolor": style.colour(number), "edgecolor": style.now().paper, "linewidth": 0.6,
            "hatch": HATCHES[number // colours % len(HATCHES)]}  # fmt: skip


def _named(parts: list[str]) -> dict[str, str]:
    """The name of each part in the legend: its own, or of many the range that it is in."""
    if len(set(parts)) <= MOST_PARTS:
        return {part: part for part in parts}
    stems = {part: _NUMBER.sub("#", part) for part in parts}
    shown = {stem: alike([part for part in dict.fromkeys(parts) if stems[part] == stem]) for stem in stems.values()}
    return {part: shown[stem] for part, stem in stems.items()}


def _stack(axes: Any, row: int, one: MemoryRow, parts: list[str], named: Mapping[str, str]) -> None:
    whole = one.capacity or one.used
    together: dict[str, float] = {}
    for part, amount in one.parts.items():
        together[named[part]] = together.get(named[part], 0) + amount
    at = 0.0
    for part, size in together.items():
        share = 100.0 * size / whole
        look = _look(parts.index(part))
        axes.barh([row], [share], left=at, height=0.6, zorder=3, label=f"{one.name}: {part}",
                  **look | ({} if share > EDGED else {"linewidth": 0.0}))  # fmt: skip
        at += share
    if one.capacity:
        axes.barh([row], [100.0], height=0.6, zorder=2.9, label=f"{one.name}: capacity", facecolor="none",
                  edgecolor=style.now().ink, linewidth=1.2)  # fmt: skip


def _told(group: list[MemoryRow]) -> str:
    one, each = group[0], " each" if len(group) > 1 else ""
    if one.capacity is None:
        return f"{format_bytes(one.used)}{each}"
    return f"{format_bytes(one.used)} of {format_bytes(one.capacity)}{each}"


def _finding(study: Study, groups: list[list[MemoryRow]]) -> str:
    if lacking := [group for group in groups if group[0].missing]:
        first = max(lacking, key=lambda group: group[0].missing)
        each = " each" if len(first) > 1 else ""
        verb = "lacks" if len(first) == 1 else "lack"
        return f"It does not fit: {alike([one.name for one in first])} {verb} {format_bytes(first[0].missing)}{each}"
    sized = [group for group in groups if group[0].capacity]
    if not sized:
        return f"{alike([one.name for one in groups[0]])} holds {format_bytes(groups[0][0].used)}"
    group = sized[0]
    one, capacity = group[0], cast(int, group[0].capacity)
    verb, each = ("is", "") if len(group) == 1 else ("are", " in each")
    return (f"It fits: {alike([o.name for o in group])} {verb} the fullest, {share_text(one.used / capacity)} "
            f"of {format_bytes(capacity)}, with {format_bytes(capacity - one.used)} left{each}")  # fmt: skip
