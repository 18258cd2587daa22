"""What a plan lets vary apart from the rates of its machine: batch, context, layers, formats and buffers.

Each is an axis of values from the one nearest to the present to the furthest that fits, and a step for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import cast

from offload.capacity import LayersIn, again, layers_that_fit, missing, room
from offload.compiler import compile_step
from offload.designs import Portion, plan_model
from offload.designs.parallel import batch_unit
from offload.errors import ModelError, OffloadError
from offload.models import Model, weigh
from offload.models.formats import KV_FORMATS
from offload.need_axis import FORMATS, Axis, First
from offload.need_rates import CLOSE, Lever, Search, Target
from offload.plan import UNLIMITED
from offload.prompts import least as floor_of
from offload.schedules import DEEP, GAINED
from offload.step import Step

MOST = 2**16  # sequences that are tried where nothing else ends them
WEIGHTS = ("bf16", "q8_0", "fp8", "q6_k", "q5_k_m", "q4_k_m", "int4-g128", "q3_k_m", "q2_k")
KV = ("f16", "q8_0", "fp8", "q4_0")
KINDS = (*FORMATS, "layers", "batch", "context", "buffers")


def axes(step: Step, target: Target, kinds: Collection[str] = KINDS) -> tuple[list[Axis], list[str]]:
    """What a step lets vary of some kinds, and what could help but has no room left ("batch", "layers in hbm0")."""
    found, full = [], []
    if step.plan.origin is not None:
        _, workload, _, weights, kv = step.plan.origin
        layers = layers_that_fit(step) if "layers" in kinds else []
        if "batch" in kinds:
            fitting = {one.what: one.most for one in room(step, ())}
            unit = batch_unit(step.topology, step.plan.origin[2])
            most = fitting.get("batch", MOST) if target.tokens_per_s is not None else unit
            most = most and most - most % unit
            if most is not None and most > workload.batch:
                found.append(_of_workload(step, "batch", _towards(workload.batch, most, unit)))
            elif most is not None and workload.batch > unit and (target.seconds is not None or missing(step)):
                found.append(_of_workload(step, "batch", _towards(workload.batch, unit, unit)))
            if target.tokens_per_s is not None and (most is None or most <= workload.batch):
                full.append("batch")
        if "context" in kinds and workload.phase == "decode" and workload.context > 1:
            found.append(_of_workload(step, "context", _towards(workload.context, 1)))
        for one in layers:
            if one.most <= one.now and not one.takes_rest and one.now < step.plan.origin[0].layers:
                full.append(f"layers in {one.memory}")
            if one.most != one.now and not one.takes_rest:
                found.append(_of_layers(step, one))
        for kind, now, ladder in (("weights", weights, _smaller_weights), ("kv", kv, _smaller_kv)):
            if kind in kinds:
                found += _formats(step, kind, now, ladder)
    if "buffers" in kinds and any(slot.buffers != UNLIMITED for slot in step.slots):
        found.append(_of_buffers(step))
    return found, full


def levers(step: Step, target: Target, search: Search, varied: Sequence[Axis]) -> Iterator[Lever]:
    """For each axis the value from which the floor allows the target, and the one from which it is reached."""
    allowed = search.reaches(step, "peak")
    for axis in varied:
        if axis.kind == "buffers":
            yield _deeper(step, search, axis)
            continue
        last = axis.bound(axis.values[-1])
        if last is None:
            continue  # no such variant on this machine
        least = First(axis.now, True) if allowed else axis.first(target, "peak")
        found = axis.first(target, "value", fitting=True) if least.value is not None else First(None, least.sure)
        seconds = None if found.value is None else axis.expected(found.value)
        best = axis.known(axis.least(target) or axis.values[-1])
        yield Lever(axis.kind, axis.names, axis.now, least.value, found.value, seconds, axis.values[-1], last.seconds,
                    last.bottleneck, sure=(least.sure, found.sure), least_floor=best.seconds)  # fmt: skip


def _towards(now: int, end: int, unit: int = 1) -> range:
    """The whole numbers after one up to another, or down to it; multiples of `unit`, as `now` is."""
    return range(now + unit, end + 1, unit) if end > now else range(now - unit, end - 1, -unit)


def _of_workload(step: Step, what: str, values: range) -> Axis:
    workload = step.plan.origin[1]
    return Axis(what, (), getattr(workload, what), values, cache(
        lambda count: again(step, workload=replace(workload, **{what: count}))))  # fmt: skip


def _of_layers(step: Step, one: LayersIn) -> Axis:
    def placed(count: int) -> Step:
        weights = tuple((name, Portion("layers", count) if name == one.memory else portion)
                        for name, portion in one.placement.weights)  # fmt: skip
        return again(step, placement=replace(one.placement, weights=weights))

    end = one.most if one.most > one.now else 0
    return Axis("layers", (one.memory,), one.now, _towards(one.now, end), cache(placed))


def _formats(step: Step, kind: str, now: str, ladder: Callable[..., list[str]]) -> Iterator[Axis]:
    steps: dict[str, Step] = {}
    for name in ladder(step.plan.origin[0], now):
        try:
            steps[name] = with_formats(step, **{kind: name})
        except OffloadError:
            continue  # the model is not stored so
    if steps:
        yield Axis(kind, (), now, list(steps), steps.__getitem__)


def with_formats(step: Step, weights: str | None = None, kv: str | None = None) -> Step:
    """The step with other formats of weights or KV. Raises as `plan_model` does."""
    model, workload, placement, now_weights, now_kv = step.plan.origin
    plan = plan_model(model, step.topology, workload, placement, weights=weights or now_weights, kv=kv or now_kv,
                      overlap=step.plan.overlap)  # fmt: skip
    return compile_step(step.topology, plan)


def _of_buffers(step: Step) -> Axis:
    overlap = step.plan.overlap
    now = 1 if overlap.kind == "none" else overlap.buffers

    @cache
    def deeper(count: int) -> Step:
        changed = replace(overlap, kind="buffers", buffers=count)
        return compile_step(step.topology, replace(step.plan, overlap=changed))

    counts = [*range(1, DEEP + 1), *(DEEP * 2**power for power in (1, 2))]
    if missing(step):
        counts = [count for count in counts[::-1] if count < now]
    else:
        counts = [count for count in counts if count > now or overlap.kind == "none"] + [UNLIMITED]
    return Axis("buffers", (), now, [count for count in counts if not missing(deeper(count))], deeper)


def _deeper(step: Step, search: Search, axis: Axis) -> Lever:
    """The least number of buffers of those that are tried; floors do not know them."""
    bound = floor_of(step)
    least = axis.now if search.reaches(step, "peak") else None
    found = None
    open_to_it = least is not None and floor_of(step, "value").seconds <= search.due * (1 + CLOSE)
    # As many as one likes try fewer too: where they take too long by more than they leave untried, all of them do.
    if open_to_it and (_own(axis) or axis.expected(UNLIMITED) <= search.due * (1 + CLOSE) * (1 + GAINED)):
        found = axis.first(search.target, "value", fitting=True).value
        found = _nearest(axis, search, found)
    seconds = None if found is None else axis.expected(found)
    text = "none" if step.plan.overlap.kind == "none" else axis.now
    return Lever("buffers", (), text, None if least is None else text, buffers_text(found), seconds, "full",
                 bound.seconds, bound.bottleneck, sure=(True, not open_to_it or _next(axis, found)),
                 least_floor=bound.seconds)  # fmt: skip


def _nearest(axis: Axis, search: Search, found: int | None) -> int | None:
    """A count nearer to now that reaches the target too, halving between the last that did not and the first that did.

    Without limit is more than any count that is tried, and is left as it is.
    """
    if found is None or found == UNLIMITED:
        return found
    tried = list(axis.values)
    place = tried.index(found)
    short = cast(int, tried[place - 1] if place else axis.now)
    while abs(found - short) > 1:
        middle = (found + short) // 2
        if axis.fits(middle) and axis.reaches(middle, search.target, "value"):
            found = middle
        else:
            short = middle
    return found


def _next(axis: Axis, found: int | None) -> bool:
    """Whether every count from now to the one that was found was tried."""
    now = cast(int, axis.now)
    return found is not None and found != UNLIMITED and abs(found - now) <= DEEP and max(found, now) <= DEEP


def buffers_text(count: int | None) -> int | str | None:
    """A number of buffers, or what to write for no limit."""
    return "full" if count == UNLIMITED and count is not None else count


def _own(axis: Axis) -> bool:
    """Whether moves state a number of buffers of their own."""
    one, two = (axis.at(count).slots for count in (1, 2))
    return any(slot.buffers == other.buffers != UNLIMITED for slot, other in zip(one, two, strict=True))


def _smaller_weights(model: Model, now: str) -> list[str]:
    """Usual weight formats in which the model has fewer bytes than in the present one, the most bytes first."""
    sizes: dict[str, int] = {}
    for name in WEIGHTS:
        try:
            sizes[name] = weigh(model, name).total
        except ModelError:
            continue  # the model has no such rule
    present = weigh(model, now).total
    return sorted((name for name, size in sizes.items() if size < present), key=lambda name: -sizes[name])


def _smaller_kv(model: Model, now: str) -> list[str]:
    """Usual KV formats of fewer bytes than the present one, the most bytes first."""
    if now not in KV_FORMATS:
        return []
    sizes = {name: KV_FORMATS[name].row_bytes(256) for name in KV}
    return sorted((name for name in KV if sizes[name] < KV_FORMATS[now].row_bytes(256)), key=lambda name: -sizes[name])
