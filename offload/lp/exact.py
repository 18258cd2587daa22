"""An exact optimum: what floats say is tight holds with equality, and that is solved in rationals.

Where floats cannot tell what is tight (rates or demands many orders apart), the simplex method runs in rationals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from offload.lp.problem import ONE, ZERO, Problem, Solution, Table, distance, loads_of, nearly, weighed

SMALL = 1e-9  # shares and prices below it count as none
TIGHT = 1e-7  # the same of slacks and reduced costs
GRAIN = 2**48  # floats become multiples of its reciprocal
LARGEST_TABLE = 5000  # cells up to which the simplex method runs in rationals
Row = dict[object, Fraction]


def exact_optimum(
    problem: Problem, shares: Sequence[Sequence[float]], prices: Sequence[float], rents: Sequence[Fraction],
    scale: Fraction,
) -> Solution | None:
    parts = exact_shares(problem, shares, prices, rents, scale)
    return weighed(problem, parts, *exact_prices(problem, shares, prices, rents, scale))


def exact_shares(
    problem: Problem, shares: Sequence[Sequence[float]], prices: Sequence[float], rents: Sequence[Fraction],
    scale: Fraction, held: bool = False,
) -> list[list[Fraction]]:
    used = [(j, p) for j, parts in enumerate(shares) for p, part in enumerate(parts) if part > SMALL]
    rough, filled = loads_of(problem, repaired(problem, shares))
    time = max((load / problem.rates[name] for name, load in rough.items()), default=ZERO)
    rows: list[tuple[Row, Fraction]] = []
    for j in range(len(problem.demands)):
        rows.append(({(j, p): ONE for i, p in used if i == j}, ONE))
    if held:
        rows.append(({"T": ONE}, scale))
    tight = []
    for name, w in zip(problem.rates, prices, strict=True):
        slack = nearly((time - rough[name] / problem.rates[name]) / scale)
        if w > SMALL or slack < TIGHT:
            row: Row = {(j, p): problem.ways[j][p].use[name] * problem.demands[j] / problem.rates[name]
                        for j, p in used if problem.ways[j][p].use.get(name) and problem.demands[j]}  # fmt: skip
            tight.append((-w, slack, name, ({**row, "T": -ONE}, ZERO)))
    for name, z in zip(problem.stores, rents, strict=True):
        room = problem.stores[name]
        slack = nearly((room - filled[name]) / room) if room else 0.0
        if z > 0 or slack < TIGHT:
            row = {(j, p): problem.ways[j][p].store[name] * problem.demands[j]
                   for j, p in used if problem.ways[j][p].store.get(name) and problem.demands[j]}  # fmt: skip
            tight.append((-1.0 if z > 0 else 0.0, slack, name, (row, room)))
    rows += [row for *_, row in sorted(tight, key=lambda one: one[:3])]
    rows += [({(j, p): ONE}, Fraction(shares[j][p]).limit_denominator(10**6)) for j, p in used]
    rows.append(({"T": ONE}, time))
    found = solved(rows, [*used, "T"])
    return [[found.get((j, p), ZERO) for p in range(len(ways))] for j, ways in enumerate(problem.ways)]


def exact_prices(
    problem: Problem, shares: Sequence[Sequence[float]], prices: Sequence[float], rents: Sequence[Fraction],
    scale: Fraction,
) -> tuple[Table, Table]:
    w = {name: value for name, value in zip(problem.rates, prices, strict=True) if value > SMALL}
    z = {name: value for name, value in zip(problem.stores, rents, strict=True) if value > 0}
    rough = {name: Fraction(value) / problem.rates[name] for name, value in w.items()}
    rough_rents = z
    rows: list[tuple[Row, Fraction]] = [({("y", name): ONE for name in w}, ONE)]
    equal = []
    for j, ways in enumerate(problem.ways):
        if not problem.demands[j]:
            continue
        first = max(range(len(ways)), key=lambda p: shares[j][p])
        base = distance(ways[first], rough, rough_rents)
        for p, way in enumerate(ways):
            cost = nearly((distance(way, rough, rough_rents) - base) * problem.demands[j] / scale)
            if p != first and (shares[j][p] > SMALL or abs(cost) < TIGHT):
                row: Row = {}
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


def pivoted(problem: Problem, start: Solution) -> Solution | None:
    """An exact optimum by the simplex method in rationals, for what floats cannot tell apart; no stores.

    Columns are shares, slacks of rates and T; the first basis sends each demand its most used way. Bland's rule ends
    every run (Bland 1977). None where the table is too large.
    """
    ways = [(j, p) for j, some in enumerate(problem.ways) for p in range(len(some))]
    names = list(problem.rates)
    if (len(ways) + len(names)) * (len(problem.ways) + len(names)) > LARGEST_TABLE:
        return None
    most = [max(range(len(parts)), key=parts.__getitem__) for parts in start.shares]
    rows: dict[object, Row] = {}  # basic column -> its row, with what it equals under None
    loads = dict.fromkeys(names, ZERO)
    for j, chosen in enumerate(most):
        rows[j, chosen] = {(j, p): ONE for p in range(len(problem.ways[j]))} | {None: ONE}
    for name in names:
        row: Row = {(name,): ONE, "T": -ONE}  # a slack is named by a tuple, so that no resource can be called T
        seconds: Row = {(j, p): problem.ways[j][p].use[name] * problem.demands[j] / problem.rates[name]
                        for j, p in ways if problem.ways[j][p].use.get(name) and problem.demands[j]}  # fmt: skip
        row |= seconds
        loads[name] = sum((seconds.get((j, chosen), ZERO) for j, chosen in enumerate(most)), ZERO)
        for j, chosen in enumerate(most):
            _subtract(row, rows[j, chosen], row.get((j, chosen), ZERO))
        rows[name,] = row
    cost: Row = {"T": ONE}
    rows["T"] = rows.pop((max(names, key=lambda name: loads[name]),))
    _pivot(rows, cost, "T")
    columns: list[object] = [*ways, *((name,) for name in names), "T"]
    order = {column: index for index, column in enumerate(columns)}
    while True:
        entering = min((column for column, price in cost.items() if column is not None and price < 0),
                       key=lambda column: order[column], default=None)  # fmt: skip
        if entering is None:
            break
        leaving = min(
            ((row.get(None, ZERO) / row[entering], order[basic], basic) for basic, row in rows.items()
             if row.get(entering, ZERO) > 0), default=None)  # fmt: skip
        if leaving is None:
            return None
        rows = {entering if basic == leaving[2] else basic: row for basic, row in rows.items()}
        _pivot(rows, cost, entering)
    shares = [[rows.get((j, p), {}).get(None, ZERO) for p in range(len(some))] for j, some in enumerate(problem.ways)]
    prices = {name: cost[name,] / problem.rates[name] for name in names if cost.get((name,))}
    return weighed(problem, shares, prices, {})


def _pivot(rows: dict[object, Row], cost: Row, column: object) -> None:
    """Make a column basic in the row under its name: one there, none in the other rows and in the cost."""
    own = rows[column]
    factor = own[column]
    if factor != 1:
        for key in own:
            own[key] /= factor
    for row in (*rows.values(), cost):
        if row is not own and row.get(column):
            _subtract(row, own, row[column])


def solved(
    rows: Iterable[tuple[Mapping[object, Fraction], Fraction]], unknowns: Sequence[object]
) -> Row:
    """Values that meet linear equations, the earlier ones first: a row that depends on those before it is left out.

    The rows must determine every unknown. Elimination in rationals, on rows without zeros.
    """
    pivots: dict[object, tuple[Row, Fraction]] = {}
    order: list[object] = []
    for given, right in rows:
        if len(order) == len(unknowns):
            break
        row = dict(given)
        for key in order:  # each pivot row is free of the pivots before it
            factor = row.get(key)
            if factor:
                known, value = pivots[key]
                _subtract(row, known, factor)
                right -= factor * value
        if row:
            key = min(row, key=lambda name: (row[name].denominator * abs(row[name].numerator), str(name)))
            factor = row[key]
            pivots[key] = ({name: coefficient / factor for name, coefficient in row.items()}, right / factor)
            order.append(key)
    found: Row = {}
    for key in reversed(order):
        known, value = pivots[key]
        found[key] = value - sum(coefficient * found[name] for name, coefficient in known.items() if name != key)
    return found


def _subtract(row: Row, other: Mapping[object, Fraction], factor: Fraction) -> None:
    if factor:
        for key, value in other.items():
            _add(row, key, -factor * value)


def _add(row: Row, key: object, value: Fraction) -> None:
    total = row.get(key, ZERO) + value
    if total:
        row[key] = total
    else:
        row.pop(key, None)


def repaired(problem: Problem, shares: Sequence[Sequence[float]]) -> list[list[Fraction]]:
    """Shares without negatives that sum to one."""
    found = []
    for given in shares:
        parts = [Fraction(round(max(share, 0.0) * GRAIN), GRAIN) for share in given]
        whole = sum(parts)
        found.append([part / whole for part in parts] if whole else [ONE, *[ZERO] * (len(parts) - 1)])
    return found
