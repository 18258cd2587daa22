"""Published measurements against what the model says of them, with the half in which no floor may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from offload.errors import PlotError
from offload.plots import style
from offload.plots.page import Page
from offload.plots.style import drawn
from offload.printing import clean
from offload.scores import summary
from offload.units import format_share, many
from offload.validation import Outcome

KINDS = {"weight_stream": "weights streamed", "disk_stream": "streamed from drives", "cpu_exec": "computed at the host",
         "kv_offload": "KV cache elsewhere", "unified_mem": "unified memory", "training": "training",
         "collective": "collectives", "raw_link": "links alone"}  # fmt: skip
UP = 132.0  # mm
FAR = 0.12  # of the axes: marks of one source that are further apart each have its number
ROOM = 1.6  # in ratios, round the furthest dots
LINE = 30  # letters that a line of notes holds at least: with as many lines every source is told
MOST = 8  # lines of notes beside those
CROWD = 20  # sources; of more each has its number once, at its middle mark, so that no maze of lines leads to them


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
    left = min(one.measured for one in outcomes) / ROOM
    page.limits("x", left, high, log=True, text=_time)
    page.limits("y", low, high, log=True, text=_time)
    page.words(axes, "measured time of a step", "floor and expected time of a step")
    axes.fill_between([left, high], [left, high], high, zorder=0.4, label="no floor", **style.forbidden())
    axes.plot([left, high], [left, high], color=style.now().ink, linewidth=1.0, zorder=1, gid="faint", label="equal")
    kinds = [kind for kind in KINDS if any(one.case.kind == kind for one in outcomes)]
    kinds += sorted({one.case.kind for one in outcomes} - set(kinds))
    _floors(axes, [one for one in outcomes if one.floor > 0])
    for number, kind in enumerate(kinds):
        _marks(axes, [one for one in outcomes if one.case.kind == kind], number, kind)
    sources = numbered(outcomes)
    apart = FAR if len(sources) <= CROWD else 2.0
    for source, number in sources.items():
        for one in _apart([one for one in outcomes if source_of(one) == source], math.log(high / left), apart):
            page.beside(one.measured, one.informed, str(number), [(1, -1), (-1, 1), (1, 0), (-1, 0)],
                        size=style.LETTERS - 2, color=style.now().grey)  # fmt: skip
    entries = [(KINDS.get(kind, kind), _look(number)) for number, kind in enumerate(kinds)]
    entries += [("its floor", _floor_look()), ("no floor is allowed here", {"patch": style.forbidden()})]
    if any(one.case.trap for one in outcomes):
        entries.append(("published figure known to be wrong", _look(0, hollow=True) | {"color": style.now().ink}))
    notes = ["A mark stands at the expected time with the rates that its source states, a line leads to its floor"]
    if apart > FAR:
        notes.append("A number stands at the middle one of its source")
    notes += [f"({number}) {clean(source)}" for source, number in sources.items()]
    return page.finish(_finding(outcomes), _counted(outcomes, sources), entries,
                       notes, most=MOST + sum(map(len, notes)) // LINE)  # fmt: skip


def _counted(outcomes: Sequence[Outcome], sources: dict[str, int]) -> str:
    traps = sum(bool(one.case.trap) for one in outcomes)
    wrong = f", {traps} of them known to be wrong" if traps and len(outcomes) > traps else ""
    return f"{many(len(outcomes), 'published measurement')} of {many(len(sources), 'source')}{wrong}"


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


def _apart(outcomes: list[Outcome], whole: float, apart: float) -> list[Outcome]:
    """Those of one source that get its number: the middle one, and others that are far from all that have it."""
    order = sorted(outcomes, key=lambda one: one.measured)
    kept: list[Outcome] = []
    for one in (order[len(order) // 2], *order):
        if all(math.hypot(math.log(one.measured / other.measured), math.log(one.informed / other.informed))
               > apart * whole for other in kept):  # fmt: skip
            kept.append(one)
    return kept


def _floors(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """All floors, and all lines from expected times to them, as one of each."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    look = _floor_look()
    stems = [Path([(one.measured, one.informed), (one.measured, one.floor)]) for one in outcomes]
    if stems:
        axes.add_patch(PathPatch(Path.make_compound_path(*stems), zorder=2, facecolor="none", label="stems",
                                 edgecolor=look["color"], linewidth=look["linewidth"]))  # fmt: skip
    axes.plot([one.measured for one in outcomes], [one.floor for one in outcomes], zorder=2, label="floors",
              **look | {"linestyle": "none", "markevery": None})  # fmt: skip


def _marks(axes: Any, outcomes: Sequence[Outcome], number: int, kind: str) -> None:
    """A mark for each case; in an .svg it leads to where the figure was published."""
    for hollow in (False, True):
        some = [one for one in outcomes if bool(one.case.trap) == hollow]
        if some:
            look = _look(number, hollow)
            axes.scatter([one.measured for one in some], [one.informed for one in some], zorder=5,
                         label=f"{kind}{': traps' * hollow}", marker=look["marker"], s=look["markersize"] ** 2,
                         facecolors=look["markerfacecolor"], edgecolors=look["markeredgecolor"],
                         linewidths=look["markeredgewidth"],
                         urls=[one.case.source.url for one in some])  # fmt: skip


def _finding(outcomes: Sequence[Outcome]) -> str:
    found = summary(outcomes)
    real = found.cases - found.traps
    if not real:
        return f"{found.traps} published figures that are known to be wrong"
    held = "no floor is above its measurement" if not found.failed else (
        f"{found.failed} of {real} floors are above their measurement: an input is wrong")
    text = f"Of {real} published measurements {held}" if not found.failed else held[0].upper() + held[1:]
    if real == 1 and not found.failed:
        text = "The floor is not above what was measured"
    errors = next((one for one in found.errors if one.of == "plans"), None)
    if errors is None:
        return text
    times = "expected times of offloading plans are off by" if real > 1 else "the expected time is off by"
    return f"{text}; {times} {format_share(errors.informed[0].median, 2)}{' (median)' * (real > 1)}"
