"""NCCL's and RCCL's topology XML (NCCL_TOPO_DUMP_FILE, or the static file of a cloud): PCIe tree, NUMA nodes, joints.

A <cpu> is a NUMA node, a <pci> of class 0604 a switch; links carry generation and lanes, network ports Mbit/s.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace

from offload.errors import ReadingError
from offload.readers.tools.finding import Device, DeviceKind, Fact, Finding, Joint, Machine, Numa, PciePort
from offload.readers.tools.text import Text
from offload.readers.tools.xml_text import Element, bits_of, documents, holds, listed, one_document, whole_number
from offload.units.encodings import PCIE_GIGATRANSFERS

LOOKS_LIKE = "NCCL or RCCL topology XML"
GENERATION = {float(rate): generation for generation, rate in PCIE_GIGATRANSFERS.items()}
LANES = (1, 2, 4, 8, 12, 16, 32)
SPEED = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?GT/s(?: PCIe)?")
KINDS: tuple[tuple[str, DeviceKind], ...] = (
    ("0302", "gpu"), ("0300", "gpu"), ("0380", "gpu"), ("1200", "gpu"), ("0604", "pcie_switch"), ("0680", "nvswitch"),
    ("0108", "nvme"), ("02", "nic"),
)  # fmt: skip
TO_NVSWITCH, TO_PROCESSOR = "068000", "068001"  # classes of a link's other end


def is_it(text: Text) -> bool:
    """Whether a <system> with <cpu> elements stands in the text."""
    return holds(text, "system", "cpu")


def read(text: Text) -> Finding:
    """A machine's shape: NUMA nodes, the PCIe tree with generations and lanes, GPUs, network devices, joints.

    Raises ReadingError for broken XML, a device without a bus id or with one that stands twice, and for several
    machines.
    """
    system, twice = one_document(documents(text, "system"))
    reading = _Reading()
    reading.assumed += [twice] if twice else []
    for cpu in _first_host(system, reading):
        reading.cpu(cpu)
    if not reading.devices and not reading.numas:
        raise ReadingError(f"line {system.line}: the <system> has no <cpu> with a number and no <pci>. Give a full dump"
                           " (NCCL_TOPO_DUMP_FILE).")  # fmt: skip
    reading.join()
    reading.say_unknown()
    amd = any(element.name == "xgmi" or "gcn" in element.attributes for element in system.whole())
    amd = amd or system.get("version") == "2"
    return Finding(
        f"{'RCCL' if amd else 'NCCL'} topology XML",
        Machine(tuple(reading.numas.values()), tuple(reading.devices.values()), tuple(reading.joints)),
        facts=tuple(reading.facts),
        assumed=tuple(reading.assumed),
        unknown=tuple(reading.unknown),
        odd=tuple(reading.odd),
    )


def _first_host(system: Element, reading: _Reading) -> list[Element]:
    """The <cpu> elements of the first host; the others are told."""
    cpus = list(system.all("cpu"))
    hosts = list(dict.fromkeys(cpu.get("host_hash") for cpu in cpus))
    if len(hosts) > 1:
        line = next(cpu.line for cpu in cpus if cpu.get("host_hash") == hosts[1])
        reading.assumed.append(f"the file holds {len(hosts)} hosts; the first is read, those from line {line} on are "
                               "not")  # fmt: skip
    return [cpu for cpu in cpus if cpu.get("host_hash") == hosts[0]] if hosts else []


@dataclass
class _Reading:
    """What has been read so far. links : a link's element, the GPU it starts from and that GPU's NUMA node."""

    numas: dict[int, Numa] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    joints: list[Joint] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    links: list[tuple[Element, str, int | None]] = field(default_factory=list)
    classless: list[str] = field(default_factory=list)
    speedless: list[str] = field(default_factory=list)

    def cpu(self, cpu: Element) -> None:
        """A NUMA node and all that hangs at it."""
        number = whole_number(cpu.get("numaid"), 10**5)
        if number is None:
            self.unknown.append(f"line {cpu.line}: the NUMA node's number (numaid {cpu.get('numaid') or 'absent'})")
        elif number in self.numas:
            raise ReadingError(f"line {cpu.line}: NUMA node {number} stands twice. Give one machine in a file.")
        else:
            self.numas[number] = Numa(number, threads=bits_of(cpu.get("affinity")) or None, line=cpu.line)
        vendor, family, model = cpu.get("vendor"), cpu.get("familyid"), cpu.get("modelid")
        if vendor and whole_number(family) is not None and whole_number(model) is not None:
            of = f"NUMA node {number}" if number is not None else "a NUMA node of no number"
            self.facts.append(Fact(f"processor of {of}", f"{vendor} family {family} model {model}", "", cpu.line))
        stack: list[tuple[Element, str | None]] = [(child, None) for child in reversed(cpu.children)]
        while stack:
            element, parent = stack.pop()
            if element.name == "pci":
                below = self.pci(element, parent, number)
                stack += [(child, below) for child in reversed(element.children)]
            elif element.name == "nic":
                self.nets(element, parent, number)

    def pci(self, element: Element, parent: str | None, numa: int | None) -> str:
        """A PCIe device, with its GPU where it has one. Gives its name."""
        name = element.get("busid").lower()
        if not re.fullmatch(r"[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", name):
            raise ReadingError(f"line {element.line}: a <pci> needs a busid such as 0000:17:00.0, not {name[:40]!r}.")
        if name in self.devices:
            raise ReadingError(f"line {element.line}: busid {name} stands twice, first at line "
                               f"{self.devices[name].line}. Give one machine in a file.")  # fmt: skip
        gpus = list(element.all("gpu"))
        device = Device(name, self._kind(element, bool(gpus), name), None, _model(element), parent, numa,
                        port=self._port(element, name), line=element.line)  # fmt: skip
        for gpu in gpus:
            device = replace(device, index=whole_number(gpu.get("dev"), 10**5))
            if whole_number(gpu.get("sm")):
                self.facts.append(Fact(f"sm of gpu {name}", int(gpu.get("sm")), "", gpu.line))
            if re.fullmatch(r"\w{1,12}", gpu.get("gcn")):
                self.facts.append(Fact(f"gcn of gpu {name}", gpu.get("gcn"), "", gpu.line))
        if len(gpus) > 1:
            self.odd.append(f"line {element.line}: {name} has {len(gpus)} <gpu> elements (parts of one GPU, or several "
                            "ranks on it): it is one device here")  # fmt: skip
        links = [link for gpu in gpus for link in gpu.children if link.name in ("nvlink", "xgmi", "c2c")]
        if len(gpus) > 1:  # each tells the same links
            told: dict[tuple[object, ...], Element] = {}
            for link in links:
                told.setdefault((link.name, *sorted(link.attributes.items())), link)
            links = list(told.values())
        self.links += [(link, name, numa) for link in links]
        self.devices[name] = device
        return name

    def _kind(self, element: Element, has_gpu: bool, name: str) -> DeviceKind:
        if has_gpu:
            return "gpu"
        digits = element.get("class").lower().removeprefix("0x")
        if not digits:
            if any(child.name == "nic" for child in element.children):
                return "nic"
            self.classless.append(name)
            return "other"
        return next((kind for start, kind in KINDS if digits.startswith(start)), "other")

    def _port(self, element: Element, name: str) -> PciePort | None:
        speed, width = element.get("link_speed"), element.get("link_width")
        told = SPEED.fullmatch(speed)
        generation = GENERATION.get(float(told[1])) if told else None
        lanes = whole_number(width)
        if speed and generation is None and not speed.lower().startswith("unknown"):
            self.odd.append(f"line {element.line}: link_speed {speed[:40]!r} of {name} is no PCIe speed")
        if lanes and lanes not in LANES or width and lanes is None:
            self.odd.append(f"line {element.line}: link_width {width[:40]!r} of {name} is no number of lanes")
        lanes = lanes if lanes in LANES else None
        if generation is None or lanes is None:
            self.speedless.append(name)
        return PciePort(generation, lanes) if generation or lanes else None

    def nets(self, nic: Element, parent: str | None, numa: int | None) -> None:
        """A NIC's network ports: the rate of each, and the NIC's number."""
        for net in nic.all("net"):
            name, index = parent, whole_number(net.get("dev"), 10**5)
            if name is None:
                name = re.sub(r"[^\w.-]", "", net.get("name"))[:40] or f"nic at line {net.line}"
                if name in self.devices:
                    self.odd.append(f"line {net.line}: network device {name} stands twice; the first is kept")
                    continue
                self.devices[name] = Device(name, "nic", index, numa=numa, line=net.line)
            elif self.devices[name].kind != "gpu" and self.devices[name].index is None:
                self.devices[name] = replace(self.devices[name], kind="nic", index=index)
            speed = whole_number(net.get("speed"))
            if speed:
                port = f", port {net.get('port')}" if whole_number(net.get("port")) else ""
                self.facts.append(Fact(f"network rate of nic {name}{port}, one way", speed * 10**6 / 8, "B/s",
                                       net.line))  # fmt: skip
            else:
                self.unknown.append(f"line {net.line}: the network rate of {name} (speed {net.get('speed')[:20]!r})")

    def join(self) -> None:
        """The links under the GPUs as joints, one for each two ends."""
        ways: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
        for link, gpu, numa in self.links:
            end, count = self._end(link, gpu, numa), whole_number(link.get("count"), 10**4)
            if end is None:
                continue
            if not count:
                self.odd.append(f"line {link.line}: {link.name} of {gpu}: count {link.get('count')[:20]!r} is no number"
                                " of links")  # fmt: skip
                continue
            if link.name == "c2c":
                self._c2c(link, gpu, end, count)
                continue
            first, second = sorted((gpu, end), key=self._place)
            told = ways.setdefault((first, second, link.name), {})
            told[gpu] = (told[gpu][0] + count if gpu in told else count, link.line)
        for (first, second, technology), told in ways.items():
            counts = {count for count, _ in told.values()}
            line = min(line for _, line in told.values())
            if len(counts) > 1:
                self.odd.append(f"line {line}: {technology} {first} - {second}: the two ends tell "
                                f"{' and '.join(map(str, sorted(counts)))} links")  # fmt: skip
            elif len(told) == 1 and second in self.devices:
                self.odd.append(f"line {line}: {technology} {first} - {second} is told at one end alone")
            self.joints.append(Joint(first, second, technology, counts.pop() if len(counts) == 1 else None, None, line))

        self.joints.sort(key=lambda joint: joint.line)

    def _place(self, name: str) -> int:
        return self.devices[name].line if name in self.devices else sys.maxsize

    def _end(self, link: Element, gpu: str, numa: int | None) -> str | None:
        """The other end of a link; None, told, where it is none."""
        target, kind = link.get("target").lower(), link.get("tclass").lower().removeprefix("0x")
        if link.name == "c2c" or kind == TO_PROCESSOR:
            if numa is None:
                self.unknown.append(f"line {link.line}: the NUMA node to which {gpu}'s {link.name} leads")
            return None if numa is None else f"numa{numa}"
        if kind == TO_NVSWITCH:
            return "nvswitch"
        if target == gpu:
            self.odd.append(f"line {link.line}: {link.name} of {gpu} leads to itself (count {link.get('count')[:9]}): "
                            "the other GPU is hidden, so no joint is made")  # fmt: skip
        elif target not in self.devices:
            self.odd.append(f"line {link.line}: {link.name} of {gpu} leads to {target[:40]!r}, which the file lacks")
        else:
            return target
        return None

    def _c2c(self, link: Element, gpu: str, end: str, count: int) -> None:
        each = whole_number(link.get("bw"))
        rate = each * count * 1e6 if each else None
        if rate:
            self._once("bw of <c2c> counts MB/s of one link one way, as NCCL multiplies it by count")
        else:
            self.unknown.append(f"line {link.line}: the rate of {gpu}'s c2c (bw {link.get('bw')[:20]!r})")
        self.joints.append(Joint(gpu, end, "c2c", count, rate, link.line))

    def _once(self, remark: str) -> None:
        if remark not in self.assumed:
            self.assumed.append(remark)

    def say_unknown(self) -> None:
        """What the whole file leaves open or invents."""
        if invented := [name for name in self.devices if re.match(r"f{4,8}:", name)]:
            self.assumed.append(f"bus ids of invented devices stand for switches at no known place: {listed(invented)}")
        if self.classless:
            self.unknown.append(f"what these devices are, no class is given: {listed(self.classless)}")
        if self.speedless:
            self.unknown.append(f"the PCIe generation or lanes of {listed(self.speedless)}")
        gpus = [device for device in self.devices.values() if device.kind == "gpu"]
        if not any(device.index is not None for device in gpus):
            self.unknown.append("GPUs' numbers, NVLink and network rates: a file without <gpu> elements, to which NCCL "
                                "adds them as it runs. A dump (NCCL_TOPO_DUMP_FILE) has them")  # fmt: skip
        if any(joint.technology == "nvlink" for joint in self.joints):
            self.unknown.append("the rate of an NVLink: the count of links needs the GPU's model")
        if any(joint.technology == "xgmi" for joint in self.joints):
            self.unknown.append("the rate of an xGMI link: the count of links needs the GPU's model")
        self.unknown.append("memory sizes")


def _model(element: Element) -> str:
    """The PCI numbers of vendor and device, where they are real ones."""
    vendor, device = (element.get(name).lower().removeprefix("0x") for name in ("vendor", "device"))
    real = all(re.fullmatch("[0-9a-f]{4}", number) and number != "ffff" for number in (vendor, device))
    return f"PCI id {vendor}:{device}" if real else ""
