"""Steps whose overlapped time is one formula: nothing can overlap, or layers are fetched one ahead of another.

In order: every task waits for the one before it, and the next step for the last. The time is that of serial.

Streamed: the computes of one processor, each behind a fetch of its own, and k buffers, held from the start of a fetch
to the end of its compute. With two buffers fetch i+1 and compute i both wait for compute i-1 and fetch i, and with
that nothing but them runs until both have ended. So no schedule is shorter than, with what each resource is busy,

    period >= sum_i max(f_i+1, c_i, max_r (l_i+1,r + L_i,r)),    f, c : each alone,

and where both progress evenly none takes longer. More buffers gain where that is above the load bound; what they reach
is found from the numbers of the kinds of layers alone (`prefetching`).

The sums are over pairs of kinds of rows, count times each, in the order in which a pair is first met: so equal layers
are a closed form, and traced numbers (`tracing`) give for all points of a sweep the bits of one evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from offload.plan import UNLIMITED, Amount
from offload.prefetching import Prefetching, Sharing
from offload.step import Slots, Step, remembered, seconds_of_rows
from offload.tracing import key_of, opaque

KINDS = 8  # kinds of rows with which each row is compared


@dataclass(frozen=True, slots=True)
class Streamed:
    """Rows of fetches and of computes in the order of layers, and the buffers: with no limit, of two steps.

    places : the instances of each layer's fetch and compute.
    """

    fetches: tuple[int, ...]
    computes: tuple[int, ...]
    buffers: int
    places: tuple[tuple[int, int], ...]


def in_order(step: Step) -> bool:
    """Whether each task of a step waits for all before it, and the next step for all of this one."""
    return remembered(step, "in order", lambda: _in_order(step))


def streamed(step: Step, buffers: int | None = None) -> Streamed | None:
    """The layers of a step that is nothing but fetches and the computes behind them; None of any other step.

    buffers : instead of the plan's.
    """
    return remembered(step, ("streamed", buffers), lambda: _streamed(step, buffers))


def has_formula(step: Step) -> bool:
    """Whether the time of a step as its plan overlaps it is that of a formula, without a search."""
    return step.plan.overlap.kind == "none" or in_order(step) or streamed(step) is not None


def formula(
    step: Step, buffers: int | None, alone: Amount, alone_cold: Amount, *, back_to_back: bool = False
) -> tuple[Amount, Amount] | None:
    """(period, one step from empty buffers) [s] of a step with a formula; None where there is none.

    alone, alone_cold : serial seconds of both, which no formula is above. back_to_back : amounts may be traced, and
    what is compared are those of kinds; of streamed layers the second is then the first, for no sweep asks for it.
    """
    if in_order(step):
        return alone, alone_cold
    layers = streamed(step, buffers)
    if layers is None:
        return None
    if layers.buffers == 1:
        return alone, alone_cold
    if not back_to_back:
        return attained(step, buffers)[:2]
    found, numbers = _prefetching(step, layers)
    period = opaque(found, *numbers)
    return period, period


def attained(step: Step, buffers: int | None) -> tuple[float, float, int | Sharing, int | Sharing]:
    """(period, one step from empty buffers) [s] of streamed layers, and how each is attained, as `prefetching` tells.

    Amounts must be numbers.
    """

    def make() -> tuple[float, float, int | Sharing, int | Sharing]:
        found, numbers = _prefetching(step, cast(Streamed, streamed(step, buffers)))
        return found.attained(numbers)

    return remembered(step, ("attained", buffers), make)


def run(step: Step, buffers: int | None, sharing: Sharing, rounds: int) -> tuple[list[float], list[float]]:
    """When each instance of so many steps of streamed layers starts and ends as they share, from empty buffers [s]."""
    layers = cast(Streamed, streamed(step, buffers))
    found, numbers = _prefetching(step, layers)
    many = rounds * len(layers.fetches)
    places = [lap * len(step.instances) + i for lap in range(rounds) for pair in layers.places for i in pair]
    both = []
    for times in found.run(numbers, sharing, many):
        of_instances = [0.0] * len(times)
        for place, time in zip(places, times, strict=True):
            of_instances[place] = time
        both.append(of_instances)
    return both[0], both[1]


def _prefetching(step: Step, layers: Streamed) -> tuple[Prefetching, list[Amount]]:
    """The period of layers as a function of numbers, and the numbers, which may be traced."""
    seconds = seconds_of_rows(step, "value")
    names = {name: place for place, name in enumerate(dict.fromkeys(
        name for row in (*layers.fetches, *layers.computes) for name in seconds[row]))}  # fmt: skip
    orders, uses, numbers = [], [], []
    for rows in (layers.fetches, layers.computes):
        like = _kinds(step, rows)
        kinds = list(dict.fromkeys(like[row] for row in rows))
        orders.append([kinds.index(like[row]) for row in rows])
        uses.append([tuple(names[name] for name in seconds[row]) for row in kinds])
        for row in kinds:
            numbers += [step.rows[row].latency[1], *seconds[row].values()]
    barrier = _barrier_is_shortest(step, layers)
    return Prefetching.of(orders[0], orders[1], layers.buffers, uses[0], uses[1], barrier), numbers


def _kinds(step: Step, rows: Sequence[int]) -> dict[int, int]:
    """For each of some rows the first of them whose times are the same, among the first kinds that there are."""
    seconds = seconds_of_rows(step, "value")
    found: dict[int, int] = {}
    kinds: list[int] = []
    for row in dict.fromkeys(rows):
        mine = (step.rows[row].latency[1], *seconds[row].values())
        for kind in kinds:
            its = (step.rows[kind].latency[1], *seconds[kind].values())
            if seconds[row].keys() == seconds[kind].keys() and all(
                key_of(a) == key_of(b) or bool(a == b) for a, b in zip(mine, its, strict=True)
            ):
                found[row] = kind
                break
        else:
            found[row] = row
            if len(kinds) < KINDS:
                kinds.append(row)
    return found


def _barrier_is_shortest(step: Step, layers: Streamed) -> bool:
    """Whether a barrier per layer is the shortest schedule whatever the numbers: two buffers, no delay of a compute."""
    delays = [step.rows[row].latency[1] for row in layers.computes]
    return layers.buffers == 2 and all(type(one) in (int, float) and one == 0 for one in delays)


def _in_order(step: Step) -> bool:
    queued = [i for i, row in enumerate(step.instances) if step.rows[row].lane]
    if len(queued) < len(step.instances) or not queued:
        return False
    last_of: dict[str, int] = {}
    for i, row in enumerate(step.instances):
        lane = step.rows[row].lane
        if i and last_of.get(lane) != i - 1 and all(wait.on != i - 1 for wait in step.waits[i]):
            return False
        last_of[lane] = i
    first, last = 0, len(step.instances) - 1
    around = len(last_of) == 1 or any(
        later == last and earlier == first and steps == 1 for later, earlier, steps in step.wraps
    )
    return around and all(row.every == 1 for row in step.rows)


def _streamed(step: Step, buffers: int | None) -> Streamed | None:
    rows = [step.rows[row] for row in step.instances]
    fetches = [i for i, row in enumerate(rows) if row.transfer]
    computes = [i for i, row in enumerate(rows) if not row.transfer]
    if not fetches or len(fetches) != len(computes) or len(step.slots) != 1:
        return None
    if any(row.every > 1 or row.urgent or not row.lane for row in rows) or len({row.lane for row in rows}) != 2:
        return None
    slots: Slots = step.slots[0]
    if slots.fetches != tuple(fetches) or slots.releases != tuple(((i, 0),) for i in computes):
        return None
    own = dict(zip(computes, fetches, strict=True))
    behind = set(computes)
    for i, waits in enumerate(step.waits):
        on = {wait.on for wait in waits}
        if i in behind:
            if own[i] not in on or any(one != own[i] and one not in behind for one in on):
                return None
        elif on:
            return None
    if any(later not in behind or earlier not in behind for later, earlier, _ in step.wraps):
        return None
    count = slots.buffers if buffers is None else buffers
    return Streamed(tuple(step.instances[i] for i in fetches), tuple(step.instances[i] for i in computes),
                    2 * len(fetches) if count == UNLIMITED else count,
                    tuple(zip(fetches, computes, strict=True)))  # fmt: skip
