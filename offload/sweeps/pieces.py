"""A grid in pieces: for each set of values that change what a step is made of, the traces that hold for its numbers.

A trace stands for all points where its comparisons come out as they did. Where none holds yet, the step is compiled
again at the first such point. Of each trace a few points are compiled plainly too, and must be the same to the last
bit: a trace from which a number escaped is found so, and its axis is then gone through value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from offload.errors import OffloadError
from offload.replay import Replay
from offload.step import Step
from offload.sweeps.program import Points
from offload.sweeps.quantities import Quantities, quantities
from offload.tracing import Trace

Compile = Callable[[Mapping[str, Any]], Step]  # numbers by axis, plain or traced -> the compiled step
PROBED = 3  # points of each trace that are compiled plainly


class Escaped(OffloadError):
    """A number of an axis goes where no trace follows it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A trace, its figures, and where it holds: a mask that broadcasts over the grid of the numeric axes."""

    trace: Trace
    figures: Quantities | None  # None where no step can be made: `wrong` says why
    holds: numpy.ndarray
    wrong: str = ""


def pieces(compile_at: Compile, grid: Points) -> tuple[Piece, ...]:
    """The pieces that cover a grid. Raises Escaped where a trace is not what plain evaluation gives."""
    inputs = grid.inputs()
    left = numpy.ones((1,) * len(grid.shape), dtype=bool)
    found: list[Piece] = []
    while left.any():
        at = tuple(int(one) for one in numpy.unravel_index(int(numpy.argmax(left)), left.shape))
        trace = Trace()
        numbers = {name: trace.number(name, values[place].item())
                   for name, values, place in zip(grid.names, grid.values, at, strict=True)}  # fmt: skip
        figures, wrong = None, ""
        try:
            figures = quantities(compile_at(numbers))
        except OffloadError as error:
            wrong = str(error)
        except (TypeError, ValueError) as error:
            raise Escaped(f"a number goes where no trace follows it: {error}") from error
        holds = Replay(trace, inputs).holds
        piece = Piece(trace, figures, holds & left, wrong)
        if not numpy.broadcast_to(piece.holds, numpy.broadcast_shapes(piece.holds.shape, left.shape))[at]:
            raise Escaped("a trace does not hold where it was made")
        _probe(compile_at, piece, grid)
        left = left & ~holds
        found.append(piece)
    return tuple(found)


def _probe(compile_at: Compile, piece: Piece, grid: Points) -> None:
    """Compile the first, the last and a middle point plainly."""
    for at in some(piece.holds, grid.shape):
        numbers = {name: values[place].item() for name, values, place in zip(grid.names, grid.values, at, strict=True)}
        try:
            plainly = quantities(compile_at(numbers))
        except OffloadError as error:
            if piece.figures is None:
                continue
            raise Escaped("a trace goes on where its step cannot be made") from error
        if piece.figures is None:
            raise Escaped("a trace ends where its step can be made")
        replay = Replay(piece.trace, {name: numpy.asarray(number) for name, number in numbers.items()})
        if plainly.names != piece.figures.names or set(plainly.spares) != set(piece.figures.spares):
            raise Escaped("a trace has other resources than its step")
        for mine, its in zip(_all(piece.figures), _all(plainly), strict=True):
            if replay.value(mine) != its:
                raise Escaped("a trace differs from plain evaluation")


def some(holds: numpy.ndarray, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The first, the last and a middle point of those that a mask holds, which broadcasts over a shape."""
    flat = numpy.flatnonzero(holds)
    found: dict[tuple[int, ...], None] = {}
    for share, one in ((0.0, flat[0]), (1.0, flat[-1]), (0.5, flat[len(flat) // 2])):
        place = numpy.unravel_index(int(one), holds.shape)
        found[tuple(int(at) if held > 1 else round(share * (length - 1))
                    for at, held, length in zip(place, holds.shape, shape, strict=True))] = None  # fmt: skip
    return list(found)


def _all(figures: Quantities) -> Sequence[Any]:
    return (figures.floor, figures.serial, figures.binding, figures.tokens, *figures.spares.values())
