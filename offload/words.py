"""A question in words instead of a file: a model, a server, and how many layers live at the GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_decode
from offload.documents import load_topology
from offload.documents.plan_file import weights_format
from offload.errors import PlanError
from offload.models import parse_model_name
from offload.plan import Overlap, Plan
from offload.readers import load_model
from offload.sensitivity import missing
from offload.topology import Topology


def plan_from_words(
    target: str,
    topology: str,
    *,
    gpu_layers: int | None = None,
    compute: str | None = None,
    kv: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    overlap: Overlap | None = None,
    weights: str | None = None,
    kv_format: str | None = None,
    reserve: int | None = None,
) -> tuple[Plan, Topology]:
    """The decode plan of MODEL[:FORMAT] (or a config.json) on a server, `gpu_layers` of it at the GPU.

    Without `gpu_layers` as many as fit. Raises OffloadError for what is not known or cannot be.
    """
    server = load_topology(topology)
    if Path(target).exists() or "/" in target or target.endswith(".json"):
        model, named = load_model(target, weights_known=weights is not None), None
    else:
        name, named = parse_model_name(target)
        model = load_model(name)
    if named and weights and named != weights:
        raise PlanError(f'"{target}" already says {named}, --weights says {weights}: drop one of the two.')
    format_ = weights_format(model, weights or named)
    near, far = _memories(server)
    asked = Workload(batch=batch or 1, context=context or 4096)

    def plan_of(layers: int) -> Plan:
        if far is None:
            portions: tuple[tuple[str, Portion], ...] = ((near, Portion("rest")),)
        else:
            portions = ((near, Portion("layers", layers)), (far, Portion("rest")))
        extra = {} if reserve is None else {"reserve": reserve}
        placed = Placement(portions, compute or ("local" if far is not None else server.processors_of(near)[0]),
                           kv or "with layer", **extra)
        return plan_decode(model, server, asked, placed, weights=format_, kv=kv_format or "f16", overlap=overlap)

    if gpu_layers is not None:
        if far is None and gpu_layers != model.layers:
            raise PlanError(f"{server.name} has one memory for its GPU and CPU ({near}): drop --gpu-layers.")
        return plan_of(gpu_layers), server
    if far is None:
        return plan_of(model.layers), server
    return plan_of(_most_that_fit(plan_of, server, near, model.layers)), server


def _most_that_fit(plan_of: Callable[[int], Plan], server: Topology, memory: str, layers: int) -> int:
    low, high = 0, layers
    while low < high:
        middle = (low + high + 1) // 2
        if memory in missing(compile_step(server, plan_of(middle))):
            high = middle - 1
        else:
            low = middle
    return low


def _memories(server: Topology) -> tuple[str, str | None]:
    """The GPU's memory and the host's; None where they are one (unified)."""
    gpus = sorted(name for name, processor in server.processors.items() if processor.kind == "gpu")
    if len(gpus) != 1:
        raise PlanError(f"{server.name} has {len(gpus)} GPUs; without a plan file it needs exactly one. "
                        "Write a plan file that says where the layers live.")
    near = server.memory_of(gpus[0])
    hosts = sorted(name for name, memory in server.memories.items() if memory.kind == "dram" and name != near)
    if server.memories[near].kind == "unified" or not hosts:
        return near, None
    return near, hosts[0]
