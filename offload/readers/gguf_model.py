"""A GGUF file as a model: its tensors say every shape, its keys what attention does with them.

A file names its architecture; what is not in the tensors (which layers have a window, what a latent is) is a fact about
that architecture as llama.cpp runs it (src/llama-model.cpp). One that is not known is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offload.errors import ModelError, did_you_mean
from offload.models import Cache, Layer, Matrix, Model
from offload.models.families.fields import given
from offload.models.families.parts import attend
from offload.readers.file_sizes import BESIDE, is_expert, matrix_role, same_layers, with_stored
from offload.readers.headers import shown
from offload.readers.stored import Group, StoredWeights

LARGEST = 10**9


@dataclass(frozen=True, slots=True)
class Attention:
    """What an architecture's attention is. every : of so many layers the last sees all positions, the others a window;
    1 is a window in all of them, 0 none. window : where the file gives no size; None: it must. latent : MLA.
    """

    every: int = 0
    window: int | None = 0
    latent: bool = False


FULL = Attention()
ARCHITECTURES: dict[str, Attention] = {
    **dict.fromkeys(("llama", "mistral3", "deci", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "falcon",
                     "granite", "granitemoe", "internlm2", "gpt2", "bloom", "glm4", "glm4moe", "stablelm", "phi2",
                     "command-r", "olmoe", "nemotron", "gptneox", "smollm3"), FULL),
    "phi3": Attention(every=1),
    "gemma2": Attention(every=2, window=4096),
    "gemma3": Attention(every=6, window=None),
    "gpt-oss": Attention(every=2, window=None),
    "deepseek2": Attention(latent=True),
}  # fmt: skip
FILE_TYPES = {  # `general.file_type`: llama.cpp's llama_ftype
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip


def model_of_gguf(stored: StoredWeights) -> Model:
    """The model of a GGUF file, with the sizes of its tensors.

    Raises ModelError, with the file's name, for an architecture that is not known, a key that is missing or wrong, and
    tensors that contradict the keys.
    """
    try:
        return _model(stored)
    except ModelError as error:
        text = str(error)
        raise ModelError(text if text.startswith(shown(stored.path, 300)) else f"{shown(stored.path, 300)}: {text}") \
            from None


def file_format(stored: StoredWeights) -> str:
    """The name of a file's format: a GGUF's file type, else the type that most of its bytes have."""
    named = stored.metadata.get("general.file_type")
    known = FILE_TYPES.get(named) if type(named) is int else None
    return known or next(iter(stored.types()), "?").upper()


class _Keys:
    """A file's keys below its architecture's name, read strictly."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata, self.start = metadata, architecture

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.metadata.get(f"{self.start}.{key}", default)
        if value is None:
            raise ModelError(f'the key "{self.start}.{key}" is missing.')
        if type(value) is not int or not least <= value <= LARGEST:
            raise ModelError(f"{self.start}.{key} is {given(value)}; it must be a whole number from {least} to "
                             f"{LARGEST:,}.")
        return value

    def has(self, key: str) -> bool:
        return f"{self.start}.{key}" in self.metadata

    def each(self, key: str, count: int, default: tuple[int, ...] | None = None, least: int = 1) -> tuple[int, ...]:
        """One number for each layer: a list, or one for all."""
        value = self.metadata.get(f"{self.start}.{key}")
        if value is None and default is not None:
            return default
        if not isinstance(value, list | tuple):
            return (self.whole(key, least=least),) * count
        if len(value) < count or any(type(one) is not int or not 0 <= one <= LARGEST for one in value):
            raise ModelError(f"{self.start}.{key} is a list of {len(value):,}; it must be a whole number for each of "
                             f"the {count} layers.")
        return tuple(value[:count])


def _model(stored: StoredWeights) -> Model:
    architecture = stored.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError('the key "general.architecture" is missing, so what its layers do is not known.')
    known = ARCHITECTURES.get(architecture)
    if known is None:
        hint = did_you_mean(architecture[:60], ARCHITECTURES, "Known")
        raise ModelError(f"GGUF files of architecture {shown(architecture)!r} are not counted yet. {hint} "
                         "`offload model` prints what is stored.")
    keys = _Keys(stored.metadata, architecture)
    run = [one for one in stored.groups if one.role not in BESIDE]
    numbers = tuple(sorted({one.layer for one in run if one.layer is not None}))
    blocks = keys.whole("block_count")
    count = blocks - len(stored.mtp_layers)
    if not numbers or len(numbers) != count or numbers[-1] != count - 1:
        raise ModelError(f"{architecture}.block_count is {blocks}, and the layers {_some(numbers)} are stored. Give "
                         "all of the model's files.")
    by_layer: dict[int | None, list[Group]] = {}
    for one in run:
        by_layer.setdefault(one.layer, []).append(one)
    outer = by_layer.get(None, [])
    table = next((one for one in outer if matrix_role(one) == "embedding"), None)
    if table is None or len(table.main.shape) != 2:
        raise ModelError("it holds no token_embd.weight of two dimensions.")
    hidden, vocab = keys.whole("embedding_length"), table.main.shape[0]
    if table.main.shape[1] != hidden:
        raise ModelError(f"{architecture}.embedding_length is {hidden}, and token_embd.weight has rows of "
                         f"{table.main.shape[1]}.")
    used = keys.whole("expert_used_count", 0, least=0)
    experts = keys.whole("expert_count", 0, least=0)
    heads = keys.each("attention.head_count", count, least=0)
    kv_heads = keys.each("attention.head_count_kv", count, heads, least=0)
    windows = _windows(keys, known, count)
    stack = [
        _layer(keys, known, by_layer[index], hidden, (experts, used), heads[index], kv_heads[index], windows[index])
        for index in range(count)
    ]  # fmt: skip
    ffn = keys.each("feed_forward_length", count, (0,) * count, least=0)
    outside = [Matrix(matrix_role(one), None, *_rows(one)) for one in outer
               if matrix_role(one) not in ("embedding", "head")]  # fmt: skip
    if not any(one.role == "norm" for one in outside):
        outside.append(Matrix("norm", None, 0, hidden))  # none is stored, so none is counted
    notes = stored.notes
    if not known.every and keys.has("attention.sliding_window") and not known.latent:
        notes = (*notes, f"{architecture}.attention.sliding_window is given and not used: every layer sees all "
                         "positions, as llama.cpp runs this architecture")  # fmt: skip
    model = Model(
        name=_name(stored), family=architecture, layers=count, hidden=hidden, heads=max(heads),
        kv_heads=max(kv_heads), head_dim=_head_dim(keys, hidden, max(heads)), ffn=max(ffn), vocab=vocab,
        tied=not any(one.role == "head" for one in outer),
        max_positions=keys.whole("context_length") if keys.has("context_length") else None,
        stack=same_layers(stack), outside=tuple(outside), notes=notes,
    )  # fmt: skip
    return with_stored(model, stored, file_format(stored), compute_format="fp16")


def _windows(keys: _Keys, known: Attention, count: int) -> list[int]:
    """Each layer's window, 0 where it sees all positions."""
    if not known.every:
        return [0] * count
    window = keys.whole("attention.sliding_window", known.window, least=0)
    marks = keys.metadata.get(f"{keys.start}.attention.sliding_window_pattern")
    if isinstance(marks, list | tuple):
        if len(marks) < count or not all(isinstance(one, bool) for one in marks):
            raise ModelError(f"{keys.start}.attention.sliding_window_pattern must be true or false for each of the "
                             f"{count} layers.")
        return [window if one else 0 for one in marks[:count]]
    every = known.every if marks is None else keys.whole("attention.sliding_window_pattern")
    return [window if every == 1 or index % every < every - 1 else 0 for index in range(count)]


def _layer(
    keys: _Keys, known: Attention, groups: list[Group], hidden: int, experts: tuple[int, int], heads: int,
    kv_heads: int, window: int,
) -> Layer:  # fmt: skip
    matrices = tuple(_matrix(one, *experts) for one in groups)
    roles = {one.role for one in matrices}
    ffn = "experts" if any(one.used is not None for one in matrices) else (
        "dense" if any(role.startswith("ffn") for role in roles) else "none")
    if not heads or not kv_heads:
        return Layer(matrices, attention="none", feed_forward=ffn)
    if known.latent:
        latent, rope = keys.whole("attention.kv_lora_rank"), keys.whole("rope.dimension_count")
        cache = Cache("latent", latent=latent, rope=rope)
        key = next((one.rows for one in matrices if one.role in ("attn_q", "attn_q_b")), 0) // heads
        value = next((one.row for one in matrices if one.role == "attn_output"), 0) // heads
        # Keys and values of the heads may be made from the latent, but for the rotated part of a key.
        return Layer(matrices, cache, attend=attend(heads, latent + rope, latent), expanded=attend(heads, key, value),
                     expand=2 * heads * (max(key - rope, 0) + value) * latent, attention="latent", feed_forward=ffn,
                     heads=heads)  # fmt: skip
    key = _head_dim(keys, hidden, heads)
    value = keys.whole("attention.value_length", key)
    for role, size in (("attn_q", heads * key), ("attn_k", kv_heads * key), ("attn_v", kv_heads * value),
                       ("attn_qkv", (heads + kv_heads) * key + kv_heads * value)):  # fmt: skip
        for one in matrices:
            if one.role == role and one.rows != size:
                raise ModelError(f"{role} of a layer has {one.rows:,} rows, and its keys (heads {heads}, KV heads "
                                 f"{kv_heads}, head sizes {key} and {value}) say {size:,}.")
    kind = "window" if window else "full"
    cache = Cache(kind, kv_heads, key, value, window=window)
    return Layer(matrices, cache, attend=attend(heads, key, value), attention=kind, feed_forward=ffn, heads=heads)


def _head_dim(keys: _Keys, hidden: int, heads: int) -> int:
    if keys.has("attention.key_length"):
        return keys.whole("attention.key_length")
    if not heads or hidden % heads:
        raise ModelError(f'embeddings of {hidden} do not divide among {heads} heads: the key '
                         f'"{keys.start}.attention.key_length" is missing.')
    return hidden // heads


def _rows(one: Group) -> tuple[int, int]:
    """(rows, elements of a row)."""
    row = one.main.shape[-1] if one.main.shape else 1
    return (one.elements or 0) // row if row else 0, row


def _matrix(one: Group, experts: int, used: int) -> Matrix:
    rows, row = _rows(one)
    if not is_expert(one):
        return Matrix(matrix_role(one), None, rows, row)
    count = one.main.shape[0] if len(one.main.shape) > 1 else 1
    if not 1 <= used <= experts or count not in (experts, 1) and len(one.main.shape) == 3:
        raise ModelError(f"{shown(one.name)} holds {count} experts, and the keys say that a token goes through {used} "
                         f"of {experts} (expert_used_count, expert_count).")
    if len(one.main.shape) == 3 or one.role == "bias" and count == experts:
        return Matrix(matrix_role(one), None, rows // count, row, count, used)
    raise ModelError(f"{shown(one.name)} is one expert's tensor: files of before 2024 with a tensor for each expert "
                     "are not counted. Convert the model again.")


def _name(stored: StoredWeights) -> str:
    named = stored.metadata.get("general.name")
    if isinstance(named, str) and named.strip() and named.isprintable() and len(named) < 200:
        return named.strip()
    return shown(Path(stored.path).stem) or "model"


def _some(numbers: tuple[int, ...]) -> str:
    text = ", ".join(str(one) for one in numbers[:6])
    return f"{text}{', ...' if len(numbers) > 6 else ''}" if numbers else "(none)"
