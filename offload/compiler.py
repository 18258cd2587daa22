"""From a plan and a topology to a step: rows of the table, their instances, what waits for what, what lies where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from offload.copies import Copy
from offload.errors import PlanError
from offload.plan import (
    UNLIMITED,
    Amount,
    Compute,
    Plan,
    Task,
    Transfer,
    at_loads,
    loads_open,
    tensors_of,
)
from offload.row_uses import larger
from offload.rows import RowTable, row_table
from offload.step import Row, Slots, Step, Use, Wait
from offload.topology import Topology
from offload.units import format_bytes, format_flop


def compile_step(topology: Topology, plan: Plan) -> Step:
    """Compile a plan on a topology to a `Step`.

    Amounts are per instance [B, FLOP]. Raises PlanError for names, orders or buffers that cannot be, RouteError where
    no route leads from a tensor to where it is moved or read.

    Of loads with two ends floors count what the low end loads, schedules the point and both ends, and memory holds the
    high end. Where other passes of the request have more buffers (`Plan.passes`), memory holds theirs.

    >>> from offload import compile_step, load_plan
    >>> plan, topology = load_plan("examples/by-hand.yaml")
    >>> step = compile_step(topology, plan)
    >>> len(step.rows), sum(step.counts)
    (2, 160)
    """
    step = _compiled(topology, plan)
    if not plan.passes:
        return step
    occupied = {memory: dict(parts) for memory, parts in step.occupied.items()}
    for one in plan.passes:
        for memory, parts in _compiled(topology, replace(one, overlap=plan.overlap)).occupied.items():
            if "buffers" in parts:
                own = occupied.setdefault(memory, {})
                own["buffers"] = larger(own.get("buffers", 0), parts["buffers"])
    return replace(step, occupied=occupied)


def _compiled(topology: Topology, plan: Plan) -> Step:
    """The step of a plan by itself."""
    open_loads = loads_open(plan)
    if not open_loads and all(tensor.interval is None for tensor in plan.tensors.values()):
        return _Compiler(topology, plan, RowTable(topology, plan)).compile()
    low, value, high = (at_loads(plan, end) for end in ("low", "value", "high"))
    step = _Compiler(topology, high, RowTable(topology, high)).compile()
    tables = (row_table(topology, one).rows for one in (low, value))
    rows = tuple(_between(*ends) for ends in zip(*tables, step.rows, strict=True))
    notes = []
    for (name, interval), unit in open_loads.items():
        show = format_flop if unit == "FLOP" else format_bytes
        what = f'the FLOP of "{name}" are' if unit == "FLOP" else f'the bytes of "{name}" are'
        held = "" if unit == "FLOP" else f", memory holds {show(interval.high)}"
        notes.append(f"{what} not known better than {show(interval.low)} to {show(interval.high)}: floors count "
                     f"{show(interval.low)}, expected times {show(interval.value)}{held}")
    return replace(step, plan=plan, rows=rows, assumptions=(*step.assumptions, *notes))


def _between(low: Row, value: Row, high: Row) -> Row:
    """A row at a point of its loads, with what it surely puts on each resource and the ends of what is expected."""
    uses = []
    fewest, point = ({(use.resource, use.access): use for use in row.uses} for row in (low, value))
    for use in high.uses:  # a load of nothing is no use: the high end has all there are
        none = Use(use.resource, 0.0, 0.0, use.access)
        least, middle = (uses.get((use.resource, use.access), none) for uses in (fewest, point))
        ends = (least.load, use.load) if least.load != use.load else (None, None)
        uses.append(Use(use.resource, least.least, middle.load, use.access, *ends))
    return replace(value, uses=tuple(uses))


@dataclass(slots=True)
class _Placed:
    """A task's instances in one repetition: those that wait for others first, those that others wait for last."""

    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(slots=True)
class _Compiler:
    topology: Topology
    plan: Plan
    table: RowTable
    instances: list[int] = field(default_factory=list)
    waits: list[list[Wait]] = field(default_factory=list)
    wraps: list[tuple[int, int, int]] = field(default_factory=list)
    placed: dict[str, _Placed] = field(default_factory=dict)  # the latest repetition of each task
    opening: dict[str, _Placed] = field(default_factory=dict)  # the first one, for the wrap to the next step
    turns: dict[str, list[_Placed]] = field(default_factory=dict)  # all of them
    last_compute: int | None = None
    first_compute: int | None = None
    # For each move, its fetches and what gives each one's slot back: (instance, steps later).
    holds: dict[str, list[tuple[int, list[tuple[int, int]]]]] = field(default_factory=dict)
    # For each move, where a slot is, the most that it holds and what it holds on average, and how many there are.
    held_at: dict[str, tuple[tuple[tuple[str, float], ...], Amount, Amount, int]] = field(default_factory=dict)
    # Tasks whose first repetition finds no `previous.NAME` in this step.
    alone: set[tuple[str, str]] = field(default_factory=set)

    def compile(self) -> Step:
        repeats: dict[str, int] = {}
        for block in self.plan.blocks:
            found = self.table.block(block)
            tasks, copies, chains = found.tasks, found.copies, found.chains
            own = {task.name: task for task in tasks}
            at_home = {name for task in tasks for name in tensors_of(task)
                       if name not in copies[task.name] or copies[task.name][name].move in own}
            for name in at_home:  # a copy that an earlier block brought is no further repetition
                repeats[name] = repeats.get(name, 0) + block.repeat
            for repetition in range(block.repeat):
                # Of the repetition before, or of an earlier block; those of other blocks stay as they are meanwhile.
                before = {name: self.placed.get(name) for name in own}
                here: dict[str, _Placed] = {}
                for task in tasks:
                    if task.once and repetition:
                        continue
                    self._place(task, chains[task.name], copies[task.name], here, before, own)
        self._wrap_computes()
        used = {use.resource for row in self.table.rows for use in row.uses}
        resources = {name: one for name, one in self.topology.resources.items() if name in used} | self.table.given
        slots = self._slots()
        return Step(
            title=self.plan.title,
            topology=self.topology,
            plan=self.plan,
            resources=resources,
            rows=tuple(self.table.rows),
            instances=tuple(self.instances),
            waits=tuple(tuple(waits) for waits in self.waits),
            slots=slots,
            wraps=tuple(self.wraps),
            first_compute=self.first_compute if self.plan.data_cycle else None,
            last_compute=self.last_compute if self.plan.data_cycle else None,
            occupied=self._occupied(repeats, slots),
            assumptions=(*self.table.notes, *self._not_counted()),
        )

    def _not_counted(self) -> list[str]:
        """What the topology says of parts that the step goes through and that have no rate to count with."""
        touched: set[str] = set()
        for route in self.table.routes.values():
            for stage in route.stages:
                nodes = (stage.source, *stage.way, stage.destination)
                touched |= {*nodes, *(f"{one}.{following}" for one, following in zip(nodes, nodes[1:], strict=False))}
        resources, found = self.topology.resources, []
        for note in self.topology.assumptions:
            name = note.partition(":")[0]
            memory = name.split(".")[0]
            on_the_way = name in touched or (memory in self.topology.memories and memory in touched)
            if on_the_way and name not in resources:
                found.append(note)
        return found

    # Instances: one repetition of a task, and what it waits for.

    def _place(
        self,
        task: Task,
        chains: list[list[int]],
        copies: Mapping[str, Copy],
        here: dict[str, _Placed],
        before: dict[str, _Placed | None],
        tasks: Mapping[str, Task],
    ) -> None:
        waits = self._waits_of(task, here, before, tasks)
        reads = set(task.reads) if isinstance(task, Compute) else {task.tensor}
        named = {*(text.removeprefix("previous.") for text in task.after), *_in_turn(task)}
        for tensor, copy in copies.items():
            if tensor in reads and copy.move not in named and copy.move in self.placed:
                for instance in self.placed[copy.move].last:
                    self._release(instance)
        first: list[int] = []
        last: list[int] = []
        own = before.get(task.name)
        for chain in chains:
            previous: int | None = None
            for stage, row in enumerate(chain):
                instance = len(self.instances)
                self.instances.append(row)
                self.waits.append([*waits] if previous is None else [Wait(previous, True)])
                if previous is None:
                    first.append(instance)
                else:
                    before_it = chain[stage - 1]
                    self._hold(f"{self.table.rows[before_it].name} slot", previous, [(instance, 0)],
                               cast(Transfer, task), before_it)  # nothing else has stages
                previous = instance
            last.append(len(self.instances) - 1)
        if isinstance(task, Compute):
            if own is not None:
                self.waits[first[0]].append(Wait(own.last[0], False))
            if self.first_compute is None:
                self.first_compute = first[0]
            self.last_compute = last[0]
        here[task.name] = self.placed[task.name] = _Placed(tuple(first), tuple(last))
        self.opening.setdefault(task.name, here[task.name])
        self.turns.setdefault(task.name, []).append(here[task.name])
        if isinstance(task, Transfer) and not task.into:
            for instance, chain in zip(last, chains, strict=True):
                self._hold(_slot_of(self.table.rows[chain[-1]]), instance, [], task, chain[-1])

    def _waits_of(
        self, task: Task, here: dict[str, _Placed], before: dict[str, _Placed | None], tasks: Mapping[str, Task]
    ) -> list[Wait]:
        waits: dict[int, bool] = {}
        names_compute = False
        for text in task.after:
            previous = text.startswith("previous.")
            name = text.removeprefix("previous.")
            target = before[name] if name in before else self.placed.get(name)
            if not previous:
                target = here.get(name, target)
            compute = self._is_compute(name, tasks)
            names_compute = names_compute or compute
            if target is None:
                if previous and task.name not in self.opening:
                    self.alone.add((task.name, name))
                continue  # the first repetition has none before it in this step
            streams = self._streams(task, name, compute, tasks)
            for instance in target.last:
                waits[instance] = waits.get(instance, True) and streams
                if not compute:
                    self._release(instance)
        turn = len(self.turns.get(task.name, ()))
        for name in _in_turn(task):
            if turn >= len(self.turns.get(name, ())):
                raise PlanError(f'task "{task.name}" waits in turn for "{name}", which is repeated less often.')
            compute = self._is_compute(name, tasks)
            names_compute = names_compute or compute
            for instance in self.turns[name][turn].last:
                waits[instance] = False
                if not compute:
                    self._release(instance)
        if isinstance(task, Compute) and not names_compute and self.last_compute is not None:
            waits[self.last_compute] = False
        return [Wait(on, streams) for on, streams in waits.items()]

    def _streams(self, task: Task, name: str, compute: bool, tasks: Mapping[str, Task]) -> bool:
        """Whether a task may start on the first tile of what it waits for.

        A kernel on what is moved for it, a move on what another move of its tensor brings, and a move on what a kernel
        writes; a true data dependency, such as layer to layer or router to expert, may not.
        """
        if isinstance(task, Compute):
            return not compute
        other = tasks.get(name, self.table.brought.moves.get(name))
        if isinstance(other, Compute):
            return task.tensor in other.writes
        return other is not None and other.tensor == task.tensor

    def _is_compute(self, name: str, tasks: Mapping[str, Task]) -> bool:
        if name in tasks:
            return isinstance(tasks[name], Compute)
        placed = self.placed.get(name)
        return placed is not None and not self.table.rows[self.instances[placed.last[0]]].transfer

    # Buffers: a fetch takes a slot, its consumers give it back.

    def _hold(self, name: str, instance: int, releases: list[tuple[int, int]], task: Transfer, row: int) -> None:
        self.holds.setdefault(name, []).append((instance, releases))
        expected = self.table.rows[row].moved[0].bytes
        most = expected if self.table.rows[row].holds is None else self.table.rows[row].holds
        known = self.held_at.get(name)
        if known is not None:
            most, expected = larger(known[1], most), larger(known[2], expected)
        buffers = self.table.buffers(task)
        if known is not None and known[3] != buffers:
            raise PlanError(f'moves "{task.name}" of several blocks have {known[3]} and {buffers} buffers; give them '
                            "one number, or other names.")
        self.held_at[name] = (self.table.rows[row].places, most, expected, buffers)

    def _release(self, instance: int) -> None:
        """The task about to be placed gives back the slot that `instance` took."""
        for fetch, releases in reversed(self.holds.get(_slot_of(self.table.rows[self.instances[instance]]), [])):
            if fetch == instance:
                releases.append((len(self.instances), 0))
                return

    def _slots(self) -> tuple[Slots, ...]:
        slots = []
        for name, holds in self.holds.items():
            places, size, expected, buffers = self.held_at[name]
            urgent = self.table.rows[self.instances[holds[0][0]]].urgent
            slots.append(Slots(
                name,
                tuple(fetch for fetch, _ in holds),
                tuple(tuple(releases) for _, releases in holds),
                UNLIMITED if urgent else buffers,
                places,
                size,
                expected,
            ))
        return tuple(slots)

    def _wrap_computes(self) -> None:
        """`previous.x` of the first repetition is the last one of the step before, and so is what a token needs."""
        if self.plan.data_cycle and self.first_compute is not None and self.last_compute is not None:
            self.wraps.append((self.last_compute, self.first_compute, self.plan.in_flight))
        for name, later, steps in self.plan.carried:
            self.wraps += [(one, first, steps) for one in self.placed[name].last for first in self.opening[later].first]
        for block in self.plan.blocks:
            for task in block.tasks:
                for text in task.after:
                    name = text.removeprefix("previous.")
                    if text.startswith("previous.") and (task.name, name) in self.alone and name in self.placed:
                        firsts = self.opening[task.name].first
                        for last in self.placed[name].last:
                            self.wraps += [(last, first, 1) for first in firsts]
                            for fetch, releases in self.holds.get(_slot_of(self.table.rows[self.instances[last]]), []):
                                if fetch == last:
                                    releases += [(first, 1) for first in firsts]

    # What lies where.

    def _occupied(self, repeats: Mapping[str, int], slots: tuple[Slots, ...]) -> dict[str, dict[str, Amount]]:
        occupied: dict[str, dict[str, Amount]] = {}

        def add(memory: str, part: str, amount: Amount) -> None:
            parts = occupied.setdefault(memory, {})
            parts[part] = parts.get(part, 0) + _whole(amount)

        for tensor in self.plan.tensors.values():
            if tensor.transient:
                continue
            stored = tensor.bytes if tensor.stored is None else tensor.stored
            copies = 1 if tensor.shared else max(1, repeats.get(tensor.name, 1))
            for memory, share in tensor.home:
                self.table.check_node(memory, self.topology.memories, f'tensor "{tensor.name}", home')
                add(memory, tensor.what or tensor.name, (stored if share == 1 else stored * share) * copies)
        for slot in slots:
            if self.table.rows[self.instances[slot.fetches[0]]].urgent:
                continue
            for memory, share in slot.places:
                add(memory, "buffers", (slot.size if share == 1 else slot.size * share) * slot.count)
        for memory, part, amount in self.plan.held:
            self.table.check_node(memory, self.topology.memories, f"{part}")
            add(memory, part, amount)
        return occupied


def _in_turn(task: Task) -> tuple[str, ...]:
    return task.in_turn if isinstance(task, Transfer | Compute) else ()


def _slot_of(row: Row) -> str:
    """The name of a move's slots."""
    return f"{row.name}, urgent" if row.urgent else row.name


def _whole(amount: Amount) -> Amount:
    """Occupied bytes are whole: a number is rounded up, an array is left as it is."""
    return math.ceil(amount) if isinstance(amount, float) else amount
