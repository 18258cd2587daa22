"""How weights come to where they are used: read where they are, fetched, through a page cache, or gathered by ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from offload.designs import parallel
from offload.designs.homes import reads_in_place, shares_of_home
from offload.designs.page_cache import PASSES
from offload.designs.parts import Piece
from offload.designs.placement import Placement, memories_of
from offload.designs.teams import groups_of
from offload.errors import PlanError
from offload.plan import Task, Tensor
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
        self, piece: Piece, tensor: str, processor: str, *, homes: tuple[tuple[str, float], ...] | None = None,
        after: tuple[str, ...] = (), buffers: int | None = None, copies: int = 1,
    ) -> tuple[list[Task], tuple[str, ...]]:
        """The tasks that bring a piece of weights to where a processor reads it, and what its compute waits for.

        tensor : the name it gets. homes : (memory, share) where they are not those of the piece's memory; a page cache
        changes where bytes are when a step starts. What is not in the processor's own memory is fetched after `after`,
        unless it is read in place. copies : replicas, each of which reads all of it; the piece is of one.
        """
        design, cache, own = self.design, self.design.cache, memories_of(self.topology, processor)
        teams = design.teams
        shared = copies > 1 and not teams.is_own(processor)
        if homes is None:
            homes = shares_of_home(self.topology, piece.memory, listed(processor)[0])
        tasks: list[Task] = []
        passed = self.placement.host_memory
        if cache is not None and any(self.topology.memories[name].kind in DRIVES for name, _ in homes):
            chosen = piece.paged is not None
            homes = cache.homes(self.topology, homes, cache.dense_stays and not chosen)
            passed = passed if passed.startswith(PASSES) else PASSES
            read = (cache.read_part(piece.name, tensor, piece.paged, piece.surely_paged) if chosen
                    else cache.read(piece.name, tensor, piece.size, piece.surely_moved))  # fmt: skip
            if read is not None:
                tasks.append(replace(read, buffers=buffers, after=after if chosen else ()))
        waits = tuple(task.name for task in tasks)
        at = [cache.memory] if waits and cache is not None else [name for name, _ in homes]
        far = [name for name in at if name not in listed(own)]
        drives = [one for one in far if self.topology.memories[one].kind in DRIVES]
        if piece.access == "in_place" and drives:
            apart = piece.what.startswith("experts") and self.placement.experts is not None
            key = "placement.experts.access" if apart else "placement.access"
            raise PlanError(f"{key}: {drives[0]} is a drive, which no processor reads in place. Write "
                            "`copy`, or keep its pages: page_cache: dram0.")
        if copies > 1 and 0 < len(far) < len(at):
            raise PlanError(f"{parallel.KEY}: replicas have whole layers, and a part of each layer lies in {far[0]}. "
                            "Place whole layers, or write by: tensor.")
        if shared and far and not reads_in_place(self.topology, listed(processor)[0], far):
            raise PlanError(f"placement.weights: {processor} runs what lives in {far[0]} for {copies} replicas, and "
                            f"each would bring it by itself. Place it in {own}, or name the replicas' GPUs as compute.")
        there = not far or piece.access == "in_place" or reads_in_place(self.topology, listed(processor)[0], far)
        found = parallel.weights_tensor(tensor, piece, homes, copies, not far and not shared, there, shared)
        design.tensors[tensor] = self._by_sockets(found, piece, own)
        if there:
            return tasks, waits
        name, sharded = f"fetch {piece.name} to {own}", copies > 1 and design.ranks_by.sharded
        moved = piece.size if piece.access == "copy" and piece.moved is None else piece.moved
        via = () if set(far) == set(self.placement.via[-1:]) else self.placement.via  # what starts there has passed all
        tasks.append(design.move(name, tensor, own, via=via, access=passed, buffers=buffers,
                                 after=(*waits, *after), bytes=moved, least=piece.surely_moved, most=piece.most,
                                 whole=copies > 1 and not sharded,
                                 team=teams.team(processor) if copies > 1 and not sharded else 1))
        if sharded:
            tasks.append(parallel.gather(self.placement, piece.name, tensor, groups_of(
                listed(own), "all_gather", teams, processor), (name,), moved, piece.surely_moved))
        return tasks, tuple(task.name for task in tasks[len(waits):])

    def _by_sockets(self, tensor: Tensor, piece: Piece, own: str) -> Tensor:
        """The weights in memories of several sockets as their NUMA policy says."""
        experts = self.placement.experts
        numa = self.placement.numa if piece.what.startswith(("layer weights", "experts")) else ""
        if experts is not None and experts.numa and piece.what.startswith("experts"):
            numa = experts.numa
        count = len(listed(piece.memory))
        if not numa or count == 1 or piece.memory != own:
            return tensor
        if any(self.topology.memories[name].kind not in ("dram", "cxl") for name in listed(own)):
            return tensor
        self.design.numa = True
        stored = tensor.stored
        if numa == "duplicate":
            stored = count * (tensor.bytes if stored is None else stored)
        return replace(tensor, stored=stored, interleaved=numa == "interleave")


def check_numa(placement: Placement, design: LayerTasks) -> None:
    """Raises PlanError where a NUMA policy is asked for that nothing follows."""
    experts = placement.experts.numa if placement.experts is not None else ""
    for key, numa in (("placement.numa", placement.numa), ("placement.experts.numa", experts)):
        if numa and not design.numa:
            raise PlanError(f"{key}: {numa} is a policy of weights in the memories of several sockets whose CPUs run "
                            "them, and there are none here. Write a range of memories, as {dram0..1: rest}, or drop "
                            "it (what is streamed from several memories comes in equal parts from each).")
