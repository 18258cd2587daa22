"""BabelStream and GPU-STREAM: rates of a GPU's or the host's memory, as text (versions 2 to 5) or CSV.

The unit stands in the heading: MBytes/sec, MB/s, max_mbytes_per_sec, max_MB_per_sec are 10^6 B/s; MiBytes/sec, MiB/s,
max_mibytes_per_sec, max_MiB_per_sec are 2^20 B/s. Rates count the arrays' bytes read and written; Dot reads alone.
CSV says neither which memory nor which version it is: its rates are facts, of no known end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from offload.errors import ReadingError
from offload.readers.tools.figures import MIB, agree, last_digit, positive, whole
from offload.readers.tools.finding import Fact, Finding, Gathered, Measured
from offload.readers.tools.text import Line, Text

LOOKS_LIKE = "BabelStream"
ARRAYS = {"Copy": 2, "Mul": 2, "Add": 3, "Triad": 3, "Dot": 2, "Nstream": 4}
ACCESS = {"Copy": "copy", "Mul": "copy", "Add": "mixed", "Triad": "mixed", "Dot": "read", "Nstream": "mixed"}
HEADING = re.compile(r"^\s*Function\s+(\S+)\s+Min \(sec\)\s+Max\s+Average")
TITLE = re.compile(r"^\s*(?:BabelStream|GPU-STREAM)\s*$")
CSV = re.compile(r"^\s*function,num_times,n_elements,sizeof,(\w+),min_runtime,max_runtime,avg_runtime\s*$")
ROW = re.compile(r"^\s*(Copy|Mul|Add|Triad|Dot|Nstream)\b[\s,](.*)$")
UNITS = {
    "MBytes/sec": 1e6, "MB/s": 1e6, "max_mbytes_per_sec": 1e6, "max_MB_per_sec": 1e6,
    "MiBytes/sec": MIB, "MiB/s": MIB, "max_mibytes_per_sec": MIB, "max_MiB_per_sec": MIB,
}  # fmt: skip
ON_GPU = ("CUDA", "HIP")
ON_HOST = ("OpenMP", "TBB", "Threads", "STD", "Serial", "RAJA")


@dataclass(slots=True)
class _Run:
    """What a heading said of the run whose rows follow."""

    version: str = ""
    implementation: str = ""
    end: str | None = None
    unit: float | None = None
    csv: bool = False
    inside: bool = False


def is_it(text: Text) -> bool:
    """Whether a BabelStream table stands in the text."""
    if "unction" not in text.whole:
        return False
    lines = (line.text for line in text.without_prefixes() if "unction" in line.text)
    return any(HEADING.match(line) or CSV.match(line) for line in lines)


def read(text: Text) -> Finding:
    """The rates of every run in the text. Raises ReadingError where there is no row with a rate."""
    told, run = Gathered(), _Run()
    versions = set()
    for line in text.without_prefixes():
        if TITLE.match(line.text):
            run = _Run()
        elif found := re.match(r"\s*Version:\s*(\S+)", line.text):
            run.version = found[1]
            versions.add(found[1])
        elif found := re.match(r"\s*Implementation:\s*(\S.*?)\s*$", line.text):
            run.implementation = found[1]
            run.end = _end(found[1], told)
        elif found := re.match(r"\s*Using (?:\w+ )?device:?\s+(\S.*?)\s*$", line.text):
            told.facts.append(Fact("device of BabelStream", found[1], "", line.number))
        elif found := HEADING.match(line.text) or CSV.match(line.text):
            run.csv = CSV.match(line.text) is not None
            if run.csv:
                run = _Run(csv=True)  # CSV has no heading of its own: what stands above it is another run
            run.unit, run.inside = UNITS.get(found[1]), True
            if run.unit is None:
                told.odd.append(f"line {line.number}: a rate in {found[1]} is not known here, its rows are left out.")
        elif run.inside and (row := ROW.match(line.text)):
            if run.unit is not None:
                _row(row[1], row[2], line, run, told)
        elif line.text.strip():
            run.inside = False
    if not told.rates and not any(fact.unit == "B/s" for fact in told.facts):
        raise ReadingError(f"looks like {LOOKS_LIKE}, but no row with a rate is in it. {' '.join(told.odd)}")
    if not all(rate.source == "gpu" for rate in told.rates) or not told.rates:
        told.unknown.append("write-allocate reads, which are not counted: up to half as much again on a processor")
    tool = "BabelStream " + versions.pop() if len(versions) == 1 else "BabelStream"
    return Finding(tool, rates=tuple(told.rates), facts=tuple(told.facts), assumed=tuple(dict.fromkeys(told.assumed)),
                   unknown=tuple(dict.fromkeys(told.unknown)), odd=tuple(told.odd))  # fmt: skip


def _end(implementation: str, told: Gathered) -> str | None:
    """Whose memory an implementation runs on: "gpu" (of no known number), "host", None where it may be either."""
    word = implementation.split()[0]
    if word in ON_GPU:
        told.unknown.append("which GPU it was")
        return "gpu"
    if word.startswith(ON_HOST):
        told.assumed.append(f"host memory: {word} was not built for a GPU")
        return "host"
    return None


def _row(kernel: str, rest: str, line: Line, run: _Run, told: Gathered) -> None:
    cells = [cell.strip() for cell in rest.split(",")] if run.csv else rest.split()
    cells = cells if len(cells) == (7 if run.csv else 4) else []
    printed, seconds = (cells[3:5] if run.csv else cells[:2]) or ("", "")
    rate, least = positive(printed, run.unit or 1), positive(seconds)
    if rate is None or least is None:
        told.odd.append(f"line {line.number}: {kernel} has no rate and times above 0, left out.")
        return
    if run.csv:
        elements, width = whole(cells[1]), whole(cells[2])
        size = ARRAYS[kernel] * elements * width if elements and width else None
        if size and not agree(rate, size, least, last_digit(seconds)):
            told.odd.append(
                f"line {line.number}: {kernel} of {rate:.6g} B/s is not its arrays' {size:,} B in {seconds} s."
            )
    added = "bytes read" if kernel == "Dot" else "bytes read and written added"
    if run.end is None:
        told.facts.append(Fact(f"{kernel} in a memory that is not named, {added}", rate, "B/s", line.number))
        told.unknown.append("whose memory it was: " + (f"{run.implementation} may run on a GPU or on the host"
                            if run.implementation else "only the text output names the implementation"))  # fmt: skip
        return
    told.rates.append(Measured(run.end, run.end, rate, ACCESS[kernel], note=f"{kernel}, {added}", line=line.number))
