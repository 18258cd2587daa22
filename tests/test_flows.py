"""Expected times by policies that share resources as tasks run: attained, near the simulation, steady in rates."""

from pathlib import Path

import pytest
from hypothesis import Phase, assume, given, settings

from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.documents.plan_file import load_plan
from offload.errors import PlanError, RouteError
from offload.flows import LAPS, Flow, _policies, shortest_flow
from offload.fluid_step import simulate_step
from offload.lanes import Lanes
from offload.schedules import cold_timeline, schedule, serial, steady_timeline
from offload.sensitivity import scaled
from offload.step import at_end, distinct, seconds_of_rows
from offload.words import plan_from_words
from tests.runs import LONG
from tests.strategies import plans, topologies

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
STREAMED = """
topology: {server}
model: {{name: llama-3.1-70b, weights: {weights}}}
workload: {{batch: 8}}
placement: {{weights: {{{kept}ssd0: rest}}, compute: {gpus}, {more}}}
overlap: 2
"""
TWO = str(EXAMPLES / "servers" / "two-3090.yaml")
FROM_THE_DRIVE = {
    "page cache": STREAMED.format(server=TWO, weights="q4_k_m", kept="", gpus="gpu0", more="host_memory: page cache"),
    "a layer kept": STREAMED.format(server=TWO, weights="q4_k_m", kept="hbm0: 1 layer, ", gpus="gpu0",
                                    more="host_memory: page cache"),
    "staged": STREAMED.format(server="dgx-h100", weights="bf16", kept="", gpus="gpu0..1", more="via: dram0"),
}  # fmt: skip
SHIPPED = ("kv-over-three-tiers", "train-3b-zero-offload", "replicas-that-share-the-fetch", "train-8b-zero-infinity")
QUICK = (Phase.explicit, Phase.generate)


def step_of(name, folder):
    path = EXAMPLES / f"{name}.yaml"
    if name in FROM_THE_DRIVE:
        path = folder / "plan.yaml"
        path.write_text(FROM_THE_DRIVE[name], encoding="utf-8")
    plan, topology = load_plan(path)
    return compile_step(topology, plan)


def compiled(topology, plan):
    try:
        return at_end(compile_step(topology, plan), "value")
    except (PlanError, RouteError):
        assume(False)


def most_asked(flow):
    """The most that the laps ask of a resource at any time, as a share of its rate."""
    step, asked = flow.lanes.step, {}
    for number, row in enumerate([*step.instances] * flow.laps):
        times = seconds_of_rows(step, "value")[row]
        work = max(times.values(), default=0.0)
        weight = flow.engine.weight[number]
        service = flow.engine.service[number]
        for begin, end, rate in flow.engine.segments(number):
            for resource, time in times.items():
                # A rate is in service times weight: as a share of the task's work, over its time on the resource.
                share = rate / (service * weight) * time if work else 0.0
                asked.setdefault(resource, []).extend([(begin, share), (end, -share)])
    most = 0.0
    for changes in asked.values():
        level = 0.0
        merged = {}
        for at, change in changes:
            merged[at] = merged.get(at, 0.0) + change
        for at in sorted(merged):
            level += merged[at]
            most = max(most, level)
    return most


@pytest.mark.few
@pytest.mark.parametrize("name", [*FROM_THE_DRIVE, *SHIPPED])
def test_no_schedule_is_far_above_the_simulation(name, tmp_path):
    step = step_of(name, tmp_path)
    found, simulated = schedule(step), simulate_step(step).makespan
    assert found.cold_seconds <= 1.01 * simulated
    assert found.seconds <= 1.01 * simulated
    assert floor(step, "value").seconds <= found.seconds <= serial(step).seconds


@pytest.mark.few
@pytest.mark.parametrize("name", [*FROM_THE_DRIVE, *SHIPPED])
def test_no_part_that_is_faster_makes_them_slower(name, tmp_path):
    step, _ = distinct(at_end(step_of(name, tmp_path), "value"))
    before = schedule(step, ends=False)
    binding = floor(step, "value").bottleneck
    links = [used for used in {use.resource for row in step.rows for use in row.uses} if used not in binding]
    for resource in (*binding, *sorted(links)[:4]):
        for factor in (1.2, 2):
            after = schedule(scaled(step, [resource], factor), ends=False)
            assert after.seconds <= before.seconds * 1.02, (resource, factor)
            assert after.cold_seconds <= before.cold_seconds * 1.02, (resource, factor)


@settings(max_examples=60 if LONG else 15, deadline=None, phases=QUICK, derandomize=True)
@given(topologies(), plans())
def test_a_faster_part_hardly_ever_makes_a_step_slower(topology, plan):
    # No search finds the best schedule, so one on faster parts may be found that is a little worse; never by much.
    step = compiled(topology, plan)
    try:
        before = schedule(step, ends=False)
    except PlanError:
        assume(False)
    for resource in sorted({use.resource for row in step.rows for use in row.uses}):
        for factor in (1.2, 2):
            after = schedule(scaled(step, [resource], factor), ends=False)
            assert after.seconds <= before.seconds * 1.12 and after.cold_seconds <= before.cold_seconds * 1.12


@pytest.mark.slow
@settings(max_examples=60, deadline=None, phases=QUICK, derandomize=True)
@given(topologies(), plans())
def test_flows_ask_no_more_than_there_is(topology, plan):
    step, _ = distinct(compiled(topology, plan))
    try:
        lanes = Lanes(step, None, "beside")
    except PlanError:
        assume(False)
    alone = serial(step).cold_seconds
    for laps in (1, LAPS):
        flow = shortest_flow(lanes, laps, float("inf"), 0.0)
        assert most_asked(flow) <= 1 + 1e-9
        assert load_seconds(step, "value").seconds * (1 - 1e-9) <= flow.period <= alone * (1 + 1e-9)
        for i, waits in enumerate(flow.waits):
            assert flow.starts[i] == max((flow.ends[on] for on in waits), default=0.0)


def test_queues_of_weights_far_apart_are_served_what_they_ask():
    """Eight ranks that write to a drive, each in a queue of its own: the first one first, weights from 1 to 1e-42."""
    plan, topology = plan_from_words("mistral-nemo-12b:bf16", "aws-g5-48xlarge", gpu_layers=20, compute="gpu0..7",
                                     kv="ssd0")  # fmt: skip
    step = at_end(compile_step(topology, plan), "value")
    lanes = Lanes(step, None, "beside")
    bound = load_seconds(step, "value", alone=True).seconds
    for weights in _policies(lanes):
        flow = Flow(lanes, weights, 1)
        assert flow.period >= bound * (1 - 1e-9) and most_asked(flow) <= 1 + 1e-9
        for i, row in enumerate(step.instances):
            alone = lanes.delays[row] + max(lanes.times[row].values(), default=0.0)
            assert flow.ends[i] - flow.starts[i] >= alone * (1 - 1e-9)


def test_steps_that_repeat_take_their_shift_however_many_they_are(tmp_path):
    step, _ = distinct(at_end(step_of("train-3b-zero-offload", tmp_path), "value"))
    found = schedule(step)
    lanes = Lanes(step, None, "beside")
    flow = Flow(lanes, [1.0] * len(lanes.lanes), LAPS)
    assert flow.repeats and flow.period == pytest.approx(found.seconds, rel=1e-9)
    few, many = (Flow(lanes, flow.weights, laps).seconds for laps in (20, 30))
    assert (many - few) / 10 == pytest.approx(flow.period, rel=1e-9)
    assert flow.seconds > LAPS * flow.period, "from empty buffers the first takes longer"


@pytest.mark.few
@pytest.mark.parametrize("name", [*FROM_THE_DRIVE, "kv-over-three-tiers"])
def test_the_timelines_are_those_of_the_times(name, tmp_path):
    step, _ = distinct(at_end(step_of(name, tmp_path), "value"))
    found = schedule(step)
    assert cold_timeline(step).seconds == pytest.approx(found.cold_seconds, rel=1e-12)
    few, many = (steady_timeline(step, rounds=rounds) for rounds in (12, 24))
    assert (many.seconds - few.seconds) / (many.steps - few.steps) == pytest.approx(found.seconds, rel=1e-9)
