"""The fluid simulation beside a plain event loop, in turn (A B A B ...) in one run, and how both grow.

    python benchmarks/fluid.py [rounds]

The plain loop is the obvious one: at each event it fills all rates anew, task by task, and looks for the next end among
those at work, and checks nothing of what it is given. Where only two are at work, as in a decode step, it does little
more than what must be done; the more run at once, the more it repeats. Short runs are taken more often than `rounds`,
for half a second. Both must agree on every finish (chains of 100 random tasks magnify rounding: against fractions the
simulation is within 2e-9; the plain loop, whose sums follow the order of a set, was 4e-9 off in one run). Growth is
shown as time over n log2 n, which should not rise.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from math import log2

from offload.fluid import FluidTask, simulate

Rates = Mapping[str, float]
Tasks = Mapping[str, FluidTask]
SIZES = (500, 1000, 2000, 4000, 8000)


def plain(rates: Rates, tasks: Tasks) -> dict[str, float]:
    """The finish of each task under max-min sharing, by a plain event loop. Every task here has work and uses."""
    waits = {name: len(task.deps) for name, task in tasks.items()}
    after: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for on in task.deps:
            after[on].append(name)
    left = {name: float(task.work) for name, task in tasks.items()}
    active = [name for name, count in waits.items() if not count]
    finish: dict[str, float] = {}
    now = 0.0
    while active:
        speed: dict[str, float] = {}
        rising = set(active)
        capacity = dict(rates)
        while rising:
            total = dict.fromkeys(rates, 0.0)
            for name in rising:
                for r, a in tasks[name].use.items():
                    total[r] += a
            raised, full = min((capacity[r] / total[r], r) for r in rates if total[r] > 0)
            level = max(speed.values(), default=0.0)
            stopped = [name for name in rising if full in tasks[name].use]
            for name in stopped:
                speed[name] = max(raised, level)
                rising.discard(name)
                for r, a in tasks[name].use.items():
                    capacity[r] -= a * speed[name]
        step = min(left[name] / speed[name] for name in active)
        now += step
        still = []
        for name in active:
            left[name] -= speed[name] * step
            if left[name] > 1e-12 * tasks[name].work:
                still.append(name)
                continue
            finish[name] = now
            for later in after[name]:
                waits[later] -= 1
                if not waits[later]:
                    still.append(later)
        active = still
    return finish


def decode_step(layers: int = 80) -> tuple[Rates, Tasks]:
    """Weights from host memory over a link into GPU memory, two buffers, computes that read GPU memory."""
    rates = {"dram": 70e9, "pcie": 26e9, "hbm": 921e9, "flops": 124e12}
    tasks: dict[str, FluidTask] = {}
    for i in range(layers):
        before = [f"fetch{i - 1}"] if i else []
        slot = [f"compute{i - 2}"] if i > 1 else []
        size = 528e6 + 1e6 * (i % 7)
        tasks[f"fetch{i}"] = FluidTask(size, {"dram": 1.0, "pcie": 1.0, "hbm": 1.0}, before + slot, 6e-6)
        last = [f"compute{i - 1}"] if i else []
        tasks[f"compute{i}"] = FluidTask(size + 17e6, {"hbm": 1.0, "flops": 3.3}, [f"fetch{i}", *last])
    return rates, {name: FluidTask(one.work, one.use, one.deps) for name, one in tasks.items()}


def chains(count: int = 100, length: int = 100) -> tuple[Rates, Tasks]:
    """Chains of tasks of random work, each on one or two of four resources."""
    dice = random.Random(1)
    rates = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0}
    tasks = {}
    for c in range(count):
        for i in range(length):
            use = {r: dice.choice([1.0, 2.0, 0.5]) for r in dice.sample(sorted(rates), dice.choice([1, 2]))}
            tasks[f"{c}.{i}"] = FluidTask(dice.uniform(1, 9), use, [f"{c}.{i - 1}"] if i else [])
    return rates, tasks


def one_resource(n: int) -> tuple[Rates, Tasks]:
    """Independent tasks of random work on one resource."""
    dice = random.Random(n)
    return {"a": 10.0}, {f"t{j}": FluidTask(dice.uniform(1, 9), {"a": 1.0}) for j in range(n)}


def four_resources(n: int) -> tuple[Rates, Tasks]:
    """Independent tasks of random work, each on some of four resources with coefficients of its own."""
    dice = random.Random(n)
    rates = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0}
    return rates, {
        f"t{j}": FluidTask(
            dice.uniform(1, 9), {r: dice.uniform(0.5, 2) for r in dice.sample(sorted(rates), dice.randint(1, 4))}
        )
        for j in range(n)
    }


def distinct_sets(n: int) -> tuple[Rates, Tasks]:
    """Independent tasks of random work, each on three of forty resources, so that few use the same ones."""
    dice = random.Random(n)
    rates = {f"r{k}": dice.uniform(5, 50) for k in range(40)}
    return rates, {
        f"t{j}": FluidTask(dice.uniform(1, 9), {r: dice.uniform(0.5, 2) for r in dice.sample(sorted(rates), 3)})
        for j in range(n)
    }


def seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def compare(title: str, rates: Rates, tasks: Tasks, rounds: int) -> None:
    expected, found = plain(rates, tasks), simulate(rates, tasks)
    worst = max(abs(found.finish[name] / at - 1) for name, at in expected.items())
    short = seconds(lambda: simulate(rates, tasks)) + seconds(lambda: plain(rates, tasks))
    rounds = max(rounds, int(0.5 / short))
    pairs = [(seconds(lambda: simulate(rates, tasks)), seconds(lambda: plain(rates, tasks))) for _ in range(rounds)]
    fluid, loop = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{title:42} {fluid * 1e3:9.1f} ms {loop * 1e3:11.1f} ms {loop / fluid:9.1f} x {worst:9.0e}")


def growth(title: str, make: Callable[[int], tuple[Rates, Tasks]], rounds: int) -> None:
    print(f"\n{title}: n, time, time / (n log2 n)")
    problems = {n: make(n) for n in SIZES}
    times: dict[int, list[float]] = {n: [] for n in SIZES}
    for _ in range(rounds):
        for n, problem in problems.items():
            times[n].append(seconds(lambda given=problem: simulate(*given)))
    for n, found in times.items():
        median = statistics.median(found)
        print(f"{n:6} {median * 1e3:9.1f} ms {median / (n * log2(n)) * 1e6:8.2f} us")


def main(rounds: int = 3) -> None:
    print(f"median of {rounds} or more{'':25} fluid     plain loop    ratio  differ by")
    compare("decode step, 80 layers, 4 resources", *decode_step(), rounds)
    compare("10,000 tasks in 100 chains, 4 resources", *chains(), rounds)
    compare("2,000 unequal tasks, 1 resource", *one_resource(2000), rounds)
    compare("2,000 unequal tasks, 4 resources", *four_resources(2000), rounds)
    compare("200 tasks on 3 of 40 resources each", *distinct_sets(200), rounds)
    growth("Unequal tasks on one resource", one_resource, rounds)
    growth("Unequal tasks on four resources", four_resources, rounds)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
