"""Schedules: times that the modelled machine attains, by recurrences over a step's tasks.

A step's tasks queue in lanes: the transfers that share a link in one, the computes of a processor in another. Each
task starts when the one before it in its lane, whatever it waits for, and a free buffer allow. That is a graph of
events whose arcs carry tokens (0 within a step, 1 to the next): its longest path is one step from empty buffers, its
largest ratio of time to tokens the period of back-to-back steps (Baccelli et al., max-plus algebra).

Where tasks of different lanes share a resource, the lane that goes first keeps its speed and the others are slowed
by what may run beside them (`contended_seconds`), so that no resource ever serves more than its rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offload.errors import PlanError
from offload.events import Events, maximum, queue, take_slots
from offload.plan import UNLIMITED, Amount
from offload.step import Step, row_seconds

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Serial:
    """Every task alone, one after another [s]: seconds for back-to-back steps, cold_seconds for one step alone."""

    seconds: Amount
    cold_seconds: Amount


@dataclass(frozen=True, slots=True)
class Schedule:
    """An attained time [s]: the period of back-to-back steps, its ends, one step from empty buffers, and the policy.

    low, high : the same with every sustained rate at its fast or its slow end.
    """

    seconds: float
    low: float
    high: float
    cold_seconds: float
    policy: str


# A compiled step: lanes, events, and the speed of tasks beside each other.


def solo_seconds(step: Step, grade: str = "value") -> list[Amount]:
    """Seconds of each row's task alone: typical latency plus the longest of its resources' times (its own roofline)."""
    solo = []
    for row in step.rows:
        longest: Amount = 0.0
        for time in row_seconds(step, row, grade).values():
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
    """The overlapped time of a step: the shortest of serial and the recurrence at each way of sharing resources.

    buffers : instead of the plan's (`UNLIMITED` for no limit). ends : evaluate both ends of the rates too (else low
    and high are the point). Raises PlanError where the buffers can never be given
    back. Amounts must be numbers.
    """
    if buffers is None and step.plan.overlap.kind == "none":
        alone = [serial(step, grade) for grade in ("high", "value", "low")]
        return Schedule(alone[1].seconds, alone[0].seconds, alone[2].seconds, alone[1].cold_seconds, "serial")
    lanes = _Lanes(step, buffers)
    period, cold, policy = lanes.shortest("value")
    reached = [period]
    if ends and any(len({r.low, r.value, r.high}) > 1 for resource in step.resources.values()
           for r in resource.sustained.values()):
        reached += [lanes.shortest("high")[0], lanes.shortest("low")[0]]
    return Schedule(period, min(reached), max(reached), cold, policy)


@dataclass(frozen=True, slots=True)
class Hideable:
    """Shares of transfer time that overlap hides, with unlimited buffers; None where nothing is transferred.

    behind_compute = (X - max(0, P - C)) / X and among_transfers = (F - X) / F: F the sum of transfers alone, X the
    period of the transfers by themselves, C the sum of computes alone, P the shortest of the period with unlimited
    buffers and X + C. transfer_seconds is F.
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
    lanes = _Lanes(step, UNLIMITED)
    alone = min(fetches, lanes.transfers_alone())
    apart = alone + computes
    together = lanes.shortest("value")[0]
    if together > apart * (1 - 1e-12):  # nothing is gained; what is left of the difference is rounding
        together = apart
    behind = 0.0 if together == apart else (alone - max(0.0, together - computes)) / alone
    among = (fetches - alone) / fetches
    return Hideable(behind, among if among > 1e-9 else 0.0, fetches, alone)


class _Lanes:
    """The lanes of a step, its events under a number of buffers, and who may run beside whom."""

    def __init__(self, step: Step, buffers: int | None):
        self.step = step
        self.buffers = buffers
        overlap = step.plan.overlap if buffers is None else replace(step.plan.overlap, kind="buffers", buffers=buffers)
        self.policy = "unlimited buffers" if overlap.buffers == UNLIMITED else str(overlap)
        self.lanes = _transfer_lanes(step) + _processor_lanes(step)
        self.rank = self._ranks()
        self.events = self._events()
        self._sets = [frozenset(lane) for lane in self.lanes]
        self._windows: dict[int, list[tuple[float, float]]] = {}
        self.rare = any(row.every != 1 for row in step.rows)
        self._loads: dict[tuple[int, str, str, bool], tuple[list[float], list[float], float, float]] = {}


    def _ranks(self) -> list[int]:
        """Who keeps its speed where lanes meet: small urgent state, then bulk transfers, then computes."""
        ranks = []
        for lane in self.lanes:
            row = self.step.rows[self.step.instances[lane[0]]]
            ranks.append(2 if not row.transfer else (0 if row.urgent else 1))
        return ranks

    def _events(self) -> Events:
        step = self.step
        before: list[list[tuple[int, int]]] = [[(wait.on, 0) for wait in waits] for waits in step.waits]
        for lane in self.lanes:
            queue(before, lane)
        for slots in step.slots:
            buffers = slots.buffers if self.buffers is None or slots.buffers == UNLIMITED else self.buffers
            if buffers == UNLIMITED or not all(slots.releases):
                continue
            if not take_slots(before, slots.fetches, slots.releases, buffers):
                raise PlanError(
                    f'with {buffers} buffers "{slots.name}" waits for a compute that waits for it: '
                    f"give it buffers: {len(slots.fetches) + 1} or overlap: full."
                )
        if step.first_compute is not None:
            before[step.first_compute].append((step.last_compute, step.plan.in_flight))
        for later, earlier in step.wraps:
            before[earlier].append((later, 1))
        # Of several arcs between two events the one with the fewest tokens implies the others.
        fewest: list[dict[int, int]] = [{} for _ in before]
        for i, waits in enumerate(before):
            for j, tokens in waits:
                fewest[i][j] = min(tokens, fewest[i].get(j, tokens))
        return Events(tuple(tuple(waits.items()) for waits in fewest))

    def shortest(self, grade: str) -> tuple[float, float, str]:
        """(period, cold, policy): the shortest of serial and the recurrence with either contended time."""
        alone = serial(self.step, grade)
        choices = [(alone.seconds, alone.cold_seconds, "serial")]
        seen = set()
        for fastest in (False, True):
            seconds = self.contended_seconds(grade, fastest)
            key = tuple(seconds)
            if key in seen or INFINITE in key:
                continue
            seen.add(key)
            average = self.contended_seconds(grade, fastest, average=True) if self.rare else seconds
            choices.append((self.events.period(average), self.events.cold(seconds), self.policy))
        period, cold = min(choice[0] for choice in choices), min(choice[1] for choice in choices)
        near = [policy for time, _, policy in choices if time <= period * (1 + 1e-12)]
        return period, cold, near[-1]  # where the recurrence gains nothing it is named all the same

    def transfers_alone(self) -> float:
        """The period of the transfers by themselves, with unlimited buffers [s]."""
        seconds = self.contended_seconds("value", False, average=True, transfers_only=True)
        alone = [time if self.step.rows[row].transfer else 0.0
                 for time, row in zip(seconds, self.step.instances, strict=True)]
        lanes = [sum(alone[i] for i in lane) for lane in self.lanes]
        return max(lanes)

    def contended_seconds(
        self, grade: str, fastest: bool, *, average: bool = False, transfers_only: bool = False
    ) -> list[float]:
        """Seconds of each instance with what may run beside it.

        average : of the average step, in which what happens every n steps happens by 1/n.

        Two contended times, each attainable: the instance's own load and all loads that may run beside it, over the
        rate; or (`fastest`) its own load over the rate that is left beside the fastest of them. Infinite where
        nothing is left.
        """
        step = self.step
        share = [row.weight if average else 1.0 for row in step.rows]
        times = [
            row_seconds(step, row, grade) if part == 1.0 else
            {name: part * time for name, time in row_seconds(step, row, grade).items()}
            for row, part in zip(step.rows, share, strict=True)
        ]
        latency = [part * row.latency[1] for row, part in zip(step.rows, share, strict=True)]
        solo = [wait + max(busy.values(), default=0.0) for wait, busy in zip(latency, times, strict=True)]
        result = [solo[row] for row in step.instances]
        for lane, rank in zip(self.lanes, self.rank, strict=True):
            if rank == 0 or (transfers_only and rank == 2):
                continue
            for i in lane:
                row = step.instances[i]
                work = 0.0
                for name, own in times[row].items():
                    busy = own
                    if own > 0:
                        beside, left = self._beside_on(i, name, rank, (grade, average), times)
                        if fastest and rank == 2:
                            busy = own / left if left > 0 else INFINITE
                        else:
                            busy = own + beside
                    work = max(work, busy)
                result[i] = latency[row] + work
        return result

    def _beside_on(
        self, i: int, name: str, rank: int, grade: tuple[str, bool], times: list[dict[str, float]]
    ) -> tuple[float, float]:
        """Seconds that others may keep a resource busy beside instance i, and the share of its rate they leave."""
        seconds, left = 0.0, 1.0
        for number, lane in enumerate(self.lanes):
            if i in self._sets[number] or (self.rank[number] >= rank and not (rank == self.rank[number] == 2)):
                continue
            loads, rates, total, fastest = self._lane_loads(number, name, grade, times)
            if not total:
                continue
            first, last = self.window(number)[i]
            # In a periodic schedule no window as long as a period holds more than one step of a lane.
            many = min(last - first - 1, len(lane)) if last > first + 1 else 0
            if many >= len(lane):
                seconds, left = seconds + total, left - fastest
            elif many > 0:
                indexes = [(int(first) + 1 + offset) % len(lane) for offset in range(int(many))]
                seconds += sum(loads[index] for index in indexes)
                left -= max(rates[index] for index in indexes)
        return seconds, left

    def _lane_loads(
        self, number: int, name: str, grade: tuple[str, bool], times: list[dict[str, float]]
    ) -> tuple[list[float], list[float], float, float]:
        """Per place in a lane: seconds on a resource, and the share of its rate that the task takes alone."""
        cache = self._loads
        key = (number, name, *grade)
        if key not in cache:
            loads, rates = [], []
            for i in self.lanes[number]:
                row = times[self.step.instances[i]]
                load = row.get(name, 0.0)
                work = max(row.values(), default=0.0)
                loads.append(load)
                rates.append(load / work if work else 0.0)
            cache[key] = (loads, rates, sum(loads), max(rates, default=0.0))
        return cache[key]

    def window(self, number: int) -> list[tuple[float, float]]:
        """window(lane)[i]: the places of a lane strictly between which nothing is ordered before or after i.

        Places count on through steps (place + step * length). A lane is a queue, so what must come before i ends at
        some place and what must come after it begins at another.
        """
        if number not in self._windows:
            self._windows[number] = self._window(self.lanes[number])
        return self._windows[number]

    def _window(self, lane: Sequence[int]) -> list[tuple[float, float]]:
        length = len(lane)
        place = {i: index for index, i in enumerate(lane)}
        count = len(self.events.before)
        last_before = [-INFINITE] * count
        first_after = [INFINITE] * count
        arcs = [(j, i, tokens) for i, waits in enumerate(self.events.before) for j, tokens in waits]
        _settle(arcs, last_before, lambda old, j, i, tokens: max(
            old[i], old[j] - tokens * length, place[j] - tokens * length if j in place else -INFINITE))
        _settle([(i, j, tokens) for j, i, tokens in reversed(arcs)], first_after, lambda old, i, j, tokens: min(
            old[j], old[i] + tokens * length, place[i] + tokens * length if i in place else INFINITE))
        return list(zip(last_before, first_after, strict=True))


def _settle(
    arcs: list[tuple[int, int, int]], values: list[float], update: Callable[[list[float], int, int, int], float]
) -> None:
    """Carry values along arcs (from, to, tokens) until none changes; each lap costs a token, so it ends."""
    changed = True
    while changed:
        changed = False
        for a, b, tokens in arcs:
            value = update(values, a, b, tokens)
            if value != values[b]:
                values[b] = value
                changed = True


def _processor_lanes(step: Step) -> list[list[int]]:
    lanes: dict[str, list[int]] = {}
    for i, row in enumerate(step.instances):
        if not step.rows[row].transfer:
            lanes.setdefault(step.rows[row].lane, []).append(i)
    return list(lanes.values())


def _transfer_lanes(step: Step) -> list[list[int]]:
    """Transfers that share a link direction queue in one lane, and so do those that share any other resource which
    cannot serve them side by side; small urgent state keeps a lane of its own."""
    by_lane: dict[str, list[int]] = {}
    for i, row in enumerate(step.instances):
        if step.rows[row].transfer:
            by_lane.setdefault(step.rows[row].lane, []).append(i)
    groups: list[list[str]] = [[name] for name in by_lane]
    rates = {name: _largest_rates(step, by_lane[name]) for name in by_lane}
    urgent = {name for name in by_lane if step.rows[step.instances[by_lane[name][0]]].urgent}
    merged = True
    while merged:
        merged = False
        for resource in sorted({resource for shares in rates.values() for resource in shares}):
            users = [group for group in groups
                     if group[0] not in urgent and any(resource in rates[name] for name in group)]
            total = sum(max(rates[name].get(resource, 0.0) for name in group) for group in users)
            if len(users) > 1 and (step.resources[resource].kind == "link" or total > 1 + 1e-12):
                groups = [group for group in groups if group not in users] + [sum(users, [])]
                merged = True
    return [sorted(i for name in group for i in by_lane[name]) for group in groups]


def _largest_rates(step: Step, lane: Sequence[int]) -> dict[str, float]:
    """The largest share of each resource's rate that a lane's tasks take alone, at any end of the rates."""
    rates: dict[str, float] = {}
    for row in sorted({step.instances[i] for i in lane}):
        for grade in ("low", "value", "high"):
            times = row_seconds(step, step.rows[row], grade)
            work = max(times.values(), default=0.0)
            for name, time in times.items():
                if time > 0:
                    rates[name] = max(rates.get(name, 0.0), time / work)
    return rates
