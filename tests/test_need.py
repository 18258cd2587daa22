"""What a target needs: each answer holds where it says and not a little before; nothing is claimed where none does."""

from __future__ import annotations

import json
from itertools import product
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from offload import cli
from offload.bounds import floor
from offload.compiler import compile_step
from offload.errors import FormulaError, OffloadError, UnitError
from offload.need import need
from offload.need_rates import Target, read_target
from offload.schedules import schedule
from offload.sensitivity import scaled
from tests.boxes import STREAM, box, plan_of
from tests.strategies import plans, topologies

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def step_of(tmp_path, text=STREAM):
    topology = box(1)
    return compile_step(topology, plan_of(tmp_path, text, topology))


def lever(found, kind, name=""):
    return next(one for one in found.levers if one.kind == kind and (not name or name in one.names))


def test_a_stream_needs_a_faster_link_until_memory_binds(tmp_path):
    """20 GB over a link of 20 GB/s take 1 s, out of DRAM of 100 GB/s 200 ms, into and out of HBM 40 ms."""
    step = step_of(tmp_path)
    found = need(step, Target("250 ms", seconds=0.25))
    assert (found.floor, found.due, found.allowed, found.met, found.reachable) == (1.0, 0.25, False, False, True)
    link = lever(found, "rate", "pcie0.hbm0")
    assert link.floor == pytest.approx(4, rel=1e-8) and link.rates == (20e9, 20e9)
    assert 4 <= link.expected * (1 + 1e-8) and link.seconds <= 0.25 * (1 + 1e-9)
    assert link.end_floor == 0.2 and link.end_bottleneck == ("dram0",)
    assert lever(found, "rate", "dram0").floor is None and lever(found, "rate", "dram0").end_floor == 1.0
    assert found.floor_pair is None  # the link alone is cheaper


def test_beyond_that_it_needs_both_and_the_pair_is_exact(tmp_path):
    found = need(step_of(tmp_path), Target("100 ms", seconds=0.1))
    assert all(one.floor is None for one in found.levers if one.kind == "rate")
    pair = found.floor_pair
    factors = {names[0]: factor for names, factor in zip(pair.names, pair.factors, strict=True)}
    assert factors == {"pcie0.hbm0": pytest.approx(10, rel=1e-6), "dram0": pytest.approx(2, rel=1e-6)}
    assert found.best_pair is None and found.expected_pair.product >= pair.product * (1 - 1e-9)


def test_no_pair_is_proved_by_what_is_left(tmp_path):
    """HBM alone takes 40 ms, so 30 ms need all three."""
    found = need(step_of(tmp_path), Target("30 ms", seconds=0.03))
    assert found.floor_pair is None and found.expected_pair is None and not found.reachable
    assert found.best_pair.floor == 0.04 and found.best_pair.bottleneck == ("hbm0",)
    assert {names[0] for names in found.best_pair.names} == {"pcie0.hbm0", "dram0"}


def test_where_the_floor_allows_it_the_schedule_is_told_apart(tmp_path):
    text = STREAM.replace("buffers: 2", "buffers: 1").replace("0.1 TFLOP", "8 TFLOP")
    step = step_of(tmp_path, text)
    found = need(step, Target("1.1 s", seconds=1.1))
    assert found.allowed and not found.met and found.floor == 1.0 and found.expected > 1.7
    buffers = lever(found, "buffers")
    assert (buffers.now, buffers.floor, buffers.expected) == (1, 1, 2) and buffers.seconds <= 1.1
    assert lever(found, "rate", "pcie0.hbm0").floor == 1.0
    assert need(step, Target("3 s", seconds=3.0)).met


def drawn(topology, data):
    """A step of a drawn plan that the server can run."""
    try:
        step = compile_step(topology, data.draw(plans()))
        schedule(step, ends=False)
        return step
    except OffloadError:
        reject()


@pytest.mark.slow
@given(topologies(), st.data())
@settings(max_examples=30)
def test_answers_hold_where_they_say(topology, data):
    step = drawn(topology, data)
    now = schedule(step, ends=False).seconds
    if not now > 0:
        return
    target = Target("t", seconds=now * data.draw(st.sampled_from([0.2, 0.5, 0.8, 0.95])))
    found = need(step, target)
    due = target.seconds
    for one in found.levers:
        if one.kind != "rate":
            continue
        if one.floor is None:
            assert floor(scaled(step, one.names, inf)).seconds > due
            assert one.expected is None
        else:
            assert floor(scaled(step, one.names, one.floor)).seconds <= due * (1 + 2e-9)
            if one.floor > 1.001:
                assert floor(scaled(step, one.names, one.floor * 0.999)).seconds > due * (1 - 1e-9)
        if one.expected is not None:
            assert one.expected >= one.floor * (1 - 1e-6)
            assert schedule(scaled(step, one.names, one.expected), ends=False).seconds == one.seconds
            assert one.seconds <= due * (1 + 2e-9)
    for pair in (found.floor_pair, found.expected_pair):
        if pair is not None:
            after = scaled(scaled(step, pair.names[0], pair.factors[0]), pair.names[1], pair.factors[1])
            reached = floor(after).seconds if pair is found.floor_pair else schedule(after, ends=False).seconds
            assert reached == pytest.approx(pair.seconds, rel=1e-9) and reached <= due * (1 + 2e-9)
    singles = [one.floor for one in found.levers if one.kind == "rate" and one.floor is not None]
    if found.floor_pair is not None:
        assert all(found.floor_pair.product < one for one in singles)
    elif not found.allowed and not singles and not found.met:
        assert found.best_pair is None or found.best_pair.floor > due


@pytest.mark.slow
@given(topologies(), st.data())
@settings(max_examples=25)
def test_no_pair_on_a_grid_is_cheaper(topology, data):
    step = drawn(topology, data)
    bound = floor(step).seconds
    if not bound > 0:
        return
    found = need(step, Target("t", seconds=bound * 0.4))
    if found.met:
        return
    groups = [one.names for one in found.levers if one.kind == "rate"]
    singles = [one.floor for one in found.levers if one.kind == "rate" and one.floor is not None]
    cheapest = min([*singles, *([found.floor_pair.product] if found.floor_pair else [])], default=inf)
    for a, b in [(a, b) for i, a in enumerate(groups) for b in groups[:i]]:
        for x, y in product((1.2, 1.7, 2.4, 3.4), repeat=2):
            if x * y < cheapest * 0.98:
                assert floor(scaled(scaled(step, a, x), b, y)).seconds > found.due


def test_targets_are_read(tmp_path):
    step = step_of(tmp_path)
    assert read_target("10tok/s", step) == Target("10tok/s", tokens_per_s=10.0)
    assert read_target("200 ms", step).due(step) == 0.2
    assert read_target("50 ms/token", step).seconds == 0.05
    for text in ("10", "fast", ""):
        with pytest.raises(UnitError, match="no target"):
            read_target(text, step)
    for text in ("0 ms", "0 tok/s", "-1 tok/s"):
        with pytest.raises(UnitError, match=f'"{text}" is not above zero'):
            read_target(text, step)
    with pytest.raises(FormulaError, match="no target"):
        need(step, Target("x", seconds=0.0))
    four = step_of(tmp_path, STREAM + "tokens: 4\n")
    assert read_target("10 tok/s", four).due(four) == 0.4
    with pytest.raises(UnitError, match="4 tokens"):
        read_target("50 ms/token", four)


def run(capsys, *words):
    status = cli.main(["need", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


MODEL = ("llama-3.1-8b:q4_k_m", "--on", "desktop-4090")


def test_a_batch_that_fits_reaches_a_rate(capsys):
    words = ("--gpu-layers", "16", "--context", "512")
    status, out, _ = run(capsys, *MODEL, *words, "--target", "60 tok/s", "--json")
    answer = json.loads(out)
    batch = next(one for one in answer["changes"] if one["kind"] == "batch")
    assert status == 0 and answer["reachable"] and batch["now"] == 1 < batch["expected_from"] < batch["end"]

    def rate(count):
        assert cli.main(["step", *MODEL, *words, "--batch", str(count), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["tokens_per_s"]["overlapped"]

    assert rate(batch["expected_from"]) >= 60 > rate(batch["expected_from"] - 1)
    layers = next(one for one in answer["changes"] if one["kind"] == "layers")
    assert layers["now"] == 16 and layers["end"] == 32


def test_a_format_with_fewer_bits_is_the_first_that_reaches_it(capsys):
    words = ("llama-3.1-8b:bf16", "--on", "desktop-4090", "--gpu-layers", "32", "--target", "12 ms", "--json")
    status, out, _ = run(capsys, *words)
    weights = next(one for one in json.loads(out)["changes"] if one["kind"] == "weights")
    assert status == 0 and weights["now"] == "bf16" and weights["expected_from"] == "fp8"
    assert weights["seconds"] <= 0.012


def test_what_is_reached_needs_nothing(capsys):
    status, out, _ = run(capsys, str(EXAMPLES / "by-hand.yaml"), "--target", "2 s")
    assert status == 0 and "It is reached as it is." in out and "change" not in out


@pytest.mark.slow
def test_what_cannot_be_is_said_with_its_reason(capsys):
    status, out, _ = run(capsys, str(EXAMPLES / "three-tiers.yaml"), "--target", "40 tok/s")
    assert status == 1
    assert "m2.socket0 infinitely fast: pcie0.hbm0 still takes 4.02 s." in out
    assert "of all pairs m2.socket0 and pcie0.hbm0 infinitely fast leave least: dram0 still takes 890 ms." in out
    status, out, _ = run(capsys, str(EXAMPLES / "eight-gpus.yaml"), "--target", "1 ms")
    assert status == 1 and "latencies and stated times" in out


@pytest.mark.slow
def test_a_plan_that_does_not_fit_is_not_reached_by_faster_parts(capsys):
    words = ("llama-3.1-70b:bf16", "--on", "desktop-4090", "--gpu-layers", "80", "--compute", "gpu0")
    status, out, _ = run(capsys, *words, "--target", "100 ms")
    assert "The plan does not fit (hbm0 lacks" in out and status == 1


def test_bad_targets_are_bad_input(capsys):
    status, out, err = run(capsys, str(EXAMPLES / "by-hand.yaml"), "--target", "10")
    assert (status, out) == (2, "") and '--target: "10" is no target.' in err
    assert run(capsys, str(EXAMPLES / "by-hand.yaml"))[0] == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [("10..20 tok/s", "not a range"), ("1,000 tok/s", 'as "1000 tok/s"'), ("1e308 tok/s", "beyond any machine")],
)
def test_targets_that_are_nearly_right_are_told_so(text, told, capsys):
    assert cli.main(["need", "llama-3.1-8b:q8_0", "--on", "desktop-4090", "--target", text]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_what_has_no_room_is_told(capsys):
    """Nothing fits: what faster parts do is told as if it did, and no sentence denies what the table says."""
    cli.main(["need", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--target", "30 tok/s"])
    assert "No more fits: batch." in capsys.readouterr().out
    assert cli.main(["need", "llama-3.1-405b:bf16", "--on", "desktop-4090", "--target", "30 tok/s"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "does not fit" in out and "faster parts alone are told as if it did" in out
    assert "nor do two" not in out
