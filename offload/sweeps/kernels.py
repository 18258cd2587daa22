"""Every numba function: arrays in, arrays out. A grid is walked in rows of its innermost axis, each row in blocks.

A program is a list of operations on blocks. Operands are registers (a block of numbers each) or leaves: numbers packed
one after another, with a stride for each axis, 0 along those that a leaf does not vary along. Operations are plain
IEEE ones in the order of the program, so results are those of NumPy to the last bit.
"""

from __future__ import annotations

import numba
import numpy as np

BLOCK = 1024
ADD, SUB, MUL, DIV, MAX = range(5)
MAXDIV, PICK, GEPICK = 6, 7, 8
REGISTER, ROW, POINT = range(3)  # where an operand is: a register, a leaf along the row, one number for the row


@numba.njit(cache=True, inline="always", error_model="numpy")
def _view(kind, index, registers, leaves, start, first, many):
    if kind == REGISTER:
        return registers[index, :many]
    if kind == ROW:
        return leaves[start[index] + first : start[index] + first + many]
    return leaves[start[index] : start[index] + 1]


@numba.njit(cache=True, error_model="numpy")
def _two(operation, a, b, into):
    many = into.shape[0]
    if a.shape[0] == many and b.shape[0] == many and many > 1:
        if operation == ADD:
            for i in range(many):
                into[i] = a[i] + b[i]
        elif operation == SUB:
            for i in range(many):
                into[i] = a[i] - b[i]
        elif operation == MUL:
            for i in range(many):
                into[i] = a[i] * b[i]
        elif operation == DIV:
            for i in range(many):
                into[i] = a[i] / b[i]
        else:
            for i in range(many):
                into[i] = a[i] if a[i] > b[i] else b[i]
    elif a.shape[0] == many and many > 1:
        y = b[0]
        if operation == ADD:
            for i in range(many):
                into[i] = a[i] + y
        elif operation == SUB:
            for i in range(many):
                into[i] = a[i] - y
        elif operation == MUL:
            for i in range(many):
                into[i] = a[i] * y
        elif operation == DIV:
            for i in range(many):
                into[i] = a[i] / y
        else:
            for i in range(many):
                into[i] = a[i] if a[i] > y else y
    else:
        x = a[0]
        step = 1 if b.shape[0] == many else 0
        if operation == ADD:
            for i in range(many):
                into[i] = x + b[i * step]
        elif operation == SUB:
            for i in range(many):
                into[i] = x - b[i * step]
        elif operation == MUL:
            for i in range(many):
                into[i] = x * b[i * step]
        elif operation == DIV:
            for i in range(many):
                into[i] = x / b[i * step]
        else:
            for i in range(many):
                into[i] = x if x > b[i * step] else b[i * step]


@numba.njit(cache=True, error_model="numpy")
def _maxdiv(a, b, c, into):
    many = into.shape[0]
    if a.shape[0] == 1 and many > 1:
        x = a[0]
        if b.shape[0] == 1:
            y = b[0]
            for i in range(many):
                t = y / c[i]
                into[i] = x if x > t else t
            return
        if c.shape[0] == 1:
            z = c[0]
            for i in range(many):
                t = b[i] / z
                into[i] = x if x > t else t
            return
        for i in range(many):
            t = b[i] / c[i]
            into[i] = x if x > t else t
        return
    if b.shape[0] == 1 and many > 1:
        y = b[0]
        for i in range(many):
            t = y / c[i]
            into[i] = a[i] if a[i] > t else t
        return
    if c.shape[0] == 1 and many > 1:
        z = c[0]
        for i in range(many):
            t = b[i] / z
            into[i] = a[i] if a[i] > t else t
        return
    for i in range(many):
        t = b[i] / c[i]
        into[i] = a[i] if a[i] > t else t


@numba.njit(cache=True, error_model="numpy")
def _pick(a, b, one, other, into, equal):
    """one where a > b (or a >= b), else other."""
    many = into.shape[0]
    p = 0 if a.shape[0] == 1 else 1
    q = 0 if b.shape[0] == 1 else 1
    r = 0 if one.shape[0] == 1 else 1
    s = 0 if other.shape[0] == 1 else 1
    if equal:
        for i in range(many):
            into[i] = one[i * r] if a[i * p] >= b[i * q] else other[i * s]
    else:
        for i in range(many):
            into[i] = one[i * r] if a[i * p] > b[i * q] else other[i * s]


@numba.njit(cache=True, parallel=True, error_model="numpy")
def run(program, registers, leaves, offsets, strides, lengths, inner, outputs, codes, table, rows, workers):
    """Run a program over rows of a grid.

    program : (operations, 10) int64: operation, register it goes to, then (kind, index) of up to four operands.
    leaves : packed numbers. offsets : (leaves + 1,) where each starts, and last where what is written does; strides :
    (leaves + 1, outer axes). lengths : of the outer axes.
    outputs : (figures, n) float64, from the last registers named in the program (operation -1: figure, ...); codes :
    (n,) int16 or of no length; table : what is written for a code, below zero counted from its end. workers : how many
    parts the rows are cut into.
    """
    axes = lengths.shape[0]
    for worker in numba.prange(workers):
        begin = rows * worker // workers
        end = rows * (worker + 1) // workers
        held = np.empty((registers, BLOCK))
        start = offsets.copy()
        index = np.zeros(axes, np.int64)
        left = begin
        for axis in range(axes - 1, -1, -1):
            index[axis] = left % lengths[axis]
            left //= lengths[axis]
        for leaf in range(offsets.shape[0]):
            for axis in range(axes):
                start[leaf] += index[axis] * strides[leaf, axis]
        for _ in range(begin, end):
            for first in range(0, inner, BLOCK):
                many = min(BLOCK, inner - first)
                here = start[-1] + first
                for line in range(program.shape[0]):
                    operation = program[line, 0]
                    a = _view(program[line, 2], program[line, 3], held, leaves, start, first, many)
                    if operation == -1:
                        _copy(a, outputs[program[line, 1], here : here + many])
                        continue
                    if operation == -2:
                        _code(a, codes[here : here + many], table)
                        continue
                    b = _view(program[line, 4], program[line, 5], held, leaves, start, first, many)
                    to = program[line, 1]
                    into = held[to, :many] if to >= 0 else outputs[-1 - to, here : here + many]
                    if operation == MAXDIV:
                        c = _view(program[line, 6], program[line, 7], held, leaves, start, first, many)
                        _maxdiv(a, b, c, into)
                    elif operation == PICK or operation == GEPICK:
                        c = _view(program[line, 6], program[line, 7], held, leaves, start, first, many)
                        d = _view(program[line, 8], program[line, 9], held, leaves, start, first, many)
                        _pick(a, b, c, d, into, operation == GEPICK)
                    else:
                        _two(operation, a, b, into)
            # The next row: the last outer axis one on, and where one is at its end, the one before it.
            axis = axes - 1
            while axis >= 0:
                index[axis] += 1
                for leaf in range(offsets.shape[0]):
                    start[leaf] += strides[leaf, axis]
                if index[axis] < lengths[axis]:
                    break
                for leaf in range(offsets.shape[0]):
                    start[leaf] -= strides[leaf, axis] * lengths[axis]
                index[axis] = 0
                axis -= 1


@numba.njit(cache=True, error_model="numpy")
def _copy(a, into):
    step = 0 if a.shape[0] == 1 else 1
    for i in range(into.shape[0]):
        into[i] = a[i * step]


@numba.njit(cache=True, error_model="numpy")
def _code(a, into, table):
    step = 0 if a.shape[0] == 1 else 1
    for i in range(into.shape[0]):
        into[i] = table[int(a[i * step])]
