"""Work shared out between this process and others like it, which hand back what they found; results keep their order.

The others are forked, so they know all that this one knows, and take the next piece as soon as they are free. What one
of them could not do, and where nothing can be forked, is done here: the results are the same with any number.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from offload.units.remarks import remark, remarks

Item = TypeVar("Item")
Found = TypeVar("Found")
MOST = 4  # processes, this one included: beyond, what they hand back takes as long as the work
NUMBER = 2  # bytes of the number of a piece


def processes_here() -> int:
    """How many processes pay here: as many as this one may run on cores, one where forking is not safe."""
    if not hasattr(os, "fork") or sys.platform == "darwin" or threading.active_count() > 1:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, cores)


def shared_out(work: Callable[[Item], Found], items: Sequence[Item], processes: int) -> list[Found]:
    """`work` of each item, in their order. Raises what `work` raises; remarks that it makes are made here."""
    if processes < 2 or len(items) < 2 or NUMBER * len(items) > 4096:
        return [work(item) for item in items]
    numbers, write = os.pipe()
    os.write(write, b"".join(place.to_bytes(NUMBER, "little") for place in range(len(items))))
    os.close(write)
    helpers = []
    found: dict[int, tuple[Found, list[str]]] = {}
    try:
        helpers += [_helper(work, items, numbers) for _ in range(min(processes, len(items)) - 1)]
        while number := os.read(numbers, NUMBER):
            with remarks() as heard:
                result = work(items[int.from_bytes(number, "little")])
            found[int.from_bytes(number, "little")] = result, list(heard)
        for _, results in helpers:
            with open(results, "rb", closefd=False) as stream, suppress(EOFError, pickle.UnpicklingError):
                while True:
                    place, result, told = pickle.load(stream)
                    found[place] = result, told
    finally:
        os.close(numbers)
        for process, results in helpers:
            os.close(results)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    answer = []
    for place, item in enumerate(items):
        if place in found:
            result, told = found[place]
            for text in told:
                remark(text)
        else:
            result = work(item)
        answer.append(result)
    return answer


def _helper(work: Callable[[Item], Found], items: Sequence[Item], numbers: int) -> tuple[int, int]:
    """A forked process that takes numbers and writes what it finds: its id, and where to read that."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        results = []
        while place := os.read(numbers, NUMBER):
            number = int.from_bytes(place, "little")
            with suppress(Exception), remarks() as heard:  # what fails is done again, and raised, by who asked
                results.append(_packed((number, work(items[number]), list(heard))))
        with open(write, "wb") as stream:
            for one in results:
                stream.write(one)
    finally:
        os._exit(0)


def _packed(found: Any) -> bytes:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5)
    pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: lambda one: (_view, (dict(one),))}
    pickler.dump(found)
    return stream.getvalue()


def _view(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)
