"""What a report says of several processors that share a model: what adds up, what does not, and what passes between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offload.designs.homes import home_names
from offload.designs.parallel import parallel_of, teams_in
from offload.designs.placement import LayerHome, Placement, memories_of, runs
from offload.errors import RouteError
from offload.ranges import fold, listed
from offload.topology import Topology
from offload.units import format_bytes


def shared_notes(
    topology: Topology, placement: Placement, homes: Sequence[LayerHome], batch: Any, in_flight: int, row: Any
) -> list[str]:
    """Notes on layers of which several processors have a part, or that run one after another on several.

    row : bytes of the hidden row that passes from one processor to the next.
    """
    notes = _ranks(topology, placement, homes, batch)
    gpus = [name for name in dict.fromkeys(home.processor for home in homes)
            if topology.processors[listed(name)[0]].kind == "gpu"]  # fmt: skip
    if len(gpus) > 1:
        shown = " and ".join([", ".join(gpus[:-1]), gpus[-1]])
        adds = ("capacity adds up, bandwidth does not" if in_flight == 1 else
                f"{in_flight} steps in flight keep them busy at once, and each step takes as long as before")
        notes.append(f"layer split: the layers on {shown} run one after another, so their times add: {adds}")
        if all(memories_of(topology, home.processor) == home.memory for home in homes):
            passes = sum(one.processor != other.processor for one, other in zip(homes, homes[1:], strict=False))
            notes.append(f"between these processors pass {passes} x {format_bytes(row)} of hidden rows a step and "
                         "nothing else: the width of their links hardly matters, latency may")
    return notes + _nvlink(topology, placement, homes)


def _ranks(topology: Topology, placement: Placement, homes: Sequence[LayerHome], batch: Any) -> list[str]:
    asked, teams = parallel_of(placement), teams_in(topology, placement, homes)
    if asked.by == "tensor":
        several = sorted({home.processor for home in homes if len(listed(home.processor)) > 1})
        return [f"{one} work alike: each has an equal part of every matrix and of the KV heads" for one in several]
    notes = []
    head = runs(topology, placement, placement.weights[0][0])
    everywhere = list(dict.fromkeys([*(home.processor for home in homes), head]))
    ranges = [one for one in everywhere if teams.is_own(one)] if asked.replicated else everywhere
    name, count = " and ".join(ranges), len(listed(ranges[0]))
    if asked.replicated:
        whole = "whole layers" if asked.by == "data" else "all of each layer but its experts"
        who = f"each of {name}"
        if teams.replicas < count or len(ranges) > 1:
            parts = [" and ".join(fold(_part(one, place, teams.replicas)) for one in ranges)
                     for place in range(teams.replicas)]  # fmt: skip
            who = f"each of {teams.replicas} replicas ({'; '.join(parts)})"
        notes.append(f"data parallel: {who} has {whole} and {batch // teams.replicas} of {batch} sequences, with their "
                     "KV cache")  # fmt: skip
        if teams.replicas < count:
            notes.append(f"tensor parallel within a replica: each of its {count // teams.replicas} processors has an "
                         "equal part of every matrix and of the KV heads")  # fmt: skip
        for one in [one for one in everywhere if one not in ranges]:
            notes.append(f"{one} runs its layers for all {teams.replicas} replicas: each reads the weights by itself, "
                         "of which there is one copy, and their times add. Expected: the replicas keep step. Floors: "
                         "they need not, and read weights once")
    else:
        notes.append(f"{name} work alike: each has an equal part of all matrices but the experts', and of the KV heads")
    if asked.by == "expert":
        notes.append(f"expert parallel: each of {name} has an equal number of whole experts; ranks are taken to be "
                     "chosen alike (the busiest one sets the pace), and a row is sent once for each expert chosen; "
                     "floors count no row that leaves its rank")  # fmt: skip
    far = sorted({home.memory for home in homes if memories_of(topology, home.processor) != home.memory})
    ranks = f"{count} ranks" if teams.replicas in (1, count) else f"{teams.replicas} replicas"
    if asked.replicated and far and placement.access != "in_place":
        how = (f"each of {count} ranks brings 1/{count} of a layer and gathers the rest from the others"
               if asked.sharded else f"each of {ranks} brings all of a layer: {fold(far)} and what they share on "
               f"the way carry it {teams.replicas} times")  # fmt: skip
        notes.append(f"weights in {fold(far)} are one copy for all: {how}")
    return notes


def _part(processors: str, place: int, count: int) -> list[str]:
    """The processors of one of so many replicas."""
    names = listed(processors)
    size = len(names) // count
    return names[place * size : (place + 1) * size]


def _nvlink(topology: Topology, placement: Placement, homes: Sequence[LayerHome]) -> list[str]:
    """That links between GPUs carry nothing of what is streamed from elsewhere, where no way of it passes one."""
    peers = any(link.technology == "nvlink" for link in topology.links.values())
    if not peers or parallel_of(placement).sharded:
        return []
    ways: dict[str, set[tuple[str, str]]] = {}  # of each home that is streamed, from where to where
    for home in set(homes):
        own = listed(memories_of(topology, home.processor))
        for source in home_names(home.memory):
            if source not in own:
                ways.setdefault(home.memory, set()).update((source, to) for to in own)
    far = sorted(home for home, ends in ways.items() if not any(_by_nvlink(topology, *one) for one in ends))
    if not far:
        return []
    widen = "; with fetch: sharded it would gather them" if parallel_of(placement).replicated else ""
    return [f"weights come from {fold(far)} over host links, which NVLink does not widen: it carries none of "
            f"them{widen}"]


def _by_nvlink(topology: Topology, source: str, destination: str) -> bool:
    """Whether the way between two memories passes a link between GPUs."""
    known, key = topology.ways.known, ("by nvlink", source, destination)
    if key not in known:
        try:
            stages = topology.route(source, destination).stages
        except RouteError:  # told where it is moved
            stages = ()
        known[key] = any(topology.links[name].technology == "nvlink" for stage in stages for name in stage.links)
    found: bool = known[key]
    return found
