"""Plan files: every key of both forms against numbers worked out by hand, and every mistake at its line."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.compiler import compile_step
from offload.documents import load_plan
from offload.errors import DocumentError, OffloadError
from offload.plan import UNLIMITED
from offload.schedules import schedule, serial, solo_seconds
from offload.step import loads
from offload.study import evaluate

MB, GB = 10**6, 10**9

# Round figures, sustained as fast as the peak: times are worked out in the head.
BOX = """\
title: a box of round figures
switches: {socket0: {kind: socket}, switch0: {kind: pcie_switch}}
memories:
  hbm0: {kind: hbm, capacity: 100 GB, rate: {peak: 1000 GB/s, sustained: 1000 GB/s}}
  dram0: {kind: dram, at: socket0, capacity: 200 GB, rate: {peak: 100 GB/s, sustained: 100 GB/s}}
  ssd0:
    kind: nvme
    capacity: 1 TB
    read: {rated: 5 GB/s, sustained: 5 GB/s}
    write: {rated: 4 GB/s, sustained: 4 GB/s}
processors:
  gpu0:
    kind: gpu
    memory: hbm0
    flops:
      bf16: {peak: 100 TFLOP/s, sustained: 100 TFLOP/s}
      fp8: {peak: 200 TFLOP/s, sustained: 200 TFLOP/s}
  cpu0: {kind: cpu, memory: dram0, flops: {fp16: {peak: 1 TFLOP/s, sustained: 1 TFLOP/s}}}
links:
  pcie0: {between: [socket0, hbm0], rate: {peak: 20 GB/s, sustained: {pinned: 20 GB/s, pageable: 5 GB/s}}}
  up0: {between: [socket0, switch0], rate: {peak: 10 GB/s, sustained: 10 GB/s}}
  down0: {between: [switch0, hbm0], rate: {peak: 10 GB/s, sustained: 10 GB/s}}
  m2: {between: [ssd0, socket0], rate: {peak: 8 GB/s, sustained: 8 GB/s}}
"""

HAND = """\
topology: ./box.yaml
tensors:
  w: {bytes: 200 MB, home: dram0}
  kv: {bytes: 100 MB, home: hbm0}
repeat: 10
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 20 GFLOP, reads: [w, kv], after: fetch}
overlap: {buffers: 2}
"""

# Four layers of 9,439,232 parameters; the head has 1,024,000 and the final norm 1,024.
MODEL = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LAYER = 2 * (2 * 1024 * 1024 + 2 * 512 * 1024 + 3 * 2048 * 1024 + 2 * 1024)
HEAD = 2 * (1000 * 1024 + 1024)
POSITION = 2 * 4 * 128 * 2  # key and value, KV heads, head size, bytes
ROW = 2 * 1024

PLACED = """\
topology: ./box.yaml
model: {config: ./config.json, weights: bf16, kv: f16}
workload: {phase: decode, batch: 1, context: 1000}
placement:
  weights: {hbm0: 2 layers, dram0: rest}
  compute: local
  kv: with layer
  reserve: 1 GB
overlap: {buffers: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "box.yaml").write_text(BOX)
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    return tmp_path


def changed(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return text


def compiled(folder: Path, text: str, *edits: tuple[str, str]):
    path = folder / "plan.yaml"
    path.write_text(changed(text, *edits), encoding="utf-8")
    plan, topology = load_plan(path)
    return compile_step(topology, plan)


def expected(step) -> dict[str, float]:
    return {name: load for name, load in loads(step, least=False).items() if load}


def study_of(folder: Path, text: str, *edits: tuple[str, str]):
    step = compiled(folder, text, *edits)
    return evaluate(step.topology, step.plan)


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


BLOCKS = """\
topology: ./box.yaml
tensors:
  w: {bytes: 200 MB, home: dram0}
  x: {bytes: 50 MB, home: dram0}
blocks:
  - tasks:
      first: {compute: cpu0, reads: x}
  - repeat: 3
    tasks:
      fetch: {move: w, to: hbm0}
      layer: {compute: gpu0, reads: w, after: [fetch, first]}
"""


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


CHAIN = """\
topology: ./box.yaml
tensors:
  a: {bytes: 100 MB, home: dram0}
  b: {bytes: 1 GB, home: hbm0}
tasks:
  low: {compute: cpu0, reads: a}
  high: {compute: gpu0, reads: b, after: low}
tokens: 4
"""


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


# --- refused ---

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 8)
)
TASKS = HAND[HAND.index("tasks") : HAND.index("overlap")]
LAYER_LINE = "  layer: {compute: gpu0, flops: 20 GFLOP, reads: [w, kv], after: fetch}\n"

MANY_NAMES = HAND.replace("repeat: 10", "repeat: 500").replace(
    LAYER_LINE, "".join(f"  t{i}: {{compute: gpu0, after: fetch}}\n" for i in range(20)) + LAYER_LINE)  # fmt: skip
# what, text, edits, line, what the message must hold (what is wrong, and the fix)
REFUSED = [
    ("bytes as a bare power", HAND, [("200 MB", "1e9")], 3, ['"1e9" has no unit', '"1 GB"']),
    ("bytes as a bare number", HAND, [("200 MB", "200")], 3, ['"200" has no unit', '"200 MB"']),
    ("bytes below nothing", HAND, [("200 MB", "-200 MB")], 3, ["negative"]),
    ("bytes with a comma", HAND, [("200 MB", "1,008 MB")], 3, ["comma"]),
    ("bytes beyond all", HAND, [("200 MB", "1" + "0" * 30 + " B")], 3, ["too large"]),
    ("a gigabit of bytes", HAND, [("200 MB", "200 G")], 3, ["GB"]),
    ("flop beyond all", HAND, [("20 GFLOP", "1e300 FLOP")], 8, ["too large"]),
    ("flop without unit", HAND, [("20 GFLOP", "20")], 8, ["has no unit", "GFLOP"]),
    ("an unknown tensor to move", HAND, [("move: w", "move: W")], 7, ['no tensor "W"', 'Did you mean "w"?']),
    ("an unknown tensor to read", HAND, [("[w, kv]", "[w, kvv]")], 8, ['no tensor "kvv"', "reads[1]", '"kv"?']),
    ("an unknown tensor to write", HAND, [("after: f", "writes: kw, after: f")], 8, ['no tensor "kw"', '"w"']),
    ("an unknown memory", HAND, [("to: hbm0", "to: HBM0")], 7, ['no memory "HBM0"', 'Did you mean "hbm0"?']),
    ("a processor as memory", HAND, [("to: hbm0", "to: gpu0")], 7, ['"gpu0" is a processor', "hbm0"]),
    ("an unknown home", HAND, [("home: dram0", "home: dram")], 3, ['no memory "dram"', 'Did you mean "dram0"?']),
    ("an unknown processor", HAND, [("compute: gpu0", "compute: GPU0")], 8, ['no processor "GPU0"', '"gpu0"']),
    ("a memory as processor", HAND, [("compute: gpu0", "compute: hbm0")], 8, ['"hbm0" is a memory', "gpu0"]),
    ("an unknown format", HAND, [("after: f", "format: fp64, after: f")], 8, ['"fp64"', "bf16, fp8"]),
    ("after an unknown task", HAND, [("after: fetch", "after: fetsh")], 8, ['no task "fetsh"', '"fetch"']),
    ("after the previous unknown", HAND, [("after: fetch", "after: [previous.fetsh]")], 8, ["after[0]", '"fetch"']),
    ("after the previous of nothing", HAND, [("after: fetch", "after: previous")], 8, ['"previous.NAME"']),
    ("after itself", HAND, [("after: fetch", "after: layer")], 8, ["wait for itself", '"previous.layer"']),
    ("a circle", HAND, [("to: hbm0}", "to: hbm0, after: layer}")], 7,
     ['"fetch" waits for "layer", which waits for "fetch"', "Drop one"]),
    ("after a later block", BLOCKS, [("reads: x}", "reads: x, after: layer}")], 7, ["in a later block"]),
    ("a move to where it lives", HAND, [("to: hbm0", "to: dram0")], 7, ['"w" is in dram0 already', "drop"]),
    ("a second move to the same place", HAND, [(LAYER_LINE, "  again: {move: w, to: hbm0, after: fetch}\n")], 8,
     ['"w" is in hbm0 already']),
    ("a read from a drive", HAND, [("home: hbm0", "home: ssd0")], 8, ["ssd0 is a drive", "Move it first, to hbm0"]),
    ("a write to a drive", HAND, [("after: f", "writes: kv, after: f"), ("[w, kv]", "w"), ("home: hbm0", "home: ssd0")],
     8, ["cannot write ssd0", "Move it first"]),
    ("via an unknown node", HAND, [("to: hbm0}", "to: hbm0, via: socket}")], 7, ['no memory or switch "socket"']),
    ("via a link", HAND, [("to: hbm0}", "to: hbm0, via: [pcie0]}")], 7, ["the link between socket0 and hbm0"]),
    ("via a drive", HAND, [("to: hbm0}", "to: hbm0, via: ssd0}")], 7, ["only host DRAM may stage"]),
    ("a move named like a processor", HAND, [("fetch: {", "gpu0: {"), ("after: fetch", "after: gpu0")], 7,
     ["is a processor", "another name"]),
    ("a task named previous", HAND, [("fetch: {", "previous.x: {"), ("after: fetch", "after: layer2")], 7, ["rename"]),
    ("a range of names", HAND, [("  kv:", "  kv0..7:"), ("[w, kv]", "w")], 4, ["range", "write each name out"]),
    ("a list as text", BLOCKS + "      more: {compute: gpu0, reads: 'w, x'}\n", [], 12,
     ["Several are a list: [w, x]"]),
    ("neither move nor compute", HAND, [("compute: gpu0, ", "")], 8, ['"move: TENSOR" or "compute: PROCESSOR"']),
    ("both move and compute", HAND, [("compute: gpu0", "compute: gpu0, move: w")], 8, ["split it in two"]),
    ("no tasks", HAND, [(TASKS, "tasks: {}\n")], 6, ["there is no task"]),
    ("tasks of nothing", HAND, [(TASKS, "tasks:\n")], 6, ["value is missing"]),
    ("tasks as a list", HAND, [(TASKS, "tasks: [a, b]\n")], 6, ["must be a map, not a list"]),
    ("no blocks", HAND, [(TASKS, "blocks: []\n"), ("repeat: 10\n", "")], 5, ["there is no block"]),
    ("tasks and blocks", HAND + "blocks: [{tasks: {a: {compute: cpu0}}}]\n", [], 10, ['give "tasks"', 'or "blocks"']),
    ("blocks with a repeat at the top", BLOCKS + "repeat: 3\n", [], 12, ["each block has its own repeat"]),
    ("neither tasks nor blocks", HAND, [(TASKS, "")], 1, ['needs "tasks" or "blocks"']),
    ("repeat nothing", HAND, [("repeat: 10", "repeat: 0")], 5, ["at least 1"]),
    ("repeat without end", HAND, [("repeat: 10", "repeat: 1000000000000")], 5, ["at most 20000"]),
    ("names times tasks", MANY_NAMES, [], 5, ["11,000 tasks", "of 22 names", "the 4,545 that"]),
    ("more names than can be timed", HAND, [(LAYER_LINE, "".join(
        f"  t{i}: {{compute: gpu0, after: fetch}}\n" for i in range(299)) + LAYER_LINE)], 6,
     ["301 tasks are written", "300 names", "once, with repeat"]),
    ("more than can be laid out", HAND, [("repeat: 10", "repeat: 20000")], 5, ["40,000 tasks", "more bytes each"]),
    ("repeat in exponents", HAND, [("repeat: 10", "repeat: 1e1")], 5, ["whole number"]),
    ("no buffers", HAND, [("buffers: 2", "buffers: 0")], 9, ['not "0"', "1 or more"]),
    ("no buffers of a move", HAND, [("to: hbm0}", "to: hbm0, buffers: 0}")], 7, ["at least 1"]),
    ("overlap simulated", HAND, [("{buffers: 2}", "simulate")], 9, ["not built yet", "none, full or {buffers: 2}"]),
    ("overlap of half", HAND, [("{buffers: 2}", "1.5")], 9, ['not "1.5"', "none, full or {buffers: 2}"]),
    ("overlap of two keys", HAND, [("buffers: 2", "buffers: 2, depth: 3")], 9, ["must be none, full or {buffers: 2}"]),
    ("overlap off", HAND, [("{buffers: 2}", "off")], 9, ['"off" is no overlap', "none, full or {buffers: 2}"]),
    ("a rhythm for later", HAND, [("to: hbm0}", "to: hbm0, every: prompt}")], 7, ['"prompt"', '"4 steps"']),
    ("a rhythm of nothing", HAND, [("to: hbm0}", "to: hbm0, every: 0 steps}")], 7, ['"0 steps"', '"layer"']),
    ("memory of an unknown kind", HAND, [("to: hbm0}", "to: hbm0, host_memory: mapped}")], 7, ["pageable, pinned"]),
    ("shares beyond one", HAND, [("home: dram0", "home: {dram0: 50%, hbm0: 60%}")], 3, ["1.1 times"]),
    ("shares below one", HAND, [("home: dram0", "home: {dram0: 50%, hbm0: 40%}")], 3, ["10 %", "rest"]),
    ("two rests of a tensor", HAND, [("home: dram0", "home: {dram0: rest, hbm0: rest}")], 3, ["takes the rest"]),
    ("no home", HAND, [("home: dram0", "home: {}")], 3, ["empty map", "{dram0: 50%, hbm0: rest}"]),
    ("homes as a list", HAND, [("home: dram0", "home: [dram0, hbm0]")], 3, ["not a list", "{dram0: 50%, hbm0: rest}"]),
    ("a home without a part", HAND, [("home: dram0", "home: {dram0: 50%, hbm0}")], 3, ["comma inside { }"]),
    ("a part without a unit", HAND, [("home: dram0", "home: {dram0: 0.5, hbm0: rest}")], 3, ['"50%"']),
    ("Norway as a truth", HAND, [("home: dram0", "home: dram0, shared: NO")], 3, ["false"]),
    ("tokens of nothing", HAND + "tokens: 0\n", [], 10, ["at least 1"]),
    ("tokens beyond all", HAND + "tokens: 1" + "0" * 30 + "\n", [], 10, ["larger than any number"]),
    ("steps in flight of nothing", HAND + "in_flight: 0\n", [], 10, ["at least 1"]),
    ("a task twice", HAND, [("layer:", "fetch:")], 8, ["given twice, on lines 7 and 8"]),
    ("a key twice", HAND, [("home: dram0", "home: dram0, home: hbm0")], 3, ["given twice"]),
    ("a hour of batches", PLACED, [("batch: 1", "batch: 1:30")], 3, ["base 60", "without colons"]),
    ("half a batch", PLACED, [("batch: 1", "batch: 1.5")], 3, ["whole number"]),
    ("no batch", PLACED, [("batch: 1", "batch: 0")], 3, ["at least 1"]),
    ("a batch beyond all", PLACED, [("batch: 1", "batch: 1" + "0" * 30)], 3, ["larger than any number"]),
    ("a context in thousands", PLACED, [("context: 1000", "context: 1k")], 3, ["whole number"]),
    ("a context with a comma", PLACED, [("context: 1000", "context: 1,000")], 3, ["comma inside { }"]),
    ("a percent twice", PLACED, [("2 layers", "50%%")], 5, ['"50%%"', '"50%"']),
    ("a percent beyond all", PLACED, [("2 layers", "150%")], 5, ['"150%"', "up to 100"]),
    ("percents beyond all", PLACED, [("2 layers, dram0: rest", "75%, dram0: 50%")], 5,
     ["3 in hbm0 and 2 in dram0", "4 layers", "Place 1 fewer"]),
    ("layers without a unit", PLACED, [("2 layers", "2")], 5, ['"2 layers"', '"2%"', '"2 GB"']),
    ("layers below nothing", PLACED, [("2 layers", "-2 layers")], 5, ["fewer layers than none", '"38 layers"']),
    ("half a layer", PLACED, [("2 layers", "2.5 layers")], 5, ["whole layers"]),
    ("layers of another spelling", PLACED, [("2 layers", "2 Layers")], 5, ['Write "38 layers"']),
    ("more layers than there are", PLACED, [("2 layers", "5 layers")], 5, ["5 in hbm0", "4 layers", "1 fewer"]),
    ("fewer layers than there are", PLACED, [("rest", "1 layer")], 5, ["3 of 4 layers", "MEMORY: rest"]),
    ("two rests", PLACED, [("2 layers", "rest")], 5, ["hbm0 already takes the rest"]),
    ("a portion in words", PLACED, [("2 layers", "some")], 5, ['"some" is no portion', '"38 layers"']),
    ("an unknown memory of weights", PLACED, [("hbm0: 2", "HBM0: 2")], 5, ['no memory "HBM0"', '"hbm0"']),
    ("a processor for weights", PLACED, [("hbm0: 2", "gpu0: 2")], 5, ['"gpu0" is a processor', "hbm0"]),
    ("weights as text", PLACED, [("{hbm0: 2 layers, dram0: rest}", "hbm0")], 5, ["{hbm0: 38 layers, dram0: rest}"]),
    ("weights of nothing", PLACED, [("{hbm0: 2 layers, dram0: rest}", "{}")], 5, ["empty map"]),
    ("compute on a memory", PLACED, [("compute: local", "compute: hbm0")], 6, ['"hbm0" is a memory', "gpu0"]),
    ("compute Local", PLACED, [("compute: local", "compute: Local")], 6, ['Did you mean "local"?']),
    ("KV in bytes", PLACED, [("kv: with layer", "kv: {ssd0: 1 GB, dram0: rest}")], 7, ['"20 layers"', '"60%"']),
    ("KV on a processor", PLACED, [("kv: with layer", "kv: gpu0")], 7, ["its memory is hbm0"]),
    ("KV nowhere", PLACED, [("kv: with layer", "kv: with_layer")], 7, ['Did you mean "with layer"?']),
    ("reserve without unit", PLACED, [("reserve: 1 GB", "reserve: 1")], 8, ["has no unit", '"1 GB"']),
    ("reserve below nothing", PLACED, [("reserve: 1 GB", "reserve: -1 GB")], 8, ["negative"]),
    ("an unknown weight format", PLACED, [("bf16", "q4")], 2, ['no weight format "q4"', "q4_k_m"]),
    ("an unknown KV format", PLACED, [("kv: f16", "kv: f15")], 2, ['"f15"', '"f16"']),
    ("two formats", PLACED, [("config: ./config.json, weights: bf16", 'name: "llama-3.1-8b:q8_0", weights: bf16')], 2,
     ["q8_0", "drop one"]),
    ("an unknown model", PLACED, [("config: ./config.json", "name: llama-3-8b")], 2, ['"llama-3-8b"', "llama-3.1-8b"]),
    ("name and config", PLACED, [("config:", "name: llama-3.1-8b, config:")], 2,
     ["name and config are both given"]),
    ("no config there", PLACED, [("./config.json", "there/config.json")], 2, ["there/config.json", "No such file"]),
    ("a model as text", PLACED, [("{config: ./config.json, weights: bf16, kv: f16}", "llama-3.1-8b")], 2,
     ["must be a map", "Keys of a model: blocks, config, gguf, give, kv, like, name, row, weights"]),
    ("no model", PLACED, [("model: {config: ./config.json, weights: bf16, kv: f16}\n", "")], 1, ['"model" is missing']),
    ("no placement", PLACED[: PLACED.index("placement")], [], 1, ['"placement" is missing']),
    ("no topology", PLACED, [("topology: ./box.yaml\n", "")], 1, ['"topology" is missing']),
    ("an unknown topology", PLACED, [("./box.yaml", "desktop-4091")], 1, ['Did you mean "desktop-4090"?']),
    ("no topology there", PLACED, [("./box.yaml", "boxes/box.yaml")], 1, ["boxes/box.yaml", "no such file"]),
    ("a folder as topology", PLACED, [("./box.yaml", "./")], 1, ["is a folder"]),
    ("a number as topology", PLACED, [("./box.yaml", "4090")], 1, ['Quote it: "4090"']),
    ("both forms", HAND + "model: {config: ./config.json}\n", [], 2, ['"tensors" and "model" do not go together']),
    ("tokens of a placement", PLACED + "tokens: 4\n", [], 10, ["plan by hand", "batch"]),
    ("in flight at the top", PLACED + "in_flight: 4\n", [], 10, ["plan by hand", '"workload"']),
    ("neither form", "topology: gh200\n", [], 1, ['"model" and "placement", or "tensors" and "tasks"']),
    ("a wrong title", PLACED + "title: 5\n", [], 10, ["must be text", '"5"']),
    ("a tab", PLACED, [("  compute", "\tcompute")], 6, ["tab", "spaces"]),
    ("two documents", PLACED + "---\na: 1\n", [], 10, ["second document"]),
    ("a full-width colon", PLACED, [("workload:", "workload\uff1a")], 3, ["full-width colon"]),
    ("an alias bomb", PLACED + BOMB, [], 15, ["100,000 values"]),
    ("a list", "- topology: gh200\n", [], 1, ["list", "keys and values"]),
    ("nothing", "", [], 1, ["empty"]),
    ("another file's text", "hello there\n", [], 1, ["without keys"]),
    # keys that other versions may have: never ignored
    ("attention", PLACED, [("  kv:", "  attention: cpu0\n  kv:")], 7, ["runs the layers itself", "Drop it"]),
    ("access", PLACED, [("  kv:", "  access: copied\n  kv:")], 7, ['"copied"', "copy", "in_place"]),
    ("experts", PLACED, [("  kv:", "  experts: {home: dram0, hit: 0.9}\n  kv:")], 7, ['unknown key "hit"']),
    ("cache", PLACED, [("  kv:", "  cache: dram0\n  kv:")], 7, ["how much of a prompt", "cached: 80%"]),
    ("cached", PLACED, [("batch: 1", "batch: 1, cached: 80%")], 3, ['"cached" belongs to phase prefill and generate']),
    ("micro-batches", PLACED, [("batch: 1", "batch: 1, micro_batches: 4")], 3,
     ['"micro_batches" belongs to phase train', "this is decode"]),
    ("a prompt", PLACED, [("batch: 1", "batch: 1, prompt: 4")], 3, ['"prompt" belongs to phase prefill and generate']),
    ("prefill", PLACED, [("decode", "prefill")], 3, ['phase prefill needs "prompt"', "prompt: 2048"]),
    ("train", PLACED, [("decode", "train"), (", kv: f16", "")], 4, ['has "training" instead', "optimizer: dram0"]),
    ("generate", PLACED, [("decode", "generate"), ("context", "prompt")], 3,
     ['generate needs "generate"', "prompt: 512"]),
    ("a context that grows", PLACED, [("decode", "generate"), ("1000", "9, prompt: 5, generate: 3")], 3,
     ['"context" belongs to phase decode and prefill']),
    ("no context at all", PLACED, [("context: 1000", "context: 0")], 3, ["counts the new position"]),
    ("trains", PLACED, [("decode", "trains")], 3, ['unknown "trains"', "decode", 'mean "train"']),
    ("a GGUF file", PLACED, [("config: ./config.json", "gguf: m.gguf")], 2,
     ["m.gguf: No such file", "starts from this file"]),
    ("a config as GGUF", PLACED, [("config: ./config.json", "gguf: ./config.json")], 2,
     ["no GGUF file: it does not begin with GGUF"]),
    ("two models", PLACED, [("config: ./config.json", "config: ./config.json, gguf: m.gguf")], 2,
     ["config and gguf are both given"]),
    ("stated bytes", PLACED, [("weights: bf16", "weights: {format: bf16, bytes: 3 GB}")], 2, ["text, not a map"]),
    ("a cost of a token", PLACED + "costs: {sync: {each: token, time: 3 us}}\n", [], 10, ['unknown "token"', "layer"]),
    ("a cost without unit", PLACED + "costs: {sync: {each: step, time: 3}}\n", [], 10, ["has no unit", '"3 ms"']),
    ("a cost by hand", HAND + "costs: {sync: {each: step, time: 3 ms}}\n", [], 10,
     ["costs belong to a plan by placement", "time: 20 us"]),
    ("a cost named layer", PLACED + "costs: {layer: {each: step, time: 3 ms}}\n", [], 10, ["a task of the model"]),
    ("a collective over one", HAND, [(LAYER_LINE, "  sum: {collective: all_reduce, of: w, over: hbm0}\n")], 8,
     ["a single memory", '"hbm0..7"']),
    ("a collective over what is no memory", HAND, [(LAYER_LINE, "  sum: {collective: all_reduce, of: w, over: hbm}\n")],
     8, ['no memory "hbm"', 'Did you mean "hbm0"?']),
    ("a collective over too many", HAND,
     [(LAYER_LINE, "  sum: {collective: all_reduce, of: w, over: hbm0..99999999}\n")],
     8, ['the range "0..99999999" is longer than the 1024 names']),
    ("a collective of another kind", HAND, [(LAYER_LINE, "  sum: {collective: gather, of: w, over: hbm0..1}\n")], 8,
     ['unknown "gather"', "all_reduce"]),
    ("a time below the least", HAND, [("after: f", "time: {sustained: 1 ms, peak: 2 ms}, after: f")], 8,
     ["the least that it can take"]),
    ("a time that is none", HAND, [("after: f", "time: {peak: 2 ms}, after: f")], 8, ['needs "sustained"']),
    ("a range of processors", HAND, [("gpu0", "gpu0..3")], 8, ['no processor "gpu1"']),
    ("a range that runs backwards", HAND, [("to: hbm0", "to: hbm3..0")], 7, ["runs backwards", '"0..3"']),
    ("a key of the other task", HAND, [("after: f", "to: hbm0, after: f")], 8, ['unknown key "to"', "of a compute"]),
    ("a slip of the pen", HAND, [("reads:", "read:")], 8, ['unknown key "read"', 'Did you mean "reads"?']),
]  # fmt: skip


def refused(folder: Path, text: str, capsys) -> str:
    """What the command says on standard error; it printed nothing else and ended as for bad input."""
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["step", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(path) in captured.err.splitlines()[0]
    for sign in ("Traceback", "internal error", "pydantic", "tag:yaml", "None", "Error("):
        assert sign not in captured.err
    return captured.err


@pytest.mark.parametrize(("what", "text", "edits", "line", "parts"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused_at_its_line_with_the_fix(folder, capsys, what, text, edits, line, parts):
    said = refused(folder, changed(text, *edits), capsys)
    places = [one for one in said.splitlines() if one.startswith(f"  line {line}, column ")]
    assert places, said
    for part in parts:
        assert any(part in one for one in places), said
    if what not in ("a task named previous", "bytes with a comma"):
        assert "1 mistake\n" in said, said


def test_all_mistakes_at_once_by_placement(folder, capsys):
    text = changed(
        PLACED, ("kv: f16", "kvv: f16"), ("batch: 1", "batch: 1:30"), ("2 layers", "2"), ("dram0: rest", "ram: rest"),
        ("local", "cpu1"), ("with layer", "hbm"), ("{buffers: 2}", "simulate"),
    )  # fmt: skip
    said = refused(folder, text + "cost: {}\n", capsys)
    assert "5 mistakes\n" in said, "what hangs on a map with a mistake waits"
    assert [f"line {n}," in said for n in (2, 3, 5, 9, 10)] == [True] * 5
    names = changed(text, ("hbm0: 2", "hbm0: 2 layers"), ("kvv", "kv"), ("kv: f16", "kv: f17"), ("bf16", "q4"))
    said = refused(folder, names, capsys)
    for part in ('"f17"', '"q4"', "base 60", '"ram"', '"cpu1"', '"hbm"', '"simulate"'):
        assert part in said
    assert "7 mistakes\n" in said


def test_all_mistakes_at_once_by_hand(folder, capsys):
    text = changed(
        HAND, ("200 MB", "200"), ("home: hbm0", "home: hbm1"), ("repeat: 10", "repeat: 0"), ("to: hbm0", "to: hbm2"),
        ("[w, kv], after: fetch", "[w, q], after: fetsh"), ("{buffers: 2}", "{buffers: -1}"),
    )  # fmt: skip
    said = refused(folder, text, capsys)
    assert [one.split(",")[0].strip() for one in said.splitlines()[1:]] == [
        "line 3", "line 4", "line 5", "line 7", "line 8", "line 8", "line 9",
    ]  # fmt: skip


def test_mistakes_of_the_topology_too(folder, capsys):
    (folder / "box.yaml").write_text(BOX.replace("20 GB/s", "20").replace("kind: hbm", "kind: hbn"))
    (folder / "plan.yaml").write_text(HAND)
    with pytest.raises(DocumentError) as caught:
        load_plan(folder / "plan.yaml")
    assert caught.value.file == str(folder / "box.yaml"), "only the topology is wrong"
    said = refused(folder, changed(HAND, ("200 MB", "200")), capsys)
    assert "2 mistakes\n" in said and "line 1, column 11, topology:" in said and '"200" has no unit' in said
    assert "box.yaml: 3 mistakes" in said and '"hbn"' in said


def test_a_circle_of_three_is_shown_from_its_first(folder, capsys):
    tasks = "tasks:\n  a: {compute: cpu0, after: c}\n  b: {compute: cpu0, after: a}\n  c: {compute: gpu0, after: [b]}\n"
    said = refused(folder, "topology: ./box.yaml\n" + tasks, capsys)
    assert "line 3, column 29, tasks.a.after:" in said
    assert '"a" waits for "c", which waits for "b", which waits for "a": a circle' in said


def test_what_is_no_file(folder, capsys):
    blocked = folder / "blocked.yaml"
    blocked.write_text(HAND)
    blocked.chmod(0)
    cases = [(folder / "none.yaml", "no such file"), (folder, "folder"), (Path("x\0.yaml"), "no file can have such")]
    if not os.access(blocked, os.R_OK):
        cases.append((blocked, "cannot be read"))
    for path, part in cases:
        with pytest.raises(OffloadError, match=part):
            load_plan(path)
    (folder / "folder.yaml").mkdir()
    assert cli.main(["step", str(folder / "folder.yaml")]) == 2
    assert "is a folder" in capsys.readouterr().err
    (folder / "latin.yaml").write_bytes("title: Größe\n".encode("latin-1"))
    assert cli.main(["step", str(folder / "latin.yaml")]) == 2
    assert "latin.yaml" in (said := capsys.readouterr().err) and "UTF-8" in said


@pytest.mark.parametrize("config", ["[]", "{", '{"model_type": "bert"}', '{"model_type": "llama"}', "\0"])
def test_a_config_that_is_none(folder, config, capsys):
    (folder / "config.json").write_text(config)
    said = refused(folder, PLACED, capsys)
    assert "line 2, column 17, model.config:" in said and "config.json" in said


def test_a_server_without_a_way(folder, capsys):
    """No link to the GPU: streaming to it is refused where the plan asks for it."""
    lines = [line for line in BOX.splitlines() if not line.startswith(("  pcie0", "  up0"))]
    (folder / "box.yaml").write_text("\n".join(lines))
    said = refused(folder, changed(PLACED, ("local", "gpu0")), capsys)
    assert "line 5" in said and "no route from dram0 to hbm0" in said
    said = refused(folder, HAND, capsys)
    assert "line 7, column 24, tasks.fetch.to: no route from dram0 to hbm0" in said


def test_two_processors_of_one_memory_must_be_chosen(folder, capsys):
    text = BOX.replace("  cpu0: {", "  npu0: {kind: gpu, memory: dram0}\n  cpu0: {")
    (folder / "box.yaml").write_text(text)
    said = refused(folder, PLACED, capsys)
    assert "line 6, column 12, placement.compute: dram0 has 2 processors (npu0, cpu0)" in said


# --- whatever is written ---

WORDS = (
    "0 -1 1e9 1:30 NO ~ 1000000000000000000000000000000 2 3 hbm0 dram0 ssd0 gpu0 cpu0 w kv layer fetch previous.layer "
    "previous.fetch local rest none full simulate step 50% 100% 0% 5% *x &a <<: {} [] {a} [w,w] .nan .inf 0x10 010 "
    "bf16 fp8 q4_k_m q8_0 f16 é 取 \ufeff \u00a0 \t # : , {{ }} ' \" | > - ? ! % @ ` 12_000"
).split(" ") + ["4 steps", "2 layers", "0 layers", "1 GB", "0 B", "7 kB", "1 PB", "with layer", "0 FLOP", ""]
TOKENS = ("topology tensors tasks repeat overlap bytes home move to compute flops reads writes after every via buffers "
          "host_memory shared what format blocks tokens in_flight model workload placement weights config name batch "
          "context phase kv reserve title $schema").split()  # fmt: skip


@st.composite
def mutated(draw) -> str:
    """A plan that worked, with one to four slips: lines lost, doubled or swapped, words and signs changed."""
    text = draw(st.sampled_from([HAND, HAND, BLOCKS, CHAIN, PLACED, PLACED]))
    pick = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        row = pick.randrange(len(lines))
        kind = pick.choice("word word word word sign line twice swap cut".split())
        if kind == "word":
            parts = lines[row].replace("{", " { ").replace("}", " } ").replace(",", " , ").split(" ")
            spots = [n for n, part in enumerate(parts) if part.strip()]
            if spots:
                spot = pick.choice(spots)
                word = pick.choice(WORDS)
                parts[spot] = pick.choice(TOKENS) + ":" if parts[spot].endswith(":") and pick.random() < 0.7 else word
            lines[row] = " ".join(parts)
        elif kind == "sign":
            spot = pick.randrange(len(lines[row]) + 1)
            lines[row] = lines[row][:spot] + pick.choice(WORDS) + lines[row][spot + pick.randrange(3) :]
        elif kind == "line":
            del lines[row]
        elif kind == "twice":
            lines.insert(row, lines[row])
        elif kind == "swap":
            other = pick.randrange(len(lines))
            lines[row], lines[other] = lines[other], lines[row]
        else:
            lines = lines[:row]
        text = "\n".join(lines)
    return text


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    (folder / "box.yaml").write_text(BOX)
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


def refused_or_answered(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    try:
        plan, topology = load_plan(path)
        study = evaluate(topology, plan)
    except OffloadError as error:
        assert str(error) and "Traceback" not in str(error)
        return
    figures = [
        study.floor.seconds, study.floor_sustained.seconds, study.serial.seconds, study.serial.cold_seconds,
        study.overlapped.seconds, study.overlapped.low, study.overlapped.high, study.overlapped.cold_seconds,
        *(row.load for row in study.resources), *(row.least for row in study.resources),
        *(row.used for row in study.memory), *(move.bytes for move in study.moves),
    ]  # fmt: skip
    assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
    assert study.floor.seconds <= study.overlapped.seconds * (1 + 1e-9) <= study.serial.seconds * (1 + 1e-8)
    assert study.floor.cold_seconds <= study.overlapped.cold_seconds * (1 + 1e-9)


@settings(max_examples=300)
@given(text=mutated())
def test_a_mutated_plan_is_refused_or_answered(room, text):
    refused_or_answered(room / "plan.yaml", text)


@st.composite
def written(draw) -> str:
    """A plan by hand in which every key has a value that it may have; orders and places may still contradict."""
    pick = random.Random(draw(st.integers(0, 2**32)))
    homes = ["dram0", "hbm0", "ssd0", "{dram0: 50%, hbm0: rest}", "{ssd0: 1 MB, dram0: rest}"]
    names = ["w", "x", "y"][: pick.randint(1, 3)]
    lines = ["topology: ./box.yaml", "tensors:"]
    for name in names:
        size = pick.choice(["200 MB", "3 MB", "1 GB", "1 MB"])
        shared = pick.choice(["", ", shared: true"])
        lines.append(f"  {name}: {{bytes: {size}, home: {pick.choice(homes)}{shared}}}")
    lines.append("blocks:")
    earlier: list[str] = []
    for _ in range(pick.randint(1, 3)):
        lines += [f"- repeat: {pick.choice([1, 1, 2, 5])}", "  tasks:"]
        tasks = [f"t{n}" for n in range(pick.randint(1, 4))]
        for task in tasks:
            others = [*tasks[: tasks.index(task)], *earlier]
            after = [pick.choice(["", "", "previous."]) + pick.choice(others) for _ in others[:pick.randint(0, 2)]]
            more = f", after: [{', '.join(dict.fromkeys(after))}]" if after else ""
            more += pick.choice(["", "", "", ", every: step", ", every: 3 steps", ", every: layer"])
            if pick.random() < 0.5:
                more += pick.choice(["", ", buffers: 1", ", buffers: 3", ", host_memory: pageable", ", via: socket0"])
                to = pick.choice(["hbm0", "hbm0", "dram0"])
                lines.append(f"    {task}: {{move: {pick.choice(names)}, to: {to}{more}}}")
            else:
                reads = pick.sample(names, pick.randint(0, len(names)))
                writes = pick.sample(names, pick.randint(0, 1))
                flops = pick.choice(["", ", flops: 1 TFLOP, format: bf16", ", flops: 20 GFLOP"])
                lines.append(f"    {task}: {{compute: {pick.choice(['gpu0', 'gpu0', 'cpu0'])}{flops}, "
                             f"reads: [{', '.join(reads)}], writes: [{', '.join(writes)}]{more}}}")  # fmt: skip
        earlier += [task for task in tasks if task not in earlier]
    lines += [f"overlap: {pick.choice(['none', 'full', '1', '2', '3'])}", f"in_flight: {pick.choice([1, 1, 2])}"]
    return "\n".join(lines) + "\n"


@settings(max_examples=200)
@given(text=written())
def test_a_plan_of_possible_values_is_refused_or_answered(room, text):
    refused_or_answered(room / "plan.yaml", text)


# --- by hand: what only a compiled step would find ---

TO_SSD = "  fetch: {move: w, to: ssd0}\n  count: {compute: cpu0, reads: [kv], after: fetch}\n"
TWO_BLOCKS = """\
topology: ./box.yaml
tensors:
  w: {bytes: 200 MB, home: dram0}
blocks:
  - tasks: {fetch: {move: w, to: hbm0, buffers: 2}}
  - tasks:
      again: {move: w, to: hbm0, after: fetch}
  - tasks:
      fetch: {move: w, to: hbm0, buffers: 3}
"""


@pytest.mark.parametrize(
    "changes, line, parts",
    [
        ([("reads: [w, kv]", "reads: [kv, w, kv]")], 8, ["tasks.layer.reads[2]", '"kv" is given twice']),
        ([("reads: [w, kv]", "writes: [kv, kv]")], 8, ["tasks.layer.writes[1]", '"kv" is given twice']),
        ([("after: fetch", "after: [fetch, fetch]")], 8, ["tasks.layer.after[1]", '"fetch" is given twice']),
        ([("to: hbm0}", "to: hbm0, via: [socket0, socket0]}")], 7, ["tasks.fetch.via[1]", "given twice"]),
        ([("to: hbm0}", "to: hbm0, via: []}")], 7, ["tasks.fetch.via", "an empty `via`"]),
        ([("to: hbm0}", "to: hbm0, via: dram0}")], 7, ["tasks.fetch.via", "the move starts at dram0"]),
        ([("after: fetch}", "after: fetch}\n  again: {move: w, to: hbm0, after: layer}")], 9,
         ["tasks.again.to", "in hbm0 already"]),
        ([("  fetch: {move: w, to: hbm0}\n", TO_SSD), ("after: fetch}\noverlap", "after: count}\noverlap")], 9,
         ["tasks.layer.reads[0]", "gpu0 cannot read ssd0"]),
    ],
)  # fmt: skip
def test_by_hand_at_its_line(folder, capsys, changes, line, parts):
    text = HAND
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    said = refused(folder, text, capsys)
    assert f"line {line}, " in said and all(part in said for part in parts), said


def test_by_hand_across_blocks(folder, capsys):
    said = refused(folder, TWO_BLOCKS, capsys)
    assert "line 7, column 28, blocks[1].tasks.again.to: \"w\" is in hbm0 already" in said
    assert "line 9, column 43, blocks[2].tasks.fetch.buffers" in said and "2 buffers, this one 3" in said


def test_unknown_names_are_told_with_every_other_mistake(folder, capsys):
    text = HAND.replace("to: hbm0}", "to: hbm0, after: nobody}")
    text = text.replace("20 GFLOP, reads: [w, kv], after: fetch", "20, reads: [v], after: nothing")
    said = refused(folder, text, capsys)
    assert "4 mistakes" in said
    for part in ('no task "nobody"', 'no tensor "v"', 'no task "nothing"', '"20" has no unit'):
        assert part in said


def test_a_memory_with_two_processors_offers_both_the_gpu_first(folder, capsys):
    (folder / "box.yaml").write_text(BOX.replace("  cpu0: {", "  npu0: {kind: gpu, memory: dram0}\n  cpu0: {"))
    assert "write `compute: npu0` or `compute: cpu0`" in refused(folder, PLACED, capsys)
