"""A grid that is worked out chunk by chunk, here or by any executor, with what is finished kept on disk.

A job is all that a chunk needs, in one picklable value: another process or machine works one out without the plan's
files. Chunks may be finished in any order; what they give together does not depend on it.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, wait
from dataclasses import astuple, dataclass, fields
from math import prod
from threading import Lock
from typing import Any

import numpy

from offload.errors import OffloadError
from offload.sweeps.cuts import Cuts
from offload.sweeps.filling import fill
from offload.sweeps.grid import Grid
from offload.sweeps.overlapping import Told
from offload.sweeps.reductions import Reduction, Seen
from offload.sweeps.structure import Asked, Structure

AHEAD = 8  # chunks that an executor has at a time, at least
MOST_HELD = 4  # jobs that a worker remembers
TRIES = 3  # of a chunk whose worker is lost
BESIDE = ("causes", "uncounted")  # arrays of a grid that only some have, -1 where nothing is said
Arrays = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Job:
    """What is asked of each chunk: arrays of its figures, or with reductions what they keep of it.

    compiled, threads : as `sweep` takes them. asked : as `fill` takes it.
    """

    structure: Structure
    cuts: Cuts
    figures: tuple[str, ...]
    reductions: tuple[Reduction, ...] = ()
    compiled: bool | None = None
    threads: int = 2
    asked: Asked | None = None

    def chunk(self, number: int, tell: Callable[[str], None] | None = None) -> Arrays:
        """What a chunk gives: its figures, `causes` and `uncounted`, or the states of the reductions by "NUMBER.NAME";
        and `wrong`, at how many points each text of the structure says why no step can be made; `told`, as `Told`
        counts.

        tell : as `fill` takes it.
        """
        block = self.cuts[number]
        grid = fill(self.structure, block, figures=self.figures, compiled=self.compiled, threads=self.threads,
                    asked=self.asked, tell=tell)  # fmt: skip
        found: Arrays = {"wrong": numpy.array(list(grid.wrong.values()), dtype=numpy.int64)}
        if not self.reductions:
            found |= {name: getattr(grid, name) for name in self.figures}
            found["told"] = numpy.array(astuple(grid.told), dtype=numpy.int64)
            return found | {name: array for name in BESIDE if (array := getattr(grid, name)) is not None}
        seen = Seen(grid)
        begin, starts = self.cuts.begin(number), [one.start for one in block]
        for place, one in enumerate(self.reductions):
            found |= {f"{place}.{name}": array for name, array in one.of(seen, begin, starts).items()}
        return found

    def merged(self, one: Arrays, other: Arrays) -> Arrays:
        """What two chunks give together, of a job with reductions."""
        found: Arrays = {"wrong": one["wrong"] + other["wrong"]}
        for place, reduction in enumerate(self.reductions):
            mine = f"{place}."
            states = [{name[len(mine) :]: array for name, array in arrays.items() if name.startswith(mine)}
                      for arrays in (one, other)]  # fmt: skip
            found |= {mine + name: array for name, array in reduction.merged(*states).items()}
        return found

    def is_of(self, number: int, arrays: Arrays) -> bool:
        """Whether arrays have the names and sizes of those of a chunk."""
        names = set(arrays) - set(BESIDE)
        if arrays.get("wrong", numpy.empty(0)).shape != (len(self.structure.texts),):
            return False
        if self.reductions:
            return {name.partition(".")[0] for name in names - {"wrong"}} == set(map(str, range(len(self.reductions))))
        points = self.points(number)
        return names == {"wrong", "told", *self.figures} and all(
            array.size == points for name, array in arrays.items() if name not in ("wrong", "told"))

    def points(self, number: int) -> int:
        """How many points a chunk has."""
        return prod(one.stop - one.start for one in self.cuts[number])


_held: dict[str, Job] = {}
_holding = Lock()


def work(packed: bytes, digest: str, number: int) -> Arrays:
    """A chunk of a job that was sent pickled; the job is read once in each process."""
    with _holding:
        job = _held.get(digest)
        if job is None:
            while len(_held) >= MOST_HELD:
                del _held[next(iter(_held))]
            job = _held[digest] = pickle.loads(packed)
    return job.chunk(number)


def run(
    job: Job, numbers: list[int], done: Callable[[int, Arrays], None], executor: Executor | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Work out some chunks and hand each over as it is finished.

    executor : as those of concurrent.futures, which is handed jobs that can be pickled; None works here, and tells by
    `tell` how far a chunk is that takes long. Raises OffloadError where its workers are gone, and what a chunk
    raises.
    """
    if executor is None:
        for number in numbers:
            done(number, job.chunk(number, tell))
        return
    packed = pickle.dumps(job)
    digest = hashlib.sha256(packed).hexdigest()
    waiting, tries = iter(numbers), dict.fromkeys(numbers, 0)
    running: dict[Any, int] = {}
    try:
        while True:
            _submit(executor, waiting, running, (packed, digest))
            if not running:
                return
            finished, _ = wait(list(running), return_when=FIRST_COMPLETED)
            again = []
            for one in finished:
                number = running.pop(one)
                try:
                    found = one.result()
                except BrokenExecutor as error:
                    raise OffloadError(f"the workers are gone ({error or type(error).__name__}); with more memory for "
                                       "each, or smaller chunks (--chunk), they may last.") from error
                except OffloadError:
                    raise
                except Exception as error:
                    tries[number] += 1
                    if tries[number] >= TRIES:
                        raise OffloadError(f"chunk {number} failed {TRIES} times; the last time: "
                                           f"{type(error).__name__}: {error}") from error
                    again.append(number)
                    continue
                done(number, found)
            waiting = _chain(again, waiting)
    finally:
        for one in running:
            one.cancel()


def _chain(again: list[int], waiting: Iterator[int]) -> Iterator[int]:
    yield from again
    yield from waiting


def _submit(executor: Executor, waiting: Iterator[int], running: dict[Any, int], sent: tuple[bytes, str]) -> None:
    ahead = max(AHEAD, 2 * getattr(executor, "_max_workers", 0))
    while len(running) < ahead:
        number = next(waiting, None)
        if number is None:
            return
        try:
            running[executor.submit(work, *sent, number)] = number
        except (BrokenExecutor, RuntimeError) as error:
            raise OffloadError(f"the executor takes no more chunks: {error}") from error


def whole_grid(job: Job, chunks: Iterator[tuple[int, Arrays]], make: Callable[[str, Any], numpy.ndarray]) -> Grid:
    """The grid that chunks make together. make : an array of the grid's size, by a name and a type."""
    shape, structure = job.structure.shape, job.structure
    arrays: Arrays = {}
    wrong = numpy.zeros(len(structure.texts), dtype=numpy.int64)
    ways = numpy.zeros(len(fields(Told)), dtype=numpy.int64)
    for number, found in chunks:
        begin, count = job.cuts.begin(number), job.points(number)
        wrong += found.pop("wrong")
        ways += found.pop("told")
        for name, array in found.items():
            if name not in arrays:
                arrays[name] = make(name, array.dtype)
                if name in BESIDE:
                    arrays[name][:] = -1
            arrays[name][begin : begin + count] = array.reshape(-1)
    whole: dict[str, Any] = {name: arrays[name].reshape(shape) if name in arrays else None
                             for name in ("floor", "serial", "binding", "spare", "tokens", *BESIDE,
                                          *job.figures)}  # fmt: skip
    texts = {text: int(count) for text, count in zip(structure.texts, wrong, strict=True)}
    return Grid(structure.axes, structure.names, **whole, wrong=texts, parts=structure.uncounted,
                told=Told(*ways.tolist()))
