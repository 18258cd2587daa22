"""What may be placed where: families of placements that differ in counts of layers alone, and what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from offload.designs import Experts, Placement, Portion
from offload.designs.placement import experts_placement, in_short_names, place_layers, spread
from offload.models import Model, layers_of, weigh
from offload.models.architecture import STATED
from offload.plan import Overlap
from offload.ranges import fold, listed
from offload.topology import Topology
from offload.topology.shares import DRIVES

BUFFERS = (2, 1, 3, 4)
IN_TURN = 2  # GPUs one after another that have any number of layers each; of more of them each has as many
DRIVES_USED = 2
LEFT_OUT = (
    "a layer's rows split over processors, layers over several memories at once (\"dram0 + cxl0\")",
    "KV by layers where layers are not all in GPU memory, KV by shares or in blocks or on drives",
    f"uneven shares of {DRIVES_USED} drives or more than {IN_TURN} GPUs in turn, further drives, experts on two drives",
    "experts cached or fetched ahead, page caches, sockets that each keep a copy, other layouts than the usual",
    "other formats, speculation, what else changes the model or the work",
)
Key = tuple[int, int]  # the place of a layer's home, and of its part that is apart; -1 where none is


@dataclass(frozen=True, slots=True)
class Family:
    """Placements that differ in how many layers each memory holds.

    name : in words. base : all of the placement but that. homes : memories of layers, in the order of the plan. parts :
    memories of what is apart from its layer: experts, or with `pattern` the feed-forward of first layers, which runs in
    the last of two, or with `keys` the KV of layers. even : so many of the first homes, GPUs that follow each other,
    have equal numbers of layers, or one more. pair : so have the last two homes, drives. overlaps : the numbers of
    buffers to try; one where nothing is streamed. counted : False where it runs on a processor whose FLOP/s are not
    known, beside one in the same memory whose are: it would look faster than it is, so it is in the floor of any plan
    alone.
    """

    name: str
    base: Placement
    homes: tuple[str, ...]
    parts: tuple[str, ...] = ()
    pattern: bool = False
    keys: bool = False
    even: int = 0
    pair: bool = False
    counted: bool = True
    overlaps: tuple[Overlap, ...] = (Overlap(),)

    def placed(self, counts: Sequence[int], apart: Sequence[int] = ()) -> Placement:
        """The placement with so many layers in each of `homes`, and so many layers' parts in each of `parts`."""
        placement = replace(self.base, weights=_portions(self.homes, counts))
        if self.pattern and apart[1]:
            placement = replace(placement, tensors=((feed_forward_of(apart[1]), self.parts[1]), *placement.tensors))
        elif self.keys:
            kv = tuple(one for one in _portions(self.parts, apart) if one[1].value)
            away = len(kv) > 1 or kv[0][0] != self.parts[0]
            placement = replace(placement, kv="with layer" if not away else kv[0][0] if len(kv) == 1 else kv,
                                attention=placement.attention if away else "")
        elif self.parts and not self.pattern:
            home = tuple(one for one in _portions(self.parts, apart) if one[1].value)
            placement = replace(placement, experts=replace(cast(Experts, placement.experts), home=home))
        return placement

    def counts(self, layers: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """All counts of layers in homes, and of parts, but for those where nothing is apart from its layer."""
        every = (_evenly(layers, self.even, len(self.homes)) if self.even
                 else shared_out(layers, len(self.homes) - self.pair))  # fmt: skip
        for counts in every:
            counts = (*counts[:-1], counts[-1] - counts[-1] // 2, counts[-1] // 2) if self.pair else counts
            together = {name: count for name, count in zip(self.homes, counts, strict=True) if count}
            for apart in shared_out(layers, len(self.parts)) if self.parts else ((),):
                where = {name: count for name, count in zip(self.parts, apart, strict=True) if count}
                if not self.parts or where != together:
                    yield counts, apart

    def ways(self) -> Iterator[Key]:
        """All ways in which one layer may be placed."""
        for home in range(len(self.homes)):
            for part in range(len(self.parts)) if self.parts else (-1,):
                yield home, part

    def pure(self, key: Key, layers: int) -> Placement:
        """The placement in which all layers go one way."""
        counts = tuple(layers * (place == key[0]) for place in range(len(self.homes)))
        return self.placed(counts, tuple(layers * (place == key[1]) for place in range(len(self.parts))))

    def homes_of(self, topology: Topology, sizes: Sequence[int], counts: Sequence[int]) -> list[int]:
        """The home of each layer, as its place among `homes`."""
        names = [fold(listed(name)) for name in self.homes]
        placement = in_short_names(replace(self.base, weights=_portions(self.homes, counts), experts=None))
        return [names.index(one.memory) for one in place_layers(topology, placement, sizes)]

    def parts_of(self, topology: Topology, sizes: Sequence[int], apart: Sequence[int]) -> list[int]:
        """The home of each layer's part that is apart, as its place among `parts`."""
        if self.pattern:
            return [int(number < apart[1]) for number in range(len(sizes))]
        if self.keys:
            return [int(name == "") for name in spread([self.parts[0]] * apart[0], "", apart[1])]
        names = [fold(listed(name)) for name in self.parts]
        home = tuple(one for one in _portions(self.parts, apart) if one[1].value)
        experts = replace(cast(Experts, self.base.experts), home=home)
        placed = in_short_names(replace(self.base, experts=experts))
        laid = place_layers(topology, experts_placement(placed), sizes, "placement.experts.home")
        return [names.index(one.memory) for one in laid]


def _portions(names: Sequence[str], counts: Sequence[int]) -> tuple[tuple[str, Portion], ...]:
    """Memories that hold layers; the first, which has the head, in any case."""
    return tuple((name, Portion("layers", count)) for place, (name, count) in enumerate(zip(names, counts, strict=True))
                 if count or not place)


def _evenly(total: int, first: int, places: int) -> Iterator[tuple[int, ...]]:
    """All ways to share out a number over places of which the first ones have equal parts, or one more; most there."""
    for near in range(total, -1 if places > first else total - 1, -1):
        each, more = divmod(near, first)
        parts = tuple(each + (place < more) for place in range(first))
        for rest in shared_out(total - near, places - first) if places > first else ((),):
            yield (*parts, *rest)


def shared_out(total: int, places: int) -> Iterator[tuple[int, ...]]:
    """All ways to share out a number over places; the most in the first ones first."""
    if places == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in shared_out(total - first, places - 1):
            yield (first, *rest)


def feed_forward_of(count: int) -> str:
    """A pattern of the feed-forward tensors of so many first layers."""
    return rf"blk\.{first_numbers(count)}\.ffn_(up|down|gate)"


def first_numbers(count: int) -> str:
    """A pattern of the numbers 0 to count - 1, up to 999."""
    found = []
    last = count - 1
    if last >= 100:
        hundreds, rest = divmod(last, 100)
        found.append(f"{hundreds}{_pair(rest)}")
        found += [f"[1-{hundreds - 1}][0-9][0-9]"] if hundreds > 1 else []
        last = 99
    if last >= 10:
        tens, ones = divmod(last, 10)
        found.append(f"{tens}[0-{ones}]")
        found += [f"[1-{tens - 1}][0-9]"] if tens > 1 else []
        last = 9
    found.append(f"[0-{last}]")
    return f"({'|'.join(reversed(found))})"


def _pair(last: int) -> str:
    """Two digits from 00 to `last`."""
    tens, ones = divmod(last, 10)
    lower = f"[0-{tens - 1}][0-9]|" if tens else ""
    return f"({lower}{tens}[0-{ones}])"


@dataclass(frozen=True, slots=True)
class _Server:
    """Processors and memories as places: each GPU or group of them, hosts with processors, drives."""

    fronts: tuple[tuple[str, str], ...]  # (processors, memories) of GPUs with memories of their own
    turns: tuple[str, ...]  # memories of GPUs that follow each other
    hosts: tuple[tuple[str, str], ...]  # all sockets together, and the first
    sockets: tuple[str, ...]  # memories of all hosts, where they are several
    stores: tuple[str, ...]  # host memories without a processor
    drives: tuple[str, ...]  # two at most, of the same or of other rates
    shared: tuple[tuple[str, str], ...]  # (processor, memory) of those that share one


def _server(topology: Topology) -> _Server:
    gpus = {name: one.memory for name, one in topology.processors.items() if one.kind == "gpu"}
    cpus = {name: one.memory for name, one in topology.processors.items() if one.kind != "gpu"}
    both = tuple((name, memory) for name, memory in (gpus | cpus).items()
                 if len(topology.processors_of(memory)) > 1)  # fmt: skip
    gpus, cpus = ({name: memory for name, memory in some.items() if (name, memory) not in both}
                  for some in (gpus, cpus))  # fmt: skip
    drives = [name for name, one in topology.memories.items() if one.kind in DRIVES]
    sockets = tuple(dict.fromkeys(cpus.values()))
    several = [(fold(cpus), fold(cpus.values()))] if len(cpus) > 1 and len(sockets) == len(cpus) else []
    idle = [name for name, one in topology.memories.items() if one.kind == "dram" and not topology.processors_of(name)]
    return _Server(
        (*([(fold(gpus), fold(gpus.values()))] if len(gpus) > 1 else []), *list(gpus.items())[:1]),
        tuple(gpus.values()) if len(gpus) > 1 else (),
        (*several, *list(cpus.items())[:1]), sockets if len(sockets) > 1 else (), tuple(idle[:1]),
        tuple(drives[:DRIVES_USED]), both,
    )


def uncounted(topology: Topology) -> tuple[str, ...]:
    """Processors whose FLOP/s are not known, in the memory of one whose are."""
    known = {name for name in topology.processors if f"{name}.flops" in topology.resources}
    return tuple(name for name, one in topology.processors.items()
                 if name not in known and known & {*topology.processors_of(one.memory)})  # fmt: skip


def families(
    model: Model, topology: Topology, given: Placement, weights: str, overlap: Overlap | None = None
) -> list[Family]:
    """The families of placements that a server has for a model.

    given : whose reserve, host memory and named costs all keep. overlap : of all; None tries some numbers of buffers.
    """
    server = _server(topology)
    base = Placement((), reserve=given.reserve, host_memory=given.host_memory, costs=given.costs)
    streamed = (overlap,) if overlap is not None else tuple(Overlap("buffers", count) for count in BUFFERS)
    plain = (overlap or Overlap(),)
    found: list[Family] = []

    def add(name: str, homes: Sequence[str], comes: bool = False, **more: Any) -> None:
        own: dict[str, Any] = {}
        for key in ("parts", "pattern", "keys", "even", "counted"):
            if key in more:
                own[key] = more.pop(key)
        there = any(topology.memories[listed(one)[0]].kind in DRIVES for one in (*homes, *own.get("parts", ())))
        pair = sum(topology.memories[listed(one)[0]].kind in DRIVES for one in homes) > 1
        found.append(Family(name, replace(base, **more), tuple(homes), **own, pair=pair,
                            overlaps=streamed if comes or there else plain))  # fmt: skip

    layers = layers_of(model)
    # A second drive helps where the model is larger than all memories, and nowhere else.
    near_by = [one for one in topology.memories.values() if one.kind not in DRIVES]
    rooms = [one.capacity * one.count for one in near_by if one.capacity is not None]
    larger = len(rooms) == len(near_by) and sum(weigh(model, weights).layers) > sum(rooms)
    all_drives = server.drives if larger else server.drives[:1]
    stated = model.family == STATED
    keeps = not stated and any(layer.cache.kind != "none" for layer in layers)
    all_keep = not stated and all(layer.cache.kind != "none" and not layer.cache.shared for layer in layers)
    routed = any(layer.experts for layer in layers)
    heads: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (("", ()),)
    if not stated and not model.tied and weigh(model, weights).head:
        heads = (("", ()), (", output head in {host}", ((r"^output\.weight", "{host}"),)))
    unknown = uncounted(topology)
    for processor, memory in server.shared:
        add(f"all on {processor}", (memory, *all_drives), compute=processor, counted=processor not in unknown)
    for front, near in server.fronts:
        for cpu, host in server.hosts:
            for said, tensors in heads:
                tensors = tuple((pattern, host) for pattern, _ in tensors)
                said = said.format(host=host)
                add(f"layers where they live: {near}, {host}{said}", (near, host, *all_drives), tensors=tensors)
                if routed:
                    add(f"experts apart: {near}, {host}{said}", (near, host), parts=(near, host), tensors=tensors,
                        experts=Experts(compute="local"))
                elif not stated:
                    add(f"feed-forward apart: {near}, {host}{said}", (near,), parts=(near, host), pattern=True,
                        tensors=tensors)
            if routed and server.drives:
                add(f"experts apart, some on a drive: {near}, {host}", (near,), parts=(near, host, *server.drives[:1]),
                    experts=Experts(compute="local"))
            for access in ("copy", "in_place"):
                way = "streamed to" if access == "copy" else "read over the link by"
                drives = all_drives if access == "copy" else ()
                add(f"layers of {host} {way} {front}", (near, host, *drives), comes=True, compute=front, access=access)
            if routed:
                for access in ("on_demand", "copy", "in_place"):
                    add(f"experts of {host} to {front}, {access}", (near,), comes=True, parts=(near, host),
                        compute=front, experts=Experts(access=access))
            if all_keep:
                for attends in ("", cpu):
                    said = f" where {cpu} attends" if attends else ""
                    add(f"KV of some layers in {host}{said}, layers in {near}", (near,), comes=not attends,
                        parts=(near, host), keys=True, attention=attends, compute=front)
            if keeps:
                for compute in ("local", front):
                    where = "where they live" if compute == "local" else f"on {front}"
                    add(f"KV in {host}, layers {where}", (near, host), comes=True, compute=compute, kv=host)
                    add(f"KV in {host} where {cpu} attends, layers {where}", (near, host), comes=compute != "local",
                        compute=compute, kv=host, attention=cpu)
        if not server.hosts:
            add(f"layers on {front}", (near, *server.stores, *all_drives), comes=True, compute=front)
        if server.sockets:
            add(f"layers where they live: {near}, {' and '.join(server.sockets)} in turn", (near, *server.sockets))
    if server.turns:
        hosts = server.hosts[-1:]
        add(f"layers in turn: {', '.join(server.turns)}{''.join(f', {host}' for _, host in hosts)}",
            (*server.turns, *(host for _, host in hosts)), even=len(server.turns) if len(server.turns) > IN_TURN else 0)
    for cpu, host in server.hosts:
        add(f"all on {cpu}", (host, *all_drives), compute=cpu)
    return found
