"""hwloc's topology XML, versions 2 and 3 (lstopo --of xml): NUMA nodes, packages, PCIe tree with rates, GPUs, joints.

A switch is its upstream port; a link's rate is the lower of what its two ends say. One GPU has several names (nvml0,
cuda0, opencl0d0): it is the PCIe device under which they stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from offload.errors import ReadingError
from offload.readers.tools.drive_names import model_of, transport_of
from offload.readers.tools.finding import Device, DeviceKind, Fact, Finding, Machine, MemoryKind, Numa, PciePort
from offload.readers.tools.hwloc_matrices import Ends, read_matrices
from offload.readers.tools.text import Text
from offload.readers.tools.xml_text import Element, bits_of, documents, holds, listed, one_document, whole_number

LOOKS_LIKE = "hwloc XML (lstopo)"
COMPUTE = re.compile(r"(nvml|rsmi|cuda|ze)(\d{1,4})|opencl\d{1,4}d\d{1,4}")
BOARD_GRAPHICS = {"1002:515e", "1002:5969"}  # graphics of a server's board (ES1000), of a vendor of GPUs
GPU_SIZES = ("CUDAGlobalMemorySize", "RSMIVRAMSize", "LevelZeroHBMSize", "OpenCLGlobalMemorySize")
MEMORIES: dict[str, MemoryKind] = {"": "dram", "DRAM": "dram", "HBM": "hbm", "MCDRAM": "hbm", "GPUMemory": "gpu"}
FIRST_GENERATION = {lanes * 250e6: lanes for lanes in (1, 2, 4, 8, 16)}  # B/s of PCIe 1


def is_it(text: Text) -> bool:
    """Whether a <topology> with <object> elements stands in the text."""
    return holds(text, "topology", "object")


def read(text: Text) -> Finding:
    """A machine's shape: NUMA nodes and packages, the PCIe tree with rates at the dump, GPUs, NICs, drives, joints.

    Raises ReadingError for broken XML, another version, PCIe devices without an address or with one that stands twice,
    and for several machines.
    """
    topology, twice = one_document(documents(text, "topology"))
    version = topology.get("version")
    if not re.fullmatch(r"[23]\.\d{1,3}", version):
        said = f"version {version[:20]}" if version else "no version: hwloc 1 wrote it"
        raise ReadingError(
            f"line {topology.line}: hwloc XML of version 2 or 3 is read, this has {said}. Convert it with hwloc 2: "
            "lstopo -i FILE --of xml NEW.xml"
        )
    tree = _Tree(version[0] == "3")
    tree.assumed += [twice] if twice else []
    for machine in topology.all("object"):
        tree.visit(machine, _Above())
    if not tree.numas and not tree.devices:
        raise ReadingError(f"line {topology.line}: the <topology> has no NUMA node and no device. Give a full export.")
    tree.settle()
    tree.infos(topology)
    matrices = read_matrices(topology, tree.ends, tree.devices)
    tree.say_unknown()
    return Finding(
        f"hwloc XML {version}",
        Machine(tuple(tree.numas.values()), tuple(tree.devices.values()), tuple(matrices.joints),
                packages=tree.packages or None, distances=matrices.distances),
        facts=tuple(tree.facts + matrices.facts),
        assumed=tuple(tree.assumed + matrices.assumed),
        unknown=tuple(tree.unknown + matrices.unknown),
        odd=tuple(tree.odd + matrices.odd),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Above:
    """What is above an object: the objects with processors around it (outermost first), its package, the switch, the
    rate of the port right above, how many PCIe bridges lead to it."""

    places: tuple[int, ...] = ()
    package: int | None = None
    switch: str | None = None
    port: float | None = None
    bridges: int = 0


@dataclass
class _Tree:
    """What the objects say so far. numas_in : NUMA nodes in a place; places : a device's places."""

    third: bool
    numas: dict[int, Numa] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    ends: Ends = field(default_factory=Ends)
    packages: int = 0
    bridges: int = 0
    facts: list[Fact] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    numas_in: dict[int, list[int]] = field(default_factory=dict)
    places: dict[str, tuple[int, ...]] = field(default_factory=dict)
    cpusets: dict[int, str] = field(default_factory=dict)
    subtypes: dict[int, str] = field(default_factory=dict)

    def visit(self, element: Element, above: _Above) -> None:
        """An object and all in it."""
        kind = element.get("type")
        if kind == "NUMANode":
            self.numa(element, above)
        elif kind == "Bridge":
            above = self.bridge(element, above)
        elif kind == "PCIDev":
            self.pci(element, above)
            return
        elif kind == "OSDev":
            self.lone(element, above)
            return
        elif kind == "Misc":
            return
        else:
            above = replace(above, places=(*above.places, id(element)))
            if kind == "Package":
                above = self.package(element, above)
        for child in element.all("object"):
            self.visit(child, above)

    def package(self, element: Element, above: _Above) -> _Above:
        """A processor package."""
        self.packages += 1
        number = whole_number(element.get("os_index"), 10**5)
        if (gp := whole_number(element.get("gp_index"))) is not None:
            self.ends.packages[gp] = (number, id(element))
        if model := plain(_infos(element).get("CPUModel", "")):
            called = "a package of no number" if number is None else f"package {number}"
            self.facts.append(Fact(f"processor of {called}", model, "", element.line))
        return replace(above, package=number)

    def numa(self, element: Element, above: _Above) -> None:
        """A NUMA node. Its threads are settled once all nodes are known."""
        number, kind = whole_number(element.get("os_index"), 10**5), element.get("subtype")
        if number is None or number in self.numas:
            why = "has no os_index" if number is None else f"{number} stands twice"
            raise ReadingError(f"line {element.line}: a NUMANode {why}. Give the file as lstopo wrote it.")
        size = whole_number(element.get("local_memory"), 2**60) or None
        if kind not in MEMORIES and not kind.startswith("CXL"):
            if size:
                self.facts.append(Fact(f"memory of NUMA node {number}, {plain(kind)}", size, "B", element.line))
            self.unknown.append(f"line {element.line}: what memory {plain(kind)!r} is; NUMA node {number} is left out")
            return
        cpuset = element.get("cpuset")
        self.numas[number] = Numa(number, size, bits_of(cpuset) if cpuset else 0, above.package,
                                  MEMORIES.get(kind, "cxl"), element.line)  # fmt: skip
        self.cpusets[number], self.subtypes[number] = cpuset, kind
        for place in above.places:
            self.numas_in.setdefault(place, []).append(number)
        if (gp := whole_number(element.get("gp_index"))) is not None:
            self.ends.numas[gp] = number
        self.ends.cpusets[number] = cpuset

    def bridge(self, element: Element, above: _Above) -> _Above:
        """A host bridge, a port that leads down (of the processor or of a switch), or a switch's upstream port."""
        self.bridges += 1
        if element.get("bridge_type").startswith("0"):
            return replace(above, switch=None, port=None, bridges=0)
        above = replace(above, bridges=above.bridges + 1)
        if above.bridges % 2:
            return replace(above, port=_rate(element))
        name = self._add(element, "pcie_switch", above)
        return replace(above, switch=name, port=None)

    def pci(self, element: Element, above: _Above) -> None:
        """A PCIe device with the operating system's names for it."""
        under = [child for child in element.all("object") if child.get("type") == "OSDev"]
        kind = self._kind(element, under)
        name = self._add(element, kind, above)
        device = self.devices[name]
        if kind == "gpu":
            device = self._gpu(device, under)
        elif kind == "nvme":
            sizes = [size for osdev in under if (size := _kibibytes(_infos(osdev).get("Size", "")))]
            numbers = {int(found[1]) for osdev in under if (found := re.match(r"nvme(\d{1,4})", osdev.get("name")))}
            models = [model for osdev in under if (model := model_of((infos := _infos(osdev)).get("Model"), infos))]
            device = replace(device, size=sum(sizes) or None, model=models[0] if models else device.model,
                             index=min(numbers) if len(numbers) == 1 else None)  # fmt: skip
        self.devices[name] = device
        for osdev in under:
            for inner in osdev.whole("object"):  # a part of a GPU stands for the GPU
                if (gp := whole_number(inner.get("gp_index"))) is not None:
                    self.ends.devices[gp] = name
            if kind != "nvme" and kind != "gpu":
                self._part(osdev, replace(above, switch=name))

    def lone(self, element: Element, above: _Above) -> None:
        """A device of the operating system without a PCIe device."""
        name = element.get("name")
        if COMPUTE.fullmatch(name) and not name.startswith("opencl"):
            device = Device(name, "gpu", line=element.line)
            self._keep(self._gpu(device, [element]), above, element)
        else:
            self._part(element, above)

    def _part(self, osdev: Element, above: _Above) -> None:
        """A disk under a controller, CXL memory, or memory set apart."""
        name, infos, subtype = osdev.get("name"), _infos(osdev), osdev.get("subtype")
        size = _kibibytes(infos.get("Size", ""))
        if subtype == "CXLMem":
            for key, what in (("CXLRAMSize", "volatile"), ("CXLPMEMSize", "persistent")):
                if capacity := _kibibytes(infos.get(key, "")):
                    self.facts.append(Fact(f"CXL memory of {above.switch or name}, {what}", capacity, "B", osdev.line))
        elif name.startswith("dax"):
            if size:
                self.facts.append(Fact(f"memory set apart as {plain(name)}", size, "B", osdev.line))
        elif self._is(osdev, 0, 1) and subtype in ("", "Disk") and re.fullmatch(r"[\w!./-]{1,40}", name):
            number = re.match(r"nvme(\d{1,4})n", name)
            disk = Device(name, "nvme" if number else "disk", int(number[1]) if number else None,
                          model_of(infos.get("Model"), infos), above.switch, size=size, line=osdev.line,
                          transport=transport_of(name, None))  # fmt: skip
            self._keep(disk, above, osdev)

    def _is(self, osdev: Element, second: int, third: int) -> bool:
        """Whether a device of the operating system is of a type: a number in version 2, bits in version 3."""
        told = osdev.get("osdev_type").lower()
        value = int(told, 0) if re.fullmatch(r"0x[0-9a-f]{1,8}|0|[1-9]\d{0,8}", told) else None
        return value is not None and (bool(value & third) if self.third else value == second)

    def _kind(self, element: Element, under: list[Element]) -> DeviceKind:
        number, id_ = _class(element), _id(element)
        if any(COMPUTE.fullmatch(osdev.get("name")) for osdev in under) or number in ("0302", "0380", "1200"):
            return "gpu"
        if number == "0300":
            if id_.startswith("10de:") or id_.startswith("1002:") and id_ not in BOARD_GRAPHICS:
                return "gpu"
            self.unknown.append(f"line {element.line}: whether the display adapter {element.get('pci_busid')[:20]} "
                                f"({id_}) computes: no CUDA, ROCm or OpenCL name, not taken for a GPU")  # fmt: skip
            return "other"
        if element.get("subtype") == "NVSwitch" or number == "0680" and id_.startswith("10de:"):
            return "nvswitch"
        if number.startswith("02") or any(self._is(osdev, 2, 16) or self._is(osdev, 3, 32) for osdev in under):
            return "nic"
        if number == "0108" or any(re.match(r"nvme\d", osdev.get("name")) for osdev in under):
            return "nvme"
        return "other"

    def _add(self, element: Element, kind: DeviceKind, above: _Above) -> str:
        """A PCIe device or switch with its link. Gives its name."""
        name = element.get("pci_busid").lower()
        if not re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", name):
            raise ReadingError(f"line {element.line}: a {element.get('type')} needs a pci_busid such as 0000:17:00.0, "
                               f"not {name[:40]!r}.")  # fmt: skip
        own = _rate(element)
        rates = [rate for rate in (own, above.port) if rate]
        if own and above.port and own != above.port:
            self.odd.append(f"line {element.line}: {name} tells {own / 1e9:g} GB/s, the port above it "
                            f"{above.port / 1e9:g}: the lower is taken")  # fmt: skip
        rate = min(rates, default=None)
        if kind == "gpu" and rate in FIRST_GENERATION:
            self.facts.append(Fact(f"host link of gpu {name} at the dump, one way", rate, "B/s", element.line))
            self.unknown.append(
                f"line {element.line}: the full rate of {name}'s link: {rate / 1e9:g} GB/s is PCIe 1 "
                f"x{FIRST_GENERATION[rate]}, as an idle GPU shows. Run lstopo while it works"
            )
            rate = None
        model = plain(_infos(element).get("PCIDevice", "")) or (f"PCI id {_id(element)}" if _id(element) else "")
        port = PciePort(rate=rate) if rate else None
        self._keep(Device(name, kind, None, model, above.switch, port=port, line=element.line), above, element)
        return name

    def _keep(self, device: Device, above: _Above, element: Element) -> None:
        if device.name in self.devices:
            raise ReadingError(f"line {device.line}: {device.name} stands twice, first at line "
                               f"{self.devices[device.name].line}. Give one machine in a file.")  # fmt: skip
        self.devices[device.name] = device
        self.places[device.name] = above.places
        if (gp := whole_number(element.get("gp_index"))) is not None:
            self.ends.devices[gp] = device.name

    def _gpu(self, device: Device, under: list[Element]) -> Device:
        """A GPU with what its names say: number, model, memory."""
        numbers: dict[str, set[int]] = {}
        infos: dict[str, str] = {}
        for osdev in under:
            if (found := COMPUTE.fullmatch(osdev.get("name"))) and found[1]:
                numbers.setdefault(found[1], set()).add(int(found[2]))
            for name, value in _infos(osdev).items():
                infos.setdefault(name, value)
        told = [numbers[name] for name in ("nvml", "rsmi", "cuda", "ze") if name in numbers]
        if any(one != told[0] for one in told):
            self.odd.append(f"line {device.line}: {device.name} has several numbers: "
                            + ", ".join(f"{name}{min(of)}" for name, of in numbers.items()))  # fmt: skip
        sizes = [size for name in GPU_SIZES if (size := _kibibytes(infos.get(name, "")))]
        return replace(device, index=min(told[0]) if told else None, model=plain(infos.get("GPUModel", ""))
                       or device.model, size=sizes[0] if sizes else None)  # fmt: skip

    def settle(self) -> None:
        """Threads of nodes that share their processors, and the NUMA node of every device."""
        owners: dict[str, int] = {}
        shared = []
        for node in sorted(self.numas.values(), key=lambda node: (node.kind != "dram", node.number)):
            if node.threads and owners.setdefault(self.cpusets[node.number], node.number) != node.number:
                self.numas[node.number] = replace(node, threads=0)
                shared.append(str(node.number))
        if shared:
            self.assumed.append(
                "NUMA nodes near the processors of another node have none of their own: " + ", ".join(shared)
            )
        for node in self.numas.values():
            if node.threads == 0 and not self.subtypes[node.number]:
                self.unknown.append(
                    f"line {node.line}: what memory NUMA node {node.number} is, it has no processors of its own and no "
                    "subtype: taken for DRAM"
                )
        self.ends.numas_in = self.numas_in
        near = {places: self._near(places) for places in set(self.places.values())}
        self.devices = {
            name: replace(device, numa=near[self.places[name]]) for name, device in self.devices.items()
        }

    def _near(self, places: tuple[int, ...]) -> int | None:
        """The one NUMA node with processors in the innermost place that has any."""
        for place in reversed(places):
            inside = self.numas_in.get(place, [])
            with_threads = [number for number in inside if self.numas[number].threads]
            if inside:
                return with_threads[0] if len(with_threads) == 1 else inside[0] if len(inside) == 1 else None
        return None

    def infos(self, topology: Element) -> None:
        """The machine's model, where the maker tells it (at the machine, in version 3 at the root)."""
        for element in (topology, *topology.all("object")):
            told = _infos(element)
            model = plain(told.get("DMIProductName", "") or told.get("PlatformModel", ""))
            if model:
                self.facts.append(Fact("model of the machine", model, "", element.line))

    def say_unknown(self) -> None:
        """What the whole file leaves open."""
        devices = list(self.devices.values())
        gpus = [device for device in devices if device.kind == "gpu"]
        if any(device.port for device in devices):
            self.assumed.append("PCIe rates are those at the moment of the dump, GB/s of 10^9 B/s after encoding")
        if any(device.size for device in devices):
            self.assumed.append("sizes of GPUs and drives count KiB")
        if not devices:
            self.unknown.append("PCIe devices: the file has none. lstopo --filter io:all --of xml FILE writes them")
        elif not self.bridges:
            self.unknown.append("PCIe switches: the file has no bridges. lstopo --filter io:all writes them")
        if speedless := [device.name for device in devices if device.kind in ("gpu", "pcie_switch", "nvme", "nic")
                         and device.port is None]:  # fmt: skip
            self.unknown.append(f"the rate of the PCIe link of {listed(speedless)}")
        if sizeless := [device.name for device in gpus if device.size is None]:
            self.unknown.append(f"the memory of GPUs: {listed(sizeless)}")
        if len(self.numas) > 1 and (nowhere := [device.name for device in gpus if device.numa is None]):
            self.unknown.append(f"the NUMA node of GPUs: {listed(nowhere)}")
        if apart := [fact.what for fact in self.facts if fact.what.startswith(("CXL memory", "memory set apart"))]:
            self.unknown.append(f"which NUMA node has it, so it is in no memory here: {listed(apart)}")
        if numberless := [device.name for device in gpus if device.index is None]:
            self.unknown.append(f"the numbers of GPUs, lstopo ran without NVML, CUDA and ROCm: {listed(numberless)}")


def plain(text: str) -> str:
    """A name of a product in printable characters, at most 80."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:80]


def _infos(element: Element) -> dict[str, str]:
    return {info.get("name"): info.get("value") for info in element.all("info")}


def _kibibytes(text: str) -> int | None:
    """Bytes of a size in KiB ("16671616", in version 3 also "16671616KiB"); None for none."""
    found = re.fullmatch(r"(\d{1,15}) ?(?:KiB|kB)?", text, re.ASCII)
    return int(found[1]) * 1024 or None if found else None


def _class(element: Element) -> str:
    found = re.match(r"[0-9a-f]{4}", element.get("pci_type").lower())
    return found[0] if found else ""


def _id(element: Element) -> str:
    found = re.search(r"\[([0-9a-f]{4}:[0-9a-f]{4})\]", element.get("pci_type").lower())
    return found[1] if found and found[1] != "0000:0000" else ""


def _rate(element: Element) -> float | None:
    """A link's rate [B/s] of pci_link_speed, GB/s; None where it is 0 or absent."""
    told = element.get("pci_link_speed")
    return float(round(float(told) * 1e9)) or None if re.fullmatch(r"\d{1,4}(?:\.\d{1,9})?", told, re.ASCII) else None
