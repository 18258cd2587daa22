"""What a training plan says: where its state lives and where it is used, by name, and what does not go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offload.designs.placement import Cost, memories_of
from offload.designs.training_pieces import Homes
from offload.errors import PlanError, RouteError, TopologyError, did_you_mean
from offload.models import Model
from offload.ranges import fold, in_short, listed
from offload.topology import Topology


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
            try:
                found.append(near[0] if near else topology.nearest_processor(name))
            except TopologyError as error:
                raise PlanError(f"training.optimizer: {error}") from None
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
            raise PlanError(f"training.{key}: {len(listed(names))} memories do not go evenly with "
                            f"{ranks} GPU{'s' if ranks > 1 else ''}. Write a memory, or a range of as many as share "
                            "the GPUs evenly.")
        for name in listed(names) if names != "none" and not some else ():
            if topology.memories[name].kind == "hbm":
                raise PlanError(f"training.{key}: {name} is the memory of a GPU that does not compute here. Write "
                                f"{homes.own}, or host memory or a drive.")
    _check_updates(topology, training, homes)
    _check_ways(topology, training, homes)
    _check_exchange(topology, homes)
    if len(listed(homes.optimizer)) % len(listed(homes.update)) and len(listed(homes.update)) % len(
            listed(homes.optimizer)):
        raise PlanError(f"training.optimizer_on: {homes.update_on} do not go evenly with {homes.optimizer}.")


def _check_ways(topology: Topology, training: Training, homes: Homes) -> None:
    """Raises PlanError where no way leads from any memory of one home to one where it is used, or back."""
    on = "optimizer_on" if training.optimizer_on else "optimizer"
    gradients = "gradients" if training.gradients else on
    ways = [("parameters", homes.parameters, homes.own), ("parameters", homes.update, homes.parameters),
            (gradients, homes.own, homes.gradients), (gradients, homes.gradients, homes.update),
            (on, homes.optimizer, homes.update), (on, homes.update, homes.optimizer)]
    if homes.checkpoints != "none":
        ways += [("checkpoints", homes.own, homes.checkpoints), ("checkpoints", homes.checkpoints, homes.own)]
    for key, source, destination in ways:
        for name in listed(source) if source != destination else ():
            refused = []
            for other in listed(destination):
                try:
                    topology.route(name, other)
                except RouteError as error:
                    refused.append(error)
            if len(refused) == len(listed(destination)):
                raise PlanError(f"training.{key}: {refused[0]}")


def _check_exchange(topology: Topology, homes: Homes) -> None:
    """Raises PlanError where GPUs that add up gradients have no way to each other: each sends to the next one."""
    own, gpus = listed(homes.own), listed(homes.compute)
    for rank in range(len(own) if len(own) > 1 else 0):
        onto = (rank + 1) % len(own)
        try:
            topology.route(own[rank], own[onto])
        except RouteError as error:
            raise PlanError(f"training.compute: {gpus[rank]} and {gpus[onto]} exchange gradients. {error} Name GPUs "
                            "that reach each other.") from None


def _check_updates(topology: Topology, training: Training, homes: Homes) -> None:
    """Raises PlanError where a range of memories is but in part where the update runs: no move of all of it is one."""
    here = set(listed(homes.update))
    for key in ("parameters", "gradients", "optimizer"):
        names = getattr(homes, key)
        there = set(listed(names))
        if not here & there or here == there:
            continue
        who = f"{homes.update_on} update{'s' if len(here) == 1 else ''} in {homes.update}"
        if key == "optimizer" or (key == "gradients" and training.optimizer_on):
            near = fold(dict.fromkeys(topology.processors_of(name)[0] for name in listed(homes.optimizer)
                                      if topology.processors_of(name)))
            raise PlanError(f"training.optimizer_on: {who}, and {key} in {names} is there in part. Write "
                            f"`optimizer_on: {near}`, or `{key}: {homes.update}`.")
        raise PlanError(f"training.{key}: {who}, and {names} is there in part. Write `{key}: {homes.update}`, or "
                        f"`optimizer: {names}` and no `optimizer_on`.")


def check_numbers(model: Model, workload: TrainingWorkload, training: Training, homes: Homes, weights: str) -> None:
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
