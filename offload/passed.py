"""What processors pass to one another in a step: collectives and hidden rows, how long they take by themselves.

What layers read and compute is elsewhere: this is the price of sharing a model, where nothing
hides it. T = n (latency + max over resources of load / sustained), as a serial step counts each.
"""

from __future__ import annotations

from dataclasses import dataclass

from offload.plan import Collective
from offload.schedules import solo_seconds
from offload.step import Step

ROWS = ("hidden row", "last hidden row")


@dataclass(frozen=True, slots=True)
class Passed:
    """Of one kind, in a step: seconds that its bytes take alone at sustained rates, and its latency [s].

    share : of both in the expected time of a step, were nothing hidden [1].
    """

    what: str
    transfer_seconds: float
    latency_seconds: float
    share: float


def passed(step: Step, seconds: float) -> tuple[Passed, ...]:
    """What passes between processors of a step, by kind. seconds : the expected time of the step [s]."""
    kinds = {task.name: task.kind.replace("_", "-") for block in step.plan.blocks for task in block.tasks
             if isinstance(task, Collective)}  # fmt: skip
    sums: dict[str, list[float]] = {}
    for row, count, solo in zip(step.rows, step.counts, solo_seconds(step), strict=True):
        what = next((part.what for part in row.moved), row.name)
        if row.name in kinds:
            what = what if what == kinds[row.name] else f"{kinds[row.name]} of {what}"
        elif what not in ROWS:
            continue
        often = count / row.every
        total = sums.setdefault(what, [0.0, 0.0])
        total[0] += often * (solo - row.latency[1])
        total[1] += often * row.latency[1]
    return tuple(Passed(what, moving, waiting, (moving + waiting) / seconds if seconds > 0 else 0.0)
                 for what, (moving, waiting) in sums.items())  # fmt: skip
