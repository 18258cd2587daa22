"""All numbers that a step is made of, in one order: what two compilations of it are compared by.

Floor and serial time alone may hide a number that escaped from a trace: what does not bind changes neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from offload.step import Step

NUMBER = object()


def numbers(step: Step) -> list[Any]:
    """Amounts and rates of rows, resources, slots and occupied memory, plain or traced; shape (n,)."""
    found: list[Any] = []
    _add((step.rows, step.resources, step.slots, step.occupied), found)
    return found


def _add(value: Any, found: list[Any]) -> None:
    kind: Any = type(value)
    parts = _parts(kind)
    if parts is NUMBER:
        found.append(value)
    elif parts is not None:
        for one in parts(value):
            if one is not None and type(one) is not str:  # most of what is there
                _add(one, found)


@cache
def _parts(kind: Any) -> Any:
    """What gives the parts of a value of this kind, NUMBER, or None for what is neither."""
    if issubclass(kind, str | bool | type(None)):
        return None
    if issubclass(kind, int | float):
        return NUMBER
    if issubclass(kind, tuple | list):
        return iter
    if issubclass(kind, Mapping):
        return lambda value: value.values()
    if not is_dataclass(kind):
        return None
    names = [one.name for one in fields(kind) if one.compare]
    return attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),) if names else ()
