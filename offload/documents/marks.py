"""A YAML file as plain values, with the line and column of every key and value, and all its mistakes at once.

    document = read_document("box.yaml")              # or parse_document(text, "box.yaml")
    document.value                                    # dict of dict, list, str, int, float, bool
    document.set(("batch",), "8", "--set batch=8")    # a value from elsewhere: mistakes about it say so
    document.part(("plan",))                          # a map of it as a document of its own
    document.mistake(("links", "pcie0"), "...")       # at its place; collected
    document.raise_if_mistakes()                      # one DocumentError with all of them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from pathlib import Path
from typing import Any, TypeVar

from offload.documents.nodes import Location, Place, Real, TooMuch, Walk, Whole, as_written, path_text
from offload.documents.syntax import compose, compose_value, read_text
from offload.errors import DocumentError, Mistake
from offload.files import named, path_of

__all__ = ["Document", "Location", "Real", "Whole", "as_written", "parse_document", "path_text", "read_document"]

Item = TypeVar("Item")
NOWHERE = (0, 0)  # the place of what does not stand in the file


class Document:
    """One file: `value` (a dict of plain values), the place of each of them, and the mistakes found so far."""

    def __init__(self, name: str, text: str, path: Path | None = None):
        self.name = name
        self.path = path
        self.value: dict[str, Any] = {}
        self.refused: MutableSet[Location] = set()  # values with a mistake of their own, so that none is told twice
        self._noted: dict[tuple[Location, Mistake], None] = {}  # an ordered set
        self._keys: dict[Location, Place] = {}
        self._values: dict[Location, Place] = {(): (1, 1)}
        self._origins: dict[Location, str] = {}  # of values that were set
        self._left_out: set[Location] = set()  # entries of maps whose keys are wrong
        self._out_of_place: set[Location] = set()  # keys that do not belong there
        try:
            self.value = Walk(self, text).value(compose(text, name), ())
        except TooMuch as error:
            location, message = error.args
            self.note(location, self.mark(location), message)
            self.raise_if_mistakes()

    def copy(self) -> Document:
        """The document as it is now; what is set or noted in either does not reach the other."""
        made = Document.__new__(Document)
        made.name, made.path, made.value = self.name, self.path, self.value  # whoever sets a value copies its holders
        made.refused, made._left_out, made._out_of_place = set(self.refused), {*self._left_out}, {*self._out_of_place}
        made._noted, made._keys, made._values, made._origins = (
            {**self._noted}, {**self._keys}, {**self._values}, {**self._origins})  # fmt: skip
        return made

    @property
    def mistakes(self) -> list[Mistake]:
        """The mistakes noted so far, in the order in which they were found."""
        return [mistake for _, mistake in self._noted]

    def known(self, location: Location) -> Location:
        """The longest start of a location that stands in the file (shorthand has no place of its own)."""
        while location not in self._values:
            location = location[:-1]
        return location

    def mark(self, location: Location, *, key: bool = False) -> Place:
        """Line and column, from 1, of the value at a location, or with `key` of its key; the nearest place above it
        where the file has none. A map's place is its key's. (0, 0) for a value that was set from elsewhere.
        """
        location = self.known(tuple(location))
        return (self._keys if key else self._values).get(location) or self._values[location]

    def mistake(self, location: Location, message: str, *, key: bool = False) -> None:
        """Note a mistake at a location, shown as it is written; none about a value that was refused before.

        Nor is one about a map of which an entry was left out: what is missing may be there.
        """
        at = self.known(tuple(location))
        if any(at[:depth] in self._out_of_place for depth in range(1, len(at) + 1)):
            return
        if at not in self.refused and not self.lacks(at):  # else told where it was read
            self.note(at, self.mark(location, key=key), message)

    def reject(self, location: Location, message: str) -> None:
        """Note that a key does not belong there; mistakes inside of its value, before and after, are not told."""
        location = tuple(location)
        if self.known(location) == location:
            self.forgive(location)
        self.mistake(location, message, key=True)
        self._out_of_place.add(location)

    def lacks(self, location: Location) -> bool:
        """Whether an entry of a map was left out, since its key is wrong; the mistake is noted there."""
        return any(one[:-1] == location for one in self._left_out)

    def left_out(self, location: Location) -> None:
        """An entry of a map is left out, since its key is wrong (which is noted)."""
        self._left_out.add(tuple(location))

    def note(self, location: Location, place: Place, message: str, origin: str | None = None) -> None:
        """Note a mistake at a place, whatever is refused. origin : what gave the value, where that is not the file."""
        location = tuple(location)
        if origin is None:
            origin = self.origin(location)
        if not origin and location:  # what is wrong may be a value below that the file does not say
            inside = [one for at, one in self._origins.items() if _below(at, location)]
            message += f" (With {', '.join(dict.fromkeys(inside))}.)" if inside else ""
        mistake = Mistake(*(NOWHERE if origin else place), path_text(location), message, origin)
        self._noted[(location, mistake)] = None

    def origin(self, location: Location) -> str:
        """What set the value at a location, or the nearest one above it; "" where it stands in the file."""
        location = tuple(location)
        while location and location not in self._origins:
            location = location[:-1]
        return self._origins.get(location, "")

    def was_set(self, location: Location) -> bool:
        """Whether the value at a location, or any below it, was set."""
        return any(_below(one, location) or _below(location, one) for one in self._origins)

    def forgive(self, location: Location) -> None:
        """Forget the mistakes about a value and what is below it, and that they were refused."""
        location = tuple(location)
        for one in [one for one in self._noted if _below(one[0], location)]:
            del self._noted[one]
        for one in [one for one in self.refused if _below(one, location)]:
            self.refused.discard(one)
        for found in (self._left_out, self._out_of_place):
            found -= {one for one in found if _below(one, location)}

    def raise_if_mistakes(self) -> None:
        """Raise one DocumentError with every mistake noted so far."""
        if self.mistakes:
            raise DocumentError(self.name, self.mistakes)

    def get(self, location: Location, otherwise: Any = None) -> Any:
        """The value at a location, or `otherwise` where the file has none."""
        value: Any = self.value
        for part in location:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return otherwise
        return value

    def part(self, location: Location) -> Document:
        """A map inside this document as a document of its own; its mistakes are noted here, at their place here.

        Where no map stands there, that is a mistake, and the part is empty.
        """
        location = tuple(location)
        if not isinstance(self.get(location), dict):
            if location not in self.refused:
                there = location in self._values
                message = "must be a map." if there else "is missing: a map is due here."
                self.note(location, self.mark(location, key=True), message)
                self.refused.add(location)
            self._values.setdefault(location, self.mark(location, key=True))
        return _Part(self, location)

    def set(self, location: Location, text: str, origin: str) -> None:
        """Replace the value at a location, or add it, by what a text says, read as it would be in a file.

        Maps that are missing on the way are made; mistakes about the old value are forgotten. origin : what gave the
        text, as "--set workload.batch=8": mistakes about the value start with it. A way through what is no map, or
        through an entry that a list does not have, is a mistake.
        """
        location = tuple(location)
        holder = self._cleared(location, origin)
        if holder is None:
            return
        try:
            holder[location[-1]] = Walk(self, text, lambda node: NOWHERE).value(compose_value(text, origin), location)
        except DocumentError as error:  # no YAML
            self._refuse(location, error.mistakes[0].message)
        except TooMuch as error:
            self._refuse(location, error.args[1])

    def set_value(self, location: Location, value: str | int | float | bool, origin: str) -> None:
        """The same by a plain value instead of a text."""
        location = tuple(location)
        holder = self._cleared(location, origin)
        if holder is not None:
            holder[location[-1]] = value

    def _refuse(self, location: Location, message: str) -> None:
        self.note(location, NOWHERE, message)
        self.refused.add(location)

    def _cleared(self, location: Location, origin: str) -> Any:
        """The map or list that holds a location's value, which is forgotten; missing maps are made. None: noted why.

        It and all that hold it are copied: other documents may have them too.
        """
        holder: Any = {**self.value}
        self.value = holder
        for depth, (key, following) in enumerate(zip(location, (*location[1:], None), strict=True)):
            at = location[:depth]
            wrong = ""
            if isinstance(holder, list):
                if not isinstance(key, int) or not 0 <= key < len(holder):
                    count = f"has {len(holder)} entries, numbered from 0" if holder else "is empty"
                    wrong = f'{path_text(at)} {count}: there is no "{key}".'
            elif not isinstance(holder, dict):
                text = "missing" if holder is None else f'"{as_written(holder)}"'
                wrong = f'{path_text(at)} is {text} and no map, so it holds no "{key}". Set all of it.'
            if wrong:
                self.note(location, NOWHERE, wrong, origin)
                return None
            place = location[: depth + 1]
            if following is None or (isinstance(holder, dict) and key not in holder):
                self._forget(place, origin)
            if following is None:
                return holder
            held = holder.get(key, {}) if isinstance(holder, dict) else holder[key]
            holder[key] = {**held} if isinstance(held, dict) else [*held] if isinstance(held, list) else held
            holder = holder[key]
        raise ValueError("a location has at least one key")

    def _forget(self, location: Location, origin: str) -> None:
        """Forget all about a value; from now on it comes from `origin`."""
        self.forgive(location)
        for places in (self._keys, self._values, self._origins):
            for one in [one for one in places if _below(one, location)]:
                del places[one]
        self._origins[location] = origin
        self._keys[location] = self._values[location] = NOWHERE

    # What a walk over nodes tells.

    def place_key(self, location: Location, place: Place) -> None:
        self._keys[location] = place

    def place_value(self, location: Location, place: Place) -> None:
        self._values.setdefault(location, place)


class _Part(Document):
    """A map inside a document: everything is kept there."""

    def __init__(self, whole: Document, at: Location):
        self.whole, self.at = whole, at
        self.name, self.path = whole.name, whole.path
        self.refused = _RefusedBelow(whole.refused, at)

    @property  # what stands there now; nothing sets it
    def value(self) -> dict[str, Any]:  # type: ignore[override]
        found = self.whole.get(self.at)
        return found if isinstance(found, dict) else {}

    @property
    def mistakes(self) -> list[Mistake]:
        return [mistake for location, mistake in self.whole._noted if _below(location, self.at)]

    def copy(self) -> Document:
        return _Part(self.whole.copy(), self.at)

    def known(self, location: Location) -> Location:
        return self.whole.known((*self.at, *location))[len(self.at) :]

    def mark(self, location: Location, *, key: bool = False) -> Place:
        return self.whole.mark((*self.at, *location), key=key)

    def mistake(self, location: Location, message: str, *, key: bool = False) -> None:
        self.whole.mistake((*self.at, *location), message, key=key)

    def note(self, location: Location, place: Place, message: str, origin: str | None = None) -> None:
        self.whole.note((*self.at, *location), place, message, origin)

    def reject(self, location: Location, message: str) -> None:
        self.whole.reject((*self.at, *location), message)

    def lacks(self, location: Location) -> bool:
        return self.whole.lacks((*self.at, *location))

    def left_out(self, location: Location) -> None:
        self.whole.left_out((*self.at, *location))

    def origin(self, location: Location) -> str:
        return self.whole.origin((*self.at, *location))

    def was_set(self, location: Location) -> bool:
        return self.whole.was_set((*self.at, *location))

    def forgive(self, location: Location) -> None:
        self.whole.forgive((*self.at, *location))

    def part(self, location: Location) -> Document:
        return self.whole.part((*self.at, *location))

    def set(self, location: Location, text: str, origin: str) -> None:
        self.whole.set((*self.at, *location), text, origin)

    def set_value(self, location: Location, value: str | int | float | bool, origin: str) -> None:
        self.whole.set_value((*self.at, *location), value, origin)


class _RefusedBelow(MutableSet[Location]):
    """The refused values below a place, by their location from there."""

    def __init__(self, whole: MutableSet[Location], at: Location):
        self.whole, self.at = whole, at

    def __contains__(self, location: object) -> bool:
        return isinstance(location, tuple) and (*self.at, *location) in self.whole

    def __iter__(self) -> Iterator[Location]:
        return iter([one[len(self.at) :] for one in self.whole if _below(one, self.at)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, locations: Iterable[Item]) -> set[Item]:
        return set(locations)  # what &, | and - give

    def add(self, location: Location) -> None:
        self.whole.add((*self.at, *location))

    def discard(self, location: Location) -> None:
        self.whole.discard((*self.at, *location))


def _below(location: Location, at: Location) -> bool:
    """Whether a location is a place or below it."""
    return location[: len(at)] == at


def read_document(path: str | Path, name: str | None = None) -> Document:
    """Read a file. Raises DocumentError at once where it is no YAML map; other mistakes are collected in it."""
    path = path_of(path, "a file")
    name = named(path) if name is None else name
    return Document(name, read_text(path, name), path)


def parse_document(text: str, name: str) -> Document:
    """Read a text as if it were a file called `name`. Raises as `read_document`."""
    return Document(name, text)
