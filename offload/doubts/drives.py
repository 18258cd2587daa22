"""Doubts about drives and network cards: slots and uplinks that are slower, sets that are no stripe, one rate alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from offload.doubts.doubt import KEPT, Doubt
from offload.ranges import fold
from offload.topology import Memory, Rate, Topology
from offload.topology.shares import DRIVES
from offload.units import format_rate, format_rate_both, pcie_rate

SLACK = 1 + 1e-6
FASTEST = {"nvme": pcie_rate(5, 4), "disk": 1e9}  # of one drive: x4 of PCIe 5; SATA carries 0.6, SAS 1.2 (24 Gb/s: 2.4)
_RAID = re.compile(r"(?<![a-z0-9])(raid[ -_]?(?:1|5|6|10|z\d?)(?!\d)|mirror(?:ed)?)(?![a-z])", re.IGNORECASE)


def doubts_of_drives(topology: Topology) -> Iterator[Doubt]:
    """What of drives is probably not meant, beyond a single one that is faster than its links."""
    drives = [memory for memory in topology.memories.values() if memory.kind in DRIVES]
    for memory in drives:
        yield from _set(memory)
        yield from _one_rate(memory)
    yield from _uplinks(topology, drives)
    yield from _cards(topology)


def figure(rate: Rate | None) -> float | None:
    """What a drive is said to do: its data sheet, else what is measured, else its peak [B/s]."""
    if rate is None or rate.unknown:
        return None
    if rate.rated is not None:
        return rate.rated
    return max((interval.value for interval in rate.sustained.values()), default=rate.peak)


def _set(memory: Memory) -> Iterator[Doubt]:
    """A set of drives that is called a mirror or one with parity, or whose figures are those of the whole."""
    if memory.count == 1:
        return
    word = next(filter(None, map(_RAID.search, (memory.name, memory.source))), None)
    if word:
        yield Doubt(
            "raid", ("memories", memory.name),
            f'count: {memory.count} is a stripe (RAID 0): capacity, reads and writes multiply. "{word[0]}" is none: a '
            "mirror holds and writes what half of its drives do, parity takes a drive or two and slows small writes. "
            "Write the whole set with count: 1, its capacity, and its own read and write rates.",
            "keep it, where it is a stripe.", ("count",),
        )  # fmt: skip
    reads = figure(memory.read or memory.rate)
    if reads is not None and reads > FASTEST[memory.kind] * 1.001:
        each = format_rate(reads / memory.count, 3)
        yield Doubt(
            "raid", ("memories", memory.name),
            f"{format_rate(reads, 4)} is more than one drive reads ({format_rate(FASTEST[memory.kind], 4)} at most), "
            f"and count: {memory.count} multiplies it. Figures, capacity too, are of one drive: of a set of "
            f"{memory.count} that reads {format_rate(reads, 4)} in all, {each}.",
            KEPT, ("read",) if memory.read else ("rate",),
        )  # fmt: skip


def _one_rate(memory: Memory) -> Iterator[Doubt]:
    rate = memory.rate
    if memory.kind == "nvme" and rate is not None and not rate.unknown and memory.read is None and memory.write is None:
        shown = format_rate(figure(rate) or 0.0)
        yield Doubt(
            "one-rate", ("memories", memory.name),
            f"rate: {shown} is what its reads and writes share, so it writes as fast as it reads, and both at once "
            f"take from each other. Flash writes slower, far so once its cache is full. Write read: {shown} and write: "
            "its own figure, or write: unknown.",
            KEPT, ("rate",),
        )  # fmt: skip


def _uplinks(topology: Topology, drives: list[Memory]) -> Iterator[Doubt]:
    """Links and limits that several drives pass on their way to host memory, and that are slower than all of them."""
    hosts = [name for name in topology.memories if topology.ways.may_stage(name)]
    passing: dict[str, dict[str, float]] = {}
    for memory in drives:
        reads = figure(memory.read or memory.rate)
        if reads is None:
            continue
        distances = topology.ways.distances(memory.name)
        nearest = min((name for name in hosts if name in distances), key=distances.__getitem__, default=None)
        if nearest is not None:
            for stage in topology.route(memory.name, nearest).stages:
                for name, _, _ in stage.uses:
                    passing.setdefault(name, {})[memory.name] = reads * memory.count
    told: set[frozenset[str]] = set()
    for name, rates in sorted(passing.items()):
        resource, total = topology.resources[name], sum(rates.values())
        if resource.kind not in ("link", "limit") or resource.peak is None or len(rates) < 2:
            continue
        if max(rates.values()) <= resource.peak * SLACK < total and frozenset(rates) not in told:
            told.add(frozenset(rates))
            part = next((link for link in topology.links if name == link or name.startswith(f"{link}.")), name)
            section = "links" if part in topology.links else "limits"
            yield Doubt(
                "shared-uplink", (section, part),
                f"{fold(rates)} read {format_rate(total, 4)} together, and all pass {name}, which carries "
                f"{format_rate(resource.peak, 4)}: that binds, and more drives add nothing.",
                "keep it: the slower of the two counts.",
            )  # fmt: skip


def _cards(topology: Topology) -> Iterator[Doubt]:
    """Ports of a network card that carry more than the slots it is in."""
    for switch in topology.switches.values():
        links = topology.links_at(switch.name)
        peaks = {link.name: link.forward.peak for link in links}
        ports = [link for link in links if link.technology in ("ethernet", "infiniband") and peaks[link.name]]
        slots = [link for link in links if link.technology == "pcie"]
        if switch.kind != "nic" or not ports or not slots or None in [peaks[link.name] for link in slots]:
            continue
        out, into = (sum(peaks[link.name] or 0.0 for link in some) for some in (ports, slots))
        if out > into * 1.02:  # 400 Gb/s are 50 GB/s, and a slot's figure is after its encoding
            yield Doubt(
                "above-link", ("links", ports[0].name),
                f"{fold(link.name for link in ports)} carries {format_rate_both(out)}, and {switch.name} has "
                f"{format_rate_both(into)} in its slot ({fold(link.name for link in slots)}): that binds. Are bits "
                "meant, Gb/s, or a wider slot?",
                "keep it: the slower of the two counts.",
            )  # fmt: skip
