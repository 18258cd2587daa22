"""What an expected time is not below: because tasks queue, and because few run beside a kernel that is elsewhere.

A processor serves its tasks in order, those of a step before those of the next. Where computes follow each other, one
of them runs, or none, at each moment. While one runs that takes a share of resource r, transfers fill what is
left at no more than their lanes' own rates on r; so r cannot serve all that it must in the time of its load alone where
computes keep it waiting for long.
"""

from __future__ import annotations

from offload.step import Step, seconds_of_rows


def beside_seconds(step: Step) -> float:
    """A lower bound of the expected time of steps back to back [s]; 0 where computes may run beside each other.

    Let rho be what the lanes of bulk transfers take of r together at most, s_c >= own_c the time of compute c alone and
    what it puts on r. In a period T with x_c >= s_c for each compute,
        L_r - u_r <= sum_c min(own_c + rho x_c, x_c) + rho (T - sum_c x_c)
    where u_r is what urgent small state puts on r, whenever that is. The right side is largest at x_c = s_c with the
    rest of T spent at one, so T >= L_r - u_r + sum_c max(0, (1 - rho) s_c - own_c).
    """
    if not step.plan.data_cycle or step.plan.in_flight != 1 or not _in_turn(step):
        return 0.0
    times = seconds_of_rows(step, "value")
    loads: dict[str, float] = {}
    lanes: dict[str, dict[str, float]] = {}
    for row, count, uses in zip(step.rows, step.counts, times, strict=True):
        longest = max(uses.values(), default=0.0)
        share = lanes.setdefault(row.lane, {}) if row.transfer and not row.urgent and row.lane else None
        for name, seconds in uses.items():
            if not (row.transfer and row.urgent):
                loads[name] = loads.get(name, 0.0) + count * seconds / row.every
            if share is not None and longest > 0:
                share[name] = max(share.get(name, 0.0), seconds / longest)
    least = 0.0
    for name, load in loads.items():
        beside = min(1.0, sum(share.get(name, 0.0) for share in lanes.values()))
        idle = sum(count * max(0.0, (1 - beside) * (row.latency[1] + max(uses.values(), default=0.0))
                               - uses.get(name, 0.0))
                   for row, count, uses in zip(step.rows, step.counts, times, strict=True)
                   if not row.transfer and row.every == 1)  # fmt: skip
        least = max(least, load + idle)
    return least


def _in_turn(step: Step) -> bool:
    """Whether each compute waits for all those before it, and nothing is done apart from the others."""
    if any(row.apart != 1 for row in step.rows):
        return False
    before = [0] * len(step.instances)
    computes = 0
    for i, row in enumerate(step.instances):
        before[i] = max((before[wait.on] for wait in step.waits[i]), default=0)
        if not step.rows[row].transfer:
            before[i] += 1
            computes += 1
    return max(before, default=0) == computes


def queue_seconds(step: Step) -> float:
    """The longest chain of tasks that begins and ends on one processor, each alone: a lower bound of the expected time.

    The processor's first task of the next step follows its last one of this step, and so the step after it begins no
    sooner than the chain takes [s].
    """
    times = seconds_of_rows(step, "value")
    alone = [(row.latency[1] + max(uses.values(), default=0.0)) if row.every == 1 else 0.0
             for row, uses in zip(step.rows, times, strict=True)]  # fmt: skip
    least = 0.0
    for lane in {row.lane for row in step.rows if not row.transfer}:
        ends = [0.0] * len(step.instances)
        for i, row in enumerate(step.instances):
            before = max((ends[wait.on] for wait in step.waits[i]), default=0.0)
            mine = not step.rows[row].transfer and step.rows[row].lane == lane
            ends[i] = before + alone[row] if before or mine else 0.0
            if mine:
                least = max(least, ends[i])
    return least
