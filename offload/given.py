"""Plain numbers that a formula is given: checked once, so that none answers with NaN, a traceback or nonsense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from numbers import Real
from typing import Any

from offload.errors import FormulaError
from offload.plan import Amount


def not_negative(name: str, value: Amount) -> Amount:
    """A finite number (or array of them) that is at least 0; raises FormulaError."""
    return _checked(name, value, zero=True)


def positive(name: str, value: Amount) -> Amount:
    """A finite number (or array of them) above 0; raises FormulaError."""
    return _checked(name, value, zero=False)


def all_not_negative(**values: Amount) -> None:
    """Raises FormulaError unless each is `not_negative`."""
    for name, value in values.items():
        not_negative(name, value)


def all_positive(**values: Amount) -> None:
    """Raises FormulaError unless each is `positive`."""
    for name, value in values.items():
        positive(name, value)


def share(name: str, value: Amount) -> Amount:
    """A number (or array) from 0 to 1; raises FormulaError."""
    _checked(name, value, zero=True)
    if bool((value > 1).any()) if hasattr(value, "shape") else value > 1:
        raise FormulaError(f"{name}: {value} is above 1; give a share from 0 to 1.")
    return value


def each_not_negative(name: str, values: Sequence[Amount]) -> Sequence[Amount]:
    """At least one number, each finite and at least 0; raises FormulaError."""
    if isinstance(values, str) or not (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        raise FormulaError(f"{name}: {values!r} is no list of numbers.")
    if not len(values):
        raise FormulaError(f"{name}: the list is empty; give at least one number.")
    for index, value in enumerate(values):
        not_negative(f"{name}[{index}]", value)
    return values


def as_long(name: str, values: Sequence[Amount], other: str, like: Sequence[Amount]) -> None:
    """Raises FormulaError where two lists differ in length."""
    if len(values) != len(like):
        raise FormulaError(f"{name} has {len(values)} entries and {other} has {len(like)}; give one of each per item.")


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; raises FormulaError."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise FormulaError(f"{name}: {value!r} is no whole number; write one of at least {least}.")
    if value < least:
        raise FormulaError(f"{name}: {value} is too few; write a whole number of at least {least}.")
    return value.__index__()


def as_written(value: Any) -> Fraction:
    """A number as a fraction, a float by the decimals that it is written with (1e-5 is 1/100000)."""
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


def _checked(name: str, value: Amount, zero: bool) -> Amount:
    due = "a finite number of at least 0" if zero else "a finite number above 0"
    if hasattr(value, "shape") and value.shape:
        import numpy

        if value.dtype.kind not in "iuf" or not bool(numpy.isfinite(value).all()):
            raise FormulaError(f"{name}: an array of other than finite numbers; give {due} everywhere.")
        least = value.min() if value.size else 0
        if least < 0 or (least == 0 and not zero):
            raise FormulaError(f"{name}: the array goes down to {least}; give {due} everywhere.")
        return value
    if isinstance(value, bool) or not isinstance(value, Real) or not (isinstance(value, Fraction) or _finite(value)):
        raise FormulaError(f"{name}: {value!r} is not {due}.")
    if value < 0 or (value == 0 and not zero):
        raise FormulaError(f"{name}: {value} is not {due}.")
    return value


def _finite(value: Any) -> bool:
    return isinstance(value, int) or math.isfinite(value)
