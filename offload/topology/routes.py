"""Ways through a server: the deterministic route of a byte, and what it loads at each stage.

Switches are cut through; a memory ends a stage. Only host DRAM may stage a copy on its way, never an accelerator's HBM
or a drive. Two devices exchange bytes without host memory only

- over links that are no PCIe (NVLink, xGMI, C2C), whatever the devices;
- GPU to GPU also over PCIe where both have `peer_to_peer: true`;
- drive and GPU where the GPU has `direct_storage: true`.

Every other pair stages in the host memory that makes the whole way shortest. Among ways: fewest stages, then fewest
links, then the widest (the largest of their narrowest rates), then the names along the way, so the order in which a
server is written down never matters. No search visits all pairs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from offload.topology.parts import Limit, Link, Memory, Processor, Resource, Stage, Switch
from offload.topology.resources import directions, directions_over, widest
from offload.topology.shares import DRIVES

PEER_TECHNOLOGIES = frozenset({"nvlink", "xgmi", "c2c"})
START = (0, 0, 0)

State = tuple[str, int, int]  # node, whether the copy is staged (or needs no stage), nodes of `via` already passed
Cost = tuple[int, int, int]  # stages, links, internal edges


@dataclass(frozen=True, slots=True)
class Edge:
    """One hop between nodes: a link's direction, or without a link the inside of a socket.

    rows : the resources that a byte loads on it, the link's direction and the limits over it.
    """

    source: str
    destination: str
    link: Link | None
    width: float
    rows: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return (self.link.name if self.link else "", self.destination)

    @property
    def is_peer(self) -> bool:
        """Whether two devices may always use it between themselves."""
        return self.link is None or self.link.technology in PEER_TECHNOLOGIES


def any_edge(edge: Edge) -> bool:
    return True


def peer_edge(edge: Edge) -> bool:
    return edge.is_peer


class Ways:
    """The hops of a server, ready to search. Built once for each topology."""

    def __init__(
        self,
        memories: Mapping[str, Memory],
        processors: Mapping[str, Processor],
        switches: Mapping[str, Switch],
        links: Mapping[str, Link],
        limits: Mapping[str, Limit],
        resources: Mapping[str, Resource],
    ):
        self.memories = memories
        self.resources = resources
        self.known: dict[object, Any] = {}  # what follows from the ways alone, made at the first use
        self.attached: dict[str, list[Processor]] = {name: [] for name in memories}
        for processor in processors.values():
            self.attached[processor.memory].append(processor)
        self.hops: dict[str, list[Edge]] = {name: [] for name in (*memories, *switches)}
        self._connect(links, limits)

    def _connect(self, links: Mapping[str, Link], limits: Mapping[str, Limit]) -> None:
        capped: dict[str, list[str]] = {}
        for name in sorted(limits):
            for direction in directions_over(limits[name], links):
                capped.setdefault(direction, []).append(name)
        for link in links.values():
            for direction, end, rate in directions(link):
                start = link.a if end == link.b else link.b
                own = link.name if link.half_duplex else direction
                rows = tuple(row for row in (own, *capped.get(direction, ())) if row in self.resources)
                self.hops[start].append(Edge(start, end, link, widest(rate), rows))
        for memory in self.memories.values():
            if memory.at is not None:
                for start, end in ((memory.name, memory.at), (memory.at, memory.name)):
                    self.hops[start].append(Edge(start, end, None, math.inf, ()))

    # What may pass where.

    def is_host(self, name: str) -> bool:
        """Whether a memory is the host's, so that any device reaches it: its kind, or a CPU that works in it."""
        memory, here = self.memories[name], self.attached[name]
        if memory.kind in DRIVES:
            return False
        if memory.kind in ("unified", "cxl") or any(processor.kind == "cpu" for processor in here):
            return True
        return memory.kind == "dram" and not here

    @property
    def hosts(self) -> dict[str, None]:
        """The memories that any device reaches, in the order of the file."""
        if "hosts" not in self.known:
            self.known["hosts"] = {name: None for name in self.memories if self.is_host(name)}
        hosts: dict[str, None] = self.known["hosts"]
        return hosts

    def may_stage(self, name: str) -> bool:
        """Whether a copy may pass through this memory: host DRAM only."""
        return self.memories[name].kind in ("dram", "unified") and self.is_host(name)

    def is_direct(self, source: str, destination: str) -> bool:
        """Whether two memories exchange bytes over any link, PCIe too, without host memory in between."""
        if self.is_host(source) or self.is_host(destination):
            return True
        drives = [name for name in (source, destination) if self.memories[name].kind in DRIVES]
        if len(drives) == 2:
            return False
        if drives:
            device = destination if drives[0] == source else source
            return any(processor.direct_storage for processor in self.attached[device])
        return all(any(p.peer_to_peer is True for p in self.attached[name]) for name in (source, destination))

    # Searches.

    def find(self, source: str, destination: str, via: tuple[str, ...] = ()) -> list[Edge] | None:
        """The hops from one memory to another, staged where the rules demand it; None where no way leads."""
        if self.is_host(source) or self.is_host(destination):
            return self.search(source, destination, via, any_edge, staging=True, must_stage=False)
        return self.find_direct(source, destination, via) or self.search(
            source, destination, via, any_edge, staging=True, must_stage=True
        )

    def find_direct(self, source: str, destination: str, via: tuple[str, ...] = ()) -> list[Edge] | None:
        """The hops from one memory to another without any stage."""
        allowed = any_edge if self.is_direct(source, destination) else peer_edge
        return self.search(source, destination, via, allowed, staging=False, must_stage=False)

    def search(
        self,
        source: str,
        destination: str,
        via: tuple[str, ...],
        allowed: Callable[[Edge], bool],
        *,
        staging: bool,
        must_stage: bool,
    ) -> list[Edge] | None:
        """The best way by (stages, links), then width, then names; Dijkstra's algorithm, then a walk over its ties.

        What starts at a node of `via` has passed it, and those before it.
        """
        behind = max((index for index, node in enumerate(via, start=1) if node == source), default=0)
        start: State = (source, 0 if must_stage else 1, behind)
        goal: State = (destination, 1, len(via))
        costs: dict[State, Cost] = {start: START}
        before: dict[State, list[tuple[State, Edge]]] = {}
        settled: list[State] = []
        heap: list[tuple[Cost, State]] = [(START, start)]
        while heap:
            cost, state = heapq.heappop(heap)
            if cost > costs[state]:
                continue
            if goal in costs and cost >= costs[goal]:
                break
            settled.append(state)
            for following, added, edge in self._steps(state, start, via, allowed, staging, destination):
                total = (cost[0] + added[0], cost[1] + added[1], cost[2] + added[2])
                known = costs.get(following)
                if known is None or total < known:
                    costs[following], before[following] = total, [(state, edge)]
                    heapq.heappush(heap, (total, following))
                elif total == known:
                    before[following].append((state, edge))
        if goal not in costs:
            return None
        return _widest_way(start, goal, [*settled, goal], before)

    def _steps(
        self, state: State, start: State, via: tuple[str, ...], allowed: Callable[[Edge], bool], staging: bool,
        goal: str | None = None,
    ) -> Iterable[tuple[State, Cost, Edge]]:
        node, staged, passed = state
        stage = 0
        if node in self.memories and state != start:
            if not (staging and self.may_stage(node)):
                return
            stage, staged = 1, 1
        for edge in self.hops[node] if goal is None else self._hops_towards(node, goal, staging):
            if allowed(edge):
                now = passed + (passed < len(via) and via[passed] == edge.destination)
                # An internal edge counts last, so that every hop costs something and ties are settled in order.
                yield (edge.destination, staged, now), (stage, *((1, 0) if edge.link else (0, 1))), edge

    def _hops_towards(self, node: str, goal: str, staging: bool) -> list[Edge]:
        """The hops from a node without those to memories where a way to the goal would end: most, at a large switch."""
        key = ("towards", node, staging)
        if key not in self.known:
            inner: list[Edge] = []
            ends: dict[str, list[Edge]] = {}
            for edge in self.hops[node]:
                end = edge.destination
                if end not in self.memories or (staging and self.may_stage(end)):
                    inner.append(edge)
                else:
                    ends.setdefault(end, []).append(edge)
            self.known[key] = inner, ends
        inner, ends = self.known[key]
        return [*inner, *ends[goal]] if goal in ends else inner

    def distances(self, start: str) -> dict[str, tuple[int, int]]:
        """(memories that stage, links) of the shortest way to each memory over any links, the nearest first."""
        key = ("distances", start)
        if key not in self.known:
            self.known[key] = {name: cost for name, cost in self._outwards(start) if name in self.memories}
        costs_to: dict[str, tuple[int, int]] = self.known[key]
        return costs_to

    def nearest_of(self, start: str, hosts: Collection[str]) -> list[str]:
        """Those of some host memories that are the fewest stages, then links, from a memory: from them it is as far."""
        nearest: list[str] = []
        least: tuple[int, int] | None = None
        for name, cost in self._outwards(start):
            if least is not None and cost > least:
                break
            if name in hosts:
                nearest.append(name)
                least = cost
        return sorted(nearest)

    def _outwards(self, start: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Nodes with the (stages, links) of the shortest way to each over any links, the nearest first.

        Whoever stops at one goes over none of its links, of which a large switch has thousands.
        """
        first: State = (start, 1, 0)
        costs: dict[State, Cost] = {first: START}
        heap: list[tuple[Cost, State]] = [(START, first)]
        found: set[str] = {start}
        while heap:
            cost, state = heapq.heappop(heap)
            if cost > costs[state]:
                continue
            if state[0] not in found:
                found.add(state[0])
                yield state[0], cost[:2]
            for following, added, _ in self._steps(state, first, (), any_edge, True):
                total = (cost[0] + added[0], cost[1] + added[1], cost[2] + added[2])
                if following not in costs or total < costs[following]:
                    costs[following] = total
                    heapq.heappush(heap, (total, following))

    def reachable(self, start: str) -> set[str]:
        """The memories that a route leads to from a node."""
        if start not in self.memories or self.is_host(start):
            return {name for name, _ in self._spread(start, any_edge, True, 1) if name in self.memories} - {start}
        walked = self._spread(start, any_edge, True, 0)
        straight = {name for name, _ in self._spread(start, any_edge, False, 1) if name in self.memories}
        found = {name for name, _ in self._spread(start, peer_edge, False, 1)} | {name for name, done in walked if done}
        found |= {name for name, _ in walked if name in self.memories and self.is_host(name)}
        found |= {name for name in straight - {start} if self.is_direct(start, name)}
        return {name for name in found if name in self.memories} - {start}

    def _spread(self, start: str, allowed: Callable[[Edge], bool], staging: bool, staged: int) -> set[tuple[str, int]]:
        first: State = (start, staged, 0)
        seen, heap = {first}, [first]
        while heap:
            for following, _, _ in self._steps(heap.pop(), first, (), allowed, staging):
                if following not in seen:
                    seen.add(following)
                    heap.append(following)
        return {(node, done) for node, done, _ in seen}

    def nearest(self, start: str) -> str | None:
        """The processor fewest links away from a memory, then the one over the widest way, then by name."""
        costs: dict[str, tuple[int, float]] = {start: (0, -math.inf)}
        heap = [(0, -math.inf, start)]
        found: list[tuple[int, float, str]] = []
        while heap:
            links, width, node = heapq.heappop(heap)
            if (links, width) > costs[node]:
                continue
            if found and links > found[0][0]:
                break
            found += [(links, width, processor.name) for processor in self.attached.get(node, ())]
            if node in self.memories and node != start and not self.may_stage(node):
                continue
            for edge in self.hops[node]:
                reached = (links + (edge.link is not None), max(width, -edge.width))
                if reached < costs.get(edge.destination, (math.inf, 0.0)):
                    costs[edge.destination] = reached
                    heapq.heappush(heap, (*reached, edge.destination))
        return min(found)[2] if found else None

    # What a way loads.

    def port(self, memory: str, access: str) -> list[str]:
        """The rows that a byte read from or written to a memory loads; access is "read" or "write"."""
        return [name for name in (memory, f"{memory}.{access}") if name in self.resources]

    def stages(self, edges: list[Edge]) -> tuple[Stage, ...]:
        """The stages of a way: cut at every memory that it passes through."""
        cuts = [index for index, edge in enumerate(edges[:-1], start=1) if edge.destination in self.memories]
        ends = [0, *cuts, len(edges)]
        parts = [edges[first:last] for first, last in zip(ends, ends[1:], strict=False)]
        found = []
        for number, part in enumerate(parts):
            # What a staging memory's port carries may stay in a cache: no certain load there.
            read = [(row, float(number == 0), 1.0) for row in self.port(part[0].source, "read")]
            least = float(number == len(parts) - 1)
            write = [(row, least, 1.0) for row in self.port(part[-1].destination, "write")]
            found.append(stage_of(part[0].source, part[-1].destination, part, before=read, after=write))
        return tuple(found)


def stage_of(
    source: str,
    destination: str,
    edges: list[Edge],
    *,
    before: Iterable[tuple[str, float, float]] = (),
    after: Iterable[tuple[str, float, float]] = (),
) -> Stage:
    """One stage over some hops; before, after : what its two ends load per byte, as (resource, least, expected)."""
    uses: dict[str, tuple[float, float]] = {}
    for row, least, expected in (*before, *((row, 1.0, 1.0) for edge in edges for row in edge.rows), *after):
        known = uses.get(row, (0.0, 0.0))
        uses[row] = (known[0] + least, known[1] + expected)
    links = [edge.link for edge in edges if edge.link is not None]
    way = [name for edge in edges for name in edge.key if name][:-1]
    return Stage(
        source,
        destination,
        tuple(link.name for link in links),
        tuple((row, *amounts) for row, amounts in uses.items()),
        (math.fsum(link.latency[0] for link in links), math.fsum(link.latency[1] for link in links)),
        tuple(way),
    )


def _widest_way(
    start: State, goal: State, settled: list[State], before: Mapping[State, list[tuple[State, Edge]]]
) -> list[Edge]:
    """Among ways of equal cost the widest, then the one whose names come first.

    settled : states in order of cost, each after all that lead to it.
    """
    after: dict[State, list[tuple[State, Edge]]] = {goal: []}
    for state in reversed(settled):
        if state in after:
            for earlier, edge in before.get(state, ()):
                after.setdefault(earlier, []).append((state, edge))
    choice = any(len(ways) > 1 for ways in after.values())  # else no width is looked at
    width = _widths(goal, settled, before) if choice else {}
    way: list[Edge] = []
    state = start
    while state != goal:
        wide = [(edge.key, edge, following) for following, edge in after[state]
                if not choice or min(width[following], edge.width) >= width[start]]  # fmt: skip
        _, edge, state = min(wide, key=lambda option: option[0])
        way.append(edge)
    return way


def _widths(
    goal: State, settled: list[State], before: Mapping[State, list[tuple[State, Edge]]]
) -> dict[State, float]:
    """By state, the width of the widest way from there to the goal."""
    width: dict[State, float] = {goal: math.inf}
    for state in reversed(settled):
        if state in width:
            for earlier, edge in before.get(state, ()):
                width[earlier] = max(width.get(earlier, 0.0), min(width[state], edge.width))
    return width
