"""A meter file as meters: what else a step costs, by coefficients per second, per byte and per FLOP.

    meters:
      energy: {per_second: 350 W, per_byte: {dram0: 20 pJ/bit, pcie: 4 pJ/bit}}
      money: {per_hour: 12 USD}
      wear: {written: ssd0, endurance: 1400 TB}

Every mistake of the file is told at once, each at its line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from offload.documents.marks import Document, read_document
from offload.documents.nodes import as_written
from offload.documents.shapes import Shape, validate
from offload.errors import OffloadError, did_you_mean
from offload.meters import Meter, Term, check_name, is_power, one_unit, read_amount, read_endurance

KEYS = ("per_second", "per_hour", "per_byte", "per_flop", "written", "endurance")
EXAMPLE = "{per_second: 350 W, per_byte: {dram0: 20 pJ/bit}}, {per_hour: 12 USD} or {written: ssd0, endurance: 1400 TB}"


class MetersShape(Shape):
    """The top of a meter file."""

    model_config = ConfigDict(title="a meter file")
    title: str = ""
    meters: dict[str, Any]


def load_meters(path: str | Path) -> tuple[Meter, ...]:
    """Read a meter file. Raises DocumentError with every mistake, OffloadError where there is no such file."""
    document = read_document(path)
    shape = validate(document, MetersShape, document.value)
    found = []
    for name, value in (shape.meters if shape is not None else {}).items():
        place = ("meters", name)
        if place in document.refused:
            continue
        try:
            check_name(name)
        except OffloadError as error:
            document.mistake(place, str(error), key=True)
        if not isinstance(value, dict) or not value:
            document.mistake(place, f"a meter is a map: {EXAMPLE}.")
        elif (meter := _meter(document, name, value)) is not None:
            found.append(meter)
    if shape is not None and not shape.meters:
        document.mistake(("meters",), f"no meter is given. Write one as {EXAMPLE}.", key=True)
    document.raise_if_mistakes()
    return tuple(found)


def _meter(document: Document, name: str, value: dict[str, Any]) -> Meter | None:
    place = ("meters", name)
    before = len(document.mistakes)
    for key in value:
        if key not in KEYS:
            document.mistake((*place, key), f'unknown key "{key}". {did_you_mean(key, KEYS, "Keys")}', key=True)
    sums = [key for key in ("per_second", "per_hour", "per_byte", "per_flop") if key in value]
    worn = [key for key in ("written", "endurance") if key in value]
    if sums and worn:
        document.mistake((*place, worn[0]), f'"{worn[0]}" is of the wear of a drive, and "{sums[0]}" of another meter. '
                         "Make two meters of them.", key=True)  # fmt: skip
        return None
    if worn:
        return _wear(document, name, value)
    terms: list[Term] = []
    units: list[tuple[str, str]] = []

    def add(at: tuple[Any, ...], text: Any, per: str, of: str = "") -> None:
        if at in document.refused:
            return
        try:
            if isinstance(text, dict | list | bool) or text is None:
                raise OffloadError("must be one amount with its unit.")
            amount, unit = read_amount(as_written(text), per)
        except OffloadError as error:
            document.mistake(at, str(error))
            return
        written, over = as_written(text), {"second": "/s", "hour": "/h"}.get(per, "")
        if "/" not in written and not is_power(written):
            written += over  # the key says it
        terms.append(Term("second" if per == "hour" else per, of, amount, written))
        units.append((unit, as_written(text)))

    for key, per in (("per_second", "second"), ("per_hour", "hour")):
        if key in value:
            add((*place, key), value[key], per)
    for key, per in (("per_byte", "byte"), ("per_flop", "flop")):
        parts = value.get(key)
        if key in value and (not isinstance(parts, dict) or not parts):
            like = "{dram0: 20 pJ/bit, pcie: 4 pJ/bit}" if per == "byte" else "{gpu0: 0.6 pJ/FLOP}"
            document.mistake((*place, key), f"must be a map of parts. Write {key}: {like}.")
        elif isinstance(parts, dict):
            for part, text in parts.items():
                add((*place, key, part), text, per, part)
    if not sums and len(document.mistakes) == before:
        document.mistake(place, f"a meter needs a term: {EXAMPLE}.", key=True)
    if len(document.mistakes) > before or not terms:
        return None
    try:
        return Meter(name, one_unit(name, units), tuple(terms))
    except OffloadError as error:
        document.mistake(place, str(error), key=True)
    return None


def _wear(document: Document, name: str, value: dict[str, Any]) -> Meter | None:
    place = ("meters", name)
    drive, text = value.get("written"), value.get("endurance")
    if "written" not in value:
        document.mistake(place, 'the wear of a drive needs "written", the drive: {written: ssd0, endurance: 1400 TB}.',
                         key=True)  # fmt: skip
    elif not isinstance(drive, str) or not drive.strip():
        document.mistake((*place, "written"), "must be the name of a drive, as ssd0.")
    endurance = None
    if "endurance" in value and (*place, "endurance") not in document.refused:
        try:
            endurance = read_endurance(as_written(text) if not isinstance(text, dict | list | bool) else "")
        except OffloadError as error:
            document.mistake((*place, "endurance"), str(error))
            return None
    return Meter(name, "B", drive=drive, endurance=endurance) if isinstance(drive, str) and drive.strip() else None
