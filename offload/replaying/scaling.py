"""The same step with less of everything: bytes and FLOP by one factor, latencies and given times as they are.

Bytes come out as whole pages, which is what drives read past the page cache, also where nothing is scaled down; so the
model and the run have the very same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from offload.plan import Block, Collective, Compute, Plan, Task, Tensor, Transfer, at_loads

PAGE = 4096  # bytes
WORD = 4  # bytes of the numbers that kernels read


def whole_bytes(amount: float) -> int:
    """Bytes as whole pages, the nearest number of them; less than one as whole numbers of 4 bytes; 0 stays 0."""
    if amount <= 0:
        return 0
    unit = PAGE if amount >= PAGE else WORD
    return max(unit, round(amount / unit) * unit)


def scaled(plan: Plan, factor: float) -> Plan:
    """The plan with `factor` of its bytes and FLOP, each tensor's as whole pages. Loads with two ends are at the point.

    factor : above 0, at most 1. Times that are given stay: they are no bytes.
    """
    plan = at_loads(plan, "value")
    tensors = {name: _tensor(one, factor) for name, one in plan.tensors.items()}
    blocks = tuple(Block(tuple(_task(task, factor) for task in block.tasks), block.repeat) for block in plan.blocks)
    held = tuple((memory, part, whole_bytes(amount * factor)) for memory, part, amount in plan.held)
    return replace(plan, tensors=tensors, blocks=blocks, held=held, passes=(), request=None, origin=None)


def _tensor(tensor: Tensor, factor: float) -> Tensor:
    size = whole_bytes(tensor.bytes * factor)
    least = None if tensor.least is None else min(size, tensor.least * factor)
    stored = None if tensor.stored is None else max(whole_bytes(tensor.stored * factor), 0)
    return replace(tensor, bytes=size, least=least, stored=stored)


def _task(task: Task, factor: float) -> Task:
    if isinstance(task, Compute):
        least = None if task.least is None else task.least * factor
        return replace(task, flops=task.flops * factor, least=least)
    if task.bytes is None:
        return _most(task, factor, None)
    size = whole_bytes(task.bytes * factor)
    changed: Any = replace(task, bytes=size, least=None if task.least is None else min(size, task.least * factor))
    return _most(changed, factor, size)


def _most(task: Transfer | Collective, factor: float, size: int | None) -> Task:
    if not isinstance(task, Transfer) or task.most is None:
        return task
    most = whole_bytes(task.most * factor)
    return replace(task, most=most if size is None else max(most, size))
