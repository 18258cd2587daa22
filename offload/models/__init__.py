"""Models as what they cost: layers, parameters, weight and KV bytes, FLOP, and how many requests a memory holds."""

from offload.models.architecture import Matrix, Model, attention_flops, head_flops, layer_flops, tensors
from offload.models.budget import MemoryBudget, kv_bytes, memory_budget
from offload.models.catalogue import catalogue, parse_model_name
from offload.models.weights import WEIGHT_FORMATS, Weights, weigh

__all__ = [
    "WEIGHT_FORMATS", "Matrix", "MemoryBudget", "Model", "Weights", "attention_flops", "catalogue", "head_flops",
    "kv_bytes", "layer_flops", "memory_budget", "parse_model_name", "tensors", "weigh",
]  # fmt: skip
