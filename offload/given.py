"""Plain numbers that a formula is given: checked once, so that none answers with NaN, a traceback or nonsense."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import wraps
from numbers import Integral, Rational, Real
from typing import Any, ParamSpec, TypeVar

from offload.errors import FormulaError, OffloadError, did_you_mean, shown

Amount = Any  # int, float, Fraction or, where a docstring says so, a NumPy array
P = ParamSpec("P")
T = TypeVar("T")


def not_negative(name: str, value: Amount, arrays: bool = False) -> Amount:
    """A finite number (`arrays`: or an array of them) that is at least 0; raises FormulaError."""
    return _checked(name, value, True, arrays)


def positive(name: str, value: Amount, arrays: bool = False) -> Amount:
    """A finite number (`arrays`: or an array of them) above 0; raises FormulaError."""
    return _checked(name, value, False, arrays)


def all_not_negative(*, arrays: bool = False, **values: Amount) -> None:
    """Raises FormulaError unless each is `not_negative`."""
    for name, value in values.items():
        not_negative(name, value, arrays)


def all_positive(*, arrays: bool = False, **values: Amount) -> None:
    """Raises FormulaError unless each is `positive`."""
    for name, value in values.items():
        positive(name, value, arrays)


def share(name: str, value: Amount, arrays: bool = False) -> Amount:
    """A number (`arrays`: or an array) from 0 to 1; raises FormulaError."""
    _checked(name, value, True, arrays)
    if bool((value > 1).any()) if hasattr(value, "shape") else value > 1:
        raise FormulaError(f"{name}: {shown(value)} is above 1; give a share from 0 to 1.")
    return value


def listed(name: str, values: Any, of: str = "numbers") -> Sequence[Any]:
    """A list, tuple or array of one dimension or more; raises FormulaError."""
    if (isinstance(values, str | bytes | Mapping) or getattr(values, "shape", None) == ()
            or not (hasattr(values, "__len__") and hasattr(values, "__getitem__"))):  # fmt: skip
        raise FormulaError(f"{name}: {shown(values)} is no list of {of}.")
    return values


def each_not_negative(name: str, values: Sequence[Amount], arrays: bool = False) -> Sequence[Amount]:
    """At least one number, each finite and at least 0; raises FormulaError."""
    if not len(listed(name, values)):
        raise FormulaError(f"{name}: the list is empty; give at least one number.")
    for index, value in enumerate(values):
        not_negative(f"{name}[{index}]", value, arrays)
    return values


def as_long(name: str, values: Sequence[Any], other: str, like: Sequence[Any]) -> None:
    """Raises FormulaError where one of two is no list, or they differ in length."""
    count, due = len(listed(name, values, "values")), len(listed(other, like, "values"))
    if count != due:
        raise FormulaError(f"{name} has {count} entries and {other} has {due}; give one of each per item.")


def mapping(name: str, value: Any, of: str) -> Mapping[Any, Any]:
    """A dictionary; raises FormulaError that says what it is due to hold."""
    if not isinstance(value, Mapping):
        raise FormulaError(f"{name}: {shown(value)} is no dictionary; give {of}.")
    return value


def pairs(name: str, values: Any, of: str) -> list[tuple[Any, Any]]:
    """A list of pairs; raises FormulaError that says of what."""
    found = []
    try:
        for one in values:
            first, second = one
            found.append((first, second))
    except (TypeError, ValueError):
        raise FormulaError(f"{name}: give pairs of {of}.") from None
    return found


def load_rows(
    rates: Mapping[str, Amount], transfers: Iterable[tuple[Amount, Mapping[str, Amount]]], arrays: bool = False
) -> list[tuple[Amount, Mapping[str, Amount]]]:
    """The transfers (D_j, {resource: a_rj}) of a load bound; raises FormulaError unless each resource has a rate above
    0, and amounts and coefficients are `not_negative`."""
    for name, rate in mapping("rates", rates, "{resource: rate}").items():
        positive(f"the rate of {name}", rate, arrays)
    rows = pairs("transfers", transfers, "(amount, {resource: coefficient})")
    for number, (amount, use) in enumerate(rows):
        not_negative(f"the amount of transfer {number}", amount, arrays)
        for name, coefficient in mapping(f"transfer {number}", use, "{resource: coefficient}").items():
            if name not in rates:
                raise FormulaError(f'transfer {number} uses "{name}". {did_you_mean(name, rates, "Resources")}')
            not_negative(f"transfer {number} on {name}", coefficient, arrays)
    return rows


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number from `least` on, to `most`; raises FormulaError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise FormulaError(f"{name}: {shown(value)} is no whole number; write one of at least {least}.")
    if value < least:
        raise FormulaError(f"{name}: {shown(value)} is too few; write a whole number of at least {least}.")
    if most is not None and value > most:
        raise FormulaError(f"{name}: {shown(value)} is too many; write a whole number of at most {most:,}.")
    return value.__index__()


def flag(name: str, value: Any) -> bool:
    """True or False; raises FormulaError for anything else, so that "no" is never taken for yes."""
    if not isinstance(value, bool) and not (getattr(value, "shape", None) == () and value.dtype.kind == "b"):
        raise FormulaError(f"{name}: {shown(value)} is neither True nor False.")
    return bool(value)


def as_written(value: Any) -> Fraction:
    """A number as a fraction, a float by the decimals that it is written with (1e-5 is 1/100000)."""
    if isinstance(value, Integral):
        return Fraction(int(value))
    return Fraction(value) if isinstance(value, Rational) else Fraction(repr(float(value)))


def is_number(value: Any) -> bool:
    """Whether it is one finite number: no array, no text, no True."""
    return isinstance(value, Real) and not isinstance(value, bool) and (isinstance(value, Rational)
                                                                        or math.isfinite(value))  # fmt: skip


def finite(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with FormulaError where its numbers or a step to them leave what floats hold.

    For functions that check what they are given: what is not finite in their answer has overflowed, and a division by
    zero is by what floats round to it. Answers are looked through: dataclasses, lists, dictionaries and arrays.
    """

    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> T:
        numpy = sys.modules.get("numpy")
        try:
            with numpy.errstate(all="ignore") if numpy else nullcontext():
                answer = function(*args, **named)
        except (OverflowError, ZeroDivisionError):
            raise FormulaError(_beyond(function)) from None
        except ValueError as error:
            if isinstance(error, OffloadError) or "broadcast" not in str(error):
                raise
            raise FormulaError(f"{function.__name__}: the arrays do not broadcast ({error}).") from None
        if not _all_finite(answer):
            raise FormulaError(_beyond(function))
        return answer

    return checked


def _beyond(function: Callable[..., Any]) -> str:
    return (f"{function.__qualname__}: a number on the way is too large or too small for floats; use other units, or "
            "Fractions throughout.")  # fmt: skip


def _all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if value is None or isinstance(value, int | Fraction | str):
        return True
    if hasattr(value, "dtype"):
        import numpy

        return value.dtype.kind not in "fc" or bool(numpy.isfinite(value).all())
    if isinstance(value, Mapping):
        return all(map(_all_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_all_finite, value))
    return not is_dataclass(value) or all(_all_finite(getattr(value, one.name)) for one in fields(value))


def _checked(name: str, value: Amount, zero: bool, arrays: bool) -> Amount:
    due = "a finite number of at least 0" if zero else "a finite number above 0"
    if hasattr(value, "shape") and not isinstance(value, Real):
        import numpy

        if not arrays:
            raise FormulaError(f"{name}: an array where one number is due; give {due}.")
        if value.dtype.kind not in "iuf" or not bool(numpy.isfinite(value).all()):
            raise FormulaError(f"{name}: an array of other than finite numbers; give {due} everywhere.")
        least = value.min() if value.size else 0
        if least < 0 or (least == 0 and not zero):
            raise FormulaError(f"{name}: the array goes down to {least}; give {due} everywhere.")
        return value
    if not is_number(value):
        raise FormulaError(f"{name}: {shown(value)} is not {due}.")
    if value < 0 or (value == 0 and not zero):
        raise FormulaError(f"{name}: {shown(value)} is not {due}.")
    return value
