"""Where tensors outside of layers live and run: the input embedding, the output head and the final norm.

The embedding lies in host memory, where each token takes a row; head and norm are with the first memory named. A
pattern of tensors' names that matches one places it (llama.cpp's -ot), and what it takes part in runs where it lives.
Other tables stay in host memory, other weights of each step are with the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload.designs.homes import home_names
from offload.designs.placement import Placement, memories_of, runs
from offload.errors import ModelError, PlanError
from offload.models import Model, Weights
from offload.models.gguf_names import first_of, outside_names, tensor_pattern
from offload.topology import Topology
from offload.topology.shares import DRIVES

TENSORS = "placement.tensors"
ROLES = ("embedding", "head", "norm")


@dataclass(frozen=True, slots=True)
class Outside:
    """The home of each tensor outside of layers, and the processors that run head and norm.

    matched : for each pattern how many of them it places, and their bytes [B]. placed : what a pattern places.
    """

    embedding: str
    head: str
    norm: str
    head_on: str
    norm_on: str
    matched: tuple[tuple[int, int], ...] = ()
    placed: tuple[str, ...] = ()

    @property
    def starts_in(self) -> str:
        """The memory in which a token's row of the embedding is found."""
        return home_names(self.embedding)[0]

    @property
    def norm_apart(self) -> bool:
        """Whether the final norm runs on other processors than the head."""
        return self.norm_on != self.head_on

    def notes(self) -> list[str]:
        """What patterns place, in words."""
        where = {"embedding": f"the input embedding lies in {self.embedding}, where each token takes a row",
                 "head": f"the output head lives in {self.head} and runs on {self.head_on}",
                 "norm": f"the final norm lives in {self.norm} and runs on {self.norm_on}"}
        return [f"by pattern {where[role]}" for role in self.placed]


def outside_of(topology: Topology, placement: Placement, model: Model, weighed: Weights, host: str) -> Outside:
    """Where a placement has what is outside of layers. host : the memory of the embedding where no pattern has it.

    Raises PlanError for patterns that cannot be read, and for an embedding on a drive.
    """
    first = placement.weights[0][0]
    homes = dict(zip(ROLES, (host, first, first), strict=True))
    sizes = {"embedding": weighed.embedding, "head": weighed.head, "norm": weighed.norm}
    counts = [[0, 0] for _ in placement.tensors]
    names = outside_names(model)
    found = {}
    try:
        patterns = [tensor_pattern(text) for text, _ in placement.tensors]
    except ModelError as error:
        raise PlanError(f"{TENSORS}: {error}") from None
    for role in ROLES:
        which = first_of(names.get(role, ()), patterns) if sizes[role] else None
        if which is not None:
            found[role] = which
            homes[role] = placement.tensors[which][1]
    for role, which in found.items():
        shared = role == "head" and model.tied and found.get("embedding") == which  # one tensor
        counts[which][0] += not shared
        counts[which][1] += 0 if shared else sizes[role]
    if "embedding" in found:
        _check_embedding(topology, *placement.tensors[found["embedding"]])
    head_on, norm_on = (runs(topology, placement, homes[role], TENSORS if role in found else "placement.weights")
                        for role in ("head", "norm"))  # fmt: skip
    return Outside(homes["embedding"], homes["head"], homes["norm"], head_on, norm_on,
                   tuple((count, size) for count, size in counts), tuple(found))


def _check_embedding(topology: Topology, text: str, home: str) -> None:
    memories = home_names(home)
    if drive := next((name for name in memories if topology.memories[name].kind in DRIVES), ""):
        raise PlanError(f'{TENSORS}: "{text}" matches the input embedding, of which each token takes a row, and '
                        f"{drive} is a drive. Place it in a memory, or write a pattern that leaves out token_embd.")


def homes_of_ends(outside: Outside, weighed: Weights) -> Sequence[tuple[str, str, int]]:
    """(home, processors, bytes) of what runs after the layers: head with other weights of each step, and norm."""
    return ((outside.head, outside.head_on, weighed.head + weighed.each_step),
            (outside.norm, outside.norm_on, weighed.norm))


def own_memories(topology: Topology, outside: Outside) -> tuple[str, str]:
    """The memories in which head and norm are read."""
    return memories_of(topology, outside.head_on), memories_of(topology, outside.norm_on)
