"""Keys of a placement that change nothing where they stand: found by leaving each out, and told as a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from offload.designs import Experts, Placement
from offload.documents.marks import Document
from offload.documents.nodes import as_written
from offload.errors import OffloadError
from offload.plan import Overlap, Plan, Transfer


def _experts(placed: Placement) -> Experts:
    return cast(Experts, placed.experts)


def _with_experts(placed: Placement, **changes: Any) -> Placement:
    return replace(placed, experts=replace(_experts(placed), **changes))


# Key of the file -> the placement without it. What is refused or noted elsewhere where it says nothing is not here.
WITHOUT: dict[tuple[str, ...], Callable[[Placement], Placement]] = {
    ("placement", "access"): lambda placed: replace(placed, access="copy"),
    ("placement", "host_memory"): lambda placed: replace(placed, host_memory="pinned"),
    ("placement", "via"): lambda placed: replace(placed, via=()),
    ("placement", "numa"): lambda placed: placed if placed.numa == "local" else replace(placed, numa=""),
    ("placement", "experts", "access"): lambda placed: _with_experts(placed, access="copy"),
    ("placement", "experts", "numa"): lambda placed: placed if _experts(placed).numa in ("local", placed.numa)
    else _with_experts(placed, numa=""),
}
PASSED = ("hidden row", "last hidden row", "embedding row", "all-reduce", "all-to-all")  # whose bytes are of a row
NOTHING = "nothing comes from elsewhere that it is of"
WHY = {
    "numa": "of what it is of, nothing is read from the memories of several sockets where it lies",
}  # by a key's last word


def idle_keys(document: Document, placement: Placement, plan: Plan, make: Callable[[Placement], Plan]) -> list[str]:
    """A note for each key that is given and changes nothing of the plan. make : the plan of another placement."""
    notes = [] if document.get(("overlap",)) is None else idle_buffers(plan, "overlap")
    for key, without in WITHOUT.items():
        given = document.get(key)
        if given is None or given == [] or (other := without(placement)) == placement:
            continue
        try:
            same = _moves(make(other)) == _moves(plan)
        except OffloadError:
            continue  # it is needed
        if same:
            notes.append(f"{'.'.join(key)}: {_shown(given)} changes nothing here: {WHY.get(key[-1], NOTHING)}")
    return notes


def idle_row(document: Document, plan: Plan) -> list[str]:
    """A note where stated blocks have a row and all run in one place, so that none passes on."""
    given = document.get(("model", "row"))
    plans = [plan] if plan.request is None else [plan, plan.request.prefill]
    passes = any(tensor.what in PASSED for one in plans for tensor in one.tensors.values())
    if given is None or passes:
        return []
    return [f"model.row: {as_written(given)} changes nothing here: all blocks run on one processor, so none passes on"]


def idle_buffers(plan: Plan, said: str) -> list[str]:
    """A note where a plan has buffers other than by default and no move that takes any. said : what asked for them."""
    if plan.overlap.kind == "none" or plan.overlap == Overlap():
        return []
    plans = [plan] if plan.request is None else [plan, plan.request.prefill]
    taken = any(isinstance(task, Transfer) and not one.tensors[task.tensor].transient for one in plans
                for block in one.blocks for task in block.tasks)  # fmt: skip
    return [] if taken else [f"{said}: {plan.overlap} changes nothing here: nothing is moved that takes a buffer"]


def _moves(plan: Plan) -> Any:
    """What a plan does: tensors with their homes, tasks, and what is held."""
    return (dict(plan.tensors), plan.blocks, plan.held)


def _shown(given: Any) -> str:
    return ", ".join(str(one) for one in given) if isinstance(given, list) else str(given)
