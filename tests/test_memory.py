"""`offload memory`: its counts against the plain functions, its text, its data, and what it refuses."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.memory import answer_memory, memory_to_json, serving_of
from offload.memory_behind import Behind, Hosting, Way
from offload.models import WEIGHT_FORMATS, Cache, State, catalogue, weigh
from offload.models.architecture import Layer, Quantised
from offload.models.concurrency import admitted_by_risk
from offload.models.lengths import parse_lengths
from offload.models.levers import lighter_format
from offload.models.ranks import layer_bytes
from offload.models.serving import serving_budget
from offload.models.weights import tensor_bytes

LLAMA = catalogue["llama-3.1-70b"]
TEXTBOOK = ["memory", "llama-3.1-70b", "--kv-budget", "14GB"]


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = cli.main(list(words))
    captured = capsys.readouterr()
    return status, " ".join(captured.out.split()), captured.err


def data(capsys, *words: str) -> dict:
    status = cli.main([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert status == (0 if answer["fits"] else 1)
    return answer


# --- the textbook budget ---


@pytest.mark.parametrize(("requests", "share"), [(20, "6.38 %"), (18, "15.7 %")])
def test_the_textbook_budget_as_a_command(capsys, requests, share):
    status, text, _ = run(capsys, *TEXTBOOK, "--requests", f"{requests}x2000")
    assert status == 0
    assert "327,680 B for each position: 42,724 positions" in text
    assert f"{requests} of {requests} fit" in text and f"left, {share} of the KV memory (14 GB)" in text
    assert "weights and activations were not counted" in text and "a bound to test" in text


def test_the_textbook_risk_as_a_command(capsys):
    status, text, _ = run(capsys, *TEXTBOOK, "--requests", "lognormal 2000 0.7")
    assert status == 0
    assert "By risk: 9 at 1 % risk that all together overflow (0.718 %; one more: 1.52 %)" in text
    assert "Each held at its 99th percentile: 4; each at its longest: no number is safe" in text


def test_what_does_not_fit(capsys):
    status, text, _ = run(capsys, *TEXTBOOK, "--requests", "22x2000")
    assert status == 1 and "21 of 22 fit" in text and "missing" in text
    answer = data(capsys, *TEXTBOOK, "--requests", "22x2000")
    assert answer["requests"]["now"] == 21 and answer["left"] == 14 * 10**9 - 44_000 * 327_680 < 0


def test_weights_that_leave_nothing(capsys):
    status, text, _ = run(capsys, "memory", "llama-3.1-70b:bf16", "--gpu-memory", "80GB", "--requests", "1x2000")
    assert status == 1 and "0 of 1 fit" in text
    assert "Nothing is left for KV: 61.4 GB too much is taken" in text


def test_the_true_sum_beside_the_shortcut(capsys):
    _, text, _ = run(capsys, *TEXTBOOK, "--requests", "900, 4x9000, 3000", "--block", "16")
    stored = 57 * 16 + 4 * 563 * 16 + 188 * 16
    assert f"Stored positions {stored:,}; the shortcut, count x longest, says 54,000" in text
    assert "2,670 blocks of 16" in text


# --- the pieces together ---


@pytest.mark.parametrize("name", sorted(catalogue))
def test_a_rank_alone_holds_all_weights(name):
    for format in ("bf16", "q4_k_m"):
        rank = serving_budget(serving_of(catalogue[name], format, 10**13, context=100, chunk=1)).tightest
        counted = [line for line in rank.lines if line.kind == "counted" and "windows" not in line.what]
        assert sum(line.bytes for line in counted) == weigh(catalogue[name], format).total


def test_ranks_hold_copies_of_norms_and_of_heads():
    alone, shared = (layer_bytes(LLAMA, "bf16", tp)[0] for tp in (1, 16))
    kv = 2 * 1024 * 8192 * 2
    norms = 2 * 8192 * 2
    assert (alone.whole, shared.whole) == (norms, norms + kv // 8), "16 ranks keep each of 8 heads twice"
    assert alone.split - shared.split == kv
    expert = layer_bytes(catalogue["mixtral-8x7b"], "bf16")[0]
    assert (expert.experts, expert.expert_bytes) == (8, 3 * 4096 * 14_336 * 2)
    assert expert.on_rank(8, 8) < expert.on_rank(4, 4) < expert.on_rank(1, 1)


def test_all_that_fit_by_risk_on_a_gpu():
    """Activations grow with the batch, so positions are those that are left with as many requests as are admitted."""
    lengths = parse_lengths("lognormal 2000 0.7")
    answer = answer_memory(LLAMA, "bf16", 80 * 10**9, lengths, tp=4, block=16)
    count = answer.by_risk.requests
    assert answer.serving.requests == count
    at = {n: serving_budget(serving_of(LLAMA, "bf16", 80 * 10**9, tp=4, block=16, context=9, requests=n)).tightest
          for n in (count, count + 1)}  # fmt: skip
    assert admitted_by_risk(lengths, at[count].positions, 0.01, 16).requests >= count
    assert admitted_by_risk(lengths, at[count + 1].positions, 0.01, 16).requests <= count
    assert answer.by_risk.value <= 0.01 < answer.beyond.value
    values = [one.value for one in answer.curve]
    assert values == sorted(values) and values[0] < 1e-4 and values[-1] > 0.98, "far from rounding"


def test_a_prefix_held_once_admits_more_by_risk():
    lengths = parse_lengths("uniform 1001 1003")
    alone = answer_memory(LLAMA, None, 20_000 * 327_680, lengths, block=1)
    shared = answer_memory(LLAMA, None, 20_000 * 327_680, lengths, block=1, shared_prefix=1000)
    assert alone.by_risk.requests == 19
    expected = 19_000 / 2 - 2.3263 * math.sqrt(2 / 3 * 9500) / 2  # one to three positions of its own each, of 19,000
    assert shared.by_risk.requests == pytest.approx(expected, abs=2) and shared.by_risk.error == 1e-10
    assert shared.at_largest == 19_000 // 3


def test_lists_are_counted_with_their_windows():
    gemma = catalogue["gemma-3-27b"]
    answer = answer_memory(gemma, None, 10**9, parse_lengths("500, 500, 5000"), chunk=1, block=1)
    grown, window = 10 * 8192, 52 * 8192
    assert answer.used == 6000 * grown + (500 + 500 + 1024) * window
    assert answer.now == 2 and not answer.fits
    assert answer.budget.tightest.fixed == 1024 * window


def test_levers_at_the_same_risk():
    answer = answer_memory(LLAMA, None, 14 * 10**9, parse_lengths("lognormal 2000 0.7"))
    eight = next(one for one in answer.levers if "fp8" in one.what)
    assert eight.positions == 85_449
    assert eight.requests == admitted_by_risk(answer.lengths, 85_449, 0.01).requests
    assert eight.requests_gained == eight.requests - 9


@pytest.mark.parametrize(
    ("stored", "lower"),
    [("Q8_0", "q4_k_m"), ("Q6_K", "q4_k_m"), ("F16", "q8_0"), ("bf16", "fp8"), ("f8_e4m3", "int4-g128"), ("i32", None),
     ("IQ1_S", None)],
)  # fmt: skip
def test_the_lever_of_weights_that_are_a_files_own_tensors(stored, lower):
    """The same tensors, by the table of the lower format: embedding and head too."""
    model, table = catalogue["llama-3.1-8b"], {"F16": "fp16", "f8_e4m3": "fp8", "i32": "q8_0"}.get(stored, stored)
    weighed = weigh(model, table)
    kept = replace(weighed, format=f"{stored} as stored", parts=tuple(tensor_bytes(model, table)))
    lengths = parse_lengths("4x2000")
    answer = answer_memory(replace(model, stored=kept), "stored", 24 * 10**9, lengths)
    found = [one for one in answer.levers if one.what.startswith("weights in")]
    if lower is None:
        assert found == []
        return
    assert [one.what for one in found] == [f"weights in {lower}, by the format's table (now {stored} as stored)"]
    then = answer_memory(model, lower, 24 * 10**9, lengths)
    assert (found[0].positions, found[0].requests) == (then.budget.tightest.positions, then.at_largest)


def test_a_lighter_format_changes_embedding_and_head_too():
    answer = answer_memory(LLAMA, "q8_0", 10**11, parse_lengths("4x2000"))
    found = next(one for one in answer.levers if one.what == "weights in q4_k_m")
    saved = weigh(LLAMA, "q8_0").total - weigh(LLAMA, "q4_k_m").total
    assert found.positions_gained == pytest.approx(saved / 327_680, abs=1)


LOWEST = {"int4-g128", "int4-g128-sym", "int4-g128-act", "nf4-double", "mxfp4", "mxfp4-all", "nvfp4", "mlx-4bit-g64",
          "iq1_s", "tq1_0", "mxfp4_moe"}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_every_format_has_a_lower_one_or_is_the_lowest_of_its_kind(name):
    lower = lighter_format(name)
    assert (lower is None) == (name in LOWEST)
    if lower is not None:
        assert weigh(LLAMA, lower).total < weigh(LLAMA, name).total


def test_lower_formats_by_other_names():
    assert lighter_format("INT8-row-sym") == "int4-g128" == lighter_format("fp8-64x64") == lighter_format("awq-g32")
    assert lighter_format("mlx-8bit-g32") == "mlx-4bit-g32" and lighter_format("mlx-4bit-g32") is None
    assert lighter_format("int3-g64") is None is lighter_format("nonsense")


def test_modules_that_a_checkpoint_leaves_in_16_bits_are_in_the_budget():
    quantised = Quantised("fp8", skip=("model.layers.0.mlp.down_proj",))
    model = replace(catalogue["llama-3.1-8b"], quantised=quantised)
    layers = [layer.on_rank(1, 1) for layer in layer_bytes(model, "fp8")]
    assert tuple(layers) == weigh(model, "fp8").layers and layers[0] - layers[1] == 4096 * 14_336 - 4


# --- what must hold whatever is asked ---

SMALL = catalogue["llama-3.2-1b"]
LENGTHS = st.sampled_from(["lognormal 300 0.8", "uniform 100 900", "fixed 500", "9x400", "900, 30, 7x512"])


def counts(**values) -> list[int]:
    """Every count of requests and positions that an answer has; -1 for those that do not arise."""
    answer = answer_memory(SMALL, **values)
    by_risk = None if answer.by_risk is None else answer.by_risk.requests
    found = [answer.now, answer.at_share, answer.at_largest, by_risk, answer.longest]
    return [-1 if one is None else one for one in found]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(LENGTHS, st.integers(27 * 10**8, 29 * 10**8), st.integers(0, 10**8), st.sampled_from([1, 16]))
def test_more_memory_never_admits_fewer(text, capacity, more, block):
    values = {"weights": "bf16", "lengths": parse_lengths(text), "block": block}
    least, most = counts(capacity=capacity, **values), counts(capacity=capacity + more, **values)
    assert all(a <= b for a, b in zip(least, most, strict=True))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(LENGTHS, st.integers(10**6, 10**9), st.sampled_from([2, 16, 64]))
def test_blocks_of_one_never_admit_fewer(text, capacity, block):
    values = {"weights": None, "lengths": parse_lengths(text), "capacity": capacity}
    assert all(a >= b for a, b in zip(counts(block=1, **values), counts(block=block, **values), strict=True))


@settings(max_examples=10, deadline=None)
@given(LENGTHS, st.integers(10**8, 5 * 10**8), st.sampled_from([(None, 1), (None, 4), (None, 8), ("fp8", 16)]))
def test_more_ranks_never_admit_fewer(text, capacity, ranks):
    weights, tp = ranks
    values = {"weights": weights, "lengths": parse_lengths(text), "capacity": capacity, "chunk": 256}
    assert all(a <= b for a, b in zip(counts(tp=tp, **values), counts(tp=2 * tp, **values), strict=True))


@settings(max_examples=15, deadline=None)
@given(LENGTHS, st.integers(10**6, 10**10), st.sampled_from([None, "q8_0"]), st.sampled_from([None, 0, 7]))
def test_an_answer_is_plain_data(text, capacity, weights, kept):
    behind = Behind(host=10**10, ways=(Way("link", 1e9),), hosting=None if kept is None else Hosting(kept))
    answer = answer_memory(SMALL, weights, capacity, parse_lengths(text), behind=behind, flops=1e13, link=1e9)
    data = memory_to_json(answer)
    assert json.loads(json.dumps(data, allow_nan=False)) == data


# --- words ---


@pytest.mark.parametrize(
    ("requests", "said", "unsaid"),
    [
        ("18x2000", "The number of requests breaks the fit first: 18 now, at most 21; requests are of 2,000", "Each"),
        ("fixed 2000", "Lengths: fixed 2000, so risk does not arise: 21 requests fit.", "Each held"),
        ("22x2000", "as it is; the length of each request is nearest to fitting: 2,000 now, at most 1,942;", "Each"),
        ("900, 4x9000", "Each held at the longest, 9,000: 4.", "percentile"),
        ("uniform 100 4000", "Each held at the 99th percentile, 3,961: 10; each held at the longest, 4,000", "safe"),
        ("1x42724", "The length of each request breaks the fit first: 42,724 now, at most 42,724;", "Each held"),
    ],
)
def test_what_is_informative_is_said(capsys, requests, said, unsaid):
    _, text, _ = run(capsys, *TEXTBOOK, "--requests", requests)
    assert said in text and unsaid not in text


def test_the_base_of_a_share_is_named(capsys):
    _, text, _ = run(capsys, "memory", "llama-3.1-8b:q8_0", "--gpu-memory", "24 GB", "--usable", "90 %", "--requests",
                     "4x8192")  # fmt: skip
    assert "not used by the engine (10 % of the capacity)" in text and "of the KV memory (" in text


def test_a_model_that_keeps_a_state_alone():
    layer = Layer(LLAMA.stack[0].matrices if LLAMA.stack else (), Cache("none"), State(elements=1000))
    model = replace(LLAMA, layers=2, stack=(layer, layer), name="states")
    answer = answer_memory(model, None, 80_000, parse_lengths("lognormal 2000 0.7"))
    assert answer.at_share == 10 and answer.by_risk is None and answer.longest is None
    assert answer.fits and memory_to_json(answer)["positions"] is None


# --- as a command ---


def test_a_gpu_of_a_server(capsys):
    answer = data(capsys, "memory", "llama-3.1-8b:q8_0", "--on", "desktop-4090", "--requests", "4x8192",
                  "--flops", "100 TFLOP/s", "--usable", "90 %", "--reserve", "1 GB")  # fmt: skip
    assert answer["capacity"] == 24 * 2**30
    lines = {line["what"]: line["bytes"] for line in answer["ranks"][0]["lines"]}
    assert lines["reserve"] == 10**9 and lines["not used by the engine"] == 24 * 2**30 - int(24 * 2**30 * 9 / 10)
    assert answer["ranks"][0]["kv_bytes"] == answer["capacity"] - sum(lines.values())
    assert answer["preemption"]["swap"] == pytest.approx(2 * 8192 * 131_072 / 31.5e9, rel=0.02)
    assert answer["preemption"]["recompute"] > 8192 * 2 * 7e9 / 100e12


def test_lengths_of_a_file(capsys, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("id,tokens\na,2000\nb,3000\n", encoding="utf-8")
    answer = data(capsys, *TEXTBOOK, "--requests", str(path), "--column", "tokens")
    assert answer["requests"]["asked"] == 2 and answer["lengths"]["mean"] == 2500


def test_a_file_by_risk_is_a_distribution_too(capsys, tmp_path):
    """Of 10, 20 and 30 thousand, each as likely: 3 of 9 pairs exceed 42,724 positions, and 23 of 27 triples."""
    path = tmp_path / "trace.txt"
    path.write_text("10000\n20000\n30000\n", encoding="utf-8")
    words = [*TEXTBOOK, "--requests", str(path), "--risk", "50 %"]
    status, text, _ = run(capsys, *words)
    assert status == 1 and "2 of 3 fit, admitted in order" in text and ", with all 3 requests at once" in text
    assert "Requests drawn from these 3: mean 20,000, 99 % up to 30,000. By risk: 2 at 50 % risk that all together " \
           "overflow (33.3 %; one more: 85.2 %)" in text  # fmt: skip
    answer = data(capsys, *words)
    assert answer["risk"]["admitted"]["value"] == pytest.approx(1 / 3) and answer["requests"]["by_risk"] == 2
    assert answer["risk"]["one_more"]["value"] == pytest.approx(23 / 27)
    assert [one["requests"] for one in answer["risk"]["curve"]] == [1, 2, 3, 4, 5]
    assert answer["risk"]["mean_used"] == 40_000 * 327_680 and answer["risk"]["kv_bytes"] == 14 * 10**9
    assert answer["risk"]["mean_left_share"] == 1 - 40_000 * 327_680 / (14 * 10**9)
    assert (answer["stored"], answer["shortcut"]) == (60_000, 90_000)
    assert next(one for one in answer["levers"] if "fp8" in one["what"])["requests"] == 4


@pytest.mark.few
@pytest.mark.parametrize(
    ("requests", "words", "drawn"),
    [("900, 4000", [], False), ("900, 4000", ["--risk", "1 %"], True), ("900, 20x4000", [], True),
     ("900, 19x4000", [], False), ("30x400", ["--risk", "1 %"], False)],
)  # fmt: skip
def test_lists_that_are_distributions(capsys, requests, words, drawn):
    answer = data(capsys, "memory", "llama-3.2-1b", "--kv-budget", "1GB", "--requests", requests, *words)
    assert (answer["requests"]["by_risk"] is not None) is drawn is bool(answer["risk"]["curve"])


def test_a_drawn_list_is_admitted_as_the_plain_function_says():
    lengths = parse_lengths(", ".join(str(one) for one in range(100, 4000, 37)))
    answer = answer_memory(LLAMA, None, 14 * 10**9, lengths, block=16, drawn=True)
    found = admitted_by_risk(lengths, 42_724, 0.01, 16)
    assert (answer.by_risk.requests, answer.by_risk.value) == (found.requests, pytest.approx(found.value, abs=1e-9))
    assert answer.asked == len(lengths.values) and answer.now < answer.asked


def test_what_is_admitted_by_risk_on_average(capsys):
    answer = data(capsys, *TEXTBOOK, "--requests", "uniform 1000 3000")
    count = answer["requests"]["by_risk"]
    assert answer["risk"]["mean_used"] == pytest.approx(count * 2000 * 327_680, rel=1e-12)
    assert answer["shortcut"] == count * 2000 and answer["requests"]["each_at_mean"] == 21
    steady = answer["lengths"]["steady_mean"]
    assert answer["requests"]["each_at_steady_mean"] == 42_724 // math.ceil(steady)
    _, text, _ = run(capsys, *TEXTBOOK, "--requests", "lognormal 2000 0.7")
    assert "On average 9 such take 7.54 GB when all are at their full length: 46.2 % of the KV memory (14 GB) left. " \
           "The shortcut, count x mean, says 22,997 positions for 9 and would admit 16." in text  # fmt: skip
    assert "2,085 positions stored on average" in text and "Of that length 20 fit now." in text


def test_the_mean_of_windows_by_risk():
    lengths, model = parse_lengths("500, 500, 5000"), catalogue["gemma-3-27b"]
    answer = answer_memory(model, None, 10**9, lengths, chunk=1, block=1, drawn=True, risk=0.5)
    mean = 2000 * 10 * 8192 + (500 + 500 + 1024) / 3 * 52 * 8192
    assert answer.by_risk.requests > 0 and answer.mean_used == pytest.approx(answer.by_risk.requests * mean)


def test_prompts_and_outputs(capsys, tmp_path):
    """(1500 x (500 + 750) + 2000 x (1000 + 1000)) / 3500: each as long in the memory as its output."""
    path = tmp_path / "log.csv"
    path.write_text("id,prompt,output,whole\na,500,1500,2000\nb,1000,2000,3000\n", encoding="utf-8")
    words = [*TEXTBOOK, "--requests", str(path), "--prompt-column", "prompt"]
    found = [data(capsys, *words, *more) for more in (["--column", "whole"], ["--output-column", "output"])]
    assert found[0] == found[1] and found[0]["lengths"]["mean"] == 2500
    assert found[0]["lengths"]["steady_mean"] == pytest.approx(5_875_000 / 3500)
    assert found[0]["lengths"]["prompt_mean"] == 750
    alike = data(capsys, *TEXTBOOK, "--requests", "4x2000", "--prompt", "500")["lengths"]
    assert alike["steady_mean"] == 500 + 750 and alike["prompt_mean"] == 500
    spread = answer_memory(LLAMA, None, 14 * 10**9, parse_lengths("uniform 600 2600"), prompt=500)
    outputs = range(100, 2101)
    assert spread.steady == pytest.approx(500 + sum(one**2 for one in outputs) / (2 * sum(outputs)))
    for more, said in (
        ([], "needs one column more"), (["--column", "whole", "--output-column", "output"], "needs one column more"),
        (["--column", "whole", "--prompt", "5"], "both say the prompts"),
        (["--column", "prompt"], "a prompt of 500 positions leaves no output to a request of 500"),
    ):  # fmt: skip
        assert said in run(capsys, *words, *more)[2]
    for more, said in (
        (["--prompt", "200", "--prefix", "300"], "shorter than the shared prefix of 300"),
        (["--prompt", "2000"], "leaves no output"), (["--output-column", "x"], "name the column of the prompts too"),
        (["--prompt-column", "x", "--column", "y"], "--requests 4x2000 is none"),
    ):  # fmt: skip
        assert said in run(capsys, *TEXTBOOK, "--requests", "4x2000", *more)[2]


def test_kv_of_a_position_on_all_ranks(capsys):
    """16 ranks keep each of 8 heads twice."""
    words = [*TEXTBOOK, "--requests", "4x2000", "--tp", "16"]
    answer = data(capsys, *words)
    assert (answer["kv_bytes_per_token"], answer["kv_bytes_per_token_all_ranks"]) == (40_960, 655_360)
    assert "40,960 B for each position on this rank, 655,360 B on all 16: 341,796 positions" in run(capsys, *words)[1]
    answer = data(capsys, *TEXTBOOK, "--requests", "4x2000", "--tp", "2", "--pp", "3")
    assert answer["kv_bytes_per_token_all_ranks"] == 327_680


def test_what_is_not_counted_is_said(capsys):
    words = ["memory", "llama-3.1-8b:q8_0", "--gpu-memory", "24 GB", "--requests", "4x2000"]
    said = "not counted: communication buffers, captured graphs, the allocator's reservation"
    assert said in run(capsys, *words)[1] and said not in run(capsys, *words, "--graphs", "1 GB")[1]
    assert said not in run(capsys, *TEXTBOOK, "--requests", "4x2000")[1]


def test_what_is_nearest_to_fitting(capsys):
    words = ["memory", "llama-3.1-8b:q8_0", "--gpu-memory", "10 GB"]
    first = data(capsys, *words, "--requests", "4x4000")["reaches"][0]
    assert first["what"] == "context" and 0 < first["most"] < 4000
    _, text, _ = run(capsys, "memory", "llama-3.1-70b:bf16", "--gpu-memory", "80GB", "--requests", "1x2000")
    assert "neither fewer or shorter requests nor a smaller chunk alone would" in text and "- then" not in text


def test_a_context_beyond_the_model(capsys):
    _, text, _ = run(capsys, *TEXTBOOK, "--requests", "1x200000")
    assert "exceed the 131,072 that llama-3.1-70b states" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "how much memory is there"),
        (["--kv-budget", "14GB", "--gpu-memory", "80GB"], "how much memory is there"),
        (["--kv-budget", "14"], "--kv-budget: "),
        (["--kv-budget", "14GB", "--reserve", "1GB"], "--kv-budget is for KV alone, so --reserve"),
        (["--gpu-memory", "80GB", "--usable", "0"], "--usable: "),
        (["--kv-budget", "14GB", "--risk", "0"], "--risk: "),
        (["--kv-budget", "14GB", "--kv-format", "fp9"], 'Did you mean "fp8"'),
        (["--kv-budget", "14GB", "--prefix", "2000"], "leaves nothing to requests of 2,000"),
        (["--kv-budget", "14GB", "--pp", "81"], r"stages \(pp\) is 81"),
        (["--on", "nowhere"], "nowhere"),
        (["--kv-budget", "14GB", "--column", "x"], "--requests 2x2000 is none. Drop --column"),
    ],
)
def test_what_is_refused(capsys, words, said):
    status, out, error = run(capsys, "memory", "llama-3.1-70b", "--requests", "2x2000", *words)
    assert status == 2 and out == "" and re.search(said, error)


@pytest.mark.parametrize(
    ("requests", "said"),
    [("18", "Write 18x2000 for 18 of 2000"), ("normal 5 6", "--requests: .*is no request length"),
     ("nothing.csv", "nothing.csv: No such file"), ("", "is no request length")],
)  # fmt: skip
def test_requests_that_are_none(capsys, requests, said):
    status, _, error = run(capsys, *TEXTBOOK, "--requests", requests)
    assert status == 2 and re.search(said, error)


@pytest.mark.slow
def test_the_page_shows_the_commands_and_the_keys(capsys, tmp_path):
    page = (Path(__file__).resolve().parent.parent / "docs" / "memory.md").read_text(encoding="utf-8")
    assert "offload memory llama-3.1-70b --kv-budget 14GB --requests 18x2000" in page
    told = page.partition("## As data")[2]
    files = ["--plot", str(tmp_path / "fit.svg")]
    for words in (
        [*TEXTBOOK, "--requests", "18x2000", *files], [*TEXTBOOK, "--requests", "lognormal 2000 0.7", *files],
        ["memory", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "30", "--requests", "4x2000"],
    ):  # fmt: skip
        names: set[str] = set()

        def collect(value: object, names: set[str] = names) -> None:
            if isinstance(value, dict):
                names.update(value)
            for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                collect(part)

        collect(data(capsys, *words))
        assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)] == []


@pytest.mark.parametrize(("server", "ranks", "told"), [
    ("dgx-h100", [], True), ("dgx-h100", ["--tp", "2"], False), ("dgx-h100", ["--pp", "2"], False),
    ("gh200", [], False),
])  # fmt: skip
def test_one_of_several_gpus_is_told(server, ranks, told, capsys):
    cli.main(["memory", "llama-3.1-8b:fp8", "--on", server, "--requests", "fixed 8192", *ranks])
    note = "of several GPUs the first is used, beside the host, as on servers with one; --tp 8 takes more\n"
    assert capsys.readouterr().err == (f"offload: note: {note}" if told else "")
