"""How long a header takes to read in a file of 40 GB beside the same header in a small file, in turn in one run.

    python benchmarks/headers.py [rounds]

The large files are sparse: they take next to no room. Prints both medians and their ratio for each format, which should
stay near 1: nothing behind the header is read.
"""

from __future__ import annotations

import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

from offload.readers.weight_files import read_weights

SIZE = 40 * 10**9  # bytes of data
LAYERS, WIDTH = 60, 8192
PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
VOCABULARY = 128_256


def tensors() -> list[tuple[str, int, int]]:
    """Name, rows and offset of matrices of WIDTH columns in 16 bits, SIZE bytes together."""
    rows = SIZE // (LAYERS * len(PARTS) * WIDTH * 2)
    names = [f"blk.{layer}.{part}.weight" for layer in range(LAYERS) for part in PARTS]
    return [(name, rows, number * rows * WIDTH * 2) for number, name in enumerate(names)]


def safetensors() -> bytes:
    header = json.dumps({
        name: {"dtype": "BF16", "shape": [rows, WIDTH], "data_offsets": [at, at + rows * WIDTH * 2]}
        for name, rows, at in tensors()
    }).encode()  # fmt: skip
    return struct.pack("<Q", len(header)) + header


def gguf() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    found = tensors()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), 1)
    head += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, VOCABULARY)
    head += b"".join(text(f"token{number}") for number in range(VOCABULARY))
    for name, rows, at in found:
        head += text(name) + struct.pack("<IQQIQ", 2, WIDTH, rows, 30, at)
    return head + bytes(-len(head) % 32)


def seconds(path: Path) -> float:
    begun = time.perf_counter()
    read_weights(path)
    return time.perf_counter() - begun


def main(rounds: int = 15) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, header in (("safetensors", safetensors()), ("gguf", gguf())):
            small, large = Path(folder, f"small.{name}"), Path(folder, f"large.{name}")
            small.write_bytes(header)
            large.write_bytes(header)
            with large.open("r+b") as file:
                file.truncate(len(header) + SIZE)
            if read_weights(large).notes:
                raise SystemExit(f"{large}: not the file that was meant: {read_weights(large).notes}")
            pairs = [(seconds(large), seconds(small)) for _ in range(rounds)]
            both = [statistics.median(column) * 1e3 for column in zip(*pairs, strict=True)]
            print(f"{name:12} header of {len(header):,} bytes, medians of {rounds}: in {len(header) + SIZE:,} bytes "
                  f"{both[0]:.1f} ms, in {len(header):,} bytes {both[1]:.1f} ms, ratio {both[0] / both[1]:.2f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
