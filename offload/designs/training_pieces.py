"""What a training step is made of: where its state lives, its pieces, and what a pass surely moves of one."""

from __future__ import annotations

from dataclasses import dataclass

HALF = 2  # bytes of a 16-bit parameter
STATES = 12  # bytes of a parameter's 32-bit master copy, momentum and variance


@dataclass(frozen=True, slots=True)
class Homes:
    """Memories and processors by name; each may be a range. own : the GPUs' memories. update : those of update_on."""

    compute: str
    own: str
    parameters: str
    gradients: str
    optimizer: str
    update_on: str
    update: str
    checkpoints: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Embedding, a layer or the head.

    parameters : of its own, which are updated. used : that it computes with (a tied head's are the embedding's too).
    flops : of a forward pass. sure : those of `parameters` that are surely updated. touched : those of `used` that are
    surely used. keeps : a checkpoint is made before it. needs : the backward pass of it takes one first.
    """

    kind: str
    parameters: int
    used: int
    flops: int
    sure: int
    touched: int
    keeps: bool = False
    needs: bool = False

    @property
    def of(self) -> str:
        """What its tensors' names end in."""
        return {"layer": "", "embedding": " of the embedding", "head": " of the head"}[self.kind]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a pass surely moves of a piece [B]; None is all of it (see `training_least`).

    fetched, gathered : of its parameters. checkpoint : of the one that its backward pass takes. reduced : of its
    gradients between GPUs. again, gathered_again : of what was brought already to compute the layer again.
    """

    fetched: float | None = None
    gathered: float | None = None
    checkpoint: float | None = None
    reduced: float | None = None
    again: float | None = None
    gathered_again: float | None = None
