"""Offload techniques as functions: (model, topology, workload, placement) -> Plan."""

from offload.designs.decode import plan_decode
from offload.designs.placement import Placement, Portion, Workload, check_kv, portions_in_layers, runs

__all__ = ["Placement", "Portion", "Workload", "check_kv", "plan_decode", "portions_in_layers", "runs"]
