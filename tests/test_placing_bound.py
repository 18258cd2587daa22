"""Bounds of placements: sums of layers' loads and linear programs, never above what whole plans take."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from offload.bounds import floor
from offload.designs import Placement
from offload.errors import OffloadError
from offload.placing import Adder, Question, families, regret, relaxed, table_of
from offload.placing.beside import beside_seconds, queue_seconds
from offload.placing.loads import loads_by_layer
from offload.schedules import schedule
from offload.step import loads
from offload.topology import Rate, Topology
from offload.words import plan_from_words
from tests.placing_cases import instance

CLOSE = 1e-9


def tables(question: Question):
    some = families(question.model, question.topology, Placement((), reserve=0), question.weights)
    return [one for one in (table_of(family, question) for family in some) if one is not None]


@pytest.mark.few
@pytest.mark.parametrize("seed", range(300, 330))
def test_bounds_are_below_each_placement(seed: int):
    """Of each family some placements: the quick bound <= the close one <= floor, and <= the expected time."""
    draw, question = random.Random(seed), instance(seed)
    every = tables(question)
    low, high = relaxed(every, "peak", any_plan=True), relaxed(every, "value")
    tried = 0
    for table in every:
        adder = Adder(table)
        rough = adder.bounds()
        for place in draw.sample(range(len(rough.counts)), min(4, len(rough.counts))):
            close = adder.one(rough.counts[place])
            overlap = draw.choice(table.family.overlaps)
            try:
                step = question.step(table.family.placed(*rough.counts[place]), overlap)
            except OffloadError:
                continue
            tried += 1
            expected, least = schedule(step, ends=False).seconds, floor(step)
            assert rough.seconds[place] <= close.seconds[0] * (1 + CLOSE) <= expected * (1 + 2 * CLOSE)
            assert rough.floors[place] <= close.floors[0] * (1 + CLOSE) <= least.seconds * (1 + 2 * CLOSE)
            assert max(queue_seconds(step), beside_seconds(step)) <= expected * (1 + CLOSE)
            stored, fits = adder.room(close, overlap)
            for name, amounts in stored.items():  # buffers too
                assert adder.room(rough, overlap)[0][name][place] <= amounts[0] + 1
                assert amounts[0] <= sum(step.occupied.get(name, {}).values()) + 4 * question.model.layers
            room = {name: one.capacity for name, one in question.topology.memories.items()}
            if all(sum(parts.values()) <= room[name] for name, parts in step.occupied.items()):
                assert fits[0] and low is not None
                assert low.seconds <= least.seconds * (1 + CLOSE) and high.seconds <= expected * (1 + CLOSE)
    assert tried


def test_a_plan_is_the_sum_of_its_layers():
    """What layers put on each resource adds up to the step's own loads, but for hand-overs."""
    plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=30)
    from offload.compiler import compile_step

    step = compile_step(topology, plan)
    found = loads_by_layer(step, plan.origin[0].layers)
    totals: dict[str, float] = {}
    for load in (*found.layers, found.rest):
        for name, time in load.seconds["peak"].items():
            totals[name] = totals.get(name, 0.0) + time
    for name in ("hbm0", "dram0"):
        assert totals[name] == pytest.approx(loads(step, least=True)[name] / step.resources[name].peak, rel=1e-9)
    assert totals["chain"] == pytest.approx(floor(step).cycle_seconds + floor(step).spared_seconds, rel=1e-6)
    stored = sum(load.stored["hbm0"] for load in found.layers if "hbm0" in load.stored)
    assert stored == step.occupied["hbm0"]["layer weights"] + step.occupied["hbm0"]["KV cache"]


@pytest.mark.few
@pytest.mark.parametrize("target,server", [("llama-3.1-70b:q4_k_m", "desktop-4090"), ("llama-3.1-8b:q8_0", "gh200")])
def test_no_placement_is_below_the_floor_of_any_plan(target: str, server: str):
    """Plans of other designs than the families have are above it too: rows split over GPU and CPU."""
    plan, topology = plan_from_words(target, server)
    model, asked, placed, weights, kv = plan.origin
    question = Question(model, topology, asked, weights, kv)
    some = families(model, topology, placed, weights)
    every = [one for one in (table_of(family, question) for family in some) if one is not None]
    low = relaxed(every, any_plan=True)
    from offload.plan import Overlap

    for share in (0.1, 0.3, 0.6):
        rows = (("gpu0", share), ("cpu0", None))
        split = Placement((("dram0", placed.weights[-1][1]),), compute="gpu0", split=rows)
        step = question.step(split, Overlap())
        assert low.seconds <= floor(step).seconds * (1 + CLOSE)


@pytest.mark.few
@pytest.mark.parametrize("name", ["expert-prefetch", "weights-split-rows", "kv-over-three-tiers",
                                  "weights-page-cache", "experts-on-two-sockets", "tensors-by-pattern",
                                  "weights-cxl-interleaved", "kv-on-the-host",
                                  "layers-in-turn-on-two-gpus"])  # fmt: skip
def test_examples_are_above_the_floor_of_any_plan(name: str):
    """Designs that no family has are not below it."""
    from offload.compiler import compile_step
    from offload.documents import load_plan

    plan, topology = load_plan(f"examples/{name}.yaml")
    model, asked, placed, weights, kv = plan.origin
    question = Question(model, topology, asked, weights, kv)
    some = families(model, topology, placed, weights)
    every = [one for one in (table_of(family, question) for family in some) if one is not None]
    low = relaxed(every, any_plan=True)
    assert low is None or low.seconds <= floor(compile_step(topology, plan)).seconds * (1 + CLOSE)


def test_a_cache_whose_hits_are_open_has_a_lower_floor_of_its_own():
    """Hits may all be found or none: its floor counts neither, though one of both is read. Regret then says nothing."""
    from offload.compiler import compile_step
    from offload.documents import load_plan
    from offload.placing import Objective, best_of, plan_question

    plan, topology = load_plan("examples/expert-cache.yaml")
    step = compile_step(topology, plan)
    found = best_of(plan_question(plan, topology), step, Objective("latency"))
    assert found.compared.floor < found.any_plan.seconds < schedule(step, ends=False).seconds
    assert found.regret(found.compared.floor) is None and found.regret(found.placing.best.floor) > 0


def with_more(server: Topology, name: str, kind: str, more: float) -> Topology:
    """The server with a share more of a rate, or of a capacity; of channels of a memory and of what its CPU reads."""

    def faster(rate: Rate | None) -> Rate | None:
        return rate and replace(rate, peak=rate.peak and rate.peak * (1 + more), sustained={
            access: one.scaled(1 + more) for access, one in rate.sustained.items()})  # fmt: skip

    memories, links, processors = dict(server.memories), dict(server.links), dict(server.processors)
    part, _, of = name.partition(".")
    if kind == "room":
        memories[name] = replace(memories[name], capacity=memories[name].capacity + round(more * 1e9))
    elif name in memories:
        memories[name] = replace(memories[name], rate=faster(memories[name].rate))
        for one, processor in processors.items() if kind == "channel" else ():
            if processor.memory == name:
                processors[one] = replace(processor, reads=faster(processor.reads))
    elif part in links:
        way = "forward" if links[part].b == of else "backward"
        links[part] = replace(links[part], **{way: faster(getattr(links[part], way))})
    elif of == "flops":
        processors[part] = replace(processors[part], flops={
            key: faster(rate) for key, rate in processors[part].flops.items()})  # fmt: skip
    else:
        processors[part] = replace(processors[part], **{of: faster(getattr(processors[part], of))})
    return Topology.build(name="other", memories=list(memories.values()), processors=list(processors.values()),
                          switches=list(server.switches.values()), links=list(links.values()),
                          limits=list(server.limits.values()))  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("words", [
    {"target": "llama-3.1-70b:q4_k_m", "on": "desktop-4090"},
    {"target": "llama-3.1-70b:q4_k_m", "on": "desktop-4090", "batch": 32},
    {"target": "qwen3-30b-a3b:q8_0", "on": "desktop-4090"},
])  # fmt: skip
def test_each_price_is_what_a_little_more_of_it_takes_off(words: dict):
    """The bounds are worked out again with each resource that has a price a little larger."""
    words = dict(words)
    plan, topology = plan_from_words(words.pop("target"), words.pop("on"), **words)
    model, asked, placed, weights, kv = plan.origin

    def bound(server: Topology, grade: str):
        question = Question(model, server, asked, weights, kv)
        every = [table_of(family, question) for family in families(model, server, placed, weights)]
        return relaxed([one for one in every if one is not None], grade, any_plan=grade == "peak")

    kinds = set()
    for grade in ("peak", "value"):
        now = bound(topology, grade)
        assert now.prices
        for price in now.prices:
            if price.worth * price.now < 1e-3 * now.seconds:
                continue  # too small to be told from a change of what binds
            share = 1e-5
            gained = now.seconds - bound(with_more(topology, price.name, price.kind, share), grade).seconds
            unit = round(share * 1e9) if price.kind == "room" else share * price.now
            assert gained == pytest.approx(price.worth * unit, rel=0.02), (grade, price)
            kinds.add(price.kind)
    assert {"rate", "room", "channel"} <= kinds


def test_what_cannot_fit_has_no_bound():
    question = instance(0)
    old = question.topology
    memories = [replace(one, capacity=10) for one in old.memories.values()]
    small = Topology.build(name="none", memories=memories, processors=list(old.processors.values()),
                           switches=list(old.switches.values()), links=list(old.links.values()))  # fmt: skip
    assert relaxed(tables(replace(question, topology=small))) is None


def test_regret_is_over_the_bound():
    assert regret(3.0, 2.0) == 0.5
    assert regret(1.0, 0.0) is None
