"""Latent attention (MLA): keys and values of all heads are made from one short vector, and only that is kept.

DeepSeek V2, V3 and V3.2, Kimi K2 and GLM-5. V3.2 and GLM-5 have an indexer beside it, which keeps a key of its own for
each position.
A decode step attends to latents as they are kept (the absorbed form): 2 x heads x (latent + rotated + latent) FLOP for
each position, and the projection to keys and values once for the new token. A prefill makes keys and values of its
positions anyway, and attends to those: 2 x heads x (key + value) for each pair.
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
    picks: int = 0


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a class takes where a file does not say; None: the key must be there. index : heads of its indexer. tables :
    whether its modules of multi-token prediction have an embedding and a head of their own.
    """

    query: int = 1536
    nope: int = 128
    value: int = 128
    experts: int = 256
    used: int | None = 8
    width: int = 2048
    shared: int = 1
    dense: int = 3
    modules: int = 0
    scored: bool = True
    index: int = 0
    tables: bool = True


CLASSES = {
    "deepseek_v2": Defaults(experts=64, used=None, width=1407, shared=2, dense=0, scored=False),
    "deepseek_v3": Defaults(modules=1),
    "kimi_k2": Defaults(modules=1),
    "deepseek_v32": Defaults(index=64),
    "glm_moe_dsa": Defaults(query=2048, nope=192, value=256, index=32, tables=False),
}


def _latent(fields: Fields, known: Defaults) -> Latent:
    query = fields.whole("q_lora_rank", default=None if fields.has("q_lora_rank") else known.query)
    if known.index and query is None:
        raise ModelError(f"{fields.name('q_lora_rank')} is null: an indexer takes its queries from that latent.")
    return Latent(
        query, fields.whole("kv_lora_rank", default=512), fields.whole("qk_rope_head_dim", default=64),
        fields.whole("qk_nope_head_dim", default=known.nope), fields.whole("v_head_dim", default=known.value),
        fields.whole("index_n_heads", default=known.index) if known.index else 0,
        fields.whole("index_head_dim", default=128) if known.index else 0,
        fields.whole("index_topk", default=2048) if known.index else 0,
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
    cache = Cache("latent", latent=one.latent, rope=one.rope, index_dim=one.index_dim, picks=one.picks)
    return Layer(
        tuple(matrices), cache, attend=attend(heads, one.latent + one.rope, one.latent),
        index=2 * one.index_heads * one.index_dim, expanded=attend(heads, one.nope + one.rope, one.value),
        expand=2 * heads * (one.nope + one.value) * one.latent, attention="latent", feed_forward=feed_forward,
        heads=heads,
    )  # fmt: skip


def deepseek(fields: Fields, name: str, family: str) -> Model:
    """DeepSeek V2, V3, V3.2, Kimi K2 and GLM-5: dense layers first, then mixtures with shared experts."""
    known = CLASSES[family]
    size = sizes(fields, head_dim=1, kv_by_layer=True)
    fields.lacking.pop("head_dim", None)  # a latent has sizes of its own
    one = _latent(fields, known)
    used = REQUIRED if known.used is None else known.used
    experts = mixture(fields, count=known.experts, used=used, width=known.width)
    scored = fields.text("topk_method", "noaux_tc" if known.scored else "greedy") == "noaux_tc"
    bias = fields.flag("attention_bias")

    def layer(is_sparse: bool, indexed: bool) -> Layer:
        own = one if indexed else replace(one, index_heads=0, index_dim=0)
        head = latent_attention(size.hidden, size.heads, own, bias=bias)
        both = _both(fields, size, experts, head, known.shared, corrected=scored)
        return latent_layer(both[is_sparse], size.heads, own, "experts" if is_sparse else "dense")

    sparse = sparse_after(fields, size.layers, known.dense)
    indexers = _indexers(fields, size.layers) if known.index else [False] * size.layers
    made = {pair: layer(*pair) for pair in set(zip(sparse, indexers, strict=True))}
    stack = [made[pair] for pair in zip(sparse, indexers, strict=True)]
    modules = 0
    if family != "deepseek_v2":
        modules = fields.whole("num_nextn_predict_layers", "num_mtp_layers", default=known.modules, least=0, most=100)
    size = replace(size, kv_heads=size.heads, head_dim=one.nope + one.rope)
    notes = []
    if known.index:
        notes.append(f"a token attends to the {one.picks:,} positions that its indexer picks, of all that it scored")
    further = [predictor(layer(True, bool(known.index)), size, tables=known.tables)] * modules
    return build(fields, name, family, size, stack, is_tied=tied(fields, False), further=further, notes=notes)


def _indexers(fields: Fields, layers: int) -> list[bool]:
    """Which layers have an indexer of their own; the others take what the last one picked."""
    fields.has("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
    listed = fields.each("indexer_types", layers, ["full", "shared"], None)
    if listed is not None:
        return [one == "full" for one in listed]
    pattern = fields.raw("index_topk_pattern")
    if pattern is not None:
        marks = list(pattern) if isinstance(pattern, str | list) else []
        if len(marks) != layers or any(one not in ("F", "S", "full", "shared") for one in marks):
            raise ModelError(f"{fields.name('index_topk_pattern')} must be F or S for each of the {layers} layers.")
        return [one in ("F", "full") for one in marks]
    every = fields.whole("index_topk_freq", default=1)
    first = fields.whole("index_skip_topk_offset", default=2, least=0) if every > 1 else 0
    return [max(layer - first + 1, 0) % every == 0 for layer in range(layers)]


def _both(
    fields: Fields, size: Sizes, experts: Mixture, head: list[Matrix], shared: int, *, corrected: bool
) -> tuple[list[Matrix], list[Matrix]]:
    """The tensors of a dense layer and of a mixture with shared experts."""
    count = fields.whole("n_shared_experts", default=0 if fields.has("n_shared_experts") else shared, least=0)
    common = gated(size.hidden, count * experts.ffn, tail="_shared") if count else []
    norms = norm(size.hidden) * 2
    sparse = [*head, *routed(size.hidden, experts, corrected=corrected), *common, *norms]
    return [*head, *gated(size.hidden, size.ffn), *norms], sparse


def sparse_after(fields: Fields, layers: int, default: int) -> list[bool]:
    """Which layers are mixtures: from `first_k_dense_replace` on, every `moe_layer_freq`th."""
    first = fields.whole("first_k_dense_replace", default=default, least=0)
    every = fields.whole("moe_layer_freq", default=1)
    return [layer >= first and layer % every == 0 for layer in range(layers)]


def predictor(layer: Layer, size: Sizes, *, tables: bool = True) -> Layer:
    """A module of multi-token prediction as DeepSeek stores it: a layer, its input's norms and projection, a norm,
    and copies of embedding and head (GLM-5 stores none of these).
    """
    extra = [*norm(size.hidden) * 3, *linear("predict", size.hidden, 2 * size.hidden)]
    if tables:
        extra += [Matrix(role, None, size.vocab, size.hidden) for role in ("embedding", "head")]
    return replace(layer, matrices=(*layer.matrices, *extra))


def glm4_moe(fields: Fields, name: str, family: str) -> Model:
    """GLM-4.5: plain attention, and the rest as DeepSeek V3."""
    size = sizes(fields, kv_heads=8)
    experts = mixture(fields, count=128, used=8, width=1408)
    head = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=fields.flag("attention_bias")),
        *(norm(size.head_dim) * 2 if fields.flag("use_qk_norm") else []),
    ]
    dense, sparse = _both(fields, size, experts, head, 1, corrected=True)
    shape = (size.heads, size.kv_heads, size.head_dim)
    rest = attention_layer(sparse, *shape, feed_forward="experts")
    first = attention_layer(dense, *shape)
    stack = [rest if is_sparse else first for is_sparse in sparse_after(fields, size.layers, 1)]
    modules = fields.whole("num_nextn_predict_layers", "num_mtp_layers", default=1, least=0, most=100)
    return build(fields, name, family, size, stack, is_tied=tied(fields, False),
                 further=[predictor(rest, size)] * modules)  # fmt: skip
