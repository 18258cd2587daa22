"""From how many tokens in a pass another plan is faster: weights streamed to a GPU against run where they live.

Streamed weights come once whatever the pass has; run on a CPU each token costs its arithmetic. So a CPU wins small
passes and a GPU that fetches wins large ones (llama.cpp's op-offload; ik_llama.cpp PR 520).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil
from typing import Any

from offload.bounds import floor
from offload.capacity import missing
from offload.compiler import compile_step
from offload.designs import Placement, Workload, plan_model
from offload.errors import OffloadError
from offload.models.architecture import STATED
from offload.plan import Compute, Plan
from offload.ranges import fold, listed
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Topology

SURE = 1e-9  # relative: by which a bound has to decide
MOST = 2**16  # tokens in a pass, up to which is searched


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the second of two plans gets faster.

    tokens : in a pass, the first at which it is no slower while with one token fewer it is; None where it is slower at
    `most` too. seconds : expected, of both at `tokens` (at `most` where that is None) [s]. before : of both with one
    token fewer; None where there is none fewer. lacks : bytes that the second lacks by memory at `tokens` [B].
    """

    tokens: int | None
    most: int
    seconds: tuple[float, float]
    before: tuple[float, float] | None = None
    lacks: dict[str, int] = field(default_factory=dict)
    first: str = ""
    second: str = ""


def crossover(
    topology: Topology, first: Callable[[int], Plan], second: Callable[[int], Plan], most: int = MOST
) -> Crossover:
    """From how many tokens in a pass the second plan is no slower than the first, by expected times.

    first, second : from tokens in a pass, 1 or more, to its plan. The number grows eightfold until the second is no
    slower; between, it is sought on the straight line through both ends and by halving, in turns, until two numbers in
    a row are left. Where the second is faster by turns, one of these turns is found. Raises as `compile_step` does.
    """
    shared: dict[object, Any] = {}  # passes of other sizes have the same tasks

    @cache
    def steps(tokens: int) -> tuple[Step, Step]:
        one, other = (replace(compile_step(topology, plan(tokens)), shared=shared) for plan in (first, second))
        return one, other

    @cache
    def both(tokens: int) -> tuple[float, float]:
        one, other = (schedule(step, ends=False).seconds for step in steps(tokens))
        return one, other

    def later(tokens: int) -> bool:
        one, other = steps(tokens)
        # An expected time lies between the floor at sustained rates and one task after another.
        if floor(other, "value").seconds > serial(one).seconds * (1 + SURE):
            return False
        if serial(other).seconds * (1 + SURE) < floor(one, "value").seconds:
            return True
        before, after = both(tokens)
        return after <= before

    low, high = 0, 1
    while not later(high):
        if high >= most:
            return Crossover(None, most, both(high))
        low, high = high, min(8 * high, most)
    straight = low > 0
    while high - low > 1:
        middle = (low + high) // 2
        if straight:
            (one, other), (one_later, other_later) = both(low), both(high)
            share = (other - one) / ((other - one) + (one_later - other_later))
            middle = min(max(low + ceil(share * (high - low)), low + 1), high - 1)
        found = later(middle)
        # Where both times are lines the number on it is the first, and one fewer is looked at next.
        straight = not straight or (found and middle < high - 1)
        low, high = (low, middle) if found else (middle, high)
    lacks = missing(steps(high)[1])
    return Crossover(high, most, both(high), both(low) if low else None, lacks)


def of_placements(
    topology: Topology, plan: Plan, first: Placement, second: Placement, most: int = MOST
) -> Crossover:
    """The same of two placements of a plan's model: passes of a prompt from its start, of one sequence."""
    model, _, _, weights, kv = plan.origin

    def at(placement: Placement) -> Callable[[int], Plan]:
        return lambda tokens: plan_model(model, topology, Workload("prefill", 1, 0, prompt=tokens), placement,
                                         weights=weights, kv=kv, overlap=plan.overlap)  # fmt: skip

    return crossover(topology, at(first), at(second), most)


def streaming(topology: Topology, plan: Plan, most: int = MOST) -> Crossover | None:
    """From how many tokens it is faster to stream to a GPU what a plan runs on a CPU; None where nothing is so run,
    or on one without FLOP/s.

    Plans by placement whose layers, or their experts, run on a CPU beside a GPU. The GPU is the one that runs the rest,
    else the first. Attention that alone runs on a CPU has nothing to stream in a pass that starts from no context.
    """
    if plan.origin is None or plan.origin[0].family == STATED:
        return None
    placement: Placement = plan.origin[2]
    if placement.split:
        return None
    ran = [task.ranks or (task.processor,) for block in plan.blocks for task in block.tasks if isinstance(task, Compute)
           and task.time is None and not task.name.startswith(("draft ", "head"))
           and task.name != f"attention on {placement.attention}"]  # fmt: skip
    kinds = {name: one.kind for name, one in topology.processors.items()}
    slow = list(dict.fromkeys(fold(names) for names in ran if kinds[names[0]] == "cpu"))
    fast = list(dict.fromkeys(names for names in ran if kinds[names[0]] == "gpu"))
    if not fast:
        fast += [(name,) for name in sorted(kinds) if kinds[name] == "gpu"][:1]
    if not slow or not fast or any(f"{name}.flops" not in topology.resources for one in slow for name in listed(one)):
        return None  # what runs without FLOP/s takes no time for its arithmetic, however much that is
    gpu = fold(fast[0])
    experts = placement.experts
    if experts is not None:
        experts = replace(experts, compute=gpu, access="copy", numa="", cache=None, prefetch=None)
    moved = replace(placement, compute=gpu, access="copy", experts=experts, numa="")
    try:
        found = of_placements(topology, plan, placement, moved, most)
    except OffloadError:
        return None  # no such way on this machine
    return replace(found, first=" and ".join(slow), second=gpu)
