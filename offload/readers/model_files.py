"""A model from the files that hold its tensors: shape from a GGUF's keys or the config.json, bytes from the headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from offload.errors import ModelError
from offload.models import Model
from offload.readers.file_sizes import with_stored
from offload.readers.gguf_model import file_format, model_of_gguf
from offload.readers.headers import shown
from offload.readers.huggingface import config_values, read_config
from offload.readers.stored import StoredWeights
from offload.readers.weight_files import read_weights

ENDS = (".gguf", ".safetensors", ".safetensors.index.json")
BITS = ("bits", "w_bit", "weight_bits")
PARTS = ("quantization_config", "quantization", "compression_config")


def holds_weights(path: Path) -> bool:
    """Whether a path is a file of weights by its name, or a folder that has one."""
    try:
        if not path.is_dir():
            return path.name.lower().endswith(ENDS)
        return any(one.name.lower().endswith(ENDS) for one in path.iterdir())
    except ValueError:  # a zero character
        return False


def read_model_files(
    path: str | Path, *, weights_known: bool = False, like: str | None = None, give: Mapping[str, Any] | None = None
) -> Model:
    """The model of a GGUF file, of safetensors files or of a folder of either, with the sizes of its tensors.

    Safetensors need the config.json beside them. From an index without its shards the shape alone is read, and its
    total is a note. weights_known, like, give as of `load_model`. Raises ModelError, OSError.
    """
    path = Path(path)
    try:
        stored = read_weights(path)
    except ModelError as error:
        if not path.is_dir() or not (path / "config.json").exists():
            raise
        raise ModelError(f"{error} For the shape alone give {shown(path / 'config.json', 300)}.") from None
    return model_of_files(path, stored, weights_known=weights_known, like=like, give=give)


def model_of_files(
    path: Path, stored: StoredWeights, *, weights_known: bool = False, like: str | None = None,
    give: Mapping[str, Any] | None = None,
) -> Model:  # fmt: skip
    """The same of files that were read already."""
    if stored.format == "gguf":
        return model_of_gguf(stored, like=like, give=give)
    config = (path if path.is_dir() else path.parent) / "config.json"
    if not config.exists():
        raise ModelError(f"{shown(path, 300)}: no config.json lies beside the tensors, and they do not say a model's "
                         "shape. `offload model` prints what is stored.")
    model = read_config(config, weights_known=weights_known or stored.sized, like=like, give=give)
    model = replace(model, notes=(*model.notes, *stored.notes))
    if not stored.sized:
        size = "" if stored.bytes is None else f" ({stored.bytes:,} B in all)"
        note = f"its index names tensors and not their sizes{size}: bytes are those of the weight format"
        return replace(model, notes=(*model.notes, note))
    return with_stored(model, stored, file_format(stored).lower(), packed_bits=_packed_bits(config_values(config)),
                       described="config.json")  # fmt: skip


def _packed_bits(values: Mapping[str, Any]) -> int | None:
    """Bits of packed whole numbers, where a config says them."""
    for part in PARTS:
        found = values.get(part)
        if isinstance(found, dict):
            return next((found[key] for key in BITS if type(found.get(key)) is int), None)
    return None
