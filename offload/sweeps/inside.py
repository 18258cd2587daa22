"""All numbers that a step is made of, in one order: what two compilations of it are compared by.

Floor and serial time alone may hide a number that escaped from a trace: what does not bind changes neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from offload.step import Step


def numbers(step: Step) -> list[Any]:
    """Amounts and rates of rows, resources, slots and occupied memory, plain or traced; shape (n,)."""
    found: list[Any] = []
    _add((step.rows, step.resources, step.slots, step.occupied), found)
    return found


def _add(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is tuple or kind is list:
        for one in value:
            _add(one, found)
    elif isinstance(value, int | float):
        found.append(value)
    elif isinstance(value, Mapping):
        for one in value.values():
            _add(one, found)
    elif is_dataclass(kind):
        for name in _compared(kind):
            _add(getattr(value, name), found)


@cache
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.compare)
