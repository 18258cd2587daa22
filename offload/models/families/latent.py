"""Latent attention (MLA): keys and values of all heads are made from one short vector, and only that is kept.

DeepSeek V2, V3 and V3.2 and Kimi K2. V3.2 has an indexer beside it, which keeps a key of its own for each position.
FLOP are those of the absorbed form, in which every head attends to the latent vector itself: 2 x heads x (latent +
rotated + latent) for each position, and the projection to keys and values once for the new token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offload.errors import ModelError
from offload.models.architecture import Layer, Matrix, Model
from offload.models.cache import Cache
from offload.models.families.experts import Mixture, mixture, routed
from offload.models.families.fields import REQUIRED, Fields
from offload.models.families.parts import (
    Sizes,
    attend,
    attention,
    attention_layer,
    build,
    gated,
    linear,
    norm,
    sizes,
    tied,
)


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of latent attention. query : of the queries' own latent, None where they are projected at once."""

    query: int | None
    latent: int
    rope: int
    nope: int
    value: int
    index_heads: int = 0
    index_dim: int = 0


def _latent(fields: Fields, indexed: bool) -> Latent:
    query = fields.whole("q_lora_rank", default=None if fields.has("q_lora_rank") else 1536)
    return Latent(
        query, fields.whole("kv_lora_rank", default=512), fields.whole("qk_rope_head_dim", default=64),
        fields.whole("qk_nope_head_dim", default=128), fields.whole("v_head_dim", default=128),
        fields.whole("index_n_heads", default=64) if indexed else 0,
        fields.whole("index_head_dim", default=128) if indexed else 0,
    )  # fmt: skip


def latent_attention(hidden: int, heads: int, one: Latent, *, bias: bool = False) -> list[Matrix]:
    """The projections and norms of latent attention, with an indexer's where it has one."""
    if one.query is None:
        found = linear("attn_q", heads * (one.nope + one.rope), hidden)
    else:
        found = [
            *linear("attn_q_a", one.query, hidden, bias=bias), *norm(one.query),
            *linear("attn_q_b", heads * (one.nope + one.rope), one.query),
        ]  # fmt: skip
    found += [
        *linear("attn_kv_a", one.latent + one.rope, hidden, bias=bias), *norm(one.latent),
        *linear("attn_kv_b", heads * (one.nope + one.value), one.latent),
        *linear("attn_output", hidden, heads * one.value, bias=bias),
    ]  # fmt: skip
    if one.index_dim:
        found += [
            *linear("index_q", one.index_heads * one.index_dim, one.query or hidden),
            *linear("index_k", one.index_dim, hidden), *norm(one.index_dim, bias=True),
            *linear("index_weights", one.index_heads, hidden),
        ]  # fmt: skip
    return found


def latent_layer(matrices: list[Matrix], heads: int, one: Latent, feed_forward: str) -> Layer:
    """A layer that keeps the latent vector and the rotated key of a position."""
    cache = Cache("latent", latent=one.latent, rope=one.rope, index_dim=one.index_dim)
    flop = attend(heads, one.latent + one.rope, one.latent) + 2 * one.index_heads * one.index_dim
    return Layer(tuple(matrices), cache, attend=flop, attention="latent", feed_forward=feed_forward, heads=heads)


def deepseek(fields: Fields, name: str, family: str) -> Model:
    """DeepSeek V2, V3, V3.2 and Kimi K2: dense layers first, then mixtures with shared experts."""
    second, indexed = family == "deepseek_v2", family == "deepseek_v32"
    size = sizes(fields, head_dim=1)
    one = _latent(fields, indexed)
    bias = fields.flag("attention_bias")
    if indexed and one.query is None:
        raise ModelError(f"{fields.name('q_lora_rank')} is null: an indexer takes its queries from that latent.")
    fields.whole("index_topk", default=2048)
    used, width = (REQUIRED, 1407) if second else (8, 2048)
    experts = mixture(fields, count=64 if second else 256, used=used, width=width)
    scored = fields.text("topk_method", "greedy" if second else "noaux_tc") == "noaux_tc"
    head = latent_attention(size.hidden, size.heads, one, bias=bias)
    dense, sparse = _both(fields, size, experts, head, 2 if second else 1, router_bias=scored)
    first = latent_layer(dense, size.heads, one, "dense")
    rest = latent_layer(sparse, size.heads, one, "experts")
    stack = [rest if is_sparse else first for is_sparse in sparse_after(fields, size.layers, 0 if second else 3)]
    modules = 0 if second else fields.whole("num_nextn_predict_layers", "num_mtp_layers",
                                            default=0 if indexed else 1, least=0, most=100)  # fmt: skip
    size = replace(size, kv_heads=size.heads, head_dim=one.nope + one.rope)
    notes = []
    if indexed:
        notes.append(f"a token attends to the {fields.whole('index_topk', default=2048):,} positions that its indexer "
                     "picks; FLOP of attention are counted for all positions")
    return build(fields, name, family, size, stack, is_tied=tied(fields, False),
                 further=[predictor(rest, size)] * modules, notes=notes)  # fmt: skip


def _both(
    fields: Fields, size: Sizes, experts: Mixture, head: list[Matrix], shared: int, *, router_bias: bool
) -> tuple[list[Matrix], list[Matrix]]:
    """The tensors of a dense layer and of a mixture with shared experts."""
    count = fields.whole("n_shared_experts", default=0 if fields.has("n_shared_experts") else shared, least=0)
    common = gated(size.hidden, count * experts.ffn, tail="_shared") if count else []
    norms = norm(size.hidden) * 2
    sparse = [*head, *routed(size.hidden, experts, router_bias=router_bias), *common, *norms]
    return [*head, *gated(size.hidden, size.ffn), *norms], sparse


def sparse_after(fields: Fields, layers: int, default: int) -> list[bool]:
    """Which layers are mixtures: from `first_k_dense_replace` on, every `moe_layer_freq`th."""
    first = fields.whole("first_k_dense_replace", default=default, least=0)
    every = fields.whole("moe_layer_freq", default=1)
    return [layer >= first and layer % every == 0 for layer in range(layers)]


def predictor(layer: Layer, size: Sizes) -> Layer:
    """A module of multi-token prediction as DeepSeek stores it: a layer, its input's norms and projection, a norm,
    and copies of embedding and head.
    """
    extra = [
        *norm(size.hidden) * 3,
        *linear("predict", size.hidden, 2 * size.hidden),
        Matrix("embedding", None, size.vocab, size.hidden),
        Matrix("head", None, size.vocab, size.hidden),
    ]
    return replace(layer, matrices=(*layer.matrices, *extra))


def glm4_moe(fields: Fields, name: str, family: str) -> Model:
    """GLM-4.5: plain attention, and the rest as DeepSeek V3."""
    size = sizes(fields, kv_heads=8)
    experts = mixture(fields, count=128, used=8, width=1408)
    head = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=fields.flag("attention_bias")),
        *(norm(size.head_dim) * 2 if fields.flag("use_qk_norm") else []),
    ]
    dense, sparse = _both(fields, size, experts, head, 1, router_bias=True)
    shape = (size.heads, size.kv_heads, size.head_dim)
    rest = attention_layer(sparse, *shape, feed_forward="experts")
    first = attention_layer(dense, *shape)
    stack = [rest if is_sparse else first for is_sparse in sparse_after(fields, size.layers, 1)]
    modules = fields.whole("num_nextn_predict_layers", "num_mtp_layers", default=1, least=0, most=100)
    return build(fields, name, family, size, stack, is_tied=tied(fields, False),
                 further=[predictor(rest, size)] * modules)  # fmt: skip
