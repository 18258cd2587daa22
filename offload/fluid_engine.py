"""The engine of the fluid simulation: events in which tasks start, finish and share resources by progressive filling.

All active tasks are raised together, each by its weight, and one is frozen when a resource that it uses is full. When
that happens depends on which resources it uses, not on how much of each, so all active tasks with the same set of
resources have one level (rate over weight). They are kept as a group: the service that a task of weight 1 would have
had, and a heap of the service at which each is done. A start or an end touches the groups that are joined to its own by
resources, once; nothing is done for each active task. Numbers are floats or Fractions alike.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from offload.errors import PlanError
from offload.plan import Amount

DELAY, SERVED = 0, 1  # of events at one time, the ends of delays come first
INFINITE = float("inf")


@dataclass(slots=True, eq=False)
class Group:
    """The active tasks that use one set of resources.

    totals[k] : sum of weight x coefficient on uses[k]. served + carry : service of a task of weight 1 up to `since`.
    waiting : heap of (served, carry, task) at which each task is done. times, levels : the level from each time on.
    """

    number: int
    uses: tuple[int, ...]
    parts: list[list[Amount]] = field(default_factory=list)
    totals: list[Amount] = field(default_factory=list)
    served: Amount = 0
    carry: Amount = 0
    level: Amount = 0
    since: Amount = 0
    version: int = 0
    waiting: list[tuple[Amount, Amount, int]] = field(default_factory=list)
    times: list[Amount] = field(default_factory=list)
    levels: list[Amount] = field(default_factory=list)

    def advance(self, now: Amount) -> None:
        """Count the service up to `now`."""
        if now > self.since:
            self.served, self.carry = _more(self.served, self.carry, self.level * (now - self.since))
        self.since = now

    def left(self) -> Amount:
        """Service that the next task to finish still needs."""
        served, carry, _ = self.waiting[0]
        return (served - self.served) + (carry - self.carry)

    def change(self, use: Sequence[Amount], weight: Amount) -> None:
        """Add a task's share of the load per level, or take it off (weight negative), without rounding."""
        if not self.totals:
            self.totals = [coefficient * weight for coefficient in use]
            self.parts = [[total] for total in self.totals]
            return
        for parts, coefficient in zip(self.parts, use, strict=True):
            _accumulate(parts, coefficient * weight)
        self.totals = [sum(parts) for parts in self.parts]


def _two_sum(a: Amount, b: Amount) -> tuple[Amount, Amount]:
    """The rounded sum and what rounding dropped (Knuth); exact numbers drop nothing."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _more(served: Amount, carry: Amount, service: Amount) -> tuple[Amount, Amount]:
    total, lost = _two_sum(served, service)
    return _two_sum(total, lost + carry)


def _accumulate(parts: list[Amount], value: Amount) -> None:
    """Add to a sum that is kept as parts that do not overlap, so that what is taken off leaves nothing (Shewchuk)."""
    kept = 0
    for part in parts:
        value, lost = _two_sum(value, part)
        if lost:
            parts[kept] = lost
            kept += 1
    parts[kept:] = [value]


def fill(rates: Sequence[Amount], groups: Sequence[Group]) -> list[Amount]:
    """Levels by progressive filling: raise all together, freeze those that use a full resource, repeat.

    groups : all that share a resource with one of them; levels come in their order.
    """
    if len(groups) == 1:
        return [min(rates[r] / total for r, total in zip(groups[0].uses, groups[0].totals, strict=True))]
    rising: dict[int, dict[Group, Amount]] = {}  # resource -> groups not frozen yet -> their load per level
    for group in groups:
        for r, total in zip(group.uses, group.totals, strict=True):
            if r in rising:
                rising[r][group] = total
            else:
                rising[r] = {group: total}
    full_at = {r: rates[r] / sum(loads.values()) for r, loads in rising.items()}
    taken: dict[int, Amount] = dict.fromkeys(rising, 0)
    levels: dict[Group, Amount] = {}
    level: Amount = 0
    while len(levels) < len(groups):
        first = min(full_at, key=full_at.__getitem__)
        level = max(level, full_at[first])
        touched = {}
        for group in list(rising[first]):
            levels[group] = level
            for r in group.uses:
                taken[r] += rising[r].pop(group) * level
                touched[r] = None
        for r in touched:
            if rising[r]:
                full_at[r] = (rates[r] - taken[r]) / sum(rising[r].values())
            else:
                del full_at[r]
    return [levels[group] for group in groups]


class Engine:
    """One simulation. uses[j], use[j] : the resources of task j and its coefficients there, none where it has no work.

    after[j] : tasks that wait for j; waits[j] : how many it waits for. slack : a task is done when so small a share of
    its work is left. zero : of the kind of the numbers. begun : when a task's waits are over; served_from : when its
    delay is; finish : its end.
    """

    def __init__(
        self,
        rates: Sequence[Amount],
        work: Sequence[Amount],
        uses: Sequence[tuple[int, ...]],
        use: Sequence[Sequence[Amount]],
        delay: Sequence[Amount],
        weight: Sequence[Amount],
        after: Sequence[Sequence[int]],
        waits: Sequence[int],
        slack: Amount,
        zero: Amount,
    ):
        self.zero = zero
        self.rates, self.work, self.uses, self.use = rates, work, uses, use
        self.delay, self.weight, self.after, self.slack = delay, weight, after, slack
        self.pending = list(waits)
        self.groups: list[Group] = []
        self.by_uses: dict[tuple[int, ...], Group] = {}
        self.users: list[dict[Group, None]] = [{} for _ in rates]
        self.events: list[tuple[Amount, int, int, int]] = []
        self.ready = [j for j, count in enumerate(waits) if not count]
        self.dirty: dict[Group, None] = {}
        self.begun: list[Any] = [None] * len(work)
        self.served_from: list[Any] = [None] * len(work)
        self.finish: list[Any] = [None] * len(work)

    def run(self) -> None:
        """Simulate from 0 to the end of all tasks."""
        self._settle(self.zero)
        events = self.events
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                _, kind, number, version = heapq.heappop(events)
                if kind == DELAY:
                    self._serve(number, now)
                elif version == self.groups[number].version:
                    group = self.groups[number]
                    group.served, group.carry, _ = group.waiting[0]
                    group.since = now
                    self._finish_served(group, now)
            self._settle(now)

    def _settle(self, now: Amount) -> None:
        """Start what is ready and share the resources anew, until nothing more happens at `now`."""
        while self.ready or self.dirty:
            while self.ready:
                j = self.ready.pop()
                self.begun[j] = now
                if self.delay[j] > 0:
                    heapq.heappush(self.events, (self._time(now + self.delay[j]), DELAY, j, 0))
                else:
                    self._serve(j, now)
            groups, changed = self._joined(), self.dirty
            self.dirty = {}
            if groups:
                for group, level in zip(groups, fill(self.rates, groups), strict=True):
                    if level != group.level or group in changed:
                        self._set(group, level, now)

    def _serve(self, j: int, now: Amount) -> None:
        """The delay of a task is over: it begins to use its resources, or is done where it uses none."""
        self.served_from[j] = now
        if not self.uses[j]:
            self._done(j, now)
            return
        group = self.by_uses.get(self.uses[j])
        if group is None:
            group = Group(len(self.groups), self.uses[j])
            self.by_uses[self.uses[j]] = group
            self.groups.append(group)
        service = self.work[j] / self.weight[j]
        if group.waiting:
            group.advance(now)
            heapq.heappush(group.waiting, (*_more(group.served, group.carry, service), j))
        else:
            group.served = group.carry = group.level = self.zero
            group.since = now
            group.waiting.append((service, self.zero, j))
            for r in group.uses:
                self.users[r][group] = None
        group.change(self.use[j], self.weight[j])
        self.dirty[group] = None

    def _finish_served(self, group: Group, now: Amount) -> None:
        """Take from a group the tasks that have had their service."""
        while group.waiting:
            j = group.waiting[0][2]
            if group.left() > self.slack * (self.work[j] / self.weight[j]):
                break
            heapq.heappop(group.waiting)
            if group.waiting:
                group.change(self.use[j], -self.weight[j])
            self._done(j, now)
            self.dirty[group] = None
        if not group.waiting:
            group.version += 1
            group.totals = []
            for r in group.uses:
                del self.users[r][group]
            self._note(group, self.zero, now)

    def _done(self, j: int, now: Amount) -> None:
        self.finish[j] = now
        for later in self.after[j]:
            self.pending[later] -= 1
            if not self.pending[later]:
                self.ready.append(later)

    def _joined(self) -> list[Group]:
        """The active groups that resources join to those where something changed."""
        found: dict[Group, None] = {}
        seen: set[int] = set()
        stack = [r for group in self.dirty for r in group.uses]
        while stack:
            r = stack.pop()
            if r in seen:
                continue
            seen.add(r)
            for group in self.users[r]:
                if group not in found:
                    found[group] = None
                    stack.extend(group.uses)
        return sorted(found, key=lambda group: group.number) if len(found) > 1 else list(found)

    def _set(self, group: Group, level: Amount, now: Amount) -> None:
        """Give a group its level from `now` on; tasks within the slack of their end are done."""
        if not 0 < level < INFINITE:
            raise PlanError(
                f"the rates come to {float(level)}: work, coefficients and rates lie too far apart for floats. "
                "Give them in other units, or ask for exact=True."
            )
        if now > group.since:
            group.advance(now)
        group.level = level
        self._note(group, level, now)
        left, j = group.left(), group.waiting[0][2]
        if left <= self.slack * (self.work[j] / self.weight[j]):
            self._finish_served(group, now)  # so the group changes again at `now`
            return
        group.version += 1
        heapq.heappush(self.events, (self._time(now + left / level), SERVED, group.number, group.version))

    def _time(self, at: Amount) -> Amount:
        if not at < INFINITE:
            raise PlanError("the times are too long for floats. Give work and rates in other units, or exact=True.")
        return at

    def _note(self, group: Group, level: Amount, now: Amount) -> None:
        times, levels = group.times, group.levels
        if times and times[-1] == now:
            levels[-1] = level
        elif not levels or levels[-1] != level:
            times.append(now)
            levels.append(level)

    def segments(self, j: int) -> Iterator[tuple[Amount, Amount, Amount]]:
        """(from, to, rate) of task j, where neighbours differ in rate."""
        if not self.uses[j] or self.finish[j] == self.served_from[j]:
            return
        group = self.by_uses[self.uses[j]]
        first = bisect_right(group.times, self.served_from[j]) - 1
        last = bisect_left(group.times, self.finish[j])
        begin, level = self.served_from[j], group.levels[first]
        for k in range(first + 1, last):
            if group.levels[k] != level:
                yield begin, group.times[k], level * self.weight[j]
                begin, level = group.times[k], group.levels[k]
        yield begin, self.finish[j], level * self.weight[j]
