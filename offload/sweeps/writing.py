"""A grid as a file: CSV, Parquet, NPZ, NetCDF, Zarr, JSON. A file is there whole, or not at all."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy

from offload.errors import OutputError, did_you_mean
from offload.files import named, writing
from offload.units import format_bytes

if TYPE_CHECKING:
    from offload.sweeps.grid import Grid

UNCOUNTED = "place in uncounted_texts, -1: none; where some are, serial and overlapped are times that it takes at least"
ROWS = 65_536  # points written at a time
COLUMNS = {"floor": "floor_seconds", "serial": "serial_seconds", "overlapped": "overlapped_seconds",
           "tokens": "tokens_per_step", "tokens_per_s": "tokens_per_s", "spare": "spare_bytes"}  # fmt: skip
UNITS = {"floor_seconds": "s", "serial_seconds": "s", "overlapped_seconds": "s", "tokens_per_step": "tokens",
         "tokens_per_s": "tokens/s", "spare_bytes": "B"}  # fmt: skip


def needed(module: str, extra: str) -> Any:
    """A module of an extra. Raises OutputError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        raise OutputError(f"this needs {module}, which is not installed: pip install 'offload[{extra}]'") from None


def columns(grid: Grid) -> dict[str, numpy.ndarray]:
    """The figures that a grid has, by the names of their columns, each of the grid's shape."""
    found = {name: getattr(grid, figure, None) for figure, name in COLUMNS.items()}
    return {name: array for name, array in found.items() if array is not None}


def axis_values(grid: Grid) -> dict[str, numpy.ndarray]:
    """The values of each axis by the name of its column: numbers in plain units, or texts."""
    return {axis.name: axis.numbers if axis.numbers is not None else numpy.array(axis.given, dtype=object)
            for axis in grid.axes}  # fmt: skip


def rows(grid: Grid) -> Iterator[dict[str, numpy.ndarray]]:
    """The points in order, some at a time: axes, figures, `binding`, `fits` and, where there are such points, `wrong`
    and `uncounted`."""
    figures = {name: array.reshape(-1) for name, array in columns(grid).items()}
    binding, fits = (None if array is None else array.reshape(-1) for array in (grid.binding, grid.fits))
    made = grid.made.reshape(-1)
    causes = None if grid.causes is None else grid.causes.reshape(-1)
    texts = numpy.array([*grid.wrong, ""], dtype=object)
    uncounted = None if grid.uncounted is None else grid.uncounted.reshape(-1)
    parts = numpy.array([*grid.parts, ""], dtype=object)
    names = grid.binding_names.astype(object)
    for begin in range(0, grid.size, ROWS):
        part = slice(begin, min(begin + ROWS, grid.size))
        places = numpy.unravel_index(numpy.arange(part.start, part.stop), grid.shape) if grid.shape else ()
        found: dict[str, numpy.ndarray] = {}
        for (name, values), at in zip(axis_values(grid).items(), places, strict=True):
            found[name] = values[at]
        found |= {name: array[part] for name, array in figures.items()}
        if binding is not None:
            found["binding"] = numpy.where(made[part], names[binding[part]], "")
        if fits is not None:
            found["fits"] = fits[part]
        if causes is not None:
            found["wrong"] = texts[causes[part]]
        if uncounted is not None:
            found["uncounted"] = parts[uncounted[part]]
        yield found


def write_csv(grid: Grid, path: str | Path) -> None:
    """A line for each point; floats with all their digits, what is not known left empty."""
    with writing(path) as beside, open(beside, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, part in enumerate(rows(grid)):
            if number == 0:
                writer.writerow(part)
            writer.writerows(zip(*(_cells(column) for column in part.values()), strict=True))


def _cells(column: numpy.ndarray) -> list[Any]:
    found: list[Any] = column.tolist()
    if column.dtype.kind == "b":
        return ["true" if one else "false" for one in found]
    if column.dtype.kind == "f" and numpy.isnan(column).any():
        return ["" if one != one else one for one in found]
    return found


def write_parquet(grid: Grid, path: str | Path) -> None:
    """A row for each point; units in the columns' metadata. NaN becomes null."""
    arrow, parquet = needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")
    units = {axis.name: axis.unit for axis in grid.axes} | UNITS

    def table(part: dict[str, numpy.ndarray]) -> Any:
        arrays = [arrow.array(column.tolist() if column.dtype.kind in "OU" else column, from_pandas=True)
                  for column in part.values()]  # fmt: skip
        fields = [arrow.field(name, array.type, metadata={"unit": units[name]} if units.get(name) else None)
                  for name, array in zip(part, arrays, strict=True)]  # fmt: skip
        return arrow.Table.from_arrays(arrays, schema=arrow.schema(fields))

    with writing(path) as beside:
        writer = None
        try:
            for part in rows(grid):
                one = table(part)
                writer = parquet.ParquetWriter(beside, one.schema) if writer is None else writer
                writer.write_table(one)
        finally:
            if writer is not None:
                writer.close()


def write_npz(grid: Grid, path: str | Path) -> None:
    """Arrays of the grid's shape by the names of columns, `binding` with `binding_names`, and each axis' values.

    `axes` are the names of the axes' columns in their order; `binding` -1 and -2 count from the end of the names.
    """
    texts = {name: values.astype(str) if values.dtype.kind == "O" else values
             for name, values in axis_values(grid).items()}  # fmt: skip
    arrays = {**texts, **columns(grid), "axes": numpy.array([axis.name for axis in grid.axes], dtype=str)}
    if grid.binding is not None:
        arrays |= {"binding": grid.binding, "binding_names": grid.binding_names}
    if grid.fits is not None:
        arrays["fits"] = grid.fits
    if grid.causes is not None:
        arrays |= {"wrong": grid.causes, "wrong_texts": numpy.array(list(grid.wrong), dtype=str)}
    if grid.uncounted is not None:
        arrays |= {"uncounted": grid.uncounted, "uncounted_texts": numpy.array(grid.parts, dtype=str)}
    with writing(path) as beside, open(beside, "wb") as file:
        numpy.savez(file, **cast("dict[str, Any]", arrays))


def dataset(grid: Grid) -> Any:
    """The grid as an xarray.Dataset; dimensions and coordinates are the axes' columns, units their attributes."""
    xarray = needed("xarray", "xarray")
    names = [axis.name for axis in grid.axes]
    attributes = {axis.name: {"units": axis.unit} if axis.unit else {} for axis in grid.axes}
    coordinates = {name: (name, values, attributes[name]) for name, values in axis_values(grid).items()}
    data: dict[str, Any] = {name: (names, array, {"units": UNITS[name]}) for name, array in columns(grid).items()}
    if grid.binding is not None:
        told = " ".join(f"{place}={text}" for place, text in _codes(grid).items())
        data["binding"] = (names, grid.binding, {"meaning": told})
    if grid.fits is not None:
        data["fits"] = (names, grid.fits, {})
    attributes_of_all = {f"fixed {path}": text for path, text in grid.fixed.items()}
    if grid.causes is not None:
        data["wrong"] = (names, grid.causes, {"meaning": "place in wrong_texts, -1: none"})
        data["wrong_texts"] = ("wrong_text", numpy.array(list(grid.wrong), dtype=object), {})
    if grid.uncounted is not None:
        data["uncounted"] = (names, grid.uncounted, {"meaning": UNCOUNTED})
        data["uncounted_texts"] = ("uncounted_text", numpy.array(grid.parts, dtype=object), {})
    return xarray.Dataset(data, coordinates, attributes_of_all)


def _codes(grid: Grid) -> dict[int, str]:
    names = [str(one) for one in grid.binding_names]
    return {place if place < len(grid.names) else place - len(names): name for place, name in enumerate(names)}


def write_netcdf(grid: Grid, path: str | Path) -> None:
    """The dataset as a NetCDF file; truths become whole numbers."""
    needed("netCDF4", "xarray")
    found = dataset(grid)
    with writing(path) as beside:
        if "fits" in found:
            found["fits"] = found["fits"].astype("i1")
        try:
            found.to_netcdf(beside, engine="netcdf4")
        except RuntimeError as error:  # of HDF5, which does not say why: a full drive among others
            free = shutil.disk_usage(os.path.dirname(beside)).free
            raise OutputError(f"{named(path)} cannot be written: {error}. {format_bytes(free, 4)} are free on that "
                              "drive; make room, or name a file on another one.") from None


def write_zarr(grid: Grid, path: str | Path) -> None:
    """The dataset as a Zarr store."""
    needed("zarr", "zarr")
    found = dataset(grid)
    with writing(path) as beside:
        found.to_zarr(beside, mode="w", consolidated=False)


def grid_to_json(grid: Grid) -> dict[str, Any]:
    """The grid as plain data: arrays flat, the first axis slowest; null for what is not known."""
    return {
        "axes": [{"path": axis.path, "unit": axis.unit, "values": values.tolist()}
                 for axis, values in zip(grid.axes, axis_values(grid).values(), strict=True)],
        "shape": list(grid.shape),
        **{name: _nulls(array) for name, array in columns(grid).items()},
        **{name: array.ravel().tolist() for name, array in (("binding", grid.binding_name), ("fits", grid.fits))
           if array is not None},
        "wrong": dict(grid.wrong),
        **({} if grid.uncounted is None else {
            "uncounted": numpy.array([*grid.parts, ""], dtype=object)[grid.uncounted.ravel()].tolist()}),
    }  # fmt: skip


def _nulls(array: numpy.ndarray) -> list[float | None]:
    return [None if one != one else one for one in array.ravel().tolist()]


def write_json(grid: Grid, path: str | Path) -> None:
    """The grid as `grid_to_json` has it."""
    with writing(path) as beside, open(beside, "w", encoding="utf-8") as file:
        json.dump(grid_to_json(grid), file, allow_nan=False)
        file.write("\n")


WRITERS: dict[str, Callable[[Any, str | Path], None]] = {
    ".csv": write_csv, ".parquet": write_parquet, ".npz": write_npz, ".nc": write_netcdf, ".zarr": write_zarr,
    ".json": write_json,
}  # fmt: skip
NEEDS = {".parquet": (("pyarrow", "parquet"),), ".nc": (("xarray", "xarray"), ("netCDF4", "xarray")),
         ".zarr": (("xarray", "zarr"), ("zarr", "zarr"))}  # fmt: skip


def writer_of(path: str | Path) -> Callable[[Any], None]:
    """What writes a grid to a path, by its suffix; asked before any work.

    Raises OutputError for another suffix, a missing extra, and a path that cannot be written.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in WRITERS:
        hint = did_you_mean(suffix or "a file without a suffix", WRITERS, "Suffixes")
        raise OutputError(f"{named(path)}: the suffix says what is written. {hint}")
    for module, extra in NEEDS.get(suffix, ()):
        needed(module, extra)
    _try(path)
    return lambda grid: WRITERS[suffix](grid, path)


def _try(path: str | Path) -> None:
    """Raises OutputError where nothing can be written to a path."""
    class Tried(Exception):
        pass

    try:
        with writing(path):
            raise Tried
    except Tried:
        pass
