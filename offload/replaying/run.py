"""A replay from a plan to its result: what stands for what, how much of it is run, the run, and the checks."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from offload.compiler import compile_step
from offload.files import named
from offload.measure import conditions
from offload.measure.ending import ended_in_order, held_back, look, requested
from offload.measure.figures import Collected, Tell
from offload.measure.machine import Here, find
from offload.measure.scratch import LEAST, POOL, DriveError, size_there
from offload.measure.settings import GIB, MIB
from offload.measure.system import System
from offload.plan import Plan
from offload.replaying.computing import NUMBERS
from offload.replaying.devices import Devices, find_devices
from offload.replaying.doing import Engine, Requests
from offload.replaying.items import Program, program, program_size, round_of
from offload.replaying.layout import Brought, Layout, Move, lay_out
from offload.replaying.machine import ReplayError, Stands, find_stands, unnamed
from offload.replaying.results import (
    SHOWN_ROUNDS,
    Replay,
    checks_of,
    first_of,
    measured_timeline,
    periods_of,
    planned_timeline,
    predicted_of,
    rates_of,
    resources_of,
    tasks_of,
)
from offload.replaying.running import run
from offload.replaying.scaling import PAGE, scaled
from offload.schedules import serial
from offload.step import Step, loads
from offload.topology import Topology
from offload.units import format_bytes, format_seconds

BLOCK, DEPTH = 4 * MIB, 1  # of requests, where the topology does not tell with how many its rate was measured
TOLD = re.compile(r"(\d{1,15}) B each, (\d{1,9}) in flight")
MOST_BLOCK, MOST_DEPTH = GIB, 256  # of requests that are made as they were measured: a thread for each in flight
LEAST_FACTOR = 2.0**-30
SHRINKS = 0.9  # half of all bytes has to take less than this part of the time
HOST_PART = 2  # of free host memory, one in so many


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is run.

    disks : folders on drives, PATH or NAME=PATH. way : how drives are read: "direct" (past the page cache), "buffered"
    or "mapped". steps : that count. scale : the part of bytes and FLOP, None for all that fits. quick : fewer steps,
    and less bytes. warm : steps that do not count, in a run of their own before.
    """

    disks: tuple[str, ...] = (".",)
    way: str = "direct"
    steps: int | None = None
    scale: float | None = None
    quick: bool = False
    warm: int = 1

    @property
    def counted(self) -> int:
        """Steps that count."""
        return self.steps if self.steps is not None else 4 if self.quick else 10

    @property
    def most_file(self) -> int:
        """Bytes of a file, where nothing else limits it."""
        return 2 * GIB if self.quick else 16 * GIB

    @property
    def most_seconds(self) -> float:
        """Seconds that all steps may take by the schedule, where no scale is asked for."""
        return 20.0 if self.quick else 180.0


@dataclass(frozen=True, slots=True)
class Ready:
    """A step that fits this machine, with what is done and what stands for what."""

    step: Step
    layout: Layout
    stands: Stands
    factor: float
    because: tuple[str, ...]


def replay(
    topology: Topology, plan: Plan, options: Options | None = None, *, tell: Tell | None = None,
    system: System | None = None, devices: Callable[[Collected], Devices | None] | None = None,
    here: Here | None = None,
) -> Replay:  # fmt: skip
    """Run a plan's step on this machine, and tell what it took beside what the model says.

    Times in s, bytes, FLOP. system, devices, here : what tests replace. Raises ReplayError where this machine cannot
    stand for a memory of the plan or has too little room, DriveError where no file can be made, KeyboardInterrupt where
    it is ended before anything was measured; ended later, the result has what was measured.
    """
    options, system = options or Options(), system or System()
    collected = Collected()
    begun = conditions.now(system)

    def telling(text: str) -> None:
        look()
        if tell is not None:
            tell(text)

    with ended_in_order("numpy", "numpy.random"):
        telling("looking at the machine")
        here = here or find(system, Collected())
        cpus = sorted({cpu for node in here.nodes for cpu in node.cpus})
        conditions.before(system, cpus, begun, collected)
        if plan.request is not None:
            collected.left_out("the whole request", "its mean decode step is run, neither its prompt nor each token's "
                               "own step")  # fmt: skip
        ready = _ready(topology, plan, options, here, system, devices or find_devices, collected)
        return _Run(ready, options, collected, telling, system, begun).result()


def _ready(
    topology: Topology, plan: Plan, options: Options, here: Here, system: System,
    devices: Callable[[Collected], Devices | None], collected: Collected,
) -> Ready:  # fmt: skip
    """The step at the largest part that fits. Raises ReplayError where none does, or where that asked for does not."""
    factor = 1.0 if options.scale is None else options.scale
    stands: Stands | None = None
    because: dict[str, None] = {}
    before = math.inf
    while True:
        part = scaled(plan, factor)
        step = compile_step(topology, part)
        layout = lay_out(topology, part, step)
        if stands is None:
            stands = find_stands(topology, _memories(topology, layout), here, system, options.disks, devices, collected)
            if options.way == "mapped" and not stands.drives:
                stands = replace(stands, drives={"": unnamed(options.disks[0], system, here.drives)})
            _few_enough(step, options)
        wanted = Engine(step, layout, program(step, layout, 2 * round_of(step)), stands, {}, options.way).sizes()
        short = _short(wanted, stands, options)
        seconds = (options.counted + options.warm + 2) * serial(step).seconds
        slow = options.scale is None and seconds > options.most_seconds and not short
        if not short and not slow:
            return Ready(step, layout, stands, factor, tuple(because))
        if slow and seconds > SHRINKS * before:
            raise ReplayError(f"its steps would take {format_seconds(seconds)} one after another, and with half of the "
                              f"bytes and FLOP {format_seconds(before)} became no less: times that are given, and "
                              "latencies, stay. Take fewer --steps, or a --scale, with which it is run however long "
                              "it takes.")  # fmt: skip
        before = seconds if slow else math.inf
        if options.scale is not None or factor < LEAST_FACTOR:
            raise ReplayError(f"{'; '.join(short) or 'no part of the plan fits'}. Take a smaller --scale, free some "
                              "room, or give --disk a folder on another drive.")  # fmt: skip
        because |= dict.fromkeys(short[:2] if short else
                                 [f"its steps would take {format_seconds(seconds)} one after another"])  # fmt: skip
        factor /= 2


def _few_enough(step: Step, options: Options) -> None:
    """Raises ReplayError where the steps have too many tasks, before the room for them is looked for."""
    size = round_of(step)
    program_size(step, (-(-options.counted // size) + 2) * size)


def _memories(topology: Topology, layout: Layout) -> dict[str, None]:
    """The memories that the plan touches."""
    found = {home.memory: None for home in layout.homes}
    for operation in layout.operations:
        if isinstance(operation, Move):
            found[operation.memory] = None
            if not isinstance(operation.source, Brought):
                found[operation.source.memory] = None
        else:
            found[topology.processors[operation.processor].memory] = None
    return found


def _short(wanted: Mapping[str, int], stands: Stands, options: Options) -> list[str]:
    """Where there is too little room, in words."""
    found: list[str] = []
    nodes: dict[Any, int] = {}
    systems: dict[int, int] = {}
    for memory, size in wanted.items():
        if memory in stands.drives:
            path = stands.drives[memory].path
            taken = systems.get(os.stat(path).st_dev, 0)  # by files for other drives in the same file system
            systems[os.stat(path).st_dev] = taken + size
            room = min(shutil.disk_usage(path).free // 2 - taken, options.most_file if options.scale is None else size)
            if size > room:
                found.append(f"{memory or 'what lies in host memory'} would need a file of {format_bytes(size)} in "
                             f"{named(path)}, where {format_bytes(max(0, room))} may be taken")  # fmt: skip
        elif memory in stands.hosts:
            node = stands.hosts[memory]
            nodes[node] = nodes.get(node, 0) + size
            if nodes[node] > node.free // HOST_PART:
                found.append(f"{memory} would need {format_bytes(size)}, and half of the free memory is "
                             f"{format_bytes(node.free // HOST_PART)}")  # fmt: skip
        elif size > (room := cast(Devices, stands.devices).free(stands.gpus[memory]) // HOST_PART):
            found.append(f"{memory} would need {format_bytes(size)}, and half of the GPU's free memory is "
                         f"{format_bytes(room)}")  # fmt: skip
    return found


def _room(drive: str, path: str, size: int) -> None:
    """Raises DriveError for a folder where no file can be made, or none of this size."""
    wanted = max(-(-size // POOL) * POOL, LEAST)
    if (room := size_there(path, wanted)) < size:
        raise DriveError(f"{drive} needs a file of {format_bytes(size)}, and {named(path)} has room for "
                         f"{format_bytes(room)}, half of what is free there. Take a smaller --scale, or give --disk a "
                         "folder on another drive.")  # fmt: skip


def requests_of(step: Step, drive: str) -> tuple[Requests, str]:
    """How a drive is read: as its rate was measured, where the topology tells that; and where it is from, in words."""
    for name in (f"{drive}.read", drive, f"{drive}.write"):
        known = step.topology.resources.get(name)
        found = TOLD.search(known.source) if known is not None else None
        if found:
            block, depth = int(found[1]), int(found[2])
            if block % PAGE or not 0 < block <= MOST_BLOCK or not 0 < depth <= MOST_DEPTH:
                return Requests(BLOCK, DEPTH), (f"not as its rate was measured ({found[0]}), which is not done here: "
                                                f"whole pages of {PAGE} B, at most {MOST_DEPTH} in flight")  # fmt: skip
            return Requests(block, depth), "as its rate was measured"
    return Requests(BLOCK, DEPTH), "as the topology does not tell how its rate was measured"


class _Run:
    def __init__(
        self, ready: Ready, options: Options, collected: Collected, tell: Tell, system: System, begun: Any
    ):  # fmt: skip
        self.ready, self.options, self.collected, self.tell = ready, options, collected, tell
        self.system, self.begun = system, begun
        step = ready.step
        size = round_of(step)
        self.counted = -(-options.counted // size) * size
        self.lead = size
        told = {drive: requests_of(step, drive) for drive in ready.stands.drives}
        self.requests = {drive: one for drive, (one, _) in told.items()}
        self.how = [*self._how_drives(told), *self._how_computes()]

    def result(self) -> Replay:
        """Run, and put together what was found. Raises KeyboardInterrupt where not one counted step ended."""
        ready, options, step = self.ready, self.options, self.ready.step
        main = program(step, ready.layout, self.lead + self.counted + round_of(step))
        engine = Engine(step, ready.layout, main, ready.stands, self.requests, options.way)
        with contextlib.ExitStack() as last, contextlib.ExitStack() as stack:
            for drive, place in ready.stands.drives.items():
                _room(drive or "what lies in host memory", place.path, engine.sizes().get(drive, 0))
            engine.make(stack, self.tell)
            look()
            warm = program(step, ready.layout, max(1, -(-options.warm // round_of(step))) * round_of(step))
            record = None
            if options.warm:
                self.tell("a run that does not count")
                record = self._warm(engine, warm)
            if record is None or not (record.stopped or record.error):
                self.tell(f"{self.counted} steps, and {self.lead} before and after them")
                before = _storage(self.system)
                record = run(main, engine.do, threading.Event())
                last.enter_context(held_back())  # what was measured is told, whatever is asked for
                storage = _between(before, _storage(self.system))
                engine.sync()
            else:
                storage = {}
            if record.error is not None:
                raise record.error
            wrong = tuple(engine.wrong)
            stack.close()
            done = len(record.ended) == len(main.items)  # not only the run that does not count
            periods = periods_of(step, main, record, self.lead, self.counted) if done else ()
            if record.stopped and not periods:
                raise KeyboardInterrupt
            return self._result(main, record, periods, storage, wrong)

    def _warm(self, engine: Engine, warm: Program) -> Any:
        """The first steps alone, by the engine of the whole run: its items begin with these."""
        return run(warm, engine.do, threading.Event())

    def _result(
        self, main: Program, record: Any, periods: tuple[float, ...], storage: Mapping[str, float],
        wrong: tuple[str, ...],
    ) -> Replay:  # fmt: skip
        ready, step, layout = self.ready, self.ready.step, self.ready.layout
        counted = range(self.lead, self.lead + self.counted)
        planned = planned_timeline(step)
        checked, broken, slots = checks_of(step, main, record)
        resources = resources_of(step, layout, main, record, counted)
        wrong = (*wrong, *broken, *(f"{one.name}: {one.moved:.10g} {one.unit} moved in a step, the plan loads "
                                    f"{one.load:.10g}" for one in resources if one.why == "differs"))  # fmt: skip
        rates = rates_of(step)
        shares = conditions.after(self.begun, conditions.now(self.system), self.collected)
        asked = self._asked(main, record)
        return Replay(
            step=step, factor=ready.factor, because=ready.because, predicted=predicted_of(step), steps=len(periods)
            * round_of(step), warm=self.options.warm, periods=periods, first=first_of(main, record),
            tasks=tasks_of(step, planned, main, record, counted), resources=resources, slots=slots, rates=rates,
            checked=checked, wrong=wrong,
            timelines=(planned, measured_timeline(step, main, record, min(planned.steps, SHOWN_ROUNDS * self.lead))),
            stands={memory: ready.stands.text(memory) for memory in _memories(step.topology, layout)},
            how=tuple(self.how), warnings=tuple(self.collected.warnings), missing=tuple(self.collected.missing),
            storage={way: (asked.get(way, 0.0), amount) for way, amount in storage.items() if way in asked},
            interrupted=record.stopped or requested(),
            conditions={"date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                        "load_average_before": self.begun.load, "processor_time": shares},
        )  # fmt: skip

    def _asked(self, main: Program, record: Any) -> dict[str, float]:
        """Bytes that the run's items asked drives for: read and written."""
        found: dict[str, float] = {}
        for place, item in enumerate(main.items):
            operation = self.ready.layout.operations[item.instance]
            if not isinstance(operation, Move) or record.ended[place] is None:
                continue
            source, into = item.ends
            if source.memory in self.ready.stands.drives:
                found["read"] = found.get("read", 0.0) + record.moved[place].read
            if into.memory in self.ready.stands.drives:
                found["write"] = found.get("write", 0.0) + record.moved[place].written
        return found

    def _how_drives(self, told: Mapping[str, tuple[Requests, str]]) -> list[str]:
        ways = {"direct": "past the page cache (O_DIRECT)", "buffered": "through the page cache",
                "mapped": "by a mapping of the file, through the page cache"}  # fmt: skip
        found = []
        for drive, (one, why) in told.items():
            name = f"{drive}: " if drive else "what lies in host memory: "
            requests = "" if self.options.way == "mapped" else (
                f", requests of {format_bytes(one.block)}, {one.depth} in flight for each move, {why}")
            sizes = [operation.size for operation in self.ready.layout.operations if isinstance(operation, Move)
                     and drive in (operation.stage.source, operation.stage.destination)]  # fmt: skip
            least = min((one.block_of(size) for size in sizes), default=one.block)
            if requests and least < one.block:
                requests += f"; down to {format_bytes(least)} in moves that would else have fewer"
            found.append(f"{name}{ways[self.options.way]}{requests}")
        return found

    def _how_computes(self) -> list[str]:
        step, found = self.ready.step, []
        for row in step.rows:
            for use in row.uses:
                if use.resource.endswith(".flops") and use.access not in NUMBERS:
                    processor = use.resource.removesuffix(".flops")
                    if step.topology.processors[processor].kind == "cpu":
                        found.append(f"{row.name}: FLOP in {use.access} are done in fp32 here, and predicted at the "
                                     f"rate of {use.access}")  # fmt: skip
        total = loads(step, least=False)
        for name, one in step.topology.processors.items():
            if (reads := total.get(f"{name}.reads", 0.0)) and not total.get(f"{name}.flops", 0.0) and one.kind == "cpu":
                found.append(f"{name}: {format_bytes(reads)} a step are read by matrix-vector products, whose FLOP the "
                             "plan does not count")  # fmt: skip
        return list(dict.fromkeys(found))


def _storage(system: System) -> dict[str, float]:
    """Bytes that this process has read from and written to storage so far; empty where the system tells none."""
    found = {}
    for line in (system.text("/proc/self/io") or "").splitlines():
        key, _, value = line.partition(":")
        if key in ("read_bytes", "write_bytes") and value.strip().isdigit():
            found[key.removesuffix("_bytes")] = float(value)
    return found


def _between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {key: after[key] - before[key] for key in before if key in after}
