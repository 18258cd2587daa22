"""p2pBandwidthLatencyTest of the CUDA samples: rates and latencies between GPUs, with peer access off and on.

With it off a copy is staged through host memory: both are kept. A table of both directions adds them. The diagonal is
a copy within a GPU, its reads and writes added.
"""

from __future__ import annotations

import re

from offload.errors import ReadingError
from offload.readers.tools.finding import ADDED, Delay, Fact, Finding, Machine, Measured, Peer
from offload.readers.tools.matrices import GB, Table, once, table
from offload.readers.tools.text import Text

LOOKS_LIKE = "p2pBandwidthLatencyTest"
STAGED = "staged through host memory"
RATES = re.compile(
    r"\s*(Uni|Bi)directional P2P=(Disabled|Enabled) Bandwidth (?:\(P2P (Writes|Reads)\) )?Matrix \((\w+/s)\)\s*$"
)
LATENCY = re.compile(r"\s*P2P=(Disabled|Enabled) Latency (?:\(P2P (Writes|Reads)\) )?Matrix \((\w+)\)\s*$")
DEVICE = re.compile(r"\s*Device: ([0-9]{1,4}), (\S.{0,80}?), pciBusID: ")
ACCESS = re.compile(r"\s*Device=([0-9]{1,4}) (CAN|CANNOT) Access Peer Device=([0-9]{1,4})\s*$")


def is_it(text: Text) -> bool:
    """Whether a text holds a table of p2pBandwidthLatencyTest or its first line."""
    signs = r"\[P2P \(Peer-to-Peer\) GPU Bandwidth|P2P=(?:Dis|En)abled (?:Bandwidth|Latency)\b.*Matrix \("
    return bool(re.search(signs, text.whole))


def read(text: Text) -> Finding:
    """The rates, latencies and peer access of p2pBandwidthLatencyTest.

    Raises ReadingError where no table has a figure.
    """
    lines = text.without_prefixes().lines
    rates: list[Measured] = []
    delays: list[Delay] = []
    facts: dict[int, Fact] = {}
    peers: dict[tuple[int, int], Peer] = {}
    odd: list[str] = []
    unknown: list[str] = []
    within: set[int] = set()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if match := DEVICE.match(line.text):
            number = int(match[1])
            facts.setdefault(number, Fact(f"model of gpu{number}", match[2], "", line.number))
        elif match := ACCESS.match(line.text):
            first, second = int(match[1]), int(match[3])
            peers[first, second] = Peer(f"gpu{first}", f"gpu{second}", match[2] == "CAN", line=line.number)
        elif match := RATES.match(line.text):
            read_table = table(lines, at)
            if match[4] != "GB/s":
                unknown.append(f"line {line.number}: a table in {match[4]}, not GB/s, is left out.")
            elif read_table is None:
                odd.append(f"line {line.number}: no table follows its heading: cut?")
            else:
                rates += _rates(read_table, match, peers, within)
                odd += _short(read_table, line.number)
                at = read_table.after
        elif match := LATENCY.match(line.text):
            if match[3] != "us":
                unknown.append(f"line {line.number}: a latency in {match[3]}, not us, is left out.")
                continue
            enabled = match[1] == "Enabled"
            for who in ("GPU", "CPU"):
                while at < len(lines) and not lines[at].text.strip():
                    at += 1
                if at < len(lines) and lines[at].text.split()[:1] == [who] and (read_table := table(lines, at)):
                    delays += _delays(read_table, enabled, who, peers)
                    odd += _short(read_table, line.number)
                    at = read_table.after
                else:
                    odd.append(f"line {line.number}: no table of the {who}'s latency follows its heading: cut?")
    if not rates and not delays:
        raise ReadingError(
            "p2pBandwidthLatencyTest's output without a table of rates or latencies. Give all of it, to its end."
        )
    notes = {(rate.when, rate.note.startswith("P2P enabled")) for rate in rates if rate.source != rate.destination}
    for when, words in (("alone", "one direction"), ("both directions", "both directions")):
        for enabled, state in ((False, "off"), (True, "on")):
            if (when, enabled) not in notes and (rates and len({rate.source for rate in rates}) > 1):
                unknown.append(f"Rates between GPUs, {words}, with peer access {state}: not in this output.")
    if not delays:
        unknown.append("Latencies between GPUs: not in this output.")
    return Finding(
        LOOKS_LIKE,
        machine=Machine(peers=tuple(peers.values())) if peers else None,
        rates=tuple(rates),
        delays=tuple(delays),
        facts=tuple(facts.values()),
        assumed=(
            "A cell off the diagonal is from the row's GPU to the column's.",
            "The diagonal is a copy within a GPU, reads and writes added; its latency is left out.",
            *((f"In a table of both directions a cell is the sum of the two ({ADDED}).",)
              if any(rate.when == "both directions" for rate in rates) else ()),
        ),
        unknown=once(unknown),
        odd=once(odd),
    )  # fmt: skip


def _way(enabled: bool, first: int, second: int, peers: dict[tuple[int, int], Peer]) -> str:
    """How a copy between two GPUs goes, in words."""
    peer = peers.get((first, second))
    if not enabled:
        return f"P2P disabled, {STAGED}"
    return f"P2P enabled, no peer access: {STAGED}" if peer is not None and not peer.works else "P2P enabled"


def _rates(read: Table, heading: re.Match[str], peers: dict[tuple[int, int], Peer], within: set[int]) -> list[Measured]:
    """A table's rates; within : the GPUs whose own copy is already told."""
    both, enabled = heading[1] == "Bi", heading[2] == "Enabled"
    found = []
    for cell in read.cells:
        ends = f"gpu{cell.row}", f"gpu{cell.column}"
        if cell.row == cell.column:
            if both or cell.row in within:
                continue  # the same copy within a GPU again
            within.add(cell.row)
            found.append(Measured(*ends, cell.value * GB, "mixed", note="reads and writes added", line=cell.line))
            continue
        way = _way(enabled, cell.row, cell.column, peers)
        note = f"{way}; {ADDED}" if both else way
        access = "read" if heading[3] == "Reads" else "write" if heading[3] == "Writes" and enabled else "copy"
        found.append(
            Measured(
                *ends,
                cell.value * GB,
                "copy" if STAGED in way else access,
                "both directions" if both else "alone",
                streams=2 if both else 1,
                note=note,
                line=cell.line,
            )
        )
    return found


def _delays(read: Table, enabled: bool, who: str, peers: dict[tuple[int, int], Peer]) -> list[Delay]:
    side = "" if who == "GPU" else "; as the CPU sees it"
    return [
        Delay(
            f"gpu{cell.row}",
            f"gpu{cell.column}",
            cell.value * 1e-6,
            note=_way(enabled, cell.row, cell.column, peers) + side,
            line=cell.line,
        )
        for cell in read.cells
        if cell.row != cell.column
    ]


def _short(read: Table, line: int) -> list[str]:
    """What is odd in a table, with rows that are not there."""
    missing = [column for column in read.columns if column not in read.rows]
    if not missing:
        return list(read.odd)
    return [*read.odd, f"line {line}: the table has no row {missing[0]}: cut?"]
