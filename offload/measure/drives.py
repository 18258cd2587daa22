"""Drives: sequential reads and writes by block size and requests in flight, past the page cache, and through it.

fio where it is installed and there is time for it; else our own requests, one thread for each in flight, on buffers
that begin on a page, with O_DIRECT. The same file through the page cache shows what that adds: after it was dropped,
from it, and writes until they are on the drive.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from offload.errors import OffloadError
from offload.files import named
from offload.measure.ending import Threads, held_back, look
from offload.measure.figures import Budget, Collected, Figure, Tell
from offload.measure.places import Place
from offload.measure.scratch import POOL, DriveError, fill, nameless, size_there
from offload.measure.settings import MIB, Settings
from offload.units import format_bytes

DIRECT = getattr(os, "O_DIRECT", 0)
SYNC = getattr(os, "fdatasync", os.fsync)
BUFFERED_BLOCK = 4 * MIB
DENSE = 0.9  # of a file's bytes: with fewer on the drive it is read faster than the drive is
LOOK, LOOKS = 4096, 64  # bytes, and at how many places, to see whether there is anything in it
MOST_SURE = 3  # patterns that are run for longer
HELD = 1.2  # a run with fewer bytes in flight than the file has is no run: blocks x depth is at most the file / this


@dataclass(frozen=True, slots=True)
class Request:
    """A pattern of requests: bytes of each, how many in flight, reading or writing."""

    write: bool
    block: int
    depth: int

    @property
    def word(self) -> str:
        """ "read" or "write"."""
        return "write" if self.write else "read"


def patterns(settings: Settings, size: int, write: bool) -> list[Request]:
    """Every block alone, every depth of the largest block but one, and the most of both: enough for a fit over each and
    for the most that the drive gives, which come first."""
    blocks = [one for one in settings.blocks if one * HELD <= size]
    if not blocks:
        return []
    found = [Request(write, blocks[-1], 1)]
    found += [Request(write, blocks[max(0, len(blocks) - 2)], depth) for depth in reversed(settings.depths)]
    found += [Request(write, block, 1) for block in blocks]
    found.append(Request(write, blocks[-1], settings.depths[-1]))
    return [one for one in dict.fromkeys(found) if one.block * one.depth * HELD <= size]


ByFio = Callable[[str, int, Request], float]  # a path, bytes of the file and a pattern -> bytes per second


class OwnRequests:
    """Requests to an open file by threads of our own: each reads or writes the next block, around the file's end.

    number : a file descriptor; size : bytes of it that may be used. seconds : of a run at most. clock : tests replace
    it. moved : bytes of the last run.
    """

    def __init__(self, number: int, size: int, seconds: float, clock: Callable[[], float] = time.perf_counter):
        self.number, self.size, self.seconds, self.clock = number, size, seconds, clock
        self.moved = 0

    def run(self, request: Request) -> float:
        """Bytes per second of one run. Raises OSError where a request fails or is cut short."""
        blocks = self.size // request.block
        place, lock = iter(range(10**18)), threading.Lock()
        done, errors = [0] * request.depth, []
        begun, end = [0.0], [0.0]

        def begin() -> None:
            begun[0] = self.clock()
            end[0] = begun[0] + self.seconds

        start = threading.Barrier(request.depth, begin)

        def one(thread: int) -> None:
            try:
                with mmap.mmap(-1, request.block) as buffer:
                    if request.write:
                        buffer.write(os.urandom(min(request.block, MIB)) * (request.block // min(request.block, MIB)))
                    start.wait()
                    while self.clock() < end[0] or not done[thread] and end[0] > -math.inf:
                        with lock:
                            at = next(place) % blocks * request.block
                        done[thread] += self._move(request, buffer, at)
            except threading.BrokenBarrierError:
                pass
            except BaseException as error:  # told by the caller's thread
                errors.append(error)
                start.abort()

        threads = Threads([functools.partial(one, thread) for thread in range(request.depth)])
        try:
            threads.start()
            threads.wait()
            if request.write and not errors:
                SYNC(self.number)
        except BaseException:  # no thread may go on: the number that it writes to may soon be that of another file
            with held_back():
                start.abort()
                end[0] = -math.inf
                threads.wait_out()
            raise
        if errors:
            raise errors[0]
        self.moved = sum(done)
        return self.moved / (self.clock() - begun[0])

    def _move(self, request: Request, buffer: mmap.mmap, at: int) -> int:
        count = (os.pwritev if request.write else os.preadv)(self.number, [buffer], at)
        if count != request.block:
            raise OSError(errno.EIO, f"a request of {request.block} bytes moved {count}")
        return count


@contextlib.contextmanager
def opened_direct(number: int) -> Iterator[int]:
    """The open file past the page cache, for a while. Raises OSError where that cannot be."""
    if not DIRECT:
        raise OSError(errno.EINVAL, "this system has no O_DIRECT")
    import fcntl

    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    fcntl.fcntl(number, fcntl.F_SETFL, flags | DIRECT)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as buffer:  # some take the flag and refuse the first request
            os.preadv(number, [buffer], 0)
        yield number
    finally:
        fcntl.fcntl(number, fcntl.F_SETFL, flags)


def measure_drive(
    place: Place, settings: Settings, collected: Collected, budget: Budget, tell: Tell,
    by_fio: ByFio | None = None, direct: Callable[[int], contextlib.AbstractContextManager[int]] = opened_direct,
) -> None:  # fmt: skip
    """The drive below a folder, by a file that is made there and is gone afterwards; below a file, which is only read.

    by_fio : runs a pattern on a named file by fio. What cannot be measured is told; raises nothing but what ends the
    program.
    """
    what = f"drive at {named(place.path)}"
    if os.path.exists(place.path) and not os.path.isdir(place.path) and not os.path.isfile(place.path):
        return collected.left_out(what, "it is neither a folder nor a file. Give --disk a folder on the drive")
    if place.in_memory:
        return collected.left_out(what, f"{place.why}. Give --disk a folder on a drive")
    before = len(collected.figures)
    try:
        if os.path.isfile(place.path):
            number = os.open(place.path, os.O_RDONLY)
            try:
                size = os.fstat(number).st_size // MIB * MIB
                with contextlib.suppress(OSError):
                    SYNC(number)  # what was written just now is on the drive by then
                if _hollow(number, size):
                    raise DriveError(f"{named(place.path)} has fewer bytes on the drive than in it, or none but zeros: "
                                     "it would be read faster than the drive is. Name a file with data.")  # fmt: skip
                if size < settings.blocks[-1] * 2:
                    raise DriveError(f"{named(place.path)} has {format_bytes(size)}: name a file of "
                                     f"{format_bytes(2 * settings.blocks[-1])} and more.")  # fmt: skip
                collected.left_out(f"{what}, writing", "a file was named, which is only read; name a folder to write")
                _file(place, number, size, False, settings, collected, budget, tell, by_fio, direct)
            finally:
                os.close(number)
            return
        wanted = size_there(place.path, settings.drive_file, "a large file there, which is only read, or ")
        tell(f"{what}: writing a file of up to {format_bytes(wanted)}")
        with nameless(place.path) as number:
            size, seconds = fill(number, wanted, settings.drive_fill)
            collected.add(_figure(place, Request(True, POOL, 1), (size / seconds,),
                                  "through the page cache, until it is on the drive", False))  # fmt: skip
            _file(place, number, size, True, settings, collected, budget, tell, by_fio, direct)
    except OffloadError as error:
        collected.left_out(what, str(error))
    except OSError as error:
        collected.left_out(what, f"{error.strerror or error} ({named(place.path)})")
    if place.why and len(collected.figures) > before:
        collected.left_out(f"{what} as a part of the topology", place.why)


def _hollow(number: int, size: int) -> bool:
    """Whether a file has holes, or room that nobody has written to: neither is read from the drive."""
    if os.fstat(number).st_blocks * 512 < DENSE * size:
        return True
    spots = range(0, size, max(LOOK, size // LOOKS // LOOK * LOOK))
    return not any(any(os.pread(number, LOOK, at)) for at in spots)


def _file(
    place: Place, number: int, size: int, may_write: bool, settings: Settings, collected: Collected, budget: Budget,
    tell: Tell, by_fio: ByFio | None, direct: Callable[[int], contextlib.AbstractContextManager[int]],
) -> None:  # fmt: skip
    what = f"drive at {named(place.path)}"
    _buffered(place, number, size, settings, collected, tell)
    since = len(collected.figures)
    path = f"/proc/{os.getpid()}/fd/{number}"  # by which another program opens a file without a name
    if by_fio is not None and may_write and os.path.exists(path):
        try:
            by_fio(path, size, Request(False, settings.blocks[0], 1))
        except DriveError as error:
            collected.left_out(f"{what} by fio", f"{error}. Own requests are taken instead")
        else:
            for request in _all(settings, size, True):
                _repeated(place, request, functools.partial(by_fio, path, size, request), "fio, O_DIRECT",
                          settings, collected, budget, tell)  # fmt: skip
            return
    try:
        with direct(number) as bare:
            own = OwnRequests(bare, size, settings.drive_run)
            for request in _all(settings, size, may_write):
                _repeated(place, request, functools.partial(own.run, request), "O_DIRECT", settings, collected,
                          budget, tell)  # fmt: skip
            own.seconds = settings.drive_sure
            for word in ("read", "write") if may_write and own.seconds > settings.drive_run else ():
                _for_longer(place, word, own, since, settings, collected, budget, tell)
    except OSError as error:
        kind = f" ({place.system})" if place.system else ""
        collected.left_out(f"{what} past the page cache", f"this file system{kind} takes no O_DIRECT there: "
                           f"{error.strerror or error}. Give --disk a folder on another one of the drive")


def _all(settings: Settings, size: int, may_write: bool) -> list[Request]:
    """Reads and writes in turn, so that of both something is measured where time is short."""
    reads, writes = patterns(settings, size, False), patterns(settings, size, True)
    return [one for pair in zip(reads, writes, strict=True) for one in pair] if may_write else reads


def _repeated(
    place: Place, request: Request, run: Callable[[], float], note: str, settings: Settings, collected: Collected,
    budget: Budget, tell: Tell,
) -> None:  # fmt: skip
    what = (f"drive at {named(place.path)}, {request.word}, blocks of {format_bytes(request.block)}, "
            f"{request.depth} in flight")  # fmt: skip
    if not budget.left():
        return collected.left_out(what, "no time was left; measure without --quick")
    tell(what)
    try:
        repeats = [run()]
        while len(repeats) < settings.repeats and budget.left():
            repeats.append(run())
    except (DriveError, OSError, RuntimeError, MemoryError) as error:  # RuntimeError: no thread more may be started
        return collected.left_out(what, getattr(error, "strerror", None) or str(error) or type(error).__name__)
    collected.add(_figure(place, request, repeats, note, True))
    return None


def _for_longer(
    place: Place, word: str, own: OwnRequests, since: int, settings: Settings, collected: Collected, budget: Budget,
    tell: Tell,
) -> None:  # fmt: skip
    """The pattern that gave most, run for longer: of many short runs the best is often the luckiest. Where it then
    gives less than another did, that one too.
    """
    sure: set[int] = set()
    while len(sure) < MOST_SURE and budget.left():
        own_figures = [n for n in range(since, len(collected.figures)) if collected.figures[n].access == word]
        best = max(own_figures, key=lambda n: collected.figures[n].value, default=None)
        if best is None or best in sure:
            break
        figure = collected.figures[best]
        request = Request(word == "write", figure.size or 0, figure.depth or 1)
        what = f"drive at {named(place.path)}, {word}, blocks of {format_bytes(request.block)}, for longer"
        tell(what)
        try:
            repeats = [own.run(request) for _ in range(settings.repeats)]
        except (OSError, RuntimeError, MemoryError) as error:
            return collected.left_out(what, getattr(error, "strerror", None) or str(error) or type(error).__name__)
        collected.figures[best] = replace(figure, repeats=tuple(repeats))
        sure.add(best)
    return None


def _figure(place: Place, request: Request, repeats: Sequence[float], note: str, rate: bool) -> Figure:
    ends = ("host", place.end) if request.write else (place.end, "host")
    known = rate and place.drive is not None
    where = "" if place.drive is not None else ", of no drive that a topology tells"
    return Figure("drive", *ends, tuple(repeats), request.word, size=request.block, depth=request.depth,
                  note=note + where, rate=known)  # fmt: skip


def _buffered(
    place: Place, number: int, size: int, settings: Settings, collected: Collected, tell: Tell
) -> None:  # fmt: skip
    """Reads through the page cache: after the file was dropped from it, and of what is then in it."""
    tell(f"drive at {named(place.path)}, read through the page cache")
    request = Request(False, min(BUFFERED_BLOCK, size), 1)
    cold, warm = [], []
    reached = size
    for _ in range(settings.repeats):
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            reached, seconds = _scan(number, size, request.block, 4 * settings.drive_run)
            cold.append(reached / seconds)
        moved, seconds = _scan(number, reached, request.block, 4 * settings.drive_run)
        warm.append(moved / seconds)
    for repeats, note in ((cold, "through the page cache, after it was dropped"), (warm, "from the page cache")):
        if repeats:
            collected.add(_figure(place, request, repeats, note, False))


def _scan(number: int, size: int, block: int, seconds: float) -> tuple[int, float]:
    """Read a file from its start to `size` or until the time is over: whole blocks, and the seconds it took."""
    at, begun = 0, time.perf_counter()
    with mmap.mmap(-1, block) as buffer:
        while at + block <= size and (not at or time.perf_counter() - begun < seconds):
            look()
            if (count := os.preadv(number, [buffer], at)) <= 0:
                raise OSError(errno.EIO, "the file ended early")
            at += count
    return at, time.perf_counter() - begun
