"""What rates a run proves: who moved at least L in T seconds has at least L / T.

L is the least load of a floor (what caches may spare is taken off), over everything that was timed. Above a resource's
peak rate, one of the two is wrong: the plan moves less than said, or the peak is higher.
"""

from __future__ import annotations

from dataclasses import dataclass

from offload.measured import ROUNDING
from offload.step import loads, sustained_rate
from offload.why.waterfall import Passes

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


def proven(passes: Passes, seconds: float) -> tuple[Proven, ...]:
    """The rate that each resource surely served in the measured time [s], the fullest first."""
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
        stands = ""
        if resource.peak is not None and rate > resource.peak * (1 + ROUNDING):
            stands = ABOVE_PEAK
        elif name in rates and rate > rates[name] * (1 + ROUNDING):
            stands = ABOVE_SUSTAINED
        share = None if resource.peak is None else rate / resource.peak
        found.append(Proven(name, resource.kind, resource.unit, amount, rate, resource.peak, rates.get(name), share,
                            stands))  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-(one.share if one.share is not None else 2.0), one.resource)))
