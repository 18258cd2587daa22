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
from offload.sweeps.inside import numbers
from offload.sweeps.program import Points
from offload.sweeps.quantities import Quantities, quantities
from offload.tracing import NotFollowed, Trace, Traced

Compile = Callable[[Mapping[str, Any]], Step]  # numbers by axis, plain or traced -> the compiled step
FiguresOf = Callable[[Step], Quantities]
Places = list[tuple[int, ...]]  # some points of a grid, by their places along its axes
Chosen = Callable[[Places], Places]


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
    compile_at: Compile, grid: Points, blocks: Sequence[tuple[slice, ...]] | Cuts, figures_of: FiguresOf = quantities
) -> tuple[Found, ...]:
    """Traces that together hold at all points of a grid, which is gone through in blocks (slices of its axes).

    figures_of : the figures of a step. Raises Escaped where a trace is not what plain evaluation gives.
    """
    return _Covering(compile_at, grid, blocks, figures_of).traces()


class _Covering:
    def __init__(
        self, compile_at: Compile, grid: Points, blocks: Sequence[tuple[slice, ...]] | Cuts, figures_of: FiguresOf
    ):
        self.compile_at, self.grid, self.blocks, self.figures_of = compile_at, grid, blocks, figures_of
        self.found: list[Found] = []
        self.inside: list[list[Any]] = []  # by trace, all numbers of its step

    def traces(self) -> tuple[Found, ...]:
        found, grid = self.found, self.grid
        at: list[list[int]] = []  # by trace, the blocks in which it holds somewhere
        known: dict[tuple[Any, ...], list[int]] = {}
        axes: tuple[int, ...] = ()
        for number in range(len(self.blocks)):
            block = self.blocks[number]
            alike = (axes, *(block[axis].indices(len(grid.values[axis])) for axis in axes))
            if alike not in known:
                before = len(found)
                held = self._cover(block)
                if len(found) > before:
                    names = frozenset().union(*(one.names for one in found))
                    axes = tuple(place for place, name in enumerate(grid.names) if name in names)
                    at += [[] for _ in found[before:]]
                    alike = (axes, *(block[axis].indices(len(grid.values[axis])) for axis in axes))
                known[alike] = held
            for one in known[alike]:
                at[one].append(number)
        if grid.names:
            self._compare(at)
        return tuple(found)

    def _cover(self, block: tuple[slice, ...]) -> list[int]:
        """The traces that hold in a block; where none does, the step is traced there and is one more of them."""
        part = self.grid.part(block)
        inputs = part.inputs()
        left = numpy.ones((1,) * len(part.shape), dtype=bool)
        held: list[int] = []
        for place, one in enumerate(self.found):
            holds = Replay(one.trace, inputs).holds
            if (holds & left).any():
                held.append(place)
                left = left & ~holds
        while left.any():
            at = tuple(int(one) for one in numpy.unravel_index(int(numpy.argmax(left)), left.shape))
            one, inside = self._traced(part, at)
            Replay(one.trace, self.grid.inputs()).settle()
            holds = Replay(one.trace, inputs).holds
            piece = Piece(one.trace, one.figures, holds & left, one.wrong)
            if not numpy.broadcast_to(piece.holds, numpy.broadcast_shapes(piece.holds.shape, left.shape))[at]:
                raise Escaped("a trace does not hold where it was made")
            if self.grid.names and one.trace.guards:  # one that holds everywhere is compared when all is covered
                self._probe(piece, inside, _last(some(piece.holds, part.shape)), part)
            left = left & ~holds
            held.append(len(self.found))
            self.found.append(one)
            self.inside.append(inside)
        return held

    def _traced(self, part: Points, at: tuple[int, ...]) -> tuple[Found, list[Any]]:
        """The step at a point, traced, and all its numbers."""
        trace = Trace()
        given = {name: trace.number(name, values[place].item())
                 for name, values, place in zip(part.names, part.values, at, strict=True)}  # fmt: skip
        try:
            step = self.compile_at(given)
            return Found(trace, self.figures_of(step)), numbers(step)
        except OffloadError as error:
            return Found(trace, None, _told(error)), []
        except NotFollowed as error:
            escaped = Escaped(str(error))
            escaped.axis = next((name for name, one in given.items() if one is error.number), None)
            raise escaped from error
        except (TypeError, ValueError) as error:
            raise Escaped(f"a number goes where no trace follows it: {error}") from error

    def _compare(self, at: list[list[int]]) -> None:
        """Compile points of each trace plainly, its last and one in the middle, far from where it was found.

        at : by trace, the blocks in which it holds somewhere.
        """
        due: dict[int, list[tuple[int, Chosen]]] = {}  # by block, a trace and which of its points there
        for place, held_in in enumerate(at):
            last = held_in[-1]
            if last != held_in[0] or not self.found[place].trace.guards:  # else it was when its trace was made
                due.setdefault(last, []).append((place, _last))
            due.setdefault(held_in[len(held_in) // 2], []).append((place, _middle))
        for number, wanted in due.items():
            part = self.grid.part(self.blocks[number])
            there = {id(one.trace): one for one in pieces(self.found, part)}
            for place, chosen in wanted:
                piece = there[id(self.found[place].trace)]
                self._probe(piece, self.inside[place], chosen(some(piece.holds, part.shape)), part)

    def _probe(self, piece: Piece, inside: list[Any], places: Iterable[tuple[int, ...]], part: Points) -> None:
        """Compile some points of a piece plainly: its figures and all numbers of its step must be the same."""
        for at in places:
            given = {name: values[place].item()
                     for name, values, place in zip(part.names, part.values, at, strict=True)}  # fmt: skip
            try:
                step = self.compile_at(given)
                plainly = self.figures_of(step)
            except OffloadError as error:
                if piece.figures is None:
                    continue
                raise Escaped("a trace goes on where its step cannot be made") from error
            if piece.figures is None:
                raise Escaped("a trace ends where its step can be made")
            traced = piece.trace.values(given)
            if (plainly.names, plainly.uncounted, set(plainly.spares)) != (
                    piece.figures.names, piece.figures.uncounted, set(piece.figures.spares)):  # fmt: skip
                raise Escaped("a trace has other resources than its step")
            its = [*_all(plainly), *numbers(step)]
            mine = [*_all(piece.figures), *inside]
            found = [traced[one.node] if isinstance(one, Traced) else one for one in mine]
            if len(found) != len(its) or any(one != other for one, other in zip(found, its, strict=True)):
                raise Escaped("a trace differs from plain evaluation")


def _told(error: OffloadError) -> str:
    """An error without the file's name before the mistakes."""
    return "\n".join(map(str, error.mistakes)) if isinstance(error, DocumentError) else str(error)


def some(holds: numpy.ndarray, shape: tuple[int, ...]) -> Places:
    """The first, the last and a middle point of those that a mask holds, which broadcasts over a shape."""
    flat = numpy.flatnonzero(holds)
    found: dict[tuple[int, ...], None] = {}
    for share, one in ((0.0, flat[0]), (1.0, flat[-1]), (0.5, flat[len(flat) // 2])):
        place = numpy.unravel_index(int(one), holds.shape)
        found[tuple(int(at) if held > 1 else round(share * (length - 1))
                    for at, held, length in zip(place, holds.shape, shape, strict=True))] = None  # fmt: skip
    return list(found)


def _last(places: Places) -> Places:
    """Of what `some` found, the last point, or the only one."""
    return places[:2][-1:]


def _middle(places: Places) -> Places:
    """Of what `some` found, the middle point, where it is one more."""
    return places[2:]


def _all(figures: Quantities) -> Sequence[Any]:
    found = (figures.floor, figures.serial, figures.binding, figures.tokens, *figures.spares.values())
    return found if figures.overlapped is None else (*found, figures.overlapped)
