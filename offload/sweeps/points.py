"""Points of a grid, and where along an axis what binds changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy


@dataclass(frozen=True, slots=True)
class Point:
    """One point. values : by path, numbers in plain units or texts; texts : the same as a file would say them.

    place : its place along each axis. floor, serial, overlapped : seconds, None where no step can be made (`wrong` says
    why) or it is not known; tokens : of a step at most, tokens_per_s at the floor; spare : bytes left in the fullest
    memory, below zero what it lacks, None where no size is known. binding : what binds the floor. uncounted : the parts
    without a rate on which its time depends, in words: it takes serial and overlapped at least.
    """

    place: tuple[int, ...]
    values: Mapping[str, float | str]
    texts: Mapping[str, str]
    floor: float | None
    serial: float | None
    overlapped: float | None
    tokens: float | None
    tokens_per_s: float | None
    spare: float | None
    fits: bool | None
    binding: str
    wrong: str = ""
    uncounted: str = ""


@dataclass(frozen=True, slots=True)
class Crossover:
    """Between two neighbouring values of an axis another resource binds.

    low, high : the two values as texts, at `place` and the next; before, after : what binds at them; lines : on how
    many lines along this axis (one for each choice of values of the others), out of `of`.
    """

    path: str
    place: int
    low: str
    high: str
    before: str
    after: str
    lines: int
    of: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A grid in a few figures. points : of the grid; made : where there is a step; fit : where it fits too.

    smallest, largest : of the floors, where there is a step. nearest : of the points that do not fit the one that lacks
    least. binds : by resource, at how many points it binds the floor (the first that does). uncounted : by parts
    without a rate on which the time depends, at how many points.
    """

    points: int
    made: int
    fit: int
    smallest: Point | None
    largest: Point | None
    nearest: Point | None
    binds: Mapping[str, int]
    uncounted: Mapping[str, int]


def least(values: numpy.ndarray, count: int) -> numpy.ndarray:
    """The places of the smallest values, ascending, of equal ones the first; NaN is left out. values : shape (n,)."""
    good = numpy.flatnonzero(~numpy.isnan(values))
    if count < good.size:
        kth = numpy.partition(values[good], count - 1)[count - 1]
        below = good[values[good] < kth]
        good = numpy.concatenate([below, good[values[good] == kth][: count - below.size]])
    return good[numpy.lexsort((good, values[good]))]


def undominated(columns: list[numpy.ndarray]) -> numpy.ndarray:
    """The places, ascending, of the points that no other is at least as small as everywhere and smaller somewhere.

    columns : each of shape (n,), without NaN.
    """
    order = numpy.lexsort(columns[::-1])
    if len(columns) == 1:
        return numpy.sort(order[columns[0][order] == columns[0][order[0]]]) if order.size else order
    if len(columns) == 2:
        first, second = (one[order] for one in columns)
        before = numpy.minimum.accumulate(second)
        new = numpy.ones(order.size, dtype=bool)
        new[1:] = second[1:] < before[:-1]
        same = numpy.zeros(order.size, dtype=bool)
        same[1:] = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
        heads = numpy.maximum.accumulate(numpy.where(same, 0, numpy.arange(order.size)))  # the first of equal points
        return numpy.sort(order[new[heads]])
    rows = numpy.stack([one[order] for one in columns], axis=1)
    kept: list[int] = []
    left = numpy.arange(len(rows))
    while left.size:  # the first left is dominated by none, as all that could are before it and gone
        one = rows[left[0]]
        kept.append(int(left[0]))
        below = (rows[left] < one).any(axis=1)
        kept += [int(at) for at in left[1:] if (rows[at] == one).all()] if (~below).sum() > 1 else []
        left = left[below]
    return numpy.sort(order[kept])
