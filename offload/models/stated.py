"""A model that is stated instead of known: blocks of so many bytes and FLOP, as of a diffusion transformer.

It has no embedding, no head and no cache: a step goes through all its blocks once, for each sequence of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload.errors import ModelError
from offload.models.architecture import MOST_LAYERS, STATED, Layer, Model
from offload.models.weights import Weights


@dataclass(frozen=True, slots=True)
class Blocks:
    """Alike blocks: how many, the bytes of each one's weights [B], and its FLOP for one sequence in one step [FLOP]."""

    count: int
    bytes: int
    flops: float = 0.0


def stated_model(name: str, kinds: Sequence[Blocks], row: int = 0) -> Model:
    """A model of blocks of one kind or several, one kind after the other.

    row : bytes of one sequence that pass from block to block where they run on different processors [B]. Raises
    ModelError where there are no blocks, too many of them, or bytes that are odd (they are of 16-bit values).
    """
    layers = sum(kind.count for kind in kinds)
    if not 1 <= layers <= MOST_LAYERS:
        raise ModelError(f"{layers:,} blocks: from 1 to {MOST_LAYERS} are laid out. A plan by hand takes more.")
    if row % 2:
        raise ModelError(f"a row of {row} B: it is of 16-bit values, so its bytes are even.")
    stack: list[Layer] = []
    sizes: list[int] = []
    for kind in kinds:
        stack += [Layer((), mix=kind.flops, attention="none")] * kind.count
        sizes += [kind.bytes] * kind.count
    stored = Weights(STATED, tuple(sizes), 0, 0, 0, 0, 0, False, experts=(0,) * layers)
    return Model(name, STATED, layers, row // 2, 0, 0, 0, 0, 0, stack=tuple(stack), stored=stored)
