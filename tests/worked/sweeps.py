"""Cases of sweeps and of exact numbers; and the step table, which is shown here because nothing may use one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.techniques import exactness, sweep_limits
from tests.worked import exactly, kind
from tests.worked.shapes import Optional, number, truth, whole


@kind(
    "sweep_roofline",
    resources=whole, transfers=whole, vary_capacity=Optional(truth), stream_bw=number, peak_flops=number,
)
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


@kind("float_limits", bytes_per_token=whole, tokens=whole, sequences=whole)
def float_limits(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which numbers hold the bytes of a cache exactly."""
    found = exactness(inputs["bytes_per_token"] * inputs["tokens"] * inputs["sequences"])
    return {
        "value": found.value,
        "exact_in_float64": found.float64,
        "exact_in_float32": found.float32,
        "int64_ok": found.int64,
    }
