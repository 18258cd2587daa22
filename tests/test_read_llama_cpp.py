"""Logs of llama.cpp, ik_llama.cpp, ollama and LM Studio: what they say of model, buffers, room and times."""

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offload.errors import OffloadError, ReadingError
from offload.readers.engines import llama_bench, llama_cpp
from offload.readers.engines.recognise import readers
from offload.readers.engines.run import Run, Said
from offload.readers.tools.text import clean
from tests.pace import within

LOGS = Path(__file__).parent / "data" / "logs"
MIB, GIB = 2**20, 2**30
NAMES = (
    "llama_server_2026.log",
    "llama_cli_2023.log",
    "llama_ik.log",
    "llama_draft.log",
    "llama_iswa_journal.log",
    "llama_cli_breakdown.log",
    "ollama_engine.log",
    "ollama_verbose.log",
)


def content(name: str) -> str:
    return (LOGS / name).read_text(encoding="utf-8")


def read(text: str) -> tuple[Run, ...]:
    return llama_cpp.read(clean(text))


def recognised(text: str) -> tuple[Run, ...]:
    """The runs by those of the two readers that say that it is theirs."""
    found = [one for one in readers(("llama_cpp", "llama_bench")) if one.is_it(clean(text))]
    return tuple(run for one in found for run in one.read(clean(text)))


def values(run: Run, *names: str) -> dict[str, object]:
    return {name: None if getattr(run, name) is None else getattr(run, name).value for name in names}


def times(run: Run, phase: str) -> list[tuple[float, ...]]:
    return [
        (one.seconds, one.tokens, one.steps, one.sequences, one.context) for one in run.timings if one.phase == phase
    ]


def test_a_server_of_2026():
    (run,) = read(content("llama_server_2026.log"))
    assert run.engine == "llama.cpp"
    assert values(
        run, "model", "architecture", "weights_format", "kv_format", "parameters", "bits", "layers", "layers_on_gpus"
    ) == {
        "model": "Qwen3 30B A3B Instruct",
        "architecture": "qwen3moe",
        "weights_format": "Q4_K - Medium",
        "kv_format": "q8_0",
        "parameters": 30.53e9,
        "bits": 4.86,
        "layers": 48,
        "layers_on_gpus": 49,
    }
    assert values(run, "experts", "experts_used", "window", "kv_tokens", "batch", "chunk", "threads") == {
        "experts": 128,
        "experts_used": 8,
        "window": 8192,
        "kv_tokens": 2 * 8192,
        "batch": 2,
        "chunk": 512,
        "threads": 16,
    }
    assert run.size == Said(round(17.28 * GIB), 12)
    assert run.on("weights") == {"CPU_Mapped": round(9120.44 * MIB), "CUDA0": round(8790.12 * MIB)}
    assert run.on("kv") == {"CUDA0": 816 * MIB}
    assert run.on("compute") == {"CUDA0": round(544.18 * MIB), "CUDA_Host": round(20.01 * MIB)}
    assert run.on("output") == {"CUDA_Host": round(1.16 * MIB)}
    (gpu,) = run.processors
    assert (gpu.name, gpu.model) == ("CUDA0", "NVIDIA GeForce RTX 3090")
    assert (gpu.memory, gpu.free) == (24124 * MIB, 23714 * MIB)
    assert dict((key, value) for key, value, _ in run.settings) == {
        "n_batch": 2048,
        "flash_attn": True,
        "kv_unified": False,
        "mmap": True,
        "override-tensor": "blk.24-25 ffn_down_exps|ffn_up_exps=CPU",
    }


def test_a_servers_answer_of_n_tokens_is_n_less_one_steps_and_slots_that_ran_together_say_so():
    (run,) = read(content("llama_server_2026.log"))
    assert times(run, "prefill") == [(3.55, 1420, None, 1, 0), (0.5, 100, None, None, 1600), (0.1, 20, None, None, 0)]
    assert times(run, "decode") == [(4.0, 200, 200, 1, 1420), (1.5, 50, 50, None, 1700)]
    requests = [(one.seconds, one.tokens, one.prompt) for one in run.timings if one.phase == "request"]
    assert requests == [(7.55, 201, 1420), (2.0, 51, 1700), (0.1, 1, 20)]
    assert [one.line for one in run.timings if one.phase == "decode"] == [59, 70]
    assert any("N - 1 steps" in one for one in run.assumed)
    assert any("sequences" in one for one in run.unknown)


def test_sums_of_2023_and_memory_told_in_sums():
    (run,) = read(content("llama_cli_2023.log"))
    assert values(run, "model", "weights_format", "window", "layers_on_gpus", "threads", "parameters") == {
        "model": "LLaMA v2",
        "weights_format": "Q4_K - Medium",
        "window": 2048,
        "layers_on_gpus": 20,
        "threads": 6,
        "parameters": 6.74e9,
    }
    assert run.on("weights") == {"CPU": round(1512.5 * MIB), "CUDA0": round(2380.25 * MIB)}
    assert run.on("kv") == {}
    assert ("KV memory [bytes]", 1024 * MIB, 25) in run.facts
    assert times(run, "load") == [(1.8, None, None, None, None)]
    assert times(run, "prefill") == [(0.6, 12, None, 1, 0)]
    assert times(run, "decode") == [(6.3, 63, 63, 1, 12)]
    assert ("total time [s]", 6.95, 36) in run.facts


def test_two_layers_of_2023s_count_are_the_halves_of_the_kv_memory():
    text = content("llama_cli_2023.log").replace("offloading 20 repeating", "offloading 32 repeating")
    text = text.replace(
        "llm_load_tensors: offloaded 20/35",
        "llm_load_tensors: offloading non-repeating layers to GPU\nllm_load_tensors: offloaded 35/35",
    )
    assert read(text)[0].layers_on_gpus.value == 33


def test_ik_llama_with_experts_in_host_memory():
    (run,) = read(content("llama_ik.log"))
    assert values(run, "architecture", "experts", "experts_used", "kv_format", "chunk", "threads", "window") == {
        "architecture": "deepseek2",
        "experts": 256,
        "experts_used": 8,
        "kv_format": "q8_0",
        "chunk": 1024,
        "threads": 24,
        "window": 32768,
    }
    assert run.on("weights") == {
        "CPU": round(199000.5 * MIB) + round(178000.25 * MIB),
        "CUDA_Host": round(938.98 * MIB),
        "CUDA0": 17512 * MIB,
    }
    told = [(key, value) for key, value, _ in run.settings]
    assert ("override-tensor", "blk.3-4,6 ffn_gate_exps=CPU") in told
    assert ("override-tensor", "blk.3-4 ffn_down_exps|ffn_up_exps=CPU") in told
    assert ("mla_attn", 3) in told and ("n_gpu_layers", 99) in told and ("fused_moe", True) in told
    assert times(run, "prefill") == [(8.0, 800, None, 1, 0)]
    assert times(run, "decode") == [(10.0, 125, 125, 1, 800)]


def test_a_draft_model_is_a_run_of_its_own_and_accepted_drafts_are_no_steps():
    run, draft = read(content("llama_draft.log"))
    assert (run.model.value, draft.model.value) == ("Gemma 3 27B", "Gemma 3 1B")
    assert times(run, "decode") == [(5.0, 300, 150, 1, 230)]
    assert times(run, "prefill") == [(0.4, 200, None, 1, 30)]
    assert ("draft tokens accepted", 150, 33) in run.facts
    assert draft.timings == () and ("draft", True) in [(key, value) for key, value, _ in draft.settings]
    assert (run.processors[0].free, draft.processors[0].free) == (24500 * MIB, 8000 * MIB)


def test_a_draft_model_that_no_line_announces_is_told_by_its_drafts():
    text = re.sub(r".*loading draft model.*\n", "", content("llama_draft.log"))
    assert [one.model.value for one in read(text) if one.timings] == ["Gemma 3 27B"]


def test_two_kv_memories_are_summed_and_a_compute_buffer_made_again_replaces():
    (run,) = read(content("llama_iswa_journal.log"))
    assert run.on("kv") == {"Vulkan0": 576 * MIB + round(22.5 * MIB)}
    assert run.on("compute") == {"Vulkan0": round(2200.75 * MIB)}
    assert run.kv_tokens.value == 16384 and run.window.value == 16384 and run.batch.value == 1
    assert run.model.value == "gpt-oss 120B"
    layers = {one.device: one.layers for one in run.buffers if one.holds == "weights"}
    assert layers == {"Vulkan0": 2, "Vulkan_Host": None}
    assert run.processors[0].model == "AMD Radeon Graphics (RADV GFX1151) (radv)"


def test_the_table_of_memory_and_rates_with_decimal_commas():
    (run,) = read(content("llama_cli_breakdown.log"))
    assert run.on("weights") == {"MTL0": 2368 * MIB, "Host": 525 * MIB}
    assert run.on("kv") == {"MTL0": 2734 * MIB}
    assert times(run, "prefill") == [(1 / 160, 1, None, 1, None)]
    assert times(run, "decode") == [(1 / 32, 1, 1, 1, None)]
    (gpu,) = run.processors
    assert (gpu.model, gpu.memory, gpu.free) == ("Apple M5", 18186 * MIB, 11633 * MIB)


def test_ollamas_runners_old_and_new():
    old, new = read(content("ollama_engine.log"))
    assert (old.engine, new.engine) == ("ollama", "ollama")
    assert values(old, "architecture", "layers", "layers_on_gpus", "batch", "threads", "kv_tokens") == {
        "architecture": "qwen3",
        "layers": 36,
        "layers_on_gpus": 30,
        "batch": 2,
        "threads": 8,
        "kv_tokens": 8192,
    }
    assert old.on("kv") == {"CPU": 192 * MIB, "CUDA0": 960 * MIB}
    assert new.on("weights") == {"CUDA0": 9 * GIB, "CPU": 2 * GIB}
    assert new.on("kv") == {"CUDA0": 640 * MIB}
    assert values(new, "architecture", "weights_format", "layers_on_gpus", "window", "chunk") == {
        "architecture": "mistral3",
        "weights_format": "Q8_0",
        "layers_on_gpus": 40,
        "window": 4096,
        "chunk": 512,
    }
    assert new.processors[0].memory == round(11.6 * GIB)


def test_ollama_run_verbose():
    (run,) = read(content("ollama_verbose.log"))
    assert run.engine == "ollama"
    assert times(run, "decode") == [(6.0, 240, 240, 1, 100)]
    assert times(run, "prefill") == [(0.25, 100, None, 1, 0)]
    assert times(run, "load")[0][0] == 0.0125


def test_several_runs_pasted_and_dirt_change_nothing():
    plain = content("llama_cli_2023.log")
    one, two = read(plain + content("llama_draft.log"))[:2]
    assert (one.model.value, two.model.value) == ("LLaMA v2", "Gemma 3 27B")
    dirty = "```\r\n" + "".join(f"\x1b[32m{line}\x1b[0m\r\n" for line in plain.splitlines()) + "```\r\n"
    (again,) = read(dirty)
    assert [one.seconds for one in again.timings] == [one.seconds for one in read(plain)[0].timings]
    assert again.buffers[0].line == read(plain)[0].buffers[0].line + 1
    assert read(plain.replace(".", ","))[0].on("weights") == read(plain)[0].on("weights")


def test_the_same_run_twice_is_two_runs():
    text = content("llama_cli_2023.log")
    assert len(read(text + text)) == 2


def test_children_of_a_router_are_told_apart():
    texts = [content("llama_server_2026.log").splitlines(), content("llama_cli_2023.log").splitlines()]
    mixed = []
    for place in range(max(map(len, texts))):
        for child, lines in zip((50453, 34255), texts, strict=True):
            if place < len(lines):
                mixed.append(f"llama-1  | [{child}] {lines[place]}")
    runs = {run.model.value: run for run in read("\n".join(mixed))}
    assert len(times(runs["Qwen3 30B A3B Instruct"], "decode")) == 2
    assert times(runs["LLaMA v2"], "decode") == [(6.3, 63, 63, 1, 12)]


def test_a_new_context_after_timings_is_a_new_run_of_the_same_weights():
    text = content("llama_iswa_journal.log")
    sums = "llama_perf_context_print:        eval time =    2000.00 ms /   100 runs   (   20.00 ms per token)\n"
    context = "".join(line + "\n" for line in text.splitlines() if "llama_context" in line or "llama_kv" in line)
    one, two = read(text + sums + context.replace("= 16384", "= 32768") + sums)
    assert (one.window.value, two.window.value) == (16384, 32768)
    assert one.on("weights") == two.on("weights")
    assert times(one, "decode")[0][0] == times(two, "decode")[0][0] == 2.0


def test_zeros_and_infinite_rates_are_no_timings():
    text = (
        "llama_perf_context_print: prompt eval time =       0.00 ms /     1 tokens (0.00 ms per token, inf t/s)\n"
        "llama_perf_context_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token, nan)\n"
    )
    (run,) = llama_cpp.read(clean(text + "llama_context: n_ctx = 512\n"))
    assert run.timings == ()


def test_a_mapped_buffer_that_spans_more_than_its_tensors_is_said():
    text = content("llama_draft.log").replace("1100.00 MiB", "17400.00 MiB")
    assert any("memory-mapped" in one for one in read(text)[0].assumed)
    told = read(text.replace("CPU_Mapped", "CPU"))[0]
    assert told.odd and not any("memory-mapped" in one for one in told.assumed)


def test_nothing_personal_is_kept():
    for name in NAMES:
        for run in read(content(name)):
            said = repr(run)
            for secret in ("someone", "secret", "/models", "/home", "/root", "10.1.2.3", "box", "GPU-0000", "0000:01"):
                assert secret not in said, (name, secret)


def test_remote_devices_lose_their_address():
    text = content("llama_draft.log").replace("ROCm0 model", "RPC0[10.0.0.7:50052] model")
    assert "RPC0" in read(text)[0].on("weights") and "10.0.0.7" not in repr(read(text))


def test_recognised_by_its_content():
    for name in NAMES:
        assert llama_cpp.is_it(clean(content(name))), name
        assert not llama_bench.is_it(clean(content(name))), name
    ktransformers = "prompt eval count:    14 token(s)\nprompt eval duration: 1.97s\neval count: 30 token(s)\n"
    assert not llama_cpp.is_it(clean(ktransformers + "eval duration: 2.4s\n"))


def test_a_log_cut_before_anything_is_said_is_refused():
    with pytest.raises(ReadingError, match="cut"):
        llama_cpp.read(clean("llama_model_loader: nothing\n"))


def check(runs: tuple[Run, ...]) -> None:
    """No NaN, no infinite and no negative number anywhere in the runs."""

    def walk(value: object) -> None:
        if isinstance(value, bool | str) or value is None:
            return
        if isinstance(value, int | float):
            assert math.isfinite(value) and value >= 0, value
        elif isinstance(value, tuple):
            for one in value:
                walk(one)
        else:
            for one in fields(value):  # type: ignore[arg-type]
                walk(getattr(value, one.name))

    for run in runs:
        walk(run)
        assert all(timing.seconds > 0 for timing in run.timings)
        assert all(buffer.size > 0 for buffer in run.buffers)


@st.composite
def damaged(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    text = content(draw(st.sampled_from(names)))
    kind = draw(st.sampled_from(("cut", "shuffled", "flipped")))
    if kind == "cut":
        a, b = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        return text[a:b]
    if kind == "shuffled":
        return "\n".join(draw(st.permutations(text.splitlines())))
    raw = bytearray(text.encode())
    for _ in range(draw(st.integers(1, 30))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return raw.decode(errors="replace")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(NAMES))
def test_a_damaged_log_is_read_or_refused(text):
    with within(1):
        for reads in (recognised, lambda text: llama_cpp.read(clean(text))):
            try:
                check(reads(text))
            except OffloadError:
                pass
