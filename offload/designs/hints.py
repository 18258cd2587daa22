"""What is probably not meant in a plan by placement, in words for its report."""

from __future__ import annotations

from typing import Any

from offload.designs.page_cache import left_by
from offload.designs.stays import brought
from offload.models import layers_of
from offload.plan import Plan, Transfer
from offload.ranges import fold
from offload.topology import Topology
from offload.units import format_bytes

WEIGHTS = ("layer weights", "experts", "output head", "other weights")  # that nothing writes: they could stay


def moved_for_nothing(topology: Topology, plan: Plan, but: str = "") -> list[str]:
    """A note where all weights that come to a processor's memory each step, or are read over a link, would fit there.

    but : a memory of which nothing is said (its page cache has less room than it has free). Nothing is said where
    amounts are arrays.
    """
    sizes: dict[tuple[str, tuple[str, ...]], dict[str, float]] = {}  # by memory and the links that are read over
    repeats: dict[str, int] = {}
    chosen: set[str] = set()  # memories to which a part of a tensor comes: the experts that a step needs
    for one in brought(topology, plan):
        tensor = plan.tensors[one.tensor]
        if but in one.memories or tensor.what not in WEIGHTS:
            continue
        repeats[tensor.name] = repeats.get(tensor.name, 0) + one.block.repeat
        size = tensor.bytes if tensor.stored is None else tensor.stored
        whole = isinstance(one.task, Transfer) and one.task.bytes is None
        if (one.links or whole) and tensor.least is not None and _any(tensor.least < size):
            chosen |= set(one.memories)
        for memory in one.memories:
            sizes.setdefault((memory, one.links), {})[tensor.name] = size * one.each * repeats[tensor.name]
    told: dict[tuple[float, int, bool, bool], tuple[dict[str, None], dict[str, None]]] = {}
    for (memory, links), found in sizes.items():
        total = sum(sum(parts.values()) for (name, _), parts in sizes.items() if name == memory)
        free = left_by(topology, plan, memory)
        if free is not None and not hasattr(total, "shape") and 0 < total <= free:
            key = (sum(found.values()), free, memory in chosen, bool(links))
            names, over = told.setdefault(key, ({}, {}))
            names |= {memory: None}
            over |= dict.fromkeys(links)
    notes = []
    for (total, free, some, in_place), (names, over) in told.items():
        where = f"each of {fold(names)}" if len(names) > 1 else fold(names)
        what = f"everything fits: {'all or some of ' if some else ''}{format_bytes(total)} of weights"
        notes.append(f"{what} are read over {fold(over)} each step, and {format_bytes(free)} are free in {where}, next "
                     "to what reads them. They could live there" if in_place else
                     f"{what} are moved to {where} each step, where {format_bytes(free)} are free. They could live "
                     "there, and this plan moves them for nothing")  # fmt: skip
    return notes


def pinned_twice(topology: Topology, plan: Plan) -> list[str]:
    """A note where weights that are streamed from pinned host memory would not fit there twice.

    Engines that load a file first and pin a copy hold both. Nothing is said where amounts are arrays.
    """
    names = {task.tensor: task.access for block in plan.blocks for task in block.tasks if isinstance(task, Transfer)}
    repeats: dict[str, int] = {}
    for block in plan.blocks:
        for name in {task.tensor for task in block.tasks if isinstance(task, Transfer)}:
            repeats[name] = repeats.get(name, 0) + block.repeat
    sizes: dict[str, float] = {}
    for name, access in names.items():
        tensor = plan.tensors[name]
        for memory, share in tensor.home if access == "pinned" and tensor.what in WEIGHTS else ():
            if topology.ways.may_stage(memory) and topology.memories[memory].kind == "dram":
                size = tensor.bytes if tensor.stored is None else tensor.stored
                sizes[memory] = sizes.get(memory, 0) + size * share * repeats[name]
    notes = []
    for memory, size in sizes.items():
        free = left_by(topology, plan, memory)
        if free is not None and not hasattr(size, "shape") and size > free >= 0:
            notes.append(f"pinned: {format_bytes(size)} of weights are page-locked in {memory}. An engine that pins a "
                         f"copy of what it loaded holds them twice, and {format_bytes(free)} are free: it would not "
                         "fit (pageable copies need no second one)")
    return notes


def of_mean(plan: Plan) -> bool:
    """Whether what a plan is expected to read is a mean over steps: of the experts that tokens happen to choose."""
    if plan.origin is None or plan.training is not None:
        return False
    if all(layer.experts is None for layer in layers_of(plan.origin[0])):
        return False
    return any(tensor.what.startswith(WEIGHTS[:2]) and tensor.least is not None and _any(tensor.least < tensor.bytes)
               for tensor in plan.tensors.values())  # fmt: skip


def _any(found: Any) -> bool:
    return bool(found.any()) if hasattr(found, "any") else bool(found)
