"""Intervals against every corner and points within; rankings against a grid."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from offload import cli
from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.documents import load_plan
from offload.errors import FormulaError, OffloadError
from offload.intervals import CHAIN, faster_step, figures_of, known, may_bind, order, what_is_open
from offload.schedules import schedule, serial
from offload.topology import Interval
from tests.boxes import STREAM, box, plan_of
from tests.strategies import plans, topologies

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def with_rates(step, **rates):
    """A step with other sustained rates: resource -> (low, value, high), "." as "_"."""
    resources = dict(step.resources)
    for key, ends in rates.items():
        name = key.replace("_", ".")
        resources[name] = replace(resources[name], sustained={"": Interval(*ends)})
    return replace(step, resources=resources)


def stream(tmp_path):
    topology = box(1)
    return compile_step(topology, plan_of(tmp_path, STREAM, topology))


def at(step, figures, values):
    for figure, value in zip(figures, values, strict=True):
        step = known(step, figure, value)
    return step


@pytest.mark.slow
@given(topologies(), st.data())
@settings(max_examples=25)
def test_every_point_lies_within(topology, data):
    try:
        step = compile_step(topology, data.draw(plans()))
        expected = schedule(step)
    except OffloadError:
        reject()
    found = what_is_open(step, (expected.low, expected.high))
    figures = figures_of(step)
    if not figures:
        assert found is None
        return
    dice = random.Random(data.draw(st.integers(0, 99)))
    ends = [(one.interval.low, one.interval.high) for one in figures]
    points = list(product(*ends))
    points = dice.sample(points, min(8, len(points))) + [[dice.uniform(*end) for end in ends] for _ in range(4)]
    for point in points:
        there = at(step, figures, point)
        for grade in ("low", "value", "high"):  # nothing is open there
            assert floor(there, grade).seconds == floor(there, "value").seconds
        for (low, high), time in ((found.floor_sustained, floor(there, "value").seconds),
                                  (found.serial, serial(there).seconds)):  # fmt: skip
            assert low * (1 - 1e-12) <= time <= high * (1 + 1e-12)
        if floor(there, "value").rule == "load" and floor(there, "value").seconds > 0:
            binding = set(load_seconds(there, "value").bottleneck)
            assert binding & {*found.may_bind} or any(len(one.names) > 1 for one in figures) or CHAIN in found.may_bind
    if found.measure is not None:
        assert found.expected[0] <= found.measure.low and found.measure.high <= found.expected[1]


def test_the_figure_that_decides_is_named(tmp_path):
    """20 GB over the link take 0.8 to 1.25 s, out of memory 0.91 to 1 s: the link is the wider."""
    step = with_rates(stream(tmp_path), pcie0_hbm0=(16e9, 20e9, 25e9), dram0=(20e9, 21e9, 22e9))
    expected = schedule(step)
    found = what_is_open(step, (expected.low, expected.high))
    assert found.floor_sustained == pytest.approx((20 / 22, 1.25))
    assert set(found.may_bind) == {"pcie0.hbm0", "dram0"}
    left = found.measure
    assert left.figure.names == ("pcie0.hbm0",) and left.low == expected.low
    assert left.high - left.low == pytest.approx(1 - 20 / 22, rel=0.02)  # with a fast link memory alone is open
    assert not left.binding  # a link of 21 GB/s would leave it open which of them binds
    one = with_rates(step, dram0=(21e9, 21e9, 21e9))
    assert what_is_open(one, (expected.low, expected.high)).measure.binding
    sure = with_rates(stream(tmp_path), pcie0_hbm0=(16e9, 20e9, 25e9), dram0=(60e9, 70e9, 77e9))
    assert may_bind(sure) == ("pcie0.hbm0",)


def test_single_figures_leave_nothing_open(tmp_path):
    assert what_is_open(stream(tmp_path), (1.0, 1.0)) is None


def between(factor, box, rates="dram"):
    low, high = box[rates]
    return factor / high, factor / low


def test_what_is_common_moves_together():
    common = {"dram": (Fraction(60), Fraction(77))}
    assert order(lambda b: between(5, b), lambda b: between(6, b), common).faster == "first"
    assert order(lambda b: between(6, b), lambda b: between(5, b), common).faster == "second"
    assert order(lambda b: between(5, b), lambda b: between(5, b), common).faster == "open"
    assert order(lambda b: (1, 2), lambda b: (3, 4), {}).faster == "first"
    assert order(lambda b: (1, 3), lambda b: (2, 4), {}).faster == "open"


def test_corners_prove_nothing():
    """1 + x against max(1.1, 2.1 x), x the time per byte from nearly 0 to 1."""

    def times(formula):
        return lambda box: (formula(1 / box["r"][1]), formula(1 / box["r"][0]))

    one, other = (lambda x: 1 + x), (lambda x: max(Fraction(11, 10), Fraction(21, 10) * x))
    ends = (Fraction(1), Fraction(100))
    assert all(one(1 / end) < other(1 / end) for end in ends)
    found = order(times(one), times(other), {"r": ends})
    assert found.faster == "depends"
    assert one(1 / found.first_at["r"]) < other(1 / found.first_at["r"])
    assert one(1 / found.second_at["r"]) > other(1 / found.second_at["r"])


@given(*[st.tuples(*[st.integers(1, 9)] * 3)] * 2)
def test_a_ranking_holds_on_a_grid(first, second):
    """Load bounds of two rates that both have, and one fixed term each."""
    common = {"a": (Fraction(2), Fraction(5)), "b": (Fraction(3), Fraction(4))}

    def time(loads, a, b):
        return max(loads[0] / a, loads[1] / b, Fraction(loads[2], 4))

    def within(loads):
        return lambda box: (time(loads, box["a"][1], box["b"][1]), time(loads, box["a"][0], box["b"][0]))

    found = order(within(first), within(second), common)
    grid = list(product([2 + Fraction(i, 4) for i in range(13)], [3 + Fraction(i, 4) for i in range(5)]))
    if found.faster == "first":
        assert all(time(first, *point) < time(second, *point) for point in grid)
    if found.faster == "second":
        assert all(time(second, *point) < time(first, *point) for point in grid)
    if found.faster == "depends":
        assert time(first, *found.first_at.values()) < time(second, *found.first_at.values())
        assert time(second, *found.second_at.values()) < time(first, *found.second_at.values())


def test_two_steps_share_the_figures_of_one_name(tmp_path):
    step = with_rates(stream(tmp_path), pcie0_hbm0=(16e9, 20e9, 25e9))
    topology = box(1)
    more = compile_step(topology, plan_of(tmp_path, STREAM.replace("2 GB", "2.2 GB"), topology))
    assert faster_step(step, with_rates(more, pcie0_hbm0=(16e9, 20e9, 25e9))).faster == "first"
    assert faster_step(step, with_rates(more, pcie0_hbm0=(15e9, 20e9, 25e9))).faster == "open"  # another figure
    assert faster_step(with_rates(step, pcie0_hbm0=(30e9, 31e9, 32e9)), step).faster == "first"


def test_ends_out_of_order_are_refused():
    with pytest.raises(FormulaError, match="low end first"):
        order(lambda b: (1, 1), lambda b: (1, 1), {"a": (2, 1)})


@pytest.mark.slow
def test_the_report_and_its_data_say_what_to_measure(capsys):
    path = str(EXAMPLES / "llama-3.1-70b-desktop.yaml")
    assert cli.main(["step", path]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "what binds is open" not in text, "cpu0.reads is a part of the chain, which is longer wherever it is slow"
    assert "Measure cpu0.reads first (63.4 GB/s to 75.8 GB/s): at either end of it at most" in text
    assert cli.main(["step", path, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    told = answer["open"]
    assert told["expected"] == {"low": answer["overlapped"]["low"], "high": answer["overlapped"]["high"]}
    assert told["measure"]["names"] == ["cpu0.reads"] and told["measure"]["rate"]["low"] == 63.4e9
    assert {"cpu0.reads", "cpu0.flops"} <= {name for one in told["figures"] for name in one["names"]}


def test_a_resource_of_the_chain_is_compared_with_the_chain_as_slow_as_itself():
    plan, topology = load_plan(EXAMPLES / "llama-3.1-70b-desktop.yaml")
    assert may_bind(compile_step(topology, plan)) == (CHAIN,)


@pytest.mark.slow
def test_a_link_that_is_assumed_from_its_drive_moves_with_it(capsys):
    """The drive's figure settles both: they are no two figures, and the link never takes longer than the drive."""
    path = str(EXAMPLES / "three-tiers.yaml")
    assert cli.main(["step", path, "--set", "ssd0.read.rate.sustained=6..7.1 GB/s", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["open"]
    assert not any("m2.socket0" in one["names"] for one in told["figures"])
    assert told["may_bind"] == ["ssd0.read"] and told["measure"]["names"] == ["ssd0.read"]
    assert told["measure"]["low"] == pytest.approx(told["measure"]["high"], rel=1e-12)


def test_the_chain_is_named_only_where_it_can_bind(tmp_path):
    """Two computes in turn, m steps in flight: (hbm0 + cpu0) / m is above the longer of the two for m = 1, never for 3.

    For m = 2 they are one where both take as long.
    """
    text = """\
topology: desktop-4090
tensors: {k: {bytes: 20 GB, home: hbm0}}
in_flight: IN
tasks:
  c: {compute: gpu0, flops: 1 GFLOP, reads: [k]}
  d: {compute: cpu0, time: 10..100 ms}
"""
    path = tmp_path / "plan.yaml"
    found = {}
    for count in (1, 3, 4):
        path.write_text(text.replace("IN", str(count)), encoding="utf-8")
        step = compile_step(*reversed(load_plan(path)))
        found[count] = may_bind(step)
        figure = next(one for one in figures_of(step) if one.unit == "s")
        ends = figure.interval
        rules = {floor(known(step, figure, ends.low + share / 50 * (ends.high - ends.low)), "value").rule
                 for share in range(51)}  # fmt: skip
        assert ("cycle" in rules) == (CHAIN in found[count]), count
    assert found == {1: (CHAIN,), 3: ("hbm0", "cpu0.given"), 4: ("hbm0", "cpu0.given")}
    path.write_text(text.replace("IN", "2"), encoding="utf-8")
    assert may_bind(compile_step(*reversed(load_plan(path)))) == ("hbm0", "cpu0.given", CHAIN)


@pytest.mark.few
@pytest.mark.parametrize("count", [1000, 2500, 7000])
def test_a_tie_of_chain_and_load_is_one_whatever_the_rounding(tmp_path, count):
    path = tmp_path / "plan.yaml"
    path.write_text(f"""\
topology: desktop-4090
tensors: {{k: {{bytes: 1 MB, home: hbm0}}}}
repeat: {count}
tasks: {{t0: {{compute: gpu0, flops: 1 GFLOP, reads: [k]}}}}
""", encoding="utf-8")
    assert may_bind(compile_step(*reversed(load_plan(path)))) == ("gpu0.flops",)


def test_a_resource_within_the_chain_is_not_named_for_an_open_load(tmp_path):
    """A compute of 1 to 10 TFLOP and a stated millisecond after it: the chain is longer than gpu0 at every point."""
    text = """\
topology: gh200
tensors: {w: {bytes: 500 MB, home: dram0}, k: {bytes: LOAD, home: hbm0}}
repeat: 3
tasks:
  f: {move: w, to: hbm0}
  c: {compute: gpu0, flops: WORK, reads: [k, w], after: [f]}
  e: {compute: cpu0, time: 1..2 ms, after: c}
overlap: full
"""
    path = tmp_path / "plan.yaml"
    for load, work in (("200 MB", "1000..10000 GFLOP"), ("500..5000 MB", "1 GFLOP")):
        path.write_text(text.replace("LOAD", load).replace("WORK", work), encoding="utf-8")
        named = may_bind(compile_step(*reversed(load_plan(path))))
        assert CHAIN in named and "gpu0.flops" not in named and "hbm0" not in named


def test_flops_that_are_not_known_better(tmp_path):
    """An interval of FLOP/s is one of time, as one of bytes/s is; at each end it is the figure that stands there."""
    server = ROOT / "topologies/desktop-4090.yaml"
    plan = tmp_path / "plan.yaml"
    text = f"topology: {server}\ntensors: {{x: {{bytes: 1 kB, home: hbm0}}}}\n"
    text += "tasks: {c: {compute: gpu0, flops: 1 TFLOP, format: bf16, reads: x}}\n"
    plan.write_text(text, encoding="utf-8")

    def expected(sustained):
        text = server.read_text(encoding="utf-8").replace("bf16: 165.2 TFLOP/s", "bf16: " + sustained)
        assert sustained in text
        own = tmp_path / "own.yaml"
        own.write_text(text, encoding="utf-8")
        loaded, topology = load_plan(plan, topology=str(own))
        found = schedule(compile_step(topology, loaded))
        return found.low, found.seconds, found.high

    low, value, high = expected("{rated: 165 TFLOP/s, sustained: 1..100 TFLOP/s}")
    for figure, seconds in (("100", low), ("50.5", value), ("1", high)):
        assert expected(f"{{rated: 165 TFLOP/s, sustained: {figure} TFLOP/s}}") == (seconds,) * 3
    assert low < value < high
    assert expected("{rated: 100 TFLOP/s, sustained: 1..100 %}")[::2] == pytest.approx((low, high))


def test_flops_that_are_set_to_an_interval(capsys):
    words = ["step", str(EXAMPLES / "by-hand.yaml"), "--json", "--set"]
    assert cli.main([*words, "gpu0.flops.bf16.rate.sustained=10..50 GFLOP/s"]) == 0
    answer = json.loads(capsys.readouterr().out)["overlapped"]
    for end, figure in (("low", "50"), ("high", "10")):
        assert cli.main([*words, f"gpu0.flops.bf16.rate.sustained={figure} GFLOP/s"]) == 0
        assert json.loads(capsys.readouterr().out)["overlapped"]["seconds"] == answer[end]
    assert answer["low"] < answer["seconds"] < answer["high"]
