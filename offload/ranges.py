"""Ranges in names: `gpu0..7` declares or names eight. Equal ranges pair up, a single name fans out."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST_RANGE = 1024
_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})(?![0-9])")


def is_range(text: str) -> bool:
    """Whether a name stands for several."""
    return _RANGE.search(text) is not None


def expand(text: str) -> list[str]:
    """The names that a text with ranges stands for: "gpu0..2" is gpu0, gpu1, gpu2; all ranges in it count together.

    Raises ValueError with the reason where a range runs backwards, is too long, or differs in length from another.
    """
    found = list(_RANGE.finditer(text))
    if ".." in _RANGE.sub("", text):
        raise ValueError(f'"{text}" is no range. A range is written "gpu0..7".')
    if not found:
        return [text]
    lengths = set()
    for match in found:
        first, last = int(match[1]), int(match[2])
        if last < first:
            raise ValueError(f'the range "{match[0]}" runs backwards. Write "{last}..{first}".')
        if last - first >= LONGEST_RANGE:
            raise ValueError(f'the range "{match[0]}" is longer than the {LONGEST_RANGE} names that are taken.')
        lengths.add(last - first + 1)
    if len(lengths) > 1:
        raise ValueError(f'the ranges in "{text}" differ in length. Ranges that go together hold equally many names.')
    return [_step(text, step) for step in range(lengths.pop())]


def _step(text: str, step: int) -> str:
    return _RANGE.sub(lambda match: str(int(match[1]) + step), text)

def fold(names: Sequence[str]) -> str:
    """Names as people write them: "hbm0..7" where they count up, else "a, b"."""
    first = re.fullmatch(r"(.*?)([0-9]{1,6})", names[0]) if len(names) > 1 else None
    if first and list(names) == [f"{first[1]}{int(first[2]) + step}" for step in range(len(names))]:
        return f"{names[0]}..{int(first[2]) + len(names) - 1}"
    return ", ".join(names)
