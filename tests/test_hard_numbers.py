"""Public formulas under hard numbers: each answers with finite numbers or refuses in words, and none hangs."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
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
    pareto,
    pipelines,
    techniques,
    tiers,
)
from offload.errors import FormulaError, OffloadError, shown
from offload.models import experts, popularity
from offload.techniques import batching, decoding, numerics, training

HUGE, TINY = 1e300, 1e-300


def plain(count):
    """A duration without a unit, of which NumPy 2.5 warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return numpy.timedelta64(count)


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


@pytest.mark.few
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
        for wrong in (math.nan, math.inf, -1.0, -(10**5000), None, "x", True, [1], 1j, numpy.array([1.0, math.nan]),
                      numpy.bool_(True), numpy.datetime64("2020-01-01"), numpy.array([[1.0, -2.0]] * 9),
                      numpy.array([]), numpy.array([3], "m8[s]"), numpy.longdouble("inf"), numpy.str_("3"),
                      *([] if name in EXACT else [plain(3)])):  # fmt: skip
            if wrong is None and (name, place) == ("tier_placement", 1):
                continue  # a tier without limit
            with pytest.raises(OffloadError) as error:
                function(*usual[:place], wrong, *usual[place + 1 :])
            assert len(str(error.value)) < 500 and "\n" not in str(error.value)


# Functions of whole numbers, each with some that it takes.
COUNTS = {
    "chain_gradient": (lambda k: gradients.chain_gradient([3, 1, 2], [1, 2, 4], k), (2,)),
    "longest_path": (lambda a, b: gradients.longest_path([[], [a], [a, b]], [3, 1, 2]), (0, 1)),
    "bus_factor": (lambda n: collectives.bus_factor("all_reduce", n), (8,)),
    "endpoint_bound": (lambda n, d, b: collectives.endpoint_bound("all_reduce", n, d, b), (8, 9, 2)),
    "latency_bound": (collectives.latency_bound, (8, 3)),
    "across": (lambda n, s: collectives.across("all_to_all", n, s), (8, 3)),
    "cut_bound": (lambda n, d, s, b: collectives.cut_bound("all_to_all", n, d, s, b), (8, 9, 3, 2)),
    "cost": (lambda n: collectives.cost("all_reduce", "rabenseifner", n), (9,)),
    "flows": (lambda n: collectives.flows("all_reduce", "tree", n), (9,)),
    "traffic": (lambda n: collectives.traffic("all_reduce", "rabenseifner", n), (9,)),
    "in_network_speedup": (collectives.in_network_speedup, (9,)),
    "pages": (amplification.pages, (3, 100, 64)),
    "pcie_packets": (amplification.pcie_packets, (128, 512)),
    "packets": (lambda *all: amplification.packets(*all[:2], completion=all[2], write=all[3], request=all[4]),
                (128, 512, 20, 24, 24)),
    "raid": (lambda n: amplification.raid("raid5_write", n), (5,)),
    "inline_ecc": (amplification.inline_ecc, (16, 1)),
    "depth": (lambda a, b, s: messages.AlphaBeta(a, b).depth(s), (3, 5, 2)),
    "throughput": (lambda s, q: messages.AlphaBeta(3, 5).throughput(s, q), (2, 4)),
    "chunk_seconds": (lambda d, h, s: messages.chunk_seconds(d, messages.AlphaBeta(3, 5), h, s), (9, 3, 2)),
    "best_chunks": (lambda d, a, b, h: messages.best_chunks(d, messages.AlphaBeta(a, b), h), (100, 3, 5, 3)),
    "fit": (lambda a, b, c, d: messages.fit([(a, b), (c, d), (50, 60)]), (1, 3, 7, 9)),
    "TimeCurve": (lambda a, b, c, d: messages.TimeCurve(((a, b), (c, d))).seconds(100), (1, 3, 7, 9)),
    "measured": (lambda a: messages.TimeCurve(((1, 3), (7, 9))).measured(a), (4,)),
    "tandem": (lambda a, b, n, s, t: pipelines.tandem([a, b, 2], n, [s, t], 2), (3, 4, 5, 2, 1)),
    "pool": (lambda n, p: pipelines.tandem([3, 1, 4], n, None, p), (5, 2)),
    "tandem_of": (lambda a, s, p: pipelines.tandem_of([[a, 1, 4], [2, 5, 3]], [s, 1], p), (3, 1, 2)),
    "path_times": (lambda d, b, n, s: pipelines.path_times(d, [b, 7], n, s), (9, 4, 5, 1)),
    "bounce_period": (pipelines.bounce_period, (3, 4, 1)),
    "write_back": (pipelines.write_back, (3, 4, 5, 6, 2)),
    "flow_shop": (lambda a, b: pipelines.flow_shop([a, 2], [b, 1]), (3, 4)),
    "steps_of_chain": (lambda f, k, n: pipelines.steps_of_chain([f] * 8, [2] * 8, k, n), (4, 2, 12)),
    "average": (lambda n: pipelines.steps_of_chain([1, 5], [3, 2], 1, 9).average(n), (4,)),
    "settle": (lambda f, k: pipelines.settle([f, 2], [3, 4], k), (5, 2)),
    "streamed_layers": (pipelines.streamed_layers, (80, 40, 2)),
    "interleave": (pipelines.interleave, (5, 3)),
    "prefetch_chain": (lambda f, k: events.prefetch_chain([f, 2], [3, 4], k), (5, 2)),
    "routed_experts": (lambda f, k: dependencies.routed_experts([f, 2], [3, 4], [5, 1], k), (5, 2)),
    "pipeline_stages": (lambda f, k: dependencies.pipeline_stages([f, 2], k), (5, 2)),
    "expected_barrier": (lambda f: dependencies.expected_barrier([1], [[f, 2]]), (5,)),
    "host_attention": (breakeven.host_attention, (64, 8, 128, 2, 4096)),
    "exactness": (techniques.exactness, (100,)),
    "sweep_limits": (lambda r, j: techniques.sweep_limits(r, j, stream_rate=9, flop_rate=7), (3, 4)),
    "speculated_pass": (lambda g: techniques.speculated_pass(8, 2, 0.5, g), (4,)),
    "zero_offload": (lambda p, g: techniques.zero_offload(p, to_host=3, to_device=2, host_memory=9, gradient_bytes=g),
                     (99, 4)),
    "checkpoint_traffic": (lambda n, h, t, i: techniques.checkpoint_traffic(
        n, hidden=h, tokens=t, interval=i, to_host=3, to_device=2), (9, 64, 100, 2)),
    "decode_step": (lambda n, w, b, c, k: techniques.decode_step(
        n, layer_bytes=w, active_parameters=9, kv_bytes=2, batch=b, context=c, room=99, memory_rate=8, flop_rate=7,
        link_rate=3, buffers=k), (100, 4, 3, 100, 2)),
    "simulate": (lambda w, a, b, d: fluid.simulate({"r": b}, {"x": fluid.FluidTask(w, {"r": a}, (), d)}, exact=True
                                                   ).finish, (9, 2, 3, 1)),
    "task_bounds": (lambda w, a, b, d: fluid.task_bounds({"r": b}, {"x": fluid.FluidTask(w, {"r": a}, (), d)}, True),
                    (9, 2, 3, 1)),
    "pareto": (lambda *all: pareto.pareto([all[:2], all[2:]]), (3, 4, 5, 6)),
    "distinct_uniform": (lambda e, k, b: experts.distinct_uniform(e, k, b, exact=True), (16, 2, 9)),
    "distinct_limits": (experts.distinct_limits, (16, 2, 9)),
    "static_cache": (lambda b, m: experts.static_cache([0.5, 0.25, 0.25], b, m), (9, 2)),
    "cyclic_scan": (experts.cyclic_scan, (9, 4)),
    "verified_tokens": (experts.verified_tokens, (9, 4)),
    "expert_traffic": (lambda b, n, s, m: experts.expert_traffic([0.5, 0.25, 0.25], b, layers=n, expert_bytes=s,
                                                                 cached=m), (9, 4, 100, 2)),
    "zipf_weights": (lambda e, s: popularity.zipf_weights(e, s).tolist(), (9, 1)),
    "inclusion": (lambda a, k: popularity.inclusion([a, 2, 1], k).tolist(), (3, 2)),
}  # fmt: skip
LISTED = ("flows", "traffic", "interleave", "zipf_weights", "tandem", "steps_of_chain", "path_times",
          "distinct_uniform")  # fmt: skip
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def answered(function, given):
    """The answer, or the words that refuse it; types are compared too."""
    try:
        return repr(function(*given))
    except OffloadError as error:
        return str(error)


@pytest.mark.parametrize(("name", "table"), [(name, table) for table in (NUMBERS, COUNTS) for name in table])
def test_integers_of_numpy_are_whole_numbers(name, table):
    """They wrap: each place and each pair of places gets the largest of each width, and small ones."""
    function, usual = table[name]
    whole = [int(one) if one == int(one) else one for one in usual]
    for width in INTEGERS:
        small = [getattr(numpy, width)(one) if isinstance(one, int) and one < 128 else one for one in whole]
        assert answered(function, small) == answered(function, whole)
        largest = getattr(numpy, width)(numpy.iinfo(width).max)
        for places in itertools.combinations_with_replacement(range(len(usual)), 2):
            hard, same = list(small), list(whole)
            for place in places:
                hard[place], same[place] = largest, int(largest)
            if name in LISTED and int(largest) > 10**4:
                continue  # as many as are listed
            assert answered(function, hard) == answered(function, same), (width, places)


@pytest.mark.parametrize("name", NUMBERS)
def test_floats_of_numpy_have_64_bits(name):
    function, usual = NUMBERS[name]
    for width in ("float16", "float32", "float64", "longdouble"):
        hard = [getattr(numpy, width)(one) for one in usual]
        same = [float(one) for one in hard]
        assert answered(function, hard) == answered(function, same)
        for place in range(len(usual)):
            one = getattr(numpy, width)(numpy.finfo(width).max)
            given, alike = [*usual[:place], one, *usual[place + 1 :]], [*usual[:place], float(one), *usual[place + 1 :]]
            assert answered(function, given) == answered(function, alike)


@pytest.mark.parametrize("wrong", [plain(3), numpy.timedelta64(3, "s"), numpy.bool_(True), True, 3.0,
                                   "3", numpy.float64(3), numpy.datetime64("2020"), None,
                                   numpy.array([3, 4])])  # fmt: skip
@pytest.mark.parametrize("name", COUNTS)
def test_what_is_no_whole_number_is_refused(name, wrong):
    """In places that take any number, a float is one."""
    function, usual = COUNTS[name]
    for place in range(len(usual)):
        given = [*usual[:place], wrong, *usual[place + 1 :]]
        if isinstance(wrong, float):
            answered(function, given)
        elif (name, place) in NONE_OR_ARRAYS:
            answered(function, given)
        else:
            with pytest.raises(OffloadError) as error:
                function(*given)
            assert len(str(error.value)) < 500 and "\n" not in str(error.value)


# Places that take None, or an array: these answer or refuse.
NONE_OR_ARRAYS = {
    ("tandem", 3), ("tandem", 4), ("pool", 1), ("tandem_of", 1), ("tandem_of", 2), ("path_times", 3),
    ("bounce_period", 2), ("throughput", 0), ("speculated_pass", 0), ("distinct_uniform", 2), ("distinct_limits", 2),
    ("static_cache", 0), ("static_cache", 1), ("verified_tokens", 0), ("verified_tokens", 1), ("expert_traffic", 0),
    ("expert_traffic", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ARRAYS))
def test_arrays_of_integers_do_not_wrap(name):
    function, usual = NUMBERS[name]
    for place, width in itertools.product(range(len(usual)), (*INTEGERS, "float16", "float32")):
        widest = (numpy.iinfo if "int" in width else numpy.finfo)(width).max
        array = numpy.array([1, widest], width)
        short = [*usual[:place], array, *usual[place + 1 :]]
        long = [*usual[:place], array.astype(float), *usual[place + 1 :]]
        assert answered(function, short) == answered(function, long), (place, width)


@pytest.mark.parametrize("call", [
    lambda some: pipelines.tandem(some, 5, [2] * (len(some) - 1)), lambda some: pipelines.tandem([1, 2, 3, 4], 5, some),
    lambda some: pipelines.tandem_of([some, some]), lambda some: pipelines.path_times(9, some, 3),
    lambda some: pipelines.flow_shop(some, some), lambda some: pipelines.steps_of_chain(some, some, 2, 3),
    lambda some: pipelines.settle(some, some, 2), lambda some: events.prefetch_chain(some, some, 1),
    lambda some: dependencies.barriers([some, some]), lambda some: dependencies.pipeline_stages(some, 2),
    lambda some: dependencies.routed_experts(some, some, some), lambda some: gradients.chain_gradient(some, some, 1),
    lambda some: collectives.unequal_bound(9, some, some), lambda some: overlap.omega_of(some, sum(some)),
    lambda some: pareto.pareto([some, some]), lambda some: messages.fit([some[:2], some[1:]]),
    lambda some: bounds.head_body_tail([some, some]), lambda some: messages.TimeCurve((some[:2], some[1:])),
])  # fmt: skip
def test_arrays_are_lists_of_numbers(call):
    expected = repr(call([1, 2, 200]))
    assert repr(call(numpy.array([1, 2, 200], "uint8"))) == expected
    assert repr(call([*numpy.array([1, 2, 200], "uint8")])) == expected
    assert repr(call(numpy.array([1, 2, 200], object))) == expected


MODULES = (bounds, gradients, collectives, pipelines, events, dependencies, overlap, messages, breakeven, pareto, fluid,
           amplification, batching, decoding, numerics, training, experts, popularity)
# Functions that take no plain numbers, or hand them to one that is guarded.
UNGUARDED = {
    "preemptive", "load_seconds", "floor", "floor_seconds", "cycle_seconds", "longest",  # of steps that are compiled
    "bounce", "maximum", "queue", "take_slots", "binds", "simulate", "task_bounds", "speculated_pass",
    # arrays by `array_of`, numbers by `check_picked` and `check_one`
    "distinct", "distinct_uniform", "distinct_uniform_variance", "distinct_variance", "distinct_limits", "static_cache",
    "lru_cache_of_experts", "check_one", "tokens_per_step", "verified_tokens", "expert_traffic", "uniform_inclusion",
    "zipf_weights", "inclusion", "pair_inclusion", "uniform_pairs", "check_picked", "as_numbers", "array_of",
}  # fmt: skip


def test_every_function_of_plain_numbers_makes_them_plain():
    found = set()
    for module in MODULES:
        for name, one in inspect.getmembers(module, inspect.isfunction):
            if one.__module__ == module.__name__ and not name.startswith("_") and not hasattr(one, "__wrapped__"):
                found.add(name)
    assert found <= UNGUARDED, found - UNGUARDED
    assert found >= UNGUARDED, "no name that is not needed"


def test_masked_entries_and_longer_floats():
    masked = numpy.ma.masked_array([1, 2, 3], [False, True, False])
    for call in (lambda: overlap.combine(masked, 0), lambda: pipelines.tandem(masked, 2),
                 lambda: bounds.load_bound({"a": 1}, [(masked, {"a": 1})])):  # fmt: skip
        with pytest.raises(FormulaError, match="masked entries"):
            call()
    assert overlap.combine(numpy.array([1, 2], "longdouble"), 0).total == 3
    assert overlap.combine([numpy.array(2), numpy.array(1.5)], 0) == overlap.combine([2, 1.5], 0)


def test_amounts_beyond_64_bits_are_exact():
    assert bounds.load_bound({"a": numpy.int64(1)}, [(numpy.int64(2**62), {"a": numpy.int64(2**62)})]).seconds == 2**124
    found = experts.expert_traffic([0.5, 0.5], numpy.array([1, 9]), layers=10**6, expert_bytes=10**15)
    assert found.most.tolist() == [1e21, 2e21] and found.most.dtype == float
    assert experts.expert_traffic([0.5, 0.5], 9, layers=10**6, expert_bytes=10**15).most == 2 * 10**21
    assert fluid.simulate({"a": 1}, {"x": fluid.FluidTask(numpy.int64(2**53 + 1), {"a": 1})}, exact=True
                          ).makespan == 2**53 + 1  # fmt: skip


@pytest.mark.parametrize("buffers", [10**9, 10**400])
def test_more_buffers_than_are_ever_taken(buffers):
    fetch, compute = [1.5, 2, 0.25], [3, 0.125, 4]
    assert events.prefetch_chain(fetch, compute, buffers) == events.prefetch_chain(fetch, compute, 0)
    assert pipelines.steps_of_chain(fetch, compute, buffers, 3) == pipelines.steps_of_chain(fetch, compute, 0, 3)
    assert pipelines.tandem(fetch, 3, [buffers] * 2, buffers) == pipelines.tandem(fetch, 3)
    assert pipelines.write_back(1.5, 2, 3, 4, buffers) == pipelines.write_back(1.5, 2, 3, 4, 4)
    assert pipelines.bounce_period(1.5, 2, buffers) == 2


@pytest.mark.parametrize("rows", ["", b"", {}, {"ab": 1}, ["ab"], [{1: 1, 2: 2}], {1, 2}, [{1, 2}], None, 5, [1]])
def test_pairs_are_pairs(rows):
    for call in (lambda: bounds.load_bound({"a": 1}, rows), lambda: overlap.rooflines(rows, 1, 1),
                 lambda: messages.fit(rows), lambda: messages.TimeCurve(rows),
                 lambda: multipath.multipath({"a": 1}, rows),
                 lambda: gradients.load_gradient({"a": 1}, rows)):  # fmt: skip
        with pytest.raises(OffloadError):
            call()


@pytest.mark.parametrize("points", [None, 5, [1, 2], "", "ab", {1: 2}, [{1: 2}], [["", 1]], [[math.inf]], [[-math.inf]],
                                    [[plain(1)]], [[True]], ["ab"]])  # fmt: skip
def test_points_are_lists_of_finite_numbers(points):
    with pytest.raises(FormulaError):
        pareto.pareto(points)


@pytest.mark.parametrize("call", [
    lambda rates, tasks, exact: fluid.simulate(rates, tasks, exact=exact), fluid.task_bounds,
])  # fmt: skip
def test_containers_of_a_simulation(call):
    task = fluid.FluidTask(1, {"a": 1})
    for rates, tasks, exact in (
        ({"a": 1}, {"x": task}, "yes"), ({"a": 1}, {"x": task}, 1), (5, {"x": task}, False), ({"a": 1}, [task], False),
        ({"a": 1}, {"x": 5}, False), (None, {}, False), ({"a": plain(1)}, {"x": task}, False),
        ({"a": 1}, {"x": fluid.FluidTask(plain(1), {"a": 1})}, True),
        ({"a": 1}, {"x": fluid.FluidTask(1, {"a": 1}, ["z"])}, True),
    ):  # fmt: skip
        with pytest.raises(OffloadError):
            call(rates, tasks, exact)
    with pytest.raises(OffloadError, match='task "x" waits for the task "z", which is not known'):
        call({"a": 1}, {"x": fluid.FluidTask(1, {"a": 1}, ["z"])}, False)
    for weights in ("", 5, [1], {"z": 1}):
        with pytest.raises(OffloadError):
            fluid.simulate({"a": 1}, {"x": task}, "weighted", weights)


def test_hard_numbers_of_a_simulation():
    """Times, shares and bounds are finite, or refused."""
    hard = (*HARD[:4], 1.0, 1e150, 1e-150)
    for rate, work, use, delay in itertools.product(hard, hard, hard, (0, 1e-300, 1.0, 1e308)):
        tasks = {"x": fluid.FluidTask(work, {"a": use, "b": 1.0}, (), delay), "y": fluid.FluidTask(1.0, {"a": 1.0})}
        for call in (fluid.simulate, fluid.task_bounds):
            try:
                found = call({"a": rate, "b": 1.0}, tasks)
            except OffloadError as error:
                assert len(str(error)) < 500
                continue
            if call is fluid.simulate:
                assert given._all_finite([found.makespan, found.start, found.finish, found.utilisation])
                assert all(share <= 1 + 1e-9 for share in found.utilisation.values())
            else:
                assert given._all_finite(found)


@pytest.mark.parametrize("call", [
    lambda: overlap.combine([numpy.array([])], 0.5), lambda: overlap.combine([1.0, 2.0], numpy.array([])),
    lambda: overlap.evaluate("a", {"a": numpy.array([])}), lambda: overlap.limits("a", {"a": numpy.array([])}),
    lambda: overlap.rooflines([(numpy.array([]), 1)], 1, 1), lambda: overlap.rooflines([(1, 1)], numpy.array([]), 1),
    lambda: events.double_buffer([numpy.array([])], [1]), lambda: bounds.load_bound({"a": numpy.array([])}, []),
    lambda: bounds.load_bound({"a": 1}, [(numpy.array([]), {"a": 1})]),
    lambda: techniques.streamed_batch(numpy.array([]), 1, 1, 1),
    lambda: techniques.streamed_batch(1, 1, 1, numpy.array([])),
    lambda: techniques.speculated_pass(numpy.array([]), 1, 0.5, 3),
    lambda: techniques.speculated_pass(1, 1, numpy.array([]), 3),
    lambda: techniques.speculated_pass(1, 1, 0.5, numpy.array([], int)),
    lambda: techniques.speculated_pass(1, 1, 0.5, [3]), lambda: techniques.speculated_pass(1, 1, [0.5], 3),
    lambda: techniques.speculated_pass(1, 1, 0.5, numpy.True_),
    lambda: techniques.speculated_pass(1, 1, numpy.True_, 3),
    lambda: techniques.speculated_pass(1, 1, "0.5", 3), lambda: popularity.zipf_weights(4, "1"),
    lambda: popularity.zipf_weights(4, numpy.True_), lambda: popularity.inclusion([True, 0.5, 0.2], 1),
    lambda: popularity.inclusion([plain(1), plain(2)], 1),
    lambda: experts.distinct_variance([0.5, 0.5], 2, [["0.5", "0"], ["0", "0.5"]]),
])  # fmt: skip
def test_empty_arrays_and_what_is_like_numbers_are_refused(call):
    with pytest.raises(OffloadError) as error:
        call()
    assert "\n" not in str(error.value)


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
