"""Limits of time that hold on a slow or busy machine too: in seconds of a usual one, by a loop that is timed beside."""

from __future__ import annotations

import time

USUAL = 0.04  # seconds that the loop takes on a usual machine
ROOM = 2.0  # what a machine may be slower at other work than at the loop


def seconds(usual: float) -> float:
    """How long what takes less than so many seconds on a usual machine may take here and now; never less than that."""
    return usual * max(1.0, ROOM * max(_loop(), _loop()) / USUAL)


def _loop() -> float:
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number % 7
    return time.process_time() - began
