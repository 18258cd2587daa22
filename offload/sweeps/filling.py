"""The figures of a block of a grid: those of its pieces, each where it holds."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy

from offload.ranges import fold
from offload.sweeps.grid import Grid
from offload.sweeps.overlapping import Told, overlapped_seconds
from offload.sweeps.pieces import Piece
from offload.sweeps.program import Into, Points, evaluate_into, in_blocks, longest
from offload.sweeps.quantities import Quantities
from offload.sweeps.structure import Asked, Part, Structure

FIGURES = ("floor", "serial", "binding", "spare", "tokens", "overlapped")
USUAL = FIGURES[:-1]  # what takes no search at any point
EMPTY = {"binding": -2}


def fill(
    structure: Structure,
    block: tuple[slice, ...] | None = None,
    *,
    figures: tuple[str, ...] = USUAL,
    compiled: bool | None = None,
    threads: int = 2,
    asked: Asked | None = None,
    tell: Callable[[str], None] | None = None,
) -> Grid:
    """The figures at the points of a block, slices of all axes (None: the whole grid), as a grid of its own.

    `names`, and what `causes` count in, are those of the structure, whatever occurs in the block; `wrong` has all its
    texts, some with no point. compiled, threads : as `sweep` takes them. asked : what compiles the step at a point; the
    overlapped time needs it (it is NaN without), and tells by `tell` how far it is.
    """
    whole = tuple(slice(0, length) for length in structure.shape)
    return _Filling(structure, whole if block is None else block, figures, compiled, threads, asked, tell).grid()


class _Filling:
    """The arrays of a grid while they are filled."""

    def __init__(
        self, structure: Structure, block: tuple[slice, ...], figures: tuple[str, ...], compiled: bool | None,
        threads: int, asked: Asked | None, tell: Callable[[str], None] | None,
    ):
        self.structure, self.block, self.figures = structure, block, figures
        self.compiled, self.threads, self.asked, self.tell = compiled, threads, asked, tell
        self.told = Told()
        self.timed = 0  # points whose overlapped time is there
        self.shape = tuple(one.stop - one.start for one in block)
        self.arrays: dict[str, numpy.ndarray] = {}
        self.wrong = dict.fromkeys(structure.texts, 0)
        self.causes: numpy.ndarray | None = None  # by point, the place in `wrong`; -1 where there is a step
        self.uncounted: numpy.ndarray | None = None  # by point, the place in the structure's; -1 where all counts
        if structure.uncounted:
            self.uncounted = numpy.full(self.shape, -1, dtype=numpy.int32)

    def grid(self) -> Grid:
        """All points."""
        pieces = list(self.structure.within(self.block))
        self._make_room(pieces)
        for where, points, piece in pieces:
            if piece.figures is not None:
                self._write(piece, piece.figures, points, where)
        for where, points, piece in pieces:
            if piece.figures is None:
                self._write_wrong(piece, points, where)
        if "overlapped" in self.figures and self.asked is not None:
            for part in self.structure.parts:
                self._overlap(part, self.asked)
        axes = tuple(axis if len(axis) == one.stop - one.start else axis.chosen(numpy.arange(one.start, one.stop))
                     for axis, one in zip(self.structure.axes, self.block, strict=True))  # fmt: skip
        found: dict[str, Any] = {name: self._array(name) if name in self.figures else None for name in FIGURES}
        return Grid(axes, self.structure.names, **found, wrong=self.wrong, causes=self.causes,
                    parts=self.structure.uncounted, uncounted=self.uncounted, told=self.told)

    def _overlap(self, part: Part, asked: Asked) -> None:
        """The overlapped time at the points of a part that are in the block."""
        if not part.meets(self.block):
            return
        known = asked.known.setdefault(tuple(part.places.items()), [
            (one.trace, one.figures.overlapped) for one in part.found
            if one.figures is not None and one.figures.overlapped is not None])  # fmt: skip
        found = overlapped_seconds(
            lambda numbers: asked.step(part.places, {int(name): one for name, one in numbers.items()}),
            self.structure.points(part, self.block), compiled=self.compiled, threads=self.threads, told=self.told,
            far=self._far, known=known,
        )  # fmt: skip
        self.timed += found.size
        where = tuple(part.places[axis] - cut.start if axis in part.places else slice(None)
                      for axis, cut in enumerate(self.block))  # fmt: skip
        if part.places:
            self._array("overlapped")[where] = found
        else:
            self.arrays["overlapped"] = found

    def _far(self, done: int) -> None:
        if self.tell is not None:
            self.tell(f"expected times of {self.timed + done:,} of {prod(self.shape):,} points")

    def _array(self, name: str) -> numpy.ndarray:
        """The array of a figure; each of its points is written once all pieces are, but overlapped times are searched
        for only where there is what compiles a step."""
        if name not in self.arrays and name == "overlapped":
            self.arrays[name] = numpy.full(self.shape, numpy.nan)
        elif name not in self.arrays:
            self.arrays[name] = numpy.empty(self.shape, dtype=numpy.int16 if name == "binding" else numpy.float64)
        return self.arrays[name]

    def _make_room(self, pieces: list[tuple[tuple[Any, ...], Points, Piece]]) -> None:
        """Memory for what the kernel writes, with the longest axis that steps are traced along innermost."""
        self.worked = [name for name in ("floor", "serial") if name in self.figures]
        traced = {axis for part in self.structure.parts for axis in part.traced}
        inner = max(traced, key=lambda axis: (self.shape[axis], axis), default=None)
        table = None
        if "binding" in self.figures:  # what a trace's codes mean is another in each
            table = numpy.zeros(1, dtype=numpy.int16)
        self.room = Into.empty(self.shape, len(self.worked), inner, table)
        self.written: list[tuple[slice, ...]] = []  # boxes where something was written
        self.arrays |= {name: self.room.views[place, ...] for place, name in enumerate(self.worked)}
        if self.room.code is not None:
            self.arrays["binding"] = self.room.code

    def _write_wrong(self, piece: Piece, points: Points, where: tuple[Any, ...]) -> None:
        """Why there is no step, and no figures; last, as these points may have been written over."""
        count = int(piece.holds.sum()) * int(numpy.prod(points.shape)) // piece.holds.size
        self.wrong[piece.wrong] += count
        if self.causes is None:
            self.causes = numpy.full(self.shape, -1, dtype=numpy.int32)
        values = {"causes": self.structure.texts.index(piece.wrong)} | {
            name: EMPTY.get(name, numpy.nan) for name in self.figures if name != "overlapped"}  # fmt: skip
        for name, value in values.items():
            into = self.causes if name == "causes" else self._array(name)
            _copy(value, into, where, piece.holds)

    def _write(self, piece: Piece, figures: Quantities, points: Points, where: tuple[Any, ...]) -> None:
        if self.worked or self.room.code is not None:
            self._work(piece, figures, points, where)
        values: dict[str, Any] = {}
        if "spare" in self.figures:
            values["spare"] = numpy.nan if figures.spare is None else in_blocks(piece.trace, figures.spare, points)
        if "tokens" in self.figures:
            values["tokens"] = in_blocks(piece.trace, figures.tokens, points)
        if self.uncounted is not None and figures.uncounted:
            _copy(self.structure.uncounted.index(fold(figures.uncounted)), self.uncounted, where, piece.holds)
        for name, value in values.items():
            if piece.holds.all() and name not in self.arrays and all(one == slice(None) for one in where):
                self.arrays[name] = numpy.broadcast_to(numpy.asarray(value, dtype=numpy.float64), self.shape)
            else:
                _copy(value, self._array(name), where, piece.holds)

    def _work(self, piece: Piece, figures: Quantities, points: Points, where: tuple[Any, ...]) -> None:
        """Floor, serial and what binds: straight to their places where nothing else was written before."""
        code = None
        if self.room.code is not None:
            code = figures.binding
            numbers = [self.structure.names.index(name) for name in figures.names]
            self.room.table = numpy.array([*numbers, -2, -1], dtype=numpy.int16)  # -1 and -2 count from the end
        into = self.room.at(where)
        box = tuple(slice(one, one + 1) if isinstance(one, int) else slice(*one.indices(length)[:2])
                    for one, length in zip(where, self.shape, strict=True))  # fmt: skip
        over = not piece.holds.all() and any(_meet(box, one) for one in self.written)
        room = Into.empty(points.shape, len(self.worked), longest(points.shape),
                          None if code is None else self.room.table) if over else into  # fmt: skip
        evaluate_into(piece.trace, [getattr(figures, name) for name in self.worked], code, points, room,
                      compiled=self.compiled, threads=self.threads)  # fmt: skip
        if over:
            numpy.copyto(into.views, room.views, where=piece.holds)
            if into.code is not None and room.code is not None:
                numpy.copyto(into.code, room.code, where=piece.holds)
        self.written.append(box)


def _meet(one: tuple[slice, ...], other: tuple[slice, ...]) -> bool:
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))


def _copy(value: Any, into: numpy.ndarray, where: tuple[Any, ...], holds: numpy.ndarray) -> None:
    """Write a figure where a mask holds."""
    if holds.all():
        into[where] = value
    else:
        numpy.copyto(into[(*where, ...)], value, where=holds, casting="same_kind")
