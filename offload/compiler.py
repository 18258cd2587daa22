"""From a plan and a topology to a step: rows of the table, their instances, what waits for what, what lies where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from offload.errors import PlanError, RouteError, did_you_mean
from offload.plan import (
    UNLIMITED,
    Amount,
    Compute,
    Copy,
    Plan,
    Task,
    Tensor,
    Transfer,
    copies_read,
    in_order,
)
from offload.step import Movement, Row, Slots, Step, Use, Wait
from offload.topology import Interval, Resource, Route, Stage, Topology

DEFAULT_FORMATS = ("bf16", "fp16", "fp32")


def compile_step(topology: Topology, plan: Plan) -> Step:
    """Compile a plan on a topology to a `Step`.

    Amounts are per instance [B, FLOP]. Raises PlanError for names, orders or buffers that cannot be, RouteError where
    no route leads from a tensor to where it is moved or read.
    """
    return _Compiler(topology, plan).compile()


@dataclass(slots=True)
class _Placed:
    """A task's instances in one repetition: those that wait for others first, those that others wait for last."""

    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(slots=True)
class _Compiler:
    topology: Topology
    plan: Plan
    rows: list[Row] = field(default_factory=list)
    instances: list[int] = field(default_factory=list)
    waits: list[list[Wait]] = field(default_factory=list)
    wraps: list[tuple[int, int]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    placed: dict[str, _Placed] = field(default_factory=dict)  # the latest repetition of each task
    opening: dict[str, _Placed] = field(default_factory=dict)  # the first one, for the wrap to the next step
    last_compute: int | None = None
    first_compute: int | None = None
    # For each move, its fetches and what gives each one's slot back: (instance, steps later).
    holds: dict[str, list[tuple[int, list[tuple[int, int]]]]] = field(default_factory=dict)
    held_at: dict[str, tuple[str, Amount, int]] = field(default_factory=dict)
    moves: dict[str, Transfer] = field(default_factory=dict)  # of earlier blocks
    shared: dict[str, Copy] = field(default_factory=dict)  # copies of shared tensors that earlier blocks brought
    routes: dict[tuple, Route] = field(default_factory=dict)
    given: dict[str, Resource] = field(default_factory=dict)  # a processor's time that tasks state themselves

    def compile(self) -> Step:
        repeats: dict[str, int] = {}
        for block in self.plan.blocks:
            tasks = in_order(block.tasks, set(self.placed))
            copies = {task.name: copies_read(task, tasks, self.moves, self.shared) for task in tasks}
            own = {task.name for task in tasks}
            at_home = {name for task in tasks for name in _tensors_of(task)
                       if name not in copies[task.name] or copies[task.name][name].move in own}
            for name in at_home:  # a copy that an earlier block brought is no further repetition
                repeats[name] = repeats.get(name, 0) + block.repeat
            chains = {task.name: self._chains_of(task, copies[task.name]) for task in tasks}
            for repetition in range(block.repeat):
                before = dict(self.placed)
                here: dict[str, _Placed] = {}
                for task in tasks:
                    if task.once and repetition:
                        continue
                    self._place(task, chains[task.name], copies[task.name], here, before, tasks)
            self._remember(tasks, copies)
        self._wrap_computes()
        used = {use.resource for row in self.rows for use in row.uses}
        resources = {name: resource for name, resource in self.topology.resources.items() if name in used} | self.given
        slots = self._slots()
        return Step(
            title=self.plan.title,
            topology=self.topology,
            plan=self.plan,
            resources=resources,
            rows=tuple(self.rows),
            instances=tuple(self.instances),
            waits=tuple(tuple(waits) for waits in self.waits),
            slots=slots,
            wraps=tuple(self.wraps),
            first_compute=self.first_compute if self.plan.data_cycle else None,
            last_compute=self.last_compute if self.plan.data_cycle else None,
            occupied=self._occupied(repeats, slots),
            assumptions=tuple(self.notes),
        )

    def _remember(self, tasks: tuple[Task, ...], copies: Mapping[str, Mapping[str, Copy]]) -> None:
        """What later blocks may read: copies by moves that they name, and of shared tensors that computes waited for."""
        for task in tasks:
            if isinstance(task, Transfer):
                self.moves[task.name] = task
            else:
                self.shared |= {
                    tensor: copy for tensor, copy in copies[task.name].items() if self.plan.tensors[tensor].shared
                }

    # Rows: what one instance of a task loads.

    def _chains_of(self, task: Task, copies: Mapping[str, Copy]) -> list[list[int]]:
        try:
            return self._rows_of(task, copies)
        except RouteError as error:
            raise RouteError(f'task "{task.name}": {error}') from None

    def _rows_of(self, task: Task, copies: Mapping[str, Copy]) -> list[list[int]]:
        """The rows of a task: chains of stages that run side by side (one chain, of one row, for a compute)."""
        if isinstance(task, Compute):
            return [[self._add_row(self._compute_row(task, copies))]]
        tensor = self.plan.tensors[task.tensor]
        self._check_node(task.to, self.topology.memories, f'task "{task.name}", to')
        homes = ((copies[tensor.name].memory, 1.0),) if tensor.name in copies else tensor.home
        sources = [(memory, share) for memory, share in homes if memory != task.to]
        if not sources:
            raise PlanError(f'task "{task.name}" moves "{tensor.name}" to {task.to}, where it already lives: drop it.')
        chains = []
        for memory, share in sources:
            route = self._route(memory, task.to, task.via)
            name = task.name if len(sources) == 1 else f"{task.name} from {memory}"
            amount = tensor.bytes if share == 1 else tensor.bytes * share
            chains.append([
                self._add_row(self._transfer_row(task, tensor, stage, amount, name, index, len(route.stages)))
                for index, stage in enumerate(route.stages)
            ])
        return chains

    def _transfer_row(
        self, task: Transfer, tensor: Tensor, stage: Stage, amount: Amount, name: str, index: int, of: int
    ) -> Row:
        staged = f"{name} to {stage.destination}" if index < of - 1 else name
        uses = self._uses(stage, amount, task.access, tensor.transient)
        moved = Movement(tensor.what or tensor.name, amount, stage.source, stage.destination, None)
        return Row(staged, staged, True, _merged(uses), stage.latency, task.every, tensor.transient, (moved,))

    def _compute_row(self, task: Compute, copies: Mapping[str, Copy]) -> Row:
        self._check_node(task.processor, self.topology.processors, f'task "{task.name}", compute')
        uses: list[Use] = []
        moved: list[Movement] = []
        latency = [0.0, 0.0]
        format_ = self._format(task)
        if format_ is not None:
            uses.append(Use(f"{task.processor}.flops", task.flops, task.flops, format_))
        if task.time is not None:
            uses.append(self._given(task))
        for names, writes in ((task.reads, False), (task.writes, True)):
            for name in names:
                tensor = self.plan.tensors[name]
                homes = ((copies[name].memory, 1.0),) if name in copies and not writes else tensor.home
                for memory, share in homes:
                    amount = tensor.bytes if share == 1 else tensor.bytes * share
                    stage = self._access(memory, task.processor, writes)
                    access = "zero_copy" if stage.links else ("write" if writes else task.access)
                    uses += self._uses(stage, amount, access, tensor.transient)
                    latency = [max(a, b) for a, b in zip(latency, stage.latency, strict=True)]
                    what = tensor.what or tensor.name
                    if writes:
                        moved.append(Movement(f"{what}, written", amount, task.processor, memory, task.processor))
                    else:
                        moved.append(Movement(what, amount, memory, None, task.processor))
                    if stage.links and not tensor.transient:
                        self.notes[f"{task.processor} {'writes' if writes else 'reads'} {what} in {memory} over "
                                   f"{' and '.join(stage.links)} without a copy"] = None
        return Row(task.name, task.processor, False, _merged(uses), tuple(latency), task.every, False, tuple(moved))

    def _given(self, task: Compute) -> Use:
        """A stated time as a load of seconds on the processor's clock, one second of it each second."""
        time = task.time
        name = f"{task.processor}.given"
        old = self.given.get(name)
        known = old.sustained if old else {}
        key = f"{task.name} {len(known)}"  # tasks of one name in two blocks may take different times
        speed = Interval(time.value / time.high, 1.0, time.value / time.low) if time.low > 0 else Interval.exact(1.0)
        peak = 1.0 if time.least > 0 or (old and old.peak) else None
        self.given[name] = Resource(name, "processor", "s", peak, {**known, key: speed}, source=time.source)
        source = f" ({time.source})" if time.source else ""
        self.notes[f'the time of "{task.name}" on {task.processor} is given, not counted{source}'] = None
        return Use(name, time.least, time.value, key)

    def _uses(self, stage: Stage, amount: Amount, access: str, transient: bool) -> list[Use]:
        resources = self.topology.resources
        uses = []
        for name, least, expected in stage.uses:
            kind = resources[name].kind
            # What caches may hold entirely (a hidden row) certifies no load on a memory, only on links.
            certain = 0.0 if transient and kind != "link" else least
            uses.append(Use(name, amount * certain, amount * expected, access if kind in ("link", "limit") else
                            ("read" if access in ("pinned", "pageable", "zero_copy") else access)))
        return uses

    def _format(self, task: Compute) -> str | None:
        """The number format that the processor's arithmetic is counted in; None where it has no FLOP/s."""
        if isinstance(task.flops, (int, float)) and task.flops == 0:
            return None
        engine = self.topology.resources.get(f"{task.processor}.flops")
        offered = set() if engine is None else set(engine.sustained)
        if not offered:
            self.notes[f"{task.processor} has no FLOP/s: its arithmetic is not counted"] = None
            return None
        wanted = task.format
        if wanted is not None and wanted in offered:
            return wanted
        twins = {"bf16": "fp16", "fp16": "bf16"}
        if wanted in twins and twins[wanted] in offered:
            self.notes[f"{task.processor} has no {wanted}: FLOP counted at its {twins[wanted]} rate"] = None
            return twins[wanted]
        if wanted is not None:
            hint = did_you_mean(wanted, offered, f"Formats of {task.processor}")
            raise PlanError(f'task "{task.name}": {task.processor} states no FLOP/s for format "{wanted}". {hint}')
        for name in (*DEFAULT_FORMATS, *sorted(offered)):
            if name in offered:
                self.notes[f"FLOP of {task.processor} counted at its {name} rate"] = None
                return name
        return None

    # Routes, remembered: the layers of a model share them.

    def _route(self, source: str, destination: str, via: tuple[str, ...]) -> Route:
        key = (source, destination, via)
        if key not in self.routes:
            self._check_node(source, self.topology.memories, "home")
            self.routes[key] = self.topology.route(source, destination, via)
        return self.routes[key]

    def _access(self, memory: str, processor: str, writes: bool) -> Stage:
        key = (memory, processor, writes, "access")
        if key not in self.routes:
            self._check_node(memory, self.topology.memories, "home")
            find = self.topology.write_route if writes else self.topology.read_route
            self.routes[key] = find(processor, memory) if writes else find(memory, processor)
        return self.routes[key].stages[0]

    def _check_node(self, name: str, nodes: Mapping[str, object], where: str) -> None:
        if name not in nodes:
            kind = "memory" if nodes is self.topology.memories else "processor"
            hint = did_you_mean(name, nodes, f"{kind.capitalize()}{'s' if kind == 'processor' else ' names'}")
            raise PlanError(f'{where}: no {kind} "{name}" in topology {self.topology.name}. {hint}')

    def _add_row(self, row: Row) -> int:
        if row.lane in self.topology.processors and row.transfer:
            raise PlanError(f'a move may not be named like the processor "{row.lane}": rename it.')
        self.rows.append(row)
        return len(self.rows) - 1

    # Instances: one repetition of a task, and what it waits for.

    def _place(
        self,
        task: Task,
        chains: list[list[int]],
        copies: Mapping[str, Copy],
        here: dict[str, _Placed],
        before: dict[str, _Placed],
        tasks: tuple[Task, ...],
    ) -> None:
        waits = self._waits_of(task, here, before, tasks)
        reads = {task.tensor} if isinstance(task, Transfer) else set(task.reads)
        named = {text.removeprefix("previous.") for text in task.after}
        for tensor, copy in copies.items():
            if tensor in reads and copy.move not in named and copy.move in self.placed:
                for instance in self.placed[copy.move].last:
                    self._release(instance)
        first, last = [], []
        own = before.get(task.name)
        for chain in chains:
            previous: int | None = None
            for stage, row in enumerate(chain):
                instance = len(self.instances)
                self.instances.append(row)
                self.waits.append([*waits] if stage == 0 else [Wait(previous, True)])
                if previous is None:
                    first.append(instance)
                else:
                    before_it = chain[stage - 1]
                    self._hold(f"{self.rows[before_it].name} slot", previous, [(instance, 0)], task, before_it)
                previous = instance
            last.append(previous)
        if own is not None and not isinstance(task, Compute):
            for instance, ancestor in zip(first, own.first, strict=False):
                # Copies queue up in order, but the next may be under way before the last one has ended.
                self.waits[instance].append(Wait(ancestor, True))
        if isinstance(task, Compute):
            if own is not None:
                self.waits[first[0]].append(Wait(own.last[0], False))
            if self.first_compute is None:
                self.first_compute = first[0]
            self.last_compute = last[0]
        here[task.name] = self.placed[task.name] = _Placed(tuple(first), tuple(last))
        self.opening.setdefault(task.name, here[task.name])
        if isinstance(task, Transfer):
            for instance, chain in zip(last, chains, strict=True):
                self._hold(self.rows[chain[-1]].name, instance, [], task, chain[-1])

    def _waits_of(
        self, task: Task, here: dict[str, _Placed], before: dict[str, _Placed], tasks: tuple[Task, ...]
    ) -> list[Wait]:
        waits: dict[int, bool] = {}
        names_compute = False
        for text in task.after:
            previous = text.startswith("previous.")
            name = text.removeprefix("previous.")
            target = before.get(name) if previous else here.get(name, before.get(name))
            compute = self._is_compute(name, tasks)
            names_compute = names_compute or compute
            if target is None:
                continue  # the first repetition has none before it in this step
            # A kernel may start on the first tile of what is moved for it; a true data dependency may not.
            streams = isinstance(task, Compute) and not compute
            for instance in target.last:
                waits[instance] = waits.get(instance, True) and streams
                if not compute:
                    self._release(instance)
        if isinstance(task, Compute) and not names_compute and self.last_compute is not None:
            waits[self.last_compute] = False
        return [Wait(on, streams) for on, streams in waits.items()]

    def _is_compute(self, name: str, tasks: tuple[Task, ...]) -> bool:
        for task in tasks:
            if task.name == name:
                return isinstance(task, Compute)
        placed = self.placed.get(name)
        return placed is not None and not self.rows[self.instances[placed.last[0]]].transfer

    # Buffers: a fetch takes a slot, its consumers give it back.

    def _hold(self, name: str, instance: int, releases: list[tuple[int, int]], task: Transfer, row: int) -> None:
        self.holds.setdefault(name, []).append((instance, releases))
        size = self.rows[row].moved[0].bytes
        known = self.held_at.get(name)
        largest = size if known is None else _larger(known[1], size)
        buffers = self.plan.overlap.buffers if task.buffers is None else task.buffers
        if known is not None and known[2] != buffers:
            raise PlanError(f'moves "{task.name}" of several blocks have {known[2]} and {buffers} buffers; give them '
                            "one number, or other names.")
        self.held_at[name] = (self.rows[row].moved[0].destination, largest, buffers)

    def _release(self, instance: int) -> None:
        """The task about to be placed gives back the slot that `instance` took."""
        for fetch, releases in reversed(self.holds.get(self.rows[self.instances[instance]].name, [])):
            if fetch == instance:
                releases.append((len(self.instances), 0))
                return

    def _slots(self) -> tuple[Slots, ...]:
        slots = []
        for name, holds in self.holds.items():
            memory, size, buffers = self.held_at[name]
            if self.plan.overlap.kind == "none":
                buffers = 1
            urgent = self.rows[self.instances[holds[0][0]]].urgent
            slots.append(Slots(
                name,
                tuple(fetch for fetch, _ in holds),
                tuple(tuple(releases) for _, releases in holds),
                UNLIMITED if urgent else buffers,
                memory,
                size,
            ))
        return tuple(slots)

    def _wrap_computes(self) -> None:
        """`previous.x` of the first repetition is the last one of the step before."""
        for block in self.plan.blocks:
            for task in block.tasks:
                for text in task.after:
                    name = text.removeprefix("previous.")
                    if text.startswith("previous.") and name in self.opening and task.name in self.opening:
                        firsts = self.opening[task.name].first
                        for later in self.placed[name].last:
                            self.wraps += [(later, first) for first in firsts]
                            for fetch, releases in self.holds.get(self.rows[self.instances[later]].name, []):
                                if fetch == later:
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
                self._check_node(memory, self.topology.memories, f'tensor "{tensor.name}", home')
                add(memory, tensor.what or tensor.name, (stored if share == 1 else stored * share) * copies)
        for slot in slots:
            if self.rows[self.instances[slot.fetches[0]]].urgent:
                continue
            count = len(slot.fetches) if slot.buffers == UNLIMITED else min(slot.buffers, len(slot.fetches))
            add(slot.memory, "buffers", slot.size * count)
        for memory, part, amount in self.plan.held:
            self._check_node(memory, self.topology.memories, f"{part}")
            add(memory, part, amount)
        return occupied


def _tensors_of(task: Task) -> tuple[str, ...]:
    return (task.tensor,) if isinstance(task, Transfer) else (*task.reads, *task.writes)


def _merged(uses: list[Use]) -> tuple[Use, ...]:
    merged: dict[tuple[str, str], Use] = {}
    for use in uses:
        key = (use.resource, use.access)
        old = merged.get(key)
        merged[key] = use if old is None else Use(use.resource, old.least + use.least, old.load + use.load, use.access)
    return tuple(merged.values())


def _larger(a: Amount, b: Amount) -> Amount:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    import numpy

    return numpy.maximum(a, b)


def _whole(amount: Amount) -> Amount:
    """Occupied bytes are whole: a number is rounded up, an array is left as it is."""
    return math.ceil(amount) if isinstance(amount, float) else amount
