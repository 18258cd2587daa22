"""Weight bytes, exact: per tensor by the rule of its format, summed to layers, head and embedding.

A format's name is a mixture, not a rate: q4_k_m stores some tensors in more bits than others and norms in 32, and
most other formats leave embedding, head and norms in 16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from offload.errors import ModelError, did_you_mean
from offload.models.architecture import Matrix, Model, layer_tensors, layers_of
from offload.models.formats import FALLBACK, GGML


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights in one format [B].

    layers : each decoder layer. experts : one expert of each layer (0 where it has none). head : the output head (the
    embedding's own bytes where it is tied). embedding : the whole table; embedding_row : one token's row. norm : the
    final norm. outside : tensors besides these. compute_format : what arithmetic is counted in. notes : what a reader
    should know of how the bytes came about.
    """

    format: str
    layers: tuple[int, ...]
    head: int
    embedding: int
    embedding_row: int
    norm: int
    parameters: int
    tied: bool
    compute_format: str = "bf16"
    experts: tuple[int, ...] = ()
    outside: int = 0
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All bytes as stored in a file; a tied head is stored once."""
        return sum(self.layers) + self.embedding + self.norm + self.outside + (0 if self.tied else self.head)

    @property
    def bits_per_weight(self) -> float:
        """Bits per parameter over the whole model."""
        return 8 * self.total / self.parameters


@lru_cache(maxsize=64)
def weigh(model: Model, format: str) -> Weights:
    """A model's weights in a format, tensor by tensor. Raises ModelError for an unknown format."""
    name = ALIASES.get(str(format).lower(), str(format).lower())
    if name not in WEIGHT_FORMATS:
        hint = did_you_mean(format, [*WEIGHT_FORMATS, "f16"], "Weight formats")
        raise ModelError(f'no weight format "{format}". {hint}')
    notes: dict[str, None] = {}
    rule, compute = WEIGHT_FORMATS[name]

    def size(one: Matrix) -> int:
        return rule(model, one, notes)

    known: dict[int, tuple[int, int]] = {}

    def layer_bytes(index: int) -> tuple[int, int]:
        """Bytes of a layer, and of one of its experts."""
        key = index if rule is _q4_k_m else id(layers_of(model)[index])  # the mixture depends on the place
        if key not in known:
            one_copy = [(one, size(replace(one, copies=1))) for one in layer_tensors(model, index)]
            known[key] = (sum(count * one.copies for one, count in one_copy),
                          sum(count for one, count in one_copy if one.used is not None))
        return known[key]

    sizes = [layer_bytes(index) for index in range(model.layers)]
    layers, experts = tuple(total for total, _ in sizes), tuple(expert for _, expert in sizes)
    table = Matrix("head" if model.tied else "embedding", None, model.vocab, model.hidden)
    embedding = size(table)
    head = embedding if model.tied else size(Matrix("head", None, model.vocab, model.hidden))
    own_norm = any(one.role == "norm" for one in model.outside)
    norm = 0 if own_norm else size(Matrix("norm", None, 1, model.hidden))
    return Weights(
        name, layers, head, embedding, embedding // model.vocab, norm, model.parameters, model.tied, compute, experts,
        sum(size(one) for one in model.outside), tuple(notes),
    )  # fmt: skip


# Rules: (model, tensor, notes) -> bytes.


def _sixteen(model: Model, one: Matrix, notes: dict[str, None]) -> int:
    return 2 * one.parameters


def _thirty_two(model: Model, one: Matrix, notes: dict[str, None]) -> int:
    return 4 * one.parameters


def _linear(size: Callable[[Matrix], int]) -> Callable[[Model, Matrix, dict[str, None]], int]:
    """Only the matrices of decoder layers are quantised; embedding, head, norms and biases stay 16-bit."""

    def rule(model: Model, one: Matrix, notes: dict[str, None]) -> int:
        if one.layer is None or not one.is_matrix:
            return 2 * one.parameters
        return size(one)

    return rule


def _int4_group(one: Matrix) -> int:
    """4 bits, a 16-bit scale and a 4-bit zero for each group of 128 along a row: 4.15625 bits."""
    groups = one.rows * -(-one.row // 128)
    return -(-(4 * one.parameters + (16 + 4) * groups) // 8)


def _q8_0(model: Model, one: Matrix, notes: dict[str, None]) -> int:
    return _ggml(model, one, "q8_0" if one.is_matrix else "f32", notes)


def _q4_k_m(model: Model, one: Matrix, notes: dict[str, None]) -> int:
    return _ggml(model, one, _q4_k_m_type(model, one), notes)


def _q4_k_m_type(model: Model, one: Matrix) -> str:
    """The tensor type that llama.cpp's quantize gives in a Q4_K_M file.

    Output head Q6_K (a tied embedding too); V and down projections Q6_K in the first and last eighth of the layers
    and every third between; the other V projections of a "70B" in Q5_K; norms and biases F32; the rest Q4_K.
    """
    if not one.is_matrix:
        return "f32"
    if one.role == "head":
        return "q6_k"
    if one.role in ("attn_v", "ffn_down") and one.layer is not None and _more_bits(one.layer, model.layers):
        return "q6_k"
    if one.role == "attn_v" and _is_70b(model):
        return "q5_k"
    return "q4_k"


def _is_70b(model: Model) -> bool:
    """What llama.cpp takes for a 70B: 80 layers of Qwen 2, or of Llama or Mistral with shared KV heads."""
    shares = model.family in ("llama", "mistral") and model.heads != model.kv_heads
    return model.layers == 80 and (shares or model.family == "qwen2")


def _more_bits(layer: int, layers: int) -> bool:
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _ggml(model: Model, one: Matrix, type_: str, notes: dict[str, None]) -> int:
    stored = type_
    if one.row % GGML[type_].size and type_ in FALLBACK:
        stored = FALLBACK[type_]
    if one.row % GGML[stored].size:
        stored = "f16"
    if stored != type_:
        size = GGML[type_].size
        notes[f"{one.role}: rows of {one.row} are no multiple of {size}, so {stored} instead of {type_}"] = None
    return one.rows * GGML[stored].row_bytes(one.row)


Rule = Callable[[Model, Matrix, dict[str, None]], int]
WEIGHT_FORMATS: dict[str, tuple[Rule, str]] = {
    "bf16": (_sixteen, "bf16"),
    "fp16": (_sixteen, "fp16"),
    "fp32": (_thirty_two, "fp32"),
    "fp8": (_linear(lambda one: one.parameters), "bf16"),  # one scale for a tensor is not counted
    "int8": (_linear(lambda one: one.parameters + 2 * one.rows), "bf16"),  # a 16-bit scale for each output channel
    "int4-g128": (_linear(_int4_group), "fp16"),
    "q8_0": (_q8_0, "fp16"),
    "q4_k_m": (_q4_k_m, "fp16"),
}
ALIASES = {"f16": "fp16", "float16": "fp16", "bfloat16": "bf16", "f32": "fp32", "float32": "fp32", "f8": "fp8",
           "int4": "int4-g128", "q4_km": "q4_k_m"}  # fmt: skip
