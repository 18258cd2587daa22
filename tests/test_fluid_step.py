"""One step as flows: between the order-aware floor and serial, with queues, buffers and what the plan says kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, assume, given, settings

from offload import compile_step, load_plan, schedule
from offload.bounds import floor
from offload.errors import PlanError
from offload.fluid_step import simulate_step, step_tasks
from offload.plan import UNLIMITED, Overlap
from offload.schedules import serial
from tests.strategies import plans, ranked_plans, topologies
from tests.test_ladders import compiled

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
CLOSE = 1 + 1e-9
QUICK = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking a plan takes minutes


def check(step, policy="max-min"):
    found = simulate_step(step, policy=policy)
    assert floor(step, "value").cold_seconds <= found.makespan * CLOSE
    assert found.makespan <= serial(step).cold_seconds * CLOSE
    assert found.bounds.low <= found.makespan * CLOSE and found.makespan <= found.bounds.high * CLOSE
    assert found.bounds.sum_solo == pytest.approx(serial(step).cold_seconds, rel=1e-9, abs=0)
    assert all(share <= CLOSE for share in found.utilisation.values())
    return found


@pytest.mark.slow
@settings(max_examples=100, deadline=None, phases=QUICK)
@given(topologies(), plans())
def test_a_step_as_flows_lies_between_its_floor_and_serial(topology, plan):
    step = compiled(topology, plan)
    try:
        found = check(step)
    except PlanError as error:  # too few buffers for this order of tasks
        assume("waits for a compute that waits for it" not in str(error))
        raise
    check(step, "proportional")
    finish = list(found.finish.values())
    for i, waits in enumerate(step.waits):
        begun = list(found.start.values())[i]
        assert all(finish[wait.on] <= begun for wait in waits)


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(ranked_plans())
def test_ranks_too(drawn):
    step = compiled(*drawn)
    try:
        simulate_step(step)
    except PlanError as error:
        assume("waits for a compute that waits for it" not in str(error))
        raise
    assert set(check(step).utilisation) == set(step.resources)


@pytest.mark.few
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples(path):
    plan, topology = load_plan(path)
    step = compile_step(topology, plan)
    check(step)


def test_by_hand_it_is_the_recurrence():
    """One link, one GPU: a copy writes to the memory that the compute reads, at a small share of its rate."""
    plan, topology = load_plan(ROOT / "examples" / "by-hand.yaml")
    step = compile_step(topology, plan)
    found = simulate_step(step)
    assert found.makespan == pytest.approx(schedule(step).cold_seconds, rel=1e-3)
    assert found.utilisation["pcie0.hbm0"] > 0.99
    releases = [name for name in found.start if name.startswith("layer")]
    fetches = [name for name in found.start if name.startswith("fetch")]
    assert all(found.finish[releases[i - 2]] <= found.start[fetches[i]] for i in range(2, len(fetches)))
    alone = simulate_step(compile_step(topology, replace(plan, overlap=Overlap("none", 1))))
    assert alone.makespan == pytest.approx(serial(step).cold_seconds, rel=1e-12)
    assert simulate_step(step, buffers=UNLIMITED).makespan <= found.makespan * CLOSE, "in this plan"


def test_sharing_is_by_bytes_per_second():
    plan, topology = load_plan(ROOT / "examples" / "by-hand.yaml")
    tasks = step_tasks(compile_step(topology, plan))
    assert {task.work for name, task in tasks.items() if name.startswith("fetch")} == {528e6}
    layer = next(task for name, task in tasks.items() if name.startswith("layer"))
    assert layer.work == 528e6 + 16.8e6 and set(layer.use) == {"gpu0.flops", "hbm0"}
    with pytest.raises(PlanError, match="policy"):
        simulate_step(compile_step(topology, plan), policy="fair")
