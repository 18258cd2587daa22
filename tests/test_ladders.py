"""The two ladders and the laws of schedules, on random steps of random servers."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.errors import PlanError, RouteError
from offload.plan import UNLIMITED
from offload.schedules import hideable, schedule, serial, solo_seconds
from tests.runs import examples
from tests.strategies import plans, topologies

CLOSE = 1 + 1e-12


def compiled(topology, plan):
    try:
        return compile_step(topology, plan)
    except RouteError:  # one GPU reads another's memory, say
        assume(False)
    except PlanError as error:
        assume("already lives" not in str(error))
        raise


def scheduled(step, buffers=None):
    try:
        return schedule(step, buffers)
    except PlanError as error:  # too few buffers for this order of tasks
        assume("waits for a compute that waits for it" not in str(error))
        raise


@pytest.mark.slow
@examples(120, 300)
@given(topologies(), plans())
def test_both_ladders_hold(topology, plan):
    step = compiled(topology, plan)
    found, alone = scheduled(step), serial(step)
    peak, sustained = floor(step), floor(step, "value")
    assert peak.cold_seconds <= sustained.cold_seconds * CLOSE
    assert sustained.cold_seconds <= found.cold_seconds * CLOSE
    assert found.cold_seconds <= alone.cold_seconds * CLOSE
    assert peak.seconds <= sustained.seconds * CLOSE
    assert sustained.seconds <= found.seconds * CLOSE
    assert found.seconds <= alone.seconds * CLOSE
    assert peak.load_seconds <= peak.seconds * CLOSE and peak.cycle_seconds <= peak.seconds * CLOSE
    assert found.seconds <= found.cold_seconds * CLOSE, "a period is no longer than a step alone"
    assert found.low <= found.seconds * CLOSE and found.seconds <= found.high * CLOSE


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(topologies(), plans(buffers=1))
def test_more_buffers_never_slow_a_plan_that_shares_nothing(topology, plan):
    # Contended times are upper estimates that may grow with what runs beside; the events alone never slow down.
    from offload.lanes import Lanes

    step = compiled(topology, plan)
    try:
        times = [Lanes(step, k, "queue").events for k in (1, 2, 3, UNLIMITED)]
    except PlanError:
        assume(False)
    seconds = [solo_seconds(step)[row] for row in step.instances]
    for fewer, more in zip(times, times[1:], strict=False):
        assert more.cold(seconds) <= fewer.cold(seconds) * CLOSE
        assert more.period(seconds) <= fewer.period(seconds) * CLOSE


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(topologies(), plans())
def test_hideable_shares_are_shares(topology, plan):
    step = compiled(topology, plan)
    hidden = hideable(step)
    if hidden.behind_compute is None:
        assert hidden.transfer_seconds == 0
    else:
        assert -1e-9 <= hidden.behind_compute <= 1 and -1e-9 <= hidden.among_transfers < 1


@pytest.mark.slow
@examples(120, 300)
@given(topologies(), plans(), st.integers(0, 9), st.integers(1, 4))
def test_floors_fall_with_every_rate_and_rise_with_every_load(topology, plan, index, factor):
    step = compiled(topology, plan)
    before = floor(step)
    name = sorted(step.resources)[index % len(step.resources)] if step.resources else None
    assume(name)
    faster = {n: replace(r, peak=r.peak * factor) if n == name else r for n, r in step.resources.items()}
    after = floor(replace(step, resources=faster))
    assert after.seconds <= before.seconds * CLOSE
    assert after.cold_seconds <= before.cold_seconds * CLOSE
    tensor = sorted(plan.tensors)[index % len(plan.tensors)]
    more = plan.tensors[tensor]
    heavier = replace(plan, tensors={**plan.tensors, tensor: replace(more, bytes=more.bytes + factor)})
    loaded = floor(compiled(topology, heavier))
    assert loaded.seconds * CLOSE >= before.seconds
    assert loaded.cold_seconds * CLOSE >= before.cold_seconds


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(topologies(), plans())
def test_loads_are_conserved(topology, plan):
    """What leaves a memory arrives in another: a transfer loads each link of its way with its bytes."""
    step = compiled(topology, plan)
    for row in step.rows:
        if row.transfer:
            size = row.moved[0].bytes
            for use in row.uses:
                assert use.load == pytest.approx(size) and use.least <= use.load


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(topologies(), plans())
def test_no_bottleneck_is_named_that_does_not_bind(topology, plan):
    step = compiled(topology, plan)
    bound = floor(step)
    if bound.rule == "load":
        times = load_seconds(step).resource_seconds
        assert all(times[name] * CLOSE >= bound.load_seconds for name in bound.bottleneck)
    else:
        total = sum(term.seconds for term in bound.terms)
        assert total - bound.spared_seconds == pytest.approx(bound.seconds * bound.in_flight, rel=1e-9, abs=1e-12)
