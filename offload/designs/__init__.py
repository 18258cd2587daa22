"""Offload techniques as functions: (model, topology, workload, placement) -> Plan."""

from offload.designs.decode import plan_decode
from offload.designs.placement import Placement, Portion, Workload

__all__ = ["Placement", "Portion", "Workload", "plan_decode"]
