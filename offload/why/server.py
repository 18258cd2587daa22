"""The server of a run: the one that is named, else one of the shipped parts that the log's GPUs are.

What a log does not tell stays unknown: the links between GPUs and host, and the host's memory. It is then not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from offload.documents import load_topology, parse_document
from offload.documents.topology_file import read_topology
from offload.errors import OffloadError, one_line
from offload.importing.gpus import part_of
from offload.models.architecture import MOST_LAYERS
from offload.ranges import fold
from offload.readers.engines.run import Processor, Run
from offload.topology import Topology
from offload.topology.shares import DRIVES
from offload.units import format_bytes_both, format_rate, many
from offload.why.notes import Notes

HOST = re.compile(r"^(?:cpu|host|ram|dram)|_host$|^cpu_", re.IGNORECASE)  # "CPU", "CPU_Mapped", "CUDA_Host"
DRIVE = re.compile(r"^(?:disk|nvme|ssd|drive)", re.IGNORECASE)
LLAMA = ("llama", "ik_llama", "ollama", "kobold")  # engines that are llama.cpp
SAME_PART = 0.02  # peak rates that differ by more are of two parts
NEAR = 0.1  # a GPU's memory that differs by more is another GPU's
SAY_SERVER = "Say --on SERVER: a shipped one (offload topology list) or a topology file."


@dataclass(frozen=True, slots=True)
class Place:
    """A server, and what the log's devices are on it. text : its file, where it was made from the log; "" else.

    gpus : processors, in the order of the log's GPUs. host, cpu, drive : "" where there is none.
    """

    topology: Topology
    text: str
    devices: tuple[str, ...]
    gpus: tuple[str, ...]
    host: str
    cpu: str
    drive: str

    def memory(self, device: str) -> str:
        """The memory that a device of the log is; "" for none of the server."""
        if device in self.devices:
            return self.topology.memory_of(self.gpus[self.devices.index(device)])
        return self.drive if DRIVE.search(device) else self.host if HOST.search(device) else ""


def is_gpu(name: str) -> bool:
    """Whether a device of a log is a GPU: neither host memory nor a drive."""
    return not HOST.search(name) and not DRIVE.search(name)


def gpus_of(run: Run) -> tuple[Processor, ...]:
    """The GPUs that a run used, in the log's order: those that hold anything, where the log says what is where.

    Ranks that the log tells no device of are GPUs whose model is that of the one that it does tell, if it tells one.
    """
    told = [one for one in run.processors if is_gpu(one.name)]
    holding = {buffer.device for buffer in run.buffers if is_gpu(buffer.device) and buffer.size}
    if holding:
        known = {one.name: one for one in told}
        names = dict.fromkeys([*known, *sorted(holding)])
        told = [known.get(name, Processor(name)) for name in names if name in holding]
    ranks = max([1, *(one.value for one in (run.ranks,) if one is not None),
                 (run.tensor.value if run.tensor else 1) * (run.pipeline.value if run.pipeline else 1)
                 * (run.replicas.value if run.replicas else 1)])  # fmt: skip
    if not told and (not run.engine.lower().startswith(LLAMA) or gpu_layers(run)):
        told = [Processor(f"rank{number}") for number in range(ranks)]
    models = {one.model for one in told}
    if told and len(told) < ranks and len(models) == 1:
        told += [Processor(f"rank{number}", told[0].model, told[0].memory) for number in range(len(told), ranks)]
    return tuple(told)


def check_told(run: Run, place: Place, said: bool, notes: Notes) -> None:
    """Where a log of llama.cpp tells no GPU: whether it tells that all is on the CPU. said : by a setting.

    Raises OffloadError where nothing of the log tells, and the server has a GPU.
    """
    own = next((name for name, one in place.topology.processors.items() if one.kind == "gpu"), "")
    if place.gpus or not own or not run.engine.lower().startswith(LLAMA) or said or gpu_layers(run) == 0:
        return
    memory, cpu = place.topology.memory_of(own), place.cpu or "local"
    if not run.buffers and run.layers is None and run.size is None:
        raise OffloadError(
            f"the log does not tell where the weights were, and {place.topology.name} has a GPU and a CPU. "
            f'Say --set placement.weights="{{{memory}: rest}}" --set placement.compute={own}, or --set '
            f'placement.weights="{{{place.host or memory}: rest}}" --set placement.compute={cpu}.')
    if not any(buffer.holds == "weights" for buffer in run.buffers):
        notes.assume("placement.weights: all in host memory, on the CPU, as the log tells of no GPU; --set "
                     "placement.weights and placement.compute say otherwise")  # fmt: skip


def gpu_layers(run: Run) -> int | None:
    """The layers on GPUs as a log says them: what was put there, else what was asked for; None where it says none."""
    if run.layers_on_gpus is not None:
        return run.layers_on_gpus.value
    asked = next((value for key, value, _ in run.settings if key == "n_gpu_layers"), None)
    text = str(asked).strip()
    if text in ("all", "-1", "-2"):
        return MOST_LAYERS
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def place_of(run: Run, on: str | None, notes: Notes) -> Place:
    """The server of a run. on : what --on says. Raises OffloadError where none is known."""
    gpus = gpus_of(run)
    if on is not None:
        if not on.strip():
            raise OffloadError("--on is empty: name a shipped server or a topology file, or drop it.")
        return _placed(load_topology(on), "", gpus, notes)
    if not gpus:
        raise OffloadError(f"the log tells no GPU, so on which server did it run? {SAY_SERVER}")
    parts = []
    for gpu in gpus:
        part = part_of(gpu.model) if gpu.model else None
        if part is None:
            model = f'"{one_line(gpu.model)}" ({gpu.name}, line {gpu.line})' if gpu.model else f"{gpu.name}, not named,"
            raise OffloadError(f"the log's GPU {model} is no part that is known here. {SAY_SERVER}")
        parts.append(part)
    text = _text(gpus, parts)
    notes.assume("server: made of the log's GPUs by their models (" + ", ".join(
        f"{gpu.name}: {part}" + (f", line {gpu.line}" if gpu.line else "")
        for gpu, part in zip(gpus, parts, strict=True)) + "); --on says another")  # fmt: skip
    notes.leave_open("the host's memory and its links to the GPUs: the log does not tell them, so what passes there is "
                     "not counted; --on SERVER knows them")  # fmt: skip
    topology = read_topology(parse_document(text, "server of the log"), name="server-of-the-log")
    return _placed(topology, text, gpus, notes)


def _text(gpus: Iterable[Processor], parts: list[str]) -> str:
    """A topology file with GPUs by their parts, and a host of which nothing is known."""
    names = range(len(parts))
    models = ", ".join(dict.fromkeys(one_line(gpu.model) for gpu in gpus))
    content = {
        "title": f"Server of a log: {len(parts)} x {models}, host not told",
        "memories": {f"hbm{i}": {"use": parts[i]} for i in names} | {"dram0": {"kind": "dram", "rate": "unknown"}},
        "processors": {f"gpu{i}": {"use": parts[i], "memory": f"hbm{i}"} for i in names}
        | {"cpu0": {"kind": "cpu", "memory": "dram0"}},
        "links": {f"pcie{i}": {"between": ["dram0", f"hbm{i}"], "rate": "unknown"} for i in names},
    }
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    return text


def _placed(topology: Topology, text: str, gpus: tuple[Processor, ...], notes: Notes) -> Place:
    """The server with the log's devices: its first GPUs, its first host memory and drive."""
    own = [name for name, one in topology.processors.items() if one.kind == "gpu"]
    if len(gpus) > len(own):
        raise OffloadError(f"the log tells {many(len(gpus), 'GPU')} ({', '.join(one.name for one in gpus)}), and "
                           f"{topology.name} has {len(own)}: the run does not fit this server. {SAY_SERVER}")
    for gpu, name in zip(gpus, own, strict=False):
        _compare(gpu, topology, name, notes)
    hosts = [name for name, memory in topology.memories.items() if memory.kind == "dram"]
    if not hosts:  # one memory for all
        hosts = [name for name, memory in topology.memories.items() if memory.kind == "unified"]
    cpus = [name for name, one in topology.processors.items() if one.kind != "gpu"]
    drives = [name for name, memory in topology.memories.items() if memory.kind in DRIVES]
    first = [[*names, ""][0] for names in (hosts, cpus, drives)]
    return Place(topology, text, tuple(one.name for one in gpus), tuple(own[: len(gpus)]), *first)


def _compare(gpu: Processor, topology: Topology, name: str, notes: Notes) -> None:
    """Note where the log's GPU has another memory than the server's: another size, or by its model another rate."""
    memory = topology.memories[topology.memory_of(name)]
    part = part_of(gpu.model) if gpu.model else None
    if gpu.model and part is None and memory.kind != "unified":
        notes.assume(f"server: the log's {gpu.name} (line {gpu.line}), \"{one_line(gpu.model)}\", is no part that is "
                     f"known here: it is taken to be {name} of {topology.name}")  # fmt: skip
    if part is not None:
        own = read_topology(parse_document(_text([gpu], [part]), "a part"), name="a part").resources.get("hbm0")
        there = topology.resources.get(memory.name)
        if own and there and own.peak and there.peak and abs(own.peak / there.peak - 1) > SAME_PART:
            notes.contradict(f"server: the log's {gpu.name} (line {gpu.line}) is a {part}, {format_rate(own.peak)}, "
                             f"and {memory.name} of {topology.name} has {format_rate(there.peak)}")
            return
    if gpu.memory and memory.capacity and abs(gpu.memory / memory.capacity - 1) > NEAR:
        notes.contradict(f"server: the log's {gpu.name} has {format_bytes_both(gpu.memory)} (line {gpu.line}), and "
                         f"{memory.name} of {topology.name} {format_bytes_both(memory.capacity)}")  # fmt: skip


def spread_of(place: Place, count: int) -> str:
    """The names of the memories of the first `count` GPUs, as a range."""
    return fold([place.topology.memory_of(name) for name in place.gpus[:count]])
