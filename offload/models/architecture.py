"""A decoder as its tensors and as what its layers keep, layer by layer.

Most decoders repeat one dense layer: attention with grouped KV heads and a gated feed-forward. Others have layers of
several kinds: experts, windows, latent or recurrent attention. They are given as a `stack`, one `Layer` for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from offload.errors import ModelError
from offload.models.cache import Cache, State
from offload.models.whole import check_whole

LARGEST = 10**9  # of a size
MOST_LAYERS = 500  # each is laid out by itself, in every variant: about 10 ms a layer; models have up to about 130
CORRECTION = "router_correction"  # added to the score of each expert; published checkpoints keep it in 32 bits
VECTORS = ("norm", "bias", "scalar", CORRECTION)
TABLES = ("positions", "per_layer_embedding")  # besides the embedding: a token takes one row, and none is multiplied by
STATED = "stated"  # the family, and the format, of a model that is given as blocks of bytes and FLOP
UNEMBED = "unembed"  # makes the head's input: as the head, it runs for sampled positions alone


@dataclass(frozen=True, slots=True)
class Matrix:
    """One tensor: its role ("attn_v", "ffn_down", "norm", "bias", "embedding", "head"), layer, rows and row length.

    A matrix has `rows` rows of `row` elements that lie together; a norm or a bias has one row. copies : alike ones
    (experts), of which one token goes through `used`; None is all of them.
    """

    role: str
    layer: int | None
    rows: int
    row: int
    copies: int = 1
    used: int | None = None

    @property
    def parameters(self) -> int:
        return self.rows * self.row * self.copies

    @property
    def active(self) -> int:
        """Parameters that one token goes through."""
        return self.rows * self.row * (self.copies if self.used is None else self.used)

    @property
    def is_matrix(self) -> bool:
        """Whether arithmetic multiplies by it (norms and biases are vectors)."""
        return self.role not in VECTORS


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. Its matrices have no layer number of their own.

    cache, state : what it keeps for each position and for each sequence. attend : FLOP of one token for each position
    that it attends to. index : those of its indexer for each position, attended to or not. expanded, expand : of latent
    attention, FLOP of such a pair where keys and values of all heads were made from the latent, and of making them for
    one position (0: it has no such form). mix : FLOP of one token that no matrix and no position accounts for (a
    recurrent state's update). attention : "full", "window", "chunk", "latent", "linear", "ssm" or "none".
    feed_forward : "dense", "experts" or "none". heads : query heads.
    """

    matrices: tuple[Matrix, ...]
    cache: Cache = Cache("none")
    state: State = State()
    attend: int = 0
    index: int = 0
    expanded: int = 0
    expand: int = 0
    mix: float = 0
    attention: str = "full"
    feed_forward: str = "dense"
    heads: int = 0

    @property
    def parameters(self) -> int:
        return sum(one.parameters for one in self.matrices)

    @property
    def active(self) -> int:
        """Parameters that one token goes through."""
        return sum(one.active for one in self.matrices)

    @property
    def experts(self) -> tuple[int, int] | None:
        """(experts, experts that one token goes through); None where there are none."""
        return next(((one.copies, one.used) for one in self.matrices if one.used is not None), None)


@dataclass(frozen=True, slots=True)
class Quantised:
    """How a quantised checkpoint stores its weights: a weight format, modules that stay 16-bit besides those that the
    format leaves so, and the format of the KV cache that it is made for (None: it says nothing).
    """

    format: str
    skip: tuple[str, ...] = ()
    kv: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder. Without a `stack` every layer is dense, with grouped-query attention and a gated feed-forward.

    hidden, heads, kv_heads, head_dim, ffn, vocab : sizes (with a stack: the largest of its layers'). tied : the head is
    the embedding. qkv_bias, out_bias, mlp_bias : biases on the projections. qk_norm : norms of head size on queries and
    keys. dtype : the number format that the model's file states ("bfloat16"), or None. max_positions : the longest
    context that it states, or None. quantised : how its checkpoint stores the weights, where a config says so. stack :
    one Layer for each of `layers`. outside : tensors besides layers, embedding, final norm and head (position
    embeddings). further : layers that are stored and not run in a plain decode (multi-token prediction, a vision
    tower). notes : what a reader should know of how it was read. stored : the `Weights` of the file that it was read
    from, None where it was read from no tensors.
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
    quantised: Quantised | None = None
    stack: tuple[Layer, ...] = ()
    outside: tuple[Matrix, ...] = ()
    further: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()
    stored: Any = None

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"):
            least = 0 if self.stack and key in ("heads", "kv_heads", "head_dim", "ffn") else 1
            least = 0 if self.family == STATED and key != "layers" else least
            check_whole(f"{self.name}: {key}", getattr(self, key), least, LARGEST)
        if self.layers > MOST_LAYERS:
            raise ModelError(f"{self.name}: {self.layers:,} layers are more than the {MOST_LAYERS} that are laid out. "
                             "A plan by hand takes more repetitions.")
        if self.max_positions is not None:
            check_whole(f"{self.name}: max_positions", self.max_positions, 1, LARGEST)
        if self.stack and len(self.stack) != self.layers:
            raise ModelError(f"{self.name}: {len(self.stack)} layers are described, and it has {self.layers}.")
        if not self.stack and self.heads % self.kv_heads:
            raise ModelError(f"{self.name}: {self.heads} heads do not share {self.kv_heads} KV heads evenly.")

    @property
    def parameters(self) -> int:
        """All parameters of what is run; a tied head is counted once."""
        return sum(one.parameters for one in layers_of(self)) + sum(one.parameters for one in _outside(self))

    @property
    def parameters_stored(self) -> int:
        """All parameters with what is stored and not run."""
        return self.parameters + sum(one.parameters for one in self.further)

    @property
    def parameters_active(self) -> int:
        """Parameters that one token goes through; of the embedding only its row, of a tied head all of it."""
        outside = sum(one.active for one in _outside(self) if one.role != "embedding" or self.tied)
        return sum(one.active for one in layers_of(self)) + outside + (0 if self.tied else self.hidden)


def dense_layer(model: Model) -> Layer:
    """The layer that a model without a stack repeats."""
    wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
    found = [
        Matrix("attn_q", None, wide, model.hidden),
        Matrix("attn_k", None, narrow, model.hidden),
        Matrix("attn_v", None, narrow, model.hidden),
        Matrix("attn_output", None, model.hidden, wide),
        Matrix("ffn_gate", None, model.ffn, model.hidden),
        Matrix("ffn_up", None, model.ffn, model.hidden),
        Matrix("ffn_down", None, model.hidden, model.ffn),
        Matrix("norm", None, 1, model.hidden),
        Matrix("norm", None, 1, model.hidden),
    ]
    if model.qkv_bias:
        found += [Matrix("bias", None, 1, size) for size in (wide, narrow, narrow)]
    if model.out_bias:
        found.append(Matrix("bias", None, 1, model.hidden))
    if model.mlp_bias:
        found += [Matrix("bias", None, 1, size) for size in (model.ffn, model.ffn, model.hidden)]
    if model.qk_norm:
        found += [Matrix("norm", None, 1, model.head_dim) for _ in range(2)]
    cache = Cache("full", model.kv_heads, model.head_dim, model.head_dim)
    return Layer(tuple(found), cache, attend=4 * model.heads * model.head_dim, heads=model.heads)


@lru_cache(maxsize=64)
def layers_of(model: Model) -> tuple[Layer, ...]:
    """The layers of a model in order."""
    return model.stack or (dense_layer(model),) * model.layers


def layer_tensors(model: Model, layer: int = 0) -> list[Matrix]:
    """The tensors of one decoder layer."""
    return [replace(one, layer=layer) for one in layers_of(model)[layer].matrices]


def _outside(model: Model) -> list[Matrix]:
    found = [Matrix("embedding", None, model.vocab, model.hidden), *model.outside]
    if not any(one.role == "norm" for one in model.outside):
        found.append(Matrix("norm", None, 1, model.hidden))
    return found if model.tied else [*found, Matrix("head", None, model.vocab, model.hidden)]


def tensors(model: Model) -> Iterator[Matrix]:
    """Every tensor of a model, layer by layer, then embedding, final norm and head (none where it is tied)."""
    for layer in range(model.layers):
        yield from layer_tensors(model, layer)
    yield from _outside(model)


def layer_flops(model: Model, layer: int = 0) -> float:
    """FLOP per token of one layer (see `layer_flops_of`). [FLOP]"""
    return layer_flops_of(layers_of(model)[layer])


def layer_flops_of(layer: Layer) -> float:
    """FLOP per token of a layer's matrices (a multiply and an add for each weight) and of its own mixing. [FLOP]"""
    return 2 * sum(matrix.active for matrix in layer.matrices if matrix.is_matrix) + layer.mix


def attention_flops(model: Model, layer: int = 0) -> int:
    """FLOP per token and position attended to in one layer: 2 each for scores and values. [FLOP]

    4 x heads x head size where keys and values are of one size; latents as they are kept (absorbed form). An indexer's
    are apart (`Layer.index`), and a prefill may be cheaper (`attention.prefill_flops`).
    """
    return layers_of(model)[layer].attend


def outside_flops(model: Model) -> int:
    """FLOP per token of matrices outside of layers that run for every position, 2 for each weight. [FLOP]"""
    return 2 * sum(one.active for one in model.outside if one.is_matrix and one.role not in (*TABLES, UNEMBED))


def head_flops(model: Model) -> int:
    """FLOP per token of the output head, 2 x hidden x vocabulary, and of what makes its input. [FLOP]"""
    before = sum(one.active for one in model.outside if one.role == UNEMBED)
    return 2 * (model.hidden * model.vocab + before)
