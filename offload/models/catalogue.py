"""Well-known models by name: facts from their published config.json files, read as such a file is.

catalogue.json holds, for each name, the keys that say a shape, where they were published ("like": the same as another)
and what they were checked against ("checked").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from offload.errors import ModelError, did_you_mean
from offload.models.architecture import Model
from offload.models.families import model_of
from offload.models.weights import weight_format

FILE = Path(__file__).with_name("catalogue.json")


class Catalogue(Mapping[str, Model]):
    """Models by name, each read when it is first asked for."""

    def __getitem__(self, name: str) -> Model:
        return _model(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_configs())

    def __len__(self) -> int:
        return len(_configs())

    def config(self, name: str) -> Mapping[str, Any]:
        """The keys of a model's config that say its shape and how its weights are stored. Raises KeyError."""
        values = dict(_configs()[name])
        for about in ("source", "checked"):
            values.pop(about)
        return self.config(values["like"]) if "like" in values else values

    def source(self, name: str) -> str:
        """Where a model's facts were published. Raises KeyError."""
        return _configs()[name]["source"]

    def checked(self, name: str) -> str:
        """What a model's facts were checked against: a copy of its config, its checkpoint's total, or something weaker.

        Raises KeyError.
        """
        return _configs()[name]["checked"]


@cache
def _configs() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def _model(name: str) -> Model:
    return model_of(catalogue.config(name), name, weights_known=True)


catalogue = Catalogue()


def parse_model_name(text: str) -> tuple[str, str | None]:
    """("llama-3.1-70b", "q4_k_m") of "llama-3.1-70b:q4_k_m"; the format is None where none is given.

    Case does not matter. Raises ModelError for an unknown model or format, with the nearest known one.
    """
    name, colon, format_ = (part.strip() for part in text.partition(":"))
    known = {key.lower(): key for key in catalogue}
    if name.lower() not in known:
        hint = did_you_mean(name, catalogue, "Known models")
        raise ModelError(f'no model "{name}". {hint} Another model is given by the path of its config.json.')
    if not colon:
        return known[name.lower()], None
    try:
        return known[name.lower()], weight_format(format_)[0]
    except ModelError as error:
        raise ModelError(f'{error} (In "{text[:120]}".)') from None
