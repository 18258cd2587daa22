"""The times of a step over the number of drives in a set: each brings its own rate and its own link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload.bounds import floor
from offload.curves import binding_parts, schedule_policy
from offload.displayed import Drawing
from offload.errors import PlotError, did_you_mean
from offload.ranges import fold
from offload.schedules import schedule, serial
from offload.sensitivity import scaled, together
from offload.step import Step, loads

DRIVES = ("nvme", "disk")
MOST = 8


@dataclass(frozen=True, slots=True)
class DriveCount:
    """Times of a step [s] with so many drives; low, high : of the expected one. binding : what binds its floor, in few
    words; adds : whether their times add; of_drives : whether a drive or its own link is among them.
    """

    drives: int
    floor: float
    expected: float
    low: float
    high: float
    serial: float
    binding: str
    adds: bool
    of_drives: bool


@dataclass(frozen=True, slots=True)
class DriveCounts(Drawing):
    """The counts, rising. drive : the set, or several that are loaded alike ("ssd0..1"); sets : how many sets.

    present : how many drives each has now; tokens : of a step; policy : of the schedule.
    """

    drive: str
    sets: int
    present: int
    counts: tuple[DriveCount, ...]
    tokens: float
    policy: str

    @property
    def enough(self) -> int | None:
        """From how many drives on more of them lower the floor no further; None where each does."""
        return next((one.drives for one in self.counts if not one.of_drives), None)


def drive_counts(step: Step, drive: str | None = None, counts: Sequence[int] = range(1, MOST + 1)) -> DriveCounts:
    """The times of a step with each number of drives in a set, rates of drives and of their own links in proportion.

    drive : a memory of kind nvme or disk that the step loads; None for the one that is loaded most, and those like it.
    What they share with others (a socket, a switch, a processor's path) stays. Raises PlotError where there is none.
    """
    topology, carried = step.topology, loads(step, least=False)
    per_drive: dict[str, float] = {}
    for name, memory in topology.memories.items():
        if memory.kind in DRIVES:
            load = sum(carried.get(one, 0.0) for one in together(topology, name))
            if load > 0:
                per_drive[name] = load
    if drive is not None and drive not in per_drive:
        raise PlotError(f'no drive "{drive}" that this step loads. {did_you_mean(drive, per_drive, "Drives")}')
    if not per_drive:
        raise PlotError("no figure: this step reads and writes no drive. Place something on one (placement.weights: "
                        "{ssd0: rest}).")  # fmt: skip
    most = max(per_drive.values())
    chosen = [drive] if drive is not None else [name for name, load in per_drive.items() if load >= most * (1 - 1e-9)]
    present = topology.memories[chosen[0]].count
    chosen = [name for name in chosen if topology.memories[name].count == present]
    group = set().union(*(together(topology, name) for name in chosen))
    found = []
    for count in sorted(set(counts) | {present}):
        there = scaled(step, group, count / present)
        bound, expected = floor(there), schedule(there)
        parts, cycle = binding_parts(bound), bound.rule == "cycle"
        found.append(DriveCount(count, bound.seconds, expected.seconds, expected.low, expected.high,
                                serial(there).seconds, (" + " if cycle else " and ").join(parts),
                                cycle and len(parts) > 1, bool(group & set(bound.bottleneck))))  # fmt: skip
    return DriveCounts(fold(chosen), len(chosen), present, tuple(found), step.plan.tokens, schedule_policy(step))
