"""A model's layers as what one of several ranks holds: which tensors they share and which each has in full."""

from __future__ import annotations

from dataclasses import replace

from offload.models.architecture import Layer, Matrix, Model, layer_tensors, layers_of
from offload.models.modules import is_listed
from offload.models.serving import LayerBytes, Sizes
from offload.models.weights import is_stored, own_skip, weight_format, wide_bytes
from offload.models.whole import ceil_div

# Held by every tensor-parallel rank in full, as vLLM does; norms and biases are too.
HEADED = ("attn_q", "attn_qkv", "attn_q_b", "attn_kv_b", "attn_output")  # go with the query heads
WHOLE = ("attn_q_a", "attn_kv_a", "router", "index_q", "index_k", "index_weights")


def layer_bytes(model: Model, format: str, tp: int = 1) -> tuple[LayerBytes, ...]:
    """Each layer's weights in a format as `tp` ranks hold them, with what it keeps. Raises ModelError as `weigh`.

    Key and value projections go with their heads, of which each rank has ceil(heads / tp); so do queries and the output
    where tp does not divide their heads. The fullest rank is counted.
    """
    known: dict[int, LayerBytes] = {}
    found = []
    for layer, tensors in zip(layers_of(model), _tensors(model, format), strict=True):
        if id(tensors) not in known:
            known[id(tensors)] = _layer(layer, tensors, tp)
        found.append(known[id(tensors)])
    return tuple(found)


def tensor_pieces(model: Model, format: str, tp: int = 1, ep: int = 1) -> tuple[tuple[int, ...], ...]:
    """The bytes of each layer's tensors on one rank, those of a rank's experts together as one. [B]

    As `LayerBytes.on_rank`, but for each tensor's own rounding up. Raises ModelError as `weigh`.
    """
    known: dict[int, tuple[int, ...]] = {}
    found = []
    for layer, tensors in zip(layers_of(model), _tensors(model, format), strict=True):
        if id(tensors) not in known:
            parts = [_layer(layer, [one], tp).on_rank(tp, ep) for one in tensors]
            known[id(tensors)] = tuple(size for size in parts if size)
        found.append(known[id(tensors)])
    return tuple(found)


def _tensors(model: Model, format: str) -> list[list[tuple[Matrix, int]]]:
    """Each layer's tensors, with the bytes of one copy; layers that are alike have one list."""
    if is_stored(model, format):
        parts: list[list[tuple[Matrix, int]]] = [[] for _ in range(model.layers)]
        for one, size in model.stored.parts:
            if one.layer is not None:
                parts[one.layer].append((one, ceil_div(size, one.copies)))
        return parts
    name, (rule, _, _, mixture) = weight_format(format)
    skip = own_skip(model, name)
    known: dict[object, list[tuple[Matrix, int]]] = {}
    found = []
    for index, layer in enumerate(layers_of(model)):
        key = index if mixture or skip else id(layer)  # these depend on the place
        if key not in known:
            copies = [(one, replace(one, copies=1)) for one in layer_tensors(model, index)]
            known[key] = [(one, wide_bytes(alone) if skip and is_listed(alone, skip) else rule(model, alone, {}))
                          for one, alone in copies]  # fmt: skip
        found.append(known[key])
    return found


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
        elif one.role in HEADED and layer.heads % tp:
            whole += one.copies * ceil_div(size * ceil_div(layer.heads, tp), layer.heads)
        else:
            split += one.copies * size
    return LayerBytes(split, whole, experts, expert, layer.cache, layer.state)


def sizes_of(model: Model) -> Sizes:
    """What the estimate of activations needs of a model."""
    return Sizes(model.hidden, max(1, model.heads * model.head_dim), model.kv_heads * model.head_dim,
                 max(1, model.ffn), model.vocab)  # fmt: skip
