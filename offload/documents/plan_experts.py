"""What may stand under `placement.experts` of a plan file: routing, an expert cache, a prefetch."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from offload.designs import ExpertCache, Routing
from offload.documents.nodes import as_written
from offload.documents.shapes import ByteCount, Shape, Share
from offload.units import parse_share

ROUTINGS = "uniform, {zipf: 1.0} or {chances: [0.5, 0.3, 0.2]}"
MOST_EXPONENT = 5  # of Zipf's law: with more, one expert does all


def read_routing(value: object) -> Routing:
    """`uniform`, `{zipf: 1.0}` (weights i^-s) or `{chances: [...]}` (that a token picks each expert)."""
    if isinstance(value, dict) and set(value) == {"zipf"}:
        exponent = value["zipf"]
        if not _is_number(exponent) or not 0 <= exponent <= MOST_EXPONENT:
            raise ValueError(f"zipf is the exponent s of weights i^-s, from 0 (all alike) to {MOST_EXPONENT}, as "
                             "{zipf: 1.0}.")
        return Routing("zipf", float(exponent))
    if isinstance(value, dict) and set(value) == {"chances"}:
        chances = value["chances"]
        if not isinstance(chances, list) or not chances or not all(_is_number(one) for one in chances):
            raise ValueError("chances is a list of numbers, one for each expert of a layer: the chance that a token "
                             "picks it.")
        wrong = next((one for one in chances if not 0 <= one <= 1), None)
        if wrong is not None:
            raise ValueError(f"{as_written(wrong)} is no chance: each is from 0 to 1, and all sum to the experts that "
                             "a token goes through.")
        return Routing("chances", chances=tuple(float(one) for one in chances))
    if not isinstance(value, dict | list | bool) and value is not None and as_written(value) == "uniform":
        return Routing()
    given = f', not "{as_written(value)}"' if isinstance(value, str) else ""
    raise ValueError(f"must be {ROUTINGS}{given}.")


def read_hit(value: object) -> float | Routing:
    """A share of the experts that a step touches ("90%"), or the routing that says it."""
    if isinstance(value, dict) or (isinstance(value, str) and value.strip() == "uniform"):
        return read_routing(value)
    if isinstance(value, list | bool) or value is None:
        raise ValueError(f"must be a percentage, as 90%, or how tokens choose: {ROUTINGS}.")
    text = as_written(value)
    if "%" not in text:
        raise ValueError(f'"{text}" is no hit rate. Write a percentage, as 90%, or how tokens choose: {ROUTINGS}.')
    if _is_zero(text):
        raise ValueError(f'"{text}" says that nothing is ever found there: such a cache spares nothing. Drop "cache".')
    return parse_share(text)


def read_accuracy(value: object) -> object:
    """A share above nothing of what is fetched ahead."""
    if not isinstance(value, dict | list | bool) and value is not None and _is_zero(text := as_written(value)):
        raise ValueError(f'"{text}" says that nothing fetched ahead is ever right: it only costs. Drop "prefetch".')
    return value


def _is_zero(text: str) -> bool:
    return re.fullmatch(r"[+-]?0*\.?0*\s*%?", text.strip()) is not None and "0" in text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class PrefetchShape(Shape):
    """Experts that are fetched ahead, while the layer before runs."""

    model_config = ConfigDict(title="a prefetch")
    accuracy: Annotated[Share, BeforeValidator(read_accuracy)]


class CacheShape(Shape):
    """Experts that are kept in a memory, the same number in each layer that fetches its experts."""

    model_config = ConfigDict(title="an expert cache")
    memory: str
    experts: Annotated[int, Field(ge=1, le=65_536)] | None = None
    bytes: ByteCount | None = None
    hit: Annotated[Any, BeforeValidator(read_hit)] = None
    policy: Literal["static", "lru"] | None = None

    def cache(self) -> ExpertCache:
        """As a design takes it. Raises ValueError where its size is not said, or twice, or a key has no effect."""
        if (self.experts is None) == (self.bytes is None):
            raise ValueError('a cache needs its size: "experts" (of each layer) or "bytes" (of all layers together), '
                             "one of the two.")
        given = isinstance(self.hit, float)
        if given and self.policy is not None:
            raise ValueError(f'the hit rate is given, so "policy: {self.policy}" changes nothing. Drop one of the two.')
        return ExpertCache(self.memory, self.experts, self.bytes, self.hit if given else None, self.policy or "static")
