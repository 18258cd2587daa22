"""rocm-smi --showtopo and --showtoponuma (text, --json), amd-smi topology --json: xGMI links and NUMA nodes of GPUs.

Hops of 1 say xGMI whatever the number of links; only amd-smi tells rates. Its JSON is read as documented.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from offload.errors import ReadingError, shown
from offload.readers.tools.finding import Device, Fact, Finding, Joint, Machine, Near, Numa
from offload.readers.tools.json_place import Place
from offload.readers.tools.matrix import Matrix, gpu_number, matrices
from offload.readers.tools.text import Text

LOOKS_LIKE = "rocm-smi --showtopo, amd-smi topology --json"
TABLES_OF = "rocm-smi --showtopo"
TITLE = re.compile(r"={3,}\s*(Weight|Hops|Link Type|Numa Nodes)\b.*?=*\s*$")
TITLES = {"Weight": "weight", "Hops": "hops", "Link Type": "type"}
NUMA = re.compile(r"GPU\[([0-9]{1,4})\]\s*:\s*\(Topology\) Numa (Node|Affinity):\s*(-?[0-9]{1,5})\s*$")
TABLES = re.compile(r"^[ \t]*(?:ACCESS|WEIGHT|HOPS|LINK TYPE) TABLE:", re.MULTILINE)
AMD = re.compile(r'"(?:num_hops|link_type)"\s*:')
PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices ([0-9]{1,4}) and ([0-9]{1,4})$")
BANDWIDTH = re.compile(r"\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*(?:Mb/s|MB/s)?\s*$")
STEP = 15  # weight of one xGMI link in the kernel's table


@dataclass(slots=True)
class _Told:
    """What is said: of pairs (lower number first) the words under "weight", "hops", "type"; of GPUs their nodes."""

    gpus: dict[int, int] = field(default_factory=dict)
    pairs: dict[tuple[int, int], dict[str, tuple[str, int]]] = field(default_factory=dict)
    nodes: dict[int, dict[str, tuple[int, int]]] = field(default_factory=dict)
    rates: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)

    def pair(self, first: int, second: int, key: str, value: str, line: int) -> None:
        self.gpus.setdefault(first, line)
        self.gpus.setdefault(second, line)
        ends = (first, second) if first < second else (second, first)
        told = self.pairs.setdefault(ends, {}).setdefault(key, (value, line))
        if told[0] != value:
            raise ReadingError(
                f"lines {told[1]} and {line}: the {key} of GPU {ends[0]} - GPU {ends[1]} is {shown(told[0])} and "
                f"{shown(value)}. Give one machine's output in a file."
            )

    def node(self, gpu: int, key: str, value: int, line: int) -> None:
        self.gpus.setdefault(gpu, line)
        told = self.nodes.setdefault(gpu, {}).setdefault(key, (value, line))
        if told[0] != value:
            raise ReadingError(f"lines {told[1]} and {line}: GPU {gpu} has two NUMA nodes. Give one machine's output.")


def is_it(text: Text) -> bool:
    """Whether a text holds what rocm-smi or amd-smi tells of a topology."""
    return any(_title(line.text) for line in text) or any(
        sign.search(text.whole) for sign in (re.compile(r"\(Topology\) (?:Numa|Weight|Hops|Link)"), TABLES, AMD)
    )


def _title(line: str) -> re.Match[str] | None:
    return TITLE.search(line) if "===" in line and len(line) < 1000 else None


def read(text: Text) -> Finding:
    """Devices "gpuN", xGMI joints (rate [B/s] one way from amd-smi alone), NUMA nodes; "SYS" for PCIe across nodes.

    Raises ReadingError for amd-smi's text tables (only its JSON is read), two machines in one file, or no whole row.
    """
    told = _Told()
    _from_tables(text, told)
    _from_json(text, told)
    if not told.gpus:
        if TABLES.search(text.whole):
            raise ReadingError("is amd-smi's text, which is not read. Save: amd-smi topology --json > FILE")
        raise ReadingError("holds no whole row. Save all of: rocm-smi --showtopo > FILE")
    assumed: list[str] = []
    joints, nears = _links(told, assumed)
    devices, numas = _devices(told)
    tool = " and ".join(dict.fromkeys(told.tools))
    told.unknown.append(f"PCIe generations and lanes, host memory, drives: not told by {tool}.")
    return Finding(
        tool, Machine(numas, devices, joints, nears), facts=tuple(told.facts), assumed=tuple(assumed),
        unknown=tuple(told.unknown), odd=tuple(told.odd),
    )  # fmt: skip


def _from_tables(text: Text, told: _Told) -> None:
    titles = [(line.number, match[1]) for line in text if (match := _title(line.text))]
    for matrix in matrices(text):
        place = bisect_left(titles, matrix.line, key=lambda one: one[0]) - 1
        above = titles[place][1] if place >= 0 else ""
        if above in TITLES and all(gpu_number(name) is not None for name in matrix.names):
            _square(matrix, TITLES[above], told)
            told.tools.append(TABLES_OF)
    for line in text:
        if "(Topology)" in line.text and (match := NUMA.search(line.text)):
            told.node(int(match[1]), match[2], int(match[3]), line.number)
            told.tools.append(TABLES_OF)


def _square(matrix: Matrix, key: str, told: _Told) -> None:
    told.odd += [f"line {line}: the row of {name} is cut." for line, name in matrix.cut]
    for name, row in matrix.rows.items():
        first = gpu_number(name) or 0
        told.gpus.setdefault(first, row.line)
        for other, cell in zip(matrix.names, row.cells, strict=True):
            if other != name:
                told.pair(first, gpu_number(other) or 0, key, cell.upper(), row.line)


def _from_json(text: Text, told: _Told) -> None:
    if not re.search(r'"\(Topology\) ', text.whole) and not AMD.search(text.whole):
        return
    for at, value in text.json_values():
        place = Place(text, at)
        if isinstance(value, dict):
            _rocm_json(value, place, told)
            told.tools += ["rocm-smi --json"] * bool(told.gpus)
        elif value and all(isinstance(one, dict) and "links" in one for one in value):
            _amd_json(value, place, told)
            told.tools.append("amd-smi topology --json")


def _rocm_json(value: dict[str, Any], place: Place, told: _Told) -> None:
    for owner, content in value.items():
        if not isinstance(content, dict):
            continue
        card = re.match(r"card([0-9]{1,4})$", owner)
        for key, cell in content.items():
            line = place.of(owner, key)
            if match := PAIR.match(key):
                name = {"Weight": "weight", "Hops": "hops", "Link type": "type"}[match[1]]
                told.pair(int(match[2]), int(match[3]), name, str(cell).upper()[:40], line)
            elif card and key in ("(Topology) Numa Node", "(Topology) Numa Affinity"):
                if re.match(r"-?[0-9]{1,5}$", str(cell)[:8]):
                    told.node(int(card[1]), key.split()[-1], int(cell), line)


def _amd_json(value: list[dict[str, Any]], place: Place, told: _Told) -> None:
    numbers = {one.get("bdf"): one.get("gpu") for one in value if isinstance(one.get("bdf"), str)}
    for one in value:
        gpu, line = one.get("gpu"), place.of(one.get("bdf"))
        if not _number(gpu) or not isinstance(one["links"], list):
            told.odd.append(f"line {line}: an entry without a GPU's number or its links.")
            continue
        told.gpus.setdefault(gpu, line)
        if isinstance(one.get("bdf"), str) and re.match(r"[0-9a-fA-F:.]{7,16}\Z", one["bdf"]):
            told.facts.append(Fact(f"PCI address of gpu{gpu}", one["bdf"].lower(), "", line))
        for link in one["links"]:
            other = link.get("gpu", numbers.get(link.get("bdf"))) if isinstance(link, dict) else None
            if not _number(other):
                told.odd.append(f"line {line}: a link of gpu{gpu} without the other GPU's number.")
            elif other != gpu and str(link.get("link_status", "ENABLED")).upper() not in ("ENABLED", "N/A"):
                told.unknown.append(f"gpu{gpu} to gpu{other}: the link is {shown(link.get('link_status'))}.")
            elif other != gpu:
                for key, name in (("weight", "weight"), ("num_hops", "hops"), ("link_type", "type")):
                    if key in link:
                        told.pair(gpu, other, name, str(link[key])[:40].upper(), line)
                if "bandwidth" in link:
                    ends = (min(gpu, other), max(gpu, other))
                    told.rates.setdefault(ends, (str(link["bandwidth"])[:40], line))


def _number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**4


def _links(told: _Told, assumed: list[str]) -> tuple[tuple[Joint, ...], tuple[Near, ...]]:
    joints, nears = [], []
    countless = weightless = False
    for (first, second), words in sorted(told.pairs.items()):
        a, b = f"gpu{first}", f"gpu{second}"
        kind, line = words.get("type", ("", 0))
        weight, hops = (words.get(key, ("", 0))[0] for key in ("weight", "hops"))
        if kind == "XGMI" and re.match(r"[0-9]{1,6}$", weight) and int(weight) > STEP:
            told.unknown.append(f"{a} to {b}: xGMI of weight {weight}, more than one step ({STEP}): not a direct link.")
        elif kind == "XGMI" and hops not in ("", "1"):
            told.unknown.append(f"{a} to {b}: xGMI of {shown(hops)} hops: not a direct link.")
        elif kind == "XGMI":
            count, rate = _rate(told, (first, second))
            countless |= count is None
            weightless |= not weight
            joints.append(Joint(a, b, "xgmi", count, rate, line))
        elif kind in ("PCIE", "PCI EXPRESS"):
            if hops.isascii() and hops.isdigit():
                told.facts.append(Fact(f"hops {a} - {b}, PCIe", int(hops[:6]), "", words["hops"][1]))
            if hops == "3":
                nears.append(Near(a, b, "SYS", line))
            else:
                told.unknown.append(f"how far {a} and {b} are apart on PCIe.")
        elif not kind:
            told.unknown.append(f"what joins {a} and {b}: no link type is told.")
        else:
            told.odd.append(f"line {line}: {a} to {b} has the link type {shown(kind)}, neither XGMI nor PCIE.")
    if nears:
        assumed.append("three hops by PCIe lead across NUMA nodes.")
    if countless:
        told.unknown.append("how many xGMI links join two GPUs, and their rate (1 hop says xGMI, not how many).")
    if weightless:
        assumed.append("XGMI without a weight is a direct link.")
    if any(joint.rate for joint in joints):
        assumed.append("of amd-smi's bandwidth min-max [MB/s of 10^6], min is one link, max all links of the pair.")
    return tuple(joints), tuple(nears)


def _rate(told: _Told, ends: tuple[int, int]) -> tuple[int | None, float | None]:
    """How many links, and their rate in sum, from "min-max" in MB/s."""
    value, line = told.rates.get(ends, ("N/A", 0))
    if value.strip().upper() in ("N/A", "", "0-0"):
        return None, None
    match = BANDWIDTH.match(value)
    if not match or not 0 < int(match[1]) <= int(match[2]):
        pair = f"gpu{ends[0]} - gpu{ends[1]}"
        told.odd.append(f"line {line}: the bandwidth {shown(value)} of {pair} is no MIN-MAX in MB/s.")
        return None, None
    least, most = int(match[1]), int(match[2])
    return (most // least if most % least == 0 else None), most * 1e6


def _devices(told: _Told) -> tuple[tuple[Device, ...], tuple[Numa, ...]]:
    devices: list[Device] = []
    numas: dict[int, Numa] = {}
    for gpu, line in sorted(told.gpus.items()):
        said = {key: (value, at) for key, (value, at) in told.nodes.get(gpu, {}).items() if value >= 0}
        if len({value for value, _ in said.values()}) > 1:
            node, near = said["Node"][0], said["Affinity"][0]
            told.odd.append(f"gpu{gpu}: NUMA node {node} but NUMA affinity {near}; the node is taken.")
        numa, at = said.get("Node") or said.get("Affinity") or (None, line)
        if numa is None:
            told.unknown.append(f"NUMA node of gpu{gpu}.")
        else:
            numas.setdefault(numa, Numa(numa, line=at))
        devices.append(Device(f"gpu{gpu}", "gpu", gpu, numa=numa, line=at))
    return tuple(devices), tuple(numas[number] for number in sorted(numas))
