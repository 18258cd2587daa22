"""Configs of published models, and what is read of one with some values changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.errors import ModelError
from offload.models import Model
from offload.models.families import model_of

SAMPLES = Path(__file__).parent / "data" / "hf_config"
FOLDERS = sorted(path.parent.name for path in SAMPLES.glob("*/config.json"))


def values_of(folder: str) -> dict:
    return json.loads((SAMPLES / folder / "config.json").read_text())


CONFIGS = {folder: values_of(folder) for folder in FOLDERS}


def model(folder: str, **changes) -> Model:
    """A sample with changed keys, in the nested part where it has one; a change to ... drops the key."""
    values = values_of(folder)
    inner = values.get("text_config", values)
    inner.update(changes)
    for key in [key for key, value in inner.items() if value is ...]:
        del inner[key]
    return model_of(values, "m", weights_known=True)


def refusal(folder: str, **changes) -> str:
    with pytest.raises(ModelError) as error:
        model(folder, **changes)
    assert len(str(error.value)) < 600 and str(error.value).isprintable()
    return str(error.value)
