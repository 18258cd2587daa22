"""A measured time as a sum of terms, from the load floor down to what nothing explains."""

from __future__ import annotations

from typing import Any, cast

from offload.measured import ABOVE, FAR_BELOW
from offload.plots import style
from offload.plots.bars import at_end, per_second, rows_page, set_rows, share_text
from offload.plots.style import drawn
from offload.plots.subject import left_out, without_rate
from offload.printing import clean
from offload.ranges import fold
from offload.units import format_seconds, format_share
from offload.why.waterfall import Term, Waterfall

TOLD = {
    "load floor": "least loads at peak rates", "order": "tasks that wait for each other",
    "sustained": "expected loads at sustained rates", "contention": "tasks that share a resource",
    "hand-overs": "latencies and times that are given", "unexplained": "what no input of the model accounts for",
}  # fmt: skip
OF = {"step": "step", "pass": "step alone", "prompt": "prompt", "request": "request"}
NOISE = 1e-9  # of the measured time: less is left of two equal times by rounding
ROOM = 1.14  # of the longest bar: the right border


@drawn
def waterfall(
    found: Waterfall, *, ax: Any = None, subject: str = "", tokens: float | None = None, source: str = ""
) -> Any:
    """The terms of a measured time, each behind the one before it; the unexplained one is always among them.

    found : from `offload.why`. tokens : that this time yields. source : who measured it. A term below zero goes back,
    and the notes say why. Left of the floor no time is possible. Returns the axes: time along, a row for each term.
    """
    page = rows_page(ax, len(found.terms) + 1)
    unit, unit_name = style.time_unit(max(found.measured, found.expected))
    ends = [term.until for term in found.terms] + [found.measured, found.high]
    page.limits("x", 0.0, max(ends) * ROOM / unit)
    page.words(page.axes, f"time of a {OF[found.of]} ({unit_name})")
    set_rows(page, [*(term.name for term in found.terms), "measured"])
    _behind(page, found, unit)
    for row, term in enumerate(found.terms):
        _bar(page, row, found.terms[row - 1].until if row else 0.0, term, unit)
    last = len(found.terms)
    page.axes.barh([last], [found.measured / unit], height=0.62, color=style.now().grey, zorder=3, label="measured")
    page.axes.plot([found.measured / unit], [last], zorder=8, label="measured mark", **style.measured())
    at_end(page, last, 0.0, found.measured / unit, format_seconds(found.measured), weight="bold")
    marks = [("expected", found.expected), ("measured", found.measured)]
    for name, seconds in ([] if found.floor is None else [("floor", found.floor)]) + marks:
        told = format_seconds(seconds) if tokens is None else per_second(tokens, seconds)
        if found.uncounted and name == "expected":
            told = f"at least {format_seconds(seconds)}"
        page.above(f"{name}\n{told}", seconds / unit)
    entries = [("certain: at peak rates", {"patch": _look(found.terms[0])}),
               ("expected: at sustained rates", {"patch": _look(found.terms[2])}),
               ("unexplained", {"patch": _look(found.terms[-1])}),
               ("expected, from fast to slow rates", {"patch": style.band()})]  # fmt: skip
    if found.floor is not None:
        entries.append(("no time is possible here", {"patch": style.forbidden()}))
    return page.finish(_finding(found), subject, entries, _notes(found, source))


def _look(term: Term) -> dict[str, Any]:
    """Floors are full, what is expected is light with a dashed edge, what is not explained is crossed out."""
    if term.grade == "floor":
        return {"facecolor": style.colour(0), "edgecolor": style.colour(0), "linewidth": 1.0}
    if term.grade == "measured":
        return {"facecolor": style.now().paper, "edgecolor": style.colour(1), "hatch": "xxxx", "linewidth": 1.4}
    return {"facecolor": style.colour(4), "edgecolor": style.colour(0), "linestyle": (0, (3, 1.5)), "linewidth": 1.0}


def _behind(page: Any, found: Waterfall, unit: float) -> None:
    axes = page.axes
    if found.floor is not None:
        axes.axvspan(0, found.floor / unit, zorder=0.4, label="impossible", **style.forbidden())
    axes.axvspan(found.low / unit, found.high / unit, zorder=0.6, label="interval", **style.band())


def _bar(page: Any, row: int, before: float, term: Term, unit: float) -> None:
    axes = page.axes
    low, high = sorted((before / unit, term.until / unit))
    axes.barh([row], [(term.until - before) / unit], left=before / unit, height=0.62, zorder=3, label=term.name,
              **_look(term))  # fmt: skip
    axes.plot([low, low], [row - 0.31, row + 0.31], color=_look(term)["edgecolor"], linewidth=1.4, zorder=3.5,
              gid="faint")  # fmt: skip
    axes.plot([term.until / unit] * 2, [row - 0.31, row + 1.31], color=style.now().grey, linewidth=0.9, zorder=2,
              gid="faint", label="so far")  # fmt: skip
    at_end(page, row, low, high, _told(term, row > 0), weight="bold" if term.grade == "measured" else "normal")


def _told(term: Term, signed: bool) -> str:
    """A term and its share of the measured time, in words."""
    if _is_noise(term):
        return "0 s"
    minus = "-" if term.seconds < 0 else ""
    sign = minus or "+" * signed
    return f"{sign}{format_seconds(abs(term.seconds))} ({minus}{share_text(abs(term.share))})"


def _is_noise(term: Term) -> bool:
    """Whether a term is what rounding leaves of a difference."""
    return abs(term.share) < NOISE


def _finding(found: Waterfall) -> str:
    measured, left = format_seconds(found.measured), found.terms[-1]
    if found.contradicts:
        least = format_seconds(cast(float, found.floor))
        return f"{measured} contradicts physics: no {OF[found.of]} takes less than {least}"
    floor = f"The load floor is {share_text(found.terms[0].share)} of the measured {measured}"
    if not found.terms[0].seconds > 0:
        floor = f"No floor of the measured {measured} is proved"
    if found.uncounted:
        return f"{floor}; what to expect is open: {without_rate(found.uncounted)}"
    if left.seconds < 0:
        return f"{floor}; it ran {format_share(-left.share, 2)} faster than expected"
    return f"{floor}, and {share_text(left.share)} of it stays unexplained"


def _notes(found: Waterfall, source: str) -> list[str]:
    notes = [f"{name.capitalize()}: {told}" for name, told in TOLD.items()]
    if found.binding:
        notes.append(f"What binds the floor: {clean(fold(found.binding))}")
    notes += [f"{term.name.capitalize()} is below zero: {term.why}" for term in found.terms
              if term.why and not _is_noise(term)]  # fmt: skip
    notes += left_out(found.uncounted)
    if source:
        notes.append(f"Measured: {clean(source)}")
    told = {ABOVE: "It contradicts physics", FAR_BELOW: "It is far slower than expected"}
    verdict = told.get(found.verdict, f"It is {found.verdict}")
    return [*([] if found.uncounted and found.verdict != ABOVE else [verdict]), *notes]
