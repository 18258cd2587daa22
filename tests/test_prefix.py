"""A cached prefix in closed form: the break-even length is the first that is worth loading, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.errors import FormulaError
from offload.prefix import load_or_compute, wins_from

WHOLE = st.integers(1, 1000)


@given(st.integers(0, 5000), WHOLE, WHOLE, WHOLE, st.integers(0, 20), st.integers(0, 100))
def test_the_first_length_that_is_worth_loading(k, rate, params, flops, square, fixed):
    def gains(n: int) -> Fraction:
        return Fraction(2 * params * n + square * n * n, flops) - Fraction(k * n, rate) - fixed

    first = wins_from(k, rate, params, flops, square, fixed)
    if first is None:
        assert not square and all(gains(n) < 0 for n in (1, 10, 10**9))
        return
    assert gains(first) >= 0 and gains(first + 1) >= 0 and gains(10 * first) >= 0
    assert first == 1 or gains(first - 1) < 0
    found = load_or_compute(first, k, Fraction(rate), params, Fraction(flops), square, fixed)
    assert found.load_seconds <= found.compute_seconds and found.wins_from == first


def test_the_rate_that_ties():
    found = load_or_compute(100, 8, Fraction(4), 5, Fraction(10), attention=1, fixed=50)
    assert (found.bytes, found.load_seconds, found.compute_seconds) == (800, 250, 1100)
    assert found.rate_needed == Fraction(800, 1050)
    tied = load_or_compute(100, 8, found.rate_needed, 5, Fraction(10), attention=1, fixed=50)
    assert tied.load_seconds == tied.compute_seconds
    assert load_or_compute(1, 8, 4, 5, 10, fixed=50).rate_needed is None, "the fixed time alone takes longer"
    assert load_or_compute(3, 0, 4, 5, 10).rate_needed == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [((0, 1, 1, 1, 1), "positions"), ((1, -1, 1, 1, 1), "kv_bytes"), ((1, 1, 0, 1, 1), "rate"),
     ((1, 1, 1, 0, 1), "active_params"), ((1, 1, 1, 1, float("nan")), "flops"), ((1, 1, 1, 1, 1, -2), "attention")],
)  # fmt: skip
def test_what_makes_no_sense(values, said):
    with pytest.raises(FormulaError, match=said):
        load_or_compute(*values)
