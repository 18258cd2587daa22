"""What comes to a processor each step though nothing changes it: weights that could live where they are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offload.plan import Block, Collective, Compute, Plan, Transfer
from offload.topology import Topology


@dataclass(frozen=True, slots=True)
class Brought:
    """A tensor that comes to where it is read in every repetition of a block, or is read there over a link.

    task : the move, or the compute that reads it where it lives. memories : of the processors that read it. each : the
    share of the tensor that comes to every one of them [1]. links : that it is read over, () where it is moved.
    """

    tensor: str
    task: Transfer | Compute
    block: Block
    memories: tuple[str, ...]
    each: float
    links: tuple[str, ...] = ()


def brought(topology: Topology, plan: Plan) -> Iterator[Brought]:
    """What comes to the memory of the processors that read it, each time; also what GPUs read over links in place.

    Of a tensor that a GPU reads in place nothing is told where a part is in its own memory: the two are read at once.
    """
    for block in plan.blocks:
        readers: dict[str, set[str]] = {}
        computes = [task for task in block.tasks if isinstance(task, Compute)]
        for compute in computes:
            for name in compute.reads:
                readers.setdefault(name, set()).update(map(topology.memory_of, compute.ranks or (compute.processor,)))
        moves = [task for task in block.tasks if isinstance(task, Transfer)]
        for task in moves:
            tensor, memories = plan.tensors[task.tensor], task.ranks or (task.to,)
            if readers.get(tensor.name) != set(memories) or tensor.transient:
                continue
            gathered = any(isinstance(one, Collective) and one.kind == "all_gather" and one.tensor == tensor.name
                           and set(one.over) == set(memories) for one in block.tasks)  # fmt: skip
            away = sum(share for memory, share in tensor.home if memory not in memories)
            whole = task.whole or gathered
            yield Brought(tensor.name, task, block, memories, away if whole else away / len(memories))
        moved = {task.tensor for task in moves}
        for compute in computes:
            for name in compute.reads:
                found = None if name in moved else _over_links(topology, plan, compute, name, block)
                if found is not None:
                    yield found


def _over_links(topology: Topology, plan: Plan, task: Compute, name: str, block: Block) -> Brought | None:
    """What GPUs read of a tensor over links, all of it; None where it is not so."""
    tensor, ranks = plan.tensors[name], task.ranks or (task.processor,)
    memories = tuple(topology.memory_of(processor) for processor in ranks)
    if tensor.transient or any(topology.processors[processor].kind != "gpu" for processor in ranks):
        return None
    if any(memory in memories for memory, _ in tensor.home):
        return None
    links: dict[str, None] = {}
    for memory, _ in tensor.home:
        for processor in ranks:
            links |= dict.fromkeys(topology.read_route(memory, processor).stages[0].links)
    each = 1.0 if tensor.same else 1 / len(ranks)
    return Brought(name, task, block, memories, each, tuple(links)) if links else None
