"""A run of tokens in rounds of speculation: after the prompt each round guesses some tokens and checks them.

The prompt yields the first token. The draft model takes in the prompt too. Rounds yield as many tokens as their guesses
are worth, until all are there: in floors each yields the most and the last one guesses no more than is wanted, in
schedules each yields by chance and guesses as many as the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from offload.designs.chunks import chunked
from offload.designs.placement import Workload
from offload.designs.slot_sizes import fetches_kv, with_slots_for
from offload.designs.speculation import KEY, Speculation
from offload.errors import PlanError
from offload.plan import Plan, Request, Rounds
from offload.rounds import MOST_TOKENS, least_starts, start_chances

NOTHING_GUESSED = f"{KEY}: the prompt yields the one token, and nothing is guessed"


def in_rounds(
    workload: Workload, prefill: Plan, passes: dict[str, Any], of: Callable[[Workload], Plan],
    of_draft: Callable[[Workload], Plan] | None,
) -> Plan:
    """The plan of the mean round, with the whole run in `Plan.request`.

    workload : "generate" with speculation, of two tokens or more. prefill, passes : of the prompt. of : from the
    workload of a round to its plan; of_draft : of a pass of the draft model alone, None where nothing is run to guess.
    Raises PlanError for a run of more than MOST_TOKENS.
    """
    asked, batch, prompt = cast(Speculation, workload.speculation), workload.batch, workload.prompt
    tokens = workload.generate - 1
    if tokens >= MOST_TOKENS:
        raise PlanError(f"workload.generate: a run with speculation has {MOST_TOKENS:,} tokens at most. Take fewer, or "
                        "ask for a decode step.")
    first, most = prompt + 1, asked.draft + 1
    room = prompt + tokens + asked.draft

    def at(context: int, draft: int = asked.draft, shortest: int | None = None) -> Plan:
        guesses = replace(asked, draft=draft) if draft else None
        return of(Workload("decode", batch, context, room=room, shortest=shortest, speculation=guesses))

    starts = [first + start for start in least_starts(tokens, asked.draft)]
    wanted = tokens % most  # of the last round in floors, where that is not the most
    last = at(starts.pop(), wanted - 1, first) if wanted else None
    least = at(sum(starts) // len(starts), shortest=first) if starts else None
    mean = at(prompt + workload.generate // 2)
    # No round starts later than with one token to come.
    mean = with_slots_for(mean, (prefill, *((at(prompt + tokens),) if fetches_kv(mean) else ())))
    drafted = None
    if of_draft is not None:
        taken_in = Workload("prefill", batch, 0, prompt=prompt, room=room, outputs=0, chunk=workload.chunk)
        one = (chunked(taken_in, lambda chunk: of_draft(replace(chunk, outputs=0))) if workload.chunk
               else of_draft(taken_in))  # fmt: skip
        drafted = one.request or Request(one, prompt, 0, None, one)
    rounds = Rounds(most, asked.accept, len(starts), last, drafted)
    return replace(
        mean, workload={**mean.workload, "phase": "generate", "prompt": prompt, "generate": workload.generate},
        request=Request(prefill, first, tokens, at, least, rounds=rounds, **passes),
        assumptions=(*_notes(workload, tokens, rounds), *mean.assumptions),
    )  # fmt: skip


def _notes(workload: Workload, tokens: int, rounds: Rounds) -> list[str]:
    asked, batch = cast(Speculation, workload.speculation), workload.batch
    fewest = rounds.count + (rounds.last is not None)
    expected = sum(start_chances(tokens, asked.accept, asked.draft))
    notes = [f"{KEY}: the prompt yields the first token; the other {tokens:,} take {fewest:,} rounds at least and "
             f"{expected:.6g} on average"]
    if rounds.last is not None:
        notes.append(f"{KEY}: in floors the last round guesses no more than is wanted, in expected times as many as "
                     "the others")
    if asked.model is not None:
        notes.append(f"{KEY}: {asked.model.name} takes in the prompt too, in expected times after the first token is "
                     "out")
    if hasattr(batch, "shape") or batch > 1:
        notes.append(f"{KEY}: sequences need different numbers of rounds; times are of the mean of one, with all of "
                     "the batch there all the while. The last one to end takes more")
    return notes
