"""What a log says of its buffers of weights beside what the plan that was made of it puts on GPUs."""

from __future__ import annotations

from typing import Any

from offload.models import weigh
from offload.readers.engines.run import Run
from offload.study import Study
from offload.units import format_bytes
from offload.why.model import Known
from offload.why.notes import Notes
from offload.why.server import HOST, LLAMA, Place, is_gpu

APART = 0.02  # of bytes that the log prints: more is told
PARTS = ("layer weights", "experts", "other weights", "output head", "final norm")  # the embedding stays on the CPU


def compare_buffers(
    run: Run, known: Known, place: Place, keys: dict[str, Any], study: Study, notes: Notes
) -> None:
    """Note where the log's buffers of weights are not what the plan has on GPUs: of llama.cpp each GPU by itself.

    Not of its GPUs that share each layer, nor where host and GPU have one memory.
    """
    _compare_all(run, known, place, keys, notes)
    if not run.engine.lower().startswith(LLAMA) or any(".." in name for name in keys["placement"].get("weights", {})):
        return
    held = {row.name: sum(row.parts.get(part, 0) for part in PARTS) for row in study.memory}
    for device, told in run.on("weights").items():
        memory = place.memory(device) if is_gpu(device) else ""
        if not memory or memory == place.host or device not in place.devices:
            continue
        ours = held.get(memory, 0)
        if abs(ours - told) > APART * told:
            notes.contradict(f"buffers: the log puts {format_bytes(told)} of weights on {device}, and of "
                             f"{known.model.name} in {known.weights} this plan has {format_bytes(ours)} there "
                             f"({memory}): layers or tensors are elsewhere than said, or of other formats")  # fmt: skip


def _compare_all(run: Run, known: Known, place: Place, keys: dict[str, Any], notes: Notes) -> None:
    """Note where the weights on GPUs of another engine are not those of a model that is on them as a whole.

    Where only some of the ranks that share each layer print theirs, these are compared with as many parts of it.
    """
    weights = keys["placement"].get("weights", {})
    told = [size for device, size in run.on("weights").items() if is_gpu(device)]
    if run.engine.lower().startswith(LLAMA) or not told or any(
            HOST.search(memory) or memory.startswith("ssd") for memory in weights) or (
            {"experts", "tensors"} & set(keys["placement"]) or len(weights) > 1 and run.pipeline):  # fmt: skip
        return
    ranks = max(len(place.gpus), 1)
    if len(told) > ranks or len(told) < ranks and run.pipeline is not None and run.pipeline.value > 1:
        return
    copies = run.replicas.value if run.replicas is not None else 1
    ours = weigh(known.model, known.weights).total * copies * len(told) / ranks
    if abs(sum(told) / ours - 1) > APART:
        part = f"{len(told)} of {ranks} GPUs" if len(told) < ranks else "GPUs"
        notes.contradict(f"buffers: the log puts {format_bytes(sum(told))} of weights on {part}, and what goes there "
                         f"of {known.model.name} in {known.weights} has {format_bytes(ours)} here")
