"""Measured rates on a topology: what becomes a sustained rate, what a limit, what contradicts a peak, what is left out.

A rate of one transfer alone is the sustained rate of the device's own link (or memory, or drive); what lies between
sustains at least that. Transfers that ran together, and the two directions of a link at once, become limits over the
links concerned. A rate above the peak of anything on its way is a contradiction and is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from offload.importing.ends import Ends
from offload.importing.named_drives import how_to_name
from offload.importing.notes import Notes, Told, where
from offload.importing.together import limits_of
from offload.readers.tools.finding import Delay, Finding, Measured, describe_rate
from offload.topology import Interval, Link, Rate, Route, Topology
from offload.topology.checks import LONGEST_LATENCY, SLACK
from offload.units import format_rate, format_seconds

DIRECT = ("nvlink", "xgmi", "c2c")
SLOW = ("pageable", "zero_copy")  # kinds of access that are slow by themselves
DOUBTFUL = 4  # links and memories sustain half of their peak and more; what is below a quarter has another cause
# Figures that differ by less are the same: of the alike pairs of one p2pBandwidthLatencyTest on eight H100s, those of a
# row lie up to 0.5 % apart and whole rows 4 %.
SAME = 0.02
DIFFERENT = 0.1  # two tools that differ by more are told
Key = tuple[str, str, str]  # part, "forward", "backward", "rate", "read" or "write", kind of access


def with_rates(
    topology: Topology, findings: Sequence[Finding], notes: Notes, estimates: Sequence[Finding] = ()
) -> Topology:
    """The topology with what was measured in place of its sustained rates; everything else as it is.

    estimates : latencies that were fitted, for links that have none, measured or stated.
    """
    return _Rates(topology, notes).applied(findings, estimates)


class _Rates:
    def __init__(self, topology: Topology, notes: Notes):
        self.topology, self.notes, self.ends = topology, notes, Ends(topology)
        self.links = dict(topology.links)
        self.memories = dict(topology.memories)
        self.limits = dict(topology.limits)
        self.alone: dict[Key, list[Told]] = {}
        self.ways: dict[Key, Route] = {}
        self.together: list[Told] = []
        self.delays: dict[str, list[float]] = {}
        self.delay_origins: dict[str, str] = {}
        self.delay_notes: dict[str, str] = {}

    def applied(self, findings: Sequence[Finding], estimates: Sequence[Finding]) -> Topology:
        for finding in findings:
            for measured in finding.rates:
                self.sort(Told(measured, finding))
        found: dict[tuple[str, str], float] = {}
        for key, told in self.alone.items():
            interval = self.write(key, told)
            part, side, access = key
            if interval is not None and access in ("", "pinned"):
                found[part, side] = interval.value
        self.limits |= limits_of(self.topology, self.ends, self.together, found, self.notes)
        for finding in findings:
            for delay in finding.delays:
                self.delay(delay, finding)
        self.notes.close()
        for name, seconds in self.delays.items():
            link, typical = self.links[name], median(seconds)
            self.links[name] = replace(link, latency=(min(link.latency[0], typical), typical))
            self.notes.wrote(f"{name} latency", format_seconds(typical), self.delay_origins[name])
        of_links = set(self.delays)
        self.delays, self.delay_origins, self.delay_notes = {}, {}, {}
        for finding in estimates:
            for delay in finding.delays:
                self.delay(delay, finding)
        for name, seconds in self.delays.items():
            self.estimate(name, median(seconds), of_links)
        self.notes.close()
        one = self.topology
        return Topology.build(
            name=one.name, title=one.title, memories=self.memories.values(), processors=one.processors.values(),
            switches=one.switches.values(), links=self.links.values(), limits=self.limits.values(), source=one.source,
            assumptions=one.stated, price=one.price, power=one.power,
        )  # fmt: skip

    # Which part a rate is about

    def sort(self, told: Told) -> None:
        measured = told.measured
        if measured.operation:
            return None  # what it proves: collective_rates
        if measured.when != "alone" or self.is_plural(measured):
            self.together.append(told)
            return None
        source, destination = (self.place(end) for end in (measured.source, measured.destination))
        if source is None or destination is None:
            missing = measured.source if source is None else measured.destination
            if self.ends.kind(missing) == "drive":
                return self.left_out(told, how_to_name(missing, self.topology, told.finding.file))
            return self.left_out(told, f"which memory here {missing} is, is not known")
        if measured.source == measured.destination:
            return self.local(told, source)
        kinds = {self.ends.kind(measured.source), self.ends.kind(measured.destination)}
        if "drive" in kinds:
            return self.drive(told, source, destination)
        way = self.ends.route(source, destination)
        if way is None:
            return self.left_out(told, "no way leads there in this topology")
        if self.is_beyond_peak(told, way):
            return None
        return self.transfer(told, way, kinds)

    def is_plural(self, measured: Measured) -> bool:
        return any(end in ("gpus", "hosts", "drives") for end in (measured.source, measured.destination))

    def place(self, end: str) -> str | None:
        """A memory's name, or "host"."""
        if end == "host":
            return "host" if self.ends.hosts else None
        return self.ends.memory(end)

    def left_out(self, told: Told, why: str) -> None:
        self.notes.many(told, why)

    def local(self, told: Told, memory: str) -> None:
        """A memory's own rate: STREAM on the host, a copy inside a GPU."""
        if memory == "host":
            if len(self.ends.hosts) > 1:
                return self.left_out(told, "it is of all host memories together, or of one that is not named: "
                                           "a run bound to each tells them")
            memory = self.ends.hosts[0]
        own = self.memories[memory].rate
        peak = own.peak if own else None
        if peak is not None and told.measured.rate > peak * self.memories[memory].count * SLACK:
            return self.beyond(told, memory, peak * self.memories[memory].count)
        if told.measured.note and "copy engine" in told.measured.note:
            return self.left_out(told, "a copy engine's copy inside a GPU is slower than its memory")
        return self.take((memory, "rate", told.measured.access), told)

    def drive(self, told: Told, source: str, destination: str) -> None:
        is_read = self.ends.kind(told.measured.source) == "drive"
        drive = source if is_read else destination
        if self.memories[drive].count > 1 and told.measured.streams != self.memories[drive].count:
            return self.left_out(told, f"{drive} is a stripe of {self.memories[drive].count}: whether one drive or the "
                                       "stripe was measured is not told")  # fmt: skip
        way = self.ends.route(source, destination)
        if way is not None and self.is_beyond_peak(told, way):
            return None
        return self.take((drive, "read" if is_read else "write", ""), told)

    def transfer(self, told: Told, way: Route, kinds: set[str]) -> None:
        """A copy between host and GPU, between GPUs or between host memories."""
        directions = list(self.directions(way))
        technologies = {link.technology for link, _ in directions}
        access = told.measured.access
        if kinds == {"gpu"} and _is_staged(told.measured.note):
            linked = len(way.stages) == 1 and technologies <= set(DIRECT)
            though = ", though the GPUs are linked here" if linked else ""
            return self.left_out(told, f"it was staged in host memory{though}")
        if kinds == {"gpu"}:
            if len(way.stages) > 1 or not technologies <= set(DIRECT):
                return self.left_out(told, "it goes over links that copies from and to the host measure")
            for link, side in directions:
                self.take((link.name, side, access), told, way)
            return None
        if kinds == {"host"}:
            for link, side in directions:
                self.take((link.name, side, ""), told, way)
            return None
        gpu = way.stages[-1].destination if self.ends.kind(told.measured.destination) == "gpu" else way.stages[0].source
        host = way.stages[0].source if gpu != way.stages[0].source else way.stages[-1].destination
        if host != self.ends.nearest_host(gpu):
            return self.left_out(told, f"it is from or to {host}, which is not the host memory nearest to {gpu}")
        for link, side in directions:
            if gpu in (link.a, link.b):
                self.take((link.name, side, access), told, way)
        return None

    def directions(self, way: Route) -> Iterator[tuple[Link, str]]:
        """The links of a way and which of their directions it takes."""
        for stage in way.stages:
            nodes = {name for name, _, _ in stage.uses}
            for name in stage.links:
                link = self.topology.links[name]
                is_forward = link.half_duplex or f"{name}.{link.b}" in nodes
                if not is_forward and f"{name}.{link.a}" not in nodes:  # a rate that is unknown has no row
                    spot = stage.way.index(name) if name in stage.way else -1
                    after = stage.way[spot + 1] if 0 <= spot < len(stage.way) - 1 else stage.destination
                    is_forward = after == link.b
                yield link, "forward" if is_forward else "backward"

    def take(self, key: Key, told: Told, way: Route | None = None) -> None:
        self.alone.setdefault(key, []).append(told)
        if way is not None:
            self.ways.setdefault(key, way)

    # Against peaks

    def is_beyond_peak(self, told: Told, way: Route) -> bool:
        for stage in way.stages:
            for name, least, _ in stage.uses:
                peak = self.topology.resources[name].peak
                if peak is not None and told.measured.rate * least > peak * SLACK:
                    self.beyond(told, name, peak / least)
                    return True
        return False

    def beyond(self, told: Told, name: str, peak: float) -> None:
        self.notes.many(told, f"above the peak of {name}, {format_rate(peak, 4)}, which nothing exceeds: it is not "
                              "written. The link is wider than the topology says, or the figure counts both directions "
                              "or another unit", contradicts=True)  # fmt: skip

    # Into the topology

    def write(self, key: Key, told: list[Told]) -> Interval | None:
        part, side, access = key
        best, interval = self.best(told)
        if self.is_doubtful(key, best, interval.value):
            return None
        source = f"measured{f' {access}' if access else ''}: {best.finding.tool}, {describe_rate(best.measured)}"
        if part in self.links:
            link = self.links[part]
            self.links[part] = with_side(link, side, rated(getattr(link, side), access, interval, source))
            if key in self.ways:
                self.at_least(key, interval, best)
        else:
            memory = self.memories[part]
            count = memory.count
            each = interval.scaled(1 / count)
            rate = rated(getattr(memory, side) or Rate(source=memory.source), access, each, source)
            change: dict[str, Any] = {side: rate}
            self.memories[part] = replace(memory, **change)
        over = self.topology.links.get(part)
        name = part if side == "rate" else f"{part}.{side}"
        if over is not None:
            name = f"{part}.{over.b if side == 'forward' else over.a}"
        shown = format_rate(interval.value)
        low, high = format_rate(interval.low), format_rate(interval.high)
        if {low, high} != {shown}:
            shown += f" ({low} to {high})"
        self.notes.wrote(f"{name} sustained{f' {access}' if access else ''}", shown, best.origin)
        return interval

    def is_doubtful(self, key: Key, told: Told, value: float) -> bool:
        """Tell a rate far below its peak; True where it went another way than over this link and is not written."""
        part, side, access = key
        link, memory = self.links.get(part), self.memories.get(part)
        rate = getattr(link if link is not None else memory, side)
        peak = rate.peak if rate is not None else None
        if peak is None or access in SLOW or value >= peak * (1 if memory is None else memory.count) / DOUBTFUL:
            return False
        below = f"is less than a quarter of the peak of {part}, {format_rate(peak, 4)}"
        if link is not None and link.technology in DIRECT:
            self.notes.many(told, f"{below}: it went another way (peer access is off, or over PCIe), or the machine is "
                                  "another one: it is not written", contradicts=True)  # fmt: skip
            return True
        self.notes.many(told, f"{below}: it is written, but look whether the link was idle or narrow, transfers were "
                              "small, or the machine is another one", contradicts=True)  # fmt: skip
        return False

    def best(self, told: list[Told]) -> tuple[Told, Interval]:
        """The conditions that gave most, as the middle of their figures with their ends."""
        groups: dict[object, list[Told]] = {}
        for one in told:
            measured = one.measured
            key = (id(one.finding), measured.size, measured.depth, measured.streams, measured.threads,
                   measured.note)  # fmt: skip
            groups.setdefault(key, []).append(one)
        middles = {key: median(one.measured.rate for one in group) for key, group in groups.items()}
        chosen = max(middles, key=lambda key: middles[key])
        group = groups[chosen]
        for other in {key[0] for key in groups} - {chosen[0]}:  # type: ignore[index]
            theirs = max((key for key in groups if key[0] == other), key=lambda key: middles[key])  # type: ignore[index]
            if middles[theirs] < middles[chosen] * (1 - DIFFERENT):
                self.notes.contradict(f"{groups[theirs][0].words}, yet {group[0].words}: the higher is taken")
        figures = [one.measured for one in group]
        middle = middles[chosen]
        low = min(one.rate if one.low is None else one.low for one in figures)
        high = max(one.rate if one.high is None else one.high for one in figures)
        return group[0], Interval(min(low, middle), middle, max(high, middle))

    def at_least(self, key: Key, interval: Interval, told: Told) -> None:
        """What lies between sustains what was measured through it, if it is said to sustain less or nothing."""
        access = key[2]
        for link, side in self.directions(self.ways[key]):
            if link.name == key[0] or (link.name, side, access) in self.alone:
                continue
            link = self.links[link.name]
            rate: Rate = getattr(link, side)
            stated = rate.sustained.get(access, rate.sustained.get("", rate.sustained.get("pinned")))
            if rate.unknown or (stated is not None and stated.value >= interval.value):
                continue
            if rate.peak is not None and interval.high > rate.peak * SLACK:
                continue
            where_to = link.b if side == "forward" else link.a
            if stated is not None and interval.value > stated.value * (1 + SAME):
                self.notes.contradict(f"{link.name}.{where_to}: sustains {format_rate(stated.value)}, yet {told.words} "
                                      "went through it: raised to that")  # fmt: skip
            elif stated is not None:
                self.notes.assume(f"{link.name}.{where_to}: raised from {format_rate(stated.value, 4)} to "
                                  f"{format_rate(interval.value, 4)}, which went through it; measurements differ by "
                                  f"{SAME:.0%}")  # fmt: skip
            else:
                self.notes.assume(f"{link.name}.{where_to}: sustains at least what was measured through it")
            source = f"at least what was measured through it for {key[0]} (derived)"
            raised = rated(rate, access, interval, source)
            self.links[link.name] = with_side(link, side, raised)

    # Delays

    def estimate(self, name: str, typical: float, measured: set[str]) -> None:
        """A link's latency as fitted, if it has none."""
        link, origin = self.links[name], self.delay_origins[name]
        if name in measured or link.latency[1] > 0:
            kept = format_seconds(link.latency[1])
            kind = ("estimate", name, name in measured)
            text = f"{origin}: a latency of {format_seconds(typical)} was fitted for {name}, whose own, {kept}, is kept"
            return self.notes.gather(kind, text)
        note = self.delay_notes[name].removeprefix("fitted: ")
        source = "; ".join([*filter(None, [link.source]), f"latency: an estimate, {note} (derived)"])
        self.links[name] = replace(link, latency=(0.0, typical), source=source)
        self.notes.wrote(f"{name} latency, an estimate: fitted", format_seconds(typical), origin)
        return None

    def delay(self, delay: Delay, finding: Finding) -> None:
        shown = f"{where(finding, delay.line)}: latency {delay.source} to {delay.destination}"
        kind = (id(finding), delay.source, delay.destination)
        source, destination = (self.place(end) for end in (delay.source, delay.destination))
        if source is None or destination is None or source == destination or delay.when != "alone":
            why = "a topology has latencies of links, of one transfer alone"
            return self.notes.gather((*kind, why), f"{shown}: {why}")
        kinds = [self.ends.kind(end) for end in (delay.source, delay.destination)]
        way = self.ends.route(source, destination)
        links = [] if way is None else [link for link, _ in self.directions(way)]
        if kinds == ["gpu", "gpu"] and {link.technology for link in links} <= set(DIRECT) and links:
            own = links
        else:
            mine = [end for end, kind in zip((source, destination), kinds, strict=True) if kind in ("gpu", "drive")]
            own = [link for link in links if set(mine) & {link.a, link.b}] if kinds.count("host") == 1 else []
        if _is_staged(delay.note) or "CPU sees" in delay.note or "_sm" in delay.note:
            why = f"{delay.note}: it is not that of a copy over the link"
            return self.notes.gather((*kind, why), f"{shown}: {why}")
        if not own or not 0 < delay.seconds <= LONGEST_LATENCY:
            why = "no link here has it as its own"
            return self.notes.gather((*kind, why), f"{shown}: {format_seconds(delay.seconds)}: {why}")
        for link in own:
            self.delays.setdefault(link.name, []).append(delay.seconds / len(own))
            self.delay_origins.setdefault(link.name, where(finding, delay.line))
            self.delay_notes.setdefault(link.name, delay.note)
        return None


def _is_staged(note: str) -> bool:
    """Whether a reader notes that a copy between GPUs went through host memory."""
    return "staged" in note or "P2P disabled" in note


def rated(rate: Rate, access: str, interval: Interval, source: str) -> Rate:
    """A rate with a measured figure in place of its own for a kind of access; a file says any access alone."""
    kept = dict(rate.sustained)
    if access == "" and "pinned" in kept:
        access = "pinned"
    if access and "" in kept and access != "pinned":
        kept = {one or "pinned": figure for one, figure in kept.items()}
    if access == "pinned":
        kept.pop("", None)
    if access == "" and kept:
        kept.pop("", None)
        access = "pinned"
    label = source.partition(":")[0]  # of what is replaced nothing is told
    sources = [text for text in rate.source.split("; ") if text.partition(":")[0] != label or "measured" not in label]
    return replace(rate, sustained=kept | {access: interval}, unknown=False, source="; ".join([*sources, source]))


def with_side(link: Link, side: str, rate: Rate) -> Link:
    """A link with another rate in one direction, "forward" or "backward"."""
    if link.half_duplex:
        return replace(link, forward=rate, backward=rate)
    change: dict[str, Any] = {side: rate}
    changed = replace(link, **change)
    return replace(changed, assumed_symmetric=link.assumed_symmetric and changed.forward == changed.backward)

