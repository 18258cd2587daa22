"""Outcomes of cases as a table for a person and as data for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from offload import __version__
from offload.printing import and_text, number_text, write_heading, write_line, write_table
from offload.rankings import Ranking, rankings
from offload.units import format_seconds
from offload.validation import PLANS, Errors, Outcome, Summary, summary

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away


def write_validation(outcomes: Sequence[Outcome], unread: int, console: Console) -> None:
    """Print the table of outcomes, what is to be said of single cases, and a summary.

    unread : files and cases without an outcome.
    """
    headings = ["case", "floor", "expected", "measured", "floor/m", "exp/m", "stated/m", "binding", "str."]
    bold = {index for index, one in enumerate(outcomes) if one.failed}
    write_table(console, headings, [_row(one) for one in outcomes], right={1, 2, 3, 4, 5, 6}, bold=bold)
    told = ("Times are of one step. floor/m, exp/m: the floor and the expected time over the measured one. stated/m: "
            "exp/m with the rates that the source states. str.: strength of the source.")  # fmt: skip
    write_line(console, told, style="dim")
    _write_notes(outcomes, console)
    total = summary(outcomes)
    write_heading(console, "Summary")
    for line in _summary_lines(total, unread):
        write_line(console, line)
    if total.errors:
        _write_errors(total.errors, console)
    if found := rankings(outcomes):
        _write_rankings(found, console)


def _write_errors(errors: Sequence[Errors], console: Console) -> None:
    """Medians of how far expected times are off, for all plans together and for each kind."""
    console.print()
    rows = [[one.of if one.judged else f"{one.of} (apart)", one.strength, str(one.cases), str(one.entries),
             *(f"{value:.1%}" for value in (*one.blind, *one.informed))] for one in errors]  # fmt: skip
    headings = ["expected off by", "str.", "rows", "entries",
                "blind, by row", "by entry", "informed, by row", "by entry"]  # fmt: skip
    write_table(console, headings, rows, right=set(range(2, 8)))
    told = ("Medians of |expected / measured - 1|. blind: servers' files alone; informed: with the rates that sources "
            f"state. by entry: of each published table its median. plans: {and_text(PLANS)}.")  # fmt: skip
    write_line(console, told, style="dim")


def _write_rankings(found: Sequence[Ranking], console: Console) -> None:
    """Kendall's tau of each order, first where one value varies, and why one is another."""
    console.print()
    ordered = sorted(found, key=lambda one: not one.varies)
    rows = [[one.name, one.varies or "several", str(one.cases), _tau(one.tau), _tau(one.informed),
             str(one.unresolved or "")] for one in ordered]  # fmt: skip
    headings = ["order of", "varies", "cases", "tau", "tau, stated rates", "not compared"]
    write_table(console, headings, rows, right={2, 3, 4, 5})
    write_line(console, "tau: 1 where expected and measured times come in the same order, -1 where in the reverse. not "
                        "compared: pairs that the source does not tell apart.", style="dim")  # fmt: skip
    for one in ordered:
        if one.order:
            write_line(console, f"{one.name}: another order: {one.order}")


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _row(one: Outcome) -> list[str]:
    mark = " FLOOR ABOVE" if one.failed else " trap" if one.case.trap else ""
    return [
        one.id,
        format_seconds(one.floor) if one.floor > 0 else "-",
        format_seconds(one.schedule),
        format_seconds(one.measured),
        _ratio(one.floor_ratio) if one.floor > 0 else "-",
        f"{one.schedule_ratio:.3f}",
        f"{one.informed_ratio:.3f}" if one.case.stated else "",
        ", ".join(one.binding) or "-",
        one.case.strength + mark,
    ]


def _ratio(value: float) -> str:
    """A ratio with three decimals, or as many as it takes to show on which side of 1 it is."""
    digits = next((n for n in range(3, 12) if (float(f"{value:.{n}f}") > 1) == (value > 1)), 12)
    return f"{value:.{digits}f}"


def _write_notes(outcomes: Sequence[Outcome], console: Console) -> None:
    """What is said of traps, tolerances, verdicts and failures, each text once with all its cases."""
    said: dict[str, list[str]] = {}
    for one in outcomes:
        case = one.case
        if one.failed:
            said.setdefault("no schedule of the plan on the server is as fast as this was measured: the plan, a peak "
                            "rate of the topology or the figure is wrong.", []).append(one.id)  # fmt: skip
        if one.floor <= 0:
            said.setdefault("no floor, so nothing is tested: no resource that the step loads has a known peak rate.",
                            []).append(one.id)  # fmt: skip
        if case.trap:
            said.setdefault(f"trap: {case.trap}", []).append(one.id)
        if one.tolerance is not None:
            share = f"tolerance of {100 * one.tolerance:g} %: {case.measured.why}"
            said.setdefault(share, []).append(one.id)
        if case.verdict:
            said.setdefault(f"verdict: {case.verdict}", []).append(one.id)
    if said:
        console.print()
    for text, names in said.items():
        write_line(console, f"{and_text(names)}: {text}")


def _summary_lines(total: Summary, unread: int) -> list[str]:
    many = "1 case" if total.cases == 1 else f"{total.cases} cases"
    traps = f"; {total.traps} not judged, as what was published is a trap" if total.traps else ""
    held = f"{total.held} with the floor at most what was measured"
    lines = [f"{many}: {held}, {total.failed} with the floor above it{traps}."]
    if unread:
        many = "1 file or case" if unread == 1 else f"{unread} files or cases"
        lines.append(f"{many} could not be computed; standard error says why.")
    for name, ratios in (("Floor", total.floor_ratio), ("Expected", total.schedule_ratio),
                         ("Expected with stated rates", total.informed_ratio)):  # fmt: skip
        if ratios is not None:
            low, middle, high = (number_text(ratio) for ratio in ratios)
            lines.append(f"{name} over measured: {low} to {high}, median {middle}.")
    return lines


def validation_to_json(outcomes: Sequence[Outcome], unread: Sequence[str]) -> dict[str, Any]:
    """The same as plain data, times in seconds of one step. unread : what was wrong with files and cases."""
    total = summary(outcomes)
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "cases": [_case(one) for one in outcomes],
        "unread": list(unread),
        "summary": {
            "cases": total.cases,
            "held": total.held,
            "failed": total.failed,
            "traps": total.traps,
            "unread": len(unread),
            "floor_ratio": _spread(total.floor_ratio),
            "schedule_ratio": _spread(total.schedule_ratio),
            "informed_ratio": _spread(total.informed_ratio),
            "errors": [
                {"of": one.of, "judged": one.judged, "strength": one.strength, "cases": one.cases,
                 "entries": one.entries, "blind": _medians(one.blind), "informed": _medians(one.informed)}
                for one in total.errors
            ],
            "rankings": [
                {"name": one.name, "varies": one.varies or None, "cases": one.cases, "tau": one.tau,
                 "informed": one.informed, "unresolved": one.unresolved, "order": one.order or None}
                for one in rankings(outcomes)
            ],
        },
    }


def _medians(both: tuple[float, float]) -> dict[str, float]:
    return dict(zip(("rows", "entries"), both, strict=True))


def _spread(ratios: tuple[float, float, float] | None) -> dict[str, float] | None:
    return None if ratios is None else dict(zip(("least", "median", "most"), ratios, strict=True))


def _case(one: Outcome) -> dict[str, Any]:
    case, source = one.case, one.case.source
    proved = one.floor > 0
    return {
        "id": one.id,
        "kind": case.kind,
        "entry": case.entry,
        "group": case.group or None,
        "strength": case.strength,
        "trap": case.trap or None,
        "tolerance": one.tolerance,
        "floor": one.floor if proved else None,
        "schedule": one.schedule,
        "measured": one.measured,
        "binding": list(one.binding),
        "floor_ratio": one.floor_ratio if proved else None,
        "schedule_ratio": one.schedule_ratio,
        "informed": one.informed,
        "informed_ratio": one.informed_ratio,
        "stated": dict(case.stated),
        "varies": case.varies or None,
        "resolution": case.resolution or None,
        "order": case.order or None,
        "holds": one.holds,
        "failed": one.failed,
        "alone": case.measured.alone,
        "set": dict(case.set),
        "topology": case.topology.name,
        "title": case.plan.title,
        "verdict": case.verdict or None,
        "note": case.note or None,
        "source": {key: value or None for key, value in source.model_dump().items()},
        "file": case.file,
    }
