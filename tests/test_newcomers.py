"""Models under other names, in a nested config, or of a family that is not known but said to be like one."""

from __future__ import annotations

import json

import pytest

from offload import cli
from offload.errors import ModelError
from offload.models.families import model_of
from offload.models.families.said import read_given
from offload.readers import load_model
from tests.sample_configs import CONFIGS, FOLDERS, SAMPLES, model, values_of

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
