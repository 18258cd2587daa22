"""What is worth choosing from: the points that no other beats in everything."""

from __future__ import annotations

from collections.abc import Sequence

from offload.errors import FormulaError, shown
from offload.given import is_number, listed, plainly
from offload.plan import Amount


@plainly
def pareto(points: Sequence[Sequence[Amount]]) -> list[int]:
    """The indices, ascending, of the points that no other point dominates; every coordinate is to be small.

    points : (N, d), d >= 1; negate what is to be large. One point dominates another where it is at most as large
    everywhere and smaller somewhere, so equal points stand or fall together. After sorting, a point can only be
    dominated by an earlier one: in two dimensions the smallest second coordinate so far decides, O(n log n) (Kung,
    Luccio, Preparata 1975); in more, each is held against those kept, O(n x kept). Raises FormulaError for points of
    unequal length, and coordinates that are no finite numbers.
    """
    rows = _checked(points)
    order = sorted(range(len(rows)), key=rows.__getitem__)
    kept: list[int] = []
    if rows and len(rows[0]) <= 2:
        least: Amount | None = None
        for i in order:
            same = bool(kept) and rows[kept[-1]] == rows[i]
            if least is None or same or (len(rows[i]) == 2 and rows[i][1] < least):
                kept.append(i)
                least = rows[i][-1]
        return sorted(kept)
    for i in order:
        if not any(rows[j] != rows[i] and _at_most(rows[j], rows[i]) for j in kept):
            kept.append(i)
    return sorted(kept)


def _at_most(a: tuple[Amount, ...], b: tuple[Amount, ...]) -> bool:
    return all(one <= other for one, other in zip(a, b, strict=True))


def _checked(points: Sequence[Sequence[Amount]]) -> list[tuple[Amount, ...]]:
    rows = [tuple(listed(f"point {number}", point)) for number, point in enumerate(listed("points", points, "points"))]
    for number, row in enumerate(rows):
        if not row or len(row) != len(rows[0]):
            raise FormulaError(f"point {number} has {len(row)} coordinates, point 0 has {len(rows[0])}; give each of "
                               "them one or more, and all equally many.")  # fmt: skip
        for value in row:
            if not is_number(value):
                raise FormulaError(f"point {number}: {shown(value)} is no finite number; leave out points without one.")
    return rows
