"""What one pass counts of one layer, whatever its kind: bytes of weights, cache and state, and FLOP.

Weights move once a step whatever the batch, caches with each sequence. FLOP are 2 for each weight and new position, and
those of attention for each pair of a new position and one that it sees. Where tokens choose experts, the expected
number of distinct ones is touched (any of them alike), and at least those of one token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offload.models import Cache, Layer, layer_flops_of
from offload.models.cache import position_bytes, states_bytes


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a pass counts of one layer: bytes [B] and FLOP.

    size : its weights as they lie there. touched, surely : what is read of them, expected and at least (experts that
    tokens choose). read : KV that attention reads. written, stored : KV that is added, and that it has room for.
    state : recurrent state of all sequences.
    """

    size: int
    touched: Any
    surely: Any
    read: Any
    written: Any
    stored: Any
    state: Any
    flops: Any


@dataclass(frozen=True, slots=True)
class Positions:
    """New positions of each of `batch` sequences after `past` ones.

    shortest : of a request's contexts, whose mean a decode step stands for; None where it is one step.
    """

    batch: Any
    new: Any
    past: Any
    room: Any
    decode: bool
    shortest: Any

    def amounts(self, layer: Layer, size: int, expert: int, format: str, in_flight: int, ranks: int) -> Amounts:
        """What the pass counts of a layer of `size` bytes whose experts have `expert` each; KV of all ranks."""
        cache, batch, new, past = layer.cache, self.batch, self.new, self.past
        kept = ranks * position_bytes(replace(cache, shared=False), format, tp=ranks) if cache.kind != "none" else 0
        own = 0 if cache.shared else kept
        touched, surely = size, size
        if layer.experts is not None:
            count, used = layer.experts
            distinct = count * (1 - (1 - used / count) ** (batch * new))  # each token takes any of them alike
            rest = size - count * expert
            touched, surely = rest + distinct * expert, rest + used * expert
        read = _least_seen(cache, past + 1, self.shortest) if self.decode else _before(cache, past)
        state = batch * in_flight * states_bytes((layer.state,))
        pairs = _pairs(cache, past + new) - _pairs(cache, past) if not self.decode else read
        flops = batch * (new * layer_flops_of(layer) + pairs * layer.attend)
        return Amounts(size, touched, surely, batch * read * kept, batch * new * own,
                        batch * in_flight * _room(cache, self.room) * own, state, flops)


# Positions that a layer's attention sees; a window's last ones, those of the present chunk.


def _seen(cache: Cache, context: Any) -> Any:
    """That one new position sees, itself included, as the last of `context`."""
    if cache.kind == "window":
        return smaller(context, cache.window)
    if cache.kind == "chunk":
        return (context - 1) % cache.window + 1
    return 0 if cache.kind == "none" else context


def _least_seen(cache: Cache, context: Any, shortest: Any) -> Any:
    """The same, or no more than its mean over a request's contexts: what a window or a chunk sees is not convex."""
    if shortest is None or cache.kind not in ("window", "chunk"):
        return _seen(cache, context)
    return 1 if cache.kind == "chunk" else _seen(cache, shortest)


def _before(cache: Cache, past: Any) -> Any:
    """Of those that are in the cache before a prompt's first new position."""
    if cache.kind == "chunk":
        return past % cache.window
    return smaller(past, cache.window) if cache.kind == "window" else 0 if cache.kind == "none" else past


def _pairs(cache: Cache, context: Any) -> Any:
    """Pairs of a position and one that it sees, over the first `context` positions."""
    size = cache.window
    if cache.kind == "none":
        return 0
    if cache.kind == "window":
        short = smaller(context, size)
        return short * (short + 1) // 2 + (context - short) * size
    if cache.kind == "chunk":
        rest = context % size
        return context // size * (size * (size + 1) // 2) + rest * (rest + 1) // 2
    return context * (context + 1) // 2


def _room(cache: Cache, room: Any) -> Any:
    """Positions that one sequence keeps."""
    return smaller(room, cache.window) if cache.kind in ("window", "chunk") else room


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two amounts; arrays broadcast."""
    if hasattr(a, "shape") or hasattr(b, "shape"):
        import numpy

        return numpy.minimum(a, b)
    return min(a, b)
