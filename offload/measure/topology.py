"""The topology of what was found and measured: an import of the machine's own words, with the measured rates on it.

Peaks are those of encodings and of the system's description; what was measured is sustained, with its ends over the
repeats. A processor reads its memory at the rate of the matrix-vector read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload import __version__
from offload.documents.topology_text import topology_text
from offload.importing import Imported, import_outputs
from offload.measure.figures import Collected, Figure
from offload.measure.machine import Here
from offload.readers.tools.finding import Fact
from offload.readers.tools.fit import NoFit, fit_sizes
from offload.readers.tools.own_measurement import finding_of
from offload.topology import Interval, Processor, Rate, Topology
from offload.topology.shares import DRIVES
from offload.units import many

WIDENED = ("bf16", "fp16")  # formats that a processor computes in fp32 where nothing that was measured computes in them


@dataclass(frozen=True, slots=True)
class Told:
    """The topology, its file's text, and what the import has to tell of it."""

    topology: Topology
    text: str
    derived: tuple[Fact, ...]
    assumed: tuple[str, ...]
    contradicts: tuple[str, ...]
    unknown: tuple[str, ...]
    not_used: tuple[str, ...]


def topology_of(
    here: Here, data: Mapping[str, Any], peaks: Mapping[int, tuple[float, str]], collected: Collected
) -> Told:
    """The topology of this machine. data : the measurement as plain data; peaks : of each node's memory, by its number,
    with its source. Raises OffloadError where the shape cannot be a topology.
    """
    shape = import_outputs(here.findings, name="my-machine")
    start = _described(shape.topology, here, peaks, str(data["date"]))
    figures = collected.figures
    drives = [name for name, one in start.memories.items() if one.kind in DRIVES]
    if len(drives) != len(here.drives) and any(one.about == "drive" and one.rate for one in figures):
        collected.left_out("rates of drives as parts of the topology", f"lstopo tells {len(drives)} drives and /sys "
                           f"{len(here.drives)}: which is which is not certain")  # fmt: skip
        figures = [replace(one, rate=False) if one.about == "drive" else one for one in figures]
        data = {**data, "figures": [one.to_json() for one in figures]}
    measured: Imported | None = None
    if figures:
        measured = import_outputs([replace(finding_of(data), odd=())], onto=start)
    topology = _with_processors(measured.topology if measured else start, figures, str(data["date"]))
    head = [
        f"Written by offload {__version__}, measured on this machine on {data['date']} ({data['mode']}).",
        "Sustained rates are medians, with the least and the most of the repeats; peaks are from encodings and from",
        "the system's description, never measured.",
        *(f"Doubtful: {one}" for one in data["warnings"]),
    ]
    facts, refused = _fits_of_passing(figures)
    told = [shape] if measured is None else [shape, measured]
    return Told(
        topology, topology_text(topology, head), (*(measured.derived if measured else ()), *facts),
        (*(text for one in told for text in one.assumed), *_widened(topology)),
        tuple(text for one in told for text in one.contradicts),
        tuple(one for one in (measured or shape).unknown if not _answered(one, topology)),
        (*(measured.not_used if measured else ()), *refused),
    )  # fmt: skip


def _fits_of_passing(figures: Sequence[Figure]) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
    """Latency, rate and n_half of copies between processes over their sizes; and why others give none.

    Copies within memory are left out: their rate against size tells of caches.
    """
    families: dict[str, list[Figure]] = {}
    for one in figures:
        if one.source == "process" and one.size is not None:
            families.setdefault(one.note, []).append(one)
    facts, refused = [], []
    for note, members in families.items():
        said = f"copies from process to process {note}"
        fit = fit_sizes([(one.size or 0, one.value) for one in members])
        if isinstance(fit, NoFit):
            refused.append(f"{said}: no latency is fitted: {fit.why}")
            continue
        how = f"fitted over size, {fit.points} figures within {fit.residual:.1%}"
        facts += [Fact(f"latency of {said}, {how}", fit.latency, "s"), Fact(f"rate of {said}, {how}", fit.rate, "B/s"),
                  Fact(f"n_half of {said}, {how}", fit.half, "B")]  # fmt: skip
    return tuple(facts), tuple(refused)


def _widened(topology: Topology) -> list[str]:
    return [f"{name}: {kind} is widened to fp32 and computed at its rate" for name, one in topology.processors.items()
            for kind in WIDENED if kind in one.flops and f"{kind} is widened" in one.flops[kind].source]  # fmt: skip


def _answered(text: str, topology: Topology) -> bool:
    """Whether what the import left open is known since: what processors compute."""
    return "flops unknown" in text and all(one.flops for one in topology.processors.values())


def _described(topology: Topology, here: Here, peaks: Mapping[int, tuple[float, str]], date: str) -> Topology:
    """The machine's shape with its title, the caches in front of host memory, and the peaks that are known."""
    memories = dict(topology.memories)
    users = [one.memory for one in topology.processors.values() if one.kind == "cpu"]
    for name, memory in memories.items():
        if memory.kind != "dram" or not name.startswith("dram"):
            continue
        number = int(name.removeprefix("dram"))
        if here.caches and name in users:
            cache = -(-here.caches // len(users))
            memory = replace(memory, cache=cache, source=f"{memory.source}; cache: levels 2 and 3 as told by /sys")
        if number in peaks:
            peak, source = peaks[number]
            memory = replace(memory, rate=Rate(peak=peak, source=source))
        memories[name] = memory
    gpus = topology.title.rpartition(": ")[2]
    title = f"This machine: {here.cpu or 'a processor of no told model'}, {gpus}, measured {date}"
    return _rebuilt(topology, memories=memories, title=title)


def _with_processors(topology: Topology, figures: Sequence[Figure], date: str) -> Topology:
    """The topology with what processors compute and read: the best condition of each, with its ends. They compute as
    matrix products do, where such were measured: arithmetic alone, which waits for no operands, is faster.
    """
    processors = dict(topology.processors)
    own = {name: one for name, one in processors.items() if one.kind == "cpu"}
    formats: dict[str, Figure] = {}
    for one in figures:
        best = formats.get(one.format)
        if one.unit == "FLOP/s" and (best is None or (best.rate, best.value) < (one.rate, one.value)):
            formats[one.format] = one
    for name, processor in own.items():
        number = name.removeprefix("cpu")
        place = f"numa{number}"
        at_home = [one for one in figures if one.access == "gemv" and one.source == one.destination == place]
        reads = max(at_home, key=lambda one: one.value, default=None)
        if reads is not None:
            source = f"measured: offload measure of {date}, {reads.note}, {many(reads.threads or 1, 'thread')}"
            processor = replace(processor, reads=Rate(sustained={"": _ends(reads, 1)}, source=source))
        share = 1 / len(own)
        flops = dict(processor.flops)
        for kind, one in formats.items():
            part = "" if len(own) == 1 else f", shared evenly by {len(own)}"
            source = f"measured: offload measure of {date}, {one.note}{part}"
            flops[kind] = Rate(sustained={"": _ends(one, share)}, source=source)
        for kind in WIDENED:
            if kind not in flops and "fp32" in flops:
                known = flops["fp32"]
                flops[kind] = replace(known, source=f"{known.source}; {kind} is widened to fp32 (assumed)")
        processors[name] = _known(replace(processor, flops=flops))
    return _rebuilt(topology, processors=processors)


def _ends(figure: Figure, share: float) -> Interval:
    return Interval(figure.low, figure.value, figure.high).scaled(share)


def _known(processor: Processor) -> Processor:
    """Without the words that nothing is told of it, where something is."""
    return replace(processor, source="measured rates") if processor.flops or processor.reads else processor


def _rebuilt(one: Topology, **changed: Any) -> Topology:
    memories, processors = changed.get("memories", one.memories), changed.get("processors", one.processors)
    return Topology.build(
        name=one.name, title=changed.get("title", one.title), memories=memories.values(),
        processors=processors.values(), switches=one.switches.values(), links=one.links.values(),
        limits=one.limits.values(), source=one.source, assumptions=one.stated, price=one.price, power=one.power,
    )  # fmt: skip
