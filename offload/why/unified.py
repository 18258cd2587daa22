"""Runs on a server whose GPU and CPU have one memory (Apple silicon, GB10, Strix Halo): nothing is copied or apart."""

from __future__ import annotations

from typing import Any

from offload.readers.engines.run import Run
from offload.why.notes import Notes
from offload.why.server import Place, gpu_layers

APART = ("experts", "tensors", "kv", "attention", "host_memory", "layout", "access")  # of two memories
ON_THE_CPU = ("cpu_moe", "n_cpu_moe", "override-tensor", "no_kv_offload")


def is_unified(place: Place) -> bool:
    """Whether the first GPU's memory is the host's."""
    return bool(place.gpus) and place.topology.memory_of(place.gpus[0]) == place.host


def in_one_memory(run: Run, place: Place, layers: int, found: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """The keys of a placement, all of it read by the GPU; what the log has on the CPU is told to be counted so.

    A placement with a drive stays as it is. layers : of the model.
    """
    if any(place.drive and place.drive in name for name in found.get("weights", {})):
        return found
    on_gpus = gpu_layers(run)
    if on_gpus is not None and on_gpus < layers or any(key in ON_THE_CPU for key, _, _ in run.settings):
        notes.assume(f"placement.compute: {place.gpus[0]} for all layers: GPU and CPU have one memory, and what the "
                     "log has on the CPU is counted as read by the GPU")  # fmt: skip
    kept = {key: value for key, value in found.items() if key not in APART}
    return kept | {"weights": {place.host: "rest"}, "compute": place.gpus[0]}
