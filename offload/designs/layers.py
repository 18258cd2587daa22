"""The tasks of layers and head, by where their parts live and run: fetches, hand-overs of the hidden row, computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offload.designs.amounts import Amounts
from offload.designs.parts import Part, Piece
from offload.designs.placement import Placement, equal_homes, memories_of, runs, with_some_ranks
from offload.errors import PlanError
from offload.models import Layer, Model, Weights
from offload.plan import Block, Collective, Compute, Task, Tensor, Transfer
from offload.ranges import fold, listed
from offload.topology import Topology


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a layer keeps. fetched : (tensor, memories) to bring where they are elsewhere. reads, writes : tensors."""

    fetched: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class LayerTasks:
    """The tasks of layers and head, by where they live and run; `tensors` collects what they touch."""

    def __init__(self, topology: Topology, placement: Placement, model: Model, row: Any):
        self.topology = topology
        self.placement = placement
        self.model = model
        self.row = row
        self.tensors: dict[str, Tensor] = {}
        self.parallel = False
        self.last = "layer"  # the task that ends a layer: what follows waits for it
        self.handed: list[str] = []  # names of this layer's hand-overs: each is a task by itself
        self.numa = False

    def row_to(self, memory: str, at: str, size: Any, opening: bool = False, after: str = "") -> tuple[Task, ...]:
        """Pass the hidden row on to where it is not yet (all of it to each of a range), once it is made.

        after : the task of this repetition that makes it; else it is the last one of the layer before.
        """
        lacking = self.lacking(memory, at)
        if not lacking:
            return ()
        source, memory = listed(at)[0], fold(lacking)
        what = "embedding row" if opening else "hidden row"
        name = self.once(f"{what} in {source}")
        self.tensors[name] = Tensor(name, size, ((source, 1.0),), shared=True, what=what, transient=True)
        waits = () if opening else (after or f"previous.{self.last}",)
        return (self.move(self.once(f"{what} to {memory}"), name, memory, after=waits, whole=True),)

    def once(self, name: str) -> str:
        """A name of a task or a row that no other of this layer has."""
        self.handed.append(name)
        count = self.handed.count(name)
        return name if count == 1 else f"{name}, {count}"

    def hand_over_costs(self, processors: str) -> tuple[Task, ...]:
        """Named costs of a hidden row that came to other processors, after what they made of it."""
        tasks: list[Task] = []
        for cost in self.placement.costs:
            if cost.each == "hand-over":
                name = self.once(f"{cost.name}, {processors}")
                tasks.append(self.compute(name, processors, after=(self.last,), time=cost.time))
                self.last = name
        return tuple(tasks)

    @staticmethod
    def lacking(memory: str, at: str) -> list[str]:
        """Those of some memories that have no hidden row where it is in others: each rank has all of it."""
        have = listed(at)
        return [name for name in listed(memory) if name not in have]

    def move(self, name: str, tensor: str, memory: str, **more: Any) -> Transfer:
        """A move to a memory, or to all of a range of them."""
        ranks = tuple(listed(memory))
        whole = more.pop("whole", False) and len(ranks) > 1
        return Transfer(name, tensor, ranks[0], ranks=ranks if len(ranks) > 1 else (), whole=whole, **more)

    def compute(self, name: str, processors: str, *more: Any, **named: Any) -> Compute:
        """A compute on a processor, or on all of a range of them."""
        ranks = tuple(listed(processors))
        return Compute(name, ranks[0], *more, ranks=ranks if len(ranks) > 1 else (), **named)

    def layer(
        self, parts: Sequence[Part], names: str, repeat: int, format_: str, after: tuple[str, ...], came: bool = False
    ) -> tuple[Task, ...]:
        """The tasks of a layer's parts, each after the one before and the hidden row's way to it.

        after : what brought the row to the first part. came : whether that was from another processor.
        """
        tasks: list[Task] = []
        for number, part in enumerate(parts):
            if number:
                own = memories_of(self.topology, part.home.processor)
                before = memories_of(self.topology, parts[number - 1].home.processor)
                row = self.row_to(own, before, self.row, after=self.last)
                after, came = tuple(task.name for task in row) or (self.last,), bool(row)
                tasks += row
            tasks += self.part(part, names, repeat, format_, after, opening=not number, first=parts[0].name)
            tasks += self.hand_over_costs(part.home.processor) if came else ()
        for cost in self.placement.costs:
            if cost.each == "layer":
                tasks.append(self.compute(cost.name, parts[-1].home.processor, after=(self.last,), time=cost.time))
                self.last = cost.name
        self.handed = []
        return tuple(tasks)

    def part(
        self, part: Part, names: str, repeat: int, format_: str, after: tuple[str, ...], opening: bool, first: str
    ) -> tuple[Task, ...]:
        home, amounts = part.home, part.amounts
        own = memories_of(self.topology, home.processor)
        reads, writes, tasks = [], [], []
        before = after
        for piece in part.pieces:
            self.tensors[f"{piece.name} {names}"] = self.tensor(piece, f"{piece.name} {names}", own)
            reads.append(f"{piece.name} {names}")
            if piece.memory == own:
                continue
            if wrong := with_some_ranks(self.topology, piece.memory, home.processor):
                raise PlanError(f"placement.weights: {wrong}")
            if piece.access == "in_place":
                continue
            name = f"fetch {piece.name} to {own}"
            moved = piece.size if piece.access == "copy" and piece.moved is None else piece.moved
            waits = {"on_demand": before, "ahead": (f"previous.{first}",)}.get(piece.access, ())
            tasks.append(self.move(name, f"{piece.name} {names}", own, via=self.placement.via,
                                   access=self.placement.host_memory, after=waits, bytes=moved,
                                   least=piece.surely_moved))
            after = (*after, name)
        if part.attends:
            kept = self.kept(amounts, names, repeat, own)
            reads += kept.reads
            writes += kept.writes
            for tensor, at in kept.fetched:
                if at == own:
                    continue
                if wrong := with_some_ranks(self.topology, at, home.processor):
                    raise PlanError(f"placement.kv: {wrong}")
                tasks.append(self.move(f"fetch KV to {own}", tensor, own, access=self.placement.host_memory))
                after = (*after, tasks[-1].name)
        if opening and self.last.startswith("all-reduce"):  # the layer before's; a compute is waited for anyway
            after = (*after, f"previous.{self.last}")
        tasks.append(self.compute(
            part.name, home.processor, amounts.flops, format_, tuple(reads), tuple(writes), after))
        self.last = part.name
        if len(listed(home.processor)) > 1:
            tasks.append(self.all_reduce(home.processor, part))
            self.last = tasks[-1].name
        return tuple(tasks)

    def tensor(self, piece: Piece, name: str, own: str) -> Tensor:
        """What a part reads from one memory; in those of several sockets as its NUMA policy says."""
        experts = self.placement.experts
        numa = (experts.numa if experts is not None and piece.what != "layer weights" else "") or self.placement.numa
        count = len(listed(piece.memory))
        numa = numa if count > 1 and piece.memory == own else ""
        self.numa = self.numa or bool(numa)
        return Tensor(name, piece.touched, equal_homes(piece.memory), what=piece.what,
                      stored=count * piece.size if numa == "duplicate" else piece.size, least=piece.surely,
                      interleaved=numa == "interleave")  # fmt: skip

    def kept(self, amounts: Amounts, names: str, repeat: int, own: str) -> _Kept:
        """The tensors of what a layer keeps: its KV cache, new rows and recurrent state."""
        kv_home = own if self.placement.kv == "with layer" else self.placement.kv
        kv, new, state = f"KV {names}", f"new KV {names}", f"state {names}"
        keys = equal_homes(kv_home)
        read = _some(amounts.read)
        # What no layer reads (a prompt's first chunk) is one tensor with the room of all of them.
        stored = amounts.stored if read else repeat * amounts.stored
        self.tensors[kv] = Tensor(kv, amounts.read, keys, shared=not read, what="KV cache", stored=stored,
                                  least=amounts.surely_read)
        self.tensors[new] = Tensor(new, amounts.written, keys, what="new KV", stored=0)
        reads, writes = [], []
        if read:
            reads.append(kv)
        if _some(amounts.written):
            writes.append(new)
        if _some(amounts.state):
            self.tensors[state] = Tensor(state, amounts.state, equal_homes(own), what="recurrent state")
            reads.append(state)
            writes.append(state)
        return _Kept(((kv, kv_home),) if read else (), tuple(reads), tuple(writes))

    def all_reduce(self, processors: str, part: Part) -> Collective:
        """Sums of the hidden rows over the ranks' memories."""
        self.parallel = True
        memories = tuple(self.topology.memory_of(name) for name in listed(processors))
        if len(set(memories)) < len(memories):
            raise PlanError(f"placement.compute: {processors} share a memory; ranks that work alike each have one.")
        name = f"hidden rows of {memories_of(self.topology, processors)}"
        self.tensors[name] = Tensor(name, self.row, ((memories[0], 1.0),), shared=True, what="all-reduce",
                                    transient=True)
        title = "all-reduce" if part.name == "layer" else f"all-reduce of {part.name}"
        return Collective(title, name, memories, after=(part.name,), times=part.sums)

    def ranks(self, layer: Layer, processors: str) -> int:
        """How many processors share a layer; raises PlanError where its heads do not split over them."""
        ranks = len(listed(processors))
        heads, shared = layer.heads, layer.cache.heads
        wrong = [f"{heads} attention heads"] if heads % ranks else []
        if shared and max(shared, ranks) % min(shared, ranks):
            wrong.append(f"{shared} KV heads")
        if wrong:
            fits = [str(n) for n in range(1, heads + 1)
                    if heads % n == 0 and (not shared or max(shared, n) % min(shared, n) == 0)]  # fmt: skip
            raise PlanError(f"placement.compute: the {wrong[0]} of {self.model.name} do not split evenly over {ranks} "
                            f"processors. Numbers that do: {', '.join(fits)}.")
        return ranks

    def head(
        self, memory: str, weighed: Weights, flops: float, at: str, row: Any, host: str, tokens: Any
    ) -> Block:
        """The output head lives in the first memory named and runs where a layer of that memory would; with it what
        else runs outside of layers. Of tables in host memory each token takes a row.
        """
        processor = runs(self.topology, self.placement, memory)
        own = memories_of(self.topology, processor)
        self.tensors["head"] = Tensor("head", weighed.head + weighed.norm, equal_homes(memory), what="output head")
        tasks = list(self.row_to(own, at, row, opening=False))
        after: tuple[str, ...] = tuple(task.name for task in tasks)
        came = bool(tasks)
        if not tasks and self.last != "layer":
            after = (f"previous.{self.last}",)
        if memory != own:
            tasks.append(self.move("fetch head", "head", own, buffers=1, via=self.placement.via,
                                   access=self.placement.host_memory))
            after = (*after, "fetch head")
        reads = ["head"]
        if weighed.each_step:
            reads.append("others")
            self.tensors["others"] = Tensor("others", weighed.each_step, equal_homes(memory), what="other weights")
            if memory != own:
                tasks.append(self.move("fetch others", "others", own, buffers=1, via=self.placement.via,
                                       access=self.placement.host_memory))
                after = (*after, "fetch others")
        if weighed.rows:
            reads.append("rows")
            # Tokens that are alike take the same row.
            self.tensors["rows"] = Tensor("rows", tokens * weighed.rows, ((host, 1.0),), shared=True,
                                          what="rows of other tables", transient=True, least=weighed.rows)
            if host not in listed(own):
                tasks.append(self.move(f"rows to {own}", "rows", own, whole=True))
                after = (*after, f"rows to {own}")
        tasks.append(self.compute("head", processor, flops, weighed.compute_format, tuple(reads), (), after))
        self.last = "head"
        tasks += self.hand_over_costs(processor) if came else ()
        last = self.last
        for cost in self.placement.costs:
            if cost.each == "step":
                tasks.append(self.compute(cost.name, processor, after=(last,), time=cost.time))
                last = cost.name
        return Block(tuple(tasks))


def _some(amount: Any) -> bool:
    """Whether there is anything; arrays hold something."""
    return hasattr(amount, "shape") or amount > 0
