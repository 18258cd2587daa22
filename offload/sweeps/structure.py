"""What a sweep is made of, found once and shared by all its chunks: the traces that hold at its points."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy

from offload.compiler import compile_step
from offload.documents.settings import Setting
from offload.errors import OffloadError
from offload.ranges import fold
from offload.step import Step
from offload.sweeps.axes import Axis
from offload.sweeps.cuts import CHUNK, cut
from offload.sweeps.pieces import Escaped, Found, Piece, pieces, traces
from offload.sweeps.program import Points
from offload.sweeps.quantities import bare_quantities, quantities
from offload.sweeps.sources import Source
from offload.tracing import Traced, plain

REMEMBERED = 16  # steps of single points: floor and overlapped time are compared at the same ones
MOST_WALKED = 100_000  # steps compiled one by one, at a few milliseconds each


@dataclass(frozen=True, slots=True)
class Part:
    """Traces of some of the axes. places : by the number of each other axis, the place of its value. traced : the axes
    that are traced, whose names in the traces are their numbers.
    """

    places: dict[int, int]
    traced: tuple[int, ...]
    found: tuple[Found, ...]

    def meets(self, block: tuple[slice, ...]) -> bool:
        """Whether any of its points is in a block."""
        return all(block[axis].start <= place < block[axis].stop for axis, place in self.places.items())


@dataclass(frozen=True)
class Structure:
    """What a sweep is made of. names : of all resources that may bind. texts : why steps cannot be made. uncounted :
    the parts without a rate on which the time of a step depends, in words, of those steps where there are some.
    """

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]
    names: tuple[str, ...] = field(init=False)
    texts: tuple[str, ...] = field(init=False)
    uncounted: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = [one for part in self.parts for one in part.found]
        names = dict.fromkeys(name for one in found if one.figures is not None for name in one.figures.names)
        object.__setattr__(self, "names", tuple(names))
        parts = dict.fromkeys(fold(one.figures.uncounted) for one in found if one.figures and one.figures.uncounted)
        object.__setattr__(self, "uncounted", tuple(parts))
        object.__setattr__(self, "texts", tuple(dict.fromkeys(one.wrong for one in found if one.figures is None)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    def within(self, block: tuple[slice, ...]) -> Iterator[tuple[tuple[Any, ...], Points, Piece]]:
        """What covers a block, slices of all axes: each piece with its place in the block and the points around it."""
        for part in self.parts:
            if not part.meets(block):
                continue
            points = self.points(part, block)
            for piece in pieces(part.found, points):
                box = _box(piece.holds)
                where = [part.places[axis] - cut.start if axis in part.places else slice(None)
                         for axis, cut in enumerate(block)]  # fmt: skip
                for axis, one in zip(part.traced, box, strict=True):
                    where[axis] = one
                yield tuple(where), points.part(box), replace(piece, holds=piece.holds[box])

    def points(self, part: Part, block: tuple[slice, ...]) -> Points:
        """The points of a part's traced axes in a block."""
        return Points(tuple(map(str, part.traced)), tuple(self.axes[one].array[block[one]] for one in part.traced))

    @property
    def digest(self) -> str:
        """A text that is another where any figure may be: of the values of the axes and all that is done with them."""
        found = hashlib.sha256()
        for axis in self.axes:
            found.update(repr((axis.path, axis.given, axis.unit)).encode())
            found.update(b"" if axis.numbers is None else axis.numbers.tobytes())
        for part in self.parts:
            found.update(repr((part.places, part.traced)).encode())
            for one in part.found:
                trace, figures = one.trace, one.figures
                nodes = [tuple(f"{x.__module__}.{x.__qualname__}" if hasattr(x, "__qualname__") else x for x in node)
                         for node in trace.nodes]  # fmt: skip
                found.update(repr((nodes, trace.guards, trace.hashed, one.wrong)).encode())
                if figures is not None:
                    told = (figures.floor, figures.serial, figures.binding, figures.tokens, *figures.spares.values(),
                            figures.overlapped)
                    found.update(repr([x.node if isinstance(x, Traced) else (x,) for x in told]).encode())
                    found.update(repr((figures.names, list(figures.spares), figures.uncounted)).encode())
        return found.hexdigest()


def _box(holds: numpy.ndarray) -> tuple[slice, ...]:
    """The smallest slices around all that a mask holds; slice(None) along what it does not depend on, or all of it."""
    found = []
    for axis, length in enumerate(holds.shape):
        some = numpy.flatnonzero(holds.any(axis=tuple(one for one in range(holds.ndim) if one != axis)))
        whole = some[0] == 0 and some[-1] == length - 1
        found.append(slice(None) if whole else slice(int(some[0]), int(some[-1]) + 1))
    return tuple(found)


class Asked:
    """What is swept: compiles the step at any point."""

    def __init__(self, source: Source, axes: tuple[Axis, ...]):
        self.source, self.axes = source, axes
        self.known: dict[Any, list[Any]] = {}  # by part, short traces of its overlapped time
        self._compiled: dict[Any, Step] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"known": {}, "_compiled": {}}

    def step(self, places: dict[int, int], numbers: dict[int, Any]) -> Step:
        """The step with the values at places of some axes, and numbers in place of others."""
        plainly = not any(isinstance(one, Traced) for one in numbers.values())
        at = (*places.items(), None, *numbers.items()) if plainly else ()
        if plainly and at in self._compiled:
            return self._compiled[at]
        step = self._step(places, numbers)
        if plainly:
            while len(self._compiled) >= REMEMBERED:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[at] = step
        return step

    def _step(self, places: dict[int, int], numbers: dict[int, Any]) -> Step:
        chosen: list[Setting] = []
        for number, axis in enumerate(self.axes):
            chosen.append(axis.setting(places[number]) if number in places else _setting_of(axis, numbers[number]))
        plan, server = self.source.load(chosen)
        return compile_step(server, plan)

    def some(self) -> Iterator[Step]:
        """The steps at the first, the last and a middle point, where there are any."""
        for share in (0.0, 0.5, 1.0):
            at = {number: round(share * (len(axis) - 1)) for number, axis in enumerate(self.axes)}
            with suppress(OffloadError):
                yield self.step(at, {})

    @property
    def digest(self) -> str:
        """A text that is another where the plan or the server is: of the step at the first point that has one."""
        for place in range(min(map(len, self.axes), default=1)):
            try:
                step = self.step({number: place for number in range(len(self.axes))}, {})
            except OffloadError:
                continue
            told = (step.plan, step.resources, step.rows, step.instances, step.slots, step.waits)
            return hashlib.sha256(repr(told).encode()).hexdigest()
        return ""


def _setting_of(axis: Axis, number: Any) -> Setting:
    place = int(numpy.flatnonzero(axis.numbers == plain(number))[0])
    return axis.setting(place, number if isinstance(number, Traced) else None)


def structure_of(
    asked: Asked, points: int = CHUNK, tell: Callable[[int], None] = lambda count: None, bare: bool = False
) -> Structure:
    """The structure of a sweep. points : how many are looked at together. tell : is called with how many steps have
    been compiled. bare : no figure but the overlapped time is wanted. Raises OffloadError where too many are each of
    their own kind.
    """
    return _Search(asked, points, tell, bare).structure()


class _Search:
    def __init__(self, asked: Asked, points: int, tell: Callable[[int], None], bare: bool):
        self.asked, self.points, self.tell, self.bare = asked, points, tell, bare
        self.parts: list[Part] = []
        self.walked = 0
        self.compiled = 0

    def structure(self) -> Structure:
        axes = self.asked.axes
        traced = tuple(number for number, axis in enumerate(axes) if axis.numbers is not None)
        walked = [number for number in range(len(axes)) if number not in traced]
        for at in product(*(range(len(axes[number])) for number in walked)):
            self._below(dict(zip(walked, at, strict=True)), traced)
        return Structure(axes, tuple(self.parts))

    def _below(self, places: dict[int, int], traced: tuple[int, ...]) -> None:
        """Some axes traced; where a number escapes, its axis is gone through value by value."""
        try:
            self.parts.append(Part(places, traced, self._traces(places, traced)))
        except Escaped as error:
            number = self._escaping(places, traced) if error.axis is None else int(error.axis)
            self.walked += len(self.asked.axes[number])
            if self.walked > MOST_WALKED:
                raise OffloadError(
                    f"{self.asked.axes[number].path} is gone through value by value, each with a step of its own: "
                    f"{self.walked:,} of these are more than the {MOST_WALKED:,} that are taken. Sweep fewer of its "
                    "values."
                ) from None
            rest = tuple(one for one in traced if one != number)
            for place in range(len(self.asked.axes[number])):
                self._below(places | {number: place}, rest)

    def _traces(self, places: dict[int, int], traced: tuple[int, ...]) -> tuple[Found, ...]:
        grid = Points(tuple(map(str, traced)), tuple(self.asked.axes[one].array for one in traced))

        def compiled(numbers: Any) -> Step:
            self.compiled += 1
            self.tell(self.compiled)
            return self.asked.step(places, {int(name): one for name, one in numbers.items()})

        return traces(compiled, grid, cut(grid.shape, self.points), bare_quantities if self.bare else quantities)

    def _escaping(self, places: dict[int, int], traced: tuple[int, ...]) -> int:
        """The axis whose number escapes by itself, or the shortest one."""
        for number in traced:
            others = {one: 0 for one in traced if one != number}
            try:
                self._traces(places | others, (number,))
            except Escaped:
                return number
        return min(traced, key=lambda one: len(self.asked.axes[one]))
