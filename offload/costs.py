"""What a server costs and draws: its own figure, those of its parts, and their sum where every part has one.

A sum is over memories, processors and switches, and those links that say a figure; a part whose figure is in another
part's says so. Figures of different units (USD, EUR, USD/h) are never added. Values in, values out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from offload.topology import Cost, Interval, Topology

WHATS = ("price", "power")


@dataclass(frozen=True, slots=True)
class PartCost:
    """What a part costs or draws, the whole of a striped set: `count` times `each`."""

    name: str
    each: Cost
    count: int = 1

    @property
    def total(self) -> Cost:
        """That of the whole set."""
        return self.each.scaled(self.count)


@dataclass(frozen=True, slots=True)
class Costs:
    """what : "price" or "power". server : of the whole, as it is stated. parts : those that state one.

    total : the sum of the parts; None where a part lacks one (`lacking`) or where they have several `units`.
    """

    what: str
    server: Cost | None
    parts: tuple[PartCost, ...]
    total: Cost | None
    lacking: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def best(self) -> Cost | None:
        """What to rank by: the server's own figure, else the sum of its parts."""
        return self.server or self.total


def costs_of(topology: Topology, what: str) -> Costs:
    """The prices ("price") or the powers ("power") of a server."""
    parts = tuple(PartCost(name, cost, count) for name, cost, count in _parts(topology, what) if cost is not None)
    lacking = tuple(name for name, cost, _ in _parts(topology, what) if cost is None and name not in topology.links)
    units = tuple(dict.fromkeys(one.each.unit for one in parts if not one.each.included))
    total = None
    if len(units) == 1 and not lacking:
        figures = [one.total.figure for one in parts]
        ends = (math.fsum(getattr(figure, end) for figure in figures) for end in ("low", "value", "high"))
        total = Cost(Interval(*ends), units[0])
    return Costs(what, getattr(topology, what), parts, total, lacking, units)


def _parts(topology: Topology, what: str) -> Iterator[tuple[str, Cost | None, int]]:
    groups: tuple[Mapping[str, Any], ...] = (
        topology.memories, topology.processors, topology.switches, topology.links)  # fmt: skip
    for group in groups:
        for name, part in group.items():
            yield name, getattr(part, what), getattr(part, "count", 1)


def costs_to_json(topology: Topology) -> dict[str, Any]:
    """{"price": ..., "power": ...}: of the server, of each part and the sum; null where there is none."""
    return {what: _to_json(costs_of(topology, what)) for what in WHATS}


def _to_json(costs: Costs) -> dict[str, Any]:
    return {
        "server": cost_to_json(costs.server),
        "parts": [{"name": one.name, "count": one.count, "each": cost_to_json(one.each)} for one in costs.parts],
        "sum": cost_to_json(costs.total),
        "lacking": list(costs.lacking) if costs.parts else [],
    }


def cost_to_json(cost: Cost | None) -> dict[str, Any] | None:
    """{"low", "value", "high", "unit", "source"}; "included" instead of all where another part's figure holds it."""
    if cost is None or cost.included:
        return None if cost is None else {"included": True}
    return {**asdict(cost.figure), "unit": cost.unit, "source": cost.source}
