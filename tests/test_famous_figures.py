"""Figures that people get wrong, each with the reason why it is what it is."""

from __future__ import annotations

import json
from pathlib import Path

from offload.describe_model import summarise
from offload.models import layers_of
from offload.readers import load_model

SAMPLES = Path(__file__).parent / "data" / "hf_config"


def sample(name: str):
    return json.loads((SAMPLES / name / "config.json").read_text()), load_model(SAMPLES / name)


def test_falcon_7b_has_one_kv_head_whatever_its_file_says():
    """`num_kv_heads` is 71, and its class uses it only with new_decoder_architecture: here multi_query means one."""
    config, model = sample("Falcon-7B-defaults")
    assert (config["num_kv_heads"], config["multi_query"], config["new_decoder_architecture"]) == (71, True, False)
    assert {layer.cache.heads for layer in layers_of(model)} == {1}
    assert summarise(model, "bf16").kv_bytes_per_token == 2 * 32 * 1 * 64 * 2 == 8_192


def test_five_of_six_gemma_3_layers_stop_growing_at_their_window():
    """52 of 62 layers see 1,024 positions: 10 grow, the others keep 436 MB at most and need no more at 128 k."""
    config, model = sample("gemma-3-27b")
    assert config["text_config"]["sliding_window"] == 1024
    found = summarise(model, "bf16")
    each = 2 * 16 * 128 * 2
    assert found.kv_bytes_per_token == 10 * each == 81_920
    assert found.kv_constant_bytes == 52 * each * 1024 == 436_207_616


def test_jamba_has_attention_in_four_of_its_layers():
    """attn_layer_period 8 from attn_layer_offset 4: layers 4, 12, 20 and 28 keep KV, the others a state."""
    config, model = sample("Jamba-1.5-Mini")
    assert (config["attn_layer_period"], config["attn_layer_offset"], config["num_hidden_layers"]) == (8, 4, 32)
    kinds = [layer.attention for layer in layers_of(model)]
    assert [number for number, kind in enumerate(kinds) if kind == "full"] == [4, 12, 20, 28]
    found = summarise(model, "bf16")
    assert found.kv_bytes_per_token == 4 * 2 * 8 * 128 * 2 == 16_384
    assert found.state_bytes_per_sequence == 28 * (8192 * 16 * 4 + 8192 * 3 * 2), "32 and 16 bits"


def test_deepseek_v3_keeps_a_latent_and_no_heads():
    """61 layers of 512 + 64 elements, once for all 128 heads and for keys and values alike: no factor 2."""
    config, model = sample("DeepSeek-V3")
    assert (config["kv_lora_rank"], config["qk_rope_head_dim"], config["num_attention_heads"]) == (512, 64, 128)
    assert summarise(model, "bf16").kv_bytes_per_token == 61 * (512 + 64) * 2 == 70_272
