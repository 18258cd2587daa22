"""Work on several threads that begin at once, each bound to a processor, and the time until the last ends."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from offload.measure.ending import Threads

MOST_PASSES = 64


def bind(cpus: Sequence[int]) -> None:
    """Let this thread run on these processors alone, where the system has a way to say so and allows it."""
    if hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, cpus)
        except OSError:  # a container may forbid it: threads then run where the system puts them
            pass


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Meanwhile a matrix product of NumPy takes the thread that asks for it and no other."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def timed(cpus: Sequence[int], work: Callable[[int], object], repeats: int, warm: bool = True) -> list[float]:
    """Seconds of each repeat of work(0), work(1), .. side by side, a thread for each processor of `cpus`.

    A repeat lasts from the first thread's begin to the last one's end. warm : one more repeat before, which is not
    counted. Raises what the work raises.
    """
    runs = repeats + warm
    begun = [[0.0] * len(cpus) for _ in range(runs)]
    ended = [[0.0] * len(cpus) for _ in range(runs)]
    start, errors = threading.Barrier(len(cpus)), []

    def one(number: int) -> None:
        try:
            bind([cpus[number]])
            for run in range(runs):
                start.wait()
                begun[run][number] = time.perf_counter()
                work(number)
                ended[run][number] = time.perf_counter()
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:  # told by the caller's thread
            errors.append(error)
            start.abort()

    threads = Threads([functools.partial(one, number) for number in range(len(cpus))])
    try:
        threads.start()
        threads.wait()
    except BaseException:
        start.abort()
        raise
    if errors:
        raise errors[0]
    return [max(ended[run]) - min(begun[run]) for run in range(warm, runs)]


def repeated(cpus: Sequence[int], work: Callable[[int], object], repeats: int, least: float) -> list[float]:
    """Seconds of one pass of the work, of each repeat: a repeat makes as many passes as take `least` seconds, so that
    how exactly threads begin together matters little. Raises what the work raises.
    """
    once = timed(cpus, work, 2, warm=False)[-1]  # the first may compile
    passes = max(1, min(MOST_PASSES, math.ceil(least / max(once, 1e-9))))

    def several(number: int) -> None:
        for _ in range(passes):
            work(number)

    return [one / passes for one in timed(cpus, several, repeats, warm=False)]


def parts(length: int, count: int, unit: int = 1) -> list[slice]:
    """A length cut into `count` slices of whole units, as even as can be; what is left over belongs to none."""
    units = length // unit
    ends = [units * number // count * unit for number in range(count + 1)]
    return [slice(begin, end) for begin, end in zip(ends, ends[1:], strict=False)]


def counts(most: int, every: bool) -> list[int]:
    """Numbers of threads to try: 1 and `most`, with `every` also the powers of two between."""
    found = {1, most}
    number = 2
    while every and number < most:
        found.add(number)
        number *= 2
    return sorted(found)
