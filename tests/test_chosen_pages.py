"""A page cache that is smaller than a mixture's file: what LRU keeps of chosen experts, against a simulation."""

from __future__ import annotations

from collections import OrderedDict

import numpy
import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Experts, Placement, Portion, Workload, plan_model
from offload.designs.chosen_pages import Chosen
from offload.designs.page_cache import PageCache
from offload.designs.routing import ExpertCache, Routing, touch_chances
from offload.errors import PlanError
from offload.models import catalogue, weigh
from offload.plan import Overlap, Transfer
from offload.schedules import serial
from offload.step import loads

GB = 10**9
REST = Portion("rest")
DESKTOP = load_topology("desktop-4090")
MODEL = catalogue["qwen3-30b-a3b"]  # 48 layers of 128 experts, 8 of a token
WEIGHED = weigh(MODEL, "q8_0")
EXPERT = WEIGHED.experts[0]
DENSE = sum(WEIGHED.layers) - 48 * 128 * EXPERT + WEIGHED.head + WEIGHED.norm
FILE = DENSE + 48 * 128 * EXPERT


def planned(free, *, pinned=False, compute="cpu0", batch=1, experts=None, workload=None, overlap=None):
    placement = Placement((("ssd0", REST),), compute, reserve=0, experts=experts or Experts(access="on_demand"),
                          page_cache=PageCache("dram0", free, pinned))  # fmt: skip
    return plan_model(MODEL, DESKTOP, workload or Workload(batch=batch, context=100), placement, weights="q8_0",
                      overlap=overlap)  # fmt: skip


def read(plan, least=False):
    """Bytes that come from the drive in a step."""
    return loads(compile_step(DESKTOP, plan), least).get("ssd0.read", 0)


def held(steps, batch=1):
    return DENSE + 48 * EXPERT * 128 * (1 - (120 / 128) ** (batch * steps))


# --- the model ---


def test_by_hand():
    """Four experts of 1 GB of which a token takes one, and 1 GB that is always touched: 2, then 2.75 and 3.31 GB."""
    chances = {(4, 1): touch_chances(Routing(), 4, 1, 1)}
    found = Chosen({"ssd0": GB}, {(4, 1): GB}, 2 * GB, chances)
    assert [found.held(n) for n in range(4)] == pytest.approx([GB, 2 * GB, 2.75 * GB, 3.3125 * GB])
    assert found.read == found.touched == pytest.approx(2 * GB), "nothing is kept: all is read again"
    two = Chosen({"ssd0": GB}, {(4, 1): GB}, 2 * GB, chances, 2)
    assert two.read == pytest.approx(GB * 9 / 16), "one of four, that neither of the two steps before chose"


@pytest.mark.parametrize(("exponent", "tokens"), [(0.0, 1), (0.0, 4), (1.0, 1), (1.0, 3)])
def test_against_a_simulated_lru(exponent, tokens):
    """16 layers of one dense page and 32 experts, 4 of a token, touched in order; LRU of single pages."""
    layers, count, used, steps = 16, 32, 4, 400
    routing = Routing("zipf", exponent) if exponent else Routing()
    chances = {(count, used): touch_chances(routing, count, used, tokens)}
    whole = Chosen({"ssd0": layers}, {(count, used): layers}, 0, chances)
    rng = numpy.random.default_rng(7)
    picks = numpy.argsort(rng.gumbel(size=(steps, layers, tokens, count))
                          - exponent * numpy.log(numpy.arange(1, count + 1)), axis=-1)[..., -used:]
    for kept in (1, 2, 3):
        capacity = int((whole.held(kept) + whole.held(kept + 1)) / 2)  # between two numbers of steps
        if capacity >= layers * (count + 1):
            continue
        cache, misses = OrderedDict(), 0
        for step in range(steps):
            for layer in range(layers):
                for page in (-1, *sorted({int(one) for one in picks[step, layer].flat})):
                    if (layer, page) in cache:
                        cache.move_to_end((layer, page))
                        continue
                    misses += step >= 50
                    cache[layer, page] = True
                    if len(cache) > capacity:
                        cache.popitem(last=False)
        expected = Chosen({"ssd0": layers}, {(count, used): layers}, 0, chances, kept).read
        assert misses / (steps - 50) == pytest.approx(expected, rel=0.12)


# --- plans ---


@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (2, 1), (7, 1), (1, 4), (2, 4)])
def test_a_step_reads_what_the_last_ones_did_not_choose(steps, batch):
    """So much room that `steps` steps' pages fit and no more: dense parts stay, floors read nothing."""
    plan = planned(int(held(steps, batch)) + 1, batch=batch)
    touched = 1 - (120 / 128) ** batch
    again = 48 * EXPERT * 128 * touched * (120 / 128) ** (batch * steps)
    assert read(plan) == pytest.approx(again, rel=1e-9) and read(plan, least=True) == 0
    assert read(planned(int(held(steps, batch)) - 1, batch=batch)) > read(plan)


def test_less_than_a_step_touches_is_read_again_all_of_it():
    free = int(held(1)) - GB
    plan = planned(free)
    assert read(plan) == pytest.approx(DENSE + 48 * 8 * EXPERT, rel=1e-9)
    assert read(plan, least=True) == pytest.approx(DENSE + 48 * 8 * EXPERT - free, rel=1e-9)
    assert any("more than that, so LRU evicts" in note for note in plan.assumptions)
    many = planned(free, batch=16)
    assert read(many) == pytest.approx(held(1, 16), rel=1e-9)
    assert read(many, least=True) == pytest.approx(DENSE + 48 * 8 * EXPERT - free, rel=1e-9), "all may choose alike"


def test_from_nothing_to_all_of_the_file():
    """More room, fewer reads, down to none where the file fits; floors never above expected."""
    before = None
    for free in (*range(1, 32, 3), FILE / GB + 1):
        plan = planned(int(free * GB))
        step = compile_step(DESKTOP, plan)
        now = read(plan)
        assert read(plan, least=True) <= now and (before is None or now <= before * (1 + 1e-12))
        assert floor(step).seconds <= serial(step).seconds
        before = now
    assert before == 0


def test_a_pinned_part_is_of_each_expert():
    plan = planned(16 * GB, pinned=True)
    share = 1 - 16 * GB / FILE
    touched = DENSE + 48 * 8 * EXPERT
    assert read(plan) == pytest.approx(share * touched, rel=1e-6) == read(plan, least=True)


def test_pages_of_experts_come_after_the_router():
    plan = planned(16 * GB)
    reads = [task for block in plan.blocks for task in block.tasks
             if isinstance(task, Transfer) and task.name == "read experts into dram0"]  # fmt: skip
    assert reads and all(task.after == ("attention",) for task in reads)
    assert not [task for block in plan.blocks for task in block.tasks if task.name.startswith("read weights")]
    gpu = planned(16 * GB, compute="gpu0")
    names = [task.name for task in gpu.blocks[-2].tasks]
    assert names.index("read experts into dram0") < names.index("fetch experts to hbm0")
    assert loads(compile_step(DESKTOP, gpu), False)["pcie0.hbm0"] > 48 * 8 * EXPERT


def test_the_cache_takes_no_more_than_it_is_given():
    for free in (2, 16, 24):
        for overlap in (Overlap("none"), Overlap()):
            plan = planned(free * GB, overlap=overlap)
            occupied = compile_step(DESKTOP, plan).occupied
            own = sum(size for name, size in occupied["dram0"].items()
                      if name in ("layer weights", "experts", "output head", "buffers", "page cache"))  # fmt: skip
            assert own == pytest.approx(free * GB, abs=60)
            assert sum(occupied["ssd0"].values()) == pytest.approx(FILE, abs=60), "and the file is whole"


def test_streamed_layers_bring_all_experts_and_are_scanned():
    """Without on_demand a GPU fetches every expert of a layer, so all N bytes of the file go through the cache."""
    plan = planned(16 * GB, compute="gpu0", experts=Experts())
    assert read(plan) == FILE and read(plan, least=True) == pytest.approx(FILE - 16 * GB)


@pytest.mark.parametrize(("experts", "said"), [
    (Experts(), "Write `experts: {access: on_demand}`"),
    (Experts(access="in_place"), "Write `experts: {access: on_demand}`"),
    (Experts(access="on_demand", prefetch=0.8), "or experts fetched ahead"),
])  # fmt: skip
def test_what_is_refused_says_what_to_do(experts, said):
    with pytest.raises(PlanError, match=said):
        planned(16 * GB, experts=experts)


def test_refusals_of_odd_chances_and_caches():
    chances = tuple([1.0] * 8 + [0.0] * 120)
    with pytest.raises(PlanError, match="all experts that tokens ever choose"):
        planned(16 * GB, experts=Experts(access="on_demand", routing=Routing("chances", chances=chances)))
    with pytest.raises(PlanError, match="with a cache of experts"):
        planned(16 * GB, compute="gpu0", experts=Experts(access="on_demand", cache=ExpertCache("hbm0", 16)))
    with pytest.raises(PlanError, match="several batches at once"):
        planned(16 * GB, workload=Workload(batch=numpy.array([1, 2]), context=100))


def test_the_fewer_experts_are_popular_the_fewer_pages_are_read():
    even = planned(16 * GB)
    skewed = planned(16 * GB, experts=Experts(access="on_demand", routing=Routing("zipf", 1.0)))
    assert read(skewed) < read(even)
    assert any("LRU keeps what the last" in note for note in skewed.assumptions)
