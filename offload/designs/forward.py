"""One forward pass of a decoder: every layer's weights once, the KV cache of every sequence, the head, new positions.

A decode step adds one position to each sequence, a prefill step a whole prompt or a chunk of it. A layer runs where its
weights live or is streamed to the processor that runs it; the hidden row passes from one processor to the next as a
task like any other. Bytes: weights move once a step whatever the batch, KV with each sequence; FLOP: 2 per weight and
position, and 4 x heads x head size for each pair of a new position and one that it attends to (latents:
`models.attention`).

Several processors that work alike (a range of names) each hold an equal part of every matrix and of the KV heads, and
add up their hidden rows twice in a layer (tensor parallel).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

from offload.designs.amounts import Amounts, Positions
from offload.designs.chunks import chunked, with_outputs
from offload.designs.experts import LayerParts, check_experts, routing_of
from offload.designs.hints import moved_for_nothing, pinned_twice
from offload.designs.homes import shares_of_home
from offload.designs.kv import cached_of, keepings, kv_notes
from offload.designs.kv_tasks import with_kept
from offload.designs.last_layer import left_out, without_outputs
from offload.designs.layers import LayerTasks
from offload.designs.notes import (
    beyond_notes,
    host_memory,
    idle_costs,
    kinds_notes,
    mixed_notes,
    realised_notes,
    reserves,
    split_notes,
    unused_reserve,
)
from offload.designs.outside import homes_of_ends, outside_of
from offload.designs.page_cache import ALL, everything, left_by
from offload.designs.paging import paging, weights_on_drives
from offload.designs.parallel import check_parallel, gathered, parallel_of, parts_on_ranks, teams_in
from offload.designs.parts import Part
from offload.designs.placement import (
    ACTIVATION_BYTES,
    Placement,
    Workload,
    check_kv,
    in_short_names,
    memories_of,
    place_layers,
    portions_in_layers,
)
from offload.designs.rounds import NOTHING_GUESSED, in_rounds
from offload.designs.sharing_notes import shared_notes
from offload.designs.slot_sizes import fetches_kv, with_slots_for
from offload.designs.speculation import Speculation, draft_placement, speculated
from offload.designs.split import check_split
from offload.designs.split_tasks import EMBEDDING, shared_layers
from offload.designs.weight_tasks import check_numa
from offload.models import Layer, Model, head_flops, layers_of, weigh
from offload.models.architecture import STATED, outside_flops
from offload.plan import Block, Compute, Overlap, Plan, Request
from offload.ranges import fold, listed
from offload.topology import Topology

NOT_MODELLED = (
    "activations inside a layer: only weights, KV cache and the row between layers are counted",
    "sampling, tokenisation and the server's own work",
)
NO_COSTS = "kernel launches, synchronisation and dequantisation (no named cost is given)"
SOME_COSTS = "kernel launches, synchronisation and dequantisation beyond the named costs"
PREFILL = "prefill: attention reads keys and values of the new positions again for each tile of them (not counted)"
PARALLEL = ("tensor parallel: a collective is its bytes on a ring and two link latencies; the norms' copies on each "
            "rank and the gathering of logits are not counted")  # fmt: skip


def plan_model(
    model: Model,
    topology: Topology,
    workload: Workload,
    placement: Placement,
    *,
    weights: str,
    kv: str = "f16",
    overlap: Overlap | None = None,
) -> Plan:
    """The plan of one step of a workload: decode (a token for each sequence), prefill, or generate.

    weights, kv : formats' names. Raises PlanError where the placement does not add up to the model, ModelError for
    unknown formats. The embedding is gathered by row in host memory where there is one. The plan of "generate" is the
    decode step at the mean context, with the rest of the request in `Plan.request`.
    """

    placement = in_short_names(placement)
    if placement.split:
        check_split(topology, placement.split)
        placement = replace(placement, compute=placement.split[0][0])

    def of(asked: Workload) -> Plan:
        return _pass(model, topology, asked, placement, weights, kv, overlap)

    def of_draft(draft: Speculation, asked: Workload, placed: Placement) -> Plan:
        return _pass(cast(Model, draft.model), topology, asked, placed, draft.weights, draft.kv, overlap)

    def one(asked: Workload) -> Plan:
        return of(asked) if asked.speculation is None else speculated(topology, asked, placement, of, of_draft)

    guessing = workload.speculation
    if guessing is not None and workload.phase != "generate":
        return one(workload)
    if workload.phase == "prefill" and workload.chunk:
        return chunked(workload, of)
    if workload.phase != "generate":
        return of(workload)
    batch, prompt, last = workload.batch, workload.prompt, workload.prompt + workload.generate - 1
    prompting = Workload("prefill", batch, 0, prompt=prompt, room=max(last, prompt), chunk=workload.chunk,
                         cached=workload.cached)
    prefill = chunked(prompting, of) if workload.chunk else of(prompting)
    passes: dict[str, Any] = {}
    if prefill.request is not None:
        passes = {"chunks": prefill.request.chunks, "chunk": prefill.request.chunk}
    prefill = replace(prefill, request=None)
    tokens = "1 token" if workload.generate == 1 else f"{workload.generate} tokens"
    title = f"{model.name} {weights}, generate, batch {batch}, prompt {prompt}, {tokens}"
    origin = (model, workload, placement, weights, kv)
    if workload.generate == 1:  # the prefill yields it
        notes = (*prefill.assumptions, *(() if guessing is None else (NOTHING_GUESSED,)))
        return replace(prefill, title=title, origin=origin, assumptions=notes,
                       request=Request(prefill, prompt, 0, None, prefill, **passes))
    if guessing is not None:
        placed = None if guessing.model is None else draft_placement(topology, guessing, placement.reserve)
        run = in_rounds(workload, prefill, passes, one,
                        None if placed is None else lambda asked: of_draft(guessing, asked, placed))
        return replace(run, origin=origin, title=title.replace(
            f"{weights}, generate", f"{weights}, generate with {guessing.draft} drafted", 1))

    def at(context: Any) -> Plan:
        return of(Workload("decode", batch, context, room=last))

    mean = prompt + workload.generate / 2  # of prompt + 1 to prompt + generate - 1
    mean = int(mean) if mean == int(mean) else mean
    step = at(mean)
    step = with_slots_for(step, (prefill, *((at(last),) if fetches_kv(step) else ())))
    # What a window sees is no convex function of the context: floors of the whole take what the shortest one sees.
    least = of(Workload("decode", batch, mean, room=last, shortest=prompt + 1))
    asked = {**step.workload, "phase": "generate", "prompt": prompt, "generate": workload.generate}
    asked |= {"cached": prefill.workload["cached"]} if "cached" in prefill.workload else {}
    return replace(step, title=title, origin=origin, workload=asked,
                   request=Request(prefill, prompt + 1, workload.generate - 1, at, least, **passes))


def _pass(
    model: Model, topology: Topology, workload: Workload, placement: Placement, weights: str, kv: str,
    overlap: Overlap | None,
) -> Plan:
    left: int | None = None
    if placement.page_cache is not None and placement.page_cache.free != ALL:
        probe = replace(placement, page_cache=everything(placement.page_cache))
        left = left_by(topology, _pass(model, topology, workload, probe, weights, kv, overlap),
                       placement.page_cache.memory)  # fmt: skip
    weighed = weigh(model, weights)
    check_kv(topology, placement.kv)
    homes = place_layers(topology, placement, weighed.layers)
    batch = workload.batch
    prefill = workload.phase == "prefill"
    found = cached_of(workload)  # positions of the prompt that need not be computed
    new = workload.prompt - found if prefill else 1
    past = workload.context + found if prefill else workload.context - 1
    row = batch * model.hidden * ACTIVATION_BYTES
    room = past + new if workload.room is None else workload.room
    positions = Positions(batch, new, past, room, not prefill, workload.shortest, routing_of(placement))
    design = LayerTasks(topology, placement, model, new * row)
    design.in_flight = workload.in_flight
    design.teams = teams_in(topology, placement, homes)
    counted: dict[tuple[int, ...], Amounts] = {}  # equal layers share theirs

    def amounts_of(layer: Layer, size: int, expert: int, ranks: int) -> Amounts:
        key = (id(layer), size, expert, ranks)
        if key not in counted:
            counted[key] = positions.amounts(layer, size, expert, kv, workload.in_flight, ranks)
        return counted[key]

    check_experts(placement, model)
    check_parallel(topology, placement, homes, model, batch, design.ranks)
    ranks = [design.ranks(layer, home.processor) for layer, home in zip(layers_of(model), homes, strict=True)]
    amounts = [amounts_of(*one) for one in zip(layers_of(model), weighed.layers, weighed.experts, ranks, strict=True)]
    host = host_memory(topology, listed(homes[0].memory)[0])
    outside = outside_of(topology, placement, model, weighed, host)
    laid = LayerParts(model, topology, placement, weights, weighed, homes, batch * new, outside=outside)
    layers: Sequence[tuple[Part, ...]]
    if parallel_of(placement).by == "tensor":
        layers = laid.parts(amounts)
    else:
        layers = parts_on_ranks(topology, model, weights, weighed, placement, homes, positions, kv, workload.in_flight,
                                row // batch)
    keeping = keepings(topology, placement, positions, layers_of(model), homes, amounts, found, kv, ranks, design)
    layers = with_kept(model, weights, placement, layers, keeping, batch * new)
    if placement.split:
        layers = shared_layers(topology, model, placement, homes, layers, batch * new)
    drives = weights_on_drives(topology, layers, weighed, outside)
    without = prefill and not workload.outputs
    spared = left_out(topology, outside, weighed, without_outputs(model, weights, layers[-1])) if without else (0, 0)
    cache, slots, layers = paging(topology, placement, layers, layers_of(model), batch * new,
                                  homes_of_ends(outside, weighed), drives, left, overlap or Overlap(), spared)
    ending = without_outputs(model, weights, layers[-1]) if without else layers[-1]
    design.cache = cache
    blocks: list[Block] = []
    # Where the hidden row is: the embedding's row first; stated blocks have none, and what they take is there.
    at = outside.starts_in
    if model.family == STATED:
        names = [name for name, _ in placement.split] or listed(homes[0].processor)
        at = fold(dict.fromkeys(topology.memory_of(name) for name in names))
    number = 0
    for parts, run in groupby(layers):
        count = len(list(run))
        own, end = (memories_of(topology, parts[place].home.processor) for place in (0, -1))
        # What comes before the first layer of ranks differs from what comes before the others.
        design.at = at
        shares = parts[0].shares
        if shares and not blocks:
            opening = design.row_to(own, at, new * row, opening=True)
            blocks.append(design.split.start(parts[0].home.processor, opening))
        differs = len(listed(parts[0].home.processor)) > 1 and design.last != design.ending(parts)
        alone = count > 1 and (design.lacking(own, at) or end != own or differs or shares)
        repeats = [1, count - 1] if alone else [count]
        if prefill and number + count == len(layers) and repeats[-1] > 1:
            repeats[-1:] = [repeats[-1] - 1, 1]
        for repeat in repeats:
            # Of a prompt's last layer software may make keys and values alone, but for the positions that have outputs.
            last = prefill and number + repeat == len(layers)
            design.surely = (1 / new if workload.outputs else 0.0) if last else None
            parts = ending if last else parts
            called = f"{number + 1}" if repeat == 1 else f"{number + 1}-{number + repeat}"
            opening = () if design.last == EMBEDDING else design.row_to(own, at, new * row, opening=not blocks)
            after, came = tuple(task.name for task in opening), bool(opening and blocks)
            tasks = design.layer(parts, called, repeat, weighed.compute_format, after, came)
            blocks.append(Block((*opening, *tasks), repeat))
            number += repeat
            at = design.at = end
    design.surely = None
    flops = batch * (workload.outputs * head_flops(model) + new * outside_flops(model))
    check_numa(placement, design)
    ends, idle = with_outputs(topology, weighed, workload.outputs, outside, design.teams)
    end_of_step = design.head(outside, ends, flops, at, workload.outputs * row, host, batch * new)
    blocks += [end_of_step] if end_of_step.tasks else []
    # A tied head is the embedding itself where both are in one memory; elsewhere each memory has its copy.
    held = tuple((memory, "input embedding", weighed.embedding if share == 1 else weighed.embedding * share)
                 for memory, share in shares_of_home(topology, outside.embedding, listed(outside.head_on)[0])
                 ) if weighed.embedding and not (model.tied and outside.head == outside.embedding) else ()  # fmt: skip
    if tables := weighed.outside - weighed.each_step:
        held = (*held, (host, "other tables", tables))
    if cache is not None:
        held = (*held, *cache.held(drives, slots))
    held = (*held, *idle, *design.idle)
    processors = {name for block in blocks for task in block.tasks if isinstance(task, Compute)
                  for name in task.ranks or (task.processor,)}  # fmt: skip
    shown = ", ".join(f"{count} layers in {memory}" for memory, count in portions_in_layers(placement, weighed.layers)
                      if count)
    asked = {"batch": batch, "context": workload.context}
    if prefill:
        asked = {"batch": batch, "prompt": workload.prompt} | ({"context": past - found} if past - found else {})
        asked |= {"cached": found} if found else {}
    if model.family == STATED:
        asked = {"batch": batch} | ({"steps": workload.steps} if workload.phase == "denoise" else {})
    words = ", ".join(f"{key} {value}" for key, value in asked.items())
    kept = {} if model.family == STATED else {"weights": weights, "kv": kv}
    plan = Plan(
        title=f"{' '.join([model.name, *list(kept.values())[:1]])}, {workload.phase}, {words}",
        tensors=design.tensors,
        blocks=tuple(blocks),
        tokens=batch * (new + found) if workload.phase != "denoise" else 1,
        sequences=batch * workload.in_flight if workload.phase != "denoise" else 1,
        in_flight=workload.in_flight,
        data_cycle=not prefill,
        overlap=overlap or Overlap(),
        held=(*held, *reserves(topology, placement, processors),
              *gathered(blocks, design.tensors, overlap or Overlap())),
        workload={"phase": workload.phase, "model": model.name, **kept, **asked},
        assumptions=(*realised_notes(shown, homes, topology, placement, weighed.layers, bool(end_of_step.tasks),
                                     outside),
                     *shared_notes(topology, placement, homes, batch, workload.in_flight, new * row),
                     *unused_reserve(topology, placement, processors),
                     *beyond_notes(model, room), *kinds_notes(model, placement, blocks, design), *laid.notes(),
                     *idle_costs(placement, blocks),
                     *kv_notes(placement, keeping, design), *weighed.notes, *model.notes,
                     *(() if cache is None else cache.notes(topology, drives)),
                     *mixed_notes(topology, placement, homes), *split_notes(topology, placement, homes, weighed)),
        not_modelled=(SOME_COSTS if placement.costs else NO_COSTS, *NOT_MODELLED, *((PREFILL,) if prefill else ()),
                      *((PARALLEL,) if design.parallel else ())),
        origin=(model, workload, placement, weights, kv),
    )
    hints = (*moved_for_nothing(topology, plan, "" if cache is None else cache.memory), *pinned_twice(topology, plan))
    return replace(plan, assumptions=(*plan.assumptions, *hints))
