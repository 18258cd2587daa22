"""What layers keep of a sequence: keys and values for each position, states once; exact bytes, per rank and in total.

Layers whose cache grows with every position are told apart from those that stop (a sliding window, a chunk) and from
those that keep a state whatever the length: what grows decides how many positions fit, the rest is paid once for each
sequence. Bytes that are kept, bytes that an engine allocates and bytes that a step reads are three different numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from offload.errors import ModelError, did_you_mean
from offload.models.formats import KV_FORMATS, LATENT_BLOCKS, LATENT_FORMAT, ROPE_BLOCKS, Blocks, kv_name
from offload.models.whole import LARGEST_AMOUNT, ceil_div, check_whole

KINDS = ("full", "window", "chunk", "latent", "none")
GROWING = ("full", "latent")
LARGEST = 10**9  # of a size
MOST_RANKS = 10**6
PER_HEAD = ("int8", "fp8-head")  # one scale for each head: a latent has none


@dataclass(frozen=True, slots=True)
class Cache:
    """What one layer keeps for each position of a sequence.

    kind : "full", "window" (the last `window` positions), "chunk" (those of the current block of `window`), "latent"
    (MLA: one row of `latent` and `rope` elements for all heads), "none". heads, key_dim, value_dim : of keys and
    values. index_dim : an indexer's keys beside it, in a format of their own. picks : positions that a token attends to
    at most, which an indexer picks among all (its layer's or one before); 0 is all. one_side : keys and values are the
    same, stored once. shared : it reads another layer's cache and stores nothing.
    """

    kind: str
    heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int = 0
    latent: int = 0
    rope: int = 0
    index_dim: int = 0
    picks: int = 0
    one_side: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ModelError(f'no kind of cache "{str(self.kind)[:60]}". {did_you_mean(self.kind, KINDS, "Kinds")}')
        needed = {"latent": ("latent",), "none": ()}.get(self.kind, ("heads", "key_dim"))
        needed += ("window",) if self.kind in ("window", "chunk") else ()
        for one in fields(self):
            if one.name not in ("kind", "one_side", "shared"):
                check_whole(f"cache, {one.name}", getattr(self, one.name), one.name in needed, LARGEST)
        if self.one_side and self.value_dim not in (0, self.key_dim):
            raise ModelError(f"keys of {self.key_dim} and values of {self.value_dim} elements are not stored once.")
        if self.picks and self.kind not in GROWING:
            raise ModelError(f"{self.picks} positions are picked of all, and a cache of kind {self.kind} has not all.")
        if "heads" in needed and not self.one_side and not self.value_dim:
            raise ModelError("cache, value_dim is 0; values are stored too, unless keys and values are one side.")

    @property
    def grows(self) -> bool:
        """Whether each new position adds bytes, however long the sequence is."""
        return self.kind in GROWING and not self.shared


@dataclass(frozen=True, slots=True)
class State:
    """What a layer keeps once per sequence: recurrent state and the last inputs of its convolution.

    elements, conv : how many elements; element_bytes, conv_bytes : bytes of each (states are often kept in 32 bits).
    """

    elements: int = 0
    element_bytes: int = 4
    conv: int = 0
    conv_bytes: int = 2

    def __post_init__(self) -> None:
        check_whole("state, elements", self.elements, 0, LARGEST_AMOUNT)
        check_whole("state, conv", self.conv, 0, LARGEST_AMOUNT)
        for name in ("element_bytes", "conv_bytes"):
            check_whole(f"state, {name}", getattr(self, name), 1, 8)


# --- one position in one layer ---


def position_bytes(cache: Cache, format: str = "f16", *, tp: int = 1, index_format: str | None = None) -> int:
    """Bytes of one position in one layer, on each of `tp` tensor-parallel ranks. [B]

    Heads: ceil(heads / tp) x (row of keys + row of values); a rank holds at least one head, so more ranks than heads
    keep copies. A latent (and an indexer's keys) is held by every rank in full. index_format : of an indexer's keys;
    by default the cache's own where that has 16 or 32 bits, otherwise 8 bits with a 32-bit scale for each position.
    Raises ModelError for an unknown format, and for one whose blocks do not divide a row.
    """
    return row_bytes(cache, format, tp=tp) + index_bytes(cache, format, index_format)


def row_bytes(cache: Cache, format: str = "f16", *, tp: int = 1) -> int:
    """The same without an indexer's keys: what attention reads of a position that it attends to. [B]"""
    name = kv_name(format)
    check_whole("ranks (tp)", tp, 1, MOST_RANKS)
    if cache.shared or cache.kind == "none":
        return 0
    if cache.kind == "latent":
        return _latent_bytes(cache, name)
    if name == LATENT_FORMAT:
        raise ModelError(f"KV format {name} is a layout of latents (MLA); heads have none. Use fp8 or fp8-head.")
    sides = (cache.key_dim,) if cache.one_side else (cache.key_dim, cache.value_dim)
    row = sum(_row(name, KV_FORMATS[name], size, "a head") for size in sides)
    return ceil_div(cache.heads, tp) * row


def _latent_bytes(cache: Cache, name: str) -> int:
    if name == LATENT_FORMAT:
        return _row(name, LATENT_BLOCKS, cache.latent, "a latent") + ROPE_BLOCKS.row_bytes(cache.rope)
    if name in PER_HEAD:
        raise ModelError(f"KV format {name} has a scale for each head, and a latent has no heads. Use fp8-latent.")
    return _row(name, KV_FORMATS[name], cache.latent + cache.rope, "a latent")


def index_bytes(cache: Cache, format: str = "f16", index_format: str | None = None) -> int:
    """Bytes of an indexer's key of one position in one layer, on every rank; an indexer reads them all. [B]"""
    if not cache.index_dim or cache.shared or cache.kind == "none":
        return 0
    name = kv_name(format)
    if index_format is None:
        index_format = name if name in ("f16", "bf16", "f32") else "fp8-head"
    chosen = kv_name(index_format)
    if chosen == LATENT_FORMAT:
        raise ModelError(f"{chosen} is a layout of latents; an indexer's keys have none. Use fp8-head.")
    return _row(chosen, KV_FORMATS[chosen], cache.index_dim, "an indexer's key")


def _row(name: str, blocks: Blocks, elements: int, what: str) -> int:
    if elements % blocks.size:
        raise ModelError(
            f"KV format {name} stores blocks of {blocks.size}; {what} of {elements} is no multiple. Use f16."
        )
    return blocks.row_bytes(elements)


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes: int) -> int:
    """Bytes of one position in all layers of a plain decoder: 2 x layers x kv_heads x head_dim x bytes. [B]

    bytes : of an element. Raises ModelError unless all are whole and positive.
    """
    for name, value in (("layers", layers), ("kv_heads", kv_heads), ("head_dim", head_dim), ("bytes", bytes)):
        check_whole(name, value, 1, LARGEST)
    return 2 * layers * kv_heads * head_dim * bytes


# --- positions of one sequence ---


def kept_positions(cache: Cache, context: int) -> int:
    """Positions that a layer keeps of a sequence of `context`, and reads for the next token at most.

    All of them, min(context, window), or min(context, chunk): a chunk's layer reads from one position, just after its
    chunk began, to all of a full chunk. 0 for a layer without a cache; one that shares reads what the other keeps.
    """
    check_whole("context", context, 0, LARGEST_AMOUNT)
    if cache.kind == "none":
        return 0
    return context if cache.kind in GROWING else min(context, cache.window)


def allocated_positions(cache: Cache, context: int, *, block: int = 1, batched: int = 1) -> int:
    """Positions that a paging engine allocates for one sequence in a layer: whole blocks of `block` positions.

    batched : new positions that one step may add (the prefill chunk); 1 in decode. A window keeps min(window - 1 +
    batched, context) positions, and one block more since it may begin inside a block; a chunk min(chunk + batched,
    context). So vLLM counts (v1/kv_cache_interface). A window in blocks of 1 begins inside none.
    """
    check_whole("context", context, 0, LARGEST_AMOUNT)
    check_whole("block", block, 1, LARGEST)
    check_whole("positions of one step", batched, 1, LARGEST_AMOUNT)
    if cache.kind == "none" or cache.shared or not context:
        return 0
    if cache.kind in GROWING:
        return blocks_of(context, block) * block
    if cache.kind == "chunk":
        return blocks_of(min(cache.window + batched, context), block) * block
    return (blocks_of(min(cache.window - 1 + batched, context), block) + (block > 1)) * block


def blocks_of(positions: int, block: int) -> int:
    """Blocks of `block` positions that hold `positions`: the last may be partly empty."""
    return ceil_div(positions, block)


# --- one sequence in all layers ---


@dataclass(frozen=True, slots=True)
class SequenceBytes:
    """What one sequence keeps on one rank [B]; the ranks of one stage hold the same amount each.

    growing : layers whose cache grows with every position. limited : layers with a window or a chunk. states : what
    is kept whatever the length. ranks : how many hold it.
    """

    growing: int
    limited: int
    states: int
    ranks: int = 1

    @property
    def total(self) -> int:
        """On one rank."""
        return self.growing + self.limited + self.states

    @property
    def all_ranks(self) -> int:
        """On all ranks together, copies included."""
        return self.ranks * self.total


def sequence_bytes(
    caches: Iterable[Cache], context: int, format: str = "f16", *, states: Iterable[State] = (), tp: int = 1,
    block: int | None = None, batched: int = 1, index_format: str | None = None,
) -> SequenceBytes:
    """Bytes of one sequence of `context` positions in the layers with `caches` and `states`, on each of `tp` ranks.

    caches : of the layers, or a Counter of them. block : without one, the positions that are kept; with one, what an
    engine that pages by `block` positions allocates, with `batched` positions in a step. Raises ModelError as
    `position_bytes` does.
    """
    growing = limited = 0
    for cache, layers in Counter(caches).items():
        if block is None:
            held = kept_positions(cache, context)
        else:
            held = allocated_positions(cache, context, block=block, batched=batched)
        size = layers * held * position_bytes(cache, format, tp=tp, index_format=index_format)
        growing, limited = (growing + size, limited) if cache.grows else (growing, limited + size)
    return SequenceBytes(growing, limited, states_bytes(states, tp), tp)


def growing_bytes(
    caches: Iterable[Cache], format: str = "f16", *, tp: int = 1, index_format: str | None = None
) -> int:
    """Bytes that each new position adds on a rank, in the layers that grow. [B]"""
    counted = Counter(cache for cache in caches if cache.grows)
    return sum(n * position_bytes(one, format, tp=tp, index_format=index_format) for one, n in counted.items())


def constant_bytes(
    caches: Iterable[Cache], format: str = "f16", *, states: Iterable[State] = (), tp: int = 1,
    index_format: str | None = None,
) -> int:
    """Bytes that one long sequence keeps on a rank besides what grows: full windows and chunks, and states. [B]"""
    counted = Counter(cache for cache in caches if cache.kind in ("window", "chunk") and not cache.shared)
    full = sum(
        n * one.window * position_bytes(one, format, tp=tp, index_format=index_format) for one, n in counted.items()
    )
    return full + states_bytes(states, tp)


def states_bytes(states: Iterable[State], tp: int = 1) -> int:
    """Bytes of a sequence's states on each of `tp` ranks, which share the elements of each layer evenly. [B]"""
    check_whole("ranks (tp)", tp, 1, MOST_RANKS)
    return sum(
        layers * (ceil_div(one.elements, tp) * one.element_bytes + ceil_div(one.conv, tp) * one.conv_bytes)
        for one, layers in Counter(states).items()
    )


def read_bytes(
    caches: Iterable[Cache], context: int, format: str = "f16", *, states: Iterable[State] = (), tp: int = 1,
    index_format: str | None = None,
) -> int:
    """Bytes that one decode step reads of one sequence on a rank: each layer what it attends to, states once. [B]

    A layer that shares another's cache reads it again. Of a chunk the most, a full one (`kept_positions`). Beside an
    indexer: the rows that it picks, and its keys of all positions, where it has to pick.
    """
    size = 0
    for cache, layers in Counter(caches).items():
        own = replace(cache, shared=False)
        kept = kept_positions(own, context)
        rows = min(kept, own.picks) if own.picks else kept
        scored = kept if kept > own.picks else 0
        size += layers * (rows * row_bytes(own, format, tp=tp) + scored * index_bytes(own, format, index_format))
    return size + states_bytes(states, tp)
