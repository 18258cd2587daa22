"""The widest way between a drive and any memory that its bytes may go to, without a look at all of them."""

from __future__ import annotations

import heapq
import math

from offload.errors import RouteError
from offload.topology import Topology
from offload.topology.routes import Edge
from offload.topology.shares import DRIVES

NEAREST = 8  # memories whose ways are looked at, where the links would allow more than the nearest ways have


def widest_way(topology: Topology, drive: str, reads: bool, enough: float) -> tuple[float, str] | None:
    """The narrowest peak [B/s] of a link or a limit on the widest way, and its name; the first way that has `enough`.

    reads : from the drive, else to it. Ways to the nearest memories come first, and no more are looked at than it takes
    to know that none is wider; where the shortest ways are narrower than longer ones, `NEAREST` of them. None where no
    way leads, or no peak is known.
    """
    ways = topology.ways
    memories = [name for name in ways.distances(drive) if topology.memories[name].kind not in DRIVES]
    found: tuple[float, str] | None = None
    most = math.inf
    tried = 0
    for memory in memories:
        way = _narrowest(topology, *((drive, memory) if reads else (memory, drive)))
        if way is None:
            continue
        if found is None or way[0] > found[0]:
            found = way
        if not tried and found[0] < enough:
            most = _bound(topology, drive, reads, memories)
        tried += 1
        if found[0] >= min(enough, most) or tried == NEAREST:
            break
    return found


def _narrowest(topology: Topology, source: str, destination: str) -> tuple[float, str] | None:
    """The lowest peak of a link or a limit on the way, and its name; None where no way leads or no peak is known."""
    try:
        route = topology.route(source, destination)
    except RouteError:
        return None
    uses = [(topology.resources[name], expected) for stage in route.stages for name, _, expected in stage.uses]
    return min(
        (
            (resource.peak / expected, resource.name)
            for resource, expected in uses
            if resource.kind in ("link", "limit") and resource.peak is not None
        ),
        default=None,
    )


def _bound(topology: Topology, drive: str, reads: bool, memories: list[str]) -> float:
    """What no way between a drive and any of some memories exceeds [B/s]: the widest path, of whatever length."""
    ways = topology.ways
    into: dict[str, list[Edge]] = {}
    for edges in ways.hops.values() if not reads else ():
        for edge in edges:
            into.setdefault(edge.destination, []).append(edge)
    widths = {drive: math.inf}
    heap = [(-math.inf, drive)]
    while heap:
        negative, node = heapq.heappop(heap)
        if -negative < widths[node] or (node in topology.memories and node != drive and not ways.may_stage(node)):
            continue
        for edge in ways.hops[node] if reads else into.get(node, ()):
            peaks = [topology.resources[row].peak for row in edge.rows]
            width = min([-negative, *(peak for peak in peaks if peak is not None)])
            following = edge.destination if reads else edge.source
            if width > widths.get(following, 0.0):
                widths[following] = width
                heapq.heappush(heap, (-width, following))
    return max((widths.get(name, 0.0) for name in memories), default=0.0)
