"""How long `offload sweep` of a million points takes: with kernels cached, and in a fresh install.

Each is a process of its own; the least of a few runs is told, but of the fresh install, which compiles, one.
    python benchmarks/first_sweep.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
WORDS = [sys.executable, "-m", "offload", "sweep", str(ROOT / "examples" / "by-hand.yaml"), "--over",
         "tensors.w.bytes=100 MB:900 MB:100", "--over", "dram0.rate=50GB/s:250GB/s:100log", "--over",
         "pcie0.rate=16GB/s:128GB/s:100log", "--progress"]  # fmt: skip


def timed(words: list[str], cache: str) -> tuple[float, float]:
    """Seconds to the end, and to the first line on standard error."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": cache}
    begun = time.perf_counter()
    first = float("nan")
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        if process.stderr.readline():
            first = time.perf_counter() - begun
        process.stderr.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit status {process.returncode}")
    return time.perf_counter() - begun, first


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        fresh = timed(WORDS, cache)
        cached = min(timed(WORDS, cache) for _ in range(RUNS))
        alone = min(timed([sys.executable, "-c", "import numba"], cache)[0] for _ in range(RUNS))
        small = min(timed([*WORDS[:5], "--over", "pcie0.rate=16GB/s:128GB/s:100log", "--progress"], cache)
                    for _ in range(RUNS))  # fmt: skip
    print(f"a million points, fresh install     {fresh[0]:6.2f} s, first line after {fresh[1]:.2f} s")
    print(f"a million points, kernels cached    {cached[0]:6.2f} s, first line after {cached[1]:.2f} s")
    print(f"a hundred points, without kernels   {small[0]:6.2f} s, first line after {small[1]:.2f} s")
    print(f"import numba alone                  {alone:6.2f} s")


if __name__ == "__main__":
    main()
