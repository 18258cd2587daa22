"""What the slots of a step's moves hold where other steps of the same request bring more by the same moves.

A decode step stands for the mean of a request's steps. Its buffers also serve the prompt, whose tokens choose more
experts, and the last step, which has the longest context.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from offload.plan import Block, Plan, Transfer


def most_by_move(plan: Plan) -> dict[str, Any]:
    """Of each move that takes slots, by name, the most bytes that one brings [B]."""
    found: dict[str, Any] = {}
    for block in plan.blocks:
        for task in block.tasks:
            if isinstance(task, Transfer) and not task.into and not plan.tensors[task.tensor].transient:
                size = plan.tensors[task.tensor].bytes if task.bytes is None else task.bytes
                size = size if task.most is None else larger(size, task.most)
                found[task.name] = larger(found[task.name], size) if task.name in found else size
    return found


def with_slots_for(plan: Plan, others: Iterable[Plan]) -> Plan:
    """The plan with slots that also hold what moves of the same names bring in other steps of the request.

    Steps with moves that the plan has not are kept with it as its `passes`.
    """
    others = tuple(others)
    most = own = most_by_move(plan)
    for other in others:
        there = most_by_move(other)
        most = {name: larger(size, there[name]) if name in there else size for name, size in most.items()}
    passes = tuple(one for other in others for one in (replace(other, passes=()), *other.passes)
                   if most_by_move(one).keys() - own.keys())  # fmt: skip
    if passes:
        plan = replace(plan, passes=passes)
    grown = {name for name in most if most[name] is not own[name] and not _same(most[name], own[name])}
    if not grown:
        return plan
    blocks = tuple(Block(tuple(replace(task, most=most[task.name]) if isinstance(task, Transfer) and task.name in grown
                               else task for task in block.tasks), block.repeat) for block in plan.blocks)  # fmt: skip
    return replace(plan, blocks=blocks)


def fetches_kv(plan: Plan) -> bool:
    """Whether a step moves keys and values to where they are read, more of them the longer its context."""
    return any(isinstance(task, Transfer) and plan.tensors[task.tensor].what == "KV cache"
               for block in plan.blocks for task in block.tasks)  # fmt: skip


def larger(a: Any, b: Any) -> Any:
    """The larger of two amounts; arrays broadcast."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    import numpy

    return numpy.maximum(a, b)


def _same(one: Any, other: Any) -> bool:
    return not hasattr(one, "shape") and not hasattr(other, "shape") and one == other
