"""The best placement: against every placement gone through, on worked examples, and on the servers that people have."""

from __future__ import annotations

from fractions import Fraction

import pytest

from offload.compiler import compile_step
from offload.designs import Placement
from offload.designs.placement import Workload
from offload.models.architecture import STATED
from offload.models.stated import Blocks, stated_model
from offload.need_rates import read_target
from offload.placing import Objective, Question, best_of, families, place, plan_question, powers_of_two
from offload.placing.problem import feed_forward_of, first_numbers, shared_out
from offload.plan import Overlap
from offload.topology import Link, Memory, Processor, Switch, Topology
from offload.words import plan_from_words
from tests.boxes import GB, box, rate
from tests.placing_cases import evaluated, instance

TENS = [0, 10, *(pytest.param(start, marks=pytest.mark.slow) for start in range(20, 200, 10))]
LATENCY = Objective("latency")
BARE = Placement((), reserve=0)


def found_for(question: Question, objective: Objective = LATENCY, overlap: Overlap | None = None, most: int = 10**6):
    some = families(question.model, question.topology, BARE, question.weights, overlap)
    return place(question, some, objective, most=most)


@pytest.mark.few
@pytest.mark.parametrize("start", TENS)
def test_it_is_the_best_of_all_placements_gone_through(start: int):
    """200 random servers and models (20 but in long runs): the best time is the least, and no bound is above it."""
    for seed in range(start, start + 10):
        question = instance(seed)
        found, every = found_for(question), list(evaluated(question))
        assert found.proved
        if not every:
            assert found.best is None, seed
            continue
        least, low = min(one[0] for one in every), min(one[1] for one in every)
        assert found.best.seconds == pytest.approx(least, rel=1e-9), seed
        assert found.any_plan.seconds <= found.floors.seconds * (1 + 1e-9), seed
        assert found.floors.seconds <= low * (1 + 1e-9), seed
        assert found.expected.seconds <= least * (1 + 1e-9), seed


@pytest.mark.few
@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_a_target_is_reached_with_the_least_gpu_memory(seed: int):
    question = instance(seed)
    every = list(evaluated(question))
    if not every:
        return
    times = sorted(one[0] for one in every)
    for due in (times[len(times) // 2], times[0] / 2):
        step = compile_step(question.topology, found_for(question).best.step.plan)
        found = found_for(question, Objective("target", read_target(f"{due:.17g} s/step", step)))
        reaching = [one[2] for one in every if one[0] <= due]
        assert (found.best is None) == (not reaching)
        assert not reaching or found.best.hbm == min(reaching)


@pytest.mark.slow
def test_instances_ask_different_things():
    """The random instances do need the CPU, the drive and streams, and some do not fit at all."""
    names, none = set(), 0
    for seed in range(40):
        best = found_for(instance(seed)).best
        none += best is None
        names |= {best.family.name} if best is not None else set()
    assert len(names) >= 6 and 0 < none < 20


# Worked examples.


def three_tiers() -> Topology:
    """The tiers of the worked example W44: 80 and 128 GB free, link 25, drive 7, host memory 100 GB/s."""
    fast = rate(1e18)
    return Topology.build(
        name="tiers", memories=[
            Memory("hbm0", "hbm", 80 * GB, fast), Memory("dram0", "dram", 128 * GB, rate(100e9), at="socket0"),
            Memory("ssd0", "nvme", None, read=rate(7e9), write=rate(7e9))],
        processors=[Processor("gpu0", "gpu", "hbm0", {"bf16": rate(1e24)})], switches=[Switch("socket0")],
        links=[Link("pcie0", "socket0", "hbm0", rate(25e9), rate(25e9), "pcie"),
               Link("m2", "ssd0", "socket0", fast, fast, "pcie")],
    )  # fmt: skip


def blocks(count: int, size: int, topology: Topology) -> Question:
    model = stated_model("stated", [Blocks(count, size, 1.0)], 0)
    return Question(model, topology, Workload("decode", 1, 1), STATED, "f16")


def test_three_tiers():
    """W44: 300 GB over three tiers: the drive's 92 GB bind, 92/7 s; a GB of host memory is worth 1/7 s."""
    found = found_for(blocks(75, 4 * GB, three_tiers()), overlap=Overlap("buffers", 1))
    assert found.any_plan.seconds == pytest.approx(float(Fraction(92, 7)), rel=1e-12)
    worth = {price.name: price.worth for price in found.any_plan.prices if price.kind == "room"}
    assert worth["dram0"] * GB == pytest.approx(1 / 7, rel=1e-9)
    assert worth["hbm0"] * GB == pytest.approx(1 / 7, rel=1e-9)
    rates = {price.name: price.worth for price in found.any_plan.prices if price.kind == "rate"}
    assert rates["ssd0.read"] == pytest.approx(92 / 7 / 7e9, rel=1e-9)
    # Layers of 4 GB: a buffer takes the place of one of 20, and of one of 32, where copies from the drive pass.
    assert found.best.counts == ((19, 31, 25), ())
    assert found.best.floor == pytest.approx(100 / 7, rel=1e-12)


def test_buffers_take_the_place_of_layers():
    """W45: of 32 layers 10 fit; two buffers take the place of two: 8 stay, 24 are streamed."""
    topology = three_tiers()
    hbm = Memory("hbm0", "hbm", 10 * GB, rate(1e18))
    topology = Topology.build(
        name="small", memories=[hbm, topology.memories["dram0"]], processors=list(topology.processors.values()),
        switches=[Switch("socket0")], links=[topology.links["pcie0"]])  # fmt: skip
    found = found_for(blocks(32, GB, topology), overlap=Overlap("buffers", 2))
    assert found.best.counts == ((8, 24), ())


# Servers that people have.


@pytest.mark.slow
def test_a_large_mixture_has_its_experts_on_the_sockets():
    """A 671 B mixture on two sockets and a GPU: more than twice as fast as layers on the GPU first."""
    plan, topology = plan_from_words("deepseek-v3:q4_k_m", "dual-xeon-4090")
    found = best_of(plan_question(plan, topology), compile_step(topology, plan), LATENCY)
    best = found.placing.best
    assert found.placing.proved and found.like
    assert best.seconds < found.compared.seconds / 2
    assert best.counts[0] == (61, 0) and best.family.parts == ("hbm0", "dram0..1")
    assert found.placing.any_plan.seconds <= found.placing.floors.seconds <= best.floor
    assert found.placing.expected.seconds <= best.seconds
    assert found.regret(best.floor) < found.regret(found.compared.floor)


def test_a_dense_model_on_a_desktop():
    """Llama-3.1-70B: KV in host memory makes room for one layer more than filling the GPU with layers and their KV."""
    plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090")
    found = best_of(plan_question(plan, topology), compile_step(topology, plan), LATENCY)
    best = found.placing.best
    assert found.placing.proved and best.seconds < found.compared.seconds
    assert best.placement.kv == "dram0" and best.counts[0][0] == 45
    assert len(found.placing.of_families) > 1


def test_a_model_that_fits_stays_on_the_gpu():
    plan, topology = plan_from_words("llama-3.1-8b:q8_0", "desktop-4090")
    found = best_of(plan_question(plan, topology), compile_step(topology, plan), LATENCY)
    assert found.placing.best.counts[0] == (32, 0, 0)
    assert found.placing.best.seconds == found.compared.seconds


@pytest.mark.slow
def test_throughput_takes_the_batch_that_gives_most():
    """A batch between powers of two is tried too, and no batch that was tried gives more."""
    plan, topology = plan_from_words("llama-3.2-1b:q8_0", "desktop-4090", context=32768)
    step = compile_step(topology, plan)
    found = best_of(plan_question(plan, topology), step, Objective("throughput"), powers_of_two()[:5])
    best = found.placing.best
    assert best.question.workload.batch > 1 and not found.like
    assert best.tokens_per_s > step.plan.tokens / found.compared.seconds
    for batch in found.placing.batches:
        asked = plan_from_words("llama-3.2-1b:q8_0", "desktop-4090", context=32768, batch=batch)[0]
        some = families(asked.origin[0], topology, asked.origin[2], "q8_0")
        one = place(plan_question(asked, topology), some, LATENCY, bounds=False)
        assert one.best is None or one.best.tokens_per_s <= best.tokens_per_s * (1 + 1e-12)


def test_an_early_end_is_told():
    question = next(one for one in map(instance, range(60)) if found_for(one).evaluated > 30)
    found = found_for(question, most=3)
    assert not found.proved and found.unseen is not None and found.evaluated <= 3 + 5 * 6 * 4


def test_two_gpus_in_turn():
    """On two GPUs that each hold half of the blocks, layers in turn are among what is found."""
    topology = box(gpus=2, capacity=20 * GB)
    question = blocks(10, 3 * GB, topology)
    some = [one for one in families(question.model, topology, BARE, STATED) if "in turn" in one.name]
    found = place(question, some, LATENCY, bounds=False)
    assert len(some) == 1 and found.best.counts[0][:2] in {(4, 6), (5, 5), (6, 4)}


# Parts.


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 19, 20, 21, 80, 99, 100, 101, 109, 110, 126, 199, 200, 256])
def test_patterns_of_first_layers(count: int):
    import re

    pattern = re.compile(feed_forward_of(count))
    hit = [number for number in range(300) if pattern.search(f"blk.{number}.ffn_up.weight")]
    assert hit == list(range(count))
    assert first_numbers(count).startswith("(")


def test_counts_are_all_there_are():
    assert list(shared_out(2, 2)) == [(2, 0), (1, 1), (0, 2)]
    assert len(list(shared_out(5, 3))) == 21


def test_more_gpus_follow_each_other_with_as_many_layers_each():
    """Four GPUs that each hold a quarter: the family has one placement for each number of layers that are on them."""
    topology = box(gpus=4, capacity=20 * GB)
    question = blocks(10, 3 * GB, topology)
    some = [one for one in families(question.model, topology, BARE, STATED) if "in turn" in one.name]
    every = [counts for counts, _ in some[0].counts(10)]
    assert len(some) == 1 and len(every) == 11 and every[0][:4] == (3, 3, 2, 2) and every[-1][:4] == (0, 0, 0, 0)
    found = place(question, some, LATENCY, bounds=False)
    assert found.best.counts[0][:4] == (3, 3, 2, 2)


@pytest.mark.slow
def test_a_second_drive_helps_a_model_that_is_larger_than_memory():
    """Half of what lies on drives is on each of two: the link binds in place of the one drive."""
    one = three_tiers()
    two = Topology.build(
        name="two", memories=[*one.memories.values(), Memory("ssd1", "nvme", None, read=rate(7e9), write=rate(7e9))],
        processors=list(one.processors.values()), switches=[Switch("socket0")],
        links=[*one.links.values(), Link("m3", "ssd1", "socket0", rate(1e18), rate(1e18), "pcie")])  # fmt: skip
    best = [found_for(blocks(75, 4 * GB, server), overlap=Overlap("buffers", 1), most=40) for server in (one, two)]
    assert best[0].best.floor == pytest.approx(100 / 7, rel=1e-9)
    assert best[1].best.floor == pytest.approx(56 * 4 / 25, rel=1e-9)  # 19 of 75 layers stay
    assert best[1].any_plan.seconds == pytest.approx(220 / 25, rel=1e-9)  # 300 GB less 80


def test_kv_of_some_layers_in_host_memory():
    """A long context on a model that fits: some layers' KV goes, as far as it must."""
    plan, topology = plan_from_words("llama-3.1-8b:q8_0", "desktop-4090", context=131072)
    question = plan_question(plan, topology)
    some = [one for one in families(question.model, topology, plan.origin[2], "q8_0") if one.keys]
    best = place(question, some, LATENCY, bounds=False).best
    near, away = best.counts[1]
    assert away and near + away == 32 and best.placement.kv[1][0] == "dram0"
    fuller = question.step(best.family.placed((32,), (near + 1, away - 1)), best.overlap)
    assert sum(fuller.occupied["hbm0"].values()) > topology.memories["hbm0"].capacity


@pytest.mark.slow
def test_what_was_not_looked_at_may_be_better_by_little():
    """The prompt of a large model: many placements tie, and the search says how near the best one is."""
    plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", prompt=2048)
    some = families(plan.origin[0], topology, plan.origin[2], "q4_k_m")
    found = place(plan_question(plan, topology), some, LATENCY, bounds=False)
    assert not found.proved and 0 < found.left < 1e-3 and found.evaluated < 100
    assert found.unseen == pytest.approx(found.best.seconds * (1 - found.left))
