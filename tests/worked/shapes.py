"""What a case's inputs may hold: keys, and what stands under each, checked before any formula is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any

from offload.errors import did_you_mean, one_line, shown

Check = Callable[[str, Any], Iterator[str]]  # (place, value) -> what is wrong with it
MOST_DIGITS = 4000  # of a number: Python writes out no more


@dataclass(frozen=True)
class Optional:
    """A key that may be left out."""

    check: Check


def is_number(value: Any) -> bool:
    """A finite number, as YAML or a test writes it."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        return False
    return isfinite(value) if isinstance(value, float) else abs(value) < 10**MOST_DIGITS


def number(place: str, value: Any) -> Iterator[str]:
    if not is_number(value):
        hint = "; YAML writes 1e9 as 1.0e+9" if isinstance(value, str) and value[:1].isdigit() else ""
        yield f"{place}: {shown(value)} is no finite number{hint}"


def whole(place: str, value: Any) -> Iterator[str]:
    if not is_number(value) or not isinstance(value, int):
        yield f"{place}: {shown(value)} is no whole number"


def truth(place: str, value: Any) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{place}: {shown(value)} is neither true nor false"


def text(place: str, value: Any) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{place}: {shown(value)} is no text"


def nothing_or(check: Check) -> Check:
    return lambda place, value: iter(()) if value is None else check(place, value)


def one_or_each(check: Check) -> Check:
    """One for all, or a list."""
    return lambda place, value: (list_of(check) if isinstance(value, list) else check)(place, value)


def list_of(check: Check) -> Check:
    def of(place: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list | tuple):
            yield f"{place}: {shown(value)} is no list"
            return
        for index, one in enumerate(value):
            yield from check(f"{place}[{index}]", one)

    return of


def pair_of(first: Check, second: Check) -> Check:
    def of(place: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            yield f"{place}: {shown(value)} is no pair"
            return
        yield from first(f"{place}[0]", value[0])
        yield from second(f"{place}[1]", value[1])

    return of


def named(check: Check) -> Check:
    """A table of any names."""

    def of(place: str, value: Any) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"{place}: {shown(value)} is no table"
            return
        for key, one in value.items():
            yield from check(f"{place}.{one_line(key)}", one)

    return of


def table(**keys: Check | Optional) -> Check:
    """A table of these keys: no other, and all but the optional ones."""

    def of(place: str, value: Any) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"{place}: {shown(value)} is no table"
            return
        for key in value:
            if key not in keys:
                yield f'{place} has the unknown key "{one_line(key)}". {did_you_mean(one_line(key), keys, "Known")}'
        for key, check in keys.items():
            if key in value:
                yield from (check.check if isinstance(check, Optional) else check)(f"{place}.{key}", value[key])
            elif not isinstance(check, Optional):
                yield f"{place} has no {key}"

    return of


numbers, wholes, names, rates = list_of(number), list_of(whole), list_of(text), named(number)
transfers = list_of(table(bytes=number, use=rates))
commodities = list_of(table(bytes=number, paths=list_of(rates)))
