"""Figures of a step as short programs over the rates of its resources, for the page to run.

Python's own functions run once with a factor of each rate that remembers how it is used (`offload.tracing`); what comes
out is the sums, quotients and maxima of one evaluation, which give the same bits wherever they are run. The page has no
formula of its own. Programs of steps that are made alike differ in their numbers alone, and are kept once. Where a
number is that of a function with turns of its own (layers streamed ahead of their computes), a program calls the
function, which the page has from its source (`scripted`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from offload.bounds import floor_seconds, load_seconds
from offload.chains import in_order, streamed
from offload.errors import OffloadError
from offload.laps import step_seconds
from offload.page.scripted import scripted
from offload.plan import Amount
from offload.prefetching import Prefetching
from offload.schedules import overlapped, serial
from offload.step import Step
from offload.tracing import Trace, Traced

# Operations that a page runs, by their place. Comparisons are guards: where one comes out otherwise nothing is known.
OPERATIONS = ("add", "sub", "mul", "truediv", "max", "pick", "pick_ge", "neg", "call")
COMPARED = ("ne", "eq", "lt", "le", "gt", "ge")
APART = 1e-9  # of numbers that no rounding makes equal
CALLED = {one.__name__: one for one in (step_seconds,)}  # what a program may call


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of `CALLED`, by its name. fixed : what it is given first, whole numbers and lists of them;
    then it is given the list of the operands. operands : how many.
    """

    function: str
    fixed: tuple[Any, ...]
    operands: int


@dataclass(frozen=True, slots=True)
class Program:
    """What a page runs. code : (operation, operands...) one after another; an operand is how many values back it is
    made, from 1 on, or -1 - the place of a plain number. The first values are the factors of the rates. outputs : by
    name the value's place, or -1 - that of a plain number. guards : (comparison, operand, operand, how it comes out),
    operands as in outputs. calls : what "call" calls; its place stands in the code before the operands.
    """

    inputs: int
    code: tuple[int, ...]
    outputs: tuple[tuple[str, int], ...]
    guards: tuple[tuple[int, int, int, bool], ...]
    calls: tuple[Call, ...] = ()


@dataclass(slots=True)
class Programs:
    """Programs, each once, in the order in which they are met."""

    kept: dict[Program, int] = field(default_factory=dict)

    def add(self, trace: Trace, inputs: Sequence[str], outputs: Mapping[str, Any]) -> tuple[int, list[float]]:
        """The number of the program that gives these values, and its plain numbers.

        Raises OffloadError where a trace does what no page runs.
        """
        writing = _Writing(trace, inputs)
        program = writing.program(outputs)
        return self.kept.setdefault(program, len(self.kept)), writing.plain


def script_of(names: Iterable[str]) -> str:
    """The functions of `CALLED` of these names as JavaScript, by their names in an object CALLED."""
    wanted = sorted(set(names))
    inner = scripted([CALLED[name] for name in wanted]) if wanted else ""
    return f"const CALLED = (function () {{\n{inner}return {{ {', '.join(wanted)} }};\n}})();\n"


class _Writing:
    def __init__(self, trace: Trace, inputs: Sequence[str]):
        self.trace, self.inputs = trace, inputs
        self.plain: list[float] = []
        self.calls: dict[Call, int] = {}
        self._places: dict[float, int] = {}
        self._values: dict[int, int] = {}  # by node, the place of its value

    def program(self, outputs: Mapping[str, Any]) -> Program:
        trace = self.trace
        if trace.hashed:
            raise OffloadError("a number that follows from rates is looked up by its value.")
        guards = [(name, operands, outcome) for (name, *operands), outcome in trace.guards.items()
                  if not self._always(name, operands, outcome)]  # fmt: skip
        needed = self._needed([*outputs.values()], guards)
        named = {operation[1]: node for node, operation in enumerate(trace.nodes) if operation[0] == "input"}
        for name in self.inputs:
            self._values[named.get(name, -1 - len(self._values))] = len(self._values)
        code: list[int] = []
        for node in needed:
            operation, *operands = trace.nodes[node]
            if operation == "input":
                continue
            if operation not in OPERATIONS:
                raise OffloadError(f'a page runs no "{operation}".')
            here = len(self._values)
            first = [OPERATIONS.index(operation)]
            if operation == "call":
                function, *operands = operands
                call = _call(function, len(operands))
                first.append(self.calls.setdefault(call, len(self.calls)))
            found = [self._place(one) for one in operands]
            code += [*first, *(one if one < 0 else here - one for one in found)]
            self._values[node] = here
        told = tuple((name, self._place((one.node,) if isinstance(one, Traced) else one))
                     for name, one in outputs.items())  # fmt: skip
        kept = tuple((COMPARED.index(name), self._place(one), self._place(other), outcome)
                     for name, (one, other), outcome in guards)  # fmt: skip
        return Program(len(self.inputs), tuple(code), told, kept, tuple(self.calls))

    def _always(self, name: str, operands: Sequence[Any], outcome: bool) -> bool:
        """Whether a comparison comes out so at all rates: that what is above zero is not zero, and that of
        two multiples of the same rates one is larger.
        """
        if name == "eq" and not outcome:
            (a, rates), (b, others) = map(self._multiple, operands)
            return rates is not None and rates == others and abs(a - b) > APART * max(abs(a), abs(b))
        return name == "ne" and outcome and operands[1] == 0 and self._above_zero(operands[0])

    def _multiple(self, operand: Any) -> tuple[float, dict[int, int] | None]:
        """An operand as a number times powers of factors, (number, power by node); None for the powers of any other."""
        if not isinstance(operand, tuple):
            return float(operand), {}
        operation, *operands = self.trace.nodes[operand[0]]
        if operation == "input":
            return 1.0, {operand[0]: 1}
        if operation == "add" and 0 in operands:  # a sum begins with it
            return self._multiple(operands[1 - operands.index(0)])
        if operation not in ("mul", "truediv"):
            return 0.0, None
        (a, powers), (b, others) = map(self._multiple, operands)
        if powers is None or others is None:
            return 0.0, None
        sign = 1 if operation == "mul" else -1
        found = {node: powers.get(node, 0) + sign * others.get(node, 0) for node in (*powers, *others)}
        return (a * b if sign > 0 else a / b), {node: power for node, power in found.items() if power}

    def _above_zero(self, operand: Any) -> bool:
        """Whether an operand is a product of factors and of plain numbers above zero."""
        if not isinstance(operand, tuple):
            return bool(operand > 0)
        operation, *operands = self.trace.nodes[operand[0]]
        return operation == "input" or operation == "mul" and all(map(self._above_zero, operands))

    def _needed(self, outputs: Sequence[Any], guards: Sequence[Any]) -> list[int]:
        """The nodes that outputs and guards are made of, in order."""
        waiting = [one.node for one in outputs if isinstance(one, Traced)]
        waiting += [one[0] for _, operands, _ in guards for one in operands if isinstance(one, tuple)]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += [one[0] for one in self.trace.nodes[node][1:] if isinstance(one, tuple)]
        return sorted(seen)

    def _place(self, operand: Any) -> int:
        if isinstance(operand, tuple):
            return self._values[operand[0]]
        number = float(operand)
        if number not in self._places:
            self._places[number] = len(self.plain)
            self.plain.append(number)
        return -1 - self._places[number]


def _call(function: Any, operands: int) -> Call:
    """The call that gives what a function of numbers gives. Raises OffloadError where a page has none."""
    if not isinstance(function, Prefetching):
        raise OffloadError(f"a page does not call {function!r}.")
    return Call(step_seconds.__name__, tuple(tuple(one) if isinstance(one, list) else one for one in function.plain()),
                operands)  # fmt: skip


def scaled_by(step: Step, factors: Mapping[str, Amount]) -> Step:
    """The step with the peak and the sustained rates of each resource times its factor [1]; latencies stay."""
    return replace(step, resources={
        name: replace(
            one,
            peak=None if one.peak is None else factors[name] * one.peak,
            sustained={access: rate.scaled(factors[name]) for access, rate in one.sustained.items()},
        ) if name in factors else one
        for name, one in step.resources.items()
    })  # fmt: skip


def has_formula(step: Step) -> bool:
    """Whether the overlapped time is a formula of the rates; else it is searched for among schedules."""
    return step.plan.overlap.kind == "none" or in_order(step) or streamed(step) is not None


def figures(step: Step) -> dict[str, Amount]:
    """The seconds that a page shows at any rates: floor, its load part alone, the same at sustained rates, serial; and
    by resource at its peak ("peak NAME") and at what it sustains ("busy NAME").
    """
    peak, busy = load_seconds(step), load_seconds(step, "value")
    found = {"floor": floor_seconds(step), "load": peak.seconds, "sustained": floor_seconds(step, "value"),
             "serial": serial(step).seconds}  # fmt: skip
    found |= {f"peak {name}": seconds for name, seconds in peak.resource_seconds.items()}
    return found | {f"busy {name}": seconds for name, seconds in busy.resource_seconds.items()}


def trace_figures(
    programs: Programs, step: Step, inputs: Mapping[str, Sequence[str]]
) -> tuple[tuple[int, list[float]], tuple[int, list[float]] | None]:
    """The programs of `figures` and of the overlapped time (None where it is searched for), with their numbers.

    inputs : by name of a factor, the resources whose rates it scales.
    """
    trace = Trace()
    found = figures(scaled_by(step, _factors(trace, inputs)))
    base = programs.add(trace, [*inputs], found)
    if not has_formula(step):
        return base, None
    trace = Trace()
    try:
        seconds = overlapped(scaled_by(step, _factors(trace, inputs)))
        return base, programs.add(trace, [*inputs], {"overlapped": seconds})
    except (OffloadError, TypeError):  # only some rates have the formula: the search goes where no trace follows it
        return base, None


def _factors(trace: Trace, inputs: Mapping[str, Sequence[str]]) -> dict[str, Amount]:
    return {name: factor for given, names in inputs.items()
            for factor in [trace.number(given, 1.0)] for name in names}  # fmt: skip
