"""KV in plans: by layers, by shares and on drives, attention where it is, blocks, cached prefixes, hand-overs."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import evaluate, load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import KvBlock, Placement, Portion, Workload, plan_model
from offload.designs.kv import served_by
from offload.errors import OffloadError, PlanError
from offload.models import Cache, Layer, Matrix, Model, catalogue
from offload.plan import Compute, GivenTime, Transfer
from offload.schedules import schedule, serial
from offload.step import loads
from tests.boxes import GB, box, plan_of
from tests.worked_numbers import BY_ID as CASES

REST = Portion("rest")
LLAMA = catalogue["llama-3.1-70b"]  # 80 layers, 64 heads, 8 KV heads of 128: 4,096 B a position and layer
ROW = 4096


@pytest.fixture(scope="module")
def desktop():
    return load_topology("desktop-4090")


def planned(topology, kv="with layer", *, model=LLAMA, weights="q4_k_m", workload=None, at="hbm0", **placed):
    kv = kv if isinstance(kv, str) else tuple(kv.items())
    placement = Placement(((at, REST),), kv=kv, **placed)
    return plan_model(model, topology, workload or Workload(context=4096), placement, weights=weights)


def tasks(plan):
    return [(block, task) for block in plan.blocks for task in block.tasks]


def touched(plan, what, home):
    """Bytes of a kind that computes read or moves bring from a memory in a step."""
    total = 0
    for block, task in tasks(plan):
        names = task.reads if isinstance(task, Compute) else (task.tensor,) if isinstance(task, Transfer) else ()
        for name in names:
            tensor = plan.tensors[name]
            brought = any(isinstance(one, Transfer) and one.tensor == name for one in block.tasks)
            if tensor.what == what and tensor.home[0][0] == home and not (isinstance(task, Compute) and brought):
                moved = task.bytes if isinstance(task, Transfer) and task.bytes is not None else tensor.bytes
                total += block.repeat * moved
    return total


# --- worked by hand ---


def test_w29_attention_on_the_cpu_moves_rows_instead_of_keys_and_values():
    case = CASES["W29"]
    context, expected = case["inputs"]["context"], case["expected"]
    assert (LLAMA.heads, LLAMA.kv_heads, LLAMA.head_dim) == tuple(
        case["inputs"][key] for key in ("n_q", "n_kv", "head_dim"))

    def over_the_link(context, **placed):
        plan = planned(box(), "dram0", workload=Workload(context=context), **placed)
        found = {}
        for block, task in tasks(plan):
            if isinstance(task, Transfer) and (what := plan.tensors[task.tensor].what) not in ("embedding row",):
                found[what] = found.get(what, 0) + block.repeat * plan.tensors[task.tensor].bytes
        return {what: Fraction(size, 80) for what, size in found.items()}

    here, there = over_the_link(context), over_the_link(context, attention="cpu0")
    assert here["KV cache"] == expected["kv_bytes"]
    assert there["query rows"] + there["attention output"] == expected["activation_bytes"]
    assert there["new KV"] == expected["new_kv_bytes"]
    assert here["KV cache"] / sum(there.values()) == Fraction(case["exact"]["ratio"])
    equal = expected["break_even_context"]
    assert sum(over_the_link(equal)[what] for what in ("KV cache",)) == sum(there.values())
    assert sum(over_the_link(equal, attention="cpu0").values()) == sum(there.values())


def test_w57_weights_once_a_step_and_kv_for_each_sequence():
    case = CASES["W57"]
    layer = Layer((Matrix("ffn_up", None, 50_000, 50_000),), Cache("full", 5, 100, 100), attend=2000, heads=5)
    model = Model("ten layers of 5 GB", "test", 10, 1, 5, 5, 100, 50_000, 1, stack=(layer,) * 10)
    topology = box(capacity=None, host=None, pcie=case["inputs"]["link_bw"])
    for batch, expected in case["expected"]["by_batch"].items():
        placement = Placement((("hbm0", Portion("layers", 0)), ("dram0", REST)), "gpu0", "dram0")
        plan = plan_model(model, topology, Workload(batch=batch, context=50_000), placement, weights="bf16")
        step = compile_step(topology, plan)
        link = loads(step, least=True)["pcie0.hbm0"]
        assert link == 50 * GB + batch * GB + 2, "and an embedding row of one value"
        assert floor(step).seconds == pytest.approx(expected["step_time"], rel=1e-8)
        assert batch / floor(step).seconds == pytest.approx(expected["tokens_per_s"], rel=1e-8)
        assert batch / floor(step).seconds < case["expected"]["limit_tokens_per_s"]


# --- where it lies ---


def test_whole_layers_first_where_they_run(desktop):
    topology = box()
    plan = planned(topology, {"hbm0": Portion("layers", 30), "dram0": REST})
    assert touched(plan, "KV cache", "hbm0") == 30 * 4096 * ROW
    assert touched(plan, "KV cache", "dram0") == 50 * 4096 * ROW
    mixed = Placement((("hbm0", Portion("layers", 30)), ("dram0", REST)), kv=(("hbm0", Portion("layers", 20)),
                                                                              ("dram0", REST)))
    step = compile_step(topology, plan_model(LLAMA, topology, Workload(), mixed, weights="q4_k_m"))
    moves = {task.name for _, task in tasks(step.plan) if isinstance(task, Transfer)}
    assert "fetch KV from dram0 to hbm0" in moves and "fetch KV from hbm0 to dram0" not in moves
    assert loads(step, least=False)["pcie0.hbm0"] == pytest.approx(10 * 4096 * ROW + 2 * 8192, rel=1e-12)


@pytest.mark.parametrize("share", [0.25, 0.6])
def test_a_share_of_the_positions_of_every_layer(share):
    topology = box()
    plan = planned(topology, {"hbm0": Portion("share", share), "dram0": REST})
    step = compile_step(topology, plan)
    away = round((1 - share) * 80 * 4096 * ROW)
    assert loads(step, least=False)["pcie0.hbm0"] == pytest.approx(away + 2 * 8192, rel=1e-9)
    assert step.occupied["hbm0"]["KV cache"] == pytest.approx(share * 80 * 4096 * ROW, abs=80)
    assert step.occupied.get("dram0", {}).get("KV cache", 0) == pytest.approx(away, abs=80)
    # New positions are spread alike: what goes to host memory crosses the link the other way.
    assert loads(step, least=False).get("pcie0.socket0", 0) == pytest.approx((1 - share) * 80 * ROW, rel=1e-9)


def test_on_a_drive_it_is_read_each_step_and_new_rows_are_written():
    topology = box()
    step = compile_step(topology, planned(topology, "ssd0"))
    found = loads(step, least=False)
    assert found["ssd0.read"] == 80 * 4096 * ROW
    assert found["ssd0.write"] == 80 * ROW
    assert found["dram0"] == 2 * 80 * 4096 * ROW + 2 * 80 * ROW + 2 * 8192, "in and out of the host"
    direct = box(direct=(0,))
    assert loads(compile_step(direct, planned(direct, "ssd0")), least=False)["dram0"] == 2 * 8192


def test_attention_in_two_places_reads_no_byte_twice(desktop):
    near = planned(desktop)
    shared = planned(desktop, {"hbm0": Portion("share", 0.5), "dram0": REST}, attention="cpu0")
    work = [sum(block.repeat * task.flops for block, task in tasks(plan) if isinstance(task, Compute))
            for plan in (near, shared)]
    read = [sum(block.repeat * plan.tensors[name].bytes for block, task in tasks(plan) if isinstance(task, Compute)
                for name in task.reads) for plan in (near, shared)]
    assert work[0] == pytest.approx(work[1], rel=1e-12) and read[0] == pytest.approx(read[1], rel=1e-12)
    step = compile_step(desktop, shared)
    assert loads(step, least=False)["cpu0.flops"] == pytest.approx(80 * 2 * 64 * 128 * 4096, rel=1e-12)
    assert loads(step, least=False)["cpu0.reads"] == 80 * 2048 * ROW
    statistics = 80 * 64 * 8
    assert loads(step, least=False)["pcie0.hbm0"] == 80 * 16384 + statistics + 2 * 8192


@pytest.mark.few
@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b", "llama-2-7b", "jamba-1.5-mini", "gemma-2-9b"])
@pytest.mark.parametrize("workload", [Workload(batch=3, context=500), Workload("prefill", 2, 100, prompt=64)])
def test_every_kind_of_attention_elsewhere(desktop, name, workload):
    model = catalogue[name]
    near = planned(desktop, model=model, weights="q8_0", workload=workload)
    away = planned(desktop, "dram0", model=model, weights="q8_0", workload=workload, attention="cpu0")
    work = [sum(block.repeat * task.flops for block, task in tasks(plan) if isinstance(task, Compute))
            for plan in (near, away)]
    assert work[0] == pytest.approx(work[1], rel=1e-12)
    step = compile_step(desktop, away)
    assert 0 < floor(step).seconds <= schedule(step).seconds <= serial(step).seconds * (1 + 1e-12)
    rows = {task.name: away.tensors[task.tensor] for _, task in tasks(away) if isinstance(task, Transfer)}
    if name == "deepseek-v3":
        assert rows["query rows to dram0"].bytes % (128 * (512 + 64)) == 0
        assert rows["attention output to hbm0"].bytes % (128 * 512) == 0
        assert rows["query rows to dram0"].least < rows["query rows to dram0"].bytes
    if name == "llama-2-7b" and workload.phase == "decode":
        assert rows["new KV to dram0"].bytes == 3 * 2 * 32 * 128 * 2


def test_ranks_attend_on_the_host():
    topology = load_topology("dgx-h100")
    plan = planned(topology, "dram0", at="hbm0..3", attention="cpu0", weights="bf16")
    step = compile_step(topology, plan)
    assert floor(step).seconds > 0
    assert sum(loads(step, least=False)[f"pcie{n}.hbm{n}"] for n in range(4)) == pytest.approx(
        80 * 16384 + 4 * 16384, rel=1e-9)


# --- blocks ---


def test_each_block_takes_a_latency():
    """50 MB in 2 x 256 copies a layer, 3.6 us each beside the first one's own latency."""
    topology = box()
    alone = planned(topology, "dram0")
    block = KvBlock(16, "side", GivenTime(3.6e-6, 3.6e-6, 3.6e-6, source="a test"))
    blocks = planned(topology, "dram0", kv_block=block)
    copies = {task.copies for _, task in tasks(blocks) if task.name.startswith("fetch KV")}
    assert copies == {2 * 256}
    steps = [compile_step(topology, plan) for plan in (alone, blocks)]
    assert floor(steps[0]).seconds == floor(steps[1]).seconds, "nothing of it in floors"
    more = 80 * (2 * 256 - 1) * 3.6e-6
    assert serial(steps[1]).seconds - serial(steps[0]).seconds == pytest.approx(more, rel=1e-9)
    assert schedule(steps[1]).seconds > schedule(steps[0]).seconds
    for each, count in (("layer", 256), ("model", 256 / 80)):
        plan = planned(topology, "dram0", kv_block=KvBlock(16, each))
        assert {task.copies for _, task in tasks(plan) if task.name.startswith("fetch KV")} == {count}
    latent = planned(topology, "dram0", kv_block=KvBlock(64), model=catalogue["deepseek-v3"])
    assert {task.copies for _, task in tasks(latent) if task.name.startswith("fetch KV")} == {64}, "one side"
    assert any("16 positions" in note and "a test" in note for note in blocks.assumptions)


# --- cached prefixes ---


FOUND = Portion("positions", 3000)


def cached(topology, cache, share=FOUND, prompt=4000, **more):
    return planned(topology, workload=Workload("prefill", 1, 0, prompt=prompt, cached=share),
                   cache=tuple(cache.items()), model=catalogue["llama-3.1-8b"], weights="bf16", **more)


def test_a_hit_is_loaded_and_the_rest_computed():
    topology = box()
    shares = {"hbm0": 0.5, "dram0": 0.3, "ssd0": 0.2}
    plan = cached(topology, {name: Portion("share", share) for name, share in shares.items()})
    each = 131_072  # of llama-3.1-8b, as published: 32 layers x 2 x 8 x 128 x 2
    step = compile_step(topology, plan)
    found = loads(step, least=False)
    assert found["ssd0.read"] == pytest.approx(0.2 * 3000 * each, rel=1e-9)
    assert found["pcie0.hbm0"] == pytest.approx(0.5 * 3000 * each + 1000 * 4096 * 2, rel=1e-9)
    whole = planned(topology, workload=Workload("prefill", prompt=1000, context=3000),
                    model=catalogue["llama-3.1-8b"], weights="bf16")
    work = [sum(block.repeat * task.flops for block, task in tasks(one) if isinstance(task, Compute))
            for one in (plan, whole)]
    assert work[0] == work[1]
    assert plan.tokens == 4000 and plan.workload["cached"] == 3000
    assert step.occupied["hbm0"]["KV cache"] == 4000 * each


def test_all_but_the_last_position_are_found_at_most():
    topology = box()
    for share in (Portion("share", 1.0), Portion("positions", 5000)):
        assert cached(topology, {"dram0": REST}, share).workload["cached"] == 3999
    assert "cached" not in cached(topology, {"dram0": REST}, Portion("share", 0.0)).workload


def test_a_hit_is_served_by_the_first_tier_that_holds_it():
    tiers = (("hbm0", Portion("bytes", 20 * GB)), ("dram0", Portion("bytes", 100 * GB)), ("ssd0", REST))
    assert served_by(tiers, 5 * GB) == [("hbm0", 1.0), ("dram0", 0.0), ("ssd0", 0.0)]
    assert served_by(tiers, 80 * GB) == [("hbm0", 0.25), ("dram0", 0.75), ("ssd0", 0.0)]
    assert [share for _, share in served_by(tiers, 200 * GB)] == pytest.approx([0.1, 0.5, 0.4])
    with pytest.raises(PlanError, match="80 GB of the 200 GB that are found are in no tier"):
        served_by(tiers[:2], 200 * GB)
    with pytest.raises(PlanError, match="are in no tier"):
        served_by((("hbm0", Portion("share", 0.3)),), 200 * GB)


def test_load_against_recompute():
    topology = box()
    hit = evaluate(topology, cached(topology, {"dram0": REST})).hit
    size = 3000 * 131_072
    assert hit.bytes == hit.loaded == size and hit.tiers == (("dram0", size),)
    assert hit.load_seconds == pytest.approx(size / 20e9, rel=1e-9)
    # 2 FLOP a weight of the layers and position, at 100 TFLOP/s; attention on top.
    matrices = 3000 * 2 * 6_979_321_856
    # Attention on top: 3,000 positions that see each other, and 1,000 that see 3,000 more either way.
    attention = 32 * 4 * 4096 * 3000 * 3001 // 2
    rows = 3000 * 4096 * 2 / 20e9  # of the embedding, which come over the link first
    assert hit.compute_seconds == pytest.approx((matrices + attention) / 100e12 + rows, rel=1e-6)
    assert hit.rate_needed == pytest.approx(hit.bytes / hit.compute_seconds)
    assert hit.wins_from == 1
    slow = evaluate(box(pcie=0.5e9), cached(box(pcie=0.5e9), {"dram0": REST})).hit
    assert slow.load_seconds > slow.compute_seconds and slow.wins_from > 3000
    near = evaluate(topology, cached(topology, {"hbm0": REST})).hit
    assert near.load_seconds == near.loaded == 0 and near.bytes == size
    assert evaluate(topology, planned(topology, workload=Workload("prefill", prompt=100))).hit is None


def test_a_request_whose_prompt_is_found_in_part():
    topology = box()

    def whole(share):
        workload = Workload("generate", prompt=4000, generate=20, cached=Portion("share", share))
        plan = planned(topology, workload=workload, cache=(("dram0", REST),), model=catalogue["llama-3.1-8b"],
                       weights="bf16")
        return plan, evaluate(topology, plan)

    plan, found = whole(0.5)
    assert plan.workload["cached"] == 2000 and found.hit.bytes == 2000 * 131_072
    nothing, without = whole(0.0)
    assert "cached" not in nothing.workload and without.hit is None
    assert found.request.decode == without.request.decode
    assert found.request.prefill.expected < without.request.prefill.expected
    assert found.hit.without == pytest.approx(without.request.prefill.expected, rel=1e-9)


def test_a_windowed_layer_loads_its_last_positions():
    topology = box()
    model = catalogue["gemma-2-9b"]  # half of 42 layers see 4,096 positions; 8 KV heads of 256
    plan = planned(topology, workload=Workload("prefill", 1, 0, prompt=20_000, cached=Portion("positions", 16_000)),
                   cache=(("dram0", REST),), model=model, weights="bf16")
    moved = sum(block.repeat * task.bytes for block, task in tasks(plan) if task.name.startswith("load cached"))
    assert moved == 21 * (4096 + 16_000) * 2 * 8 * 256 * 2


# --- hand-over ---


def test_a_hand_over_sends_each_layer_on():
    topology = box(nvlink=100e9)
    plan = planned(topology, workload=Workload("prefill", 2, 0, prompt=1000), model=catalogue["llama-3.1-8b"],
                   weights="bf16", hand_over="hbm1")
    step = compile_step(topology, plan)
    size = 2 * 1000 * 131_072
    assert loads(step, least=True)["nv1.hbm1"] == loads(step, least=False)["nv1.hbm1"] == size
    assert step.occupied["hbm1"]["KV handed over"] == size
    sent = evaluate(topology, plan).hand_over
    assert (sent.to, sent.bytes) == ("hbm1", size) and sent.seconds == pytest.approx(size / 100e9)
    assert 0 < sent.exposed < 0.1 * sent.seconds, "nearly all of it hides behind compute"
    slow = evaluate(box(nvlink=0.1e9), plan).hand_over
    assert slow.seconds == pytest.approx(size / 0.1e9)
    assert slow.seconds - 0.3 < slow.exposed <= slow.seconds, "the prefill takes 0.29 s, and hides no more"


# --- ladders ---

KV = st.one_of(
    st.just("dram0"), st.just("ssd0"),
    st.tuples(st.integers(0, 20), st.integers(0, 12)).map(
        lambda one: (("hbm0", Portion("layers", one[0])), ("ssd0", Portion("layers", one[1])), ("dram0", REST))),
    st.tuples(st.integers(1, 60), st.integers(0, 39)).map(
        lambda one: (("hbm0", Portion("share", one[0] / 100)), ("ssd0", Portion("share", one[1] / 100)),
                     ("dram0", REST))),
)  # fmt: skip
BLOCKS = st.sampled_from([None, KvBlock(16), KvBlock(256, "layer", GivenTime(1e-6, 2e-6, 3e-6))])


def climb(step):
    low, point, expected, most = floor(step).seconds, floor(step, "value").seconds, schedule(step), serial(step)
    assert low <= point * (1 + 1e-12)
    assert point <= expected.seconds * (1 + 1e-12)
    assert expected.seconds <= most.seconds * (1 + 1e-12)
    assert floor(step).cold_seconds <= expected.cold_seconds * (1 + 1e-12)


@pytest.mark.slow
@given(KV, BLOCKS, st.booleans(), st.integers(1, 40), st.integers(2, 5000), st.integers(0, 32),
       st.sampled_from(["decode", "prefill"]))  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_ladders_of_kv(kv, blocks, elsewhere, batch, context, layers, phase):
    topology = load_topology("desktop-4090")
    workload = Workload("prefill", batch, context, prompt=100) if phase == "prefill" else Workload(
        batch=batch, context=context)
    placement = Placement((("hbm0", Portion("layers", layers)), ("dram0", REST)), "gpu0", kv,
                          attention="cpu0" if elsewhere else "", kv_block=blocks)
    plan = plan_model(catalogue["llama-3.1-8b"], topology, workload, placement, weights="q4_k_m")
    climb(compile_step(topology, plan))


@pytest.mark.slow
@given(st.integers(0, 100), st.integers(1, 5000), st.integers(1, 50), st.integers(1, 49), BLOCKS, st.booleans())
@settings(max_examples=12, deadline=None)
def test_ladders_of_cached_prefixes(share, prompt, near, host, blocks, sent):
    topology = load_topology("dgx-h100")
    cache = (("hbm0", Portion("share", near / 100)), ("dram0", Portion("share", host / 100)), ("ssd0", REST))
    if "ssd0" not in topology.memories:
        cache = (*cache[:1], ("dram0", REST))
    placement = Placement((("hbm0", REST),), kv_block=blocks, cache=cache, hand_over="hbm1" if sent else "")
    workload = Workload("prefill", 2, prompt=prompt, cached=Portion("share", share / 100))
    plan = plan_model(catalogue["llama-3.1-8b"], topology, workload, placement, weights="bf16")
    climb(compile_step(topology, plan))


# --- what is refused ---


@pytest.mark.parametrize(
    ("placed", "said"),
    [
        ({"kv": (("hbm0", Portion("layers", 3)), ("dram0", Portion("share", 0.5)))}, "do not mix"),
        ({"kv": (("hbm0", Portion("layers", 3)),)}, "placement.kv: 3 of 80 layers are placed"),
        ({"kv": (("hbm0", Portion("layers", 90)), ("dram0", REST))}, "90 in hbm0 are more"),
        ({"kv": (("hbm0", Portion("share", 0.4)),)}, "40% of the positions are placed"),
        ({"kv": (("hbm0", Portion("share", 0.7)), ("dram0", Portion("share", 0.7)))}, "140% are more"),
        ({"kv": (("hbm0", REST), ("dram0", REST))}, "both take the rest"),
        ({"kv": (("hbm0", Portion("bytes", 10**9)), ("dram0", REST))}, "bytes say neither"),
        ({"kv": (("hbm9", REST), ("dram0", Portion("share", 0.2)))}, 'no memory "hbm9"'),
        ({"kv": "dram0", "attention": "gpu1"}, "gpu1 works in hbm1"),
        ({"kv": "dram0", "cache": (("ssd0", REST),)}, "goes with `kv: with layer`"),
        ({"cache": (("dram0", Portion("layers", 3)),)}, "layers are no part of a prefix"),
        ({"cache": (("dram0", Portion("share", 0.6)), ("ssd0", Portion("share", 0.6)))}, "40% are left for it"),
    ],
)
def test_what_is_refused(placed, said):
    kv = placed.pop("kv", "with layer")
    workload = Workload("prefill", prompt=100, cached=Portion("share", 0.5)) if "cache" in placed else None
    placement = Placement((("hbm0", REST),), kv=kv, **placed)
    with pytest.raises(PlanError, match=said):
        plan_model(LLAMA, box(), workload or Workload(), placement, weights="q4_k_m")


PLAN = """\
model: {name: llama-3.1-8b, weights: bf16}
workload: {phase: prefill, prompt: 4000, cached: 80%}
placement:
  weights: {hbm0: rest}
  cache: {hbm0: 25%, dram0: rest}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("cached: 80%", "cached: 80", 0, ""),
        ("cached: 80%", "cached: 4000 tokens", 0, ""),
        ("cached: 80%", "cached: 4001", 3, "more than the prompt has"),
        ("cached: 80%", "cached: 120%", 3, "no share of the prompt"),
        ("cached: 80%", "cached: most", 3, 'or a number of positions'),
        (", cached: 80%", "", 6, "how much of a prompt"),
        ("  cache: {hbm0: 25%, dram0: rest}\n", "", 3, "where is it found"),
        ("dram0: rest", "dram1: rest", 6, 'no memory "dram1"'),
        ("dram0: rest", "dram0: 50%", 6, "25% of what is cached are in no tier"),
        ("dram0: rest", "dram0: 3 layers", 6, "layers are no part"),
        ("{hbm0: 25%, dram0: rest}", "dram0", 0, ""),
        ("{hbm0: 25%, dram0: rest}", "[dram0]", 6, "must be a map"),
        ("{hbm0: 25%", "{hbm0: 25 GB", 0, ""),
        ("phase: prefill, prompt", "phase: decode, context", 3, "belongs to phase"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  hand_over: hbm0", 6, "where the prefill makes it"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  hand_over: hbm7", 6, 'no memory "hbm7"'),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  hand_over: hbm1", 0, ""),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv_block: 0 tokens", 6, "no size of a block"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv_block: 16 tokens", 0, ""),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv_block: {tokens: 16, each: all}", 6, '"all"'),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv_block: {tokens: 16, source: x}", 6, "per_copy"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv_block: {tokens: 16, per_copy: 3.6 us}", 0, ""),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv: {hbm0: 3 layers, dram0: 50%}", 6, "do not mix"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  kv: dram0", 7, "goes with `kv: with layer`"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  attention: cpu0", 6, "attends to nothing"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  attention: gpu0", 6, "attends to nothing"),
        ("  cache: {hbm0: 25%, dram0: rest}", "  cache: hbm0\n  kv_block: 16 tokens", 7, "no KV is copied"),
        ("weights: {hbm0: rest}", "weights: {hbm0: rest}\n  attention: cpu7", 6, 'no processor "cpu7"'),
    ],
)
def test_files(old, new, line, said, tmp_path):
    assert PLAN.count(old) == 1
    text = PLAN.replace(old, new)
    if not line:
        assert plan_of(tmp_path, text, box()).blocks
        return
    with pytest.raises(OffloadError) as error:
        plan_of(tmp_path, text, box())
    told = str(error.value)
    assert f"line {line}," in told and said in told, told


def test_the_report_says_what_a_hit_is_worth(tmp_path, capsys):
    from offload import cli

    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\n" + PLAN)
    assert cli.main(["step", str(path)]) == 0
    told = capsys.readouterr().out
    assert "The cached prefix: load it, or compute it again" in told and "loading wins" in told
    assert cli.main(["step", str(path), "--json"]) == 0
    path.write_text("topology: dgx-h100\n" + PLAN.replace("cache: {hbm0: 25%, dram0: rest}", "hand_over: hbm1").replace(
        ", cached: 80%", ""))
    assert cli.main(["step", str(path)]) == 0
    assert "KV go to hbm1, each layer's as it is made" in capsys.readouterr().out
