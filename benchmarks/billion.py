"""A thousand million points with reductions: time, points a second, and the most memory that the process had.

    python benchmarks/billion.py            # 10^9 points
    python benchmarks/billion.py 1e8        # fewer
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from offload.sweeps import sweep
from offload.sweeps.progress import Progress

PLAN = Path(__file__).resolve().parent.parent / "examples" / "by-hand.yaml"
LIMIT = 2 * 2**30  # bytes


def main() -> int:
    points = float(sys.argv[1]) if len(sys.argv) > 1 else 1e9
    outer = max(2, round(points / (100 * 100 * 1000)))
    axes = [f"tensors.w.bytes=100 MB:900 MB:{outer}", "tensors.kv.bytes=1 MB:90 MB:100",
            "dram0.rate=50GB/s:250GB/s:100log", "pcie0.rate=16GB/s:128GB/s:1000log"]  # fmt: skip
    for reductions in (["best=20"], ["binding"], ["min"], ["best=20", "binding", "min", "pareto=floor:spare"]):
        begun = time.perf_counter()
        with Progress() as watcher:
            found = sweep(PLAN, axes, reduce=reductions, watcher=watcher)
        seconds = time.perf_counter() - begun
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"{','.join(reductions):<40} {found.size:>13,} points {seconds:7.1f} s "
              f"{found.size / seconds / 1e6:7.1f} M/s  at most {most / 2**30:.2f} GiB", flush=True)  # fmt: skip
    return 0 if most < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
