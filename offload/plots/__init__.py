"""Figures of results: each `plots.x(result, *, ax=None) -> Axes`, in one house style (`plots.style`).

    axes = plots.latency_floor(floor_curve(step), study=study)
    plots.save(axes, "floor.svg")                        # .svg, .png or .pdf; the same figure, the same bytes

Nothing is computed here but where ink goes. Names load on first use, Matplotlib when something is drawn.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Dot": "offload.plots.subject",
    "concurrency": "offload.plots.requests",
    "draw_concurrency": "offload.plots.requests",
    "draw_floor": "offload.plots.latency",
    "drives": "offload.plots.lines",
    "heat_map": "offload.plots.heat",
    "latency_floor": "offload.plots.latency",
    "load_bars": "offload.plots.loads",
    "memory_stack": "offload.plots.tiers",
    "over_axis": "offload.plots.over",
    "pareto_front": "offload.plots.fronts",
    "predicted": "offload.plots.against",
    "ranking": "offload.plots.ranks",
    "replayed": "offload.plots.runs",
    "residency": "offload.plots.lines",
    "roofline_chart": "offload.plots.roofs",
    "save": "offload.plots.style",
    "server": "offload.plots.machine",
    "swept": "offload.plots.over",
    "theme": "offload.plots.style",
    "timeline": "offload.plots.gantt",
    "waterfall": "offload.plots.falls",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'offload.plots' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
