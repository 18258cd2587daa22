"""A drive that is changed for a faster one takes nothing away from the link that it hangs on."""

from __future__ import annotations

import pytest

from offload.compiler import compile_step
from offload.documents.plan_file import load_plan
from offload.documents.settings import read_setting
from offload.schedules import schedule

PLAN = """\
topology: desktop-4090
model: {name: llama-3.1-70b, weights: q8_0, kv: q4_0}
workload: {batch: 64, context: 16384}
placement:
  weights: {hbm0: rest}
  compute: gpu0
  kv: {with layer: 30%, ssd0: rest}
  attention: cpu0
  host_memory: pageable
  via: dram0
"""
PEAK = 16e9 * 4 * 128 / 130 / 8


def changed(folder, *settings):
    path = folder / "plan.yaml"
    path.write_text(PLAN)
    plan, topology = load_plan(path, settings=[read_setting(one) for one in settings])
    return topology, schedule(compile_step(topology, plan)).seconds


def link(topology):
    return topology.resources["m2.socket0"].sustained[""].value


def test_a_drive_faster_than_its_link_leaves_what_the_one_before_proved(tmp_path):
    shipped, before = changed(tmp_path)
    assert link(shipped) == 7.1e9, "measured through it, and more than 83 % of its peak"
    faster, after = changed(tmp_path, "ssd0.read=10GB/s")
    assert faster.resources["ssd0.read"].sustained[""].value == pytest.approx(10e9 * 7.1 / 7.45)
    assert link(faster) == 7.1e9 and after <= before
    assert any(note.startswith("m2.socket0: assumed to sustain what ssd0.read did through it")
               for note in faster.assumptions)  # fmt: skip
    between, _ = changed(tmp_path, "ssd0.read=8GB/s")
    assert link(between) == pytest.approx(8e9 * 7.1 / 7.45), "still measured through it"


def test_a_slower_drive_or_another_link_proves_nothing(tmp_path):
    slower, _ = changed(tmp_path, "ssd0.read=3GB/s")
    assert link(slower) == pytest.approx(0.83 * PEAK)
    other, _ = changed(tmp_path, "ssd0.read=100GB/s", "m2.rate=10GB/s")
    assert link(other) == pytest.approx(0.83 * 10e9)
    stated, _ = changed(tmp_path, "ssd0.read=10GB/s", "m2.rate.sustained=5GB/s")
    assert link(stated) == 5e9
