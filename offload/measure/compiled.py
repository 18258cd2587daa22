"""The compiled loops, imported where they are due, with a place for what is compiled."""

from __future__ import annotations

from types import ModuleType


def loops() -> ModuleType:
    """`offload.measure.kernels`."""
    from offload.sweeps.machine_code import kept

    return kept("offload.measure.kernels")
