"""Floors: what no schedule of a step beats.

Two questions, two floors. Back-to-back steps: every resource must serve its load each step (T >= max_r L_r / B_r),
and where a step needs the last compute of the step before, the chain of computes must run once per step. One step
alone: the order of its tasks counts too (heads, bodies and tails). Only peak rates certify; caches in front of a
memory may spare it some of its load, and what they may spare is taken off.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from numbers import Rational

from offload.errors import FormulaError, shown
from offload.given import finite, finite_arrays, listed, load_rows, not_negative
from offload.plan import Amount
from offload.step import Step, distinct, loads, peak_of, seconds_of_rows, sustained_rate
from offload.topology import Resource
from offload.tracing import Traced, is_least, largest, pick

TIE = 1e-12  # relative: resources that bind together


@dataclass(frozen=True, slots=True)
class Term:
    """One summand or side of a floor: `amount` over `rate` takes `seconds` on a resource (rate 0: pure latency).

    also : further resources that take as long beside it (ranks that work alike).
    """

    resource: str
    amount: float
    unit: str
    rate: float
    seconds: float
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Floor:
    """A lower bound on a step [s].

    seconds : the period of back-to-back steps: the larger of load_seconds and cycle_seconds. rule : which of the two
    gave it ("load" or "cycle"). bottleneck : the resources that bind (a tie set for "load"; those that the chain
    spends at least a hundredth of its time on, longest first, for "cycle"). cold_seconds : one step alone, its order
    respected. terms : what adds up ("cycle") or ties ("load"). spared : what the cache in front of each memory may
    spare, taken off; of a tie set, in front of the first. chain : what adds up along the cycle, whichever rule gave it.
    """

    seconds: float
    rule: str
    bottleneck: tuple[str, ...]
    load_seconds: float
    cycle_seconds: float
    cold_seconds: float
    terms: tuple[Term, ...] = ()
    spared: tuple[Term, ...] = ()
    in_flight: int = 1
    chain: tuple[Term, ...] = ()

    @property
    def spared_seconds(self) -> float:
        """What caches may spare in all [s]."""
        return sum(term.seconds for term in self.spared)


@dataclass(frozen=True, slots=True)
class LoadBound:
    """max_r L_r / B_r with the time of each resource [s] and the sorted tie set that gives it."""

    seconds: Amount
    resource_seconds: Mapping[str, Amount]
    bottleneck: tuple[str, ...]


@finite_arrays
def load_bound(rates: Mapping[str, Amount], transfers: Sequence[tuple[Amount, Mapping[str, Amount]]]) -> LoadBound:
    """The load bound T >= max_r L_r / B_r, L_r = sum_j a_rj D_j, for any rows.

    rates : resource -> B_r. transfers : (D_j, {resource: a_rj}). Exact for Fractions; arrays broadcast (no tie set
    then). Proof: a resource serves at most B_r T units in time T and must serve L_r. Raises FormulaError for rates that
    are not above 0, amounts or coefficients below 0, resources without a rate, and what floats cannot hold.
    """
    transfers = load_rows(rates, transfers, arrays=True)
    totals: dict[str, Amount] = {name: 0 for name in rates}
    for amount, use in transfers:
        for name, coefficient in use.items():
            totals[name] = totals[name] + coefficient * amount
    seconds = {name: total / rates[name] for name, total in totals.items()}
    return LoadBound(*_largest(seconds))


def _largest(seconds: Mapping[str, Amount]) -> tuple[Amount, Mapping[str, Amount], tuple[str, ...]]:
    """The largest time, all times, and the names within `TIE` of the largest (none where times are arrays)."""
    if any(hasattr(time, "shape") and time.shape for time in seconds.values()):
        import numpy

        most = 0.0
        for time in seconds.values():
            most = numpy.maximum(most, time)
        return most, seconds, ()
    most = largest(*seconds.values()) if seconds else 0.0
    if isinstance(most, Traced):
        return most, seconds, ()
    # Exact numbers stay exact: one may be too large for a float.
    near = most * (Fraction(1 - TIE) if isinstance(most, Rational) else 1 - TIE)
    binding = sorted(name for name, time in seconds.items() if time > 0 and time >= near)
    return most, seconds, tuple(binding)


@finite
def head_body_tail(jobs: Sequence[tuple[float, float, float]]) -> float:
    """The least time in which one resource can serve jobs of (head, body, tail) [s].

    max over subsets J of min head + sum of bodies + min tail, found in O(n log n) by Jackson's preemptive schedule:
    at each moment serve, of the jobs whose head has passed, the one with the longest tail (Carlier 1982). Raises
    FormulaError for times below 0 or not finite, and what floats cannot hold.
    """
    for number, job in enumerate(listed("jobs", jobs, "(head, body, tail)")):
        if not isinstance(job, Sequence) or isinstance(job, str) or len(job) != 3:
            raise FormulaError(f"jobs[{number}]: {shown(job)} is no job; give (head, body, tail) in seconds.")
        for what, time in zip(("head", "body", "tail"), job, strict=True):
            not_negative(f"jobs[{number}] {what}", time)
    return preemptive(jobs)


def preemptive(jobs: Sequence[tuple[float, float, float]]) -> float:
    """`head_body_tail` of times that are checked already."""
    ordered = sorted((head, body, tail) for head, body, tail in jobs if body > 0)
    ready: list[list[float]] = []  # [-tail, body left]
    clock: float = 0
    longest: float = 0
    index = 0
    while index < len(ordered) or ready:
        if not ready:
            clock = max(clock, ordered[index][0])
        while index < len(ordered) and ordered[index][0] <= clock:
            head, body, tail = ordered[index]
            heapq.heappush(ready, [-tail, body])
            index += 1
        job = ready[0]
        until = ordered[index][0] if index < len(ordered) else float("inf")
        if clock + job[1] <= until:
            clock += job[1]
            longest = max(longest, clock - job[0])
            heapq.heappop(ready)
        else:
            job[1] -= until - clock
            clock = until
    return longest


def load_seconds(step: Step, grade: str = "peak", alone: bool = False) -> LoadBound:
    """The load bound of a compiled step [s]; amounts may be arrays.

    grade "peak" is the floor (least loads, peak rates, what caches may spare taken off; resources without a peak are
    left out); "value" the same formula over expected loads and sustained rates, "low" and "high" at their ends.
    alone : a step by itself, in which what happens every n steps happens in full.
    """
    if grade == "peak":
        totals = loads(step, least=True, alone=alone)
        seconds = {}
        for name, resource in step.resources.items():
            if resource.peak is not None:
                seconds[name] = _beyond_cache(totals[name], resource.cache) / resource.peak
        return LoadBound(*_largest(seconds))
    seconds = {name: 0.0 for name in step.resources}
    by_access: dict[tuple[str, str], Amount] = {}
    for row, count in zip(step.rows, step.counts, strict=True):
        weight = count if alone or row.every == 1 else count / row.every
        for use in row.uses:
            key = (use.resource, use.access)
            by_access[key] = by_access.get(key, 0.0) + weight * use.amount(grade)
    for (name, access), total in by_access.items():
        seconds[name] = seconds[name] + total / sustained_rate(step.resources[name], access, grade)
    return LoadBound(*_largest(seconds))


def _beyond_cache(total: Amount, cache: int) -> Amount:
    if not cache:
        return total
    if hasattr(total, "shape"):
        import numpy

        return numpy.maximum(total - cache, 0.0)
    return largest(total - cache, 0.0)


def floor(step: Step, grade: str = "peak") -> Floor:
    """The floor of a step: period and one step alone (see `Floor`).

    grade "peak" certifies; "value" is the same formula at sustained rates and expected loads, which proves nothing
    about the machine but bounds every schedule of the model. Amounts must be numbers, not arrays.

    >>> from offload import compile_step, floor, load_plan
    >>> plan, topology = load_plan("examples/by-hand.yaml")
    >>> found = floor(compile_step(topology, plan))
    >>> round(found.seconds, 3), found.rule, found.bottleneck
    (1.341, 'load', ('pcie0.hbm0',))
    """
    load = load_seconds(step, grade)
    cold = load_seconds(step, grade, alone=True).seconds
    in_flight = step.plan.in_flight
    terms: tuple[Term, ...] = ()
    cycle, chain, spared = 0.0, 0.0, terms
    one, like = distinct(step)
    for ignored in _cached(one) if grade == "peak" else [frozenset()]:
        order = _Order(one, grade, ignored)
        kept, kept_alone = (_spared(one, ignored, alone=alone) if grade == "peak" else () for alone in (False, True))
        cold = max(cold, order.alone() - _total(kept_alone))
        length, summands = order.cycle()
        period = (length - _total(kept)) / in_flight
        if period > cycle:
            cycle, chain, terms, spared = period, length, summands, kept
    terms, spared = _with_alike(terms, like), _with_alike(spared, like)
    if cycle > load.seconds * (1 + TIE):
        shown = longest(terms, chain)
        return Floor(cycle, "cycle", shown, load.seconds, cycle, cold, terms, spared, in_flight, terms)
    totals = loads(step, least=grade == "peak", grade=grade)
    ties = tuple(_load_term(step, name, totals[name], load.resource_seconds[name], grade) for name in load.bottleneck)
    first = [step.resources[name] for name in load.bottleneck[:1] if grade == "peak"]
    kept = tuple(_spared_term(one, float(one.cache)) for one in first if one.cache)
    return Floor(load.seconds, "load", load.bottleneck, load.seconds, cycle, cold, ties, kept, in_flight, terms)


def floor_seconds(step: Step, grade: str = "peak") -> Amount:
    """`Floor.seconds` alone, which amounts and rates that are traced go through."""
    load, cycle = load_seconds(step, grade).seconds, 0.0
    # Of resources that work alike one cache is spared (`distinct`); without such ones nothing need be compared.
    cached = [(one.kind, one.unit, one.cache) for one in step.resources.values() if one.cache and one.peak is not None]
    one = step if grade != "peak" or len(set(cached)) == len(cached) else distinct(step)[0]
    for ignored in _cached(one) if grade == "peak" else [frozenset()]:
        kept = _spared(one, ignored, alone=False) if grade == "peak" else ()
        cycle = largest(cycle, (_Order(one, grade, ignored).length() - _total(kept)) / step.plan.in_flight)
    return pick(cycle, load * (1 + TIE), cycle, load)


def _total(terms: Sequence[Term]) -> Amount:
    """Seconds of terms one after another: sums of plain and traced numbers are the same to the last bit."""
    total: Amount = 0.0
    for term in terms:
        total = total + term.seconds
    return total


def longest(terms: Sequence[Term], length: float) -> tuple[str, ...]:
    """The resources on which a chain spends at least a hundredth of its length [s], longest first."""
    sums: dict[str, float] = {}
    for term in terms:
        for name in (term.resource, *term.also) if term.rate else ():
            sums[name] = sums.get(name, 0.0) + term.seconds
    least = 0.01 * length * (1 - TIE)
    return tuple(sorted((name for name in sums if sums[name] >= least), key=lambda name: -sums[name]))


def cycle_seconds(step: Step, grade: str) -> float:
    """The chain of computes of back-to-back steps at an end of the sustained rates, over the steps in flight [s].

    `Floor.cycle_seconds` by itself.
    """
    return _Order(step, grade, frozenset()).cycle()[0] / step.plan.in_flight


def _with_alike(terms: Sequence[Term], like: Mapping[str, tuple[str, ...]]) -> tuple[Term, ...]:
    """The terms with the resources that are like theirs (`distinct`) beside them."""
    return tuple(
        replace(term, also=(*(name for also in (term.resource, *term.also) for name in like.get(also, ())), *term.also))
        for term in terms
    )


def _load_term(step: Step, name: str, amount: float, seconds: float, grade: str) -> Term:
    resource = step.resources[name]
    rate = peak_of(resource) if grade == "peak" else (amount / seconds if seconds else 0.0)
    return Term(name, amount, resource.unit, rate, seconds)


def _cached(step: Step) -> list[frozenset[str]]:
    """Sets of memories with a cache to leave out of the order, one after another.

    A path is at least as long as without a memory at all, and as with it less what its cache may spare; the larger of
    the two never falls when a load grows nor rises when a rate does. All subsets for up to three such memories, else
    none, each alone and all.
    """
    names = [name for name, resource in sorted(step.resources.items()) if resource.cache and resource.peak is not None]
    sizes = range(len(names) + 1) if len(names) <= 3 else (0, 1, len(names))
    return [frozenset(some) for size in sizes for some in combinations(names, size)]


def _spared(step: Step, ignored: frozenset[str], alone: bool) -> tuple[Term, ...]:
    """What caches may spare on any path: each byte they keep shortens it by at most 1 / peak of its memory."""
    totals = loads(step, least=True, alone=alone)
    return tuple(
        _spared_term(resource, min(float(resource.cache), totals[name]))
        for name, resource in step.resources.items()
        if resource.cache and resource.peak is not None and name not in ignored
    )


def _spared_term(resource: Resource, amount: float) -> Term:
    return Term(resource.name, amount, resource.unit, peak_of(resource), amount / peak_of(resource))


class _Order:
    """Heads, ends and tails of every instance under a step's order, at one grade, some resources ignored."""

    def __init__(self, step: Step, grade: str, ignored: frozenset[str]):
        self.step = step
        self.grade = grade
        end = 0 if grade == "peak" else 1
        self.seconds = [
            {name: time for name, time in times.items() if name not in ignored}
            for times in seconds_of_rows(step, grade)
        ]
        self.latency = [row.latency[end] for row in step.rows]
        self.longest = [largest(*times.values()) if times else 0.0 for times in self.seconds]
        self.body = [time / row.apart for time, row in zip(self.longest, step.rows, strict=True)]  # a path's part

    def alone(self) -> float:
        """Order-aware bound on one step alone: critical path, and heads, bodies and tails on each resource.

        `after` waits for the end; `streams` for the start, and ends no earlier than what it waits for.
        """
        step = self.step
        start, end = self._forward([0.0] * len(step.instances))
        tail = self._backward()
        longest = max((end[i] + tail[i] for i in range(len(end))), default=0.0)
        jobs: dict[str, list[tuple[float, float, float]]] = {}
        for i, row in enumerate(step.instances):
            for name, seconds in self.seconds[row].items():
                if seconds > 0:
                    jobs.setdefault(name, []).append((start[i] + self.latency[row], seconds, tail[i]))
        return max([longest, *(preemptive(served) for served in jobs.values())])

    def _forward(self, earliest: list[float], weighted: bool = False) -> tuple[list[float], list[float]]:
        """Earliest start and end of each instance; -inf where `earliest` is and nothing before it is reachable."""
        step = self.step
        start, end = list(earliest), list(earliest)
        for i, row in enumerate(step.instances):
            begins, ends = start[i], float("-inf")
            for wait in step.waits[i]:
                before = step.instances[wait.on]
                if wait.streams:
                    begins = largest(begins, start[wait.on] + self._latency(before, weighted))
                    ends = largest(ends, end[wait.on])
                else:
                    begins = largest(begins, end[wait.on])
            start[i] = begins
            # Where nothing before it is reachable there is nothing to add to, and nothing to trace.
            end[i] = ends if is_least(begins) else largest(begins + self._solo(row, weighted), ends)
        return start, end

    def _solo(self, row: int, weighted: bool) -> float:
        solo = self.latency[row] + self.body[row]
        return solo * self.step.rows[row].weight if weighted else solo

    def _latency(self, row: int, weighted: bool) -> float:
        return self.latency[row] * self.step.rows[row].weight if weighted else self.latency[row]

    def _backward(self) -> list[float]:
        """The least time between each instance's end and the end of the step."""
        step = self.step
        count = len(step.instances)
        after_end = [0.0] * count
        after_start = [0.0] * count
        for i in range(count - 1, -1, -1):
            row = step.instances[i]
            after_start[i] = max(after_start[i], self.latency[row] + self.body[row] + after_end[i])
            for wait in step.waits[i]:
                if wait.streams:
                    # The follower starts at the latency after its source starts, and ends no earlier than it.
                    lag = self.latency[step.instances[wait.on]]
                    after_start[wait.on] = max(after_start[wait.on], lag + after_start[i])
                    after_end[wait.on] = max(after_end[wait.on], after_end[i])
                else:
                    after_end[wait.on] = max(after_end[wait.on], after_start[i])
        return after_end

    def cycle(self) -> tuple[float, tuple[Term, ...]]:
        """The longest chain from a step's first compute to its last [s], and the terms that add up to it."""
        step = self.step
        if step.first_compute is None or step.last_compute is None:
            return 0.0, ()
        start, end = self._from(step.first_compute)
        return end[step.last_compute], self._terms(start, end, step.last_compute)

    def length(self) -> Amount:
        """The longest chain from a step's first compute to its last alone [s]."""
        first, last = self.step.first_compute, self.step.last_compute
        return 0.0 if first is None or last is None else self._from(first)[1][last]

    def _from(self, first: int) -> tuple[list[float], list[float]]:
        earliest = [float("-inf")] * len(self.step.instances)
        earliest[first] = 0.0
        return self._forward(earliest, weighted=True)

    def _terms(self, start: list[float], end: list[float], i: int) -> tuple[Term, ...]:
        """Walk back along the chain that gave the last compute's end, adding up what binds each task on it."""
        step = self.step
        sums: dict[tuple[str, ...], list[float]] = {}
        latency, at_end = 0.0, True
        while True:
            row = step.instances[i]
            weight = step.rows[row].weight
            if at_end:
                solo = self._solo(row, True)
                if end[i] > start[i] + solo:  # it only ends as late as what streams into it
                    i = next(w.on for w in step.waits[i] if w.streams and end[w.on] == end[i])
                    continue
                if self.body[row] > 0:
                    least = self.longest[row] * (1 - TIE)
                    names = tuple(name for name, time in self.seconds[row].items() if time >= least)
                    term = sums.setdefault(names, [0.0, 0.0])
                    term[0] += weight * self._amount(row, names[0])
                    term[1] += weight * self.body[row]
                latency += weight * self.latency[row]
            if i == step.first_compute and start[i] == 0.0:
                break
            found = None
            for wait in step.waits[i]:
                before = step.instances[wait.on]
                if not wait.streams and end[wait.on] == start[i]:
                    found = (wait.on, True, 0.0)
                elif wait.streams and start[wait.on] + self._latency(before, True) == start[i]:
                    found = (wait.on, False, self._latency(before, True))
                if found:
                    break
            if found is None:
                break
            i, at_end = found[0], found[1]
            latency += found[2]
        terms = []
        for names, (amount, seconds) in sums.items():
            resource = step.resources[names[0]]
            rate = peak_of(resource) if self.grade == "peak" else amount / seconds
            terms.append(Term(names[0], amount, resource.unit, rate, seconds, names[1:]))
        terms.sort(key=lambda term: (-term.seconds, term.resource))
        if latency > 0:
            terms.append(Term("latency", 0.0, "", 0.0, latency))
        return tuple(terms)

    def _amount(self, row: int, name: str) -> Amount:
        least = self.grade == "peak"
        uses = (use for use in self.step.rows[row].uses if use.resource == name)
        return sum(use.least if least else use.amount(self.grade) for use in uses) / self.step.rows[row].apart
