"""What a plan by placement says of itself: what was taken, what came of it, and what is held beside its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offload.designs.experts import routing_of
from offload.designs.homes import home_note, is_mixed
from offload.designs.layers import LayerTasks
from offload.designs.outside import Outside
from offload.designs.placement import RUNTIME_RESERVE, LayerHome, Placement, memories_of, place_layers
from offload.designs.split import split_note
from offload.models import Model, Weights, layers_of
from offload.plan import Block, Transfer
from offload.ranges import listed
from offload.topology import Topology
from offload.units import format_bytes


def mixed_notes(topology: Topology, placement: Placement, homes: Sequence[LayerHome]) -> list[str]:
    """Notes on homes of several memories."""
    found = {home.memory: home.processor for home in homes if is_mixed(home.memory)}
    return [home_note(topology, home, listed(processor)[0]) for home, processor in found.items()]


def split_notes(
    topology: Topology, placement: Placement, homes: Sequence[LayerHome], weighed: Weights
) -> list[str]:
    """Notes on rows that several processors share."""
    if not placement.split:
        return []
    sizes: dict[str, int] = {}
    for home, size in zip(homes, weighed.layers, strict=True):
        sizes[home.memory] = sizes.get(home.memory, 0) + size
    return split_note(topology, placement.split, sizes)


def kinds_notes(model: Model, placement: Placement, blocks: Sequence[Block], design: LayerTasks) -> list[str]:
    """Notes on layers that are not plain."""
    notes = []
    layers = layers_of(model)
    if any(layer.experts is not None for layer in layers):
        routing = routing_of(placement)
        chosen = "any of them alike" if routing.kind == "uniform" else f"them by {routing}, drawn without replacement" \
            if routing.kind == "zipf" else "them by the chances given"
        notes.append(f"experts: each token is taken to choose {chosen}; floors count those of one token, and what is "
                     "expected is of the mean over steps")
        whole, read = _brought(blocks, design)
        if whole:
            more = f", {format_bytes(whole)} each step of which {format_bytes(read)} are read" if read else ""
            fewer = "" if design.ranks_by.by != "tensor" or placement.split else (
                ": `access: on_demand` under `experts` brings the chosen ones")  # fmt: skip
            notes.append(f"a streamed layer brings all of its experts, chosen or not{more}{fewer}")
    if any(layer.cache.kind == "latent" for layer in layers):
        notes.append("latent attention: the cache holds latents, which a decode step reads as they are (absorbed "
                     "form); a prefill takes the form with fewer FLOP")
    if any(layer.cache.picks for layer in layers):
        notes.append("an indexer reads its keys of all positions, and attention the rows that it picks: which, is "
                     "taken to be known in time to move them")
    return notes


def idle_costs(placement: Placement, blocks: Sequence[Block]) -> list[str]:
    """Notes on costs of hand-overs where the hidden row stays with one processor."""
    names = [task.name for block in blocks for task in block.tasks]
    return [f'"{cost.name}" is charged nowhere: the hidden row passes to no other processor' for cost in placement.costs
            if cost.each == "hand-over" and not any(name.startswith(f"{cost.name}, ") for name in names)]  # fmt: skip


def _brought(blocks: Sequence[Block], design: LayerTasks) -> tuple[Any, Any]:
    """Bytes that come whole each step though only some of their experts are read, and what is read of them [B].

    (True, 0) where they are arrays.
    """
    whole = read = 0
    for block in blocks:
        for task in block.tasks:
            if isinstance(task, Transfer) and task.bytes is not None and task.least is None:
                tensor = design.tensors[task.tensor]
                fewer = tensor.bytes < task.bytes
                if hasattr(fewer, "shape"):
                    if fewer.any():
                        return True, 0
                elif fewer:
                    whole, read = whole + block.repeat * task.bytes, read + block.repeat * tensor.bytes
    return whole, read


def host_memory(topology: Topology, otherwise: str) -> str:
    hosts = sorted(name for name, memory in topology.memories.items() if memory.kind in ("dram", "unified"))
    return hosts[0] if hosts else otherwise


def reserves(topology: Topology, placement: Placement, used: set[str]) -> tuple[tuple[str, str, int], ...]:
    reserve = RUNTIME_RESERVE if placement.reserve is None else placement.reserve
    held = sorted(topology.processors[name].memory for name in used if topology.processors[name].kind == "gpu")
    return tuple((memory, "runtime reserve", reserve) for memory in held if reserve)


def unused_reserve(topology: Topology, placement: Placement, used: set[str]) -> list[str]:
    """A note where a reserve was asked for that nothing takes."""
    if not placement.reserve or any(topology.processors[name].kind == "gpu" for name in used):
        return []
    return ["the reserve is not used: no GPU runs anything here"]


def beyond_notes(model: Model, context: Any) -> list[str]:
    """A note where a context is longer than the model says it can attend to."""
    longest = context.max() if hasattr(context, "max") else context
    if model.max_positions is None or longest <= model.max_positions:
        return []
    return [f"context {longest:,} is beyond the {model.max_positions:,} positions that the model states"]


def realised_notes(
    shown: str, homes: list[LayerHome], topology: Topology, placement: Placement, sizes: Sequence[int], has_head: bool,
    outside: Outside,
) -> list[str]:
    """Notes on where layers and the head came to lie. sizes : bytes of each layer."""
    notes = [f"realised placement: {shown}"]
    head = LayerHome(outside.head, outside.head_on)
    own = {home.processor: memories_of(topology, home.processor) for home in {*homes, head}}
    gpus = {name for name in own if topology.processors[listed(name)[0]].kind == "gpu"}
    on_gpu = [home.processor in gpus for home in (*homes, head)]
    away = [own[home.processor] != home.memory for home in (*homes, head)]
    count = sum(on_gpu[:-1])
    # llama.cpp's -ngl counts from the end, the head first: [CPU, ..., GPU, ..., head on the GPU].
    if has_head and not any(away) and on_gpu == sorted(on_gpu) and on_gpu[-1] and count < len(homes):
        layers = f"the last {count} layers and the head are" if count else "only the head is"
        notes.append(f"{layers} on the GPU: llama.cpp -ngl {count + 1}")
    notes += outside.notes()
    if len(placement.weights) > 1 and has_head and "head" not in outside.placed:
        notes.append(f"the head goes to the first memory named ({head.memory}) and runs on {head.processor}")
    told = {"interleaved": "are spread evenly among resident ones, a resident one first",
            "interleaved_streamed_first": "are spread evenly among resident ones, a streamed one first",
            "streamed_first": "come before the resident ones", "streamed_last": "come after the resident ones"}
    streaming = {home.processor for home in homes if own[home.processor] != home.memory}
    if any(own[home.processor] == home.memory for home in homes if home.processor in streaming):
        notes.append(f"streamed layers {told[placement.layout]}")
    if placement.layout != "interleaved" and homes == place_layers(
            topology, replace(placement, layout="interleaved"), sizes):
        notes.append(f"layout: {placement.layout} changes nothing: no processor has layers of several memories whose "
                     "order it would change")
    return notes
