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
from typing import Any

from offload.designs.amounts import Amounts, Positions
from offload.designs.hints import moved_for_nothing, pinned_twice
from offload.designs.homes import home_names, home_note, is_mixed, shares_of_home
from offload.designs.layers import LayerTasks
from offload.designs.page_cache import cached, everything, left_by, on_drives, slots_of
from offload.designs.parallel import check_parallel, gathered, parallel_of, parts_on_ranks
from offload.designs.parts import Part, parts_of, whole_layer
from offload.designs.placement import (
    RUNTIME_RESERVE,
    LayerHome,
    Placement,
    Workload,
    check_kv,
    experts_placement,
    in_short_names,
    memories_of,
    place_layers,
    portions_in_layers,
    runs,
)
from offload.designs.sharing_notes import shared_notes
from offload.designs.split import check_split, is_split, shares_of_layer, split_note
from offload.designs.split_tasks import EMBEDDING
from offload.errors import PlanError
from offload.models import Layer, Model, Weights, head_flops, layer_flops_of, layers_of, weigh
from offload.models.architecture import STATED, outside_flops
from offload.models.weights import layer_tensors
from offload.plan import Block, Overlap, Plan, Request
from offload.ranges import listed
from offload.topology import Topology

EXPERTS = "placement.experts.home"
ACTIVATION_BYTES = 2  # hidden states are 16-bit between layers

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

    if workload.phase != "generate":
        return of(workload)
    batch, prompt, last = workload.batch, workload.prompt, workload.prompt + workload.generate - 1
    prefill = of(Workload("prefill", batch, 0, prompt=prompt, room=max(last, prompt)))
    title = f"{model.name} {weights}, generate, batch {batch}, prompt {prompt}, {workload.generate} tokens"
    origin = (model, workload, placement, weights, kv)
    if workload.generate == 1:  # the prefill yields it
        return replace(prefill, title=title, origin=origin, request=Request(prefill, prompt, 0, None, prefill))

    def at(context: Any) -> Plan:
        return of(Workload("decode", batch, context, room=last))

    mean = prompt + workload.generate / 2  # of prompt + 1 to prompt + generate - 1
    mean = int(mean) if mean == int(mean) else mean
    step = at(mean)
    # What a window sees is no convex function of the context: floors of the whole take what the shortest one sees.
    least = of(Workload("decode", batch, mean, room=last, shortest=prompt + 1))
    asked = {**step.workload, "phase": "generate", "prompt": prompt, "generate": workload.generate}
    return replace(step, title=title, origin=origin, workload=asked,
                   request=Request(prefill, prompt + 1, workload.generate - 1, at, least))


def _pass(
    model: Model, topology: Topology, workload: Workload, placement: Placement, weights: str, kv: str,
    overlap: Overlap | None,
) -> Plan:
    left: int | None = None
    if placement.page_cache is not None and placement.page_cache.free is None:
        probe = replace(placement, page_cache=everything(placement.page_cache))
        left = left_by(topology, _pass(model, topology, workload, probe, weights, kv, overlap), probe.page_cache.memory)
    weighed = weigh(model, weights)
    check_kv(topology, placement.kv)
    homes = place_layers(topology, placement, weighed.layers)
    experts = _experts_homes(topology, placement, weighed)
    batch = workload.batch
    prefill = workload.phase == "prefill"
    new = workload.prompt if prefill else 1
    past = workload.context if prefill else workload.context - 1
    row = batch * model.hidden * ACTIVATION_BYTES
    room = past + new if workload.room is None else workload.room
    positions = Positions(batch, new, past, room, not prefill, workload.shortest)
    drives = _on_drives(topology, placement, homes, weighed)
    cache, slots = None, 0
    if placement.page_cache is not None:
        there = [size for home, size in zip(homes, weighed.layers, strict=True)
                 if drives.keys() & set(home_names(home.memory))]  # fmt: skip
        slots = slots_of(overlap or Overlap(), there)
        left = None if left is None else left + sum(drives.values())
        cache = cached(topology, placement.page_cache, drives, left, slots)
        if not cache.fits and any(layer.experts is not None for layer in layers_of(model)):
            raise PlanError("placement.page_cache: of a mixture's file a token touches the pages of some experts, and "
                            "which of them stay is not known. Give it room for the whole file, or place experts apart.")
    design = LayerTasks(topology, placement, model, new * row, cache)
    counted: dict[tuple, Amounts] = {}  # equal layers share theirs

    def amounts_of(layer: Layer, size: int, expert: int, ranks: int) -> Amounts:
        key = (id(layer), size, expert, ranks)
        if key not in counted:
            counted[key] = positions.amounts(layer, size, expert, kv, workload.in_flight, ranks)
        return counted[key]

    check_parallel(topology, placement, homes, model, batch, design.ranks)
    if parallel_of(placement).by == "tensor":
        amounts = [
            amounts_of(layer, size, expert, design.ranks(layer, home.processor))
            for home, layer, size, expert in zip(homes, layers_of(model), weighed.layers, weighed.experts, strict=True)
        ]
        layers = _parts(model, weights, placement, homes, experts, amounts, batch * new)
    else:
        layers = parts_on_ranks(model, weights, weighed, placement, homes, positions, kv, workload.in_flight,
                                row // batch)
    if placement.split:
        layers = _shared(topology, model, placement, homes, layers, batch * new)
    blocks: list[Block] = []
    host = _host_memory(topology, listed(homes[0].memory)[0])
    at = host  # where the hidden row is: the embedding's row first
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
        for repeat in (1, count - 1) if alone else (count,):
            names = f"{number + 1}" if repeat == 1 else f"{number + 1}-{number + repeat}"
            opening = () if design.last == EMBEDDING else design.row_to(own, at, new * row, opening=not blocks)
            after = tuple(task.name for task in opening)
            blocks.append(Block((*opening, *design.layer(parts, names, repeat, weighed.compute_format, after)), repeat))
            number += repeat
            at = design.at = end
    head = placement.weights[0][0]
    flops = batch * (head_flops(model) + new * outside_flops(model))
    end_of_step = design.head(head, weighed, flops, at, row, host, batch * new)
    blocks += [end_of_step] if end_of_step.tasks else []
    # A tied head is the embedding itself where both are in one memory; elsewhere each memory has its copy.
    held = ((host, "input embedding", weighed.embedding),) if weighed.embedding else ()
    held = () if model.tied and head == host else held
    if tables := weighed.outside - weighed.each_step:
        held = (*held, (host, "other tables", tables))
    if cache is not None:
        held = (*held, *cache.held(drives, slots))
    processors = {name for home in homes for name in listed(home.processor)} | {
        *listed(runs(topology, placement, head))}
    shown = ", ".join(f"{count} layers in {memory}" for memory, count in portions_in_layers(placement, weighed.layers)
                      if count)
    asked = {"batch": batch, "context": workload.context}
    if prefill:
        asked = {"batch": batch, "prompt": new} | ({"context": past} if past else {})
    if model.family == STATED:
        asked = {"batch": batch} | ({"steps": workload.steps} if workload.phase == "denoise" else {})
    words = ", ".join(f"{key} {value}" for key, value in asked.items())
    kept = {} if model.family == STATED else {"weights": weights, "kv": kv}
    plan = Plan(
        title=f"{' '.join([model.name, *list(kept.values())[:1]])}, {workload.phase}, {words}",
        tensors=design.tensors,
        blocks=tuple(blocks),
        tokens=batch * new if workload.phase != "denoise" else 1,
        sequences=batch * workload.in_flight if workload.phase != "denoise" else 1,
        in_flight=workload.in_flight,
        data_cycle=not prefill,
        overlap=overlap or Overlap(),
        held=(*held, *_reserves(topology, placement, processors),
              *gathered(blocks, design.tensors, overlap or Overlap())),
        workload={"phase": workload.phase, "model": model.name, **kept, **asked},
        assumptions=(*_realised(shown, homes, topology, placement, bool(end_of_step.tasks)),
                     *shared_notes(topology, placement, homes, batch, workload.in_flight, new * row),
                     *_unused_reserve(topology, placement, processors),
                     *_beyond(model, room), *_kinds(model, homes, topology), *weighed.notes, *model.notes,
                     *(() if cache is None else cache.notes(topology, drives)), *_mixed(topology, placement, homes),
                     *_split(topology, placement, homes, weighed)),
        not_modelled=(SOME_COSTS if placement.costs else NO_COSTS, *NOT_MODELLED, *((PREFILL,) if prefill else ()),
                      *((PARALLEL,) if design.parallel else ())),
        origin=(model, workload, placement, weights, kv),
    )
    hints = (*moved_for_nothing(topology, plan, "" if cache is None else cache.memory), *pinned_twice(topology, plan))
    return replace(plan, assumptions=(*plan.assumptions, *hints))


def _on_drives(
    topology: Topology, placement: Placement, homes: Sequence[LayerHome], weighed: Weights
) -> dict[str, int]:
    """Bytes of weights on each drive [B]."""
    sizes: dict[str, float] = {}
    outside = weighed.head + weighed.norm + weighed.each_step
    for home, processor, size in (
        *((home.memory, home.processor, size) for home, size in zip(homes, weighed.layers, strict=True)),
        (placement.weights[0][0], runs(topology, placement, placement.weights[0][0]), outside),
    ):
        for memory, share in shares_of_home(topology, home, listed(processor)[0]):
            sizes[memory] = sizes.get(memory, 0) + (size if share == 1 else size * share)
    return on_drives(topology, {name: round(size) for name, size in sizes.items()})


def _shared(
    topology: Topology, model: Model, placement: Placement, homes: Sequence[LayerHome],
    layers: Sequence[tuple[Part, ...]], tokens: Any,
) -> list[tuple[Part, ...]]:
    """The parts of layers whose rows several processors share; others run as they are."""
    if placement.experts is not None:
        raise PlanError("placement.split: with experts placed apart a layer is no longer one: drop one of the two.")
    known: dict[tuple, tuple[Part, ...]] = {}
    found = []
    for home, parts, layer in zip(homes, layers, layers_of(model), strict=True):
        key = (home, id(parts), id(layer))
        if key not in known:
            known[key] = parts
            if is_split(topology, placement.split, home.memory):
                shares = shares_of_layer(topology, placement.split, home.memory)
                known[key] = (replace(parts[0], shares=shares, matrices=tokens * layer_flops_of(layer)),)
        found.append(known[key])
    return found


def _mixed(topology: Topology, placement: Placement, homes: Sequence[LayerHome]) -> list[str]:
    """Notes on homes of several memories."""
    found = {home.memory: home.processor for home in homes if is_mixed(home.memory)}
    return [home_note(topology, home, listed(processor)[0]) for home, processor in found.items()]


def _split(
    topology: Topology, placement: Placement, homes: Sequence[LayerHome], weighed: Weights
) -> list[str]:
    """Notes on rows that several processors share."""
    if not placement.split:
        return []
    sizes: dict[str, int] = {}
    for home, size in zip(homes, weighed.layers, strict=True):
        sizes[home.memory] = sizes.get(home.memory, 0) + size
    return split_note(topology, placement.split, sizes)


def _experts_homes(topology: Topology, placement: Placement, weighed: Weights) -> list[LayerHome] | None:
    """A home for the experts of each layer; None where they are with their layer."""
    if placement.experts is None:
        return None
    return place_layers(topology, experts_placement(placement), weighed.layers, EXPERTS)


def _parts(
    model: Model, weights: str, placement: Placement, homes: Sequence[LayerHome], experts: Sequence[LayerHome] | None,
    amounts: Sequence[Amounts], tokens: Any,
) -> list[tuple[Part, ...]]:
    """The parts of each layer; those of alike layers are one object."""
    known: dict[tuple, tuple[Part, ...]] = {}
    found = []
    for i, (home, whole, layer) in enumerate(zip(homes, amounts, layers_of(model), strict=True)):
        apart = None if experts is None or layer.experts is None else experts[i]
        tensors = () if apart is None else layer_tensors(model, weights)[i]
        key = (home, id(whole), id(layer), apart, tuple(size for _, size in tensors))
        if key not in known:
            if apart is None:
                known[key] = whole_layer(home, whole, placement.access)
            else:
                own = (home, placement.access)
                known[key] = parts_of(layer, tensors, (own, own, (apart, placement.experts.access)), whole, tokens)
        found.append(known[key])
    return found


def _kinds(model: Model, homes: list[LayerHome], topology: Topology) -> list[str]:
    """Notes on layers that are not plain."""
    notes = []
    layers = layers_of(model)
    if any(layer.experts is not None for layer in layers):
        notes.append("experts: each token is taken to choose any of them alike; floors count those of one token")
        if any(memories_of(topology, home.processor) != home.memory for home in homes):
            notes.append("a streamed layer brings all of its experts, chosen or not")
    if any(layer.cache.kind == "latent" for layer in layers):
        notes.append("latent attention: the cache holds latents, which a decode step reads as they are (absorbed "
                     "form); a prefill takes the form with fewer FLOP")
    if any(layer.cache.picks for layer in layers):
        notes.append("an indexer reads its keys of all positions, and attention the rows that it picks: which, is "
                     "taken to be known in time to move them")
    return notes


def _host_memory(topology: Topology, otherwise: str) -> str:
    hosts = sorted(name for name, memory in topology.memories.items() if memory.kind in ("dram", "unified"))
    return hosts[0] if hosts else otherwise


def _reserves(topology: Topology, placement: Placement, used: set[str]) -> tuple[tuple[str, str, int], ...]:
    reserve = RUNTIME_RESERVE if placement.reserve is None else placement.reserve
    held = sorted(topology.processors[name].memory for name in used if topology.processors[name].kind == "gpu")
    return tuple((memory, "runtime reserve", reserve) for memory in held if reserve)


def _unused_reserve(topology: Topology, placement: Placement, used: set[str]) -> list[str]:
    """A note where a reserve was asked for that nothing takes."""
    if not placement.reserve or any(topology.processors[name].kind == "gpu" for name in used):
        return []
    return ["the reserve is not used: no GPU runs anything here"]


def _beyond(model: Model, context: Any) -> list[str]:
    """A note where a context is longer than the model says it can attend to."""
    longest = context.max() if hasattr(context, "max") else context
    if model.max_positions is None or longest <= model.max_positions:
        return []
    return [f"context {longest:,} is beyond the {model.max_positions:,} positions that the model states"]


def _realised(
    shown: str, homes: list[LayerHome], topology: Topology, placement: Placement, has_head: bool
) -> list[str]:
    notes = [f"realised placement: {shown}"]
    head = LayerHome(placement.weights[0][0], runs(topology, placement, placement.weights[0][0]))
    own = {home.processor: memories_of(topology, home.processor) for home in {*homes, head}}
    gpus = {name for name in own if topology.processors[listed(name)[0]].kind == "gpu"}
    on_gpu = [home.processor in gpus for home in (*homes, head)]
    away = [own[home.processor] != home.memory for home in (*homes, head)]
    count = sum(on_gpu[:-1])
    # llama.cpp's -ngl counts from the end, the head first: [CPU, ..., GPU, ..., head on the GPU].
    if has_head and not any(away) and on_gpu == sorted(on_gpu) and on_gpu[-1] and count < len(homes):
        layers = f"the last {count} layers and the head are" if count else "only the head is"
        notes.append(f"{layers} on the GPU: llama.cpp -ngl {count + 1}")
    if len(placement.weights) > 1 and has_head:
        notes.append(f"the head goes to the first memory named ({head.memory}) and runs on {head.processor}")
    told = {"interleaved": "are spread evenly among resident ones, a resident one first",
            "interleaved_streamed_first": "are spread evenly among resident ones, a streamed one first",
            "streamed_first": "come before the resident ones", "streamed_last": "come after the resident ones"}
    if any(away[:-1]):
        notes.append(f"streamed layers {told[placement.layout]}")
    if placement.layout != "interleaved" and (not any(away[:-1]) or all(away[:-1])):
        notes.append(f"layout: {placement.layout} changes nothing: no processor has both streamed and resident layers")
    return notes
