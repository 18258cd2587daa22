"""The offload roofline: work done per second over work done per byte, at every memory and link that a step loads.

A step that does F FLOP and puts L_r bytes on resource r takes at least L_r / B_r, so it does at most
P <= (F / L_r) x B_r FLOP per second: in log-log a line for each resource, the roof of that level (Williams, Waterman,
Patterson 2009; one roof for each memory level as in hierarchical rooflines). Processors are level roofs. The same step
stands at another intensity F / L_r under each roof, at one height: what binds is the roof that it touches. As a batch
grows a plan walks along its roofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offload.bounds import floor, load_seconds
from offload.displayed import Drawing
from offload.errors import PlotError
from offload.ranges import folded, runs
from offload.schedules import schedule
from offload.step import Step, loads

LEAST_SHARE = 0.01  # of a step: a level that never takes as much is left out
MOST_LEVELS = 5
SAME = 1e-3  # relative: the row between layers goes with what is streamed


@dataclass(frozen=True, slots=True)
class Level:
    """A roof. rate : of all its resources together, [B/s] or [FLOP/s]; peak, or where that is not known sustained.

    name : the resources in few words; kind : "link", "memory" or "processor"; certain : whether the rate is a peak.
    """

    name: str
    kind: str
    rate: float
    certain: bool


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a step stands. value : of what is varied; flop : work of a step.

    seconds : its floor; expected : its schedule; amounts : by level [B], of a processor [FLOP]; of memories with a
    cache in front what surely reaches them; binding : the levels
    that bind the floor, of those shown; adds : whether they follow one another, so that their times add.
    """

    value: float
    flop: float
    seconds: float
    expected: float
    amounts: Mapping[str, float]
    binding: tuple[str, ...]
    adds: bool

    def intensity(self, level: str) -> float:
        """FLOP per byte at a level."""
        return self.flop / self.amounts[level]


@dataclass(frozen=True, slots=True)
class Roofline(Drawing):
    """Roofs, and a plan's way beneath them. over : what is varied, as "batch".

    covered : levels that are left out, by name, as another (its value) carries at least the same bytes at no higher a
    rate, so that they never bind.
    """

    over: str
    levels: tuple[Level, ...]
    stands: tuple[Stand, ...]
    covered: Mapping[str, str]

    @property
    def turns(self) -> tuple[Stand, ...]:
        """The first stand at which something else binds than at the one before."""
        return tuple(after for before, after in zip(self.stands, self.stands[1:], strict=False)
                     if before.binding != after.binding)  # fmt: skip


def roofline(steps: Sequence[tuple[float, Step]], over: str = "batch") -> Roofline:
    """The roofs of a step and where it stands, for each (value, step) of what is varied.

    The steps are of one plan: the same resources with the same rates. Raises PlotError where nothing is computed, or no
    level has a known rate.
    """
    shares: dict[str, float] = {}
    known: dict[str, Level] = {}
    stands = []
    for value, step in steps:
        bound, expected = floor(step), schedule(step, ends=False).seconds
        amounts, flop = {}, 0.0
        least, carried = loads(step, least=True), loads(step, least=False)
        taken, certain = load_seconds(step, "value").resource_seconds, load_seconds(step).resource_seconds
        binding = []
        for names in _alike(step, least):
            first = names[0]
            resource = step.resources[first]
            amount = len(names) * (least[first] if resource.peak is None else certain[first] * resource.peak)
            if resource.kind == "processor":
                flop += len(names) * least[first] if resource.unit == "FLOP" else 0.0
            if amount <= 0 or resource.kind not in ("link", "memory", "processor"):
                continue
            rate = resource.peak or (carried[first] / taken[first] if taken[first] > 0 else None)
            if rate is None or resource.kind == "processor" and resource.unit != "FLOP":
                continue  # not known, or what a processor reads at most of its memory
            name = folded(names)
            known.setdefault(name, Level(name, resource.kind, rate * len(names), resource.peak is not None))
            amounts[name] = amount
            shares[name] = max(shares.get(name, 0.0), amount / len(names) / rate / expected if expected else 0.0)
            if set(names) & set(bound.bottleneck):
                binding.append(name)
        if flop <= 0 or bound.seconds <= 0:
            raise PlotError("no figure: a roofline needs a step that computes something and has a floor above 0.")
        stands.append(Stand(value, flop, bound.seconds, expected, amounts, tuple(binding), bound.rule == "cycle"))
    order = sorted(known, key=lambda name: (-shares[name], name))
    kept = [name for name in order if shares[name] >= LEAST_SHARE and known[name].kind != "processor"][:MOST_LEVELS]
    kept += [name for name in order if known[name].kind == "processor" and shares[name] >= LEAST_SHARE]
    if not [name for name in kept if known[name].kind != "processor"]:
        raise PlotError("no figure: no link and no memory that this step loads has a known rate.")
    covered: dict[str, str] = {}
    for name in kept:
        for other in kept:
            if any(name in stand.binding for stand in stands):
                break  # where times add it counts all the same
            if known[name].kind != "processor" and other not in covered and name not in covered and _covers(
                    known[other], known[name], stands):  # fmt: skip
                covered[name] = other
    kept = [name for name in kept if name not in covered]
    stands = [Stand(one.value, one.flop, one.seconds, one.expected,
                    {name: amount for name, amount in one.amounts.items() if name in kept},
                    tuple(name for name in one.binding if name in kept), one.adds) for one in stands]  # fmt: skip
    return Roofline(over, tuple(known[name] for name in kept), tuple(stands), covered)


def _alike(step: Step, least: Mapping[str, float]) -> list[list[str]]:
    """Resources that one level stands for: names that are a range, of one kind, rate and load."""
    groups: dict[object, list[str]] = {}
    for name, resource in step.resources.items():
        key = (resource.kind, resource.unit, resource.peak, tuple(resource.sustained.items()), f"{least[name]:.9g}")
        groups.setdefault(key, []).append(name)
    return [run for group in groups.values() for run in runs(group)]


def _covers(one: Level, other: Level, stands: Sequence[Stand]) -> bool:
    """Whether the roof of one level is always the lower: it carries at least the other's bytes at no higher a rate."""
    if one.name == other.name or one.kind == "processor" or one.certain < other.certain:
        return False
    amounts = [(stand.amounts.get(one.name, 0.0), stand.amounts.get(other.name, 0.0)) for stand in stands]
    more = all(mine >= theirs * (1 - SAME) for mine, theirs in amounts)
    alike = all(mine <= theirs * (1 + SAME) for mine, theirs in amounts)
    if not more or one.rate > other.rate:
        return False
    return one.rate < other.rate or not alike or one.name < other.name
