"""Number formats as exact bits: how many bytes a row of weights or of KV cache takes, scales included."""

from __future__ import annotations

from dataclasses import dataclass

from offload.errors import ModelError, did_you_mean


@dataclass(frozen=True, slots=True)
class Blocks:
    """Elements stored in blocks: `size` elements take `bytes`, scales and zero points included."""

    size: int
    bytes: int

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row; a last part of a block takes a whole one."""
        return -(-elements // self.size) * self.bytes


# Sizes of llama.cpp's tensor types (ggml block definitions).
GGML = {
    "f32": Blocks(1, 4),
    "f16": Blocks(1, 2),
    "q4_0": Blocks(32, 18),
    "q5_0": Blocks(32, 22),
    "q5_1": Blocks(32, 24),
    "q8_0": Blocks(32, 34),
    "q4_k": Blocks(256, 144),
    "q5_k": Blocks(256, 176),
    "q6_k": Blocks(256, 210),
}
# What llama.cpp stores instead where a row is no multiple of 256 elements.
FALLBACK = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}

# Bytes per element of a KV cache's row of one head, as blocks along the head.
KV_FORMATS = {
    "f16": Blocks(1, 2),
    "bf16": Blocks(1, 2),
    "fp8": Blocks(1, 1),
    "q8_0": GGML["q8_0"],
    "q4_0": GGML["q4_0"],
}
ALIASES = {"fp16": "f16", "float16": "f16", "bfloat16": "bf16", "f8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}


def kv_format(name: str) -> tuple[str, Blocks]:
    """A KV cache format by name. Raises ModelError for an unknown one."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in KV_FORMATS:
        hint = did_you_mean(name, [*KV_FORMATS, "fp16"], "KV formats")
        raise ModelError(f'no KV cache format "{name}". {hint}')
    return known, KV_FORMATS[known]
