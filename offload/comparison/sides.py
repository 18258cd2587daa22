"""One of two that are compared: its cost anywhere within its open figures, and which of these are whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from offload.bounds import load_seconds
from offload.intervals import Figure, figures_of, known
from offload.schedules import schedule
from offload.step import Step, at_end
from offload.topology import Resource

Cost = Callable[[Step, float], float]  # of a step with single figures and its time [s]: less is better
Key = tuple[Any, ...]
Box = Mapping[Key, tuple[float, float]]  # of each figure its share of the value, low and high
Known = dict[tuple[tuple[tuple[Key, float], ...], bool], float]  # cost by corner, slow or fast


@dataclass
class Side:
    """One of a pair: its step, the cost that it is ranked by, and its open figures by what they share with others.

    ends : the cost with all figures at their fast and at their slow ends, where it is known; seconds : its least time.
    by_time : the cost is the time, or the time for each token. near : to which part of it the cost is found; a schedule
    that is searched for may miss a shorter one by so much, and then be longer though a rate is higher.
    """

    name: tuple[str, str]
    step: Step
    cost: Cost
    ends: tuple[float, float] | None = None
    seconds: float = 0.0
    by_time: bool = True
    near: float = 0.0
    figures: dict[Key, list[Figure]] = field(init=False)
    known: Known = field(default_factory=dict, init=False)  # costs that were worked out

    def __post_init__(self) -> None:
        self.figures = {}
        for figure in by_source(self.step):
            self.figures.setdefault(key_of(self.step, figure), []).append(figure)
        if self.ends is not None:
            self.known[(), False], self.known[(), True] = self.ends

    def at(self, box: Box, slow: bool) -> float:
        """The cost with the figures of a box at its slow or its fast corner, and all others at that end too."""
        point = tuple(sorted((key, _corner(key, ends, slow)) for key, ends in box.items() if key in self.figures))
        if (point, slow) not in self.known:
            step = self.step
            for key, share in point:
                for figure in self.figures[key]:
                    step = known(step, figure, value_of(figure) * share)
            step = at_end(step, "low" if slow else "high")
            self.known[point, slow] = self.cost(step, schedule(step, ends=False).seconds)
        return self.known[point, slow]

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


def value_of(figure: Figure) -> float:
    return figure.interval.value if figure.interval.value > 0 else 1.0


def ends_of(figure: Figure) -> tuple[float, float]:
    return figure.interval.low / value_of(figure), figure.interval.high / value_of(figure)


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
    low, high = (float(f"{end:.9g}") for end in ends_of(figure))
    if figure.load:
        return "load", figure.names[0], figure.unit, f"{figure.interval}", low, high
    resource = step.resources[figure.names[0]]
    if resource.source:
        return "rate", resource.source, resource.kind, resource.unit, ", ".join(figure.accesses), low, high
    return "own", step.topology.name, figure.names[0], resource.unit, ", ".join(figure.accesses), low, high


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
