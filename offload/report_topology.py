"""Topologies as text for a person: a list of several, or one with its parts, rates, ways, sources and assumptions.

Parts that differ by their number alone stand in one line, as `hbm0..7`. Only ASCII is used for our own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console

from offload.costs import WHATS
from offload.describe import RateRow, Summary, Used, Way, Ways, link_text, rate_rows, ways_of
from offload.printing import fold_rows, write_heading, write_line, write_list, write_table
from offload.ranges import fold, folded, runs
from offload.report_costs import cost_text, write_costs
from offload.topology import Topology
from offload.topology.confidence import ASSUMED, UNTOLD, WHAT_IF, what_ifs
from offload.topology.resources import directions_over
from offload.units import (
    format_bytes,
    format_bytes_both,
    format_flops,
    format_rate,
    format_seconds,
)

DIGITS = 4  # of figures, so that a reader can check them by hand
MOST_LINES = 4  # for ways that are alike; beyond it one is shown
Part = TypeVar("Part")


def write_parts(parts: Mapping[str, Sequence[str]], console: Console) -> None:
    """Print the names of shipped parts. parts : section of a topology file -> names."""
    for section, names in parts.items():
        write_heading(console, f"{section}: entries that use: NAME")
        write_line(console, ", ".join(names))
    write_line(console, "As hbm0..7: {use: h100-sxm}; what an entry says itself replaces the part's key.", style="dim")


def write_summaries(summaries: Sequence[Summary], console: Console) -> None:
    """Print the shipped topologies: a line of figures for each, and what each is."""
    costs = [what for what in WHATS if any(getattr(one, what) for one in summaries)]
    rows = [
        [
            one.name,
            str(one.gpus),
            _size(one.gpu_memory if one.gpus else 0),
            "the same" if one.unified and not one.host_memory else _size(one.host_memory),
            _host_links(one),
            "-" if not one.drives else f"{one.drives}, {_size(one.drive_capacity)}",
            _confidence(one),
        ]
        for one in summaries
    ]
    headings = ["topology", "GPUs", "on GPUs", "host RAM", "host link, GB/s", "drives", "f/d/m/*"]
    write_table(console, headings, rows, right=set(range(1, len(headings))) - {4})
    what = (
        "All memory on GPUs, all host memory, all drives together; a GPU's host link at its peak, one way. "
        "1 GB is 10^9 bytes."
    )
    write_line(console, what, style="dim")
    legend = (
        "f/d/m/*: how many of its figures are found in a public document, derived by arithmetic, from memory and "
        "unverified, and assumed (a usual share of the rated or peak figure)"
    )
    legend += "; ?: their source says none of it" if any(one.confidence[UNTOLD] for one in summaries) else ""
    legend += "; +: of what is not for sale" if any(one.what_if for one in summaries) else ""
    write_line(console, f"{legend}.", style="dim")
    if costs:
        write_heading(console, " and ".join(costs).capitalize())
        table = [[one.name, *(cost_text(getattr(one, what)) for what in costs)] for one in summaries]
        write_table(console, ["topology", *costs], table, right={1, 2})
    write_list("What they are", [f"{one.name}: {one.title}" for one in summaries], console)
    console.print()
    write_line(console, "One in full: offload topology show NAME")


def _confidence(one: Summary) -> str:
    """How many figures are found, derived, from memory, assumed; then those that say none, or cannot be bought."""
    told = one.confidence
    text = "/".join(str(told[word]) for word in ("found", "derived", "memory", ASSUMED))
    unsold = sum(told[word] for word in WHAT_IF)
    return text + (f" ?{told[UNTOLD]}" if told[UNTOLD] else "") + (f" +{unsold}" if unsold else "")


def _size(size: int | None) -> str:
    return "not known" if size is None else format_bytes(size) if size else "-"


def _host_links(one: Summary) -> str:
    if not one.host_links:
        return "none: one memory" if one.unified else "-"
    return "; ".join(
        f"{link.what or link.link}, {'not known' if link.peak is None else f'{link.peak / 1e9:.3g}'}"
        for link in one.host_links
    )


def write_topology(topology: Topology, console: Console) -> None:
    """Print one topology in full. The console's width is kept, whatever it is."""
    rates = rate_rows(topology)
    write_line(console, topology.title, style="bold")
    if topology.name and topology.name != topology.title:
        write_line(console, f"({topology.name})")
    unsold = what_ifs(topology)
    if unsold:
        names = fold(dict.fromkeys(note.partition(":")[0] for note in unsold))
        write_line(console, f"Not for sale yet, so a what-if: {names}; see Assumptions.", style="bold")
    _write_memories(topology, rates, console)
    _write_processors(topology, rates, console)
    _write_switches(topology, console)
    _write_links(topology, rates, console)
    _write_limits(topology, rates, console)
    write_costs(topology, console)
    for ways in ways_of(topology):
        _write_ways(ways, console)
    _write_notes(topology, rates, console)


def _write_memories(topology: Topology, rates: list[RateRow], console: Console) -> None:
    write_heading(console, "Memories")

    def row(name: str) -> list[str]:
        memory = topology.memories[name]
        count = memory.count
        whole = "not known" if memory.capacity is None else format_bytes_both(memory.capacity * count)
        striped = f"{count} in a stripe" if count > 1 else ""
        cache = format_bytes(memory.cache * count, DIGITS) if memory.cache else "-"
        return [memory.kind, whole, striped, cache, memory.at or "-", fold(topology.processors_of(name)) or "-"]

    headings = ["memory", "kind", "capacity", "", "cache in front", "sits in", "processors"]
    rows = fold_rows([[name, *row(name)] for name in topology.memories], (0, 5, 6))
    write_table(console, headings, rows, right={2, 4})
    _write_rates([one for one in rates if one.kind == "memory"], console)


def _write_processors(topology: Topology, rates: list[RateRow], console: Console) -> None:
    if not topology.processors:
        return
    write_heading(console, "Processors")

    def row(name: str) -> list[str]:
        processor = topology.processors[name]
        peers = {None: "not stated", True: "yes", False: "no"}[processor.peer_to_peer]
        gpu = processor.kind == "gpu"
        return [processor.kind, processor.memory, peers if gpu else "-",
                ("yes" if processor.direct_storage else "no") if gpu else "-"]  # fmt: skip

    headings = ["processor", "kind", "works in", "peer to peer", "direct storage"]
    write_table(console, headings, fold_rows([[name, *row(name)] for name in topology.processors], (0, 2)))
    _write_rates([one for one in rates if one.kind == "processor"], console)


def _write_switches(topology: Topology, console: Console) -> None:
    if topology.switches:
        write_heading(console, "Switches")
        rows = fold_rows([[name, switch.kind, "yes" if switch.reduces else "-"]
                          for name, switch in topology.switches.items()])  # fmt: skip
        write_table(console, ["switch", "kind", "adds up"], rows)


def _write_links(topology: Topology, rates: list[RateRow], console: Console) -> None:
    if not topology.links:
        return
    write_heading(console, "Links")

    def row(name: str) -> list[str]:
        link = topology.links[name]
        least, typical = link.latency
        latency = format_seconds(typical) if typical else "0"
        if least:
            latency = f"{format_seconds(least)} to {latency}"
        return [f"{link.a} - {link.b}", link_text(link) or "-", "half" if link.half_duplex else "full", latency]

    rows = fold_rows([[name, *row(name)] for name in topology.links], (0, 1))
    write_table(console, ["link", "between", "what", "duplex", "latency"], rows, right={4})
    _write_rates([one for one in rates if one.kind == "link"], console)


def _write_limits(topology: Topology, rates: list[RateRow], console: Console) -> None:
    if not topology.limits:
        return
    write_heading(console, "Limits on what directions carry together")
    rows = fold_rows([[name, fold(directions_over(limit, topology.links))] for name, limit in topology.limits.items()],
                     (0, 1))
    write_table(console, ["limit", "over"], rows)
    _write_rates([one for one in rates if one.kind == "limit"], console)


# Rates.


def _write_rates(rates: list[RateRow], console: Console) -> None:
    """What each part can carry, by grade; the sustained rate is the one that schedules use."""
    if not rates:
        return
    rows: list[list[str]] = []
    told = ""
    for run in _runs_by(rates, lambda one: one.resource, _rate_cells):
        name = folded([one.resource for one in run])
        for line in _rate_cells(run[0]):
            rows.append([name if name != told else "", *line])
            told = name
    console.print()
    headings = ["rate", "access", "peak", "rated", "sustained", "low to high"]
    write_table(console, headings, rows, right={2, 3, 4})
    if any(used.assumed for one in rates for used in one.used):
        write_line(console, "* assumed: a usual share of the rated or peak figure, not measured; see Assumptions.",
                   style="dim")  # fmt: skip


def _rate_cells(one: RateRow) -> list[list[str]]:
    """The lines of a rate: one for each sustained rate, and one in any case."""
    show = format_flops if one.unit == "FLOP" else format_rate
    peak, rated = ("-" if figure is None else show(figure, DIGITS) for figure in (one.peak, one.rated))
    if one.unknown:
        return [[one.format or "-", "unknown", "-", "-", ""]]
    lines = []
    for used in one.used:
        mark = "*" if used.assumed else ""
        ends = f"{show(used.low)} to {show(used.high)}" if used.low < used.high else ""
        lines.append([_access(one, used), peak, rated, show(used.value, DIGITS) + mark, ends])
        peak, rated = "", ""
    return lines


def _access(one: RateRow, used: Used) -> str:
    return one.format or ", ".join(access or "any" for access in used.accesses)


def _runs_by(
    items: Iterable[Part], name: Callable[[Part], str], key: Callable[[Part], Any]
) -> list[list[Part]]:
    """Items whose key is the same and whose names one range could stand for, together."""
    groups: dict[str, dict[str, Part]] = {}
    for item in items:
        groups.setdefault(repr(key(item)), {})[name(item)] = item
    return [[group[one] for one in run] for group in groups.values() for run in runs(group)]


# Ways.


def _write_ways(ways: Ways, console: Console) -> None:
    write_heading(console, f"Ways: {ways.what}")
    for alike in _ways_alike(ways.ways):
        lines = [folded(run) for run in runs(way.text for way in alike)]
        sources, destinations = (fold(getattr(way, end) for way in alike) for end in ("source", "destination"))
        if not alike[0].text:
            write_line(console, f"{sources} to {destinations}: no way leads there")
            continue
        if len(lines) > MOST_LINES:
            lines = [alike[0].text, f"and {len(alike) - 1} more like it, from {sources} to {destinations}"]
        for line in lines:
            write_line(console, line)
        write_line(console, _speed(alike), indent=4)
    if ways.left_out:
        write_line(console, f"{ways.left_out} more memories: their ways are not listed.", style="dim")


def _ways_alike(ways: Sequence[Way]) -> list[list[Way]]:
    """Ways through parts of the same names but for their numbers, with the same rates and latency."""
    groups: dict[Any, list[Way]] = {}
    for way in ways:
        figures = (way.peak, way.sustained, way.assumed, way.latency, len(way.staged_in), len(way.unknown))
        groups.setdefault((re.sub("[0-9]+", "0", way.text), figures), []).append(way)
    return list(groups.values())


def _speed(alike: Sequence[Way]) -> str:
    """How fast and how soon, and what is narrowest, of ways that are alike."""
    way, narrowest = alike[0], fold(one.narrowest for one in alike)
    words = ["staged in host memory"] if way.staged_in else []
    if way.unknown:
        words.append(f"rate not known of {fold(name for one in alike for name in one.unknown)}")
    most = "at most " if way.unknown else ""
    if way.sustained is not None:
        words.append(f"{most}{format_rate(way.sustained)}{'*' if way.assumed else ''} sustained ({narrowest})")
    if way.peak is not None:
        words.append(f"{most}{format_rate(way.peak, DIGITS)} at peak")
    if way.latency[1]:
        words.append(f"{format_seconds(way.latency[1])} latency")
    return ", ".join(words) or "no rate is known"


# Where figures are from, and what was assumed.


def _write_notes(topology: Topology, rates: list[RateRow], console: Console) -> None:
    sources: dict[str, dict[str, None]] = {}
    rates_of: dict[str, list[RateRow]] = {}
    for rate in rates:
        rates_of.setdefault(rate.part, []).append(rate)
    for group in (topology.memories, topology.processors, topology.switches, topology.links, topology.limits):
        for name, part in group.items():
            sources.setdefault(part.source, {})[name] = None
            for rate in rates_of.get(name, ()):
                if rate.source != part.source:
                    sources.setdefault(rate.source, {})[rate.resource] = None
    sources.pop("", None)
    write_list("Sources", [f"{fold(names)}: {text}" for text, names in sources.items()], console)
    notes: dict[str, dict[str, None]] = {}
    for note in topology.assumptions:
        name, _, text = note.partition(": ")
        notes.setdefault(text or note, {})[name if text else ""] = None
    told = [f"{fold(names)}: {text}" if fold(names) else text for text, names in notes.items()]
    write_list("Assumptions", told, console)
