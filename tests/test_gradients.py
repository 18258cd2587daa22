"""Slopes against differences, on both sides of a kink; upgrades against the bound evaluated anew."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import load_bound
from offload.errors import FormulaError
from offload.events import prefetch_chain
from offload.gradients import Slope, chain_gradient, load_gradient, longest_path, sum_gradient, upgrade

NAMES = ("a", "b", "c")
EPS = Fraction(1, 10**9)  # far below any gap between sums of the small whole numbers here


@st.composite
def systems(draw):
    small = st.integers(1, 4).map(Fraction)
    rates = {name: draw(small) for name in NAMES[: draw(st.integers(1, 3))]}
    use = st.dictionaries(st.sampled_from(sorted(rates)), st.integers(0, 3).map(Fraction), max_size=3)
    return rates, draw(st.lists(st.tuples(st.integers(0, 6).map(Fraction), use), min_size=1, max_size=4))


@pytest.mark.slow
@given(systems())
@settings(max_examples=300)
def test_slopes_are_differences_on_each_side(system):
    rates, transfers = system
    found = load_gradient(rates, transfers)
    total = found.seconds
    assert total == load_bound(rates, transfers).seconds
    for name, slope in found.rates.items():
        for step, side in ((EPS, slope.up), (-EPS, slope.down)):
            after = load_bound({**rates, name: rates[name] + step}, transfers).seconds
            assert abs((after - total) / step - side) <= 2 * EPS * total  # T / B^2, to first order
    for i, slope in enumerate(found.amounts):
        for step, side in ((EPS, slope.up), (-EPS, slope.down)):
            if transfers[i][0] + step >= 0:  # piecewise linear: exactly
                changed = [(amount + step * (j == i), use) for j, (amount, use) in enumerate(transfers)]
                assert (load_bound(rates, changed).seconds - total) / step == side


@given(systems())
@settings(max_examples=200)
def test_euler_where_it_is_smooth_and_convexity_where_not(system):
    rates, transfers = system
    found = load_gradient(rates, transfers)
    for slope in (*found.rates.values(), *found.amounts):
        assert slope.down <= slope.up
    if len(found.bottleneck) == 1:
        assert sum(rates[name] * slope.up for name, slope in found.rates.items()) == -found.seconds
        assert sum(amount * slope.up for (amount, _), slope in zip(transfers, found.amounts, strict=True)) == (
            found.seconds)  # fmt: skip
        assert found.smooth
    # One that is tied gains nothing by itself.
    if len(found.bottleneck) > 1:
        assert not any(slope.up for slope in found.rates.values())
    total = sum_gradient(rates, transfers)
    assert sum(rates[name] * slope for name, slope in total.rates.items()) == -total.seconds
    assert sum(amount * slope for (amount, _), slope in zip(transfers, total.amounts, strict=True)) == total.seconds


def test_a_tie_gains_nothing_alone_and_costs_at_once():
    rates = {"nvme": Fraction(7), "pcie": Fraction(14), "dram": Fraction(100)}
    found = load_gradient(rates, [(Fraction(14), {"nvme": 1, "pcie": 2, "dram": 2})])
    assert found.bottleneck == ("nvme", "pcie")
    assert found.rates == {"nvme": Slope(Fraction(-2, 7), 0), "pcie": Slope(Fraction(-1, 7), 0), "dram": Slope(0, 0)}
    assert found.amounts == (Slope(Fraction(1, 7), Fraction(1, 7)),) and not found.smooth


def test_nothing_to_carry():
    found = load_gradient({"a": Fraction(2), "b": Fraction(4)}, [(Fraction(0), {"a": 1, "b": 3})])
    assert found.seconds == 0 and found.bottleneck == ()
    assert found.amounts[0].up == Fraction(3, 4) and found.rates["a"] == Slope(0, 0)
    gains = upgrade({"a": Fraction(2)}, [], ["a"])
    assert (gains.gain, gains.most, gains.following) == (1, 1, ())


@given(systems(), st.fractions(1, 20))
@settings(max_examples=200)
def test_an_upgrade_ends_where_the_next_binds(system, factor):
    rates, transfers = system
    for name in rates:
        found = upgrade(rates, transfers, [name], factor)
        before = load_bound(rates, transfers).seconds
        assert found.seconds == load_bound({**rates, name: rates[name] * factor}, transfers).seconds
        assert found.gain == (before / found.seconds if before else 1)
        if found.most is None:
            assert not any(use.get(other) and amount for amount, use in transfers for other in rates if other != name)
            continue
        assert found.gain <= found.most
        assert (found.gain == found.most) == (factor >= found.factor_of_use)


def test_the_next_bottleneck_is_named():
    rates = {"nvme": Fraction(7), "pcie": Fraction(25), "dram": Fraction(100)}
    transfers = [(Fraction(14), {"nvme": 1, "pcie": 1, "dram": 2}), (Fraction(11), {"pcie": 1, "dram": 1})]
    assert upgrade(rates, transfers, ["nvme"], 8) == upgrade(rates, transfers, ("nvme",), 8)
    found = upgrade(rates, transfers, ["nvme"], Fraction(3, 2))
    assert (found.gain, found.most, found.factor_of_use, found.following) == (Fraction(3, 2), 2, 2, ("pcie",))
    assert upgrade(rates, transfers, ["nvme", "pcie"]).following == ("dram",)


@st.composite
def chains(draw):
    times = st.lists(st.integers(1, 4).map(Fraction), min_size=1, max_size=5)
    fetch = draw(times)
    return fetch, [Fraction(draw(st.integers(1, 4))) for _ in fetch], draw(st.integers(0, 4))


@given(chains())
@settings(max_examples=200)
def test_a_chains_slopes_are_differences(chain):
    fetch, compute, buffers = chain
    found = chain_gradient(fetch, compute, buffers)
    assert float(found.seconds) == prefetch_chain([float(one) for one in fetch], [float(one) for one in compute],
                                                  buffers).cold_seconds  # fmt: skip
    for times, slopes, which in ((fetch, found.fetch, 0), (compute, found.compute, 1)):
        for i, slope in enumerate(slopes):
            for step, side in ((EPS, slope.up), (-EPS, slope.down)):
                changed = [list(fetch), list(compute)]
                changed[which][i] = times[i] + step
                assert (chain_gradient(*changed, buffers).seconds - found.seconds) / step == side
    unique = all(slope.smooth for slope in (*found.fetch, *found.compute))
    if unique:  # Euler: one critical path adds up to T
        assert sum(time * slope.up for time, slope in zip([*fetch, *compute], [*found.fetch, *found.compute],
                                                          strict=True)) == found.seconds  # fmt: skip


def test_floats_tie_within_rounding():
    found = chain_gradient([0.1, 0.1, 0.1], [0.1, 0.1, 0.1], 2)
    assert [slope.down for slope in found.fetch] == [1, 0, 0]
    assert [slope.up for slope in found.fetch] == [1, 1, 1]
    total, slopes = longest_path([[], [0], [0], [1, 2]], [1, 2, 2, 1])
    assert (total, slopes) == (4, [Slope(1, 1), Slope(0, 1), Slope(0, 1), Slope(1, 1)])


@given(systems())
def test_more_of_a_rate_never_gains_more(system):
    """The bound is convex in each rate: slopes rise towards 0."""
    rates, transfers = system
    for name in rates:
        slopes = [load_gradient({**rates, name: rates[name] * k}, transfers).rates[name] for k in range(1, 5)]
        assert all(one.up <= two.down for one, two in pairwise(slopes))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: load_gradient({}, []), "at least one resource"),
        (lambda: load_gradient({"a": 0}, []), "the rate of a: 0"),
        (lambda: load_gradient({"a": float("nan")}, []), "the rate of a"),
        (lambda: load_gradient({"pcie0": 1}, [(1, {"pcie": 1})]), 'Did you mean "pcie0"'),
        (lambda: load_gradient({"a": 1}, [(-1, {"a": 1})]), "the amount of transfer 0"),
        (lambda: upgrade({"a": 1}, [], ["b"]), 'no resource "b"'),
        (lambda: upgrade({"a": 1}, [], ["a"], Fraction(1, 2)), "at least 1"),
        (lambda: chain_gradient([1], [1, 2], 2), "compute has 2 entries"),
        (lambda: chain_gradient([1], [1], -1), "buffers"),
        (lambda: longest_path([[0]], [1]), "event 0 waits for event 0"),
    ],
)
def test_what_is_no_system_is_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()
