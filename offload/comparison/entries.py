"""One plan on one server, as a row of a comparison: floor, expected time, what binds, what fits, loads, meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from offload.bounds import Floor, floor, load_seconds
from offload.capacity import missing
from offload.comparison.efforts import CHEAP, effort_of
from offload.comparison.readings import Reading, reading
from offload.compiler import compile_step
from offload.errors import DocumentError, OffloadError
from offload.meters import Meter
from offload.plan import Plan
from offload.ranges import fold
from offload.schedules import Schedule, schedule, serial
from offload.step import Step, at_end, has_ends, loads
from offload.topology import Topology
from offload.uncounted import uncounted
from offload.units import format_bytes

RANKED, FULL, NO_PLAN, NO_RATE = "fits", "does not fit", "cannot be laid out", "takes a time that is not known"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan on a server that is to be compared. plan, server : their names, as they are told apart.

    made : the plan and the server; None where the plan cannot be laid out there, for the reason `why`. names : what
    each name of the plan's own server stands for on this one, where that is another name. entry : what was worked out
    of it before (`prepared`).
    """

    plan: str
    server: str
    made: tuple[Plan, Topology] | None = None
    why: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    entry: Entry | None = field(default=None, repr=False, compare=False)


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
    """One plan on one server. state : "fits", "does not fit", "cannot be laid out" or, where it fits and much of it
    depends on parts without a rate, "takes a time that is not known"; `why` says it in words.

    times are None but where it fits. binding : at sustained rates; floor_binding : in the floor. tokens_per_s :
    expected, as (low, value, high). exact : whether the ends of the expected time are worked out; if not, they lie
    between those that are given: the floor at the fast ends, and one task after another at the slow ones. step : what
    was compiled.
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
    exact: bool = True
    memory: tuple[MemoryUse, ...] = ()
    loads: tuple[LoadRow, ...] = ()
    readings: tuple[Reading, ...] = ()
    step: Step | None = field(default=None, repr=False, compare=False)

    @property
    def notes(self) -> list[str]:
        """What options come to on this server, where they do less or other than they say; of a step that fits.

        What --set replaced is the same on every server, and no part of it.
        """
        told = () if self.step is None else self.step.plan.assumptions
        return [one for one in told if one.startswith("--") and not one.startswith("--set ")]

    @property
    def fits(self) -> bool:
        """Whether it fits and has times."""
        return self.state == RANKED

    @property
    def tokens_per_s(self) -> tuple[float, float, float] | None:
        """Expected, as (low, value, high); None where there is no time."""
        if self.expected is None or min(self.expected.low, self.expected.seconds) <= 0:
            return None
        times = self.expected
        return self.tokens / times.high, self.tokens / times.seconds, self.tokens / times.low


def step_of(entry: Entry) -> Step:
    """What was compiled of an entry that fits."""
    return cast(Step, entry.step)


def times_of(entry: Entry) -> Schedule:
    """The expected times of an entry that fits."""
    return cast(Schedule, entry.expected)


def prepared(candidate: Candidate) -> Candidate:
    """The candidate with its entry, as far as that needs no other candidate."""
    return replace(candidate, entry=entry_of(candidate))


def with_readings(entry: Entry, meters: Sequence[Meter]) -> Entry:
    """The entry with what meters show for it."""
    if not entry.fits:
        return entry
    return replace(entry, readings=tuple(reading(meter, step_of(entry), times_of(entry)) for meter in meters))


def with_ends(entry: Entry) -> Entry:
    """The entry with the ends of its expected time worked out."""
    if entry.exact:
        return entry
    times, step = times_of(entry), step_of(entry)
    ends = [schedule(at_end(step, end), ends=False) for end in ("high", "low")]
    seconds, colds = ([*(getattr(one, what) for one in (times, *ends))] for what in ("seconds", "cold_seconds"))
    times = replace(times, low=min(seconds), high=max(seconds), cold_low=min(colds), cold_high=max(colds))
    return replace(entry, expected=times, exact=True)


def _between(step: Step, times: Schedule) -> Schedule:
    """A schedule at its point with ends that its own lie between: no schedule is faster, and serial is one."""
    fast, slow = at_end(step, "high"), serial(at_end(step, "low"))
    low, cold = (load_seconds(fast, "value", alone=alone).seconds for alone in (False, True))
    return replace(times, low=min(low, times.seconds), high=max(slow.seconds, times.seconds),
                   cold_low=min(cold, times.cold_seconds), cold_high=max(slow.cold_seconds, times.cold_seconds))


def entry_of(candidate: Candidate) -> Entry:
    """A candidate with all that is known of it. What the server does not take is told in `why`, not raised.

    The ends of an expected time that takes long to find are not worked out (`exact`; see `with_ends`).
    """
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
        if unknown := uncounted(step):
            why = f"no rate is known of {fold(unknown)}, on which its time depends"
            return Entry(state=NO_RATE, why=why, memory=memory, tokens=plan.tokens, **about)
        bound = floor(step)
        exact = not has_ends(step) or effort_of(step) <= CHEAP
        times = schedule(step, ends=exact)
    except OffloadError as error:
        return Entry(state=NO_PLAN, why=reason(error), **about)
    return Entry(
        state=RANKED, floor=bound, expected=times if exact else _between(step, times), exact=exact,
        binding=floor(step, "value").bottleneck, floor_binding=bound.bottleneck, tokens=plan.tokens, memory=memory,
        loads=_loads(step), step=step, **about,
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
        f"{'' if len(names) == 1 else ' each'} (has {format_bytes(cast(int, capacity))})"
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
