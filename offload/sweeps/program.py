"""What a trace says of a figure, as a program for the kernel; or worked out by NumPy, with the same bits.

Parts of a figure that do not vary along the innermost axis, or along few of the axes, are worked out once by NumPy at
their own size. What is left is a short list of operations for each point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from offload.replay import Replay
from offload.tracing import Trace, Traced

SMALL = 2**21  # numbers of a part that NumPy works out whatever its share of the grid
BLOCK = 2**18  # points of a figure that NumPy works out at a time
SHARE = 16  # a part with no more than this share of the points is worked out by NumPy
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


def by_numpy(
    trace: Trace, figures: Sequence[Any], code: Any, grid: Points
) -> tuple[numpy.ndarray, numpy.ndarray | None]:
    """Figures (figures, *shape) float64, and the code (*shape) int8 if there is one, by broadcasting."""
    replay = Replay(trace, grid.inputs())
    found = numpy.empty((len(figures), *grid.shape))
    for place, one in enumerate(figures):
        found[place] = replay.value(one)
    if code is None:
        return found, None
    return found, numpy.broadcast_to(numpy.asarray(replay.value(code)).astype(numpy.int8), grid.shape).copy()


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


def by_kernel(
    trace: Trace, figures: Sequence[Any], code: Any, grid: Points, threads: int
) -> tuple[numpy.ndarray, numpy.ndarray | None]:
    """The same, compiled. Raises Unsupported where an operation is not the kernel's.

    The longest axis is walked innermost, whatever its place.
    """
    longest = max(range(len(grid.shape)), key=lambda axis: (grid.shape[axis], axis))
    order = [*(axis for axis in range(len(grid.shape)) if axis != longest), longest]
    turned = Points(tuple(grid.names[axis] for axis in order), tuple(grid.values[axis] for axis in order))
    found, codes = _Program(trace, turned, figures, code).run(threads)
    back = numpy.argsort(order)
    return found.transpose(0, *(back + 1)), None if codes is None else codes.transpose(back)


def evaluate(
    trace: Trace, figures: Sequence[Any], code: Any, grid: Points, *, compiled: bool | None = None, threads: int = 0
) -> tuple[numpy.ndarray, numpy.ndarray | None]:
    """Figures and code of a grid. compiled : whether by the kernel; None for whichever is sooner done."""
    if grid.shape and (compiled or compiled is None and prod(grid.shape) >= FEW_POINTS):
        try:
            return by_kernel(trace, figures, code, grid, threads)
        except Unsupported:
            pass
    return by_numpy(trace, figures, code, grid)


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
    def __init__(self, trace: Trace, grid: Points, figures: Sequence[Any], code: Any):
        self.trace, self.grid = trace, grid
        self.replay = Replay(trace, grid.inputs())
        self.axis = {name: place for place, name in enumerate(grid.names)}
        self.inner = len(grid.shape) - 1
        self.support = self._supports()
        self.leaves: list[_Leaf] = []
        self.leaf_of: dict[Any, tuple[int, int]] = {}
        self.lines: list[_Line] = []
        self.at: dict[int, tuple[int, int]] = {}
        self.uses = self._counts([*figures, *([] if code is None else [code])])
        self.free: list[int] = []
        self.holding: dict[int, int] = {}  # by register, how many uses of it are still to come
        self.registers = 0
        self.figures = len(figures)
        for place, one in enumerate(figures):
            self.lines.append(_Line(FIGURE, place, [self._operand(self._key(one))]))
        self.has_code = code is not None
        if code is not None:
            self.lines.append(_Line(CODE, 0, [self._operand(self._key(code))]))
        self._straight_to_figures()

    def _key(self, one: Any) -> Any:
        return (one.node,) if isinstance(one, Traced) else one

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
        waiting = [self._key(one) for one in outputs]
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
        if code is None:
            raise Unsupported(operation)
        self._emit(node, code, [self._operand(one) for one in operands])

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

    def run(self, threads: int) -> tuple[numpy.ndarray, numpy.ndarray | None]:
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
            steps, step = [0] * len(shape), 1
            for axis in range(len(shape) - 1, -1, -1):
                steps[axis] = 0 if leaf.array.shape[axis] == 1 else step
                step *= leaf.array.shape[axis]
            strides.append(steps[:-1])
        packed = numpy.concatenate([leaf.array.ravel() for leaf in self.leaves])
        found = numpy.empty((self.figures, rows, inner))
        codes = numpy.empty((rows if self.has_code else 0, inner), dtype=numpy.int8)
        with running(threads or 2) as kernels:
            kernels.run(
                program, max(1, self.registers), packed, numpy.array(offsets, dtype=numpy.int64),
                numpy.array(strides, dtype=numpy.int64).reshape(len(offsets), len(outer)),
                numpy.array(outer, dtype=numpy.int64), inner, found, codes, 0, rows,
                max(1, min(rows, 4 * (threads or 2))),
            )  # fmt: skip
        return found.reshape(self.figures, *shape), codes.reshape(shape) if self.has_code else None
