"""One layer of a GGUF file: what its tensors are and what it keeps for a position and for a sequence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.models import Cache, Layer, Matrix
from offload.models.cache import State
from offload.models.families.fields import given
from offload.models.families.parts import attend
from offload.models.families.recurrent import DELTA_FLOP, MAMBA_FLOP
from offload.readers.file_sizes import is_expert, matrix_role
from offload.readers.gguf_architectures import Attention
from offload.readers.stored import Group

LARGEST = 10**9
CONVOLUTION = re.compile(r"\.(?:ssm_conv1d(?:_[qkv])?|shortconv\.conv)\.weight$")
MAKING = {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_kv_a"}  # what attention keeps is made by these
STATE_BYTES = 4  # llama.cpp keeps a state and a convolution's inputs in F32


class Keys:
    """A file's keys below its architecture's name, read strictly. read : those that were asked for."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata, self.start = metadata, architecture
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """A value as it stands."""
        self.read.add(key)
        return self.metadata.get(f"{self.start}.{key}", default)

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number. Raises ModelError where it is missing without a default, or none."""
        value = self.get(key, default)
        if value is None:
            raise ModelError(f'the key "{self.start}.{key}" is missing.')
        if type(value) is not int or not least <= value <= LARGEST:
            raise ModelError(f"{self.start}.{key} is {given(value)}; it must be a whole number from {least} to "
                             f"{LARGEST:,}.")
        return value

    def has(self, key: str) -> bool:
        return self.get(key) is not None

    def each(self, key: str, count: int, default: tuple[int, ...] | None = None, least: int = 1) -> tuple[int, ...]:
        """One number for each layer: a list, or one for all."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list | tuple):
            return (self.whole(key, least=least),) * count
        lengths = (count, self.whole("block_count", count))  # with or without layers of multi-token prediction
        if len(value) not in lengths or any(type(one) is not int or not 0 <= one <= LARGEST for one in value):
            raise ModelError(f"{self.start}.{key} is a list of {len(value):,}; it must be a whole number for each of "
                             f"the {count} layers.")
        return tuple(value[:count])


@dataclass(frozen=True, slots=True)
class Place:
    """What a file's keys say of one layer. window : 0 where it sees all positions. shared : it reads an earlier one's
    cache.
    """

    number: int
    heads: int
    kv_heads: int
    window: int = 0
    shared: bool = False


def windows_of(keys: Keys, known: Attention, count: int) -> list[int]:
    """Each layer's window, 0 where it sees all positions. Raises ModelError for keys that are missing or wrong."""
    if not (known.every or known.marked) or known.only not in (0, count):
        return [0] * count
    window = keys.whole("attention.sliding_window", known.window, least=0)
    marks = keys.get("attention.sliding_window_pattern")
    if isinstance(marks, list | tuple):
        if len(marks) not in (count, keys.whole("block_count", count)) or any(one not in (0, 1) for one in marks):
            raise ModelError(f"{keys.start}.attention.sliding_window_pattern must be true or false for each of the "
                             f"{count} layers.")
        return [window if one else 0 for one in marks[:count]]
    if known.marked and marks is None:
        raise ModelError(f'the key "{keys.start}.attention.sliding_window_pattern" is missing, so which layers have '
                         "a window is not known.")
    every = known.every if marks is None else keys.whole("attention.sliding_window_pattern")
    if every == 1:
        return [window] * count
    last = 0 if known.dense_first else every - 1
    return [0 if index % every == last else window for index in range(count)]


def shared_from(keys: Keys, known: Attention, count: int, windows: list[int]) -> int:
    """The first layer that reads an earlier layer's cache; as many as layers where none does."""
    if not known.shared:
        return count
    shared = keys.whole("attention.shared_kv_layers", None if known.shared == "must" else 0, least=0)
    first = count - shared
    if first < 0 or {bool(one) for one in windows[first:]} - {bool(one) for one in windows[:first]}:
        raise ModelError(f"{keys.start}.attention.shared_kv_layers is {shared}: a layer that reads another's cache has "
                         "none of its kind before it.")
    return first


def is_idle(group: Group, first_shared: int) -> bool:
    """Whether a tensor is stored and not run: it would make keys or values in a layer that reads another's cache."""
    return group.layer is not None and group.layer >= first_shared and (
        group.role in ("attn_k", "attn_v") or "attn_k_norm" in group.name)  # fmt: skip


def layer_of(
    keys: Keys, known: Attention, groups: list[Group], hidden: int, experts: tuple[int, int], place: Place
) -> Layer:
    """A layer from its tensors. experts : how many there are and how many a token goes through.

    Raises ModelError where keys are missing, and where tensors contradict them.
    """
    matrices = tuple(matrix_of(one, *experts) for one in groups)
    state, mix = _state(keys, known, groups, hidden, place.number)
    if state is not None:  # a recurrent layer's input, where it has the name of an attention's
        inside = {"attn_qkv": "ssm_in", "attn_gate": "ssm_gate"}
        if not any(one.role == "attn_output" for one in matrices):
            matrices = tuple(replace(one, role=inside.get(one.role, one.role)) for one in matrices)
    roles = {one.role for one in matrices}
    ffn = "experts" if any(one.used is not None for one in matrices) else (
        "dense" if any(role.startswith("ffn") for role in roles) else "none")
    attends = place.heads and place.kv_heads and (state is None or "attn_output" in roles)
    kind = {"delta": "linear", "kda": "linear"}.get(known.state, "ssm")
    if not attends:
        if state is None and (found := sorted(roles & MAKING)):
            raise ModelError(f"layer {place.number} holds {found[0]}, and the keys say that it has no heads "
                             "(attention.head_count, attention.head_count_kv).")
        return Layer(matrices, state=state or State(), mix=mix, attention="none" if state is None else kind,
                     feed_forward=ffn)  # fmt: skip
    if not any(role.startswith("attn") for role in roles):
        raise ModelError(f"layer {place.number} holds no tensors of attention, and the keys say {place.heads} heads.")
    cache, flops = (_latent if known.latent else _heads)(keys, known, matrices, hidden, place)
    attention = {"latent": "latent", "window": "window", "chunk": "chunk"}.get(cache.kind, "full")
    return Layer(matrices, cache, state or State(), **flops, mix=mix, attention=attention, feed_forward=ffn,
                 heads=place.heads)  # fmt: skip


def _latent(keys: Keys, known: Attention, matrices: tuple[Matrix, ...], hidden: int, place: Place
            ) -> tuple[Cache, dict[str, int]]:  # fmt: skip
    """One short vector for all heads; beside it an indexer's key, where there is an indexer. And FLOP of a `Layer`."""
    latent, rope = keys.whole("attention.kv_lora_rank"), keys.whole("rope.dimension_count")
    index_heads = index = picks = 0
    if any(one.role == "index_q" for one in matrices):
        index_heads = keys.whole("attention.indexer.head_count")
        index = keys.whole("attention.indexer.key_length")
        picks = keys.whole("attention.indexer.top_k")
    cache = Cache("latent", latent=latent, rope=rope, index_dim=index, picks=picks)
    heads = place.heads
    key = next((one.rows for one in matrices if one.role in ("attn_q", "attn_q_b")), 0) // heads
    value = next((one.row for one in matrices if one.role == "attn_output"), 0) // heads
    # Keys and values of the heads may be made from the latent, but for the rotated part of a key.
    return cache, {"attend": attend(heads, latent + rope, latent), "index": 2 * index_heads * index,
                   "expanded": attend(heads, key, value),
                   "expand": 2 * heads * (max(key - rope, 0) + value) * latent}  # fmt: skip


def _heads(keys: Keys, known: Attention, matrices: tuple[Matrix, ...], hidden: int, place: Place
           ) -> tuple[Cache, dict[str, int]]:  # fmt: skip
    """Keys and values of every KV head; of a size of their own in layers with a window, where the keys say so."""
    heads, kv_heads = place.heads, place.kv_heads
    key = head_dim(keys, hidden, heads)
    made = next((one.row for one in matrices if one.role == "attn_output"), 0)  # of all heads' values
    value = keys.whole("attention.value_length", made // heads if made and made % heads == 0 else key)
    if place.window:
        key, value = keys.whole("attention.key_length_swa", key), keys.whole("attention.value_length_swa", value)
    rows = {"attn_q": heads * key * (2 if known.gated else 1), "attn_k": kv_heads * key, "attn_v": kv_heads * value,
            "attn_qkv": (heads + kv_heads) * key + kv_heads * value}  # fmt: skip
    for one in matrices:
        if one.rows != rows.get(one.role, one.rows):
            raise ModelError(f"{one.role} of a layer has {one.rows:,} rows, and its keys (heads {heads}, KV heads "
                             f"{kv_heads}, head sizes {key} and {value}) say {rows[one.role]:,}.")
    kind = ("chunk" if known.chunk else "window") if place.window else "full"
    cache = Cache(kind, kv_heads, key, value, window=place.window, shared=place.shared)
    return cache, {"attend": attend(heads, key, value)}


def _state(keys: Keys, known: Attention, groups: list[Group], hidden: int, number: int) -> tuple[State | None, int]:
    """What a layer with a convolution keeps for a sequence, and the FLOP of its update; None and 0 for another.

    Sizes are those of llama.cpp (n_embd_r and n_embd_s of src/llama-hparams.cpp); a convolution keeps kernel - 1 inputs
    of each of its channels.
    """
    found = [one for one in groups if CONVOLUTION.search(one.name)]
    if not found:
        return None, 0
    if not known.state:
        raise ModelError(f"layer {number} holds {shown(found[0].name)}, and {keys.start} is not known to have a "
                         "recurrent state.")
    sizes = [rows_of(one) for one in found]
    channels, kernel = sum(rows for rows, _ in sizes), sizes[0][1]
    named = "shortconv.l_cache" if known.state == "conv" else "ssm.conv_kernel"
    if keys.whole(named) != kernel or any(row != kernel for _, row in sizes):
        raise ModelError(f"{keys.start}.{named} is {keys.whole(named)}, and {shown(found[0].name)} has a kernel of "
                         f"{kernel}.")
    conv = channels * (kernel - 1)
    if known.state == "conv":
        return State(0, STATE_BYTES, conv, STATE_BYTES), 0
    if known.state == "kda":
        size = keys.whole("kda.head_dim")
        if channels % (3 * size):
            raise ModelError(f"{keys.start}.kda.head_dim is {size}, and the convolutions of layer {number} have "
                             f"{channels:,} channels, no multiple of 3 x {size}.")
        elements = channels // 3 * size
        return State(elements, STATE_BYTES, conv, STATE_BYTES), DELTA_FLOP * elements
    inner, size = keys.whole("ssm.inner_size"), keys.whole("ssm.state_size")
    wide = inner + 2 * keys.whole("ssm.group_count", 0, least=0) * size
    if channels not in (inner, wide):
        raise ModelError(f"{shown(found[0].name)} has {channels:,} channels, and {keys.start}.ssm.inner_size, "
                         f"group_count and state_size say {wide:,}.")
    elements = inner * size
    flop = DELTA_FLOP if known.state == "delta" else MAMBA_FLOP
    return State(elements, STATE_BYTES, conv, STATE_BYTES), flop * elements


def head_dim(keys: Keys, hidden: int, heads: int) -> int:
    """Elements of a key's head."""
    if keys.has("attention.key_length"):
        return keys.whole("attention.key_length")
    if not heads or hidden % heads:
        raise ModelError(f'embeddings of {hidden} do not divide among {heads} heads: the key '
                         f'"{keys.start}.attention.key_length" is missing.')
    return hidden // heads


def rows_of(one: Group) -> tuple[int, int]:
    """(rows, elements of a row)."""
    row = one.main.shape[-1] if one.main.shape else 1
    return (one.elements or 0) // row if row else 0, row


def matrix_of(one: Group, experts: int, used: int) -> Matrix:
    """A tensor as models name it; of experts one, with how many there are. Raises ModelError."""
    rows, row = rows_of(one)
    if not is_expert(one):
        return Matrix(matrix_role(one), None, rows, row)
    shape = one.main.dimensions
    count = shape[0] if len(shape) > 1 else 1
    if not 1 <= used <= experts or count not in (experts, 1) and len(shape) == 3:
        raise ModelError(f"{shown(one.name)} holds {count} experts, and the keys say that a token goes through {used} "
                         f"of {experts} (expert_used_count, expert_count).")
    if len(shape) == 3 or one.role == "bias" and count == experts:
        return Matrix(matrix_role(one), None, rows // count, row, count, used)
    raise ModelError(f"{shown(one.name)} is one expert's tensor: files of before 2024 with a tensor for each expert "
                     "are not counted. Convert the model again.")
