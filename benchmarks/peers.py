"""The same question to others, point by point: a decode step of Llama-3.1-8B on an H100 over batches and contexts.

    python benchmarks/peers.py [points]                  # pip install aiconfigurator, to have it beside the others

- aiconfigurator: its static estimate (`cli_estimate`), one call for each point, after one that warms it up;
- evaluate: `offload.evaluate` for each point, the plan read and compiled each time;
- sweep: `offload.sweeps.sweep` of a grid around these points, from the plan to the arrays.
They are models of different things: aiconfigurator interpolates measured kernels, a sweep gives floors and what binds.
Only how many points a second each answers is compared.
"""

from __future__ import annotations

import importlib.util
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from offload import evaluate, load_plan
from offload.documents import read_setting
from offload.sweeps import sweep

PLAN = """
topology: dgx-h100
model: {name: llama-3.1-8b, weights: bf16}
workload: {phase: decode, batch: 1, context: 1024}
placement: {weights: {hbm0: rest}}
"""
BATCHES, CONTEXTS = 256, 4000


def per_second(answer: Callable[[int, int], object], points: list[tuple[int, int]]) -> float:
    begun = time.perf_counter()
    for batch, context in points:
        answer(batch, context)
    return len(points) / (time.perf_counter() - begun)


def main(count: int = 20) -> None:
    """Print points a second."""
    chance = random.Random(0)
    points = [(chance.randint(1, 64), chance.randint(200, 4000)) for _ in range(count)]
    path = Path(tempfile.mkdtemp()) / "plan.yaml"
    path.write_text(PLAN)

    def one(batch: int, context: int) -> object:
        settings = [read_setting(f"workload.batch={batch}"), read_setting(f"workload.context={context}")]
        plan, topology = load_plan(path, settings=settings)
        return evaluate(topology, plan)

    found: dict[str, float] = {}
    if importlib.util.find_spec("aiconfigurator") is None:
        print("aiconfigurator is not installed: pip install aiconfigurator")
    else:
        logging.disable(logging.CRITICAL)
        from aiconfigurator.cli.api import cli_estimate

        def theirs(batch: int, context: int) -> object:
            return cli_estimate("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", mode="static", isl=context, osl=2,
                                batch_size=batch)  # fmt: skip

        theirs(1, 1000)
        found["aiconfigurator"] = per_second(theirs, points)
    one(1, 1000)
    found["evaluate"] = per_second(one, points)
    axes = [f"workload.batch=1:{BATCHES}", f"workload.context=1:{CONTEXTS}"]
    sweep(path, axes)
    begun = time.perf_counter()
    size = sweep(path, axes).size
    found["sweep"] = size / (time.perf_counter() - begun)
    for name, rate in found.items():
        print(f"{name:16}{rate:14,.1f} points/s   sweep is {found['sweep'] / rate:12,.0f} x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
