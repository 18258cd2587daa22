"""The engine of the fluid simulation: events in which tasks start, finish and share resources by progressive filling.

All active tasks are raised together, each by its weight, and one is frozen when a resource that it uses is full. When
that happens depends on which resources it uses, not on how much of each, so all active tasks with the same set of
resources have one level (rate over weight). They are kept as a group: the service that a task of weight 1 would have
had, and a heap of the service at which each is done. A start or an end touches the groups that are joined to its own by
resources, once; nothing is done for each active task. Where there are few groups, which of them are joined and the
levels of a few with the same loads are looked up when they come again. Numbers are floats or Fractions alike.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from offload.errors import PlanError
from offload.plan import Amount

DELAY, SERVED = 0, 1  # kinds of events
INFINITE = float("inf")
FEW = 64  # groups of a simulation up to which those that are joined are looked up
SMALL = 4  # groups that are joined up to which their levels are looked up
KEPT = 2048  # answers kept before all are dropped
LOST = 1e15  # service of a group over that of a task from which on the task's would be lost in rounding
APART = (
    "work, coefficients, weights and rates lie too far apart for floats. "
    "Give them in other units, or ask for exact=True."
)


@dataclass(slots=True, eq=False)
class Group:
    """The tasks that use one set of resources, and which of them are active.

    bit : 1 << number, or 0 where there are many groups. totals[k] : sum of weight x coefficient on uses[k], of parts[k]
    without rounding where several tasks are active. served + carry : service of a task of weight 1 up to `since`.
    waiting : heap of (served, carry, task) at which each is done. level : None where it is due to be set anew. times,
    levels : the level from each time on, of several at one time the last.
    """

    number: int
    uses: tuple[int, ...]
    bit: int = 0
    totals: Sequence[Amount] = ()
    parts: list[list[Amount]] = field(default_factory=list)
    served: Amount = 0
    carry: Amount = 0
    level: Amount | None = None
    since: Amount = 0
    version: int = 0
    waiting: list[tuple[Amount, Amount, int]] = field(default_factory=list)
    times: list[Amount] = field(default_factory=list)
    levels: list[Amount] = field(default_factory=list)

    def advance(self, now: Amount) -> None:
        """Count the service up to `now`; a level that is due to be set anew has had no time."""
        if now > self.since:
            self.served, self.carry = _more(self.served, self.carry, self.level * (now - self.since))
        self.since = now

    def count_anew(self) -> None:
        """Count the service from now on, so that a task of little is not lost in what was served before it."""
        served, carry, self.served, self.carry = self.served, self.carry, 0 * self.served, 0 * self.carry
        self.waiting = [(*_more(*_more(at, more, -served), -carry), j) for at, more, j in self.waiting]
        heapq.heapify(self.waiting)

    def put(self, loads: Sequence[Amount]) -> None:
        """Add a task's loads per level to the totals."""
        if not self.totals:
            self.totals = tuple(loads)
            return
        if not self.parts:
            self.parts = [[total] for total in self.totals]
        for parts, load in zip(self.parts, loads, strict=True):
            _accumulate(parts, load)
        self.totals = tuple([sum(parts) for parts in self.parts])

    def take(self, loads: Sequence[Amount]) -> None:
        """Take a task's loads per level off the totals of several, so that nothing of them is left."""
        for parts, load in zip(self.parts, loads, strict=True):
            _accumulate(parts, -load)
        self.totals = tuple([sum(parts) for parts in self.parts])


def _more(served: Amount, carry: Amount, service: Amount) -> tuple[Amount, Amount]:
    """Service added to served + carry; what rounding drops is carried (Knuth); exact numbers drop nothing."""
    total = served + service
    part = total - served
    carry += (served - (total - part)) + (service - part)
    found = total + carry
    part = found - total
    return found, (total - (found - part)) + (carry - part)


def _accumulate(parts: list[Amount], value: Amount) -> None:
    """Add to a sum that is kept as parts that do not overlap, so that what is taken off leaves nothing (Shewchuk)."""
    kept = 0
    for part in parts:
        total = value + part
        back = total - value
        lost = (value - (total - back)) + (part - back)
        value = total
        if lost:
            parts[kept] = lost
            kept += 1
    parts[kept:] = [value]


def fill(rates: Sequence[Amount], groups: Sequence[Group]) -> list[Amount]:
    """Levels by progressive filling: raise all together, freeze those that use a full resource, repeat.

    groups : all that share a resource with one of them; levels come in their order. The level at which a resource is
    full only rises as others freeze, so it is worked out anew when its last value is the least.
    """
    if len(groups) == 1:
        return [min([rates[r] / total for r, total in zip(groups[0].uses, groups[0].totals, strict=True)])]
    rising: dict[int, dict[Group, Amount]] = {}  # resource -> groups not frozen yet -> their load per level
    for group in groups:
        for r, total in zip(group.uses, group.totals, strict=True):
            if r in rising:
                rising[r][group] = total
            else:
                rising[r] = {group: total}
    full_at = [(rates[r] / sum(loads.values()), r) for r, loads in rising.items()]
    heapq.heapify(full_at)
    taken: dict[int, Amount] = dict.fromkeys(rising, 0)
    touched: set[int] = set()
    levels: dict[Group, Amount] = {}
    level: Amount = 0
    while len(levels) < len(groups):
        at, first = full_at[0]
        loads = rising[first]
        if not loads:
            heapq.heappop(full_at)
        elif first in touched:
            touched.remove(first)
            heapq.heapreplace(full_at, ((rates[first] - taken[first]) / sum(loads.values()), first))
        else:
            level = max(level, at)
            rising[first] = {}
            for group in loads:
                levels[group] = level
                for r in group.uses:
                    if r != first:
                        taken[r] += rising[r].pop(group) * level
                        touched.add(r)
    return [levels[group] for group in groups]


class Engine:
    """One simulation. sets : the sets of resources; group[j] : which of them task j uses, -1 where it takes no service.

    service[j] : work / weight. loads[j] : weight x coefficient on each of its resources. after[j] : tasks that wait for
    j; waits[j] : how many it waits for. slack : a task is done when so small a share of its service is left. zero : of
    the kind of the numbers. begun : when a task's waits are over; finish : its end.
    """

    def __init__(
        self,
        rates: Sequence[Amount],
        sets: Sequence[tuple[int, ...]],
        group: Sequence[int],
        service: Sequence[Amount],
        loads: Sequence[Sequence[Amount]],
        delay: Sequence[Amount],
        weight: Sequence[Amount],
        after: Sequence[Sequence[int]],
        waits: Sequence[int],
        slack: Amount,
        zero: Amount,
    ):
        self.rates, self.service, self.loads, self.delay, self.weight = rates, service, loads, delay, weight
        self.after, self.pending, self.slack, self.zero = after, list(waits), slack, zero
        self.few = len(sets) <= FEW
        self.groups = [Group(number, uses, 1 << number if self.few else 0) for number, uses in enumerate(sets)]
        by_number: list[Group | None] = [*self.groups, None]  # the last one is number -1
        self.group = [by_number[number] for number in group]
        self.users: list[dict[Group, None]] = [{} for _ in rates]  # of many groups only those that are active
        if self.few:
            for one in self.groups:
                self._enter(one)
        self.joints: dict[tuple[int, int], tuple[list[Group], dict[Any, list[Amount]]]] = {}
        self.known: dict[tuple[int, ...], dict[Any, list[Amount]]] = {}
        self.begun: list[Any] = [None] * len(group)
        self.finish: list[Any] = [None] * len(group)

    def run(self) -> None:
        """Simulate from 0 to the end of all tasks."""
        groups, group_of, service, loads, delay = self.groups, self.group, self.service, self.loads, self.delay
        after, pending, begun, finish = self.after, self.pending, self.begun, self.finish
        zero, slack, few, joints = self.zero, self.slack, self.few, self.joints
        push, pop = heapq.heappush, heapq.heappop
        events: list[tuple[Amount, int, int, int]] = []
        ready = [j for j, count in enumerate(pending) if not count]  # j begins, or ~j whose delay is over
        over: list[Group] = []  # groups whose next task has had its service
        changed: list[Group] = []  # groups with a task more or less
        now, active, dirty = zero, 0, 0  # and bits of groups that are active and that changed
        while True:
            group: Group | None
            for group in over:
                waiting, served, carry = group.waiting, group.served, group.carry
                while waiting:
                    at, more, j = waiting[0]
                    if (at - served) + (more - carry) > slack * service[j]:
                        break
                    pop(waiting)
                    finish[j] = now
                    for later in after[j]:
                        pending[later] -= 1
                        if not pending[later]:
                            ready.append(later)
                    if waiting:
                        group.take(loads[j])
                if not waiting:
                    active ^= group.bit
                    if not few:
                        self._leave(group)
                group.level = None
                dirty |= group.bit
                changed.append(group)
            over.clear()
            for j in ready:  # it grows where tasks take no service
                if j < 0:
                    j = ~j
                else:
                    begun[j] = now
                    if delay[j]:
                        push(events, (self._time(now + delay[j]), DELAY, ~j, 0))
                        continue
                group = group_of[j]
                if group is None:
                    finish[j] = now
                    for later in after[j]:
                        pending[later] -= 1
                        if not pending[later]:
                            ready.append(later)
                    continue
                if group.waiting:
                    group.advance(now)
                    if group.served > LOST * service[j]:
                        group.count_anew()
                    push(group.waiting, (*_more(group.served, group.carry, service[j]), j))
                    group.put(loads[j])
                else:
                    group.served = group.carry = zero
                    group.since = now
                    group.waiting.append((service[j], zero, j))
                    group.totals, group.parts = loads[j], []
                    active |= group.bit
                    if not few:
                        self._enter(group)
                group.level = None
                dirty |= group.bit
                changed.append(group)
            ready.clear()
            if changed:
                joint = joints.get((active, dirty)) or self._joint(active, dirty, changed)
                for group, level in zip(joint[0], self._levels(*joint), strict=True):
                    if level == group.level:
                        continue
                    if not 0 < level < INFINITE:
                        raise PlanError(f"the rates come to {float(level)}: {APART}")
                    if now > group.since:
                        group.advance(now)
                    group.level = level
                    group.times.append(now)
                    group.levels.append(level)
                    group.version = version = group.version + 1
                    at, more, j = group.waiting[0]
                    left = (at - group.served) + (more - group.carry)
                    if left <= slack * service[j]:
                        over.append(group)  # so it changes again at `now`
                    else:
                        push(events, (self._time(now + left / level), SERVED, group.number, version))
                dirty = 0
                changed.clear()
                if over:
                    continue
            if not events:
                return
            now = events[0][0]
            while events and events[0][0] == now:
                _, kind, number, version = pop(events)
                if kind == DELAY:
                    ready.append(number)
                elif version == groups[number].version:
                    group = groups[number]
                    group.served, group.carry, _ = group.waiting[0]
                    group.since = now
                    over.append(group)

    def _enter(self, group: Group) -> None:
        for r in group.uses:
            self.users[r][group] = None

    def _leave(self, group: Group) -> None:
        for r in group.uses:
            del self.users[r][group]

    def _joint(self, active: int, dirty: int, changed: Sequence[Group]) -> tuple[list[Group], dict[Any, list[Amount]]]:
        """The active groups that resources join to those where something changed, and levels that they once had."""
        found: dict[Group, None] = {}
        seen: set[int] = set()
        stack = [r for group in changed for r in group.uses]
        while stack:
            r = stack.pop()
            if r in seen:
                continue
            seen.add(r)
            for group in self.users[r]:
                if group.waiting and group not in found:
                    found[group] = None
                    stack.extend(group.uses)
        groups = sorted(found, key=lambda group: group.number)
        if not self.few:
            return groups, {}
        if len(self.joints) >= KEPT:
            self.joints.clear()
            self.known.clear()
        joint = groups, self.known.setdefault(tuple([group.number for group in groups]), {})
        self.joints[active, dirty] = joint
        return joint

    def _levels(self, groups: Sequence[Group], known: dict[Any, list[Amount]]) -> list[Amount]:
        """The levels of groups that are joined."""
        if len(groups) > SMALL:
            return fill(self.rates, groups)
        key = tuple([group.totals for group in groups])
        levels = known.get(key)
        if levels is None:
            if len(known) >= KEPT:
                known.clear()
            levels = known[key] = fill(self.rates, groups) if groups else []
        return levels

    def _time(self, at: Amount) -> Amount:
        if not at < INFINITE:
            raise PlanError("the times are too long for floats. Give work and rates in other units, or exact=True.")
        return at

    def segments(self, j: int) -> Iterator[tuple[Amount, Amount, Amount]]:
        """(from, to, rate) of task j, where neighbours differ in rate."""
        group, begin, end = self.group[j], self.begun[j] + self.delay[j], self.finish[j]
        if group is None or begin == end:
            return
        times, levels = group.times, group.levels
        first, last = bisect_right(times, begin) - 1, bisect_left(times, end)
        level = levels[first]
        for k in range(first + 1, last):
            if levels[k] != level and (k + 1 == last or times[k] < times[k + 1]):
                yield begin, times[k], level * self.weight[j]
                begin, level = times[k], levels[k]
        yield begin, end, level * self.weight[j]
