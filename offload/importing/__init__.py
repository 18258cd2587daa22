"""Outputs of tools as a topology: the shape from one, the rates from others, and what had to be assumed.

    imported = import_outputs([finding, ...])                       # a topology of what they tell
    imported = import_outputs(findings, onto=load_topology("dgx-h100"))   # a server, with what was measured on it
    imported.topology, imported.text, imported.to_json()

Unknown stays unknown: a rate that no tool measured and no link's encoding gives is written "unknown". Nothing
personal goes into the topology: neither file names nor names of hosts or devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from offload import __version__
from offload.documents import parse_document
from offload.documents.parts_library import part, shipped_parts
from offload.documents.topology_file import read_topology
from offload.documents.topology_text import topology_text
from offload.errors import OffloadError, one_line
from offload.importing.collective_rates import with_collectives
from offload.importing.ends import Ends
from offload.importing.fits import fitted
from offload.importing.hardware import of_this_hardware, other_model, with_models
from offload.importing.machines import NEAR, merge
from offload.importing.named_drives import is_answered, placed
from offload.importing.notes import Notes, Written, where
from offload.importing.rates import with_rates
from offload.importing.relations import check_relations
from offload.importing.shape import Shape
from offload.ranges import fold
from offload.readers.tools.finding import WHICH_DRIVE, Fact, Finding, facts_of
from offload.readers.tools.pci_ids import model_of
from offload.topology import Link, Rate, Topology
from offload.topology.shares import DRIVES
from offload.units import format_bytes_both

__all__ = ["Imported", "Written", "from_of", "import_outputs"]

FORMAT = 1  # of the JSON
# Kind of memory -> how its rates may be written, of drives those of reads and of writes; peak, sustained.
EXAMPLES = {
    "dram": (("4800 MT/s x 2", "70 GB/s"),),
    "cxl": (("32 GB/s", "25 GB/s"),),
    "unified": (("270 GB/s", "210 GB/s"),),
    "hbm": (("1000 GB/s", "900 GB/s"),),
    "nvme": (("7 GB/s", "6.5 GB/s"), ("5 GB/s", "4 GB/s")),
    "disk": (("0.25 GB/s", "0.2 GB/s"), ("0.25 GB/s", "0.2 GB/s")),
}
NO_SHAPE = (
    "none of these outputs tells the machine's shape. Add the output of one that does (lstopo --of xml, nvidia-smi "
    "topo -m, NCCL_TOPO_DUMP_FILE, lspci -vvv), or name the server with --onto: a shipped one or a topology file."
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A topology that was put together, its file's text, and what is to be told about it.

    facts : all that the outputs say, and what is worked out from them; derived : the latter alone (fits, what
    collectives prove); written : what of it went into the topology; the rest in words, a line each.
    """

    topology: Topology
    text: str
    tools: tuple[str, ...]
    facts: tuple[Fact, ...]
    derived: tuple[Fact, ...]
    written: tuple[Written, ...]
    assumed: tuple[str, ...]
    contradicts: tuple[str, ...]
    unknown: tuple[str, ...]
    not_used: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data; `topology` is the text of the file."""
        return {
            "format": FORMAT,
            "offload_version": __version__,
            "tools": list(self.tools),
            "facts": [{"what": one.what, "value": one.value, "unit": one.unit, "from": from_of(one)}
                      for one in self.facts],
            "written": [{"what": one.what, "value": one.value, "from": one.origin} for one in self.written],
            "assumed": list(self.assumed),
            "contradicts": list(self.contradicts),
            "unknown": list(self.unknown),
            "not_used": list(self.not_used),
            "topology": self.text,
        }


def from_of(fact: Fact) -> str:
    """Where a fact stands: "rates.txt:12", "rates.txt:12..40" where several lines say it together."""
    last = f"..{fact.last}" if fact.last > fact.line else ""
    return f"{fact.file}:{fact.line}{last}" if fact.line else fact.file


def import_outputs(findings: Sequence[Finding], onto: Topology | None = None, name: str = "my-box") -> Imported:
    """A topology of what outputs tell; onto : a server whose sustained rates are replaced where they were measured.

    Raises OffloadError where nothing tells a shape and no server is given, TopologyError for one that cannot be.
    """
    notes = Notes()
    for finding in findings:
        said = finding.file or finding.tool
        for text in finding.assumed:
            notes.assume(f"{said}: {text}")
        for text in finding.odd:
            notes.contradict(f"{said}: {text}")
        for text in finding.unknown:
            if not is_answered(text, finding):
                how = f"; DRIVE=FILE, as ssd0={finding.file or 'FILE'}, says it" if text.startswith(WHICH_DRIVE) else ""
                notes.leave_open(f"{said}: {text}{how}")
    tools = tuple(dict.fromkeys(finding.tool for finding in findings))
    shaped = [finding for finding in findings if finding.machine is not None]
    if onto is not None:
        start = onto
        _compare(onto, shaped, notes)
        for finding in shaped:
            check_relations(finding, None, notes)
    else:
        if not shaped:
            raise OffloadError(NO_SHAPE)
        start = _built(with_models(shaped, findings, notes), notes, name)
    own = of_this_hardware(start, [placed(one, start, notes) for one in findings], notes)
    fits, estimates = fitted(own, notes)
    topology = with_rates(start, own, notes, estimates)
    topology, proofs = with_collectives(topology, own, notes)
    notes.close()
    for text in _unknown(topology):
        notes.leave_open(text)
    head = [f"Written by offload {__version__} from the outputs of: {', '.join(tools)}."]
    if onto is not None:
        head.append(f"The shape, and what was not measured, is that of {onto.title}.")
    return Imported(
        topology, topology_text(topology, head), tools,
        (*(fact for one in findings for fact in facts_of(one)), *fits, *proofs), (*fits, *proofs),
        tuple(notes.written), tuple(notes.assumed), tuple(notes.contradicts), tuple(notes.unknown),
        tuple(notes.not_used),
    )  # fmt: skip


def _built(findings: Sequence[Finding], notes: Notes, name: str) -> Topology:
    """The topology of a machine's shape, with no measured rate in it."""
    machine, base, places = merge(findings, notes)
    for finding in findings:
        check_relations(finding, machine, notes)
    source = ", ".join(dict.fromkeys([base.tool, *(one.tool for one in findings)]))
    sections = Shape(machine, f"as told by {source}", places, notes).all()
    gpus = machine.of_kind("gpu")
    models = dict.fromkeys(one_line(one.model) for one in gpus if one.model)
    several = "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    called = f"{len(gpus)} x {', '.join(models)}" if models else several if gpus else "no GPU"
    found = {"title": f"Imported server: {called}"} | {key: value for key, value in sections.items() if value}
    return read_topology(parse_document(yaml.safe_dump(found, sort_keys=False), "imported topology"), name=name)


def _compare(topology: Topology, findings: Sequence[Finding], notes: Notes) -> None:
    """What outputs tell of the shape against the server that they are put onto: it stays as it is."""
    gpus = Ends(topology).gpus
    for finding in findings:
        told = finding.machine.of_kind("gpu") if finding.machine else ()
        if told and len(told) != len(gpus):
            notes.contradict(f"{where(finding, told[0].line)}: {len(told)} GPUs, and {topology.title} has {len(gpus)}")
            continue
        models = {model_of(one.model) or one.model: one.line for one in reversed(told)}
        for model, line in models.items():
            if why := other_model(model, topology):
                notes.contradict(f"{where(finding, line)}: {why}")
        for number, device in enumerate(told):
            has = topology.memories[gpus[number]].capacity
            if device.size and has and abs(device.size / has - 1) > NEAR:
                notes.contradict(f"{where(finding, device.line)}: gpu{number} has {format_bytes_both(device.size)}, "
                                 f"and {gpus[number]} here {format_bytes_both(has)}")  # fmt: skip


def _unknown(topology: Topology) -> list[str]:
    """What a topology leaves open, each with the key that says it."""
    found: dict[str, list[str]] = {}

    def open_(name: str, what: str) -> None:
        found.setdefault(what, []).append(name)

    for memory in topology.memories.values():
        if memory.capacity is None:
            open_(memory.name, "capacity unknown: nothing can be said to fit. Add capacity: 80 GiB")
        stated = [one for one in (memory.rate, memory.read, memory.write) if one is not None]
        for key in ("rate", "read", "write"):
            rate = getattr(memory, key)
            if not stated and key == "rate" or rate is not None and rate.unknown:
                most, typical = _example(memory.kind, key)
                use = _or_a_part("memories", memory.kind)
                said = f"{key}: {{{most}, sustained: {typical}}}"
                open_(memory.name, f"{key} unknown: not counted. Add it, as {said}{use}")
            elif rate is not None and _lacks_peak(rate):
                most, _ = _example(memory.kind, key)
                open_(memory.name, f"{key} has no peak: no floor counts it. Add one to it, as {most}")
    for processor in topology.processors.values():
        if not processor.flops:
            typical = "70 TFLOP/s" if processor.kind == "gpu" else "2 TFLOP/s"
            use = _or_a_part("processors", processor.kind)
            said = f"flops: {{bf16: {typical}}}"
            open_(processor.name, f"flops unknown: arithmetic is not counted. Add them, as {said}{use}")
    sockets = {one.name for one in topology.switches.values() if one.kind == "socket"}

    def between_sockets(link: Link) -> bool:
        return {link.a, link.b} <= sockets

    for link in topology.links.values():
        sides = (link.forward, link.backward)
        if any(one.unknown for one in sides):
            ways = "" if between_sockets(link) else "pcie: 5 x16, nvlink: 4 x18, or "
            open_(link.name, f"rate unknown: not counted. Add it, as {ways}forward: 60 GB/s and backward: 60 GB/s")
        elif any(map(_lacks_peak, sides)):
            ways = "" if between_sockets(link) else "pcie: 5 x16, or "
            open_(link.name, f"a direction has no peak: no floor counts it. Add one to it, as {ways}peak: 60 GB/s")
    return [f"{fold(names)}: {what}" for what, names in found.items()]


def _example(kind: str, key: str) -> tuple[str, str]:
    """A peak and a sustained rate as such a memory may have them: an example of how they are written, nobody's figure.

    A drive's peak is what its maker rates it at, unlike what pins or a bus carry.
    """
    if kind in DRIVES:
        most, typical = EXAMPLES[kind][key == "write"]
        return f"rated: {most}", typical
    most, typical = EXAMPLES[kind][0]
    return f"peak: {most}", typical


def _or_a_part(section: str, kind: str) -> str:
    """How to name a shipped part instead, where there are some of a kind."""
    of_kind = any((part(section, name) or {}).get("kind") == kind for name in shipped_parts(section))
    return ", or use: NAME (offload topology list --parts)" if of_kind else ""


def _lacks_peak(rate: Rate) -> bool:
    return rate.peak is None and rate.rated is None and bool(rate.sustained)
