"""A grid from a file that `write_npz` wrote."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy

from offload.errors import OffloadError, did_you_mean
from offload.files import named, path_of, read_bytes
from offload.sweeps.axes import _NAMED, Axis
from offload.sweeps.grid import NOTHING, ORDER_NAME, Grid
from offload.sweeps.writing import COLUMNS

NEEDED = ("axes", "binding", "binding_names", "floor_seconds")
LARGEST = 16 * 2**30  # bytes
WRITE = "Write one: offload sweep PLAN --over ... -o FILE.npz"


def read_grid(path: str | Path) -> Grid:
    """The grid in an .npz file that a sweep wrote, equal to the last bit.

    Raises OffloadError for a file that cannot be read or is no grid.
    """
    name = named(path)
    content = read_bytes(path_of(path, "a grid"), LARGEST)
    try:
        with numpy.load(BytesIO(content), allow_pickle=False) as held:
            found = {key: held[key] for key in held.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        # NumPy takes whatever it does not know for a pickle, and tells how to load that.
        why = "it is no .npz file" if isinstance(error, ValueError) and "pickle" in str(error) else error
        raise OffloadError(f"{name} is no grid ({why}). {WRITE}") from None
    if missing := [key for key in NEEDED if key not in found]:
        raise OffloadError(f"{name} is no grid of a sweep: it has no {' and no '.join(missing)}. {WRITE}")
    axes = []
    for column in found["axes"].tolist():
        if column not in found:
            raise OffloadError(f'{name}: no values of the axis "{column}". {did_you_mean(column, found, "It has")}')
        axes.append(_axis(column, found[column]))
    shape = tuple(len(axis) for axis in axes)
    arrays = {figure: found.get(key) for figure, key in COLUMNS.items() if figure != "tokens_per_s"}
    wrong = [key for key, array in (*arrays.items(), ("binding", found["binding"])) if array is not None
             and array.shape != shape]  # fmt: skip
    if wrong:
        raise OffloadError(f"{name}: {wrong[0]} is not of the axes' shape {shape}: the file is damaged. {WRITE}")
    names = found["binding_names"].tolist()
    if names[-2:] != [NOTHING, ORDER_NAME]:
        raise OffloadError(f"{name}: binding_names do not end as a sweep writes them. {WRITE}")
    causes, reasons = _coded(name, found, "wrong", shape)
    told = {text: int((causes == at).sum()) for at, text in enumerate(reasons)}
    uncounted, parts = _coded(name, found, "uncounted", shape)
    return Grid(tuple(axes), tuple(names[:-2]), arrays["floor"], arrays["serial"], found["binding"], arrays["spare"],
                arrays["tokens"], arrays["overlapped"], wrong=told, causes=causes,
                parts=parts, uncounted=uncounted)  # fmt: skip


def _coded(name: str, found: dict[str, numpy.ndarray], key: str, shape: tuple[int, ...]) -> tuple[Any, tuple[str, ...]]:
    """Places in a list of texts, and the texts; None and () where there are none. Raises OffloadError."""
    if key not in found:
        return None, ()
    array, texts = found[key], found.get(f"{key}_texts", numpy.empty(0))
    sound = array.shape == shape and array.dtype.kind == "i" and texts.dtype.kind == "U" and texts.ndim == 1
    if not sound or array.size and not -1 <= array.min() <= array.max() < len(texts):
        raise OffloadError(f"{name}: {key} are no places in {key}_texts: the file is damaged. {WRITE}")
    return array, tuple(texts.tolist())


def _axis(column: str, values: numpy.ndarray) -> Axis:
    """An axis by the name of its column, which ends in its unit, and its values."""
    if values.dtype.kind not in "if":
        return Axis(column, tuple(values.tolist()), None, "")
    for unit, word in _NAMED.items():
        if word and column.endswith(f"_{word}"):
            return Axis(column.removesuffix(f"_{word}"), None, values, unit)
    return Axis(column, None, values, "")
