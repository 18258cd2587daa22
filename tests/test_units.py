"""Quantities in and out: every prefix and spelling both ways, exactness, and printing."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
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


def test_figures_that_differ_below_what_is_printed():
    peak = 16e9 * 16 * 128 / 130 / 8  # PCIe 4 x16
    assert format_apart(peak, 31.51e9, format_rate) == "31.51 GB/s (31,507,692,308 B/s)"
    assert format_apart(peak, 31.6e9, format_rate) == format_apart(peak, peak, format_rate) == "31.51 GB/s"
    assert format_apart(165.1e12, 165.1000001e12, format_flops) == "165.1 TFLOP/s (165,100,000,000,000 FLOP/s)"
