"""Values that a user gives where a model's file lacks them or is wrong: said in words, and refused where nothing reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from offload.errors import did_you_mean
from offload.models.families.fields import given, shown

LIKE = "--like FAMILY (`like: FAMILY` in a plan file)"


def told(give: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What was given, each a note. before : what the file says under the same keys; None where it says nothing."""
    found = []
    for key, value in give.items():
        old = before.get(key)
        if type(old) is not type(value) or old != value:
            was = "which the file lacks" if old is None else f"where the file says {given(old)}"
            found.append(f"given, {was}: {shown(key)} is {given(value)}")
    return found


def not_read(key: str, read: Iterable[str], what: str) -> str:
    """The message about a key that was given and that nothing looked at."""
    return f"{shown(key)} is given, and {what} have no such key. {did_you_mean(key[:60], sorted(read), 'Read are')}"
