"""Sweeps: the figures of a step over any values of its plan and its server.

    grid = sweep("plan.yaml", ["workload.batch=1:256", "pcie0.rate=16GB/s:128GB/s:200log"])
    grid.floor.shape                                     # (256, 200)

A step is compiled once with numbers that remember how they were made (`pieces`), and what they say is worked out for
all points at once, by NumPy or by a compiled kernel (`program`). What changes the structure of a step is gone through
value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from math import prod
from pathlib import Path

from offload.documents.settings import Setting
from offload.errors import OffloadError, did_you_mean
from offload.sweeps.axes import Axis, read_axis
from offload.sweeps.filling import FIGURES, USUAL, fill
from offload.sweeps.grid import Grid
from offload.sweeps.kept import Kept
from offload.sweeps.reduced import Reduced
from offload.sweeps.reductions import Reduction, read_reductions
from offload.sweeps.running import Run, Unwatched, Watcher, refuse_too_large
from offload.sweeps.sources import PlanFile, Source, Words
from offload.sweeps.structure import Asked, structure_of
from offload.topology import Topology

__all__ = ["FIGURES", "USUAL", "Axis", "Grid", "PlanFile", "Reduced", "Words", "read_axis", "sweep"]



def sweep(
    plan: str | Path | Source,
    axes: Sequence[Axis | str],
    *,
    topology: str | Path | Topology | None = None,
    settings: Sequence[Setting] = (),
    figures: Sequence[str] = USUAL,
    compiled: bool | None = None,
    threads: int = 2,
    reduce: Sequence[str | Reduction] = (),
    by: str = "floor",
    chunk: int | None = None,
    executor: Executor | None = None,
    keep: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Grid | Reduced:
    """Floor, serial, what binds and what fits at every point of a grid.

    plan : a plan file, or a `Words`. axes : as `read_axis` reads them. topology, settings : as `load_plan` takes them,
    of a plan file. figures : which of them are wanted, some of FIGURES; the arrays of the others are None. The
    overlapped time comes only where it is asked for: of steps without a formula it is searched for at each point
    (`Grid.told`). compiled : whether by the kernel; None for whichever is sooner done: both give the same bits.

    reduce : answers that are kept in place of the grid, as "best=20" (`reductions`); by : the figure that is best.
    chunk : points that are worked out at a time. executor : what works chunks out, as those of concurrent.futures.
    keep : an output beside which finished chunks are kept, in a folder `KEEP.partial` that whoever writes the output
    removes; resume : go on with those that are there. watcher : is told how far it is (`progress.Progress`).

    Raises OffloadError for axes that cannot be read, two of one path, and a plan that can be made at no point.
    """
    read = tuple(read_axis(one) if isinstance(one, str) else one for one in axes)
    for place, one in enumerate(read):
        if any(other.path == one.path for other in read[:place]):
            raise OffloadError(f'"{one.path}" is swept twice. Keep one.')
    for one in figures:
        if one not in FIGURES:
            raise OffloadError(f'"{one}" is no figure of a sweep. {did_you_mean(one, FIGURES, "Figures")}')
    if isinstance(plan, str | Path):
        plan = PlanFile(plan, topology=topology, settings=settings)
    elif topology is not None or settings:
        raise OffloadError("topology and settings belong to the source that is given: state them there.")
    if threads < 1 or chunk is not None and chunk < 1:
        raise OffloadError("threads and points of a chunk are whole numbers of at least 1.")
    reductions = tuple(one for text in reduce for one in (
        [text] if isinstance(text, Reduction) else read_reductions([text], read, by=by)))  # fmt: skip
    if len(set(reductions)) < len(reductions):
        raise OffloadError("one reduction is named twice. Keep one.")
    if not reductions:
        refuse_too_large(prod(len(axis) for axis in read), figures)
    kept = None if keep is None else Kept(keep)
    found: Grid | Reduced
    if not reductions and chunk is None and executor is None and kept is None:
        watcher = watcher or Unwatched()
        watcher.stage("reading the plan and its server")
        asked = Asked(plan, read)
        structure = structure_of(asked, bare=set(figures) == {"overlapped"})
        watcher.start(prod(structure.shape), 0)
        found = fill(structure, figures=tuple(figures), compiled=compiled, threads=threads, asked=asked,
                     tell=watcher.stage)
    else:
        found = Run(tuple(figures), reductions, chunk, compiled, threads, executor, kept, resume,
                    watcher or Unwatched()).answer(Asked(plan, read))  # fmt: skip
    if found.wrong and sum(found.wrong.values()) == found.size:
        texts = list(found.wrong)
        if len(texts) == 1:
            raise OffloadError(texts[0])
        more = f"And {len(texts) - 1:,} more, of other values."
        raise OffloadError(f"no step can be made at any point. {texts[0]}\n{more}")
    return found
