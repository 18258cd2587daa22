"""Foreign formats read to models, topologies or measured rates, one file for each format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offload.errors import ModelError
from offload.files import file_errors, named, path_of
from offload.models import Model, catalogue, parse_model_name
from offload.models.catalogue import is_hub_name
from offload.models.families.said import KnownModel
from offload.readers.huggingface import SIDE_FILE, read_config


def load_model(
    name_or_path: str | Path, *, weights_known: bool = False, like: str | None = None,
    give: Mapping[str, Any] | None = None,
) -> Model:  # fmt: skip
    """A model of the catalogue by name, or from its files: a config.json, a GGUF file, safetensors files with the
    config.json beside them (one file, an index or a folder).

    From files that hold the tensors it has their sizes (`Model.stored`). weights_known : the weight format is given by
    the user, so that a checkpoint which is stored quantised may be read for its shape alone. like : a known family (of
    GGUF files an architecture), whose shapes one that is not known has. give : values of its keys that count instead of
    the file's. Both are notes of the model, and go with files only. Raises ModelError for what is not known or
    not counted yet, FileError (an OSError too) for a file that is not there or cannot be read.

    >>> from offload import load_model
    >>> load_model("llama-3.1-8b").layers
    32
    """
    if isinstance(name_or_path, str) and name_or_path in catalogue:
        return _by_name(name_or_path, like, give)
    from offload.readers.model_files import read_model_files  # a model by name needs none of it

    path = path_of(name_or_path, "a model's name or files")
    with file_errors(path):
        if holds_weights(path):
            return read_model_files(path, weights_known=weights_known, like=like, give=give)
        if path.is_dir():
            if not (path / "config.json").exists():
                side = " hf_quant_config.json says only how weights are stored." if (path / SIDE_FILE).exists() else ""
                raise ModelError(f"{named(path)}: this folder holds no config.json.{side}")
            path = path / "config.json"
        if not path.exists() and isinstance(name_or_path, str) and path.suffix != ".json" and (
                "/" not in name_or_path or is_hub_name(name_or_path)):
            return _by_name(parse_model_name(name_or_path)[0], like, give)
        return read_config(path, weights_known=weights_known, like=like, give=give)


def holds_weights(path: str | Path) -> bool:
    """Whether a path is a file of weights, by its name or its first bytes, or a folder that has one by its name."""
    from offload.readers.model_files import holds_weights

    return holds_weights(path)


def _by_name(name: str, like: str | None, give: Mapping[str, Any] | None) -> Model:
    if like is not None or give:
        raise KnownModel(f"like and give go with a model's files, and {name} is known by its name. Drop them.")
    return catalogue[name]


__all__ = ["holds_weights", "load_model", "read_config"]
