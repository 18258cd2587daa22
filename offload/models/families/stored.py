"""Marks of a checkpoint that is stored quantised, and what its file says of how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from offload.errors import ModelError
from offload.models.families.fields import shown

BIT_KEYS = ("bits", "num_bits", "w_bit", "weight_bits", "nbits")
BIT_PARTS = ("weights", "quantization", "weight_config")
FORMAT_OF_BITS = {4: "int4-g128", 8: "int8"}
# The second is MLX's, the third an older name of the first.
STORED_KEYS = ("quantization_config", "quantization", "compression_config")
NESTED = ("text_config", "llm_config", "language_config")  # where multimodal models keep their decoder


def stored_as(values: Mapping[str, Any]) -> Any:
    """What a config says of how its weights are stored; None where it says nothing. Nested decoders' too."""
    parts = [values, *(values.get(key) for key in NESTED)]
    return next((part[key] for part in parts if isinstance(part, Mapping) for key in STORED_KEYS if part.get(key)),
                None)  # fmt: skip




def refuse_stored(values: Mapping[str, Any]) -> None:
    """Raises ModelError where a config says that its weights are stored quantised."""
    stored = stored_as(values)
    if stored is not None:
        named = isinstance(stored, dict) and "quant_method" in stored
        raise stored_quantised(stored["quant_method"] if named else "its file says so", stored)


def stored_quantised(how: object, stored: object) -> ModelError:
    """The refusal, with the weight format that is nearest to what is stored."""
    same = FORMAT_OF_BITS.get(bits := _stored_bits(how, stored), "")
    if bits == 8 and "fp8" in f"{how} {stored}".lower():
        same = "fp8"
    unlike = "" if same or bits is None else f" Formats of {bits} bits are not counted yet; take the nearest."
    near = same or ("int4-g128" if bits is not None and bits < 8 else "int8")
    also = "" if same else " (or fp8, int4-g128, q4_k_m, ...)"
    size = "" if bits is None else f" in {bits} bits"
    return ModelError(
        f"its weights are stored quantised ({shown(how)}){size}, which is not read from a config yet.{unlike} Say the "
        f"weight format yourself: `weights: {near}` in a plan file, --weights {near} without one{also}; the config "
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
