"""Quantities in and out: every prefix and spelling both ways, exactness, each refusal with what works instead."""

from __future__ import annotations

import re
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import units
from offload.errors import UnitError
from offload.units import (
    format_apart,
    format_bytes,
    format_bytes_both,
    format_flop,
    format_flops,
    format_rate,
    format_rate_both,
    format_seconds,
    format_share,
    nvlink_rate,
    parse_bytes,
    parse_flop,
    parse_flops,
    parse_nvlink,
    parse_pcie,
    parse_rate,
    parse_rate_interval,
    parse_seconds,
    parse_share,
    parse_share_interval,
    pcie_rate,
)

# Written out digit by digit, not computed from the module under test: one prefix wrong is ten or a thousand times off.
PREFIXES = {
    "": 1,
    "k": 1000,
    "K": 1000,
    "M": 1000000,
    "G": 1000000000,
    "T": 1000000000000,
    "P": 1000000000000000,
    "E": 1000000000000000000,
    "Ki": 1024,
    "Mi": 1048576,
    "Gi": 1073741824,
    "Ti": 1099511627776,
    "Pi": 1125899906842624,
    "Ei": 1152921504606846976,
}
DECIMAL = {prefix: worth for prefix, worth in PREFIXES.items() if "i" not in prefix}
BYTE_WORDS, BIT_WORDS = ("B", "byte", "bytes"), ("b", "bit", "bits")
PARSERS = (
    parse_bytes,
    parse_rate,
    parse_rate_interval,
    parse_seconds,
    parse_flop,
    parse_flops,
    parse_share,
    parse_share_interval,
    parse_pcie,
    parse_nvlink,
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("space", ["", " ", "\u00a0", "\u202f"])
def test_every_size_prefix_and_spelling(prefix, space):
    for word in BYTE_WORDS:
        assert parse_bytes(f"3{space}{prefix}{word}") == 3 * PREFIXES[prefix]
    for word in BIT_WORDS:
        assert parse_bytes(f"24{space}{prefix}{word}") == 3 * PREFIXES[prefix]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_rate_prefix_and_spelling(prefix):
    expected = 3 * PREFIXES[prefix]
    for unit in ("B/s", "byte/s", "bytes/s", "Bps"):
        assert parse_rate(f"3 {prefix}{unit}") == parse_rate(f"3{prefix}{unit}") == expected
    for unit in ("b/s", "bit/s", "bits/s", "bps"):
        assert parse_rate(f"24 {prefix}{unit}") == parse_rate(f"24{prefix}{unit}") == expected
    assert parse_rate(f"3 {prefix}B / s") == expected


@pytest.mark.parametrize("prefix", DECIMAL)
def test_every_work_and_speed_prefix_and_spelling(prefix):
    for unit in ("FLOP", "FLOPs"):
        assert parse_flop(f"3 {prefix}{unit}") == 3 * DECIMAL[prefix]
    for unit in ("FLOP/s", "FLOPS", "OP/s", "OPS"):
        assert parse_flops(f"3 {prefix}{unit}") == 3 * DECIMAL[prefix]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3.6 us", 3.6e-6),
        ("3.6 \u00b5s", 3.6e-6),
        ("3.6 \u03bcs", 3.6e-6),
        ("12 ms", 0.012),
        ("2 s", 2.0),
        ("80 ns", 80e-9),
        ("5 min", 300.0),
        ("2 h", 7200.0),
        ("0 s", 0.0),
        ("0.965ms", 0.000965),
        ("1e-6 s", 1e-6),
    ],
)
def test_times(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("kind", units.KINDS, ids=lambda kind: kind.name)
def test_every_listed_spelling_reads_as_printed(kind):
    parse, show = {
        "size": (parse_bytes, format_bytes),
        "rate": (parse_rate, format_rate),
        "time": (parse_seconds, format_seconds),
        "FLOP count": (parse_flop, format_flop),
        "compute rate": (parse_flops, format_flops),
    }[kind.name]
    for unit in kind.units:
        value = parse(f"256 {unit}")
        assert parse(show(value, 4)) == pytest.approx(value, rel=5e-4)
    for _, unit in kind.rungs:
        assert show(parse(f"250 {unit}")) == f"250 {unit}"


@pytest.mark.parametrize(
    ("prefix", "worth"),
    [("", 1), ("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12), ("P", 10**15), ("E", 10**18)],
)
def test_every_prefix_is_printed(prefix, worth):
    assert format_bytes(3 * worth) == f"3 {prefix}B"
    assert format_rate(3 * worth) == f"3 {prefix}B/s"
    assert format_rate_both(100 * worth).startswith(f"100 {prefix}B/s (800 {prefix}b/s)")
    assert format_flop(3 * worth) == f"3 {prefix}FLOP"
    assert format_flops(3 * worth) == f"3 {prefix}FLOP/s"


@pytest.mark.parametrize(("prefix", "power"), [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)])
def test_every_binary_prefix_is_printed(prefix, power):
    assert format_bytes_both(24 * 1024**power).endswith(f"(24.0 {prefix}B)")


def test_bits_bytes_and_binary_are_told_apart():
    assert parse_rate("50 Gb/s") == parse_rate("50Gbps") == 6.25e9
    assert parse_rate("50 GB/s") == parse_rate("50 GBps") == 50e9
    assert parse_rate("50 GiB/s") == 50 * 2**30
    assert parse_rate("400 Gbit/s") == 50e9
    assert parse_bytes("14 Gb") == parse_bytes("14 Gbit") == 1_750_000_000


def test_sizes_are_exact():
    assert parse_bytes("1.1 GB") == 1_100_000_000
    assert parse_bytes("377 GiB") == 377 * 2**30
    assert parse_bytes("1.000000000000000001 EB") == 10**18 + 1
    assert parse_bytes("7.9375 EiB") == 79375 * 2**60 // 10000
    assert parse_bytes("0 B") == 0 and isinstance(parse_bytes("1e3 GB"), int)
    assert parse_bytes("1e3 GB") == 10**12  # not a thousand of an unknown unit "GB"


def test_forms_of_rates():
    assert parse_rate("6000 MT/s x 2") == parse_rate("6000MT/s x2") == parse_rate("6000 MT/s \u00d7 2") == 96e9
    assert parse_rate("4800 MT/s x 12") == 460.8e9
    assert (
        parse_rate("PCIe 4 x16") == parse_rate("gen4x16") == parse_rate("PCIe 4.0 x16") == parse_rate("pcie gen4 x 16")
    )
    assert parse_rate("NVLink 4 x18") == 450e9
    assert parse_rate_interval("60..77 GB/s") == parse_rate_interval("60 GB/s .. 77 GB/s") == (60e9, 68.5e9, 77e9)
    assert parse_rate_interval("60..70..77 GB/s") == (60e9, 70e9, 77e9)
    assert parse_rate_interval("600 MB/s..1 GB/s") == (0.6e9, 0.8e9, 1e9)
    assert parse_rate_interval("26 GB/s") == (26e9, 26e9, 26e9)
    assert parse_rate_interval("PCIe 3 x4")[1] == pcie_rate(3, 4)
    assert units.parse_flops_interval("90..110 TFLOPS") == (90e12, 100e12, 110e12)
    assert units.parse_flops_interval("90..95..110 TFLOP/s") == (90e12, 95e12, 110e12)
    assert units.parse_flops_interval("165 TFLOP/s") == (165e12,) * 3


@pytest.mark.parametrize(
    ("generation", "gigabytes"), [(1, 4.0), (2, 8.0), (3, 15.754), (4, 31.508), (5, 63.015), (6, 118.0)]
)
def test_pcie_encoding(generation, gigabytes):
    assert pcie_rate(generation, 16) / 1e9 == pytest.approx(gigabytes, abs=5e-4)
    for lanes in (1, 2, 4, 8, 16):
        assert pcie_rate(generation, lanes) == pytest.approx(pcie_rate(generation, 16) * lanes / 16, rel=1e-15)
        assert parse_pcie(f"{generation} x{lanes}") == parse_pcie(f"gen{generation}x{lanes}") == (generation, lanes)
        assert parse_rate(f"PCIe {generation} x{lanes}") == pcie_rate(generation, lanes)


def test_nvlink():
    figures = {(1, 4): 80e9, (2, 6): 150e9, (3, 12): 300e9, (4, 18): 450e9, (5, 18): 900e9}
    for (generation, links), rate in figures.items():
        assert nvlink_rate(generation, links) == parse_rate(f"NVLink {generation} x{links}") == rate
        assert parse_nvlink(f"{generation} x{links}") == (generation, links)


def test_shares():
    assert parse_share("50%") == parse_share("50 %") == parse_share("0.5") == parse_share(0.5) == 0.5
    assert parse_share(1) == parse_share("100 %") == 1.0
    assert format_share(0.84) == "84 %" and format_share(0.157) == "15.7 %" and format_share(0) == "0 %"
    assert parse_share_interval("75..85 %") == pytest.approx((0.75, 0.8, 0.85))
    assert parse_share_interval("75 %..80 %..85 %") == pytest.approx((0.75, 0.8, 0.85))
    assert parse_share_interval("80%") == (0.8, 0.8, 0.8)
    assert format_share(1) == "100 %" and format_share(-0.02) == "-2 %" and format_share(12.3) == "1230 %"


REFUSALS = [
    # sizes
    (parse_bytes, "400G", '"400 GB" or "400 Gb"'),
    (parse_bytes, "24Gi", '"24 GiB"'),
    (parse_bytes, 528, '"528 MB"'),
    (parse_bytes, "528", '"528 MB"'),
    (parse_bytes, 1.5, '"1.5 MB"'),
    (parse_bytes, 0, '"0 MB"'),
    (parse_bytes, "1e9", '"1 GB"'),
    (parse_bytes, 528_000_001, '"528.000001 MB"'),
    (parse_bytes, 123_456_789_012_345, '"123456789012345 B"'),
    (parse_bytes, None, "is empty"),
    (parse_bytes, "", '"528 MB"'),
    (parse_bytes, True, '"true" is no text'),
    (parse_bytes, [1], '"a list" is no text'),
    (parse_bytes, -5, "negative"),
    (parse_bytes, float("nan"), "not finite"),
    (parse_bytes, 10**5000, "too long"),
    (parse_bytes, "1,008 GB", '"1008 GB" or "1.008 GB"'),
    (parse_bytes, "1,5 GB", 'Write "1.5 GB".'),
    (parse_bytes, "1_000 MB", '"1000 MB"'),
    (parse_bytes, "-5 GB", 'negative, which no such figure is. Write "5 GB"'),
    (parse_bytes, "\u22125 GB", '"5 GB"'),
    (parse_bytes, "+5 GB", '"5 GB"'),
    (parse_bytes, "~25 GB", '"25 GB"'),
    (parse_bytes, "-1 layers", 'negative, which no such figure is. For example, this would be read: "528 MB".'),
    (parse_bytes, "all", 'For example, this would be read: "528 MB".'),
    (parse_bytes, -1, 'For example, this would be read: "528 MB".'),
    (parse_bytes, "inf GB", "not a finite figure"),
    (parse_bytes, "nan", "not a finite figure"),
    (parse_bytes, "5 mB", '"5 MB" or "5 Mb"'),
    (parse_bytes, "3 uB", 'thousandths of a byte or bit. Write "3 kB"'),
    (parse_bytes, "3 \u00b5B", '"3 MB"'),
    (parse_bytes, "3 nB", '"3 MB"'),
    (parse_bytes, "5 gb", '"5 GB" or "5 Gb"'),
    (parse_bytes, "5 kiB", '"5 KiB"'),
    (parse_bytes, "0.5 B", 'whole number of bytes. Write "1 B"'),
    (parse_bytes, "1 bit", "whole number of bytes"),
    (parse_bytes, "1e30 B", "too large"),
    (parse_bytes, "1e999999999 B", "too large"),
    (parse_bytes, "9" * 90 + " B", "too long"),
    (parse_bytes, "26 GB/s", 'is a rate, where a size is due. Write "26 GB"'),
    (parse_bytes, "26 GBps", '"26 GB"'),
    (parse_bytes, "12 ms", "is a time, where a size is due"),
    (parse_bytes, "5 gigabytes", "known are B, kB, MB"),
    (parse_bytes, "GB", "lacks its number"),
    (parse_bytes, "\u0665 GB", "ARABIC-INDIC DIGIT FIVE"),
    (parse_bytes, "\uff15 GB", "digits 0 to 9"),
    (parse_bytes, "5\u200bGB", "ZERO WIDTH SPACE"),
    (parse_bytes, "\ud800 GB", "U+D800"),
    (parse_bytes, "5\x00GB", "U+0000"),
    # rates
    (parse_rate, 1e9, '"1 GB/s"'),
    (parse_rate, "1.0e9", '"1 GB/s"'),
    (parse_rate, 26, '"26 GB/s" or "26 Gb/s"'),
    (parse_rate, "400G", '"400 GB/s" or "400 Gb/s"'),
    (parse_rate, "26 GB", '"26 GB/s"'),
    (parse_rate, "400 Gb", 'is a size, where a rate is due. Write "400 Gb/s"'),
    (parse_rate, "25-26 GB/s", "25..26 GB/s"),
    (parse_rate, "25\u201326 GB/s", "25..26 GB/s"),
    (parse_rate, "25 to 26 GB/s", "25..26 GB/s"),
    (parse_rate, "25..26 GB/s", 'Write "25 GB/s" or "26 GB/s"'),
    (parse_rate, "x16", '"PCIe 4 x16" or "PCIe 5 x16"'),
    (parse_rate, "x3", '"PCIe 4 x2" or "PCIe 5 x2" or "PCIe 4 x4"'),
    (parse_rate, "PCIe x8", '"PCIe 4 x8"'),
    (parse_rate, "PCIe 4", 'lacks the number of lanes, x1, x2, x4, x8 or x16. Write "PCIe 4 x4"'),
    (parse_rate, "16 GT/s x16", '"PCIe 4 x16"'),
    (parse_rate, "32 GT/s x8", '"PCIe 5 x8"'),
    (parse_rate, "2.5 GT/s", '"PCIe 1 x16"'),
    (parse_rate, "6.4 GT/s x 12", '"6400 MT/s x 12"'),
    (parse_rate, "11.2 GT/s", "counts transfers"),
    (parse_rate, "PCIe 4 x3", "impossible width"),
    (parse_rate, "PCIe 4 x0", "x1, x2, x4, x8 or x16"),
    (parse_rate, "PCIe 4 x17", '"PCIe 4 x16"'),
    (parse_rate, "PCIe 9 x16", "1 to 6"),
    (parse_rate, "6000 MT/s", '"6000 MT/s x 2"'),
    (parse_rate, "6000 MHz", '"6000 MT/s x 2"'),
    (parse_rate, "2 x 6000 MT/s", '"6000 MT/s x 2"'),
    (parse_rate, "DDR5-6000", '"6000 MT/s x 2"'),
    (parse_rate, "6000 MT/s x 0", "1 to 128 channels"),
    (parse_rate, "6 MT/s x 2", "100 to 30000 MT/s"),
    (parse_rate, "NVLink", '"NVLink 4 x18"'),
    (parse_rate, "NVLink 6 x18", "1 to 5"),
    (parse_rate, "NVLink 4 x19", '1 to 18 such links. Write "NVLink 4 x18"'),
    (parse_rate, "NVLink 3 x4", '"100 GB/s" or "56.25 GB/s"'),
    (parse_rate, "3 mB/s", '"3 MB/s"'),
    (parse_rate, "26 gb/s", '"26 GB/s" or "26 Gb/s"'),
    (parse_rate, "26 GB/sec", 'Write "26 GB/s"'),
    (parse_rate, ".inf", "not a finite figure"),
    (parse_rate_interval, "77..60 GB/s", "low end comes first"),
    (parse_rate_interval, "1..-2 GB/s", '"-2 GB/s" is negative'),
    (parse_rate_interval, "-1..2 GB/s", '"-1 GB/s" is negative'),
    (parse_rate_interval, "1..inf GB/s", '"inf GB/s" is not a finite figure'),
    (parse_rate_interval, "1..2..-3", "lacks its unit"),
    (parse_rate_interval, "1...2 GB/s", 'two dots stand between its ends. Write "1..2 GB/s".'),
    (parse_rate_interval, "1\u20262...3 GB/s", 'Write "1..2..3 GB/s".'),
    (parse_rate_interval, "....", "would be read"),
    (units.parse_bytes_interval, "1..-2 GB", '"-2 GB" is negative'),
    (units.parse_bytes_interval, "1..nan GB", '"nan GB" is not a finite figure'),
    (units.parse_bytes_interval, "1.2..1.7 B", 'no whole numbers of bytes. Write "1..2 B".'),
    (units.parse_bytes_interval, "0.0001..1..1.0007 kB", 'Write "0..1000..1001 B".'),
    (units.parse_flops_interval, "100..1 TFLOP/s", 'low end comes first. Write "1..100 TFLOP/s".'),
    (units.parse_flops_interval, "90..110", 'lacks its unit. Write "90..110 TFLOP/s".'),
    (units.parse_flops_interval, "90..110 TFLOP", "is a FLOP count, where a compute rate is due"),
    (units.parse_flops_interval, "1..inf TFLOPS", "is not a finite figure"),
    (parse_rate_interval, "60..77", 'lacks its unit. Write "60..77 GB/s" or "60..77 Gb/s"'),
    (parse_rate_interval, "99..98..97 GB/s", 'the low end comes first. Write "97..98..99 GB/s".'),
    (parse_rate_interval, "70..60", 'Write "60..70 GB/s" or "60..70 Gb/s".'),
    (parse_rate_interval, "70-60 GB/s", 'Write "60..70 GB/s".'),
    (parse_rate_interval, "1 TB/s..900 GB/s", 'Write "900 GB/s..1 TB/s".'),
    (parse_rate_interval, "26 GB/s..", 'Write "26 GB/s".'),
    (parse_rate_interval, "fast..faster", "would be read"),
    (parse_share_interval, "85..80 %", 'Write "80..85 %".'),
    (parse_share_interval, "80-85%", 'Write "80..85 %".'),
    (parse_share_interval, "120 %", "at most 1 (100 %)"),
    (
        parse_rate_interval,
        "1..2..3..4 GB/s",
        'is no range: it has a low end, a high end, and at most one figure between. Write "1..4 GB/s"',
    ),
    (parse_rate_interval, "60-77 GB/s", "60..77 GB/s"),
    (parse_rate_interval, "60 GB..77 GB/s", '"60 GB/s"'),
    (parse_pcie, 4, "is no text"),
    (parse_pcie, "4 x3", 'impossible width (x1, x2, x4, x8 or x16). Write "PCIe 4 x2" or "PCIe 4 x4".'),
    (parse_pcie, "4 x32", 'Write "PCIe 4 x16".'),
    (parse_pcie, "4 x12", 'Write "PCIe 4 x8" or "PCIe 4 x16".'),
    (parse_pcie, "9 x16", 'no known generation (1 to 6). Write "PCIe 6 x16".'),
    (parse_pcie, "0 x4", 'Write "PCIe 1 x4".'),
    (parse_pcie, "9 x3", 'Write "PCIe 6 x2" or "PCIe 6 x4".'),
    (parse_pcie, "16 x8", '16 GT/s is generation 4. Write "PCIe 4 x8".'),
    (parse_pcie, "4", 'the number of lanes, x1, x2, x4, x8 or x16. Write "PCIe 4 x4" or "PCIe 4 x8" or "PCIe 4 x16".'),
    (parse_pcie, "16", 'Write "PCIe 4 x16" or "PCIe 5 x16".'),
    (parse_pcie, "9", "(1 to 6) and lacks the number of lanes"),
    (parse_pcie, "16 GT/s x16", '16 GT/s is PCIe generation 4. Write "PCIe 4 x16".'),
    (parse_pcie, "32 GT/s x4", 'Write "PCIe 5 x4".'),
    (parse_pcie, "5 GT / s x3", 'Write "PCIe 2 x2" or "PCIe 2 x4".'),
    (parse_pcie, "8 GT/s", 'Write "PCIe 3 x4" or "PCIe 3 x8" or "PCIe 3 x16".'),
    (parse_pcie, "10 GT/s x4", "PCIe 1 to 6 run at 2.5, 5, 8, 16, 32, 64 GT/s"),
    (parse_pcie, "x16", "lacks the PCIe generation"),
    (parse_pcie, "fast", '"PCIe 4 x16"'),
    (parse_nvlink, "x18", '"NVLink 4 x18"'),
    (parse_nvlink, "x12", 'Write "NVLink 4 x12".'),
    (parse_nvlink, "3", '(1 to 5) and the number of links. Write "NVLink 3 x12".'),
    (parse_nvlink, "9 x12", 'Write "NVLink 5 x12".'),
    (parse_nvlink, "1 x0", 'Write "NVLink 1 x1".'),
    # times
    (parse_seconds, 5, '"5 us" or "5 ms" or "5 s"'),
    (parse_seconds, "5 m", '"5 ms" or "5 min"'),
    (parse_seconds, "5 Ms", '"5 ms"'),
    (parse_seconds, "5 sec", '"5 s"'),
    (parse_seconds, "1e-30 s", "too small"),
    (parse_seconds, "5 GB", "is a size, where a time is due"),
    # work and compute rates
    (parse_flop, "1.76 GFLOPS", 'is a compute rate, where a FLOP count is due. Write "1.76 GFLOP"'),
    (parse_flop, "1.76 GFLOP/s", '"1.76 GFLOP"'),
    (parse_flop, 1.76e9, '"1.76 GFLOP"'),
    (parse_flop, "5 GiFLOP", "known are FLOP"),
    (parse_flops, "165 TFLOP", '"165 TFLOP/s"'),
    (parse_flops, "165 TFLOPs", 'is a FLOP count, where a compute rate is due. Write "165 TFLOP/s"'),
    (parse_flops, "165T", '"165 TFLOP/s"'),
    (parse_flops, "165 tflop/s", '"165 TFLOP/s"'),
    # shares
    (parse_share, 85, 'Did you mean 0.85, that is "85 %"?'),
    (parse_share, "85", 'Did you mean 0.85, that is "85 %"?'),
    (parse_share, 1.5, 'Did you mean 0.015, that is "1.5 %"?'),
    (parse_share, 101, "out of range"),
    (parse_share, "150%", 'at most 1 (100 %). For example, this would be read: "85 %".'),
    (parse_share, "120 %", 'would be read: "85 %".'),
    (parse_share, "x %", 'would be read: "85 %".'),
    (parse_share, 0, "above 0"),
    (parse_share, "0 %", "above 0"),
    (parse_share, -0.5, "no share"),
    (parse_share, float("nan"), "no share"),
    (parse_share, True, '"85 %"'),
    (parse_share, None, '"85 %"'),
    (parse_share, "1/2", '"85 %"'),
]


@pytest.mark.parametrize(
    ("parse", "text", "useful"), REFUSALS, ids=lambda value: ascii(value)[:30] if isinstance(value, str) else ""
)
def test_refusals_say_what_works(parse, text, useful):
    with pytest.raises(UnitError) as refusal:
        parse(text)
    message = str(refusal.value)
    assert useful in message
    assert "\n" not in message and len(message) < 260
    message.encode()  # printable on any terminal that takes UTF-8
    every_spelling_offered_works(parse, message)


def every_spelling_offered_works(parse, message):
    parse = parse_rate if ". As a rate it is " in message else parse
    for offered in re.findall(
        r'"([^"]*)"', re.split(r"\. (?:Write|As a rate it is) |would be read: |Did you mean ", message, maxsplit=1)[1]
    ):
        parse(offered.removesuffix("?"))


def test_a_refusal_of_an_unusual_generation_offers_a_known_one():
    for generation, lanes in [(0, 16), (7, 16), (4, 3), (9, 17)]:
        with pytest.raises(UnitError) as refusal:
            pcie_rate(generation, lanes)
        every_spelling_offered_works(parse_rate, str(refusal.value))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (-0.0, "0 B"),
        (1, "1 B"),
        (0.5, "0.5 B"),
        (527, "527 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1000, "1 kB"),
        (999.4e6, "999 MB"),
        (999.96e6, "1 GB"),
        (999_999_999, "1 GB"),
        (21.49e9, "21.5 GB"),
        (528e6, "528 MB"),
        (2e12, "2 TB"),
        (-5.04e9, "-5.04 GB"),
        (-999.96e6, "-1 GB"),
        (10**18, "1 EB"),
        (10**21, "1000 EB"),
        (1.5e24, "1.5e6 EB"),
        (1e-5, "1e-5 B"),
    ],
)
def test_sizes_are_printed_without_scale_errors(size, text):
    assert format_bytes(size) == text


def test_other_printing():
    assert format_bytes_both(24 * 2**30) == "25.8 GB (24.0 GiB)"
    assert format_bytes_both(2 * 10**12) == "2.00 TB (1.82 TiB)"
    assert format_bytes_both(1023.9 * 2**20) == "1.07 GB (1.00 GiB)"
    assert (
        format_bytes_both(0) == "0 B"
        and format_bytes_both(512) == "512 B"
        and format_bytes_both(-(2**30)).startswith("-1.07")
    )
    assert format_rate(96e9) == "96 GB/s" and format_rate(0) == "0 B/s"
    assert format_rate_both(50e9) == "50 GB/s (400 Gb/s)" and format_rate_both(0) == "0 B/s (0 b/s)"
    assert format_bytes(20.43e9, 4) == "20.43 GB" and format_bytes(21.49e9, digits=2) == "21 GB"
    assert format_flop(1.76e9) == "1.76 GFLOP" and format_flops(165e12) == "165 TFLOP/s" and format_flop(0) == "0 FLOP"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.252, "252 ms"),
        (3.6e-6, "3.6 us"),
        (80e-9, "80 ns"),
        (5e-10, "0.5 ns"),
        (0.99996, "1 s"),
        (117, "117 s"),
        (999.4, "999 s"),
        (999.96, "16.7 min"),
        (3600, "60 min"),
        (60_000, "16.7 h"),
        (1e8, "27800 h"),
        (-0.1, "-100 ms"),
    ],
)
def test_times_are_printed(seconds, text):
    assert format_seconds(seconds) == text


def test_nothing_endless_and_no_fifth_digit_is_printed():
    for value in (float("inf"), float("-inf"), float("nan"), 10**400):
        with pytest.raises(UnitError):
            format_bytes(value)
    for digits in (0, 5):
        with pytest.raises(ValueError, match="significant digits"):
            format_bytes(1, digits)


ROUND_TRIPS = [
    (parse_bytes, format_bytes, 1000.0),
    (parse_rate, format_rate, 1e-12),
    (parse_seconds, format_seconds, 1e-12),
    (parse_flop, format_flop, 1e-12),
    (parse_flops, format_flops, 1e-12),
]


@pytest.mark.parametrize(("parse", "show", "least"), ROUND_TRIPS, ids=lambda value: getattr(value, "__name__", ""))
@given(data=st.data(), digits=st.integers(1, 4))
def test_what_is_printed_reads_back_to_its_digits(parse, show, least, data, digits):
    value = data.draw(st.floats(least, 9e9) | st.floats(least, 9e20 if parse is not parse_seconds else 9e9))
    printed = show(value, digits)
    read = parse(printed)
    assert read == pytest.approx(value, rel=0.5001 * 10 ** (1 - digits))
    assert show(read, digits) == printed  # printing once more changes nothing
    figure = printed.split()[0].split("e")[0]
    assert len(figure.replace(".", "").strip("0")) <= digits
    assert show(-value, digits) == "-" + printed


@given(share=st.floats(1e-9, 1), digits=st.integers(1, 4))
def test_shares_read_back(share, digits):
    assert parse_share(format_share(share, digits)) == pytest.approx(share, rel=0.5001 * 10 ** (1 - digits))


@given(size=st.integers(0, 10**24))
def test_whole_bytes_are_exact(size):
    assert parse_bytes(f"{size} B") == size
    if size <= 10**15:
        assert parse_bytes(f"{size // 10**9}.{size % 10**9:09d} GB") == size
    assert parse_bytes(f"{size % 10**6} GiB") == (size % 10**6) * 2**30


@given(number=st.decimals(0, 800, places=4), unit=st.sampled_from(sorted(units.RATE.units)))
def test_rates_are_the_nearest_float(number, unit):
    word = unit.removesuffix("/s").removesuffix("ps")
    base = next(base for base in ("bytes", "byte", "bits", "bit", "B", "b") if word.endswith(base))
    exact = Fraction(number) * PREFIXES[word.removesuffix(base)] / (8 if base in BIT_WORDS else 1)
    assert parse_rate(f"{number:f} {unit}") == float(exact)


@given(number=st.decimals(0, 800, places=3), prefix=st.sampled_from(sorted(PREFIXES)))
def test_number_and_prefix_agree_with_quantiphy(number, prefix):
    from quantiphy import Quantity

    expected = Quantity(f"{number:f} {prefix}", binary=True).real
    assert parse_rate(f"{number:f} {prefix}B/s") == pytest.approx(expected, rel=1e-15)


def check_only_unit_errors(text):
    for parse in PARSERS:
        try:
            value = parse(text)
        except UnitError as refusal:
            message = str(refusal)
            message.encode()
            assert len(message) < 320
            every_spelling_offered_works(parse, message)
        else:
            assert all(0 <= part < float("inf") for part in (value if isinstance(value, tuple) else (value,)))


@pytest.mark.parametrize("text", ["3 x1", "3 x0", "NVLink 3 x4", "NVLink 3 x13", "NVLink 3", "x3"])
def test_what_is_offered_for_bundles_of_nvlink_works(text):
    check_only_unit_errors(text)


@given(text=st.text(max_size=100))
def test_any_text_is_read_or_refused(text):
    check_only_unit_errors(text)


PIECES = st.sampled_from(
    [
        *"0123456789",
        "16",
        ".",
        "..",
        ",",
        "_",
        "-",
        "+",
        "~",
        " ",
        "/",
        "e",
        "E",
        "e9",
        "x",
        "x16",
        "%",
        "*",
        "k",
        "K",
        "M",
        "G",
        "Gi",
        "m",
        "u",
        "\u00b5",
        "B",
        "b",
        "bit",
        "byte",
        "/s",
        "ps",
        "s",
        "min",
        "FLOP",
        "FLOPS",
        "OP",
        "GB/s",
        "GT/s",
        "MT/s",
        "PCIe ",
        "gen",
        "NVLink ",
        "DDR5-",
        "inf",
        "nan",
        " to ",
        "\u00d7",
        "\u2013",
        "\u0665",
        "\u00a0",
    ]
)


@given(pieces=st.lists(PIECES, max_size=8))
@settings(max_examples=500)
def test_any_jumble_of_units_is_read_or_refused(pieces):
    check_only_unit_errors("".join(pieces))


@given(
    value=st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=9)
    | st.lists(st.integers(), max_size=2)
)
def test_any_value_is_read_or_refused(value):
    check_only_unit_errors(value)


def test_import_stays_light():
    code = """
import sys
from offload import units
heavy = {"numpy", "networkx", "pydantic", "numba", "yaml"}
assert not sys.modules.keys() & (heavy | {"quantiphy"})
assert units.parse_rate("26 GB/s") == 26e9
assert not sys.modules.keys() & heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60..70..77 GB/s", 'is a range with its usual value, where one figure is due. Write "70 GB/s".'),
        ("6000 MT/s x -2", 'needs a speed, then the number of 8-byte channels. Write "6000 MT/s x 2".'),
        ("60..77 GB/s", "is a range, where one figure is due"),
        ("60..77 GB/s", 'where one figure is due. Write "60 GB/s" or "77 GB/s".'),
        ("60..77", "is a range, where one figure is due"),
        ("60..77 GB", "is a range, where one figure is due"),
    ],
)
def test_what_looks_like_a_range(text, said):
    with pytest.raises(UnitError) as error:
        parse_rate(text)
    assert said in str(error.value)


def test_figures_that_differ_below_what_is_printed():
    peak = 16e9 * 16 * 128 / 130 / 8  # PCIe 4 x16
    assert format_apart(peak, 31.51e9, format_rate) == "31.51 GB/s (31,507,692,308 B/s)"
    assert format_apart(peak, 31.6e9, format_rate) == format_apart(peak, peak, format_rate) == "31.51 GB/s"
    assert format_apart(165.1e12, 165.1000001e12, format_flops) == "165.1 TFLOP/s (165,100,000,000,000 FLOP/s)"
