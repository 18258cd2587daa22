"""Counts that a target needs: each answer against every count, one by one; what is called none is none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from offload import cli
from offload.bounds import floor, load_seconds
from offload.capacity import again, missing
from offload.compiler import compile_step
from offload.designs import Placement, Portion, plan_model
from offload.errors import OffloadError
from offload.need import need
from offload.need_axis import GROWING
from offload.need_designs import axes
from offload.need_rates import Target, read_target
from offload.plan import UNLIMITED
from offload.report_need import _down, _factor, _factor_needed
from offload.schedules import GAINED, schedule
from offload.verbs.step import plan_of as asked
from tests.strategies import SMALL, placed_ranks, plans, ranked_servers, topologies, workloads

IN_FLIGHT = """
topology: gh200
model: {name: llama-3.1-70b, weights: q4_k_m}
workload: {phase: decode, batch: 1, context: 16, in_flight: 8}
placement: {weights: {hbm0: 62 layers, dram0: rest}, compute: local}
"""
TOO_LONG = """
topology: desktop-4090
model: {name: llama-3.1-8b, weights: q8_0}
workload: {phase: decode, batch: 1, context: 150000}
placement: {weights: {hbm0: 32 layers}, compute: local}
"""
COMPETING = """
topology: gh200
tensors:
  w: {bytes: 698 MB, home: dram0}
  k: {bytes: 1074 MB, home: hbm0}
  s: {bytes: 279 MB, home: dram0}
  o: {bytes: 549 MB, home: hbm0, shared: true}
blocks:
- repeat: 22
  tasks:
    f: {move: w, to: hbm0}
    g: {move: s, to: hbm0}
    c: {compute: gpu0, flops: 2956 GFLOP, reads: [k, w, s], after: [f, g]}
    b: {move: o, to: dram0, after: c, every: 3 steps}
in_flight: 3
overlap: 2
"""
APART = """
topology: desktop-4090
tensors:
  w: {bytes: 500 MB, home: dram0}
  r: {bytes: 4 GB, home: hbm0}
blocks:
 - repeat: 4
   tasks:
    fetch: {move: w, to: hbm0}
    layer: {compute: gpu0, flops: 1 GFLOP, reads: [w], after: fetch}
    own: {compute: gpu0, flops: 1 GFLOP, reads: [r]}
    own2: {compute: gpu0, flops: 1 GFLOP, reads: [r]}
    own3: {compute: gpu0, flops: 1 GFLOP, reads: [r]}
    own4: {compute: gpu0, flops: 1 GFLOP, reads: [r]}
overlap: none
"""


def step_of(tmp_path, text, *words):
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    plan, topology = asked(cli._parser().parse_args(["need", str(path), *words, "--target", "1 s"]))
    return compile_step(topology, plan)


def expected(step):
    return schedule(step, ends=False).seconds


def changed(step, kind, names, value):
    """The step of a plan made anew with another count."""
    _, workload, placement, _, _ = step.plan.origin
    if kind != "layers":
        return again(step, workload=replace(workload, **{kind: value}))
    weights = [(name, Portion("layers", value) if name == names[0] else one) for name, one in placement.weights]
    if names[0] not in dict(placement.weights):
        weights.insert(0, (names[0], Portion("layers", value)))
    return again(step, placement=replace(placement, weights=tuple(weights)))


def lever(found, kind):
    return next(one for one in found.levers if one.kind == kind)


def by_one(step, target, kind, names, values):
    """The first value whose floor allows the target, and the first with room that reaches it, each one tried."""
    allowed = reached = None
    for value in values:
        try:
            one = changed(step, kind, names, value)
        except OffloadError:
            continue
        due = target.due(one) * (1 + 1e-9)
        if allowed is None and floor(one).seconds <= due:
            allowed = value
        if not missing(one) and expected(one) <= due:
            reached = value
            break
    return allowed, reached


@pytest.mark.few
@pytest.mark.parametrize(
    ("text", "wanted"), [("11 ms", (72, 77)), ("10 ms", (73, None)), ("9.6 ms", (73, None)), ("5 ms", (None, None))]
)
def test_layers_are_tried_one_by_one_where_the_busiest_part_counts(tmp_path, text, wanted):
    """With 8 steps in flight DRAM binds below and HBM above: all 80 layers take longer than 77."""
    step = step_of(tmp_path, IN_FLIGHT)
    target = read_target(text, step)
    found = lever(need(step, target), "layers")
    assert (found.floor, found.expected) == wanted == by_one(step, target, "layers", ("hbm0",), range(63, 81))
    assert found.sure == (True, True)
    assert floor(changed(step, "layers", ("hbm0",), 80)).seconds > floor(changed(step, "layers", ("hbm0",), 74)).seconds


@pytest.mark.slow
def test_the_command_says_so_too(tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    path.write_text(IN_FLIGHT, encoding="utf-8")
    assert cli.main(["need", str(path), "--target", "11 ms", "--json"]) == 0
    layers = next(one for one in json.loads(capsys.readouterr().out)["changes"] if one["kind"] == "layers")
    assert (layers["floor_from"], layers["expected_from"]) == (72, 77) and layers["seconds"] <= 0.011
    assert cli.main(["step", str(path), "--set", "placement.weights.hbm0=77 layers", "--json"]) == 0
    rate = json.loads(capsys.readouterr().out)["tokens_per_s"]["overlapped"]
    assert rate == pytest.approx(1 / layers["seconds"])


@pytest.mark.few
@pytest.mark.parametrize("text", ["29 ms", "31 ms"])
def test_the_nearest_context_that_fits_is_told(tmp_path, text):
    step = step_of(tmp_path, TOO_LONG)
    target = read_target(text, step)
    result = need(step, target)
    found = lever(result, "context")
    assert missing(step) and result.reachable
    there, next_one = (changed(step, "context", (), found.expected + more) for more in (0, 1))
    assert not missing(there) and expected(there) == found.seconds <= target.seconds
    assert missing(next_one) and found.expected > 120_000


def test_a_smaller_batch_that_fits_keeps_the_rate(tmp_path):
    step = step_of(tmp_path, TOO_LONG, "--set", "workload.batch=40", "--set", "workload.context=8192")
    target = Target("t", tokens_per_s=100.0)
    found = lever(need(step, target), "batch")
    assert missing(step) and expected(step) <= target.due(step)
    there, next_one = (changed(step, "batch", (), found.expected + more) for more in (0, 1))
    assert not missing(there) and expected(there) == found.seconds <= target.due(there)
    assert missing(next_one)


@st.composite
def tiered(draw):
    """A small model over two or three memories, one or several steps in flight."""
    topology = draw(ranked_servers())
    model = draw(st.sampled_from([one for one in SMALL if one.layers > 1]))
    near = draw(st.integers(0, model.layers))
    middle = draw(st.integers(0, model.layers - near))
    tiers = (("dram0", Portion("layers", middle)), ("ssd0", Portion("rest")))
    weights = (("hbm0", Portion("layers", near)), *draw(st.sampled_from([tiers, (("dram0", Portion("rest")),)])))
    placement = Placement(weights, draw(st.sampled_from(["local", "gpu0"])), "with layer", 0)
    workload = replace(draw(workloads(("decode",))), in_flight=draw(st.sampled_from([1, 2, 8])))
    return topology, plan_model(model, topology, workload, placement, weights="bf16")


@pytest.mark.slow
@given(st.one_of(tiered(), placed_ranks()), st.sampled_from([0.3, 0.6, 0.9, 0.97]), st.booleans())
@settings(max_examples=40)
def test_counts_are_those_found_one_by_one(case, share, rate):
    topology, plan = case
    try:
        step = compile_step(topology, plan)
        due = expected(step) * share
    except OffloadError:
        reject()
    if not due > 0:
        return
    target = Target("t", tokens_per_s=float(plan.tokens) / due) if rate else Target("t", seconds=due)
    for axis in axes(step, target, ("layers", "batch", "context"))[0]:
        if len(axis.values) > 60:
            continue
        least, reached = by_one(step, target, axis.kind, axis.names, axis.values)
        first = axis.first(target, "peak")
        assert first.value == least and first.sure
        found = axis.first(target, "value", fitting=True)
        if found.sure:
            assert found.value == reached
        elif found.value is not None:
            one = changed(step, axis.kind, axis.names, found.value)
            assert expected(one) <= target.due(one) * (1 + 2e-9) and not missing(one)


@given(st.one_of(tiered(), placed_ranks()), st.integers(1, 7), st.integers(1, 40))
@settings(max_examples=40)
def test_no_floor_falls_as_a_batch_or_a_context_grows(case, count, more):
    """What rules out the numbers between two."""
    topology, plan = case
    try:
        step = compile_step(topology, plan)
    except OffloadError:
        reject()
    for kind in GROWING:
        if kind == "context" and step.plan.origin[1].phase != "decode":
            continue
        try:
            fewer, larger = (changed(step, kind, (), number) for number in (count, count + more))
        except OffloadError:
            continue
        for grade in ("peak", "value"):
            assert floor(fewer, grade).seconds <= floor(larger, grade).seconds * (1 + 1e-9)


def with_buffers(step, count):
    overlap = replace(step.plan.overlap, kind="buffers", buffers=count)
    return compile_step(step.topology, replace(step.plan, overlap=overlap))


@pytest.mark.parametrize(("text", "due", "wanted"), [
    pytest.param(COMPETING.replace("overlap: 2", "overlap: 1"), 0.0835, 2, marks=pytest.mark.slow), (APART, 0.085, 1)
])
def test_buffers_are_tried_one_by_one(tmp_path, text, due, wanted):
    step = step_of(tmp_path, text)
    now = 0 if step.plan.overlap.kind == "none" else step.plan.overlap.buffers
    one_by_one = next(count for count in range(now + 1, 30) if expected(with_buffers(step, count)) <= due)
    found = lever(need(step, Target("t", seconds=due)), "buffers")
    assert found.expected == wanted == one_by_one
    assert found.seconds == expected(with_buffers(step, wanted)) <= due


def check_more_buffers(step, counts):
    times = [schedule(step, count, ends=False).seconds for count in counts]
    for fewer, more in zip(times, times[1:], strict=False):
        assert more <= fewer * (1 + GAINED)
    return times


@pytest.mark.slow
@given(topologies(), st.data())
@settings(max_examples=30)
def test_more_buffers_are_never_worse_than_fewer_that_are_tried(topology, data):
    try:
        step = compile_step(topology, data.draw(plans()))
        check_more_buffers(step, (2, 3, 4, 5, 8, 9, 16, 17, UNLIMITED))
    except OffloadError:
        reject()


def test_two_buffers_are_enough_where_lanes_share_as_they_run(tmp_path):
    """Fetches, write-backs and arithmetic compete; shared as they run they reach the load of host memory with two."""
    step = step_of(tmp_path, COMPETING)
    times = check_more_buffers(step, (*range(1, 18), 40, UNLIMITED))
    load = load_seconds(step, "value").seconds
    assert times[0] == pytest.approx(0.1404, rel=1e-3)
    assert max(times[1:]) == pytest.approx(min(times[1:]), rel=1e-9) == pytest.approx(load, rel=1e-9)


def test_what_is_necessary_is_rounded_down_and_what_is_enough_up():
    assert (_factor_needed(1.09952), _factor(1.09152)) == ("1.09 x", "1.1 x")
    assert (_factor_needed(1.0004), _factor_needed(2.0), _factor_needed(1.0)) == ("1.0004 x", "2 x", "1 x")
    assert _factor_needed(123.9) == "123 x" and _down(8.599e9) == pytest.approx(8.59e9)


def test_a_floor_that_allows_it_from_a_rate_is_told_so(tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    path.write_text(COMPETING, encoding="utf-8")
    words = (str(path), "--target", "62.07 ms")
    cli.main(["need", *words, "--json"])
    one = next(one for one in json.loads(capsys.readouterr().out)["changes"] if one["floor_from"] not in (None, 1))
    cli.main(["need", *words])
    told = _factor_needed(one["floor_from"])
    assert f"({told})" in capsys.readouterr().out
    assert float(told[:-2]) <= one["floor_from"] < float(told[:-2]) + 0.01


def test_buffers_beyond_those_that_are_tried_one_by_one(tmp_path, capsys):
    """17 buffers are too few and 18 are enough: found by halving, and not said to be proved."""
    path = tmp_path / "plan.yaml"
    path.write_text("""\
topology: desktop-4090
tensors:
  w: {bytes: 100 MB, home: dram0}
  k: {bytes: 10 MB, home: hbm0}
blocks:
- repeat: 30
  tasks:
    fetch: {move: w, to: hbm0}
    layer: {compute: gpu0, flops: 1 GFLOP, reads: [w], after: fetch}
- repeat: 30
  tasks:
    long: {compute: gpu0, flops: 480 GFLOP, reads: [k]}
overlap: {buffers: 2}
""", encoding="utf-8")
    assert cli.main(["need", str(path), "--target", "163 ms", "--json"]) == 0
    lever = next(one for one in json.loads(capsys.readouterr().out)["changes"] if one["kind"] == "buffers")
    assert (lever["expected_from"], lever["expected_sure"]) == (18, False)
