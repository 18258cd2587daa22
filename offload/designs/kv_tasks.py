"""The tasks of what a layer keeps: fetches and loads of KV, attention where it is, what is written or sent on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from offload.designs.amounts import Amounts
from offload.designs.kv import CACHE, KEY, Counts, Keeping, on_drive, once_of, projected, served_by, stop_on_the_way
from offload.designs.parts import Part
from offload.designs.placement import Placement, equal_homes, memories_of, with_some_ranks
from offload.errors import PlanError
from offload.models import Matrix, Model
from offload.models.weights import layer_tensors
from offload.plan import Task, Tensor

if TYPE_CHECKING:
    from offload.designs.layers import LayerTasks

PROJECTIONS = "projections"


@dataclass(slots=True)
class Kept:
    """What a layer's compute does with what it keeps. ahead : tasks that it waits for. then : tasks that follow it."""

    ahead: list[Task] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    then: list[Task] = field(default_factory=list)


def apart(part: Part, tensors: Sequence[tuple[Matrix, int]], tokens: Any) -> tuple[Part, Part]:
    """A part whose attention runs elsewhere, as what makes queries, keys and values, and what follows attention."""
    size, flops = projected(tensors)
    whole, (first, *others) = part.amounts, part.pieces
    made, left = (replace(first, name=name, size=some, touched=more, surely=least) for name, some, more, least in (
        (PROJECTIONS, size, size, size),
        (first.name, first.size - size, first.touched - size, first.surely - size),
    ))  # fmt: skip
    ahead = Part(PROJECTIONS, (), part.home, Amounts(size, size, size, 0, 0, 0, 0, 0, tokens * flops), (made,), False)
    rest = replace(
        whole, size=whole.size - size, touched=whole.touched - size, surely=whole.surely - size,
        flops=whole.flops - tokens * flops - part.keeping.counts.attend,
    )
    return ahead, replace(part, amounts=rest, pieces=(left, *others))


def with_kept(
    model: Model, weights: str, placement: Placement, layers: Sequence[tuple[Part, ...]], kept: Sequence[Keeping],
    tokens: Any,
) -> list[tuple[Part, ...]]:
    """The parts of each layer with what it keeps at the first, which attends; in two where attention runs elsewhere.

    Those of alike layers are one object. tokens : new positions of all sequences. Raises PlanError where a layer's
    attention is no part by itself.
    """
    away = any(one.attention for one in kept)
    for key, given in (("tensors", placement.tensors), ("split", placement.split)):
        if away and given:
            raise PlanError(f"placement.attention: with {key} a layer's own attention is in several places already. "
                            "Drop one of the two.")
    if away and any(part.copies > 1 for parts in layers for part in parts):
        raise PlanError(f"placement.attention: replicas attend to their own sequences, and on {placement.attention} "
                        "they would meet. Drop it, or write parallel: tensor.")
    tensors = layer_tensors(model, weights) if away else ()
    known: dict[tuple[Any, ...], tuple[Part, ...]] = {}
    found = []
    for i, (parts, keeping) in enumerate(zip(layers, kept, strict=True)):
        here = tensors[i] if keeping.attention else ()
        alike = (id(parts), id(keeping), tuple(size for _, size in here))
        if alike not in known:
            first = replace(parts[0], kept=keeping)
            known[alike] = (*(apart(first, here, tokens) if keeping.attention else (first,)), *parts[1:])
        found.append(known[alike])
    return found


class KvTasks:
    """Makes the tasks of what layers keep; tensors go to those of `design`."""

    def __init__(self, design: LayerTasks):
        self.design = design
        self.placement = design.placement
        self.topology = design.topology

    def keep(self, part: Part, amounts: Amounts, names: str, repeat: int, own: str) -> Kept:
        """What the compute of a part waits for, reads and writes, and what follows it. amounts : of all replicas."""
        part = replace(part, amounts=amounts)
        found, keeping = Kept(), part.keeping
        if keeping.attention:
            self._state(found, amounts, names, own)
            return found
        cached = self._cached(found, part, names, own)
        for memory, share in keeping.homes:
            kv = self.cache_in(part, memory, share, names, repeat, own, 1 - cached)
            if kv is not None:
                found.reads.append(kv)
                if memory != own:
                    found.ahead += self._fetch(part, kv, memory, share, own, part.home.processor)
            if _some(amounts.written) and share:
                self._new_rows(found, part, memory, share, names, own)
        self._state(found, amounts, names, own)
        if self.placement.hand_over and _some(keeping.counts.sent):
            self._hand_over(found, part, names, repeat)
        return found

    def cache_in(
        self, part: Part, memory: str, share: float, names: str, repeat: int, own: str, read_of: Any = 1.0,
        attended: bool = False,
    ) -> str | None:
        """The tensor of what one memory holds of a layer's cache; its name where a compute reads it, else None.

        attended : whether a processor beside the layer's own attends to it there, so that no rank gets a copy.
        """
        amounts, keeping = part.amounts, part.keeping
        alike = keeping.counts.alike
        if memory != own:
            amounts = replace(amounts, stored=once_of(amounts.stored, alike))
        if attended:
            read, surely = (once_of(amount, alike) for amount in (amounts.read, amounts.surely_read))
            amounts = replace(amounts, read=read, surely_read=surely)
        several = len(keeping.homes) > 1
        name = f"KV {names} in {memory}" if several else f"KV {names}"
        read = _of(amounts.read, share) if _is_one(read_of) else amounts.read * share * read_of
        reads = _some(amounts.read) and _some(read)
        # What no layer reads (a prompt's first chunk) is one tensor with the room of all of them.
        stored = _of(amounts.stored if reads else repeat * amounts.stored, share)
        surely = amounts.surely_read * share if _is_one(read_of) else amounts.surely_read * share * read_of
        if several and keeping.counts.picks:
            surely = 0  # all that an indexer picks may lie in another one
        if _is_one(read_of) and share == 1:
            surely = amounts.surely_read
        if reads or _some(stored):
            self.design.tensors[name] = Tensor(name, read, equal_homes(memory), shared=not reads, what="KV cache",
                                               stored=stored, least=surely, alike=1 if attended else alike)
        return name if reads else None

    def _fetch(self, part: Part, kv: str, memory: str, share: float, to: str, processor: str) -> list[Task]:
        if wrong := with_some_ranks(self.topology, memory, processor):
            raise PlanError(f"{KEY}: {wrong}")
        name = f"fetch KV to {to}" if isinstance(self.placement.kv, str) else f"fetch KV from {memory} to {to}"
        ahead, waits = self._once(f"read KV from {memory}", kv, memory, to)
        return [*ahead, self.design.move(name, kv, to, access=self.placement.host_memory, after=waits,
                                         **self.copies(part, part.keeping.counts.rows, share))]

    def _once(
        self, name: str, tensor: str, memory: str, to: str, size: Any = None
    ) -> tuple[list[Task], tuple[str, ...]]:
        """What brings a tensor of which ranks take copies to where they can take them, once, and what they wait for.

        size : what lies there, where that is not what they read without the copies [B].
        """
        one = self.design.tensors[tensor]
        stop = stop_on_the_way(self.topology, memory, to) if one.alike > 1 else ""
        if not stop:
            return [], ()
        some = {"bytes": size}
        if size is None:
            some = {"bytes": once_of(one.bytes, one.alike), "least": once_of(one.least, one.alike)}
        name = f"{name} to {stop}"
        return [self.design.move(name, tensor, stop, access=self.placement.host_memory, **some)], (name,)

    def copies(self, part: Part, rows: Any, share: float = 1.0) -> dict[str, Any]:
        """What a move of KV is made of, where it is copied block by block: `rows` positions of each sequence."""
        blocks = self.placement.kv_block
        if blocks is None:
            return {}
        each = -(-(rows * share) // blocks.tokens) * self.design.sequences
        sides = part.keeping.counts.sides if blocks.each == "side" else 1
        count = each * sides / (self.design.keeping if blocks.each == "model" else 1)
        return {"copies": count, "per_copy": blocks.per_copy}

    def _new_rows(self, found: Kept, part: Part, memory: str, share: float, names: str, own: str) -> None:
        """New keys and values: written where they are kept; a drive takes them by a move of their own."""
        several = len(part.keeping.homes) > 1
        new = f"new KV {names} in {memory}" if several else f"new KV {names}"
        drive = on_drive(self.topology, memory)
        home = equal_homes(own if drive else memory)
        counts = part.keeping.counts
        kept = _of(counts.written, share)
        size, least = (_of(part.amounts.written, share), kept) if memory == own else (once_of(kept, counts.alike), None)
        if not _some(size):
            return
        self.design.tensors[new] = Tensor(new, size, home, what="new KV", stored=0, least=least)
        found.writes.append(new)
        if drive:
            found.then.append(self.design.move(f"write KV to {memory}", new, memory, after=(part.name,),
                                               access=self.placement.host_memory))

    def _state(self, found: Kept, amounts: Amounts, names: str, own: str) -> None:
        if _some(amounts.state):
            state = f"state {names}"
            self.design.tensors[state] = Tensor(state, amounts.state, equal_homes(own), what="recurrent state")
            found.reads.append(state)
            found.writes.append(state)

    # A prefix that was found.

    def _cached(self, found: Kept, part: Part, names: str, own: str) -> Any:
        """Load what was found of a prompt, each part from the tier that serves it; the share of what is read."""
        counts = part.keeping.counts
        if not self.placement.cache or not (_some(counts.loaded_rows) or _some(counts.loaded)):
            return 0
        for memory, share in served_by(self.placement.cache, self.design.found_bytes):
            if not share:
                continue
            name = f"cached KV {names} in {memory}"
            loaded = _of(counts.loaded, share)
            stored = 0 if memory == own else self.design.in_flight * _of(counts.lies, share)
            read = part.amounts.read * counts.used * share
            self.design.tensors[name] = Tensor(
                name, read, equal_homes(memory), what="cached KV", stored=stored,
                least=part.amounts.surely_read * counts.used * share, alike=counts.alike)
            if _some(read):
                found.reads.append(name)
            if memory != own:
                if wrong := with_some_ranks(self.topology, memory, part.home.processor):
                    raise PlanError(f"{CACHE}: {wrong}")
                ahead, waits = self._once(f"read cached KV from {memory}", name, memory, own, _of(counts.lies, share))
                found.ahead += [*ahead, self.design.move(
                    f"load cached KV from {memory}", name, own, access=self.placement.host_memory, bytes=loaded,
                    after=waits, **self.copies(part, counts.loaded_rows, share))]
        return counts.used

    def _hand_over(self, found: Kept, part: Part, names: str, repeat: int) -> None:
        """Send what a layer keeps of the prompt on, as it is made."""
        counts, to = part.keeping.counts, self.placement.hand_over
        there = f"handed over {names}"
        self.design.tensors[there] = Tensor(there, repeat * counts.sent, equal_homes(to), shared=True,
                                            what="KV handed over")
        made = f"new KV {names}" if _some(part.amounts.written) else f"state {names}"
        found.then.append(self.design.move(f"hand over KV to {to}", made, to, after=(part.name,), bytes=counts.sent,
                                           access=self.placement.host_memory, **self.copies(part, counts.sent_rows)))

    # Attention where the keys and values are.

    def attend(self, part: Part, names: str, repeat: int, format_: str) -> tuple[list[Task], tuple[str, ...]]:
        """Attention on another processor: the query and new keys and values go there, the output comes back.

        Returns the tasks, and the names that what follows attention waits for.
        """
        design, keeping, counts = self.design, part.keeping, part.keeping.counts
        processor, near = keeping.attention, part.home.processor
        own, there = memories_of(self.topology, near), memories_of(self.topology, processor)
        made = (PROJECTIONS,)
        share = sum(part_of for memory, part_of in keeping.homes if memory != own)
        tasks: list[Task] = [self._row(f"query rows to {there}", "query rows", counts.query, counts.least_query,
                                       own, there, made)]  # fmt: skip
        waits = [tasks[0].name]
        reads: list[str] = []
        reads_near: list[str] = []
        writes_near: list[str] = []
        for memory, part_of in keeping.homes:
            kv = self.cache_in(part, memory, part_of, names, repeat, own, attended=memory != own)
            if kv is not None:
                (reads_near if memory == own else reads).append(kv)
                if memory not in (own, there):
                    tasks += self._fetch(part, kv, memory, part_of, there, processor)
                    waits.append(tasks[-1].name)
            size, least = self._new_beside(counts, part.amounts.written, part_of, memory, own)
            if not _some(size) or not part_of:
                continue
            new = f"new KV {names} in {memory}" if len(keeping.homes) > 1 else f"new KV {names}"
            design.tensors[new] = Tensor(new, size, equal_homes(own), what="new KV", stored=0, least=least,
                                         transient=memory != own)  # fmt: skip
            if memory == own:
                writes_near.append(new)
                continue
            drive = on_drive(self.topology, memory)
            tasks.append(design.move(f"{'write' if drive else 'new'} KV to {memory}", new, memory, after=made))
            waits += () if drive else (tasks[-1].name,)
        elsewhere = f"attention on {processor}"
        tasks.append(design.compute(elsewhere, processor, _of(counts.attend, share), format_, tuple(reads), (),
                                    tuple(waits)))
        design.last = elsewhere
        tasks += design.hand_over_costs(processor)
        output = counts.output + (counts.statistics if share < 1 else 0)
        tasks.append(self._row(f"attention output to {own}", "attention output", output, counts.least_output,
                               there, own, (design.last,)))  # fmt: skip
        after = [tasks[-1].name]
        if share < 1:
            after.append(f"attention on {near}")
            tasks.append(design.compute(after[-1], near, counts.attend * (1 - share), format_, tuple(reads_near),
                                        tuple(writes_near), made))
        return tasks, tuple(after)

    def _new_beside(self, counts: Counts, written: Any, share: float, memory: str, own: str) -> tuple[Any, Any]:
        """(bytes, least) of new keys and values that go to one of the places where they are attended to: to the
        processor beside the layer all of them once, as their own positions see them; to a drive what is kept.
        """
        if memory == own:
            return _of(written, share), _of(counts.written, share)
        some = counts.written if on_drive(self.topology, memory) else written
        return _of(once_of(some, counts.alike), share), None

    def _row(self, name: str, what: str, size: Any, least: Any, at: str, to: str, after: tuple[str, ...]) -> Task:
        """Pass a row of activations on; of ranges each memory has an equal part."""
        surely = self.design.surely  # of a prompt's last layer those of positions with outputs
        tensor = f"{what} in {at}" if surely is None else f"last {what} in {at}"
        least = least if surely is None else (size if least is None else least) * surely
        self.design.tensors[tensor] = Tensor(tensor, size, equal_homes(at), shared=True, what=what, transient=True,
                                             least=least)
        return self.design.move(name, tensor, to, after=after)


def _of(amount: Any, share: float) -> Any:
    return amount if share == 1 else amount * share


def _is_one(value: Any) -> bool:
    return not hasattr(value, "shape") and value == 1


def _some(amount: Any) -> bool:
    """Whether there is anything; arrays hold something."""
    return hasattr(amount, "shape") or amount > 0
