"""What a plan by placement says of KV, checked while the file still has a line for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from offload.designs import KvBlock, Placement, Portion, Workload
from offload.designs.kv import CACHE, KEY, served_by, shares_of
from offload.designs.placement import memories_of, runs
from offload.documents.marks import Document, Location
from offload.documents.named import no_nodes, plain, same_home
from offload.documents.plan_shape import PlacementShape
from offload.errors import PlanError, TopologyError
from offload.ranges import listed
from offload.topology import Topology


def kv_of(shape: PlacementShape) -> str | tuple[tuple[str, Portion], ...]:
    """One memory, or (memory, portion) of several."""
    portions = tuple(shape.kv.items())
    return portions[0][0] if len(portions) == 1 and portions[0][1].kind == "rest" else portions


def block_of(document: Document, shape: PlacementShape) -> KvBlock | None:
    """The blocks in which KV is copied; None where there are none, or where what is said makes no sense (noted)."""
    if shape.kv_block is None:
        return None
    try:
        return shape.kv_block.block()
    except ValueError as error:
        document.mistake(("placement", "kv_block"), str(error))
    return None


def check_workload(document: Document, placement: Placement, workload: Workload) -> bool:
    """Whether what is found of a prompt, and what is handed over, goes with the phase; noted where it does not."""
    wrong: list[tuple[Location, str]] = []
    found, asked = workload.cached, document.get(("workload", "cached")) is not None
    if found is not None and not placement.cache:
        wrong.append((("workload", "cached"), "where is it found? Write placement: {cache: dram0}, or drop it."))
    if placement.cache and not asked:
        text = "how much of a prompt is found in it? Write workload: {phase: prefill, prompt: 8000, cached: 80%}."
        wrong.append((("placement", "cache"), text))
    if found is not None and found.kind == "positions" and found.value > workload.prompt:
        text = f"{int(found.value):,} positions are more than the prompt has, {workload.prompt:,}. Write fewer."
        wrong.append((("workload", "cached"), text))
    if placement.hand_over and workload.phase != "prefill":
        text = (f"goes with phase prefill, and this is {workload.phase}: the decode that follows runs elsewhere, and "
                "is a plan of its own.")
        wrong.append((("placement", "hand_over"), text))
    for place, text in wrong:
        document.mistake(place, text, key=True)
    return not wrong


def check_kv_nodes(document: Document, placement: Placement, topology: Topology) -> None:
    """Every memory and processor that is named is known, and what goes there has a way."""
    if placement.attention:
        own = _own(placement, topology)
        others = [name for name in topology.processors if topology.memory_of(name) not in own]
        if wrong := no_nodes(topology, placement.attention, "processor", fit=others):
            document.mistake(("placement", "attention"), wrong)
        else:
            there = memories_of(topology, placement.attention)
            ways = [(one, other) for own in _own(placement, topology) for far in listed(there) for one, other in
                    ((own, far), (far, own)) if own != far]  # fmt: skip
            _ways(document, ("placement", "attention"), topology, ways)
    kv = placement.kv
    if not isinstance(kv, str):
        _told(document, ("placement", "kv"), KEY, lambda: shares_of(kv))
        names = [name for name, _ in kv]
        for number, name in enumerate(names):
            if wrong := same_home(name, names[:number]):
                document.mistake(("placement", "kv", name), wrong, key=True)
    if placement.cache and all(portion.kind != "bytes" for _, portion in placement.cache):
        _told(document, ("placement", "cache"), CACHE, lambda: served_by(placement.cache, 0))
    tiers = [name for name, _ in placement.cache]
    for number, name in enumerate(tiers):
        place = ("placement", "cache", name) if isinstance(document.get(("placement", "cache")), dict) else (
            "placement", "cache")  # fmt: skip
        if wrong := no_nodes(topology, name, "memory") or same_home(name, tiers[:number]):
            document.mistake(place, wrong, key=len(place) > 2)
            continue
        _ways(document, place, topology, [(far, own) for own in _own(placement, topology) for far in listed(name)
                                          if far != own and far not in _own(placement, topology)])
    if placement.hand_over:
        place = ("placement", "hand_over")
        own = _own(placement, topology)
        if wrong := no_nodes(topology, placement.hand_over, "memory", fit=[
                name for name in topology.memories if name not in own]):  # fmt: skip
            document.mistake(place, wrong)
            return
        if same := [name for name in listed(placement.hand_over) if name in own]:
            document.mistake(place, f"{same[0]} is where the prefill makes it: nothing is handed over. Name a memory "
                             "of another server or GPU.")
            return
        _ways(document, place, topology, [(one, far) for one in own for far in listed(placement.hand_over)])


def _own(placement: Placement, topology: Topology) -> list[str]:
    """The memories that layers run in; none of those that cannot be told."""
    found: dict[str, None] = {}
    for memory, _ in placement.weights:
        try:
            found |= dict.fromkeys(listed(memories_of(topology, runs(topology, placement, memory))))
        except (PlanError, TopologyError, KeyError):
            continue
    return list(found)


def _ways(document: Document, place: Location, topology: Topology, ends: Sequence[tuple[str, str]]) -> None:
    """Note the first pair of memories that no route joins."""
    for source, destination in ends:
        try:
            topology.route(source, destination)
        except TopologyError as error:
            document.mistake(place, plain(error, topology), key=len(place) > 2)
            return


def _told(document: Document, place: Location, key: str, make: Callable[[], Any]) -> None:
    try:
        make()
    except PlanError as error:
        document.mistake(place, str(error).removeprefix(f"{key}: "))
