"""Between which two numbers each number of a trace stays over a whole block of points, without laying any out.

Rounding keeps order: what an operation gives at the ends of its operands bounds, to the last bit, what it gives between
them. A comparison whose sides do not meet is so told for all points of the block at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from offload.tracing import PLAIN, Trace

Span = tuple[Any, Any] | None  # the least and the largest value; None where that is not known
LARGEST = 2.0**1000  # beyond, products and quotients may leave what floats hold


class Spans:
    """The spans of a trace's numbers. inputs : by name the values of the block, of any shape."""

    def __init__(self, trace: Trace, inputs: Mapping[str, numpy.ndarray]):
        self._trace, self._inputs = trace, inputs
        self._known: dict[int, Span] = {}

    def told(self, name: str, operands: tuple[Any, ...]) -> bool | None:
        """How a comparison comes out at all points of the block; None where that is not told."""
        known = [self.of(one) for one in operands]
        spans = [one for one in known if one is not None]
        if len(spans) < len(known):
            return None
        if name == "whole":
            (low, high) = spans[0]
            return float(low).is_integer() if low == high else None
        if isinstance(operands[0], tuple) and operands[0] == operands[1]:
            return name in ("eq", "le", "ge")
        (least, most), (low, high) = spans
        if name in ("lt", "le", "ne") and most < low or name in ("gt", "ge", "ne") and least > high:
            return True
        if name in ("gt", "ge", "eq") and most < low or name in ("lt", "le", "eq") and least > high:
            return False
        if name in ("le", "ge") and (most <= low if name == "le" else least >= high):
            return True
        if name in ("lt", "gt") and (least >= high if name == "lt" else most <= low):
            return False
        if least == most == low == high:
            return name in ("eq", "le", "ge")
        return None

    def of(self, operand: Any) -> Span:
        """The span of an operand: of a node, or of a plain number, which is its own."""
        if not isinstance(operand, tuple):
            return None if operand != operand else (operand, operand)
        node = operand[0]
        if node not in self._known:
            needed, seen = [node], {node}
            for one in needed:
                for part in self._trace.nodes[one][1:]:
                    if isinstance(part, tuple) and part[0] not in seen and part[0] not in self._known:
                        seen.add(part[0])
                        needed.append(part[0])
            for one in sorted(needed):
                self._known[one] = self._made(self._trace.nodes[one])
        return self._known[node]

    def _made(self, operation: tuple[Any, ...]) -> Span:
        name, *operands = operation
        if name == "input":
            values = self._inputs[operands[0]]
            return values.min().item(), values.max().item()
        if name == "call":
            return None
        spans = [self.of(one) for one in operands]
        if name in ("pick", "pick_ge"):
            return self._picked("gt" if name == "pick" else "ge", operands, spans)
        if None in spans or name not in MADE:
            return None
        try:
            found = MADE[name](*spans)
        except (ArithmeticError, ValueError, TypeError):
            return None
        if found is None or not all(math.isfinite(one) and abs(one) < LARGEST for one in found):
            return None
        return found

    def _picked(self, comparison: str, operands: list[Any], spans: list[Span]) -> Span:
        came = self.told(comparison, (operands[0], operands[1]))
        if came is not None:
            return spans[2] if came else spans[3]
        if spans[2] is None or spans[3] is None:
            return None
        return min(spans[2][0], spans[3][0]), max(spans[2][1], spans[3][1])


def _corners(name: str) -> Callable[[Any, Any], Span]:
    def made(a: Any, b: Any) -> Span:
        values = [PLAIN[name](x, y) for x in a for y in b]
        return min(values), max(values)

    return made


def _divided(a: Any, b: Any) -> Span:
    if b[0] <= 0 <= b[1]:
        return None
    values = [x / y for x in a for y in b]
    return min(values), max(values)


def _floordivided(a: Any, b: Any) -> Span:
    if b[0] <= 0 <= b[1]:
        return None
    values = [x // y for x in a for y in b]
    return min(values), max(values)


def _size(a: Any) -> Span:
    return (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), max(abs(a[0]), abs(a[1]))


MADE: dict[str, Callable[..., Span]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _corners("mul"), "truediv": _divided, "floordiv": _floordivided, "neg": lambda a: (-a[1], -a[0]),
    "abs": _size, "ceil": lambda a: (math.ceil(a[0]), math.ceil(a[1])),
    "floor": lambda a: (math.floor(a[0]), math.floor(a[1])), "trunc": lambda a: (math.trunc(a[0]), math.trunc(a[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}  # fmt: skip
