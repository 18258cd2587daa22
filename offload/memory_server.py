"""What a server has for serving: its GPUs' memory, the memories behind it with their peak rates, what it computes in.

A route is taken apart into what every byte on it must pass; only peaks count, so that a time from them is a floor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from offload.describe import gpu_memories, host_link, host_memories
from offload.errors import OffloadError, RouteError
from offload.memory_behind import Behind, Drives, Way
from offload.topology import Route, Topology
from offload.topology.resources import directions
from offload.topology.shares import DRIVES

COMPUTED = {"fp8": ("fp8", "mxfp8"), "fp4": ("nvfp4", "mxfp4")}  # number format -> starts of formats that count on it


@dataclass(frozen=True, slots=True)
class Machine:
    """A server for `offload memory`.

    capacity : of its smallest GPU memory [B]. link : the narrowest from host memory to a GPU, None where its peak is
    not known. behind : host memory and drives. gpus : that it has. unified : the memory that GPU and host have in
    common, None where each has its own.
    """

    capacity: int
    link: Way | None
    behind: Behind
    gpus: int
    unified: str | None = None


def machine_of(server: Topology, gpus: int) -> Machine:
    """A server whose first `gpus` GPUs hold the model. Raises OffloadError for fewer, or of unknown size."""
    near = gpu_memories(server)
    if not near:
        raise OffloadError(f"{server.name} has no GPU. Give the memory: --gpu-memory SIZE.")
    memories = [server.memories[one] for one in near]
    sizes = [one.capacity * one.count for one in memories if one.capacity is not None]
    if len(sizes) < len(memories):
        raise OffloadError(f"{server.name}: a GPU's capacity is not known. Give it: --gpu-memory SIZE.")
    if gpus > len(near):
        have = "1 GPU" if len(near) == 1 else f"{len(near)} GPUs"
        raise OffloadError(f"{server.name} has {have}, and these ranks need {gpus}. Lower --tp, --pp or --ep, or give "
                           "the memory of one GPU: --gpu-memory SIZE.")  # fmt: skip
    links = [found for one in near if (found := host_link(server, one)) is not None]
    link: Way | None = None
    if links and all(one.peak for one in links):
        link = min((Way(one.link, cast(float, one.peak)) for one in links), key=lambda one: one.peak)
    hosts = [one for one in host_memories(server) if one not in near and server.memories[one].kind == "dram"]
    routes = [[_nearest(server, hosts, memory)] for memory in near[:gpus]]
    ways = _ways(server, routes, "host memory", hosts)
    behind = Behind(_capacity(server, hosts), ways, drives=_drives(server, near[:gpus]))
    unified = next((one for one in near if server.memories[one].kind == "unified"), None)
    return Machine(min(sizes), link, behind, len(near), unified)


def _drives(server: Topology, near: list[str]) -> Drives | None:
    """Drives that each of these GPU memories is reached from; those whose size or peak is not known are left out."""
    names, routes = [], []
    for one in server.memories.values():
        if one.kind in DRIVES and one.capacity is not None and _own_peak(server, one.name) is not None:
            own = [_nearest(server, [one.name], memory) for memory in near]
            if None not in own:
                names.append(one.name)
                routes.append(own)
    if not names:
        return None
    return Drives(cast(int, _capacity(server, names)), _ways(server, list(zip(*routes, strict=True)), "drives", names))


def _ways(
    server: Topology, by_rank: Sequence[Sequence[Route | None]], what: str, names: list[str]
) -> tuple[Way, ...]:
    """What bytes to each rank must pass whichever of its routes they take, and the memories that they come from."""
    passed: dict[str, list[int]] = {}
    for rank, own in enumerate(by_rank):
        common = [_rows(server, route) for route in own if route is not None]
        for row in set.intersection(*common) if common else ():
            passed.setdefault(row, []).append(rank)
    rows = [(server.resources[row], tuple(ranks)) for row, ranks in sorted(passed.items())]
    found = [Way(row.name, row.peak, ranks) for row, ranks in rows if row.peak is not None and row.kind != "memory"]
    together = [peak for one in names if (peak := _own_peak(server, one)) is not None]
    if names and len(together) == len(names):
        found.append(Way(f"{names[0]} read" if len(names) == 1 else f"all {what} together", math.fsum(together)))
    return tuple(found)


def _own_peak(server: Topology, name: str) -> float | None:
    """The peak at which a memory gives bytes: of its port and, where it hangs on one link alone, of that link."""
    rows = list(server.ways.port(name, "read"))
    links = server.links_at(name)
    if len(links) == 1 and server.memories[name].at is None:
        link = links[0]
        rows += [link.name] if link.half_duplex else [row for row, end, _ in directions(link) if end != name]
    peaks = (server.resources[row].peak for row in rows if row in server.resources)
    return min((peak for peak in peaks if peak is not None), default=None)


def _rows(server: Topology, route: Route) -> set[str]:
    """What each byte on a route loads at least once."""
    return {row for stage in route.stages for row, least, _ in stage.uses if least >= 1 and row in server.resources}


def _nearest(server: Topology, sources: list[str], memory: str) -> Route | None:
    """The route to a memory from the nearest of some others; None where none leads there."""
    found = []
    if set(sources) <= server.ways.hosts.keys():
        sources = server.ways.nearest_of(memory, set(sources))
    for source in sources:
        try:
            found.append(server.route(source, memory))
        except RouteError:
            continue
    return min(found, key=lambda one: (len(one.stages), len(one.links), one.stages[0].source), default=None)


def _capacity(server: Topology, names: Iterable[str]) -> int | None:
    sizes = [(server.memories[name].capacity, server.memories[name].count) for name in names]
    known = [size * count for size, count in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


def format_notes(server: Topology, weights: str | None, kv: str) -> tuple[str, ...]:
    """What of the formats of weights and KV the GPUs have no arithmetic for, and what that means; in words.

    A server that states no FLOP/s of its GPUs is not judged.
    """
    rates = [one.flops for one in server.processors.values() if one.kind == "gpu"]
    if not rates or not all(rates):
        return ()
    found = []
    for what, format_ in (("weights", weights), ("a KV cache", kv)):
        need = next((need for need, starts in COMPUTED.items() if (format_ or "").startswith(starts)), None)
        if need is not None and any(need not in flops for flops in rates):
            found.append(f"{server.name} states no {need} arithmetic of its GPU: {what} in {format_} would be stored "
                         "so, and converted to 16 bits for computing; some engines refuse it")  # fmt: skip
    return tuple(found)
