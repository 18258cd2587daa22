"""Amounts and rates that people give to a formula: checked once, refused with what is allowed."""

from __future__ import annotations

from numbers import Real

from offload.errors import ModelError
from offload.plan import Amount


def check_amounts(**given: Amount) -> None:
    """Raises ModelError unless each is a number (or an array of them) from 0, and finite."""
    for name, value in given.items():
        _check(name, value, zero=True)


def check_rates(**given: Amount) -> None:
    """Raises ModelError unless each is a number (or an array of them) above 0, and finite."""
    for name, value in given.items():
        _check(name, value, zero=False)


def _check(name: str, value: Amount, zero: bool) -> None:
    if hasattr(value, "shape") and value.shape:
        for one in value.ravel().tolist():
            _check(name, one, zero)
        return
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= number < float("inf") or (
        not zero and number == 0
    ):  # fmt: skip
        least = "from 0" if zero else "above 0"
        raise ModelError(f"{name} is {str(number)[:60]}; it must be a number {least}, in bytes, seconds, bytes/s or "
                         "FLOP/s as its name says.")
