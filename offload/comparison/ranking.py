"""Many plans on many servers: ranked, with the margin to the next, how sure each place is, and meters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from offload.bounds import Floor
from offload.comparison.changes import Changes, changes_between
from offload.comparison.efforts import FULL, Effort, effort_of, is_searched
from offload.comparison.entries import NO_RATE, Candidate, Entry, entry_of, step_of, times_of, with_ends, with_readings
from offload.comparison.halves import shared_out
from offload.comparison.orders import LEFT_OUT, Pair, at_once, compare_pair, settled
from offload.comparison.readings import per_token, stated_meters
from offload.comparison.sides import Cost, Known, Side
from offload.displayed import Displayed, Pictured
from offload.errors import OffloadError, did_you_mean
from offload.meters import Meter
from offload.schedules import GAINED

BY = ("expected", "floor", "tokens")  # what is ranked by, besides the name of a meter
TRIALS = 5  # schedules of each of a pair that its order takes, about
SEEKING = 20  # those that it takes to find what settles an open one
PROOF = 600.0  # effort that a proof of one pair may take, in costs that are looked at
MOST_SOUGHT = 5  # open pairs, from the best on, of which what would settle them is sought
IN_WORDS = {"expected": "expected time of a step", "floor": "floor of a step", "tokens": "expected tokens/s"}


@dataclass(frozen=True, slots=True)
class Comparison(Displayed, Pictured):
    """What `compare` returns. by : what the ranking is by. ranked : those with a place, the best first; rest : others.

    costs : of each ranked one, what it is ranked by, less is better: seconds, seconds for each token, or what a meter
    shows for each token; as (low, value, high). pairs : of each ranked one and the next. changes : where several plans
    stand on one server, from the first plan that fits to each other.
    """

    by: str
    unit: str
    ranked: tuple[Entry, ...]
    costs: tuple[tuple[float, float, float], ...]
    pairs: tuple[Pair, ...]
    rest: tuple[Entry, ...]
    changes: tuple[Changes, ...]
    meters: tuple[Meter, ...] = ()

    @property
    def any_fits(self) -> bool:
        """Whether any plan fits on any server."""
        return bool(self.ranked) or any(entry.fits or entry.state == NO_RATE for entry in self.rest)

    @property
    def certain(self) -> bool:
        """Whether the whole order is certain."""
        return all(pair.order not in ("open", LEFT_OUT) for pair in self.pairs)


def compare(
    candidates: Sequence[Candidate], *, by: str = "expected", meters: Sequence[Meter] = (), effort: float = FULL,
    processes: int = 1,
) -> Comparison:
    """Rank plans on servers, the best first; those that do not fit or cannot be laid out come after, with the reason.

    by : "expected" or "floor" (time of a step [s]), "tokens" (expected tokens/s), or a meter's name (for each token).
    effort : how much may be spent on ends of expected times and on orders (`efforts`), from the best on; what is left
    out is told (`Entry.exact`, `Pair.order`, `Pair.sought`). processes : how many share the work; it changes nothing.
    Servers that state a rent or a power bring the meters "rent" and "power" along.
    The order of the arguments does not matter, except to `changes`. Raises OffloadError for an unknown `by`, two
    candidates or meters of one name, none at all, and a meter of a part that no server has.

    >>> from offload import compare, load_plan
    >>> from offload.comparison import Candidate
    >>> here = load_plan("examples/by-hand.yaml")
    >>> there = load_plan("examples/by-hand.yaml", topology="gh200")
    >>> found = compare([Candidate("80 layers", "desktop", here), Candidate("80 layers", "gh200", there)])
    >>> [entry.server for entry in found.ranked]
    ['gh200', 'desktop']
    """
    own = stated_meters(one.made[1] for one in candidates if one.made is not None)
    meters = [*meters, *(one for one in own if one.name not in {other.name for other in meters})]
    meter = _check(candidates, by, meters)
    entries = shared_out(lambda one: one.entry or entry_of(one), candidates,
                         1 if all(one.entry for one in candidates) else processes)
    entries = [with_readings(entry, meters) for entry in entries]
    for place, one in enumerate(meters):
        shown = [entry.readings[place] for entry in entries if entry.fits]
        if shown and not one.stated and all(other.why for other in shown):
            raise OffloadError(f'meter "{one.name}": {shown[0].why}')
    cost = _cost(by, meter)
    placed = sorted(((_costs(entry, by, meter), entry) for entry in entries
                     if entry.fits and (meter is None or _shows(entry, meter))),
                    key=lambda one: (one[0][1], one[1].plan, one[1].server))  # fmt: skip
    ranked = [entry for _, entry in placed]
    rest = sorted((entry for entry in entries if not any(entry is one for one in ranked)),
                  key=lambda one: (not one.fits, not one.memory, one.plan, one.server))  # fmt: skip
    budget = Effort(effort)
    if by != "floor" or effort == FULL:
        ranked = _with_ends(ranked, meters, budget, processes)
    costs = [_costs(entry, by, meter) for entry in ranked]
    pairs = _by_floor(ranked, costs) if by == "floor" else _pairs(ranked, costs, by, cost, budget, processes)
    return Comparison(by, _unit(by, meter), tuple(ranked), tuple(costs), tuple(pairs), tuple(rest),
                      tuple(_changes(entries)), tuple(meters))  # fmt: skip


def _with_ends(ranked: Sequence[Entry], meters: Sequence[Meter], budget: Effort, processes: int) -> list[Entry]:
    """Ranked entries with the ends of their expected times, from the best on, for half of what may be spent at most."""
    half = Effort(budget.left / 2)
    due = []
    for place, entry in enumerate(ranked):
        if not entry.exact:
            if not half.take(2 * effort_of(step_of(entry))):
                break
            due.append(place)
    budget.left -= budget.left / 2 - half.left if budget.left < FULL else 0.0
    times = shared_out(lambda place: with_ends(ranked[place]).expected, due, processes)
    found = list(ranked)
    for place, one in zip(due, times, strict=True):
        found[place] = with_readings(replace(ranked[place], expected=one, exact=True), meters)
    return found


def _check(candidates: Sequence[Candidate], by: str, meters: Sequence[Meter]) -> Meter | None:
    """The meter that is ranked by, None where it is none of them."""
    if not candidates:
        raise OffloadError("there is nothing to compare: give a plan and a server.")
    seen = set()
    for one in candidates:
        if (one.plan, one.server) in seen:
            raise OffloadError(f"{one.plan} on {one.server} is given twice. Keep one.")
        seen.add((one.plan, one.server))
    named = {one.name: one for one in meters}
    if len(named) < len(meters):
        twice = next(one.name for one in meters if [other.name for other in meters].count(one.name) > 1)
        raise OffloadError(f'two meters are called "{twice}". Names differ.')
    if by not in (*BY, *named):
        raise OffloadError(f'"{by}" is nothing to rank by. {did_you_mean(by, [*BY, *named])}')
    return None if by in BY else named[by]


def _unit(by: str, meter: Meter | None) -> str:
    return {"tokens": "s/token"}.get(by, "s") if meter is None else f"{meter.unit}/token"


def _cost(by: str, meter: Meter | None) -> Cost:
    if meter is not None:
        return lambda step, seconds: per_token(meter, step, seconds)
    return (lambda step, seconds: seconds / step.plan.tokens) if by == "tokens" else lambda step, seconds: seconds


def _costs(entry: Entry, by: str, meter: Meter | None) -> tuple[float, float, float]:
    if by == "floor":
        return (cast(Floor, entry.floor).seconds,) * 3
    if meter is not None:
        return next(one.per_token for one in entry.readings if one.name == meter.name and one.per_token is not None)
    share = entry.tokens if by == "tokens" else 1
    times = times_of(entry)
    return times.low / share, times.seconds / share, times.high / share


def _shows(entry: Entry, meter: Meter) -> bool:
    return any(one.name == meter.name and one.per_token is not None for one in entry.readings)


def _margin(costs: Sequence[tuple[float, float, float]], place: int) -> float:
    value, other = costs[place][1], costs[place + 1][1]
    return other / value - 1 if value > 0 else 0.0


def _by_floor(ranked: Sequence[Entry], costs: Sequence[tuple[float, float, float]]) -> list[Pair]:
    """Neighbours by their floors, which are exact: peak rates have no ends."""
    return [Pair((one.plan, one.server), (other.plan, other.server),
                 "same" if costs[place] == costs[place + 1] else "certain", _margin(costs, place), 0)
            for place, (one, other) in enumerate(pairwise(ranked))]  # fmt: skip


def _pairs(
    ranked: Sequence[Entry], costs: Sequence[tuple[float, float, float]], by: str, cost: Cost, budget: Effort,
    processes: int,
) -> list[Pair]:
    sides = [
        Side((entry.plan, entry.server), step_of(entry), cost, (low, high) if entry.exact else None,
             times_of(entry).low,
             by in BY, GAINED if is_searched(step_of(entry)) else 0.0)
        for entry, (low, _, high) in zip(ranked, costs, strict=True)
    ]  # fmt: skip
    efforts = [effort_of(step_of(entry)) for entry in ranked]
    found: dict[int, Pair] = {}
    due: list[tuple[int, int]] = []
    for place, (first, second) in enumerate(pairwise(sides)):
        margin, both = _margin(costs, place), efforts[place] + efforts[place + 1]
        if costs[place][2] * (1 + max(first.near, second.near)) < costs[place + 1][0]:
            found[place] = Pair(first.name, second.name, "certain", margin,
                                len(first.figures.keys() & second.figures.keys()))  # fmt: skip
        elif budget.take(both * TRIALS):
            due.append((place, int(PROOF / both)))
        elif seen := at_once(first, second, margin):
            found[place] = Pair(first.name, second.name, seen, margin,
                                len(first.figures.keys() & second.figures.keys()))  # fmt: skip
        else:
            found[place] = Pair(first.name, second.name, LEFT_OUT, margin, 0, None, False)

    def ordered(one: tuple[int, int]) -> tuple[Pair, Known, Known]:
        place, most = one
        first, second = sides[place], sides[place + 1]
        pair = compare_pair(first, second, _margin(costs, place), most=most)
        return pair, first.known, second.known

    for (place, _), (pair, ours, theirs) in zip(due, shared_out(ordered, due, processes), strict=True):
        found[place] = pair
        sides[place].known.update(ours)
        sides[place + 1].known.update(theirs)
    opened = [place for place in range(len(sides) - 1) if found[place].order == "open"][:MOST_SOUGHT]
    sought = [place for place in opened if budget.take((efforts[place] + efforts[place + 1]) * SEEKING)]

    def settle(place: int) -> Pair:
        return settled(found[place], sides[place], sides[place + 1])

    found.update(zip(sought, shared_out(settle, sought, processes), strict=True))
    return [found[place] for place in range(len(sides) - 1)]


def _changes(entries: Sequence[Entry]) -> list[Changes]:
    """On each server from the first plan that fits to each other one."""
    found = []
    for server in dict.fromkeys(entry.server for entry in entries):
        there = [entry for entry in entries if entry.server == server and entry.fits]
        found += [changes_between(there[0], other) for other in there[1:]]
    return found
