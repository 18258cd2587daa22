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

from dataclasses import replace
from itertools import groupby
from typing import Any

from offload.designs.amounts import Amounts, Positions
from offload.designs.placement import (
    RUNTIME_RESERVE,
    LayerHome,
    Placement,
    Workload,
    check_kv,
    equal_homes,
    in_short_names,
    memories_of,
    place_layers,
    portions_in_layers,
    runs,
    with_some_ranks,
)
from offload.errors import PlanError
from offload.models import Layer, Model, Weights, head_flops, layers_of, weigh
from offload.models.architecture import outside_flops
from offload.plan import Block, Collective, Compute, Overlap, Plan, Request, Task, Tensor, Transfer
from offload.ranges import fold, listed
from offload.topology import Topology

ACTIVATION_BYTES = 2  # hidden states are 16-bit between layers
ALL_REDUCES = 2  # in a layer: after attention and after the feed-forward

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
    weighed = weigh(model, weights)
    check_kv(topology, placement.kv)
    homes = place_layers(topology, placement, weighed.layers)
    batch = workload.batch
    prefill = workload.phase == "prefill"
    new = workload.prompt if prefill else 1
    past = workload.context if prefill else workload.context - 1
    row = batch * model.hidden * ACTIVATION_BYTES
    room = past + new if workload.room is None else workload.room
    positions = Positions(batch, new, past, room, not prefill, workload.shortest)
    design = _Layers(topology, placement, model, new * row)
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
    blocks: list[Block] = []
    host = _host_memory(topology, listed(homes[0].memory)[0])
    at = host  # where the hidden row is: the embedding's row first
    number = 0
    for (home, amount), run in groupby(zip(homes, amounts, strict=True)):
        count = len(list(run))
        own = memories_of(topology, home.processor)
        first = design.row_to(own, at, new * row, opening=not blocks)
        # What comes before the first layer of ranks differs from what comes before the others.
        alone = count > 1 and (first or (not blocks and len(listed(home.processor)) > 1))
        for opening, repeat in [(first, 1), ((), count - 1)] if alone else [(first, count)]:
            names = f"{number + 1}" if repeat == 1 else f"{number + 1}-{number + repeat}"
            after = tuple(task.name for task in opening)
            block = design.layer(home, amount, names, repeat, weighed.compute_format, after)
            blocks.append(Block((*opening, *block), repeat))
            number += repeat
        at = own
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
        asked = {"batch": batch, "prompt": new} | ({"context": past} if past else {})
    words = ", ".join(f"{key} {value}" for key, value in asked.items())
    return Plan(
        title=f"{model.name} {weights}, {workload.phase}, {words}",
        tensors=design.tensors,
        blocks=tuple(blocks),
        tokens=batch * new,
        sequences=batch * workload.in_flight,
        in_flight=workload.in_flight,
        data_cycle=not prefill,
        overlap=overlap or Overlap(),
        held=(*held, *_reserves(topology, placement, processors)),
        workload={"phase": workload.phase, "model": model.name, "weights": weights, "kv": kv, **asked},
        assumptions=(*_realised(shown, homes, topology, placement), *_unused_reserve(topology, placement, processors),
                     *_beyond(model, room), *_kinds(model, homes, topology), *weighed.notes, *model.notes),
        not_modelled=(SOME_COSTS if placement.costs else NO_COSTS, *NOT_MODELLED, *((PREFILL,) if prefill else ()),
                      *((PARALLEL,) if design.parallel else ())),
        origin=(model, workload, placement, weights, kv),
    )


class _Layers:
    """The tasks of layers and head, by where they live and run; `tensors` collects what they touch."""

    def __init__(self, topology: Topology, placement: Placement, model: Model, row: Any):
        self.topology = topology
        self.placement = placement
        self.model = model
        self.row = row
        self.tensors: dict[str, Tensor] = {}
        self.parallel = False
        self.last = "layer"  # the task that ends a layer: what follows waits for it

    def row_to(self, memory: str, at: str, size: Any, opening: bool) -> tuple[Task, ...]:
        """Pass the hidden row on to where it is not yet (all of it to each of a range), once the last layer made it."""
        have = listed(at)  # each rank has all of it
        lacking = [name for name in listed(memory) if name not in have]
        if not lacking:
            return ()
        source, memory = have[0], fold(lacking)
        what = "embedding row" if opening else "hidden row"
        name = f"{what} in {source}"
        self.tensors[name] = Tensor(name, size, ((source, 1.0),), shared=True, what=what, transient=True)
        after = () if opening else (f"previous.{self.last}",)
        return (self.move(f"{what} to {memory}", name, memory, after=after, whole=True),)

    def move(self, name: str, tensor: str, memory: str, **more: Any) -> Transfer:
        """A move to a memory, or to all of a range of them."""
        ranks = tuple(listed(memory))
        whole = more.pop("whole", False) and len(ranks) > 1
        return Transfer(name, tensor, ranks[0], ranks=ranks if len(ranks) > 1 else (), whole=whole, **more)

    def compute(self, name: str, processors: str, *more: Any, **named: Any) -> Compute:
        """A compute on a processor, or on all of a range of them."""
        ranks = tuple(listed(processors))
        return Compute(name, ranks[0], *more, ranks=ranks if len(ranks) > 1 else (), **named)

    def layer(
        self, home: LayerHome, amounts: Amounts, names: str, repeat: int, format_: str, after: tuple[str, ...]
    ) -> tuple[Task, ...]:
        own = memories_of(self.topology, home.processor)
        ranks = len(listed(home.processor))
        kv_home = own if self.placement.kv == "with layer" else self.placement.kv
        weights, kv, new, state = f"weights {names}", f"KV {names}", f"new KV {names}", f"state {names}"
        self.tensors[weights] = Tensor(weights, amounts.touched, equal_homes(home.memory), what="layer weights",
                                       stored=amounts.size, least=amounts.surely)
        keys = equal_homes(kv_home)
        read = _some(amounts.read)
        # What no layer reads (a prompt's first chunk) is one tensor with the room of all of them.
        stored = amounts.stored if read else repeat * amounts.stored
        self.tensors[kv] = Tensor(kv, amounts.read, keys, shared=not read, what="KV cache", stored=stored,
                                  least=amounts.surely_read)
        self.tensors[new] = Tensor(new, amounts.written, keys, what="new KV", stored=0)
        reads, writes = [weights], []
        if read:
            reads.append(kv)
        if _some(amounts.written):
            writes.append(new)
        if _some(amounts.state):
            self.tensors[state] = Tensor(state, amounts.state, equal_homes(own), what="recurrent state")
            reads.append(state)
            writes.append(state)
        tasks: list[Task] = []
        fetched = [(weights, home.memory, "weights")] + ([(kv, kv_home, "KV")] if read else [])
        for tensor, at, what in fetched:
            if at != own:
                if wrong := with_some_ranks(self.topology, at, home.processor):
                    raise PlanError(f"placement.{'kv' if what == 'KV' else 'weights'}: {wrong}")
                name = f"fetch {what} to {own}"
                via = self.placement.via if what == "weights" else ()
                moved = amounts.size if what == "weights" else None
                tasks.append(self.move(name, tensor, own, via=via, access=self.placement.host_memory, bytes=moved))
                after = (*after, name)
        if self.last == "all-reduce":  # the sum of the layer before; a compute before it is waited for anyway
            after = (*after, "previous.all-reduce")
        tasks.append(self.compute("layer", home.processor, amounts.flops, format_, tuple(reads), tuple(writes), after))
        self.last = "layer"
        if ranks > 1:
            tasks.append(self.all_reduce(home.processor))
            self.last = "all-reduce"
        for cost in self.placement.costs:
            if cost.each == "layer":
                tasks.append(self.compute(cost.name, home.processor, after=(self.last,), time=cost.time))
                self.last = cost.name
        return tuple(tasks)

    def all_reduce(self, processors: str) -> Collective:
        """Two sums of the hidden rows over the ranks' memories."""
        self.parallel = True
        memories = tuple(self.topology.memory_of(name) for name in listed(processors))
        if len(set(memories)) < len(memories):
            raise PlanError(f"placement.compute: {processors} share a memory; ranks that work alike each have one.")
        name = f"hidden rows of {memories_of(self.topology, processors)}"
        self.tensors[name] = Tensor(name, self.row, ((memories[0], 1.0),), shared=True, what="all-reduce",
                                    transient=True)
        return Collective("all-reduce", name, memories, after=("layer",), times=ALL_REDUCES)

    def ranks(self, layer: Layer, processors: str) -> int:
        """How many processors share a layer; raises PlanError where its heads do not split over them."""
        ranks = len(listed(processors))
        heads, shared = layer.heads, layer.cache.heads
        wrong = [f"{heads} attention heads"] if heads % ranks else []
        if shared and max(shared, ranks) % min(shared, ranks):
            wrong.append(f"{shared} KV heads")
        if wrong:
            fits = [str(n) for n in range(1, heads + 1)
                    if heads % n == 0 and (not shared or max(shared, n) % min(shared, n) == 0)]  # fmt: skip
            raise PlanError(f"placement.compute: the {wrong[0]} of {self.model.name} do not split evenly over {ranks} "
                            f"processors. Numbers that do: {', '.join(fits)}.")
        return ranks

    def head(
        self, memory: str, weighed: Weights, flops: float, at: str, row: Any, host: str, tokens: Any
    ) -> Block:
        """The output head lives in the first memory named and runs where a layer of that memory would; with it what
        else runs outside of layers. Of tables in host memory each token takes a row.
        """
        processor = runs(self.topology, self.placement, memory)
        own = memories_of(self.topology, processor)
        self.tensors["head"] = Tensor("head", weighed.head + weighed.norm, equal_homes(memory), what="output head")
        tasks = list(self.row_to(own, at, row, opening=False))
        after: tuple[str, ...] = tuple(task.name for task in tasks)
        if not tasks and self.last != "layer":
            after = (f"previous.{self.last}",)
        if memory != own:
            tasks.append(self.move("fetch head", "head", own, buffers=1, via=self.placement.via,
                                   access=self.placement.host_memory))
            after = (*after, "fetch head")
        reads = ["head"]
        if weighed.each_step:
            reads.append("others")
            self.tensors["others"] = Tensor("others", weighed.each_step, equal_homes(memory), what="other weights")
            if memory != own:
                tasks.append(self.move("fetch others", "others", own, buffers=1, via=self.placement.via,
                                       access=self.placement.host_memory))
                after = (*after, "fetch others")
        if weighed.rows:
            reads.append("rows")
            # Tokens that are alike take the same row.
            self.tensors["rows"] = Tensor("rows", tokens * weighed.rows, ((host, 1.0),), shared=True,
                                          what="rows of other tables", transient=True, least=weighed.rows)
            if host not in listed(own):
                tasks.append(self.move(f"rows to {own}", "rows", own, whole=True))
                after = (*after, f"rows to {own}")
        tasks.append(self.compute("head", processor, flops, weighed.compute_format, tuple(reads), (), after))
        last = "head"
        for cost in self.placement.costs:
            if cost.each == "step":
                tasks.append(self.compute(cost.name, processor, after=(last,), time=cost.time))
                last = cost.name
        return Block(tuple(tasks))


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


def _some(amount: Any) -> bool:
    """Whether there is anything; arrays hold something."""
    return hasattr(amount, "shape") or amount > 0


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
