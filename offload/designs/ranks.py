"""How several processors share a model: words of a placement."""

from __future__ import annotations

from dataclasses import dataclass

BY = ("tensor", "data", "expert")  # what ranks that work alike have of each layer
FETCH = ("whole", "sharded")  # how replicas get weights that live elsewhere
ATTENTION = ("data", "tensor")  # how all but the experts is shared where experts are spread


@dataclass(frozen=True, slots=True)
class Parallel:
    """How processors that work alike share each layer; None of a word is that it was not said.

    by : "tensor" (an equal part of every matrix each), "data" (whole layers and an equal share of the sequences each),
    "expert" (as `attention` says, but whole experts spread over the ranks). algorithm : of the collectives that know it
    (`offload.collectives.ALGORITHMS`). fetch : replicas each bring all of what lives elsewhere ("whole"), or an n-th,
    and gather the rest from each other ("sharded"). tensor : processors of a replica, of which each has an equal part
    of every matrix; None is one.
    """

    by: str = "tensor"
    algorithm: str | None = None
    fetch: str | None = None
    attention: str | None = None
    tensor: int | None = None

    @property
    def replicated(self) -> bool:
        """Whether each rank, or team of them, has whole layers (but for spread experts) and sequences of its own."""
        return self.by == "data" or (self.by == "expert" and self.attention != "tensor")

    @property
    def sharded(self) -> bool:
        """Whether replicas bring an n-th each and gather the rest."""
        return self.fetch == "sharded"


TENSOR = Parallel()
