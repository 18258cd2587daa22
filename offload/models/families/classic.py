"""Decoders before Llama: layer norms with shifts, a feed-forward without a gate, learned positions or none.

OPT, GPT-2, BLOOM and Falcon.
"""

from __future__ import annotations

from dataclasses import replace

from offload.errors import ModelError
from offload.models.architecture import Layer, Matrix, Model
from offload.models.families.fields import Fields
from offload.models.families.parts import FFN, Sizes, attention, attention_layer, build, norm, plain, sizes, tied


def positions(count: int, hidden: int) -> Matrix:
    """A table of learned positions; a token takes one row."""
    return Matrix("positions", None, 1, hidden, copies=count, used=1)


def four_times(fields: Fields, size: Sizes) -> Sizes:
    """Sizes with a feed-forward of four times the hidden size, where the file says none."""
    if size.ffn:
        return size
    fields.lacking[FFN[0]] = 4 * size.hidden
    return replace(size, ffn=4 * size.hidden)


def opt(fields: Fields, name: str, family: str) -> Model:
    """OPT: learned positions (two more than the context), biases everywhere, tied."""
    size = sizes(fields)
    projected = fields.whole("word_embed_proj_dim", default=size.hidden)
    if projected != size.hidden:
        raise ModelError(f"{fields.name('word_embed_proj_dim')} is {projected} and hidden_size {size.hidden}: an "
                         "embedding that is projected is not counted.")
    for key, only in (("do_layer_norm_before", True), ("_remove_final_layer_norm", False),
                      ("layer_norm_elementwise_affine", True)):
        if fields.flag(key, only) is not only:
            raise ModelError(f"{fields.name(key)} is {str(not only).lower()}: norms in those places are not counted.")
    bias = fields.flag("enable_bias", True)
    matrices = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=bias, out_bias=bias),
        *plain(size.hidden, size.ffn, bias=bias),
        *norm(size.hidden, bias=True) * 2,
    ]
    layer = attention_layer(matrices, size.heads, size.kv_heads, size.head_dim)
    table = positions(fields.whole("max_position_embeddings", default=2048) + 2, size.hidden)
    return build(fields, name, family, size, [layer] * size.layers, is_tied=tied(fields, True),
                 outside=[table, *norm(size.hidden, bias=True)])  # fmt: skip


def gpt2(fields: Fields, name: str, family: str) -> Model:
    """GPT-2: learned positions, one projection for query, key and value, biases everywhere, tied."""
    size = sizes(fields, ffn=0)
    size = four_times(fields, size)
    if fields.flag("add_cross_attention"):
        raise ModelError(f"{fields.name('add_cross_attention')} is true: cross attention is not counted.")
    layer = _layer_with_biases(size)
    table = positions(fields.whole("n_positions", "max_position_embeddings", default=1024), size.hidden)
    return build(fields, name, family, size, [layer] * size.layers, is_tied=tied(fields, True),
                 outside=[table, *norm(size.hidden, bias=True)])  # fmt: skip


def bloom(fields: Fields, name: str, family: str) -> Model:
    """BLOOM: positions by ALiBi (nothing stored), a norm on the embedding, biases everywhere, tied."""
    size = sizes(fields, ffn=0)
    size = four_times(fields, size)
    if size.ffn != 4 * size.hidden:
        raise ModelError(f"a feed-forward of {size.ffn} is given; BLOOM's class has 4 x {size.hidden}. Drop the key.")
    return build(fields, name, family, size, [_layer_with_biases(size)] * size.layers, is_tied=tied(fields, True),
                 outside=norm(size.hidden, bias=True) * 2)  # fmt: skip


def _layer_with_biases(size: Sizes) -> Layer:
    matrices = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=True, out_bias=True, fused=True),
        *plain(size.hidden, size.ffn, bias=True),
        *norm(size.hidden, bias=True) * 2,
    ]
    return attention_layer(matrices, size.heads, size.kv_heads, size.head_dim)


def falcon(fields: Fields, name: str, family: str) -> Model:
    """Falcon: one KV head with `multi_query`, groups in the new decoder; attention beside the feed-forward.

    The 7B's file says num_kv_heads 71, which its class does not look at. Published checkpoints store the output head
    though its shape is the embedding's, so a file that does not say `tie_word_embeddings` has one.
    """
    new, multi = fields.flag("new_decoder_architecture"), fields.flag("multi_query", True)
    size = sizes(fields, ffn=0)
    kv_heads = size.kv_heads if new else 1 if multi else size.heads
    if size.head_dim * size.heads != size.hidden:
        raise ModelError(f"{size.heads} heads of {size.head_dim} are not the hidden size {size.hidden} of a Falcon.")
    size = four_times(fields, replace(size, kv_heads=kv_heads))
    bias, parallel = fields.flag("bias"), fields.flag("parallel_attn", True)
    norms = fields.whole("num_ln_in_parallel_attn", default=2 if new else 1, most=2) if parallel else 2
    matrices = [
        *attention(size.hidden, size.heads, kv_heads, size.head_dim, bias=bias, out_bias=bias, fused=True),
        *plain(size.hidden, size.ffn, bias=bias),
        *norm(size.hidden, bias=True) * norms,
    ]
    layer = attention_layer(matrices, size.heads, kv_heads, size.head_dim)
    stored = fields.flag("tie_word_embeddings", None)
    notes = [] if stored is not None else ["published checkpoints of Falcon store the output head by itself"]
    return build(fields, name, family, size, [layer] * size.layers, is_tied=bool(stored),
                 outside=norm(size.hidden, bias=True), notes=notes)  # fmt: skip
