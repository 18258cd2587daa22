"""What much of a step reads or moves by parts without a rate alone: that takes no time here, and so none is known.

A move that passes a part with a rate beside one without takes its time there: a drive was measured through its link.
"""

from __future__ import annotations

from itertools import pairwise

from offload.ranges import listed
from offload.rows import row_table
from offload.step import Step
from offload.topology.resources import NOT_COUNTED

LITTLE = 0.01  # of a step's bytes: fewer change its time little, at rates of the usual order


def uncounted(step: Step) -> tuple[str, ...]:
    """The parts without a rate by which alone more than a hundredth of a step's bytes go; () where none do."""
    names = [note.removesuffix(NOT_COUNTED) for note in step.assumptions if note.endswith(NOT_COUNTED)]
    if not names:
        return ()
    table, passing, total = row_table(step.topology, step.plan), dict.fromkeys(names, 0.0), 0.0
    for number, (row, count) in enumerate(zip(step.rows, step.counts, strict=True)):
        amount = sum(count / row.every * one.bytes for one in row.moved)
        total += amount
        if any(step.resources[use.resource].unit != "FLOP" for use in row.uses):
            continue
        touched: set[str] = set()
        for one in row.moved:
            for end, port in ((one.source, "read"), (one.destination or "", "write")):
                touched |= {part for name in listed(end) for part in (name, f"{name}.{port}")}
        if number in table.flows:
            task, flows = table.flows[number]
            for home, destination, _ in flows:
                for stage in table.route_of(home, destination, task.via).stages:
                    nodes = (stage.source, *stage.way, stage.destination)
                    touched |= {*nodes, *(f"{one}.{following}" for one, following in pairwise(nodes))}
        for name in touched.intersection(passing):
            passing[name] += amount
    return tuple(name for name, amount in passing.items() if amount > LITTLE * total)
