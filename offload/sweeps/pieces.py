"""A grid in pieces: for each set of values that change what a step is made of, the traces that hold for its numbers.

A trace stands for all points where its comparisons come out as they did. Where none holds yet, the step is compiled
again at the first such point. Of each trace a few points are compiled plainly too, and must be the same to the last
bit: a trace from which a number escaped is found so, and its axis is then gone through value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from offload.errors import DocumentError, OffloadError
from offload.replay import Replay
from offload.step import Step
from offload.sweeps.cuts import Cuts
from offload.sweeps.program import Points
from offload.sweeps.quantities import Quantities, quantities
from offload.tracing import NotFollowed, Trace

Compile = Callable[[Mapping[str, Any]], Step]  # numbers by axis, plain or traced -> the compiled step
FiguresOf = Callable[[Step], Quantities]
PROBED = 3  # points of each trace that are compiled plainly


class Escaped(OffloadError):
    """A number of an axis goes where no trace follows it. axis : its name, where that is known."""

    axis: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A trace, its figures, and where it holds: a mask that broadcasts over the grid of the numeric axes."""

    trace: Trace
    figures: Quantities | None  # None where no step can be made: `wrong` says why
    holds: numpy.ndarray
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A trace and its figures, None where no step can be made: `wrong` says why. The trace has only the comparisons
    that do not come out the same everywhere in the grid that it was made for.
    """

    trace: Trace
    figures: Quantities | None
    wrong: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The axes that its comparisons depend on: where they come out the same is told by these alone."""
        reached = self.trace.reached()
        operands = [one for _, *operands in self.trace.guards for one in operands if isinstance(one, tuple)]
        return frozenset().union(*(reached[one[0]] for one in operands))


def pieces(found: Iterable[Found], grid: Points) -> tuple[Piece, ...]:
    """Where each of some traces holds in a grid, the first of those that hold at a point; those that hold nowhere are
    left out."""
    inputs = grid.inputs()
    left = numpy.ones((1,) * len(grid.shape), dtype=bool)
    made: list[Piece] = []
    for one in found:
        holds = Replay(one.trace, inputs).holds
        mine = holds & left
        if mine.any():
            made.append(Piece(one.trace, one.figures, mine, one.wrong))
            left = left & ~holds
            if not left.any():
                break
    return tuple(made)


def traces(
    compile_at: Compile, grid: Points, blocks: Sequence[tuple[slice, ...]] | Cuts,
    figures_of: FiguresOf = quantities,
) -> tuple[Found, ...]:
    """Traces that together hold at all points of a grid, which is gone through in blocks (slices of its axes).

    figures_of : the figures of a step.

    Raises Escaped where a trace is not what plain evaluation gives.
    """
    found: list[Found] = []
    at: list[list[int]] = []  # by trace, the blocks in which it holds somewhere
    known: dict[tuple[Any, ...], list[int]] = {}
    axes: tuple[int, ...] = ()
    for number in range(len(blocks)):
        block = blocks[number]
        alike = (axes, *(block[axis].indices(len(grid.values[axis])) for axis in axes))
        if alike not in known:
            before = len(found)
            held = _cover(compile_at, grid, block, found, figures_of)
            if len(found) > before:
                names = frozenset().union(*(one.names for one in found))
                axes = tuple(place for place, name in enumerate(grid.names) if name in names)
                at += [[] for _ in found[before:]]
                alike = (axes, *(block[axis].indices(len(grid.values[axis])) for axis in axes))
            known[alike] = held
        for one in known[alike]:
            at[one].append(number)
    for place, held_in in enumerate(at):  # a trace was compared where it was found; here in other blocks
        for number in dict.fromkeys((held_in[len(held_in) // 2], held_in[-1])) if len(held_in) > 1 else ():
            part = grid.part(blocks[number])
            piece = next(one for one in pieces(found, part) if one.trace is found[place].trace)
            _probe(compile_at, piece, part, figures_of)
    return tuple(found)


def _cover(
    compile_at: Compile, grid: Points, block: tuple[slice, ...], found: list[Found], figures_of: FiguresOf
) -> list[int]:
    """The traces that hold in a block; where none does, the step is traced there and the trace is added to those."""
    part = grid.part(block)
    inputs = part.inputs()
    left = numpy.ones((1,) * len(part.shape), dtype=bool)
    held: list[int] = []
    for place, one in enumerate(found):
        holds = Replay(one.trace, inputs).holds
        if (holds & left).any():
            held.append(place)
            left = left & ~holds
    while left.any():
        at = tuple(int(one) for one in numpy.unravel_index(int(numpy.argmax(left)), left.shape))
        one = _traced(compile_at, part, at, figures_of)
        Replay(one.trace, grid.inputs()).settle()
        holds = Replay(one.trace, inputs).holds
        piece = Piece(one.trace, one.figures, holds & left, one.wrong)
        if not numpy.broadcast_to(piece.holds, numpy.broadcast_shapes(piece.holds.shape, left.shape))[at]:
            raise Escaped("a trace does not hold where it was made")
        if grid.names:
            _probe(compile_at, piece, part, figures_of)
        left = left & ~holds
        held.append(len(found))
        found.append(one)
    return held


def _traced(compile_at: Compile, grid: Points, at: tuple[int, ...], figures_of: FiguresOf) -> Found:
    trace = Trace()
    numbers = {name: trace.number(name, values[place].item())
               for name, values, place in zip(grid.names, grid.values, at, strict=True)}  # fmt: skip
    try:
        return Found(trace, figures_of(compile_at(numbers)))
    except OffloadError as error:
        return Found(trace, None, _told(error))
    except NotFollowed as error:
        escaped = Escaped(str(error))
        escaped.axis = next((name for name, one in numbers.items() if one is error.number), None)
        raise escaped from error
    except (TypeError, ValueError) as error:
        raise Escaped(f"a number goes where no trace follows it: {error}") from error


def _told(error: OffloadError) -> str:
    """An error without the file's name before the mistakes."""
    return "\n".join(map(str, error.mistakes)) if isinstance(error, DocumentError) else str(error)


def _probe(compile_at: Compile, piece: Piece, grid: Points, figures_of: FiguresOf) -> None:
    """Compile the first, the last and a middle point plainly."""
    for at in some(piece.holds, grid.shape):
        numbers = {name: values[place].item() for name, values, place in zip(grid.names, grid.values, at, strict=True)}
        try:
            plainly = figures_of(compile_at(numbers))
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
    found = (figures.floor, figures.serial, figures.binding, figures.tokens, *figures.spares.values())
    return found if figures.overlapped is None else (*found, figures.overlapped)
