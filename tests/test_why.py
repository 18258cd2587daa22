"""A run's measured time as a sum of terms: worked by hand, contradicted, of unknown models and servers; its plan."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.documents import read_setting
from offload.errors import CapacityError, ModelError, OffloadError
from offload.measured import ABOVE, FAR_BELOW, SLOWER
from offload.models import catalogue
from offload.readers.engines.run import Buffer, Processor, Run, Said, Timing
from offload.why import Why, choose_run, choose_timing, why
from offload.why.model import model_of, plain_format
from offload.why.notes import Notes
from offload.why.waterfall import NAMES, terms_of

CARD = Processor("CUDA0", "NVIDIA GeForce RTX 3090", line=4)
DECODE = Timing("decode", 128 / 127.43, 128.0, 128.0, 1.0, 0, test="tg128", line=8)
PROMPT = Timing("prefill", 0.1, 512.0, None, 1.0, 0, test="pp512", line=7)
LLAMA = Run(
    "llama-bench", 8, Said("llama 7B", 8), Said("llama", 8), Said(6.74e9, 8), Said(3822520893, 8),
    weights_format=Said("Q4_0", 8), layers_on_gpus=Said(33, 8), batch=Said(1, 8), processors=(CARD,), timings=(DECODE,),
)  # fmt: skip
MIXTURE = replace(
    LLAMA, model=Said("Qwen3-30B-A3B", 1), architecture=Said("qwen3moe", 1), parameters=Said(30.53e9, 1), size=None,
    weights_format=Said("Q4_K - Medium", 1), layers_on_gpus=Said(49, 1),
)  # fmt: skip


def times(found: Why) -> dict[str, float]:
    return {term.name: term.seconds for term in found.waterfall.terms}


def adds_up(found: Why) -> None:
    fall = found.waterfall
    assert [term.name for term in fall.terms] == list(NAMES)
    assert fall.terms[-1].until == fall.measured
    before = Fraction(0)
    for term in fall.terms:
        assert term.seconds == float(Fraction(term.until) - before)
        before = Fraction(term.until)
    scale = max(abs(term.until) for term in fall.terms)
    assert math.fsum(term.seconds for term in fall.terms) == pytest.approx(fall.measured, abs=1e-14 * scale)
    assert math.fsum(term.share for term in fall.terms) == pytest.approx(1, abs=1e-12 * scale / fall.measured)


# Worked by hand


def test_llama_2_7b_on_an_rtx_3090():
    """Every byte from the shape: 32 layers of 4 x 4096^2 + 3 x 4096 x 11008 weights in 18 bytes for 32."""
    layer = (4 * 4096**2 + 3 * 4096 * 11008) * 18 // 32 + 2 * 4096 * 4  # and two norms in 32 bits
    head = 4096 * 32000 * 210 // 256 + 4096 * 4  # Q6_K, and the final norm
    row = 2 * 4096 * 2  # keys and values of a position in 16 bits
    context = 64  # the mean of 1 to 128 is 64.5
    read = 32 * layer + head + 32 * row * context + 32 * row  # one of these rows is the new one, written
    assert read == 3_785_416_704
    found = why(LLAMA)
    fall = times(found)
    assert fall["load floor"] == pytest.approx((read - 6 * 2**20) / 936.2e9, rel=1e-12)  # less the L2
    assert fall["order"] == pytest.approx(0, abs=1e-15)
    hidden = 2 * 4096  # the embedding's row arrives in the card's memory: expected, and in no floor
    expected = (read + hidden) / 838.5e9
    assert found.waterfall.terms[2].until == pytest.approx(expected, rel=1e-12)
    assert fall["contention"] == pytest.approx(0, abs=1e-12)
    assert fall["hand-overs"] == 0
    assert fall["unexplained"] == pytest.approx(1 / 127.43 - expected, rel=1e-9)
    assert found.waterfall.measured == pytest.approx(1 / 127.43, rel=1e-12)
    assert found.waterfall.verdict == SLOWER and found.waterfall.largest.name == "unexplained"
    adds_up(found)
    memory = next(one for one in found.proven if one.resource == "hbm0")
    assert memory.rate == pytest.approx((read - 6 * 2**20) * 127.43, rel=1e-12)
    assert memory.peak == 936.2e9 and memory.stands == ""
    assert found.keys["workload"] == {"phase": "decode", "batch": 1, "context": context}
    assert not found.contradicts


def test_a_prompt_is_a_pass_alone():
    found = why(replace(LLAMA, timings=(PROMPT, DECODE)), timing=1)
    assert found.waterfall.of == "pass" and found.waterfall.measured == 0.1
    assert found.keys["workload"] == {"phase": "prefill", "batch": 1, "prompt": 512}
    adds_up(found)


def test_a_longer_prompt_comes_in_chunks():
    long = replace(PROMPT, tokens=2048.0, seconds=0.5)
    found = why(replace(LLAMA, chunk=Said(512, 7), timings=(long,)))
    assert found.waterfall.of == "prompt" and found.keys["workload"]["chunk"] == 512
    assert len(found.plan.request.chunk(0).blocks) and found.plan.request.chunks == 4
    adds_up(found)
    one = why(replace(LLAMA, timings=(PROMPT,)))  # the weights are read in each chunk
    assert found.waterfall.terms[0].until > 3.9 * one.waterfall.terms[0].until


def test_a_request_is_its_prompt_and_its_steps():
    asked = Timing("request", 2.0, 129.0, sequences=1.0, prompt=512, line=9)
    found = why(replace(LLAMA, timings=(asked,)))
    assert found.waterfall.of == "request"
    prompt = why(replace(LLAMA, timings=(PROMPT,)))
    token = why(replace(LLAMA, timings=(replace(DECODE, context=512),)))
    whole = prompt.waterfall.expected + 128 * token.waterfall.expected  # contexts 513 to 640
    assert found.waterfall.expected == pytest.approx(whole, rel=1e-3)
    assert found.waterfall.terms[0].until == pytest.approx(
        prompt.waterfall.terms[0].until + 128 * token.waterfall.terms[0].until, rel=1e-3)
    assert found.waterfall.floor <= found.waterfall.low
    adds_up(found)


def test_latencies_and_costs_are_the_hand_overs():
    half = replace(LLAMA, layers_on_gpus=Said(17, 8), timings=(replace(DECODE, seconds=8.0),))
    found = why(half, server="desktop-4090")
    assert found.keys["placement"]["weights"] == {"hbm0": "16 layers", "dram0": "rest"}
    assert times(found)["order"] > 0 and times(found)["hand-overs"] > 0
    cost = read_setting("costs={sync: {each: hand-over, time: 1 ms}}")
    more = why(half, server="desktop-4090", settings=[cost])
    assert times(more)["hand-overs"] == pytest.approx(times(found)["hand-overs"] + 1e-3, rel=1e-3)
    assert more.waterfall.terms[4].grade == "estimate"
    assert times(more)["contention"] == pytest.approx(times(found)["contention"], abs=1e-12)
    adds_up(more)


# Contradictions


def test_faster_than_the_floor_is_a_contradiction():
    found = why(replace(LLAMA, timings=(replace(DECODE, seconds=128 / 300),)))
    assert found.waterfall.verdict == ABOVE and found.contradicts and found.causes
    assert times(found)["unexplained"] < 0  # not cut off
    assert found.waterfall.terms[-1].why
    memory = next(one for one in found.proven if one.resource == "hbm0")
    assert memory.stands == "above peak" and memory.rate > memory.peak
    adds_up(found)


def test_faster_than_sustained_is_told():
    found = why(replace(LLAMA, timings=(replace(DECODE, seconds=128 / 240),)))
    memory = next(one for one in found.proven if one.resource == "hbm0")
    assert memory.stands == "above sustained" and not found.contradicts


def test_another_gpu_than_the_servers_is_told():
    found = why(LLAMA, server="desktop-4090")
    assert any("rtx-3090" in text and "desktop-4090" in text for text in found.notes.contradicts)
    assert not why(LLAMA, server="ws-2x3090-nvlink").notes.contradicts


def test_other_bytes_than_the_models_are_told():
    found = why(replace(LLAMA, size=Said(5 * 10**9, 8)))
    assert any(text.startswith("size:") for text in found.notes.contradicts)
    assert not any(text.startswith("size:") for text in why(LLAMA).notes.contradicts)


# Servers


def test_layers_in_host_memory_of_an_unknown_host_are_not_counted():
    run = replace(LLAMA, layers_on_gpus=Said(20, 8), timings=(replace(DECODE, seconds=12.8),))
    found = why(run)
    assert found.waterfall.verdict == FAR_BELOW
    assert found.not_counted == ("dram0",) and not found.causes  # no verdict on what is not counted
    assert any("host" in text for text in found.notes.unknown)
    host = next(one for one in found.proven if one.resource == "dram0")
    layer = 3_643_801_600 // 32
    rows = 13 * 2 * 4096 * 2 * (64 + 1)
    assert host.least == 13 * layer + rows  # proved although nothing is known of it
    assert host.rate == pytest.approx(host.least / 0.1, rel=1e-12) and host.peak is None and host.sustained is None
    adds_up(found)


def test_rates_of_the_host_can_be_said():
    run = replace(LLAMA, layers_on_gpus=Said(20, 8), timings=(replace(DECODE, seconds=12.8),))
    said = [read_setting("dram0.rate=40GB/s"), read_setting("pcie0.rate=25GB/s")]
    found = why(run, settings=said)
    assert found.not_counted == () and found.waterfall.terms[0].until > why(run).waterfall.terms[0].until


def test_a_gpu_that_is_no_part_asks_for_the_server():
    run = replace(LLAMA, processors=(Processor("CUDA0", "NVIDIA GeForce GTX 1050", line=4),))
    with pytest.raises(OffloadError, match=r"GTX 1050.*--on SERVER"):
        why(run)
    assert why(run, server="desktop-4090").study.topology == "desktop-4090"


def test_more_gpus_than_the_server_has():
    cards = tuple(replace(CARD, name=f"CUDA{number}") for number in range(3))
    with pytest.raises(OffloadError, match="3 GPUs.*has 2"):
        why(replace(LLAMA, processors=cards), server="ws-2x3090-nvlink")


def test_what_does_not_fit():
    big = replace(
        LLAMA, model=Said("Llama-3.1-70B", 1), parameters=Said(70.55e9, 1), size=None, weights_format=Said("Q8_0", 1),
        layers_on_gpus=Said(81, 1),
    )  # fmt: skip
    with pytest.raises(CapacityError, match=r"does not fit.*hbm0 lacks .*--on SERVER"):
        why(big)


def test_ranks_without_names_need_a_server():
    run = Run("vllm", 1, Said("meta-llama/Llama-3.1-70B-Instruct", 1), weights_format=Said("bfloat16", 1),
              tensor=Said(4, 1), timings=(Timing("decode", 1.0, 400.0, 100.0, 4.0, 1000, line=3),))  # fmt: skip
    with pytest.raises(OffloadError, match="--on SERVER"):
        why(run)
    found = why(run, server="dgx-h100")
    assert found.keys["placement"]["weights"] == {"hbm0..3": "rest"}
    assert found.keys["workload"]["batch"] == 4 and found.waterfall.measured == 0.01
    adds_up(found)


def test_stages_work_on_parts_of_the_sequences():
    run = Run("vllm", 1, Said("meta-llama/Llama-3.1-70B-Instruct", 1), weights_format=Said("bfloat16", 1),
              tensor=Said(2, 1), pipeline=Said(2, 1),
              timings=(Timing("decode", 2.0, 400.0, 50.0, 8.0, 1000, line=3),))  # fmt: skip
    found = why(run, server="dgx-h100")
    assert found.keys["placement"]["weights"] == {"hbm2..3": "40 layers", "hbm0..1": "40 layers"}
    assert (found.keys["workload"]["batch"], found.keys["workload"]["in_flight"]) == (4, 2)
    assert found.waterfall.measured == 0.02  # a step of all takes 40 ms, of each half 20
    assert found.plan.sequences == 8
    adds_up(found)
    alone = replace(run, timings=(Timing("decode", 2.0, 50.0, 50.0, 1.0, 1000, line=3),))
    assert "in_flight" not in why(alone, server="dgx-h100").keys["workload"]


def test_replicas_are_alike():
    run = Run("vllm", 1, Said("Llama-2-7b", 1), weights_format=Said("float16", 1), replicas=Said(4, 1),
              timings=(Timing("decode", 2.0, 800.0, 100.0, 8.0, 1000, line=3),))  # fmt: skip
    found = why(run, server="dgx-h100")
    assert found.keys["workload"]["batch"] == 2 and found.keys["placement"]["weights"] == {"hbm0": "rest"}
    assert found.waterfall.measured == 0.02
    adds_up(found)


# Models


@pytest.mark.parametrize(("name", "architecture", "parameters", "model"), [
    ("Meta-Llama-3.1-8B-Instruct", "llama", 8.03e9, "llama-3.1-8b"),
    ("meta-llama/Llama-3.1-70B", None, None, "llama-3.1-70b"),
    ("llama 8B", "llama", 8.03e9, "llama-3.1-8b"),
    ("llama 7B", "llama", 7.25e9, "mistral-7b"),
    ("LLaMA v2", "llama", 6.74e9, "llama-2-7b"),
    ("DeepSeek-R1-Distill-Llama-8B", "llama", 8.03e9, "llama-3.1-8b"),
    ("Qwen3-30B-A3B-Q4_K_M.gguf", "qwen3moe", None, "qwen3-30b-a3b"),
    ("Qwen/Qwen3-32B-FP8", "Qwen3ForCausalLM", None, "qwen3-32b"),
    ("gpt-oss 20B", "gpt-oss", 20.91e9, "gpt-oss-20b"),
    ("deepseek2 671B", "deepseek2", 671.03e9, "deepseek-v3"),
    ("Mistral-7B-v0.1", None, None, "mistral-7b-v0.1"),
])  # fmt: skip
def test_models_by_name_and_figures(name, architecture, parameters, model):
    said = [None if value is None else Said(value, 1) for value in (architecture, parameters)]
    run = Run("llama.cpp", 1, Said(name, 1), *said, weights_format=Said("Q8_0", 1))
    assert model_of(run, None, Notes()).model.name == model


@pytest.mark.parametrize(("name", "parameters", "message"), [
    ("Example-13B", None, "Example-13B.*--model NAME"),
    ("Llama-3.1-8B", 70.55e9, "8.03 B parameters, and the log says 70.55 B"),
    ("DeepSeek-R1-Distill-Qwen-9B", None, "none that is known"),
])  # fmt: skip
def test_models_that_are_not_known(name, parameters, message):
    run = Run("vllm", model=Said(name, 1), parameters=None if parameters is None else Said(parameters, 1))
    with pytest.raises(ModelError, match=message):
        model_of(run, None, Notes())


def test_a_model_that_is_said():
    run = replace(LLAMA, model=Said("my finetune", 1), parameters=None, architecture=None)
    with pytest.raises(ModelError, match="--model"):
        why(run)
    assert why(run, model="llama-2-7b").keys["model"] == {"name": "llama-2-7b", "weights": "q4_0"}
    assert why(run, model="llama-2-7b:q8_0").known.weights == "q8_0"
    other = why(LLAMA, model="llama-3.1-8b")
    assert any("parameters" in text for text in other.notes.contradicts)


def test_a_format_that_is_not_told():
    run = replace(LLAMA, weights_format=None)
    with pytest.raises(ModelError, match="llama-2-7b:FORMAT"):
        why(run)
    assert why(run, model="llama-2-7b:q4_0").known.weights == "q4_0"
    assert why(run, settings=[read_setting("model.weights=q4_0")]).known.weights == "q4_0"


@pytest.mark.parametrize(("told", "name"), [
    ("Q4_K - Medium", "q4_k_m"), ("Q4_K - Small", "q4_k_s"), ("Q3_K - Large", "q3_k_l"), ("Q2_K - Medium", "q2_k"),
    ("Q4_0", "q4_0"), ("Q6_K", "q6_k"), ("IQ4_XS - 4.25 bpw", "iq4_xs"), ("IQ2_XXS - 2.0625 bpw", "iq2_xxs"),
    ("mostly Q8_0", "q8_0"), ("F16", "fp16"), ("all F32", "fp32"), ("BF16", "bf16"),
    ("Q4_K - Medium (guessed)", "q4_k_m"),
    ("MXFP4 MoE", "mxfp4_moe"), ("torch.bfloat16", "bf16"), ("IQ3_S mix - 3.66 bpw", "iq3_m"),
    ("TQ1_0 - 1.69 bpw ternary", "tq1_0"), ("Q2_K - Small", "q2_k_s"),
])  # fmt: skip
def test_weight_formats(told, name):
    from offload.models.weights import weight_format

    assert plain_format(told) == name
    assert weight_format(name)


# Placements


def test_the_output_layer_is_where_the_buffers_say():
    """Twenty layers are twenty blocks (older llama.cpp), or nineteen and the output layer."""
    layer, head = 3_643_801_600 // 32, 107_520_000 + 16_384
    older = (Buffer("CUDA0", "weights", 20 * layer), Buffer("CPU", "weights", 12 * layer + head))
    newer = (Buffer("CUDA0", "weights", 19 * layer + head), Buffer("CPU", "weights", 13 * layer))
    run = replace(LLAMA, layers_on_gpus=Said(20, 8))
    placed = why(replace(run, buffers=older), server="desktop-4090").keys["placement"]
    assert placed["weights"]["hbm0"] == "20 layers" and "dram0" in placed["tensors"].values()
    placed = why(replace(run, buffers=newer), server="desktop-4090").keys["placement"]
    assert placed["weights"]["hbm0"] == "19 layers" and "tensors" not in placed


def test_layers_over_two_cards_run_in_turn():
    cards = (CARD, replace(CARD, name="CUDA1"))
    buffers = (Buffer("CUDA0", "weights", 2 * 10**9, 17), Buffer("CUDA1", "weights", 18 * 10**8, 16))
    found = why(replace(LLAMA, processors=cards, buffers=buffers))
    assert found.keys["placement"]["weights"] == {"hbm1": "15 layers", "hbm0": "rest"}  # 16 with the output layer
    assert times(found)["order"] > 0
    row = why(replace(LLAMA, processors=cards, settings=(("split_mode", "row", 8),)), server="ws-2x3090-nvlink")
    assert row.keys["placement"]["weights"] == {"hbm0..1": "rest"}
    asked = why(replace(LLAMA, processors=cards, settings=(("tensor_split", "3.00/1.00", 8),)))
    assert asked.keys["placement"]["weights"] == {"hbm1": "8 layers", "hbm0": "rest"}


@pytest.mark.few
@pytest.mark.parametrize(("key", "value", "placement"), [
    ("cpu_moe", True, {"experts": {"home": {"dram0": "rest"}, "compute": "local"}}),
    ("cpu_moe", 24, {"experts": {"home": {"hbm0": "24 layers", "dram0": "rest"}, "compute": "local"}}),
    ("no_kv_offload", True, {"kv": "dram0", "attention": "cpu0"}),
    ("override-tensor", r"blk\.[0-9]\.ffn_.*_exps=CPU", {"tensors": {r"blk\.[0-9]\.ffn_.*_exps": "dram0"}}),
    ("override-tensor", "blk.3-4,9 ffn_down_exps|ffn_up_exps=CPU",
     {"tensors": {r"^blk\.(3|4|9)\.(ffn_down_exps|ffn_up_exps)\.": "dram0"}}),
])  # fmt: skip
def test_settings_place_parts(key, value, placement):
    found = why(replace(MIXTURE, settings=((key, value, 1),)), server="desktop-4090")
    assert placement.items() <= found.keys["placement"].items()
    adds_up(found)


def test_experts_on_the_cpu_beside_two_cards():
    """Of the first layers, which are on the first card: the second keeps all of its own."""
    cards = (CARD, replace(CARD, name="CUDA1"))
    run = replace(MIXTURE, processors=cards, settings=(("cpu_moe", 12, 1), ("tensor_split", "1/1", 1)))
    placed = why(run, server="ws-2x3090-nvlink").keys["placement"]
    assert placed["weights"] == {"hbm1": "24 layers", "hbm0": "rest"}
    assert placed["experts"]["home"] == {"hbm1": "24 layers", "hbm0": "12 layers", "dram0": "rest"}
    away = why(replace(MIXTURE, layers_on_gpus=Said(21, 1), settings=(("cpu_moe", 12, 1),)), server="ws-2x3090-nvlink")
    assert away.keys["placement"]["experts"]["home"] == {"hbm0": "20 layers", "dram0": "rest"}


def test_kv_in_host_memory_is_read_there():
    run = replace(LLAMA, settings=(("no_kv_offload", True, 8),), timings=(replace(DECODE, context=4000, seconds=6.0),))
    found = why(run, server="ws-2x3090-nvlink")
    link = next(one for one in found.proven if one.resource == "pcie0.hbm0")
    host = next(one for one in found.proven if one.resource == "dram0")
    cache = 32 * 2 * 4096 * 2 * 4064
    assert link.least < 0.01 * cache and host.least > cache - 80 * 2**20 - 1  # the CPU's cache may spare its size


def test_a_pattern_without_tensors_is_left_out():
    found = why(replace(LLAMA, settings=(("override-tensor", r"ffn_.*_exps=CPU", 8),)))
    assert "tensors" not in found.keys["placement"]
    assert any("override-tensor" in text for text in found.notes.assumed)


def test_a_prompt_takes_weights_of_the_host_to_the_gpu():
    run = replace(LLAMA, layers_on_gpus=Said(17, 8), timings=(replace(PROMPT, seconds=1.0),))
    found = why(run, server="desktop-4090")
    assert found.keys["placement"]["compute"] == "gpu0" and found.keys["overlap"] == "none"
    stays = why(replace(run, settings=(("no_op_offload", True, 8),)), server="desktop-4090")
    assert stays.keys["placement"]["compute"] == "local" and "overlap" not in stays.keys


def test_offloaded_bytes_of_vllm():
    run = Run("vllm", 1, Said("Llama-2-13b", 1), weights_format=Said("float16", 1), processors=(CARD,),
              settings=(("cpu_offload_gb", 10, 1),),
              timings=(Timing("decode", 1.0, 2.0, 2.0, 1.0, 100, line=3),))  # fmt: skip
    found = why(run, server="desktop-4090")
    assert found.keys["placement"]["weights"] == {"hbm0": "rest", "dram0": f"{10 * 2**30} B"}
    assert found.keys["placement"]["access"] == "in_place"
    link = next(one for one in found.proven if one.resource == "pcie0.hbm0")
    assert 10 * 2**30 * 0.9 < link.least <= 10 * 2**30  # whole layers of it


AWAY = Run("deepspeed", 1, Said("facebook/opt-30b", 1), weights_format=Said("float16", 1),
           timings=(Timing("decode", 80.0, 248.0, 31.0, 8.0, 512, line=9),))  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize(("settings", "ranks", "placement"), [
    ({"cpu_offload": True, "kv_offload": True}, 1, {"weights": {"dram0": "rest"}, "compute": "gpu0", "kv": "dram0"}),
    ({"disk_offload": True}, 1, {"weights": {"ssd0": "rest"}, "compute": "gpu0", "via": ["dram0"]}),
    ({"cpu_offload": True, "pin_memory": 0}, 2,
     {"weights": {"dram0": "rest"}, "compute": "gpu0..1", "parallel": {"by": "data", "fetch": "sharded"},
      "host_memory": "pageable"}),
    ({"percent": "20 80 100 0 100 0"}, 1,
     {"weights": {"20% hbm0 + 80% dram0": "rest"}, "compute": "gpu0", "kv": "hbm0"}),
    ({"percent": "0 50 0 100 100 0", "cpu_cache_compute": True}, 1,
     {"weights": {"dram0": "50%", "ssd0": "50%"}, "compute": "gpu0", "kv": "dram0", "attention": "cpu0"}),
])  # fmt: skip
def test_what_lies_away_from_gpus(settings, ranks, placement):
    run = replace(AWAY, ranks=Said(ranks, 1), settings=tuple((key, value, 1) for key, value in settings.items()))
    found = why(run, server="ws-2x3090-nvlink")
    assert found.keys["placement"] == placement | {"reserve": "0 B"}
    assert found.waterfall.measured == 80 / 31
    adds_up(found)


@pytest.mark.parametrize(("settings", "ranks", "message"), [
    ({"percent": "80 30 100 0 100 0"}, 1, "more than"),
    ({"percent": "20 80 100 0 100 0"}, 2, "several GPUs"),
    ({"disk_offload": True}, 1, "no drive"),
])  # fmt: skip
def test_what_cannot_lie_there(settings, ranks, message):
    run = replace(AWAY, ranks=Said(ranks, 1), settings=tuple((key, value, 1) for key, value in settings.items()))
    with pytest.raises(OffloadError, match=message):
        why(run, server="rtx4090-8gpu" if "disk_offload" in settings else "ws-2x3090-nvlink")


def test_a_device_map_of_accelerate():
    run = Run("accelerate", 1, Said("Llama-2-13b", 1), weights_format=Said("float16", 1), layers=Said(40, 1),
              layers_on_gpus=Said(25, 1), processors=(Processor("cuda:0", line=1),),
              facts=(("layers on cuda:0", 25, 1), ("layers on cpu", 10, 1), ("layers on disk", 5, 1)),
              timings=(Timing("decode", 3.0, 1.0, 1.0, 1.0, line=9),))  # fmt: skip
    found = why(run, server="ws-2x3090-nvlink")
    assert found.keys["placement"]["weights"] == {"hbm0": "25 layers", "dram0": "10 layers", "ssd0": "rest"}
    assert found.keys["placement"]["layout"] == "streamed_last" and found.keys["overlap"] == "none"
    adds_up(found)
    sized = replace(run, facts=(), layers=None, layers_on_gpus=None, buffers=(
        Buffer("cuda:0", "weights", 16 * 10**9), Buffer("cpu", "weights", 10 * 10**9)))  # fmt: skip
    assert why(sized, server="ws-2x3090-nvlink").keys["placement"]["weights"] == {"hbm0": "24 layers", "dram0": "rest"}


def test_a_model_by_its_name_alone_is_told():
    assert any("by its name alone" in text for text in why(AWAY, server="dgx-h100").notes.assumed)
    assert not any("by its name alone" in text for text in why(MIXTURE).notes.assumed)


# What is asked for


def test_windows_count_no_cache_in_floors():
    run = Run("vllm", 1, Said("Llama-2-7b", 1), weights_format=Said("float16", 1), processors=(CARD,), timings=(
        Timing("decode", 1.0, 120.0, 30.0, 4.0, 2000, test="windows of the server's log", line=3),))  # fmt: skip
    found = why(run)
    plain = why(replace(run, timings=(replace(run.timings[0], test=""),)))
    cache = 4 * 32 * 2 * 4096 * 2 * (2000 - 1)  # of four sequences
    assert found.waterfall.terms[0].until < plain.waterfall.terms[0].until - 0.9 * cache / 936.2e9
    assert any("workload.context" in text for text in found.notes.assumed)


def test_unknown_sequences_are_asked_for():
    run = Run("vllm", 1, Said("Llama-2-7b", 1), weights_format=Said("float16", 1), processors=(CARD,),
              timings=(Timing("decode", 1.0, 120.0, line=3),))  # fmt: skip
    with pytest.raises(OffloadError, match=r"--set workload.batch=N"):
        why(run)
    found = why(run, settings=[read_setting("workload.batch=4")])
    assert found.waterfall.measured == pytest.approx(1 / 30) and found.plan.sequences == 4


def test_an_unknown_context_is_the_least():
    found = why(replace(LLAMA, timings=(replace(DECODE, context=None),)))
    assert found.keys["workload"]["context"] == 1
    assert any("workload.context" in text for text in found.notes.assumed)
    said = why(replace(LLAMA, timings=(replace(DECODE, context=None),)), settings=[read_setting("workload.context=64")])
    assert said.keys["workload"]["context"] == 64
    assert not any("workload.context" in text for text in said.notes.assumed)
    assert said.waterfall.terms[0].until == why(LLAMA).waterfall.terms[0].until


def test_runs_and_timings_are_chosen():
    prompt = replace(LLAMA, line=7, timings=(PROMPT,))
    assert choose_run([prompt, LLAMA], None).timings == (PROMPT, DECODE)  # rows of one table
    other = replace(LLAMA, line=9, layers_on_gpus=Said(20, 9))
    with pytest.raises(OffloadError, match=r"(?s)2 runs.*--run 1.*--run 2.*20 layers"):
        choose_run([prompt, LLAMA, other], None)
    assert choose_run([prompt, LLAMA, other], 2) == other
    with pytest.raises(OffloadError, match="--run 3"):
        choose_run([prompt, LLAMA, other], 3)
    both = replace(LLAMA, timings=(PROMPT, DECODE))
    assert choose_timing(both, None) is DECODE and choose_timing(both, 1) is PROMPT
    with pytest.raises(OffloadError, match="--timing 3"):
        choose_timing(both, 3)
    with pytest.raises(OffloadError, match="no timing"):
        choose_timing(replace(LLAMA, timings=()), None)
    with pytest.raises(OffloadError, match="no timing.*load"):
        choose_timing(replace(LLAMA, timings=(Timing("load", 3.0, line=2),)), None)


def test_a_setting_that_is_no_key():
    with pytest.raises(OffloadError, match=r"(?s)unknown key.*The plan that was made of the log"):
        why(LLAMA, settings=[read_setting("workload.batchh=2")])


# The sum, whatever the times


@given(st.lists(st.floats(0, 1e6), min_size=5, max_size=5), st.floats(1e-9, 1e6))
def test_terms_add_up_to_the_measured_time(until, measured):
    terms = terms_of([*until, measured], measured)
    exact = [Fraction(term.until) - Fraction(before.until if before else 0)
             for before, term in zip([None, *terms], terms, strict=False)]  # fmt: skip
    assert sum(exact) == Fraction(measured)
    assert [term.seconds for term in terms] == [float(one) for one in exact]
    assert all(bool(term.why) == (term.seconds < 0) for term in terms if term.name != "load floor")


@settings(max_examples=15)
@given(st.integers(0, 33), st.integers(1, 2000), st.integers(0, 3000), st.floats(1, 400))
def test_terms_of_any_split_add_up(layers, made, context, speed):
    timing = Timing("decode", made / speed, float(made), float(made), 1.0, context)
    found = why(replace(LLAMA, layers_on_gpus=Said(layers, 8), timings=(timing,)), server="desktop-4090")
    adds_up(found)
    fall = found.waterfall
    assert all(term.seconds >= -1e-12 for term in fall.terms[:3])
    assert fall.terms[0].until <= fall.terms[1].until * (1 + 1e-12) <= fall.expected * (1 + 1e-9)
    assert found.contradicts == (fall.contradicts or any(one.stands == "above peak" for one in found.proven))


def test_every_family_of_the_catalogue_is_told_by_its_own_figures():
    """The name of a GGUF file, with its parameters, leads back to the model, or to one of the same shape."""
    for name in catalogue:
        model = catalogue[name]
        run = Run("llama.cpp", 1, Said(name.upper().replace("-", " "), 1), None, Said(float(model.parameters), 1),
                  layers=Said(model.layers, 1), weights_format=Said("BF16", 1))  # fmt: skip
        assert model_of(run, None, Notes()).model.name == name
