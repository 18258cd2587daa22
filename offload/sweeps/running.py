"""A sweep in chunks from end to end: what is there already, what is left, and what all of it gives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy

from offload import __version__
from offload.errors import OffloadError
from offload.files import named
from offload.sweeps.chunks import Arrays, Job, run, whole_grid
from offload.sweeps.cuts import CHUNK, cut
from offload.sweeps.grid import Grid
from offload.sweeps.kept import Kept
from offload.sweeps.overlapping import chunk_of
from offload.sweeps.reduced import Reduced, reduced
from offload.sweeps.reductions import Reduction, figures_of
from offload.sweeps.structure import Asked, structure_of

MOST_IN_MEMORY = 2**30  # bytes of a grid's arrays; above, they are laid out in files


class Watcher(Protocol):
    """What is told how far a sweep is."""

    def stage(self, text: str) -> None:
        """What is begun."""

    def start(self, points: int, done: int) -> None:
        """How many points there are, and how many of them were done before."""

    def add(self, points: int) -> None:
        """So many more points are done."""


class Unwatched:
    """Tells nobody."""

    def stage(self, text: str) -> None: ...

    def start(self, points: int, done: int) -> None: ...

    def add(self, points: int) -> None: ...


@dataclass(slots=True)
class Run:
    """How a sweep is worked out. chunk : points of one, None for what was begun with or CHUNK, fewer where
    overlapped times are kept that take long. kept : where finished chunks are, None for nowhere; resume : go on with
    those that are there. executor : as `chunks.run` takes it.
    """

    figures: tuple[str, ...]
    reductions: tuple[Reduction, ...] = ()
    chunk: int | None = None
    compiled: bool | None = None
    threads: int = 2
    executor: Executor | None = None
    kept: Kept | None = None
    resume: bool = False
    watcher: Watcher = Unwatched()  # noqa: RUF009 - it holds nothing

    def answer(self, asked: Asked) -> Grid | Reduced:
        """The grid, or with reductions what they give; finished chunks stay until `done`. Raises OffloadError."""
        self._refuse()
        before = self.kept.asked() if self.kept is not None and self.kept.exists else None
        if self.chunk is None and before is not None and isinstance(before.get("chunk"), int):
            self.chunk = before["chunk"]
        figures = figures_of(self.reductions) if self.reductions else self.figures
        self.watcher.stage("reading the plan and its server")
        points = self.chunk or CHUNK
        if self.chunk is None and self.kept is not None and "overlapped" in figures:
            points = min(map(chunk_of, asked.some()), default=CHUNK)
        structure = structure_of(asked, points, lambda count: self.watcher.stage(f"{count:,} steps looked into"),
                                 set(figures) == {"overlapped"})  # fmt: skip
        job = Job(structure, cut(structure.shape, points), figures, self.reductions, self.compiled, self.threads,
                  asked if "overlapped" in figures else None)  # fmt: skip
        there = self._there(asked, job, points, before)
        total = int(numpy.prod(structure.shape, dtype=object))
        self.watcher.start(total, sum(job.points(number) for number in there))
        left = [number for number in range(len(job.cuts)) if number not in there]
        if self.reductions:
            return self._reduced(job, there, left)
        return self._grid(job, there, left, total)

    def _refuse(self) -> None:
        if self.kept is None or not self.kept.exists or self.resume:
            return
        raise OffloadError(f"{named(self.kept.folder)} holds finished chunks of a sweep that did not end: go on with "
                           "--resume, or remove that folder to start anew.")

    def _there(self, asked: Asked, job: Job, points: int, before: Any) -> set[int]:
        """The chunks that are there, of the same question."""
        if self.kept is None:
            return set()
        question = {
            "offload": __version__, "of": asked.source.name, "chunk": points,
            "axes": [{"path": axis.path, "values": len(axis), "first": axis.text(0), "last": axis.text(len(axis) - 1),
                      "digest": axis.digest} for axis in job.structure.axes],
            "figures": list(job.figures), "reduce": [one.text for one in self.reductions],
            "structure": job.structure.digest if job.asked is None else f"{job.structure.digest} {job.asked.digest}",
        }  # fmt: skip
        if before is None:
            self.kept.start(question)
            return set()
        if differs := self.kept.differs(question):
            raise OffloadError(f"{named(self.kept.folder)} holds chunks of another sweep: {'; '.join(differs)}. Ask "
                               "the same, write to another file, or remove that folder.")
        self.watcher.stage("looking through finished chunks")
        return {number for number in range(len(job.cuts)) if self._found(job, number) is not None}

    def _found(self, job: Job, number: int) -> Arrays | None:
        """A finished chunk, None where there is none that is whole."""
        found = None if self.kept is None else self.kept.load(number)
        return found if found is not None and job.is_of(number, found) else None

    def _reduced(self, job: Job, there: set[int], left: list[int]) -> Reduced:
        found: Arrays = {}

        def add(arrays: Arrays) -> None:
            nonlocal found
            found = job.merged(found, arrays) if found else arrays

        def done(number: int, arrays: Arrays) -> None:
            if self.kept is not None:
                self.kept.save(number, arrays)
            add(arrays)
            self.watcher.add(job.points(number))

        for number in sorted(there):
            add(self._loaded(job, number))
        run(job, left, done, self.executor, self.watcher.stage)
        return reduced(job, found)

    def _grid(self, job: Job, there: set[int], left: list[int], total: int) -> Grid:
        kept = self.kept
        if kept is None:
            held: dict[int, Arrays] = {}

            def hold(number: int, arrays: Arrays) -> None:
                held[number] = arrays
                self.watcher.add(job.points(number))

            run(job, left, hold, self.executor, self.watcher.stage)
            return whole_grid(job, ((number, held.pop(number)) for number in range(len(job.cuts))),
                              lambda name, kind: numpy.empty(total, dtype=kind))

        def save(number: int, arrays: Arrays) -> None:
            kept.save(number, arrays)
            self.watcher.add(job.points(number))

        run(job, left, save, self.executor, self.watcher.stage)
        self.watcher.stage("putting the chunks together")
        large = total * 8 * len(job.figures) > MOST_IN_MEMORY

        def make(name: str, kind: Any) -> numpy.ndarray:
            return kept.array(name, total, kind) if large else numpy.empty(total, dtype=kind)

        def chunks() -> Iterator[tuple[int, Arrays]]:
            for number in range(len(job.cuts)):
                yield number, self._loaded(job, number)

        return whole_grid(job, chunks(), make)

    def _loaded(self, job: Job, number: int) -> Arrays:
        found = self._found(job, number)
        if found is None:
            folder = cast(Kept, self.kept).folder
            raise OffloadError(f"{named(folder)}: chunk {number} is gone or damaged since it was written. "
                               "The same with --resume works it out again.")
        return found

    def done(self) -> None:
        """The output is written: the finished chunks are not needed any more."""
        if self.kept is not None:
            self.kept.remove()


def room() -> int:
    """Bytes of memory that are free for a grid; what cannot be told counts as 4 GiB."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2**32


def refuse_too_large(points: int, figures: Sequence[str]) -> None:
    """Raises OffloadError where the arrays of a grid are more than the memory that is free."""
    due = points * 8 * (len(figures) + 1)
    if due > room():
        raise OffloadError(
            f"{points:,} points take about {due / 2**30:,.0f} GiB of memory, and {room() / 2**30:,.0f} GiB are free. "
            "Keep less of them, as --reduce best=20,binding, or sweep fewer values."
        )
