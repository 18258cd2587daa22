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
from offload.designs.ranks import Parallel
from offload.designs.routing import ExpertCache, Routing
from offload.designs.training import plan_training
from offload.designs.training_homes import Training, TrainingWorkload

__all__ = ["STAGES", "Cost", "ExpertCache", "Experts", "KvBlock", "Parallel", "Placement", "Portion", "Routing",
           "Training", "TrainingWorkload", "Workload", "check_kv", "plan_model", "plan_training", "portions_in_layers",
           "runs"]  # fmt: skip
