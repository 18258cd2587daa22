"""A prompt in chunks as one thing that is asked for: the time to its first token, at the rates of a step.

The same sums as of a request (`requests`): floors of each resource's loads over all chunks, or the longest chain of one
chunk; expected times of the chunks one after another, the first from empty buffers. Other steps stand for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.designs.chunks import MOST_CHUNKS
from offload.errors import PlanError
from offload.plan import Request
from offload.schedules import schedule, serial
from offload.step import Step


@dataclass(frozen=True, slots=True)
class Bound:
    """A floor [s] and what binds it."""

    seconds: float
    bottleneck: tuple[str, ...]


def in_chunks(step: Step) -> int:
    """Of how many chunks a prompt is that a step is one of; 0 where the step stands for itself."""
    asked = step.plan.request
    return asked.chunks if asked is not None and asked.chunk is not None and not asked.steps else 0


def chunks_of(step: Step) -> list[Step]:
    """The steps of all chunks of a prompt, with the rates that a step has. Raises PlanError as `generation` does."""
    asked = cast(Request, step.plan.request)
    if "chunks" not in step.shared:
        if asked.chunks > MOST_CHUNKS:
            raise PlanError(f"workload.chunk: the prompt comes in {asked.chunks:,} chunks, and each is laid out by "
                            f"itself: {MOST_CHUNKS:,} at most. Take larger chunks.")
        step.shared["chunks"] = [
            compile_step(step.topology, replace(asked.pass_of(number), data_cycle=True, overlap=step.plan.overlap))
            for number in range(asked.chunks)
        ]
    return [replace(one, resources={name: step.resources.get(name, resource)
                                    for name, resource in one.resources.items()})
            for one in step.shared["chunks"]]  # fmt: skip


def with_all_resources(step: Step) -> Step:
    """A chunk with the resources of the others too, which only the head may use."""
    if not in_chunks(step):
        return step
    found = {name: resource for one in chunks_of(step) for name, resource in one.resources.items()}
    return replace(step, resources={**found, **step.resources})


def tokens_of(step: Step) -> float:
    """What a step yields, or all chunks of a prompt: positions of all sequences."""
    if not in_chunks(step):
        return float(step.plan.tokens)
    return float(sum(one.plan.tokens for one in chunks_of(step)))


def busy(step: Step, grade: str) -> Mapping[str, float]:
    """How long each resource is busy in a step, or in all chunks of a prompt [s]."""
    if not in_chunks(step):
        return load_seconds(step, grade).resource_seconds
    total = dict.fromkeys(step.resources, 0.0) if grade != "peak" else {}
    for one in _busy(step, grade):
        for name, seconds in one.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def _busy(step: Step, grade: str) -> list[Mapping[str, float]]:
    """The same of each chunk, the first from empty buffers."""
    return [load_seconds(one, grade, alone=not number).resource_seconds for number, one in enumerate(chunks_of(step))]


def least(step: Step, grade: str = "peak") -> Bound:
    """The floor of a step back to back, or of a whole prompt in chunks."""
    if not in_chunks(step):
        found = floor(step, grade)
        return Bound(found.seconds, found.bottleneck)
    times = busy(step, grade)
    load = max(times.values(), default=0.0) if in_chunks(step) > 1 else 0.0
    longest = Bound(load, tuple(name for name, time in times.items() if time >= load * (1 - 1e-12) and time > 0))
    for number, one in enumerate(chunks_of(step)):
        if serial(one, grade).cold_seconds < load:
            continue  # no chain is longer than all tasks one after another
        found = floor(one, grade)
        seconds = found.cycle_seconds if number else found.cold_seconds
        if seconds > longest.seconds:
            longest = Bound(seconds, found.bottleneck)
    return longest


def expected(step: Step) -> float:
    """The expected time of a step back to back, or of a whole prompt in chunks [s]."""
    if not in_chunks(step):
        return schedule(step, ends=False).seconds
    found = [schedule(one, ends=False) for one in chunks_of(step)]
    return sum([one.cold_seconds if not number else one.seconds for number, one in enumerate(found)], 0.0)
