"""Sweeps: the figures of a step over any values of its plan and its server.

    grid = sweep("plan.yaml", ["workload.batch=1:256", "pcie0.rate=16GB/s:128GB/s:200log"])
    grid.floor.shape                                     # (256, 200)

A step is compiled once with numbers that remember how they were made (`pieces`), and what they say is worked out for
all points at once, by NumPy or by a compiled kernel (`program`). What changes the structure of a step is gone through
value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy

from offload.compiler import compile_step
from offload.documents.settings import Setting
from offload.errors import OffloadError, did_you_mean
from offload.replay import Replay
from offload.step import Step
from offload.sweeps.axes import Axis, read_axis
from offload.sweeps.grid import Grid
from offload.sweeps.pieces import Escaped, Piece, pieces
from offload.sweeps.program import Points, evaluate
from offload.sweeps.sources import PlanFile, Source, Words
from offload.topology import Topology

__all__ = ["FIGURES", "Axis", "Grid", "PlanFile", "Words", "read_axis", "sweep"]

FIGURES = ("floor", "serial", "binding", "spare", "tokens")
EMPTY = {"binding": -2}
MOST_WALKED = 100_000  # steps compiled one by one, at a few milliseconds each


def sweep(
    plan: str | Path | Source,
    axes: Sequence[Axis | str],
    *,
    topology: str | Path | Topology | None = None,
    settings: Sequence[Setting] = (),
    figures: Sequence[str] = FIGURES,
    compiled: bool | None = None,
    threads: int = 2,
) -> Grid:
    """Floor, serial, what binds and what fits at every point of a grid.

    figures : which of them are wanted, some of FIGURES; the arrays of the others are None.
    plan : a plan file, or a `Words`. axes : as `read_axis` reads them. topology, settings : as `load_plan` takes them,
    of a plan file. compiled : whether by the kernel; None for whichever is sooner done: both give the same bits. Raises
    OffloadError for axes that cannot be read, two of one path, and a plan that can be made at no point.
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
    found = _Filling(_Asked(plan, read), tuple(figures), compiled, threads).grid()
    if found.wrong and sum(found.wrong.values()) == found.size:
        texts = list(found.wrong)
        if len(texts) == 1:
            raise OffloadError(texts[0])
        more = f"And {len(texts) - 1:,} more, of other values."
        raise OffloadError(f"no step can be made at any point. {texts[0]}\n{more}")
    return found


class _Asked:
    """What is swept: compiles the step at any point."""

    def __init__(self, source: Source, axes: tuple[Axis, ...]):
        self.source, self.axes = source, axes

    def step(self, places: dict[int, int], numbers: dict[int, Any]) -> Step:
        """The step with the values at places of some axes, and numbers in place of others."""
        chosen: list[Setting] = []
        for number, axis in enumerate(self.axes):
            if number in places:
                chosen.append(axis.setting(places[number]))
            else:
                traced = numbers[number]
                chosen.append(_setting_of(axis, traced))
        plan, server = self.source.load(chosen)
        return compile_step(server, plan)


def _setting_of(axis: Axis, number: Any) -> Setting:
    from offload.tracing import Traced, plain

    place = int(numpy.flatnonzero(axis.numbers == plain(number))[0])
    return axis.setting(place, number if isinstance(number, Traced) else None)


class _Filling:
    """The arrays of a grid while they are filled."""

    def __init__(self, asked: _Asked, figures: tuple[str, ...], compiled: bool | None, threads: int):
        self.asked, self.figures, self.compiled, self.threads = asked, figures, compiled, threads
        self.shape = tuple(len(axis) for axis in asked.axes)
        self.arrays: dict[str, numpy.ndarray] = {}
        self.names: list[str] = []
        self.wrong: dict[str, int] = {}
        self.causes: numpy.ndarray | None = None  # by point, the place in `wrong`; -1 where there is a step
        self.walked = 0

    def grid(self) -> Grid:
        """All points."""
        self._fill(self._numeric())
        found = {name: self._array(name) if name in self.figures else None for name in FIGURES}
        return Grid(self.asked.axes, tuple(self.names), **found, wrong=self.wrong, causes=self.causes)

    def _array(self, name: str) -> numpy.ndarray:
        """The array of a figure, empty where it is not there yet."""
        if name not in self.arrays:
            kind = numpy.int16 if name == "binding" else numpy.float64
            self.arrays[name] = numpy.full(self.shape, EMPTY.get(name, numpy.nan), dtype=kind)
        return self.arrays[name]

    def _numeric(self) -> tuple[int, ...]:
        return tuple(number for number, axis in enumerate(self.asked.axes) if axis.numbers is not None)

    def _fill(self, traced: tuple[int, ...]) -> None:
        """Fill the grid with some axes traced; where a number escapes, its axis is gone through value by value."""
        axes = self.asked.axes
        walked = [number for number in range(len(axes)) if number not in traced]
        for at in product(*(range(len(axes[number])) for number in walked)):
            places = dict(zip(walked, at, strict=True))
            self._fill_below(places, traced)

    def _fill_below(self, places: dict[int, int], traced: tuple[int, ...]) -> None:
        try:
            found = self._pieces(places, traced)
        except Escaped as error:
            number = self._escaping(places, traced) if error.axis is None else int(error.axis)
            self.walked += len(self.asked.axes[number])
            if self.walked > MOST_WALKED:
                path = self.asked.axes[number].path
                raise OffloadError(f"{path} is gone through value by value, each with a step of its own: "
                                   f"{self.walked:,} of these are more than the {MOST_WALKED:,} that are taken. Sweep "
                                   "fewer values of it.") from None
            rest = tuple(one for one in traced if one != number)
            for place in range(len(self.asked.axes[number])):
                self._fill_below(places | {number: place}, rest)
            return
        points = self._points(traced)
        where = tuple(places.get(number, slice(None)) for number in range(len(self.asked.axes)))
        for piece in found:
            self._write(piece, points, where)

    def _points(self, traced: tuple[int, ...]) -> Points:
        return Points(tuple(str(number) for number in traced), tuple(self.asked.axes[one].numbers for one in traced))

    def _pieces(self, places: dict[int, int], traced: tuple[int, ...]) -> tuple[Piece, ...]:
        return pieces(lambda numbers: self.asked.step(places, {int(name): one for name, one in numbers.items()}),
                      self._points(traced))

    def _escaping(self, places: dict[int, int], traced: tuple[int, ...]) -> int:
        """The axis whose number escapes by itself, or the shortest one."""
        for number in traced:
            others = {one: 0 for one in traced if one != number}
            try:
                self._pieces(places | others, (number,))
            except Escaped:
                return number
        return min(traced, key=lambda one: len(self.asked.axes[one]))

    def _write(self, piece: Piece, points: Points, where: tuple[Any, ...]) -> None:
        if piece.figures is None:
            count = int(piece.holds.sum()) * int(numpy.prod(points.shape)) // piece.holds.size
            self.wrong[piece.wrong] = self.wrong.get(piece.wrong, 0) + count
            if self.causes is None:
                self.causes = numpy.full(self.shape, -1, dtype=numpy.int32)
            if piece.holds.ndim:
                numpy.copyto(self.causes[where], list(self.wrong).index(piece.wrong), where=piece.holds)
            else:
                self.causes[where] = list(self.wrong).index(piece.wrong)
            return
        figures = piece.figures
        points, holds, where = self._box(piece.holds, points, where)
        worked = [name for name in ("floor", "serial") if name in self.figures]
        found, codes = evaluate(
            piece.trace, [getattr(figures, name) for name in worked],
            figures.binding if "binding" in self.figures else None, points,
            compiled=self.compiled, threads=self.threads,
        )  # fmt: skip
        values: dict[str, Any] = dict(zip(worked, found, strict=True))
        if codes is not None:
            numbers = numpy.array([self._name(name) for name in figures.names] + [-2, -1], dtype=numpy.int16)
            values["binding"] = numbers[codes]  # -1 and -2 count from the end
        replay = Replay(piece.trace, points.inputs())
        values["spare"] = numpy.nan if figures.spare is None else replay.value(figures.spare)
        values["tokens"] = replay.value(figures.tokens)
        for name in self.figures:
            self._put(name, values[name], holds, where)

    def _put(self, name: str, value: Any, holds: numpy.ndarray, where: tuple[Any, ...]) -> None:
        if name not in self.arrays and bool(holds.all()) and all(one == slice(None) for one in where):
            kind = numpy.int16 if name == "binding" else numpy.float64
            self.arrays[name] = numpy.broadcast_to(numpy.asarray(value, dtype=kind), self.shape)
        elif holds.all():
            self._array(name)[where] = value
        else:
            numpy.copyto(self._array(name)[where], value, where=holds, casting="same_kind")

    def _box(
        self, holds: numpy.ndarray, points: Points, where: tuple[Any, ...]
    ) -> tuple[Points, numpy.ndarray, tuple[Any, ...]]:
        """The smallest box of the grid that has all that a mask holds: its points, the mask in it, and where it is."""
        cuts = []
        for axis, length in enumerate(holds.shape):
            others = tuple(one for one in range(holds.ndim) if one != axis)
            inside = numpy.flatnonzero(holds.any(axis=others)) if length > 1 else [0, length - 1]
            whole = length == 1 or (inside[0] == 0 and inside[-1] == length - 1)
            cuts.append(slice(None) if whole else slice(int(inside[0]), int(inside[-1]) + 1))
        if all(cut == slice(None) for cut in cuts):
            return points, holds, where
        values = tuple(one[cut] for one, cut in zip(points.values, cuts, strict=True))
        mask = holds[tuple(slice(None) if length == 1 else cut
                           for length, cut in zip(holds.shape, cuts, strict=True))]  # fmt: skip
        left = iter(cuts)
        return Points(points.names, values), mask, tuple(next(left) if one == slice(None) else one for one in where)

    def _name(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


