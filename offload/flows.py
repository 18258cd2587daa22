"""Steps as flows: tasks that compete share resources as they run, and so no queue waits for another.

The queues, buffers and order of a plan as in `lanes`, and the engine of the fluid simulation. A simulation is one
policy's timeline, and so attained: no resource serves more than its rate, and each task waits for what it must. Of
steps back to back the time per step is the shift by which the steps repeat, once they do, or that of a block of
steps, begun again when it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from offload.fluid_engine import Engine
from offload.lanes import Lanes
from offload.step import seconds_of_rows

SHARES = ("queues", "alike", "longest")
LAPS = 6  # steps back to back, in which most repeat
AHEAD = 2  # a step begins when the one so many before it has ended, so that no queue runs away from the others
AT_ONCE = 1e4  # weight of urgent small state over all that it competes with
SLACK = 1e-12  # share of a task's work at which it is done
ALIKE = 1e-9  # of a step: steps whose times differ by less repeat


class Flow:
    """Some steps (laps) back to back, from empty buffers, under one policy of sharing.

    lanes : of the way "beside", whose queues and buffers the tasks keep. share : what the rates of tasks that compete
    are in proportion to: their rates alone ("alike"), that times what their queue has to do in a step ("queues":
    queues that share one resource all the time end together), or that to a high power ("longest": the queue with
    most to do first). starts, ends : of each instance, lap after lap [s]. waits : what each waits for. period : the
    time per lap [s]. Raises PlanError where times lie too far apart for floats.
    """

    def __init__(self, lanes: Lanes, share: str, laps: int):
        self.lanes, self.share, self.laps = lanes, share, laps
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
        weights = _weights(self.lanes, self.share)
        for times, weight in zip(seconds_of_rows(step, "value"), weights, strict=True):
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
            *([of_rows[row][part] for row in rows] for part in range(3)),
            [step.rows[row].latency[1] for row in rows],
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
            shift = begins[last] - begins[last - 1]
            first = last - max(ceil(spans[last] / shift * (1 - ALIKE)), 1) if shift > 0 else -1
            if first >= 0 and all(self._alike(lap, shift, queued) for lap in range(first, last)):
                return shift
        return None

    def _alike(self, lap: int, shift: float, queued: Sequence[int]) -> bool:
        """Whether the lap after this one is the same, so much later."""
        this, later, near = lap * self.count, (lap + 1) * self.count, ALIKE * shift
        return all(
            abs(times[later + i] - times[this + i] - shift) <= near for times in (self.ends, self.starts) for i in queued
        )


def _weights(lanes: Lanes, share: str) -> list[float]:
    """By row, what rates are in proportion to where tasks compete."""
    step = lanes.step
    totals = [sum(lanes.works[step.instances[i]] for i in lane) or 1.0 for lane in lanes.lanes]
    longest = max(totals, default=1.0)
    of_rows = [1.0] * len(step.rows)
    for total, lane in zip(totals, lanes.lanes, strict=True):
        for i in lane:
            row = step.instances[i]
            if share == "queues":
                of_rows[row] = total / longest
            elif share == "longest":
                of_rows[row] = (total / longest) ** 8
            if step.rows[row].urgent:
                of_rows[row] = AT_ONCE
    return of_rows
