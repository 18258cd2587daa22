"""Architectures of GGUF files: what attention does in each, which a file's tensors and keys do not say by themselves.

Facts of llama.cpp (src/llama-model.cpp, src/models), which runs these files; names are those of the `gguf` package's
MODEL_ARCH. One that is in neither table is refused by its name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attention:
    """What an architecture's layers attend to and keep.

    every : of so many layers the last (dense_first: the first) sees all positions, the others a window; 1 is a window
    in all of them, 0 none. window : its size where the file gives none; None: the file must. only : windows are in
    models of so many layers alone. marked : the file lists which layers have one. chunk : the window is a chunk.
    latent : MLA. gated : attn_q makes a gate beside the queries. shared : the last `attention.shared_kv_layers` read an
    earlier layer's cache ("must" or "may" be given). state : what layers with a convolution keep: "ssm" (Mamba),
    "delta" (gated delta net), "kda" (Kimi's), "conv" (the convolution's inputs alone).
    """

    every: int = 0
    window: int | None = 0
    only: int = 0
    dense_first: bool = False
    marked: bool = False
    chunk: bool = False
    latent: bool = False
    gated: bool = False
    shared: str = ""
    state: str = ""


FULL = Attention()
MAMBA = Attention(state="ssm")
DELTA = Attention(gated=True, state="delta")
ARCHITECTURES: dict[str, Attention] = {
    **dict.fromkeys((
        "llama", "mistral3", "deci", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl",
        "qwen3vlmoe", "gemma", "falcon", "granite", "granitemoe", "internlm2", "gpt2", "bloom", "glm4", "glm4moe",
        "stablelm", "phi2", "phimoe", "command-r", "olmo", "olmoe", "nemotron", "gptneox", "smollm3", "baichuan",
        "grok", "mpt", "starcoder", "starcoder2", "refact", "plamo", "codeshell", "orion", "minicpm", "xverse", "dbrx",
        "openelm", "arctic", "deepseek", "deepseek2-ocr", "chatglm", "bitnet", "jais", "jais2", "exaone", "chameleon",
        "bailingmoe", "bailingmoe2", "dots1", "arcee", "ernie4_5", "ernie4_5-moe", "hunyuan-moe", "hunyuan-dense",
        "hunyuan_vl", "seed_oss", "apertus", "minimax-m2", "cogvlm", "pangu-embedded", "paddleocr", "maincoder",
        # Projections are those of a latent, and llama.cpp keeps all heads' keys and values.
        "minicpm3", "plm",
    ), FULL),
    "phi3": Attention(every=1),
    "gemma2": Attention(every=2, window=4096),
    "gemma3": Attention(every=6, window=None),
    "gemma3n": Attention(every=5, window=None, shared="must"),
    "gemma4": Attention(window=None, marked=True, shared="may"),
    "gpt-oss": Attention(every=2, window=None),
    "cohere2": Attention(every=4, window=None),
    "olmo2": Attention(every=4),
    "afmoe": Attention(every=4),
    "plamo3": Attention(every=8),
    "exaone4": Attention(every=4, window=4096, only=64),
    "exaone-moe": Attention(every=4, window=None),
    "smallthinker": Attention(every=4, dense_first=True),
    "mimo2": Attention(window=None, marked=True),
    "step35": Attention(window=None, marked=True),
    "llama4": Attention(every=4, window=8192, chunk=True),
    **dict.fromkeys(("deepseek2", "glm-dsa", "mistral4"), Attention(latent=True)),
    **dict.fromkeys(("mamba", "mamba2", "jamba", "plamo2", "granitehybrid", "nemotron_h", "nemotron_h_moe",
                     "falcon-h1"), MAMBA),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), DELTA),
    "kimi-linear": Attention(latent=True, state="kda"),
    **dict.fromkeys(("lfm2", "lfm2moe"), Attention(every=1, state="conv")),
}  # fmt: skip
# Architectures whose files are known and no model here, with the reason.
REFUSED: dict[str, str] = {
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), "the FLOP of its time mixing are not counted"),
    "grovemoe": "its layers have two sets of experts, of which tokens choose apart",
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"),
                    "it fills in many tokens at once (diffusion), and decodes none after the other"),
    **dict.fromkeys(("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
                     "eurobert", "gemma-embedding", "llama-embed"), "it makes embeddings and generates no tokens"),
    **dict.fromkeys(("t5", "t5encoder"), "it has an encoder, and only decoders are counted"),
    **dict.fromkeys(("clip", "wavtokenizer-dec"), "it is no language model"),
    "gptj": "llama.cpp does not run it, so what its files hold is not known",
}  # fmt: skip
