"""`lsblk -J` and `nvme list -o json` (nvme-cli 1 and 2): drives, their models and bytes. Rates are not told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeGuard

from offload.errors import ReadingError, shown
from offload.readers.tools.drive_names import OF_OTHERS, model_of, transport_of
from offload.readers.tools.finding import Device, DeviceKind, Fact, Finding, Machine
from offload.readers.tools.json_place import Place
from offload.readers.tools.text import Text

LOOKS_LIKE = "lsblk -J, nvme list -o json"
LSBLK = re.compile(r'"blockdevices"\s*:')
NVME = re.compile(r'"Devices"\s*:')
NVME_KEYS = re.compile(r'"(?:DevicePath|ModelNumber|Subsystems|MaximumLBA|MaximiumLBA)"\s*:')
LSBLK_TABLE = re.compile(r"^NAME[ \t][^\n]{0,200}\b(?:MAJ:MIN|SIZE|MOUNTPOINTS?)\b", re.MULTILINE)
NVME_TABLE = re.compile(r"^Node\s+(?:Generic\s+)?SN\s+Model\b", re.MULTILINE)
ADVICE = "lsblk -b -J -o NAME,TYPE,TRAN,SIZE,MODEL,ROTA,MOUNTPOINTS > FILE"
SIZED = re.compile(r"\s*([0-9]{1,6}(?:[.,][0-9]{1,3})?)\s*([KMGTP])(?:iB)?\s*$")
UNITS = {letter: 1024**power for power, letter in enumerate("KMGTP", 1)}
NO_DRIVES = re.compile(r"(?:zram|ram|loop|fd|sr|nbd|dm-)[0-9]+$")  # memory, files, removable media, other hosts' disks
PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\Z"
LARGEST = 2**60  # bytes


def is_it(text: Text) -> bool:
    """Whether a text holds the JSON of lsblk or nvme list, or one of their tables (which `read` refuses)."""
    whole = text.whole
    if LSBLK.search(whole) or LSBLK_TABLE.search(whole) or NVME_TABLE.search(whole):
        return True
    return bool(NVME.search(whole) and NVME_KEYS.search(whole))


def read(text: Text) -> Finding:
    """Drives by their names in the system ("nvme0n1"), with model and bytes; PCI addresses and RAID members as facts.

    Raises ReadingError for a table (its sizes are rounded and its columns differ by version), JSON that is cut, or no
    drive in it.
    """
    reading = _Reading()
    whole = 0
    for line, value in text.json_values("blockdevices"):
        whole += 1
        reading.tools["lsblk -J"] = None
        reading.lsblk(value["blockdevices"], Place(text, line))
    for line, value in text.json_values("Devices"):
        whole += 1
        reading.tools["nvme list -o json"] = None
        reading.nvme(value["Devices"], Place(text, line))
    if not whole:
        raise ReadingError(_refused(text))
    if not reading.drives:
        raise ReadingError("names no drive." + (f" {reading.unknown[0]}" if reading.unknown else ""))
    return reading.finding()


def _refused(text: Text) -> str:
    if LSBLK_TABLE.search(text.whole):
        return f"is lsblk's table, whose sizes are rounded and whose columns differ. Save its JSON: {ADVICE}"
    if NVME_TABLE.search(text.whole):
        return "is the table of nvme list, whose sizes are rounded. Save its JSON: nvme list -o json > FILE"
    return f"has JSON that is cut or broken. Save it again: {ADVICE}, or nvme list -o json > FILE"


class _Reading:
    """Drives by name on their way to a finding."""

    def __init__(self) -> None:
        self.drives: dict[str, Device] = {}
        self.facts: dict[str, Fact] = {}
        self.assumed: list[str] = []
        self.unknown: list[str] = []
        self.odd: list[str] = []
        self.tools: dict[str, None] = {}
        self.raids: dict[str, tuple[str, list[str], int]] = {}

    def finding(self) -> Finding:
        for name, (kind, members, line) in self.raids.items():
            self.facts[f"{kind} {name}"] = Fact(f"{kind} {name}", "of " + ", ".join(members), "", line)
        self.unknown.append("rates and host links of drives: lsblk and nvme list do not tell them.")
        machine = Machine(devices=tuple(self.drives.values()))
        return Finding(
            " and ".join(self.tools), machine, facts=tuple(self.facts.values()),
            assumed=tuple(dict.fromkeys(self.assumed)), unknown=tuple(dict.fromkeys(self.unknown)),
            odd=tuple(dict.fromkeys(self.odd)),
        )  # fmt: skip

    def lsblk(self, entries: object, place: Place) -> None:
        for entry in _dicts(entries):
            name = _name(entry.get("name"))
            if entry.get("type") != "disk" or name is None or NO_DRIVES.match(name):
                continue
            line = place.of(name)
            transport = transport_of(name, entry.get("tran"))
            if transport in OF_OTHERS:
                self.unknown.append(f"{name} is reached over {transport}, a network: left out.")
                continue
            nvme = transport == "nvme" or name.startswith("nvme")
            self._add(name, "nvme" if nvme else "disk", entry, "model", self._lsblk_size(entry, name, line), line,
                      transport)  # fmt: skip
            if not nvme and entry.get("rota") in (True, "1"):
                self.facts[f"rotating {name}"] = Fact(f"{name} rotates", True, "", line)
            self._raids(entry, name, line, 0)

    def _raids(self, entry: dict[str, Any], drive: str, line: int, depth: int) -> None:
        for child in _dicts(entry.get("children")):
            kind, name = child.get("type"), _name(child.get("name"))
            if name and isinstance(kind, str) and re.match(r"raid[0-9]{1,2}\Z", kind):
                members = self.raids.setdefault(name, (kind, [], line))[1]
                if drive not in members:
                    members.append(drive)
            if depth < 16:
                self._raids(child, drive, line, depth + 1)

    def _lsblk_size(self, entry: dict[str, Any], name: str, line: int) -> int | None:
        size = entry.get("size")
        if isinstance(size, str) and re.match(r"[0-9]{1,19}$", size):
            size = int(size)
        if isinstance(size, str) and (match := SIZED.match(size)):
            self.assumed.append(f"{name}: {shown(size)} is rounded, in powers of 1024; lsblk -b gives bytes.")
            size = int(float(match[1].replace(",", ".")) * UNITS[match[2]])
        return self._bytes(size, f"size of {name}", line)

    def nvme(self, entries: object, place: Place) -> None:
        for entry in _dicts(entries):
            if "Subsystems" in entry:
                for subsystem in _dicts(entry["Subsystems"]):
                    self._subsystem(subsystem, place)
            else:
                path = entry.get("DevicePath")
                line = place.of(path)
                name = _name(path.rsplit("/", 1)[-1]) if isinstance(path, str) else None
                if name is None:
                    self.odd.append(f"line {line}: a drive without its DevicePath.")
                else:
                    self._add(name, "nvme", entry, "ModelNumber", self._nvme_size(entry, name, line), line)

    def _subsystem(self, subsystem: dict[str, Any], place: Place) -> None:
        shared = _dicts(subsystem.get("Namespaces"))
        for number, controller in enumerate(_dicts(subsystem.get("Controllers"))):
            called = _name(controller.get("Controller")) or "a controller"
            spaces = _dicts(controller.get("Namespaces")) + (shared if number == 0 else [])
            transport = controller.get("Transport", "pcie")
            if transport != "pcie":
                self.unknown.append(f"{called} is reached over {shown(transport)}, not PCIe: left out.")
                continue
            if not spaces:
                self.unknown.append(f"size of {called}: it has no namespace.")
            if len(spaces) > 1:
                self.assumed.append(f"the {len(spaces)} namespaces of {called} share its one link.")
            for space in spaces:
                name = _name(space.get("NameSpace"))
                line = place.of(controller.get("Controller"), name)
                if name is None:
                    self.odd.append(f"line {line}: a namespace of {called} without its name.")
                    continue
                both = {**subsystem, **space, **controller}
                self._add(name, "nvme", both, "ModelNumber", self._nvme_size(space, name, line), line)
                address = controller.get("Address")
                if isinstance(address, str) and re.match(PCI, address):
                    self.facts[f"address {name}"] = Fact(f"PCI address of {name}", address.lower(), "", line)

    def _nvme_size(self, entry: dict[str, Any], name: str, line: int) -> int | None:
        """PhysicalSize; where it is missing or no figure above 0 (some versions overflow), blocks times their size."""
        blocks, sector = entry.get("MaximumLBA", entry.get("MaximiumLBA")), entry.get("SectorSize")
        product = blocks * sector if _whole(blocks) and _whole(sector) and blocks > 0 and sector > 0 else None
        physical = entry.get("PhysicalSize")
        if _whole(physical) and physical > 0:
            if product is not None and _whole(sector) and abs(product - physical) > sector:
                self.odd.append(
                    f"line {line}: PhysicalSize of {name} is {shown(physical)}, MaximumLBA x SectorSize is "
                    f"{shown(product)}. Neither is taken."
                )
                return None
            return self._bytes(physical, f"size of {name}", line)
        if physical is not None and product is not None:
            self.assumed.append(f"PhysicalSize of {name} is {shown(physical)}: its size is MaximumLBA x SectorSize.")
        return self._bytes(product if product is not None else physical, f"size of {name}", line)

    def _bytes(self, size: object, what: str, line: int) -> int | None:
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= LARGEST:
            return size
        if size is None:
            self.unknown.append(f"{what}: not told.")
        else:
            self.odd.append(f"line {line}: the {what} is {shown(size)}, no number of bytes above 0.")
        return None

    def _add(
        self, name: str, kind: DeviceKind, entry: dict[str, Any], key: str, size: int | None, line: int,
        transport: str = "nvme",
    ) -> None:  # fmt: skip
        told = model_of(entry.get(key), entry)
        number = re.match(r"nvme([0-9]{1,4})", name)
        drive = Device(name, kind, int(number[1]) if number else None, told, size=size, line=line, transport=transport)
        before = self.drives.get(name)
        if before is None:
            self.drives[name] = drive
            return
        if None not in (before.size, size) and before.size != size:
            sizes = f"{before.size} and {size} bytes"
            self.odd.append(f"lines {before.line} and {line}: {name} has {sizes}. The first is kept.")
        self.drives[name] = replace(before, model=before.model or told, size=before.size or size)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _name(value: object) -> str | None:
    """A device's name in the system; None for what is none."""
    return value if isinstance(value, str) and re.match(r"[A-Za-z][\w.-]{0,40}\Z", value) else None
