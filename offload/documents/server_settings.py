"""Values of a server that are changed without editing its file."""

from __future__ import annotations

from collections.abc import Sequence

from offload.documents.settings import Setting
from offload.topology import Topology


def change_topology(topology: Topology, settings: Sequence[Setting]) -> Topology:
    """The server with other values. Raises DocumentError with every mistake."""
    return topology
