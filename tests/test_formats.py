"""Weight formats: bits with scales, the published sizes of whole files, and what a checkpoint's config says."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import ModelError
from offload.models import WEIGHT_FORMATS, Model, catalogue, tensors, weigh
from offload.models.architecture import Layer, Matrix
from offload.models.formats import FALLBACK, GGML
from offload.models.mixtures import MIXTURES, tensor_type
from offload.models.modules import is_listed
from offload.models.packings import Part, packed_bytes
from offload.models.quantisation import parse_quantisation
from offload.models.weights import ALIASES, bits_per_weight, tensor_bytes, weight_format
from tests.worked_numbers import WORKED as CASES

LLAMA_8B, LLAMA_70B = catalogue["llama-3.1-8b"], catalogue["llama-3.1-70b"]

# --- bits per weight ---

WORKED = next(case for case in CASES if case["id"] == "W55")
NAMES = {"int4_g128_fp16scale_int4zero": "int4-g128", "nf4_double": "nf4-double", "fp8_block128": "fp8-128x128"}


@pytest.mark.parametrize("name", WORKED["inputs"]["formats"])
def test_bits_per_weight_worked_by_hand(name):
    parts = WORKED["inputs"]["formats"][name]
    by_hand = sum(Fraction(bits, group) for bits, group in parts)
    wanted = WORKED["exact"]["bits_per_weight"].get(name, WORKED["expected"]["bits_per_weight"][name])
    assert bits_per_weight(NAMES.get(name, name)) == by_hand == Fraction(str(wanted))
    assert float(by_hand) == WORKED["expected"]["bits_per_weight"][name]


PUBLISHED_BITS = {  # as commonly stated, rounded
    "awq": "4.156", "awq-g64": "4.3125", "awq-g32": "4.625", "w4a16": "4.125", "gptq-8bit-g128": "8.1875",
    "nf4": "4.5", "nf4-double": "4.127", "int8": "8", "llm.int8": "8", "fp8": "8", "fp8-block": "8.002",
    "fp8-128x128-ue8m0": "8.0005", "mxfp4": "4.25", "mxfp8": "8.25", "nvfp4": "4.5", "mlx-4bit": "4.5",
    "mlx-8bit": "8.5", "bf16": "16", "fp32": "32", "q1_0": "1.125", "iq1_s": "1.5625", "iq1_m": "1.75",
    "iq2_xxs": "2.0625", "iq2_xs": "2.3125", "iq2_s": "2.5625", "iq3_xxs": "3.0625", "iq3_s": "3.4375", "iq4_nl": "4.5",
    "iq4_xs": "4.25", "tq1_0": "1.6875", "tq2_0": "2.0625", "q2_k": "2.625", "q3_k": "3.4375", "q4_k": "4.5",
    "q5_k": "5.5", "q6_k": "6.5625", "q8_k": "9.125", "q4_0": "4.5", "q4_1": "5", "q5_0": "5.5", "q5_1": "6",
    "q8_0": "8.5",
}  # fmt: skip


@pytest.mark.parametrize("name, bits", PUBLISHED_BITS.items())
def test_bits_per_weight_as_published(name, bits):
    digits = len(bits.partition(".")[2])
    assert round(float(bits_per_weight(name)), digits) == float(bits)
    assert bits_per_weight(name.upper()) == bits_per_weight(name)


def test_bits_of_a_matrix_with_all_that_belongs_to_it():
    """A matrix of 4096 rows of 11008: scales of rows, of tensors, group indices, tables of values."""
    n = 4096 * 11008
    assert bits_per_weight("int8", 4096, 11008) == 8 + Fraction(16, 11008)
    assert bits_per_weight("bnb-int8", 4096, 11008) == 8 + Fraction(32, 11008)
    assert bits_per_weight("fp8", 4096, 11008) == 8 + Fraction(32, n)
    assert bits_per_weight("nvfp4", 4096, 11008) == Fraction(9, 2) + Fraction(32, n)
    assert bits_per_weight("int4-g128-act", 4096, 11008) == Fraction(133, 32) + Fraction(32, 4096)
    assert bits_per_weight("nf4", 4096, 11008) == Fraction(9, 2) + Fraction(64 * 8, n)
    assert bits_per_weight("nf4-double", 4096, 11008) == Fraction(2113, 512) + Fraction((64 + 1024) * 8, n)
    assert bits_per_weight("q4_k", 4096, 11008) == Fraction(9, 2)
    # Parts of groups count as whole ones: 100 x 200 has 2 x 100 groups of 128, one block of 128 x 128 in two.
    assert packed_bytes((Part(4), Part(16, 1, 128)), 100, 200) == (4 * 20_000 + 16 * 200) // 8
    assert packed_bytes((Part(8), Part(32, 128, 128)), 100, 200) == 20_000 + 4 * 2
    assert packed_bytes((Part(4), Part(32, 1, 64, flat=True)), 10, 100) == 500 + 4 * 16


def test_a_mixture_has_no_one_rate():
    with pytest.raises(ModelError, match=r"q4_k_m is a mixture.*mostly q4_k, 4.5 bits"):
        bits_per_weight("q4_k_m")
    for shape in [(0, 5), (5, 0), (5, None), (None, 5), (2.5, 3), ("a", 3)]:
        for name in ("nf4", "q4_k", "bf16"):
            with pytest.raises(ModelError, match="whole number"):
                bits_per_weight(name, *shape)


# From ggml's block structures: scales in 16 bits, K-quants' inner scales in 4, 6 or 8.
GGML_BLOCKS = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q1_0": (128, 2 + 16), "q2_0": (64, 2 + 16), "q4_0": (32, 2 + 16),
    "q4_1": (32, 4 + 16), "q5_0": (32, 2 + 4 + 16), "q5_1": (32, 4 + 4 + 16), "q8_0": (32, 2 + 32),
    "q2_k": (256, 4 + 16 + 64), "q3_k": (256, 2 + 64 + 32 + 12), "q4_k": (256, 4 + 12 + 128),
    "q5_k": (256, 4 + 12 + 32 + 128), "q6_k": (256, 128 + 64 + 16 + 2), "q8_k": (256, 4 + 256 + 2 * 16),
    "iq1_s": (256, 2 + 32 + 16), "iq1_m": (256, 32 + 16 + 8), "iq2_xxs": (256, 2 + 64), "iq2_xs": (256, 2 + 64 + 8),
    "iq2_s": (256, 2 + 64 + 16), "iq3_xxs": (256, 2 + 96), "iq3_s": (256, 2 + 13 * 8 + 4), "iq4_nl": (32, 2 + 16),
    "iq4_xs": (256, 2 + 2 + 4 + 128), "tq1_0": (256, 2 + 4 + 48), "tq2_0": (256, 2 + 64), "mxfp4": (32, 1 + 16),
    "nvfp4": (64, 4 + 32),
}  # fmt: skip


def test_ggml_blocks():
    assert {name: (blocks.size, blocks.bytes) for name, blocks in GGML.items()} == GGML_BLOCKS
    for narrow, wide in FALLBACK.items():
        assert GGML[narrow].size > GGML[wide].size == 32
        assert Fraction(GGML[wide].bytes, 32) >= Fraction(GGML[narrow].bytes, GGML[narrow].size)
    assert {default for default in MIXTURES.values()} <= set(GGML)


def test_ggml_blocks_equal_those_of_the_gguf_library():
    gguf = pytest.importorskip("gguf")
    for kind, (size, count) in gguf.GGML_QUANT_SIZES.items():
        if kind.name.lower() in GGML:
            assert (GGML[kind.name.lower()].size, GGML[kind.name.lower()].bytes) == (size, count), kind
    others = ("F64", "I8", "I16", "I32", "I64", "Q8_1")  # the last is for dot products only, never in a file
    assert {kind.name.lower() for kind in gguf.GGML_QUANT_SIZES if kind.name not in others} <= set(GGML)


# --- GGUF file types ---

# llama.cpp, tools/quantize/README.md: bits per weight of whole files of Llama-3.1-8B.
PUBLISHED = {
    "iq1_s": 2.0042, "iq1_m": 2.1460, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294,
    "iq3_xxs": 3.2548, "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818,
    "q2_k_s": 2.9697, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_l": 4.2979, "q4_k_s": 4.6672, "q4_k_m": 4.8944,
    "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633, "q8_0": 8.5008,
}  # fmt: skip


@pytest.mark.parametrize("name, bits", PUBLISHED.items())
def test_whole_files_have_the_bits_that_llama_cpp_publishes(name, bits):
    assert weigh(LLAMA_8B, name).bits_per_weight == pytest.approx(bits, abs=5.1e-5), "to the last published digit"


def test_file_types_in_order():
    order = ("q2_k_s", "q2_k", "q3_k_s", "q3_k_m", "q3_k_l", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m", "q6_k", "q8_0")
    for model in (LLAMA_8B, LLAMA_70B, catalogue["llama-2-7b"]):
        sizes = [weigh(model, name).total for name in order]
        assert sizes == sorted(sizes) and len(set(sizes)) == len(sizes)
    assert weigh(LLAMA_8B, "q4_0").total < weigh(LLAMA_8B, "q4_1").total < weigh(LLAMA_8B, "q5_1").total


def counts(model: Model, mixture: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in tensors(model):
        found[tensor_type(mixture, model, one)] = found.get(tensor_type(mixture, model, one), 0) + 1
    return found


def test_types_of_tensors_as_llama_cpp_prints_them():
    """What is printed on loading files of Llama-3-8B and Llama-2-7B, of 291 tensors each."""
    assert counts(LLAMA_8B, "q4_0") == {"f32": 65, "q4_0": 225, "q6_k": 1}
    assert counts(LLAMA_8B, "q8_0") == {"f32": 65, "q8_0": 226}
    assert counts(LLAMA_8B, "q6_k") == {"f32": 65, "q6_k": 226}
    assert counts(LLAMA_8B, "q5_k_m") == {"f32": 65, "q5_k": 193, "q6_k": 33}
    assert counts(catalogue["llama-2-7b"], "q2_k") == {"f32": 65, "q2_k": 129, "q3_k": 96, "q6_k": 1}


def experts_model(experts: int, family: str = "llama") -> Model:
    """Four layers with grouped attention, a router and `experts` experts, two for a token."""
    def wide(role: str, rows: int, row: int) -> Matrix:
        return Matrix(role, None, rows, row, copies=experts, used=2)

    matrices = (
        Matrix("attn_q", None, 512, 512), Matrix("attn_k", None, 128, 512), Matrix("attn_v", None, 128, 512),
        Matrix("attn_output", None, 512, 512), Matrix("router", None, experts, 512), wide("ffn_gate", 256, 512),
        wide("ffn_up", 256, 512), wide("ffn_down", 512, 256), Matrix("norm", None, 1, 512),
    )  # fmt: skip
    return Model("e", family, 4, 512, 4, 1, 128, 256, 1024, stack=(Layer(matrices),) * 4)


def test_models_with_experts():
    attention, experts = 2 * 512 * 512 + 2 * 128 * 512, 3 * 256 * 512
    wide = 2 * (16 * 512 + 512)  # router and norm
    model = experts_model(16)
    # gpt-oss: experts only; a dense model has none, so its matrices are packed.
    assert weigh(model, "mxfp4").layers[0] == 2 * attention + wide + 16 * experts * 17 // 32
    assert weigh(model, "mxfp4").experts[0] == experts * 17 // 32
    assert weigh(model, "mxfp4-all").layers[0] == (attention + 16 * experts) * 17 // 32 + wide
    assert weigh(LLAMA_8B, "mxfp4").layers == weigh(LLAMA_8B, "mxfp4-all").layers
    # One 32-bit scale for each tensor, of each expert too.
    assert weigh(model, "nvfp4").layers[0] == (attention + 16 * experts) * 9 // 16 + 4 * (4 + 16 * 3) + wide
    # GGUF: router and norm in 32 bits.
    assert weigh(model, "q8_0").layers[0] == (attention + 16 * experts) * 34 // 32 + 2 * wide
    assert weigh(model, "mxfp4_moe").layers[0] == attention * 34 // 32 + 16 * experts * 17 // 32 + 2 * wide
    # Eight experts are Mixtral's: K and V in Q8_0, the output projection in Q5_K.
    eight = experts_model(8)
    for role, kind in {"attn_k": "q8_0", "attn_v": "q8_0", "attn_output": "q5_k"}.items():
        assert tensor_type("q4_k_m", eight, Matrix(role, 1, 1, 256)) == kind
    assert tensor_type("iq2_xs", eight, Matrix("attn_output", 1, 1, 256)) == "q5_k"
    assert tensor_type("q4_k_m", model, Matrix("attn_k", 1, 1, 256)) == "q4_k"


@pytest.mark.parametrize("mixture, kinds", [("q4_k_m", {"q6_k", "q5_k", "q4_k"}), ("q3_k_m", {"q5_k", "q4_k", "q3_k"})])
def test_falcon_has_rules_of_its_own(mixture, kinds):
    falcon = Model("f", "falcon", 64, 512, 4, 1, 128, 256, 1024)
    assert {tensor_type(mixture, falcon, Matrix("ffn_down", i, 1, 256)) for i in range(64)} == kinds
    assert tensor_type(mixture, falcon, Matrix("head", None, 1, 256)) == "q8_0"
    assert tensor_type(mixture, falcon, Matrix("attn_output", 0, 1, 256)) == MIXTURES[mixture]


def test_attention_is_counted_among_the_layers_that_have_it():
    """Half of the layers have a V projection: the first eighth of these is the first eighth of the layers."""
    having = Layer((Matrix("attn_v", None, 256, 256), Matrix("norm", None, 1, 256)))
    without = Layer((Matrix("ffn_up", None, 256, 256), Matrix("norm", None, 1, 256)))
    model = Model("h", "jamba", 32, 256, 2, 1, 128, 256, 256, stack=(without, having) * 16)
    more = [i for i in range(1, 32, 2) if tensor_type("q4_k_m", model, Matrix("attn_v", i, 256, 256)) == "q6_k"]
    assert more == [2 * i + 1 for i in (0, 1, 4, 7, 10, 13, 14, 15)]


def test_rows_that_blocks_do_not_divide():
    model = Model("m", "llama", 8, 896, 14, 2, 64, 4864, 1000)
    for mixture, wanted in [("iq4_xs", "iq4_nl"), ("q2_k", "q4_0"), ("q3_k_m", "q5_1")]:
        weights = weigh(model, mixture)
        assert any(f"{wanted} instead of" in note for note in weights.notes), weights.notes
    for mixture in ("iq2_xs", "q4_k_m", "q2_k"):
        assert weigh(model, mixture).head == 1000 * 28 * 34, "the head falls back to Q8_0"
    assert weigh(model, "q4_0").head == 1000 * 28 * 34 and weigh(model, "q4_0").layers[0] > 0


def test_tables_of_tied_models_are_stored_as_heads():
    """Also tables of every layer's own embeddings."""
    own = Matrix("per_layer_embedding", None, 1000, 256, copies=1)
    model = Model("g", "gemma", 2, 256, 2, 1, 128, 512, 1000, tied=True, outside=(own,))
    for one in (own, Matrix("embedding", None, 1000, 256), Matrix("head", None, 1000, 256)):
        assert tensor_type("q4_k_m", model, one) == "q6_k"
    untied = Model("g", "gemma", 2, 256, 2, 1, 128, 512, 1000, outside=(own,))
    assert tensor_type("q4_k_m", untied, own) == "q4_k"
    assert weigh(model, "q4_k_m").outside == 1000 * 210


@pytest.mark.few
@pytest.mark.parametrize("name", ["bf16", "nvfp4", "mxfp4", "int4-g128-act", "mlx-4bit-g64", "q4_k_m", "iq2_xs"])
def test_every_model_of_the_catalogue_is_weighed_in_full(name):
    """The parts of the sum are the tensors one by one, whatever kinds of layers a model has (every fifth model)."""
    for model in list(catalogue.values())[::5]:
        weights = weigh(model, name)
        assert weights.total == sum(size for _, size in tensor_bytes(model, name)), model.name
        assert 1.9 < weights.bits_per_weight < 16.3


# --- formats of engines ---


@pytest.mark.parametrize("name", [name for name, one in WEIGHT_FORMATS.items() if one.packing and "mlx" not in name])
def test_what_engines_leave_in_16_bits(name):
    weights = weigh(LLAMA_8B, name)
    assert weights.embedding == weights.head == 2 * 128256 * 4096 and weights.norm == 2 * 4096
    rate = bits_per_weight(name)
    packed = sum(one.parameters for one in tensors(LLAMA_8B) if one.layer == 0 and one.is_matrix)
    layer = weights.layers[0] - 2 * 2 * 4096
    assert layer >= packed * rate / 8 and layer == pytest.approx(float(packed * rate / 8), rel=2e-3)


@pytest.mark.parametrize(("name", "stored", "weights"), [
    ("deepseek-v3", 684_531_386_000, 684_489_845_504), ("deepseek-v3.2", 685_396_921_376, 685_355_329_792),
])  # fmt: skip
def test_scales_of_blocks_are_as_many_as_published_checkpoints_hold(name, stored, weights):
    """Their stored numbers less their weights are the scales of 128 x 128 blocks, of the module of prediction too.

    A scale takes 3 bytes more in 32 bits than in 8, so two formats tell how many there are.
    """
    model = catalogue[name]
    wide, narrow = weigh(model, "fp8-128x128"), weigh(model, "fp8-128x128-ue8m0")
    main, module = wide.total - narrow.total, wide.layers[-1] - narrow.layers[-1]
    assert model.parameters_stored == weights and main + module == 3 * (stored - weights)


def test_mlx_packs_embedding_and_head_too():
    weights = weigh(LLAMA_8B, "mlx-4bit-g64")
    assert weights.embedding == weights.head == 128256 * 4096 * 9 // 16 and weights.norm == 2 * 4096
    assert weights.bits_per_weight == pytest.approx(4.5, abs=1e-3)
    odd = weigh(Model("m", "llama", 1, 96, 3, 1, 32, 128, 10), "mlx-4bit-g64")
    assert odd.embedding == 2 * 96 * 10 and any("multiple of 64" in note for note in odd.notes)


def test_modules_that_a_config_leaves_out():
    attention = sum(one.parameters for one in tensors(LLAMA_8B) if one.layer == 0 and one.role.startswith("attn"))
    whole = weigh(LLAMA_8B, "mxfp4-all")
    less = weigh(LLAMA_8B, "mxfp4-all", ("model.layers.*.self_attn", "lm_head"))
    assert less.layers == tuple(size + attention * 2 - attention * 17 // 32 for size in whole.layers)
    one = weigh(LLAMA_8B, "mxfp4-all", ("model.layers.3.self_attn",))
    assert [i for i in range(32) if one.layers[i] != whole.layers[i]] == [3]
    assert weigh(LLAMA_8B, "mlx-4bit-g64", ("lm_head",)).head == 2 * 128256 * 4096
    assert weigh(LLAMA_8B, "mxfp4-all", ["lm_head"]) == weigh(LLAMA_8B, "mxfp4-all", ("lm_head",))
    with pytest.raises(ModelError, match="q4_k_m: a list of modules"):
        weigh(LLAMA_8B, "q4_k_m", ("lm_head",))
    with pytest.raises(ModelError, match='the text "lm_head"'):
        weigh(LLAMA_8B, "nf4", "lm_head")


@pytest.mark.parametrize("name, total", [("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744)])
def test_whole_checkpoints_in_mxfp4(name, total):
    """As their model.safetensors.index.json state it (total_size): experts in MXFP4, the rest in 16 bits."""
    said = ("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")
    assert weigh(catalogue[name], "mxfp4").total == weigh(catalogue[name], "mxfp4", said).total == total


@pytest.mark.parametrize(
    "role, layer, pattern, listed",
    [
        ("head", None, "lm_head", True),
        ("head", None, "re:.*lm_head", True),
        ("embedding", None, "lm_head", False),
        ("embedding", None, "model.embed_tokens", True),
        ("router", 7, "gate", True),
        ("ffn_gate", 7, "gate", False),
        ("router", 7, "model.layers.7.mlp.gate", True),
        ("router", 17, "model.layers.7.mlp.gate", False),
        ("router", 7, "model.layers.*.mlp.router", True),
        ("attn_q", 7, "model.layers.*.self_attn", True),
        ("attn_q", 7, "self_attn", True),
        ("attn_q", 7, "q_proj", True),
        ("attn_q", 7, "attn", False),
        ("attn_q", 7, "*attn*", True),
        ("ffn_down", 7, "re:.*mlp.down_proj$", True),
        ("ffn_down", 7, "re:mlp", False),
        ("ffn_down", 7, r"re:model\.layers\.\d+\.mlp", True),
        ("attn_kv_a", 7, "self_attn", True),
        ("attn_kv_b", 7, "kv_b_proj", True),
        ("ssm_in", 7, "in_proj", True),
        ("ssm_in", 7, "mamba", True),
        ("attn_q", 7, "model.vision_backbone", False),
    ],
)
def test_names_of_modules(role, layer, pattern, listed):
    assert is_listed(Matrix(role, layer, 2, 2), (pattern,)) == listed


def test_names_of_experts():
    shared = Matrix("ffn_gate_shared", 5, 2, 2)
    assert is_listed(shared, ("*shared_experts*",)) and not is_listed(shared, ("model.layers.5.mlp.experts",))
    one = Matrix("ffn_up", 5, 2, 2, copies=8, used=2)
    assert is_listed(one, ("model.layers.5.mlp.experts",)) and is_listed(one, ("re:.*experts.*up_proj",))
    assert not is_listed(one, ("model.layers.5.self_attn", "gate"))


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:" + ".*" * 40, "re:(", "x" * 400, "", "  ", "re:[z-a]", "re:a{9}{9}"]
)
def test_patterns_that_are_refused(pattern):
    with pytest.raises(ModelError, match="list of modules"):
        is_listed(Matrix("attn_q", 0, 2, 2), (pattern,))


def test_patterns_cannot_take_for_ever():
    start = time.perf_counter()
    for pattern in ("*a" * 100 + "!", "re:.*.*.*.*.*!", "?" * 250 + "*" * 40):
        for layer in range(5):
            assert not is_listed(Matrix("attn_output", layer, 2, 2), (pattern,))
    names = {"quant_method": "fp8", "ignored_layers": [f"model.layers.{i}.x" for i in range(100_000)]}
    weigh(LLAMA_8B, "fp8", parse_quantisation(names).skip)
    with pytest.raises(ModelError, match="1,001 patterns"):
        is_listed(Matrix("attn_q", 0, 2, 2), [f"*{i}" for i in range(1001)])
    assert time.perf_counter() - start < 10


# --- names ---


def test_names_with_parameters():
    assert bits_per_weight("int3-g64-sym") == 3 + Fraction(16, 64)
    assert bits_per_weight("int8-row") == 8 and bits_per_weight("int4-g1") == 24
    assert bits_per_weight("fp8-1x128") == 8 + Fraction(32, 128)
    assert bits_per_weight("mlx-6bit-g32") == 7
    assert weight_format(" MLX-6bit-G32 ")[0] == "mlx-6bit-g32"
    assert weigh(LLAMA_8B, "int4-g128-sym-act").format == "int4-g128-sym-act"
    assert weigh(LLAMA_8B, "fp8-128x128") == weigh(LLAMA_8B, "fp8-block")


def test_names_do_not_clash():
    assert not set(ALIASES) & set(WEIGHT_FORMATS)
    assert set(ALIASES.values()) <= set(WEIGHT_FORMATS)
    assert all(name == name.lower() for name in (*ALIASES, *WEIGHT_FORMATS))


@pytest.mark.parametrize(
    "name",
    ["int4-g0", "int9-g128", "mlx-7bit-g64", "int4-g99999999", "fp8-0x128", "", "q4_k_xl", "\u00e9", "int4-g\u0663",
     None, 4, "x" * 10_000],
)  # fmt: skip
def test_names_that_are_refused(name):
    with pytest.raises(ModelError) as error:
        weight_format(name)
    assert len(str(error.value)) < 800


# --- what a config says ---


GROUPED = {"bits": 4, "group_size": 128}
BY_KEYS = {
    "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
    "llm_int8_skip_modules": ["model.vision_backbone"],
}  # fmt: skip
SIDE_FILE = {
    "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
    "exclude_modules": ["lm_head", "model.layers.0.mlp.gate"],
}  # fmt: skip
KV8 = {"num_bits": 8, "type": "float"}
OWN_BITS = {"model.layers.0.mlp.gate": {"group_size": 64, "bits": 8}, "lm_head": False}


@pytest.mark.parametrize(
    "method, values, format, skip, kv",
    [
        ("gptq", {**GROUPED, "desc_act": False, "sym": True}, "int4-g128-act", 0, None),
        ("gptq", {"bits": 8, "group_size": -1, "desc_act": True, "damp_percent": 0.1}, "int8-row-act", 0, None),
        ("awq", {**GROUPED, "zero_point": True, "version": "gemm"}, "int4-g128", 0, None),
        ("awq", {"zero_point": False, "q_group_size": 64, "w_bit": 4}, "int4-g64-sym", 0, None),
        ("awq", {**GROUPED, "modules_to_not_convert": ["visual", "gate"]}, "int4-g128", 2, None),
        ("auto-round", {**GROUPED, "sym": True}, "int4-g128", 0, None),
        ("bitsandbytes", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4", 0, None),
        ("bitsandbytes", {"load_in_4bit": True}, "nf4", 0, None),
        ("bitsandbytes", BY_KEYS, "nf4-double", 1, None),
        ("bitsandbytes", {"load_in_8bit": True}, "bnb-int8", 0, None),
        ("fp8", {"fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8-128x128", 0, None),
        ("fp8", {"scale_fmt": "ue8m0", "weight_block_size": [128, 128]}, "fp8-128x128-ue8m0", 0, None),
        ("fp8", {"activation_scheme": "static", "ignored_layers": ["lm_head"]}, "fp8", 1, None),
        ("mxfp4", {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, "mxfp4", 2, None),
        ("modelopt", {"quant_algo": "W4A16_AWQ", "group_size": 128}, "int4-g128-sym", 0, None),
        ("modelopt", {"quant_algo": "NVFP4", "ignore": ["lm_head"], "kv_cache_scheme": KV8}, "nvfp4", 1, "fp8"),
        ("mlx", {"bits": 4, "group_size": 64}, "mlx-4bit-g64", 0, None),
    ],
)
def test_methods(method, values, format, skip, kv):
    found = parse_quantisation({"quant_method": method, **values})
    assert (found.method, found.format, len(found.skip), found.kv) == (method, format, skip, kv)
    assert weigh(LLAMA_8B, found.format, found.skip).total > 0


@pytest.mark.parametrize(
    "method, values, format, skip, kv",
    [
        ("modelopt", {"producer": {"name": "modelopt"}, "quantization": SIDE_FILE}, "nvfp4", 2, "fp8"),
        ("modelopt", {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, "fp8", 0, None),
        ("modelopt", {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}, "bf16", 0, "fp8"),
        ("mlx", {"quantization": {"bits": 4, "group_size": 64}}, "mlx-4bit-g64", 0, None),
        ("mlx", {"bits": 4, "group_size": 64, **OWN_BITS}, "mlx-4bit-g64", 1, None),
        ("mlx", {"bits": 4, "group_size": 32, "mode": "mxfp4"}, "mxfp4-all", 0, None),
        ("awq", {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"}, "int4-g64", 0, None),
        ("gptq", {**GROUPED, "desc_act": False}, "int4-g128-act", 0, None),
        ("bitsandbytes", BY_KEYS, "nf4-double", 1, None),
        ("fp8", {"weight_block_size": [128, 128]}, "fp8-128x128", 0, None),
        ("gptq", {"quant_method": "GPTQ_Marlin", **GROUPED}, "int4-g128-act", 0, None),
    ],
)
def test_methods_by_the_keys_that_only_they_have(method, values, format, skip, kv):
    found = parse_quantisation(values)
    assert (found.method, found.format, len(found.skip), found.kv) == (method, format, skip, kv)


def compressed(weights: dict, **more) -> dict:
    return {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, **more}  # fmt: skip


@pytest.mark.parametrize(
    "weights, format",
    [
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}, "int4-g128-sym"),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}, "int4-g32"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "actorder": "group"}, "int4-g128-sym-act"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True, "actorder": "weight"}, "int4-g128-sym"),
        ({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}, "int8"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8-channel"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, "fp8-128x128"),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "nvfp4"),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, "mxfp4-all"),
        ({"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": True}, "int4-row-sym"),
    ],
)
def test_compressed_tensors(weights, format):
    found = parse_quantisation(compressed(weights, kv_cache_scheme={"num_bits": 8, "type": "float"}))
    assert (found.format, found.skip, found.kv) == (format, ("lm_head",), "fp8")


@pytest.mark.parametrize(
    "values, said",
    [
        ({"quant_method": "aqlm"}, '"aqlm" is not known. Known methods: auto-round, awq'),
        ({"quant_method": "gptqq"}, 'Did you mean "gptq"'),
        ({"quant_method": "x" * 10_000}, "is not known"),
        ({"quant_method": "quark"}, '"quark" is not known'),
        ({"quant_method": "\x1b[31mgptq"}, r'"\x1b[31mgptq" is not known'),
        ({"quant_method": 4}, "quant_method is a number"),
        ({"quant_method": ["gptq"]}, "quant_method is a list"),
        ({}, '"quant_method" is missing'),
        ([], "a list; it must be a map"),
        (None, "nothing (null)"),
        ({"quantization": {"quantization": {}}}, '"quant_method" is missing'),
        ({"quant_method": "gptq", "group_size": 128}, '"bits" is missing'),
        ({"quant_method": "gptq", "bits": 4}, '"group_size" is missing'),
        ({"quant_method": "gptq", "bits": 5, "group_size": 128}, "bits is 5; it must be one of 2, 3, 4, 8"),
        ({"quant_method": "gptq", "bits": True, "group_size": 128}, "bits is True"),
        ({"quant_method": "gptq", "bits": "4", "group_size": 128}, 'bits is "4"'),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -128}, "group_size is -128"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 10**400}, "far too large"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:x": {"bits": 8}}}, '"dynamic"'),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": "yes"}, 'zero_point is "yes"'),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": "lm_head"}, "list of names"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": [1]}, "list of names"),
        ({"quant_method": "bitsandbytes"}, "none is"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True}, "both are"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}, '"nf5"'),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "[128, 128], or null"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "a group has from 1"),
        ({"quant_method": "fp8", "weight_block_size": [-1, 128]}, "no weight format"),
        ({"quant_method": "fp8", "weight_block_size": ["a", 128]}, "two whole numbers"),
        ({"quant_method": "modelopt"}, '"quant_algo" is missing'),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "an algorithm of its own"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP5"}, 'Did you mean "nvfp4"'),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": 8}, "kv_cache_quant_algo is 8"),
        ({"quant_method": "mlx", "bits": 7, "group_size": 64}, "bits is 7"),
        ({"bits": 4, "group_size": 64, "mode": "other"}, 'mode is "other"'),
        ({"bits": 4, "group_size": 64, "model.layers.0.mlp.down_proj": {"bits": 6}}, "bits of their own"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}}, "a has no weights"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, "a has no weights"),
        (compressed({"num_bits": 8, "type": "complex"}), '"complex"'),
        (compressed({"num_bits": 8, "type": "int"}, ignore=["re:(a+)+"]), "repeats too much"),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "a": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}},
            "b": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}, "several formats"),
    ],
)  # fmt: skip
def test_configs_that_are_refused(values, said):
    with pytest.raises(ModelError) as error:
        parse_quantisation(values)
    assert said in str(error.value) and len(str(error.value)) < 600


JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=3),
    st.lists(st.text(max_size=5), max_size=3), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip
KEYS = ("bits", "group_size", "quantization", "quant_algo", "config_groups", "weight_block_size", "load_in_4bit",
        "ignore", "kv_cache_scheme", "modules_to_not_convert", "mode", "kv_cache_quant_algo", "desc_act")  # fmt: skip
METHODS = ("gptq", "awq", "bitsandbytes", "fp8", "mxfp4", "compressed-tensors", "modelopt", "mlx", None, 5, "?")


@settings(max_examples=100)
@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_whatever_a_config_holds_is_read_or_refused(method, values):
    try:
        found = parse_quantisation({**values, "quant_method": method} if method else values)
    except ModelError as error:
        assert str(error)
    else:
        assert weight_format(found.format)
