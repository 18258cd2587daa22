"""Bytes, B/s, s, FLOP, FLOP/s and shares as people read them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from offload.errors import UnitError
from offload.units.kinds import BINARY_RUNGS, RATE, SIZE, SPEED, TIME, WORK, rungs_of


def format_bytes(size: float | Fraction, digits: int = 3) -> str:
    """Size [B] in decimal units: 21.49e9 -> "21.5 GB"."""
    return _print(size, SIZE.rungs, digits)


def format_bytes_both(size: float, digits: int = 3) -> str:
    """Size [B] both ways, with the same number of digits: 24 * 2**30 -> "25.8 GB (24.0 GiB)"."""
    if abs(size) < 1000:
        return _print(size, SIZE.rungs, digits)
    return f"{_print(size, SIZE.rungs, digits, pad=True)} ({_print(size, BINARY_RUNGS, digits, pad=True)})"


def format_rate(rate: float, digits: int = 3) -> str:
    """Rate [B/s] in decimal units: 96e9 -> "96 GB/s"."""
    return _print(rate, RATE.rungs, digits)


def format_rate_both(rate: float, digits: int = 3) -> str:
    """Rate [B/s] in bytes and in bits: 50e9 -> "50 GB/s (400 Gb/s)"."""
    return f"{_print(rate, RATE.rungs, digits)} ({_print(rate * 8, rungs_of('b/s'), digits)})"


def format_seconds(seconds: float, digits: int = 3) -> str:
    """Time [s]: 0.252 -> "252 ms"; from 1000 s on in minutes, from 1000 minutes on in hours."""
    return _print(seconds, TIME.rungs, digits)


def format_apart(value: float, other: float, show: Callable[..., str]) -> str:
    """The value as `show` prints it, and in full where that would read like the other one, from which it differs."""
    text = show(value, 4)
    if value == other or text != show(other, 4):
        return text
    return f"{text} ({value:,.0f} {show(1.0).split()[1]})"


def format_flop(work: float, digits: int = 3) -> str:
    """Amount of work [FLOP]: 1.76e9 -> "1.76 GFLOP"."""
    return _print(work, WORK.rungs, digits)


def format_flops(speed: float, digits: int = 3) -> str:
    """Compute rate [FLOP/s]: 165e12 -> "165 TFLOP/s"."""
    return _print(speed, SPEED.rungs, digits)


def format_share(share: float, digits: int = 3) -> str:
    """Share [1] in per cent: 0.84 -> "84 %"."""
    return _print(share, ((0.01, "%"),), digits)


def percent(share: float, digits: int = 4) -> str:
    """Share [1] as a plan file writes it: 0.25 -> "25%"; what is below a hundredth of one per cent is told so."""
    return "under 0.01%" if 0 < share < 1e-4 else f"{100 * share:.{digits}g}%"


def many(count: int, word: str) -> str:
    """A count with its word: (1, "layer") -> "1 layer", (4096, "layer") -> "4,096 layers"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _print(value: float | Fraction, rungs: tuple[tuple[float, str], ...], digits: int, *, pad: bool = False) -> str:
    """The value on the first rung where, once rounded, less than 1000 stands before the unit; never inf or nan."""
    if not 1 <= digits <= 4:
        raise ValueError(f"1 to 4 significant digits, not {digits}: no figure here is known better")
    size: Any = abs(value)
    if not size <= 1e300:
        raise UnitError("a figure that is not finite, or beyond 1e300, cannot be printed")
    number = float(value)
    if number == 0:
        return "0 " + next(unit for worth, unit in rungs if worth in (1, 0.01))
    for worth, unit in rungs:  # noqa: B007 (the rung it ends on is the one that is printed)
        rounded = Decimal(f"{abs(number) / worth:.{digits - 1}e}")
        if rounded < 1000:
            break
    power = rounded.adjusted()
    plain = -4 < power < 6  # outside, zeros would hide the size: a power of ten instead
    text = f"{rounded:.{max(digits - 1 - power, 0)}f}" if plain else f"{rounded.scaleb(-power):f}"
    if "." in text and not (pad and plain):
        text = text.rstrip("0").rstrip(".")
    return f"{'-' if number < 0 else ''}{text}{'' if plain else f'e{power}'} {unit}"
