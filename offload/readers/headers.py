"""Opening a file of weights for its header alone: how large it is, what it is instead, and how its tensors lie in it.

The readers of headers take an open file and its size, read only what they name, and never more because a file says so.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.files import file_errors, reading

LARGEST_OFFSET = 2**63 - 1  # of any file
MOST_TENSORS = 1_000_000  # of a model; the largest published ones store about 200,000
LONGEST_NAME = 1024

# What a file may be instead, by its first bytes.
BEGINNINGS = (
    (rb"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded (`git lfs pull` fetches it)"),
    (rb"/?[^\n]{0,400}annex/objects/", "a git-annex pointer: the file itself was not downloaded (`git annex get`)"),
    (rb"PK\x03\x04|PK\x05\x06", "a zip archive (a PyTorch checkpoint, or a wheel)"),
    (rb"\x80[\x02-\x05]", "a pickle (an old PyTorch checkpoint), which is not opened, since that runs what it holds"),
    (rb"GGUF", "a GGUF file"),
    (rb"(?:tjgg|fmgg|lmgg|ggjt|ggmf|ggml|algg|ggla)", "a GGML file from before GGUF (2023); convert it anew"),
    (rb"\x1f\x8b|\x28\xb5\x2f\xfd|BZh|\xfd7zXZ", "a compressed file; unpack it first"),
    (rb"\x89HDF", "an HDF5 file"),
    (rb"\x93NUMPY", "a NumPy array"),
    (rb"\s*(?:<!doctype html|<html|<\?xml|<head)", "a web page (a download that answered with an error page?)"),
    (rb"\s*[\[{]", "JSON text"),
    (rb"[\t\n\r\x20-\x7e]{16}", "plain text"),
    (rb"\x00{8}", "zero bytes (a download that has not begun to fill the file?)"),
)


@contextmanager
def open_header(path: str | Path) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file open for reading, and its size in bytes.

    Raises ModelError for what is no regular file (a folder, a pipe, a device) or is empty; FileError where it cannot
    be opened or read.
    """
    label = shown(path, 300)
    reading(path)
    with file_errors(path):
        status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise ModelError(f"{label}: this is a folder, where a file is due.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{label}: this is no regular file (a pipe or a device).")
    if not status.st_size:
        raise ModelError(f"{label}: the file is empty (a download that did not begin?).")
    with file_errors(path), open(path, "rb") as file:
        yield file, status.st_size


def looks_like(start: bytes) -> str:
    """What the first bytes of a file say that it is, in words; "" where they say nothing."""
    return next((what for pattern, what in BEGINNINGS if re.match(pattern, start, re.I)), "")


def not_a(kind: str, start: bytes) -> str:
    """The end of a message about a file that is no `kind`: what it looks like instead."""
    found = looks_like(start)
    begins = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in start[:8])
    return f"this is no {kind}. It looks like {found}." if found else f'this is no {kind}; it begins with "{begins}".'


def product(shape: Iterable[int]) -> int:
    """The elements of a shape, by exact whole numbers. Raises OverflowError above 2^63 - 1, as no file holds more."""
    total = 1
    sizes = tuple(shape)
    if 0 in sizes:
        return 0
    for size in sizes:
        total *= size
        if total > LARGEST_OFFSET:
            raise OverflowError
    return total


def check_layout(spans: list[tuple[int, int, str]], room: int, alignment: int = 1) -> list[str]:
    """How tensors lie in a file's data, from (begin, end, name) in bytes of the data; what to note about it.

    room : bytes of data that the file has. alignment : a tensor begins at a multiple of it.
    Two tensors in one place are an error, and so is one that lies past the file's end where the tensors before it do
    not lead there. A file that is cut short has whole tensors up to its end, and is read: its header says all.
    Raises ModelError.
    """
    spans = sorted(spans)
    due, holes, last = 0, 0, "the beginning"
    for begin, end, name in spans:
        if begin == end:
            continue
        if begin < due:
            raise ModelError(f'tensor "{shown(name)}" begins at byte {begin:,} of the data, inside "{shown(last)}", '
                             f"which ends at {due:,}: they overlap.")
        padded = -(-due // alignment) * alignment
        if begin > padded:
            if end > room:
                raise ModelError(f'tensor "{shown(name)}" is to lie at bytes {begin:,} to {end:,} of the data, past '
                                 f"the end of the file (which has {room:,} bytes of data).")
            holes += begin - padded
        due, last = end, name
    notes = [f"{holes:,} bytes between its tensors belong to none"] if holes else []
    if due > room:
        absent = sum(1 for begin, end, _ in spans if end > room and end > begin)
        notes.append(f"the file is cut short: it has {max(room, 0):,} of {due:,} bytes of data, and {absent:,} of "
                     f"{len(spans):,} tensors are not wholly there; sizes are what its header says")
    return notes
