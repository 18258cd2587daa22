"""All doubts about a server as a file says it: what its values show, and what it says in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.doubts.doubt import Doubt
from offload.doubts.drives import doubts_of_drives
from offload.doubts.gpus import doubts_of_gpus
from offload.doubts.servers import doubts_of_topology
from offload.doubts.slips import doubts_of_slips, doubts_of_texts
from offload.doubts.sockets import doubts_of_sockets
from offload.doubts.written import Written, names_of
from offload.topology import Topology


def doubts_of_server(topology: Topology, value: Mapping[str, Any]) -> list[Doubt]:
    """What in a topology file is probably not meant. value : the file's plain values, of which the topology was read.

    What one figure is doubted for twice is told once: the first of a code for a part.
    """
    written = Written.read(value)
    texts = list(doubts_of_texts(value))
    found = [*doubts_of_topology(topology), *doubts_of_sockets(topology, written), *doubts_of_gpus(topology, written),
             *doubts_of_drives(topology), *doubts_of_slips(topology, written)]  # fmt: skip
    slips = {(doubt.place[0], name) for doubt in texts for name in names_of(doubt.part)}  # their sums are odd as well
    twice = {doubt.place for doubt in found if doubt.code == "both-directions"}
    found = [doubt for doubt in found if (doubt.code not in ("unit-slip", "mig-slices") or doubt.place not in slips)
             and (doubt.code != "above-card" or doubt.place not in twice)] + texts  # fmt: skip
    return list({(doubt.code, doubt.place): doubt for doubt in reversed(found)}.values())[::-1]
