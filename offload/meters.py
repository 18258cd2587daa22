"""Meters: what else a step costs, linear in its time and its loads, by coefficients that a user states.

An energy, money, wear of a drive: a value per second, per byte that a part carries, per FLOP. Nothing is assumed of
them; what a meter shows is an estimate from these coefficients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from offload.errors import OffloadError, UnitError, did_you_mean, one_line
from offload.units import parse_bytes
from offload.units.kinds import NUMBER, SIZE, TIME, WORK, number_of, value_of

JOULE = "J"
ENERGY = {  # spelling -> J
    **{f"{prefix}J": Fraction(10) ** power
       for prefix, power in (("p", -12), ("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6))},
    "Wh": Fraction(3600), "kWh": Fraction(3_600_000),
}  # fmt: skip
POWER = {"mW": Fraction(1, 1000), "W": Fraction(1), "kW": Fraction(1000), "MW": Fraction(10**6)}  # spelling -> J/s
EXAMPLES = {"second": "350 W", "hour": "12 USD", "byte": "20 pJ/bit", "flop": "0.6 pJ/FLOP"}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_OWN = re.compile(r"[A-Za-z$\u20ac\u00a3][A-Za-z0-9$\u20ac\u00a3]{0,11}")  # a unit of the user's: USD, gCO2
_AMOUNT = re.compile(rf"({NUMBER}) ?([^\s/0-9.][^\s/]*)(?: ?/ ?([A-Za-z]+))?")
_CONFUSED = ("B", "GB", "TB", "MB", "kB", "GB/s", "s", "ms", "h", "bit", "FLOP")


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: `amount` of the meter's unit for each second, byte or FLOP (`per`: "second", "byte" or "flop").

    of : the part or kind of part whose load counts, "" for time. written : the coefficient as it was given, with "/s"
    or "/h" where a key of a file says that.
    """

    per: str
    of: str
    amount: float
    written: str


@dataclass(frozen=True, slots=True)
class Meter:
    """A meter by its name. unit : "J", a currency or another word of the user's; "B" of what is written to a drive.

    terms : of a sum. drive, endurance : of a meter of wear, the drive (or a kind of memory) whose written bytes count,
    and how many one drive stands [B]. stated : "price" or "power" where the coefficient is the server's own, as its
    file states it (a rent, a power).
    """

    name: str
    unit: str
    terms: tuple[Term, ...] = ()
    drive: str = ""
    endurance: int | None = None
    stated: str = ""


def read_amount(text: object, per: str) -> tuple[float, str]:
    """A coefficient as (amount per plain unit, the meter's unit): "350 W" per second is (350, "J").

    per : "second", "hour", "byte" or "flop". Raises UnitError for what is none, with how it is written.
    """
    written = one_line(str(text).strip())
    example = EXAMPLES[per]
    match = _AMOUNT.fullmatch(str(text).strip())
    if match is None:
        if re.match(r"\s*-", str(text)):
            raise UnitError(f'"{written}" is below zero; a meter counts what is used up. Write it as "{example}".')
        if ".." in str(text):
            raise UnitError(f'"{written}" is a range where one figure is due. Write it as "{example}".')
        raise UnitError(f'"{written}" is no amount with a unit. Write it as "{example}".')
    figure, unit, over = match.groups()
    number = number_of(figure)
    if number is None:
        raise UnitError(f'"{written}" is too long for a figure, or its exponent is. Write it as "{example}".')
    if number > 10**18:
        raise UnitError(f'"{written}" is larger than any figure that can be meant.')
    if per in ("second", "hour"):
        return _of_time(number, unit, over, per, written)
    return _of_load(number, unit, over, per, written)


def is_power(text: object) -> bool:
    """Whether an amount that can be read is a power."""
    match = _AMOUNT.fullmatch(str(text).strip())
    return match is not None and match[2] in POWER


def _of_time(number: Fraction, unit: str, over: str | None, per: str, written: str) -> tuple[float, str]:
    due = Fraction(1) if per == "second" else Fraction(3600)
    if unit in POWER:
        if per == "hour" or over:
            raise UnitError(f'"{written}": watts are joules per second already. Write per_second: {written}.')
        return float(number * POWER[unit]), JOULE
    if over is not None:
        if over not in ("s", "second", "h", "hour") or (over[0] == "h") != (per == "hour"):
            raise UnitError(f'"{written}" is not per {per}. Write it as "{EXAMPLES[per]}".')
    if unit in ENERGY:
        return float(number * ENERGY[unit] / due), JOULE
    return float(number / due), _own(unit, written, EXAMPLES[per])


def _of_load(number: Fraction, unit: str, over: str | None, per: str, written: str) -> tuple[float, str]:
    kind, word = (SIZE, "byte") if per == "byte" else (WORK, "FLOP")
    if over is None or over not in kind.units:
        raise UnitError(f'"{written}" is not per {word}. Write it as "{EXAMPLES[per]}".')
    worth = cast(Fraction, value_of("1", over, kind))  # no figure is None but one out of range
    value, own = (number * ENERGY[unit], JOULE) if unit in ENERGY else (number, _own(unit, written, EXAMPLES[per]))
    return float(value / worth), own


def _own(unit: str, written: str, example: str) -> str:
    """A unit of the user's. Raises UnitError for one that means something else."""
    if unit in POWER:
        raise UnitError(f'"{written}": watts are energy over time, and this is per load. Write it as "{example}".')
    if unit in _CONFUSED or unit in SIZE.units or unit in TIME.units or unit in WORK.units:
        raise UnitError(f'"{written}": {unit} is no unit of what a meter counts. Write it as "{example}".')
    near = {one.casefold(): one for one in (*ENERGY, *POWER)}.get(unit.casefold())
    if near is not None:
        raise UnitError(f'"{written}": the unit is spelled {near}.')
    if not _OWN.fullmatch(unit):
        raise UnitError(f'"{written}": "{one_line(unit, 20)}" is no unit. Write it as "{example}".')
    return unit


def one_unit(name: str, units: Sequence[tuple[str, str]]) -> str:
    """The unit that all terms of a meter have. units : (unit, what gave it). Raises UnitError where they differ."""
    first, told = units[0]
    for unit, other in units[1:]:
        if unit != first:
            raise UnitError(f'meter "{name}": "{told}" is in {first} and "{other}" in {unit}, which do not add up. '
                            "Give all terms one unit, or make two meters of them.")
    return first


_WEAR = re.compile(r"(.+?) +(?:written +)?to +(\S.*)")
_LOAD = re.compile(r"(.+?) +of +(\S.*)")


def read_meter(text: str) -> Meter:
    """A meter in one line: "energy: 350 W + 4 pJ/bit of pcie0", "money: 12 USD/h", "wear: 1400 TB written to ssd0".

    Raises OffloadError for what cannot be read.
    """
    name, colon, rest = text.partition(":")
    name = name.strip()
    if not colon or not rest.strip():
        raise OffloadError(f'"{one_line(text)}" is no meter. Write NAME: TERMS, as "energy: 350 W + 4 pJ/bit of '
                           'pcie0".')  # fmt: skip
    check_name(name)
    pieces = [piece.strip() for piece in rest.split(" + ")]
    worn = [match for piece in pieces if (match := _WEAR.fullmatch(piece))]
    if worn:
        if len(pieces) > 1:
            raise OffloadError(f'meter "{name}": wear of a drive has one term, as "1400 TB written to ssd0". Make a '
                               "meter of its own of the rest.")
        return Meter(name, "B", drive=worn[0][2], endurance=read_endurance(worn[0][1]))
    terms, units = [], []
    for piece in pieces:
        term, unit = _term(piece)
        terms.append(term)
        units.append((unit, piece))
    return Meter(name, one_unit(name, units), tuple(terms))


def read_endurance(text: object) -> int:
    """Bytes that may be written to a drive before it is worn [B]. Raises UnitError."""
    value = parse_bytes(text)
    if value < 1:
        raise UnitError(f'"{one_line(str(text))}" is no endurance: write what the data sheet allows to be written, as '
                        '"1400 TB".')
    return value


RESERVED = ("floor", "expected", "tokens")


def check_name(name: str) -> None:
    """Raises OffloadError where a meter may not be called so."""
    if NAME.fullmatch(name) is None:
        raise OffloadError(f'"{one_line(name)}" is no name of a meter: a letter, then letters, digits, - and _.')
    if name in RESERVED:
        raise OffloadError(f'a meter cannot be called "{name}", which servers are ranked by already. Choose another.')


def _term(piece: str) -> tuple[Term, str]:
    written = one_line(piece)
    if load := _LOAD.fullmatch(piece):
        per = "flop" if re.search(r"/ ?[kKMGTPE]?FLOPs?$", load[1]) else "byte"
        amount, unit = read_amount(load[1], per)
        return Term(per, load[2], amount, load[1]), unit
    over = piece.rpartition("/")[2].strip() if "/" in piece else ""
    if over in SIZE.units or over in WORK.units:
        raise UnitError(f'"{written}": of which part? Write "{written} of dram0".')
    if over not in ("", "h", "hour", "s", "second"):
        raise UnitError(f'"{written}": {did_you_mean(over, ("h", "s", "bit", "B", "GB", "FLOP"), "Per")}')
    if not over and not re.search(r"[0-9] ?[mkM]?W$", piece):
        raise _of_nothing(piece)
    amount, unit = read_amount(piece, "hour" if over.startswith("h") else "second")
    return Term("second", "", amount, piece), unit


def _of_nothing(piece: str) -> UnitError:
    """What is wrong with a term that is neither a power, nor per anything: no advice that would be refused itself."""
    written, match = one_line(piece), _AMOUNT.fullmatch(piece)
    if match is None:
        return UnitError(f'"{written}" is no term. Write it as "{EXAMPLES["second"]}", "{EXAMPLES["hour"]}/h" or '
                         f'"{EXAMPLES["byte"]} of dram0".')  # fmt: skip
    if match[2] in SIZE.units:
        return UnitError(f'"{written}" is a size. Of the wear of a drive write "{written} written to ssd0".')
    if match[2] not in ENERGY:
        _own(match[2], written, EXAMPLES["second"])
    return UnitError(f'"{written}": per what? Write "{written}/h", or "{written}/GB of dram0".')
