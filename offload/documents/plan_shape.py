"""What may stand in a plan file: shorthand written out to maps, and the shape of each part."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from offload.designs import Portion
from offload.documents.marks import as_written
from offload.documents.shapes import ByteCount, Flop, Shape
from offload.plan import UNLIMITED, Overlap
from offload.units import parse_bytes, parse_share

MOST_REPEATS = 1_000_000
MOST_TOKENS = 10**12
Repeat = Annotated[int, Field(ge=1, le=MOST_REPEATS)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
_LAYERS = re.compile(r"(\d{1,7}) +layers?")
_STEPS = re.compile(r"(\d{1,9}) +steps?")


def _portion(value: object) -> Portion:
    """`38 layers`, `50%`, `20 GB` or `rest` of a model's layers."""
    if isinstance(value, dict | list | bool) or value is None:
        raise ValueError('must be a portion: "38 layers", "50%", "20 GB" or "rest".')
    text = as_written(value)
    if text in ("rest", "all"):
        return Portion("rest")
    if match := _LAYERS.fullmatch(text):
        return Portion("layers", int(match[1]))
    if re.fullmatch(r"\d+", text):
        raise ValueError(f'"{text}" has no unit. Write "{text} layers", "{text}%" or "{text} GB".')
    if "%" in text:
        return Portion("share", _share(text))
    try:
        return Portion("bytes", parse_bytes(text))
    except ValueError as error:
        raise ValueError(f'{error} A portion is "38 layers", "50%", "20 GB" or "rest".') from None


def _share(text: str) -> float:
    return 0.0 if re.fullmatch(r"0+(\.0+)?\s*%", text.strip()) else parse_share(text)


def _every(value: object) -> tuple[int, bool]:
    """(steps between, once a step): `layer` is once a repetition, `step` once a step, `4 steps` every fourth step."""
    text = as_written(value) if not isinstance(value, dict | list) and value is not None else ""
    if text in ("layer", "repetition"):
        return 1, False
    if text == "step":
        return 1, True
    if (match := _STEPS.fullmatch(text)) and int(match[1]) >= 1:
        return int(match[1]), False
    raise ValueError(f'"{text}" says no rhythm. Write "layer" (once a repetition), "step" or "4 steps".')


def _home(value: object) -> tuple[str, float | int | None]:
    """A share (float), bytes (int) or the rest (None) of a tensor in one memory; carried as (kind, figure)."""
    if isinstance(value, dict | list | bool) or value is None:
        raise ValueError('must be a share: "50%", "10 GB" or "rest".')
    text = as_written(value)
    if text in ("rest", "all"):
        return "rest", None
    if "%" in text:
        return "share", _share(text)
    return "bytes", parse_bytes(text)


def read_overlap(value: object) -> Overlap:
    """`none`, `full`, a number of buffers, or `{buffers: 2}`."""
    if isinstance(value, dict) and set(value) == {"buffers"}:
        value = value["buffers"]
    text = as_written(value) if not isinstance(value, dict | list) and value is not None else ""
    if text == "none":
        return Overlap("none")
    if text == "full":
        return Overlap("buffers", UNLIMITED)
    if re.fullmatch(r"[1-9]\d{0,6}", text):
        return Overlap("buffers", int(text))
    if text == "simulate":
        raise ValueError('"simulate" is not built yet. Write {buffers: 2}, full or none.')
    raise ValueError(f'must be {{buffers: 2}} (1 or more), full or none{", not " + repr(text) if text else ""}.')


class ModelShape(Shape):
    """Which model, in which formats."""

    model_config = ConfigDict(title="a model")
    name: str | None = None
    config: str | None = None
    weights: str | None = None
    kv: str = "f16"


class WorkloadShape(Shape):
    """What is asked of the model."""

    model_config = ConfigDict(title="a workload")
    phase: Literal["decode"] = "decode"
    batch: Tokens = 1
    context: Tokens = 4096
    in_flight: Repeat = 1


class PlacementShape(Shape):
    """Where weights and KV cache live and where layers run."""

    model_config = ConfigDict(title="a placement")
    weights: dict[str, Annotated[Portion, BeforeValidator(_portion)]]
    compute: str = "local"
    kv: str = "with layer"
    reserve: ByteCount | None = None


class TensorShape(Shape):
    """A tensor of a plan by hand; `bytes` is one repetition's."""

    model_config = ConfigDict(title="a tensor")
    bytes: ByteCount
    home: dict[str, Annotated[tuple[str, Any], BeforeValidator(_home)]]
    shared: bool = False
    what: str = ""


class MoveShape(Shape):
    """A task that moves a tensor."""

    model_config = ConfigDict(title="a move")
    move: str
    to: str
    after: list[str] = []
    every: Annotated[tuple[int, bool], BeforeValidator(_every)] = (1, False)
    via: list[str] = []
    buffers: Repeat | None = None
    host_memory: Literal["pinned", "pageable"] = "pinned"


class ComputeShape(Shape):
    """A task that computes."""

    model_config = ConfigDict(title="a compute")
    compute: str
    flops: Flop = 0.0
    format: str | None = None
    reads: list[str] = []
    writes: list[str] = []
    after: list[str] = []
    every: Annotated[tuple[int, bool], BeforeValidator(_every)] = (1, False)


class BlockShape(Shape):
    """Tasks that repeat."""

    model_config = ConfigDict(title="a block")
    repeat: Repeat = 1
    tasks: dict[str, Any]


class PlanShape(Shape):
    """The top of a plan file: by placement (`model`, `placement`) or by hand (`tensors`, `tasks` or `blocks`)."""

    model_config = ConfigDict(title="a plan")
    topology: str
    title: str = ""
    schema_: str = Field(default="", alias="$schema")
    model: dict[str, Any] | None = None
    workload: dict[str, Any] | None = None
    placement: dict[str, Any] | None = None
    tensors: dict[str, Any] | None = None
    repeat: Repeat | None = None
    blocks: list[Any] | None = None
    tasks: dict[str, Any] | None = None
    tokens: Tokens = 1
    in_flight: Repeat = 1
    overlap: Annotated[Overlap, BeforeValidator(read_overlap)] = Overlap()


def tensor_written_out(value: Any) -> Any:
    """`home: dram0` is all of it there."""
    if isinstance(value, dict) and isinstance(value.get("home"), str):
        return value | {"home": {value["home"]: "rest"}}
    return value


def task_written_out(value: Any) -> Any:
    """`after: x` is a list of one."""
    if not isinstance(value, dict):
        return value
    return value | {
        key: [value[key]] for key in ("after", "reads", "writes", "via") if isinstance(value.get(key), str)
    }
