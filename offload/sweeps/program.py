"""What a trace says of a figure, as a program for the kernel; or worked out by NumPy, with the same bits.

Parts of a figure that do not vary along the innermost axis, or along few of the axes, are worked out once by NumPy at
their own size. What is left is a short list of operations for each point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy

from offload.replay import EXACT, Replay
from offload.sweeps.simplify import Simplified
from offload.tracing import Trace, Traced

SMALL = 2**21  # numbers of a part that NumPy works out whatever its share of the grid
BLOCK = 2**18  # points of a figure that NumPy works out at a time
SHARE = 16  # a part with no more than this share of the points is worked out by NumPy
LONG = 16  # rows no shorter than the longest axis over this are walked as they lie in memory
FEW_POINTS = 200_000  # below, NumPy is done before a compiled kernel is read from the disk
OPERATIONS = {"add": 0, "sub": 1, "mul": 2, "truediv": 3, "max": 4}  # as in `kernels`
MAXDIV, PICK, GEPICK = 6, 7, 8
KERNELS = {*OPERATIONS, "pick", "pick_ge"}
FIGURE, CODE = -1, -2
REGISTER, ROW, POINT = range(3)


class Unsupported(Exception):  # noqa: N818 - it is no error of anyone's
    """An operation that the kernel does not have."""


@dataclass(slots=True)
class Points:
    """The points of a program: names of the inputs and their values, in the order of the axes, the last innermost."""

    names: tuple[str, ...]
    values: tuple[numpy.ndarray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(one) for one in self.values)

    def part(self, block: tuple[slice, ...]) -> Points:
        """The points of slices of the axes."""
        return Points(self.names, tuple(one[cut] for one, cut in zip(self.values, block, strict=True)))

    def inputs(self) -> dict[str, numpy.ndarray]:
        """Each axis along its own dimension."""
        count = len(self.values)
        return {name: one.reshape([-1 if axis == place else 1 for axis in range(count)])
                for place, (name, one) in enumerate(zip(self.names, self.values, strict=True))}  # fmt: skip


def in_blocks(trace: Trace, number: Any, grid: Points) -> Any:
    """One figure by NumPy: an array of length 1 along axes that it does not depend on, or the number itself.

    What is on the way to it is held for BLOCK points at a time: memory does not grow by that many whole arrays.
    """
    if not isinstance(number, Traced):
        return number
    names = trace.reached()[number.node]
    lengths = [len(one) if name in names else 1 for name, one in zip(grid.names, grid.values, strict=True)]
    if prod(lengths) <= BLOCK:
        return Replay(trace, grid.inputs()).value(number)
    longest = max(range(len(lengths)), key=lambda axis: lengths[axis])
    step = max(1, BLOCK * lengths[longest] // prod(lengths))
    found = numpy.empty(lengths)
    for first in range(0, lengths[longest], step):
        block = tuple(slice(first, first + step) if axis == longest else slice(None) for axis in range(len(lengths)))
        found[block] = Replay(trace, grid.part(block).inputs()).value(number)
    return found


@dataclass(slots=True)
class Into:
    """Where the numbers of a grid go: views of arrays that lie in one piece of memory.

    figures : (figures, n), the whole of that memory, of which `views` (figures, *shape) is a part. codes : (n,) int16
    or of no length, with a view alike; table : what is written for a code, those below zero counted from its end.
    """

    figures: numpy.ndarray
    views: numpy.ndarray
    codes: numpy.ndarray
    code: numpy.ndarray | None = None
    table: numpy.ndarray = field(default_factory=lambda: numpy.zeros(1, dtype=numpy.int16))

    @classmethod
    def empty(cls, shape: Sequence[int], figures: int, inner: int | None, table: numpy.ndarray | None = None) -> Into:
        """Room for a grid, one of its axes laid out innermost. table : given where there is a code."""
        order = [*(axis for axis in range(len(shape)) if axis != inner), *([] if inner is None else [inner])]
        lengths, back = [shape[axis] for axis in order], list(numpy.argsort(order))
        found = numpy.empty((figures, prod(shape)))
        views = found.reshape(figures, *lengths).transpose(0, *(axis + 1 for axis in back))
        if table is None:
            return cls(found, views, numpy.empty(0, dtype=numpy.int16))
        codes = numpy.empty(prod(shape), dtype=numpy.int16)
        return cls(found, views, codes, codes.reshape(lengths).transpose(back), table)

    def at(self, where: tuple[Any, ...]) -> Into:
        """A part of it."""
        code = None if self.code is None else self.code[(*where, ...)]
        return Into(self.figures, self.views[(slice(None), *where, ...)], self.codes, code, self.table)

    def steps(self) -> tuple[int, tuple[int, ...]]:
        """In numbers: where the views begin in that memory, and the way from point to point along each axis."""
        view, whole = (self.views[0], self.figures[0]) if len(self.figures) else (cast("Any", self.code), self.codes)
        begin = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        return begin // view.itemsize, tuple(one // view.itemsize for one in view.strides)


def into_numpy(trace: Trace, figures: Sequence[Any], code: Any, grid: Points, into: Into) -> None:
    """Figures and code, by broadcasting, where they belong."""
    replay = Replay(trace, grid.inputs())
    for place, one in enumerate(figures):
        into.views[place, ...] = replay.value(one)
    if into.code is not None:
        into.code[...] = into.table[numpy.asarray(replay.value(code)).astype(numpy.int16)]


def into_kernel(
    trace: Trace, figures: Sequence[Any], code: Any, grid: Points, threads: int, into: Into
) -> None:
    """Figures and code, compiled, where they belong. Raises Unsupported where an operation is not the kernel's, and
    where no long axis of the grid lies in memory point after point.
    """
    begin, steps = into.steps()
    row = max((axis for axis in range(len(grid.shape)) if steps[axis] == 1), key=lambda one: grid.shape[one],
              default=None)  # fmt: skip
    if row is None or grid.shape[row] * LONG < max(grid.shape):
        raise Unsupported("rows")
    order = [*(axis for axis in range(len(grid.shape)) if axis != row), row]
    turned = Points(tuple(grid.names[axis] for axis in order), tuple(grid.values[axis] for axis in order))
    keys = [(one.node,) if isinstance(one, Traced) else one for one in (*figures, *([] if code is None else [code]))]
    short = Simplified(trace, turned.inputs(), keys)
    program = _Program(short, turned, [short.of(one) for one in keys], code is not None)
    program.run(threads, into, begin, [steps[axis] for axis in order[:-1]])


def longest(shape: Sequence[int]) -> int | None:
    """The longest axis, the last of those; None where there is none."""
    return max(range(len(shape)), key=lambda axis: (shape[axis], axis), default=None)


def worth_compiling(points: int, compiled: bool | None) -> bool:
    """Whether so many points are worked out by the kernel. compiled : None for whichever is sooner done."""
    return bool(compiled or compiled is None and points >= FEW_POINTS)


def evaluate(
    trace: Trace, figures: Sequence[Any], grid: Points, *, compiled: bool | None = None, threads: int = 2
) -> numpy.ndarray:
    """Figures of a grid, (figures, *shape) float64. compiled : as `worth_compiling` takes it."""
    into = Into.empty(grid.shape, len(figures), longest(grid.shape))
    evaluate_into(trace, figures, None, grid, into, compiled=compiled, threads=threads)
    return into.views


def evaluate_into(
    trace: Trace, figures: Sequence[Any], code: Any, grid: Points, into: Into, *, compiled: bool | None, threads: int
) -> None:
    """Figures and, if there is one, the code of a grid, written where they belong."""
    if grid.shape and worth_compiling(prod(grid.shape), compiled):
        try:
            return into_kernel(trace, figures, code, grid, threads, into)
        except Unsupported:
            pass
    into_numpy(trace, figures, code, grid, into)


@dataclass(slots=True)
class _Leaf:
    kind: int
    array: numpy.ndarray  # with as many dimensions as there are axes


@dataclass(slots=True)
class _Line:
    operation: int
    to: int
    operands: list[tuple[int, int]] = field(default_factory=list)  # (kind, index)


class _Program:
    """outputs : the figures, and last the code if there is one (`has_code`)."""

    def __init__(self, short: Simplified, grid: Points, outputs: Sequence[Any], has_code: bool):
        self.short, self.trace, self.grid, self.has_code = short, short.trace, grid, has_code
        self.replay = Replay(self.trace, grid.inputs())
        self.axis = {name: place for place, name in enumerate(grid.names)}
        self.inner = len(grid.shape) - 1
        self.support = self._supports()
        self.leaves: list[_Leaf] = []
        self.leaf_of: dict[Any, tuple[int, int]] = {}
        self.lines: list[_Line] = []
        self.at: dict[int, tuple[int, int]] = {}
        self.uses = self._counts(outputs)
        self.free: list[int] = []
        self.holding: dict[int, int] = {}  # by register, how many uses of it are still to come
        self.registers = 0
        self.figures = len(outputs) - has_code
        for place, one in enumerate(outputs):
            if place < self.figures:
                self.lines.append(_Line(FIGURE, place, [self._operand(one)]))
            else:
                self.lines.append(_Line(CODE, 0, [self._operand(one)]))
        self._straight_to_figures()

    def _supports(self) -> list[int]:
        found: list[int] = []
        for operation, *operands in self.trace.nodes:
            mask = 0
            if operation == "input":
                mask = 1 << self.axis[operands[0]]
            else:
                for one in operands:
                    if isinstance(one, tuple):
                        mask |= found[one[0]]
            found.append(mask)
        return found

    def _counts(self, outputs: Sequence[Any]) -> dict[int, int]:
        """How often each node is an operand of what is needed."""
        counts: dict[int, int] = {}
        waiting = list(outputs)
        while waiting:
            one = waiting.pop()
            if not isinstance(one, tuple):
                continue
            counts[one[0]] = counts.get(one[0], 0) + 1
            if counts[one[0]] == 1 and not self._is_leaf(one[0]):
                waiting += self.trace.nodes[one[0]][1:]
        return counts

    def _size(self, mask: int) -> int:
        return prod(length for axis, length in enumerate(self.grid.shape) if mask >> axis & 1)

    def _is_leaf(self, node: int) -> bool:
        mask, (operation, *operands) = self.support[node], self.trace.nodes[node]
        if operation == "input" or not mask >> self.inner & 1:
            return True
        if not any(isinstance(one, tuple) for one in operands):
            return True
        size, points = self._size(mask), prod(self.grid.shape)
        if size * SHARE <= points:
            return True
        if mask.bit_count() != 1 or size > SMALL:
            return False
        return size < points or operation not in KERNELS  # of a single axis the kernel does all that it can

    def _leaf(self, key: Any, array: Any, mask: int) -> tuple[int, int]:
        if key not in self.leaf_of:
            count = len(self.grid.shape)
            whole = numpy.asarray(array, dtype=numpy.float64)
            whole = whole.reshape((1,) * (count - whole.ndim) + whole.shape)
            kind = ROW if mask >> self.inner & 1 else POINT
            if kind == ROW and whole.shape[-1] == 1 < self.grid.shape[-1]:
                kind = POINT
            self.leaf_of[key] = (kind, len(self.leaves))
            self.leaves.append(_Leaf(kind, numpy.ascontiguousarray(whole)))
        return self.leaf_of[key]

    def _operand(self, key: Any) -> tuple[int, int]:
        if not isinstance(key, tuple):
            return self._leaf(("number", key), key, 0)
        node = key[0]
        if node in self.at:
            return self._used(node)
        if self._is_leaf(node):
            return self._leaf(node, self.replay._node(node), self.support[node])
        # Operands first, without recursion as deep as a chain is long.
        waiting = [node]
        while waiting:
            one = waiting[-1]
            if one in self.at:
                waiting.pop()
                continue
            parts = self._parts(one)
            lacking = [part[0] for part in parts if isinstance(part, tuple) and part[0] not in self.at
                       and not self._is_leaf(part[0])]  # fmt: skip
            if lacking:
                waiting += lacking
                continue
            self._write(one)
            waiting.pop()
        return self._used(node)

    def _parts(self, node: int) -> list[Any]:
        """What must be there before an operation: its operands, and those of a quotient that goes into a maximum."""
        operation, *operands = self.trace.nodes[node]
        if operation != "max":
            return operands
        found: list[Any] = []
        for one in self._compared(node):
            found += self.trace.nodes[one[0]][1:] if isinstance(one, tuple) and self._fused(one[0]) else [one]
        return found

    def _compared(self, node: int) -> list[Any]:
        """All that a maximum is the largest of: of a maximum in it that nothing else needs, what that is of."""
        found: list[Any] = []
        waiting = list(reversed(self.trace.nodes[node][1:]))
        while waiting:
            one = waiting.pop()
            if (isinstance(one, tuple) and self.trace.nodes[one[0]][0] == "max" and one[0] not in self.at
                    and not self._is_leaf(one[0]) and self.uses.get(one[0], 0) == 1):  # fmt: skip
                waiting += reversed(self.trace.nodes[one[0]][1:])
            else:
                found.append(one)
        return found

    def _fused(self, node: int) -> bool:
        """Whether a quotient goes into one maximum only, and is worked out in it."""
        return (self.trace.nodes[node][0] == "truediv" and self.uses.get(node, 0) == 1 and node not in self.at
                and not self._is_leaf(node))  # fmt: skip

    def _write(self, node: int) -> None:
        operation, *operands = self.trace.nodes[node]
        if operation == "max":
            self._write_max(node)
            return
        code = {"pick": PICK, "pick_ge": GEPICK}.get(operation, OPERATIONS.get(operation))
        if code is None or any(map(self._beyond, ((node,), *operands))):
            raise Unsupported(operation)
        self._emit(node, code, [self._operand(one) for one in operands])

    def _beyond(self, operand: Any) -> bool:
        """Whether an operand may be a whole number that no float holds."""
        span = self.short.span(operand)
        return span is not None and any(type(one) is int and abs(one) > EXACT for one in span)

    def _write_max(self, node: int) -> None:
        """All that a maximum is of, what does not vary along the row first and by NumPy."""
        parts = self._compared(node)
        still = [one for one in parts if not isinstance(one, tuple)
                 or one[0] not in self.at and not self.support[one[0]] >> self.inner & 1]  # fmt: skip
        moving = [one for one in parts if one not in still]
        if len(still) > 1:
            arrays = [self.replay._node(one[0]) if isinstance(one, tuple) else one for one in still]
            whole = arrays[0]
            for one in arrays[1:]:
                whole = numpy.maximum(whole, one)
            held = self._leaf(("still", node), whole, 0)
        elif still:
            held = self._operand(still[0])
        else:
            plain = [one for one in moving if not (isinstance(one, tuple) and self._fused(one[0]))]
            first = plain[0] if plain else moving[0]
            moving.remove(first)
            if isinstance(first, tuple) and self._fused(first[0]):
                self._emit(first[0], OPERATIONS["truediv"],
                           [self._operand(one) for one in self.trace.nodes[first[0]][1:]])
            held = self._operand(first)
        for place, one in enumerate(moving):
            last = place == len(moving) - 1
            if isinstance(one, tuple) and self._fused(one[0]):
                operands = [held, *(self._operand(part) for part in self.trace.nodes[one[0]][1:])]
                held = self._emit(node if last else None, MAXDIV, operands)
            else:
                held = self._emit(node if last else None, OPERATIONS["max"], [held, self._operand(one)])
        if not moving:
            self.at[node] = held

    def _emit(self, node: int | None, operation: int, operands: list[tuple[int, int]]) -> tuple[int, int]:
        for kind, index in dict.fromkeys(operands):
            if kind == REGISTER and self.holding.get(index, 0) == 0:
                self.free.append(index)
        to = self.free.pop() if self.free else self.registers
        self.registers = max(self.registers, to + 1)
        self.lines.append(_Line(operation, to, operands))
        self.holding[to] = 0 if node is None else self.uses.get(node, 0)
        if node is not None:
            self.at[node] = (REGISTER, to)
        return (REGISTER, to)

    def _used(self, node: int) -> tuple[int, int]:
        kind, index = self.at[node]
        if kind == REGISTER:
            self.holding[index] -= 1
        return kind, index

    def _straight_to_figures(self) -> None:
        """A line whose register only becomes a figure goes there at once."""
        for place in range(len(self.lines) - 1, 0, -1):
            line, before = self.lines[place], self.lines[place - 1]
            if line.operation == FIGURE and line.operands[0] == (REGISTER, before.to) and before.operation >= 0:
                later = any((REGISTER, before.to) in one.operands for one in self.lines[place + 1 :])
                if not later:
                    before.to = -1 - line.to
                    del self.lines[place]

    def run(self, threads: int, into: Into, begin: int, steps: Sequence[int]) -> None:
        """Work it out. begin, steps : where the first row of the grid is in that memory, and the way from row to row
        along each outer axis.
        """
        from offload.sweeps.machine_code import running

        shape = self.grid.shape
        inner, outer = shape[-1], shape[:-1]
        rows = prod(outer)
        program = numpy.zeros((len(self.lines), 10), dtype=numpy.int64)
        for place, line in enumerate(self.lines):
            program[place, 0], program[place, 1] = line.operation, line.to
            for number, (kind, index) in enumerate(line.operands):
                program[place, 2 + 2 * number], program[place, 3 + 2 * number] = kind, index
        offsets, strides, at = [], [], 0
        for leaf in self.leaves:
            offsets.append(at)
            at += leaf.array.size
            along, step = [0] * len(shape), 1
            for axis in range(len(shape) - 1, -1, -1):
                along[axis] = 0 if leaf.array.shape[axis] == 1 else step
                step *= leaf.array.shape[axis]
            strides.append(along[:-1])
        offsets.append(begin)  # the rows that are written go on as those that are read
        strides.append(list(steps))
        packed = numpy.concatenate([leaf.array.ravel() for leaf in self.leaves])
        with running(threads or 2) as kernels:
            kernels.run(
                program, max(1, self.registers), packed, numpy.array(offsets, dtype=numpy.int64),
                numpy.array(strides, dtype=numpy.int64).reshape(len(offsets), len(outer)),
                numpy.array(outer, dtype=numpy.int64), inner, into.figures, into.codes, into.table, rows,
                max(1, min(rows, 4 * (threads or 2))),
            )  # fmt: skip
