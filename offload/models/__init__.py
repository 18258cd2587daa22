"""Models as what they cost: layers, parameters, weight and KV bytes, FLOP, and how many requests a memory holds."""

from offload.models.architecture import (
    Layer,
    Matrix,
    Model,
    attention_flops,
    head_flops,
    layer_flops,
    layer_flops_of,
    layers_of,
    tensors,
)
from offload.models.budget import MemoryBudget, kv_bytes, memory_budget
from offload.models.cache import Cache, State
from offload.models.catalogue import catalogue, parse_model_name
from offload.models.weights import WEIGHT_FORMATS, Weights, weigh

__all__ = [
    "WEIGHT_FORMATS", "Cache", "Layer", "Matrix", "MemoryBudget", "Model", "State", "Weights", "attention_flops",
    "catalogue", "head_flops", "kv_bytes", "layer_flops", "layer_flops_of", "layers_of", "memory_budget",
    "parse_model_name", "tensors", "weigh",
]  # fmt: skip
