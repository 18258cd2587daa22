"""Axes of a sweep: `workload.batch=1:256`, `pcie0.rate=16GB/s:128GB/s:200log`, `model.weights=q4_0,q8_0`.

A range is FIRST:LAST, or FIRST:LAST:COUNT with COUNT values between them, evenly spaced, or with `log` after the count
in equal ratios; without a count whole numbers step by one. A list is A,B,C. Values without a number (formats, servers,
maps) are listed; `10 %:90 %:9` and `0 layers:80 layers` are ranges too.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, cast

import numpy

from offload import units
from offload.documents.settings import LONGEST_SHOWN, Setting, read_setting
from offload.errors import OffloadError, UnitError, did_you_mean, shown
from offload.given import is_number

MOST_VALUES = 10_000_000
MOST_LISTED = 100_000
LARGEST = 2**62  # of a number, in plain units
_COUNT = re.compile(r"([0-9]{1,30}) ?(log|lin)?")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_POWER = re.compile(r"[0-9]{1,15}[eE]\+?[0-9]{1,2}")  # 1:1e6 is a range of whole numbers
_PORTION = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?) *(%|layers?)")
_RUNGS = {"B": units.SIZE.rungs, "B/s": units.RATE.rungs, "s": units.TIME.rungs, "FLOP": units.WORK.rungs,
          "FLOP/s": units.SPEED.rungs}  # fmt: skip
_SHOWN = {"B": units.format_bytes, "B/s": units.format_rate, "s": units.format_seconds, "FLOP": units.format_flop,
          "FLOP/s": units.format_flops}  # fmt: skip
_NAMED = {"B": "bytes", "B/s": "bytes_per_s", "s": "seconds", "FLOP": "flop", "FLOP/s": "flop_per_s", "%": "percent",
          "layers": "layers", "": ""}  # fmt: skip
# What a value may be in: how it is read, and what its text ends in.
_UNITS = ((units.parse_rate, "B/s"), (units.parse_flops, "FLOP/s"), (units.parse_bytes, "B"),
          (units.parse_seconds, "s"), (units.parse_flop, "FLOP"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its path as a setting has it, and its values.

    given : each value as it was written, of a list. numbers : shape (n,), ints or floats in plain units; None where the
    values are no numbers. unit : "B/s", "FLOP/s", "B", "s", "FLOP", "%", "layers", or "" of plain numbers and of what
    is no number. ends : the first and the last value of a range as they were written.
    """

    path: str
    given: tuple[str, ...] | None
    numbers: numpy.ndarray | None
    unit: str
    ends: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        """Raises OffloadError for what is no axis."""
        read_setting(f"{self.path}=1", f"axis {shown(self.path)}")
        if self.unit not in _NAMED:
            raise OffloadError(f"{self.path}: {shown(self.unit)} is no unit of an axis. "
                               f"{did_you_mean(str(self.unit), [one for one in _NAMED if one], 'Units')}")
        if self.numbers is not None:
            array = self.numbers
            if not isinstance(array, numpy.ndarray) or array.ndim != 1 or array.dtype.kind not in "if":
                raise OffloadError(f"{self.path}: numbers are a NumPy array of one dimension, of whole numbers or "
                                   "floats.")
            if not numpy.isfinite(array).all() or array.size and numpy.abs(array).max() >= LARGEST:
                raise OffloadError(f"{self.path}: numbers are finite and below 2**62.")
        if self.numbers is None and self.given is None or not len(self):
            raise OffloadError(f"{self.path}: an axis has at least one value.")
        if self.given is not None and self.numbers is not None and len(self.given) != len(self.numbers):
            raise OffloadError(f"{self.path}: {len(self.given)} texts and {len(self.numbers)} numbers are not the same "
                               "values.")

    @property
    def array(self) -> numpy.ndarray:
        """`numbers` of an axis that has some."""
        return cast("numpy.ndarray", self.numbers)

    def __len__(self) -> int:
        return len(self.array) if self.given is None else len(self.given)

    def text(self, place: int) -> str:
        """A value as a file would say it."""
        if self.given is not None:
            return self.given[place]
        if self.ends is not None and place in (0, len(self) - 1):
            return self.ends[0 if place == 0 else 1]
        return number_text(self.array[place].item(), self.unit)

    def shown(self, place: int) -> str:
        """A value for a person, with four digits; in full where its neighbours would read the same."""
        if self.given is not None or self.numbers is None:
            return self.text(place)
        near = range(max(0, place - 1), min(len(self), place + 2))
        short = {one: _short(self.numbers[one].item(), self.unit) for one in near}
        return short[place] if len(set(short.values())) == len(short) else self.text(place)

    @property
    def name(self) -> str:
        """The path with its unit, as columns are called: `pcie0.rate_bytes_per_s`; without one the path."""
        unit = _NAMED[self.unit]
        return f"{self.path}_{unit}" if unit and self.path.rpartition(".")[2] != unit else self.path

    @property
    def digest(self) -> str:
        """A few letters that are others where a value is."""
        held = "\0".join(self.given or ()).encode() if self.numbers is None else self.numbers.tobytes()
        return hashlib.sha256(held).hexdigest()[:8]

    def place(self, value: Any) -> int:
        """The place of a value: a number in plain units or a text. Raises OffloadError with the near ones."""
        text = str(value).strip()
        if self.given is not None and text in self.given:
            return self.given.index(text)
        if self.numbers is None:
            raise OffloadError(f'{self.path} has no value "{text}". {did_you_mean(text, self.given or (), "Values")}')
        number = self.bound(value)
        found = numpy.flatnonzero(self.numbers == number)
        if found.size:
            return int(found[0])
        inside = float(min(max(number, -LARGEST), LARGEST))
        order = numpy.argsort(numpy.abs(self.numbers - inside), kind="stable")[:2]
        near = " and ".join(f'"{self.text(int(one))}"' for one in sorted(order))
        raise OffloadError(f'{self.path} has no value "{text}". {"Nearest are" if order.size > 1 else "It has only"} '
                           f"{near}.")

    def bound(self, value: Any) -> float:
        """A value as a number in plain units, whether the axis has it or not; of an axis without numbers its place."""
        if self.numbers is None:
            return self.place(value)
        if not isinstance(value, str):
            if isinstance(value, bool) or not is_number(value):
                raise OffloadError(f"{self.path}: {shown(value)} is no finite number, and no text.")
            number: float = value
            return number
        read = _portion(value.strip()) or _number(value.strip())
        if read is None or read[1] not in (self.unit, "") or not isfinite(read[0]):
            due = f"in {self.unit}" if self.unit else "plain numbers"
            raise OffloadError(f"{self.path} has values {due}, and {shown(value)} is none.")
        return read[0]

    def chosen(self, places: Any) -> Axis:
        """The axis of some of its values. places : int, shape (m,)."""
        given = None if self.given is None else tuple(self.given[int(one)] for one in places)
        numbers = None if self.numbers is None else self.numbers[places]
        ends = None if self.ends is None or not len(places) else (self.text(int(places[0])), self.text(int(places[-1])))
        return replace(self, given=given, numbers=numbers, ends=ends)

    def setting(self, place: int, number: Any = None) -> Setting:
        """The setting of one value. number : as `Setting` has it."""
        text = self.text(place)
        return replace(read_setting(f"{self.path}={text}", f"--over {self.path}={text}"), number=number)


def read_axis(text: str) -> Axis:
    """An axis from PATH=VALUES. Raises OffloadError with what is wrong and how to write it."""
    if not isinstance(text, str):
        raise OffloadError(f"{shown(text)} is no axis. Write PATH=VALUES, as workload.batch=1:64.")
    origin = f"--over {text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '...'}"
    values = read_setting(text, origin).text
    whole = text.rstrip()
    path = whole[: len(whole) - len(values)].rstrip().removesuffix("=").strip()
    pieces = _split(values, ":")
    if len(pieces) in (2, 3) and "," not in values:
        return _range(path, pieces, origin)
    ends = [one.strip() for one in pieces[:2]]
    if len(pieces) > 3 and "," not in values and all(_portion(one) or _number(one) for one in ends):
        raise OffloadError(f"{origin}: a range is FIRST:LAST or FIRST:LAST:COUNT, as 1:64 or 16GB/s:128GB/s:200log, "
                           f"and this has {len(pieces)} parts.")
    return _list(path, [one.strip() for one in _split(values, ",")], origin)


def _list(path: str, listed: list[str], origin: str) -> Axis:
    if not any(listed):
        raise OffloadError(f"{origin}: there is no value. Write {path}=A,B,C, or a range, FIRST:LAST:COUNT.")
    if not all(listed):
        raise OffloadError(f"{origin}: a value of the list is empty. Write {path}=A,B,C.")
    if len(listed) > MOST_LISTED:
        raise OffloadError(f"{origin}: {len(listed):,} values are more than the {MOST_LISTED:,} that a list may have.")
    read = [_portion(one) or _number(one) for one in listed]
    for text, one in zip(listed, read, strict=True):
        if one is not None:
            _check_number(text, one[0], origin)
    known: dict[Any, str] = {}
    for text, one in zip(listed, read, strict=True):
        if (first := known.setdefault(one or text, text)) != text:
            raise OffloadError(f'{origin}: "{first}" and "{text}" are the same value. Name each once.')
    if len(known) < len(listed):
        twice = next(text for place, text in enumerate(listed) if text in listed[:place])
        raise OffloadError(f'{origin}: "{twice}" is there twice. Name each value once.')
    numbers = [one for one in read if one is not None]
    if len(numbers) < len(read):
        return Axis(path, tuple(listed), None, "")
    units = [unit for _, unit in numbers]
    kinds = list(dict.fromkeys(units))
    if len(kinds) > 1:
        told = [f'"{listed[units.index(kind)]}" ({kind or "no unit"})' for kind in kinds]
        if "%" in kinds or "layers" in kinds:  # 50%, 20 GB: portions
            return Axis(path, tuple(listed), None, "")
        raise OffloadError(f"{origin}: the values are of different kinds: {', '.join(told)}. Write all in one kind of "
                           "unit.")
    return Axis(path, tuple(listed), _array([number for number, _ in numbers]), kinds[0])


def number_text(number: float, unit: str) -> str:
    """A number in plain units as a file would say it, exactly: in the largest unit that gives it back."""
    worth, rung = next(((worth, rung) for worth, rung in reversed(_RUNGS.get(unit, ())) if abs(number) >= worth),
                       (1.0, unit))  # fmt: skip
    if worth != 1:
        for text in (f"{number / worth:.12g}", f"{number / worth:.15g}", repr(number / worth)):
            if _number(f"{text} {rung}") == (number, unit):
                return f"{text} {rung}"
    return f"{number!r} {unit}".strip()


def _short(number: float, unit: str) -> str:
    if unit in _SHOWN:
        return _SHOWN[unit](number, 4)
    return f"{number:,} {unit}".strip() if isinstance(number, int) else f"{number:.4g} {unit}".strip()


def _check_number(text: str, number: float, origin: str) -> None:
    """Raises OffloadError for what is not finite, or too large to be meant."""
    if not isfinite(number):
        raise OffloadError(f'{origin}: "{text}" is no finite number.')
    if abs(number) >= LARGEST:
        raise OffloadError(f'{origin}: "{text}" is larger than anything that is swept.')


def _portion(text: str) -> tuple[float, str] | None:
    """A percentage or a number of layers, with its unit; None where it is neither."""
    match = _PORTION.fullmatch(text)
    if match is None:
        return None
    number = float(match[1]) if "." in match[1] else int(match[1])
    return number, "%" if match[2] == "%" else "layers"


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
    texts = [one.strip() for one in pieces[:2]]
    if all(_WHOLE.fullmatch(one) or _POWER.fullmatch(one) for one in texts):
        texts = [str(int(float(one))) if _POWER.fullmatch(one) and float(one) < 1e15 else one for one in texts]
    ends: list[tuple[float, str]] = []
    for text in texts:
        one = _portion(text) or _number(text)
        if one is None:
            raise OffloadError(f'{origin}: "{text}" is no number. A range is FIRST:LAST:COUNT, as '
                               "16GB/s:128GB/s:200log; a list has commas.")
        _check_number(text, one[0], origin)
        ends.append(one)
    (low, unit), (high, last_unit) = ends
    if unit != last_unit:
        raise OffloadError(f'{origin}: the ends of a range are in one kind of unit, and "{texts[0]}" has '
                           f'{unit or "none"}, "{texts[1]}" {last_unit or "none"}.')
    whole = isinstance(low, int) and isinstance(high, int) and unit in ("", "B", "layers")
    count, spaced = None, ""
    if len(pieces) == 3:
        match = _COUNT.fullmatch(pieces[2].strip())
        if match is None or not 2 <= int(match[1]):
            raise OffloadError(f'{origin}: "{pieces[2].strip()}" is no count of at least 2. Write 200, or 200log for '
                               "equal ratios.")
        count, spaced = int(match[1]), match[2] or "lin"
    elif not whole or unit == "B":
        raise OffloadError(f"{origin}: how many values? Write {path}={texts[0]}:{texts[1]}:100, or 100log for equal "
                           "ratios.")
    if not low < high:
        same = f"a single value is {path}={texts[0]}" if low == high else f"write {path}={texts[1]}:{texts[0]}" + (
            f":{pieces[2].strip()}" if len(pieces) == 3 else "")
        raise OffloadError(f"{origin}: a range goes up, from a smaller value to a larger one: {same}.")
    if whole and spaced == "lin" and count is not None and count > high - low + 1:
        other = "" if unit else f" Where parts of one are meant: {path}={texts[0]}:{float(high)}:{count}."
        raise OffloadError(f"{origin}: from {texts[0]} to {texts[1]} there are {high - low + 1:,} whole "
                           f"{_NAMED[unit] or 'numbers'}, and {count:,} are asked. Write {path}={texts[0]}:{texts[1]}"
                           f"{'' if unit != 'B' else f':{high - low + 1}'}.{other}")
    count = int(high - low) + 1 if count is None else count  # of whole numbers
    if count > MOST_VALUES:
        raise OffloadError(f"{origin}: {count:,} values are more than the {MOST_VALUES:,} that an axis may have.")
    if spaced == "log":
        if not low > 0:
            raise OffloadError(f"{origin}: equal ratios start above zero.")
        values: numpy.ndarray = numpy.geomspace(low, high, count)
        values = numpy.rint(values).astype(numpy.int64) if whole else values
    elif whole and max(-low, high) < 2**53:
        values = numpy.rint(numpy.linspace(low, high, count)).astype(numpy.int64)
    elif whole:  # the ends have more digits than a float, their difference seldom
        values = low + numpy.rint(numpy.linspace(0, high - low, count)).astype(numpy.int64)
    else:
        values = numpy.linspace(low, high, count).astype(numpy.float64)
    values = numpy.minimum(numpy.maximum(values, low), high)
    values[0], values[-1] = low, high
    if (new := numpy.diff(values, prepend=values[0] - 1) > 0).all():
        return Axis(path, None, values, unit, (texts[0], texts[1]))
    new[0] = True
    if not whole:
        raise OffloadError(f"{origin}: between {texts[0]} and {texts[1]} there are no {count:,} different numbers. "
                           "Write fewer.")
    values = values[new]
    return Axis(path, None, values, unit, (texts[0], texts[1]))


def _array(numbers: list[float]) -> numpy.ndarray:
    return numpy.array(numbers, dtype=numpy.int64 if all(isinstance(one, int) for one in numbers) else numpy.float64)
