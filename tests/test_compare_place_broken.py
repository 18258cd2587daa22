"""What `compare` and `place` once got wrong for a user: meters that count nothing, words that are wrong everywhere,
ties that were called open, requests, and processors whose arithmetic is unknown.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from offload.comparison import Pair
from offload.errors import OffloadError
from offload.meters import read_meter
from offload.report_compare import _names, _open
from offload.words import plan_from_words
from tests.commands import run

PLAN = "examples/llama-3.1-70b-desktop.yaml"
MODEL = "llama-3.1-8b:q8_0"


@pytest.mark.parametrize("text, part", [
    ("m: 3 pJ/bit of cxl link", "cxl link"), ("m: 3 pJ/bit of dram + 1 pJ/bit of cxl link", "cxl link"),
    ("m: 350 W + 4 pJ/bit of pcie0.hbm0", "pcie0.hbm0"),
])  # fmt: skip
def test_kinds_of_two_words_are_read_on_the_command_line(text: str, part: str):
    assert read_meter(text).terms[-1].of == part


@pytest.mark.parametrize("meter, told", [
    ("m: 0.6 pJ/FLOP of dram", "dram does no arithmetic"), ("m: 0.6 pJ/FLOP of nvlink", "nvlink does no arithmetic"),
    ("m: 4 pJ/bit of gpu", "no gpu of desktop-4090 has bytes"),
    ("m: 4 pJ/bit of hbm0 and dram0", 'no part "hbm0 and dram0"'),
])  # fmt: skip
def test_a_term_that_can_never_count_anything_is_a_mistake(meter: str, told: str):
    done = run("compare", PLAN, "--meter", meter)
    assert done.returncode == 2 and told in done.stderr


@pytest.mark.parametrize("text", ["m: 350", "m: nan W", "m: 3 W +", "m: + 3 W", "m: 1400 TB", "m: 350 w", "m: 3 J",
                                  "m: 1400 TB written to"])  # fmt: skip
def test_what_a_refusal_of_a_meter_says_to_write_is_not_refused_itself(text: str):
    with pytest.raises(OffloadError) as error:
        read_meter(text)
    said = str(error.value)
    assert '"/h"' not in said and '"350/h"' not in said and "nan W/h" not in said and "TB/h" not in said
    for advice in said.partition("Write ")[2].split('"')[1::2]:
        assert read_meter(f"m: {advice}").name == "m", advice
    for advice in said.partition(" write ")[2].split('"')[1::2]:
        assert read_meter(f"m: {advice}").name == "m", advice


def test_a_coefficient_of_a_key_is_shown_with_what_the_key_says(tmp_path: Path):
    path = tmp_path / "meters.yaml"
    path.write_text("meters:\n  money: {per_hour: 12 USD}\n  heat: {per_second: 350 J}\n  watts: {per_second: 350 W}\n")
    shown = run("compare", PLAN, "--meters", str(path)).stdout
    assert "(12 USD/h)" in shown and "(350 J/s)" in shown and "(350 W)" in shown
    found = json.loads(run("compare", PLAN, "--meters", str(path), "--json").stdout)["entries"][0]
    by_name = {one["name"]: one["per_step"]["value"] for one in found["meters"]}
    seconds = found["expected"]["value"]
    assert by_name["money"] == pytest.approx(12 / 3600 * seconds, rel=1e-12)
    assert by_name["heat"] == by_name["watts"] == pytest.approx(350 * seconds, rel=1e-12)


@pytest.mark.parametrize("words, told", [
    (("--gpu-layers", "33"), "has 32 layers"), (("--generate", "256"), "--generate needs --prompt"),
    (("--set", "workload.batch=4"), "--batch says it"), (("--cpu-experts", "3"), "no experts"),
    (("--kv-format", "q9"), "no KV cache format"), (("--compute", "gpu0..x"), "no range"),
    (("--context", "0"), "at least 1"),
])  # fmt: skip
def test_words_that_are_wrong_on_every_server_are_told_once(words: tuple[str, ...], told: str):
    for servers in (("--on", "gh200"), ("--on", "gh200,desktop-4090")):
        done = run("compare", MODEL, *servers, *words)
        assert done.returncode == 2 and done.stderr.count(told) == 1 and not done.stdout, words
    with pytest.raises(OffloadError):  # as `offload step` says
        plan_from_words(MODEL, "gh200", **{"gpu_layers": 33} if words[0] == "--gpu-layers" else {"context": 0})


def test_words_that_only_some_servers_refuse_are_listed_there():
    done = run("compare", MODEL, "--on", "gh200,dgx-h100", "--compute", "gpu3")
    assert done.returncode == 0 and "gh200: cannot be laid out" in done.stdout


def test_experts_on_the_cpu_are_compared_also_where_there_is_one_memory():
    words = ("compare", "qwen3-30b-a3b:q8_0", "--on", "dgx-spark,desktop-4090", "--cpu-experts", "48")
    shown = " ".join(run(*words).stdout.split())
    told = "--cpu-experts 48 changes nothing here: unified0 holds all weights"
    assert "cannot be laid out" not in shown and f"What options come to - dgx-spark: {told}" in shown
    notes = {one["server"]: one["notes"] for one in json.loads(run(*words, "--json").stdout)["entries"]}
    assert notes["desktop-4090"] == [] and [one[: len(told)] for one in notes["dgx-spark"]] == [told]
    settings = run(*words, "--set", "gpu0.flops.bf16=100TFLOP/s").stdout
    assert "instead of" not in settings and "What options come to" in settings
    plan = "examples/llama-3.1-70b-desktop.yaml"
    assert "What options come to" not in run("compare", plan, "--on", "gh200", "--set", "workload.batch=2").stdout


@pytest.mark.parametrize("sought, told, silent", [
    ((False,), "What would settle 1 pair was left out, to be quick: --full works it out.", "compare two alone"),
    ((True, False), "What would settle 1 more was left out, to be quick: --full works it out.", "compare two alone"),
    ((True,) * 5 + (False,), "1 further pair is open: compare two alone, with --full, for", "left out, to be quick"),
    ((False,) * 5 + (False,) * 2, "What would settle 5 pairs was left out", "no pair"),
    ((False,) * 5 + (False,) * 2, "2 further pairs are open: compare two alone, with --full, for", "no pair"),
])  # fmt: skip
def test_what_was_not_sought_is_told_with_the_way_that_finds_it(sought, told, silent):
    pairs = tuple(Pair((f"p{n}", "s"), (f"p{n + 1}", "s"), "open", 0.1, 0, sought=one) for n, one in enumerate(sought))
    console = Console(width=200, file=io.StringIO())
    names = _names({name for pair in pairs for name, _ in (pair.first, pair.second)}, {"s"})
    _open(SimpleNamespace(pairs=pairs, certain=False), names, console)
    shown = console.file.getvalue()
    assert told in shown and silent not in shown


def test_full_seeks_what_two_servers_leave_open():
    words = ("compare", "deepseek-v3:q4_k_m", "--on", "gh200,dual-xeon-4090", "--cpu-experts", "61")
    quick, full = run(*words).stdout, run(*words, "--full").stdout
    assert "--full works it out" in quick and "--full" not in full and "measure cpu0.reads on gh200" in full


def test_the_same_gpu_in_other_hosts_is_the_same():
    """By brute force: at all ends of all rates the two take the same time, though schedules are searched."""
    done = run("compare", "llama-3.1-8b:bf16", "--on", "aws-p4d-24xlarge,hgx-a100-4gpu,azure-nd-h100-v5,dgx-h100",
               "--json")  # fmt: skip
    found = json.loads(done.stdout)
    orders = {one["server"]: one["next"]["order"] for one in found["entries"] if one["next"] is not None}
    assert orders == {"azure-nd-h100-v5": "same", "dgx-h100": "certain", "aws-p4d-24xlarge": "same"}
    assert found["certain"]


def test_of_a_whole_request_it_is_said_what_is_compared():
    whole = run("compare", MODEL, "--on", "gh200", "--prompt", "2048", "--generate", "16").stdout
    assert "its prompt is not" in " ".join(whole.split())
    for words in ((), ("--prompt", "2048")):
        assert "whole request" not in run("compare", MODEL, "--on", "gh200", *words).stdout


BOX = """\
memories:
  unified0: {{kind: unified, capacity: 64 GiB, rate: {{peak: 500 GB/s, sustained: 400 GB/s}}}}
processors:
  gpu0: {{kind: gpu, memory: unified0, flops: {{fp16: {gpu}, bf16: {gpu}}}}}
  cpu0: {{kind: cpu, memory: unified0, flops: {{fp16: {cpu}, bf16: {cpu}}}}}
"""


def place(tmp_path: Path, gpu: str, cpu: str, *words: str) -> tuple[dict, str]:
    path = tmp_path / "box.yaml"
    path.write_text(BOX.format(gpu=gpu, cpu=cpu))
    asked = ("place", MODEL, "--on", str(path), "--prompt", "512", *words)
    return json.loads(run(*asked, "--json").stdout), " ".join(run(*asked).stdout.split())


def test_arithmetic_that_is_not_known_is_not_faster_than_that_which_is(tmp_path: Path):
    found, shown = place(tmp_path, "20 TFLOP/s", "unknown")
    assert found["best"]["placement"]["compute"] == "gpu0"
    assert found["left_out"][0].startswith("what cpu0 might run") and found["left_out"][0] in shown
    known, _ = place(tmp_path, "20 TFLOP/s", "1 TFLOP/s")
    assert known["best"]["expected_s"] == found["best"]["expected_s"]
    assert not known["left_out"][0].startswith("what cpu0")
    # The floor of any plan still holds for a plan that runs there.
    there = json.loads(run("step", MODEL, "--on", str(tmp_path / "box.yaml"), "--prompt", "512", "--compute", "cpu0",
                           "--json").stdout)  # fmt: skip
    assert found["floor_of_any_plan"]["seconds"] <= known["floor_of_any_plan"]["seconds"]
    assert found["floor_of_any_plan"]["seconds"] <= there["floor"]["seconds"]


def test_what_is_asked_for_on_such_a_processor_is_marked(tmp_path: Path):
    _, shown = place(tmp_path, "20 TFLOP/s", "unknown", "--compute", "cpu0")
    assert "cpu0 has no FLOP/s: its arithmetic is not counted, so what runs there looks faster than it is." in shown


def test_in_one_memory_of_both_the_flags_follow_the_processor(tmp_path: Path):
    found, shown = place(tmp_path, "1 TFLOP/s", "20 TFLOP/s")
    assert found["best"]["placement"]["compute"] == "cpu0" and "llama.cpp: -ngl 0 " in shown
    found, shown = place(tmp_path, "20 TFLOP/s", "1 TFLOP/s")
    assert found["best"]["placement"]["compute"] == "gpu0" and "llama.cpp: -ngl 33 " in shown


@pytest.mark.slow
def test_a_pipeline_of_prompts_says_how_long_one_of_them_takes():
    """Back to back two GPUs in turn take half as long for a prompt as one does; a prompt alone is no faster there."""
    shown = run("place", "llama-3.1-8b:bf16", "--on", "gh200-dual", "--prompt", "2048", "--compute", "gpu0").stdout
    assert "Best placement: layers in turn" in shown
    assert "one step of the best placement alone takes" in " ".join(shown.split())
    shown = run("place", MODEL, "--on", "gh200").stdout
    assert "Best placement: layers where they live" in shown and "alone takes" not in " ".join(shown.split())


def test_a_large_regret_is_written_out():
    shown = run("place", MODEL, "--on", "desktop-4090", "--for", "200 ms").stdout
    assert re.search(r"best placement .* \+1\d{3} %", shown) and not re.search(r"\de\+\d", shown)
