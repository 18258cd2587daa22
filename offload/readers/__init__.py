"""Foreign formats read to models, topologies or measured rates, one file for each format."""

from __future__ import annotations

from pathlib import Path

from offload.errors import ModelError
from offload.models import Model, catalogue, parse_model_name
from offload.readers.huggingface import read_config


def load_model(name_or_path: str | Path, *, weights_known: bool = False, as_dense: bool = False) -> Model:
    """A model of the catalogue by name, or from its files: a config.json, a GGUF file, safetensors files with the
    config.json beside them (one file, an index or a folder).

    From files that hold the tensors it has their sizes (`Model.stored`). weights_known : the weight format is given by
    the user, so that a checkpoint which is stored quantised may be read for its shape alone. as_dense : read a family
    that is not known as a plain dense decoder, if its file gives every size. Raises ModelError for what is not known or
    not counted yet, OSError for a file that is not there.
    """
    if isinstance(name_or_path, str) and name_or_path in catalogue:
        return catalogue[name_or_path]
    from offload.readers.model_files import holds_weights, read_model_files  # a model by name needs none of it

    path = Path(name_or_path)
    if holds_weights(path):
        return read_model_files(path, weights_known=weights_known, as_dense=as_dense)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ModelError(f"{path}: this folder holds no config.json.")
        path = path / "config.json"
    if not path.exists() and isinstance(name_or_path, str) and "/" not in name_or_path and path.suffix != ".json":
        return catalogue[parse_model_name(name_or_path)[0]]
    return read_config(path, weights_known=weights_known, as_dense=as_dense)


__all__ = ["load_model", "read_config"]
