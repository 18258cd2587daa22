"""What a target needs: the least single changes and the cheapest pair of faster parts that reach it, or what forbids.

Two answers, never mixed. The floor says from where on a target is not forbidden: below that no schedule reaches it. The
expected time says from where on the modelled machine reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

from offload.bounds import floor
from offload.capacity import again, layers_that_fit, missing, room
from offload.compiler import compile_step
from offload.designs import Portion, plan_model
from offload.designs.parallel import batch_unit
from offload.errors import FormulaError, ModelError, OffloadError
from offload.models import Model, weigh
from offload.models.formats import KV_FORMATS
from offload.need_rates import CLOSE, Lever, Limit, Pair, Search, Target, groups_of
from offload.plan import UNLIMITED
from offload.step import Step

MOST = 2**16  # sequences that are tried where nothing else ends them
DEEPEST = 64  # buffers that are tried before there is no limit
WEIGHTS = ("bf16", "q8_0", "fp8", "q6_k", "q5_k_m", "q4_k_m", "int4-g128", "q3_k_m", "q2_k")
KV = ("f16", "q8_0", "fp8", "q4_0")


@dataclass(frozen=True, slots=True)
class Need:
    """What `need` returns. due : the longest that a step may take now [s]; floor, expected : what it takes now [s].

    forbidden_by : the rows that bind the floor now. floor_pair, expected_pair : only where cheaper than every single
    part. best_pair : where the floor allows no part and no pair, the pair that it falls furthest with, infinitely fast.
    everything : all parts infinitely fast, with the floor; everything_expected : the expected time then (latencies and
    stated times are left). lacks : bytes that the plan lacks, by memory: a target reached without room is not reached.
    full : what could help and has no room left ("batch", "layers in hbm0").
    """

    target: Target
    title: str
    topology: str
    tokens: float
    due: float
    floor: float
    expected: float
    forbidden_by: tuple[str, ...]
    levers: tuple[Lever, ...]
    floor_pair: Pair | None
    expected_pair: Pair | None
    best_pair: Limit | None
    everything: Limit
    everything_expected: float
    lacks: Mapping[str, int]
    phase: str = ""
    full: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the floor allows the target now."""
        return self.floor <= self.due * (1 + CLOSE)

    @property
    def met(self) -> bool:
        """Whether the plan reaches it as it is."""
        return not self.lacks and self.expected <= self.due * (1 + CLOSE)

    @property
    def reachable(self) -> bool:
        """Whether it is reached, as it is or by one of the changes."""
        found = {lever.kind == "rate" for lever in self.levers if lever.expected is not None}
        faster = True in found or self.expected_pair is not None
        return self.met or False in found or (faster and not self.lacks)


def need(step: Step, target: Target) -> Need:
    """The single changes, and the cheapest pair of faster parts, that bring a step's period to a target.

    Changes that do not fit in the memories do not count. Raises FormulaError for a target that is no time.
    """
    for value in (target.seconds, target.tokens_per_s):
        if value is not None and not 0 < value < inf:
            raise FormulaError(f'"{target.text}" is no target: give a time or a rate above zero.')
    search = Search(step, target)
    bound, expected = floor(step), search.expected(step)
    groups = groups_of(step)
    met = expected <= search.due * (1 + CLOSE)
    designs = _Designs(step, target, search)
    levers = [] if met else [*(search.rate(names) for names in groups), *designs.levers()]
    rates = [lever for lever in levers if lever.kind == "rate"]
    floor_pair = search.pair(groups, [lever.floor for lever in rates], "peak") if levers else None
    forbidden = levers and floor_pair is None and all(lever.floor is None for lever in rates)
    pairs = [search.limit(*two) for two in combinations(groups, 2)] if forbidden else []
    return Need(
        target=target, title=step.plan.title, topology=step.topology.name, tokens=float(step.plan.tokens),
        due=search.due, floor=bound.seconds, expected=expected, forbidden_by=bound.bottleneck, levers=tuple(levers),
        floor_pair=floor_pair,
        expected_pair=search.pair(groups, [lever.expected for lever in rates], "value") if levers else None,
        best_pair=min(pairs, key=lambda one: one.floor, default=None), everything=search.limit(*groups),
        everything_expected=search.expected(search.faster(*((names, 0.0) for names in groups))), lacks=missing(step),
        phase=str(step.plan.workload.get("phase", "")), full=tuple(designs.full),
    )  # fmt: skip


class _Designs:
    """What a plan by placement lets vary, and buffers."""

    def __init__(self, step: Step, target: Target, search: Search):
        self.step, self.target, self.search = step, target, search
        self.full: list[str] = []

    def levers(self) -> Iterator[Lever]:
        """Batch, context, layers, formats and buffers."""
        if self.step.plan.origin is not None:
            yield from self._counts()
            yield from self._formats()
        yield from self._buffers()

    def _counts(self) -> Iterator[Lever]:
        workload, placement = self.step.plan.origin[1:3]
        layers = layers_that_fit(self.step)
        fitting = {one.what: one.most for one in room(self.step, layers)}
        batch = workload.batch
        unit = batch_unit(self.step.topology, placement)
        most = fitting.get("batch", MOST) if self.target.tokens_per_s is not None else unit
        if most is not None and most != batch and (most > batch) == (self.target.tokens_per_s is not None):
            for lever in self._whole(
                "batch", (), batch // unit, most // unit,
                lambda count: again(self.step, workload=replace(workload, batch=count * unit))):  # fmt: skip
                counts = {key: None if getattr(lever, key) is None else unit * getattr(lever, key)
                          for key in ("now", "floor", "expected", "end")}
                yield replace(lever, **counts)
        elif self.target.tokens_per_s is not None:
            self.full.append("batch")
        if workload.phase == "decode" and workload.context > 1:
            yield from self._whole(
                "context", (), workload.context, 1,
                lambda count: again(self.step, workload=replace(workload, context=count)))  # fmt: skip
        for one in layers:
            if one.most <= one.now and not one.takes_rest and one.now < self.step.plan.origin[0].layers:
                self.full.append(f"layers in {one.memory}")
            if one.most != one.now and not one.takes_rest:
                def placed(count: int, one=one) -> Step:
                    weights = tuple((name, Portion("layers", count) if name == one.memory else portion)
                                    for name, portion in one.placement.weights)  # fmt: skip
                    return again(self.step, placement=replace(one.placement, weights=weights))

                yield from self._whole("layers", (one.memory,), one.now, one.most, placed)

    def _whole(
        self, kind: str, names: tuple[str, ...], now: int, end: int, at: Callable[[int], Step]
    ) -> Iterator[Lever]:
        """The whole number nearest to `now`, on the way to `end`, that reaches the target; the end has to."""
        known: dict[int, Step] = {}

        def there(count: int) -> Step:
            if count not in known:
                known[count] = at(count)
            return known[count]

        def nearest(grade: str, start: int) -> int | None:
            if not self.search.reaches(there(end), grade):
                return None
            far, near = end, start
            while abs(far - near) > 1:
                middle = (far + near) // 2
                if self.search.reaches(there(middle), grade):
                    far = middle
                else:
                    near = middle
            return far

        try:
            last = floor(there(end))
            least = nearest("peak", now) if not self.search.reaches(self.step, "peak") else now
            found = nearest("value", now) if least is not None else None
            if found is not None and missing(there(found)):
                found = None
            seconds = None if found is None else self.search.expected(there(found))
        except OffloadError:
            return  # no such variant on this machine
        yield Lever(kind, names, now, least, found, seconds, end, last.seconds, last.bottleneck)

    def _formats(self) -> Iterator[Lever]:
        model, workload, placement, weights, kv = self.step.plan.origin
        for kind, now, ladder in (("weights", weights, _smaller_weights(model, weights)), ("kv", kv, _smaller_kv(kv))):
            steps: dict[str, Step] = {}
            for name in ladder:
                changed = {"weights": weights, "kv": kv, kind: name}
                try:
                    steps[name] = _with_formats(self.step, **changed)
                except OffloadError:
                    continue  # the model is not stored so
            if not steps:
                continue
            least, found = now, None
            if not self.search.reaches(self.step, "peak"):
                least = next((name for name, step in steps.items() if self.search.reaches(step, "peak")), None)
            if least is not None:
                fitting = (name for name, step in steps.items() if not missing(step))
                found = next((name for name in fitting if self.search.reaches(steps[name], "value")), None)
            end = list(steps)[-1]
            last = floor(steps[end])
            yield Lever(kind, (), now, least, found, None if found is None else self.search.expected(steps[found]), end,
                        last.seconds, last.bottleneck)  # fmt: skip

    def _buffers(self) -> Iterator[Lever]:
        step, overlap = self.step, self.step.plan.overlap
        if not any(slot.buffers != UNLIMITED for slot in step.slots):
            return
        now = 1 if overlap.kind == "none" else overlap.buffers
        bound = floor(step)
        least = now if self.search.reaches(step, "peak") else None

        def with_buffers(count: int) -> Step:
            return compile_step(step.topology, replace(step.plan, overlap=replace(overlap, kind="buffers",
                                                                                  buffers=count)))  # fmt: skip

        found, seconds = None, None
        if least is not None and self.search.reaches(with_buffers(UNLIMITED), "value"):
            for count in range(now + 1, DEEPEST + 1):
                variant = with_buffers(count)
                if missing(variant):
                    break
                if self.search.reaches(variant, "value"):
                    found, seconds = count, self.search.expected(variant)
                    break
        text = "none" if overlap.kind == "none" else now
        yield Lever("buffers", (), text, least and text, found, seconds, "full", bound.seconds, bound.bottleneck)


def _with_formats(step: Step, weights: str, kv: str) -> Step:
    """The step with other formats of weights and KV."""
    model, workload, placement, _, _ = step.plan.origin
    plan = plan_model(model, step.topology, workload, placement, weights=weights, kv=kv, overlap=step.plan.overlap)
    return compile_step(step.topology, plan)


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


def _smaller_kv(now: str) -> list[str]:
    """Usual KV formats of fewer bytes than the present one, the most bytes first."""
    if now not in KV_FORMATS:
        return []
    sizes = {name: KV_FORMATS[name].row_bytes(256) for name in KV}
    return sorted((name for name in KV if sizes[name] < KV_FORMATS[now].row_bytes(256)), key=lambda name: -sizes[name])
