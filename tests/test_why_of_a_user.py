"""What someone who asks why a run took so long is told: figures worked out by hand, and which part to look at."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from offload.readers.engines.recognise import read_log, read_runs
from offload.report_why import verdict_text, write_why
from offload.units import format_seconds
from offload.why import why

LOG = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
llm_load_print_meta: format           = GGUF V3 (latest)
llm_load_print_meta: arch             = llama
llm_load_print_meta: n_ctx_train      = 131072
llm_load_print_meta: n_embd           = 8192
llm_load_print_meta: n_layer          = 80
llm_load_print_meta: n_head           = 64
llm_load_print_meta: n_head_kv        = 8
llm_load_print_meta: model type       = 70B
llm_load_print_meta: model ftype      = Q4_K - Medium
llm_load_print_meta: model params     = 70.55 B
llm_load_print_meta: model size       = 39.59 GiB (4.82 BPW)
llm_load_print_meta: general.name     = Meta Llama 3.1 70B Instruct
llm_load_tensors: offloading 40 repeating layers to GPU
llm_load_tensors: offloaded 40/81 layers to GPU
llm_load_tensors:   CPU_Mapped model buffer size = 20786.00 MiB
llm_load_tensors:        CUDA0 model buffer size = 19757.00 MiB
llama_new_context_with_model: n_ctx         = 4096
llama_kv_cache_init:        CPU KV buffer size =   640.00 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =   640.00 MiB
llama_new_context_with_model: KV self size  = 1280.00 MiB, K (f16):  640.00 MiB, V (f16):  640.00 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =  1104.45 MiB
llama_perf_sampler_print:    sampling time = 12.11 ms / 140 runs  ( 0.09 ms per token, 11560.69 tokens per second)
llama_perf_context_print:        load time = 9021.22 ms
llama_perf_context_print: prompt eval time = 1810.33 ms / 12 tokens ( 150.86 ms per token,     6.63 tokens per second)
llama_perf_context_print:        eval time = 51816.00 ms / 127 runs  ( 408.00 ms per token,     2.45 tokens per second)
llama_perf_context_print:       total time = 53700.00 ms / 139 tokens
"""
SPARED = 100e6  # bytes that caches of a desktop may spare, at most


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    path: Path = tmp_path_factory.mktemp("why") / "run.log"
    path.write_text(LOG, encoding="utf-8")
    (run,) = read_log(path)
    return why(run, server="desktop-4090")


def test_the_load_floor_is_what_the_cpu_reads_over_its_memory(told):
    """The file's 39.59 GiB less the embedding (128256 x 8192 x 4.5 bits), half of its layers, and the head (Q6_K)."""
    head, embedding = 128256 * 8192 * 210 / 256, 128256 * 8192 * 144 / 256
    read = (39.59 * 2**30 - head - embedding) / 2 + head
    assert read == pytest.approx(21.39e9, rel=1e-3)
    floor = told.waterfall.terms[0]
    assert floor.name == "load floor" and (read - SPARED) / 96e9 * 0.999 <= floor.seconds <= read / 96e9 * 1.001


def test_the_rate_that_the_run_proves(told):
    (dram,) = [one for one in told.proven if one.resource == "dram0"]
    assert dram.rate == pytest.approx(21.3e9 / 0.408, rel=2e-3)


def test_slower_than_expected_says_how_much_nothing_explains_though_another_term_is_larger(told):
    fall = told.waterfall
    assert fall.largest.name == "sustained" and fall.verdict == "slower than expected"
    text = verdict_text(told)
    assert "the most is sustained, 89.7 ms" in text
    assert f"unexplained, {1e3 * (fall.measured - fall.expected):.1f} ms (18.6 %)" in text


def test_the_terms_are_a_table_in_80_columns_in_milliseconds_or_seconds(told):
    for measured, unit in ((told.waterfall.measured, "ms"), (2.5, "s")):
        fall = replace(told.waterfall, measured=measured)
        console = Console(width=80, file=StringIO(), force_terminal=False)
        write_why(replace(told, waterfall=fall), console)
        lines = console.file.getvalue().splitlines()
        heading = next(line for line in lines if line.startswith("term "))
        assert heading.split() == ["term", unit, "share", "so", "far", "grade", "what", "it", "is"]
        assert max(map(len, lines)) <= 80
    assert any(line.split()[:6] == ["load", "floor", "0.222", "54.4", "%", "0.222"] for line in lines)


def test_faster_than_the_middle_and_as_expected_is_no_contradiction():
    """accelerate copies pageable memory, whose usual rates are wide apart."""
    log = """Some parameters are on the meta device because they were offloaded to the cpu.
OrderedDict([('model.embed_tokens', 0), ('model.layers.0', 0), ('model.layers.1', 'cpu'), ('lm_head', 'cpu')])
Average time of generation per token: 1.34s
"""
    (run,) = read_runs(log)
    found = why(run, server="desktop-4090", model="llama-2-7b:f16")
    fall = found.waterfall
    assert fall.verdict == "as expected" and fall.terms[-1].seconds < 0
    assert fall.terms[-1].why == "it ran faster than the middle of the expected times, and not than all of them"
    assert f"as expected, which is {format_seconds(fall.low)} to {format_seconds(fall.high)}: " in verdict_text(found)
