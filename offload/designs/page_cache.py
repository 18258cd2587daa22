"""Weights in a file on a drive, mapped into memory: what the page cache keeps of them from one step to the next.

A step reads the file once from its first byte to its last. Where it fits in the free memory it is read once and never
again. Where it does not, an LRU cache has evicted each page before the scan comes back to it, so every byte is read
again; a part that is pinned (mlock) spares its own bytes. A real kernel lies between, so floors count what no cache
of that size can keep, N - C, and schedules all N (of a pinned part both N - C).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from offload.errors import PlanError, RouteError
from offload.plan import UNLIMITED, Overlap, Plan, Transfer, tensors_of
from offload.topology import Topology
from offload.topology.shares import DRIVES
from offload.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from offload.designs.chosen_pages import Chosen

KEY = "placement.page_cache"
SYSTEM = 4_000_000_000  # bytes of a host memory that its system and other programs keep, of a small one a sixteenth
ALL = 10**18  # room for any file
PASSES = "page cache"  # how a copy to a device passes host memory


@dataclass(frozen=True, slots=True)
class PageCache:
    """memory : the host memory whose free part keeps pages. free : bytes of it [B]; None is what the plan leaves, less
    what the system keeps (`SYSTEM`).

    pinned : whether as much of the file as fits is locked there, so that a step reads only the rest.
    """

    memory: str
    free: int | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Cached:
    """What a page cache comes to: `size` bytes of weights on drives, of which `free` bytes can stay [B].

    chosen : of a file that does not fit and of which tokens choose a part (experts), what steps touch of it. most : of
    `size` what could ever stay, all that the plan leaves, where `free` is that less what the system keeps; None where
    that is stated. leaves : what the plan leaves, None where not known. spared : bytes of those read that a step may
    leave out; idle : bytes that it does not read [B].
    """

    asked: PageCache
    size: int
    free: int
    chosen: Chosen | None = None
    most: int | None = None
    leaves: int | None = None
    spared: float = 0
    idle: float = 0

    @property
    def fits(self) -> bool:
        return self.size <= self.free

    @property
    def missed(self) -> int:
        """Bytes that no cache of this size keeps from one step to the next [B]."""
        return max(0, self.size - (self.free if self.most is None else self.most))

    @property
    def least_share(self) -> float:
        """Of what a step surely touches the part that no cache of this size keeps."""
        surely = self.size if self.chosen is None else self.chosen.surely
        room, read = self.free if self.most is None else self.most, surely - self.idle
        return max(0.0, read - self.spared - room) / read if read > 0 else 0.0

    @property
    def pinned_share(self) -> float:
        """Of what a schedule reads of a pinned file the part that no cache of this size keeps."""
        return self.missed / (self.size - self.free)

    @property
    def dense_stays(self) -> bool:
        """Whether what every step touches is there when it starts."""
        return self.fits or (self.chosen is not None and not self.asked.pinned and self.chosen.steps > 0)

    @property
    def memory(self) -> str:
        return self.asked.memory

    def homes(
        self, topology: Topology, homes: tuple[tuple[str, float], ...], stays: bool
    ) -> tuple[tuple[str, float], ...]:
        """Where a tensor's bytes are when a step starts, as far as a schedule may count on it.

        homes : (memory, share) as placed. stays : whether all of it is in the cache. Raises PlanError where a part is
        in neither a drive nor the cache's memory.
        """
        kept = 1.0 if stays else self.free / self.size if self.asked.pinned else 0.0
        parts = {self.memory: 0.0}
        for name, share in homes:
            if topology.memories[name].kind in DRIVES:
                parts[self.memory] += kept * share
                parts[name] = (1 - kept) * share
            elif name == self.memory:
                parts[name] += share
            else:
                raise PlanError(f"{KEY}: a layer lies on a drive and in {name}, and pages are kept in {self.memory}. "
                                "Place whole layers, or the other part there.")
        return tuple((name, share) for name, share in parts.items() if share)

    def read(self, what: str, tensor: str, size: float, surely: float | None = None) -> Transfer | None:
        """The read of a tensor of `size` bytes [B] from its drive into the page cache; None where it is there.

        surely : bytes of it that a step needs, None for all.
        """
        if self.dense_stays:
            return None
        if self.asked.pinned:  # what is needed may be pinned first
            most = (self.size - self.missed) / self.size
            needed = max(0.0, (size if surely is None else surely) - most * size)
            least = None if surely is None and self.most is None else needed / (1 - self.free / self.size)
        else:
            least = size * self.least_share
        return self.read_part(what, tensor, size, least)

    def read_part(self, what: str, tensor: str, size: Any, least: Any) -> Transfer:
        """The read of `size` bytes of a tensor, at least `least` of them [B]."""
        return Transfer(f"read {what} into {self.memory}", tensor, self.memory, bytes=size, least=least)

    def held(self, on_drives: Mapping[str, int], slots: int) -> tuple[tuple[str, str, int], ...]:
        """(memory, part, bytes) that the file and the pages take besides what the plan's tensors and slots take."""
        if self.chosen is not None and not self.asked.pinned:
            dense = self.chosen.dense if self.dense_stays else {}
            pages = max(0, self.free - slots - sum(dense.values()))
            return (*((drive, "file", size) for drive, size in dense.items() if size),
                    *(((self.memory, "page cache", pages),) if pages else ()))
        kept = self.size if self.fits else self.free if self.asked.pinned else 0
        files = tuple((drive, "file", round(size * kept / self.size)) for drive, size in on_drives.items() if kept)
        pages = 0 if self.fits or self.asked.pinned else max(0, self.free - slots)
        return (*files, *(((self.memory, "page cache", pages),) if pages else ()))

    def notes(self, topology: Topology, on_drives: Mapping[str, int]) -> tuple[str, ...]:
        """What is read when, in words, with both amounts, and what a little too much costs."""
        where, size, free = " and ".join(on_drives), format_bytes(self.size), format_bytes(self.free)
        more: tuple[str, ...] = ()
        if self.most is not None:
            more = (f"page cache: of {format_bytes(self.most)} that the plan leaves in {self.memory}, "
                    f"{format_bytes(self.most - self.free)} are left to the system and other programs; `free` says "
                    "otherwise",)  # fmt: skip
        elif self.leaves is not None and self.free > max(0, self.leaves):
            more = (f"{KEY}.free: {free} are stated, and this plan leaves {format_bytes(max(0, self.leaves))} in "
                    f"{self.memory}",)  # fmt: skip
        return (*self._told(topology, on_drives, where, size, free), *more)

    def _told(
        self, topology: Topology, on_drives: Mapping[str, int], where: str, size: str, free: str
    ) -> tuple[str, ...]:
        if self.fits:
            first = max(_seconds(topology, drive, self.memory, amount) for drive, amount in on_drives.items())
            told = f", about {format_seconds(first)} at the sustained rate" if first else ""
            return (f"page cache: {size} of weights on {where} fit in {free} of {self.memory}. The first step reads "
                    f"them from {where} once{told} (first touch, not in the times here); later steps read none there",)
        if self.chosen is not None:
            return self._notes_of_chosen(where, size, free)
        missed, over = format_bytes(self.missed), format_bytes(self.size - self.free)
        if self.asked.pinned:
            return (f"page cache: {free} of the {size} of weights on {where} are pinned in {self.memory}, an equal "
                    f"part of each layer; each step reads the other {over} from {where}",)
        notes = [f"page cache: {size} of weights on {where} do not fit in {free} of {self.memory}. A step scans them "
                 f"in order, and LRU evicts each page before it is needed again: expected times read all {size} again, "
                 f"floors {missed}, what no cache of that size can keep"]
        if 2 * (self.size - self.free) <= self.size:
            notes.append(f"a file just over memory: {over} too many cost {size} of reads each step; `pinned: true` "
                         f"(mlock of what fits) would read {over}")
        return tuple(notes)

    def _notes_of_chosen(self, where: str, size: str, free: str) -> tuple[str, ...]:
        found = cast("Chosen", self.chosen)
        touched, read = format_bytes(found.touched), format_bytes(found.read)
        if self.asked.pinned:
            share = 1 - self.free / self.size
            return (f"page cache: {free} of the {size} of weights on {where} are pinned in {self.memory}, an equal "
                    f"part of each tensor; of the {touched} that a step touches it reads {100 * share:.3g} % from "
                    f"{where}",)
        start = (f"page cache: {size} of weights on {where} do not fit in {free} of {self.memory}; a step touches "
                 f"{touched} of them")
        if not found.steps:
            missed = format_bytes(found.surely * self.least_share)
            return (f"{start}, more than that, so LRU evicts each page before it is needed again: expected times read "
                    f"all {touched} again, floors {missed}, what one token touches beyond {free}",)
        last = "the last step" if found.steps == 1 else f"the last {found.steps:,} steps"
        return (f"{start}. LRU keeps what {last} touched, {format_bytes(found.held(found.steps))} on average; of "
                f"experts that none of them chose {read} are read in each, the mean over steps of tokens that choose "
                "by themselves. Floors count none: the same ones may be chosen again",)


def _seconds(topology: Topology, drive: str, memory: str, size: int) -> float:
    """How long a drive takes for a first read, by the slowest sustained rate on the way; 0 where none is known [s]."""
    try:
        uses = topology.route(drive, memory).stages[0].uses
    except RouteError:
        return 0.0
    rates = [(topology.resources[row].sustained_at("read"), times) for row, _, times in uses if times > 0]
    return max((size * times / rate.value for rate, times in rates if rate is not None), default=0.0)


def check_page_cache(topology: Topology, asked: PageCache) -> None:
    """Raises PlanError where pages cannot be kept in that memory."""
    name = asked.memory
    if name not in topology.memories or not topology.ways.may_stage(name):
        hosts = sorted(one for one in topology.memories if topology.ways.may_stage(one))
        kind = f" ({topology.memories[name].kind})" if name in topology.memories else ""
        raise PlanError(f"{KEY}.memory: {name}{kind} keeps no pages of files; host memory does: "
                        f"{', '.join(hosts) or 'this server has none'}.")


def check_free(topology: Topology, asked: PageCache) -> None:
    """Raises PlanError where more is said to be free than the memory has."""
    node = topology.memories.get(asked.memory)
    if node is None or node.capacity is None or asked.free is None or asked.free == ALL:
        return
    whole = node.capacity * node.count
    if asked.free > whole:
        raise PlanError(f"{KEY}.free: {format_bytes(asked.free)} is more than all of {asked.memory}, "
                        f"{format_bytes(whole)}. Write what is free of it, or drop the key: then it is what the plan "
                        "leaves.")  # fmt: skip


def on_drives(topology: Topology, sizes: Mapping[str, int]) -> dict[str, int]:
    """Of bytes by memory those on drives [B]."""
    return {name: size for name, size in sizes.items() if topology.memories[name].kind in DRIVES and size}


def cached(topology: Topology, asked: PageCache, drives: Mapping[str, int], free: int | None, slots: int) -> Cached:
    """What a page cache comes to for weights on drives.

    free : what the plan leaves, None where not known [B]; slots : what reads take turns in [B], which is left beside a
    pinned part. Raises PlanError where no weights are on a drive, and where it is not known what is free.
    """
    check_page_cache(topology, asked)
    check_free(topology, asked)
    if not drives:
        raise PlanError(f"{KEY}: no weights are on a drive, so there is no file to keep. Drop it, or place weights on "
                        "a drive.")
    size = sum(drives.values())
    if asked.free is not None:
        return Cached(asked, size, max(0, asked.free), leaves=free)
    if free is None:
        raise PlanError(f"{KEY}.free: the capacity of {asked.memory} is not known. Say what is free of it, as 14 GB.")
    node = topology.memories[asked.memory]
    found = max(0, free - min(SYSTEM, cast(int, node.capacity) * node.count // 16))  # what is free of it is known
    beside = slots if asked.pinned and size > found else 0
    return Cached(asked, size, max(0, found - beside), most=max(0, free - beside))


def left_by(topology: Topology, plan: Plan, memory: str) -> int | None:
    """What a plan's tensors and held parts leave free in a memory, slots left aside [B]; None where not known."""
    node = topology.memories[memory]
    if node.capacity is None:
        return None
    repeats: dict[str, int] = {}
    for block in plan.blocks:
        for name in {name for task in block.tasks for name in tensors_of(task)}:
            repeats[name] = repeats.get(name, 0) + block.repeat
    used: Any = sum(_most(size) for where, _, size in plan.held if where == memory)
    for tensor in plan.tensors.values():
        if not tensor.transient:
            stored = _most(tensor.bytes if tensor.stored is None else tensor.stored)
            share = sum(share for where, share in tensor.home if where == memory)
            used += stored * share * (1 if tensor.shared else max(1, repeats.get(tensor.name, 1)))
    left: int = math.trunc(node.capacity * node.count - used)
    return left


def _most(amount: Any) -> Any:
    """The largest of several amounts."""
    return amount.max() if hasattr(amount, "max") else amount


def slots_of(overlap: Overlap, sizes: Sequence[int]) -> int:
    """Bytes of the slots that reads of layers of some sizes [B] into the page cache take turns in."""
    buffers = 1 if overlap.kind == "none" else len(sizes) if overlap.buffers == UNLIMITED else overlap.buffers
    return min(buffers, len(sizes)) * max(sizes, default=0)


def everything(asked: PageCache) -> PageCache:
    """The same with room for any file: what else the plan keeps in the memory then shows."""
    return replace(asked, free=ALL)
