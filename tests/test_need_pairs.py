"""Pairs of changes: each holds when the plan and the machine are changed so, and what is called least or none is."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from offload import cli
from offload.bounds import floor
from offload.capacity import missing
from offload.compiler import compile_step
from offload.designs import Portion, plan_model
from offload.errors import OffloadError
from offload.need import need
from offload.need_pairs import two_parts
from offload.need_rates import Search, Target, groups_of, read_target
from offload.plan import UNLIMITED
from offload.schedules import schedule
from offload.sensitivity import scaled
from offload.verbs.step import plan_of as asked
from tests.boxes import STREAM, box, plan_of
from tests.runs import examples
from tests.strategies import placed_ranks, plans, topologies

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def expected(step):
    return schedule(step, ends=False).seconds


def faster(step, *parts):
    for names, factor in parts:
        step = scaled(step, names, factor)
    return step


def changed(step, *settings):
    """The step of a plan made anew with other values of (kind, names)."""
    model, workload, placement, weights, kv = step.plan.origin
    overlap = step.plan.overlap
    for (kind, names), value in settings:
        if kind == "layers":
            portion = (names[0], Portion("layers", value))
            there = [(name, old) if name != names[0] else portion for name, old in placement.weights]
            placement = replace(placement, weights=tuple(there if portion in there else [portion, *there]))
        elif kind == "buffers":
            overlap = replace(overlap, kind="buffers", buffers=UNLIMITED if value == "full" else value)
        elif kind == "weights":
            weights = value
        elif kind == "kv":
            kv = value
        else:
            workload = replace(workload, **{kind: value})
    return compile_step(step.topology, plan_model(
        model, step.topology, workload, placement, weights=weights, kv=kv, overlap=overlap))  # fmt: skip


def check_part(step, part, due, grade):
    """A part told for a step: with it the target is reached, and with less than `at_least` by no part."""
    time = (lambda one: floor(one).seconds) if grade == "peak" else expected
    after = time(faster(step, (part.names, part.factor)))
    assert after == part.seconds and after <= due * (1 + 2e-9)
    assert part.at_least <= part.factor * (1 + 1e-9)
    if part.at_least > 1.001:
        for names in groups_of(step):
            assert floor(faster(step, (names, part.at_least * 0.999)), grade).seconds > due * (1 - 1e-9)


def check_none(step, left, due, grade):
    """What is left where no part is told: no part leaves less, and it is too long."""
    floors = {names: floor(faster(step, (names, inf)), grade).seconds for names in groups_of(step)}
    assert floors[left.names[0]] == left.floor
    if left.expected is None:
        assert left.floor == min(floors.values()) > due
    else:
        assert expected(faster(step, (left.names[0], inf))) == left.expected > due


def check_no_less(step, found, due, grade):
    """With a change no part reaches it by a smaller factor than some part does without it."""
    single = min(getattr(one, grade) for one in found.levers if one.kind == "rate" and getattr(one, grade) is not None)
    for names in groups_of(step):
        less = faster(step, (names, max(1.0, single * 0.998)))
        assert floor(less, "peak" if grade == "floor" else "value").seconds > due * (1 - 1e-9)


def check_changes(step, target, found):
    assert all(missing(changed(step, ((one.setting.kind, one.setting.names), one.setting.value))) == {}
               for one in found.with_parts)  # fmt: skip
    for one in found.with_parts:
        variant = changed(step, ((one.setting.kind, one.setting.names), one.setting.value))
        due = target.due(variant)
        assert one.due == due and expected(variant) > due
        if one.floor is not None:
            check_part(variant, one.floor, due, "peak")
            assert (one.floor.names == ()) == (floor(variant).seconds <= due * (1 + 1e-9))
        elif one.left is not None:
            check_none(variant, one.left, due, "peak")
            assert one.expected is None
        else:
            check_no_less(variant, found, due, "floor")
        if one.expected is not None:
            check_part(variant, one.expected, due, "value")
        elif one.left_expected is not None:
            check_none(variant, one.left_expected, due, "value")
        elif one.left is None:
            check_no_less(variant, found, due, "expected")
    alone = {(one.kind, one.names): one for one in found.levers}
    for one in found.two:
        both = (one.first, one.second)
        assert all(alone[which].expected is None for which in both if which in alone)
        end = changed(step, *zip(both, one.end, strict=True))
        assert (floor(end).seconds, target.due(end), not missing(end)) == (one.end_floor, one.end_due, one.end_fits)
        if one.floor is not None:
            variant = changed(step, *zip(both, one.floor, strict=True))
            assert floor(variant).seconds <= target.due(variant) * (1 + 2e-9)
        else:
            assert (one.end_floor > one.end_due or not one.end_fits) and one.expected is None
        if one.expected is not None:
            variant = changed(step, *zip(both, one.expected, strict=True))
            assert not missing(variant) and expected(variant) == one.seconds <= target.due(variant) * (1 + 2e-9)


@pytest.mark.slow
@given(placed_ranks(phases=("decode", "prefill")), st.sampled_from([0.3, 0.6, 0.85, 0.97]), st.booleans())
@examples(5, 15)
def test_changes_of_drawn_plans_hold(case, share, rate):
    topology, plan = case
    try:
        step = compile_step(topology, plan)
        now = expected(step)
    except OffloadError:
        reject()
    if not now > 0 or missing(step):
        return
    due = now * share
    target = Target("t", tokens_per_s=float(plan.tokens) / due) if rate else Target("t", seconds=due)
    check_changes(step, target, need(step, target))


@pytest.mark.few
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38"], "10 tok/s"),
        (["llama-3.1-70b:q8_0", "--on", "desktop-4090", "--gpu-layers", "10", "--compute", "gpu0"], "3 tok/s"),
        (["llama-3.1-70b:bf16", "--on", "desktop-4090", "--gpu-layers", "80"], "2 tok/s"),
    ],
)
def test_changes_of_real_plans_hold(words, text):
    plan, topology = asked(cli._parser().parse_args(["need", *words, "--target", text]))
    step = compile_step(topology, plan)
    found = need(step, read_target(text, step))
    assert found.two
    check_changes(step, found.target, found)


def drawn(topology, data, shares):
    """The step of a drawn plan, and one of these shares of its expected time."""
    try:
        step = compile_step(topology, data.draw(plans()))
        now = expected(step)
    except OffloadError:
        reject()
    if not now > 0:
        reject()
    return step, now * data.draw(st.sampled_from(shares))


@pytest.mark.slow
@given(topologies(), st.data())
@settings(max_examples=20)
def test_no_pair_reaches_it_in_time_below_the_bound(topology, data):
    """What is proved of expected times: below `at_least` no two factors do."""
    step, due = drawn(topology, data, [0.2, 0.4, 0.7])
    search, groups = Search(step, Target("t", seconds=due)), groups_of(step)
    singles = [search.rate(names).expected for names in groups]
    pair = two_parts(search, groups, singles, "value")
    if pair is None:
        return
    assert pair.at_least <= pair.product * (1 + 1e-9)
    assert expected(faster(step, *zip(pair.names, pair.factors, strict=True))) == pair.seconds <= due * (1 + 2e-9)
    assert all(one is None or pair.product < one for one in singles)
    for a, b in combinations(groups, 2):
        for x in [1.05**n for n in range(60)] if (a, b) == pair.names else (1.0, 1.3, 2.0, 3.2, 5.0):
            y = pair.at_least * 0.98 / x
            if y >= 1:
                assert floor(faster(step, (a, x), (b, y)), "value").seconds > due


@pytest.mark.slow
@given(topologies(), st.data())
@settings(max_examples=25)
def test_where_no_pair_is_told_in_time_the_reason_holds(topology, data):
    step, due = drawn(topology, data, [0.01, 0.05, 0.2])
    found = need(step, Target("t", seconds=due))
    left = found.best_expected_pair
    if left is None:
        assert found.expected_pair is not None or any(one.expected is not None for one in found.levers) or (
            len(groups_of(step)) < 2)  # fmt: skip
        return
    pairs = list(combinations(groups_of(step), 2))
    floors = {two: floor(faster(step, *((names, inf) for names in two)), "value").seconds for two in pairs}
    assert floors[left.names] == left.floor
    if left.expected is None:
        assert left.floor == min(floors.values()) > due
    else:
        assert expected(faster(step, *((names, inf) for names in left.names))) == left.expected


def test_the_pair_in_time_is_found_where_the_schedule_leaves_the_floor(tmp_path):
    """Without overlap transfer and compute add up, of which floors know nothing: both have to be faster.

    The factors are compared with a grid of the link's, each with the least of the arithmetic's that then is enough.
    """
    topology = box(1)
    text = STREAM.replace("buffers: 2", "buffers: 1").replace("0.1 TFLOP", "2 TFLOP")
    step = compile_step(topology, plan_of(tmp_path, text, topology))
    groups, due = groups_of(step), 0.4 * expected(step)
    link, flops = (next(names for names in groups if names[0] == name) for name in ("pcie0.hbm0", "gpu0.flops"))
    pair = two_parts(Search(step, Target("t", seconds=due)), groups, [None] * len(groups), "value")
    assert set(pair.names) == {link, flops} and pair.seconds <= due * (1 + 1e-9)
    assert pair.at_least <= pair.product
    assert pair.product > pair.at_least * 1.05 and not pair.proved
    grid = [1.02**n for n in range(300)]
    least = inf
    for x in grid[::6]:
        good = [y for y in grid if x * y < least and expected(faster(step, (link, x), (flops, y))) <= due]
        least = min([least, *(x * y for y in good)])
    assert pair.product <= least * 1.03


def run(capsys, *words):
    status = cli.main(["need", *words])
    captured = capsys.readouterr()
    assert captured.err == ""
    return status, captured.out


@pytest.mark.slow
def test_two_changes_are_those_of_the_step_command(capsys):
    """q2_k with 65 layers on the GPU reaches 10 tok/s; with one layer less, or a larger format, nothing does."""
    words = ("llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38", "--target", "10 tok/s", "--json")
    status, out = run(capsys, *words)
    answer = json.loads(out)
    both = next(one for one in answer["two"] if [two["kind"] for two in one["changes"]] == ["weights", "layers"])
    name, layers = both["expected_from"]
    assert status == 0 and answer["reachable"] and name == "q2_k"

    def rate(weights, count):
        status = cli.main(["step", f"llama-3.1-70b:{weights}", "--on", "desktop-4090", "--gpu-layers", str(count),
                           "--json"])  # fmt: skip
        told = json.loads(capsys.readouterr().out)
        return told["tokens_per_s"]["overlapped"] if status == 0 else None

    assert rate(name, layers) >= 10 > rate(name, layers - 1)
    most = next(count for count in range(80, 0, -1) if rate("q3_k_m", count) is not None)
    assert rate("q3_k_m", most) < 10


@pytest.mark.slow
def test_a_format_with_a_faster_drive_is_told_as_text_and_as_data(capsys):
    words = (str(EXAMPLES / "llama-3-70b-from-two-drives.yaml"), "--target", "40 tok/s")
    status, out = run(capsys, *words)
    assert status == 0 and "q8_0 weights        m2.socket0 1.95 x      m2.socket0 2.37 x, least" in out
    assert "int4-g128 weights   no part                m2.socket0 1.21 x, least" in out
    assert max(map(len, out.splitlines())) <= 100
    answer = json.loads(run(capsys, *words, "--json")[1])
    one = next(one for one in answer["with_parts"] if one["value"] == "q8_0" and one["kind"] == "weights")
    assert one["expected"]["factor"] == pytest.approx(2.3670, rel=1e-3) and one["expected"]["proved"]
    assert one["floor"]["factor"] < one["expected"]["factor"]
    after = (str(EXAMPLES / "llama-3-70b-from-two-drives.yaml"), "--set", "model.weights=q8_0", "--target", "40 tok/s")
    rate = next(one for one in json.loads(run(capsys, *after, "--json")[1])["changes"] if "m2.socket0" in one["names"])
    assert rate["expected_from"] == pytest.approx(one["expected"]["factor"], rel=1e-3)


@pytest.mark.slow
def test_what_forbids_every_pair_is_told(capsys):
    status, out = run(capsys, str(EXAMPLES / "three-tiers.yaml"), "--target", "40 tok/s")
    text = " ".join(out.split())
    assert status == 1 and "No change that was tried reaches it by itself, nor do two." in text
    assert "of all changes with a part, q2_k weights with m2.socket0 infinitely fast leaves least: pcie0.hbm0" in text
    assert "of two changes of the plan, weight format and batch (q2_k, 30) leave least: m2.socket0" in text
    assert "and 750 ms are due" in text
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.few
@pytest.mark.parametrize("target", ["10 tok/s", "200 tok/s"])
def test_every_key_of_the_data_is_told(capsys, target):
    out = run(capsys, "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--target", target, "--json")[1]
    page = (ROOT / "docs" / "need.md").read_text(encoding="utf-8")

    def keys(value):
        if isinstance(value, dict):
            return set(value).union(*map(keys, value.values()))
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    skipped = {"format", "offload_version", "title", "topology"}  # as in every answer
    assert [key for key in sorted(keys(json.loads(out)) - skipped) if f"`{key}`" not in page] == []
