"""Keys and options that change nothing are told, and messages stand at the key that is meant, in its own words."""

from __future__ import annotations

import pytest

from offload.documents.plan_file import load_plan
from offload.errors import DocumentError, OffloadError
from offload.plan import Overlap
from offload.units import percent
from offload.words import plan_from_words

MIXTURE = "topology: desktop-4090\nmodel: {name: qwen3-30b-a3b, weights: q8_0}\n"
LLAMA = "topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q8_0}\n"
EXPERTS = MIXTURE + "placement:\n  weights: {hbm0: rest}\n  experts:\n    home: HOME\n    compute: gpu0\n"


def plan(folder, text):
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return load_plan(path)[0]


def told(folder, text):
    """(line, column, key, message) of the only mistake of a plan file."""
    with pytest.raises(DocumentError) as raised:
        plan(folder, text)
    (one,) = raised.value.mistakes
    return one.line, one.column, one.key, one.message


def noted(made):
    return " | ".join(made.assumptions)


# --- options ---


def test_experts_on_a_cpu_that_runs_every_layer_anyway():
    with pytest.raises(OffloadError, match="--cpu-experts 4: with --compute cpu0 all layers live in dram0 and run on"):
        plan_from_words("qwen3-30b-a3b:q8_0", "desktop-4090", cpu_experts=4, compute="cpu0")


@pytest.mark.parametrize(("layers", "compute", "note"), [
    (20, None, "--cpu-experts 4 changes nothing: 28 of 48 layers live in dram0"),
    (20, "gpu0", "--cpu-experts 4: 28 of 48 layers live in dram0"),
    (44, None, ""), (47, None, ""),
])  # fmt: skip
def test_experts_of_layers_that_are_there_anyway(layers, compute, note):
    made, _ = plan_from_words("qwen3-30b-a3b:q8_0", "desktop-4090", cpu_experts=4, compute=compute, gpu_layers=layers)
    assert (note in noted(made)) and (bool(note) == ("--cpu-experts" in noted(made)))


# --- keys ---


@pytest.mark.parametrize(("found", "idle"), [("0", True), ("0%", True), ("1", False), ("50%", False)])
def test_a_cache_in_which_nothing_is_found(tmp_path, found, idle):
    text = LLAMA + f"workload: {{phase: prefill, prompt: 1000, cached: {found}}}\n"
    made = plan(tmp_path, text + "placement: {weights: {hbm0: rest}, cache: dram0}\n")
    assert ("placement.cache serves nothing" in noted(made)) == idle


@pytest.mark.parametrize(("optimizer", "way", "idle"), [("hbm0", "pageable", True), ("hbm0", "pinned", False),
                                                        ("dram0", "pageable", False)])  # fmt: skip
def test_training_says_how_copies_pass_host_memory(tmp_path, optimizer, way, idle):
    on = "gpu0" if optimizer == "hbm0" else "cpu0"
    made = plan(tmp_path, f"""\
topology: gh200
model: {{name: llama-3.1-8b, weights: bf16}}
workload: {{phase: train, batch: 1}}
training: {{parameters: hbm0, optimizer: {optimizer}, optimizer_on: {on}, compute: gpu0, host_memory: {way}}}
""")
    assert (f"training.host_memory: {way} changes nothing here" in noted(made)) == idle


@pytest.mark.parametrize(("compute", "overlap", "idle"), [
    ("cpu0", "{buffers: 3}", True), ("cpu0", "full", True), ("cpu0", "{buffers: 2}", False), ("cpu0", "none", False),
    ("gpu0", "{buffers: 3}", False),
])  # fmt: skip
def test_buffers_that_nothing_takes(tmp_path, compute, overlap, idle):
    text = LLAMA + f"placement: {{weights: {{dram0: rest}}, compute: {compute}}}\noverlap: {overlap}\n"
    assert ("changes nothing here: nothing is moved that takes a buffer" in noted(plan(tmp_path, text))) == idle
    buffers = {"{buffers: 3}": Overlap("buffers", 3), "full": Overlap("buffers", 0), "none": Overlap("none")}
    made, _ = plan_from_words("llama-3.1-8b:q8_0", "desktop-4090", compute=compute, gpu_layers=0,
                              overlap=buffers.get(overlap))
    assert ("--buffers: " in noted(made)) == idle


# --- places and words ---


def test_chances_in_a_hit_rate_are_told_there(tmp_path):
    text = EXPERTS.replace("HOME", "dram0") + "    cache:\n      memory: hbm0\n      experts: 8\n"
    line, column, key, message = told(tmp_path, text + "      hit: {chances: [0.5, 0.5]}\n")
    assert (line, column, key) == (11, 12, "placement.experts.cache.hit") and message.startswith("2 chances are given")
    line, _, key, _ = told(tmp_path, EXPERTS.replace("HOME", "dram0") + "    routing: {chances: [0.5, 0.5]}\n")
    assert (line, key) == (8, "placement.experts.routing")


def test_reads_in_place_of_a_drive_are_told_at_the_key_that_asks(tmp_path):
    line, column, key, message = told(tmp_path, EXPERTS.replace("HOME", "ssd0") + "    access: in_place\n")
    assert (line, column, key) == (8, 13, "placement.experts.access") and "ssd0 is a drive" in message
    line, column, key, _ = told(tmp_path, LLAMA + "placement:\n  weights: {ssd0: rest}\n  compute: gpu0\n"
                                                  "  access: in_place\n")
    assert (line, column, key) == (6, 11, "placement.access")


def test_parts_that_come_by_unlike_ways_are_told_in_words_of_a_placement(tmp_path):
    line, column, _, message = told(tmp_path, LLAMA + "placement:\n  weights: {dram0 + ssd0: rest}\n  compute: gpu0\n")
    assert (line, column) == (4, 13) and "Place whole layers in each memory" in message and "task" not in message


@pytest.mark.parametrize(("more", "place", "words"), [
    ("    cache: {memory: hbm0, experts: 8, hit: 0%}\n", (8, 44), "nothing is ever found there"),
    ("    cache: {memory: hbm0, experts: 8, hit: 0.0 %}\n", (8, 44), "nothing is ever found there"),
    ("    prefetch: {accuracy: 0%}\n", (8, 26), "nothing fetched ahead is ever right"),
    ("    cache: {memory: ssd0, experts: 8}\n", (8, 21), "hits would be slower than misses"),
])  # fmt: skip
def test_caches_and_prefetches_that_spare_nothing(tmp_path, more, place, words):
    line, column, _, message = told(tmp_path, EXPERTS.replace("HOME", "dram0") + more)
    assert (line, column) == place and words in message


def test_a_cache_in_front_of_a_slower_home_is_taken(tmp_path):
    made = plan(tmp_path, EXPERTS.replace("HOME", "ssd0") + "    cache: {memory: dram0, experts: 8}\n")
    assert "dram0 caches 8 of the 128 experts" in noted(made)


@pytest.mark.parametrize(("tiers", "words"), [
    ("{dram0: rest, ssd0: 10 GB}", "ssd0 serves nothing: "),
    ("{hbm0: 1 B, dram0: rest}", "under 0.01% from hbm0"),
])  # fmt: skip
def test_tiers_are_told_for_one_and_in_readable_shares(tmp_path, tiers, words):
    text = LLAMA + "workload: {phase: prefill, prompt: 1000, cached: 80%}\n"
    made = plan(tmp_path, text + f"placement: {{weights: {{hbm0: rest}}, cache: {tiers}}}\n")
    assert words in noted(made) and "e-0" not in noted(made)


def test_percent():
    assert [percent(one) for one in (0, 9e-9, 0.0001, 0.25, 1 / 3, 1)] == [
        "0%", "under 0.01%", "0.01%", "25%", "33.33%", "100%"]  # fmt: skip
