"""Outcomes of cases as a table for a person and as data for a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from offload import __version__
from offload.printing import (
    Heading,
    Line,
    Pieces,
    Rows,
    and_text,
    clean,
    number_text,
    write_heading,
    write_line,
    write_table,
)
from offload.ranges import fold
from offload.rankings import Ranking, rankings
from offload.scores import Errors, Off, Summary, summary
from offload.units import format_flops, format_rate, format_seconds
from offload.validation import PLANS, Beaten, Outcome

CAUSES = (
    "a unit (Gb for GB, GiB for GB, a link's two directions together, one GPU's share for all of them)",
    "bytes that were not moved in each step (resident, found in a cache, or of experts that no token chose)",
    "a peak rate that is too low (another generation or width, fewer channels than there are, an overclocked memory)",
    "another way beside the one of the plan (a second link, a switch that adds up, the drive's page cache)",
    "a figure that is of something else (a mean over hits, several steps or sequences)",
)
FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away


def write_validation(outcomes: Sequence[Outcome], unread: int, console: Console) -> None:
    """Print the table of outcomes, what is to be said of single cases, and a summary.

    unread : files and cases without an outcome.
    """
    headings = ["case", "floor", "expected", "measured", "m/floor", "exp/m", "stated/m", "binding", "str."]
    bold = {index for index, one in enumerate(outcomes) if one.failed}
    write_table(console, headings, [_row(one) for one in outcomes], right={1, 2, 3, 4, 5, 6}, bold=bold)
    told = ("Times are of one step. m/floor: the measured time over the floor, at least 1 where all is right. exp/m: "
            "the expected time over the measured one. stated/m: exp/m with the rates that the source states. str.: "
            "strength of the source.")  # fmt: skip
    write_line(console, told, style="dim")
    _write_failed([one for one in outcomes if one.failed], console)
    _write_notes(outcomes, console)
    total = summary(outcomes)
    write_heading(console, "Summary")
    for line in _summary_lines(total, unread):
        write_line(console, line)
    if total.errors:
        _write_errors(total.errors, console)
    _write_beaten(outcomes, console)
    if found := rankings(outcomes):
        _write_rankings(found, console)


def _write_failed(failed: Sequence[Outcome], console: Console) -> None:
    """Each floor that is above its measurement, by how much, and what is likely wrong."""
    if not failed:
        return
    write_heading(console, "FLOOR ABOVE THE MEASUREMENT: an input contradicts physics")
    for one in failed:
        bind = "binds" if len(one.binding) == 1 else "bind"
        write_line(console, f"{one.id}: measured {format_seconds(one.measured)}, and no schedule of this plan on this "
                            f"server takes less than {format_seconds(one.floor)} ({_ratio(one.floor_ratio)} times "
                            f"that); {fold(one.binding)} {bind}.", style="bold")  # fmt: skip
    write_line(console, f"Likely: {'; '.join(CAUSES)}. Nothing was left out or made to fit.")


def _write_errors(errors: Sequence[Errors], console: Console) -> None:
    """How far expected times are off, and how many measurements lie in the intervals, for all and for each kind."""
    def table(headings: Sequence[str], told: Callable[[Off], str], note: str) -> None:
        console.print()
        rows = [[one.of if one.judged else f"{one.of} (apart)", one.strength, str(one.cases), str(one.entries),
                 f"{one.held} of {one.cases}", *(told(off) for off in (*one.blind, *one.informed))]
                for one in errors]  # fmt: skip
        write_table(console, [headings[0], "str.", "rows", "entries", "floor held", *headings[1:]], rows,
                    right=set(range(2, 9)))  # fmt: skip
        write_line(console, note, style="dim")

    by = ["blind, by row", "by entry", "informed, by row", "by entry"]
    table(["expected off by", *by], lambda off: f"{_percent(off.median)} / {_percent(off.most)}",
          "Median / 90th percentile of |expected / measured - 1|. blind: servers' files alone; informed: with the "
          "rates that sources state. by entry: of each published table its median. floor held: rows with floor <= "
          f"measured. plans: {and_text(PLANS)}.")  # fmt: skip
    table(["inside the interval", *by], lambda off: _percent(off.inside),
          "Share of measurements between the expected times at the slow and at the fast ends of the sustained rates. "
          "Where no rate has two ends the interval is a point, which no measurement is inside of.")  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share < 10 else f"{share:.3g} x"


def _write_beaten(outcomes: Sequence[Outcome], console: Console) -> None:
    """The sustained rates that measurements are faster than, each with the fastest case."""
    found: dict[tuple[str, str, float, bool], tuple[float, str, str]] = {}
    for one in outcomes:
        for beaten in one.beaten if not one.case.trap else ():
            key = (one.case.topology.title or one.case.topology.name, beaten.resource, beaten.rate, beaten.informed)
            found[key] = max(found.get(key, (0.0, "", "")), (beaten.implied, one.id, beaten.unit))
    if not found:
        return
    write_heading(console, "Sustained rates that a measurement beats")
    alike: dict[tuple[str, str, str, str, str], list[str]] = {}
    for (server, name, rate, informed), (implied, case, unit) in found.items():
        own = "stated by the source" if informed else "of the server's file"
        alike.setdefault((server, _speed(rate, unit), own, _speed(implied, unit), case), []).append(name)
    rows = [[fold(names), server, rate, own, implied, case]
            for (server, rate, own, implied, case), names in alike.items()]  # fmt: skip
    write_table(console, ["rate", "server", "fast end", "", "measured, at least", "case"], rows, right={2, 4})
    told = ("The plan's bytes (or FLOP) over the measured time: the rate is too low, a cache held a part, or the plan "
            "counts too much. Floors use peak rates and are not touched.")  # fmt: skip
    write_line(console, told, style="dim")


def _speed(rate: float, unit: str) -> str:
    return format_flops(rate) if unit == "FLOP" else format_rate(rate)


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
        _ratio(one.measured / one.floor) if one.floor > 0 else "-",
        _ratio(one.schedule_ratio),
        _ratio(one.informed_ratio) if one.case.stated else "",
        fold(one.binding) if one.binding else "-",
        one.case.strength + mark,
    ]


def _ratio(value: float) -> str:
    """A ratio with three decimals, or as many as it takes to show on which side of 1 it is; three digits where far."""
    if not 1e-3 <= value < 1e4:
        return f"{value:.3g}"
    digits = next((n for n in range(3, 12) if (float(f"{value:.{n}f}") > 1) == (value > 1)), 12)
    return f"{value:.{digits}f}"


def _write_notes(outcomes: Sequence[Outcome], console: Console) -> None:
    """What is said of traps, tolerances and verdicts, each text once with all its cases."""
    said: dict[str, list[str]] = {}
    for one in outcomes:
        case = one.case
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
                 "entries": one.entries, "held": one.held, "blind": _by(one.blind, "median"),
                 "blind_90": _by(one.blind, "most"), "blind_inside": _by(one.blind, "inside"),
                 "informed": _by(one.informed, "median"), "informed_90": _by(one.informed, "most"),
                 "informed_inside": _by(one.informed, "inside")}
                for one in total.errors
            ],
            "rankings": [
                {"name": one.name, "varies": one.varies or None, "cases": one.cases, "tau": one.tau,
                 "informed": one.informed, "unresolved": one.unresolved, "order": one.order or None}
                for one in rankings(outcomes)
            ],
        },
    }


def _by(both: tuple[Off, Off], value: str) -> dict[str, float]:
    return {name: getattr(one, value) for name, one in zip(("rows", "entries"), both, strict=True)}


def _spread(ratios: tuple[float, float, float] | None) -> dict[str, float] | None:
    return None if ratios is None else dict(zip(("least", "median", "most"), ratios, strict=True))


def _beaten(one: Beaten) -> dict[str, Any]:
    return {"resource": one.resource, "rate": one.rate, "implied": one.implied, "unit": one.unit,
            "informed": one.informed}  # fmt: skip


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
        "interval": list(one.interval),
        "informed_interval": list(one.informed_interval),
        "beaten": [_beaten(rate) for rate in one.beaten],
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


def validation_to_markdown(outcomes: Sequence[Outcome], unread: int) -> str:
    """The report as Markdown: its tables and lines, for a page of documentation. unread : as in `write_validation`."""
    pieces = Pieces()
    write_validation(outcomes, unread, pieces)
    told: list[str] = []
    for piece in pieces.pieces:
        match piece:
            case Heading(text):
                told.append(f"## {_plain(text)}")
            case Line(text):
                told.append(_plain(text))
            case Rows(headings, rows, right):
                rules = ["---:" if index in right else "---" for index in range(len(headings))]
                lines = [[_plain(cell) for cell in headings], rules, *([_plain(cell) for cell in row] for row in rows)]
                told.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(text for text in told if text) + "\n"


def _plain(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(clean(text).split()))
