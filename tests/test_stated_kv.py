"""A KV cache's format that a checkpoint states is the default wherever none is asked, and every report says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offload import cli
from offload.errors import ModelError
from offload.models import catalogue
from offload.models.architecture import Quantised, layers_of
from offload.models.budget import kv_format_of, kv_notes
from offload.models.cache import growing_bytes
from offload.models.families import model_of

LLAMA = catalogue["llama-3.1-8b"]
CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
SAYS = "the KV cache is in fp8, as the model's checkpoint states"


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a config whose weights and KV cache are in fp8."""

    def made(algorithm: str = "FP8") -> str:
        quantised = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": algorithm}
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": quantised}))
        return str(tmp_path)

    return made


def stating(kv: str | None):
    return replace(LLAMA, quantised=Quantised("fp8", kv=kv))


def test_asked_beats_stated_beats_sixteen_bits():
    assert kv_format_of(LLAMA) == ("f16", "default") == kv_format_of(stating(None))
    assert kv_format_of(stating("fp8")) == ("fp8", "checkpoint")
    assert kv_format_of(stating("fp8"), "float16") == ("f16", "asked")
    assert kv_notes(stating("fp8")) == (SAYS,) and kv_notes(stating("fp8"), "fp8") == () == kv_notes(LLAMA)


def test_a_stated_format_that_is_not_known_is_refused():
    with pytest.raises(ModelError, match='states a KV cache in "fp3".* --kv-format fp8'):
        kv_format_of(stating("fp3"))


def run(capsys, *words: str) -> tuple[int, str]:
    status = cli.main(list(words))
    return status, capsys.readouterr().out


def test_model(capsys, checkpoint):
    path = checkpoint()
    answer = json.loads(run(capsys, "model", path, "--json")[1])
    sizes = ("kv_format", "kv_format_bytes_per_token", "kv_bytes_per_token")
    assert [answer[key] for key in sizes] == ["fp8", 65_536, 131_072] and SAYS in answer["notes"]
    answer = json.loads(run(capsys, "model", path, "--kv-format", "f16", "--json")[1])
    assert answer["kv_bytes_per_token"] == 131_072 and SAYS not in answer["notes"]


def test_a_step_in_words_and_by_a_plan(capsys, checkpoint, tmp_path):
    path = checkpoint()
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"topology: desktop-4090\nmodel: {{config: {path}}}\nworkload: {{context: 4096}}\n"
                    "placement: {weights: {hbm0: rest}}\n")  # fmt: skip
    for words in ([path, "--on", "desktop-4090"], [str(plan)]):
        status, text = run(capsys, "step", *words)
        assert status == 0 and SAYS in " ".join(text.split())
        answers = [json.loads(run(capsys, "step", *words, "--json")[1])]
        assert answers[0]["workload"]["kv"] == "fp8"


def test_a_plan_by_a_checkpoint_with_an_unknown_format(capsys, checkpoint, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"topology: desktop-4090\nmodel: {{config: {checkpoint('FP3')}}}\n"
                    "placement: {weights: {hbm0: rest}}\n")  # fmt: skip
    assert cli.main(["step", str(plan)]) == 2
    assert 'states a KV cache in "fp3"' in capsys.readouterr().err
    plan.write_text(plan.read_text().replace("model: {", "model: {kv: fp8, "))
    assert cli.main(["step", str(plan)]) == 0


COMPRESSED = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {
    "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}}  # fmt: skip
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}


@pytest.mark.parametrize("how, kv, each", [
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}}, "fp8", 65_536),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "attn_head"}}, "fp8", 65_536),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "token"}}, "fp8-head", 67_584),
    # One scale for a tensor takes no bytes at a position.
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8, "type": "int", "strategy": "tensor"}}, "int8-tensor", 65_536),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8-tensor", 65_536),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8, "type": "int", "strategy": "token"}}, "int8", 67_584),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}},
     "nvfp4", 36_864),
    (COMPRESSED | {"kv_cache_scheme": "fp8"}, "fp8", 65_536),
    (COMPRESSED | {"kv_cache_scheme": None}, "f16", 131_072),
    (FP8 | {"kv_cache_scheme": "static"}, "fp8", 65_536),
    (FP8 | {"kv_cache_scheme": "dynamic"}, "fp8", 65_536),
    (MODELOPT | {"kv_cache_quant_algo": "INT8"}, "int8-tensor", 65_536),
    (MODELOPT | {"kv_cache_quant_algo": "NVFP4"}, "nvfp4", 36_864),
    (MODELOPT | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8", 65_536),
])  # fmt: skip
def test_schemes(how, kv, each):
    model = model_of(CONFIG | {"quantization_config": how}, "m")
    assert kv_format_of(model)[0] == kv
    assert growing_bytes([layer.cache for layer in layers_of(model)], kv) == each


@pytest.mark.parametrize("scheme, named", [
    ("static", "static"),  # of the fp8 method alone
    ("int9", "int9"),
    ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}, "4 bits, int, group of 32"),
    ({"num_bits": 8, "type": "complex", "strategy": ["x"]}, "8 bits, complex"),
])  # fmt: skip
def test_a_scheme_that_is_not_known_is_named_where_the_cache_is_counted(scheme, named):
    model = model_of(CONFIG | {"quantization_config": COMPRESSED | {"kv_cache_scheme": scheme}}, "m")
    with pytest.raises(ModelError, match=f'states a KV cache in "{named}.*not known. .*--kv-format fp8'):
        kv_format_of(model)
    assert kv_format_of(model, "fp8") == ("fp8", "asked")


@pytest.mark.parametrize("scheme", [7, ["fp8"], {"type": "float"}, {"num_bits": 5}])
def test_a_scheme_that_is_none_is_refused(scheme):
    with pytest.raises(ModelError, match="kv_cache_scheme is|num_bits"):
        model_of(CONFIG | {"quantization_config": COMPRESSED | {"kv_cache_scheme": scheme}}, "m")
