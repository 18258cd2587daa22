"""Multipath floor: the least time in which commodities ship, each split over its routes as it likes.

min T s.t. sum_p x_jp = D_j; sum_jp a_rp x_jp <= B_r T; x >= 0 (maximum concurrent flow, T* = 1 / throughput: Shahrokhi
and Matula 1990). Its dual is a price y_r on each resource: T* = max_y sum_j D_j dist_y(j) / sum_r B_r y_r with
dist_y(j) the price of j's cheapest route, and any prices prove what they give. All answers are exact rationals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offload import lp
from offload.bounds import TIE, LoadBound, load_bound
from offload.errors import OffloadError, did_you_mean, shown
from offload.given import as_long, mapping, pairs
from offload.lp import ONE, ZERO, Problem, Table, Way, rational
from offload.plan import Amount

Route = Mapping[str, Amount]  # resource -> a_rp: what one byte puts on it
Commodity = tuple[Amount, Sequence[Route]]  # D_j [B] and its routes; the first is the fixed one
Nearest = Callable[[Table], Sequence[tuple[Fraction, Mapping[str, Fraction]]]]
MOST_FOR_CUTS = 16  # resources up to which every cut is tried
MOST_ROUNDS = 500


@dataclass(frozen=True, slots=True)
class Multipath:
    """bound <= T* <= attained [s]: proved by prices and shown by flows, both exact; equal where the optimum is exact.

    fixed : time with every commodity on its first route. flows : x_jp [B] over `routes`. prices : y_r, without zeros,
    sum B_r y_r = 1; who bears one is saturated in every optimal flow, and together they are the bottleneck. distances :
    dist_y(j). saturated : resources that the flows fill up to the gap. cut : see `named_cut`.
    With T at the bound: dT/dB_r = -T y_r (`per_rate`), dT/dD_j = dist_y(j), dT/da_rp = y_r x_jp; where prices are not
    unique these are subgradients. Euler: sum_r B_r dT/dB_r = -T, sum_j D_j dT/dD_j = T.
    """

    bound: Fraction
    attained: Fraction
    fixed: Fraction
    routes: tuple[tuple[Table, ...], ...]
    flows: tuple[tuple[Fraction, ...], ...]
    prices: Table
    distances: tuple[Fraction, ...]
    saturated: tuple[str, ...]
    cut: tuple[str, ...] | None

    @property
    def gap(self) -> Fraction:
        """Certified gap, (attained - bound) / attained; 0 where the optimum is exact."""
        return (self.attained - self.bound) / self.attained if self.attained else ZERO

    @property
    def per_rate(self) -> Table:
        """dT/dB_r [s per unit of rate] of the resources with a price; 0 for all others."""
        return {name: -self.bound * price for name, price in self.prices.items()}


def multipath(rates: Mapping[str, Amount], commodities: Sequence[Commodity]) -> Multipath:
    """The multipath floor over given routes, certified on both sides (see `Multipath`).

    rates : resource -> B_r > 0. commodities : (D_j, routes), a route as {resource: a_rp}. Ints, floats and Fractions
    are taken exactly. Raises OffloadError for what is no such number, for resources that are not known, commodities
    without a route, and where SciPy is missing.
    """
    problem = _problem(rates, commodities)
    return _answer(problem, lp.solve(problem), _first(problem))


def dual_bound(
    rates: Mapping[str, Amount], commodities: Sequence[Commodity], prices: Mapping[str, Amount]
) -> Fraction:
    """sum_j D_j dist_y(j) / sum_r B_r y_r: a lower bound on the multipath time for any prices y >= 0, exactly.

    Holds for every y, as sum_j D_j dist_y(j) <= sum_r y_r sum_jp a_rp x_jp <= T sum_r y_r B_r. Raises OffloadError
    for prices that are negative or all zero.
    """
    problem = _problem(rates, commodities)
    mapping("prices", prices, "{resource: price}")
    known = {name: rational(price, f"the price of {name}") for name, price in prices.items()}
    for name, price in known.items():
        _known(name, problem.rates)
        if price < 0:
            raise OffloadError(f"the price of {name} is {shown(prices[name])}: a price is at least 0.")
    if not any(known.values()):
        raise OffloadError("every price is 0, which proves nothing: give at least one resource a price.")
    return lp.lower_bound(problem, known, {})[0]


def fixed_bound(rates: Mapping[str, Amount], commodities: Sequence[Commodity]) -> Fraction:
    """max_r L_r / B_r with every commodity on its first route [s], exactly: never below the multipath floor."""
    return _first(_problem(rates, commodities))


def fixed_is_optimal(rates: Mapping[str, Amount], commodities: Sequence[Commodity]) -> bool:
    """Whether one bottleneck of the first routes proves that no other routing is faster (sufficient, not necessary).

    True if for some r that gives max_r L_r / B_r no route of any commodity puts less on r than its first one: then
    y = e_r proves that time. Needs no SciPy.
    """
    problem = _problem(rates, commodities)
    seconds = _loads(problem).resource_seconds
    longest = max(seconds.values(), default=ZERO)
    return any(
        all(way.use.get(name, ZERO) >= ways[0].use.get(name, ZERO)
            for amount, ways in zip(problem.demands, problem.ways, strict=True) if amount for way in ways)
        for name, time in seconds.items() if time == longest
    )  # fmt: skip


def best_cut(rates: Mapping[str, Amount], commodities: Sequence[Commodity]) -> tuple[Fraction, tuple[str, ...]]:
    """The best that a set S of resources proves by itself [s], and S: max_S demand(S) / cap(S), found by trying all.

    A commodity counts if each of its routes meets S; where coefficients are no ones, with the least over its routes of
    the largest a_rp in S. Equal to the multipath floor for one source and sink (max-flow min-cut) or, without
    direction, two commodities (Hu 1963); in general below it. Raises OffloadError for more than 16 loaded resources.
    """
    problem = _problem(rates, commodities)
    used = sorted({name for ways in problem.ways for way in ways for name, a in way.use.items() if a})
    if len(used) > MOST_FOR_CUTS:
        raise OffloadError(f"{len(used)} resources have too many cuts to try: at most {MOST_FOR_CUTS}. "
                           "Ask for prices instead (multipath).")
    bits = {name: 1 << index for index, name in enumerate(used)}
    # A route by the coefficients on it, largest first: the first that a set meets is the largest.
    ways = [
        [sorted(((a, bits[name]) for name, a in way.use.items() if a), reverse=True) for way in ways]
        for ways in problem.ways
    ]
    best: tuple[Fraction, tuple[str, ...]] = (ZERO, ())
    for some in range(1, 1 << len(used)):
        worth = ZERO
        for amount, options in zip(problem.demands, ways, strict=True):
            worth += amount * min(next((a for a, bit in way if bit & some), ZERO) for way in options)
        if worth:
            names = tuple(name for name in used if bits[name] & some)
            time = worth / sum(problem.rates[name] for name in names)
            if time > best[0] or (time == best[0] and len(names) < len(best[1])):
                best = (time, names)
    return best


def named_cut(
    prices: Table, distances: Sequence[Fraction], demands: Sequence[Fraction], routes: Sequence[Sequence[Table]]
) -> tuple[str, ...] | None:
    """The resources with a price, if they prove the floor as a cut: T = demand across them / their capacity.

    That is so where all bear one price c, every commodity is at distance 0 or c (each of its routes crosses at least
    once, those in use exactly once), and coefficients on them are 0 or 1. None otherwise: several commodities may be
    bound by prices that are no cut.
    """
    as_long("distances", distances, "routes", routes)
    as_long("demands", demands, "routes", routes)
    worth = set(mapping("prices", prices, "{resource: price}").values())
    if len(worth) != 1:
        return None
    price = worth.pop()
    crossing = [ways for ways, d, amount in zip(routes, distances, demands, strict=True) if d and amount]
    if any(d not in (0, price) for d, amount in zip(distances, demands, strict=True) if amount) or not crossing:
        return None
    if any(way.get(name, ZERO) not in (0, 1) for ways in crossing for way in ways for name in prices):
        return None
    return tuple(sorted(prices))


# Routes that are too many to list: made when the prices ask for them.


def multipath_routed(
    rates: Mapping[str, Amount], commodities: Sequence[Commodity], nearest: Nearest
) -> Multipath:
    """The multipath floor over all routes that `nearest` knows, found as prices ask for them.

    commodities : with the routes to begin with, the first of them fixed. nearest : prices -> for each commodity the
    price of its cheapest route and that route; exact where prices are. Solve over the known routes, add what is cheaper
    at their prices, repeat (Ford and Fulkerson 1958); the bound is weighed with the distances of `nearest`, so it holds
    for every route that it knows, listed or not. Raises as `multipath`.
    """
    problem = _problem(rates, commodities)
    if not callable(nearest):
        raise OffloadError(f"nearest: {shown(nearest)} is no function of prices.")
    polish = False
    for _ in range(MOST_ROUNDS):
        found = lp.solve(problem, polish)
        cheapest = nearest(found.prices)
        known = found.distances
        slack = ZERO if polish else Fraction(1, 10**9)
        ways, grown = list(problem.ways), False
        for j, (length, route) in enumerate(cheapest):
            way = Way({name: a for name, a in route.items() if a}, {})
            if problem.demands[j] and length < known[j] * (1 - slack) and way not in ways[j]:
                ways[j], grown = (*ways[j], way), True
        if grown:
            problem = Problem(problem.rates, {}, problem.demands, tuple(ways))
        elif polish:
            break
        else:
            polish = True
    distances = tuple(min(length, other) for (length, _), other in zip(nearest(found.prices), found.distances,
                                                                     strict=True))  # fmt: skip
    bound = sum((d * amount for d, amount in zip(distances, problem.demands, strict=True)), ZERO)
    kept = tuple(one[: len(parts)] for one, parts in zip(problem.ways, found.shares, strict=True))
    solved = lp.Solution(bound, found.attained, found.shares, found.prices, {}, distances)
    return _answer(Problem(problem.rates, {}, problem.demands, kept), solved, _first(problem))


# From what is given to a problem, and from its solution to an answer.


def rates_of(rates: Mapping[str, Amount]) -> dict[str, Fraction]:
    """The rates as rationals; raises OffloadError for what is no positive number."""
    mapping("rates", rates, "{resource: rate}")
    found = {name: rational(rate, f"the rate of {name}") for name, rate in rates.items()}
    for name, rate in found.items():
        if rate <= 0:
            raise OffloadError(f"the rate of {name} is {shown(rates[name])}: a rate is above 0; leave out routes over "
                               "a resource that serves nothing.")
    return found


def use_of(use: Route, rates: Table, where: str) -> Table:
    """Coefficients as rationals without zeros; raises OffloadError for negative ones and unknown resources."""
    found = {}
    for name, given in mapping(where, use, "{resource: coefficient}").items():
        _known(name, rates, where)
        a = rational(given, f"{where}: the coefficient on {name}")
        if a < 0:
            raise OffloadError(f"{where}: the coefficient on {name} is {shown(given)}: it is at least 0.")
        if a:
            found[name] = a
    return found


def amount_of(given: Amount, where: str) -> Fraction:
    """An amount of bytes as a rational; raises OffloadError where it is negative or no number."""
    amount = rational(given, f"{where}: its bytes")
    if amount < 0:
        raise OffloadError(f"{where} ships {shown(given)} bytes: an amount is at least 0.")
    return amount


def _problem(rates: Mapping[str, Amount], commodities: Sequence[Commodity]) -> Problem:
    known = rates_of(rates)
    demands, ways = [], []
    for number, (given, routes) in enumerate(pairs("commodities", commodities, "(amount, routes)"), 1):
        where = f"commodity {number}"
        demands.append(amount_of(given, where))
        if isinstance(routes, str | Mapping) or not isinstance(routes, Sequence):
            raise OffloadError(f"{where}: its routes are {shown(routes)}; give a list of {{resource: coefficient}}.")
        if not routes:
            raise OffloadError(f"{where} has no route, so it never arrives: give one at least, or leave it out.")
        ways.append(tuple(
            Way(use_of(route, known, f"{where}, route {index}"), {}) for index, route in enumerate(routes, 1)
        ))
    return Problem(known, {}, tuple(demands), tuple(ways))


def _known(name: str, rates: Table, where: str = "") -> None:
    if name not in rates:
        raise OffloadError(f'{where}{": " if where else ""}no rate of "{name}" is given. '
                           f'{did_you_mean(name, rates, "Resources")}')


def _loads(problem: Problem) -> LoadBound:
    first = [(amount, ways[0].use) for amount, ways in zip(problem.demands, problem.ways, strict=True)]
    return load_bound(problem.rates, first)


def _first(problem: Problem) -> Fraction:
    seconds: Fraction = _loads(problem).seconds * ONE
    return seconds


def _answer(problem: Problem, found: lp.Solution, fixed: Fraction) -> Multipath:
    loads, _ = lp.loads_of(problem, found.shares)
    near = found.bound * (1 - Fraction(TIE))
    filled = [name for name, load in loads.items() if load and load >= near * problem.rates[name]]
    routes = tuple(tuple(way.use for way in ways) for ways in problem.ways)
    flows = tuple(
        tuple(part * amount for part in parts)
        for parts, amount in zip(found.shares, problem.demands, strict=True)
    )
    cut = named_cut(found.prices, found.distances, problem.demands, routes) if found.bound else None
    return Multipath(
        found.bound, found.attained, fixed, routes, flows, found.prices, found.distances, tuple(sorted(filled)), cut
    )
