"""bandwidthTest of the CUDA samples, in its quick, range and shmoo modes and its lines for programs (--csv).

MB/s are 2^20 bytes/s, GB/s (newer) 10^9. With several devices a figure is the sum over devices that are measured one
after another. Device to device counts what is read and what is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload.errors import ReadingError
from offload.readers.tools.finding import Fact, Finding, Measured
from offload.readers.tools.matrices import figure, once
from offload.readers.tools.text import Text

LOOKS_LIKE = "bandwidthTest"
UNITS = {"MB/s": 2.0**20, "GB/s": 1e9}
SECTION = re.compile(r"\s*(Host|Device) to (Host|Device) Bandwidth, ([0-9]{1,4}) Device\(s\)\s*$")
MEMORY = re.compile(r"\s*(PINNED|PAGEABLE) Memory Transfers\b")
HEADING = re.compile(r"\s*Transfer Size \(Bytes\)\s+Bandwidth\s*\(([^()\s]{1,12})\)\s*$")
ROW = re.compile(r"\s*([0-9]{1,15})\s+([0-9]{1,15}(?:\.[0-9]{0,15})?)\s*$")
LINE = re.compile(
    r"\s*bandwidthTest-(H2D|D2H|D2D)(?:-(Pinned|Paged|Pageable))?, Bandwidth = ([0-9.]{1,30}) (\S{1,12}), "
    r"Time = [^,]{1,40}, Size = ([0-9]{1,15}) bytes, NumDevsUsed = ([0-9]{1,4})\s*$"
)
DEVICE = re.compile(r"\s*Device ([0-9]{1,4}): (\S.{0,80}?)\s*$")
SUMMED = "added over devices measured one after another"


@dataclass(slots=True)
class _State:
    """Where a run stands: its devices, the section's ends, memory and unit."""

    listing: bool = False
    devices: list[int] = field(default_factory=list)
    ends: tuple[str, str] | None = None
    count: int = 1
    memory: str = ""
    unit: str = ""


def is_it(text: Text) -> bool:
    """Whether a text holds what bandwidthTest prints."""
    signs = r"\[CUDA Bandwidth Test\]|\bbandwidthTest-(?:H2D|D2H|D2D)\b|Transfer Size \(Bytes\)\s+Bandwidth\s*\("
    words = ("CUDA Bandwidth Test", "bandwidthTest-", "Transfer Size")
    return any(word in text.whole for word in words) and bool(re.search(signs, text.whole))


def read(text: Text) -> Finding:
    """The rates of bandwidthTest, each with its size. Raises ReadingError where it has none."""
    state = _State()
    rates: list[Measured] = []
    facts: dict[str, Fact] = {}
    assumed: list[str] = []
    unknown: list[str] = []
    odd: list[str] = []
    for line in text.without_prefixes():
        said, where = line.text, f"line {line.number}"
        if "[CUDA Bandwidth Test]" in said:
            state = _State(listing=True)
        elif state.listing and (match := DEVICE.match(said)):
            number = int(match[1])
            state.devices.append(number)
            facts.setdefault(f"gpu{number}", Fact(f"model of gpu{number}", match[2], "", line.number))
        elif match := SECTION.match(said):
            state.listing = False
            state.ends, state.count, state.memory, state.unit = (match[1], match[2]), int(match[3]), "", ""
        elif match := MEMORY.match(said):
            state.memory = match[1].lower()
        elif match := HEADING.match(said):
            state.unit = match[1]
            if state.unit not in UNITS:
                unknown.append(f"{where}: rates in {state.unit}; MB/s and GB/s are read. They are left out.")
        elif match := LINE.match(said):
            state.listing = False
            kinds = {"H2D": ("Host", "Device"), "D2H": ("Device", "Host"), "D2D": ("Device", "Device")}
            state.ends, state.count, state.unit = kinds[match[1]], int(match[6]), match[4]
            state.memory = {"": "", "pinned": "pinned"}.get((match[2] or "").lower(), "pageable")
            if state.unit not in UNITS:
                unknown.append(f"{where}: a rate in {state.unit}; MB/s and GB/s are read. It is left out.")
            _take(state, match[5], match[3], line.number, rates, unknown)
            state.ends, state.unit = None, ""
        elif match := ROW.match(said):
            if state.ends is None or not state.unit:
                odd.append(f"{where}: figures outside of a section are left out.")
            else:
                _take(state, match[1], match[2], line.number, rates, unknown)
        elif said.strip().startswith("Result = ") and "PASS" not in said:
            odd.append(f"{where}: the test itself says that it did not pass.")
    if not rates:
        raise ReadingError(
            "bandwidthTest's output without a rate. Give all of it: sections as 'Host to Device Bandwidth, 1 Device(s)'"
            " with a table of sizes, in MB/s or GB/s."
        )
    if any(line.text.strip().endswith("Bandwidth(MB/s)") or "MB/s" in line.text for line in text):
        assumed.append("MB/s are 2^20 bytes a second, as bandwidthTest counts them.")
    if any(rate.source == rate.destination for rate in rates):
        assumed.append("Device to device counts what is read and what is written.")
    if any(rate.streams > 1 for rate in rates):
        assumed.append("Figures of several devices are added over devices measured one after another, not at once.")
    return Finding(
        LOOKS_LIKE, rates=tuple(rates), facts=tuple(facts.values()), assumed=tuple(assumed), unknown=once(unknown),
        odd=once(odd),
    )  # fmt: skip


def _take(state: _State, size: str, said: str, line: int, rates: list[Measured], unknown: list[str]) -> None:
    """One figure as a rate, where its unit is known and it is above 0."""
    value = figure(said)
    if state.unit not in UNITS or state.ends is None or not int(size) or not state.count:
        return
    if value is None:
        unknown.append(f"line {line}: the rate at {size} bytes, which is printed as {said}.")
        return
    if state.count > 1:
        gpu = "gpus"
    elif len(set(state.devices)) == 1:
        gpu = f"gpu{state.devices[0]}"
    else:
        gpu = "gpu0"
        unknown.append("Which GPU was measured; it is taken as gpu0.")
    source, destination = ("host" if end == "Host" else gpu for end in state.ends)
    within = source == destination
    notes = ["reads and writes added" if within else "", SUMMED if state.count > 1 else ""]
    rates.append(Measured(
        source, destination, value * UNITS[state.unit], "mixed" if within else state.memory, size=int(size),
        streams=state.count, note="; ".join(note for note in notes if note), line=line,
    ))  # fmt: skip
