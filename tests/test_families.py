"""Families of decoders: stored parameters, what a layer keeps and computes, class defaults, and configs gone wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.errors import ModelError, OffloadError
from offload.models import Model
from offload.models.architecture import attention_flops, layer_flops, layers_of
from offload.models.cache import Cache, State
from offload.models.families import FAMILIES, SHAPE_KEYS, model_of
from offload.models.families.said import read_given
from offload.readers import load_model

SAMPLES = Path(__file__).parent / "data" / "hf_config"
FOLDERS = sorted(path.parent.name for path in SAMPLES.glob("*/config.json"))


def values_of(folder: str) -> dict:
    return json.loads((SAMPLES / folder / "config.json").read_text())


CONFIGS = {folder: values_of(folder) for folder in FOLDERS}


def model(folder: str, **changes) -> Model:
    """A sample with changed keys, in the nested part where it has one; a change to ... drops the key."""
    values = values_of(folder)
    inner = values.get("text_config", values)
    inner.update(changes)
    for key in [key for key, value in inner.items() if value is ...]:
        del inner[key]
    return model_of(values, "m", weights_known=True)


def refusal(folder: str, **changes) -> str:
    with pytest.raises(ModelError) as error:
        model(folder, **changes)
    assert len(str(error.value)) < 600 and str(error.value).isprintable()
    return str(error.value)


def elements(cache: Cache) -> int:
    """Elements that a cache holds for one position, without an indexer's."""
    if cache.kind == "latent":
        return cache.latent + cache.rope
    return 0 if cache.shared else cache.heads * (cache.key_dim + cache.value_dim)


def kv_bytes_per_token(read: Model) -> int:
    return 2 * sum(elements(layer.cache) for layer in layers_of(read))


# --- parameters ---

# Folder: parameters; KV bytes per token of all layers at 16 bits. The counts are those of the model classes of
# transformers 5.24.0 with the router biases that checkpoints store as buffers, or are published (see below).
COUNTED = {
    "DeepSeek-V2-Lite": (15_706_484_224, 31_104),
    "DeepSeek-V3": (671_026_419_200, 70_272),
    "DeepSeek-V3.2": (671_877_944_064, 70_272),
    "Devstral-Small-2507": (23_572_403_200, 163_840),
    "Falcon-7B-defaults": (6_921_720_704, 8_192),
    "Gemma2-2B-defaults": (2_614_341_888, 106_496),
    "Jamba-1.5-Mini": (51_570_323_328, 16_384),
    "Kimi-K2-Instruct": (1_026_408_232_448, 70_272),
    "Llama-2-7b": (6_738_415_616, 524_288),
    "Llama-3.1-70B": (70_553_706_496, 327_680),
    "Llama-3.1-8B": (8_030_261_248, 131_072),
    "Llama-3.1-8B-saved-by-transformers5": (8_030_261_248, 131_072),
    "Llama-3_3-Nemotron-Super-49B": (49_867_145_216, 200_704),
    "Llama-4-Scout": (107_769_861_120, 196_608),
    "Mamba2-defaults": (7_285_403_648, 0),
    "MiMo-V2-Flash": (308_778_780_864, 222_720),
    "MiniMax-M2.5": (228_689_764_864, 253_952),
    "Mistral-7B-v0.1-defaults": (7_241_732_096, 131_072),
    "Mistral-Nemo-Instruct-2407": (12_247_782_400, 163_840),
    "Mixtral-8x7B": (46_702_792_704, 131_072),
    "Molmo7B-NF4": (7_615_616_512, 57_344),
    "Nemotron-H-56B": (56_324_350_464, 40_960),
    "OPT-125m-defaults": (125_239_296, 36_864),
    "Phi-3-mini-variant": (3_821_079_552, 393_216),
    "Qwen2.5-7B-Instruct": (7_615_616_512, 57_344),
    "Qwen3-235B-A22B-NVFP4": (235_093_634_560, 192_512),
    "Qwen3-30B-A3B": (30_532_122_624, 98_304),
    "Qwen3-32B-FP8": (32_762_123_264, 262_144),
    "Qwen3-8B": (8_190_735_360, 147_456),
    "Qwen3-Next-80B-defaults": (79_674_391_296, 24_576),
    "Qwen3.5-35B-A3B": (34_660_610_688, 20_480),
    "falcon-180B": (179_522_565_120, 163_840),
    "gemma-2b": (2_506_172_416, 18_432),
    "gemma-3-27b": (27_009_346_304, 507_904),
    "gemma-4-26B-A4B": (25_233_141_790, 225_280),
    "gpt-oss-20b": (20_914_757_184, 49_152),
    "granite-3.1-1b-a400m": (1_334_628_352, 49_152),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_parameters_and_kv_of_every_sample(folder):
    read = model(folder)
    assert (read.parameters, kv_bytes_per_token(read)) == COUNTED[folder]


# total_size of model.safetensors.index.json beside each config: two bytes for each stored parameter.
TOTAL_SIZES = {
    "gemma-2b": 5_012_344_832,
    "Devstral-Small-2507": 47_144_806_400,
    "falcon-180B": 359_045_130_240,
    "Phi-3-mini-variant": 7_642_159_104,
    "gemma-3-27b": 54_864_813_280,  # with its vision tower
}


@pytest.mark.parametrize("folder", TOTAL_SIZES)
def test_stored_totals_are_exact(folder):
    assert 2 * model(folder).parameters_stored == TOTAL_SIZES[folder]


def test_molmos_total_holds_a_vision_tower_that_its_config_does_not_describe():
    """6,661,964,712 bytes: the decoder's matrices in NF4 with a 32-bit scale for 64 weights, the rest in 16 bits."""
    total, all_parameters = 6_661_964_712, 8_021_025_280  # as its index says
    read = model("Molmo7B-NF4")
    quantised = sum(one.parameters for layer in read.stack for one in layer.matrices if one.is_matrix)
    described = quantised // 2 + 4 * quantised // 64 + 2 * (read.parameters - quantised)
    assert described < 0.9 * total
    beside = all_parameters - read.parameters  # 405 M: the tower and 128 rows of embedding
    assert described + 2 * beside == pytest.approx(total, rel=1e-4)
    assert "vision tower" in read.notes[0]


@pytest.mark.parametrize(
    "folder, active",
    [
        ("Mixtral-8x7B", 12_879_925_248 - 31_999 * 4096),  # 12.9 B with all of the embedding
        ("Qwen3-30B-A3B", 3_041_869_824),
        ("Qwen3-235B-A22B-NVFP4", 21_568_437_760),
        ("gpt-oss-20b", 3_608_310_144),  # published: 3.61 B
        ("DeepSeek-V3", 36_625_625_600),  # published: 36.7 B with all of the embedding
        ("DeepSeek-V2-Lite", 2_451_437_056),  # published: 2.4 B
        ("Llama-2-7b", 6_738_415_616 - 31_999 * 4096),
        ("OPT-125m-defaults", 125_239_296 - 2049 * 768),  # a row of the positions
        ("Mamba2-defaults", 7_285_403_648 - 32_767 * 4096),
    ],
)
def test_active_parameters(folder, active):
    assert model(folder).parameters_active == active


def test_deepseeks_module_of_prediction_is_stored_and_not_run():
    """11.5 B of its own and copies of embedding and head: 685 B with the main model's 671 B."""
    read = model("DeepSeek-V3")
    (module,) = read.further
    assert read.parameters_stored == 684_489_845_504 == read.parameters + module.parameters
    own = module.parameters - 2 * 129_280 * 7168
    assert own == read.stack[-1].parameters + 3 * 7168 + 7168 * 2 * 7168
    assert own == pytest.approx(11.5e9, rel=0.01)
    assert not model("DeepSeek-V3", num_nextn_predict_layers=0).further
    assert not model("Kimi-K2-Instruct").further
    assert len(model("Kimi-K2-Instruct", num_nextn_predict_layers=...).further) == 1  # the class default
    assert not model("DeepSeek-V3.2", num_nextn_predict_layers=...).further


def test_qwens_module_of_prediction_attends_to_everything():
    (module,) = model("Qwen3.5-35B-A3B").further
    full = model("Qwen3.5-35B-A3B").stack[3]
    assert module.cache == full.cache
    assert module.parameters - full.parameters == 2 * 2048 * 2048 + 3 * 2048
    assert not model("Qwen3.5-35B-A3B", mtp_num_hidden_layers=...).further


def test_modules_that_a_config_only_names_are_noted():
    assert "3 modules" in model("MiniMax-M2.5").notes[0] and not model("MiniMax-M2.5").further
    assert not model("MiniMax-M2.5", use_mtp=False).notes


# --- what layers keep ---


def counts(read: Model) -> dict[str, int]:
    kinds = [layer.attention for layer in layers_of(read)]
    return {kind: kinds.count(kind) for kind in set(kinds)}


@pytest.mark.parametrize(
    "folder, kinds",
    [
        ("Jamba-1.5-Mini", {"full": 4, "ssm": 28}),
        ("Nemotron-H-56B", {"full": 10, "ssm": 54, "none": 54}),
        ("Mamba2-defaults", {"ssm": 64}),
        ("Qwen3-Next-80B-defaults", {"full": 12, "linear": 36}),
        ("Qwen3.5-35B-A3B", {"full": 10, "linear": 30}),
        ("gemma-3-27b", {"full": 10, "window": 52}),
        ("Gemma2-2B-defaults", {"full": 13, "window": 13}),
        ("gemma-4-26B-A4B", {"full": 5, "window": 25}),
        ("gpt-oss-20b", {"full": 12, "window": 12}),
        ("MiMo-V2-Flash", {"full": 9, "window": 39}),
        ("Llama-4-Scout", {"full": 12, "chunk": 36}),
        ("Llama-3_3-Nemotron-Super-49B", {"full": 49, "none": 31}),
        ("Mistral-7B-v0.1-defaults", {"window": 32}),
        ("Phi-3-mini-variant", {"window": 32}),
        ("DeepSeek-V3", {"latent": 61}),
        ("Mixtral-8x7B", {"full": 32}),
    ],
)
def test_kinds_of_attention(folder, kinds):
    assert counts(model(folder)) == kinds


@pytest.mark.parametrize(
    "folder, layer, cache",
    [
        ("Falcon-7B-defaults", 0, Cache("full", 1, 64, 64)),  # its file says num_kv_heads 71
        ("falcon-180B", 0, Cache("full", 8, 64, 64)),
        ("gemma-2b", 0, Cache("full", 1, 256, 256)),
        ("gemma-3-27b", 0, Cache("window", 16, 128, 128, window=1024)),
        ("gemma-3-27b", 5, Cache("full", 16, 128, 128)),
        ("gemma-4-26B-A4B", 0, Cache("window", 8, 256, 256, window=1024)),
        ("gemma-4-26B-A4B", 5, Cache("full", 2, 512, 512)),
        ("gpt-oss-20b", 0, Cache("window", 8, 64, 64, window=128)),
        ("gpt-oss-20b", 1, Cache("full", 8, 64, 64)),
        ("MiMo-V2-Flash", 0, Cache("full", 4, 192, 128)),
        ("MiMo-V2-Flash", 1, Cache("window", 8, 192, 128, window=128)),
        ("Llama-4-Scout", 0, Cache("chunk", 8, 128, 128, window=8192)),
        ("Llama-4-Scout", 3, Cache("full", 8, 128, 128)),
        ("DeepSeek-V3", 0, Cache("latent", latent=512, rope=64)),
        ("DeepSeek-V3.2", 60, Cache("latent", latent=512, rope=64, index_dim=128, picks=2048)),
        ("Mistral-7B-v0.1-defaults", 31, Cache("window", 8, 128, 128, window=4096)),
        ("Phi-3-mini-variant", 0, Cache("window", 32, 96, 96, window=2047)),
        ("Llama-3_3-Nemotron-Super-49B", 0, Cache("full", 8, 128, 128)),
        ("Llama-3_3-Nemotron-Super-49B", 6, Cache("none")),
        ("Mamba2-defaults", 0, Cache("none")),
        ("Jamba-1.5-Mini", 4, Cache("full", 8, 128, 128)),
    ],
)
def test_caches(folder, layer, cache):
    assert layers_of(model(folder))[layer].cache == cache


@pytest.mark.parametrize(
    "folder, layer, state",
    [
        ("Jamba-1.5-Mini", 0, State(8192 * 16, 4, 8192 * 3)),
        ("Mamba2-defaults", 0, State(8192 * 128, 4, (8192 + 2 * 8 * 128) * 3)),
        ("Nemotron-H-56B", 0, State(256 * 64 * 256, 4, (256 * 64 + 2 * 8 * 256) * 3)),
        ("Qwen3-Next-80B-defaults", 0, State(32 * 128 * 128, 4, (2 * 16 * 128 + 32 * 128) * 3)),
        ("Qwen3.5-35B-A3B", 0, State(32 * 128 * 128, 4, (2 * 16 * 128 + 32 * 128) * 3)),
        ("Qwen3-Next-80B-defaults", 3, State()),
        ("Mixtral-8x7B", 0, State()),
    ],
)
def test_states(folder, layer, state):
    assert layers_of(model(folder))[layer].state == state


def test_a_state_of_16_bits_where_the_file_says_so():
    assert model("Qwen3.5-35B-A3B", mamba_ssm_dtype="bfloat16").stack[0].state.element_bytes == 2
    assert "mamba_ssm_dtype" in refusal("Qwen3.5-35B-A3B", mamba_ssm_dtype="int3")


def test_layers_that_share_a_cache_store_none():
    """Gemma 4's smaller models: the last layers read the cache of the last of their kind, and have no projections."""
    changes = {"num_kv_shared_layers": 10, "enable_moe_block": False, "attention_k_eq_v": False}
    read = model("gemma-4-26B-A4B", **changes)
    all_own = model("gemma-4-26B-A4B", **changes | {"num_kv_shared_layers": 0})
    assert [layer.cache.shared for layer in read.stack] == [False] * 20 + [True] * 10
    assert kv_bytes_per_token(read) == 2 * sum(elements(layer.cache) for layer in all_own.stack[:20])
    window, everything = 2 * 8 * 256 * 2816 + 256, 2 * 8 * 512 * 2816 + 512
    assert all_own.parameters - read.parameters == 8 * window + 2 * everything
    wide = model("gemma-4-26B-A4B", **changes, use_double_wide_mlp=True)
    assert wide.parameters - read.parameters == 10 * 3 * 2112 * 2816


def test_embeddings_for_each_layer():
    """Gemma 4 E2B has them: a token takes a row of each."""
    without = model("gemma-4-26B-A4B")
    read = model("gemma-4-26B-A4B", hidden_size_per_layer_input=256)
    layers = 30 * (2 * 256 * 2816 + 2816)
    outside = 30 * 256 * 2816 + 256
    assert read.parameters - without.parameters == layers + outside + 262_144 * 30 * 256
    assert read.parameters_active - without.parameters_active == layers + outside + 30 * 256


# --- FLOP ---


@pytest.mark.parametrize(
    "folder, layer, attend",
    [
        ("Mixtral-8x7B", 0, 4 * 32 * 128),
        ("MiMo-V2-Flash", 0, 2 * 64 * (192 + 128)),
        ("DeepSeek-V3", 0, 2 * 128 * (512 + 64 + 512)),
        ("DeepSeek-V3.2", 0, 2 * 128 * (512 + 64 + 512)),
        ("Mamba2-defaults", 0, 0),
        ("Llama-3_3-Nemotron-Super-49B", 6, 0),
    ],
)
def test_flop_of_attention_for_each_position(folder, layer, attend):
    assert attention_flops(model(folder), layer) == attend


def test_flop_of_a_layer_are_those_of_what_a_token_goes_through():
    hidden, wide, narrow, ffn = 4096, 4096, 1024, 14336
    mixtral = hidden * (2 * wide + 2 * narrow) + 8 * hidden + 2 * 3 * hidden * ffn
    assert layer_flops(model("Mixtral-8x7B")) == 2 * mixtral
    inner, state, rank = 8192, 16, 256
    mamba = 4096 * 2 * inner + inner * 4 + inner * (rank + 2 * state) + rank * inner + inner * 4096
    assert layer_flops(model("Jamba-1.5-Mini"), 0) == 2 * (mamba + 3 * 4096 * 14336) + 4 * inner * state
    net = model("Qwen3-Next-80B-defaults").stack[0]
    assert net.mix == 7 * 32 * 128 * 128


# --- tensors ---


def roles(read: Model, layer: int = 0) -> list[str]:
    return [one.role for one in layers_of(read)[layer].matrices]


def test_experts_are_copies_of_which_some_are_used():
    for folder, layer, experts in [
        ("Mixtral-8x7B", 0, (8, 2)), ("DeepSeek-V3", 0, None), ("DeepSeek-V3", 3, (256, 8)),
        ("Llama-4-Scout", 0, (16, 1)), ("Jamba-1.5-Mini", 0, None), ("Jamba-1.5-Mini", 1, (16, 2)),
        ("Qwen3-Next-80B-defaults", 0, (512, 10)), ("granite-3.1-1b-a400m", 0, (32, 8)), ("gpt-oss-20b", 0, (32, 4)),
        ("gemma-4-26B-A4B", 0, (128, 8)),
        ("MiMo-V2-Flash", 0, None), ("MiMo-V2-Flash", 47, (256, 8)), ("MiniMax-M2.5", 0, (256, 8)),
    ]:  # fmt: skip
        one = model(folder).stack[layer]
        assert (one.experts, one.feed_forward) == (experts, "experts" if experts else "dense"), (folder, layer)


def test_fused_projections_sinks_and_biases_are_as_stored():
    phi = [(one.role, one.rows) for one in model("Phi-3-mini-variant").stack[0].matrices]
    assert phi[:4] == [("attn_qkv", 9216), ("attn_output", 3072), ("ffn_gate_up", 16384), ("ffn_down", 3072)]
    oss = model("gpt-oss-20b").stack[0].matrices
    assert [one.row for one in oss if one.role == "scalar"] == [64]
    assert sum(one.parameters for one in oss if one.role == "bias") == 64 * 64 + 2 * 512 + 2880 + 32 + 32 * 3 * 2880
    assert sum(one.active for one in oss if one.role == "bias") == 64 * 64 + 2 * 512 + 2880 + 32 + 4 * 3 * 2880
    assert roles(model("MiMo-V2-Flash"), 1).count("scalar") == 1 and "scalar" not in roles(model("MiMo-V2-Flash"), 0)
    assert "attn_v" not in roles(model("gemma-4-26B-A4B"), 5) and "attn_v" in roles(model("gemma-4-26B-A4B"), 0)


def test_feed_forwards_of_nemotron_are_rounded_up_to_256():
    read = model("Llama-3_3-Nemotron-Super-49B")
    rows = [next(one.rows for one in layer.matrices if one.role == "ffn_up") for layer in read.stack]
    assert rows[0] == 14336 == 2 * 2.625 * 8192 / 3 and rows[1] == 28672
    assert all(row % 256 == 0 for row in rows) and read.ffn == max(rows)


def block(folder: str = "Llama-3_3-Nemotron-Super-49B", part: str = "ffn", **changes) -> Model:
    blocks = values_of(folder)["block_configs"]
    blocks[0][part] = blocks[0][part] | changes
    return model(folder, block_configs=blocks)


def test_parts_of_nemotron_that_are_one_matrix_or_absent():
    whole = model("Llama-3_3-Nemotron-Super-49B").parameters
    hidden, attention, ffn = 8192, 2 * 8192 * 8192 + 2 * 8192 * 1024, 3 * 8192 * 14336
    assert whole - block(replace_with_linear=True).parameters == ffn - hidden * hidden
    assert whole - block(no_op=True).parameters == ffn + hidden
    assert whole - block(part="attention", no_op=True).parameters == attention + hidden
    assert block(part="attention", no_op=True).stack[0].attention == "none"
    assert block(no_op=True).stack[0].feed_forward == "none"
    assert block(part="attention", replace_with_linear=True).stack[0].cache == Cache("none")
    assert block(part="attention", window_length=512).stack[0].cache == Cache("window", 8, 128, 128, window=512)


@pytest.mark.parametrize(
    "part, changes, said",
    [
        ("ffn", {"ffn_mult": None}, 'the key "block_configs[0].ffn.ffn_mult" is missing'),
        ("ffn", {"ffn_mult": float("nan")}, "block_configs[0].ffn.ffn_mult is nan; it must be a number"),
        ("ffn", {"ffn_mult": 1e9}, "it must be a number from 0 to 1,000"),
        ("ffn", {"ffn_mult": 0.0}, "says no_op"),
        ("attention", {"n_heads_in_group": 7}, "64 heads are no multiple"),
        ("attention", {"n_heads_in_group": None}, "n_heads_in_group\" is missing"),
        ("attention", {"no_op": "yes"}, "block_configs[0].attention.no_op is the text"),
        ("attention", {"sparsify": {"a": 1}}, "sparsify is given"),
    ],
)
def test_blocks_gone_wrong(part, changes, said):
    with pytest.raises(ModelError) as error:
        block(part=part, **changes)
    assert said in str(error.value)


# --- what a missing key means, by class ---


@pytest.mark.parametrize(
    "folder, keys",
    [
        ("gemma-3-27b", ["sliding_window_pattern", "layer_types"]),
        ("Gemma2-2B-defaults", ["layer_types", "head_dim", "num_key_value_heads", "tie_word_embeddings",
                                "sliding_window"]),
        ("gpt-oss-20b", ["layer_types", "head_dim", "num_key_value_heads", "sliding_window", "attention_bias",
                         "experts_per_token", "tie_word_embeddings"]),
        ("Falcon-7B-defaults", ["num_kv_heads", "ffn_hidden_size", "multi_query", "parallel_attn", "bias",
                                "new_decoder_architecture", "num_ln_in_parallel_attn"]),
        ("OPT-125m-defaults", ["word_embed_proj_dim", "enable_bias", "tie_word_embeddings"]),
        ("Jamba-1.5-Mini", ["attn_layer_period", "attn_layer_offset", "expert_layer_period", "num_experts",
                            "expert_layer_offset", "mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_dt_rank",
                            "mamba_conv_bias", "num_experts_per_tok"]),
        ("Mamba2-defaults", ["expand", "conv_kernel", "num_heads", "head_dim", "n_groups", "state_size", "use_bias",
                             "use_conv_bias", "tie_word_embeddings"]),
        ("Qwen3-Next-80B-defaults", ["layer_types", "head_dim", "num_key_value_heads", "linear_num_key_heads",
                                     "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                                     "linear_conv_kernel_dim", "num_experts", "moe_intermediate_size",
                                     "shared_expert_intermediate_size", "num_experts_per_tok", "mlp_only_layers"]),
        ("Qwen3.5-35B-A3B", ["layer_types", "full_attention_interval", "head_dim", "num_experts", "mlp_only_layers"]),
        ("DeepSeek-V3", ["kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
                         "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "first_k_dense_replace",
                         "moe_intermediate_size", "moe_layer_freq", "num_nextn_predict_layers", "topk_method"]),
        ("DeepSeek-V3.2", ["index_n_heads", "index_head_dim", "index_topk"]),
        ("Mixtral-8x7B", ["num_local_experts", "num_experts_per_tok", "num_key_value_heads", "sliding_window"]),
        ("Qwen3-30B-A3B", ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step",
                           "mlp_only_layers", "num_key_value_heads"]),
        ("Llama-4-Scout", ["attention_chunk_size", "num_local_experts", "num_experts_per_tok", "head_dim",
                           "interleave_moe_layer_step", "num_key_value_heads"]),
        ("MiMo-V2-Flash", ["moe_layer_freq", "hybrid_layer_pattern", "swa_num_key_value_heads", "swa_head_dim",
                           "swa_v_head_dim", "v_head_dim", "head_dim", "add_swa_attention_sink_bias",
                           "add_full_attention_sink_bias", "n_routed_experts"]),
        ("MiniMax-M2.5", ["num_local_experts", "num_experts_per_tok", "head_dim", "use_qk_norm", "use_routing_bias",
                          "qk_norm_type", "shared_intermediate_size"]),
        ("Nemotron-H-56B", ["n_groups", "conv_kernel", "use_bias", "use_conv_bias", "mlp_bias", "num_key_value_heads",
                            "mamba_head_dim", "num_hidden_layers"]),
        ("gemma-2b", ["head_dim", "tie_word_embeddings", "attention_bias"]),
    ],
)  # fmt: skip
def test_a_missing_key_is_the_class_default(folder, keys):
    """Dropped one by one, and these files hold the default."""
    whole = model(folder)
    for key in keys:
        if key == "hybrid_layer_pattern":  # the published pattern has one more full layer than the class's
            continue
        assert model(folder, **{key: ...}) == whole, key


def test_published_files_of_gemma_3_leave_sizes_out():
    read = model("gemma-3-27b", num_attention_heads=..., num_key_value_heads=..., head_dim=..., vocab_size=...)
    assert (read.heads, read.kv_heads, read.head_dim, read.vocab) == (8, 4, 256, 262_208)


def test_a_gemma_3_of_text_alone():
    text = values_of("gemma-3-27b")["text_config"]
    read = model_of(text, "m")
    assert read.parameters == 27_009_346_304 and not read.further and not read.notes
    assert len(model("gemma-3-27b").further) == 28


@pytest.mark.parametrize(
    "folder, key",
    [
        ("Mixtral-8x7B", "intermediate_size"), ("gpt-oss-20b", "num_local_experts"), ("Jamba-1.5-Mini", "vocab_size"),
        ("Nemotron-H-56B", "hybrid_override_pattern"), ("Nemotron-H-56B", "intermediate_size"),
        ("Qwen3-Next-80B-defaults", "hidden_size"), ("DeepSeek-V2-Lite", "num_experts_per_tok"),
        ("Mamba2-defaults", "vocab_size"), ("Llama-4-Scout", "num_hidden_layers"), ("OPT-125m-defaults", "ffn_dim"),
    ],
)  # fmt: skip
def test_a_size_that_is_missing_is_named(folder, key):
    said = refusal(folder, **{key: ...})
    assert "is missing" in said and (key in said or key == "ffn_dim")


# --- windows ---


@pytest.mark.parametrize(
    "folder, changes, windows",
    [
        ("Qwen3-8B", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 30},
         [0] * 30 + [512] * 6),
        ("Qwen3-8B", {"use_sliding_window": True, "sliding_window": ..., "max_window_layers": ...},
         [0] * 28 + [4096] * 8),
        ("Qwen3-8B", {"use_sliding_window": True, "sliding_window": 7,
                      "layer_types": ["sliding_attention"] + ["full_attention"] * 35}, [7] + [0] * 35),
        ("Qwen3-30B-A3B", {"use_sliding_window": True, "sliding_window": 4096}, [4096] * 48),
        ("Mixtral-8x7B", {"sliding_window": 4096}, [4096] * 32),
        ("Mistral-7B-v0.1-defaults", {"sliding_window": ...}, [4096] * 32),
        ("Mistral-7B-v0.1-defaults", {"sliding_window": None}, [0] * 32),
        ("Phi-3-mini-variant", {"sliding_window": None}, [0] * 32),
        ("Llama-4-Scout", {"attention_chunk_size": None}, [0] * 48),
        ("gemma-3-27b", {"layer_types": ..., "sliding_window_pattern": 2}, [1024, 0] * 31),
    ],
)  # fmt: skip
def test_windows(folder, changes, windows):
    assert [layer.cache.window for layer in layers_of(model(folder, **changes))] == windows


# --- other spellings, nested decoders, families that are not known ---


def test_kimis_type_reads_as_deepseek_v3():
    values = values_of("Kimi-K2-Instruct")
    one, other = model_of(values, "m", weights_known=True), model_of(
        values | {"model_type": "deepseek_v3"}, "m", weights_known=True)
    assert one.stack == other.stack and one.family == "kimi_k2"


def test_layers_of_nemotron_h_as_a_list():
    """transformers 5 writes the pattern as a list, and earlier and later names of kinds differ."""
    names = {"M": "mamba", "*": "attention", "-": "mlp"}
    later = {"M": "linear_attention", "*": "full_attention", "-": "mlp"}
    pattern = values_of("Nemotron-H-56B")["hybrid_override_pattern"]
    for key, known in (("layers_block_type", names), ("layer_types", later)):
        read = model("Nemotron-H-56B", hybrid_override_pattern=..., **{key: [known[one] for one in pattern]})
        assert read == model("Nemotron-H-56B")


def test_experts_of_nemotron_h():
    """Non-gated experts, a shared one beside them, and a bias on the router's choice."""
    pattern = values_of("Nemotron-H-56B")["hybrid_override_pattern"].replace("-", "E", 1)
    keys = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
            "moe_shared_expert_intermediate_size": 32}  # fmt: skip
    layer = model("Nemotron-H-56B", hybrid_override_pattern=pattern, **keys).stack[1]
    assert layer.parameters == 8192 * (4 * 2 * 16 + 2 * 32 + 4 + 1) + 4 and layer.experts == (4, 2)
    latent = model("Nemotron-H-56B", hybrid_override_pattern=pattern, **keys, moe_latent_size=64).stack[1]
    assert latent.parameters == 64 * 4 * 2 * 16 + 8192 * (2 * 32 + 2 * 64 + 4 + 1) + 4


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_a_decoder_nested_in_a_model_that_is_not_known(key):
    inner = values_of("Qwen2.5-7B-Instruct")
    read = model_of({"model_type": "some_vl", "architectures": ["SomeVLForConditionalGeneration"], key: inner}, "m")
    assert read.stack == () and read.parameters == 7_615_616_512 and read.dtype == "bfloat16"
    assert read.notes == (f"only the decoder under {key} is counted, not what is stored beside it",)
    tied = model_of({"model_type": "some_vl", "tie_word_embeddings": False, key: inner}, "m")
    assert not tied.tied


@pytest.mark.parametrize(
    "outer, said",
    [
        ({"hidden_size": 1}, "hidden_size is 1 and text_config.hidden_size is 3584: drop the wrong one"),
        ({"vocab_size": 2}, "vocab_size is 2 and text_config.vocab_size is 152064"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is true and text_config.tie_word_embeddings is false"),
        ({"llm_config": {"model_type": "llama"}}, "text_config and llm_config are given"),
        ({"quantization_config": {"quant_method": "odd"}}, "stored quantised"),
        ({"architectures": ["BertModel"]}, "architectures names"),
    ],
)
def test_a_nested_decoder_that_the_rest_contradicts(outer, said):
    inner = values_of("Qwen2.5-7B-Instruct")
    with pytest.raises(ModelError, match=None) as error:
        model_of({"model_type": "some_vl", "text_config": inner} | outer, "m")
    assert said in str(error.value)


def test_a_nested_mark_of_stored_weights_is_seen():
    how = {"quant_method": "awq", "bits": 4, "group_size": 128}
    inner = values_of("Qwen2.5-7B-Instruct") | {"quantization_config": how}
    values = {"model_type": "some_vl", "text_config": inner}
    assert model_of(values, "m").quantised.format == "int4-g128"
    assert model_of(values | {"quantization_config": how}, "m").quantised.format == "int4-g128"
    with pytest.raises(ModelError, match="two places"):
        model_of(values | {"quantization_config": how | {"bits": 8}}, "m")


NEWCOMER = values_of("Llama-3.1-8B") | {"model_type": "newcomer"}


def test_a_family_that_is_not_known_is_read_only_where_the_user_says_what_it_is_like():
    with pytest.raises(ModelError, match="'newcomer' are not counted yet.*say so: --like FAMILY"):
        model_of(NEWCOMER, "m")
    read = model_of(NEWCOMER, "m", like="llama")
    assert read.parameters == 8_030_261_248 and read.family == "newcomer"
    assert read.notes == (
        "its family 'newcomer' is not known: read with the shapes of llama, as asked",
        "its file does not say, so it is taken from llama's class: head_dim 128 (hidden size / heads)")
    for key in ("num_key_value_heads", "tie_word_embeddings", "vocab_size", "intermediate_size", "hidden_size"):
        rest = {k: v for k, v in NEWCOMER.items() if k != key}
        with pytest.raises(ModelError, match=f'"{key}"'):
            model_of(rest, "m", like="llama")
        again = model_of(rest, "m", like="llama", give={key: NEWCOMER[key]})
        assert again.parameters == read.parameters
        assert any(note.startswith(f"given, which the file lacks: {key} is ") for note in again.notes)
    with pytest.raises(ModelError, match=r"num_experts \(8\): llama does not read it.*--give num_experts=ignore"):
        model_of(NEWCOMER | {"num_experts": 8}, "m", like="llama")
    with pytest.raises(ModelError, match="its family llama is known. Drop like"):
        model_of(values_of("Llama-3.1-8B"), "m", like="llama")
    with pytest.raises(ModelError, match="like names 'lama', which is no family here.*mean \"llama\""):
        model_of(NEWCOMER, "m", like="lama")


def as_newcomer(values: dict) -> dict:
    """The same config of a family that is not known, nested decoders' too."""
    inner = {key: dict(values[key], model_type="newcomer") for key in ("text_config",) if key in values}
    return {**values, "model_type": "newcomer", **inner}


# What samples leave to their classes, and what must be said of a newcomer.
LEFT = {
    "Falcon-7B-defaults": {"num_ln_in_parallel_attn": 1},
    "falcon-180B": {"num_ln_in_parallel_attn": 2, "tie_word_embeddings": False, "intermediate_size": 59392},
    "OPT-125m-defaults": {"num_key_value_heads": 12},
    "Llama-4-Scout": {"no_rope_layer_interval": 4, "tie_word_embeddings": False},
    "gemma-2b": {"tie_word_embeddings": True},
    "gemma-3-27b": {"tie_word_embeddings": True},
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_newcomer_may_be_like_any_family(folder):
    """Shapes are those of the family that is named: as its own config reads. No size is left to a class."""
    known = model_of(CONFIGS[folder], "m", weights_known=True)
    values, left = as_newcomer(CONFIGS[folder]), LEFT.get(folder, {})
    for key in left:
        with pytest.raises(ModelError, match=f'missing, and to be said of a family that is not known: .*{key}"'):
            model_of(values, "m", like=known.family, weights_known=True,
                     give={one: value for one, value in left.items() if one != key})  # fmt: skip
    again = model_of(values, "m", like=known.family, weights_known=True, give=left)
    assert (again.parameters, again.stack) == (known.parameters, known.stack)
    if folder != "gemma-3-27b":  # its tower is beside the decoder, which alone is a newcomer
        assert again.further == known.further


def test_no_key_that_may_change_a_count_stays_unread():
    """Experts, windows and widths under names that the named family does not read; what is not there may be said."""
    read = model_of(NEWCOMER, "m", like="llama")
    for key, value in {
        "moe_num_experts": 64, "linear_attn_config": {"kda_layers": [1]}, "use_cla": True, "sliding_window": 1024,
        "moe_intermediate_size": 1536, "q_lora_rank": 512, "v_head_dim": 64, "attention_chunk_size": 8192,
        "first_k_dense_replace": 1, "swa_head_dim": 64, "num_experts_per_tok": 2, "vision_config": {"depth": 2},
        "laurel_rank": 64, "conv_L_cache": 3, "ffn_dim_multiplier": 1.3, "position_embedding_type": "learned",
        "attention_sink_bias": True, "use_qk_norm": True, "num_nextn_predict_layers": 1, "multi_query_group_num": 2,
        "hidden_size_per_head": 64,
    }.items():
        with pytest.raises(ModelError, match=f"{key} .*: llama does not read it.*--give {key}=ignore"):
            model_of(NEWCOMER | {key: value}, "m", like="llama")
        again = model_of(NEWCOMER | {key: value}, "m", like="llama", give={key: "ignore"})
        assert again.parameters == read.parameters
        assert any(note.startswith(f"ignored, as asked: {key}, which is ") for note in again.notes)
    for key, value in {
        "sliding_window": None, "use_cla": False, "n_shared_experts": 0, "qkv_bias": False, "mlp_only_layers": [],
        "final_logit_softcapping": 30.0, "image_token_id": 7, "layer_norm_eps": 1e-5, "swa_rope_theta": 1e4,
        "position_embedding_type": "rope", "num_experts": 1, "layer_types": ["full_attention"] * 32,
        "quantization_config": None, "residual_dropout": 0.1, "kv_lora_rank": 0,
    }.items():
        assert model_of(NEWCOMER | {key: value}, "m", like="llama").parameters == read.parameters
    windows = values_of("Mistral-Nemo-Instruct-2407") | {"model_type": "newcomer", "sliding_window": 1024}
    with pytest.raises(ModelError, match="layer_types .a list.: mistral does not read it"):  # its class skips the key
        model_of(windows | {"layer_types": ["full_attention", "sliding_attention"] * 20}, "m", like="mistral")
    with pytest.raises(ModelError, match=r"qkv_bias \(false\): qwen2 does not read these"):  # it has biases
        model_of(NEWCOMER | {"qkv_bias": False}, "m", like="qwen2")


def test_widths_of_experts_are_those_that_the_named_family_reads():
    moe = values_of("Qwen3-30B-A3B") | {"model_type": "newcomer"}
    with pytest.raises(ModelError, match=r"moe_intermediate_size \(768\).*mixtral does not read these"):
        model_of(moe, "m", like="mixtral")
    for key, said in [("shared_expert_intermediate_size", "(512): qwen3_moe does not read it"),
                      ("attention_chunk_size", "(512): qwen3_moe"), ("interleave_moe_layer_step", "(512): qwen3_moe")]:
        with pytest.raises(ModelError) as error:
            model_of(moe | {key: 512}, "m", like="qwen3_moe")
        assert f"{key} {said}" in str(error.value)
    for key, own in (("moe_intermediate_size", 768), ("num_experts", None)):
        rest = {k: v for k, v in moe.items() if k != key}
        with pytest.raises(ModelError, match=rf'"{key if own else "num_local_experts"}" \(qwen3_moe\'s own is'):
            model_of(rest, "m", like="qwen3_moe")
    latent = values_of("DeepSeek-V3") | {"model_type": "newcomer"}
    for key in ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
                "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "num_nextn_predict_layers"):
        with pytest.raises(ModelError, match=f'"{key}" \\(deepseek_v3\'s own is'):
            model_of({k: v for k, v in latent.items() if k != key}, "m", like="deepseek_v3")
    nothing = {k: v for k, v in latent.items() if k != "num_key_value_heads"}  # a latent has none
    assert model_of(nothing, "m", like="deepseek_v3", weights_known=True).parameters == 671_026_419_200


def test_what_may_be_ignored_is_there_and_is_not_read():
    for give, said in [
        ({"attention_bias": "ignore"}, "attention_bias is read of models of type llama, so it is not"),
        ({"num_experts": "ignore"}, "num_experts is to be ignored, and the file has no such key"),
    ]:
        with pytest.raises(ModelError, match=said):
            model_of(NEWCOMER, "m", like="llama", give=give)
    known = values_of("Llama-3.1-8B")
    assert model_of(known | {"kv_lora_rank": 512}, "m", give={"kv_lora_rank": "ignore"}).parameters == 8_030_261_248


def test_values_that_are_given_count_instead_of_the_files():
    values = values_of("Llama-3.1-8B")
    read = model_of(values, "m", give={"num_key_value_heads": 4, "torch_dtype": "float16"})
    assert read.kv_heads == 4 and read.dtype == "float16"
    assert read.notes == ("given, where the file says 8: num_key_value_heads is 4",
                          'given, where the file says the text "bfloat16": torch_dtype is the text "float16"')
    assert model_of(values, "m", give={"num_key_value_heads": 8}) == model_of(values, "m"), "the file says so too"
    nested = {"model_type": "some_vl", "text_config": values | {"head_dim": None}}
    assert model_of(nested, "m", give={"head_dim": 64}).head_dim == 64
    for give, said in [
        ({"num_kv_head": 4}, 'num_kv_head is given, and models of type llama have no such key.*mean "num_kv_heads"'),
        ({"num_key_value_heads": "4"}, 'num_key_value_heads is the text "4"'),
        ({"n_head_kv": 4}, "num_key_value_heads is 8 and n_head_kv is 4: drop the wrong one"),
        ({"model_type": "qwen2"}, "model_type is given"),
        ({"kv_lora_rank": 512}, "kv_lora_rank is 512: layers of that shape are not counted for llama"),
    ]:
        with pytest.raises(ModelError, match=said):
            model_of(values, "m", give=give)
    assert model_of({k: v for k, v in NEWCOMER.items() if k != "model_type"}, "m", like="llama").family == "unnamed"


def test_what_is_given_in_words():
    assert read_given(["head_dim=128", "tie_word_embeddings = false", "layer_types=[\"full_attention\"]",
                       "torch_dtype=bfloat16", "sliding_window=null", "a=b=c"]) == {
        "head_dim": 128, "tie_word_embeddings": False, "layer_types": ["full_attention"], "torch_dtype": "bfloat16",
        "sliding_window": None, "a": "b=c"}  # fmt: skip
    for texts in (["head_dim"], ["=1"], ["head_dim="], ["a=" + "1" * 20_000], [""]):
        with pytest.raises(ModelError, match="gives no value. Write KEY=VALUE, as head_dim=128"):
            read_given(texts)
    with pytest.raises(ModelError, match="a is given twice"):
        read_given(["a=1", "a=2"])
    assert read_given(["a=" + "[" * 9000])["a"].startswith("[[[")


def test_a_newcomer_from_the_command_line_and_in_a_plan(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(NEWCOMER))
    path, like = str(tmp_path / "config.json"), ["--like", "llama"]
    note = "its family 'newcomer' is not known: read with the shapes of llama, as asked"
    assert cli.main(["model", path, *like, "--give", "num_key_value_heads=4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kv_bytes_per_token"] == 65536 and note in told["notes"]
    assert cli.main(["step", path, *like, "--on", "desktop-4090", "--json"]) == 0
    assert note in json.loads(capsys.readouterr().out)["assumptions"]
    assert cli.main(["memory", path, *like, "--kv-budget", "1 GB", "--requests", "2x2000", "--json"]) == 0
    assert note in json.loads(capsys.readouterr().out)["warnings"]
    plan = tmp_path / "plan.yaml"
    plan.write_text("topology: desktop-4090\nplacement: {weights: {hbm0: rest}}\n"
                    "model: {config: config.json, like: llama, give: {num_key_value_heads: 4}}\n")  # fmt: skip
    assert cli.main(["step", str(plan), "--set", "model.give.num_key_value_heads=2", "--json"]) == 0
    assumed = json.loads(capsys.readouterr().out)["assumptions"]
    assert note in assumed and "given, where the file says 8: num_key_value_heads is 2" in assumed
    for words, said in [
        (["step", str(plan), *like], "--set model.like=..."),
        (["step", path, "--on", "desktop-4090", "--set", "model.like=llama"], "--like says it"),
        (["model", "llama-3.1-8b", *like], "known by its name. Drop them"),
        (["model", path, "--give", "x"], "--give: "),
        (["model", path], "'newcomer' are not counted yet"),
        (["step", str(plan), "--set", "model.like=gamma"], "like names 'gamma'"),
    ]:
        assert cli.main(words) == 2, words
        assert said in capsys.readouterr().err
    plan.write_text("topology: desktop-4090\nmodel: {name: llama-3.1-8b, like: llama}\n"
                    "placement: {weights: {hbm0: rest}}\n")  # fmt: skip
    assert cli.main(["check", str(plan)]) == 2
    assert "model.like: goes with a model's files" in capsys.readouterr().out + capsys.readouterr().err


def test_models_side_by_side_of_which_one_is_not_known(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(NEWCOMER))
    words = ["model", str(tmp_path), "llama-3.1-8b", "--like", "llama", "--give", "num_key_value_heads=4", "--json"]
    assert cli.main(words) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["kv_bytes_per_token"], second["kv_bytes_per_token"]) == (65_536, 131_072)
    said = "it is known, so --like and --give are not used for it"
    assert said in second["notes"] and said not in first["notes"]
    assert cli.main(["model", "llama-3.1-8b", "mistral-7b", "--like", "llama"]) == 2
    assert "llama-3.1-8b is known by its name. Drop them" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps(values_of("Llama-3.1-8B")))
    assert cli.main(["model", str(tmp_path), "llama-3.1-8b", "--like", "llama"]) == 2
    assert "its family llama is known. Drop like" in capsys.readouterr().err


def test_layers_that_say_their_own_kv_heads_need_no_number_for_all():
    values = as_newcomer(CONFIGS["Llama-3_3-Nemotron-Super-49B"])
    assert values["num_key_value_heads"] is None
    rest = {key: value for key, value in values.items() if key != "num_key_value_heads"}
    assert model_of(rest, "m", like="nemotron-nas").parameters == 49_867_145_216


def test_the_feed_forward_is_the_largest_of_any_layer():
    """It sizes activations: twice as wide in Gemma 4's layers that share a cache, dense ones of Llama 4."""
    values = dict(CONFIGS["gemma-4-26B-A4B"]["text_config"], num_kv_shared_layers=10, use_double_wide_mlp=True)
    assert model_of(values, "m").ffn == 2 * values["intermediate_size"]
    values = dict(CONFIGS["Llama-4-Scout"]["text_config"], interleave_moe_layer_step=2)
    assert model_of(values, "m").ffn == values["intermediate_size_mlp"] > values["intermediate_size"]


def test_a_float_that_transformers_5_writes_as_a_map_is_read_over():
    assert values_of("Mamba2-defaults")["time_step_limit"] == [0.0, {"__float__": "Infinity"}]
    assert load_model(SAMPLES / "Mamba2-defaults").layers == 64
    assert load_model(SAMPLES / "Nemotron-H-56B").layers == 118  # a bare Infinity


# --- values that contradict each other or mean nothing ---


@pytest.mark.parametrize(
    "folder, changes, said",
    [
        ("Mixtral-8x7B", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9, and there are 8 experts"),
        ("Mixtral-8x7B", {"num_experts": 16}, "num_local_experts is 8 and num_experts is 16: drop the wrong one"),
        ("Mixtral-8x7B", {"num_local_experts": 8.0}, "num_local_experts is 8.0; it must be a whole number"),
        ("Mixtral-8x7B", {"num_experts_per_tok": 0}, "num_experts_per_tok is 0"),
        ("Mixtral-8x7B", {"n_routed_experts": "8"}, "n_routed_experts is the text"),
        ("Jamba-1.5-Mini", {"attn_layer_offset": 8}, "attn_layer_offset is 8; it must be below attn_layer_period, 8"),
        ("Jamba-1.5-Mini", {"expert_layer_period": 0}, "expert_layer_period is 0"),
        ("Mamba2-defaults", {"num_heads": 100}, "100 heads of 64 are not 2 x the hidden size 4096"),
        ("Mamba2-defaults", {"num_hidden_layers": 10**9}, "1,000,000,000 layers are more than the 500"),
        ("Nemotron-H-56B", {"hybrid_override_pattern": "M-M"}, "its pattern has 3 layers, and num_hidden"),
        ("Nemotron-H-56B", {"hybrid_override_pattern": "M?M"}, "it holds '?'"),
        ("Nemotron-H-56B", {"hybrid_override_pattern": ""}, "must be made of M"),
        ("Nemotron-H-56B", {"hybrid_override_pattern": "M" * 10**6}, "1,000,000 layers are more"),
        ("Qwen3-Next-80B-defaults", {"layer_types": ["sliding_attention"] * 48}, "layer_types holds the text"),
        ("Qwen3-Next-80B-defaults", {"linear_num_value_heads": 31}, "linear_num_value_heads is 31, no multiple of 16"),
        ("Qwen3-Next-80B-defaults", {"mlp_only_layers": [-1]}, "mlp_only_layers is a list; it must be a list of whole"),
        ("Qwen3.5-35B-A3B", {"num_hidden_layers": 41}, "text_config.layer_types is a list of 40"),
        ("Qwen3.5-35B-A3B", {"attn_output_gate": False}, "text_config.attn_output_gate is false"),
        ("gemma-3-27b", {"sliding_window": None}, "text_config.sliding_window is null"),
        ("gemma-4-26B-A4B", {"num_kv_shared_layers": 30}, "has none of its kind before it"),
        ("gemma-4-26B-A4B", {"num_kv_shared_layers": 31}, "whole number from 0 to 30"),
        ("gemma-4-26B-A4B", {"num_global_key_value_heads": 3}, "16 heads do not share 3 KV heads"),
        ("DeepSeek-V3.2", {"q_lora_rank": None}, "q_lora_rank is null"),
        ("DeepSeek-V2-Lite", {"index_n_heads": 64}, "index_n_heads is 64: layers of that shape"),
        ("OPT-125m-defaults", {"word_embed_proj_dim": 512}, "word_embed_proj_dim is 512 and hidden_size 768"),
        ("OPT-125m-defaults", {"do_layer_norm_before": False}, "do_layer_norm_before is false"),
        ("Falcon-7B-defaults", {"num_attention_heads": 70}, "4544 is no multiple of 70"),
        ("Llama-4-Scout", {"attention_chunk_size": None, "layer_types": ["chunked_attention"] * 48},
         "text_config.attention_chunk_size is null"),
        ("Llama-4-Scout", {"interleave_moe_layer_step": 2, "intermediate_size_mlp": ...}, "intermediate_size_mlp"),
        ("MiMo-V2-Flash", {"swa_num_key_value_heads": 7}, "64 heads do not share 7 KV heads"),
        ("MiMo-V2-Flash", {"hybrid_layer_pattern": [2] * 48}, "hybrid_layer_pattern holds 2"),
        ("MiMo-V2-Flash", {"moe_layer_freq": [True] * 48}, "moe_layer_freq holds true"),
        ("MiniMax-M2.5", {"shared_intermediate_size": 1}, "shared_intermediate_size is 1"),
        ("Molmo7B-NF4", {"norm_after": True}, "norm_after is true"),
        ("Molmo7B-NF4", {"weight_tying": True}, "weight_tying and tie_word_embeddings differ"),
        ("Llama-3_3-Nemotron-Super-49B", {"block_configs": []}, "a map for each of the 80 layers"),
        ("gpt-oss-20b", {"num_experts_per_tok": 5}, "num_experts_per_tok is 5 and experts_per_token is 4"),
        ("Mixtral-8x7B", {"kv_lora_rank": 512}, "512: layers of that shape are not counted for mixtral"),
    ],
)  # fmt: skip
def test_values_that_contradict_or_mean_nothing(folder, changes, said):
    assert said in refusal(folder, **changes)


# --- families that no sample holds ---


def of(kind: str, **values) -> Model:
    return model_of({"model_type": kind, **values}, "m")


@pytest.mark.parametrize(
    "made, parameters",
    [
        (lambda: of("gpt2", n_layer=12, n_embd=768, n_head=12, vocab_size=50257), 124_439_808),
        (lambda: of("bloom", n_layer=24, hidden_size=1024, n_head=16, vocab_size=250880), 559_214_592),
        (lambda: of("qwen2_moe", num_hidden_layers=24, hidden_size=2048, num_attention_heads=16, vocab_size=151936,
                    intermediate_size=5632), 14_315_784_192),
        (lambda: of("glm4_moe", num_hidden_layers=46, hidden_size=4096, num_attention_heads=96, head_dim=128,
                    vocab_size=151552, intermediate_size=10944, attention_bias=True), 106_852_251_264),
        (lambda: of("glm4", num_hidden_layers=40, hidden_size=4096, num_attention_heads=32, vocab_size=151552,
                    intermediate_size=13696), 9_400_279_040),
        (lambda: of("granite", num_hidden_layers=40, hidden_size=2048, num_attention_heads=32, num_key_value_heads=8,
                    vocab_size=49155, intermediate_size=8192, tie_word_embeddings=True), 2_533_531_648),
    ],
    ids=["gpt2", "bloom-560m", "qwen1.5-moe-a2.7b", "glm-4.5-air", "glm-4-9b-0414", "granite-3.1-2b"],
)  # fmt: skip
def test_published_totals_of_families_without_a_sample(made, parameters):
    assert made().parameters == parameters


SMALL = json.loads((SAMPLES.parent / "small_configs.json").read_text())["configs"]


@pytest.mark.parametrize("parameters, values", SMALL, ids=[one[1]["model_type"] for one in SMALL])
def test_small_configs_have_the_count_of_their_model_class(parameters, values):
    """Biases, norms, routers and defaults of each class, in sizes that tell them apart."""
    assert model_of(values, "m").parameters == parameters


def test_every_family_has_a_config_here():
    here = {one[1]["model_type"].removesuffix("_text") for one in SMALL} | {
        values.get("text_config", values)["model_type"].removesuffix("_text") for values in CONFIGS.values()}
    assert here == set(FAMILIES)


def test_indexers_that_layers_share():
    values = {
        "model_type": "glm_moe_dsa", "num_hidden_layers": 7, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 96, "vocab_size": 100, "index_topk_freq": 3,
    }  # fmt: skip
    indexed = [1, 1, 0, 0, 1, 0, 0]
    for changes in ({}, {"index_topk_pattern": "FFSSFSS"},
                    {"indexer_types": ["full" if one else "shared" for one in indexed]}):
        read = model_of(values | changes, "m")
        assert [layer.cache.index_dim for layer in read.stack] == [128 * one for one in indexed]
        assert [layer.index for layer in read.stack] == [2 * 32 * 128 * one for one in indexed]
        assert {layer.cache.picks for layer in read.stack} == {2048}, "a layer without one takes the last one's picks"
    with pytest.raises(ModelError, match="index_topk_pattern must be F or S"):
        model_of(values | {"index_topk_pattern": "F"}, "m")


# --- whatever a config holds ---

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 2, 3, 8, 64, 128, 10**9, 10**10, "full_attention", "M*-E", "auto", *FAMILIES]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = {
    folder: sorted(set(values) | set(values.get("text_config", ())) | set(SHAPE_KEYS) | {"layer_types", "moe_layers"})
    for folder, values in CONFIGS.items()
}


@settings(max_examples=400)
@given(st.data())
def test_any_config_is_read_or_refused(data):
    folder = data.draw(st.sampled_from(FOLDERS))
    changes = data.draw(st.dictionaries(st.sampled_from(KEYS[folder]), json_values | st.just(...), max_size=3))
    nested = "text_config" in CONFIGS[folder] and data.draw(st.booleans())
    values = dict(CONFIGS[folder])
    part = values | changes if not nested else dict(values["text_config"]) | changes
    part = {key: value for key, value in part.items() if value is not ...}
    values = part if not nested else values | {"text_config": part}
    try:
        read = model_of(values, "m", weights_known=True, like=data.draw(st.sampled_from([None, *sorted(FAMILIES)])))
        assert read.parameters > 0 and read.parameters_stored >= read.parameters >= read.parameters_active
        assert all(elements(layer.cache) >= 0 and layer.attend >= 0 for layer in layers_of(read))
    except OffloadError as error:
        assert 10 < len(str(error)) < 700 and str(error).isprintable()


def test_the_docs_name_every_family():
    page = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    assert set(FAMILIES) == {name for name in FAMILIES if f"`{name}`" in page}
