"""Families of decoders: what the keys of a Hugging Face config mean, by `model_type`.

A family that is not known is refused by name, and so is a key that changes a shape in a way that its family does not
know. A missing key takes the default of its model class only where that is a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from offload.errors import ModelError, did_you_mean
from offload.models.architecture import Model
from offload.models.families.fields import Fields, given, shown
from offload.models.families.likeness import refuse_others, taken_of, told_ignored, without_ignored
from offload.models.families.parts import HEADS, HIDDEN, LAYERS
from offload.models.families.said import LIKE, KnownModel, not_read, told
from offload.models.families.stored import NESTED, stored_as, stored_weights

Reader = Callable[..., Model]  # (fields, name, family)
# The reader of each family, as module and function; a module is imported when one of its families is read.
READERS = {
    "dense.plain_decoder": ("llama", "mistral", "qwen2", "qwen3", "gemma", "granite"),
    "dense.phi3": ("phi3",),
    "dense.gemma2": ("gemma2",),
    "dense.gemma3": ("gemma3",),
    "dense.glm": ("glm", "glm4"),
    "dense.molmo": ("molmo",),
    "classic.opt": ("opt",),
    "classic.gpt2": ("gpt2",),
    "classic.bloom": ("bloom",),
    "classic.falcon": ("falcon",),
    "experts.mixtral": ("mixtral",),
    "experts.granite_moe": ("granitemoe", "granitemoeshared"),
    "experts.qwen_moe": ("qwen2_moe", "qwen3_moe"),
    "experts.gpt_oss": ("gpt_oss",),
    "experts.minimax_m2": ("minimax_m2",),
    "experts.llama4": ("llama4",),
    "experts.mimo_v2": ("mimo_v2_flash",),
    "latent.deepseek": ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa"),
    "latent.glm4_moe": ("glm4_moe",),
    "recurrent.mamba2": ("mamba2",),
    "recurrent.bamba": ("bamba",),
    "recurrent.granite_hybrid": ("granitemoehybrid",),
    "recurrent.jamba": ("jamba",),
    "recurrent.nemotron_h": ("nemotron_h",),
    "recurrent.qwen_linear": ("qwen3_next", "qwen3_5", "qwen3_5_moe"),
    "uneven.gemma4": ("gemma4",),
    "uneven.nemotron_nas": ("nemotron-nas",),
}
FAMILIES = {family: reader for reader, families in READERS.items() for family in families}


def _reader(family: str) -> Reader:
    module, _, function = FAMILIES[family].partition(".")
    reader: Reader = getattr(import_module(f"offload.models.families.{module}"), function)
    return reader


# Keys that change a count or a shape; a family that does not read one cannot be right about the model.
SHAPE_KEYS = (
    "num_local_experts", "num_experts", "n_routed_experts", "block_configs", "is_encoder_decoder", "kv_lora_rank",
    "num_kv_shared_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers", "index_n_heads", "attn_layer_period",
    "hybrid_override_pattern", "hybrid_layer_pattern", "linear_num_value_heads", "ssm_state_size", "mamba_d_state",
    "layers_block_type", "hidden_size_per_layer_input", "attn_layer_indices", "mamba_n_heads",
    *NESTED,
)  # fmt: skip
ENDINGS = ("ForCausalLM", "LMHeadModel")  # of classes that are decoders


def model_of(
    values: Mapping[str, Any], name: str, *, weights_known: bool = False, like: str | None = None,
    give: Mapping[str, Any] | None = None, side: Any = None,
) -> Model:
    """A model from a config's values.

    weights_known : the weight format is given by the user, so that a checkpoint which is stored in a way that is not
    known may be read for its shape alone. like : a known family, whose shapes one that is not known has. give : values
    of the decoder's keys that count instead of the file's; "ignore" is for a key that nothing reads. side : what a side
    file says of how weights are stored; a config that says so itself counts. Raises ModelError for a family that is not
    known and a key that is missing, wrong or contradicted by another, and for one that is given and not read.
    """
    outer = Fields(values)
    kind, inner = _decoder(outer, like is not None)
    nested = inner is not outer
    family = kind.removesuffix("_text") if kind.removesuffix("_text") in FAMILIES else kind
    counted, fields = without_ignored(give, inner) if give else ({}, inner)
    if family in FAMILIES:
        if like is not None:
            raise KnownModel(f"its family {family} is known. Drop like ({shown(like)}).")
        _refuse_classes(outer, nested=nested)
        beside = (outer,) if family == "gemma3" and nested else ()
        model = _reader(family)(fields, name, family, *beside)
    elif like is not None:
        model = _read_like(fields, name, family, like)
    else:
        raise _unknown_family(kind, nested=nested)
    _refuse_unread(fields, family)
    stated = _dtype(fields)
    what = f"models of type {shown(like or family)}"
    if unread := sorted(set(counted) - fields.read):
        raise ModelError(not_read(unread[0], fields.read, what))
    ignored = told_ignored(give or {}, inner.values, fields.read, what)
    notes = (*model.notes, *told(counted, inner.values), *ignored)
    if side is None or stored_as(values) is not None:
        side = stored_as(values)
    stored = None if side is None else stored_weights(side, weights_known=weights_known)
    if stored is not None:
        notes = (*notes, *stored[1])
    if nested and not model.further:
        notes = (*notes, f"only the decoder under {fields.where[:-1]} is counted, not what is stored beside it")
    return replace(model, dtype=stated or _dtype(outer), quantised=stored and stored[0], notes=notes)


def _decoder(outer: Fields, any_type: bool) -> tuple[str, Fields]:
    """The decoder's model type and values: the config itself, or the part of it that a multimodal model nests.

    any_type : it may say none.
    """
    kind = _model_type(outer, any_type)
    parts = [key for key in NESTED if outer.raw(key) is not None and outer.raw(key) != {}]
    if not parts:
        return kind, outer
    if len(parts) > 1:
        raise ModelError(f"{' and '.join(parts)} are given: which of them is the decoder is not known. Drop one.")
    inner = outer.map(parts[0])
    nested = _model_type(inner, any_type)
    if kind.removesuffix("_text") in FAMILIES and nested.removesuffix("_text") != kind.removesuffix("_text"):
        raise ModelError(f"model_type is {given(kind)} and {inner.name('model_type')} {given(nested)}: layers of that "
                         "shape are not counted. Drop the wrong one.")
    for keys in (LAYERS, HIDDEN, HEADS, ("vocab_size",), ("tie_word_embeddings",)):
        for key in keys:
            one, other = outer.values.get(key), inner.values.get(key)
            if one is not None and other is not None and one != other:
                raise ModelError(f"{key} is {given(one)} and {inner.name(key)} is {given(other)}: drop the wrong one.")
    tied = outer.values.get("tie_word_embeddings")
    if tied is not None:
        inner = Fields({**inner.values, "tie_word_embeddings": tied}, inner.where)
    return nested, inner


def _model_type(fields: Fields, any_type: bool) -> str:
    kind = fields.raw("model_type")
    if kind is None and any_type:
        return "unnamed"
    if kind is None:
        raise ModelError(f'the key "{fields.name("model_type")}" is missing, so the family is not known.'
                         f"{fields.instead('model_type')}")
    if not isinstance(kind, str):
        raise ModelError(f"{fields.name('model_type')} is {given(kind)}; it must be the name of a family, as "
                         '"llama".')
    return kind


def _unknown_family(kind: str, *, nested: bool) -> ModelError:
    where = " (its decoder's)" if nested else ""
    return ModelError(
        f"models of type {shown(kind)!r}{where} are not counted yet. {did_you_mean(kind[:60], FAMILIES, 'Counted')} "
        f"If its layers have the shapes of a known family, say so: {LIKE}."
    )


def _read_like(fields: Fields, name: str, family: str, like: str) -> Model:
    """A family that is not known, read with the shapes of one that is because the user says so.

    No key that may change a count stays unread, and no size is taken from the class of the family that is named.
    """
    if like not in FAMILIES:
        raise ModelError(f"like names {shown(like)!r}, which is no family here. "
                         f"{did_you_mean(like[:60], FAMILIES, 'Known')}")
    model = _reader(like)(fields, name, like)
    notes = [f"its family {shown(family)!r} is not known: read with the shapes of {like}, as asked",
             *taken_of(fields, model, like)]  # fmt: skip
    refuse_others(fields, model, like, SHAPE_KEYS)
    return replace(model, family=shown(family), notes=(*model.notes, *notes))


def _refuse_classes(fields: Fields, *, nested: bool) -> None:
    classes = fields.raw("architectures")
    endings = (*ENDINGS, "ForConditionalGeneration") if nested else ENDINGS
    for name in classes if isinstance(classes, list) else []:
        if not (isinstance(name, str) and name.endswith(endings)):
            raise ModelError(f"architectures names {given(name)}: only decoders (...ForCausalLM) are counted yet.")


def _refuse_unread(fields: Fields, family: str) -> None:
    """Keys of other shapes that this family's reader did not look at."""
    for key in SHAPE_KEYS:
        if key in fields.read or not (value := fields.values.get(key)):
            continue
        if "experts" in key and type(value) is int and value == 1:
            continue
        raise ModelError(f"{fields.name(key)} is {given(value)}: layers of that shape are not counted for "
                         f"{shown(family)}.")
    kinds = fields.values.get("layer_types")
    if kinds is not None and "layer_types" not in fields.read:
        if not isinstance(kinds, list) or any(one != "full_attention" for one in kinds):
            raise ModelError(f"{fields.name('layer_types')} is given: layers of several kinds are not counted for "
                             f"{shown(family)}.")


def _dtype(fields: Fields) -> str | None:
    """The number format that a file states, without the name of its library ("torch.bfloat16")."""
    found = {}
    for key in ("dtype", "torch_dtype"):
        value = fields.raw(key)
        if value is not None and not isinstance(value, str):
            raise ModelError(f'{fields.name(key)} is {given(value)}; it must be the name of a number format, as '
                             '"bfloat16".')
        if value:
            found[key] = shown(value).removeprefix("torch.")
    if len(set(found.values())) > 1:
        both = " and ".join(f"{fields.name(key)} is {given(value)}" for key, value in found.items())
        raise ModelError(f"{both}: drop the wrong one.")
    return next(iter(found.values()), None)
