"""Several outputs about one machine as one Machine: the fullest is the base, the others fill in what it leaves open.

Devices get names that all outputs share: gpu0, nvme0, disk0, nic0, sw0, "nvswitch". What two outputs tell differently
is noted as a contradiction, and the base's word is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from offload.importing.notes import Notes, where
from offload.readers.tools.finding import Device, Finding, Joint, Machine, Near, Numa, Peer
from offload.readers.tools.pci_ids import SOURCE, model_of

SHORT = {"gpu": "gpu", "nvme": "nvme", "disk": "disk", "nic": "nic", "pcie_switch": "sw", "nvswitch": "nvswitch",
         "other": "other"}  # fmt: skip
COUNTED = ("gpu", "nvme", "disk", "nic")  # in a topology their numbers are their places
ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
NEAR = 0.02  # sizes that differ by less are the same memory, told with or without what the system keeps


def merge(findings: Sequence[Finding], notes: Notes) -> tuple[Machine, Finding, dict[object, str]]:
    """The machine, the finding that is its base, and the place (file and line) of every device and NUMA node."""
    told = [(finding, _renamed(finding.machine, notes, finding)) for finding in findings if finding.machine is not None]
    told.sort(key=lambda pair: _fullness(pair[1]), reverse=True)
    base, merged = told[0]
    places: dict[object, str] = {device.name: where(base, device.line) for device in merged.devices}
    places |= {(one.first, one.second, one.technology): where(base, one.line) for one in merged.joints}
    places |= {f"numa{node.number}": where(base, node.line) for node in merged.numas}
    places |= {(f"numa{node.number}", "size"): where(base, node.size_line) for node in merged.numas if node.size_line}
    for finding, machine in told[1:]:
        merged = _filled(merged, machine, base, finding, places, notes)
        for one in machine.joints:
            places.setdefault((one.first, one.second, one.technology), where(finding, one.line))
    return _placed(merged, notes), base, places


def _fullness(machine: Machine) -> tuple[int, int, int]:
    placed = sum(one.port is not None and (one.parent is not None or one.numa is not None) for one in machine.devices)
    return placed, len(machine.devices), len(machine.numas)


def _placed(machine: Machine, notes: Notes) -> Machine:
    """Devices of no told NUMA node at that of a device on their host bridge, else of one within their NUMA node."""
    told = {one.name: one.numa for one in machine.devices if one.numa is not None}
    devices = {one.name: one for one in machine.devices}
    for relations in (("PIX", "PXB", "PHB"), ("NODE",)):
        nodes: dict[str, set[int]] = {}
        for near in machine.nears:
            for one, other in ((near.first, near.second), (near.second, near.first)):
                if near.relation in relations and one not in told and other in told:
                    nodes.setdefault(one, set()).add(told[other])
        for name, found in nodes.items():
            if len(found) == 1 and name in devices and devices[name].parent is None:
                told[name] = next(iter(found))
                devices[name] = replace(devices[name], numa=told[name])
                notes.assume(f"{name} hangs at NUMA node {told[name]}: it is {relations[-1]} or nearer to one there")
    return replace(machine, devices=tuple(devices.values()))


# Names that all share


def address(name: str) -> tuple[int, ...] | None:
    """A PCI address as numbers, None for another kind of name."""
    found = ADDRESS.fullmatch(name.strip())
    return tuple(int(part or "0", 16) for part in found.groups()) if found else None


def _order(devices: Iterable[Device]) -> list[Device]:
    """Devices of a kind as tools count them: by their number, else by PCI address, else as they are told."""
    devices = list(devices)
    if all(one.index is not None for one in devices):
        return sorted(devices, key=lambda one: one.index or 0)
    if all(address(one.name) for one in devices):
        return sorted(devices, key=lambda one: address(one.name) or ())
    return devices


def _renamed(machine: Machine, notes: Notes, finding: Finding) -> Machine:
    """A machine whose devices are called by kind and number, everywhere; its addresses stand in `model` of none."""
    machine = _with_models(_with_named_gpus(machine), notes, finding)
    names: dict[str, str] = {}
    for kind, short in SHORT.items():
        devices = _order(machine.of_kind(kind))
        if kind == "gpu" and len(devices) > 1 and any(one.index is None for one in devices):
            notes.assume(f"{finding.tool}: GPUs are numbered in the order of their PCI addresses, as drivers count")
        for number, device in enumerate(devices):
            names[device.name] = "nvswitch" if kind == "nvswitch" else f"{short}{number}"

    def name(end: str) -> str:
        return names.get(end, end)

    counted = {old: place for place, old in enumerate(names)}  # switches stay as they are: those above come first
    renamed = tuple(
        replace(one, name=name(one.name), parent=None if one.parent is None else name(one.parent))
        for one in sorted(machine.devices, key=lambda one: counted[one.name] if one.kind in COUNTED else -1)
    )
    seen: dict[str, Device] = {}
    for device in renamed:  # several NVSwitch chips are one switch
        seen.setdefault(device.name, device)
    return replace(
        machine,
        devices=tuple(seen.values()),
        joints=_summed(replace(one, first=name(one.first), second=name(one.second)) for one in machine.joints),
        nears=tuple(replace(one, first=name(one.first), second=name(one.second)) for one in machine.nears),
        peers=tuple(replace(one, first=name(one.first), second=name(one.second)) for one in machine.peers),
    )


def _with_named_gpus(machine: Machine) -> Machine:
    """A machine of whose GPUs only relations are told, with the GPUs that these name."""
    if machine.of_kind("gpu"):
        return machine
    lines: dict[str, int] = {}
    pairs: tuple[Peer | Near | Joint, ...] = (*machine.peers, *machine.nears, *machine.joints)
    for pair in pairs:
        for end in (pair.first, pair.second):
            if re.fullmatch(r"gpu\d+", end):
                lines.setdefault(end, pair.line)
    gpus = (Device(name, "gpu", int(name[3:]), line=line) for name, line in lines.items())
    return replace(machine, devices=(*machine.devices, *gpus))


def _with_models(machine: Machine, notes: Notes, finding: Finding) -> Machine:
    """A machine whose GPUs that are told by PCI numbers alone have their models."""
    devices = list(machine.devices)
    found: dict[tuple[str, str], list[str]] = {}
    for place, device in enumerate(devices):
        model = model_of(device.model) if device.kind == "gpu" else None
        if model is not None:
            found.setdefault((device.model, model), []).append(where(finding, device.line))
            devices[place] = replace(device, model=model)
    for (said, model), origins in found.items():
        notes.assume(f"{origins[0]}: {said} is {model}, by {SOURCE} ({len(origins)} of them)")
    return replace(machine, devices=tuple(devices)) if found else machine


def _summed(joints: Iterable[Joint]) -> tuple[Joint, ...]:
    """One joint for each pair: links to several NVSwitch chips add up; a pair that is told from both ends is one."""
    found: dict[tuple[str, str, str], Joint] = {}
    ways: dict[tuple[str, str, str], tuple[str, str]] = {}
    for joint in joints:
        first, second = sorted((joint.first, joint.second))
        key = (first, second, joint.technology)
        if key not in found:
            found[key], ways[key] = joint, (joint.first, joint.second)
        elif second == "nvswitch" and ways[key] == (joint.first, joint.second):
            one = found[key]
            count = None if one.count is None or joint.count is None else one.count + joint.count
            rate = None if one.rate is None or joint.rate is None else one.rate + joint.rate
            found[key] = replace(one, count=count, rate=rate)
    return tuple(found.values())


# Filling in


def _filled(
    base: Machine, other: Machine, first: Finding, second: Finding, places: dict[object, str], notes: Notes
) -> Machine:
    devices = {one.name: one for one in base.devices}
    other_gpus = False
    for kind in ("gpu", "nvme", "disk", "nic"):
        ours, theirs = base.of_kind(kind), other.of_kind(kind)
        if not theirs:
            continue
        if ours and len(ours) != len(theirs):
            notes.contradict(f"{len(ours)} of {kind} by {first.file or first.tool}, {len(theirs)} by "
                             f"{second.file or second.tool}: the first is kept")  # fmt: skip
            other_gpus |= kind == "gpu"  # what is numbered by GPU is then of other ones
            continue
        for device in theirs:
            if not ours:
                devices[device.name] = replace(device, parent=None)
                places[device.name] = where(second, device.line)
            else:
                ours_before = devices[device.name]
                devices[device.name] = _device(ours_before, device, first, second, notes)
                _tell(places, device.name, ours_before, device, second)
    numas = {one.number: one for one in base.numas}
    for node in other.numas:
        if not base.numas:
            numas[node.number] = node
            places[f"numa{node.number}"] = where(second, node.size_line or node.line)
        elif node.number not in numas:
            notes.contradict(f"NUMA node {node.number} is told by {where(second, node.line)} alone: it is left out")
        else:
            before = numas[node.number]
            numas[node.number] = _node(before, node, first, second, notes)
            _tell(places, f"numa{node.number}", before, node, second)
    return Machine(
        tuple(numas.values()),
        tuple(devices.values()),
        base.joints if other_gpus else _joints(base, other, first, second, notes),
        base.nears if other_gpus else _first(base.nears, other.nears),
        base.peers if other_gpus else _first(base.peers, other.peers),
        base.packages if base.packages is not None else other.packages,
        base.distances or other.distances,
    )


def _first(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return one or other


def _device(one: Device, other: Device, first: Finding, second: Finding, notes: Notes) -> Device:
    def differs(what: str, ours: Any, theirs: Any) -> None:
        notes.contradict(f"{one.name}: {what} is {ours} by {where(first, one.line)} and {theirs} by "
                         f"{where(second, other.line)}: the first is kept")  # fmt: skip

    if one.numa is not None and other.numa is not None and one.numa != other.numa:
        differs("its NUMA node", one.numa, other.numa)
    if one.size and other.size and abs(one.size / other.size - 1) > NEAR:
        differs("its size in bytes", one.size, other.size)
    ports = [(port.generation, port.lanes) for port in (one.port, other.port) if port and port.generation]
    if len(ports) == 2 and ports[0] != ports[1] and None not in ports[0] + ports[1]:
        differs("its link", "PCIe {} x{}".format(*ports[0]), "PCIe {} x{}".format(*ports[1]))
    return replace(
        one,
        model=one.model or other.model,
        numa=one.numa if one.numa is not None else other.numa,
        size=one.size if one.size is not None else other.size,
        port=one.port if one.port is not None else other.port,
    )


def _tell(places: dict[object, str], name: str, one: Device | Numa, other: Device | Numa, second: Finding) -> None:
    """Remember where a figure is from that the first output does not have and the second does."""
    for said in ("size", "port", "model"):
        if getattr(one, said, None) in (None, "") and getattr(other, said, None) not in (None, ""):
            line = getattr(other, "size_line", 0) if said == "size" else 0
            places.setdefault((name, said), where(second, line or other.line))


def _node(one: Numa, other: Numa, first: Finding, second: Finding, notes: Notes) -> Numa:
    if one.size and other.size and abs(one.size / other.size - 1) > NEAR:
        notes.contradict(f"memory of NUMA node {one.number} is {one.size} B by {where(first, one.line)} and "
                         f"{other.size} B by {where(second, other.line)}: the first is kept")  # fmt: skip
    return replace(
        one,
        size=one.size if one.size is not None else other.size,
        threads=one.threads if one.threads is not None else other.threads,
        package=one.package if one.package is not None else other.package,
        kind=other.kind if one.kind == "dram" and not one.threads else one.kind,  # numactl tells no kinds
    )


def _joints(base: Machine, other: Machine, first: Finding, second: Finding, notes: Notes) -> tuple[Joint, ...]:
    ours = {(*sorted((one.first, one.second)), one.technology): one for one in base.joints}
    technologies = {one.technology for one in base.joints}
    for joint in other.joints:
        key = (*sorted((joint.first, joint.second)), joint.technology)
        mine = ours.get(key)
        if mine is None and joint.technology not in technologies:
            ours[key] = joint
        elif mine is not None:
            if mine.count and joint.count and mine.count != joint.count:
                notes.contradict(f"{joint.technology} {joint.first} - {joint.second}: {mine.count} links by "
                                 f"{where(first, mine.line)} and {joint.count} by {where(second, joint.line)}: the "
                                 "first is kept")  # fmt: skip
            ours[key] = replace(mine, count=mine.count if mine.count is not None else joint.count,
                                rate=mine.rate if mine.rate is not None else joint.rate)  # fmt: skip
    return tuple(ours.values())


def peers_of(peers: Iterable[Peer], gpu: str) -> tuple[int, int]:
    """With how many others a GPU exchanges bytes directly, and with how many it does not."""
    told = [one.works for one in peers if gpu in (one.first, one.second) and one.first != one.second]
    return sum(told), len(told) - sum(told)


def groups_of(nears: Iterable[Near], names: Iterable[str], relations: Sequence[str]) -> list[list[str]]:
    """Devices that are joined by one of some relations, together; only groups of two and more."""
    group = {name: name for name in names}

    def top(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for near in nears:
        if near.relation in relations and near.first in group and near.second in group:
            group[top(near.second)] = top(near.first)
    found: dict[str, list[str]] = {}
    for name in group:
        found.setdefault(top(name), []).append(name)
    return [members for members in found.values() if len(members) > 1]
