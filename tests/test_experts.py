"""Experts that a batch touches: worked examples, every routing counted, and simulations with a fixed seed."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import ModelError
from offload.models.experts import (
    cyclic_scan,
    distinct,
    distinct_limits,
    distinct_uniform,
    distinct_uniform_variance,
    distinct_variance,
    expert_traffic,
    lru_cache_of_experts,
    static_cache,
    tokens_per_step,
    verified_tokens,
)
from offload.models.popularity import inclusion, pair_inclusion, uniform_inclusion, uniform_pairs, zipf_weights
from tests.worked_numbers import BY_ID as CASE


def wanted(name: str) -> tuple[dict, dict, dict]:
    case = CASE[name]
    return case["inputs"], case["expected"], case.get("exact", {})


def exact(text: object) -> Fraction:
    return Fraction(str(text))


# --- worked examples ---


@pytest.mark.parametrize("name", ["W46", "W47"])
def test_uniform_routing(name):
    values, answer, fractions = wanted(name)
    given_ = (values["experts"], values["topk"], values["tokens"])
    assert distinct_uniform(*given_) == pytest.approx(answer["mean"], rel=1e-13)
    assert distinct_uniform_variance(*given_) == pytest.approx(answer["variance"], rel=1e-12)
    assert distinct_limits(*given_) == (answer["lower"], answer["upper"])
    for key, function in (("mean", distinct_uniform), ("variance", distinct_uniform_variance)):
        found = function(*given_, exact=True)
        assert isinstance(found, Fraction) and float(found) == pytest.approx(answer[key], rel=1e-15)
        assert key not in fractions or found == exact(fractions[key])


def test_a_static_cache_of_one_expert():
    values, answer, fractions = wanted("W48")
    chances = [exact(one) for one in values["inclusion"]]
    found = static_cache(chances, values["tokens"], values["cached_top"])
    assert found.distinct == exact(fractions["mean_distinct"])
    assert found.misses == exact(fractions["mean_misses_static_cache"])
    assert found.activation_hit == exact(fractions["activation_hit_ratio"])
    assert distinct_uniform(4, answer["topk"], 4, exact=True) == exact(fractions["mean_distinct_if_uniform"])
    assert found.byte_hit == 1 - found.misses / found.distinct
    assert float(found.byte_hit) == pytest.approx(0.3714, abs=1e-4)
    floats = static_cache(values["inclusion"], values["tokens"], values["cached_top"])
    assert floats.misses == pytest.approx(answer["mean_misses_static_cache"], rel=1e-14)
    # The same popularity, from Zipf's law.
    assert list(inclusion(zipf_weights(4, Fraction(1)), 1)) == chances


def test_two_drawn_without_replacement_are_not_twice_one():
    values, answer, fractions = wanted("W49")
    weights = [Fraction(one) for one in values["weights"]]
    assert list(inclusion(weights, 2)) == [exact(one) for one in fractions["inclusion"]]
    assert list(inclusion(weights, 1)) == [exact(one) for one in fractions["first_choice"]]
    assert inclusion(values["weights"], 2) == pytest.approx(answer["inclusion"], rel=1e-14)


def test_a_cyclic_scan():
    values, answer, fractions = wanted("W50")
    found = cyclic_scan(values["items"], values["capacity"])
    assert found.lru == answer["lru"] == 0
    assert found.best_demand == exact(fractions["min_demand"]) and found.pinned == exact(fractions["pinned"])
    assert found.lru_misses == answer["lru_misses_per_cycle"]
    assert found.pinned_misses == answer["pinned_misses_per_cycle"]


def test_speculation():
    values, answer, fractions = wanted("W56")
    assert tokens_per_step(exact(values["accept"]), values["draft_len"]) == exact(fractions["tokens_per_step"])
    found = tokens_per_step(values["accept"], values["draft_len"])
    assert found == pytest.approx(answer["tokens_per_step"], rel=1e-14)
    assert values["weight_bytes"] / values["link_bw"] / found == pytest.approx(answer["time_per_token_link"], rel=1e-14)


def test_experts_streamed_in_a_step():
    values, answer, _ = wanted("W74")
    chances = uniform_inclusion(values["experts"], values["topk"])
    found = expert_traffic(chances, values["tokens"], layers=values["layers"], expert_bytes=values["expert_bytes"],
                           cached=values["cached_per_layer"])  # fmt: skip
    assert found.misses == pytest.approx(answer["mean_misses_per_layer"], rel=1e-13)
    assert found.fetched == pytest.approx(answer["mean_bytes"], rel=1e-13)
    assert found.fetched / values["link_bw"] == pytest.approx(answer["link_time_at_mean"], rel=1e-13)
    assert found.most == answer["max_bytes"] and found.least == 0


# --- every routing, one by one ---


def every_batch(weights: list[int], active: int, tokens: int) -> list[tuple[Fraction, set[int]]]:
    """Each way that a batch can be routed, drawn without replacement by weight, with its chance."""
    ways: dict[tuple[int, ...], Fraction] = {}
    for order in permutations(range(len(weights)), active):
        chance, left = Fraction(1), Fraction(sum(weights))
        for expert in order:
            chance, left = chance * weights[expert] / left, left - weights[expert]
        key = tuple(sorted(order))
        ways[key] = ways.get(key, Fraction(0)) + chance
    return [(math.prod(ways[one] for one in batch), set().union(*batch)) for batch in product(ways, repeat=tokens)]


WAYS = [([1, 1, 1], 1, 3), ([1, 1, 1, 1], 2, 3), ([5, 3, 1, 1], 1, 4), ([5, 3, 1, 2], 2, 3), ([9, 4, 2, 1, 1], 3, 2),
        ([100, 1, 1, 7], 3, 3), ([2, 1], 2, 2), ([3, 3, 1, 1, 1], 4, 2)]  # fmt: skip


@pytest.mark.parametrize("weights, active, tokens", WAYS)
def test_all_routings_counted(weights, active, tokens):
    batches = every_batch(weights, active, tokens)
    assert sum(chance for chance, _ in batches) == 1
    single = [sum(chance for chance, used in every_batch(weights, active, 1) if e in used) for e in range(len(weights))]
    found = inclusion(weights, active)
    assert found == pytest.approx([float(one) for one in single], rel=1e-12)
    mean = sum(chance * len(used) for chance, used in batches)
    variance = sum(chance * (len(used) - mean) ** 2 for chance, used in batches)
    assert distinct(single, tokens) == mean
    assert distinct(found, tokens) == pytest.approx(float(mean), rel=1e-12)
    pairs = pair_inclusion(weights, active)
    assert distinct_variance(found, tokens, pairs) == pytest.approx(float(variance), rel=1e-9, abs=1e-12)
    least, most = distinct_limits(len(weights), active, tokens)
    assert {len(used) for _, used in batches} <= set(range(least, most + 1))
    if active <= 2:
        assert list(inclusion([Fraction(one) for one in weights], active)) == single
    if len(set(weights)) == 1:
        assert distinct_uniform(len(weights), active, tokens, exact=True) == mean
        assert distinct_uniform_variance(len(weights), active, tokens, exact=True) == variance
    # A static cache: for each set of experts, and no set does better than the most popular ones.
    for size in range(len(weights) + 1):
        best = min(sum(chance * len(used - set(kept)) for chance, used in batches)
                   for kept in combinations(range(len(weights)), size))  # fmt: skip
        assert static_cache(single, tokens, size).misses == best


@pytest.mark.parametrize("weights, active, _", WAYS)
def test_all_pairs_counted(weights, active, _):
    draws = every_batch(weights, active, 1)
    wanted = [[float(sum(chance for chance, used in draws if {a, b} <= used)) for b in range(len(weights))]
              for a in range(len(weights))]  # fmt: skip
    found = pair_inclusion(weights, active)
    assert found == pytest.approx(np.array(wanted), rel=1e-9)
    if len(set(weights)) == 1:
        assert uniform_pairs(len(weights), active) == pytest.approx(found, rel=1e-9)


# --- simulations ---


def simulated(weights: np.ndarray, active: int, count: int, seed: int = 20) -> np.ndarray:
    """Experts of `count` tokens: the k largest of log weight and Gumbel noise."""
    noise = np.random.default_rng(seed).gumbel(size=(count, len(weights)))
    return np.argpartition(-(np.log(weights) + noise), active - 1, axis=1)[:, :active]


def test_a_simulation_agrees_with_the_integral():
    weights = zipf_weights(64, 1.1)
    chosen = simulated(weights, 6, 60_000)
    counted = np.bincount(chosen.ravel(), minlength=64) / 60_000
    found = inclusion(weights, 6)
    assert abs(counted - found).max() < 4.5 * np.sqrt(0.25 / 60_000)
    batches = np.array([len(np.unique(chosen[i : i + 8])) for i in range(0, 60_000, 8)])
    spread = distinct_variance(found, 8, pair_inclusion(weights, 6))
    assert batches.mean() == pytest.approx(distinct(found, 8), abs=4 * math.sqrt(spread / len(batches)))
    assert batches.var() == pytest.approx(spread, rel=0.08)


def lru(chosen: np.ndarray, size: int, tokens: int) -> tuple[float, float]:
    """Activation and byte hit ratios of a true LRU cache, counted."""
    order: dict[int, None] = {}
    hits = served = touched = 0
    for start in range(0, len(chosen), tokens):
        batch = chosen[start : start + tokens]
        used = set(batch.ravel().tolist())
        served += len(used & order.keys())
        touched += len(used)
        for expert in batch.ravel().tolist():
            hits += expert in order
            order.pop(expert, None)
            order[expert] = None
            if len(order) > size:
                del order[next(iter(order))]
    return hits / chosen.size, served / touched


@pytest.mark.parametrize(
    "exponent, active, size, tokens", [(1.0, 1, 16, 1), (1.0, 2, 24, 1), (0.7, 4, 40, 4), (0.0, 2, 32, 8)]
)
def test_ches_approximation_is_near_a_true_lru(exponent, active, size, tokens):
    weights = zipf_weights(64, exponent)
    found = lru_cache_of_experts(inclusion(weights, active), tokens, size)
    hits, bytes_ = lru(simulated(weights, active, 40_000), size, tokens)
    assert found.activation_hit == pytest.approx(hits, abs=0.015)
    assert found.byte_hit == pytest.approx(bytes_, abs=0.015)
    assert found.misses == pytest.approx((1 - found.byte_hit) * found.distinct, rel=1e-12)
    chances = inclusion(weights, active)
    assert (1 - np.exp(-chances * found.reach)).sum() == pytest.approx(size, rel=1e-12)


@pytest.mark.parametrize("items, capacity", [(2, 1), (40, 32), (100, 99), (7, 1), (10, 5)])
def test_a_cyclic_scan_simulated(items, capacity):
    """LRU and MIN counted on a real cache, random within its spread."""
    found = cyclic_scan(items, capacity)
    reads = list(range(items)) * 60
    order: list[int] = []
    hits = {"lru": 0, "best": 0}
    for place, item in enumerate(reads):  # Belady: of those kept, the one read last in the future goes
        if item in order:
            hits["best"] += place >= items
        else:
            if len(order) == capacity:
                order.remove(max(order, key=lambda one: (one - item) % items))
            order.append(item)
    counted = hits["best"] / (len(reads) - items)
    assert counted == pytest.approx(float(found.best_demand), abs=0.02)
    if items >= 40:  # the root is that of many items
        chance, kept, served = np.random.default_rng(5), list(range(capacity)), 0
        held = set(kept)
        for item in list(range(items)) * 400:
            if item in held:
                served += 1
            else:
                place = chance.integers(capacity)
                held.discard(kept[place])
                held.add(item)
                kept[place] = item
        assert served / (items * 400) == pytest.approx(found.random, abs=0.02)


def test_half_of_the_items_at_random_hit_a_fifth():
    found = cyclic_scan(2, 1)
    assert found.random == pytest.approx(0.203, abs=5e-4)
    assert found.random == pytest.approx(math.exp(-(1 - found.random) * 2), rel=1e-14)
    assert found.random_misses == 2 * (1 - found.random)


@pytest.mark.parametrize("items, capacity, hits", [(5, 5, 1), (5, 9, 1), (1, 1, 1), (1, 0, 0), (5, 0, 0)])
def test_scans_that_fit_or_have_no_cache(items, capacity, hits):
    found = cyclic_scan(items, capacity)
    assert (found.lru, found.best_demand, found.pinned, found.random) == (hits,) * 4


# --- shapes, laws, ends ---


def test_a_batch_as_an_array_gives_an_array():
    tokens = np.array([[0, 1], [32, 4096]])
    found = distinct_uniform(256, 8, tokens)
    assert found.shape == (2, 2)
    assert found.ravel().tolist() == [distinct_uniform(256, 8, int(one)) for one in tokens.ravel()]
    assert distinct_uniform_variance(256, 8, tokens).shape == (2, 2)
    assert distinct_uniform(8, 2, np.array([1, 3]), exact=True).tolist() == [2, Fraction(37, 8)]
    chances = inclusion(zipf_weights(16, 1.0), 2)
    many = static_cache(chances, tokens[:, :, None], np.array([0, 4, 16]))
    assert many.misses.shape == many.byte_hit.shape == (2, 2, 3) and many.activation_hit.shape == (3,)
    for place in np.ndindex(2, 2, 3):
        one = static_cache(chances, int(tokens[place[:2]]), [0, 4, 16][place[2]])
        assert many.misses[place] == one.misses and many.byte_hit[place] == one.byte_hit
    assert many.misses[..., 2].max() == 0 and many.activation_hit[2] == 1
    traffic = expert_traffic(chances, tokens, layers=3, expert_bytes=10, cached=4)
    assert traffic.fetched.shape == traffic.most.shape == (2, 2) and traffic.least.tolist() == [[0, 0], [0, 0]]
    assert lru_cache_of_experts(chances, tokens, 4).byte_hit.shape == (2, 2)
    assert verified_tokens(np.array([1, 8]), 4).tolist() == [5, 40]
    assert tokens_per_step([0.0, 0.5, 1.0], [[0], [3]]).tolist() == [[1, 1, 1], [1, 1.875, 4]]
    assert distinct_uniform(np.int64(8), np.int64(2), np.int64(3)) == 4.625
    assert type(distinct(chances, 3)) is float and type(distinct_limits(8, 2, 3)[1]) is int


def test_the_ends():
    assert distinct_uniform(8, 2, np.array([0, 1, 10**9])) == pytest.approx([0, 2, 8], rel=1e-15)
    assert distinct_uniform(8, 2, 0) == 0 and distinct_uniform(8, 8, 5) == 8
    assert distinct_uniform_variance(8, 2, np.array([0, 1, 10**9])).tolist() == [0, 0, 0]
    assert distinct_uniform_variance(8, 8, 3) == distinct_uniform_variance(1, 1, 3) == 0
    assert distinct_uniform_variance(8, 7, 2) == pytest.approx(float(distinct_uniform_variance(8, 7, 2, exact=True)))
    assert distinct([1, 0, 1], np.array([0, 1, 5])).tolist() == [0, 2, 2]
    assert distinct_uniform(10**4, 1, 10**9) == 10**4
    assert distinct_limits(8, 2, 0) == (0, 0) and distinct_limits(8, 2, 9) == (2, 8)
    whole = lru_cache_of_experts([0.5, 0.5, 0.0], 4, 2)
    assert (whole.misses, whole.byte_hit, whole.activation_hit, whole.reach) == (0, 1, 1, math.inf)
    none = lru_cache_of_experts([0.5, 0.5, 0.0], 4, 0)
    assert none.misses == none.distinct and none.byte_hit == none.activation_hit == none.reach == 0
    idle = expert_traffic([0.5, 0.5], 0, layers=2, expert_bytes=7)
    assert (idle.touched, idle.fetched, idle.least, idle.most) == (0, 0, 0, 0)
    alone = expert_traffic(uniform_inclusion(8, 2), 1, layers=2, expert_bytes=7, cached=1)
    assert (alone.least, alone.most) == (2 * 7, 2 * 2 * 7)


def test_weights_that_are_far_apart():
    for weights, active in [([1e300, 1, 1e-5], 2), (zipf_weights(60, 20), 4), ([1e12] + [1.0] * 20, 3)]:
        found = inclusion(weights, active)
        assert found.sum() == pytest.approx(active, rel=1e-12) and (found <= 1).all() and (found > 0).all()
    assert inclusion([1e300, 1, 1e-5], 2)[2] == pytest.approx(1e-5 / (1 + 1e-5), rel=1e-12)


@pytest.mark.parametrize("active", [1, 2, 3, 6])
def test_uniform_is_zipf_without_a_slope(active):
    assert inclusion(zipf_weights(6, 0), active) == pytest.approx(uniform_inclusion(6, active), rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 20), st.data())
def test_laws(experts, data):
    active = data.draw(st.integers(1, min(4, experts)))
    weights = zipf_weights(experts, data.draw(st.floats(0, 2)))
    tokens, cached = np.arange(0, 12), np.arange(experts + 1)
    chances = inclusion(weights, active)
    assert chances.sum() == pytest.approx(active, rel=1e-11)
    assert (np.diff(chances) <= 1e-15).all(), "the more popular, the likelier"
    touched = distinct(chances, tokens)
    assert (touched <= distinct_uniform(experts, active, tokens) * (1 + 1e-12)).all(), "uniform touches the most"
    least, most = distinct_limits(experts, active, tokens)
    assert (touched >= least - 1e-9).all() and (touched <= most + 1e-9).all()
    held = static_cache(chances, tokens[1:, None], cached)
    assert (np.diff(held.misses, axis=1) <= 1e-12).all() and (held.misses[:, -1] == 0).all()
    assert (held.byte_hit <= held.activation_hit + 1e-9).all(), "bytes are hit no more often than activations"
    assert held.byte_hit[0] == pytest.approx(held.activation_hit, abs=1e-9), "one token: they are one"
    lru_hits = lru_cache_of_experts(chances, 1, int(data.draw(st.integers(0, experts))))
    assert lru_hits.activation_hit <= held.activation_hit[lru_hits.cached] + 1e-9, "no worse than a static cache"


# --- what is refused ---


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: distinct_uniform(8, 9, 1), "active is 9: a token cannot go to more than the 8"),
        (lambda: distinct_uniform(0, 1, 1), "experts is 0"),
        (lambda: distinct_uniform(8, 0, 1), "active"),
        (lambda: distinct_uniform(8.0, 2, 1), "experts is '8.0'"),
        (lambda: distinct_uniform(True, 1, 1), "experts is 'True'"),
        (lambda: distinct_uniform(10**9, 2, 1), "experts is 1,000,000,000"),
        (lambda: distinct_uniform(8, 2, -1), "tokens is -1"),
        (lambda: distinct_uniform(8, 2, 2.5), "tokens is '2.5'; it must be a whole number"),
        (lambda: distinct_uniform(8, 2, "3"), "tokens is '3'"),
        (lambda: distinct_uniform(8, 2, None), "tokens is 'None'"),
        (lambda: distinct_uniform(8, 2, True), "tokens is 'True'"),
        (lambda: distinct_uniform(8, 2, 10**40), "tokens is '1000"),
        (lambda: distinct_uniform(8, 2, 10**6, exact=True), "from 0 to 10,000"),
        (lambda: distinct([0.5, 0.6], 1), "sum to 1.1"),
        (lambda: distinct([0.2, 0.2], 1), "sum to 0.4"),
        (lambda: distinct([1.5, 0.5], 1), "from 0 to 1"),
        (lambda: distinct([-0.5, 1.5], 1), "from 0 to 1"),
        (lambda: distinct([float("nan"), 1], 1), "nan"),
        (lambda: distinct([], 1), "1 to 65,536 numbers"),
        (lambda: distinct([[0.5, 0.5]], 1), "shape (1, 2)"),
        (lambda: distinct([[0.5], [0.5, 1]], 1), "a list of numbers"),
        (lambda: distinct("abc", 1), "a list of numbers"),
        (lambda: distinct([0.5, None], 1), "a list of numbers"),
        (lambda: distinct([True, False], 1), "a list of numbers"),
        (lambda: distinct(0.5, 1), "shape ()"),
        (lambda: distinct_variance([0.5] * 4, 2), "pair_inclusion"),
        (lambda: distinct_variance([0.5] * 4, 2, np.ones((3, 3))), "4 x 4"),
        (lambda: distinct_variance([0.5] * 4, 2, np.full((4, 4), 0.5)), "contradict"),
        (lambda: distinct_variance([0.5] * 4, 2, "x"), "4 x 4"),
        (lambda: static_cache([0.5, 0.5], 1, 3), "cached is 3: a layer has 2 experts"),
        (lambda: static_cache([0.5, 0.5], 1, -1), "cached is -1"),
        (lambda: static_cache([0.5, 0.5], 1, 0.5), "cached is '0.5'"),
        (lambda: lru_cache_of_experts([0.5, 0.5], 1, np.array([1, 2])), "cached"),
        (lambda: static_cache([0.5, 0.5], [1, 2, 3], [0, 1]), "tokens (3,) and cached (2,) do not go together"),
        (lambda: tokens_per_step([0.1, 0.2], [1, 2, 3]), "acceptance (2,) and draft (3,)"),
        (lambda: verified_tokens([1, 2], [1, 2, 3]), "batch (2,) and draft (3,)"),
        (lambda: inclusion([1, 0], 1), "above 0"),
        (lambda: inclusion([1e300, 1e-300], 1), "too small"),
        (lambda: inclusion([1, 2], 3), "active is 3"),
        (lambda: zipf_weights(8, -1), "s = 0"),
        (lambda: zipf_weights(8, "x"), "exponent is 'x'"),
        (lambda: zipf_weights(8, float("inf")), "exponent is 'inf'"),
        (lambda: zipf_weights(1000, 200), "last of 1000"),
        (lambda: cyclic_scan(0, 1), "items is 0"),
        (lambda: cyclic_scan(5, -1), "capacity is -1"),
        (lambda: cyclic_scan(5, 1.5), "capacity is '1.5'"),
        (lambda: tokens_per_step(80, 4), "80 % is 0.8"),
        (lambda: tokens_per_step(float("nan"), 4), "from 0 to 1"),
        (lambda: tokens_per_step("x", 4), "acceptance is 'x'"),
        (lambda: tokens_per_step(0.8, 2.5), "draft is '2.5'"),
        (lambda: tokens_per_step(0.8, 10**6), "draft is 1000000"),
        (lambda: verified_tokens(2, -1), "draft is -1"),
        (lambda: expert_traffic([0.5, 0.5], 1, layers=0, expert_bytes=1), "layers is 0"),
        (lambda: expert_traffic([0.5, 0.5], 1, layers=1, expert_bytes=0.5), "expert_bytes is '0.5'"),
    ],
)
def test_input_that_is_refused(make, said):
    with pytest.raises(ModelError) as error:
        make()
    assert said in str(error.value)
