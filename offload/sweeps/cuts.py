"""A grid cut along its outer axes: chunks of about so many points, each of them in one run of the grid's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

CHUNK = 2**22  # points


@dataclass(frozen=True, slots=True)
class Cuts:
    """The chunks of a grid: `cuts[3]` are the slices of the fourth along each axis, `len(cuts)` how many there are.

    shape : of the grid. axis : the one that is cut into parts; those before it are gone through value by value, those
    after it are whole. step : how many of its values a chunk has (the last may have fewer).
    """

    shape: tuple[int, ...]
    axis: int
    step: int

    @property
    def _parts(self) -> int:
        return -(-self.shape[self.axis] // self.step) if self.shape else 1

    def __len__(self) -> int:
        return prod(self.shape[: self.axis]) * self._parts

    def __getitem__(self, number: int) -> tuple[slice, ...]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        if not self.shape:
            return ()
        outer, part = divmod(number, self._parts)
        found = [slice(part * self.step, min((part + 1) * self.step, self.shape[self.axis]))]
        for length in reversed(self.shape[: self.axis]):
            outer, at = divmod(outer, length)
            found.insert(0, slice(at, at + 1))
        return (*found, *(slice(0, length) for length in self.shape[self.axis + 1 :]))

    def __iter__(self) -> Iterator[tuple[slice, ...]]:
        return (self[number] for number in range(len(self)))

    def begin(self, number: int) -> int:
        """The place of a chunk's first point in the grid's order, the last axis fastest."""
        found = 0
        for length, one in zip(self.shape, self[number], strict=True):
            found = found * length + one.start
        return found


def cut(shape: tuple[int, ...], points: int = CHUNK) -> Cuts:
    """Chunks of at most so many points, as even as they come."""
    if not shape:
        return Cuts((), 0, 1)
    inner = 1
    for axis in range(len(shape) - 1, -1, -1):
        if inner * shape[axis] > points or axis == 0:
            most = max(1, points // inner)
            parts = -(-shape[axis] // most)
            return Cuts(shape, axis, -(-shape[axis] // parts))
        inner *= shape[axis]
    raise AssertionError("unreachable")
