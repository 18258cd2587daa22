"""What a file of a family that is not known may hold: keys that its namesake reads, and those that change no count.

All others are refused by name, unless the user says that they may be ignored; and so are sizes that the file leaves
out, which the family that is named has of its own.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from offload.errors import ModelError
from offload.models.architecture import Model, layers_of
from offload.models.families.fields import Fields, given, shown
from offload.models.families.parts import HEAD_DIM, KV_HEADS
from offload.models.families.stored import NESTED, STORED_KEYS

IGNORE = "ignore"  # the value of a key that is given to say that it may stay unread
# Keys that change no count and no shape: names, tokens, numbers of norms, positions, routing and training.
HARMLESS = frozenset((
    "_name_or_path", "_attn_implementation", "activation", "activation_function", "alibi", "architectures",
    "attention_dropout", "attention_multiplier", "attention_value_scale", "attn_implementation", "attn_pdrop",
    "auto_map", "aux_loss_alpha", "bad_words_ids", "chunk_size", "chunk_size_feed_forward", "clip_qkv", "dropout",
    "dtype", "embedding_multiplier", "ep_size", "expert_tokens_ratio", "finetuning_task", "hidden_act",
    "hidden_activation", "hidden_dropout", "id2label", "init_std", "initial_context_length", "initializer_factor",
    "initializer_range", "label2id", "layerdrop", "lm_head_multiplier", "logit_scale", "logits_scaling",
    "mamba_hidden_act", "max_length", "max_length_for_rope", "max_new_tokens", "mlp_hidden_act", "model_max_length",
    "model_type", "n_group", "norm_topk_prob", "num_experts_group", "num_logits_to_keep", "num_return_sequences",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states", "output_router_logits",
    "partial_rotary_factor", "prefix", "pretraining_tp", "problem_type", "query_pre_attn_scalar",
    "rescale_prenorm_residual", "resid_pdrop", "residual_dropout", "residual_in_fp32", "residual_multiplier",
    "return_dict", "rope_interleave", "rope_interleaved", "rope_parameters", "rope_percent", "rope_pct",
    "rope_scaling", "rope_type", "rotary_base", "rotary_dim", "rotary_emb_base", "rotary_pct", "rotary_percent",
    "routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef",
    "scale_attn_weights", "scale_emb", "scoring_func", "seq_aux", "swiglu_limit", "task_specific_params",
    "tf_legacy_loss", "time_step_floor", "time_step_limit", "time_step_max", "time_step_min", "tokenizer_class",
    "topk_group", "torch_dtype", "torchscript", "transformers_version", "use_bidirectional_attention", "use_cache",
    "use_flash_attention", "use_flash_attn", "use_mamba_kernels", "use_position_ids", "use_rope", "zloss_coefficient",
    *STORED_KEYS,
))  # fmt: skip
HARMLESS_NAMES = re.compile(
    r"_token_(?:ids?|index)$|_dropout(?:_prob|_rate)?$|_pdrop$|(?:^|_)(?:eps|epsilon)$|_theta$|_base_freq$"
    r"|_softcapping$|_softcap$|_loss_(?:coef|alpha|weight)$"
)
# Positions that are stored nowhere.
ROTATED = ("rope", "rotary", "alibi", "none")
# Flags and counts that say, false or 0, that something is not there; families that have it read them.
ABSENT = frozenset((
    "add_cross_attention", "attention_k_eq_v", "enable_moe_block", "mtp_use_dedicated_embeddings", "n_shared_experts",
    "num_mtp_layers", "num_mtp_modules", "num_shared_experts", "sliding_window", "shared_expert_intermediate_size",
    "shared_intermediate_size", "tie_encoder_decoder", "use_cla", "use_double_wide_mlp", "use_mla", "use_moe",
    "use_mtp", "use_sliding_window",
))  # fmt: skip
# Numbers where 1 is "each of them".
EACH = frozenset(("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "index_topk_freq"))
MUST = (KV_HEADS[0], "tie_word_embeddings")  # these differ too much between families to be taken from one
NAMED = 4  # keys in a message


def without_ignored(give: Mapping[str, Any], fields: Fields) -> tuple[dict[str, Any], Fields]:
    """Values that are given, and a file's with these in place and without the keys that may be ignored.

    Raises ModelError for a key to ignore that the file does not have.
    """
    ignored = [key for key, value in give.items() if value == IGNORE]
    for key in ignored:
        if key not in fields.values:
            raise ModelError(f"{shown(key)} is to be ignored, and the file has no such key. Drop it.")
    values = {key: value for key, value in fields.values.items() if key not in ignored}
    counted = {key: value for key, value in give.items() if key not in ignored}
    return counted, Fields({**values, **counted}, fields.where)


def told_ignored(give: Mapping[str, Any], before: Mapping[str, Any], read: Iterable[str], what: str) -> list[str]:
    """What is ignored, each a note. Raises ModelError for a key that is read: it has no effect only with a value."""
    found = []
    for key in (key for key, value in give.items() if value == IGNORE):
        if key in read:
            raise ModelError(f"{shown(key)} is read of {what}, so it is not ignored. Give its value, or null for none.")
        found.append(f"ignored, as asked: {shown(key)}, which is {given(before[key])}")
    return found


def refuse_others(fields: Fields, model: Model, like: str, shapes: Container[str]) -> None:
    """Raises ModelError for keys that are not read and may change a count. shapes : keys that do, unless 0 or false."""
    others = [key for key, value in fields.values.items()
              if not (_is_read(key, value, fields, model) or _changes_nothing(key, value, model, shapes))]  # fmt: skip
    if others:
        named = [f"{fields.name(shown(key))} ({given(fields.values[key])})" for key in others]
        what, one = "it" if len(others) == 1 else "these", shown(others[0])
        raise ModelError(f"{_some(named)}: {like} does not read {what}, and counts may depend on {what}. Name a family "
                         f"that does, or say what changes nothing: --give {one}={IGNORE} (`give: {{{one}: {IGNORE}}}` "
                         "in a plan file).")


def _some(named: list[str]) -> str:
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more


def _is_read(key: str, value: Any, fields: Fields, model: Model) -> bool:
    """Whether a key was read; kinds of layers that differ, only where the layers differ too: some classes skip them."""
    if key == "layer_types" and isinstance(value, list) and len({str(one) for one in value}) > 1:
        return key in fields.read and len({layer.attention for layer in layers_of(model)}) > 1
    return key in fields.read


def _changes_nothing(key: str, value: Any, model: Model, shapes: Container[str]) -> bool:
    if key == "layer_types":
        return isinstance(value, list) and all(one == "full_attention" for one in value)
    if value is None or value in ("", [], {}) or key in HARMLESS or HARMLESS_NAMES.search(key) or key in NESTED:
        return True
    if key.endswith("bias") and value is False:
        return not any(one.role == "bias" for layer in layers_of(model) for one in layer.matrices)
    if key in ("position_embedding_type", "pos_emb"):
        return value in ROTATED
    if "experts" in key and key in shapes and type(value) is int and value == 1:
        return True
    return (key in ABSENT or key in shapes) and value in (False, 0)


def taken_of(fields: Fields, model: Model, like: str) -> list[str]:
    """Notes on what the file leaves out and the family that is named has: flags, rules, and a derived head size.

    Raises ModelError for sizes, for the number of KV heads and for whether the head is tied: they must be said.
    """
    lacking = {key: value for key, value in fields.lacking.items() if value is not None or key == HEAD_DIM[0]
               or key in MUST or key == "layer_types"}
    sizes = [key for key, value in lacking.items() if _is_size(key, value)]
    must = [key for key in MUST if key in lacking and key not in sizes]
    if sizes or must:
        first = (must + sizes)[0]
        named = [f'"{fields.name(key)}"' for key in must]
        named += [f'"{fields.name(key)}" ({like}\'s own is {given(lacking[key])})' for key in sizes]
        raise ModelError(f"missing, and to be said of a family that is not known: {_some(named)}. Say what it is: "
                         f"--give {first}=... (`give: {{{first}: ...}}` in a plan file).")
    notes = [f"{key} {given(value)}" for key, value in lacking.items() if isinstance(value, bool | int)]
    if HEAD_DIM[0] in lacking and model.heads and model.head_dim * model.heads == model.hidden:
        notes.append(f"{HEAD_DIM[0]} {model.head_dim} (hidden size / heads)")
    if "layer_types" in lacking and len({layer.attention for layer in layers_of(model)}) > 1:
        notes.append("which layers are of which kind")
    return [f"its file does not say, so it is taken from {like}'s class: {', '.join(notes)}"] if notes else []


def _is_size(key: str, value: Any) -> bool:
    if key in EACH and value == 1:
        return False
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
