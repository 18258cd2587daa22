"""Expected times that are searched for, of many steps: by several processes where the system can fork."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Sequence

from offload.schedules import schedule
from offload.step import Step

FEW = 16  # steps from which on several processes share them
TOGETHER = 4  # steps that a process takes at a time
_STEPS: Sequence[Step] = ()  # what the processes work at


def searched(steps: Sequence[Step], tell: Callable[[int, int], None]) -> list[float]:
    """Expected seconds of each step, back to back. tell : is told how many of them are done."""
    global _STEPS
    processes = min(os.cpu_count() or 1, len(steps) // TOGETHER)
    able = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    if len(steps) < FEW or processes < 2 or not able:
        return _told(map(_seconds, steps), len(steps), tell)
    _STEPS = steps
    try:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            return _told(pool.imap(_at, range(len(steps)), chunksize=TOGETHER), len(steps), tell)
    finally:
        _STEPS = ()


def _told(values: Iterable[float], count: int, tell: Callable[[int, int], None]) -> list[float]:
    found: list[float] = []
    for one in values:
        found.append(one)
        tell(len(found), count)
    return found


def _seconds(step: Step) -> float:
    return schedule(step, ends=False).seconds


def _at(place: int) -> float:
    return _seconds(_STEPS[place])
