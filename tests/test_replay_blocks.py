"""Replay of plans in blocks and of every example: what waits for an earlier block, what a cache holds of a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload import load_plan
from offload.compiler import compile_step
from offload.replaying import ReplayError
from offload.replaying.layout import Home, Work, lay_out
from offload.step import loads
from tests.replaying import ran

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.yaml"))
BLOCKS = """
topology: ./machine.yaml
tensors:
  w: {bytes: 256 KiB, home: disk0}
  h: {bytes: 128 KiB, home: dram0, shared: true}
blocks:
  - repeat: 3
    tasks:
      fetch: {move: w, to: dram0}
      layer: {compute: cpu0, flops: 2 MFLOP, reads: w, after: fetch}
  - tasks:
      head: {compute: cpu0, flops: 2 MFLOP, reads: h, after: layer}
overlap: {buffers: 2}
"""


def test_what_waits_for_a_compute_of_an_earlier_block_is_run_after_it(tmp_path):
    found = ran(tmp_path, BLOCKS)
    assert not found.wrong and found.checked["waits"] > 0
    assert {one.name: one.count for one in found.tasks} == {"fetch": 3, "layer": 3, "head": 1}
    _, measured = found.timelines
    assert len(measured.rows) == 7 * measured.steps
    for step in range(measured.steps):
        layers = [measured.ends[7 * step + one] for one in (1, 3, 5)]
        assert measured.starts[7 * step + 6] >= max(layers)


@pytest.mark.parametrize("name", ["weights-page-cache", "weights-page-cache-experts"])
def test_what_a_cache_holds_of_a_copy_is_read_where_the_copy_is(name):
    plan, topology = load_plan(EXAMPLES[0].parent / f"{name}.yaml")
    step = compile_step(topology, plan)
    layout = lay_out(topology, plan, step)
    works = [one for one in layout.operations if isinstance(one, Work) and one.processor == "cpu0"]
    read = sum(size for one in works for _, size in one.reads)
    assert read == pytest.approx(loads(step, least=False)["cpu0.reads"], rel=1e-6)
    held = {spot for one in works for spot, _ in one.reads if isinstance(spot, Home)}
    assert "dram0" in {spot.memory for spot in held} and held <= set(layout.homes)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_laid_out_or_says_what_is_not_replayed(path):
    plan, topology = load_plan(path)
    step = compile_step(topology, plan)
    try:
        layout = lay_out(topology, plan, step)
    except ReplayError as error:
        assert "not replayed" in str(error) and 'task "' in str(error)
    else:
        assert tuple(one.row for one in layout.operations) == step.instances
