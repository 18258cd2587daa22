"""What engines take for a placement, and what each of them is said not to take."""

from __future__ import annotations

import json

import pytest
import yaml

from offload.compiler import compile_step
from offload.placing import Objective, best_of, engines_of, families, place, plan_question
from offload.plan import Overlap
from offload.words import plan_from_words


def engines(target: str, server: str, family: str = "", **words):
    plan, topology = plan_from_words(target, server, **words)
    question = plan_question(plan, topology)
    if not family:
        best = best_of(question, compile_step(topology, plan), Objective("latency")).placing.best
    else:
        some = [one for one in families(question.model, topology, plan.origin[2], question.weights, Overlap())
                if one.name == family]  # fmt: skip
        best = place(question, some, Objective("latency"), bounds=False).best
    return best, {one.name: one for one in engines_of(best)}


def told(engine) -> str:
    return " ".join(engine.cannot)


def test_layers_on_the_gpu():
    best, found = engines("llama-3.1-70b:q4_k_m", "desktop-4090", "layers where they live: hbm0, dram0")
    assert best.counts == ((44, 36, 0), ())
    assert found["llama.cpp"].text == "-ngl 45 -c 4096"  # -ngl counts the output head as one more
    assert "run on the CPU" in told(found["vLLM"]) and "--cpu-offload-gb 17.3" in found["vLLM"].text
    assert found["ktransformers"].text == ""
    device_map = json.loads(found["accelerate"].text)
    assert [device_map[f"model.layers.{number}"] for number in (0, 35, 36, 79)] == ["cpu", "cpu", 0, 0]
    assert device_map["lm_head"] == 0 and len(device_map) == 83
    config = json.loads(found["DeepSpeed"].text)
    assert config["zero_optimization"]["offload_param"]["device"] == "cpu"


def test_the_head_in_host_memory():
    best, found = engines("llama-3.1-70b:q4_k_m", "desktop-4090",
                          "layers where they live: hbm0, dram0, output head in dram0")
    assert f'-ngl {best.counts[0][0] + 1} -ot "^output\\.weight=CPU"' in found["llama.cpp"].text
    assert json.loads(found["accelerate"].text)["lm_head"] == "cpu"
    assert "output head" in told(found["vLLM"])


def test_feed_forward_on_the_cpu():
    best, found = engines("llama-3.1-70b:q4_k_m", "desktop-4090", "feed-forward apart: hbm0, dram0")
    there = best.counts[1][1]
    assert f'-ot "blk\\.([0-9]|[1-3][0-9]|4[0-{there - 41}])\\.ffn_(up|down|gate)=CPU"' in found["llama.cpp"].text
    device_map = json.loads(found["accelerate"].text)
    assert device_map["model.layers.0.mlp"] == "cpu" and device_map["model.layers.0.self_attn"] == 0


@pytest.mark.slow
def test_experts_on_the_cpu():
    best, found = engines("deepseek-v3:q4_k_m", "dual-xeon-4090")
    assert best.counts[1] == (1, 60)
    assert found["llama.cpp"].text == "-ngl 62 --n-cpu-moe 60 -c 4096"
    rules = yaml.safe_load(found["ktransformers"].text)
    assert "KDeepseekV3MoE" in rules[0]["replace"]["class"]
    assert rules[1]["replace"]["kwargs"]["generate_device"] == "cpu" and rules[1]["recursive"] is False
    device_map = json.loads(found["accelerate"].text)
    assert device_map["model.layers.3.mlp.experts"] == "cpu" and device_map["model.layers.3.self_attn"] == 0
    assert device_map["model.layers.60"] == 0 and device_map["model.layers.0"] == 0  # the first three have no experts


def test_kv_in_host_memory():
    _, found = engines("llama-3.1-70b:q4_k_m", "desktop-4090", "KV in dram0, layers where they live", kv_format="q8_0")
    assert "--no-kv-offload" in found["llama.cpp"].text and "-ctk q8_0 -ctv q8_0" in found["llama.cpp"].text
    assert "attention runs on the CPU" in told(found["llama.cpp"])
    assert "--kv-offloading-size" in found["vLLM"].text and "no running step" in told(found["vLLM"])


def test_streamed_layers():
    best, found = engines("llama-3.1-70b:q4_k_m", "desktop-4090", "layers of dram0 streamed to gpu0")
    assert f"{sum(best.counts[0][1:])} layers that stream" in told(found["llama.cpp"])
    assert "-ngl takes the last layers" in told(found["llama.cpp"])


@pytest.mark.slow
def test_several_gpus():
    _, found = engines("llama-3.1-70b:bf16", "dgx-h100", compute="gpu0..7", batch=8)
    assert "--tensor-parallel-size 8" in found["vLLM"].text and "--max-num-seqs 8" in found["vLLM"].text
    assert "several GPUs" in told(found["llama.cpp"]) and "several GPUs" in told(found["accelerate"])
    assert "-c 32768 -np 8" in found["llama.cpp"].text


@pytest.mark.parametrize(("weights", "family"), [
    ("q4_k_m", "experts apart: hbm0, dram0..1"), ("q4_k_m", "layers of dram0..1 streamed to gpu0"),
    ("q8_0", "layers where they live: hbm0, dram0 and dram1 in turn"),  # one host memory alone is too small
])  # fmt: skip
def test_no_engine_is_told_which_socket_holds_and_reads_what(weights: str, family: str):
    best, found = engines(f"deepseek-v3:{weights}", "dual-xeon-4090", family)
    assert all(best.step.occupied[name] for name in ("dram0", "dram1"))
    for one in found.values():
        assert "which of dram0 and dram1 holds what" in told(one), one.name


def test_no_engine_is_told_which_of_two_drives_holds_what():
    small = ["dram0.capacity=40GB", "dram1.capacity=40GB"]
    best, found = engines("llama-3.1-405b:bf16", "dgx-h100", "layers of dram0..1 streamed to gpu0", compute="gpu0",
                          settings=small)  # fmt: skip
    assert all(best.step.occupied[name]["layer weights"] for name in ("ssd0", "ssd1"))
    for one in found.values():
        assert "which of ssd0 and ssd1 holds what" in told(one) or not one.text, one.name


def test_one_host_memory_needs_no_telling_apart():
    _, found = engines("deepseek-v3:q4_k_m", "dual-xeon-4090", "experts apart: hbm0, dram0")
    assert not any("holds what" in told(one) for one in found.values())


def test_blocks_run_on_no_engine():
    from tests.test_placing import blocks, found_for, three_tiers

    assert engines_of(found_for(blocks(10, 10**9, three_tiers())).best) == ()


@pytest.mark.parametrize("name", ["llama.cpp", "vLLM", "accelerate", "DeepSpeed", "ktransformers"])
def test_every_engine_says_what_it_cannot_be_told(name: str):
    _, found = engines("llama-3.1-8b:q8_0", "desktop-4090", "layers where they live: hbm0, dram0")
    assert found[name].cannot and all(one.strip() == one and len(one) < 200 for one in found[name].cannot)
