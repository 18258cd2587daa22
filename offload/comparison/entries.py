"""One plan on one server, as a row of a comparison: floor, expected time, what binds, what fits, loads, meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offload.bounds import Floor, floor, load_seconds
from offload.capacity import missing
from offload.comparison.readings import Reading, reading
from offload.compiler import compile_step
from offload.errors import DocumentError, OffloadError
from offload.meters import Meter
from offload.plan import Plan
from offload.ranges import fold
from offload.schedules import Schedule, schedule
from offload.step import Step, loads
from offload.topology import Topology
from offload.units import format_bytes

RANKED, FULL, NO_PLAN = "fits", "does not fit", "cannot be laid out"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan on a server that is to be compared. plan, server : their names, as they are told apart.

    made : the plan and the server; None where the plan cannot be laid out there, for the reason `why`. names : what
    each name of the plan's own server stands for on this one, where that is another name.
    """

    plan: str
    server: str
    made: tuple[Plan, Topology] | None = None
    why: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A memory that the plan uses [B]. free : what is left, None where the capacity is unknown; missing : too much."""

    name: str
    capacity: int | None
    used: int
    free: int | None
    missing: int


@dataclass(frozen=True, slots=True)
class LoadRow:
    """The expected load of a resource in one step [B or FLOP], and the time it takes at the sustained rate [s]."""

    name: str
    unit: str
    load: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One plan on one server. state : "fits", "does not fit" or "cannot be laid out"; `why` says it in words.

    times are None where it does not fit. binding : at sustained rates; floor_binding : in the floor. tokens_per_s :
    expected, as (low, value, high). step : what was compiled.
    """

    plan: str
    server: str
    state: str
    why: str = ""
    title: str = ""
    server_title: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    floor: Floor | None = None
    expected: Schedule | None = None
    binding: tuple[str, ...] = ()
    floor_binding: tuple[str, ...] = ()
    tokens: float = 1
    tokens_per_s: tuple[float, float, float] | None = None
    memory: tuple[MemoryUse, ...] = ()
    loads: tuple[LoadRow, ...] = ()
    readings: tuple[Reading, ...] = ()
    step: Step | None = field(default=None, repr=False, compare=False)

    @property
    def fits(self) -> bool:
        """Whether it has times."""
        return self.state == RANKED


def entry_of(candidate: Candidate, meters: Sequence[Meter] = ()) -> Entry:
    """A candidate with all that is known of it. What the server does not take is told in `why`, not raised."""
    about: dict[str, Any] = {"plan": candidate.plan, "server": candidate.server, "names": dict(candidate.names)}
    if candidate.made is None:
        return Entry(state=NO_PLAN, why=candidate.why, **about)
    plan, topology = candidate.made
    about |= {"title": plan.title, "server_title": topology.title}
    try:
        step = compile_step(topology, plan)
        lacking = missing(step)
        memory = tuple(_memory(step, name, lacking) for name in sorted(step.occupied))
        if lacking:
            return Entry(state=FULL, why=_why(memory), memory=memory, tokens=plan.tokens, **about)
        bound, times = floor(step), schedule(step)
    except OffloadError as error:
        return Entry(state=NO_PLAN, why=reason(error), **about)
    ends = (times.high, times.seconds, times.low)
    return Entry(
        state=RANKED, floor=bound, expected=times, binding=floor(step, "value").bottleneck,
        floor_binding=bound.bottleneck, tokens=plan.tokens,
        tokens_per_s=tuple(plan.tokens / one for one in ends) if min(ends) > 0 else None, memory=memory,
        loads=_loads(step), readings=tuple(reading(meter, step, times) for meter in meters), step=step, **about,
    )  # fmt: skip


def _memory(step: Step, name: str, lacking: Mapping[str, int]) -> MemoryUse:
    memory = step.topology.memories[name]
    used = sum(step.occupied[name].values())
    capacity = None if memory.capacity is None else memory.capacity * memory.count
    return MemoryUse(name, capacity, used, None if capacity is None else max(capacity - used, 0),
                     lacking.get(name, 0))  # fmt: skip


def _why(memory: Sequence[MemoryUse]) -> str:
    by_amount: dict[tuple[int, int | None], list[str]] = {}
    for one in memory:
        if one.missing:
            by_amount.setdefault((one.missing, one.capacity), []).append(one.name)
    return "; ".join(
        f"{fold(names)} {'lacks' if len(names) == 1 else 'lack'} {format_bytes(amount)}"
        f"{'' if len(names) == 1 else ' each'} (has {format_bytes(capacity)})"
        for (amount, capacity), names in by_amount.items()
    )


def _loads(step: Step) -> tuple[LoadRow, ...]:
    amounts, times = loads(step, least=False), load_seconds(step, "value").resource_seconds
    return tuple(LoadRow(name, step.resources[name].unit, amount, times.get(name))
                 for name, amount in amounts.items() if amount)  # fmt: skip


def reason(error: OffloadError) -> str:
    """An error in one line: of a file's mistakes what each says, without the place in the file."""
    if isinstance(error, DocumentError):
        return " ".join(dict.fromkeys(f"{one.key}: {one.message}" if one.key else one.message
                                      for one in error.mistakes))  # fmt: skip
    return " ".join(str(error).split())
