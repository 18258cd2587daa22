"""A Topology as the text of a topology file, which reads back as an equal one.

    text = topology_text(topology)
    read_topology(parse_document(text, "box.yaml"), name=topology.name) == topology

Figures are written in full, in the unit that suits them. Parts that differ by their number alone stand in one entry
(`hbm0..7`). What a Topology does not keep is not written: the parts that were used, comments, shares of a peak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import yaml

from offload.documents.costs import written_costs
from offload.errors import TopologyError
from offload.ranges import expand, folded, runs
from offload.topology import Cost, Interval, Limit, Link, Memory, Processor, Rate, Switch, Topology
from offload.topology.shares import DRIVES
from offload.units import pcie_rate

WIDTH = 118  # columns
RUNGS = ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""))
BINARY = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
DECIMAL = ((12, "TB"), (9, "GB"), (6, "MB"), (0, "B"))
MOST_COUNT = 64  # links side by side that are told apart from one wide link


def topology_text(topology: Topology, head: Iterable[str] = ()) -> str:
    """The text of a file that reads as this topology. head : lines of comment above it.

    Where a file cannot say what a Topology may: a rate without a source of its own reads back with that of its part,
    and a sustained rate for any access beside others as that of "pinned", which serves any access. Raises
    TopologyError for both of these in one rate.
    """
    renamed = _link_names(topology.links)
    sections = {
        "switches": _entries(_switch(one) for one in topology.switches.values()),
        "memories": _entries(_memory(one) for one in topology.memories.values()),
        "processors": _entries(_processor(one) for one in topology.processors.values()),
        "links": _entries(_link(one, renamed[one.name]) for one in topology.links.values()),
        "limits": _entries(_limit(one, renamed) for one in topology.limits.values()),
    }
    found: dict[str, Any] = {"title": topology.title}
    if topology.source:
        found["source"] = topology.source
    found |= written_costs(topology)
    found |= {key: section for key, section in sections.items() if section}
    comment = "".join(f"# {line}".rstrip() + "\n" for text in head for line in text.splitlines() or [""])
    text: str = yaml.dump(found, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
    return comment + text


# Entries: what is said of one part, and the names in it that count up with its own.


@dataclass(frozen=True, slots=True)
class _Entry:
    """name; said : its keys and values; names : key -> another part's name or the two ends of a link."""

    name: str
    said: dict[str, Any]
    names: dict[str, str | tuple[str, ...]]

    def written(self, name: str, names: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        put = {key: _Flow(value) if isinstance(value, tuple) else value for key, value in names.items()}
        return name, {key: put.get(key, value) for key, value in self.said.items()}


def _entries(entries: Iterable[_Entry]) -> dict[str, Any]:
    """A section: neighbours that are alike in one entry where one range stands for their names."""
    found: dict[str, Any] = {}
    waiting: list[_Entry] = []
    for entry in [*entries, None]:
        if waiting and (entry is None or entry.said != waiting[0].said):
            for name, written in _together(waiting):
                found[name] = written
            waiting = []
        if entry is not None:
            waiting.append(entry)
    return found


def _together(entries: list[_Entry]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Entries that say the same, in as few as their names allow."""
    by_name = {entry.name: entry for entry in entries}
    ends = {entry.name: [end for value in entry.names.values() for end in _listed(value)] for entry in entries}
    joined = ["\n".join([name, *ends[name]]) for name in by_name]
    for run in runs(joined):
        run_names = [one.split("\n")[0] for one in run]
        first = by_name[run_names[0]]
        columns = [[ends[name][place] for name in run_names] for place in range(len(ends[first.name]))]
        ranged_name, *ranged = [_range(column) for column in [run_names, *columns]]
        if len(run) == 1 or ranged_name in (None, run_names[0]) or None in ranged:
            for name in run_names:
                yield by_name[name].written(name, by_name[name].names)
            continue
        left = iter(ranged)
        names = {key: tuple(next(left) for _ in value) if isinstance(value, tuple) else next(left)
                 for key, value in first.names.items()}  # fmt: skip
        yield first.written(ranged_name, names)


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _range(names: list[str]) -> str | None:
    """One text that stands for the names in their order; a name that serves all stays. None where there is none."""
    if len(set(names)) == 1:
        return names[0]
    text = folded(names)
    try:
        return text if expand(text) == names else None
    except ValueError:
        return None


def _link_names(links: Mapping[str, Link]) -> dict[str, str]:
    """A name for each link that a file may give: what a name with a range between its ends became (up.0) loses its
    dot."""
    found: dict[str, str] = {}
    for name in links:
        plain = name.replace(".", "-")
        while plain != name and (plain in links or plain in found.values()):
            plain += "-"
        found[name] = plain
    return found


# Parts


def _switch(switch: Switch) -> _Entry:
    said: dict[str, Any] = {"kind": switch.kind}
    if switch.reduces:
        said["reduces"] = True
    return _Entry(switch.name, _sourced(said, switch), {})


def _memory(memory: Memory) -> _Entry:
    said: dict[str, Any] = {"kind": memory.kind}
    names: dict[str, str | tuple[str, ...]] = {}
    if memory.at is not None:
        said["at"] = None
        names["at"] = memory.at
    if memory.count != 1:
        said["count"] = memory.count
    said["capacity"] = "unknown" if memory.capacity is None else _size(memory.capacity)
    if memory.cache:
        said["cache"] = _size(memory.cache)
    for key in ("rate", "read", "write"):
        rate = getattr(memory, key)
        if rate is not None:
            said[key] = _rate(rate, memory.source, "rated" if memory.kind in DRIVES else "peak")
    return _Entry(memory.name, _sourced(said, memory), names)


def _processor(processor: Processor) -> _Entry:
    said: dict[str, Any] = {"kind": processor.kind, "memory": None}
    if processor.flops:
        said["flops"] = {form: _rate(rate, processor.source, "rated", "FLOP/s")
                         for form, rate in processor.flops.items()}  # fmt: skip
    for key in ("reads", "writes"):
        rate = getattr(processor, key)
        if rate is not None:
            said[key] = _rate(rate, processor.source, "")
    if processor.peer_to_peer is not None:
        said["peer_to_peer"] = processor.peer_to_peer
    if processor.direct_storage:
        said["direct_storage"] = True
    return _Entry(processor.name, _sourced(said, processor), {"memory": processor.memory})


def _link(link: Link, name: str) -> _Entry:
    said: dict[str, Any] = {"between": None}
    encoded = None
    if link.generation is not None and link.lanes is not None:
        encoded = pcie_rate(link.generation, link.lanes)
        said["pcie"] = f"{link.generation} x{link.lanes}"
    if link.technology and (encoded is None or link.technology != "pcie"):
        said["kind"] = link.technology
    forward, backward, count = link.forward, link.backward, _count(link, encoded)
    if count > 1:
        said["count"] = count
        forward, backward = (_divided(rate, count) for rate in (forward, backward))
    if link.assumed_symmetric:  # one figure alone says that it is
        said["forward" if _headline(link) else "rate"] = _rate(forward, link.source, "peak")
    else:
        for key, rate in (("forward", forward), ("backward", backward)):
            written = _rate(rate, link.source, "peak", without=encoded)
            if written:
                said[key] = written
    if link.latency != (0.0, 0.0):
        least, typical = link.latency
        said["latency"] = _Flow([_seconds(least), _seconds(typical)]) if least else _seconds(typical)
    if link.half_duplex:
        said["duplex"] = "half"
    one = link if count == 1 else replace(link, price=_shared(link.price, count), power=_shared(link.power, count))
    return _Entry(name, _sourced(said, one), {"between": (link.a, link.b)})


def _headline(link: Link) -> bool:
    return link.technology in ("nvlink", "c2c", "pcie", "") and not link.half_duplex


def _count(link: Link, encoded: float | None) -> int:
    """How many links of an encoding stand side by side: what makes the peak of both directions, exactly."""
    if encoded is None or link.forward.peak is None or link.forward.peak != link.backward.peak:
        return 1
    count = round(link.forward.peak / encoded)
    if not 1 < count <= MOST_COUNT or encoded * count != link.forward.peak:
        return 1
    figures = [figure for rate in (link.forward, link.backward) for figure in _figures(rate)]
    figures += [end for cost in (link.price, link.power) if cost for end in _ends(cost.figure)]
    return count if all(figure / count * count == figure for figure in figures) else 1


def _figures(rate: Rate) -> list[float]:
    found = [figure for figure in (rate.peak, rate.rated) if figure is not None]
    return found + [end for one in rate.sustained.values() for end in _ends(one)]


def _ends(one: Interval) -> tuple[float, float, float]:
    return one.low, one.value, one.high


def _shared(cost: Cost | None, count: int) -> Cost | None:
    """What one of `count` costs or draws."""
    return cost and replace(cost, figure=Interval(*(end / count for end in _ends(cost.figure))))


def _divided(rate: Rate, count: int) -> Rate:
    sustained = {access: Interval(*(end / count for end in (one.low, one.value, one.high)))
                 for access, one in rate.sustained.items()}  # fmt: skip
    peak, rated = (None if figure is None else figure / count for figure in (rate.peak, rate.rated))
    return Rate(peak, rated, sustained, rate.source, rate.unknown)


def _limit(limit: Limit, renamed: Mapping[str, str]) -> _Entry:
    over = []
    for text in limit.over:
        link = max((name for name in renamed if text == name or text.startswith(f"{name}.")), key=len)
        over.append(renamed[link] + text[len(link) :])
    said: dict[str, Any] = {"over": _Flow(over), "rate": _rate(limit.rate, limit.source, "peak")}
    return _Entry(limit.name, _sourced(said, limit), {})


def _sourced(said: dict[str, Any], part: Switch | Memory | Processor | Link | Limit) -> dict[str, Any]:
    """With where it is from, what it costs and what it draws."""
    source = {"source": part.source} if part.source else {}
    return said | source | ({} if isinstance(part, Limit) else written_costs(part))


# Rates and quantities


def _rate(rate: Rate, source: str, alone: str, unit: str = "B/s", without: float | None = None) -> Any:
    """A rate as the file has it; a figure of the grade `alone` needs no map. source : what it has if it says none.
    without : a peak that is said elsewhere."""
    said: dict[str, Any] = {}
    if rate.unknown:
        said["peak"] = "unknown"
    if rate.peak is not None and rate.peak != without:
        said["peak"] = _figure(unit, rate.peak)
    if rate.rated is not None:
        said["rated"] = _figure(unit, rate.rated)
    if rate.sustained:
        shown = {access: _interval(one, unit) for access, one in rate.sustained.items()}
        if len(shown) > 1 and "" in shown:
            if "pinned" in shown:
                raise TopologyError('a sustained rate is given for "pinned" and, apart from it, for any access: a file '
                                    "cannot say both. Drop one, or name the other accesses.")  # fmt: skip
            shown = {access or "pinned": text for access, text in shown.items()}
        said["sustained"] = shown[""] if shown.keys() == {""} else _Flow(shown)
    if rate.source and rate.source != source:
        if not said and without is not None:  # a source with no figure beside it would say that it is unknown
            said["peak"] = _figure(unit, without)
        said["source"] = rate.source
    if said == {"peak": "unknown"}:
        return "unknown"
    return said[alone] if said.keys() == {alone} else _Flow(said) if len(said) == 2 and "source" not in said else said


def _interval(one: Interval, unit: str) -> str:
    ends = (one.low, one.value, one.high)
    if one.low == one.high:
        return _figure(unit, one.value)
    if one.value == (one.low + one.high) / 2:
        return _figure(unit, one.low, one.value, one.high)
    return _figure(unit, *ends)


def _figure(unit: str, *values: float) -> str:
    """Values in one unit, exactly: "26.3 GB/s", "2800..2900..3000 GB/s"."""
    power, prefix = next(rung for rung in RUNGS if values[0] >= 10.0 ** rung[0] or not rung[0])
    if power == 12 and unit == "B/s":  # as people write them
        power, prefix = 9, "G"
    return f"{'..'.join(_plain(value, power) for value in values)} {prefix}{unit}"


def _plain(value: float, power: int) -> str:
    text = f"{Decimal(repr(value)).scaleb(-power):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _size(size: int) -> str:
    """A size in the unit that makes it shortest, binary ones first."""
    written = [f"{size >> bits} {unit}" for bits, unit in BINARY if size % 2**bits == 0 and size >= 2**bits]
    written += [f"{_plain(size, power)} {unit}" for power, unit in DECIMAL if size >= 10**power]
    return min(written, key=len, default=f"{size} B")


def _seconds(value: float) -> str:
    for power, unit in ((0, "s"), (-3, "ms"), (-6, "us"), (-9, "ns")):
        if value >= 10.0**power:
            return f"{_plain(value, power)} {unit}"
    return f"{_plain(value, -9)} ns"


# YAML


class _Flow:
    """A map or a list that stands on one line."""

    def __init__(self, value: Mapping[str, Any] | Iterable[Any]):
        self.value = dict(value) if isinstance(value, Mapping) else list(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Flow) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _flow(dumper: _Dumper, data: _Flow) -> yaml.Node:
    if isinstance(data.value, dict):
        return dumper.represent_mapping("tag:yaml.org,2002:map", data.value, flow_style=True)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data.value, flow_style=True)


def _text(dumper: _Dumper, data: str) -> yaml.Node:
    """Long text folded over lines, where that keeps it as it is; text of other than plain letters in quotes."""
    if not data.isascii() or not data.isprintable():
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style='"')
    foldable = len(data) > 60 and re.fullmatch(r"[^\s\x00-\x1f]+(?: [^\s\x00-\x1f]+)*", data) is not None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=">" if foldable else None)


_represent: Callable[..., None] = _Dumper.add_representer
_represent(_Flow, _flow)
_represent(str, _text)
