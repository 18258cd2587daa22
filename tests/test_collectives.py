"""Collectives: exact worked figures, bounds under every algorithm, and flows that carry each sum to everyone."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.collectives import (
    ALGORITHMS,
    Cost,
    across,
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    cost,
    cut_bound,
    endpoint_bound,
    flows,
    in_network_speedup,
    latency_bound,
    seconds_at,
    traffic,
    unequal_bound,
)
from offload.errors import FormulaError

EVERY = [(kind, algorithm) for kind, names in ALGORITHMS.items() for algorithm in names]
GB = 10**9
kinds = st.sampled_from(list(ALGORITHMS))
ranks = st.integers(1, 40)
figures = st.fractions(Fraction(1, 1000), 1000, max_denominator=1000)


def test_eight_ranks_as_published():
    """8 GB over eight at 400 GB/s each way, 5 us a step, all exact."""
    alpha, rate = Fraction(5, 10**6), 400 * GB

    def seconds(algorithm: str) -> Fraction:
        return cost("all_reduce", algorithm, 8).seconds(8 * GB, rate, alpha)

    assert endpoint_bound("all_reduce", 8, 8 * GB, rate) == Fraction(7, 200)
    assert seconds("ring") == Fraction(3507, 100000)
    assert seconds("rabenseifner") == Fraction(3503, 100000)
    assert seconds("recursive_doubling") == Fraction(12003, 200000)
    assert seconds("pairwise") == seconds("ring")
    assert seconds("tree") == 6 * alpha + Fraction(1, 25)
    assert seconds("in_network") == 2 * alpha + Fraction(9, 400)
    assert endpoint_bound("all_reduce", 8, 8 * GB, rate, switches_add=True) == Fraction(1, 50)
    assert latency_bound(8, alpha) == 3 * alpha and latency_bound(8, alpha, single_port=False) == alpha
    assert in_network_speedup(8) == Fraction(14, 9)
    assert algorithm_bandwidth(8 * GB, seconds("ring")) == Fraction(800000000000000, 3507)
    assert bus_bandwidth("all_reduce", 8, 8 * GB, seconds("ring")) == Fraction(200000000000000, 501)


def test_floats_too():
    assert cost("all_reduce", "ring", 8).seconds(8e9, 400e9, 5e-6) == pytest.approx(0.03507, rel=1e-15)
    assert endpoint_bound("all_gather", 8, 8e9, 400e9) == pytest.approx(0.0175, rel=1e-15)


def test_two_islands_of_two():
    """10 GB/s between two pairs of ranks at 25 GB/s: the cut binds an all-reduce, 1 s against 0.6 s."""
    assert cut_bound("all_reduce", 4, 10 * GB, 2, 10 * GB) == 1
    assert endpoint_bound("all_reduce", 4, 10 * GB, 25 * GB) == Fraction(3, 5)
    assert cut_bound("all_gather", 4, 10 * GB, 2, 10 * GB) == cut_bound("reduce_scatter", 4, 10 * GB, 2, 10 * GB)
    assert cut_bound("all_gather", 4, 10 * GB, 2, 10 * GB) == Fraction(1, 2)
    assert cut_bound("all_to_all", 4, 10 * GB, 2, 10 * GB) == 1
    assert cut_bound("reduce", 4, 10 * GB, 1, 10 * GB) == cut_bound("broadcast", 4, 10 * GB, 3, 10 * GB) == 1


def test_the_bisection_of_an_all_to_all():
    assert cut_bound("all_to_all", 8, 16 * GB, 4, 100 * GB) == Fraction(8 * 16, 4 * 100)


def test_bus_bandwidth_of_a_published_run():
    """1 GiB over eight ranks in 8203.9 us is 229.04 GB/s by nccl-tests."""
    assert bus_bandwidth("all_reduce", 8, 2**30, 8203.9e-6) == pytest.approx(229.04e9, rel=1e-4)
    assert seconds_at("all_reduce", 8, 2**30, 229.04e9) == pytest.approx(8203.9e-6, rel=1e-4)


def test_unequal_ranks():
    """Equal rates give the endpoint bound; one slow rank binds by itself, or not at all beside many."""
    assert unequal_bound(Fraction(8 * GB), [400 * GB] * 8) == Fraction(7, 200)
    assert unequal_bound(10, [10, 10, 10, 1]) == 10
    assert unequal_bound(Fraction(10), [10, 10, 10, 9]) == Fraction(60, 39)
    assert unequal_bound(10, [10, 10], [10, 5]) == 2
    assert unequal_bound(10, [3]) == 0


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12])
def test_ranks_that_are_no_power_of_two_fold(n):
    """The ranks above the largest power of two send all they have to one below, and get the sum back."""
    log = int(math.log2(n))
    assert cost("all_reduce", "recursive_doubling", n) == Cost(log + 2, Fraction(log + 2))
    assert cost("all_reduce", "rabenseifner", n) == Cost(2 * log + 2, Fraction(2 * (2**log - 1), 2**log) + 2)


@pytest.mark.parametrize(("kind", "algorithm"), EVERY)
def test_a_single_rank_does_nothing(kind, algorithm):
    assert cost(kind, algorithm, 1).seconds(5, 7, 3) == endpoint_bound(kind, 1, 5, 7) == 0
    assert flows(kind, algorithm, 1) == () and latency_bound(1, 3) == latency_bound(1, 3, single_port=False) == 0


@given(st.sampled_from(EVERY), ranks, figures, figures, figures)
@settings(deadline=None)
def test_no_algorithm_beats_the_bounds(which, n, amount, rate, alpha):
    kind, algorithm = which
    found = cost(kind, algorithm, n).seconds(amount, rate, alpha)
    adds = algorithm == "in_network"
    assert found >= endpoint_bound(kind, n, amount, rate, switches_add=adds)
    assert found >= latency_bound(n, alpha, single_port=not adds)
    if n > 1:
        assert found >= max(cut_bound(kind, n, amount, s, rate * min(s, n - s)) for s in range(1, n))
        if not adds:
            assert bus_bandwidth(kind, n, amount, found) <= rate
            busbw = bus_bandwidth(kind, n, amount, found)
            assert seconds_at(kind, n, amount, busbw) == found
    if algorithm == "ring":
        steps = cost(kind, algorithm, n).steps
        assert found == endpoint_bound(kind, n, amount, rate) + steps * alpha


@given(kinds, st.integers(2, 40), figures, figures, figures, st.data())
def test_bounds_are_monotone(kind, n, amount, rate, more, data):
    s = data.draw(st.integers(1, n - 1))
    for bound in (lambda d, b: endpoint_bound(kind, n, d, b), lambda d, b: cut_bound(kind, n, d, s, b)):
        assert bound(amount, rate) <= bound(amount + more, rate)
        assert bound(amount, rate) >= bound(amount, rate + more)
        assert bound(2 * amount, 2 * rate) == bound(amount, rate)
    assert bus_factor(kind, n) <= bus_factor(kind, n + 1)
    equal = unequal_bound(amount, [rate] * n)
    assert equal == endpoint_bound("all_reduce", n, amount, rate)
    assert unequal_bound(amount, [rate] * (n - 1) + [rate + more]) <= equal


@given(kinds, st.integers(2, 12), st.data())
def test_what_crosses_a_cut_is_what_the_flows_send_or_less(kind, n, data):
    """Any set of ranks sends the others what the bound asks, by every algorithm whose flows are between ranks."""
    some = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1))
    least = across(kind, n, len(some), root_inside=0 in some)
    for algorithm in ALGORITHMS[kind]:
        crossing = sum(f.share for f in flows(kind, algorithm, n) if f.source in some and f.destination not in some)
        assert crossing >= least, algorithm


@given(st.sampled_from(EVERY), st.integers(2, 40))
@settings(deadline=None)
def test_what_is_sent_is_received(which, n):
    """The busiest rank sends or receives what the closed form says; all together what the bound asks."""
    kind, algorithm = which
    rows = traffic(kind, algorithm, n)
    assert sum(sent for sent, _ in rows) == sum(received for _, received in rows)
    most = max(max(row) for row in rows)
    if algorithm == "in_network" or algorithm in ("ring", "pairwise", "tree", "binomial") or n & (n - 1) == 0:
        assert most == cost(kind, algorithm, n).share
    else:
        assert most <= cost(kind, algorithm, n).share, "folded ranks send in steps of their own"
    if algorithm != "in_network":
        assert sum(sent for sent, _ in rows) >= n * bus_factor(kind, n) * (Fraction(n - 1, n) if kind in (
            "broadcast", "reduce") else 1)
    pairs = [(flow.source, flow.destination) for flow in flows(kind, algorithm, n)]
    assert len(pairs) == len(set(pairs)) and all(a != b and 0 <= min(a, b) and max(a, b) < n for a, b in pairs)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16, 31, 64])
def test_a_tree_has_all_ranks_and_two_children_at_most(n):
    found = flows("all_reduce", "tree", n)
    assert sum(flow.share for flow in found) == 2 * (n - 1), "two trees of n - 1 edges, half of D each, up and down"
    assert {f.source for f in found} == {f.destination for f in found} == set(range(n))
    most = max(sent for sent, _ in traffic("all_reduce", "tree", n))
    assert most == {2: 1, 3: Fraction(3, 2)}.get(n, 2)


REFUSED = [
    (lambda: bus_factor("all_redcue", 8), 'Did you mean "all_reduce"'),
    (lambda: bus_factor("all_reduce", 0), "whole number from 1"),
    (lambda: bus_factor("all_reduce", 2.5), "whole number from 1"),
    (lambda: bus_factor("all_reduce", True), "whole number from 1"),
    (lambda: cost("all_gather", "tree", 8), 'no algorithm "tree" for all_gather'),
    (lambda: flows("broadcast", "pairwise", 8), 'no algorithm "pairwise"'),
    (lambda: endpoint_bound("all_reduce", 8, -1, 1), "from 0 on"),
    (lambda: endpoint_bound("all_reduce", 8, 1, 0), "above 0"),
    (lambda: endpoint_bound("all_reduce", 8, float("nan"), 1), "finite"),
    (lambda: endpoint_bound("all_reduce", 8, 1, float("inf")), "finite"),
    (lambda: latency_bound(8, -1), "latency"),
    (lambda: cut_bound("all_reduce", 4, 1, 4, 1), "from 1 to 3 of 4"),
    (lambda: across("all_reduce", 1, 1), "a cut"),
    (lambda: unequal_bound(1, []), "whole number from 1"),
    (lambda: unequal_bound(1, [1, 2], [1]), "2 rates out and 1 in"),
    (lambda: algorithm_bandwidth(1, 0), "above 0"),
    (lambda: bus_bandwidth("all_reduce", 2, 1, float("nan")), "above 0"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_has_no_answer_is_refused(call, text):
    with pytest.raises(FormulaError, match=text):
        call()
