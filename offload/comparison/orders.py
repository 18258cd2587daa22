"""Whether the order of two is certain when uncertain rates move within their ends, and what measurement settles it.

What is one figure in both moves together: the same rate of the same source on two servers, or the same load of one
model. Every other figure moves by itself. So the first may be overtaken exactly where, at some point of the common
figures, it takes longer with its own figures at their slow ends than the second with its own at their fast ends. That
is looked for at all ends of the common figures. Where none is found, boxes of them are halved until every one is
settled (branch and bound): times fall as a rate rises and rise with a load, so in a box both are known from corners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from typing import Any

from offload.bounds import load_seconds
from offload.intervals import Figure, figures_of, known
from offload.schedules import schedule
from offload.step import Step, at_end
from offload.topology import Resource

BOXES = 24  # that a pair is split into before the ends of its common figures alone speak for it
MOST_COMMON = 3  # common figures whose ends are tried together; further ones move apart, which settles less
CLOSE = 1e-5  # relative: costs that are one
TOLD = 1e-3  # of a figure's interval: a part that is too small to be told, or to stay open
NO_EFFECT = 1e-8  # relative: what a figure may change and still be left aside
MOST_TRIED = 3  # figures, those with the largest effect, of which one may settle it
TRIES = 3  # at the part of a figure's interval in which it settles the order
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
    """Two neighbours in a ranking, and whether the first is the better one throughout.

    order : "certain" (the first is nowhere worse), "at all ends" (nor at any ends of the figures; between them it is
    not proved), "same" (at no ends do they differ by more than a hundred-thousandth) or "open" (the second is better at
    some). margin : the second's cost over the first's, less 1. common : how many figures they share. measure : of
    an open one, the single figure that settles it in the largest part of its interval; None where none was found.
    sought : whether it was looked for.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    order: str
    margin: float
    common: int
    measure: Measure | None = None
    sought: bool = True


@dataclass
class Side:
    """One of a pair: its step, the cost that it is ranked by, and its open figures by what they share with others.

    ends : the cost with all figures at their fast and at their slow ends, where it is known; seconds : its least time.
    """

    name: tuple[str, str]
    step: Step
    cost: Cost
    ends: tuple[float, float] | None = None
    seconds: float = 0.0
    figures: dict[Key, list[Figure]] = field(init=False)
    _costs: dict[Any, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.figures = {}
        for figure in by_source(self.step):
            self.figures.setdefault(key_of(self.step, figure), []).append(figure)
        if self.ends is not None:
            self._costs[(), False], self._costs[(), True] = self.ends

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

    def effect(self, key: Key) -> float:
        """The most, as a share of the cost, that a figure may change between its ends; 0 where it is not here."""
        if key not in self.figures:
            return 0.0
        step, most = self.step, 0.0
        slow = load_seconds(step, "low").resource_seconds
        if key[0] == "load":
            return 1.0
        for figure in self.figures[key]:
            share = 1 - figure.slow / figure.fast
            most += sum(slow.get(name, 0.0) for name in figure.names) * share
            led = [name for name, one in step.resources.items() if one.follows in figure.names]
            most += sum(slow.get(name, 0.0) for name in led)
        return most / self.seconds if self.seconds > 0 else 1.0


def _corner(key: Key, ends: tuple[float, float], slow: bool) -> float:
    is_load = key[0] == "load"
    return ends[0] if slow != is_load else ends[1]


def _value(figure: Figure) -> float:
    return figure.interval.value if figure.interval.value > 0 else 1.0


def _ends(figure: Figure) -> tuple[float, float]:
    return figure.interval.low / _value(figure), figure.interval.high / _value(figure)


def by_source(step: Step) -> list[Figure]:
    """The open figures of a step; alike rates of several sources are a figure for each source."""
    found = []
    for figure in figures_of(step):
        groups: dict[str, list[str]] = {}
        for name in figure.names:
            groups.setdefault("" if figure.load else step.resources[name].source, []).append(name)
        found += [replace(figure, names=tuple(names)) for names in groups.values()] if len(groups) > 1 else [figure]
    return found


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


def compare_pair(first: Side, second: Side, margin: float, seek: bool = True) -> Pair:
    """Whether the first is certainly no worse than the second. margin : as of `Pair`. seek : what would settle it."""
    names = first.name, second.name
    shared = [key for key in first.figures if key in second.figures]
    if abs(margin) <= CLOSE and signature(first.step) == signature(second.step):
        return Pair(*names, "same", margin, len(shared))
    common = _common(first, second, shared)
    if not _worse(first, second, {}):  # even if nothing moved together
        return Pair(*names, "certain", margin, len(shared))
    corners = _corners(common)
    if any(_worse(first, second, corner) for corner in corners):
        found = _measure(first, second, common) if seek else None
        return Pair(*names, "open", margin, len(shared), found, seek)
    if abs(margin) <= CLOSE and not any(_worse(second, first, corner) for corner in corners):
        return Pair(*names, "same", margin, len(shared))
    order = "certain" if never_worse(first, second, common) else "at all ends"
    return Pair(*names, order, margin, len(shared))


def _common(first: Side, second: Side, shared: Sequence[Key]) -> dict[Key, tuple[float, float]]:
    """The figures that both have, with their ends, as far as they matter: the largest effects first."""
    effects = {key: max(first.effect(key), second.effect(key)) for key in shared}
    kept = sorted((key for key in shared if effects[key] > NO_EFFECT), key=lambda key: -effects[key])[:MOST_COMMON]
    return {key: _ends(first.figures[key][0]) for key in kept}


def _corners(box: Box) -> list[dict[Key, tuple[float, float]]]:
    """All ends of the figures of a box."""
    return [dict(zip(box, ((end, end) for end in ends), strict=True)) for ends in product(*box.values())]


def _worse(one: Side, other: Side, box: Box) -> bool:
    """Whether one may cost more than the other in a box, as far as its corners tell; exact where it is a point."""
    return one.at(box, slow=True) > other.at(box, slow=False) * (1 + CLOSE)


def never_worse(first: Side, second: Side, common: Box) -> bool:
    """Whether it is proved that the first costs no more than the second at any point of their common figures."""
    waiting = [dict(common)]
    for _ in range(BOXES):
        if not waiting:
            return True
        box = waiting.pop(0)
        if not _worse(first, second, box):
            continue
        wide = max(box, key=lambda key: box[key][1] / box[key][0] if box[key][0] > 0 else inf, default=None)
        if wide is None or box[wide][0] == box[wide][1]:
            return False
        low, high = box[wide]
        middle = (low + high) / 2
        waiting += [{**box, wide: (low, middle)}, {**box, wide: (middle, high)}]
    return not waiting


# What would settle it.


def _measure(first: Side, second: Side, common: Box) -> Measure | None:
    """The figure that settles the order in the largest part of its interval, when it alone becomes known."""
    best: tuple[float, Measure] | None = None
    keys = dict.fromkeys([*first.figures, *second.figures])
    needed = 1 - second.at({}, slow=False) / first.at({}, slow=True), 1 - first.at({}, False) / second.at({}, True)
    effects = {key: first.effect(key) + second.effect(key) for key in keys}
    for key in sorted(keys, key=lambda key: -effects[key])[:MOST_TRIED]:
        if effects[key] < min(needed) * 0.5 and key not in common:
            continue  # it changes less than is open
        figure = (first.figures.get(key) or second.figures[key])[0]
        ends = _ends(figure)
        parts = _settled(first, second, {one: common[one] for one in common if one != key}, key, ends)
        share = sum(high - low for low, high in parts.values()) / (ends[1] - ends[0])
        if share <= 0 or (best is not None and share <= best[0] * (1 + 1e-9)):
            continue
        value = _value(figure)
        found = {word: (low * value, high * value) for word, (low, high) in parts.items()}
        sides = tuple((*side.name, tuple(dict.fromkeys(name for one in side.figures[key] for name in one.names)))
                      for side in (first, second) if key in side.figures)  # fmt: skip
        whole = share >= 1 - TOLD
        best = share, Measure(sides, "load" if figure.load else "rate", figure.unit, ends[0] * value, ends[1] * value,
                              found.get("first"), found.get("second"), whole)  # fmt: skip
    return None if best is None else best[1]


def _settled(
    first: Side, second: Side, others: Box, key: Key, ends: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    """By which of two is the better one, the part of a figure's interval in which it is that at all other ends."""
    corners = _corners(others)

    def lead(word: str, at: float) -> float:
        """By how much one surely leads, at the worst ends of the others; below zero where it may not."""
        one, other = (first, second) if word == "first" else (second, first)
        least = inf
        for corner in corners:
            point = {**corner, key: (at, at)}
            least = min(least, other.at(point, slow=False) * (1 + CLOSE) - one.at(point, slow=True))
            if least < 0:
                break
        return least

    found: dict[str, tuple[float, float]] = {}
    for end, far in (ends, ends[::-1]):
        for word in ("first", "second"):
            here = lead(word, end)
            if here < 0 or word in found:
                continue
            there = lead(word, far)
            sure, leads = end, here
            if there >= 0:
                return {word: ends}
            unsure, lacks = far, there
            for number in range(TRIES):  # by the crossing of a line in what a unit of work takes, then by halves
                if number % 2 == 0:
                    slope = leads / (leads - lacks)
                    middle = sure + (unsure - sure) * slope if key[0] == "load" else (
                        1 / (1 / sure + (1 / unsure - 1 / sure) * slope * 0.999))
                else:
                    middle = (sure + unsure) / 2
                reached = lead(word, middle)
                if reached >= 0:
                    sure, leads = middle, reached
                else:
                    unsure, lacks = middle, reached
            if abs(sure - end) > TOLD * (ends[1] - ends[0]):
                found[word] = min(end, sure), max(end, sure)
    return found


def signature(step: Step) -> Any:
    """All that a step's times follow from, without names: two with one signature take the same time whatever it is."""
    places: dict[str, int] = {}
    lanes: dict[str, int] = {}
    keys = {(name, access): key_of(step, figure) for figure in by_source(step) if not figure.load
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


