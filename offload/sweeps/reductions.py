"""Answers over a grid that nobody holds: the best points, fronts, the least along an axis, what binds how often.

    "best=20"  "pareto=floor:spare"  "min=workload.batch"  "binding"

Each is worked out for a chunk (`of`), and what two chunks give is put together (`merged`), in any order of the chunks
and with the same result: only comparisons and counts of whole numbers are made. Of equal points the first one in the
grid's order is kept. What is kept of a point is its place in that order, with its figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from offload.errors import OffloadError, did_you_mean
from offload.sweeps.axes import Axis
from offload.sweeps.grid import MORE_IS_BETTER, Grid, is_time
from offload.sweeps.points import undominated

KINDS = ("best", "pareto", "min", "binding")
BEST = 10  # points, where no number is given
ROW = 1024
MOST_FRONT = 2_000_000
FIGURES = ("floor", "serial", "overlapped", "tokens_per_s", "spare")
State = dict[str, numpy.ndarray]


class Seen:
    """A chunk while several reductions look at it: what more than one needs is made once."""

    def __init__(self, grid: Grid):
        self.grid, self.fits = grid, grid.array("fits")
        self._signed: dict[str, numpy.ndarray] = {}

    def signed(self, by: str) -> numpy.ndarray:
        """A figure so that less is better, infinite where a point does not fit, or has no step or no known time."""
        if by not in self._signed:
            figure = self.grid.figure(by)
            figure = -figure if by in MORE_IS_BETTER or by == "tokens" else figure
            self._signed[by] = numpy.where(self.allowed(by) & ~numpy.isnan(figure), figure, numpy.inf)
        return self._signed[by]


    def allowed(self, *names: str) -> numpy.ndarray:
        """The points that are chosen from by some figures."""
        return self.fits & self.grid.known if any(map(is_time, names)) else self.fits


@dataclass(frozen=True, slots=True)
class Reduction:
    """One answer. kind : one of KINDS. by : the figure that is best (best, min). count : of the best points. names : of
    a front, as `Grid.pareto` takes them. axis : the number of the axis that the least is along.
    """

    kind: str
    by: str = "floor"
    count: int = 0
    names: tuple[str, ...] = ()
    axis: int = -1

    @property
    def text(self) -> str:
        """The reduction as it is written, with what is meant by default."""
        if self.kind == "best":
            return f"best={self.count} by {self.by}"
        if self.kind == "pareto":
            return f"pareto={':'.join(self.names)}"
        return f"min={self.axis} by {self.by}" if self.kind == "min" else self.kind

    def of(self, seen: Seen, begin: int, starts: Sequence[int]) -> State:
        """What a chunk gives. begin, starts : its first point's place in the whole grid's order, along each axis."""
        if self.kind == "binding":
            return {"counts": _counts(seen)}
        if self.kind == "best":
            places = _least_places(seen.signed(self.by), self.count)
        elif self.kind == "min":
            return self._along(seen, begin, starts[self.axis])
        else:
            places = _front(seen, self.names)
        return _records(seen.grid, places, begin) | {"keys": self._keys(seen, places)}

    def _keys(self, seen: Seen, places: numpy.ndarray) -> numpy.ndarray:
        """What points are compared by, less is better. Shape (points, figures)."""
        if self.kind == "best":
            keys: numpy.ndarray = seen.signed(self.by).reshape(-1)[places][:, None]
            return keys
        at = numpy.unravel_index(places, seen.grid.shape)
        return numpy.stack([_column(seen.grid, name)[at] for name in self.names], axis=1)

    def merged(self, one: State, other: State) -> State:
        """What two chunks give together."""
        if self.kind == "binding":
            return {"counts": one["counts"] + other["counts"]}
        both = {name: numpy.concatenate([one[name], other[name]]) for name in one}
        if self.kind == "best":
            kept = numpy.lexsort((both["places"], both["keys"][:, 0]))[: self.count]
        elif self.kind == "min":  # by value of the axis the least, of equal ones the first
            order = numpy.lexsort((both["places"], both["keys"][:, 0], both["values"]))
            kept = order[numpy.flatnonzero(numpy.diff(both["values"][order], prepend=-1))]
        else:
            kept = _first_front(both["keys"], both["places"])
            if kept.size > MOST_FRONT:
                raise OffloadError(f"--reduce {self.text}: the front has more than {MOST_FRONT:,} points. Name fewer "
                                   "figures.")
        return {name: array[kept] for name, array in both.items()}

    def _along(self, seen: Seen, begin: int, start: int) -> State:
        """For each value of an axis the place of the least figure over all others."""
        grid, signed = seen.grid, seen.signed(self.by)
        outer = int(numpy.prod(grid.shape[: self.axis]))
        length = grid.shape[self.axis]
        cube = signed.reshape(outer, length, -1)
        if cube.shape[2] > 1:
            inner = cube.argmin(axis=2)
            values = numpy.take_along_axis(cube, inner[:, :, None], axis=2)[:, :, 0]
            first = values.argmin(axis=0)
            places = (first * length + numpy.arange(length)) * cube.shape[2] + inner[first, numpy.arange(length)]
        else:
            first = (cube[:, :, 0] == cube[:, :, 0].min(axis=0)).argmax(axis=0)
            places = first * length + numpy.arange(length)
        made = numpy.isfinite(signed.reshape(-1)[places])
        values, places = numpy.flatnonzero(made), places[made]
        return _records(grid, places, begin) | {
            "keys": signed.reshape(-1)[places][:, None], "values": values + start,
        }  # fmt: skip


def _least_places(signed: numpy.ndarray, count: int) -> numpy.ndarray:
    """The places of the least finite values, ascending, of equal ones the first."""
    flat = signed.reshape(-1)
    whole = flat.size // ROW * ROW
    if whole > count * ROW * 2:  # the least are in the rows whose own least are least
        least = flat[:whole].reshape(-1, ROW).min(axis=1)
        rows = numpy.sort(numpy.argsort(least, kind="stable")[:count])
        places = (rows[:, None] * ROW + numpy.arange(ROW)).reshape(-1)
        places = numpy.concatenate([places, numpy.arange(whole, flat.size)])
    else:
        places = numpy.arange(flat.size)
    places = places[numpy.isfinite(flat[places])]
    least_places: numpy.ndarray = places[numpy.argsort(flat[places], kind="stable")[:count]]
    return least_places


def _counts(seen: Seen) -> numpy.ndarray:
    """At how many points each of `names`, nothing (-2) and the order (-1) bind; then: made, fits, and by the
    structure's `uncounted`."""
    grid, binds = seen.grid, seen.grid.array("binding")
    made = ~numpy.isnan(grid.array("floor"))
    binding = binds.reshape(-1) if made.all() else binds[made]
    nothing, order, *names = numpy.bincount(binding + 2, minlength=len(grid.names) + 2).tolist()
    whole = [int(numpy.count_nonzero(one)) for one in (made, seen.fits)]
    parts = [] if grid.uncounted is None else numpy.bincount(
        grid.uncounted[made] + 1, minlength=len(grid.parts) + 1)[1:].tolist()  # fmt: skip
    return numpy.array([*names, nothing, order, *whole, *parts], dtype=numpy.int64)


def _column(grid: Grid, name: str) -> numpy.ndarray:
    """A figure or an axis over the grid so that less is better; as compact as it is."""
    bare = name.removeprefix("-")
    if bare in FIGURES or bare == "tokens":
        column, more = grid.figure(bare), bare in MORE_IS_BETTER or bare == "tokens"
    else:
        number, more = grid.axis(bare), False
        numbers = grid.axes[number].numbers
        if numbers is None:
            raise OffloadError(f"{grid.axes[number].path} has no order: its values are no numbers. Name a figure or "
                               "another axis.")
        shape = [1] * len(grid.axes)
        shape[number] = -1
        column = numpy.broadcast_to(numbers.astype(float).reshape(shape), grid.shape)
    return -column if more != name.startswith("-") else column


def _front(seen: Seen, names: Sequence[str]) -> numpy.ndarray:
    """The places of the points that no other beats, of those that are equal the first."""
    columns = [_column(seen.grid, name) for name in names]
    left = seen.allowed(*names)
    for column in columns:
        left = left & ~numpy.isnan(column)
    for number in range(len(columns)):  # what the least of a figure beats is gone before anything is sorted
        pivot = numpy.unravel_index(int(numpy.where(left, columns[number], numpy.inf).argmin()), left.shape)
        beaten, same = left, left
        for column in columns:
            beaten, same = beaten & (column >= column[pivot]), same & (column == column[pivot])
        left = left & (~beaten | same)
    places = numpy.flatnonzero(left)
    if not places.size:
        return places
    at = numpy.unravel_index(places, left.shape)
    front: numpy.ndarray = places[_first_front(numpy.stack([column[at] for column in columns], axis=1), places)]
    return front


def _first_front(keys: numpy.ndarray, places: numpy.ndarray) -> numpy.ndarray:
    """Which rows of keys no other beats, of equal rows that with the first place; in order of the keys."""
    order = numpy.lexsort((places, *reversed(list(keys.T))))
    rows = keys[order]
    new = numpy.ones(order.size, dtype=bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    order = order[new]
    return order[undominated(list(keys[order].T))] if order.size else order


def _records(grid: Grid, places: numpy.ndarray, begin: int) -> State:
    """Points with their figures. places : in the chunk's order."""
    found = {"places": places.astype(numpy.int64) + begin}
    at = numpy.unravel_index(places, grid.shape)
    for name in ("floor", "serial", "overlapped", "tokens", "spare", "binding", "uncounted"):
        if (array := getattr(grid, name, None)) is not None:
            found[name] = array[at]
    return found


def read_reductions(texts: Sequence[str], axes: Sequence[Axis], *, by: str = "floor") -> tuple[Reduction, ...]:
    """Reductions from texts as "best=20", each by the figure `by`. Raises OffloadError."""
    names = Grid(tuple(axes), (), None, None, None, None, None)
    found: list[Reduction] = []
    for text in texts:
        kind, _, value = (one.strip() for one in text.partition("="))
        if kind not in KINDS:
            raise OffloadError(f'--reduce {text}: there is no "{kind}". {did_you_mean(kind, KINDS)}')
        if kind == "best":
            if value and not (value.isascii() and value.isdigit() and len(value) < 10 and 0 < int(value) <= 1_000_000):
                raise OffloadError(f'--reduce {text}: "{value}" is no number of points from 1 to 1,000,000.')
            found.append(Reduction("best", by, int(value or BEST)))
        elif kind == "binding":
            if value:
                raise OffloadError(f"--reduce {text}: binding takes no value.")
            found.append(Reduction("binding"))
        elif kind == "min":
            chosen = [_axis(names, value, text)] if value else range(len(axes))
            found += [Reduction("min", by, axis=one) for one in chosen]
        else:
            front = tuple(one.strip() for one in (value or "floor:spare").split(":"))
            for one in front:
                bare = one.removeprefix("-")
                if bare not in (*FIGURES, "tokens"):
                    if axes[_axis(names, bare, text, f" Figures: {', '.join(FIGURES)}.")].numbers is None:
                        raise OffloadError(f"--reduce {text}: {bare} has no order: its values are no numbers.")
            found.append(Reduction("pareto", by, names=front))
    if len(set(found)) < len(found):
        raise OffloadError("--reduce names one reduction twice. Keep one.")
    return tuple(found)


def _axis(grid: Grid, name: str, text: str, more: str = "") -> int:
    try:
        return grid.axis(name)
    except OffloadError as error:
        raise OffloadError(f"--reduce {text}: {error}{more}") from None


def figures_of(reductions: Sequence[Reduction]) -> tuple[str, ...]:
    """The figures that some reductions need of each point, and that they tell of those they keep."""
    needed = {"floor", "binding", "spare", "tokens"}
    asked = {one.by for one in reductions} | {name.removeprefix("-") for one in reductions for name in one.names}
    return tuple(name for name in ("floor", "serial", "overlapped", "binding", "spare", "tokens")
                 if name in needed | asked)  # fmt: skip
