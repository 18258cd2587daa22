"""The parts of a server as values, and what they compile to.

Memories, processors, switches, links and limits are what a file states; resources are the finite things they amount
to, and routes say which resources a byte loads on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A figure with its ends; `value` is the point that is used. low <= value <= high."""

    low: float
    value: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        return cls(value, value, value)

    def scaled(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.value * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something is [B/s or FLOP/s], by grade.

    peak : nothing exceeds it; the only grade that certifies a floor. rated : the data sheet.
    sustained : by kind of access ("" is any access), what good software measures.
    unknown : said to be unknown: no resource row, listed under assumptions.
    proven : of a link, what a drive did through it before another one took its place. channels : of a memory whose peak
    is stated as so many 8-byte channels.
    """

    peak: float | None = None
    rated: float | None = None
    sustained: Mapping[str, Interval] = field(default_factory=dict)
    source: str = ""
    unknown: bool = False
    proven: Interval | None = None
    channels: int | None = field(default=None, compare=False)  # how the peak was stated, no other rate


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs or draws. unit: a currency's code ("USD"), of what is rented with "/h"; "W" of a power.

    A unit of "" says that another part's figure holds it (a GPU's that of its memory), and the figure is 0.
    """

    figure: Interval
    unit: str
    source: str = ""

    @property
    def included(self) -> bool:
        """Whether another part's figure holds it."""
        return not self.unit

    def scaled(self, count: int) -> Cost:
        """That of so many."""
        return Cost(self.figure.scaled(count), self.unit, self.source)


INCLUDED = Cost(Interval.exact(0.0), "")


@dataclass(frozen=True, slots=True)
class Memory:
    """Where state lives. kind: hbm, dram, nvme, disk, cxl, unified. Capacity and cache in bytes (int).

    `rate` is shared by reads and writes; `read` and `write` are apart (NVMe); all three may be given.
    count : a striped set: rates, capacity, price and power multiply. at : the switch it attaches to without a link of
    its own.
    """

    name: str
    kind: str
    capacity: int | None = None
    rate: Rate | None = None
    read: Rate | None = None
    write: Rate | None = None
    cache: int = 0
    count: int = 1
    at: str | None = None
    source: str = ""
    price: Cost | None = None
    power: Cost | None = None


@dataclass(frozen=True, slots=True)
class Processor:
    """Where compute runs. kind: gpu, cpu. flops: number format -> rate. reads, writes: its own rate from its memory."""

    name: str
    kind: str
    memory: str
    flops: Mapping[str, Rate] = field(default_factory=dict)
    reads: Rate | None = None
    writes: Rate | None = None
    peer_to_peer: bool | None = None
    direct_storage: bool = False
    source: str = ""
    price: Cost | None = None
    power: Cost | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """A point where links meet and bytes cut through. kind: socket, pcie_switch, nvswitch, nic, chipset.

    reduces : it adds up what several send and copies the sum to all (an nvswitch only).
    """

    name: str
    kind: str = "socket"
    source: str = ""
    reduces: bool = False
    price: Cost | None = None
    power: Cost | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two nodes. `forward` goes from `a` to `b`; `backward` from `b` to `a`.

    technology : "pcie", "nvlink", "c2c", ...; generation and lanes where it is PCIe. latency [s] as (least, typical).
    half_duplex : both directions share one resource. assumed_symmetric : only one figure was given.
    """

    name: str
    a: str
    b: str
    forward: Rate
    backward: Rate
    technology: str = ""
    generation: int | None = None
    lanes: int | None = None
    latency: tuple[float, float] = (0.0, 0.0)
    half_duplex: bool = False
    assumed_symmetric: bool = False
    source: str = ""
    price: Cost | None = None
    power: Cost | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A cap that several link directions carry together; `over` lists links or LINK.DESTINATION."""

    name: str
    over: tuple[str, ...]
    rate: Rate
    source: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of a step: something finite. unit is "B" or "FLOP"; rates are per second.

    sustained : by kind of access ("" is any); `assumed` the accesses whose figure is a documented share.
    cache : bytes in front of a memory that may spare it loads each step. follows : the resource that was measured
    through this one and whose sustained rate it is assumed to have at least, where its own, `alone`, is less.
    """

    name: str
    kind: str
    unit: str
    peak: float | None
    sustained: Mapping[str, Interval]
    assumed: frozenset[str] = frozenset()
    cache: int = 0
    source: str = ""
    follows: str = ""
    alone: Interval | None = None

    def sustained_at(self, access: str) -> Interval | None:
        """The sustained rate for a kind of access, else for any access, else None."""
        return self.sustained.get(access, self.sustained.get(""))


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a route: what one byte that passes loads. uses: (resource, least, expected) per byte.

    A staging memory's port has least 0: a small bounce ring may stay in the processor's cache.
    latency [s] as (least, typical), summed over the links. way : links and switches between the ends, in order.
    """

    source: str
    destination: str
    links: tuple[str, ...]
    uses: tuple[tuple[str, float, float], ...]
    latency: tuple[float, float]
    way: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """From one memory to another: one stage, or several where host memory stages the copy."""

    stages: tuple[Stage, ...]

    @property
    def links(self) -> tuple[str, ...]:
        """The links that a byte crosses, in order."""
        return tuple(link for stage in self.stages for link in stage.links)

    @property
    def staged_in(self) -> tuple[str, ...]:
        """The host memories that stage the copy, in order; empty where it goes straight."""
        return tuple(stage.destination for stage in self.stages[:-1])


def not_alike(routes: Iterable[Route]) -> str:
    """What is wrong with a move to several whose ways differ in stages; "" where they have equally many."""
    routes = list(routes)
    if len({len(route.stages) for route in routes}) <= 1:
        return ""
    shown = "; ".join(dict.fromkeys(describe_route(route) for route in routes))
    return f"its ranks are not reached alike ({shown}). Move to each by a task of its own."


def describe_route(route: Route) -> str:
    """A route in words: "ssd0 -> m2 -> socket0 -> dram0 (staged) -> pcie0 -> hbm0".

    Links and switches stand where a byte passes them; the switch that it came from is not told twice.
    """
    words = [route.stages[0].source]
    for number, stage in enumerate(route.stages):
        way = list(stage.way)
        if number and way and route.stages[number - 1].way[-1:] == (way[0],):
            way = way[1:]
        last = number == len(route.stages) - 1
        words += [*way, stage.destination if last else f"{stage.destination} (staged)"]
    return " -> ".join(words)
