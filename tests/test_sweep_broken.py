"""What sweeps once got wrong: memory for a long axis, tokens of speculation, a full drive, silence while searching."""

import os
import platform
from pathlib import Path

import numpy as np
import pytest

from offload import evaluate, load_plan
from offload.errors import OutputError
from offload.replay import Replay
from offload.sweeps import program, sweep, writing
from offload.sweeps.program import Points, in_blocks
from offload.tracing import Trace

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.slow
def test_a_floor_of_speculation_is_per_token_by_the_most_tokens_of_a_step():
    path = EXAMPLES / "phases-speculation.yaml"
    grid = sweep(path, ["pcie0.rate=20GB/s:64GB/s:5"])
    for place in range(5):
        plan, topology = load_plan(path, settings=[grid.axes[0].setting(place)])
        assert plan.tokens < plan.tokens_at_most
        assert grid.tokens_per_s[place] == evaluate(topology, plan).tokens_per_s.floor


@pytest.mark.parametrize("block", [1, 7, 64, 10**6])
def test_figures_in_blocks_are_those_of_one_go(block, monkeypatch):
    monkeypatch.setattr(program, "BLOCK", block)
    trace = Trace()
    a, b, c = (trace.number(name, number) for name, number in (("a", 3), ("b", 2.5), ("c", 7)))
    grid = Points(("a", "b", "c"), (np.arange(1, 12), np.linspace(0.1, 9, 5), np.arange(7, 10)))
    for made in (a * 3 + 1, a * b / 3, a // 2 + b, b * b, c * a - b, (a * 2**61) // 5 + c):
        whole = Replay(trace, grid.inputs()).value(made)
        found = np.asarray(in_blocks(trace, made, grid)).astype(float)  # as a grid holds it
        assert np.array_equal(found, np.asarray(whole).astype(float))
    assert in_blocks(trace, 5, grid) == 5


def test_whole_numbers_beyond_64_bits_stay_exact():
    trace = Trace()
    a = trace.number("a", 3)
    made = (a * 2**40) * (a * 2**20) + a
    values = np.array([1, 2**10, 2**30, 2**52], dtype=np.int64)
    found = Replay(trace, {"a": values}).value(made)
    assert [int(one) for one in found] == [(one * 2**40) * (one * 2**20) + one for one in values.tolist()]


def test_a_long_axis_holds_few_arrays():
    """10^6 values of a batch: at most some arrays of that length at a time, not one for each operation."""
    import tracemalloc

    path = EXAMPLES / "llama-3.1-70b-desktop.yaml"
    sweep(path, ["workload.batch=1:300000"])  # what is imported and compiled once
    tracemalloc.start()
    try:
        grid = sweep(path, ["workload.batch=1:1000000"])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grid.floor.size == 10**6
    assert most < 25 * 8 * 10**6  # bytes; it was above 70 arrays


def test_only_structure_by_the_kernel():
    path = EXAMPLES / "layers-in-turn-on-two-gpus.yaml"
    plain, fast = (sweep(path, ["overlap.buffers=1,2"], compiled=one) for one in (False, True))
    assert np.array_equal(plain.floor, fast.floor) and np.array_equal(plain.binding, fast.binding)


def test_netcdf_on_a_full_drive(tmp_path, monkeypatch):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")

    def full(*given, **named):
        raise RuntimeError("NetCDF: HDF error")

    grid = sweep(EXAMPLES / "by-hand.yaml", ["tensors.w.bytes=100 MB:900 MB:9"])
    monkeypatch.setattr(xarray.Dataset, "to_netcdf", full)
    with pytest.raises(OutputError, match=r"a\.nc cannot be written: NetCDF: HDF error\. .* are free on that drive"):
        writing.write_netcdf(grid, tmp_path / "a.nc")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_beside_the_output_goes(tmp_path):
    grid = sweep(EXAMPLES / "by-hand.yaml", ["tensors.w.bytes=100 MB:900 MB:9"])
    node = platform.node()
    for process in (2**22 + 1, os.getpid()):  # above the largest number of a process; one that runs
        (tmp_path / f".offload-a.csv.{node}.{process}.abc").mkdir()
    (tmp_path / f".offload-b.csv.{node}.{2**22 + 1}.abc").mkdir()
    writing.write_csv(grid, tmp_path / "a.csv")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        f".offload-a.csv.{node}.{os.getpid()}.abc", f".offload-b.csv.{node}.{2**22 + 1}.abc", "a.csv"]  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("chunk", [None, 6])
def test_a_search_point_by_point_says_how_far_it_is(chunk):
    class Hears:
        def __init__(self):
            self.texts = []

        def stage(self, text):
            self.texts.append(text)

        def start(self, points, done): ...

        def add(self, points): ...

    hears = Hears()
    sweep(EXAMPLES / "train-twin-flow.yaml", ["pcie0.rate=20GB/s:64GB/s:12"], figures=("floor", "overlapped"),
          chunk=chunk, watcher=hears, threads=1)  # fmt: skip
    told = [text for text in hears.texts if text.startswith("expected times of")]
    assert told[-1] == f"expected times of {chunk or 12} of {chunk or 12} points" and len(set(told)) > 3
