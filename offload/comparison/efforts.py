"""How much work a comparison takes, counted in tasks, so that every machine leaves out the same."""

from __future__ import annotations

from dataclasses import dataclass

from offload.chains import formula
from offload.schedules import serial
from offload.step import Step
from offload.unrolling import unrolled

BY_FORMULA = 0.02  # of a task: what one of a step with a formula takes
CHEAP = 20.0  # a schedule whose ends need not be asked for
QUICK = 8000.0  # of a comparison that shall be quick; a core of the year 2024 does about 4,000 a second
FULL = float("inf")


def is_searched(step: Step) -> bool:
    """Whether the schedule of a step is the shortest of many, found to a part of `GAINED`; else it is exact."""
    alone = serial(step)
    return step.plan.overlap.kind != "none" and formula(step, None, alone.seconds, alone.cold_seconds) is None


def effort_of(step: Step) -> float:
    """What one schedule of a step takes, in tasks whose start and end are searched for."""
    if not is_searched(step):
        return BY_FORMULA * len(step.instances)
    steps, _ = unrolled(step)
    return float(len((step if steps is None else steps).instances))


@dataclass
class Effort:
    """What may still be spent."""

    left: float

    def take(self, amount: float) -> bool:
        """Whether there was enough left, which is spent then."""
        if amount > self.left:
            return False
        self.left -= amount
        return True
