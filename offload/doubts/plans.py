"""Doubts about a plan on its server: bytes moved for nothing, or again, or by host memory, and copies that wait.

A doubt here is proved from the plan: what is said to fit is counted against what the compiled step leaves free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from offload.capacity import missing
from offload.designs.stays import Brought, brought
from offload.doubts.doubt import Doubt
from offload.doubts.kv import doubts_of_kv
from offload.doubts.latency import doubts_of_latency
from offload.errors import RouteError
from offload.plan import Block, Compute, Plan, Task, Tensor, Transfer, most_bytes, tensors_of
from offload.ranges import fold
from offload.step import Step
from offload.topology import Topology, describe_route
from offload.topology.shares import DRIVES
from offload.units import format_bytes

PLACES = {"KV cache": "kv", "new KV": "kv", "cached KV": "cache"}  # keys of a placement, by what is moved


def doubts_of_plan(step: Step) -> list[Doubt]:
    """What in a compiled plan is probably not meant. The place of a task is ("tasks", name), in whichever block."""
    lacking = missing(step)
    found = [
        Doubt(
            "does-not-fit",
            ("memories", name),
            f"{format_bytes(over)} are missing in it: this plan needs more than it holds.",
            "offload step --ignore-capacity computes on.",
        )
        for name, over in lacking.items()
    ]
    if step.plan.training is not None:  # its tasks are the design's own
        return found
    look = _Look(step)
    if not lacking:
        found += look.moved_for_nothing()
        found += look.drives_for_nothing()
    found += look.same_bytes_again()
    found += look.through_host()
    found += look.one_buffer()
    found += doubts_of_kv(step, look.explained)
    found += doubts_of_latency(step)
    return found


class _Look:
    """A plan with what the doubts ask of it."""

    def __init__(self, step: Step):
        self.step = step
        self.plan: Plan = step.plan
        self.topology: Topology = step.topology
        self.tasks: list[tuple[Task, Block]] = [(task, block) for block in self.plan.blocks for task in block.tasks]
        self.moves = [(task, block) for task, block in self.tasks if isinstance(task, Transfer)
                      and not self.plan.tensors[task.tensor].transient]  # fmt: skip
        self.computes = [task for task, _ in self.tasks if isinstance(task, Compute)]
        self.explained: set[str] = set()  # tensors that a doubt told of already
        # What is read into a page cache: how much of the memory that may take, the plan says.
        cache = None if self.plan.origin is None else self.plan.origin[2].page_cache
        self.mapped = {task.tensor for task, _ in self.moves if cache is not None and task.to == cache.memory}
        self.written = {name for task in self.computes for name in task.writes}

    def place(self, task: Task, name: str) -> tuple[str, ...]:
        """Where a file says what makes a tensor come: the task itself, or the portion that a design streams."""
        if self.plan.origin is None:
            return ("tasks", task.name)
        tensor = self.plan.tensors[name]
        if tensor.what in PLACES:
            return ("placement", PLACES[tensor.what])
        return ("placement", "weights", tensor.home[0][0])

    def free(self, memory: str) -> float | None:
        """What a memory has free beside the plan [B]; None where its capacity is not known."""
        node = self.topology.memories[memory]
        if node.capacity is None:
            return None
        return node.capacity * node.count - sum(self.step.occupied.get(memory, {}).values())

    def stored(self, tensor: Tensor, share: float) -> float:
        """Bytes of a share of a tensor over all repetitions: no less than it occupies."""
        size = most_bytes(tensor) if tensor.stored is None else tensor.stored
        blocks = [block for block in self.plan.blocks if any(tensor.name in tensors_of(task) for task in block.tasks)]
        whole: float = size * share * (1 if tensor.shared else sum(block.repeat for block in blocks))
        return whole

    def may_stay(self, task: Task, tensor: str) -> bool:
        """Whether what a task brings each step is only read: it could stay where it is brought to."""
        found = self.plan.tensors[tensor].what == "cached KV"  # other prompts have other prefixes
        return task.every == 1 and not found and tensor not in self.written | self.mapped

    def moved_only_read(self) -> Iterator[Transfer]:
        """Moves to one memory in each step of what nothing writes."""
        return (task for task, _ in self.moves if not task.ranks and self.may_stay(task, task.tensor))

    def moved_for_nothing(self) -> Iterator[Doubt]:
        """What comes to a memory each step for a processor in it, or is read there over a link, and would fit there."""
        groups: dict[str, dict[str, Brought]] = {}
        for one in brought(self.topology, self.plan):
            if self.may_stay(one.task, one.tensor):
                for memory in one.memories:
                    groups.setdefault(memory, {})[one.tensor] = one
        told: dict[tuple[float, tuple[str, ...]], list[str]] = {}  # ranks that work alike are told of once
        for memory, found in groups.items():
            size = sum(self.stored(self.plan.tensors[name], one.each) for name, one in found.items())
            free = self.free(memory)
            if free is not None and 0 < size <= free:
                self.explained |= set(found)
                told.setdefault((size, tuple(found)), []).append(memory)
        for (size, tensors), memories in told.items():
            some = [groups[memories[0]][name] for name in tensors]
            links = dict.fromkeys(link for one in some for link in one.links)
            how = f"read over {fold(links)}" if all(one.links for one in some) else "moved"
            where = fold(memories) if len(memories) == 1 else f"each of {fold(memories)}"
            free = min(cast(float, self.free(memory)) for memory in memories)
            yield Doubt(
                "moved-for-nothing",
                self.place(some[0].task, some[0].tensor),
                f"{format_bytes(size)} ({self.words(tensors)}) are {how} {'for' if links else 'to'} {where} each step, "
                f"and {format_bytes(free)} are free there: all of it could live in {fold(memories)}, and nothing be "
                "moved.",
                "keep it, to see what streaming costs.",
            )

    def drives_for_nothing(self) -> Iterator[Doubt]:
        """What is read from a drive each step, though host memory has room for all of it."""
        groups: dict[str, dict[str, Transfer]] = {}
        for task in self.moved_only_read():
            for home, _ in self.plan.tensors[task.tensor].home:
                if self.topology.memories[home].kind in DRIVES and task.tensor not in self.explained:
                    groups.setdefault(home, {})[task.tensor] = task
        for drive, tasks in groups.items():
            tensors = [self.plan.tensors[name] for name in tasks]
            size = sum(self.stored(tensor, sum(share for home, share in tensor.home if home == drive))
                       for tensor in tensors)  # fmt: skip
            room = [(free, name) for name in self.topology.memories
                    if self.topology.ways.may_stage(name) and (free := self.free(name)) is not None]  # fmt: skip
            free, host = max(room, default=(0.0, ""))
            if 0 < size <= free:
                yield Doubt(
                    "drive-for-nothing",
                    self.place(*next((task, name) for name, task in tasks.items())),
                    f"{format_bytes(size)} ({self.words(tasks)}) are read from {drive} each step, and "
                    f"{format_bytes(free)} are free in {host}: once read they could stay there, as a page cache keeps "
                    "files that fit.",
                    "keep it, where that memory is not to be used.",
                )

    def words(self, names: Iterable[str]) -> str:
        """What tensors are, each word once."""
        tensors = [self.plan.tensors[name] for name in names]
        return ", ".join(dict.fromkeys(tensor.what or tensor.name for tensor in tensors))

    def same_bytes_again(self) -> Iterator[Doubt]:
        """One copy of a tensor that nothing writes, moved in each repetition: the same bytes each time."""
        for task, block in self.moves:
            tensor = self.plan.tensors[task.tensor]
            if tensor.shared and block.repeat > 1 and not task.once and tensor.name not in self.written:
                yield Doubt(
                    "same-bytes-again",
                    self.place(task, tensor.name),
                    f'"{tensor.name}" is one copy for all repetitions (shared: true), and this moves the same '
                    f"{format_bytes(tensor.bytes)} {block.repeat} times. Write every: step, or shared: false where "
                    "each repetition has its own.",
                    "keep it, where its place is needed in between.",
                )

    def through_host(self) -> Iterator[Doubt]:
        """GPU to GPU by host memory, where a way without it joins the two."""
        near = {processor.memory for processor in self.topology.processors.values() if processor.kind == "gpu"}
        for task, _ in self.moves:
            if task.to not in near or task.ranks:
                continue
            homes = {home for home, _ in self.plan.tensors[task.tensor].home} & near - {task.to}
            if not homes:
                continue
            awaited = {text.removeprefix("previous.") for text in task.after}
            by = [node for node in task.via if node in self.topology.memories]
            by += [one.to for one, _ in self.moves
                   if one.name in awaited and one.tensor == task.tensor
                   and self.topology.ways.is_host(one.to)]  # fmt: skip
            for home in sorted(homes) if by else ():
                try:
                    route = self.topology.route(home, task.to)
                except RouteError:
                    continue
                if not route.staged_in:
                    yield Doubt(
                        "through-host",
                        self.place(task, task.tensor),
                        f'"{task.tensor}" goes from {home} to {task.to} by {by[0]}, though a way without it joins '
                        f"them: {describe_route(route)}. Move it there at once, without via.",
                        "keep it, where the software copies through the host.",
                    )
                    break

    def one_buffer(self) -> Iterator[Doubt]:
        """Moves for computes of the same repetition with a single slot: fetch, compute, fetch, compute."""
        if self.plan.overlap.kind == "none":
            return
        told: set[tuple[str, ...]] = set()
        read_after = {  # (block, tensor, move): computes that wait for a move and read what it moved
            (id(block), name, text) for one, block in self.tasks if isinstance(one, Compute)
            for name in one.reads for text in one.after
        }  # fmt: skip
        for task, block in self.moves:
            buffers = self.plan.overlap.buffers if task.buffers is None else task.buffers
            used = (id(block), task.tensor, task.name) in read_after
            place = ("overlap",) if task.buffers is None else ("tasks", task.name)
            if buffers == 1 and used and block.repeat > 1 and place not in told:
                told.add(place)
                size = most_bytes(self.plan.tensors[task.tensor])
                yield Doubt(
                    "one-buffer",
                    place,
                    "1 buffer: a copy waits until the compute that uses the buffer is done, so the two never overlap. "
                    f"With 2 the next copy runs meanwhile, for {format_bytes(size)} more.",
                    "keep it, where memory is short; overlap: none says that nothing overlaps at all.",
                )
