"""A model's layers as what one of several ranks holds: which tensors they share and which each has in full."""

from __future__ import annotations

from dataclasses import replace

from offload.models.architecture import Layer, Matrix, Model, layer_tensors, layers_of
from offload.models.serving import LayerBytes, Sizes
from offload.models.weights import is_stored, weight_format
from offload.models.whole import ceil_div

# Held by every tensor-parallel rank in full, as vLLM does; norms and biases are too.
WHOLE = ("attn_q_a", "attn_kv_a", "router", "index_q", "index_k", "index_weights")
LIGHTER = {"fp32": "bf16", "bf16": "fp8", "fp16": "fp8", "fp8": "int4-g128", "int8": "int4-g128", "q8_0": "q4_k_m"}


def layer_bytes(model: Model, format: str, tp: int = 1) -> tuple[LayerBytes, ...]:
    """Each layer's weights in a format as `tp` ranks hold them, with what it keeps. Raises ModelError as `weigh`.

    Key and value projections go with their heads, of which each rank has ceil(heads / tp).
    """
    if is_stored(model, format):
        parts: dict[int | None, list[tuple[Matrix, int]]] = {}
        for one, size in model.stored.parts:
            parts.setdefault(one.layer, []).append((one, ceil_div(size, one.copies)))
        return tuple(_layer(layer, parts.get(index, []), tp) for index, layer in enumerate(layers_of(model)))
    _, (rule, _, _, mixture) = weight_format(format)
    known: dict[object, LayerBytes] = {}
    found = []
    for index, layer in enumerate(layers_of(model)):
        key = index if mixture else id(layer)  # a mixture depends on the place
        if key not in known:
            sizes = [(one, rule(model, replace(one, copies=1), {})) for one in layer_tensors(model, index)]
            known[key] = _layer(layer, sizes, tp)
        found.append(known[key])
    return tuple(found)


def _layer(layer: Layer, tensors: list[tuple[Matrix, int]], tp: int) -> LayerBytes:
    """tensors : each with the bytes of one of its copies."""
    split = whole = experts = expert = 0
    heads = layer.cache.heads
    for one, size in tensors:
        if one.used is not None:
            experts, expert = one.copies, expert + size
        elif not one.is_matrix or one.role in WHOLE:
            whole += one.copies * size
        elif one.role in ("attn_k", "attn_v") and heads and tp > 1:
            whole += ceil_div(size * ceil_div(heads, tp), heads)
        else:
            split += one.copies * size
    return LayerBytes(split, whole, experts, expert, layer.cache, layer.state)


def sizes_of(model: Model) -> Sizes:
    """What the estimate of activations needs of a model."""
    return Sizes(model.hidden, max(1, model.heads * model.head_dim), model.kv_heads * model.head_dim,
                 max(1, model.ffn), model.vocab)  # fmt: skip
