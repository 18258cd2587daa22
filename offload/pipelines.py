"""Pipelines in closed form and by recurrence: stages with slots, chunked paths, prefetched layers, resident layouts.

Pure functions of times [s], exact where those are Fractions. A recurrence uses max and + in one fixed order only, so it
never falls, to the last bit, when a time grows.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from offload.designs.placement import spread
from offload.errors import CapacityError, FormulaError, shown
from offload.events import Events, prefetch_chain, queue, take_slots
from offload.given import as_long, each_not_negative, finite, flag, listed, not_negative, plainly, positive, whole
from offload.plan import UNLIMITED, Amount

MOST_STEPS = 10_000  # of a chain that is run until it repeats itself
MOST_KEPT = 1_000  # buffers of such a chain: each step keeps as many times
MOST_RUN = 10**6  # times that a recurrence works out, and layers of a layout


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Times of a pipeline [s]: makespan of all items from empty, period between items far from both ends."""

    makespan: Amount
    period: Amount


@finite
def tandem(
    stage_times: Sequence[Amount], items: int, slots: Sequence[int | None] | None = None, pool: int | None = None
) -> Pipeline:
    """Identical items through stages in a row, each stage one item at a time, in order.

    stage_times : seconds of an item in each of M stages. slots[m] : places between stage m and m + 1 (None: without
    limit), one of which an item holds from its start in m to its end in m + 1. pool : places that an item holds from
    its first start to its last end (worked on in place). The makespan by the recurrence
    S_m(i) = max(E_m(i-1), E_{m-1}(i), E_{m+1}(i - slots[m]), for m = 1 E_M(i - pool)), E = S + p_m, in O(items x M);
    it is sum p + (items - 1) max p where each slots[m] >= 2 and pool >= M. The period in closed form:
    max(max p_m, max (p_m + p_{m+1}) / slots[m], sum p / pool), since the elementary cycles of the stages' event graph
    are self-loops, pairs of neighbours and the pool's (maximum cycle ratio: Baccelli et al., Synchronization and
    Linearity). Raises FormulaError on negative times, no items, or less than one slot.
    """
    times = each_not_negative("stage_times", stage_times)
    whole("items", items, 1)
    slots = _slots(slots, pool, len(times))
    period = max(times)
    for here, following, places in zip(times, times[1:], slots, strict=False):
        if places == 1:  # more let the slower of the two work all the time
            period = max(period, here + following)
    if pool is not None and pool < len(times):
        period = max(period, sum(times) / pool)
    if all(places is None or places >= 2 for places in slots) and (pool is None or pool >= len(times)):
        return Pipeline(sum(times) + (items - 1) * max(times), period)
    _few("items x stages", int(items) * len(times))
    return Pipeline(_last_end((times for _ in range(items)), slots, pool), period)


@finite
def tandem_of(
    times: Sequence[Sequence[Amount]], slots: Sequence[int | None] | None = None, pool: int | None = None
) -> Pipeline:
    """Unequal items through stages in a row: times[item][stage] [s]; else as `tandem`.

    The makespan by the same recurrence; the period is per round of all items, repeated without end, and is the maximum
    cycle ratio of the event graph. Raises FormulaError where items differ in their number of stages.
    """
    if not len(listed("times", times, "lists of seconds")):
        raise FormulaError("times: give the seconds in each stage of at least one item.")
    for number, item in enumerate(times):
        each_not_negative(f"times[{number}]", item)
        as_long(f"times[{number}]", item, "times[0]", times[0])
    slots = _slots(slots, pool, len(times[0]))
    seconds = [time for item in times for time in item]
    return Pipeline(_last_end(times, slots, pool), _events(len(times), slots, pool).period(seconds))


def _slots(slots: Sequence[int | None] | None, pool: int | None, stages: int) -> list[int | None]:
    places = [None] * (stages - 1) if slots is None else list(listed("slots", slots, "whole numbers"))
    if len(places) != stages - 1:
        raise FormulaError(f"slots: {len(places)} given for {stages} stages; give {stages - 1}, one between each two.")
    for index, count in enumerate(places):
        if count is not None:
            whole(f"slots[{index}]", count, 1)
    if pool is not None:
        whole("pool", pool, 1)
    return places


def _few(what: str, count: int) -> None:
    """Raises FormulaError where more than MOST_RUN times are to be worked out one after another."""
    whole(what, count, 0, MOST_RUN)


def _last_end(rows: Iterable[Sequence[Amount]], slots: Sequence[int | None], pool: int | None) -> Amount:
    """The end of the last item in the last stage; only as many items are kept as a slot looks back."""
    back = max([1, *(count for count in (*slots, pool) if count is not None)])
    kept: deque[list[Amount]] = deque(maxlen=min(back, sys.maxsize))  # ends of the items before, the latest last
    for times in rows:
        ends: list[Amount] = []
        last = len(times) - 1
        for stage, time in enumerate(times):
            begins = ends[-1] if ends else 0
            if kept:
                begins = max(begins, kept[-1][stage])
            if stage < last and (room := slots[stage]) is not None and len(kept) >= room:
                begins = max(begins, kept[-room][stage + 1])
            if not stage and pool is not None and len(kept) >= pool:
                begins = max(begins, kept[-pool][last])
            ends.append(begins + time)
        kept.append(ends)
    return kept[-1][-1]


def _events(items: int, slots: Sequence[int | None], pool: int | None) -> Events:
    """The event graph of a round of items through stages, item by item."""
    stages = len(slots) + 1
    before: list[list[tuple[int, int]]] = [
        [(item * stages + stage - 1, 0)] if stage else [] for item in range(items) for stage in range(stages)
    ]
    at = [[item * stages + stage for item in range(items)] for stage in range(stages)]
    for stage in range(stages):
        queue(before, at[stage])
        if stage + 1 < stages and (room := slots[stage]) is not None:
            take_slots(before, at[stage], [((after, 0),) for after in at[stage + 1]], room)
    if pool is not None:
        take_slots(before, at[0], [((last, 0),) for last in at[-1]], pool)
    return Events(tuple(tuple(waits) for waits in before))


@dataclass(frozen=True, slots=True)
class PathTimes:
    """Times over a path [s]: cut-through (all hops at once), one hop after another, and in equal chunks."""

    cut_through: Amount
    store_and_forward: Amount
    chunked: Amount


@finite
def path_times(amount: Amount, rates: Sequence[Amount], chunks: int, slots: int | None = None) -> PathTimes:
    """The times of `amount` [B] over hops of `rates` [B/s], in three ways.

    cut_through = D / min B_e; store_and_forward = sum D / B_e; chunked with p_e = (D / chunks) / B_e:
    sum p_e + (chunks - 1) max p_e, a flow shop of identical jobs, which tends to cut-through as chunks grow. slots :
    chunks that fit between two hops (None: all). Raises FormulaError on rates that are not above 0.
    """
    not_negative("amount", amount)
    each_not_negative("rates", rates)
    for index, rate in enumerate(rates):
        positive(f"rates[{index}]", rate)
    whole("chunks", chunks, 1)
    hops = [amount / rate for rate in rates]
    parts = [hop / chunks for hop in hops]
    chunked = tandem(parts, chunks, [slots] * (len(parts) - 1)).makespan
    return PathTimes(max(hops), sum(hops), chunked)


@finite
def bounce_period(first: Amount, second: Amount, slots: int) -> Amount:
    """Seconds per chunk through a ring of staging slots: max(p1, p2, (p1 + p2) / slots).

    first, second : seconds of a chunk into and out of the ring. One slot is serial, two reach the slower hop.
    """
    return tandem([first, second], 1, [slots]).period


@finite
def write_back(fetch: Amount, compute: Amount, write: Amount, items: int, slots: int) -> Pipeline:
    """Identical items fetched, worked on in place and written back, where both ways share one half-duplex link.

    slots : items held from fetch to write-back. The link serves in the order F_i, W_{i-slots+1}, F_{i+1}, ...: it runs
    slots - 1 items ahead, then alternates. The makespan by recurrence; the period is
    max(f + w, c, (f + c + w) / slots), and so max(f + w, c) for two slots or more.
    """
    for name, time in (("fetch", fetch), ("compute", compute), ("write", write)):
        not_negative(name, time)
    whole("items", items, 1, MOST_RUN)
    whole("slots", slots, 1)
    held = min(slots, items)  # more places are never taken
    link = computed = end = 0
    ready: deque[Amount] = deque()  # ends of computes that are not yet written back
    for item in range(items + held - 1):
        if item < items:
            link = link + fetch
            computed = max(computed, link) + compute
            ready.append(computed)
        if item >= held - 1 and ready:
            link = end = max(link, ready.popleft()) + write
    serial = fetch + compute + write if slots == 1 else 0  # of more slots less than one of the others
    return Pipeline(end, max(fetch + write, compute, serial))


# Layers fetched ahead.


@finite
def flow_shop(fetch: Sequence[Amount], compute: Sequence[Amount]) -> Amount:
    """One step of prefetched layers with buffers without limit [s]: max_i sum_{j<=i} f_j + sum_{j>=i} c_j.

    The makespan of a two-machine flow shop in a given order (Johnson 1954); equal to `prefetch_chain` with as many
    buffers as layers. fetch, compute : seconds per layer (N,).
    """
    _layers(fetch, compute)
    left = list(accumulate(reversed(compute)))  # sums from each layer on, the last first; nothing is subtracted
    return max(fetched + left[-1 - i] for i, fetched in enumerate(accumulate(fetch)))


@dataclass(frozen=True, slots=True)
class ChainSteps:
    """A prefetch chain run for some steps: the end of each [s], and the period that it tends to (exact) [s]."""

    ends: tuple[Amount, ...]
    steady_step: Amount

    @property
    def first_step(self) -> Amount:
        """One step from empty buffers [s]."""
        return self.ends[0]

    @property
    def total(self) -> Amount:
        """The end of the last step [s]."""
        return self.ends[-1]

    @finite
    def average(self, over: int) -> Amount:
        """Seconds per step over the last `over` steps, (T(n) - T(n - over)) / over.

        Single steps may differ; over a multiple of the cyclicity, behind the transient, it is the period exactly.
        """
        whole("over", over, 1)
        if over >= len(self.ends):
            raise FormulaError(f"over: {shown(over)} steps of {len(self.ends)} that were run; run more, or average "
                               f"over fewer than {len(self.ends)}.")
        return (self.ends[-1] - self.ends[-1 - over]) / over


@finite
def steps_of_chain(
    fetch: Sequence[Amount], compute: Sequence[Amount], buffers: int, steps: int, resident: Sequence[bool] | None = None
) -> ChainSteps:
    """Back-to-back steps of prefetched layers, run: F_i = max(F_{i-1}, C_{i-k}) + f_i, C_i = max(C_{i-1}, F_i) + c_i.

    The layers repeat each step, and the next step's fetches overlap this one's tail. fetch, compute : seconds per layer
    (N,). buffers : k, layer-sized slots that are held from the start of a fetch to the end of its compute
    (`UNLIMITED`: no limit). resident : layers that fetch nothing and hold no slot; C_{i-k} is that of the k-th streamed
    layer before. T(n) = T(1) + (n - 1) x period at once for k = 1, k = 2 and identical layers without residents;
    otherwise there may be a transient. The period is the maximum cycle ratio (`prefetch_chain`).
    """
    run = _Chain(fetch, compute, buffers, resident)
    _few("steps x layers", whole("steps", steps, 1) * len(run.layers))
    ends = tuple(run.step() for _ in range(steps))
    return ChainSteps(ends, prefetch_chain(fetch, compute, buffers, run.resident).seconds)


@dataclass(frozen=True, slots=True)
class Settled:
    """When a chain repeats itself: steps before, steps of a round, and the average over a round [s], all exact."""

    transient: int
    cyclicity: int
    period: Fraction


@finite
def settle(
    fetch: Sequence[Amount], compute: Sequence[Amount], buffers: int, resident: Sequence[bool] | None = None
) -> Settled:
    """Runs a chain in exact rationals until all its times repeat, moved by a constant (max-plus cyclicity).

    Floats are taken at their exact values. Raises FormulaError for buffers without limit, whose fetches may run ahead
    for ever, and where nothing repeats within MOST_STEPS steps.
    """
    whole("buffers", buffers, 0, MOST_KEPT)
    if buffers == UNLIMITED:
        raise FormulaError("buffers: without limit fetches may run ahead for ever; give a number of at least 1.")
    _layers(fetch, compute)
    run = _Chain([Fraction(time) for time in fetch], [Fraction(time) for time in compute], buffers, resident)
    seen: dict[tuple[Fraction, ...], tuple[int, Fraction]] = {}
    for number in range(MOST_STEPS):
        end = run.step()
        state = run.state()
        if state in seen:
            first, then = seen[state]
            return Settled(first, number - first, Fraction(end - then, number - first))
        seen[state] = number, end
    raise FormulaError(f"the chain does not repeat within {MOST_STEPS} steps; `prefetch_chain` has its period.")


class _Chain:
    """The recurrence of `steps_of_chain`, a step at a time."""

    def __init__(
        self, fetch: Sequence[Amount], compute: Sequence[Amount], buffers: int, resident: Sequence[bool] | None
    ):
        _layers(fetch, compute)
        if resident is not None:
            as_long("resident", resident, "fetch", fetch)
            for index, stays in enumerate(resident):
                flag(f"resident[{index}]", stays)
        self.resident = [False] * len(fetch) if resident is None else list(resident)
        self.layers = list(zip(fetch, compute, self.resident, strict=True))
        self.loaded: Amount = 0
        self.done: Amount = 0
        self.limited = whole("buffers", buffers, 0) != UNLIMITED
        most = min(buffers, sys.maxsize) if self.limited else 1
        self.held: deque[Amount] = deque(maxlen=most)  # ends of the last streamed computes

    def step(self) -> Amount:
        """Run all layers once more and return when the last one ends."""
        for load, work, stays in self.layers:
            if not stays:
                free = self.held[0] if self.limited and len(self.held) == self.held.maxlen else 0
                self.loaded = max(self.loaded, free) + load
                self.done = max(self.done, self.loaded)
            self.done = self.done + work
            if not stays:
                self.held.append(self.done)
        return self.done

    def state(self) -> tuple[Amount, ...]:
        """All that later times depend on, counted from the end of the step."""
        if all(self.resident):
            return ()
        full = self.limited and len(self.held) == self.held.maxlen
        loaded = max(self.loaded, self.held[0]) if full else self.loaded  # the next fetch waits for both
        return (len(self.held), loaded - self.done, *(end - self.done for end in self.held))


def _layers(fetch: Sequence[Amount], compute: Sequence[Amount]) -> None:
    each_not_negative("fetch", fetch)
    each_not_negative("compute", compute)
    as_long("fetch", fetch, "compute", compute)


# Which layers to keep.


@dataclass(frozen=True, slots=True)
class Kept:
    """Whole layers that stay in a memory, and those that are streamed through it each step."""

    resident: int
    streamed: int


@plainly
def streamed_layers(layers: int, layers_that_fit: int, buffers: int) -> Kept:
    """How many of a model's equal layers stay where `layers_that_fit` of them fit.

    Streaming with k buffers takes k layer-sized slots first: resident = layers_that_fit - k. Nothing is streamed, and
    no slot is needed, where all fit. Raises CapacityError where not even the buffers fit.
    """
    whole("layers", layers, 1)
    whole("layers_that_fit", layers_that_fit, 0)
    whole("buffers", buffers, 1)
    if layers_that_fit >= layers:
        return Kept(layers, 0)
    if layers_that_fit < buffers:
        fit = shown(layers_that_fit)
        raise CapacityError(f"{fit} layers fit and {shown(buffers)} buffers of one layer are wanted. Use at most {fit} "
                            "buffers, or smaller layers.")
    return Kept(layers_that_fit - buffers, layers - layers_that_fit + buffers)


@plainly
def interleave(streamed: int, resident: int) -> tuple[bool, ...]:
    """The order in which plans lay out layers: True where one is resident; streamed ones spread as evenly as can be.

    A resident one comes first where there is any: it hides the first fetch too. The same number of bytes in blocks
    takes longer where there are few buffers. Raises FormulaError for more than MOST_RUN layers.
    """
    streamed, resident = whole("streamed", streamed, 0), whole("resident", resident, 0)
    _few("streamed + resident", streamed + resident)
    return tuple(one == "resident" for one in spread(["resident"] * resident, "streamed", streamed))
