"""A machine's shape as the sections of a topology file: sockets, memories, processors, switches, links.

Names are those of shipped servers: socket0, dram0, hbm0, gpu0, cpu0, sw0 (uplink up0), pcie0, nvlink0, ssd0, nic0.
What no output tells is written "unknown"; where a device hangs, if nobody says, is assumed and told.
"""

from __future__ import annotations

from typing import Any, cast

from offload.errors import one_line
from offload.importing.gpus import nvlink_of, part_of
from offload.importing.machines import groups_of, peers_of
from offload.importing.notes import Notes
from offload.readers.tools.finding import Device, Joint, Machine, Numa, PciePort
from offload.units import format_bytes_both, format_rate, pcie_rate
from offload.units.encodings import NVLINK, PCIE_GIGATRANSFERS, PCIE_LANES

MOST_NVLINKS = max(most for _, most in NVLINK.values())  # of one GPU: more in sum lead through a switch
IDLE = tuple(pcie_rate(generation, lanes) for generation in (1, 2) for lanes in PCIE_LANES)  # what GPUs fall back to
SNAP = 2e-4  # a tool rounds the rate of an encoding by less
SIGNALS = 1.08  # of a link, what signals take over what it carries, at most: tools tell 26.562 of 25 GB/s
Sections = dict[str, dict[str, dict[str, Any]]]


class Shape:
    """Collects the sections. machine : with names that `machines.merge` gives; places : where each is told."""

    def __init__(self, machine: Machine, source: str, places: dict[object, str], notes: Notes):
        self.machine, self.source, self.places, self.notes = machine, source, places, notes
        self.sections: Sections = {key: {} for key in ("switches", "memories", "processors", "links", "limits")}
        self.sockets: dict[int, str] = {}  # NUMA node -> its socket
        self.devices = {one.name: one for one in machine.devices}

    def all(self) -> Sections:
        """The sections, in the order in which people read them."""
        self.host()
        self.switches()
        for number, device in enumerate(self.machine.of_kind("gpu")):
            self.gpu(number, device)
        self.joints()
        for kind, name in (("nvme", "ssd"), ("disk", "disk")):
            for number, device in enumerate(self.machine.of_kind(kind)):
                self.drive(f"{name}{number}", kind, device)
        for number, device in enumerate(self.machine.of_kind("nic")):
            self.sections["switches"][f"nic{number}"] = {"kind": "nic", "source": self.source}
            self.link(f"slot{number}", [self.above(device), f"nic{number}"], device.port, device)
        return self.sections

    # Sockets and what is in them

    def host(self) -> None:
        nodes = [one for one in self.machine.numas if one.kind != "gpu"]
        with_cpu = [one for one in nodes if one.kind == "dram" and one.threads != 0]
        packages = list(dict.fromkeys(one.package for one in with_cpu if one.package is not None))
        if not with_cpu:
            self.without_numa(self.machine.packages or 1)
        elif all(one.package is not None for one in with_cpu):
            self.sockets = {one.number: f"socket{packages.index(cast(int, one.package))}" for one in with_cpu}
        elif self.machine.packages == 1 or len(with_cpu) == 1:
            self.sockets = {one.number: "socket0" for one in with_cpu}
        else:
            self.sockets = {one.number: f"socket{number}" for number, one in enumerate(with_cpu)}
            self.notes.assume(f"each of the {len(with_cpu)} NUMA nodes with cores is a socket of its own: no output "
                              "tells the packages")  # fmt: skip
        names = list(dict.fromkeys(self.sockets.values())) or list(self.sections["switches"])
        for name in names:
            self.sections["switches"][name] = {"kind": "socket", "source": self.source}
        for node in nodes:
            self.node(node)
        self.between_sockets(names)

    def without_numa(self, count: int) -> None:
        what = "one socket with one host memory" if count == 1 else f"{count} sockets with one host memory each"
        self.notes.assume(f"{what}: no output tells NUMA nodes")
        for number in range(count):
            self.sockets[number] = f"socket{number}"
            self.memory(f"dram{number}", "dram", f"socket{number}", None, "nobody tells its size")
            self.sections["processors"][f"cpu{number}"] = {"kind": "cpu", "memory": f"dram{number}"}

    def node(self, node: Numa) -> None:
        socket = self.sockets.get(node.number) or self.nearest(node)
        name = {"dram": "dram", "hbm": "mem", "cxl": "cxl"}[node.kind] + str(node.number)
        if socket is None:
            self.notes.leave_open(f"NUMA node {node.number} has no cores and no output tells whose it is: left out")
            return
        self.memory(name, node.kind, socket, node.size, self.source)
        self.wrote(name, f"numa{node.number}", "size", node.size, "B")
        if node.threads != 0 and node.kind == "dram":
            self.sections["processors"][f"cpu{node.number}"] = {
                "kind": "cpu", "memory": name, "source": "what it computes is not told",
            }  # fmt: skip

    def nearest(self, node: Numa) -> str | None:
        """The socket of the nearest node with cores, for a node that has none."""
        if len(set(self.sockets.values())) == 1:
            return next(iter(self.sockets.values()))
        away = {far: self.machine.distances.get((far, node.number)) for far in self.sockets}
        known = {far: distance for far, distance in away.items() if distance is not None}
        if not known or list(known.values()).count(min(known.values())) > 1:
            return None
        self.notes.assume(f"NUMA node {node.number} hangs at the socket that is nearest by the distance table")
        return self.sockets[min(known, key=lambda far: known[far])]

    def memory(self, name: str, kind: str, socket: str, size: int | None, source: str) -> None:
        self.sections["memories"][name] = {
            "kind": kind, "at": socket, "capacity": "unknown" if size is None else f"{size} B",
            "rate": "unknown", "source": source,
        }  # fmt: skip

    def between_sockets(self, names: list[str]) -> None:
        told: dict[tuple[str, str], list[Joint]] = {}
        for joint in self.machine.joints:
            first, second = (self.socket_of(end) for end in (joint.first, joint.second))
            if first is not None and second is not None and first != second:
                told.setdefault((min(first, second), max(first, second)), []).append(joint)
        if not told and len(names) > 1:
            if len(names) > 2:
                self.notes.assume(f"each two of the {len(names)} sockets are linked directly: no output tells how")
            told = {(a, b): [] for number, a in enumerate(names) for b in names[number + 1 :]}
        for number, ((a, b), joints) in enumerate(sorted(told.items())):
            entry: dict[str, Any] = {"between": [a, b]}
            if joints:
                entry["kind"] = joints[0].technology
            rates = [one.rate for one in joints if one.rate is not None]
            known = bool(rates) and len(rates) == len(joints)
            entry |= _both(f"{sum(rates)!r} B/s" if known else "unknown")
            self.sections["links"][f"upi{number}" if not joints else f"{joints[0].technology}{number}"] = entry | {
                "source": self.source
            }

    def socket_of(self, end: str) -> str | None:
        return self.sockets.get(int(end[4:])) if end[:4] == "numa" and end[4:].isdigit() else None

    # Where a device hangs

    def switches(self) -> None:
        holders = {one.parent for one in self.machine.devices if one.kind in ("gpu", "nvme", "disk", "nic")}
        for device in reversed(self.machine.of_kind("pcie_switch")):  # those below come after those above
            if device.name in holders:
                holders.add(device.parent)
        kept = [one for one in self.machine.of_kind("pcie_switch") if one.name in holders]
        for device in kept:
            self.sections["switches"][device.name] = {"kind": "pcie_switch", "source": self.source}
        for device in kept:
            self.link(f"up{device.name[2:]}", [self.above(device), device.name], device.port, device)
        self.groups: dict[str, str] = {}
        if not any(one.parent for one in self.machine.of_kind("gpu")):
            self.by_nearness(len(self.machine.of_kind("pcie_switch")))

    def by_nearness(self, number: int) -> None:
        """Switches that a matrix of relations implies: one for devices at PIX, one above those at PXB."""
        names = [one.name for kind in ("gpu", "nic") for one in self.machine.of_kind(kind)]
        below: dict[str, str] = {}
        upper = groups_of(self.machine.nears, names, ("PIX", "PXB"))
        lower = groups_of(self.machine.nears, names, ("PIX",))
        for members in upper:
            inside = [group for group in lower if set(group) <= set(members)]
            top = f"sw{number}"
            number += 1
            self.implied(top, members)
            self.groups |= dict.fromkeys(members, top)
            if inside == [members] or sorted(inside[0] if inside else []) == sorted(members):
                continue
            for group in inside:
                name = f"sw{number}"
                number += 1
                self.sections["switches"][name] = {"kind": "pcie_switch", "source": self.source}
                self.link(f"up{number - 1}", [top, name], None, None)
                below |= dict.fromkeys(group, name)
        self.groups |= below

    def implied(self, name: str, members: list[str]) -> None:
        self.sections["switches"][name] = {"kind": "pcie_switch", "source": self.source}
        numas = {self.devices[one].numa for one in members} - {None}
        device = Device(name, "pcie_switch", numa=numas.pop() if len(numas) == 1 else None)
        self.link(f"up{name[2:]}", [self.above(device), name], None, None)
        self.notes.assume(f"{', '.join(members)} share a PCIe switch, {name}: they are PIX or PXB to each other; its "
                          "uplink's width is not told")  # fmt: skip

    def above(self, device: Device) -> str:
        """What a device hangs at: a switch, else its NUMA node's socket, else socket0, which is told."""
        if device.name in getattr(self, "groups", {}):
            return self.groups[device.name]
        parent, numa = self.devices.get(device.parent or ""), device.numa
        if parent is not None and parent.kind == "pcie_switch" and parent.name != device.name and (
                parent.name in self.sections["switches"]):  # fmt: skip
            return parent.name
        for _ in self.devices:  # no further up than there are devices
            if numa is None and parent is not None:
                numa, parent = parent.numa, self.devices.get(parent.parent or "")
        if numa is None:
            below = [one.numa for one in self.machine.devices if self.is_below(one, device.name)]
            numa = next((one for one in below if one is not None), None)
        if numa is not None and numa in self.sockets:
            return self.sockets[numa]
        names = list(dict.fromkeys(self.sockets.values()))
        if len(names) > 1:
            self.notes.assume(f"{device.name}: taken to hang at {names[0]}, as no output tells its NUMA node")
        return names[0]

    def is_below(self, device: Device, name: str) -> bool:
        seen = 0
        while device.parent is not None and seen < len(self.devices):
            if device.parent == name:
                return True
            device, seen = self.devices.get(device.parent, Device("", "other")), seen + 1
        return False

    def link(self, name: str, between: list[str], port: PciePort | None, device: Device | None) -> None:
        entry = {"between": between} | self.port(port, device) | {"source": self.source}
        self.sections["links"][name] = entry
        if device is None or entry.get("forward") == "unknown":
            return
        rate = port.rate if port is not None and "pcie" not in entry else None
        self.wrote(name, device.name, "port",
                   f"PCIe {entry['pcie']}" if rate is None else f"{format_rate(rate, 4)} each way")

    def port(self, port: PciePort | None, device: Device | None) -> dict[str, Any]:
        """A link by its generation and lanes, else by its rate."""
        if port is None or (port.generation not in PCIE_GIGATRANSFERS or port.lanes not in PCIE_LANES):
            rate = None if port is None else port.rate
            if rate is not None and device is not None and device.kind == "gpu" and _exact(rate) in IDLE:
                self.notes.leave_open(f"{device.name}: its link ran at {format_rate(rate, 4)} when it was asked, as "
                                      "idle GPUs do; what it can do is not told")  # fmt: skip
                rate = None
            return {"kind": "pcie"} | _both("unknown" if rate is None else f"{_exact(rate)!r} B/s")
        if device is not None and port.now is not None and port.now != (port.generation, port.lanes):
            generation, lanes = (one or "?" for one in port.now)
            self.notes.assume(f"{device.name} is taken at what its slot and it can do, PCIe {port.generation} "
                              f"x{port.lanes}; when it was asked it ran at {generation} x{lanes}")  # fmt: skip
        return {"pcie": f"{port.generation} x{port.lanes}"}

    # Devices

    def gpu(self, number: int, device: Device) -> None:
        part = part_of(device.model) if device.model else None
        memory: dict[str, Any] = {"use": part} if part else {"kind": "hbm", "rate": "unknown", "capacity": "unknown"}
        processor: dict[str, Any] = ({"use": part} if part else {"kind": "gpu"}) | {"memory": f"hbm{number}"}
        model = one_line(device.model)
        called = f"{model or 'GPU of a model that is not told'}; {self.source}"
        if device.size is not None:
            memory["capacity"] = f"{device.size} B"
            self.wrote(f"hbm{number}", device.name, "size", device.size, "B")
        if part is None:
            memory["source"] = processor["source"] = called
            if device.model:
                self.notes.leave_open(f"no shipped part is called like the GPU {model}: what it has and how "
                                      f"fast it is, but for what was measured")  # fmt: skip
        else:
            self.notes.assume(f'the GPU "{model}" is the shipped part {part}: its rates are that part\'s')
        works, fails = peers_of(self.machine.peers, device.name)
        if works and not fails:
            processor["peer_to_peer"] = True
        elif fails and not works:
            processor["peer_to_peer"] = False
        elif works and fails:
            self.notes.leave_open(f"gpu{number} exchanges bytes directly with {works} others and not with {fails}: a "
                                  "topology says yes or no to all, and says nothing here")  # fmt: skip
        self.sections["memories"][f"hbm{number}"] = memory
        self.sections["processors"][f"gpu{number}"] = processor
        self.wrote(f"gpu{number}", device.name, "model", model or "a GPU")
        self.link(f"pcie{number}", [self.above(device), f"hbm{number}"], device.port, device)

    def drive(self, name: str, kind: str, device: Device) -> None:
        self.sections["memories"][name] = {
            "kind": kind, "capacity": "unknown" if device.size is None else f"{device.size} B", "read": "unknown",
            "write": "unknown", "source": f"{one_line(device.model)}; {self.source}" if device.model else self.source,
        }  # fmt: skip
        if device.size is not None:
            self.wrote(name, device.name, "size", device.size, "B")
        number = name.lstrip("abcdefghijklmnopqrstuvwxyz")
        if kind == "nvme":
            return self.link(f"nvme{number}", [name, self.above(device)], device.port, device)
        link = f"{device.transport or 'bus'}{number}"
        self.link(link, [name, self.above(device)], device.port, device)
        if device.port is not None:
            return None
        entry = self.sections["links"][link]
        del entry["kind"]
        if device.transport in ("sata", "ata"):
            entry["kind"] = "sata"
        else:
            how = f"over {device.transport}" if device.transport else "over what nobody tells"
            self.notes.leave_open(f"{name} is attached {how}: how fast its link {link} is")
        return None

    # Links between devices

    def joints(self) -> None:
        between = [one for one in self.machine.joints
                   if None in (self.socket_of(one.first), self.socket_of(one.second))]
        pairs = [one for one in between if _is_gpu(one.first) and _is_gpu(one.second) and one.technology == "nvlink"]
        total: dict[str, int] = {}
        for joint in pairs:
            for end in (joint.first, joint.second):
                total[end] = total.get(end, 0) + (joint.count or 0)
        ports = {one.first if _is_gpu(one.first) else one.second: one for one in between
                 if "nvswitch" in (one.first, one.second)}  # fmt: skip
        if not ports and any(count > MOST_NVLINKS for count in total.values()):
            self.notes.assume(f"NVLinks go through one NVSwitch: a GPU has at most {MOST_NVLINKS}, and these would be "
                              f"{max(total.values())} if each pair had its own")  # fmt: skip
            for gpu in total:
                own = [one for one in pairs if gpu in (one.first, one.second)]
                ports[gpu] = max(own, key=lambda one: one.count or 0)
        if ports:
            self.sections["switches"]["nvswitch0"] = {"kind": "nvswitch", "source": self.source}
        for gpu, joint in sorted(ports.items(), key=lambda pair: int(pair[0][3:]) if _is_gpu(pair[0]) else -1):
            if _is_gpu(gpu) and gpu in self.devices:
                self.nvlink(f"nvlink{gpu[3:]}", [f"hbm{gpu[3:]}", "nvswitch0"], joint, self.devices[gpu].model)
        for joint in between:
            if "nvswitch" in (joint.first, joint.second) or (joint in pairs and ports):
                continue
            first, second = (self.end(end) for end in (joint.first, joint.second))
            if first is None or second is None or first == second:
                self.notes.leave_out(f"{joint.technology} {joint.first} - {joint.second}: an end is no device here")
                continue
            ends = [first, second]
            numbers = [end[3:] for end in ends if end.startswith("hbm")]  # of a link to a processor the GPU's alone
            name = joint.technology + "_".join(numbers)
            if name in self.sections["links"]:
                name = joint.technology + "_".join(ends)
            model = next((self.devices[end].model for end in (joint.first, joint.second) if end in self.devices), "")
            self.nvlink(name, ends, joint, model)

    def end(self, end: str) -> str | None:
        if _is_gpu(end) and end in self.devices:
            return f"hbm{end[3:]}"
        return self.socket_of(end)

    def nvlink(self, name: str, between: list[str], joint: Joint, model: str) -> None:
        each = joint.rate / joint.count if joint.rate is not None and joint.count else None
        generation, link_rate = nvlink_of(model, each) if joint.technology == "nvlink" else (None, None)
        entry: dict[str, Any] = {"between": between, "kind": joint.technology}
        rate = joint.rate
        if link_rate is not None and joint.count:
            rate = link_rate * joint.count
            if joint.rate is not None and not 1 - SNAP <= joint.rate / rate <= SIGNALS:
                self.notes.contradict(f"{name}: {joint.count} links of NVLink {generation} carry {format_rate(rate)} "
                                      f"each way, and {format_rate(joint.rate, 4)} are told: what is told is kept")
                rate = joint.rate
            elif joint.rate is not None and joint.rate / rate > 1 + SNAP:
                self.notes.assume(f"{name}: {joint.count} links of NVLink {generation} carry {format_rate(rate)} each "
                                  f"way; the {format_rate(joint.rate, 4)} that is told counts what signals take")
        entry |= _both("unknown" if rate is None else f"{rate!r} B/s") | {"source": self.source}
        self.sections["links"][name] = entry
        count = "" if joint.count is None else f"{joint.count} x "
        shown = "" if rate is None else f", {format_rate(rate)} each way"
        origin = self.places.get((joint.first, joint.second, joint.technology), self.source)
        self.notes.wrote(name, f"{count}{joint.technology}{shown}", origin)

    def wrote(self, what: str, device: str, said: str, value: Any, unit: str = "") -> None:
        """Tell what stands in the topology and where it is from. said : "size", "port" or "model" of a device."""
        if value is not None:
            shown = format_bytes_both(value, 4) if unit == "B" else value
            self.notes.wrote(what, shown, self.places.get((device, said)) or self.places.get(device, self.source))


def _is_gpu(end: str) -> bool:
    return end[:3] == "gpu" and end[3:].isdigit()


def _both(rate: str) -> dict[str, str]:
    return {"forward": rate, "backward": rate}


def _exact(rate: float) -> float:
    """The rate of the encoding that a tool rounded, else the rate itself."""
    encodings = [pcie_rate(generation, lanes) for generation in PCIE_GIGATRANSFERS for lanes in PCIE_LANES]
    return next((one for one in encodings if abs(rate / one - 1) < SNAP), rate)
