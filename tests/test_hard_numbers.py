"""Public formulas under hard numbers: each answers with finite numbers or refuses in words, and none hangs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy
import pytest

from offload import (
    amplification,
    bounds,
    breakeven,
    collectives,
    dependencies,
    events,
    fluid,
    forms,
    given,
    gradients,
    messages,
    multipath,
    multipath_arcs,
    overlap,
    pipelines,
    techniques,
    tiers,
)
from offload.errors import FormulaError, OffloadError, shown

HUGE, TINY = 1e300, 1e-300


def _load(rate, amount, coefficient):
    return bounds.load_bound({"a": rate, "b": 1}, [(amount, {"a": coefficient, "b": 1})])


def _gradient(rate, amount, coefficient):
    return gradients.load_gradient({"a": rate}, [(amount, {"a": coefficient})])


def _sums(rate, amount, coefficient):
    return gradients.sum_gradient({"a": rate}, [(amount, {"a": coefficient})])


def _upgrade(rate, amount, factor):
    return gradients.upgrade({"a": rate, "b": 1}, [(amount, {"a": 1, "b": 1})], ["a"], factor)


def _decode(layer_bytes, parameters, kv_bytes, room, memory, flop, link):
    return techniques.decode_step(8, layer_bytes=layer_bytes, active_parameters=parameters, kv_bytes=kv_bytes, batch=2,
                                  context=9, room=room, memory_rate=memory, flop_rate=flop, link_rate=link)  # fmt: skip


def _multipath(rate, other, amount):
    return multipath.multipath({"a": rate, "b": other}, [(amount, [{"a": 1}, {"b": 1}])])


def _tiers(rate, room, amount):
    one = tiers.Tier("x", room, {"a": 1})
    return tiers.tier_placement({"a": rate, "b": 1}, [one, tiers.Tier("y", None, {"b": 1})], [tiers.Item(amount)])


# Functions of plain numbers, each with numbers that it takes.
NUMBERS = {
    "load_bound": (_load, (2.0, 3.0, 1.0)),
    "head_body_tail": (lambda a, b, c: bounds.head_body_tail([(a, b, c), (1, 1, 1)]), (1.0, 2.0, 3.0)),
    "load_gradient": (_gradient, (2.0, 3.0, 1.0)),
    "sum_gradient": (_sums, (2.0, 3.0, 1.0)),
    "upgrade": (_upgrade, (2.0, 3.0, 2.0)),
    "chain_gradient": (lambda a, b: gradients.chain_gradient([a, 1], [b, 1], 2), (1.0, 2.0)),
    "endpoint_bound": (lambda a, b: collectives.endpoint_bound("all_reduce", 8, a, b), (3.0, 2.0)),
    "unequal_bound": (lambda a, b, c: collectives.unequal_bound(a, [b, c]), (3.0, 2.0, 1.0)),
    "cut_bound": (lambda a, b: collectives.cut_bound("all_to_all", 8, a, 3, b), (3.0, 2.0)),
    "cost": (lambda a, b, c: collectives.cost("all_reduce", "ring", 8).seconds(a, b, c), (3.0, 2.0, 1.0)),
    "latency_bound": (lambda a: collectives.latency_bound(8, a), (3.0,)),
    "algorithm_bandwidth": (collectives.algorithm_bandwidth, (3.0, 2.0)),
    "bus_bandwidth": (lambda a, b: collectives.bus_bandwidth("all_reduce", 8, a, b), (3.0, 2.0)),
    "seconds_at": (lambda a, b: collectives.seconds_at("all_reduce", 8, a, b), (3.0, 2.0)),
    "packet rates": (amplification.pcie_packets(256, 512).rates, (3.0,)),
    "mixed_rows": (lambda *all: amplification.mixed_rows(*all, time_shared=True), (3.0, 2.0, 1.0, 4.0)),
    "alpha": (lambda a, b, c: messages.AlphaBeta(a, b).seconds(c), (3.0, 2.0, 1.0)),
    "half": (lambda a, b: messages.AlphaBeta(a, b).half, (3.0, 2.0)),
    "rate": (lambda a, b, c: messages.AlphaBeta(a, b).rate(c), (3.0, 2.0, 1.0)),
    "throughput": (lambda a, b, c: messages.AlphaBeta(a, b).throughput(c, 4), (3.0, 2.0, 1.0)),
    "in_turn": (lambda a, b, c, d: messages.AlphaBeta(a, b).in_turn(c, d), (3.0, 2.0, 4.0, 1.0)),
    "chunk_seconds": (lambda a, b, c, d: messages.chunk_seconds(a, messages.AlphaBeta(b, c), 3, d),
                      (9.0, 2.0, 4.0, 1.0)),
    "best_chunks": (lambda a, b, c: messages.best_chunks(a, messages.AlphaBeta(b, c), 3), (9.0, 2.0, 4.0)),
    "fit": (lambda a, b: messages.fit([(1, a), (5, 2), (9, b)]), (1.0, 3.0)),
    "curve": (lambda a, b, c: messages.TimeCurve(((1, a), (5, b))).seconds(c), (1.0, 2.0, 9.0)),
    "tandem": (lambda a, b: pipelines.tandem([a, b], 5, [1]), (1.0, 2.0)),
    "path_times": (lambda a, b, c: pipelines.path_times(a, [b, c], 4), (9.0, 1.0, 2.0)),
    "write_back": (lambda a, b, c: pipelines.write_back(a, b, c, 5, 2), (1.0, 2.0, 3.0)),
    "steps_of_chain": (lambda a, b: pipelines.steps_of_chain([a, 1], [b, 1], 2, 5), (1.0, 2.0)),
    "prefetch_chain": (lambda a, b: events.prefetch_chain([a, 1], [b, 1], 2), (1.0, 2.0)),
    "double_buffer": (lambda a, b: events.double_buffer([a, 1], [b, 1]), (1.0, 2.0)),
    "routed_experts": (lambda a, b, c: dependencies.routed_experts([a], [b], [c]), (1.0, 2.0, 3.0)),
    "pipeline_stages": (lambda a, b: dependencies.pipeline_stages([a, b], 2), (1.0, 2.0)),
    "barriers": (lambda a, b: dependencies.barriers([[a, b], [1, 2]]), (1.0, 2.0)),
    "combine": (lambda a, b: overlap.combine([a, b], 0.5), (1.0, 2.0)),
    "evaluate": (lambda a, b: overlap.evaluate("a + max(a, b)", {"a": a, "b": b}), (1.0, 2.0)),
    "compare_forms": (lambda a, b: overlap.compare_forms({"compute": a, "transfer": b}), (1.0, 2.0)),
    "rooflines": (lambda a, b, c, d: overlap.rooflines([(a, b), (1, 1)], c, d), (1.0, 2.0, 3.0, 4.0)),
    "copy_in": (lambda a, b, c, d: overlap.copy_in(a, b, 3, flops=c, hbm=d, link=2), (1.0, 2.0, 3.0, 4.0)),
    "efficiency": (overlap.efficiency, (1.0, 2.0, 3.0)),
    "intensities": (overlap.intensities, (1.0, 2.0, 3.0, 4.0)),
    "cpu_gpu_split": (breakeven.cpu_gpu_split, (9.0, 3.0, 2.0, 2.0)),
    "rate_that_hides": (breakeven.rate_that_hides, (9.0, 3.0)),
    "batch_that_hides": (breakeven.batch_that_hides, (9.0, 3.0, 2.0, 2.0)),
    "prompt_that_hides": (breakeven.prompt_that_hides, (9.0, 3.0, 2.0, 2.0, 1.0)),
    "batch_for_rate": (breakeven.batch_for_rate, (9.0, 3.0, 2.0, 0.1)),
    "hit_rate_needed": (breakeven.hit_rate_needed, (9.0, 3.0, 2.0)),
    "rate_needed": (breakeven.rate_needed, (9.0, 3.0, 2.0)),
    "host_attention": (lambda a: breakeven.host_attention(8, 2, 128, a, 100), (2.0,)),
    "streamed_batch": (techniques.streamed_batch, (9.0, 3.0, 2.0, 4.0)),
    "speculated_pass": (lambda a, b: techniques.speculated_pass(a, b, 0.5, 3), (9.0, 3.0)),
    "decode_step": (_decode, (4.0, 3.0, 1.0, 20.0, 8.0, 9.0, 2.0)),
    "checkpoint_traffic": (lambda a, b, c: techniques.checkpoint_traffic(
        8, hidden=64, tokens=a, to_host=b, to_device=c), (9.0, 3.0, 2.0)),
    "zero_offload": (lambda a, b, c, d: techniques.zero_offload(a, to_host=b, to_device=c, host_memory=d),
                     (9.0, 3.0, 2.0, 1.0)),
    "sweep_limits": (lambda a, b: techniques.sweep_limits(3, 4, stream_rate=a, flop_rate=b), (9.0, 3.0)),
    "max_min_rates": (lambda a, b: fluid.max_min_rates({"r": a}, {"f": {"r": b}, "g": {"r": 1.0}}), (9.0, 3.0)),
}  # fmt: skip
EXACT = {"multipath": (_multipath, (3.0, 2.0, 9.0)), "tier_placement": (_tiers, (3.0, 2.0, 9.0))}
HARD = (HUGE, TINY, 1e308, 5e-324, 10**400, Fraction(1, 10**400), 10**5000)
ARRAYS = {"load_bound", "alpha", "rate", "throughput", "double_buffer", "combine", "evaluate", "rooflines",
          "streamed_batch", "speculated_pass"}  # fmt: skip


@pytest.mark.parametrize("name", [*NUMBERS, *EXACT])
def test_no_number_is_too_hard(name):
    """Every pair of places gets every pair of hard numbers."""
    function, usual = (NUMBERS | EXACT)[name]
    assert given._all_finite(function(*usual))
    hard = HARD if name in NUMBERS else HARD[1:6]
    for places in itertools.combinations_with_replacement(range(len(usual)), 2):
        for first, second in itertools.product(hard, hard):
            some = list(usual)
            some[places[0]], some[places[1]] = first, second
            try:
                found = function(*some)
            except OffloadError as error:
                assert len(str(error)) < 500, "no number is written out in full"
            else:
                assert given._all_finite(found), some


@pytest.mark.parametrize("name", [*NUMBERS, *EXACT])
def test_what_is_no_finite_number_is_refused(name):
    function, usual = (NUMBERS | EXACT)[name]
    for place in range(len(usual)):
        for wrong in (math.nan, math.inf, -1.0, -(10**5000), None, "x", True, [1], 1j, numpy.array([1.0, math.nan])):
            if wrong is None and (name, place) == ("tier_placement", 1):
                continue  # a tier without limit
            with pytest.raises(OffloadError) as error:
                function(*usual[:place], wrong, *usual[place + 1 :])
            assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ARRAYS])
def test_an_array_where_one_number_is_due_is_refused(name):
    function, usual = NUMBERS[name]
    for place in range(len(usual)):
        with pytest.raises(OffloadError):
            function(*usual[:place], numpy.array([1.0, 2.0]), *usual[place + 1 :])


def test_overflow_is_told_from_the_answer():
    for call in (
        lambda: collectives.endpoint_bound("all_reduce", 8, 1e300, 1e-300),
        lambda: techniques.streamed_batch(1e300, 1, 1e-300, 1),
        lambda: breakeven.rate_that_hides(1e300, 1e-300),
        lambda: overlap.rooflines([(1e308, 1), (1e308, 1)], 1.0, 1),
        lambda: bounds.load_bound({"a": 1e-300}, [(numpy.array([1.0, 1e300]), {"a": 1})]),
        lambda: bounds.load_bound({"a": Fraction(1, 10**400)}, [(1.0, {"a": 1})]),
    ):
        with pytest.raises(FormulaError, match="too large or too small for floats; use other units, or Fractions"):
            call()
    exact = collectives.endpoint_bound("all_gather", 2, 10**400, Fraction(1, 10**400))
    assert exact == Fraction(10**800, 2)
    assert bounds.load_bound({"a": Fraction(1, 10**400)}, [(10**400, {"a": 1})]).seconds == 10**800
    assert _multipath(1e300, 1e-300, 1e300).bound == Fraction(1e300) / (Fraction(1e300) + Fraction(1e-300))
    assert _multipath(5e-324, 1, 1).gap == 0
    assert _decode(1e-300, 3.0, 1.0, 20.0, 8.0, 9.0, 2.0).resident == 8


def test_load_bound_says_what_is_wrong_and_arrays_broadcast():
    for rates, transfers, told in (
        ({"a": 0}, [], "the rate of a: 0 is not"), ({"a": -1}, [], "the rate of a: -1 is not"),
        ({"a": math.nan}, [], "the rate of a: nan is not"), ({"a": 1}, [(math.nan, {})], "transfer 0: nan"),
        ({"link": 1}, [(1, {"lnk": 1})], 'uses "lnk".*Did you mean "link"'), (5, [], "rates: 5 is no dictionary"),
        ({"a": 1}, [(1, 5)], "transfer 0: 5 is no dictionary"), ({"a": 1}, 5, "transfers: give pairs"),
        ({"a": numpy.ones(2)}, [(numpy.ones(3), {"a": 1})], "do not broadcast"),
    ):  # fmt: skip
        with pytest.raises(FormulaError, match=told):
            bounds.load_bound(rates, transfers)
    found = bounds.load_bound({"a": numpy.array([1.0, 2.0])}, [(numpy.array([[2.0], [4.0]]), {"a": 1})])
    assert found.seconds.tolist() == [[2.0, 1.0], [4.0, 2.0]] and found.bottleneck == ()


@pytest.mark.parametrize(("call", "told"), [
    (lambda: pipelines.write_back(2, 3, 1, 10**9, 2), "items: 1000000000 is too many.*at most 1,000,000"),
    (lambda: pipelines.tandem([1, 2], 10**9, [1]), "items x stages"),
    (lambda: pipelines.path_times(1, [1, 2], 10**9, 1), "items x stages"),
    (lambda: pipelines.steps_of_chain([1], [2], 1, 10**9), "steps x layers"),
    (lambda: pipelines.settle([1], [2], 10**6), "buffers.*at most 1,000"),
    (lambda: pipelines.interleave(10**8, 1), "streamed . resident.*at most 1,000,000"),
    (lambda: pipelines.interleave(4, 10**30), "streamed . resident"),
    (lambda: collectives.flows("all_reduce", "ring", 10**7), "at most 100,000 are listed"),
    (lambda: collectives.flows("all_reduce", "pairwise", 5000), "at most 100,000 are listed"),
    (lambda: collectives.traffic("all_reduce", "rabenseifner", 10**5000), "digits ranks"),
])  # fmt: skip
def test_counts_that_would_run_for_ever_are_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()


def test_large_counts_with_a_closed_form_are_answered():
    assert pipelines.write_back(2, 3, 1, 5, 10**30) == pipelines.write_back(2, 3, 1, 5, 5)
    assert pipelines.tandem([1, 2], 5, [1], 10**30).makespan == pipelines.tandem([1, 2], 5, [1]).makespan
    assert pipelines.steps_of_chain([1], [2], 10**30, 3).ends == pipelines.steps_of_chain([1], [2], 0, 3).ends
    assert collectives.cost("all_reduce", "tree", 10**9) == collectives.Cost(60, Fraction(2))
    for n in range(2, 70):
        most = max(max(both) for both in collectives.traffic("all_reduce", "tree", n))
        assert collectives.cost("all_reduce", "tree", n).share == most


@pytest.mark.parametrize("call", [
    lambda: pipelines.steps_of_chain([1], [2], 1, 2, resident=1), lambda: pipelines.tandem([1, 2], 3, slots=2),
    lambda: pipelines.tandem(5, 3), lambda: pipelines.tandem(numpy.array(5.0), 3), lambda: pipelines.tandem_of([1, 2]),
    lambda: pipelines.tandem({0: 1.0}, 3), lambda: pipelines.tandem([1], numpy.array([2, 3])),
    lambda: pipelines.tandem([1], 2.5), lambda: events.prefetch_chain([1], [2], 1, resident=[5]),
    lambda: events.prefetch_chain([1], [2], 1, resident="x"), lambda: dependencies.barriers([1, 2]),
    lambda: dependencies.expected_barrier([1], 5), lambda: collectives.unequal_bound(1, 5),
    lambda: collectives.unequal_bound(1, [1], 5), lambda: collectives.traffic("all_reduce", "ring", 2.5),
    lambda: collectives.traffic(["a"], "ring", 2), lambda: collectives.across("all_reduce", 4, True),
    lambda: overlap.evaluate(5, {}), lambda: overlap.evaluate("a", 5), lambda: overlap.compare_forms(5),
    lambda: overlap.efficiency(1, 1, 1, form=5), lambda: overlap.rooflines(5, 1, 1), lambda: overlap.combine(1, 0.5),
    lambda: overlap.rooflines([1], 1, 1), lambda: forms.substitute(5, {}), lambda: forms.substitute("a", 5),
    lambda: forms.Sum((1, 2)), lambda: forms.Max(5), lambda: gradients.load_gradient([1], []),
    lambda: gradients.upgrade({"a": 1}, [], 5), lambda: gradients.longest_path([1], [1]),
    lambda: messages.fit(5), lambda: messages.best_chunks(1, 5, 2), lambda: bounds.head_body_tail([1]),
    lambda: bounds.head_body_tail(5), lambda: amplification.bounce([1]), lambda: amplification.raid([1], 3),
    lambda: multipath.multipath(5, []), lambda: multipath.multipath({"a": 1}, 5),
    lambda: multipath.multipath({"a": 1}, [(1, {"a": 1})]), lambda: multipath.multipath({"a": 1}, [(1, [5])]),
    lambda: multipath.dual_bound({"a": 1}, [(1, [{"a": 1}])], 5), lambda: multipath_arcs.multipath_arcs({}, 5, []),
    lambda: multipath_arcs.multipath_arcs({}, [], [(1,)]), lambda: tiers.tier_placement({"a": 1}, [5], []),
    lambda: forms.terms_of(5), lambda: bounds.head_body_tail(numpy.array(5.0)),
    lambda: gradients.upgrade({"a": 1}, [], [[1]]),
    lambda: tiers.tier_placement({"a": 1}, [tiers.Tier([1], 5, {})], []),
    lambda: techniques.speculated_pass(1, 1, 0.5, [[1], [1, 2]]), lambda: multipath.named_cut(5, [], [], []),
    lambda: multipath.multipath_routed({"a": 1}, [(1, [{"a": 1}])], 5), lambda: fluid.max_min_rates(5, {}),
    lambda: fluid.max_min_rates({"r": 1}, {"f": 5}),
])  # fmt: skip
def test_wrong_shapes_are_refused(call):
    with pytest.raises(OffloadError):
        call()


@pytest.mark.parametrize("wrong", ["no", 0, 1, None, numpy.array([True])])
def test_flags_are_true_or_false(wrong):
    for call in (
        lambda: collectives.endpoint_bound("all_reduce", 4, 1, 1, switches_add=wrong),
        lambda: collectives.latency_bound(4, 1, single_port=wrong),
        lambda: collectives.across("broadcast", 4, 1, root_inside=wrong),
        lambda: amplification.pages(1, 1, 1, packed=wrong),
        lambda: amplification.pcie_packets(256, 512, ecrc=wrong),
        lambda: amplification.mixed_rows(1, 1, 1, 1, time_shared=wrong),
        lambda: breakeven.hit_rate_needed(1, 1, 1, overlapped=wrong),
        lambda: breakeven.rate_needed(1, 1, overlapped=wrong),
        lambda: techniques.sweep_limits(1, 1, stream_rate=1, flop_rate=1, vary_capacity=wrong),
        lambda: techniques.zero_offload(1, to_host=1, to_device=1, host_memory=1, write_allocate=wrong),
        lambda: events.prefetch_chain([1], [1], 1, [wrong]),
        lambda: pipelines.steps_of_chain([1], [1], 1, 1, [wrong]),
    ):
        with pytest.raises(FormulaError, match="neither True nor False"):
            call()
    assert given.flag("x", numpy.bool_(True)) is True


def test_shown_cuts_what_is_long():
    assert shown(10**100) == "1" + "0" * 59 + "..." and shown("x") == "'x'"
    assert shown(10**5000) == "a number of thousands of digits"
