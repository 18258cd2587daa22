"""The matrices and tables of hwloc's XML: distances of NUMA nodes, joints with rates, what firmware says of memories.

A row or column is named by an object's gp_index. 0 means no direct link; the diagonal says nothing. MB/s are 10^6 B/s,
one way, all links of a pair added.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from offload.readers.tools.finding import Device, Fact, Joint
from offload.readers.tools.xml_text import Element, whole_number

MOST_ENDS = 1000  # rows of a matrix
TECHNOLOGIES = {"NVLinkBandwidth": "nvlink", "XGMIBandwidth": "xgmi", "XeLinkBandwidth": "xelink"}
MEMORY_RATES = {"Bandwidth": "rate", "ReadBandwidth": "rate of reading", "WriteBandwidth": "rate of writing"}
MEMORY_LATENCIES = {"Latency": "latency", "ReadLatency": "latency of reading", "WriteLatency": "latency of writing"}


@dataclass
class Ends:
    """What objects' gp_index stand for: NUMA nodes, devices by name, packages with their place in the tree.

    numas_in : NUMA nodes in a place; cpusets : NUMA nodes' processors as the file writes them.
    """

    numas: dict[int, int] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    packages: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    numas_in: dict[int, list[int]] = field(default_factory=dict)
    cpusets: dict[int, str] = field(default_factory=dict)

    def name(self, kind: str, gp: int) -> str | None:
        """An end's name: a device's, or "numaN" of a NUMA node or of a package that has one; None if it has none."""
        if kind == "NUMANode":
            return f"numa{self.numas[gp]}" if gp in self.numas else None
        if kind == "Package":
            inside = self.numas_in.get(self.packages[gp][1], []) if gp in self.packages else []
            return f"numa{inside[0]}" if len(inside) == 1 else None
        return self.devices.get(gp)


@dataclass
class Matrices:
    """What the matrices say."""

    joints: list[Joint] = field(default_factory=list)
    distances: dict[tuple[int, int], int] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Matrix:
    name: str
    ends: tuple[str, ...]  # "" where an end has no name
    values: tuple[int, ...]
    line: int

    def value(self, row: int, column: int) -> int:
        return self.values[row * len(self.ends) + column]


def read_matrices(topology: Element, ends: Ends, devices: dict[str, Device]) -> Matrices:
    """The distances, joints and memories' attributes of a topology, from what stands after its objects."""
    found = Matrices()
    told = [
        matrix
        for element in topology.children
        if element.name in ("distances2", "distances2hetero")
        if (matrix := _matrix(element, ends, found)) is not None
    ]
    far = _far(told)
    order = {name: (device.kind != "gpu", place) for place, (name, device) in enumerate(devices.items())}
    for matrix in told:
        if matrix.name in TECHNOLOGIES:
            _joints(matrix, order, far if matrix.name == "XGMIBandwidth" else set(), found)
        elif matrix.name == "NUMALatency":
            _distances(matrix, found)
    if any(joint.second in devices and devices[joint.second].kind == "nvswitch" for joint in found.joints):
        found.unknown.append("how NVSwitches are joined with one another")
    for element in topology.all("memattr"):
        _memory(element, ends, found)
    return found


def _matrix(element: Element, ends: Ends, found: Matrices) -> _Matrix | None:
    """A matrix with its ends; None, told, where its parts do not fit together."""
    name = element.get("name")
    if name not in TECHNOLOGIES and name not in ("NUMALatency", "XGMIHops"):
        return None
    count = whole_number(element.get("nbobjs"), MOST_ENDS)
    indexes = " ".join(part.text for part in element.all("indexes")).split()
    words = " ".join(part.text for part in element.all("u64values")).split()
    fits = count is not None and len(indexes) == count and len(words) == count * count
    values = [whole_number(word) for word in words] if fits else []
    if not fits or None in values:
        found.odd.append(
            f"line {element.line}: the matrix {name} should have {element.get('nbobjs')[:9]} names and the square of "
            f"that in numbers, not {len(indexes)} and {len(words)}: it is left out"
        )
        return None
    named = [_end(index, element, ends) for index in indexes]
    if nameless := [index for index, end in zip(indexes, named, strict=True) if not end]:
        found.unknown.append(f"line {element.line}: what {', '.join(word[:20] for word in nameless[:4])} of {name} is")
    return _Matrix(name, tuple(named), tuple(value for value in values if value is not None), element.line)


def _end(index: str, element: Element, ends: Ends) -> str:
    kind, _, number = index.rpartition(":")
    told = whole_number(number)
    if told is None:
        return ""
    kind = kind or element.get("type")
    if kind == "NUMANode" and element.get("indexing") == "os":
        return f"numa{told}" if told in ends.cpusets else ""
    return ends.name(kind, told) or ""


def _far(told: list[_Matrix]) -> set[frozenset[str]]:
    """The pairs that xGMI joins only through other GPUs."""
    return {
        frozenset((one, other))
        for matrix in told
        if matrix.name == "XGMIHops"
        for row, one in enumerate(matrix.ends)
        for column, other in enumerate(matrix.ends)
        if row != column and max(matrix.value(row, column), matrix.value(column, row)) > 1
    }


def _joints(matrix: _Matrix, order: dict[str, tuple[bool, int]], far: set[frozenset[str]], found: Matrices) -> None:
    technology = TECHNOLOGIES[matrix.name]
    for row, one in enumerate(matrix.ends):
        for column, other in enumerate(matrix.ends[:row]):
            there, back = matrix.value(row, column), matrix.value(column, row)
            if not (there or back) or not one or not other or one == other or frozenset((one, other)) in far:
                continue
            first, second = sorted((one, other), key=lambda name: order.get(name, (True, len(order))))
            if there != back:
                found.odd.append(f"line {matrix.line}: {matrix.name} {first} - {second} tells {there} and {back} MB/s "
                                 "for the two ways: the rate stays unknown")  # fmt: skip
            found.joints.append(Joint(first, second, technology, None, there * 1e6 if there == back else None,
                                      matrix.line))  # fmt: skip
    last = (True, len(order))
    found.joints.sort(key=lambda joint: (order.get(joint.first, last), order.get(joint.second, last), joint.second))


def _distances(matrix: _Matrix, found: Matrices) -> None:
    if any(matrix.value(place, place) != 10 for place in range(len(matrix.ends))):
        found.odd.append(f"line {matrix.line}: a NUMA node's distance to itself is not 10: the distances are left out")
        return
    for row, one in enumerate(matrix.ends):
        for column, other in enumerate(matrix.ends):
            value = matrix.value(row, column)
            if one and other and value >= 10:
                found.distances[int(one[4:]), int(other[4:])] = value
            elif one and other:
                found.odd.append(f"line {matrix.line}: the distance {one} to {other} is {value}, below 10")


def _memory(element: Element, ends: Ends, found: Matrices) -> None:
    """What firmware says of memories' rates [MiB/s] and latencies [ns], as facts: it is no measurement."""
    name = element.get("name")
    convert: Callable[[int], float]
    if name in MEMORY_RATES:
        what, unit, convert = MEMORY_RATES[name], "B/s", lambda value: value * 2**20
        remark = "memories' rates in firmware's table count MiB/s, as hwloc's documentation says"
    elif name in MEMORY_LATENCIES:
        what, unit, convert = MEMORY_LATENCIES[name], "s", lambda value: value / 1e9
        remark = "memories' latencies in firmware's table count ns"
    else:
        return
    for told in element.all("memattr_value"):
        value, gp = whole_number(told.get("value")), whole_number(told.get("target_obj_gp_index"))
        if not value or gp not in ends.numas or told.get("target_obj_type") not in ("NUMANode", ""):
            continue
        number = ends.numas[gp]
        words = re.sub(r"\b0x0+(?=\w)", "0x", told.get("initiator_cpuset"))
        own = words == re.sub(r"\b0x0+(?=\w)", "0x", ends.cpusets[number])
        away = "" if own or not words else ", from other processors"
        found.facts.append(Fact(f"{what} of NUMA node {number} by its firmware{away}", convert(value), unit, told.line))
        if remark not in found.assumed:
            found.assumed.append(remark)
