"""Number formats as exact bits: how many bytes a row of weights or of KV cache takes, scales included."""

from __future__ import annotations

from dataclasses import dataclass

from offload.errors import ModelError, did_you_mean


@dataclass(frozen=True, slots=True)
class Blocks:
    """Elements stored in blocks: `size` elements take `bytes`, scales and zero points included.

    row : bytes that a row takes besides its blocks (one scale for a whole row).
    """

    size: int
    bytes: int
    row: int = 0

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row; a last part of a block takes a whole one."""
        return -(-elements // self.size) * self.bytes + self.row


# By what a config calls the format of its numbers.
FORMAT_OF_DTYPE = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# Sizes of llama.cpp's tensor types (ggml block definitions): elements and bytes of a block.
GGML = {
    "f32": Blocks(1, 4), "f16": Blocks(1, 2), "bf16": Blocks(1, 2),
    "q1_0": Blocks(128, 18), "q2_0": Blocks(64, 18),
    "q4_0": Blocks(32, 18), "q4_1": Blocks(32, 20), "q5_0": Blocks(32, 22), "q5_1": Blocks(32, 24),
    "q8_0": Blocks(32, 34),
    "q2_k": Blocks(256, 84), "q3_k": Blocks(256, 110), "q4_k": Blocks(256, 144), "q5_k": Blocks(256, 176),
    "q6_k": Blocks(256, 210), "q8_k": Blocks(256, 292),
    "iq1_s": Blocks(256, 50), "iq1_m": Blocks(256, 56), "iq2_xxs": Blocks(256, 66), "iq2_xs": Blocks(256, 74),
    "iq2_s": Blocks(256, 82), "iq3_xxs": Blocks(256, 98), "iq3_s": Blocks(256, 110),
    "iq4_nl": Blocks(32, 18), "iq4_xs": Blocks(256, 136),
    "tq1_0": Blocks(256, 54), "tq2_0": Blocks(256, 66),
    "mxfp4": Blocks(32, 17), "nvfp4": Blocks(64, 36),
}  # fmt: skip
# What llama.cpp stores instead where a type's blocks do not divide a row.
FALLBACK = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip

# Bytes per element of a KV cache's row of one head, as blocks along the head.
KV_FORMATS = {
    "f16": Blocks(1, 2),
    "bf16": Blocks(1, 2),
    "f32": Blocks(1, 4),
    "fp8": Blocks(1, 1),
    "fp8-head": Blocks(1, 1, 4),  # a 32-bit scale for each position and head, as vLLM's fp8_per_token_head
    "int8": Blocks(1, 1, 4),  # the same of int8_per_token_head
    "int8-tensor": Blocks(1, 1),  # one scale for all keys of a layer and one for its values
    "nvfp4": Blocks(16, 9),  # 4 bits, and an 8-bit scale for 16 elements
    "q8_0": GGML["q8_0"],
    "q4_0": GGML["q4_0"],
}
# Only of a latent (MLA), as vLLM's fp8_ds_mla: the latent in 8 bits with a 32-bit scale for 128, its rotary part in 16.
LATENT_FORMAT = "fp8-latent"
LATENT_BLOCKS = Blocks(128, 132)
ROPE_BLOCKS = Blocks(1, 2)
ALIASES = {
    "fp16": "f16", "float16": "f16", "bfloat16": "bf16", "fp32": "f32", "float32": "f32", "f8": "fp8",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8_per_token_head": "int8", "fp8_per_token_head": "fp8-head",
    "fp8_ds_mla": "fp8-latent",
}  # fmt: skip


def kv_format(name: str) -> tuple[str, Blocks]:
    """A KV cache format by name, with the blocks along a row. Raises ModelError for an unknown one."""
    known = kv_name(name)
    if known == LATENT_FORMAT:
        raise ModelError(f"KV format {known} is a layout of latents (MLA); heads have none. Use fp8 or fp8-head.")
    return known, KV_FORMATS[known]


def kv_name(name: str) -> str:
    """The name of a KV cache format without its other spellings. Raises ModelError for an unknown one."""
    text = name.strip().lower() if isinstance(name, str) else ""
    known = ALIASES.get(text, text)
    if known not in KV_FORMATS and known != LATENT_FORMAT:
        hint = did_you_mean(name, [*KV_FORMATS, LATENT_FORMAT, "fp16"], "KV formats")
        raise ModelError(f'no KV cache format "{str(name)[:60]}". {hint}')
    return known
