"""Files of weights written by hand, byte by byte, so that tests can make what no library would write."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U32, TEXT, LIST = 4, 8, 9
F32, F16, Q4_K = 0, 1, 12


class Counted(io.BytesIO):
    """A file that counts what is read of it; behind its bytes it seems to go on."""

    def __init__(self, raw: bytes):
        super().__init__(raw)
        self.taken = 0

    def read(self, count: int = -1) -> bytes:
        found = super().read(count)
        self.taken += len(found)
        return found


def safetensors_bytes(entries: dict, data: bytes = b"", pad: int = 0) -> bytes:
    header = json.dumps(entries).encode() + b" " * pad
    return struct.pack("<Q", len(header)) + header + data


def entry(dtype: str, shape: list, begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def laid_out(tensors: Iterable[tuple[str, str, list[int], int]]) -> dict:
    """Entries from (name, dtype, shape, bytes), one behind the other."""
    entries, at = {}, 0
    for name, dtype, shape, size in tensors:
        entries[name] = entry(dtype, shape, at, at + size)
        at += size
    return entries


class GgufBytes:
    """Writes the pieces of a GGUF header in one byte order and with one version's lengths."""

    def __init__(self, version: int = 3, order: str = "<"):
        self.version, self.order = version, order
        self.length = "I" if version == 1 else "Q"

    def pack(self, form: str, *values) -> bytes:
        return struct.pack(self.order + form, *values)

    def text(self, text: str | bytes) -> bytes:
        raw = text if isinstance(text, bytes) else text.encode()
        return self.pack(self.length, len(raw)) + raw

    def value(self, kind: int, value) -> bytes:
        """A value without its kind; a list is (kind of items, items)."""
        if kind == TEXT:
            return self.text(value)
        if kind == LIST:
            inner, items = value
            head = self.pack("I" + self.length, inner, len(items))
            if inner in SCALARS:
                return head + self.pack(f"{len(items)}{SCALARS[inner]}", *items)
            return head + b"".join(self.value(inner, item) for item in items)
        return self.pack(SCALARS[kind], value)

    def pair(self, key: str | bytes, kind: int, value) -> bytes:
        return self.text(key) + self.pack("I", kind) + self.value(kind, value)

    def tensor(self, name: str | bytes, ne: Iterable[int], kind: int, offset: int) -> bytes:
        ne = tuple(ne)
        sizes = self.pack(f"{len(ne)}{'I' if self.version == 1 else 'Q'}", *ne)
        return self.text(name) + self.pack("I", len(ne)) + sizes + self.pack("IQ", kind, offset)

    def start(self, tensors: int, pairs: int) -> bytes:
        return b"GGUF" + self.pack("I" + 2 * self.length, self.version, tensors, pairs)

    def file(self, pairs: list[tuple] = (), tensors: list[tuple] = (), data: int = 0, alignment: int = 32) -> bytes:
        head = self.start(len(tensors), len(pairs)) + b"".join(self.pair(*pair) for pair in pairs)
        head += b"".join(self.tensor(*tensor) for tensor in tensors)
        return head + bytes(-len(head) % alignment + data)
