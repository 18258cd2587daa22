"""Latency and message size: closed forms against explicit loops, every chunk count, and points drawn at will."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import FormulaError
from offload.messages import AlphaBeta, TimeCurve, best_chunks, chunk_seconds, fit

F = Fraction
delays = st.fractions(0, 9, max_denominator=4)
above = st.fractions(F(1, 4), 9, max_denominator=4)
links = st.builds(AlphaBeta, delays, above)
QUICK = settings(max_examples=50)


@given(links, delays, delays)
@QUICK
def test_time_of_a_message(link, size, more):
    assert link.seconds(size) + link.seconds(more) >= link.seconds(size + more) >= link.seconds(size)
    if size:
        assert link.rate(size) == size / link.seconds(size) <= link.bandwidth
    if link.alpha:
        assert link.rate(link.half) == link.bandwidth / 2 and link.rate(0) == 0
    assert link.rate(size + more) >= link.rate(size)


def closed_loop(link, size, depth, messages):
    """When so many messages have ended, `depth` under way: each waits alpha, then the link serves one at a time."""
    ends = []
    for number in range(messages):
        sent = ends[number - depth] if number >= depth else F(0)
        ends.append(max(sent + link.alpha, ends[-1] if ends else F(0)) + size / link.bandwidth)
    return ends


@given(links, above, st.integers(1, 5))
@QUICK
def test_queue_depth_against_a_closed_loop(link, size, depth):
    ends = closed_loop(link, size, depth, 40 * depth)
    rounds = ends[-1] - ends[-1 - 20 * depth]
    assert link.throughput(size, depth) == 20 * depth * size / rounds
    enough = link.depth(size)
    assert link.throughput(size, enough) == link.bandwidth
    if enough > 1:
        assert link.throughput(size, enough - 1) < link.bandwidth


def test_depth_of_floats_counts_by_the_decimals_they_show():
    link = AlphaBeta(1e-5, 25e9)
    assert [link.depth(size) for size in (1e6, 250e3, 125e3, 249_999)] == [2, 2, 3, 3]
    assert link.in_turn(0.3, 0.1) == 3 * 1e-5 + 0.3 / 25e9


@given(links, delays, above)
@QUICK
def test_chunks_in_turn(link, total, size):
    sent, left = F(0), total
    while left > 0:
        part = min(left, size)
        sent, left = sent + link.seconds(part), left - part
    assert link.in_turn(total, size) == sent


@given(links, st.integers(1, 40), st.integers(1, 4))
@QUICK
def test_the_best_chunk_against_every_count(link, amount, hops):
    best = best_chunks(F(amount), link, hops)
    every = {count: chunk_seconds(F(amount), link, hops, F(amount, count)) for count in range(1, amount + 1)}
    assert best.whole_seconds == min(every.values()) == every[best.chunks]
    assert best.whole_chunk_bytes * best.chunks == amount
    assert float(best.seconds) <= float(best.whole_seconds) * (1 + 1e-12)
    if best.chunk_bytes:
        there = chunk_seconds(amount, link, hops, best.chunk_bytes)
        assert float(best.seconds) == pytest.approx(float(there), rel=1e-12)
    else:
        assert not link.alpha and best.seconds == amount / link.bandwidth


def test_the_best_chunk_over_two_hops_is_exact():
    best = best_chunks(F(400_000_000), AlphaBeta(F(1, 10**6), F(10**10)), 2)
    assert (best.chunk_bytes, best.seconds, best.chunks) == (2_000_000, F(40401, 1_000_000), 200)
    assert best.whole_seconds == best.seconds
    assert best_chunks(4e8, AlphaBeta(1e-6, 1e10), 2).seconds == pytest.approx(0.040401, rel=1e-12)
    assert best_chunks(10, AlphaBeta(1, 1), 3).chunk_bytes == math.sqrt(5)
    huge = best_chunks(10, AlphaBeta(100, 1), 3)
    assert (huge.chunk_bytes, huge.chunks, huge.seconds) == (10, 1, 330)


# Measured points.

curves = st.lists(st.tuples(st.fractions(F(1, 4), 5, max_denominator=4), delays), min_size=2, max_size=5)


def drawn(steps):
    """Points by their steps in size and time."""
    size, time, points = F(0), F(1), []
    for further, longer in steps:
        size, time = size + further, time + longer
        points.append((size, time))
    return TimeCurve(tuple(points))


@pytest.mark.slow
@given(curves, delays, delays)
def test_a_curve_passes_its_points_and_never_falls(steps, size, more):
    curve = drawn(steps)
    assert all(curve.seconds(at) == time and curve.measured(at) for at, time in curve.points)
    last = curve.points[-1][0]
    if size + more <= last or curve.points[-1][1] > curve.points[-2][1]:
        assert curve.seconds(size) <= curve.seconds(size + more)
    else:
        with pytest.raises(FormulaError, match="take the same"):
            curve.seconds(size + more)
    assert curve.measured(size) == (curve.points[0][0] <= size <= last)


@given(st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0, 1e3)), min_size=2, max_size=5), st.floats(0, 6e3))
def test_a_curve_of_floats_never_falls_to_the_last_bit(steps, size):
    sizes, times = [0.0], [1.0]
    for further, longer in steps:
        sizes.append(sizes[-1] + further)
        times.append(times[-1] + longer)
    curve = TimeCurve(tuple(zip(sizes[1:], times[1:], strict=True)))
    if size >= sizes[-1] and times[-1] == times[-2]:
        return
    assert curve.seconds(math.nextafter(size, 0)) <= curve.seconds(size)
    for at, time in curve.points:
        assert curve.seconds(at) == time


def test_how_a_curve_bends():
    def shape(*times):
        return TimeCurve(tuple((F(place), F(time)) for place, time in enumerate(times, 1))).shape

    assert [shape(1, 2, 3), shape(1, 3, 4), shape(1, 2, 4), shape(1, 2, 4, 5)] == [
        "line", "concave", "convex", "neither"]  # fmt: skip
    assert TimeCurve(((1, 1), (2, 2))).seconds(F(1, 2)) == 1 and TimeCurve(((1, 1), (2, 2))).seconds(4) == 4


@given(links, st.lists(st.integers(1, 10**9), min_size=2, max_size=6, unique=True))
@QUICK
def test_points_of_a_link_are_fitted_exactly(link, sizes):
    made = fit([(size, link.seconds(F(size))) for size in sizes])
    assert (made.link, made.worst, made.typical) == (link, 0, 0)


def squares(points, alpha, slope):
    return sum(((alpha + slope * size) / time - 1) ** 2 for size, time in points)


@given(st.lists(st.tuples(st.integers(1, 50), above), min_size=2, max_size=5, unique_by=lambda point: point[0]))
def test_no_line_near_the_fit_has_a_smaller_error(points):
    try:
        made = fit(points)
    except FormulaError:
        level = sum(1 / time for _, time in points) / sum(1 / time**2 for _, time in points)
        assert squares(points, level, F(1, 10**5)) >= squares(points, level, 0), "no rising line is better"
        return
    alpha, slope = made.link.alpha, 1 / made.link.bandwidth
    assert alpha >= 0 and slope > 0
    least = squares(points, alpha, slope)
    assert least == sum(error**2 for error in made.errors)
    for shift, turn in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)):
        if alpha + F(shift, 1000) >= 0:
            assert squares(points, alpha + F(shift, 1000), slope + F(turn, 10**5)) >= least


def test_a_fit_of_floats_over_six_decades_keeps_its_digits():
    link = AlphaBeta(8e-6, 24.5e9)
    made = fit([(10.0**power, link.seconds(10.0**power)) for power in range(3, 10)])
    assert made.link.alpha == pytest.approx(8e-6, rel=1e-12) and made.link.bandwidth == pytest.approx(24.5e9, rel=1e-12)
    assert made.worst < 1e-14
    noisy = fit([(1e3, 9e-6), (1e6, 50e-6), (1e9, 0.041)])
    assert 0 < noisy.typical <= noisy.worst < 0.1


def test_a_line_that_starts_below_zero_is_drawn_through_zero():
    made = fit([(1, F(1)), (2, F(3)), (3, F(5))])
    assert made.link.alpha == 0
    assert made.link.bandwidth == F(squared := 1 + F(4, 9) + F(9, 25)) / (1 + F(2, 3) + F(3, 5)) and squared > 0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: AlphaBeta(-1, 1), "alpha: -1 is not"),
        (lambda: AlphaBeta(1, 0), "bandwidth: 0 is not a finite number above 0"),
        (lambda: AlphaBeta(1, 1).seconds(-1), "size: -1 is not"),
        (lambda: AlphaBeta(1, 1).throughput(1, 0), "depth: 0 is too few"),
        (lambda: AlphaBeta(1, 1).throughput(0, 1), "size: 0 is not"),
        (lambda: AlphaBeta(1, 1).depth(0), "size: 0 is not"),
        (lambda: AlphaBeta(1, 1).in_turn(1, 0), "size: 0 is not"),
        (lambda: best_chunks(0, AlphaBeta(1, 1), 2), "amount: 0 is not"),
        (lambda: best_chunks(1, AlphaBeta(1, 1), 0), "hops: 0 is too few"),
        (lambda: TimeCurve(((1, 1),)), "1 given; give at least two"),
        (lambda: TimeCurve(((1, 1), (1, 2))), "1 B is followed by 1 B; sort them"),
        (lambda: TimeCurve(((999_999, 2), (1_000_000, 1))), "1000000 B takes 1 s, less than the 2 s of 999999 B"),
        (lambda: TimeCurve(((1, 0), (2, 1))), r"points\[0\] seconds: 0 is not"),
        (lambda: TimeCurve((1, 2)), "pairs of"),
        (lambda: TimeCurve(((1, math.nan), (2, 1))), "nan is not"),
        (lambda: fit([(1, 1), (1, 2)]), "all have the same size"),
        (lambda: fit([(1, 2), (2, 1)]), "larger messages take no longer"),
        (lambda: fit([(1, 1)]), "1 given"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()
