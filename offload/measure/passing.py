"""Copies within host memory and between processes: memcpy, a copy through a bounce buffer, shared memory, a pipe.

They are rates of no part of a topology: what a copy in steps costs beside one that goes straight.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from offload.measure.figures import Budget, Collected, Figure, Tell
from offload.measure.memory import WORD, aligned
from offload.measure.settings import MIB, Settings
from offload.units import format_bytes

BOUNCE = 4 * MIB  # bytes of the buffer between: as runtimes have it
WHOLE = 128 * MIB  # bytes copied through it, at most
SHARE = 16  # of the free memory
SHORTEST = 0.02  # seconds that copies of one size are repeated for

# What the other process does. It takes the bytes out of a pipe, or copies them out of memory that both have, and says
# when it is done: one byte on its standard output.
PIPE_CHILD = """
import mmap, os
size = int(os.environ["OFFLOAD_SIZE"])
into = memoryview(mmap.mmap(-1, size))
os.write(1, b"r")
while True:
    left = size
    while left:
        count = os.readv(0, [into[:left]])
        if not count:
            raise SystemExit
        left -= count
    os.write(1, b"d")
"""
SHARED_CHILD = """
import mmap, os
size, number = int(os.environ["OFFLOAD_SIZE"]), int(os.environ["OFFLOAD_FD"])
shared, into = memoryview(mmap.mmap(number, size)), memoryview(mmap.mmap(-1, size))
os.write(1, b"r")
while os.read(0, 1):
    into[:] = shared
    os.write(1, b"d")
"""


def measure_passing(free: int, settings: Settings, collected: Collected, budget: Budget, tell: Tell) -> None:
    """All of these copies. free : bytes of memory that may be used. What cannot be measured is told."""
    tell("copies within host memory")
    try:
        _memcpy(settings, collected)
        _bounce(free, settings, collected)
    except MemoryError:
        collected.left_out("copies within host memory", "the system refuses the memory for them")
    for what, function in (("pipe", _pipe), ("shared memory", _shared)):
        if not budget.left():
            collected.left_out(f"from process to process by {what}", "no time was left; measure without --quick")
            continue
        tell(f"from process to process by {what}")
        for size in settings.copies:
            try:
                function(size, settings, collected)
            except (OSError, subprocess.SubprocessError, AttributeError) as error:
                why = getattr(error, "strerror", None) or str(error)
                collected.left_out(f"from process to process by {what}", f"{why} ({format_bytes(size)})")
                break


def _memcpy(settings: Settings, collected: Collected) -> None:
    """One copy of each size, from one place to another."""
    import numpy as np

    for size in settings.copies:
        source, into = _buffer(size), _buffer(size)
        rates = []
        for _ in range(settings.repeats + 1):
            count, begun = 0, time.perf_counter()
            while not count or time.perf_counter() - begun < SHORTEST:
                np.copyto(into, source)
                count += 1
            rates.append(count * size / (time.perf_counter() - begun))
        _add(collected, rates[1:], size, "memcpy, again and again between the same two places", "host", "host")


def _bounce(free: int, settings: Settings, collected: Collected) -> None:
    """A large copy in steps, each into a small buffer and out of it again: bytes that arrive, counted once."""
    import numpy as np

    size = min(WHOLE, settings.array // 6, free // SHARE) // BOUNCE * BOUNCE
    if size < 4 * BOUNCE:
        return collected.left_out("a copy through a bounce buffer", f"{format_bytes(free)} of memory are free, too few")
    source, into, between = _buffer(size), _buffer(size), _buffer(BOUNCE)
    straight, bounced = [], []
    for _ in range(settings.repeats + 1):
        begun = time.perf_counter()
        np.copyto(into, source)
        straight.append(size / (time.perf_counter() - begun))
        begun = time.perf_counter()
        bounce(source, into, between)
        bounced.append(size / (time.perf_counter() - begun))
    _add(collected, straight[1:], size, "memcpy, one large copy", "host", "host")
    _add(collected, bounced[1:], size, f"memcpy through a bounce buffer of {format_bytes(BOUNCE)}", "host", "host")
    return None


def _buffer(size: int) -> Any:
    """Touched bytes that begin on a large page: some processors copy slower to what begins elsewhere."""
    import numpy as np

    found = aligned(-(-size // WORD)).view(np.uint8)[:size]
    found[:] = 1
    return found


def bounce(source: object, into: object, between: object) -> None:
    """Copy an array into another of its length by way of a smaller one."""
    import numpy as np

    step = len(between)  # type: ignore[arg-type]
    for begin in range(0, len(source), step):  # type: ignore[arg-type]
        part = between[: min(step, len(source) - begin)]  # type: ignore[index, arg-type]
        np.copyto(part, source[begin : begin + step])  # type: ignore[index]
        np.copyto(into[begin : begin + step], part)  # type: ignore[index]


@contextlib.contextmanager
def _other(code: str, size: int, **more: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that runs a text, ended when the block is left."""
    words = [sys.executable, "-I", "-S", "-c", code]
    environment = {**os.environ, "OFFLOAD_SIZE": str(size), **{f"OFFLOAD_{key.upper()}": str(value)
                   for key, value in more.items()}}  # fmt: skip
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=environment, pass_fds=tuple(more.values()), bufsize=0) as other:  # fmt: skip
        try:
            if other.stdout is None or other.stdout.read(1) != b"r":
                raise OSError("the other process did not begin")
            yield other
        finally:
            other.kill()


def _rounds(other: subprocess.Popen[bytes], send: object, size: int, settings: Settings) -> list[float]:
    rates = []
    for _ in range(settings.repeats + 1):
        count, begun = 0, time.perf_counter()
        while not count or time.perf_counter() - begun < SHORTEST:
            send()  # type: ignore[operator]
            if other.stdout is None or other.stdout.read(1) != b"d":
                raise OSError("the other process ended")
            count += 1
        rates.append(count * size / (time.perf_counter() - begun))
    return rates[1:]


def _pipe(size: int, settings: Settings, collected: Collected) -> None:
    data = memoryview(_buffer(size))
    with _other(PIPE_CHILD, size) as other:

        def send() -> None:
            begun = 0
            while begun < size:
                begun += os.write(other.stdin.fileno(), data[begun:])  # type: ignore[union-attr]

        _add(collected, _rounds(other, send, size, settings), size, "by a pipe, until it is answered", "process",
             "process")  # fmt: skip


def _shared(size: int, settings: Settings, collected: Collected) -> None:
    import mmap

    number = os.memfd_create("offload-measure")
    try:
        os.ftruncate(number, size)
        data = memoryview(_buffer(size))
        with mmap.mmap(number, size) as shared, _other(SHARED_CHILD, size, fd=number) as other:
            view = memoryview(shared)

            def send() -> None:
                view[:] = data
                os.write(other.stdin.fileno(), b"g")  # type: ignore[union-attr]

            try:
                rates = _rounds(other, send, size, settings)
            finally:
                view.release()
        _add(collected, rates, size, "by shared memory: copied in, told, copied out", "process", "process")
    finally:
        os.close(number)


def _add(collected: Collected, rates: list[float], size: int, note: str, source: str, destination: str) -> None:
    collected.add(Figure("host", source, destination, tuple(rates), "copy", size=size, note=note, rate=False))
