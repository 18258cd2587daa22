"""How fast one step can be when tensors live in other memories than the one that computes, and what binds it.

Public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from offload.bounds import floor as floor
    from offload.comparison import compare as compare
    from offload.compiler import compile_step as compile_step
    from offload.documents import load_plan as load_plan
    from offload.documents import load_topology as load_topology
    from offload.errors import OffloadError as OffloadError
    from offload.models import Model as Model
    from offload.models import memory_budget as memory_budget
    from offload.plan import Plan as Plan
    from offload.readers import load_model as load_model
    from offload.readers.weight_files import read_weights as read_weights
    from offload.schedules import schedule as schedule
    from offload.study import Study as Study
    from offload.study import evaluate as evaluate
    from offload.sweeps import sweep as sweep
    from offload.topology import Topology as Topology

_HOMES = {
    "Model": "offload.models",
    "OffloadError": "offload.errors",
    "Plan": "offload.plan",
    "Study": "offload.study",
    "Topology": "offload.topology",
    "compare": "offload.comparison",
    "compile_step": "offload.compiler",
    "evaluate": "offload.study",
    "floor": "offload.bounds",
    "load_model": "offload.readers",
    "load_plan": "offload.documents",
    "load_topology": "offload.documents",
    "memory_budget": "offload.models",
    "read_weights": "offload.readers.weight_files",
    "schedule": "offload.schedules",
    "sweep": "offload.sweeps",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'offload' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
