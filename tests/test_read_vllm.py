"""What vLLM's and SGLang's logs say: facts worked out from each fixture by hand, dirt, several runs, damage."""

from __future__ import annotations

import pytest

from offload.errors import ReadingError
from offload.readers.engines import vllm
from offload.readers.tools.text import clean
from tests.server_logs import GIB, bare, buffers, damage_test, dirty, facts, log, runs, said, settings

NAMES = ("vllm_v1_two_ranks.log", "vllm_v0_offload.log", "vllm_bench_serve.txt", "vllm_offline.txt", "sglang.log")

test_damaged_logs = damage_test(vllm, NAMES)


def the_run(name):
    (run,) = runs(vllm, log(name))
    return run


@pytest.mark.parametrize("name", NAMES)
def test_dirt_changes_nothing(name):
    plain = bare(runs(vllm, log(name)))
    for number, content in enumerate(dirty(log(name))):
        assert bare(runs(vllm, content)) == plain, number


@pytest.mark.parametrize("name", NAMES)
def test_nothing_personal_is_kept(name):
    found = repr(runs(vllm, log(name)))
    assert not any(word in found for word in ("somebody", "/home", "/srv", "/data", "10.1.2.3", "pid", "0x7f00"))


@pytest.mark.parametrize("name", ["vllm_v1_two_ranks.log", "vllm_v0_offload.log", "sglang.log"])
def test_each_start_is_a_run(name):
    content = log(name)
    twice = runs(vllm, content + "\n" + content)
    later = content.count("\n") + 1
    assert len(twice) == 2 and bare(twice[:1]) == bare(twice[1:]) == bare(runs(vllm, content))
    assert twice[1].line == twice[0].line + later


def test_v1_on_two_ranks():
    run = the_run("vllm_v1_two_ranks.log")
    assert run.engine == "vllm"
    assert said(run) == {
        "model": ("Example-32B-FP8", 3), "architecture": ("Qwen3ForCausalLM", 4), "weights_format": ("fp8", 7),
        "kv_format": ("bfloat16", 7), "window": (16384, 3), "batch": (64, 3), "chunk": (8192, 6), "tensor": (2, 3),
        "pipeline": (1, 7), "replicas": (1, 7), "ranks": (2, 3), "kv_tokens": (425_984, 15),
    }  # fmt: skip
    assert buffers(run) == [
        ("rank1", "weights", 16.0, 11), ("rank0", "weights", 16.25, 12), ("rank1", "kv", 52.5, 13),
        ("rank0", "kv", 52.0, 14), ("rank0", "compute", 0.5, 19),
    ]  # fmt: skip
    assert settings(run)["enable_prefix_caching"] is True and settings(run)["gpu_memory_utilization"] == "0.92"
    assert not run.unknown and not run.odd


def test_v1_windows_that_are_all_decoding_are_the_timings():
    run = the_run("vllm_v1_two_ranks.log")
    load, one, four = run.timings
    assert (load.phase, load.seconds, load.line) == ("load", 20.125, 12)  # the slowest rank
    # 4 requests at the end of lines 22, 23 and 24, without prompts in 23 and 24: 198 and 202 tokens/s, 50 steps/s.
    assert (four.phase, four.tokens, four.steps, four.sequences, four.samples, four.line) == (
        "decode", 200.0, 50.0, 4, 2, 23)  # fmt: skip
    assert four.context == 425_984 * 0.025 // 4 and not four.includes
    assert (one.tokens, one.steps, one.sequences, one.samples, one.line) == (55.0, 55.0, 1, 1, 26)
    assert facts(run)["highest prompt tokens/s of a window"] == 800.0
    assert facts(run)["lowest tokens/s of a window with 4 running"] == 198.0


def test_speculation_leaves_the_steps_open():
    content = log("vllm_v1_two_ranks.log").replace(
        "model='/home/somebody/models/Example-32B-FP8', speculative_config=None",
        "model='/home/somebody/models/Example-32B-FP8', speculative_config=SpeculativeConfig(method='eagle3', "
        "model='/home/somebody/models/Draft', num_spec_tokens=3)")  # fmt: skip
    (run,) = runs(vllm, content)
    assert settings(run)["speculative method"] == "eagle3" and settings(run)["speculative num_spec_tokens"] == 3
    assert settings(run)["speculative model"] == "Draft" and run.model.value == "Example-32B-FP8"
    assert [one.steps for one in run.timings] == [None, None, None]


def test_v0_with_weights_in_host_memory():
    run = the_run("vllm_v0_offload.log")
    assert said(run) == {
        "model": ("example/Example-13B", 2), "weights_format": ("float16", 3), "bits": (16.0, 3),
        "kv_format": ("float16", 3), "window": (2048, 2), "batch": (256, 2), "tensor": (2, 2), "pipeline": (1, 2),
        "ranks": (2, 2), "kv_tokens": (2048 * 16, 10),
    }  # fmt: skip
    assert buffers(run) == [
        ("rank0", "weights", 7.25, 4), ("rank1", "weights", 7.25, 5), ("rank0", "compute", 0.5, 8),
        ("rank0", "kv", 13.0, 8), ("rank1", "compute", 0.5, 9), ("rank1", "kv", 13.25, 9),
    ]  # fmt: skip
    (card,) = run.processors
    assert (card.name, card.memory, card.line) == ("rank0", round(23.5 * GIB), 7)
    assert settings(run)["cpu_offload_gb"] == 5 and settings(run)["swap_space"] == 4
    assert facts(run)["KV blocks in host memory"] == 640
    assert facts(run)["times that a request was preempted for want of KV memory"] == 1
    assert any("cpu_offload_gb is the most" in one for one in run.unknown)
    assert any("2^30" in one and "loaded weights" in one for one in run.assumed)
    assert any("GiB" in one and "cpu_offload_gb" in one for one in run.assumed)


def test_v0_without_a_steady_window_says_what_the_best_one_includes():
    (timing,) = the_run("vllm_v0_offload.log").timings
    assert (timing.tokens, timing.sequences, timing.steps, timing.line) == (9.0, 3, None, 14)
    assert timing.includes


def test_offloaded_weights_are_the_cpus():
    line = "INFO 01-02 03:04:05 [uva.py:65] Total CPU offloaded parameters: 12.25\n"
    content = log("vllm_v0_offload.log") + line + "(Worker_TP1 pid=9) " + line + line
    (run,) = runs(vllm, content)
    assert run.on("weights")["CPU"] == 2 * 12.25 * GIB  # of each rank, the repeated line once
    assert not any("cpu_offload_gb is the most" in one for one in run.unknown)


def test_replicas_add_their_kv_tokens_and_stay_one_run():
    start = ("(EngineCore_DP{0} pid=1{0}) INFO 01-02 03:04:05 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with "
             "config: model='a/b', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=1, "
             "pipeline_parallel_size=1, data_parallel_size=2, quantization=None, kv_cache_dtype=fp8_e4m3\n"
             "(EngineCore_DP{0} pid=1{0}) INFO [x.py:1] Model loading took 14.0 GB and 3.5 seconds\n"
             "(EngineCore_DP{0} pid=1{0}) INFO [x.py:1] GPU KV cache size: {1} tokens\n")  # fmt: skip
    (run,) = runs(vllm, start.format(0, "100,000") + start.format(1, "101,000"))
    assert (run.kv_tokens.value, run.replicas.value, run.ranks.value) == (201_000, 2, 2)
    assert run.on("weights") == {"rank0": 14 * GIB, "rank1": 14 * GIB} and run.kv_format.value == "fp8_e4m3"
    assert run.bits.value == 16


def test_ranks_that_print_nothing_are_told():
    content = "".join(line for line in log("vllm_v1_two_ranks.log").splitlines(keepends=True) if "Worker_TP1" not in
                      line)  # fmt: skip
    (run,) = runs(vllm, content)
    assert run.unknown == ("weights on 1 of 2 ranks: not every rank prints them",)


def test_bench_serve():
    run = the_run("vllm_bench_serve.txt")
    assert run.model.value == "example/Example-8B" and settings(run)["benchmark max_concurrency"] == 8
    whole, first, later = run.timings
    assert (whole.phase, whole.seconds, whole.tokens, whole.sequences, whole.prompt, whole.line) == (
        "request", 50.0, 10_100, 8, 1000, 7)  # fmt: skip
    assert (first.phase, first.seconds, first.tokens, first.samples, first.line) == ("prefill", 0.25, 1000, 100, 16)
    assert "queue" in first.includes
    # 100 later tokens of each of 100 requests at 36 ms are 360 s of decoding in 50 s: 7.2 at once.
    assert (later.phase, later.seconds, later.context, later.line) == ("decode", 0.036, 1000, 20)
    assert later.sequences == later.tokens == pytest.approx(7.2)
    assert facts(run)["mean ITL of bench serve, at most 8 at once, s"] == pytest.approx(0.0359)


def test_bench_serve_of_one_request_at_a_time_is_plain_decode():
    content = log("vllm_bench_serve.txt").replace("concurrency:             8 ", "concurrency:             1 ")
    _, first, later = runs(vllm, content)[0].timings
    assert (later.tokens, later.sequences, later.includes, first.includes) == (1, 1, "", "")


def test_a_cut_block_of_a_benchmark_gives_what_it_has():
    content = log("vllm_bench_serve.txt")
    (run,) = runs(vllm, content[: content.index("Median TTFT")])
    assert [one.phase for one in run.timings] == ["request", "prefill"]


def test_offline_benchmarks_and_blocks_without_a_size():
    run = the_run("vllm_offline.txt")
    latency, bar, throughput = run.timings
    assert (latency.seconds, latency.tokens, latency.sequences, latency.prompt, latency.samples) == (
        1.6, 4 * 32, 4, 512, 10)  # fmt: skip
    assert (bar.tokens_per_s, throughput.tokens_per_s) == (415.5, 414.11)
    # 10.79 x 2048 / 1381 = 16.0
    assert run.kv_tokens.value == 1381 * 16 and any("16 tokens" in one for one in run.assumed)
    assert run.weights_format.value == "awq" and run.bits is None and run.model.value == "Example-7B"


def test_blocks_alone_give_no_tokens():
    (run,) = runs(vllm, "INFO 01-02 03:04:05 x.py:1] # GPU blocks: 1000, # CPU blocks: 0\n")
    assert run.kv_tokens is None and any("KV block" in one for one in run.unknown)


def test_the_concurrency_line_alone_gives_tokens_as_assumed():
    (run,) = runs(vllm, "INFO [kv.py:637] Maximum concurrency for 32,768 tokens per request: 29.06x\n")
    assert (run.kv_tokens.value, run.window.value) == (int(32_768 * 29.06), 32_768) and run.assumed


def test_sglang():
    run = the_run("sglang.log")
    assert run.engine == "sglang"
    assert said(run) == {
        "model": ("Example-MoE", 1), "weights_format": ("bfloat16", 2), "bits": (16.0, 2), "window": (32_768, 1),
        "batch": (8, 1), "chunk": (4096, 1), "tensor": (1, 1), "replicas": (1, 1), "threads": (60, 1),
        "kv_tokens": (131_072, 3),
    }  # fmt: skip
    assert buffers(run) == [("rank0", "weights", 24.0, 2), ("rank0", "kv", 8.0, 3)]
    (decode,) = run.timings  # the line after the prefill holds idle time
    assert (decode.tokens, decode.steps, decode.sequences, decode.context, decode.samples, decode.line) == (
        20.0, 20.0, 1, 2326, 2, 6)  # fmt: skip
    assert settings(run)["kt_num_gpu_experts"] == 32


def test_sglang_with_speculation_counts_steps_by_what_is_accepted():
    content = log("sglang.log").replace("token usage: 0.00, cuda", "token usage: 0.00, accept len: 2.00, cuda")
    (decode,) = runs(vllm, content)[0].timings
    assert (decode.tokens, decode.steps) == (20.0, 10.0)


def test_idle_windows_alone_are_refused():
    idle = "INFO [x.py:1] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs"
    with pytest.raises(ReadingError, match="no line of it"):
        runs(vllm, idle)


@pytest.mark.parametrize("content", [
    "llama_print_timings: eval time = 1 ms", "| model | size |\n|---|---|\n", "I use vLLM at home, it is fast.",
    "prompt eval rate:     15.60 tokens/s\neval rate:            9.54 tokens/s\n",
])  # fmt: skip
def test_other_logs_are_left_alone(content):
    assert not vllm.is_it(clean(content))
