"""Amounts and uses of rows put together: parts of amounts, uses of one resource, flows to several ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from offload.plan import Amount
from offload.step import Use
from offload.topology import Topology


def flows_to_ranks(
    sources: list[tuple[str, float]], ranks: tuple[str, ...], whole: bool, team: int = 1, alike: int = 1
) -> list[tuple[str, str, float]]:
    """(source, destination, share of the tensor) of what goes to each rank.

    All of it to each team in turn with `whole`, in equal parts; else an equal part to each. Equal parts in several
    memories pair up with the ranks in order (two sockets feed four GPUs each, or take from them) where the counts allow
    it; else each rank takes a part from every one, as it does of what several ranks get alike.
    """
    count = len(ranks)
    if whole:
        teams = [ranks[first : first + team] for first in range(0, count, team)]
        return [flow for one in teams for flow in flows_to_ranks(sources, one, whole=False, alike=alike)]
    even = len({share for _, share in sources}) == 1 and alike == 1
    if len(sources) > 1 and even and count % len(sources) == 0:
        total = sum(share for _, share in sources)
        return [(sources[index * len(sources) // count][0], rank, total / count) for index, rank in enumerate(ranks)]
    if even and len(sources) % count == 0:
        return [(memory, ranks[index * count // len(sources)], share) for index, (memory, share) in enumerate(sources)]
    return [(memory, rank, share / count) for rank in ranks for memory, share in sources]


def part_of(amount: Amount, share: float) -> Amount:
    """A share of an amount, which stays as it is where that is all of it."""
    return amount if share == 1 else amount * share


def at_ports(uses: list[Use], topology: Topology) -> list[Use]:
    """Uses of which only those of memories are certain: each of several processors might find its pages near."""
    return [use if topology.resources[use.resource].kind == "memory" else replace(use, least=0.0) for use in uses]


def latest(latencies: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The largest (least, typical) latency of what starts together."""
    found = list(latencies)
    return max(low for low, _ in found), max(typical for _, typical in found)


def merged(uses: list[Use]) -> tuple[Use, ...]:
    """One use for each resource and access."""
    found: dict[tuple[str, str], Use] = {}
    for use in uses:
        key = (use.resource, use.access)
        old = found.get(key)
        found[key] = use if old is None else Use(use.resource, old.least + use.least, old.load + use.load, use.access)
    return tuple(found.values())


def larger(a: Amount, b: Amount) -> Amount:
    """The larger of two amounts; arrays broadcast."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    import numpy

    return numpy.maximum(a, b)
