"""The load floor of a step whose moves may take any routes: what no routing of the same moves beats.

Each move is a commodity from where its tensor lives to where it goes, split as it likes over all ways that the server's
rules allow; computes, reads in place and collectives keep their loads. Least loads over peak rates, as in any floor.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offload.bounds import load_seconds
from offload.lp import ONE, ZERO, Table, rational
from offload.multipath import Multipath, multipath_routed
from offload.plan import at_loads
from offload.rows import RowTable, row_table, to_first_team
from offload.step import Step
from offload.topology import Topology
from offload.topology.routes import Edge, Ways
from offload.topology.shares import DRIVES

ON_THE_WAY = ("link", "limit")  # what a route loads between its ends; the ends' memories are loaded on any route
Pair = tuple[str, str, tuple[str, ...], str]  # source, destination, what the plan has it pass, where the plan begins
Hops = tuple[tuple[str, ...], ...]  # stage by stage: links and switches, then the memory where it ends


@dataclass(frozen=True, slots=True)
class LinkPrice:
    """What a resource's rate is worth: a share of T (they add up to 1), and -dT/dB, the time [s] that one more B/s (or
    FLOP/s) takes off at most."""

    resource: str
    unit: str
    share: float
    seconds_per_rate: float


@dataclass(frozen=True, slots=True)
class WayPart:
    """A part of a split: bytes [B] of each step, by which way, and whether that is the plan's."""

    way: str
    bytes: float
    planned: bool


@dataclass(frozen=True, slots=True)
class Split:
    """How the moves between two memories would go. what : what they move. bytes of each step [B]."""

    what: tuple[str, ...]
    source: str
    destination: str
    bytes: float
    parts: tuple[WayPart, ...]


@dataclass(frozen=True, slots=True)
class AnyRoutes:
    """The floor over any routes [s]: seconds <= T* <= attained, certified; one rational, rounded apart, where `exact`.

    fixed_seconds : the load floor over the plan's own routes. prices : of those that bind, largest share first. cut :
    the resources that together carry all that must pass them, where that proves the floor; else empty. full : resources
    without a price that the split fills all the same: while they are full, more of another may change nothing. splits :
    of the flows that attain it, each pair of memories with moves.
    """

    seconds: float
    attained: float
    exact: bool
    gap: float
    fixed_seconds: float
    prices: tuple[LinkPrice, ...]
    cut: tuple[str, ...]
    full: tuple[str, ...]
    splits: tuple[Split, ...]


def any_routes(step: Step) -> AnyRoutes:
    """The load floor over all routes of a step's moves; never above the load floor over its own (amounts are numbers).

    A way may be staged in any memory but a drive, other accelerators' included; between two devices it leaves NVLink
    and its like only where the server's rules let those two exchange bytes over PCIe. What a move's `via` asks is not
    kept. Raises OffloadError where SciPy is missing.
    """
    table = row_table(step.topology, at_loads(step.plan, "low"))
    moves, ships = _commodities(step, table)
    fixed = _fixed_loads(step, table)
    rates = _rates(step, fixed)
    search = _Search(step.topology, rates)
    pairs = list(ships)
    own = {pair: _planned(table, pair, rates) for pair in pairs}
    given = [(ships[pair], [own[pair][0]]) for pair in pairs]
    given += [(load, [{name: ONE}]) for name, load in fixed.items()]
    alone = [(name, {name: ONE}) for name in fixed]

    def nearest(prices: Table) -> Sequence[tuple[Fraction, Table]]:
        found = {source: search.from_memory(source, prices) for source in {source for source, *_ in pairs}}
        routed = [found[source][destination][:2] for source, destination, *_ in pairs]
        return [*routed, *((prices.get(name, ZERO), use) for name, use in alone)]

    found = multipath_routed(rates, given, nearest)
    return AnyRoutes(
        _below(found.bound), -_below(-found.attained), found.gap == 0, float(found.gap), load_seconds(step).seconds,
        _prices(step, rates, found), found.cut or (),
        tuple(name for name in found.saturated if name not in found.prices),
        _splits(pairs, moves, ships, own, search, found),
    )  # fmt: skip


def _commodities(step: Step, table: RowTable) -> tuple[dict[Pair, dict[str, None]], dict[Pair, Fraction]]:
    """What moves between each pair of memories, and its bytes in an average step, those that surely move.

    What further ranks may find in the page cache surely moves only from where the plan stages it.
    """
    counts = step.counts
    what: dict[Pair, dict[str, None]] = {}
    ships: dict[Pair, Fraction] = {}
    for row, (task, flows) in table.flows.items():
        tensor = table.plan.tensors[task.tensor]
        size, least = (tensor.bytes, tensor.least) if task.bytes is None else (task.bytes, task.least)
        size = size if least is None else least
        first = to_first_team(task, flows)
        for number, (home, destination, share) in enumerate(flows):
            stages = table.route_of(home, destination, task.via).stages
            again = task.whole and number >= first
            sure = next((stage for stage in stages if not table.may_find(task, again, stage)), None)
            if sure is None:
                continue
            pair = (sure.source, destination, task.via, home)  # what is found in the page cache goes on from there
            amount = rational(size if share == 1 else size * share, f'the bytes of "{task.name}"')
            ships[pair] = ships.get(pair, ZERO) + amount * Fraction(counts[row], task.every)
            what.setdefault(pair, {})[tensor.what or tensor.name] = None
    return what, ships


def _fixed_loads(step: Step, table: RowTable) -> dict[str, Fraction]:
    """What the step puts on each resource with a peak whatever the routes, what caches may spare taken off."""
    counts = step.counts
    moved = {row + stage for row, (task, flows) in table.flows.items()
             for stage in range(len(table.route_of(*flows[0][:2], task.via).stages))}  # fmt: skip
    loads: dict[str, Fraction] = {}
    for number, row in enumerate(step.rows):
        for use in row.uses:
            if number not in moved or step.resources[use.resource].kind not in ON_THE_WAY:
                amount = rational(use.least, f'the load of "{row.name}"') * Fraction(counts[number], row.every)
                loads[use.resource] = loads.get(use.resource, ZERO) + amount
    beyond = {name: load - step.resources[name].cache for name, load in loads.items()
              if step.resources[name].peak is not None}  # fmt: skip
    return {name: load for name, load in beyond.items() if load > 0}


def _rates(step: Step, fixed: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Peak rates of what routes and other loads may use; of the step where it changed them."""
    found = {**step.topology.resources, **step.resources}
    return {name: Fraction(one.peak) for name, one in sorted(found.items())
            if one.peak is not None and (one.kind in ON_THE_WAY or name in fixed)}  # fmt: skip


def _planned(table: RowTable, pair: Pair, rates: Table) -> tuple[Table, Hops]:
    """What a byte loads on the plan's own route, and that route."""
    source, destination, via, home = pair
    stages = table.route_of(home, destination, via).stages
    stages = stages[next(place for place, stage in enumerate(stages) if stage.source == source) :]
    use: dict[str, Fraction] = {}
    for stage in stages:
        for name, least, _ in stage.uses:
            if name in rates and table.topology.resources[name].kind in ON_THE_WAY:
                use[name] = use.get(name, ZERO) + Fraction(least)
    return use, tuple((*stage.way, stage.destination) for stage in stages)


# Ways.

State = tuple[str, str, bool]  # node, the memory where this stage began, whether it left NVLink and its like


class _Search:
    """Cheapest ways through a server under prices, by Dijkstra's algorithm; remembers the ways that came up."""

    def __init__(self, topology: Topology, rates: Table):
        self.ways: Ways = topology.ways
        self.rates = rates
        self.seen: dict[tuple[str, str, tuple[tuple[str, Fraction], ...]], Hops] = {}

    def from_memory(self, source: str, prices: Table) -> dict[str, tuple[Fraction, Table, Hops]]:
        """Memory -> the price of the cheapest way there, what a byte loads on it, and the way.

        Of equal prices the way with the fewest links, then the one that is found first in the order of names.
        """
        ways = self.ways
        start: State = (source, source, False)
        costs: dict[State, tuple[Fraction, int]] = {start: (ZERO, 0)}
        before: dict[State, tuple[State, Edge]] = {}
        done: set[State] = set()
        found: dict[str, tuple[Fraction, Table, Hops]] = {}
        heap: list[tuple[Fraction, int, State]] = [(ZERO, 0, start)]
        while heap:
            length, hops, state = heapq.heappop(heap)
            if state in done:
                continue
            done.add(state)
            node, origin, mixed = state
            if node in ways.memories and node != origin:
                if mixed and not ways.is_direct(origin, node):
                    continue
                if node not in found:
                    found[node] = (length, *self._walked(source, state, before))
                if ways.memories[node].kind in DRIVES:
                    continue
                origin, mixed = node, False
            for edge in ways.hops[node]:
                price = sum((prices.get(row, ZERO) for row in edge.rows), ZERO)
                following = (edge.destination, origin, mixed or not edge.is_peer)
                cost = (length + price, hops + (edge.link is not None))
                if edge.destination != origin and (following not in costs or cost < costs[following]):
                    costs[following], before[following] = cost, (state, edge)
                    heapq.heappush(heap, (*cost, following))
        return found

    def _walked(
        self, source: str, state: State, before: Mapping[State, tuple[State, Edge]]
    ) -> tuple[Table, Hops]:
        goal, edges = state[0], []
        while state in before:
            state, edge = before[state]
            edges.append(edge)
        use: dict[str, Fraction] = {}
        stages: list[list[str]] = [[]]
        for edge in reversed(edges):
            for row in edge.rows:
                if row in self.rates:
                    use[row] = use.get(row, ZERO) + ONE
            stages[-1] += [name for name in edge.key if name]
            if edge.destination in self.ways.memories:
                stages.append([])
        hops = tuple(tuple(stage) for stage in stages if stage)
        self.seen.setdefault((source, goal, tuple(sorted(use.items()))), hops)
        return use, hops


def describe_way(source: str, hops: Hops) -> str:
    """A way in words: "dram0 -> pcie1 -> hbm1 (staged) -> nvlink0 -> hbm0"."""
    words = [source]
    for number, stage in enumerate(hops):
        last = number == len(hops) - 1
        words += [*stage[:-1], stage[-1] if last else f"{stage[-1]} (staged)"]
    return " -> ".join(word for index, word in enumerate(words) if not index or word != words[index - 1])


# The answer.


def _prices(step: Step, rates: Table, found: Multipath) -> tuple[LinkPrice, ...]:
    resources = {**step.topology.resources, **step.resources}
    prices = [
        LinkPrice(name, resources[name].unit, float(price * rates[name]), float(found.bound * price))
        for name, price in found.prices.items() if found.bound
    ]
    return tuple(sorted(prices, key=lambda one: (-one.share, one.resource)))


def _splits(
    pairs: Sequence[Pair], moves: Mapping[Pair, Mapping[str, None]], ships: Mapping[Pair, Fraction],
    own: Mapping[Pair, tuple[Table, Hops]], search: _Search, found: Multipath,
) -> tuple[Split, ...]:
    splits = []
    for pair, routes, flows in zip(pairs, found.routes, found.flows, strict=False):  # fixed loads come after
        source, destination, *_ = pair
        planned, hops = own[pair]
        parts = []
        for use, flow in zip(routes, flows, strict=True):
            if flow:
                same = use == planned
                key = (source, destination, tuple(sorted(use.items())))
                parts.append(WayPart(describe_way(source, hops if same else search.seen[key]), float(flow), same))
        parts.sort(key=lambda part: (not part.planned, -part.bytes, part.way))
        splits.append(Split(tuple(moves[pair]), source, destination, float(ships[pair]), tuple(parts)))
    return tuple(splits)


def _below(value: Fraction) -> float:
    """The float at or next below a rational: a floor only rounds down."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)
