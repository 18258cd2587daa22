"""`offload memory`: its counts against the plain functions, its text, its data, and what it refuses."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from offload import cli
from offload.memory import answer_memory, memory_to_json, serving_of
from offload.models import catalogue, weigh
from offload.models.concurrency import admitted_by_risk
from offload.models.lengths import parse_lengths
from offload.models.ranks import layer_bytes
from offload.models.serving import serving_budget

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


def test_a_model_that_keeps_a_state_alone():
    from dataclasses import replace

    from offload.models import Cache, State
    from offload.models.architecture import Layer

    layer = Layer(LLAMA.stack[0].matrices if LLAMA.stack else (), Cache("none"), State(elements=1000))
    model = replace(LLAMA, layers=2, stack=(layer, layer), name="states")
    answer = answer_memory(model, None, 80_000, parse_lengths("lognormal 2000 0.7"))
    assert answer.at_share == 10 and answer.by_risk is None and answer.longest is None
    assert answer.fits and memory_to_json(answer)["positions"] is None


# --- words ---


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
        (["--kv-budget", "14GB", "--column", "x"], "No such file"),
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


def test_the_page_shows_the_commands_and_the_keys(capsys):
    page = (Path(__file__).resolve().parent.parent / "docs" / "memory.md").read_text(encoding="utf-8")
    assert "offload memory llama-3.1-70b --kv-budget 14GB --requests 18x2000" in page
    told = page.partition("## As data")[2]
    for requests in ("18x2000", "lognormal 2000 0.7"):
        names: set[str] = set()

        def collect(value: object, names: set[str] = names) -> None:
            if isinstance(value, dict):
                names.update(value)
            for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                collect(part)

        collect(data(capsys, *TEXTBOOK, "--requests", requests))
        assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)] == []
