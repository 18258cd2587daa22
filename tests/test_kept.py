"""What a request keeps as a function of its length, and the risk that several ranks overflow: by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offload.models import overflow
from offload.models.cache import Cache, State, sequence_bytes
from offload.models.concurrency import SteadyLengths, admitted_by_risk, overflow_risk, steady_mean
from offload.models.kept import kept_on
from offload.models.lengths import Lengths, parse_lengths, summed_blocks
from offload.models.overflow import ERROR, Overflow, Part
from offload.models.serving import LayerBytes, Serving, serving_budget

CACHES = st.sampled_from([Cache("full", 1, 1, 1), Cache("full", 2, 3, 1), Cache("window", 1, 1, 1, window=5),
                          Cache("window", 3, 1, 1, window=12), Cache("chunk", 1, 2, 2, window=8), Cache("none"),
                          Cache("full", 1, 1, 1, shared=True)])  # fmt: skip
LAYERS = st.lists(st.builds(LayerBytes, st.just(1), cache=CACHES, state=st.sampled_from([None, State(3)])),
                  min_size=1, max_size=5)  # fmt: skip


@given(LAYERS, st.integers(1, 40), st.sampled_from([1, 3, 4]), st.integers(0, 9), st.integers(1, 6), st.booleans())
def test_the_bytes_of_a_request_are_those_of_its_layers(layers, length, block, prefix, chunk, widened):
    serving = Serving(10**6, tuple(layers), block=block, context=50, shared_prefix=prefix, chunk=chunk, widened=widened)
    rank = serving_budget(serving).tightest
    kept = kept_on(serving, rank)
    whole = sequence_bytes([one.cache for one in layers], length, states=[one.state for one in layers if one.state],
                           block=block, batched=chunk if widened else 1)  # fmt: skip
    assert kept.bytes(length) == whole.total - min(whole.growing, rank.shared)
    assert kept.bytes(10**9) == rank.full + (10**9 // -block * -block) * rank.growing - rank.shared


@given(LAYERS, st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from([1, 3]), st.integers(0, 9))
def test_the_distribution_of_bytes_is_that_of_the_lengths(layers, values, block, prefix):
    serving = Serving(10**6, tuple(layers), block=block, context=50, shared_prefix=prefix)
    kept = kept_on(serving, serving_budget(serving).tightest)
    amount = kept.amount(Lengths("list", values=tuple(values)))
    if amount is None:
        assert kept.bytes(40) == kept.bytes(1) == kept.constant
        return
    own = [(kept.bytes(value) - kept.constant) // kept.unit for value in values]
    assert all(one * kept.unit == kept.bytes(value) - kept.constant for one, value in zip(own, values, strict=True))
    ends = np.arange(max(own) + 3)
    assert amount.at_most(ends) == pytest.approx([sum(one <= end for one in own) / len(own) for end in ends])
    assert amount.mean_up_to(ends.astype(float)) == pytest.approx(
        [sum(min(one, end) for one in own) / len(own) for end in ends])  # fmt: skip


@given(st.sampled_from(["uniform 3 90", "uniform 7 7", "fixed 12", "4, 9, 9, 30", "lognormal 12 0"]),
       st.floats(0, 40), st.sampled_from([1, 3, 16, 50]))  # fmt: skip
def test_the_mean_of_the_fewer_blocks_by_counting(text, end, block):
    lengths = parse_lengths(text)
    values = lengths.values or range(int(lengths.first), int(lengths.second or lengths.first) + 1)
    by_hand = sum(min(-(-value // block), end) for value in values) / len(values)
    assert lengths.blocks_up_to(np.array([end]), block)[0] == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.few
@pytest.mark.parametrize("text", ["lognormal 300 0.7", "uniform 3 90", "4, 9, 9, 30", "fixed 12"])
def test_the_mean_square_of_the_smaller(text):
    """Its derivative is 2 x P(length > x): against sums of narrow strips."""
    lengths = parse_lengths(text)
    ends = np.arange(0, 3000, 0.125)
    strips = np.concatenate([[0.0], np.cumsum(2 * (ends[:-1] + 0.0625) * (1 - lengths.below(ends[:-1] + 0.0625)) / 8)])
    assert lengths.square_up_to(ends) == pytest.approx(strips, rel=2e-4, abs=1.5)
    assert lengths.square_up_to(np.array([1e9]))[0] == pytest.approx(lengths.mean_square)


def test_blocks_beyond_those_that_are_summed_one_by_one(monkeypatch):
    lengths, steady = parse_lengths("lognormal 3000 1.5"), SteadyLengths(parse_lengths("lognormal 3000 1.5"), 70)
    ends = np.array([10.0, 100.5, 1999.0, 2500.25, 30_000.0])
    for one in (lengths, steady):
        exact = summed_blocks(one, ends, 16)
        monkeypatch.setattr("offload.models.lengths.NEAR", 512)
        assert summed_blocks(one, ends, 16) == pytest.approx(exact, rel=1e-7)
        monkeypatch.undo()


# --- wide cells ---


@pytest.mark.parametrize("text", ["lognormal 200 0.7", "uniform 1 100", "30, 500, 2000"])
def test_cells_much_wider_than_a_request_keep_the_mean(monkeypatch, text):
    """Half of a length at either end of its cell would admit half as many."""
    lengths = parse_lengths(text)
    exact = admitted_by_risk(lengths, 60_000, 0.01)
    monkeypatch.setattr(overflow, "MOST_CELLS", 60)
    coarse = admitted_by_risk(lengths, 60_000, 0.01)
    assert 0.7 * exact.requests < coarse.requests <= exact.requests, "spread more, so it admits no more"
    values = [overflow_risk(lengths, count, 60_000) for count in (1, exact.requests, 2 * exact.requests)]
    monkeypatch.undo()
    for one in values:
        assert abs(one.value - overflow_risk(lengths, one.requests, 60_000).value) <= 1.5 * one.error


@pytest.mark.few
@pytest.mark.parametrize(("text", "positions"), [("lognormal 200 0.7", 122_070_312), ("uniform 1 100", 10**8)])
def test_very_many_requests_are_near_the_normal_limit(text, positions):
    lengths = parse_lengths(text)
    rounding = 0.5 if lengths.kind == "lognormal" else 0
    mean, spread = lengths.mean + rounding, math.sqrt(lengths.mean_square - lengths.mean**2)
    limit = ((-2.3263 * spread + math.sqrt((2.3263 * spread) ** 2 + 4 * mean * positions)) / (2 * mean)) ** 2
    found = admitted_by_risk(lengths, positions, 0.01)
    assert 0.99 * limit < found.requests <= limit


# --- several ranks ---


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 3),
       st.lists(st.tuples(LAYERS, st.integers(0, 300)), min_size=1, max_size=3))  # fmt: skip
@settings(max_examples=60)
@example([3, 9], 2, [([LayerBytes(1, cache=Cache("full", 1, 1, 1))], 50),
                     ([LayerBytes(1, cache=Cache("window", 1, 1, 1, window=5))], 30)])  # fmt: skip
def test_the_risk_that_any_rank_overflows_lies_between_the_bounds(values, requests, ranks):
    lengths = Lengths("list", values=tuple(values))
    kept, parts = [], []
    for layers, room in ranks:
        serving = Serving(10**6, tuple(layers), block=1, context=50)
        one = kept_on(serving, serving_budget(serving).tightest)
        kept.append((one, room))
        unit = max(1, one.unit)
        parts.append(Part(one.amount(lengths), lambda n, one=one, room=room, unit=unit:
                          (room - n * one.constant) // unit))  # fmt: skip
    drawn = list(itertools.product(values, repeat=requests))
    over = [[sum(map(one.bytes, row)) > room for one, room in kept] for row in drawn]
    exact = sum(map(any, over)) / len(drawn)
    found = Overflow(parts).risk(requests)
    alone = [sum(column) / len(drawn) for column in zip(*over, strict=True)]
    assert found.value == pytest.approx(min(1, sum(alone)), abs=ERROR)
    assert (max(alone) if found.least is None else found.least) == pytest.approx(max(alone), abs=ERROR)
    assert max(alone) - ERROR <= exact <= found.value + ERROR
    most = Overflow(parts).most(0.3)
    if most < 1 << 29:
        assert Overflow(parts).risk(most).value <= 0.3 + 2 * ERROR < Overflow(parts).risk(most + 1).value + 3 * ERROR


# --- a prefix in steady operation ---


def test_a_prefix_is_there_from_the_start():
    assert steady_mean(parse_lengths("fixed 2000"), 600) == 600 + 1400 / 2
    assert steady_mean(parse_lengths("100, 300"), 50) == pytest.approx(50 + (50 * 25 + 250 * 125) / 300)
    lengths = parse_lengths("lognormal 2000 0.7")
    assert steady_mean(lengths) == SteadyLengths(lengths).mean
    draws = np.random.default_rng(5).lognormal(math.log(2000), 0.7, 400_000)
    output = np.maximum(0, draws - 500)
    assert steady_mean(lengths, 500) == pytest.approx(500 + (output**2).mean() / 2 / output.mean(), rel=0.01)


def test_stages_of_alike_layers_are_one_part():
    serving = Serving(10**9, tuple(LayerBytes(0, cache=Cache("full", 8, 128, 128)) for _ in range(26)), pp=3, block=1)
    shapes = [kept_on(serving, rank).amount(parse_lengths("5")).shape for rank in serving_budget(serving).ranks]
    assert len(set(shapes)) == 1, "9, 9 and 8 layers keep amounts in proportion"
