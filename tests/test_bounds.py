"""Floors against answers worked by hand, and against the laws that every floor obeys."""

from fractions import Fraction
from itertools import combinations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.bounds import head_body_tail, load_bound
from tests.worked_numbers import WORKED as CASES

LOADS = [case for case in CASES if case["kind"] == "load_bound_case"]


def exact(text):
    return Fraction(str(text))


@pytest.mark.parametrize("case", LOADS, ids=lambda case: case["id"])
def test_load_bound_equals_the_worked_example(case):
    rates = {name: exact(rate) for name, rate in case["inputs"]["caps"].items()}
    transfers = [
        (exact(one["bytes"]), {name: exact(use) for name, use in one["use"].items()})
        for one in case["inputs"]["transfers"]
    ]
    bound = load_bound(rates, transfers)
    wanted = case["expected"] | {}
    times = wanted["resource_time"] | (case.get("exact", {}).get("resource_time") or {})
    assert bound.seconds == exact(case.get("exact", {}).get("T", wanted["T"]))
    assert bound.resource_seconds == {name: exact(time) for name, time in times.items()}
    assert list(bound.bottleneck) == sorted(wanted["bottleneck"])
    as_floats = load_bound(case["inputs"]["caps"], [(one["bytes"], one["use"]) for one in case["inputs"]["transfers"]])
    assert as_floats.seconds == pytest.approx(float(bound.seconds), rel=1e-12)
    assert as_floats.bottleneck == bound.bottleneck, "ties are found in floating point too"


def test_w08_mixed_reads_and_writes_of_a_drive():
    inputs = next(case for case in CASES if case["id"] == "W08")
    expected, given_ = inputs["expected"], inputs["inputs"]
    reads, writes = given_["read_bytes"], given_["write_bytes"]
    shared = load_bound(
        {"drive": Fraction(1)},
        [(reads, {"drive": Fraction(1, given_["read_bw"])}), (writes, {"drive": Fraction(1, given_["write_bw"])})],
    )
    assert shared.seconds == expected["time_shared"]
    apart = {"read": given_["read_bw"], "write": given_["write_bw"]}
    assert load_bound(apart, [(reads, {"read": 1}), (writes, {"write": 1})]).seconds == expected["independent"]
    capped = apart | {"total": Fraction(given_["total_bw"])}
    both = load_bound(capped, [(reads, {"read": 1, "total": 1}), (writes, {"write": 1, "total": 1})])
    assert both.seconds == exact(inputs["exact"]["with_total_cap"])


def test_w25_copy_in_and_compute_share_hbm():
    case = next(case for case in CASES if case["id"] == "W25")
    given_ = case["inputs"]
    rates = {"flop": given_["peak_flops"], "link": given_["link_bw"], "hbm": given_["hbm_bw"]}
    rates = {name: Fraction(rate) for name, rate in rates.items()}
    copy, read, work = given_["copy_in_bytes"], given_["compute_hbm_bytes"], given_["flops"]
    bound = load_bound(rates, [(work, {"flop": 1}), (read, {"hbm": 1}), (copy, {"link": 1, "hbm": 1})])
    assert bound.seconds == exact(case["exact"]["T"])
    assert bound.resource_seconds == {name: exact(time) for name, time in case["exact"]["resource_time"].items()}


amounts = st.integers(0, 10**6)
rates_ = st.integers(1, 10**6)
coefficients = st.dictionaries(st.sampled_from("abc"), st.integers(0, 5), max_size=3)
steps = st.tuples(
    st.fixed_dictionaries({name: rates_ for name in "abc"}), st.lists(st.tuples(amounts, coefficients), max_size=6)
)


@given(steps, st.sampled_from("abc"), st.integers(1, 10**6), st.integers(0, 5), st.integers(1, 10**6))
def test_load_bound_is_exactly_monotone_in_floating_point(step, name, faster, index, more):
    rates, transfers = step
    before = load_bound({n: float(r) for n, r in rates.items()}, transfers).seconds
    quick = {n: float(r + (faster if n == name else 0)) for n, r in rates.items()}
    assert load_bound(quick, transfers).seconds <= before
    if transfers:
        heavier = list(transfers)
        amount, use = heavier[index % len(heavier)]
        heavier[index % len(heavier)] = (amount + more, use)
        assert load_bound({n: float(r) for n, r in rates.items()}, heavier).seconds >= before


@given(steps, st.integers(1, 1000))
def test_load_bound_scales_and_ignores_names_and_order(step, factor):
    rates, transfers = ({n: Fraction(r) for n, r in step[0].items()}, step[1])
    bound = load_bound(rates, transfers)
    scaled = [(amount * factor, use) for amount, use in transfers]
    assert load_bound(rates, scaled).seconds == factor * bound.seconds
    assert load_bound({n: r * factor for n, r in rates.items()}, scaled).seconds == bound.seconds
    assert load_bound(rates, transfers[::-1]).seconds == bound.seconds
    halves = [(Fraction(amount, 2), use) for amount, use in transfers for _ in range(2)]
    assert load_bound(rates, halves).seconds == bound.seconds, "splitting a transfer changes nothing"
    renamed = {n.upper(): r for n, r in rates.items()}
    other = [(amount, {n.upper(): c for n, c in use.items()}) for amount, use in transfers]
    assert load_bound(renamed, other).bottleneck == tuple(n.upper() for n in bound.bottleneck)


@given(steps, steps)
def test_load_bound_is_subadditive_and_grows_with_rows(one, other):
    rates = {n: Fraction(r) for n, r in one[0].items()}
    both = load_bound(rates, one[1] + other[1]).seconds
    assert both <= load_bound(rates, one[1]).seconds + load_bound(rates, other[1]).seconds
    fewer = {n: r for n, r in rates.items() if n != "a"}
    kept = [(amount, {n: c for n, c in use.items() if n != "a"}) for amount, use in one[1]]
    assert load_bound(fewer, kept).seconds <= load_bound(rates, one[1]).seconds


def test_load_bound_broadcasts_and_equals_each_point_bit_for_bit():
    batch = numpy.array([1.0, 3.0, 7.0]).reshape(3, 1)
    rate = numpy.array([25e9, 31.5e9]).reshape(1, 2)
    grid = load_bound({"link": rate, "hbm": 1e12}, [(1.1e9, {"link": 1}), (batch * 3.3e8, {"link": 1, "hbm": 3})])
    assert grid.seconds.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            point = load_bound(
                {"link": float(rate[0, j]), "hbm": 1e12},
                [(1.1e9, {"link": 1}), (float(batch[i, 0]) * 3.3e8, {"link": 1, "hbm": 3})],
            )
            assert grid.seconds[i, j] == point.seconds


jobs_ = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 20)), max_size=7)


@given(jobs_)
def test_head_body_tail_equals_the_best_subset(jobs):
    served = [job for job in jobs if job[1] > 0]
    best = 0
    for count in range(1, len(served) + 1):
        for some in combinations(served, count):
            best = max(best, min(j[0] for j in some) + sum(j[1] for j in some) + min(j[2] for j in some))
    assert head_body_tail(jobs) == best
