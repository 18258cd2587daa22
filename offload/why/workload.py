"""What a timing of a log asks of the model: a decode step at its mean context, a prompt in passes, a whole request.

A decode that made n tokens of each sequence after c positions ran at contexts c + 1 to c + n: the step is one at their
mean, rounded down, so that floors count no more than was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offload.errors import OffloadError
from offload.readers.engines.run import Run, Timing
from offload.units import format_seconds, many
from offload.why.notes import Notes

UBATCH = 512  # llama.cpp's own n_ubatch
WINDOWS = "windows of the server's log"  # timings that are means of what a server prints every few seconds
MANY = ("bench serve", "bench throughput", "progress bar")  # timings of many requests, one after another
COMPARED = ("decode", "prefill", "request")


@dataclass(frozen=True, slots=True)
class Asked:
    """The keys of a plan's `workload`, and the measured time that it is of [s].

    shortest : of a decode step that stands for the mean of several contexts the first of them. sure : the positions
    that surely were held, where the plan's context is no such figure; floors count these.
    """

    keys: dict[str, Any]
    seconds: float
    shortest: int | None = None
    sure: int | None = None


def asked_of(run: Run, timing: Timing, notes: Notes, batch: int | None = None) -> Asked:
    """What a timing is of. batch : sequences together, where they are said elsewhere.

    Raises OffloadError for a phase that is not compared, and for what a plan cannot do without.
    """
    if timing.phase not in COMPARED:
        raise OffloadError(f"{describe(timing)}: times of {timing.phase} are not compared; a plan of your own is, by "
                           "offload step PLAN --measured TIME.")  # fmt: skip
    sequences = batch or _sequences(run, timing, notes)
    copies = run.replicas.value if run.replicas is not None else 1
    if copies > 1:
        each = sequences if WINDOWS in timing.test or batch else max(sequences // copies, 1)
        notes.assume(f"workload.batch: {each} for one of {copies} replicas, which the plan is of; the others are taken "
                     "to be like it")  # fmt: skip
        sequences = each
    if timing.phase == "prefill":
        return _prefill(run, timing, sequences, notes)
    if timing.phase == "request":
        return _request(timing, sequences)
    return _in_stages(run, _decode(timing, sequences, notes), notes)


def describe(timing: Timing) -> str:
    """A timing in words: its phase, test, and line."""
    test = f" {timing.test}" if timing.test else ""
    return f"{timing.phase}{test} (line {timing.line}: {format_seconds(timing.seconds)})"


def _sequences(run: Run, timing: Timing, notes: Notes) -> int:
    if timing.sequences is not None:
        if timing.sequences != int(timing.sequences):
            notes.assume(f"workload.batch: {timing.sequences:g} sequences on the average, counted as "
                         f"{max(int(timing.sequences), 1)}")
        return max(int(timing.sequences), 1)
    if timing.phase == "decode" and timing.steps and timing.tokens:
        own = max(round(timing.tokens / timing.steps), 1)
        notes.assume(f"workload.batch: {own}, those of this timing; the log does not tell whether others shared its "
                     "steps, which then moved more: --set workload.batch=N")  # fmt: skip
        return own
    if run.batch is not None:
        notes.assume(f"workload.batch: {run.batch.value}, the most sequences at once (line {run.batch.line}); fewer "
                     "may have run: --set workload.batch=N")
        return run.batch.value
    if run.engine.lower().startswith(("llama", "ktransformers", "ollama")):
        notes.assume("workload.batch: 1 sequence, as this engine runs unless it is told otherwise")
        return 1
    raise OffloadError(f"{describe(timing)}: the log does not tell how many sequences ran together. "
                       "Say --set workload.batch=N.")


def _decode(timing: Timing, batch: int, notes: Notes) -> Asked:
    steps = timing.steps or (timing.tokens / (timing.sequences or batch) if timing.tokens else None)
    if not steps or steps <= 0:
        raise OffloadError(f"{describe(timing)}: the log does not tell how many tokens were made in that time.")
    before = timing.context if timing.context is not None else timing.prompt
    shortest, sure = None, None
    if before is None:
        notes.assume("workload.context: 1 position, as the log does not tell how many were held: floors are right, and "
                     "expected times count too little of the KV cache; --set workload.context=N says it")
        context = 1
    elif WINDOWS in timing.test:
        context, sure = max(before, 1), 1
        notes.assume(f"workload.context: {context:,} positions, what a sequence held of the KV memory when the server "
                     f"printed its line ({timing.line}); floors count 1, as that line tells shares of blocks")
    else:
        shortest = before + 1
        context = max(int(before + (steps + 1) / 2), 1)
        if steps > 1:
            mean = f"{context}, the mean of {shortest:,} to {before + int(steps):,}, rounded down"
            notes.took("workload.context", mean, timing.line)
    return Asked({"phase": "decode", "batch": batch, "context": context}, timing.seconds / steps, shortest, sure)


def _in_stages(run: Run, asked: Asked, notes: Notes) -> Asked:
    """A decode step of stages that each work on a part of the sequences: the step of one part, as many in flight."""
    stages = run.pipeline.value if run.pipeline is not None else 1
    part = asked.keys["batch"] // stages
    if stages == 1 or part < 1:
        return asked
    notes.assume(f"workload.in_flight: {stages} steps of {many(part, 'sequence')}, as each stage works on another part "
                 "of them")  # fmt: skip
    keys = asked.keys | {"batch": part, "in_flight": stages}
    return replace(asked, keys=keys, seconds=asked.seconds / stages)


def _prefill(run: Run, timing: Timing, batch: int, notes: Notes) -> Asked:
    told = timing.tokens / batch if timing.tokens else timing.prompt
    if not told or told < 1:
        raise OffloadError(f"{describe(timing)}: the log does not tell how many tokens the prompt had.")
    prompt = int(told)
    keys: dict[str, Any] = {"phase": "prefill", "batch": batch, "prompt": prompt}
    if timing.context:
        keys["context"] = timing.context
    chunk = run.chunk.value if run.chunk is not None else None
    if chunk is None and run.engine.lower().startswith(("llama", "ollama")):
        chunk = UBATCH
        if prompt > chunk:
            notes.assume(f"workload.chunk: {UBATCH} tokens at a time, llama.cpp's own n_ubatch")
    if chunk is not None and chunk // batch >= 1 and prompt > chunk // batch:
        keys["chunk"] = chunk // batch
    return Asked(keys, timing.seconds)


def _request(timing: Timing, batch: int) -> Asked:
    if any(one in timing.test for one in MANY):
        raise OffloadError(f"{describe(timing)}: is of many requests one after another, which one plan is not. Take "
                           "the time of a token or of a prompt: --timing N.")  # fmt: skip
    made = int(timing.tokens / batch) if timing.tokens else 0
    if timing.prompt is None or made < 1:
        raise OffloadError(f"{describe(timing)}: a whole request is compared where the log tells its prompt's tokens "
                           f"and those that were made; here are {many(timing.prompt or 0, 'token')} and {made}.")
    keys = {"phase": "generate", "batch": batch, "prompt": timing.prompt, "generate": made}
    return Asked(keys, timing.seconds)
