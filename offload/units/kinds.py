"""The kinds of quantity, their spellings and what each is worth, exactly; quantiphy says what a prefix is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

SMALLEST = Fraction(1, 10**15)  # below this, in the plain unit, something other than zero is a slip
MOST_DIGITS = 4000  # of a number that is read; Python refuses to read more than 4300

DECIMAL_PREFIXES = ("", "k", "K", "M", "G", "T", "P", "E")
BINARY_PREFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
QUANTITY = re.compile(rf"({NUMBER}) ?([A-Za-z%/ ]*)", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What a text must be; units: spelling -> (prefix, worth without it); rungs: (worth, unit) as printed, rising;
    usual: units that a number without one probably meant; largest: beyond it, in the plain unit, is a slip."""

    name: str
    units: Mapping[str, tuple[str, Fraction]]
    rungs: tuple[tuple[float, str], ...]
    usual: tuple[str, ...]
    example: str
    largest: int
    spellings: str


def _spell(bases: Mapping[str, Fraction], *prefixes: str) -> dict[str, tuple[str, Fraction]]:
    return {prefix + base: (prefix, worth) for base, worth in bases.items() for prefix in prefixes}


def rungs_of(base: str, prefixes: str = ",k,M,G,T,P,E", step: float = 1000.0) -> tuple[tuple[float, str], ...]:
    return tuple((step**power, prefix + base) for power, prefix in enumerate(prefixes.split(",")))


_ONE, _BIT = Fraction(1), Fraction(1, 8)
_DATA = {"B": _ONE, "byte": _ONE, "bytes": _ONE, "b": _BIT, "bit": _BIT, "bits": _BIT}
_DATA_RATE = {f"{word}/s": worth for word, worth in _DATA.items()} | {"Bps": _ONE, "bps": _BIT}
_TIMES = _spell({"s": _ONE}, "n", "u", "m", "") | {"min": ("", Fraction(60)), "h": ("", Fraction(3600))}
_SPEED = {"FLOP/s": _ONE, "FLOPS": _ONE, "OP/s": _ONE, "OPS": _ONE}
BINARY_RUNGS = rungs_of("B", ",Ki,Mi,Gi,Ti,Pi,Ei", 1024.0)

SIZE = Kind(
    "size",
    _spell(_DATA, *DECIMAL_PREFIXES, *BINARY_PREFIXES),
    rungs_of("B"),
    ("MB", "GB", "B"),
    "528 MB",
    10**24,
    "B, kB, MB, GB, TB, PB, EB, KiB ... EiB (bytes), Mb, Gb, Gbit (bits)",
)
RATE = Kind(
    "rate",
    _spell(_DATA_RATE, *DECIMAL_PREFIXES, *BINARY_PREFIXES),
    rungs_of("B/s"),
    ("GB/s", "Gb/s"),
    "26 GB/s",
    10**21,
    "MB/s, GiB/s, GBps (bytes), Gb/s, Gbps (bits), 6000 MT/s x 2, PCIe 4 x16, NVLink 4 x18",
)
TIME = Kind(
    "time",
    _TIMES,
    ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h")),
    ("us", "ms", "s"),
    "12 ms",
    10**10,
    "ns, us, ms, s, min, h",
)
WORK = Kind(
    "FLOP count",
    _spell({"FLOP": _ONE, "FLOPs": _ONE}, *DECIMAL_PREFIXES),
    rungs_of("FLOP"),
    ("GFLOP",),
    "1.76 GFLOP",
    10**30,
    "FLOP, MFLOP, GFLOP, TFLOP, PFLOP",
)
SPEED = Kind(
    "compute rate",
    _spell(_SPEED, *DECIMAL_PREFIXES),
    rungs_of("FLOP/s"),
    ("TFLOP/s",),
    "165 TFLOP/s",
    10**27,
    "GFLOP/s, TFLOP/s, PFLOP/s, TFLOPS, TOPS",
)
KINDS = (SIZE, RATE, TIME, WORK, SPEED)


def value_of(number: str, unit: str, kind: Kind) -> Fraction | None:
    """Exact value in the plain unit; None when it is out of any range the kind can have."""
    if (figure := number_of(number)) is None:
        return None
    prefix, worth = kind.units[unit]
    value = figure * _prefix(prefix) * worth
    return value if value == 0 or SMALLEST <= value <= kind.largest else None


def number_of(text: str) -> Fraction | None:
    """Exact value of a plain number; None where its exponent is absurd, as 10**9999999 would take for ever, or it has
    more digits than Python reads.
    """
    exponent = re.split("[eE]", text)[1:]
    return Fraction(text) if len(text) <= MOST_DIGITS and (not exponent or len(exponent[0]) <= 4) else None


@cache
def _prefix(prefix: str) -> Fraction:
    """Worth of a prefix by quantiphy; exact, as 10**18 and 2**60 are whole in a float."""
    from quantiphy import Quantity  # here, as its import takes longer than the rest of this module

    worth = Quantity(f"1 {prefix}", binary=True).real
    return Fraction(worth) if worth >= 1 else Fraction(1, round(1 / worth))
