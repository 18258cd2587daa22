"""A topology as rows for a person: its parts, every rate with its grades and its source, and the ways that matter.

Values in, values out; nothing is printed here. Rates in [B/s] and [FLOP/s], sizes in [B], times in [s].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from offload import __version__
from offload.costs import cost_to_json, costs_of, costs_to_json
from offload.errors import RouteError
from offload.topology import Cost, Interval, Link, Rate, Resource, Route, Stage, Topology, describe_route
from offload.topology.confidence import counts, what_ifs
from offload.topology.resources import directions, directions_over
from offload.topology.shares import DRIVES
from offload.units import pcie_rate

FORMAT = 1  # version of the keys of the data; raised when one changes its meaning or goes away
NAMES = {"pcie": "PCIe", "nvlink": "NVLink", "c2c": "C2C", "upi": "UPI", "xgmi": "xGMI", "cxl": "CXL", "sata": "SATA"}
MOST_ENDS = 16  # memories at either end between which ways are looked for; every pair of them has one
MOST_LOOKED_AT = 2_000  # nodes of a server of which so many ends are: of a larger one fewer, as each way takes longer


@dataclass(frozen=True, slots=True)
class Used:
    """The rate that schedules use for some kinds of access ("" is any); assumed : a usual share, nobody measured it."""

    accesses: tuple[str, ...]
    low: float
    value: float
    high: float
    assumed: bool


@dataclass(frozen=True, slots=True)
class RateRow:
    """One rate of a part: `resource` is the row of a step that it becomes, `format` the number format of FLOP/s.

    peak, rated : for the whole of a striped set. unknown : said to be unknown, so it has no row.
    """

    resource: str
    part: str
    kind: str
    unit: str
    format: str
    peak: float | None
    rated: float | None
    used: tuple[Used, ...]
    unknown: bool
    source: str


@dataclass(frozen=True, slots=True)
class Way:
    """A way of a copy between two memories; `text` is empty where none leads there.

    peak, sustained : of the narrowest thing on it, `narrowest` at sustained rates [B/s]; assumed : that rate is.
    unknown : what it passes without a known rate, so that it may be slower. latency : (least, typical), links' sum [s].
    """

    source: str
    destination: str
    text: str
    links: tuple[str, ...] = ()
    staged_in: tuple[str, ...] = ()
    peak: float | None = None
    sustained: float | None = None
    narrowest: str = ""
    assumed: bool = False
    unknown: tuple[str, ...] = ()
    latency: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways of one kind. left_out : how many memories at either end were not looked at, as there are too many."""

    what: str
    ways: tuple[Way, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class HostLink:
    """What joins a GPU's memory to the host's: the narrowest link of the way, and its rate to the GPU [B/s]."""

    link: str
    what: str
    peak: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A topology in one line. Sizes are None where one of them is not known.

    unified : GPU and host work in one memory. rates : how many rates it has, `assumed` of them a usual share.
    confidence : how many of its figures are found, derived, from memory, ... (`offload.topology.confidence.counts`).
    what_if : what in it cannot be bought, as notes. price, power : of the whole server, else the sum of its parts.
    """

    name: str
    title: str
    gpus: int
    gpu_memory: int | None
    host_memory: int | None
    unified: bool
    host_links: tuple[HostLink, ...]
    drives: int
    drive_capacity: int | None
    rates: int
    assumed: int
    confidence: dict[str, int]
    what_if: tuple[str, ...]
    price: Cost | None
    power: Cost | None


def summary_of(topology: Topology) -> Summary:
    """The line of a topology in a list of several."""
    memories = topology.memories.values()
    near = gpu_memories(topology)
    hosts = [memory.name for memory in memories if memory.kind == "dram" and memory.name not in near]
    drives = [memory for memory in memories if memory.kind in DRIVES]
    links: dict[tuple[str, float | None], HostLink] = {}
    for memory in near:
        if link := host_link(topology, memory):
            links.setdefault((link.what, link.peak), link)
    resources = topology.resources.values()
    return Summary(
        topology.name,
        topology.title,
        sum(processor.kind == "gpu" for processor in topology.processors.values()),
        _capacity(topology, near),
        _capacity(topology, hosts),
        any(topology.memories[memory].kind == "unified" for memory in near),
        tuple(links.values()),
        sum(memory.count for memory in drives),
        _capacity(topology, [memory.name for memory in drives]),
        len(resources),
        sum(_is_assumed(resource) for resource in resources),
        counts(topology),
        what_ifs(topology),
        costs_of(topology, "price").best,
        costs_of(topology, "power").best,
    )


def gpu_memories(topology: Topology) -> list[str]:
    """The memories that GPUs work in, in the order of the file."""
    found = {processor.memory for processor in topology.processors.values() if processor.kind == "gpu"}
    return [memory for memory in topology.memories if memory in found]


def host_link(topology: Topology, memory: str) -> HostLink | None:
    """The narrowest link between a GPU's memory and the nearest host memory; None where they are one or far apart."""
    if topology.ways.is_host(memory):
        return None
    nearest = topology.ways.nearest_of(memory, topology.ways.hosts)
    if not nearest:
        return None
    route = topology.route(nearest[0], memory)
    found: HostLink | None = None
    for stage in route.stages:
        for link, _, rate in _crossed(topology, stage):
            if found is None or (rate.peak or math.inf) <= (found.peak or math.inf):
                found = HostLink(link.name, link_text(link), rate.peak)
    return found


def host_memories(topology: Topology) -> list[str]:
    """The memories that any device reaches, in the order of the file."""
    return list(topology.ways.hosts)


def link_text(link: Link) -> str:
    """What a link is, in words: "PCIe 4 x16", "2 x PCIe 4 x4", "NVLink"; "" where its file does not say."""
    if link.generation is None:
        return NAMES.get(link.technology, link.technology)
    name = f"PCIe {link.generation} x{link.lanes}"
    side_by_side = (link.forward.peak or 0.0) / pcie_rate(link.generation, cast(int, link.lanes))
    whole = round(side_by_side)
    return f"{whole} x {name}" if whole > 1 and math.isclose(side_by_side, whole, rel_tol=1e-9) else name


def _capacity(topology: Topology, names: list[str]) -> int | None:
    sizes = [(topology.memories[name].capacity, topology.memories[name].count) for name in names]
    known = [size * count for size, count in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _is_assumed(resource: Resource) -> bool:
    """Whether the rate for any access, or for some number format, is a usual share."""
    return bool(resource.assumed - {"mixed", "pageable"})


# Rates.


def rate_rows(topology: Topology) -> list[RateRow]:
    """Every rate of every part, in the order of the file: memories, processors, links, limits."""
    found = []
    for resource, part, kind, format_, rate, count, source in _rates(topology):
        row = topology.resources.get(resource)
        peak, rated = (None if figure is None else figure * count for figure in (rate.peak, rate.rated))
        used = () if row is None or rate.unknown else _used(row, format_)
        unit = "FLOP" if resource == f"{part}.flops" else "B"
        found.append(
            RateRow(resource, part, kind, unit, format_, peak, rated, used, rate.unknown, rate.source or source)
        )
    return found


def _rates(topology: Topology) -> Iterator[tuple[str, str, str, str, Rate, int, str]]:
    """(resource, part, kind, number format, rate, count, source of the part) of every rate that is stated."""
    for memory in topology.memories.values():
        for access in ("", "read", "write"):
            rate = memory.rate if not access else getattr(memory, access)
            if rate is not None:
                name = f"{memory.name}.{access}" if access else memory.name
                yield name, memory.name, "memory", "", rate, memory.count, memory.source
    for processor in topology.processors.values():
        for format_, rate in processor.flops.items():
            yield f"{processor.name}.flops", processor.name, "processor", format_, rate, 1, processor.source
        for access in ("reads", "writes"):
            rate = getattr(processor, access)
            if rate is not None:
                yield f"{processor.name}.{access}", processor.name, "processor", "", rate, 1, processor.source
    for link in topology.links.values():
        if link.half_duplex:
            yield link.name, link.name, "link", "", link.forward, 1, link.source
        else:
            for name, _, rate in directions(link):
                yield name, link.name, "link", "", rate, 1, link.source
    for limit in topology.limits.values():
        yield limit.name, limit.name, "limit", "", limit.rate, 1, limit.source


def _used(resource: Resource, format_: str) -> tuple[Used, ...]:
    """The sustained rates of a resource; accesses with the same one stand together, any access first."""
    if format_:
        known = {format_: resource.sustained[format_]} if format_ in resource.sustained else {}
    else:
        known = dict(sorted(resource.sustained.items(), key=lambda item: item[0] != ""))
    groups: dict[tuple[Interval, bool], list[str]] = {}
    for access, rate in known.items():
        groups.setdefault((rate, access in resource.assumed), []).append(access)
    return tuple(
        Used(tuple(accesses), rate.low, rate.value, rate.high, assumed)
        for (rate, assumed), accesses in groups.items()
    )


# Ways.


def ways_of(topology: Topology) -> list[Ways]:
    """The ways that offloading uses: host memory to GPU, drive to GPU (host where there is no GPU), GPU to GPU."""
    near = gpu_memories(topology)
    hosts = [memory for memory in host_memories(topology) if memory not in near]
    drives = [memory.name for memory in topology.memories.values() if memory.kind in DRIVES]
    found = [
        _ways(topology, "host memory to GPU", hosts, near),
        _ways(topology, "drive to GPU" if near else "drive to host memory", drives, near or hosts),
        _ways(topology, "GPU to GPU", near, near),
    ]
    return [ways for ways in found if ways.ways]


def _ways(topology: Topology, what: str, sources: list[str], destinations: list[str]) -> Ways:
    nodes = len(topology.memories) + len(topology.switches)
    most = max(2, min(MOST_ENDS, MOST_ENDS * MOST_LOOKED_AT // max(1, nodes)))
    pairs = [(a, b) for a in sources[:most] for b in destinations[:most] if a != b]
    left_out = len({*sources[most:], *destinations[most:]})
    return Ways(what, tuple(way_between(topology, *pair) for pair in pairs), left_out)


def way_between(topology: Topology, source: str, destination: str) -> Way:
    """The way of a copy from one memory to another; one without `text` where none leads there."""
    try:
        route = topology.route(source, destination)
    except RouteError:
        return Way(source, destination, "")
    peak, sustained, narrowest = math.inf, math.inf, ""
    assumed = False
    for stage in route.stages:
        for name, _, expected in stage.uses:
            resource = topology.resources[name]
            # A copy reads memories and has the pinned rate of links and limits.
            access = "pinned" if resource.kind in ("link", "limit") else "read"
            rate = cast(Interval, resource.sustained_at(access)).value / expected
            if resource.peak is not None:
                peak = min(peak, resource.peak / expected)
            if rate < sustained:
                sustained, narrowest = rate, name
                assumed = (access if access in resource.sustained else "") in resource.assumed
    return Way(
        source,
        destination,
        describe_route(route),
        route.links,
        route.staged_in,
        None if peak == math.inf else peak,
        None if sustained == math.inf else sustained,
        narrowest,
        assumed,
        tuple(_unknown(topology, route)),
        _latency(route),
    )


def _unknown(topology: Topology, route: Route) -> Iterator[str]:
    """Ports and link directions on a way that have no rate, known or measured."""
    for stage in route.stages:
        for memory, access in ((stage.source, "read"), (stage.destination, "write")):
            if not topology.ways.port(memory, access):
                yield f"{memory}.{access}"
        for link, direction, _ in _crossed(topology, stage):
            if (link.name if link.half_duplex else direction) not in topology.resources:
                yield direction


def _crossed(topology: Topology, stage: Stage) -> Iterator[tuple[Link, str, Rate]]:
    """(link, name of the direction, its rate) of each link that a stage crosses, in order."""
    way = [*stage.way, stage.destination]  # the node after a link is where it leads to
    for name in stage.links:
        link = topology.links[name]
        end = way[way.index(name) + 1]
        yield link, *next((text, rate) for text, to, rate in directions(link) if to == end)


def _latency(route: Route) -> tuple[float, float]:
    least, typical = (math.fsum(stage.latency[end] for stage in route.stages) for end in (0, 1))
    return least, typical


# As data.


def summaries_to_json(summaries: list[Summary]) -> dict[str, Any]:
    """A list of topologies as plain data."""
    rows = [{**asdict(one), **{what: cost_to_json(getattr(one, what)) for what in ("price", "power")}}
            for one in summaries]  # fmt: skip
    return {**_head(), "topologies": rows}


def parts_to_json(parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The names of shipped parts as plain data. parts : section of a topology file -> names."""
    return {**_head(), "parts": {section: list(names) for section, names in parts.items()}}


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """A topology as plain data: its parts as they were given, with what they amount to; null where not known."""
    return {
        **_head(),
        "name": topology.name,
        "title": topology.title,
        "memories": [
            {
                "name": memory.name,
                "kind": memory.kind,
                "capacity": memory.capacity,
                "cache": memory.cache,
                "count": memory.count,
                "at": memory.at,
                "processors": topology.processors_of(memory.name),
                "source": memory.source,
            }
            for memory in topology.memories.values()
        ],
        "processors": [
            {
                "name": processor.name,
                "kind": processor.kind,
                "memory": processor.memory,
                "peer_to_peer": processor.peer_to_peer,
                "direct_storage": processor.direct_storage,
                "source": processor.source,
            }
            for processor in topology.processors.values()
        ],
        "switches": [
            {"name": switch.name, "kind": switch.kind, "source": switch.source, "reduces": switch.reduces}
            for switch in topology.switches.values()
        ],
        "links": [
            {
                "name": link.name,
                "between": [link.a, link.b],
                "kind": link.technology,
                "generation": link.generation,
                "lanes": link.lanes,
                "latency": list(link.latency),
                "half_duplex": link.half_duplex,
                "source": link.source,
            }
            for link in topology.links.values()
        ],
        "limits": [
            {
                "name": limit.name,
                "over": list(directions_over(limit, topology.links)),
                "source": limit.source,
            }
            for limit in topology.limits.values()
        ],
        "rates": [asdict(row) for row in rate_rows(topology)],
        "ways": [
            {"what": ways.what, "left_out": ways.left_out, "ways": [asdict(way) for way in ways.ways]}
            for ways in ways_of(topology)
        ],
        "costs": costs_to_json(topology),
        "confidence": counts(topology),
        "what_if": list(what_ifs(topology)),
        "assumptions": list(topology.assumptions),
    }


def _head() -> dict[str, Any]:
    return {"format": FORMAT, "offload_version": __version__}
