"""safetensors files by their headers alone: one file, a folder of shards, or an index that only names its tensors.

A file is eight bytes of header length, a header in JSON, then the tensors' bytes. The header says all that is asked
here, so a file that is cut short behind it is read like a whole one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.readers.headers import (
    LONGEST_NAME,
    MOST_TENSORS,
    check_layout,
    looks_like,
    not_a,
    open_header,
    product,
)
from offload.readers.json_walk import JsonWalk
from offload.readers.stored import Omitted, StoredTensor, StoredWeights

LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
LONGEST_ENTRY = 16 * 1024  # bytes of one tensor's description
LONGEST_TEXT = 64 * 1024  # of a value of `__metadata__` that is kept
MOST_TEXTS = 10_000
MOST_DIMENSIONS = 64
# Bits of an element, as the safetensors library counts them.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
KEYS = ("dtype", "shape", "data_offsets")
_WHOLE = rb"(?:0|[1-9][0-9]{0,17})"
# A further tensor as writers spell it, matched as one piece; what is spelled in another way is walked. A space stands
# for any blanks.
_USUAL = (rb' , "([!#-\[\]-~]{1,1024})" : \{ "dtype" : "(\w{1,32})" , "shape" : \[ ((?:%s (?:, %s ){0,8})?)\] ,'
          rb' "data_offsets" : \[ (%s) , (%s) \] \}') % ((_WHOLE,) * 4)  # fmt: skip
USUAL = re.compile(_USUAL.replace(b" ", rb"[ \t\n\r]*+"))


@dataclass(frozen=True, slots=True)
class Header:
    """What one file's header says. notes : without the file's name."""

    tensors: tuple[StoredTensor, ...]
    metadata: Mapping[str, Any]
    notes: tuple[str, ...]


def read_safetensors(path: str | Path) -> StoredWeights:
    """One safetensors file. Raises ModelError for what is no such file or contradicts itself, OSError."""
    path = Path(path)
    header = header_of(path)
    if not header.tensors:
        raise ModelError(f"{shown(path, 300)}: this file holds no tensors.")
    return StoredWeights(str(path), "safetensors", header.tensors, header.metadata, header.notes)


def header_of(path: Path) -> Header:
    """The header of a file, which may hold no tensors. Raises as `read_safetensors`, with the file's name."""
    with open_header(path) as (file, size):
        try:
            return read_header(file, size, path.name)
        except ModelError as error:
            raise ModelError(f"{shown(path, 300)}: {error}") from None


def read_header(file: BinaryIO, size: int, label: str) -> Header:
    """The header of an open file of `size` bytes; `label` is the tensors' file. Reads no byte behind the header.

    Raises ModelError for a wrong length, no JSON, a shape that does not take the bytes that its offsets give, offsets
    that overlap or lead past the end.
    """
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
    if not 2 <= length <= LARGEST_HEADER:
        start += file.read(512)
        says = f" As a safetensors file its header would have {length:,} bytes." if length >= 0 else ""
        raise ModelError(not_a("safetensors file", start) + ("" if looks_like(start) else says))
    begin = file.read(1)
    if begin != b"{":
        raise ModelError(not_a("safetensors file", start + begin + file.read(512)))
    if 8 + length > size:
        raise ModelError(f"the file is cut within its header: it ends at byte {size:,}, the header at {8 + length:,}. "
                         "Download it again.")
    raw = begin + file.read(length - 1)
    if len(raw) < length:
        raise ModelError(f"the file became shorter while it was read: {len(raw):,} of {length:,} bytes of header.")
    walk = JsonWalk(raw, "the header")
    tensors: list[StoredTensor] = []
    spans: list[tuple[int, int, str]] = []
    metadata: dict[str, Any] | None = None
    seen: set[str] = set()
    unknown: set[str] = set()
    for name in walk.items(LONGEST_NAME, "a tensor's name"):
        if name in seen:
            raise walk.error(f'"{shown(name)}" is described twice.')
        seen.add(name)
        if name == "__metadata__":
            metadata = _metadata(walk)
            continue
        if len(tensors) >= MOST_TENSORS:
            raise walk.error(f"more than {MOST_TENSORS:,} tensors are not read.")
        try:
            kind, shape, begins, ends = _entry(walk.value(LONGEST_ENTRY, "its description"))
        except ModelError as error:
            raise ModelError(f'tensor "{shown(name)}": {error}') from None
        if kind not in BITS:
            unknown.add(kind)
        tensors.append(StoredTensor(name, shape, kind.lower(), ends - begins, label, 8 + length + begins))
        spans.append((begins, ends, name))
        for name, kind, shape, begins, ends in _usual(walk, seen, MOST_TENSORS - len(tensors)):
            tensors.append(StoredTensor(name, shape, kind, ends - begins, label, 8 + length + begins))
            spans.append((begins, ends, name))
    if not walk.ended():
        raise walk.error("something follows the header's JSON.")
    notes = check_layout(spans, size - 8 - length)
    if unknown:
        names = ", ".join(sorted(unknown)[:8])
        notes.append(f"number formats that are not known ({names}): their bytes are as the header says, not checked "
                     "against the shapes")
    tensors.sort(key=lambda tensor: cast(int, tensor.offset))
    return Header(tuple(tensors), metadata or {}, tuple(notes))


def _usual(walk: JsonWalk, seen: set[str], most: int) -> Iterator[tuple[str, str, tuple[int, ...], int, int]]:
    """Up to `most` further tensors that are spelled as usual and are sound, as name, type, shape, begin and end.

    Stops before the first that is not, which the walk then takes piece by piece and says what is wrong with it.
    """
    shapes: dict[bytes, tuple[tuple[int, ...], int]] = {}  # shape and elements; a model has few
    for _ in range(most):
        match = USUAL.match(walk.data, walk.at)
        if match is None:
            return
        spelled, kind, sizes, begins, ends = match.groups()
        name, kind, begins, ends = spelled.decode(), kind.decode(), int(begins), int(ends)
        if sizes not in shapes:
            shape = tuple(map(int, sizes.split(b",") if sizes else ()))
            try:
                shapes[sizes] = shape, product(shape)
            except OverflowError:
                return
        shape, elements = shapes[sizes]
        if name in seen or name == "__metadata__" or kind not in BITS or 8 * (ends - begins) != BITS[kind] * elements:
            return
        seen.add(name)
        walk.at = match.end()
        yield name, kind.lower(), shape, begins, ends


def _entry(value: Any) -> tuple[str, tuple[int, ...], int, int]:
    """One tensor's dtype, shape and offsets, checked against each other."""
    if not isinstance(value, dict) or any(key not in value for key in KEYS):
        raise ModelError(f"its description must be a map with {', '.join(KEYS)}.")
    kind, shape, offsets = (value[key] for key in KEYS)
    if not isinstance(kind, str) or not kind.isascii() or not kind.isprintable() or not 1 <= len(kind) <= 32:
        given = f'"{shown(kind)}"' if isinstance(kind, str) else shown(kind)
        raise ModelError(f"its dtype is {given}; it must be a short name, as F16.")
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS or not all(_is_size(size) for size in shape):
        raise ModelError(f"its shape is {shown(shape)}; it must be a list of at most {MOST_DIMENSIONS} whole "
                         "numbers from 0 to 2^63 - 1.")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(offset) for offset in offsets):
        raise ModelError(f"its data_offsets are {shown(offsets)}; they must be two whole numbers.")
    begins, ends = offsets
    if begins > ends:
        raise ModelError(f"it ends (byte {ends:,}) before it begins (byte {begins:,}).")
    try:
        elements = product(shape)
    except OverflowError:
        raise ModelError(f"its shape {shown(shape)} has more elements than any file holds.") from None
    bits = BITS.get(kind)
    if bits is not None and 8 * (ends - begins) != bits * elements:
        raise ModelError(f"its shape {shown(shape)} of {kind} takes {_bytes(bits * elements)}, its offsets "
                         f"give {ends - begins:,}.")
    return kind, tuple(shape), begins, ends


def _bytes(bits: int) -> str:
    whole, rest = divmod(bits, 8)
    return f"{whole:,} bytes and {rest} bits" if rest else f"{whole:,} bytes"


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _metadata(walk: JsonWalk) -> dict[str, Any]:
    """`__metadata__`: text to text; a long text is left out."""
    kept: dict[str, Any] = {}
    for key in walk.items(LONGEST_NAME, "a key of __metadata__"):
        if len(kept) >= MOST_TEXTS:
            raise walk.error(f"more than {MOST_TEXTS:,} texts in __metadata__ are not read.")
        before = walk.at
        text = walk.text(LARGEST_HEADER, f'"{shown(key)}" of __metadata__')
        kept[key] = text if walk.at - before <= LONGEST_TEXT else Omitted("text", len(text.encode()))
    return kept
