"""Layers that keep a state of fixed size for a sequence: Mamba, Mamba 2 and gated delta nets, and their hybrids.

Mamba2, Jamba, Bamba, Granite 4, Nemotron-H, Qwen3-Next and Qwen 3.5. FLOP of a state's update are `mix` of a layer: a
Mamba state takes two multiply-adds for each element (decay and input, read out), a delta net's takes a decay and three
(read, write, read out). A convolution keeps the last kernel - 1 inputs of each channel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offload.errors import ModelError
from offload.models.architecture import CORRECTION, Layer, Matrix, Model
from offload.models.cache import State
from offload.models.families.experts import COUNT, USED, mixture, routed, shared_expert, sparse_layers
from offload.models.families.fields import REQUIRED, Fields
from offload.models.families.parts import (
    HIDDEN,
    LAYERS,
    Sizes,
    attention,
    attention_layer,
    build,
    few_layers,
    gated,
    kinds,
    linear,
    norm,
    plain,
    sizes,
    state_bytes,
    tied,
)

MAMBA_FLOP = 4  # two multiply-adds for each element of the state
DELTA_FLOP = 7  # a multiply and three multiply-adds


@dataclass(frozen=True, slots=True)
class Mixer:
    """A recurrent mixer: its tensors, its state and the FLOP of the state's update."""

    matrices: tuple[Matrix, ...]
    state: State
    mix: int
    kind: str

    def layer(self, others: list[Matrix], feed_forward: str) -> Layer:
        return Layer((*self.matrices, *others), state=self.state, mix=self.mix, attention=self.kind,
                     feed_forward=feed_forward)  # fmt: skip


def mamba2_mixer(
    hidden: int, heads: int, head_dim: int, state: int, groups: int, kernel: int, *, bias: bool, conv_bias: bool,
    element_bytes: int,
) -> Mixer:  # fmt: skip
    """Mamba 2: one projection to gate, input, B, C and time step; a decay rate for each head."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    matrices = [
        *linear("ssm_in", inner + channels + heads, hidden, bias=bias),
        *linear("conv", channels, kernel, bias=conv_bias),
        *[Matrix("scalar", None, 1, heads)] * 3,  # decay, skip, time step's shift
        *norm(inner),
        *linear("ssm_out", hidden, inner, bias=bias),
    ]
    kept = State(inner * state, element_bytes, channels * (kernel - 1))
    return Mixer(tuple(matrices), kept, MAMBA_FLOP * inner * state, "ssm")


def mamba2(fields: Fields, name: str, family: str) -> Model:
    """Mamba 2: nothing but mixers."""
    layers, hidden = fields.whole(*LAYERS), fields.whole(*HIDDEN)
    few_layers(layers)
    heads, head_dim = fields.whole("num_heads", default=128), fields.whole("head_dim", default=64)
    expand = fields.whole("expand", default=2)
    fields.has("time_step_rank")  # of Mamba 1
    if heads * head_dim != hidden * expand:
        raise ModelError(f"{heads} heads of {head_dim} are not {expand} x the hidden size {hidden}.")
    one = mamba2_mixer(
        hidden, heads, head_dim, fields.whole("state_size", default=128), fields.whole("n_groups", default=8),
        fields.whole("conv_kernel", default=4), bias=fields.flag("use_bias"),
        conv_bias=fields.flag("use_conv_bias", True), element_bytes=state_bytes(fields, "mamba_ssm_dtype"),
    )  # fmt: skip
    size = Sizes(layers, hidden, 0, 0, 0, 0, fields.whole("vocab_size"))
    layer = one.layer(norm(hidden), "none")
    return build(fields, name, family, size, [layer] * layers, is_tied=tied(fields, False))


def jamba(fields: Fields, name: str, family: str) -> Model:
    """Jamba: attention in every eighth layer, Mamba in the others, a mixture of experts in every second."""
    size = sizes(fields, kv_heads=8)
    attention_at = _every(fields, "attn_layer_period", 8, "attn_layer_offset", 4, size.layers)
    experts_at = _every(fields, "expert_layer_period", 2, "expert_layer_offset", 1, size.layers)
    one = mixture(fields, size.ffn, count=16, used=2)
    mixer = _mamba_mixer(fields, size.hidden)
    norms = norm(size.hidden) * 2
    head = attention(size.hidden, size.heads, size.kv_heads, size.head_dim)
    stack = []
    for has_attention, sparse in zip(attention_at, experts_at, strict=True):
        sparse = sparse and one.count > 1
        kind = "experts" if sparse else "dense"
        forward = routed(size.hidden, one) if sparse else gated(size.hidden, size.ffn)
        if has_attention:
            stack.append(attention_layer([*head, *forward, *norms], size.heads, size.kv_heads, size.head_dim,
                                         feed_forward=kind))  # fmt: skip
        else:
            stack.append(mixer.layer([*forward, *norms], kind))
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


def _every(fields: Fields, period: str, otherwise: int, offset: str, start: int, layers: int) -> list[bool]:
    """Which layers are at `offset` of a period."""
    every, at = fields.whole(period, default=otherwise), fields.whole(offset, default=start, least=0)
    if at >= every:
        raise ModelError(f"{fields.name(offset)} is {at}; it must be below {period}, {every}.")
    return [layer % every == at for layer in range(layers)]


def _mamba_mixer(fields: Fields, hidden: int) -> Mixer:
    """Mamba 1 as Jamba has it, with norms on time step, B and C."""
    inner = fields.whole("mamba_expand", default=2) * hidden
    state, kernel = fields.whole("mamba_d_state", default=16), fields.whole("mamba_d_conv", default=4)
    auto = fields.raw("mamba_dt_rank") in (None, "auto")
    rank = -(-hidden // 16) if auto else fields.whole("mamba_dt_rank")
    if fields.raw("mamba_dt_rank") is None:
        fields.lacking["mamba_dt_rank"] = rank
    bias = fields.flag("mamba_proj_bias")
    matrices = [
        *linear("ssm_in", 2 * inner, hidden, bias=bias),
        *linear("conv", inner, kernel, bias=fields.flag("mamba_conv_bias", True)),
        *linear("ssm_x", rank + 2 * state, inner),
        *linear("ssm_dt", inner, rank, bias=True),
        Matrix("scalar", None, inner, state),  # decay
        Matrix("scalar", None, 1, inner),  # skip
        *linear("ssm_out", hidden, inner, bias=bias),
        *norm(rank), *norm(state), *norm(state),
    ]  # fmt: skip
    kept = State(inner * state, state_bytes(fields, "mamba_ssm_dtype"), inner * (kernel - 1))
    return Mixer(tuple(matrices), kept, MAMBA_FLOP * inner * state, "ssm")


def _hybrid_mixer(fields: Fields, hidden: int) -> Mixer:
    """Mamba 2 as Bamba and Granite 4 name its keys."""
    heads = fields.whole("mamba_n_heads", default=128)
    inner = fields.whole("mamba_expand", default=2) * hidden
    auto = fields.raw("mamba_d_head") in (None, "auto")
    head_dim = inner // heads if auto else fields.whole("mamba_d_head")
    if heads * head_dim != inner or not head_dim:
        raise ModelError(f"{fields.name('mamba_n_heads')}: {heads} heads of {head_dim} are not the {inner} of Mamba.")
    return mamba2_mixer(
        hidden, heads, head_dim, fields.whole("mamba_d_state", default=256), fields.whole("mamba_n_groups", default=1),
        fields.whole("mamba_d_conv", default=4), bias=fields.flag("mamba_proj_bias"),
        conv_bias=fields.flag("mamba_conv_bias", True), element_bytes=state_bytes(fields, "mamba_ssm_dtype"),
    )  # fmt: skip


def bamba(fields: Fields, name: str, family: str) -> Model:
    """Bamba: Mamba 2 in every layer but those of `attn_layer_indices`."""
    size = sizes(fields, kv_heads=8)
    listed = set(fields.numbers("attn_layer_indices", size.layers, []))
    bias = fields.flag("attention_bias")
    rest = [*gated(size.hidden, size.ffn, bias=fields.flag("mlp_bias")), *norm(size.hidden) * 2]
    head = attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=bias, out_bias=bias)
    full = attention_layer([*head, *rest], size.heads, size.kv_heads, size.head_dim)
    mixer = _hybrid_mixer(fields, size.hidden).layer(rest, "dense")
    stack = [full if layer in listed else mixer for layer in range(size.layers)]
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


def granite_hybrid(fields: Fields, name: str, family: str) -> Model:
    """Granite 4: Mamba 2 or attention by layer, then experts (where it has any) and a shared expert."""
    size = sizes(fields)
    key = "layers_block_type" if fields.has("layers_block_type") and not fields.has("layer_types") else "layer_types"
    allowed = [one for one, kind in BLOCKS.items() if kind in ("mamba", "attention")]
    found = [BLOCKS[one] for one in fields.each(key, size.layers, allowed, ["mamba"] * size.layers)]
    count = fields.whole(*COUNT, default=8, least=0)
    shared = fields.whole("shared_intermediate_size", default=1024)
    bias = fields.flag("attention_bias")
    rest = [*gated(size.hidden, shared, fused=True, tail="_shared" if count else ""), *norm(size.hidden) * 2]
    if count:
        rest += routed(size.hidden, mixture(fields, size.ffn, count=8, used=2), fused=True)
    forward = "experts" if count else "dense"
    head = attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=bias, out_bias=bias)
    full = attention_layer([*head, *rest], size.heads, size.kv_heads, size.head_dim, feed_forward=forward)
    fields.has("mamba_d_state", "mamba_n_heads")  # Granite 4's dense models give them and have no Mamba
    mixer = _hybrid_mixer(fields, size.hidden).layer(rest, forward) if "mamba" in found else full
    stack = [full if kind == "attention" else mixer for kind in found]
    return build(fields, name, family, size, stack, is_tied=tied(fields, False))


PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
# Names of layer kinds in files that give them as a list, of both generations.
BLOCKS = {"mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention",
          "mlp": "mlp", "moe": "moe"}  # fmt: skip


def nemotron_h(fields: Fields, name: str, family: str) -> Model:
    """Nemotron-H: every layer is one part alone: Mamba 2, attention, a feed-forward or a mixture of experts."""
    found = _blocks(fields)
    size = sizes(fields, kv_heads=8, head_dim=128, ffn=None, defaults={"layers": len(found)})
    if size.layers != len(found):
        raise ModelError(f"its pattern has {len(found)} layers, and {fields.name(LAYERS[0])} is {size.layers}.")
    mixer = mamba2_mixer(
        size.hidden, fields.whole("mamba_num_heads", default=128), fields.whole("mamba_head_dim", default=64),
        fields.whole("ssm_state_size", default=128), fields.whole("n_groups", "mamba_n_groups", default=8),
        fields.whole("conv_kernel", "mamba_d_conv", default=4), bias=fields.flag("use_bias"),
        conv_bias=fields.flag("use_conv_bias", True),
        element_bytes=state_bytes(fields, "mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
    )  # fmt: skip
    made = {kind: _block(fields, size, kind, mixer) for kind in set(found)}
    # Without layers of a kind its keys mean nothing; the inner size is that of all Mamba heads.
    fields.has(*COUNT, *USED, "moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_shared_experts",
               "attention_bias", "mlp_bias", "expand", "mamba_proj_bias", "time_step_rank")  # fmt: skip
    size = replace(size, ffn=size.ffn or 0)
    return build(fields, name, family, size, [made[kind] for kind in found], is_tied=tied(fields, False))


def _blocks(fields: Fields) -> list[str]:
    pattern = fields.text("hybrid_override_pattern", None)
    if pattern is None:
        key = "layers_block_type" if fields.has("layers_block_type") else "layer_types"
        listed = fields.raw(key)
        if not isinstance(listed, list):
            raise ModelError(f'the key "{fields.name("hybrid_override_pattern")}" (or layers_block_type) is missing.')
        few_layers(len(listed))
        return [BLOCKS[one] for one in fields.each(key, len(listed), list(BLOCKS))]
    few_layers(len(pattern))
    unknown = sorted(set(pattern) - set(PATTERN))
    if unknown or not pattern:
        raise ModelError(f"{fields.name('hybrid_override_pattern')} must be made of M (Mamba), * (attention), - "
                         f"(feed-forward) and E (experts){f', it holds {unknown[0]!r}' if unknown else ''}.")
    return [PATTERN[one] for one in pattern]


def _block(fields: Fields, size: Sizes, kind: str, mixer: Mixer) -> Layer:
    ends = norm(size.hidden)
    if kind == "mamba":
        return mixer.layer(ends, "none")
    if kind == "attention":
        bias = fields.flag("attention_bias")
        matrices = attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=bias, out_bias=bias)
        return attention_layer([*matrices, *ends], size.heads, size.kv_heads, size.head_dim, feed_forward="none")
    bias = fields.flag("mlp_bias")
    if kind == "mlp":
        ffn = fields.whole("intermediate_size")
        return Layer((*plain(size.hidden, ffn, bias=bias), *ends), attention="none")
    one = mixture(fields)
    latent = fields.whole("moe_latent_size", default=None)
    inside = latent or size.hidden
    shared = fields.whole("moe_shared_expert_intermediate_size") if fields.whole("n_shared_experts", default=1) else 0
    matrices = [
        *linear("router", one.count, size.hidden), Matrix(CORRECTION, None, 1, one.count),
        *plain(inside, one.ffn, copies=one.count, used=one.used),
        *plain(size.hidden, shared, bias=bias, tail="_shared"),
    ]
    if latent:
        matrices += [*linear("ffn_latent_in", latent, size.hidden, bias=bias),
                     *linear("ffn_latent_out", size.hidden, latent, bias=bias)]  # fmt: skip
    return Layer((*matrices, *ends), attention="none", feed_forward="experts")


def qwen_linear(fields: Fields, name: str, family: str) -> Model:
    """Qwen3-Next and Qwen 3.5: gated delta nets, with gated full attention in every fourth layer."""
    nested = family != "qwen3_next"
    dense_only = family.startswith("qwen3_5") and "moe" not in family
    size = sizes(fields, kv_heads=4 if dense_only else 2, head_dim=256, ffn=REQUIRED if dense_only else None)
    fields.has("full_attention_interval")

    def by_interval() -> list[str]:
        every = fields.whole("full_attention_interval", default=4)
        return ["linear" if (layer + 1) % every else "full" for layer in range(size.layers)]

    found = kinds(fields, size.layers, ("full", "linear"), by_interval)
    if not fields.flag("attn_output_gate", True):
        raise ModelError(f"{fields.name('attn_output_gate')} is false: attention without its gate is not counted here.")
    bias = fields.flag("attention_bias")
    norms = norm(size.hidden) * 2
    head = [*gated_attention(size, bias), *norm(size.head_dim) * 2]
    mixer = _delta_net(fields, size.hidden, split=nested)
    if dense_only:
        sparse, experts = [False] * size.layers, []
    else:
        one = mixture(fields, count=256 if nested else 512, used=8 if nested else 10, width=512)
        experts = [*routed(size.hidden, one), *shared_expert(fields, size.hidden, 512)]
        sparse = sparse_layers(fields, size.layers)
    stack = []
    for kind, is_sparse in zip(found, sparse, strict=True):
        forward = experts if is_sparse else gated(size.hidden, fields.whole("intermediate_size"))
        named = "experts" if is_sparse else "dense"
        if kind == "linear":
            stack.append(mixer.layer([*forward, *norms], named))
        else:
            stack.append(_gated_layer([*head, *forward, *norms], size, named))
    modules = fields.whole("mtp_num_hidden_layers", default=0, least=0, most=100)
    if modules and fields.flag("mtp_use_dedicated_embeddings"):
        raise ModelError(f"{fields.name('mtp_use_dedicated_embeddings')} is true: such embeddings are not counted.")
    forward = experts or gated(size.hidden, size.ffn)
    layer = _gated_layer([*head, *forward, *norms], size, "experts" if experts else "dense")
    further = [layer] * modules
    if further:  # one projection and three norms for all modules
        extra = (*linear("predict", size.hidden, 2 * size.hidden), *norm(size.hidden) * 3)
        further[0] = replace(layer, matrices=(*layer.matrices, *extra))
    size = replace(size, ffn=size.ffn or 0)
    return build(fields, name, family, size, stack, is_tied=tied(fields, False), further=further)


def gated_attention(size: Sizes, bias: bool) -> list[Matrix]:
    """Attention whose output is weighed by a gate; the query's projection makes both."""
    wide, narrow = size.heads * size.head_dim, size.kv_heads * size.head_dim
    return [
        *linear("attn_q", 2 * wide, size.hidden, bias=bias),
        *linear("attn_k", narrow, size.hidden, bias=bias),
        *linear("attn_v", narrow, size.hidden, bias=bias),
        *linear("attn_output", size.hidden, wide, bias=bias),
    ]


def _gated_layer(matrices: list[Matrix], size: Sizes, feed_forward: str) -> Layer:
    return attention_layer(matrices, size.heads, size.kv_heads, size.head_dim, feed_forward=feed_forward)


def _delta_net(fields: Fields, hidden: int, *, split: bool) -> Mixer:
    """A gated delta net. split : projections of their own (Qwen 3.5), where Qwen3-Next has two fused ones."""
    keys, values = fields.whole("linear_num_key_heads", default=16), fields.whole("linear_num_value_heads", default=32)
    key_dim = fields.whole("linear_key_head_dim", default=128)
    value_dim = fields.whole("linear_value_head_dim", default=128)
    kernel = fields.whole("linear_conv_kernel_dim", default=4)
    if values % keys:
        raise ModelError(f"{fields.name('linear_num_value_heads')} is {values}, no multiple of {keys} key heads.")
    wide = values * value_dim
    channels = 2 * keys * key_dim + wide
    if split:
        into = [*linear("ssm_in", channels, hidden), *linear("ssm_gate", wide, hidden),
                *linear("ssm_beta", values, hidden), *linear("ssm_alpha", values, hidden)]  # fmt: skip
    else:
        into = [*linear("ssm_in", channels + wide, hidden), *linear("ssm_ba", 2 * values, hidden)]
    matrices = [
        *into,
        Matrix("conv", None, channels, kernel),
        *[Matrix("scalar", None, 1, values)] * 2,  # decay and time step's shift
        *norm(value_dim),
        *linear("ssm_out", hidden, wide),
    ]
    elements = values * key_dim * value_dim
    kept = State(elements, state_bytes(fields, "mamba_ssm_dtype"), channels * (kernel - 1))
    return Mixer(tuple(matrices), kept, DELTA_FLOP * elements, "linear")
