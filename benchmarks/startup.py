"""How long `offload step` takes beside the bare imports that it cannot do without, in turn (A B A B ...) in one run.

    python benchmarks/startup.py [rounds]

Prints both medians and their ratio, which should stay at or below 1.5.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP = [sys.executable, "-m", "offload", "step", "examples/llama-3.1-70b-desktop.yaml"]
IMPORTS = [
    sys.executable,
    "-c",
    "import numpy, networkx, yaml, rich.table, rich.console; from pydantic import BaseModel",
]


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main(rounds: int = 15) -> None:
    seconds(STEP), seconds(IMPORTS)  # byte-compile and fill the page cache
    pairs = [(seconds(STEP), seconds(IMPORTS)) for _ in range(rounds)]
    step, imports = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"offload step  median of {rounds}: {step * 1e3:.0f} ms")
    print(f"bare imports  median of {rounds}: {imports * 1e3:.0f} ms")
    print(f"ratio {step / imports:.2f} (target <= 1.50)")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
