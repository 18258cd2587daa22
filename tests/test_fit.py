"""Latency and n_half from families of rates (theory: T(n) = latency + n / B; rate min(B, q s / (latency + s / B)))."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.readers.tools.finding import Measured
from offload.readers.tools.fit import FEWEST, POOR, Fit, NoFit, fit_depths, fit_families, fit_sizes

SIZES = [2**power for power in range(10, 30, 2)]


def rate_of(size: int, latency: float, rate: float) -> float:
    return size / (latency + size / rate)


def at_depth(depth: int, size: int, latency: float, rate: float) -> float:
    return min(rate, depth * size / (latency + size / rate))


def why(result: Fit | NoFit) -> str:
    assert isinstance(result, NoFit)
    return result.why


@given(st.floats(1e-7, 1e-2), st.floats(1e8, 1e12))
def test_sizes_give_back_what_made_them(latency, rate):
    half = latency * rate
    sizes = [max(1, round(half * share)) for share in (0.1, 0.5, 1, 2, 10)]
    result = fit_sizes([(size, rate_of(size, latency, rate)) for size in sizes])
    assert isinstance(result, Fit) and result.over == "size" and result.points == 5
    assert result.latency == pytest.approx(latency, rel=1e-6) and result.rate == pytest.approx(rate, rel=1e-6)
    assert result.half == pytest.approx(half, rel=1e-6) and result.residual < 1e-9
    assert rate_of(round(result.half), latency, rate) == pytest.approx(rate / 2, rel=0.1), "half the rate at n_half"


def test_worked_figures():
    # 10 us and 25 GB/s: n_half is 250 kB; at 250 kB the time is 20 us, the rate 12.5 GB/s.
    result = fit_sizes([(125_000, 125_000 / 15e-6), (250_000, 12.5e9), (1_000_000, 1e6 / 50e-6)])
    assert isinstance(result, Fit)
    assert (result.latency, result.rate, result.half) == (
        pytest.approx(1e-5),
        pytest.approx(25e9),
        pytest.approx(250_000),
    )


def test_equal_rates_have_no_latency():
    assert fit_sizes([(size, 2e10) for size in SIZES]) == Fit(0.0, 2e10, 0.0, 0.0, len(SIZES))


def test_scatter_is_told_as_residual():
    up_down = [1.03 if number % 2 else 0.97 for number in range(len(SIZES))]
    points = [(size, rate_of(size, 2e-5, 2e10) * factor) for size, factor in zip(SIZES, up_down, strict=True)]
    result = fit_sizes(points)
    assert isinstance(result, Fit) and 0.01 < result.residual < 0.04
    assert result.latency == pytest.approx(2e-5, rel=0.05) and result.rate == pytest.approx(2e10, rel=0.05)
    shares = [1 - (result.latency + size / result.rate) * rate / size for size, rate in points]
    assert result.residual == pytest.approx(math.sqrt(sum(share**2 for share in shares) / len(shares)))


@given(st.lists(st.tuples(st.integers(1, 2**34), st.floats(1e6, 1e12)), min_size=3, max_size=8),
       st.floats(-0.2, 0.2), st.floats(-0.2, 0.2))  # fmt: skip
def test_no_other_line_has_less_squares(points, more, faster):
    result = fit_sizes(points)
    if isinstance(result, Fit):
        latency, slope = result.latency * (1 + more), (1 + faster) / result.rate
        other = sum((1 - (latency + size * slope) * rate / size) ** 2 for size, rate in points)
        assert result.residual**2 * len(points) <= other * (1 + 1e-6) + 1e-12
        assert result.latency >= 0 and result.rate > 0 and result.residual <= POOR
    else:
        assert result.why


def test_sizes_that_the_line_does_not_hold_for_are_refused():
    assert f"at least {FEWEST}" in why(fit_sizes([(1024, 1e9), (2048, 1.5e9), (2048, 1.6e9)]))
    assert "negative latency" in why(fit_sizes([(10**6, 2.4e10), (10**7, 2.2e10), (10**8, 2e10)]))
    zigzag = [(size, 1e10 if number % 2 else 1e9) for number, size in enumerate(SIZES)]
    assert "differ from latency" in why(fit_sizes(zigzag))
    flat = [(10**9, 2e10), (2 * 10**9, 2.03e10), (3 * 10**9, 2.01e10)]
    assert "lost in the scatter" in why(fit_sizes(flat))
    latent = [(1, 1e5), (2, 2.01e5), (4, 3.97e5)]
    assert "rate is lost" in why(fit_sizes(latent)), "times of one latency alone tell no rate"


@pytest.mark.parametrize(("size", "rate"), [(0, 1e9), (-1, 1e9), (True, 1e9), (1.5, 1e9), (1, 0.0), (1, -1.0),
                                            (1, math.nan), (1, math.inf), (2**61, 1e9), (1, 1e-300)])  # fmt: skip
def test_figures_that_are_none_are_refused(size, rate):
    assert "is no" in why(fit_sizes([(1024, 1e9), (4096, 2e9), (8192, 3e9), (size, rate)]))
    assert "is no" in why(fit_depths(4096, [(1, 1e9), (2, 2e9), (8, 3e9), (size, rate)]))


def test_depths_worked_figures():
    # 100 us and 7 GB/s with 128 KiB: one request takes 118.7 us, so q = 1 + n_half / s = 6.3 fill the drive.
    size, latency, rate = 131_072, 1e-4, 7e9
    result = fit_depths(size, [(depth, at_depth(depth, size, latency, rate)) for depth in (1, 2, 4, 8, 16, 32)])
    assert isinstance(result, Fit) and result.over == "depth" and result.residual < 1e-9
    assert (result.latency, result.rate, result.half) == (pytest.approx(1e-4), pytest.approx(7e9), pytest.approx(7e5))


@given(st.floats(1e-6, 1e-2), st.floats(1e8, 1e11), st.floats(1.5, 30))
def test_depths_give_back_what_made_them(latency, rate, filled):
    size = max(1, round(latency * rate / (filled - 1)))  # q = 1 + n_half / s fills it
    depths = [1, 2, 4, 8, 16, 32, 64, 128]
    result = fit_depths(size, [(depth, at_depth(depth, size, latency, rate)) for depth in depths])
    assert isinstance(result, Fit)
    assert result.latency == pytest.approx(latency, rel=1e-6) and result.rate == pytest.approx(rate, rel=1e-6)


def test_depths_that_tell_nothing_are_refused():
    assert "still grows" in why(fit_depths(4096, [(1, 1e8), (2, 2e8), (4, 4e8), (8, 8e8)]))
    assert "does not grow" in why(fit_depths(2**24, [(1, 7e9), (2, 7e9), (4, 7e9)]))
    assert "rates differ" in why(fit_depths(4096, [(1, 1e9), (2, 1e8), (4, 5e9), (8, 2e8)]))
    assert "at least" in why(fit_depths(4096, [(1, 1e9), (2, 2e9)]))
    assert "size of 0" in why(fit_depths(0, [(1, 1e9), (2, 2e9), (4, 2e9)]))


def test_families_are_kept_apart():
    reads = [Measured("gpu0", "host", rate_of(size, 1e-5, 2e10), "pinned", size=size) for size in SIZES]
    other = [Measured("gpu1", "host", rate_of(size, 2e-5, 1e10), "pinned", size=size) for size in SIZES]
    loaded = [Measured("gpu0", "host", 5e9, "pinned", "together", size=2**20, streams=8)]
    deep = [Measured("drive0", "host", at_depth(depth, 2**17, 1e-4, 7e9), "read", size=2**17, depth=depth)
            for depth in (1, 2, 4, 8, 16)]  # fmt: skip
    found = fit_families([*reads, *other, *loaded, *deep])
    fits = [fit for _, fit in found if isinstance(fit, Fit)]
    assert len(found) == len(fits) == 3
    assert [fit.latency for fit in fits] == [pytest.approx(1e-5), pytest.approx(2e-5), pytest.approx(1e-4)]
    assert [fit.over for fit in fits] == ["size", "size", "depth"]
    assert [words.split(",")[0] for words, _ in found] == ["gpu0 to host", "gpu1 to host", "drive0 to host"]
    assert [words.endswith(f", over {fit.over}") for (words, _), fit in zip(found, fits, strict=True)] == [True] * 3


def test_a_family_of_two_says_that_it_is_too_few():
    two = [Measured("gpu0", "host", 1e9 * number, "pinned", size=number * 1024) for number in (1, 2)]
    assert "too few" in why(fit_families(two)[0][1])
    assert fit_families(two[:1]) == []
