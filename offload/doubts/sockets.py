"""Doubts about sockets: where their host memory is, which modules fill its channels, how many PCIe lanes they have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import cast

from offload.doubts.cards import desktop_word
from offload.doubts.doubt import KEPT, Doubt
from offload.doubts.written import Written
from offload.ranges import fold
from offload.topology import Link, Memory, Topology
from offload.units import format_bytes, format_rate, pcie_rate

DESKTOP_CHANNELS = 2  # of AM4, AM5 and LGA 1700, however many slots
DESKTOP_LANES = 28  # of AM5: 24 that can be used and 4 to the chipset; LGA 1700 has 20 and 8
SOCKET_LANES = 136  # of a Xeon 6 in a single socket; EPYC has 128
MOST_CHANNELS = 12  # of a socket: EPYC 9004 and 9005, Xeon 6900P
ODD_CHANNELS = frozenset({5, 7, 9, 10, 11})  # that no socket has: they are 1 to 4, 6, 8 and 12
MODULES = (8, 16, 32, 64, 128, 256)  # GiB: modules with powers of two, the usual ones
PER_CHANNEL = frozenset(size * fill for size in (*MODULES, 24, 48, 96) for fill in (1, 2, 3)) | {4}  # modules alike
SAME = 1e-3  # figures that differ by less are the same
RESERVED = 0.1  # of a node's memory: the system sets aside more at one socket than at another
_MODULE = re.compile(r"\bDDR[345]-?(\d{4,5})\b", re.IGNORECASE)
_TWO = re.compile(r"\b(?:2|two|dual)[ -]?(?:x )?(?:sockets?|xeons?|epycs?|cpus?|processors)\b", re.IGNORECASE)
_KEPT_MODULES = "keep it, where the modules are fitted like that."


def doubts_of_sockets(topology: Topology, written: Written) -> Iterator[Doubt]:
    """What of sockets and host memory is probably not meant. written : what the file says in words."""
    yield from _placed(topology)
    yield from _apart(topology)
    desktop = desktop_word(topology)
    yield from _channels(topology, written, desktop)
    yield from _uneven(topology, written)
    yield from _lanes(topology, desktop)


def _host(topology: Topology) -> dict[str, Memory]:
    return {name: memory for name, memory in topology.memories.items()
            if memory.kind == "dram" and topology.ways.is_host(name)}  # fmt: skip


def _at(topology: Topology, name: str) -> set[str]:
    """The sockets that a memory is at, or has links to."""
    ends = [topology.memories[name].at, *(end for link in topology.links_at(name) for end in (link.a, link.b))]
    return {end for end in ends if end and end in topology.switches and topology.switches[end].kind == "socket"}


def _placed(topology: Topology) -> Iterator[Doubt]:
    """Host memory of several sockets that is at none of them, at one of them, or at all."""
    sockets = [one.name for one in topology.switches.values() if one.kind == "socket"]
    host = _host(topology)
    if len(sockets) < 2:
        said = _TWO.search(topology.title)
        if said and len(host) == 1:
            name = next(iter(host))
            yield Doubt(
                "no-numa", ("memories", name),
                f'the title says "{said[0]}", and {name} is all host memory there is. Half of it is remote to each '
                "socket and reached over the link between them. Write two sockets, a memory at each (dram0..1, at: "
                "socket0..1) and the link (kind: upi or xgmi); the rate is of one socket.",
                "keep it, where only one socket is meant.",
            )  # fmt: skip
        return
    at = {name: _at(topology, name) for name in host}
    linked = {end for link in topology.links.values() for end in (link.a, link.b)}
    each = "Write a memory for each socket, as dram0..1 with at: socket0..1, with the channels and the size of one."
    for name, found in at.items():
        if not found and name not in linked and host[name].at is None:
            yield Doubt(
                "no-numa", ("memories", name),
                f"there are {len(sockets)} sockets ({fold(sockets)}), and it is at none of them. What is remote "
                f"passes the link between them, and is slower. {each}",
                "keep it, where nothing is to be moved to or from it.", ("at",),
            )  # fmt: skip
        elif len(found) > 1:
            yield Doubt(
                "no-numa", ("memories", name),
                f"it is at {len(found)} sockets ({fold(found)}) at once, so nothing in it is remote to any. Memory "
                f"belongs to one socket; the other reaches it over the link between them. {each}",
                KEPT,
            )  # fmt: skip
    held = {socket for name in topology.memories if topology.ways.may_stage(name) for socket in _at(topology, name)}
    bare = [socket for socket in sockets if socket not in held]
    here = [name for name, found in at.items() if len(found) == 1]
    if held and bare and here:
        yield Doubt(
            "no-numa", ("memories", here[0]),
            f"all host memory is at {fold(held)}, and none at {fold(bare)}. Is it that of all sockets, drawn at one? "
            f"{each}",
            f"keep it, where {fold(bare)} {'has' if len(bare) == 1 else 'have'} no modules.", ("at",),
        )  # fmt: skip


def _apart(topology: Topology) -> Iterator[Doubt]:
    """Host memories that no way joins."""
    linked = {end for link in topology.links.values() for end in (link.a, link.b)}
    names = [name for name, memory in _host(topology).items() if memory.at is not None or name in linked]
    first = names[0] if names else ""
    reached = topology.ways.reachable(first) if names else set()
    lost = [name for name in names[1:] if name not in reached]
    if lost:
        yield Doubt(
            "sockets-apart", ("memories", lost[0]),
            f"no way leads from {first} to {fold(lost)}: a plan that has bytes at one and computes at the other is "
            "refused. Sockets are joined: add the link, as upi0: {between: [socket0, socket1], kind: upi, rate: ...}, "
            "with its rate one way.",
            "keep it, where they are machines apart.",
        )  # fmt: skip


def _channels(topology: Topology, written: Written, desktop: str) -> Iterator[Doubt]:
    """Channels that a desktop or any socket has not, and modules slower than what is written."""
    for name, memory in _host(topology).items():
        peak = memory.rate.peak if memory.rate else None
        speed, channels = written.channels.get(name, (0.0, 0))
        if desktop and channels > DESKTOP_CHANNELS:
            yield Doubt(
                "dram-channels", ("memories", name),
                f'{channels} channels, and "{desktop}" is a desktop, whose {DESKTOP_CHANNELS} channels serve all its '
                f"slots. Slots or modules counted as channels? Write {speed:g} MT/s x {DESKTOP_CHANNELS}, at the speed "
                "that is configured: four modules seldom run at that of two.",
                KEPT, ("rate",),
            )  # fmt: skip
        elif desktop and not channels and peak and peak > DESKTOP_CHANNELS * 8 * 10667e6:
            yield Doubt(
                "dram-rate", ("memories", name),
                f'{format_rate(peak)} is more than the two channels of a desktop ("{desktop}") have with any module. '
                "Write MT/s x channels: 6000 MT/s x 2.",
                KEPT, ("rate",),
            )  # fmt: skip
        elif channels in ODD_CHANNELS:
            below = max(one for one in (4, 6, 8) if one < channels)
            yield Doubt(
                "dram-channels", ("memories", name),
                f"{channels} channels are what no socket has: 2, 4, 6, 8 or 12. Are {channels} modules meant, of both "
                f"sockets or with a channel left empty? Addresses interleave over channels that are filled alike, so "
                f"much of it runs on fewer; write those of one socket, as {speed:g} MT/s x {below}.",
                _KEPT_MODULES, ("rate",),
            )  # fmt: skip
        named = [float(figure) for text in (memory.source, topology.title) for figure in _MODULE.findall(text)]
        named += [float(figure) for figure in _MODULE.findall(memory.rate.source if memory.rate else "")]
        if speed and named and speed > max(named) * (1 + SAME):
            yield Doubt(
                "dram-speed", ("memories", name),
                f"{speed:g} MT/s, and the modules that are named are of {max(named):g}. Channels run at what is "
                "configured, the lowest of what modules, processor and board allow (dmidecode -t memory tells it).",
                KEPT, ("rate",),
            )  # fmt: skip


def _uneven(topology: Topology, written: Written) -> Iterator[Doubt]:
    """Capacities that no equal modules give on the channels that are written; sockets that are filled differently."""
    for name, (_, channels) in written.channels.items():
        memory = topology.memories.get(name)
        usual = channels <= MOST_CHANNELS and channels not in ODD_CHANNELS  # else that is told
        found = usual and memory and memory.capacity and _modules(memory.capacity, channels)
        if found:
            count, size, unit = found
            yield Doubt(
                "dram-uneven", ("memories", name),
                f"{count * size} {unit} are {count} modules of {size} {unit}, and it has {channels} channels: "
                "not each holds one, so much of it runs on fewer. The channels of a rate are those that hold modules.",
                _KEPT_MODULES, ("capacity",),
            )  # fmt: skip
    host = {name: memory for name, memory in _host(topology).items() if len(_at(topology, name)) == 1}
    sockets = [next(iter(_at(topology, name))) for name in host]
    if len(host) < 2 or len(set(sockets)) < len(sockets) or _machines(topology):
        return
    first, *others = host.values()
    for memory in others:
        room, its_room = first.capacity, memory.capacity
        peak, its_peak = (one.rate.peak if one.rate else None for one in (first, memory))
        what: tuple[Callable[[float], str], float, float] | None = None
        if room is not None and its_room is not None and not math.isclose(room, its_room, rel_tol=RESERVED):
            what = format_bytes, room, its_room
        if peak is not None and its_peak is not None and not math.isclose(peak, its_peak, rel_tol=SAME):
            what = format_rate, peak, its_peak
        if what is not None:
            show, one, other = what
            yield Doubt(
                "dram-uneven", ("memories", memory.name),
                f"it has {show(other)}, and {first.name} {show(one)}. Are modules missing at a socket? Work that is "
                "spread over both waits for the slower one.",
                _KEPT_MODULES, ("capacity" if show is format_bytes else "rate",),
            )  # fmt: skip
            return


def _machines(topology: Topology) -> bool:
    """Whether sockets meet over a network: machines of their own, which may differ."""
    nets = {"ethernet", "infiniband"}
    return any(link.technology in nets for link in topology.links.values()) and not any(
        link.technology in ("upi", "xgmi") for link in topology.links.values()
    )


def _modules(capacity: int, channels: int) -> tuple[int, int, str] | None:
    """Fewer modules than channels that make a capacity (count, size of each, unit), where channels alike cannot.

    Capacities in GB are taken as what modules are sold by as well.
    """
    for unit, name in ((2**30, "GiB"), (10**9, "GB")):
        if capacity % unit:
            continue
        size = capacity // unit
        if size % channels == 0 and size // channels in PER_CHANNEL:
            return None
        for module in reversed(MODULES):
            if size % module == 0 and channels // 2 < size // module < channels:
                return size // module, module, name
    return None


def _lanes(topology: Topology, desktop: str) -> Iterator[Doubt]:
    """PCIe links of a socket that have more lanes together than it."""
    most = DESKTOP_LANES if desktop else SOCKET_LANES
    for switch in topology.switches.values():
        if switch.kind != "socket":
            continue
        links = [link for link in topology.links_at(switch.name) if link.lanes]
        total = sum(_count(link) * (link.lanes or 0) for link in links)
        if total > most:
            of = f'a desktop\'s socket ("{desktop}") has {most}, 16 of them for all its GPUs' if desktop else \
                f"no socket has more than {most}"  # fmt: skip
            widest = max(links, key=lambda link: link.lanes or 0)
            yield Doubt(
                "socket-lanes", ("links", widest.name),
                f"the PCIe links of {switch.name} have {total} lanes together ({fold(link.name for link in links)}), "
                f"and {of}. Slots that are x16 by their form have x8 or x4 when others are used, or hang from the "
                "chipset or a switch: write their lanes, and the switch with its uplink.",
                KEPT, ("pcie",),
            )  # fmt: skip


def _count(link: Link) -> int:
    """How many links of its width stand side by side in one."""
    peak = link.forward.peak
    own = pcie_rate(cast(int, link.generation), cast(int, link.lanes))  # it has lanes
    return max(1, round(peak / own)) if peak else 1
