"""Cases of tasks that share resources as flows do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.fluid import FluidTask, max_min_rates, simulate
from tests.worked import exactly, kind
from tests.worked.shapes import Optional, named, names, number, rates, table, text


@kind("maxmin_rates", caps=rates, flows=named(rates), weights=Optional(rates))
def maxmin_rates(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Max-min fair rates of flows that run at once."""
    given = exactly(inputs)
    return {"rates": max_min_rates(given["caps"], given["flows"], given.get("weights"))}


@kind(
    "fluid_dag",
    caps=rates, tasks=named(table(work=number, use=rates, deps=Optional(names), alpha=Optional(number))),
    policy=Optional(text), weights=Optional(rates),
)
def fluid_dag(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Max-min fair simulation of a graph of tasks, and its bounds."""
    given = exactly(inputs)
    tasks = {name: FluidTask(**task) for name, task in given["tasks"].items()}
    found = simulate(given["caps"], tasks, given.get("policy", "max-min"), given.get("weights"), exact=True)
    bounds = found.bounds
    return {
        "sim_makespan": found.makespan,
        "start": found.start,
        "finish": found.finish,
        "utilisation": found.utilisation,
        "critical_path": bounds.critical_path,
        "load_bound": bounds.load,
        "head_body_tail_bound": bounds.order,
        "sum_solo": bounds.sum_solo,
        "sum_of_loads": bounds.sum_loads,
        "critical_delay": bounds.critical_delay,
    }
