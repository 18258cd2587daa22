"""One decoded token per sequence: every layer's weights once, every sequence's KV cache once, the head, a new row.

A layer runs where its weights live or is streamed to the processor that runs it; the hidden row passes from one
processor to the next as a task like any other. Bytes: weights move once a step whatever the batch, KV with each
sequence; FLOP: 2 per weight and token, and 4 x heads x head size per position of attention.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from offload.designs.placement import (
    RUNTIME_RESERVE,
    LayerHome,
    Placement,
    Workload,
    check_kv,
    place_layers,
    portions_in_layers,
    runs,
)
from offload.models import Model, Weights, attention_flops, head_flops, kv_bytes, layer_flops, weigh
from offload.plan import Block, Compute, Overlap, Plan, Task, Tensor, Transfer
from offload.topology import Topology

ACTIVATION_BYTES = 2  # hidden states are 16-bit between layers

NOT_MODELLED = (
    "kernel launches, synchronisation and dequantisation (no named cost is given)",
    "activations inside a layer: only weights, KV cache and the row between layers are counted",
    "sampling, tokenisation and the server's own work",
)


def plan_decode(
    model: Model,
    topology: Topology,
    workload: Workload,
    placement: Placement,
    *,
    weights: str,
    kv: str = "f16",
    overlap: Overlap | None = None,
) -> Plan:
    """The plan of one decode step: `batch` tokens, one for each sequence.

    weights, kv : formats' names. Raises PlanError where the placement does not add up to the model, ModelError for
    unknown formats. The embedding is gathered by row in host memory where there is one.
    """
    weighed = weigh(model, weights)
    check_kv(topology, placement.kv)
    homes = place_layers(topology, placement, weighed.layers)
    batch, context = workload.batch, workload.context
    position = kv_bytes(model, kv)
    row = batch * model.hidden * ACTIVATION_BYTES
    flops = batch * (layer_flops(model) + attention_flops(model) * context)
    design = _Decode(topology, placement, workload.in_flight)
    tensors: dict[str, Tensor] = {}
    blocks: list[Block] = []
    host = _host_memory(topology, homes[0].memory)
    at = host  # where the hidden row is: the embedding's row first
    layers = list(zip(homes, weighed.layers, strict=True))
    number = 0
    for key, run in groupby(layers):
        home, size = key
        count = len(list(run))
        own = topology.processors[home.processor].memory
        first = design.row_to(own, at, row, tensors, opening=not blocks)
        pieces = [(first, 1), ((), count - 1)] if first and count > 1 else [(first, count)]
        for opening, repeat in pieces:
            names = f"{number + 1}" if repeat == 1 else f"{number + 1}-{number + repeat}"
            block = design.layer(home, size, batch * context * position, batch * position, flops, names, tensors,
                                 weighed.compute_format, tuple(task.name for task in opening))
            blocks.append(Block((*opening, *block), repeat))
            number += repeat
        at = own
    head = placement.weights[0][0]
    blocks.append(design.head(head, weighed, batch * head_flops(model), at, row, tensors))
    # A tied head is the embedding itself where both are in one memory; elsewhere each memory has its copy.
    held = () if model.tied and head == host else ((host, "input embedding", weighed.embedding),)
    processors = {home.processor for home in homes} | {runs(topology, placement, head)}
    shown = ", ".join(f"{count} layers in {memory}" for memory, count in portions_in_layers(placement, weighed.layers))
    return Plan(
        title=f"{model.name} {weights}, decode, batch {batch}, context {context}",
        tensors=tensors,
        blocks=tuple(blocks),
        tokens=batch,
        sequences=batch * workload.in_flight,
        in_flight=workload.in_flight,
        overlap=overlap or Overlap(),
        held=(*held, *_reserves(topology, placement, processors)),
        workload={"phase": "decode", "model": model.name, "weights": weights, "kv": kv, "batch": batch,
                  "context": context},
        assumptions=(*_realised(shown, homes, topology, placement), *_unused_reserve(topology, placement, processors),
                     *_beyond(model, context), *weighed.notes),
        not_modelled=NOT_MODELLED,
        origin=(model, workload, placement, weights, kv),
    )


class _Decode:
    """The tasks of a layer and of the head, by where they live and run."""

    def __init__(self, topology: Topology, placement: Placement, in_flight: int):
        self.topology = topology
        self.placement = placement
        self.in_flight = in_flight

    def row_to(
        self, memory: str, at: str, size: int, tensors: dict[str, Tensor], opening: bool
    ) -> tuple[Task, ...]:
        """Pass the hidden row on to another memory, once the last compute has made it."""
        if at == memory:
            return ()
        what = "embedding row" if opening else "hidden row"
        name = f"{what} in {at}"
        tensors[name] = Tensor(name, size, ((at, 1.0),), shared=True, what=what, transient=True)
        return (Transfer(f"{what} to {memory}", name, memory, after=() if opening else ("previous.layer",)),)

    def layer(
        self, home: LayerHome, size: int, cache: int, grown: int, flops: float, names: str,
        tensors: dict[str, Tensor], format_: str, after: tuple[str, ...],
    ) -> tuple[Task, ...]:
        own = self.topology.processors[home.processor].memory
        kv_home = own if self.placement.kv == "with layer" else self.placement.kv
        weights, kv, new = f"weights {names}", f"KV {names}", f"new KV {names}"
        tensors[weights] = Tensor(weights, size, ((home.memory, 1.0),), what="layer weights")
        # Each step in flight serves sequences of its own, whose caches all lie there.
        tensors[kv] = Tensor(kv, cache, ((kv_home, 1.0),), what="KV cache", stored=cache * self.in_flight)
        tensors[new] = Tensor(new, grown, ((kv_home, 1.0),), what="new KV", stored=0)
        tasks: list[Task] = []
        for tensor, at, what in ((weights, home.memory, "weights"), (kv, kv_home, "KV")):
            if at != own:
                name = f"fetch {what} to {own}"
                tasks.append(Transfer(name, tensor, own))
                after = (*after, name)
        tasks.append(Compute("layer", home.processor, flops, format_, (weights, kv), (new,), after))
        return tuple(tasks)

    def head(self, memory: str, weighed: Weights, flops: float, at: str, row: int, tensors: dict[str, Tensor]) -> Block:
        """The output head lives in the first memory named and runs where a layer of that memory would."""
        processor = runs(self.topology, self.placement, memory)
        own = self.topology.processors[processor].memory
        tensors["head"] = Tensor("head", weighed.head + weighed.norm, ((memory, 1.0),), what="output head")
        tasks = list(self.row_to(own, at, row, tensors, opening=False))
        after: tuple[str, ...] = tuple(task.name for task in tasks)
        if memory != own:
            tasks.append(Transfer("fetch head", "head", own, buffers=1))
            after = (*after, "fetch head")
        tasks.append(Compute("head", processor, flops, weighed.compute_format, ("head",), (), after))
        return Block(tuple(tasks))


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
    on_gpu = [topology.processors[home.processor].kind == "gpu" for home in (*homes, head)]
    in_place = all(topology.processors[home.processor].memory == home.memory for home in (*homes, head))
    count = sum(on_gpu[:-1])
    # llama.cpp's -ngl counts from the end, the head first: [CPU, ..., GPU, ..., head on the GPU].
    if in_place and on_gpu == sorted(on_gpu) and on_gpu[-1] and count < len(homes):
        layers = f"the last {count} layers and the head are" if count else "only the head is"
        notes.append(f"{layers} on the GPU: llama.cpp -ngl {count + 1}")
    if len(placement.weights) > 1:
        notes.append(f"the head goes to the first memory named ({head.memory}) and runs on {head.processor}")
    if any(topology.processors[home.processor].memory != home.memory for home in homes):
        notes.append("streamed layers are spread evenly among resident ones, a resident one first")
    return notes
