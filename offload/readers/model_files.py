"""A model from the files that hold its tensors: shape from a GGUF's keys or the config.json, bytes from the headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.files import path_of
from offload.models import Model, weigh
from offload.models.formats import FORMAT_OF_DTYPE
from offload.readers.file_sizes import BESIDE, with_stored
from offload.readers.gguf_model import file_format, model_of_gguf
from offload.readers.huggingface import config_values, read_config
from offload.readers.stored import StoredWeights
from offload.readers.weight_files import read_weights, weights_kind

ENDS = (".gguf", ".safetensors", ".safetensors.index.json")
BITS = ("bits", "w_bit", "weight_bits")
PARTS = ("quantization_config", "quantization", "compression_config")


class Unshaped(ModelError):
    """Files of weights that are sound and are not read as a model. stored : them; reason : why not, without advice."""

    def __init__(self, message: str, stored: StoredWeights, reason: str = ""):
        super().__init__(message)
        self.stored, self.reason = stored, reason or message


def holds_weights(path: str | Path) -> bool:
    """Whether a path is a file of weights, by its name or its first bytes, or a folder that has one by its name."""
    path = Path(path)
    try:
        if not path.is_dir():
            return path.name.lower().endswith(ENDS) or weights_kind(path) != ""
        return any(one.name.lower().endswith(ENDS) for one in path.iterdir())
    except ValueError:  # a zero character
        return False


def read_model_files(
    path: str | Path, *, weights_known: bool = False, like: str | None = None, give: Mapping[str, Any] | None = None
) -> Model:
    """The model of a GGUF file, of safetensors files or of a folder of either, with the sizes of its tensors.

    Safetensors need the config.json beside them. From an index without its shards the shape alone is read, and its
    total is a note. weights_known, like, give as of `load_model`. Raises ModelError, FileError; Unshaped where
    the files are sound and no model that is known.
    """
    path = path_of(path, "a model's files")
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
    try:
        if stored.format == "gguf":
            return model_of_gguf(stored, like=like, give=give)
        config = (path if path.is_dir() else path.parent) / "config.json"
        if not config.exists():
            reason = "no config.json lies beside the tensors, and they do not say a model's shape."
            raise Unshaped(f"{shown(path, 300)}: {reason} `offload model` prints what is stored.", stored, reason)
        return _with_config(config, stored, weights_known, like, give)
    except Unshaped:
        raise
    except ModelError as error:
        raise Unshaped(str(error), stored) from None


def _with_config(
    config: Path, stored: StoredWeights, weights_known: bool, like: str | None, give: Mapping[str, Any] | None
) -> Model:
    model = read_config(config, weights_known=weights_known or stored.sized, like=like, give=give)
    model = replace(model, notes=(*model.notes, *stored.notes))
    if not stored.sized:
        size = "" if stored.bytes is None else f" ({stored.bytes:,} B in all)"
        notes = [f"its index names tensors and not their sizes{size}: bytes are those of the weight format"]
        return replace(model, notes=(*model.notes, *notes, *_not_described(model, stored)))
    return with_stored(model, stored, file_format(stored).lower(), packed_bits=_packed_bits(config_values(config)),
                       described="config.json")  # fmt: skip


def _not_described(model: Model, stored: StoredWeights) -> list[str]:
    """A note on what an index's totals hold and the config does not describe, in 16 bits as such parts are kept."""
    total, parameters = stored.bytes, stored.metadata.get("total_parameters")
    format = model.quantised.format if model.quantised is not None else FORMAT_OF_DTYPE.get(model.dtype or "")
    if total is None or parameters is None or format is None or parameters <= model.parameters_stored:
        return []
    further = parameters - model.parameters_stored
    counted = weigh(model, format).total + 2 * (model.parameters_stored - model.parameters)
    both = counted + 2 * further
    kinds = [kind for kind in BESIDE if any(one.role == kind for one in stored.groups)]
    named = f" ({', '.join(kinds)} by its names)" if kinds else ""
    return [f"its index counts {parameters:,} parameters, {further:,} more than config.json describes{named}: "
            f"{2 * further:,} B in 16 bits, with the {counted:,} B in {format} that are counted {both:,} B, "
            f"{abs(both - total) / total:.2g} of the index's total off"]


def _packed_bits(values: Mapping[str, Any]) -> int | None:
    """Bits of packed whole numbers, where a config says them."""
    for part in PARTS:
        found = values.get(part)
        if isinstance(found, dict):
            return next((found[key] for key in BITS if type(found.get(key)) is int), None)
    return None
