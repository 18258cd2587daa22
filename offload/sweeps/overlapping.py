"""The overlapped time at every point of a grid: to the last bit what `schedule(step, ends=False).seconds` is there.

The search for the shortest schedule runs once with traced numbers. Steps with a formula (`offload.chains`) come out as
a few operations, which the kernel works out for all points. Of other steps a trace is long, and its comparisons split
the grid; it is replayed over lists of points, and a simulation of flows, which no trace follows inside, is called at
those points that come to it. Where a trace would serve few points the step is compiled and searched at each.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, prod
from typing import Any, SupportsIndex, cast

import numpy

from offload.chains import in_order, streamed
from offload.errors import OffloadError
from offload.replay import ARRAYS, Replay, called, everywhere
from offload.schedules import overlapped, schedule
from offload.step import Step
from offload.sweeps.ahead import layers_of, seconds_of_layers
from offload.sweeps.cuts import CHUNK
from offload.sweeps.pieces import some
from offload.sweeps.program import Points, evaluate
from offload.tracing import PLAIN, Trace, heavy, traced

Compile = Callable[[Mapping[str, Any]], Step]  # numbers by axis, plain or traced -> the compiled step
Far = Callable[[int], None]  # is told how many points are done
Known = list[tuple[Trace, Any]]  # traces, each with its seconds
SHORT = 1_000  # operations of a trace that is worked out for the whole grid at once
HELD = 2**24  # numbers of a longer one that are held at one time
FEW = 48  # points that are compiled and searched one by one as soon as a trace is made
MOST_LAYERS = 2**17  # points of a chunk of layers in more than two buffers
MOST_SEARCHED = 2**15  # instances of all points together of a chunk of other steps
APART = 64  # calls of a heavy function from which on several processes share them


class Differs(Exception):  # noqa: N818 - it is no error of anyone's
    """A trace is not what plain evaluation gives."""


@dataclass(slots=True)
class Told:
    """How the points of a grid were found. formula, replayed, single : how many, by each of the three ways."""

    formula: int = 0
    replayed: int = 0
    single: int = 0


def overlapped_seconds(
    compile_at: Compile, grid: Points, *, compiled: bool | None = None, threads: int = 2, told: Told | None = None,
    far: Far | None = None, known: Known | None = None,
) -> numpy.ndarray:
    """Overlapped seconds of back-to-back steps, of the grid's shape, NaN where no step can be made.

    compiled, threads : as `sweep` has them; as many processes as threads share simulations. told : is counted up.
    far : is called now and then with how many points are done. known : short traces of the same step that were found
    in other parts of its grid; those found here are added.
    """
    known = [] if known is None else known
    return _Overlapping(compile_at, grid, compiled, threads, told or Told(), far or (lambda done: None), known).all()


def chunk_of(step: Step) -> int:
    """Points of such a step of which a chunk is made where it is kept: seconds of work."""
    if step.plan.overlap.kind == "none" or in_order(step):
        return CHUNK
    if (layers := streamed(step)) is not None:
        return CHUNK if layers.buffers <= 2 else MOST_LAYERS  # of two, a chunk is done in a moment
    return max(FEW, MOST_SEARCHED // len(step.instances))


class _Overlapping:
    def __init__(
        self, compile_at: Compile, grid: Points, compiled: bool | None, threads: int, told: Told, far: Far,
        known: Known,
    ):
        self.far, self.known = far, known
        self.compile_at, self.grid, self.compiled, self.threads, self.told = compile_at, grid, compiled, threads, told
        self.size = self.count = prod(grid.shape)
        self.found: numpy.ndarray | None = None  # made when it is known that it has parts
        self.left = numpy.ones((1,) * len(grid.shape), dtype=bool)  # broadcasts, until points are listed

    def all(self) -> numpy.ndarray:
        for trace, seconds in self.known if self.count > FEW else ():
            try:
                self._whole(trace, seconds, few=True)
            except Differs:
                continue
            if not self.count:
                break
        alone = 0  # points to be searched one by one before the next trace
        while self.count:
            if alone or self.count <= FEW:
                self._singly(self._listed()[: alone or FEW])
                alone = 0
                continue
            at = numpy.unravel_index(int(numpy.argmax(self.left)), self.left.shape)
            try:
                done = self._trace(at)
            except (Differs, TypeError, ValueError):
                done = 0  # a number goes where no trace follows it
            alone = 0 if done >= FEW else FEW
        return cast("numpy.ndarray", self.found)  # all have their seconds

    def _listed(self) -> numpy.ndarray:
        """The places that are left; from here on the mask has a place for each point."""
        if self.left.shape != self.grid.shape:
            self.left = numpy.broadcast_to(self.left, self.grid.shape).copy()
        return numpy.flatnonzero(self.left)

    def _array(self) -> numpy.ndarray:
        if self.found is None:
            self.found = numpy.empty(self.grid.shape)
        return self.found

    def _numbers(self, at: Sequence[SupportsIndex]) -> dict[str, Any]:
        return {name: values[place].item()
                for name, values, place in zip(self.grid.names, self.grid.values, at, strict=True)}  # fmt: skip

    def _single(self, at: Sequence[SupportsIndex]) -> float:
        try:
            return schedule(self.compile_at(self._numbers(at)), ends=False).seconds
        except OffloadError:
            return nan

    def _singly(self, places: numpy.ndarray) -> None:
        ats = [tuple(int(one) for one in numpy.unravel_index(int(place), self.grid.shape)) for place in places]
        values = _shared(self._single, [(at,) for at in ats], self.threads, FEW // 4, self._far)
        self.told.single += len(ats)
        self._put(places, numpy.array(values))

    def _far(self, more: int) -> None:
        self.far(self.size - self.count + more)

    def _put(self, places: numpy.ndarray, values: numpy.ndarray) -> None:
        self._array().reshape(-1)[places] = values
        self.left.reshape(-1)[places] = False
        self.count -= len(places)
        self._far(0)

    def _trace(self, at: Sequence[SupportsIndex]) -> int:
        """Trace the search at a point, and fill in where the trace holds: at how many points."""
        trace = Trace()
        numbers = {name: trace.number(name, number) for name, number in self._numbers(at).items()}
        try:
            seconds: Any = overlapped(self.compile_at(numbers))
        except OffloadError:
            seconds = nan
        short = len(trace.nodes) <= SHORT and not any(_is_heavy(one) for one in trace.nodes)
        if short or layers_of(trace, seconds) is not None:
            done = self._whole(trace, seconds)
            self.known.append((trace, seconds))
            return done
        done = 0
        places = self._listed()
        many = max(FEW, HELD // len(trace.nodes))
        for first in range(0, len(places), many):
            chunk = _Listed(trace, self.grid, places[first : first + many], self.threads, self._far)
            chunk.hold()
            if len(chunk.places):
                values = numpy.broadcast_to(chunk.value(seconds), chunk.places.shape)
                for one in (0, len(values) // 2, len(values) - 1) if not done else ():
                    self._probe(numpy.unravel_index(int(chunk.places[one]), self.grid.shape), float(values[one]))
                self._put(chunk.places, values)
                done += len(chunk.places)
            elif not first:
                raise Differs("a trace does not hold where it was made")
        self.told.replayed += done
        return done

    def _whole(self, trace: Trace, seconds: Any, few: bool = False) -> int:
        """A short trace over the smallest part of the grid that has all points at which it holds.

        few : one of them is searched plainly too, for it was compared elsewhere.
        """
        holds = Replay(trace, self.grid.inputs()).holds
        mask = holds & self.left
        if not mask.any():
            raise Differs("a trace does not hold where it was made")
        sides = []
        for axis, length in enumerate(self.grid.shape):
            there = numpy.flatnonzero(mask.any(axis=tuple(one for one in range(mask.ndim) if one != axis)))
            sides.append(slice(int(there[0]), int(there[-1]) + 1) if mask.shape[axis] > 1 else slice(0, length))
        box = tuple(sides)
        part = Points(self.grid.names, tuple(values[side] for values, side in zip(self.grid.values, box, strict=True)))
        done = int(mask.sum()) * (self.size // mask.size)
        mask = mask[tuple(side if length > 1 else slice(None) for side, length in zip(box, mask.shape, strict=True))]
        whole = bool(mask.all())
        if layers_of(trace, seconds) is not None:
            found = seconds_of_layers(trace, seconds, part, compiled=self.compiled, threads=self.threads,
                                      into=self._array()[box] if whole else None)  # fmt: skip
        elif traced(seconds):
            found = evaluate(trace, [seconds], part, compiled=self.compiled, threads=self.threads)[0]
        else:
            found = numpy.broadcast_to(float(seconds), part.shape)
        places = some(mask, part.shape)
        for at in places[:2][-1:] if few else places:  # the last, whose step was compiled to compare the trace
            self._probe([one + side.start for one, side in zip(at, box, strict=True)], found[at])
        if done == self.size:
            self.found = numpy.asarray(found)
        elif whole and found.base is not self._array():
            self._array()[box] = found
        elif not whole:
            numpy.copyto(self._array()[box], found, where=mask)
        self.left = self.left & ~holds
        self.count -= done
        self.told.formula += done
        return done

    def _probe(self, at: Sequence[SupportsIndex], value: float) -> None:
        """Search plainly at a point too."""
        its = self._single(at)
        if its != value and not (its != its and value != value):
            raise Differs("a trace differs from plain evaluation")


def _is_heavy(operation: tuple[Any, ...]) -> bool:
    return operation[0] == "call" and isinstance(operation[1], heavy)


class _Listed(Replay):
    """A trace over a list of points, of which those are dropped where a comparison comes out otherwise."""

    def __init__(self, trace: Trace, grid: Points, places: numpy.ndarray, threads: int, far: Far):
        index = numpy.unravel_index(places, grid.shape)
        inputs = {name: values[at] for name, values, at in zip(grid.names, grid.values, index, strict=True)}
        super().__init__(trace, inputs)
        self.places, self.threads, self.far = places, threads, far

    def hold(self) -> None:
        """Drop the points at which the trace does not hold."""
        self._keep(self._same_keys(self.places.shape))
        for (name, *operands), outcome in self._trace.guards.items():
            if not len(self.places):
                return
            values = [self._of(one) for one in operands]
            if name != "whole" and everywhere(name, values[0], values[1]) is outcome:
                continue
            with numpy.errstate(all="ignore"):
                came = called(PLAIN[name], values, bool) if name == "whole" else ARRAYS[name](*values)
            self._keep(numpy.broadcast_to(numpy.equal(came, outcome), self.places.shape))

    def _keep(self, some: numpy.ndarray) -> None:
        if some.all():
            return
        count = len(self.places)
        self.places = self.places[some]
        self._inputs = {name: one[some] for name, one in self._inputs.items()}
        self._values = {node: one[some] if numpy.shape(one) == (count,) else one for node, one in self._values.items()}

    def _computed(self, operation: tuple[Any, ...]) -> Any:
        if not _is_heavy(operation):
            return super()._computed(operation)
        _, function, *operands = operation
        values = [numpy.broadcast_to(self._of(one), self.places.shape).tolist() for one in operands]
        found = _shared(function, list(zip(*values, strict=True)), self.threads, APART, self.far)
        return numpy.array(found, dtype=numpy.float64)


_SHARE: tuple[Callable[..., Any], Sequence[Any]] | None = None  # what the processes of `_shared` work at


def _shared(
    function: Callable[..., Any], arguments: Sequence[Any], processes: int, few: int, far: Far
) -> list[Any]:
    """function(*one) of each of the arguments, by several processes where they are many and the system can fork.

    far : is told how many are done.
    """
    global _SHARE
    processes = min(processes or 2, os.cpu_count() or 1)
    if len(arguments) < few or processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return _counted((function(*one) for one in arguments), far)
    _SHARE = (function, arguments)
    try:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            each = max(1, min(APART, len(arguments) // (8 * processes)))
            return _counted(pool.imap(_at, range(len(arguments)), chunksize=each), far)
    finally:
        _SHARE = None


def _counted(values: Iterable[Any], far: Far) -> list[Any]:
    found = []
    for one in values:
        found.append(one)
        far(len(found))
    return found


def _at(place: int) -> Any:
    function, arguments = _SHARE  # type: ignore[misc]
    return function(*arguments[place])
