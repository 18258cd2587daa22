"""What attention does in a pass: the positions that new ones see, pairs of both, and FLOP.

A window's layer sees its last positions, a chunk's those since its chunk began, and beside an indexer a token sees
those that the indexer picks, of all positions that it scored. Amounts may be arrays, which broadcast.
"""

from __future__ import annotations

from typing import Any

from offload.models.architecture import Layer
from offload.models.cache import Cache


def seen(cache: Cache, context: Any) -> Any:
    """Positions that one new one sees, itself included, as the last of `context`."""
    if cache.kind == "window":
        return smaller(context, cache.window)
    if cache.kind == "chunk":
        return (context - 1) % cache.window + 1
    if cache.picks:
        return smaller(context, cache.picks)
    return 0 if cache.kind == "none" else context


def before(cache: Cache, past: Any) -> Any:
    """Positions among the first `past` that some of those after them may see."""
    if cache.kind == "chunk":
        return past % cache.window
    return smaller(past, cache.window) if cache.kind == "window" else 0 if cache.kind == "none" else past


def surely_before(cache: Cache, past: Any) -> Any:
    """The same, those that are surely seen: beside an indexer what the first new position picks, without itself."""
    return smaller(past, cache.picks - 1) if cache.picks else before(cache, past)


def pairs(cache: Cache, context: Any) -> Any:
    """Pairs of a position and one that it sees, over the first `context` positions."""
    if cache.kind == "none":
        return 0
    if cache.kind == "chunk":
        size = cache.window
        rest = context % size
        return context // size * (size * (size + 1) // 2) + rest * (rest + 1) // 2
    size = cache.window if cache.kind == "window" else cache.picks
    if size:
        short = smaller(context, size)
        return short * (short + 1) // 2 + (context - short) * size
    return context * (context + 1) // 2


def scored(cache: Cache, context: Any) -> Any:
    """Positions whose index keys one new one, the last of `context`, must compare: none where all are picked anyway."""
    return context * (context > cache.picks)


def scored_pairs(cache: Cache, context: Any) -> Any:
    """`scored`, over the first `context` positions."""
    short = smaller(context, cache.picks)
    return (context * (context + 1) - short * (short + 1)) // 2


def decode_flops(layer: Layer, context: Any, seen_of: Any = None, scored_of: Any = None) -> Any:
    """FLOP of attention of one token as the last of `context`: scores, values, and an indexer's scores. [FLOP]

    seen_of, scored_of : positions that it sees and that an indexer compares, where they are not those of `seen` and
    `scored`.
    """
    looked_at = seen(layer.cache, context) if seen_of is None else seen_of
    if not layer.index:
        return looked_at * layer.attend
    return looked_at * layer.attend + (scored(layer.cache, context) if scored_of is None else scored_of) * layer.index


def prefill_flops(layer: Layer, past: Any, new: Any) -> Any:
    """FLOP of attention of `new` positions of one sequence after `past`, at least. [FLOP]

    Each pair of a new position and one that it sees costs `attend`; an indexer scores all pairs of positions that see
    more than it picks. Latents may be attended to as they are (`attend`), or keys and values of the heads are made from
    them once (`expand`) and cost `expanded` a pair: those of new positions are made anyway, and for an old one it pays
    with enough new ones. Of an indexer's picks as many are taken to be new as can be. The cheaper form is counted, so
    this is a floor of both.
    """
    cache = layer.cache
    both = pairs(cache, past + new) - pairs(cache, past)
    index = (scored_pairs(cache, past + new) - scored_pairs(cache, past)) * layer.index if layer.index else 0
    if not layer.expanded:
        return both * layer.attend + index
    own = smaller(both, new * (new + 1) // 2)
    old = both - own
    return own * layer.expanded + smaller(old * layer.attend, old * layer.expanded + old * layer.expand // new) + index


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two amounts; arrays broadcast."""
    if hasattr(a, "shape") or hasattr(b, "shape"):
        import numpy

        return numpy.minimum(a, b)
    return min(a, b)
