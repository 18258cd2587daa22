"""Models as what they cost: published counts, FLOP, names, and laws of sizes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import ModelError, OffloadError
from offload.models import (
    WEIGHT_FORMATS,
    Model,
    attention_flops,
    catalogue,
    head_flops,
    kv_bytes,
    layer_flops,
    memory_budget,
    parse_model_name,
    tensors,
    weigh,
)
from offload.models.architecture import Matrix
from offload.models.families import model_of
from offload.models.formats import KV_FORMATS

LLAMA_70B = catalogue["llama-3.1-70b"]
LLAMA_8B = catalogue["llama-3.1-8b"]


SHAPES = json.loads((Path(__file__).parent / "data" / "published_shapes.json").read_text(encoding="utf-8"))


def changed(model: Model, **values) -> Model:
    return dataclasses.replace(model, **values)


# --- parameters ---

# The total of each checkpoint's tensors as published with it; of the four OPT, for which none is, by their shape.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_248_023_552,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-4b": 4_300_079_472,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-27b": 27_432_406_640,
    "phi-3-mini": 3_821_079_552,
    "opt-6.7b": 6_658_473_984,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504,
    "opt-175b": 174_604_468_224,
    "bloom-176b": 176_247_271_424,
    "falcon-7b": 7_217_189_760,
    "falcon-40b": 41_835_970_560,
    "falcon-180b": 179_522_565_120,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 684_489_845_504,
    "deepseek-r1": 684_489_845_504,
    "deepseek-v3.2": 685_355_329_792,
    "kimi-k2": 1_026_408_232_448,
    "glm-4.5-air": 110_468_824_832,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "jamba-1.5-mini": 51_570_323_328,
}


def test_every_model_of_the_catalogue_has_its_published_parameters():
    assert {name: model.parameters_stored for name, model in catalogue.items()} == PUBLISHED


def test_opt_has_the_parameters_of_its_papers_names():
    """6.7, 30, 66 and 175 billion, as the paper calls them: layers and hidden size give 12 L h^2 and the tables."""
    for name, layers, hidden, billions in [("opt-6.7b", 32, 4096, 6.7), ("opt-30b", 48, 7168, 30),
                                           ("opt-66b", 64, 9216, 66), ("opt-175b", 96, 12288, 175)]:  # fmt: skip
        vectors = layers * 13 * hidden + 2 * hidden  # biases of four projections, of the feed-forward, two norms
        tables = (50_272 + 2050) * hidden
        assert PUBLISHED[name] == 12 * layers * hidden**2 + vectors + tables
        assert PUBLISHED[name] == pytest.approx(billions * 1e9, rel=0.01)


# With what is stored besides: modules of multi-token prediction. The total of each published checkpoint.
STORED = {
    "glm-4.5": (352_797_829_024, 358_337_791_296),
    "glm-5.3": (743_377_019_904, 753_329_940_480),
    "qwen3-next-80b-a3b": (79_674_391_296, 81_324_862_720),
    "phi-4": (14_659_507_200, 14_659_507_200),
    "phi-4-mini": (3_836_021_760, 3_836_021_760),
    "granite-4.0-h-small": (32_207_337_984, 32_207_337_984),
    "nemotron-nano-9b-v2": (8_888_227_328, 8_888_227_328),
}


@pytest.mark.parametrize("name", STORED)
def test_published_totals_with_what_is_stored_besides(name):
    """Shapes of many kinds that no sample holds; a module of prediction is counted, and counted apart."""
    read = model_of(SHAPES[name], name, weights_known=True)
    assert (read.parameters, read.parameters_stored) == STORED[name]
    assert bool(read.further) == (read.parameters != read.parameters_stored)


def test_modules_of_prediction_have_tables_of_their_own_or_not():
    """DeepSeek and GLM-4.5 store copies of embedding and head with theirs; GLM-5 and Qwen share the model's."""
    models = {name: model_of(SHAPES[name], name) for name in ("glm-4.5", "glm-5.3", "qwen3-next-80b-a3b")}
    models |= {name: catalogue[name] for name in ("deepseek-v3.2", "glm-4.5-air")}
    assert models["deepseek-v3.2"].parameters == 671_877_944_064
    assert models["glm-4.5-air"].parameters == 106_852_251_264
    roles = {name: {one.role for one in read.further[0].matrices} for name, read in models.items()}
    assert {name: {"embedding", "head"} <= found for name, found in roles.items()} == {
        "deepseek-v3.2": True, "glm-4.5": True, "glm-4.5-air": True, "glm-5.3": False, "qwen3-next-80b-a3b": False}
    assert all("predict" in found for found in roles.values())


def test_every_model_of_the_catalogue_has_a_source():
    for name, model in catalogue.items():
        assert model.name == name and catalogue.source(name).startswith("https://")
        assert not {"source", "checked"} & set(catalogue.config(name))
        assert "config" in catalogue.checked(name) or "total" in catalogue.checked(name)
    weaker = [name for name in catalogue if "the total of its checkpoint" not in catalogue.checked(name)]
    assert weaker == ["opt-6.7b", "opt-30b", "opt-66b", "opt-175b"]
    assert catalogue["deepseek-r1"].stack == catalogue["deepseek-v3"].stack
    with pytest.raises(KeyError):
        catalogue["mine"]


@pytest.mark.parametrize(
    "model, parameters",
    [
        (Model("llama-3.1-405b", "llama", 126, 16384, 128, 8, 128, 53248, 128256), 405_853_388_800),
        (Model("llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, tied=True), 1_235_814_400),
        (Model("qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, tied=True, qkv_bias=True), 494_032_768),
        (Model("qwen2.5-72b", "qwen2", 80, 8192, 64, 8, 128, 29568, 152064, qkv_bias=True), 72_706_203_648),
        (Model("qwen3-32b", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, qk_norm=True), 32_762_123_264),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_tied_heads_biases_and_norms_are_counted_as_published(model, parameters):
    assert model.parameters == parameters


def test_each_bias_and_norm_adds_its_length():
    plain = Model("m", "llama", 3, 32, 4, 2, 16, 64, 100)
    assert plain.parameters == 3 * (2 * 64 * 32 + 2 * 32 * 32 + 3 * 64 * 32 + 2 * 32) + 2 * 100 * 32 + 32
    for values, added in [
        ({"tied": True}, -100 * 32),
        ({"qkv_bias": True}, 3 * (64 + 32 + 32)),
        ({"out_bias": True}, 3 * 32),
        ({"mlp_bias": True}, 3 * (64 + 64 + 32)),
        ({"qk_norm": True}, 3 * (16 + 16)),
    ]:
        assert changed(plain, **values).parameters == plain.parameters + added, values


@pytest.mark.parametrize("bits, size", [(16, 140e9), (8, 70e9), (4, 35e9)])
def test_seventy_billion_parameters_at_16_8_and_4_bits(bits, size):
    assert 70 * 10**9 * bits // 8 == size
    # A matrix of 70e9 weights in the formats themselves; int4 and q8_0 add their scales to the bare bits.
    matrix = Matrix("ffn_up", 0, 70_000 * 1000, 1000)
    bare = {16: "bf16", 8: "fp8"}
    if bits in bare:
        scale = 4 if bits == 8 else 0  # of the tensor
        assert WEIGHT_FORMATS[bare[bits]].rule(LLAMA_70B, matrix, {}) == size + scale


# --- FLOP ---


def test_flop_are_two_for_each_weight_that_multiplies():
    layer = LLAMA_70B.hidden * (2 * 64 * 128 + 2 * 8 * 128 + 3 * 28672)
    assert layer_flops(LLAMA_70B) == 2 * layer == 1_711_276_032
    assert layer_flops(changed(LLAMA_70B, qkv_bias=True, qk_norm=True)) == 2 * layer
    assert attention_flops(LLAMA_70B) == 4 * 64 * 128
    assert head_flops(LLAMA_70B) == 2 * 8192 * 128256
    assert head_flops(changed(LLAMA_70B, tied=True)) == head_flops(LLAMA_70B)


# --- what a model may be ---


@pytest.mark.parametrize(
    "values, named",
    [
        ({"layers": 0}, "layers is 0"),
        ({"layers": 100_001}, "100,001 layers"),
        ({"hidden": -1}, "hidden is -1"),
        ({"hidden": 4096.0}, "hidden is '4096.0'"),
        ({"vocab": True}, "vocab is 'True'"),
        ({"ffn": 10**5000}, "ffn is far too large"),
        ({"heads": "32"}, "heads is '32'"),
        ({"kv_heads": 3}, "32 heads do not share 3 KV heads"),
        ({"kv_heads": 64}, "32 heads do not share 64 KV heads"),
        ({"head_dim": None}, "head_dim is 'None'"),
    ],
)
def test_sizes_that_no_model_has(values, named):
    with pytest.raises(ModelError) as error:
        changed(LLAMA_8B, **values)
    assert named in str(error.value)


# --- names ---


@pytest.mark.parametrize(
    "text, name, format",
    [
        ("llama-3.1-70b", "llama-3.1-70b", None),
        ("llama-3.1-70b:q4_k_m", "llama-3.1-70b", "q4_k_m"),
        (" Llama-3.1-70B:Q4_K_M ", "llama-3.1-70b", "q4_k_m"),
        ("qwen2.5-7b: fp16", "qwen2.5-7b", "fp16"),
        ("qwen3-8b:f16", "qwen3-8b", "fp16"),
        ("mistral-nemo-12b:int4", "mistral-nemo-12b", "int4-g128"),
    ],
)
def test_model_names(text, name, format):
    assert parse_model_name(text) == (name, format)


@pytest.mark.parametrize(
    "text, said",
    [
        ("llama-3.1-70", 'Did you mean "llama-3.1-70b"'),
        ("", 'no model ""'),
        ("gpt-5", "config.json"),
        ("llama-3.1-70b:", 'no weight format ""'),
        ("llama-3.1-70b:q4_k_n", 'Did you mean "q4_k_'),
        ("llama-3.1-70b:q4_k_m:x", 'no weight format "q4_k_m:x"'),
    ],
)
def test_names_that_are_not_known(text, said):
    with pytest.raises(ModelError) as error:
        parse_model_name(text)
    assert said in str(error.value)


def test_the_catalogue_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        catalogue["mine"] = LLAMA_8B
    with pytest.raises(dataclasses.FrozenInstanceError):
        LLAMA_8B.layers = 1


# --- laws ---


@st.composite
def models(draw) -> Model:
    kv_heads = draw(st.integers(1, 8))
    size = st.integers(1, 40).flatmap(lambda n: st.sampled_from([n, 32 * n, 128 * n, 256 * n]))
    flags = {key: draw(st.booleans()) for key in ("tied", "qkv_bias", "out_bias", "mlp_bias", "qk_norm")}
    return Model(
        name="drawn", family=draw(st.sampled_from(["llama", "mistral", "qwen2", "qwen3"])),
        layers=draw(st.integers(1, 90)), hidden=draw(size), heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads, head_dim=draw(size), ffn=draw(size), vocab=draw(size), **flags,
    )  # fmt: skip


@given(models())
def test_parameters_are_the_sum_of_the_tensors(model):
    assert model.parameters == sum(one.parameters for one in tensors(model))
    assert sum(one.role == "head" for one in tensors(model)) == (not model.tied)


@given(models(), st.sampled_from(sorted(WEIGHT_FORMATS)))
def test_weights_are_the_sum_of_the_tensors(model, format):
    weights = weigh(model, format)
    rule = WEIGHT_FORMATS[format].rule
    stored = [dataclasses.replace(one, role="head") if model.tied and one.role == "embedding" else one
              for one in tensors(model)]
    assert weights.total == sum(rule(model, one, {}) for one in stored)
    assert len(weights.layers) == model.layers
    assert all(isinstance(size, int) and size > 0 for size in (*weights.layers, weights.head, weights.embedding))
    assert weights.embedding == model.vocab * weights.embedding_row
    if WEIGHT_FORMATS[format].packing is None:  # scales of groups of a few weights cost more than they
        assert 1.5 < weights.bits_per_weight <= 32


@given(models(), st.sampled_from(sorted(WEIGHT_FORMATS)), st.integers(1, 300))
def test_a_wider_feed_forward_never_weighs_less(model, format, more):
    """In formats that keep a tensor's type; llama.cpp's and MLX's depends on whether blocks divide a row."""
    if WEIGHT_FORMATS[format].mixture or format.startswith("mlx"):
        more *= 256
    wider = changed(model, ffn=model.ffn + more)
    assert wider.parameters > model.parameters
    assert weigh(wider, format).total > weigh(model, format).total


@settings(max_examples=30)
@given(models())
def test_formats_keep_their_order(model):
    names = ("fp8", "bf16", "fp16", "fp32", "int8")
    total = {format: weigh(model, format).total for format in names}
    scales = 4 * 7 * model.layers  # of tensors
    assert total["fp8"] - scales < total["bf16"] == total["fp16"] < total["fp32"]
    assert total["fp8"] - scales < total["int8"]


@settings(max_examples=30)
@given(models())
def test_ggufs_formats_keep_their_order_where_blocks_divide_every_row(model):
    """Other rows fall back to other types, each by itself; q4_k_s gives more bits to the first four layers."""
    hidden, head_dim, ffn = (256 * one for one in (model.hidden, model.head_dim, model.ffn))
    whole = changed(model, hidden=hidden, head_dim=head_dim, ffn=ffn, layers=model.layers + 31)
    totals = [weigh(whole, format).total for format in ("q2_k", "q4_k_s", "q4_k_m", "q8_0")]
    assert totals == sorted(totals)


@given(models(), st.sampled_from(sorted(KV_FORMATS)))
def test_kv_grows_with_each_head(model, format):
    try:
        size = kv_bytes(model, format)
    except OffloadError:
        assert model.head_dim % KV_FORMATS[format].size
        return
    blocks = KV_FORMATS[format]
    rows = 2 * model.kv_heads
    assert (size - rows * blocks.row) * blocks.size == rows * model.head_dim * blocks.bytes
    assert size - rows * blocks.row <= kv_bytes(model, "f32" if format == "f32" else "f16")


amounts = st.integers(1, 10**6) | st.integers(1, 10**30)


@given(amounts, amounts, amounts, st.none() | st.integers(0, 10**30))
def test_a_budget_adds_up(available, size, context, requests):
    budget = memory_budget(available, size, context=context, requests=requests)
    assert budget.positions * size <= available < (budget.positions + 1) * size
    assert budget.requests * context <= budget.positions < (budget.requests + 1) * context
    assert budget.requests == available // (size * context)
    assert budget.used + budget.left == available
    assert budget.fits == (budget.asked <= budget.requests)
    assert budget.left_share <= 1 and (budget.left_share >= 0) == budget.fits
    more = memory_budget(min(available + size, 10**30), size, context=context)
    assert more.positions >= budget.positions and more.requests >= budget.requests
