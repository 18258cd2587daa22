"""A server as a graph: memories, processors, switches, links and the limits that links share.

`parts` holds the values, `shares` what is assumed of them, `resources` what they compile to, `routes` how a byte
travels, `checks` what contradicts itself, and `server` the whole: `Topology`.
"""

from offload.topology.parts import (
    Cost,
    Interval,
    Limit,
    Link,
    Memory,
    Processor,
    Rate,
    Resource,
    Route,
    Stage,
    Switch,
    describe_route,
    not_alike,
)
from offload.topology.server import Topology

__all__ = [
    "Cost",
    "Interval",
    "Limit",
    "Link",
    "Memory",
    "Processor",
    "Rate",
    "Resource",
    "Route",
    "Stage",
    "Switch",
    "Topology",
    "describe_route",
    "not_alike",
]
