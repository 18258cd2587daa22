"""Logs in the true forms of the tools that once gave a wrong plan: layers, contexts, buffers, rows, ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.documents import read_setting
from offload.errors import CapacityError, OffloadError
from offload.readers.engines import llama_bench, llama_cpp
from offload.readers.engines.run import Buffer, Processor, Run, Said, Timing
from offload.readers.tools.text import clean
from offload.why import why
from offload.why.explained import same_runs
from tests.pace import within
from tests.test_why import CARD, DECODE, LLAMA, MIXTURE

MIB = 2**20
LAYER = (4 * 4096**2 + 3 * 4096 * 11008) * 18 // 32 + 2 * 4096 * 4  # of llama-2-7b in Q4_0, and two norms in 32 bits
HEAD = 4096 * 32000 * 210 // 256 + 4096 * 4  # Q6_K, and the final norm
CARDS = (CARD, replace(CARD, name="CUDA1", line=5))


def contradictions(run: Run, **options: str) -> list[str]:
    return list(why(run, **options).notes.contradicts)


# llama-bench


OLD_TABLE = """Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9
| model         |     size |  params | backend | ngl | test    |              t/s |
| ------------- | -------: | ------: | ------- | --: | ------- | ---------------: |
| llama 7B Q4_0 | 3.56 GiB |  6.74 B | CUDA    |  99 | pp 512  | 6121.56 +- 10.09 |
| llama 7B Q4_0 | 3.56 GiB |  6.74 B | CUDA    |  99 | tg 128  |   151.38 +- 0.05 |
| llama 7B Q4_0 | 3.56 GiB |  6.74 B | CUDA    |  99 | ppl 128 |   151.38 +- 0.05 |
"""


def test_the_tables_of_2023_have_a_space_in_their_tests():
    runs = llama_bench.read(clean(OLD_TABLE))
    tests = [(one.timings[0].phase, one.timings[0].test, one.timings[0].tokens) for one in runs]
    assert tests == [("prefill", "pp512", 512), ("decode", "tg128", 128)]
    assert runs[1].timings[0].seconds == pytest.approx(128 / 151.38)


def test_rows_that_are_not_read_are_told():
    runs = llama_bench.read(clean(OLD_TABLE))
    assert all(any('"ppl 128" (line 6)' in text for text in run.unknown) for run in runs)
    assert not any(run.unknown for run in llama_bench.read(clean(OLD_TABLE.replace("ppl 128", "tg 256 "))))


def test_many_rows_are_joined_in_time():
    runs = [replace(LLAMA, line=line, timings=(replace(DECODE, line=line),)) for line in range(1, 10_001)]
    with within(2):
        joined = same_runs(runs)
    assert len(joined) == 1 and len(joined[0].timings) == 10_000


# llama-server


SERVER = """llama_model_loader: loaded meta data with 40 key-value pairs and 724 tensors from m.gguf (version GGUF V3)
print_info: file type   = Q4_K - Medium
print_info: arch             = llama
print_info: n_layer          = 80
print_info: model params     = 70.55 B
llama_context: n_seq_max     = 2
slot launch_slot_: id  0 | task 0 | processing task
slot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 8192, n_keep = 0, n_prompt_tokens = 2011
slot update_slots: id  0 | task 0 | kv cache rm [11, end)
slot      release: id  0 | task 0 | stop processing: n_past = 2410, truncated = 0
slot print_timing: id  0 | task 0 |
prompt eval time =    4310.21 ms /  2000 tokens (    2.14 ms per token,   466.57 tokens per second)
       eval time =   24110.10 ms /   400 tokens (   60.28 ms per token,    16.59 tokens per second)
      total time =   28420.31 ms /  2400 tokens
slot launch_slot_: id  1 | task 9 | processing task
slot      release: id  1 | task 9 | stop processing: n_past = 69, truncated = 0
slot print_timing: id  1 | task 9 |
prompt eval time =      100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)
       eval time =     1000.00 ms /    50 tokens (   20.00 ms per token,    50.00 tokens per second)
      total time =     1100.00 ms /    70 tokens
"""


def test_a_task_whose_times_follow_its_release():
    """Servers of 2024 and 2025 release a slot before they print its times: prompt and positions are those before."""
    first, second, third, fourth, fifth, _ = llama_cpp.read(clean(SERVER))[0].timings
    assert (first.phase, first.context, first.tokens) == ("prefill", 11, 2000)
    assert (second.phase, second.context, second.steps, second.sequences) == ("decode", 2011, 399, 1)
    assert third.prompt == 2011
    assert (fourth.phase, fourth.tokens) == ("prefill", 20)
    assert (fifth.phase, fifth.context, fifth.sequences) == ("decode", 20, 1)  # 69 held, less 49


def test_a_slot_that_is_released_runs_beside_none():
    later = SERVER.replace("launch_slot_: id  1", "launch_slot_: id  0").replace("release: id  1", "release: id  0")
    runs = llama_cpp.read(clean(later.replace("print_timing: id  1", "print_timing: id  0")))
    assert [one.sequences for one in runs[0].timings] == [1] * 6
    assert runs[0].timings[4].context == 20


# Where layers are


def two_cards(kv: tuple[int, int], weights: tuple[int, int]) -> Run:
    buffers = tuple(Buffer(f"CUDA{n}", what, size, line=10 + n) for what, sizes in (("kv", kv), ("weights", weights))
                    for n, size in enumerate(sizes))  # fmt: skip
    return replace(LLAMA, processors=CARDS, buffers=buffers)


def test_layers_by_their_kv_buffers():
    """The second card has the output layer too: its weights tell too many layers, its KV cache does not."""
    found = why(two_cards((17 * 64 * MIB, 15 * 64 * MIB), (17 * LAYER, 15 * LAYER + HEAD)))
    assert found.keys["placement"]["weights"] == {"hbm1": "15 layers", "hbm0": "rest"}
    assert not found.notes.contradicts


def test_the_output_layer_is_no_part_of_the_proportion():
    run = two_cards((0, 0), (17 * LAYER, 15 * LAYER + HEAD))
    run = replace(run, buffers=tuple(one for one in run.buffers if one.holds == "weights"))
    assert why(run).keys["placement"]["weights"] == {"hbm1": "15 layers", "hbm0": "rest"}


# What the log says otherwise


def test_a_buffer_of_a_gpu_that_the_plan_does_not_fill():
    half = replace(LLAMA, layers_on_gpus=Said(20, 8), buffers=(Buffer("CUDA0", "weights", 10**9, line=17),))
    found = contradictions(half, server="desktop-4090")
    assert len([text for text in found if text.startswith("buffers: the log puts 1 GB of weights on CUDA0")]) == 1
    right = replace(half, buffers=(Buffer("CUDA0", "weights", 20 * LAYER, line=17),))
    assert not contradictions(right, server="ws-2x3090-nvlink")


def test_what_contradicts_is_told_where_nothing_fits():
    with pytest.raises(CapacityError, match="The log contradicts it: size: the log says"):
        why(replace(MIXTURE, weights_format=Said("BF16", 8), size=Said(18_556_000_000, 1)))


def test_all_that_differs_from_a_model_is_told():
    told = contradictions(replace(LLAMA, layers=Said(32, 7)), model="qwen3-8b")
    found = [text for text in told if text.startswith("model:")]
    assert len(found) == 2 and "parameters" in found[0] and "36 layers" in found[1]


def test_ranks_that_do_not_print_their_weights_are_not_missing():
    """One of two ranks prints its half of the model."""
    vllm = Run("vllm", 1, Said("Llama-3.1-8B", 1), weights_format=Said("bfloat16", 1), tensor=Said(2, 1),
               batch=Said(1, 1), timings=(Timing("decode", 1.0, 100.0, 100.0, 1.0, 10),),
               buffers=(Buffer("rank0", "weights", 8_030_261_248, line=3),))  # fmt: skip
    assert not contradictions(vllm, server="dgx-h100")
    less = replace(vllm, buffers=(Buffer("rank0", "weights", 4 * 10**9, line=3),))
    assert "on 1 of 2 GPUs" in contradictions(less, server="dgx-h100")[0]


def test_a_card_of_no_known_part_is_told():
    run = replace(LLAMA, processors=(Processor("CUDA0", "NVIDIA GeForce RTX 4060 Ti", line=4),))
    assert any("RTX 4060 Ti" in text and "gpu0" in text for text in why(run, server="desktop-4090").notes.assumed)


@pytest.mark.slow
def test_a_kv_cache_whose_buffers_are_on_the_host_is_there():
    """Without the command line: all layers on the card, and "CPU KV buffer size = 512.00 MiB"."""
    host = replace(LLAMA, buffers=(Buffer("CPU", "kv", 512 * MIB, line=12),))
    found = why(host, server="desktop-4090")
    assert (found.keys["placement"]["kv"], found.keys["placement"]["attention"]) == ("dram0", "cpu0")
    card = replace(LLAMA, buffers=(Buffer("CUDA0", "kv", 512 * MIB, line=12),))
    assert "kv" not in why(card, server="desktop-4090").keys["placement"]
    none = replace(host, layers_on_gpus=Said(0, 8))
    assert "kv" not in why(none, server="desktop-4090").keys["placement"]


@pytest.mark.few
@pytest.mark.parametrize("server", ["mac-studio-m2-ultra", "dgx-spark", "strix-halo-mini-pc"])
def test_a_server_of_one_memory(server):
    run = replace(LLAMA, processors=(Processor("Metal", "", line=4),), timings=(replace(DECODE, seconds=128 / 40),))
    found = why(run, server=server)
    assert found.keys["placement"] == {"weights": {"unified0": "rest"}, "reserve": "0 B", "compute": "gpu0"}
    assert not any("one memory" in text for text in found.notes.assumed)
    for apart in (replace(run, layers_on_gpus=Said(20, 8)),
                  replace(run, settings=(("no_kv_offload", True, 8),)),
                  replace(MIXTURE, processors=run.processors, timings=run.timings, settings=(("n_cpu_moe", 24, 8),))):
        found = why(apart, server=server)
        assert found.keys["placement"]["weights"] == {"unified0": "rest"}
        assert any("GPU and CPU have one memory" in text for text in found.notes.assumed)


def test_the_model_size_of_2023_is_no_bytes():
    text = """llama_model_load_internal: format     = ggjt v3 (latest)
llama_model_load_internal: n_layer    = 32
llama_model_load_internal: ftype      = 3 (mostly Q4_1)
llama_model_load_internal: model size = 7B
llama_print_timings:        eval time = 11238.94 ms /   127 runs   (   88.50 ms per token,    11.30 tokens per second)
"""
    run = llama_cpp.read(clean(text))[0]
    assert run.size is None
    newer = text.replace("model size = 7B", "model size = 3.95 GiB (5.00 BPW)")
    assert llama_cpp.read(clean(newer))[0].size.value == round(3.95 * 2**30)


def test_where_nothing_says_where_the_weights_were_it_is_asked():
    """`ollama run --verbose` tells times alone: neither the CPU nor the GPU is taken for granted."""
    bare = Run("ollama", 1, timings=(Timing("decode", 6.0, 240.0, 240.0, 1.0, 100, line=7),))
    with pytest.raises(OffloadError, match="does not tell where the weights were.*placement.compute=gpu0"):
        why(bare, server="desktop-4090", model="llama-3.1-8b:q4_k_m")
    said = [read_setting("placement.weights={hbm0: rest}"), read_setting("placement.compute=gpu0")]
    found = why(bare, server="desktop-4090", model="llama-3.1-8b:q4_k_m", settings=said)
    assert not found.contradicts and found.keys["placement"]["compute"] == "gpu0"
    on_cpu = replace(bare, layers=Said(32, 1))
    told = why(on_cpu, server="desktop-4090", model="llama-3.1-8b:q4_k_m").notes.assumed
    assert any(text.startswith("placement.weights: all in host memory") for text in told)


def test_sequences_that_no_line_tells_are_assumed():
    open_ = replace(LLAMA, batch=None, timings=(replace(DECODE, sequences=None),))
    assert any(text.startswith("workload.batch: 1, those of this timing") for text in why(open_).notes.assumed)
    assert not any(text.startswith("workload.batch") for text in why(LLAMA).notes.assumed)
