"""The memory that a replay works in: places in a file on each drive, aligned arrays of host memory, buffers of GPUs.

Each home begins with bytes that no other home begins with, so that a run can tell whose bytes lie in a buffer. What is
written are numbers between 1 and 2: nothing slows a product of them, and no drive can compress them much.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from offload.measure.ending import look
from offload.measure.scratch import DriveError
from offload.measure.settings import MIB
from offload.replaying.scaling import PAGE

STAMP = 8  # bytes at the begin of a place that say whose they are: a whole number as a float64
POOL = 8 * MIB
LARGE = 2 * MIB  # host memory begins on large pages
SYNC_EACH = 32 * MIB


@dataclass(frozen=True, slots=True)
class OnDrive:
    """Bytes of the file on a drive. drive : the memory's name."""

    drive: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class InHost:
    """Bytes of host memory: NumPy bytes, and the library's own buffer where a GPU copies from or to it."""

    memory: str
    array: Any
    buffer: Any = None

    @property
    def size(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True, slots=True)
class OnGpu:
    """A buffer of a GPU's memory."""

    memory: str
    gpu: int
    buffer: Any
    size: int


Region = OnDrive | InHost | OnGpu


def pages(size: int) -> int:
    """Bytes rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def page_stamp(offset: int) -> float:
    """What a page of the file begins with: whole numbers; places in memory have halves."""
    return float(offset // PAGE + 1)


def memory_stamp(number: int) -> float:
    """What the place of a number in memory begins with."""
    return number + 0.5


def host_array(size: int, large: bool = True) -> Any:
    """NumPy bytes of host memory that begin on a large page (a page where they are few), not touched yet.

    large : whether the system may give them large pages. A drive reads into these in fewer and larger pieces than
    into the small ones with which its rate is measured.
    """
    import numpy as np

    if not large and hasattr(mmap, "MADV_NOHUGEPAGE"):
        plain = mmap.mmap(-1, max(pages(size), PAGE))
        with contextlib.suppress(OSError):  # a kernel without large pages
            plain.madvise(mmap.MADV_NOHUGEPAGE)
        return np.frombuffer(plain, np.uint8)
    align = LARGE if size >= LARGE else PAGE
    whole = np.empty(pages(size) + align, np.uint8)
    begin = -whole.ctypes.data % align
    return whole[begin : begin + pages(size)]


def touch(array: Any, stamp: float | None) -> None:
    """Fill an array with numbers that are fast to reckon with, and begin it with its stamp."""
    import numpy as np

    array[: array.nbytes // 4 * 4].view(np.float32)[:] = 1.0
    if stamp is not None and array.nbytes >= STAMP:
        array[:STAMP].view(np.float64)[0] = stamp


def stamp_of(array: Any) -> float | None:
    """What an array begins with; None where it is too short."""
    import numpy as np

    return float(array[:STAMP].view(np.float64)[0]) if array.nbytes >= STAMP else None


def fill_file(
    number: int, size: int, tell: Callable[[int], None] = lambda done: None,
    write: Callable[[int, Any, int], int] | None = None,
) -> None:  # fmt: skip
    """Write `size` bytes to an open file, every page with its stamp, and make them last.

    write : what tests replace. Raises DriveError where the drive fills up, KeyboardInterrupt where an end is due.
    """
    import numpy as np

    put = os.pwrite if write is None else write
    pool = np.random.default_rng(1).random(POOL // 4, np.float32) + np.float32(1.0)
    heads = pool.view(np.float64)[:: PAGE // STAMP]
    done = 0
    try:
        while done < size:
            look()
            heads[:] = np.arange(done // PAGE + 1, (done + POOL) // PAGE + 1, dtype=np.float64)
            view, begun = pool.data.cast("B")[: min(POOL, size - done)], 0
            while begun < len(view):
                begun += put(number, view[begun:], done + begun)
            done += len(view)
            if done % SYNC_EACH == 0:
                os.fsync(number)
                tell(done)
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DriveError(f"the drive was full after {done / 1e6:.0f} of {size / 1e6:.0f} MB. Free some room, give "
                         "--scale a smaller part, or --disk a folder on another drive.") from None  # fmt: skip
