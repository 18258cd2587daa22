"""A dense decoder as its tensors: attention with grouped KV heads, a gated feed-forward, embedding and head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offload.errors import ModelError

LARGEST = 10**9  # of a size
MOST_LAYERS = 500  # each is laid out by itself, in every variant: about 10 ms a layer; models have up to about 130


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raises ModelError unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"{name} is {str(value)[:60]!r}; it must be a whole number.")
    if not least <= value <= most:  # a number may be too long to be written out
        shown = f"{value:,}" if abs(value) < 10**30 else "far too large" if value > 0 else "negative"
        raise ModelError(f"{name} is {shown}; it must be a whole number from {least} to {most:,}.")


@dataclass(frozen=True, slots=True)
class Model:
    """A dense decoder with grouped-query or multi-head attention and a gated feed-forward (three matrices).

    hidden, heads, kv_heads, head_dim, ffn, vocab : sizes. tied : the head is the embedding. qkv_bias, out_bias,
    mlp_bias : biases on the projections. qk_norm : norms of head size on queries and keys. dtype : the number format
    that the model's file states ("bfloat16"), or None. max_positions : the longest context that it states, or None.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    dtype: str | None = None
    max_positions: int | None = None

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"):
            check_whole(f"{self.name}: {key}", getattr(self, key), 1, LARGEST)
        if self.layers > MOST_LAYERS:
            raise ModelError(f"{self.name}: {self.layers:,} layers are more than the {MOST_LAYERS} that are laid out. "
                             "A plan by hand takes more repetitions.")
        if self.max_positions is not None:
            check_whole(f"{self.name}: max_positions", self.max_positions, 1, LARGEST)
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.name}: {self.heads} heads do not share {self.kv_heads} KV heads evenly.")

    @property
    def parameters(self) -> int:
        """All parameters; a tied head is counted once."""
        outside = sum(one.parameters for one in _outside(self))
        return self.layers * sum(one.parameters for one in layer_tensors(self)) + outside


@dataclass(frozen=True, slots=True)
class Matrix:
    """One tensor: its role ("attn_v", "ffn_down", "norm", "bias", "embedding", "head"), layer, rows and row length.

    A matrix has `rows` rows of `row` elements that lie together; a norm or a bias has one row.
    """

    role: str
    layer: int | None
    rows: int
    row: int

    @property
    def parameters(self) -> int:
        return self.rows * self.row

    @property
    def is_matrix(self) -> bool:
        """Whether arithmetic multiplies by it (norms and biases are vectors)."""
        return self.role not in ("norm", "bias")


def layer_tensors(model: Model, layer: int = 0) -> list[Matrix]:
    """The tensors of one decoder layer."""
    wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
    found = [
        Matrix("attn_q", layer, wide, model.hidden),
        Matrix("attn_k", layer, narrow, model.hidden),
        Matrix("attn_v", layer, narrow, model.hidden),
        Matrix("attn_output", layer, model.hidden, wide),
        Matrix("ffn_gate", layer, model.ffn, model.hidden),
        Matrix("ffn_up", layer, model.ffn, model.hidden),
        Matrix("ffn_down", layer, model.hidden, model.ffn),
        Matrix("norm", layer, 1, model.hidden),
        Matrix("norm", layer, 1, model.hidden),
    ]
    if model.qkv_bias:
        found += [Matrix("bias", layer, 1, size) for size in (wide, narrow, narrow)]
    if model.out_bias:
        found.append(Matrix("bias", layer, 1, model.hidden))
    if model.mlp_bias:
        found += [Matrix("bias", layer, 1, size) for size in (model.ffn, model.ffn, model.hidden)]
    if model.qk_norm:
        found += [Matrix("norm", layer, 1, model.head_dim) for _ in range(2)]
    return found


def _outside(model: Model) -> list[Matrix]:
    found = [Matrix("embedding", None, model.vocab, model.hidden), Matrix("norm", None, 1, model.hidden)]
    return found if model.tied else [*found, Matrix("head", None, model.vocab, model.hidden)]


def tensors(model: Model) -> Iterator[Matrix]:
    """Every tensor of a model, layer by layer, then embedding, final norm and head (none where it is tied)."""
    for layer in range(model.layers):
        yield from layer_tensors(model, layer)
    yield from _outside(model)


def layer_flops(model: Model) -> int:
    """FLOP per token of one layer's matrices: a multiply and an add for each weight. [FLOP]"""
    return 2 * sum(one.parameters for one in layer_tensors(model) if one.is_matrix)


def attention_flops(model: Model) -> int:
    """FLOP per token, layer and position attended to: 2 each for scores and values, 4 x heads x head size. [FLOP]"""
    return 4 * model.heads * model.head_dim


def head_flops(model: Model) -> int:
    """FLOP per token of the output head: 2 x hidden x vocabulary. [FLOP]"""
    return 2 * model.hidden * model.vocab
