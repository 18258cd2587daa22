"""Which copies of tensors a task reads: those that moves brought which it waits for, directly or by other tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from offload.plan import PREVIOUS, Collective, Compute, Task, Transfer, tensors_of


@dataclass(frozen=True, slots=True)
class Copy:
    """Where a move brought a tensor; ranks : all memories, where it brought an equal part to several.

    whole : all of it to each `team` of so many in a row, an equal part to each of these.
    """

    memory: str
    move: str
    ranks: tuple[str, ...] = ()
    whole: bool = False
    team: int = 1

    @property
    def homes(self) -> tuple[tuple[str, float], ...]:
        """The memories with the share of the tensor in each; of several teams that have all of it, the first."""
        ranks = self.ranks or (self.memory,)
        ranks = ranks[: self.team] if self.whole else ranks
        return tuple((memory, 1 / len(ranks)) for memory in ranks)

    def homes_near(self, memories: Collection[str]) -> tuple[tuple[str, float], ...]:
        """The same for processors that work in some memories: each reads all of it where its own has all of it."""
        near = tuple((memory, 1 / self.team) for memory in self.ranks if memory in memories) if self.whole else ()
        return near or self.homes


class Ordered:
    """A block's tasks in order, as `in_order` gives them, by name, and the compute before each."""

    def __init__(self, tasks: tuple[Task, ...]):
        self.tasks = tasks
        self.by_name = {task.name: task for task in tasks}
        self.position = {task.name: index for index, task in enumerate(tasks)}
        self._before: list[str | None] = []  # the name of the last compute before each position
        last = None
        for task in tasks:
            self._before.append(last)
            last = task.name if isinstance(task, Compute) else last
        # Sets of positions as whole numbers, a bit each: what each task waits for, directly or by others, where all of
        # it stands before it in this block and this repetition; None for the others.
        self.reach: dict[str, int | None] = {}
        self.bringing: dict[str, int] = {}  # by tensor, those that bring a copy of it
        for index, task in enumerate(tasks):
            if not isinstance(task, Compute) and copy_of(task) is not None:
                self.bringing[task.tensor] = self.bringing.get(task.tensor, 0) | 1 << index
            self.reach[task.name] = self._reach(task, index) if len(self.position) == len(tasks) else None

    def _reach(self, task: Task, index: int) -> int | None:
        found = 0
        for name in self.awaited(task):
            at = self.position.get(name)
            if at is None or at >= index or (before := self.reach[name]) is None:
                return None
            found |= before | 1 << at
        return found

    def awaited(self, task: Task) -> tuple[str, ...]:
        """What a task waits for, as `after` says it; a compute that names no compute follows the one before it."""
        if isinstance(task, Compute) and not any(isinstance(self.by_name.get(name), Compute) for name in task.after):
            before = self._before[self.position[task.name]]
            return task.after if before is None else (*task.after, before)
        return task.after


def copy_of(task: Task) -> Copy | None:
    """The copy that a task brings to where what waits for it reads it; None where it brings none.

    A move brings one unless it replaces another tensor's bytes, and an all-gather all of its tensor to each rank.
    """
    if isinstance(task, Transfer) and not task.into:
        return Copy(task.to, task.name, task.ranks, task.whole, task.team)
    if isinstance(task, Collective) and task.kind == "all_gather":
        size = len(task.over) // task.groups  # one of each group together have all of it
        ranks = tuple(name for place in range(size) for name in task.over[place::size])
        return Copy(task.over[0], task.name, ranks, True, task.groups)
    return None


def last_to_wait(among: Ordered, tensors: Iterable[str]) -> dict[str, list[str]]:
    """By compute the tensors of which it is the block's last to wait for a copy that the block brings.

    Later blocks may read a copy of a shared tensor that any compute waited for: the last one's is theirs.
    """
    left = {tensor: among.bringing[tensor] for tensor in tensors if tensor in among.bringing}
    found: dict[str, list[str]] = {}
    for task in reversed(among.tasks):
        if not left:
            break
        reach = among.reach[task.name]
        if isinstance(task, Compute) and reach:
            found[task.name] = [tensor for tensor, moves in left.items() if moves & reach]
            left = {tensor: moves for tensor, moves in left.items() if not moves & reach}
    return found


def copies_read(
    task: Task,
    among: Ordered,
    moves: Mapping[str, Transfer] = MappingProxyType({}),
    shared: Mapping[str, Copy] = MappingProxyType({}),
    also: Collection[str] = (),
) -> dict[str, tuple[Copy, ...]]:
    """Tensor -> copies, the latest first, that moves brought which the task waits for, directly or by other tasks.

    Of the tensors that the task touches, and of `also`. among : the task's block. moves : those of earlier blocks by
    name. shared : copies of shared tensors that computes of earlier blocks waited for. A move of the repetition before
    (`previous.x`) brings a copy too.
    """
    if not isinstance(task, Compute) and not task.after:
        return {}
    wanted = dict.fromkeys((*tensors_of(task), *also))
    reach = among.reach[task.name]
    found = _by_walk(task, among, moves) if reach is None else _by_reach(among, reach, wanted)
    if isinstance(task, Compute):
        for tensor in wanted:
            if tensor in shared:
                copy = shared[tensor]
                found.setdefault(tensor, {}).setdefault(copy.move, (-2, copy))
    return {
        tensor: tuple(copy for _, copy in sorted(copies.values(), key=lambda one: -one[0]))
        for tensor, copies in found.items()
    }


def _by_reach(among: Ordered, reach: int, wanted: Iterable[str]) -> dict[str, dict[str, tuple[int, Copy]]]:
    """The same by tensor and move, with the place of each, where nothing awaited is of another block or repetition."""
    found: dict[str, dict[str, tuple[int, Copy]]] = {}
    for tensor in wanted:
        left = reach & among.bringing.get(tensor, 0)
        while left:
            index = left.bit_length() - 1
            left ^= 1 << index
            move = among.tasks[index]
            if (copy := copy_of(move)) is not None:  # always: `bringing` has no other
                found.setdefault(tensor, {})[move.name] = (index, copy)
    return found


def _by_walk(
    task: Task, among: Ordered, moves: Mapping[str, Transfer]
) -> dict[str, dict[str, tuple[int, Copy]]]:
    """The same in any case, from task to task."""
    by_name, position = among.by_name, among.position
    seen: set[str] = set()
    found: dict[str, dict[str, tuple[int, Copy]]] = {}
    frontier = [task]
    while frontier:
        for text in among.awaited(frontier.pop()):
            if text in seen:
                continue
            name = text.removeprefix(PREVIOUS)
            other = by_name.get(name, moves.get(name))
            if other is None:
                continue
            seen.add(text)
            here = text == name and name in position
            if not isinstance(other, Compute) and (copy := copy_of(other)) and (here or isinstance(other, Transfer)):
                when = position[name] if here else -1  # earlier than any task here
                found.setdefault(other.tensor, {})[name] = (when, copy)
            if name in by_name and text == name:
                frontier.append(other)
    return found
