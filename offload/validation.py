"""Published measurements against the model: the floor of each must not exceed what was measured.

A floor above a measurement means that the model, the topology or the case is wrong, unless the case says that its
published figure is (`trap`). The expected time is shown beside it and proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from offload.bounds import Floor, floor
from offload.collectives import bus_factor, first_of, flows
from offload.compiler import compile_step
from offload.documents.case_file import Case
from offload.errors import CapacityError, PlanError
from offload.plan import Collective
from offload.requests import generation
from offload.schedules import schedule
from offload.sensitivity import missing
from offload.step import Step
from offload.units import format_bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case beside what was computed for it, each time in seconds of one step.

    floor, schedule, measured : of back-to-back steps, where `alone` of one step alone, and of a whole request the mean
    of its steps, the prompt's among them. binding : the resources that give the floor.
    """

    case: Case
    floor: float
    schedule: float
    measured: float
    binding: tuple[str, ...]

    @property
    def id(self) -> str:
        """The case's id."""
        return self.case.id

    @property
    def tolerance(self) -> float | None:
        """By how much the floor may exceed the measurement [1]; None where the case states none."""
        return self.case.measured.tolerance

    @property
    def floor_ratio(self) -> float:
        """Floor / measured: the share of the measured time that the floor explains."""
        return self.floor / self.measured

    @property
    def schedule_ratio(self) -> float:
        """Expected / measured."""
        return self.schedule / self.measured

    @property
    def holds(self) -> bool:
        """Whether the floor is at most the measurement (times 1 + a tolerance, where the case states one)."""
        return self.floor <= self.measured * (1 + (self.tolerance or 0.0))

    @property
    def failed(self) -> bool:
        """Whether the floor is above the measurement though the case calls the published figure no trap."""
        return not self.holds and not self.case.trap


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of cases, and over those that are no trap the median and the ends of both ratios (None without any)."""

    cases: int
    held: int
    failed: int
    traps: int
    floor_ratio: tuple[float, float, float] | None
    schedule_ratio: tuple[float, float, float] | None


def run_case(case: Case) -> Outcome:
    """Floor and expected time of a case beside its measurement.

    Raises CapacityError where the plan does not fit its server (what was measured did fit, so the case is wrong), and
    PlanError and RouteError as `compile_step` does.
    """
    step = compile_step(case.topology, case.plan)
    if lacking := missing(step):
        text = "; ".join(f"{name} lacks {format_bytes(over)}" for name, over in sorted(lacking.items()))
        raise CapacityError(f"{case.file}, case {case.id}: the plan does not fit, but was measured: {text}.")
    measured = measured_seconds(case, step)
    if case.plan.request is not None:
        whole = generation(case.topology, case.plan)
        steps = whole.steps + 1
        return Outcome(case, whole.total.floor / steps, whole.total.expected / steps, measured, whole.bottleneck)
    bound, expected = floor(step), schedule(step, ends=False)
    if case.measured.alone:
        return Outcome(case, bound.cold_seconds, expected.cold_seconds, measured, _binding(bound, bound.cold_seconds))
    return Outcome(case, bound.seconds, expected.seconds, measured, _binding(bound, bound.seconds))


def _binding(bound: Floor, seconds: float) -> tuple[str, ...]:
    """What gives the floor; nothing where nothing is proved."""
    return bound.bottleneck if seconds > 0 else ()


def measured_seconds(case: Case, step: Step) -> float:
    """What was measured as seconds of one step: tokens / rate, time / steps, or a move's bytes each step / rate.

    A time is of one step, or of a whole request where the plan is one, if the case does not say of how many steps.
    """
    figure = case.measured.figure
    if figure.unit == "tok/s":
        return case.plan.tokens / figure.value
    if figure.unit == "s":
        request = case.plan.request
        return figure.value / (case.measured.steps or (1 if request is None else request.steps + 1))
    moved = _moved(case, step)
    if moved <= 0:
        raise PlanError(f'{case.file}, case {case.id}: "{case.measured.of}" moves nothing, so it has no rate.')
    return moved / figure.value


def _moved(case: Case, step: Step) -> float:
    """The bytes that a measured rate counts each step: what a move brings to its destination, a collective's buffer,
    or for `busbw` what a ring sends of it from each rank, 2 (n - 1) / n for an all-reduce.
    """
    name = case.measured.of
    lanes = {name, *(f"{name} from {memory}" for memory in case.topology.memories)}  # the last stage of each way
    moved = 0.0
    for row, count in zip(step.rows, step.counts, strict=True):
        if row.transfer and row.name in lanes:
            moved += count / row.every * sum(part.bytes for part in row.moved)
    task = next((one for block in case.plan.blocks for one in block.tasks
                 if isinstance(one, Collective) and one.name == name), None)  # fmt: skip
    if task is not None:  # the row counts what all ranks send
        ranks = len(task.over)
        sent = sum(flow.share for flow in flows(task.kind, task.algorithm or first_of(task.kind), ranks))
        factor = 1 if case.measured.counts == "rate" else bus_factor(task.kind, ranks)
        moved *= float(factor / sent)
    return moved


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """Counts and ratios over all outcomes."""
    real = [one for one in outcomes if not one.case.trap]
    return Summary(
        len(outcomes),
        sum(one.holds for one in real),
        sum(one.failed for one in real),
        len(outcomes) - len(real),
        _spread([one.floor_ratio for one in real if one.floor > 0]),
        _spread([one.schedule_ratio for one in real]),
    )


def _spread(ratios: Sequence[float]) -> tuple[float, float, float] | None:
    return (min(ratios), median(ratios), max(ratios)) if ratios else None
