"""A measurement for a person: each figure with its ends and conditions, what is doubtful and what was not measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from offload.measure import Figure, Measurement
from offload.printing import fold_notes, write_heading, write_line, write_list, write_table
from offload.report_import import shown as shown_fact
from offload.units import format_bytes, format_flops, format_rate, format_seconds

TITLES = {"memory": "Host memory", "drive": "Drives", "processor": "Processors", "gpu": "GPUs",
          "host": "Copies within host memory, and between processes"}  # fmt: skip
FORMATS = {"B/s": format_rate, "FLOP/s": format_flops, "s": format_seconds}


def write_measurement(measurement: Measurement, last: str, console: Console) -> None:
    """Print a measurement. last : a line under it, of where its topology is, or why there is none."""
    data, told = measurement.data, measurement.told
    title = told.topology.title if told is not None else f"This machine, measured {data['date']}"
    write_line(console, f"{title} ({data['mode']}, {data['seconds']:.3g} s)", style="bold")
    write_list("Doubtful", list(measurement.collected.warnings), console)
    for about, heading in TITLES.items():
        figures = [one for one in measurement.collected.figures if one.about == about]
        if figures:
            write_heading(console, heading)
            _write(figures, console)
    write_list("Not measured", list(measurement.collected.missing), console)
    if told is not None:
        write_list("Fitted", fold_notes([f"{one.what}: {shown_fact(one)}" for one in told.derived]), console)
        lists = {"Assumed": told.assumed, "Contradicts": told.contradicts, "Unknown": told.unknown,
                 "Not used": told.not_used}  # fmt: skip
        for name, notes in lists.items():
            write_list(name, fold_notes(notes), console)
    if last:
        console.print()
        write_line(console, last)


HEADINGS = ("what", "bytes", "in flight", "threads", "median", "least to most of its runs")


def _write(figures: Sequence[Figure], console: Console) -> None:
    """A table for each way in which figures were measured; host memory, whose ways are short words, in one."""
    groups: dict[str, list[Figure]] = {}
    for one in figures:
        groups.setdefault("" if one.about == "memory" else one.note, []).append(one)
    for number, (note, members) in enumerate(groups.items()):
        if note:
            if number:
                console.print()
            write_line(console, f"{note[0].upper()}{note[1:]}:")
        rows = [_row(one) for one in members]
        kept = [place for place in range(len(HEADINGS)) if any(row[place] for row in rows)]
        right = {spot for spot, place in enumerate(kept) if place not in (0, 5)}
        write_table(console, [HEADINGS[place] for place in kept],
                    [[row[place] for place in kept] for row in rows], right=right)  # fmt: skip


def _row(figure: Figure) -> list[str]:
    show = FORMATS[figure.unit]
    count = len(figure.repeats)
    ends = f"{show(figure.low)} to {show(figure.high)} of {count}" if count > 1 else "one run"
    return [_what(figure), "" if figure.size is None else format_bytes(figure.size), str(figure.depth or ""),
            str(figure.threads or ""), show(figure.value), ends]  # fmt: skip


def _what(figure: Figure) -> str:
    if figure.about == "processor":
        return figure.format
    if figure.about == "host":
        return "process to process" if figure.source == "process" else "copy"
    same = figure.source == figure.destination
    place = figure.source if same else f"{figure.source} to {figure.destination}"
    how = figure.note if figure.about == "memory" else figure.access.replace("_", " ")
    when = "" if figure.when == "alone" else figure.when
    return ", ".join(filter(None, (place, how, when)))
