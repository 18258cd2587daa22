"""What a layer keeps: for each position of a sequence (KV cache), and once for a sequence (recurrent state)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """What one layer keeps for each position of a sequence.

    kind : "full", "window", "chunk", "latent" (MLA) or "none". window : positions, of window and chunk. latent, rope :
    sizes of a latent cache. index_dim : an indexer's keys beside it. one_side : keys and values are the same, stored
    once. shared : it reads another layer's cache and stores nothing.
    """

    kind: str = "none"
    heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int = 0
    latent: int = 0
    rope: int = 0
    index_dim: int = 0
    one_side: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What a layer keeps once for a sequence: elements of recurrent state and of a convolution, with their bytes."""

    elements: int = 0
    element_bytes: int = 4
    conv: int = 0
    conv_bytes: int = 2
