"""Replay of plans in blocks and of every example: what waits for an earlier block, what a cache holds of a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload import load_plan
from offload.compiler import compile_step
from offload.replaying import ReplayError
from offload.replaying.doing import Moved
from offload.replaying.items import program
from offload.replaying.layout import Home, Work, lay_out
from offload.replaying.results import periods_of, resources_of
from offload.replaying.running import Record
from offload.step import loads
from tests.replaying import STREAM, ran, stepped

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


def test_a_resource_is_in_use_for_no_longer_than_the_steps_took(tmp_path):
    step, plan, topology = stepped(tmp_path, STREAM)
    layout = lay_out(topology, plan, step)
    made = program(step, layout, 4)
    count = len(made.items)
    begun = [float(place) for place in range(count)]  # one a second, each for ten seconds
    record = Record(begun, [one + 10 for one in begun], [Moved(parts=(1,))] * count)
    (period,) = set(periods_of(step, made, record, 1, 3))
    assert period == count / 4
    for one in resources_of(step, layout, made, record, range(1, 4)):
        assert 0.9 * period < one.in_use <= period, "what the next step fetches in this one is counted there"
