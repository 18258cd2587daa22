"""Lanes: how the tasks of a step queue and share resources, as events whose recurrence gives a schedule.

The transfers of one name queue in a lane, and so do the computes of a processor. Lanes that a resource can serve side
by side at their own speed run side by side. Where it cannot, there are several ways to share it, and each is attained:

- queue: bulk transfers that compete queue in one lane, in the order of the plan, or in the order in which they would be
  ready if nothing competed; computes beside them are slowed by what may run beside them (two contended times);
- beside: competing bulk transfers all run at once, each slowed by the factor by which together they ask too much;
- yield: they all run at once, the lane with most to do at its own speed, each other one slowed by those before it;
- exclusive: whatever competes, computes too, queues in one lane, so that nothing is slowed.

Small state that is urgent (a hidden row) never waits for bulk: it runs at once, and bulk and computes yield to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload.errors import PlanError
from offload.events import Events, queue, take_slots
from offload.plan import UNLIMITED
from offload.step import Row, Step, remembered, seconds_of_rows
from offload.tracing import key_of, largest, total, traced

INFINITE = float("inf")
WAYS = ("queue", "ready", "beside", "yield", "exclusive")
FULL = 1 + 1e-12  # of a resource's rate
FEW, MANY = 32, 128  # lanes whose windows are found one by one; lanes of which they are found at once
KEPT = 64  # orders of a step's tasks whose windows are kept


class LaneLoads:
    """What a lane puts on a resource, place by place: seconds, and the share of its rate that each task takes.

    total : all seconds. fastest : the largest share.
    """

    def __init__(self, loads: list[float], rates: list[float]):
        self.length = len(loads)
        self.total = total(loads)
        self.fastest = largest(0.0, *rates)
        self._largest = (lambda values: largest(*values)) if traced(*loads, *rates) else max
        self._loads, self._rates = 2 * loads, 2 * rates  # two steps, so that what goes on into the next is one piece
        self._known: dict[tuple[int, int], tuple[float, float]] = {}

    def between(self, first: int, many: int) -> tuple[float, float]:
        """Seconds of so many places from one on, fewer than the lane has, and the largest share among them."""
        key = (first % self.length, many)
        if key not in self._known:
            piece = slice(key[0], key[0] + many)
            self._known[key] = total(self._loads[piece]), self._largest(self._rates[piece])
        return self._known[key]


Rival = tuple[list[tuple[float, float]], LaneLoads]  # a lane that goes first on a resource: its windows, what it puts


class Lanes:
    """A step's lanes under one way of sharing and a number of buffers (None: the plan's), or at most so many.

    step : with single figures (`at_end`), for where lanes compete follows from them.
    events : what waits for what. plain : whether no lanes compete, so that every way is the same. Raises PlanError
    where the buffers can never be given back.
    """

    def __init__(self, step: Step, buffers: int | None, way: str, most: int | None = None):
        self.step = step
        self.way = way
        self.named = remembered(step, "lanes", lambda: _named_lanes(step))
        self.rates = remembered(step, "lanes' rates", lambda: {
            name: _largest_rates(step, lane) for name, lane in self.named.items()})
        groups = self._groups()
        self.plain = all(len(group) == 1 for group in groups)
        order = list(range(len(step.instances)))
        if way in ("ready", "exclusive"):
            starts = self._starts(buffers, most)
            order.sort(key=starts.__getitem__)  # stable: of equal ones the earlier first
        self.order = order
        place = {i: index for index, i in enumerate(order)}.__getitem__
        self.lanes = [sorted((i for name in group for i in self.named[name]), key=place) for group in groups]
        self.rank = [_rank(step.rows[step.instances[lane[0]]]) for lane in self.lanes]
        self.priority = self._priorities()
        self.levels = key_of(tuple(self.priority))
        self.events = _events(step, buffers, most, self.lanes, order)
        self.stretch = self._stretch()
        # By row: seconds on each resource, all of them when nothing but its own rank slows it, and its rank.
        self.times = seconds_of_rows(step, "value")
        self.works = [largest(0.0, *times.values()) * slowed
                      for times, slowed in zip(self.times, self.stretch, strict=True)]  # fmt: skip
        self.ranks = [_rank(row) for row in step.rows]
        self.delays = [row.latency[1] for row in step.rows]
        self._earlier: dict[object, set[int]] = {}
        self._loaded: dict[str, list[tuple[int, LaneLoads]]] = {}
        self._users: dict[tuple[int, str], list[int]] | None = None
        self._windows: dict[int, list[tuple[float, float]]] = {}
        self._found: dict[tuple[int, ...], list[tuple[float, float]]] | None = None  # by a lane's instances
        self._contentions: dict[int, list[list[tuple[float, float, float, bool]]]] = {}

    def _groups(self) -> list[list[str]]:
        """Names of lanes that queue as one."""
        ranks = {name: _rank(self.step.rows[self.step.instances[lane[0]]]) for name, lane in self.named.items()}
        joining = {"beside": (), "yield": (), "exclusive": (1, 2)}.get(self.way, (1,))
        groups = [[name] for name in self.named]
        merged = True
        while merged:
            merged = False
            for resource in sorted({resource for shares in self.rates.values() for resource in shares}):
                users = [group for group in groups if ranks[group[0]] in joining
                         and any(resource in self.rates[name] for name in group)]  # fmt: skip
                asked = total(largest(*(self.rates[name].get(resource, 0.0) for name in group)) for group in users)
                if len(users) > 1 and asked > FULL:
                    groups = [group for group in groups if group not in users] + [sum(users, [])]
                    merged = True
        return groups

    def _priorities(self) -> list[tuple[int, float, int]]:
        """Lanes yield to those of a lower number: small urgent state, then bulk transfers, then computes."""
        solo = _solo(self.step) if self.way == "yield" else []
        return [
            (1, -total(solo[i] for i in lane), number) if self.way == "yield" and rank == 1 else (rank, 0.0, 0)
            for number, (lane, rank) in enumerate(zip(self.lanes, self.rank, strict=True))
        ]

    def _starts(self, buffers: int | None, most: int | None) -> list[float]:
        """When each instance would start if lanes did not compete: the order in which a lane then serves them."""
        seconds = _solo(self.step)
        order = range(len(self.step.instances))
        return _events(self.step, buffers, most, list(self.named.values()), order).starts(seconds)

    def _stretch(self) -> list[float]:
        """By what each row is slowed where all lanes of its rank run at once: urgent ones always, bulk if `beside`."""
        asked: dict[tuple[int, str], float] = {}
        for name, lane in self.named.items():
            rank = _rank(self.step.rows[self.step.instances[lane[0]]])
            for resource, rate in self.rates[name].items():
                asked[rank, resource] = asked.get((rank, resource), 0.0) + rate
        slowed = (0, 1) if self.way == "beside" else (0,)
        return [
            largest(1.0, *(asked.get((_rank(row), use.resource), 0.0) for use in row.uses))
            if _rank(row) in slowed else 1.0
            for row in self.step.rows
        ]

    def period(self, seconds: Sequence[float]) -> float:
        """The period of back-to-back steps, from seconds by instance [s]."""
        return self.events.period([seconds[i] for i in self.order])

    def cold(self, seconds: Sequence[float]) -> float:
        """One step alone, from empty buffers [s]."""
        return self.events.cold([seconds[i] for i in self.order])

    def transfers_alone(self) -> float:
        """The period of the transfers by themselves, without limit on buffers [s]."""
        seconds = self.seconds(fastest=False, transfers_only=True)
        alone = [total(seconds[i] for i in lane if self.step.rows[self.step.instances[i]].transfer)
                 for lane in self.lanes]  # fmt: skip
        return largest(*alone)

    def seconds(self, *, fastest: bool, transfers_only: bool = False) -> list[float]:
        """Seconds of each instance with what may run beside it.

        Two contended times, each attainable: the instance's own load and all loads that may run beside it, over the
        rate; or for what yields (`fastest`) its own load over the rate that is left beside the fastest of them.
        Infinite where nothing is left.
        """
        step = self.step
        result = [0.0] * len(step.instances)
        most = largest if traced(*self.works, *self.stretch) else max  # of what is not traced the same, and faster
        for number, lane in enumerate(self.lanes):
            yields = self.way == "yield"
            contended = self._contended(number) if self._those_before(number) else None
            for place, i in enumerate(lane):
                row = step.instances[i]
                rank = self.ranks[row]
                alone = work = self.works[row]
                if contended is not None and rank and not (transfers_only and rank == 2):
                    for own, beside, left, crowded in contended[place]:
                        if crowded:  # others run on beside it: it stands still while rivals run
                            work = most(work, alone + beside)
                        elif fastest and (rank == 2 or yields):
                            work = most(work, own / left if left > 0 else INFINITE)
                        else:
                            work = most(work, own * self.stretch[row] + beside)
                result[i] = step.rows[row].latency[1] + work
        return result

    def _contended(self, number: int) -> list[list[tuple[float, float, float, bool]]]:
        """For each place of a lane, of each resource that lanes before it load too: seconds of its own, `_beside`, and
        whether the resource is crowded. Found once, for it is the same whatever yields.
        """
        if number not in self._contentions:
            rivals, crowded = self._rivals(number), self._crowded(number)
            found = []
            for i in self.lanes[number]:
                times = self.times[self.step.instances[i]]
                found.append([(own, *_beside(i, others), name in crowded) for name, others in rivals.items()
                              if (own := times.get(name, 0.0)) > 0])
            self._contentions[number] = found
        return self._contentions[number]

    def _rivals(self, own: int) -> dict[str, list[Rival]]:
        """For each resource of a lane, the other lanes that load it and go before it."""
        names = sorted({name for i in self.lanes[own] for name in self.times[self.step.instances[i]]})
        earlier = self._those_before(own)
        found: dict[str, list[Rival]] = {}
        for name in names if earlier else ():
            rivals = [(self.window(number), loads) for number, loads in self._loading(name) if number in earlier]
            if rivals:
                found[name] = rivals
        return found

    def _loading(self, name: str) -> list[tuple[int, LaneLoads]]:
        """The lanes that load a resource, with what they put on it."""
        if name not in self._loaded:
            # Of each row: seconds on the resource, and the share of its rate that the task takes.
            loads = [times.get(name, 0.0) for times in self.times]
            rates = [load / work if work else 0.0 for load, work in zip(loads, self.works, strict=True)]
            of_lanes = []
            for number, lane in enumerate(self.lanes):
                rows = [self.step.instances[i] for i in lane]
                found = LaneLoads([loads[row] for row in rows], [rates[row] for row in rows])
                if found.total > 0:
                    of_lanes.append((number, found))
            self._loaded[name] = of_lanes
        return self._loaded[name]

    def _before(self, number: int, own: int) -> bool:
        """Whether a lane goes before another that competes with it, so that the other yields."""
        if self.way == "exclusive":
            return self.rank[number] == 0
        return self.priority[number] < self.priority[own] or self.rank[number] == self.rank[own] == 2

    def _those_before(self, own: int) -> set[int]:
        """The other lanes that go before a lane."""
        mine = self.levels[own]
        if mine not in self._earlier:  # the same for all of one priority, but for the lane itself
            self._earlier[mine] = {number for number in range(len(self.lanes)) if self._before(number, own)}
        return self._earlier[mine] - {own}

    def _crowded(self, own: int) -> set[str]:
        """Resources that other lanes load at their own speed beside this one: neither of them yields to the other."""
        if self.way == "yield":  # those that come later yield
            return set()
        if self._users is None:
            self._uses = [{use.resource for i in lane for use in self.step.rows[self.step.instances[i]].uses}
                          for lane in self.lanes]  # fmt: skip
            self._users = {}
            for number, names in enumerate(self._uses):
                for name in names:
                    self._users.setdefault((self.rank[number], name), []).append(number)
        found: set[str] = set()
        for (rank, name), users in self._users.items():
            # Lanes of one rank go before another alike, so two that are not this one tell of all of them.
            if rank and any(number != own and not self._before(number, own) and not self._before(own, number)
                            for number in users[:2]):  # fmt: skip
                found.add(name)
        return found

    def unhindered(self, seconds: Sequence[float]) -> bool:
        """Whether nothing is slowed by what runs beside it."""
        return list(seconds) == _solo(self.step)

    def longest(self) -> float:
        """The most that any queue takes if nothing is slowed: no way of sharing is shorter [s]."""
        solo = _solo(self.step)
        return largest(0.0, *(total(solo[i] for i in lane) for lane in self.named.values()))

    def window(self, number: int) -> list[tuple[float, float]]:
        """window(lane)[i]: the places of a lane strictly between which nothing is ordered before or after i.

        Places count on through steps (place + step * length). A lane is a queue, so what must come before i ends at
        some place and what must come after it begins at another.
        """
        if number not in self._windows:
            if self._found is None:  # kept for steps of other rates, where tasks wait for each other as here
                kept, key = self.step.shared.setdefault("windows", {}), (tuple(self.order), self.events.before)
                if key not in kept and len(kept) >= KEPT:
                    kept.clear()
                self._found = kept.setdefault(key, {})
            if (lane := tuple(self.lanes[number])) not in self._found:
                self._find_windows(number, self._found)
            self._windows[number] = self._found[lane]
        return self._windows[number]

    def _find_windows(self, number: int, found: dict[tuple[int, ...], list[tuple[float, float]]]) -> None:
        """Add the windows of a lane; where there are many lanes, of others with it."""
        arcs = [(self.order[j], self.order[i], tokens)
                for i, waits in enumerate(self.events.before) for j, tokens in waits]  # fmt: skip
        if len(self.lanes) <= FEW:
            found[tuple(self.lanes[number])] = _window(self.lanes[number], arcs, len(self.order))
        else:  # cheaper at once
            some = self.lanes[number // MANY * MANY :][:MANY]
            found |= zip(map(tuple, some), windows(some, arcs, len(self.order)), strict=True)


def _beside(i: int, rivals: list[Rival]) -> tuple[float, float]:
    """Seconds that others may keep a resource busy beside instance i, and the share of its rate they leave."""
    seconds, left = 0.0, 1.0
    for windows, loads in rivals:
        first, last = windows[i]
        # In a periodic schedule no window as long as a period holds more than one step of a lane.
        many = last - first - 1
        if many >= loads.length:
            seconds, left = seconds + loads.total, left - loads.fastest
        elif many > 0:
            more, fastest = loads.between(int(first) + 1, int(many))
            seconds += more
            left -= fastest
    return seconds, left


def _window(lane: Sequence[int], arcs: list[tuple[int, int, int]], count: int) -> list[tuple[float, float]]:
    """`Lanes.window` of one lane, from arcs (from, to, tokens) between `count` instances."""
    last_before = _nearest(lane, range(len(lane)), arcs, count)
    # The other way round, places counted from the end: what is nearest there is what follows first.
    back = [(b, a, tokens) for a, b, tokens in reversed(arcs)]
    first_after = _nearest(lane, range(0, -len(lane), -1), back, count)
    return list(zip(last_before, [-place for place in first_after], strict=True))


def _nearest(
    lane: Sequence[int], places: Sequence[int], arcs: list[tuple[int, int, int]], count: int
) -> list[float]:
    """The largest place of a lane from which arcs lead to each instance, a lane's length less for each token.

    Carried along the arcs until none changes; each lap costs a token, so it ends.
    """
    length = len(lane)
    reached, passed = [-INFINITE] * count, [-INFINITE] * count
    for i, place in zip(lane, places, strict=True):
        passed[i] = place  # an instance passes on its own place or what reached it, whichever is nearer
    changed = True
    while changed:
        changed = False
        for a, b, tokens in arcs:
            given = passed[a] - tokens * length if tokens else passed[a]
            if given > reached[b]:
                reached[b] = given
                if given > passed[b]:
                    passed[b] = given
                changed = True
    return reached


def windows(
    lanes: Sequence[Sequence[int]], arcs: list[tuple[int, int, int]], count: int
) -> list[list[tuple[float, float]]]:
    """The same of several lanes at once: a column each, for arcs cost the same for one and for a hundred."""
    import numpy

    lengths = numpy.array([len(lane) for lane in lanes], dtype=float)
    last_before = numpy.full((count, len(lanes)), -INFINITE)
    first_after = numpy.full((count, len(lanes)), INFINITE)
    # What an instance passes on: its own place where it is in the lane, what reached it, whichever is nearer.
    at = {i: (column, float(index)) for column, lane in enumerate(lanes) for index, i in enumerate(lane)}
    for values, nearer, sign, ordered in (
        (last_before, numpy.maximum, -1.0, arcs),
        (first_after, numpy.minimum, 1.0, [(i, j, tokens) for j, i, tokens in reversed(arcs)]),
    ):
        changed = True
        while changed:
            changed = False
            for a, b, tokens in ordered:
                given = values[a]
                if a in at:
                    column, index = at[a]
                    if nearer(given[column], index) != given[column]:
                        given = given.copy()
                        given[column] = nearer(given[column], index)
                if tokens:
                    given = given + sign * tokens * lengths
                found = nearer(values[b], given)
                if (found != values[b]).any():
                    values[b] = found
                    changed = True
    return [list(zip(last_before[:, n].tolist(), first_after[:, n].tolist(), strict=True)) for n in range(len(lanes))]


def _rank(row: Row) -> int:
    """Who keeps its speed where lanes compete: 0 small urgent state, 1 bulk transfers, 2 computes."""
    return 2 if not row.transfer else (0 if row.urgent else 1)


def _solo(step: Step) -> list[float]:
    """Seconds of each instance alone."""

    def make() -> list[float]:
        rows = [row.latency[1] + largest(0.0, *times.values())
                for row, times in zip(step.rows, seconds_of_rows(step, "value"), strict=True)]  # fmt: skip
        return [rows[row] for row in step.instances]

    return remembered(step, "solo", make)


def _named_lanes(step: Step) -> dict[str, list[int]]:
    """The instances of each transfer and of each processor, in the order of the plan."""
    named: dict[str, list[int]] = {}
    for i, row in enumerate(step.instances):
        if step.rows[row].lane:  # what does not happen in this step queues nowhere
            named.setdefault(step.rows[row].lane, []).append(i)
    return named


def _largest_rates(step: Step, lane: Sequence[int]) -> dict[str, float]:
    """The largest share of each resource's rate that a lane's tasks take alone."""
    rates: dict[str, float] = {}
    seconds = seconds_of_rows(step, "value")
    for row in {step.instances[i] for i in lane}:
        times = seconds[row]
        work = largest(0.0, *times.values())
        for name, time in times.items():
            if time > 0:
                rates[name] = largest(rates.get(name, 0.0), time / work)
    return rates


def _events(
    step: Step, buffers: int | None, most: int | None, lanes: Sequence[Sequence[int]], order: Sequence[int]
) -> Events:
    """The events of a step, in `order`: what tasks wait for, queues, buffers and the steps before."""
    needs = remembered(step, "needs", lambda: [[(wait.on, 0) for wait in waits] for waits in step.waits])
    before: list[list[tuple[int, int]]] = [[*waits] for waits in needs]
    for lane in lanes:
        queue(before, lane)
    for slots in step.slots:
        count = slots.buffers if buffers is None else buffers
        if most is not None:
            count = most if count == UNLIMITED else min(count, most)
        urgent = step.rows[step.instances[slots.fetches[0]]].urgent
        if count == UNLIMITED or urgent or not all(slots.releases):
            continue
        if not take_slots(before, slots.fetches, slots.releases, count):
            raise PlanError(
                f'with {count} buffers "{slots.name}" waits for a compute that waits for it: '
                f"give it buffers: {len(slots.fetches) + 1} or overlap: full."
            )
    for later, earlier, tokens in step.wraps:
        before[earlier].append((later, tokens))
    place = [0] * len(order)
    for index, i in enumerate(order):
        place[i] = index
    # Of several arcs between two events the one with the fewest tokens implies the others.
    fewest: list[dict[int, int]] = [{} for _ in before]
    for i, waits in enumerate(before):
        known = fewest[place[i]]
        for j, tokens in waits:
            at = place[j]
            if tokens < known.get(at, INFINITE):
                known[at] = tokens
    return Events(tuple(tuple(waits.items()) for waits in fewest))
