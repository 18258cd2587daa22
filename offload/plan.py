"""What one step does: which tensors move, how often, where compute runs, and what waits for what.

A plan is a value: it knows names of a topology's nodes but no rate. `step.compile_step` joins the two.
Amounts (bytes, FLOP) may be numbers or NumPy arrays that broadcast; nothing here looks at their shape.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from offload.amplification import HOST_COPY
from offload.errors import PlanError, did_you_mean
from offload.ranges import fold
from offload.topology import Interval

Amount = Any  # int, float or a NumPy array that broadcasts against the other amounts
PREVIOUS = "previous."  # before a name in `after`: the repetition before
UNLIMITED = 0  # buffers without limit (`overlap: full`)
HOST_MEMORY = tuple(HOST_COPY)  # how a move passes host memory


@dataclass(frozen=True, slots=True)
class Tensor:
    """State that lives somewhere. `bytes` is what one repetition touches [B].

    home : ((memory, share), ...) with shares that sum to 1.
    shared : one copy serves every repetition; otherwise each repetition has its own.
    what : the row of the report that it belongs to ("layer weights", "KV cache").
    transient : small state that a processor's caches may hold (a hidden row): it loads links in floors, but no memory.
    stored : bytes that one copy occupies where that differs from what is touched [B]. least : bytes that are surely
    touched where `bytes` are only expected (experts that tokens happen to choose) [B]. same : the processors that share
    a compute read the same bytes of it, `bytes` in all, not a part each. interleaved : each of several processors finds
    an equal part of what it reads in every home, so that some of it is another's. interval : the ends between which
    `bytes` is known [B]; None where it is one figure (`at_loads`). alike : so many of the ranks that share a compute
    read the same bytes (latents, of which each keeps all); `bytes` count each of these copies, and a home that is no
    memory of theirs has them once.
    """

    name: str
    bytes: Amount
    home: tuple[tuple[str, float], ...]
    shared: bool = False
    what: str = ""
    transient: bool = False
    stored: Amount | None = None
    least: Amount | None = None
    interval: Interval | None = None
    same: bool = False
    interleaved: bool = False
    alike: int = 1


@dataclass(frozen=True, slots=True)
class GivenTime:
    """A time that was measured or is assumed instead of counted [s]: (low, value, high), and the least it can be.

    It is an estimate and enters floors only by `least`.
    """

    low: float
    value: float
    high: float
    least: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Move a tensor to a memory. `every` counts steps; `once` is once a step, not once a repetition.

    `access` picks among a link's sustained rates and says how host memory is passed (`HOST_MEMORY`); `buffers`
    overrides the plan's. `after` names tasks of the same repetition, or `previous.NAME`. `ranks` are all memories that
    it goes to where they are several (`to` is the first): an equal part to each, or with `whole` all of it to each, or
    to each `team` of so many in a row in equal parts. bytes : what it moves where that is not what computes touch (all
    experts of a layer) [B]. least : what it surely moves where `bytes` are only expected (experts fetched ahead) or may
    be less (what a page cache keeps) [B]. most : the most that it may bring at once, which its slots hold, where what
    it moves is only expected [B]. copies : how many copies it is made of, one after another, where more than one;
    per_copy : what each but the first takes besides its bytes (None: the latency of its links). An estimate, and 0 in
    floors. into : the tensor whose bytes it replaces in its home; it then takes no slot, and what it brings is stored
    with that tensor. queue : moves of one queue follow each other in the order of the plan (a copy engine's); "" is a
    queue of its own. What such a move reads ahead into host memory is in the queue "from HOME". in_turn : names of
    tasks of earlier blocks; the n-th repetition of this one, over all blocks, waits for the end of the n-th of each.
    """

    name: str
    tensor: str
    to: str
    after: tuple[str, ...] = ()
    every: int = 1
    once: bool = False
    via: tuple[str, ...] = ()
    access: str = "pinned"
    buffers: int | None = None
    ranks: tuple[str, ...] = ()
    whole: bool = False
    bytes: Amount | None = None
    least: Amount | None = None
    most: Amount | None = None
    copies: Amount = 1
    per_copy: GivenTime | None = None
    into: str = ""
    queue: str = ""
    in_turn: tuple[str, ...] = ()
    team: int = 1


@dataclass(frozen=True, slots=True)
class Collective:
    """Ranks exchange a tensor over their memories, `times` in a row: an all-reduce, or another of `collectives`.

    The tensor is the whole buffer: what each rank has in the end, or at first where the end is a part of it. The first
    of `over` is the root of a broadcast or a reduce. Without an `algorithm` expected loads are those of a ring and
    floors count what every algorithm sends; with one, both are its own (`exchanges`). An all-gather brings all of the
    tensor to each rank, where what waits for it reads it. bytes, least : as of `Transfer`. groups : so many equal runs
    of `over` that each exchange an equal part of the tensor by themselves, at the same time; a gathering then brings
    each rank the part of its group.
    """

    name: str
    tensor: str
    over: tuple[str, ...]
    after: tuple[str, ...] = ()
    every: int = 1
    once: bool = False
    times: int = 1
    kind: str = "all_reduce"
    algorithm: str | None = None
    bytes: Amount | None = None
    groups: int = 1
    least: Amount | None = None


@dataclass(frozen=True, slots=True)
class Compute:
    """Run FLOP on a processor over the tensors that it reads and writes.

    A tensor that an awaited move brought is read from where it was brought to, else at its home.
    `access` names the kind of read for a memory's or processor's sustained rate. `time` is given instead of counted:
    the task takes no less. `ranks` are all processors where several work alike (`processor` is the first): each does an
    equal part of the FLOP, on what lies in its own memory and an equal part of what lies elsewhere. interval : the ends
    between which `flops` is known [FLOP]; None where it is one figure (`at_loads`). least : FLOP that are surely done
    where software may leave some out [FLOP]; None where it may not. in_turn : as of `Transfer`. apart : so many
    replicas have an equal part of it each, and none needs to wait for another's.
    """

    name: str
    processor: str
    flops: Amount = 0.0
    format: str | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    every: int = 1
    once: bool = False
    access: str = "read"
    time: GivenTime | None = None
    ranks: tuple[str, ...] = ()
    interval: Interval | None = None
    least: Amount | None = None
    in_turn: tuple[str, ...] = ()
    apart: int = 1


Task = Transfer | Compute | Collective


def tensors_of(task: Task) -> tuple[str, ...]:
    """Names of the tensors that a task touches."""
    return (*task.reads, *task.writes) if isinstance(task, Compute) else (task.tensor,)


def stands_alone(tasks: Collection[Task], tensors: Mapping[str, Tensor]) -> bool:
    """Whether what a block's tasks wait for and read is told by the block alone, whatever other blocks there are."""
    names = {task.name for task in tasks}
    touched = {name for task in tasks for name in tensors_of(task)}
    touched |= {task.into for task in tasks if isinstance(task, Transfer) and task.into}
    return all(text.removeprefix(PREVIOUS) in names for task in tasks for text in task.after) and not any(
        name in tensors and tensors[name].shared for name in touched)


@dataclass(frozen=True, slots=True)
class Block:
    """Tasks that repeat; the repetitions of all blocks follow each other.

    Blocks of the very same tuple of tasks are looked at once, where what they do is told by themselves.
    """

    tasks: tuple[Task, ...]
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much may run beside what: `none` (serial) or `buffers` (layer-sized slots, `UNLIMITED` for all)."""

    kind: str = "buffers"
    buffers: int = 2

    def __str__(self) -> str:
        if self.kind == "none":
            return "none"
        return "full" if self.buffers == UNLIMITED else f"{self.buffers} buffer" + ("" if self.buffers == 1 else "s")


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of speculation that a request's tokens come in.

    most : tokens that a round yields at most; all but one are guesses, each kept with the chance `accept`. count : the
    fewest rounds that yield so many; last : the plan of one more that yields what is left then, None where nothing is.
    drafted : the draft model's own passes over the prompt; None where there is no such model.
    """

    most: int
    accept: float
    count: int
    last: Plan | None
    drafted: Request | None


@dataclass(frozen=True, slots=True)
class Request:
    """What a request does besides its mean decode step: the prefill, and one decode step for each further token.

    first : context of the first of `steps` decode steps; it grows by one with each. at : the plan at a context. least :
    one that never asks for more than they do on the average. chunk : where the prompt comes in `chunks` passes one
    after another, the plan of each, from 0; `prefill` is then one of them. rounds : with speculation, where `steps` are
    tokens that rounds yield; at and least are then of a round (least is None where there is no whole one).
    """

    prefill: Plan
    first: int
    steps: int
    at: Callable[[Any], Plan] | None
    least: Plan | None
    chunks: int = 1
    chunk: Callable[[int], Plan] | None = None
    rounds: Rounds | None = None

    def pass_of(self, number: int) -> Plan:
        """The plan of one pass of the prompt, from 0."""
        return self.prefill if self.chunk is None else self.chunk(number)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step, as tensors and blocks of tasks.

    tokens : what one step yields (all sequences together). most_tokens : the most that it ever yields, where `tokens`
    is a mean (speculation). sequences : how many share it.
    in_flight : steps that may be under way at once; divides the data cycle. data_cycle : whether a step's first
    compute needs the last compute of the step before it.
    held : (memory, part, bytes) that is occupied but never moves (runtime reserve, unread weights).
    carried : (task, later, steps): the first `later` of a step waits for the last `task` of so many steps before.
    training : what a report needs to know of a training step; None for other plans.
    passes : others of the same request that move what this one does not: memory holds the most of their buffers.
    """

    title: str
    tensors: Mapping[str, Tensor]
    blocks: tuple[Block, ...]
    tokens: Amount = 1
    sequences: Amount = 1
    in_flight: int = 1
    data_cycle: bool = True
    overlap: Overlap = field(default_factory=Overlap)
    held: tuple[tuple[str, str, Amount], ...] = ()
    workload: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    request: Request | None = None  # the whole request of which this is one step
    origin: Any = None  # what a design made the plan from, so that it can be varied; None for a plan by hand
    most_tokens: Amount | None = None
    carried: tuple[tuple[str, str, int], ...] = ()
    training: Any = None
    passes: tuple[Plan, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        if not any(block.tasks for block in self.blocks):
            raise PlanError("the plan has no task: give at least one move or compute.")
        for block in self.blocks:
            if block.repeat < 1:
                raise PlanError(f"repeat is {block.repeat}; it counts repetitions and is at least 1.")
            for task in block.tasks:
                for name in tensors_of(task):
                    if name not in self.tensors:
                        hint = did_you_mean(name, self.tensors, "Tensors")
                        raise PlanError(f'task "{task.name}": no tensor "{name}". {hint}')

    @property
    def tokens_at_most(self) -> Amount:
        """The most tokens that one step ever yields: what a floor per token divides by."""
        return self.tokens if self.most_tokens is None else self.most_tokens

    @property
    def repetitions(self) -> int:
        """How many repetitions one step has, over all blocks."""
        return sum(block.repeat for block in self.blocks)


def most_bytes(tensor: Tensor) -> Amount:
    """The most that one repetition may touch of a tensor [B]."""
    return tensor.bytes if tensor.interval is None else tensor.interval.high


def loads_open(plan: Plan) -> dict[tuple[str, Interval], str]:
    """The loads with two ends that a plan's tasks have, each with its unit: (tensor, interval) "B", (task, ..) "FLOP".

    Tasks of one name and one interval are one figure, and so is a tensor wherever it is touched.
    """
    found: dict[tuple[str, Interval], str] = {}
    for block in plan.blocks:
        for task in block.tasks:
            for name in tensors_of(task):
                if (interval := plan.tensors[name].interval) is not None:
                    found[name, interval] = "B"
            if isinstance(task, Compute) and task.interval is not None:
                found[task.name, task.interval] = "FLOP"
    return found


def at_loads(plan: Plan, end: str | Callable[[str, str, Interval], Interval]) -> Plan:
    """The plan with every load that has two ends as one figure: its "low" end, its "value" or its "high" end.

    end : or a function of name, unit and ends to new ends.
    """

    def ends(name: str, unit: str, interval: Interval) -> Interval:
        return Interval.exact(getattr(interval, end)) if isinstance(end, str) else end(name, unit, interval)

    def known(interval: Interval) -> Interval | None:
        return interval if interval.low < interval.high else None

    tensors = dict(plan.tensors)
    for name, tensor in plan.tensors.items():
        if tensor.interval is not None:
            new = ends(name, "B", tensor.interval)
            tensors[name] = replace(tensor, bytes=new.value, interval=known(new))
    blocks = []
    made: dict[int, tuple[Task, ...]] = {}  # by the tasks that they are made of: those of several blocks stay one
    for block in plan.blocks:
        if id(block.tasks) not in made:
            tasks: list[Task] = []
            for task in block.tasks:
                if isinstance(task, Compute) and task.interval is not None:
                    new = ends(task.name, "FLOP", task.interval)
                    task = replace(task, flops=new.value, interval=known(new))
                tasks.append(task)
            made[id(block.tasks)] = tuple(tasks)
        blocks.append(replace(block, tasks=made[id(block.tasks)]))
    return replace(plan, tensors=tensors, blocks=tuple(blocks))


def lies_uneven(tensor: str, homes: Collection[tuple[str, float]], ranks: Collection[str]) -> str:
    """What is wrong with an equal move to ranks of which some hold more than others; "" where none does.

    homes : (memory, share) of the tensor.
    """
    shares = dict(homes)
    held = [shares.get(memory, 0.0) for memory in ranks]
    if max(held) - min(held) <= 1e-9:
        return ""
    return (f'some of {fold(ranks)} hold more of "{tensor}" than others: give each an equal part of it, or move to '
            "each by a task of its own.")


# The order of a block's tasks, and which copies they read; shared by those that check plans and those that compile.


def in_order(tasks: tuple[Task, ...], earlier: Collection[str] = ()) -> tuple[Task, ...]:
    """Tasks sorted so that each follows what it names in `after`, else as given (Kahn's algorithm).

    earlier : names of tasks in earlier blocks. Raises PlanError for unknown or repeated names and for circles.
    """
    place: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if place.setdefault(task.name, index) != index:
            raise PlanError(f'two tasks are named "{task.name}": names are unique in a block.')
    waiting: list[set[str]] = []  # for what of this block each task still waits
    followers: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        waiting.append({text for text in task.after if not text.startswith(PREVIOUS) and text in place})
        for name in waiting[-1]:
            followers.setdefault(name, []).append(index)
    for task in tasks:
        for text in task.after:
            name = text.removeprefix(PREVIOUS)
            if name not in place and name not in earlier:
                raise PlanError(f'task "{task.name}", after: no task "{name}". {did_you_mean(name, place, "Tasks")}')
    ready = [index for index, names in enumerate(waiting) if not names]  # a heap: the first of them comes next
    ordered: list[Task] = []
    while ready:
        first = tasks[heapq.heappop(ready)]
        ordered.append(first)
        for index in followers.get(first.name, ()):
            waiting[index].discard(first.name)
            if not waiting[index]:
                heapq.heappush(ready, index)
    if len(ordered) < len(tasks):
        stuck = ", ".join(f'"{task.name}"' for task, names in zip(tasks, waiting, strict=True) if names)
        raise PlanError(f"tasks wait for each other in a circle: {stuck}. Drop one `after`.")
    return tuple(ordered)
