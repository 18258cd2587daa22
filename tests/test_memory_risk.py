"""`offload memory` by risk: against simulation with a fixed seed, on ranks and with windows; counts that do fit."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.memory import answer_memory, serving_of
from offload.models import catalogue, layers_of
from offload.models.cache import position_bytes, states_bytes
from offload.models.lengths import parse_lengths
from offload.models.levers import most_requests
from offload.models.ranks import layer_bytes
from offload.models.serving import gpus_of, serving_budget, stage_layers


def simulated(name: str, weights: str | None, size: int, text: str, count: int, *, pp: int = 1, chunk: int = 2048,
              draws: int = 4000) -> float:  # fmt: skip
    """The share of draws in which any rank overflows, with a whole chunk beside the longest request's windows."""
    model, (median, sigma) = catalogue[name], map(float, text.split()[1:])
    base = serving_of(model, weights, size, pp=pp, chunk=chunk, block=1, context=10, requests=count)
    lengths = np.ceil(np.random.default_rng(3).lognormal(math.log(median), sigma, (draws, count)))
    over, first = np.zeros(draws, dtype=bool), 0
    for rank, layers in zip(serving_budget(base).ranks, stage_layers(model.layers, pp), strict=True):
        room = np.full(draws, rank.left + sum(line.bytes for line in rank.lines if "windows" in line.what), dtype=float)
        own = layers_of(model)[first : first + layers]
        room -= count * states_bytes([layer.state for layer in own])
        for layer, alike in Counter(layer.cache for layer in own).items():
            each = alike * position_bytes(layer)
            if layer.kind == "window":
                wide = layer.window
                longest = lengths.max(axis=1)
                more = np.minimum(longest, wide - 1 + chunk) - np.minimum(longest, wide)
                room -= each * (np.minimum(lengths, wide).sum(axis=1) + more)
            elif layer.kind != "none":
                room -= each * lengths.sum(axis=1)
        over |= room < 0
        first += layers
    return over.mean()


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "weights", "size", "text", "pp", "count"),
    [
        ("gemma-2-9b", None, 14 * 10**9, "lognormal 300 0.5", 1, 106),
        ("gemma-2-9b", None, 14 * 10**9, "lognormal 300 1.2", 1, 39),
        ("mistral-7b-v0.1", None, 14 * 10**9, "lognormal 500 0.7", 1, 143),
        ("gemma-3-27b", "bf16", 17 * 10**9, "lognormal 2500 0.6", 7, 66),
        ("gemma-3-27b", "bf16", 39_600_000_000, "lognormal 2500 0.6", 3, 79),
        ("jamba-1.5-mini", None, 10**9, "lognormal 20 1.5", 16, 871),
    ],
)  # fmt: skip
def test_what_is_admitted_overflows_no_rank_but_with_the_accepted_risk(name, weights, size, text, pp, count):
    answer = answer_memory(catalogue[name], weights, size, parse_lengths(text), pp=pp, block=1)
    assert answer.by_risk.requests == count and answer.by_risk.value <= 0.01 < answer.beyond.value
    draws = 2000 if count > 500 else 10_000
    more = max(2, count // 20)
    risks = [simulated(name, weights, size, text, n, pp=pp, draws=draws) for n in (count, count + more)]
    spread = 4 * math.sqrt(0.01 / draws)
    assert risks[0] <= answer.by_risk.value + spread, "no more than is said"
    assert risks[1] > 0.01 + spread / 4, "and a few more are too many"


def test_the_risk_with_windows_is_exact_where_no_chunk_is_held_besides():
    answer = answer_memory(catalogue["gemma-2-9b"], None, 14 * 10**9, parse_lengths("lognormal 300 1.2"), chunk=1,
                           block=1)  # fmt: skip
    for risk in (answer.by_risk, answer.beyond):
        by_hand = simulated("gemma-2-9b", None, 14 * 10**9, "lognormal 300 1.2", risk.requests, chunk=1, draws=20_000)
        assert risk.value == pytest.approx(by_hand, abs=4 * math.sqrt(by_hand / 20_000)) and risk.error == 1e-10


def test_a_window_is_not_charged_to_short_requests():
    """Two times L + min(L, 4096 + 2047) positions of 21 layers: one of up to 2,615 fits, and so many are longer."""
    answer = answer_memory(catalogue["gemma-2-9b"], None, 900_000_000, parse_lengths("lognormal 300 0.9"), risk=0.007,
                           block=1)  # fmt: skip
    longer = math.erfc(math.log(2615 / 300) / 0.9 / math.sqrt(2)) / 2
    assert answer.by_risk.requests == 0 and answer.beyond.value == pytest.approx(longer, rel=1e-9)
    assert longer == pytest.approx(0.0081, abs=5e-5)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.sampled_from(["lognormal 500 0.7", "lognormal 3000 1.0", "uniform 100 9000", "20x5000, 9x100", "fixed 7000"]),
       st.integers(10**9, 8 * 10**9), st.sampled_from([1, 2048]))  # fmt: skip
def test_windows_never_admit_fewer(text, size, chunk):
    model = catalogue["mistral-7b-v0.1"]
    stack = tuple(replace(layer, cache=replace(layer.cache, kind="full", window=0)) for layer in layers_of(model))
    without = replace(model, stack=stack)
    found = [answer_memory(one, None, size, parse_lengths(text), block=1, chunk=chunk) for one in (model, without)]
    counts = [[-1 if count is None else count for count in (
        one.now, one.at_share, one.at_largest, one.by_risk and one.by_risk.requests)] for one in found]  # fmt: skip
    assert all(a >= b for a, b in zip(*counts, strict=True))


# --- a list ---


def test_a_list_is_judged_by_the_rank_that_it_overflows():
    lengths = parse_lengths("1x12000, 80x1800")
    answer = answer_memory(catalogue["gemma-3-27b"], "bf16", 17 * 10**9, lengths, pp=7, block=1, drawn=False)
    rank = answer.budget.tightest
    own = layers_of(catalogue["gemma-3-27b"])[rank.layers[0] : rank.layers[1] + 1]
    used = sum(position_bytes(one.cache) * sum(min(length, one.cache.window or length) for length in lengths.values)
               for one in own)  # fmt: skip
    assert answer.now < answer.asked and answer.used == used and answer.left == rank.left - used < 0


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(1, 6000), min_size=1, max_size=25), st.integers(17 * 10**9, 175 * 10**8),
       st.sampled_from([1, 7]))  # fmt: skip
def test_as_many_fit_as_are_said_by_the_lines_for_so_many(values, size, block):
    """The first `now` fit on every rank with their own activations, and one more does not."""
    model = catalogue["gemma-3-27b"]
    answer = answer_memory(model, "bf16", size, parse_lengths(", ".join(map(str, values))), pp=7, block=block,
                           drawn=False)  # fmt: skip
    fits = []
    for count in (answer.now, answer.now + 1):
        if not 0 < count <= len(values):
            continue
        first = parse_lengths(", ".join(map(str, values[:count])))
        again = answer_memory(model, "bf16", size, first, pp=7, block=block, drawn=False)
        fits.append((count, again.fits, again.left >= 0))
    assert all(fit == (left and True) == (count <= answer.now) for count, fit, left in fits)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from([("gemma-3-4b", 24 * 10**9), ("llama-3.1-8b", 17 * 10**9), ("qwen3-8b", 18 * 10**9)]),
       st.integers(10, 3000), st.integers(1, 3), st.sampled_from([1, 16]))  # fmt: skip
def test_the_count_answered_fits_and_one_more_does_not(model, length, pp, block):
    name, size = model
    answer = answer_memory(catalogue[name], "bf16", size, parse_lengths(f"2x{length}"), pp=pp, block=block)
    counts = [answer.at_largest] + [one.requests for one in answer.levers if "held once" in one.what]
    prefixes = [0, length // 2]
    for count, prefix in zip(counts, prefixes, strict=False):
        base = replace(answer.serving, shared_prefix=prefix)
        assert count == 0 or serving_budget(replace(base, requests=count)).fits
        assert not serving_budget(replace(base, requests=count + 1)).fits
    assert most_requests(answer.serving) == answer.at_largest


# --- levers ---


@pytest.mark.few
@pytest.mark.parametrize("format", ["q8_0", "q6_k", "q5_k_m", "q4_k_m", "bf16", "fp8", "int8", "mxfp8", "nf4", "q4_0"])
def test_the_lever_of_weights_is_a_run_with_that_format(format):
    lengths = {"list": parse_lengths("4x2000")}
    if format == "q8_0":
        lengths["by risk"] = parse_lengths("lognormal 2000 0.7")
    for kind, one in lengths.items():
        answer = answer_memory(catalogue["llama-3.1-8b"], format, 24 * 10**9, one, block=1)
        found = next(lever for lever in answer.levers if lever.what.startswith("weights in"))
        again = answer_memory(catalogue["llama-3.1-8b"], found.what.split()[-1], 24 * 10**9, one, block=1)
        assert found.requests == (again.at_largest if kind == "list" else again.by_risk.requests)
        if kind == "list":
            assert found.positions == again.budget.tightest.alone


def test_a_prefix_gains_no_positions_of_requests_that_do_not_fit():
    for model, weights, size in (("llama-3.1-8b", "bf16", 16 * 10**9), ("llama-3.1-70b", None, 1)):
        answer = answer_memory(catalogue[model], weights, size, parse_lengths("2x2000"), block=1)
        found = next(one for one in answer.levers if "held once" in one.what)
        assert (found.positions, found.positions_gained, found.requests) == (0, 0, 0)


def test_ranks_that_a_server_has_not_are_no_lever():
    for gpus, offered in ((None, True), (2, True), (1, False)):
        answer = answer_memory(catalogue["llama-3.1-8b"], "q8_0", 24 * 10**9, parse_lengths("4x2000"), gpus=gpus)
        assert any(one.what == "tensor-parallel over 2 GPUs" for one in answer.levers) is offered
    answer = answer_memory(catalogue["deepseek-v3"], "fp8", 141 * 10**9, parse_lengths("4x2000"), tp=4, ep=8, pp=2)
    assert answer.levers[-1].what == "tensor-parallel over 8 ranks (32 GPUs in all)"
    assert gpus_of(4, 2, 8) == 16 and gpus_of(8, 2, 4) == 16 and gpus_of(1) == 1


def test_heads_that_ranks_do_not_share_evenly():
    """11 of 32 query heads and 3 of 8 KV heads on the fullest of three ranks."""
    layer = layer_bytes(catalogue["llama-3.1-8b"], "bf16", 3)[0]
    queries, values, ffn, norms = 4096 * 4096 * 2, 1024 * 4096 * 2, 3 * 14_336 * 4096 * 2, 2 * 4096 * 2
    assert layer.on_rank(3, 1) == norms + 2 * queries * 11 // 32 + 2 * values * 3 // 8 + ffn // 3
    answer = answer_memory(catalogue["llama-3.1-8b"], "bf16", 24 * 10**9, parse_lengths("4x2000"), tp=3)
    assert any("do not share 32 attention heads evenly" in one for one in answer.warnings)


# --- preemption ---


def test_a_preempted_request_leaves_the_prefix_to_the_others():
    model, values = catalogue["llama-3.1-8b"], {"link": 1e9, "flops": 1e14, "block": 16}
    alone = answer_memory(model, None, 10**10, parse_lengths("4x2000"), **values).preemption
    shared = answer_memory(model, None, 10**10, parse_lengths("4x2000"), shared_prefix=1000, **values).preemption
    assert alone.swap == pytest.approx(2 * 2000 * 131_072 / 1e9)
    assert shared.swap == pytest.approx(2 * (2000 - 992) * 131_072 / 1e9)
    assert shared.recompute > alone.recompute * 1008 / 2000, "later positions see more"
    assert shared.recompute < alone.recompute * 1008 / 2000 * 1.1


def test_stages_compute_a_request_in_turn():
    model, lengths = catalogue["llama-3.1-8b"], parse_lengths("4x2000")
    one, stages, tensors = (answer_memory(model, None, 10**10, lengths, flops=1e14, **ranks).preemption.recompute
                            for ranks in ({}, {"pp": 4}, {"tp": 4}))  # fmt: skip
    assert stages == one and tensors == pytest.approx(one / 4)


# --- as a command ---


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = cli.main(list(words))
    captured = capsys.readouterr()
    return status, " ".join(captured.out.split()), captured.err


SMALL = ["memory", "llama-3.1-8b:q4_k_m", "--requests", "4x2000"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu-memory", "0GB"], '--gpu-memory: "0GB" is no memory; write a size above 0, as "24 GB"'),
        (["--kv-budget", "0 GB"], '--kv-budget: "0 GB" is no memory'),
        (["--kv-budget", "-14GB"], '--kv-budget: "-14GB" is negative'),
        (["--on", "desktop-4090", "--gpu-memory", "24GB"], "--gpu-memory and --on each say it: 2 are given, keep one"),
        (["--gpu-memory", "24GB", "--link", "0GB/s"], '--link: "0GB/s" is no rate .* above 0, as "25 GB/s"'),
        (["--gpu-memory", "24GB", "--flops", "0 TFLOP/s"], '--flops: .* above 0, as "400 TFLOP/s"'),
        (["--gpu-memory", "24GB", "--risk", "100 %"], '--risk: "100 %" is no risk to accept: .* below 100 %'),
        (["--gpu-memory", "24GB", "--risk", "0"], '--risk: "0" is no risk to accept'),
        (["--gpu-memory", "24GB", "--risk", "5"], "above 1, the whole"),
        (["--gpu-memory", "24GB", "--column", "x"], "--column x is of a CSV file, and --requests 4x2000 is none"),
        (["--gpu-memory", "24GB", "--ep", "8"], "llama-3.1-8b has no experts"),
        (["--on", "dgx-h100", "--tp", "16"], "dgx-h100 has 8 GPUs, and these ranks need 16"),
        (["--on", "dgx-h100", "--tp", "4", "--pp", "4"], "these ranks need 16"),
    ],
)
def test_what_is_refused(capsys, words, said):
    status, out, error = run(capsys, *SMALL, *words)
    assert status == 2 and out == "" and re.search(said, error), error


def test_expert_ranks_that_do_not_go_with_the_others(capsys):
    words = ["memory", "mixtral-8x7b:fp8", "--requests", "2x100", "--gpu-memory", "80GB", "--ep"]
    assert "so one number is a multiple of the other" in run(capsys, *words, "3", "--tp", "2")[2]
    assert "has 8 experts in a layer" in run(capsys, *words, "9")[2]
    status, text, _ = run(capsys, *words, "4", "--tp", "2", "--pp", "2")
    assert status == 0 and "8 GPUs (tp 2, pp 2, ep 4)" in text and "tightest of 2 stages: layers 16-31" in text


def test_a_peak_of_the_server_is_named(capsys):
    _, text, _ = run(capsys, *SMALL, "--on", "desktop-4090", "--flops", "100 TFLOP/s")
    assert re.search(r"at least [\d.]+ ms to swap it out and back \(over pcie0, at its peak of 31.5 GB/s\), or "
                     r"[\d.]+ ms to compute it again \(at the 100 TFLOP/s given, on one GPU\)", text)  # fmt: skip
    _, text, _ = run(capsys, *SMALL, "--gpu-memory", "24GB", "--link", "20 GB/s", "--flops", "100 TFLOP/s", "--pp", "2")
    assert "to swap it out and back (at the 20 GB/s given)" in text and "least" not in text.partition("swap")[0][-30:]
    assert "on one GPU of one stage after the other" in text


def test_windows_in_words_and_as_data(capsys):
    words = ["memory", "gemma-3-27b", "--kv-budget", "14GB", "--requests", "1x100"]
    _, text, _ = run(capsys, *words)
    assert "81,920 B for each position, and at most 436,207,616 B for each request in windows, which are full from " \
           "1,024 positions on: one request could have 154,929 positions." in text  # fmt: skip
    assert "one request alone: 154,929 positions; the model states 131,072." in text
    cli.main([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["positions"] == answer["longest_context"] == 154_929 and answer["model_context"] == 131_072
    assert answer["kv_bytes_per_request"] == 436_207_616


def test_both_risks_as_data(capsys):
    cli.main(["memory", "llama-3.1-70b", "--kv-budget", "14GB", "--requests", "lognormal 2000 0.7", "--json"])
    risk = json.loads(capsys.readouterr().out)["risk"]
    assert (risk["admitted"]["requests"], risk["one_more"]["requests"]) == (9, 10)
    assert risk["admitted"]["value"] == pytest.approx(0.00718, abs=5e-6)
    assert risk["one_more"]["value"] == pytest.approx(0.01515, abs=5e-6)


@pytest.mark.slow
def test_a_count_that_is_too_small_says_so(capsys):
    _, text, _ = run(capsys, "memory", "llama-3.1-70b", "--kv-budget", "20TB", "--requests", "lognormal 200 0.7",
                     "--kv-format", "fp8")  # fmt: skip
    found = re.search(r"By risk: at least ([\d,]+) at 1 % risk", text)
    assert found and 470_000 < int(found[1].replace(",", "")) < 476_500


def test_a_model_without_a_format_of_weights_is_asked_for_none_where_kv_alone_is_counted(capsys, tmp_path):
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
              "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000,
              "max_position_embeddings": 4096, "tie_word_embeddings": False}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["memory", str(tmp_path), "--requests", "2x100"]
    assert run(capsys, *words, "--kv-budget", "1GB")[0] == 0
    status, _, error = run(capsys, *words, "--gpu-memory", "1GB")
    assert status == 2 and "weights" in error


@pytest.mark.few
@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_a_file_of_plain_numbers(capsys, tmp_path, end):
    path = tmp_path / "lengths.txt"
    path.write_text("\n".join(str(1 + index % 3000) for index in range(4000)) + end, newline="")
    cli.main(["memory", "llama-3.1-70b", "--kv-budget", "14GB", "--requests", str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["requests"]["asked"] == 4000 and answer["lengths"]["largest"] == 3000
    path.write_text("5\n0\n7\n")
    assert "line 2" in run(capsys, "memory", "llama-3.1-70b", "--kv-budget", "14GB", "--requests", str(path))[2]
