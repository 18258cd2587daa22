"""rocm_bandwidth_test's tables of rates between devices; hipBusBandwidth's table of sizes, which is another tool.

rocm_bandwidth_test numbers processors and GPUs together: a device without a bus address, or, where the list of devices
is cut off, one without a copy to itself, is a processor. A table of both directions adds them. GB are 10^9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload.errors import ReadingError
from offload.readers.tools.finding import ADDED, Delay, Fact, Finding, Machine, Measured, Peer, When
from offload.readers.tools.matrices import GB, Table, figure, once, table
from offload.readers.tools.text import Text

LOOKS_LIKE = "rocm_bandwidth_test"
BUS_TOOL = "hipBusBandwidth"
VERSION = re.compile(r"\s*RocmBandwidthTest Version: ([0-9][0-9.]{0,20})\s*$")
DEVICE = re.compile(r"(?!.*pciBusID)\s*Device: ([0-9]{1,3}),\s+(\S[^,]{0,80}?)\s*(,.{0,80})?$")
RATES = re.compile(r"\s*(Unidirectional|B(?:i)?directional) (?:copy )?(peak|average) bandwidth (\w+/s\w*)\s*$")
ACCESS = re.compile(r"\s*(?:Inter-)?Device Access\s*$")
BUS_DEVICE = re.compile(r"\s*Device:(?!\s*[0-9]+,)\s*(\S.{0,60}?) Mem=")
BUS_ROW = re.compile(
    r"\s*(H2D|D2H|Bidir)_(Bandwidth|Time)_?(pinned|unpinned)?\s+\+?([0-9]{1,9})(By|kB|KB|MB)\s+(\S{1,10})"
    r"\s+([0-9.]{1,20})\s+([0-9.]{1,20})\s+([0-9.]{1,20})\s+([0-9.]{1,20})\s+([0-9.]{1,20})\s*$"
)
BUS_SIZES = {"By": 1, "kB": 2**10, "KB": 2**10, "MB": 2**20}


@dataclass(slots=True)
class _Run:
    """One run of rocm_bandwidth_test: its devices (name, whether a GPU, line) and its tables with their headings."""

    devices: dict[int, tuple[str, bool, int]] = field(default_factory=dict)
    access: Table | None = None
    access_line: int = 0
    tables: list[tuple[re.Match[str], Table, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    tools: list[str] = field(default_factory=list)
    rates: list[Measured] = field(default_factory=list)
    delays: list[Delay] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


def is_it(text: Text) -> bool:
    """Whether a text holds tables of rocm_bandwidth_test or of hipBusBandwidth."""
    signs = (
        r"\bRocmBandwidthTest Version:|\b(?:Uni|Bi?)directional (?:copy )?(?:peak|average) bandwidth \w+/s\s*$"
        r"|\b(?:H2D|D2H|Bidir)_Bandwidth"
    )
    words = ("RocmBandwidthTest", "directional ", "_Bandwidth")
    return any(word in text.whole for word in words) and bool(re.search(signs, text.whole, re.MULTILINE))


def read(text: Text) -> Finding:
    """The rates between devices, or by size. Raises ReadingError where there is none."""
    text, found = text.without_prefixes(), _Found()
    _tables(text, found)
    _sizes(text, found)
    if not found.rates:
        raise ReadingError(
            "rocm_bandwidth_test's output without a rate. Give all of it, with the tables under"
            " 'Unidirectional copy peak bandwidth GB/s'." + (f" ({found.odd[0]})" if found.odd else "")
        )
    return Finding(
        " and ".join(dict.fromkeys(found.tools)),
        machine=Machine(peers=tuple(found.peers)) if found.peers else None,
        rates=tuple(found.rates), delays=tuple(found.delays), facts=tuple(found.facts),
        assumed=once(found.assumed), unknown=once(found.unknown), odd=once(found.odd),
    )  # fmt: skip


def _tables(text: Text, found: _Found) -> None:
    lines, at, run = text.lines, 0, _Run()
    version = ""
    while at < len(lines):
        line = lines[at]
        at += 1
        if match := VERSION.match(line.text):
            _take(run, version, found)
            run, version = _Run(), match[1]
        elif match := DEVICE.match(line.text):
            number = int(match[1])
            if number in run.devices:
                _take(run, version, found)
                run = _Run()
            run.devices[number] = (match[2], bool(re.search(r",\s*[0-9A-Fa-f:]+\.[0-7]\s*$", match[3] or "")),
                                   line.number)  # fmt: skip
        elif (match := RATES.match(line.text)) or ACCESS.match(line.text):
            while at < len(lines) and not lines[at].text.strip():
                at += 1
            read_table = table(lines, at, blanks=True)
            if read_table is None:
                found.odd.append(f"line {line.number}: no table follows its heading: cut?")
                continue
            at = read_table.after
            if not match:
                run.access, run.access_line = read_table, line.number
            elif match[3] != "GB/s":
                found.unknown.append(f"line {line.number}: a table in {match[3]}, not GB/s, is left out.")
            else:
                found.odd += read_table.odd
                if missing := [column for column in read_table.columns if column not in read_table.rows]:
                    found.odd.append(f"line {line.number}: the table has no row {missing[0]}: cut?")
                run.tables.append((match, read_table, line.number))
    _take(run, version, found)


def _names(run: _Run, found: _Found) -> dict[int, str]:
    """What the devices are called: GPUs counted as they come; one processor is the host, several are NUMA nodes."""
    numbers = sorted(set(run.devices) or {number for _, read, _ in run.tables for number in read.columns})
    if run.devices:
        gpus = [number for number in numbers if run.devices[number][1]]
        if not gpus:
            # A list without addresses: what no copy to itself was measured of is a processor.
            gpus = _with_own_copy(run)
    else:
        gpus = _with_own_copy(run)
        found.unknown.append("What the devices are: their list is not in this output.")
    if not run.devices or not any(gpu for _, gpu, _ in run.devices.values()):
        found.assumed.append("A device that has no copy to itself is a processor, the others are GPUs.")
    hosts = [number for number in numbers if number not in gpus]
    if len(hosts) > 1:
        found.assumed.append("The processors, in their order, are NUMA nodes 0, 1 and so on.")
    names = {number: f"gpu{at}" for at, number in enumerate(gpus)}
    names |= {number: "host" if len(hosts) == 1 else f"numa{at}" for at, number in enumerate(hosts)}
    return names


def _with_own_copy(run: _Run) -> list[int]:
    return sorted({
        cell.row for heading, read, _ in run.tables for cell in read.cells
        if cell.row == cell.column and heading[1] == "Unidirectional"
    })  # fmt: skip


def _take(run: _Run, version: str, found: _Found) -> None:
    """One run's tables as rates and peer access."""
    if not run.tables:
        return
    found.tools.append(f"{LOOKS_LIKE} {version}".strip())
    names = _names(run, found)
    gpus = {number for number, name in names.items() if name.startswith("gpu")}
    for number, (model, _, line) in run.devices.items():
        what = "model of " + names[number] if number in gpus else "model of the processor of " + names[number]
        found.facts.append(Fact(what, model, "", line))
    if run.access:
        said = [(cell.row, cell.column, True) for cell in run.access.cells]
        said += [(first, second, False) for first, second in run.access.zeros]
        for first, second, works in sorted(said):
            if first != second and first in gpus and second in gpus:
                found.peers.append(Peer(names[first], names[second], works, line=run.access_line))
    absent = 0
    for heading, read, line in run.tables:
        both = heading[1] != "Unidirectional"
        for cell in read.cells:
            if cell.row not in names or cell.column not in names:
                found.odd.append(f"line {line}: a device that is not in the list of devices: its figures are left out.")
                continue
            source, destination = names[cell.row], names[cell.column]
            if source == destination and both:
                continue
            within = source == destination
            notes = ["reads and writes added" if within else "", ADDED if both else "",
                     "average over sizes" if heading[2] == "average" else ""]  # fmt: skip
            host = not within and not (cell.row in gpus and cell.column in gpus)
            found.rates.append(Measured(
                source, destination, cell.value * GB, "mixed" if within else "pinned" if host else "copy",
                "both directions" if both else "alone", streams=2 if both else 1,
                note="; ".join(note for note in notes if note), line=cell.line,
            ))  # fmt: skip
        absent += read.absent
    found.assumed.append("A cell is the rate from the row's device to the column's.")
    found.assumed.append("The diagonal is a copy within a GPU, reads and writes added.")
    found.assumed.append(f"In a table of both directions a cell is the sum of the two ({ADDED}).")
    if absent:
        found.unknown.append(f"{absent} cells are N/A: no such copy was measured.")


def _sizes(text: Text, found: _Found) -> None:
    """The rows of hipBusBandwidth: median, mean, deviation, least and most over its repetitions."""
    zero = 0
    least: dict[str, tuple[int, Delay]] = {}
    for line in text:
        if match := BUS_DEVICE.match(line.text):
            found.facts.append(Fact("model of gpu0", match[1], "", line.number))
            continue
        row = BUS_ROW.match(line.text)
        if not row:
            continue
        found.tools.append(BUS_TOOL)
        way, kind, memory, unit = row[1], row[2], row[3], row[6]
        size, middle = int(row[4]) * BUS_SIZES[row[5]], figure(row[7])
        source, destination = ("gpu0", "host") if way == "D2H" else ("host", "gpu0")
        if (kind, unit) not in (("Bandwidth", "GB/sec"), ("Time", "ms")):
            found.unknown.append(f"line {line.number}: a row in {unit} is left out.")
        elif middle is None or not size:
            zero += kind == "Bandwidth"
        elif kind == "Time":
            if way not in least or size < least[way][0]:
                note = f"median of {size} bytes, {memory or 'memory not said'}"
                when: When = "both directions" if way == "Bidir" else "alone"
                least[way] = size, Delay(source, destination, middle * 1e-3, when, note, line.number)
        else:
            low, high = figure(row[10]), figure(row[11])
            both = way == "Bidir"
            found.rates.append(Measured(
                source, destination, middle * GB, {"pinned": "pinned", "unpinned": "pageable"}.get(memory or "", ""),
                "both directions" if both else "alone", size=size, streams=2 if both else 1,
                low=low * GB if low else None, high=high * GB if high else None,
                note="median" + (f"; {ADDED}" if both else ""), line=line.number,
            ))  # fmt: skip
    found.delays += [delay for _, delay in least.values()]
    if zero:
        found.unknown.append(f"{zero} rates of {BUS_TOOL} that are printed as 0: too small for its decimals.")
    if BUS_TOOL in found.tools:
        found.assumed.append(
            f"{BUS_TOOL} measures GPU 0, its default; kB are 1024 bytes and GB 10^9, as its times say."
        )
