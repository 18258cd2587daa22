"""What a tool's output says, as values with the line that says it: a machine's shape, rates, delays, plain facts.

Units inside: bytes, seconds, bytes/s, each direction apart. What the output does not say is None or absent, never a
number. Names of ends: "gpu0" as the tool counts, "numa0" the memory of a NUMA node, "host" host memory of no known
node, "drive0" or "drive" (of no known number), "nic0", "nvswitch". Nothing personal is kept: no host names, serial
numbers, UUIDs, MAC addresses, file names or environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

When = Literal["alone", "together", "both directions"]
DeviceKind = Literal["gpu", "nvme", "disk", "nic", "pcie_switch", "nvswitch", "other"]
WHICH_DRIVE = "which drive it was"  # an output leaves it open; `ssd0=FILE` in an import says it
ADDED = "both directions added"  # in a note: the rate is the sum of the two
MemoryKind = Literal["dram", "hbm", "cxl", "gpu"]
Relation = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is said: in plain words, with its value and unit ("B", "B/s", "s" or ""), and its line from 1.

    last : where several lines say it together, the last of them.
    """

    what: str
    value: float | int | str | bool
    unit: str = ""
    line: int = 0
    file: str = ""
    last: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured rate [B/s] of one direction, from a source to a destination, and its conditions.

    access : kind of access as topology files have it ("pinned", "pageable", "zero_copy", "read", "write", "copy",
    "mixed"; "" where it is not said). when : one transfer at a time, together with others, or while the other direction
    runs. streams : how many transfers run at once, whose sum is `rate` where source or destination is a plural
    ("gpus", "hosts", "drives"). size : bytes of a transfer; depth : requests in flight; threads : of a processor, that
    share the work. operation, ranks : of a
    collective, whose rate is its bus bandwidth. low, high : ends over runs.
    """

    source: str
    destination: str
    rate: float
    access: str = ""
    when: When = "alone"
    size: int | None = None
    depth: int | None = None
    streams: int = 1
    operation: str = ""
    ranks: int = 0
    low: float | None = None
    high: float | None = None
    note: str = ""
    line: int = 0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """A measured latency [s] from a source to a destination."""

    source: str
    destination: str
    seconds: float
    when: When = "alone"
    note: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Numa:
    """A NUMA node: its memory [bytes], how many hardware threads it has (0: memory alone), its package, its kind.

    size_line : the line of its size, where that is another one than that of the node.
    """

    number: int
    size: int | None = None
    threads: int | None = None
    package: int | None = None
    kind: MemoryKind = "dram"
    line: int = 0
    size_line: int = 0


@dataclass(frozen=True, slots=True)
class PciePort:
    """A device's link to what is above it: generation and lanes (None where not known), rate [B/s] one way if said.

    now : generation and lanes at the moment of the dump, where they are lower (an idle GPU trains down).
    """

    generation: int | None = None
    lanes: int | None = None
    rate: float | None = None
    now: tuple[int | None, int | None] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device: `name` is its PCI address or the tool's own name for it, one each in a finding.

    index : its number as the tool counts devices of its kind. parent : the name of the device above it, None at a root
    port or where not known. numa : the node it hangs at. size : bytes of a GPU's memory or a drive.
    transport : of a drive, as lsblk has it ("sata", "usb"), "" where it is not said.
    """

    name: str
    kind: DeviceKind
    index: int | None = None
    model: str = ""
    parent: str | None = None
    numa: int | None = None
    size: int | None = None
    port: PciePort | None = None
    line: int = 0
    transport: str = ""


@dataclass(frozen=True, slots=True)
class Joint:
    """Direct links between two ends (devices by name, "numaN", "nvswitch"): how many, and their rate [B/s] one way in
    sum, where it is said. technology : "nvlink", "xgmi", "c2c", "upi"."""

    first: str
    second: str
    technology: str
    count: int | None = None
    rate: float | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Near:
    """How far two devices are apart, in the words of nvidia-smi: PIX, PXB, PHB, NODE, SYS."""

    first: str
    second: str
    relation: Relation
    line: int = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """Whether a GPU reaches another's memory directly; `why` not, in words."""

    first: str
    second: str
    works: bool
    why: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's shape as far as one output tells it. distances : NUMA nodes' distance table (10 is local)."""

    numas: tuple[Numa, ...] = ()
    devices: tuple[Device, ...] = ()
    joints: tuple[Joint, ...] = ()
    nears: tuple[Near, ...] = ()
    peers: tuple[Peer, ...] = ()
    packages: int | None = None
    distances: dict[tuple[int, int], int] = field(default_factory=dict)

    def of_kind(self, kind: str) -> tuple[Device, ...]:
        """The devices of a kind, in the order in which they are told."""
        return tuple(device for device in self.devices if device.kind == kind)


@dataclass(frozen=True, slots=True)
class Finding:
    """All that one output says. tool : what it is, as "hwloc XML 2.0".

    facts : what fits none of the types (a driver's version, a GPU's model); assumed : what the reader took for granted
    (units, the meaning of a column); unknown : what the output leaves open; odd : what contradicts in it; skipped :
    lines that were not understood, [(line, text)]. drive : the topology's drive that a person says it is of, or "".
    """

    tool: str
    machine: Machine | None = None
    rates: tuple[Measured, ...] = ()
    delays: tuple[Delay, ...] = ()
    facts: tuple[Fact, ...] = ()
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    file: str = ""
    drive: str = ""


@dataclass(slots=True)
class Gathered:
    """What a reader has found so far, by the fields of a Finding; devices and versions where the output tells them."""

    rates: list[Measured] = field(default_factory=list)
    delays: list[Delay] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)
    versions: list[str] = field(default_factory=list)


def facts_of(finding: Finding) -> Iterator[Fact]:
    """Everything of a finding as plain facts, in the order in which it is kept."""
    for fact in finding.facts:
        yield replace(fact, file=finding.file)
    machine = finding.machine or Machine()
    told: list[Fact] = []
    if machine.packages is not None:
        told.append(Fact("processor packages", machine.packages))
    for node in machine.numas:
        if node.size is not None:
            told.append(Fact(f"memory of NUMA node {node.number}", node.size, "B", node.size_line or node.line))
        if node.threads is not None:
            told.append(Fact(f"hardware threads of NUMA node {node.number}", node.threads, "", node.line))
    for device in machine.devices:
        told += _of_device(device)
    for joint in machine.joints:
        what = f"{joint.technology} {joint.first} - {joint.second}"
        if joint.count is not None:
            told.append(Fact(f"links, {what}", joint.count, "", joint.line))
        if joint.rate is not None:
            told.append(Fact(f"one way, {what}", joint.rate, "B/s", joint.line))
        if joint.count is None and joint.rate is None:
            told.append(Fact(f"a link, {what}", True, "", joint.line))
    for near in machine.nears:
        told.append(Fact(f"{near.first} to {near.second}", near.relation, "", near.line))
    for peer in machine.peers:
        told.append(Fact(f"peer access {peer.first} to {peer.second}", peer.works, "", peer.line))
    for rate in finding.rates:
        noted = (part for part in rate.note.split("; ") if part != ADDED)
        told.append(Fact(_noted(describe_rate(rate), *noted), rate.rate, "B/s", rate.line))
    for delay in finding.delays:
        what = _noted(f"latency {delay.source} to {delay.destination}", delay.note)
        told.append(Fact(what, delay.seconds, "s", delay.line))
    for fact in told:
        yield replace(fact, file=finding.file)


def _noted(what: str, *notes: str) -> str:
    return ", ".join(filter(None, (what, *notes)))


def _of_device(device: Device) -> Iterator[Fact]:
    called = f"{device.kind.replace('_', ' ')} {device.name}"
    yield Fact(called, device.model or True, "", device.line)
    if device.numa is not None:
        yield Fact(f"NUMA node of {called}", device.numa, "", device.line)
    if device.size is not None:
        yield Fact(f"size of {called}", device.size, "B", device.line)
    if device.port is not None and device.port.rate is not None:
        yield Fact(f"host link of {called}, one way", device.port.rate, "B/s", device.line)
    elif device.port is not None and device.port.generation is not None:
        lanes = f" x{device.port.lanes}" if device.port.lanes else ""
        yield Fact(f"host link of {called}", f"PCIe {device.port.generation}{lanes}", "", device.line)


def describe_rate(rate: Measured) -> str:
    """A measured rate's ends and conditions in words: "gpu0 to host, pinned, together with 7 others"."""
    ends = f"{rate.operation} of {rate.ranks} ranks" if rate.operation else f"{rate.source} to {rate.destination}"
    said = [ends, rate.access.replace("_", " ")]
    if rate.when == "together":
        said.append(f"{rate.streams} at once")
    elif rate.when == "both directions":
        said.append(ADDED if ADDED in rate.note else "while the other direction runs")
    if rate.size is not None:
        said.append(f"{rate.size} B each")
    if rate.depth is not None:
        said.append(f"{rate.depth} in flight")
    if rate.threads is not None:
        said.append("1 thread" if rate.threads == 1 else f"{rate.threads} threads")
    return ", ".join(word for word in said if word)
