"""The tasks of a layer whose rows several processors share: the row out, a part on each, partial rows back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from offload.designs.kv_tasks import Kept
from offload.designs.parts import Part, Piece
from offload.designs.placement import LayerHome, Placement
from offload.designs.split import amounts_of_share, is_split, shares_of_layer
from offload.errors import PlanError
from offload.models import Model, layer_flops_of, layers_of
from offload.plan import Block, Task, Tensor
from offload.topology import Topology

if TYPE_CHECKING:
    from offload.designs.layers import LayerTasks

EMBEDDING = "embedding"  # the task that split layers follow where nothing has run yet


def shared_layers(
    topology: Topology, model: Model, placement: Placement, homes: Sequence[LayerHome],
    layers: Sequence[tuple[Part, ...]], tokens: Any,
) -> list[tuple[Part, ...]]:
    """The parts of layers whose rows several processors share; others run as they are."""
    if placement.experts is not None:
        raise PlanError("placement.split: with experts placed apart a layer is no longer one: drop one of the two.")
    if placement.tensors:
        raise PlanError("placement.split: with tensors placed by pattern a layer is not one: drop one of the two.")
    if cost := next((cost.name for cost in placement.costs if cost.each == "hand-over"), ""):
        raise PlanError(f'placement.split: rows pass between processors all the time, so what "{cost}" takes at each '
                        "hand-over is not counted here. Write it `each: layer`.")
    known: dict[tuple[Any, ...], tuple[Part, ...]] = {}
    found = []
    for home, parts, layer in zip(homes, layers, layers_of(model), strict=True):
        key = (home, id(parts), id(layer))
        if key not in known:
            known[key] = parts
            if is_split(topology, placement.split, home.memory):
                shares = shares_of_layer(topology, placement.split, home.memory)
                known[key] = (replace(parts[0], shares=shares, matrices=tokens * layer_flops_of(layer)),)
        found.append(known[key])
    return found


class SplitTasks:
    """Makes the tasks of split layers; tensors go to those of `design`."""

    def __init__(self, design: LayerTasks):
        self.design = design

    def start(self, processor: str, opening: tuple[Task, ...]) -> Block:
        """What split layers follow where nothing has run yet: the embedding's row has come."""
        self.design.last = EMBEDDING
        after = tuple(task.name for task in opening)
        return Block((*opening, self.design.compute(EMBEDDING, processor, after=after)))

    def shared(self, part: Part, names: str, repeat: int, format_: str, after: tuple[str, ...]) -> list[Task]:
        """A layer whose rows several processors share: the row out, each one's part at the same time, the sums back."""
        design = self.design
        lead = part.shares[0].processor
        own, before, row = design.topology.memory_of(lead), f"previous.{design.last}", part.sums * design.row
        # Of a prompt's last layer rows go out once for all keys and values, and come back for outputs alone.
        needed = None if design.surely is None else design.row
        back = None if design.surely is None else row * design.surely
        tasks: list[Task] = []
        ends: list[str] = []
        for share in part.shares:
            leads = share.processor == lead
            amounts = amounts_of_share(part.amounts, share.of, part.matrices, leads)
            name = part.name if leads else f"{part.name} on {share.processor}"
            piece = Piece(f"weights of {share.processor}", part.home.memory, part.pieces[0].access, amounts.size,
                          amounts.touched, amounts.surely,
                          surely_moved=None if part.pieces[0].surely_moved is None else amounts.surely)
            weights = f"{piece.name} {names}"
            there = design.topology.memory_of(share.processor)
            out = () if leads else design.row_to(there, design.at, row, after=before, least=needed)
            brought, waits = design.weights.bring(piece, weights, share.processor, homes=share.homes)
            waits = (*(task.name for task in out), *(after if leads else ()), *waits)
            kept = design.kv.keep(part, amounts, names, repeat, own) if leads and part.attends else Kept()
            waits = (*waits, *(task.name for task in kept.ahead))
            work = design.compute(name, share.processor, amounts.flops, format_, (weights, *kept.reads),
                                  tuple(kept.writes), (*waits, before))
            tasks += [*out, *brought, *kept.ahead, work, *kept.then]
            if leads:
                ends.append(name)
                continue
            partial = f"{'' if back is None else 'last '}partial rows in {there}"
            design.tensors[partial] = Tensor(partial, row, ((there, 1.0),), shared=True, what="partial rows",
                                             transient=True, least=back)
            if _some(row):
                tasks.append(design.move(f"partial rows of {share.processor} to {own}", partial, own, after=(name,)))
                ends.append(tasks[-1].name)
            ends.append(name)
        design.last = "sums"
        tasks.append(design.compute(design.last, lead, after=tuple(ends)))
        return tasks


def _some(amount: Any) -> bool:
    """Whether there is anything; arrays hold something."""
    return hasattr(amount, "shape") or amount > 0
