"""KV that lies off the ranks is stored once, a window's is written as it is kept, and tiers hold what they serve."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from offload import evaluate, load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.crossover import Crossover, streaming
from offload.designs import Parallel, Placement, Portion, Workload, plan_model
from offload.designs.kv import served_by
from offload.doubts.kv import doubts_of_kv
from offload.errors import OffloadError
from offload.kv_tiers import fits_near
from offload.models import Cache, catalogue
from offload.plan import Compute, Transfer
from offload.report_crossover import write_crossover
from offload.rerouting import any_routes
from offload.schedules import schedule, serial
from offload.step import loads
from tests.boxes import GB, MB, box, plan_of

REST = Portion("rest")
LITE = 27 * 576 * 2  # bytes of a position of deepseek-v2-lite: 27 layers, a latent of 512 and 64 of RoPE
V3 = 61 * 576 * 2  # deepseek-v3
QWEN = 48 * 2 * 4 * 128 * 2  # qwen3-30b-a3b: 48 layers, 4 KV heads of 128
LLAMA = 32 * 2 * 8 * 128 * 2  # llama-3.1-8b


@pytest.fixture(scope="module")
def dgx():
    return load_topology("dgx-h100")


def step_of(topology, model, workload, at="hbm0..7", weights="bf16", **placed):
    plan = plan_model(catalogue[model], topology, workload, Placement(((at, REST),), **placed), weights=weights)
    return compile_step(topology, plan)


def moved(step, what, to=""):
    """Bytes of a kind that moves bring in a step."""
    plan = step.plan
    return sum(
        block.repeat * (plan.tensors[task.tensor].bytes if task.bytes is None else task.bytes)
        for block in plan.blocks for task in block.tasks
        if isinstance(task, Transfer) and plan.tensors[task.tensor].what == what and task.to.startswith(to)
    )  # fmt: skip


# --- off the ranks, once ---


def test_a_latent_in_host_memory_is_stored_once_and_each_rank_brings_a_copy(dgx):
    step = step_of(dgx, "deepseek-v3", Workload(batch=64, context=65_536), weights="q4_k_m", kv="dram0")
    once = 64 * 65_536 * V3
    assert step.occupied["dram0"]["KV cache"] == once
    assert moved(step, "KV cache") == 8 * once
    row = 7168 * 2
    embedding, written = 64 * row, 64 * V3
    for n in range(8):
        assert loads(step, least=True)[f"pcie{n}.hbm{n}"] == once + row, "a copy on each rank's own link"
    assert loads(step, least=False)["dram0"] == pytest.approx(8 * (once + embedding) + written, rel=1e-12)
    # A cache of the host may serve the other seven; new rows may stay in it too.
    assert once <= loads(step, least=True)["dram0"] <= once + embedding + written
    assert any("KV in dram0 lies there once, and 8 ranks" in note for note in step.plan.assumptions)


def test_without_a_cache_each_copy_is_read():
    topology = box(4, host=None, nvlink=100e9)
    step = step_of(topology, "deepseek-v2-lite", Workload(batch=2, context=1000), at="hbm0..3", kv="dram0")
    once = 2 * 1000 * LITE
    rows = 4 * 2 * 2048 * 2  # the embedding's row, to each rank
    assert loads(step, least=True)["dram0"] >= 4 * once
    assert loads(step, least=False)["dram0"] == 4 * once + rows + 2 * LITE
    assert step.occupied["dram0"]["KV cache"] == once


def test_in_their_own_memories_ranks_keep_copies():
    topology = box(4, capacity=None)
    step = step_of(topology, "deepseek-v2-lite", Workload(batch=2, context=1000), at="hbm0..3")
    assert all(step.occupied[f"hbm{n}"]["KV cache"] == 2 * 1000 * LITE for n in range(4))
    assert not any("lies there once" in note for note in step.plan.assumptions)


@pytest.mark.few
@pytest.mark.parametrize(("model", "batch", "context", "row"), [
    ("deepseek-v2-lite", 64, 65_536, LITE), ("qwen3-30b-a3b", 8, 16_384, QWEN),
])  # fmt: skip
def test_an_attending_cpu_reads_it_once_whatever_the_ranks(dgx, model, batch, context, row):
    alone = None
    for at in ("hbm0", "hbm0..1", "hbm0..3", "hbm0..7"):
        step = step_of(dgx, model, Workload(batch=batch, context=context), at=at, kv="dram0", attention="cpu0")
        assert step.occupied["dram0"]["KV cache"] == batch * context * row
        assert loads(step, least=False)["cpu0.reads"] == batch * context * row
        assert moved(step, "new KV") == batch * row
        alone = alone or floor(step).seconds
        assert floor(step).seconds <= alone * (1 + 1e-9)
        assert floor(step).seconds > batch * context * row / 281.6e9 - 0.001, "dram0 at its peak"


@pytest.mark.parametrize("attention", ["cpu0", ""])
def test_spread_experts_with_shared_attention_do_not_double_it(dgx, attention):
    if attention:
        with pytest.raises(OffloadError):
            step_of(dgx, "qwen3-30b-a3b", Workload(batch=8, context=16_384), kv="dram0", attention=attention,
                    parallel=Parallel("data"))
    step = step_of(dgx, "qwen3-30b-a3b", Workload(batch=8, context=16_384), kv="dram0", attention=attention,
                   parallel=Parallel("expert", attention="tensor"))
    once = 8 * 16_384 * QWEN
    assert step.occupied["dram0"]["KV cache"] == once == 12_884_901_888
    assert moved(step, "KV cache") == (0 if attention else 2 * once), "4 heads on 8 ranks: two copies of each"
    assert loads(step, least=True)["dram0"] < 1.01 * once


def test_on_a_drive_it_is_read_once_and_taken_from_host_memory(dgx):
    step = step_of(dgx, "deepseek-v2-lite", Workload(batch=4, context=10_000), kv="ssd0")
    once = 4 * 10_000 * LITE
    assert step.occupied["ssd0"]["KV cache"] == once
    for least in (True, False):
        assert loads(step, least=least)["ssd0.read"] == once
    assert loads(step, least=False)["ssd0.write"] == 4 * LITE
    assert moved(step, "KV cache", "hbm") == 8 * once and moved(step, "KV cache", "dram") == once
    # Heads that are no more than the ranks have are no one's copy: each rank reads its own from the drive.
    step = step_of(dgx, "llama-3.1-8b", Workload(batch=4, context=10_000), kv="ssd0")
    assert moved(step, "KV cache", "hbm") == loads(step, least=False)["ssd0.read"] == 4 * 10_000 * LLAMA
    assert moved(step, "KV cache", "dram") == 0


def test_over_two_sockets_each_rank_takes_of_both(dgx):
    step = step_of(dgx, "deepseek-v2-lite", Workload(batch=4, context=10_000), kv="dram0..1")
    once = 4 * 10_000 * LITE
    for socket in (0, 1):
        assert step.occupied[f"dram{socket}"]["KV cache"] == once / 2
        assert loads(step, least=False)[f"dram{socket}"] == pytest.approx(8 * once / 2, rel=0.01)
    assert all(loads(step, least=True)[f"pcie{n}.hbm{n}"] == pytest.approx(once, rel=0.001) for n in range(8))


def test_any_routes_never_take_longer_than_the_plan_s_own(dgx):
    pytest.importorskip("scipy")
    for home in ("dram0", "ssd0"):
        step = step_of(dgx, "deepseek-v2-lite", Workload(batch=4, context=10_000), kv=home)
        assert any_routes(step).seconds <= floor(step).seconds * (1 + 1e-9)


# --- prefixes and hand-overs ---


def found(topology, cache, at="hbm0..7", model="deepseek-v3", weights="q4_k_m", prompt=65_536, share=0.9):
    workload = Workload("prefill", 1, 0, prompt=prompt, cached=Portion("share", share))
    return step_of(topology, model, workload, at=at, weights=weights, cache=tuple(cache.items()))


@pytest.mark.slow
def test_a_prefix_on_a_drive_is_loaded_once(dgx):
    step = found(dgx, {"ssd0": REST})
    once = 58_982 * V3
    assert V3 == 70_272
    assert loads(step, least=False)["ssd0.read"] == once == step.occupied["ssd0"]["cached KV"]
    hit = evaluate(dgx, step.plan).hit
    assert hit.bytes == hit.loaded == once and hit.tiers == (("ssd0", once),)
    assert hit.load_seconds == pytest.approx(once / 25e9, rel=0.05), "the drive's 25 GB/s, and each link a copy"
    assert hit.rate_needed == pytest.approx(once / hit.compute_seconds)
    alone = evaluate(dgx, found(dgx, {"ssd0": REST}, at="hbm0", model="deepseek-v2-lite", weights="bf16").plan).hit
    eight = evaluate(dgx, found(dgx, {"ssd0": REST}, model="deepseek-v2-lite", weights="bf16").plan).hit
    assert alone.bytes == eight.bytes == 58_982 * LITE


@pytest.mark.slow
def test_room_in_the_ranks_own_memories_holds_copies():
    topology = box(4, capacity=None)
    once = 900 * LITE
    for size, share in ((once, 0.25), (2 * once, 0.5), (4 * once, 1.0)):
        step = found(topology, {"hbm0..3": Portion("bytes", size), "dram0": REST}, at="hbm0..3",
                     model="deepseek-v2-lite", weights="bf16", prompt=1000)
        hit = evaluate(topology, step.plan).hit
        served = dict(hit.tiers)
        assert hit.bytes == pytest.approx(once)
        assert served.get("dram0", 0) == pytest.approx((1 - share) * once) == hit.loaded


def test_what_is_handed_over_depends_on_who_takes_it(dgx):
    def sent(to, **more):
        step = step_of(dgx, "deepseek-v2-lite", Workload("prefill", 1, 0, prompt=65_536), at="hbm0..3", hand_over=to,
                       **more)
        there = sum(parts.get("KV handed over", 0) for parts in step.occupied.values())
        assert there == moved(step, "new KV")
        return there

    once = 65_536 * LITE
    assert once == 2_038_431_744
    assert sent("hbm4") == sent("dram1") == sent("dram0..1") == sent("ssd0") == once
    assert sent("hbm4..7") == 4 * once, "each of four ranks keeps all of a latent"
    step = step_of(dgx, "deepseek-v2-lite", Workload("prefill", 4, 0, prompt=1000), at="hbm0..3", hand_over="hbm4..7",
                   parallel=Parallel("data"))
    assert moved(step, "new KV") == 4 * 1000 * LITE, "replicas keep their own sequences"


# --- windows ---


def test_of_a_window_only_what_is_kept_is_written_elsewhere(dgx):
    workload = Workload("prefill", 8, 0, prompt=32_768)
    step = step_of(dgx, "mistral-7b-v0.1", workload, parallel=Parallel("data"), kv="ssd0")
    kept = 8 * 4096 * 131_072
    assert kept == 4_294_967_296
    for least in (True, False):
        assert loads(step, least=least)["ssd0.write"] == kept
    assert step.occupied["ssd0"]["KV cache"] == kept
    near = step_of(dgx, "mistral-7b-v0.1", workload, parallel=Parallel("data"))
    news = [tensor for tensor in near.plan.tensors.values() if tensor.what == "new KV"]
    for tensor in news:
        assert (tensor.bytes, tensor.least) == (8 * 32_768 * 4096, 8 * 4096 * 4096), "all of it, and at least the kept"
    assert any("layers with a window" in note for note in step.plan.assumptions)


def test_each_layer_keeps_by_its_own_window():
    topology = box(capacity=None, host=None)
    model = catalogue["gemma-3-12b"]
    step = step_of(topology, "gemma-3-12b", Workload("prefill", 1, 0, prompt=65_536), at="hbm0", kv="dram0")
    by_hand = sum(min(65_536, layer.cache.window or 65_536) * 2 * 8 * 256 * 2 for layer in model.stack)
    assert by_hand == (40 * 1024 + 8 * 65_536) * 8192
    assert loads(step, least=False)["pcie0.socket0"] == by_hand
    short = step_of(topology, "gemma-3-12b", Workload("prefill", 1, 0, prompt=512), at="hbm0", kv="dram0")
    assert loads(short, least=False)["pcie0.socket0"] == 48 * 512 * 8192
    assert not any("layers with a window" in note for note in short.plan.assumptions)


def test_a_chunk_that_has_ended_is_seen_by_none():
    from offload.models.attention import before, smaller

    chunk = Cache("chunk", 8, 128, 128, window=8192)
    assert [smaller(10_000, before(chunk, end)) for end in (10_000, 16_384, 8191)] == [1808, 0, 8191]


# --- tiers ---


def test_tiers_hold_what_they_serve():
    size = Portion("bytes", 10 * MB)
    with pytest.raises(OffloadError, match="258 MB of the 268 MB that are found are in no tier: dram0 has no more"):
        served_by((("dram0", size),), 268 * MB)
    with pytest.raises(OffloadError, match="in no tier: ssd0 has no more room"):
        served_by((("hbm0", Portion("share", 0.1)), ("ssd0", size)), 268 * MB)
    assert served_by((("dram0", Portion("bytes", GB)),), 268 * MB) == [("dram0", 1.0)]
    assert served_by((("dram0", Portion("bytes", GB)), ("hbm0", Portion("share", 0.3))), 268 * MB) == [
        ("dram0", 1.0), ("hbm0", 0.0)]  # fmt: skip
    with pytest.raises(OffloadError, match="40% are left for it"):
        served_by((("dram0", Portion("share", 0.6)), ("ssd0", Portion("share", 0.6))), 268 * MB)


TIERS = """\
model: {name: llama-3.1-8b, weights: q8_0}
workload: {phase: prefill, prompt: 4096, cached: 50%}
placement:
  weights: {hbm0: rest}
  cache: {dram0: 10 MB}
"""


@pytest.mark.parametrize("cache", ["{dram0: 10 MB}", "{hbm0: 10%, ssd0: 10 MB}", "{hbm0: 100 MB, dram0: 100 MB}"])
def test_too_little_room_is_refused_at_its_line(cache, tmp_path):
    text = TIERS.replace("{dram0: 10 MB}", cache)
    with pytest.raises(OffloadError) as error:
        plan_of(tmp_path, text, load_topology("desktop-4090"))
    assert "line 6," in str(error.value) and "of the 268 MB that are found are in no tier" in str(error.value)


def test_how_many_prompts_the_tiers_hold(tmp_path):
    """2,048 positions of 131,072 B a prompt: 1 GB holds three, and a prompt of 15,258 positions."""
    topology = load_topology("desktop-4090")
    study = evaluate(topology, plan_of(tmp_path, TIERS.replace("10 MB", "1 GB"), topology))
    rooms = {one.what: one for one in study.room}
    assert (rooms["batch"].most, rooms["batch"].memory) == (3, "dram0")
    positions = 10**9 // 131_072
    assert (rooms["prompt"].most, rooms["prompt"].memory) == (2 * positions + 1, "dram0")


# --- what is told ---


def test_with_layer_is_the_memory_that_it_names():
    topology = load_topology("desktop-4090")
    near = step_of(topology, "llama-3.1-8b", Workload(context=1024), at="hbm0", weights="q8_0")
    both = step_of(topology, "llama-3.1-8b", Workload(context=1024), at="hbm0", weights="q8_0",
                   kv=(("hbm0", Portion("share", 0.5)), ("with layer", REST)))
    assert floor(both) == floor(near) and schedule(both) == schedule(near) and both.occupied == near.occupied
    assert fits_near(both) is None
    notes = [note for note in both.plan.assumptions if note.startswith("KV by share")]
    assert len(notes) == 1 and notes[0].endswith("100% in hbm0")


def test_attention_alone_has_nothing_to_stream():
    topology = load_topology("desktop-4090")
    kv = (("hbm0", Portion("share", 0.6)), ("dram0", REST))
    step = step_of(topology, "llama-3.1-8b", Workload(batch=8, context=16_384), at="hbm0", weights="q8_0", kv=kv,
                   attention="cpu0")
    assert any(isinstance(task, Compute) and task.processor == "cpu0" for block in step.plan.blocks
               for task in block.tasks)  # fmt: skip
    assert streaming(topology, step.plan) is None


def test_one_token_is_one():
    def told(tokens):
        out = io.StringIO()
        write_crossover(Crossover(tokens, 100, (2.0, 1.0), first="cpu0", second="gpu0"), Console(file=out, width=300))
        return out.getvalue()

    assert "from 1 token in a pass" in told(1) and "from 2 tokens in a pass" in told(2)


@pytest.mark.parametrize(("size", "said"), [
    ("1000000000 tokens", "9,999,999 positions at most"), ("10000000", "9,999,999 positions at most"),
    ("9999999999999999999999999 tokens", "9,999,999 positions at most"), ("000 tokens", "no size of a block"),
])  # fmt: skip
def test_the_limit_of_a_block_is_told(size, said, tmp_path):
    text = TIERS.replace("cache: {dram0: 10 MB}", f"cache: dram0\n  kv_block: {size}")
    with pytest.raises(OffloadError) as error:
        plan_of(tmp_path, text, box())
    assert "line 7," in str(error.value) and said in str(error.value)
    assert plan_of(tmp_path, text.replace(size, "9999999 tokens"), box()).blocks


def test_kv_of_ranks_that_lies_away_for_nothing(dgx):
    for model, row in (("llama-3.1-8b", LLAMA), ("deepseek-v2-lite", LITE)):
        step = step_of(dgx, model, Workload(batch=16, context=4096), kv="dram0")
        where, size, free = fits_near(step)
        assert (where, size) == ("hbm0..7", 16 * 4096 * row) and free > 8 * size
        assert [doubt.code for doubt in doubts_of_kv(step, set())] == ["kv-for-nothing"]
    full = step_of(dgx, "deepseek-v3", Workload(batch=64, context=65_536), weights="q4_k_m", kv="dram0")
    assert fits_near(full) is None, "295 GB, and a copy in each of eight"


# --- whatever the plan ---

MODELS = {"deepseek-v2-lite": LITE, "qwen3-30b-a3b": QWEN, "llama-3.1-8b": LLAMA}


@pytest.mark.slow
@given(st.sampled_from(sorted(MODELS)), st.sampled_from(["dram0", "ssd0", "dram0..1", "hbm5"]), st.integers(1, 20),
       st.integers(1, 20_000), st.sampled_from(["hbm0", "hbm0..1", "hbm0..3"]))  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_stored_once_wherever_it_is_kept(model, home, batch, context, at):
    dgx = load_topology("dgx-h100")
    step = step_of(dgx, model, Workload(batch=batch, context=context), at=at, kv=home)
    stored = sum(parts.get("KV cache", 0) for parts in step.occupied.values())
    assert batch * context * MODELS[model] <= stored <= batch * context * MODELS[model] + 2 * 48, "but for whole bytes"
    low, high = loads(step, least=True), loads(step, least=False)
    assert all(low[name] <= high[name] * (1 + 1e-12) for name in low)
    assert floor(step).seconds <= schedule(step).seconds * (1 + 1e-12)
    assert schedule(step).seconds <= serial(step).seconds * (1 + 1e-12)


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 20), st.integers(1, 20_000),
       st.sampled_from(["dram0", "ssd0"]))  # fmt: skip
@settings(max_examples=10, deadline=None)
def test_an_attending_cpu_has_no_more_to_do_with_more_ranks(model, batch, context, home):
    dgx = load_topology("dgx-h100")
    steps = [step_of(dgx, model, Workload(batch=batch, context=context), at=at, kv=home, attention="cpu0")
             for at in ("hbm0", "hbm0..1", "hbm0..3")]  # fmt: skip
    for name in ("dram0", "cpu0.flops", "cpu0.reads", "ssd0.read", "ssd0.write"):
        first, *others = (loads(step, least=least).get(name, 0) for step in steps for least in (True,))
        assert all(other == pytest.approx(first, rel=1e-9) for other in others), name
