"""Rows: what one instance of each task of a plan puts on the resources of a topology, least and expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offload.amplification import HOST_COPY
from offload.brought import Brought, passes_of
from offload.copies import Copy
from offload.errors import FormulaError, PlanError, RouteError, did_you_mean
from offload.exchanges import exchange_in_groups
from offload.plan import (
    HOST_MEMORY,
    Amount,
    Block,
    Collective,
    Compute,
    GivenTime,
    Plan,
    Task,
    Tensor,
    Transfer,
    in_order,
    lies_uneven,
    stands_alone,
)
from offload.ranges import fold
from offload.row_uses import at_ports, flows_to_ranks, larger, latest, merged, part_of
from offload.step import Movement, Row, Use
from offload.topology import Interval, Resource, Route, Stage, Topology, not_alike
from offload.topology.shares import DRIVES

NO_FLOPS = " has no FLOP/s: its arithmetic is not counted"  # ends the note of such a processor
DEFAULT_FORMATS = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A block's tasks in order, and by task the copies of tensors that it reads and the chains of its rows: stages that
    run side by side (one chain, of one row, for a compute)."""

    tasks: tuple[Task, ...]
    copies: Mapping[str, Mapping[str, Copy]]
    chains: Mapping[str, list[list[int]]]


@dataclass(slots=True)
class RowTable:
    """The rows of a plan on a topology, made block by block. notes : what was assumed on the way.

    Blocks of the same tasks that stand alone have the same rows.
    """

    topology: Topology
    plan: Plan
    rows: list[Row] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    given: dict[str, Resource] = field(default_factory=dict)  # a processor's time that tasks state themselves
    brought: Brought = field(init=False)
    passes: dict[str, int] = field(init=False)  # how often a step goes over the same bytes of a tensor
    routes: dict[object, Route] = field(default_factory=dict)  # remembered: the layers of a model share them
    flows: dict[int, tuple[Transfer, list[tuple[str, str, float]]]] = field(default_factory=dict)  # by first row
    _names: set[str] = field(default_factory=set)  # of tasks of earlier blocks
    _alone: dict[int, BlockRows] = field(default_factory=dict)  # by which tasks they are: of blocks that stand alone

    def __post_init__(self) -> None:
        self.brought, self.passes = Brought(self.topology, self.plan), passes_of(self.topology, self.plan)

    def block(self, block: Block) -> BlockRows:
        """The rows of a plan's next block. Raises PlanError for orders that cannot be, RouteError without a route."""
        known = self._alone.get(id(block.tasks))
        if known is None:
            tasks = in_order(block.tasks, self._names)
            copies = self.brought.copies(tasks)
            known = BlockRows(tasks, copies, {task.name: self._chains(task, copies[task.name]) for task in tasks})
            self._names |= {task.name for task in tasks}
            if stands_alone(tasks, self.plan.tensors):
                self._alone[id(block.tasks)] = known
        self.brought.remember(known.tasks, known.copies)
        return known

    def _chains(self, task: Task, copies: Mapping[str, Copy]) -> list[list[int]]:
        try:
            return self._rows_of(task, copies)
        except RouteError as error:
            raise RouteError(f'task "{task.name}": {error}') from None

    def _rows_of(self, task: Task, copies: Mapping[str, Copy]) -> list[list[int]]:
        """The rows of a task: chains of stages that run side by side (one chain, of one row, for a compute)."""
        if isinstance(task, Compute):
            return [[self._add_row(self._compute_row(task, copies))]]
        if isinstance(task, Collective):
            return [[self._add_row(self._collective_row(task))]]
        tensor = self.plan.tensors[task.tensor]
        ranks = task.ranks or (task.to,)
        for memory in ranks:
            self.check_node(memory, self.topology.memories, f'task "{task.name}", to')
        homes = copies[tensor.name].homes if tensor.name in copies else tensor.home
        sources = [(memory, share) for memory, share in homes if memory not in ranks]
        if not sources:
            where = fold(ranks)
            raise PlanError(f'task "{task.name}" moves "{tensor.name}" to {where}, where it already lives: drop it.')
        if len(ranks) > 1:
            if wrong := lies_uneven(tensor.name, homes, ranks):
                raise PlanError(f'task "{task.name}": {wrong}')
            groups = {task.name: flows_to_ranks(sources, ranks, task.whole, task.team, tensor.alike)}
        else:
            names = [task.name if len(sources) == 1 else f"{task.name} from {memory}" for memory, _ in sources]
            groups = {name: [(memory, task.to, share)] for name, (memory, share) in zip(names, sources, strict=True)}
        chains = []
        for name, flows in groups.items():
            stages = self._stages(task, flows)
            self.flows[len(self.rows)] = (task, flows)
            chains.append([
                self._add_row(self._transfer_row(task, tensor, stage, name, number == len(stages) - 1,
                                                 copy=tensor.name in copies))
                for number, stage in enumerate(stages)
            ])
        return chains

    def _stages(self, task: Transfer, flows: list[tuple[str, str, float]]) -> list[list[tuple[Stage, float]]]:
        """Stage by stage what all flows do together, each with its share of the tensor."""
        routes = [self.route_of(source, destination, task.via) for source, destination, _ in flows]
        if wrong := not_alike(routes):
            raise PlanError(f'task "{task.name}": {wrong}')
        shares = [share for _, _, share in flows]
        return [list(zip(stage, shares, strict=True)) for stage in zip(*(route.stages for route in routes),
                                                                       strict=True)]

    def _transfer_row(
        self, task: Transfer, tensor: Tensor, flows: list[tuple[Stage, float]], name: str, last: bool, *,
        copy: bool,
    ) -> Row:
        ends = fold(list(dict.fromkeys(stage.destination for stage, _ in flows)))
        staged = name if last else f"{name} to {ends}"
        size = tensor.bytes if task.bytes is None else task.bytes
        sure = task.least if task.bytes is not None else tensor.least
        uses: list[Use] = []
        places: dict[str, float] = {}
        first = to_first_team(task, flows)
        takers = Counter(stage.source for stage, _ in flows)
        for number, (stage, share) in enumerate(flows):
            amount = part_of(size, share)
            differ = max(1 / takers[stage.source], 1 / tensor.alike)  # of what several take from there
            again = task.whole and number >= first
            certain = 0.0 if self.may_find(task, again, stage) else sure
            written = amount if certain is None else part_of(certain, share)
            uses += self._uses(stage, amount, task.access, tensor, copy=copy, slot=written, again=again, differ=differ,
                               sure=None if certain is None else part_of(certain, share))
            uses += self._passed_by_host(stage, amount, task.access)
            places[stage.destination] = places.get(stage.destination, 0.0) + share
        whole = sum(places.values())
        starts = fold(list(dict.fromkeys(stage.source for stage, _ in flows)))
        total = part_of(size, whole)
        moved = Movement(tensor.what or tensor.name, total, starts, ends, None)
        queue = task.queue if last or not task.queue else f"from {starts}"  # what a drive reads, for others to join
        queued = name.replace(task.name, queue, 1) if queue else staged
        lane = f"{queued}, urgent" if tensor.transient else queued  # moves of one name may differ between blocks
        low, typical = latest(stage.latency for stage, _ in flows)
        if not (isinstance(task.copies, (int, float)) and task.copies <= 1) and not self._from_drive(flows):
            typical = typical + (task.copies - 1) * (typical if task.per_copy is None else task.per_copy.value)
        return Row(staged, lane, True, merged(uses), (low, typical), task.every,
                   tensor.transient, (moved,), tuple((memory, part / whole) for memory, part in places.items()),
                   None if task.most is None else larger(part_of(task.most, whole), total))

    def may_find(self, task: Transfer, again: bool, stage: Stage) -> bool:
        """Whether a flow may find in the page cache what the flow to the first team read, so that nothing of a stage is
        certain. again : whether it is another than that flow, of the same bytes.
        """
        return again and task.access.startswith("page cache") and self.topology.ways.may_stage(stage.destination)

    def _from_drive(self, flows: list[tuple[Stage, float]]) -> bool:
        """Whether a drive is at an end, which queues many reads or writes at once: none waits for the one before."""
        return any(self.topology.memories[end].kind in DRIVES for stage, _ in flows
                   for end in (stage.source, stage.destination) if end in self.topology.memories)  # fmt: skip

    def _passed_by_host(self, stage: Stage, amount: Amount, access: str) -> list[Use]:
        """What a copy adds that is no DMA from where the bytes are: the CPU copies them to or from pinned memory.

        One read and one write more of host memory (three in all; four from a drive by the page cache). Nothing of it
        is certain: the pinned part may stay in the CPU's cache.
        """
        copy = HOST_COPY[access]
        if not copy.total or not stage.links:
            return []
        uses = []
        for end, other in ((stage.source, stage.destination), (stage.destination, stage.source)):
            device = self.topology.memories[other].kind not in DRIVES and not self.topology.ways.may_stage(other)
            if self.topology.ways.may_stage(end) and device:
                for way, times in (("read", copy.reads), ("write", copy.writes)):
                    uses += [Use(port, 0.0, times * amount, "copy") for port in self.topology.ways.port(end, way)]
                often = {2: "three", 3: "four"}[copy.total]
                self.notes[f"{access} copies pass {end} {often} times: the CPU copies to or from pinned memory at the "
                           "memory's rate (one thread is slower)"] = None
        return uses

    def _collective_row(self, task: Collective) -> Row:
        """Each rank's sends over the routes between them, as the algorithm or every algorithm has it (`exchanges`)."""
        tensor = self.plan.tensors[task.tensor]
        for memory in task.over:
            self.check_node(memory, self.topology.memories, f'task "{task.name}", over')
        try:
            found, apart = exchange_in_groups(self.topology, task.kind, task.over, task.algorithm, task.groups)
        except (FormulaError, PlanError) as error:
            raise PlanError(f'task "{task.name}": {error}') from None
        amount = task.times * (tensor.bytes if task.bytes is None else task.bytes)
        least = tensor.bytes if tensor.least is None else tensor.least
        least = least if task.bytes is None else task.bytes if task.least is None else task.least
        sure = task.times * least
        uses = [Use(name, sure * least, amount * expected,
                    "pinned" if self.topology.resources[name].kind in ("link", "limit") else "read")
                for name, (least, expected) in found.loads.items()]  # fmt: skip
        latency = (task.times * found.latency[0], task.times * found.latency[1])
        where = fold(task.over)
        moved = Movement(tensor.what or tensor.name, amount * found.sent, where, where, None)
        lane = f"{task.name}, urgent" if tensor.transient else task.name
        return Row(task.name, lane, True, tuple(uses), latency, task.every, tensor.transient, (moved,), apart=apart)

    def _compute_row(self, task: Compute, copies: Mapping[str, Copy]) -> Row:
        ranks = task.ranks or (task.processor,)
        for processor in ranks:
            self.check_node(processor, self.topology.processors, f'task "{task.name}", compute')
        own = {self.topology.processors[processor].memory: processor for processor in ranks}
        uses: list[Use] = []
        moved: list[Movement] = []
        latencies = [(0.0, 0.0)]
        for processor in ranks:
            format_ = self._format(task, processor)
            if format_ is not None:
                flops = task.flops if len(ranks) == 1 else task.flops / len(ranks)
                least = flops if task.least is None else task.least / len(ranks)
                uses.append(Use(f"{processor}.flops", least, flops, format_))
        if task.time is not None:
            uses.append(self._given(task, task.time))
        for names, writes in ((task.reads, False), (task.writes, True)):
            for name in names:
                tensor = self.plan.tensors[name]
                copy = name in copies and not writes
                homes = copies[name].homes_near(own) if copy else tensor.home
                near = [(memory, own[memory], share) for memory, share in homes if memory in own]
                far = [(memory, processor, share / len(ranks)) for memory, share in homes if memory not in own
                       for processor in ranks]
                if tensor.interleaved:
                    near = [(memory, processor, share / len(ranks)) for memory, processor, share in near]
                    far += [(memory, one, share) for memory, near_it, share in near for one in ranks if one != near_it]
                    uses += [Use(f"{one}.reads", 0.0, part_of(tensor.bytes, share), task.access)  # no faster than near
                             for _, one, share in far if f"{one}.reads" in self.topology.resources]
                for memory, processor, share in (*near, *far):
                    stage = self._access(memory, processor, writes)
                    access = "zero_copy" if stage.links else ("write" if writes else task.access)
                    sure = tensor.bytes if tensor.least is None else tensor.least
                    again = tensor.same and memory not in own and processor != ranks[0]
                    found = self._uses(stage, part_of(tensor.bytes, share), access, tensor, copy=copy,
                                       sure=part_of(sure, share), again=again)
                    uses += at_ports(found, self.topology) if tensor.interleaved else found
                    latencies.append(stage.latency)
                for parts in (near, far) if not tensor.interleaved else ([*far, *near],):
                    if parts:
                        moved.append(self._touched(tensor, parts, writes))
        return Row(task.name, task.processor, False, merged(uses), latest(latencies), task.every, False,
                   tuple(moved), apart=task.apart)

    def _touched(self, tensor: Tensor, parts: list[tuple[str, str, float]], writes: bool) -> Movement:
        """What processors read or write of a tensor, as one line; a note where it crosses a link without a copy."""
        where = fold(list(dict.fromkeys(memory for memory, _, _ in parts)))
        who = fold(list(dict.fromkeys(processor for _, processor, _ in parts)))
        what = tensor.what or tensor.name
        memory, processor, _ = parts[0]
        links = self._access(memory, processor, writes).links
        amount = part_of(tensor.bytes, sum(share for _, _, share in parts))
        if links and not tensor.transient:
            self.notes[f"{who} {'writes' if writes else 'reads'} {what} in {where} over {' and '.join(links)} without "
                       "a copy"] = None
        if writes:
            return Movement(f"{what}, written", amount, who, where, who)
        return Movement(what, amount, where, None, who)

    def _given(self, task: Compute, time: GivenTime) -> Use:
        """A stated time as a load of seconds on the processor's clock, one second of it each second."""
        name = f"{task.processor}.given"
        old = self.given.get(name)
        known = old.sustained if old else {}
        key = f"{task.name} {len(known)}"  # tasks of one name in two blocks may take different times
        fastest = time.value / time.low if time.low > 0 else float("inf")
        speed = Interval(time.value / time.high, 1.0, fastest) if time.value > 0 else Interval.exact(1.0)
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
        slot: Amount | None = None,
        sure: Amount | None = None,
        again: bool = False,
        differ: float = 1.0,
    ) -> list[Use]:
        """What moving or touching an amount loads, least and expected.

        copy : it reads what a move of this step brought. slot : size of the one that a move writes each time: it may
        use several in turn, and need not. sure : the part of the amount that is not only expected; None is all of it.
        again : another part of the move reads the same bytes, so a cache in front of them may serve this one. differ :
        the part of what this and other parts of the move read that is not the same bytes, which such a cache cannot
        spare [1].
        """
        resources = self.topology.resources
        sure = amount if sure is None else sure
        slots = () if slot is None else self.topology.ways.port(stage.destination, "write")
        uses = []
        for name, least, expected in stage.uses:
            kind = resources[name].kind
            certain = sure * least
            if kind == "memory":
                # A move reads at its one end and writes slots at the other.
                kept = (False, slot) if name in slots else (copy, None)
                certain = least * self._surely(sure, tensor, resources[name].cache, *kept)
                if resources[name].cache and name not in slots:
                    certain = 0.0 if again else part_of(certain, differ)
            elif kind not in ("link", "limit") and tensor.transient:
                certain = 0.0
            at_link = "pinned" if access.startswith("page cache") else access
            at_memory = "read" if access in (*HOST_MEMORY, "zero_copy") else access
            uses.append(Use(name, certain, amount * expected, at_link if kind in ("link", "limit") else at_memory))
        return uses

    def _surely(self, amount: Amount, tensor: Tensor, cache: int, copy: bool, slot: Amount | None) -> Amount:
        """The part of a load that surely reaches a memory behind a cache, however well the cache is used.

        A hidden row may never leave the cache; what a move brought may be read from it tile by tile; a slot that is
        written again and again keeps at most the cache's size back each time; bytes that a step goes over several times
        spare its size on each pass. (What is kept from one step to the next is taken off the total, in floors.)
        """
        if tensor.transient or (copy and cache):
            return 0.0
        if not cache:
            return amount
        if slot is not None:
            kept = cache / larger(slot, float(cache))  # 1 where it fits in the cache
            return amount * (1.0 - kept)
        if self.passes.get(tensor.name, 1) > 1:
            return larger(amount - cache, 0.0)
        return amount

    def _format(self, task: Compute, processor: str) -> str | None:
        """The number format that the processor's arithmetic is counted in; None where it has no FLOP/s."""
        if isinstance(task.flops, (int, float)) and task.flops == 0:
            return None
        engine = self.topology.resources.get(f"{processor}.flops")
        offered = set() if engine is None else set(engine.sustained)
        if not offered:
            self.notes[f"{processor}{NO_FLOPS}"] = None
            return None
        wanted = task.format
        if wanted is not None and wanted in offered:
            return wanted
        twins = {"bf16": "fp16", "fp16": "bf16"}
        if wanted in twins and twins[wanted] in offered:
            self.notes[f"{processor} has no {wanted}: FLOP counted at its {twins[wanted]} rate"] = None
            return twins[wanted]
        if wanted is not None:
            hint = did_you_mean(wanted, offered, f"Formats of {processor}")
            raise PlanError(f'task "{task.name}": {processor} states no FLOP/s for format "{wanted}". {hint}')
        for name in (*DEFAULT_FORMATS, *sorted(offered)):
            if name in offered:
                self.notes[f"FLOP of {processor} counted at its {name} rate"] = None
                return name
        return None

    def route_of(self, source: str, destination: str, via: tuple[str, ...]) -> Route:
        """The way of a move, searched once."""
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


def to_first_team(task: Transfer, flows: Sequence[object]) -> int:
    """How many of a move's flows, the first ones, go to the first team; the others bring it to further ones."""
    return len(flows) * task.team // len(task.ranks or (task.to,))


def row_table(topology: Topology, plan: Plan) -> RowTable:
    """All rows of a plan, as a compiled step has them, with the flows of its moves. Raises as `compile_step` does."""
    table = RowTable(topology, plan)
    for block in plan.blocks:
        table.block(block)
    return table
