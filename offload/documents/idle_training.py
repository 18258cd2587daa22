"""Keys of `training` that change nothing where they stand: refused where they cannot mean anything, else told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from offload.designs import Training, TrainingWorkload
from offload.designs.training_homes import check_numbers, homes_of
from offload.documents.marks import Document
from offload.errors import OffloadError, PlanError
from offload.models import Model
from offload.plan import Plan
from offload.topology import Topology

# Fields that say how something is done; the others name memories, which is true even where it is the default.
HOW = ("every", "gradient_bytes", "delayed", "gpu_share", "stage", "reuse", "gradient_clipping")
OTHERWISE = {"stage": 2, "reuse": False}  # what says the contrary of a default


def idle_words(
    document: Document, model: Model, topology: Topology, workload: TrainingWorkload, training: Training, weights: str
) -> None:
    """Note each key with its default that could not be otherwise, since what it speaks of is not there."""
    for key, other in OTHERWISE.items():
        if document.get(("training", key)) is None or getattr(training, key) == other:
            continue
        change: dict[str, Any] = {key: other}
        asked = replace(training, **change)
        try:
            check_numbers(model, workload, asked, homes_of(topology, asked), weights)
        except PlanError as error:
            head, _, rest = str(error).partition(": ")
            if head == f"training.{key}" and rest.endswith("Drop it."):
                document.mistake(("training", key), rest, key=True)


def idle_training(plan: Plan, training: Training, make: Callable[[Training], Plan]) -> list[str]:
    """A note for each field that is not as by default and changes nothing of the plan. make : the plan of another."""
    notes = []
    defaults: dict[str, Any] = {one.name: one.default for one in fields(Training)}
    for name in HOW:
        if getattr(training, name) == defaults[name]:
            continue
        try:
            same = _steps(make(replace(training, **{name: defaults[name]}))) == _steps(plan)
        except OffloadError:
            continue  # it is needed
        if same:
            key = "gradient_format" if name == "gradient_bytes" else name
            notes.append(f"training.{key} changes nothing here: the step is the same without it")
    return notes


def _steps(plan: Plan) -> Any:
    return dict(plan.tensors), plan.blocks, plan.held, plan.in_flight, plan.carried
