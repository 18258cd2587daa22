"""Speculative decoding: a draft model guesses some tokens one after another, and one pass of the model checks them all.

A step is `draft` passes of the draft model, each with its own weights and KV, and one pass of the model over draft + 1
positions of each sequence: weights once, KV once for each sequence, experts that so many tokens touch, FLOP of all. It
yields 1 + a + ... + a^g tokens of each sequence on average, where each guess is kept with chance a, and at most g + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from offload.designs.hints import moved_for_nothing, pinned_twice
from offload.designs.placement import Placement, Portion, Workload, memories_of, runs
from offload.designs.ranks import Parallel
from offload.errors import PlanError
from offload.models import Model
from offload.models.experts import tokens_per_step
from offload.plan import Block, Compute, Plan, Task, Tensor
from offload.ranges import listed
from offload.topology import Topology
from offload.units import format_share

HINTS = ("everything fits: ", "pinned: ")  # notes of one pass that are drawn again from all of the step
KEY = "speculation"


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are guessed.

    draft : tokens that are guessed in a step. accept : chance that one is kept, each independent of the others [1].
    model : what guesses, with its formats; None where guessing costs nothing (n-grams, or heads of the model itself).
    home : the memory, or range of memories, in which it lives. compute : "local", or the processor there that runs it.
    """

    draft: int
    accept: float
    model: Model | None = None
    weights: str = ""
    kv: str = "f16"
    home: str = ""
    compute: str = "local"


def draft_placement(topology: Topology, asked: Speculation, reserve: int | None) -> Placement:
    """Where the draft model lives and runs. Raises PlanError where its memory is not that of who runs it."""
    placed = Placement(((asked.home, Portion("rest")),), asked.compute, reserve=reserve)
    processors = runs(topology, placed, asked.home, f"{KEY}.home")
    own = memories_of(topology, processors)
    if sorted(listed(own)) != sorted(listed(asked.home)):
        raise PlanError(f"{KEY}.home: a draft model lives where it runs, and {processors} works in {own}. Write "
                        f"`home: {own}`.")
    return placed


def speculated(
    topology: Topology, workload: Workload, placement: Placement, of: Callable[[Workload], Plan],
    of_draft: Callable[[Speculation, Workload, Placement], Plan],
) -> Plan:
    """The plan of one step with speculation.

    workload : a decode step with `speculation`; its context is that of the first guess. of : from the workload of a
    pass to the model's plan; of_draft : to the draft model's. The first pass of the draft model is the one over the
    newest token; that it also takes in what the step before kept is not counted. Source: Leviathan et al. 2023.
    """
    asked = cast(Speculation, workload.speculation)
    batch, context, count = workload.batch, workload.context, asked.draft
    room = context + count if workload.room is None else max(workload.room, context + count)
    verify = of(replace(workload, phase="prefill", context=context - 1, prompt=count + 1, outputs=count + 1,
                        room=room, speculation=None))
    drafts: list[Plan] = []
    if asked.model is not None:
        placed = draft_placement(topology, asked, placement.reserve)
        shares = placement.parallel
        if shares is not None and shares.replicated and len(listed(asked.home)) > 1:  # each replica drafts for itself
            placed = replace(placed, parallel=Parallel("data", tensor=shares.tensor))
        cache = placement.page_cache
        if cache is not None and cache.free is None and cache.memory in listed(asked.home):
            raise PlanError(f"placement.page_cache: say how much of {cache.memory} it has, as {{memory: "
                            f"{cache.memory}, free: 14 GB}}: the draft model lives there too.")
        drafts = [of_draft(asked, Workload("decode", batch, context + number, workload.in_flight, room=room,
                                           shortest=workload.shortest), placed) for number in range(count)]  # fmt: skip
    tensors: dict[str, Tensor] = {}
    blocks: list[Block] = []
    last = ""
    for number, plan in enumerate(drafts, start=1):
        named = _Named(f"draft {number}: ")
        spared = _spared(topology, plan) if number > 1 else 0.0
        tensors |= {named.tensor(name): named.renamed(tensor, number, spared) for name, tensor in plan.tensors.items()}
        made = [Block(tuple(named.task(task) for task in block.tasks), block.repeat) for block in plan.blocks]
        blocks += _after(made, last)
        last = _last(made)
    tensors |= verify.tensors
    blocks += _after(verify.blocks, last)
    yielded = float(tokens_per_step(asked.accept, count))
    names = {"draft": count, "accept": format_share(asked.accept)}
    names |= {} if asked.model is None else {"draft model": asked.model.name, "draft weights": asked.weights}
    shown = {key: value for key, value in verify.workload.items() if key != "prompt"}
    shown |= {"phase": "decode", "batch": batch} | ({"context": context} if "kv" in shown else {}) | names
    cache = placement.page_cache
    model, _, *rest = verify.origin
    plan = replace(
        verify,
        title=f"{verify.title.partition(', prefill')[0]}, decode with {count} drafted, batch {batch}"
        + (f", context {context}" if "kv" in shown else ""),
        tensors=tensors, blocks=tuple(blocks), tokens=batch * yielded, most_tokens=batch * (count + 1), data_cycle=True,
        held=_held(verify, drafts), workload=shown,
        assumptions=(*_notes(asked, yielded, model),
                     *(note for note in verify.assumptions if not note.startswith(HINTS)),
                     *(f"draft model: {note}" for note in (drafts[0].assumptions if drafts else ())
                       if not note.startswith((*HINTS, "realised placement")))),
        origin=(model, workload, *rest),
    )  # fmt: skip
    hints = (*moved_for_nothing(topology, plan, "" if cache is None else cache.memory), *pinned_twice(topology, plan))
    return replace(plan, assumptions=(*plan.assumptions, *hints))


def _notes(asked: Speculation, yielded: float, model: Model) -> list[str]:
    one = asked.draft + 1
    notes = [f"speculation: a step yields {yielded:.5g} tokens of each sequence on average (each guess is kept with a "
             f"chance of {format_share(asked.accept)}, by itself), at most {one}: floors per token divide by {one}, "
             f"expected times by {yielded:.5g}"]
    if asked.model is None:
        notes.append("speculation: no draft model is named, so guessing costs nothing (n-grams; heads of the model "
                     "itself cost their weights, which are not counted)")
    elif asked.model.vocab and model.vocab and asked.model.vocab != model.vocab:
        notes.append(f"speculation: {asked.model.name} has a vocabulary of {asked.model.vocab:,} tokens and "
                     f"{model.name} one of {model.vocab:,}: guesses are checked token by token only where both number "
                     "the same tokens alike (the longer table may be padded)")
    return notes


class _Named:
    """Names of a draft's pass: tensors are a pass's own, tasks are called alike in each."""

    def __init__(self, prefix: str):
        self.prefix = prefix

    def tensor(self, name: str) -> str:
        return self.prefix + name

    def renamed(self, tensor: Tensor, number: int, spared: float) -> Tensor:
        """A tensor of pass `number`. After the first it occupies nothing more, and caches may have some of it."""
        least = tensor.bytes if tensor.least is None else tensor.least
        again = {} if number == 1 else {"stored": 0, "least": least * (1 - spared)}
        return replace(tensor, name=self.tensor(tensor.name), what=f"draft's {tensor.what or tensor.name}", **again)

    def task(self, task: Task) -> Task:
        after = tuple(f"previous.draft {text.removeprefix('previous.')}" if text.startswith("previous.")
                      else f"draft {text}" for text in task.after)
        more: dict[str, Any] = {"name": f"draft {task.name}", "after": after}
        if isinstance(task, Compute):
            more |= {"reads": tuple(map(self.tensor, task.reads)), "writes": tuple(map(self.tensor, task.writes))}
        else:
            more["tensor"] = self.tensor(task.tensor)
        return replace(task, **more)


def _spared(topology: Topology, plan: Plan) -> float:
    """The share of a pass that caches in front of the memories may have of the pass before it."""
    total: dict[str, float] = {}
    for block in plan.blocks:
        for task in block.tasks:
            for name in task.reads if isinstance(task, Compute) else ():
                tensor = plan.tensors[name]
                for memory, share in tensor.home:
                    total[memory] = total.get(memory, 0.0) + block.repeat * share * tensor.bytes
    return max((min(1.0, topology.resources[memory].cache / size) for memory, size in total.items()
                if size > 0 and memory in topology.resources), default=0.0)


def _last(blocks: Sequence[Block]) -> str:
    """The compute that ends a pass."""
    return next((task.name for block in reversed(blocks) for task in reversed(block.tasks)
                 if isinstance(task, Compute)), "")


def _after(blocks: Sequence[Block], last: str) -> list[Block]:
    """The blocks of a pass whose rows of embeddings wait for the pass before, which says which."""
    if not last or not blocks:
        return list(blocks)
    first = tuple(replace(task, after=(*task.after, f"previous.{last}"))
                  if task.name.removeprefix("draft ").startswith("embedding row") else task for task in blocks[0].tasks)
    return [Block(first, blocks[0].repeat), *blocks[1:]]


def _held(verify: Plan, drafts: Sequence[Plan]) -> tuple[tuple[str, str, Any], ...]:
    """What both hold; a runtime's reserve is held once in each memory."""
    known = {(memory, part) for memory, part, _ in verify.held}
    more = []
    for memory, part, size in drafts[0].held if drafts else ():
        if part != "runtime reserve":
            more.append((memory, f"draft's {part}", size))
        elif (memory, part) not in known:
            more.append((memory, part, size))
    return (*verify.held, *more)
