"""The ways of a plan by hand: which copies its tasks read, and whether every move and every read has a route.

What a compiled step would refuse is found here first, where the file still has a line for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from offload.copies import Copy, Ordered, copies_read, last_to_wait
from offload.documents.marks import Document, Location
from offload.documents.named import no_stop, plain
from offload.errors import PlanError, TopologyError
from offload.exchanges import exchange
from offload.plan import (
    PREVIOUS,
    Collective,
    Compute,
    Task,
    Tensor,
    Transfer,
    in_order,
    lies_uneven,
)
from offload.topology import Route, Topology, not_alike


@dataclass(slots=True)
class Known:
    """A task with where it stands and what was written, so that a mistake finds its line."""

    task: Task
    place: Location
    given: Mapping[str, Any]

    def at(self, key: str, index: int) -> Location:
        """The place of an entry of a list, or of the text that stands for a list of one."""
        return place_of(self.given, self.place, key, index)


def place_of(given: Mapping[str, Any], place: Location, key: str, index: int) -> Location:
    """The place of an entry of a list, or of the text that stands for a list of one."""
    return (*place, key, index) if isinstance(given.get(key), list) else (*place, key)


class Ways:
    """The routes of one plan, block by block; `tensors` are those without a mistake of their own."""

    def __init__(self, document: Document, topology: Topology, tensors: Mapping[str, Tensor]):
        self.document = document
        self.topology = topology
        self.tensors = tensors
        self.computes = 0  # of the block at hand
        self.copies: dict[str, dict[str, tuple[Copy, ...]]] = {}  # that tasks of the block at hand read
        self.moves: dict[str, Transfer] = {}  # of earlier blocks
        self.shared: dict[str, Copy] = {}  # copies of shared tensors that earlier blocks brought

    def find_copies(self, known: Mapping[str, Known], earlier: Iterable[str], sound: bool) -> None:
        """Which copies the block's tasks read, by the rule of a compiled step; none where something is not sound."""
        self.copies = {}
        if not sound:
            return
        tasks = in_order(tuple(one.task for one in known.values()), set(earlier))
        among = Ordered(tasks)
        shared = [name for name in among.bringing if name in self.tensors and self.tensors[name].shared]
        last = last_to_wait(among, shared)
        self.copies = {task.name: copies_read(task, among, self.moves, self.shared, last.get(task.name, ()))
                       for task in tasks}  # fmt: skip
        for task in tasks:
            if isinstance(task, Transfer):
                self.moves[task.name] = task
            elif isinstance(task, Compute):
                self.shared |= {name: self.nearest(task, found) for name, found in self.copies[task.name].items()
                                if name in self.tensors and self.tensors[name].shared}

    def remember(self, tasks: Iterable[Task]) -> None:
        """Further tasks as the copies of a block that stands alone, and was checked before, have them."""
        self.moves |= {task.name: task for task in tasks if isinstance(task, Transfer)}

    def nearest(self, task: Task, copies: tuple[Copy, ...]) -> Copy:
        """The copy in the processor's own memory if there is one, else the latest."""
        processors = self.topology.processors
        own = processors[task.processor].memory if isinstance(task, Compute) and task.processor in processors else None
        return next((copy for copy in copies if copy.memory == own), copies[0])

    def check_ways(self, known: Mapping[str, Known]) -> None:
        """Every move and every read has a way. Which copy is read is known here where no more than one can be meant."""
        moves: dict[str, list[Transfer]] = {}
        for one in known.values():
            if isinstance(one.task, Transfer):
                moves.setdefault(one.task.tensor, []).append(one.task)
        self.computes = sum(isinstance(one.task, Compute) for one in known.values())
        for one in known.values():
            task = one.task
            if isinstance(task, Transfer):
                self.check_move(one, task, moves)
            elif isinstance(task, Collective):
                self.check_collective(one, task)
            else:
                ranks = [name for name in task.ranks or (task.processor,) if name in self.topology.processors]
                own = {self.topology.memory_of(name): name for name in ranks}
                for index, name in enumerate(task.reads):
                    for memory in self.sources(name, task, moves):
                        ends = [(memory, rank) for rank in ([own[memory]] if memory in own else ranks)]
                        self.check_ways_of(one.at("reads", index), self.topology.read_route, ends)
                for index, name in enumerate(task.writes):
                    for memory in self.homes(name):
                        ends = [(rank, memory) for rank in ([own[memory]] if memory in own else ranks)]
                        self.check_ways_of(one.at("writes", index), self.topology.write_route, ends)

    def check_collective(self, one: Known, task: Collective) -> None:
        ranks = tuple(name for name in task.over if name in self.topology.memories)
        if len(ranks) < 2:
            return
        try:
            exchange(self.topology, task.kind, ranks, task.algorithm)
        except TopologyError as error:
            self.document.mistake((*one.place, "over"), plain(error, self.topology))
        except PlanError as error:
            self.document.mistake((*one.place, "algorithm"), str(error))

    def check_move(self, one: Known, task: Transfer, moves: Mapping[str, list[Transfer]]) -> None:
        ranks = task.ranks or (task.to,)
        if any(name not in self.topology.memories for name in ranks) or any(
                no_stop(self.topology, node) for node in task.via):
            return
        sources = self.sources(task.tensor, task, moves)
        key, homes = "via" if task.via else "to", self.homes_read(task.tensor, task)
        if homes and (wrong := lies_uneven(task.tensor, homes, ranks)):
            self.document.mistake((*one.place, "to"), wrong)
        elif sources and set(sources) <= set(ranks):
            text = f'"{task.tensor}" is in {one.given["to"]} already: drop this move, or move it elsewhere.'
            self.document.mistake((*one.place, "to"), text)
        for memory in sources:
            if memory in task.via:
                text = f"the move starts at {memory}: drop it here."
                self.document.mistake(one.at("via", task.via.index(memory)), text)
            elif memory not in ranks:
                ends = [(memory, rank, task.via) for rank in ranks]
                routes = self.check_ways_of((*one.place, key), self.topology.route, ends)
                if wrong := not_alike(routes):
                    self.document.mistake((*one.place, key), wrong)

    def sources(self, name: str, task: Task, moves: Mapping[str, list[Transfer]]) -> list[str]:
        """The memories that a tensor is taken from; none where it depends on what is not sound."""
        if task.name in self.copies:
            return [memory for memory, _ in self.homes_read(name, task) if memory in self.topology.memories]
        others = [move for move in moves.get(name, ()) if move is not task]
        brought = [move for move in others if move.name in task.after]
        awaited = list(brought[0].ranks or (brought[0].to,)) if len(brought) == 1 else []
        if len(brought) != 1:
            alone = isinstance(task, Transfer) or self.computes == 1  # else it follows the compute before it
            waits = not alone or any(not text.startswith(PREVIOUS) for text in task.after)
            awaited = [] if others and waits else self.homes(name)
        return [memory for memory in awaited if memory in self.topology.memories]

    def homes_read(self, name: str, task: Task) -> tuple[tuple[str, float], ...]:
        """The memories that a tensor is taken from with the share in each; none where that is not sure."""
        if task.name not in self.copies:
            return ()
        copies = self.copies[task.name].get(name)
        if copies is not None:
            return self.nearest(task, copies).homes
        return self.tensors[name].home if name in self.tensors else ()

    def homes(self, name: str) -> list[str]:
        """The memories that hold a tensor; none where it has a mistake of its own."""
        homes = self.tensors[name].home if name in self.tensors else ()
        return [memory for memory, _ in homes if memory in self.topology.memories]

    def check_ways_of(self, place: Location, find: Any, ends: Iterable[tuple[Any, ...]]) -> list[Route]:
        """The routes between some ends; the first that is none is noted, and ends the search."""
        routes = []
        for one in ends:
            try:
                routes.append(find(*one))
            except TopologyError as error:
                self.document.mistake(place, plain(error, self.topology))
                break
        return routes
