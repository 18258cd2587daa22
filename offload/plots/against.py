"""Published measurements against what the model says of them, with the half in which no floor may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from offload.errors import PlotError
from offload.plots import style
from offload.plots.page import Page
from offload.plots.style import drawn
from offload.printing import clean
from offload.units import format_share
from offload.validation import Outcome, summary

KINDS = {"weight_stream": "weights streamed", "disk_stream": "streamed from drives", "cpu_exec": "computed at the host",
         "kv_offload": "KV cache elsewhere", "unified_mem": "unified memory", "training": "training",
         "collective": "collectives", "raw_link": "links alone"}  # fmt: skip
UP = 132.0  # mm
ROOM = 1.6  # in ratios, round the furthest dots
MOST_NOTES = 30  # lines: every source is told


@drawn
def predicted(outcomes: Sequence[Outcome], *, ax: Any = None) -> Any:
    """Floor and expected time of published cases over the time that was measured, log-log, each with its source.

    outcomes : of `run_case`. A case is a mark at its expected time, by its kind, with a line down to its floor. Above
    the diagonal no floor may be. Numbers are those of the sources, which are told under the figure. Cases whose
    published figure is known to be wrong (a trap) are hollow. Returns the axes. Raises PlotError without any.
    """
    if not outcomes:
        raise PlotError("no figure: there is no case to draw.")
    page = Page(ax, UP)
    axes = page.axes
    times = [time for one in outcomes for time in (one.measured, one.informed, one.floor) if time > 0]
    low, high = min(times) / ROOM, max(times) * ROOM
    page.limits("x", low, high, log=True, text=_time)
    page.limits("y", low, high, log=True, text=_time)
    page.words(axes, "measured time of a step", "floor and expected time of a step")
    axes.fill_between([low, high], [low, high], high, zorder=0.4, label="no floor", **style.forbidden())
    axes.plot([low, high], [low, high], color=style.now().ink, linewidth=1.0, zorder=1, gid="faint", label="equal")
    kinds = [kind for kind in KINDS if any(one.case.kind == kind for one in outcomes)]
    kinds += sorted({one.case.kind for one in outcomes} - set(kinds))
    for number, kind in enumerate(kinds):
        _marks(axes, [one for one in outcomes if one.case.kind == kind], number, kind)
    sources = numbered(outcomes)
    for source, number in sources.items():
        own = sorted((one for one in outcomes if source_of(one) == source), key=lambda one: one.measured)
        one = own[len(own) // 2]
        page.beside(one.measured, one.informed, str(number), [(1, -1), (-1, 1), (1, 0), (-1, 0)],
                    size=style.LETTERS - 2, color=style.now().grey)  # fmt: skip
    entries = [(KINDS.get(kind, kind), _look(number)) for number, kind in enumerate(kinds)]
    entries += [("its floor", _floor_look()), ("no floor is allowed here", {"patch": style.forbidden()})]
    if any(one.case.trap for one in outcomes):
        entries.append(("published figure known to be wrong", _look(0, hollow=True) | {"color": style.now().ink}))
    notes = ["A mark stands at the expected time with the rates that its source states, a line leads to its floor"]
    notes += [f"{number} {clean(source)}" for source, number in sources.items()]
    return page.finish(_finding(outcomes), f"{len(outcomes)} published measurements of {len(sources)} sources", entries,
                       notes, most=MOST_NOTES)  # fmt: skip


def source_of(one: Outcome) -> str:
    """Who published it, in words: the title and the address without its path, or the repository."""
    source = one.case.source
    where = source.repo or urlsplit(source.url).netloc.removeprefix("www.")
    return f"{source.title} ({where})" if where else source.title


def numbered(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """The number of each source, in the order of the shortest time that was measured."""
    order = sorted(outcomes, key=lambda one: one.measured)
    return {source: number for number, source in enumerate(dict.fromkeys(source_of(one) for one in order), 1)}


def _time(seconds: float) -> str:
    unit, name = style.time_unit(seconds * (1 + 1e-9))
    return f"{seconds / unit:.4g} {name}"


def _look(number: int, hollow: bool = False) -> dict[str, Any]:
    colour = style.colour(number)
    return {"color": colour, "linestyle": "none", "marker": style.MARKERS[number % len(style.MARKERS)],
            "markersize": 5.5, "markeredgecolor": colour if hollow else style.now().paper,
            "markerfacecolor": style.now().paper if hollow else colour,
            "markeredgewidth": 1.1 if hollow else 0.5}  # fmt: skip


def _floor_look() -> dict[str, Any]:
    return {"color": style.now().grey, "linestyle": "solid", "linewidth": 0.8, "marker": "_", "markersize": 5,
            "markevery": [1]}  # fmt: skip


def _marks(axes: Any, outcomes: Sequence[Outcome], number: int, kind: str) -> None:
    for one in outcomes:
        if one.floor > 0:
            axes.plot([one.measured] * 2, [one.informed, one.floor], zorder=2, label=f"floor: {one.id}",
                      **_floor_look())  # fmt: skip
    for hollow in (False, True):
        some = [one for one in outcomes if bool(one.case.trap) == hollow]
        if some:
            axes.plot([one.measured for one in some], [one.informed for one in some], zorder=5,
                      label=f"{kind}{': traps' * hollow}", **_look(number, hollow))  # fmt: skip


def _finding(outcomes: Sequence[Outcome]) -> str:
    found = summary(outcomes)
    real = found.cases - found.traps
    if not real:
        return f"{found.traps} published figures that are known to be wrong"
    held = "no floor is above its measurement" if not found.failed else (
        f"{found.failed} of {real} floors are above their measurement: an input is wrong")
    text = f"Of {real} published measurements {held}" if not found.failed else held[0].upper() + held[1:]
    errors = found.errors[0] if found.errors and found.errors[0].of == "plans" else None
    if errors is None:
        return text
    return f"{text}; expected times of offloading plans are off by {format_share(errors.informed[0], 2)} (median)"
