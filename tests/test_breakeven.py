"""Break-evens hold at the value that they name and not below it; fronts against the definition."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.breakeven import (
    Tokens,
    batch_for_rate,
    batch_that_hides,
    cpu_gpu_split,
    hit_rate_needed,
    host_attention,
    prompt_that_hides,
    rate_needed,
    rate_that_hides,
)
from offload.errors import FormulaError
from offload.pareto import pareto

small = st.integers(1, 30).map(Fraction)
from_0 = st.integers(0, 30).map(Fraction)


@given(small, small, small, small)
def test_shares_of_a_split_are_all_that_reach_its_time(size, dram, cpu, link):
    found = cpu_gpu_split(size, dram, cpu, link)

    def seconds(share: Fraction) -> Fraction:
        return max(share * size / cpu, (1 - share) * size / link, size / dram)

    low, high = found.share_least, found.share_most
    assert 0 <= low <= high <= 1
    assert seconds(low) == seconds(high) == seconds((low + high) / 2) == found.seconds == size / found.rate
    for outside in (low - Fraction(1, 99), high + Fraction(1, 99)):
        assert not 0 <= outside <= 1 or seconds(outside) > found.seconds
    assert found.cpu_seconds == seconds(Fraction(1)) and found.stream_seconds == seconds(Fraction(0))


def test_a_split_without_one_of_both():
    alone = cpu_gpu_split(Fraction(60), Fraction(10), Fraction(0), Fraction(4))
    assert (alone.seconds, alone.share_least, alone.share_most, alone.cpu_seconds) == (15, 0, 0, None)
    alone = cpu_gpu_split(Fraction(60), Fraction(10), Fraction(20), Fraction(0))
    assert (alone.seconds, alone.share_least, alone.share_most, alone.stream_seconds) == (6, 1, 1, None)


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 256), st.integers(0, 64))
def test_attention_at_the_host_wins_from_its_break_even(q_heads, kv_heads, dim, context):
    found = host_attention(q_heads, kv_heads, dim, 2, context)
    moved = found.row_bytes + found.new_kv_bytes
    assert (context >= found.wins_from) == (moved < found.kv_bytes) and found.ratio == Fraction(found.kv_bytes, moved)
    assert found.break_even * 2 * kv_heads * dim * 2 == moved


def test_attention_of_equal_heads_wins_from_the_third_position():
    found = host_attention(32, 32, 128, 2.0, 3)
    assert (found.break_even, found.wins_from, found.ratio) == (2, 3, 1.5)


@given(from_0, small, small, small, from_0)
def test_a_batch_hides_what_it_says(streamed, params, flops, link, each):
    found = batch_that_hides(streamed, params, flops, link, each)

    def hides(batch: Fraction) -> bool:
        return 2 * params * batch / flops >= (streamed + batch * each) / link

    if found is None:
        assert not any(hides(Fraction(10) ** n) for n in range(12))
        return
    assert hides(Fraction(found.exact)) and hides(Fraction(found.whole)) and 0 <= found.whole - found.exact < 1
    assert found.whole == 0 or not hides(Fraction(found.whole - 1))


def test_keys_and_values_that_stream_are_never_hidden_by_a_batch():
    assert batch_that_hides(140e9, 70e9, 990e12, 25e9) == Tokens(39600.0, 39600)
    assert batch_that_hides(140e9, 70e9, 990e12, 25e9, streamed_each=3.6e6) is None
    assert batch_that_hides(0, 70e9, 990e12, 25e9) == Tokens(0, 0)
    assert batch_that_hides(0, 1, 2, 1, 1) == Tokens(0, 0)  # each token computes as long as it streams
    assert batch_that_hides(0, 1, 2, 1, 2) is None and batch_that_hides(1, 1, 2, 1, 1) is None
    # A whole number that a float only just misses stays that number.
    assert batch_that_hides(0.3, 0.5, 1.0, 0.1) == Tokens(3.0, 3)


@given(from_0, small, small, small, from_0)
def test_a_prompt_hides_what_it_says(streamed, params, flops, link, attention):
    found = prompt_that_hides(streamed, params, flops, link, attention)

    def hides(tokens: int) -> bool:
        return (2 * params * tokens + attention * tokens**2) / flops >= streamed / link

    assert hides(found) and (found == 0 or not hides(found - 1))


@given(from_0, from_0, small, small)
def test_a_batch_gives_the_rate_that_it_says(weights, kv, link, due):
    found = batch_for_rate(weights, kv, link, due)

    def reaches(batch: Fraction) -> bool:
        return link * batch >= due * (weights + kv * batch)

    if found is None:
        assert not any(reaches(Fraction(10) ** n) for n in range(12))
        return
    assert reaches(Fraction(found.whole)) and found.whole >= 1
    assert found.whole == 1 or not reaches(Fraction(found.whole - 1))


@given(from_0, small, small, from_0, st.booleans())
def test_hit_rate_and_link_rate_meet_their_target(size, link, target, other, overlapped):
    def seconds(rate: Fraction, hits: Fraction) -> Fraction:
        streams = (1 - hits) * size / rate
        return max(streams, other) if overlapped else streams + other

    hits = hit_rate_needed(size, link, target, other, overlapped)
    assert (hits is None) == (other > target)
    if hits is not None:
        assert 0 <= hits <= 1 and seconds(link, hits) <= target
        assert hits == 0 or seconds(link, hits) == target
    rate = rate_needed(size, target, other, overlapped)
    if rate is None:
        assert other > target or (not overlapped and other == target and size)
    elif rate:
        assert seconds(rate, Fraction(0)) <= target < seconds(rate * Fraction(9, 10), Fraction(0))
    else:
        assert size == 0


def test_what_hides_behind_no_compute():
    assert rate_that_hides(5, 0) is None
    assert rate_that_hides(0, 0) == 0
    assert rate_that_hides(Fraction(140), Fraction(7, 10)) == 200


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: cpu_gpu_split(1, 1, 0, 0), "cpu \\+ link: 0"),
        (lambda: cpu_gpu_split(float("inf"), 1, 1, 1), "bytes: inf"),
        (lambda: host_attention(1.5, 1, 1, 1, 1), "q_heads"),
        (lambda: batch_that_hides(1, 0, 1, 1), "active_params: 0"),
        (lambda: rate_needed(1, 0), "seconds: 0"),
        (lambda: hit_rate_needed(1, 1, 1, -1), "other_seconds: -1"),
        (lambda: pareto([(1, 2), (1,)]), "point 1 has 1 coordinates"),
        (lambda: pareto([(1, float("nan"))]), "point 0: nan"),
        (lambda: pareto([("1", 2)]), "'1' is no finite number"),
        (lambda: pareto([()]), "0 coordinates"),
    ],
)
def test_what_is_no_number_is_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()


def dominated(one, points) -> bool:
    return any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in points)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[st.integers(-3, 3)] * n), max_size=14)))
@settings(max_examples=300)
def test_a_front_is_what_nothing_dominates(points):
    assert pareto(points) == [i for i, one in enumerate(points) if not dominated(one, points)]


def test_a_front_keeps_equals_and_takes_infinities():
    assert pareto([(1, 2), (1, 2), (2, 1), (2, 2)]) == [0, 1, 2]
    assert pareto([(-1e308, 5), (0, 1e308), (0, 4)]) == [0, 2]
    assert pareto([]) == []
    assert pareto([(i, -i) for i in range(20_000)]) == list(range(20_000))
