"""A trace without what makes no difference on a grid: a shorter one, of the same numbers to the last bit.

What the spans of its numbers tell everywhere on the grid is not compared again: a choice that always falls the same
way, a number that is never the largest. Equal numbers are compared once, and maxima within maxima share what they are
of. Of quotients by one number that are compared, the largest dividend is divided: rounding keeps order, so that none of
these changes a bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy

from offload.spans import Spans
from offload.tracing import PLAIN, Trace

CHOICES = {"pick": "gt", "pick_ge": "ge"}


class Simplified:
    """A trace made anew from what some outputs need. outputs : traced numbers' (node,) or plain numbers.

    trace : the shorter one; `of(output)` is an output in it; `span` : between which numbers one of its operands stays.
    """

    def __init__(self, trace: Trace, inputs: Mapping[str, numpy.ndarray], outputs: Iterable[Any]):
        self.trace = Trace()
        self._spans = Spans(trace, inputs)
        self._new: dict[int, Any] = {}  # by old node, the operand that stands for it
        self._old: dict[int, int] = {}  # by new node, an old one of the same values
        self._largest: dict[int, tuple[Any, ...]] = {}  # of a new maximum, all that it is the largest of
        self._known: dict[tuple[Any, ...], tuple[int]] = {}
        needed = {one[0] for one in outputs if isinstance(one, tuple)}
        waiting = list(needed)
        while waiting:
            for one in trace.nodes[waiting.pop()][1:]:
                if isinstance(one, tuple) and one[0] not in needed:
                    needed.add(one[0])
                    waiting.append(one[0])
        for node in sorted(needed):
            operation, *operands = trace.nodes[node]
            self._new[node] = self._made(node, operation, operands)
        self._divide_once({self._new[one[0]] for one in outputs if isinstance(one, tuple)})

    def of(self, operand: Any) -> Any:
        """What stands for an operand of the old trace: a node of the new one, or a number."""
        return self._new[operand[0]] if isinstance(operand, tuple) else operand

    def span(self, operand: Any) -> Any:
        """The least and the largest value of an operand of the new trace; None where that is not known."""
        return self._span(operand, self._old)

    def _span(self, operand: Any, known: Mapping[int, int]) -> Any:
        if not isinstance(operand, tuple):
            return self._spans.of(operand)
        old = known.get(operand[0])
        return None if old is None else self._spans.of((old,))

    def _made(self, node: int, operation: str, operands: list[Any]) -> Any:
        if operation in ("input", "call"):
            rest = [self.of(one) if operation == "call" else one for one in operands]
            return self._node(node, (operation, *rest))
        new = [self.of(one) for one in operands]
        if operation in CHOICES:
            came = self._spans.told(CHOICES[operation], (operands[0], operands[1]))
            if came is not None or new[2] == new[3]:
                return new[3] if came is False else new[2]
        elif operation == "max":
            return self._maximum(node, new)
        elif operation in ("mul", "truediv") and not isinstance(new[1], tuple) and new[1] == 1:
            return new[0]
        elif operation == "mul" and not isinstance(new[0], tuple) and new[0] == 1:
            return new[1]
        elif operation == "add":
            for one, other in (new, new[::-1]):
                span = self.span(other)
                if not isinstance(one, tuple) and one == 0 and span is not None and span[0] > 0:
                    return other
        if operation in PLAIN and not any(isinstance(one, tuple) for one in new):
            try:
                return PLAIN[operation](*new)
            except (ArithmeticError, ValueError):
                pass
        return self._node(node, (operation, *new))

    def _maximum(self, node: int, operands: list[Any]) -> Any:
        """The largest of all that two operands are the largest of, those left out that another is never below."""
        parts = [self._parts(one) for one in operands]
        every = list(dict.fromkeys(part for one in parts for part in one))
        spans = [self.span(one) for one in every]
        high = max((one[0] for one in spans if one is not None), default=None)  # one of them is always at least this
        kept: list[Any] = []
        first = not any(span is not None and span[0] == high < span[1] for span in spans)
        for one, span in zip(every, spans, strict=True):
            if high is not None and span is not None and span[1] <= high:
                if span[0] < high or not first:
                    continue  # one that is never below `high` stays
                first = False
            kept.append(one)
        if len(kept) == 1:
            return kept[0]
        for mine in parts:  # one of the two may be all of it
            if set(mine) == set(kept) and len(mine) > 1:
                return operands[parts.index(mine)]
        for operand, mine in sorted(zip(operands, parts, strict=True), key=lambda one: -len(one[1])):
            if len(mine) > 1 and set(mine) <= set(kept):
                held, rest = operand, [one for one in kept if one not in mine]
                break
        else:
            held, rest = kept[0], kept[1:]
        for place, one in enumerate(rest):
            last = place == len(rest) - 1
            covers = (*self._parts(held), one)
            held = self._node(node if last else None, ("max", held, one))
            self._largest[held[0]] = tuple(dict.fromkeys(covers))
        return held

    def _parts(self, operand: Any) -> tuple[Any, ...]:
        return self._largest.get(operand[0], (operand,)) if isinstance(operand, tuple) else (operand,)

    def _divide_once(self, outputs: set[Any]) -> None:
        """The trace anew, quotients by one number above zero that only go into one maximum taken together."""
        nodes, old = self.trace.nodes, self._old
        users: dict[int, list[int]] = {one[0]: [-1] for one in outputs if isinstance(one, tuple)}
        for node in range(len(nodes) - 1, -1, -1):
            if node in users:
                for one in nodes[node][1:]:
                    if isinstance(one, tuple):
                        users.setdefault(one[0], []).append(node)
        inner = {node for node, mine in users.items() if nodes[node][0] == "max" and len(mine) == 1
                 and mine[0] >= 0 and nodes[mine[0]][0] == "max"}  # fmt: skip
        self.trace, self._old, self._known = Trace(), {}, {}
        placed: dict[int, Any] = {}

        def of(operand: Any) -> Any:
            return placed[operand[0]] if isinstance(operand, tuple) else operand

        def parts(node: int) -> list[Any]:
            found: list[Any] = []
            waiting = list(reversed(nodes[node][1:]))
            while waiting:
                one = waiting.pop()
                if isinstance(one, tuple) and one[0] in inner:
                    waiting += reversed(nodes[one[0]][1:])
                else:
                    found.append(one)
            return found

        def largest(of_these: list[Any], node: int | None) -> Any:
            held = of_these[0]
            for place, one in enumerate(of_these[1:]):
                held = self._node(node if place == len(of_these) - 2 else None, ("max", held, one))
            return held

        for node in sorted(users):
            if node in inner:
                continue
            operation, *operands = nodes[node]
            if operation != "max":
                rest = operands if operation == "input" else [of(one) for one in operands]
                placed[node] = self._node(old.get(node), (operation, *rest))
                continue
            alone: list[Any] = []
            by: dict[Any, list[Any]] = {}
            for one in parts(node):
                if isinstance(one, tuple) and nodes[one[0]][0] == "truediv" and len(users[one[0]]) == 1:
                    by.setdefault(nodes[one[0]][2], []).append(one)
                else:
                    alone.append(of(one))
            for divisor, alike in by.items():
                span = self._span(divisor, old)
                if len(alike) > 1 and span is not None and span[0] > 0:
                    most = largest([of(nodes[one[0]][1]) for one in alike], None)
                    alone.append(self._node(None, ("truediv", most, of(divisor))))
                else:
                    alone += [of(one) for one in alike]
            placed[node] = alone[0] if len(alone) == 1 else largest(alone, old.get(node))
        self._new = {node: of(one) for node, one in self._new.items()
                     if not isinstance(one, tuple) or one[0] in placed}  # fmt: skip

    def _node(self, old: int | None, operation: tuple[Any, ...]) -> tuple[int]:
        key = (*operation, *(type(one) for one in operation))
        if key not in self._known:
            self._known[key] = (len(self.trace.nodes),)
            self.trace.nodes.append(operation)
        made = self._known[key]
        if old is not None:
            self._old.setdefault(made[0], old)
        return made
