"""What of a step goes where a part without a rate tells its time: that takes no time here, and so none is known.

A drive tells the time of what it reads or writes. A link or a memory without a rate does not, where beside it in the
same move a link, a processor's own reads or a drive with one does: a drive was measured through its link, and host
memory is faster than the link behind it. What a memory takes at the end of a link, or both ways of it together, tells
nothing of that link. And arithmetic on a processor without FLOP/s takes no time either: where it is much for the bytes
that it reads, that is what its time depends on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from offload.plan import Amount, Compute
from offload.ranges import listed
from offload.rows import NO_FLOPS, RowTable, row_table
from offload.step import Movement, Row, Step
from offload.topology.resources import NOT_COUNTED
from offload.topology.shares import DRIVES

LITTLE = 0.01  # of a step's bytes: fewer change its time little, at rates of the usual order
MUCH = 16  # FLOP for each byte that is read: at fewer the memory of a CPU takes about as long as its arithmetic


def uncounted(step: Step) -> tuple[str, ...]:
    """The parts without a rate that tell the time of more than a hundredth of a step's bytes, and processors without
    FLOP/s that do much arithmetic, as `cpu0.flops`; () where there are none."""
    return *_parts(step), *_processors(step)


def _processors(step: Step) -> Iterator[str]:
    """The arithmetic that is not counted, where it is more than MUCH for each byte."""
    for note in step.assumptions:
        if not note.endswith(NO_FLOPS):
            continue
        name = note.removesuffix(NO_FLOPS)
        flop: Amount = 0.0
        size: Amount = 0.0
        for block in step.plan.blocks:
            for task in block.tasks:
                if isinstance(task, Compute) and task.time is None and name in (task.ranks or (task.processor,)):
                    flop += block.repeat / task.every / max(1, len(task.ranks)) * task.flops
        for row, count in zip(step.rows, step.counts, strict=True):
            for one in row.moved:
                ranks = listed(one.runs_on or "")
                if name in ranks:
                    size += count / row.every / len(ranks) * one.bytes
        if flop > MUCH * size:
            yield f"{name}.flops"


def _parts(step: Step) -> Iterator[str]:
    names = [note.removesuffix(NOT_COUNTED) for note in step.assumptions if note.endswith(NOT_COUNTED)]
    if any(_is_drive(step, name) for name in names):  # drives are at the ends of moves alone
        ends = {end for row in step.rows for moved in row.moved for end in _ends(moved)}
        names = [name for name in names if name in ends or not _is_drive(step, name)]
    if not names:
        return
    table, passing = row_table(step.topology, step.plan), dict.fromkeys(names, 0.0)
    total: Amount = 0.0
    for number, (row, count) in enumerate(zip(step.rows, step.counts, strict=True)):
        told = any(_tells(step, use.resource) for use in row.uses)
        for amount, parts in _passed(table, number, row):
            size = count / row.every * amount
            total += size
            for name in passing:
                if name in parts and not (told and not _is_drive(step, name)):
                    passing[name] += size
    yield from (name for name, amount in passing.items() if amount > LITTLE * total)


def _is_drive(step: Step, name: str) -> bool:
    """Whether a part is a drive, or its reads or writes."""
    memory = step.topology.memories.get(name.partition(".")[0])
    return memory is not None and memory.kind in DRIVES


def _tells(step: Step, name: str) -> bool:
    """Whether a resource tells how long a move takes that passes a part without a rate too."""
    resource = step.resources[name]
    return resource.unit == "B" and (resource.kind in ("link", "processor") or _is_drive(step, name))


def _passed(table: RowTable, number: int, row: Row) -> Iterator[tuple[Amount, set[str]]]:
    """What a row moves or reads: how many bytes, and the names of all parts that they touch or pass."""
    way: set[str] = set()
    if number in table.flows:
        task, flows = table.flows[number]
        for home, destination, _ in flows:
            for stage in table.route_of(home, destination, task.via).stages:
                nodes = (stage.source, *stage.way, stage.destination)
                way |= {*nodes, *(f"{one}.{following}" for one, following in pairwise(nodes))}
    for one in row.moved:
        yield one.bytes, way | _ends(one)


def _ends(moved: Movement) -> set[str]:
    ends = ((moved.source, "read"), (moved.destination or "", "write"))
    return {part for end, port in ends for name in listed(end) for part in (name, f"{name}.{port}")}
