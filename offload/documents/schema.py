"""JSON Schema of plan and topology files, for editors: made from the shapes, with the shorthand that files may use.

A shape says what stands in a file once shorthand is written out; here each field says what may be written. A field of a
kind that is not known here is an error, so that a new one cannot be forgotten. What a schema cannot say (that a name
exists, that a rated rate is below its peak) is left to the readers: a file that they take is valid, not the reverse.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from offload import units
from offload.designs.ranks import BY
from offload.documents import plan_weights, topology_shape
from offload.documents import shapes as base
from offload.documents.costs import Power, PowerShape, Price, PriceShape
from offload.documents.key_texts import KEY_TEXTS
from offload.documents.plan_experts import CacheShape
from offload.documents.plan_kv import KvBlockShape
from offload.documents.plan_shape import (
    BlockShape,
    CollectiveShape,
    ComputeShape,
    ExpertsShape,
    ModelShape,
    MoveShape,
    PlacementShape,
    PlanShape,
    TensorShape,
    TimeShape,
    WorkloadShape,
)
from offload.documents.plan_training import TrainingShape
from offload.documents.shape_parallel import ParallelShape
from offload.documents.shapes import Shape
from offload.documents.topology_file import SHAPES as SECTIONS
from offload.documents.topology_shape import (
    FlopRateShape,
    LinkShape,
    MemoryShape,
    ProcessorShape,
    RateShape,
    SwitchShape,
    TopologyShape,
)
from offload.models.formats import KV_FORMATS
from offload.models.weights import WEIGHT_FORMATS
from offload.units.costs import POWER, PRICE
from offload.units.kinds import NUMBER, Kind

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS: Mapping[str, type[Shape]] = {"topology": TopologyShape, "plan": PlanShape}

# --- quantities, as patterns that every text of theirs matches ---


def _any_case(word: str) -> str:
    """A pattern for a word in any case: JSON Schema has no flags."""
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in word)


def _amount(kind: Kind) -> str:
    """A pattern for a number with a unit of a kind."""
    return f"{NUMBER} *{_unit(kind)}"


def _unit(kind: Kind) -> str:
    """A pattern for the units of a kind, the longest first; a slash may have spaces around it, u be a Greek letter."""
    names = sorted(kind.units, key=lambda unit: (-len(unit), unit))
    return "(?:" + "|".join(names).replace("/", " */ *").replace("us", r"[u\u00b5\u03bc]s") + ")"


def _range(unit: str) -> str:
    """A pattern for a low and a high end, with the value between where it is said: "60..77 GB/s"."""
    end = rf"{NUMBER} *(?:{unit})? *(?:\.\.|\u2026) *"
    return f"{end}(?:{end})?{NUMBER} *{unit}"


def _text(what: str, *patterns: str, examples: tuple[str, ...]) -> Schema:
    pattern = f"^ *(?:{'|'.join(patterns)}) *$"
    return {"type": "string", "pattern": pattern, "description": what, "examples": [*examples]}


_PCIE = rf"(?:{_any_case('pcie')} *)?(?:{_any_case('gen')} *)?[1-6](?:\.0)? *[xX\u00d7] *(?:1|2|4|8|16)"
_LINKS = r"[1-5](?:\.0)? *[xX\u00d7] *[0-9]+"
_NVLINK = _any_case("nvlink") + " *" + _LINKS
_RATES = (_amount(units.RATE), rf"{NUMBER} *MT */ *s *[x\u00d7] *[0-9]+", _PCIE, _NVLINK)
_PERCENT = (f"{NUMBER} *%", _range("%"))
_PART = ("rest", "all", _PERCENT[0], _amount(units.SIZE))
QUANTITIES: Mapping[str, Schema] = {
    "size": _text("A size: GB is 10^9 bytes, GiB 2^30; B is a byte, b a bit.", _amount(units.SIZE),
                  examples=("528 MB", "24 GiB")),
    "size_range": _text("A size, or a range.", _amount(units.SIZE), _range(_unit(units.SIZE)),
                        examples=("528 MB", "1..2 GB")),
    "rate_text": _text("A rate, one way; MT/s x channels of 8 bytes.", *_RATES,
                       examples=("26 GB/s", "6000 MT/s x 2", "400 Gb/s")),
    "sustained_rate": _text("What is measured: a rate, a range, or a percentage of the peak or the rated figure.",
                            *_RATES, _range(_unit(units.RATE)), *_PERCENT, examples=("26 GB/s", "60..77 GB/s", "80 %")),
    "flops_text": _text("FLOP per second, dense.", _amount(units.SPEED), examples=("165 TFLOP/s", "330 TOPS")),
    "sustained_flops": _text("What is measured: a rate, a range, or a percentage of the peak or the rated figure.",
                             _amount(units.SPEED), _range(_unit(units.SPEED)), *_PERCENT,
                             examples=("120 TFLOP/s", "90..110 TFLOP/s", "75 %")),
    "work": _text("An amount of work.", _amount(units.WORK), examples=("1.2 TFLOP",)),
    "work_range": _text("An amount of work, or a range.", _amount(units.WORK), _range(_unit(units.WORK)),
                        examples=("1.76 GFLOP", "1..2 TFLOP")),
    "seconds": _text("A time.", _amount(units.TIME), examples=("6 us", "80 ns")),
    "seconds_range": _text("A time, or a range.", _amount(units.TIME), _range(_unit(units.TIME)),
                           examples=("12 ms", "0.9..1.1 ms")),
    "pcie": _text("PCIe generation and lanes.", _PCIE, examples=("4 x16", "5 x4")),
    "nvlink": _text("NVLink generation and links.", _LINKS, _NVLINK, examples=("4 x18",)),
    "layers": _text("A number of layers.", "[1-9][0-9]{0,5} +layers?", examples=("1 layer", "2 layers")),
    "part": _text("A part of the tensor.", *_PART, examples=("50%", "10 GB", "rest")),
    "portion": _text("A part of the layers.", "[0-9]{1,7} +(?:layers?|blocks?)", *_PART,
                     examples=("38 layers", "50%", "20 GB", "rest")),
    "row_share": _text("A share of each layer's rows.", "rest", _PERCENT[0], examples=("20%", "rest")),
    "cached": {"anyOf": [{"type": "integer", "minimum": 0},
                         _text("How much of the prompt.", _PERCENT[0], "[0-9]{1,13} +(?:tokens?|positions?)",
                               examples=("80%",))]},
    "block_tokens": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9_999_999},
                               _text("Positions of a block.", "0*[1-9][0-9]{0,6}(?: +(?:tokens?|positions?))?",
                                     examples=("16 tokens",))]},
    "every": _text("How often.", "layer", "repetition", "step", "0*[1-9][0-9]{0,8} +steps?",
                   examples=("layer", "step", "4 steps")),
    "percentage": _text("A share, as a percentage.", _PERCENT[0], examples=("80%", "88.7 %")),
    "routing": {"anyOf": [
        {"const": "uniform"},
        {"type": "object", "properties": {"zipf": {"type": "number", "minimum": 0}}, "required": ["zipf"],
         "additionalProperties": False},
        {"type": "object", "properties": {"chances": {"type": "array", "items": {"type": "number"}, "minItems": 1}},
         "required": ["chances"], "additionalProperties": False},
    ]},
    "buffers": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9_999_999},
                          {"type": "string", "pattern": "^(?:none|full|[1-9][0-9]{0,6})$"}]},
    "price_text": _text("A price, or a range: a figure and a currency's code, of what is rented with /h.",
                        _amount(PRICE), _range(_unit(PRICE)), examples=("250000 USD", "98.32 USD/h")),
    "power_text": _text("A power, or a range.", _amount(POWER), _range(_unit(POWER)), examples=("700 W", "10.2 kW")),
    "included": {"const": "included", "description": "Another part's figure holds it."},
    "unknown": {"const": "unknown", "description": "Not known: not counted, and told among the assumptions."},
    "sharing": {"enum": list(BY), "description": "What each of a range of processors has of a layer."},
}  # fmt: skip


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _validator(annotation: Any) -> Any:
    """What tells one annotated type from another: the validator in it."""
    return typing.get_args(annotation)[1]


WRITTEN: Mapping[Any, str] = {
    _validator(base.ByteCount): "size",
    _validator(base.ByteInterval): "size_range",
    _validator(base.ByteRate): "rate_text",
    _validator(base.Seconds): "seconds",
    _validator(base.Share): "percentage",
    _validator(base.SecondsInterval): "seconds_range",
    _validator(base.FlopInterval): "work_range",
    _validator(base.FlopRate): "flops_text",
    _validator(plan_weights.Flop): "work",
    _validator(Price): "price_text",
    _validator(Power): "power_text",
    _validator(topology_shape.SustainedRate): "sustained_rate",
    _validator(topology_shape.SustainedFlopRate): "sustained_flops",
    _validator(topology_shape.PcieWidth): "pcie",
    _validator(topology_shape.NvlinkWidth): "nvlink",
}

# Fields that are written in another way than their type says, by shape and field.
_ONE_OR_MORE = ("after", "reads", "writes", "via", "over")  # a text alone is a list of one
_CONTENTS: Mapping[tuple[type[Shape], str], tuple[type[Shape], ...]] = {
    **{(TopologyShape, section): (shape,) for section, shape in SECTIONS.items()},
    (PlanShape, "tensors"): (TensorShape,),
    (PlanShape, "tasks"): (MoveShape, ComputeShape, CollectiveShape),
    (PlanShape, "blocks"): (BlockShape,),
    (BlockShape, "tasks"): (MoveShape, ComputeShape, CollectiveShape),
}


def _map_of(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def _instead(shape: type[Shape], name: str, schema: Schema) -> Schema:
    """A field's schema with the shorthand that the readers write out."""
    if name in _ONE_OR_MORE and schema.get("type") == "array":
        return {"anyOf": [{"type": "string"}, schema]}
    found = [schema]
    if name == "sustained" and schema.get("type") == "object":  # by kind of access
        found = [schema["additionalProperties"], schema]
    if (shape, name) == (LinkShape, "latency"):
        return {"anyOf": [_ref("seconds"), schema | {"minItems": 1, "maxItems": 2}]}
    if (shape, name) == (LinkShape, "between"):
        return schema | {"minItems": 2, "maxItems": 2}
    if (shape, name) == (ModelShape, "blocks"):
        return {"anyOf": [schema["items"], schema | {"minItems": 1}]}
    if (shape, name) == (PlacementShape, "page_cache"):
        return {"anyOf": [{"type": "string"}, schema]}
    if (shape, name) == (SwitchShape, "kind"):
        return {"enum": [*schema["enum"], *(word.replace("_", " ") for word in schema["enum"] if "_" in word)]}
    if (shape, name) == (MemoryShape, "capacity") or (
        shape in (RateShape, FlopRateShape) and name in ("peak", "rated", "sustained")
    ):
        found.append(_ref("unknown"))
    return found[0] if len(found) == 1 else {"anyOf": found}


_WHOLE: Mapping[tuple[type[Shape], str], Schema] = {
    (PlanShape, "overlap"): {
        "anyOf": [
            *QUANTITIES["buffers"]["anyOf"],
            {
                "type": "object",
                "properties": {"buffers": _ref("buffers") | {"description": "Layer-sized slots for what is fetched."}},
                "required": ["buffers"],
                "additionalProperties": False,
            },
        ]
    },
    (TopologyShape, "parts"): {
        "type": "object",
        "properties": {section: _map_of({"type": "object"}) for section in SECTIONS},
        "additionalProperties": False,
    },
    (PlacementShape, "weights"): _map_of(_ref("portion")) | {"minProperties": 1},
    (PlacementShape, "split"): _map_of(_ref("row_share")) | {"minProperties": 2},
    **{(PlacementShape, key): {"anyOf": [{"type": "string"}, _map_of(_ref("portion")) | {"minProperties": 1}]}
       for key in ("kv", "cache")},
    (WorkloadShape, "cached"): _ref("cached"),
    (KvBlockShape, "tokens"): _ref("block_tokens"),
    (ExpertsShape, "home"): {"anyOf": [{"type": "string"}, _map_of(_ref("portion")) | {"minProperties": 1}]},
    (ExpertsShape, "routing"): _ref("routing"),
    (CacheShape, "hit"): {"anyOf": [_ref("percentage"), _ref("routing")]},
    (TrainingShape, "every"): _ref("layers"),
    (TrainingShape, "stage"): {"enum": [2, 3]},
    (ModelShape, "give"): {"type": "object"},  # keys and values of a model's own file
    (TensorShape, "home"): {"anyOf": [{"type": "string"}, _map_of(_ref("part")) | {"minProperties": 1}]},
    **{(shape, "every"): _ref("every") for shape in (MoveShape, ComputeShape, CollectiveShape)},
}
# What a shape as a whole needs besides the keys that it must have.
_NEEDS: Mapping[type[Shape], tuple[tuple[str, ...], ...]] = {
    ModelShape: (("name",), ("config",), ("gguf",), ("blocks",)),
    **{shape: (("kind",), ("use",)) for shape in (MemoryShape, ProcessorShape, SwitchShape)},
    LinkShape: (("use",), ("pcie",), ("nvlink",), ("rate",), ("both_directions",), ("forward",), ("backward",)),
    PlanShape: (("model", "placement"), ("model", "training"), ("tasks",), ("blocks",)),
}
# Keys that an entry must have unless it uses a part that says them.
_OF_PART: frozenset[tuple[type[Shape], str]] = frozenset(
    (shape, "kind") for shape in (MemoryShape, ProcessorShape, SwitchShape)
)
# What may stand instead of a map.
_SHORT: Mapping[type[Shape], tuple[str, ...]] = {
    RateShape: ("sustained_rate", "unknown"),
    FlopRateShape: ("flops_text", "unknown"),
    TimeShape: ("seconds_range",),
    PriceShape: ("included",),
    PowerShape: ("included",),
    ParallelShape: ("sharing",),
    KvBlockShape: ("block_tokens",),
}
_EXAMPLES: Mapping[tuple[type[Shape], str], tuple[Any, ...]] = {
    (PlanShape, "topology"): ("desktop-4090", "./my-box.yaml"),
    (ModelShape, "name"): ("llama-3.1-70b",),
    (ModelShape, "like"): ("llama",),
    (ModelShape, "give"): ({"head_dim": 128},),
    (ModelShape, "weights"): tuple(WEIGHT_FORMATS),
    (ModelShape, "kv"): tuple(KV_FORMATS),
    (LinkShape, "between"): (["socket0", "hbm0"],),
    (PlacementShape, "compute"): ("local", "gpu0"),
    (PlacementShape, "kv"): ("with layer", "dram0"),
    (PlacementShape, "tensors"): ({"ffn_.*_exps": "dram0"},),
    (CacheShape, "hit"): ("90%", {"zipf": 1.0}),
    (PlacementShape, "attention"): ("cpu0",),
    (TrainingShape, "parameters"): ("hbm0", "dram0", "ssd0"),
    (TrainingShape, "optimizer"): ("dram0", "ssd0"),
    (TrainingShape, "checkpoints"): ("dram0", "none"),
    (ComputeShape, "after"): ("fetch", "previous.layer"),
}  # fmt: skip


# --- from shapes ---


def schema_of(kind: str) -> Schema:
    """The JSON Schema (draft 2020-12) of a kind of file: "topology" or "plan"."""
    defs: dict[str, Schema] = {}
    top = _object(KINDS[kind], defs)
    used = set(re.findall(r"#/\$defs/(\w+)", repr([top, defs])))
    defs |= {name: schema for name, schema in QUANTITIES.items() if name in used}
    return {
        "$schema": DIALECT,
        "title": f"{kind.capitalize()} file of offload",
        **top,
        "$defs": dict(sorted(defs.items())),
    }


def _object(shape: type[Shape], defs: dict[str, Schema]) -> Schema:
    hints = typing.get_type_hints(shape, include_extras=True)
    properties, required = {}, []
    for name, field in shape.model_fields.items():
        key = field.alias or name
        properties[key] = _field(shape, name, hints[name], field, defs)
        if field.is_required() and (shape, key) not in _OF_PART:
            required.append(key)
    found: Schema = {"type": "object", "description": " ".join((shape.__doc__ or "").split()), "properties": properties}
    if required:
        found["required"] = required
    if shape in _NEEDS:
        found["anyOf"] = [{"required": list(keys)} for keys in _NEEDS[shape]]
    return found | {"additionalProperties": False}


def _field(shape: type[Shape], name: str, hint: Any, field: FieldInfo, defs: dict[str, Schema]) -> Schema:
    if (shape, name) in _WHOLE:
        schema = _WHOLE[shape, name]
    elif (shape, name) in _CONTENTS:
        parts = [_reference(part, defs) for part in _CONTENTS[shape, name]]
        content = parts[0] if len(parts) == 1 else {"anyOf": parts}
        schema = {"type": "array", "items": content} if "list" in str(hint) else _map_of(content)
    else:
        schema = _instead(shape, name, _of(hint, defs, f"{shape.__name__}.{name}"))
    text = KEY_TEXTS.get(shape.model_config.get("title") or "", {}).get(field.alias or name)
    found = schema | ({"description": text} if text else {})
    if (shape, name) in _EXAMPLES:
        found |= {"examples": list(_EXAMPLES[shape, name])}
    default = field.default
    plain = "type" in schema or "enum" in schema  # a quantity is written with its unit
    if plain and isinstance(default, bool | int | str) and default != "":
        found |= {"default": default}
    return found


def _reference(shape: type[Shape], defs: dict[str, Schema]) -> Schema:
    """A reference to a shape's definition, which is made at its first use."""
    name = shape.__name__.removesuffix("Shape").lower()
    if name not in defs:
        defs[name] = {}  # a shape may hold itself
        own = _object(shape, defs)
        defs[name] = {"anyOf": [*map(_ref, _SHORT[shape]), own]} if shape in _SHORT else own
    return _ref(name)


def _of(hint: Any, defs: dict[str, Schema], where: str) -> Schema:
    """The schema of a type; where : for the error about a type that is not known here."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        for mark in parts[1:]:
            if mark in WRITTEN:
                return _ref(WRITTEN[mark])
        return _of(parts[0], defs, where) | _bounds(parts[1:])
    if origin in (typing.Union, types.UnionType):
        return _of(next(part for part in parts if part is not type(None)), defs, where)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _of(parts[0], defs, where)}
    if origin is dict:
        names = {"propertyNames": _of(parts[0], defs, where)} if typing.get_origin(parts[0]) is Literal else {}
        return {"type": "object", **names, "additionalProperties": _of(parts[1], defs, where)}
    if isinstance(hint, type) and issubclass(hint, Shape):
        return _reference(hint, defs)
    if hint in (str, bool, int):
        return {"type": {str: "string", bool: "boolean", int: "integer"}[hint]}
    raise TypeError(f"{where}: {hint} is not known to offload/documents/schema.py. Say there how it is written.")


def _bounds(marks: tuple[Any, ...]) -> Schema:
    """The least and the greatest value that a pydantic field takes."""
    found: Schema = {}
    for mark in marks:
        for bound in mark.metadata if isinstance(mark, FieldInfo) else (mark,):
            if isinstance(bound, Ge):
                found["minimum"] = bound.ge
            if isinstance(bound, Le):
                found["maximum"] = bound.le
    return found
