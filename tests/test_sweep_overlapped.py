"""The overlapped time of a sweep: at each point, to the last bit, what the schedule of that step is."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offload.bounds import load_seconds
from offload.chains import formula, in_order, streamed
from offload.compiler import compile_step
from offload.documents import load_plan
from offload.events import prefetch_chain
from offload.prefetching import Prefetching
from offload.schedules import _Search, cold_timeline, overlapped, schedule, serial, steady_timeline
from offload.step import seconds_of_rows
from offload.sweeps import sweep
from offload.sweeps.overlapping import chunk_of

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LINK = "pcie0.rate=16GB/s:640GB/s:40log"
FLOPS = "gpu0.flops.bf16=5 TFLOP/s:200 TFLOP/s:30log"
FORMULA = ("by-hand", "llama-3.1-70b-desktop", "own-server", "replicas-that-share-the-cpu", "weights-cxl-interleaved",
           "weights-page-cache-experts")  # fmt: skip


def plan_of(seed: int, layers: int = 12) -> str:
    """Layers of up to three kinds in an order drawn by chance, written as tensors and tasks."""
    chance = random.Random(seed)
    kinds = "abc"[: chance.randint(1, 3)]
    lines = ["topology: desktop-4090", "tensors:"]
    lines += [f"  {kind}: {{bytes: {chance.randint(1, 900)} MB, home: dram0}}" for kind in kinds]
    lines += [f"  kv_{kind}: {{bytes: {chance.randint(1, 3000)} MB, home: hbm0}}" for kind in kinds] + ["blocks:"]
    flops = {kind: chance.randint(1, 4000) for kind in kinds}
    for _ in range(layers):
        kind = chance.choice(kinds)
        lines += ["  - tasks:", f"      fetch: {{move: {kind}, to: hbm0}}",
                  f"      layer: {{compute: gpu0, flops: {flops[kind]} GFLOP, reads: [{kind}, kv_{kind}], "
                  "after: fetch}"]  # fmt: skip
    return "\n".join([*lines, f"overlap: {{buffers: {chance.choice((1, 2, 2, 2, 3))}}}", ""])


def step_at(grid, plan, at):
    loaded, server = load_plan(plan, settings=[axis.setting(place) for axis, place in zip(grid.axes, at, strict=True)])
    return compile_step(server, loaded)


def same_as_single(grid, plan, count, seed=1):
    chance = random.Random(seed)
    for _ in range(count):
        at = tuple(chance.randrange(length) for length in grid.shape)
        assert grid.overlapped[at] == schedule(step_at(grid, plan, at), ends=False).seconds, at


def crowded(seed: int, buffers: str, layers: int = 9) -> str:
    """Layers of three kinds with so much KV that fetches and computes ask for more of one memory than it has."""
    chance = random.Random(seed)
    text = plan_of(seed, layers).split("overlap:")[0]
    for kind in "abc":
        text = text.replace(f"  kv_{kind}: {{bytes: ", f"  kv_{kind}: {{bytes: {chance.randint(1, 9)}")
    return text + f"overlap: {buffers}\n"


def delayed(step, transfers: bool):
    rows = (replace(row, latency=(0.003, 0.003)) if row.transfer == transfers else row for row in step.rows)
    return replace(step, rows=tuple(rows))


def two_buffers(step) -> float:
    """Theory: with two buffers a loop with a barrier per layer, of which each pair takes what it shares, or alone."""
    rows, seconds = step.rows, seconds_of_rows(step, "value")
    solo = [row.latency[1] + max(times.values()) for row, times in zip(rows, seconds, strict=True)]
    order = step.instances
    found = 0.0
    for layer in range(0, len(order), 2):
        compute, fetch = order[layer + 1], order[(layer + 2) % len(order)]
        shared = set(seconds[compute]) & set(seconds[fetch])
        found += max(solo[compute], solo[fetch], *(seconds[compute][one] + seconds[fetch][one] for one in shared))
    return found


def searched(step) -> float:
    """What the search over lanes and flows finds, without the formula."""
    search = _Search(step, None)
    alone = serial(step)
    return min(alone.seconds, search._least(False, alone.seconds, 0.0), search._least(True, alone.cold_seconds, 0.0))


@pytest.mark.parametrize("seed", range(24))
def test_layers_in_two_buffers_take_what_theory_says_and_no_search_finds_less(tmp_path, seed):
    (path := tmp_path / "plan.yaml").write_text(plan_of(seed, layers=6))
    plan, server = load_plan(path)
    step = compile_step(server, plan)
    layers = streamed(step)
    found = schedule(step, ends=False)
    if layers.buffers == 1:
        assert found.seconds == serial(step).seconds
    if layers.buffers == 2:
        assert found.seconds == pytest.approx(two_buffers(step), rel=1e-13)
    assert found.seconds <= searched(step) * (1 + 1e-12)
    assert found.seconds <= serial(step).seconds * (1 + 1e-13)
    assert cold_timeline(step).seconds == pytest.approx(found.cold_seconds, rel=1e-12)
    if layers.buffers == 2:
        few, many = (steady_timeline(step, rounds=rounds) for rounds in (3, 5))
        assert (many.seconds - few.seconds) / 2 == pytest.approx(found.seconds, rel=1e-9)


@pytest.mark.few
@pytest.mark.parametrize("seed", range(200, 224))
def test_layers_in_any_buffers_take_about_what_the_search_finds_and_their_timelines_keep_what_they_must(tmp_path, seed):
    (path := tmp_path / "plan.yaml").write_text(crowded(seed, ("{buffers: 3}", "{buffers: 5}", "full")[seed % 3]))
    plan, server = load_plan(path)
    step = compile_step(server, plan)
    step = delayed(step, seed % 4 == 0) if seed % 4 < 2 else step
    found, bound, alone = schedule(step, ends=False), load_seconds(step, "value").seconds, serial(step)
    assert found.seconds <= searched(step) * (1 + 2e-3)  # both look for the shortest, and neither always finds it
    assert bound <= found.seconds * (1 + 1e-12) and found.seconds <= alone.seconds * (1 + 1e-12)
    assert found.seconds <= found.cold_seconds * (1 + 1e-12) and found.cold_seconds <= alone.cold_seconds * (1 + 1e-12)
    assert cold_timeline(step).seconds == pytest.approx(found.cold_seconds, rel=1e-12)
    line = steady_timeline(step, rounds=12)
    half = steady_timeline(step, rounds=6)
    assert (line.seconds - half.seconds) / 6 == pytest.approx(found.seconds, rel=2e-3)
    assert all(start >= line.ends[on] * (1 - 1e-12) for start, waits in zip(line.starts, line.waits, strict=True)
               for on in waits)  # fmt: skip
    seconds = seconds_of_rows(step, "value")
    times = [(start + step.rows[row].latency[1], end, row)
             for start, end, row in zip(line.starts, line.ends, line.rows, strict=True)]  # fmt: skip
    for name in step.resources:  # in all of the time none serves more than its rate
        assert sum(seconds[row].get(name, 0.0) for *_, row in times) <= line.seconds * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_the_recurrence_of_layers_that_share_nothing_is_the_largest_cycle_of_theory(seed):
    chance = random.Random(seed)
    kinds = [[chance.randint(1, 9) / 7 for _ in range(3)] for _ in range(2)]
    orders = [[chance.randrange(3) for _ in range(10)] for _ in range(2)]
    for buffers in (2, 3, 4, 7, 19, 40):
        layers = Prefetching.of(*orders, buffers, ((0,),) * 3, ((1,),) * 3, False)
        numbers = [one for times in kinds for time in times for one in (0.0, time)]
        fetch, compute = ([times[one] for one in order] for times, order in zip(kinds, orders, strict=True))
        assert layers(*numbers) == pytest.approx(prefetch_chain(fetch, compute, buffers).seconds, rel=1e-9)
    again = Prefetching.of([*orders[0]] * 3, [*orders[1]] * 3, 3, ((0,),) * 3, ((1,),) * 3, False)
    assert again.repeats == 3 and again(*numbers) == pytest.approx(
        prefetch_chain(fetch * 3, compute * 3, 3).seconds, rel=1e-9)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("buffers", ["{buffers: 3}", "{buffers: 6}", "full"])
def test_every_point_of_layers_that_share_a_memory_is_the_schedule_of_that_step(tmp_path, buffers):
    for seed in range(300, 304):
        (path := tmp_path / "plan.yaml").write_text(crowded(seed, buffers))
        axes = ["hbm0.rate=200GB/s:3000GB/s:9log", LINK, "gpu0.flops.bf16=5 TFLOP/s:200 TFLOP/s:11log"]
        grid = sweep(path, axes, figures=("overlapped",), compiled=True)
        assert grid.told.formula == grid.size
        same_as_single(grid, path, 25)
        both = sweep(path, axes, figures=("floor", "overlapped"), compiled=True, threads=1, chunk=1_000)
        assert np.array_equal(both.overlapped, grid.overlapped) and (both.floor <= grid.overlapped).all()


def test_chunks_that_are_kept_are_smaller_where_points_take_longer(tmp_path):
    counts = []
    for text in (plan_of(3).split("overlap:")[0] + "overlap: {buffers: 2}\n", crowded(3, "{buffers: 3}", 6)):
        (path := tmp_path / "plan.yaml").write_text(text)
        counts.append(chunk_of(compile_step(*reversed(load_plan(path)))))
    counts.append(chunk_of(compile_step(*reversed(load_plan(EXAMPLES / "weights-flexgen.yaml")))))
    assert counts == sorted(counts, reverse=True) and len(set(counts)) == 3


@pytest.mark.parametrize("name", FORMULA)
def test_examples_with_a_formula_take_no_longer_than_the_search_finds(name):
    plan, server = load_plan(EXAMPLES / f"{name}.yaml")
    step = compile_step(server, plan)
    alone = serial(step)
    assert in_order(step) or streamed(step) is not None
    assert formula(step, None, alone.seconds, alone.cold_seconds)[0] <= searched(step) * (1 + 1e-12)
    assert overlapped(step) == schedule(step, ends=False).seconds


@pytest.mark.few
@pytest.mark.parametrize("seed", range(100, 116))
@pytest.mark.parametrize("compiled", [False, True])
def test_every_point_of_small_plans_is_the_schedule_of_that_step(tmp_path, seed, compiled):
    (path := tmp_path / "plan.yaml").write_text(plan_of(seed, layers=5))
    grid = sweep(path, ["pcie0.rate=16GB/s:640GB/s:12log", "gpu0.flops.bf16=5 TFLOP/s:200 TFLOP/s:10log"],
                 figures=("overlapped",), compiled=compiled)  # fmt: skip
    same_as_single(grid, path, 60)


@pytest.mark.slow
def test_kernel_and_numpy_and_one_or_two_threads_give_the_same_bits(tmp_path):
    (path := tmp_path / "plan.yaml").write_text(plan_of(5, layers=80).replace("buffers: 1", "buffers: 2"))
    axes = [LINK, FLOPS, "hbm0.rate=200GB/s:2000GB/s:25"]
    grids = [sweep(path, axes, figures=("overlapped",), compiled=compiled, threads=threads).overlapped
             for compiled, threads in ((False, 1), (True, 1), (True, 2))]  # fmt: skip
    assert np.array_equal(grids[0], grids[1]) and np.array_equal(grids[0], grids[2])
    assert len(np.unique(grids[0])) > 1000


@pytest.mark.few
@pytest.mark.parametrize("name", FORMULA)
def test_examples_with_a_formula_are_swept_by_it(name):
    plan = EXAMPLES / f"{name}.yaml"
    axes = {"weights-cxl-interleaved": ["workload.batch=1:100"],
            "weights-page-cache-experts": ["dram0.rate=40GB/s:200GB/s:100log"]}.get(name, [LINK, FLOPS])  # fmt: skip
    grid = sweep(plan, axes, figures=("floor", "serial", "overlapped"))
    assert grid.told.formula > grid.told.single
    assert (grid.overlapped <= grid.serial * (1 + 1e-12)).all()
    same_as_single(grid, plan, 20)


@pytest.mark.few
@pytest.mark.parametrize("name", ["weights-gpu-direct", "experts-on-the-cpu"])
def test_other_steps_are_searched_with_traced_numbers(name):
    plan = EXAMPLES / f"{name}.yaml"
    grid = sweep(plan, ["workload.batch=1:9", "hbm0.rate=400GB/s:4000GB/s:20log"], figures=("overlapped",))
    assert grid.told.replayed > 0
    same_as_single(grid, plan, 12)


def test_few_points_are_searched_one_by_one_and_a_step_that_cannot_be_made_is_marked():
    plan = EXAMPLES / "weights-flexgen.yaml"
    grid = sweep(plan, ["workload.batch=1,2,8"], figures=("overlapped",))
    assert (grid.told.single, grid.told.replayed) == (3, 0)
    same_as_single(grid, plan, 3)
    assert sweep(plan, ["workload.batch=1,2"]).overlapped is None
    grid = sweep(EXAMPLES / "by-hand.yaml", ["tasks.fetch.to=hbm0,dram7"], figures=("overlapped",))
    assert grid.overlapped[0] > 0 and np.isnan(grid.overlapped[1])
