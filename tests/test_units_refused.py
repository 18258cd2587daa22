"""Quantities that are refused, each with what works instead, and whatever else is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import units
from offload.errors import UnitError
from offload.units import (
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
    (parse_rate, "PCIe 4 x17", "write the rate of one direction: 33.48 GB/s."),
    (parse_rate, "PCIe 9 x16", "1 to 6"),
    (parse_rate, "6000 MT/s", '"6000 MT/s x 2"'),
    (parse_rate, "6000 MHz", '"6000 MT/s x 2"'),
    (parse_rate, "2 x 6000 MT/s", '"6000 MT/s x 2"'),
    (parse_rate, "DDR5-6000", '"6000 MT/s x 2"'),
    (parse_rate, "6000 MT/s x 0", "1 to 128 channels"),
    (parse_rate, "6 MT/s x 2", "100 to 30000 MT/s"),
    (parse_rate, "NVLink", '"NVLink 4 x18"'),
    (parse_rate, "NVLink 6 x18", "1 to 5"),
    (parse_rate, "NVLink 4 x19", '1 to 18 such links. All of one GPU are "NVLink 4 x18"; of several'),
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
    (parse_pcie, "4 x3", 'impossible width (x1, x2, x4, x8 or x16). One link is "PCIe 4 x2" or "PCIe 4 x4"; of'),
    (parse_pcie, "4 x32", "x16). Of several links together write the rate of one direction: 63.02 GB/s."),
    (parse_pcie, "4 x12", 'One link is "PCIe 4 x8" or "PCIe 4 x16"; of several links together'),
    (parse_pcie, "9 x16", 'no known generation (1 to 6). Write "PCIe 6 x16".'),
    (parse_pcie, "0 x4", 'Write "PCIe 1 x4".'),
    (parse_pcie, "9 x3", 'One link is "PCIe 6 x2" or "PCIe 6 x4"'),
    (parse_pcie, "16 x8", '16 GT/s is generation 4. Write "PCIe 4 x8".'),
    (parse_pcie, "4", 'the number of lanes, x1, x2, x4, x8 or x16. Write "PCIe 4 x4" or "PCIe 4 x8" or "PCIe 4 x16".'),
    (parse_pcie, "16", 'Write "PCIe 4 x16" or "PCIe 5 x16".'),
    (parse_pcie, "9", "(1 to 6) and lacks the number of lanes"),
    (parse_pcie, "16 GT/s x16", '16 GT/s is PCIe generation 4. Write "PCIe 4 x16".'),
    (parse_pcie, "32 GT/s x4", 'Write "PCIe 5 x4".'),
    (parse_pcie, "5 GT / s x3", 'One link is "PCIe 2 x2" or "PCIe 2 x4"'),
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
    works = r"\. (?:Write|As a rate it is|One link is|All of one GPU are|Of several) |would be read: |Did you mean "
    for offered in re.findall(r'"([^"]*)"', re.split(works, message, maxsplit=1)[1]):
        parse(offered.removesuffix("?"))


def test_a_refusal_of_an_unusual_generation_offers_a_known_one():
    for generation, lanes in [(0, 16), (7, 16), (4, 3), (9, 17)]:
        with pytest.raises(UnitError) as refusal:
            pcie_rate(generation, lanes)
        every_spelling_offered_works(parse_rate, str(refusal.value))


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


@pytest.mark.parametrize("lanes", [3, 6, 12, 17, 24, 32, 100, 1024])
@pytest.mark.parametrize("text", ["PCIe {} x{}", "{} GT/s x{}"])
def test_lanes_of_several_links_are_told_as_their_rate(text, lanes):
    speeds = {3: 8, 4: 16, 6: 64}
    for generation, speed in speeds.items():
        written = text.format(generation if text.startswith("PCIe") else speed, lanes)
        with pytest.raises(UnitError) as raised:
            parse_rate(written)
        message = str(raised.value)
        every_spelling_offered_works(parse_rate, message)
        offered = re.search(r"together write the rate of one direction: (\S+ GB/s)\.$", message)
        exact = lanes * parse_rate(f"PCIe {generation} x16") / 16
        assert exact <= parse_rate(offered[1]) < exact * 1.001
        assert ("x16" in message.partition(". ")[2]) == (8 < lanes < 16)  # no narrower link for a wider one


def test_a_width_without_a_generation_and_too_wide_ones():
    said = "(PCIe 4) or 94.53 GB/s (PCIe 5)."
    for text, expected in [("x24", said), ("PCIe x24", said), ("PCIe 9 x32", "write the rate of one direction"),
                           ("PCIe 4 x99999", "For example, this would be read:"),
                           ("NVLink 4 x36", "of several GPUs together write the rate of one direction: 900 GB/s."),
                           ("NVLink 9 x36", "1800 GB/s."), ("NVLink x36", "900 GB/s."),
                           ("NVLink 4 x9999", "For example, this would be read:")]:  # fmt: skip
        with pytest.raises(UnitError, match=re.escape(expected)):
            parse_rate(text)
        check_only_unit_errors(text)


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
