"""Published measurements against the model: the floor of each must not exceed what was measured.

A floor above a measurement means that the model, the topology or the case is wrong, unless the case says that its
published figure is (`trap`). The expected time is shown beside it and proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median

from offload.bounds import Floor, floor
from offload.collectives import bus_factor, first_of, flows
from offload.compiler import compile_step
from offload.documents.case_file import Case
from offload.errors import CapacityError, PlanError
from offload.plan import Collective, Plan
from offload.requests import generation
from offload.schedules import schedule
from offload.sensitivity import missing
from offload.step import Step
from offload.topology import Topology
from offload.units import format_bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case beside what was computed for it, each time in seconds of one step.

    floor, schedule, measured : of back-to-back steps, where `alone` of one step alone, and of a whole request the mean
    of its steps, the prompt's among them. binding : the resources that give the floor. informed : the schedule with the
    rates that the source states; `schedule` knows the server's file alone (blind). Equal where it states none.
    """

    case: Case
    floor: float
    schedule: float
    measured: float
    binding: tuple[str, ...]
    informed: float

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
    def informed_ratio(self) -> float:
        """The same with the rates that the source states."""
        return self.informed / self.measured

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
    """Counts of cases, and over those that are no trap the ends and the median of the ratios (None without any).

    errors : "blind" and "informed" -> the median of |expected / measured - 1| over rows, and over files the median of
    each file's median; empty without any.
    """

    cases: int
    held: int
    failed: int
    traps: int
    floor_ratio: tuple[float, float, float] | None
    schedule_ratio: tuple[float, float, float] | None
    informed_ratio: tuple[float, float, float] | None
    errors: Mapping[str, tuple[float, float]]


def run_case(case: Case) -> Outcome:
    """Floor and expected time of a case beside its measurement.

    Raises CapacityError where the plan does not fit its server (what was measured did fit, so the case is wrong), and
    PlanError and RouteError as `compile_step` does.
    """
    outcome = _run(case, case.plan, case.topology)
    if case.informed is None:
        return outcome
    return replace(outcome, informed=_run(case, *case.informed).schedule)


def _run(case: Case, plan: Plan, topology: Topology) -> Outcome:
    step = compile_step(topology, plan)
    if lacking := missing(step):
        text = "; ".join(f"{name} lacks {format_bytes(over)}" for name, over in sorted(lacking.items()))
        raise CapacityError(f"{case.file}, case {case.id}: the plan does not fit, but was measured: {text}.")
    measured = measured_seconds(case, step)
    if plan.request is not None:
        whole = generation(topology, plan)
        steps = whole.steps + 1
        time = whole.total.expected / steps
        return Outcome(case, whole.total.floor / steps, time, measured, whole.bottleneck, time)
    bound, expected = floor(step), schedule(step, ends=False)
    if case.measured.alone:
        time = expected.cold_seconds
        return Outcome(case, bound.cold_seconds, time, measured, _binding(bound, bound.cold_seconds), time)
    time = expected.seconds
    return Outcome(case, bound.seconds, time, measured, _binding(bound, bound.seconds), time)


def _binding(bound: Floor, seconds: float) -> tuple[str, ...]:
    """What gives the floor; nothing where nothing is proved."""
    return bound.bottleneck if seconds > 0 else ()


def measured_seconds(case: Case, step: Step) -> float:
    """What was measured as seconds of one step: tokens / rate, time / steps, or a move's bytes each step / rate.

    A time is of one step, or of a whole request where the plan is one, if the case does not say of how many steps.
    """
    figure = case.measured.figure
    if figure.unit == "tok/s":
        request = case.plan.request
        prompt = request is not None and request.chunk is not None and not request.steps  # all of it, not one chunk
        if request is not None:
            return case.plan.workload["batch"] * (request.first if prompt else 1) / figure.value
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
        ranks = len(task.over) // task.groups
        sent = sum(flow.share for flow in flows(task.kind, task.algorithm or first_of(task.kind), ranks))
        factor = 1 if case.measured.counts == "rate" else bus_factor(task.kind, ranks)
        moved *= float(factor / (sent * task.groups))
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
        _spread([one.informed_ratio for one in real]),
        _errors(real),
    )


def _errors(outcomes: Sequence[Outcome]) -> dict[str, tuple[float, float]]:
    found = {}
    for name, ratio in (("blind", Outcome.schedule_ratio.fget), ("informed", Outcome.informed_ratio.fget)):
        files: dict[str, list[float]] = {}
        for one in outcomes:
            files.setdefault(one.case.file, []).append(abs(ratio(one) - 1))
        if files:
            rows = [error for errors in files.values() for error in errors]
            found[name] = (median(rows), median(median(errors) for errors in files.values()))
    return found


@dataclass(frozen=True, slots=True)
class Ranking:
    """Whether expected and measured times of some cases come in the same order: Kendall's tau, -1 to 1.

    name : the file or the group. varies : the one value in which they differ, "" where several do. tau, informed : with
    the server's file alone, and with the rates that the sources state; None where no two differ.
    """

    name: str
    varies: str
    cases: int
    tau: float | None
    informed: float | None


def rankings(outcomes: Sequence[Outcome]) -> tuple[Ranking, ...]:
    """The order within each file whose variants differ in one value, and within each group of files."""
    files: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        if one.case.trap:
            continue
        if one.case.varies:
            files.setdefault((one.case.id.partition("/")[0], one.case.varies), []).append(one)
        if one.case.group:
            files.setdefault((one.case.group, ""), []).append(one)
    return tuple(
        Ranking(name, varies, len(some), kendall([(one.schedule, one.measured) for one in some]),
                kendall([(one.informed, one.measured) for one in some]))
        for (name, varies), some in files.items() if len(some) > 1
    )  # fmt: skip


def kendall(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's tau-b of pairs: (concordant - discordant) / sqrt of the pairs that differ in each; None without any.

    Source: M. Kendall, Rank Correlation Methods. Times within a millionth of each other are one.
    """
    def sign(a: float, b: float) -> int:
        return 0 if abs(a - b) <= 1e-6 * max(abs(a), abs(b)) else (1 if a > b else -1)

    signs = [(sign(a, c), sign(b, d)) for i, (a, b) in enumerate(pairs) for c, d in pairs[:i]]
    first, second = (sum(abs(one[place]) for one in signs) for place in (0, 1))
    return sum(a * b for a, b in signs) / sqrt(first * second) if first and second else None


def _spread(ratios: Sequence[float]) -> tuple[float, float, float] | None:
    return (min(ratios), median(ratios), max(ratios)) if ratios else None
