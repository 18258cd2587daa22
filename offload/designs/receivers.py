"""Who takes a prefill's KV: ranks that work as those that send it, or one memory that has it once."""

from __future__ import annotations

from typing import Any

from offload.designs.placement import Placement
from offload.errors import PlanError
from offload.ranges import listed
from offload.topology import Topology

KEY = "placement.hand_over"


def ranks_at(topology: Topology, memories: str) -> int:
    """Ranks that work in a range of memories: one in each where GPUs do, else what lies there is no rank's."""
    names = listed(memories) if memories else []
    gpus = all(any(topology.processors[one].kind == "gpu" for one in topology.processors_of(name)) for name in names)
    return len(names) if names and gpus else 1


def receivers_of(topology: Topology, placement: Placement, batch: Any = None) -> tuple[int, int]:
    """(ranks that share each sequence, groups of them with an equal share of the sequences each) at `hand_over`.

    They work as the senders do: replicas from replicas, teams from teams of as many, else all share every sequence.
    batch : sequences, None to ask nothing of them. Raises PlanError where ranks make no whole teams, or sequences do
    not split evenly over them.
    """
    ranks, shares = ranks_at(topology, placement.hand_over), placement.parallel
    if shares is None or not shares.replicated:
        return ranks, 1
    team = min(ranks, shares.tensor or 1)
    if ranks % team:
        less = ranks - ranks % team
        raise PlanError(f"{KEY}: {placement.hand_over} are {ranks} ranks, which make no whole teams of {team} "
                        f"(parallel.tensor). Name {less} or {less + team}.")
    groups = ranks // team
    over = 0 if batch is None else batch % groups
    if over.any() if hasattr(over, "any") else over:
        raise PlanError(f"{KEY}: {batch} sequences do not split evenly over the {groups} "
                        f"{'ranks' if team == 1 else 'teams'} of {placement.hand_over}. Name as many as replicas, or a "
                        f"batch of a multiple of {groups}.")
    return team, groups
