"""The compiled loops, imported where they are due, with a place for what is compiled, and with whole lines at a time.

A compiler takes half of a line at a time on most processors that could take all of it, as programs may run slower
beside wide operations. Loops over memory do not, and stores of whole lines are faster: a compiled STREAM has them too.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from offload.measure.ending import held_back, look


@cache
def loops() -> ModuleType:
    """`offload.measure.kernels`."""
    from offload.sweeps.machine_code import kept

    with held_back():
        _whole_lines()
        found: ModuleType = kept("offload.measure.kernels")
    look()
    return found


def _whole_lines() -> None:
    """Let numba use 64-byte operations where the processor has them, if it has compiled nothing yet and nobody said
    which it may use. What else it compiles in this process gives the same numbers: their width changes none.
    """
    import llvmlite.binding
    import numba
    from numba.core import registry

    settings: Any = numba.config
    if settings.CPU_FEATURES is not None:
        return
    features = llvmlite.binding.get_host_cpu_features()
    if not features.get("avx512f"):
        return
    settings.CPU_FEATURES = f"{features.flatten()},-prefer-256-bit"
    try:
        registry.cpu_target.target_context.codegen()  # which looks once
    finally:
        settings.CPU_FEATURES = None
