"""GGUF architectures: each against the config.json of the same model, and the tensors that `gguf` lists for it."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from offload.describe_model import describe_layer, summarise, summary_of
from offload.errors import ModelError, OffloadError
from offload.models import Model, layers_of, weigh
from offload.models.families import model_of
from offload.readers.gguf_architectures import ARCHITECTURES, FULL, REFUSED
from offload.readers.gguf_model import model_of_gguf
from tests.test_model_files import OUTER, SIZES, dense, gguf_of

HIDDEN, VOCAB = 64, 96
TABLE = [("token_embd.weight", (VOCAB, HIDDEN), "f16"), ("output_norm.weight", (HIDDEN,), "f32"),
         ("output.weight", (VOCAB, HIDDEN), "f16")]  # fmt: skip


def block(layer: int, shapes: dict[str, tuple[int, ...]]) -> list[tuple]:
    """Tensors of a layer; a name that does not end in .bias or a dot is a weight's."""
    named = [(one.rstrip(".") if one.endswith((".bias", ".")) else f"{one}.weight", shape)
             for one, shape in shapes.items()]  # fmt: skip
    return [(f"blk.{layer}.{one}", shape, "f32" if len(shape) == 1 else "f16") for one, shape in named]


def attention(heads: int, kv_heads: int, head: int, gate: int = 1) -> dict[str, tuple[int, ...]]:
    return {"attn_q": (gate * heads * head, HIDDEN), "attn_k": (kv_heads * head, HIDDEN),
            "attn_v": (kv_heads * head, HIDDEN), "attn_output": (HIDDEN, heads * head)}  # fmt: skip


def gated(ffn: int, tail: str = "") -> dict[str, tuple[int, ...]]:
    return {f"ffn_gate{tail}": (ffn, HIDDEN), f"ffn_up{tail}": (ffn, HIDDEN), f"ffn_down{tail}": (HIDDEN, ffn)}


def experts(count: int, ffn: int, parts: str = "gate up down") -> dict[str, tuple[int, ...]]:
    return {"ffn_gate_inp": (count, HIDDEN), **{f"ffn_{part}_exps": (count, HIDDEN, ffn) if part == "down" else
                                                (count, ffn, HIDDEN) for part in parts.split()}}  # fmt: skip


def norms(*names: str, size: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(names, (size,))


def mamba2(heads: int, head: int, state: int, groups: int, kernel: int) -> dict[str, tuple[int, ...]]:
    inner, channels = heads * head, heads * head + 2 * groups * state
    return {"ssm_in": (inner + channels + heads, HIDDEN), "ssm_conv1d": (channels, kernel),
            "ssm_conv1d.bias": (channels,), "ssm_dt.bias": (heads,), "ssm_a.": (heads, 1), "ssm_d.": (heads, 1),
            "ssm_norm": (groups, inner // groups), "ssm_out": (HIDDEN, inner)}  # fmt: skip


def jamba() -> tuple[dict, list[tuple], dict]:
    inner, state, rank = 128, 8, 4
    mixer = {"ssm_in": (2 * inner, HIDDEN), "ssm_conv1d": (inner, 4), "ssm_conv1d.bias": (inner,),
             "ssm_x": (rank + 2 * state, inner), "ssm_dt": (inner, rank), "ssm_dt.bias": (inner,),
             "ssm_a.": (inner, state), "ssm_d.": (inner,), "ssm_out": (HIDDEN, inner),
             **norms("ssm_dt_norm", size=rank), **norms("ssm_b_norm", "ssm_c_norm", size=state)}  # fmt: skip
    tensors = []
    for layer in range(4):
        first = attention(4, 2, 16) if layer == 2 else mixer
        second = experts(4, 96) if layer % 2 else gated(96)
        tensors += block(layer, {**first, **second, **norms("attn_norm", "ffn_norm")})
    config = {"model_type": "jamba", "num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2,
              "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2,
              "mamba_d_state": state, "mamba_dt_rank": rank, "intermediate_size": 96}  # fmt: skip
    keys = {"attention__head_count_kv": [0, 0, 2, 0], "expert_count": 4, "expert_used_count": 2,
            "feed_forward_length": 96, "ssm__conv_kernel": 4, "ssm__inner_size": inner, "ssm__state_size": state,
            "ssm__time_step_rank": rank}  # fmt: skip
    return config, tensors, keys


def granitehybrid() -> tuple[dict, list[tuple], dict]:
    tensors = []
    for layer in range(3):
        first = attention(4, 2, 16) if layer == 1 else mamba2(8, 16, 16, 1, 4)
        tensors += block(layer, {**first, **experts(6, 32), **gated(48, "_shexp"), **norms("attn_norm", "ffn_norm")})
    config = {"model_type": "granitemoehybrid", "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
              "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32, "mamba_n_heads": 8,
              "shared_intermediate_size": 48, "mamba_d_state": 16, "mamba_d_head": 16}  # fmt: skip
    keys = {"attention__head_count_kv": [0, 2, 0], "expert_count": 6, "expert_used_count": 2, "feed_forward_length": 32,
            "ssm__conv_kernel": 4, "ssm__inner_size": 128, "ssm__state_size": 16, "ssm__group_count": 1,
            "ssm__time_step_rank": 8}  # fmt: skip
    return config, tensors, keys


def mamba2_alone() -> tuple[dict, list[tuple], dict]:
    tensors = [one for layer in range(2)
               for one in block(layer, {**mamba2(8, 16, 16, 2, 4), **norms("attn_norm")})]  # fmt: skip
    config = {"model_type": "mamba2", "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 16,
              "n_groups": 2}  # fmt: skip
    keys = {"attention__head_count": 0, "feed_forward_length": 0, "ssm__conv_kernel": 4, "ssm__inner_size": 128,
            "ssm__state_size": 16, "ssm__group_count": 2, "ssm__time_step_rank": 8}  # fmt: skip
    return config, tensors, keys


def nemotron_h_moe() -> tuple[dict, list[tuple], dict]:
    parts = (mamba2(8, 16, 16, 2, 4), {"ffn_up": (96, HIDDEN), "ffn_down": (HIDDEN, 96)}, attention(4, 2, 16),
             {**experts(4, 32, "up down"), "exp_probs_b.bias": (4,), "ffn_up_shexp": (48, HIDDEN),
              "ffn_down_shexp": (HIDDEN, 48)})  # fmt: skip
    tensors = [one for layer, part in enumerate(parts) for one in block(layer, {**part, **norms("attn_norm")})]
    config = {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "intermediate_size": 96,
              "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "n_routed_experts": 4,
              "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
              "head_dim": 16}  # fmt: skip
    keys = {"attention__head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 96, 0, 0], "expert_count": 4,
            "expert_used_count": 2, "ssm__conv_kernel": 4, "ssm__inner_size": 128, "ssm__state_size": 16,
            "ssm__group_count": 2, "ssm__time_step_rank": 8}  # fmt: skip
    return config, tensors, keys


def delta(fused: bool) -> dict[str, tuple[int, ...]]:
    """2 key and 4 value heads of 8."""
    wide, channels = 32, 64
    into = {"ssm_in": (channels + wide, HIDDEN), "ssm_ba": (8, HIDDEN)} if fused else {
        "attn_qkv": (channels, HIDDEN), "attn_gate": (wide, HIDDEN), "ssm_beta": (4, HIDDEN), "ssm_alpha": (4, HIDDEN)}
    return {**into, "ssm_conv1d": (channels, 4), "ssm_dt.bias": (4,), "ssm_a.": (4,), "ssm_norm": (8,),
            "ssm_out": (HIDDEN, wide)}  # fmt: skip


def qwen(fused: bool) -> tuple[dict, list[tuple], dict]:
    tensors = []
    for layer in range(4):
        first = delta(fused) if layer < 3 else {**attention(4, 2, 16, 2), **norms("attn_q_norm", "attn_k_norm",
                                                                                  size=16)}  # fmt: skip
        tensors += block(layer, {**first, **experts(8, 16), **gated(24, "_shexp"), "ffn_gate_inp_shexp": (HIDDEN,),
                                 **norms("attn_norm", "post_attention_norm")})  # fmt: skip
    config = {"model_type": "qwen3_next" if fused else "qwen3_5_moe", "num_hidden_layers": 4, "num_experts": 8,
              "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24,
              "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
              "linear_value_head_dim": 8, "head_dim": 16, "intermediate_size": 96}  # fmt: skip
    keys = {"attention__head_count_kv": 2, "attention__key_length": 16, "attention__value_length": 16,
            "expert_count": 8, "expert_used_count": 2, "ssm__conv_kernel": 4, "ssm__inner_size": 32,
            "ssm__state_size": 8, "ssm__group_count": 2, "ssm__time_step_rank": 4,
            "full_attention_interval": 4}  # fmt: skip
    return config, tensors, keys


def llama4() -> tuple[dict, list[tuple], dict]:
    tensors = []
    for layer in range(4):
        second = {**experts(4, 32), **gated(32, "_shexp")} if layer % 2 else gated(96)
        tensors += block(layer, {**attention(4, 2, 16), **second, **norms("attn_norm", "ffn_norm")})
    config = {"model_type": "llama4", "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 1,
              "intermediate_size": 32, "intermediate_size_mlp": 96, "interleave_moe_layer_step": 2,
              "head_dim": 16}  # fmt: skip
    return config, tensors, {"attention__head_count_kv": 2, "expert_count": 4, "expert_used_count": 1}


def gemma4() -> tuple[dict, list[tuple], dict]:
    """Windows of 4 heads of 8 with 2 KV heads; all positions with heads of 16 and 1 KV head, without a V of its own."""
    tensors = [("per_layer_token_embd.weight", (VOCAB, 3 * 4), "f16"), ("per_layer_model_proj.weight", (12, HIDDEN),
               "f16"), ("per_layer_proj_norm.weight", (4,), "f32"), ("rope_freqs.weight", (8,), "f32")]  # fmt: skip
    for layer, (head, kv) in enumerate([(8, 2), (16, 1), (16, 1)]):
        part = {"attn_q": (4 * head, HIDDEN), "attn_output": (HIDDEN, 4 * head), **norms("attn_q_norm", size=head)}
        if layer < 2:
            part |= {"attn_k": (kv * head, HIDDEN), **norms("attn_k_norm", size=head)}
        if layer == 0:
            part["attn_v"] = (kv * head, HIDDEN)
        part |= {**gated(96), **norms("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"),
                 "layer_output_scale": (1,), "inp_gate": (4, HIDDEN), "proj": (HIDDEN, 4)}  # fmt: skip
        tensors += block(layer, part)
    config = {"model_type": "gemma4_text", "num_hidden_layers": 3, "head_dim": 8, "global_head_dim": 16,
              "layer_types": ["sliding_attention", "full_attention", "full_attention"], "attention_k_eq_v": True,
              "num_global_key_value_heads": 1, "num_kv_shared_layers": 1, "sliding_window": 128,
              "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": VOCAB, "intermediate_size": 96,
              "tie_word_embeddings": True}  # fmt: skip
    keys = {"attention__head_count_kv": [2, 1, 1], "attention__key_length": 16, "attention__value_length": 16,
            "attention__key_length_swa": 8, "attention__value_length_swa": 8, "attention__sliding_window": 128,
            "attention__sliding_window_pattern": [True, False, False], "attention__shared_kv_layers": 1}  # fmt: skip
    return config, tensors, keys


def glm_dsa() -> tuple[dict, list[tuple], dict]:
    part = {"attn_q_a": (32, HIDDEN), "attn_q_a_norm": (32,), "attn_q_b": (4 * 24, 32), "attn_kv_a_mqa": (40, HIDDEN),
            "attn_kv_a_norm": (32,), "attn_kv_b": (4 * 32, 32), "attn_output": (HIDDEN, 64),
            "indexer.attn_q_b": (2 * 16, 32), "indexer.attn_k": (16, HIDDEN), "indexer.k_norm": (16,),
            "indexer.k_norm.bias": (16,), "indexer.proj": (2, HIDDEN)}  # fmt: skip
    tensors = []
    for layer in range(2):
        second = {**experts(8, 16), "exp_probs_b.bias": (8,), **gated(16, "_shexp")} if layer else gated(96)
        tensors += block(layer, {**part, **second, **norms("attn_norm", "ffn_norm")})
    config = {"model_type": "glm_moe_dsa", "num_hidden_layers": 2, "q_lora_rank": 32, "kv_lora_rank": 32,
              "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "index_n_heads": 2, "index_head_dim": 16,
              "index_topk": 4,
              "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
              "intermediate_size": 96, "num_nextn_predict_layers": 0, "num_key_value_heads": 4}  # fmt: skip
    keys = {"attention__head_count_kv": 1, "attention__kv_lora_rank": 32, "rope__dimension_count": 8,
            "attention__indexer__head_count": 2, "attention__indexer__key_length": 16, "attention__indexer__top_k": 4,
            "expert_count": 8, "expert_used_count": 2}  # fmt: skip
    return config, tensors, keys


SAME = {
    "jamba": jamba, "granitehybrid": granitehybrid, "mamba2": mamba2_alone, "nemotron_h_moe": nemotron_h_moe,
    "qwen3next": lambda: qwen(True), "qwen35moe": lambda: qwen(False), "llama4": llama4, "gemma4": gemma4,
    "glm-dsa": glm_dsa,
}  # fmt: skip


def both(architecture: str) -> tuple[Model, Model]:
    """The model of a config and of a GGUF file."""
    config, tensors, keys = SAME[architecture]()
    common = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_attention_heads": 4, "num_key_value_heads": 2,
              "tie_word_embeddings": False, "index_topk_freq": 1}  # fmt: skip
    table = TABLE[:2] if config.get("tie_word_embeddings") else TABLE
    layers = 1 + max(int(name.split(".")[1]) for name, _, _ in tensors if name.startswith("blk."))
    keys = {"embedding_length": HIDDEN, "block_count": layers, "attention__head_count": 4, **keys}
    return model_of(common | config, "m"), model_of_gguf(gguf_of(architecture, [*table, *tensors], **keys))


@pytest.mark.parametrize("architecture", SAME)
def test_a_gguf_file_and_the_config_of_the_same_model_agree(architecture):
    config, model = both(architecture)
    buffers = 8 if architecture == "gemma4" else 0  # rope_freqs, which a config does not count
    assert model.parameters == config.parameters + buffers
    assert model.parameters_active == config.parameters_active + buffers
    for own, told in zip(layers_of(model), layers_of(config), strict=True):
        assert (own.cache, own.attend, own.mix, own.experts) == (told.cache, told.attend, told.mix, told.experts)
        assert (own.index, own.expanded, own.expand) == (told.index, told.expanded, told.expand)
        assert (own.state.elements, own.state.conv) == (told.state.elements, told.state.conv)
        assert (own.parameters, own.active) == (told.parameters, told.active)
        assert (own.attention, own.feed_forward) == (told.attention, told.feed_forward)
    one, other = summarise(model, "bf16"), summarise(config, "bf16")
    assert (one.kv_bytes_per_token, one.decode_flops) == (other.kv_bytes_per_token, other.decode_flops)
    for name in ("recurrent", "routed experts", "shared experts", "attention"):
        assert one.classes.get(name) == other.classes.get(name), name
    assert model.stored.total == sum(size for _, size in model.stored.parts) and model.stored.besides == 0


def test_a_state_is_kept_in_32_bits():
    _, model = both("granitehybrid")
    assert model.stack[0].state.element_bytes == model.stack[0].state.conv_bytes == 4
    assert summarise(model, "stored").state_bytes_per_sequence == 2 * 4 * (128 * 16 + (128 + 32) * 3)


def test_the_granite_sample_is_a_mamba_layer_of_its_size():
    """Granite-4.0-H-Tiny as its dump shows layer 0: 3072 x 128 in 32 bits, and 3 inputs of 3328 channels."""
    shapes = {"ssm_in": (6448, 1536), "ssm_conv1d": (3328, 4), "ssm_conv1d.bias": (3328,), "ssm_dt.bias": (48,),
              "ssm_a.": (48, 1), "ssm_d.": (48, 1), "ssm_norm": (3072,), "ssm_out": (1536, 3072),
              "ffn_gate_inp": (64, 1536), "ffn_gate_exps": (64, 512, 1536), "ffn_up_exps": (64, 512, 1536),
              "ffn_down_exps": (64, 1536, 512), "ffn_gate_shexp": (1024, 1536), "ffn_up_shexp": (1024, 1536),
              "ffn_down_shexp": (1536, 1024), "attn_norm": (1536,), "ffn_norm": (1536,)}  # fmt: skip
    tensors = [("token_embd.weight", (100352, 1536), "q6_k"), ("output_norm.weight", (1536,), "f32"),
               *block(0, shapes)]  # fmt: skip
    model = model_of_gguf(gguf_of(
        "granitehybrid", tensors, block_count=1, embedding_length=1536, feed_forward_length=512, expert_count=64,
        expert_used_count=6, attention__head_count=12, attention__head_count_kv=[0], ssm__conv_kernel=4,
        ssm__state_size=128, ssm__group_count=1, ssm__inner_size=3072, ssm__time_step_rank=48))  # fmt: skip
    state = model.stack[0].state
    assert (state.elements, state.conv) == (3072 * 128, 3328 * 3)
    assert model.stack[0].experts == (64, 6) and model.tied
    assert model.stack[0].mix == 4 * 3072 * 128


def test_attention_and_a_state_in_one_layer():
    """Falcon-H1 runs both beside each other in every layer."""
    part = {**mamba2(8, 16, 16, 1, 4), **attention(4, 2, 16), **gated(96), **norms("attn_norm", "ffn_norm")}
    part.pop("ssm_norm")
    model = model_of_gguf(gguf_of(
        "falcon-h1", [*TABLE, *block(0, part)], block_count=1, embedding_length=HIDDEN, attention__head_count=4,
        attention__head_count_kv=2, ssm__conv_kernel=4, ssm__inner_size=128, ssm__state_size=16,
        ssm__group_count=1))  # fmt: skip
    layer = model.stack[0]
    assert (layer.attention, layer.cache.heads, layer.state.elements, layer.mix) == ("full", 2, 2048, 4 * 2048)
    assert describe_layer(layer) == (
        "full attention, 4 heads, 2 KV heads of 16, beside a state of 10,112 B for each sequence; dense feed-forward")


def test_delta_layers_of_kimi_and_short_convolutions():
    wide = 4 * 8
    part = {"attn_q": (wide, HIDDEN), "attn_k": (wide, HIDDEN), "attn_v": (wide, HIDDEN), "attn_output": (HIDDEN, wide),
            **{f"ssm_conv1d_{one}": (1, wide, 1, 4) for one in "qkv"}, "ssm_f_a": (8, HIDDEN), "ssm_f_b": (wide, 8),
            "ssm_beta": (4, HIDDEN), "ssm_a.": (4, 1), "ssm_g_a": (8, HIDDEN), "ssm_g_b": (wide, 8),
            "ssm_dt.bias": (wide,), "ssm_norm": (8,)}  # fmt: skip
    keys = {"block_count": 1, "embedding_length": HIDDEN, "attention__head_count": 4, "attention__head_count_kv": [0]}
    kimi = model_of_gguf(gguf_of("kimi-linear", [*TABLE, *block(0, {**part, **gated(96)})], **keys,
                                 ssm__conv_kernel=4, kda__head_dim=8))  # fmt: skip
    layer = kimi.stack[0]
    assert (layer.attention, layer.cache.kind, layer.state.elements, layer.state.conv) == (
        "linear", "none", 4 * 8 * 8, 3 * wide * 3)
    conv = {"shortconv.conv": (HIDDEN, 3), "shortconv.in_proj": (3 * HIDDEN, HIDDEN),
            "shortconv.out_proj": (HIDDEN, HIDDEN)}  # fmt: skip
    lfm = model_of_gguf(gguf_of("lfm2", [*TABLE[:1], *block(0, {**conv, **gated(96)})], **keys, shortconv__l_cache=3))
    assert (lfm.stack[0].state.elements, lfm.stack[0].state.conv, lfm.tied) == (0, 2 * HIDDEN, True)
    with pytest.raises(ModelError, match="shortconv.l_cache is 4, and blk.0.shortconv.conv.weight has a kernel of 3"):
        model_of_gguf(gguf_of("lfm2", [*TABLE, *block(0, conv)], **keys, shortconv__l_cache=4))


@pytest.mark.parametrize("architecture, layers, keys, windows", [
    ("cohere2", 4, {"attention__sliding_window": 16}, [16, 16, 16, 0]),
    ("olmo2", 4, {}, [0] * 4),
    ("olmo2", 4, {"attention__sliding_window": 16}, [16, 16, 16, 0]),
    ("smallthinker", 4, {"attention__sliding_window": 16}, [0, 16, 16, 16]),
    ("exaone4", 4, {"attention__sliding_window": 16}, [0] * 4),
    ("plamo3", 4, {"attention__sliding_window": 16, "attention__sliding_window_pattern": 2}, [16, 0, 16, 0]),
    ("mimo2", 2, {"attention__sliding_window": 16, "attention__sliding_window_pattern": [0, 1]}, [0, 16]),
    ("step35", 2, {"attention__sliding_window": 16, "attention__sliding_window_pattern": [True, False]}, [16, 0]),
    ("llama4", 4, {}, [8192, 8192, 8192, 0]),
    ("llama4", 4, {"attention__sliding_window": 0}, [0] * 4),
    ("lfm2", 1, {"attention__sliding_window": 16}, [16]),
    ("starcoder2", 1, {"attention__sliding_window": 16}, [0]),
])  # fmt: skip
def test_windows(architecture, layers, keys, windows):
    tensors = [*OUTER, *(one for layer in range(layers) for one in dense(layer))]
    model = model_of_gguf(gguf_of(architecture, tensors, block_count=layers, **SIZES, **keys))
    assert [layer.cache.window for layer in model.stack] == windows
    kinds = {layer.attention for layer in model.stack} - {"full"}
    assert kinds == (set() if not any(windows) else {"chunk" if architecture == "llama4" else "window"})


def test_caches_that_are_shared_leave_projections_idle():
    """Gemma 3n stores keys and values of layers that read an earlier cache; they are beside the model."""
    tensors = [*OUTER, *(one for layer in range(3) for one in dense(layer))]
    keys = {"block_count": 3, **SIZES, "attention__sliding_window": 16,
            "attention__sliding_window_pattern": [True, False, True]}  # fmt: skip
    stored = gguf_of("gemma3n", tensors, **keys, attention__shared_kv_layers=1)
    model = model_of_gguf(stored)
    assert [layer.cache.shared for layer in model.stack] == [False, False, True]
    idle = 2 * 64 * 128 // 32 * 18
    assert (model.stored.besides, model.stored.total) == (idle, stored.bytes - idle)
    assert any(f"stored and not run: {idle:,} B of keys and values" in note for note in model.stored.notes)
    with pytest.raises(ModelError, match="gemma3n.attention.shared_kv_layers\" is missing"):
        model_of_gguf(gguf_of("gemma3n", tensors, **keys))
    with pytest.raises(ModelError, match="shared_kv_layers is 3: .* none of its kind before it"):
        model_of_gguf(gguf_of("gemma3n", tensors, **keys, attention__shared_kv_layers=3))


def test_one_token_takes_a_row_of_a_table():
    tensors = [*OUTER, ("position_embd.weight", (50, 128), "f32"), *dense(0)]
    model = model_of_gguf(gguf_of("gpt2", tensors, block_count=1, **SIZES))
    assert model.parameters - model.parameters_active == 49 * 128


def test_values_of_another_size_than_keys_are_seen_in_the_output():
    """MiniCPM3 states the keys' size alone; all heads' values enter attn_output."""
    shapes = {"attn_q_a": (32, 128), "attn_q_b": (4 * 48, 32), "attn_kv_a_mqa": (48, 128), "attn_kv_b": (4 * 64, 32),
              "attn_output": (128, 4 * 32)}  # fmt: skip
    tensors = [*OUTER, *((f"blk.0.{name}.weight", shape, "f16") for name, shape in shapes.items()),
               *(one for one in dense(0) if ".ffn" in one[0])]  # fmt: skip
    keys = {**SIZES, "attention__head_count_kv": 4, "attention__key_length": 48}
    cache = model_of_gguf(gguf_of("minicpm3", tensors, block_count=1, **keys)).stack[0].cache
    assert (cache.kind, cache.heads, cache.key_dim, cache.value_dim) == ("full", 4, 48, 32)


@pytest.mark.parametrize("change, said", [
    ({"ssm__inner_size": 127}, "has 160 channels, and granitehybrid.ssm.inner_size"),
    ({"ssm__conv_kernel": 5}, "granitehybrid.ssm.conv_kernel is 5, .* has a kernel of 4"),
    ({"ssm__state_size": None}, '"granitehybrid.ssm.state_size" is missing'),
    ({"attention__head_count_kv": [0, 2]}, "head_count_kv is a list of 2"),
])  # fmt: skip
def test_keys_that_contradict_a_state(change, said):
    _, tensors, keys = granitehybrid()
    keys = {"embedding_length": HIDDEN, "block_count": 3, "attention__head_count": 4, **keys, **change}
    with pytest.raises(ModelError, match=said):
        model_of_gguf(gguf_of("granitehybrid", [*TABLE, *tensors], **keys))


def test_a_state_or_attention_where_none_is_known():
    _, tensors, keys = granitehybrid()
    keys = {"embedding_length": HIDDEN, "block_count": 3, "attention__head_count": 4, **keys}
    with pytest.raises(ModelError, match="layer 0 holds blk.0.ssm_conv1d.weight, and llama is not known to have"):
        model_of_gguf(gguf_of("llama", [*TABLE, *tensors], **keys))
    with pytest.raises(ModelError, match="layer 0 holds no tensors of attention, and the keys say 4 heads"):
        model_of_gguf(gguf_of("llama", [*OUTER, *(one for one in dense(0) if "ffn" in one[0])], block_count=1, **SIZES))
    for architecture in ("gemma4", "mimo2"):
        with pytest.raises(ModelError, match="sliding_window_pattern\" is missing, so which layers"):
            model_of_gguf(gguf_of(architecture, [*OUTER, *dense(0)], block_count=1, attention__sliding_window=16,
                                  **SIZES))  # fmt: skip


@pytest.mark.parametrize("architecture", REFUSED)
def test_what_is_no_model_here_is_refused_with_the_reason(architecture):
    with pytest.raises(ModelError) as error:
        model_of_gguf(gguf_of(architecture, [*OUTER, *dense(0)], block_count=1, **SIZES))
    assert REFUSED[architecture][1:] in str(error.value) and "--like" not in str(error.value)


def test_a_file_of_an_architecture_that_is_not_known_may_be_like_one_that_is():
    stored = gguf_of("newcomer", [*OUTER, *dense(0), *dense(1)], block_count=2, **SIZES)
    with pytest.raises(ModelError, match="'newcomer' are not counted yet.*--like FAMILY"):
        model_of_gguf(stored)
    model = model_of_gguf(stored, like="gemma2", give={"attention.sliding_window": 16})
    assert [layer.cache.window for layer in model.stack] == [16, 0] and model.family == "newcomer"
    assert model.notes == (
        "its architecture 'newcomer' is not known: its layers attend as those of gemma2, as asked",
        "given, which the file lacks: attention.sliding_window is 16")
    for like, give, said in [
        ("gemma9", {}, "like names 'gemma9', which is no architecture here.*mean"),
        ("llama", {"attention.head_cuont": 4}, "attention.head_cuont is given.*attention.head_count\"?"),
        ("llama", {"attention.head_count": "4"}, 'head_count is the text "4"'),
    ]:
        with pytest.raises(ModelError, match=said):
            model_of_gguf(stored, like=like, give=give)
    with pytest.raises(ModelError, match="'llama' is known. Drop like"):
        model_of_gguf(gguf_of("llama", [*OUTER, *dense(0)], block_count=1, **SIZES), like="qwen2")


def test_the_tables_are_those_of_the_gguf_library():
    """Every architecture is read or refused; which have states and latents, its lists of tensors say too."""
    gguf = pytest.importorskip("gguf")
    assert set(ARCHITECTURES) & set(REFUSED) == set()
    assert set(ARCHITECTURES) | set(REFUSED) == set(gguf.MODEL_ARCH_NAMES.values())
    whole = {"minicpm3", "plm", "deepseek2-ocr"}  # lists name a latent's tensors, and all heads are kept
    for one, name in gguf.MODEL_ARCH_NAMES.items():
        if name not in ARCHITECTURES:
            continue
        names = " ".join(gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[one])
        assert ("conv" in names) == bool(ARCHITECTURES[name].state), name
        assert ("attn_kv_a_mqa" in names and name not in whole) == ARCHITECTURES[name].latent, name


def test_every_plain_architecture_reads():
    for name, known in ARCHITECTURES.items():
        if known == FULL:
            model = model_of_gguf(gguf_of(name, [*OUTER, *dense(0)], block_count=1, **SIZES))
            assert (model.stack[0].cache.kind, model.stack[0].cache.heads) == ("full", 2), name
            assert weigh(model, "stored").total == 64_512 + 34_816 + 1_024 + 43_520 + 512, name


# --- damaged files ---


def header_of(architecture: str, path: Path) -> bytes:
    """A file of an architecture as the `gguf` library writes it, up to its first tensor's bytes."""
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    _, tensors, keys = SAME[architecture]()
    layers = 1 + max(int(name.split(".")[1]) for name, _, _ in tensors if name.startswith("blk."))
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in {"embedding_length": HIDDEN, "block_count": layers, "attention__head_count": 4, **keys}.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        writer.add_array(name, value) if isinstance(value, list) else writer.add_uint32(name, value)
    for name, shape, _ in [*TABLE, *tensors]:
        writer.add_tensor(name, numpy.zeros(shape, dtype=numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    raw = path.read_bytes()
    return raw[: raw.rindex(b".weight") + 64]


def ends_well(path: Path) -> bool:
    """Whether a file is read; one that is not is refused in words."""
    try:
        told = summary_of(str(path), None)
        assert told.weight_bytes >= 0
        return True
    except OffloadError as error:
        assert 10 < len(str(error)) < 1500 and str(error).isprintable()
        return False


@pytest.mark.few
@pytest.mark.parametrize("source", ["tiny_llama_mixed.header.gguf", "tiny_mixed.safetensors", "jamba", "gemma4"])
def test_cut_and_flipped_files_end_in_words_and_little_memory(source, tmp_path):
    """Cut at each of 200 places, a byte changed at each of 300; of the larger ones at 40 and 60."""
    fixture = Path(__file__).parent / "data" / "weights" / source
    raw = header_of(source, tmp_path / "whole.gguf") if source in SAME else fixture.read_bytes()
    path = tmp_path / f"m{fixture.suffix or '.gguf'}"
    path.write_bytes(raw)
    assert ends_well(path)
    chance, cuts, rounds = random.Random(source), *((40, 100) if source in SAME else (200, 500))
    tracemalloc.start()
    try:
        outcomes = []
        for number in range(rounds):
            at = chance.randrange(len(raw))
            other = bytes([raw[at] ^ chance.randrange(1, 256)])
            path.write_bytes(raw[:at] if number < cuts else raw[:at] + other + raw[at + 1 :])
            outcomes.append(ends_well(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
    assert any(outcomes) and not all(outcomes)  # both happen, so that both were tested
