"""What of this machine stands for which memory of a plan: NUMA nodes, folders on drives, GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from offload.errors import OffloadError, did_you_mean
from offload.files import named
from offload.measure.figures import Collected
from offload.measure.machine import Here
from offload.measure.memory import Node
from offload.measure.places import Place, place_of
from offload.measure.system import System
from offload.printing import and_text
from offload.replaying.devices import Devices
from offload.topology import Topology
from offload.topology.shares import DRIVES


class ReplayError(OffloadError):
    """A plan cannot be run on this machine; the message says why and what helps."""


@dataclass(frozen=True, slots=True)
class Stands:
    """What stands for the memories of a plan, by their names: NUMA nodes, places on drives, numbers of GPUs."""

    hosts: Mapping[str, Node] = field(default_factory=dict)
    drives: Mapping[str, Place] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    devices: Devices | None = None

    def text(self, memory: str) -> str:
        """What stands for a memory, in words."""
        if memory in self.hosts:
            return f"memory of NUMA node {self.hosts[memory].number}"
        if memory in self.drives:
            place = self.drives[memory]
            return f"{place.block or place.system or 'a drive'} at {named(place.path)}"
        return f"GPU {self.gpus[memory]}"


def find_stands(
    topology: Topology, memories: Collection[str], here: Here, system: System, disks: Sequence[str],
    devices: Callable[[Collected], Devices | None], collected: Collected,
) -> Stands:  # fmt: skip
    """What stands for each of the memories. disks : PATH or NAME=PATH, of folders.

    Raises ReplayError where this machine has nothing that could be one of them, with all that it has.
    """
    hosts, gpus, driven, found = {}, {}, None, []
    kinds = {name: topology.memories[name].kind for name in memories}
    asked = {name for name, kind in kinds.items() if kind in DRIVES}
    for name in memories:
        if name in asked:
            continue
        if topology.ways.is_host(name) and kinds[name] != "cxl":
            node = _node(topology, name, here)
            if node is None:
                found.append(f"{name} is memory of another node or machine")
            else:
                hosts[name] = node
        elif kinds[name] == "hbm":
            driven = driven or devices(collected)
            number = _number(name)
            if driven is None:
                found.append(f"{name} is a GPU's memory, and no GPU is driven here (torch or cupy would)")
            elif number >= driven.count():
                found.append(f"{name} would be GPU {number}, and there are {driven.count()}")
            else:
                gpus[name] = number
        else:
            found.append(f"{name} ({kinds[name]}) is no memory that is found here")
    drives, wrong = _drives(topology, asked, here, system, disks, collected)
    found += wrong
    if found:
        nodes = and_text([str(one.number) for one in here.nodes if one.cpus]) if here.nodes else "none"
        there = [f"host memory (NUMA node {nodes}: dramN)", "folders of drives that --disk names"]
        raise ReplayError(f"This machine cannot run the plan: {'; '.join(found)}. It can stand for {and_text(there)}. "
                          "Place the plan in these, or run it on the machine that has the others.")  # fmt: skip
    return Stands(hosts, drives, gpus, driven)


def _number(name: str) -> int:
    digits = re.search(r"(\d+)$", name)
    return int(digits[1]) if digits else 0


def _node(topology: Topology, name: str, here: Here) -> Node | None:
    """The NUMA node of a host memory: that of its number, or the only one of either side."""
    nodes = [one for one in here.nodes if one.cpus]
    own = [one for one in topology.memories if topology.ways.is_host(one) and topology.memories[one].kind != "cxl"]
    if len(own) == 1 and nodes:
        return next((one for one in nodes if one.number == _number(name)), nodes[0])
    return next((one for one in nodes if one.number == _number(name)), None)


def _named(text: str) -> tuple[str, str]:
    """The drive's name, "" where none is given, and the path of NAME=PATH or PATH."""
    name, equals, path = text.partition("=")
    return (name, path) if equals and not os.path.exists(text) else ("", text)


def unnamed(text: str, system: System, drives: Sequence[str]) -> Place:
    """Where a folder lies that stands for no drive of the plan: NAME=PATH or PATH. Raises ReplayError."""
    return _folder(_named(text)[1], system, drives)


def _folder(path: str, system: System, drives: Sequence[str]) -> Place:
    try:
        place = place_of(path, system, drives)
    except (OSError, ValueError) as error:
        raise ReplayError(f"--disk {named(path)}: {getattr(error, 'strerror', None) or error}. Give a folder on the "
                          "drive.") from None  # fmt: skip
    if not os.path.isdir(path):
        raise ReplayError(f"--disk {named(path)} is no folder: name one on the drive, where a file is made and "
                          "removed.")  # fmt: skip
    return place


def _drives(
    topology: Topology, asked: Collection[str], here: Here, system: System, disks: Sequence[str], collected: Collected
) -> tuple[dict[str, Place], list[str]]:
    """Places by drives' names, and what is wrong."""
    names = [name for name, one in topology.memories.items() if one.kind in DRIVES]
    found: dict[str, Place] = {}
    for text in disks:
        name, path = _named(text)
        if name and name not in names:
            raise ReplayError(f'--disk {named(text)}: no drive "{name}" in the topology. '
                              f"{did_you_mean(name, names, 'Drives')}")  # fmt: skip
        place = _folder(path, system, here.drives)
        if name:
            found[name] = place
            if place.why:
                collected.warn(f"{place.why}: it stands for {name} all the same, whose rates may not be its own")
        elif place.drive is not None and place.drive < len(names) and names[place.drive] in asked:
            found.setdefault(names[place.drive], place)
        elif len(asked) == 1 and len(disks) == 1:
            only = next(iter(asked))
            found[only] = place
            why = place.why or f"{named(path)} lies on {place.block}, not on it"
            collected.warn(f"{why}: it stands for {only} all the same, whose rates may not be its own")
    missing = [name for name in asked if name not in found]
    return found, [f"no folder that is given lies on {name}: add --disk {name}=FOLDER" for name in missing]
