"""The tensor types of a GGUF file type: its name ("Q4_K_M") is a mixture, chosen tensor by tensor.

The rules are those of llama.cpp's quantize (src/llama-quant.cpp), for the roles that this package knows. Whole files of
Llama-3.1-8B come out at the bits per weight that its page publishes, to four decimals, in all 22 types that it has.
Approximations are: fused Q, K and V (older versions gave them other types), the first down projections of the IQ1 and
IQ2 types beside shared experts (they are counted, not numbered), and files made with an importance matrix in Q4_0,
Q5_0, IQ4_NL and IQ4_XS (it moves a few down projections). What a person chose tensor by tensor no name can tell.
"""

from __future__ import annotations

from collections.abc import Callable

from offload.models.architecture import Matrix, Model
from offload.models.formats import FALLBACK, GGML

# Each file type, and the type that its tensors have where no rule says otherwise.
MIXTURES = {
    "q2_k": "q2_k", "q2_k_s": "q2_k", "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k",
    "q4_0": "q4_0", "q4_1": "q4_1", "q4_k_s": "q4_k", "q4_k_m": "q4_k", "q5_0": "q5_0", "q5_1": "q5_1",
    "q5_k_s": "q5_k", "q5_k_m": "q5_k", "q6_k": "q6_k", "q8_0": "q8_0",
    "iq1_s": "iq1_s", "iq1_m": "iq1_m", "iq2_xxs": "iq2_xxs", "iq2_xs": "iq2_xs", "iq2_s": "iq2_xs", "iq2_m": "iq2_s",
    "iq3_xxs": "iq3_xxs", "iq3_xs": "iq3_s", "iq3_s": "iq3_s", "iq3_m": "iq3_s", "iq4_nl": "iq4_nl", "iq4_xs": "iq4_xs",
    "tq1_0": "tq1_0", "tq2_0": "tq2_0", "mxfp4_moe": "mxfp4",
}  # fmt: skip
EMBEDDINGS = {
    "iq1_s": "q2_k", "iq1_m": "q2_k", "iq2_xxs": "q2_k", "iq2_xs": "q2_k", "iq2_s": "iq3_s", "iq2_m": "iq3_s",
    "iq3_xxs": "iq3_s", "tq1_0": "q4_k", "tq2_0": "q4_k",
}  # fmt: skip
OUTPUTS = {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}
WIDE_OUTPUTS = {  # of models with eight experts
    "q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m", "iq4_nl", "iq4_xs",
}  # fmt: skip
LOWEST = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m")  # have a rule of their own
ATTENTION_V = ("attn_v", "attn_qkv", "attn_kv_b")


def gguf_rule(mixture: str) -> Callable[[Model, Matrix, dict[str, None]], int]:
    """The rule of a file type: (model, tensor, notes) -> bytes of one copy of the tensor."""

    def rule(model: Model, one: Matrix, notes: dict[str, None]) -> int:
        return _stored(one, tensor_type(mixture, model, one), notes)

    return rule


def _stored(one: Matrix, wanted: str, notes: dict[str, None]) -> int:
    """Bytes in the wanted type, or in the one that takes its place where blocks do not divide the rows."""
    stored = wanted
    if one.row % GGML[wanted].size and wanted in FALLBACK:
        stored = FALLBACK[wanted]
    if one.row % GGML[stored].size:
        stored = "f16"
    if stored != wanted:
        size = GGML[wanted].size
        notes[f"{one.role}: rows of {one.row} are no multiple of {size}, so {stored} instead of {wanted}"] = None
    return one.rows * GGML[stored].row_bytes(one.row)


def tensor_type(mixture: str, model: Model, one: Matrix) -> str:
    """The type that a file type gives a tensor, before rows that no block divides fall back to another.

    Norms, biases, routers and convolutions stay F32. A tied embedding is stored as the output head is.
    """
    kind, default = category(one), MIXTURES[mixture]
    if kind == "kept":
        return "f32"
    if kind == "head" or (kind == "embedding" and model.tied):
        return _head_type(mixture, model, one)
    if mixture == "mxfp4_moe":
        return "mxfp4" if is_expert(one) else "q8_0"
    if kind == "embedding":
        return EMBEDDINGS.get(mixture, default)
    if mixture in LOWEST:
        return _lowest_type(mixture, model, one, kind)
    if kind == "attn_v":
        return _v_type(mixture, model, one)
    if kind == "attn_k" and experts_of(model) == 8:
        return "q8_0"
    if kind in ("attn_k", "attn_q"):
        return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(mixture, default)
    if kind == "ffn_down":
        return _down_type(mixture, model, one)
    if kind == "attn_output":
        return _output_type(mixture, model)
    if kind in ("ffn_gate", "ffn_up") and mixture == "iq3_xs":
        layers = model.layers
        return "iq3_xxs" if layers // 8 <= (one.layer or 0) < 7 * layers // 8 else default
    return default


def category(one: Matrix) -> str:
    """What the rules tell apart: "kept" (never quantised), head, embedding, attn_q .. attn_output, ffn_*, "other"."""
    if one.role in ("head", "embedding"):
        return one.role
    if one.role == "per_layer_embedding":
        return "embedding"
    if one.layer is None or is_vector(one) or is_router(one) or "conv" in one.role:
        return "kept"
    if one.role in ATTENTION_V:
        return "attn_v"
    if one.role in ("attn_k", "attn_q", "attn_output"):
        return one.role
    for part in ("gate", "up", "down"):  # also of experts, routed and shared
        if one.role.startswith(f"ffn_{part}"):
            return f"ffn_{part}"
    return "other"


def is_vector(one: Matrix) -> bool:
    """Norms, biases and the like."""
    return not one.is_matrix


def is_router(one: Matrix) -> bool:
    """What chooses the experts."""
    return "router" in one.role or one.role == "ffn_gate_inp"


def is_expert(one: Matrix) -> bool:
    """A matrix of routed experts (a shared expert is none, nor is a table of which a token reads a row)."""
    return one.used is not None and one.role.startswith("ffn")


def experts_of(model: Model) -> int:
    """Routed experts of a layer, 0 in a dense model (which a model without layers of several kinds is)."""
    return next((layer.experts[0] for layer in model.stack if layer.experts), 0)


def _head_type(mixture: str, model: Model, one: Matrix) -> str:
    default = MIXTURES[mixture]
    if mixture == "mxfp4_moe" or model.family == "falcon" or default == "q8_0":
        return "q8_0"
    # Rows that the file's own blocks do not divide take Q8_0, which takes the place of Q6_K.
    return "q5_k" if mixture in (*LOWEST, "iq3_xxs") and one.row % GGML[default].size == 0 else "q6_k"


def _lowest_type(mixture: str, model: Model, one: Matrix, kind: str) -> str:
    default, more = MIXTURES[mixture], "iq3_s" if mixture in ("iq2_s", "iq2_m") else "q2_k"
    if kind == "attn_v":
        return "q4_k" if _sharing(model) >= 4 or experts_of(model) >= 4 else more
    if kind == "attn_k" and experts_of(model) == 8:
        return "q4_k"
    if kind == "ffn_down" and (one.layer or 0) < model.layers // 8:
        return more
    if kind == "attn_output":
        if experts_of(model) == 8:
            return "q5_k"
        return {"iq1_s": "iq2_xxs", "iq1_m": "iq2_xxs", "iq2_s": "iq3_s", "iq2_m": "iq3_s"}.get(mixture, default)
    return default


def _v_type(mixture: str, model: Model, one: Matrix) -> str:
    found, shared = MIXTURES[mixture], _sharing(model) >= 4
    place, places = _attention_place(model, one)
    if mixture == "q2_k":
        found = "q4_k" if shared else "q3_k"
    elif mixture in ("q2_k_s", "iq3_xxs", "iq3_xs", "iq3_s") and shared:
        found = "q4_k"
    elif mixture == "iq3_m":
        found = "q4_k"
    elif mixture == "q3_k_m":
        found = "q5_k" if place < 2 else "q4_k"
    elif mixture == "q3_k_l" or (mixture in ("iq4_nl", "iq4_xs") and shared):
        found = "q5_k"
    elif mixture in ("q4_k_m", "q5_k_m") and _more_bits(place, places):
        found = "q6_k"
    elif mixture == "q4_k_s" and place < 4:
        found = "q5_k"
    if _is_70b(model) and found in ("q3_k", "q4_k"):
        found = "q5_k"
    return "q8_0" if experts_of(model) == 8 else found


def _down_type(mixture: str, model: Model, one: Matrix) -> str:
    default, falcon = MIXTURES[mixture], model.family == "falcon"
    layer, layers = one.layer or 0, model.layers
    first = layer < layers // 8
    if mixture == "q2_k":
        return "q3_k"
    if mixture == "q2_k_s" or (mixture == "iq3_m" and not first):
        more = mixture == "iq3_m" and experts_of(model) == 8 and _more_bits(layer, layers)
        return "q4_k" if first or more else default
    if mixture == "iq3_m":
        return "q4_k"
    if mixture == "q3_k_m":
        if layer < layers // 16:
            return "q5_k"
        return "q4_k" if not falcon or _more_bits(layer, layers) else "q3_k"
    if mixture == "q3_k_l":
        return "q4_k" if falcon else "q5_k"
    if mixture == "q4_k_m" and falcon:
        return "q6_k" if layer < layers // 16 else "q5_k" if _more_bits(layer, layers) else "q4_k"
    if mixture in ("q4_k_m", "q5_k_m"):
        return "q6_k" if _more_bits(layer, layers) else default
    if first and (mixture in ("iq4_nl", "iq4_xs") or (mixture == "q4_k_s" and not falcon)):
        return "q5_k"
    return default


def _output_type(mixture: str, model: Model) -> str:
    default = MIXTURES[mixture]
    if model.family == "falcon":
        return "q4_k" if mixture == "q3_k_l" else default
    if experts_of(model) == 8:
        return "q5_k" if mixture in WIDE_OUTPUTS else default
    return OUTPUTS.get(mixture, default)


def _sharing(model: Model) -> int:
    """Query heads for each KV head."""
    return model.heads // max(1, model.kv_heads)


def _attention_place(model: Model, one: Matrix) -> tuple[int, int]:
    """Which of the layers with a V projection this is, and how many there are."""
    if not model.stack:
        return one.layer or 0, model.layers
    having = [index for index, layer in enumerate(model.stack) if any(m.role in ATTENTION_V for m in layer.matrices)]
    return sum(index < (one.layer or 0) for index in having), len(having)


def _is_70b(model: Model) -> bool:
    """What llama.cpp takes for a 70B: 80 layers of Qwen 2, or of Llama or Mistral with shared KV heads."""
    shares = model.family in ("llama", "mistral") and model.heads != model.kv_heads
    return model.layers == 80 and (shares or model.family == "qwen2")


def _more_bits(layer: int, layers: int) -> bool:
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
