"""Texts into bytes, B/s, s, FLOP, FLOP/s and shares."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import cast

from offload.errors import UnitError
from offload.units.encodings import (
    GIGATRANSFERS,
    nvlink_rate,
    parse_nvlink,
    parse_pcie,
    pcie_rate,
    refuse_gigatransfers,
)
from offload.units.gate import EXAMPLE, bare, channel_rate, channels_text, plain_text, read, refusal, shown
from offload.units.kinds import NUMBER, QUANTITY, RATE, SIZE, SMALLEST, SPEED, TIME, WORK, Kind, number_of
from offload.units.printing import format_bytes
from offload.units.remarks import remark

_SIGNED = re.compile(rf"([-+~<>=]*(?:{NUMBER}|inf(?:inity)?|nan)) ?([A-Za-z%/ ]*)", re.ASCII | re.IGNORECASE)
_DASHED = re.compile(rf"({NUMBER}) ?([A-Za-z%/ ]*?) ?(?:-| to ) ?({NUMBER}) ?([A-Za-z%/ ]*)", re.ASCII)
IN_BITS = re.compile(r"(?<![A-Za-z])([A-Za-z]i?)?(?:b|[bB]its?)\s*$", re.ASCII)
CHANNELS = re.compile(rf"({NUMBER}) ?MT/s ?x ?(\d+)", re.ASCII)


def parse_bytes(text: object) -> int:
    """Size such as "528 MB", "24 GiB" or "14 Gbit", exactly. [B]  Raises UnitError when it is no whole size."""
    value = read(text, SIZE)
    if isinstance(text, str) and (bits := IN_BITS.search(text)):
        whole = f"{bits[1]}B" if bits[1] else "B"
        remark(f"{shown(text)} is read in bits, 8 to a byte: {format_bytes(value, 4)}. For bytes write {whole}.")
    if value.denominator != 1:
        raise refusal(text, "is not a whole number of bytes", f"{max(1, round(value))} B")
    return value.numerator


def parse_rate(text: object) -> float:
    """Rate one way: "26 GB/s", "400 Gb/s", "6000 MT/s x 2" (8-byte channels), "PCIe 4 x16", "NVLink 4 x18". [B/s]

    Raises UnitError when it is no rate.
    """
    plain = re.sub(r" ?/ ?", "/", plain_text(text, RATE.example, RATE))
    if channels := CHANNELS.fullmatch(plain):
        if (rate := channel_rate(*channels.groups())) is None:
            raise refusal(text, "is impossible: 100 to 30000 MT/s, 1 to 128 channels", channels_text(channels[1]))
        return rate
    if transfers := GIGATRANSFERS.fullmatch(plain):
        raise refuse_gigatransfers(text, *transfers.groups())
    if re.match(r"nvlink", plain, re.IGNORECASE):
        return nvlink_rate(*parse_nvlink(text))
    if re.match(r"pcie|gen ?\d|x ?\d|\d+(\.0)? ?x ?\d+$", plain, re.IGNORECASE):
        return pcie_rate(*parse_pcie(text))
    return float(read(text, RATE))


def parse_rate_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "60..77 GB/s" or "60..70..77 GB/s"; a plain rate is its own ends. [B/s]

    Between two ends the value is their mean. Raises UnitError when an end is no rate or the ends are out of order.
    """
    return interval(text, lambda part: float(read(part, RATE)), parse_rate, RATE)


def parse_bytes_interval(text: object) -> tuple[int, int, int]:
    """Low end, value and high end of "1..2 GB" or "1..1.2..2 GB"; a plain size is its own ends. [B]

    Between two ends the value is their mean, to a whole byte below. Raises UnitError when an end is no whole size or
    the ends are out of order.
    """
    low, value, high = interval(text, parse_bytes, parse_bytes, SIZE)
    least, most = cast(tuple[int, int], (low, high))  # as `parse_bytes` reads them
    return least, value if isinstance(value, int) else (least + most) // 2, most


def parse_flop_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "1..2 TFLOP" or "1..1.2..2 TFLOP"; a plain amount is its own ends. [FLOP]

    Between two ends the value is their mean. Raises UnitError when an end is no amount or the ends are out of order.
    """
    return interval(text, parse_flop, parse_flop, WORK)


def parse_flops_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "90..110 TFLOP/s" or "90..95..110 TFLOP/s"; a plain rate is its own ends. [FLOP/s]

    Between two ends the value is their mean. Raises UnitError when an end is no rate or the ends are out of order.
    """
    return interval(text, parse_flops, parse_flops, SPEED)


def parse_share_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "80 %", "75..85 %" or "75..80..85 %", as shares. [1]  Raises UnitError."""
    return interval(text, parse_share, parse_share, None)


def parse_seconds_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "0.9..1.1 ms" or "0.9..1..1.1 ms"; a plain time is its own ends. [s]

    Between two ends the value is their mean. Raises UnitError when an end is no time or the ends are out of order.
    """
    return interval(text, parse_seconds, parse_seconds, TIME)


def interval(
    text: object, parse: Callable[[str], float], parse_plain: Callable[[object], float], kind: Kind | None
) -> tuple[float, float, float]:
    """Low end, value and high end of a text by the parser of its ends; `kind` of the quantity, None for a share.

    parse_plain : what reads a text that is no range. Between two ends the value is their mean. Raises UnitError.
    """
    usual, example = (("%",), "85 %") if kind is None else (kind.usual, kind.example)
    plain = plain_text(text, example, kind)
    if (dashed := _DASHED.fullmatch(plain)) and not QUANTITY.fullmatch(plain) and ".." not in plain:
        plain = f"{dashed[1]}{dashed[2]}..{dashed[3]} {dashed[4]}"
        wrong = 'is a range, which is written with ".."'
        raise _refuse_interval(text, wrong, plain.split(".."), usual, example, parse_plain)
    if "..." in plain:
        wrong = "is no range: two dots stand between its ends"
        raise _refuse_interval(text, wrong, re.split(r"\.{3,}|\.\.", plain), usual, example, parse_plain)
    parts = [part.strip() for part in plain.split("..")]
    if len(parts) == 1:
        return (parse_plain(text),) * 3
    last = _SIGNED.fullmatch(parts[-1])
    if len(parts) > 3 or not all(parts):
        wrong = "is no range: it has a low end, a high end, and at most one figure between"
        raise _refuse_interval(text, wrong, parts, usual, example, parse_plain)
    if last and not last[2].strip():
        raise _refuse_interval(text, "is a range that lacks its unit", parts, usual, example, parse_plain)
    whole = [f"{part} {last[2]}" if last and (own := _SIGNED.fullmatch(part)) and not own[2].strip() else part
             for part in parts]  # fmt: skip
    if kind is SIZE and (exact := [read(part, SIZE) for part in whole]) != [round(size) for size in exact]:
        least, *between, most = sorted(exact)
        outward = [math.floor(least), *map(round, between), math.ceil(most)]
        raise refusal(text, "has ends that are no whole numbers of bytes", "..".join(map(str, outward)) + " B")
    ends = [parse(part) for part in whole]
    if ends != sorted(ends):
        wrong = "has its figures out of order; the low end comes first"
        raise _refuse_interval(text, wrong, parts, usual, example, parse_plain)
    return ends[0], ends[1] if len(ends) == 3 else (ends[0] + ends[1]) / 2, ends[-1]


def _refuse_interval(
    given: object, wrong: str, parts: list[str], usual: tuple[str, ...], example: str,
    parse: Callable[[object], float],
) -> UnitError:
    """A refusal that offers the figures given, in order and with a unit; where they cannot be read, an example."""
    matched = [QUANTITY.fullmatch(part.strip()) for part in parts if part.strip()]
    split = [one for one in matched if one]
    if not split or len(split) < len(matched):
        return refusal(given, wrong, f"60..77 {example.split()[1]}", say=EXAMPLE)
    own = split[-1][2].strip()
    works = []
    for unit in (own,) if own else usual:
        numbers = {f"{one[1]} {one[2].strip() or unit}": one[1] for one in split}
        try:
            figures = {text: (parse(text), number) for text, number in numbers.items()}
        except UnitError:
            continue
        texts = sorted(figures, key=lambda text: figures[text])
        if len({text.split()[1] for text in texts}) == 1:
            texts = [*(text.split()[0] for text in texts[:-1]), texts[-1]]
        works.append("..".join(texts if len(texts) <= 3 else (texts[0], texts[-1])))
    if not works:
        return refusal(given, wrong, f"60..77 {example.split()[1]}", say=EXAMPLE)
    return refusal(given, wrong, *works)


def parse_seconds(text: object) -> float:
    """Time such as "3.6 us", "80 ns", "12 ms", "2 s", "5 min", "1 h". [s]  Raises UnitError when it is no time."""
    return float(read(text, TIME))


def parse_flop(text: object) -> float:
    """Amount of work such as "1.76 GFLOP". [FLOP]  Raises UnitError when it is no amount; "GFLOPS" is a rate."""
    return float(read(text, WORK))


def parse_flops(text: object) -> float:
    """Compute rate such as "165 TFLOP/s", "165 TFLOPS" or "330 TOPS". [FLOP/s]  Raises UnitError, also for "TFLOPs"."""
    return float(read(text, SPEED))


def parse_share(text: object) -> float:
    """Share above 0 and at most 1, as "50 %", "0.5" or a plain number. [1]  Raises UnitError for anything else."""
    plain = bare(text) or plain_text(text, "85 %")
    digits = plain.removesuffix("%").rstrip()
    number = number_of(digits) if re.fullmatch(NUMBER, digits, re.ASCII) else None
    examples = ("85 %",) if plain.endswith("%") else ("85 %", "0.85")
    if number is None:
        raise refusal(text, "is no share", *examples, say=EXAMPLE)
    value = number / 100 if plain.endswith("%") else number
    if SMALLEST <= value <= 1:
        return float(value)
    if value is number and 1 < number <= 100:
        raise UnitError(
            f"{shown(text)} is above 1, the whole. "
            f'Did you mean {float(number / 100):.10g}, that is "{float(number):.10g} %"?'
        )
    raise refusal(text, "is out of range; a share is above 0 and at most 1 (100 %)", *examples, say=EXAMPLE)
