"""HiGHS in floats, and what is proved of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from offload.errors import OffloadError
from offload.lp.exact import GRAIN, SMALL, exact_optimum, exact_shares, pivoted, repaired
from offload.lp.problem import ONE, ZERO, Problem, Solution, Table, Way, better, weighed

LARGEST_EXACT = 400  # unknowns up to which an exact optimum is sought
LARGEST_ENTRY = Fraction(10**14)  # HiGHS takes none above 1e15; no share of a way so slow is enough for it to tell


def solve(problem: Problem, polish: bool = True) -> Solution:
    """Solve and certify. polish : seek an exact optimum where the problem is small; bound and attained then meet.

    T >= (sum_j D_j dist(j) - sum_t M_t z_t) / sum_r B_r y_r for any y, z >= 0, as sum_j D_j dist(j) <= sum_r y_r load_r
    + sum_t z_t stored_t <= T sum_r y_r B_r + sum_t z_t M_t (weak duality). Raises OffloadError where SciPy is missing
    or the stores cannot hold the demands.
    """
    scale = _scale(problem)
    while True:
        shares, prices, rents = _floats(problem, scale)
        found = weighed(problem, repaired(problem, shares), *_rounded(problem, prices, rents))
        used = sum(share > SMALL for parts in shares for share in parts)
        if polish and used + sum(price > SMALL for price in prices) + len(rents) <= LARGEST_EXACT:
            found = better(found, exact_optimum(problem, shares, prices, rents, scale))
            if found is not None and found.bound < found.attained and not problem.stores:
                found = better(found, pivoted(problem, found))
        for simple in _simple(problem):
            found = better(found, weighed(problem, simple, {}, {}))
        if found is None:
            raise OffloadError("the items fill the tiers to the last byte, and no exact split was found: give some "
                               "room.")
        if not 0 < found.attained < scale / 1000:
            return found
        scale = found.attained  # far below the first guess, where tolerances would hide it


def earlier_first(problem: Problem, found: Solution) -> tuple[tuple[Fraction, ...], ...]:
    """Shares as fast as those found that go the earlier ways first, as far as an exact split of that kind is found.

    The second problem is the same with T held at what is attained: least sum of the ways' places. Where its answer is
    not exactly as fast, the shares that were found stay.
    """
    if not found.attained or all(len(ways) == 1 for ways in problem.ways):
        return found.shares
    rough = _floats(problem, found.attained, held=True)
    best = found.shares
    for parts in (repaired(problem, rough[0]), exact_shares(problem, *rough, found.attained, held=True)):
        other = weighed(problem, parts, found.prices, found.rents)
        if other is not None and other.attained <= found.attained and _later(problem, parts) < _later(problem, best):
            best = other.shares
    return best


def _later(problem: Problem, shares: Sequence[Sequence[Fraction]]) -> Fraction:
    return sum((p * part * amount for amount, parts in zip(problem.demands, shares, strict=True)
                for p, part in enumerate(parts)), ZERO)  # fmt: skip


def _scale(problem: Problem) -> Fraction:
    """A time near T*: each demand its fastest way (within demands x ways of T*), with stores its slowest."""
    choose = max if problem.stores else min
    chosen = [choose(ways, key=lambda way: _alone(problem, way)) for ways in problem.ways]
    totals = dict.fromkeys(problem.rates, ZERO)
    for amount, way in zip(problem.demands, chosen, strict=True):
        for name, a in way.use.items():
            totals[name] += a * amount
    return max((total / problem.rates[name] for name, total in totals.items()), default=ZERO) or ONE


def _alone(problem: Problem, way: Way) -> Fraction:
    return max((a / problem.rates[name] for name, a in way.use.items()), default=ZERO)


def _simple(problem: Problem) -> list[list[list[Fraction]]]:
    """Splits that take no solver: every demand its first way, and its fastest."""
    if problem.stores:
        return []
    fastest = [min(range(len(ways)), key=[_alone(problem, way) for way in ways].__getitem__) for ways in problem.ways]
    return [
        [[Fraction(p == one) for p in range(len(ways))] for ways, one in zip(problem.ways, chosen, strict=True)]
        for chosen in ([0] * len(fastest), fastest)
    ]


def _floats(
    problem: Problem, scale: Fraction, held: bool = False
) -> tuple[list[list[float]], list[float], list[Fraction]]:
    """HiGHS on shares and T / scale: shares by demand, B_r y_r by rate (sum 1) and z_t by store.

    held : T is at most `scale`, and what is least is the amount that goes each way times the place of the way.
    """
    try:
        import numpy
        from scipy.optimize import linprog
    except ImportError:
        raise OffloadError('splitting over several routes needs SciPy: pip install "offload[lp]".') from None
    rates, stores = list(problem.rates), list(problem.stores)
    at = {name: index for index, name in enumerate(rates)}
    below = {name: len(rates) + index for index, name in enumerate(stores)}
    size = {name: room or max(problem.demands) or ONE for name, room in problem.stores.items()}
    columns = [(j, p) for j, ways in enumerate(problem.ways) for p in range(len(ways)) if problem.demands[j]]
    matrix = numpy.zeros((len(rates) + len(stores), len(columns) + 1))
    demand = numpy.zeros((len(problem.demands), len(columns) + 1))
    for column, (j, p) in enumerate(columns):
        demand[j, column] = 1.0
        for name, a in problem.ways[j][p].use.items():
            seconds = a * problem.demands[j] / problem.rates[name] / scale
            matrix[at[name], column] = float(min(seconds, LARGEST_ENTRY))
        for name, a in problem.ways[j][p].store.items():
            matrix[below[name], column] = float(min(a * problem.demands[j] / size[name], LARGEST_ENTRY))
    matrix[: len(rates), -1] = -1.0
    limits = numpy.array([0.0] * len(rates) + [float(problem.stores[name] / size[name]) for name in stores])
    asked = [j for j, amount in enumerate(problem.demands) if amount]
    shares = [[1.0, *[0.0] * (len(ways) - 1)] for ways in problem.ways]
    if not asked or not rates:
        return shares, [1.0 / len(rates)] * len(rates) if rates else [], [ZERO] * len(stores)
    largest = max(problem.demands)
    cost = numpy.array([p * float(problem.demands[j] / largest) if held else 0.0 for j, p in columns] + [not held])
    bounds = [(0.0, None)] * len(columns) + [(0.0, 1.0 if held else None)]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(
        cost, matrix, limits, demand[asked], numpy.ones(len(asked)), bounds, method="highs-ds", options=options
    )
    if answer.x is None:
        if stores and not held:
            raise OffloadError("the tiers cannot hold the items: give more room, or more tiers to choose from.")
        return shares, [1.0 / len(rates)] * len(rates), [ZERO] * len(stores)  # certified too, only far apart
    for j in asked:
        shares[j] = []
    for column, (j, _) in enumerate(columns):
        shares[j].append(float(answer.x[column]))
    duals = [max(0.0, -float(value)) for value in answer.ineqlin.marginals]
    rents = [scale * Fraction(dual) / size[name] for dual, name in zip(duals[len(rates):], stores, strict=True)]
    return shares, duals[: len(rates)], rents


def _rounded(problem: Problem, prices: Sequence[float], rents: Sequence[Fraction]) -> tuple[Table, Table]:
    """Prices and rents that are not negative, with sum B_r y_r = 1."""
    pairs = zip(problem.rates, prices, strict=True)
    parts = {name: Fraction(round(w * GRAIN), GRAIN) for name, w in pairs if w > SMALL}
    whole = sum(parts.values())
    return (
        {name: part / whole / problem.rates[name] for name, part in parts.items()},
        {name: z for name, z in zip(problem.stores, rents, strict=True) if z > 0},
    )
