"""Tables of llama-bench in all its forms, of llama-batched-bench and of llama-sweep-bench."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from offload.errors import OffloadError, ReadingError
from offload.readers.engines import llama_bench, llama_cpp
from offload.readers.engines.run import Run, Timing
from offload.readers.tools.text import clean
from tests.pace import within
from tests.test_read_llama_cpp import MIB, check, damaged, recognised

LOGS = Path(__file__).parent / "data" / "logs"
NAMES = (
    "llama_bench.md",
    "llama_bench.jsonl",
    "llama_bench.csv",
    "llama_bench.sql",
    "llama_batched.log",
    "llama_sweep.md",
)


def content(name: str) -> str:
    return (LOGS / name).read_text(encoding="utf-8")


def read(text: str) -> tuple[Run, ...]:
    return llama_bench.read(clean(text))


def facts(timing: Timing) -> tuple[object, ...]:
    return (timing.phase, timing.seconds, timing.tokens, timing.steps, timing.sequences, timing.context, timing.test)


def test_markdown():
    runs = read(content("llama_bench.md"))
    assert [facts(run.timings[0]) for run in runs] == [
        ("prefill", 0.128, 512, None, 1, 0, "pp512"),
        ("decode", 2.0, 128, 128, 1, 0, "tg128"),
        ("decode", 2.5, 128, 128, 1, 4096, "tg128 @ d4096"),
        ("request", 2.0, 128, None, 1, 0, "pp512+tg128"),
    ]
    assert [run.line for run in runs] == [8, 9, 10, 11]
    assert runs[1].timings[0].spread == pytest.approx(2.0 * 0.32 / 64)
    assert runs[3].timings[0].prompt == 512
    run = runs[0]
    assert (run.model.value, run.architecture.value, run.weights_format.value) == ("llama 8B", "llama", "Q4_K - Medium")
    assert run.size.value == round(4.58 * 2**30) and run.parameters.value == 8.03e9
    assert run.kv_format.value == "K q8_0, V f16" and run.chunk.value == 1024
    assert [one.model for one in run.processors] == ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060"]
    assert {key: value for key, value, _ in run.settings} == {
        "n_gpu_layers": 99,
        "flash_attn": True,
        "tensor_split": "3.00/1.00",
        "override-tensor": "\\.ffn_.*_exps\\.=CPU",
        "mmap": False,
        "backends": "CUDA",
    }
    assert any("rounded" in one for one in run.assumed) and any("mean" in one for one in run.assumed)


def test_an_expression_with_a_bar_in_it_is_one_cell():
    text = content("llama_bench.md").replace("\\.ffn_.*_exps\\.=CPU", "blk.(1|2).ffn=CPU")
    told = {key: value for key, value, _ in read(text)[0].settings}
    assert told["override-tensor"] == "blk.(1|2).ffn=CPU" and told["mmap"] is False


def test_json_lines_have_the_mean_time_itself():
    first, second = read(content("llama_bench.jsonl"))
    assert facts(first.timings[0]) == ("prefill", 2.0, 5000, 10, 1, 1000, "pp5000 @ d1000")
    assert (first.timings[0].samples, first.timings[0].spread) == (2, 0.01)
    assert facts(second.timings[0]) == ("decode", 1.6, 64, 64, 1, 0, "tg64")
    assert first.size.value == 32_470_000_000 and first.parameters.value == 30_530_000_000
    assert [one.name for one in first.processors] == ["CUDA0", "CUDA1", "CPU"]
    told = {key: value for key, value, _ in first.settings}
    assert (told["cpu_moe"], told["no_kv_offload"], told["n_gpu_layers"]) == (12, True, 99)
    assert (first.kv_format.value, second.kv_format.value) == ("f16", "K q8_0, V q4_0")
    assert "someone" not in repr((first, second))


def test_json_is_the_same_as_json_lines():
    rows = [json.loads(line) for line in content("llama_bench.jsonl").splitlines()]
    runs = read(json.dumps(rows, indent=1))
    assert [run.timings[0].seconds for run in runs] == [2.0, 1.6]
    assert runs[0].line < runs[1].line


def test_csv_and_sql():
    first, second = read(content("llama_bench.csv"))
    assert facts(first.timings[0]) == ("prefill", 5.12, 512, 1, 1, 0, "pp512")
    assert facts(second.timings[0]) == ("decode", 12.8, 128, 128, 1, 0, "tg128")
    assert first.processors[0].model == "Some CPU, 16 cores" and first.threads.value == 8
    assert first.size.value == 3825065984
    (row,) = read(content("llama_bench.sql"))
    assert facts(row.timings[0]) == ("decode", 3.2, 128, 128, 1, 0, "tg128")
    assert row.weights_format.value == "Q4_0"


def test_batched_rows_take_the_model_from_the_log_and_the_log_gives_no_run_of_its_own():
    runs = recognised(content("llama_batched.log"))
    assert [[facts(one) for one in run.timings] for run in runs] == [
        [("prefill", 0.128, 512, None, 1, 0, "pp512 x 1"), ("decode", 2.0, 128, 128, 1, 512, "tg128 x 1")],
        [("prefill", 0.512, 2048, None, 4, 0, "pp512 x 4"), ("decode", 2.56, 512, 128, 4, 512, "tg128 x 4")],
        [("prefill", 0.128, 512, None, 1, 0, "pp512 x 4"), ("decode", 2.56, 512, 128, 4, 512, "tg128 x 4")],
    ]
    assert runs[1].engine == "llama-batched-bench"
    assert runs[1].on("weights") == {"CUDA0": 7200 * MIB} and runs[1].layers.value == 32


def test_a_batched_row_that_contradicts_itself_is_left_out():
    text = content("llama_batched.log").replace("|   2560 |", "|   2561 |")
    assert [run.line for run in read(text)] == [14, 16]


def test_batched_json_lines():
    row = {"n_kv_max": 4096, "pp": 512, "tg": 128, "pl": 4, "n_kv": 2560, "t_pp": 0.512, "t_tg": 2.56, "t": 3.072}
    (run,) = read(json.dumps(row))
    assert [facts(one)[:5] for one in run.timings] == [("prefill", 0.512, 2048, None, 4), ("decode", 2.56, 512, 128, 4)]


def test_sweep_rows_are_measured_behind_their_positions():
    first, second = read(content("llama_sweep.md"))
    assert [facts(one) for one in second.timings] == [
        ("prefill", 6.8, 512, None, 1, 512, "pp512 @ d512"),
        ("decode", 13.6, 128, 128, 1, 512, "tg128 @ d512"),
    ]
    assert first.engine == "llama-sweep-bench"


def test_recognised_by_its_content():
    for name in NAMES:
        assert llama_bench.is_it(clean(content(name))), name
        assert llama_cpp.is_it(clean(content(name))) == (name == "llama_batched.log"), name
    assert not llama_bench.is_it(clean("| model | speed |\n| --- | --- |\n| llama | 3 |\n"))


def test_a_table_without_times_is_refused():
    head = "".join(line + "\n" for line in content("llama_bench.md").splitlines()[5:7])
    with pytest.raises(ReadingError, match="no row with a time"):
        read(head)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(NAMES))
def test_a_damaged_table_is_read_or_refused(text):
    with within(1):
        for reads in (recognised, read):
            try:
                check(reads(text))
            except OffloadError:
                pass
