"""Sweeps: the figures of a step over any values of its plan and its server.

    grid = sweep("plan.yaml", ["workload.batch=1:256", "pcie0.rate=16GB/s:128GB/s:200log"])
    grid.floor.shape                                     # (256, 200)

A step is compiled once with numbers that remember how they were made (`pieces`), and what they say is worked out for
all points at once, by NumPy or by a compiled kernel (`program`). What changes the structure of a step is gone through
value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from math import prod
from pathlib import Path

from offload.documents.settings import Setting
from offload.errors import OffloadError, did_you_mean, shown
from offload.files import path_of
from offload.given import whole
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

MOST_POINTS = 10**13  # some hours at the rate of a machine
BY = ("floor", "serial", "overlapped", "tokens", "tokens_per_s", "spare")

__all__ = ["FIGURES", "USUAL", "Axis", "Grid", "PlanFile", "Reduced", "Words", "read_axis", "sweep"]


def sweep(
    plan: str | Path | Source,
    axes: Sequence[Axis | str],
    *,
    topology: str | Path | Topology | None = None,
    settings: Sequence[Setting | str] = (),
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

    >>> from offload import sweep
    >>> grid = sweep("examples/by-hand.yaml", ["pcie0.rate=16GB/s,32GB/s"])
    >>> [round(float(seconds), 2) for seconds in grid.floor]
    [2.64, 1.32]
    """
    if isinstance(axes, str | Axis) or not isinstance(axes, Iterable):
        raise OffloadError('axes are a list, as ["workload.batch=1:64"], not ' + shown(axes))
    read = tuple(read_axis(one) if isinstance(one, str) else one for one in axes)
    if wrong := [one for one in read if not isinstance(one, Axis)]:
        raise OffloadError(f'{shown(wrong[0])} is no axis. Give texts, as "workload.batch=1:64", or what read_axis '
                           "made of one.")
    for place, one in enumerate(read):
        if any(other.path == one.path for other in read[:place]):
            raise OffloadError(f'"{one.path}" is swept twice. Keep one.')
    if isinstance(figures, str) or not figures:
        raise OffloadError('figures are a list of at least one, as ["floor", "spare"].')
    for figure in figures:
        if figure not in FIGURES:
            raise OffloadError(f'"{figure}" is no figure of a sweep. {did_you_mean(figure, FIGURES, "Figures")}')
    if isinstance(plan, str | Path):
        plan = PlanFile(plan, topology=topology, settings=settings)
    elif not hasattr(plan, "load"):
        raise OffloadError(f"{shown(plan)} is no plan: give the path of a plan file, or Words(MODEL, SERVER).")
    elif topology is not None or settings:
        raise OffloadError("topology and settings belong to the source that is given: state them there.")
    whole("threads", threads, 1)
    if chunk is not None:
        whole("chunk", chunk, 1)
    if by not in BY:
        raise OffloadError(f"by: {shown(by)} is no figure of a sweep. {did_you_mean(str(by), BY, 'Figures')}")
    if executor is not None and not hasattr(executor, "submit"):
        raise OffloadError(f"executor: {shown(executor)} takes no work; give one in the manner of concurrent.futures.")
    if keep is not None:
        path_of(keep, "keep")
    elif resume:
        raise OffloadError("resume goes on with chunks that are kept: name the output beside which they are, "
                           "keep=FILE.")
    if isinstance(reduce, str | Reduction):
        raise OffloadError('reduce is a list, as ["best=20", "binding"], not ' + shown(reduce))
    if odd := [one for one in reduce if not isinstance(one, str | Reduction)]:
        raise OffloadError(f"{shown(odd[0])} is no reduction, as best=20 or binding.")
    reductions = tuple(one for text in reduce for one in (
        [text] if isinstance(text, Reduction) else read_reductions([text], read, by=by)))  # fmt: skip
    if len(set(reductions)) < len(reductions):
        raise OffloadError("one reduction is named twice. Keep one.")
    points = prod(len(axis) for axis in read)
    if points > MOST_POINTS:
        raise OffloadError(f"{points:,} points are more than the {MOST_POINTS:,} that are gone through. Sweep fewer "
                           "values.")
    if not reductions and by != "floor":
        raise OffloadError("by says what is best in reductions; without reduce write grid.best(by=...).")
    if not reductions:
        refuse_too_large(points, figures)
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
