"""What a sweep tells of a step: floor, serial and what binds, each as one number of plain or of traced figures."""

from __future__ import annotations

from dataclasses import dataclass

from offload.bounds import TIE, floor_seconds, load_seconds
from offload.chains import has_formula
from offload.plan import Amount
from offload.schedules import overlapped, serial
from offload.step import Step
from offload.tracing import largest, pick
from offload.uncounted import uncounted

ORDER = -1  # the code of what binds: the order of the step, not one resource
NONE = -2  # no resource with a rate is used


@dataclass(frozen=True, slots=True)
class Quantities:
    """Figures of one step. floor, serial : seconds of steps back to back. binding : the place in `names` of the first
    resource that binds, ORDER or NONE. tokens : of a step at most, with each guess of a draft kept. spare : bytes left
    in the fullest memory, below zero what it lacks; None where no memory's size is known.
    spares : by memory. overlapped : where it was asked for and has a formula. uncounted : as of `uncounted`.
    """

    floor: Amount
    serial: Amount
    binding: Amount
    names: tuple[str, ...]
    tokens: Amount
    spare: Amount | None
    spares: dict[str, Amount]
    overlapped: Amount | None = None
    uncounted: tuple[str, ...] = ()


def quantities(step: Step) -> Quantities:
    """The figures of a step; traced where its amounts or rates are."""
    load = load_seconds(step)
    bound = floor_seconds(step)
    names = tuple(sorted(load.resource_seconds))
    near = load.seconds * (1 - TIE)
    binding: Amount = NONE
    for place in range(len(names) - 1, -1, -1):
        seconds = load.resource_seconds[names[place]]
        binding = pick(seconds, near, pick(seconds, 0.0, place, binding), binding, equal=True)
    binding = pick(bound, load.seconds, ORDER, binding)
    spares: dict[str, Amount] = {}
    for name, memory in step.topology.memories.items():
        if memory.capacity is not None:
            held: Amount = 0
            for amount in step.occupied.get(name, {}).values():
                held = held + amount
            spares[name] = memory.capacity * memory.count - held
    spare = -largest(*(-one for one in spares.values())) if spares else None
    return Quantities(bound, serial(step).seconds, binding, names, step.plan.tokens_at_most, spare, spares,
                      uncounted=uncounted(step))


def bare_quantities(step: Step) -> Quantities:
    """Of a step whose overlapped time alone is asked for: serial seconds in place of the floor, and no resources."""
    alone = serial(step).seconds
    found = overlapped(step) if has_formula(step) else None
    return Quantities(alone, alone, NONE, (), step.plan.tokens_at_most, None, {}, found, uncounted(step))
