"""Multipath floor on a graph: all routes from source to sink, none of them listed."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offload.errors import OffloadError, shown
from offload.given import listed
from offload.lp import ZERO, Table
from offload.multipath import Multipath, Route, amount_of, multipath_routed, rates_of, use_of
from offload.plan import Amount

Node = Hashable


@dataclass(frozen=True, slots=True)
class Arc:
    """One hop from tail to head, and what a byte on it puts on resources. A half-duplex link is two arcs on one."""

    tail: Node
    head: Node
    use: Route


def multipath_arcs(
    rates: Mapping[str, Amount], arcs: Sequence[Arc], commodities: Sequence[tuple[Amount, Node, Node]]
) -> Multipath:
    """The multipath floor over every route of a graph (see `multipath`); routes are made as prices ask for them.

    commodities : (D_j [B], source, sink). `routes` of the answer are those that came up, the first of each commodity
    the one with the fewest hops. The bound holds for all routes: dist_y(j) is a shortest path (Dijkstra, exact).
    Raises OffloadError where no route leads from a source to its sink, and as `multipath`.
    """
    known = rates_of(rates)
    for number, arc in enumerate(listed("arcs", arcs, "Arcs"), 1):
        if not isinstance(arc, Arc):
            raise OffloadError(f"arc {number} is {shown(arc)}: give Arc(tail, head, use).")
    for number, one in enumerate(listed("commodities", commodities, "(amount, source, sink)"), 1):
        if not isinstance(one, tuple | list) or len(one) != 3:
            raise OffloadError(f"commodity {number} is {shown(one)}: give (amount, source, sink).")
    out: dict[Node, list[tuple[Node, Table]]] = {}
    for number, arc in enumerate(arcs, 1):
        out.setdefault(arc.tail, []).append((arc.head, use_of(arc.use, known, f"arc {number}")))
    for number, (amount, source, sink) in enumerate(commodities, 1):
        amount_of(amount, f"commodity {number}")
        if source == sink:
            raise OffloadError(f"commodity {number} goes from {source} to itself: nothing moves. Leave it out.")

    def nearest(prices: Table | None) -> list[tuple[Fraction, Table]]:
        found: dict[Node, dict[Node, tuple[Fraction, Table]]] = {}
        for _, source, _ in commodities:
            if source not in found:
                found[source] = _shortest(out, source, prices)
        for number, (_, source, sink) in enumerate(commodities, 1):
            if sink not in found[source]:
                raise OffloadError(f"commodity {number}: no route leads from {source} to {sink}. Add an arc, or leave "
                                   "it out.")
        return [found[source][sink] for _, source, sink in commodities]

    first = [(amount, [use]) for (amount, _, _), (_, use) in zip(commodities, nearest(None), strict=True)]
    return multipath_routed(known, first, nearest)


def _shortest(
    out: Mapping[Node, Sequence[tuple[Node, Table]]], source: Node, prices: Table | None
) -> dict[Node, tuple[Fraction, Table]]:
    """Node -> its distance and what one byte on the way there uses; by hops where prices are None. Dijkstra.

    Of equal distances the one with fewer hops, so that the way is simple.
    """
    best: dict[Node, tuple[Fraction, int]] = {source: (ZERO, 0)}
    before: dict[Node, tuple[Node, Table]] = {}
    done: dict[Node, tuple[Fraction, Table]] = {}
    heap: list[tuple[Fraction, int, int, Node]] = [(ZERO, 0, 0, source)]
    count = 0
    while heap:
        length, hops, _, node = heapq.heappop(heap)
        if node in done:
            continue
        use: Table = {}
        if node in before:
            last, added = before[node]
            use = dict(done[last][1])
            for name, a in added.items():
                use[name] = use.get(name, ZERO) + a
        done[node] = (length, use)
        for head, added in out.get(node, ()):
            price = ZERO if prices is None else sum((a * prices.get(name, ZERO) for name, a in added.items()), ZERO)
            reached = (length + price, hops + 1)
            if head not in done and (head not in best or reached < best[head]):
                best[head], before[head] = reached, (node, added)
                count += 1
                heapq.heappush(heap, (*reached, count, head))
    return done
