"""A measured time as a sum: load floor, order, sustained, contention, hand-overs, unexplained.

Each term is the difference of two times that stand for themselves, so that the terms add up to the measured one
whatever they are; none is cut off at zero. On the step without latencies and given times ("bare"):

    load floor    max over resources of least load / peak rate               floor
    order         the floor with the order of the tasks, less that           floor
    sustained     the same at expected loads and sustained rates, less that  schedule
    contention    the expected time, less that                               schedule
    hand-overs    the expected time with latencies and given times, less it  estimate where a time is given
    unexplained   the measured time, less that                               measured
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

from offload.bounds import floor, load_seconds
from offload.capacity import again
from offload.compiler import compile_step
from offload.measured import ABOVE, EXPECTED, ROUNDING, causes_of, verdict_of
from offload.plan import Plan, Request
from offload.prompts import chunks_of, in_chunks
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Topology
from offload.uncounted import uncounted

NAMES = ("load floor", "order", "sustained", "contention", "hand-overs", "unexplained")
GRADES = ("floor", "floor", "schedule", "schedule", "schedule", "measured")
BELOW_ZERO = {  # what a negative term means
    "order": "the chain through a token is shorter than the load of the busiest resource",
    "sustained": "expected loads are below the least ones, or sustained rates above peak ones: an input is wrong",
    "contention": "the schedule found is shorter than the chain at sustained rates",
    "hand-overs": "the schedule that was found with latencies is shorter than the one without: neither search is exact",
    "unexplained": "it ran faster than the expected time: sustained rates in the server's file are low, or less moved",
}
WITHIN = "it ran faster than the middle of the expected times, and not than all of them"  # unexplained, as expected


@dataclass(frozen=True, slots=True)
class Term:
    """One summand. until : the time that all up to it add up to [s]; seconds : its own part; share : of the measured.

    grade : what `until` is: "floor", "schedule", "estimate" or "measured". why : what is said of one below zero.
    """

    name: str
    until: float
    seconds: float
    share: float
    grade: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A measured time [s] of a step, or of a whole prompt, as a sum of terms, and how it stands.

    of : "step" (one of many back to back), "pass" (one alone, from empty buffers), "prompt" (all its chunks) or
    "request" (a prompt and all decode steps). floor :
    with least latencies and given times, None where nothing is proved; binding : what gives it. low, expected, high :
    the expected time and its ends; slow : everything one after another at the slow ends of the sustained rates.
    verdict, causes : as of `measured`. uncounted : parts without a rate, by which much of it goes: what they take is
    among what is not explained.
    """

    of: str
    measured: float
    terms: tuple[Term, ...]
    floor: float | None
    binding: tuple[str, ...]
    low: float
    expected: float
    high: float
    slow: float
    verdict: str
    causes: tuple[str, ...]
    uncounted: tuple[str, ...] = ()

    @property
    def contradicts(self) -> bool:
        """Whether the measured time is below the floor, by more than what a figure's last digits leave open."""
        return self.verdict == ABOVE

    @property
    def largest(self) -> Term:
        """The longest term after the load floor."""
        return max(self.terms[1:], key=lambda term: term.seconds)


@dataclass(frozen=True, slots=True)
class Passes:
    """What was timed, as compiled steps: one of many back to back, one alone, or the passes of a request in turn.

    counts : how often each comes; of a request the last is its decode step, at the mean context.
    """

    of: str
    steps: tuple[Step, ...]
    counts: tuple[int, ...] = (1,)

    def alone(self, number: int) -> bool:
        """Whether a pass starts from empty buffers."""
        return self.of != "step" and number == 0

    def bare(self) -> Passes:
        """The same without latencies and given times."""
        return replace(self, steps=tuple(_bare(step) for step in self.steps))


def passes_of(topology: Topology, plan: Plan, shortest: int | None = None, sure: int | None = None) -> Passes:
    """The passes that a plan's measured time is of. Raises as `compile_step` does.

    shortest : of a decode step that stands for the mean of several contexts, the first of them: no window then counts
    more than on their mean. sure : the context of a decode step instead of the plan's.
    """
    step = compile_step(topology, plan)
    if plan.request is not None:
        return _of_request(step)
    if plan.workload.get("phase") == "prefill":
        return Passes("pass", (step,))
    if (shortest is not None or sure is not None) and plan.origin is not None:
        asked = replace(plan.origin[1], shortest=shortest)
        step = again(step, workload=asked if sure is None else replace(asked, context=min(sure, asked.context)))
    return Passes("step", (step,))


def _of_request(step: Step) -> Passes:
    """The passes over a prompt, and the decode steps at their mean context, if there are some."""
    asked = cast(Request, step.plan.request)
    if in_chunks(step):
        chunks = tuple(chunks_of(step))
        return Passes("prompt", chunks, (1,) * len(chunks))
    plans = [asked.prefill] if asked.chunk is None else [asked.chunk(number) for number in range(asked.chunks)]
    prompt = [compile_step(step.topology, replace(one, data_cycle=True, overlap=step.plan.overlap)) for one in plans]
    if not asked.steps:
        return Passes("prompt", tuple(prompt), (1,) * len(prompt))
    decode = compile_step(step.topology, replace(cast(Plan, asked.least), overlap=step.plan.overlap))
    return Passes("request", (*prompt, decode), (*(1 for _ in prompt), asked.steps))


def _bare(step: Step) -> Step:
    """A step without latencies, and without what is given in seconds."""
    rows = tuple(
        replace(row, latency=(0.0, 0.0),
                uses=tuple(use for use in row.uses if step.resources[use.resource].unit != "s"))
        for row in step.rows
    )
    return replace(step, rows=rows, shared={})


def busy(passes: Passes, grade: str) -> Mapping[str, float]:
    """Seconds that each resource needs for all passes at one grade, as of `load_seconds`."""
    total: dict[str, float] = {}
    for number, (step, count) in enumerate(zip(passes.steps, passes.counts, strict=True)):
        for name, seconds in load_seconds(step, grade, alone=passes.alone(number)).resource_seconds.items():
            total[name] = total.get(name, 0.0) + count * seconds
    return total


def least(passes: Passes, grade: str) -> tuple[float, tuple[str, ...]]:
    """The floor of all passes in their order at one grade [s], and what binds it."""
    found = [floor(step, grade) for step in passes.steps]
    if passes.of == "step":
        return found[0].seconds, found[0].bottleneck
    times = busy(passes, grade)
    load = max(times.values(), default=0.0)
    best = load, tuple(name for name, time in times.items() if 0 < load * (1 - 1e-12) <= time)
    chains = [one.cold_seconds if passes.alone(number) else one.cycle_seconds for number, one in enumerate(found)]
    # A chunk needs what the one before it kept, layer by layer: of a prompt the longest chunk alone is sure.
    prompt = chains[:-1] if passes.of == "request" else chains
    longest = max(range(len(prompt)), key=lambda number: prompt[number])
    chain = prompt[longest] + (passes.counts[-1] * chains[-1] if passes.of == "request" else 0.0)
    if chain > best[0]:
        return chain, found[-1 if chain > 2 * prompt[longest] else longest].bottleneck  # of what takes longer
    return best


def expected(passes: Passes) -> tuple[float, float, float]:
    """The expected time of all passes and its ends: low, value, high [s]."""
    low = value = high = 0.0
    for number, (step, count) in enumerate(zip(passes.steps, passes.counts, strict=True)):
        found = schedule(step)
        ends = (found.low, found.seconds, found.high)
        if passes.alone(number):
            ends = (found.cold_low, found.cold_seconds, found.cold_high)
        low, value, high = low + count * ends[0], value + count * ends[1], high + count * ends[2]
    return low, value, high


def waterfall(passes: Passes, measured: float, least_passes: Passes | None = None, prompt: bool = False) -> Waterfall:
    """The measured time [s] of passes as a sum of terms.

    least_passes : those that floors count, where they count less than the expected times do. prompt : whether the time
    is of a prompt's tokens.
    """
    sure = least_passes or passes
    bare, bare_sure = passes.bare(), sure.bare()
    low, value, high = expected(passes)
    until = (
        max(busy(bare_sure, "peak").values(), default=0.0),
        least(bare_sure, "peak")[0],
        least(bare, "value")[0],
        expected(bare)[1],
        value,
        measured,
    )
    bound, binding = least(sure, "peak")
    slow = sum(count * _serial(step, passes.alone(number))
               for number, (step, count) in enumerate(zip(passes.steps, passes.counts, strict=True)))
    verdict = verdict_of(measured, ROUNDING, bound if bound > 0 else None, low, high, slow)
    terms = terms_of(until, measured, _has_given(passes))
    if verdict == EXPECTED and terms[-1].seconds < 0:
        terms = (*terms[:-1], replace(terms[-1], why=WITHIN))
    return Waterfall(
        passes.of, measured, terms, bound if bound > 0 else None,
        binding if bound > 0 else (), low, value, high, slow, verdict, causes_of(verdict, passes.steps[-1], prompt),
        tuple(dict.fromkeys(name for step in passes.steps for name in uncounted(step))),
    )  # fmt: skip


def terms_of(until: Sequence[float], measured: float, given: bool = False) -> tuple[Term, ...]:
    """The terms between the times that they lead to, each time less the one before it, exactly.

    given : whether times that are stated instead of counted are among the hand-overs.
    """
    terms, before = [], Fraction(0)
    for name, grade, time in zip(NAMES, GRADES, until, strict=True):
        seconds = float(Fraction(time) - before)
        grade = "estimate" if given and name == "hand-overs" else grade
        terms.append(Term(name, time, seconds, seconds / measured, grade, BELOW_ZERO[name] if seconds < 0 else ""))
        before = Fraction(time)
    return tuple(terms)


def _serial(step: Step, alone: bool) -> float:
    found = serial(step, "low")
    return float(found.cold_seconds if alone else found.seconds)


def _has_given(passes: Passes) -> bool:
    return any(resource.unit == "s" for step in passes.steps for resource in step.resources.values())

