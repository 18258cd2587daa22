"""What an item does on this machine: reads and writes of a file, copies, products; and what it moved."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from offload.measure.drives import SYNC, opened_direct
from offload.measure.ending import held_back, look
from offload.measure.scratch import DriveError, nameless
from offload.measure.settings import KIB
from offload.measure.threads import one_thread_each
from offload.replaying.buffers import (
    InHost,
    OnDrive,
    OnGpu,
    Region,
    fill_file,
    host_array,
    memory_stamp,
    page_stamp,
    pages,
    stamp_of,
    touch,
)
from offload.replaying.computing import Processor, Team, columns_of
from offload.replaying.devices import NUMBER, Devices
from offload.replaying.items import Held, Program
from offload.replaying.layout import Home, Layout, Move, Work
from offload.replaying.machine import ReplayError, Stands
from offload.step import Step

SMALLEST = 256 * KIB  # bytes of a request that is made smaller than it was measured


@dataclass(frozen=True, slots=True)
class Requests:
    """How a drive is read and written: bytes of a request, and how many are in flight for each move."""

    block: int
    depth: int

    def block_of(self, size: int) -> int:
        """Bytes of a request of a move of so many: less where else fewer than twice as many as go at once were due, so
        that a drive has as many to serve at once as when it was measured.
        """
        fair = pages(-(-size // (2 * self.depth)))
        return self.block if self.depth == 1 else min(self.block, max(fair, SMALLEST))


@dataclass(frozen=True, slots=True)
class Moved:
    """What an item did: bytes that it read where they were and wrote where they went, and FLOP."""

    read: int = 0
    written: int = 0
    flops: float = 0.0
    parts: tuple[int, ...] = ()


class Engine:
    """The buffers of a program and what its items do with them. Made by `engine`, which frees all in the end.

    wrong : what was found in buffers that should not have been there.
    """

    def __init__(
        self, step: Step, layout: Layout, program: Program, stands: Stands, requests: Mapping[str, Requests], way: str
    ):
        self.step, self.layout, self.program, self.stands = step, layout, program, stands
        self.requests, self.way = requests, way
        self.regions: dict[Held, Region] = {}
        self.stamps: dict[Held, float] = {}
        self.files: dict[str, int] = {}
        self.maps: dict[str, Any] = {}
        self.wrong: dict[str, None] = {}
        self.processors: dict[str, Processor] = {}
        self.teams: dict[tuple[str, str], Any] = {}
        self.streams: dict[tuple[str, int], Any] = {}
        changed = {operation.into for operation in layout.operations if isinstance(operation, Move)}
        self.carried: list[float | None] = []  # the stamp of what each item's move brings
        self.unsure = changed - {None}
        # What drives read into, or write from.
        self.filled = {end for item in program.items for end, other in ((item.into, item.source),
                       (item.source, item.into)) if other is not None and other.memory in stands.drives}  # fmt: skip
        self.pinned = all(one.access == "pinned" for one in layout.operations if isinstance(one, Move))

    @property
    def devices(self) -> Devices:
        """The GPUs' library, where something stands for a GPU's memory."""
        return cast(Devices, self.stands.devices)

    def sizes(self) -> dict[str, int]:
        """Bytes that each memory has to hold, as whole pages."""
        found: dict[str, int] = {}
        mapped = self._mapped_homes()
        for held, size in self._all():
            memory = mapped.get(held, held.memory)
            found[memory] = found.get(memory, 0) + pages(size)
        return found

    def _all(self) -> Iterator[tuple[Held, int]]:
        for home, size in self.layout.homes.items():
            yield home, max(size, 1)
        for buffer in self.program.buffers:
            yield buffer, max(buffer.size, 1)

    # Making ready.

    def make(self, stack: contextlib.ExitStack, tell: Callable[[str], None]) -> None:
        """Files, host memory, GPUs' buffers. Raises DriveError, ReplayError, MemoryError, OSError."""
        offsets: dict[str, int] = {}
        mapped = self._mapped_homes()
        for held, size in self._all():
            drive = mapped.get(held, held.memory)
            if drive in self.stands.drives:
                at = offsets.get(drive, 0)
                self.regions[held] = OnDrive(drive, at, size)
                self.stamps[held] = page_stamp(at)
                offsets[drive] = at + pages(size)
        for drive, size in offsets.items():
            self._file(drive, size, stack, tell)
        for number, (held, size) in enumerate(self._all()):
            if held in mapped:
                region = cast(OnDrive, self.regions[held])
                array = self.maps[region.drive][region.offset : region.offset + pages(size)]
                self.regions[held] = InHost(held.memory, array)
            elif held.memory in self.stands.hosts:
                self.stamps[held] = memory_stamp(number)
                self.regions[held] = self._host(held, size)
            elif held.memory in self.stands.gpus:
                gpu = self.stands.gpus[held.memory]
                self.regions[held] = OnGpu(held.memory, gpu, self.devices.device(gpu, pages(size)), size)
        stack.callback(self._drop)
        stack.enter_context(one_thread_each())
        with held_back():
            self._workers(stack)
        look()
        for item in self.program.items:
            operation = self.layout.operations[item.instance]
            stamp = None
            if isinstance(operation, Move) and item.source not in self.unsure:
                stamp = self._due(item.ends[0], item.brings[0])
            self.carried.append(stamp)

    def _drop(self) -> None:
        self.regions.clear()
        self.maps.clear()

    def _mapped_homes(self) -> dict[Held, str]:
        """Homes in host memory that lie in a mapped file, where that is asked for, with the drive of each."""
        if self.way != "mapped" or not self.stands.drives:
            return {}
        drive = next(iter(self.stands.drives))
        return {home: drive for home in self.layout.homes if home.memory in self.stands.hosts}

    def _file(self, drive: str, size: int, stack: contextlib.ExitStack, tell: Callable[[str], None]) -> None:
        place = self.stands.drives[drive]
        number = stack.enter_context(nameless(place.path))
        tell(f"writing a file of {size / 1e6:.0f} MB at {place.path}")
        fill_file(number, size, tell=lambda done: tell(f"written {done / 1e6:.0f} of {size / 1e6:.0f} MB"))
        self.files[drive] = number
        if self.way == "direct":
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                stack.enter_context(opened_direct(number))
            except OSError as error:
                kind = f" ({place.system})" if place.system else ""
                raise DriveError(f"the file system{kind} of {place.path} takes no O_DIRECT: {error.strerror or error}. "
                                 "Give --disk a folder on another, or --buffered to read through the page "
                                 "cache.") from None  # fmt: skip
        elif self.way == "mapped":
            import numpy as np

            self.maps[drive] = np.frombuffer(mmap.mmap(number, size), np.uint8)

    def _host(self, held: Held, size: int) -> InHost:
        devices = self.stands.devices
        if devices is None:
            array, buffer = host_array(size, held not in self.filled), None
        else:
            buffer = devices.host(pages(size), self.pinned)
            array = devices.view(buffer)
        stamp = self.stamps[held]
        touch(array, stamp if isinstance(held, Home) else None)
        return InHost(held.memory, array, buffer)

    def _workers(self, stack: contextlib.ExitStack) -> None:
        for item in self.program.items:
            operation = self.layout.operations[item.instance]
            if isinstance(operation, Work):
                self._worker(operation, stack)
                continue
            ends = [self.regions[end] for end in item.ends]
            for end in ends:
                if isinstance(end, OnDrive) and (key := (item.lane, end.drive)) not in self.teams:
                    self.teams[key] = Team(self.requests[end.drive].depth)
                    stack.callback(self.teams[key].close)
                if isinstance(end, OnGpu) and (item.lane, end.gpu) not in self.streams:
                    self.streams[item.lane, end.gpu] = self.devices.stream(end.gpu)
            source, into = ends
            if isinstance(source, InHost) and isinstance(into, InHost) and (item.lane, "") not in self.teams:
                node = self.stands.hosts[into.memory]
                self.teams[item.lane, ""] = Processor(node.cpus)
                stack.callback(self.teams[item.lane, ""].close)

    def _worker(self, work: Work, stack: contextlib.ExitStack) -> None:
        memory = self.step.topology.processors[work.processor].memory
        if memory in self.stands.gpus:
            gpu = self.stands.gpus[memory]
            if (work.processor, gpu) not in self.streams:
                self.streams[work.processor, gpu] = self.devices.stream(gpu)
        elif work.processor not in self.processors:
            self.processors[work.processor] = Processor(self.stands.hosts[memory].cpus)
            stack.callback(self.processors[work.processor].close)

    # Doing.

    def do(self, place: int) -> Moved:
        """Do an item of the program."""
        item = self.program.items[place]
        operation = self.layout.operations[item.instance]
        if isinstance(operation, Move):
            source, into = item.ends
            moved = self._move(item.lane, self.regions[source], self.regions[into], operation.size)
            self._look(into, self.carried[place], operation.size, place)
            return moved
        return self._work(place, operation)

    def _due(self, held: Held, by: int | None) -> float | None:
        """The stamp that should be found there."""
        if isinstance(held, Home):
            return None if held in self.unsure else self.stamps.get(held)
        return None if by is None else self.carried[by]

    def _look(self, held: Held, due: float | None, size: int, place: int) -> None:
        region = self.regions[held]
        if due is None or size < 8 or not isinstance(region, InHost):
            return
        if (found := stamp_of(region.array)) != due:
            item = self.program.items[place]
            name = self.step.rows[self.layout.operations[item.instance].row].name
            self.wrong[f"{name} in step {item.step + 1}: its buffer begins with {found:g}, and should with {due:g}"] = (
                None)  # fmt: skip

    def _move(self, lane: str, source: Region, into: Region, size: int) -> Moved:
        if isinstance(source, OnDrive) and isinstance(into, InHost):
            count = self._request(lane, source, into.array, size, False)
            return Moved(count, min(count, size))
        if isinstance(source, InHost) and isinstance(into, OnDrive):
            count = self._request(lane, into, source.array, size, True)
            return Moved(min(count, size), count)
        if isinstance(source, InHost) and isinstance(into, InHost):
            count = self.teams[lane, ""].copy(into.array[:size], source.array[:size])
            return Moved(count, count)
        if isinstance(source, OnDrive) or isinstance(into, OnDrive):
            raise ReplayError("a drive and a GPU exchange bytes directly in this plan, which is not replayed: add via: "
                              "the host memory to the move.")  # fmt: skip
        devices = self.devices
        ends = [devices.part(one.buffer, size) for one in (source, into)]
        gpu = into.gpu if isinstance(into, OnGpu) else cast(OnGpu, source).gpu
        stream = self.streams[lane, gpu]
        devices.copy(ends[1], ends[0], stream)
        devices.ended(stream)
        return Moved(size, size)

    def _request(self, lane: str, spot: OnDrive, array: Any, size: int, write: bool) -> int:
        """Read or write a place of the file, in requests. Gives the bytes: past the page cache whole pages."""
        import numpy as np

        if self.way == "mapped":
            there = self.maps[spot.drive][spot.offset : spot.offset + size]
            into, source = (there, array[:size]) if write else (array[:size], there)
            np.copyto(into, source)
            return size
        number, whole = self.files[spot.drive], pages(size) if self.way == "direct" else size
        block, team = self.requests[spot.drive].block_of(whole), self.teams[lane, spot.drive]
        view = memoryview(array)
        done = [0] * -(-whole // block)

        def one(piece: int) -> None:
            first, last = piece * block, min(whole, (piece + 1) * block)
            while first < last:
                act = os.pwritev if write else os.preadv
                count = act(number, [view[first:last]], spot.offset + first)
                if count <= 0:
                    raise OSError(errno.EIO, "the file ended early")
                first += count
                done[piece] += count

        team.run(one, len(done))
        return sum(done)

    def _work(self, place: int, work: Work) -> Moved:
        begun = time.perf_counter()
        item = self.program.items[place]
        dues = [self._due(held, by) for held, by in zip(item.reads, item.brings, strict=True)]
        sizes = [size for _, size in work.reads]
        total = sum(sizes)
        memory = self.step.topology.processors[work.processor].memory
        on_gpu = memory in self.stands.gpus
        act = self._on_gpu if on_gpu else self._on_cpu
        for held, due, size in zip(item.reads, dues, sizes, strict=True):
            self._look(held, due, size, place)
        parts, flops = [], 0.0
        for held, size in zip(item.reads, sizes, strict=True):
            share = work.flops * size / total if total else 0.0
            moved, done = act(work, self.regions[held], size, share)
            parts.append(moved)
            flops += done
        if work.flops and not total and not on_gpu:
            flops = self.processors[work.processor].reckon(work.flops, work.format)
        written = [self._write(work, self.regions[spot], size) for spot, size in work.writes]
        if on_gpu:
            self.devices.ended(self.streams[work.processor, self.stands.gpus[memory]])
        for held, due, size in zip(item.reads, dues, sizes, strict=True):
            self._look(held, due, size, place)  # nothing was put over it meanwhile
        if work.given and (left := work.given - (time.perf_counter() - begun)) > 0:
            time.sleep(left)
        return Moved(sum(parts), sum(written), flops, (*parts, *written))

    def _on_cpu(self, work: Work, region: Region, size: int, flops: float) -> tuple[int, float]:
        if not isinstance(region, InHost):
            raise ReplayError(f"{work.processor} reads {getattr(region, 'memory', 'a drive')} in place, which is not "
                              "replayed: move it first.")  # fmt: skip
        return self.processors[work.processor].read(region.array[:size], flops, work.format)

    def _on_gpu(self, work: Work, region: Region, size: int, flops: float) -> tuple[int, float]:
        if not isinstance(region, OnGpu):
            raise ReplayError(f"{work.processor} reads {getattr(region, 'memory', 'a drive')} in place, which is not "
                              "replayed: move it first.")  # fmt: skip
        stream = self.streams[work.processor, region.gpu]
        vectors = columns_of(size, flops, NUMBER)
        part = self.devices.part(region.buffer, size)
        return size, self.devices.multiply(region.gpu, part, vectors, stream)

    def _write(self, work: Work, region: Region, size: int) -> int:
        if isinstance(region, InHost):
            if work.processor not in self.processors:
                raise ReplayError(f"{work.processor} writes {region.memory} in place, which is not replayed.")
            return self.processors[work.processor].write(region.array[:size])
        raise ReplayError(f"{work.processor} writes {getattr(region, 'memory', 'a drive')}, which is not replayed: a "
                          "processor of this machine writes host memory.")  # fmt: skip

    def sync(self) -> None:
        """Until what was written is on the drives."""
        for number in self.files.values():
            SYNC(number)
