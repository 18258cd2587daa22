"""Events and their longest cycles: the recurrences behind every schedule.

Each event starts when those that it waits for have ended, in this step or in an earlier one (a token for each step
between). Its longest path is one step from empty buffers; its largest ratio of time to tokens is the period of
back-to-back steps (Baccelli et al., max-plus algebra). Exact where times are Fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Rational
from typing import Any

from offload.given import as_long, each_not_negative, finite, finite_arrays, flag, whole
from offload.plan import UNLIMITED, Amount
from offload.tracing import heavy, largest, opaque, traced

MOST, TRIED = 100, 1_000  # cycles of which the largest is taken, and ways that are tried to find them


@dataclass(frozen=True, slots=True)
class Chain:
    """A prefetch chain's times [s]: one step from empty buffers, the period of back-to-back steps."""

    cold_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Events:
    """Events in a legal order. before[i] holds (j, tokens): i starts once j ended, `tokens` steps earlier."""

    before: tuple[tuple[tuple[int, int], ...], ...]

    def cold(self, seconds: Sequence[float]) -> float:
        """The longest path of one step from empty buffers [s]."""
        starts = self.starts(seconds)
        return largest(0, *(start + time for start, time in zip(starts, seconds, strict=True)))

    def starts(self, seconds: Sequence[float]) -> list[float]:
        """When each event of one step starts, from empty buffers [s]."""
        starts: list[float] = []
        ends: list[float] = []
        followed = traced(*seconds)
        for i, waits in enumerate(self.before):
            begins: float = 0
            for j, tokens in waits:
                if tokens:
                    continue
                if followed:
                    begins = largest(begins, ends[j])
                elif ends[j] > begins:
                    begins = ends[j]
            starts.append(begins)
            ends.append(begins + seconds[i])
        return starts

    def period(self, seconds: Sequence[float]) -> float:
        """The maximum cycle ratio: the largest (time along a cycle) / (tokens on it), exact."""
        arcs = sorted({(j, i, tokens) for i, waits in enumerate(self.before) for j, tokens in waits if tokens})
        heads = sorted({head for _, head, _ in arcs})
        here = [[j for j, tokens in waits if not tokens] for waits in self.before]
        ends_from = self._traced_ends_from if traced(*seconds) else self._ends_from
        paths = {head: ends_from(head, seconds, here) for head in heads}
        # A smaller graph of the token-carrying arcs alone: from the head of one to the tail of the next.
        column = {head: index for index, head in enumerate(heads)}
        edges: dict[tuple[int, int, int], float] = {}
        for head in heads:
            ends = paths[head]
            for tail, onward, tokens in arcs:
                time = ends[tail]
                if time is not None:
                    key = (column[head], column[onward], tokens)
                    edges[key] = largest(edges[key], time) if key in edges else time
        ratio: float = _maximum_ratio(len(heads), [(a, b, time, tokens) for (a, b, tokens), time in edges.items()])
        return ratio

    def _ends_from(self, head: int, seconds: Sequence[float], waits: Sequence[Sequence[int]]) -> list[float | None]:
        """The end of each event if `head` starts at 0 and nothing else holds anything up; None where unreachable.

        waits : what each waits for in this step.
        """
        ends: list[float | None] = [None] * len(self.before)
        ends[head] = seconds[head]
        for i in range(head + 1, len(ends)):
            begins = None
            for j in waits[i]:
                end = ends[j]
                if end is not None and (begins is None or end > begins):
                    begins = end
            if begins is not None:
                ends[i] = begins + seconds[i]
        return ends

    def _traced_ends_from(
        self, head: int, seconds: Sequence[float], waits: Sequence[Sequence[int]]
    ) -> list[float | None]:
        """The same of traced numbers, without comparisons."""
        ends: list[float | None] = [None] * len(self.before)
        ends[head] = seconds[head]
        for i in range(head + 1, len(ends)):
            reached = [end for j in waits[i] if (end := ends[j]) is not None]
            if reached:
                ends[i] = largest(*reached) + seconds[i]
        return ends


def _maximum_ratio(count: int, edges: list[tuple[int, int, Amount, int]]) -> Amount:
    """The largest ratio of time to tokens over the cycles of a graph; times may be traced.

    Of few cycles the largest of all, each summed from its first node on; of many found by Newton's method.
    """
    cycles = _cycles(count, tuple((a, b) for a, b, _, _ in edges))
    if cycles is None:
        times = [time for _, _, time, _ in edges]
        return opaque(heavy(_Newton(count, tuple((a, b, tokens) for a, b, _, tokens in edges))), *times)
    exact = any(isinstance(time, Fraction) for _, _, time, _ in edges)
    found: Amount = 0.0
    for cycle in cycles:
        time, tokens = edges[cycle[0]][2], edges[cycle[0]][3]
        for edge in cycle[1:]:
            time, tokens = time + edges[edge][2], tokens + edges[edge][3]
        found = largest(found, (Fraction(time) if exact and isinstance(time, Rational) else time) / tokens)
    return found


@lru_cache(maxsize=256)
def _cycles(count: int, arcs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...] | None:
    """The elementary cycles of a graph, each as places of its arcs from its least node on; None of more than MOST."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    for place, (a, _) in enumerate(arcs):
        leaving[a].append(place)
    found: list[tuple[int, ...]] = []
    tried = 0
    for start in range(count):
        waiting: list[tuple[int, ...]] = [(place,) for place in leaving[start]]
        while waiting:
            way = waiting.pop()
            tried += 1
            if tried > TRIED or len(found) > MOST:
                return None
            end = arcs[way[-1]][1]
            if end == start:
                found.append(way)
            elif end > start and all(arcs[place][0] != end for place in way):
                waiting += [(*way, place) for place in leaving[end]]
    return tuple(found)


@dataclass(frozen=True)
class _Newton:
    """The largest ratio of a graph whose cycles are many, from the times of its arcs (from, to, tokens)."""

    count: int
    arcs: tuple[tuple[int, int, int], ...]

    def __call__(self, *times: float) -> Amount:
        if any(time == float("inf") for time in times):  # no cycle leaves out what can never end
            return float("inf")
        edges = [(a, b, time, tokens) for (a, b, tokens), time in zip(self.arcs, times, strict=True)]
        return _newton(self.count, edges)


def _newton(count: int, edges: list[tuple[int, int, Amount, int]]) -> Amount:
    """The largest ratio by Newton's method: each round looks for a cycle whose time beats `ratio` x tokens.

    (Bellman-Ford on longest paths); it takes that cycle's ratio, and ends where there is none. Every cycle here carries
    a token. Exact where times are Fractions.
    """
    exact = any(isinstance(time, Fraction) for _, _, time, _ in edges)
    exact = exact and all(isinstance(time, Rational) for _, _, time, _ in edges)
    if exact:
        edges = [(a, b, Fraction(time), tokens) for a, b, time, tokens in edges]
    ratio = max((time / tokens for a, b, time, tokens in edges if a == b), default=0.0)
    while True:
        better = _cycle_above(count, edges, Fraction(ratio) if exact else ratio, exact)
        if better is None or not better > (ratio if exact else ratio * (1 + 1e-14)):
            return ratio
        ratio = better


def _cycle_above(count: int, edges: list[tuple[int, int, Amount, int]], ratio: Amount, exact: bool) -> Amount | None:
    """The ratio of some cycle that beats `ratio`, or None."""
    slack = 0 if exact else 1e-15 * max((time for _, _, time, _ in edges), default=0.0)
    gain = [0 if exact else 0.0] * count
    came: list[Any] = [None] * count  # the edge that each was last reached by: on a cycle, each was
    changed = -1
    for _ in range(count):
        changed = -1
        for edge in edges:
            a, b, time, tokens = edge
            reach = gain[a] + (time - ratio * tokens)
            if reach > gain[b] + slack:
                gain[b], came[b], changed = reach, edge, b
        if changed < 0:
            return None
    node = changed
    for _ in range(count):
        node = came[node][0]
    time_sum: Amount = 0
    begin, token_sum = node, 0
    while True:
        edge = came[node]
        time_sum += edge[2]
        token_sum += edge[3]
        node = edge[0]
        if node == begin:
            return time_sum / token_sum


@finite
def prefetch_chain(
    fetch: Sequence[float], compute: Sequence[float], buffers: int, resident: Sequence[bool] | None = None
) -> Chain:
    """Layers fetched ahead into `buffers` slots while earlier ones compute; fetch and compute share nothing.

    F_i = max(F_{i-1}, C_{i-k}) + f_i and C_i = max(C_{i-1}, F_i) + c_i; a slot is held from the start of a fetch to
    the end of its compute; k = `UNLIMITED` never waits for one. fetch, compute : seconds per layer (N,). resident :
    layers that fetch nothing and hold no slot. The period is the maximum cycle ratio, the cold time a longest path
    (two-machine flow shop with a buffer). Raises FormulaError on times that are not, lists of unequal length, and less
    than no buffer.
    """
    each_not_negative("fetch", fetch)
    each_not_negative("compute", compute)
    as_long("fetch", fetch, "compute", compute)
    if resident is not None:
        as_long("resident", resident, "fetch", fetch)
        for index, one in enumerate(resident):
            flag(f"resident[{index}]", one)
    whole("buffers", buffers, 0)
    count = len(fetch)
    if buffers >= 2 * count:  # a cycle over d layers and a slot has d + k layers of tokens: lanes alone take as long
        buffers = UNLIMITED
    stays = [False] * count if resident is None else resident
    streamed = [i for i in range(count) if not stays[i]]
    at: dict[tuple[str, int], int] = {}
    before: list[list[tuple[int, int]]] = []
    seconds: list[float] = []
    for i in range(count):
        if not stays[i]:
            at["fetch", i] = len(before)
            before.append([])
            seconds.append(fetch[i])
        at["compute", i] = len(before)
        before.append([(at["fetch", i], 0)] if ("fetch", i) in at else [])
        seconds.append(compute[i])
    queue(before, [at["fetch", i] for i in streamed])
    queue(before, [at["compute", i] for i in range(count)])
    if buffers != UNLIMITED:
        take_slots(before, [at["fetch", i] for i in streamed], [((at["compute", i], 0),) for i in streamed], buffers)
    events = Events(tuple(tuple(waits) for waits in before))
    return Chain(events.cold(seconds), events.period(seconds))


@finite_arrays
def double_buffer(fetch: Sequence[Amount], compute: Sequence[Amount]) -> Chain:
    """Two buffers in closed form: a loop with a barrier per layer.

    cold = f_1 + sum_{i<N} max(c_i, f_{i+1}) + c_N; period = sum_i max(c_i, f_{i+1 mod N}). Times may be arrays that
    broadcast [s]. Raises FormulaError on times that are not, or lists of unequal length.
    """
    each_not_negative("fetch", fetch, arrays=True)
    each_not_negative("compute", compute, arrays=True)
    as_long("fetch", fetch, "compute", compute)
    cold, period = fetch[0], 0
    for i, time in enumerate(compute):
        following = fetch[(i + 1) % len(fetch)]
        both = maximum(time, following)
        period = period + both
        cold = cold + (both if i + 1 < len(fetch) else time)
    return Chain(cold, period)


def maximum(a: Amount, b: Amount) -> Amount:
    if hasattr(a, "shape") or hasattr(b, "shape"):
        import numpy

        return numpy.maximum(a, b)
    return largest(a, b)


def queue(before: list[list[tuple[int, int]]], lane: Sequence[int]) -> None:
    """Events of one lane follow each other, and the first of the next step follows the last of this one."""
    for earlier, later in zip(lane, lane[1:], strict=False):
        before[later].append((earlier, 0))
    if lane:
        before[lane[0]].append((lane[-1], 1))


def take_slots(
    before: list[list[tuple[int, int]]],
    fetches: Sequence[int],
    releases: Sequence[Sequence[tuple[int, int]]],
    buffers: int,
) -> bool:
    """The i-th fetch takes the slot that the (i - buffers)-th gave back, perhaps in an earlier step.

    releases[i] : (event, steps after the fetch's own). False where a fetch would wait for itself or what follows it.
    """
    count = len(fetches)
    for i, fetch in enumerate(fetches):
        steps, giver = divmod(i - buffers, count)
        for release, later in releases[giver]:
            tokens = -steps - later
            if tokens < 0 or (tokens == 0 and release >= fetch):
                return False
            before[fetch].append((release, tokens))
    return True
