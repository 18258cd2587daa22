"""What may stand in a case file: a published measurement, the plan that it is of, and how the two are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from offload.documents.marks import as_written
from offload.documents.shapes import Shape, Share, quantity
from offload.errors import UnitError
from offload.units import parse_rate, parse_seconds

MOST_STEPS = 10**9
FIGURES = '"3.7 tok/s" (of all sequences together), "32 s", or "26 GB/s" with `of: TASK`'
_TOKENS = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?) ?(?:tok|token|tokens|t)/s", re.ASCII)
_STEPS = re.compile(r"(\d{1,9}) +steps?", re.ASCII)
_KIND = re.compile(r"[a-z][a-z0-9_]*")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)?")


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure with its unit: tok/s, s or B/s."""

    value: float
    unit: Literal["tok/s", "s", "B/s"]


def read_figure(text: str) -> Figure:
    """`3.7 tok/s`, `32 s` or `26 GB/s`, above zero. Raises UnitError for anything else."""
    if match := _TOKENS.fullmatch(text.strip()):
        figure = Figure(float(match[1]), "tok/s")
    elif re.search(r"(/ ?s|ps)$", text.strip()):
        figure = Figure(_or_examples(parse_rate, text), "B/s")
    else:
        figure = Figure(_or_examples(parse_seconds, text), "s")
    if not 1e-12 <= figure.value <= 1e21:
        raise UnitError(f'"{text}" cannot have been measured. Write {FIGURES}.')
    return figure


def _or_examples(parse: Any, text: str) -> float:
    try:
        figure: float = parse(text)
        return figure
    except UnitError as error:
        raise UnitError(f"{error} A measured figure is {FIGURES}.") from None


def _steps(value: object) -> int:
    """`31 steps`."""
    text = as_written(value) if not isinstance(value, dict | list | bool) and value is not None else ""
    if (match := _STEPS.fullmatch(text)) and 1 <= int(match[1]) <= MOST_STEPS:
        return int(match[1])
    raise ValueError(f'"{text}" says no number of steps. Write "31 steps".')


def _matching(pattern: re.Pattern[str], wrong: str) -> BeforeValidator:
    def read(value: object) -> object:
        if isinstance(value, str) and not pattern.fullmatch(value):
            raise ValueError(f'"{value[:80]}" {wrong}')
        return value

    return BeforeValidator(read)


Id = Annotated[str, _matching(_ID, "is no id: letters, digits, -, _ and . only, and at most one /.")]
Text = Annotated[str, _matching(re.compile(r"(?s)\s*\S.*"), "is empty. Write it, or remove the key.")]


class SourceShape(Shape):
    """Where a figure was published."""

    model_config = ConfigDict(title="a source")
    title: Text
    url: Annotated[str, _matching(re.compile(r"https?://\S+\.\S+"), "is no public address: it starts with https://.")]
    repo: Text = ""
    path: Text = ""
    commit: Text = ""
    read_from: Text = ""


class MeasuredShape(Shape):
    """A measured figure and what it is of."""

    model_config = ConfigDict(title="a measurement")
    value: Annotated[Figure, quantity(read_figure)]
    per: Annotated[int, BeforeValidator(_steps)] | None = None
    alone: bool = False
    of: str | None = None
    as_: Literal["rate", "busbw"] = Field(default="rate", alias="as")
    tolerance: Share | None = None
    why: Text = ""


class VariantShape(Shape):
    """The same with other values."""

    model_config = ConfigDict(title="a variant")
    id: Id | None = None
    set: dict[str, Any] = {}
    stated: dict[str, Any] = {}
    topology: Any = None
    measured: MeasuredShape
    trap: Text = ""
    verdict: Text = ""
    note: Text = ""


class CaseShape(Shape):
    """The top of a case file."""

    model_config = ConfigDict(title="a case")
    schema_: str = Field(default="", alias="$schema")
    id: Id | None = None
    kind: Annotated[str, _matching(_KIND, 'is no kind: one word of small letters, as "weight_stream".')]
    entry: Id | None = None
    group: Text = ""
    varies: Text = ""
    resolution: Share | None = None
    order: Text = ""
    topology: Any = None
    stated: dict[str, Any] = {}
    plan: Any
    source: SourceShape
    strength: Literal["A", "B", "C"]
    measured: MeasuredShape | None = None
    variants: list[VariantShape] = []
    trap: Text = ""
    verdict: Text = ""
    note: Text = ""
