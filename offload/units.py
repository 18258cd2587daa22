"""Sizes, rates, times, work and shares as people write them, into bytes, B/s, s, FLOP and FLOP/s, and back.

This is the only place where a unit is read or printed; everything inside counts in the plain units. A text passes a
gate first: a plain number, then a spelling from our own list, in its own case (b is a bit, B a byte; k and K are
1000, Ki is 1024; `FLOP` and `FLOPs` are amounts, `FLOPS`, `FLOP/s` and `TOPS` are rates). What is doubtful is refused
with the spelling that works. quantiphy says what a prefix is worth; the arithmetic is exact (Fraction) to the end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache

from offload.errors import UnitError

EXAMPLE = "Write for example"
LONGEST_TEXT = 80  # characters: no quantity needs more, and a bound keeps digit strings from costing time
SMALLEST = Fraction(1, 10**15)  # below this, in the plain unit, something other than zero is a slip

DECIMAL_PREFIXES = ("", "k", "K", "M", "G", "T", "P", "E")
BINARY_PREFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

PCIE_GIGATRANSFERS = {1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}
PCIE_LANES = (1, 2, 4, 8, 16)
NVLINK = {1: (20, 4), 2: (25, 6), 3: (25, 12), 4: (25, 18), 5: (50, 18)}  # GB/s per link one way, most links of a GPU
CHANNEL_BYTES = 8  # a DDR channel is 64 data bits wide

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"({_NUMBER}) ?([A-Za-z%/ ]*)", re.ASCII)
_CHANNELS = re.compile(rf"({_NUMBER}) ?MT/s ?x ?(\d+)", re.ASCII)
_GIGATRANSFERS = re.compile(rf"({_NUMBER}) ?GT/s(?: ?x ?(\d+))?", re.ASCII)
_RANGE = re.compile(rf"({_NUMBER})([A-Za-z/ ]*)(?:-|\.\.| to ) ?({_NUMBER}) ?([A-Za-z/ ]*)", re.ASCII)
_PCIE = re.compile(r"(?:pcie ?)?(?:gen ?)?(\d+)(?:\.0)? ?x ?(\d+)", re.ASCII | re.IGNORECASE)
_NVLINK = re.compile(r"(?:nvlink ?)?(\d+)(?:\.0)? ?x ?(\d+)", re.ASCII | re.IGNORECASE)
_SLIPS = (  # what a text may not hold, what to say, and what to leave out so that it works
    (r"_", "has an underscore; numbers have none", r"_"),
    (r"^[-+.]*(?:(?i:infinity|inf|nan))(?![a-zA-Z])", "is not a finite figure", r"^.*$"),
    (r"^-", "is negative, which no such figure is", r"^[- ]*"),
    (r"^[+~<>=]", "must start with its digits, without a sign", r"^[+~<>= ]*"),
)
_LOOKALIKES = str.maketrans({"µ": "u", "μ": "u", "×": "x", "–": "-", "—": "-", "−": "-", "≈": "~", "…": ".."})


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


def _rungs(base: str, prefixes: str = ",k,M,G,T,P,E", step: float = 1000.0) -> tuple[tuple[float, str], ...]:
    return tuple((step**power, prefix + base) for power, prefix in enumerate(prefixes.split(",")))


_ONE, _BIT = Fraction(1), Fraction(1, 8)
_DATA = {"B": _ONE, "byte": _ONE, "bytes": _ONE, "b": _BIT, "bit": _BIT, "bits": _BIT}
_DATA_RATE = {f"{word}/s": worth for word, worth in _DATA.items()} | {"Bps": _ONE, "bps": _BIT}
_TIMES = _spell({"s": _ONE}, "n", "u", "m", "") | {"min": ("", Fraction(60)), "h": ("", Fraction(3600))}
_SPEED = {"FLOP/s": _ONE, "FLOPS": _ONE, "OP/s": _ONE, "OPS": _ONE}
_BINARY_RUNGS = _rungs("B", ",Ki,Mi,Gi,Ti,Pi,Ei", 1024.0)

SIZE = Kind("size", _spell(_DATA, *DECIMAL_PREFIXES, *BINARY_PREFIXES), _rungs("B"), ("MB", "GB", "B"), "528 MB",
            10**24, "B, kB, MB, GB, TB, PB, EB, KiB ... EiB (bytes), Mb, Gb, Gbit (bits)")
RATE = Kind("rate", _spell(_DATA_RATE, *DECIMAL_PREFIXES, *BINARY_PREFIXES), _rungs("B/s"), ("GB/s", "Gb/s"),
            "26 GB/s", 10**21, "MB/s, GiB/s, GBps (bytes), Gb/s, Gbps (bits), 6000 MT/s x 2, PCIe 4 x16, NVLink 4 x18")
TIME = Kind("time", _TIMES, ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h")),
            ("us", "ms", "s"), "12 ms", 10**10, "ns, us, ms, s, min, h")
WORK = Kind("FLOP count", _spell({"FLOP": _ONE, "FLOPs": _ONE}, *DECIMAL_PREFIXES), _rungs("FLOP"), ("GFLOP",),
            "1.76 GFLOP", 10**30, "FLOP, MFLOP, GFLOP, TFLOP, PFLOP")
SPEED = Kind("compute rate", _spell(_SPEED, *DECIMAL_PREFIXES), _rungs("FLOP/s"), ("TFLOP/s",), "165 TFLOP/s", 10**27,
             "GFLOP/s, TFLOP/s, PFLOP/s, TFLOPS, TOPS")
KINDS = (SIZE, RATE, TIME, WORK, SPEED)


def parse_bytes(text: object) -> int:
    """Size such as "528 MB", "24 GiB" or "14 Gbit", exactly. [B]  Raises UnitError when it is no whole size."""
    value = _read(text, SIZE)
    if value.denominator != 1:
        raise _refusal(text, "is not a whole number of bytes", f"{max(1, round(value))} B")
    return value.numerator


def parse_rate(text: object) -> float:
    """Rate one way: "26 GB/s", "400 Gb/s", "6000 MT/s x 2" (8-byte channels), "PCIe 4 x16", "NVLink 4 x18". [B/s]

    Raises UnitError when it is no rate.
    """
    plain = re.sub(r" ?/ ?", "/", _plain(text, RATE.example, RATE))
    if channels := _CHANNELS.fullmatch(plain):
        if (rate := _channel_rate(*channels.groups())) is None:
            raise _refusal(text, "is impossible: 100 to 30000 MT/s, 1 to 128 channels", _channels(channels[1]))
        return rate
    if transfers := _GIGATRANSFERS.fullmatch(plain):
        raise _refuse_gigatransfers(text, *transfers.groups())
    if re.match(r"nvlink", plain, re.IGNORECASE):
        return nvlink_rate(*parse_nvlink(text))
    if re.match(r"pcie|gen ?\d|x ?\d|\d+(\.0)? ?x ?\d+$", plain, re.IGNORECASE):
        return pcie_rate(*parse_pcie(text))
    return float(_read(text, RATE))


def parse_rate_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "60..77 GB/s" or "60..70..77 GB/s"; a plain rate is its own ends. [B/s]

    Between two ends the value is their mean. Raises UnitError when an end is no rate or the ends are out of order.
    """
    parts = [part.strip() for part in _plain(text, RATE.example, RATE).split("..")]
    if len(parts) == 1:
        return (parse_rate(text),) * 3
    last = _QUANTITY.fullmatch(parts[-1])
    if len(parts) > 3 or not last or not last[2]:
        raise _refusal(text, "is no range of rates", "60..77 GB/s")
    whole = [f"{part} {last[2]}" if re.fullmatch(_NUMBER, part, re.ASCII) else part for part in parts]
    ends = [float(_read(part, RATE)) for part in whole]
    if ends != sorted(ends):
        raise _refusal(text, "has its ends out of order; the low end comes first", "60..77 GB/s")
    return ends[0], ends[1] if len(ends) == 3 else (ends[0] + ends[1]) / 2, ends[-1]


def parse_seconds(text: object) -> float:
    """Time such as "3.6 us", "80 ns", "12 ms", "2 s", "5 min", "1 h". [s]  Raises UnitError when it is no time."""
    return float(_read(text, TIME))


def parse_flop(text: object) -> float:
    """Amount of work such as "1.76 GFLOP". [FLOP]  Raises UnitError when it is no amount; "GFLOPS" is a rate."""
    return float(_read(text, WORK))


def parse_flops(text: object) -> float:
    """Compute rate such as "165 TFLOP/s", "165 TFLOPS" or "330 TOPS". [FLOP/s]  Raises UnitError, also for "TFLOPs"."""
    return float(_read(text, SPEED))


def parse_share(text: object) -> float:
    """Share above 0 and at most 1, as "50 %", "0.5" or a plain number. [1]  Raises UnitError for anything else."""
    plain = _bare(text) or _plain(text, "85 %")
    digits = plain.removesuffix("%").rstrip()
    number = _number(digits) if re.fullmatch(_NUMBER, digits, re.ASCII) else None
    if number is None:
        raise _refusal(text, "is no share", "85 %", "0.85")
    value = number / 100 if plain.endswith("%") else number
    if SMALLEST <= value <= 1:
        return float(value)
    if value is number and 1 < number <= 100:
        raise UnitError(f"{_shown(text)} is above 1, the whole. "
                        f'Did you mean {float(number / 100):.10g}, that is "{float(number):.10g} %"?')
    raise _refusal(text, "is out of range; a share is above 0 and at most 1 (100 %)", "85 %", "0.85")


def parse_pcie(text: object) -> tuple[int, int]:
    """Generation and lanes of "4 x16", "PCIe 4.0 x16" or "gen4x8".  Raises UnitError when there is no such link."""
    plain = _plain(text, "PCIe 4 x16")
    if found := _PCIE.fullmatch(plain):
        pcie_rate(int(found[1]), int(found[2]))
        return int(found[1]), int(found[2])
    if width := re.fullmatch(r"(?:pcie ?)?x ?(\d+)", plain, re.ASCII | re.IGNORECASE):
        lanes = width[1] if int(width[1]) in PCIE_LANES else 16
        raise _refusal(text, "lacks the PCIe generation", f"PCIe 4 x{lanes}", f"PCIe 5 x{lanes}")
    if alone := re.fullmatch(r"(?:pcie ?)?(?:gen ?)?(\d+)(?:\.0)?", plain, re.ASCII | re.IGNORECASE):
        generation = alone[1] if int(alone[1]) in PCIE_GIGATRANSFERS else 4
        raise _refusal(text, "lacks the number of lanes", f"PCIe {generation} x16")
    raise _refusal(text, "is no PCIe generation and width", "PCIe 4 x16")


def parse_nvlink(text: object) -> tuple[int, int]:
    """Generation and links of "4 x18" or "NVLink 4 x18".  Raises UnitError when there is no such bundle."""
    found = _NVLINK.fullmatch(_plain(text, "NVLink 4 x18"))
    if not found:
        raise _refusal(text, "needs the NVLink generation and the number of links", "NVLink 4 x18")
    nvlink_rate(int(found[1]), int(found[2]))
    return int(found[1]), int(found[2])


def pcie_rate(generation: int, lanes: int) -> float:
    """PCIe rate in one direction after encoding: GT/s x lanes / 8 x encoding. [B/s]

    The encoding is 8/10 in generations 1 and 2, 128/130 in 3 to 5 (PCI Express Base Specification); in 6 it is the 236
    of each 256-byte flit that carry packets. Raises UnitError for a generation or width that does not exist.
    """
    if generation not in PCIE_GIGATRANSFERS:
        raise _refusal(f"PCIe {generation} x{lanes}", "has no known generation (1 to 6)", "PCIe 4 x16")
    if lanes not in PCIE_LANES:
        wrong = f"has an impossible width (x{', x'.join(map(str, PCIE_LANES))})"
        raise _refusal(f"PCIe {generation} x{lanes}", wrong, f"PCIe {generation} x16")
    encoding = Fraction(8, 10) if generation <= 2 else Fraction(128, 130) if generation <= 5 else Fraction(236, 256)
    return float(Fraction(PCIE_GIGATRANSFERS[generation]) * 10**9 * lanes / 8 * encoding)


def nvlink_rate(generation: int, links: int) -> float:
    """NVLink rate in one direction: 20, 25, 25, 25, 50 GB/s per link in generations 1 to 5 (NVIDIA data sheets). [B/s]

    Raises UnitError for what does not exist, and for up to four links of generation 3: their rate depends on the part.
    """
    given = f"NVLink {generation} x{links}"
    if generation not in NVLINK:
        raise _refusal(given, "has no known generation (1 to 5)", "NVLink 4 x18")
    gigabytes, most = NVLINK[generation]
    if not 1 <= links <= most:
        raise _refusal(given, f"is impossible: a GPU has 1 to {most} such links", f"NVLink {generation} x{most}")
    if generation == 3 and links <= 4:
        wrong = "depends on the part: 25 GB/s per link on an A100, 14.0625 on an RTX 3090 or A6000"
        raise _refusal(given, wrong, f"{25 * links} GB/s", f"{14.0625 * links:g} GB/s")
    return float(gigabytes * links * 10**9)


def format_bytes(size: float, digits: int = 3) -> str:
    """Size [B] in decimal units: 21.49e9 -> "21.5 GB"."""
    return _print(size, SIZE.rungs, digits)


def format_bytes_both(size: float, digits: int = 3) -> str:
    """Size [B] both ways, with the same number of digits: 24 * 2**30 -> "25.8 GB (24.0 GiB)"."""
    if abs(size) < 1000:
        return _print(size, SIZE.rungs, digits)
    return f"{_print(size, SIZE.rungs, digits, pad=True)} ({_print(size, _BINARY_RUNGS, digits, pad=True)})"


def format_rate(rate: float, digits: int = 3) -> str:
    """Rate [B/s] in decimal units: 96e9 -> "96 GB/s"."""
    return _print(rate, RATE.rungs, digits)


def format_rate_both(rate: float, digits: int = 3) -> str:
    """Rate [B/s] in bytes and in bits: 50e9 -> "50 GB/s (400 Gb/s)"."""
    return f"{_print(rate, RATE.rungs, digits)} ({_print(rate * 8, _rungs('b/s'), digits)})"


def format_seconds(seconds: float, digits: int = 3) -> str:
    """Time [s]: 0.252 -> "252 ms"; from 1000 s on in minutes, from 1000 minutes on in hours."""
    return _print(seconds, TIME.rungs, digits)


def format_flop(work: float, digits: int = 3) -> str:
    """Amount of work [FLOP]: 1.76e9 -> "1.76 GFLOP"."""
    return _print(work, WORK.rungs, digits)


def format_flops(speed: float, digits: int = 3) -> str:
    """Compute rate [FLOP/s]: 165e12 -> "165 TFLOP/s"."""
    return _print(speed, SPEED.rungs, digits)


def format_share(share: float, digits: int = 3) -> str:
    """Share [1] in per cent: 0.84 -> "84 %"."""
    return _print(share, ((0.01, "%"),), digits)


def _print(value: float, rungs: tuple[tuple[float, str], ...], digits: int, *, pad: bool = False) -> str:
    """The value on the first rung where, once rounded, less than 1000 stands before the unit; never inf or nan."""
    if not 1 <= digits <= 4:
        raise ValueError(f"1 to 4 significant digits, not {digits}: no figure here is known better")
    if not abs(value) <= 1e300:
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


def _read(given: object, kind: Kind) -> Fraction:
    """Value of a text in the kind's plain unit, exactly, or UnitError with the spelling that works."""
    plain = _plain(given, kind.example, kind)
    split = _QUANTITY.fullmatch(plain)
    if not split:
        raise _refuse_form(given, plain, kind)
    number, unit = split[1], re.sub(r" ?/ ?", "/", split[2].strip())
    if unit not in kind.units:
        raise _refuse_unit(given, number, unit, kind)
    value = _value(number, unit, kind)
    if value is None:
        raise _refusal(given, f"is too large or too small for a {kind.name}; check the unit", kind.example, say=EXAMPLE)
    return value


def _value(number: str, unit: str, kind: Kind) -> Fraction | None:
    """Exact value in the plain unit; None when it is out of any range the kind can have."""
    if (figure := _number(number)) is None:
        return None
    prefix, worth = kind.units[unit]
    value = figure * _prefix(prefix) * worth
    return value if value == 0 or SMALLEST <= value <= kind.largest else None


def _number(text: str) -> Fraction | None:
    """Exact value of a plain number; None where its exponent is absurd, as 10**9999999 would take for ever."""
    exponent = re.split("[eE]", text)[1:]
    return Fraction(text) if not exponent or len(exponent[0]) <= 4 else None


@cache
def _prefix(prefix: str) -> Fraction:
    """Worth of a prefix by quantiphy; exact, as 10**18 and 2**60 are whole in a float."""
    from quantiphy import Quantity  # here, as its import takes longer than the rest of this module

    worth = Quantity(f"1 {prefix}", binary=True).real
    return Fraction(worth) if worth >= 1 else Fraction(1, round(1 / worth))


def _plain(given: object, example: str, kind: Kind | None = None) -> str:
    """The text with single spaces and plain letters, or UnitError for what is no text or holds odd characters."""
    given = "" if given is None else given  # an empty value in a file
    if kind and (number := _bare(given)):
        raise _refuse_bare(given, number, kind)
    if not isinstance(given, str):
        raise _refusal(given, "is no text with a number and a unit", example, say=EXAMPLE)
    plain = " ".join(given.translate(_LOOKALIKES).split())
    if not plain or len(plain) > LONGEST_TEXT:
        raise _refusal(given, "is empty" if not plain else "is too long for a quantity", example, say=EXAMPLE)
    for character in plain:
        if not character.isascii() or not character.isprintable():
            name = unicodedata.name(character, "not printable")
            hint = "retype it with the digits 0 to 9" if character.isdigit() else "retype it in plain letters"
            raise _refusal(given, f"holds U+{ord(character):04X} ({name}); {hint}", example, say=EXAMPLE)
    return plain


def _channel_rate(transfers: str, channels: str) -> float | None:
    """MT/s x channels x 8 bytes; None outside 100 to 30000 MT/s and 1 to 128 channels."""
    rate, count = _number(transfers), int(channels)
    possible = rate is not None and 100 <= rate <= 30000 and 1 <= count <= 128
    return float(rate * 10**6 * CHANNEL_BYTES * count) if possible else None


def _channels(transfers: str, channels: str = "2") -> str:
    return f"{transfers} MT/s x {channels}" if _channel_rate(transfers, channels) else "6000 MT/s x 2"


def _refusal(given: object, wrong: str, *works: str, say: str = "Write") -> UnitError:
    """The error: what was given, what is wrong with it, the spelling that works."""
    return UnitError(f"{_shown(given)} {wrong}. {say} " + " or ".join(f'"{text}"' for text in works) + ".")


def _refuse(given: object, wrong: str, kind: Kind, *candidates: str) -> UnitError:
    """A refusal that offers only those candidates that are themselves readable, else the kind's example."""
    works = [text for text in dict.fromkeys(candidates) if _works(text, kind)]
    return _refusal(given, wrong, *works) if works else _refusal(given, wrong, kind.example, say=EXAMPLE)


def _works(text: str, kind: Kind) -> bool:
    split = _QUANTITY.fullmatch(text)
    value = _value(split[1], split[2], kind) if split and split[2] in kind.units else None
    return value is not None and (kind is not SIZE or value.denominator == 1)


def _refuse_bare(given: object, number: str, kind: Kind) -> UnitError:
    """A number without a unit: a large one was probably in the plain unit, a small one in a usual unit."""
    figure = _number(number) if re.fullmatch(_NUMBER, number, re.ASCII) else None
    if figure is None:
        return _refusal(given, "is negative, not finite or too long", kind.example, say=EXAMPLE)
    if kind is not TIME and 10**6 <= figure <= kind.largest:
        worth, unit = max(rung for rung in kind.rungs if rung[0] <= figure)
        short = f"{float(figure / Fraction(worth)):.10g} {unit}"
        exact = _works(short, kind) and _read(short, kind) == figure
        return _refuse(given, "has no unit", kind, short if exact else f"{number} {kind.rungs[0][1]}")
    return _refuse(given, "has no unit", kind, *(f"{number} {unit}" for unit in kind.usual))


def _refuse_form(given: object, plain: str, kind: Kind) -> UnitError:
    """The text does not even have the form of a number and a unit."""
    if re.search(r"\d,\d", plain):
        whole = plain.replace(",", "") if re.match(r"\d{1,3}(,\d{3})+(?!\d)", plain) else ""
        wrong = "has a comma; numbers have none, and a decimal point is a dot"
        return _refuse(given, wrong, kind, whole, plain.replace(",", ".", 1))
    for pattern, wrong, surplus in _SLIPS:
        if re.search(pattern, plain):
            return _refuse(given, wrong, kind, re.sub(surplus, "", plain))
    if ends := _RANGE.fullmatch(plain):
        unit = next((u for u in (ends[4].strip(), ends[2].strip()) if u in kind.units), kind.usual[0])
        wrong = f"is a range, where one figure is due (a range, where one is taken, is {ends[1]}..{ends[3]} {unit})"
        return _refuse(given, wrong, kind, f"{ends[1]} {unit}", f"{ends[3]} {unit}")
    if kind is RATE and (memory := re.search(r"(?:DDR\dX?-)?(\d{3,5})", plain)) and re.search("DDR|MT/s", plain):
        return _refusal(given, "needs a speed, then the number of 8-byte channels", _channels(memory[1]))
    if _works(f"1 {plain}", kind):
        return _refuse(given, "lacks its number", kind, f"{kind.example.split()[0]} {plain}")
    return _refuse(given, f"is no {kind.name}: a number, then one of {kind.spellings}", kind)


def _refuse_unit(given: object, number: str, unit: str, kind: Kind) -> UnitError:
    """The number stands; the unit is missing, of another kind, or misspelt."""
    if not unit:
        return _refuse_bare(given, number, kind)
    if kind is RATE and unit in ("MT/s", "MHz"):
        return _refusal(given, "lacks the number of 8-byte channels", _channels(number))
    if unit in DECIMAL_PREFIXES or unit in BINARY_PREFIXES or unit in ("m", "u", "n"):
        named = (f"{number} {unit}{rest}" for rest in ("B", "b", "B/s", "b/s", "s", "in", "FLOP", "FLOP/s"))  # m: min
        return _refuse(given, f'has a prefix, "{unit}", but no unit', kind, *named)
    for other in KINDS:
        if unit in other.units:
            stem = re.sub(r"/s$|ps$|s$|S$", "", unit)
            wrong = f"is a {other.name}, where a {kind.name} is due"
            return _refuse(given, wrong, kind, f"{number} {stem}", f"{number} {stem}/s")
    near = [known for known in kind.units if known.casefold() == unit.casefold()]
    wrong = f'has the unit "{unit}" in the wrong case' + " (b is a bit, B a byte)" * (kind in (SIZE, RATE))
    if re.fullmatch(r"[munp](B|b|bytes?|bits?)(/s|ps)?", unit):
        wrong = f'has the prefix "{unit[0]}", but there are no thousandths of a byte or bit'
        near = near or [prefix + unit[1:] for prefix in ("k", "M", "G")]
    elif not near:  # never the most alike by its letters: that may be another prefix, 1000 times off
        wrong = f'has a unit, "{unit}", that is none for a {kind.name}; known are {kind.spellings}'
        near = [re.sub(r"sec(onds?)?$", "s", unit)]
    return _refuse(given, wrong, kind, *(f"{number} {known}" for known in near))


def _refuse_gigatransfers(given: object, transfers: str, lanes: str | None) -> UnitError:
    figure, works = _number(transfers), "26 GB/s"
    if generation := next((known for known, rate in PCIE_GIGATRANSFERS.items() if rate == figure), None):
        works = f"PCIe {generation} x{lanes if lanes and int(lanes) in PCIE_LANES else 16}"
    elif lanes and figure and figure < 10**6:
        works = _channels(f"{float(figure * 1000):.10g}", lanes)
    return _refusal(given, "counts transfers, not bytes", works)


def _bare(given: object) -> str | None:
    """Text of a bare number, None for what is none; Python refuses to print very long ones."""
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        return None
    return repr(given).removesuffix(".0") if isinstance(given, float) or abs(given) < 10**40 else "an endless number"


def _shown(given: object) -> str:
    """What was given, short, printable and in quotes."""
    text = _bare(given) or (given if isinstance(given, str) else f"a {type(given).__name__}")
    text = str(given).lower() if isinstance(given, bool) else text if len(text) <= 40 else text[:37] + "..."
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'
