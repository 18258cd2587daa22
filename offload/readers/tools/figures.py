"""Numbers as tools print them: finite and above zero, or not known; sizes with a binary unit; a check of rates."""

from __future__ import annotations

import math
import re
from typing import Any

KIB, MIB, GIB = 2**10, 2**20, 2**30
LARGEST = 1e18  # bytes, bytes/s: nothing that is measured comes near
SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def positive(value: Any, factor: float = 1) -> float | None:
    """A number or its text, times a unit's factor; None where it is no finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not re.fullmatch(r"\s*[+]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?\s*", value, re.ASCII):
        return None
    try:
        number = float(value) * factor
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 < number < LARGEST else None


def whole(value: Any) -> int | None:
    """A whole number above zero, or None."""
    number = positive(value)
    return int(number) if number is not None and number == int(number) else None


def binary_size(value: Any) -> int | None:
    """Bytes of "4096", "256k", "1M", "4KiB" (each step is 1024), or None."""
    found = SIZE.fullmatch(str(value).strip()) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if found is None or len(found[1]) > 18:
        return None
    size = int(found[1]) * KIB ** " kmgt".index(found[2].lower() or " ")
    return size if 0 < size < LARGEST else None


def agree(rate: float, size: float, seconds: float, step: float = 0.0) -> bool:
    """Whether a rate [B/s] is `size` bytes in `seconds`, within 1 % and the last printed digit `step` of the time."""
    return abs(rate * seconds - size) <= 0.01 * size + rate * step


def last_digit(printed: str) -> float:
    """What one step of a printed number's last digit is worth: 0.00001 for "0.00277"."""
    return 10.0 ** -len(printed.partition(".")[2])
