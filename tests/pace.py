"""Limits of time that are the same work on any machine: seconds of a usual one, by a loop that is timed beside."""

from __future__ import annotations

import time

USUAL = 0.05  # s, of the loop where these limits were first kept: CPython 3.11 on a server's core of about 3 GHz


def seconds(usual: float) -> float:
    """So many seconds of a usual machine, as long as they take on this one now; never less."""
    return usual * max(1.0, max(_loop(), _loop()) / USUAL)


def _loop() -> float:
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number % 7
    return time.process_time() - began
