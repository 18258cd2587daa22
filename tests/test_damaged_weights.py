"""Real headers damaged at random, and hostile ones: nothing but a told refusal, in bounded memory."""

from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from offload.errors import ModelError
from offload.readers import gguf, safetensors
from offload.readers.safetensors import LARGEST_HEADER
from offload.readers.shards import index_of
from offload.readers.stored import StoredWeights
from tests.weight_bytes import F32, LIST, Q4_K, TEXT, U32, GgufBytes, entry, laid_out, safetensors_bytes

DATA = Path(__file__).parent / "data" / "weights"
ROUNDS = 500
EXTREMES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def split_pairs() -> bytes:
    pairs = [("split.count", 2, 1), ("n", LIST, (U32, [1, 2, 3])), ("l", LIST, (LIST, [(TEXT, ["a", "b"])] * 3)),
             ("yes", 7, True), ("t", TEXT, "x" * 40)]  # fmt: skip
    return GgufBytes().file(pairs, [("a", (256, 3), Q4_K, 0), ("b", (8,), F32, 448)], data=480)


STARTS = {
    "gguf": [(DATA / "tiny_llama_mixed.header.gguf").read_bytes(), split_pairs(), GgufBytes(2, ">").file(
        [("k", TEXT, "v")], [("a", (8,), F32, 0)]), GgufBytes(1).file([("k", U32, 1)], [("a", (8,), F32, 0)])],
    "safetensors": [(DATA / "tiny_mixed.safetensors").read_bytes()[:1500],
                    safetensors_bytes(laid_out([("a", "F4", [4], 2), ("b", "BF16", [2, 3], 12)]), bytes(14), pad=9)],
    "index": [(DATA / "gemma-2b.model.safetensors.index.json").read_bytes()[:302].rpartition(b",")[0] + b"}}",
              json.dumps({"metadata": {"total_size": 5}, "weight_map": {"a": "f", "b": "g"}}).encode()],
}  # fmt: skip


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, dropped, doubled or replaced by an extreme number."""
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(data) or 1)
        kind = chance.randrange(7)
        if kind == 0 and data:
            data[at] = chance.randrange(256)
        elif kind == 1 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del data[at : at + chance.choice((1, 4, 8, 50))]
        elif kind == 3:
            data[at:at] = bytes(data[at : at + chance.choice((1, 8, 100))])
        elif kind == 4:
            data[at : at + 8] = struct.pack(chance.choice("<>") + "Q", chance.choice(EXTREMES))
        elif kind == 5:
            del data[at:]
        else:
            pieces = (b'"', b"{", b"}", b"[", b"]", b",", b":", b"-", b"9" * 30, b"\\u", b"\xff", b"e9")
            data[at:at] = chance.choice(pieces)
    return bytes(data)


def refused_or_read(kind: str, raw: bytes, path: Path) -> bool:
    """Whether a file was read; what is read must add up."""
    try:
        if kind == "index":
            path.write_bytes(raw)
            names, totals, _ = index_of(path)
            assert names and all(isinstance(value, str) and value for value in names.values())
            assert type(totals.get("total_size", 0)) is int
            return True
        reader = gguf.read_part if kind == "gguf" else safetensors.read_header
        part = reader(io.BytesIO(raw), len(raw), "f")
    except ModelError as error:
        text = str(error)
        assert len(text) < 1000 and text.isprintable()
        return False
    weights = StoredWeights("f", kind, part.tensors, part.metadata, part.notes)
    assert sum(group.bytes for group in weights.groups) == weights.bytes >= 0
    assert sum(share.bytes for share in weights.by_layer_and_role().values()) == weights.bytes
    assert all(tensor.bytes >= 0 and tensor.elements >= 0 and tensor.offset >= 0 for tensor in weights.tensors)
    assert all(note.isprintable() for note in weights.notes)
    return True


@pytest.mark.parametrize("kind", STARTS)
def test_random_damage_is_refused_or_harmless(kind, tmp_path):
    chance = random.Random(f"damage {kind}")
    path = tmp_path / "model.safetensors.index.json"
    for start in STARTS[kind]:
        assert refused_or_read(kind, start, path)
    tracemalloc.start()
    try:
        outcomes = [refused_or_read(kind, damaged(chance.choice(STARTS[kind]), chance), path) for _ in range(ROUNDS)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
    assert ROUNDS / 20 < sum(outcomes) < ROUNDS * 0.9  # both happen, so that both were tested


def test_whatever_the_safetensors_library_opens_is_read_alike(tmp_path):
    library = pytest.importorskip("safetensors")
    pytest.importorskip("numpy")
    chance = random.Random("oracle")
    path = tmp_path / "f.safetensors"
    opened = 0
    for _ in range(ROUNDS):
        entries = {}
        at = 0
        for number in range(chance.randrange(1, 4)):
            kind, bits = chance.choice(list(safetensors.BITS.items()))
            shape = [chance.choice((0, 1, 2, 3, 8)) for _ in range(chance.randrange(4))]
            size = int(bits * safetensors.product(shape) // 8) + chance.choice((0, 0, 0, 0, 1))
            begin = at + chance.choice((0, 0, 0, 0, 1, -1))
            entries[f"t{number}"] = entry(kind, shape, begin, begin + size)
            at = begin + size
        raw = safetensors_bytes(entries, bytes(max(0, at)), pad=chance.randrange(3))
        path.write_bytes(raw)
        try:
            with library.safe_open(path, "np") as theirs:
                found = {name: (theirs.get_slice(name).get_dtype(), theirs.get_slice(name).get_shape())
                         for name in theirs.keys()}  # fmt: skip
        except Exception:  # noqa: BLE001, S112  (the library's own errors; what it refuses may be read or refused)
            continue
        opened += 1
        ours = safetensors.read_header(io.BytesIO(raw), len(raw), "f")
        assert {tensor.name: (tensor.type.upper(), list(tensor.shape)) for tensor in ours.tensors} == found
        assert ours.notes == ()
    assert opened > ROUNDS / 10


# --- what is made to take memory ---


def peak_of(read, *arguments) -> int:
    """Bytes that a refused read takes at most."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelError):
            read(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Endless(io.RawIOBase):
    """A file that seems to go on with one byte for as long as it is read."""

    def __init__(self, start: bytes, filler: bytes = b"\0"):
        super().__init__()
        self.start, self.filler, self.at = start, filler, 0

    def seek(self, at: int, whence: int = 0) -> int:
        self.at = at
        return at

    def read(self, count: int = -1) -> bytes:
        assert 0 <= count <= LARGEST_HEADER, "an unbounded read"
        found = self.start[self.at : self.at + count]
        found += self.filler * (count - len(found))
        self.at += count
        return found


W = GgufBytes()
LARGE = 10**15  # bytes that the files below seem to have
HOSTILE = {
    "many tensors": W.start(2**63, 0),
    "many keys": W.start(0, 2**63),
    "many empty texts": W.start(0, 1) + W.text("k") + struct.pack("<IIQ", LIST, TEXT, 10**12),
    "many empty lists": W.start(0, 1) + W.text("k") + struct.pack("<IIQ", LIST, LIST, 10**12),
    "a long key": W.start(0, 1) + struct.pack("<Q", 10**12),
    "a long name": W.start(1, 0) + struct.pack("<Q", 10**12),
    "a million tensors without names": W.start(1_000_000, 0),
    "many keys of nothing": W.start(0, 100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_gguf_files_take_little_memory(name):
    assert peak_of(gguf.read_part, Endless(HOSTILE[name]), LARGE, "f") < 1e6


@pytest.mark.few
@pytest.mark.parametrize("filler", [b"\0", b"{", b"[", b'"', b" ", b"9", b"\\"])
def test_a_large_safetensors_header_of_nothing_takes_its_own_size(filler):
    length = 20_000_000
    for start in (b'{"a":', b'{"', b'{"__metadata__":{"a":"', b'{"a":{"dtype":"U8","shape":['):
        raw = struct.pack("<Q", length) + start
        assert peak_of(safetensors.read_header, Endless(raw, filler), LARGE, "f") < 3 * length


def test_an_index_of_lists_takes_little_more_than_its_own_size(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(b'{"x": [' + b"[]," * 3_000_000 + b'[]], "weight_map": {"a": "f"}}')
    assert peak_of(index_of, path) < path.stat().st_size + 32e6  # a megabyte of lists at a time
