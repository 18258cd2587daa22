"""GGUF files by their headers alone: versions 1 to 3, either byte order, one file or all parts of a split one.

A header is the magic, counts, typed key-value pairs, then a description of each tensor; the tensors' bytes follow and
are never touched. Long lists (a vocabulary has hundreds of thousands of texts) are stepped over, not kept.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.readers.ggml import BLOCKS, NOT_STORED, TYPES
from offload.readers.headers import (
    LARGEST_OFFSET,
    LONGEST_NAME,
    MOST_TENSORS,
    check_layout,
    not_a,
    open_header,
    product,
)
from offload.readers.stored import Omitted, StoredTensor, StoredWeights

CHUNK = 64 * 1024  # bytes read at a time
LONGEST_KEY = 65_535  # the format's own limit
LONGEST_TEXT = 64 * 1024  # of a value that is kept
LONGEST_LIST = 1024  # items of a list that is kept; models have fewer layers
LARGEST_KEPT = 64 * 1024 * 1024  # bytes of all keys, texts and lists that are kept
MOST_PAIRS = 100_000
MOST_STEPS = 10_000_000  # texts stepped over; a list within a list counts as ten
DEEPEST = 4  # lists within lists
MOST_DIMENSIONS = 4
SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
KINDS = {0: "u8", 1: "i8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "text", 9: "list",
         10: "u64", 11: "i64", 12: "f64"}  # fmt: skip
TEXT, LIST, BOOL = 8, 9, 7


@dataclass(frozen=True, slots=True)
class Part:
    """What one file's header says. notes : without the file's name."""

    tensors: tuple[StoredTensor, ...]
    metadata: Mapping[str, Any]
    notes: tuple[str, ...]


def read_gguf(path: str | Path) -> StoredWeights:
    """A GGUF file, or from any part of a split one all of them.

    Raises ModelError for what is no such file or contradicts itself, parts that are missing (by name) or do not belong
    together, and types without a known size; OSError.
    """
    path = Path(path)
    match = SPLIT.fullmatch(path.name)
    names = [path.name]
    if match:
        names = [f"{match[1]}-{part:05}-of-{match[3]}.gguf" for part in range(1, int(match[3]) + 1)]
        if path.name not in names:
            raise ModelError(f"{shown(path, 300)}: there is no part {int(match[2])} of {int(match[3])}.")
        os.stat(path)  # what is not there is told as such, not as parts that are missing
        there = set(os.listdir(path.parent))
        if (absent := [name for name in names if name not in there]):
            some = ", ".join(shown(name, 100) for name in absent[:6]) + (", ..." if len(absent) > 6 else "")
            raise ModelError(f"{shown(path, 300)}: {len(absent)} of {len(names)} parts are missing: {some}.")
    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, Any] = {}
    notes: list[str] = []
    for number, name in enumerate(names):
        part = part_of(path.with_name(name))
        where = shown(path.with_name(name), 300)
        _check_part(part.metadata, number, len(names), where)
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise ModelError(f'{where}: tensor "{shown(tensor.name)}" is in {tensors[tensor.name].file} too.')
            tensors[tensor.name] = tensor
        if len(tensors) > MOST_TENSORS:
            raise ModelError(f"{where}: more than {MOST_TENSORS:,} tensors are not read.")
        metadata = metadata or dict(part.metadata)  # the first part holds the model's keys
        notes += [f"{shown(name)}: {note}" if len(names) > 1 else note for note in part.notes]
    stated = metadata.get("split.tensors.count")
    if len(names) > 1 and type(stated) is int and stated != len(tensors):
        raise ModelError(f"{shown(path, 300)}: its parts hold {len(tensors):,} tensors, the first says {stated:,} "
                         "(split.tensors.count). They do not belong together.")
    if not tensors:
        raise ModelError(f"{shown(path, 300)}: this file holds no tensors (a vocabulary alone?).")
    return StoredWeights(str(path), "gguf", tuple(tensors.values()), metadata, tuple(notes))


def _check_part(metadata: Mapping[str, Any], number: int, count: int, where: str) -> None:
    """Whether a file is the part that its name says."""
    stated, own = metadata.get("split.count", 0), metadata.get("split.no")
    if type(stated) is int and stated > 1 and count == 1:
        raise ModelError(f"{where}: this is one of {stated} parts (split.count), so its name must end with "
                         f"-00001-of-{stated:05}.gguf for the others to be found. Give it its name back.")
    if count > 1 and (type(stated) is int and stated not in (0, count) or type(own) is int and own != number):
        raise ModelError(f"{where}: it says that it is part {shown(own)} (from 0) of {shown(stated)}; its name says "
                         f"part {number} of {count}.")


def part_of(path: Path) -> Part:
    """The header of one file, which may hold no tensors. Raises as `read_gguf`, with the file's name."""
    with open_header(path) as (file, size):
        try:
            return read_part(file, size, path.name)
        except ModelError as error:
            raise ModelError(f"{shown(path, 300)}: {error}") from None


def read_part(file: BinaryIO, size: int, label: str) -> Part:
    """The header of an open file of `size` bytes; `label` is the tensors' file. Reads at most a chunk behind it."""
    cursor = _Cursor(file, size)
    cursor.doing = "the magic and the version"
    start = cursor.take(4) if size >= 4 else file.read(4)
    if start != b"GGUF":
        file.seek(0)
        raise ModelError(not_a("GGUF file", file.read(512)))
    version = cursor.number("I")
    if version and not version & 0xFFFF:  # the other byte order
        cursor.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
    if not 1 <= version <= 3:
        raise ModelError(f"its GGUF version is {version:,}; versions 1 to 3 are read.")
    cursor.length = "I" if version == 1 else "Q"
    cursor.doing = "the counts"
    count, pairs = cursor.number(cursor.length), cursor.number(cursor.length)
    # The least bytes of a pair (an empty key, a type, one byte) and of a tensor (an empty name, no dimensions).
    checks = ((pairs, MOST_PAIRS, 9, "key-value pairs"), (count, MOST_TENSORS, 20, "tensors"))
    for number, most, least, called in checks:
        if number > most or number * least > size:
            raise ModelError(f"it states {number:,} {called} and has {size:,} bytes, so it is cut "
                             f"short or damaged; at most {most:,} are read.")
    metadata = _pairs(cursor, pairs)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ModelError(f"general.alignment is {shown(alignment)}; it must be a power of two.")
    infos: dict[str, tuple[tuple[int, ...], str, int, int]] = {}
    for number in range(count):
        name, shape, kind, offset, taken = _info(cursor, number, count)
        if name in infos:
            raise ModelError(f'tensor "{shown(name)}" is described twice.')
        infos[name] = shape, kind, offset, taken
    begin = -(-cursor.place // alignment) * alignment
    for name, (_, _, offset, _) in infos.items():
        if offset % alignment:
            raise ModelError(f'tensor "{shown(name)}" begins at byte {offset:,} of the data, which is no multiple of '
                             f"the alignment of {alignment}.")
    spans = [(offset, offset + taken, name) for name, (_, _, offset, taken) in infos.items()]
    notes = check_layout(spans, size - begin, alignment)
    tensors = [StoredTensor(name, shape, kind, taken, label, begin + offset)
               for name, (shape, kind, offset, taken) in infos.items()]  # fmt: skip
    metadata["GGUF.version"] = version
    return Part(tuple(tensors), metadata, tuple(notes))


def _pairs(cursor: _Cursor, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number in range(count):
        cursor.doing = f"key {number + 1} of {count}"
        key = cursor.text(LONGEST_KEY, "a key")
        cursor.doing = f'the value of "{shown(key)}" (key {number + 1} of {count})'
        if key in found:
            raise ModelError(f'the key "{shown(key)}" stands twice.')
        found[key] = _value(cursor, cursor.number("I"), 0, True)
    return found


def _value(cursor: _Cursor, kind: int, depth: int, keep: bool) -> Any:
    """A value of a kind; a list or a text that is too long as `Omitted`, and nothing kept where it is not asked for."""
    if kind == TEXT:
        return cursor.value_text(keep)
    if kind == LIST:
        return _list(cursor, depth, keep)
    if kind not in SCALARS:
        raise ModelError(f"{cursor.doing} has the type {kind:,}, which is none of GGUF's 0 to 12.")
    if kind == BOOL:
        return _truth(cursor, cursor.take(1))
    return cursor.scalar(SCALARS[kind])


def _list(cursor: _Cursor, depth: int, keep: bool) -> Any:
    if depth >= DEEPEST:
        raise ModelError(f"{cursor.doing} nests lists more than {DEEPEST} deep.")
    kind, count = cursor.number("I"), cursor.number(cursor.length)
    if kind not in KINDS:
        raise ModelError(f"{cursor.doing} is a list of type {kind:,}, which is none of GGUF's 0 to 12.")
    width = struct.calcsize(cursor.length)
    least = struct.calcsize("=" + SCALARS[kind]) if kind in SCALARS else width + (4 if kind == LIST else 0)
    if count * least > cursor.left:
        raise ModelError(f"{cursor.doing} is a list of {count:,} items ({KINDS[kind]}), and the file ends "
                         f"{cursor.left:,} bytes further on: cut short, or damaged.")
    keep = keep and count <= LONGEST_LIST
    if kind in SCALARS:
        if not keep:
            cursor.skip(count * least)
            return Omitted(KINDS[kind], count)
        cursor.keep(count * 32)
        raw = cursor.take(count * least)
        return _truth(cursor, raw) if kind == BOOL else struct.unpack(f"{cursor.order}{count}{SCALARS[kind]}", raw)
    cursor.step(count * (10 if kind == LIST else 1))
    if keep:
        return tuple(_value(cursor, kind, depth + 1, True) for _ in range(count))
    if kind == TEXT:
        cursor.skip_texts(count)
    else:
        for _ in range(count):
            _list(cursor, depth + 1, False)
    return Omitted(KINDS[kind], count)


def _truth(cursor: _Cursor, raw: bytes) -> Any:
    if raw.strip(b"\0\1"):
        raise ModelError(f"{cursor.doing} is neither true nor false.")
    return bool(raw[0]) if len(raw) == 1 else tuple(bool(byte) for byte in raw)


def _info(cursor: _Cursor, number: int, count: int) -> tuple[str, tuple[int, ...], str, int, int]:
    """A tensor's name, shape (outermost first), type, offset in the data, and bytes."""
    cursor.doing = f"the description of tensor {number + 1:,} of {count:,}"
    name = cursor.text(LONGEST_NAME, "a tensor's name")
    called = f'tensor "{shown(name)}"'
    dimensions = cursor.number("I")
    if dimensions > MOST_DIMENSIONS:
        raise ModelError(f"{called} has {dimensions:,} dimensions; at most {MOST_DIMENSIONS} are read.")
    *sizes, kind, offset = cursor.numbers(cursor.length * dimensions + "IQ")
    shape = tuple(sizes[::-1])
    if kind not in TYPES:
        why = f"that is {NOT_STORED[kind]}" if kind in NOT_STORED else "its size is not known (a fork's own type?)"
        raise ModelError(f"{called} has the type {kind:,}: {why}.")
    try:
        elements = product(shape)
    except OverflowError:
        raise ModelError(f"{called}: its shape {shape} has more elements than any file holds.") from None
    blocks = BLOCKS[TYPES[kind]]
    row = shape[-1] if shape else 1
    if row % blocks.size:
        raise ModelError(f"{called}: its rows of {row:,} elements do not divide into the blocks of {blocks.size} of "
                         f"{TYPES[kind]}.")
    taken = elements // blocks.size * blocks.bytes
    if offset + taken > LARGEST_OFFSET:
        raise ModelError(f"{called} is to lie at byte {offset:,} of the data, past any file's end.")
    return name, shape, TYPES[kind], offset, taken


class _Cursor:
    """A place in a file that moves forward over a buffer. doing : what is read, for messages."""

    def __init__(self, file: BinaryIO, size: int):
        self.file, self.size = file, size
        self.order, self.length, self.doing = "<", "Q", ""
        self.buffer, self.base, self.at = b"", 0, 0
        self.kept = self.steps = 0

    @property
    def place(self) -> int:
        return self.base + self.at

    @property
    def left(self) -> int:
        return self.size - self.place

    def cut(self) -> ModelError:
        return ModelError(f"the file is cut within its header: it ends at byte {self.size:,}, in {self.doing}. "
                          "Download it again.")

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.buffer):
            self._fill(count)
        self.at += count
        return self.buffer[self.at - count : self.at]

    def _fill(self, count: int) -> None:
        if count > self.left:
            raise self.cut()
        self.base, self.at = self.place, 0
        self.file.seek(self.base)
        self.buffer = self.file.read(max(CHUNK, count))
        if len(self.buffer) < count:
            self.size = self.base + len(self.buffer)
            raise self.cut()

    def skip(self, count: int) -> None:
        if count > self.left:
            raise self.cut()
        self.at += count

    def number(self, form: str) -> int:
        """A whole number of a form without a point ("I", "Q")."""
        found: int = struct.unpack(self.order + form, self.take(struct.calcsize("=" + form)))[0]
        return found

    def scalar(self, form: str) -> int | float:
        found: int | float = struct.unpack(self.order + form, self.take(struct.calcsize("=" + form)))[0]
        return found

    def numbers(self, forms: str) -> tuple[int, ...]:
        return struct.unpack(self.order + forms, self.take(struct.calcsize("=" + forms)))

    def text(self, longest: int, called: str) -> str:
        """A text that must be UTF-8 and of at most `longest` bytes."""
        length = self.number(self.length)
        if length > self.left:
            raise ModelError(f"{called} of {length:,} bytes at byte {self.place:,}, and the file ends {self.left:,} "
                             f"bytes further on, in {self.doing}: cut short, or damaged.")
        if length > longest:
            raise ModelError(f"{called} is {length:,} bytes long, in {self.doing}; at most {longest:,} are read.")
        self.keep(length + 64)
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise ModelError(f"{called} is no text in UTF-8, in {self.doing}.") from None

    def value_text(self, keep: bool) -> Any:
        """A text that is a value: one that is long is not kept, and bytes that are no text are written out."""
        length = self.number(self.length)
        if not keep or length > LONGEST_TEXT:
            self.skip(length)
            return Omitted("text", length)
        self.keep(length + 64)
        return self.take(length).decode("utf-8", "backslashreplace")

    def skip_texts(self, count: int) -> None:
        """Steps over texts without keeping them: the one loop that must be quick."""
        unpack, width = struct.Struct(self.order + self.length).unpack_from, struct.calcsize("=" + self.length)
        while count:
            if self.at + width > len(self.buffer):
                self._fill(width)
            buffer, at, last = self.buffer, self.at, len(self.buffer) - width
            while count and at <= last:
                at += width + unpack(buffer, at)[0]
                count -= 1
            self.at = at
            if self.place > self.size:
                raise self.cut()

    def keep(self, count: int) -> None:
        self.kept += count
        if self.kept > LARGEST_KEPT:
            raise ModelError(f"its keys, texts and lists take more than {LARGEST_KEPT:,} bytes, in {self.doing}.")

    def step(self, count: int) -> None:
        self.steps += count
        if self.steps > MOST_STEPS:
            raise ModelError(f"its lists hold more than {MOST_STEPS:,} items to be stepped over, in {self.doing}.")
