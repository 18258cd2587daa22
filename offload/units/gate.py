"""The gate that every text passes: a plain number and a spelling of ours, or a refusal with the spelling that works."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from offload.errors import UnitError
from offload.units.kinds import (
    BINARY_PREFIXES,
    DECIMAL_PREFIXES,
    KINDS,
    NUMBER,
    QUANTITY,
    RATE,
    SIZE,
    TIME,
    Kind,
    number_of,
    value_of,
)

EXAMPLE = "For example, this would be read:"  # what follows is no guess at what was meant
LONGEST_TEXT = 80  # characters: no quantity needs more, and a bound keeps digit strings from costing time
CHANNEL_BYTES = 8  # a DDR channel is 64 data bits wide

RANGE = re.compile(rf"({NUMBER})([A-Za-z/ ]*)(?:-|\.\.| to ) ?({NUMBER}) ?([A-Za-z/ ]*)", re.ASCII)
SPREAD = re.compile(rf"{NUMBER} ?\.\. ?({NUMBER}) ?\.\. ?{NUMBER} ?([A-Za-z/]+)", re.ASCII)
_SLIPS = (  # what a text may not hold, what to say, and what to leave out so that it works
    (r"_", "has an underscore; numbers have none", r"_"),
    (r"^[-+.]*(?:(?i:infinity|inf|nan))(?![a-zA-Z])", "is not a finite figure", r"^.*$"),
    (r"^-", "is negative, which no such figure is", r"^[- ]*"),
    (r"^[+~<>=]", "must start with its digits, without a sign", r"^[+~<>= ]*"),
)
_LOOKALIKES = str.maketrans({"µ": "u", "μ": "u", "×": "x", "–": "-", "—": "-", "−": "-", "≈": "~", "…": ".."})


def read(given: object, kind: Kind) -> Fraction:
    """Value of a text in the kind's plain unit, exactly, or UnitError with the spelling that works."""
    return _known(str(given), kind) if isinstance(given, str) else _read(given, kind)


def _read(given: object, kind: Kind) -> Fraction:
    plain = plain_text(given, kind.example, kind)
    split = QUANTITY.fullmatch(plain)
    if not split:
        raise _refuse_form(given, plain, kind)
    number, unit = split[1], re.sub(r" ?/ ?", "/", split[2].strip())
    if unit not in kind.units:
        raise _refuse_unit(given, number, unit, kind)
    value = value_of(number, unit, kind)
    if value is None:
        raise refusal(given, f"is too large or too small for a {kind.name}; check the unit", kind.example, say=EXAMPLE)
    return value


_known = lru_cache(maxsize=4096)(_read)  # a server states one rate of many parts, and a sweep reads its plan again


def plain_text(given: object, example: str, kind: Kind | None = None) -> str:
    """The text with single spaces and plain letters, or UnitError for what is no text or holds odd characters."""
    given = "" if given is None else given  # an empty value in a file
    if kind and (number := bare(given)):
        raise _refuse_bare(given, number, kind)
    if not isinstance(given, str):
        raise refusal(given, "is no text with a number and a unit", example, say=EXAMPLE)
    plain = " ".join(given.translate(_LOOKALIKES).split())
    if not plain or len(plain) > LONGEST_TEXT:
        raise refusal(given, "is empty" if not plain else "is too long for a quantity", example, say=EXAMPLE)
    for character in plain if not (plain.isascii() and plain.isprintable()) else "":
        if not character.isascii() or not character.isprintable():
            name = unicodedata.name(character, "not printable")
            hint = "retype it with the digits 0 to 9" if character.isdigit() else "retype it in plain letters"
            raise refusal(given, f"holds U+{ord(character):04X} ({name}); {hint}", example, say=EXAMPLE)
    return plain


def channel_rate(transfers: str, channels: str) -> float | None:
    """MT/s x channels x 8 bytes; None outside 100 to 30000 MT/s and 1 to 128 channels."""
    rate, count = number_of(transfers), int(channels)
    if rate is None or not (100 <= rate <= 30000 and 1 <= count <= 128):
        return None
    return float(rate * 10**6 * CHANNEL_BYTES * count)


def channels_text(transfers: str, channels: str = "2") -> str:
    return f"{transfers} MT/s x {channels}" if channel_rate(transfers, channels) else "6000 MT/s x 2"


def refusal(given: object, wrong: str, *works: str, say: str = "Write") -> UnitError:
    """The error: what was given, what is wrong with it, the spelling that works."""
    return UnitError(f"{shown(given)} {wrong}. {say} " + " or ".join(f'"{text}"' for text in works) + ".")


def refusal_of(given: object, wrong: str, kind: Kind, *candidates: str) -> UnitError:
    """A refusal that offers only those candidates that are themselves readable, else the kind's example."""
    readable = [text for text in dict.fromkeys(candidates) if works(text, kind)]
    return refusal(given, wrong, *readable) if readable else refusal(given, wrong, kind.example, say=EXAMPLE)


def works(text: str, kind: Kind) -> bool:
    split = QUANTITY.fullmatch(text)
    value = value_of(split[1], split[2], kind) if split and split[2] in kind.units else None
    return value is not None and (kind is not SIZE or value.denominator == 1)


def _refuse_bare(given: object, number: str, kind: Kind) -> UnitError:
    """A number without a unit: a large one was probably in the plain unit, a small one in a usual unit."""
    figure = number_of(number) if re.fullmatch(NUMBER, number, re.ASCII) else None
    if figure is None:
        return refusal(given, "is negative, not finite or too long", kind.example, say=EXAMPLE)
    if kind is not TIME and 10**6 <= figure <= kind.largest:
        worth, unit = max(rung for rung in kind.rungs if rung[0] <= figure)
        short = f"{float(figure / Fraction(worth)):.10g} {unit}"
        exact = works(short, kind) and read(short, kind) == figure
        return refusal_of(given, "has no unit", kind, short if exact else f"{number} {kind.rungs[0][1]}")
    return refusal_of(given, "has no unit", kind, *(f"{number} {unit}" for unit in kind.usual))


def _refuse_form(given: object, plain: str, kind: Kind) -> UnitError:
    """The text does not even have the form of a number and a unit."""
    if re.search(r"\d,\d", plain):
        whole = plain.replace(",", "") if re.match(r"\d{1,3}(,\d{3})+(?!\d)", plain) else ""
        wrong = "has a comma; numbers have none, and a decimal point is a dot"
        return refusal_of(given, wrong, kind, whole, plain.replace(",", ".", 1))
    for pattern, wrong, surplus in _SLIPS:
        if re.search(pattern, plain):
            return refusal_of(given, wrong, kind, re.sub(surplus, "", plain))
    if spread := SPREAD.fullmatch(plain):
        wrong = "is a range with its usual value, where one figure is due"
        return refusal_of(given, wrong, kind, f"{spread[1]} {spread[2]}")
    if (ends := RANGE.fullmatch(plain)) and _known_unit(ends[4].strip() or ends[2].strip()):
        last_unit = ends[4].strip() or ends[2].strip()
        unit = last_unit if last_unit in kind.units else kind.usual[0]
        first_unit = ends[2].strip() if ends[2].strip() in kind.units else unit
        wrong = "is a range, where one figure is due"
        if ".." not in plain:
            first, last = sorted((ends[1], ends[3]), key=lambda end: number_of(end) or 0)
            wrong += f" (keys that take a range have it as {first}..{last} {unit})"
        if last_unit and last_unit not in kind.units:
            return refusal_of(given, f"{wrong}, and its unit is none of a {kind.name}", kind)
        return refusal_of(given, wrong, kind, f"{ends[1]} {first_unit}", f"{ends[3]} {unit}")
    if kind is RATE and (memory := re.search(r"(?:DDR\dX?-)?(\d{3,5})", plain)) and re.search("DDR|MT/s", plain):
        return refusal(given, "needs a speed, then the number of 8-byte channels", channels_text(memory[1]))
    if works(f"1 {plain}", kind):
        return refusal_of(given, "lacks its number", kind, f"{kind.example.split()[0]} {plain}")
    return refusal_of(given, f"is no {kind.name}: a number, then one of {kind.spellings}", kind)


def _known_unit(unit: str) -> bool:
    """Whether a unit is none, or one of any kind: "MT/s x" between two figures makes no range of them."""
    return not unit or any(unit in kind.units for kind in KINDS)


def _refuse_unit(given: object, number: str, unit: str, kind: Kind) -> UnitError:
    """The number stands; the unit is missing, of another kind, or misspelt."""
    if not unit:
        return _refuse_bare(given, number, kind)
    if kind is RATE and unit in ("MT/s", "MHz"):
        return refusal(given, "lacks the number of 8-byte channels", channels_text(number))
    if unit in DECIMAL_PREFIXES or unit in BINARY_PREFIXES or unit in ("m", "u", "n"):
        named = (f"{number} {unit}{rest}" for rest in ("B", "b", "B/s", "b/s", "s", "in", "FLOP", "FLOP/s"))  # m: min
        return refusal_of(given, f'has a prefix, "{unit}", but no unit', kind, *named)
    for other in KINDS:
        if unit in other.units:
            stem = re.sub(r"/s$|ps$|s$|S$", "", unit)
            wrong = f"is a {other.name}, where a {kind.name} is due"
            return refusal_of(given, wrong, kind, f"{number} {stem}", f"{number} {stem}/s")
    near = [known for known in kind.units if known.casefold() == unit.casefold()]
    wrong = f'has the unit "{unit}" in the wrong case' + " (b is a bit, B a byte)" * (kind in (SIZE, RATE))
    if re.fullmatch(r"[munp](B|b|bytes?|bits?)(/s|ps)?", unit):
        wrong = f'has the prefix "{unit[0]}", but there are no thousandths of a byte or bit'
        near = near or [prefix + unit[1:] for prefix in ("k", "M", "G")]
    elif not near:  # never the most alike by its letters: that may be another prefix, 1000 times off
        wrong = f'has a unit, "{unit}", that is none for a {kind.name}; known are {kind.spellings}'
        near = [re.sub(r"sec(onds?)?$", "s", unit)]
    return refusal_of(given, wrong, kind, *(f"{number} {known}" for known in near))


def bare(given: object) -> str | None:
    """Text of a bare number, None for what is none; Python refuses to print very long ones."""
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        return None
    return repr(given).removesuffix(".0") if isinstance(given, float) or abs(given) < 10**40 else "an endless number"


def shown(given: object) -> str:
    """What was given, short, printable and in quotes."""
    text = bare(given) or (given if isinstance(given, str) else f"a {type(given).__name__}")
    text = str(given).lower() if isinstance(given, bool) else text if len(text) <= 40 else text[:37] + "..."
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'
