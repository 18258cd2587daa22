"""How weights come to where they are used: read where they are, fetched, through a page cache, or gathered by ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from offload.designs import parallel
from offload.designs.amounts import Amounts
from offload.designs.homes import reads_in_place
from offload.designs.page_cache import PASSES
from offload.designs.placement import memories_of
from offload.errors import PlanError
from offload.plan import Task
from offload.ranges import listed
from offload.topology.shares import DRIVES

if TYPE_CHECKING:
    from offload.designs.layers import LayerTasks


class WeightTasks:
    """Makes the tasks of weights; tensors go to those of `design`."""

    def __init__(self, design: LayerTasks):
        self.design = design
        self.topology = design.topology
        self.placement = design.placement

    def bring(
        self, weights: str, homes: tuple[tuple[str, float], ...], processor: str, what: str, amounts: Amounts,
        title: str, after: tuple[str, ...], *, access: str = "copy", buffers: int | None = None, copies: int = 1,
    ) -> tuple[list[Task], tuple[str, ...]]:
        """The tasks that bring a tensor to where a processor reads it, and what its compute waits for.

        homes : (memory, share) as placed; a page cache changes where bytes are when a step starts. What is not in the
        processor's own memory is fetched, unless it is read in place. copies : replicas, each of which reads all of it;
        amounts are of one.
        """
        design, cache = self.design, self.design.cache
        own = memories_of(self.topology, processor)
        tasks: list[Task] = []
        passed = self.placement.host_memory
        if cache is not None and any(self.topology.memories[name].kind in DRIVES for name, _ in homes):
            homes = cache.homes(self.topology, homes)
            passed = passed if passed.startswith(PASSES) else PASSES
            if (read := cache.read(what, weights, amounts.size)) is not None:
                tasks.append(replace(read, buffers=buffers))
        waits = tuple(task.name for task in tasks)
        at = [cache.memory] if waits else [name for name, _ in homes]
        far = [name for name in at if name not in listed(own)]
        drives = [one for one in far if self.topology.memories[one].kind in DRIVES]
        if access == "in_place" and drives:
            raise PlanError(f"placement.access: {drives[0]} is a drive, which no processor reads in place. Write "
                            "`copy`, or keep its pages: page_cache: dram0.")
        if copies > 1 and 0 < len(far) < len(at):
            raise PlanError(f"{parallel.KEY}: replicas have whole layers, and a part of each layer lies in {far[0]}. "
                            "Place whole layers, or write by: tensor.")
        there = not far or access == "in_place" or reads_in_place(self.topology, listed(processor)[0], far)
        design.tensors[weights] = parallel.weights_tensor(weights, title, amounts, homes, copies, not far, there)
        if there:
            return tasks, (*after, *waits)
        name = f"fetch {what} to {own}"
        chosen, sharded = access == "on_demand", copies > 1 and design.ranks_by.sharded
        moved = None if chosen else amounts.size
        tasks.append(design.move(name, weights, own, via=self.placement.via, access=passed, buffers=buffers,
                                 after=(*waits, *(after if chosen else ())), bytes=moved,
                                 whole=copies > 1 and not sharded))
        after = (*after, name)
        if sharded:
            tasks.append(parallel.gather(self.placement, what, weights, own, (name,), moved))
            after = (*after, tasks[-1].name)
        return tasks, after
