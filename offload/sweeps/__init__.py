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
from offload.documents import load_plan
from offload.documents.settings import Setting
from offload.errors import OffloadError, did_you_mean
from offload.replay import Replay
from offload.step import Step
from offload.sweeps.axes import Axis, read_axis
from offload.sweeps.grid import Grid
from offload.sweeps.overlapping import Told, overlapped_seconds
from offload.sweeps.pieces import Escaped, Piece, pieces
from offload.sweeps.program import Points, evaluate
from offload.topology import Topology

__all__ = ["FIGURES", "Axis", "Grid", "read_axis", "sweep"]

FIGURES = ("floor", "serial", "binding", "spare", "tokens", "overlapped")
USUAL = FIGURES[:-1]  # what takes no search at any point
EMPTY = {"binding": -2}


def sweep(
    plan: str | Path,
    axes: Sequence[Axis | str],
    *,
    topology: str | Path | Topology | None = None,
    settings: Sequence[Setting] = (),
    figures: Sequence[str] = USUAL,
    compiled: bool | None = None,
    threads: int = 2,
) -> Grid:
    """Floor, serial, what binds and what fits at every point of a grid.

    figures : which of them are wanted, some of FIGURES; the arrays of the others are None. The overlapped time comes
    only where it is asked for: of steps without a formula it is searched for at each point (`Grid.told`).
    plan : a plan file. axes : as `read_axis` reads them. topology, settings : as `load_plan` takes them. compiled :
    whether by the kernel; None for whichever is sooner done: both give the same bits. Raises OffloadError for axes that
    cannot be read, two of one path, and a plan that can be made at no point.
    """
    read = tuple(read_axis(one) if isinstance(one, str) else one for one in axes)
    for place, one in enumerate(read):
        if any(other.path == one.path for other in read[:place]):
            raise OffloadError(f'"{one.path}" is swept twice. Keep one.')
    for one in figures:
        if one not in FIGURES:
            raise OffloadError(f'"{one}" is no figure of a sweep. {did_you_mean(one, FIGURES, "Figures")}')
    asked = _Asked(plan, read, topology, tuple(settings))
    return _Filling(asked, tuple(figures), compiled, threads).grid()


class _Asked:
    """What is swept: compiles the step at any point."""

    def __init__(self, plan: str | Path, axes: tuple[Axis, ...], topology: Any, settings: tuple[Setting, ...]):
        self.plan, self.axes, self.topology, self.settings = plan, axes, topology, settings

    def step(self, places: dict[int, int], numbers: dict[int, Any]) -> Step:
        """The step with the values at places of some axes, and numbers in place of others."""
        chosen = [*self.settings]
        for number, axis in enumerate(self.axes):
            if number in places:
                chosen.append(axis.setting(places[number]))
            else:
                traced = numbers[number]
                chosen.append(_setting_of(axis, traced))
        plan, server = load_plan(self.plan, topology=self.topology, settings=chosen)
        return compile_step(server, plan)


def _setting_of(axis: Axis, number: Any) -> Setting:
    from offload.tracing import Traced, plain

    text = f"{plain(number)!r} {axis.unit}".strip()
    if axis.given is not None:
        text = axis.text(int(numpy.flatnonzero(axis.numbers == plain(number))[0]))
    return Setting(axis.setting(0).path, text, f"--over {axis.path}={text}",
                   number if isinstance(number, Traced) else None)  # fmt: skip


class _Filling:
    """The arrays of a grid while they are filled."""

    def __init__(self, asked: _Asked, figures: tuple[str, ...], compiled: bool | None, threads: int):
        self.asked, self.figures, self.compiled, self.threads = asked, figures, compiled, threads
        self.shape = tuple(len(axis) for axis in asked.axes)
        self.arrays: dict[str, numpy.ndarray] = {}
        self.names: list[str] = []
        self.wrong: dict[str, int] = {}
        self.told = Told()

    def grid(self) -> Grid:
        """All points."""
        self._fill(self._numeric())
        found = {name: self._array(name) if name in self.figures else None for name in FIGURES}
        return Grid(self.asked.axes, tuple(self.names), **found, wrong=self.wrong, told=self.told)

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
        except Escaped:
            number = self._escaping(places, traced)
            rest = tuple(one for one in traced if one != number)
            for place in range(len(self.asked.axes[number])):
                self._fill_below(places | {number: place}, rest)
            return
        points = self._points(traced)
        if "overlapped" in self.figures:
            self._overlap(places, traced, points)
        where = tuple(places.get(number, slice(None)) for number in range(len(self.asked.axes)))
        for piece in found:
            self._write(piece, points, where)

    def _overlap(self, places: dict[int, int], traced: tuple[int, ...], points: Points) -> None:
        """The overlapped time of these points."""
        found = overlapped_seconds(
            lambda numbers: self.asked.step(places, {int(name): one for name, one in numbers.items()}), points,
            compiled=self.compiled, threads=self.threads, told=self.told,
        )  # fmt: skip
        if not places:
            self.arrays["overlapped"] = found
            return
        self._array("overlapped")[tuple(places.get(number, slice(None)) for number in range(len(self.shape)))] = found

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
            numbers = numpy.array([self._name(name) for name in figures.names] + [-2, -1], dtype=numpy.int16)
            values["binding"] = numbers[codes]  # -1 and -2 count from the end
        replay = Replay(piece.trace, points.inputs())
        values["spare"] = numpy.nan if figures.spare is None else replay.value(figures.spare)
        values["tokens"] = replay.value(figures.tokens)
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

    def _name(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


