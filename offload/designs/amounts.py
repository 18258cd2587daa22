"""What one pass counts of one layer, whatever its kind: bytes of weights, cache and state, and FLOP.

Weights move once a step whatever the batch, caches with each sequence. FLOP are 2 for each weight and new position, and
those of attention for each pair of a new position and one that it sees. Where tokens choose experts, the expected
number of distinct ones is touched (`routing`), and at least those of one token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offload.designs.routing import UNIFORM, Routing
from offload.models import Cache, Layer, layer_flops_of
from offload.models.attention import before, decode_flops, prefill_flops, scored, seen, smaller, surely_before
from offload.models.cache import index_bytes, row_bytes, states_bytes


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a pass counts of one layer: bytes [B] and FLOP.

    size : its weights as they lie there. touched, surely : what is read of them, expected and at least (experts that
    tokens choose). read, surely_read : KV that attention reads, expected and at least (positions that an indexer picks
    for a prompt). written, stored : KV that is added, and that it has room for.
    state : recurrent state of all sequences. attend : FLOP of attention itself, among `flops`.
    """

    size: Any
    touched: Any
    surely: Any
    read: Any
    surely_read: Any
    written: Any
    stored: Any
    state: Any
    flops: Any
    attend: Any = 0

    def times(self, count: int) -> Amounts:
        """The same of so many replicas."""
        return self if count == 1 else Amounts(*(count * getattr(self, name) for name in self.__slots__))


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
    routing: Routing = UNIFORM

    def amounts(self, layer: Layer, size: int, expert: int, format: str, in_flight: int, ranks: int) -> Amounts:
        """What the pass counts of a layer of `size` bytes whose experts have `expert` each; KV of all ranks."""
        cache, batch, new, past = layer.cache, self.batch, self.new, self.past
        kept = replace(cache, shared=False)
        row, key = ranks * row_bytes(kept, format, tp=ranks), ranks * index_bytes(kept, format)
        own = 0 if cache.shared else row + key
        touched, surely = size, size
        if layer.experts is not None:
            count, used = layer.experts
            distinct = self.routing.distinct(count, used, batch * new)
            rest = size - count * expert
            touched, surely = rest + distinct * expert, rest + used * expert
        if self.decode:
            least = rows = _least_seen(cache, past + 1, self.shortest)
            keys = _least_scored(cache, past + 1, self.shortest)
            attention = decode_flops(layer, past + 1, rows, keys)
        else:
            past = self._least_past(cache)
            rows, least = before(cache, past), surely_before(cache, past)
            keys = past * (past + new > cache.picks)
            attention = prefill_flops(layer, past, new)
        read, surely_read = (batch * (one * row + keys * key) for one in (rows, least))
        state = batch * in_flight * states_bytes((layer.state,))
        flops = batch * (new * layer_flops_of(layer) + attention)
        return Amounts(size, touched, surely, read, surely_read, batch * new * own,
                        batch * in_flight * _room(cache, self.room) * own, state, flops, batch * attention)

    def _least_past(self, cache: Cache) -> Any:
        """Positions before the new ones, or some of which no more is seen than on the mean over a request's rounds."""
        if self.shortest is None or not (cache.kind in ("window", "chunk") or cache.picks):
            return self.past
        return 0 if cache.kind == "chunk" else self.shortest - 1


def _least_seen(cache: Cache, context: Any, shortest: Any) -> Any:
    """Positions that a new one sees, or no more than their mean over a request's contexts.

    What a window, a chunk or an indexer's picks see is not convex in the context.
    """
    if shortest is None or not (cache.kind in ("window", "chunk") or cache.picks):
        return seen(cache, context)
    return 1 if cache.kind == "chunk" else seen(cache, shortest)


def _least_scored(cache: Cache, context: Any, shortest: Any) -> Any:
    """Positions whose index keys a new one compares, or no more than their mean over a request's contexts."""
    if shortest is None or shortest > cache.picks:
        return scored(cache, context)
    return (context - cache.picks) * (context > cache.picks)  # convex, and never more


def _room(cache: Cache, room: Any) -> Any:
    """Positions that one sequence keeps."""
    return smaller(room, cache.window) if cache.kind in ("window", "chunk") else room
