"""Steps back to back as a list of what is to be done: each instance of each step, what it waits for, its buffer.

What it waits for is what the plan says: tasks, queues, slots and the step before. A task that happens every n steps is
there in each n-th; what waits for it in the others waits for what it would have waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import cast

from offload.plan import UNLIMITED
from offload.replaying.layout import Brought, Home, Layout, Move
from offload.replaying.machine import ReplayError
from offload.step import Slots, Step

MOST = 400_000  # items of a run


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer: which slots it is of (or the instance whose own it is), its number among them, where and how large."""

    of: str
    number: int
    memory: str
    size: int


Held = Home | Buffer


@dataclass(frozen=True, slots=True)
class Item:
    """One instance of one step.

    needs : places of items that end before it starts: tasks and the step before. after : the one before it in its
    queue. frees : those that give back the buffer that it takes. source, into : of a move. reads, writes : of a
    compute, in the order of the layout. brings : the item that put into each read, or into the source, what is there;
    None for a home.
    """

    step: int
    instance: int
    lane: str
    needs: tuple[int, ...]
    after: int | None
    frees: tuple[int, ...]
    source: Held | None
    into: Held | None
    reads: tuple[Held, ...]
    brings: tuple[int | None, ...]

    @property
    def ends(self) -> tuple[Held, Held]:
        """Source and into of a move."""
        return cast("tuple[Held, Held]", (self.source, self.into))


@dataclass(frozen=True, slots=True)
class Program:
    """The items of a run, and its buffers. slots : by name how many buffers there are, where a fetch waits for one."""

    items: tuple[Item, ...]
    buffers: tuple[Buffer, ...]
    slots: dict[str, int]
    steps: int


def round_of(step: Step) -> int:
    """How many steps are a round, in which everything happens that happens every few steps."""
    return lcm(*(row.every for row in step.rows))


def program(step: Step, layout: Layout, steps: int) -> Program:
    """So many steps from empty buffers. Raises ReplayError where they are too many to lay out."""
    program_size(step, steps)
    return _Program(step, layout, steps).made()


def program_size(step: Step, steps: int) -> int:
    """Items of so many steps, at most. Raises ReplayError where they are too many."""
    if steps * len(step.instances) > MOST:
        raise ReplayError(f"{steps} steps of {len(step.instances)} tasks are too many to run; at most {MOST:,} tasks "
                          "are. Take fewer --steps.")  # fmt: skip
    return steps * len(step.instances)


class _Program:
    def __init__(self, step: Step, layout: Layout, steps: int):
        self.step, self.layout, self.steps = step, layout, steps
        self.count = len(step.instances)
        self.items: list[Item] = []
        self.place: dict[tuple[int, int], int] = {}  # (step, instance) -> place among items
        self.serial = step.plan.overlap.kind == "none"
        self.carried: dict[int, list[tuple[int, int]]] = {}
        for later, earlier, tokens in step.wraps:
            self.carried.setdefault(earlier, []).append((later, tokens))
        self.slot: dict[int, tuple[Slots, int]] = {}
        for one in step.slots:
            for number, fetch in enumerate(one.fetches):
                self.slot[fetch] = (one, number)
        self.taken: dict[str, list[tuple[int, int, int]]] = {one.name: [] for one in step.slots}
        self.sizes = {one.name: max(layout.move(fetch).size for fetch in one.fetches) for one in step.slots}
        self.buffers: dict[Buffer, None] = {}
        self.lately: dict[int, tuple[Held, int]] = {}  # instance -> the buffer that it brought to, and by which item
        self.waiting: dict[str, int] = {}

    def made(self) -> Program:
        lanes: dict[str, int] = {}
        for number in range(self.steps):
            for instance, row in enumerate(self.step.instances):
                known = self.step.rows[row]
                if not self._happens(number, instance):
                    continue
                lane = "all" if self.serial else known.lane
                needs = {self.place[one] for one in self._awaited(number, instance, set())}
                operation = self.layout.operations[instance]
                frees: tuple[int, ...] = ()
                source: Held | None = None
                into: Held | None = None
                reads: tuple[Held, ...] = ()
                brings: tuple[int | None, ...] = ()
                place = len(self.items)
                if isinstance(operation, Move):
                    source, by = self._held(operation.source)
                    brings = (by,)
                    into, frees = (operation.into, ()) if operation.into else self._take(number, instance)
                else:
                    found = [self._held(spot) for spot, _ in operation.reads]
                    reads, brings = tuple(one for one, _ in found), tuple(by for _, by in found)
                self.items.append(Item(number, instance, lane, tuple(sorted(needs)), lanes.get(lane), frees, source,
                                       into, reads, brings))  # fmt: skip
                self.place[number, instance] = lanes[lane] = place
                if isinstance(operation, Move) and not operation.into and into is not None:
                    self.lately[instance] = (into, place)
        return Program(tuple(self.items), tuple(self.buffers), self.waiting, self.steps)

    def _happens(self, number: int, instance: int) -> bool:
        return (number + 1) % self.step.rows[self.step.instances[instance]].every == 0

    def _before(self, number: int, instance: int) -> list[tuple[int, int]]:
        found = [(number, wait.on) for wait in self.step.waits[instance]]
        return found + [(number - tokens, later) for later, tokens in self.carried.get(instance, ())]

    def _awaited(self, number: int, instance: int, seen: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """What really happens of what an instance waits for; for what does not, what that would wait for."""
        found: set[tuple[int, int]] = set()
        for one in self._before(number, instance):
            if one[0] >= 0 and one not in seen:
                seen.add(one)
                found |= {one} if self._happens(*one) else self._awaited(*one, seen)
        return found

    def _held(self, spot: Home | Brought) -> tuple[Held, int | None]:
        if isinstance(spot, Home):
            return spot, None
        if spot.instance in self.lately:
            return self.lately[spot.instance]
        return self._buffer(spot.instance, 0), None  # nothing was brought yet: what lies there is read

    def _buffer(self, instance: int, number: int) -> Buffer:
        slots, _ = self.slot[instance]
        buffer = Buffer(slots.name, number, self.layout.move(instance).memory, self.sizes[slots.name])
        self.buffers.setdefault(buffer)
        return buffer

    def _take(self, number: int, instance: int) -> tuple[Buffer, tuple[int, ...]]:
        """The buffer that a move takes, and the items that give it back before."""
        slots, spot = self.slot[instance]
        urgent = self.step.rows[self.step.instances[instance]].urgent
        unlimited = slots.buffers == UNLIMITED or urgent
        count = len(slots.fetches) * round_of(self.step) if unlimited else slots.buffers
        taken = self.taken[slots.name]
        frees: Sequence[int] = ()
        if not unlimited:
            self.waiting[slots.name] = count
        if len(taken) >= count and not urgent:
            earlier, _, before = taken[len(taken) - count]
            given = slots.releases[before]
            frees = self._given(earlier, given)
        taken.append((number, instance, spot))
        return self._buffer(instance, (len(taken) - 1) % count), tuple(frees)

    def _given(self, number: int, given: Sequence[tuple[int, int]]) -> list[int]:
        found: set[int] = set()
        for release, later in given:
            one = (number + later, release)
            if self._happens(*one):
                some = {one}
            else:
                some = self._awaited(*one, set())
            for known in some:
                if known not in self.place:
                    raise ReplayError("a buffer is given back by what waits for it: give the move more buffers, or "
                                      "overlap: full.")  # fmt: skip
                found.add(self.place[known])
        return sorted(found)
