"""Schedules: times that the modelled machine attains, by recurrences over a step's tasks.

A step's tasks queue in lanes: the transfers of a name in one, the computes of a processor in another. Each task starts
when the one before it in its lane, whatever it waits for, and a free buffer allow. That is a graph of events whose arcs
carry tokens (0 within a step, 1 to the next): its longest path is one step from empty buffers, its largest ratio of
time to tokens the period of back-to-back steps. Where lanes compete for a resource there are several ways to share it
(`lanes`) and policies as they run (`flows`); the shortest found counts, and none serves more than a resource's rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from offload.bounds import load_seconds
from offload.chains import attained, formula, run
from offload.errors import PlanError
from offload.events import maximum
from offload.flows import LAPS, Flow, shortest_flow, shortest_period
from offload.lanes import INFINITE, WAYS, Lanes
from offload.plan import UNLIMITED, Amount
from offload.prefetching import RECURRENCE, Sharing
from offload.step import Step, at_end, distinct, has_ends, seconds_of_rows
from offload.tracing import key_of, largest, pick, smallest, total
from offload.unrolling import MOST_UNROLLED, unrolled

FEW_UNROLLED = 1_000  # as many, of which flows are tried with every number of buffers
ALWAYS = (2, 1)  # fewer buffers that are tried
DEEP = 16  # of them those that are tried one by one
FURTHER = (*range(3, DEEP + 1), *(2**power for power in range(5, 15)))  # for steps back to back, where competition ...
GAINED = 5e-3  # ... may cost more than this share of the time
ROUNDED = 1e-7  # a flow shorter than its bound by more than this share would not be one


@dataclass(frozen=True, slots=True)
class Serial:
    """Every task alone, one after another [s]: seconds for back-to-back steps, cold_seconds for one step alone."""

    seconds: Amount
    cold_seconds: Amount


@dataclass(frozen=True, slots=True)
class Schedule:
    """An attained time [s]: the period of back-to-back steps, its ends, one step from empty buffers, and the policy.

    low, high, cold_low, cold_high : the same with every sustained rate at its fast or its slow end, and with it every
    load at its least or its most.
    """

    seconds: float
    low: float
    high: float
    cold_seconds: float
    policy: str
    cold_low: float
    cold_high: float


# A compiled step: lanes, events, and the speed of tasks beside each other.


def solo_seconds(step: Step, grade: str = "value") -> list[Amount]:
    """Seconds of each row's task alone: typical latency plus the longest of its resources' times (its own roofline)."""
    solo = []
    for row, times in zip(step.rows, seconds_of_rows(step, grade), strict=True):
        longest: Amount = 0.0
        for time in times.values():
            longest = maximum(longest, time)
        solo.append(row.latency[1] + longest)
    return solo


def serial(step: Step, grade: str = "value") -> Serial:
    """The sum of solo times [s]; what happens every n steps counts 1/n back to back, and in full in a step alone."""
    seconds: Amount = 0.0
    cold: Amount = 0.0
    for row, count, solo in zip(step.rows, step.counts, solo_seconds(step, grade), strict=True):
        seconds = seconds + (count if row.every == 1 else count / row.every) * solo
        cold = cold + count * solo
    return Serial(seconds, cold)


def schedule(step: Step, buffers: int | None = None, *, ends: bool = True) -> Schedule:
    """The overlapped time of a step: the shortest of serial and the recurrences, over the ways of sharing resources.

    buffers : instead of the plan's (`UNLIMITED` for no limit). ends : evaluate both ends of the rates too (else low
    and high are the point). Raises PlanError where the buffers can never be given back. Amounts must be numbers.

    >>> from offload import compile_step, load_plan, schedule
    >>> round(schedule(compile_step(*load_plan("examples/by-hand.yaml")[::-1])).seconds, 3)
    1.607
    """
    if buffers is None and step.plan.overlap.kind == "none":
        alone = [serial(step, grade) for grade in ("high", "value", "low")]
        return Schedule(alone[1].seconds, alone[0].seconds, alone[2].seconds, alone[1].cold_seconds, "serial",
                        alone[0].cold_seconds, alone[2].cold_seconds)
    period, cold, policy = _Search(step, buffers).shortest()
    reached, colds = [period], [cold]
    if ends and has_ends(step):
        for end in ("high", "low"):
            further = _Search(step, buffers, end).shortest()
            reached.append(further[0])
            colds.append(further[1])
    return Schedule(period, min(reached), max(reached), cold, policy, min(colds), max(colds))


def overlapped(step: Step) -> Amount:
    """`schedule(step, ends=False).seconds`, of numbers that may be traced [s]. Raises as `schedule` does."""
    if step.plan.overlap.kind == "none":
        return serial(step).seconds
    return _Search(step, None, traced=True).seconds()


def _policy(step: Step, buffers: int | None) -> str:
    overlap = step.plan.overlap if buffers is None else replace(step.plan.overlap, kind="buffers", buffers=buffers)
    return "unlimited buffers" if overlap.buffers == UNLIMITED else str(overlap)


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each instance of a step, or of several, starts and ends [s].

    rows : the number of each one's row in the step's table, None for what does not happen in this step. waits[i] :
    what i waits for: what it needs, its queue and its buffers. steps : how many steps these are.
    """

    rows: tuple[int | None, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    waits: tuple[tuple[int, ...], ...]
    steps: int = 1

    @property
    def seconds(self) -> float:
        """The end of the last [s]."""
        return max(self.ends, default=0.0)


def cold_timeline(step: Step, buffers: int | None = None) -> Timeline:
    """One step alone, from empty buffers, as the schedule of `schedule(step, buffers).cold_seconds` runs it.

    Raises PlanError as `schedule` does. Where serial is the shortest, the tasks run one after another.
    """
    if buffers is None and step.plan.overlap.kind == "none":
        return _run(step, None, 1, 1, None)
    search = _Search(step, buffers)
    search.shortest()
    return _run(step, search.won[True], 1, 1, buffers)


def steady_timeline(step: Step, buffers: int | None = None, rounds: int = 3) -> Timeline | None:
    """Rounds of steps back to back, from empty buffers, as the schedule of `schedule(step, buffers).seconds` runs them.

    A round is one step, or as many as what happens every few steps needs; None where that would be too long, or no
    round runs so. The first rounds may differ from the period, which is that of the rounds in the long run.
    """
    search = _Search(step, buffers)
    if search.round is None or rounds * len(search.round.instances) > MOST_UNROLLED:
        return None
    if buffers is None and step.plan.overlap.kind == "none":
        return _run(search.round, None, rounds, search.steps, None)
    period, _, _ = search.shortest()
    won = search.won[False]
    if search.reached[False] > period * (1 + 1e-12):
        if search.steps > 1:  # steps alone, one after another, are the shortest: no round of them runs so
            return None
        won = search.won[True]
    return _run(search.round, won, rounds, search.steps, buffers)


def _run(
    step: Step, won: tuple[Lanes, list[float]] | Flow | Sharing | None, rounds: int, steps: int, buffers: int | None
) -> Timeline:
    """The recurrence of lanes (None: one task after another), or flows, so many rounds long."""
    if isinstance(won, Sharing):
        starts, ends = run(step, buffers, won, rounds)
        before = Lanes(step, won.buffers, "beside").events.before
        count = len(before)
        needs = [tuple((lap - tokens) * count + on for on, tokens in before[i] if tokens <= lap)
                 for lap in range(rounds) for i in range(count)]  # fmt: skip
        return Timeline((*step.instances,) * rounds, tuple(starts), tuple(ends), tuple(needs), rounds * steps)
    if isinstance(won, Flow):
        return _flowed(step, won, rounds, steps)
    count = len(step.instances)
    if won is None:
        solo = solo_seconds(step)
        order = list(range(count))
        before = tuple(((i - 1, 0) if i else (count - 1, 1),) for i in order)
        seconds = [solo[row] for row in step.instances]
    else:
        lanes, seconds = won
        order, before = lanes.order, lanes.events.before
    starts, ends = [0.0] * (rounds * count), [0.0] * (rounds * count)
    waits: list[tuple[int, ...]] = [()] * (rounds * count)
    for lap in range(rounds):
        for place, i in enumerate(order):
            at = lap * count + i
            waits[at] = tuple((lap - tokens) * count + order[j] for j, tokens in before[place] if tokens <= lap)
            starts[at] = max((ends[on] for on in waits[at]), default=0.0)
            ends[at] = starts[at] + seconds[i]
    rows = [row if step.rows[row].lane else None for row in step.instances]
    return Timeline(tuple(rows) * rounds, tuple(starts), tuple(ends), tuple(waits), rounds * steps)


def _flowed(step: Step, flow: Flow, rounds: int, steps: int) -> Timeline:
    """So many rounds of flows: the first ones, where rounds repeat, else whole blocks of them."""
    if flow.repeats:
        flow = flow if rounds == flow.laps == 1 else Flow(flow.lanes, flow.weights, rounds + flow.laps)
        blocks, count = 1, rounds * flow.count
    else:
        blocks, count = -(-rounds // flow.laps), len(flow.starts)
    seconds = flow.seconds
    starts = [block * seconds + time for block in range(blocks) for time in flow.starts[:count]]
    ends = [block * seconds + time for block in range(blocks) for time in flow.ends[:count]]
    waits = [tuple(block * count + on for on in flow.waits[i]) for block in range(blocks) for i in range(count)]
    rows = [row if step.rows[row].lane else None for row in step.instances]
    laps = blocks * count // flow.count
    return Timeline(tuple(rows) * laps, tuple(starts), tuple(ends), tuple(waits), laps * steps)


class _Search:
    """The shortest schedule of a step at an end of its figures, over the ways of sharing and over fewer buffers.

    won : of one step alone (True) and of steps back to back, what the last search found: lanes and the seconds of each
    instance, flows, None where serial is the shortest. reached : its seconds per step.
    """

    def __init__(self, step: Step, buffers: int | None, end: str = "value", traced: bool = False):
        # Each end is searched with its own figures: which lanes compete there is not asked of the others.
        step, _ = distinct(step if traced else at_end(step, end))
        self.traced = traced  # then times may be, and nothing is kept of what is found but its seconds
        self.step = step
        self.policy = _policy(step, buffers)
        self.buffers, self.deepest = buffers, _deepest(step, buffers)
        self.round, self.steps = unrolled(step)
        self.won: dict[bool, tuple[Lanes, list[float]] | Flow | Sharing | None] = {}
        self.reached: dict[bool, float] = {}
        self._known: dict[tuple[bool, int | None, str], Lanes | None] = {}

    def lanes(self, alone: bool, most: int | None, way: str) -> Lanes | None:
        """The lanes of one step alone, or of a round of steps; None where that few buffers can never be given back."""
        alone = alone or self.round is self.step
        key = (alone, most, way)
        if key not in self._known:
            try:
                self._known[key] = Lanes(cast(Step, self.step if alone else self.round), self.buffers, way, most)
            except PlanError:
                if most is None:
                    raise
                self._known[key] = None
        return self._known[key]

    def shortest(self) -> tuple[float, float, str]:
        """(period, cold, policy)."""
        alone = serial(self.step)
        found = self._by_formula(alone)
        if found is not None:
            return *found, self.policy
        cold = self._least(True, alone.cold_seconds, load_seconds(self.step, "value", alone=True).seconds)
        self.reached[True] = cold
        if self.round is None:
            # Too many steps to run them all: one after another, none takes longer than one with everything.
            period = cold
        else:
            period = self._least(False, alone.seconds, load_seconds(self.step, "value").seconds)
            self.reached[False] = period
        return min(period, alone.seconds, cold), cold, self.policy

    def seconds(self) -> Amount:
        """The period of `shortest`, or what is shorter of serial and of steps alone one after another."""
        alone = serial(self.step)
        found = self._by_formula(alone)
        if found is not None:
            return found[0]
        shortest = alone.seconds
        if self.round is not None:
            shortest = smallest(shortest, self._least(False, alone.seconds, load_seconds(self.step, "value").seconds))
            if shortest * (1 + 1e-9) <= self._undisturbed(True, "beside"):
                return shortest  # no step alone is as short
        cold = self._least(True, alone.cold_seconds, load_seconds(self.step, "value", alone=True).seconds)
        return smallest(shortest, cold)

    def _by_formula(self, alone: Serial) -> tuple[Amount, Amount] | None:
        """(period, cold) of a step with a formula (`chains`)."""
        found = formula(self.step, self.buffers, alone.seconds, alone.cold_seconds, back_to_back=self.traced)
        if found is None or self.traced:
            return found
        self.reached = {True: found[1], False: found[0]}
        self.won = {True: None, False: None}
        if found[0] < alone.seconds:  # of streamed layers
            *_, period, cold = attained(self.step, self.buffers)
            one = self._as_attained(cold, True)
            self.won = {True: one, False: self._as_attained(period, False)}
            if isinstance(one, tuple):
                self.reached[True] = one[0].cold(one[1])
        return found[0], self.reached[True]

    def _as_attained(self, how: int | Sharing, alone: bool) -> Sharing | tuple[Lanes, list[float]]:
        """What attains the time of streamed layers: a way to share, or lanes and seconds of instances."""
        if isinstance(how, Sharing):
            return how
        lanes = cast(Lanes, self.lanes(False, None if how == RECURRENCE else ALWAYS[0], "queue"))
        seconds = lanes.seconds(fastest=how == RECURRENCE)
        if alone:
            seconds = [*seconds[:-1], self._solo(True)[-1]]  # behind the last compute comes no fetch
        return lanes, seconds

    def _undisturbed(self, alone: bool, way: str) -> float:
        """What a step, or a round, takes one way at least, whatever the buffers: with no limit, if nothing is slowed.

        Of ways that queue what is ready, in an order that the buffers change, the queues alone.
        """
        seconds = self._solo(alone)
        # Without limit on buffers there are lanes always.
        apart = cast(Lanes, self.lanes(alone, None, "beside" if way in ("ready", "exclusive") else way))
        least = apart.cold(seconds) if alone else apart.period(seconds)
        return largest(least, _longest_queue(cast(Lanes, self.lanes(alone, None, way)), seconds))

    def _solo(self, alone: bool) -> list[float]:
        step = cast(Step, self.step if alone else self.round)
        rows = solo_seconds(step)
        return [rows[row] for row in step.instances]

    def _ways(self, alone: bool) -> list[str]:
        """The ways that differ: where no bulk transfers compete, they queue as the plan says and as they are ready."""
        first: dict[object, str] = {}
        for way in WAYS:
            lanes = cast(Lanes, self.lanes(alone, None, way))
            like = (tuple(map(tuple, lanes.lanes)), lanes.levels, key_of(tuple(lanes.stretch))) if lanes.plain else ()
            first.setdefault((way if way in ("yield", "exclusive") or not lanes.plain else "", like), way)
        return list(first.values())

    def _least(self, alone: bool, least: float, bound: float) -> float:
        """The shortest time found; the search ends where nothing can be shorter."""
        steps = 1 if alone else self.steps
        self.won[alone] = None
        ways = dict.fromkeys(WAYS, 0.0)  # each with what it takes at least
        # Fewer buffers are a legal use of more: competition may make them the better ones.
        fewer = [most for most in ALWAYS if most < self.deepest]
        further = [most for most in FURTHER if most < self.deepest] if not alone or self.round is None else []
        for most in (None, *fewer, *further):
            if fewer and most == fewer[0]:
                ways = {way: self._undisturbed(alone, way) / steps for way in self._ways(alone)}
            for way in ways:
                if least <= ways[way] * (1 + (GAINED if most in further else 1e-9)):
                    continue
                lanes = self.lanes(alone, most, way)
                if lanes is None:
                    break
                bound = largest(bound, lanes.longest() / steps)
                slowed = []
                for fastest in (False, True):
                    seconds = lanes.seconds(fastest=fastest)
                    slowed.append(seconds)
                    if self.traced:
                        time = lanes.cold(seconds) if alone else lanes.period(seconds) / steps
                        least = smallest(least, time)
                    elif _longest_queue(lanes, seconds) / steps < least:  # no time is below its queues
                        time = lanes.cold(seconds) if alone else lanes.period(seconds) / steps
                        if time < least:
                            least, self.won[alone] = time, (lanes, seconds)
                    if least <= bound * (1 + 1e-9):
                        return least
                    if way == "exclusive" or lanes.unhindered(seconds):
                        break
                if most is None and way == "queue":
                    if lanes.plain and lanes.unhindered(slowed[0]):
                        return least  # nothing is shared, so there is nothing to choose
                    least = self._flowing(alone, least, bound, None)
            if most is not None and least > bound * (1 + GAINED):
                least = self._flowing(alone, least, bound, most)
        return least

    def _flowing(self, alone: bool, least: float, bound: float, most: int | None) -> float:
        """The shortest time by policies that share as tasks run, or `least` where none is shorter.

        most : fewer buffers. Of long steps two and one alone are tried, of short ones as many as queues try.
        """
        lanes, laps, steps = self.lanes(alone, most, "beside"), 1, 1
        if not alone:
            laps, steps = LAPS, self.steps
        if lanes is None or laps * len(lanes.step.instances) > (FEW_UNROLLED if most in FURTHER else MOST_UNROLLED):
            return least
        bound = largest(bound, self._undisturbed(alone, "beside") / steps)
        if self.traced:
            period: float = shortest_period(lanes, laps, least * steps, bound * steps)
            return pick(INFINITE, period, largest(period / steps, bound), least)
        flow = shortest_flow(lanes, laps, least * steps, bound * steps)
        if flow is not None and flow.period / steps >= bound * (1 - ROUNDED):  # no schedule is below the bound
            least, self.won[alone] = max(flow.period / steps, bound), flow
        return least


def _deepest(step: Step, buffers: int | None) -> int:
    """The most buffers that anything streamed waits for; without limit more than it fetches in two steps."""
    counts = [0]
    for one in step.slots:
        if all(one.releases) and not step.rows[step.instances[one.fetches[0]]].urgent:
            count = one.buffers if buffers is None else buffers
            counts.append(max(DEEP, 2 * len(one.fetches)) + 1 if count == UNLIMITED else count)
    return max(counts)


def _longest_queue(lanes: Lanes, seconds: Sequence[float]) -> float:
    """What the longest queue takes, from seconds by instance: no step that runs in these lanes is shorter [s]."""
    return largest(0.0, *(total(seconds[i] for i in lane) for lane in lanes.lanes))


@dataclass(frozen=True, slots=True)
class Hideable:
    """Shares of transfer time that overlap hides, with unlimited buffers; None where nothing is transferred.

    behind_compute = (X - max(0, P - C)) / X and among_transfers = (F - X) / F: F the sum of transfers alone, X the
    period of the transfers by themselves, C the sum of computes alone, P the shortest of the period with unlimited
    buffers and X + C. transfer_seconds is F, period_seconds is X.
    """

    behind_compute: float | None
    among_transfers: float | None
    transfer_seconds: float
    period_seconds: float


def hideable(step: Step) -> Hideable:
    """What overlap can hide of a step's transfers (see `Hideable`)."""
    solo = solo_seconds(step)
    fetches = computes = 0.0
    for row, count, seconds in zip(step.rows, step.counts, solo, strict=True):
        share = (count if row.every == 1 else count / row.every) * seconds
        if row.transfer:
            fetches += share
        else:
            computes += share
    if fetches <= 0:
        return Hideable(None, None, 0.0, 0.0)
    search = _Search(step, UNLIMITED)
    alone = fetches
    if search.round is not None:
        ways = (cast(Lanes, search.lanes(False, None, way)) for way in ("queue", "beside"))
        alone = min(fetches, *(lanes.transfers_alone() / search.steps for lanes in ways))
    together = search.shortest()[0]
    alone = min(alone, together)  # without the computes, that schedule is one of the transfers by themselves
    apart = alone + computes
    if together > apart * (1 - 1e-12):  # nothing is gained; what is left of the difference is rounding
        together = apart
    behind = 0.0 if together == apart else (alone - max(0.0, together - computes)) / alone
    among = (fetches - alone) / fetches
    return Hideable(behind, among if among > 1e-9 else 0.0, fetches, alone)
