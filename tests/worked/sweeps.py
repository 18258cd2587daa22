"""Cases of sweeps and of exact numbers; and the step table, which is shown here because nothing may use one."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from offload.techniques import exactness, sweep_limits
from tests.worked import exactly, kind


@kind("sweep_roofline")
def sweep_roofline(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What bounds a sweep over inputs in memory."""
    found = sweep_limits(
        inputs["resources"],
        inputs["transfers"],
        vary_capacity=inputs.get("vary_capacity", True),
        stream_rate=exactly(inputs["stream_bw"]),
        flop_rate=exactly(inputs["peak_flops"]),
    )
    return {
        "bytes_per_config": found.bytes_per_point,
        "ops_per_config": found.ops_per_point,
        "memory_limit_configs_per_s": found.by_memory,
        "compute_limit_configs_per_s": found.by_compute,
        "limit_configs_per_s": found.limit,
    }


@kind("float_limits")
def float_limits(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which numbers hold the bytes of a cache exactly."""
    found = exactness(inputs["bytes_per_token"] * inputs["tokens"] * inputs["sequences"])
    return {
        "value": found.value,
        "exact_in_float64": found.float64,
        "exact_in_float32": found.float32,
        "int64_ok": found.int64,
    }


def step_table_seconds(size: Fraction, rate: Fraction, table: list[list[Fraction]]) -> Fraction:
    """Size / (rate x efficiency), the efficiency that of the largest threshold up to the size.

    Falls where a threshold is passed: a larger transfer is predicted to be faster. The package has no such table.
    """
    share = max((row for row in table if row[0] <= size), key=lambda row: row[0])[1]
    return size / (rate * share)


@kind("step_table_time")
def step_table_time(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Times by an efficiency that is a step function of the size."""
    given = exactly(inputs)
    return {
        "time_by_size": {
            size: step_table_seconds(size, given["bandwidth"], given["table"]) for size in given["sizes"]
        }
    }
