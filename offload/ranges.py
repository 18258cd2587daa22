"""Ranges in names: `gpu0..7` declares or names eight. Equal ranges pair up, a single name fans out.

`expand` writes a range out; `fold` finds the ranges in names that are written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from offload.errors import one_line

LONGEST_RANGE = 1024
REMEMBERED = 4096  # names are read again and again while a plan is laid out
_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})(?![0-9])")
_NUMBER = re.compile(r"(?<![0-9])(0|[1-9][0-9]{0,8})(?![0-9])")


def is_range(text: str) -> bool:
    """Whether a name stands for several."""
    return _RANGE.search(text) is not None


def expand(text: str) -> list[str]:
    """The names that a text with ranges stands for: "gpu0..2" is gpu0, gpu1, gpu2; all ranges in it count together.

    Raises ValueError with the reason where a range runs backwards, is too long, or differs in length from another.
    """
    if ".." not in text:
        return [text]
    found = list(_RANGE.finditer(text))
    if long := re.search(r"[0-9]+\.\.[0-9]{7,}|[0-9]{7,}\.\.[0-9]+", text):
        raise ValueError(f'the range "{one_line(long[0])}" is longer than the {LONGEST_RANGE} names that are taken.')
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


def listed(text: str) -> list[str]:
    """The names of a list of names and ranges: "hbm0..1, hbm6" is hbm0, hbm1, hbm6. Raises as `expand`."""
    return list(_listed(text))


@lru_cache(REMEMBERED)
def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") for name in expand(part.strip()))


def in_short(text: str) -> str:
    """A list of names and ranges in its shortest writing: "hbm1, hbm0" is "hbm0..1", "hbm0..0" is "hbm0".

    What is no range stays as it is.
    """
    try:
        return fold(dict.fromkeys(listed(text)))
    except ValueError:
        return text


def _step(text: str, step: int) -> str:
    return _RANGE.sub(lambda match: str(int(match[1]) + step), text)


def runs(texts: Iterable[str]) -> list[list[str]]:
    """Texts that one range could stand for, together: the same but for numbers that count up side by side.

    The inverse of `expand`: `folded` writes a run with its ranges, which `expand` takes: none is longer than it reads.
    Runs come in the order of their first text as given.
    """
    groups: dict[tuple[str, ...], list[tuple[tuple[int, ...], str]]] = {}
    for text in dict.fromkeys(texts):
        stem, numbers = _parts(text)
        groups.setdefault(stem, []).append((numbers, text))
    found: list[list[str]] = []
    for group in groups.values():
        steps: tuple[int, ...] = ()
        before: tuple[int, ...] = ()
        for numbers, text in sorted(group):
            now = tuple(b - a for a, b in zip(before, numbers, strict=False))
            fits = found and len(found[-1]) < LONGEST_RANGE  # else nobody could read the range again
            if before and fits and set(now) <= {0, 1} and (not steps or now == steps):
                found[-1].append(text)
                steps = now
            else:
                found.append([text])
                steps = ()
            before = numbers
    return found


def folded(run: list[str]) -> str:
    """One text for a run: ["gpu0", "gpu1", "gpu2"] is "gpu0..2"."""
    stem, first = _parts(run[0])
    _, last = _parts(run[-1])
    numbers = [str(a) if a == b else f"{a}..{b}" for a, b in zip(first, last, strict=True)]
    return "".join(text for pair in zip(stem, [*numbers, ""], strict=True) for text in pair)


def fold(texts: Iterable[str]) -> str:
    """Names in few words: "gpu0..7, cpu0"."""
    return _fold(tuple(texts))


@lru_cache(REMEMBERED)
def _fold(texts: tuple[str, ...]) -> str:
    if len(texts) == 1:
        return texts[0]
    return ", ".join(folded(run) for run in runs(texts))


@lru_cache(REMEMBERED)
def _parts(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """What stands around the numbers of a text, and the numbers; digits after a zero are no number ("gpu01")."""
    split = _NUMBER.split(text)
    return tuple(split[::2]), tuple(map(int, split[1::2]))
