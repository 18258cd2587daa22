"""GPUs behind one small interface: copies from pinned and pageable memory, both ways at once, between GPUs, and the
GPU's own memory.

Whatever drives the GPU (torch, cupy) gives buffers, streams, and copies that have only begun when they return; nothing
is timed but from one `wait` to the next, so that no copy is counted before it has ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from offload.measure.figures import Budget, Collected, Figure, Tell
from offload.measure.settings import Settings
from offload.readers.tools.finding import ADDED

SHARE = 4  # of a GPU's free memory, for three buffers
HOST_SHARE = 8  # of the host's free memory, for two
OWN_RUN, MOST_TIMES = 0.02, 512  # seconds of a repeat within a GPU's memory; how often it does its work at most


class Gpus(Protocol):
    """The GPUs that a library drives, counted as nvidia-smi counts them. Every method may raise RuntimeError."""

    tool: str

    def count(self) -> int:
        """How many there are."""

    def model(self, gpu: int) -> str:
        """What one is called."""

    def free(self, gpu: int) -> int:
        """Bytes of its memory that are free."""

    def host(self, size: int, pinned: bool) -> Any:
        """A buffer of host memory, touched."""

    def device(self, gpu: int, size: int) -> Any:
        """A buffer of a GPU's memory."""

    def part(self, buffer: Any, size: int) -> Any:
        """The first bytes of a buffer, without a copy."""

    def stream(self, gpu: int) -> Any:
        """A queue of work of its own."""

    def copy(self, into: Any, source: Any, stream: Any) -> None:
        """Begin a copy of all of `source`; it may end after the call returns."""

    def add(self, into: Any, one: Any, other: Any, stream: Any) -> None:
        """Begin into = one + other within a GPU: two reads and a write of each byte."""

    def reaches(self, gpu: int, other: int) -> bool:
        """Whether one copies straight to another's memory."""

    def wait(self, gpu: int) -> None:
        """Until everything that was begun on a GPU has ended."""

    def release(self) -> None:
        """Give back what the library keeps of buffers that nobody holds."""


def measure_gpus(
    gpus: Gpus, host_free: int, settings: Settings, collected: Collected, budget: Budget, tell: Tell,
    clock: Callable[[], float] = time.perf_counter,
) -> None:  # fmt: skip
    """All copies of every GPU. host_free : bytes of host memory. What fails is told, and the rest is measured."""
    count = gpus.count()
    for gpu in range(count):
        one = _Gpu(gpus, gpu, settings, collected, clock)
        for what, measured in (
            ("copies from and to pinned memory", lambda one=one: one.host(host_free, True)),
            ("copies from and to pageable memory", lambda one=one: one.host(host_free, False)),
            ("copies both ways at once", lambda one=one: one.both(host_free)),
            ("its own memory", one.own),
        ):
            _try(f"gpu{gpu}, {what}", measured, gpus, collected, budget, tell)
        for other in range(count):
            if other != gpu:
                _try(f"gpu{gpu} to gpu{other}", partial(one.peer, other), gpus, collected, budget, tell)


def _try(
    what: str, measured: Callable[[], None], gpus: Gpus, collected: Collected, budget: Budget, tell: Tell
) -> None:
    if not budget.left():
        return collected.left_out(what, "no time was left; measure without --quick")
    tell(what)
    try:
        measured()
    except (RuntimeError, MemoryError) as error:  # both libraries tell theirs by these
        lines = str(error).splitlines() or [type(error).__name__]
        collected.left_out(what, f"{gpus.tool} says: {lines[0][:200]}")
    with suppress(RuntimeError):
        gpus.release()
    return None


class _Gpu:
    def __init__(
        self, gpus: Gpus, number: int, settings: Settings, collected: Collected, clock: Callable[[], float]
    ):  # fmt: skip
        self.gpus, self.number, self.settings, self.collected, self.clock = gpus, number, settings, collected, clock
        self.name = f"gpu{number}"

    def sizes(self, host_free: int | None = None) -> list[int]:
        most = self.gpus.free(self.number) // SHARE // 3
        if host_free is not None:
            most = min(most, host_free // HOST_SHARE // 2)
        found = [one for one in self.settings.gpu_copy if one <= most]
        if not found:
            raise MemoryError(f"too little memory is free for buffers of {self.settings.gpu_copy[0]} bytes")
        return found

    def timed(
        self, begin: Callable[[], None], moved: int, waits: Sequence[int], least: float = 0.0
    ) -> tuple[float, ...]:
        """Bytes per second of each repeat, from everything having ended to everything having ended again.

        least : seconds of a repeat, which begins the work as often as that takes, so that what a begin and a wait take
        is little beside it.
        """
        rates, times = [], 1
        for run in range(self.settings.repeats + 1):
            for gpu in waits:
                self.gpus.wait(gpu)
            begun = self.clock()
            for _ in range(times):
                begin()
            for gpu in waits:
                self.gpus.wait(gpu)
            seconds = self.clock() - begun
            if run:
                rates.append(times * moved / seconds)
            else:
                times = max(1, min(MOST_TIMES, math.ceil(least / max(seconds, 1e-9))))
        return tuple(rates)

    def add(self, source: str, destination: str, rates: tuple[float, ...], size: int, **more: Any) -> None:
        self.collected.add(Figure("gpu", source, destination, rates, size=size, **more))

    def host(self, host_free: int, pinned: bool) -> None:
        sizes = self.sizes(host_free)
        here, there = self.gpus.host(sizes[-1], pinned), self.gpus.device(self.number, sizes[-1])
        stream = self.gpus.stream(self.number)
        access = "pinned" if pinned else "pageable"
        for size in sizes:
            a, b = self.gpus.part(here, size), self.gpus.part(there, size)
            rates = self.timed(partial(self.gpus.copy, b, a, stream), size, (self.number,))
            self.add("host", self.name, rates, size, access=access, note=self.gpus.tool)
            rates = self.timed(partial(self.gpus.copy, a, b, stream), size, (self.number,))
            self.add(self.name, "host", rates, size, access=access, note=self.gpus.tool)

    def both(self, host_free: int) -> None:
        size = self.sizes(host_free)[-1]
        here = [self.gpus.host(size, True) for _ in range(2)]
        there = [self.gpus.device(self.number, size) for _ in range(2)]
        streams = [self.gpus.stream(self.number) for _ in range(2)]

        def begin() -> None:
            self.gpus.copy(there[0], here[0], streams[0])
            self.gpus.copy(here[1], there[1], streams[1])

        rates = self.timed(begin, 2 * size, (self.number,))
        self.add("host", self.name, rates, size, access="pinned", when="both directions", streams=2,
                 note=f"{ADDED}; {self.gpus.tool}")  # fmt: skip

    def own(self) -> None:
        size = self.sizes()[-1]
        a, b, c = (self.gpus.device(self.number, size) for _ in range(3))
        stream = self.gpus.stream(self.number)
        for access, moved, begin in (
            ("copy", 2 * size, lambda: self.gpus.copy(a, b, stream)),
            ("mixed", 3 * size, lambda: self.gpus.add(a, b, c, stream)),
        ):
            rates = self.timed(begin, moved, (self.number,), OWN_RUN)
            self.add(self.name, self.name, rates, size, access=access,
                     note=f"bytes read and written added; {self.gpus.tool}")  # fmt: skip

    def peer(self, other: int) -> None:
        what = f"{self.name} to gpu{other}"
        if not self.gpus.reaches(self.number, other):
            return self.collected.left_out(what, "it does not reach that one's memory: copies go through host memory")
        sizes = self.sizes()
        here, there = self.gpus.device(self.number, sizes[-1]), self.gpus.device(other, sizes[-1])
        stream = self.gpus.stream(self.number)
        for size in sizes:
            a, b = self.gpus.part(here, size), self.gpus.part(there, size)
            rates = self.timed(partial(self.gpus.copy, b, a, stream), size, (self.number, other))
            self.add(self.name, f"gpu{other}", rates, size, note=self.gpus.tool)
        return None
