"""A floor sweep of 40 million points through the public function, beside NumPy, in turn in one run.

    python benchmarks/sweeps.py [millions of points] [rounds] [fresh]

Four axes, eight resources, three of which vary along the innermost axis, the answer held in memory:
- sweep: `offload.sweeps.sweep`, from the plan's file to the array of floors, compiling of the step included;
- its points alone: that without reading and compiling, which take the same time whatever the number of points;
- broadcast: NumPy, `(loads / rates).max(axis=0)` of ready loads and rates that broadcast; once of the whole grid, and
  once in parts of 2 million points, which a large cache holds;
- broadcast by hand: NumPy as one who knows it writes it, one maximum after another, each quotient only as large as
  its axes;
- full: NumPy that first builds every load and rate at the size of the grid, each from its own terms, the building
  timed too: at once where that fits the free memory, in parts of 10 million points, and of 2 million;
- ready: the same in parts of 2 million without the building;
- write: a compiled loop that only writes the array: nothing that holds its answer in memory is faster.
All must agree to the last bit.

A program's first touch of a page of memory costs many times its writing, on a virtual machine most of all. Memory that
was freed is therefore kept by the program, for all alike; with `fresh` it goes back to the system, as is usual.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np

from offload.sweeps import PlanFile, sweep
from offload.sweeps.filling import fill as fill_grid
from offload.sweeps.structure import Asked, structure_of

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
# Of DRAM, the GPUs' memories, the drive's link and the GPUs' links: how often each tensor passes, and the fixed rates.
TIMES = [(3, 3, 0), *3 * [(1, 1, 1)], (0, 0, 3), *3 * [(1, 1, 1)]]
RATES = [300e9, 3e12, 3e12, 3e12, 60e9]
BUILT = 8 * 45  # bytes a point that building takes at most: the axes, loads and rates, each of them stacked, quotients


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
    numbers = [axis.numbers.astype(float) for axis in grid.axes]
    shape = grid.shape

    def resources(w: np.ndarray, k: np.ndarray, p: np.ndarray, pcie: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Load and rate of each resource, of the shape of what they are made of, each from its own terms."""
        given = [*(rate * np.ones_like(w) for rate in RATES), pcie, pcie, pcie]
        return [(a * w + b * k + c * p, rate) for (a, b, c), rate in zip(TIMES, given, strict=True)]

    along = [one.reshape([-1 if axis == place else 1 for axis in range(4)]) for place, one in enumerate(numbers)]
    small = resources(*along)
    loads = np.stack(np.broadcast_arrays(*(load for load, _ in small)))
    rates = np.stack(np.broadcast_arrays(*(rate for _, rate in small)))

    structure = structure_of(Asked(PlanFile(folder / "plan.yaml"), grid.axes))

    def filled() -> np.ndarray:
        return fill_grid(structure, figures=("floor",)).floor

    def broadcast() -> np.ndarray:
        return (loads / rates).max(axis=0)

    def in_parts() -> np.ndarray:
        floor = np.empty(shape)
        for row in range(shape[0]):
            (loads[:, row] / rates[:, 0]).max(axis=0, out=floor[row])
        return floor

    def by_hand() -> np.ndarray:
        floor = np.zeros(shape)
        for load, rate in small:
            np.maximum(floor, load / rate, out=floor)
        return floor

    def built(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        at = np.meshgrid(numbers[0][rows], *numbers[1:], indexing="ij")
        whole = resources(*at)
        return np.stack([load for load, _ in whole]), np.stack([rate for _, rate in whole])

    def full(together: int) -> np.ndarray:
        floor = np.empty(shape)
        for row in range(0, shape[0], together):
            rows = slice(row, row + together)
            load, rate = built(rows)
            (load / rate).max(axis=0, out=floor[rows])
        return floor

    some = [built(slice(0, 1))]  # one chunk of the grid, over and over

    def ready() -> np.ndarray:
        floor = np.empty(shape)
        for row in range(shape[0]):
            floor[row] = (some[0][0] / some[0][1]).max(axis=0)[0]
        return floor

    def write() -> np.ndarray:
        found = np.empty((int(np.prod(shape[:-1])), inner))
        fill(found)
        return found

    write()
    works = {
        "sweep": swept, "its points alone": filled,
        "broadcast": broadcast, "broadcast in parts": in_parts, "broadcast by hand": by_hand,
        "full in parts": lambda: full(max(1, round(10e6 / np.prod(shape[1:])))), "full in small parts": lambda: full(1),
        "ready in small parts": ready, "write": write,
    }  # fmt: skip
    last = {}  # by itself: what it frees is more than stays the program's, and the next would wait for fresh memory
    if int(np.prod(shape)) * BUILT < free_memory():
        last["full at once"] = lambda: full(shape[0])
    seconds: dict[str, list[float]] = {name: [] for name in (*works, *last)}
    for name, work in [*rounds * [*works.items()], *rounds * [*last.items()]]:
        taken, found = timed(work)
        seconds[name].append(taken)
        if name != "write" and not name.startswith("ready") and not np.array_equal(found, grid.floor):
            raise SystemExit(f"{name} differs from the sweep")
        del found
    points = int(np.prod(shape))
    least = {name: statistics.median(taken) for name, taken in seconds.items()}
    print(f"{points / 1e6:.1f} million points, {' x '.join(map(str, shape))}; medians of {rounds}")
    for name, taken in least.items():
        print(f"  {name:20} {points / taken / 1e6:9.1f} million points/s   sweep is {taken / least['sweep']:7.1f} x")


def free_memory() -> int:
    """Bytes that can be had without swapping; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def keep_memory() -> None:
    """Of glibc: memory that is freed stays the program's."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: none
    except (OSError, AttributeError):
        print("freed memory goes back to the system here")


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != "fresh"]
    if len(given) == len(sys.argv[1:]):
        keep_memory()
    main(*(float(one) if place == 0 else int(one) for place, one in enumerate(given)))
