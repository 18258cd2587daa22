"""How near the schedule of a step is to what this machine takes for it, with rates that were measured just before.

    python benchmarks/replay.py [FOLDER [STEPS [MIB [ROUNDS]]]]

Replays 40 layers of so many MiB (32 if it is not said) from the drive below FOLDER with 1, 2 and 4 buffers and three
amounts of FLOP: those with which fetch and compute take equally long by the measured rates, a tenth of them, and three
times as many. Before each round of these nine it measures the machine (`offload measure --quick`: memory, drive,
processors). Prints, of each, the medians over the rounds of the schedule, of the measured median of its steps, and of
one over the other, with the least and the most: a drive that others share reads now more, now less. Nothing is fitted
to the plans.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from offload.documents import load_plan
from offload.measure import QUICK, measure
from offload.plan import Overlap
from offload.replaying import Options, Replay, replay
from offload.topology import Topology
from offload.topology.shares import DRIVES
from offload.units import format_flops, format_rate, format_seconds

PLAN = Path(__file__).resolve().parent.parent / "examples" / "replay-from-a-drive.yaml"
KINDS = {"drive-bound": 0.1, "balanced": 1.0, "compute-bound": 3.0}
BUFFERS = (1, 2, 4)


def measured(folder: str) -> Topology:
    """This machine's topology, with rates of now."""
    told = measure([folder], QUICK, ("memory", "drive", "processor")).told
    if told is None:
        sys.exit("this machine's shape cannot be a topology.")
    return told.topology


def asked(topology: Topology) -> tuple[str, float, float]:
    """The drive's name, what it reads [B/s], and what the processor computes [FLOP/s]."""
    drive = next(name for name, one in topology.memories.items() if one.kind in DRIVES)
    rates = (topology.resources[name].sustained_at(access).value for name, access in
             ((f"{drive}.read", "read"), ("cpu0.flops", "fp32")))  # fmt: skip
    return drive, *rates


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    steps, mib, rounds = (int(sys.argv[place]) if len(sys.argv) > place else usual
                          for place, usual in ((2, 3), (3, 32), (4, 5)))  # fmt: skip
    size, told = mib * 2**20, []
    found: dict[str, list[Replay]] = {}
    for _ in range(rounds):
        topology = measured(folder)
        drive, read, flops = asked(topology)
        told.append(f"{format_rate(read)} and {format_flops(flops)}")
        for kind, part in KINDS.items():
            for buffers in BUFFERS:
                work = round(part * size / read * flops / 1e6)
                settings = [f"tensors.w.bytes={size} B", f"tasks.layer.flops={work} MFLOP"]
                plan, _ = load_plan(PLAN, settings=settings)
                homes = {"w": replace(plan.tensors["w"], home=((drive, 1.0),))}
                plan = replace(plan, tensors=homes, overlap=Overlap("buffers", buffers))
                run = replay(topology, plan, Options((f"{drive}={folder}",), steps=steps))
                if run.interrupted:
                    sys.exit(130)
                found.setdefault(f"{kind}, k = {buffers}", []).append(run)
    print(f"{topology.title}; load average {os.getloadavg()[0]:.1f}; {rounds} rounds of {steps} steps each, layers of "
          f"{mib} MiB. Drive and fp32 before each round: {', '.join(told)}.")  # fmt: skip
    print("| case | schedule | measured | measured / schedule, median | least to most of the rounds |")
    print("| --- | --- | --- | --- | --- |")
    for name, runs in found.items():
        ratios = sorted(run.measured.median / run.predicted.seconds for run in runs)
        cells = [name, *(format_seconds(median(one)) for one in ([run.predicted.seconds for run in runs],
                 [run.measured.median for run in runs])), f"{median(ratios):.2f}",
                 f"{ratios[0]:.2f} to {ratios[-1]:.2f}"]  # fmt: skip
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
