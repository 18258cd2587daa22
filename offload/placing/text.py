"""A placement as a plan file, which `offload step` evaluates to the same numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from offload.designs import Placement, Portion
from offload.plan import UNLIMITED, Overlap


def placement_to_data(placement: Placement) -> dict[str, Any]:
    """The keys of a plan file's `placement`; what is as usual is left out. Of what families use."""
    found: dict[str, Any] = {"weights": _portions(placement.weights)}
    if placement.compute != "local":
        found["compute"] = placement.compute
    if placement.kv != "with layer":
        found["kv"] = placement.kv if isinstance(placement.kv, str) else _portions(placement.kv)
    if placement.attention:
        found["attention"] = placement.attention
    if placement.reserve is not None:
        found["reserve"] = f"{placement.reserve} B"
    if placement.host_memory != "pinned":
        found["host_memory"] = placement.host_memory
    if placement.access != "copy":
        found["access"] = placement.access
    if placement.experts is not None:
        asked = placement.experts
        found["experts"] = {"home": _portions(asked.home)}
        if asked.compute:
            found["experts"]["compute"] = asked.compute
        if asked.access != "copy":
            found["experts"]["access"] = asked.access
    if placement.tensors:
        found["tensors"] = dict(placement.tensors)
    return found


def _portions(portions: Sequence[tuple[str, Portion]]) -> dict[str, str]:
    return {name: f"{int(portion.value)} layers" if portion.kind == "layers" else "rest" for name, portion in portions}


def overlap_to_data(overlap: Overlap) -> Any:
    """The key `overlap` of a plan file."""
    if overlap.kind == "none":
        return "none"
    return "full" if overlap.buffers == UNLIMITED else {"buffers": overlap.buffers}


def write_yaml(data: Mapping[str, Any], notes: Sequence[str] = ()) -> str:
    """A plan file's text: maps at two levels as blocks, deeper ones on a line; notes as comments on top."""
    lines = [f"# {note}" for note in notes]
    for key, value in data.items():
        if isinstance(value, Mapping) and key == "placement":
            lines.append(f"{key}:")
            lines += [f"  {name}: {_flow(one)}" for name, one in value.items()]
        else:
            lines.append(f"{key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """A value on one line; texts that YAML could take for something else are quoted."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(str(key))}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(one) for one in value) + "]"
    if isinstance(value, str):
        plain = value and all(letter.isalnum() or letter in " ._-/+" for letter in value) and value[0].isalpha()
        return value if plain and value == value.strip() and value.lower() not in _WORDS else json.dumps(value)
    return json.dumps(value)


_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "none", "nan", "inf"}
