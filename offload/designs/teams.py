"""Which processors work together on one replica of a model, and which are shared by all replicas.

A range of processors that replicas have for themselves is cut into equal teams, one for each replica, in order: of
gpu0..7 with teams of four, gpu0..3 are the first replica's. A team of several shares each layer (tensor parallel). A
CPU that runs layers beside GPUs' replicas works for all of them, one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offload.designs.ranks import TENSOR, Parallel
from offload.ranges import listed
from offload.topology import Topology


@dataclass(frozen=True, slots=True)
class Teams:
    """replicas : how many copies of the model run side by side. own : the processors that are one replica's alone."""

    replicas: int = 1
    own: frozenset[str] = frozenset()

    def is_own(self, processors: str) -> bool:
        """Whether a range of processors is cut into teams."""
        return listed(processors)[0] in self.own

    def team(self, processors: str) -> int:
        """How many of a range of processors share each layer of a replica."""
        count = len(listed(processors))
        return count // self.replicas if self.is_own(processors) else count

    def firsts(self, memories: str, processors: str) -> list[str]:
        """Memories that have the hidden rows of all replicas between them; with no replicas, one that has all."""
        names = listed(memories)
        return names[:: self.team(processors)] if self.is_own(processors) else names[:1]


def teams_of(topology: Topology, parallel: Parallel | None, processors: Iterable[str]) -> Teams:
    """The teams of ranges of processors; where GPUs and CPUs run layers, replicas have GPUs for themselves."""
    asked = parallel or TENSOR
    ranges = [one for one in dict.fromkeys(processors) if len(listed(one)) > 1]
    if not asked.replicated or not ranges:
        return Teams()
    on_gpus = [one for one in ranges if topology.processors[listed(one)[0]].kind == "gpu"]
    own = on_gpus or ranges
    replicas = max(1, len(listed(own[0])) // (asked.tensor or 1))
    return Teams(replicas, frozenset(name for one in own for name in listed(one)))


def groups_of(memories: Sequence[str], kind: str, teams: Teams, processors: str) -> tuple[tuple[str, ...], int]:
    """(memories in order, number of groups) of a collective: sums are within teams, a gathering between replicas."""
    memories = tuple(memories)
    if not teams.is_own(processors) or kind == "all_to_all":
        return memories, 1
    team = teams.team(processors)
    if kind == "all_gather":
        return tuple(name for place in range(team) for name in memories[place::team]), team
    return memories, teams.replicas
