"""What the blocks of a plan bring where later tasks read it: by task of a block the copy of each tensor it reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from offload.copies import Copy, Ordered, copies_read, last_to_wait
from offload.plan import Compute, Plan, Task, Transfer, stands_alone, tensors_of
from offload.topology import Topology


@dataclass(slots=True)
class Brought:
    """The moves of a plan's blocks so far, and the copies of shared tensors that computes waited for."""

    topology: Topology
    plan: Plan
    moves: dict[str, Transfer] = field(default_factory=dict)
    shared: dict[str, Copy] = field(default_factory=dict)

    def copies(self, tasks: tuple[Task, ...]) -> dict[str, dict[str, Copy]]:
        """By task of a block the copy of each tensor that it touches, or, of shared ones, is the last to wait for."""
        among = Ordered(tasks)
        last = last_to_wait(among, (name for name in among.bringing if self.plan.tensors[name].shared))
        return {task.name: self._copies(task, among, last.get(task.name, ())) for task in tasks}

    def _copies(self, task: Task, among: Ordered, also: Collection[str]) -> dict[str, Copy]:
        """The copy of each tensor that a task reads: in its processor's own memory if there is one, else the latest."""
        own = None
        if isinstance(task, Compute) and task.processor in self.topology.processors:
            own = self.topology.processors[task.processor].memory
        found = copies_read(task, among, self.moves, self.shared, also)
        return {
            tensor: next((copy for copy in copies if copy.memory == own), copies[0]) for tensor, copies in found.items()
        }

    def remember(self, tasks: tuple[Task, ...], copies: Mapping[str, Mapping[str, Copy]]) -> None:
        """What later blocks may read: copies by moves they name, and of shared tensors that computes waited for."""
        for task in tasks:
            if isinstance(task, Transfer):
                self.moves[task.name] = task
            elif isinstance(task, Compute):
                self.shared |= {
                    tensor: copy for tensor, copy in copies[task.name].items() if self.plan.tensors[tensor].shared
                }


def passes_of(topology: Topology, plan: Plan) -> dict[str, int]:
    """How often a step touches each tensor where it lives: a copy of it is other bytes, in another place.

    Of one that is not shared, how often a repetition does.
    """
    found: dict[str, int] = {}
    brought = Brought(topology, plan)
    alone: dict[int, dict[str, dict[str, Copy]]] = {}  # by which tasks they are: of blocks that stand alone
    for block in plan.blocks:
        if id(block.tasks) in alone:  # touches the same again, and no tensor that is counted over all blocks
            brought.remember(block.tasks, alone[id(block.tasks)])
            continue
        here: dict[str, int] = {}
        copies = brought.copies(block.tasks)
        for task in block.tasks:
            written = task.writes if isinstance(task, Compute) else ()
            for name in tensors_of(task):
                if name in written or name not in copies[task.name]:
                    here[name] = here.get(name, 0) + 1
            if isinstance(task, Transfer) and task.into:
                here[task.into] = here.get(task.into, 0) + 1
        brought.remember(block.tasks, copies)
        if stands_alone(block.tasks, plan.tensors):
            alone[id(block.tasks)] = copies
        for name, count in here.items():
            if plan.tensors[name].shared:
                found[name] = found.get(name, 0) + count * block.repeat
            else:
                found[name] = max(found.get(name, 0), count)
    return found
