"""Whether the order of two is certain when uncertain rates move within their ends, and what measurement settles it.

What is one figure in both moves together: the same rate of the same source on two servers, or the same load of one
model. Every other figure moves by itself. So the first may be overtaken exactly where, at some point of the common
figures, it takes longer with its own figures at their slow ends than the second with its own at their fast ends. Times
fall as a rate rises and rise with a load, so within a box of the common figures both are known from its corners; boxes
are halved until every one is settled (branch and bound).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offload.intervals import Figure, figures_of, known
from offload.schedules import schedule
from offload.step import Step, at_end
from offload.topology import Resource

BOXES = 200  # that a pair is split into before it stays open
CLOSE = 1e-12  # relative: costs that are one
HALVINGS = 7  # of a figure's interval, as the part of it is sought in which it settles the order
Cost = Callable[[Step, float], float]  # of a step with single figures and its time [s]: less is better
Key = tuple[Any, ...]
Box = Mapping[Key, tuple[float, float]]  # of each figure its share of the value, low and high


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure whose measurement settles which of two is better. low, high : its interval now [B/s, FLOP/s, B or FLOP].

    sides : the entries (plan, server) that have it, with its names there. first, second : the part of the interval in
    which the first, or the second, is certainly the better one; None where there is none. settles : whether the order
    is known whatever it turns out to be (at most a point aside).
    """

    sides: tuple[tuple[str, str, tuple[str, ...]], ...]
    what: str
    unit: str
    low: float
    high: float
    first: tuple[float, float] | None
    second: tuple[float, float] | None
    settles: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbours in a ranking. order : "certain" (the first is nowhere worse), "same" (both are one step) or "open".

    shown : of an open one, whether a point was found where the second is better; else it was not settled in so many
    boxes. margin : the second's cost over the first's, less 1. common : how many figures they share. measure : of an
    open one, the single figure that settles it in the largest part of its interval; None where none was found.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    order: str
    margin: float
    common: int
    shown: bool = True
    measure: Measure | None = None


@dataclass
class Side:
    """One of a pair: its step, the cost that it is ranked by, and its open figures by what they share with others."""

    name: tuple[str, str]
    step: Step
    cost: Cost
    figures: dict[Key, list[Figure]] = field(init=False)
    _costs: dict[Any, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.figures = {}
        for figure in figures_of(self.step):
            self.figures.setdefault(key_of(self.step, figure), []).append(figure)

    def at(self, box: Box, slow: bool) -> float:
        """The cost with the figures of a box at its slow or its fast corner, and all others at that end too."""
        point = tuple(sorted((key, _corner(key, ends, slow)) for key, ends in box.items() if key in self.figures))
        if (point, slow) not in self._costs:
            step = self.step
            for key, share in point:
                for figure in self.figures[key]:
                    step = known(step, figure, _value(figure) * share)
            step = at_end(step, "low" if slow else "high")
            self._costs[point, slow] = self.cost(step, schedule(step, ends=False).seconds)
        return self._costs[point, slow]


def _corner(key: Key, ends: tuple[float, float], slow: bool) -> float:
    is_load = key[0] == "load"
    return ends[0] if slow != is_load else ends[1]


def _value(figure: Figure) -> float:
    return figure.interval.value if figure.interval.value > 0 else 1.0


def _ends(figure: Figure) -> tuple[float, float]:
    return figure.interval.low / _value(figure), figure.interval.high / _value(figure)


def key_of(step: Step, figure: Figure) -> Key:
    """What a figure is: figures of two steps with one key move together.

    A rate is known by its source, its kind, its access and the shape of its interval; one without a source by its
    server and name. A load is known by its tensor or task and its ends.
    """
    low, high = (float(f"{end:.9g}") for end in _ends(figure))
    if figure.load:
        return "load", figure.names[0], figure.unit, f"{figure.interval}", low, high
    resource = step.resources[figure.names[0]]
    if resource.source:
        return "rate", resource.source, resource.kind, resource.unit, ", ".join(figure.accesses), low, high
    return "own", step.topology.name, figure.names[0], resource.unit, ", ".join(figure.accesses), low, high


def compare_pair(first: Side, second: Side, margin: float) -> Pair:
    """Whether the first is certainly no worse than the second. margin : as of `Pair`."""
    common = {key: _ends(ones[0]) for key, ones in first.figures.items() if key in second.figures}
    names = first.name, second.name
    if abs(margin) <= CLOSE and signature(first.step) == signature(second.step):
        return Pair(*names, "same", margin, len(common))
    overtaken = overtakes(second, first, common)
    if overtaken is False:
        return Pair(*names, "certain", margin, len(common))
    return Pair(*names, "open", margin, len(common), overtaken is True, _measure(first, second, common))


def overtakes(one: Side, other: Side, box: Box) -> bool | None:
    """Whether one costs less than the other at some point of a box of figures, all others free; None where not settled.

    box : the figures that both have, and any that is fixed to a part of its interval. With no open figure in it the
    answer is exact.
    """
    waiting = [dict(box)]
    for _ in range(BOXES):
        if not waiting:
            return False
        box = waiting.pop(0)
        if one.at(box, slow=False) >= other.at(box, slow=True) * (1 - CLOSE):
            continue
        middle = {key: (low + high) / 2 for key, (low, high) in box.items()}
        point = {key: (at, at) for key, at in middle.items()}
        if one.at(point, slow=False) < other.at(point, slow=True) * (1 - CLOSE):
            return True
        wide = max(box, key=lambda key: box[key][1] - box[key][0], default=None)
        if wide is None or box[wide][0] == box[wide][1]:
            return None
        low, high = box[wide]
        waiting += [{**box, wide: (low, middle[wide])}, {**box, wide: (middle[wide], high)}]
    return None


def _measure(first: Side, second: Side, common: Box) -> Measure | None:
    """The figure that settles the order in the largest part of its interval, when it alone becomes known."""
    best: tuple[float, Measure] | None = None
    for key in dict.fromkeys([*first.figures, *second.figures]):
        figure = (first.figures.get(key) or second.figures[key])[0]
        low, high = _ends(figure)
        parts = _settled(first, second, {**common}, key, (low, high))
        share = sum(b - a for a, b, _ in parts) / (high - low)
        if share <= 0:
            continue
        alone = not [one for one in {*first.figures, *second.figures} if one != key]
        whole = len(parts) == 1 and parts[0][:2] == (low, high)
        value = _value(figure)
        found = {word: (a * value, b * value) for a, b, word in parts}
        sides = tuple((*side.name, tuple(dict.fromkeys(name for one in side.figures[key] for name in one.names)))
                      for side in (first, second) if key in side.figures)  # fmt: skip
        measure = Measure(sides, "load" if figure.load else "rate", figure.unit, low * value, high * value,
                          found.get("first"), found.get("second"), whole or (alone and len(parts) == 2))
        if best is None or share > best[0] * (1 + 1e-9):
            best = share, measure
    return None if best is None else best[1]


def _settled(
    first: Side, second: Side, common: dict[Key, tuple[float, float]], key: Key, ends: tuple[float, float]
) -> list[tuple[float, float, str]]:
    """Parts of a figure's interval, from either end, in which the order is certain: (low, high, which is better)."""

    def better(low: float, high: float) -> str:
        box = {**common, key: (low, high)}
        if overtakes(second, first, box) is False:
            return "first"
        return "second" if overtakes(first, second, box) is False else ""

    low, high = ends
    found = []
    for end, other in ((low, high), (high, low)):
        word = better(end, end)
        if not word:
            continue
        sure, not_sure = end, other
        if better(*ends) == word:
            return [(low, high, word)]
        for _ in range(HALVINGS):
            middle = (sure + not_sure) / 2
            if better(min(end, middle), max(end, middle)) == word:
                sure = middle
            else:
                not_sure = middle
        if sure != end:
            found.append((min(end, sure), max(end, sure), word))
    if len(found) == 2 and found[0][2] == found[1][2]:  # the same at both ends: the larger part is told
        found = [max(found, key=lambda part: part[1] - part[0])]
    return found


def signature(step: Step) -> Any:
    """All that a step's times follow from, without names: two with one signature take the same time whatever it is."""
    places: dict[str, int] = {}
    lanes: dict[str, int] = {}
    keys = {(name, access): key_of(step, figure) for figure in figures_of(step) if not figure.load
            for name in figure.names for access in figure.accesses}  # fmt: skip
    rows = tuple(
        (lanes.setdefault(row.lane, len(lanes)), row.transfer, row.latency, row.every, row.urgent, row.apart,
         tuple((places.setdefault(use.resource, len(places)), use.access, use.least, use.load, use.fewest, use.most)
               for use in row.uses))
        for row in step.rows
    )  # fmt: skip
    resources = tuple(_served(step.resources[name], name, keys) for name in places)
    slots = tuple((one.fetches, one.releases, one.buffers) for one in step.slots)
    return (rows, resources, step.instances, step.waits, slots, step.wraps, step.first_compute, step.last_compute,
            step.plan.overlap, step.plan.in_flight, step.plan.tokens)


def _served(one: Resource, name: str, keys: Mapping[tuple[str, str], Key]) -> Any:
    sustained = tuple(sorted((access, rate, keys.get((name, access))) for access, rate in one.sustained.items()))
    return one.kind, one.unit, one.cache, one.peak, sustained, bool(one.follows)


