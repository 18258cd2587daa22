"""The times that llama.cpp and ollama print: of a whole run, of a server's task, of a request.

Two kinds that look alike:

* `llama_print_timings`, `llama_perf_context_print`, `common_perf_print`: sums of a context. Sampling is not in them,
  "eval" is every run of the model over one token: N runs are N steps and N tokens.
* a server's task (`print_timing`, `print_timings`) and `ollama run --verbose`: the clock of "eval" starts when the
  first token is out, so that N tokens are N - 1 steps; sampling and waiting for other slots are in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from offload.readers.engines.llama_sections import Section, Slot
from offload.readers.engines.llama_words import NUMBER, lapse, number, some, whole
from offload.readers.engines.run import Timed, Timing

TIME = re.compile(
    rf"\b(prompt eval|generation eval|eval|load|sampling|sample|total) time\s*=\s*({NUMBER}) ms"
    r"(?:\s*/\s*(\d+) (?:tokens|runs|token|run))?"
)
SUMS = re.compile(r"llama_print_timings|llama_perf_\w+|common_perf_print|llama_perf")
TASK = re.compile(r"\bid\s+(\d+) \| task (-?\d+)|\b(?:id_slot|slot_id)\"?[=:]\s*(\d+)")
DRAFT = re.compile(rf"draft acceptance(?: rate)?\s*=\s*({NUMBER})\s*\(\s*(\d+) accepted\s*/\s*(\d+) generated")
RATES = re.compile(rf"\[ Prompt:\s*({NUMBER}) t/s \| Generation:\s*({NUMBER}) t/s \]")
VERBOSE = re.compile(r"^\s*(total|load|prompt eval|eval) (duration|count):\s+(\S+)")
PROMPT = re.compile(r"\b(?:n_prompt_tokens|task\.n_tokens|num_prompt_tokens)\"?\s*[=:]\s*(\d+)")
KEPT = re.compile(r"memory_seq_rm \[(\d+), |kv cache rm \[(\d+), |kv cache rm.*?\bp0=(\d+)")
STARTS = re.compile(r"launch_slot\w*:.*processing task|slot is processing task|processing task, is_child")
STOPS = re.compile(r"stop processing|slot released|stopped processing")
HELD = re.compile(r"stop processing: (?:n_tokens|n_past) = (\d+), truncated = 0")
FIRST_OUT = "A server's 'eval time' starts when the first token is out: N tokens are N - 1 steps of the model."
ONE_TURN = "The sums are of one prompt and its answer (several turns of a chat would be summed as one)."
ONE_AT_A_TIME = "One sequence ran at a time: the log names no more."
OF_TIMES = frozenset((FIRST_OUT, ONE_TURN, ONE_AT_A_TIME))


@dataclass(slots=True)
class Clock:
    """The state between the lines of a log's timings."""

    slots: dict[str, Slot] = field(default_factory=dict)
    slot: str = ""
    prompt: int | None = None
    verbose: dict[str, tuple[str, int]] = field(default_factory=dict)

    def at(self, text: str) -> Slot:
        """The slot that a line is of; a line without one goes on with the last."""
        found = TASK.search(text)
        if found is not None:
            self.slot = found[1] or found[3]
        return self.slots.setdefault(self.slot, Slot())

    def start(self, text: str) -> None:
        """A task starts on a slot: those that are running run together with it."""
        found = TASK.search(text)
        if found is None:
            return
        self.slot = found[1] or found[3]
        running = [slot for name, slot in self.slots.items()
                   if slot.alone is not None and slot.held is None and name != self.slot]
        for slot in running:
            slot.alone = False
        self.slots[self.slot] = Slot(alone=not running)

    def stop(self, text: str) -> Slot | None:
        """A slot's task is over; the slot that it ran in. Where no times were told yet they follow, and it is kept."""
        found = TASK.search(text)
        if found is None:
            return None
        name, held = found[1] or found[3], HELD.search(text)
        slot = self.slots.get(name)
        if slot is not None and slot.prefill is None and slot.decode is None and slot.held is None:
            slot.held = 0 if held is None else whole(held[1]) or 0
            return None
        return self.slots.pop(name, None)

    def told(self, slot: Slot) -> None:
        """All times of a task are told: where it was over before, nothing more is of it."""
        if slot.held is not None:
            self.slots = {name: one for name, one in self.slots.items() if one is not slot}


def read_server(section: Section | None, clock: Clock, text: str) -> None:
    """What a server says of its tasks before and after it prints their times."""
    if STARTS.search(text):
        clock.start(text)
    elif STOPS.search(text):
        slot, held = clock.stop(text), HELD.search(text)
        if slot is not None and held is not None and section is not None:
            _behind(section, slot, whole(held[1]) or 0)
    elif TASK.search(text):
        slot = clock.at(text)
        prompt, kept = PROMPT.search(text), KEPT.search(text)
        if prompt is not None and "progress" not in text:
            slot.prompt = some(prompt[1])
        if kept is not None:
            slot.cached = whole(next(one for one in kept.groups() if one is not None))


def _behind(section: Section, slot: Slot, held: int) -> None:
    """The positions before a task's prompt and before its answer, from those held at its end."""
    if slot.decode is None or slot.prefill is None:
        return
    prefill, decode = section.timings[slot.prefill], section.timings[slot.decode]
    before = held - (_whole(decode.tokens) or 0)
    if decode.context is None and before > 0:
        section.timings[slot.decode] = replace(decode, context=before)
        if slot.request is not None:
            section.timings[slot.request] = replace(section.timings[slot.request], prompt=before)
    if prefill.context is None and before - (prefill.tokens or 0) >= 0:
        section.timings[slot.prefill] = replace(prefill, context=int(before - (prefill.tokens or 0)))


def read_times(section: Section, clock: Clock, text: str, line: int) -> None:
    """A line with times, of any of the forms."""
    for found in TIME.finditer(text):
        milliseconds, tokens = number(found[2]), None if found[3] is None else whole(found[3])
        if not milliseconds:
            continue
        if SUMS.search(text):
            _sum(section, clock, found[1], milliseconds / 1e3, tokens, line)
        elif found[1] in ("load", "sampling", "sample"):
            _load(section, found[1], milliseconds / 1e3, line)
        else:
            slot = clock.at(text)
            _task(section, slot, found[1], milliseconds / 1e3, tokens, line)
            if found[1] == "total":
                if slot.held:
                    _behind(section, slot, slot.held)
                clock.told(slot)


def _load(section: Section, what: str, seconds: float, line: int) -> None:
    if what != "load":
        section.facts.append(("sampling time [s]", seconds, line))
    elif all(timing.phase != "load" for timing in section.timings):
        includes = "the first run of the model (a warm-up or the prompt)"
        section.time(Timing("load", seconds, includes=includes, line=line))


def _sum(section: Section, clock: Clock, what: str, seconds: float, tokens: int | None, line: int) -> None:
    if what in ("load", "sampling", "sample"):
        if what == "load":
            clock.prompt = None
        _load(section, what, seconds, line)
        return
    section.sums = True
    if what == "total":
        section.facts.append(("total time [s]", seconds, line))
    elif tokens and what == "prompt eval":
        clock.prompt = tokens
        section.time(Timing("prefill", seconds, float(tokens), context=0, line=line), None)
    elif tokens:
        if clock.prompt is not None:
            section.assumed.add(ONE_TURN)
        section.time(Timing("decode", seconds, float(tokens), float(tokens), context=clock.prompt, line=line), None)


def _task(section: Section, slot: Slot, what: str, seconds: float, tokens: int | None, line: int) -> None:
    if what == "total":
        done = None if slot.prefill is None else _whole(section.timings[slot.prefill].tokens)
        made = None if tokens is None or done is None or tokens <= done else float(tokens - done)
        timing = Timing("request", seconds, made, prompt=slot.prompt or done, includes="sampling")
        slot.request = section.time(replace(timing, line=line), slot.alone)
    elif not tokens:
        return
    elif what == "prompt eval":
        slot.decode = None
        includes = "sampling of the first token"
        timing = Timing("prefill", seconds, float(tokens), context=slot.cached, includes=includes, line=line)
        slot.prefill = section.time(timing, slot.alone)
    elif tokens > 1:
        section.assumed.add(FIRST_OUT)
        made = float(tokens - 1)
        context = slot.prompt
        if context is None and slot.prefill is not None and slot.cached is not None:
            context = slot.cached + (_whole(section.timings[slot.prefill].tokens) or 0)
        timing = Timing("decode", seconds, made, made, context=context, includes="sampling", line=line)
        slot.decode = section.time(timing, slot.alone)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def read_draft(section: Section, clock: Clock, text: str, line: int) -> None:
    """How many drafted tokens were accepted: the model ran that many times less often than it made tokens."""
    found = DRAFT.search(text)
    if found is None:
        return
    slot, accepted, made = clock.at(text), whole(found[2]), whole(found[3])
    if accepted is None or made is None or accepted > made:
        return
    section.facts += [("draft tokens accepted", accepted, line), ("draft tokens made", made, line)]
    if slot.decode is None:
        return
    timing = section.timings[slot.decode]
    if timing.steps is not None and timing.tokens is not None and accepted < timing.tokens:
        steps, includes = timing.tokens - accepted, "sampling, making the drafts"
        section.timings[slot.decode] = replace(timing, steps=steps, includes=includes)


def read_rates(section: Section, text: str, line: int) -> None:
    """`llama-cli`'s last line since the end of 2025: rates alone."""
    found = RATES.search(text)
    if found is None:
        return
    section.assumed.add("Only the rates of the prompt and of the answer are printed: the times are those of one token.")
    phases: tuple[tuple[Timed, str], ...] = (("prefill", found[1]), ("decode", found[2]))
    for phase, text_ in phases:
        rate = number(text_)
        if rate:
            steps = 1.0 if phase == "decode" else None
            section.time(Timing(phase, 1 / rate, 1.0, steps, sequences=1.0, line=line))


def read_verbose(section: Section, clock: Clock, text: str, line: int) -> bool:
    """`ollama run --verbose`'s lines; whether this was the last of them that says anything."""
    found = VERBOSE.match(text)
    if found is None:
        return False
    clock.verbose[f"{found[1]} {found[2]}"] = (found[3], line)
    if (found[1], found[2]) != ("eval", "duration"):
        return False
    told, clock.verbose = clock.verbose, {}
    if "total duration" not in told and "load duration" not in told:
        return False
    load = lapse(told["load duration"][0]) if "load duration" in told else None
    if load:
        section.time(Timing("load", load, includes="nothing where it was loaded", line=told["load duration"][1]))
    prompt = some(told["prompt eval count"][0]) if "prompt eval count" in told else None
    if prompt is not None and "prompt eval duration" in told:
        seconds, at = lapse(told["prompt eval duration"][0]), told["prompt eval duration"][1]
        if seconds:
            section.assumed.add("None of ollama's prompt was in the KV memory already (its count holds those too).")
            section.time(Timing("prefill", seconds, float(prompt), context=0, line=at), None)
    section.sums = True
    seconds, made = lapse(found[3]), whole(told["eval count"][0]) if "eval count" in told else None
    if seconds and made is not None and made > 1:
        section.assumed.add(FIRST_OUT)
        timing = Timing("decode", seconds, float(made - 1), float(made - 1), context=prompt, line=line)
        section.time(replace(timing, includes="sampling"), None)
    total = lapse(told["total duration"][0]) if "total duration" in told else None
    if total and made:
        timing = Timing("request", total, float(made), prompt=prompt, includes="sampling, loading", line=line)
        section.time(timing, None)
    return True
