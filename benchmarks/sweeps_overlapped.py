"""The overlapped time of sweeps: beside the floor of the same grid, and beside its recurrence in NumPy, in one run.

    python benchmarks/sweeps_overlapped.py [millions of points, 40] [rounds, 5]

A grid of four axes over 80 layers in two buffers, through the public function: equal layers, and layers of three kinds.
NumPy runs the recurrence, F = max(F, C two layers before) + f and C = max(C, F) + c, for two steps over a whole grid
of a million points, from given seconds of each kind's fetch and compute (so it is spared what a sweep does too: loads,
rates, reading the plan). Both must agree.
In turn (A B A B ...), the least time of each; beside it the rate of writing the array of results.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from offload.compiler import compile_step
from offload.documents import load_plan
from offload.replay import Replay
from offload.step import seconds_of_rows
from offload.sweeps import sweep
from offload.tracing import Trace

LAYERS = 80
ORDER = "abcabbcaac"
BYTES = {"a": 528, "b": 300, "c": 96}
FLOPS = {"a": 2000, "b": 1000, "c": 3000}


def plan(order: str) -> str:
    """Layers of these kinds, fetched from host memory and computed on the GPU."""
    kinds = sorted(set(order))
    lines = ["topology: desktop-4090", "tensors:", *(f"  {k}: {{bytes: {BYTES[k]} MB, home: dram0}}" for k in kinds)]
    if len(kinds) == 1:
        lines += [f"repeat: {LAYERS}", "tasks:", f"  fetch: {{move: {order}, to: hbm0}}",
                  f"  layer: {{compute: gpu0, flops: {FLOPS[order]} GFLOP, reads: [{order}], "
                  "after: fetch}"]  # fmt: skip
    else:
        lines.append("blocks:")
        for place in range(LAYERS):
            k = order[place % len(order)]
            lines += ["  - tasks:", f"      fetch: {{move: {k}, to: hbm0}}",
                      f"      layer: {{compute: gpu0, flops: {FLOPS[k]} GFLOP, reads: [{k}], "
                      "after: fetch}"]  # fmt: skip
    return "\n".join([*lines, "overlap: {buffers: 2}", ""])


def axes(points: float) -> list[str]:
    """Four axes, the innermost the longest."""
    inner = max(10, round(points / (20 * 20 * 10)))
    return ["dram0.rate=40GB/s:200GB/s:20log", "hbm0.rate=500GB/s:1000GB/s:20log",
            "gpu0.flops.bf16=40 TFLOP/s:160 TFLOP/s:10log", f"pcie0.rate=16GB/s:64GB/s:{inner}log"]  # fmt: skip


def times_of(path: Path, order: str, grid_axes: tuple) -> tuple[dict, dict]:
    """For each kind of its fetch and of its compute: the delay, and the seconds on each resource at each point."""
    trace = Trace()
    settings = [axis.setting(0, trace.number(str(n), axis.numbers[0].item())) for n, axis in enumerate(grid_axes)]
    loaded, server = load_plan(path, settings=settings)
    step = compile_step(server, loaded)
    replay = Replay(trace, {str(n): axis.numbers.reshape([-1 if n == m else 1 for m in range(len(grid_axes))])
                            for n, axis in enumerate(grid_axes)})  # fmt: skip
    fetch: dict = {}
    compute: dict = {}
    for place, row in enumerate(step.instances):
        kind = order[place // 2 % len(order)]
        found = {name: replay.value(one) for name, one in seconds_of_rows(step, "value")[row].items()}
        (compute if place % 2 else fetch)[kind] = (step.rows[row].latency[1], found)
    return fetch, compute


def by_numpy(fetch: dict, compute: dict, order: str, shape: tuple[int, ...]) -> np.ndarray:
    """Two steps of the recurrence, over the whole grid; the second takes the period (exact with two buffers)."""
    kinds = [order[place % len(order)] for place in range(LAYERS)]
    fetches, computes = {}, {}
    for k in set(kinds):
        fetches[k] = np.broadcast_to(fetch[k][0] + _most(list(fetch[k][1].values())), shape).copy()
        alone = compute[k][0] + _most(list(compute[k][1].values()))
        for other in set(kinds):
            both = [compute[k][1][name] + one for name, one in fetch[other][1].items() if name in compute[k][1]]
            computes[k, other] = np.broadcast_to(np.maximum(alone, _most(both)), shape).copy()
    fetched, before, last = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    ends = []
    for _ in range(2):
        for place, k in enumerate(kinds):
            fetched = np.maximum(fetched, before) + fetches[k]
            before, last = last, np.maximum(last, fetched) + computes[k, kinds[(place + 1) % LAYERS]]
        ends.append(last)
    return ends[1] - ends[0]


def _most(arrays: list) -> np.ndarray:
    found = arrays[0]
    for one in arrays[1:]:
        found = np.maximum(found, one)
    return found


def timed(do: Callable[[], object]) -> tuple[float, object]:
    begin = time.perf_counter()
    found = do()
    return time.perf_counter() - begin, found


def compare(name: str, order: str, path: Path, points: float, rounds: int) -> None:
    """Time a plan and print its rates."""
    path.write_text(plan(order))
    wanted = axes(points)
    sweep(path, axes(1e6), figures=("floor", "overlapped"))  # kernels are read or compiled
    small = sweep(path, axes(1e6), figures=("overlapped",))
    fetch, compute = times_of(path, order, small.axes)
    best = {"floor": 1e9, "overlapped": 1e9, "write": 1e9, "numpy": 1e9}
    for _ in range(rounds):
        for figure in ("floor", "overlapped"):
            took, grid = timed(lambda figure=figure: sweep(path, wanted, figures=(figure,)))
            best[figure] = min(best[figure], took)
        shape = grid.shape
        best["write"] = min(best["write"], timed(lambda shape=shape: np.full(shape, 1.0))[0])
        took, found = timed(lambda: by_numpy(fetch, compute, order, small.shape))
        best["numpy"] = min(best["numpy"], took)
    assert np.allclose(found, small.overlapped, rtol=1e-9, atol=0), "they differ"
    size = grid.overlapped.size
    rate = {one: (found.size if one == "numpy" else size) / took / 1e6 for one, took in best.items()}
    print(f"{name}: {size / 1e6:.0f} million points, {grid.told}")
    print("  million points/s: " + ", ".join(f"{one} {value:.2f}" for one, value in rate.items()))
    print(f"  overlapped over floor {rate['overlapped'] / rate['floor']:.2f}, "
          f"over NumPy's recurrence {rate['overlapped'] / rate['numpy']:.0f}")  # fmt: skip


def main() -> None:
    points = float(sys.argv[1]) * 1e6 if len(sys.argv) > 1 else 40e6
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        compare("equal layers", "a", Path(folder) / "equal.yaml", points, rounds)
        compare("80 layers of three kinds", ORDER, Path(folder) / "kinds.yaml", points, rounds)


if __name__ == "__main__":
    main()
