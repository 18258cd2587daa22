"""A training plan of a file (`workload: {phase: train}` and `training`): shape, checks, and the Plan it makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from offload.designs import Training, TrainingWorkload, plan_training
from offload.documents.idle_keys import idle_buffers
from offload.documents.idle_training import idle_training, idle_words
from offload.documents.marks import Document, as_written
from offload.documents.shapes import ByteCount, Shape, Share
from offload.errors import ModelError, PlanError, TopologyError
from offload.models.architecture import STATED
from offload.plan import Plan, Transfer
from offload.topology import Topology

CONTEXT = 2048  # tokens of a sequence, where none is said
TRAIN = "Train takes {batch: 8, context: 2048, micro_batches: 1}: sequences of a step in all, and tokens of each."
KEYS = ("phase", "batch", "context", "micro_batches")  # of `workload`
OTHER_PHASES = ("decode", "prefill", "generate", "denoise")
EXAMPLE = "training: {parameters: hbm0, optimizer: dram0}"
NAMES = ("forward", "backward", "embedding", "embedding backward", "head")  # of tasks, beside those that start with
STARTS = ("fetch ", "gather ", "reduce ", "gradients", "checkpoint", "bring ", "states", "update",
          "parameters", "previous.")  # fmt: skip
_LAYERS = re.compile(r"([1-9]\d{0,5}) +layers?")


def _every(value: object) -> int:
    """`1 layer`, `2 layers`."""
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    if match := _LAYERS.fullmatch(text):
        return int(match[1])
    if re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ValueError(f'"{text}" has no unit. Write "{text} layer{"" if text == "1" else "s"}".')
    raise ValueError(f'"{text}" is no number of layers. Write "1 layer", or "2 layers" for a checkpoint before every '
                     "second one.")


class TrainingShape(Shape):
    """Where the state of training lives, and what uses it where."""

    model_config = ConfigDict(title="training")
    parameters: str
    optimizer: str
    gradients: str = ""
    optimizer_on: str = ""
    compute: str = ""
    checkpoints: str = ""
    every: Annotated[int, BeforeValidator(_every)] = 1
    gradient_format: Literal["16-bit", "32-bit"] = "16-bit"
    delayed: bool = False
    gpu_share: Share = 0.0
    stage: Annotated[int, BeforeValidator(lambda value: _stage(value))] = 3
    reuse: bool = True
    gradient_clipping: Annotated[bool, BeforeValidator(lambda value: _clipping(value))] = False
    reserve: ByteCount | None = None
    host_memory: Literal["pinned", "pageable", "page cache"] = "pinned"


def _stage(value: object) -> int:
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    if text in ("2", "3"):
        return int(text)
    raise ValueError(f'"{text}" is no stage. Write 3 (parameters are split over the GPUs), or 2 (each GPU has all).')


def _clipping(value: object) -> object:
    """`true` or `false`; a norm is refused with what is meant."""
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        text = as_written(value)
        if re.fullmatch(r"\d*\.?\d+", text) and float(text) > 0:
            raise ValueError(f'"{text}" is the norm to clip at, which changes no time. Write true.')
    return value


def trains(document: Document) -> bool:
    """Whether a document is a training plan, by its key or its phase."""
    return "training" in document.value or document.get(("workload", "phase")) == "train"


def plan_by_training(
    document: Document, shape: Any, topology: Topology | None, costs: tuple[Any, ...],
    read_model: Callable[[], tuple[Any, str]],
) -> Plan | None:
    """The plan of a training step; None where the document has mistakes, which are noted in it.

    shape : the `PlanShape`. costs : its named costs. read_model : the model and its weights' format, as a plan by
    placement reads them.
    """
    if "model" not in document.value:
        document.mistake((), 'the key "model" is missing.')
    if "placement" in document.value:
        document.reject(("placement",), 'phase train has "training" instead, which says where everything lives: '
                        f"{EXAMPLE}.")
    elif "training" not in document.value:
        document.mistake((), f'the key "training" is missing. Write {EXAMPLE}.')
    if "speculation" in document.value:
        document.reject(("speculation",), "tokens are guessed where a model decodes, and training does not. Drop it.")
    for key in ("tokens", "in_flight"):
        if key in document.value:
            document.mistake((key,), f'"{key}" at the top belongs to a plan by hand; a training step yields batch x '
                             "context tokens.", key=True)
    workload = _workload(document, shape.workload)
    for cost in costs:
        if cost.name in NAMES or cost.name.startswith(STARTS):
            text = f'"{cost.name}" is a task of the step itself. Name the cost for what it is, as "sync".'
            document.mistake(("costs", cost.name), text, key=True)
        if cost.each == "hand-over":
            document.mistake(("costs", cost.name, "each"),
                             "in training no hidden row passes to another processor. Write layer or step.")
    asked = shape.training
    if asked is not None:
        _without_effect(document, asked)
    model, weights = read_model() if shape.model is not None else (None, "")
    if model is not None and model.family == STATED:
        document.mistake(("model", "blocks"), "training counts a model's matrices and activations, and blocks state "
                         "neither. Name a model, or give its config.", key=True)  # fmt: skip
    if shape.model is not None and shape.model.kv is not None:
        document.reject(("model", "kv"), "training keeps no KV cache. Drop it.")
    if document.mistakes or model is None or asked is None or workload is None or topology is None:
        return None
    training = Training(
        asked.parameters, asked.optimizer, asked.gradients, asked.optimizer_on, asked.compute, asked.checkpoints,
        asked.every, 4 if asked.gradient_format == "32-bit" else 2, asked.delayed, asked.gpu_share, asked.stage,
        asked.reuse, asked.reserve, asked.host_memory, costs, asked.gradient_clipping)  # fmt: skip
    try:
        plan = plan_training(model, topology, workload, training, weights=weights, overlap=shape.overlap)
    except (PlanError, ModelError, TopologyError) as error:
        _note(document, str(error))
        return None
    idle_words(document, model, topology, workload, training, weights)
    if document.mistakes:
        return None
    notes = (*_idle_host_memory(asked.host_memory, topology, plan), *idle_buffers(plan, "overlap"),
             *idle_training(plan, training, lambda other: plan_training(
                 model, topology, workload, other, weights=weights, overlap=shape.overlap)))  # fmt: skip
    return replace(plan, title=shape.title or plan.title, assumptions=(*plan.assumptions, *notes))


def _idle_host_memory(given: str, topology: Topology, plan: Plan) -> tuple[str, ...]:
    """A note where it is said how copies pass host memory, and nothing is moved that could."""
    ends = {name for block in plan.blocks for task in block.tasks if isinstance(task, Transfer)
            for name in (task.to, *task.ranks, *(home for home, _ in plan.tensors[task.tensor].home))}  # fmt: skip
    if given == "pinned" or any(topology.memories[name].kind != "hbm" for name in ends):
        return ()
    return (f"training.host_memory: {given} changes nothing here: nothing is moved to or from host memory or a drive",)


def _note(document: Document, text: str) -> None:
    """The error at its key: what the design refuses starts with one."""
    head, found, rest = text.partition(": ")
    place = tuple(head.split("."))
    if not found or " " in head or place[0] not in ("training", "workload", "model"):
        document.mistake(("training",), text)
        return
    if place == ("training", "gradient_bytes"):
        place = ("training", "gradient_format")
    there = document.get(place) is not None
    document.mistake(place if there else place[:1], rest if there else f"{place[-1]}: {rest}")


def _workload(document: Document, shape: Any) -> TrainingWorkload | None:
    given, phase = document.get(("workload",)), document.get(("workload", "phase"))
    if phase in OTHER_PHASES:
        document.mistake(("workload", "phase"), f'"training" goes with phase train, and this is {phase}. Write '
                         "phase: train, or drop the key \"training\".")
        return None
    if given is None or (isinstance(given, dict) and "phase" not in given):
        document.mistake(("workload",) if given is not None else (), 'a training plan says its phase. Write workload: '
                         "{phase: train, batch: 8, context: 2048}.")
        return None
    if shape is None:
        return None  # its mistakes are told
    sound = True
    for key in given:
        if key not in KEYS:
            document.reject(("workload", key), f'"{key}" does not belong to phase train. {TRAIN}')
            sound = False
    if shape.context == 0:
        document.mistake(("workload", "context"), "a sequence has at least 1 token.")
        sound = False
    if not sound:
        return None
    return TrainingWorkload(shape.batch, shape.context or CONTEXT, shape.micro_batches or 1)


def _without_effect(document: Document, asked: TrainingShape) -> None:
    """Keys that are written and say nothing with the others."""
    given = document.get(("training",))
    if asked.checkpoints == "none":
        for key in ("every", "reuse"):
            if key in given:
                document.mistake(("training", key), "without checkpoints nothing is computed again, and it says "
                                 "nothing. Drop it, or name a memory for checkpoints.", key=True)
