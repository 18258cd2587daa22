"""Hugging Face config.json of dense decoders: Llama 2 and 3, Mistral, Qwen 2.5 and 3.

A family that is not counted yet is refused by name, and so is a key that changes the count in a way that is not
counted (sliding windows, experts). A missing key takes the default of its model class only where that is a fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offload.errors import ModelError
from offload.models import Model

LARGEST = 10**9  # of a size in a config
LARGEST_FILE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Family:
    """What a model class adds or takes for granted where the file does not say."""

    tied: bool = False
    qkv_bias: bool = False  # biases on Q, K and V whatever the file says
    bias_key: bool = False  # `attention_bias` gives Q, K, V and output a bias
    qk_norm: bool = False
    head_dim: int | None = None  # the class default; None is hidden / heads
    kv_heads: int | None = None  # the class default; None is as many as heads
    window_default: int | None = None  # sliding window where the key is missing


FAMILIES = {
    "llama": Family(bias_key=True),
    "mistral": Family(kv_heads=8, window_default=4096),
    "qwen2": Family(qkv_bias=True, kv_heads=32),
    "qwen3": Family(bias_key=True, qk_norm=True, head_dim=128, kv_heads=32),
}
KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
}
EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")


def read_config(path: str | Path, *, weights_known: bool = False) -> Model:
    """Read a config.json. Raises ModelError where it is no JSON map, of a family that is not counted yet, or lacks a
    key; OSError where it cannot be opened.
    """
    path = Path(path)
    values = _json(path)
    try:
        return model_of(values, _name(path, values), weights_known=weights_known)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _json(path: Path) -> Mapping[str, Any]:
    raw = path.read_bytes()
    if len(raw) > LARGEST_FILE:
        raise ModelError(f"{path}: {len(raw):,} bytes are no config.json.")
    try:
        values = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ModelError(f"{path}: this is no text in UTF-8. Give the model's config.json.") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{path}: line {error.lineno}, column {error.colno}: no JSON ({error.msg}).") from None
    except (RecursionError, ValueError):
        raise ModelError(f"{path}: this JSON nests too deeply or holds too long a number to be a config.") from None
    if not isinstance(values, dict):
        raise ModelError(f"{path}: a config.json is a map {{...}}, this is a {type(values).__name__}.")
    return values


def _name(path: Path, values: Mapping[str, Any]) -> str:
    given = values.get("_name_or_path")
    if isinstance(given, str) and given.strip() and len(given) < 200:
        return given.strip().rstrip("/").rsplit("/", 1)[-1]
    folder = path.resolve().parent.name
    return folder if path.name == "config.json" and folder else path.stem


def model_of(values: Mapping[str, Any], name: str, *, weights_known: bool = False) -> Model:
    """A model from a config's values. Raises ModelError as `read_config`."""
    kind = values.get("model_type")
    if kind not in FAMILIES if isinstance(kind, str) else True:
        _refuse_family(values, kind)
    family = FAMILIES[kind]
    _refuse_uncounted(values, family, weights_known)
    sizes = {size: _whole(values, keys) for size, keys in KEYS.items()}
    heads, hidden = sizes["heads"], sizes["hidden"]
    kv_heads = _optional(values, ("num_key_value_heads", "num_kv_heads", "n_head_kv"))
    if kv_heads is None:
        kv_heads = heads if family.kv_heads is None else family.kv_heads
    head_dim = _optional(values, ("head_dim", "attention_head_dim", "kv_channels")) or family.head_dim
    if head_dim is None:
        if hidden % heads:
            raise ModelError(f'hidden_size {hidden} is no multiple of {heads} heads: add "head_dim".')
        head_dim = hidden // heads
    bias = family.bias_key and _flag(values, "attention_bias", False)
    dtype = values.get("dtype", values.get("torch_dtype"))
    return Model(
        name=name,
        family=kind,
        layers=sizes["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=sizes["ffn"],
        vocab=sizes["vocab"],
        tied=_flag(values, "tie_word_embeddings", family.tied),
        qkv_bias=family.qkv_bias or bias,
        out_bias=bias,
        mlp_bias=kind == "llama" and _flag(values, "mlp_bias", False),
        qk_norm=family.qk_norm,
        dtype=dtype if isinstance(dtype, str) else None,
    )


def _refuse_family(values: Mapping[str, Any], kind: object) -> None:
    counted = ", ".join(sorted(FAMILIES))
    if kind is None:
        raise ModelError(f'the key "model_type" is missing, so the family is not known. Counted families: {counted}.')
    nested = next((key for key in ("text_config", "llm_config", "language_config") if key in values), None)
    why = f" (its decoder is nested under {nested})" if nested else ""
    raise ModelError(
        f"models of type {str(kind)[:60]!r} are not counted yet{why}. Counted so far are dense decoders: {counted}."
    )


def _refuse_uncounted(values: Mapping[str, Any], family: Family, weights_known: bool) -> None:
    """Keys that change the count in a way that is not counted."""
    for key in EXPERT_KEYS:
        if values.get(key) not in (None, 0, 1):
            raise ModelError(f"{key} is {values[key]!r}: mixtures of experts are not counted yet.")
    window = values.get("sliding_window", family.window_default)
    used = values.get("use_sliding_window", family.window_default is not None or "layer_types" in values)
    kinds = values.get("layer_types")
    if isinstance(kinds, list):
        used = any(kind != "full_attention" for kind in kinds)
    if window is not None and used:
        raise ModelError(
            f"sliding_window is {window!r}: layers that attend to a window are not counted yet. "
            'If all layers attend to everything, set "sliding_window": null.'
        )
    stored = values.get("quantization_config")
    if stored and not weights_known:
        method = stored.get("quant_method") if isinstance(stored, dict) else stored
        raise ModelError(
            f"its weights are stored quantised ({str(method)[:40]}), which is not read from a config yet. "
            'Say the weight format yourself (`weights: fp8`, or --weights fp8); the config then gives the shape.'
        )


def _optional(values: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        if values.get(key) is not None:
            return _checked(key, values[key])
    return None


def _whole(values: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    value = _optional(values, keys)
    if value is None:
        also = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
        raise ModelError(f'the key "{keys[0]}"{also} is missing.')
    return value


def _checked(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise ModelError(f"{key} is {str(value)[:60]!r}; it must be a whole number from 1 to {LARGEST:,}.")
    return value


def _flag(values: Mapping[str, Any], key: str, otherwise: bool) -> bool:
    value = values.get(key)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise ModelError(f"{key} is {str(value)[:60]!r}; it must be true or false.")
    return value
