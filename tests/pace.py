"""Limits of time that are the same work on any machine: seconds of a usual one, by a loop that is timed beside."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

USUAL = 0.05  # s, of the loop where these limits were first kept: CPython 3.11 on a server's core of about 3 GHz


@contextmanager
def within(usual: float, what: object = "") -> Iterator[None]:
    """What is done in here takes less than so many seconds of a usual machine's processor, as in a process of its own.

    Nothing looks for garbage meanwhile: that takes as long as what all the tests before have left is large.
    """
    on = gc.isenabled()
    gc.disable()
    began = time.process_time()
    try:
        yield
    finally:  # what is refused is refused in time, too
        taken = time.process_time() - began
        if on:
            gc.enable()
        # The loop takes longer than most of what is timed: only a machine that may be slow is looked at.
        assert taken < usual or taken < usual * max(_loop(), _loop()) / USUAL, (taken, what)


def _loop() -> float:
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number % 7
    return time.process_time() - began
