"""How near the model comes to many published measurements: counts, and how far expected times are off, by kind.

By row every published figure counts once; by entry every published table does, whatever it has of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from offload.validation import PLANS, Outcome

MOST = 0.9  # the share of cases that the larger of two errors is told of


@dataclass(frozen=True, slots=True)
class Off:
    """Of some cases |expected / measured - 1| [1]: its median, the 90th percentile, and the share within the interval.

    By entry each published table counts with the median of its rows, and with the share of them that are inside.
    """

    median: float
    most: float
    inside: float


@dataclass(frozen=True, slots=True)
class Errors:
    """How far expected times are off, traps left out.

    of : "all", "plans", either with ", strength A", or a kind. judged : False of what no plan of an offload is judged
    by (a collective or a link alone). strength : the strengths of its rows, "A" or "A, C". cases, entries : how many.
    held : how many cases have the floor at most what was measured. blind, informed : over rows, and over entries; with
    servers' files alone, and with stated rates.
    """

    of: str
    judged: bool
    strength: str
    cases: int
    entries: int
    held: int
    blind: tuple[Off, Off]
    informed: tuple[Off, Off]


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of cases, and over those that are no trap the ends and the median of the ratios (None without any).

    errors : over all kinds and over those that a plan is for (`PLANS`), each also of strength A alone, and over each
    kind by itself.
    """

    cases: int
    held: int
    failed: int
    traps: int
    floor_ratio: tuple[float, float, float] | None
    schedule_ratio: tuple[float, float, float] | None
    informed_ratio: tuple[float, float, float] | None
    errors: tuple[Errors, ...]


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """Counts and ratios over all outcomes."""
    real = [one for one in outcomes if not one.case.trap]
    return Summary(
        len(outcomes),
        sum(one.holds for one in real),
        sum(one.failed for one in real),
        len(outcomes) - len(real),
        _spread([one.floor_ratio for one in real if one.floor > 0]),
        _spread([one.schedule_ratio for one in real]),
        _spread([one.informed_ratio for one in real]),
        _errors(real),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share [1] of them is below, on the line between the two next to it (as numpy has it)."""
    order = sorted(values)
    place = share * (len(order) - 1)
    below = int(place)
    above = min(below + 1, len(order) - 1)
    return order[below] + (order[above] - order[below]) * (place - below)


def _errors(outcomes: Sequence[Outcome]) -> tuple[Errors, ...]:
    plans = [one for one in outcomes if one.case.kind in PLANS]
    others = sorted({one.case.kind for one in outcomes} - set(PLANS))
    parts = {"all": outcomes, "all, strength A": [one for one in outcomes if one.case.strength == "A"],
             "plans": plans, "plans, strength A": [one for one in plans if one.case.strength == "A"]}  # fmt: skip
    parts |= {kind: [one for one in outcomes if one.case.kind == kind] for kind in (*PLANS, *others)}
    return tuple(_errors_of(name, some, name not in others) for name, some in parts.items() if some)


def _errors_of(name: str, outcomes: Sequence[Outcome], judged: bool) -> Errors:
    entries: dict[str, list[Outcome]] = {}
    for one in outcomes:
        entries.setdefault(one.case.entry, []).append(one)

    def off(ratio: Callable[[Outcome], float], informed: bool) -> tuple[Off, Off]:
        rows = [abs(ratio(one) - 1) for one in outcomes]
        by_entry = [median(abs(ratio(one) - 1) for one in some) for some in entries.values()]
        inside = [fmean(one.inside[informed] for one in some) for some in (outcomes, *entries.values())]
        return (Off(median(rows), percentile(rows, MOST), inside[0]),
                Off(median(by_entry), percentile(by_entry, MOST), fmean(inside[1:])))  # fmt: skip

    strengths = ", ".join(sorted({one.case.strength for one in outcomes}))
    return Errors(name, judged, strengths, len(outcomes), len(entries), sum(one.holds for one in outcomes),
                  off(lambda one: one.schedule_ratio, False), off(lambda one: one.informed_ratio, True))  # fmt: skip


def _spread(ratios: Sequence[float]) -> tuple[float, float, float] | None:
    return (min(ratios), median(ratios), max(ratios)) if ratios else None
