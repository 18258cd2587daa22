"""Many plans on many servers: ranked, with the margin to the next, how sure each place is, and meters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload.comparison.changes import Changes, changes_between
from offload.comparison.entries import Candidate, Entry, entry_of
from offload.comparison.orders import Cost, Pair, Side, compare_pair
from offload.comparison.readings import per_token, stated_meters
from offload.errors import OffloadError, did_you_mean
from offload.meters import Meter

BY = ("expected", "floor", "tokens")  # what is ranked by, besides the name of a meter
MOST_SOUGHT = 5  # open pairs, from the best on, of which what would settle them is sought
IN_WORDS = {"expected": "expected time of a step", "floor": "floor of a step", "tokens": "expected tokens/s"}


@dataclass(frozen=True, slots=True)
class Comparison:
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
        return bool(self.ranked) or any(entry.fits for entry in self.rest)

    @property
    def certain(self) -> bool:
        """Whether the whole order is certain."""
        return all(pair.order != "open" for pair in self.pairs)


def compare(candidates: Sequence[Candidate], *, by: str = "expected", meters: Sequence[Meter] = ()) -> Comparison:
    """Rank plans on servers, the best first; those that do not fit or cannot be laid out come after, with the reason.

    by : "expected" or "floor" (time of a step [s]), "tokens" (expected tokens/s), or a meter's name (for each token).
    Servers that state a rent or a power bring the meters "rent" and "power" along.
    The order of the arguments does not matter, except to `changes`. Raises OffloadError for an unknown `by`, two
    candidates or meters of one name, none at all, and a meter of a part that no server has.
    """
    own = stated_meters(one.made[1] for one in candidates if one.made is not None)
    meters = [*meters, *(one for one in own if one.name not in {other.name for other in meters})]
    meter = _check(candidates, by, meters)
    entries = [entry_of(candidate, meters) for candidate in candidates]
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
    costs = [found for found, _ in placed]
    return Comparison(by, _unit(by, meter), tuple(ranked), tuple(costs), tuple(_pairs(ranked, costs, by, cost)),
                      tuple(rest), tuple(_changes(entries)), tuple(meters))  # fmt: skip


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
        return (entry.floor.seconds,) * 3
    if meter is not None:
        return next(one.per_token for one in entry.readings if one.name == meter.name)
    share = entry.tokens if by == "tokens" else 1
    return tuple(seconds / share for seconds in (entry.expected.low, entry.expected.seconds, entry.expected.high))


def _shows(entry: Entry, meter: Meter) -> bool:
    return any(one.name == meter.name and one.per_token is not None for one in entry.readings)


def _pairs(
    ranked: Sequence[Entry], costs: Sequence[tuple[float, float, float]], by: str, cost: Cost
) -> list[Pair]:
    found = []
    sides = [Side((entry.plan, entry.server), entry.step, cost, (low, high), entry.expected.low)
             for entry, (low, _, high) in zip(ranked, costs, strict=True)]  # fmt: skip
    for place in range(len(ranked) - 1):
        (_, value, high), (low, other, _) = costs[place], costs[place + 1]
        margin = other / value - 1 if value > 0 else 0.0
        if by == "floor":  # peak rates have no ends
            names = sides[place].name, sides[place + 1].name
            found.append(Pair(*names, "same" if other == value else "certain", margin, 0))
        elif high < low:
            names = sides[place].name, sides[place + 1].name
            common = len(sides[place].figures.keys() & sides[place + 1].figures.keys())
            found.append(Pair(*names, "certain", margin, common))
        else:
            seek = sum(pair.order == "open" for pair in found) < MOST_SOUGHT
            found.append(compare_pair(sides[place], sides[place + 1], margin, seek))
    return found


def _changes(entries: Sequence[Entry]) -> list[Changes]:
    """On each server from the first plan that fits to each other one."""
    found = []
    for server in dict.fromkeys(entry.server for entry in entries):
        there = [entry for entry in entries if entry.server == server and entry.fits]
        found += [changes_between(there[0], other) for other in there[1:]]
    return found
