"""A plan file on another server than its own: each name that it uses stands for the part with the same role there.

A role is what a part is for: the memory of the n-th GPU, the n-th host memory, the n-th drive, the n-th GPU or CPU,
the n-th switch of a kind. Where GPU and CPU share one memory it is both. What has no such part there is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from offload.documents.kinds import refuse_other_kind
from offload.documents.marks import Document, as_written, read_document
from offload.documents.plan_file import read_plan
from offload.documents.settings import Setting, change_plan
from offload.documents.topology_file import load_topology
from offload.errors import PlanError
from offload.plan import Plan
from offload.ranges import fold, listed
from offload.topology import Topology
from offload.topology.shares import DRIVES

PORTION = re.compile(r"([0-9.]+) *(layers?|blocks?|%)")
HOMES = ("weights", "kv", "cache", "split")  # keys of a placement with a memory or a processor, or a map of them
WORDS = ("compute", "attention", "hand_over", "page_cache")
OF_TRAINING = ("parameters", "optimizer", "gradients", "optimizer_on", "compute", "checkpoints")
BOTH = {"gpu memory", "host memory"}  # roles of a memory that GPU and CPU share
IN_WORDS = {"gpu memory": "GPU", "host memory": "host memory", "drive": "drive"}


def load_plan_on(
    path: str | Path, server: Topology, *, settings: Sequence[Setting] = (), own: Topology | None = None
) -> tuple[Plan, Topology, Mapping[str, str]]:
    """The plan of a file on a server, that server, and what each name of the plan's own server stands for there.

    settings : of the plan in its own names, and of the server. own : the plan's own server, where it is loaded already.
    Names that stay as they are are left out of the map.
    Raises PlanError for a name that has no such part there, and as `load_plan`.
    """
    document = read_document(path)
    refuse_other_kind(document, "plan")
    folder = Path(path).parent
    given = document.get(("topology",))
    notes = change_plan(document, [one for one in settings if one.is_of_plan])
    names: dict[str, str] = {}
    if isinstance(given, str) and not document.mistakes:
        names = translate(document, own or load_topology(given, folder), server)
    others = [one for one in settings if not one.is_of_plan]
    plan, there = read_plan(document, folder, topology=server, settings=others)
    told = [f"{fold([own])} of the plan is {other} on {server.name}" for own, other in names.items()]
    return replace(plan, assumptions=(*notes, *told, *plan.assumptions)), there, names


def translate(document: Document, own: Topology, server: Topology) -> dict[str, str]:
    """Put the names of a server's parts in the place of those of the plan's own server.

    Returns the names that changed. Raises PlanError for one without a counterpart, and where two portions of one model
    come to lie in one memory and do not add up.
    """
    there = _Names(own, server)
    value = document.value
    placement = value.get("placement")
    if isinstance(placement, dict):
        _placement(placement, there)
    training = value.get("training")
    if isinstance(training, dict):
        _words(training, OF_TRAINING, there)
    guessing = value.get("speculation")
    if isinstance(guessing, dict):
        _words(guessing, ("home", "compute"), there)
    for tensor in _maps(value.get("tensors")):
        _homes(tensor, ("home",), there)
    blocks = value.get("blocks")
    inner = [one.get("tasks") for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
    for tasks in (value.get("tasks"), *inner):
        for task in _maps(tasks):
            _words(task, ("to", "compute", "over", "via"), there)
    return there.changed


def _maps(value: Any) -> list[dict[str, Any]]:
    return [one for one in value.values() if isinstance(one, dict)] if isinstance(value, dict) else []


def _placement(placement: dict[str, Any], there: _Names) -> None:
    _homes(placement, HOMES, there)
    there.local(placement, "weights")
    _words(placement, (*WORDS, "via"), there)
    if isinstance(placement.get("page_cache"), dict):
        _words(placement["page_cache"], ("memory",), there)
    patterns = placement.get("tensors")
    if isinstance(patterns, dict):
        _words(patterns, tuple(patterns), there)
    experts = placement.get("experts")
    if isinstance(experts, dict):
        _homes(experts, ("home",), there)
        there.local(experts, "home")
        _words(experts, ("compute",), there)
        if isinstance(experts.get("cache"), dict):
            _words(experts["cache"], ("memory",), there)


def _words(holder: dict[str, Any], keys: Sequence[str], there: _Names) -> None:
    for key in keys:
        value = holder.get(key)
        if isinstance(value, str):
            holder[key] = there.text(value)
        elif isinstance(value, list):
            holder[key] = [there.text(one) if isinstance(one, str) else one for one in value]


def _homes(holder: dict[str, Any], keys: Sequence[str], there: _Names) -> None:
    """Keys that hold a memory, or a map of memories with a portion each; portions that meet are added up."""
    for key in keys:
        value = holder.get(key)
        if isinstance(value, str):
            holder[key] = there.text(value)
        elif isinstance(value, dict):
            found: dict[str, Any] = {}
            for name, portion in value.items():
                other = there.text(name)
                found[other] = portion if other not in found else _together(found[other], portion, key, name, other)
            holder[key] = found


def _together(first: Any, second: Any, key: str, name: str, other: str) -> str:
    """Two portions in one memory. Raises PlanError where they do not add up."""
    texts = [as_written(one) for one in (first, second)]
    if any(text in ("rest", "all") for text in texts):
        return "rest"
    one, two = (PORTION.fullmatch(text) for text in texts)
    if one and two and one[2][:5] == two[2][:5]:
        total = float(one[1]) + float(two[1])
        return f"{total:g}%" if one[2] == "%" else f"{total:g} layers"
    raise PlanError(f'{name} comes to lie in {other} too, and the portions of "{key}", {texts[0]} and {texts[1]}, do '
                    "not add up. Write them in one unit.")  # fmt: skip


class _Names:
    """Names of one server's parts, as those of another."""

    def __init__(self, own: Topology, server: Topology):
        self.server = server
        self.own, self.there = _roles_of(own), _roles_of(server)
        self.changed: dict[str, str] = {}

    def text(self, text: str) -> str:
        """A home, a range, a list or a single name, in the names of the server; other words stay as they are."""
        return " + ".join(self.part(part.strip()) for part in text.split("+")) if "+" in text else self.part(text)

    def part(self, text: str) -> str:
        match = re.fullmatch(r"([0-9.]+ *% *)?(.+)", text.strip())
        if match is None:
            return text
        try:
            names = listed(match[2])
        except ValueError:
            return text
        if not all(name in self.own for name in names):
            return text  # no part of the plan's own server: told where the plan is read
        found = [self.name(name) for name in names]
        if found == names:
            return text
        return (match[1] or "") + fold(dict.fromkeys(found))

    def name(self, name: str) -> str:
        """Raises PlanError where no part of the server has its role."""
        roles = self.own[name]
        if roles & self.there.get(name, set()):
            return name
        if name in self.changed:
            return self.changed[name]
        for role in sorted(roles):  # a memory that a GPU and a CPU share is first of all the GPU's
            other = next((other for other, known in self.there.items() if role in known), None)
            if other is not None:
                self.changed[name] = other
                return other
        kind, number = min(roles)
        here = len({one for known in self.there.values() for one in known if one[0] == kind})
        word = IN_WORDS.get(kind, kind.upper() if kind in ("gpu", "cpu") else kind)
        plural = "memories" if word == "host memory" else f"{word}s"
        has = f"{here} {word if here == 1 else plural}" if here else f"no {word}"
        raise PlanError(f"the plan uses {name}, {'of ' if kind == 'gpu memory' else ''}{word} number {number + 1}; "
                        f"{self.server.name} has {has}.")  # fmt: skip

    def local(self, holder: dict[str, Any], key: str) -> None:
        """Where GPU and CPU share the memory that the layers come to lie in, `local` is the GPU."""
        homes = holder.get(key)
        names = {homes} if isinstance(homes, str) else set(homes) if isinstance(homes, dict) else set()
        shared = [name for name in names if len({kind for kind, _ in self.there.get(name, ())} & BOTH) == 2]
        if holder.get("compute", "local") == "local" and shared and "split" not in holder:
            gpu = next((name for name in self.server.processors_of(shared[0])
                        if self.server.processors[name].kind == "gpu"), None)
            if gpu is not None:
                holder["compute"] = self.changed["local"] = gpu


def _roles_of(topology: Topology) -> dict[str, set[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {}

    def number(kind: str, names: Sequence[str]) -> None:
        for index, name in enumerate(dict.fromkeys(names)):
            found.setdefault(name, set()).add((kind, index))

    for kind in dict.fromkeys(one.kind for one in topology.processors.values()):
        number(kind, [name for name, one in topology.processors.items() if one.kind == kind])
    number("gpu memory", [one.memory for one in topology.processors.values() if one.kind == "gpu"])
    def is_kind(kinds: tuple[str, ...]) -> list[str]:
        return [name for name, one in topology.memories.items() if one.kind in kinds]

    number("host memory", is_kind(("dram",)) or is_kind(("unified",)))
    number("drive", is_kind(tuple(DRIVES)))
    for kind in dict.fromkeys(one.kind for one in topology.memories.values()):
        if not any(name in found for name in is_kind((kind,))):
            number(f"memory of kind {kind}", is_kind((kind,)))
    for kind in dict.fromkeys(one.kind for one in topology.switches.values()):
        number(kind.replace("_", " "), [name for name, one in topology.switches.items() if one.kind == kind])
    return found
