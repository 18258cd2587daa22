"""What a GGUF file's keys say and its tensors do not: contradictions, and keys that may matter and are not known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.models import Layer
from offload.models.families.fields import given
from offload.models.families.likeness import IGNORE
from offload.readers.gguf_layers import Keys

# Below an architecture's name: keys that change nothing that is kept or counted, or that tensors say.
HARMLESS = re.compile(
    r"rope\..*|attention\.(?:layer_norm.*|scale|output_scale|causal|clamp_kqv|max_alibi_bias|q_lora_rank|temperature.*"
    r"|group_norm.*|sink.*|(?:key|value)_length(?:_mla)?|head_count.*)|.*logit_softcapping|.*_scale|expert_weights_.*"
    r"|expert_.*feed_forward_length|expert_(?:shared|group|group_used)_count|expert_gating_func|vocab_size"
    r"|leading_dense_block_count|interleave_moe_layer_step|moe_every_n_layers|nextn_predict_layers|tensor_data_layout"
    r"|use_parallel_residual|swiglu_.*|activation_sparsity_scale|decoder_start_token_id|full_attention_interval"
    r"|embedding_length_per_layer_input|altup\..*|token_shift_count|rescale_every_n_layers|pooling_type|classifier\..*"
)
DENSE = ("ffn_gate", "ffn_up")
HALVES = ("qwen",)  # architectures whose feed_forward_length is gate and up together


def without_ignored(give: Mapping[str, Any], metadata: Mapping[str, Any], architecture: str
                    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """A file's keys with the values that are given in place and those gone that may be ignored; and the former alone.

    Raises ModelError for a key to ignore that the file does not have.
    """
    ignored = {f"{architecture}.{key}" for key, value in give.items() if value == IGNORE}
    if lacking := sorted(ignored - set(metadata)):
        raise ModelError(f"{shown(lacking[0])} is to be ignored, and the file has no such key. Drop it.")
    counted = {key: value for key, value in give.items() if value != IGNORE}
    kept = {key: value for key, value in metadata.items() if key not in ignored}
    return {**kept, **{f"{architecture}.{key}": value for key, value in counted.items()}}, counted


def refuse_others(keys: Keys, like: str) -> None:
    """Raises ModelError for keys of an architecture that is not known, which `like` does not read and may matter."""
    start = f"{keys.start}."
    for name, value in keys.metadata.items():
        key = name.removeprefix(start)
        if key != name and key not in keys.read and value not in (None, 0, False) and not HARMLESS.fullmatch(key):
            raise ModelError(f"{shown(name)} is {given(value)}: files of {like} have no such key, and what layers keep "
                             "may depend on it. Name an architecture that has it, or say that it changes nothing: "
                             f"--give {shown(key)}={IGNORE}.")


def refuse_other_kinds(known_state: str, stack: Sequence[Layer], like: str) -> None:
    """Raises ModelError where layers are to be like recurrent ones and none of them is."""
    if known_state and not any(layer.state.elements or layer.state.conv for layer in stack):
        raise ModelError(f"like names {like}, whose layers keep a state, and no layer of this file holds the "
                         "convolution of one. Name an architecture whose layers attend.")


def contradictions(
    keys: Keys, give: Mapping[str, Any], stack: Sequence[Layer], ffn: Sequence[int], vocab: int
) -> list[str]:
    """Notes on keys that tensors contradict, where the tensors count.

    Raises ModelError where such a key was given by the user, and for experts that no layer has.
    """
    found: list[tuple[str, str]] = []
    said = keys.whole("vocab_size", vocab, least=0)
    if said != vocab:
        found.append(("vocab_size", f"is {said:,}, and token_embd.weight has {vocab:,} rows"))
    for index, (layer, size) in enumerate(zip(stack, ffn, strict=True)):
        rows = {one.role: one.rows for one in layer.matrices if one.role in DENSE and one.used is None}
        wrong = set(rows.values()) - ({size // 2} if keys.start in HALVES else {size})
        if len(rows) == 1:  # gate and up may be one matrix
            wrong.discard(2 * size)
        if wrong and keys.has("feed_forward_length"):
            found.append(("feed_forward_length", f"is {size:,} for layer {index}, whose tensors have {min(wrong):,} "
                                                 "rows"))  # fmt: skip
            break
    count = keys.whole("expert_count", 0, least=0)
    if count and not any(layer.experts for layer in stack):
        raise ModelError(f"{keys.start}.expert_count is {count}, and no layer holds experts. Give all of the model's "
                         "files, or drop the key.")
    for key, text in found:
        if key in give:
            raise ModelError(f"{key} {text}: drop what is given.")
    return [f"{keys.start}.{key} {text}: the tensors count" for key, text in found]
