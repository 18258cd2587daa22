"""Fluid simulation: tasks that share resources as flows do, and the range within which every sharing ends.

A task has work D_j, coefficients a_rj (it puts a_rj x_j on resource r while it runs at rate x_j), a pure delay alpha_j
before its work, and tasks that it waits for. At each moment sum_j a_rj x_j <= B_r. How tasks share is one policy among
many, and a simulated time is an estimate of that policy: it is not monotone (a faster resource may make it longer) and
no floor. The range beside it holds for all ways of sharing in which every task at work uses some full resource.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from math import isfinite
from operator import attrgetter, methodcaller
from typing import Any

from offload.bounds import preemptive
from offload.errors import PlanError, did_you_mean, one_line, shown
from offload.fluid_engine import APART, INFINITE, Engine, Group, fill
from offload.given import finite, flag, is_real, mapping, plain
from offload.plan import Amount

POLICIES = ("max-min", "proportional", "weighted")
SLACK = 1e-12  # share of a task's work at which floats take it as done
PLAIN = frozenset((float, int))  # types of numbers that are alike where they are equal; True is not among them


@dataclass(frozen=True, slots=True)
class FluidTask:
    """One task: work (any unit, say bytes), use {resource: resource's units per unit of work}, deps, alpha [s]."""

    work: Amount
    use: Mapping[str, Amount]
    deps: Sequence[str] = ()
    alpha: Amount = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A task runs at a rate [work/s] from one time to another [s]."""

    task: str
    begin: Amount
    end: Amount
    rate: Amount


@dataclass(frozen=True, slots=True)
class TaskBounds:
    """What holds for every schedule of tasks, and for every one that wastes nothing [s].

    tau_j = alpha_j + max_r a_rj D_j / B_r is a task alone; its head is the longest path of tau before it, its tail
    after it. For every schedule, preemptive or not: load = max_r L_r / B_r; critical_path = max_j head + tau + tail;
    order = max_r head_body_tail of (head_j + alpha_j, a_rj D_j / B_r, tail_j) (Carlier 1982). Where each task at work
    uses some full resource: the end comes by sum_solo = sum_j tau_j, as the work left, in solo time, falls at 1 or
    more; and by sum_loads + critical_delay, as some resource is full whenever a task is at work, sum_loads = sum_r
    L_r / B_r, and else the longest path of delays that are left, critical_delay at first, shrinks at 1.
    """

    load: Amount
    critical_path: Amount
    order: Amount
    sum_solo: Amount
    sum_loads: Amount
    critical_delay: Amount

    @property
    def low(self) -> Amount:
        """No schedule ends earlier [s]."""
        return max(self.load, self.order, self.critical_path)

    @property
    def high(self) -> Amount:
        """None that wastes nothing ends later [s]."""
        return min(self.sum_solo, self.sum_loads + self.critical_delay)


@dataclass(frozen=True, slots=True)
class Fluid:
    """A simulation: times [s] by task; start is when a task's deps are done (its delay begins).

    utilisation : of each resource, load / (rate x makespan).
    """

    policy: str
    makespan: Amount
    start: Mapping[str, Amount]
    finish: Mapping[str, Amount]
    utilisation: Mapping[str, Amount]
    _table: _Table = field(repr=False, compare=False)
    _engine: Engine = field(repr=False, compare=False)

    @property
    def bounds(self) -> TaskBounds:
        """The range of all ways of sharing (worked out when asked for)."""
        return self._table.bounds()

    def segments(self, task: str) -> Iterator[Segment]:
        """When a task runs and how fast, in order; none where it has no work or uses nothing."""
        number = list(self.finish).index(_known(task, self.finish, "segments of the task"))
        return (Segment(task, *one) for one in self._engine.segments(number))

    @property
    def timeline(self) -> tuple[Segment, ...]:
        """All segments, task by task. Each may be one of as many as tasks that end beside it: n x n of them in all."""
        return tuple(
            Segment(name, *one) for number, name in enumerate(self.finish) for one in self._engine.segments(number)
        )


def simulate(
    rates: Mapping[str, Amount],
    tasks: Mapping[str, FluidTask],
    policy: str = "max-min",
    weights: Mapping[str, Amount] | None = None,
    exact: bool = False,
) -> Fluid:
    """Run tasks to their end, sharing the resources anew whenever one starts or ends.

    rates : resource -> B_r. At each moment rates x_j = w_j * level are raised together and those that use a full
    resource are frozen (progressive filling; Bertsekas & Gallager), with w_j = 1 for "max-min", D_j for
    "proportional", and `weights` (1 where it names no weight) for "weighted". With "proportional" independent tasks
    without delay end at the load bound max_r L_r / B_r: all of them together never ask more, so no level falls below
    1 / that. No policy wastes anything, so bounds.low <= makespan <= bounds.high. A task that has no work or uses
    nothing takes its delay only.

    exact : in Fractions (floats as the binary fractions that they are). In floats a task is done with 1e-12 of its
    work left. n tasks take about n log n events, each of the cost of the sets of resources in use that are joined to
    the one that changes. Raises PlanError for numbers that are not finite or negative, rates of 0, unknown names,
    tasks that wait for themselves, and floats whose quotients leave their range.
    """
    table = _Table(rates, tasks, exact)
    engine = table.engine(_weights(policy, weights, table))
    engine.run()
    makespan = max(engine.finish, default=table.zero)
    share = {
        name: load / rate / makespan if makespan else table.zero
        for name, load, rate in zip(table.resources, table.loads(), table.rates, strict=True)
    }
    start, finish = (dict(zip(table.names, times, strict=True)) for times in (engine.begun, engine.finish))
    return Fluid(policy, makespan, start, finish, share, table, engine)


def task_bounds(rates: Mapping[str, Amount], tasks: Mapping[str, FluidTask], exact: bool = False) -> TaskBounds:
    """The bounds of a graph of tasks, without simulating it: see `TaskBounds`; arguments and errors as `simulate`."""
    return _Table(rates, tasks, exact).bounds()


@finite
def max_min_rates(
    rates: Mapping[str, Amount],
    flows: Mapping[str, Mapping[str, Amount]],
    weights: Mapping[str, Amount] | None = None,
) -> Mapping[str, Amount]:
    """Max-min fair rates of flows that all run at once: flow -> x_j, the unique ones of progressive filling.

    rates : resource -> B_r. flows : flow -> {resource: a_rj}. weights : flow -> w_j (1 where not named): w_j x level
    is shared instead of equal rates. Exact where all numbers are Fractions. Raises PlanError as `simulate`, and for a
    flow that uses nothing, as nothing limits its rate.
    """
    mapping("rates", rates, "{resource: rate}")
    for name, use in mapping("flows", flows, "{flow: {resource: coefficient}}").items():
        mapping(f'flow "{name}"', use, "{resource: coefficient}")
    exact = any(isinstance(value, Fraction) for value in rates.values())
    table = _Table(rates, {name: FluidTask(1, use) for name, use in flows.items()}, exact)
    for name, number in zip(table.names, table.set, strict=True):
        if number < 0:
            raise PlanError(f'flow "{name}" uses no resource, so nothing limits its rate: say what it uses.')
    weighed = _weights("max-min" if weights is None else "weighted", weights, table)
    groups = [Group(number, uses) for number, uses in enumerate(table.sets)]
    for number, use, weight in zip(table.set, table.use, weighed, strict=True):
        groups[number].put([coefficient * weight for coefficient in use])
    levels = fill(table.rates, groups) if groups else []
    return {name: levels[number] * weight for name, number, weight in zip(table.names, table.set, weighed, strict=True)}


def _weights(policy: str, weights: Mapping[str, Amount] | None, table: _Table) -> list[Amount]:
    """The weight of each task."""
    if policy not in POLICIES:
        raise PlanError(f'policy "{one_line(policy)}" is not known. {did_you_mean(one_line(policy), POLICIES)}')
    if (policy == "weighted") != (weights is not None):
        raise PlanError('weights go with policy "weighted", and it with them: give both or neither.')
    one = table.number(1, "weight")
    if policy == "proportional":
        return [work or one for work in table.work]
    found = dict.fromkeys(table.names, one)
    for name, weight in mapping("weights", {} if weights is None else weights, "{task: weight}").items():
        found[_known(name, found, "weights name the task")] = table.number(
            weight, f'weight of "{name}"', above=True
        )
    return list(found.values())


def _known(name: str, allowed: Mapping[str, Any], what: str) -> str:
    if not isinstance(name, Hashable) or name not in allowed:
        raise PlanError(f'{what} "{one_line(name)}", which is not known. {did_you_mean(one_line(name), allowed)}')
    return name


class _Table:
    """Tasks by number: what was given, checked, as floats or Fractions.

    set[j] : which of `sets` of resources task j uses, -1 where it has no work or uses nothing; use[j] : its
    coefficients there. Tasks of equal `use` share one entry of `kinds`, which holds both. before, after : what it waits
    for, and what waits for it.
    """

    def __init__(self, rates: Mapping[str, Amount], tasks: Mapping[str, FluidTask], exact: bool):
        self.exact = flag("exact", exact)
        mapping("rates", rates, "{resource: rate}")
        self.names = list(mapping("tasks", tasks, "{name: FluidTask}"))
        self._all_are(FluidTask, tasks.values(), 'task "{}"', "give a FluidTask")
        self.zero = self.number(0, "zero")
        self.resources = list(rates)
        self.rates = [self.number(rate, f'rate of "{name}"', above=True) for name, rate in rates.items()]
        self.work = self.numbers(list(map(attrgetter("work"), tasks.values())), "work")
        self.delay = self.numbers(list(map(attrgetter("alpha"), tasks.values())), "alpha")
        self.sets: list[tuple[int, ...]] = []
        self.kinds: list[tuple[int, tuple[Amount, ...]]] = [(-1, ())]
        given = list(map(attrgetter("use"), tasks.values()))
        self._all_are(Mapping, given, 'use of "{}"', "give {resource: coefficient}")
        self.kind = self._kinds(given)
        self.set = [self.kinds[kind][0] for kind in self.kind]
        self.use = [self.kinds[kind][1] for kind in self.kind]
        self.before: list[list[int]] = []
        self.after: list[list[int]] = [[] for _ in self.names]
        self._link(list(map(attrgetter("deps"), tasks.values())))
        self.order = self._order()

    def _kinds(self, given: Sequence[Mapping[str, Amount]]) -> list[int]:
        """The kind of each task, 0 for none."""
        place = {name: r for r, name in enumerate(self.resources)}
        number_of_set: dict[tuple[int, ...], int] = {}
        known: dict[Any, int] = {}
        alike = PLAIN.issuperset(map(type, chain.from_iterable(map(methodcaller("values"), given))))
        found = []
        for j, (use, work) in enumerate(zip(given, self.work, strict=True)):
            key = tuple(use.items()) if alike else j  # of others, equal ones may not be alike
            kind = known.get(key)
            if kind is None:
                used = sorted(self._used(self.names[j], place, use))
                kind = known[key] = len(self.kinds) if used else 0
                if used:
                    uses = tuple([r for r, _ in used])
                    number = number_of_set.setdefault(uses, len(number_of_set))
                    self.kinds.append((number, tuple([value for _, value in used])))
            found.append(kind if work else 0)
        self.sets = list(number_of_set)
        return found

    def _used(self, name: str, place: Mapping[str, int], use: Mapping[str, Amount]) -> Iterator[tuple[int, Amount]]:
        """The resources of a task and its coefficients there, none that is 0."""
        for resource, coefficient in use.items():
            r = place[_known(resource, place, f'task "{name}" uses the resource')]
            value = self.number(coefficient, f'what "{name}" puts on "{resource}"')
            if value:
                yield r, value

    def _link(self, given: Sequence[Sequence[str]]) -> None:
        """Say for each task what it waits for and what waits for it; a name given twice counts twice on both sides."""
        numbers = {name: j for j, name in enumerate(self.names)}
        for j, deps in enumerate(given):
            if isinstance(deps, str):
                raise PlanError(f'deps of "{self.names[j]}" are a list of names: write ["{deps}"].')
            before = []
            try:
                for on in deps:
                    number = numbers.get(on)
                    if number is None:
                        number = numbers[_known(on, numbers, f'task "{self.names[j]}" waits for the task')]
                    before.append(number)
                    self.after[number].append(j)
            except TypeError:  # it is no list, or something in it is no name
                raise PlanError(f'deps of "{self.names[j]}" are {shown(deps)}: give a list of names.') from None
            self.before.append(before)

    def _all_are(self, kind: type, values: Collection[Any], what: str, wanted: str) -> None:
        """Raises PlanError for the first value, one of each task, that is of another kind."""
        if not all(issubclass(one, kind) for one in set(map(type, values))):
            name, value = next(pair for pair in zip(self.names, values, strict=True) if not isinstance(pair[1], kind))
            raise PlanError(f"{what.format(name)} is {shown(value)}: {wanted}.")

    def numbers(self, values: list[Any], what: str) -> list[Amount]:
        """Finite numbers of at least 0, one of each task: all at once where they are plain floats and ints."""
        if not self.exact and PLAIN.issuperset(map(type, values)):
            try:
                found = list(map(float, values))
            except OverflowError:  # an integer beyond the range of floats
                found = [INFINITE]
            if all(map(isfinite, found)) and min(found, default=0) >= 0:
                return found
        return [self.number(value, f'{what} of "{name}"') for name, value in zip(self.names, values, strict=True)]

    def number(self, value: Any, what: str, above: bool = False) -> Amount:
        """A finite number, at least 0 or above it."""
        if type(value) is float and 0 < value < INFINITE and not self.exact:
            return value
        value = plain(value)
        if not is_real(value):
            raise PlanError(f"{what} is {shown(value)}: give a number.")
        wanted = f"give a finite number {'above' if above else 'of at least'} 0"
        try:
            if self.exact:
                found: Amount = Fraction(value) if isinstance(value, int | float | Fraction) else Fraction(float(value))
            else:
                found = float(value)
        except (OverflowError, ValueError):  # infinite or no number, or an integer beyond the range of floats
            raise PlanError(f"{what} is {shown(value)}: {wanted}, in a larger unit if need be.") from None
        if not 0 <= found < INFINITE or (above and not found):
            raise PlanError(f"{what} is {shown(value)}: {wanted}.")
        return found

    def engine(self, weights: Sequence[Amount]) -> Engine:
        """Raises PlanError where a weight takes floats out of their range."""
        service, loads = self.work, self.use
        if weights.count(1) < len(weights):
            service = [work / weight for work, weight in zip(self.work, weights, strict=True)]
            loads = [tuple([one * weight for one in use]) for use, weight in zip(self.use, weights, strict=True)]
            for name, number, time, load in zip(self.names, self.set, service, loads, strict=True):
                if number >= 0 and not (0 < time < INFINITE and 0 < min(load) and max(load) < INFINITE):
                    raise PlanError(f'"{name}": {APART}')
        waits = list(map(len, self.before))
        slack, zero = self.zero if self.exact else SLACK, self.zero
        return Engine(
            self.rates, self.sets, self.set, service, loads, self.delay, weights, self.after, waits, slack, zero
        )

    def loads(self) -> list[Amount]:
        """L_r = sum_j a_rj D_j of each resource."""
        works = [self.zero for _ in self.kinds]
        for work, kind in zip(self.work, self.kind, strict=True):
            works[kind] += work
        totals = [self.zero for _ in self.rates]
        for work, (number, use) in zip(works[1:], self.kinds[1:], strict=True):
            for r, coefficient in zip(self.sets[number], use, strict=True):
                totals[r] += coefficient * work
        for name, total in zip(self.resources, totals, strict=True):
            if not total < INFINITE:
                raise PlanError(f'the load of "{name}" is too much for floats. Give other units, or exact=True.')
        return totals

    def bounds(self) -> TaskBounds:
        count, zero = len(self.names), self.zero
        used = [self.sets[number] if number >= 0 else () for number in self.set]
        times = [
            [coefficient * work / self.rates[r] for r, coefficient in zip(uses, use, strict=True)]
            for work, uses, use in zip(self.work, used, self.use, strict=True)
        ]
        solo = [delay + max(each, default=zero) for delay, each in zip(self.delay, times, strict=True)]
        head, tail, delays = [zero] * count, [zero] * count, [zero] * count
        for j in self.order:
            head[j] = max((head[on] + solo[on] for on in self.before[j]), default=zero)
            delays[j] = self.delay[j] + max((delays[on] for on in self.before[j]), default=zero)
        for j in reversed(self.order):
            tail[j] = max((solo[later] + tail[later] for later in self.after[j]), default=zero)
        jobs: list[list[tuple[Amount, Amount, Amount]]] = [[] for _ in self.rates]
        for j, uses in enumerate(used):
            for r, time in zip(uses, times[j], strict=True):
                jobs[r].append((head[j] + self.delay[j], time, tail[j]))
        loads = [load / rate for load, rate in zip(self.loads(), self.rates, strict=True)]
        found = TaskBounds(
            load=max(loads, default=zero),
            critical_path=max((head[j] + solo[j] + tail[j] for j in range(count)), default=zero),
            order=max((preemptive(served) for served in jobs if served), default=zero),
            sum_solo=sum(solo, zero),
            sum_loads=sum(loads, zero),
            critical_delay=max(delays, default=zero),
        )
        if not max(found.load, found.order, found.sum_solo, found.sum_loads, found.critical_delay) < INFINITE:
            raise PlanError(f"the bounds leave the range of floats: {APART}")
        return found

    def _order(self) -> list[int]:
        """The tasks, each after those that it waits for."""
        pending = [len(before) for before in self.before]
        order = [j for j, count in enumerate(pending) if not count]
        for j in order:
            for later in self.after[j]:
                pending[later] -= 1
                if not pending[later]:
                    order.append(later)
        if len(order) < len(pending):
            raise PlanError(f"tasks wait for themselves: {self._cycle(pending)}. Drop one of these deps.")
        return order

    def _cycle(self, pending: Sequence[int]) -> str:
        """One cycle, in the order in which its tasks would have to run."""
        j = next(j for j, count in enumerate(pending) if count)
        seen: dict[int, int] = {}
        path: list[int] = []
        while j not in seen:
            seen[j] = len(path)
            path.append(j)
            j = next(on for on in self.before[j] if pending[on])
        cycle = [self.names[one] for one in [*path[seen[j] :], j]]
        shown = cycle if len(cycle) <= 12 else [*cycle[:6], "...", *cycle[-5:]]
        return " after ".join(f'"{one}"' if one != "..." else one for one in shown)
