"""Collectives on a server: what one byte of the buffer puts on each resource, surely and as expected.

Between two ranks bytes take the server's own route; ranks may pass them on. Where an algorithm is named, its flows over
these routes are what happens. Where none is, the ring (or what `collectives.ALGORITHMS` names first) is expected, and
sure is only what every algorithm sends, whoever adds up: a direction, without which some ranks could not tell others
anything, carries what those must send to these (`collectives.across`). Of memories nothing is sure: a sum may be formed
in a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offload.collectives import ROOTED, across, cost, first_of, flows
from offload.errors import PlanError
from offload.ranges import fold
from offload.topology import Topology
from offload.topology.resources import directions_over
from offload.topology.routes import Edge


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of one byte over some memories.

    loads : resource -> (least, expected) bytes. latency [s] as (least, typical): one way at least; all steps.
    sent : what all ranks send [B].
    """

    loads: Mapping[str, tuple[float, float]]
    latency: tuple[float, float]
    sent: float


def exchange(topology: Topology, kind: str, over: tuple[str, ...], algorithm: str | None = None) -> Exchange:
    """What a collective over memories loads; the first of them is the root of a broadcast or a reduce.

    Raises FormulaError for what is no collective or algorithm, RouteError where no way joins ranks that the algorithm
    joins, PlanError where no switch between the ranks adds up and "in_network" asks for one.
    """
    known, key = topology.ways.known, ("exchange", kind, over, algorithm)
    if key not in known:
        known[key] = _exchange(topology, kind, over, algorithm)
    found: Exchange = known[key]
    return found


def exchange_in_groups(
    topology: Topology, kind: str, over: tuple[str, ...], algorithm: str | None, groups: int
) -> tuple[Exchange, float]:
    """Equal runs of memories that each exchange a part of one byte by themselves, and all loads over one group's.

    The second is how many times as long as the fastest group the busiest resource takes for all of them at its peak
    rate: 1 where groups have ways of their own. Raises as `exchange`.
    """
    if groups == 1:
        return exchange(topology, kind, over, algorithm), 1.0
    size = len(over) // groups
    found = [exchange(topology, kind, over[first : first + size], algorithm) for first in range(0, len(over), size)]
    names = dict.fromkeys(name for one in found for name in one.loads)

    def load(name: str, end: int) -> float:
        return sum(one.loads.get(name, (0.0, 0.0))[end] for one in found) / groups

    loads = {name: (load(name, 0), load(name, 1)) for name in names}

    def longest(loads: Mapping[str, tuple[float, float]], end: int) -> float:
        return max((load[end] / (topology.resources[name].peak or float("inf")) for name, load in loads.items()),
                   default=0.0)  # fmt: skip

    alone = [min(longest(one.loads, end) for one in found) / groups for end in (0, 1)]
    apart = max((longest(loads, end) / one for end, one in enumerate(alone) if one > 0), default=1.0)
    latency = (min(one.latency[0] for one in found), max(one.latency[1] for one in found))
    return Exchange(loads, latency, sum(one.sent for one in found) / groups), max(1.0, apart)


def _exchange(topology: Topology, kind: str, over: tuple[str, ...], algorithm: str | None) -> Exchange:
    count = len(over)
    if count < 2:
        raise PlanError("a collective is over two memories or more.")
    sends = flows(kind, algorithm or first_of(kind), count)
    sent = float(sum(flow.share for flow in sends))
    if algorithm == "in_network":
        return _in_network(topology, over, [(flow.source, flow.destination) for flow in sends], float(sends[0].share))
    loads: dict[str, tuple[float, float]] = {}
    latencies = []
    for flow in sends:
        stages = topology.route(over[flow.source], over[flow.destination]).stages
        for stage in stages:
            for name, least, expected in stage.uses:
                certain = least if topology.resources[name].kind != "memory" else 0.0
                known = loads.get(name, (0.0, 0.0))
                loads[name] = (known[0] + certain * float(flow.share), known[1] + expected * float(flow.share))
        latencies.append((sum(stage.latency[0] for stage in stages), sum(stage.latency[1] for stage in stages)))
    if algorithm is not None:
        latency = (min(low for low, _ in latencies), cost(kind, algorithm, count).steps * max(t for _, t in latencies))
        return Exchange(loads, latency, sent)
    pairs = _Pairs(topology, over)
    loads = {name: (pairs.surely(name, kind) if least else 0.0, expected) for name, (least, expected) in loads.items()}
    low, typical = pairs.latency(kind)
    # Reduce-scatter, then all-gather.
    return Exchange(loads, (low, (2 if kind == "all_reduce" else 1) * typical), sent)


def _in_network(topology: Topology, over: Sequence[str], ring: Iterable[tuple[int, int]], share: float) -> Exchange:
    """Each rank's way to a switch that adds up, and from it to each; a rank sends and receives D once at least."""
    ways = topology.ways
    for switch in sorted(name for name, one in topology.switches.items() if one.reduces):
        tried = {ends: ways.find_direct(over[ends[0]], over[ends[1]], (switch,)) for ends in ring}
        found = {ends: edges for ends, edges in tried.items() if edges is not None}
        if len(found) == len(tried):
            break
    else:
        raise PlanError(f"no switch that adds up joins {fold(tuple(over))}: say `reduces: true` of the NVSwitch "
                        "between them if it can, or choose another algorithm.")  # fmt: skip
    loads: dict[str, tuple[float, float]] = {}
    latencies = []
    for (source, destination), edges in found.items():
        for edge in edges:
            for name in edge.rows:
                least, expected = loads.get(name, (0.0, 0.0))
                loads[name] = (least + 1.0, expected + share)
        for memory, access in ((over[source], "read"), (over[destination], "write")):
            for name in ways.port(memory, access):
                loads[name] = (0.0, loads.get(name, (0.0, 0.0))[1] + 1.0)
        latencies.append(_latency(edges))
    sure = {name: (min(least, float(len(_directions(topology, name)))), expected)
            for name, (least, expected) in loads.items()}  # fmt: skip
    latency = (min(low for low, _ in latencies), 2 * max(typical for _, typical in latencies))
    return Exchange(sure, latency, len(over) * share)


def _directions(topology: Topology, name: str) -> tuple[str, ...]:
    """The link directions that load a resource: its own, both where it is half duplex, all that a limit is over."""
    kind = topology.resources[name].kind
    if kind == "limit":
        return directions_over(topology.limits[name], topology.links)
    if kind != "link":
        return ()
    link = topology.links.get(name)
    return (name,) if link is None else (f"{name}.{link.b}", f"{name}.{link.a}")


def _latency(edges: Iterable[Edge]) -> tuple[float, float]:
    links = [edge.link for edge in edges if edge.link is not None]
    return sum(link.latency[0] for link in links), sum(link.latency[1] for link in links)


class _Pairs:
    """The way from each rank to each other one, where there is one without passing another rank."""

    def __init__(self, topology: Topology, over: Sequence[str]):
        self.topology = topology
        self.count = len(over)
        self.edges: dict[tuple[int, int], list[Edge]] = {}
        for a, source in enumerate(over):
            for b, destination in enumerate(over):
                edges = topology.ways.find(source, destination, ()) if a != b else None
                if edges is not None:
                    self.edges[a, b] = edges
        self.users: dict[str, set[tuple[int, int]]] = {}  # of each direction, the pairs whose way passes it
        for ends, edges in self.edges.items():
            for edge in edges:
                if edge.link is not None:
                    self.users.setdefault(f"{edge.link.name}.{edge.destination}", set()).add(ends)
        self.out = [0] * self.count  # of each rank, those that it has a way to, as bits; and those that have one to it
        self.into = [0] * self.count
        for a, b in self.edges:
            self.out[a] |= 1 << b
            self.into[b] |= 1 << a

    def surely(self, name: str, kind: str) -> float:
        """What every algorithm puts on a resource, for each byte of the buffer.

        The sum over its directions, as each carries bytes of its own, or what crosses all of them taken together.
        """
        directions = _directions(self.topology, name)
        apart = sum(self._across({one}, kind) for one in directions)
        return apart if len(directions) == 1 else max(apart, self._across(set(directions), kind))

    def _across(self, directions: set[str], kind: str) -> float:
        """What must pass one of some directions: the most that any set of ranks sends which has no other way out.

        Without them, those that a rank still reaches (itself and whom it can tell, directly or by others) have none,
        nor have all but those that still reach a rank.
        """
        out, into = list(self.out), list(self.into)
        for a, b in set().union(*(self.users.get(one, ()) for one in directions)):
            out[a] &= ~(1 << b)
            into[b] &= ~(1 << a)
        everyone = (1 << self.count) - 1
        closed = {_reached(out, rank) for rank in range(self.count)}
        closed |= {everyone & ~_reached(into, rank) for rank in range(self.count)}
        return float(max((across(kind, self.count, some.bit_count(), root_inside=bool(some & 1))
                          for some in closed - {0, everyone}), default=0))  # fmt: skip

    def latency(self, kind: str) -> tuple[float, float]:
        """The least latency of any way [s], and the typical one until every rank has heard of whom it must.

        Bytes that a link sends last arrive by one way at least, and perhaps by the shortest. Ranks without a way
        between them hear of each other by others.
        """
        each = {ends: _latency(edges) for ends, edges in self.edges.items()}
        low = min(latency[0] for latency in each.values())
        longest = 0.0
        ends = {(b, a) if kind == "reduce" else (a, b): latency[1] for (a, b), latency in each.items()}
        for start in range(1 if kind in ROOTED else self.count):
            straight = [ends[start, rank] for rank in range(self.count) if (start, rank) in ends]
            apart = len(straight) < self.count - 1
            longest = max(longest, *(_shortest(ends, start, self.count) if apart else straight))
        return low, longest


def _reached(following: Sequence[int], start: int) -> int:
    """The ranks that one reaches, itself too, as bits; `following` are those that each reaches at once."""
    seen = left = 1 << start
    everyone = (1 << len(following)) - 1
    while left and seen != everyone:
        rank = left.bit_length() - 1
        new = following[rank] & ~seen
        seen |= new
        left = (left | new) & ~(1 << rank)
    return seen


def _shortest(each: Mapping[tuple[int, int], float], start: int, count: int) -> list[float]:
    """The shortest way from a rank to every other one that it reaches, by others too (Dijkstra's algorithm)."""
    known = {b: latency for (a, b), latency in each.items() if a == start}
    done = {start: 0.0}
    while known:
        nearest = min(known, key=lambda rank: (known[rank], rank))
        done[nearest] = known.pop(nearest)
        for rank in range(count):
            if rank not in done and (nearest, rank) in each:
                known[rank] = min(known.get(rank, float("inf")), done[nearest] + each[nearest, rank])
    return list(done.values())
