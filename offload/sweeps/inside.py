"""All numbers that a step is made of, in one order: what two compilations of it are compared by.

Floor and serial time alone may hide a number that escaped from a trace: what does not bind changes neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from offload.step import Step


def numbers(step: Step) -> list[Any]:
    """Amounts and rates of rows, resources, slots and occupied memory, plain or traced; shape (n,)."""
    return list(_inside((step.rows, step.resources, step.slots, step.occupied)))


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _inside(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _inside(one)
    elif is_dataclass(value):
        for name in _compared(type(value)):
            yield from _inside(getattr(value, name))


@cache
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.compare)
