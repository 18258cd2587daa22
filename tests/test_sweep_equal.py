"""A sweep at a point is the evaluation of that point alone, to the last bit: by NumPy, the kernel, any threads."""

import random
from pathlib import Path

import numpy as np
import pytest

from offload import compile_step, floor, load_plan
from offload.capacity import missing
from offload.errors import OffloadError
from offload.schedules import serial
from offload.sweeps import PlanFile, read_axis, sweep
from offload.sweeps.pieces import Escaped, traces
from offload.sweeps.program import Points
from offload.sweeps.structure import Asked
from offload.tracing import plain

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# Examples by axes: batches, contexts and rates together, sizes by hand, structures, and values that cannot be.
SWEPT = {
    "weights-flexgen": ["workload.batch=1:40", "workload.context=128:4096:9", "pcie0.rate=16GB/s:128GB/s:30log"],
    "llama-3.1-70b-desktop": ["workload.batch=1:24", "workload.context=128:65536:9log", "dram0.rate=40GB/s:200GB/s:9"],
    "kv-on-the-host": ["workload.batch=1:12", "workload.context=512:60000:7log",
                       "pcie0.rate.sustained=10GB/s:30GB/s:6"],
    "experts-on-the-cpu": ["workload.batch=1:16", "dram0.rate.sustained=40GB/s:80GB/s:12"],
    "experts-on-eight-gpus": ["workload.batch=1:24", "workload.context=1000:9000:5"],
    "expert-cache": ["workload.batch=1:6", "pcie0.rate=40GB/s:200GB/s:9log"],
    "weights-page-cache": ["workload.context=128:20000:9", "ssd0.read.rate=3 GB/s:14 GB/s:9",
                           "dram0.capacity=64 GiB,96 GiB"],
    "three-tiers": ["workload.batch=1:9", "pcie0.latency=0 us,1 us,50 us"],
    "eight-gpus": ["topology=dgx-h100,dgx-a100", "workload.batch=1:9"],
    "by-hand": ["tensors.w.bytes=100 MB:900 MB:9", "gpu0.flops.bf16.rate=100 TFLOP/s:900 TFLOP/s:9",
                "overlap.buffers=1,2,4"],
    "train-8b-zero-infinity": ["ssd0.read.rate=4 GB/s:14 GB/s:5", "pcie0.rate=40GB/s:200GB/s:9log"],
    "phases-crossover": ["workload.context=100:8000:30", "model.weights=q4_k_m,q8_0"],
}  # fmt: skip
POINTS = 60  # of each example


def alone(path, axes, at):
    """(floor, serial, what binds, bytes by which it fits) of one point, by the functions that everyone else calls."""
    plan, topology = load_plan(path, settings=[axis.setting(place) for axis, place in zip(axes, at, strict=True)])
    step = compile_step(topology, plan)
    bound = floor(step)
    binds = "order" if bound.rule == "cycle" else bound.bottleneck[0] if bound.seconds > 0 else "nothing"
    return bound.seconds, serial(step).seconds, binds, not missing(step)


@pytest.mark.few
@pytest.mark.parametrize("name", SWEPT)
def test_a_point_of_a_sweep_is_its_own_evaluation(name):
    path, chance = EXAMPLES / f"{name}.yaml", random.Random(name)
    grid = sweep(path, SWEPT[name])
    compared = 0
    for _ in range(POINTS):
        at = tuple(chance.randrange(length) for length in grid.shape)
        try:
            seconds, all_alone, binds, fits = alone(path, grid.axes, at)
        except OffloadError:
            assert np.isnan(grid.floor[at]) and np.isnan(grid.serial[at]) and not grid.fits[at]
            continue
        place = int(grid.binding[at])
        mine = {-1: "order", -2: "nothing"}.get(place) or grid.names[place]
        assert (grid.floor[at], grid.serial[at], mine, grid.fits[at]) == (seconds, all_alone, binds, fits), at
        compared += 1
    assert compared >= POINTS // 10


@pytest.mark.few
@pytest.mark.parametrize("name", ["weights-flexgen", "llama-3.1-70b-desktop", "experts-on-the-cpu", "by-hand"])
def test_numpy_the_kernel_and_any_number_of_threads_give_the_same_bits(name):
    path = EXAMPLES / f"{name}.yaml"
    plain = sweep(path, SWEPT[name], compiled=False)
    for threads in (1, 2, 3):
        fast = sweep(path, SWEPT[name], compiled=True, threads=threads)
        for figure in ("floor", "serial", "binding", "spare", "tokens"):
            assert np.array_equal(getattr(plain, figure), getattr(fast, figure), equal_nan=True), figure
        assert plain.names == fast.names and plain.wrong == fast.wrong


def test_a_number_that_escapes_is_found_where_it_does_not_bind():
    """The rate of a link that never binds changes no figure: the numbers of the step tell that no trace follows it."""
    axes = (read_axis("dram0.rate=40GB/s:60GB/s:5"), read_axis("pcie0.rate=16GB/s:128GB/s:5"))
    asked = Asked(PlanFile(EXAMPLES / "llama-3.1-70b-desktop.yaml"), axes)
    grid = Points(("0", "1"), tuple(axis.numbers for axis in axes))
    whole = [(slice(0, 5), slice(0, 5))]
    floor_of = sweep(asked.source, axes).floor
    assert (floor_of == floor_of[:, :1]).all()
    assert traces(lambda given: asked.step({}, {int(name): one for name, one in given.items()}), grid, whole)
    with pytest.raises(Escaped, match="differs from plain"):
        traces(lambda given: asked.step({}, {0: given["0"], 1: plain(given["1"])}), grid, whole)
