"""Where the ends that a tool names ("gpu0", "numa1", "host", "drive0") are in a topology."""

from __future__ import annotations

from offload.describe import host_memories
from offload.errors import RouteError
from offload.topology import Route, Topology
from offload.topology.shares import DRIVES


class Ends:
    """The memories behind names of ends. Numbers count as the topology lists its parts, unless a name says it."""

    def __init__(self, topology: Topology):
        self.topology = topology
        self.gpus = list(dict.fromkeys(one.memory for one in topology.processors.values() if one.kind == "gpu"))
        self.hosts = [one for one in host_memories(topology) if one not in self.gpus]
        self.drives = [name for name, one in topology.memories.items() if one.kind in DRIVES]

    def memory(self, end: str) -> str | None:
        """The memory of an end that names one; None for "host" and plurals, and for what is not there."""
        word, digits = end.rstrip("0123456789"), end[len(end.rstrip("0123456789")) :]
        if word == "drive" and not digits:
            return self.drives[0] if len(self.drives) == 1 else None
        if not digits:
            return None
        number = int(digits)
        listed = {"gpu": self.gpus, "numa": self.hosts, "drive": self.drives}.get(word, [])
        if word == "numa" and f"dram{number}" in self.hosts:
            return f"dram{number}"
        return listed[number] if number < len(listed) else None

    def kind(self, end: str) -> str:
        """ "gpu", "host", "drive" or "": what an end is, plurals too."""
        word = end.rstrip("0123456789")
        return {"gpu": "gpu", "gpus": "gpu", "host": "host", "hosts": "host", "numa": "host", "drive": "drive",
                "drives": "drive"}.get(word, "")  # fmt: skip

    def route(self, source: str, destination: str) -> Route | None:
        """The way between two memories, None where none leads; "host" is the host memory that is nearest."""
        if "host" in (source, destination):
            ways = [self.route(*(host if end == "host" else end for end in (source, destination)))
                    for host in self.hosts]  # fmt: skip
            found = [one for one in ways if one is not None]
            return min(found, key=lambda way: (len(way.stages), len(way.links)), default=None)
        try:
            return self.topology.route(source, destination)
        except RouteError:
            return None

    def nearest_host(self, memory: str) -> str | None:
        """The host memory fewest links away."""
        way = self.route("host", memory)
        return None if way is None else way.stages[0].source
