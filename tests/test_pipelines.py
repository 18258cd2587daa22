"""Pipelines against explicit simulation, enumeration of schedules, and closed forms; all exact in rationals."""

from __future__ import annotations

import heapq
import math
from fractions import Fraction
from itertools import accumulate, combinations, permutations, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offload.errors import CapacityError, FormulaError
from offload.events import double_buffer, prefetch_chain
from offload.pipelines import (
    bounce_period,
    flow_shop,
    interleave,
    path_times,
    settle,
    steps_of_chain,
    streamed_layers,
    tandem,
    tandem_of,
    write_back,
)
from offload.plan import UNLIMITED

F = Fraction
times = st.fractions(0, 9, max_denominator=4)
QUICK = settings(max_examples=40)


def simulated(rows, slots, pool):
    """The makespan by running events in the order of time: a stage starts its next item as soon as it may."""
    items, stages = len(rows), len(rows[0])
    started, ended = [0] * stages, [0] * stages
    busy = [False] * stages
    running: list[tuple[Fraction, int]] = []
    clock = F(0)
    while ended[-1] < items:
        moved = True
        while moved:
            moved = False
            for stage in range(stages):
                item = started[stage]
                ready = item < items and not busy[stage] and (not stage or ended[stage - 1] > item)
                if ready and stage + 1 < stages and slots[stage] is not None:
                    ready = started[stage] - ended[stage + 1] < slots[stage]
                if ready and not stage and pool is not None:
                    ready = started[0] - ended[-1] < pool
                if ready:
                    heapq.heappush(running, (clock + rows[item][stage], stage))
                    started[stage], busy[stage], moved = started[stage] + 1, True, True
        clock, stage = heapq.heappop(running)
        ended[stage], busy[stage] = ended[stage] + 1, False
    return clock


@st.composite
def pipelines(draw):
    stages, items = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    limit = st.none() | st.integers(1, 4)
    rows = draw(st.lists(st.lists(times, min_size=stages, max_size=stages), min_size=items, max_size=items))
    return rows, draw(st.lists(limit, min_size=stages - 1, max_size=stages - 1)), draw(limit)


@given(pipelines())
@QUICK
def test_unequal_items_take_what_a_simulation_says(pipeline):
    rows, slots, pool = pipeline
    made = tandem_of(rows, slots, pool)
    assert made.makespan == simulated(rows, slots, pool)
    loads = [sum(row[stage] for row in rows) for stage in range(len(rows[0]))]
    assert max(loads) <= made.period <= made.makespan <= sum(loads)


@given(pipelines())
@QUICK
def test_identical_items_in_closed_form(pipeline):
    rows, slots, pool = pipeline
    made, one_by_one = tandem(rows[0], len(rows), slots, pool), tandem_of([rows[0]] * len(rows), slots, pool)
    assert made.makespan == one_by_one.makespan == simulated([rows[0]] * len(rows), slots, pool)
    assert made.period == one_by_one.period / len(rows) == tandem_of([rows[0]], slots, pool).period


@given(pipelines())
@QUICK
def test_more_slots_are_never_slower(pipeline):
    rows, slots, pool = pipeline
    made = tandem_of(rows, slots, pool)
    wider = tandem_of(rows, [None if count is None else count + 1 for count in slots], pool)
    assert wider.makespan <= made.makespan and wider.period <= made.period
    free = tandem_of(rows)
    assert free.makespan <= tandem_of(rows, slots).makespan <= made.makespan


def test_long_rows_of_items_need_no_run():
    assert tandem([2, 3, 2], 10**12, [2, None], 3).makespan == 7 + 3 * (10**12 - 1)


def test_a_bounce_ring_of_two_reaches_the_slower_hop():
    assert [bounce_period(F(2), F(3), slots) for slots in (1, 2, 3)] == [5, 3, 3]
    assert bounce_period(F(2), F(2), 3) == 2


def test_path_in_chunks():
    made = path_times(F(12), [F(6), F(12), F(24)], 100)
    assert (made.cut_through, made.store_and_forward, made.chunked) == (2, F(7, 2), F(403, 200))
    assert path_times(F(12), [F(6), F(12), F(24)], 100, slots=2) == made
    one = path_times(F(12), [F(6), F(12), F(24)], 100, slots=1)
    assert one.chunked == tandem_of([[F(12, 100) / rate for rate in (6, 12, 24)]] * 100, [1, 1]).makespan > made.chunked


@given(st.lists(st.fractions(1, 9, max_denominator=4), min_size=1, max_size=4), st.integers(1, 20), st.integers(1, 9))
@QUICK
def test_chunks_lie_between_cut_through_and_store_and_forward(rates, chunks, amount):
    made = path_times(amount, rates, chunks)
    assert made.cut_through <= made.chunked <= made.store_and_forward
    assert path_times(amount, rates, chunks * 2).chunked <= made.chunked
    assert made.chunked - made.cut_through <= made.store_and_forward / chunks


@given(times, times, times, st.integers(1, 6), st.integers(1, 4))
@example(Fraction(7, 4), Fraction(20, 3), Fraction(5), 1, 3)
def test_write_back_over_the_same_link(fetch, compute, write, items, slots):
    made = write_back(fetch, compute, write, items, slots)
    assert made.makespan >= max(items * (fetch + write), fetch + items * compute + write)
    assert made.makespan <= items * (fetch + compute + write)
    if slots == 1:
        assert made.makespan == items * (fetch + compute + write) == items * made.period
    else:
        assert made.period == max(fetch + write, compute)
    # The period is what each of many items adds: exactly, once as many went by as what binds needs to fall behind.
    many, more = (write_back(fetch, compute, write, count, slots).makespan for count in (120, 132))
    assert 0 <= many - 120 * made.period <= 2 * (fetch + compute + write)
    behind = 1 if slots == 1 else abs(fetch + write - compute)
    if behind * 100 > (slots + 1) * (fetch + compute + write) or not behind:
        assert (more - many) / 12 == made.period


# Prefetched layers.

layers = st.integers(1, 6).flatmap(
    lambda n: st.tuples(st.lists(times, min_size=n, max_size=n), st.lists(times, min_size=n, max_size=n))
)


@given(layers)
@QUICK
def test_laws_of_the_chain_in_rationals(chain):
    fetch, compute = chain
    count = len(fetch)
    most, total = max(sum(fetch), sum(compute)), sum(fetch) + sum(compute)
    found = [prefetch_chain(fetch, compute, buffers) for buffers in range(1, count + 2)]
    assert (found[0].cold_seconds, found[0].seconds) == (total, total)
    assert found[count - 1].cold_seconds == flow_shop(fetch, compute)
    for fewer, more in zip(found, found[1:], strict=False):
        assert more.cold_seconds <= fewer.cold_seconds and more.seconds <= fewer.seconds
    assert all(most <= one.seconds <= one.cold_seconds <= total for one in found)
    assert prefetch_chain(fetch, compute, UNLIMITED).seconds == most
    two = double_buffer(fetch, compute)
    if count > 1:
        assert (found[1].cold_seconds, found[1].seconds) == (two.cold_seconds, two.seconds)


@given(layers, st.integers(1, 4))
@QUICK
def test_steps_tend_to_the_maximum_cycle_ratio(chain, buffers):
    fetch, compute = chain
    settled = settle(fetch, compute, buffers)
    assert settled.period == prefetch_chain(fetch, compute, buffers).seconds
    run = steps_of_chain(fetch, compute, buffers, settled.transient + 2 * settled.cyclicity + 1)
    assert run.average(settled.cyclicity) == settled.period == run.steady_step
    assert run.first_step == prefetch_chain(fetch, compute, buffers).cold_seconds
    if buffers <= 2 and len(fetch) > 1:
        assert list(run.ends) == [run.first_step + n * run.steady_step for n in range(len(run.ends))]


@given(layers, st.integers(0, 4), st.lists(st.booleans(), min_size=6, max_size=6))
@QUICK
def test_steps_are_the_unrolled_chain(chain, buffers, resident):
    fetch, compute = chain
    here = resident[: len(fetch)]
    run = steps_of_chain(fetch, compute, buffers, 3, here)
    for steps in (1, 2, 3):
        assert run.ends[steps - 1] == prefetch_chain(fetch * steps, compute * steps, buffers, here * steps).cold_seconds


def test_buffers_fill_before_all_times_repeat():
    settled = settle([4, 2], [2, 5], 4)
    assert (settled.transient, settled.cyclicity, settled.period) == (7, 1, 7)
    run = steps_of_chain([9, 1, 1, 1], [3, 3, 3, 3], 3, 5)
    assert (run.first_step, run.steady_step, run.total, run.average(4)) == (21, 15, 81, 15)
    assert run.ends == (21, 36, 51, 66, 81)
    assert settle([0, 0], [2, 5], 2, [True, True]).period == 7, "nothing is fetched"


def longest_path(fetch, compute, buffers):
    """The chain's makespan by going through every path of its event graph."""
    count = len(fetch)

    def onward(kind, layer):
        """The longest path that begins with this event."""
        after = []
        if kind == "fetch":
            after += [("compute", layer), ("fetch", layer + 1)]
        else:
            after += [("compute", layer + 1), ("fetch", layer + buffers if buffers else count)]
        seconds = fetch[layer] if kind == "fetch" else compute[layer]
        return seconds + max((onward(kind, layer) for kind, layer in after if layer < count), default=0)

    return onward("fetch", 0)


@given(layers, st.integers(0, 4))
@QUICK
def test_a_chain_takes_its_longest_path(chain, buffers):
    fetch, compute = chain[0][:4], chain[1][:4]
    assert prefetch_chain(fetch, compute, buffers).cold_seconds == longest_path(fetch, compute, buffers)
    assert flow_shop(fetch, compute) == longest_path(fetch, compute, UNLIMITED)


def johnson(fetch, compute):
    """The best order of a two-machine flow shop (Johnson 1954)."""
    jobs = range(len(fetch))
    first = sorted((i for i in jobs if fetch[i] <= compute[i]), key=lambda i: fetch[i])
    return first + sorted((i for i in jobs if fetch[i] > compute[i]), key=lambda i: -compute[i])


@given(layers)
@settings(max_examples=15)
def test_flow_shop_over_every_pair_of_orders(chain):
    fetch, compute = chain[0][:4], chain[1][:4]
    every = list(permutations(range(len(fetch))))
    best = {}
    for loads, works in product(every, every):  # the engine may take layers in another order than they were fetched
        loaded = dict(zip(loads, accumulate(fetch[i] for i in loads), strict=True))
        done = 0
        for i in works:
            done = max(done, loaded[i]) + compute[i]
        best[loads, works] = done
    for order in every:
        assert best[order, order] == flow_shop([fetch[i] for i in order], [compute[i] for i in order])
    order = johnson(fetch, compute)
    assert min(best.values()) == flow_shop([fetch[i] for i in order], [compute[i] for i in order])


floats = st.floats(0, 1e3, allow_subnormal=False)
loose = st.integers(1, 6).flatmap(
    lambda n: st.tuples(st.lists(floats, min_size=n, max_size=n), st.lists(floats, min_size=n, max_size=n))
)


@given(loose, st.integers(0, 4), st.integers(0, 11))
def test_no_time_falls_to_the_last_bit_when_a_layer_slows(chain, buffers, place):
    fetch, compute = chain
    slower = [list(fetch), list(compute)]
    row = slower[place % 2]
    row[place // 2 % len(row)] = math.nextafter(row[place // 2 % len(row)], math.inf)
    before, after = steps_of_chain(fetch, compute, buffers, 3), steps_of_chain(*slower, buffers, 3)
    assert all(later >= earlier for earlier, later in zip(before.ends, after.ends, strict=True))
    assert flow_shop(*slower) >= flow_shop(fetch, compute)
    assert prefetch_chain(*slower, buffers).cold_seconds >= prefetch_chain(fetch, compute, buffers).cold_seconds
    two, then = double_buffer(fetch, compute), double_buffer(*slower)
    assert then.cold_seconds >= two.cold_seconds and then.seconds >= two.seconds


@given(st.lists(floats, min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))
def test_no_pipeline_is_faster_to_the_last_bit_when_a_stage_slows(stages, items, slots, place):
    slower = list(stages)
    slower[place % len(stages)] = math.nextafter(slower[place % len(stages)], math.inf)
    given_slots = [slots] * (len(stages) - 1)
    for pool in (None, slots):
        before, after = tandem(stages, items, given_slots, pool), tandem(slower, items, given_slots, pool)
        assert after.makespan >= before.makespan and after.period >= before.period


@given(loose, st.integers(0, 4), st.sampled_from([0.25, 2.0, 1024.0]))
@QUICK
def test_twice_the_times_take_exactly_twice_as_long(chain, buffers, factor):
    scaled = [[time * factor for time in row] for row in chain]
    before, after = steps_of_chain(*chain, buffers, 3), steps_of_chain(*scaled, buffers, 3)
    assert after.ends == tuple(end * factor for end in before.ends)


# Layouts.


def test_even_interleave_starts_with_a_resident_layer():
    def shown(streamed, resident):
        return "".join("R" if here else "S" for here in interleave(streamed, resident))

    assert [shown(4, 4), shown(3, 5), shown(2, 0), shown(0, 2)] == ["RSRSRSRS", "RRSRRSRS", "SS", "RR"]


@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize(("fetch", "compute"), [(1, 1), (2, 1), (4, 2), (1, 3)])
def test_no_arrangement_of_equal_layers_has_a_shorter_period(fetch, compute, buffers):
    for count, streamed in ((4, 1), (5, 2), (6, 3), (6, 4)):
        every = [
            prefetch_chain([F(fetch)] * count, [F(compute)] * count, buffers, [i not in some for i in range(count)])
            for some in combinations(range(count), streamed)
        ]
        even = interleave(streamed, count - streamed)
        found = prefetch_chain([F(fetch)] * count, [F(compute)] * count, buffers, even)
        assert found.seconds == min(one.seconds for one in every)


@given(st.integers(1, 40), st.integers(0, 50), st.integers(1, 5))
def test_buffers_take_their_room_first(layers, fit, buffers):
    if layers > fit < buffers:
        with pytest.raises(CapacityError, match=f"at most {fit} buffers"):
            streamed_layers(layers, fit, buffers)
        return
    kept = streamed_layers(layers, fit, buffers)
    assert kept.resident + kept.streamed == layers
    assert kept.resident + (buffers if kept.streamed else 0) == min(fit, layers)


# What is refused.


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tandem([1, -1], 2), r"stage_times\[1\]: -1 is not a finite number of at least 0"),
        (lambda: tandem([1, math.nan], 2), "nan is not a finite number"),
        (lambda: tandem([], 2), "the list is empty"),
        (lambda: tandem("12", 2), "is no list of numbers"),
        (lambda: tandem([1, 1], 0), "items: 0 is too few"),
        (lambda: tandem([1, 1], 2.5), "items: 2.5 is no whole number"),
        (lambda: tandem([1, 1], 2, [0]), r"slots\[0\]: 0 is too few"),
        (lambda: tandem([1, 1], 2, [1, 1]), "2 given for 2 stages; give 1"),
        (lambda: tandem([1, 1], 2, pool=0), "pool: 0 is too few"),
        (lambda: tandem_of([]), "at least one item"),
        (lambda: tandem_of([[1, 2], [1]]), r"times\[1\] has 1 entries and times\[0\] has 2"),
        (lambda: path_times(1, [1, 0], 1), r"rates\[1\]: 0 is not a finite number above 0"),
        (lambda: write_back(1, "2", 1, 1, 1), "compute: '2' is not a finite number"),
        (lambda: flow_shop([1], [1, 2]), "fetch has 1 entries and compute has 2"),
        (lambda: prefetch_chain([1, 2], [1], 2), "fetch has 2 entries and compute has 1"),
        (lambda: prefetch_chain([1], [1], -1), "buffers: -1 is too few"),
        (lambda: prefetch_chain([1], [math.inf], 1), "inf is not a finite number"),
        (lambda: double_buffer([1], [1, 2]), "fetch has 1 entries"),
        (lambda: steps_of_chain([1], [1], 2, 0), "steps: 0 is too few"),
        (lambda: steps_of_chain([1], [1], 2, 4, [True, False]), "resident has 2 entries"),
        (lambda: steps_of_chain([1], [1], 2, 4).average(4), "4 steps of 4"),
        (lambda: settle([1], [1], UNLIMITED), "without limit"),
        (lambda: interleave(-1, 2), "streamed: -1 is too few"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()
