"""Tensor types of GGUF files: their numbers in the format and the blocks that they store elements in."""

from __future__ import annotations

from offload.models.formats import GGML, Blocks

# Sizes of ggml's block structures (ggml-common.h), besides those that weights are computed for.
BLOCKS = {
    **GGML,
    "bf16": Blocks(1, 2),
    "f64": Blocks(1, 8),
    "i8": Blocks(1, 1),
    "i16": Blocks(1, 2),
    "i32": Blocks(1, 4),
    "i64": Blocks(1, 8),
    "q4_1": Blocks(32, 20),
    "q2_k": Blocks(256, 84),
    "q3_k": Blocks(256, 110),
    "q8_k": Blocks(256, 292),
    "iq1_s": Blocks(256, 50),
    "iq1_m": Blocks(256, 56),
    "iq2_xxs": Blocks(256, 66),
    "iq2_xs": Blocks(256, 74),
    "iq2_s": Blocks(256, 82),
    "iq3_xxs": Blocks(256, 98),
    "iq3_s": Blocks(256, 110),
    "iq4_nl": Blocks(32, 18),
    "iq4_xs": Blocks(256, 136),
    "tq1_0": Blocks(256, 54),
    "tq2_0": Blocks(256, 66),
    "mxfp4": Blocks(32, 17),
    "nvfp4": Blocks(64, 36),
    "q1_0": Blocks(128, 18),
    # Q4_0 and IQ4_NL with rows interleaved for ARM; written in 2024 only.
    "q4_0_4_4": Blocks(32, 18),
    "q4_0_4_8": Blocks(32, 18),
    "q4_0_8_8": Blocks(32, 18),
    "iq4_nl_4_4": Blocks(32, 18),
}
TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k", 12: "q4_k",
    13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl",
    21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m",
    30: "bf16", 31: "q4_0_4_4", 32: "q4_0_4_8", 33: "q4_0_8_8", 34: "tq1_0", 35: "tq2_0", 36: "iq4_nl_4_4",
    39: "mxfp4", 40: "nvfp4", 41: "q1_0",
}  # fmt: skip
# Numbers that stand for types without a size that could be relied on.
NOT_STORED = {
    4: "Q4_2, which was dropped in 2023",
    5: "Q4_3, which was dropped in 2023",
    9: "Q8_1, which programs use in memory only (its block had two sizes)",
    37: "IQ4_NL_4_8, which was never written to files",
    38: "IQ4_NL_8_8, which was never written to files",
}
