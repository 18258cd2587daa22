"""A whole request: a prompt, then one token after another while the context grows.

Decode steps follow each other by data (a token needs the one before it), and so do prefill and first decode step; what
a step fetches may run ahead into the steps before it. So over the request each resource serves the sum of its loads,
and after a prefill from empty buffers the steps' chains of computes follow each other: the larger of the two is a
floor. Loads and chains are convex in the context (sums and maxima of what grows evenly with it), so n steps take at
least n times the one at their mean context. Expected times grow piecewise evenly: they are summed over pieces whose
middle lies on the line between their ends, found by halving.

A prompt may come in chunks, passes one after another. A chunk needs what the one before it kept, layer by layer, so
that layers on several processors may work on several chunks: over the whole prompt floors are the sums of the loads,
expected times the sums of the passes, as engines run them one by one.

With speculation tokens come in rounds. The fewest that can yield them all are in floors, each with no more before it
than there surely is; expected times weigh a round at each context with the chance that one starts there
(`offload.rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from offload.bounds import Term, floor, load_seconds, longest
from offload.compiler import compile_step
from offload.designs.chunks import MOST_CHUNKS
from offload.errors import PlanError
from offload.plan import Compute, Plan, Request, Rounds
from offload.rounds import Weights, start_chances
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Topology

STRAIGHT = 1e-3  # relative: a middle that is off the line by less is on it
GRADES = ("peak", "value")
HALVINGS = 4  # of the range of contexts, at most


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a part of a request: floor, the same at sustained rates, expected with its ends, serial.

    serial_slow : serial at the slow ends of the sustained rates.
    """

    floor: float
    floor_sustained: float
    expected: float
    low: float
    high: float
    serial: float
    serial_slow: float

    def __add__(self, other: Times) -> Times:
        return Times(*(getattr(self, name) + getattr(other, name) for name in Times.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Regime:
    """Chunks in a row that one kind of part binds at sustained rates.

    first, last : of the chunks, from 1. start, end : the positions of each sequence that they add, from 1. kind :
    "compute", "streaming" (a link or a drive) or "memory"; resources : those that bind the longest of them. seconds :
    expected, of all of them [s].
    """

    first: int
    last: int
    start: int
    end: int
    kind: str
    resources: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Prefill:
    """All passes of a prompt: their times, the seconds on each resource by grade, floors by grade, what binds them."""

    times: Times
    loads: dict[str, dict[str, float]]
    floors: dict[str, float]
    rule: str
    bottleneck: tuple[str, ...]
    chain: tuple[Term, ...]
    regimes: tuple[Regime, ...]
    tokens: float


@dataclass(frozen=True, slots=True)
class Generation:
    """A request's times [s]. first_context, last_context : of its decode steps; decode is None where it has none.

    total's floors are those of the whole, which may be less than the sums of the parts' (fetches run ahead from one
    part into the other); its other times are sums. chunks : passes of the prompt; regimes : of them, where they are
    several. prompt_tokens : positions of all sequences that the prefill adds. rounds, least_rounds : with speculation,
    those that yield the `steps` tokens after the first, on average and at least; None without, where each is a step of
    its own. drafted : the draft model's passes over the prompt. without_speculation : the whole, had it none.
    """

    prompt: int
    steps: int
    first_context: int
    last_context: int
    prefill: Times
    decode: Times | None
    total: Times
    tokens: float
    rule: str
    bottleneck: tuple[str, ...]
    chunks: int = 1
    regimes: tuple[Regime, ...] = ()
    prompt_tokens: float = 0
    rounds: float | None = None
    least_rounds: int | None = None
    drafted: Times | None = None
    without_speculation: Times | None = None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Positions of the prompt, of all sequences, over the expected time of the prefill."""
        return self.prompt_tokens / self.prefill.expected if self.prefill.expected > 0 else None

    @property
    def time_per_token(self) -> float | None:
        """Mean expected time of decoding for each token of a sequence after its first [s]; None where there is none."""
        return None if self.decode is None else self.decode.expected / self.steps

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens that all sequences yield, over the expected time of the whole request."""
        return self.tokens / self.total.expected if self.total.expected > 0 else None


def generation(topology: Topology, plan: Plan) -> Generation:
    """The times of the request of a plan that has one. Raises as `compile_step` does."""
    asked = cast(Request, plan.request)
    first = _prefill(topology, plan)
    batch = plan.workload["batch"]
    known: dict[str, Any] = {"chunks": asked.chunks, "regimes": first.regimes, "prompt_tokens": first.tokens}
    if asked.rounds is not None:
        return _in_rounds(topology, plan, first, known)
    if not asked.steps:
        prompt = asked.first
        return Generation(prompt, 0, prompt, prompt, first.times, None, first.times, batch, first.rule,
                          first.bottleneck, **known)
    least, at = cast(Plan, asked.least), cast(Callable[[int], Plan], asked.at)  # as there are steps
    mean = compile_step(topology, replace(least, overlap=plan.overlap))
    last = asked.first + asked.steps - 1
    floors = [floor(mean), floor(mean, "value")]
    times = _summed(
        topology, lambda context: replace(at(context), overlap=plan.overlap), asked.first, last)
    decode = Times(*(asked.steps * one.seconds for one in floors), *times)
    whole = [_whole((first,), ((asked.steps, mean),), grade) for grade in GRADES]
    parts = first.times + decode
    total = replace(parts, floor=whole[0][0], floor_sustained=whole[1][0])
    return Generation(asked.first - 1, asked.steps, asked.first, last, first.times, decode, total,
                      batch * (asked.steps + 1), whole[0][1], whole[0][2], **known)


def _in_rounds(topology: Topology, plan: Plan, first: _Prefill, known: Mapping[str, Any]) -> Generation:
    """The times of a request whose tokens come in rounds of speculation. first, known : of its prompt."""
    asked = cast(Request, plan.request)
    rounds, at = cast(Rounds, asked.rounds), cast(Callable[[int], Plan], asked.at)
    plans = [(rounds.count, asked.least), (1, rounds.last)]
    steps = [(count, compile_step(topology, replace(one, overlap=plan.overlap))) for count, one in plans if one]
    prompts = [first, *([_prefill(topology, replace(plan, request=rounds.drafted))] if rounds.drafted else [])]
    last = asked.first + asked.steps - 1
    chances = start_chances(asked.steps, rounds.accept, rounds.most - 1)
    sums = _summed(topology, lambda context: replace(at(context), overlap=plan.overlap), asked.first, last,
                   Weights(chances))  # fmt: skip
    decode = Times(*(sum(count * floor(step, grade).seconds for count, step in steps) for grade in GRADES), *sums)
    whole = [_whole(prompts, steps, grade) for grade in GRADES]
    parts = first.times + decode if len(prompts) == 1 else first.times + prompts[1].times + decode
    total = replace(parts, floor=whole[0][0], floor_sustained=whole[1][0])
    return Generation(asked.first - 1, asked.steps, asked.first, last, first.times, decode, total,
                      plan.workload["batch"] * (asked.steps + 1), whole[0][1], whole[0][2], **known,
                      rounds=sum(chances), least_rounds=sum(count for count, _ in steps),
                      drafted=prompts[1].times if len(prompts) > 1 else None)


def _prefill(topology: Topology, plan: Plan) -> _Prefill:
    """All passes of a request's prompt, the first from empty buffers."""
    asked = cast(Request, plan.request)
    if asked.chunks > MOST_CHUNKS:
        raise PlanError(f"workload.chunk: the prompt comes in {asked.chunks:,} chunks, and each is laid out by itself: "
                        f"{MOST_CHUNKS:,} at most. Take larger chunks.")
    loads: dict[str, dict[str, float]] = {grade: {} for grade in GRADES}
    floors, rule = dict.fromkeys(GRADES, 0.0), "load"
    chain: tuple[Term, ...] = ()
    terms: tuple[str, ...] = ()
    regimes: list[Regime] = []
    totals, tokens = Times(*[0.0] * 7), 0.0
    shared: dict[object, Any] = {}  # chunks have the same tasks
    for number in range(asked.chunks):
        one = asked.pass_of(number)
        # The overlap may have been changed in the plan alone. The chain of computes of a pass counts too.
        step = compile_step(topology, replace(one, data_cycle=True, overlap=plan.overlap))
        step = replace(step, shared=shared)
        found, serially, slow = schedule(step), serial(step), serial(step, "low")
        for grade in GRADES:
            bound = floor(step, grade)
            seconds = load_seconds(step, grade, alone=not number).resource_seconds
            for name, time in seconds.items():
                loads[grade][name] = loads[grade].get(name, 0.0) + time
            alone = bound.cold_seconds if not number else bound.cycle_seconds
            if alone > floors[grade]:
                floors[grade] = alone
                if grade == GRADES[0]:
                    chain, rule, terms = bound.chain, bound.rule, bound.bottleneck
        if number:
            times = Times(0.0, 0.0, found.seconds, found.low, found.high, serially.seconds, slow.seconds)
        else:
            times = Times(0.0, 0.0, found.cold_seconds, found.cold_low, found.cold_high, serially.cold_seconds,
                          slow.cold_seconds)
        totals += times
        tokens += one.tokens
        if asked.chunk is not None:
            _tell(regimes, topology, number + 1, one, load_seconds(step, "value").resource_seconds, times.expected)
    if asked.chunks > 1:
        for grade in GRADES:
            if (load := max(loads[grade].values(), default=0.0)) >= floors[grade]:
                floors[grade] = load
                if grade == GRADES[0]:
                    rule, terms = "load", _busiest(loads[grade])
    totals = replace(totals, floor=floors["peak"], floor_sustained=floors["value"])
    return _Prefill(totals, loads, floors, rule, terms, chain, tuple(regimes), tokens)


def _busiest(loads: Mapping[str, float]) -> tuple[str, ...]:
    """The resources that are busy for longest; several where they tie."""
    load = max(loads.values(), default=0.0)
    return tuple(name for name, seconds in loads.items() if seconds >= load * (1 - 1e-12) and seconds > 0)


def _tell(
    regimes: list[Regime], topology: Topology, number: int, chunk: Plan, loads: Mapping[str, float], seconds: float
) -> None:
    """Add a chunk to the regimes: to the last one, where it is of the same kind on the same resources."""
    binding = _busiest(loads)
    own = {topology.memory_of(name) for block in chunk.blocks for task in block.tasks if isinstance(task, Compute)
           for name in task.ranks or (task.processor,)}  # fmt: skip
    kinds = {_kind(topology, name, own) for name in binding}
    kind = "compute" if "compute" in kinds else "streaming" if "streaming" in kinds else "memory"
    before = regimes[-1].end if regimes else int(chunk.workload.get("context", 0))
    end = before + int(chunk.workload["prompt"])
    if regimes and (regimes[-1].kind, regimes[-1].resources) == (kind, binding):
        regimes[-1] = replace(regimes[-1], last=number, end=end, seconds=regimes[-1].seconds + seconds)
    else:
        regimes.append(Regime(number, number, before + 1, end, kind, binding, seconds))


def _kind(topology: Topology, name: str, own: Collection[str]) -> str:
    """What kind of work a resource does: "compute", "streaming" or "memory" (of a processor that runs something)."""
    resource = topology.resources.get(name)
    if resource is None or resource.kind == "processor":
        return "compute"
    return "memory" if resource.kind == "memory" and name.partition(".")[0] in own else "streaming"


def _whole(
    prompts: Sequence[_Prefill], steps: Sequence[tuple[int, Step]], grade: str
) -> tuple[float, str, tuple[str, ...]]:
    """The floor of the whole request at one grade, the rule that gives it, and what binds.

    prompts : passes over the prompt of each model, at the same time or not. steps : with how often each comes.
    """
    sums: dict[str, float] = {}
    for count, loads in [*((1, one.loads[grade]) for one in prompts),
                         *((count, load_seconds(step, grade).resource_seconds) for count, step in steps)]:
        for name, seconds in loads.items():
            sums[name] = sums.get(name, 0.0) + count * seconds
    load = max(sums.values(), default=0.0)
    further = [(count, floor(step, grade)) for count, step in steps]
    longer = max(prompts, key=lambda one: one.floors[grade])
    # All of a prefill comes before its last compute.
    chain = longer.floors[grade] + sum(count * one.cycle_seconds for count, one in further)
    if chain > load:
        terms = (*longer.chain, *(replace(term, seconds=count * term.seconds) for count, one in further
                                  for term in one.chain))
        return chain, "cycle", longest(terms, sum(term.seconds for term in terms))
    return load, "load", _busiest(sums)


def _summed(
    topology: Topology, at: Callable[[int], Plan], first: int, last: int, weights: Weights | None = None
) -> tuple[float, ...]:
    """Expected, low, high, serial and slowest serial seconds summed over the contexts from first to last, each by its
    weight."""
    known: dict[int, tuple[float, ...]] = {}
    shared: dict[object, Any] = {}  # steps at other contexts have the same tasks

    def times(context: int) -> tuple[float, ...]:
        if context not in known:
            step = replace(compile_step(topology, at(context)), shared=shared)
            found = schedule(step)
            known[context] = (found.seconds, found.low, found.high, serial(step).seconds, serial(step, "low").seconds)
        return known[context]

    def ends(start: int, end: int) -> tuple[float, float]:
        if weights is not None:
            return weights.ends(start - first, end - first)
        return (1.0, 0.0) if start == end else ((end - start + 1) / 2,) * 2

    def piece(start: int, end: int, halvings: int) -> tuple[float, ...]:
        """The sum over start..end, both included."""
        if end - start < 2:
            each = [ends(context, context)[0] for context in range(start, end + 1)]
            found = [times(context) for context in range(start, end + 1)]
            return tuple(sum(w * one for w, one in zip(each, column, strict=True))
                         for column in zip(*found, strict=True))  # fmt: skip
        middle = (start + end) // 2
        share = (middle - start) / (end - start)
        line = [a + share * (b - a) for a, b in zip(times(start), times(end), strict=True)]
        straight = all(abs(a - b) <= STRAIGHT * a for a, b in zip(times(middle), line, strict=True))
        if straight or not halvings:
            of_start, of_end = ends(start, end)
            return tuple(of_start * a + of_end * b for a, b in zip(times(start), times(end), strict=True))
        left, right = piece(start, middle, halvings - 1), piece(middle + 1, end, halvings - 1)
        return tuple(a + b for a, b in zip(left, right, strict=True))

    return piece(first, last, HALVINGS)
