"""Passes over layers of several kinds, by hand: windows, chunks, latents, states, experts, shared caches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload import evaluate
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.models import Cache, Layer, Matrix, Model, State, layers_of, weigh
from offload.models.attention import decode_flops, prefill_flops
from offload.models.families import model_of
from offload.step import loads
from tests.boxes import box

SAMPLES = Path(__file__).parent / "data" / "hf_config"
HIDDEN, VOCAB = 64, 100
ROW = 2 * HIDDEN


def model(*layers: Layer) -> Model:
    return Model("kinds", "drawn", len(layers), HIDDEN, 4, 2, 16, 128, VOCAB, stack=layers, dtype="bfloat16")


NO_STATE = State()


def layer(cache: Cache, *more: Matrix, state: State = NO_STATE, attend: int = 0) -> Layer:
    return Layer((Matrix("attn_q", None, 64, HIDDEN), *more), cache, state, attend=attend, heads=4)


DENSE = 2 * 64 * HIDDEN  # bytes of attn_q in 16 bits
FULL = Cache("full", 2, 16, 16)
POSITION = 2 * 2 * 16 * 2  # keys and values, heads, size, bytes
HEAD = 2 * (VOCAB * HIDDEN + HIDDEN)


def step_of(one: Model, workload: Workload, gpus: int = 1, **portions):
    server = box(gpus, capacity=10**9)
    placed = Placement(tuple(portions.items()), "gpu0" if "dram0" in portions else "local")
    return compile_step(server, plan_model(one, server, workload, placed, weights="bf16"))


def at_hbm(one: Model, workload: Workload) -> tuple[float, float]:
    """Least and expected bytes at the GPU's memory in one step, without the head and the row that comes in."""
    step = step_of(one, workload, hbm0=Portion("rest"))
    least, load = loads(step, least=True)["hbm0"], loads(step, least=False)["hbm0"]
    moved = sum(use.load for row in step.rows if row.transfer for use in row.uses if use.resource == "hbm0")
    return least - HEAD, load - HEAD - moved


@pytest.mark.parametrize(("context", "seen"), [(1, 1), (99, 99), (100, 100), (101, 100), (5000, 100)])
def test_a_window_reads_and_keeps_its_last_positions(context, seen):
    one = model(layer(Cache("window", 2, 16, 16, window=100)))
    least, load = at_hbm(one, Workload("decode", 3, context))
    assert least == load == DENSE + 3 * (seen + 1) * POSITION
    step = step_of(one, Workload("decode", 3, context), hbm0=Portion("rest"))
    assert step.occupied["hbm0"]["KV cache"] == 3 * seen * POSITION


@pytest.mark.parametrize(("context", "seen"), [(1, 1), (100, 100), (101, 1), (150, 50), (200, 100)])
def test_a_chunk_reads_from_its_own_start(context, seen):
    one = model(layer(Cache("chunk", 2, 16, 16, window=100)))
    assert at_hbm(one, Workload("decode", 1, context))[1] == DENSE + (seen + 1) * POSITION


def test_a_latent_is_stored_once_and_on_every_rank():
    one = model(layer(Cache("latent", latent=32, rope=8)))
    assert at_hbm(one, Workload("decode", 2, 50))[1] == DENSE + 2 * 51 * 2 * 40
    step = step_of(one, Workload("decode", 2, 50), 2, **{"hbm0..1": Portion("rest")})
    for name in ("hbm0", "hbm1"):
        assert step.occupied[name]["KV cache"] == 2 * 50 * 2 * 40, "each rank has all of it"


def test_a_state_is_read_and_written_once_whatever_the_context():
    state = State(elements=1000, element_bytes=4, conv=30, conv_bytes=2)
    one = model(layer(Cache("none"), state=state))
    for context in (1, 10_000):
        assert at_hbm(one, Workload("decode", 5, context))[1] == DENSE + 2 * 5 * (4000 + 60)
    step = step_of(one, Workload("decode", 5, 7, in_flight=2), hbm0=Portion("rest"))
    assert step.occupied["hbm0"]["recurrent state"] == 2 * 5 * 4060


def test_a_layer_that_shares_a_cache_reads_it_and_stores_nothing():
    shared = Cache("full", 2, 16, 16, shared=True)
    both = model(layer(FULL), layer(shared))
    assert at_hbm(both, Workload("decode", 1, 40))[1] == 2 * DENSE + (40 + 40 + 1) * POSITION
    step = step_of(both, Workload("decode", 1, 40), hbm0=Portion("rest"))
    assert step.occupied["hbm0"]["KV cache"] == 40 * POSITION


EXPERT = 2 * 32 * HIDDEN
MIXED = model(layer(FULL, Matrix("ffn_up", None, 32, HIDDEN, copies=8, used=2)))


@pytest.mark.parametrize(("batch", "distinct"), [(1, 2), (2, 8 * (1 - 0.75**2)), (3, 4.625)])
def test_experts_are_touched_as_tokens_choose_them(batch, distinct):
    """Any of them alike: 8 x (1 - (1 - 2/8)^batch) distinct ones, and at least those of one token."""
    cache = batch * 11 * POSITION
    least, load = at_hbm(MIXED, Workload("decode", batch, 10))
    assert load == pytest.approx(DENSE + distinct * EXPERT + cache, rel=1e-12)
    assert least == DENSE + 2 * EXPERT + cache
    step = step_of(MIXED, Workload("decode", batch, 10), hbm0=Portion("rest"))
    assert step.occupied["hbm0"]["layer weights"] == DENSE + 8 * EXPERT
    assert weigh(MIXED, "bf16").experts == (EXPERT,)
    assert loads(step, least=True)["gpu0.flops"] == batch * 2 * (64 * HIDDEN + 2 * 32 * HIDDEN + VOCAB * HIDDEN)


def test_a_streamed_layer_brings_all_of_its_experts():
    step = step_of(MIXED, Workload("decode", 1, 10), hbm0=Portion("layers", 0), dram0=Portion("rest"))
    bytes_in = {use.resource: use.load for row in step.rows if row.name.startswith("fetch weights") for use in row.uses}
    assert bytes_in["pcie0.hbm0"] == DENSE + 8 * EXPERT
    assert any("brings all of its experts" in note for note in step.plan.assumptions)


def test_prefill_counts_the_pairs_that_a_window_and_a_chunk_see():
    window = model(layer(Cache("window", 2, 16, 16, window=4), attend=1))
    chunk = model(layer(Cache("chunk", 2, 16, 16, window=4), attend=1))
    for one, pairs in ((window, 3 + 4 * 4), (chunk, 3 + 4 + 1 + 2 + 3)):  # positions 3..7 after 2
        step = step_of(one, Workload("prefill", 1, 2, prompt=5), hbm0=Portion("rest"))
        assert loads(step, least=False)["gpu0.flops"] == 5 * 2 * 64 * HIDDEN + pairs + 2 * VOCAB * HIDDEN


INDEXED = Cache("latent", latent=32, rope=8, index_dim=16, picks=100)
KEYED = Layer((Matrix("attn_q", None, 64, HIDDEN),), INDEXED, attend=10, index=3, expanded=4, expand=120,
              attention="latent", heads=4)  # fmt: skip


@pytest.mark.parametrize(("context", "picked"), [(1, 1), (99, 99), (100, 100), (101, 100), (5000, 100)])
def test_an_indexer_reads_all_of_its_keys_and_attention_what_it_picks(context, picked):
    """A latent's row has 40 elements of 2 bytes, an indexer's key 16. Where all are picked nothing has to be scored."""
    scored = context if context > 100 else 0
    one = model(KEYED)
    least, load = at_hbm(one, Workload("decode", 3, context))
    written = 3 * (80 + 32)
    assert least == load == DENSE + 3 * (picked * 80 + scored * 32) + written
    step = step_of(one, Workload("decode", 3, context), hbm0=Portion("rest"))
    assert step.occupied["hbm0"]["KV cache"] == 3 * context * (80 + 32), "all of it is kept"
    work = 2 * 64 * HIDDEN + picked * 10 + scored * 3 + 2 * VOCAB * HIDDEN
    assert loads(step, least=True)["gpu0.flops"] == 3 * work


def test_an_indexer_over_a_link():
    placed = Placement((("hbm0", Portion("rest")),), kv="dram0")
    server = box(1, capacity=10**9)
    step = compile_step(server, plan_model(model(KEYED), server, Workload("decode", 1, 5000), placed, weights="bf16"))
    moved = {use.resource: use.load for row in step.rows if row.name.startswith("fetch KV") for use in row.uses}
    assert moved["pcie0.hbm0"] == 100 * 80 + 5000 * 32
    assert any("taken to be known in time" in note for note in step.plan.assumptions)


def test_a_prompt_beside_an_indexer_reads_what_its_first_position_picks_at_least():
    """Of 500 earlier rows 99 at least (the first new position picks itself too), all of them at most."""
    least, load = at_hbm(model(KEYED), Workload("prefill", 1, 500, prompt=20))
    assert least == DENSE + 99 * 80 + 500 * 32 + 20 * 112
    assert load == DENSE + 500 * 80 + 500 * 32 + 20 * 112


def test_flop_of_a_prompt_of_latents():
    """Keys and values of new positions are made anyway; of earlier ones they are made where that is cheaper."""
    plain = replace(KEYED, cache=Cache("latent", latent=32, rope=8), index=0)
    assert prefill_flops(plain, 0, 5) == 15 * 4
    assert prefill_flops(plain, 7, 5) == 15 * 4 + 7 * 5 * 10, "12 of 120 FLOP each against 5 pairs at 6 more"
    assert prefill_flops(plain, 7, 50) == 1275 * 4 + 7 * (50 * 4 + 120)
    assert prefill_flops(KEYED, 0, 120) == (5050 + 20 * 100) * 4 + (7260 - 5050) * 3
    # 1000 pairs are seen, of which 55 may be new; the indexer scores 10 x 500 + 55.
    assert prefill_flops(KEYED, 500, 10) == 55 * 4 + 945 * 10 + 5055 * 3
    assert decode_flops(KEYED, 500) == 100 * 10 + 500 * 3 == decode_flops(KEYED, 500, 100)
    one = model(plain)
    step = step_of(one, Workload("prefill", 2, 7, prompt=5), hbm0=Portion("rest"))
    assert loads(step, least=False)["gpu0.flops"] == 2 * (5 * 2 * 64 * HIDDEN + 410 + 2 * VOCAB * HIDDEN)


def test_a_prompt_of_deepseek_v3_takes_a_third_of_the_absorbed_form():
    layer = model_of(json.loads((SAMPLES / "DeepSeek-V3" / "config.json").read_text()), "m").stack[0]
    assert (layer.attend, layer.expanded, layer.expand) == (2 * 128 * 1088, 2 * 128 * 320, 2 * 128 * 256 * 512)
    assert prefill_flops(layer, 0, 4096) == 4096 * 4097 // 2 * 81_920
    few, many = (prefill_flops(layer, 10_000, new) for new in (100, 200))
    assert few == 5050 * 81_920 + 10_000 * 100 * 278_528, "under 171 new positions earlier ones are not made again"
    assert many == 20_100 * 81_920 + 10_000 * (200 * 81_920 + 33_554_432)


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_chunks_of_a_prompt_take_no_less_than_the_whole(past, one, two, indexed):
    layer = KEYED if indexed else replace(KEYED, cache=Cache("latent", latent=32, rope=8), index=0)
    whole = prefill_flops(layer, past, one + two)
    assert prefill_flops(layer, past, one) + prefill_flops(layer, past + one, two) >= whole
    assert prefill_flops(layer, past, one) <= sum(decode_flops(layer, past + each) for each in range(1, one + 1))


@pytest.mark.parametrize("kind", ["window", "chunk", "full", "picks"])
def test_the_floor_of_a_request_is_no_more_than_its_steps(kind):
    """What a window sees is not convex in the context, so the mean context alone would prove too much."""
    cache = {"full": FULL, "picks": replace(INDEXED, picks=40)}.get(kind) or Cache(kind, 2, 16, 16, window=40)
    one = model(*[layer(cache, attend=256)] * 3)
    server = box(1, capacity=10**9)
    placed = Placement((("hbm0", Portion("rest")),))
    plan = plan_model(one, server, Workload("generate", 2, prompt=20, generate=60), placed, weights="bf16")
    alone = [Workload("decode", 2, context) for context in range(21, 80)]
    steps = [compile_step(server, plan_model(one, server, asked, placed, weights="bf16")) for asked in alone]
    exact = sum(floor(step).seconds for step in steps)
    found = evaluate(server, plan).request
    assert found.decode.floor <= exact * (1 + 1e-12)
    assert found.decode.floor >= 0.5 * exact
    assert found.total.floor <= found.total.floor_sustained * (1 + 1e-12) <= found.total.expected * (1 + 1e-9)


def test_dense_models_are_stacks_of_one_layer():
    dense = Model("m", "llama", 3, 64, 4, 2, 16, 128, 100, dtype="bfloat16")
    stacked = Model("m", "llama", 3, 64, 4, 2, 16, 128, 100, dtype="bfloat16", stack=layers_of(dense))
    assert weigh(dense, "bf16") == weigh(stacked, "bf16") and dense.parameters == stacked.parameters
    one, other = (step_of(each, Workload("decode", 2, 30), hbm0=Portion("rest")) for each in (dense, stacked))
    assert loads(one, least=False) == loads(other, least=False)
