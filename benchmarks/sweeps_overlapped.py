"""The overlapped time of sweeps: beside the floor of the same grid, and beside its recurrence in NumPy, in one run.

    python benchmarks/sweeps_overlapped.py [millions of points, 40] [rounds, 5]

A grid of four axes over 80 layers, through the public function: equal layers; layers of three kinds in an order drawn
by chance, which does not come round again, in two and in three buffers; and in three buffers beside KV that fetches and
computes read from one memory, where how they share it is searched for at many points.

NumPy runs the recurrence, F = max(F, C k layers before) + f and C = max(C, F) + c, for two steps, from given seconds of
each kind's fetch and compute: it is spared what a sweep does too (loads, rates, reading the plan, whether anything is
shared, and whether two steps are enough). Twice: over a whole grid (of MOST points: more arrays of the sweep's size do
not fit) as one writes it first, and in blocks that stay in a core's cache, in place, as one writes it second. Both must
agree with the sweep. NumPy works with one thread, the sweep with two. "Recurrence" is that part of a sweep alone: what
is left of it when the plan has been read and compiled, a few times whatever the number of points.
In turn (A B A B ...), the least time of each; beside it the rate of writing the array of results.
"""

from __future__ import annotations

import random
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
from offload.sweeps import ahead, sweep
from offload.tracing import Trace

LAYERS = 80
ORDER = "".join(random.Random(1).choices("abc", k=LAYERS))
MOST = 8e6  # points of NumPy over a whole grid
CACHED = 2**13  # points of a block
BYTES = {"a": 528, "b": 300, "c": 96}
FLOPS = {"a": 2000, "b": 1000, "c": 3000}


def plan(order: str, buffers: int = 2, kv: int = 0) -> str:
    """Layers of these kinds, fetched from host memory and computed on the GPU, with so much KV of each kind [MB]."""
    kinds = sorted(set(order))
    lines = ["topology: desktop-4090", "tensors:", *(f"  {k}: {{bytes: {BYTES[k]} MB, home: dram0}}" for k in kinds)]
    reads = {k: f"[{k}]" for k in kinds}
    if kv:
        lines += [f"  kv_{k}: {{bytes: {kv * (place + 1)} MB, home: hbm0}}" for place, k in enumerate(kinds)]
        reads = {k: f"[{k}, kv_{k}]" for k in kinds}
    if len(kinds) == 1:
        lines += [f"repeat: {LAYERS}", "tasks:", f"  fetch: {{move: {order}, to: hbm0}}",
                  f"  layer: {{compute: gpu0, flops: {FLOPS[order]} GFLOP, reads: {reads[order]}, "
                  "after: fetch}"]  # fmt: skip
    else:
        lines.append("blocks:")
        for place in range(LAYERS):
            k = order[place % len(order)]
            lines += ["  - tasks:", f"      fetch: {{move: {k}, to: hbm0}}",
                      f"      layer: {{compute: gpu0, flops: {FLOPS[k]} GFLOP, reads: {reads[k]}, "
                      "after: fetch}"]  # fmt: skip
    return "\n".join([*lines, f"overlap: {{buffers: {buffers}}}", ""])


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


def seconds_of_kinds(fetch: dict, compute: dict, buffers: int, shape: tuple[int, ...]) -> tuple[dict, dict]:
    """By kind the seconds of its fetch; by (kind, kind fetched beside it) those of its compute, whole arrays."""
    fetches, computes = {}, {}
    for k in fetch:
        fetches[k] = np.broadcast_to(fetch[k][0] + _most(list(fetch[k][1].values())), shape).copy()
        alone = np.broadcast_to(compute[k][0] + _most(list(compute[k][1].values())), shape).copy()
        for other in fetch:
            both = [compute[k][1][name] + one for name, one in fetch[other][1].items() if name in compute[k][1]]
            computes[k, other] = np.maximum(alone, _most(both)) if buffers == 2 else alone
    return fetches, computes


def by_numpy(fetches: dict, computes: dict, order: str, buffers: int) -> np.ndarray:
    """Two steps of the recurrence, over whole arrays; the second takes the period."""
    shape = next(iter(fetches.values())).shape
    fetched, last = np.zeros(shape), np.zeros(shape)
    ends = [last] * buffers
    steps = []
    for _ in range(2):
        for place, k in enumerate(order):
            fetched = np.maximum(fetched, ends[0]) + fetches[k]
            last = np.maximum(last, fetched) + computes[k, order[(place + 1) % len(order)]]
            ends = [*ends[1:], last]
        steps.append(last)
    return steps[1] - steps[0]


def by_numpy_in_blocks(fetches: dict, computes: dict, order: str, buffers: int) -> np.ndarray:
    """The same in blocks that stay in the cache, in place."""
    fetches = {k: one.reshape(-1) for k, one in fetches.items()}
    computes = {k: one.reshape(-1) for k, one in computes.items()}
    size = next(iter(fetches.values())).size
    found = np.empty(size)
    fetched, ends = np.empty(CACHED), np.empty((buffers, CACHED))
    for begin in range(0, size, CACHED):
        part = slice(begin, min(begin + CACHED, size))
        f = {k: one[part] for k, one in fetches.items()}
        c = {k: one[part] for k, one in computes.items()}
        many = part.stop - begin
        now, held = fetched[:many], ends[:, :many]
        now[:] = 0.0
        held[:] = 0.0
        at, last = 0, held[-1]
        for step in range(2):
            for place, k in enumerate(order):
                np.maximum(now, held[at], out=now)
                np.add(now, f[k], out=now)
                np.maximum(last, now, out=held[at])
                last = held[at]
                np.add(last, c[k, order[(place + 1) % len(order)]], out=last)
                at = (at + 1) % buffers
            if step == 0:
                found[part] = last
        np.subtract(last, found[part], out=found[part])
    return found


def _most(arrays: list) -> np.ndarray:
    found = arrays[0]
    for one in arrays[1:]:
        found = np.maximum(found, one)
    return found


def timed(do: Callable[[], object]) -> tuple[float, object]:
    begin = time.perf_counter()
    found = do()
    return time.perf_counter() - begin, found


def compare(name: str, order: str, path: Path, points: float, rounds: int, buffers: int = 2, kv: int = 0) -> None:
    """Time a plan and print its rates."""
    path.write_text(plan(order, buffers, kv))
    wanted, few = axes(points), axes(min(points, MOST))
    sweep(path, axes(min(points, 1e6)), figures=("floor", "overlapped"))  # kernels are read or compiled
    small = sweep(path, few, figures=("overlapped",))
    order = "".join(order[place % len(order)] for place in range(LAYERS))
    given = seconds_of_kinds(*times_of(path, order, small.axes), buffers, small.shape)
    best: dict[str, float] = {}
    found = {}

    def time_of(one: str, do: Callable[[], object]) -> object:
        took, answer = timed(do)
        best[one] = min(best.get(one, took), took)
        return answer

    fill, spent = ahead._fill, [0.0]

    def filled(*given: object) -> None:
        spent[0] += timed(lambda: fill(*given))[0]

    ahead._fill = filled
    for place in range(rounds):
        spent[0] = 0.0
        time_of("floor", lambda: sweep(path, wanted, figures=("floor",)))
        grid = time_of("overlapped", lambda: sweep(path, wanted, figures=("overlapped",)))
        best["recurrence"] = min(best.get("recurrence", spent[0]), spent[0])
        time_of("write", lambda shape=grid.shape: np.full(shape, 1.0))
        if place < 2 and not kv:  # slow, and as fast each time
            found["whole"] = time_of("NumPy whole", lambda: by_numpy(*given, order, buffers))
            found["blocks"] = time_of("NumPy in blocks", lambda: by_numpy_in_blocks(*given, order, buffers))
    ahead._fill = fill
    if not best["recurrence"]:  # equal layers are a closed form
        del best["recurrence"]
    for one in found.values():
        assert np.allclose(one.reshape(small.shape), small.overlapped, rtol=1e-9, atol=0), "they differ"
    size = grid.size
    rate = {one: (small.size if one.startswith("NumPy") else size) / took / 1e6 for one, took in best.items()}
    print(f"{name}: {size:,} points, {grid.told}")
    print("  million points/s: " + ", ".join(f"{one} {value:.3g}" for one, value in rate.items()))
    print(f"  overlapped over floor {rate['overlapped'] / rate['floor']:.2f}", flush=True)
    for name in ("overlapped", "recurrence"):
        if name in rate and "NumPy whole" in rate:
            print(f"  {name}" + ",".join(
                f" over {one} {rate[name] / rate[one]:.0f}" for one in rate if one.startswith("NumPy")), flush=True)


def main() -> None:
    points = float(sys.argv[1]) * 1e6 if len(sys.argv) > 1 else 40e6
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        compare("equal layers", "a", path, points, rounds)
        compare("80 layers of three kinds, k = 2", ORDER, path, points, rounds)
        compare("80 layers of three kinds, k = 3", ORDER, path, points, rounds, 3)
        compare("80 layers of three kinds that share a memory, k = 3", ORDER, path, points / 400, rounds, 3, 3000)


if __name__ == "__main__":
    main()
