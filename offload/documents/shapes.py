"""Shape of a part of a document, by pydantic; what does not fit is told in our words at its place in the file.

A shape is strict, frozen and refuses unknown keys. It has no unions: shorthand is written out to maps before, so
that a place in the shape is a place in the file (or just below one). Quantities are parsed by their unit here.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from offload import units
from offload.documents.marks import Document, Location, as_written
from offload.errors import did_you_mean


class Shape(BaseModel):
    """Base of all shapes. A subclass's `model_config["title"]` names it in messages ("a link")."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


Checked = TypeVar("Checked", bound=Shape)


def quantity(parse: Callable[[str], Any]) -> BeforeValidator:
    """A validator that parses a quantity's text as it is written in the file."""

    def read(value: object) -> Any:
        if isinstance(value, bool | dict | list) or value is None:
            raise ValueError(f"must be one quantity with its unit, not {_kind_of(value)}.")
        return parse(as_written(value))

    return BeforeValidator(read)


ByteCount = Annotated[int, quantity(units.parse_bytes)]
ByteRate = Annotated[float, quantity(units.parse_rate)]
ByteRateInterval = Annotated[tuple[float, float, float], quantity(units.parse_rate_interval)]
Seconds = Annotated[float, quantity(units.parse_seconds)]
Flop = Annotated[float, quantity(units.parse_flop)]
FlopRate = Annotated[float, quantity(units.parse_flops)]
Share = Annotated[float, quantity(units.parse_share)]


def validate(document: Document, shape: type[Checked], value: Any, at: Location = ()) -> Checked | None:
    """The value as a shape, or None with the mistakes noted in the document. `at` is where the value stands.

    Mistakes about values that were refused while reading are not told twice.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            _note(document, shape, value, at, one)
        return None


def _note(document: Document, shape: type[Shape], value: Any, at: Location, error: Any) -> None:
    location = (*at, *(part for part in error["loc"] if part != "[key]"))
    kind = error["type"]
    if document.known(location) in document.refused and kind != "missing":
        return
    given = error["input"]
    context = error.get("ctx", {})
    if kind == "extra_forbidden":
        parent = _shape_at(shape, error["loc"][:-1])
        document.mistake(location, f'unknown key "{location[-1]}". {_keys(parent, location[-1])}', key=True)
        return
    if kind == "missing":
        if location not in document.refused:
            document.mistake(location[:-1], f'the key "{location[-1]}" is missing.', key=True)
        return
    if kind in ("value_error", "assertion_error"):
        message = str(context.get("error", error["msg"]))
    elif kind == "string_type":
        message = f"must be text, not {_kind_of(given)}."
        if not isinstance(given, dict | list | None):
            message += f' Quote it: "{_written(given)}".'
    elif kind in ("int_type", "int_from_float", "int_parsing"):
        message = f'must be a whole number, not {_kind_of(given)}{_shown(given)}. Write it plain, like "8".'
    elif kind == "float_type":
        message = f"must be a number, not {_kind_of(given)}{_shown(given)}."
    elif kind == "bool_type":
        message = f"must be true or false, not {_kind_of(given)}{_shown(given)}."
    elif kind in ("dict_type", "model_type", "model_attributes_type", "mapping_type"):
        parent = _shape_at(shape, error["loc"])
        message = f"must be a map, not {_kind_of(given)}{_shown(given)}. " + (_keys(parent, "") if parent else "")
    elif kind in ("list_type", "tuple_type"):
        message = f"must be a list, not {_kind_of(given)}{_shown(given)}. Write it in [ ]."
    elif kind == "literal_error":
        allowed = [part.strip().strip("'") for part in context["expected"].replace(" or ", ", ").split(",")]
        message = f'unknown "{_written(given)}". {did_you_mean(given, allowed)}'
    else:
        message = f"{error['msg'][:1].lower()}{error['msg'][1:]}{_shown(given)}."
    document.mistake(location, message.strip())


def _keys(shape: type[Shape] | None, given: object) -> str:
    if shape is None:
        return ""
    names = [field.alias or name for name, field in shape.model_fields.items()]
    return did_you_mean(given, names, f"Keys of {shape.model_config.get('title', 'this map')}")


def _shape_at(shape: Any, location: Location) -> type[Shape] | None:
    """The shape that stands at a place within a shape; None where it is none."""
    for part in location:
        shape = _without_none(shape)
        if isinstance(shape, type) and issubclass(shape, BaseModel):
            found = [f for name, f in shape.model_fields.items() if part in (name, f.alias)]
            if not found:
                return None
            shape = found[0].annotation
        else:
            shape = (typing.get_args(shape) or (None,))[-1]
    shape = _without_none(shape)
    return shape if isinstance(shape, type) and issubclass(shape, BaseModel) else None


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(part for part in typing.get_args(annotation) if part is not type(None))
    return annotation


def _kind_of(value: object) -> str:
    if value is None:
        return "nothing"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", dict: "a map", list: "a list"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "something else")


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else as_written(value)


def _shown(value: object) -> str:
    return "" if isinstance(value, dict | list) or value is None else f' ("{_written(value)[:60]}")'
