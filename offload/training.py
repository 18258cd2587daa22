"""A training step as people speak of it: TFLOP/s per GPU, forward, backward and update, what each tier must bring.

FLOP are counted in two ways that are not to be mixed: model FLOP are three forward passes (6 for each weight and token,
and those of attention), hardware FLOP also count what is computed again from checkpoints (8 for each weight of layers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offload.compiler import compile_step
from offload.errors import FormulaError, shown
from offload.given import all_positive, finite
from offload.overlap import efficiency
from offload.plan import Amount, Collective, Plan
from offload.ranges import listed
from offload.rows import row_table
from offload.schedules import Schedule, schedule
from offload.step import Row, Step, loads, remembered, seconds_of_rows
from offload.topology import Interval

TARGET = 0.9  # share of the time in compute for which a report says what each tier must bring
OVERLAPPED = "max(compute, transfer)"
KINDS = ("parameters and gradients", "optimizer states", "activation checkpoints")


@dataclass(frozen=True, slots=True)
class TierTraffic:
    """What a kind of state of the layers moves in a step, and the share of the GPUs' rate that it alone allows.

    bytes [B], seconds : of its moves one after another. intensity : FLOP per byte. without_overlap, overlapped : shares
    where compute waits for it, and where it runs beside compute; estimates (ZeRO-Infinity's model).
    """

    kind: str
    bytes: float
    seconds: float
    intensity: float
    without_overlap: float
    overlapped: float


@dataclass(frozen=True, slots=True)
class TierNeed:
    """What a resource must sustain for the target share of compute: load [B], needed and present rate [B/s].

    present : what the step's mix of accesses is served at. enough : present is at least what is needed.
    """

    name: str
    load: float
    needed: float
    present: float
    enough: bool


@dataclass(frozen=True, slots=True)
class TrainingTimes:
    """A training step's figures [s, FLOP/s of each GPU, share].

    forward, backward, update : of one step alone, which they add up to; update is what the passes do not hide.
    compute : the GPUs' arithmetic at sustained rates. model_flops, hardware_flops : FLOP per second and GPU at the
    expected time. peak : the rated (else the peak, else the sustained) FLOP/s of a GPU, peak_grade which of them.
    share : model_flops / peak. at_most : model FLOP per second and GPU that the floor leaves, None where it is 0.
    """

    tokens: int
    gpus: int
    forward: float
    backward: float
    update: float
    compute: float
    busy: float
    model_flops: float
    hardware_flops: float
    at_most: float | None
    peak: float | None
    peak_grade: str
    share: float | None
    recomputes: bool
    delayed: bool
    target: float
    traffic: tuple[TierTraffic, ...]
    needs: tuple[TierNeed, ...]


def training_times(
    step: Step, expected: Schedule, floor_seconds: float, target: float = TARGET
) -> TrainingTimes | None:
    """The figures of a training plan's step; None for another plan.

    expected : its schedule. floor_seconds : of back-to-back steps. target : as of `tier_needs`. Raises FormulaError for
    a target that is no share.
    """
    facts = step.plan.training
    if facts is None or expected.seconds <= 0:
        return None
    count = len(facts.gpus)
    forward = facts.micro_batches * _cold(step, _forward_only(step.plan))
    passes = _cold(step, _without_update(step.plan))
    alone = expected.cold_seconds
    compute = compute_seconds(step)
    peak, grade = _peak(step, facts.gpus[0], facts.format)
    model = facts.model_flops / count / expected.seconds
    return TrainingTimes(
        facts.tokens, count, forward, passes - forward, alone - passes, compute, compute / expected.seconds, model,
        facts.hardware_flops / count / expected.seconds,
        facts.model_flops / count / floor_seconds if floor_seconds > 0 else None, peak, grade,
        None if peak is None else model / peak, facts.recomputes, facts.delayed, target, tier_traffic(step),
        tier_needs(step, target))  # fmt: skip


def compute_seconds(step: Step) -> float:
    """Seconds that the GPUs' arithmetic takes at sustained rates; 0 where it is not known."""
    return max((_seconds(step, f"{gpu}.flops") for gpu in step.plan.training.gpus), default=0.0)


def tier_needs(step: Step, target: float = TARGET) -> tuple[TierNeed, ...]:
    """What each memory, link and drive of a training step must sustain so that compute fills `target` of the time.

    The time is that of the arithmetic / target, and everything else runs beside it; nothing where the arithmetic's
    rate is not known. Raises FormulaError where the target is no share above 0.
    """
    _check_target(target)
    compute = compute_seconds(step)
    if compute <= 0:
        return ()
    found = []
    for name, load in loads(step, least=False).items():
        resource = step.resources[name]
        time = _seconds(step, name)
        if resource.unit != "B" or load <= 0 or time <= 0:
            continue
        needed = load * target / compute
        found.append(TierNeed(name, load, needed, load / time, load / time >= needed * (1 - 1e-12)))
    return tuple(sorted(found, key=lambda one: one.present / one.needed))


@finite
def bandwidth_for(target: Amount, intensity: Amount, flops: Amount, overlapped: bool = True) -> Amount:
    """The bandwidth at which a share of `flops` [FLOP/s] is reached at an arithmetic intensity [FLOP/B]. [B/s]

    The inverse of `overlap.efficiency`: target x flops / intensity where transfers run beside compute, target /
    (1 - target) x flops / intensity where compute waits for them. Raises FormulaError.
    """
    all_positive(intensity=intensity, flops=flops)
    _check_target(target)
    if overlapped:
        return target * flops / intensity
    if target >= 1:
        raise FormulaError("target is 1: without overlap compute never fills all of the time. Give a smaller share.")
    return target / (1 - target) * flops / intensity


def tier_traffic(step: Step) -> tuple[TierTraffic, ...]:
    """What the layers' state moves, kind by kind, with the shares of compute that ZeRO-Infinity's model allows.

    As there only the layers count, FLOP are those of their weights, and the rate of compute is what is sustained.
    """
    facts = step.plan.training
    own, optimizer = set(facts.own), set(facts.optimizer)

    def of_gpu(row: Row) -> bool:
        return bool(_ends(row) & own)

    def of_states(row: Row) -> bool:
        what = row.moved[0].what
        return bool(_ends(row) & optimizer - own) and (
            what == "optimizer states" or (what == "gradients" and not of_gpu(row)))

    picks: dict[str, Callable[[Row], bool]] = {
        KINDS[0]: lambda row: row.moved[0].what in ("parameters", "gradients") and of_gpu(row),
        KINDS[1]: of_states,
        KINDS[2]: lambda row: row.moved[0].what == "activation checkpoints" and of_gpu(row),
    }
    rate, plan = _sustained_flops(step), step.plan
    seconds_of, counts = seconds_of_rows(step, "value"), step.counts
    moves = [number for number, tensor in _moves(step).items() if " of the " not in plan.tensors[tensor].name]
    found = []
    for kind, picked in picks.items():
        rows = [number for number in moves if picked(step.rows[number])]
        size = sum(counts[number] * step.rows[number].moved[0].bytes for number in rows)
        seconds = sum(counts[number] * max(seconds_of[number].values(), default=0.0) for number in rows)
        if size > 0 and seconds > 0 and rate:
            intensity = facts.layer_flops / size
            bandwidth = size / seconds
            found.append(TierTraffic(kind, size, seconds, intensity, efficiency(intensity, bandwidth, rate),
                                     efficiency(intensity, bandwidth, rate, OVERLAPPED)))
    return tuple(found)


def _moves(step: Step) -> dict[int, str]:
    """The rows of moves, collectives left out, each stage with its tensor."""
    exchanges = {task.name for block in step.plan.blocks for task in block.tasks if isinstance(task, Collective)}
    flows = row_table(step.topology, step.plan).flows
    found: dict[int, str] = {}
    tensor = ""
    for number, row in enumerate(step.rows):
        tensor = flows[number][0].tensor if number in flows else tensor
        if row.transfer and row.name not in exchanges:
            found[number] = tensor
    return found


def _check_target(target: Amount) -> None:
    if isinstance(target, bool) or not hasattr(target, "__float__") or not 0 < target <= 1:
        raise FormulaError(f"target is {shown(target)}: a share of the time in compute is above 0 and at most 1.")


def _ends(row: Row) -> set[str]:
    moved = row.moved[0]
    return {*listed(moved.source), *(listed(moved.destination) if moved.destination else ())}


def _seconds(step: Step, name: str) -> float:
    """Seconds that one step keeps a resource busy at sustained rates."""
    seconds: float = remembered(step, ("busy", name), lambda: sum(
        count * times.get(name, 0.0) for count, times in zip(step.counts, seconds_of_rows(step, "value"), strict=True)))
    return seconds


def _sustained_flops(step: Step) -> float:
    """FLOP/s of all GPUs at sustained rates; 0 where it is not known."""
    compute = compute_seconds(step)
    name = f"{step.plan.training.gpus[0]}.flops"
    return len(step.plan.training.gpus) * loads(step, least=False).get(name, 0.0) / compute if compute > 0 else 0.0


def _peak(step: Step, gpu: str, format_: str) -> tuple[float | None, str]:
    """FLOP/s of a GPU as it is sold, else what nothing exceeds, else what is sustained; and which of them."""
    offered = step.topology.processors[gpu].flops
    rate = offered.get(format_) or offered.get({"bf16": "fp16", "fp16": "bf16"}.get(format_, ""))
    if rate is None:
        return None, ""
    if rate.rated is not None:
        return rate.rated, "rated"
    if rate.peak is not None:
        return rate.peak, "peak"
    known: Interval | None = rate.sustained.get("")
    return (None, "") if known is None else (known.value, "sustained")


# Parts of a step, each as a step of its own.


def _cold(step: Step, plan: Plan | None) -> float:
    """Seconds of a part of the step alone; 0 where it is nothing."""
    return 0.0 if plan is None else schedule(compile_step(step.topology, plan), ends=False).cold_seconds


def _forward_only(plan: Plan) -> Plan:
    """The first micro-batch's forward pass through the layers."""
    blocks = plan.blocks[: plan.training.forward_blocks]
    return replace(plan, blocks=blocks, carried=(), in_flight=1)


def _without_update(plan: Plan) -> Plan:
    """All passes, gradients leaving included, without the update."""
    updates = plan.training.updates
    blocks = tuple(replace(block, tasks=tuple(task for task in block.tasks if task.name not in updates))
                   for block in plan.blocks)
    return replace(plan, blocks=blocks, carried=(), in_flight=1)
