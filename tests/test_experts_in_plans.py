"""Experts in plans: routing, caches, prefetch, sockets, hand-overs, each against worked figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import load_topology
from offload.bounds import floor
from offload.breakeven import hit_rate_needed
from offload.compiler import compile_step
from offload.designs import Cost, ExpertCache, Experts, Placement, Portion, Routing, Workload, plan_model
from offload.designs.routing import touched
from offload.documents import read_setting
from offload.documents.server_settings import change_topology
from offload.errors import DocumentError, OffloadError, PlanError
from offload.models import catalogue, weigh
from offload.models.architecture import Layer, Matrix, Model
from offload.models.cache import Cache
from offload.models.experts import lru_cache_of_experts, static_cache
from offload.plan import Compute, GivenTime, Transfer
from offload.schedules import schedule, serial
from offload.step import loads
from offload.topology import Interval, Link, Memory, Processor, Rate, Topology
from offload.words import plan_from_words
from tests.boxes import box, check_ladder
from tests.boxes import plan_of as plan_in_file
from tests.runs import examples
from tests.worked_numbers import BY_ID as CASES

REST = Portion("rest")
GPU = Placement((("hbm0", REST),))


def tasks(plan):
    return [(block, task) for block in plan.blocks for task in block.tasks]


def mixture(experts, used, layers=1, rows=1000, row=1000, attention=1000):
    """A model of layers with experts of one matrix each, an attention of one matrix, and no KV cache."""
    layer = Layer(
        (Matrix("attn_q", None, attention, row), Matrix("ffn_up", None, rows, row, experts, used)),
        Cache("none"), feed_forward="experts", heads=1,
    )  # fmt: skip
    return Model("small", "test", layers, 1, 1, 1, 1, 1, 1, tied=True, stack=(layer,) * layers)


def moved(plan, start="fetch experts"):
    """Expected bytes of a step's fetches whose names begin so."""
    total = 0
    for block, task in tasks(plan):
        if isinstance(task, Transfer) and task.name.startswith(start):
            size = plan.tensors[task.tensor].bytes if task.bytes is None else task.bytes
            total += block.repeat * size
    return total


def fetched(model, batch, experts, topology=None):
    workload = Workload(batch=batch, context=1)
    placement = Placement((("hbm0", REST),), experts=experts)
    return plan_model(model, topology or box(gpus=1), workload, placement, weights="bf16")


def on_demand(**more):
    return Experts((("dram0", REST),), "gpu0", "on_demand", **more)


# --- worked examples ---


@pytest.mark.parametrize("case", ["W46", "W47"])
def test_distinct_experts_of_a_plan(case):
    given_, expected = CASES[case]["inputs"], CASES[case]["expected"]
    plan = fetched(mixture(given_["experts"], given_["topk"]), given_["tokens"], on_demand())
    assert moved(plan) / 2e6 == pytest.approx(expected["mean"], rel=1e-12)
    tensor = next(tensor for tensor in plan.tensors.values() if tensor.what == "experts")
    assert tensor.least == expected["lower"] * 2_000_000 and tensor.stored == given_["experts"] * 2_000_000


def test_a_cache_spares_bytes_by_other_than_activations():
    """W48: of four experts by chances the first is kept; 48 % of activations are hits, and 37 % of bytes."""
    given_, expected = CASES["W48"]["inputs"], CASES["W48"]["expected"]
    routing = Routing("chances", chances=tuple(given_["inclusion"]))
    cache = ExpertCache("hbm0", given_["cached_top"])
    plan = fetched(mixture(4, 1), given_["tokens"], on_demand(routing=routing, cache=cache))
    assert moved(plan) / 2e6 == pytest.approx(expected["mean_misses_static_cache"], rel=1e-12)
    read = {tensor.what: tensor for tensor in plan.tensors.values()}
    assert (read["experts"].bytes + read["experts, cached"].bytes) / 2e6 == pytest.approx(expected["mean_distinct"])
    assert "serves 48 % of activations and spares 37.14 % of bytes" in " ".join(plan.assumptions)
    uniform = fetched(mixture(4, 1), given_["tokens"], on_demand())
    assert moved(uniform) / 2e6 == pytest.approx(expected["mean_distinct_if_uniform"], rel=1e-12)


def test_zipf_draws_without_replacement():
    """W49: two of four experts by weights 12, 6, 4, 3; a cache of m misses those of the others' chances."""
    chances = CASES["W49"]["expected"]["inclusion"]
    for kept in range(4):
        cache = ExpertCache("hbm0", kept) if kept else None
        plan = fetched(mixture(4, 2), 1, on_demand(routing=Routing("zipf", 1.0), cache=cache))
        assert moved(plan) / 2e6 == pytest.approx(sum(chances[kept:]), rel=1e-12)


def test_expert_streaming_of_a_decode_step():
    """W74: 58 layers of 256 experts of 44,040,192 bytes, 64 of them cached, 32 tokens, a link of 55 GB/s."""
    given_, expected = CASES["W74"]["inputs"], CASES["W74"]["expected"]
    model = mixture(given_["experts"], given_["topk"], given_["layers"], rows=2048, row=10752)
    server = box(gpus=1, pcie=given_["link_bw"])
    cache = ExpertCache("hbm0", given_["cached_per_layer"])
    plan = fetched(model, given_["tokens"], on_demand(cache=cache), server)
    assert moved(plan) == pytest.approx(expected["mean_bytes"], rel=1e-12)
    assert moved(plan) / 58 / given_["expert_bytes"] == pytest.approx(expected["mean_misses_per_layer"], rel=1e-12)
    link = loads(compile_step(server, plan), least=False)["pcie0.hbm0"] - 2 * given_["tokens"]  # the embedding rows
    assert link / given_["link_bw"] == pytest.approx(expected["link_time_at_mean"], rel=1e-12)


def serial_box():
    """A GPU and a drive that it reads directly: 1 for a million FLOP, 4 for what two experts of 1,000,000 have."""
    def rate(value):
        return Rate(peak=float(value), sustained={"": Interval.exact(value)})

    return Topology.build(
        name="box", title="box",
        memories=[Memory("hbm0", "hbm", None, rate(1e30)), Memory("ssd0", "nvme", None, read=rate(1e30),
                                                                 write=rate(1e30))],
        processors=[Processor("gpu0", "gpu", "hbm0", {"bf16": rate(4e12)}, direct_storage=True)],
        switches=[], links=[Link("bus", "ssd0", "hbm0", rate(1e12), rate(1e12), "pcie")],
    )  # fmt: skip


@pytest.mark.parametrize(("case", "prefetch"), [("W72", None), ("W73", 1.0)])
def test_a_fetch_waits_for_its_router_or_is_foreseen(case, prefetch):
    """W72, W73: attention 1, fetch 4, experts 1, twice; the head is 1e-12 of that."""
    # attention: 2e12 weights, 4e12 FLOP at 4e12/s; two of four experts of 1e12 weights each: the same, in 4e12 bytes
    model = mixture(4, 2, layers=2, rows=10**6, row=10**6, attention=2 * 10**6)
    experts = Experts((("ssd0", REST),), "gpu0", "on_demand", prefetch=prefetch)
    plan = plan_model(model, serial_box(), Workload(context=1), replace(GPU, experts=experts), weights="bf16")
    step = compile_step(serial_box(), plan)
    expected = CASES[case]["expected"]
    assert schedule(step).cold_seconds == pytest.approx(expected["sim_makespan"], rel=1e-9)
    assert serial(step).seconds == pytest.approx(expected["sum_solo"], rel=1e-9)
    assert loads(step, least=False)["bus.hbm0"] / 1e12 == pytest.approx(expected["load_bound"], rel=1e-9)


# --- counts ---


@pytest.mark.parametrize("routing", [Routing("zipf", 0.8), Routing("zipf", 2.0), Routing()])
@pytest.mark.parametrize("tokens", [1, 7, np.array([1, 3, 50])])
def test_counts_are_those_of_the_formulas(routing, tokens):
    chances = routing.inclusion(16, 4)
    for slots in (1, 4, 9, 16):
        kept = touched(routing, ExpertCache("hbm0", slots), slots, 16, 4, tokens)
        formula = static_cache(chances, tokens, slots)
        assert np.allclose(kept.misses, formula.misses, rtol=1e-12, atol=1e-12)
        assert np.allclose(kept.distinct, formula.distinct, rtol=1e-12)
        assert kept.activation_hit == pytest.approx(formula.activation_hit, rel=1e-12)
        assert (kept.surely_missed, kept.surely_hit) == (max(0, 4 - slots), max(0, 4 - (16 - slots)))
        if slots < 16:
            recent = touched(routing, ExpertCache("hbm0", slots, policy="lru"), slots, 16, 4, tokens)
            formula = lru_cache_of_experts(chances, tokens, slots)
            assert np.allclose(recent.misses, formula.misses, rtol=1e-9)
            assert np.all(recent.misses >= kept.misses * (1 - 1e-9))


def test_any_number_of_tokens_is_counted():
    for routing in (Routing(), Routing("zipf", 1.0)):
        assert routing.distinct(64, 4, 10**15) == pytest.approx(64, rel=1e-12)


@given(st.integers(1, 64), st.floats(0, 2), st.integers(1, 64), st.sampled_from(["static", "lru"]))
@settings(max_examples=60, deadline=None)
def test_no_cache_misses_less_than_is_certain(slots, exponent, tokens, policy):
    one = touched(Routing("zipf", exponent), ExpertCache("hbm0", slots, policy=policy), slots, 64, 6, tokens)
    assert one.surely_missed <= one.misses * (1 + 1e-9) <= one.distinct * (1 + 1e-8)
    assert one.surely_hit <= one.distinct - one.misses + 1e-9
    assert one.distinct <= touched(Routing(), None, 0, 64, 6, tokens).distinct * (1 + 1e-12)


# --- caches and prefetch ---


def test_floors_count_what_no_cache_can_spare():
    """Eight of 32 experts: with six cached two are surely fetched, with eight none."""
    for slots, sure in ((6, 2), (8, 0)):
        for batch in (1, 5):
            experts = on_demand(cache=ExpertCache("hbm0", slots))
            step = compile_step(box(gpus=1), fetched(mixture(32, 8), batch, experts))
            assert loads(step, least=True)["pcie0.hbm0"] == 2 + sure * 2_000_000  # one row of the embedding
            distinct = 32 * (1 - 0.75**batch)
            assert loads(step, least=False)["pcie0.hbm0"] - 2 * batch == pytest.approx(
                distinct * (32 - slots) / 32 * 2e6, rel=1e-12)
            assert step.occupied["hbm0"]["experts, cached"] == slots * 2_000_000
            assert step.occupied["dram0"]["experts"] == 32 * 2_000_000


def test_a_fetch_on_demand_is_certain_for_one_token_alone():
    step = compile_step(box(gpus=1), fetched(mixture(32, 8), 5, on_demand()))
    assert loads(step, least=True)["pcie0.hbm0"] == 2 + 8 * 2_000_000 < loads(step, least=False)["pcie0.hbm0"]


@pytest.mark.parametrize("accuracy", [0.0, 0.8, 1.0])
def test_wrong_guesses_cross_the_link_too(accuracy):
    """Of D experts D are fetched ahead, and (1 - a) D again, of which no guess has less right than D of all E."""
    plan = fetched(mixture(32, 8), 1, on_demand(prefetch=accuracy))
    step = compile_step(box(gpus=1), plan)
    right = max(accuracy, 8 / 32)
    assert loads(step, least=False)["pcie0.hbm0"] - 2 == pytest.approx((2 - right) * 8 * 2e6, rel=1e-12)
    assert loads(step, least=True)["pcie0.hbm0"] == 2 + 8 * 2_000_000
    read = sum(plan.tensors[name].bytes for _, task in tasks(plan) if isinstance(task, Compute) for name in task.reads
               if plan.tensors[name].what.startswith("experts"))  # fmt: skip
    assert read == pytest.approx(8 * 2e6, rel=1e-12)
    assert step.occupied["dram0"]["experts" if accuracy < 1 else "experts, ahead"] == 32 * 2_000_000


def test_a_given_rate_and_its_inverse():
    """A hit rate for a target, as a plan: the link then takes just that long."""
    server = box(gpus=1)
    whole = moved(fetched(mixture(128, 8, 10), 1, on_demand()))
    needed = hit_rate_needed(whole, 20e9, 2e-3)
    plan = fetched(mixture(128, 8, 10), 1, on_demand(cache=ExpertCache("hbm0", 64, hit=needed)))
    assert moved(plan) / 20e9 == pytest.approx(2e-3, rel=1e-12) and 0 < needed < 1
    assert loads(compile_step(server, plan), least=True)["pcie0.hbm0"] == 2


def test_a_batch_finds_no_more_than_the_cache_holds():
    """90 % of the 31.9 experts that 20 tokens touch would be 28.7; 12 are there, and the plan says so."""
    plan = fetched(mixture(32, 8), 20, on_demand(cache=ExpertCache("hbm0", 12, hit=0.9)))
    assert moved(plan) == pytest.approx((32 * (1 - 0.75**20) - 12) * 2e6, rel=1e-12)
    assert any("no more than 37.62 % of those touched can be there, and not the 90 %" in note
               for note in plan.assumptions)  # fmt: skip


def test_a_cache_of_bytes_has_whole_experts_in_each_layer():
    for size, slots in ((2_000_000 * 30, 3), (2_000_000 * 39, 3), (2_000_000 * 40, 4)):
        plan = fetched(mixture(32, 8, 10), 1, on_demand(cache=ExpertCache("hbm0", bytes=size)))
        assert compile_step(box(gpus=1), plan).occupied["hbm0"]["experts, cached"] == slots * 2_000_000 * 10


def test_a_cache_in_host_memory_before_a_drive():
    """Hits come from the host, misses from the drive; both cross the GPU's link once."""
    experts = Experts((("ssd0", REST),), "gpu0", "on_demand", cache=ExpertCache("dram0", 16))
    there = loads(compile_step(box(gpus=1), fetched(mixture(32, 8), 1, experts)), least=False)
    assert there["ssd0.read"] == 4 * 2_000_000 and there["pcie0.hbm0"] == 2 + 8 * 2_000_000


def test_copies_bring_what_the_cache_does_not_hold():
    experts = Experts((("dram0", REST),), "gpu0", "copy", cache=ExpertCache("hbm0", 8))
    plan = fetched(mixture(32, 8), 1, experts)
    assert moved(plan) == 24 * 2_000_000
    assert any("brings all of its experts" in note and "48 MB each step of which 12 MB are read" in note
               for note in plan.assumptions)  # fmt: skip


@pytest.mark.parametrize(
    ("experts", "said"),
    [
        (on_demand(cache=ExpertCache("hbm0", 33)), "33 is more than the 32 experts"),
        (on_demand(cache=ExpertCache("hbm0", 4, hit=0.9)),
         "90 % of the 8 experts of a token .* holds 4 of a layer. .*50%"),
        (on_demand(cache=ExpertCache("hbm0", bytes=1000)), "one expert of each of the 1 layers .* takes 2 MB"),
        (on_demand(cache=ExpertCache("hbm0", bytes=10**9)), "holds all 32 experts"),
        (Experts((("dram0", REST),), cache=ExpertCache("hbm0", 4)), "no expert is fetched here"),
        (Experts((("hbm0", REST),), prefetch=0.5), "placement.experts.prefetch: no expert is fetched here"),
        (on_demand(routing=Routing("chances", chances=(0.5, 0.5))), "2 chances are given, and a layer has 32"),
        (on_demand(routing=Routing("chances", chances=(0.5,) * 32)), "sum to 16, and a token goes through 8"),
    ],
)
def test_what_cannot_be_is_refused(experts, said):
    with pytest.raises(PlanError, match=said):
        fetched(mixture(32, 8), 1, experts)


def test_a_model_without_experts_has_none_to_place():
    with pytest.raises(PlanError, match="llama-3.1-8b has no experts"):
        plan_model(catalogue["llama-3.1-8b"], box(gpus=1), Workload(), replace(GPU, experts=on_demand()),
                   weights="q8_0")


@pytest.mark.slow
@given(st.integers(1, 100), st.sampled_from(["static", "lru"]), st.sampled_from([None, 0.0, 0.7, 1.0]),
       st.sampled_from([Routing(), Routing("zipf", 0.7), Routing("zipf", 1.5)]), st.integers(1, 40),
       st.integers(0, 40), st.booleans(), st.sampled_from(["dram0", "ssd0"]))  # fmt: skip
@examples(12, 40)
def test_ladders_of_caches_and_prefetch(slots, policy, prefetch, routing, batch, near, long, home):
    topology = load_topology("desktop-4090")
    cache = None if slots > 90 else ExpertCache("dram0" if home == "ssd0" and long else "hbm0", slots, policy=policy)
    experts = Experts((("hbm0", Portion("layers", near)), (home, REST)), "gpu0", "on_demand", routing, cache, prefetch)
    workload = Workload("prefill", batch, 0, prompt=40) if long else Workload(batch=batch, context=900)
    plan = plan_model(catalogue["qwen3-30b-a3b"], topology, workload, replace(GPU, experts=experts), weights="q4_k_m")
    check_ladder(compile_step(topology, plan))


# --- sockets ---


@pytest.mark.parametrize(("numa", "over", "held"), [("", 0, 1), ("local", 0, 1), ("interleave", 1, 1),
                                                     ("duplicate", 0, 2)])  # fmt: skip
def test_policies_of_two_sockets(numa, over, held):
    """Two of four experts of 2 MB: each socket's memory gives half; in turn over both, a quarter crosses each way."""
    server = box(gpus=1, sockets=2)
    experts = Experts((("dram0..1", REST),), "cpu0..1", "copy", numa=numa)
    step = compile_step(server, fetched(mixture(4, 2), 1, experts, server))
    there, rows = loads(step, least=False), 2
    assert there["dram0"] == pytest.approx(2e6, abs=20) and there["dram1"] == pytest.approx(2e6, abs=20)
    for way in ("upi.socket0", "upi.socket1"):
        assert there[way] == pytest.approx(over * 1e6, abs=5 * rows)
        assert loads(step, least=True)[way] <= 5 * rows  # a kernel might find all of its pages near
    stored = {name: step.occupied[name]["experts"] for name in ("dram0", "dram1")}
    assert stored == {"dram0": held * 4_000_000, "dram1": held * 4_000_000}
    check_ladder(step)


def test_policies_hold_for_layers_too():
    server = box(gpus=1, sockets=2)
    model = catalogue["llama-3.2-1b"]
    found = {}
    for numa in ("local", "interleave", "duplicate"):
        placement = Placement((("dram0..1", REST),), numa=numa)
        step = compile_step(server, plan_model(model, server, Workload(), placement, weights="bf16"))
        found[numa] = (loads(step, least=False)["upi.socket1"], step.occupied["dram1"]["layer weights"])
        check_ladder(step)
    layers = sum(weigh(model, "bf16").layers)
    assert found["interleave"][0] - found["local"][0] == pytest.approx(layers / 4, rel=1e-9)
    assert found["duplicate"][0] == found["local"][0] and found["duplicate"][1] == 2 * found["local"][1] == layers


@pytest.mark.parametrize("placed", [{"numa": "interleave"}, {"experts": Experts((("dram0", REST),), numa="duplicate")},
                                    {"experts": Experts((("dram0..1", REST),), "gpu0", numa="interleave")}])
def test_policies_without_sockets_are_refused(placed):
    with pytest.raises(PlanError, match="numa: .* is a policy of weights in the memories of several sockets"):
        plan_model(mixture(4, 2), box(gpus=1, sockets=2), Workload(), replace(GPU, **placed), weights="bf16")


# --- hand-overs ---


def test_each_hand_over_costs():
    """Experts of 24 of 48 layers on the CPU: there and back is 48 hand-overs of 10 us; none of it is in a floor."""
    topology = load_topology("desktop-4090")
    experts = Experts((("hbm0", REST), ("dram0", Portion("layers", 24))))
    plain, costly = (compile_step(topology, plan_model(
        catalogue["qwen3-30b-a3b"], topology, Workload(), replace(GPU, experts=experts, costs=costs), weights="q8_0"))
        for costs in ((), (Cost("sync", "hand-over", GivenTime(1e-5, 1e-5, 1e-5)),)))  # fmt: skip
    assert schedule(costly).seconds - schedule(plain).seconds == pytest.approx(48e-5, rel=1e-6)
    assert floor(costly).seconds == floor(plain).seconds


def test_a_layer_in_one_place_hands_nothing_over():
    topology = load_topology("desktop-4090")
    plan = plan_model(catalogue["llama-3.1-8b"], topology, Workload(), replace(
        GPU, costs=(Cost("sync", "hand-over", GivenTime(1e-5, 1e-5, 1e-5)),)), weights="q8_0")  # fmt: skip
    assert not [task for _, task in tasks(plan) if task.name.startswith("sync")]


# --- words and files ---


def test_experts_on_the_cpu_in_words():
    said, topology = plan_from_words("qwen3-30b-a3b:q8_0", "desktop-4090", cpu_experts=24)
    experts = Experts((("hbm0", REST), ("dram0", Portion("layers", 24))))
    plan = plan_model(catalogue["qwen3-30b-a3b"], topology, Workload(), replace(GPU, experts=experts), weights="q8_0")
    assert loads(compile_step(topology, said), least=False) == loads(compile_step(topology, plan), least=False)
    none, _ = plan_from_words("qwen3-30b-a3b:q4_k_m", "desktop-4090", cpu_experts=0)
    assert not [tensor for tensor in none.tensors.values() if tensor.what == "experts"]
    less, _ = plan_from_words("qwen3-30b-a3b:q8_0", "desktop-4090", cpu_experts=10, gpu_layers=20)
    assert compile_step(topology, less).occupied["hbm0"]["layer weights"] < 21 * said.origin[0].stack[0].parameters * 2


@pytest.mark.parametrize(("words", "said"), [
    ({"target": "llama-3.1-8b:q8_0", "topology": "desktop-4090", "cpu_experts": 2}, "no experts that a router chooses"),
    ({"target": "qwen3-30b-a3b:q8_0", "topology": "desktop-4090", "cpu_experts": 49}, "has 48 layers"),
    ({"target": "qwen3-30b-a3b:q8_0", "topology": "dgx-spark", "cpu_experts": 2, "compute": "cpu0"},
     "all layers live in unified0 and run on cpu0, their experts too"),
    ({"target": "qwen3-30b-a3b:q8_0", "topology": "dgx-spark", "cpu_experts": 49}, "has 48 layers"),
])  # fmt: skip
def test_words_that_cannot_be(words, said):
    with pytest.raises(OffloadError, match=said):
        plan_from_words(**words)


@pytest.mark.parametrize("server", ["dgx-spark", "mac-studio-m3-ultra", "strix-halo-mini-pc"])
def test_where_cpu_and_gpu_share_one_memory_the_option_changes_nothing_and_says_so(server):
    plain, topology = plan_from_words("qwen3-30b-a3b:q8_0", server)
    assert not [note for note in plain.assumptions if "--cpu-experts" in note]
    for count in (2, 48):
        made, _ = plan_from_words("qwen3-30b-a3b:q8_0", server, cpu_experts=count)
        one, other = (compile_step(topology, plan) for plan in (made, plain))
        assert loads(one, least=False) == loads(other, least=False) and one.occupied == other.occupied
        more = [note for note in made.assumptions if note not in plain.assumptions]
        assert len(more) == 1
        assert more[0].startswith(f"--cpu-experts {count} changes nothing here: unified0 holds all weights")
    zero, _ = plan_from_words("qwen3-30b-a3b:q8_0", server, cpu_experts=0)
    assert zero.assumptions == plain.assumptions


def test_without_any_host_memory_experts_cannot_be_in_it(tmp_path):
    path = tmp_path / "bare.yaml"
    path.write_text("memories: {hbm0: {kind: hbm, capacity: 80 GiB, rate: {peak: 3 TB/s, sustained: 2 TB/s}}}\n"
                    "processors: {gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 100 TFLOP/s}}}\n", encoding="utf-8")
    with pytest.raises(OffloadError, match="--cpu-experts 2: bare has no host memory"):
        plan_from_words("qwen3-30b-a3b:q8_0", str(path), cpu_experts=2)


@pytest.mark.parametrize(("count", "told"), [
    (1, "1 layer counted from the first; 1 of them is dense: the experts of 0 of 58 layers with experts"),
    (58, "58 layers counted from the first; 3 of them are dense: the experts of 55 of 58 layers with experts; of all "
         "with --cpu-experts 61"),
    (60, "60 layers counted from the first; 3 of them are dense: the experts of 57 of 58"),
    (61, None),
])  # fmt: skip
def test_dense_layers_that_are_counted_are_told(count, told):
    server = change_topology(load_topology("gh200"), [read_setting("hbm0.capacity=1000 GB")])
    plan, _ = plan_from_words("deepseek-v3:q4_k_m", server, cpu_experts=count)
    notes = [note for note in plan.assumptions if note.startswith("--cpu-experts")]
    assert [note.startswith(f"--cpu-experts {count}: {told}") for note in notes] == ([True] if told else [])
    held = compile_step(server, plan).occupied["dram0"].get("experts", 0)
    assert bool(held) is (count > 3)


FILE = """model: {name: qwen3-30b-a3b, weights: q8_0}
placement:
  weights: {hbm0: rest}
"""


def test_a_file_says_it_all(tmp_path):
    plan = plan_in_file(tmp_path, FILE + """  experts:
    home: dram0
    compute: gpu0
    cache: {memory: hbm0, bytes: 8 GB, hit: {zipf: 1.2}, policy: lru}
    prefetch: {accuracy: 75%}
  tensors: {'blk\\.(1[0-9])\\.ffn_up_exps': hbm0}
costs: {sync: {each: hand-over, time: 5 us}}
""", box(gpus=1))
    experts = plan.origin[2].experts
    assert experts.cache == ExpertCache("hbm0", bytes=8 * 10**9, policy="lru") and experts.prefetch == 0.75
    assert experts.routing == Routing("zipf", 1.2) and experts.access == "on_demand"
    assert plan.origin[2].tensors == ((r"blk\.(1[0-9])\.ffn_up_exps", "hbm0"),)
    assert any("10 tensors" in note for note in plan.assumptions)


@pytest.mark.parametrize(
    ("below", "place", "said"),
    [
        ("experts: {home: dram0, cache: {memory: hbm0}}", "placement.experts.cache", "needs its size"),
        ("experts: {home: dram0, compute: gpu0, cache: {memory: hbm0, experts: 4, bytes: 1 GB}}",
         "placement.experts.cache", "one of the two"),
        ("experts: {home: dram0, compute: gpu0, cache: {memory: gpu0, experts: 4}}", "placement.experts.cache.memory",
         '"gpu0" is a processor'),
        ("experts: {home: dram0, compute: gpu0, cache: {memory: hbm0, experts: 9, hit: 90}}",
         "placement.experts.cache.hit", 'Write a percentage, as 90%'),
        ("experts: {home: dram0, compute: gpu0, cache: {memory: hbm0, experts: 9, hit: 50%, policy: lru}}",
         "placement.experts.cache", "changes nothing"),
        ("experts: {home: dram0, compute: gpu0, routing: {zipf: 1}, cache: {memory: hbm0, experts: 9, hit: uniform}}",
         "placement.experts.cache.hit", "which differs"),
        ("experts: {home: dram0, compute: gpu0, cache: {memory: hbm0, experts: 4, hit: 90%}}",
         "placement.experts.cache.hit", "the cache holds 4 of a layer"),
        ("experts: {home: dram0, compute: gpu0, cache: {memory: hbm0, experts: 999}}",
         "placement.experts.cache.experts", "more than the 128 experts"),
        ("experts: {home: dram0, compute: gpu0, access: copy, prefetch: {accuracy: 80%}}", "placement.experts.prefetch",
         "all experts are fetched anyway"),
        ("experts: {home: dram0, compute: gpu0, prefetch: {accuracy: 180%}}", "placement.experts.prefetch.accuracy",
         "%"),
        ("experts: {home: dram0, prefetch: {accuracy: 80%}}", "placement.experts.prefetch",
         "no expert is fetched here"),
        ("experts: {home: dram0, routing: {zipf: -1}}", "placement.experts.routing", "exponent s"),
        ("experts: {home: dram0, routing: {chances: [0.5, 1.5]}}", "placement.experts.routing", "1.5 is no chance"),
        ("experts: {home: dram0, routing: {chances: [0.5, 0.5]}}", "placement.experts.routing", "2 chances are given"),
        ("experts: {home: dram0, routing: skewed}", "placement.experts.routing", 'not "skewed"'),
        ("experts: {}", "placement.experts", "says nothing of the experts"),
        ("experts: {home: dram0, numa: interleave}", "placement.experts.numa", "several sockets"),
        ("numa: sideways", "placement.numa", "interleave"),
        ("tensors: {exps: gpu0}", "placement.tensors.exps", '"gpu0" is a processor'),
        ("tensors: {nothing: dram0}", "placement.tensors.nothing", "matches no tensor"),
        ("tensors: {exps: dram0, ffn_up_exps: hbm0}", "placement.tensors.ffn_up_exps", 'matched before, as by "exps"'),
        ("tensors: {'(a+)+': dram0}", "placement.tensors.(a+)+", "repeats too much"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say(tmp_path, below, place, said):
    with pytest.raises(DocumentError) as caught:
        plan_in_file(tmp_path, f"{FILE}  {below}\n", box(gpus=1))
    wrong = str(caught.value)
    assert place in wrong and said in wrong and "line 0" not in wrong and len(caught.value.mistakes) == 1
