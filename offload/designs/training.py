"""One training step with state offloaded: forward, backward and update, layer by layer, as a Plan.

Mixed precision with Adam: a parameter is 2 bytes where it is computed with, its gradient 2 (or 4), and 12 more of
master copy, momentum and variance are read and written by each update. Each of the three lives in a memory of its own;
what lives elsewhere than where it is used is moved, and an update runs as soon as the gradient of its layer is there.
Sources: Ren et al. 2021 (ZeRO-Offload), Rajbhandari et al. 2021 (ZeRO-Infinity), DeepSpeed's ZeRO-Offload++
(Twin-Flow); activations: Korthikanti et al. 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from offload.designs.placement import RUNTIME_RESERVE, Cost, memories_of
from offload.designs.training_tasks import HALF, STATES, Homes, Piece, TrainingTasks
from offload.errors import PlanError, did_you_mean
from offload.models import Model, head_flops, layer_flops_of, layers_of
from offload.models.architecture import outside_flops
from offload.models.attention import prefill_flops
from offload.plan import Block, Overlap, Plan
from offload.ranges import fold, in_short, listed
from offload.topology import Topology

ACTIVATIONS = 34  # bytes of a layer's activations for each position and hidden size, attention scores recomputed
LOGITS = 6  # bytes of a logit: 16-bit, and 32-bit for the loss
MOST_TASKS = 20_000  # tasks times repetitions that one step may have

NOT_MODELLED = (
    "activations inside a layer and the embedding's gradient: counted as occupied memory, not as traffic of the "
    "GPU's memory",
    "the arithmetic of Adam (its bytes are counted), that of gradient norms and what it reads of the GPU's memory",
    "data loading, loss scaling, checkpoints to disk",
)


@dataclass(frozen=True, slots=True)
class TrainingWorkload:
    """One training step. batch : sequences of the step, over all GPUs and micro-batches. context : tokens of each.

    micro_batches : parts of the batch that run one after another before the update.
    """

    batch: int = 1
    context: int = 2048
    micro_batches: int = 1


@dataclass(frozen=True, slots=True)
class Training:
    """Where the state of training lives, and where it is used.

    parameters, gradients, optimizer : a memory, or a range of memories with an equal part in each. "" for gradients is
    where the update runs. optimizer_on : a processor or range, "" for the optimizer's own (a drive's: the nearest).
    compute : the GPU or range of GPUs that runs forward and backward ("" where there is one). checkpoints : "" for the
    GPU's memory, a memory, or "none" (all activations are kept and nothing is computed again). every : layers for each
    checkpoint. gradient_bytes : 2 or 4, of a gradient once it leaves. delayed : the update runs beside the next step's
    passes, which use parameters of one step before. gpu_share : of the optimizer's states that is kept in the GPU's
    memory and updated there. stage : 3 splits parameters over the GPUs, 2 keeps all in each. reuse : the backward pass
    uses the copy that recomputation fetched. gradient_clipping : no update starts before the norm of all gradients is
    known. reserve : bytes kept free on each GPU [B]. host_memory, costs : as of
    `Placement`.
    """

    parameters: str
    optimizer: str
    gradients: str = ""
    optimizer_on: str = ""
    compute: str = ""
    checkpoints: str = ""
    every: int = 1
    gradient_bytes: int = 2
    delayed: bool = False
    gpu_share: float = 0.0
    stage: int = 3
    reuse: bool = True
    reserve: int | None = None
    host_memory: str = "pinned"
    costs: tuple[Cost, ...] = ()
    gradient_clipping: bool = False


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """What a report needs to know of a training step.

    model_flops : 3 times a forward pass (6 for each weight and token, and attention's). hardware_flops : with what is
    computed again. layer_flops : of the layers' weights alone, computed again ones included, as ZeRO-Infinity counts.
    forward_blocks : blocks of one forward pass, the first ones. updates : names of the update's tasks. own, optimizer :
    the GPUs' memories and those of the optimizer's states.
    """

    tokens: int
    parameters: int
    layer_parameters: int
    gpus: tuple[str, ...]
    format: str
    model_flops: int
    hardware_flops: int
    layer_flops: int
    forward_blocks: int
    micro_batches: int
    updates: frozenset[str]
    recomputes: bool
    delayed: bool
    own: tuple[str, ...]
    optimizer: tuple[str, ...]


def plan_training(
    model: Model, topology: Topology, workload: TrainingWorkload, training: Training, *, weights: str = "bf16",
    overlap: Overlap | None = None,
) -> Plan:
    """The plan of one training step (see `Training`), of all micro-batches and the update.

    weights : "bf16" or "fp16", which forward and backward compute in. Raises PlanError with the key that is wrong
    (`training.optimizer: ...`), ModelError for a model that has no such layers.
    """
    homes = homes_of(topology, training)
    _check_numbers(model, workload, training, homes, weights)
    pieces = _pieces(model, workload, training)
    tasks = TrainingTasks(topology, training, homes, pieces, _checkpoint_bytes(model, workload), weights)
    blocks: list[Block] = []
    forward_blocks = 0
    for number in range(workload.micro_batches):
        last = number == workload.micro_batches - 1
        for piece, run in groupby(pieces[:-1]):
            found = tasks.forward(piece)
            if found:
                blocks.append(Block(found, len(list(run))))
        forward_blocks = forward_blocks or len(blocks)
        for piece, run in groupby(reversed(pieces)):
            blocks.append(Block(tasks.backward(piece, number, last), len(list(run))))
    for made in (tasks.clipped, tasks.replacing):
        for piece, run in groupby(reversed(pieces)):
            if found := made(piece):
                blocks.append(Block(found, len(list(run))))
    count = sum(len(block.tasks) * block.repeat for block in blocks)
    if count > MOST_TASKS:
        raise PlanError(f"workload.micro_batches: {workload.micro_batches} of them are {count:,} tasks, of which "
                        f"{MOST_TASKS:,} are laid out. Plan fewer: each costs the same.")
    facts = _facts(model, workload, training, homes, pieces, weights, forward_blocks, tasks.updates)
    asked = {"batch": workload.batch, "context": workload.context}
    if workload.micro_batches > 1:
        asked["micro_batches"] = workload.micro_batches
    words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in asked.items())
    return Plan(
        title=f"{model.name} {weights}, train, {words}",
        tensors=tasks.tensors,
        blocks=tuple(blocks),
        tokens=workload.batch * workload.context,
        sequences=workload.batch,
        in_flight=2 if training.delayed else 1,
        overlap=overlap or Overlap(),
        held=_held(model, topology, workload, training, homes),
        workload={"phase": "train", "model": model.name, "weights": weights, **asked},
        assumptions=_assumptions(model, topology, workload, training, homes),
        not_modelled=NOT_MODELLED,
        carried=tasks.carried(),
        training=facts,
    )


# --- where things are ---


def homes_of(topology: Topology, training: Training) -> Homes:
    """Memories and processors by name, what is left out filled in. Raises PlanError with the key."""
    gpus = _gpus(topology, training.compute)
    own = memories_of(topology, gpus)
    parameters = _memories(topology, "parameters", training.parameters)
    optimizer = _memories(topology, "optimizer", training.optimizer)
    if training.optimizer_on:
        there = in_short(training.optimizer_on)
        _known(topology.processors, "optimizer_on", "processor", there, topology)
    elif optimizer == own:
        there = gpus
    else:
        found = []
        for name in listed(optimizer):
            near = sorted(topology.processors_of(name), key=lambda one: topology.processors[one].kind == "gpu")
            found.append(near[0] if near else topology.nearest_processor(name))
        there = fold(list(dict.fromkeys(found)))
    update = memories_of(topology, there)
    gradients = _memories(topology, "gradients", training.gradients) if training.gradients else update
    checkpoints = training.checkpoints or own
    if checkpoints != "none":
        checkpoints = _memories(topology, "checkpoints", checkpoints, ("none",))
    homes = Homes(gpus, own, parameters, gradients, optimizer, there, update, checkpoints)
    _check_homes(topology, training, homes)
    return homes


def _gpus(topology: Topology, compute: str) -> str:
    gpus = [name for name, one in topology.processors.items() if one.kind == "gpu"]
    if compute:
        names = in_short(compute)
        _known(topology.processors, "compute", "processor", names, topology)
        return names
    if len(gpus) != 1:
        has = "no GPU" if not gpus else f"{len(gpus)} GPUs, {fold(gpus)}"
        raise PlanError(f"training.compute: {topology.name} has {has}. Say what computes, as `compute: "
                        f"{fold(gpus) if gpus else 'gpu0'}`.")
    return gpus[0]


def _known(known: Mapping[str, Any], key: str, kind: str, names: str, topology: Topology, also: Sequence[str] = ()
           ) -> None:
    try:
        each = listed(names)
    except ValueError as error:
        raise PlanError(f"training.{key}: {error}") from None
    for name in each:
        if name not in known:
            other = topology.processors if kind == "memory" else topology.memories
            if name in other:
                hint = f"it is a {'processor' if kind == 'memory' else 'memory'}; " + (
                    f"its memory is {topology.memory_of(name)}." if kind == "memory" else f"name a {kind}.")
                raise PlanError(f'training.{key}: "{name}" is no {kind}: {hint}')
            hint = did_you_mean(name, [*also, *known], f"{kind.capitalize()} names")
            raise PlanError(f'training.{key}: no {kind} "{name}" in topology {topology.name}. {hint}')


def _memories(topology: Topology, key: str, text: str, also: Sequence[str] = ()) -> str:
    names = in_short(text)
    _known(topology.memories, key, "memory", names, topology, also)
    return names


def _check_homes(topology: Topology, training: Training, homes: Homes) -> None:
    """Raises PlanError where names do not go together."""
    own, ranks = listed(homes.own), len(listed(homes.compute))
    if len(own) < ranks:
        raise PlanError(f"training.compute: {homes.compute} share a memory; ranks that work alike each have one.")
    for name in listed(homes.compute):
        if topology.processors[name].kind != "gpu":
            raise PlanError(f"training.compute: {name} is a CPU. Forward and backward run on a GPU here.")
    if homes.update != homes.own and set(listed(homes.update)) & set(own):
        raise PlanError(f"training.optimizer_on: of {homes.compute} all update, or none. Write {homes.compute}.")
    if homes.update != homes.own and any(topology.processors[name].kind == "gpu" for name in listed(homes.update_on)):
        raise PlanError(f"training.optimizer_on: {homes.update_on} does not compute here. Write {homes.compute}, or a "
                        "CPU.")
    for key, names in (("parameters", homes.parameters), ("gradients", homes.gradients),
                       ("optimizer", homes.optimizer), ("checkpoints", homes.checkpoints)):
        some = [name for name in listed(names) if name in own] if names != "none" else []
        if some and (len(some) < len(own) or len(some) < len(listed(names))):
            raise PlanError(f"training.{key}: {names} is not the memory of {homes.compute}. Write {homes.own}, an "
                            "equal part in each, or a memory that is none of theirs.")
        if not some and names != "none" and ranks % len(listed(names)):
            raise PlanError(f"training.{key}: {len(listed(names))} memories do not go evenly with {ranks} GPUs.")
        for name in listed(names) if names != "none" and not some else ():
            if topology.memories[name].kind == "hbm":
                raise PlanError(f"training.{key}: {name} is the memory of a GPU that does not compute here. Write "
                                f"{homes.own}, or host memory or a drive.")
    if len(listed(homes.optimizer)) % len(listed(homes.update)) and len(listed(homes.update)) % len(
            listed(homes.optimizer)):
        raise PlanError(f"training.optimizer_on: {homes.update_on} do not go evenly with {homes.optimizer}.")


def _check_numbers(model: Model, workload: TrainingWorkload, training: Training, homes: Homes, weights: str) -> None:
    """Raises PlanError where figures do not go together, or a key has no effect with the others."""
    if weights not in ("bf16", "fp16"):
        raise PlanError(f"model.weights: training computes in 16 bits and keeps 32-bit states besides; {weights} is no "
                        "format for it. Write bf16 or fp16.")
    for key in ("batch", "context", "micro_batches"):
        value = getattr(workload, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PlanError(f"workload.{key}: {value!r} must be a whole number of at least 1.")
    ranks = len(listed(homes.compute))
    parts = ranks * workload.micro_batches
    if workload.batch % parts:
        over = f"{ranks} GPUs" + (f" and {workload.micro_batches} micro-batches" if workload.micro_batches > 1 else "")
        near = max(parts, workload.batch - workload.batch % parts)
        raise PlanError(f"workload.batch: {workload.batch} sequences do not split evenly over {over}. The batch counts "
                        f"all of them: write a multiple of {parts}, as {near}.")
    if not 0 <= training.gpu_share < 1:
        raise PlanError(f"training.gpu_share: {training.gpu_share:g} is a share below 1. For all of the states on the "
                        f"GPU write `optimizer: {homes.own}`.")
    if not 1 <= training.every <= model.layers:
        raise PlanError(f"training.every: {training.every} layers for each checkpoint, and the model has "
                        f"{model.layers}.")
    if homes.checkpoints == "none" and training.every != 1:
        raise PlanError("training.every: without checkpoints it says nothing. Drop it.")
    if homes.checkpoints == "none" and not training.reuse:
        raise PlanError("training.reuse: without checkpoints nothing is computed again. Drop it.")
    if not training.reuse and homes.parameters == homes.own and (ranks == 1 or training.stage == 2):
        raise PlanError(f"training.reuse: the parameters are in {homes.own} and nothing is fetched. Drop it.")
    if training.delayed and homes.update_on == homes.compute:
        raise PlanError("training.delayed: the update runs on the GPU, which has the passes to run. Only an update "
                        "elsewhere runs beside them: drop it, or say `optimizer_on`.")
    if training.gpu_share and homes.update == homes.own:
        raise PlanError(f"training.gpu_share: {homes.update_on} updates all of it already. Drop it.")
    if training.gpu_share and homes.parameters != homes.own:
        raise PlanError(f"training.gpu_share: what the GPU updates are parameters in its own memory. Write "
                        f"`parameters: {homes.own}`.")
    if training.stage not in (2, 3):
        raise PlanError(f"training.stage: {training.stage} is neither 2 nor 3.")
    if training.stage == 2 and ranks == 1:
        raise PlanError("training.stage: with one GPU nothing is split over GPUs. Drop it.")
    if training.stage == 2 and homes.parameters != homes.own:
        raise PlanError(f"training.stage: stage 2 keeps all parameters on each GPU. Write `parameters: {homes.own}`, "
                        "or stage 3.")
    if training.gradient_bytes not in (2, 4):
        raise PlanError(f"training.gradient_bytes: {training.gradient_bytes}; gradients have 2 bytes or 4.")


# --- what is counted ---


def _sequences(workload: TrainingWorkload) -> int:
    """Sequences of one micro-batch, over all GPUs."""
    return workload.batch // workload.micro_batches


def _checkpoint_bytes(model: Model, workload: TrainingWorkload) -> int:
    return _sequences(workload) * workload.context * model.hidden * HALF


def _pieces(model: Model, workload: TrainingWorkload, training: Training) -> list[Piece]:
    """Embedding, layers and head, each with its parameters and the FLOP of one micro-batch's forward pass."""
    tokens = _sequences(workload) * workload.context
    table = model.vocab * model.hidden
    found = [Piece("embedding", table, table, 0)]
    counted: dict[int, tuple[int, int]] = {}
    layers = layers_of(model)
    for number, layer in enumerate(layers):
        if id(layer) not in counted:
            attention = _sequences(workload) * prefill_flops(layer, 0, workload.context)
            counted[id(layer)] = (layer.parameters, tokens * layer_flops_of(layer) + attention)
        parameters, flops = counted[id(layer)]
        first = number % training.every == 0
        end = number % training.every == training.every - 1 or number == len(layers) - 1
        keeps = training.checkpoints != "none"
        found.append(Piece("layer", parameters, parameters, flops, keeps and first, keeps and end))
    rest = model.parameters - sum(piece.parameters for piece in found)
    flops = tokens * (head_flops(model) + outside_flops(model))
    found.append(Piece("head", rest, rest + (table if model.tied else 0), flops))
    return found


def _facts(
    model: Model, workload: TrainingWorkload, training: Training, homes: Homes, pieces: Sequence[Piece], weights: str,
    forward_blocks: int, updates: set[str],
) -> TrainingFacts:
    forward = workload.micro_batches * sum(piece.flops for piece in pieces)
    recomputes = homes.checkpoints != "none"
    again = workload.micro_batches * sum(piece.flops for piece in pieces if piece.kind == "layer") * recomputes
    tokens = workload.batch * workload.context
    layers = layers_of(model)
    weights_alone = tokens * sum(layer_flops_of(layer) for layer in layers)
    return TrainingFacts(
        tokens, model.parameters, sum(layer.parameters for layer in layers), tuple(listed(homes.compute)), weights,
        3 * forward, 3 * forward + again, (4 if recomputes else 3) * weights_alone, forward_blocks,
        workload.micro_batches, frozenset(updates), recomputes, training.delayed,
        tuple(listed(homes.own)), tuple(listed(homes.optimizer)))


def _held(
    model: Model, topology: Topology, workload: TrainingWorkload, training: Training, homes: Homes
) -> tuple[tuple[str, str, int], ...]:
    """On each GPU the runtime's reserve, and activations as an estimate."""
    ranks = len(listed(homes.compute))
    tokens = _sequences(workload) * workload.context // ranks
    alive = model.layers if homes.checkpoints == "none" else training.every
    size = tokens * (alive * ACTIVATIONS * model.hidden + LOGITS * model.vocab)
    reserve = RUNTIME_RESERVE if training.reserve is None else training.reserve
    held = [(memory, "activations (estimate)", size) for memory in listed(homes.own)]
    held += [(memory, "runtime reserve", reserve) for memory in listed(homes.own) if reserve]
    copied = homes.parameters != homes.own or (ranks > 1 and training.stage == 3)
    if training.every > 1 and copied and training.reuse and homes.checkpoints != "none":
        largest = max(layer.parameters for layer in layers_of(model))
        kept = (training.every - 1) * HALF * largest
        held += [(memory, "parameters from recomputation to backward", kept) for memory in listed(homes.own)]
    return tuple(held)


def _assumptions(
    model: Model, topology: Topology, workload: TrainingWorkload, training: Training, homes: Homes
) -> tuple[str, ...]:
    ranks = len(listed(homes.compute))
    states = STATES + HALF + training.gradient_bytes
    notes = [
        f"Adam with 32-bit states: {states} bytes of state for each of {model.parameters:,} parameters "
        f"({HALF} parameter, {training.gradient_bytes} gradient, {STATES} master copy, momentum and variance)",
        f"activations: an estimate, {ACTIVATIONS} bytes for each position, hidden size and layer that is held, and "
        f"{LOGITS} for each logit (Korthikanti et al. 2022, attention scores recomputed in the kernel)",
        "the gradient of a layer leaves as soon as it is made, and its update runs once " + (
            "the norm of all gradients is known, too (clipping)" if training.gradient_clipping else "it is there"),
    ]
    if homes.checkpoints != "none":
        each = "every layer" if training.every == 1 else f"every {training.every} layers"
        notes.append(f"a checkpoint of activations before {each}; layers are computed again in the backward pass")
    if training.delayed:
        where = (f"replace those in {homes.own} at the end of each step" if homes.parameters == homes.own
                 else f"are a second set in {homes.parameters}")
        notes.append("delayed update: a step computes with parameters that lack the update of the step before it; new "
                     f"ones {where}, and gradients are kept twice")
    if ranks > 1:
        each = "an equal part in each GPU's memory" if homes.parameters == homes.own else f"in {homes.parameters}"
        where = "all in each GPU's memory" if training.stage == 2 else f"{each}, gathered layer by layer"
        notes.append(f"data parallel over {homes.compute}: parameters {where}; gradients are summed and split "
                     "(reduce-scatter)")
        notes.append("a gathering or summing may run ahead of what uses it without limit")
    if any(layer.experts for layer in layers_of(model)):
        notes.append("every expert is taken to have tokens in each micro-batch: all parameters move and are updated")
    gpu = topology.memories[listed(homes.own)[0]]
    held = sum(size for memory, _, size in _held(model, topology, workload, training, homes)
               if memory == listed(homes.own)[0])
    need = states * model.parameters / ranks + held
    moved = {homes.parameters, homes.gradients, homes.optimizer} != {homes.own}
    if moved and gpu.capacity is not None and need <= gpu.capacity * gpu.count:
        notes.append(f"all state would fit in {homes.own} beside the activations (estimate), and nothing need be "
                     f"offloaded: parameters, gradients and optimizer in {homes.own}")
    if model.max_positions is not None and workload.context > model.max_positions:
        notes.append(f"context {workload.context:,} is beyond the {model.max_positions:,} positions that the model "
                     "states")
    return (*notes, *model.notes)
