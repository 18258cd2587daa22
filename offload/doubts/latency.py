"""Doubts about a plan's small copies over links of which no latency is said: each takes microseconds, not nothing."""

from __future__ import annotations

from collections.abc import Iterator

from offload.doubts.doubt import Doubt
from offload.errors import RouteError
from offload.plan import Collective, Transfer, most_bytes
from offload.ranges import fold
from offload.step import Step
from offload.topology import Topology
from offload.topology.resources import directions
from offload.units import format_bytes, format_seconds

LATENCY = 5e-6  # s: a copy over PCIe or a message over NVLink takes 2 to 10 us besides its bytes
MANY = 100  # copies a step: fewer add less than a millisecond


def doubts_of_latency(step: Step) -> Iterator[Doubt]:
    """Many copies a step, whose bytes take less time than such a copy's latency, on links that have none."""
    told: set[tuple[str, ...]] = set()
    for block in step.plan.blocks:
        for task in block.tasks:
            if not isinstance(task, Transfer | Collective) or task.every != 1 or task.once:
                continue
            count = block.repeat * (task.times if isinstance(task, Collective) else 1)
            links = _links(step.topology, _ends(step, task))
            known = {link: step.topology.links[link] for link in links}
            if count < MANY or not links or links in told or any(link.latency[1] for link in known.values()):
                continue
            peaks = [rate.peak for link in known.values() for _, _, rate in directions(link) if rate.peak]
            size = most_bytes(step.plan.tensors[task.tensor])
            if peaks and size / min(peaks) < LATENCY:
                told.add(links)
                own = step.plan.origin is None
                yield Doubt(
                    "no-latency", ("tasks", task.name) if own else ("topology",),
                    f"{count} copies a step of {format_bytes(size)} ({task.name}) take "
                    f"{format_seconds(size / min(peaks))} each by their bytes, and {fold(links)} has no latency: a "
                    f"copy takes about {format_seconds(LATENCY)} besides, {format_seconds(count * LATENCY)} a step. "
                    "Write the latency of its links: latency: 5 us.",
                    "keep it, where only bytes are to count.",
                )  # fmt: skip


def _ends(step: Step, task: Transfer | Collective) -> tuple[str, str]:
    if isinstance(task, Collective):
        return task.over[0], task.over[-1]
    return step.plan.tensors[task.tensor].home[0][0], task.to


def _links(topology: Topology, ends: tuple[str, str]) -> tuple[str, ...]:
    """The links of the way between two memories; none where they are one or no way leads."""
    if ends[0] == ends[1]:
        return ()
    try:
        return topology.route(*ends).links
    except RouteError:
        return ()
