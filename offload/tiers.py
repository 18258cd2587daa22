"""Placement over tiers: which bytes lie where, so that a step takes least time.

min T s.t. load_r(x) <= B_r T for each resource, stored_t(x) <= M_t for each tier, sum_t x_it = size of item i. It is a
multipath problem in which a tier is a route and routes have room for so much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from offload import lp
from offload.errors import CapacityError, OffloadError, shown
from offload.given import listed
from offload.lp import ONE, ZERO, Problem, Table, Way, rational
from offload.multipath import Route, amount_of, rates_of, use_of
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class Tier:
    """Where bytes may lie: room [B] (None: without limit), and what reading one byte of it puts on resources."""

    name: str
    room: Amount | None
    use: Route


@dataclass(frozen=True, slots=True)
class Item:
    """Bytes that are read `reads` times a step. tiers : names of those that may hold it; none named, all may."""

    bytes: Amount
    reads: Amount = 1
    tiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TierPlacement:
    """bound <= T* <= attained [s], both exact; equal where the optimum is exact.

    stored : tier -> bytes; placed : of each item. resource_seconds : of the placement shown. prices : y_r, sum B_r y_r
    = 1. With T at the bound: dT/dB_r = -T y_r (`per_rate`) and dT/dM_t = -z_t (`per_room`, [s/B]), both without zeros.
    """

    bound: Fraction
    attained: Fraction
    stored: Table
    placed: tuple[Table, ...]
    resource_seconds: Table
    prices: Table
    per_rate: Table
    per_room: Table


def tier_placement(
    rates: Mapping[str, Amount], tiers: Sequence[Tier], items: Sequence[Item]
) -> TierPlacement:
    """The placement over tiers that makes the loads of a step shortest, certified on both sides.

    Items split at will. Of placements that are equally fast, one that keeps most in the tiers given first. At most as
    many items are split as there are resources and full tiers, so whole tensors change each load by no more than that
    many items. Weak duality: T sum B_r y_r >= sum_i D_i min_t (a_ti y + z_t) - sum_t M_t z_t for any y, z >= 0. Raises
    CapacityError where the tiers are too small, OffloadError for what is no such number and where SciPy is missing.
    """
    problem, choices = _problem(rates, tiers, items)
    _check_room(problem, tiers, items)
    found = lp.solve(problem)
    shares = lp.earlier_first(problem, found)
    loads, _ = lp.loads_of(problem, shares)
    seconds = {name: load / problem.rates[name] for name, load in loads.items()}
    placed = []
    for names, parts, amount in zip(choices, shares, problem.demands, strict=True):
        placed.append({name: part * amount for name, part in zip(names, parts, strict=True)})
    stored = {tier.name: sum((one.get(tier.name, ZERO) for one in placed), ZERO) for tier in tiers}
    return TierPlacement(
        found.bound, found.attained, stored, tuple(placed), seconds, found.prices,
        {name: -found.bound * price for name, price in found.prices.items()},
        {name: -rent for name, rent in found.rents.items()},
    )  # fmt: skip


def _problem(
    rates: Mapping[str, Amount], tiers: Sequence[Tier], items: Sequence[Item]
) -> tuple[Problem, list[tuple[str, ...]]]:
    known = rates_of(rates)
    for what, kind, given in (("tiers", Tier, tiers), ("items", Item, items)):
        for one in listed(what, given, f"{kind.__name__}s"):
            if not isinstance(one, kind):
                raise OffloadError(f"{what}: {shown(one)} is no {kind.__name__}.")
    for tier in tiers:
        if not isinstance(tier.name, str):
            raise OffloadError(f"tiers: {shown(tier.name)} is no name.")
    for number, item in enumerate(items, 1):
        listed(f"the tiers of item {number}", item.tiers, "names")
    names = [tier.name for tier in tiers]
    if len(set(names)) < len(names) or not names:
        raise OffloadError(f"tiers {', '.join(names) or '(none)'}: give one at least, each under a name of its own.")
    uses = {tier.name: use_of(tier.use, known, f"tier {tier.name}") for tier in tiers}
    stores = {tier.name: amount_of(tier.room, f"the room of tier {tier.name}") for tier in tiers
              if tier.room is not None}  # fmt: skip
    demands, ways, choices = [], [], []
    for number, item in enumerate(items, 1):
        where = f"item {number}"
        demands.append(amount_of(item.bytes, where))
        reads = rational(item.reads, f"{where}: its reads")
        if reads < 0:
            raise OffloadError(f"{where} is read {shown(item.reads)} times: give 0 or more.")
        for name in item.tiers:
            if name not in uses:
                raise OffloadError(f'{where}: no tier "{name}". Tiers: {", ".join(names)}.')
        choices.append(tuple(name for name in names if not item.tiers or name in item.tiers))
        ways.append(tuple(
            Way({resource: a * reads for resource, a in uses[name].items() if reads},
                {name: ONE} if name in stores else {})
            for name in choices[-1]
        ))
    return Problem(known, stores, tuple(demands), tuple(ways)), choices


def _check_room(problem: Problem, tiers: Sequence[Tier], items: Sequence[Item]) -> None:
    """Refuse what lacks room, and say how much: for each choice of tiers that some items share, all that need it."""
    limited = set(problem.stores)
    for item in items:
        names = set(item.tiers or (tier.name for tier in tiers))
        if not names <= limited:
            continue
        held = sum((amount for other, amount in zip(items, problem.demands, strict=True)
                    if set(other.tiers or (tier.name for tier in tiers)) <= names), ZERO)  # fmt: skip
        room = sum((problem.stores[name] for name in names), ZERO)
        if held > room:
            raise CapacityError(f"{', '.join(sorted(names))}: {_short(held - room)} bytes have no room "
                                f"({_short(held)} in {_short(room)}). Add room, or a tier below.")


def _short(amount: Fraction) -> str:
    """Six digits of an amount of any size."""
    return f"{Decimal(amount.numerator) / amount.denominator:.6g}"
