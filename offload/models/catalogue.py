"""Well-known models by name: facts from their published config.json files, read as such a file is.

catalogue.json holds, for each name, the keys that say a shape, where they were published ("like": the same as another)
and what they were checked against ("checked").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from offload.errors import ModelError, one_line
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
        source: str = _configs()[name]["source"]
        return source

    def checked(self, name: str) -> str:
        """What a model's facts were checked against: a copy of its config, its checkpoint's total, or something weaker.

        Raises KeyError.
        """
        checked: str = _configs()[name]["checked"]
        return checked


@cache
def _configs() -> dict[str, dict[str, Any]]:
    configs: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return configs


@cache
def _model(name: str) -> Model:
    return model_of(catalogue.config(name), name, weights_known=True)


catalogue = Catalogue()


def parse_model_name(text: str) -> tuple[str, str | None]:
    """("llama-3.1-70b", "q4_k_m") of "llama-3.1-70b:q4_k_m"; the format is None where none is given.

    Case does not matter. Raises ModelError for an unknown model or format, with the nearest known one.
    """
    if not isinstance(text, str):
        raise ModelError(f"a model is named by a text, as llama-3.1-70b:q4_k_m; given is {type(text).__name__}.")
    name, colon, format_ = (part.strip() for part in text.partition(":"))
    known = {key.lower(): key for key in catalogue}
    if name.lower() not in known:
        raise ModelError(_unknown(name))
    if not colon:
        return known[name.lower()], None
    try:
        return known[name.lower()], weight_format(format_)[0]
    except ModelError as error:
        raise ModelError(f'{error} (In "{one_line(text, 120)}".)') from None


def is_hub_name(text: str) -> bool:
    """Whether a text is spelled as a repository of a hub is, OWNER/NAME."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text, re.ASCII) is not None


def _unknown(name: str) -> str:
    """The message about a model that is not known: first the names that may have been meant, then where all are."""
    near = near_names(name)
    meant = " Did you mean " + _either(near) + "?" if near else ""
    if is_hub_name(name):
        return (f'no file, folder or known model "{one_line(name)}"; nothing is downloaded.{meant} For another model '
                "download its files, and give their folder or its config.json.")  # fmt: skip
    known = "" if near else f" Known models: {', '.join(sorted(catalogue))}."
    return f'no model "{one_line(name)}".{meant}{known} Another model is given by the path of its config.json.'


def _either(names: list[str]) -> str:
    *first, last = (f'"{one}"' for one in names)
    return f"{', '.join(first)} or {last}" if first else last


def near_names(name: str) -> list[str]:
    """Up to six names of the catalogue that are near to a text: those that hold it, else those spelled like it."""
    plain = re.sub(r"[\s_]+", "-", name.rsplit("/", 1)[-1].casefold())
    for ending in ("-hf", "-instruct", "-it", "-chat", "-base"):
        plain = plain.removesuffix(ending)
    names = sorted(catalogue)
    if len(plain) > 1:
        exact = [one for one in names if one.casefold() == plain]
        within = exact or [one for one in names if plain in one.casefold()]
        if within:
            return within[:6]
    return get_close_matches(plain[:60], names, n=1, cutoff=0.6)
