"""The file that is written and read on a drive: without a name from the start, so that nothing is left whatever ends
the measurement; where a file system has no such files, removed as soon as it is open.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator

from offload.errors import OffloadError
from offload.files import named
from offload.measure.ending import look
from offload.measure.settings import MIB
from offload.units import format_bytes

PREFIX = "offload-measure-"
LEAST = 32 * MIB  # a smaller file measures little
STAMP = 4096  # bytes: pages that differ are neither folded nor compressed away
POOL = 8 * MIB


class DriveError(OffloadError):
    """A drive cannot be measured there; the message says why and what helps."""


def size_there(folder: str, wanted: int, instead: str = "") -> int:
    """Bytes of a file that fit well: as wanted, but no more than is left free beside it.

    instead : what else may be given where nothing can be written, as "a large file there, which is only read, or ".
    Raises DriveError for no folder, one that may not be written or a drive without room.
    """
    shown = named(folder)
    try:
        room = os.statvfs(folder)
    except OSError as error:
        raise DriveError(f"{shown} cannot be looked at: {error.strerror}. Give a folder on the drive.") from None
    if room.f_flag & getattr(os, "ST_RDONLY", 1):
        raise DriveError(f"{shown} is on a read-only file system. Give --disk {instead}a folder that can be written.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DriveError(f"{shown} may not be written by this user. Give --disk a folder on that drive that may.")
    free = room.f_bavail * room.f_frsize
    size = min(wanted, free // 2) // POOL * POOL
    if size < LEAST:
        raise DriveError(f"{shown} has {format_bytes(free)} free: a file of {format_bytes(LEAST)} and as much beside "
                         "it are due. Free some, or give --disk a folder on another drive.")  # fmt: skip
    return size


@contextlib.contextmanager
def nameless(folder: str) -> Iterator[int]:
    """A new file open for reading and writing, which nobody else sees and which is gone when it is closed.

    Raises DriveError where none can be made.
    """
    number = None
    try:
        if hasattr(os, "O_TMPFILE"):
            with contextlib.suppress(OSError):
                number = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        if number is None:
            with with_name(folder) as path:
                number = os.open(path, os.O_RDWR)
        yield number
    finally:
        if number is not None:
            os.close(number)


@contextlib.contextmanager
def with_name(folder: str) -> Iterator[str]:
    """The path of a new file, removed in the end. Raises DriveError where none can be made."""
    path = os.path.join(folder, PREFIX + secrets.token_hex(8))
    try:  # from before it is there: whoever ends this may do so at any moment
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise DriveError(f"no file can be made in {named(folder)}: {error.strerror}.") from None
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def fill(
    number: int, size: int, seconds: float, write: Callable[[int, memoryview, int], int] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[int, float]:  # fmt: skip
    """Write a file of bytes that nothing can compress, until `size` or until the time is over, and make it last.

    Gives how many bytes stand in it, and the seconds that took. Raises DriveError where the drive fills up before there
    is enough.
    """
    import numpy as np

    put = os.pwrite if write is None else write
    pool = np.random.default_rng(1).integers(0, 2**63, POOL // 8, np.int64)
    done, begun = 0, clock()
    try:
        while done < size and (done < LEAST or clock() - begun < seconds):
            look()
            pool[:: STAMP // 8] = np.arange(done // STAMP, (done + POOL) // STAMP)  # each page differs from all others
            view, at = pool.data.cast("B"), 0
            while at < POOL:
                at += put(number, view[at:], done + at)
            done += POOL
            if done % LEAST == 0:
                os.fsync(number)  # so that the time is that of the drive
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        if done < LEAST:
            raise DriveError(f"the drive was full after {format_bytes(done)}. Free some room, or give --disk a folder "
                             "on another drive.") from None  # fmt: skip
        os.ftruncate(number, done)
    return done, clock() - begun
