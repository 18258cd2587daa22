"""What may stand in a plan file about KV: blocks, what is found of a prompt, and shorthand written out."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from offload.designs import KvBlock, Portion
from offload.documents.marks import as_written
from offload.documents.shapes import SecondsInterval, Shape
from offload.plan import GivenTime
from offload.units import parse_share

CACHED = '"80%" of the prompt, or a number of positions, as 8000'
_TOKENS = re.compile(r"(\d+)(?: +(?:tokens?|positions?))?")
LARGEST = 9_999_999  # positions of a block


def _cached(value: object) -> Portion:
    """A share of the prompt, or a number of its positions."""
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    if match := re.fullmatch(r"(\d{1,13})(?: +(?:tokens?|positions?))?", text):
        return Portion("positions", int(match[1]))
    if re.fullmatch(r"0+(\.0+)?\s*%", text):
        return Portion("share", 0.0)
    if "%" in text:
        try:
            return Portion("share", parse_share(text))
        except ValueError:
            raise ValueError(f'"{text}" is no share of the prompt. Write {CACHED}.') from None
    raise ValueError(f'"{text}" does not say how much of the prompt is found. Write {CACHED}.')


def _tokens(value: object) -> int:
    """`16 tokens`, or 16."""
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    match = _TOKENS.fullmatch(text)
    if match is None or not match[1].strip("0"):
        raise ValueError(f'"{text}" is no size of a block. Write the positions that it holds: "16 tokens".')
    if len(digits := match[1].lstrip("0")) > 9 or int(digits) > LARGEST:
        raise ValueError(f'"{text}" is more than a block may hold: {LARGEST:,} positions at most.')
    return int(digits)


Cached = Annotated[Portion, BeforeValidator(_cached)]


class KvBlockShape(Shape):
    """KV is copied block by block, and each copy takes a time beside its bytes."""

    model_config = ConfigDict(title="a KV block")
    tokens: Annotated[int, BeforeValidator(_tokens)]
    each: Literal["side", "layer", "model"] = "side"
    per_copy: SecondsInterval | None = None
    source: str = ""

    def block(self) -> KvBlock:
        """The value. Raises ValueError where a source has no figure."""
        if self.per_copy is None:
            if self.source:
                raise ValueError('the source is of "per_copy", which is not given. Write per_copy: 3.6 us, or drop it.')
            return KvBlock(self.tokens, self.each)
        return KvBlock(self.tokens, self.each, GivenTime(*self.per_copy, source=self.source))


def kv_written_out(placement: dict[str, Any]) -> dict[str, Any]:
    """`kv: dram0` is all of it there, `cache: dram0` too, and `kv_block: 16 tokens` its size alone."""
    for key in ("kv", "cache"):
        if isinstance(placement.get(key), str):
            placement = placement | {key: {placement[key]: "rest"}}
    block = placement.get("kv_block")
    if isinstance(block, str | int) and not isinstance(block, bool):
        placement = placement | {"kv_block": {"tokens": block}}
    return placement
