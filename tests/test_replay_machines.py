"""What stands for what in a run, and what a GPU is asked for: a pretended one keeps the calls and their order."""

from __future__ import annotations

import pytest

from offload.replaying import ReplayError
from offload.replaying.items import round_of
from tests.replaying import STREAM, FakeDevices, machine, ran, stepped, written


def test_what_this_machine_has_not_is_told_all_at_once(tmp_path):
    plan = STREAM.replace("to: dram0", "to: hbm1, via: dram0").replace("cpu0, flops: 2 MFLOP, format: fp32", "gpu1")
    with pytest.raises(ReplayError, match=r"hbm1 is a GPU's memory, and no GPU is driven here.*It can stand for"):
        ran(tmp_path, plan)
    with pytest.raises(ReplayError, match="hbm1 would be GPU 1, and there are 1"):
        ran(tmp_path, plan, devices=FakeDevices(1))


def test_a_drive_without_a_folder_is_told(tmp_path):
    text = (written(tmp_path).parent / "machine.yaml").read_text()
    assert machine(tmp_path).memories["disk0"].kind == "disk" and text
    with pytest.raises(ReplayError, match=r"no folder that is given lies on disk0: add --disk disk0=FOLDER"):
        ran(tmp_path, disks=("/dev/shm", "/proc"))


GPU = """
topology: ./machine.yaml
tensors:
  w: {bytes: 256 KiB, home: disk0}
  kv: {bytes: 64 KiB, home: hbm0, shared: true}
repeat: 3
tasks:
  fetch: {move: w, to: hbm0, via: dram0}
  layer: {compute: gpu0, flops: 1 MFLOP, reads: [w, kv], after: fetch}
  out: {move: kv, to: dram0, after: layer, every: step}
overlap: {buffers: 2}
"""


def test_a_gpu_copies_and_multiplies_in_order(tmp_path):
    gpus = FakeDevices()
    found = ran(tmp_path, GPU, devices=gpus, steps=1)
    assert not found.wrong and found.stands["hbm0"] == "GPU 0"
    size = 256 * 1024
    copies = [call for call in gpus.calls if call[0] == "copy" and call[3] == size]
    assert set(copies) == {("copy", None, 0, size)} and len(copies) == 3 * (1 + 3)  # a step before, three in the run
    products = [call for call in gpus.calls if call[0] == "multiply" and call[2] == size]
    # The bytes that each product finds are those of its own layer: whole stamps, in the order of the file.
    stamps = [call[4] for call in products]
    assert stamps == [1.0, 65.0, 129.0] * 4
    assert all(call[2] for call in gpus.calls if call[0] == "host"), "pinned"
    moved = {one.name: one.moved for one in found.resources}
    assert moved["pcie0.hbm0"] == moved["disk0.read"] == 3 * size and moved["hbm0"] == 3 * (2 * size + 65536) + 65536
    assert {one.name for one in found.slots} >= {"fetch", "fetch to dram0 slot"}


def test_pageable_copies_take_pageable_memory(tmp_path):
    plan = GPU.replace("fetch: {move: w, to: hbm0, via: dram0}", "fetch: {move: w, to: hbm0, host_memory: pageable}")
    gpus = FakeDevices()
    found = ran(tmp_path, plan.replace("home: disk0", "home: dram0"), devices=gpus, steps=1)
    assert not any(call[2] for call in gpus.calls if call[0] == "host")
    assert found.measured is not None


def test_rounds_are_as_long_as_what_is_rarest(tmp_path):
    step, _, _ = stepped(tmp_path, GPU.replace("every: step", "every: 3 steps"))
    assert round_of(step) == 3
