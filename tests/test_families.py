"""Families of decoders: stored parameters, what a layer keeps and computes, and its tensors."""

from __future__ import annotations

import pytest

from offload.errors import ModelError
from offload.models import Model
from offload.models.architecture import attention_flops, layer_flops, layers_of
from offload.models.cache import Cache, State
from tests.sample_configs import FOLDERS, model, refusal, values_of


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
