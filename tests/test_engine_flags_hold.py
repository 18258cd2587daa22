"""Flags and files held against what engines make of them: each tensor lands where the plan has it, byte for byte.

What an engine makes of its flags is stated here after its own source: llama.cpp's layers from n_layer + 1 - ngl on and
its first override that is found in a name, accelerate's device of the one key that begins a module's name,
ktransformers' first rule that matches, vLLM's last layers of each group.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache

import pytest
import yaml

from offload.models import layers_of, weigh
from offload.models.gguf_names import gguf_names
from offload.models.weights import layer_tensors
from offload.placing import Objective, engines_of, families, place, plan_question
from offload.placing.engines import _groups
from offload.plan import Overlap
from offload.words import plan_from_words

WEIGHTS = ("layer weights", "experts", "output head")
EXPERTS = "\\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # llama.cpp's common.h
LOCAL = "layers where they live: hbm0, dram0"
CASES = [
    ("llama-3.1-70b:q4_k_m", "desktop-4090", LOCAL),
    ("llama-3.1-70b:q4_k_m", "desktop-4090", f"{LOCAL}, output head in dram0"),
    ("llama-3.1-70b:q4_k_m", "desktop-4090", "feed-forward apart: hbm0, dram0"),
    ("llama-3.1-70b:q4_k_m", "desktop-4090", "KV in dram0, layers where they live"),
    ("deepseek-v3:q4_k_m", "dual-xeon-4090", "experts apart: hbm0, dram0..1"),
    ("qwen3-30b-a3b:q8_0", "desktop-4090", "experts apart: hbm0, dram0"),
    ("mixtral-8x7b:q8_0", "desktop-4090", "experts apart: hbm0, dram0, output head in dram0"),
]


@lru_cache
def found_for(target: str, server: str, family: str, buffers: int = 2):
    plan, topology = plan_from_words(target, server)
    question = plan_question(plan, topology)
    some = [one for one in families(question.model, topology, plan.origin[2], question.weights,
                                    Overlap("buffers", buffers)) if one.name == family]  # fmt: skip
    assert len(some) == 1, family
    best = place(question, some, Objective("latency"), bounds=False).best
    return best, {one.name: one for one in engines_of(best)}


def away(best) -> int:
    """Bytes of layers, experts and head outside of the GPU, as the plan has them."""
    kinds = best.question.topology.memories
    return sum(size for name, parts in best.step.occupied.items() if kinds[name].kind != "hbm"
               for part, size in parts.items() if part in WEIGHTS)  # fmt: skip


def llama_puts_on_the_cpu(text: str, best) -> int:
    """Bytes that llama.cpp keeps in host memory with such flags."""
    words = shlex.split(text)
    given = dict(zip(words, words[1:], strict=False))
    rules = [word.rpartition("=")[0] for flag, word in zip(words, words[1:], strict=False) if flag == "-ot"]
    assert all(word.endswith("=CPU") and "," not in word for flag, word in zip(words, words[1:], strict=False)
               if flag == "-ot")  # fmt: skip
    rules += [f"blk\\.{number}{EXPERTS}" for number in range(int(given.get("--n-cpu-moe", 0)))]
    model, weights = best.question.model, best.question.weights
    first = max(model.layers + 1 - int(given["-ngl"]), 0)
    total = 0
    for number, tensors in enumerate(layer_tensors(model, weights)):
        for matrix, size in tensors:
            names = [name for way in gguf_names(matrix) for name in way]
            moved = any(re.search(rule, name) for rule in rules for name in names)
            total += size if number < first or moved else 0
    head = weigh(model, weights).head
    kept = int(given["-ngl"]) > 0 and not any(re.search(rule, "output.weight") for rule in rules)
    return total + (0 if kept else head)


@pytest.mark.few
@pytest.mark.parametrize("target,server,family", CASES)
def test_llama_cpp_keeps_the_planned_bytes_in_host_memory(target: str, server: str, family: str):
    best, found = found_for(target, server, family)
    assert away(best) > 0
    assert llama_puts_on_the_cpu(found["llama.cpp"].text, best) == pytest.approx(away(best), rel=1e-6)


@pytest.mark.parametrize("name", ["LLAMA", "DEEPSEEK2", "QWEN3MOE"])
def test_names_are_those_of_gguf_files(name: str):
    """gguf-py's own list of an architecture's tensors: patterns hit what they mean, and nothing else."""
    constants = pytest.importorskip("gguf.constants")
    names = {constants.TENSOR_NAMES[one] for one in constants.MODEL_TENSORS[constants.MODEL_ARCH[name]]}
    assert "output" in names
    every = [one.format(bid=number) + ".weight" for one in names for number in (0, 1, 9, 10, 11)]
    from offload.placing.problem import feed_forward_of

    hit = {one for one in every if re.search(feed_forward_of(10), one) and "exp" not in one and "inp" not in one}
    assert hit == {f"blk.{number}.ffn_{part}.weight" for number in (0, 1, 9) for part in ("up", "down", "gate")
                   if f"blk.{{bid}}.ffn_{part}" in names}  # fmt: skip
    routed = {one for one in every if re.search(rf"blk\.1{EXPERTS}", one)}
    assert routed == {f"blk.1.{part}.weight" for part in ("ffn_up_exps", "ffn_down_exps", "ffn_gate_exps",
                                                          "ffn_gate_up_exps") if f"blk.{{bid}}.{part}" in names}
    assert {one for one in every if re.search(r"^output\.weight", one)} == {"output.weight"}


ATTENTION = {"deepseek_v3": ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm",
                             "kv_b_proj", "o_proj")}  # fmt: skip
SHARED = {"deepseek_v3": [f"shared_experts.{part}_proj" for part in ("gate", "up", "down")]}
BLOCK = {"mixtral": "block_sparse_moe"}


def modules(model) -> list[str]:
    """Modules with parameters, as transformers has them (modeling_*.py of each family)."""
    found = ["model.embed_tokens", "model.norm", "lm_head"]
    for number, layer in enumerate(layers_of(model)):
        own = [f"self_attn.{one}" for one in ATTENTION.get(model.family, ("q_proj", "k_proj", "v_proj", "o_proj"))]
        own += ["input_layernorm", "post_attention_layernorm"]
        if layer.experts is None:
            own += [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
        else:
            block = BLOCK.get(model.family, "mlp")
            own += [f"{block}.{one}" for one in ("gate", "experts.0.down_proj", "experts.1.up_proj",
                                                 *SHARED.get(model.family, ()))]  # fmt: skip
        found += [f"model.layers.{number}.{one}" for one in own]
    return found


@pytest.mark.parametrize("target,server,family", CASES)
def test_a_device_map_has_each_module_once_where_the_plan_has_it(target: str, server: str, family: str):
    best, found = found_for(target, server, family)
    device_map = json.loads(found["accelerate"].text)
    used: set[str] = set()
    device: dict[str, object] = {}
    for module in modules(best.question.model):
        keys = [key for key in device_map if module == key or module.startswith(f"{key}.")]
        assert len(keys) == 1, (module, keys)
        used.add(keys[0])
        device[module] = device_map[keys[0]]
    assert used == set(device_map)  # and no key is of a module that is not there
    total = 0
    for number, tensors in enumerate(layer_tensors(best.question.model, best.question.weights)):
        for matrix, size in tensors:
            block = BLOCK.get(best.question.model.family, "mlp")
            routed = matrix.used is not None
            part = "self_attn" if matrix.role.startswith("attn") or not matrix.is_matrix else block
            if part == block and layers_of(best.question.model)[number].experts is not None:
                part += ".experts" if routed else ".gate"
            where = next(spot for module, spot in device.items() if module.startswith(f"model.layers.{number}.{part}"))
            total += size if where == "cpu" else 0
    total += weigh(best.question.model, best.question.weights).head if device["lm_head"] == "cpu" else 0
    assert total == pytest.approx(away(best), rel=1e-4)  # norms stand with attention here


@pytest.mark.parametrize("target,server,family", [one for one in CASES if one[0][:4] in ("deep", "qwen")])
def test_rules_put_experts_where_the_plan_has_them(target: str, server: str, family: str):
    best, found = found_for(target, server, family)
    rules = yaml.safe_load(found["ktransformers"].text)
    parts = best.family.parts_of(best.question.topology, best.question.sizes, best.counts[1])
    for number, layer in enumerate(layers_of(best.question.model)):
        if layer.experts is None:
            continue
        name = f"model.layers.{number}.mlp.experts"
        first = next(rule for rule in rules if re.search(rule["match"]["name"], name))  # the first that matches counts
        assert first["replace"]["class"].endswith(("KTransformersExperts", "KTransformersExpertsV2"))
        assert first["replace"]["kwargs"]["generate_device"] == ("cuda" if best.family.parts[parts[number]] == "hbm0"
                                                                 else "cpu")  # fmt: skip
        block = next(rule for rule in rules if re.search(rule["match"]["name"], f"model.layers.{number}.mlp"))
        assert block["match"]["class"].endswith("MoE") or block["match"]["class"].endswith("SparseMoeBlock")


# DeepSpeed's runtime/zero/config.py and offload_config.py.
ZERO = {"stage", "offload_param", "stage3_prefetch_bucket_size", "stage3_max_live_parameters",
        "stage3_max_reuse_distance", "stage3_param_persistence_threshold"}  # fmt: skip
OFFLOAD = {"device": str, "nvme_path": str, "buffer_count": int, "buffer_size": int, "max_in_cpu": int,
           "pin_memory": bool}  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_deepspeed_takes_its_keys_and_counts_elements(buffers: int):
    best, found = found_for("llama-3.1-70b:bf16", "desktop-4090", "layers of dram0 streamed to gpu0", buffers)
    config = json.loads(found["DeepSpeed"].text)
    assert set(config) == {"train_micro_batch_size_per_gpu", "bf16", "zero_optimization"}
    zero = config["zero_optimization"]
    assert set(zero) <= ZERO and zero["stage"] == 3
    for key, value in zero["offload_param"].items():
        assert isinstance(value, OFFLOAD[key])
    assert zero["offload_param"]["device"] in ("cpu", "nvme")
    layer = max(best.question.sizes)  # bytes, of 16 bits each
    assert zero["stage3_max_live_parameters"] * 2 == layer * buffers
    assert zero["stage3_prefetch_bucket_size"] * 2 == layer * (buffers - 1)
    if zero["offload_param"]["device"] == "nvme":
        assert zero["offload_param"]["buffer_size"] * 2 >= layer


@pytest.mark.slow
def test_groups_of_vllm_stream_as_many_layers():
    for layers in (1, 2, 7, 32, 61, 80):
        for streamed in range(1, layers + 1):
            size, each, count = _groups(layers, streamed)
            assert 1 <= each <= size and count >= streamed
            assert count == sum(number % size >= size - each for number in range(layers))  # prefetch.py
            assert count - streamed <= 3 and (streamed < layers or count == layers)


def test_vllm_streams_with_as_many_buffers_or_reads_from_host_memory():
    best, found = found_for("llama-3.1-70b:q4_k_m", "desktop-4090", "layers of dram0 streamed to gpu0")
    words = shlex.split(found["vLLM"].text)
    given = dict(zip(words, words[1:], strict=False))
    assert given["--offload-prefetch-step"] == "2" and "--cpu-offload-gb" not in given
    size, each = int(given["--offload-group-size"]), int(given["--offload-num-in-group"])
    assert sum(number % size >= size - each for number in range(80)) >= sum(best.counts[0][1:])
    best, found = found_for("llama-3.1-70b:q4_k_m", "desktop-4090", LOCAL)
    words = shlex.split(found["vLLM"].text)
    stated = float(words[words.index("--cpu-offload-gb") + 1]) * 2**30
    assert away(best) <= stated <= away(best) + 0.1 * 2**30
