"""Loads given as ranges: corners by hand, what floors and memory take of them, what binds, against grids."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from offload import cli
from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.errors import DocumentError, OffloadError
from offload.intervals import CHAIN, faster_step, figures_of, known, may_bind, what_is_open
from offload.plan import Block, Compute, at_loads
from offload.rerouting import any_routes
from offload.schedules import schedule, serial
from offload.study import evaluate
from offload.topology import Interval
from tests.boxes import GB, box, plan_of
from tests.strategies import plans, ranked_plans, topologies

STREAM = """\
tensors:
  w: {bytes: 1..2 GB, home: dram0}
repeat: 10
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 0.1 TFLOP, reads: w, after: fetch}
"""


def compiled(tmp_path, text, topology=None):
    topology = topology or box(1)
    return compile_step(topology, plan_of(tmp_path, text, topology))


def opened(step):
    expected = schedule(step)
    return what_is_open(step, (expected.low, expected.high))


def test_corners_by_hand(tmp_path):
    """10 x 1, 1.5 or 2 GB over a link of 20 GB/s; a layer takes 1 ms of FLOP and 1 to 2 ms of HBM reads."""
    step = compiled(tmp_path, STREAM)
    assert floor(step).seconds == pytest.approx(0.5, rel=1e-12)
    assert floor(step, "value").seconds == pytest.approx(0.75, rel=1e-12)
    expected = schedule(step)
    assert (expected.low, expected.seconds, expected.high) == pytest.approx((0.5, 0.75, 1.0), rel=1e-12)
    single = [schedule(compiled(tmp_path, STREAM.replace("1..2 GB", size))) for size in ("1 GB", "1500 MB", "2 GB")]
    assert [expected.cold_low, expected.cold_seconds, expected.cold_high] == [one.cold_seconds for one in single]
    alone = [serial(step, end).seconds for end in ("high", "value", "low")]
    assert alone == pytest.approx([10 * (0.05 + 0.001), 10 * (0.075 + 0.0015), 10 * (0.1 + 0.002)], rel=1e-12)
    assert sum(step.occupied["dram0"].values()) == 20 * GB and step.occupied["hbm0"]["buffers"] == 4 * GB
    assert step.slots[0].size == 2 * GB


def test_loads_and_rates_together(tmp_path):
    """1 GB over 25 GB/s at best, 2 GB over 16 GB/s at worst; the floor still has 1 GB over the peak of 20."""
    step = compiled(tmp_path, STREAM)
    link = replace(step.resources["pcie0.hbm0"], sustained={"": Interval(16e9, 20e9, 25e9)})
    step = replace(step, resources={**step.resources, "pcie0.hbm0": link})
    found = opened(step)
    assert found.floor_sustained == pytest.approx((10 / 25, 20 / 16), rel=1e-12)
    assert found.expected == pytest.approx((10 / 25, 20 / 16), rel=1e-12)
    assert floor(step).seconds == pytest.approx(0.5, rel=1e-12)
    assert [one.names for one in found.figures] == [("pcie0.hbm0",), ("w",)]
    # The load is 2 x apart and the rate 1.56 x: measured as 2 GB it leaves 0.8 to 1.25 s, as 1 GB 0.4 to 0.625 s.
    assert found.measure.figure == figures_of(step)[1] and found.measure.figure.load
    assert (found.measure.low, found.measure.high) == pytest.approx((0.8, 1.25), rel=1e-12)
    assert found.may_bind == ("pcie0.hbm0",) and found.measure.binding


def test_flops_in_a_range(tmp_path):
    """1 to 3 TFLOP on 100 TFLOP/s are 10 to 30 ms beside a fetch of 20 ms: what binds is open, and they settle it."""
    text = """\
tensors: {w: {bytes: 0.4 GB, home: dram0}}
repeat: 10
in_flight: 4
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 1..1.5..3 TFLOP, reads: w, after: fetch}
"""
    step = compiled(tmp_path, text)
    expected = schedule(step)
    assert (expected.low, expected.seconds, expected.high) == pytest.approx((0.2, 0.2, 0.3), rel=1e-12)
    found = opened(step)
    assert set(found.may_bind) == {"gpu0.flops", "pcie0.hbm0"}
    assert found.measure.figure.unit == "FLOP" and found.measure.figure.names == ("layer",) and found.measure.binding
    assert "memory" not in next(note for note in step.assumptions if "FLOP" in note and "layer" in note)
    nothing = compiled(tmp_path, text.replace("1..1.5..3 TFLOP", "0..3 TFLOP"))
    uses = {use.resource: use for row in nothing.rows for use in row.uses}["gpu0.flops"]
    assert (uses.least, uses.fewest, uses.load, uses.most) == (0, 0, 1.5e12, 3e12)


def test_a_load_is_the_same_wherever_it_is_put(tmp_path):
    """1 to 10 GB out of memory and over the link: 10 GB of memory reads beat 1 GB over the link, at no point."""
    step = compiled(tmp_path, STREAM.replace("1..2 GB", "1..10 GB"))
    times = [load_seconds(step, end).resource_seconds for end in ("low", "high")]
    assert times[0]["dram0"] > times[1]["pcie0.hbm0"]
    assert may_bind(step) == ("pcie0.hbm0",)


def test_two_loads_on_two_resources(tmp_path):
    """20 GB/s out and in: whichever tensor is larger binds, and neither measured alone settles it."""
    text = """\
tensors:
  a: {bytes: 1..2 GB, home: dram0}
  b: {bytes: 1..2 GB, home: hbm0}
tasks:
  fetch: {move: a, to: hbm0}
  spill: {move: b, to: dram0}
"""
    step = compiled(tmp_path, text)
    assert len([name for name in may_bind(step) if name.startswith("pcie0.")]) == 2
    assert opened(step).measure is None  # the other one leaves as much open
    fast = known(step, figures_of(step)[0], 3 * GB)
    assert may_bind(fast) == (next(use.resource for use in fast.rows[0].uses if "pcie" in use.resource),)


def test_an_exchange_of_a_range(tmp_path):
    """An all-reduce over two ranks by a ring sends the tensor once out of each: 20 GB/s of 1 to 2 GB."""
    text = """\
tensors: {row: {bytes: 1..2 GB, home: hbm0..1}}
tasks: {sum: {collective: all_reduce, of: row, over: hbm0..1, algorithm: ring}}
"""
    topology = box(2, nvlink=20e9)
    step = compiled(tmp_path, text, topology)
    expected = schedule(step)
    assert (expected.low, expected.seconds, expected.high) == pytest.approx((0.05, 0.075, 0.1), rel=1e-12)
    assert floor(step).seconds == pytest.approx(0.05, rel=1e-12)


def test_no_schedule_hides_a_range(tmp_path):
    step = compiled(tmp_path, STREAM + "overlap: none\n")
    expected = schedule(step)
    assert (expected.low, expected.high) == pytest.approx((0.51, 1.02), rel=1e-12)
    assert any_routes(step).seconds == any_routes(compiled(tmp_path, STREAM.replace("1..2 GB", "1 GB"))).seconds


def test_what_may_not_fit_does_not_fit(tmp_path):
    """Ten of 12 to 25 GB: 120 GB would fit in 200 GB, 250 do not."""
    topology = box(1)
    study = evaluate(topology, plan_of(tmp_path, STREAM.replace("1..2 GB", "12..25 GB"), topology))
    assert not study.fits and {row.name: row.missing for row in study.memory}["dram0"] == 50 * GB


def test_a_ranking_over_a_common_load(tmp_path):
    one = compiled(tmp_path, STREAM)
    other = compiled(tmp_path, STREAM, box(1, pcie=19e9))
    assert faster_step(one, other).faster == "first"  # though 2 GB take longer here than 1 GB there
    assert faster_step(one, compiled(tmp_path, STREAM.replace("1..2 GB", "1..1.9 GB"))).faster == "open"


@st.composite
def ranged(draw, made):
    """A plan with some of its tensors' bytes and computes' FLOP as ranges."""
    def ends(value):
        low, high = draw(st.integers(0, 20)), draw(st.integers(1, 20))
        return Interval(max(0, value - low), value, value + high) if draw(st.booleans()) else None

    tensors = {name: replace(one, interval=ends(one.bytes)) for name, one in made.tensors.items()}
    blocks = []
    for block in made.blocks:
        tasks = [replace(task, interval=ends(task.flops)) if isinstance(task, Compute) else task
                 for task in block.tasks]  # fmt: skip
        blocks.append(Block(tuple(tasks), block.repeat))
    return replace(made, tensors=tensors, blocks=tuple(blocks))


def single(step, end):
    """The step with each of its open rates measured as its end."""
    for figure in figures_of(step):
        step = known(step, figure, getattr(figure.interval, end))
    return step


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60)
def test_corners_are_those_of_plans_with_single_figures(data):
    if data.draw(st.booleans()):
        topology, plan = data.draw(ranked_plans())
    else:
        topology, plan = data.draw(topologies()), data.draw(plans())
    plan = data.draw(ranged(plan))
    try:
        step = compile_step(topology, plan)
        low, value, high = (compile_step(topology, at_loads(plan, end)) for end in ("low", "value", "high"))
        expected = schedule(step)
    except OffloadError:
        reject()
    for name in ("seconds", "load_seconds", "cycle_seconds", "cold_seconds"):
        assert getattr(floor(step), name) == getattr(floor(low), name)
        assert getattr(floor(step, "value"), name) == getattr(floor(value, "value"), name)
        assert getattr(floor(step, "high"), name) == getattr(floor(low, "high"), name)
        assert getattr(floor(step, "low"), name) == getattr(floor(high, "low"), name)
    assert serial(step, "high") == serial(low, "high") and serial(step, "low") == serial(high, "low")
    assert step.occupied == high.occupied
    there = {end: schedule(single(one, end)) for end, one in (("high", low), ("value", value), ("low", high))}
    times, colds = [[getattr(one, name) for one in there.values()] for name in ("seconds", "cold_seconds")]
    assert (expected.low, expected.seconds, expected.high) == (min(times), there["value"].seconds, max(times))
    assert (expected.cold_low, expected.cold_high) == (min(colds), max(colds))
    for end, one in (("high", low), ("value", value), ("low", high)):
        assert floor(one, end).seconds * (1 - 1e-9) <= there[end].seconds <= serial(one, end).seconds * (1 + 1e-9)
    assert floor(step).seconds <= expected.low * (1 + 1e-9)
    found = what_is_open(step, (expected.low, expected.high))
    assert (found is None) == (not figures_of(step))
    if found is not None:
        assert found.floor_sustained == (floor(low, "high").seconds, floor(high, "low").seconds)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=30)
def test_every_point_of_the_loads_lies_within(data):
    topology, plan = data.draw(topologies()), data.draw(plans())
    plan = data.draw(ranged(plan))
    try:
        step = compile_step(topology, plan)
        expected = schedule(step)
    except OffloadError:
        reject()
    loads = [one for one in figures_of(step) if one.load]
    if not loads:
        reject()
    found = what_is_open(step, (expected.low, expected.high))
    binding = {*found.may_bind}
    shares = data.draw(st.lists(st.tuples(*[st.sampled_from([0, 0.25, 0.5, 1])] * len(loads)), min_size=1, max_size=6))
    for point in shares:
        there = step
        for one, share in zip(loads, point, strict=True):
            there = known(there, one, one.interval.low + share * (one.interval.high - one.interval.low))
        assert not [one for one in figures_of(there) if one.load]
        bound = floor(there, "value")
        assert found.floor_sustained[0] * (1 - 1e-12) <= bound.seconds <= found.floor_sustained[1] * (1 + 1e-12)
        assert found.serial[0] * (1 - 1e-12) <= serial(there).seconds <= found.serial[1] * (1 + 1e-12)
        assert floor(step).seconds <= floor(there).seconds * (1 + 1e-12)
        if bound.rule == "load" and bound.seconds > 0:
            assert {*bound.bottleneck} & binding


LINKS = st.integers(1, 12)


@given(LINKS, LINKS, LINKS, st.integers(1, 9), st.integers(0, 9))
@settings(max_examples=40)
def test_what_binds_is_exact_with_one_open_load(out, back, reads, low, more):
    """One tensor moved both ways and a fixed one read: each that is named binds at a point of a fine grid."""
    text = f"""\
tensors:
  x: {{bytes: {low}..{low + more} GB, home: dram0}}
  y: {{bytes: {reads} GB, home: hbm0}}
  z: {{bytes: {back} GB, home: hbm0}}
tasks:
  fetch: {{move: x, to: hbm0}}
  spill: {{move: z, to: dram0}}
"""
    topology = box(1, pcie=out * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        step = compiled(Path(folder), text, topology)
    figures = [one for one in figures_of(step) if one.load]
    points = [step] if not figures else [
        known(step, figures[0], (low + more * i / 36) * GB) for i in range(37)]
    met = set()
    for there in points:
        times = load_seconds(there, "value").resource_seconds
        met |= {name for name in times if times[name] >= max(times.values()) * (1 - 1e-9) and times[name] > 0}
    assert met == {*may_bind(step)} - {CHAIN}


def test_the_report_and_its_data(tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\n" + STREAM, encoding="utf-8")
    assert cli.main(["step", str(path), "--explain"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "from the ends of the sustained rates and of the loads" in text
    assert "Measure how many bytes w has first (1 GB to 2 GB): " in text
    assert 'the bytes of "w" are not known better than 1 GB to 2 GB: floors count 1 GB, expected times 1.5 GB' in text
    assert "1.5 GB (1 GB to 2 GB) / 26.3 GB/s" in text
    assert cli.main(["step", str(path), "--json", "--explain"]) == 0
    answer = json.loads(capsys.readouterr().out)
    told = answer["open"]["measure"]
    assert (told["names"], told["unit"]) == (["w"], "B") and "rate" not in told
    assert told["load"] == {"low": GB, "value": 1.5 * GB, "high": 2 * GB}
    work = next(one for one in answer["explain"]["tasks"][0]["work"] if one["resource"] == "pcie0.hbm0")
    assert (work["least"], work["fewest"], work["load"], work["most"]) == (GB, GB, 1.5 * GB, 2 * GB)
    assert cli.main(["step", str(path), "--json", "--set", "tensors.w.bytes=2..3 GB"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["open"]["measure"]["load"]["high"] == 3 * GB


@pytest.mark.parametrize(("text", "wrong"), [
    ("2..1 GB", "out of order"),
    ("1..2", "lacks its unit"),
    ("1-2 GB", 'written with ".."'),
    ("1..2 GB/s", "is a rate, where a size is due"),
    ("0.5..2 B", "no whole numbers of bytes"),
    ("-1..2 GB", "negative|range"),
])  # fmt: skip
def test_ranges_that_are_none(tmp_path, text, wrong):
    with pytest.raises(DocumentError, match=wrong):
        plan_of(tmp_path, STREAM.replace("1..2 GB", text), box(1))


def test_parts_in_bytes_of_a_range_are_refused(tmp_path):
    with pytest.raises(DocumentError, match="write a percentage"):
        plan_of(tmp_path, STREAM.replace("home: dram0", "home: {dram0: 1 GB, ssd0: rest}"), box(1))
    plan = plan_of(tmp_path, STREAM.replace("home: dram0", "home: {dram0: 50%, ssd0: rest}"), box(1))
    assert plan.tensors["w"].interval == Interval(GB, 1.5 * GB, 2 * GB)


def test_equal_ends_are_one_figure(tmp_path):
    plan = plan_of(tmp_path, STREAM.replace("1..2 GB", "2..2 GB").replace("0.1 TFLOP", "0.1..0.1 TFLOP"), box(1))
    assert plan.tensors["w"].interval is None and plan.blocks[0].tasks[1].interval is None
    assert figures_of(compile_step(box(1), plan)) == ()
