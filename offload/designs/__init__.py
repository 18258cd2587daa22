"""Offload techniques as functions: (model, topology, workload, placement) -> Plan."""

from offload.designs.forward import plan_model
from offload.designs.parts import STAGES
from offload.designs.placement import (
    Cost,
    Experts,
    KvBlock,
    Placement,
    Portion,
    Workload,
    check_kv,
    portions_in_layers,
    runs,
)

__all__ = ["STAGES", "Cost", "Experts", "KvBlock", "Placement", "Portion", "Workload", "check_kv", "plan_model",
           "portions_in_layers", "runs"]  # fmt: skip
