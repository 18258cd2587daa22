"""Mixtures of experts: of each expert's matrices a token goes through a few, of a shared expert's through all.

Mixtral, Qwen 2 and 3 MoE, Granite MoE, gpt-oss, MiniMax M2, GLM-4.5, Llama 4 and MiMo V2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offload.errors import ModelError
from offload.models.architecture import CORRECTION, Layer, Matrix, Model
from offload.models.families.dense import Plain, same_window, sliding_windows, with_window
from offload.models.families.fields import REQUIRED, Fields
from offload.models.families.parts import (
    Sizes,
    attention,
    attention_layer,
    build,
    gated,
    kinds,
    linear,
    norm,
    sizes,
    tied,
)

COUNT = ("num_local_experts", "num_experts", "n_routed_experts")
USED = ("num_experts_per_tok", "experts_per_token", "top_k_experts")


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts of a layer: how many, how many of them a token goes through, and their feed-forward size."""

    count: int
    used: int
    ffn: int


def mixture(fields: Fields, ffn: int | None = None, *, count: object = REQUIRED, used: object = REQUIRED,
            width: object = REQUIRED) -> Mixture:  # fmt: skip
    """ffn : the experts' size where no key of its own gives it. count, used, width : defaults."""
    experts = fields.whole(*COUNT, default=count)
    chosen = fields.whole(*USED, default=used)
    if chosen > experts:
        raise ModelError(f"{fields.name(USED[0])} is {chosen}, and there are {experts} experts.")
    return Mixture(experts, chosen, ffn if ffn is not None else fields.whole("moe_intermediate_size", default=width))


def routed(hidden: int, one: Mixture, *, fused: bool = False, bias: bool = False, router_bias: bool = False,
           corrected: bool = False) -> list[Matrix]:  # fmt: skip
    """The router and its experts. fused : gate and up in one matrix. router_bias : its bias, a number for each expert;
    corrected : numbers that correct their scores, which are kept in 32 bits.
    """
    return [
        *linear("router", one.count, hidden, bias=router_bias),
        *([Matrix(CORRECTION, None, 1, one.count)] if corrected else []),
        *gated(hidden, one.ffn, fused=fused, bias=bias, copies=one.count, used=one.used),
    ]


def _attention(fields: Fields, size: Sizes, **kinds: Any) -> list[Matrix]:
    return attention(size.hidden, size.heads, size.kv_heads, size.head_dim, **kinds)


def _layer(matrices: list[Matrix], size: Sizes, *, experts: bool = True) -> Layer:
    return attention_layer(matrices, size.heads, size.kv_heads, size.head_dim,
                           feed_forward="experts" if experts else "dense")  # fmt: skip


def mixtral(fields: Fields, name: str, family: str) -> Model:
    """Mixtral: every layer is a mixture."""
    size = sizes(fields, kv_heads=8)
    one = mixture(fields, size.ffn, count=8, used=2)
    layer = _layer([*_attention(fields, size), *routed(size.hidden, one), *norm(size.hidden) * 2], size)
    stack = [with_window(layer, same_window(fields))] * size.layers
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


def granite_moe(fields: Fields, name: str, family: str) -> Model:
    """Granite MoE: every layer is a mixture, gate and up of an expert in one; with a shared expert in a variant."""
    size = sizes(fields)
    one = mixture(fields, size.ffn, count=8, used=2)
    shared = fields.whole("shared_intermediate_size", default=0, least=0) if family != "granitemoe" else 0
    bias = fields.flag("attention_bias")
    layer = _layer([
        *_attention(fields, size, bias=bias, out_bias=bias), *routed(size.hidden, one, fused=True),
        *(gated(size.hidden, shared, fused=True, tail="_shared") if shared else []), *norm(size.hidden) * 2,
    ], size)  # fmt: skip
    return build(fields, name, family, size, [layer] * size.layers, is_tied=tied(fields, False))


def sparse_layers(fields: Fields, layers: int) -> list[bool]:
    """Which layers of a Qwen are mixtures: every `decoder_sparse_step`th, but those of `mlp_only_layers`."""
    step = fields.whole("decoder_sparse_step", default=1)
    dense = set(fields.numbers("mlp_only_layers", layers, []))
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]


def qwen_moe(fields: Fields, name: str, family: str) -> Model:
    """Qwen 1.5 and 2 MoE (a shared expert with a gate) and Qwen 3 MoE (norms on queries and keys)."""
    second = family == "qwen2_moe"
    size = sizes(fields, kv_heads=16 if second else 4, head_dim=None)
    one = mixture(fields, count=60 if second else 128, used=4 if second else 8, width=1408 if second else 768)
    windows, bias = [same_window(fields, key_on=True)] * size.layers, False
    if second:
        bias = fields.flag("qkv_bias", True)
        windows = sliding_windows(fields, size.layers, Plain(window=4096, by_layer=True))
        shared = shared_expert(fields, size.hidden, 5632)
        head = _attention(fields, size, bias=bias)
    else:
        bias, shared = fields.flag("attention_bias"), []
        head = [*_attention(fields, size, bias=bias, out_bias=bias), *norm(size.head_dim) * 2]
    norms = norm(size.hidden) * 2
    sparse = _layer([*head, *routed(size.hidden, one), *shared, *norms], size)
    dense = _layer([*head, *gated(size.hidden, size.ffn), *norms], size, experts=False)
    chosen = [sparse if is_sparse else dense for is_sparse in sparse_layers(fields, size.layers)]
    stack = [with_window(layer, window) for layer, window in zip(chosen, windows, strict=True)]
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


def shared_expert(fields: Fields, hidden: int, default: int) -> list[Matrix]:
    """A Qwen's shared expert and the gate that weighs it."""
    ffn = fields.whole("shared_expert_intermediate_size", default=default)
    return [*gated(hidden, ffn, tail="_shared"), Matrix("router", None, 1, hidden)]


def gpt_oss(fields: Fields, name: str, family: str) -> Model:
    """gpt-oss: biases everywhere, an attention sink for each head, every other layer with a window."""
    size = sizes(fields, kv_heads=8, head_dim=64)
    one = mixture(fields, size.ffn, used=4)
    bias = fields.flag("attention_bias", True)
    layer = _layer([
        *_attention(fields, size, bias=bias, out_bias=bias), Matrix("scalar", None, 1, size.heads),
        *routed(size.hidden, one, fused=True, bias=True, router_bias=True), *norm(size.hidden) * 2,
    ], size)  # fmt: skip
    alternate = ["window" if layer % 2 == 0 else "full" for layer in range(size.layers)]
    found = kinds(fields, size.layers, ("full", "window"), lambda: alternate)
    window = fields.whole("sliding_window", default=128)
    stack = [with_window(layer, window if kind == "window" else 0) for kind in found]
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


def minimax_m2(fields: Fields, name: str, family: str) -> Model:
    """MiniMax M2: norms over all queries and over all keys, a bias on the router's choice."""
    size = sizes(fields, kv_heads=8, head_dim=128)
    one = mixture(fields, size.ffn, count=256, used=8)
    if fields.whole("shared_intermediate_size", default=0, least=0):
        raise ModelError(f"{fields.name('shared_intermediate_size')} is {fields.raw('shared_intermediate_size')}: "
                         "shared experts are not counted for minimax_m2.")
    fields.each("attn_type_list", size.layers, [1], None)
    normed = []
    if fields.flag("use_qk_norm", True):
        per_head = fields.text("qk_norm_type", "per_layer") != "per_layer"
        if per_head:
            raise ModelError(f"{fields.name('qk_norm_type')}: only per_layer is counted for minimax_m2.")
        normed = [*norm(size.heads * size.head_dim), *norm(size.kv_heads * size.head_dim)]
    layer = _layer([
        *_attention(fields, size), *normed,
        *routed(size.hidden, one, corrected=fields.flag("use_routing_bias", True)), *norm(size.hidden) * 2,
    ], size)  # fmt: skip
    fields.has("num_mtp_modules", "mtp_transformer_layers")
    modules = fields.whole("num_mtp_modules", default=0, least=0) if fields.flag("use_mtp", True) else 0
    notes = []
    if modules:
        notes.append(f"its config names {modules} modules of multi-token prediction, whose tensors it does not "
                     "describe: they are not counted")
    return build(fields, name, family, size, [layer] * size.layers, is_tied=tied(fields, False), notes=notes)


def llama4(fields: Fields, name: str, family: str) -> Model:
    """Llama 4: attention in chunks where positions are rotated, to everything where not; a shared expert."""
    size = sizes(fields, kv_heads=8, head_dim=128)
    one = mixture(fields, size.ffn, count=16, used=1)
    bias = fields.flag("attention_bias")
    head = _attention(fields, size, bias=bias, out_bias=bias)
    norms = norm(size.hidden) * 2
    sparse = _layer([
        *head, *routed(size.hidden, one, fused=True), *gated(size.hidden, size.ffn, tail="_shared"), *norms,
    ], size)  # fmt: skip
    step = fields.whole("interleave_moe_layer_step", default=1)
    listed = fields.numbers("moe_layers", size.layers, None)
    mixtures = set(range(step - 1, size.layers, step)) if listed is None else set(listed)
    dense = sparse
    fields.has("intermediate_size_mlp")  # of dense layers, which there may not be
    if len(mixtures) < size.layers:
        wide = fields.whole("intermediate_size_mlp")
        dense = _layer([*head, *gated(size.hidden, wide), *norms], size, experts=False)
    stack = []
    for layer, kind in enumerate(_llama4_kinds(fields, size.layers)):
        built = sparse if layer in mixtures else dense
        stack.append(built if kind == "full" else _chunked(built, fields.whole("attention_chunk_size", default=8192)))
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


def _llama4_kinds(fields: Fields, layers: int) -> list[str]:
    fields.has("use_qk_norm")  # stores nothing
    fields.has("no_rope_layer_interval", "no_rope_layers")  # where layer_types says the kinds they are not looked at
    chunks = fields.whole("attention_chunk_size", default=None) is not None or not fields.has("attention_chunk_size")

    def by_rotation() -> list[str]:
        if fields.raw("no_rope_layers"):
            rotated = fields.each("no_rope_layers", layers, [0, 1])
        else:
            every = fields.whole("no_rope_layer_interval", default=4)
            rotated = [int((layer + 1) % every != 0) for layer in range(layers)]
        return ["chunk" if one and chunks else "full" for one in rotated]

    found = kinds(fields, layers, ("full", "chunk"), by_rotation)
    if "chunk" in found and not chunks:
        raise ModelError(f"{fields.name('attention_chunk_size')} is null, and layer_types names chunked layers.")
    return found


def _chunked(layer: Layer, chunk: int) -> Layer:
    return replace(layer, cache=replace(layer.cache, kind="chunk", window=chunk), attention="chunk")


def mimo_v2(fields: Fields, name: str, family: str) -> Model:
    """MiMo V2 Flash: layers with a window have other heads than the rest, and values are narrower than keys."""
    size = sizes(fields, kv_heads=4, head_dim=192)
    one = mixture(fields, count=256, used=8, width=2048)
    fields.has("attention_chunk_size", "topk_method")  # its class does not look at these
    if fields.whole("n_shared_experts", default=0, least=0):
        raise ModelError(f"{fields.name('n_shared_experts')}: shared experts are not counted for mimo_v2_flash.")
    if fields.has("hybrid_layer_pattern"):
        windowed = fields.each("hybrid_layer_pattern", size.layers, [0, 1])
    else:
        every6 = ["full" if i == 0 or (i + 1) % 6 == 0 else "window" for i in range(size.layers)]
        windowed = [int(kind == "window") for kind in kinds(fields, size.layers, ("full", "window"), lambda: every6)]
    sparse = fields.each("moe_layer_freq", size.layers, [0, 1], None)
    sparse = [0] + [1] * (size.layers - 1) if sparse is None else sparse
    window = fields.whole("sliding_window", "sliding_window_size", default=128)
    bias = fields.flag("attention_bias")

    def layer(with_a_window: int, is_sparse: int) -> Layer:
        kind = "swa_" if with_a_window else ""
        heads = fields.whole("swa_num_attention_heads", default=size.heads) if kind else size.heads
        kv_heads = fields.whole("swa_num_key_value_heads", default=2 * size.kv_heads) if kind else size.kv_heads
        key_dim = fields.whole("swa_head_dim", default=size.head_dim) if kind else size.head_dim
        value_dim = fields.whole("v_head_dim", default=128)
        value_dim = fields.whole("swa_v_head_dim", default=value_dim) if kind else value_dim
        if heads % kv_heads:
            raise ModelError(f"{heads} heads do not share {kv_heads} KV heads evenly "
                             f"({fields.name('swa_num_key_value_heads')}).")
        sinks = fields.flag("add_swa_attention_sink_bias" if kind else "add_full_attention_sink_bias", bool(kind))
        matrices = [
            *attention(size.hidden, heads, kv_heads, key_dim, value_dim=value_dim, bias=bias),
            *([Matrix("scalar", None, 1, heads)] if sinks else []),
            *(routed(size.hidden, one, corrected=True) if is_sparse else gated(size.hidden, size.ffn)),
            *norm(size.hidden) * 2,
        ]
        return attention_layer(
            matrices, heads, kv_heads, key_dim, value_dim=value_dim, kind="window" if kind else "full",
            window=window if kind else 0, feed_forward="experts" if is_sparse else "dense",
        )  # fmt: skip

    made = {pair: layer(*pair) for pair in set(zip(windowed, sparse, strict=True))}
    stack = [made[pair] for pair in zip(windowed, sparse, strict=True)]
    widest = max(one.cache.heads for one in stack)
    notes = ["multi-token prediction modules, which its config does not describe, are not counted"]
    return build(fields, name, family, replace(size, kv_heads=widest), stack, is_tied=tied(fields, False), notes=notes)
