"""The least time in which demands can be met that may go several ways: solved in floats, proved in rationals.

A demand is split over ways; a way loads rates (B_r T is what a resource serves in time T) and may fill stores of fixed
size. SciPy's HiGHS solves it; its status proves nothing (badly scaled, it calls wrong answers optimal), so both of its
answers are made into rationals and weighed exactly: prices give a lower bound, shares a time that is attained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral, Rational, Real

from offload.errors import OffloadError

ZERO, ONE = Fraction(0), Fraction(1)
SMALL = 1e-9  # shares and prices below it count as none when an exact optimum is sought
TIGHT = 1e-7  # the same of slacks and reduced costs
GRAIN = 2**48  # floats become multiples of its reciprocal
LARGEST_EXACT = 400  # unknowns up to which an exact optimum is sought
Table = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Way:
    """What one unit of a demand puts on rates, and on stores, when it goes this way."""

    use: Table
    store: Table


@dataclass(frozen=True, slots=True)
class Problem:
    """min T s.t. sum_p x_jp = D_j; sum_jp a_rp x_jp <= B_r T; sum_jp s_tp x_jp <= M_t; x >= 0.

    rates : r -> B_r. stores : t -> M_t. demands : D_j. ways : of each demand, at least one.
    """

    rates: Table
    stores: Table
    demands: tuple[Fraction, ...]
    ways: tuple[tuple[Way, ...], ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """bound <= T* <= attained, both exact.

    shares : of each demand over its ways (sum 1). prices : y_r of rates with sum B_r y_r = 1; rents : z_t of stores;
    both without zeros. distances : of each demand the least over ways of sum a_rp y_r + sum s_tp z_t.
    """

    bound: Fraction
    attained: Fraction
    shares: tuple[tuple[Fraction, ...], ...]
    prices: Table
    rents: Table
    distances: tuple[Fraction, ...]


def rational(value: object, what: str) -> Fraction:
    """A finite number, exactly; raises OffloadError that names `what` for anything else."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return Fraction(int(value))
    if isinstance(value, Rational) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        return Fraction(float(value))
    raise OffloadError(f"{what} is {value!r}: give a finite number.")


def solve(problem: Problem, polish: bool = True) -> Solution:
    """Solve and certify. polish : seek an exact optimum where the problem is small; bound and attained then meet.

    T >= (sum_j D_j dist(j) - sum_t M_t z_t) / sum_r B_r y_r for any y, z >= 0, as sum_j D_j dist(j) <= sum_r y_r load_r
    + sum_t z_t stored_t <= T sum_r y_r B_r + sum_t z_t M_t (weak duality). Raises OffloadError where SciPy is missing
    or the stores cannot hold the demands.
    """
    scale = _scale(problem)
    while True:
        shares, prices, rents = _floats(problem, float(scale))
        found = _weighed(problem, _repaired(problem, shares), *_rounded(problem, prices, rents))
        if polish and sum(map(len, problem.ways)) + len(prices) + len(rents) <= LARGEST_EXACT:
            found = _better(found, _exact(problem, shares, prices, rents, scale))
        if found is None:
            raise OffloadError("the demands fill the stores to the last byte and no exact split was found: give some "
                               "room, or fewer demands.")
        if not 0 < found.attained < scale / 1000:
            return found
        scale = found.attained  # far below the first guess, where tolerances would hide it


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


def _floats(problem: Problem, scale: float) -> tuple[list[list[float]], list[float], list[float]]:
    """HiGHS on shares and T / scale: shares by demand, B_r y_r by rate (sum 1) and z_t by store."""
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
    exact_scale = Fraction(scale)
    for column, (j, p) in enumerate(columns):
        demand[j, column] = 1.0
        for name, a in problem.ways[j][p].use.items():
            matrix[at[name], column] = a * problem.demands[j] / problem.rates[name] / exact_scale
        for name, a in problem.ways[j][p].store.items():
            matrix[below[name], column] = a * problem.demands[j] / size[name]
    matrix[: len(rates), -1] = -1.0
    limits = numpy.array([0.0] * len(rates) + [float(problem.stores[name] / size[name]) for name in stores])
    asked = [j for j, amount in enumerate(problem.demands) if amount]
    shares = [[1.0, *[0.0] * (len(ways) - 1)] for ways in problem.ways]
    if not asked or not rates:
        return shares, [1.0 / len(rates)] * len(rates) if rates else [], [0.0] * len(stores)
    cost = numpy.zeros(len(columns) + 1)
    cost[-1] = 1.0
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(cost, matrix, limits, demand[asked], numpy.ones(len(asked)), method="highs-ds", options=options)
    if answer.x is None:
        if stores:
            raise OffloadError("the stores cannot hold the demands: give more room, or more places to choose from.")
        return shares, [1.0 / len(rates)] * len(rates), []  # certified all the same, and then far apart
    for j in asked:
        shares[j] = []
    for column, (j, _) in enumerate(columns):
        shares[j].append(float(answer.x[column]))
    duals = [max(0.0, -float(value)) for value in answer.ineqlin.marginals]
    rents = [scale * dual / float(size[name]) for dual, name in zip(duals[len(rates):], stores, strict=True)]
    return shares, duals[: len(rates)], rents


# From floats to rationals.


def _repaired(problem: Problem, shares: Sequence[Sequence[float]]) -> list[list[Fraction]]:
    """Shares without negatives that sum to one."""
    found = []
    for given in shares:
        parts = [Fraction(round(max(share, 0.0) * GRAIN), GRAIN) for share in given]
        whole = sum(parts)
        found.append([part / whole for part in parts] if whole else [ONE, *[ZERO] * (len(parts) - 1)])
    return found


def _rounded(problem: Problem, prices: Sequence[float], rents: Sequence[float]) -> tuple[Table, Table]:
    """Prices and rents that are not negative, with sum B_r y_r = 1."""
    parts = {name: Fraction(round(w * GRAIN), GRAIN) for name, w in zip(problem.rates, prices, strict=True) if w > SMALL}
    whole = sum(parts.values())
    return (
        {name: part / whole / problem.rates[name] for name, part in parts.items()},
        {name: Fraction(z) for name, z in zip(problem.stores, rents, strict=True) if z > 0},
    )


def distance(way: Way, prices: Table, rents: Table) -> Fraction:
    """sum_r a_rp y_r + sum_t s_tp z_t."""
    return sum((a * prices.get(name, ZERO) for name, a in way.use.items()),
               sum((a * rents.get(name, ZERO) for name, a in way.store.items()), ZERO))  # fmt: skip


def loads_of(problem: Problem, shares: Sequence[Sequence[Fraction]]) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """What a split puts on each rate and each store."""
    loads, stored = dict.fromkeys(problem.rates, ZERO), dict.fromkeys(problem.stores, ZERO)
    for amount, ways, parts in zip(problem.demands, problem.ways, shares, strict=True):
        for way, part in zip(ways, parts, strict=True):
            if part:
                for name, a in way.use.items():
                    loads[name] += a * part * amount
                for name, a in way.store.items():
                    stored[name] += a * part * amount
    return loads, stored


def _weighed(
    problem: Problem, shares: Sequence[Sequence[Fraction]], prices: Table, rents: Table
) -> Solution | None:
    """Both sides of the interval, exactly; None where shares are negative or overfill a store."""
    loads, stored = loads_of(problem, shares)
    if any(part < 0 for parts in shares for part in parts):
        return None
    if any(stored[name] > room for name, room in problem.stores.items()):
        return None
    attained = max((load / problem.rates[name] for name, load in loads.items()), default=ZERO)
    bound, rents, distances = max((lower_bound(problem, prices, some) for some in (rents, {})), key=lambda one: one[0])
    return Solution(bound, attained, tuple(map(tuple, shares)), prices, rents, distances)


def lower_bound(problem: Problem, prices: Table, rents: Table) -> tuple[Fraction, Table, tuple[Fraction, ...]]:
    """The bound that prices and rents prove, the rents, and each demand's distance."""
    distances = tuple(min(distance(way, prices, rents) for way in ways) for ways in problem.ways)
    worth = sum((d * amount for d, amount in zip(distances, problem.demands, strict=True)), ZERO)
    worth -= sum((problem.stores[name] * z for name, z in rents.items()), ZERO)
    paid = sum((problem.rates[name] * y for name, y in prices.items()), ZERO)
    return (worth / paid if paid else ZERO), rents, distances


def _better(one: Solution | None, other: Solution | None) -> Solution | None:
    """The larger bound and the shorter time of two answers to one problem."""
    if one is None or other is None:
        return one or other
    low = other if other.bound >= one.bound else one
    high = other if other.attained <= one.attained else one
    return replace(low, attained=high.attained, shares=high.shares)


# An exact optimum: what floats say is tight holds with equality, and that is solved in rationals.


def _exact(
    problem: Problem, shares: Sequence[Sequence[float]], prices: Sequence[float], rents: Sequence[float],
    scale: Fraction,
) -> Solution | None:
    parts = _exact_shares(problem, shares, prices, rents, scale)
    return _weighed(problem, parts, *_exact_prices(problem, shares, prices, rents, scale))


def _exact_shares(
    problem: Problem, shares: Sequence[Sequence[float]], prices: Sequence[float], rents: Sequence[float],
    scale: Fraction,
) -> list[list[Fraction]]:
    used = [(j, p) for j, parts in enumerate(shares) for p, part in enumerate(parts) if part > SMALL]
    rough, filled = loads_of(problem, _repaired(problem, shares))
    time = max((load / problem.rates[name] for name, load in rough.items()), default=ZERO)
    rows: list[tuple[dict[object, Fraction], Fraction]] = []
    for j in range(len(problem.demands)):
        rows.append(({(j, p): ONE for i, p in used if i == j}, ONE))
    tight = []
    for name, w in zip(problem.rates, prices, strict=True):
        slack = float((time - rough[name] / problem.rates[name]) / scale)
        if w > SMALL or slack < TIGHT:
            row = {(j, p): problem.ways[j][p].use[name] * problem.demands[j] / problem.rates[name]
                   for j, p in used if problem.ways[j][p].use.get(name) and problem.demands[j]}  # fmt: skip
            tight.append((-w, slack, name, ({**row, "T": -ONE}, ZERO)))
    for name, z in zip(problem.stores, rents, strict=True):
        room = problem.stores[name]
        slack = float((room - filled[name]) / room) if room else 0.0
        if z > 0 or slack < TIGHT:
            row = {(j, p): problem.ways[j][p].store[name] * problem.demands[j]
                   for j, p in used if problem.ways[j][p].store.get(name) and problem.demands[j]}  # fmt: skip
            tight.append((-1.0 if z > 0 else 0.0, slack, name, (row, room)))
    rows += [row for *_, row in sorted(tight, key=lambda one: one[:3])]
    rows += [({(j, p): ONE}, Fraction(shares[j][p]).limit_denominator(10**6)) for j, p in used]
    rows.append(({"T": ONE}, time))
    found = solved(rows, [*used, "T"])
    return [[found.get((j, p), ZERO) for p in range(len(ways))] for j, ways in enumerate(problem.ways)]


def _exact_prices(
    problem: Problem, shares: Sequence[Sequence[float]], prices: Sequence[float], rents: Sequence[float],
    scale: Fraction,
) -> tuple[Table, Table]:
    w = {name: value for name, value in zip(problem.rates, prices, strict=True) if value > SMALL}
    z = {name: value for name, value in zip(problem.stores, rents, strict=True) if value > 0}
    rough = {name: Fraction(value) / problem.rates[name] for name, value in w.items()}
    rough_rents = {name: Fraction(value) for name, value in z.items()}
    rows: list[tuple[dict[object, Fraction], Fraction]] = [({("y", name): ONE for name in w}, ONE)]
    equal = []
    for j, ways in enumerate(problem.ways):
        if not problem.demands[j]:
            continue
        first = max(range(len(ways)), key=lambda p: shares[j][p])
        base = distance(ways[first], rough, rough_rents)
        for p, way in enumerate(ways):
            cost = float((distance(way, rough, rough_rents) - base) * problem.demands[j] / scale)
            if p != first and (shares[j][p] > SMALL or abs(cost) < TIGHT):
                row: dict[object, Fraction] = {}
                for sign, one in ((1, way), (-1, ways[first])):
                    for name in w:
                        if one.use.get(name):
                            _add(row, ("y", name), sign * one.use[name] / problem.rates[name])
                    for name in z:
                        if one.store.get(name):
                            _add(row, ("z", name), sign * one.store[name])
                equal.append((-shares[j][p], abs(cost), j, p, (row, ZERO)))
    rows += [row for *_, row in sorted(equal, key=lambda one: one[:4])]
    rows += [({("z", name): ONE}, value) for name, value in rough_rents.items()]
    rows += [({("y", name): ONE}, Fraction(value).limit_denominator(10**6)) for name, value in w.items()]
    found = solved(rows, [*(("y", name) for name in w), *(("z", name) for name in z)])
    return (
        {name: found["y", name] / problem.rates[name] for name in w if found["y", name] > 0},
        {name: found["z", name] for name in z if found["z", name] > 0},
    )


def _add(row: dict[object, Fraction], key: object, value: Fraction) -> None:
    total = row.get(key, ZERO) + value
    if total:
        row[key] = total
    else:
        row.pop(key, None)


def solved(
    rows: Iterable[tuple[Mapping[object, Fraction], Fraction]], unknowns: Sequence[object]
) -> dict[object, Fraction]:
    """Values that meet linear equations, the earlier ones first: a row that depends on those before it is left out.

    The rows must determine every unknown. Elimination in rationals, on rows without zeros.
    """
    pivots: dict[object, tuple[dict[object, Fraction], Fraction]] = {}
    order: list[object] = []
    for given, right in rows:
        if len(order) == len(unknowns):
            break
        row = dict(given)
        for key in order:  # each pivot row is free of the pivots before it
            factor = row.get(key)
            if factor:
                known, value = pivots[key]
                for name, coefficient in known.items():
                    _add(row, name, -factor * coefficient)
                right -= factor * value
        if row:
            key = min(row, key=lambda name: (row[name].denominator * abs(row[name].numerator), str(name)))
            factor = row[key]
            pivots[key] = ({name: coefficient / factor for name, coefficient in row.items()}, right / factor)
            order.append(key)
    found: dict[object, Fraction] = {}
    for key in reversed(order):
        known, value = pivots[key]
        found[key] = value - sum(coefficient * found[name] for name, coefficient in known.items() if name != key)
    return found


def earlier_first(problem: Problem, found: Solution) -> tuple[tuple[Fraction, ...], ...]:
    """Shares as fast as those found that go the earlier ways first, as far as an exact split of that kind is found.

    The second problem is the same with T held at what is attained: least sum of the ways' places. Where its answer is
    not exactly as fast, the shares that were found stay.
    """
    if len({place for ways in problem.ways for place in range(len(ways))}) < 2:
        return found.shares
    held = _held(problem, found)
    shares = _repaired(problem, held[0])
    best = found.shares
    for parts in (shares, _exact_shares(problem, *held, found.attained or ONE)):
        weighed = _weighed(problem, parts, found.prices, found.rents)
        if weighed is not None and weighed.attained <= found.attained and _places(parts) < _places(best):
            best = weighed.shares
    return best


def _places(shares: Sequence[Sequence[Fraction]]) -> Fraction:
    return sum((p * part for parts in shares for p, part in enumerate(parts)), ZERO)
