"""A prompt in chunks: passes one after another, each of which streams its weights again while the context grows.

Only the last chunk needs the head: the others yield no token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from offload.designs.homes import shares_of_home
from offload.designs.outside import Outside
from offload.designs.placement import Workload, memories_of
from offload.designs.slot_sizes import with_slots_for
from offload.designs.teams import Teams
from offload.models import Weights
from offload.plan import Plan, Request
from offload.ranges import listed
from offload.topology import Topology

MOST_CHUNKS = 512  # of a prompt whose times are summed: each is laid out by itself
WHOLE = "chunk: {chunk:,} is no less than the prompt of {prompt:,}: it comes in one pass"


def chunked(workload: Workload, of: Callable[[Workload], Plan]) -> Plan:
    """The plan of one chunk of a prompt, the last that is full, with all of them in `Plan.request`.

    workload : a prefill with a chunk. of : from the workload of one pass to its plan. Chunk i has positions from
    context + i x chunk on; the last one what is left. Source: Agrawal et al. 2023 (SARATHI).
    """
    prompt, size, past = workload.prompt, workload.chunk, workload.context
    room = past + prompt if workload.room is None else workload.room
    count = -(-prompt // size)

    def chunk(number: int) -> Plan:
        start = number * size
        asked = replace(workload, context=past + start, prompt=min(size, prompt - start), room=room, chunk=0,
                        outputs=1 if number == count - 1 else 0)
        return of(asked)

    shown = chunk(max(prompt // size - 1, 0))
    if prompt > size and prompt % size:  # the rest sees more positions, and has the head
        full, last = shown, chunk(count - 1)
        shown = with_slots_for(full, (with_slots_for(last, (full,)),))
    model, _, *rest = shown.origin
    notes = (WHOLE.format(chunk=size, prompt=prompt),) if size >= prompt else ()
    request = Request(shown, prompt, 0, None, shown, count, chunk)
    words = f", batch {workload.batch}, prompt {prompt}" + (f", context {past}" if past else "") + f", chunk {size}"
    return replace(
        shown, title=shown.title.partition(", batch")[0] + words, request=request,
        workload={**shown.workload, "whole prompt": prompt, "chunk": size}, origin=(model, workload, *rest),
        assumptions=(*shown.assumptions, *notes),
    )  # fmt: skip


def with_outputs(
    topology: Topology, weighed: Weights, outputs: int, outside: Outside, teams: Teams
) -> tuple[Weights, tuple[tuple[str, str, Any], ...]]:
    """The weights that run after the layers, and what of the head is held though it does not run: (memory, part, B).

    outputs : positions of each sequence that the head runs for. outside : where it lives. teams : of replicas, each of
    which holds its own in its memories.
    """
    if outputs:
        return weighed, ()
    sizes: dict[tuple[str, str], int] = {}
    for home, processor, size in ((outside.head, outside.head_on, weighed.head),
                                  (outside.norm, outside.norm_on, weighed.norm)):
        sizes[home, processor] = sizes.get((home, processor), 0) + size
    held = []
    for (home, on), size in sizes.items():
        shares = shares_of_home(topology, home, listed(on)[0]) if size else ()
        near = teams.is_own(on) and {memory for memory, _ in shares} <= set(listed(memories_of(topology, on)))
        copies = teams.replicas if near else 1
        held += [(memory, "output head", size * (copies * share) if copies * share != 1 else size)
                 for memory, share in shares]
    return replace(weighed, head=0, norm=0), tuple(held)
