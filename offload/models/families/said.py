"""Values that a user gives where a model's file lacks them or is wrong: said in words, and refused where nothing reads
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from offload.errors import ModelError, did_you_mean
from offload.models.families.fields import given, shown


class KnownModel(ModelError):
    """What is said of a model that is not known, about one that is."""


LONGEST = 10_000  # of a value that is given
LIKE = "--like FAMILY (`like: FAMILY` in a plan file)"


def read_given(texts: Iterable[str]) -> dict[str, Any]:
    """Values that are given as KEY=VALUE, as JSON writes them: 128, false, null, [1, 2]; what is no JSON is a text.

    Raises ModelError for a text without a key or an =, and for a key that is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, sign, value = (part.strip() for part in text.partition("="))
        if not key or not sign or not value or len(text) > LONGEST:
            raise ModelError(f'"{shown(text)}" gives no value. Write KEY=VALUE, as head_dim=128.')
        if key in found:
            raise ModelError(f"{shown(key)} is given twice. Keep one.")
        try:
            found[key] = json.loads(value)
        except (ValueError, RecursionError):
            found[key] = value
    return found


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
