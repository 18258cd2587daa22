"""Published measurements against the model: the floor of each must not exceed what was measured.

A floor above a measurement means that the model, the topology or the case is wrong, unless the case says that its
published figure is (`trap`). The expected time is shown beside it and proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offload.bounds import Floor, floor, load_seconds
from offload.capacity import missing
from offload.collectives import bus_factor, first_of, flows
from offload.compiler import compile_step
from offload.documents.case_file import Case
from offload.errors import CapacityError, PlanError
from offload.plan import Collective, Compute, Plan
from offload.requests import generation
from offload.schedules import schedule
from offload.step import Step, loads
from offload.topology import Topology
from offload.units import format_bytes

# Relative: a measurement is below a time by more than rounding.
CLOSE = 1e-9
# The kinds of what a plan is for; others, as collectives and links alone, are reported apart.
PLANS = ("weight_stream", "disk_stream", "cpu_exec", "kv_offload", "unified_mem", "training")


@dataclass(frozen=True, slots=True)
class Beaten:
    """A sustained rate that a measurement is faster than: no fast end of the file (or of the source) is as fast.

    rate : its fast end. implied : what the measured time takes at least, if the plan is right. unit : "B/s", "FLOP/s",
    or "s" of a stated time. informed : it is a rate that the source states.
    """

    resource: str
    rate: float
    implied: float
    unit: str
    informed: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case beside what was computed for it, each time in seconds of one step.

    floor, schedule, measured : of back-to-back steps, where `alone` of one step alone, and of a whole request the mean
    of its steps, the prompt's among them. binding : the resources that give the floor. informed : the schedule with the
    rates that the source states; `schedule` knows the server's file alone (blind). Equal where it states none.
    interval, informed_interval : (low, high) of both, at the ends of the sustained rates; equal where none has two.
    beaten : sustained rates that the measurement is faster than; of whole requests none is looked for.
    """

    case: Case
    floor: float
    schedule: float
    measured: float
    binding: tuple[str, ...]
    informed: float
    interval: tuple[float, float]
    informed_interval: tuple[float, float]
    beaten: tuple[Beaten, ...] = ()

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
    def inside(self) -> tuple[bool, bool]:
        """Whether the measurement lies in the interval that is printed: blind, informed."""
        blind, informed = (low <= self.measured <= high for low, high in (self.interval, self.informed_interval))
        return blind, informed

    @property
    def holds(self) -> bool:
        """Whether the floor is at most the measurement (times 1 + a tolerance, where the case states one)."""
        return self.floor <= self.measured * (1 + (self.tolerance or 0.0))

    @property
    def failed(self) -> bool:
        """Whether the floor is above the measurement though the case calls the published figure no trap."""
        return not self.holds and not self.case.trap


def run_case(case: Case) -> Outcome:
    """Floor and expected time of a case beside its measurement.

    Raises CapacityError where the plan does not fit its server (what was measured did fit, so the case is wrong), and
    PlanError and RouteError as `compile_step` does.
    """
    outcome = _run(case, case.plan, case.topology)
    if case.informed is None:
        return outcome
    told = _run(case, *case.informed)
    known = {(one.resource, one.rate) for one in outcome.beaten}
    own = tuple(replace(one, informed=True) for one in told.beaten if (one.resource, one.rate) not in known)
    return replace(outcome, informed=told.schedule, informed_interval=told.interval, beaten=outcome.beaten + own)


def _run(case: Case, plan: Plan, topology: Topology) -> Outcome:
    step = compile_step(topology, plan)
    if lacking := missing(step):
        text = "; ".join(f"{name} lacks {format_bytes(over)}" for name, over in sorted(lacking.items()))
        raise CapacityError(f"{case.file}, case {case.id}: the plan does not fit, but was measured: {text}.")
    measured = measured_seconds(case, step)
    if plan.request is not None:
        whole = generation(topology, plan)
        total, steps = whole.total, whole.steps + 1
        time, ends = total.expected / steps, (total.low / steps, total.high / steps)
        return Outcome(case, total.floor / steps, time, measured, whole.bottleneck, time, ends, ends)
    bound, expected, beaten = floor(step), schedule(step), _beaten(step, measured, case.measured.alone)
    if case.measured.alone:
        least, time, ends = bound.cold_seconds, expected.cold_seconds, (expected.cold_low, expected.cold_high)
    else:
        least, time, ends = bound.seconds, expected.seconds, (expected.low, expected.high)
    return Outcome(case, least, time, measured, _binding(bound, least), time, ends, ends, beaten)


def _beaten(step: Step, measured: float, alone: bool) -> tuple[Beaten, ...]:
    """Sustained rates at whose fast ends a resource alone would take longer than all was measured to take.

    What caches may spare is not taken off: a load that they hold beats a memory's rate, and that is worth being told.
    """
    seconds = load_seconds(step, "high", alone).resource_seconds
    amounts = loads(step, least=False, alone=alone, grade="high")
    return tuple(
        Beaten(name, amounts[name] / time, amounts[name] / measured, step.resources[name].unit, False)
        for name, time in seconds.items() if time > measured * (1 + CLOSE)
    )  # fmt: skip


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
        tokens = case.plan.tokens
        if request is not None:
            tokens = case.plan.workload["batch"] * (request.first if prompt else 1)
        seconds: float = tokens / figure.value
        return seconds
    if figure.unit == "s":
        request = case.plan.request
        return figure.value / (case.measured.steps or (1 if request is None else request.steps + 1))
    moved = _moved(case, step)
    if moved <= 0:
        raise PlanError(f'{case.file}, case {case.id}: "{case.measured.of}" moves nothing, so it has no rate.')
    return moved / figure.value


def _moved(case: Case, step: Step) -> float:
    """The bytes that a measured rate counts each step: what a move brings to its destination, a collective's buffer,
    or for `busbw` what a ring sends of it from each rank, 2 (n - 1) / n for an all-reduce; of a compute what it reads
    and writes, wherever that lies.
    """
    name = case.measured.of
    for block in case.plan.blocks:
        for one in block.tasks:
            if isinstance(one, Compute) and one.name == name:
                touched = sum(case.plan.tensors[each].bytes for each in (*one.reads, *one.writes))
                read: float = touched * (1 if one.once else block.repeat) / one.every
                return read
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
