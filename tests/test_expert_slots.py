"""Buffers of fetched experts hold the most that a step may need at once; expected times and floors count otherwise."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.capacity import missing, missing_at_mean
from offload.compiler import compile_step
from offload.designs import ExpertCache, Experts, Placement, Portion, Routing, Workload, plan_model
from offload.designs.routing import touched
from offload.models.architecture import Layer, Matrix
from offload.models.cache import Cache
from offload.report import write_refusal
from offload.step import loads
from offload.study import evaluate
from tests.boxes import GB, box
from tests.test_experts_in_plans import mixture

REST = Portion("rest")
EXPERT = 2_000_000  # bytes of one expert of `mixture`


def slots(step, start="fetch experts"):
    return {one.name: one for one in step.slots if one.name.startswith(start)}


def step_of(experts, used, batch, layers=4, topology=None, workload=None, **more):
    asked = Experts((("dram0", REST),), "gpu0", "on_demand", **more)
    server = topology or box(gpus=1)
    plan = plan_model(mixture(experts, used, layers=layers), server, workload or Workload(batch=batch, context=1),
                      Placement((("hbm0", REST),), experts=asked), weights="bf16")  # fmt: skip
    return compile_step(server, plan)


@pytest.mark.parametrize(("experts", "used", "batch", "most"), [(32, 4, 1, 4), (32, 4, 3, 12), (32, 4, 8, 32),
                                                               (32, 4, 9, 32), (4, 4, 1, 4)])  # fmt: skip
def test_slots_hold_what_the_tokens_can_choose_at_once(experts, used, batch, most):
    step = step_of(experts, used, batch)
    (one,) = slots(step).values()
    mean = experts * (1 - (1 - used / experts) ** batch)
    assert one.size == most * EXPERT and one.expected == pytest.approx(mean * EXPERT)
    assert step.occupied["hbm0"]["buffers"] - 2 * most * EXPERT == pytest.approx(0, abs=4 + 2 * 10**4), "and the head"
    assert loads(step, least=False)["pcie0.hbm0"] == pytest.approx(4 * mean * EXPERT + 2 * batch, rel=1e-9)
    assert loads(step, least=True)["pcie0.hbm0"] == pytest.approx(4 * used * EXPERT + 2, rel=1e-9)


def test_a_cache_leaves_no_more_to_miss_than_it_does_not_hold():
    held = {batch: slots(step_of(32, 4, batch, cache=ExpertCache("hbm0", 20))) for batch in (1, 2, 3, 8)}
    assert {batch: one["fetch experts to hbm0"].size for batch, one in held.items()} == {
        1: 4 * EXPERT, 2: 8 * EXPERT, 3: 12 * EXPERT, 8: 12 * EXPERT}  # fmt: skip
    never = Routing("chances", chances=(1.0, 0.5, 0.5, 0.0))
    (one,) = slots(step_of(4, 2, 5, routing=never)).values()
    assert one.size == 3 * EXPERT, "what nobody chooses is not fetched"
    (one,) = slots(step_of(4, 2, 5, routing=never, cache=ExpertCache("hbm0", 2))).values()
    assert one.size == EXPERT


def test_what_is_fetched_ahead_and_what_may_be_wrong_of_it():
    found = slots(step_of(32, 4, 3, prefetch=0.5))
    assert {name: one.size / EXPERT for name, one in found.items()} == {"fetch experts ahead to hbm0": 12,
                                                                       "fetch experts to hbm0": 12}
    found = slots(step_of(32, 4, 6, prefetch=0.5))
    assert {name: one.size / EXPERT for name, one in found.items()} == {"fetch experts ahead to hbm0": 24,
                                                                       "fetch experts to hbm0": 16}
    assert [one.size / EXPERT for one in slots(step_of(32, 4, 6, prefetch=1.0)).values()] == [24]


def test_cached_experts_that_come_from_elsewhere():
    """Of a cache in host memory in front of a drive: no more come from it than it holds, or tokens choose."""
    server = box(gpus=1, direct=(0,))
    asked = Experts((("ssd0", REST),), "gpu0", "on_demand", cache=ExpertCache("dram0", 6))
    for batch, most in ((1, 4), (2, 6)):
        plan = plan_model(mixture(32, 4, layers=4), server, Workload(batch=batch, context=1),
                          Placement((("hbm0", REST),), experts=asked), weights="bf16")  # fmt: skip
        assert slots(compile_step(server, plan), "fetch cached")["fetch cached experts to hbm0"].size == most * EXPERT


def test_copies_of_all_experts_are_as_large_as_before():
    server = box(gpus=1)
    asked = Experts((("dram0", REST),), "gpu0", "copy")
    plan = plan_model(mixture(32, 4, layers=4), server, Workload(batch=3, context=1),
                      Placement((("hbm0", REST),), experts=asked), weights="bf16")  # fmt: skip
    (one,) = slots(compile_step(server, plan)).values()
    assert one.size == one.expected == 32 * EXPERT


def test_a_sweep_holds_the_most_at_each_point():
    server = box(gpus=1)
    batch = np.array([1, 3, 20])
    asked = Experts((("dram0", REST),), "gpu0", "on_demand")
    plan = plan_model(mixture(32, 4, layers=4), server, Workload(batch=batch, context=1),
                      Placement((("hbm0", REST),), experts=asked), weights="bf16")  # fmt: skip
    (one,) = slots(compile_step(server, plan)).values()
    assert one.size.tolist() == [4 * EXPERT, 12 * EXPERT, 32 * EXPERT]


@settings(max_examples=150)
@given(st.data())
def test_no_routing_needs_more_than_the_slots_hold(data):
    """Draw what tokens choose, what a cache holds and what is foreseen: slots have room for all that is fetched."""
    count = data.draw(st.integers(1, 12))
    used, tokens = data.draw(st.integers(1, count)), data.draw(st.integers(1, 6))
    held = data.draw(st.integers(0, count))
    chance = random.Random(data.draw(st.integers(0, 10**6)))
    cached = set(chance.sample(range(count), held))
    chosen = {one for _ in range(tokens) for one in chance.sample(range(count), used)}
    missed = chosen - cached
    # Whatever the policy, the cache holds so many of the layer when its experts are chosen.
    cache = ExpertCache("hbm0", held, policy=data.draw(st.sampled_from(["static", "lru"]))) if held else None
    found = touched(Routing(), cache, held, count, used, tokens)
    assert found.surely_missed <= len(missed) <= found.most_missed <= count - held
    assert found.misses <= found.most_missed * (1 + 1e-12)
    assert len(chosen & cached) <= found.most_hit
    foreseen = set(chance.sample(sorted(set(range(count)) - cached), len(missed)))
    assert len(missed - foreseen) <= found.most_wrong


@settings(max_examples=60)
@given(used=st.integers(1, 4), extra=st.integers(0, 8), tokens=st.integers(1, 4))
def test_the_most_is_reached(used, extra, tokens):
    """Tokens that choose others in turn need just that: no slot is larger than some step needs."""
    count = used + extra
    chosen = {(token * used + place) % count for token in range(tokens) for place in range(used)}
    assert len(chosen) == touched(Routing(), None, 0, count, used, tokens).most_missed


def crowded():
    """A server whose GPU has room for what a step fetches on average, and not for the most."""
    step = step_of(32, 4, 6)
    used = sum(step.occupied["hbm0"].values())
    (one,) = slots(step).values()
    return box(gpus=1, capacity=used - int(one.size - one.expected))


def test_a_mean_that_fits_does_not_make_the_most_fit(capsys):
    server = crowded()
    step = step_of(32, 4, 6, topology=server)
    assert missing(step)["hbm0"] > 0 and missing_at_mean(step) == {}
    study = evaluate(server, step.plan)
    assert not study.fits
    (row,) = [row for row in study.memory if row.name == "hbm0"]
    assert row.missing and not row.missing_at_mean
    from offload.verbs.output import print_report

    print_report(write_refusal, study)
    text = " ".join(capsys.readouterr().out.split())
    assert "DOES NOT FIT: hbm0 lacks" in text
    assert "Buffers have to hold the most that a step may fetch at once" in text
    assert "with what one fetches on average it would fit." in text
    assert "24 of 32; times count the mean, 17.64" in text
    (batch,) = [room for room in study.room if room.what == "batch"]
    assert batch.most == 5, "what fits is found with the most"
    full = evaluate(box(gpus=1, capacity=GB // 10), step.plan)
    (row,) = [row for row in full.memory if row.name == "hbm0"]
    assert 0 < row.missing_at_mean < row.missing


def test_a_request_has_room_for_its_prompt_and_its_last_step():
    """The prompt's tokens choose more experts than a decode step's, and the last step has the longest context."""
    server = box(gpus=1)
    kept = Layer((Matrix("attn_q", None, 100, 100), Matrix("ffn_up", None, 1000, 1000, 32, 4)),
                 Cache("full", heads=1, key_dim=100, value_dim=100), feed_forward="experts", heads=1)  # fmt: skip
    model = replace(mixture(32, 4, layers=4), stack=(kept,) * 4)
    asked = Experts((("dram0", REST),), "gpu0", "on_demand")
    plan = plan_model(model, server, Workload("generate", prompt=5, generate=11, context=0),
                      Placement((("hbm0", REST),), kv="dram0", experts=asked), weights="bf16")  # fmt: skip
    step = compile_step(server, plan)
    (experts,) = slots(step).values()
    assert experts.size == 20 * EXPERT and experts.expected == 4 * EXPERT
    (kv,) = slots(step, "fetch KV").values()
    row = 2 * 100 * 2
    assert kv.size == pytest.approx(15 * row) and kv.expected == pytest.approx(10.5 * row)
