"""Offload techniques as functions: (model, topology, workload, placement) -> Plan."""

from offload.designs.forward import plan_model
from offload.designs.placement import Cost, Placement, Portion, Workload, check_kv, portions_in_layers, runs

__all__ = ["Cost", "Placement", "Portion", "Workload", "check_kv", "plan_model", "portions_in_layers", "runs"]
