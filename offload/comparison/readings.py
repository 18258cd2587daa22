"""What meters show for a step: coefficients times its time and its loads, per step, per token and per million tokens.

An estimate throughout: the loads are the step's expected ones and the time the expected one, but the coefficients are
the user's.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offload.costs import costs_of
from offload.documents.topology_shape import LinkKind, MemoryKind, ProcessorKind
from offload.errors import OffloadError, did_you_mean
from offload.meters import JOULE, Meter, Term
from offload.ranges import listed
from offload.schedules import Schedule
from offload.step import Step, loads
from offload.topology import Topology
from offload.topology.resources import directions

YEAR = 365.25 * 86400  # [s]
Ends = tuple[float, float, float]  # low, value, high


@dataclass(frozen=True, slots=True)
class Summand:
    """One term of a meter: its coefficient as written, the part ("" for time), and what it comes to per step."""

    written: str
    of: str
    per_step: Ends


@dataclass(frozen=True, slots=True)
class Wear:
    """A drive that is written to. written_per_step [B] over all drives of a stripe; endurance of all of them [B].

    tokens, seconds : until they are worn, of steps back to back at the expected time and its ends; None where nothing
    is written or no endurance is given.
    """

    drive: str
    drives: int
    written_per_step: Ends
    endurance: int | None
    tokens: float | None
    seconds: Ends | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one meter shows, in its unit ("B" where it counts what is written to a drive). Ends: low, value, high.

    uncounted : parts of it whose rate is not known, so that no load of theirs is counted. why : of one that cannot be
    read here, the reason; its figures are None then.
    """

    name: str
    unit: str
    per_step: Ends | None
    per_token: Ends | None
    per_million_tokens: Ends | None
    terms: tuple[Summand, ...] = ()
    wear: Wear | None = None
    uncounted: tuple[str, ...] = ()
    why: str = ""


def reading(meter: Meter, step: Step, times: Schedule) -> Reading:
    """What a meter shows for a step at its expected time. Unreadable where the server has no such part."""
    ends = ((times.low, "high"), (times.seconds, "value"), (times.high, "low"))
    tokens = step.plan.tokens
    try:
        rows, uncounted = _rows(meter, step.topology)
        terms = [Summand(term.written, term.of, _ends(
            amount_of(term, seconds, load, rows) for seconds, load in _states(step, ends)))
            for term in terms_of(meter, step.topology)]
        if meter.drive:
            total = _ends(written(step, meter.drive, grade) for _, grade in ends)
        else:
            total = _ends(sum(one.per_step[place] for one in terms) for place in range(3))
    except OffloadError as error:
        return Reading(meter.name, meter.unit, None, None, None, why=str(error))
    wear = _wear(meter, step, total, ends) if meter.drive else None
    return Reading(
        meter.name, meter.unit, total, _ends(one * (1 / tokens) for one in total),
        _ends(one * (1e6 / tokens) for one in total), tuple(terms), wear, uncounted,
    )  # fmt: skip


def per_token(meter: Meter, step: Step, seconds: float) -> float:
    """What a meter shows for each token of a step with single figures that takes so long. Raises OffloadError."""
    if meter.drive:
        each: float = written(step, meter.drive, "value") / step.plan.tokens
        return each
    rows, _ = _rows(meter, step.topology)
    load = loads(step, least=False)
    shown = sum(amount_of(term, seconds, load, rows) for term in terms_of(meter, step.topology))
    per: float = shown / step.plan.tokens
    return per


def stated_meters(topologies: Iterable[Topology]) -> list[Meter]:
    """Meters of what servers state themselves: "rent" (a price for each hour) and "power"; the first's unit counts."""
    found: dict[str, Meter] = {}
    for topology in topologies:
        for name, what in (("rent", "price"), ("power", "power")):
            cost = costs_of(topology, what).best
            if cost is not None and name not in found and (what == "power" or cost.unit.endswith("/h")):
                unit = JOULE if what == "power" else cost.unit.removesuffix("/h")
                found[name] = Meter(name, unit, stated=what)
    return list(found.values())


def terms_of(meter: Meter, topology: Topology) -> tuple[Term, ...]:
    """The terms of a meter on a server. Raises OffloadError where the server should state them and does not."""
    if not meter.stated:
        return meter.terms
    cost = costs_of(topology, meter.stated).best
    unit, due = ("W", 1.0) if meter.unit == JOULE else (f"{meter.unit}/h", 3600.0)
    if cost is None or cost.unit != unit:
        other = "" if cost is None else f", but {cost.unit}"
        raise OffloadError(f"{topology.name} states no {meter.stated} in {unit}{other}.")
    return (Term("second", "", cost.figure.value / due, f"{cost.figure.value:g} {unit}"),)


def amount_of(term: Term, seconds: float, load: Mapping[str, float], rows: Mapping[Term, Sequence[str]]) -> float:
    """A term of a meter for one step, in the meter's unit. load : of each resource [B or FLOP]."""
    if term.per == "second":
        return term.amount * seconds
    return term.amount * sum(load.get(name, 0.0) for name in rows[term])


def _states(step: Step, ends: Iterable[tuple[float, str]]) -> list[tuple[float, Mapping[str, float]]]:
    return [(seconds, loads(step, least=False, grade=grade)) for seconds, grade in ends]


def _ends(figures: Iterable[float]) -> Ends:
    low, value, high = figures
    return low, value, high


def _wear(meter: Meter, step: Step, total: Ends, ends: Sequence[tuple[float, str]]) -> Wear:
    drives = _memories(step.topology, meter.drive)
    count = sum(step.topology.memories[name].count for name in drives)
    endurance = None if meter.endurance is None else meter.endurance * count
    if not endurance or not total[1]:
        return Wear(meter.drive, count, total, endurance, None, None)
    lasts = sorted(endurance / amount * seconds for amount, (seconds, _) in zip(total, ends, strict=True) if amount)
    return Wear(meter.drive, count, total, endurance, endurance / total[1] * step.plan.tokens,
                (lasts[0], endurance / total[1] * ends[1][0], lasts[-1]))


def written(step: Step, drive: str, grade: str) -> float:
    """Bytes that one step writes to a drive, or to all memories of a kind [B]. Raises OffloadError for no such one."""
    total = 0.0
    found = loads(step, least=False, grade=grade)
    for name in _memories(step.topology, drive):
        if f"{name}.write" in step.resources:
            total += found[f"{name}.write"]
            continue
        for row, count in zip(step.rows, step.counts, strict=True):
            for part in row.moved:
                ends = [] if part.destination is None else listed(part.destination)
                if name in ends:
                    total += count / row.every * part.bytes / len(ends)
    return total


def _memories(topology: Topology, name: str) -> list[str]:
    if name in topology.memories:
        return [name]
    found = [one.name for one in topology.memories.values() if one.kind == name]
    if not found and name not in MEMORY_KINDS:
        kinds = {one.kind for one in topology.memories.values()}
        hint = did_you_mean(name, [*topology.memories, *kinds], "Memories and kinds of them")
        raise OffloadError(f'{topology.name} has no memory "{name}". {hint}')
    return found


def _rows(meter: Meter, topology: Topology) -> tuple[dict[Term, list[str]], tuple[str, ...]]:
    """The resources whose loads each term counts, and those without a rate. Raises OffloadError for no such part."""
    found, uncounted = {}, []
    for term in meter.terms:
        if term.per != "second":
            names = _named(topology, term)
            found[term] = [name for name in names if name in topology.resources]
            uncounted += [name for name in names if name not in topology.resources]
    return found, tuple(dict.fromkeys(uncounted))


def _named(topology: Topology, term: Term) -> list[str]:
    """The rows of a resource, a part or all parts of a kind, in bytes or in FLOP as the term counts."""
    name, in_bytes = term.of, term.per == "byte"
    if name in topology.resources and (topology.resources[name].unit == "B") == in_bytes:
        return [name]
    parts = _parts(topology)
    if name in parts:
        rows = parts[name][1] if in_bytes else parts[name][2]
        if rows:
            return rows
        what = "carries no bytes" if in_bytes else "does no arithmetic"
        raise OffloadError(f"{name} {what} that are counted; {term.written} is per {term.per}.")
    rows = [row for kind, *sides in parts.values() if kind == name for row in sides[0 if in_bytes else 1]]
    if name in ALL_KINDS and not in_bytes and name not in PROCESSOR_KINDS:
        raise OffloadError(f"{name} does no arithmetic; {term.written} is per flop. Processors do: "
                           f"{', '.join(PROCESSOR_KINDS)}.")
    if not rows and any(kind == name for kind, *_ in parts.values()):
        raise OffloadError(f"no {name} of {topology.name} has bytes that are counted; {term.written} is per byte. "
                           "Count those of the memories and links that it uses.")
    if rows or name in ALL_KINDS:
        return rows
    kinds = {kind for kind, *sides in parts.values() if kind and sides[0 if in_bytes else 1]}
    near = did_you_mean(name, [*parts, *kinds], "Parts and kinds of them")
    raise OffloadError(f'{topology.name} has no part "{name}". {near}')


MEMORY_KINDS = typing.get_args(MemoryKind)
PROCESSOR_KINDS = typing.get_args(ProcessorKind)
ALL_KINDS = {*MEMORY_KINDS, *PROCESSOR_KINDS, *typing.get_args(LinkKind), "cxl link"}


def _parts(topology: Topology) -> dict[str, tuple[str, list[str], list[str]]]:
    """By part: its kind, the rows of its bytes (one for each byte that passes) and the rows of its arithmetic."""
    found: dict[str, tuple[str, list[str], list[str]]] = {}
    for memory in topology.memories.values():
        apart = [f"{memory.name}.{access}" for access in ("read", "write")
                 if getattr(memory, access) is not None or memory.rate is None]  # fmt: skip
        found[memory.name] = memory.kind, [memory.name] if memory.rate is not None else apart, []
    for one in topology.processors.values():
        rows = [f"{one.name}.{access}" for access in ("reads", "writes") if getattr(one, access) is not None]
        found[one.name] = one.kind, rows, [f"{one.name}.flops"]
    for link in topology.links.values():
        rows = [link.name] if link.half_duplex else [name for name, _, _ in directions(link)]
        kind = f"{link.technology} link" if link.technology in MEMORY_KINDS else link.technology  # cxl is both
        found[link.name] = kind, rows, []
    return found
