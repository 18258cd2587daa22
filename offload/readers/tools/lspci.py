"""`lspci -vvv`: PCI devices with generation and lanes of their links, the tree they hang in, and their NUMA nodes.

A GPU that idles trains down: what a link can do is LnkCap of the device and of the port above it; LnkSta is kept as
`now`. The width does not change when idle, so a narrow width counts. Without root lspci does not see links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from offload.errors import ReadingError, one_line
from offload.readers.tools.finding import Device, DeviceKind, Fact, Finding, Machine, Numa, PciePort
from offload.readers.tools.text import Text

LOOKS_LIKE = "lspci -vvv"
COMMAND = "sudo lspci -vvv > FILE"
ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
SLOT = re.compile(rf"^({ADDRESS}) ([A-Z0-9][^:]{{2,60}}?)(?: \[([0-9a-f]{{4}})\])?: (.{{1,200}})$")
MACHINE = re.compile(rf"^Slot:\s+({ADDRESS})$")
FIELD = re.compile(r"^(Class|Vendor|Device|NUMANode):\s+(.{1,200})$")
TREE = re.compile(r"^[ \t]*-\[[0-9a-f]{4}:[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-", re.MULTILINE)
LINK = re.compile(
    r"Lnk(Cap|Sta):\s+(?:Port #[0-9]{1,3}, )?Speed ([0-9.]{1,5}GT/s|unknown)(?: \([a-z]+\))?, Width x([0-9]{1,2})"
)
NUMA = re.compile(r"^\s*NUMA node: (-?[0-9]{1,5})\s*$")
BUS = re.compile(r"^\s*Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
ROLE = re.compile(r"Express \(v[0-9]+\) (?:[A-Za-z/-]+ )*?(Root Port|Upstream Port|Downstream Port)")
REGION = re.compile(r"Region [0-9]: Memory at .*\[size=([0-9]{1,6})([KMGT]?)\]")
PAYLOAD = re.compile(r"MaxPayload ([0-9]{1,5}) bytes, MaxReadReq ([0-9]{1,5}) bytes")
GENERATIONS = {"2.5GT/s": 1, "5GT/s": 2, "8GT/s": 3, "16GT/s": 4, "32GT/s": 5, "64GT/s": 6}
GPU_MAKERS = ("nvidia", "advanced micro devices", "amd/ati", "intel")
WIDTHS = {1, 2, 4, 8, 12, 16, 32}
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
BEGINS = frozenset("0123456789abcdefS")  # of lines that name a device
CLASS = re.compile(r"bridge|controller|accelerator|memory|peripheral|device|interface|^Class|^Bridge|encryption", re.I)


@dataclass(slots=True)
class _Link:
    generation: int | None
    lanes: int | None
    line: int


@dataclass(slots=True)
class _Block:
    """What lspci tells of one device. bus : domain and the bus behind a bridge."""

    slot: str
    kind: str
    model: str
    line: int
    numa: int | None = None
    most: _Link | None = None
    now: _Link | None = None
    role: str = ""
    behind: tuple[str, str] | None = None
    largest: int = 0
    payload: tuple[int, int, int] | None = None
    denied: bool = False
    listed: bool = False  # as -mmv lists it

    @property
    def bus(self) -> tuple[str, str]:
        domain, bus, _ = self.slot.split(":")
        return domain, bus


@dataclass(slots=True)
class _Notes:
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)


def is_it(text: Text) -> bool:
    """Whether a text has lspci's device lines, link lines, the blocks of -mmv or the tree of -t."""
    if TREE.search(text.whole):
        return True
    for line in text.without_prefixes():
        if "Lnk" in line.text and LINK.search(line.text):
            return True
        if line.text[:1] in BEGINS and (
            MACHINE.match(line.text) or (match := SLOT.match(line.text)) and CLASS.search(match[2])
        ):
            return True
    return False


def read(text: Text) -> Finding:
    """GPUs, NVMe drives, NICs, NVSwitches and PCIe switches by PCI address, with their ports, parents and NUMA nodes.

    Link lines without device lines (a grep) are given as facts. Raises ReadingError for the tree of lspci -t, a device
    told twice with different links, or nothing of use.
    """
    notes = _Notes()
    blocks, loose = _blocks(text, notes)
    if not blocks and not loose:
        raise ReadingError(f"is lspci's tree, which has no links. Save: {COMMAND}" if TREE.search(text.whole) else
                           f"has no device that can be read. Save: {COMMAND}")  # fmt: skip
    for link, what in loose:
        if link.generation is not None and link.lanes is not None:
            notes.facts.append(Fact(f"a PCIe link, {what}", f"PCIe {link.generation} x{link.lanes}", "", link.line))
    if loose:
        notes.unknown.append(f"whose the link lines are: lines that name devices are missing. Save all of: {COMMAND}")
        if any(what == "now" for _, what in loose) and not any(what == "at most" for _, what in loose):
            notes.unknown.append("what these links can do at most: LnkCap lines are missing.")
    machine = _machine(blocks, notes) if blocks else None
    return Finding(
        LOOKS_LIKE, machine, facts=tuple(notes.facts), assumed=tuple(notes.assumed), unknown=tuple(notes.unknown),
        odd=tuple(notes.odd),
    )  # fmt: skip


def _blocks(text: Text, notes: _Notes) -> tuple[dict[str, _Block], list[tuple[_Link, str]]]:
    blocks: dict[str, _Block] = {}
    loose: list[tuple[_Link, str]] = []
    now: _Block | None = None
    for line in text.without_prefixes():
        slot, machine = SLOT.match(line.text), MACHINE.match(line.text)
        if slot and CLASS.search(slot[2]):
            now = _start(blocks, _Block(_full(slot[1]), _kind(slot[2], slot[4]), _model(slot[4]), line.number))
        elif machine:
            now = _start(blocks, _Block(_full(machine[1]), "other", "", line.number, listed=True))
        elif match := LINK.search(line.text):
            link = _link(match, line.number, notes)
            if now is None:
                loose.append((link, "at most" if match[1] == "Cap" else "now"))
            elif match[1] == "Cap":
                now.most = now.most or link
            else:
                now.now = now.now or link
        elif now is not None:
            _detail(now, line.text, line.number)
    return blocks, loose


def _start(blocks: dict[str, _Block], block: _Block) -> _Block:
    if block.slot in blocks:
        raise ReadingError(
            f"lines {blocks[block.slot].line} and {block.line} both begin {block.slot}. Give one run in a file."
        )
    blocks[block.slot] = block
    return block


def _detail(block: _Block, line: str, number: int) -> None:
    if block.listed and (match := FIELD.match(line)):
        if match[1] == "Class":
            block.kind = _model(match[2])
        elif match[1] == "NUMANode":
            block.numa = int(match[2]) if re.match(r"[0-9]{1,5}$", match[2]) else None
        else:
            block.model = f"{block.model} {_model(match[2])}".strip()
            if match[1] == "Device":
                block.kind = _kind(block.kind, block.model)
    elif match := NUMA.match(line):
        block.numa = int(match[1]) if int(match[1]) >= 0 else None
    elif match := BUS.match(line):
        block.behind = block.bus[0], match[2]
    elif "Express (v" in line and (match := ROLE.search(line)):
        block.role = match[1]
    elif match := REGION.search(line):
        block.largest = max(block.largest, int(match[1]) * UNITS[match[2]])
    elif match := PAYLOAD.search(line):
        block.payload = int(match[1]), int(match[2]), number
    elif "Capabilities: <access denied>" in line:
        block.denied = True


def _link(match: re.Match[str], line: int, notes: _Notes) -> _Link:
    generation, lanes = GENERATIONS.get(match[2]), int(match[3])
    if generation is None and match[2] != "unknown":
        notes.odd.append(f"line {line}: speed {match[2]} is of no PCIe generation.")
    if lanes not in WIDTHS | {0}:
        notes.odd.append(f"line {line}: width x{lanes} is no width of PCIe.")
    return _Link(generation, lanes if lanes in WIDTHS else None, line)


def _full(slot: str) -> str:
    return slot if slot.count(":") == 2 else f"0000:{slot}"


def _model(text: str) -> str:
    text = re.sub(r" \[[0-9a-f]{4}(?::[0-9a-f]{4})?\]| \((?:rev|prog-if) [^)]*\)", "", text)
    return one_line(text.strip(), 100)


def _kind(kind: str, model: str) -> str:
    """The kind of a device by its class and maker; "bridge" for PCI bridges."""
    maker = model.casefold()
    display = ("VGA compatible controller", "3D controller", "Display controller")
    if kind in display or kind == "Processing accelerators":
        return "gpu" if any(one in maker for one in GPU_MAKERS) else "other"
    if kind == "Bridge" and "nvidia" in maker:
        return "nvswitch"
    if kind == "PCI bridge":
        return "bridge"
    if kind == "Non-Volatile memory controller":
        return "nvme"
    return "nic" if kind in ("Ethernet controller", "Infiniband controller") else "other"


def _machine(blocks: dict[str, _Block], notes: _Notes) -> Machine:
    bridges = {block.behind: block for block in blocks.values() if block.behind}
    devices: list[Device] = []
    numas: dict[int, Numa] = {}
    for block in blocks.values():
        kind: DeviceKind
        match block.kind:
            case "gpu" | "nvme" | "nic" | "nvswitch" as own:
                kind = own
            case "bridge" if block.role == "Upstream Port":
                kind = "pcie_switch"
            case _:
                continue
        if kind == "gpu" and "Intel" in block.model and block.bus[1] == "00":
            continue  # graphics in the processor
        if block.numa is not None:
            numas.setdefault(block.numa, Numa(block.numa, line=block.line))
        above = bridges.get(block.bus)
        port = _port(block, above, notes)
        parent = next((one.slot for one in _up(block, bridges) if one.role == "Upstream Port"), None)
        devices.append(
            Device(block.slot, kind, model=block.model, parent=parent, numa=block.numa, port=port, line=block.line)
        )
        _facts(block, kind, notes)
    if not devices:
        raise ReadingError("names no GPU, NVMe drive, NIC or PCIe switch.")
    if not any(device.port for device in devices):
        denied = " (it was run without root)" if any(block.denied for block in blocks.values()) else ""
        notes.unknown.append(f"links of all devices: no link lines{denied}. On a real machine save: {COMMAND}")
    functions: dict[str, list[str]] = {}
    for device in devices:
        functions.setdefault(device.name[:-2], []).append(device.name)
    several = [", ".join(one) for one in functions.values() if len(one) > 1]
    notes.assumed += [f"functions of one card share its link: {one}." for one in several]
    if any(block.kind == "bridge" and not block.role for block in blocks.values()):
        notes.unknown.append("which bridges are ports of PCIe switches: their Express lines are missing.")
    notes.unknown += [f"NUMA node of {device.name}." for device in devices if device.numa is None]
    if any(device.port for device in devices):
        told = [device for device in devices if device.port is None]
        notes.unknown += [f"link of {device.name}." for device in told if not blocks[device.name].now]
    if not bridges:
        notes.unknown.append("what stands above the devices: lines of bridges' buses are missing.")
    return Machine(tuple(numas[number] for number in sorted(numas)), tuple(devices))


def _up(block: _Block, bridges: Mapping[tuple[str, str], _Block]) -> Iterator[_Block]:
    seen = {block.slot}
    while (above := bridges.get(block.bus)) is not None and above.slot not in seen:
        yield above
        seen.add(above.slot)
        block = above


def _port(block: _Block, above: _Block | None, notes: _Notes) -> PciePort | None:
    """The link above a device: the lesser of what both its ends can do, and as narrow as it is now."""
    most, now = block.most, block.now
    if most is None and now is None:
        return None
    if now is not None and (now.generation is None or now.lanes is None):
        notes.unknown.append(f"link of {block.slot}: line {now.line} says it is down or unknown.")
        return None
    generations, lanes = [], []
    for link in (most, above.most if above else None):
        if link is not None:
            generations.append(link.generation)
            lanes.append(link.lanes)
    generation = min((one for one in generations if one), default=None)
    width = min((one for one in lanes if one), default=None)
    if most is None:
        notes.unknown.append(f"what the link of {block.slot} can do at most: its LnkCap line is missing.")
        generation = width = None
    lower = None
    if now is not None and now.lanes is not None and now.generation is not None:
        if width is None or now.lanes < width:
            if width is not None:
                runs = f"{block.slot} runs x{now.lanes} of x{width}"
                notes.odd.append(f"line {now.line}: {runs}: a narrow width is real.")
            width = now.lanes
        if generation is None or now.generation < generation or (most and now.lanes < (most.lanes or 0)):
            lower = now.generation, now.lanes
        if generation is not None and now.generation < generation:
            notes.odd.append(
                f"line {now.line}: {block.slot} runs PCIe {now.generation} of {generation} now. What idles "
                "trains down, so what it can do is taken. Look again under load."
            )
    return PciePort(generation, width, now=lower)


def _facts(block: _Block, kind: str, notes: _Notes) -> None:
    if kind == "gpu" and block.largest:
        notes.facts.append(Fact(f"largest BAR of {block.slot}", block.largest, "B", block.line))
    if block.payload:
        payload, request, line = block.payload
        notes.facts.append(Fact(f"MaxPayload of {block.slot}", payload, "B", line))
        notes.facts.append(Fact(f"MaxReadReq of {block.slot}", request, "B", line))
