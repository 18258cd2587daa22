"""What differs between two servers: parts that only one has, and the figures of parts that both have.

Parts are compared by section and name, rates by the name of their row, as a step uses them: a kind of access that a
server does not name has the rate that it would be charged with. Values in, values out; nothing is printed here.
Rates in [B/s] and [FLOP/s], sizes in [B], times in [s]; sizes and rates are those of a whole striped set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard, cast

from offload import __version__
from offload.describe import FORMAT, RateRow, link_text, rate_rows
from offload.topology import Cost, Limit, Link, Memory, Processor, Switch, Topology
from offload.topology.confidence import costs_of
from offload.topology.resources import directions_over

SECTIONS = ("server", "memory", "processor", "switch", "link", "limit")
NOISE = 1e-12  # figures that agree so far are one figure, written or reckoned in two ways
Part = Topology | Memory | Processor | Switch | Link | Limit


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure or word of a part.

    unit : "B", "B/s", "FLOP/s", "s", "W", a currency's ("USD", "USD/h"), or "" of counts, words, and yes or no.
    low, high : ends of a sustained rate, else None; assumed : it is a usual share, nobody measured it.
    """

    value: float | int | str | bool
    unit: str = ""
    low: float | None = None
    high: float | None = None
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """What a part is, or carries: `name` is the part or the row of a rate, `what` the figure, as "sustained read"."""

    name: str
    what: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Only:
    """A part that one of the servers has. section : memory, processor, switch, link, limit."""

    section: str
    name: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that differs; None where a server does not state it. ratio : b over a, of amounts above zero."""

    section: str
    part: str
    name: str
    what: str
    a: Figure | None
    b: Figure | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """From server a to server b. sources : parts with the same name whose sources are told otherwise.

    notes_a, notes_b : assumptions that stand in one file alone. Neither sources nor notes make two servers unequal.
    """

    a: Topology
    b: Topology
    removed: tuple[Only, ...]
    added: tuple[Only, ...]
    changed: tuple[Change, ...]
    sources: tuple[str, ...]
    notes_a: tuple[str, ...]
    notes_b: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both have the same parts with the same figures."""
        return not (self.removed or self.added or self.changed)


def compare(a: Topology, b: Topology) -> Difference:
    """What differs from one server to the other, in the order of the first's file, then of the second's."""
    ours, theirs = _parts(a), _parts(b)
    rates_a, rates_b = _rates_by_part(a), _rates_by_part(b)
    both = [key for key in ours if key in theirs]
    changed: list[Change] = []
    for key in both:
        found = _differing(_facts(ours[key], a), _facts(theirs[key], b))
        found |= _differing(*_rate_facts(rates_a.get(key, ()), rates_b.get(key, ()), a, b))
        changed += [Change(*key, *names, pair[0], pair[1], _ratio(*pair)) for names, pair in _together(found).items()]
    return Difference(
        a, b,
        removed=tuple(_only(key, ours[key], rates_a, a) for key in ours if key not in theirs),
        added=tuple(_only(key, theirs[key], rates_b, b) for key in theirs if key not in ours),
        changed=tuple(changed),
        sources=tuple(name for section, name in both
                      if _sources(ours[section, name], rates_a.get((section, name), ()))
                      != _sources(theirs[section, name], rates_b.get((section, name), ()))),
        notes_a=tuple(note for note in a.stated if note not in b.stated),
        notes_b=tuple(note for note in b.stated if note not in a.stated),
    )  # fmt: skip


Key = tuple[str, str]  # section and name of a part; name and what of a fact
Facts = dict[Key, Figure]


def _parts(topology: Topology) -> dict[Key, Part]:
    groups: tuple[Mapping[str, Part], ...] = (
        {"server": topology}, topology.memories, topology.processors, topology.switches, topology.links,
        topology.limits,
    )  # fmt: skip
    return {(section, name): part for section, group in zip(SECTIONS, groups, strict=True)
            for name, part in group.items()}  # fmt: skip


def _rates_by_part(topology: Topology) -> dict[Key, list[RateRow]]:
    found: dict[Key, list[RateRow]] = {}
    for row in rate_rows(topology):
        found.setdefault((row.kind, row.part), []).append(row)
    return found


def _only(key: Key, part: Part, rates: Mapping[Key, list[RateRow]], topology: Topology) -> Only:
    facts, _ = _rate_facts(rates.get(key, ()), (), topology, topology)
    found = {**_facts(part, topology), **facts}
    return Only(*key, tuple(Fact(*names, figure) for names, figure in _together(found).items()))


def _sources(part: Part, rates: Iterable[RateRow]) -> tuple[Any, ...]:
    costs = tuple(cost.source for _, cost in _costs(part))
    return part.source, costs, {(row.resource, row.format): row.source for row in rates}


# What a part is.


def _facts(part: Part, topology: Topology) -> Facts:
    """What a part is, but for its rates; what is not known or not there is left out."""
    match part:
        case Memory():
            found = {
                "kind": Figure(part.kind),
                "capacity": None if part.capacity is None else Figure(part.capacity * part.count, "B"),
                "cache in front": Figure(part.cache * part.count, "B") if part.cache else None,
                "in a stripe": Figure(part.count) if part.count > 1 else None,
                "sits in": None if part.at is None else Figure(part.at),
            }
        case Processor():
            found = {
                "kind": Figure(part.kind),
                "works in": Figure(part.memory),
                "peer to peer": None if part.peer_to_peer is None else Figure(part.peer_to_peer),
                "direct storage": Figure(part.direct_storage),
            }
        case Switch():
            found = {"kind": Figure(part.kind), "adds up": Figure(part.reduces) if part.kind == "nvswitch" else None}
        case Link():
            found = _link_facts(part)
        case Limit():
            found = {"over": Figure(", ".join(sorted(directions_over(part, topology.links))))}
        case Topology():
            return _cost_facts("server", part)
    facts = {(part.name, what): figure for what, figure in found.items() if figure is not None}
    return facts | _cost_facts(part.name, part)


def _costs(part: Part) -> list[tuple[str, Cost]]:
    return [] if isinstance(part, Limit) else costs_of(part)


def _cost_facts(name: str, part: Part) -> Facts:
    """What it costs and draws, the whole of a striped set."""
    facts: Facts = {}
    for what, cost in _costs(part):
        figure = cost.scaled(part.count if isinstance(part, Memory) else 1).figure
        facts[name, what] = (Figure("in another part's") if cost.included
                             else Figure(figure.value, cost.unit, figure.low, figure.high))  # fmt: skip
    return facts


def _link_facts(link: Link) -> dict[str, Figure | None]:
    least, typical = link.latency
    proven = {
        f"proven, to {end}": Figure(rate.proven.value, "B/s", rate.proven.low, rate.proven.high)
        for end, rate in ((link.b, link.forward), (link.a, link.backward))
        if rate.proven is not None
    }
    return {
        "between": Figure(" - ".join(sorted((link.a, link.b)))),
        "kind": Figure(link.technology) if link.technology else None,
        "width": Figure(link_text(link)) if link.generation is not None else None,
        "duplex": Figure("half" if link.half_duplex else "full"),
        "way back": Figure("assumed to be as fast") if link.assumed_symmetric and not link.half_duplex else None,
        "least latency": Figure(least, "s") if least else None,
        "latency": Figure(typical, "s") if typical else None,
        **proven,
    }


# What it carries.


def _rate_facts(
    ours: Iterable[RateRow], theirs: Iterable[RateRow], a: Topology, b: Topology
) -> tuple[Facts, Facts]:
    """The rates of one part in both servers; each has a sustained one for every access that either of them names."""
    sides = [{(row.resource, row.format): row for row in rows} for rows in (ours, theirs)]
    found: tuple[Facts, Facts] = ({}, {})
    for key in dict.fromkeys(key for side in sides for key in side):
        rows = [side.get(key) for side in sides]
        accesses = dict.fromkeys(access for row in rows if row for used in row.used for access in used.accesses)
        for facts, row, topology in zip(found, rows, (a, b), strict=True):
            if row is not None:
                facts |= _figures(row, list(accesses), topology)
    return found


def _figures(row: RateRow, accesses: list[str], topology: Topology) -> Facts:
    unit, before = f"{row.unit}/s", f"{row.format} " if row.format else ""
    if row.unknown:
        return {(row.resource, f"{before}rate"): Figure("unknown")}
    facts: Facts = {}
    for what, figure in (("peak", row.peak), ("rated", row.rated)):
        if figure is not None:
            facts[row.resource, before + what] = Figure(figure, unit)
    resource = topology.resources[row.resource]
    for access in accesses:
        held = access if access in resource.sustained else ""
        rate = resource.sustained.get(held)
        if rate is not None:
            what = before + "sustained" + (f" {access}" if access and not row.format else "")
            facts[row.resource, what] = Figure(rate.value, unit, rate.low, rate.high, held in resource.assumed)
    return facts


# What differs.


def _differing(ours: Facts, theirs: Facts) -> dict[Key, tuple[Figure | None, Figure | None]]:
    keys = dict.fromkeys([*ours, *theirs])
    pairs = {key: (ours.get(key), theirs.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if not _same(*pair)}


def _same(a: Figure | None, b: Figure | None) -> bool:
    if a is None or b is None:
        return a is b
    return (a.unit, a.assumed) == (b.unit, b.assumed) and all(
        one == other or (_is_amount(one) and _is_amount(other) and math.isclose(one, other, rel_tol=NOISE))
        for one, other in ((a.value, b.value), (a.low, b.low), (a.high, b.high))
    )


def _is_amount(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ratio(a: Figure | None, b: Figure | None) -> float | None:
    if a is None or b is None or a.unit != b.unit or not a.unit or not a.value:
        return None
    ratio = cast(float, b.value) / cast(float, a.value)  # what has a unit is an amount
    return ratio if 0 < ratio < math.inf else None


def _together(facts: Mapping[Key, Any]) -> dict[Key, Any]:
    """Sustained rates of one row that are alike, as one: "sustained any, pinned"."""
    accesses: dict[Any, list[str]] = {}
    for (name, what), figures in facts.items():
        first, _, access = what.partition(" ")
        key = (name, first, figures) if first == "sustained" else (name, what, None)
        accesses.setdefault(key, []).append(access)
    found: dict[Key, Any] = {}
    for (name, what, figures), named in accesses.items():
        if figures is None:
            found[name, what] = facts[name, what]
        else:
            told = "" if named == [""] else " " + ", ".join(access or "any" for access in named)
            found[name, what + told] = figures
    return found


def difference_to_json(difference: Difference) -> dict[str, Any]:
    """A difference as plain data; null where a server does not state a figure."""
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "a": {"name": difference.a.name, "title": difference.a.title},
        "b": {"name": difference.b.name, "title": difference.b.title},
        "equal": difference.equal,
        **{key: [asdict(one) for one in getattr(difference, key)] for key in ("removed", "added", "changed")},
        "sources": list(difference.sources),
        "notes_a": list(difference.notes_a),
        "notes_b": list(difference.notes_b),
    }
