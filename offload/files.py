"""Files that people name, read whole: what is no file, cannot be opened or ends in an error says so with its name.

A named pipe that nothing writes to would be waited for without end; it is refused. Pipes with a writer (`<(...)`,
/dev/stdin) are read. Files that are read are remembered while somebody asks (`files_read`), so that none of them is
overwritten.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from offload.errors import FileError, MissingFileError, OffloadError, one_line

LONGEST_PATH = 300  # characters in a message
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


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole or not at all: what was there stays until the new one is complete.

    A device or a pipe is written plainly, and so is a file in a folder that takes no further one. Links are followed,
    permissions kept. Raises OSError, ValueError for a name that no file can have.
    """
    if "\0" in os.fspath(path):
        raise ValueError("embedded null byte")
    place = os.path.realpath(path)
    there = os.stat(place) if os.path.exists(place) else None
    folder = os.path.dirname(place)
    if there is not None and (not stat.S_ISREG(there.st_mode) or not os.access(folder, os.W_OK)):
        with open(place, "wb") as file:
            file.write(content)
        return
    if there is not None and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    handle, beside = tempfile.mkstemp(prefix=".offload-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(beside, _new_mode() if there is None else stat.S_IMODE(there.st_mode))
        os.replace(beside, place)
    except BaseException:
        os.unlink(beside)
        raise


def _new_mode() -> int:
    """The permissions of a file that is made plainly."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
