"""A comparison of plans and servers as a page: the ranking first, and a slider that goes from one to the other.

Rates move by kinds of parts ("host memory", "PCIe links"), which servers have in common whatever their parts
are called.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import cast

from rich.console import Console

from offload.bounds import Floor
from offload.comparison import Comparison, Entry
from offload.page import markup, sections
from offload.page.document import bench, first_dial, whole
from offload.page.drawn import Drawn, section
from offload.page.live import Live, Tell, assembled
from offload.page.rates import dials_by_kind
from offload.page.stops import Stop, Stops
from offload.printing import number_text
from offload.ranges import fold
from offload.report_compare import write_comparison
from offload.schedules import Schedule, serial
from offload.step import Step
from offload.study import assumptions_of
from offload.units import format_seconds

DRAWN = "Of plans and servers as they are: it does not move with the sliders. offload plot ranking writes it to a file."
CERTAIN = {"certain": "certain", "at all ends": "the same at all ends of the rates", "same": "a tie",
           "open": "open: somewhere within the ends of the rates the next is better",
           "left out": "not sought: it would take long"}  # fmt: skip


def live_of(found: Comparison, tell: Tell = lambda text: None) -> Live:
    """The sliders of a comparison: which entry, in the order of the ranking, and rates by kind of part."""
    entries = [*found.ranked, *found.rest]
    names = names_of(entries)
    label = "Server" if len({entry.plan for entry in entries}) == 1 else "Plan"
    steps: dict[tuple[int, ...], Step | str] = {
        (place,): entry.step if entry.step is not None else f"{entry.state}: {entry.why}"
        for place, entry in enumerate(entries)
    }
    axis = Stops(label.lower(), label, tuple(Stop(name, None, ()) for name in names), 0)
    made = [step for step in steps.values() if isinstance(step, Step)]
    return assembled([axis], steps, dials_by_kind(made), {}, tell)


def names_of(entries: Sequence[Entry]) -> list[str]:
    """How entries are called: by their server, their plan, or both, as these tell them apart."""
    plans, servers = ({getattr(entry, key) for entry in entries} for key in ("plan", "server"))
    if len(plans) > 1 and len(servers) > 1:
        return [f"{entry.plan} on {entry.server}" for entry in entries]
    return [entry.plan if len(plans) > 1 else entry.server for entry in entries]


def write_html(
    found: Comparison, live: Live, files: Sequence[tuple[str, str]] = (), drawn: Sequence[Drawn] = ()
) -> str:
    """The page as text; something has to be ranked. drawn : figures as the servers and plans are."""
    first = found.ranked[0]
    steps = [step for step in live.points.values() if isinstance(step, Step)]
    lead = _lead(found)
    title = first.title or first.plan
    head = f"<h1>{markup.text(title)}, {len(found.ranked) + len(found.rest)} compared</h1>"
    figures, style = section(drawn, DRAWN)
    parts = [
        markup.section("answer", "Which is the best, and is that certain?", "\n".join([
            markup.element("p", markup.text(lead), class_="lead", id="lead", role="status"), _cards(first),
            _table(found),
        ])),
        bench(live, ""), figures, sections.rates(steps), _assumed(found), _text(found), sections.files(files),
    ]  # fmt: skip
    data = live.data | {
        "unit": _unit(first), "policy": "", "command": None, "lead": lead, "given": "the first of the ranking",
        "what": "What is compared", "over": first_dial(live, [*first.floor_binding, *first.binding]),
    }  # fmt: skip
    return whole(title, head, parts, data, style)


def _ranked(entry: Entry) -> tuple[Step, Floor, Schedule]:
    """The step of an entry that is ranked, its floor and its schedule."""
    return cast("tuple[Step, Floor, Schedule]", (entry.step, entry.floor, entry.expected))


def _cards(entry: Entry) -> str:
    step, floor, expected = _ranked(entry)
    alone = serial(step).seconds
    return sections.cards([
        ("floor", "Floor", sections.FLOOR if floor.seconds > 0 else sections.NO_FLOOR, floor.seconds,
         step.plan.tokens_at_most / floor.seconds if floor.seconds > 0 else None),
        ("expected", "Expected", "with overlap", expected.seconds,
         None if entry.tokens_per_s is None else entry.tokens_per_s[1]),
        ("serial", "Serial", "one task after another", alone, entry.tokens / alone if alone > 0 else None),
    ], _unit(entry))  # fmt: skip


def _unit(entry: Entry) -> str:
    """What a step yields, per second."""
    return "it/s" if _ranked(entry)[0].plan.workload.get("phase") == "denoise" else "tokens/s"


def _lead(found: Comparison) -> str:
    names = names_of([*found.ranked, *found.rest])
    first = found.ranked[0]
    _, floor, expected = _ranked(first)
    told = [f"{names[0]} is first of {len(found.ranked)} that can be ranked: a step takes at least "
            f"{format_seconds(floor.seconds)}, expected {format_seconds(expected.seconds)}."]  # fmt: skip
    if found.pairs:
        pair = found.pairs[0]
        told.append(f"{names[1]} is next, {100 * pair.margin:.3g} % behind; that order is {CERTAIN[pair.order]}.")
    if found.rest:
        told.append(f"{len(found.rest)} cannot be ranked.")
    return " ".join(told)


def _table(found: Comparison) -> str:
    entries = [*found.ranked, *found.rest]
    rows = []
    for place, (entry, name) in enumerate(zip(entries, names_of(entries), strict=True)):
        if place >= len(found.ranked):
            rows.append(["-", name, "-", "-", "-", entry.why or entry.state, ""])
            continue
        _, floor, expected = _ranked(entry)
        low, high = expected.low, expected.high
        ends = f" ({format_seconds(low)} to {format_seconds(high)})" if low < high else ""
        pair = found.pairs[place] if place < len(found.pairs) else None
        tokens = None if entry.tokens_per_s is None else entry.tokens_per_s[1]
        rows.append([
            str(place + 1), name, format_seconds(floor.seconds), format_seconds(expected.seconds) + ends,
            number_text(tokens), fold(entry.binding), "" if pair is None else CERTAIN[pair.order].partition(":")[0],
        ])  # fmt: skip
    headings = ["place", "which", "floor", "expected", _unit(found.ranked[0]), "binds", "order to the next"]
    return markup.table(f"Ranked by {found.by}", headings, rows, {2, 3, 4}, long={5})


def _assumed(found: Comparison) -> str:
    """What is assumed of each that is ranked."""
    parts = []
    ranked = zip(found.ranked, names_of([*found.ranked, *found.rest]), strict=False)
    for entry, name in ranked:
        notes = [markup.text(note) + sections.source_of(note) for note in assumptions_of(_ranked(entry)[0])]
        parts.append(markup.fold_away(name, markup.listing(notes)))
    return markup.section("assumed", "What is assumed", "\n".join(parts))


def _text(found: Comparison) -> str:
    file = io.StringIO()
    write_comparison(found, Console(width=sections.WIDTH, color_system=None, file=file, legacy_windows=False))
    lines = (line.rstrip() for line in file.getvalue().split("\n"))
    inner = markup.code("\n".join(lines).strip("\n"))
    return markup.section("report", "The whole report", markup.fold_away("As offload compare prints it", inner))
