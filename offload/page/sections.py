"""The parts of a page that stand as they are: the answer, the tables, what was assumed and from where, the files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from offload.page.markup import code, element, fold_away, listing, section, table, text
from offload.printing import and_text, fold_notes, fold_rows, number_text
from offload.ranges import fold, folded, runs
from offload.report import BUYS_NOTHING, DIGITS, formats, write_text
from offload.sensitivity import binding
from offload.step import Step
from offload.study import Study
from offload.topology import Interval, Resource
from offload.topology.shares import SHARES
from offload.units import format_bytes, format_bytes_both, format_seconds, format_share

FLOOR = "no schedule on this machine is faster"
NO_FLOOR = "no peak rate that the step needs is known, so nothing is proved"
WIDTH = 100  # columns of the report as text


def yields(study: Study) -> str:
    """What a step yields, per second."""
    return "it/s" if study.workload.get("phase") == "denoise" else "tokens/s"


def seconds(value: float | None) -> str:
    """A time, or a dash where it is not known."""
    return "-" if value is None or value <= 0 else format_seconds(value)


def _least(value: float, at_least: bool) -> str:
    """A time, or that it is only a least one."""
    return f"{'>= ' * (at_least and value > 0)}{seconds(value)}"


# The question and the answer.


def question(study: Study) -> str:
    """The title, the server and the workload."""
    named = f" ({study.topology})" if study.topology and study.topology != study.topology_title else ""
    words = [f"{key.replace('_', ' ')} {value}" for key, value in study.workload.items() if value is not None]
    return "\n".join([
        f"<h1>{text(study.title)}</h1>",
        f'<p class="server">on {text((study.topology_title or study.topology) + named)}</p>',
        f'<p class="workload">{text(", ".join(words))}</p>',
    ])  # fmt: skip


def answer(study: Study) -> str:
    """The answer in a sentence and four figures; the page's code writes them anew when a slider moves."""
    expected, tokens, unit = study.overlapped, study.tokens_per_s, yields(study)
    shown = cards([
        ("floor", "Floor", FLOOR if study.floor.seconds > 0 else NO_FLOOR, study.floor.seconds, tokens.floor),
        ("expected", "Expected", f"with overlap: {expected.policy}", expected.seconds, tokens.overlapped),
        ("serial", "Serial", "one task after another", study.serial.seconds, tokens.serial),
    ], unit, at_least=bool(study.uncounted))  # fmt: skip
    lacking = "" if study.fits else element("p", "DOES NOT FIT. Times are as if it did.", class_="wrong")
    if study.uncounted:
        lacking += element("p", f"NO RATE IS KNOWN of {fold(study.uncounted)}, on which its time depends. It may "
                           "take far longer than any time here.", class_="wrong")  # fmt: skip
    return section("answer", "How fast can one step be, and what binds?", "\n".join([
        lacking, element("p", text(in_words(study)), class_="lead", id="lead", role="status"), shown,
    ]))  # fmt: skip


def cards(
    figures: Sequence[tuple[str, str, str, float, float | None]], unit: str, *, at_least: bool = False
) -> str:
    """Figures side by side: (name, title, what it is, seconds, what is yielded per second).

    at_least : whether all but the floor are only least times.
    """
    shown = []
    for name, title, what, time, rate in figures:
        per_second = "" if rate is None else f"{number_text(rate)} {unit}"
        shown.append(f'<div class="card {name}"><h3>{text(title)}</h3>'
                     f'<p class="time" id="{name}-time">{text(_least(time, at_least and name != "floor"))}</p>'
                     f'<p class="rate" id="{name}-rate">{text(per_second)}</p>'
                     f'<p class="what" id="{name}-what">{text(what)}</p></div>')  # fmt: skip
    return f'<div class="cards">{"".join(shown)}</div>'


def in_words(study: Study) -> str:
    """The answer as two or three sentences."""
    expected, unit = study.overlapped, yields(study)
    told = []
    if study.floor.seconds > 0:
        told.append(f"No schedule makes a step shorter than {format_seconds(study.floor.seconds)}"
                    f"{_per(study.tokens_per_s.floor, unit)}")  # fmt: skip
        told.append(binds(study))
    if expected.seconds > 0:
        between = ""
        if expected.low < expected.high:
            between = f", between {format_seconds(expected.low)} and {format_seconds(expected.high)}"
        per_second = _per(study.tokens_per_s.overlapped, unit)
        told.append(f"Expected is at least {format_seconds(expected.seconds)}" if study.uncounted else
                    f"Expected is {format_seconds(expected.seconds)}{per_second}{between}")  # fmt: skip
    return " ".join(f"{one}." for one in told if one) or "No rate that this step needs is known."


def _per(rate: float | None, unit: str) -> str:
    return "" if rate is None else f" ({number_text(rate)} {unit})"


def binds(study: Study) -> str:
    """What binds the floor, in a sentence without its dot."""
    names = [fold(run) for run in runs(binding(study.floor))]
    if not names:
        return ""
    if study.floor.rule == "cycle":
        others = [fold(run) for run in runs(study.floor.bottleneck)]
        if len(others) > 1:
            return f"A token passes {and_text(others)} one after another, so their times add"
        return f"Each token waits for the one before it on {others[0] if others else names[0]}"
    return f"{and_text(names)} {'bind' if len(names) > 1 else 'binds'}"


# Tables.


def moves(study: Study) -> str:
    """What is read or moved each step: the first thing to check."""
    rows = []
    for move in study.moves:
        every = f"{move.every} x {move.count}" if move.count != 1 else move.every
        to = move.destination or "(read where it lives)"
        rows.append([move.what, format_bytes(move.bytes, DIGITS), move.source, to, move.runs_on or "-", every])
    headings = ["what", "each step", "from", "to", "runs on", "every"]
    return section("moves", "What is read or moved each step", table("Read or moved each step", headings, rows, {1}))


def resources(study: Study) -> str:
    """Loads and rates by resource."""
    rows = []
    for row in study.resources:
        amount, rate = formats(row.unit)
        told = " (assumed)" if row.assumed else ""
        sustained = "-" if row.sustained is None else rate(row.sustained, DIGITS) + told
        share = "-" if row.share is None else "<0.1 %" if 0 < row.share < 0.001 else format_share(row.share)
        rows.append([
            row.name, amount(row.load, DIGITS), "-" if row.peak is None else rate(row.peak, DIGITS),
            seconds(row.peak_seconds), sustained, seconds(row.sustained_seconds), share, "binds" if row.binding else "",
        ])  # fmt: skip
    folded_rows = fold_rows(rows)
    headings = ["resource", "load", "peak", "at peak", "sustained", "at sustained", "share of the step", "floor"]
    marked = [number for number, row in enumerate(folded_rows) if row[-1]]
    return section("resources", "What each resource carries",
                   table("Loads and rates, as the plan has it", headings, folded_rows, {1, 2, 3, 4, 5, 6}, marked))


def times(study: Study) -> str:
    """Floor, expected and serial; back to back and alone."""
    expected, tokens, least = study.overlapped, study.tokens_per_s, bool(study.uncounted)
    rows = [
        ["floor", seconds(study.floor.seconds), number_text(tokens.floor), seconds(study.floor.cold_seconds)],
        ["floor at sustained rates", seconds(study.floor_sustained.seconds), "-",
         seconds(study.floor_sustained.cold_seconds)],
        [f"expected ({expected.policy})", _least(expected.seconds, least), number_text(tokens.overlapped),
         _least(expected.cold_seconds, least)],
        ["serial", _least(study.serial.seconds, least), number_text(tokens.serial),
         _least(study.serial.cold_seconds, least)],
    ]  # fmt: skip
    shown = table("Times of a step, as the plan has it", ["", "back to back", yields(study), "one step alone"], rows,
                  {1, 2, 3}, [2])  # fmt: skip
    note = "Serial adds up every task's own time; it is no upper bound on a real machine."
    return section("times", "Times", shown + element("p", note, class_="note"))


def memory(study: Study) -> str:
    """What lies in each memory, alike ones as one."""
    groups: dict[tuple[Any, Any, tuple[tuple[str, Any], ...]], list[str]] = {}
    for row in study.memory:
        groups.setdefault((row.capacity, row.missing, tuple(row.parts.items())), []).append(row.name)
    rows: list[list[str]] = []
    marked: list[int] = []
    for (capacity, missing, parts), names in groups.items():
        for run in runs(names):
            used = sum(size for _, size in parts)
            left = "" if capacity is None else f"{format_bytes_both(max(0, capacity - used))} free"
            marked.append(len(rows))
            rows.append([folded(run), format_bytes_both(used),
                         "not known" if capacity is None else format_bytes_both(capacity),
                         f"MISSING {format_bytes_both(missing)}" if missing else left])  # fmt: skip
            rows += [[f"- {part}", format_bytes_both(size), "", ""] for part, size in parts]
    shown = table("Memory, by what lies there", ["memory", "used", "capacity", ""], rows, {1, 2, 3}, marked)
    limit = element("p", text(f"{study.first_limit}."), class_="note") if study.first_limit and study.fits else ""
    return section("memory", "What fits", shown + limit)


def changes(study: Study) -> str:
    """Single changes, each evaluated anew; nothing where there are none."""
    if not study.changes:
        return ""
    rows = []
    for change in study.changes:
        gain = f"{number_text(change.gain)} x"
        if change.gain < 1 - BUYS_NOTHING:
            gain += ", slower"
        elif change.gain < 1 + BUYS_NOTHING:
            gain = "buys nothing"
        rows.append([change.what, format_seconds(change.seconds), gain])
    return section("changes", "What would change it, one change at a time",
                   table("Single changes", ["change", "expected", yields(study)], rows, {1}))  # fmt: skip


# What it rests on.


def assumptions(study: Study, steps: Sequence[Step]) -> str:
    """Every assumption with its source, and every rate that the page counts with, with its own."""
    notes = listing(text(note) + source_of(note) for note in fold_notes(study.assumptions))
    parts = [rates(steps), section("assumed", "What is assumed", notes if study.assumptions else "<p>Nothing.</p>")]
    if study.not_modelled:
        parts.append(section("not-modelled", "What is not modelled", listing(map(text, study.not_modelled))))
    return "\n".join(parts)


def rates(steps: Sequence[Step]) -> str:
    """The rates of all resources that steps use, with their sources; of several servers each by itself."""
    servers: dict[str, list[Step]] = {}
    for step in steps:
        servers.setdefault(step.topology.title, []).append(step)
    headings = ["resource", "peak", "sustained", "source"]
    tables = []
    for title, there in servers.items():
        caption = "Rates and where they are from" + (f": {title}" if len(servers) > 1 else "")
        shown = table(caption, headings, fold_rows(list(_rates(there))), {1}, long={2, 3})
        tables.append(fold_away(title, shown) if len(servers) > 1 else shown)
    return section("rates", "Where the rates are from", "\n".join(tables))


def source_of(note: str) -> str:
    """Who published the share that a note assumes; markup."""
    found = next((share for share in SHARES.values() if f": {share.what})" in note), None)
    return "" if found is None else element("span", f" Source: {text(found.source)}.", class_="source")


def _rates(steps: Sequence[Step]) -> Iterator[list[str]]:
    """Name, peak, sustained and source of each resource that a step uses."""
    known: dict[str, Resource] = {}
    for step in steps:
        for name, one in step.resources.items():
            known.setdefault(name, one)
    for name, one in known.items():
        if one.unit == "s":
            continue
        _, show = formats(one.unit)
        other = "else " if len(one.sustained) > 1 else ""
        ends = [f"{f'{access} ' if access else other}{_interval(rate, one.unit)}"
                for access, rate in sorted(one.sustained.items(), key=lambda item: item[0] == "")]  # fmt: skip
        stated = "assumed share, see below" if one.assumed else ""
        source = "; ".join(part for part in (one.source, stated) if part) or "not stated"
        yield [name, "-" if one.peak is None else show(one.peak, DIGITS), ", ".join(dict.fromkeys(ends)), source]


def _interval(rate: Interval, unit: str) -> str:
    _, show = formats(unit)
    if rate.low == rate.high:
        return show(rate.value, DIGITS)
    return f"{show(rate.value, DIGITS)} ({show(rate.low, DIGITS)} to {show(rate.high, DIGITS)})"


# The report as text, and the files.


def as_text(study: Study) -> str:
    """The whole report, as `offload step` prints it."""
    file = io.StringIO()
    write_text(study, Console(width=WIDTH, color_system=None, file=file, legacy_windows=False))
    lines = (line.rstrip() for line in file.getvalue().split("\n"))
    inner = code("\n".join(lines).strip("\n"))
    return section("report", "The whole report", fold_away("As offload step prints it", inner))


def files(shown: Sequence[tuple[str, str]]) -> str:
    """The files that the answer was read from: (name, text)."""
    if not shown:
        return ""
    parts = [fold_away(name, code(inner.rstrip("\n"))) for name, inner in shown]
    return section("files", "The files that say it", "\n".join(parts))
