"""Decoders whose layers have shapes of their own: Gemma 4 and what architecture search made of Llama (Nemotron)."""

from __future__ import annotations

from dataclasses import replace

from offload.errors import ModelError
from offload.models.architecture import Layer, Matrix, Model
from offload.models.families.experts import COUNT, USED, mixture, routed
from offload.models.families.fields import Fields
from offload.models.families.parts import (
    FFN,
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


def gemma4(fields: Fields, name: str, family: str) -> Model:
    """Gemma 4: layers with a window and global layers of other head counts and sizes, experts beside a dense part.

    With `attention_k_eq_v` one projection of a global layer makes keys and values. After norms and rotation they
    differ, so the cache holds both. The last `num_kv_shared_layers` read an earlier layer's cache.
    """
    size = sizes(fields, kv_heads=4, head_dim=256)
    pattern = ["window" if (layer + 1) % 6 else "full" for layer in range(size.layers)]
    found = kinds(fields, size.layers, ("full", "window"), lambda: pattern)
    found[-1] = "full"  # the class sees to it
    same = fields.flag("attention_k_eq_v")
    global_dim = fields.whole("global_head_dim", default=512)
    global_kv = fields.whole("num_global_key_value_heads", default=None) if same else None
    window = fields.whole("sliding_window", default=512) if "window" in found else 0
    first_shared = size.layers - fields.whole("num_kv_shared_layers", default=0, least=0, most=size.layers)
    if set(found[first_shared:]) - set(found[:first_shared]):
        raise ModelError(f"{fields.name('num_kv_shared_layers')} is {size.layers - first_shared}: a layer that reads "
                         "another's cache has none of its kind before it.")
    wide = fields.flag("use_double_wide_mlp")
    per_layer = fields.whole("hidden_size_per_layer_input", default=256, least=0)
    mixed = fields.flag("enable_moe_block")
    experts = mixture(fields) if mixed else None
    # Without their switches these mean nothing.
    fields.has(*COUNT, *USED, "moe_intermediate_size", "vocab_size_per_layer_input", "num_global_key_value_heads",
               "sliding_window")  # fmt: skip
    bias = fields.flag("attention_bias")
    made: dict[tuple[str, bool], Layer] = {}

    def layer(kind: str, shared: bool) -> Layer:
        head_dim = size.head_dim if kind == "window" else global_dim
        kv_heads = size.kv_heads if kind == "window" else global_kv or size.kv_heads
        if size.heads % kv_heads:
            raise ModelError(f"{size.heads} heads do not share {kv_heads} KV heads evenly.")
        ffn = size.ffn * (2 if wide and shared else 1)
        matrices = linear("attn_q", size.heads * head_dim, size.hidden, bias=bias) + norm(head_dim)
        if not shared:
            matrices += linear("attn_k", kv_heads * head_dim, size.hidden, bias=bias) + norm(head_dim)
            if kind == "window" or not same:
                matrices += linear("attn_v", kv_heads * head_dim, size.hidden, bias=bias)
        matrices += linear("attn_output", size.hidden, size.heads * head_dim, bias=bias)
        matrices += [*gated(size.hidden, ffn), *norm(size.hidden) * 4, Matrix("scalar", None, 1, 1)]
        if per_layer:
            matrices += [*linear("per_layer_gate", per_layer, size.hidden), *norm(size.hidden),
                         *linear("per_layer_output", size.hidden, per_layer)]  # fmt: skip
        if experts is not None:
            matrices += [
                *routed(size.hidden, experts, fused=True), Matrix("scalar", None, 1, size.hidden),
                Matrix("scalar", None, 1, experts.count), *norm(size.hidden) * 3,
            ]  # fmt: skip
        return attention_layer(
            matrices, size.heads, kv_heads, head_dim, kind="window" if kind == "window" else "full",
            window=window if kind == "window" else 0, shared=shared, feed_forward="experts" if mixed else "dense",
        )  # fmt: skip

    for i, kind in enumerate(found):
        if (kind, i >= first_shared) not in made:
            made[kind, i >= first_shared] = layer(kind, i >= first_shared)
    stack = [made[kind, i >= first_shared] for i, kind in enumerate(found)]
    outside: list[Matrix] = []
    if per_layer:
        rows = fields.whole("vocab_size_per_layer_input", default=262144)
        outside = [
            Matrix("per_layer_embedding", None, 1, size.layers * per_layer, copies=rows, used=1),
            *linear("per_layer_input", size.layers * per_layer, size.hidden), *norm(per_layer), *norm(size.hidden),
        ]  # fmt: skip
    largest = max(one.cache.key_dim for one in stack)
    size = replace(size, head_dim=largest, kv_heads=max(one.cache.heads for one in stack))
    notes = ["keys and values of its global layers come from one projection and are kept both"] if same else []
    return build(fields, name, family, size, stack, is_tied=tied(fields, True), outside=outside, notes=notes)


def nemotron_nas(fields: Fields, name: str, family: str) -> Model:
    """Llama shapes that a search chose for each layer: attention or feed-forward may be absent or one matrix.

    A feed-forward is 2/3 of `ffn_mult` times the hidden size, rounded up to a multiple of 256, as its class does.
    """
    size = sizes(fields, ffn=0, kv_by_layer=True)
    fields.lacking.pop(FFN[0], None)  # each layer says its own
    bias, mlp_bias = fields.flag("attention_bias"), fields.flag("mlp_bias")
    stack = []
    for block in fields.maps("block_configs", size.layers):
        one, ffn = block.map("attention"), block.map("ffn")
        matrices: list[Matrix] = []
        kv_heads, window, has_attention = 0, 0, False
        if one.flag("replace_with_linear"):
            matrices += [*linear("attn_linear", size.hidden, size.hidden), *norm(size.hidden)]
        elif not one.flag("no_op"):
            group = one.whole("n_heads_in_group")
            if size.heads % group:
                raise ModelError(f"{one.name('n_heads_in_group')} is {group}, and {size.heads} heads are no multiple.")
            kv_heads, has_attention = size.heads // group, True
            window = one.whole("window_length", default=0)
            matrices += [*attention(size.hidden, size.heads, kv_heads, size.head_dim, bias=bias, out_bias=bias),
                         *norm(size.hidden)]  # fmt: skip
            for key in ("num_sink_tokens", "sparsify"):
                if one.raw(key):
                    raise ModelError(f"{one.name(key)} is given: such attention is not counted.")
        dense = True
        if ffn.flag("replace_with_linear"):
            matrices += [*linear("ffn_linear", size.hidden, size.hidden), *norm(size.hidden)]
        elif not ffn.flag("no_op"):
            wide = int(2 * ffn.number("ffn_mult", least=0, most=1000) * size.hidden / 3)
            wide = -(-wide // 256) * 256
            if not wide:
                raise ModelError(f"{ffn.name('ffn_mult')} is 0; a feed-forward that is absent says no_op.")
            matrices += [*gated(size.hidden, wide, bias=mlp_bias), *norm(size.hidden)]
            size = replace(size, ffn=max(size.ffn, wide))
        else:
            dense = False
        feed_forward = "dense" if dense else "none"
        if has_attention:
            stack.append(attention_layer(matrices, size.heads, kv_heads, size.head_dim,
                                         kind="window" if window else "full", window=window,
                                         feed_forward=feed_forward))  # fmt: skip
        else:
            stack.append(Layer(tuple(matrices), attention="none", feed_forward=feed_forward))
    size = replace(size, kv_heads=max(one.cache.heads for one in stack))
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))
