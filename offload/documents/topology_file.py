"""A topology file as a Topology: names with ranges, rates with grades, links with their encoding.

    load_topology("desktop-4090")            # a shipped server
    load_topology("./my-box.yaml")           # a file of one's own

Every mistake of the file is told at once, each at its line; nothing is guessed. A headline figure that adds both
directions of a link is refused unless it is given as `both_directions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from offload.documents.costs import costs_of
from offload.documents.kinds import refuse_other_kind
from offload.documents.marks import Document, Location, read_document
from offload.documents.parts_library import with_part
from offload.documents.shapes import Shape, validate
from offload.documents.shipped import find_topology, shipped_topologies
from offload.documents.topology_rates import link_rates, rate_of
from offload.documents.topology_shape import (
    FlopRateShape,
    LimitShape,
    LinkShape,
    MemoryShape,
    ProcessorShape,
    RateShape,
    SwitchShape,
    TopologyShape,
    written_out,
)
from offload.errors import TopologyError, did_you_mean
from offload.ranges import expand, is_range
from offload.topology import Limit, Link, Memory, Processor, Rate, Switch, Topology
from offload.topology.checks import LONGEST_LATENCY
from offload.units import format_bytes_both, format_seconds

__all__ = ["load_topology", "read_topology", "shipped_topologies"]

SHAPES: dict[str, type[Shape]] = {
    "switches": SwitchShape,
    "memories": MemoryShape,
    "processors": ProcessorShape,
    "links": LinkShape,
    "limits": LimitShape,
}
PLURALS = {
    "memory": "Memories",
    "switch": "Switches",
    "memory or switch": "Memories and switches",
    "link or direction": "Links and directions",
}


def load_topology(name_or_path: str | Path, relative_to: str | Path | None = None) -> Topology:
    """The topology of a shipped name, or of a file: a text with a / or that ends in .yaml is a path.

    relative_to : the folder that a relative path starts from. Raises OffloadError where there is no such file or name,
    DocumentError with every mistake of the file.

    >>> from offload import load_topology
    >>> load_topology("desktop-4090").memories["hbm0"].capacity
    25769803776
    """
    path = find_topology(name_or_path, relative_to)
    document = read_document(path)
    refuse_other_kind(document, "topology")
    return read_topology(document, name=path.stem)


def read_topology(document: Document, at: Location = (), *, name: str = "") -> Topology:
    """The topology that stands at a place in a document (all of it by default). Raises DocumentError."""
    reader = _Reader(document, tuple(at))
    parts = reader.parts()
    if not document.mistakes:
        given: dict[str, Any] = {**parts, **reader.costs}
        try:
            topology = Topology.build(name=name, title=reader.title or name, **given)
        except TopologyError as error:
            reader.note(error)
    document.raise_if_mistakes()
    return topology


class _Reader:
    """One topology of a document: first all names, then the values that refer to them."""

    def __init__(self, document: Document, at: Location):
        self.document = document
        self.at = at
        value = document.get(at)
        shape = validate(document, TopologyShape, value, at)
        self.title = shape.title if shape else ""
        self.source = shape.source if shape else ""
        self.costs = costs_of(shape, value) if shape else {}
        value = value if isinstance(value, dict) else {}
        self.own_parts = value.get("parts")
        self.sections: dict[str, dict[str, Any]] = {
            key: section if isinstance(section := value.get(key), dict) else {} for key in SHAPES
        }
        self.places: dict[str, Location] = {}  # each name, ranges written out, and where it was declared
        self.declared: dict[str, dict[str, list[str]]] = {key: {} for key in SHAPES}

    def parts(self) -> dict[str, list[Any]]:
        """The values of every section; mistakes are noted in the document."""
        for key in SHAPES:
            for name in self.sections[key]:
                self.declared[key][name] = self.declare(key, name)
        self.memories = self.names("memories")
        self.switches = self.names("switches")
        self.directions: dict[str, None] = {}  # "LINK.DESTINATION" of every link
        makers: dict[str, Callable[[list[str], Any, Location], Sequence[Any]]] = {
            "switches": self.switch,
            "memories": self.memory,
            "processors": self.processor,
            "links": self.link,
            "limits": self.limit,
        }
        found: dict[str, list[Any]] = {}
        for key, shape in SHAPES.items():
            found[key] = []
            for name, value in self.sections[key].items():
                place = (*self.at, key, name)
                value = with_part(self.document, key, value, place, self.own_parts)
                refused = value is None and self.document.get(place) is not None  # its part is told
                checked: Any = None if refused else validate(self.document, shape, written_out(key, value), place)
                names = self.declared[key][name]
                made = makers[key](names, checked, place) if checked is not None and names else []
                if made and key != "limits":
                    costs = costs_of(checked, value, checked.count if key == "links" else 1)
                    made = [replace(part, **costs) for part in made] if costs else made
                found[key] += made
                if key == "links" and not made:  # told; a limit over it is no second mistake
                    ends = self.switches | self.memories
                    self.directions |= dict.fromkeys(f"{one}.{end}" for one in names for end in ends)
        return found

    # Names

    def names(self, key: str) -> dict[str, None]:
        return dict.fromkeys(name for names in self.declared[key].values() for name in names)

    def declare(self, key: str, text: str) -> list[str]:
        """The names that an entry declares; none where they are refused."""
        place = (*self.at, key, text)
        try:
            names = expand(text)
        except ValueError as error:
            self.document.mistake(place, str(error), key=True)
            return []
        if key == "links" and len(names) == 1:
            names = self.link_names(text, place)
        elif found := [sign for sign in ".,=" if sign in "".join(names)]:
            self.document.mistake(place, f'a name holds no "{found[0]}". Use - or _.', key=True)
            return []
        if text != text.strip():
            self.document.mistake(place, f'the name starts or ends with a space. Write "{text.strip()}".', key=True)
        for name in names:
            if name in self.places:
                line = self.document.mark(self.places[name], key=True)[0]
                self.document.mistake(place, f'the name "{name}" is taken, on line {line}. Names differ.', key=True)
                return []
            self.places[name] = place
        return names

    def link_names(self, text: str, place: Location) -> list[str]:
        """A link with a single name between ranges is several: NAME.0, NAME.1, ..."""
        if found := [sign for sign in ".,=" if sign in text]:
            self.document.mistake(place, f'a name holds no "{found[0]}". Use - or _.', key=True)
            return []
        between = self.document.get((*place, "between"))
        count = 1
        for end in between if isinstance(between, list) else []:
            if isinstance(end, str) and is_range(end):
                try:
                    count = max(count, len(expand(end)))
                except ValueError:
                    return []  # told where the ends are read
        return [text] if count == 1 else [f"{text}.{number}" for number in range(count)]

    def spread(self, text: str, count: int, place: Location, allowed: Mapping[str, Any], what: str) -> list[str]:
        """A reference, for each of `count` names: itself, or the names of its range. Empty where it is refused."""
        try:
            names = expand(text)
        except ValueError as error:
            self.document.mistake(place, str(error))
            return []
        if len(names) not in (1, count):
            due = "one is" if count == 1 else f"{count} are"
            message = f'"{text}" holds {len(names)} names, and {due} due here.'
            self.document.mistake(place, f"{message} Equal ranges pair up, a single name serves all.")
            return []
        for name in names:
            if name not in allowed:
                if not self.in_doubt(what):
                    self.document.mistake(place, self.unknown(name, allowed, what))
                return []
        return names * (count // len(names))

    def in_doubt(self, what: str) -> bool:
        """Whether a section of what is referred to could not be read as a whole (told): the name may be there."""
        for key, kind in (("memories", "memory"), ("switches", "switch"), ("links", "link")):
            place = (*self.at, key)
            given = self.document.get(self.at, {}).get(key, {} if key != "memories" else None)
            if kind in what and (not isinstance(given, dict) or self.document.lacks(place)):
                return True
        return False

    def unknown(self, name: str, allowed: Mapping[str, Any], what: str) -> str:
        """What to say about a name that is not one of those allowed."""
        hint = did_you_mean(name, allowed, PLURALS[what])
        kinds = {"processors": "processor", "switches": "switch", "memories": "memory", "links": "link"}
        for key, kind in kinds.items():
            if name in self.names(key):
                memory = self.document.get((*self.places[name], "memory")) if key == "processors" else None
                advice = f' Name its memory, "{memory}".' if memory else ""
                return f'"{name}" is a {kind}, and a {what} is due here.{advice} {hint}'
        return f'no {what} "{name}". {hint}'

    # Values

    def switch(self, names: list[str], shape: SwitchShape, place: Location) -> list[Switch]:
        return [Switch(name, shape.kind, shape.source or self.source, shape.reduces) for name in names]

    def memory(self, names: list[str], shape: MemoryShape, place: Location) -> list[Memory]:
        source = shape.source or self.source
        rates: dict[str, Any] = {key: self.rate(getattr(shape, key), (*place, key), source)
                                 for key in ("rate", "read", "write")}  # fmt: skip
        if shape.capacity == 0:
            self.document.mistake((*place, "capacity"), "a memory that holds nothing is none. Give its size.")
        elif shape.capacity is not None and shape.cache > shape.capacity:
            message = f"{format_bytes_both(shape.cache)} is more than the memory holds,"
            message += f" {format_bytes_both(shape.capacity)}. It is what lies in front of the memory: its L2, its L3."
            self.document.mistake((*place, "cache"), message)
        ends: list[str | None] = [None] * len(names)
        if shape.at is not None:
            ends = list(self.spread(shape.at, len(names), (*place, "at"), self.switches, "switch"))
        common = dict(rates, capacity=shape.capacity, cache=shape.cache, count=shape.count, source=source)
        return [Memory(name, shape.kind, at=end, **common) for name, end in zip(names, ends, strict=False)]

    def processor(self, names: list[str], shape: ProcessorShape, place: Location) -> list[Processor]:
        source = shape.source or self.source
        memories = self.spread(shape.memory, len(names), (*place, "memory"), self.memories, "memory")
        flops: dict[str, Rate] = {form: rate_of(self.document, rate, (*place, "flops", form), source)
                                  for form, rate in shape.flops.items()}  # fmt: skip
        reads, writes = (self.rate(getattr(shape, key), (*place, key), source) for key in ("reads", "writes"))
        return [
            Processor(name, shape.kind, memory, flops, reads, writes, shape.peer_to_peer, shape.direct_storage, source)
            for name, memory in zip(names, memories, strict=False)
        ]

    def link(self, names: list[str], shape: LinkShape, place: Location) -> list[Link]:
        if len(shape.between) != 2:
            self.document.mistake((*place, "between"), "a link is between two nodes: [socket0, hbm0].")
            return []
        nodes = self.switches | self.memories
        ends = [
            self.spread(end, len(names), (*place, "between", side), nodes, "memory or switch")
            for side, end in enumerate(shape.between)
        ]
        forward, backward, symmetric = link_rates(self.document, shape, place, shape.source or self.source)
        latency = tuple(shape.latency) or (0.0, 0.0)
        if len(latency) != 2 or latency[0] > latency[1]:
            message = "is one typical time, or [least, typical] with the least first: [1 us, 6 us]."
            self.document.mistake((*place, "latency"), message)
            return []
        if latency[1] > LONGEST_LATENCY:
            message = f"{format_seconds(latency[1])} is longer than any link's, 1 s. Check the unit: us, ms?"
            self.document.mistake((*place, "latency", len(shape.latency) - 1), message)
            return []
        technology = shape.kind or ("pcie" if shape.pcie else "nvlink" if shape.nvlink else "")
        generation, lanes = shape.pcie or (None, None)
        found = []
        for name, first, second in zip(names, *ends, strict=False):
            if first == second:
                self.document.mistake((*place, "between"), f'"{first}" is linked to itself. Name two nodes.')
                return []
            self.directions[f"{name}.{second}"] = self.directions[f"{name}.{first}"] = None
            found.append(
                Link(name, first, second, forward, backward, technology, generation, lanes, latency,
                     shape.duplex == "half", symmetric, shape.source or self.source)
            )  # fmt: skip
        return found

    def limit(self, names: list[str], shape: LimitShape, place: Location) -> list[Limit]:
        source = shape.source or self.source
        at = (*place, "sustained")
        rate = rate_of(self.document, shape.rate or RateShape(), (*place, "rate"), source, shape.sustained, at)
        groups = self.declared["links"]
        allowed = self.names("links") | dict.fromkeys(groups) | self.directions
        over: list[list[str]] = [[] for _ in names]
        for position, text in enumerate(shape.over):
            spot = (*place, "over", position)
            count = len(names)
            if count == 1 and is_range(text):
                try:
                    count = len(expand(text))
                except ValueError:
                    pass  # told by spread
            found = self.spread(text, count, spot, allowed, "link or direction")
            for number, name in enumerate(found):
                over[number if len(names) > 1 else 0] += groups.get(name, [name])
        if not shape.over:
            self.document.mistake((*place, "over"), 'a limit is over links or directions: "over: [pcie0, pcie1.hbm1]".')
        return [Limit(name, tuple(dict.fromkeys(links)), rate, source) for name, links in zip(names, over, strict=True)]

    def rate(self, shape: RateShape | FlopRateShape | None, place: Location, source: str) -> Rate | None:
        """A rate with its figures checked."""
        return None if shape is None else rate_of(self.document, shape, place, source)

    def note(self, error: TopologyError) -> None:
        """A contradiction that the topology found, at the line of the first name that it tells."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        for line in lines[1:] if len(lines) > 1 else lines:
            told = [(line.find(name), -len(name), name) for name in self.places if name in line]
            name = min(told)[2] if told else ""
            self.document.mistake(self.places.get(name, self.at), line.removeprefix(f"{name}: "), key=True)
