"""A floor sweep of 40 million points through the public function, beside NumPy, in turn in one run.

    python benchmarks/sweeps.py [millions of points] [rounds]

Four axes, eight resources, three of which vary along the innermost axis, the answer held in memory:
- sweep: `offload.sweeps.sweep`, from the plan's file to the array of floors, compiling of the step included;
- broadcast: NumPy with ready loads and rates of the axes that they vary along, one maximum after another;
- full: NumPy that first builds every load and rate at the size of the grid, in chunks, the building timed too;
- write: a compiled loop that only writes the array: nothing that holds its answer in memory is faster.
All must agree to the last bit.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np

from offload.sweeps import sweep

SERVER = """
title: three GPUs behind links of one kind
switches: {root: {kind: socket, source: benchmark}}
memories:
  dram0: {kind: dram, at: root, capacity: 4 TB, rate: {peak: 300 GB/s, source: benchmark}, source: benchmark}
  ssd0: {kind: nvme, capacity: 8 TB, read: {sustained: 60 GB/s, source: benchmark}, write: unknown, source: benchmark}
  hbm0..2: {kind: hbm, capacity: 80 GB, rate: {peak: 3 TB/s, source: benchmark}, source: benchmark}
processors:
  gpu0..2: {kind: gpu, memory: hbm0..2, flops: {bf16: 900 TFLOP/s}, source: benchmark}
links:
  pcie0..2: {between: [root, hbm0..2], rate: {peak: 60 GB/s, source: benchmark}, kind: pcie, source: benchmark}
  m2: {between: [ssd0, root], rate: {peak: 60 GB/s, source: benchmark}, kind: pcie, source: benchmark}
"""
PLAN = """
topology: ./server.yaml
tensors:
  weights: {bytes: 4 GB, home: dram0, shared: true}
  kv: {bytes: 1 GB, home: dram0, shared: true}
  pages: {bytes: 1 GB, home: ssd0, shared: true}
tasks:
  weights0: {move: weights, to: hbm0}
  weights1: {move: weights, to: hbm1}
  weights2: {move: weights, to: hbm2}
  kv0: {move: kv, to: hbm0}
  kv1: {move: kv, to: hbm1}
  kv2: {move: kv, to: hbm2}
  pages0: {move: pages, to: hbm0}
  pages1: {move: pages, to: hbm1}
  pages2: {move: pages, to: hbm2}
"""


def timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


@numba.njit(parallel=True, cache=True)
def fill(into: np.ndarray) -> None:
    for row in numba.prange(into.shape[0]):
        for i in range(into.shape[1]):
            into[row, i] = 1.0


def main(millions: float = 40, rounds: int = 3) -> None:
    """Print points/s and ratios."""
    inner = 1000
    outer = max(2, round((millions * 1e6 / inner / 100) ** 0.5))
    folder = Path(tempfile.mkdtemp())
    (folder / "server.yaml").write_text(SERVER)
    (folder / "plan.yaml").write_text(PLAN)
    axes = [f"tensors.weights.bytes=1 GB:64 GB:{outer}", f"tensors.kv.bytes=1 GB:16 GB:{outer}",
            "tensors.pages.bytes=1 GB:9 GB:100", f"pcie0..2.rate=16 GB/s:128 GB/s:{inner}log"]  # fmt: skip

    def swept() -> np.ndarray:
        return sweep(folder / "plan.yaml", axes, figures=("floor",)).floor

    grid = sweep(folder / "plan.yaml", axes, figures=("floor",))
    weights, kv, pages, pcie = (axis.numbers.astype(float) for axis in grid.axes)
    shape = grid.shape
    w, k, p = weights[:, None, None, None], kv[None, :, None, None], pages[None, None, :, None]
    each = w + k + p  # what each link and each GPU's memory takes
    in_dram = 3 * w + 3 * k  # pages pass the root alone
    loads = [(in_dram, 300e9), (each, 3e12), (each, 3e12), (each, 3e12), (3 * p, 60e9), (each, pcie), (each, pcie),
             (each, pcie)]  # fmt: skip

    def broadcast() -> np.ndarray:
        floor = np.zeros(shape)
        for load, rate in loads:
            np.maximum(floor, load / rate, out=floor)
        return floor

    def full() -> np.ndarray:
        floor = np.empty(shape)
        for row in range(shape[0]):
            part = np.zeros(shape[1:])
            for load, rate in loads:
                load = np.broadcast_to(load, shape) if np.ndim(load) else np.full(shape, load)
                here = np.ascontiguousarray(load[row])
                there = np.ascontiguousarray(np.broadcast_to(rate, shape)[row])
                np.maximum(part, here / there, out=part)
            floor[row] = part
        return floor

    def write() -> np.ndarray:
        found = np.empty((int(np.prod(shape[:-1])), inner))
        fill(found)
        return found

    write()
    seconds: dict[str, list[float]] = {"sweep": [], "broadcast": [], "full": [], "write": []}
    for _ in range(rounds):
        results: dict[str, np.ndarray] = {}
        for name, work in (("sweep", swept), ("broadcast", broadcast), ("full", full), ("write", write)):
            taken, found = timed(work)
            seconds[name].append(taken)
            results[name] = found
        for name in ("broadcast", "full"):
            if not np.array_equal(results["sweep"], results[name]):
                raise SystemExit(f"{name} differs from the sweep")
    points = int(np.prod(shape))
    least = {name: statistics.median(taken) for name, taken in seconds.items()}
    print(f"{points / 1e6:.1f} million points, {' x '.join(map(str, shape))}; medians of {rounds}")
    for name, taken in least.items():
        print(f"  {name:10} {points / taken / 1e6:9.1f} million points/s   sweep is {taken / least['sweep']:7.1f} x")


if __name__ == "__main__":
    main(*(float(one) if place == 0 else int(one) for place, one in enumerate(sys.argv[1:])))
