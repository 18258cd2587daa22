"""Transfers that ran together, and both directions at once, as limits over the links concerned.

Copies between the host and several GPUs at once become a limit for each socket's GPUs, where each GPU's rate is told,
else, and where each socket has one GPU, one over all; both directions of a link at once a limit over that link. What is
no slower than alone limits nothing and is left out, as is a sum above what the links' peaks allow, a contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from offload.importing.ends import Ends
from offload.importing.notes import Notes, Told
from offload.ranges import fold
from offload.readers.tools.finding import ADDED, describe_rate
from offload.topology import Interval, Limit, Rate, Topology
from offload.topology.checks import SLACK
from offload.topology.resources import directions, directions_over
from offload.units import format_rate

AS_ALONE = 0.98  # together is no slower than alone: what is left is how measurements differ
Alone = Mapping[tuple[str, str], float]  # (link, "forward" or "backward") -> sustained rate alone
SIDES = ("forward", "backward")


def limits_of(
    topology: Topology, ends: Ends, told: Sequence[Told], alone: Alone, notes: Notes
) -> dict[str, Limit]:
    """Limits by name, new ones and those of the topology that are measured anew."""
    return _Together(topology, ends, alone, notes).limits(told)


class _Together:
    def __init__(self, topology: Topology, ends: Ends, alone: Alone, notes: Notes):
        self.topology, self.ends, self.alone, self.notes = topology, ends, alone, notes
        self.found: dict[str, Limit] = {}

    def limits(self, told: Sequence[Told]) -> dict[str, Limit]:
        both: dict[tuple[object, ...], dict[str, dict[str, list[Told]]]] = {}
        groups: dict[tuple[object, ...], list[Told]] = {}
        for one in told:
            measured = one.measured
            kinds = (self.ends.kind(measured.source), self.ends.kind(measured.destination))
            conditions = (id(one.finding), measured.access, measured.size, measured.depth)
            if "count otherwise" in measured.note:
                self.notes.many(one, "a kernel's both directions are no sum of rates")
            elif kinds in (("host", "gpu"), ("gpu", "host")):
                out = kinds[0] == "gpu"
                if measured.when == "both directions":
                    gpu = measured.source if out else measured.destination
                    sides = both.setdefault(conditions, {}).setdefault(gpu, {})
                    sides.setdefault("out" if out else "in", []).append(one)
                else:
                    groups.setdefault((*conditions, out), []).append(one)
            elif kinds in (("drive", "host"), ("host", "drive"), ("drive", "gpu"), ("gpu", "drive")):
                self.drives(one, kinds[0] == "drive")
            else:
                self.notes.many(one, "no limit is made of transfers between GPUs or memories together")
        for key, group in groups.items():
            self.gpus(group, bool(key[-1]))
        for gpus in both.values():
            for gpu, sides in gpus.items():
                self.both(gpu, sides)
        return self.found

    # Several GPUs at once

    def gpus(self, told: list[Told], out: bool) -> None:
        members: dict[str, list[Told]] = {}
        for one in told:
            end = one.measured.source if out else one.measured.destination
            members.setdefault(end, []).append(one)
        plural = members.pop("gpus", [])
        word = "out" if out else "in"
        by_socket: dict[str, dict[str, float]] = {}
        for end, group in members.items():
            memory = self.ends.memory(end)
            way = None if memory is None else self.ends.route("host", memory)
            if way is None:
                self.notes.leave_out(f"{group[0].words}: no {end} is known here, or no way from the host")
                continue
            socket = next((name for stage in way.stages for name in stage.way if self.is_socket(name)), "host")
            by_socket.setdefault(socket, {})[memory or ""] = median(one.measured.rate for one in group)
        streams = {one.measured.streams for group in members.values() for one in group}
        count = sum(map(len, by_socket.values()))
        if by_socket and streams != {count}:
            self.notes.leave_out(f"{told[0].words}: {count} of the transfers that ran at once are told, "
                                 f"not {' or '.join(map(str, sorted(streams)))}")  # fmt: skip
            by_socket = {}
        first = next((one for group in members.values() for one in group), told[0])
        if by_socket and all(len(rates) < 2 for rates in by_socket.values()):  # what they share is no socket
            by_socket = {"": {memory: rate for rates in by_socket.values() for memory, rate in rates.items()}}
        for socket, rates in by_socket.items():
            ways = [self.own(memory, out) for memory in rates]
            if len(rates) > 1:
                name = f"all_{word}_{socket}" if len(by_socket) > 1 else f"all_{word}"
                self.add(name, ways, sum(rates.values()), first)
            elif rates and count > 1:
                self.notes.leave_out(f"{first.origin}: {ways[0]} carries {format_rate(sum(rates.values()))} of {count} "
                                     f"at once, as the only one of {socket}: what it shares with GPUs of other "
                                     "sockets is not told")  # fmt: skip
        if plural and not by_socket:
            self.all_of(plural, self.ends.gpus, f"all_{word}", out)

    def all_of(self, told: list[Told], memories: list[str], name: str, out: bool) -> None:
        """A sum over all of a kind; which they were, where they are fewer, is not told."""
        if told[0].measured.streams != len(memories) or len(memories) < 2:
            self.notes.leave_out(f"{told[0].words}: which of {len(memories)} the {told[0].measured.streams} transfers "
                                 "concern is not told")  # fmt: skip
            return
        self.add(name, [self.own(one, out) for one in memories], median(one.measured.rate for one in told), told[0])

    def drives(self, told: Told, is_read: bool) -> None:
        ends = (told.measured.source, told.measured.destination)
        if "drives" not in ends:
            self.notes.leave_out(f"{told.words}: it ran together with others that are not told")
            return
        self.all_of([told], self.ends.drives, "drives_read" if is_read else "drives_write", is_read)

    def is_socket(self, name: str) -> bool:
        return name in self.topology.switches and self.topology.switches[name].kind == "socket"

    def own(self, memory: str, out: bool) -> str | None:
        """The direction of a device's own link on its way from the host, or to it."""
        way = self.ends.route(memory, "host") if out else self.ends.route("host", memory)
        for stage in way.stages if way else ():
            for name in stage.links:
                link = self.topology.links[name]
                if memory in (link.a, link.b):
                    return f"{name}.{(link.b if link.a == memory else link.a) if out else memory}"
        return None

    # Both directions at once

    def both(self, gpu: str, sides: Mapping[str, list[Told]]) -> None:
        memory = self.ends.memory(gpu)
        told = [one for group in sides.values() for one in group]
        summed = [one for one in told if ADDED in one.measured.note]
        if memory is None or (len(sides) < 2 and not summed):
            why = f"no {gpu} is known here" if memory is None else "the other direction's rate meanwhile is not told"
            self.notes.leave_out(f"{told[0].words}: {why}")
            return
        total = sum(median(one.measured.rate for one in group) for group in sides.values())
        if summed:
            total = median(one.measured.rate for one in summed)
        ways = [self.own(memory, out) for out in (False, True)]
        link = str(ways[0]).rsplit(".", 1)[0]
        self.add(f"{link}_both", ways, total, told[0], over=(link,))

    # Limits

    def add(
        self, name: str, ways: Sequence[str | None], total: float, told: Told, over: tuple[str, ...] | None = None
    ) -> None:
        known = [way for way in ways if way is not None]
        if len(known) < len(ways):
            self.notes.leave_out(f"{told.words}: not every device has a link of its own here")
            return
        sides = {way: (link.name, side, getattr(link, side)) for link in self.topology.links.values()
                 for (way, _, _), side in zip(directions(link), SIDES, strict=True)}  # fmt: skip
        peaks = [sides[way][2].peak for way in known]
        if None not in peaks and total > sum(peaks) * SLACK:
            self.notes.contradict(f"{told.origin}: {describe_rate(told.measured)}: {format_rate(total)} in all is "
                                  f"above the peaks of {fold(known)} in sum, {format_rate(sum(peaks), 4)}: it is "
                                  "not written")  # fmt: skip
            return
        apart = [own for way in known if (own := self.alone.get(sides[way][:2])) is not None]
        if len(apart) == len(known) and total >= sum(apart) * AS_ALONE:
            self.notes.leave_out(f"{told.origin}: {fold(known)} together carry {format_rate(total)}, no less than "
                                 "one at a time: no limit")  # fmt: skip
            return
        same = next((one for one in (*self.found.values(), *self.topology.limits.values())
                     if set(directions_over(one, self.topology.links)) == set(known)), None)  # fmt: skip
        access = told.measured.access
        kept = dict(same.rate.sustained) if same is not None and same.name in self.found else {}
        if access in kept and kept[access].value >= total:
            self.notes.leave_out(f"{told.origin}: {format_rate(total)} in all over {fold(known)}: others are higher")
            return
        figure = _by_access({**kept, access: Interval.exact(total)})
        source = f"measured: {told.finding.tool}, {describe_rate(told.measured)}; sum (derived)"
        if same is not None and same.rate.peak is not None and total > same.rate.peak * SLACK:
            self.notes.contradict(f"{told.origin}: {format_rate(total)} in all is above the peak of {same.name}, "
                                  f"{format_rate(same.rate.peak, 4)}: it is not written")  # fmt: skip
            return
        if same is not None:
            rate = replace(same.rate, sustained=figure, unknown=False, source=source)
            limit = replace(same, rate=rate, source=source)
        else:
            taken = {*self.topology.limits, *self.topology.links, *self.topology.memories, *self.topology.switches}
            while name in taken or name in self.found:
                name += "_again"
            limit = Limit(name, over or tuple(known), Rate(sustained=figure, source=source), source)
        self.found[limit.name] = limit
        self.notes.wrote(f"{limit.name} sustained{f' {access}' if access else ''}", format_rate(total), told.origin)


def _by_access(sustained: dict[str, Interval]) -> dict[str, Interval]:
    """Sustained rates as a file can say them: one for any access stands alone, or is that of "pinned"."""
    if "" not in sustained or len(sustained) == 1:
        return sustained
    named = {access: figure for access, figure in sustained.items() if access}
    return {"pinned": sustained[""]} | named
