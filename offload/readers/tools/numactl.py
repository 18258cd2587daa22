"""`numactl --hardware`: NUMA nodes, their memory and processors, and the table of distances between them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from offload.errors import ReadingError
from offload.readers.tools.finding import Finding, Machine, Numa
from offload.readers.tools.text import Text

LOOKS_LIKE = "numactl --hardware"
AVAILABLE = re.compile(r"available: ([0-9]{1,5}) nodes \(([0-9,-]{1,200})\)")
CPUS = re.compile(r"(?:^|[\s\]>:])node ([0-9]{1,5}) cpus:((?: +[0-9]{1,6})*)\s*$")
SIZE = re.compile(r"(?:^|[\s\]>:])node ([0-9]{1,5}) size: ([0-9]{1,12}) (MB|GB|KB)\s*$")
HEAD = re.compile(r"(?:^|[\s\]>:])node((?:\s+[0-9]{1,5})+)\s*$")
ROW = re.compile(r"(?:^|[\s\]>])([0-9]{1,5}):((?:\s+[0-9]{1,5})*)\s*$")
UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30}
NONE = re.compile(r"No NUMA (?:support )?available on this system", re.IGNORECASE)


def is_it(text: Text) -> bool:
    """Whether a text has lines `available: N nodes`, `node N cpus:` or `node N size:`."""
    return bool(AVAILABLE.search(text.whole) or NONE.search(text.whole)) or any(
        CPUS.search(line.text) or SIZE.search(line.text) for line in text if "node " in line.text
    )


def read(text: Text) -> Finding:
    """NUMA nodes (bytes, hardware threads) and their distances. Raises ReadingError for two machines in one file, or
    where no node has a line of its own."""
    nodes: dict[int, Numa] = {}
    odd: list[str] = []
    announced: tuple[int, int] | None = None
    for line in text.without_prefixes():
        if match := AVAILABLE.search(line.text):
            if announced and announced[0] != int(match[1]):
                lines = f"lines {announced[1]} and {line.number}"
                raise ReadingError(f"{lines} count nodes differently. Give one machine's output in a file.")
            announced = int(match[1]), line.number
        elif match := CPUS.search(line.text):
            _told(nodes, int(match[1]), "threads", len(set(match[2].split())), line.number)
        elif match := SIZE.search(line.text):
            _told(nodes, int(match[1]), "size", int(match[2]) * UNITS[match[3]], line.number)
            node = nodes[int(match[1])]
            nodes[node.number] = replace(node, size_line=node.size_line or line.number)
    if not nodes:
        if NONE.search(text.whole):
            raise ReadingError("says that the system has no NUMA support: there is nothing to read in it.")
        raise ReadingError("has no line of a node's cpus or size. Save all of: numactl --hardware")
    if announced and announced[0] != len(nodes):
        odd.append(f"line {announced[1]} says {announced[0]} nodes, but {len(nodes)} are told. Is the output cut?")
    unknown = ["which node lies in which package, memory channels and rates: numactl does not tell them."]
    kept = [_settled(nodes[number], unknown, odd) for number in sorted(nodes)]
    distances = _distances(text, set(nodes), odd)
    if not distances and len(nodes) > 1:
        unknown.append("distances between nodes: the table is missing.")
    assumed = ["MB are 2^20 bytes.", "distances are an order, not rates."]
    return Finding(
        LOOKS_LIKE, Machine(tuple(kept), distances=distances), assumed=tuple(assumed), unknown=tuple(unknown),
        odd=tuple(odd),
    )  # fmt: skip


def _told(nodes: dict[int, Numa], number: int, key: str, value: int, line: int) -> None:
    node = nodes.get(number) or Numa(number, line=line)
    before = getattr(node, key)
    if before is not None and before != value:
        raise ReadingError(
            f"line {line}: node {number} is told twice, and differently. Give one machine's output in a file."
        )
    told: dict[str, Any] = {key: value}
    nodes[number] = replace(node, **told)


def _settled(node: Numa, unknown: list[str], odd: list[str]) -> Numa:
    if node.size is None:
        unknown.append(f"memory of node {node.number}, and whether its processors are all told: its size is missing.")
        return replace(node, threads=None)
    if node.size == 0:
        odd.append(f"node {node.number} has no memory (0 MB).")
        return replace(node, size=None)
    if node.threads is None:
        unknown.append(f"processors of node {node.number}: their line is missing.")
    elif node.threads == 0:
        unknown.append(f"kind of node {node.number}, memory without processors: HBM, CXL or a GPU's memory. Taken for "
                       "DRAM where no other output tells it.")  # fmt: skip
    return node


def _distances(text: Text, known: set[int], odd: list[str]) -> dict[tuple[int, int], int]:
    columns: list[int] = []
    told: dict[tuple[int, int], int] = {}
    for line in text.without_prefixes():
        if match := HEAD.search(line.text):
            columns = [int(one) for one in match[1].split()]
        elif columns and (match := ROW.search(line.text)):
            row, cells = int(match[1]), [int(one) for one in match[2].split()]
            if len(cells) != len(columns) or row not in known or not set(columns) <= known:
                odd.append(f"line {line.number}: the row of distances from node {row} does not fit the nodes told.")
                continue
            for column, distance in zip(columns, cells, strict=True):
                if told.setdefault((row, column), distance) != distance:
                    odd.append(f"line {line.number}: the distance from node {row} to node {column} is told twice.")
                if distance < 10 or (row == column and distance != 10):
                    odd.append(f"line {line.number}: distance {distance} from node {row} to {column}; local is 10.")
    for (row, column), distance in told.items():
        if row < column and told.get((column, row), distance) != distance:
            odd.append(f"distance from node {row} to {column} is {distance}, and {told[column, row]} back.")
    return told
