"""Hugging Face config.json of dense decoders: Llama 2 and 3, Mistral, Qwen 2.5 and 3.

A family that is not counted yet is refused by name, and so is a key that changes the count in a way that is not
counted (sliding windows, experts). A missing key takes the default of its model class only where that is a fact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offload.errors import ModelError
from offload.models import Model

LARGEST = 10**9  # of a size in a config
LARGEST_FILE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Family:
    """What a model class adds or takes for granted where the file does not say."""

    tied: bool = False
    qkv_bias: bool = False  # biases on Q, K and V whatever the file says
    bias_key: bool = False  # `attention_bias` gives Q, K, V and output a bias
    qk_norm: bool = False
    head_dim: int | None = None  # the class default; None is hidden / heads
    kv_heads: int | None = None  # where the key is missing; None is as many as heads
    window: int | None = None  # the sliding window where the key is missing; None is a class without windows
    window_on: bool = False  # whether the window counts where `use_sliding_window` does not say


FAMILIES = {
    "llama": Family(bias_key=True),
    "mistral": Family(kv_heads=8, window=4096, window_on=True),
    "qwen2": Family(qkv_bias=True, kv_heads=32, window=4096),
    "qwen3": Family(bias_key=True, qk_norm=True, head_dim=128, kv_heads=32, window=4096),
}
KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
}
KV_KEYS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len")
HEAD_KEYS = ("head_dim", "attention_head_dim", "kv_channels")
EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
# Layers of other shapes, a KV cache of another shape, layers that share theirs.
SHAPE_KEYS = (
    "block_configs", "is_encoder_decoder", "kv_lora_rank", "num_kv_shared_layers", "num_nextn_predict_layers",
    "text_config",
)  # fmt: skip
BIT_KEYS = ("bits", "num_bits", "w_bit", "weight_bits", "nbits")
BIT_PARTS = ("weights", "quantization", "weight_config")
FORMAT_OF_BITS = {4: "int4-g128", 8: "int8"}
# Marks of a checkpoint that is stored quantised (the second is MLX's, the third an older name of the first).
STORED_KEYS = ("quantization_config", "quantization", "compression_config")
SIDE_FILE = "hf_quant_config.json"  # where some quantised checkpoints say so instead


def read_config(path: str | Path, *, weights_known: bool = False) -> Model:
    """Read a config.json. Raises ModelError where it is no JSON map, of a family that is not counted yet, or lacks a
    key; OSError where it cannot be opened.
    """
    path = Path(path)
    try:
        if path.name == SIDE_FILE:
            raise ModelError("this file says only how weights are stored. Give the config.json beside it.")
        values = _json(path)
        model = model_of(values, _name(path, values), weights_known=weights_known)
        if not weights_known and path.name == "config.json" and (beside := path.with_name(SIDE_FILE)).exists():
            raise _stored_quantised(f"{SIDE_FILE} beside it says so", _side(beside))
    except ModelError as error:
        raise ModelError(f"{_shown(path, 300)}: {error}") from None
    except RecursionError:
        raise ModelError(f"{_shown(path, 300)}: this JSON nests too deeply to be a config.") from None
    return model


def _json(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except IsADirectoryError:
        raise ModelError("this is a folder. Give the config.json in it.") from None
    except ValueError:  # a zero character
        raise ModelError("no file can have such a name.") from None
    if len(raw) > LARGEST_FILE:
        raise ModelError(f"more than {LARGEST_FILE:,} bytes are no config.json.")
    if not raw.strip():
        raise ModelError("the file is empty. Give the model's config.json.")
    try:
        values = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_without_doubles)
    except UnicodeDecodeError:
        raise ModelError("this is no text in UTF-8. Give the model's config.json.") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"line {error.lineno}, column {error.colno}: no JSON ({error.msg}).") from None
    except ModelError:
        raise
    except ValueError:
        raise ModelError("this JSON holds too long a number to be a config.") from None
    if not isinstance(values, dict):
        raise ModelError(f"a config.json is a map {{...}}, this is {_kind(values)}.")
    return values


def _side(path: Path) -> Mapping[str, Any]:
    """What a side file says; nothing where it cannot be read, since its being there says enough."""
    try:
        return _json(path)
    except (ModelError, OSError):
        return {}


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON map; JSON's readers keep the last of two equal keys, so one of two sizes would be lost without a word."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise ModelError(f"the key {_shown(key)!r} is given twice, with two values. Drop one.")
        values[key] = value
    return values


def _name(path: Path, values: Mapping[str, Any]) -> str:
    given = values.get("_name_or_path")
    folder = _folder(path)
    last = given.strip().rstrip("/").rsplit("/", 1)[-1] if isinstance(given, str) and len(given) < 200 else ""
    for name in (last, f"config.json in {folder}" if path.name == "config.json" and folder else "", path.stem):
        if name and name.isprintable():
            return name
    return "model"


def _folder(path: Path) -> str:
    try:
        return path.resolve().parent.name
    except OSError:  # the current folder is gone
        return path.parent.name


def _kind(value: object) -> str:
    """What a JSON value is, in plain words."""
    kinds = {bool: "true or false", dict: "a map", list: "a list", str: "a text", int: "a number", float: "a number"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "nothing (null)")


def _given(value: object) -> str:
    """A JSON value for a message, as it stands in the file: a text in quotes, a number plain."""
    if isinstance(value, dict | list):
        return _kind(value)
    if isinstance(value, str):
        return f'the text "{_shown(value)}"'
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else _shown(value)


def _shown(value: object, longest: int = 60) -> str:
    """A value for a message: short, and without what a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(value)[:longest])


def model_of(values: Mapping[str, Any], name: str, *, weights_known: bool = False) -> Model:
    """A model from a config's values. Raises ModelError as `read_config`."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise _uncounted_family(values, kind)
    family = FAMILIES[kind]
    _refuse_uncounted(values)
    sizes = {size: _whole(values, keys) for size, keys in KEYS.items()}
    _refuse_windows(values, kind, sizes["layers"])
    stored = next((values[key] for key in STORED_KEYS if values.get(key)), None)
    if stored is not None and not weights_known:
        named = isinstance(stored, dict) and "quant_method" in stored
        raise _stored_quantised(stored["quant_method"] if named else "its file says so", stored)
    heads, hidden = sizes["heads"], sizes["hidden"]
    head_dim = _optional(values, HEAD_KEYS) or family.head_dim
    if head_dim is None:
        if hidden % heads:
            raise ModelError(f'hidden_size {hidden} is no multiple of {heads} heads: add "head_dim".')
        head_dim = hidden // heads
    bias = family.bias_key and _flag(values, "attention_bias", False)
    return Model(
        name=name,
        family=kind,
        layers=sizes["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(values, family, heads),
        head_dim=head_dim,
        ffn=sizes["ffn"],
        vocab=sizes["vocab"],
        tied=_flag(values, "tie_word_embeddings", family.tied),
        qkv_bias=family.qkv_bias or bias,
        out_bias=bias,
        mlp_bias=kind == "llama" and _flag(values, "mlp_bias", False),
        qk_norm=family.qk_norm,
        dtype=_dtype(values),
        max_positions=_optional(values, POSITION_KEYS),
    )


def _dtype(values: Mapping[str, Any]) -> str | None:
    """The number format that a file states, without the name of its library ("torch.bfloat16")."""
    key = "dtype" if values.get("dtype") is not None else "torch_dtype"
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise ModelError(f'{key} is {_given(value)}; it must be the name of a number format, as "bfloat16".')
    return _shown(value).removeprefix("torch.") if value else None


def _kv_heads(values: Mapping[str, Any], family: Family, heads: int) -> int:
    given = _optional(values, KV_KEYS)
    if given is not None:
        return given
    # A null is as many as heads in every class; a missing key is the class's own default.
    if family.kv_heads is None or KV_KEYS[0] in values:
        return heads
    if heads % family.kv_heads:
        raise ModelError(f'the key "{KV_KEYS[0]}" is missing, and {heads} heads do not share the {family.kv_heads} KV '
                         "heads of its class evenly.")
    return family.kv_heads


def _uncounted_family(values: Mapping[str, Any], kind: object) -> ModelError:
    counted = ", ".join(sorted(FAMILIES))
    if kind is None:
        return ModelError(f'the key "model_type" is missing, so the family is not known. Counted families: {counted}.')
    if not isinstance(kind, str):
        return ModelError(f'model_type is {_given(kind)}; it must be the name of a family, as "llama".')
    nested = next((key for key in ("text_config", "llm_config", "language_config") if key in values), None)
    why = f" (its decoder is nested under {nested})" if nested else ""
    return ModelError(
        f"models of type {_shown(kind)!r} are not counted yet{why}. Counted so far are dense decoders: {counted}."
    )


def _stored_quantised(how: object, stored: object) -> ModelError:
    same = FORMAT_OF_BITS.get(bits := _stored_bits(how, stored), "")
    if bits == 8 and "fp8" in f"{how} {stored}".lower():
        same = "fp8"
    unlike = "" if same or bits is None else f" Formats of {bits} bits are not counted yet; take the nearest."
    shown = same or ("int4-g128" if bits is not None and bits < 8 else "int8")
    also = "" if same else " (or fp8, int4-g128, q4_k_m, ...)"
    size = "" if bits is None else f" in {bits} bits"
    return ModelError(
        f"its weights are stored quantised ({_shown(how)}){size}, which is not read from a config yet.{unlike} Say the "
        f"weight format yourself: `weights: {shown}` in a plan file, --weights {shown} without one{also}; the config "
        "then gives the shape."
    )


def _stored_bits(how: object, stored: object) -> int | None:
    """Bits of a stored weight, as quantisers write them down; None where they do not say."""
    found = []
    parts = [stored]
    while parts and len(found) < 100:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        if not isinstance(part, dict):
            continue
        found += [part[key] for key in BIT_KEYS if type(part.get(key)) is int]
        found += [bits for key, bits in (("load_in_4bit", 4), ("load_in_8bit", 8)) if part.get(key) is True]
        parts += [part[key] for key in BIT_PARTS if key in part]
        parts += list(part["config_groups"].values()) if isinstance(part.get("config_groups"), dict) else []
        how = f"{how} {part.get('quant_algo', '')} {part.get('format', '')}"
    named = re.search(r"(?:fp|int|w|float)(4|8)(?![0-9])", str(how).lower())
    return found[0] if found else int(named[1]) if named else None


def _refuse_uncounted(values: Mapping[str, Any]) -> None:
    """Keys that change the count in a way that is not counted."""
    for key in EXPERT_KEYS:
        value = values.get(key)
        if value is not None and (isinstance(value, bool) or value not in (0, 1)):
            raise ModelError(f"{key} is {_given(value)}: mixtures of experts are not counted yet.")
    for key in SHAPE_KEYS:
        if values.get(key):
            raise ModelError(f"{key} is {_given(values[key])}: layers of that shape are not counted yet.")
    classes = values.get("architectures")
    for name in classes if isinstance(classes, list) else []:
        if not (isinstance(name, str) and name.endswith("ForCausalLM")):
            raise ModelError(f"architectures names {_given(name)}: only decoders (...ForCausalLM) are counted yet.")


def _refuse_windows(values: Mapping[str, Any], kind: str, layers: int) -> None:
    """Layers that do not attend to every position."""
    family, kinds = FAMILIES[kind], values.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise ModelError(f"layer_types must be a list with the kind of each of the {layers} layers.")
        others = [one for one in kinds if one != "full_attention"]
        if others:
            raise ModelError(f"layer_types holds {_given(others[0])}: only layers of full_attention are counted yet.")
    on = _flag(values, "use_sliding_window", family.window_on)
    if kinds is not None and kind != "mistral":  # mistral's class does not look at them
        return
    window = values.get("sliding_window", family.window)
    if window is None or not on:
        return
    given = f"is {_given(window)}" if "sliding_window" in values else f"is missing, which means {window} for {kind}"
    raise ModelError(
        f"sliding_window {given}: layers that attend to a window are not counted yet. "
        'If all layers attend to everything, set "sliding_window": null.'
    )


def _optional(values: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    given = {key: _checked(key, values[key]) for key in keys if values.get(key) is not None}
    if len(set(given.values())) > 1:
        raise ModelError(" and ".join(f"{key} is {value}" for key, value in given.items()) + ": drop the wrong one.")
    return next(iter(given.values()), None)


def _whole(values: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    value = _optional(values, keys)
    if value is None:
        also = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
        raise ModelError(f'the key "{keys[0]}"{also} is missing.')
    return value


def _checked(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise ModelError(f"{key} is {_given(value)}; it must be a whole number from 1 to {LARGEST:,}.")
    return value


def _flag(values: Mapping[str, Any], key: str, otherwise: bool) -> bool:
    value = values.get(key)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise ModelError(f"{key} is {_given(value)}; it must be true or false.")
    return value
