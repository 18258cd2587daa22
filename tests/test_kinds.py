"""Passes over layers of several kinds, by hand: windows, chunks, latents, states, experts, shared caches."""

from __future__ import annotations

import pytest

from offload import evaluate
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.models import Cache, Layer, Matrix, Model, State, layers_of, weigh
from offload.step import loads
from tests.boxes import box

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
        assert loads(step, least=True)["gpu0.flops"] == 5 * 2 * 64 * HIDDEN + pairs + 2 * VOCAB * HIDDEN


@pytest.mark.parametrize("kind", ["window", "chunk", "full"])
def test_the_floor_of_a_request_is_no_more_than_its_steps(kind):
    """What a window sees is not convex in the context, so the mean context alone would prove too much."""
    cache = FULL if kind == "full" else Cache(kind, 2, 16, 16, window=40)
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
