"""The machine that is stood on: NUMA nodes, memory, PCIe, GPUs and drives, from /sys and /proc, lstopo and nvidia-smi.

What comes out are findings as readers of tools give them, so that an import makes the topology of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from offload.errors import OffloadError
from offload.measure.figures import Collected
from offload.measure.memory import Node
from offload.measure.system import System, fields, kib, numbers_of
from offload.readers.tools.finding import Device, DeviceKind, Finding, Machine, Numa, PciePort
from offload.readers.tools.recognise import read_content
from offload.units.encodings import PCIE_GIGATRANSFERS

TOOL = "/sys and /proc"
NO_DRIVE = re.compile(r"(?:loop|ram|zram|sr|fd|nbd|dm-|md)\d")
QUERY = ["nvidia-smi", "--query-gpu=index,pci.bus_id,name,memory.total", "--format=csv,noheader,nounits"]
LSTOPO = ["lstopo-no-graphics", "lstopo"]
KINDS: dict[int, DeviceKind] = {0x0302: "gpu", 0x0380: "gpu", 0x1200: "gpu", 0x0200: "nic", 0x0207: "nic"}  # by class
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Here:
    """This machine: its nodes with the processors that may be used, bytes of all its caches of level 2 and above (0:
    not known), findings of its shape, and block devices by the place of their drive."""

    nodes: tuple[Node, ...]
    caches: int
    findings: tuple[Finding, ...]
    drives: tuple[str, ...]
    cpu: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache: its level, bytes, and the processors that share it."""

    level: int
    size: int
    cpus: tuple[int, ...]


def find(system: System, collected: Collected, allowed: Sequence[int] | None = None) -> Here:
    """All of it. allowed : processors that this process may run on (default: those that the system says)."""
    if allowed is None:
        allowed = (sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                   else list(range(os.cpu_count() or 1)))  # fmt: skip
    free, total = _memory(system, collected)
    caches = _caches(system)
    nodes, numas = _nodes(system, list(allowed), free, total, caches, collected)
    devices, blocks = _devices(system)
    packages = _packages(system)
    machine = Machine(tuple(replace(one, package=packages.get(one.number)) for one in numas), devices,
                      packages=len(set(packages.values())) or None, distances=_distances(system, numas))  # fmt: skip
    findings = [Finding(TOOL, machine)]
    findings += _of_tools(system, collected, {one.number for one in numas if one.size})
    findings += _nvidia(system)
    model = next((value for key, value in fields(system.text("/proc/cpuinfo")) if key.lower() == "model name"), "")
    every = sum(one.size for one in caches if one.level >= 2)
    return Here(tuple(nodes), every, tuple(findings), blocks, model)


# Memory and processors


def _memory(system: System, collected: Collected) -> tuple[int, int | None]:
    """Bytes of memory that are free to this process, and all that the machine has."""
    told = dict(fields(system.text("/proc/meminfo")))
    total, free = kib(told.get("MemTotal")), kib(told.get("MemAvailable", told.get("MemFree")))
    if total is None:
        collected.left_out("the machine's memory", "/proc/meminfo cannot be read; what the C library says is taken")
        try:
            page = os.sysconf("SC_PAGE_SIZE")
            total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
        except (OSError, ValueError, AttributeError):
            return 0, None
    free = total if free is None else free
    for most, used in (("memory.max", "memory.current"),
                       ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):  # fmt: skip
        limit = system.number(f"/sys/fs/cgroup/{most}")
        if limit is not None and limit < total:
            free = min(free, limit - (system.number(f"/sys/fs/cgroup/{used}") or 0))
            collected.warn(f"this container may use {limit / 2**30:.3g} GiB of {total / 2**30:.3g}: the topology has "
                           "the whole machine's capacity")  # fmt: skip
    addresses = re.search(r"^Max address space +(\d+)", system.text("/proc/self/limits") or "", re.MULTILINE)
    if addresses and int(addresses[1]) < total:
        free = min(free, int(addresses[1]) - (kib(dict(fields(system.text("/proc/self/status"))).get("VmSize")) or 0))
        collected.warn(f"this process may use {int(addresses[1]) / 2**30:.3g} GiB of addresses (ulimit -v): arrays may "
                       "be small")  # fmt: skip
    return max(0, free), total


def _nodes(
    system: System, allowed: list[int], free: int, total: int | None, caches: Sequence[Cache], collected: Collected
) -> tuple[list[Node], list[Numa]]:
    base = "/sys/devices/system/node"
    found = [int(name[4:]) for name in system.names(base) if re.fullmatch(r"node\d{1,5}", name)]
    if not found:
        collected.left_out("NUMA nodes", "/sys tells none (a container without it?): all memory is taken as one node")
        return [Node(0, tuple(allowed), free, _last(caches, allowed))], [Numa(0, total, len(allowed), 0)]
    nodes, numas = [], []
    for number in found:
        said = dict(fields(system.text(f"{base}/node{number}/meminfo")))
        told = {key.split()[-1]: kib(value) for key, value in said.items() if key}
        cpus = numbers_of(system.text(f"{base}/node{number}/cpulist"))
        own = tuple(one for one in _cores_first(system, cpus) if one in allowed)
        idle = told.get("MemFree")
        room = free if idle is None else min(free, idle + (told.get("FilePages") or 0))
        nodes.append(Node(number, own, room, _last(caches, own)))
        numas.append(Numa(number, total if len(found) == 1 and total else told.get("MemTotal"), len(cpus)))
    return [one for one, numa in zip(nodes, numas, strict=True) if numa.size], [one for one in numas if one.size]


def _cores_first(system: System, cpus: Sequence[int]) -> list[int]:
    """Processors with one thread of each core first."""
    later = []
    for cpu in cpus:
        told = system.text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings = numbers_of(told)
        later.append((siblings.index(cpu) if cpu in siblings else 0, cpu))
    return [cpu for _, cpu in sorted(later)]


def _packages(system: System) -> dict[int, int]:
    """NUMA node -> the package of its processors."""
    found = {}
    base = "/sys/devices/system/node"
    for name in system.names(base):
        if re.fullmatch(r"node\d{1,5}", name):
            for cpu in numbers_of(system.text(f"{base}/{name}/cpulist"))[:1]:
                package = system.number(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
                if package is not None and package >= 0:
                    found[int(name[4:])] = package
    return found


def _distances(system: System, numas: Sequence[Numa]) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for node in numas:
        row = (system.text(f"/sys/devices/system/node/node{node.number}/distance") or "").split()
        if len(row) == len(numas):
            found |= {(node.number, other.number): int(one) for other, one in zip(numas, row, strict=True)
                      if one.isdigit()}  # fmt: skip
    return found


def _caches(system: System) -> list[Cache]:
    """All caches of data, each once however many processors share it."""
    found: dict[tuple[int, tuple[int, ...]], Cache] = {}
    base = "/sys/devices/system/cpu"
    for cpu in [name for name in system.names(base) if re.fullmatch(r"cpu\d+", name)]:
        for index in system.names(f"{base}/{cpu}/cache"):
            place = f"{base}/{cpu}/cache/{index}"
            level, size = system.number(f"{place}/level"), kib(system.text(f"{place}/size"))
            if level is None or size is None or system.text(f"{place}/type") == "Instruction":
                continue
            cpus = numbers_of(system.text(f"{place}/shared_cpu_list")) or (int(cpu[3:]),)
            found[level, cpus] = Cache(level, size, cpus)
    return list(found.values())


def _last(caches: Sequence[Cache], cpus: Sequence[int]) -> int:
    """Bytes of all last caches of some processors: one socket may have many of them, side by side."""
    own = [one for one in caches if not set(cpus).isdisjoint(one.cpus)]
    level = max((one.level for one in own), default=0)
    return sum(one.size for one in own if one.level == level)


# PCIe and drives


def _devices(system: System) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """GPUs, switches, NICs and drives; and the drives' block devices, those of NVMe first as topologies have them."""
    found: list[Device] = []
    switches: dict[str, Device] = {}
    base = "/sys/bus/pci/devices"
    for address in [one for one in system.names(base) if ADDRESS.fullmatch(one)]:
        place = f"{base}/{address}"
        kind = KINDS.get((system.number(f"{place}/class") or 0) >> 8)
        vendor, device = system.number(f"{place}/vendor"), system.number(f"{place}/device")
        if kind is None and (system.number(f"{place}/class") or 0) >> 8 == 0x0300 and vendor == 0x10DE:
            kind = "gpu"  # one with a display
        if kind is None or kind == "nic" and _port(system, place) is None:
            continue
        told = kind == "gpu" and vendor is not None and device is not None
        model = f"PCI id {vendor:04x}:{device:04x}" if told else ""
        found.append(Device(address, kind, None, model, _switch(system, place, switches), _numa(system, place),
                            port=_port(system, place)))  # fmt: skip
    drives = sorted(_drives(system, switches), key=lambda pair: pair[0].kind != "nvme")
    devices = (*sorted(switches.values(), key=lambda one: one.name), *found, *(one for one, _ in drives))
    return devices, tuple(block for _, block in drives)


def _drives(system: System, switches: dict[str, Device]) -> list[tuple[Device, str]]:
    found = []
    for name in system.names("/sys/block"):
        if NO_DRIVE.match(name) or not system.number(f"/sys/block/{name}/size"):
            continue
        size = 512 * (system.number(f"/sys/block/{name}/size") or 0)  # the kernel counts in 512 bytes here
        real = system.real(f"/sys/block/{name}") or ""
        number = re.match(r"nvme(\d{1,4})(?:c\d+)?n", name)
        if number and "/nvme-subsystem/" in real:  # of a drive that could have several ways to it: that of the first
            real = next(filter(None, (system.real(f"{real}/device/{one}") for one in system.names(f"{real}/device")
                                      if re.fullmatch(r"nvme\d{1,4}", one))), real)  # fmt: skip
        addresses = [one for one in real.split("/") if ADDRESS.fullmatch(one)]
        place = f"/sys/bus/pci/devices/{addresses[-1]}" if addresses else ""
        if number:
            if not place:
                continue  # over a network
            above = _switch(system, place, switches)
            found.append((Device(name, "nvme", int(number[1]), "", above, _numa(system, place), size,
                                 _port(system, place), transport="nvme"), name))  # fmt: skip
            continue
        transport = ("virtio" if "/virtio" in real else "usb" if "/usb" in real else "sata" if "/ata" in real
                     else "")  # fmt: skip
        if "/virtual/" not in real:
            numa = _numa(system, place) if place else None
            found.append((Device(name, "disk", None, "", None, numa, size, transport=transport), name))
    return found


def _numa(system: System, place: str) -> int | None:
    number = system.number(f"{place}/numa_node")
    return number if number is not None and number >= 0 else None


def _bridges(system: System, place: str) -> list[str]:
    """Addresses of the bridges above a device, from the root port down."""
    real = system.real(place) or ""
    return [one for one in real.split("/")[:-1] if ADDRESS.fullmatch(one)]


def _switch(system: System, place: str, switches: dict[str, Device]) -> str | None:
    """The upstream port of the switch that a device hangs at: each switch is two bridges below the root port."""
    above = _bridges(system, place)
    names = above[1:-1:2] if len(above) >= 3 else []
    for number, name in enumerate(names):
        own = f"/sys/bus/pci/devices/{name}"
        parent = names[number - 1] if number else None
        switches.setdefault(name, Device(name, "pcie_switch", parent=parent, numa=_numa(system, own),
                                         port=_port(system, own)))  # fmt: skip
    return names[-1] if names else None


def _port(system: System, place: str) -> PciePort | None:
    """What a device and the port above it can do, the lesser of both, and what the link runs at, where that is less."""
    ends = [_link(system, place, "max")]
    if above := _bridges(system, place):
        ends.append(_link(system, f"/sys/bus/pci/devices/{above[-1]}", "max"))
    known = [one for one in ends if one is not None]
    if ends[0] is None:
        return None
    best = (min(one[0] for one in known), min(one[1] for one in known))
    now = _link(system, place, "current")
    return PciePort(*best, now=now if now is not None and now != best else None)


def _link(system: System, place: str, which: str) -> tuple[int, int] | None:
    speed = re.match(r"([\d.]+) GT/s", system.text(f"{place}/{which}_link_speed") or "")
    lanes = system.number(f"{place}/{which}_link_width")
    generation = {rate: number for number, rate in PCIE_GIGATRANSFERS.items()}.get(float(speed[1])) if speed else None
    return (generation, lanes) if generation and lanes and 0 < lanes <= 32 else None


# Tools


def _of_tools(system: System, collected: Collected, known: Container[int]) -> list[Finding]:
    """What lstopo says, where it is there. known : nodes whose memory /sys tells, which is not asked for twice."""
    for name in LSTOPO:
        text = system.run([name, "--filter", "io:all", "--of", "xml"])
        if text is None:
            continue
        try:
            return [replace(one, machine=_without_sizes(one.machine, known)) for one in read_content(text)
                    if one.machine is not None]  # fmt: skip
        except OffloadError as error:
            collected.left_out(name, f"its output is not understood ({error}); /sys is taken")
    return []


def _without_sizes(machine: Machine, known: Container[int]) -> Machine:
    """A machine whose NUMA nodes tell no size where it is known: what a virtual machine is given later is missing."""
    return replace(machine, numas=tuple(replace(one, size=None) if one.number in known else one
                                        for one in machine.numas))  # fmt: skip


def _nvidia(system: System) -> list[Finding]:
    """What nvidia-smi says of the GPUs and of how they are joined."""
    found = []
    devices = []
    for line in (system.run(QUERY) or "").splitlines():
        cells = [one.strip() for one in line.split(",")]
        if len(cells) == 4 and cells[0].isdigit():
            size = int(cells[3]) * 2**20 if cells[3].isdigit() else None
            devices.append(Device(f"gpu{cells[0]}", "gpu", int(cells[0]), cells[2], size=size))
    if devices:
        found.append(Finding("nvidia-smi --query-gpu", Machine(devices=tuple(devices))))
    for words in (["nvidia-smi", "topo", "-m"], ["nvidia-smi", "nvlink", "-s"]):
        text = system.run(words)
        if text is None:
            continue
        try:
            found += [one for one in read_content(text) if one.machine is not None]
        except OffloadError:
            continue
    return found
