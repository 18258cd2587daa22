"""What rates a run proves: who moved at least L in T seconds has at least L / T.

L is the least load of a floor (what caches may spare is taken off), over everything that was timed. Above a resource's
peak rate, one of the two is wrong: the plan moves less than said, or the peak is higher.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from offload.measured import ROUNDING
from offload.step import loads, sustained_rate
from offload.topology import Interval, Rate, Topology
from offload.why.waterfall import Passes

ANY_RATE = Rate(sustained={"": Interval.exact(1e12)})  # of what has none: loads are the same at every rate
ABOVE_PEAK, ABOVE_SUSTAINED = "above peak", "above sustained"


@dataclass(frozen=True, slots=True)
class Proven:
    """A resource's least load in the measured time [B or FLOP], and the rate that this proves [a second].

    peak : None where it is not known; sustained : of the accesses that were used the fastest. stands : "above peak",
    "above sustained" or "" (neither). share : of the peak.
    """

    resource: str
    kind: str
    unit: str
    least: float
    rate: float
    peak: float | None
    sustained: float | None
    share: float | None
    stands: str


def with_any_rates(topology: Topology) -> tuple[Topology, frozenset[str]]:
    """The server with some rate for what has an unknown one, so that its loads are counted; and these parts' names."""
    open_, memories, links = set(), [], []
    for memory in topology.memories.values():
        found: dict[str, Any] = {key: ANY_RATE for key in ("rate", "read", "write")
                                 if (rate := getattr(memory, key)) is not None and rate.unknown}  # fmt: skip
        memories.append(replace(memory, **found) if found else memory)
        open_ |= {memory.name} if found else set()
    for link in topology.links.values():
        found = {key: ANY_RATE for key in ("forward", "backward") if getattr(link, key).unknown}
        links.append(replace(link, **found) if found else link)
        open_ |= {link.name} if found else set()
    if not open_:
        return topology, frozenset()
    built = Topology.build(
        name=topology.name, title=topology.title, memories=memories, processors=topology.processors.values(),
        switches=topology.switches.values(), links=links, limits=topology.limits.values(), source=topology.source,
    )  # fmt: skip
    return built, frozenset(open_)


def proven(passes: Passes, seconds: float, without_rate: Collection[str] = ()) -> tuple[Proven, ...]:
    """The rate that each resource surely served in the measured time [s], the fullest first,
    those without a peak last.

    without_rate : parts that were given any rate (`with_any_rates`); theirs are not told.
    """
    sums: dict[str, float] = {}
    rates: dict[str, float] = {}
    parts = {}
    for number, (step, count) in enumerate(zip(passes.steps, passes.counts, strict=True)):
        for name, amount in loads(step, least=True, alone=passes.alone(number)).items():
            resource = step.resources[name]
            if resource.unit == "s":
                continue
            parts[name] = resource
            sums[name] = sums.get(name, 0.0) + count * max(amount - resource.cache, 0.0)
        for row in step.rows:
            for use in row.uses:
                resource = step.resources[use.resource]
                known = resource.sustained_at(use.access) is not None or resource.peak is not None
                if resource.unit != "s" and known:
                    rate = sustained_rate(resource, use.access, "high")
                    rates[use.resource] = max(rates.get(use.resource, 0.0), rate)
    found = []
    for name, amount in sums.items():
        if amount <= 0:
            continue
        resource, rate = parts[name], amount / seconds
        if name.split(".")[0] in without_rate:
            resource = replace(resource, peak=None)
            rates.pop(name, None)
        stands = ""
        if resource.peak is not None and rate > resource.peak * (1 + ROUNDING):
            stands = ABOVE_PEAK
        elif name in rates and rate > rates[name] * (1 + ROUNDING):
            stands = ABOVE_SUSTAINED
        share = None if resource.peak is None else rate / resource.peak
        found.append(Proven(name, resource.kind, resource.unit, amount, rate, resource.peak, rates.get(name), share,
                            stands))  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one.share is None, -(one.share or 0.0), -one.least, one.resource)))
