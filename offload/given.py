"""Plain numbers that a formula is given: checked once, so that none answers with NaN, a traceback or nonsense."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, ItemsView, Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import wraps
from numbers import Integral, Rational, Real
from operator import is_
from typing import Any, ParamSpec, TypeVar, cast

from offload.errors import FormulaError, OffloadError, did_you_mean, one_line, shown

Amount = Any  # int, float, Fraction or, where a docstring says so, a NumPy array
SIMPLE = frozenset((int, float, Fraction, str, bool, type(None)))  # what `plain` leaves as it is
DEEPEST = 6  # lists within lists; no formula takes any deeper
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
    value = _checked(name, value, True, arrays)
    most = value.max() if hasattr(value, "shape") else value
    if most > 1:
        raise FormulaError(f"{name}: {shown(most)} is above 1; give a share from 0 to 1.")
    return value


def listed(name: str, values: Any, of: str = "numbers") -> Sequence[Any]:
    """A list, tuple or array of one dimension or more; raises FormulaError."""
    if (isinstance(values, str | bytes | Mapping) or getattr(values, "shape", None) == ()
            or not (hasattr(values, "__len__") and hasattr(values, "__getitem__"))):  # fmt: skip
        raise FormulaError(f"{name}: {shown(values)} is no list of {of}.")
    return cast(Sequence[Any], values)


def each_not_negative(name: str, values: Sequence[Amount], arrays: bool = False) -> Sequence[Amount]:
    """At least one number, each finite and at least 0; raises FormulaError."""
    if not len(listed(name, values)):
        raise FormulaError(f"{name}: the list is empty; give at least one number.")
    return [not_negative(f"{name}[{index}]", value, arrays) for index, value in enumerate(values)]


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
    """A list of pairs, their numbers `plain`; raises FormulaError that says of what."""
    found = []
    try:
        _ordered(values)
        for one in values:
            _ordered(one)
            first, second = one
            found.append((plain(first, True), plain(second, True)))
    except OffloadError:
        raise
    except (TypeError, ValueError):
        raise FormulaError(f"{name}: give pairs of {of}.") from None
    return found


def _ordered(values: Any) -> None:
    """Raises TypeError for what is no list though it can be gone through."""
    if isinstance(values, str | bytes | Mapping | Set) and not isinstance(values, ItemsView):
        raise TypeError


def load_rows(
    rates: Mapping[str, Amount], transfers: Iterable[tuple[Amount, Mapping[str, Amount]]], arrays: bool = False
) -> list[tuple[Amount, Mapping[str, Amount]]]:
    """The transfers (D_j, {resource: a_rj}) of a load bound; raises FormulaError unless each resource has a rate above
    0, and amounts and coefficients are `not_negative`."""
    for name, rate in mapping("rates", rates, "{resource: rate}").items():
        positive(f"the rate of {one_line(name)}", rate, arrays)
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
    if not is_number(value) or not isinstance(value, Integral):
        raise FormulaError(f"{name}: {shown(value)} is no whole number; write one of at least {least}.")
    value = cast(Any, value)
    if value < least:
        raise FormulaError(f"{name}: {shown(value)} is too few; write a whole number of at least {least}.")
    if most is not None and value > most:
        raise FormulaError(f"{name}: {shown(value)} is too many; write a whole number of at most {most:,}.")
    return int(value.__index__())


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


def surely(value: T | None) -> T:
    """A value that is there by construction, where its type alone allows None."""
    return cast(T, value)


def is_number(value: Any) -> bool:
    """Whether it is one finite number: no array, no text, no True, no span of time."""
    return is_real(value) and (isinstance(value, Rational) or math.isfinite(value))


def is_real(value: Any) -> bool:
    """`is_number`, infinite ones and NaN too."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return getattr(getattr(value, "dtype", None), "kind", "f") in "iuf"  # NumPy's spans of time pass for whole numbers


def plain(value: Any, arrays: bool = False, depth: int = 0) -> Any:
    """What was given, with Python's own numbers for NumPy's: its integers wrap, and its short floats lose digits.

    NumPy integers are ints, its floats floats, its truths bools, on their own and in lists, tuples and dictionaries,
    which are copied where that changes anything. Arrays are lists, or with `arrays` arrays of 64-bit floats. Anything
    else is left for the checks of who is given it. Raises FormulaError for arrays with masked entries.
    """
    if type(value) in SIMPLE or depth > DEEPEST:
        return value
    if isinstance(value, Mapping):
        if SIMPLE.issuperset(map(type, value.values())):
            return value
        found = {key: plain(one, arrays, depth + 1) for key, one in value.items()}
        return value if all(one is value[key] for key, one in found.items()) else found
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | range):
        if SIMPLE.issuperset(map(type, value)):
            return value
        ones = [plain(one, arrays, depth + 1) for one in value]
        if all(map(is_, ones, value)):
            return value
        return tuple(ones) if isinstance(value, tuple) else ones
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if isinstance(value, numpy.generic):
        return value.item() if value.dtype.kind in "iub" else float(value) if value.dtype.kind == "f" else value
    return _plain_array(value, arrays) if isinstance(value, numpy.ndarray) else value


def _plain_array(value: Any, arrays: bool) -> Any:
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        if numpy.ma.is_masked(value):
            raise FormulaError("an array has masked entries; fill them, or leave them out.")
        value = value.filled()
    kind = value.dtype.kind
    if kind not in "biufO":
        return value if arrays else [*value] if value.ndim else value[()]
    if kind == "f" and value.dtype.itemsize > 8:  # longer floats
        with numpy.errstate(over="ignore"):
            value = value.astype(float)
    if not value.ndim or not arrays:
        return plain(value.tolist(), arrays)
    if kind == "O":
        found = numpy.empty(value.shape, object)
        found.flat[:] = [plain(one, arrays) for one in value.flat]
        return found
    return value if kind == "b" else value.astype(float, copy=False)


def plainly(function: Callable[P, T]) -> Callable[P, T]:
    """The function, given `plain` numbers and lists."""

    @wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> T:
        return function(*map(plain, args), **{name: plain(value) for name, value in named.items()})

    return called


def finite(function: Callable[P, T]) -> Callable[P, T]:
    """The function, given `plain` numbers and lists, with FormulaError where a number on the way leaves floats.

    For functions that check what they are given: what is not finite in their answer has overflowed, and a division by
    zero is by what floats round to it. Answers are looked through: dataclasses, lists, dictionaries and arrays.
    """
    return _finite(function, False)


def finite_arrays(function: Callable[P, T]) -> Callable[P, T]:
    """`finite`, for functions that take arrays as numbers: integers and short floats in them become 64-bit floats."""
    return _finite(function, True)


def _finite(function: Callable[P, T], arrays: bool) -> Callable[P, T]:
    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> T:
        numpy = sys.modules.get("numpy")
        given = [plain(one, arrays) for one in args]
        given_by_name = {name: plain(one, arrays) for name, one in named.items()}
        try:
            with numpy.errstate(all="ignore") if numpy else nullcontext():
                answer = function(*given, **given_by_name)
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
    if getattr(value, "shape", ()) != ():
        import numpy

        if not arrays:
            raise FormulaError(f"{name}: an array where one number is due; give {due}.")
        if not value.size:
            raise FormulaError(f"{name}: the array is empty; give {due} in it.")
        if value.dtype.kind not in "iuf" or not bool(numpy.isfinite(value).all()):
            raise FormulaError(f"{name}: an array of other than finite numbers; give {due} everywhere.")
        least = value.min()
        if least < 0 or (least == 0 and not zero):
            raise FormulaError(f"{name}: the array goes down to {least}; give {due} everywhere.")
        return value
    if not is_number(value):
        raise FormulaError(f"{name}: {shown(value)} is not {due}.")
    if value < 0 or (value == 0 and not zero):
        raise FormulaError(f"{name}: {shown(value)} is not {due}.")
    return value
