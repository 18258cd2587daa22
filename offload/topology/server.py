"""A server as a graph, built and checked once and then frozen.

Everything finite in it compiles to a directed `Resource`; routes between memories are deterministic and say which
resources a byte loads. The NetworkX graph is a view for people and other tools: derived from the values, and frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from offload.displayed import Displayed, Pictured
from offload.errors import RouteError, TopologyError, did_you_mean
from offload.topology.checks import mistakes
from offload.topology.confidence import what_ifs
from offload.topology.parts import Cost, Limit, Link, Memory, Processor, Resource, Route, Switch
from offload.topology.resources import compile_resources, directions
from offload.topology.routes import Edge, Ways, stage_of
from offload.topology.shares import DRIVES

if TYPE_CHECKING:
    import networkx

Part = TypeVar("Part", Memory, Processor, Switch, Link, Limit)


@dataclass(frozen=True, slots=True)
class Topology(Displayed, Pictured):
    """Memories, processors, switches, links and limits by name. Make one with `Topology.build`.

    stated : assumptions that came with the values; `assumptions` adds those made here. price, power : of the whole
    server.
    """

    name: str
    title: str
    memories: Mapping[str, Memory]
    processors: Mapping[str, Processor]
    switches: Mapping[str, Switch]
    links: Mapping[str, Link]
    limits: Mapping[str, Limit]
    source: str = ""
    stated: tuple[str, ...] = ()
    price: Cost | None = None
    power: Cost | None = None
    _derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def build(
        cls,
        *,
        name: str = "",
        title: str = "",
        memories: Iterable[Memory] = (),
        processors: Iterable[Processor] = (),
        switches: Iterable[Switch] = (),
        links: Iterable[Link] = (),
        limits: Iterable[Limit] = (),
        source: str = "",
        assumptions: Iterable[str] = (),
        price: Cost | None = None,
        power: Cost | None = None,
    ) -> Topology:
        """Check the parts against each other and freeze them. Raises TopologyError with every contradiction."""
        parts = (tuple(memories), tuple(processors), tuple(switches), tuple(links), tuple(limits))
        found = mistakes(*parts)
        if not found:
            topology = cls(
                name, title or name, _by_name(parts[0]), _by_name(parts[1]), _by_name(parts[2]), _by_name(parts[3]),
                _by_name(parts[4]), source, tuple(assumptions), price, power,
            )  # fmt: skip
            found = _clashes(topology)
        if found:
            count = f"{len(found)} mistake" + ("" if len(found) == 1 else "s")
            raise TopologyError("\n".join([f"topology {name or title or 'without a name'}: {count}"]
                                          + [f"  {line}" for line in found]))  # fmt: skip
        return topology

    def __reduce__(self) -> tuple[Any, ...]:
        """Read-only views cannot be pickled: build it again from the values."""
        groups = (self.memories, self.processors, self.switches, self.links, self.limits)
        values = [tuple(group.values()) for group in groups]
        return _rebuilt, (self.name, self.title, *values, self.source, self.stated, self.price, self.power)

    # What follows from the values, made at the first use.

    @property
    def resources(self) -> Mapping[str, Resource]:
        """Everything finite, by name: rates in [B/s] and [FLOP/s]."""
        return self._compiled()[0]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Figures that were assumed, rates that are unknown, contradictions, what is not for sale yet; in words."""
        if "what_ifs" not in self._derived:
            self._derived["what_ifs"] = what_ifs(self)
        return (*self.stated, *self._compiled()[1], *self._derived["what_ifs"])

    def _compiled(self) -> tuple[Mapping[str, Resource], tuple[str, ...]]:
        if "resources" not in self._derived:
            self._derived["resources"] = compile_resources(self.memories, self.processors, self.links, self.limits)
        compiled: tuple[Mapping[str, Resource], tuple[str, ...]] = self._derived["resources"]
        return compiled

    @property
    def ways(self) -> Ways:
        """The hops of the server, ready to search."""
        if "ways" not in self._derived:
            self._derived["ways"] = Ways(
                self.memories, self.processors, self.switches, self.links, self.limits, self.resources
            )
        ways: Ways = self._derived["ways"]
        return ways

    @property
    def graph(self) -> networkx.MultiDiGraph[str]:
        """The frozen graph: a node for each memory and switch (attribute `node`), an edge for each link direction.

        Edges are keyed by the link's name and carry `link` and `direction`; a memory inside a switch has an edge to it
        and back with the key "at" and without a link.
        """
        if "graph" not in self._derived:
            self._derived["graph"] = _graph(self)
        graph: networkx.MultiDiGraph[str] = self._derived["graph"]
        return graph

    def links_at(self, name: str) -> tuple[Link, ...]:
        """The links that end at a memory or switch, in their order; none where nothing does."""
        if "ends" not in self._derived:
            ends: dict[str, list[Link]] = {}
            for link in self.links.values():
                for end in dict.fromkeys((link.a, link.b)):
                    ends.setdefault(end, []).append(link)
            self._derived["ends"] = ends
        return tuple(self._derived["ends"].get(name, ()))

    # Where a byte goes, and what it loads.

    def route(self, source: str, destination: str, via: tuple[str, ...] = ()) -> Route:
        """The way from one memory to another, staged in host DRAM where the devices demand it.

        via : nodes that it passes in this order; a host DRAM among them stages the copy, but for what starts there.
        Raises RouteError where no way leads, and says what is reachable.
        """
        known: dict[Any, Route] = self._derived.setdefault("routes", {})  # a reader asks for a route, and a compiler
        asked = (source, destination, *via)
        if asked not in known:
            known[asked] = self._find_route(source, destination, tuple(via))
        return known[asked]

    def _find_route(self, source: str, destination: str, via: tuple[str, ...]) -> Route:
        for memory in (source, destination):
            self._check_memory(memory)
        if source == destination:
            raise RouteError(f"{self._where}{source} to itself: nothing moves. Name two memories.")
        self._check_via(via)
        edges = self.ways.find(source, destination, via)
        if edges is None:
            raise RouteError(self._no_route(source, destination, via))
        return Route(self.ways.stages(edges))

    def read_route(self, memory: str, processor: str) -> Route:
        """One stage: what a byte loads that a processor reads where it lives. Raises RouteError where it cannot.

        In its own memory that is the memory's port and the processor's own rate; elsewhere the port there, the links
        and their limits, and nothing in its own memory: no copy is made.
        """
        port = [(row, 1.0, 1.0) for row in self._port(memory, processor, "read")]
        edges = self._in_place(memory, processor, memory, self.memory_of(processor), "read")
        return Route((stage_of(memory, processor, edges, before=port),))

    def write_route(self, processor: str, memory: str) -> Route:
        """One stage: what a byte loads that a processor writes to where it lives. Raises RouteError where it cannot."""
        port = [(row, 1.0, 1.0) for row in self._port(memory, processor, "write")]
        edges = self._in_place(memory, processor, self.memory_of(processor), memory, "write")
        return Route((stage_of(processor, memory, edges, after=port),))

    def reachable(self, node: str) -> tuple[str, ...]:
        """The names of the memories that a route leads to from a memory, a switch or a processor's memory, sorted."""
        node = self.processors[node].memory if node in self.processors else node
        if node not in self.switches:
            self._check_memory(node)
        return tuple(sorted(self.ways.reachable(node)))

    def memory_of(self, processor: str) -> str:
        """The name of the memory that a processor is attached to."""
        if processor not in self.processors:
            hint = did_you_mean(processor, self.processors, "Processors")
            raise TopologyError(f'{self._where}no processor "{processor}". {hint}')
        return self.processors[processor].memory

    def processors_of(self, memory: str) -> list[str]:
        """The names of the processors that are attached to a memory, sorted."""
        self._check_memory(memory)
        return sorted(processor.name for processor in self.ways.attached[memory])

    def nearest_processor(self, memory: str) -> str:
        """The processor fewest links away from a memory, then over the widest way, then by name.

        Where several share the memory it is the first by name: a plan should choose. Raises RouteError where none is
        reachable.
        """
        self._check_memory(memory)
        found = self.ways.nearest(memory)
        if found is None:
            raise RouteError(f"{self._where}no processor can be reached from {memory}. {self._reach(memory)}")
        return found

    def _port(self, memory: str, processor: str, access: str) -> list[str]:
        """The rows that a processor's read or write loads at a memory; its own rate too where the memory is its own."""
        self._check_memory(memory)
        own = [f"{processor}.{access}s"] if self.memory_of(processor) == memory else []
        return [*self.ways.port(memory, access), *(row for row in own if row in self.resources)]

    def _in_place(self, memory: str, processor: str, source: str, destination: str, access: str) -> list[Edge]:
        if source == destination:
            return []
        drive = self.memories[memory].kind in DRIVES
        edges = None if drive else self.ways.find_direct(source, destination)
        if edges is None:
            why = f"{memory} is a drive" if drive else "no way leads there without a stage in host memory"
            raise RouteError(
                f"{self._where}{processor} cannot {access} {memory} in place: {why}. "
                f"Move it first, to {self.memory_of(processor)}. {self._reach(memory)}"
            )
        return edges

    # Errors.

    @property
    def _where(self) -> str:
        return f"topology {self.name}: " if self.name else ""

    def _check_memory(self, name: str) -> None:
        if name in self.memories:
            return
        if name in self.processors:
            text = f'{name} is a processor; its memory is "{self.processors[name].memory}".'
        else:
            text = f'no memory "{name}". {did_you_mean(name, self.memories, "Memories")}'
        raise TopologyError(self._where + text)

    def _check_via(self, via: tuple[str, ...]) -> None:
        for node in via:
            if node in self.links:
                link = self.links[node]
                text = f"via names nodes, and {node} is the link between {link.a} and {link.b}. Name one of these."
            elif node not in self.memories and node not in self.switches:
                text = f'via: no node "{node}". {did_you_mean(node, [*self.memories, *self.switches], "Nodes")}'
            elif node in self.memories and not self.ways.may_stage(node):
                hosts = sorted(name for name in self.memories if self.ways.may_stage(name))
                text = f"via {node}: only host DRAM may stage a copy. {did_you_mean(node, hosts, 'Host DRAM')}"
            elif via.count(node) > 1:
                text = f"via: {node} is named twice. Keep one."
            else:
                continue
            raise RouteError(self._where + text)

    def _no_route(self, source: str, destination: str, via: tuple[str, ...]) -> str:
        way = f" via {', '.join(via)}" if via else ""
        text = f"{self._where}no route from {source} to {destination}{way}. {self._reach(source)}"
        linked = self.ways.search(source, destination, via, lambda edge: True, staging=False, must_stage=False)
        if linked is not None:
            text += (
                " Links join the two, but without peer-to-peer (`peer_to_peer: true` on both GPUs, `direct_storage:"
                " true` for a drive) a copy is staged in host DRAM, and none can be reached."
            )
        return text

    def _reach(self, node: str) -> str:
        names = self.reachable(node)
        shown = ", ".join(names[:24]) + (f", ... ({len(names)})" if len(names) > 24 else "")
        return f"Reachable from {node}: {shown or 'nothing'}."


def _by_name(parts: tuple[Part, ...]) -> Mapping[str, Part]:
    return MappingProxyType({part.name: part for part in parts})


def _clashes(topology: Topology) -> list[str]:
    """Resources of different parts that would bear one name ("a" to "b.c", "a.b" to "c")."""
    names: list[str] = [*topology.limits, *topology.memories]
    for memory in topology.memories.values():
        names += [f"{memory.name}.{key}" for key in ("read", "write") if getattr(memory, key) is not None]
    for processor in topology.processors.values():
        names += [f"{processor.name}.{key}" for key in ("flops", "reads", "writes")]
    for link in topology.links.values():
        names += [link.name] if link.half_duplex else [name for name, _, _ in directions(link)]
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for name in names:
        if name in seen:
            twice[name] = None
        seen.add(name)
    return [f"{name}: two resources would have this name. Rename one of the parts." for name in twice]


def _rebuilt(
    name: str,
    title: str,
    memories: tuple[Memory, ...],
    processors: tuple[Processor, ...],
    switches: tuple[Switch, ...],
    links: tuple[Link, ...],
    limits: tuple[Limit, ...],
    source: str,
    stated: tuple[str, ...],
    price: Cost | None,
    power: Cost | None,
) -> Topology:
    return Topology.build(
        name=name, title=title, memories=memories, processors=processors, switches=switches, links=links, limits=limits,
        source=source, assumptions=stated, price=price, power=power,
    )  # fmt: skip


def _graph(topology: Topology) -> networkx.MultiDiGraph[str]:
    import networkx

    graph: networkx.MultiDiGraph[str] = networkx.MultiDiGraph(name=topology.name)
    nodes: tuple[Memory | Switch, ...] = (*topology.memories.values(), *topology.switches.values())
    for part in nodes:
        graph.add_node(part.name, node=part)
    for link in topology.links.values():
        for direction, end, _ in directions(link):
            start = link.a if end == link.b else link.b
            graph.add_edge(start, end, key=link.name, link=link, direction=direction)
    for memory in topology.memories.values():
        if memory.at is not None:
            graph.add_edge(memory.name, memory.at, key="at", link=None, direction=None)
            graph.add_edge(memory.at, memory.name, key="at", link=None, direction=None)
    networkx.freeze(graph)
    return graph
