"""How a quantised matrix is packed: what is stored for each weight, each group, each row and each tensor, in bits.

A packing is a list of parts (4 bits for each weight, 16 for each 128 of a row, ...), so bits per weight are a sum of
fractions, and the bytes of a matrix are counts of groups. A part of a group that is not full counts as a whole one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from offload.errors import ModelError

LARGEST_GROUP = 10**6


@dataclass(frozen=True, slots=True)
class Part:
    """`bits` stored once for each group of `rows` x `columns` elements; 0 is all rows, or the whole row.

    flat : groups of `columns` run over the tensor as one long row, as bitsandbytes has them.
    """

    bits: int
    rows: int = 1
    columns: int = 1
    flat: bool = False

    def stored(self, rows: int, row: int) -> int:
        """Bits in a matrix of `rows` rows of `row` elements."""
        if self.flat:
            return self.bits * -(-rows * row // self.columns)
        down = -(-rows // self.rows) if self.rows else 1
        return self.bits * down * (-(-row // self.columns) if self.columns else 1)

    @property
    def per_weight(self) -> Fraction:
        """Bits for each weight of a large matrix; 0 for what is stored once a row, a column or a tensor."""
        return Fraction(self.bits, self.rows * self.columns) if self.rows and self.columns else Fraction(0)


Packing = tuple[Part, ...]


def packed_bytes(packing: Packing, rows: int, row: int) -> int:
    """Bytes of a matrix of `rows` rows of `row` elements, everything that belongs to it included. [B]"""
    return -(-sum(part.stored(rows, row) for part in packing) // 8)


def integers(bits: int, group: int = 0, *, zeros: bool = False, indices: bool = False) -> Packing:
    """Integers with a 16-bit scale for each `group` along a row (0: for each row), as GPTQ, AWQ and others store them.

    zeros : a zero point of the same bits beside each scale. indices : a 32-bit group index for each input (g_idx).
    """
    found = [Part(bits), Part(16, 1, group)]
    if zeros:
        found.append(Part(bits, 1, group))
    if indices:
        found.append(Part(32, 0, 1))
    return tuple(found)


def affine(bits: int, group: int) -> Packing:
    """MLX: integers with a 16-bit scale and a 16-bit bias for each group along a row."""
    return Part(bits), Part(32, 1, group)


def fp8_blocks(rows: int, columns: int, scale: int = 32) -> Packing:
    """8-bit floats with a scale for each block: 32-bit, or 8 (a power of two, ue8m0)."""
    return Part(8), Part(scale, rows, columns)


PACKINGS: dict[str, Packing] = {
    "fp8": (Part(8), Part(32, 0, 0)),
    "fp8-channel": (Part(8), Part(16, 1, 0)),
    "fp8-128x128": fp8_blocks(128, 128),
    "fp8-128x128-ue8m0": fp8_blocks(128, 128, 8),
    "int8": integers(8),
    "bnb-int8": (Part(8), Part(32, 1, 0)),
    "int8-g128": integers(8, 128, zeros=True),
    "int4-g128": integers(4, 128, zeros=True),
    "int4-g64": integers(4, 64, zeros=True),
    "int4-g32": integers(4, 32, zeros=True),
    "int4-g128-sym": integers(4, 128),
    "int4-g128-act": integers(4, 128, zeros=True, indices=True),
    # A 32-bit maximum for each 64, and the table of the 16 values with each tensor.
    "nf4": (Part(4), Part(32, 1, 64, flat=True), Part(16 * 32, 0, 0)),
    # The maxima in 8 bits, with a 32-bit one for each 256 of them, and the table of their 256 values too.
    "nf4-double": (Part(4), Part(8, 1, 64, flat=True), Part(32, 1, 64 * 256, flat=True), Part((16 + 256) * 32, 0, 0)),
    "mxfp4": (Part(4), Part(8, 1, 32)),
    "mxfp4-all": (Part(4), Part(8, 1, 32)),
    "mxfp8": (Part(8), Part(8, 1, 32)),
    "nvfp4": (Part(4), Part(8, 1, 16), Part(32, 0, 0)),
    "mlx-4bit-g64": affine(4, 64),
    "mlx-8bit-g64": affine(8, 64),
}
PACKING_ALIASES = {
    "f8": "fp8", "fp8-block": "fp8-128x128", "fp8-block-128x128": "fp8-128x128", "w8a8": "int8", "w8a16": "int8",
    "w8a8-int8": "int8", "w8a8-fp8": "fp8-channel", "llm.int8": "bnb-int8", "llm-int8": "bnb-int8",
    "bitsandbytes-int8": "bnb-int8", "int4": "int4-g128", "awq": "int4-g128", "awq-g128": "int4-g128",
    "awq-g64": "int4-g64", "awq-g32": "int4-g32", "gptq": "int4-g128", "gptq-4bit-g128": "int4-g128",
    "gptq-8bit-g128": "int8-g128", "gptq-4bit-g128-act": "int4-g128-act", "w4a16": "int4-g128-sym",
    "w4a16-g128": "int4-g128-sym", "bnb-nf4": "nf4", "bnb-fp4": "nf4", "nf4-dq": "nf4-double",
    "mlx-4bit": "mlx-4bit-g64", "mlx-8bit": "mlx-8bit-g64",
}  # fmt: skip
# Names with parameters: what they mean, and how the name is written.
_INTEGERS = re.compile(r"int([2-8])-(?:g(\d{1,7})|row)(-sym)?(-act)?", re.ASCII)
_BLOCKS = re.compile(r"fp8-(\d{1,7})x(\d{1,7})(-ue8m0)?", re.ASCII)
_MLX = re.compile(r"mlx-([234568])bit-g(\d{1,7})", re.ASCII)
SPELLINGS = "int4-g128[-sym][-act], int8-row, fp8-128x128[-ue8m0], mlx-4bit-g64 with other bits and groups"


def packing_named(name: str) -> Packing | None:
    """The packing of a name, of the table or with parameters in it (`SPELLINGS`); None where it is none.

    Raises ModelError for a group of no element.
    """
    if name in PACKINGS:
        return PACKINGS[name]
    if found := _INTEGERS.fullmatch(name):
        bits, group, symmetric, order = found.groups()
        return integers(int(bits), _size(name, group) if group else 0, zeros=not symmetric, indices=bool(order))
    if found := _BLOCKS.fullmatch(name):
        return fp8_blocks(_size(name, found[1]), _size(name, found[2]), 8 if found[3] else 32)
    if found := _MLX.fullmatch(name):
        return affine(int(found[1]), _size(name, found[2]))
    return None


def _size(name: str, text: str) -> int:
    if not 1 <= int(text) <= LARGEST_GROUP:
        raise ModelError(f'"{name}": a group has from 1 to {LARGEST_GROUP:,} weights.')
    return int(text)
