"""Shape of a part of a document, by pydantic; what does not fit is told in our words at its place in the file.

A shape is strict, frozen and refuses unknown keys. It has no unions: shorthand is written out to maps before, so
that a place in the shape is a place in the file (or just below one). Quantities are parsed by their unit here.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from offload import units
from offload.documents.marks import Document, Location, as_written
from offload.documents.nodes import Real, Whole
from offload.errors import did_you_mean
from offload.tracing import NotFollowed, plain


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
ByteInterval = Annotated[tuple[int, int, int], quantity(units.parse_bytes_interval)]
ByteRate = Annotated[float, quantity(units.parse_rate)]
Seconds = Annotated[float, quantity(units.parse_seconds)]
SecondsInterval = Annotated[tuple[float, float, float], quantity(units.parse_seconds_interval)]
FlopInterval = Annotated[tuple[float, float, float], quantity(units.parse_flop_interval)]
FlopRate = Annotated[float, quantity(units.parse_flops)]
Share = Annotated[float, quantity(units.parse_share)]


def validate(document: Document, shape: type[Checked], value: Any, at: Location = ()) -> Checked | None:
    """The value as a shape, or None with the mistakes noted in the document. `at` is where the value stands.

    Mistakes about values that were refused while reading are not told twice.
    """
    try:
        return _with_numbers(shape.model_validate(value), value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        keys = [one["loc"][:-1] for one in found if one["loc"][-1:] == ("[key]",)]  # wrong: so is all that they hold
        for one in found:
            if one["loc"][-1:] == ("[key]",) or not any(one["loc"][: len(key)] == key for key in keys):
                _note(document, shape, at, one)
        return None


class Numbered:
    """A scalar of a file that is not read yet, with the number that is gone on with in place of the equal one."""

    number: Any


class NumberedText(str, Numbered):
    """A text with its number."""


class NumberedWhole(Whole, Numbered):
    """A whole number with its number."""


class NumberedReal(Real, Numbered):
    """A decimal number with its number."""


def numbered(value: Any, number: Any) -> Any:
    """A scalar as it stands in a file, that remembers a number. Raises NotFollowed for what is no scalar."""
    for kind, made in ((str, NumberedText), (Whole, NumberedWhole), (Real, NumberedReal)):
        if isinstance(value, kind):
            found: Any = made(value)
            found.number = number
            if made is not NumberedText:
                found.written = as_written(value)
            return found
    raise NotFollowed(number, value)


def as_key(value: Any) -> object:
    """A value of a file in a form that is equal, and has one hash, for what is written alike."""
    if type(value) is str:
        return value
    if isinstance(value, dict):
        return tuple([(key, as_key(one)) for key, one in value.items()])
    if isinstance(value, list):
        return "list", *map(as_key, value)
    return type(value), as_written(value)


def _with_numbers(read: Checked, value: Any) -> Checked:
    """What was read, with the numbers that scalars of it remember. Raises NotFollowed where one is not that."""
    given = value.items() if isinstance(value, dict) else ()
    found = {key: one.number for key, one in given if isinstance(one, Numbered)}
    if not found:
        return read
    changed = {}
    for key, number in found.items():
        its = getattr(read, key)
        if any(one != plain(number) for one in (its if isinstance(its, tuple) else (its,))):
            raise NotFollowed(number, its)
        changed[key] = (number,) * len(its) if isinstance(its, tuple) else number
    return read.model_copy(update=changed)


def _note(document: Document, shape: type[Shape], at: Location, error: Any) -> None:
    location = (*at, *(part for part in error["loc"] if part != "[key]"))
    kind = error["type"]
    if document.known(location) in document.refused and kind != "missing":
        return
    if kind == "extra_forbidden":
        parent = _shape_at(shape, error["loc"][:-1])
        document.mistake(location, f'unknown key "{location[-1]}". {_keys(parent, location[-1])}', key=True)
        return
    if kind == "missing":
        if location not in document.refused:
            document.mistake(location[:-1], f'the key "{location[-1]}" is missing.', key=True)
        return
    document.mistake(location, _message(shape, error).strip())


def _message(shape: type[Shape], error: Any) -> str:
    """What does not fit and what would, for the kinds of mistake that a shape can find."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        key = next((part for part in reversed(error["loc"]) if isinstance(part, str)), "")
        return in_place_of_a_range(key, str(context.get("error", error["msg"])))
    if kind == "string_type":
        quote = "" if isinstance(given, dict | list | None) else f' Quote it: "{_written(given)}".'
        return f"must be text, not {_kind_of(given)}.{quote}"
    if kind in ("int_type", "int_from_float", "int_parsing", "int_parsing_size"):
        return _beyond(shape, error["loc"], given) or (
            f"must be a whole number, not {_shown(given)}. {_plainly(given, whole=True)}")
    if kind == "float_type":
        return f"must be a number, not {_shown(given)}. {_plainly(given)}"
    if kind == "bool_type":
        word = given.strip().lower() if isinstance(given, str) else ""
        truth = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}.get(word)
        hint = f"Write {truth}, without quotes." if truth else ""
        return f"must be true or false, not {_shown(given)}. {hint}"
    if kind in _DUE:
        return f"must be {_DUE[kind]}, not {_shown(given)}."
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"must be a map, not {_shown(given)}. {_keys_due(shape, error['loc'])}"
    if kind == "literal_error":
        allowed = re.findall("'([^']*)'", context["expected"])  # as pydantic lists them
        return f"unknown {_shown(given)}. {did_you_mean(given, [_listed(one) for one in allowed if one])}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = f"at least {context.get('ge')}" if "ge" in context else f"at most {context.get('le')}"
        return f"must be {bound}, not {_shown(given)}."
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}, not {_shown(given)}."


def _beyond(shape: type[Shape], location: Location, given: object) -> str:
    """What is wrong with a number that would be no better written as a whole one: it is out of bounds; else ""."""
    text = as_written(given) if isinstance(given, str | float) else ""
    if not _NUMBER.fullmatch(text):
        return ""
    number = Decimal(text)
    for bound in _bounds_at(shape, location):
        if number < getattr(bound, "ge", number):
            return f'must be at least {bound.ge}, not "{text[:60]}".'
        if number > getattr(bound, "le", number):
            return f'must be at most {bound.le}, not "{text[:60]}".'
    return ""


def _bounds_at(shape: type[Shape], location: Location) -> list[Any]:
    """The bounds of the number that stands at a place within a shape."""
    holder = _shape_at(shape, location[:-1]) if len(location) > 1 else shape
    fields = {} if holder is None else {field.alias or name: field for name, field in holder.model_fields.items()}
    field = fields.get(location[-1])
    if field is None:
        return []
    found = list(field.metadata)
    for one in (field.annotation, *typing.get_args(field.annotation)):  # of `Annotated[...] | None`
        found += getattr(one, "__metadata__", ())
    return [inner for one in found for inner in (one.metadata if isinstance(one, FieldInfo) else [one])]


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?", re.ASCII)
def _listed(word: str) -> str:
    """A word of a list in a message; one that holds a comma in quotes."""
    return f'"{word}"' if "," in word else word


_INSTEAD = {  # keys that take one figure: what to write where it is not known better than a range
    "peak": "A peak is the most that can be: its high end. What varies is the sustained rate, which may be a range.",
    "rated": "A data sheet has one figure. What varies is the sustained rate, which may be a range.",
    "capacity": "What is there for certain is the low end.",
    "cache": "What a cache may spare at most is the high end.",
    "reserve": "What is kept free for certain is the high end.",
    "latency": "A latency that varies is a list of its least and its typical time: [1 us, 6 us].",
}


def in_place_of_a_range(key: str, message: str) -> str:
    """A message about a quantity of a key; where it is a range, with what to write instead of it."""
    if "where one figure is due" not in message or key not in _INSTEAD:
        return message
    return f"{message} {_INSTEAD[key]}"


_DUE = {
    "list_type": "a list in [ ]",
    "tuple_type": "a list in [ ]",
}


def _plainly(given: object, *, whole: bool = False) -> str:
    """How a number that is quoted, or a whole one that is written with a point or an exponent, is written plainly."""
    text = as_written(given) if isinstance(given, str | float) else ""
    if not _NUMBER.fullmatch(text) or abs(Decimal(text).adjusted()) > 99:
        return "For example: 8." if whole else "For example: 0.5."
    number = Decimal(text)
    if whole and number != number.to_integral_value():
        return "For example: 8."
    plain = f"{number:f}".partition(".")[0] if whole else text.lstrip("+")
    if plain == text:
        return f"Drop the quotes: {plain}"
    return f"Drop the quotes and write {plain}" if isinstance(given, str) else f"Write {plain}"


def _keys_due(shape: type[Shape], location: Location) -> str:
    """The keys of the map that is due at a place within a shape."""
    if found := _shape_at(shape, location):
        return _keys(found, "")
    annotation = _annotation_at(shape, location)
    if typing.get_origin(annotation) is dict:
        names = typing.get_args(typing.get_args(annotation)[0])
        return did_you_mean("", filter(None, names), "Keys") if names else ""
    return ""


def _keys(shape: type[BaseModel] | None, given: object) -> str:
    if shape is None:
        return ""
    names = [field.alias or name for name, field in shape.model_fields.items()]
    return did_you_mean(given, names, f"Keys of {shape.model_config.get('title', 'this map')}")


def _shape_at(shape: type[Shape], location: Location) -> type[BaseModel] | None:
    """The shape that stands at a place within a shape; None where it is none."""
    found = _annotation_at(shape, location)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _annotation_at(shape: Any, location: Location) -> Any:
    """The type that stands at a place within a shape."""
    for part in location:
        if isinstance(shape, type) and issubclass(shape, BaseModel):
            found = [field for name, field in shape.model_fields.items() if part in (name, field.alias)]
            shape = found[0].annotation if found else None
        else:
            shape = (typing.get_args(shape) or (None,))[-1]
        shape = _without_none(shape)
    return shape


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
    return _kind_of(value) if isinstance(value, dict | list) or value is None else f'"{_written(value)[:60]}"'
