"""Weight bytes, exact: per tensor by the rule of its format, summed to layers, head and embedding.

A format's name is no rate. A GGUF file type is a mixture: q4_k_m stores some tensors in more bits than others, and
norms in 32. The formats of engines quantise the matrices of layers and leave embedding, head, norms, biases and routers
in 16 bits; MLX quantises embedding and head too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from offload.errors import ModelError, one_line
from offload.models.architecture import CORRECTION, LARGEST, STATED, TABLES, Matrix, Model, layers_of, tensors
from offload.models.formats import GGML, KV_FORMATS, LATENT_FORMAT
from offload.models.mixtures import MIXTURES, experts_of, gguf_rule, is_router, is_vector
from offload.models.modules import is_listed
from offload.models.packings import PACKING_ALIASES, PACKINGS, SPELLINGS, Packing, packed_bytes, packing_named
from offload.models.whole import check_whole

PREDICTION = "multi-token prediction"  # a kind of what is stored besides


@dataclass(frozen=True, slots=True)
class Beside:
    """What is stored beside a decoder and not run in a plain decode, of one kind ("multi-token prediction").

    layers : 0 where it is not made of layers that are counted. parameters, bytes : None where they are not known.
    """

    kind: str
    layers: int
    parameters: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights in one format [B].

    layers : each decoder layer. experts : one expert of each layer (0 where it has none). head : the output head (the
    embedding's own bytes where it is tied). embedding : the whole table; embedding_row : one token's row. norm : the
    final norm. outside : tensors besides these. compute_format : what arithmetic is counted in. notes : what a reader
    should know of how the bytes came about. besides : stored in the same files and not run in a plain decode (multi-
    token prediction, vision), in no other sum; besides_of : by kind. parts : of a file's own tensors each with its
    bytes, all copies together; empty where a format's rule counted them. each_step : of `outside`, what every step
    reads (projections, norms); the rest is tables, of which a token takes `rows`: one row of each.
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
    besides: int = 0
    parts: tuple[tuple[Matrix, int], ...] = field(default=(), compare=False, repr=False)
    each_step: int = 0
    rows: int = 0
    besides_of: tuple[Beside, ...] = ()

    @property
    def total(self) -> int:
        """All bytes as stored in a file; a tied head is stored once."""
        return sum(self.layers) + self.embedding + self.norm + self.outside + (0 if self.tied else self.head)

    @property
    def bits_per_weight(self) -> float:
        """Bits per parameter over the whole model."""
        return 8 * self.total / self.parameters


def weigh(model: Model, format: str, skip: Sequence[str] | None = None) -> Weights:
    """A model's weights in a format, tensor by tensor; in "stored" those of the file that it was read from.

    skip : modules that stay 16-bit besides what the format leaves so, as a checkpoint's config lists them
    (`modules.is_listed`); None is the model's own list where the format is the one that it is stored in. Raises
    ModelError for an unknown format, and for `skip` with a format that has no such list.
    """
    if not isinstance(model, Model):
        raise ModelError(f"a Model is due, as load_model gives it; given is {type(model).__name__}.")
    if isinstance(skip, str):
        raise ModelError(f'skip is the text "{skip[:60]}"; it must be a list of names of modules.')
    if is_stored(model, format):
        stored: Weights = model.stored
        return stored
    name, found = weight_format(format)
    if skip is None:
        skip = own_skip(model, name)
    if skip and found.packing is None:
        raise ModelError(f"{name}: a list of modules that stay 16-bit goes with quantised formats of engines. Drop it.")
    return _weighed(model, name, tuple(skip))


STORED = "stored"  # the format's name of a file's own tensors


def is_stored(model: Model, format: str) -> bool:
    """Whether a format means the tensors of the file that a model was read from.

    Raises ModelError where it has none.
    """
    name = str(format).strip().lower()
    if model.family == STATED and name not in (STATED, STORED):
        raise ModelError(f"the bytes of {model.name} are stated with its blocks: it has no other format.")
    if model.stored is not None:
        return name in (STORED, model.stored.format.lower())
    if name == STORED:
        raise ModelError(f'"{STORED}" is the sizes of a file\'s own tensors, and {model.name} was not read from any. '
                         "Give a GGUF file or a folder of safetensors, or name a format, as q4_k_m.")
    return False


@lru_cache(maxsize=64)
def _weighed(model: Model, name: str, skip: tuple[str, ...]) -> Weights:
    _, (rule, compute, _, mixture) = weight_format(name)
    notes: dict[str, None] = {}

    def size(one: Matrix) -> int:
        return wide_bytes(one) if skip and is_listed(one, skip) else rule(model, one, notes)

    stack = layers_of(model)
    known: dict[int, tuple[int, int]] = {}

    def layer_bytes(index: int) -> tuple[int, int]:
        """Bytes of a layer, and of one of its experts."""
        key = index if mixture or skip else id(stack[index])  # these depend on the place
        if key not in known:
            one_copy = [(one, size(replace(one, layer=index, copies=1))) for one in stack[index].matrices]
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
    outside = [(one, size(replace(one, copies=1))) for one in model.outside]
    return Weights(
        name, layers, head, embedding, embedding // model.vocab, norm, model.parameters, model.tied, compute, experts,
        sum(one.copies * count for one, count in outside), tuple(notes),
        each_step=sum(one.copies * count for one, count in outside if one.role not in TABLES),
        rows=sum(count for one, count in outside if one.role in TABLES),
    )  # fmt: skip


def tensor_bytes(model: Model, format: str) -> Iterator[tuple[Matrix, int]]:
    """Every tensor of a model with its bytes in a format, all copies (experts) together, as `weigh` counts them."""
    if is_stored(model, format):
        yield from model.stored.parts
        return
    name, (rule, _, _, _) = weight_format(format)
    skip = own_skip(model, name)
    for one in tensors(model):
        sixteen = skip and is_listed(one, skip)
        yield one, wide_bytes(one) if sixteen else one.copies * rule(model, replace(one, copies=1), {})


@lru_cache(maxsize=32)
def layer_tensors(model: Model, format: str) -> tuple[tuple[tuple[Matrix, int], ...], ...]:
    """`tensor_bytes` of each decoder layer: of layer i, ((tensor, bytes), ...)."""
    found: list[list[tuple[Matrix, int]]] = [[] for _ in range(model.layers)]
    for one, size in tensor_bytes(model, format):
        if one.layer is not None and one.layer < model.layers:
            found[one.layer].append((one, size))
    return tuple(tuple(one) for one in found)


def own_skip(model: Model, format: str) -> tuple[str, ...]:
    """Modules that a checkpoint leaves in 16 bits, where it is stored in that format."""
    return model.quantised.skip if model.quantised is not None and model.quantised.format == format else ()


def bits_per_weight(format: str, rows: int | None = None, row: int | None = None) -> Fraction:
    """Bits for each weight of one matrix in a format, scales and zero points included. Exact.

    Without a shape, of a large matrix: what is stored once a row, a column or a tensor counts as nothing. rows, row :
    a matrix of that shape, with everything. format : a weight format, or a tensor type of GGUF ("q4_k"). Raises
    ModelError for a mixture, which has no one rate (weigh(model, format).bits_per_weight is the whole model's).
    """
    if (rows, row) != (None, None):
        check_whole("rows", rows, 1, LARGEST)
        check_whole("row", row, 1, LARGEST)
    name = str(format).strip().lower()
    blocks = GGML.get(name) if name not in PACKINGS else None  # of the two MXFP4 and NVFP4 the one with its scales
    name = _plain(format)
    if blocks is not None:
        return Fraction(8 * blocks.bytes, blocks.size) if row is None else Fraction(8 * blocks.row_bytes(row), row)
    if name in MIXTURES:
        raise ModelError(f"{name} is a mixture of tensor types, without one rate. A whole model has one: "
                         "weigh(model, format).bits_per_weight; its tensors are mostly "
                         f"{MIXTURES[name]}, {float(bits_per_weight(MIXTURES[name])):g} bits.")  # fmt: skip
    name, found = weight_format(name)
    if found.packing is None:
        return Fraction(32 if name == "fp32" else 16)
    if rows is None or row is None:
        return sum((part.per_weight for part in found.packing), Fraction(0))
    return Fraction(8 * packed_bytes(found.packing, rows, row), rows * row)


# --- rules: (model, one copy of a tensor, notes) -> bytes ---

Rule = Callable[[Model, Matrix, dict[str, None]], int]


class WeightFormat(NamedTuple):
    """A weight format: its rule, what arithmetic is counted in, and its packing, or whether it is a GGUF mixture."""

    rule: Rule
    compute: str
    packing: Packing | None = None
    mixture: bool = False


def _plain_rule(size: int) -> Rule:
    return lambda model, one, notes: (max(size, 4) if one.role == CORRECTION else size) * one.parameters


def wide_bytes(one: Matrix) -> int:
    """Bytes of a tensor that a quantised format leaves as it is: 16 bits each, 32 of an expert's correction."""
    return (4 if one.role == CORRECTION else 2) * one.parameters


def stays_wide(one: Matrix) -> bool:
    """Whether engines leave a tensor in 16 bits: all but the matrices of layers, and of these the small ones."""
    return one.layer is None or is_vector(one) or is_router(one) or "conv" in one.role or one.role == "index_weights"


def _linear(packing: Packing, experts_only: bool = False) -> Rule:
    """The matrices of decoder layers are packed; of models with experts only these where a format says so."""

    def rule(model: Model, one: Matrix, notes: dict[str, None]) -> int:
        if stays_wide(one) or (experts_only and one.used is None and experts_of(model)):
            return wide_bytes(one)
        return packed_bytes(packing, one.rows, one.row)

    return rule


_TABLES = ("embedding", "per_layer_embedding", "head")


def _mlx(packing: Packing) -> Rule:
    """Every matrix with rows of whole groups, embedding and head included."""
    group = packing[1].columns

    def rule(model: Model, one: Matrix, notes: dict[str, None]) -> int:
        if is_vector(one) or "conv" in one.role or (one.layer is None and one.role not in _TABLES):
            return wide_bytes(one)
        if one.row % group:
            notes[f"{one.role}: rows of {one.row} are no multiple of {group}, so it stays 16-bit"] = None
            return wide_bytes(one)
        return packed_bytes(packing, one.rows, one.row)

    return rule


def _packed(name: str, packing: Packing) -> WeightFormat:
    rule = _mlx(packing) if name.startswith("mlx-") else _linear(packing, experts_only=name == "mxfp4")
    return WeightFormat(rule, "fp16" if name.startswith("int") and name != "int8" else "bf16", packing)


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    "bf16": WeightFormat(_plain_rule(2), "bf16"),
    "fp16": WeightFormat(_plain_rule(2), "fp16"),
    "fp32": WeightFormat(_plain_rule(4), "fp32"),
    **{name: _packed(name, packing) for name, packing in PACKINGS.items()},
    **{name: WeightFormat(gguf_rule(name), "fp16", mixture=True) for name in MIXTURES},
}
ALIASES = {"f16": "fp16", "float16": "fp16", "bfloat16": "bf16", "f32": "fp32", "float32": "fp32", "q4_km": "q4_k_m",
           "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m", **PACKING_ALIASES}  # fmt: skip


COMMON = ("bf16", "fp8", "int8", "int4-g128", "nf4", "mxfp4", "nvfp4", "q4_k_m", "q5_k_m", "q8_0")


def _plain(format: object) -> str:
    name = str(format).strip().lower()
    return ALIASES.get(name, name)


def _near(name: str) -> str:
    """What a name that is not known may have meant; the lists of formats are too long to be told whole."""
    names = sorted({*WEIGHT_FORMATS, *ALIASES})
    near = [one for one in names if name and one.startswith(name)][:6] or get_close_matches(name, names, n=3)
    return " Did you mean " + " or ".join(f'"{one}"' for one in near) + "?" if near else ""


def weight_format(format: str) -> tuple[str, WeightFormat]:
    """A format by any of its names: the name that it has here, and what it is.

    Names with parameters (int4-g96-sym, mlx-6bit-g32) need not be in `WEIGHT_FORMATS`. Raises ModelError for an unknown
    one, with the nearest known.
    """
    name = _plain(format)
    if name in WEIGHT_FORMATS:
        return name, WEIGHT_FORMATS[name]
    packing = packing_named(name)
    if packing is None:
        kv = " That is a format of the KV cache (--kv-format)." if name in (*KV_FORMATS, LATENT_FORMAT) else ""
        raise ModelError(f'no weight format "{one_line(format)}".{kv or _near(name[:60])} Common ones: '
                         f"{', '.join(COMMON)}. With parameters: {SPELLINGS}. All "
                         f"{len(WEIGHT_FORMATS)}: docs/weight-formats.md.")
    return name, _packed(name, packing)
