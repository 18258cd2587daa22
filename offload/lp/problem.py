"""A problem, what solves it, and the exact weighing of both sides of an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any

from offload.errors import OffloadError, shown
from offload.given import is_real

ZERO, ONE = Fraction(0), Fraction(1)
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


def rational(value: Any, what: str) -> Fraction:
    """A finite number, exactly; raises OffloadError that names `what` for anything else."""
    if is_real(value) and isinstance(value, Integral):
        return Fraction(int(value))
    if is_real(value) and isinstance(value, Rational):
        return Fraction(value)
    if is_real(value) and math.isfinite(value):
        return Fraction(float(value))
    raise OffloadError(f"{what} is {shown(value)}: give a finite number.")


def nearly(value: Fraction) -> float:
    """As a float, infinite where it is too large for one: good for an order and a threshold only."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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


def weighed(
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


def better(one: Solution | None, other: Solution | None) -> Solution | None:
    """The larger bound and the shorter time of two answers to one problem."""
    if one is None or other is None:
        return one or other
    low = other if other.bound > one.bound else one
    high = other if other.attained < one.attained else one
    return replace(low, attained=high.attained, shares=high.shares)
