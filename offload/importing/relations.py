"""Whether relations between devices agree with the NUMA nodes that they hang at.

PIX, PXB and PHB join devices below one host bridge and NODE those of one NUMA node, so both ends have the same node.
SYS says nothing of it: machines print it for GPUs of one node too.
"""

from __future__ import annotations

from offload.importing.notes import Notes, where
from offload.readers.tools.finding import Finding, Machine

WORDS = {
    "PIX": "behind one PCIe switch", "PXB": "behind PCIe switches", "PHB": "below one host bridge",
    "NODE": "within one NUMA node",
}  # fmt: skip


def check_relations(finding: Finding, merged: Machine | None, notes: Notes) -> None:
    """Tell relations that NUMA nodes speak against. merged : the machine of all outputs, for nodes not told here."""
    machine = finding.machine
    if machine is None:
        return
    nodes: dict[str, int | None] = {one.name: one.numa for one in merged.devices} if merged is not None else {}
    nodes |= {one.name: one.numa for one in machine.devices if one.numa is not None}
    for near in machine.nears:
        first, second = nodes.get(near.first), nodes.get(near.second)
        if first is None or second is None or first == second or near.relation not in WORDS:
            continue
        kind = (id(finding), near.relation)
        place, words = where(finding, near.line), f"{near.relation}, {WORDS[near.relation]}"
        text = f"{place}: {near.first} and {near.second} are {words}"
        notes.gather(kind, f"{text}, and hang at NUMA nodes {first} and {second}: one of the two is wrong",
                     contradicts=True)  # fmt: skip
