"""A trace over arrays: where it holds, and what its numbers are there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy

from offload.spans import Spans
from offload.tracing import PLAIN, Trace, Traced

EXACT = 2**53  # whole numbers up to here are floats too
MOST_HASHED = 256  # numbers used as keys, of which each pair is compared
MOST_TRIED = 2**20  # points at which a comparison is tried out

ARRAYS: dict[str, Callable[..., Any]] = {
    "add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply, "truediv": numpy.true_divide,
    "floordiv": numpy.floor_divide, "mod": numpy.mod, "neg": numpy.negative, "abs": numpy.abs, "lt": numpy.less,
    "le": numpy.less_equal, "gt": numpy.greater, "ge": numpy.greater_equal, "eq": numpy.equal, "ne": numpy.not_equal,
    "max": numpy.maximum, "pick": lambda a, b, one, other: numpy.where(numpy.greater(a, b), one, other),
    "pick_ge": lambda a, b, one, other: numpy.where(numpy.greater_equal(a, b), one, other),
}  # fmt: skip


class Replay:
    """A trace over arrays: where it holds, and what its numbers are there (elsewhere they mean nothing)."""

    def __init__(self, trace: Trace, inputs: Mapping[str, numpy.ndarray]):
        self._trace, self._inputs = trace, inputs
        self._values: dict[int, Any] = {}
        self._spans = Spans(trace, inputs)

    @property
    def holds(self) -> numpy.ndarray:
        """Where every comparison comes out as it did; shape: along the axes that they depend on, 1 along others."""
        shape = (1,) * max((numpy.ndim(one) for one in self._inputs.values()), default=0)
        found = numpy.ones(shape, dtype=bool)
        told = {guard: self._spans.told(guard[0], guard[1:]) for guard in self._trace.guards}
        if any(told[guard] not in (None, outcome) for guard, outcome in self._trace.guards.items()):
            return numpy.zeros(shape, dtype=bool)
        for (name, *operands), outcome in self._trace.guards.items():
            if not found.any():
                break
            if told[(name, *operands)] is outcome:
                continue
            values = [self._of(one) for one in operands]
            if name != "whole" and everywhere(name, values[0], values[1]) is outcome:
                continue
            same = numpy.equal(compared(name, values), outcome)
            if not same.all():  # a mask grows along the axes of those alone that come out otherwise somewhere
                found = found & same
        both: numpy.ndarray = found & self._same_keys(shape)
        return both

    def value(self, number: Any) -> Any:
        """A number of the evaluation at every point: an array, or the number itself where it is no traced one."""
        return self._node(number.node) if isinstance(number, Traced) else number

    def _same_keys(self, shape: tuple[int, ...]) -> numpy.ndarray:
        """Where numbers that were keys are equal to each other just as they were."""
        same = numpy.ones(shape, dtype=bool)
        for (_, one, other), outcome in self.keys():
            same = same & (compared("eq", [self._of(one), self._of(other)]) == outcome)
        return same

    def keys(self) -> Iterator[tuple[tuple[Any, ...], bool]]:
        """The comparisons that tell where numbers that were keys are equal to each other just as they were."""
        keys = [((node,), value) for node, value in self._trace.hashed.items()]
        if len(keys) > MOST_HASHED:
            yield from ((("eq", node, value), True) for node, value in keys)
            return
        for index, (one, value) in enumerate(keys):
            for other, its in keys[:index]:
                if value == its or _may_meet(self._of(one), self._of(other)):
                    yield ("eq", one, other), value == its

    def settle(self) -> None:
        """Leave out of the trace what it compared that comes out the same at all points here: what is left tells where
        among them it holds, as before. Nothing may be added to the trace any more.
        """
        reached = self._trace.reached()
        left: dict[tuple[Any, ...], bool] = {}
        for guard, outcome in [*self._trace.guards.items(), *self.keys()]:
            told = self._spans.told(guard[0], guard[1:])
            names = frozenset().union(*(reached[one[0]] for one in guard[1:] if isinstance(one, tuple)))
            points = math.prod(self._inputs[one].size for one in names)
            if told is None and guard[0] != "whole" and points <= MOST_TRIED:
                came = compared(guard[0], [self._of(one) for one in guard[1:]])
                told = outcome if numpy.equal(came, outcome).all() else None
            if told is not outcome:
                left[guard] = outcome
        self._trace.guards, self._trace.hashed, self._trace._known = left, {}, {}

    def _of(self, operand: Any) -> Any:
        return self._node(operand[0]) if isinstance(operand, tuple) else operand

    def _node(self, node: int) -> Any:
        if node not in self._values:
            # Operands come before what is made of them: no recursion deeper than a loop over nodes that are needed.
            needed, seen = [node], {node}
            for one in needed:
                for operand in self._trace.nodes[one][1:]:
                    if isinstance(operand, tuple) and operand[0] not in seen and operand[0] not in self._values:
                        seen.add(operand[0])
                        needed.append(operand[0])
            for one in sorted(needed):
                self._values[one] = self._computed(self._trace.nodes[one])
        return self._values[node]

    def _computed(self, operation: tuple[Any, ...]) -> Any:
        name, *operands = operation
        if name == "input":
            return numpy.asarray(self._inputs[operands[0]])
        if name == "call":
            return called(operands[0], [self._of(one) for one in operands[1:]])
        values = [self._of(one) for one in operands]
        if name in ("ceil", "floor", "trunc") and _fits(values[0]):
            return {"ceil": numpy.ceil, "floor": numpy.floor, "trunc": numpy.trunc}[name](values[0]).astype(numpy.int64)
        if name in ("ceil", "floor", "trunc", "round", "pow"):
            return called(PLAIN[name], values)
        if not self._small(name, operands) and (
            _too_large(name, values) if name != "truediv" else any(_whole_beyond(one) for one in values)
        ):
            return called(PLAIN[name], values)
        with numpy.errstate(all="ignore"):
            return ARRAYS[name](*values)

    def _small(self, name: str, operands: list[Any]) -> bool:
        """Whether the spans of the operands tell that no whole number among them, nor what comes of them, is large."""
        known = [self._spans.of(one) for one in operands]
        spans = [one for one in known if one is not None]
        if len(spans) < len(known):
            return False
        sizes = [float(max(abs(low), abs(high))) for low, high in spans]
        return all(one < EXACT for one in sizes) and (math.prod(sizes) if name == "mul" else sum(sizes)) < 2.0**62


def compared(name: str, values: list[Any]) -> numpy.ndarray:
    """How a comparison comes out at each point: whole numbers beside floats as they are, and not as floats."""
    mixed = len({numpy.asarray(one).dtype.kind for one in values}) > 1
    if name == "whole" or mixed and any(_whole_beyond(one) for one in values):
        return called(PLAIN[name], values, bool)
    with numpy.errstate(all="ignore"):
        found: numpy.ndarray = ARRAYS[name](*values)
    return found


def everywhere(name: str, a: Any, b: Any) -> bool | None:
    """How a comparison comes out at all points together, as the ends of both sides tell; None where they do not."""
    if any(one.dtype == object and (one != one).any() for one in map(numpy.asarray, (a, b))):
        return None  # what is no number among objects is lost in their least and largest
    ends = [numpy.min(a), numpy.max(a), numpy.min(b), numpy.max(b)]
    if any(one != one for one in ends):
        return None
    least, most, low, high = ends
    if name in ("lt", "le", "ne") and most < low or name in ("gt", "ge", "ne") and least > high:
        return True
    if name in ("gt", "ge", "eq") and most < low or name in ("lt", "le", "eq") and least > high:
        return False
    return None


def _may_meet(a: Any, b: Any) -> bool:
    """Whether some value is on both sides."""
    if everywhere("eq", a, b) is False:
        return False
    return bool(numpy.isin(numpy.unique(a), numpy.unique(b)).any())


def _fits(value: Any) -> bool:
    """Whether floats are small enough to become whole numbers."""
    array = numpy.asarray(value)
    return array.dtype.kind == "f" and bool((numpy.abs(array) < EXACT).all())


def _whole_beyond(value: Any) -> bool:
    """Whether whole numbers are among it that no float holds."""
    array = numpy.asarray(value)
    return array.dtype.kind == "O" or array.dtype.kind in "iu" and bool((numpy.abs(array) > EXACT).any())


def _too_large(name: str, values: list[Any]) -> bool:
    """Whether an operation on whole numbers may leave 64 bits, or needs whole numbers as they are."""
    arrays = [numpy.asarray(one) for one in values]
    if any(one.dtype.kind == "O" for one in arrays):
        return True
    if not all(one.dtype.kind in "iu" for one in arrays):  # mixed with floats: each whole number becomes a float
        return any(_whole_beyond(one) for one in arrays)
    sizes = [float(numpy.abs(one).max(initial=0)) for one in arrays]
    most = math.prod(sizes) if name == "mul" else sum(sizes)
    return most >= 2.0**62


def called(function: Callable[..., Any], values: list[Any], kind: Any = None) -> numpy.ndarray:
    """A function of plain numbers at each point, called once for each set of arguments."""
    known: dict[tuple[Any, ...], Any] = {}

    def at(*arguments: Any) -> Any:
        plain = tuple(one.item() if isinstance(one, numpy.generic) else one for one in arguments)
        if plain not in known:
            try:
                known[plain] = function(*plain)
            except (ArithmeticError, ValueError):
                known[plain] = math.nan  # where the trace does not hold
        return known[plain]

    with numpy.errstate(all="ignore"):
        found = numpy.frompyfunc(at, len(values), 1)(*values)
    array = numpy.asarray(found, dtype=object)
    kinds = {type(one) for one in array.ravel()[:1]} | {type(one) for one in known.values()}
    if kind is not None:
        return array.astype(kind)
    if kinds <= {int} and all(abs(one) < 2**62 for one in known.values()):
        return array.astype(numpy.int64)
    return array.astype(numpy.float64) if kinds <= {float} else array
