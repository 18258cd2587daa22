"""What each layer of a compiled plan puts on the machine by itself, and what it keeps in memories.

A plan whose layers all live and run alike says this of one way of placing a layer; a plan that mixes ways has the sum
of its layers' loads, and besides them hand-overs of the hidden row between processors and buffers. So sums of these are
lower bounds of its loads, of its chain of computes and of what it stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offload.errors import OffloadError
from offload.plan import Block, Collective, Compute, Task, Tensor, Transfer, in_order, tensors_of
from offload.step import Step, seconds_of_rows

GRADES = ("peak", "value")
CHAIN = "chain"  # the resource that stands for computes one after another


@dataclass(frozen=True, slots=True)
class Load:
    """What one layer, or all that is outside of layers, takes.

    seconds : grade ("peak": least loads at peak rates, "value": expected loads at sustained rates) -> resource ->
    seconds of a step that it keeps the resource busy; under `CHAIN` the time of its computes one after another.
    shared : the same at "peak" of exchanges between ranks. stored : memory -> bytes; touched : what of them a step
    surely reads (of experts as few as it may be, which a cache might hold). chain : grade -> resource -> what of the
    chain it is that computes take on it, where it takes them longest. on : the processors that run some of it.
    """

    seconds: Mapping[str, Mapping[str, float]]
    shared: Mapping[str, float]
    stored: Mapping[str, float]
    touched: Mapping[str, float]
    chain: Mapping[str, Mapping[str, float]]
    on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Loads:
    """By layer, and of the rest of a step (head and norm). held : memory -> bytes that never move (the reserve).

    slots : what buffers take, of each kind of fetch.
    """

    layers: tuple[Load, ...]
    rest: Load
    held: Mapping[str, float]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One buffer of a kind of fetch: memory -> bytes that the least layer's takes. without : layers that fetch none."""

    size: Mapping[str, float]
    without: int


def loads_by_layer(step: Step, layers: int) -> Loads:
    """What each of so many layers of a model's plan takes, and the rest of it.

    Left out are the row that opens a layer (it depends on where the one before ran) and what happens once for many.
    """
    plan = step.plan
    times = {grade: seconds_of_rows(step, grade) for grade in GRADES}
    found: list[Load] = []
    rest = _Sum()
    for block, tasks in _with_rows(step):
        opening = _opening([task for task, _ in tasks], plan.tensors)
        total = _Sum()
        for task, rows in tasks:
            if task.name in opening or (task.once and block.repeat > 1):
                continue
            total.add(task, rows, step, times)
        total.keep(plan.tensors[name] for name in {name for task, _ in tasks for name in tensors_of(task)})
        if len(found) < layers:
            found += [total.load()] * block.repeat
        else:
            rest.join(total)
    held: dict[str, float] = {}
    for memory, _, amount in plan.held:
        held[memory] = held.get(memory, 0) + float(amount)
    return Loads(tuple(found[:layers]), rest.load(), held, _slots(step, layers))


def _with_rows(step: Step) -> list[tuple[Block, list[tuple[Task, range]]]]:
    """The blocks of a step's plan, each with its tasks in order and the rows that each task has in the table."""
    found: list[tuple[Block, list[tuple[Task, range]]]] = []
    start = 0
    earlier: set[str] = set()
    for block in step.plan.blocks:
        tasks: list[tuple[Task, range]] = []
        for task in in_order(block.tasks, earlier):
            end = start + 1
            if isinstance(task, Transfer):
                while end < len(step.rows) and _is_of(step.rows[end].name, task):
                    end += 1
            if start >= len(step.rows) or not _is_of(step.rows[start].name, task):
                raise OffloadError(f'the rows of task "{task.name}" are not where its order has them.')
            tasks.append((task, range(start, end)))
            start = end
        earlier |= {task.name for task, _ in tasks}
        found.append((block, tasks))
    return found


def _is_of(name: str, task: Task) -> bool:
    return name == task.name or isinstance(task, Transfer) and name.startswith((f"{task.name} from ",
                                                                               f"{task.name} to "))


def _slots(step: Step, layers: int) -> tuple[Slot, ...]:
    """One buffer of each kind of fetch that layers have once each; buffers of the rest of a step are forgotten."""
    found = []
    for slot in step.slots:
        rows = {step.instances[one] for one in slot.fetches}
        if len(slot.fetches) > layers or any(step.rows[row].urgent for row in rows):
            continue
        least = min(float(step.rows[row].moved[0].bytes) for row in rows)
        found.append(Slot({memory: least * share for memory, share in slot.places}, layers - len(slot.fetches)))
    return tuple(found)


def _opening(tasks: Iterable[Task], tensors: Mapping[str, Tensor]) -> set[str]:
    """The moves of small state with which a block starts: what brings the hidden row from where it was."""
    found = set()
    for task in tasks:
        if not (isinstance(task, Transfer) and tensors[task.tensor].transient
                and tensors[task.tensor].what in ("hidden row", "embedding row")):  # fmt: skip
            break
        found.add(task.name)
    return found


class _Sum:
    """A load in the making."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {grade: {} for grade in GRADES}
        self.shared: dict[str, float] = {}
        self.stored: dict[str, float] = {}
        self.touched: dict[str, float] = {}
        self.chain: dict[str, dict[str, float]] = {grade: {} for grade in GRADES}
        self.on: set[str] = set()

    def add(
        self, task: Task, rows: range, step: Step, times: Mapping[str, Sequence[Mapping[str, float]]]
    ) -> None:  # fmt: skip
        for number in rows:
            row = step.rows[number]
            if isinstance(task, Compute):
                self.on.add(row.lane)
            for grade in GRADES:
                total = self.seconds[grade]
                for name, time in times[grade][number].items():
                    total[name] = total.get(name, 0.0) + time / row.every
                    if grade == "peak" and isinstance(task, Collective):
                        self.shared[name] = self.shared.get(name, 0.0) + time / row.every
                if isinstance(task, Compute) and times[grade][number]:
                    name, longest = max(times[grade][number].items(), key=lambda one: one[1])
                    body, chain = longest / row.apart / row.every, self.chain[grade]
                    total[CHAIN] = total.get(CHAIN, 0.0) + body
                    chain[name] = chain.get(name, 0.0) + body

    def keep(self, tensors: Iterable[Tensor]) -> None:
        for one in tensors:
            if one.transient or one.shared:
                continue
            stored = one.bytes if one.stored is None else one.stored
            surely = one.bytes if one.least is None else one.least
            for memory, share in one.home:
                self.stored[memory] = self.stored.get(memory, 0.0) + float(stored) * share
                self.touched[memory] = self.touched.get(memory, 0.0) + float(min(stored, surely)) * share

    def join(self, other: _Sum) -> None:
        for grade in GRADES:
            for name, time in other.seconds[grade].items():
                self.seconds[grade][name] = self.seconds[grade].get(name, 0.0) + time
            for name, time in other.chain[grade].items():
                self.chain[grade][name] = self.chain[grade].get(name, 0.0) + time
        for mine, others in ((self.shared, other.shared), (self.stored, other.stored), (self.touched, other.touched)):
            for name, amount in others.items():
                mine[name] = mine.get(name, 0.0) + amount

    def load(self) -> Load:
        return Load(self.seconds, self.shared, self.stored, self.touched, self.chain, frozenset(self.on))
