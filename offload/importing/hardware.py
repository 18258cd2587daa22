"""Whether rates were measured on the hardware that they are put onto: the models, boards and number of GPUs.

Outputs of rates name the GPUs that they ran on; a topology says its own in its title, or by the parts that it uses.
Only what both say is compared: a topology that names no model takes any rates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from offload.documents.parts_library import part, shipped_parts
from offload.errors import one_line
from offload.importing.ends import Ends
from offload.importing.notes import Notes, where
from offload.readers.tools.finding import Finding, Machine
from offload.readers.tools.pci_ids import model_of
from offload.topology import Memory, Topology
from offload.units import format_bytes_both, parse_bytes, parse_rate

# Models of GPUs in words, as titles and tools have them. A suffix tells another product: V100S, RTX 4070 Ti, MI300A.
FAMILY = re.compile(
    r"""\b(?:MI\d{2,3}[XA]?|G[BH]\d{2,3}|[HB]\d{3}|H20|[AHV]\d{3}S?|A(?:2|10G?|16|30|40)|L(?:2|4|20|40S?)
    |P(?:4|40|100)|K(?:20|40|80)m?|M(?:4|40|60)|T4|TITAN\s\w+|GTX\s\d{3,4}(?:\sTi)?
    |RTX\s(?:PRO\s)?A?\d{4}(?:\s(?:Ti|TI|SUPER|Super|D|Ada))*|RX\s(?:Vega|\d{4}(?:\s(?:XTX|XT|GRE))?)|Vega|Radeon\sVII
    |M\d\s(?:Ultra|Max|Pro)|Strix\sHalo|Ryzen\sAI\sMax)(?!\w)""",
    re.VERBOSE,
)
SOLD_AS = re.compile(r"(\d+)\s*GB\b", re.IGNORECASE)
UNIFIED = re.compile(r"\bG[BH]\d{2,3}\b", re.IGNORECASE)  # the GB in their names are those of the CPU's memory
TOLD = "; as told by"  # what an import writes behind a GPU's model
NEAR = 0.06  # a driver shows up to so much less than what a GPU is sold as
MODEL = re.compile(r"model of gpu(\d+)$|model of the GPUs$|device of BabelStream$")


def families(text: str) -> frozenset[str]:
    """The models of GPUs that a text names: {"h100"} for "DGX H100, 8 x H100 SXM 80 GB"."""
    return frozenset(re.sub(r"\s|(?<=\d)m$", "", found[0].lower()) for found in FAMILY.finditer(text))


def _words(text: str) -> str:
    """The models in a text as it has them: "RTX 4090"."""
    return ", ".join(dict.fromkeys(found[0] for found in FAMILY.finditer(text))) or text


def board(text: str) -> str:
    """How a GPU is mounted, "sxm", "pcie" or "nvl"; "" where its name does not say."""
    for name, sign in (("sxm", r"\bSXM\d?\b|\b[HA]\d{3}\b.*\bHBM3\b"), ("nvl", r"\bNVL\b"),
                       ("pcie", r"\b[HAV]\d{3}S?[ -](?:\d+ ?GB[ -])?PCIe\b")):  # fmt: skip
        if re.search(sign, text, re.IGNORECASE):
            return name
    return ""


def other_model(model: str, topology: Topology) -> str | None:
    """Why a GPU's model is none of a topology's, in words; None where it is one, or nothing says what that has."""
    said = topology.title or topology.name
    memories = [topology.memories[name] for name in Ends(topology).gpus]
    has = families(said) or families(topology.name)
    if not has:
        said = ", ".join(dict.fromkeys(name for one in memories for name in _named(one)))
        has = families(said)
    tells = families(model)
    if not has or not tells:
        return None
    if not tells & has:
        return f"{one_line(model, 60)}, and {topology.title or topology.name} has {_words(said)}"
    mounted, here = board(model), board(said)
    if mounted and here and mounted != here:
        return f"{one_line(model, 60)}, and {topology.title or topology.name} has the {here.upper()} board"
    sizes = [int(size) for size in SOLD_AS.findall(model)] if not UNIFIED.search(model) else []
    known = [one.capacity for one in memories if one.capacity is not None]
    if sizes and known and not any(
        abs(holds / (size * unit) - 1) < NEAR for size in sizes for holds in known for unit in (10**9, 2**30)
    ):
        holds = format_bytes_both(known[0])
        return f"{one_line(model, 60)}, and a GPU of {topology.title or topology.name} has {holds}"
    return None


def _named(memory: Memory) -> list[str]:
    """The models that a GPU's memory can be of: as an import wrote it, else the shipped parts that are like it."""
    model, told, _ = memory.source.partition(TOLD)
    if told:
        return [model]
    peak = memory.rate.peak if memory.rate is not None else None
    found = []
    for name in shipped_parts("memories"):
        keys = part("memories", name) or {}
        capacity, rate = keys.get("capacity"), keys.get("rate")
        if not isinstance(capacity, str) or not isinstance(rate, dict) or peak is None:
            continue
        if parse_bytes(capacity) == memory.capacity and parse_rate(str(rate.get("peak"))) == peak:
            found.append(re.sub(r"-(?=\d)", " ", name).replace("-", " ").upper())
    return found


def of_this_hardware(topology: Topology, findings: Sequence[Finding], notes: Notes) -> list[Finding]:
    """The findings, without the rates and latencies of those that were measured on other GPUs; these are told."""
    return [_kept(finding, topology, notes) for finding in findings]


def _kept(finding: Finding, topology: Topology, notes: Notes) -> Finding:
    if not finding.rates and not finding.delays:
        return finding
    named: dict[int, int] = {}
    for fact in finding.facts:
        match = MODEL.match(fact.what)
        if match is None or not isinstance(fact.value, str):
            continue
        if match[1]:
            named[int(match[1])] = fact.line
        why = other_model(model_of(fact.value) or fact.value, topology)
        if why is not None:
            notes.contradict(f"{where(finding, fact.line)}: measured on {why}: no rate of {finding.tool} is written. "
                             "Name the server that it ran on with --onto")  # fmt: skip
            return replace(finding, rates=(), delays=())
    count = len(Ends(topology).gpus)
    if len(named) > count:
        line = named[max(named)]
        has = f"{topology.title or topology.name} has {count}"
        notes.contradict(f"{where(finding, line)}: measured on {len(named)} GPUs, and {has}: no rate of {finding.tool} "
                         "is written")  # fmt: skip
        return replace(finding, rates=(), delays=())
    if 0 < len(named) < count:
        notes.assume(f"{where(finding, named[min(named)])}: the {_gpus(len(named))} that it names are gpu"
                     f"{', gpu'.join(map(str, sorted(named)))} of the {count} here")  # fmt: skip
    return finding


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def with_models(shaped: Sequence[Finding], findings: Sequence[Finding], notes: Notes) -> list[Finding]:
    """The shapes, whose GPUs have the model that an output of rates tells where no shape tells any.

    Only one model of all GPUs, told of as many as each shape has, is taken: tools number GPUs in different orders.
    """
    machines = [cast(Machine, finding.machine) for finding in shaped]
    gpus = [machine.of_kind("gpu") for machine in machines]
    if any(one.model for some in gpus for one in some):
        return list(shaped)
    told: dict[int, str] = {}
    lines: dict[str, str] = {}
    for finding in findings:
        for fact in finding.facts:
            match = MODEL.match(fact.what)
            if match is not None and match[1] and isinstance(fact.value, str):
                told.setdefault(int(match[1]), fact.value)
                lines.setdefault(fact.value, where(finding, fact.line))
    counts = {len(some) for some in gpus if some}
    if len(lines) != 1 or counts != {len(told)}:
        return list(shaped)
    model, place = next(iter(lines.items()))
    notes.assume(f"{place}: the {_gpus(len(told))} here are those that it names: {one_line(model, 60)}")
    found = []
    for finding, machine in zip(shaped, machines, strict=True):
        devices = tuple(replace(one, model=model) if one.kind == "gpu" else one for one in machine.devices)
        found.append(replace(finding, machine=replace(machine, devices=devices)))
    return found
