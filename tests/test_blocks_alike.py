"""Blocks written alike: read and compiled once, with the answers and the mistakes of blocks looked at one by one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from offload import load_plan
from offload.bounds import floor_seconds, load_seconds
from offload.compiler import compile_step
from offload.errors import OffloadError
from offload.plan import Plan
from offload.rows import row_table
from offload.schedules import schedule, serial
from offload.sweeps import sweep

HEAD = """topology: desktop-4090
tensors:
  a: {bytes: 528 MB, home: dram0}
  b: {bytes: 300 MB, home: {dram0: 50%, ssd0: rest}}
  kv: {bytes: 20 MB, home: hbm0}
  embedding: {bytes: 100 MB, home: dram0, shared: true}
"""
BLOCKS = {
    "a": """
  - tasks:
      fetch: {move: a, to: hbm0}
      layer: {compute: gpu0, flops: 20 GFLOP, reads: [a, kv], writes: kv, after: fetch}""",
    "b": """
  - repeat: 2
    tasks:
      fetch: {move: b, to: hbm0}
      layer: {compute: gpu0, flops: 10 GFLOP, reads: b, after: fetch}""",
    "with a task of the repetition before": """
  - repeat: 2
    tasks:
      fetch: {move: a, to: hbm0, after: previous.layer}
      layer: {compute: gpu0, flops: 10 GFLOP, reads: a, after: [fetch, previous.layer]}""",
    "with a tensor that is shared": """
  - tasks:
      bring: {move: embedding, to: hbm0}
      tied: {compute: gpu0, flops: 5 GFLOP, reads: embedding, after: bring}""",
    "after an earlier one": """
  - tasks:
      again: {compute: gpu0, flops: 5 GFLOP, reads: [a, embedding], after: [fetch, layer]}""",
    "once": """
  - repeat: 2
    tasks:
      fetch: {move: a, to: hbm0, every: step}
      layer: {compute: gpu0, flops: 5 GFLOP, reads: a, after: fetch}""",
}


def written(folder: Path, order: list[str], overlap: str = "{buffers: 2}") -> Path:
    path = folder / "plan.yaml"
    path.write_text(HEAD + "blocks:" + "".join(BLOCKS[name] for name in order) + f"\noverlap: {overlap}\n")
    return path


def apart(plan: Plan) -> Plan:
    """The plan with the same tasks, each block's in a tuple of its own: none of them is known to be another's."""
    return replace(plan, blocks=tuple(replace(block, tasks=tuple([*block.tasks])) for block in plan.blocks))


def test_blocks_written_alike_have_the_same_rows(tmp_path):
    plan, topology = load_plan(written(tmp_path, ["a", "b", "a", "b", "a"]))
    step = compile_step(topology, plan)
    assert [row.name for row in step.rows] == ["fetch", "layer", "fetch from dram0", "fetch from ssd0 to dram0",
                                               "fetch from ssd0", "layer"]
    assert step.counts == [3, 3, 4, 4, 4, 4]
    assert row_table(topology, plan).rows == list(step.rows)
    assert len(compile_step(topology, apart(plan)).rows) == 3 * 2 + 2 * 4


@pytest.mark.parametrize("seed", range(12))
def test_they_answer_as_blocks_looked_at_one_by_one_do(tmp_path, seed):
    draw = random.Random(seed)
    order = ["a", *draw.choices(list(BLOCKS), k=7)]
    plan, topology = load_plan(written(tmp_path, order, draw.choice(["{buffers: 2}", "{buffers: 3}", "none", "full"])))
    step, other = compile_step(topology, plan), compile_step(topology, apart(plan))
    assert len(step.rows) <= len(other.rows) and len(step.instances) == len(other.instances)
    assert [step.rows[row] for row in step.instances] == [other.rows[row] for row in other.instances]
    assert (step.waits, step.wraps, step.slots) == (other.waits, other.wraps, other.slots)
    assert step.occupied == other.occupied
    close = {"rel": 1e-12, "abs": 0}  # as what is alike is multiplied, not added
    assert load_seconds(step).resource_seconds == pytest.approx(load_seconds(other).resource_seconds, **close)
    assert floor_seconds(step) == pytest.approx(floor_seconds(other), **close)
    assert serial(step).seconds == pytest.approx(serial(other).seconds, **close)
    assert schedule(step).seconds == pytest.approx(schedule(other).seconds, **close)


def test_an_axis_in_one_of_them_changes_that_one_alone(tmp_path):
    path = written(tmp_path, ["a", "a", "a"])
    grid = sweep(path, ["blocks.1.tasks.layer.flops=20 GFLOP:2000 GFLOP:3"], figures=("floor", "serial", "overlapped"))
    for place, flops in enumerate(("20", "1010", "2000")):
        plan, topology = load_plan(path, settings=[f"blocks.1.tasks.layer.flops={flops} GFLOP"])
        step = compile_step(topology, plan)
        assert len(step.rows) == 4  # 20 GFLOP too: what is set is no part of the others
        assert grid.floor[place] == floor_seconds(step) and grid.serial[place] == serial(step).seconds
        assert grid.overlapped[place] == schedule(step, ends=False).seconds
    assert grid.serial[0] < grid.serial[1] < grid.serial[2]


def test_a_mistake_in_each_of_them_is_told_at_each(tmp_path):
    path = written(tmp_path, ["a", "b", "a"])
    path.write_text(path.read_text().replace("reads: [a, kv]", "reads: [a, kw]"))
    with pytest.raises(OffloadError) as caught:
        load_plan(path)
    assert [one.key for one in caught.value.mistakes] == [f"blocks[{n}].tasks.layer.reads[1]" for n in (0, 2)]


def test_buffers_are_compared_between_them(tmp_path):
    path = written(tmp_path, ["a", "b", "a"])
    text = path.read_text()
    path.write_text(text.replace("{move: b, to: hbm0}", "{move: b, to: hbm0, buffers: 3}"))
    with pytest.raises(OffloadError, match=r'blocks\[1\].*"fetch" of an earlier block has 2 buffers, this one 3'):
        load_plan(path)
