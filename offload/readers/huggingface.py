"""Hugging Face config.json: the file, read strictly; what its keys mean is `offload.models.families`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offload.errors import FileError, ModelError
from offload.files import path_of, read_bytes
from offload.models import Model
from offload.models.families import model_of
from offload.models.families.fields import kind_of, shown
from offload.readers.headers import looks_like

LARGEST_FILE = 16 * 1024 * 1024
SIDE_FILE = "hf_quant_config.json"  # where some quantised checkpoints say so instead


def read_config(
    path: str | Path, *, weights_known: bool = False, like: str | None = None, give: Mapping[str, Any] | None = None
) -> Model:
    """Read a config.json; weights_known, like and give as of `model_of`.

    Raises ModelError where it is no JSON map, of a family that is not counted yet, or lacks a key; FileError where
    it cannot be opened or read.
    """
    path = path_of(path, "a config.json")
    try:
        if path.name == SIDE_FILE:
            raise ModelError("this file says only how weights are stored. Give the config.json beside it.")
        values = config_values(path)
        side = None
        if path.name == "config.json" and (beside := path.with_name(SIDE_FILE)).exists():
            side = _side(beside)
        model = model_of(values, _name(path, values), weights_known=weights_known, like=like, give=give,
                         side=side)  # fmt: skip
    except ModelError as error:
        raise type(error)(f"{shown(path, 300)}: {error}") from None
    except RecursionError:
        raise ModelError(f"{shown(path, 300)}: this JSON nests too deeply to be a config.") from None
    return model


def config_values(path: Path) -> Mapping[str, Any]:
    """A config.json's values. Raises ModelError, without the file's name, for what is no JSON map; FileError."""
    try:
        raw = read_bytes(path, LARGEST_FILE + 1)
    except IsADirectoryError:
        raise ModelError("this is a folder. Give the config.json in it.") from None
    if len(raw) > LARGEST_FILE:
        raise ModelError(f"more than {LARGEST_FILE:,} bytes are no config.json.")
    if not raw.strip():
        raise ModelError("the file is empty. Give the model's config.json.")
    try:
        values = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_without_doubles)
    except UnicodeDecodeError:
        found = looks_like(raw[:512])
        what = f"this is no config.json. It looks like {found}." if found else "this is no text in UTF-8."
        raise ModelError(f"{what} Give the model's config.json.") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"line {error.lineno}, column {error.colno}: no JSON ({error.msg}).") from None
    except ModelError:
        raise
    except ValueError:
        raise ModelError("this JSON holds too long a number to be a config.") from None
    if not isinstance(values, dict):
        raise ModelError(f"a config.json is a map {{...}}, this is {kind_of(values)}.")
    return values


def _side(path: Path) -> Mapping[str, Any]:
    """What a side file says; an empty map where it cannot be read, which is then no known way of storing."""
    try:
        return config_values(path)
    except (ModelError, FileError):
        return {}


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON map; JSON's readers keep the last of two equal keys, so one of two sizes would be lost without a word."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise ModelError(f"the key {shown(key)!r} is given twice, with two values. Drop one.")
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


__all__ = ["LARGEST_FILE", "config_values", "model_of", "read_config"]
