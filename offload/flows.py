"""Steps as flows: tasks that compete share resources as they run, and so no queue waits for another.

The queues, buffers and order of a plan as in `lanes`, and the engine of the fluid simulation. A simulation is one
policy's timeline, and so attained: no resource serves more than its rate, and each task waits for what it must. Of
steps back to back the time per step is the shift by which the steps repeat, once they do, or that of a block of
steps, begun again when it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from math import ceil, inf

from offload.fluid_engine import Engine
from offload.lanes import Lanes
from offload.plan import Amount
from offload.tracing import heavy, opaque

LAPS = 6  # steps back to back, in which most repeat
AHEAD = 2  # a step begins when the one so many before it has ended, so that no queue runs away from the others
NEAR = 1e-3  # of the time: what another policy might gain for which it is not tried
AT_ONCE = 1e4  # weight of urgent small state over all that it competes with
FIRST, FAR = 100.0, 1e200  # weight of a queue over the next in order, and of the first over the last at most
SLACK = 1e-12  # share of a task's work at which it is done
ALIKE = 1e-9  # of a step: steps whose times differ by less repeat


def shortest_flow(lanes: Lanes, laps: int, least: float, bound: float) -> Flow | None:
    """The flows with the least time per lap among some policies, None where none takes less than `least` [s].

    bound : what no schedule of these lanes is below [s]: near it the search ends.
    """
    best = None
    for weights in _policies(lanes):
        if least <= bound * (1 + NEAR):
            return best
        flow = Flow(lanes, weights, laps)
        if flow.period < least:
            best, least = flow, flow.period
    return best


def shortest_period(lanes: Lanes, laps: int, least: Amount, bound: Amount) -> Amount:
    """The period of `shortest_flow`, infinite where there is none; of traced numbers an operation [s]."""
    names = [tuple(times) for times in lanes.times]
    count = len(names)

    def period(least: float, bound: float, *numbers: float) -> float:
        there = copy(lanes)
        there.works, there.delays = list(numbers[:count]), list(numbers[count : 2 * count])
        rest = iter(numbers[2 * count :])
        there.times = tuple({name: next(rest) for name in row} for row in names)
        flow = shortest_flow(there, laps, least, bound)
        return inf if flow is None else flow.period

    return opaque(heavy(period), least, bound, *lanes.works, *lanes.delays,
                  *(time for times in lanes.times for time in times.values()))  # fmt: skip


def _policies(lanes: Lanes) -> Iterator[list[float]]:
    """Weights of lanes: what the rates of tasks that compete are in proportion to, beside their rates alone."""
    totals = [sum(lanes.works[lanes.step.instances[i]] for i in lane) for lane in lanes.lanes]
    longest = max(totals, default=0.0) or 1.0
    shares = [total / longest or 1.0 for total in totals]
    yield shares  # queues that share one resource all the time end together
    yield [1.0] * len(shares)
    apart = min(FIRST, FAR ** (1 / max(len(shares), 1)))
    places = sorted(range(len(shares)), key=lambda number: min(lanes.lanes[number]))
    yield [apart ** -places.index(number) for number in range(len(shares))]  # the queue that begins first goes first
    yield [share**8 for share in shares]  # the queue with most to do goes first


class Flow:
    """Some steps (laps) back to back, from empty buffers, under one policy of sharing.

    lanes : of the way "beside", whose queues and buffers the tasks keep. weights : of each lane: rates of tasks that
    compete are in proportion to them, and to the rate of each alone. starts, ends : of each instance, lap after lap
    [s]. waits : what each waits for. period : the time per lap [s]. Raises PlanError where times lie too far apart for
    floats.
    """

    def __init__(self, lanes: Lanes, weights: Sequence[float], laps: int):
        self.lanes, self.weights, self.laps = lanes, weights, laps
        self.count = len(lanes.step.instances)
        self.waits = self._waits()
        self.engine = self._engine()
        self.engine.run()
        self.starts, self.ends = self.engine.begun, self.engine.finish
        self.shift = self._shift() if laps > 1 else None
        self.period = self.seconds / laps if self.shift is None else self.shift

    @property
    def repeats(self) -> bool:
        """Whether the laps repeat, or there is but one."""
        return self.shift is not None or self.laps == 1

    @property
    def seconds(self) -> float:
        """The end of the last [s]."""
        return max(self.ends, default=0.0)

    def _waits(self) -> list[list[int]]:
        """What each instance of each lap waits for."""
        events, order, count = self.lanes.events, self.lanes.order, self.count
        before: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for place, waits in enumerate(events.before):
            before[order[place]] = [(order[j], tokens) for j, tokens in waits]
        last = [(lane[-1], AHEAD) for lane in self.lanes.lanes]
        for lane in self.lanes.lanes:
            before[lane[0]] += last
        return [
            [(lap - tokens) * count + j for j, tokens in before[i] if tokens <= lap]
            for lap in range(self.laps) for i in range(count)
        ]  # fmt: skip

    def _engine(self) -> Engine:
        step = self.lanes.step
        place = {name: r for r, name in enumerate(step.resources)}
        sets: dict[tuple[int, ...], int] = {}
        of_rows: list[tuple[int, float, tuple[float, ...]]] = []
        weights = [AT_ONCE if row.urgent else 1.0 for row in step.rows]
        for lane, weight in zip(self.lanes.lanes, self.weights, strict=True):
            for row in {step.instances[i] for i in lane}:
                weights[row] *= weight
        for times, weight in zip(self.lanes.times, weights, strict=True):
            used = sorted((place[name], time) for name, time in times.items() if time > 0)
            work = max((time for _, time in used), default=0.0)
            number = sets.setdefault(tuple(r for r, _ in used), len(sets)) if used else -1
            of_rows.append((number, work / weight, tuple(time / work * weight for _, time in used)))
        rows = [*step.instances] * self.laps
        after: list[list[int]] = [[] for _ in rows]
        for i, waits in enumerate(self.waits):
            for j in waits:
                after[j].append(i)
        return Engine(
            [1.0] * len(place),
            list(sets),
            [of_rows[row][0] for row in rows],
            [of_rows[row][1] for row in rows],
            [of_rows[row][2] for row in rows],
            [self.lanes.delays[row] for row in rows],
            [weights[row] for row in rows],
            after,
            list(map(len, self.waits)),
            SLACK,
            0.0,
        )

    def _shift(self) -> float | None:
        """The time per lap once laps repeat [s]; None where these do not.

        So many equal laps in a row that all which are at work at one time are among them: repeated for ever at that
        shift they ask no more of a resource at any time than they do here, and wait for the same.
        """
        queued = [i for lane in self.lanes.lanes for i in lane]
        begins = [min(self.starts[lap * self.count + i] for i in queued) for lap in range(self.laps)]
        spans = [max(self.ends[lap * self.count + i] for i in queued) - begins[lap] for lap in range(self.laps)]
        for last in range(self.laps - 1, 0, -1):
            shift: float = begins[last] - begins[last - 1]
            first = last - max(ceil(spans[last] / shift * (1 - ALIKE)), 1) if shift > 0 else -1
            if first >= 0 and all(self._alike(lap, shift, queued) for lap in range(first, last)):
                return shift
        return None

    def _alike(self, lap: int, shift: float, queued: Sequence[int]) -> bool:
        """Whether the lap after this one is the same, so much later."""
        this, later, near = lap * self.count, (lap + 1) * self.count, ALIKE * shift
        return all(
            abs(times[later + i] - times[this + i] - shift) <= near
            for times in (self.ends, self.starts) for i in queued
        )  # fmt: skip
