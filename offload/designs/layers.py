"""The tasks of layers and head, by where their parts live and run: fetches, hand-overs of the hidden row, computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offload.designs import parallel
from offload.designs.homes import shares_of_home
from offload.designs.kv_tasks import Kept, KvTasks
from offload.designs.outside import Outside, own_memories
from offload.designs.page_cache import Cached
from offload.designs.parts import Part, Piece
from offload.designs.placement import (
    ACTIVATION_BYTES,
    Placement,
    equal_homes,
    memories_of,
    with_some_ranks,
)
from offload.designs.split_tasks import SplitTasks
from offload.designs.teams import Teams, groups_of
from offload.designs.weight_tasks import WeightTasks
from offload.errors import PlanError
from offload.models import Layer, Model, Weights
from offload.plan import Block, Collective, Compute, Task, Tensor, Transfer
from offload.ranges import fold, listed
from offload.topology import Topology


class LayerTasks:
    """The tasks of layers and head, by where they live and run; `tensors` collects what they touch.

    sequences : in a step. keeping : layers that have a KV cache. found_bytes : KV of the prompt that was found,
    as each tier of a cache would hold it [B]. in_flight : steps under way at once. teams :
    which processors work together on a replica.
    """

    sequences: Any = 1
    keeping = 1
    in_flight = 1
    teams = Teams()

    def __init__(self, topology: Topology, placement: Placement, model: Model, row: Any):
        self.topology = topology
        self.placement = placement
        self.found_bytes: dict[str, Any] = {}
        self.model = model
        self.row = row
        self.cache: Cached | None = None  # pages of weights in host memory
        self.at = ""  # where the hidden row is when a layer starts
        self.tensors: dict[str, Tensor] = {}
        self.parallel = False
        self.ranks_by = parallel.parallel_of(placement)
        self.collectives: set[str] = set()
        self.surely: Any = None  # the share of a layer's FLOP that is surely done: of a prompt's last one
        self.idle: list[tuple[str, str, Any]] = []  # (memory, part, bytes) of weights that no step touches
        self.last = "layer"  # the task that ends a layer: what follows waits for it
        self.handed: list[str] = []  # names of this layer's hand-overs: each is a task by itself
        self.numa = False
        self.weights = WeightTasks(self)
        self.kv = KvTasks(self)
        self.split = SplitTasks(self)

    def row_to(
        self, memory: str, at: str, size: Any, opening: bool = False, after: str = "", outputs: bool = False,
        least: Any = None,
    ) -> tuple[Task, ...]:
        """Pass the hidden row on to where it is not yet (all of it to each of a range), once it is made.

        after : the task of this repetition that makes it; else it is the last one of the layer before. outputs : it is
        that of positions with outputs, which may be fewer. least : bytes of it that are surely needed there, of a
        prompt's last layer; None for all [B].
        """
        wanted, lacking = listed(memory), self.lacking(memory, at)
        if not lacking or not _some(size):
            return ()
        # Replicas have the rows of their own sequences, other ranks all.
        sources = listed(at)[:1] if opening else self.teams.firsts(at, self._works_in(at))
        source, memory = fold(sources), fold(lacking)
        what = "embedding row" if opening else "hidden row" if least is None else "last hidden row"
        name = self.once(f"{what} in {source}")
        name = f"{name}, outputs" if outputs and name in self.tensors else name
        if self.ranks_by.replicated:  # to each of a team all rows of its sequences, and none of what is there
            team = self.teams.team(self._works_in(fold(wanted)))
            size = size * team * len(lacking) // len(wanted)
            least = None if least is None else least * team * len(lacking) / len(wanted)
        # Tokens that are alike take the same row of the embedding.
        least = self.model.hidden * ACTIVATION_BYTES if opening else least
        self.tensors[name] = Tensor(name, size, equal_homes(source), shared=True, what=what.removeprefix("last "),
                                    transient=True, least=least)
        waits = () if opening else (after or f"previous.{self.last}",)
        return (self.move(self.once(f"{what} to {memory}"), name, memory, after=waits,
                          whole=not self.ranks_by.replicated),)

    def _works_in(self, memories: str) -> str:
        """The processors of memories: those that replicas have for themselves where there are such."""
        found = []
        for memory in listed(memories):
            here = self.topology.processors_of(memory)
            found.append(next((name for name in here if name in self.teams.own), here[0] if here else memory))
        return fold(found)

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

    def ending(self, parts: Sequence[Part]) -> str:
        """The name of the task that ends such a layer; "" where that depends on where the row came from."""
        costs = [cost.name for cost in self.placement.costs if cost.each == "layer"]
        if not costs and any(cost.each == "hand-over" for cost in self.placement.costs):
            return ""
        return costs[-1] if costs else self.ending_of(parts[-1])

    def ending_of(self, part: Part) -> str:
        """The name of the task that ends a part."""
        if part.exchanged is not None:
            return "all-to-all from experts"
        if self.teams.team(part.home.processor) > 1 and part.sums:
            return "all-reduce" if part.name == "layer" else f"all-reduce of {part.name}"
        return part.name

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
        apart = 1 if self.teams.is_own(processors) or named.get("time") is not None else self.teams.replicas
        named |= {"ranks": ranks if len(ranks) > 1 else (), "apart": apart}
        task = Compute(name, ranks[0], *more, **named)
        return task if self.surely is None or task.time is not None else replace(task, least=task.flops * self.surely)

    def layer(
        self, parts: Sequence[Part], names: str, repeat: int, format_: str, after: tuple[str, ...], came: bool = False
    ) -> tuple[Task, ...]:
        """The tasks of a layer's parts, each after the one before and the hidden row's way to it.

        after : what brought the row to the first part. came : whether that was from another processor.
        """
        tasks: list[Task] = []
        for number, part in enumerate(parts):
            if part.shares:
                tasks += self.split.shared(part, names, repeat, format_, after)
                continue
            if number:
                own = memories_of(self.topology, part.home.processor)
                before = memories_of(self.topology, parts[number - 1].home.processor)
                least = None if self.surely is None else self.row * self.surely
                row = self.row_to(own, before, self.row, after=self.last, least=least)
                after, came = tuple(task.name for task in row) or (self.last,), bool(row)
                tasks += row
            if part.attends and part.keeping.attention:
                there, waits = self.kv.attend(part, names, repeat, format_)
                tasks, after, came = [*tasks, *there], (*after, *waits), True
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
        home, amounts = part.home, part.amounts.times(part.copies)
        own = memories_of(self.topology, home.processor)
        reads, tasks, before = [], [], after
        for piece in part.pieces:
            if piece.access == "on_demand" and not hasattr(piece.touched, "shape") and piece.touched == 0:
                self.idle += [(memory, piece.what, repeat * share * piece.size) for memory, share in
                              shares_of_home(self.topology, piece.memory, listed(home.processor)[0])]  # fmt: skip
                continue  # all of it is found in a cache
            if wrong := with_some_ranks(self.topology, piece.memory, home.processor):
                raise PlanError(f"placement.weights: {wrong}")
            reads.append(f"{piece.name} {names}")
            brought, waits = self.weights.bring(
                piece, reads[-1], home.processor, copies=part.copies,
                after={"on_demand": before, "ahead": (f"previous.{first}",)}.get(piece.access, ()))  # fmt: skip
            tasks += brought
            after = (*after, *waits)
        kept = self.kv.keep(part, amounts, names, repeat, own) if part.attends else Kept()
        tasks += kept.ahead
        after = (*after, *(task.name for task in kept.ahead))
        if opening and self.last in self.collectives:  # the layer before's; a compute is waited for anyway
            after = (*after, f"previous.{self.last}")
        if part.exchanged is not None:
            tasks.append(self.exchange(part, own, "to"))
            after = (*after, tasks[-1].name)
        tasks.append(self.compute(
            part.name, home.processor, amounts.flops, format_, (*reads, *kept.reads), tuple(kept.writes), after))
        self.last = part.name
        if self.teams.team(home.processor) > 1 and part.sums:
            tasks.append(self.all_reduce(home.processor, part))
        elif part.exchanged is not None:
            tasks.append(self.exchange(part, own, "from"))
        if tasks[-1].name != part.name:
            self.last = tasks[-1].name
            self.collectives.add(self.last)
        return (*tasks, *kept.then)

    def exchange(self, part: Part, own: str, way: str) -> Collective:
        """Rows of ranks "to" those that have their experts, or back "from" them."""
        self.parallel = True
        name = f"rows for experts in {own}"
        self.tensors[name] = parallel.exchanged_tensor(part, own)
        return parallel.to_experts(self.placement, f"all-to-all {way} experts", name, own, (self.last,))

    def all_reduce(self, processors: str, part: Part) -> Collective:
        """Sums of the hidden rows over the ranks' memories."""
        self.parallel = True
        memories = tuple(self.topology.memory_of(name) for name in listed(processors))
        if len(set(memories)) < len(memories):
            raise PlanError(f"placement.compute: {processors} share a memory; ranks that work alike each have one.")
        name = f"hidden rows of {memories_of(self.topology, processors)}"
        name, least = (name, None) if self.surely is None else (f"last {name}", self.row * self.surely)
        self.tensors[name] = Tensor(name, self.row, ((memories[0], 1.0),), shared=True, what="all-reduce",
                                    transient=True, least=least)
        over, groups = groups_of(memories, "all_reduce", self.teams, processors)
        return Collective(self.ending_of(part), name, over, after=(part.name,), times=part.sums, groups=groups,
                          algorithm=parallel.algorithm_for(self.placement, "all_reduce"))

    def ranks(self, layer: Layer, processors: str) -> int:
        """How many processors share a layer; raises PlanError where its heads do not split over them."""
        ranks = self.teams.team(processors)
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
        self, outside: Outside, weighed: Weights, flops: float, at: str, row: Any, host: str, tokens: Any
    ) -> Block:
        """Final norm and output head, each where it lives or is brought to; with the head what else runs outside of
        layers. Of tables in host memory each token takes a row.
        """
        processor = outside.head_on
        own, before = own_memories(self.topology, outside)
        if not weighed.head + weighed.norm + weighed.each_step + weighed.rows:  # there is none
            return Block(self.once_a_step(processor, self.last))
        tasks: list[Task] = []
        made = ""  # the task of this block that makes what the head takes
        if outside.norm_apart and weighed.norm:
            tasks += self.norm(outside, weighed.norm, at, before, row)
            at, made = before, self.last
        came = self.row_to(own, at, row, opening=False, after=made, outputs=True)
        tasks += came
        after: tuple[str, ...] = tuple(task.name for task in came)
        if not came and self.last != "layer":
            after = (made or f"previous.{self.last}",)
        reads = []
        together = outside.norm == outside.head and not outside.norm_apart
        with_head = weighed.head + (weighed.norm if together else 0)
        alone = 0 if together or outside.norm_apart else weighed.norm
        for name, size, title, memory in (("head", with_head, "output head", outside.head),
                                          ("norm", alone, "final norm", outside.norm),
                                          ("others", weighed.each_step, "other weights", outside.head)):
            if size:
                reads.append(name)
                piece = Piece(name, memory, self.placement.access, size, size, size, what=title)
                brought, waits = self.weights.bring(piece, name, processor, buffers=1,
                                                    copies=self.teams.replicas)
                tasks += brought
                after = (*after, *waits)
        if weighed.rows:
            reads.append("rows")
            # Tokens that are alike take the same row.
            team = self.teams.team(processor) if self.ranks_by.replicated else 1
            self.tensors["rows"] = Tensor("rows", tokens * weighed.rows * team, ((host, 1.0),), shared=True,
                                          what="rows of other tables", transient=True, least=weighed.rows)
            if host not in listed(own):
                tasks.append(self.move(f"rows to {own}", "rows", own, whole=not self.ranks_by.replicated))
                after = (*after, f"rows to {own}")
        tasks.append(self.compute("head", processor, flops, weighed.compute_format, tuple(reads), (), after))
        self.last = "head"
        tasks += self.hand_over_costs(processor) if came else ()
        return Block((*tasks, *self.once_a_step(processor, self.last)))

    def norm(self, outside: Outside, size: int, at: str, own: str, row: Any) -> list[Task]:
        """The final norm where it runs apart from the head: the row to it, and its weights."""
        came = self.row_to(own, at, row, outputs=True)
        after = tuple(task.name for task in came) or (f"previous.{self.last}",)
        piece = Piece("norm", outside.norm, self.placement.access, size, size, size, what="final norm")
        brought, waits = self.weights.bring(piece, "norm", outside.norm_on, buffers=1)
        tasks = [*came, *brought, self.compute("norm", outside.norm_on, reads=("norm",), after=(*after, *waits))]
        self.last = "norm"
        return [*tasks, *(self.hand_over_costs(outside.norm_on) if came else ())]

    def once_a_step(self, processor: str, last: str) -> tuple[Task, ...]:
        """The named costs of a step, one after another."""
        tasks = []
        for cost in self.placement.costs:
            if cost.each == "step":
                tasks.append(self.compute(cost.name, processor, after=(last,), time=cost.time))
                last = cost.name
        return tuple(tasks)


def _some(amount: Any) -> bool:
    """Whether there is anything; arrays hold something."""
    return hasattr(amount, "shape") or amount > 0
