"""One training step with state offloaded: forward, backward and update, layer by layer, as a Plan.

Mixed precision with Adam: a parameter is 2 bytes where it is computed with, its gradient 2 (or 4), and 12 more of
master copy, momentum and variance are read and written by each update. Each of the three lives in a memory of its own;
what lives elsewhere than where it is used is moved, and an update runs as soon as the gradient of its layer is there.
Sources: Ren et al. 2021 (ZeRO-Offload), Rajbhandari et al. 2021 (ZeRO-Infinity), DeepSpeed's ZeRO-Offload++
(Twin-Flow); activations: Korthikanti et al. 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from offload.designs.placement import RUNTIME_RESERVE
from offload.designs.training_homes import Training, TrainingWorkload, check_numbers, homes_of
from offload.designs.training_least import passes_of
from offload.designs.training_pieces import HALF, STATES, Homes, Piece
from offload.designs.training_tasks import TrainingTasks
from offload.errors import PlanError
from offload.models import Model, head_flops, layer_flops_of, layers_of
from offload.models.architecture import outside_flops
from offload.models.attention import prefill_flops
from offload.plan import Block, Compute, Overlap, Plan, Transfer
from offload.ranges import listed
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
class TrainingFacts:
    """What a report needs to know of a training step.

    model_flops : 3 times a forward pass (6 for each weight and token, and attention's). hardware_flops : with what is
    computed again. layer_flops : of the layers' weights alone, computed again ones included, as ZeRO-Infinity counts.
    forward_blocks : blocks of one forward pass, the first ones. updates : names of the update's tasks. own, optimizer :
    the GPUs' memories and those of the optimizer's states. asked : what `plan_training` made it of, so that it can be
    varied.
    """

    tokens: int
    parameters: int
    gpus: tuple[str, ...]
    format: str
    model_flops: float
    hardware_flops: float
    layer_flops: float
    forward_blocks: int
    micro_batches: int
    updates: frozenset[str]
    recomputes: bool
    delayed: bool
    own: tuple[str, ...]
    optimizer: tuple[str, ...]
    asked: tuple[Model, TrainingWorkload, Training, str]


def plan_training(
    model: Model, topology: Topology, workload: TrainingWorkload, training: Training, *, weights: str = "bf16",
    overlap: Overlap | None = None,
) -> Plan:
    """The plan of one training step (see `Training`), of all micro-batches and the update.

    weights : "bf16" or "fp16", which forward and backward compute in. Raises PlanError with the key that is wrong
    (`training.optimizer: ...`), ModelError for a model that has no such layers.
    """
    homes = homes_of(topology, training)
    check_numbers(model, workload, training, homes, weights)
    pieces = _pieces(model, workload, training)
    checkpoint = _checkpoint_bytes(model, workload)
    tasks = TrainingTasks(topology, training, homes, pieces, checkpoint, weights)
    blocks: list[Block] = []
    forward_blocks = 0
    sure = passes_of(topology, homes, pieces, checkpoint, workload.micro_batches)
    for number, kept in enumerate(sure):
        last = number == workload.micro_batches - 1
        for (piece, its), run in groupby(zip(pieces[:-1], kept.forward, strict=True)):
            found = tasks.forward(piece, its)
            if found:
                blocks.append(Block(found, len(list(run))))
        forward_blocks = forward_blocks or len(blocks)
        for (piece, its), run in groupby(zip(reversed(pieces), kept.backward, strict=True)):
            blocks.append(Block(tasks.backward(piece, number, last, its), len(list(run))))
    for made in (tasks.clipped, tasks.replacing):
        for piece, alike in groupby(reversed(pieces)):
            if found := made(piece):
                blocks.append(Block(found, len(list(alike))))
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
        assumptions=(*_without_effect(training, blocks), *_assumptions(model, topology, workload, training, homes)),
        not_modelled=NOT_MODELLED,
        carried=tasks.carried(),
        training=facts,
    )


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
    # Of an embedding that is no head too one row is sure; of two places where it may be updated, neither.
    sure = table if model.tied else 0 if training.gpu_share else model.hidden
    found = [Piece("embedding", table, table, 0, sure, model.hidden)]
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
        found.append(Piece("layer", parameters, parameters, flops, parameters, parameters, keeps and first,
                           keeps and end))
    rest = model.parameters - sum(piece.parameters for piece in found)
    flops = tokens * (head_flops(model) + outside_flops(model))
    used = rest + (table if model.tied else 0)
    found.append(Piece("head", rest, used, flops, rest, used))
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
        tokens, model.parameters, tuple(listed(homes.compute)), weights,
        3 * forward, 3 * forward + again, (4 if recomputes else 3) * weights_alone, forward_blocks,
        workload.micro_batches, frozenset(updates), recomputes, training.delayed,
        tuple(listed(homes.own)), tuple(listed(homes.optimizer)), (model, workload, training, weights))


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


def _without_effect(training: Training, blocks: Sequence[Block]) -> tuple[str, ...]:
    """Notes on what is said and changes nothing: all of it is on one GPU, which does one thing after another."""
    tasks = [task for block in blocks for task in block.tasks]
    notes = []
    if training.host_memory != "pinned" and not any(isinstance(task, Transfer) for task in tasks):
        notes.append(f"training.host_memory: {training.host_memory} changes nothing here: nothing is moved")
    if training.gradient_clipping and all(isinstance(task, Compute) for task in tasks):
        notes.append("training.gradient_clipping: true changes no time here: one GPU runs passes and updates one after "
                     "another, in whatever order")
    return tuple(notes)


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
        replaced = homes.parameters == homes.own != homes.update
        where = (f"replace those in {homes.own} at the end of each step" if replaced
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
