"""A file of parts, as those of topologies/parts: each checked by itself, with what a topology adds to it left open.

A part says no memory, no ends and no switch, which are those of the entry that uses it; the rest is as in a topology.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from offload.documents.marks import Document, Location
from offload.documents.parts_library import SECTIONS
from offload.documents.shapes import Shape, validate
from offload.documents.topology_file import SHAPES
from offload.documents.topology_rates import link_rates, rate_of
from offload.documents.topology_shape import FlopRateShape, RateShape, written_out
from offload.errors import did_you_mean
from offload.topology import Link, Memory, Processor, Rate, Switch, Topology

KEYS = (*SECTIONS, "source", "$schema")
OPEN: dict[str, dict[str, Any]] = {  # what the entry that uses a part says, where the part does not
    "switches": {"kind": "socket"},
    "memories": {"kind": "hbm"},
    "processors": {"kind": "gpu", "memory": "memory"},
    "links": {"between": ["one", "other"]},
    "limits": {"over": ["link"]},
}


def read_parts(document: Document) -> list[Topology]:
    """Each memory, processor and link of a file of parts as a topology with little else in it.

    The name of the part is its name there. Raises DocumentError with every mistake of the file.
    """
    value = document.value
    for key in value.keys() - set(KEYS):
        document.mistake((key,), f'unknown key "{key}". {did_you_mean(key, KEYS, "Keys of a file of parts")}', key=True)
    made: list[Any] = []
    for section in SECTIONS:
        entries = value.get(section, {})
        if not isinstance(entries, dict):
            document.mistake((section,), "must be a map from the name of a part to its keys.")
            continue
        for name, entry in entries.items():
            made += _part(document, section, name, entry)
    document.raise_if_mistakes()
    return [_alone(one) for one in made]


def _part(document: Document, section: str, name: str, entry: Any) -> Iterator[Any]:
    place = (section, name)
    if not isinstance(entry, dict):
        document.mistake(place, "must be a map of the keys that the part has.")
        return
    if "use" in entry:
        document.mistake((*place, "use"), "a part uses none: parts are one level deep.", key=True)
        return
    shape: Any = validate(document, SHAPES[section], written_out(section, OPEN[section] | entry), place)
    if shape is None:
        return
    if section == "memories":
        rates: dict[str, Any] = {key: _rate(document, shape, key, place) for key in ("rate", "read", "write")}
        if shape.capacity == 0:
            document.mistake((*place, "capacity"), "a memory that holds nothing is none. Give its size.")
        beside = {"cache": shape.cache, "count": shape.count, "source": shape.source}
        yield Memory(name, shape.kind, shape.capacity, **rates, **beside)
    elif section == "processors":
        flops = {form: rate_of(document, rate, (*place, "flops", form)) for form, rate in shape.flops.items()}
        reads, writes = (_rate(document, shape, key, place) for key in ("reads", "writes"))
        yield Processor(name, shape.kind, "memory", flops, reads, writes, source=shape.source)
    elif section == "links" and entry.keys() & {"pcie", "nvlink", "rate", "both_directions", "forward", "backward"}:
        forward, backward, symmetric = link_rates(document, shape, place, shape.source)
        technology = shape.kind or ("pcie" if shape.pcie else "nvlink" if shape.nvlink else "")
        generation, lanes = shape.pcie or (None, None)
        yield Link(name, "one", "other", forward, backward, technology, generation, lanes,
                   half_duplex=shape.duplex == "half", assumed_symmetric=symmetric, source=shape.source)  # fmt: skip
    elif section == "limits" and shape.rate is not None:
        _rate(document, shape, "rate", place)


def _rate(document: Document, shape: Shape, key: str, place: Location) -> Rate | None:
    rate: RateShape | FlopRateShape | None = getattr(shape, key)
    return None if rate is None else rate_of(document, rate, (*place, key))


def _alone(part: Memory | Processor | Link) -> Topology:
    """A topology of one part and the least that it needs beside it."""
    if isinstance(part, Memory):
        return Topology.build(memories=[part])
    memory = Memory("memory" if part.name != "memory" else "other memory", "hbm")
    if isinstance(part, Processor):
        alike = Processor(part.name, part.kind, memory.name, part.flops, part.reads, part.writes, source=part.source)
        return Topology.build(memories=[memory], processors=[alike])
    switches = [Switch(end) if end != part.name else Switch(f"{end} end") for end in ("one", "other")]
    kept = Link(part.name, switches[0].name, switches[1].name, part.forward, part.backward, part.technology,
                part.generation, part.lanes, half_duplex=part.half_duplex, assumed_symmetric=part.assumed_symmetric,
                source=part.source)  # fmt: skip
    return Topology.build(memories=[memory], switches=switches, links=[kept])
