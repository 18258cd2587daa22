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
from offload.designs.kv import Keeping, cached_of, keepings, kv_notes
from offload.designs.kv_tasks import with_kept
from offload.designs.layers import LayerTasks
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
from offload.models import Layer, Model, Weights, head_flops, layers_of, weigh
from offload.models.architecture import outside_flops
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

    def of(asked: Workload) -> Plan:
        return _pass(model, topology, asked, placement, weights, kv, overlap)

    if workload.phase != "generate":
        return of(workload)
    batch, prompt, last = workload.batch, workload.prompt, workload.prompt + workload.generate - 1
    prefill = of(Workload("prefill", batch, 0, prompt=prompt, room=max(last, prompt), cached=workload.cached))
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
    asked |= {"cached": prefill.workload["cached"]} if "cached" in prefill.workload else {}
    return replace(step, title=title, origin=origin, workload=asked,
                   request=Request(prefill, prompt + 1, workload.generate - 1, at, least))


def _pass(
    model: Model, topology: Topology, workload: Workload, placement: Placement, weights: str, kv: str,
    overlap: Overlap | None,
) -> Plan:
    weighed = weigh(model, weights)
    check_kv(topology, placement.kv)
    homes = place_layers(topology, placement, weighed.layers)
    experts = _experts_homes(topology, placement, weighed)
    batch = workload.batch
    prefill = workload.phase == "prefill"
    cached = cached_of(workload)
    new = workload.prompt - cached if prefill else 1
    past = workload.context + cached if prefill else workload.context - 1
    row = batch * model.hidden * ACTIVATION_BYTES
    room = past + new if workload.room is None else workload.room
    positions = Positions(batch, new, past, room, not prefill, workload.shortest)
    design = LayerTasks(topology, placement, model, new * row)
    design.in_flight = workload.in_flight
    counted: dict[tuple, Amounts] = {}  # equal layers share theirs

    def amounts_of(layer: Layer, size: int, expert: int, ranks: int) -> Amounts:
        key = (id(layer), size, expert, ranks)
        if key not in counted:
            counted[key] = positions.amounts(layer, size, expert, kv, workload.in_flight, ranks)
        return counted[key]

    amounts = [
        amounts_of(layer, size, expert, design.ranks(layer, home.processor))
        for home, layer, size, expert in zip(homes, layers_of(model), weighed.layers, weighed.experts, strict=True)
    ]
    kept = keepings(topology, placement, positions, layers_of(model), homes, amounts, cached, kv, design)
    layers = _parts(model, weights, placement, homes, experts, amounts, kept, batch * new)
    blocks: list[Block] = []
    host = _host_memory(topology, listed(homes[0].memory)[0])
    at = host  # where the hidden row is: the embedding's row first
    number = 0
    for parts, run in groupby(layers):
        count = len(list(run))
        own, end = (memories_of(topology, parts[place].home.processor) for place in (0, -1))
        # What comes before the first layer of ranks differs from what comes before the others.
        several = len(listed(parts[0].home.processor)) > 1
        alone = count > 1 and (design.lacking(own, at) or end != own or (several and not blocks))
        for repeat in (1, count - 1) if alone else (count,):
            names = f"{number + 1}" if repeat == 1 else f"{number + 1}-{number + repeat}"
            opening = design.row_to(own, at, new * row, opening=not blocks)
            after = tuple(task.name for task in opening)
            blocks.append(Block((*opening, *design.layer(parts, names, repeat, weighed.compute_format, after)), repeat))
            number += repeat
            at = end
    head = placement.weights[0][0]
    flops = batch * (head_flops(model) + new * outside_flops(model))
    blocks.append(design.head(head, weighed, flops, at, row, host, batch * new))
    # A tied head is the embedding itself where both are in one memory; elsewhere each memory has its copy.
    held = () if model.tied and head == host else ((host, "input embedding", weighed.embedding),)
    if tables := weighed.outside - weighed.each_step:
        held = (*held, (host, "other tables", tables))
    processors = {name for home in homes for name in listed(home.processor)} | {
        *listed(runs(topology, placement, head))}
    shown = ", ".join(f"{count} layers in {memory}" for memory, count in portions_in_layers(placement, weighed.layers)
                      if count)
    asked = {"batch": batch, "context": workload.context}
    if prefill:
        asked = {"batch": batch, "prompt": workload.prompt} | ({"context": past - cached} if past - cached else {})
        asked |= {"cached": cached} if cached else {}
    words = ", ".join(f"{key} {value}" for key, value in asked.items())
    return Plan(
        title=f"{model.name} {weights}, {workload.phase}, {words}",
        tensors=design.tensors,
        blocks=tuple(blocks),
        tokens=batch * (new + cached),
        sequences=batch * workload.in_flight,
        in_flight=workload.in_flight,
        data_cycle=not prefill,
        overlap=overlap or Overlap(),
        held=(*held, *_reserves(topology, placement, processors)),
        workload={"phase": workload.phase, "model": model.name, "weights": weights, "kv": kv, **asked},
        assumptions=(*_realised(shown, homes, topology, placement), *_unused_reserve(topology, placement, processors),
                     *_beyond(model, room), *_kinds(model, homes, topology), *kv_notes(placement, kept, design),
                     *weighed.notes, *model.notes),
        not_modelled=(SOME_COSTS if placement.costs else NO_COSTS, *NOT_MODELLED, *((PREFILL,) if prefill else ()),
                      *((PARALLEL,) if design.parallel else ())),
        origin=(model, workload, placement, weights, kv),
    )


def _experts_homes(topology: Topology, placement: Placement, weighed: Weights) -> list[LayerHome] | None:
    """A home for the experts of each layer; None where they are with their layer."""
    if placement.experts is None:
        return None
    return place_layers(topology, experts_placement(placement), weighed.layers, EXPERTS)


def _parts(
    model: Model, weights: str, placement: Placement, homes: Sequence[LayerHome], experts: Sequence[LayerHome] | None,
    amounts: Sequence[Amounts], kept: Sequence[Keeping], tokens: Any,
) -> list[tuple[Part, ...]]:
    """The parts of each layer; those of alike layers are one object."""
    known: dict[tuple, tuple[Part, ...]] = {}
    found = []
    for i, (home, whole, layer) in enumerate(zip(homes, amounts, layers_of(model), strict=True)):
        away = None if experts is None or layer.experts is None else experts[i]
        tensors = () if away is None and not kept[i].attention else layer_tensors(model, weights)[i]
        key = (home, id(whole), id(layer), away, id(kept[i]), tuple(size for _, size in tensors))
        if key not in known:
            if away is None:
                parts = whole_layer(home, whole, placement.access)
            else:
                own = (home, placement.access)
                parts = parts_of(layer, tensors, (own, own, (away, placement.experts.access)), whole, tokens)
            known[key] = with_kept(parts, kept[i], tensors, tokens)
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


def _realised(shown: str, homes: list[LayerHome], topology: Topology, placement: Placement) -> list[str]:
    notes = [f"realised placement: {shown}"]
    head = LayerHome(placement.weights[0][0], runs(topology, placement, placement.weights[0][0]))
    own = {home.processor: memories_of(topology, home.processor) for home in {*homes, head}}
    gpus = {name for name in own if topology.processors[listed(name)[0]].kind == "gpu"}
    on_gpu = [home.processor in gpus for home in (*homes, head)]
    away = [own[home.processor] != home.memory for home in (*homes, head)]
    count = sum(on_gpu[:-1])
    # llama.cpp's -ngl counts from the end, the head first: [CPU, ..., GPU, ..., head on the GPU].
    if not any(away) and on_gpu == sorted(on_gpu) and on_gpu[-1] and count < len(homes):
        layers = f"the last {count} layers and the head are" if count else "only the head is"
        notes.append(f"{layers} on the GPU: llama.cpp -ngl {count + 1}")
    if len(placement.weights) > 1:
        notes.append(f"the head goes to the first memory named ({head.memory}) and runs on {head.processor}")
    if any(away[:-1]):
        notes.append("streamed layers are spread evenly among resident ones, a resident one first")
    several = {name for name in own if len(listed(name)) > 1}
    notes += [f"{name} work alike: each has an equal part of every matrix and of the KV heads" for name in
              sorted(several)]
    return notes
