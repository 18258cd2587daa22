"""The figures of a block of a grid: those of its pieces, each where it holds."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy

from offload.sweeps.grid import Grid
from offload.sweeps.overlapping import Told, overlapped_seconds
from offload.sweeps.pieces import Piece
from offload.sweeps.program import Points, evaluate, in_blocks
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
    overlapped time needs it, and tells by `tell` how far it is.
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

    def grid(self) -> Grid:
        """All points."""
        for where, points, piece in self.structure.within(self.block):
            self._write(piece, points, where)
        if "overlapped" in self.figures and self.asked is not None:
            for part in self.structure.parts:
                self._overlap(part, self.asked)
        axes = tuple(axis if len(axis) == one.stop - one.start else axis.chosen(numpy.arange(one.start, one.stop))
                     for axis, one in zip(self.structure.axes, self.block, strict=True))  # fmt: skip
        found = {name: self._array(name) if name in self.figures else None for name in FIGURES}
        return Grid(axes, self.structure.names, **found, wrong=self.wrong, causes=self.causes,
                    told=self.told)

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
        """The array of a figure, empty where it is not there yet."""
        if name not in self.arrays:
            kind = numpy.int16 if name == "binding" else numpy.float64
            self.arrays[name] = numpy.full(self.shape, EMPTY.get(name, numpy.nan), dtype=kind)
        return self.arrays[name]

    def _write(self, piece: Piece, points: Points, where: tuple[Any, ...]) -> None:
        if piece.figures is None:
            count = int(piece.holds.sum()) * int(numpy.prod(points.shape)) // piece.holds.size
            self.wrong[piece.wrong] += count
            if self.causes is None:
                self.causes = numpy.full(self.shape, -1, dtype=numpy.int32)
            if piece.holds.ndim:
                numpy.copyto(self.causes[where], self.structure.texts.index(piece.wrong), where=piece.holds)
            else:
                self.causes[where] = self.structure.texts.index(piece.wrong)
            return
        figures = piece.figures
        worked = [name for name in ("floor", "serial") if name in self.figures]
        found, codes = (), None
        if worked or "binding" in self.figures:
            found, codes = evaluate(
                piece.trace, [getattr(figures, name) for name in worked],
                figures.binding if "binding" in self.figures else None, points,
                compiled=self.compiled, threads=self.threads,
            )  # fmt: skip
        values: dict[str, Any] = dict(zip(worked, found, strict=True))
        if codes is not None:
            codes_of = [self.structure.names.index(name) for name in figures.names]
            numbers = numpy.array([*codes_of, -2, -1], dtype=numpy.int16)
            values["binding"] = numbers[codes]  # -1 and -2 count from the end
        if "spare" in self.figures:
            values["spare"] = numpy.nan if figures.spare is None else in_blocks(piece.trace, figures.spare, points)
        if "tokens" in self.figures:
            values["tokens"] = in_blocks(piece.trace, figures.tokens, points)
        for name in values:
            if name in self.figures:
                self._put(name, values[name], piece, where)

    def _put(self, name: str, value: Any, piece: Piece, where: tuple[Any, ...]) -> None:
        whole = bool(piece.holds.all())
        if whole and name not in self.arrays and all(one == slice(None) for one in where):
            kind = numpy.int16 if name == "binding" else numpy.float64
            self.arrays[name] = numpy.broadcast_to(numpy.asarray(value, dtype=kind), self.shape)
        elif whole:
            self._array(name)[where] = value
        else:
            numpy.copyto(self._array(name)[where], value, where=piece.holds, casting="same_kind")
