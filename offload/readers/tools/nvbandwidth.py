"""nvbandwidth, as text (0.2 to 0.10) and as JSON (-j, from 0.5): rates between host and GPUs and between GPUs, latency.

The arrow of a table's description gives the direction, and in a table of both (<->) the test's name. Tests of pairs run
one transfer at a time; all_to_host, host_to_all, all_to_one and one_to_all run all at once, which shows shared links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from offload.errors import ReadingError
from offload.readers.tools.finding import ADDED, Delay, Fact, Finding, Gathered, Measured, When
from offload.readers.tools.matrices import GB, Cell, figure, once, table
from offload.readers.tools.text import Text

LOOKS_LIKE = "nvbandwidth"
RUNNING = re.compile(r"\s*Running ([a-z0-9_]{1,80})\.\s*$")
SUM = re.compile(r"\s*SUM ([a-z0-9_]{1,80}) (\S{1,40})\s*$")
DESCRIBED = re.compile(r"(?i)(?:memcpy|memory latency|device to device latency)\b.*\((GB/s|ns)\)\s*$")
ENDS = re.compile(
    r"(?i)(CPU\(row\)|GPU\(row\)|All GPUs|GPU\(column\))\s*(<->|<-|->)\s*(GPU\(column\)|All GPUs)\s*"
    r"(?:(read1|read2|write1|write2|total) )?"
)
DEVICE = re.compile(r"\s*Device ([0-9]{1,4}): (\S.{0,80}?)\s*(?:\([0-9A-Fa-f:.]+\))?\s*$")
VERSION = re.compile(r"\s*nvbandwidth Version: (v?[0-9][\w.-]{0,20})\s*$")
TEST_NAME = re.compile(r"[a-z]\w{0,80}", re.ASCII)


@dataclass(slots=True)
class _Test:
    """One table with the test that gave it; `total` is the sum that is printed."""

    name: str
    description: str
    cells: Sequence[Cell]
    columns: Sequence[int]
    line: int
    total: float | None = None


def is_it(text: Text) -> bool:
    """Whether a text holds what nvbandwidth prints."""
    signs = r'"nvbandwidth"\s*:|\bnvbandwidth Version:|\b(?:SUM|Running) \w*_(?:memcpy|to|latency|local)_\w+'
    words = ("nvbandwidth", "SUM ", "Running ")
    return any(word in text.whole for word in words) and bool(re.search(signs, text.whole))


def read(text: Text) -> Finding:
    """The rates and latencies of nvbandwidth's tests. Raises ReadingError where no test has a figure."""
    text, found = text.without_prefixes(), Gathered()
    tests = list(_of_json(text, found))
    if not tests:
        tests = list(_of_text(text, found))
    for test in tests:
        _take(test, found)
    if not (found.rates or found.delays or found.facts):
        raise ReadingError(
            "nvbandwidth's output with no figure in it. Give all of it, from its version to the last SUM line"
            + (f" ({found.odd[0]})" if found.odd else ".")
        )
    tool = " ".join(["nvbandwidth", *dict.fromkeys(found.versions)])
    return Finding(
        tool, rates=tuple(found.rates), delays=tuple(found.delays), facts=tuple(found.facts),
        assumed=once(found.assumed), unknown=once(found.unknown), odd=once(found.odd),
    )  # fmt: skip


def _of_text(text: Text, found: Gathered) -> Iterator[_Test]:
    lines, at, name, waived, listing = text.lines, 0, "", 0, False
    pending: _Test | None = None
    while at < len(lines):
        line = lines[at]
        at += 1
        if match := VERSION.match(line.text):
            found.versions.append(match[1])
            listing = True
        elif listing and (match := DEVICE.match(line.text)):
            _device(int(match[1]), match[2], line.number, found)
        elif match := RUNNING.match(line.text):
            if pending:
                yield pending
            pending, name, listing = None, match[1], False
        elif re.match(r"\s*(?:Waived\b|WAIVED\b)", line.text):
            waived += 1
        elif match := SUM.match(line.text):
            if pending:
                pending.name, pending.total = match[1], figure(match[2])
                yield pending
            pending = None
        elif (match := DESCRIBED.match(line.text.strip())) and (read := table(lines, at)):
            if pending:
                yield pending
            found.odd += read.odd
            pending = _Test(name, line.text.strip(), read.cells, read.columns, line.number)
            at = read.after
    if pending:
        yield pending
    if waived:
        found.unknown.append(f"Tests that were waived, as they cannot run on this machine: {waived}.")


def _of_json(text: Text, found: Gathered) -> Iterator[_Test]:
    for line, value in text.json_values("nvbandwidth"):
        top = value["nvbandwidth"]
        if not isinstance(top, dict) or not isinstance(top.get("testcases"), list):
            found.odd.append(f"line {line}: nvbandwidth's JSON without its list of testcases.")
            continue
        version = top.get("version")
        if isinstance(version, str) and re.fullmatch(r"v?[0-9][\w.-]{0,20}", version):
            found.versions.append(version)
        devices = top.get("GPU Device list")
        for said in devices if isinstance(devices, list) else ():
            if match := DEVICE.match(said if isinstance(said, str) else ""):
                _device(int(match[1]), match[2], line, found)
        start = text.start_of(line)
        waived = []
        for case in top["testcases"]:
            name = case.get("name") if isinstance(case, dict) else None
            if not isinstance(name, str) or not TEST_NAME.fullmatch(name):
                found.odd.append(f"line {line}: a test without a name is left out.")
                continue
            at = text.whole.find(f'"{name}"', start)
            where = text.line_of(at) if at >= 0 else line
            if case.get("status") == "Waived":
                waived.append(name)
            elif case.get("status") != "Passed":
                found.odd.append(f"line {where}: {name} did not pass: left out.")
            else:
                yield from _json_test(name, case, where, found)
        if waived:
            found.unknown.append(f"waived, as they cannot run on this machine: {', '.join(waived)}.")


def _json_test(name: str, case: dict[str, Any], line: int, found: Gathered) -> Iterator[_Test]:
    rows, described = case.get("bandwidth_matrix"), case.get("bandwidth_description")
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows) or not isinstance(described, str):
        found.odd.append(f"line {line}: {name} has no bandwidth_matrix or no bandwidth_description: left out.")
        return
    cells = []
    for row, words in enumerate(rows):
        for column, word in enumerate(words):
            value = figure(word)
            if value is not None:
                cells.append(Cell(row, column, value, line))
            elif word not in ("N/A", "0", "0.0", 0):
                found.odd.append(f"line {line}: {name}: a cell that is no figure and not N/A is left out.")
    width = max((len(row) for row in rows), default=0)
    yield _Test(name, described.strip(), cells, range(width), line, figure(case.get("sum")))


def _device(number: int, model: str, line: int, found: Gathered) -> None:
    if number not in found.devices:
        found.facts.append(Fact(f"model of gpu{number}", model, "", line))
        found.devices.add(number)


def _take(test: _Test, found: Gathered) -> None:
    """One table's figures as rates, latencies or facts."""
    where, name = f"line {test.line}", test.name
    if not name:
        found.unknown.append(f"{where}: which test this table is of; without its Running or SUM line it is left out.")
        return
    described = DESCRIBED.match(test.description)
    if not described:
        found.unknown.append(f"{where}: {name}: its description is not understood, its figures are left out.")
        return
    _doubts(test, found)
    if described[1].lower() == "ns":
        _latencies(test, found)
    elif "local" in name and re.search(r"local GPU\(column\)", test.description):
        for cell in test.cells:
            what = f"copy within gpu{cell.column} by its copy engine (not the rate of its memory)"
            found.facts.append(Fact(what, cell.value * GB, "B/s", cell.line))
    else:
        _rates(test, found)


def _doubts(test: _Test, found: Gathered) -> None:
    """What does not fit: the sum against the cells, GPUs that the list of devices does not have."""
    total = sum(cell.value for cell in test.cells)
    if test.total is not None and abs(test.total - total) > 0.006 * (len(test.cells) + 1) + 1e-4 * total:
        found.odd.append(
            f"line {test.line}: {test.name}: its SUM says {test.total:g}, its figures give {total:g}: cut or changed?"
        )
    if found.devices and (beyond := [column for column in test.columns if column not in found.devices]):
        found.odd.append(
            f"line {test.line}: {test.name}: a column for GPU {beyond[0]}, which the list of devices does not have."
        )


def _latencies(test: _Test, found: Gathered) -> None:
    if re.search(r"(?i)CPU\(row\)", test.description):
        for cell in _near(test, found):
            found.delays.append(Delay("host", f"gpu{cell.column}", cell.value * 1e-9, note=test.name, line=cell.line))
    elif re.search(r"(?i)GPU\(row\)", test.description):
        for cell in test.cells:
            first, second = f"gpu{cell.row}", f"gpu{cell.column}"
            if first != second:
                found.delays.append(Delay(first, second, cell.value * 1e-9, note=test.name, line=cell.line))
    else:
        found.unknown.append(f"line {test.line}: {test.name}: between which ends; its latencies are left out.")


def _near(test: _Test, found: Gathered) -> Iterator[Cell]:
    """The cells of row 0, the host buffer near each GPU; nvbandwidth prints no other host row."""
    if any(cell.row for cell in test.cells):
        found.odd.append(f"line {test.line}: {test.name}: more than one host row, which nvbandwidth does not print: "
                         "only row 0 is read.")  # fmt: skip
    return (cell for cell in test.cells if not cell.row)


def _rates(test: _Test, found: Gathered) -> None:
    name, ends = test.name, ENDS.search(test.description)
    out = _outward(name, ends) if ends else None
    if not ends or out is None:
        found.unknown.append(f"line {test.line}: {name}: which direction its figures are of; they are left out.")
        return
    both = "bidirectional" in name
    first, second, added = ends[1].lower(), ends[3].lower(), ends[2] == "<->" and (ends[4] or "").lower() == "total"
    gathered = "all gpus" in (first, second)
    together = gathered or bool(re.match(r"all_to_host|host_to_all", name))
    streams = len(test.columns) - gathered if together else 1
    if together and not gathered and streams < 2:
        together = False
    when: When = "both directions" if both else "together" if together else "alone"
    notes = ["beside all others" if both and together else "", ADDED if added else ""]
    if "cpu" in first:
        cells, access = list(_near(test, found)), "zero_copy" if name.endswith("_sm") else "pinned"
        found.assumed.append("The host's memory is that near each GPU, as nvbandwidth binds by default (not with -d).")
        if both and name.endswith("_sm"):
            notes.append("a kernel's both directions count otherwise than the copy engine's")
    else:
        cells = list(test.cells)
        access = "copy" if "_ce" in name else "read" if "_read_" in name else "write"
    found.assumed.append("The arrow over a table gives the direction: A(row) -> B(column) is from row to column.")
    if added:
        streams = 2
    for cell in cells:
        source = {"cpu(row)": "host", "gpu(row)": f"gpu{cell.row}", "all gpus": "gpus"}.get(first, f"gpu{cell.column}")
        destination = "gpus" if second == "all gpus" else f"gpu{cell.column}"
        if not out:
            source, destination = destination, source
        if source != destination:
            found.rates.append(Measured(
                source, destination, cell.value * GB, access, when, streams=max(1, streams),
                note="; ".join(note for note in notes if note), line=cell.line,
            ))  # fmt: skip


def _outward(name: str, ends: re.Match[str]) -> bool | None:
    """Whether data goes from the row (or what stands left of the arrow) to the column; None where it is not clear."""
    arrow, part = ends[2], (ends[4] or "").lower()
    named = True if re.match(r"host_to_", name) else False if re.match(r"(?:device|all)_to_host", name) else None
    if "cpu" in ends[1].lower():
        said = {"->": True, "<-": False}.get(arrow, named)
        return said if named in (None, said) else None
    if arrow == "<->":
        return {"write1": True, "read2": True, "total": True, "read1": False, "write2": False}.get(part)
    return arrow == "->"
