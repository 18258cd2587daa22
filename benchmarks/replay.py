"""How near the schedule of a step is to what this machine takes for it, with rates that were measured just before.

    python benchmarks/replay.py [FOLDER [STEPS [MIB]]]

Replays 40 layers of so many MiB (4 if it is not said) from the drive below FOLDER with 1, 2 and 4 buffers and three
amounts of FLOP: those with which fetch and compute take equally long by the measured rates, a tenth of them, and three
times as many. Before each run, and once in the end, it measures the machine (`offload measure --quick`: memory, drive,
processors). Prints a table of schedule and measured times, and the measured rates: where these differ, the
machine changed meanwhile, and the schedule with the rates of after stands beside. Nothing is fitted to the plans.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from offload.compiler import compile_step
from offload.documents import load_plan, read_setting
from offload.measure import QUICK, measure
from offload.plan import Overlap
from offload.replaying import Options, replay
from offload.report_replay import summary
from offload.schedules import schedule
from offload.topology import Topology
from offload.topology.shares import DRIVES
from offload.units import format_flops, format_rate

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
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    size = (int(sys.argv[3]) if len(sys.argv) > 3 else 4) * 2**20
    runs, told = [], []
    for kind, part in KINDS.items():
        for buffers in BUFFERS:
            topology = measured(folder)
            drive, read, flops = asked(topology)
            told.append(f"{format_rate(read)} and {format_flops(flops)}")
            work = round(part * size / read * flops / 1e6)
            settings = [f"tensors.w.bytes={size} B", f"tasks.layer.flops={work} MFLOP"]
            plan, _ = load_plan(PLAN, settings=[read_setting(one) for one in settings])
            homes = {"w": replace(plan.tensors["w"], home=((drive, 1.0),))}
            plan = replace(plan, tensors=homes, overlap=Overlap("buffers", buffers))
            found = replay(topology, plan, Options((f"{drive}={folder}",), steps=steps))
            if found.interrupted:
                sys.exit(130)
            runs.append((f"{kind}, k = {buffers}", plan, found))
    topology = measured(folder)
    told.append(f"after all {format_rate(asked(topology)[1])} and {format_flops(asked(topology)[2])}")
    print(f"{topology.title}; load average {os.getloadavg()[0]:.1f}; {steps} steps each, layers of {size >> 20} MiB. "
          f"Drive and fp32 before each: {', '.join(told)}.")  # fmt: skip
    print("| case | schedule | measured, median | least to most | measured / schedule | rates of after |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, plan, found in runs:
        again = found.measured.median / schedule(compile_step(topology, plan)).seconds
        print(f"| {' | '.join(*summary([(name, found)]))} | {again:.2f} |")


if __name__ == "__main__":
    main()
