"""Cases of loads over rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.bounds import load_bound
from tests.worked import exactly, kind
from tests.worked.shapes import rates, transfers


@kind("load_bound_case", caps=rates, transfers=transfers)
def load_bound_case(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """T = max_r L_r / B_r with its tie set."""
    given = exactly(inputs)
    bound = load_bound(given["caps"], [(one["bytes"], one["use"]) for one in given["transfers"]])
    return {"T": bound.seconds, "resource_time": bound.resource_seconds, "bottleneck": list(bound.bottleneck)}
