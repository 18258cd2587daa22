"""YAML nodes as plain values: a text is a text, a number is written in decimal, and what YAML would bend is refused.

YAML guesses types from spelling: `NO` is false, `01:00.0` is sixty, `010` is eight, `1e9` is text. Every spelling that
it would bend is a mistake that says what to write. Numbers remember how they were written (`as_written`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Protocol, cast

import yaml

from offload.documents.syntax import FULL_WIDTH_COLON, ODD_SPACE, lines_of, space_name

Location = tuple[Any, ...]  # keys and list positions from the top of the file: ("links", "pcie0", "between", 1)
Place = tuple[int, int]  # line and column, from 1

MOST_VALUES = 100_000  # after aliases are written out: an alias bomb has millions
DEEPEST = 60
_TAGS = "tag:yaml.org,2002:"
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_REAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_RATES = ("rate", "read", "write", "forward", "backward", "reads", "writes", "peak", "rated", "sustained")
_UNKNOWN = ' A rate that is not known is written "unknown".'
_COMMENT = re.compile(r"\s+(#\d+)\b")


class Whole(int):
    """A whole number that remembers its spelling."""

    written: str


class Real(float):
    """A decimal number that remembers its spelling."""

    written: str


def as_written(value: object) -> str:
    """A scalar's text as it stands in the file: `1e9` stays "1e9"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.strip() if isinstance(value, str) else str(getattr(value, "written", value))


def path_text(location: Location) -> str:
    """A location as people write it: links.pcie0.between[1]."""
    text = ""
    for part in (part for part in location if part != ""):
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


class Notes(Protocol):
    """What keeps the places of values, and the mistakes."""

    refused: Any

    def place_key(self, location: Location, place: Place) -> None:
        """Where a key stands."""

    def place_value(self, location: Location, place: Place) -> None:
        """Where a value stands; the first place that is told of it counts."""

    def note(self, location: Location, place: Place, message: str) -> None:
        """Note a mistake at a place."""

    def mistake(self, location: Location, message: str, *, key: bool = False) -> None:
        """Note a mistake at the place of a value, or of its key."""

    def left_out(self, location: Location) -> None:
        """A map's entry is left out, since its key is wrong (noted)."""


class TooMuch(Exception):
    """Aliases write out to more than a person can mean; arguments: the location of what does, and the message."""


class Walk:
    """From nodes to values, with places; every node is visited once for each place it stands at.

    Mistakes and places go to `notes`; place : where a node stands. Raises TooMuch.
    """

    def __init__(self, notes: Notes, text: str, place: Callable[[yaml.Node], Place] | None = None):
        self.notes = notes
        self.place = place or _place
        self.lines = lines_of(text.removeprefix("\ufeff"))
        self.above: set[int] = set()
        self.count = 0

    def refuse(self, location: Location, message: str, *, key: bool = False) -> None:
        self.notes.mistake(location, message, key=key)
        self.notes.refused.add(location)

    def value(self, node: yaml.Node, location: Location) -> Any:
        self.count += 1
        self.notes.place_value(location, self.place(node))
        if self.count > MOST_VALUES:
            message = (f"the file holds more than {MOST_VALUES:,} values (an alias, *name, counts as all that it stands"
                       " for). Write fewer: parts that are alike are one entry, as gpu0..7.")  # fmt: skip
            raise TooMuch(location[:1], message)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, location)
        if id(node) in self.above:
            self.refuse(location, "this alias (*name) holds itself. Write the values out.")
            return None
        if len(self.above) >= DEEPEST:
            raise TooMuch(location[:1], "maps are nested too deeply to be meant.")
        if node.tag not in (_TAGS + "map", _TAGS + "seq"):
            self.refuse(location, f'the type mark "{_tag(node)}" is not supported. Remove it.')
        self.above.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            found: Any = [self.value(child, (*location, n)) for n, child in enumerate(node.value)]
        else:
            found = self.mapping(cast(yaml.MappingNode, node), location)
        self.above.discard(id(node))
        return found

    def mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        found: dict[str, Any] = {}
        first: dict[str, int] = {}
        own: list[tuple[str, yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            key = self.key(key_node, value_node, node, location)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in first:
                place = (*location, key)
                lines = f"on line {line}" if first[key] == line else f"on lines {first[key]} and {line}"
                shown = f'the key "{key}" is given twice, {lines}. Keep one.'
                if key == "<<":
                    shown += ' Several maps are merged by one list: "<<: [*a, *b]".'
                self.notes.note(place, self.place(key_node), shown)
                if location:  # at the top nothing is missing for it
                    self.notes.left_out(place)
                continue
            first[key] = line
            own.append((key, key_node, value_node))
        for key, _, value_node in own:
            if key == "<<":
                self.merge(value_node, location, found, set(first))
        for key, key_node, value_node in own:
            if key != "<<":
                place = (*location, key)
                self.notes.place_key(place, self.place(key_node))
                if isinstance(value_node, yaml.MappingNode | yaml.SequenceNode) and not value_node.flow_style:
                    self.notes.place_value(place, self.place(key_node))
                found[key] = self.value(value_node, place)
        return found

    def merge(self, node: yaml.Node, location: Location, found: dict[str, Any], own: set[str]) -> None:
        """`<<: *name`: the keys of other maps, where the map has none of its own; the first map given wins."""
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                text = "a merge takes maps: <<: *name of a map."
                self.notes.note((*location, "<<"), self.place(source), text)
                continue
            if id(source) in self.above:
                self.refuse(location, "this merge (<<) holds itself. Write the values out.")
                continue
            self.above.add(id(source))
            for key_node, value_node in source.value:
                self.count += 1
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
                if key == "<<":
                    self.merge(value_node, location, found, own)
                elif key is not None and key not in found and key not in own:
                    place = (*location, key)
                    self.notes.place_key(place, self.place(key_node))
                    found[key] = self.value(value_node, place)
            self.above.discard(id(source))

    def key(self, node: yaml.Node, value: yaml.Node, parent: yaml.MappingNode, location: Location) -> str | None:
        """A key's text, or None where it is refused."""
        if not isinstance(node, yaml.ScalarNode):
            message = "a key is a text, not a list or a map. Quote a text that holds { or [."
            self.notes.note((*location, ""), self.place(node), message)
            self.notes.left_out((*location, ""))
            return None
        text: str = node.value
        place = (*location, text)
        message = ""
        if parent.flow_style and _is_empty(value) and not node.style and not self.has_colon(node):
            if ":" in text:
                message = f'a space is missing after the colon: write "{text.replace(":", ": ", 1)}".'
            elif text.startswith("*"):
                message = f'a key that starts with * is an alias. Quote it: "{text}".'
            else:
                message = (
                    f'"{text}" has no value: a comma inside {{ }} starts the next key.'
                    f' Quote a text that holds a comma: "..., {text}".'
                )
        elif found := ODD_SPACE.search(text):
            message = f"the key holds a {space_name(found[0])}. Write a plain space or none."
        elif FULL_WIDTH_COLON in text and not node.style:
            message = 'the key holds a full-width colon (U+FF1A). Write ": ".'
        elif node.tag == _TAGS + "merge" and not node.style:
            return text
        elif not node.style and (bent := _bent(node)):
            message = bent
        elif not node.style and not isinstance(_plain(node), str):
            message = f'a key is a text. Quote it: "{text}".'
        elif not text.strip():
            message = "a key is empty. Give it a name."
        if not message:
            return text
        self.notes.refused.add(place)
        self.notes.note(place, self.place(node), message)
        self.notes.left_out(place)
        return None

    def has_colon(self, node: yaml.ScalarNode) -> bool:
        """Whether a colon follows a key: without it a text in { } was cut by a comma."""
        line, column = int(node.end_mark.line), int(node.end_mark.column)
        return line < len(self.lines) and self.lines[line][column:].lstrip().startswith(":")

    def scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        text = node.value
        if node.style:
            if not (node.tag == _TAGS + "str" or node.tag == "!"):
                self.refuse(location, f'the type mark "{_tag(node)}" is not supported. Remove it.')
            return text
        if message := _bent(node) or self.odd_text(node):
            if not _is_finite(node):
                message += _UNKNOWN if _may_be_unknown(location) else " Give one, or remove the key."
            self.refuse(location, message)
            return text
        value = _plain(node) if node.tag != _TAGS + "null" else None
        if value is None:
            said = "the value is missing" if not text else f'"{text}" is no value here'
            unknown = _UNKNOWN if _may_be_unknown(location) else ""
            self.refuse(location, f"{said}. Give one, or remove the key.{unknown}", key=not text)
        elif isinstance(value, float) and not math.isfinite(value):
            self.refuse(location, f'"{text}" is larger than any number that can be meant.')
        return value

    def odd_text(self, node: yaml.ScalarNode) -> str:
        """What is wrong with an unquoted text that YAML takes as it stands."""
        text = node.value
        if found := ODD_SPACE.search(text):
            return f'the text holds a {space_name(found[0])}. Write a plain space, or quote the text: "{text}".'
        end = node.end_mark
        rest = self.lines[end.line][end.column :] if end.line < len(self.lines) else ""
        if text and (lost := _COMMENT.match(rest)):
            return f'YAML takes "{lost[1]}" as a comment. Quote the text: "{text} {lost[1]}"; or put a space after #.'
        if _WHOLE.fullmatch(text) is None and re.fullmatch("[-+]?[0-9]{19,}", text):
            return f'"{text}" is larger than any number that can be meant. Quote it if it is a name.'
        return ""


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _tag(node: yaml.Node) -> str:
    tag: str = node.tag.replace(_TAGS, "!!")
    return tag


def _is_finite(node: yaml.ScalarNode) -> bool:
    return node.tag != _TAGS + "float" or node.value.lower().lstrip("+-") not in (".nan", ".inf")


def _may_be_unknown(location: Location) -> bool:
    """Whether a rate is due there."""
    names = [part for part in location if isinstance(part, str)]
    return bool(names) and (names[-1] in _RATES or "flops" in names)


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and not node.value


def _plain(node: yaml.ScalarNode) -> Any:
    """An unquoted text as number, bool or itself; `1e9` is a number too, which YAML takes as text."""
    text = node.value
    if node.tag == _TAGS + "int" and _WHOLE.fullmatch(text):
        number: Any = Whole(text)
        number.written = text
    elif _REAL.fullmatch(text) and (node.tag == _TAGS + "float" or re.search("[eE]", text)):
        number = Real(text)
        number.written = text
    else:
        return text.lower() == "true" if node.tag == _TAGS + "bool" else text
    return number


def _bent(node: yaml.ScalarNode) -> str:
    """Why an unquoted spelling is refused: YAML reads it as something other than it looks like; "" if fine."""
    text, tag = node.value, node.tag.removeprefix(_TAGS)
    if tag in ("str", "null", "value", "merge"):
        return ""
    if tag == "bool":
        if text.lower() in ("true", "false"):
            return ""
        truth = "true" if text.lower() in ("yes", "on") else "false"
        return f'YAML reads {text} as {truth}. Quote it if it is a name: "{text}"; or write {truth}.'
    if tag == "timestamp":
        return f'YAML reads {text} as a date. Quote it: "{text}".'
    if tag not in ("int", "float"):
        return f'the type mark "{_tag(node)}" is not supported. Remove it.'
    if _BASE_60.fullmatch(text):
        return (
            f"YAML reads {text} as the number {_base_60(text):g} (base 60). An id or a name must be text: quote it,"
            f' "{text}"; write a number without colons.'
        )
    if tag == "float" and text.lower().lstrip("+-") in (".nan", ".inf"):
        return f"{text} is no number that can be meant."
    if "_" in text:
        return f'"{text}" holds an underscore. Write {text.replace("_", "")}, or quote it if it is a name.'
    if tag == "int" and not re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", text):
        try:
            number = int(text, 0) if re.match("[-+]?0[xb]", text) else int(text, 8)
        except ValueError:
            return f'"{text}" is no whole number. Remove the type mark, or quote it.'
        meant = number if re.match("[-+]?0[xb]", text) else text.lstrip("+-0") or 0
        return f'YAML reads {text} as {number}. Quote it if it is a name: "{text}"; or write {meant}.'
    if tag == "float" and not _REAL.fullmatch(text):
        return f'"{text}" is no number. Remove the type mark, or quote it.'
    return ""


def _base_60(text: str) -> float:
    number = 0.0
    for part in text.replace("_", "").lstrip("+-").split(":"):
        number = number * 60 + float(part)
    return -number if text.startswith("-") else number
