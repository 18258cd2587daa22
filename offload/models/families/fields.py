"""A config's values read strictly: each key under all its names, each value of one kind, nothing guessed.

A value that is missing is the caller's default or an error that names the key. Keys that were read are remembered, so
that a key which changes a shape is refused by families that do not know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from offload.errors import ModelError

LARGEST = 10**9  # of a size in a config
REQUIRED = object()  # no default: the key must be there


def kind_of(value: object) -> str:
    """What a JSON value is, in plain words."""
    kinds = {bool: "true or false", dict: "a map", list: "a list", str: "a text", int: "a number", float: "a number"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "nothing (null)")


def given(value: object) -> str:
    """A JSON value for a message, as it stands in the file: a text in quotes, a number plain."""
    if isinstance(value, dict | list):
        return kind_of(value)
    if isinstance(value, str):
        return f'the text "{shown(value)}"'
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**60:
        return "far too large" if value > 0 else "negative"  # too long to be written out
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else shown(value)


def shown(value: object, longest: int = 60) -> str:
    """A value for a message: short, and without what a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(value)[:longest])


class Fields:
    """The values of one config, or of one map in it. where : what stands before a key in a message ("text_config.")."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self.values = values
        self.where = where
        self.read: set[str] = set()
        self.lacking: dict[str, Any] = {}  # keys that are missing, with the default that was taken

    def name(self, key: str) -> str:
        """A key for a message."""
        return f"{self.where}{key}"

    def instead(self, *keys: str) -> str:
        """The end of a message about a key that is missing: the key that stands in the file and looks like it."""
        others = {key.casefold(): key for key in self.values if key not in self.read}
        near = [others[one] for key in keys for one in get_close_matches(key, others, n=1, cutoff=0.85)]
        return f' The file has "{shown(near[0])}": is that it, misspelt?' if near else ""

    def has(self, *keys: str) -> bool:
        """Whether one of the keys is there, be its value null."""
        self.read.update(keys)
        return any(key in self.values for key in keys)

    def raw(self, key: str) -> Any:
        """A value as it stands; None where it is missing."""
        self.read.add(key)
        return self.values.get(key)

    def _one(self, keys: Sequence[str], check: Any, default: Any) -> Any:
        """The value under any of its names; two names with two values are refused."""
        self.read.update(keys)
        found = {key: check(key, self.values[key]) for key in keys if self.values.get(key) is not None}
        if len({repr(value) for value in found.values()}) > 1:
            both = " and ".join(f"{self.name(key)} is {given(value)}" for key, value in found.items())
            raise ModelError(f"{both}: drop the wrong one.")
        if found:
            return next(iter(found.values()))
        if default is REQUIRED:
            also = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
            raise ModelError(f'the key "{self.name(keys[0])}"{also} is missing.{self.instead(*keys)}')
        if default is not None or keys[0] not in self.lacking:
            self.lacking[keys[0]] = default
        return default

    def whole(self, *keys: str, default: Any = REQUIRED, least: int = 1, most: int = LARGEST) -> Any:
        """A whole number. A null counts as missing."""

        def check(key: str, value: object) -> int:
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ModelError(f"{self.name(key)} is {given(value)}; it must be a whole number from {least} to "
                                 f"{most:,}.")
            return value

        return self._one(keys, check, default)

    def number(self, key: str, *, least: float, most: float, default: Any = REQUIRED) -> Any:
        """A number from `least` to `most`."""

        def check(key: str, value: object) -> float:
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ModelError(f"{self.name(key)} is {given(value)}; it must be a number from {least} to {most:,}.")
            return float(value)

        return self._one((key,), check, default)

    def flag(self, key: str, default: bool | None = False) -> Any:
        """True or false. A null counts as missing."""

        def check(key: str, value: object) -> bool:
            if not isinstance(value, bool):
                raise ModelError(f"{self.name(key)} is {given(value)}; it must be true or false.")
            return value

        return self._one((key,), check, default)

    def text(self, key: str, default: Any = REQUIRED, example: str = "") -> Any:
        """A text."""

        def check(key: str, value: object) -> str:
            if not isinstance(value, str):
                raise ModelError(f"{self.name(key)} is {given(value)}; it must be a text{example}.")
            return value

        return self._one((key,), check, default)

    def each(self, key: str, count: int, allowed: Sequence[Any], default: Any = REQUIRED) -> Any:
        """A list with one of the `allowed` values for each of `count` layers."""

        def check(key: str, value: object) -> list[Any]:
            if not isinstance(value, list) or len(value) != count:
                size = f"a list of {len(value):,}" if isinstance(value, list) else given(value)
                raise ModelError(f"{self.name(key)} is {size}; it must be a list with the kind of each of the {count} "
                                 "layers.")
            for one in value:
                if not any(type(one) is type(a) and one == a for a in allowed):
                    known = ", ".join(given(one) for one in allowed[:8])
                    raise ModelError(f"{self.name(key)} holds {given(one)}; known here are {known}.")
            return value

        return self._one((key,), check, default)

    def numbers(self, key: str, most: int, default: Any = REQUIRED) -> Any:
        """A list of whole numbers from 0 to `most` (layer numbers)."""

        def check(key: str, value: object) -> list[int]:
            if not isinstance(value, list) or any(type(one) is not int or not 0 <= one <= most for one in value):
                raise ModelError(f"{self.name(key)} is {given(value)}; it must be a list of whole numbers from 0 to "
                                 f"{most}.")
            return value

        return self._one((key,), check, default)

    def map(self, key: str, default: Any = REQUIRED) -> Any:
        """A map, as Fields of its own."""

        def check(key: str, value: object) -> Mapping[str, Any]:
            if not isinstance(value, dict):
                raise ModelError(f"{self.name(key)} is {given(value)}; it must be a map {{...}}.")
            return value

        found = self._one((key,), check, default)
        return Fields(found, f"{self.name(key)}.") if isinstance(found, dict) else found

    def maps(self, key: str, count: int) -> list[Fields]:
        """A list with a map for each of `count` layers."""
        value = self.raw(key)
        if not isinstance(value, list) or len(value) != count or not all(isinstance(one, dict) for one in value):
            raise ModelError(f"{self.name(key)} must be a list with a map for each of the {count} layers.")
        return [Fields(one, f"{self.name(key)}[{i}].") for i, one in enumerate(value)]
