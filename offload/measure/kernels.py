"""The loops that are timed, compiled, one pass over memory each; they hold no lock, so that threads run side by side.

What each moves is told by `offload.measure.memory.KERNELS`, and counted by a test that runs these loops on arrays that
count. Stores are plain ones: a processor may read a line before it is written, which nothing here counts.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def read(a):
    """The sum of whole numbers, wrapping: every element is read once."""
    total = np.int64(0)
    for i in range(a.shape[0]):
        total += a[i]
    return total


@numba.njit(nogil=True, cache=True)
def write(a, value):
    """Every element is written once."""
    for i in range(a.shape[0]):
        a[i] = value


@numba.njit(nogil=True, cache=True)
def copy(a, b):
    """Every element of b is read and one of a written."""
    for i in range(a.shape[0]):
        a[i] = b[i]


@numba.njit(nogil=True, cache=True)
def triad(a, b, c, scale):
    """STREAM's: an element of b and of c is read, one of a written."""
    for i in range(a.shape[0]):
        a[i] = b[i] + scale * c[i]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def triad_by_line(a, b, c, scale):
    """The same, one line of 64 bytes of each array after another: compiled, the loop above takes several lines of one
    array before those of the next, with which some processors are slower.
    """
    whole = a.shape[0] - a.shape[0] % 8
    for line in range(0, whole, 8):
        for i in range(line, line + 8):
            a[i] = b[i] + scale * c[i]
    for i in range(whole, a.shape[0]):
        a[i] = b[i] + scale * c[i]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def gemv(y, w, x):
    """y = w x, as decoding does: every element of w is read once; a row of x stays in the cache.

    The sum of a row may be taken in any order, as matrix libraries do; no time is predicted from it.
    """
    for row in range(w.shape[0]):
        total = np.float32(0)
        for column in range(w.shape[1]):
            total += w[row, column] * x[column]
        y[row] = total


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def multiply_add(a, rounds, scale, add):
    """16 FLOP for each element and round, on a block that stays in the nearest cache."""
    for _ in range(rounds):
        for i in range(a.shape[0]):
            x = a[i]
            for _ in range(8):
                x = x * scale + add
            a[i] = x
