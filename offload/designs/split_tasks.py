"""The tasks of a layer whose rows several processors share: the row out, a part on each, partial rows back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.designs.parts import Part
from offload.designs.split import amounts_of_share
from offload.plan import Block, Task, Tensor

if TYPE_CHECKING:
    from offload.designs.layers import LayerTasks

EMBEDDING = "embedding"  # the task that split layers follow where nothing has run yet


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
        tasks: list[Task] = []
        ends: list[str] = []
        for share in part.shares:
            leads = share.processor == lead
            amounts = amounts_of_share(part.amounts, share.of, part.matrices, leads)
            name = part.name if leads else f"{part.name} on {share.processor}"
            what = f"weights of {share.processor}"
            weights = f"{what} {names}"
            there = design.topology.memory_of(share.processor)
            out = () if leads else design.row_to(there, design.at, row, after=before)
            brought, waits = design.weights.bring(
                weights, share.homes, share.processor, what, amounts, "layer weights",
                (*(task.name for task in out), *(after if leads else ())), access=part.access)
            reads, writes = [weights], []
            if leads and part.attends:
                reads, writes, more, waits = design.brought(amounts, names, repeat, lead, waits, reads)
                brought += more
            tasks += [*out, *brought, design.compute(
                name, share.processor, amounts.flops, format_, tuple(reads), tuple(writes), (*waits, before))]
            if leads:
                ends.append(name)
                continue
            partial = f"partial rows in {there}"
            design.tensors[partial] = Tensor(partial, row, ((there, 1.0),), shared=True, what="partial rows",
                                           transient=True)
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
