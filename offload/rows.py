"""Rows: what one instance of each task of a plan puts on the resources of a topology, least and expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offload.errors import PlanError, RouteError, did_you_mean
from offload.plan import UNLIMITED, Amount, Compute, Copy, Plan, Task, Tensor, Transfer, copies_read
from offload.step import Movement, Row, Use
from offload.topology import Interval, Resource, Route, Stage, Topology

DEFAULT_FORMATS = ("bf16", "fp16", "fp32")


@dataclass(slots=True)
class RowTable:
    """The rows of a plan on a topology, made block by block. notes : what was assumed on the way."""

    topology: Topology
    plan: Plan
    rows: list[Row] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    given: dict[str, Resource] = field(default_factory=dict)  # a processor's time that tasks state themselves
    moves: dict[str, Transfer] = field(default_factory=dict)  # of earlier blocks
    shared: dict[str, Copy] = field(default_factory=dict)  # copies of shared tensors that earlier blocks brought
    passes: dict[str, int] = field(default_factory=dict)  # how often a step goes over the same bytes of a tensor
    routes: dict[tuple, Route] = field(default_factory=dict)  # remembered: the layers of a model share them

    def __post_init__(self) -> None:
        self._count_passes()

    def chains(self, task: Task, copies: Mapping[str, Copy], repeat: int) -> list[list[int]]:
        """The rows of a task: chains of stages that run side by side (one chain, of one row, for a compute)."""
        try:
            return self._rows_of(task, copies, repeat)
        except RouteError as error:
            raise RouteError(f'task "{task.name}": {error}') from None

    def copies(self, task: Task, tasks: tuple[Task, ...]) -> dict[str, Copy]:
        """The copy of each tensor that a task reads: in its processor's own memory if there is one, else the latest."""
        own = None
        if isinstance(task, Compute) and task.processor in self.topology.processors:
            own = self.topology.processors[task.processor].memory
        found = copies_read(task, tasks, self.moves, self.shared)
        return {
            tensor: next((copy for copy in copies if copy.memory == own), copies[0]) for tensor, copies in found.items()
        }

    def _count_passes(self) -> None:
        for block in self.plan.blocks:
            here: dict[str, int] = {}
            for task in block.tasks:
                for name in tensors_of(task):
                    here[name] = here.get(name, 0) + 1
            for name, count in here.items():
                if self.plan.tensors[name].shared:
                    self.passes[name] = self.passes.get(name, 0) + count * block.repeat
                else:
                    self.passes[name] = max(self.passes.get(name, 0), count)

    def remember(self, tasks: tuple[Task, ...], copies: Mapping[str, Mapping[str, Copy]]) -> None:
        """What later blocks may read: copies by moves they name, and of shared tensors that computes waited for."""
        for task in tasks:
            if isinstance(task, Transfer):
                self.moves[task.name] = task
            else:
                self.shared |= {
                    tensor: copy for tensor, copy in copies[task.name].items() if self.plan.tensors[tensor].shared
                }

    def _rows_of(self, task: Task, copies: Mapping[str, Copy], repeat: int) -> list[list[int]]:
        """The rows of a task: chains of stages that run side by side (one chain, of one row, for a compute)."""
        if isinstance(task, Compute):
            return [[self._add_row(self._compute_row(task, copies))]]
        tensor = self.plan.tensors[task.tensor]
        self.check_node(task.to, self.topology.memories, f'task "{task.name}", to')
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
                self._add_row(self._transfer_row(task, tensor, stage, amount, name, stage is route.stages[-1], repeat))
                for stage in route.stages
            ])
        return chains

    def _transfer_row(
        self, task: Transfer, tensor: Tensor, stage: Stage, amount: Amount, name: str, last: bool, repeat: int
    ) -> Row:
        staged = name if last else f"{name} to {stage.destination}"
        ring = self.buffers(task)
        ring = amount * (repeat if ring == UNLIMITED else min(ring, repeat))
        uses = self._uses(stage, amount, task.access, tensor, ring=ring)
        moved = Movement(tensor.what or tensor.name, amount, stage.source, stage.destination, None)
        lane = f"{staged}, urgent" if tensor.transient else staged  # moves of one name may differ between blocks
        return Row(staged, lane, True, _merged(uses), stage.latency, task.every, tensor.transient, (moved,))

    def _compute_row(self, task: Compute, copies: Mapping[str, Copy]) -> Row:
        self.check_node(task.processor, self.topology.processors, f'task "{task.name}", compute')
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
                    copy = name in copies and not writes
                    uses += self._uses(stage, amount, access, tensor, copy=copy)
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

    def _uses(
        self,
        stage: Stage,
        amount: Amount,
        access: str,
        tensor: Tensor,
        *,
        copy: bool = False,
        ring: Amount | None = None,
    ) -> list[Use]:
        """What moving or touching an amount loads, least and expected.

        copy : it reads what a move of this step brought. ring : size of the slots that a move writes in turn.
        """
        resources = self.topology.resources
        uses = []
        for name, least, expected in stage.uses:
            kind = resources[name].kind
            certain = amount * least
            if kind == "memory":
                certain = least * self._surely(amount, tensor, resources[name].cache, copy, ring)
            elif kind not in ("link", "limit") and tensor.transient:
                certain = 0.0
            at_memory = "read" if access in ("pinned", "pageable", "zero_copy") else access
            uses.append(Use(name, certain, amount * expected, access if kind in ("link", "limit") else at_memory))
        return uses

    def _surely(self, amount: Amount, tensor: Tensor, cache: int, copy: bool, ring: Amount | None) -> Amount:
        """The part of a load that surely reaches a memory behind a cache, however well the cache is used.

        A hidden row may never leave the cache; what a move brought may be read from it tile by tile; slots that are
        written in turn keep at most the cache's size back on each pass; bytes that a step goes over several times
        spare its size on each pass. (What is kept from one step to the next is taken off the total, in floors.)
        """
        if tensor.transient or (copy and cache):
            return 0.0
        if not cache:
            return amount
        if ring is not None:
            kept = cache / larger(ring, float(cache))  # 1 where the slots fit in the cache
            return amount * (1.0 - kept)
        if self.passes.get(tensor.name, 1) > 1:
            return larger(amount - cache, 0.0)
        return amount

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

    def _route(self, source: str, destination: str, via: tuple[str, ...]) -> Route:
        key = (source, destination, via)
        if key not in self.routes:
            self.check_node(source, self.topology.memories, "home")
            self.routes[key] = self.topology.route(source, destination, via)
        return self.routes[key]

    def _access(self, memory: str, processor: str, writes: bool) -> Stage:
        key = (memory, processor, writes, "access")
        if key not in self.routes:
            self.check_node(memory, self.topology.memories, "home")
            find = self.topology.write_route if writes else self.topology.read_route
            self.routes[key] = find(processor, memory) if writes else find(memory, processor)
        return self.routes[key].stages[0]

    def check_node(self, name: str, nodes: Mapping[str, object], where: str) -> None:
        if name not in nodes:
            kind = "memory" if nodes is self.topology.memories else "processor"
            hint = did_you_mean(name, nodes, f"{kind.capitalize()}{'s' if kind == 'processor' else ' names'}")
            raise PlanError(f'{where}: no {kind} "{name}" in topology {self.topology.name}. {hint}')

    def _add_row(self, row: Row) -> int:
        if row.lane in self.topology.processors and row.transfer:
            raise PlanError(f'a move may not be named like the processor "{row.lane}": rename it.')
        self.rows.append(row)
        return len(self.rows) - 1

    def buffers(self, task: Transfer) -> int:
        if self.plan.overlap.kind == "none":
            return 1
        return self.plan.overlap.buffers if task.buffers is None else task.buffers


def tensors_of(task: Task) -> tuple[str, ...]:
    """Names of the tensors that a task touches."""
    return (task.tensor,) if isinstance(task, Transfer) else (*task.reads, *task.writes)


def _merged(uses: list[Use]) -> tuple[Use, ...]:
    merged: dict[tuple[str, str], Use] = {}
    for use in uses:
        key = (use.resource, use.access)
        old = merged.get(key)
        merged[key] = use if old is None else Use(use.resource, old.least + use.least, old.load + use.load, use.access)
    return tuple(merged.values())


def larger(a: Amount, b: Amount) -> Amount:
    """The larger of two amounts; arrays broadcast."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    import numpy

    return numpy.maximum(a, b)
