"""Dependencies that forbid overlap: closed forms, the recurrence run by hand, and the same figures from a plan."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import floor
from offload.compiler import compile_step
from offload.dependencies import barriers, expected_barrier, pipeline_stages, routed_experts
from offload.documents import load_plan
from offload.errors import FormulaError
from offload.pipelines import tandem
from offload.plan import UNLIMITED
from offload.schedules import schedule

F = Fraction
times = st.fractions(0, 9, max_denominator=4)
QUICK = settings(max_examples=40)


def rows(count, width):
    return st.lists(st.lists(times, min_size=width, max_size=width), min_size=count, max_size=count)


def run_foreseen(attention, fetch, experts, buffers, steps):
    """F_i = max(F_{i-1}, E_{i-k}) + f_i and E_i = max(E_{i-1} + a_i, F_i) + e_i, the end of each step."""
    loaded = done = F(0)
    ends, steps_end = [], []
    for _ in range(steps):
        for before, load, after in zip(attention, fetch, experts, strict=True):
            free = ends[-buffers] if buffers and len(ends) >= buffers else 0
            loaded = max(loaded, free) + load
            done = max(done + before, loaded) + after
            ends.append(done)
        steps_end.append(done)
    return steps_end


def test_two_layers_on_demand_and_foreseen():
    made = routed_experts([1, 1], [4, 4], [1, 1])
    assert (made.on_demand, made.foreseen.cold_seconds, made.foreseen.seconds) == (12, 9, 8)


@given(st.integers(1, 5).flatmap(lambda n: rows(3, n)), st.integers(0, 3))
@QUICK
def test_experts_foreseen_equal_the_recurrence(layers, buffers):
    attention, fetch, experts = layers
    made = routed_experts(attention, fetch, experts, buffers)
    ends = run_foreseen(attention, fetch, experts, buffers, 1)
    assert made.foreseen.cold_seconds == ends[0]
    assert made.on_demand == sum(attention) + sum(fetch) + sum(experts)
    compute = sum(attention) + sum(experts)
    assert max(sum(fetch), compute) <= made.foreseen.seconds <= made.foreseen.cold_seconds <= made.on_demand
    if buffers == UNLIMITED:
        fetched = list(accumulate(fetch))
        ready = [fetched[i] + experts[i] + sum(attention[i + 1 :]) + sum(experts[i + 1 :]) for i in range(len(fetch))]
        assert made.foreseen.cold_seconds == max(compute, *ready)
        assert made.foreseen.seconds == max(sum(fetch), compute)


SERVER = """\
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 80 GB, rate: {peak: 9000 GB/s, sustained: 9000 GB/s}}
  dram0: {kind: dram, at: socket0, rate: {peak: 9000 GB/s, sustained: 9000 GB/s}}
processors: {gpu0: {kind: gpu, memory: hbm0, flops: {bf16: {peak: 1 TFLOP/s, sustained: 1 TFLOP/s}}}}
links:
  pcie0: {between: [socket0, hbm0], rate: {peak: 1 GB/s, sustained: 1 GB/s}}
"""
PLAN = """\
topology: ./box.yaml
tensors: {experts: {bytes: 4 GB, home: dram0}}
repeat: 2
tasks:
  attention: {compute: gpu0, flops: 1 TFLOP}
  fetch: {move: experts, to: hbm0AFTER}
  mlp: {compute: gpu0, flops: 1 TFLOP, after: [attention, fetch]}
overlap: full
"""


@pytest.mark.parametrize(("after", "seconds"), [(", after: attention", 12), ("", 9)])
def test_a_plan_shows_what_waiting_for_the_router_costs(tmp_path, after, seconds):
    """Attention 1 s, experts fetched in 4 s and run in 1 s, two layers: a fetch that waits for its router is serial."""
    (tmp_path / "box.yaml").write_text(SERVER, encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("AFTER", after), encoding="utf-8")
    plan, topology = load_plan(tmp_path / "plan.yaml")
    step = compile_step(topology, plan)
    made = routed_experts([1, 1], [4, 4], [1, 1])
    assert schedule(step).cold_seconds == seconds == (made.on_demand if after else made.foreseen.cold_seconds)
    assert schedule(step).seconds == (made.on_demand if after else made.foreseen.seconds)
    # Tile by tile the experts may run as they come, so a floor certifies no more than the order of router and fetch.
    assert floor(step).cold_seconds <= seconds
    assert floor(step).cold_seconds >= (10 if after else 8)


def test_stages_in_a_row():
    alone, full = pipeline_stages([F(2), F(3), F(2)], 1), pipeline_stages([F(2), F(3), F(2)], 3)
    assert (alone.latency, alone.period) == (7, 7)
    assert (full.latency, full.period) == (7, 3)
    assert pipeline_stages([F(2), F(3), F(2)], 2).period == F(7, 2)


@given(st.lists(times, min_size=1, max_size=5), st.integers(1, 6))
def test_stages_give_latency_and_throughput(stages, in_flight):
    made = pipeline_stages(stages, in_flight)
    assert max(stages) <= made.period <= made.latency == sum(stages)
    assert made.period * in_flight >= made.latency
    if in_flight >= len(stages):
        assert made.period == max(stages)
    assert tandem(stages, in_flight + 1, pool=in_flight).makespan <= made.latency + in_flight * made.period


@QUICK
@given(st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: rows(*shape)))
def test_barriers_cost_what_the_slowest_of_each_part_adds(table):
    made = barriers(table)
    assert made.seconds == sum(max(part) for part in table)
    assert made.without == max(map(sum, zip(*table, strict=True))) <= made.seconds
    assert barriers(table[:1]).seconds == barriers(table[:1]).without


def test_the_mean_of_the_slowest_is_more_than_the_slowest_mean():
    cases = list(product([0, 2], repeat=2))  # two ranks, each 0 or 2 s alike
    made = expected_barrier([F(1, 4)] * 4, cases)
    assert (made.expected, made.of_means) == (F(3, 2), 1)


@QUICK
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(st.lists(st.integers(1, 9), min_size=n, max_size=n), rows(n, 3))))
def test_a_bound_at_mean_loads_bounds_the_mean(drawn):
    weights, cases = drawn
    made = expected_barrier([F(weight, sum(weights)) for weight in weights], cases)
    assert made.of_means <= made.expected <= max(map(max, cases))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: routed_experts([1], [1, 2], [1]), "fetch has 2 entries and attention has 1"),
        (lambda: routed_experts([1], [-1], [1]), r"fetch\[0\]: -1"),
        (lambda: routed_experts([], [], []), "the list is empty"),
        (lambda: pipeline_stages([1], 0), "in_flight: 0 is too few"),
        (lambda: barriers([]), "at least one row"),
        (lambda: barriers([[1, 2], [1]]), r"times\[1\] has 1 entries"),
        (lambda: expected_barrier([F(1, 2), F(1, 3)], [[1], [1]]), "add up to 5/6"),
        (lambda: expected_barrier([0.5, 0.4], [[1], [1]]), "add up to 0.9"),
        (lambda: expected_barrier([1], [[1], [1]]), "chances has 1 entries"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()
