"""What each instance of a step does to which bytes: what a move takes from where, what a compute reads and writes.

A step's table says how much each task loads; here is where the bytes lie: in a tensor's home, a place of its own for
each repetition, or in the buffer that a move before brought them to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from offload.copies import Copy
from offload.plan import Collective, Compute, Plan, Task, Transfer, tensors_of
from offload.replaying.machine import ReplayError
from offload.rows import RowTable
from offload.step import Step
from offload.topology import Stage, Topology


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tensor, or a part of it, lives. turn : the repetition whose bytes they are; 0 for all of a shared one."""

    tensor: str
    memory: str
    turn: int


@dataclass(frozen=True, slots=True)
class Brought:
    """The buffer that an instance of a move brought something to."""

    instance: int


Spot = Home | Brought


@dataclass(frozen=True, slots=True)
class Move:
    """An instance that takes bytes from one memory to another. into : where they go, None for a buffer of its own.

    stage : what of the route it passes. size : bytes. access : how it passes host memory.
    """

    row: int
    source: Spot
    memory: str
    into: Home | None
    size: int
    stage: Stage
    access: str = "pinned"


@dataclass(frozen=True, slots=True)
class Work:
    """An instance that computes. reads, writes : (spot, bytes). given : seconds that it takes at least."""

    row: int
    processor: str
    reads: tuple[tuple[Spot, int], ...]
    writes: tuple[tuple[Home, int], ...]
    flops: float
    format: str
    given: float


@dataclass(slots=True)
class Layout:
    """What each instance does, and how large each home is [B]."""

    operations: tuple[Move | Work, ...]
    homes: Mapping[Home, int]

    def move(self, instance: int) -> Move:
        """An instance that moves."""
        return cast(Move, self.operations[instance])


def lay_out(topology: Topology, plan: Plan, step: Step) -> Layout:
    """What the instances of a plan's compiled step do. Raises ReplayError for tasks that are not run here."""
    return _Layout(topology, plan, step).lay_out()


@dataclass(slots=True)
class _Layout:
    topology: Topology
    plan: Plan
    step: Step
    operations: list[Move | Work] = field(default_factory=list)
    homes: dict[Home, int] = field(default_factory=dict)
    last: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the latest last stages of each move
    final: dict[str, tuple[int, ...]] = field(default_factory=dict)  # those of the whole step
    seen: dict[str, int] = field(default_factory=dict)  # repetitions of earlier blocks that touch a tensor at home

    def lay_out(self) -> Layout:
        self._walk()  # once to know the last instance of each move, which the first repetition may read
        self.final, self.last, self.seen = dict(self.last), {}, {}
        self.operations.clear()
        self._walk()
        found = tuple(operation.row for operation in self.operations)
        if found != self.step.instances:
            raise ReplayError("the plan's tasks are not laid out as its step has them; please report this plan.")
        return Layout(tuple(self.operations), self.homes)

    def _walk(self) -> None:
        table = RowTable(self.topology, self.plan)
        for block in self.plan.blocks:
            found = table.block(block)
            tasks, copies, rows = found.tasks, found.copies, found.chains
            flows = {first: table.flows[first] for chains in rows.values() for first, *_ in chains
                     if first in table.flows}  # fmt: skip
            stages = {first: self._stages(table, flow) for first, flow in flows.items()}
            for repetition in range(block.repeat):
                for task in tasks:
                    if not (task.once and repetition):
                        self._task(task, rows[task.name], copies[task.name], stages, repetition)
            for name in {name for task in tasks for name in tensors_of(task)}:
                self.seen[name] = self.seen.get(name, 0) + block.repeat

    def _stages(self, table: RowTable, flow: tuple[Transfer, list[tuple[str, str, float]]]) -> tuple[Stage, ...]:
        task, flows = flow
        if len(flows) > 1 or len(task.ranks) > 1:
            raise ReplayError(f'task "{task.name}" moves to several ranks at once, which is not replayed yet: name one '
                              "memory, or a move for each.")  # fmt: skip
        source, destination, _ = flows[0]
        return table.route_of(source, destination, task.via).stages

    def _task(
        self, task: Task, chains: list[list[int]], copies: Mapping[str, Copy],
        stages: Mapping[int, tuple[Stage, ...]], repetition: int,
    ) -> None:  # fmt: skip
        if isinstance(task, Collective):
            raise ReplayError(f'task "{task.name}" is a collective: several ranks are not replayed yet.')
        if isinstance(task, Compute):
            self.operations.append(self._work(task, chains[0][0], copies, repetition))
            return
        ends = []
        for chain in chains:
            ways = stages[chain[0]]
            for number, (row, stage) in enumerate(zip(chain, ways, strict=True)):
                size = self._whole(self.step.rows[row].moved[0].bytes)
                source = self._source(task, stage, copies, repetition, size, number)
                last = number == len(chain) - 1
                into = self._home(task.into, stage.destination, repetition, size) if task.into and last else None
                self.operations.append(Move(row, source, stage.destination, into, size, stage, task.access))
            ends.append(len(self.operations) - 1)
        self.last[task.name] = tuple(ends)

    def _source(
        self, task: Transfer, stage: Stage, copies: Mapping[str, Copy], repetition: int, size: int, number: int
    ) -> Spot:
        if number:
            return Brought(len(self.operations) - 1)
        if task.tensor in copies:
            return self._brought(copies[task.tensor])[0]
        return self._home(task.tensor, stage.source, repetition, size)

    def _work(self, task: Compute, row: int, copies: Mapping[str, Copy], repetition: int) -> Work:
        if len(task.ranks) > 1:
            raise ReplayError(f'task "{task.name}" runs on several processors at once, which is not replayed yet: give '
                              "each a task of its own.")  # fmt: skip
        reads: list[tuple[Spot, int]] = []
        written: list[tuple[Home, int]] = []
        for names, writes in ((task.reads, False), (task.writes, True)):
            for name in names:
                tensor = self.plan.tensors[name]
                if name in copies and not writes:
                    reads += self._read_copy(name, copies[name], repetition)
                    continue
                for memory, share in tensor.home:
                    size = self._whole(tensor.bytes * share)
                    home = self._home(name, memory, repetition, size)
                    if writes:
                        written.append((home, size))
                    else:
                        reads.append((home, size))
        known = {use.resource: use for use in self.step.rows[row].uses}
        flops = known.get(f"{task.processor}.flops")
        given = known.get(f"{task.processor}.given")
        return Work(row, task.processor, tuple(reads), tuple(written), flops.load if flops else 0.0,
                    flops.access if flops else "", given.load if given else 0.0)  # fmt: skip

    def _read_copy(self, tensor: str, copy: Copy, repetition: int) -> list[tuple[Spot, int]]:
        """What moves brought of a tensor, and what of it was there before: at home, or in a cache of that memory."""
        left = self._whole(self.plan.tensors[tensor].bytes)
        found: list[tuple[Spot, int]] = []
        for one in self._brought(copy):
            if one.instance < len(self.operations):
                size = cast(Move, self.operations[one.instance]).size
            else:  # of the step before
                size = left
            found.append((one, min(left, size)))
            left -= min(left, size)
        if left:
            found.append((self._home(tensor, copy.memory, repetition, left), left))
        return found

    def _brought(self, copy: Copy) -> list[Brought]:
        if len(copy.ranks) > 1:
            raise ReplayError(f'move "{copy.move}" brings parts to several ranks, which is not replayed yet.')
        return [Brought(one) for one in self.last.get(copy.move, self.final.get(copy.move, (0,)))]

    def _home(self, tensor: str, memory: str, repetition: int, size: int) -> Home:
        known = self.plan.tensors[tensor]
        home = Home(tensor, memory, 0 if known.shared else self.seen.get(tensor, 0) + repetition)
        self.homes[home] = max(self.homes.get(home, 0), size)
        return home

    def _whole(self, amount: float) -> int:
        return max(0, round(float(amount)))
