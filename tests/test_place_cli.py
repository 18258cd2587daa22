"""`offload place` as people type it: its report, its JSON, the plan file that it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload import cli
from tests.commands import ROOT, run

DESKTOP = ("llama-3.1-70b:q4_k_m", "--on", "desktop-4090")
SMALL = ("llama-3.2-1b:q8_0", "--on", "desktop-4090")


def place(*words: str, **more):
    return run("place", *words, **more)


def as_json(*words: str) -> dict:
    done = place(*words, "--json")
    assert done.stderr == "" and done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def step_of(path: Path, *words: str) -> dict:
    done = run("step", str(path), "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_report_says_where_how_fast_and_how_far():
    done = place(*DESKTOP)
    assert done.returncode == 0 and done.stderr == ""
    for text in ("Best placement: KV in dram0", "45 layers in hbm0", "the plan as asked", "floor of any plan",
                 "Optimality gap", "no bound of the others is less", "1 GB more of hbm0", "1 GB/s more of dram0",
                 "llama.cpp: -ngl 46", "llama.cpp cannot be told", "Not in the search"):  # fmt: skip
        assert text in done.stdout, text
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_json_has_all_of_it():
    found = as_json(*DESKTOP)
    best = found["best"]
    assert best["placement"]["weights"] == {"hbm0": "45 layers", "dram0": "35 layers"} and found["proved"]
    assert found["floor_of_any_plan"]["seconds"] <= found["floor_bound"]["seconds"] * (1 + 1e-9) <= best["floor_s"]
    assert best["expected_s"] < found["compared"]["expected_s"] and best["regret"] < found["compared"]["regret"]
    assert found["gap"] == pytest.approx(best["expected_s"] / found["expected_bound"]["seconds"] - 1)
    assert {one["name"] for one in found["engines"]} == {"llama.cpp", "vLLM", "accelerate", "DeepSpeed",
                                                         "ktransformers"}  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("words", [
    DESKTOP, (*SMALL, "--context", "60000"),
    pytest.param(("deepseek-v3:q4_k_m", "--on", "dual-xeon-4090"), marks=pytest.mark.slow),
    ("qwen3-30b-a3b:q8_0", "--on", "desktop-4090", "--reserve", "2 GB", "--batch", "2"),
    ("llama-3.1-8b:bf16", "--on", "desktop-4090", "--prompt", "300", "--buffers", "3"),
    pytest.param(("llama-3.1-70b:bf16", "--on", "dgx-h100", "--compute", "gpu0..7"), marks=pytest.mark.slow),
])  # fmt: skip
def test_the_plan_file_says_the_same(words: tuple[str, ...], tmp_path: Path):
    path = tmp_path / "plan.yaml"
    found = as_json(*words, "-o", str(path))
    answer = step_of(path)
    assert answer["overlapped"]["seconds"] == found["best"]["expected_s"]
    assert answer["floor"]["seconds"] == found["best"]["floor_s"]
    assert run("check", str(path)).returncode == 0


@pytest.mark.slow
def test_a_plan_file_is_compared(tmp_path: Path):
    """Its workload, formats and costs are kept; its placement is what the best one is compared with."""
    path = tmp_path / "best.yaml"
    given = ROOT / "examples" / "experts-on-the-cpu.yaml"
    found = as_json(str(given), "-o", str(path))
    assert found["compared"]["expected_s"] == step_of(given)["overlapped"]["seconds"]
    assert found["best"]["expected_s"] <= found["compared"]["expected_s"]
    assert "costs" in path.read_text() and step_of(path)["overlapped"]["seconds"] == found["best"]["expected_s"]


@pytest.mark.slow
def test_a_file_elsewhere_names_its_server_and_model_from_there(tmp_path: Path):
    given = ROOT / "examples" / "own-server.yaml"
    path = tmp_path / "deep" / "best.yaml"
    path.parent.mkdir()
    found = as_json(str(given), "-o", str(path))
    assert step_of(path)["overlapped"]["seconds"] == found["best"]["expected_s"]


@pytest.mark.slow
def test_values_of_the_server_that_were_set_are_told(tmp_path: Path):
    path = tmp_path / "best.yaml"
    found = as_json(*DESKTOP, "--set", "pcie0.rate=64GB/s", "-o", str(path))
    assert "--set pcie0.rate=64GB/s" in path.read_text().splitlines()[1]
    answer = step_of(path, "--set", "pcie0.rate=64GB/s")
    assert answer["overlapped"]["seconds"] == found["best"]["expected_s"]


@pytest.mark.slow
def test_a_target_takes_the_least_gpu_memory():
    some, more = (as_json(*DESKTOP, "--for", text)["best"] for text in ("2 tok/s", "3 tok/s"))
    assert some["gpu_bytes"] < more["gpu_bytes"] and some["tokens_per_s"] >= 2 and more["tokens_per_s"] >= 3


def test_a_target_that_nothing_reaches_is_no():
    done = place(*DESKTOP, "--for", "20 tok/s")
    assert done.returncode == 1
    assert "reaches 20 tok/s" in done.stdout and "The floor of any plan is" in done.stdout
    assert as_json(*DESKTOP, "--for", "20 tok/s")["best"] is None


def test_what_does_not_fit_at_all_is_no(tmp_path: Path):
    server = tmp_path / "small.yaml"
    server.write_text("""\
title: small
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 8 GiB, rate: 1000 GB/s}
  dram0: {kind: dram, at: socket0, capacity: 16 GiB, rate: 50 GB/s}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 100 TFLOP/s}}
  cpu0: {kind: cpu, memory: dram0, flops: {bf16: 1 TFLOP/s}}
links:
  pcie0: {between: [socket0, hbm0], pcie: 4 x16}
""")
    done = place("llama-3.1-70b:bf16", "--on", str(server))
    assert done.returncode == 1 and "fits in this server's memories" in done.stdout
    done = place("llama-3.1-70b:bf16", "--on", str(server), "-o", str(tmp_path / "plan.yaml"))
    assert done.returncode == 1 and "fits in this server's memories" in done.stdout  # the answer, with or without -o
    assert f"Nothing is written to {tmp_path / 'plan.yaml'}." in done.stdout and not (tmp_path / "plan.yaml").exists()
    assert place("llama-3.1-8b:q8_0", "--on", str(server)).returncode == 0


def test_an_early_end_without_a_placement_is_no_proof_that_none_fits():
    done = place("llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--prompt", "2048", "--most", "1")
    assert done.returncode == 1 and "were evaluated and none of those fits" in done.stdout
    assert "None of" not in done.stdout and "the search ended early" in " ".join(done.stdout.split())


def test_throughput_varies_the_batch():
    found = as_json(*SMALL, "--for", "throughput", "--context", "60000", "--buffers", "2")
    assert len(found["batches"]) > 1 and found["best"]["batch"] in found["batches"] and found["best"]["batch"] > 1
    fixed = as_json(*SMALL, "--for", "throughput", "--context", "60000", "--batch", "2")
    assert fixed["batches"] == [2] and fixed["best"]["tokens_per_s"] <= found["best"]["tokens_per_s"]


def test_one_engine_in_full():
    done = place(*SMALL, "--engine", "accelerate")
    assert '"model.layers.15": 0' in done.stdout and "llama.cpp:" not in done.stdout
    assert "match:" in place("qwen3-30b-a3b:q8_0", "--on", "desktop-4090", "--engine", "ktransformers").stdout


@pytest.mark.few
@pytest.mark.parametrize("words,said", [
    ((*DESKTOP, "--for", "fast"), "Or write latency or throughput"),
    ((*DESKTOP, "--for", "0 tok/s"), "not above zero"),
    ((*DESKTOP, "--most", "0"), "--most"),
    ((*DESKTOP, "--prompt", "100", "--generate", "10"), "place is of one step"),
    (("examples/by-hand.yaml",), "a plan by hand says itself"),
    (("examples/train-3b-zero-offload.yaml",), "training step"),
    (("examples/phases-speculation.yaml",), "speculation"),
    (("examples/phases-chunked-prefill.yaml",), "chunks"),
    ((*DESKTOP, "--engine", "nothing"), "invalid choice"),
    ((*DESKTOP, "-o", "/nowhere/at/all.yaml"), "cannot be written"),
    (("llama-3.1-70b:q4_k_m",), "--on is missing"),
])  # fmt: skip
def test_what_is_refused(words: tuple[str, ...], said: str):
    done = place(*words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_the_input_is_not_overwritten(tmp_path: Path):
    path = tmp_path / "plan.yaml"
    path.write_text((ROOT / "examples" / "llama-3.1-70b-desktop.yaml").read_text())
    before = path.read_text()
    done = place(str(path), "-o", str(path))
    assert done.returncode == 2 and "overwritten" in done.stderr and path.read_text() == before


def test_it_is_among_the_verbs(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--help"]) == 0
    assert "place" in capsys.readouterr().out


def test_a_server_of_too_many_memories_is_told(tmp_path, capsys):
    (tmp_path / "many.yaml").write_text(
        "switches: {s0..599: {kind: socket}}\nmemories:\n  hbm0: {kind: hbm, capacity: 24 GB, rate: 1 TB/s}\n"
        "  dram0..599: {kind: dram, at: s0..599, capacity: 64 GB, rate: 80 GB/s}\n"
        "processors: {gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 100 TFLOP/s}}}\n"
        "links: {pcie0: {between: [s0, hbm0], rate: 25 GB/s}}\n")  # fmt: skip
    assert cli.main(["place", "llama-3.1-8b:bf16", "--on", str(tmp_path / "many.yaml")]) == 2
    assert "has 601 memories, more than the 512 that place weighs" in " ".join(capsys.readouterr().err.split())
