"""Files that people name, read whole: what is no file, cannot be opened or ends in an error says so with its name.

A named pipe that nothing writes to would be waited for without end; it is refused. Pipes with a writer (`<(...)`,
/dev/stdin) are read. Files that are read are remembered while somebody asks (`files_read`), so that none of them is
overwritten. A file that is written is there whole or not at all (`writing`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from offload.errors import FileError, MissingFileError, OffloadError, OutputError, one_line

LONGEST_PATH = 300  # characters in a message
REPLACED = "replaced"  # a folder's name while it is away from its own
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux: <fcntl.h>, <linux/fs.h>
_read: ContextVar[dict[str, None] | None] = ContextVar("files read", default=None)


@contextmanager
def files_read() -> Iterator[dict[str, None]]:
    """The files that are read inside, each once, in their order (the keys): as they were named."""
    found: dict[str, None] = {}
    token = _read.set(found)
    try:
        yield found
    finally:
        _read.reset(token)


def reading(path: str | os.PathLike[str]) -> None:
    """Remember that a file is read, or belongs to what is read (a shard whose size counts)."""
    if (found := _read.get()) is not None:
        found[os.fspath(path)] = None


def files_so_far() -> tuple[str, ...]:
    """The files that are read so far, each once, in their order."""
    return tuple(_read.get() or ())


def overwritten(path: str | os.PathLike[str]) -> str | None:
    """The file read so far that writing to a path would replace, as it was named; None where there is none.

    The same file is meant however it is named: by another spelling, a link of either kind.
    """
    return next((one for one in _read.get() or () if same_file(one, path)), None)


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to one regular file, or would once it is made. Devices and pipes keep nothing."""
    try:
        if os.path.exists(one) and os.path.exists(other):
            return os.path.samefile(one, other) and os.path.isfile(one)
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):  # what no path can be is refused where it is opened
        return False


def named(path: str | os.PathLike[str]) -> str:
    """A path for a message: in one line."""
    return one_line(path, LONGEST_PATH)


def path_of(given: object, what: str) -> Path:
    """The path that a caller gave. what : as "a model's files". Raises FileError for what is no path, or an empty one,
    which would mean the current folder.
    """
    if not isinstance(given, str | os.PathLike):
        raise FileError(f"{what}: a path is due, as a text or a pathlib.Path; given is {type(given).__name__}.")
    if given == "":
        raise FileError(f'{what}: the path is empty (the current folder is ".").')
    return Path(given)


@contextmanager
def file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the system while a file is opened or read, as FileErrors that name it."""
    try:
        yield
    except OffloadError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{_name(error, path)}: {error.strerror}.").of(error, path) from None
    except OSError as error:
        raise FileError(f"{_name(error, path)} cannot be read: {error.strerror or error}.").of(error, path) from None
    except ValueError as error:
        if "embedded null" not in str(error):  # only a zero character in a path is an error of its name
            raise
        raise FileError(f"{named(path)}: no file can have such a name.") from None


def _name(error: OSError, path: str | os.PathLike[str]) -> str:
    return named(path if error.filename is None else os.fsdecode(error.filename))


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of a file, or all of it. Raises FileError; IsADirectoryError, for the caller's words."""
    reading(path)
    with file_errors(path):
        mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(str(path))
    with file_errors(path):
        if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
            raise FileError(f"{named(path)}: this is no regular file (a socket or a drive). Give a file.")
        if stat.S_ISFIFO(mode):
            return _read_pipe(path, most)
        with open(path, "rb") as file:
            return file.read(most)


def _read_pipe(path: str | os.PathLike[str], most: int) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(number, "rb", buffering=0) as file:
        try:
            first = os.read(number, min(most, 65_536))
        except BlockingIOError:  # somebody will write
            first = None
        if first == b"":
            raise FileError(f"{named(path)}: this is a pipe that nothing writes to. Give a file.")
        os.set_blocking(number, True)
        return (first or b"") + _rest(file, most - len(first or b""))


def _rest(file: BinaryIO, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := file.read(min(most, 1 << 20))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


@contextmanager
def writing(path: str | os.PathLike[str], refused: Callable[[str], OffloadError] | None = None) -> Iterator[str]:
    """A path beside the one that is meant, which takes its place once all is written, with the permissions it had.

    What is no regular file (a device, a pipe), and a file that may be written to in a folder that may not, is written
    in place. refused : makes the error of a reason, as "Permission denied"; else an OutputError names the path.
    Raises that error.
    """
    path_of(path, "a file to write")
    held = None
    try:
        if os.path.isdir(path) and not os.path.exists(os.path.join(path, "zarr.json")):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        held = _beside(path)
        if held is None:
            yield os.fspath(path)
            return
        beside = os.path.join(held, os.path.basename(os.path.realpath(path)))
        yield beside
        if os.path.isfile(beside):  # as a file that is made plainly
            with open(beside, "rb+") as file:
                os.fsync(file.fileno())
            if os.path.isfile(path):
                os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode))
        if os.path.isdir(path) and os.path.isdir(beside):
            _swap(held, beside, os.path.realpath(path))
        else:
            os.replace(beside, os.path.realpath(path))
    except OffloadError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno == errno.ENOSPC:
            why += ". Make room, or name a file on another drive"
        raise _unwritten(path, why, refused) from None
    except ValueError as error:
        if "embedded null" not in str(error):
            raise
        raise _unwritten(path, "no file can have such a name", refused) from None
    finally:
        if held is not None:
            import shutil

            shutil.rmtree(held, ignore_errors=True)


def write_whole(
    path: str | os.PathLike[str], content: bytes, refused: Callable[[str], OffloadError] | None = None
) -> None:
    """Write a file, all of it or, where that fails, nothing. Raises what `writing` does."""
    with writing(path, refused) as beside, open(beside, "wb") as file:
        file.write(content)


def _unwritten(path: str | os.PathLike[str], why: str, refused: Callable[[str], OffloadError] | None) -> OffloadError:
    return OutputError(f"{named(path)} cannot be written: {why}.") if refused is None else refused(why)


def _swap(held: str, beside: str, path: str) -> None:
    """Put a folder in the place of another, which a rename cannot: the old one is whole under its name, or the new one.

    Where the system cannot exchange two names in one step, the old one waits in `held`, from where it comes back.
    """
    if _exchanged(beside, path):
        return
    old = os.path.join(held, REPLACED)
    os.rename(path, old)
    try:
        os.rename(beside, path)
    except BaseException:
        os.rename(old, path)
        raise


def _exchanged(one: str, other: str) -> bool:
    """Whether two names were exchanged in one step; else nothing was done."""
    import ctypes

    try:
        exchange = ctypes.CDLL(None).renameat2  # of Linux, since glibc 2.28
    except (OSError, TypeError, AttributeError):
        return False
    return bool(exchange(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


def _beside(path: str | os.PathLike[str]) -> str | None:
    """A new folder beside a path, for what will take its place; None where it is written in place."""
    import platform
    import tempfile

    there = os.path.exists(path)
    if there and not os.path.isfile(path) and not os.path.isdir(path):
        return None
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(folder):
        if not os.access(path if there else folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if there and os.path.isfile(path) and not os.access(folder, os.W_OK):
            return None
    name = os.fsencode(os.path.basename(os.path.realpath(path)))
    mine = f".offload-{os.fsdecode(name[:80])}.{platform.node()}."  # a name is at most 255 bytes
    _sweep_up(folder, mine, os.path.realpath(path))
    return tempfile.mkdtemp(prefix=f"{mine}{os.getpid()}.", dir=folder)


def _sweep_up(folder: str, mine: str, path: str) -> None:
    """Remove what a process of this machine that was killed left of the same file; put back what it took away."""
    import shutil

    for name in os.listdir(folder):
        number = name.removeprefix(mine).partition(".")[0]
        if name.startswith(mine) and number.isdigit() and not _runs(int(number)):
            old = os.path.join(folder, name, REPLACED)
            if os.path.isdir(old) and not os.path.lexists(path):
                os.rename(old, path)
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
