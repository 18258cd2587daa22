"""What a sweep found: figures over axes, and the points, fronts and crossovers in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from offload.displayed import Displayed, Pictured
from offload.errors import OffloadError, did_you_mean, shown
from offload.given import mapping, whole
from offload.sweeps.axes import Axis
from offload.sweeps.overlapping import Told
from offload.sweeps.points import Crossover, Point, Summary, least, undominated
from offload.units import format_seconds

if TYPE_CHECKING:
    import xarray

ORDER_NAME, NOTHING = "order of the tasks", "nothing"
FIGURES = {"floor": "s", "serial": "s", "overlapped": "s", "tokens_per_s": "tokens/s", "spare": "B"}
ARRAYS = ("floor", "serial", "overlapped", "binding", "spare", "tokens", "causes", "uncounted")
AT_ONCE = 4_000_000  # points compared at a time
MORE_IS_BETTER = ("tokens_per_s", "spare")
TIMES = ("floor", "serial", "overlapped", "tokens_per_s", "tokens")
MADE_OF = {"fits": ("spare",), "binding_name": ("binding",), "tokens_per_s": ("floor", "tokens")}


@dataclass(frozen=True)
class Grid(Displayed, Pictured):
    """Figures at every point, each of the shape of the axes (the first axis slowest); None where not asked for.

    floor, serial : seconds of steps back to back; NaN where no step can be made. binding : int16, the place in `names`
    of the first resource that binds the floor, -1 where the order of the step does, -2 where nothing is counted.
    spare : bytes left in the fullest memory, below zero what it lacks (NaN where no size is known); tokens : of a step
    at most.
    overlapped : seconds of steps back to back where transfers and computes overlap, as `schedule` has them; told : how
    many of its points were found how.
    wrong : why steps cannot be made, by how many points say so; causes : int32, by point the place in `wrong`, -1 where
    there is a step, None where there is one everywhere. fixed : values of axes that are gone, as texts by path.
    uncounted : int32, by point the place in `parts` of the parts without a rate on which its time depends
    (`offload.uncounted`), -1 where there are none; None where there are none anywhere. There `serial` and `overlapped`
    are times that it takes at least, and no point is best; the floor is one all the same.
    """

    axes: tuple[Axis, ...]
    names: tuple[str, ...]
    floor: numpy.ndarray | None
    serial: numpy.ndarray | None
    binding: numpy.ndarray | None
    spare: numpy.ndarray | None
    tokens: numpy.ndarray | None
    overlapped: numpy.ndarray | None = None
    wrong: Mapping[str, int] = field(default_factory=dict)
    causes: numpy.ndarray | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    uncounted: numpy.ndarray | None = None
    told: Told = field(default_factory=Told)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @property
    def size(self) -> int:
        """How many points."""
        return prod(self.shape)

    @property
    def made(self) -> numpy.ndarray:
        """Where a step can be made."""
        if self.causes is not None:
            return self.causes < 0
        return numpy.ones(self.shape, dtype=bool) if self.floor is None else ~numpy.isnan(self.floor)

    @property
    def fits(self) -> numpy.ndarray | None:
        """Where everything fits into its memory, as far as sizes are known. None without `spare`."""
        return None if self.spare is None else ~(self.spare < 0) & self.made

    @property
    def known(self) -> numpy.ndarray:
        """Where a step can be made and all that matters of it has a rate, so that its times are known."""
        return self.made if self.uncounted is None else self.made & (self.uncounted < 0)

    def told_times(self, name: str) -> numpy.ndarray | None:
        """Serial or overlapped seconds where they are known, NaN elsewhere; None where they are known nowhere, or were
        not asked for."""
        found: numpy.ndarray | None = getattr(self, name)
        if found is None or self.uncounted is None:
            return found
        known = self.known
        return numpy.where(known, found, numpy.nan) if known.any() else None

    @property
    def tokens_per_s(self) -> numpy.ndarray | None:
        """Tokens a second at the floor: at most so many. NaN where no step can be made, and where the floor is 0, so
        that nothing is said of them. None without `tokens` or `floor`."""
        if self.tokens is None or self.floor is None:
            return None
        with numpy.errstate(divide="ignore", invalid="ignore"):
            found = self.tokens / self.floor
        return numpy.where(numpy.isinf(found), numpy.nan, found) if numpy.isinf(found).any() else found

    @property
    def binding_name(self) -> numpy.ndarray | None:
        """What binds the floor, as a text at each point; "" where no step can be made. None without `binding`."""
        return None if self.binding is None else numpy.where(self.made, self.binding_names[self.binding], "")

    @cached_property
    def binding_names(self) -> numpy.ndarray:
        """The texts that `binding` picks from, also by -1 and -2."""
        return numpy.array([*self.names, NOTHING, ORDER_NAME])

    def figure(self, name: str) -> numpy.ndarray:
        """A figure by its name: floor, serial, overlapped [s], tokens_per_s, spare [B]. Raises OffloadError."""
        name = "tokens_per_s" if name == "tokens" else name
        found = getattr(self, name, None) if isinstance(name, str) and name in FIGURES else None
        if found is None:
            has = [one for one in FIGURES if getattr(self, one, None) is not None]
            raise OffloadError(f'a grid has no figure "{name}". {did_you_mean(name, has, "Figures")}')
        figure: numpy.ndarray = found
        return figure

    def array(self, name: str) -> numpy.ndarray:
        """An array by its name, as `floor`, `fits`, `binding_name`. Raises OffloadError where it was not asked for."""
        if getattr(self, name) is None:
            self._has(*MADE_OF.get(name, (name,)))
        found: numpy.ndarray = getattr(self, name)
        return found

    def axis(self, name: str) -> int:
        """The place of an axis by its path, or by the end of it where no other ends so. Raises OffloadError."""
        paths = [axis.path for axis in self.axes]
        if not isinstance(name, str):
            raise OffloadError(f"{shown(name)} is no path of an axis. {did_you_mean('', paths, 'Axes')}")
        if name in paths:
            return paths.index(name)
        asked = name.replace("_", "-")
        ends = [place for place, path in enumerate(paths) if f".{path}".replace("_", "-").endswith(f".{asked}")]
        if len(ends) > 1:
            raise OffloadError(f'"{name}" may be {" or ".join(paths[one] for one in ends)}: write the whole path.')
        if not ends:
            raise OffloadError(f'no axis is called "{name}". {did_you_mean(name, paths, "Axes")}')
        return ends[0]

    def at(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Any:
        """The grid at some values of its axes: a smaller Grid, or where all axes have one value a Point.

        values : by an axis' path (or its end): a number in plain units or a text with its unit, which must be a value
        of the axis; several in a list; or a slice from one to another, both included. more : the same as arguments.
        Raises OffloadError for what is no axis or no value of it, with the nearest.
        """
        chosen: dict[int, Any] = {}
        values = mapping("values", {} if values is None else values, "values by the path of an axis")
        for name, value in [*values.items(), *more.items()]:
            place = self.axis(name)
            if place in chosen:
                raise OffloadError(f"{self.axes[place].path} is given twice. Keep one.")
            chosen[place] = _places(self.axes[place], value)
        if len(chosen) == len(self.axes) and all(isinstance(one, int) for one in chosen.values()):
            return self.point(tuple(chosen[place] for place in range(len(self.axes))))
        return self._part(chosen)

    def _part(self, chosen: Mapping[int, Any]) -> Grid:
        """The grid at places of some axes: an int takes the axis away, an array leaves those."""
        def part(array: numpy.ndarray) -> numpy.ndarray:
            for number in reversed(range(len(self.axes))):
                if number in chosen:
                    array = numpy.take(array, chosen[number], axis=number)
            return array

        arrays: dict[str, Any] = {name: part(value) for name in ARRAYS
                                  if isinstance(value := getattr(self, name, None), numpy.ndarray)}  # fmt: skip
        axes = tuple(axis if number not in chosen else axis.chosen(chosen[number]) for number, axis in
                     enumerate(self.axes) if not isinstance(chosen.get(number), int))  # fmt: skip
        fixed = {self.axes[number].path: self.axes[number].text(one) for number, one in chosen.items()
                 if isinstance(one, int)}  # fmt: skip
        wrong = self.wrong
        if "causes" in arrays:
            texts = list(self.wrong)
            counts = numpy.bincount(arrays["causes"].ravel() + 1, minlength=len(texts) + 1)[1:]
            left = [place for place, count in enumerate(counts) if count]
            renamed = numpy.full(len(texts) + 1, -1, dtype=numpy.int32)  # its last is that of -1
            renamed[left] = numpy.arange(len(left))
            arrays["causes"] = renamed[arrays["causes"]]
            wrong = {texts[place]: int(counts[place]) for place in left}
        elif "floor" not in arrays or not numpy.isnan(arrays["floor"]).any():
            wrong = {}
        return replace(self, axes=axes, wrong=wrong, fixed={**self.fixed, **fixed}, **arrays)

    def point(self, place: tuple[int, ...]) -> Point:
        """The point at a place along each axis. Raises OffloadError where there is none."""
        if not isinstance(place, tuple) or len(place) != len(self.axes) or not all(
                isinstance(at, int) and 0 <= at < length for at, length in zip(place, self.shape, strict=True)):
            raise OffloadError(f"{shown(place)} is no place in a grid of {self.shape}: one is due along each axis, "
                               "from 0.")

        def number(name: str) -> float | None:
            array = getattr(self, name, None)
            return None if array is None or numpy.isnan(array[place]) else array[place].item()

        texts = {axis.path: axis.text(at) for axis, at in zip(self.axes, place, strict=True)}
        values = {axis.path: axis.numbers[at].item() if axis.numbers is not None else axis.text(at)
                  for axis, at in zip(self.axes, place, strict=True)}  # fmt: skip
        floor, tokens, spare = number("floor"), number("tokens"), number("spare")
        uncounted = -1 if self.uncounted is None else int(self.uncounted[place])
        wrong, made = "", bool(self.made[place])
        if not made:
            cause = -1 if self.causes is None else int(self.causes[place])
            wrong = list(self.wrong)[cause] if cause >= 0 else "; ".join(self.wrong)
        return Point(
            place, values, {**self.fixed, **texts}, floor, number("serial"), number("overlapped"), tokens,
            tokens / floor if floor and tokens is not None else None, spare,
            None if self.spare is None else made and not (spare is not None and spare < 0),
            str(self.binding_names[self.binding[place]]) if made and self.binding is not None else "", wrong,
            self.parts[uncounted] if uncounted >= 0 else "",
        )  # fmt: skip

    def _points(self, places: numpy.ndarray) -> list[Point]:
        return [self.point(tuple(int(at) for at in numpy.unravel_index(int(one), self.shape))) for one in places]

    def _has(self, *names: str) -> None:
        """Raises OffloadError for a figure that was not asked for."""
        if missing := [name for name in names if getattr(self, name) is None]:
            raise OffloadError(f"this takes {' and '.join(missing)}, which the sweep was not asked for: add it to "
                               "figures.")

    def allowed(self, fitting: bool, *names: str) -> numpy.ndarray:
        """The points that are chosen from. names : what they are chosen by; where times are not known by these none
        is."""
        from_all = self.known if any(is_time(name) for name in names) else self.made
        if not fitting:
            return from_all
        self._has("spare")
        found: numpy.ndarray = from_all & self.array("fits")
        return found

    def best(self, n: int = 10, *, by: str = "floor", fitting: bool = True) -> list[Point]:
        """The n best points, of equal ones the first.

        by : a figure: floor, serial, overlapped (least first), tokens_per_s or spare (most first). fitting : only
        points that fit; else all with a step. Where much has no rate (`uncounted`) none is best but by spare.
        """
        n = whole("n", n, 1)
        figure = self.figure(by).astype(float)
        signed = -figure if by in MORE_IS_BETTER or by == "tokens" else figure
        allowed = self.allowed(fitting, by)
        return self._points(least(numpy.where(allowed, signed, numpy.nan).ravel(), n))

    def pareto(self, *names: str, fitting: bool = True) -> list[Point]:
        """The points that no other beats in all of some figures or axes: as good in each, and better in one.

        names : figures (floor, serial, overlapped: less is better; tokens_per_s, spare: more) or axes of numbers (less
        is better); with a - before a name the other way. fitting : as in `best`. In order of the first name.
        """
        if not names:
            raise OffloadError('pareto of what? Name figures or axes, as pareto("floor", "spare").')
        allowed = self.allowed(fitting, *names).ravel()
        columns = [self._column(name) for name in names]
        for column in columns:
            allowed = allowed & ~numpy.isnan(column)
        places = numpy.flatnonzero(allowed)
        front = places[undominated([column[places] for column in columns])]
        return self._points(front[numpy.lexsort((front, columns[0][front]))])

    def _column(self, name: str) -> numpy.ndarray:
        """A figure or an axis at each point, so that less is better. Shape (points,)."""
        if not isinstance(name, str):
            raise OffloadError(f"{shown(name)} is no name of a figure or an axis.")
        bare = name.removeprefix("-")
        if bare in FIGURES or bare == "tokens":
            column, more = self.figure(bare), bare in MORE_IS_BETTER or bare == "tokens"
        else:
            number, more = self.axis(bare), False
            axis = self.axes[number]
            if axis.numbers is None:
                raise OffloadError(f"{axis.path} has no order: its values are no numbers. Name a figure or another "
                                   "axis.")
            shape = [1] * len(self.axes)
            shape[number] = len(axis)
            column = numpy.broadcast_to(axis.numbers.reshape(shape), self.shape)
        column = column.astype(float).ravel()
        return -column if more != name.startswith("-") else column

    def depends_on(self, name: str) -> bool:
        """Whether any figure that the grid has is another at another value of an axis."""
        number = self.axis(name)
        for array in (one for one in (getattr(self, name) for name in ARRAYS) if one is not None):
            first = numpy.take(array, [0], axis=number)
            if not ((array == first) | (array != array) & (first != first)).all():
                return True
        return False

    def crossovers(self, name: str | None = None) -> list[Crossover]:
        """Where what binds the floor changes along an axis, or along each: between which values, from what to what."""
        self._has("binding")
        found: list[Crossover] = []
        for number in range(len(self.axes)) if name is None else [self.axis(name)]:
            axis, lines = self.axes[number], prod(self.shape) // max(1, len(self.axes[number]))
            binding = numpy.moveaxis(self.array("binding"), number, 0).reshape(len(axis), -1)
            made = numpy.moveaxis(self.made, number, 0).reshape(len(axis), -1)
            count = len(self.names) + 2
            changed: list[numpy.ndarray] = []
            step = max(1, AT_ONCE // max(1, lines))
            for begin in range(0, len(axis) - 1, step):
                here = slice(begin, min(begin + step, len(axis) - 1))
                after_here = slice(here.start + 1, here.stop + 1)
                one, other = binding[here], binding[after_here]
                moved = (one != other) & made[here] & made[after_here]
                where = numpy.nonzero(moved)[0].astype(numpy.int64) + begin
                one, other = (array[moved].astype(numpy.int64) % count for array in (one, other))
                changed.append((where * count + one) * count + other)
            if not changed:
                continue
            for code, times in zip(*numpy.unique(numpy.concatenate(changed), return_counts=True), strict=True):
                rest, after = divmod(int(code), count)
                place, before = divmod(rest, count)
                found.append(Crossover(axis.path, place, axis.text(place), axis.text(place + 1),
                                       str(self.binding_names[before]), str(self.binding_names[after]), int(times),
                                       lines))
        return found

    def summary(self) -> Summary:
        """The grid in a few figures. Raises OffloadError without floor, spare and binding."""
        self._has("floor", "spare", "binding")
        made = self.made
        fits = self.array("fits")
        flat = self.array("floor").ravel()
        lacking = numpy.where(made & ~fits, -self.array("spare"), numpy.nan).ravel()
        bound = self.array("binding")[made].ravel() % (len(self.names) + 2)
        counts = numpy.bincount(bound, minlength=len(self.names) + 2)
        binds = {str(self.binding_names[one]): int(counts[one]) for one in numpy.argsort(-counts, kind="stable")
                 if counts[one]}  # fmt: skip
        first = [self._points(least(array, 1)) for array in (flat, -flat, lacking)]
        smallest, largest, nearest = (one[0] if one else None for one in first)
        parts: dict[str, int] = {}
        if self.uncounted is not None:
            times = numpy.bincount(self.uncounted[made].ravel() + 1, minlength=len(self.parts) + 1)[1:]
            parts = {text: int(count) for text, count in zip(self.parts, times, strict=True) if count}
        return Summary(self.size, int(made.sum()), int(fits.sum()), smallest, largest, nearest, binds, parts)

    def __repr__(self) -> str:
        axes = " x ".join(f"{axis.path} ({len(axis)})" for axis in self.axes) or "one point"
        if any(getattr(self, name) is None for name in ("floor", "spare", "binding")):
            has = [name for name in ARRAYS[:-2] if getattr(self, name) is not None]
            return f"<Grid {axes}: {self.size:,} points, {', '.join(has)}>"
        told = self.summary()
        low, high = (None if one is None else one.floor for one in (told.smallest, told.largest))
        if low is None or high is None:
            return f"<Grid {axes}: no step at any of {told.points:,} points>"
        binds = ", ".join(f"{name} {100 * count / told.made:.3g} %" for name, count in list(told.binds.items())[:4])
        return (f"<Grid {axes}: {told.points:,} points, {told.fit:,} fit, floor {format_seconds(low)} to "
                f"{format_seconds(high)}, binds: {binds}>")

    def to_csv(self, path: str | Path) -> None:
        """Write a line for each point, columns named with their units. Raises OutputError where that cannot be."""
        from offload.sweeps.writing import write_csv

        write_csv(self, path)

    def to_parquet(self, path: str | Path) -> None:
        """The same as Parquet; needs pyarrow (`pip install 'offload[parquet]'`). Raises as `to_csv`."""
        from offload.sweeps.writing import write_parquet

        write_parquet(self, path)

    def to_npz(self, path: str | Path) -> None:
        """Write the arrays as they are, for `numpy.load`. Raises as `to_csv`."""
        from offload.sweeps.writing import write_npz

        write_npz(self, path)

    def to_xarray(self) -> xarray.Dataset:
        """An xarray.Dataset with axes as coordinates and units as attributes; needs `pip install 'offload[xarray]'`."""
        from offload.sweeps.writing import dataset

        found: xarray.Dataset = dataset(self)
        return found

    def to_netcdf(self, path: str | Path) -> None:
        """The same as a NetCDF file; needs `pip install 'offload[xarray]'`. Raises as `to_csv`."""
        from offload.sweeps.writing import write_netcdf

        write_netcdf(self, path)

    def to_zarr(self, path: str | Path) -> None:
        """The same as a Zarr store (a folder); needs `pip install 'offload[zarr]'`. Raises as `to_csv`."""
        from offload.sweeps.writing import write_zarr

        write_zarr(self, path)


def is_time(name: str) -> bool:
    """Whether a figure, with or without a - before it, is a time of a step or made of one."""
    return isinstance(name, str) and name.removeprefix("-") in TIMES


def _places(axis: Axis, value: Any) -> int | numpy.ndarray:
    """The place of a value of an axis; of a list or a slice, their places."""
    value = value.item() if isinstance(value, numpy.generic) or getattr(value, "shape", None) == () else value
    if isinstance(value, slice):
        if value.step is not None:
            raise OffloadError(f"{axis.path}: a slice of values goes from one to another, without a step.")
        first, last = (None if one is None else axis.bound(one) for one in (value.start, value.stop))
        if axis.numbers is None:
            begin = 0 if first is None else int(first)
            found = numpy.arange(begin, len(axis) if last is None else int(last) + 1)
        else:
            inside = numpy.ones(len(axis), dtype=bool)
            inside &= True if first is None else axis.numbers >= first
            inside &= True if last is None else axis.numbers <= last
            found = numpy.flatnonzero(inside)
        if not found.size:
            raise OffloadError(f"{axis.path} has no value from {value.start} to {value.stop}. It goes from "
                               f"{axis.text(0)} to {axis.text(len(axis) - 1)}.")
        return found
    if isinstance(value, list | tuple | numpy.ndarray | range):
        places = [axis.place(one.item() if isinstance(one, numpy.generic) else one) for one in value]
        found = numpy.array(places, dtype=int)
        if not found.size or len(set(found.tolist())) < found.size:
            raise OffloadError(f"{axis.path}: give at least one value, and each once.")
        return found
    return axis.place(value)
