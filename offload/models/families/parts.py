"""What layers are built from: projections, norms, experts, states, each with the tensors that its class stores.

Roles of matrices: attn_q, attn_k, attn_v, attn_qkv (fused), attn_output; attn_q_a, attn_q_b, attn_kv_a, attn_kv_b
(latent); index_q, index_k, index_weights; ffn_gate, ffn_up, ffn_gate_up (fused), ffn_down, the same with `copies`
where they are experts and with `_shared` where every token goes through them; router; ssm_in, ssm_x, ssm_dt, ssm_out,
conv. Vectors are "norm", "bias", "scalar" (attention sinks, decay rates) or CORRECTION.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload.errors import ModelError
from offload.models.architecture import MOST_LAYERS, Layer, Matrix, Model
from offload.models.cache import Cache
from offload.models.families.fields import REQUIRED, Fields

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that nearly every decoder has."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


def sizes(
    fields: Fields, *, kv_heads: int | None = None, head_dim: int | None = None, ffn: object = REQUIRED,
    defaults: dict[str, int] | None = None, kv_by_layer: bool = False,
) -> Sizes:  # fmt: skip
    """The common sizes. kv_heads, head_dim : the class's own default where the key is missing; None is as many as
    heads, and hidden / heads. ffn : its default. defaults : of other sizes that a class's published files leave out.
    kv_by_layer : the number of KV heads is said elsewhere, or there are none, so that no default is taken.
    """
    known = defaults or {}
    layers = fields.whole(*LAYERS, default=known.get("layers", REQUIRED))
    few_layers(layers)
    hidden = fields.whole(*HIDDEN, default=known.get("hidden", REQUIRED))
    heads = fields.whole(*HEADS, default=known.get("heads", REQUIRED))
    size = fields.whole(*HEAD_DIM, default=None)
    if size is None and head_dim is not None and not fields.has(HEAD_DIM[0]):
        size = fields.lacking[HEAD_DIM[0]] = head_dim
    if size is None:
        if hidden % heads:
            raise ModelError(f'{fields.name("hidden_size")} {hidden} is no multiple of {heads} heads: add "head_dim".')
        size = hidden // heads
    shared = _kv_heads(fields, heads, kv_heads)
    if kv_by_layer:
        fields.lacking.pop(KV_HEADS[0], None)
    return Sizes(
        layers, hidden, heads, shared, size,
        fields.whole(*FFN, default=known.get("ffn", ffn)),
        fields.whole("vocab_size", default=known.get("vocab", REQUIRED)),
    )  # fmt: skip


def few_layers(layers: int) -> None:
    """Raises ModelError for more layers than are laid out, before a list of them is made."""
    if layers > MOST_LAYERS:
        raise ModelError(f"{layers:,} layers are more than the {MOST_LAYERS} that are laid out. "
                         "A plan by hand takes more repetitions.")


def _kv_heads(fields: Fields, heads: int, default: int | None) -> int:
    found: int | None = fields.whole(*KV_HEADS, default=None)
    # A null is as many as heads in every class; a missing key is the class's own default.
    if found is None:
        if default is None or fields.has(KV_HEADS[0]):
            return heads
        found = fields.lacking[KV_HEADS[0]] = default
        if heads % found:
            raise ModelError(f'the key "{fields.name(KV_HEADS[0])}" is missing, and {heads} heads do not share the '
                             f"{found} KV heads of its class evenly.")
    if heads % found:
        raise ModelError(f"{heads} heads do not share {found} KV heads evenly ({fields.name(KV_HEADS[0])}).")
    return found


def norm(size: int, *, bias: bool = False) -> list[Matrix]:
    """A norm's scale, and its shift where it has one (LayerNorm)."""
    scale = Matrix("norm", None, 1, size)
    return [scale, Matrix("bias", None, 1, size)] if bias else [scale]


def linear(role: str, out: int, into: int, *, bias: bool = False, copies: int = 1, used: int | None = None
           ) -> list[Matrix]:  # fmt: skip
    """A projection of `into` elements to `out`, with its bias."""
    found = [Matrix(role, None, out, into, copies, used)]
    return [*found, Matrix("bias", None, 1, out, copies, used)] if bias else found


def attention(
    hidden: int, heads: int, kv_heads: int, head_dim: int, *, value_dim: int = 0, bias: bool = False,
    out_bias: bool = False, fused: bool = False,
) -> list[Matrix]:  # fmt: skip
    """Query, key, value and output projections. value_dim : of a value's head, where it differs."""
    value_dim = value_dim or head_dim
    wide, keys, values = heads * head_dim, kv_heads * head_dim, kv_heads * value_dim
    if fused:
        found = linear("attn_qkv", wide + keys + values, hidden, bias=bias)
    else:
        found = [
            *linear("attn_q", wide, hidden, bias=bias),
            *linear("attn_k", keys, hidden, bias=bias),
            *linear("attn_v", values, hidden, bias=bias),
        ]
    return [*found, *linear("attn_output", hidden, heads * value_dim, bias=out_bias)]


def gated(
    hidden: int, ffn: int, *, bias: bool = False, fused: bool = False, tail: str = "", copies: int = 1,
    used: int | None = None,
) -> list[Matrix]:  # fmt: skip
    """A gated feed-forward: gate, up and down. tail : "_shared" for a shared expert."""
    kinds: dict[str, Any] = {"bias": bias, "copies": copies, "used": used}
    if fused:
        first = linear(f"ffn_gate_up{tail}", 2 * ffn, hidden, **kinds)
    else:
        first = [*linear(f"ffn_gate{tail}", ffn, hidden, **kinds), *linear(f"ffn_up{tail}", ffn, hidden, **kinds)]
    return [*first, *linear(f"ffn_down{tail}", hidden, ffn, **kinds)]


def plain(
    hidden: int, ffn: int, *, bias: bool = False, tail: str = "", copies: int = 1, used: int | None = None
) -> list[Matrix]:
    """A feed-forward without a gate: up and down."""
    kinds: dict[str, Any] = {"bias": bias, "copies": copies, "used": used}
    return [*linear(f"ffn_up{tail}", ffn, hidden, **kinds), *linear(f"ffn_down{tail}", hidden, ffn, **kinds)]


def attend(heads: int, key_dim: int, value_dim: int) -> int:
    """FLOP of one token for each position that it attends to: 2 for each element of a key and of a value."""
    return 2 * heads * (key_dim + value_dim)


def attention_layer(
    matrices: Sequence[Matrix], heads: int, kv_heads: int, head_dim: int, *, value_dim: int = 0, kind: str = "full",
    window: int = 0, feed_forward: str = "dense", shared: bool = False,
) -> Layer:  # fmt: skip
    """A layer whose attention keeps keys and values. kind : "full", "window" or "chunk"."""
    value_dim = value_dim or head_dim
    cache = Cache(kind, kv_heads, head_dim, value_dim, window=window, shared=shared)
    return Layer(
        tuple(matrices), cache, attend=attend(heads, head_dim, value_dim), attention=kind, feed_forward=feed_forward,
        heads=heads,
    )  # fmt: skip


KINDS = {"full_attention": "full", "sliding_attention": "window", "chunked_attention": "chunk",
         "linear_attention": "linear"}  # fmt: skip


def kinds(
    fields: Fields, layers: int, allowed: Sequence[str], default: Callable[[], Sequence[str]]
) -> list[str]:
    """The kind of attention of each layer, by `layer_types` or, where it is missing, the class's own rule."""
    found = fields.each("layer_types", layers, [name for name, kind in KINDS.items() if kind in allowed], None)
    return list(default()) if found is None else [KINDS[one] for one in found]


def tied(fields: Fields, default: bool) -> bool:
    """Whether the head is the embedding, by the file or the class."""
    tied: bool = fields.flag("tie_word_embeddings", default)
    return tied


def build(
    fields: Fields, name: str, family: str, size: Sizes, stack: Sequence[Layer], *, is_tied: bool,
    outside: Sequence[Matrix] = (), further: Sequence[Layer] = (), notes: Sequence[str] = (),
) -> Model:  # fmt: skip
    """A model of layers of several kinds; its feed-forward is the largest dense one of any layer."""
    wide = {one.rows for layer in set(stack) for one in layer.matrices if one.role in ("ffn_gate", "ffn_up")
            and one.used is None}  # fmt: skip
    size = replace(size, ffn=max(size.ffn, *wide, 0))
    return Model(
        name=name, family=family, layers=size.layers, hidden=size.hidden, heads=size.heads, kv_heads=size.kv_heads,
        head_dim=size.head_dim, ffn=size.ffn, vocab=size.vocab, tied=is_tied,
        max_positions=fields.whole(*POSITIONS, default=None), stack=tuple(stack), outside=tuple(outside),
        further=tuple(further), notes=tuple(notes),
    )  # fmt: skip


def state_bytes(fields: Fields, *keys: str) -> int:
    """Bytes of an element of a recurrent state: as a file states, else 4 (states are kept in 32 bits)."""
    known = {"float32": 4, "float16": 2, "bfloat16": 2, "fp32": 4, "fp16": 2, "bf16": 2}
    for key in keys:
        value = fields.text(key, None)
        if value is not None and value not in known:
            raise ModelError(f"{fields.name(key)} is {value[:60]!r}; it must be one of {', '.join(known)}.")
        if value is not None:
            return known[value]
    return 4
