"""Published measurements against the model: the floor of each must not exceed what was measured.

A floor above a measurement means that the model, the topology or the case is wrong, unless the case says that its
published figure is (`trap`). The expected time is shown beside it and proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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

# The kinds of what a plan is for; others, as collectives and links alone, are reported apart.
PLANS = ("weight_stream", "disk_stream", "cpu_exec", "kv_offload", "unified_mem", "training")


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
class Errors:
    """How far expected times are off: medians of |expected / measured - 1| [1], traps left out.

    of : "plans", "plans, strength A" or a kind. judged : False of what no plan of an offload is judged by (a collective
    or a link alone). strength : the strengths of its rows, "A" or "A, C". cases, entries : how many. blind, informed :
    over rows, and over entries the median of each entry's median; with servers' files alone, and with stated rates.
    """

    of: str
    judged: bool
    strength: str
    cases: int
    entries: int
    blind: tuple[float, float]
    informed: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of cases, and over those that are no trap the ends and the median of the ratios (None without any).

    errors : over the kinds that a plan is for (`PLANS`), over those of strength A alone, and over each kind by itself.
    """

    cases: int
    held: int
    failed: int
    traps: int
    floor_ratio: tuple[float, float, float] | None
    schedule_ratio: tuple[float, float, float] | None
    informed_ratio: tuple[float, float, float] | None
    errors: tuple[Errors, ...]


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


def _errors(outcomes: Sequence[Outcome]) -> tuple[Errors, ...]:
    plans = [one for one in outcomes if one.case.kind in PLANS]
    parts = {"plans": plans, "plans, strength A": [one for one in plans if one.case.strength == "A"]}
    others = sorted({one.case.kind for one in outcomes} - set(PLANS))
    parts |= {kind: [one for one in outcomes if one.case.kind == kind] for kind in (*PLANS, *others)}
    return tuple(_errors_of(name, some, name not in others) for name, some in parts.items() if some)


def _errors_of(name: str, outcomes: Sequence[Outcome], judged: bool) -> Errors:
    entries: dict[str, list[Outcome]] = {}
    for one in outcomes:
        entries.setdefault(one.case.entry, []).append(one)

    def medians(ratio: Callable[[Outcome], float]) -> tuple[float, float]:
        by_entry = [median(abs(ratio(one) - 1) for one in some) for some in entries.values()]
        return median(abs(ratio(one) - 1) for one in outcomes), median(by_entry)

    strengths = ", ".join(sorted({one.case.strength for one in outcomes}))
    return Errors(name, judged, strengths, len(outcomes), len(entries), medians(lambda one: one.schedule_ratio),
                  medians(lambda one: one.informed_ratio))  # fmt: skip


def _spread(ratios: Sequence[float]) -> tuple[float, float, float] | None:
    return (min(ratios), median(ratios), max(ratios)) if ratios else None
