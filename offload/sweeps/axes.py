"""Axes of a sweep: `workload.batch=1:256`, `pcie0.rate=16GB/s:128GB/s:200log`, `model.weights=q4_0,q8_0`.

A range is FIRST:LAST, or FIRST:LAST:COUNT with COUNT values between them, evenly spaced, or with `log` after the
count in equal ratios; without a count whole numbers step by one. A list is A,B,C.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy

from offload import units
from offload.documents.settings import LONGEST_SHOWN, Setting, read_setting
from offload.errors import OffloadError, UnitError

MOST_VALUES = 10_000_000
_COUNT = re.compile(r"(\d{1,9}) ?(log|lin)?")
_WHOLE = re.compile(r"[0-9]{1,15}")
# What a value may be in: how it is read, and what its text ends in.
_UNITS = ((units.parse_rate, "B/s"), (units.parse_flops, "FLOP/s"), (units.parse_bytes, "B"),
          (units.parse_seconds, "s"), (units.parse_flop, "FLOP"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its path as a setting has it, and its values.

    given : each value as it was written, of a list. numbers : shape (n,), ints or floats in plain units; None where the
    values are no numbers. unit : "B/s", "FLOP/s", "B", "s", "FLOP", or "" of plain numbers and of what is no number.
    """

    path: str
    given: tuple[str, ...] | None
    numbers: numpy.ndarray | None
    unit: str

    def __len__(self) -> int:
        return len(self.numbers) if self.given is None else len(self.given)

    def text(self, place: int) -> str:
        """A value as a file would say it."""
        return self.given[place] if self.given is not None else f"{self.numbers[place].item()!r} {self.unit}".strip()

    def setting(self, place: int, number: Any = None) -> Setting:
        """The setting of one value. number : as `Setting` has it."""
        text = self.text(place)
        return replace(read_setting(f"{self.path}={text}", f"--over {self.path}={text}"), number=number)


def read_axis(text: str) -> Axis:
    """An axis from PATH=VALUES. Raises OffloadError with what is wrong and how to write it."""
    origin = f"--over {text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '...'}"
    values = read_setting(text, origin).text
    path = text[: len(text) - len(text.partition("=")[2]) - 1].strip()
    if "=" in values:
        path = text[: text.index("=")].strip()
    pieces = _split(values, ":")
    if len(pieces) in (2, 3) and "," not in values:
        return _range(path, pieces, origin)
    listed = [one.strip() for one in _split(values, ",")]
    if not all(listed):
        raise OffloadError(f"{origin}: a value of the list is empty. Write {path}=A,B,C.")
    if len(set(listed)) < len(listed):
        twice = next(one for one in listed if listed.count(one) > 1)
        raise OffloadError(f'{origin}: "{twice}" is there twice. Name each value once.')
    read = [_number(one) for one in listed]
    if all(one is not None for one in read) and len({unit for _, unit in read}) == 1:
        return Axis(path, tuple(listed), _array([number for number, _ in read]), read[0][1])
    return Axis(path, tuple(listed), None, "")


def _split(text: str, mark: str) -> list[str]:
    """The pieces of a text between marks that are outside of brackets and quotes."""
    pieces, depth, quote, begin = [], 0, "", 0
    for place, one in enumerate(text):
        if quote:
            quote = "" if one == quote else quote
        elif one in "\"'":
            quote = one
        elif one in "[{(":
            depth += 1
        elif one in "]})":
            depth -= 1
        elif one == mark and depth == 0:
            pieces.append(text[begin:place])
            begin = place + 1
    return [*pieces, text[begin:]]


def _number(text: str) -> tuple[float, str] | None:
    """A value as a number in plain units, with its unit; None where it is none."""
    if _WHOLE.fullmatch(text):
        return int(text), ""
    try:
        return float(text), ""
    except ValueError:
        pass
    for parse, unit in _UNITS:
        try:
            return parse(text), unit
        except UnitError:
            continue
    return None


def _range(path: str, pieces: list[str], origin: str) -> Axis:
    first, last = (_number(one.strip()) for one in pieces[:2])
    for text, one in zip(pieces, (first, last), strict=False):
        if one is None or not numpy.isfinite(one[0]):
            raise OffloadError(f'{origin}: "{text.strip()}" is no number. A range is FIRST:LAST:COUNT, as '
                               "16GB/s:128GB/s:200log; a list has commas.")
    if first[1] != last[1]:
        raise OffloadError(f'{origin}: the ends of a range are in one unit, and "{pieces[0].strip()}" is in '
                           f'{first[1] or "none"}, "{pieces[1].strip()}" in {last[1] or "none"}.')
    (low, unit), high = first, last[0]
    whole = isinstance(low, int) and isinstance(high, int) and unit in ("", "B")
    count, spaced = None, ""
    if len(pieces) == 3:
        match = _COUNT.fullmatch(pieces[2].strip())
        if match is None or not 2 <= int(match[1]):
            raise OffloadError(f'{origin}: "{pieces[2].strip()}" is no count of at least 2. Write 200, or 200log for '
                               "equal ratios.")
        count, spaced = int(match[1]), match[2] or "lin"
    elif not whole or unit:
        raise OffloadError(f"{origin}: how many values? Write {path}={pieces[0].strip()}:{pieces[1].strip()}:100, or "
                           "100log for equal ratios.")
    if not low < high:
        raise OffloadError(f"{origin}: a range goes up, from a smaller value to a larger one.")
    count = high - low + 1 if count is None else count
    if count > MOST_VALUES:
        raise OffloadError(f"{origin}: {count:,} values are more than the {MOST_VALUES:,} that an axis may have.")
    if spaced == "log":
        if not low > 0:
            raise OffloadError(f"{origin}: equal ratios start above zero.")
        values = numpy.geomspace(low, high, count)
    else:
        values = numpy.arange(low, high + 1) if not spaced else numpy.linspace(low, high, count)
    if whole:
        values = numpy.unique(numpy.rint(values).astype(numpy.int64))
    else:
        values = values.astype(numpy.float64)
        values[0], values[-1] = low, high
    return Axis(path, None, values, unit)


def _array(numbers: list[float]) -> numpy.ndarray:
    return numpy.array(numbers, dtype=numpy.int64 if all(isinstance(one, int) for one in numbers) else numpy.float64)
