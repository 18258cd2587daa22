"""How several processors share a model, in a plan by placement: shape and shorthand."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from offload.designs.ranks import Parallel
from offload.documents.shapes import Shape


class ParallelShape(Shape):
    """How processors that work alike (a range of them) share each layer."""

    model_config = ConfigDict(title="a parallel placement")
    by: Literal["tensor", "data", "expert"] = "tensor"
    algorithm: Literal["ring", "rabenseifner", "recursive_doubling", "tree", "pairwise", "in_network"] | None = None
    fetch: Literal["whole", "sharded"] | None = None
    attention: Literal["data", "tensor"] | None = None
    tensor: Annotated[int, Field(ge=1, le=1024)] | None = None

    def asked(self) -> Parallel:
        """The words as a design takes them."""
        return Parallel(self.by, self.algorithm, self.fetch, self.attention, self.tensor)


def parallel_written_out(placement: Any) -> Any:
    """`parallel: data` of a placement is `{by: data}`."""
    if isinstance(placement, dict) and isinstance(placement.get("parallel"), str):
        return placement | {"parallel": {"by": placement["parallel"]}}
    return placement
