"""`nvidia-smi topo -m`: how far GPUs and NICs are apart, how many NVLinks join them, at which NUMA node they hang.

It tells no rate: NV18 is 450 GB/s on Hopper and 900 GB/s on Blackwell; that takes the GPU's model.
"""

from __future__ import annotations

import re
from typing import cast

from offload.errors import ReadingError, shown
from offload.readers.tools.finding import Device, DeviceKind, Fact, Finding, Joint, Machine, Near, Numa, Relation
from offload.readers.tools.matrix import Matrix, gpu_number, matrices
from offload.readers.tools.text import Text

LOOKS_LIKE = "nvidia-smi topo -m"
RELATIONS = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "NODE", "SYS": "SYS", "SOC": "SYS"}  # SOC: until 2017
NVLINK = re.compile(r"NV([0-9]{1,3})$")
LEGEND = re.compile(r"^\s*(NIC[0-9]{1,4}): ([A-Za-z][\w.-]{0,40})\s*$")
MOST_LINKS = 18  # NVLinks of any GPU so far (Hopper, Blackwell): more in a row's sum share ports, so a switch


def is_it(text: Text) -> bool:
    """Whether a text holds such a matrix."""
    return any(_is_topology(one) for one in matrices(text))


def read(text: Text) -> Finding:
    """Devices "gpuN", "nicN", their relations, NVLinks and NUMA nodes.

    Where a GPU's NVLinks in sum are more than any GPU has, its links go to "nvswitch". Raises ReadingError for two
    matrices that differ, or rows that are all cut.
    """
    found = [one for one in matrices(text) if _is_topology(one)]
    if len({one.square() for one in found}) > 1:
        raise ReadingError(
            f"line {found[0].line} and line {found[-1].line} begin matrices of nvidia-smi topo -m that differ. "
            "Give one machine's output in a file."
        )
    if not found or not found[0].rows:
        raise ReadingError("holds no whole row of nvidia-smi topo -m. Save its full output: nvidia-smi topo -m > FILE")
    return _Reading(found[0], text).finding()


def _is_topology(matrix: Matrix) -> bool:
    cells = {cell for row in matrix.rows.values() for cell in row.cells}
    return bool(matrix.headings) or any(cell in RELATIONS or NVLINK.match(cell) for cell in cells)


class _Reading:
    """One matrix on its way to a finding."""

    def __init__(self, matrix: Matrix, text: Text):
        self.matrix = matrix
        self.legend = {m[1]: (line.number, m[2]) for line in text.without_prefixes() if (m := LEGEND.match(line.text))}
        nics = [name for name in matrix.names if gpu_number(name) is None]
        self.called = {name: f"nic{place}" for place, name in enumerate(nics)}
        self.called |= {name: f"gpu{n}" for name in matrix.names if (n := gpu_number(name)) is not None}
        self.facts: list[Fact] = []
        self.assumed: list[str] = []
        self.odd: list[str] = [f"line {line}: the row of {name} is cut." for line, name in matrix.cut]
        self.unknown = ["PCIe generations and lanes, host memory, drives: nvidia-smi topo -m does not tell them."]
        for name in matrix.names:
            if name not in matrix.rows:
                self.unknown.append(f"NUMA node of {self.called[name]}: its row is missing or cut.")

    def finding(self) -> Finding:
        devices, numas = self._devices()
        nears, pairs = self._relations()
        joints = self._joints(pairs)
        machine = Machine(numas, devices, joints, nears)
        return Finding(
            LOOKS_LIKE, machine, facts=tuple(self.facts), assumed=tuple(self.assumed), unknown=tuple(self.unknown),
            odd=tuple(self.odd),
        )  # fmt: skip

    def _devices(self) -> tuple[tuple[Device, ...], tuple[Numa, ...]]:
        devices: list[Device] = []
        numas: dict[int, Numa] = {}
        for name in self.matrix.names:
            row, called = self.matrix.rows.get(name), self.called[name]
            line = row.line if row else self.matrix.line
            behind = row.behind if row else {}
            numa = _whole(behind.get("NUMA Affinity", ""))
            number = gpu_number(name)
            if number is None:
                at, own = self.legend.get(name, (line, name))
                if own != called.upper():
                    self.facts.append(Fact(f"name of {called}", own, "", at))
            elif row and "NUMA Affinity" in self.matrix.headings and numa is None:
                said = shown(behind.get("NUMA Affinity") or "nothing")
                self.unknown.append(f"NUMA node of {called}: line {line} says {said}.")
            if cpus := behind.get("CPU Affinity", ""):
                if re.match(r"[0-9][0-9,-]*$", cpus):
                    self.facts.append(Fact(f"processors near {called}", cpus, "", line))
            kind: DeviceKind = "nic" if number is None else "gpu"
            index = int(called[3:])
            devices.append(Device(called, kind, index, numa=numa, line=line))
            if numa is not None:
                numas.setdefault(numa, Numa(numa, line=line))
            own_node = _whole(behind.get("GPU NUMA ID", ""))
            if own_node is not None:
                numas[own_node] = Numa(own_node, kind="gpu", line=line)
                self.facts.append(Fact(f"NUMA node of {called}'s own memory", own_node, "", line))
        return tuple(devices), tuple(numas[number] for number in sorted(numas))

    def _relations(self) -> tuple[tuple[Near, ...], dict[tuple[str, str], tuple[int, int]]]:
        """Relations by PCIe, and the pairs that NVLinks join: their count and line."""
        nears: list[Near] = []
        pairs: dict[tuple[str, str], tuple[int, int]] = {}
        for first, second in self.matrix.pairs():
            there, back = self.matrix.cell(first, second), self.matrix.cell(second, first)
            told = there if there is not None else back
            if told is None:
                self.unknown.append(f"{self.called[first]} to {self.called[second]}: both rows are missing or cut.")
                continue
            line = self.matrix.rows[first if there is not None else second].line
            if there is not None and back is not None and there != back:
                self.odd.append(
                    f"line {line}: {first} to {second} is {shown(there)}, but line {self.matrix.rows[second].line} has "
                    f"{shown(back)} for the way back. Neither is taken."
                )
            elif told in RELATIONS:
                relation = cast(Relation, RELATIONS[told])
                nears.append(Near(self.called[first], self.called[second], relation, line))
            elif (match := NVLINK.match(told)) and int(match[1]) > 0:
                pairs[first, second] = int(match[1]), line
            else:
                self.odd.append(f"line {line}: {first} to {second} is {shown(told)}, no word of nvidia-smi topo -m.")
        for name, row in self.matrix.rows.items():
            if (own := self.matrix.cell(name, name)) != "X":
                self.odd.append(f"line {row.line}: {name} to itself is {shown(own)}, not X. Are columns shifted?")
        return tuple(nears), pairs

    def _joints(self, pairs: dict[tuple[str, str], tuple[int, int]]) -> tuple[Joint, ...]:
        if not pairs:
            return ()
        of: dict[str, list[tuple[int, int]]] = {}
        for ends, told in pairs.items():
            for end in ends:
                of.setdefault(end, []).append(told)
        switched = [name for name, told in of.items() if sum(count for count, _ in told) > MOST_LINKS]
        joints = []
        for name in sorted(switched, key=self.matrix.names.index):
            counts = {count for count, _ in of[name]}
            row = self.matrix.rows.get(name)
            line = row.line if row else of[name][0][1]
            if len(counts) > 1:
                some = ", ".join(map(str, sorted(counts)))
                self.odd.append(
                    f"line {line}: {name} has {some} NVLinks to others; through a switch all see one count."
                )
            joints.append(Joint(self.called[name], "nvswitch", "nvlink", max(counts), line=line))
        for (first, second), (count, line) in pairs.items():
            if first not in switched and second not in switched:
                joints.append(Joint(self.called[first], self.called[second], "nvlink", count, line=line))
        if switched:
            self.assumed.append(
                f"NVLinks meet in an NVSwitch: {switched[0]} shows {sum(c for c, _ in of[switched[0]])} to all others "
                f"in sum, and no GPU has more than {MOST_LINKS}."
            )
        else:
            self.assumed.append("NVLinks go from GPU to GPU. A few GPUs of a server with NVSwitch would look the same.")
        most = max(count for count, _ in pairs.values())
        self.unknown.append(
            f"rate of NV{most}: it takes the GPU's model (NV18 is 450 GB/s on Hopper, 900 GB/s on Blackwell)."
        )
        return tuple(joints)


def _whole(text: str) -> int | None:
    """A NUMA node's number; None for N/A, a list or nothing."""
    return int(text) if re.match(r"[0-9]{1,5}$", text) else None
