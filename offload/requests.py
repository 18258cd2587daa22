"""A whole request: a prompt, then one token after another while the context grows.

Decode steps follow each other by data (a token needs the one before it), and so do prefill and first decode step; what
a step fetches may run ahead into the steps before it. So over the request each resource serves the sum of its loads,
and after a prefill from empty buffers the steps' chains of computes follow each other: the larger of the two is a
floor. Loads and chains are convex in the context (sums and maxima of what grows evenly with it), so n steps take at
least n times the one at their mean context. Expected times grow piecewise evenly: they are summed over pieces whose
middle lies on the line between their ends, found by halving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offload.bounds import floor, load_seconds, longest
from offload.compiler import compile_step
from offload.plan import Plan, Request
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Topology

STRAIGHT = 1e-3  # relative: a middle that is off the line by less is on it
HALVINGS = 4  # of the range of contexts, at most


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a part of a request: floor, the same at sustained rates, expected with its ends, serial."""

    floor: float
    floor_sustained: float
    expected: float
    low: float
    high: float
    serial: float

    def __add__(self, other: Times) -> Times:
        return Times(*(getattr(self, name) + getattr(other, name) for name in Times.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Generation:
    """A request's times [s]. first_context, last_context : of its decode steps; decode is None where it has none.

    total's floors are those of the whole, which may be less than the sums of the parts' (fetches run ahead from one
    part into the other); its other times are sums.
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

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens that all sequences yield, over the expected time of the whole request."""
        return self.tokens / self.total.expected if self.total.expected > 0 else None


def generation(topology: Topology, plan: Plan) -> Generation:
    """The times of the request of a plan that has one. Raises as `compile_step` does."""
    asked: Request = plan.request
    # The overlap may have been changed in the plan alone. The chain of computes of the prefill counts too.
    prefill = compile_step(topology, replace(asked.prefill, data_cycle=True, overlap=plan.overlap))
    batch = plan.workload["batch"]
    alone = schedule(prefill)
    bound, sustained = floor(prefill), floor(prefill, "value")
    first = Times(bound.cold_seconds, sustained.cold_seconds, alone.cold_seconds, alone.cold_low, alone.cold_high,
                  serial(prefill).cold_seconds)
    if not asked.steps:
        prompt = asked.first
        return Generation(prompt, 0, prompt, prompt, first, None, first, batch, bound.rule, bound.bottleneck)
    mean = compile_step(topology, replace(asked.least, overlap=plan.overlap))
    last = asked.first + asked.steps - 1
    floors = [floor(mean), floor(mean, "value")]
    expected, low, high, one_by_one = _summed(
        topology, lambda context: replace(asked.at(context), overlap=plan.overlap), asked.first, last)
    decode = Times(*(asked.steps * one.seconds for one in floors), expected, low, high, one_by_one)
    whole = [_whole(prefill, mean, asked.steps, grade) for grade in ("peak", "value")]
    parts = first + decode
    total = replace(parts, floor=whole[0][0], floor_sustained=whole[1][0])
    return Generation(asked.first - 1, asked.steps, asked.first, last, first, decode, total, batch * (asked.steps + 1),
                      whole[0][1], whole[0][2])


def _whole(prefill: Step, mean: Step, steps: int, grade: str) -> tuple[float, str, tuple[str, ...]]:
    """The floor of the whole request at one grade, the rule that gives it, and what binds."""
    once, each = load_seconds(prefill, grade, alone=True), load_seconds(mean, grade)
    names = dict.fromkeys([*once.resource_seconds, *each.resource_seconds])
    sums = {name: once.resource_seconds.get(name, 0.0) + steps * each.resource_seconds.get(name, 0.0) for name in names}
    load = max(sums.values(), default=0.0)
    first, further = floor(prefill, grade), floor(mean, grade)
    chain = first.cold_seconds + steps * further.cycle_seconds  # all of a prefill comes before its last compute
    if chain > load:
        terms = (*first.chain, *(replace(term, seconds=steps * term.seconds) for term in further.chain))
        return chain, "cycle", longest(terms, sum(term.seconds for term in terms))
    return load, "load", tuple(name for name, seconds in sums.items() if seconds >= load * (1 - 1e-12) and seconds > 0)


def _summed(
    topology: Topology, at: Callable[[int], Plan], first: int, last: int
) -> tuple[float, float, float, float]:
    """Expected, low, high and serial seconds summed over the contexts from first to last."""
    known: dict[int, tuple[float, ...]] = {}

    def times(context: int) -> tuple[float, ...]:
        if context not in known:
            step = compile_step(topology, at(context))
            found = schedule(step)
            known[context] = (found.seconds, found.low, found.high, serial(step).seconds)
        return known[context]

    def piece(start: int, end: int, halvings: int) -> tuple[float, ...]:
        """The sum over start..end, both included."""
        if end - start < 2:
            return tuple(map(sum, zip(*(times(context) for context in range(start, end + 1)), strict=True)))
        middle = (start + end) // 2
        share = (middle - start) / (end - start)
        line = [a + share * (b - a) for a, b in zip(times(start), times(end), strict=True)]
        straight = all(abs(a - b) <= STRAIGHT * a for a, b in zip(times(middle), line, strict=True))
        if straight or not halvings:
            return tuple((end - start + 1) * (a + b) / 2 for a, b in zip(times(start), times(end), strict=True))
        left, right = piece(start, middle, halvings - 1), piece(middle + 1, end, halvings - 1)
        return tuple(a + b for a, b in zip(left, right, strict=True))

    expected, low, high, one_by_one = piece(first, last, HALVINGS)
    return expected, low, high, one_by_one
