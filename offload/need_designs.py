"""What a plan lets vary apart from the rates of its machine: batch, context, layers, formats and buffers.

Each is an axis of values from the one nearest to the present to the furthest that fits, and a step for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from offload.bounds import floor
from offload.capacity import LayersIn, again, layers_that_fit, missing, room
from offload.compiler import compile_step
from offload.designs import Portion, plan_model
from offload.designs.parallel import batch_unit
from offload.errors import ModelError, OffloadError
from offload.models import Model, weigh
from offload.models.formats import KV_FORMATS
from offload.need_rates import Lever, Search, Target
from offload.plan import UNLIMITED
from offload.step import Step

MOST = 2**16  # sequences that are tried where nothing else ends them
DEEPEST = 64  # buffers that are tried before there is no limit
FEW = 4  # values that are tried of a long axis
WEIGHTS = ("bf16", "q8_0", "fp8", "q6_k", "q5_k_m", "q4_k_m", "int4-g128", "q3_k_m", "q2_k")
KV = ("f16", "q8_0", "fp8", "q4_0")
FORMATS = ("weights", "kv")
KINDS = (*FORMATS, "layers", "batch", "context", "buffers")


@dataclass(frozen=True, slots=True)
class Axis:
    """What may vary. kind : as of `Lever`; names : the memory of the layers. values : the nearest to `now` first."""

    kind: str
    names: tuple[str, ...]
    now: int | str
    values: Sequence[Any]
    at: Callable[[Any], Step]

    def few(self, most: int = FEW) -> list[Any]:
        """All values of formats, of buffers the first, else at most so many, evenly apart, with the last."""
        count = len(self.values)
        if self.kind == "buffers":
            return list(self.values[:1])
        if self.kind in FORMATS or count <= most:
            return list(self.values)
        return [self.values[count * (one + 1) // most - 1] for one in range(most)]

    def nearest(self, reached: Callable[[Step], bool]) -> Any | None:
        """The value nearest to now whose step is good while that before it is not; None where none was found.

        Formats are tried one by one. Whole numbers are halved towards the last where that is good; of layers, where
        more may be too many, also towards the first of few that is.
        """
        if self.kind in FORMATS:
            return next((value for value in self.values if reached(self.at(value))), None)
        low, high = -1, len(self.values) - 1
        if not reached(self.at(self.values[high])):
            if self.kind != "layers":
                return None
            places = [self.values.index(value) for value in self.few()[:-1]]
            high = next((place for place in places if reached(self.at(self.values[place]))), -1)
            if high < 0:
                return None
            low = max((place for place in places if place < high), default=-1)
        while high - low > 1:
            middle = (low + high) // 2
            if reached(self.at(self.values[middle])):
                high = middle
            else:
                low = middle
        return self.values[high]


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
            if most is not None and most != workload.batch and (most > workload.batch) == (
                target.tokens_per_s is not None
            ):
                found.append(_of_workload(step, "batch", _towards(workload.batch, most, unit)))
            elif target.tokens_per_s is not None:
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
        try:
            end = axis.values[-1]
            last = floor(axis.at(end))
            least = axis.now if allowed else axis.nearest(lambda one: search.reaches(one, "peak"))
            found = axis.nearest(lambda one: fits_and_reaches(search, one)) if least is not None else None
            seconds = None if found is None else search.expected(axis.at(found))
        except OffloadError:
            continue  # no such variant on this machine
        yield Lever(axis.kind, axis.names, axis.now, least, found, seconds, end, last.seconds, last.bottleneck)


def fits_and_reaches(search: Search, step: Step, grade: str = "value") -> bool:
    """Whether a step has room in every memory and reaches the target."""
    return search.reaches(step, grade) and not missing(step)


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

    return Axis("layers", (one.memory,), one.now, _towards(one.now, one.most), cache(placed))


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

    low, high = now, DEEPEST + 1  # of what fits
    while high - low > 1:
        middle = (low + high) // 2 if high <= DEEPEST else DEEPEST
        low, high = (low, middle) if missing(deeper(middle)) else (middle, high)
    return Axis("buffers", (), now, range(now + 1, low + 1), deeper)


def _deeper(step: Step, search: Search, axis: Axis) -> Lever:
    """The least number of buffers; floors do not know them."""
    bound = floor(step)
    least = axis.now if search.reaches(step, "peak") else None
    found, seconds = None, None
    if least is not None and search.reaches(axis.at(UNLIMITED), "value"):
        for count in axis.values:
            if search.reaches(axis.at(count), "value"):
                found, seconds = count, search.expected(axis.at(count))
                break
    text = "none" if step.plan.overlap.kind == "none" else axis.now
    return Lever("buffers", (), text, least and text, found, seconds, "full", bound.seconds, bound.bottleneck)


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
