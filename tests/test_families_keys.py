"""Families of decoders: what a missing key means, windows, values gone wrong, and families that no sample holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import ModelError, OffloadError
from offload.models import Model
from offload.models.architecture import layers_of
from offload.models.families import FAMILIES, SHAPE_KEYS, model_of
from tests.sample_configs import CONFIGS, FOLDERS, SAMPLES, model, refusal, values_of
from tests.test_families import elements

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


@pytest.mark.slow
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
