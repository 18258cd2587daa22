"""Every term of an answer: what each task loads, what each resource's load is the sum of, what waits for what.

Values only, from the compiled step; they add up to its floor and its serial time again. Nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offload.bounds import Floor, load_seconds
from offload.plan import Compute
from offload.schedules import Schedule, Serial, solo_seconds
from offload.step import Movement, Row, Step, loads, row_seconds, sustained_rate
from offload.study import Study


@dataclass(frozen=True, slots=True)
class Work:
    """What one instance of a task puts on one resource, and the time [s] that this takes there.

    least, load : in floors and in schedules [B, FLOP, s]. coefficient, least_coefficient : the same for each byte that
    a move moves (2 where host memory is written and read; 0 where a cache may hold it); None for a compute. fewest,
    most : the ends of `load`.
    """

    resource: str
    access: str
    unit: str
    least: float
    load: float
    least_coefficient: float | None
    coefficient: float | None
    peak: float | None
    sustained: float
    assumed: bool
    peak_seconds: float | None
    seconds: float
    fewest: float
    most: float


@dataclass(frozen=True, slots=True)
class TaskTerms:
    """Tasks that are equal: `count` of them a step, each in one of `every` steps.

    links : those that a move crosses, in order. latency : (least, typical) [s]. seconds : one of them alone, at
    sustained rates [s]; longest : the resources that take so long.
    """

    name: str
    transfer: bool
    runs_on: str
    count: int
    every: int
    moved: tuple[Movement, ...]
    links: tuple[str, ...]
    latency: tuple[float, float]
    work: tuple[Work, ...]
    seconds: float
    longest: tuple[str, ...]

    @property
    def label(self) -> str:
        """The task in words, with the processor of a compute."""
        return self.name if self.transfer else f"{self.name} on {self.runs_on}"


@dataclass(frozen=True, slots=True)
class Summand:
    """`count` / `every` times one instance's least and expected load, of the task with that number."""

    task: int
    count: int
    every: int
    least: float
    load: float


@dataclass(frozen=True, slots=True)
class Part:
    """The expected load of one kind of access, and the sustained rate that serves it."""

    access: str
    load: float
    rate: float
    assumed: bool


@dataclass(frozen=True, slots=True)
class Sum:
    """The load of a resource as the sum of its terms, least and expected, and the times it takes [s].

    cache : bytes of each step that the cache in front of it may keep. peak_seconds : (least - cache) / peak, no less
    than 0. parts : of the expected load, whose times add up to `seconds`. source : of its rates.
    """

    resource: str
    kind: str
    unit: str
    terms: tuple[Summand, ...]
    least: float
    load: float
    cache: int
    peak: float | None
    peak_seconds: float | None
    parts: tuple[Part, ...]
    seconds: float
    binding: bool
    source: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a task waits for. streams : of these, what it may follow tile by tile in floors.

    before : (task, steps) of what it waits for in an earlier step.
    """

    task: str
    on: tuple[str, ...]
    streams: tuple[str, ...]
    before: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Buffers:
    """Slots of a move: how many (0: no limit), of which size [B], in which memories, and which tasks give one back."""

    move: str
    count: int
    size: float
    places: tuple[str, ...]
    until: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenTerm:
    """A time [s] that is stated instead of counted; `least` enters floors."""

    task: str
    processor: str
    low: float
    value: float
    high: float
    least: float
    source: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` returns: terms in the order of the plan, sums by the time they take."""

    tasks: tuple[TaskTerms, ...]
    sums: tuple[Sum, ...]
    floor: Floor
    floor_sustained: Floor
    serial: Serial
    overlapped: Schedule
    queues: tuple[tuple[str, int], ...]
    waits: tuple[Waiting, ...]
    buffers: tuple[Buffers, ...]
    estimates: tuple[GivenTerm, ...]


def explain(step: Step, study: Study) -> Explanation:
    """Every term of a step and of its study. Amounts must be numbers."""
    tasks, numbers = _tasks(step)
    names = [tasks[number].label for number in numbers]
    return Explanation(
        tasks=tasks,
        sums=_sums(step, tasks, study.floor),
        floor=study.floor,
        floor_sustained=study.floor_sustained,
        serial=study.serial,
        overlapped=study.overlapped,
        queues=_queues(step, tasks, numbers),
        waits=_waits(step, names),
        buffers=_buffers(step, names),
        estimates=_estimates(step),
    )


def _tasks(step: Step) -> tuple[tuple[TaskTerms, ...], list[int]]:
    """Equal rows as one, and for each row the number of its task."""
    found: dict[object, list[int]] = {}
    for number, row in enumerate(step.rows):
        key = (row.name, row.lane, row.transfer, row.uses, row.latency, row.every, row.urgent, row.moved)
        found.setdefault(key, []).append(number)
    solo, counts = solo_seconds(step), step.counts
    numbers = [0] * len(step.rows)
    tasks: list[TaskTerms] = []
    for alike in found.values():
        row = step.rows[alike[0]]
        for number in alike:
            numbers[number] = len(tasks)
        work = tuple(_work(step, row))
        links = tuple(use.resource for use in row.uses if step.resources[use.resource].kind == "link")
        runs_on = next((part.runs_on for part in row.moved if part.runs_on), row.lane)
        busy = row_seconds(step, row, "value")
        longest = tuple(name for name, seconds in busy.items() if 0 < seconds >= max(busy.values()))
        tasks.append(TaskTerms(
            row.name, row.transfer, "" if row.transfer else runs_on, sum(counts[number] for number in alike), row.every,
            row.moved, links, row.latency, work, solo[alike[0]], longest,
        ))
    return tuple(tasks), numbers


def _work(step: Step, row: Row) -> Iterable[Work]:
    moved = sum(part.bytes for part in row.moved) if row.transfer else 0
    for use in row.uses:
        resource = step.resources[use.resource]
        rate = sustained_rate(resource, use.access)
        least, load = (use.least / moved, use.load / moved) if moved and resource.unit == "B" else (None, None)
        yield Work(
            use.resource, use.access, resource.unit, use.least, use.load, least, load, resource.peak, rate,
            (use.access if use.access in resource.sustained else "") in resource.assumed,
            None if resource.peak is None else use.least / resource.peak, use.load / rate,
            use.amount("high"), use.amount("low"),
        )


def _sums(step: Step, tasks: tuple[TaskTerms, ...], bound: Floor) -> tuple[Sum, ...]:
    least, load = loads(step, least=True), loads(step, least=False)
    at_peak, at_sustained = (load_seconds(step, grade).resource_seconds for grade in ("peak", "value"))
    sums = []
    for name, resource in step.resources.items():
        terms: list[Summand] = []
        parts: dict[str, Part] = {}
        for number, task in enumerate(tasks):
            own = [work for work in task.work if work.resource == name]
            if own:
                amounts = (sum(work.least for work in own), sum(work.load for work in own))
                terms.append(Summand(number, task.count, task.every, *amounts))
            for work in own:
                known = parts.get(work.access)
                more = task.count / task.every * work.load
                parts[work.access] = Part(work.access, more + (known.load if known else 0.0), work.sustained,
                                          work.assumed)  # fmt: skip
        sums.append(Sum(
            name, resource.kind, resource.unit, tuple(terms), least[name], load[name], resource.cache, resource.peak,
            at_peak.get(name), tuple(parts.values()), at_sustained[name], name in bound.bottleneck, resource.source,
        ))
    return tuple(sorted(sums, key=lambda one: (-one.seconds, one.resource)))


def _queues(step: Step, tasks: tuple[TaskTerms, ...], numbers: list[int]) -> tuple[tuple[str, int], ...]:
    """How many tasks of a step queue where: those of a processor, and those of each move."""
    queues: dict[str, int] = {}
    for number in step.instances:
        task = tasks[numbers[number]]
        name = task.name if task.transfer else task.runs_on
        queues[name] = queues.get(name, 0) + 1
    return tuple(queues.items())


def _waits(step: Step, names: list[str]) -> tuple[Waiting, ...]:
    """What the tasks of one name wait for, each name once."""
    on: dict[str, dict[str, bool]] = {names[number]: {} for number in step.instances}
    before: dict[str, dict[tuple[str, int], None]] = {name: {} for name in on}
    for instance, waits in enumerate(step.waits):
        found = on[names[step.instances[instance]]]
        for wait in waits:
            name = names[step.instances[wait.on]]
            found[name] = found.get(name, True) and wait.streams
    for later, earlier, steps in step.wraps:
        before[names[step.instances[earlier]]][names[step.instances[later]], steps] = None
    return tuple(
        Waiting(name, tuple(found), tuple(one for one, streams in found.items() if streams), tuple(before[name]))
        for name, found in on.items()
        if found or before[name]
    )


def _buffers(step: Step, names: list[str]) -> tuple[Buffers, ...]:
    return tuple(
        Buffers(
            names[step.instances[slots.fetches[0]]], slots.buffers, slots.size,
            tuple(memory for memory, _ in slots.places),
            tuple(dict.fromkeys(names[step.instances[task]] for releases in slots.releases for task, _ in releases)),
        )
        for slots in step.slots
    )  # fmt: skip


def _estimates(step: Step) -> tuple[GivenTerm, ...]:
    given: dict[GivenTerm, None] = {}
    for block in step.plan.blocks:
        for task in block.tasks:
            if isinstance(task, Compute) and task.time is not None:
                time = task.time
                given[GivenTerm(task.name, task.processor, time.low, time.value, time.high, time.least,
                                time.source)] = None  # fmt: skip
    return tuple(given)
