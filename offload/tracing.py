"""Numbers that remember how they were made, so that one evaluation stands for all points of a grid.

Ordinary code runs once with traced numbers in place of plain ones. Each operation is written down, and each comparison
with how it came out. Replayed over arrays, the operations give, bit for bit, what the code gives at every other point
where all comparisons come out the same; where one does not, the code is run again. What takes a plain number out of a
traced one (`int(x)`, `range(x)` of a length, a fraction of it) pins it: the trace holds for that value alone.

    trace = Trace()
    batch = trace.number("batch", 8)
    read = 16 * batch + 3 if batch > 4 else 0
    replay = Replay(trace, {"batch": numpy.arange(1, 9)})        # offload.replay
    replay.holds                                         # where batch > 4
    replay.value(read)                                   # 19, 35, ... of which only those that hold mean anything

What escapes unseen (functions of C that read the number itself) no guard tells; whoever traces compares some points
with plain evaluations.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])
Number = TypeVar("Number")  # a plain number, or one that stands for it

PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "neg": operator.neg, "abs": operator.abs,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "ceil": math.ceil, "floor": math.floor, "trunc": math.trunc, "round": round, "pow": operator.pow,
    "whole": lambda x: float(x).is_integer(),
    "max": lambda a, b: _one_kind(max(a, b), (a, b)),
    "pick": lambda a, b, one, other: _one_kind(one if a > b else other, (one, other)),
    "pick_ge": lambda a, b, one, other: _one_kind(one if a >= b else other, (one, other)),
}  # fmt: skip
FLAT = frozenset({float, int, str, bool, type(None)})  # what holds no traced number
NUMBERS = (float, int)
LEAST = float("-inf")
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "whole"})


class Trace:
    """The operations and comparisons of one evaluation with traced numbers."""

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, ...]] = []  # (operation, operands...); an operand is (node,) or a plain number
        self.guards: dict[tuple[Any, ...], bool] = {}  # a comparison and how it came out
        self.hashed: dict[int, Any] = {}  # nodes used as keys, with their values
        self._known: dict[tuple[Any, ...], int] = {}

    def number(self, name: str, value: float) -> Any:
        """A traced number of this name; value : an int or float, what it is in this evaluation."""
        return self.made(("input", name), value)

    def reached(self) -> list[frozenset[str]]:
        """By node, the names of the numbers that it is made of."""
        found: list[frozenset[str]] = []
        for operation, *operands in self.nodes:
            parts = [found[one[0]] for one in operands if isinstance(one, tuple)]
            found.append(frozenset(operands[:1]) if operation == "input" else frozenset().union(*parts))
        return found

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """By node, its plain value where the numbers have these values; NaN where there is none.

        given : by name of a number its value.
        """
        found: list[Any] = []
        for operation, *operands in self.nodes:
            if operation == "input":
                found.append(given[operands[0]])
                continue
            function = PLAIN[operation] if operation != "call" else operands.pop(0)
            try:
                found.append(function(*(found[one[0]] if isinstance(one, tuple) else one for one in operands)))
            except (ArithmeticError, ValueError):
                found.append(math.nan)  # where the trace does not hold
        return found

    def __getstate__(self) -> dict[str, Any]:
        nodes = [tuple(_Called(one) if hasattr(one, "__qualname__") else one for one in node) for node in self.nodes]
        return {"nodes": nodes, "guards": self.guards, "hashed": self.hashed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.nodes = [tuple(one.function() if isinstance(one, _Called) else one for one in node)
                      for node in state["nodes"]]  # fmt: skip
        self.guards, self.hashed, self._known = state["guards"], state["hashed"], {}

    def pin(self, traced: Any) -> None:
        """The trace holds only where this number has the value that it has."""
        self.guards[("eq", (traced.node,), plain(traced))] = True

    def made(self, operation: tuple[Any, ...], value: Any) -> Any:
        """The number that comes of an operation that is written down."""
        key = operation, type(value)
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = len(self.nodes)
            self.nodes.append(operation)
        made = Traced(value)
        made.trace, made.node, made.exact = self, node, value
        return made

    def apply(self, name: str, *operands: Any) -> Any:
        """The value of an operation, written down."""
        value = PLAIN[name](*[one.exact if type(one) is Traced else one for one in operands])
        operation = (name, *[(one.node,) if type(one) is Traced else one for one in operands])
        if name in COMPARISONS:
            return self.compared(operation, value)
        if type(value) not in NUMBERS:  # a fraction, a complex number: told for these values alone
            for one in operands:
                if type(one) is Traced:
                    self.pin(one)
            return value
        return self.made(operation, value)

    def compared(self, operation: tuple[Any, ...], outcome: bool) -> bool:
        """How a comparison came out, written down."""
        if len(operation) < 3 or operation[1] != operation[2]:  # a number is equal to itself everywhere
            self.guards[operation] = outcome
        return outcome

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The value of a pure function of numbers, which a replay calls for each set of arguments."""
        value = function(*(plain(one) for one in arguments))
        if type(value) not in NUMBERS:
            for one in arguments:
                if isinstance(one, Traced):
                    self.pin(one)
            return value
        return self.made(("call", function, *(_operand(one) for one in arguments)), value)


class NotFollowed(ValueError):
    """Where a traced number stands, something else is read: no trace follows it there."""

    def __init__(self, number: Any, read: object):
        self.number = number
        super().__init__(f"{number!r} is not what is read there, {read!r}.")


class _Called:
    """A function that is called in a trace, by its name: as it may be sent to another process."""

    def __init__(self, function: Callable[..., Any]):
        self.module, self.name = function.__module__, function.__qualname__

    def function(self) -> Callable[..., Any]:
        found: Any = import_module(self.module)
        for name in self.name.split("."):
            found = getattr(found, name)
        function: Callable[..., Any] = getattr(found, "__wrapped__", found)
        return function


def plain(value: Any) -> Any:
    """A number without what it remembers."""
    return value.exact if isinstance(value, Traced) else value


def _operand(value: Any) -> Any:
    return (value.node,) if isinstance(value, Traced) else value


def _two(name: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """An operator of two numbers: `Trace.apply`, written out, as nearly all that is traced goes through here."""
    function, compares, divides = PLAIN[name], name in COMPARISONS, name in ("truediv", "floordiv", "mod")

    def method(self: Any, other: Any) -> Any:
        trace: Trace = self.trace
        its: Any
        operand: Any
        if type(other) is Traced:
            its, operand = other.exact, (other.node,)
        elif isinstance(other, int | float):
            its = operand = other
        else:
            trace.pin(self)
            return function(other, self.exact) if swapped else function(self.exact, other)
        if swapped:
            value, operation = function(its, self.exact), (name, operand, (self.node,))
        else:
            value, operation = function(self.exact, its), (name, (self.node,), operand)
        if compares:
            return trace.compared(operation, value)
        if divides and type(operation[2]) is tuple:
            trace.guards[("ne", operation[2], 0)] = True  # else it is no number
        if type(value) not in NUMBERS:
            for one in (self, other):
                if type(one) is Traced:
                    trace.pin(one)
            return value
        return trace.made(operation, value)

    return method


def _one(name: str) -> Callable[[Any], Any]:
    return lambda self: self.trace.apply(name, self)


def _pinned(name: str) -> Callable[..., Any]:
    def method(self: Any, *rest: Any) -> Any:
        self.trace.pin(self)
        return getattr(self.exact, name)(*rest)

    return method


def _hash(self: Any) -> int:
    self.trace.hashed[self.node] = self.exact
    return hash(self.exact)


def _round(self: Any, digits: int | None = None) -> Any:
    return self.trace.apply("round", self) if digits is None else self.trace.apply("round", self, digits)


def _rounded(name: str) -> Callable[[Any], Any]:
    return lambda self: self if type(self.exact) is int else self.trace.apply(name, self)


def _divmod(self: Any, other: Any) -> tuple[Any, Any]:
    return self // other, self % other


def _rdivmod(self: Any, other: Any) -> tuple[Any, Any]:
    return other // self, other % self


METHODS: dict[str, Any] = {
    "__hash__": _hash, "__round__": _round, "__bool__": lambda self: self != 0, "__pos__": lambda self: self,
    "__divmod__": _divmod, "__rdivmod__": _rdivmod, "__neg__": _one("neg"), "__abs__": _one("abs"),
    "__ceil__": _rounded("ceil"), "__floor__": _rounded("floor"), "__trunc__": _rounded("trunc"),
    "is_integer": lambda self: _is_whole(self),
    "__repr__": lambda self: repr(self.exact), "__str__": lambda self: str(self.exact),
    "__format__": lambda self, how: format(self.exact, how),
}  # fmt: skip
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    METHODS |= {f"__{_name}__": _two(_name), f"__r{_name}__": _two(_name, swapped=True)}
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    METHODS[f"__{_name}__"] = _two(_name)
for _name in ("__int__", "__float__", "as_integer_ratio", "hex"):
    METHODS[_name] = _pinned(_name)
# Every traced number is a float, whole ones too: a float before an operator asks the class made of it first, where it
# would read an int's digits unseen; and what only takes whole numbers (`range`, an index) refuses one aloud.
if TYPE_CHECKING:

    class Traced(float):
        trace: Trace
        node: int
        exact: Any

else:
    Traced = type(
        "Traced", (float,), {"__doc__": "A number of a trace; `exact` is what it is, int or float.",
                             "__slots__": ("trace", "node", "exact"), **METHODS}
    )


def _is_whole(self: Any) -> bool:
    return True if type(self.exact) is int else self.trace.apply("whole", self)


def largest(*values: Number) -> Number:
    """The largest of numbers, as `max`; of traced ones an operation, and no comparison that splits a grid."""
    if Traced not in map(type, values):  # as nearly always, and this is asked very often
        plainly: Any = values
        most: Number = max(plainly)
        return most if type(most) is float else _one_kind(most, values)
    found: Any = values[0]
    value: Any
    for value in values[1:]:
        if found is value:
            continue
        if type(found) is Traced:
            if type(value) is Traced or value != LEAST:
                found = found.trace.apply("max", found, value)
        elif type(value) is Traced:
            found = value if found == LEAST else value.trace.apply("max", found, value)
        else:
            found = _one_kind(max(found, value), (found, value))
    result: Number = found
    return result


def _one_kind(chosen: Number, among: tuple[Any, ...]) -> Number:
    """A number chosen among some: a float wherever one of them is, as in arrays, whichever is chosen.

    Minus infinity, of which nothing is ever chosen, counts for none.
    """
    as_float: Any = float
    floats = type(chosen) is int and any(type(one) is float and one != LEAST for one in among)
    return as_float(chosen) if floats else chosen


def is_least(value: Any) -> bool:
    """Whether a number is minus infinity, and no traced one."""
    return type(value) is not Traced and value == LEAST


def smallest(a: Number, b: Number) -> Number:
    """The smaller of two numbers; of traced ones an operation, and no comparison."""
    return a if a is b else pick(a, b, b, a)


def total(values: Iterable[Number]) -> Number:
    """The sum of numbers, one after another: plain and traced ones to the same bits, which `sum` does not promise."""
    found: Any = 0
    for value in values:
        found = found + value
    result: Number = found
    return result


def traced(*values: Any) -> bool:
    """Whether one of them is a traced number."""
    return Traced in map(type, values)


def key_of(value: Any) -> Any:
    """What a number is told apart by where equal ones are taken together: of a traced one how it was made."""
    if isinstance(value, Traced):
        return ("made", value.node)
    if not isinstance(value, tuple):
        return value
    return value if FLAT.issuperset(map(type, value)) else tuple(map(key_of, value))


def opaque(function: Callable[..., Any], *numbers: Any) -> Any:
    """function(*numbers), a pure function of plain numbers; of traced ones an operation, called at each point."""
    among = next((one for one in numbers if isinstance(one, Traced)), None)
    return function(*numbers) if among is None else among.trace.call(function, numbers)


class heavy:  # noqa: N801 - a mark on a function
    """A function that takes long: a replay calls it only where the comparisons before it come out the same."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *numbers: Any) -> Any:
        return self.function(*numbers)


def pick(a: Any, b: Any, one: Number, other: Number, *, equal: bool = False) -> Number:
    """`one` where a > b (or a >= b, `equal`), else `other`; of traced numbers an operation, and no comparison."""
    among = next((value for value in (a, b) if isinstance(value, Traced)), None)
    if among is None:
        chosen: Number = _one_kind(one if a > b or equal and a == b else other, (one, other))
        return chosen
    picked: Number = among.trace.apply("pick_ge" if equal else "pick", a, b, one, other)
    return picked


def pure(function: Made) -> Made:
    """A function of numbers alone that a trace keeps as one operation, whatever it does inside."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        return opaque(function, *arguments)

    return called  # type: ignore[return-value]
