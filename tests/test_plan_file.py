"""Plan files: every key of both forms against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload.compiler import compile_step
from offload.documents import load_plan
from offload.plan import UNLIMITED
from offload.schedules import schedule, serial, solo_seconds
from offload.study import evaluate
from tests.plan_texts import (
    BLOCKS,
    CHAIN,
    GB,
    HAND,
    HEAD,
    LAYER,
    MB,
    PLACED,
    POSITION,
    ROW,
    changed,
    compiled,
    expected,
    study_of,
    write_box,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_box(tmp_path)


# --- by hand ---


def test_by_hand_streamed(folder):
    step = compiled(folder, HAND)
    assert expected(step) == {
        "pcie0.hbm0": 2 * GB, "dram0": 2 * GB, "hbm0": 2 * GB + 3 * GB, "gpu0.flops": 200e9,
    }  # fmt: skip
    assert step.occupied == {"dram0": {"w": 2 * GB}, "hbm0": {"kv": 1 * GB, "buffers": 400 * MB}}
    assert solo_seconds(step) == pytest.approx([10e-3, 0.3e-3])
    study = evaluate(step.topology, step.plan)
    assert study.title == "plan of plan.yaml"
    assert study.serial.seconds == pytest.approx(10 * 10.3e-3)
    assert study.floor.seconds == pytest.approx(100e-3) and study.floor.bottleneck == ("pcie0.hbm0",)
    assert study.overlapped.seconds == pytest.approx(100e-3)
    assert study.tokens_per_s.overlapped == pytest.approx(10)


def test_shared_is_one_copy(folder):
    step = compiled(folder, HAND, ("home: dram0}", "home: dram0, shared: true}"))
    assert step.occupied["dram0"] == {"w": 200 * MB}
    assert expected(step)["pcie0.hbm0"] == 2 * GB


def test_not_moved_is_read_over_the_link(folder):
    step = compiled(folder, HAND, ("  fetch: {move: w, to: hbm0}\n", ""), (", after: fetch", ""))
    assert expected(step) == {"pcie0.hbm0": 2 * GB, "dram0": 2 * GB, "hbm0": 1 * GB, "gpu0.flops": 200e9}
    assert any("gpu0 reads w in dram0 over pcie0 without a copy" in note for note in step.assumptions)


@pytest.mark.parametrize(
    ("home", "moved"),
    [("{dram0: 50%, hbm0: rest}", 100), ("{dram0: 50 MB, hbm0: rest}", 50), ("{hbm0: 150 MB, dram0: 25 %}", 50),
     ("{dram0: rest}", 200), ("{hbm0: 0%, dram0: all}", 200)],
)  # fmt: skip
def test_a_move_carries_what_is_not_there(folder, home, moved):
    step = compiled(folder, HAND, ("home: dram0}", f"home: {home}}}"))
    assert expected(step)["pcie0.hbm0"] == pytest.approx(10 * moved * MB)
    assert sum(parts.get("w", 0) for parts in step.occupied.values()) == pytest.approx(2 * GB)


def test_every(folder):
    once = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, every: step}"))
    assert expected(once)["pcie0.hbm0"] == 200 * MB
    layer = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, every: layer}"))
    assert expected(layer) == expected(compiled(folder, HAND))
    fourth = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, every: 4 steps}"))
    assert expected(fourth)["pcie0.hbm0"] == 500 * MB, "a quarter in the average step"
    assert serial(fourth).seconds == pytest.approx(25e-3 + 3e-3)
    assert serial(fourth).cold_seconds == pytest.approx(100e-3 + 3e-3), "in full in a step alone"
    floor = evaluate(fourth.topology, fourth.plan).floor
    assert floor.seconds == pytest.approx(25e-3) and floor.cold_seconds >= 100e-3 * (1 - 1e-12)


def test_blocks(folder):
    step = compiled(folder, BLOCKS)
    assert expected(step) == {"dram0": 50 * MB + 600 * MB, "pcie0.hbm0": 600 * MB, "hbm0": 1200 * MB}
    assert step.occupied["dram0"] == {"w": 600 * MB, "x": 50 * MB}
    assert len(step.instances) == 1 + 2 * 3
    first = step.instances.index(next(n for n, row in enumerate(step.rows) if row.name == "first"))
    layers = [i for i, row in enumerate(step.instances) if step.rows[row].name == "layer"]
    assert all(first in [wait.on for wait in step.waits[i]] for i in layers), "across blocks, by name"


def test_after_previous_takes_away_the_overlap(folder):
    free = compiled(folder, HAND)
    bound = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, after: previous.layer}"))
    assert schedule(bound).seconds == pytest.approx(serial(bound).seconds)
    assert schedule(free).seconds < schedule(bound).seconds


def test_the_order_in_the_file_does_not_matter_where_after_says_it(folder):
    lines = HAND.splitlines(keepends=True)
    turned = "".join([*lines[:6], lines[7], lines[6], *lines[8:]])
    assert expected(compiled(folder, turned)) == expected(compiled(folder, HAND))
    assert study_of(folder, turned).overlapped == study_of(folder, HAND).overlapped


def test_via(folder):
    step = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, via: switch0}"))
    moved = expected(step)
    assert moved["up0.switch0"] == moved["down0.hbm0"] == 2 * GB and "pcie0.hbm0" not in moved


def test_from_a_drive_in_two_stages(folder):
    step = compiled(folder, HAND, ("home: dram0}", "home: ssd0}"))
    moved = expected(step)
    assert moved["ssd0.read"] == moved["m2.socket0"] == moved["pcie0.hbm0"] == 2 * GB
    assert moved["dram0"] == 4 * GB, "one write and one read"
    assert step.occupied["ssd0"] == {"w": 2 * GB}
    assert step.occupied["dram0"] == {"buffers": 400 * MB} and step.occupied["hbm0"]["buffers"] == 400 * MB


def test_pageable_memory_is_slower(folder):
    step = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, host_memory: pageable}"))
    assert solo_seconds(step)[0] == pytest.approx(40e-3)


@pytest.mark.parametrize(
    ("overlap", "buffers", "held"),
    [("{buffers: 1}", 1, 200), ("3", 3, 600), ("full", UNLIMITED, 2000), ("none", 1, 200)],
)
def test_overlap(folder, overlap, buffers, held):
    step = compiled(folder, HAND, ("{buffers: 2}", overlap))
    assert [slots.buffers for slots in step.slots] == [buffers]
    assert step.occupied["hbm0"]["buffers"] == held * MB
    hidden = overlap not in ("none", "{buffers: 1}")
    assert schedule(step).seconds == pytest.approx(100e-3 if hidden else 103e-3)


def test_a_move_has_its_own_buffers(folder):
    step = compiled(folder, HAND, ("to: hbm0}", "to: hbm0, buffers: 4}"))
    assert [slots.buffers for slots in step.slots] == [4] and step.occupied["hbm0"]["buffers"] == 800 * MB


def test_writes_load_the_home(folder):
    step = compiled(folder, HAND, ("[w, kv], after", "[w], writes: [kv], after"))
    assert expected(step)["hbm0"] == 5 * GB
    away = compiled(folder, HAND, ("home: hbm0}", "home: dram0}"), ("[w, kv], after", "w, writes: kv, after"))
    assert expected(away)["pcie0.socket0"] == 1 * GB and expected(away)["dram0"] == 3 * GB


def test_in_flight_divides_the_cycle_and_tokens_count(folder):
    one = study_of(folder, CHAIN)
    assert one.floor.seconds == pytest.approx(2e-3) and one.floor.rule == "cycle"
    assert one.tokens_per_s.floor == pytest.approx(4 / 2e-3)
    two = study_of(folder, CHAIN + "in_flight: 2\n")
    assert two.floor.seconds == pytest.approx(1e-3) and two.overlapped.seconds == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("format_", "milliseconds"), [("bf16", 10), ("fp8", 5), ("fp16", 10)]
)
def test_format(folder, format_, milliseconds):
    step = compiled(folder, HAND, ("20 GFLOP,", f"1 TFLOP, format: {format_},"))
    assert solo_seconds(step)[1] == pytest.approx(milliseconds * 1e-3)
    assert any("counted at its bf16 rate" in note for note in step.assumptions) == (format_ == "fp16")


def test_title_and_what(folder):
    step = compiled(folder, "title: Mine\n" + HAND, ("home: dram0}", "home: dram0, what: expert weights}"))
    assert step.title == "Mine" and step.occupied["dram0"] == {"expert weights": 2 * GB}


def test_only_moves(folder):
    study = study_of(folder, changed(HAND, (HAND[HAND.index("  layer") : HAND.index("overlap")], "")))
    assert study.floor.seconds == pytest.approx(100e-3) and study.floor.cycle_seconds in (0, None)


# --- by placement ---


def test_placed_in_place(folder):
    step = compiled(folder, PLACED)
    cache = 1000 * POSITION
    assert expected(step)["dram0"] == 2 * (LAYER + cache + POSITION) + ROW
    assert expected(step)["hbm0"] == 2 * (LAYER + cache + POSITION) + HEAD + ROW
    assert expected(step)["pcie0.hbm0"] == ROW
    assert step.occupied["hbm0"] == {
        "layer weights": 2 * LAYER, "KV cache": 2 * cache, "new KV": 0, "output head": HEAD,
        "runtime reserve": GB,
    }  # fmt: skip
    assert step.occupied["dram0"] == {
        "layer weights": 2 * LAYER, "KV cache": 2 * cache, "new KV": 0, "input embedding": 2 * 1000 * 1024,
    }  # fmt: skip
    flops = 2 * (LAYER // 2 - 2048) + 4 * 8 * 128 * 1000  # matrices, and attention over the context
    assert expected(step)["cpu0.flops"] == 2 * flops
    assert expected(step)["gpu0.flops"] == 2 * flops + 2 * 1000 * 1024
    assert step.plan.workload["context"] == 1000


@pytest.mark.parametrize(
    ("weights", "layers"),
    [("{hbm0: 50%, dram0: rest}", 2), ("{hbm0: 74 %, dram0: rest}", 2), ("{hbm0: 75%, dram0: 25%}", 3),
     ("{hbm0: 57 MB, dram0: rest}", 3), ("{hbm0: 56 MB, dram0: rest}", 2), ("{hbm0: 1 layer, dram0: 3 layers}", 1),
     ("{hbm0: rest}", 4), ("{hbm0: 900 GB}", 4), ("{hbm0: 0 layers, dram0: rest}", 0), ("{hbm0: 0%, dram0: all}", 0)],
)  # fmt: skip
def test_portions(folder, weights, layers):
    step = compiled(folder, PLACED, ("{hbm0: 2 layers, dram0: rest}", weights))
    assert step.occupied["hbm0"].get("layer weights", 0) == layers * LAYER
    assert step.occupied["dram0"].get("layer weights", 0) == (4 - layers) * LAYER


def test_placed_streamed_and_kv_in_host_memory(folder):
    step = compiled(folder, PLACED, ("compute: local", "compute: gpu0"), ("kv: with layer", "kv: dram0"))
    moved = expected(step)
    cache = 1000 * POSITION
    assert moved["pcie0.hbm0"] == 2 * LAYER + 4 * cache + ROW
    assert moved["pcie0.socket0"] == 4 * POSITION, "the new rows go back"
    assert step.occupied["dram0"]["KV cache"] == 4 * cache
    assert step.occupied["hbm0"]["buffers"] == 2 * LAYER + 2 * cache


def test_placed_batch_overlap_and_reserve(folder):
    step = compiled(folder, PLACED, ("batch: 1", "batch: 3"), ("reserve: 1 GB", "reserve: 0 GB"),
                    ("{buffers: 2}", "none"))  # fmt: skip
    assert expected(step)["pcie0.hbm0"] == 3 * ROW
    assert step.occupied["hbm0"]["KV cache"] == 2 * 3 * 1000 * POSITION
    assert "runtime reserve" not in step.occupied["hbm0"]
    assert step.plan.tokens == 3 and str(step.plan.overlap) == "none"


def test_formats_of_a_config_and_of_a_name(folder):
    stated = compiled(folder, PLACED, (", weights: bf16, kv: f16", ""))
    assert stated.occupied["hbm0"]["layer weights"] == 2 * LAYER, "the config says bfloat16"
    model = "{name: llama-3.1-8b:q8_0}"
    named = compiled(folder, PLACED, ("{config: ./config.json, weights: bf16, kv: f16}", model))
    assert named.plan.workload["weights"] == "q8_0" and named.plan.workload["kv"] == "f16"


def test_paths_start_from_the_plan(folder, monkeypatch, tmp_path_factory):
    (folder / "deep").mkdir()
    (folder / "deep" / "plan.yaml").write_text(changed(PLACED, ("./box", "../box"), ("./config", "../config")))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    plan, topology = load_plan(folder / "deep" / "plan.yaml")
    assert topology.title == "a box of round figures" and plan.repetitions == 5
    by_name, shipped = load_plan(Path(__file__).parent.parent / "examples/llama-3.1-70b-desktop.yaml")
    assert shipped.name == "desktop-4090" and by_name.tokens == 1


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_mark_line_ends_and_other_alphabets(folder, ends, mark):
    text = changed(HAND, ("w: {", "веса: {"), ("move: w", "move: веса"), ("[w, kv]", "[веса, kv]"))
    text = "title: 模型 ünïcode\n" + text.replace("fetch", "取")
    (folder / "plan.yaml").write_bytes((mark + text.replace("\n", ends)).encode())
    plan, topology = load_plan(folder / "plan.yaml")
    assert plan.title == "模型 ünïcode"
    assert expected(compile_step(topology, plan)) == expected(compiled(folder, HAND))
