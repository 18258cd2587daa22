"""Whole numbers that people give: checked once, refused with what is allowed."""

from __future__ import annotations

from offload.errors import ModelError

LARGEST_AMOUNT = 10**30  # of bytes, positions or requests: shares of it are still floats


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raises ModelError unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"{name} is {str(value)[:60]!r}; it must be a whole number.")
    if not least <= value <= most:  # a number may be too long to be written out
        shown = f"{value:,}" if abs(value) < 10**30 else "far too large" if value > 0 else "negative"
        raise ModelError(f"{name} is {shown}; it must be a whole number from {least} to {most:,}.")


def ceil_div(amount: int, parts: int) -> int:
    """amount / parts, rounded up; exact for whole numbers of any size."""
    return -(-amount // parts)
