"""What is left of a memory for KV, and how far it reaches: sums by hand, and against trying every number."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import ModelError
from offload.models import catalogue, kv_bytes, memory_budget, weigh
from offload.models.budget import block_budget, positions
from offload.models.cache import Cache, State, kv_bytes_per_token
from offload.models.levers import lever, levers, longest_context, reaches
from offload.models.serving import (
    LayerBytes,
    Serving,
    Sizes,
    activation_estimate,
    alignment_bytes,
    host_lines,
    power_of_two_bytes,
    serving_budget,
    stage_layers,
)
from tests.worked_numbers import WORKED as CASES

FULL = Cache("full", 8, 128, 128)
LLAMA = catalogue["llama-3.1-70b"]


# --- positions and blocks ---


def test_the_textbook_budget():
    each = kv_bytes_per_token(80, 8, 128, 2)
    assert each == 80 * kv_bytes(LLAMA) == 327_680
    assert positions(14 * 10**9, each) == 42_724
    twenty, eighteen = (memory_budget(14 * 10**9, each, context=2000, requests=n) for n in (20, 18))
    assert f"{twenty.left_share:.3f} {eighteen.left_share:.3f}" == "0.064 0.157"
    assert twenty.used == 20 * 2000 * each, "count x length x bytes is the true sum where all are alike and no block"


@pytest.mark.parametrize("name", ["W52", "W53"])
def test_sequences_in_blocks(name):
    found = next(one for one in CASES if one["id"] == name)
    given, expected = found["inputs"], found["expected"]
    budget = block_budget(given["kv_bytes_available"], given["per_token_per_rank"], block=given["block"],
                          context=given["context"], shared_prefix=given.get("shared_prefix", 0))  # fmt: skip
    assert (budget.block_bytes, budget.blocks, budget.private_blocks, budget.shared_blocks, budget.sequences,
            budget.waste) == tuple(expected[key] for key in (
                "block_bytes", "blocks_total", "blocks_per_seq_private", "shared_blocks", "max_sequences",
                "waste_tokens"))  # fmt: skip


@given(st.integers(1, 10**6), st.integers(1, 50), st.integers(1, 20), st.integers(2, 300), st.data())
def test_sequences_by_dealing_out_blocks(available, each, block, context, data):
    prefix = data.draw(st.integers(0, context - 1))
    budget = block_budget(available, each, block=block, context=context, shared_prefix=prefix)
    left = available // (block * each) - prefix // block
    count = 0
    while left >= -(-context // block) - prefix // block:
        left -= -(-context // block) - prefix // block
        count += 1
    assert budget.sequences == count
    alone = block_budget(available, each, block=block, context=context)
    assert alone.sequences == memory_budget(available, each, context=-(-context // block) * block).requests
    assert 0 <= alone.waste < block


def test_blocks_that_are_not():
    assert block_budget(100, 1, block=16, context=200, shared_prefix=199).sequences == 0
    for values, said in (({"block": 0}, "block is 0"), ({"context": 0}, "context is 0"),
                         ({"shared_prefix": -1}, "shared prefix is -1"), ({"shared_prefix": 50}, "leaves none"),
                         ({"block": 1.5}, "block is '1.5'")):  # fmt: skip
        with pytest.raises(ModelError, match=said):
            block_budget(100, 1, **{"block": 16, "context": 50, **values})
    with pytest.raises(ModelError, match="bytes_per_position is 0"):
        positions(10, 0)


# --- weights of a rank ---


@pytest.mark.parametrize(
    ("layers", "pp", "counts"),
    [(80, 1, (80,)), (80, 4, (20,) * 4), (10, 4, (2, 3, 3, 2)), (61, 4, (15, 15, 16, 15)), (7, 4, (2, 2, 2, 1)),
     (5, 5, (1,) * 5), (9, 5, (2, 2, 2, 2, 1))],
)  # fmt: skip
def test_layers_of_each_stage(layers, pp, counts):
    assert stage_layers(layers, pp) == counts


@given(st.integers(1, 500), st.integers(1, 40))
def test_stages_hold_all_layers_as_evenly_as_they_can(layers, pp):
    if pp > layers:
        with pytest.raises(ModelError, match=r"stages \(pp\)"):
            stage_layers(layers, pp)
        return
    counts = stage_layers(layers, pp)
    assert len(counts) == pp and sum(counts) == layers and max(counts) - min(counts) <= 1
    assert counts[-1] == min(counts), "the last has the head besides"


def test_a_layer_on_a_rank():
    layer = LayerBytes(split=1001, whole=7, experts=10, expert_bytes=101)
    assert layer.on_rank(1, 1) == 1001 + 7 + 1010
    assert layer.on_rank(4, 1) == 251 + 7 + 10 * 26
    assert layer.on_rank(4, 4) == 251 + 7 + 3 * 101, "the fullest rank has three experts"
    assert layer.on_rank(1, 20) == 1001 + 7 + 101


SMALL = Serving(1000, (LayerBytes(100, cache=Cache("full", 1, 1, 1)),) * 2, block=1, context=10, requests=2, chunk=1)


def test_lines_add_up_to_what_is_left():
    asked = replace(
        SMALL, embedding=50, head=30, overhead=1, communication=2, graphs=3, allocator=4, reserve=5, alignment=6,
        duplicates=7, usable=Fraction(95, 100), sizes=Sizes(hidden=2, queries=2, keys=1, ffn=4, vocab=5),
    )  # fmt: skip
    budget = serving_budget(asked).tightest
    activations = 2 * (2 * 2 + max(2 + 2 * 1, 2 * 4)) * 2 + 2 * 5 * 4
    assert {line.what: line.bytes for line in budget.lines} == {
        "weights of layers": 200, "embedding": 50, "output head": 30, "activations": activations,
        "not used by the engine": 50, "scales and repacked copies of weights": 1, "communication buffers": 2,
        "captured graphs": 3, "allocator's reservation": 4, "alignment": 6, "duplicates": 7, "reserve": 5,
    }  # fmt: skip
    assert [line.what for line in budget.lines if line.kind == "estimate"] == ["activations"]
    assert budget.left == 1000 - 200 - 50 - 30 - activations - 50 - 28
    assert budget.growing == 2 * 4 and budget.positions == budget.left // 8
    assert budget.used == 2 * 10 * 8 and budget.free == budget.left - 160
    assert budget.free_share == budget.free / budget.left
    assert budget.requests == budget.left // 80


def test_a_tied_head_is_copied_to_the_last_stage():
    def lines(**values) -> list[dict[str, int]]:
        ranks = serving_budget(replace(SMALL, embedding=51, **values)).ranks
        return [{line.what: line.bytes for line in rank.lines if "embedding" in line.what or "head" in line.what}
                for rank in ranks]  # fmt: skip

    assert lines(head=None) == [{"embedding": 51}]
    assert lines(head=None, pp=2) == [{"embedding": 51}, {"copy of the tied embedding": 51}]
    assert lines(head=40, pp=2, tp=2) == [{"embedding": 26}, {"output head": 20}]


def test_the_tightest_rank_decides():
    """80 layers do not share three stages evenly, and the first has the embedding besides."""
    weights = weigh(LLAMA, "bf16")
    layers = tuple(LayerBytes(size, cache=FULL) for size in weights.layers)
    asked = Serving(80 * 10**9, layers, weights.embedding, weights.head, pp=3, context=8192)
    ranks = serving_budget(asked).ranks
    each = weights.layers[0]
    assert [rank.layers for rank in ranks] == [(0, 26), (27, 53), (54, 79)]
    assert [rank.left for rank in ranks] == [80 * 10**9 - 27 * each - weights.embedding, 80 * 10**9 - 27 * each,
                                             80 * 10**9 - 26 * each - weights.head]  # fmt: skip
    assert [rank.growing for rank in ranks] == [27 * 4096, 27 * 4096, 26 * 4096]
    assert serving_budget(asked).tightest.stage == 0
    assert not serving_budget(replace(asked, pp=1)).fits, "141 GB are not in 80"


def test_ranks_share_heads_and_latents_do_not():
    llama = replace(SMALL, capacity=10**9, layers=(LayerBytes(0, cache=FULL),) * 80)
    assert [serving_budget(replace(llama, tp=tp)).tightest.growing for tp in (1, 2, 8, 16)] == [
        327_680, 163_840, 40_960, 40_960,
    ]  # fmt: skip
    latent = replace(llama, layers=(LayerBytes(0, cache=Cache("latent", latent=512, rope=64)),) * 61)
    assert [serving_budget(replace(latent, tp=tp)).tightest.growing for tp in (1, 8)] == [70_272, 70_272]


def test_blocks_and_prefix_as_in_the_worked_example():
    asked = Serving(42_949_672_960, (LayerBytes(0, cache=FULL),) * 80, tp=8, block=16, context=8192, requests=255,
                    shared_prefix=4100, chunk=1)  # fmt: skip
    budget = serving_budget(asked).tightest
    assert (budget.positions, budget.blocks, budget.requests) == (65_536 * 16, 65_536, 255)
    assert budget.shared == 256 * 655_360 and budget.free >= 0
    assert not serving_budget(replace(asked, requests=256)).fits
    assert serving_budget(replace(asked, context=8200, shared_prefix=0)).tightest.requests == 127


def test_windows_and_states_are_paid_by_each_request():
    window, state = Cache("window", 1, 1, 1, window=20), State(elements=10)
    layers = (LayerBytes(0, cache=Cache("full", 1, 1, 1)), LayerBytes(0, cache=window), LayerBytes(0, state=state))
    asked = Serving(10_000, layers, block=1, context=100, requests=3, chunk=8)
    budget = serving_budget(asked).tightest
    assert (budget.growing, budget.fixed) == (4, 20 * 4 + 40)
    assert [line for line in budget.lines if "windows" in line.what][0].bytes == 7 * 4, "once, for one step's chunk"
    assert budget.left == 10_000 - 28
    assert budget.positions == (9972 - 3 * 120) // 4 and budget.requests == 9972 // (400 + 120)
    assert budget.used == 3 * 520


def test_a_model_whose_state_does_not_grow():
    asked = Serving(1000, (LayerBytes(100, state=State(elements=25)),), block=16, context=10**6, requests=3)
    budget = serving_budget(asked).tightest
    assert budget.positions is None and budget.blocks is None and budget.requests == 9
    assert longest_context(asked) is None
    assert {one.what: one.most for one in reaches(asked)} == {"requests": 9, "context": None, "chunk": None}
    nothing = Serving(1000, (LayerBytes(100),))
    assert serving_budget(nothing).tightest.requests is None and serving_budget(nothing).fits
    assert not serving_budget(replace(nothing, capacity=99)).fits


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"capacity": 0}, "capacity is 0"),
        ({"capacity": 8e10}, "capacity is '80000000000.0'"),
        ({"layers": ()}, "layers is 0"),
        ({"tp": 0}, "tp is 0"),
        ({"pp": 3}, r"stages \(pp\) is 3"),
        ({"pp": 2, "stages": (2, 0)}, "stages of 2, 0 layers"),
        ({"pp": 2, "stages": (1,)}, "stages of 1 layers"),
        ({"requests": 0}, "requests is 0"),
        ({"reserve": -1}, "reserve is -1"),
        ({"usable": 0.9}, "usable share is 0.9"),
        ({"usable": Fraction(11, 10)}, "usable share is 11/10"),
        ({"shared_prefix": 10}, "leaves none"),
        ({"head": -1}, "head is -1"),
    ],
)
def test_amounts_that_no_memory_has(values, said):
    with pytest.raises(ModelError, match=said):
        replace(SMALL, **values)


# --- estimates and roundings ---


def test_the_estimate_of_activations():
    llama = Sizes(hidden=8192, queries=8192, keys=1024, ffn=28_672, vocab=128_256)
    by_hand = 2048 * (2 * 8192 + 2 * 28_672) * 2 + 16 * 128_256 * 4
    assert activation_estimate(llama, 2048, 16) == by_hand == 310_198_272
    assert activation_estimate(llama, 2048, 0, tp=8) == 2048 * (2 * 8192 + 10_240) * 2, "attention is the wider now"
    assert activation_estimate(llama, 4096, 0) == 2 * activation_estimate(llama, 2048, 0)


def test_roundings_of_allocators():
    assert alignment_bytes([1, 512, 513], 512) == 511 + 511
    assert alignment_bytes([], 512) == alignment_bytes([0], 512) == 0
    # 8.7 GB pinned took 16.4 GiB in PyTorch (github.com/pytorch/pytorch/issues/95823): 2^34 B.
    size = 2 * 4_347_592_704
    assert power_of_two_bytes([size]) == 2**34 - size
    assert power_of_two_bytes([1, 2, 4, 0]) == 0 and power_of_two_bytes([3, 5]) == 1 + 3


def test_lines_of_the_host():
    lines = {line.what: line.bytes for line in host_lines([5000, 4096], mapped=True, power_of_two=True, copies=2)}
    assert lines == {
        "offloaded tensors": 9096, "copies for 1 more socket": 9096,
        "rounding of pinned buffers to powers of two": 2 * 3192,
        "page cache of the mapped file, beside the pinned copy": 9096,
    }  # fmt: skip
    assert [line.bytes for line in host_lines([5000], pinned=False, mapped=True)] == [5000, 3192]


# --- how far it reaches, and what would change it ---


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.integers(40, 700), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9), st.integers(0, 30),
    st.booleans(),
)  # fmt: skip
def test_reaches_by_trying_every_number(capacity, context, requests, block, window, sized):
    caches = [Cache("full", 1, 1, 1), Cache("window", 1, 1, 1, window=window) if window else Cache("none")]
    sizes = Sizes(1, 1, 1, 1, 1) if sized else None
    asked = Serving(capacity, tuple(LayerBytes(20, cache=one) for one in caches), sizes=sizes, block=block,
                    context=context, requests=requests, chunk=3)  # fmt: skip
    for found in reaches(asked):
        fitting = [n for n in range(1, 190) if serving_budget(replace(asked, **{found.what: n})).fits]
        if found.most is None:
            assert len(fitting) == 189
        else:
            assert fitting == list(range(1, found.most + 1))
    ratios = [one.ratio for one in reaches(asked) if one.ratio is not None]
    assert ratios == sorted(ratios, reverse=not serving_budget(asked).fits)
    alone = longest_context(asked)
    assert alone is None or alone == {one.what: one.most for one in reaches(replace(asked, requests=1))}["context"]


def test_what_would_change_it():
    asked = Serving(40_960 * 1000, (LayerBytes(8192 * 1000, cache=FULL),) * 4, block=16, context=512, requests=1,
                    chunk=1)  # fmt: skip
    assert serving_budget(asked).tightest.positions == 8192 * 1000 // 16_384 == 500
    found = levers(asked, lighter={"layers": (LayerBytes(4096 * 1000, cache=FULL),) * 4}, lighter_words="fp8")
    assert [(one.what, one.positions, one.positions_gained) for one in found] == [
        ("KV cache in fp8", 1000, 500),
        ("weights in fp8", 1500, 1000),
        ("tensor-parallel over 2 GPUs", 24_576 * 1000 // 8192, 2500),
    ]
    assert [one.requests_gained for one in found] == [1, 2, 5]
    shared = levers(replace(asked, context=160, requests=3), prefix=100)[1]
    assert (shared.positions_gained, shared.positions, shared.requests) == (2 * 96, 692, (500 * 16_384 - 96 * 16_384)
                                                                           // (64 * 16_384))  # fmt: skip
    assert [one.what for one in levers(replace(asked, format="q8_0"))] == ["tensor-parallel over 2 GPUs"]


def test_a_lever_that_cannot_be_moved_says_why():
    odd = replace(SMALL, layers=(LayerBytes(1, cache=Cache("full", 1, 80, 80)),))
    refused = lever(odd, "KV in q8_0", format="q8_0")
    assert refused.positions is None and "blocks of 32; a head of 80" in refused.reason


def test_no_tensor_parallel_rank_is_gained_by_a_latent_cache():
    latent = replace(SMALL, layers=(LayerBytes(0, cache=Cache("latent", latent=512, rope=64)),) * 2, capacity=10**6)
    assert lever(latent, "", tp=8).positions_gained == 0
    assert lever(replace(latent, layers=(LayerBytes(0, cache=FULL),) * 2), "", tp=8).positions_gained > 0
