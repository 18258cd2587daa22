"""One step alone as flows: the tasks of a compiled step, their queues and buffers, under fluid sharing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offload.fluid import Fluid, FluidTask, simulate
from offload.lanes import Lanes
from offload.plan import Amount
from offload.step import Row, Step, distinct, seconds_of_rows


def step_tasks(step: Step, grade: str = "value", buffers: int | None = None) -> Mapping[str, FluidTask]:
    """The tasks of one step from empty buffers, "NAME #i" for instance i, on resources whose rate is 1 (all of it).

    A task waits for what the plan says, for the task before it in its queue and for the release of its buffer; without
    overlap, for the task before it. Its delay is its typical latency. Its work is the most bytes that it puts on a
    resource, or FLOP where it moves none, or seconds where neither is counted, so that max-min sharing gives tasks
    equal bytes per second; a coefficient is the share of a resource's rate, at `grade`, that one of it per second
    takes. Of resources that are alike only the first is kept. Raises PlanError where buffers can never be given back.
    """
    step, _ = distinct(step)
    if buffers is None and step.plan.overlap.kind == "none":
        before = [[i - 1] if i else [] for i in range(len(step.instances))]
    else:
        events = Lanes(step, buffers, "beside").events  # queues of their own, in the order of the plan
        before = [[j for j, tokens in waits if not tokens] for waits in events.before]
    names = [f"{step.rows[row].name} #{i}" for i, row in enumerate(step.instances)]
    times = seconds_of_rows(step, grade)
    works = [_work(step, row, times[number], grade) for number, row in enumerate(step.rows)]
    tasks = {}
    for i, number in enumerate(step.instances):
        work = works[number]
        use = {name: time / work for name, time in times[number].items() if time > 0}
        tasks[names[i]] = FluidTask(work, use, [names[j] for j in before[i]], step.rows[number].latency[1])
    return tasks


def _work(step: Step, row: Row, times: Mapping[str, Amount], grade: str) -> Amount:
    for unit in ("B", "FLOP"):
        loads: dict[str, Amount] = {}
        for use in row.uses:
            if step.resources[use.resource].unit == unit and times[use.resource] > 0:
                loads[use.resource] = loads.get(use.resource, 0.0) + use.amount(grade)
        if loads:
            return max(loads.values())
    return max(times.values(), default=0.0)


def simulate_step(step: Step, grade: str = "value", policy: str = "max-min", buffers: int | None = None) -> Fluid:
    """One step alone, from empty buffers, under fluid sharing at sustained rates: see `step_tasks` and `simulate`.

    grade : "low", "value" or "high" end of the rates. The time is one policy's: between the order-aware floor at the
    same rates and serial, like every sharing that wastes nothing; it is not monotone in rates or buffers, and may be
    above or below the schedule of `schedule`, which chooses among ways of sharing. policy : "max-min" or
    "proportional". utilisation also tells resources that are like another one.
    """
    tasks = step_tasks(step, grade, buffers)
    kept, like = distinct(step)
    found = simulate(dict.fromkeys(kept.resources, 1.0), tasks, policy)
    shares = dict(found.utilisation)
    for name, others in like.items():
        shares |= dict.fromkeys(others, shares[name])
    return replace(found, utilisation={name: shares[name] for name in step.resources})
