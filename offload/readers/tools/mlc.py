"""Intel Memory Latency Checker: idle latencies and rates between NUMA nodes, the system's peak, latencies under load.

Rows of a matrix are nodes with processors, columns are nodes with memory (more of them with CXL or HBM): data goes from
the column's memory to the row's processor. MB/sec is 10^6 B/s, latencies are in ns. Latencies under load are kept apart
from idle ones (`when` is "together").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from offload.errors import ReadingError
from offload.readers.tools.figures import positive
from offload.readers.tools.finding import Delay, Fact, Finding, Measured
from offload.readers.tools.text import Line, Text

LOOKS_LIKE = "Intel Memory Latency Checker"
TITLE = re.compile(r"Intel\(R\) Memory Latency Checker - v(\S+)")
SECTIONS = (
    ("idle", re.compile(r"^\s*Measuring idle latencies.*\(in ns\)")),
    ("peak", re.compile(r"^\s*Measuring Peak Injection Memory Bandwidths")),
    ("rates", re.compile(r"^\s*Measuring Memory Bandwidths between nodes")),
    ("loaded", re.compile(r"^\s*Measuring Loaded Latencies")),
    ("other", re.compile(r"^\s*Measuring ")),
)
COLUMNS = re.compile(r"^\s*Numa node((?:\s+\d{1,4})+)\s*$")
ROW = re.compile(r"^\s*(\d{1,4})((?:\s+\S+)+)\s*$")
PEAK = re.compile(r"^\s*(ALL Reads|\d:\d Reads-Writes|Stream-triad like)\s*:\s*(\S+)\s*$")
LOADED = re.compile(r"^\s*(\d{5,})\s+(\S+)\s+(\S+)\s*$")
FIGURE = re.compile(r"\d+\.\d+")  # MLC always prints a fraction: a number without one is cut
UNITS = re.compile(r"Bandwidths are in (.+)$")


@dataclass(slots=True)
class _Told:
    section: str = ""
    columns: tuple[int, ...] = ()
    access: str = ""
    nodes: set[int] = field(default_factory=set)
    rates: list[Measured] = field(default_factory=list)
    delays: list[Delay] = field(default_factory=list)
    peaks: list[tuple[str, float, int]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


def is_it(text: Text) -> bool:
    """Whether MLC's title or one of its measurements stands in the text."""
    return TITLE.search(text.whole) is not None or re.search(
        r"^[ \t]*Measuring (?:Peak Injection Memory Bandwidths|Memory Bandwidths between nodes|idle latencies|"
        r"Loaded Latencies)", text.whole, re.MULTILINE) is not None  # fmt: skip


def read(text: Text) -> Finding:
    """All matrices, peaks and curves in the text. Raises ReadingError where there is not one figure."""
    told = _Told()
    bare = text.without_prefixes()
    prefetching = "Unable to modify prefetchers" in bare.whole
    for line in bare:
        section = next((name for name, sign in SECTIONS if sign.match(line.text)), None)
        if section is not None:
            told.section, told.columns, told.access = section, (), ""
            if section == "other":
                told.unknown.append(f"line {line.number}: a measurement that is not read here")
        elif TITLE.search(line.text):
            told.section = ""
        elif (units := UNITS.search(line.text)) and not units[1].startswith("MB/sec (1 MB/sec = 1,000,000"):
            told.odd.append(f"line {line.number}: rates in {units[1]} are not known here, left out.")
            told.section = ""
        elif found := re.match(r"\s*Using (Read-only|.*) traffic type", line.text):
            told.access = "read" if found[1] == "Read-only" else "mixed"
        elif told.section in ("idle", "rates"):
            _matrix(line, told)
        elif told.section == "peak" and (peak := PEAK.match(line.text)):
            _peak(peak, line.number, told)
        elif told.section == "loaded" and (row := LOADED.match(line.text)):
            _loaded(row, line.number, told)
    rates = (*told.rates, *_peaks(told))
    if not rates and not told.delays:
        raise ReadingError(f"looks like {LOOKS_LIKE}, but no figure of it is whole. {' '.join(told.odd)}")
    if prefetching and any(delay.when == "alone" for delay in told.delays):
        told.odd.append("MLC could not switch the prefetchers off (modprobe msr, as root): its idle latencies are of "
                        "random access, higher than of one after the other")  # fmt: skip
    versions = sorted({found[1] for found in TITLE.finditer(bare.whole)})
    tool = f"Intel MLC {versions[0]}" if len(versions) == 1 else "Intel MLC"
    return Finding(tool, rates=rates, delays=tuple(told.delays), facts=tuple(told.facts),
                   assumed=("data goes from the column's memory to the row's processor",),
                   unknown=tuple(told.unknown), odd=tuple(told.odd))  # fmt: skip


def _matrix(line: Line, told: _Told) -> None:
    if columns := COLUMNS.match(line.text):
        told.columns = tuple(int(cell) for cell in columns[1].split())
        if len(set(told.columns)) < len(told.columns):
            told.odd.append(f"line {line.number}: a node stands twice among the columns, the matrix is left out.")
            told.columns = ()
    elif told.columns and (row := ROW.match(line.text)):
        node, cells = int(row[1]), row[2].split()
        if len(cells) != len(told.columns):
            told.odd.append(f"line {line.number}: {len(cells)} figures for {len(told.columns)} columns, left out.")
            return
        told.nodes.add(node)
        for column, cell in zip(told.columns, cells, strict=True):
            figure = positive(cell) if FIGURE.fullmatch(cell) else None
            if figure is None:
                told.unknown.append(f"line {line.number}: numa{column} to numa{node} is {cell}")
            elif told.section == "idle":
                told.delays.append(Delay(f"numa{column}", f"numa{node}", figure * 1e-9, note="idle", line=line.number))
            else:
                note = {"read": "", "mixed": "reads and writes added"}.get(told.access, "kind of traffic not said")
                told.rates.append(Measured(f"numa{column}", f"numa{node}", figure * 1e6, told.access, note=note,
                                           line=line.number))  # fmt: skip
    elif line.text.strip() and told.columns:
        told.columns = ()


def _peak(peak: re.Match[str], line: int, told: _Told) -> None:
    figure = positive(peak[2], 1e6) if FIGURE.fullmatch(peak[2]) else None
    if figure is None:
        told.odd.append(f"line {line}: {peak[1]} of {peak[2]} is no whole figure above 0, left out.")
    else:
        told.peaks.append((peak[1], figure, line))


def _peaks(told: _Told) -> Iterator[Measured]:
    """The system's peaks: the sum over all nodes with processors, each at its own memory."""
    many = len(told.nodes)
    ends = "hosts" if many > 1 else "host"
    for kind, rate, line in told.peaks:
        access = "read" if kind == "ALL Reads" else "mixed"
        yield Measured(ends, ends, rate, access, "together" if many > 1 else "alone", streams=max(many, 1),
                       note=f"whole system, {kind}", line=line)  # fmt: skip


def _loaded(row: re.Match[str], line: int, told: _Told) -> None:
    seconds = positive(row[2], 1e-9) if FIGURE.fullmatch(row[2]) else None
    rate = positive(row[3], 1e6) if FIGURE.fullmatch(row[3]) else None
    if seconds is None or rate is None:
        told.odd.append(f"line {line}: a row of loaded latencies without whole figures, left out.")
        return
    delay = int(row[1][:12])
    told.delays.append(Delay("host", "host", seconds, "together", f"loaded, {rate:.6g} B/s in all", line))
    told.facts.append(Fact(f"rate of the whole system at inject delay {delay}", rate, "B/s", line))
