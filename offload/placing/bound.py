"""What no mix of ways beats: placements relaxed to a linear program.

min T s.t. sum over layers and ways of x_lw load_r(l, w) <= T (+ what a cache may spare), sum of x_lw stored_m(l, w) <=
room of m, sum_w x_lw = 1, 0 <= x. A layer may go in parts, each another way: less than that no placement of these ways
takes, whichever layers it picks. At peak rates and least loads it bounds floors, at sustained rates expected times.
With the chain of computes as a row it holds where each layer is one task after another; without it, and with room for
no more than is surely read, where processors share a layer at the same time and caches keep the right experts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from offload import lp
from offload.errors import OffloadError
from offload.placing.loads import CHAIN, Load
from offload.placing.tables import Table
from offload.topology import Topology


@dataclass(frozen=True, slots=True)
class Price:
    """What more of a resource or of room is worth at the optimum: seconds of a step for each unit more, per second.

    kind : "rate" ([s per B/s] or [s per FLOP/s]), "room" ([s per B]) or "channel" (of DIMMs, each as fast as those
    there: [s per channel]). now : the rate, the room [B] or the channels.
    """

    name: str
    kind: str
    worth: float
    now: float


@dataclass(frozen=True, slots=True)
class Relaxation:
    """seconds : the bound. exact : the same as a fraction. prices : those above zero, the most by tenths first."""

    seconds: float
    exact: Fraction
    prices: tuple[Price, ...]


def relaxed(tables: Sequence[Table], grade: str = "peak", any_plan: bool = False) -> Relaxation | None:
    """The bound of all placements of some families at one workload; None where the memories cannot hold the model.

    grade : "peak" for floors, "value" for expected times. any_plan : of any way to share layers, not of these families
    alone: computes need not follow each other, ranks exchange nothing, and of experts only those that a step surely
    reads take room, as any cache might hold them.
    Raises OffloadError where SciPy is missing.
    """
    topology, layers = tables[0].question.topology, tables[0].question.model.layers
    in_flight = min(one.in_flight for one in tables)
    chain = in_flight > 0 and not any_plan
    groups: dict[tuple[Any, ...], int] = {}
    for number in range(layers):
        each = (loads.layers[number] for one in tables for loads in one.ways.values())
        ways = _distinct(each, grade, chain, any_plan)
        groups[ways] = groups.get(ways, 0) + 1
    ends = _distinct((loads.rest for one in tables for loads in one.ways.values()), grade, chain, any_plan)
    groups[ends] = groups.get(ends, 0) + 1
    held = {name: min(one.held.get(name, 0.0) for one in tables) for name in topology.memories}
    stores = {name: Fraction(one.capacity * one.count) - Fraction(held[name]) for name, one in topology.memories.items()
              if one.capacity is not None}  # fmt: skip
    if any(room < 0 for room in stores.values()):
        return None
    names = {name for ways in groups for use, _, _ in ways for name, _ in use}
    problem = lp.Problem(
        {name: Fraction(in_flight if name == CHAIN else 1) for name in sorted(names)}, stores,
        tuple(Fraction(count) for count in groups.values()),
        tuple(tuple(lp.Way({name: Fraction(time) for name, time in use},
                           {name: Fraction(size) for name, size in store if name in stores})
                    for use, store, _ in ways) for ways in groups),
    )  # fmt: skip
    if not names:
        return Relaxation(0.0, Fraction(0), ())
    spared: dict[str, Fraction] = {}
    if grade == "peak":
        caches = {name: max(other.caches.get(name, 0.0) for other in tables) for one in tables for name in one.caches}
        spared = {name: Fraction(sum(caches.values()) if name == CHAIN else caches.get(name, 0.0)) for name in names}
    duals = _duals(problem, spared)
    if duals is None:
        return None
    prices, rents, shares = duals
    both = (lp.lower_bound(problem, prices, some) for some in (rents, {}))
    certified, taken, _ = max(both, key=lambda one: one[0])
    # sum_r y_r load_r >= D for the prices y; load_r <= B_r T + spared_r, so T >= D - sum_r y_r spared_r.
    bound = max(certified - sum((price * spared.get(name, 0) for name, price in prices.items()), Fraction(0)),
                Fraction(0))  # fmt: skip
    worths = {name: float(bound * price) for name, price in prices.items() if name != CHAIN}
    for (ways, count), parts in zip(groups.items(), shares, strict=True):
        for (_, _, computes), share in zip(ways, parts, strict=True):
            for name, time in computes if share > 0 and CHAIN in prices else ():
                worths[name] = worths.get(name, 0.0) + float(prices[CHAIN]) * count * share * time
    return Relaxation(float(bound), bound, tuple(_prices(tables, worths, taken, grade)))


_Duals = tuple[dict[str, Fraction], dict[str, Fraction], list[list[float]]]


def _duals(problem: lp.Problem, spared: Mapping[str, Fraction]) -> _Duals | None:
    """Prices (sum B_r y_r = 1), rents and shares by HiGHS; None where the stores cannot hold the demands.

    What they prove is worked out exactly afterwards, so that nothing hangs on the solver's tolerances.
    """
    try:
        import numpy
        from scipy.optimize import linprog
    except ImportError:
        raise OffloadError('the bound of all placements needs SciPy: pip install "offload[lp]".') from None
    columns = [(j, way) for j, ways in enumerate(problem.ways) for way in ways]
    rates, stores = list(problem.rates), list(problem.stores)
    matrix = numpy.zeros((len(rates) + len(stores), len(columns) + 1))
    demand = numpy.zeros((len(problem.demands), len(columns) + 1))
    at = {name: row for row, name in enumerate([*rates, *(f"{name} room" for name in stores)])}
    for column, (j, way) in enumerate(columns):
        demand[j, column] = 1.0
        for name, time in way.use.items():
            matrix[at[name], column] = float(problem.demands[j] * time / problem.rates[name])
        for name, size in way.store.items():
            if problem.stores[name]:
                matrix[at[f"{name} room"], column] = float(problem.demands[j] * size / problem.stores[name])
    scale = matrix[: len(rates)].max() or 1.0
    matrix[: len(rates)] /= scale
    matrix[: len(rates), -1] = -1.0
    banned = [any(not problem.stores[name] for name in way.store) for _, way in columns]
    limits = numpy.array([float(spared.get(name, 0) / problem.rates[name]) / scale for name in rates]
                         + [1.0] * len(stores))  # fmt: skip
    answer = linprog(numpy.array([0.0] * len(columns) + [1.0]), matrix, limits, demand, numpy.ones(len(demand)),
                     [(0.0, 0.0 if shut else None) for shut in banned] + [(0.0, None)], method="highs-ds",
                     options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10})  # fmt: skip
    if answer.status == 2:
        return None
    if answer.x is None:
        raise OffloadError(f"the bound of all placements was not found: {answer.message}")
    duals = [Fraction(max(0.0, -float(value))) for value in answer.ineqlin.marginals]
    whole = sum(duals[: len(rates)], Fraction(0))
    prices = {name: dual / whole / problem.rates[name] for name, dual in zip(rates, duals, strict=False) if dual}
    full_ones = zip(stores, duals[len(rates):], strict=True)
    rents = {name: Fraction(scale) * dual / problem.stores[name] for name, dual in full_ones if dual}
    shares: list[list[float]] = [[] for _ in problem.demands]
    for column, (j, _) in enumerate(columns):
        shares[j].append(float(answer.x[column]))
    return prices, rents, shares


Pairs = tuple[tuple[str, float], ...]
Way = tuple[Pairs, Pairs, Pairs]  # seconds by resource, bytes by memory, the chain by resource


def _distinct(loads: Iterable[Load], grade: str, chain: bool, any_plan: bool) -> tuple[Way, ...]:
    """Ways without those that are like another one."""
    found: dict[Way, None] = {}
    for load in loads:
        use = {name: time for name, time in load.seconds[grade].items() if time > 0 and (chain or name != CHAIN)}
        if any_plan and grade == "peak":
            use = {name: time - load.shared.get(name, 0.0) for name, time in use.items()}
        store = load.touched if any_plan else load.stored
        found[tuple(sorted((name, time) for name, time in use.items() if time > 0)),
              tuple(sorted((name, size) for name, size in store.items() if size > 0)),
              tuple(sorted(load.chain[grade].items())) if chain else ()] = None
    return tuple(found)


def _prices(
    tables: Sequence[Table], worths: Mapping[str, float], rents: Mapping[str, Fraction], grade: str
) -> Iterable[Price]:
    """-dT/dB_r = T y_r / B_r and -dT/dM_t = z_t; a chain's price is that of what its computes take longest on."""
    rates: dict[str, float] = {}
    for one in tables:
        rates |= one.peaks if grade == "peak" else one.sustained
    memories = tables[0].question.topology.memories
    rows = [Price(name, "rate", worth / rates[name], rates[name])
            for name, worth in worths.items() if rates.get(name)]  # fmt: skip
    rows += [Price(name, "room", float(rent), float(cast(int, memories[name].capacity) * memories[name].count))
             for name, rent in rents.items()]  # fmt: skip
    rows = sorted((one for one in rows if one.worth > 0), key=lambda one: -one.worth * one.now)
    return [*rows, *_channels(tables[0].question.topology, rows)]


def _channels(topology: Topology, rows: Sequence[Price]) -> Iterable[Price]:
    """A channel more of a memory: its share of the memory's rate, and of what its processors read from it."""
    for name, memory in topology.memories.items():
        channels = memory.rate.channels if memory.rate is not None else None
        if channels:
            found = {name, *(f"{one}.reads" for one in topology.processors_of(name))}
            worth = sum(one.worth * one.now for one in rows if one.kind == "rate" and one.name in found) / channels
            if worth > 0:
                yield Price(name, "channel", worth, float(channels))


def regret(seconds: float, bound: float) -> float | None:
    """How much longer a plan takes than a bound, over the bound; None where the bound is nothing."""
    return seconds / bound - 1 if bound > 0 else None


