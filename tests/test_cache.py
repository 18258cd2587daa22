"""What layers keep of a sequence, in bytes that were counted by hand, and against counting position by position."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.errors import ModelError, OffloadError
from offload.models.cache import (
    Cache,
    State,
    allocated_positions,
    blocks_of,
    constant_bytes,
    growing_bytes,
    index_bytes,
    kept_positions,
    kv_bytes_per_token,
    position_bytes,
    read_bytes,
    row_bytes,
    sequence_bytes,
    states_bytes,
)
from offload.models.formats import KV_FORMATS, LATENT_FORMAT
from tests.worked_numbers import WORKED as CASES

LLAMA = Cache("full", heads=8, key_dim=128, value_dim=128)
MLA = Cache("latent", latent=512, rope=64)


def case(name: str) -> tuple[dict, dict]:
    found = next(one for one in CASES if one["id"] == name)
    return found["inputs"], found["expected"]


# --- one position ---


@pytest.mark.parametrize("name", ["W51a", "W51b", "W51c", "W51d"])
def test_bytes_of_a_token(name):
    given, expected = case(name)
    tp = given.get("tp", 1)
    if given["kind"] == "mla":
        cache = Cache("latent", latent=given["latent"], rope=given["rope"])
    else:
        cache = Cache("full", given["n_kv"], given["head_dim"], given["head_dim"])
    format = {(16, 0): "f16", (8, 4): "int8"}[given.get("elem_bits", 16), given.get("scale_bytes_per_head", 0)]
    layers = [cache] * given["layers"]
    one = sequence_bytes(layers, 1, format, tp=tp)
    assert position_bytes(cache, format) == expected["per_layer"]
    assert growing_bytes(layers, format) == expected["per_token_model"]
    assert growing_bytes(layers, format, tp=tp) == one.total == expected["per_token_per_rank"]
    assert one.all_ranks == expected["per_token_all_ranks"]


@pytest.mark.parametrize(
    ("format", "size"),
    [
        ("f16", 2 * 8 * 256), ("bf16", 2 * 8 * 256), ("f32", 2 * 8 * 512), ("fp8", 2 * 8 * 128),
        ("fp8-head", 2 * 8 * 132), ("int8", 2 * 8 * 132), ("q8_0", 2 * 8 * 4 * 34), ("q4_0", 2 * 8 * 4 * 18),
        ("int8-tensor", 2 * 8 * 128), ("nvfp4", 2 * 8 * (64 + 8)),
    ],
)  # fmt: skip
def test_every_format_of_heads(format, size):
    assert position_bytes(LLAMA, format) == size
    assert position_bytes(LLAMA, format.upper()) == size


def test_every_format_has_its_size_above():
    mark = next(mark for mark in test_every_format_of_heads.pytestmark if mark.name == "parametrize")
    assert {format for format, _ in mark.args[1]} == set(KV_FORMATS)


@pytest.mark.parametrize(
    ("format", "size"),
    [
        ("f16", 1152), ("f32", 2304), ("fp8", 576), ("q8_0", 18 * 34), ("q4_0", 18 * 18), ("nvfp4", 288 + 36),
        # 512 in 8 bits, 4 scales of 4 bytes, 64 in 16 bits: the layout that vLLM calls fp8_ds_mla.
        (LATENT_FORMAT, 512 + 4 * 4 + 2 * 64), ("fp8_ds_mla", 656),
    ],
)  # fmt: skip
def test_every_format_of_a_latent(format, size):
    assert position_bytes(MLA, format) == size
    assert position_bytes(MLA, format, tp=16) == size, "each rank holds all of it"


def test_an_indexer_keeps_keys_of_its_own():
    both = Cache("latent", latent=512, rope=64, index_dim=128)
    assert position_bytes(both) == 1152 + 256
    assert position_bytes(both, "f32") == 2304 + 512
    assert position_bytes(both, "fp8") == 576 + 132, "8 bits, and a 32-bit scale"
    assert position_bytes(both, LATENT_FORMAT) == 656 + 132
    assert position_bytes(both, "f16", index_format="fp8") == 1152 + 128
    assert position_bytes(both, tp=8) == 1152 + 256, "and so does every rank"


def test_a_token_reads_what_its_indexer_picks_and_all_keys_of_the_indexer():
    """DeepSeek V3.2: rows of 2048 positions at most, and an indexer's key of each; all of both are kept."""
    one = Cache("latent", latent=512, rope=64, index_dim=128, picks=2048)
    assert (row_bytes(one), index_bytes(one), position_bytes(one)) == (1152, 256, 1408)
    assert read_bytes([one] * 61, 2048) == 61 * 2048 * 1152, "where all are picked nothing has to be scored"
    assert read_bytes([one] * 61, 2049) == 61 * (2048 * 1152 + 2049 * 256)
    assert read_bytes([one] * 61, 131_072) == 61 * (2048 * 1152 + 131_072 * 256) == 2_190_737_408
    assert read_bytes([one], 131_072, LATENT_FORMAT) == 2048 * 656 + 131_072 * 132
    assert sequence_bytes([one] * 61, 131_072).total == 61 * 131_072 * 1408, "and all of it is kept"
    assert growing_bytes([one] * 61) == 61 * 1408
    other = replace(one, index_dim=0)  # a layer that takes the picks of one before
    assert read_bytes([other], 131_072) == 2048 * 1152
    assert index_bytes(Cache("none")) == index_bytes(replace(one, shared=True)) == 0


def test_keys_and_values_of_other_sizes():
    assert position_bytes(Cache("window", 8, 192, 128, window=128)) == 8 * (192 + 128) * 2
    assert position_bytes(Cache("full", 2, 512, one_side=True)) == 2 * 512 * 2, "the same, stored once"
    assert position_bytes(Cache("full", 8, 128, 128, shared=True)) == 0
    assert position_bytes(Cache("none")) == 0


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (3, 3), (4, 2), (5, 2), (8, 1), (9, 1), (16, 1), (64, 1)])
def test_heads_of_a_rank(tp, heads):
    assert position_bytes(LLAMA, tp=tp) == heads * 512
    assert sequence_bytes([LLAMA], 10, tp=tp).all_ranks == tp * heads * 5120


def test_the_plain_function():
    assert kv_bytes_per_token(80, 8, 128, 2) == 327_680
    assert kv_bytes_per_token(32, 32, 128, 2) == 524_288
    with pytest.raises(ModelError, match="kv_heads is 0"):
        kv_bytes_per_token(80, 0, 128, 2)
    with pytest.raises(ModelError, match="bytes is '0.5'"):
        kv_bytes_per_token(80, 8, 128, 0.5)


@pytest.mark.parametrize(
    ("cache", "format", "said"),
    [
        (Cache("full", 8, 80, 80), "q8_0", "blocks of 32; a head of 80 is no multiple"),
        (Cache("full", 8, 128, 120), "nvfp4", "blocks of 16; a head of 120"),
        (Cache("latent", latent=500, rope=64), "q4_0", "blocks of 32; a latent of 564"),
        (Cache("latent", latent=500, rope=64), LATENT_FORMAT, "blocks of 128; a latent of 500"),
        (MLA, "int8", "a latent has no heads"),
        (LLAMA, LATENT_FORMAT, "layout of latents"),
        (LLAMA, "fp16x", 'no KV cache format "fp16x".*Did you mean "fp16"'),
        (LLAMA, None, "no KV cache format"),
        (LLAMA, "", "no KV cache format"),
        (Cache("none"), "q9", "no KV cache format"),
    ],
)
def test_formats_that_do_not_fit(cache, format, said):
    with pytest.raises(ModelError, match=said):
        position_bytes(cache, format)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "windw", "heads": 1}, 'no kind of cache "windw".*Did you mean "window"'),
        ({"kind": "full", "key_dim": 8, "value_dim": 8}, "heads is 0"),
        ({"kind": "full", "heads": 8, "value_dim": 8}, "key_dim is 0"),
        ({"kind": "full", "heads": 8, "key_dim": 8}, "value_dim is 0"),
        ({"kind": "window", "heads": 8, "key_dim": 8, "value_dim": 8}, "window is 0"),
        ({"kind": "latent", "rope": 64}, "latent is 0"),
        ({"kind": "full", "heads": -1, "key_dim": 8, "value_dim": 8}, "heads is -1"),
        ({"kind": "full", "heads": 8.0, "key_dim": 8, "value_dim": 8}, "heads is '8.0'"),
        ({"kind": "full", "heads": 1, "key_dim": 8, "value_dim": 16, "one_side": True}, "not stored once"),
    ],
)
def test_caches_that_no_layer_has(values, said):
    with pytest.raises(ModelError, match=said):
        Cache(**values)


@pytest.mark.parametrize("values", [{"elements": -1}, {"conv": 1.5}, {"element_bytes": 0}, {"conv_bytes": 9}])
def test_states_that_no_layer_has(values):
    with pytest.raises(ModelError, match="state, "):
        State(**values)


@pytest.mark.parametrize("tp", [0, -1, 1.0, True])
def test_ranks_that_there_are_not(tp):
    with pytest.raises(ModelError, match=r"ranks \(tp\)"):
        position_bytes(LLAMA, tp=tp)
    with pytest.raises(ModelError, match=r"ranks \(tp\)"):
        states_bytes([State(8)], tp)


# --- positions ---


def test_positions_of_a_window_and_a_chunk():
    window, chunk = Cache("window", 1, 8, 8, window=100), Cache("chunk", 1, 8, 8, window=100)
    for context, kept in ((0, 0), (1, 1), (99, 99), (100, 100), (101, 100), (10**6, 100)):
        assert kept_positions(window, context) == kept_positions(chunk, context) == kept
        assert kept_positions(LLAMA, context) == kept_positions(MLA, context) == context
        assert kept_positions(Cache("none"), context) == 0


def test_blocks_of_a_window():
    given, expected = case("W54")
    window = Cache("window", 8, 128, 128, window=given["window"])
    assert kept_positions(window, given["context"]) == expected["steady_decode_tokens"]
    batched, context, block = given["max_batched_tokens"], given["context"], given["block"]
    assert min(given["window"] - 1 + batched, context) == expected["tokens"]
    held = allocated_positions(window, context, block=block, batched=batched)
    assert held == expected["blocks"] * block


def test_blocks_of_other_kinds():
    chunk = Cache("chunk", 8, 128, 128, window=1024)
    assert allocated_positions(chunk, 131_072, block=16, batched=8192) == 1024 + 8192
    assert allocated_positions(chunk, 2000, block=16, batched=8192) == 2000
    assert allocated_positions(chunk, 2001, block=16, batched=8192) == 2016
    assert allocated_positions(LLAMA, 8200, block=16) == 513 * 16
    assert allocated_positions(Cache("none"), 8200, block=16) == 0
    assert allocated_positions(Cache("window", 1, 8, 8, window=10), 0, block=16) == 0
    assert allocated_positions(Cache("window", 1, 8, 8, window=10), 100, block=1) == 10, "begins inside no block"


# --- whole sequences ---


def test_gemma_3_27b_has_ten_layers_that_grow():
    """Sliding layers keep 1024 positions of 8192 B; a long context is paid for in one layer of six."""
    each = {"heads": 16, "key_dim": 128, "value_dim": 128}
    layers = [Cache("full", **each)] * 10 + [Cache("window", **each, window=1024)] * 52
    assert growing_bytes(layers) == 10 * 8192
    assert constant_bytes(layers) == 52 * 8192 * 1024
    short, long = sequence_bytes(layers, 1000), sequence_bytes(layers, 131_072)
    assert (short.growing, short.limited) == (10 * 8192 * 1000, 52 * 8192 * 1000)
    assert long.total == 10 * 8192 * 131_072 + 52 * 8192 * 1024
    assert long.limited == constant_bytes(layers)


@pytest.mark.parametrize(("layers", "sharing", "stored"), [(80, 1, 80), (80, 2, 40), (80, 3, 27), (5, 8, 1)])
def test_layers_that_share_a_cache_store_one_for_each_group(layers, sharing, stored):
    """Cross-layer sharing by `sharing`: ceil(layers / sharing) caches are kept, and every layer reads."""
    stack = [replace(LLAMA, shared=index % sharing > 0) for index in range(layers)]
    assert growing_bytes(stack) == stored * 4096 == -(-layers // sharing) * 4096
    assert sequence_bytes(stack, 100, block=16).total == stored * 4096 * 112
    assert read_bytes(stack, 100) == layers * 4096 * 100


def test_a_hybrid_grows_in_its_attention_layers_alone():
    """Jamba: 4 attention layers of 32; the others keep a state, whatever the length."""
    state = State(elements=8192 * 16, conv=8192 * 3)
    layers, states = [LLAMA] * 4 + [Cache("none")] * 28, [state] * 28
    assert growing_bytes(layers) == 4 * 4096
    one = sequence_bytes(layers, 1, states=states)
    assert one.states == 28 * (8192 * 16 * 4 + 8192 * 3 * 2) == constant_bytes(layers, states=states)
    assert sequence_bytes(layers, 50_000, states=states).total - one.total == 49_999 * 4 * 4096
    assert states_bytes(states, 8) * 8 == one.states
    assert states_bytes([State(10, conv=5)], 4) == 3 * 4 + 2 * 2, "ranks that share unevenly hold the larger part"


def test_what_is_read_is_not_what_is_kept():
    own, other = Cache("full", 2, 512, one_side=True), Cache("full", 2, 512, one_side=True, shared=True)
    assert sequence_bytes([own, other], 100).total == 100 * 2048
    assert read_bytes([own, other], 100) == 2 * 100 * 2048
    assert not other.grows and own.grows
    assert read_bytes([Cache("window", 1, 8, 8, window=10)], 100, states=[State(4)]) == 10 * 32 + 16


def test_paging_rounds_each_layer_up():
    layers = [LLAMA] * 2 + [Cache("window", 8, 128, 128, window=64)]
    paged = sequence_bytes(layers, 100, block=16)
    assert paged.growing == 2 * 4096 * 112
    assert paged.limited == 4096 * (4 + 1) * 16
    assert sequence_bytes(layers, 100, block=16, batched=100).limited == 4096 * (7 + 1) * 16


# --- in general ---

sizes = st.integers(1, 40)
caches = st.one_of(
    st.builds(Cache, st.just("full"), sizes, sizes, sizes),
    st.builds(Cache, st.sampled_from(["window", "chunk"]), sizes, sizes, sizes, sizes),
    st.builds(Cache, st.just("latent"), latent=sizes, rope=sizes, index_dim=st.integers(0, 9)),
    st.just(Cache("none")),
)
states = st.builds(State, st.integers(0, 100), st.sampled_from([2, 4]), st.integers(0, 100))


def positions_by_hand(cache: Cache, context: int) -> int:
    if cache.kind in ("window", "chunk"):
        return len(range(max(0, context - cache.window), context))
    return 0 if cache.kind == "none" else context


@given(st.lists(caches, max_size=5), st.lists(states, max_size=3), st.integers(0, 100), st.integers(1, 9))
def test_a_sequence_is_the_sum_over_layers_ranks_and_positions(layers, kept, context, tp):
    by_hand = 0
    for cache in layers:
        for _ in range(positions_by_hand(cache, context)):
            heads = max(len(range(rank, cache.heads, tp)) for rank in range(tp))  # dealt out in turn
            by_hand += 2 * (heads * (cache.key_dim + cache.value_dim) + cache.latent + cache.rope + cache.index_dim)
    by_hand += sum(-(-one.elements // tp) * one.element_bytes + -(-one.conv // tp) * one.conv_bytes for one in kept)
    found = sequence_bytes(layers, context, states=kept, tp=tp)
    assert found.total == by_hand
    assert found.all_ranks == tp * found.total >= sequence_bytes(layers, context, states=kept).total
    assert found.total == read_bytes(layers, context, states=kept, tp=tp), "nothing is shared here"


@given(st.lists(caches, max_size=5), st.integers(0, 200), st.integers(1, 40), st.integers(1, 50))
def test_allocation_holds_what_is_kept_in_steps_of_a_block(layers, context, block, batched):
    exact = sequence_bytes(layers, context)
    paged = sequence_bytes(layers, context, block=block, batched=batched)
    longer = sequence_bytes(layers, context + 1, block=block, batched=batched)
    assert exact.growing <= paged.growing < exact.growing + block * max(growing_bytes(layers), 1)
    assert exact.limited <= paged.limited
    assert paged.total <= longer.total, "never less for a longer sequence"
    assert longer.growing - paged.growing in (0, block * growing_bytes(layers))
    for cache in layers:
        held = allocated_positions(cache, context, block=block, batched=batched)
        assert held % block == 0 and held >= kept_positions(cache, context)


@given(caches, st.sampled_from(sorted(KV_FORMATS)), st.integers(1, 20))
def test_more_ranks_hold_no_more_each_and_no_less_together(cache, format, tp):
    try:
        one = position_bytes(cache, format)
    except OffloadError:
        return
    rank = position_bytes(cache, format, tp=tp)
    assert rank <= one <= tp * rank


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_blocks_hold_all_and_waste_less_than_one(positions, block):
    assert positions <= blocks_of(positions, block) * block < positions + block
