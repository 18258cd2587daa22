"""Doubts about a server: rates of both directions, idle links, DRAM beyond its platform, stripes beyond their uplink.

What published figures the limits are from stands beside each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import cast

from offload.doubts.doubt import KEPT, Doubt, unlike
from offload.doubts.widest import widest_way
from offload.ranges import fold
from offload.topology import Interval, Link, Memory, Rate, Topology
from offload.topology.confidence import what_ifs
from offload.topology.resources import directions
from offload.topology.shares import DRIVES
from offload.units import CHANNELS, format_bytes, format_rate, pcie_rate

SLACK = 1 + 1e-6  # figures that round apart are no contradiction
LINE_RATE = 0.999  # of the peak: framing and protocol take more than that from any copy
# Totals of both directions, as data sheets print them: the bridge of an RTX 3090 (2 x 56.25), NVLink 3, 4 and 5.
NVLINK_TOTALS = {112e9: "the bridge of an RTX 3090", 112.5e9: "the bridge of an RTX 3090", 600e9: "NVLink 3",
                 900e9: "NVLink 4 and C2C", 1800e9: "NVLink 5"}  # fmt: skip
PCIE_TOTALS = {32e9: 3, 64e9: 4, 128e9: 5, 256e9: 6}  # of 16 lanes, by generation
XGMI_TOTALS = {128e9: "an xGMI link of an MI300X", 896e9: "the xGMI links of an MI300X",
               512e9: "four xGMI links between sockets"}  # fmt: skip
IDLE_SPEEDS = {1: 2.5, 2: 5}  # GT/s that cards since PCIe 3 fall to, by generation
FEWEST_LANES = 8  # that a GPU's slot usually has; x4 and x1 are risers and adapters
SOCKET_CHANNELS = 12  # DDR5 channels of a socket: AMD EPYC 9005, Intel Xeon 6900P
FASTEST_MODULE = 10667.0  # MT/s: LPDDR5X
SOCKET_RATE = SOCKET_CHANNELS * 8800e6 * 8.0  # with the fastest modules they take, MRDIMM-8800 (Xeon 6900P)
SLOWEST_GPU_MEMORY = 300e9  # of GPUs with 32 GB or more; a unified memory of LPDDR5X has about 270
LARGE_GPU_MEMORY = 32e9
SAME = 0.02  # capacities and rates that differ by less are the same figure


def doubts_of_topology(topology: Topology) -> list[Doubt]:
    """What in a topology is probably not meant, in the order of its parts."""
    found: list[Doubt] = []
    for memory in topology.memories.values():
        found += _line_rate(("memories", memory.name), {"": memory.rate, "read": memory.read, "write": memory.write})
    found += _dram(topology)
    found += _drives(topology)
    found += _unified(topology)
    near = {processor.memory for processor in topology.processors.values() if processor.kind == "gpu"}
    for link in topology.links.values():
        found += _both_directions(link, near)
        found += _idle(topology, link, near)
        found += _no_kind(topology, link, near)
        found += _line_rate(("links", link.name), {"forward": link.forward, "backward": link.backward})
    found += _ways(topology)
    found += _what_ifs(topology)
    return found


def _what_ifs(topology: Topology) -> Iterator[Doubt]:
    """Parts with figures of what cannot be bought."""
    groups = {"memories": topology.memories, "processors": topology.processors, "links": topology.links,
              "limits": topology.limits}  # fmt: skip
    told: dict[tuple[str, str, str], None] = {}
    for note in what_ifs(topology):
        name, _, says = note.partition(": ")
        for section, parts in groups.items():
            part = name if name in parts else name.rpartition(".")[0]
            if part in parts:
                told[section, part, says] = None
    for section, part, says in told:
        yield Doubt("not-for-sale", (section, part), f"{says}.", "keep it: each result that uses it says so.")


def _both_directions(link: Link, near: set[str]) -> Iterator[Doubt]:
    """One figure for both directions of a link that says neither its generation nor a kind that rules it out."""
    peak = link.forward.peak
    if peak is None or not link.assumed_symmetric or link.generation is not None:
        return
    if link.technology in ("nvlink", "c2c") or (not link.technology and {link.a, link.b} <= near):
        known = {total: name for total, name in NVLINK_TOTALS.items() if math.isclose(peak, total, rel_tol=1e-3)}
        name = next(iter(known.values()), None)
    elif link.technology == "xgmi":
        name = XGMI_TOTALS.get(peak)
    elif link.technology in ("", "pcie"):
        generation = PCIE_TOTALS.get(peak)
        name = None if generation is None else f"PCIe {generation} x16"
    else:
        return
    if name is not None:
        yield Doubt(
            "both-directions",
            ("links", link.name),
            f"{format_rate(peak, 4)} one way is what data sheets give for both directions of {name} together: "
            f"one way is half of it. Write both_directions: {format_rate(peak, 4)}.",
            f"write forward: {format_rate(peak, 4)} and backward: {format_rate(peak, 4)}.",
        )


def _idle(topology: Topology, link: Link, near: set[str]) -> Iterator[Doubt]:
    """A GPU's PCIe link or a switch's at the speed that is read while it saves power, or a GPU's behind a riser."""
    uplink = link.generation == 1 and {link.a, link.b} <= topology.switches.keys()
    if link.technology not in ("pcie", "") or not (uplink or {link.a, link.b} & near):
        return
    place = ("links", link.name)
    lanes = cast(int, link.lanes)  # where it has a generation
    peak = min((rate.peak for rate in (link.forward, link.backward) if rate.peak is not None), default=None)
    if link.generation is None and not {link.a, link.b} <= near and peak is not None:
        idle = [(1, 16, SAME), (1, 8, SAME), (2, 16, SAME / 4)]  # 7.88 GB/s are PCIe 3 x8 and 4 x4, after encoding
        known = next((one[:2] for one in idle if math.isclose(peak, pcie_rate(*one[:2]), rel_tol=one[2])), None)
        if known is not None:
            yield Doubt("idle-link", place, f"{format_rate(peak)} {_idle_text(*known)}", KEPT)
    elif link.generation in IDLE_SPEEDS:
        says = f"PCIe {link.generation} x{link.lanes} {_idle_text(link.generation, lanes)}"
        yield Doubt("idle-link", place, says, KEPT, ("pcie",))
    elif link.generation is not None and lanes < FEWEST_LANES:
        rate = format_rate(pcie_rate(link.generation, lanes))
        text = f"PCIe {link.generation} x{link.lanes} carries {rate}: a GPU has that behind a riser or an adapter, "
        text += "or its link was read while idle. A slot has x8 or x16."
        yield Doubt("idle-link", place, text, KEPT)


def _no_kind(topology: Topology, link: Link, near: set[str]) -> Iterator[Doubt]:
    """A link from one GPU's memory to another's that does not say what it is: copies between them take no such link."""
    if link.technology or not {link.a, link.b} <= near or topology.ways.is_direct(link.a, link.b):
        return
    yield Doubt(
        "no-kind",
        ("links", link.name),
        f"it joins the GPUs of {link.a} and {link.b} and is of no kind, so it counts as PCIe: what they exchange goes "
        "by the host, and not over it. Write kind: nvlink or kind: xgmi; for PCIe between GPUs that copy to each "
        "other, peer_to_peer: true on both.",
        "write kind: pcie, for a link that carries nothing between them.",
    )


def _idle_text(generation: int, lanes: int) -> str:
    return (
        f"is what an idle link of {IDLE_SPEEDS[generation]} GT/s x{lanes} reports: links slow down to save power. "
        "Read it under load, or write the generation and lanes of slot and card, the lower of each: pcie: 4 x16."
    )


def _line_rate(place: tuple[str, str], rates: dict[str, Rate | None]) -> Iterator[Doubt]:
    for what, rate in rates.items():
        if rate is None or not rate.peak or not rate.sustained:
            continue
        best: Interval = max(rate.sustained.values(), key=lambda interval: interval.value)
        if best.value >= rate.peak * LINE_RATE:
            yield Doubt(
                "line-rate",
                place,
                f"sustained {format_rate(best.value, 4)}{f' ({what})' if what else ''} is the peak itself. No copy "
                "reaches it: packets and refresh take their share. Is it a measured rate?",
                "keep it, with its source; leave sustained out where it was not measured, and a usual share is taken.",
            )
            return


def _dram(topology: Topology) -> Iterator[Doubt]:
    """Host memory beyond what the channels of a socket can do; memories in one socket count together."""
    groups: dict[str, list[Memory]] = {}
    for memory in topology.memories.values():
        if memory.kind == "dram":
            groups.setdefault(memory.at or f"\n{memory.name}", []).append(memory)
    for socket, memories in groups.items():
        peaks = [memory.rate.peak * memory.count for memory in memories if memory.rate and memory.rate.peak]
        if sum(peaks) > SOCKET_RATE * SLACK:
            where = f"all at {socket}, " if len(memories) > 1 else ""
            total = format_rate(sum(peaks), 4)
            yield Doubt(
                "dram-rate",
                ("memories", memories[0].name),
                f"{where}{total} is more than a socket's {SOCKET_CHANNELS} channels of 8800 MT/s have, "
                f"{format_rate(SOCKET_RATE, 4)}. Slots, or both sockets, counted as channels? Bits for bytes? "
                "Write MT/s x channels that hold modules.",
                "keep it, with its source; a memory on the processor's package is of kind hbm.",
            )


def doubts_of_channels(written: Mapping[str, str]) -> list[Doubt]:
    """What is probably not meant in the rates of host memories as they are written, by name: "6000 MT/s x 2"."""
    found = []
    for name, text in written.items():
        match = CHANNELS.fullmatch(text.strip())
        if match is None:
            continue
        speed, channels = float(match[1]), int(match[2])
        if speed > FASTEST_MODULE:
            says = f"{speed:g} MT/s is faster than any module, LPDDR5X of {FASTEST_MODULE:g}. The figure in a module's "
            says += "name (DDR5-6000) is its MT/s already: no doubling."
            found.append(Doubt("dram-speed", ("memories", name), says, KEPT))
        if channels > SOCKET_CHANNELS:
            says = f"{channels} channels are more than the {SOCKET_CHANNELS} of a socket. Slots, modules or both "
            says += "sockets counted as channels? Write those of a socket that hold modules; each socket has a memory."
            found.append(Doubt("dram-channels", ("memories", name), says, KEPT))
    return found


def _drives(topology: Topology) -> Iterator[Doubt]:
    """Drives faster than every way from them to host memory or to a GPU: the links behind them bind."""
    for memory in topology.memories.values():
        if memory.kind not in DRIVES:
            continue
        for access, rate in (("reads", memory.read or memory.rate), ("writes", memory.write or memory.rate)):
            figure = _rated(rate)
            if figure is None:
                continue
            widest = widest_way(topology, memory.name, access == "reads", figure * memory.count)
            if widest is None or figure * memory.count <= widest[0] * SLACK:
                continue
            stripe = memory.count > 1
            each = f"{memory.count} x {format_rate(figure)} = " if stripe else ""
            own = widest[1] in _own_rows(topology, memory.name)
            text = f"{access} at {each}{format_rate(figure * memory.count, 4)}, and "
            text += f"{'its link' if own else widest[1]} carries {format_rate(widest[0], 4)}: the link binds."
            if stripe and own:
                text += f" Where each drive has a link like that, write count: {memory.count} on the link."
            elif not stripe:
                text += " Is it a drive of a newer generation than its slot?"
            yield Doubt("above-link", ("memories", memory.name), text, "keep it: the slower of the two counts.")
            break


def _own_rows(topology: Topology, memory: str) -> set[str]:
    """Names of the rows of the links that a memory hangs on."""
    links = topology.links_at(memory)
    return {name for link in links for name in (link.name, *(name for name, _, _ in directions(link)))}


def _rated(rate: Rate | None) -> float | None:
    """What a drive is said to do: its data sheet, else what is measured, else its peak [B/s]."""
    if rate is None or rate.unknown:
        return None
    if rate.rated is not None:
        return rate.rated
    return max((interval.value for interval in rate.sustained.values()), default=rate.peak)


def _unified(topology: Topology) -> Iterator[Doubt]:
    """A GPU's memory and the host's that look like one: the same size, and the same rate or one too low for a GPU."""
    near = {processor.memory for processor in topology.processors.values() if processor.kind == "gpu"}
    hosts = unlike(one for one in topology.memories.values() if one.kind == "dram" and one.name not in near)
    for name in topology.memories:
        memory = topology.memories[name]
        peak = memory.rate.peak if memory.rate else None
        if name not in near or memory.kind == "unified" or not memory.capacity or peak is None:
            continue
        for host in hosts:
            if not host.capacity or not math.isclose(memory.capacity, host.capacity * host.count, rel_tol=SAME):
                continue
            other = host.rate.peak if host.rate else None
            alike = other is not None and math.isclose(peak, other * host.count, rel_tol=SAME)
            if alike or (peak < SLOWEST_GPU_MEMORY and memory.capacity >= LARGE_GPU_MEMORY):
                yield Doubt(
                    "unified-twice",
                    ("memories", name),
                    f"it and {host.name} both hold {format_bytes(memory.capacity)}"
                    f"{f' at {format_rate(peak, 4)}' if alike else f', and {format_rate(peak, 4)} is slow for a GPU'}: "
                    "is it one memory that GPU and CPU share? Then its bytes and its rate count once, and nothing is "
                    "copied. Write one memory of kind unified with both processors in it.",
                    KEPT,
                )
                break


def _ways(topology: Topology) -> Iterator[Doubt]:
    """Memories that nothing can be moved to or from: GPUs' that no host memory or drive reaches, and drives."""
    ways = topology.ways
    near = {name: None for name in topology.memories if any(one.kind == "gpu" for one in ways.attached[name])}
    others = [name for name in topology.memories if name not in near]
    reached: set[str] = set()
    for name in sorted(others, key=lambda other: not ways.is_host(other)):
        # What is reached from one host memory is reached from each that it reaches.
        if not reached.issuperset(near) and not (name in reached and ways.is_host(name)):
            reached |= ways.reachable(name)
    for name in near if others else ():
        if name not in reached:
            yield Doubt(
                "no-way",
                ("memories", name),
                f"no link leads to it from any other memory ({fold(others)}): nothing can be moved there. Add the "
                f"link, as pcie0: {{between: [socket0, {name}], pcie: 4 x16}}, and at: socket0 on the host's memory.",
                "keep it: plans can use it by itself.",
            )
    for name in others:
        if topology.memories[name].kind in DRIVES and not ways.distances(name):
            yield Doubt(
                "no-way",
                ("memories", name),
                "no link leads from it to any other memory: nothing can be read from it or written to it. Add the "
                f"link, as m2: {{between: [{name}, socket0], pcie: 4 x4}}, to where a host memory is (at: socket0).",
                "remove it: no plan can use it.",
            )
