"""Hugging Face config.json: published models read to their published counts, everything else refused by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.errors import ModelError, OffloadError
from offload.models import Model, catalogue, kv_bytes, weigh
from offload.readers import load_model, read_config
from offload.readers.huggingface import LARGEST_FILE, model_of

SAMPLES = Path(__file__).parent / "data" / "hf_config"
MORE_SAMPLES = Path(__file__).parents[2] / "shared" / "samples" / "hf_config"  # where a larger collection lies

# Folder: parameters, KV bytes per token at 2 bytes per element, the catalogue's entry of the same shape.
COUNTED = {
    "Llama-2-7b": (6_738_415_616, 524_288, "llama-2-7b"),
    "Llama-3.1-8B": (8_030_261_248, 131_072, "llama-3.1-8b"),
    "Llama-3.1-8B-saved-by-transformers5": (8_030_261_248, 131_072, "llama-3.1-8b"),
    "Llama-3.1-70B": (70_553_706_496, 327_680, "llama-3.1-70b"),
    "Qwen2.5-7B-Instruct": (7_615_616_512, 57_344, "qwen2.5-7b"),
    "Qwen3-8B": (8_190_735_360, 147_456, "qwen3-8b"),
    "Mistral-Nemo-Instruct-2407": (12_247_782_400, 163_840, "mistral-nemo-12b"),
    "Devstral-Small-2507": (23_572_403_200, 163_840, None),
}
NEMO = "Mistral-Nemo-Instruct-2407"
def values_of(folder: str, **changes) -> dict:
    """A sample's values with some changed; a change to ... drops the key."""
    values = json.loads((SAMPLES / folder / "config.json").read_text()) | changes
    return {key: value for key, value in values.items() if value is not ...}


def model(folder: str = "Llama-3.1-8B", **changes) -> Model:
    return model_of(values_of(folder, **changes), "m")


def refusal(folder: str = "Llama-3.1-8B", **changes) -> str:
    with pytest.raises(ModelError) as error:
        model(folder, **changes)
    return str(error.value)


# --- published models ---


@pytest.mark.parametrize("folder", COUNTED)
def test_published_models_have_their_published_counts(folder):
    parameters, kv, name = COUNTED[folder]
    read = read_config(SAMPLES / folder / "config.json")
    assert read.parameters == parameters
    assert read.layers * kv_bytes(read) == kv
    assert read.name == f"config.json in {folder}"
    if name is not None:
        assert read == dataclasses.replace(catalogue[name], name=read.name)


def test_both_spellings_of_transformers_read_equal():
    old, new = (load_model(SAMPLES / f"Llama-3.1-8B{tail}") for tail in ("", "-saved-by-transformers5"))
    assert old == dataclasses.replace(new, name=old.name)
    assert old.dtype == "bfloat16"


def test_two_bytes_a_parameter_is_the_size_of_devstrals_checkpoint():
    assert weigh(load_model(SAMPLES / "Devstral-Small-2507"), "bf16").total == 47_144_806_400


def test_every_sample_is_read():
    folders = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())
    assert len(folders) == 38
    for folder in folders:
        if (SAMPLES / folder / "config.json").exists():
            assert load_model(SAMPLES / folder).parameters > 0
        else:
            with pytest.raises(ModelError, match=f"{folder}: this folder holds no config.json. hf_quant"):
                load_model(SAMPLES / folder)


def test_the_whole_collection_is_the_samples_here():
    if not MORE_SAMPLES.is_dir():
        pytest.skip("only the samples in tests/data are here")
    for path in MORE_SAMPLES.rglob("*.json"):
        assert (SAMPLES / path.relative_to(MORE_SAMPLES)).read_bytes() == path.read_bytes()


# --- the default of a missing key, by class ---


@pytest.mark.parametrize(
    "folder, key, attribute, value",
    [
        ("Llama-3.1-8B", "num_key_value_heads", "kv_heads", 32),
        ("Llama-3.1-8B", "tie_word_embeddings", "tied", False),
        ("Llama-3.1-8B", "attention_bias", "qkv_bias", False),
        ("Llama-3.1-8B", "mlp_bias", "mlp_bias", False),
        ("Llama-3.1-8B-saved-by-transformers5", "head_dim", "head_dim", 128),
        (NEMO, "num_key_value_heads", "kv_heads", 8),
        (NEMO, "head_dim", "head_dim", 160),
        ("Qwen3-8B", "num_key_value_heads", "kv_heads", 32),
        ("Qwen3-8B", "head_dim", "head_dim", 128),
        ("Qwen2.5-7B-Instruct", "sliding_window", "layers", 28),  # its use is off
        ("Qwen2.5-7B-Instruct", "use_sliding_window", "layers", 28),
        ("Llama-3.1-8B", "torch_dtype", "dtype", None),
    ],
)
def test_a_missing_key_takes_its_class_default(folder, key, attribute, value):
    assert getattr(model(folder, **{key: ...}), attribute) == value


@pytest.mark.parametrize("folder", ["Llama-3.1-8B", "Mistral-Nemo-Instruct-2407", "Qwen2.5-7B-Instruct", "Qwen3-8B"])
def test_kv_heads_of_null_are_as_many_as_heads(folder):
    read = model(folder, num_key_value_heads=None)
    assert read.kv_heads == read.heads


def test_a_default_that_does_not_fit_the_heads_names_the_missing_key():
    assert '"num_key_value_heads" is missing' in refusal("Qwen2.5-7B-Instruct", num_key_value_heads=...)


def test_a_narrow_qwen_3_keeps_heads_of_128():
    """Qwen3-0.6B: 1024 wide, 16 heads of 128."""
    assert model("Qwen3-8B", hidden_size=1024, num_attention_heads=16, head_dim=...).head_dim == 128


# --- biases, norms, tied heads ---


def test_which_biases_and_norms_each_family_has():
    qwen2, qwen3 = model("Qwen2.5-7B-Instruct"), model("Qwen3-8B")
    assert (qwen2.qkv_bias, qwen2.out_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.qkv_bias, qwen3.out_bias, qwen3.qk_norm) == (False, False, True)
    for folder in ("Llama-3.1-8B", "Qwen3-8B"):
        biased = model(folder, attention_bias=True)
        assert biased.qkv_bias and biased.out_bias and not biased.mlp_bias
    assert model("Llama-3.1-8B", mlp_bias=True).mlp_bias
    # Mistral's class has none, whatever its file says; Qwen 2's none at the output.
    assert model(NEMO, attention_bias=True, mlp_bias=True) == model(NEMO)
    assert not model("Qwen2.5-7B-Instruct", attention_bias=True).out_bias


def test_a_tied_head_is_stored_once():
    tied = model("Qwen3-8B", tie_word_embeddings=True)
    assert model("Qwen3-8B").parameters - tied.parameters == 151_936 * 4096


# --- other names of keys ---


@pytest.mark.parametrize(
    "key, other",
    [
        ("num_hidden_layers", "n_layer"),
        ("num_hidden_layers", "n_layers"),
        ("num_hidden_layers", "num_layers"),
        ("hidden_size", "n_embd"),
        ("hidden_size", "d_model"),
        ("num_attention_heads", "n_head"),
        ("num_attention_heads", "n_heads"),
        ("num_key_value_heads", "num_kv_heads"),
        ("num_key_value_heads", "n_head_kv"),
        ("intermediate_size", "n_inner"),
        ("intermediate_size", "ffn_dim"),
        ("intermediate_size", "ffn_hidden_size"),
        ("head_dim", "attention_head_dim"),
        ("head_dim", "kv_channels"),
    ],
)
def test_other_names_of_a_key(key, other):
    values = values_of("Qwen3-8B")
    value = values.pop(key)
    assert model_of(values | {other: value}, "m") == model("Qwen3-8B")
    with pytest.raises(ModelError, match=f"{key} is {value} and {other} is {value + 1}"):
        model_of(values | {key: value, other: value + 1}, "m")


# --- layers that do not attend to everything, experts, other shapes ---

FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    "folder, changes, said",
    [
        ("Qwen3-8B", {"use_sliding_window": "false"}, "use_sliding_window is the text \"false\"; it must be"),
        ("Qwen3-8B", {"layer_types": [FULL] * 35 + [SLIDING]}, "layer_types holds sliding_attention, and no window"),
        ("Llama-3.1-8B", {"layer_types": ["linear_attention"] * 32}, 'the text "linear_attention"'),
        ("Llama-3.1-8B", {"layer_types": [None] * 32}, "layer_types holds null"),
        ("Llama-3.1-8B", {"layer_types": [FULL] * 31}, "each of the 32 layers"),
        ("Llama-3.1-8B", {"layer_types": FULL}, "it must be a list"),
        ("Llama-3.1-8B", {"num_local_experts": 8}, "num_local_experts is 8: layers of that shape are not counted"),
        ("Llama-3.1-8B", {"num_experts": True}, "num_experts is true"),
        ("Llama-3.1-8B", {"n_routed_experts": [8]}, "n_routed_experts is a list"),
        ("Llama-3.1-8B", {"kv_lora_rank": 512}, "kv_lora_rank is 512"),
        ("Llama-3.1-8B", {"block_configs": [{"attention": {}}]}, "block_configs is "),
        ("Llama-3.1-8B", {"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4"),
        ("Llama-3.1-8B", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers is 1"),
    ],
)
def test_layers_that_a_family_does_not_know_are_refused_by_their_key(folder, changes, said):
    assert said in refusal(folder, **changes)


@pytest.mark.parametrize(
    "folder, changes",
    [
        (NEMO, {"sliding_window": 4096, "use_sliding_window": False}),
        ("Qwen2.5-7B-Instruct", {"use_sliding_window": True, "sliding_window": None}),
        ("Qwen2.5-7B-Instruct", {"use_sliding_window": True}),  # from layer 28 on, and it has 28
        ("Qwen3-8B", {"layer_types": [FULL] * 36, "sliding_window": 4096}),
        ("Qwen3-8B", {"use_sliding_window": True, "sliding_window": 4096}),
        ("Llama-3.1-8B", {"sliding_window": 4096}),  # Llama's class has no windows
        ("Llama-3.1-8B", {"num_local_experts": 0, "num_experts": 1, "n_routed_experts": None}),
        ("Llama-3.1-8B", {"quantization_config": None}),
        ("Llama-3.1-8B", {"num_kv_shared_layers": 0}),
    ],
)
def test_keys_that_change_nothing_are_read_over(folder, changes):
    assert model(folder, **changes) == model(folder)


# --- checkpoints that are stored quantised ---


@pytest.mark.parametrize(
    "folder, format, kv",
    [
        ("Qwen3-32B-FP8", "fp8-128x128", None),
        ("DeepSeek-V3", "fp8-128x128", None),
        ("Molmo7B-NF4", "nf4", None),
        ("gpt-oss-20b", "mxfp4", None),
        ("Qwen3-235B-A22B-NVFP4", "nvfp4", "fp8"),  # its side file says so, its config nothing
    ],
)
def test_how_a_checkpoint_is_stored_is_kept(folder, format, kv):
    read = load_model(SAMPLES / folder)
    assert (read.quantised.format, read.quantised.kv) == (format, kv)
    assert load_model(SAMPLES / folder, weights_known=True) == read
    assert weigh(read, format).total < weigh(read, "bf16").total


def test_modules_that_a_checkpoint_leaves_in_16_bits_count_where_its_own_format_is_weighed():
    read = model(quantization_config={"quant_method": "fp8", "modules_to_not_convert": ["o_proj"]})
    plain = dataclasses.replace(read, quantised=None)
    assert weigh(read, "fp8").total - weigh(plain, "fp8").total == 32 * (4096 * 4096 - 4)  # and a scale for each
    assert weigh(read, "fp8", skip=()) == weigh(plain, "fp8", skip=())
    assert weigh(read, "int8").total == weigh(plain, "int8").total
    # total_size of gpt-oss-20b's index
    assert weigh(load_model(SAMPLES / "gpt-oss-20b"), "mxfp4").total == 13_761_264_768


@pytest.mark.parametrize(
    "changes, format",
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}, "int4-g128-act"),
        ({"quantization_config": {"quant_method": "awq", "w_bit": 4, "group_size": 128}}, "int4-g128"),
        ({"quantization_config": {"load_in_8bit": True}}, "bnb-int8"),
        ({"quantization": {"group_size": 64, "bits": 4}}, "mlx-4bit-g64"),
        ({"quantization_config": {"quant_method": "fp8"}, "compression_config": {"quant_method": "fp8"}}, "fp8"),
    ],
)
def test_marks_of_a_quantised_checkpoint(changes, format):
    read = model(**changes)
    assert read.quantised.format == format
    assert dataclasses.replace(read, quantised=None, notes=()) == model()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"quantization_config": {"quant_method": "odd"}}, '"odd" is not known'),
        ({"quantization_config": "awq"}, "it must be a map"),
        ({"quantization_config": {"quant_method": "\x1b[31mred"}}, "stored quantised"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 5}}, "bits"),
        ({"quantization_config": {"quant_method": "fp8"}, "quantization": {"bits": 4, "group_size": 64}}, "two places"),
    ],
)
def test_a_way_of_storing_that_is_not_known_is_refused_unless_the_format_is_given(changes, said):
    found = refusal(**changes)
    assert said in found and found.isprintable()
    if "two places" not in said:
        assert "--weights" in found
        assert model_of(values_of("Llama-3.1-8B", **changes), "m", weights_known=True) == model()


def test_a_side_file_says_how_a_checkpoint_is_stored(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(values_of("Llama-3.1-70B")))
    assert load_model(tmp_path).quantised is None
    side = SAMPLES / "Llama-3.1-70B-FP8" / "hf_quant_config.json"
    (tmp_path / "hf_quant_config.json").write_bytes(side.read_bytes())
    read = load_model(tmp_path)
    assert (read.quantised.format, read.quantised.kv) == ("fp8", "fp8")
    assert read.parameters == COUNTED["Llama-3.1-70B"][0]
    own = {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 128}}
    (tmp_path / "config.json").write_text(json.dumps(values_of("Llama-3.1-70B", **own)))
    assert load_model(tmp_path).quantised.format == "int8-g128-act"  # the config itself counts


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_side_file_that_cannot_be_read_is_a_mark_all_the_same(tmp_path, content):
    (tmp_path / "config.json").write_text(json.dumps(values_of("Llama-3.1-70B")))
    (tmp_path / "hf_quant_config.json").write_text(content)
    with pytest.raises(ModelError, match="stored quantised"):
        load_model(tmp_path)
    assert load_model(tmp_path, weights_known=True).quantised is None


def test_the_longest_context_that_a_file_states():
    assert model().max_positions == 131072 and model(max_position_embeddings=...).max_positions is None
    assert model(torch_dtype="torch.bfloat16").dtype == "bfloat16"


# --- values that no config may hold ---


@pytest.mark.parametrize(
    "key",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
     "vocab_size", "head_dim"],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", ["32", True, -1, 0, 32.0, 1.5, float("nan"), float("inf"), 10**10, 10**4000, [32], {"a": 1}, ""]
)
def test_sizes_that_are_no_whole_positive_numbers(key, value):
    said = refusal("Qwen3-8B", **{key: value})
    assert key in said and "whole number from 1" in said and len(said) < 200


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"]
)
@pytest.mark.parametrize("value", [None, ...])
def test_a_size_that_is_missing_is_named(key, value):
    assert f'the key "{key}"' in refusal(**{key: value}) and "missing" in refusal(**{key: value})


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"model_type": ...}, '"model_type" is missing'),
        ({"model_type": None}, '"model_type" is missing'),
        ({"model_type": 3}, "model_type is 3; it must be the name of a family"),
        ({"model_type": ["llama"]}, "model_type is a list; it must be"),
        ({"model_type": "x" * 10_000}, "not counted yet"),
        ({"model_type": "llava", "text_config": {"a": 1}}, '"text_config.model_type" is missing'),
        ({"model_type": "llama", "text_config": {"model_type": "qwen3"}}, "text_config.model_type the text"),
        ({"model_type": "lama"}, 'Did you mean "llama"'),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is the text \"false\"; it must be true or false"),
        ({"attention_bias": 1}, "attention_bias is 1; it must be true or false"),
        ({"hidden_size": 4096.5}, "hidden_size is 4096.5; it must be a whole number"),
        ({"hidden_size": "4096"}, 'hidden_size is the text "4096"; it must be a whole number'),
        ({"hidden_size": [4096]}, "hidden_size is a list; it must be a whole number"),
        ({"max_position_embeddings": "128k"}, 'max_position_embeddings is the text "128k"; it must be a whole number'),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0; it must be a whole number"),
        ({"torch_dtype": 16}, "torch_dtype is 16; it must be the name of a number format"),
        ({"num_hidden_layers": 501}, "501 layers are more than the 500 that are laid out"),
        ({"num_key_value_heads": 5}, "32 heads do not share 5 KV heads"),
        ({"num_attention_heads": 48}, "hidden_size 4096 is no multiple of 48 heads"),
        ({"num_hidden_layers": 200_000}, "200,000 layers"),
    ],
)
def test_values_that_contradict_or_mean_nothing(changes, said):
    found = refusal(**changes)
    assert said in found and len(found) < 600


# --- files that are no config.json ---


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"[1, 2]", "this is a list"),
        (b'"llama"', "this is a text"),
        (b"null", "this is nothing (null)"),
        (b"NaN", "this is a number"),
        (b"{", "line 1, column 2: no JSON"),
        (b'{\n "a" 1\n}', "line 2, column 6: no JSON"),
        (b'{"a": 1} {"b": 2}', "line 1, column 10: no JSON"),
        (b"model_type: llama", "line 1, column 1: no JSON"),
        (b"version https://git-lfs.github.com/spec/v1", "no JSON"),
        (b"\x00\x01\xff\xfe" * 100, "no text in UTF-8"),
        (b"GGUF\x03\x00\x00\x00", "no JSON"),
        ('{"model_type": "llama"}'.encode("utf-16"), "no text in UTF-8"),
        (b"[" * 100_000, "JSON"),  # where it stops depends on the Python
        (b'{"model_type": ' + b"[" * 300 + b"]" * 300 + b"}", "model_type is a list"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "too long a number"),
        (b'{"vocab_size": 1, "vocab_size": 2}', "'vocab_size' is given twice"),
        (b'{"rope": {"a": 1, "a": 2}}', "'a' is given twice"),
        (b" " * (LARGEST_FILE + 1), "bytes are no config.json"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_files_that_are_no_config(tmp_path, content, said):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelError) as error:
        read_config(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_nesting_near_the_limit_is_no_traceback(tmp_path):
    path = tmp_path / "config.json"
    for depth in range(900, 1100, 3):
        path.write_text('{"model_type": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(ModelError):
            read_config(path)


def test_byte_order_mark_equal_doubles_and_infinity_are_read(tmp_path):
    path = tmp_path / "config.json"
    text = json.dumps(values_of("Llama-3.1-8B", time_step_limit=[0.0, float("inf")]))
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("{", '{"vocab_size": 128256, ', 1).encode())
    assert load_model(path).parameters == COUNTED["Llama-3.1-8B"][0]


# --- where a model comes from ---


def test_a_name_a_file_and_a_folder():
    assert load_model("llama-3.1-8b") is catalogue["llama-3.1-8b"]
    assert load_model("Llama-3.1-8B") is catalogue["llama-3.1-8b"]
    folder = SAMPLES / "Qwen3-8B"
    assert load_model(folder) == load_model(str(folder)) == load_model(folder / "config.json")


@pytest.mark.parametrize(
    "given, said",
    [
        ("llama-3.1-8c", 'Did you mean "llama-3.1-8b"'),
        ("a\0b/config.json", "no file can have such a name"),
        (str(SAMPLES), "holds no config.json"),
    ],
)
def test_what_is_no_model(given, said):
    with pytest.raises(OffloadError) as error:
        load_model(given)
    assert said in str(error.value) and str(error.value).isprintable()


def test_a_file_that_is_not_there():
    for missing in ("missing/config.json", "missing.json", Path("missing"), "some.gguf", Path("a/model.safetensors")):
        with pytest.raises(FileNotFoundError):
            load_model(missing)


def test_a_folder_in_place_of_the_file(tmp_path):
    (tmp_path / "config.json").mkdir()
    for path in (tmp_path, tmp_path / "config.json"):
        with pytest.raises(ModelError):
            load_model(path)
    with pytest.raises(ModelError, match="this is a folder"):
        read_config(tmp_path)


FOLDER = "config.json in folder"  # a folder's name is not taken for the model's


@pytest.mark.parametrize(
    "given, name",
    [
        ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
        ("/models/my-model/", "my-model"),
        ("", FOLDER),
        ("   ", FOLDER),
        (None, FOLDER),
        (7, FOLDER),
        ("x" * 1000, FOLDER),
        ("bad\x1b[31m", FOLDER),
        ("bad\ud800", FOLDER),
    ],
)
def test_a_models_name(tmp_path, given, name):
    (tmp_path / "folder").mkdir()
    for path, expected in [(tmp_path / "folder" / "config.json", name), (tmp_path / "mine.json", name)]:
        path.write_text(json.dumps(values_of("Llama-3.1-8B", _name_or_path=given)))
        assert read_config(path).name == (expected if path.name == "config.json" or name != FOLDER else "mine")


# --- whatever a config holds ---

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 32, 128, 10**9, 10**10, FULL, SLIDING, "llama", "mistral", "qwen2", "qwen3"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = sorted({key for folder in COUNTED for key in values_of(folder)} | {
    "n_layer", "num_kv_heads", "kv_channels", "layer_types", "num_experts", "kv_lora_rank", "block_configs",
    "quantization_config", "quantization", "text_config", "use_sliding_window", "_name_or_path", "mlp_bias",
})  # fmt: skip


@given(st.sampled_from(sorted(COUNTED)), st.dictionaries(st.sampled_from(KEYS), json_values | st.just(...), max_size=4),
       st.booleans())  # fmt: skip
def test_any_config_is_read_or_refused(folder, changes, weights_known):
    try:
        read = model_of(values_of(folder, **changes), "m", weights_known=weights_known)
        assert read.parameters > 0 and kv_bytes(read) > 0 and read.heads % read.kv_heads == 0
    except OffloadError as error:
        assert 10 < len(str(error)) < 700 and str(error).isprintable()


@given(st.sampled_from(sorted(COUNTED)), st.data())
def test_any_bytes_are_read_or_refused(tmp_path_factory, folder, data):
    raw = bytearray((SAMPLES / folder / "config.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_bytes(raw)
    try:
        assert read_config(path).parameters > 0
    except OffloadError as error:
        assert str(path) in str(error)
