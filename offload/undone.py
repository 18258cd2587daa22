"""What a plan would take without a technique that it uses: each key of the plan dropped or turned by itself.

The answer to "does it pay?": the same step without the cache, without fetching ahead, on one memory instead of two.
Each is made from the placement, the workload or the training that a design came from: a plan by hand has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from offload.bounds import Floor, floor, load_seconds
from offload.capacity import again
from offload.compiler import compile_step
from offload.designs.homes import home_names, is_mixed
from offload.designs.parallel import batch_unit
from offload.designs.placement import NUMA, Placement, Portion, Workload, memories_of, runs
from offload.designs.ranks import TENSOR, Parallel
from offload.designs.teams import teams_of
from offload.designs.training import plan_training
from offload.errors import OffloadError
from offload.ranges import fold, listed
from offload.step import Step
from offload.topology import Topology

MOST_BATCH = 2**12  # sequences, beyond which no batch is asked about

Undone = Iterator[tuple[str, Callable[[], Step]]]


def undone(step: Step) -> Undone:
    """The step without each of its techniques: what is undone in words, and how to compile it.

    What a caller compiles may raise OffloadError, where there is no such variant on the machine.
    """
    plan = step.plan
    if plan.training is not None:
        yield from _without_of_training(step)
    if plan.origin is None:
        return
    _, workload, placement, _, _ = plan.origin
    for text, changed in _placements(step.topology, workload, placement):
        yield text, partial(again, step, placement=changed)
    for text, fewer, changed in _other_replicas(step.topology, workload, placement):
        yield text, partial(again, step, workload=fewer, placement=changed)
    if workload.speculation is not None:
        yield "without speculation", lambda: again(step, workload=replace(workload, speculation=None))
    if workload.cached is not None:
        yield "without the cached prefix: all of it computed", lambda: again(
            step, workload=replace(workload, cached=None), placement=replace(placement, cache=()))


def _placements(topology: Topology, workload: Workload, placement: Placement) -> Iterator[tuple[str, Placement]]:
    yield from _of_experts(placement)
    yield from _of_kv(topology, placement)
    yield from _of_weights(placement)
    yield from _of_replicas(topology, placement)
    if workload.phase == "decode":  # prompts follow one another without waiting: in turn each takes longer alone
        yield from _in_turn_or_split(topology, placement)


def _of_experts(placement: Placement) -> Iterator[tuple[str, Placement]]:
    experts = placement.experts
    if experts is not None and experts.cache is not None:
        text = f"without the cache of experts in {experts.cache.memory}"
        yield text, replace(placement, experts=replace(experts, cache=None))
    if experts is not None and experts.prefetch is not None:
        text = "without fetching experts ahead: all once the router has run"
        yield text, replace(placement, experts=replace(experts, prefetch=None))
    own = experts.numa if experts is not None else ""
    for policy in NUMA:
        if experts is not None and own and policy != own:
            text = f"experts with numa: {policy} instead of {own}"
            yield text, replace(placement, experts=replace(experts, numa=policy))
        if placement.numa and policy != placement.numa:
            yield f"numa: {policy} instead of {placement.numa}", replace(placement, numa=policy)
    if placement.tensors:
        yield "without tensors by pattern: each with its layer", replace(placement, tensors=())


def _of_kv(topology: Topology, placement: Placement) -> Iterator[tuple[str, Placement]]:
    if placement.attention:
        text = f"without attention on {placement.attention}: the KV that lies elsewhere is copied"
        yield text, replace(placement, attention="")
    there = memories_of(topology, placement.compute) if placement.compute != "local" else "with layer"
    if placement.kv not in ("with layer", there):
        text = "all KV with its layer, where that runs"
        yield text, replace(placement, kv="with layer", attention="", kv_block=None)
    if placement.kv_block is not None:
        yield "KV in one copy a layer instead of in blocks", replace(placement, kv_block=None)


def _of_weights(placement: Placement) -> Iterator[tuple[str, Placement]]:
    for home, portion in placement.weights:
        for memory in home_names(home) if is_mixed(home) else ():
            alone = [(memory if name == home else name, portion) for name, portion in placement.weights]
            if len({name for name, _ in alone}) == len(alone):
                yield f"layers in {memory} alone instead of {home}", replace(placement, weights=tuple(alone))
    cache = placement.page_cache
    if cache is not None:
        text = "without pinned pages" if cache.pinned else "with what fits pinned (mlock)"
        yield text, replace(placement, page_cache=replace(cache, pinned=not cache.pinned))
        if len(placement.weights) == 1:
            (_, portion), = placement.weights
            text = f"all weights in {cache.memory} instead of mapped"
            yield text, replace(placement, weights=((cache.memory, portion),), page_cache=None)
    for processor, _ in placement.split:
        yield f"all rows on {processor} instead of split", replace(placement, split=(), compute=processor)
    if placement.access == "in_place":
        yield "weights that live elsewhere copied instead of read over the link", replace(placement, access="copy")
    if placement.host_memory == "pageable":
        yield "pinned host memory instead of pageable", replace(placement, host_memory="pinned")


def _of_replicas(topology: Topology, placement: Placement) -> Iterator[tuple[str, Placement]]:
    """Replicas that share what they fetch, or do not."""
    parallel = placement.parallel
    away = {name for home, _ in placement.weights for name in home_names(home)} - memories_of_gpus(topology)
    if parallel is not None and parallel.by == "data" and away:
        fetch = "whole" if parallel.sharded else "sharded"
        text = {"whole": "each replica fetches whole layers", "sharded": "replicas share the fetch and gather the rest"}
        yield text[fetch], replace(placement, parallel=replace(parallel, fetch=fetch, algorithm=None))


def _other_replicas(
    topology: Topology, workload: Workload, placement: Placement
) -> Iterator[tuple[str, Workload, Placement]]:
    """All GPUs of some replicas as one, with all sequences, and the first replica alone, with its share of them."""
    parallel = placement.parallel
    if parallel is None or parallel.by != "data":
        return
    processors = [runs(topology, placement, home) for home, _ in placement.weights]
    teams = teams_of(topology, parallel, processors)
    ranges = [one for one in dict.fromkeys(processors) if teams.is_own(one)]
    if len(ranges) != 1 or teams.replicas < 2 or workload.batch % teams.replicas:
        return
    count, team = len(listed(ranges[0])), teams.team(ranges[0])
    shared = Parallel("tensor", algorithm=parallel.algorithm)
    each = f"{teams.replicas} of {team} each" if team > 1 else f"{teams.replicas}"
    yield (f"one replica of all {count} of {ranges[0]} (tensor parallel) instead of {each}",
           workload, replace(placement, parallel=shared))  # fmt: skip
    if placement.kv != "with layer" or placement.attention or placement.cache:
        return
    own = memories_of(topology, ranges[0])

    def cut(names: str, all_of: str) -> str:
        return fold(listed(names)[:team]) if names == all_of else names

    alone = Parallel("tensor", algorithm=parallel.algorithm) if team > 1 else None
    batch = workload.batch // teams.replicas
    yield f"one replica alone, with {batch} of {workload.batch} sequences", replace(workload, batch=batch), replace(
        placement, weights=tuple((cut(home, own), portion) for home, portion in placement.weights),
        compute=cut(placement.compute, ranges[0]), parallel=alone)


def _in_turn_or_split(topology: Topology, placement: Placement) -> Iterator[tuple[str, Placement]]:
    """Layers in turn on several GPUs instead of each split over all, or the other way round."""
    plain = placement.experts is None and not placement.tensors and not placement.split and placement.kv == "with layer"
    if not plain or placement.compute != "local" or (placement.parallel or TENSOR).by != "tensor":
        return
    names = [home_names(home) for home, _ in placement.weights]
    if any(name not in memories_of_gpus(topology) for some in names for name in some):
        return
    if len(names) == 1 and len(names[0]) > 1:
        count = len(names[0])
        shares = [Portion("share", 1 / count)] * (count - 1) + [Portion("rest")]
        yield f"layers in turn on {fold(names[0])}, instead of each split over all", replace(
            placement, weights=tuple(zip(names[0], shares, strict=True)), parallel=None)
    elif len(names) > 1 and all(len(some) == 1 for some in names):
        memories = fold(name for some in names for name in some)
        if listed(memories) == [name for some in names for name in some]:
            yield f"each layer split over {memories}, instead of layers in turn", replace(
                placement, weights=((memories, Portion("rest")),), parallel=None)


def memories_of_gpus(topology: Topology) -> set[str]:
    """The names of the memories that GPUs work in."""
    return {one.memory for one in topology.processors.values() if one.kind == "gpu"}


def _without_of_training(step: Step) -> Undone:
    model, workload, training, weights = step.plan.training.asked
    found: list[tuple[str, dict[str, Any]]] = []
    if training.delayed:
        found.append(("without the delay: the update ends before the next step begins", {"delayed": False}))
    if training.gpu_share:
        found.append(("without optimizer states on the GPU (gpu_share: 0)", {"gpu_share": 0.0}))
    if training.gradient_clipping:
        found.append(("without gradient clipping", {"gradient_clipping": False}))
    if training.checkpoints not in ("", "none"):
        found.append(("checkpoints in the GPU's memory", {"checkpoints": ""}))

    def without(changed: dict[str, Any]) -> Step:
        return compile_step(step.topology, plan_training(
            model, step.topology, workload, replace(training, **changed), weights=weights, overlap=step.plan.overlap))

    for text, changed in found:
        yield text, partial(without, changed)


def batch_past(step: Step, sustained: Floor) -> Undone:
    """The least batch from which the link or drive that binds a decode step no longer does; nothing where none is.

    sustained : the floor at sustained rates. Loads are taken to grow linearly with the batch, and the batch that this
    gives is checked: one less still binds. Sequences share what a link brings, not what is computed for each.
    """
    if step.plan.origin is None or sustained.rule != "load" or not sustained.bottleneck:
        return
    workload: Workload = step.plan.origin[1]
    names = sustained.bottleneck
    if workload.phase != "decode" or not all(_carries(step, name) for name in names):
        return
    unit = batch_unit(step.topology, step.plan.origin[2])
    try:
        batch = _crossing(step, workload, names[0])
        asked = 0 if batch is None else math.ceil(batch / unit) * unit
        if not workload.batch < asked <= MOST_BATCH or not _binds(step, workload, asked - unit, names):
            return
        after = again(step, workload=replace(workload, batch=asked))
    except OffloadError:
        return  # no such batch: it is not shared evenly, or its load has no number
    binding = floor(after, "value").bottleneck
    if not set(binding) & set(names):
        yield (f"batch {asked:,} instead of {workload.batch}, from which {fold(binding)} binds and "
               f"{fold(names)} no longer does"), lambda: after  # fmt: skip


def _carries(step: Step, name: str) -> bool:
    """Whether a resource is a link, or a drive."""
    memory = step.topology.memories.get(name.split(".")[0])
    return step.resources[name].kind == "link" or (memory is not None and memory.kind in ("nvme", "disk"))


def _binds(step: Step, workload: Workload, batch: int, names: tuple[str, ...]) -> bool:
    found = floor(again(step, workload=replace(workload, batch=batch)), "value").bottleneck
    return bool(set(found) & set(names))


def _crossing(step: Step, workload: Workload, name: str) -> float | None:
    """The batch at which another resource takes as long as this one, on lines through this batch and twice as many."""
    twice = again(step, workload=replace(workload, batch=2 * workload.batch))
    now, then = (load_seconds(one, "value").resource_seconds for one in (step, twice))
    slope = {other: (then[other] - now[other]) / workload.batch for other in now if other in then}
    found = [workload.batch + (now[name] - now[other]) / (slope[other] - slope[name])
             for other in slope if slope[other] > slope[name] * (1 + 1e-9)]  # fmt: skip
    return min(found, default=None)
