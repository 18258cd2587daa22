"""Worked examples with exact figures: hops of a path, and a decode step of 80 layers on one device of 80 GB."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.documents import load_plan
from offload.schedules import schedule, serial
from offload.step import Step


def step_of(folder: Path, server: str, plan: str) -> Step:
    (folder / "box.yaml").write_text(server, encoding="utf-8")
    (folder / "plan.yaml").write_text("topology: ./box.yaml\n" + plan, encoding="utf-8")
    made, topology = load_plan(folder / "plan.yaml")
    return compile_step(topology, made)


def memory(name: str) -> str:
    return f"  {name}: {{kind: dram, rate: {{peak: 9000 GB/s, sustained: 9000 GB/s}}}}\n"


def link(name: str, ends: str, rate: str) -> str:
    return f"  {name}: {{between: [{ends}], rate: {{peak: {rate}, sustained: {rate}}}}}\n"


# 12 GB over three hops of 6, 12 and 24 GB/s: cut through 12/6, one after another 12/6 + 12/12 + 12/24, and in 100 equal
# chunks sum of p_e + 99 max p_e with p_e = 0.12 GB over each rate.
CUT_THROUGH, STORE_AND_FORWARD, CHUNKED = 2, 7 / 2, 403 / 200
HOPS = link("l0", "m0, {0}1", "6 GB/s") + link("l1", "{0}1, {0}2", "12 GB/s") + link("l2", "{0}2, m3", "24 GB/s")


def test_switches_are_cut_through(tmp_path):
    switches = "switches: {s1: {kind: pcie_switch}, s2: {kind: pcie_switch}}\n"
    server = switches + "memories:\n" + memory("m0") + memory("m3") + "links:\n" + HOPS.replace("{0}", "s")
    step = step_of(tmp_path, server, "tensors: {x: {bytes: 12 GB, home: m0}}\ntasks: {move: {move: x, to: m3}}\n")
    assert floor(step).seconds == schedule(step).cold_seconds == serial(step).seconds == CUT_THROUGH


def test_memories_are_stages(tmp_path):
    server = "memories:\n" + "".join(memory(f"m{n}") for n in range(4)) + "links:\n" + HOPS.replace("{0}", "m")
    tasks = "tasks:\n  a: {move: x, to: m1}\n  b: {move: x, to: m2, after: a}\n  c: {move: x, to: m3, after: b}\n"
    whole = step_of(tmp_path, server, "tensors: {x: {bytes: 12 GB, home: m0}}\noverlap: full\n" + tasks)
    assert schedule(whole).cold_seconds == serial(whole).cold_seconds == STORE_AND_FORWARD
    assert floor(whole).cold_seconds == CUT_THROUGH, "tile by tile, nothing but the narrowest hop is certain"
    chunks = step_of(tmp_path, server, "tensors: {x: {bytes: 120 MB, home: m0}}\nrepeat: 100\noverlap: full\n" + tasks)
    assert schedule(chunks).cold_seconds == pytest.approx(CHUNKED, rel=1e-12)
    assert serial(chunks).cold_seconds == pytest.approx(STORE_AND_FORWARD, rel=1e-12)
    assert floor(chunks).cold_seconds == pytest.approx(CUT_THROUGH, rel=1e-12)


# 80 layers of 1.7 GB, 68 GB of HBM for weights: floor(68 / 1.7) - 2 buffers = 38 stay, 42 are fetched at 25 GB/s. Batch
# 16 at context 2048 reads 16 x 2048 x 4096 B of KV a layer.
DEVICE = """\
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 80 GB, rate: {peak: 3350 GB/s, sustained: 3350 GB/s}}
  dram0: {kind: dram, at: socket0, rate: {peak: 300 GB/s, sustained: 300 GB/s}}
processors: {gpu0: {kind: gpu, memory: hbm0, flops: {bf16: {peak: 990 TFLOP/s, sustained: 990 TFLOP/s}}}}
links:
""" + link("pcie0", "socket0, hbm0", "25 GB/s")
STEP = """\
tokens: 16
tensors:
  near: {bytes: 1700 MB, home: hbm0}
  far: {bytes: 1700 MB, home: dram0}
  kv: {bytes: 134217728 B, home: hbm0}
blocks:
  - repeat: 38
    tasks:
      fetch: {move: far, to: hbm0}
      streamed: {compute: gpu0, flops: 27.2 GFLOP, reads: [far, kv], after: fetch}
      resident: {compute: gpu0, flops: 27.2 GFLOP, reads: [near, kv]}
  - repeat: 4
    tasks:
      fetch: {move: far, to: hbm0}
      streamed: {compute: gpu0, flops: 27.2 GFLOP, reads: [far, kv], after: fetch}
"""
COMPUTE = 427756 / 9765625  # 80 x (1.7 GB + KV) / 3350 GB/s


def test_a_decode_step_of_80_layers(tmp_path):
    step = step_of(tmp_path, DEVICE, STEP)
    by_resource = load_seconds(step).resource_seconds
    assert by_resource["pcie0.hbm0"] == pytest.approx(357 / 125, rel=1e-12)
    assert by_resource["hbm0"] == pytest.approx(85209929 / 1308593750, rel=1e-12)  # with the copies in
    assert by_resource["gpu0.flops"] == pytest.approx(136 / 61875, rel=1e-12)
    bound = floor(step)
    assert bound.seconds == pytest.approx(357 / 125, rel=1e-12)
    assert (bound.rule, bound.bottleneck) == ("load", ("pcie0.hbm0",))
    assert step.plan.tokens / bound.seconds == pytest.approx(2000 / 357, rel=1e-12)
    assert bound.cycle_seconds <= COMPUTE < by_resource["hbm0"]
    alone = serial(step).seconds
    assert alone == pytest.approx(28318381 / 9765625, rel=1e-12)
    assert alone == pytest.approx(357 / 125 + COMPUTE, rel=1e-12)
    overlapped = schedule(step)
    assert bound.seconds <= overlapped.seconds * (1 + 1e-12) and overlapped.seconds < alone
    assert step.occupied["hbm0"]["near"] + step.occupied["hbm0"]["buffers"] == 40 * 1_700_000_000
