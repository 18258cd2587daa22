"""What tiers of KV are worth: a cached prefix loaded or computed, a hand-over's time, KV kept away for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from offload.capacity import again
from offload.compiler import compile_step
from offload.designs.kv import cached_of
from offload.errors import OffloadError
from offload.models import layer_flops, layers_of
from offload.models.attention import prefill_flops
from offload.plan import Compute, Plan, Transfer
from offload.prefix import wins_from
from offload.ranges import fold, runs
from offload.schedules import schedule, solo_seconds
from offload.step import Step, seconds_of_rows
from offload.units import format_bytes

FOUND, CACHE = "cached KV", "KV cache"


@dataclass(frozen=True, slots=True)
class Hit:
    """What is found of a prompt, loaded or computed again; times are expected ones [s], of one prefill alone.

    positions, prompt : of each sequence. bytes : found, of all sequences, and loaded of them [B]. tiers : (memory,
    bytes) that serve it.
    load_seconds : the loads by themselves. compute_seconds : computing the same positions instead. with_hit, without :
    the whole prefill. rate_needed : at which the loads take as long as computing [B/s]. wins_from : the fewest
    positions whose load takes no longer than computing them, at these rates; None where it always takes longer.
    """

    positions: int
    prompt: int
    bytes: float
    loaded: float
    tiers: tuple[tuple[str, float], ...]
    load_seconds: float
    compute_seconds: float
    with_hit: float
    without: float
    rate_needed: float | None
    wins_from: int | None


@dataclass(frozen=True, slots=True)
class HandOver:
    """A prefill's KV on its way to another memory. bytes [B]; seconds : of the transfers by themselves; exposed : what
    is left of them when all else of one prefill is done [s].
    """

    to: str
    bytes: float
    seconds: float
    exposed: float


def hit_of(step: Step) -> Hit | None:
    """What the plan's cached prefix is worth; None where it has none."""
    prefill = _prefill(step)
    if prefill is None:
        return None
    step = prefill
    model, workload, placement, _, _ = step.plan.origin
    found = cached_of(workload)
    if not placement.cache or not found:
        return None
    bare = replace(placement, cache=(), kv_block=None if not placement.hand_over else placement.kv_block)
    without = schedule(again(step, workload=replace(workload, cached=None), placement=bare), ends=False)
    there = replace(workload, cached=None, context=workload.context + found, prompt=workload.prompt - found)
    free = schedule(again(step, workload=there, placement=bare), ends=False)
    tiers: dict[str, float] = {}
    loaded = 0.0
    for block in step.plan.blocks:
        moved = {task.tensor for task in block.tasks if isinstance(task, Transfer)}
        for task in block.tasks:
            for tensor in (step.plan.tensors[name] for name in task.reads) if isinstance(task, Compute) else ():
                if tensor.what != FOUND:
                    continue
                near = tensor.name not in moved
                lies = tensor.bytes / tensor.alike if near else cast(float, tensor.stored) / step.plan.in_flight
                for memory, share in tensor.home:
                    size = block.repeat * share * lies
                    tiers[memory] = tiers.get(memory, 0.0) + size
                    loaded += 0.0 if near else size
    load = _alone(step, FOUND)
    compute = max(0.0, without.cold_seconds - free.cold_seconds)
    return Hit(
        found, workload.prompt, sum(tiers.values()), loaded, tuple(tiers.items()), load, compute,
        schedule(step, ends=False).cold_seconds, without.cold_seconds,
        loaded / compute if compute > 0 else None, _wins_from(step, found, load, compute),
    )  # fmt: skip


def hand_over_of(step: Step) -> HandOver | None:
    """How long a plan's hand-over takes, and what of it is exposed; None where it has none."""
    if step.plan.origin is None or not step.plan.origin[2].hand_over:
        return None
    placement = step.plan.origin[2]
    blocks = None if not placement.cache else placement.kv_block
    bare = schedule(again(step, placement=replace(placement, hand_over="", kv_block=blocks)), ends=False)
    size = 0.0
    for block in step.plan.blocks:
        for task in block.tasks:
            if isinstance(task, Transfer) and task.name.startswith("hand over KV"):
                size += cast(float, task.bytes) * block.repeat  # the hand-over says its own
    exposed = max(0.0, schedule(step, ends=False).cold_seconds - bare.cold_seconds)
    return HandOver(placement.hand_over, size, _alone(step, "hand over KV"), exposed)


def kv_remarks(step: Step) -> Sequence[str]:
    """A note where KV lies elsewhere though it would fit where its layers run."""
    found = fits_near(step)
    if found is None:
        return ()
    memory, size, free = found
    return (f"KV away for nothing: {format_bytes(size)} of it lie elsewhere, and {format_bytes(free)} are free in "
            f"{memory}, where its layers run",)  # fmt: skip


def fits_near(step: Step) -> tuple[str, float, float] | None:
    """(memories, bytes, free bytes) where all KV that lies elsewhere would fit with its layers; of ranks in each.

    bytes : what lies elsewhere, once [B]. free : of all these memories together [B].
    """
    plan, topology = step.plan, step.topology
    if plan.origin is None or plan.origin[2].kv == "with layer" or plan.request is not None:
        return None
    try:
        near = again(step, placement=replace(plan.origin[2], kv="with layer", attention="", kv_block=None))
    except OffloadError:
        return None
    grown = {name: parts.get(CACHE, 0) - step.occupied.get(name, {}).get(CACHE, 0)
             for name, parts in near.occupied.items()}  # fmt: skip
    more = [name for name, size in grown.items() if size > 0]
    if not more or step.plan.workload.get("phase") == "prefill":
        return None
    free = 0
    for name in more:
        node = topology.memories[name]
        used, then = (sum(one.occupied.get(name, {}).values()) for one in (step, near))
        if node.capacity is None or then > node.capacity * node.count:
            return None
        free += node.capacity * node.count - used
    away = sum(max(0, parts.get(CACHE, 0) - near.occupied.get(name, {}).get(CACHE, 0))
               for name, parts in step.occupied.items())  # fmt: skip
    return " and ".join(fold(run) for run in runs(sorted(more))), away, free


def _prefill(step: Step) -> Step | None:
    """The step in which a prompt is processed; None for a plan by hand or a decode step."""
    plan: Plan = step.plan
    if plan.origin is None:
        return None
    if plan.request is not None:
        return compile_step(step.topology, plan.request.prefill)
    return step if plan.origin[1].phase == "prefill" else None


def _rows(step: Step, what: str) -> list[tuple[int, int]]:
    """(row, count) of the transfers of KV of a kind."""
    return [(number, count) for number, (row, count) in enumerate(zip(step.rows, step.counts, strict=True))
            if row.transfer and (row.name.startswith(what) or (row.moved and row.moved[0].what == what))]  # fmt: skip


def _alone(step: Step, what: str) -> float:
    """Seconds of some transfers by themselves at sustained rates: each lane in order, each resource at its rate."""
    solo, seconds = solo_seconds(step), seconds_of_rows(step, "value")
    busy: dict[str, float] = {}
    for number, count in _rows(step, what):
        lane = f"lane {step.rows[number].lane}"
        busy[lane] = busy.get(lane, 0.0) + count * solo[number]
        for name, time in seconds[number].items():
            busy[name] = busy.get(name, 0.0) + count * time
    return max(busy.values(), default=0.0)


def _wins_from(step: Step, positions: int, load: float, compute: float) -> int | None:
    """The break-even length by the closed form, at the rates at which this prefix is loaded and computed."""
    model, workload = step.plan.origin[:2]
    if compute <= 0 or load <= 0:
        return None if compute <= 0 else 1
    lanes: dict[str, float] = {}
    for number, count in _rows(step, FOUND):
        lanes[step.rows[number].lane] = count * step.rows[number].latency[0]
    fixed = min(load, max(lanes.values(), default=0.0))
    batch = workload.batch
    matrices = batch * sum(layer_flops(model, index) for index in range(model.layers))
    square = batch * sum(prefill_flops(layer, 0, positions) for layer in layers_of(model)) / positions**2
    rate = (matrices * positions + square * positions**2) / compute
    return wins_from((load - fixed) / positions, 1.0, matrices / 2, rate, square, fixed)
