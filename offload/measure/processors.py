"""How many FLOP a second the processors do in each number format, by what really runs here: matrix products of NumPy,
of torch where it is installed. Beside them, as a fact, a compiled loop of multiply-adds in the nearest cache: what the
processors do at least at best, but no product sustains it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from offload.measure.figures import Budget, Collected, Figure, Tell
from offload.measure.settings import Settings
from offload.measure.threads import one_thread_each, repeated, timed
from offload.units import many

NUMPY = {"fp32": "float32", "fp64": "float64"}
TORCH = {"bf16": "bfloat16", "fp16": "float16"}
BLOCK = 2048  # numbers of the multiply-add loop: they stay in the nearest cache
ROUNDS, EACH = 5_000, 16  # rounds over it, FLOP of each number in a round
EACH_ROWS = 1024  # rows of the products that processors do one each
SHORTEST = 0.02  # seconds of a repeat


def measure_processors(
    cpus: Sequence[int], settings: Settings, collected: Collected, budget: Budget, tell: Tell, torch: Any = None
) -> None:
    """FLOP/s of all processors that may be used, by format. torch : the module (default: that which is installed)."""
    for name, kind in NUMPY.items():
        for rows in settings.matrix:
            if not budget.left():
                collected.left_out(f"FLOP/s in {name}", "no time was left; measure without --quick")
                break
            tell(f"FLOP/s in {name}, {rows} rows")
            try:
                collected.add(_flops(cpus, _numpy(kind, rows, settings.repeats, budget), name, "NumPy's matrix product "
                                     f"of {rows} rows, threads as its library takes them"))  # fmt: skip
            except MemoryError:
                collected.left_out(f"FLOP/s in {name}, {rows} rows", "the system refuses the memory for them")
        if budget.left() and len(cpus) > 1:
            tell(f"FLOP/s in {name}, a product on each processor")
            try:
                rates = _numpy_each(kind, cpus, settings.repeats)
                collected.add(_flops(cpus, rates, name, f"NumPy's matrix products of {EACH_ROWS} rows, one on each "
                                     "processor", len(cpus)))  # fmt: skip
            except MemoryError:
                collected.left_out(f"FLOP/s in {name}, a product on each processor", "the system refuses the memory")
        if budget.left():
            tell(f"FLOP/s in {name}, a loop")
            collected.add(_flops(cpus, _loop(kind, cpus, settings.repeats), name, "a compiled loop of multiply-adds",
                                 len(cpus), rate=False))  # fmt: skip
    if torch is None:
        torch = import_module("torch") if "torch" in sys.modules or find_spec("torch") is not None else None
    for name, kind in TORCH.items():
        if torch is None:
            collected.left_out(f"FLOP/s in {name}", "neither NumPy nor a compiled loop computes in it; install torch")
            continue
        if not budget.left():
            collected.left_out(f"FLOP/s in {name}", "no time was left; measure without --quick")
            continue
        tell(f"FLOP/s in {name}, torch")
        try:
            collected.add(_flops(cpus, _torch(torch, kind, settings.matrix[0], settings.repeats, budget), name,
                                 f"torch's matrix product of {settings.matrix[0]} rows"))  # fmt: skip
        except (RuntimeError, AttributeError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            collected.left_out(f"FLOP/s in {name}", f"torch does not compute it here ({why})")
    collected.left_out("FLOP/s in int8 and below", "no library that is used here multiplies matrices in them")


def _flops(
    cpus: Sequence[int], rates: Sequence[float], name: str, note: str, threads: int | None = None, rate: bool = True
) -> Figure:
    return Figure("processor", "cpus", "cpus", tuple(rates), "", "FLOP/s", threads=threads, format=name, rate=rate,
                  note=f"{note}, {many(len(cpus), 'processor')}")  # fmt: skip


def _repeat(work: Callable[[], object], flop: float, repeats: int, budget: Budget) -> list[float]:
    """FLOP/s of each repeat, after one that is not counted; fewer where the time is over."""
    rates: list[float] = []
    while len(rates) < 2 or len(rates) <= repeats and budget.left():
        count, begun = 0, time.perf_counter()
        while not count or time.perf_counter() - begun < SHORTEST:
            work()
            count += 1
        rates.append(count * flop / (time.perf_counter() - begun))
    return rates[1:]


def _numpy(kind: str, rows: int, repeats: int, budget: Budget) -> list[float]:
    import numpy as np

    draw = np.random.default_rng(1)
    a, b = (draw.random((rows, rows)).astype(kind) for _ in range(2))
    into = np.empty_like(a)
    return _repeat(lambda: np.matmul(a, b, out=into), 2.0 * rows**3, repeats, budget)


def _numpy_each(kind: str, cpus: Sequence[int], repeats: int) -> list[float]:
    """A product on each processor, none of which waits for another."""
    import numpy as np

    a = np.random.default_rng(1).random((EACH_ROWS, EACH_ROWS)).astype(kind)
    into = [np.empty_like(a) for _ in cpus]
    with one_thread_each():
        seconds = repeated(cpus, lambda number: np.matmul(a, a, out=into[number]), repeats, SHORTEST)
    return [2.0 * EACH_ROWS**3 * len(cpus) / each for each in seconds]


def _torch(torch: Any, kind: str, rows: int, repeats: int, budget: Budget) -> list[float]:
    a, b = (torch.rand((rows, rows)).to(getattr(torch, kind)) for _ in range(2))
    return _repeat(lambda: torch.matmul(a, b), 2.0 * rows**3, repeats, budget)


def _loop(kind: str, cpus: Sequence[int], repeats: int) -> list[float]:
    import numpy as np

    from offload.measure.compiled import loops

    compiled, one = loops(), np.dtype(kind).type
    blocks = [np.ones(BLOCK, kind) for _ in cpus]
    compiled.multiply_add(blocks[0], 1, one(0.5), one(0.5))
    seconds = timed(cpus, lambda number: compiled.multiply_add(blocks[number], ROUNDS, one(0.5), one(0.5)), repeats)
    return [float(EACH) * BLOCK * ROUNDS * len(cpus) / each for each in seconds]
