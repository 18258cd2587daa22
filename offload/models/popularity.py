"""How often a router picks each expert: alike, by Zipf's law, or by given weights, k different experts for a token.

Weights are drawn without replacement (softmax scores with Gumbel noise, of which the k largest are kept: Plackett and
Luce). An expert's chance to be among the k is then not k times its share, which may exceed 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from offload.errors import ModelError, one_line
from offload.given import is_number, is_real, plain
from offload.models.whole import check_whole

NO_NUMBERS = (bool, np.bool_, np.timedelta64, np.datetime64)  # that NumPy would turn to numbers
MOST_EXPERTS = 65_536
MOST_PAIRED = 1024  # whose pairs are laid out: a table of E x E, and time with its size
ACCURACY = 1e-12  # relative, of chances found by integration
PAIR_ACCURACY = 1e-10  # of the chances of pairs
FINEST = 12  # halvings of the step, at most
LARGEST_TABLE = 2**22  # numbers that are held at a time


def uniform_inclusion(experts: int, active: int, *, exact: bool = False) -> np.ndarray:
    """Chance of each expert to be picked for a token where all are alike: k/E. Shape (experts,).

    exact : as Fractions. Raises ModelError unless 1 <= active <= experts.
    """
    experts, active = check_picked(experts, active)
    share = Fraction(active, experts)
    return np.full(experts, share if exact else float(share), dtype=object if exact else float)


def zipf_weights(experts: int, exponent: float) -> np.ndarray:
    """Weights i^-s of experts 1 to E, the most popular first; s = 0 is all alike. Shape (experts,).

    Whole exponents up to 20 of up to 4,096 experts are Fractions when `exponent` is a Fraction. Raises ModelError for
    a negative or endless exponent, or one so large that the last weight is 0.
    """
    experts, _ = check_picked(experts, 1)
    if isinstance(exponent, Fraction) and exponent.denominator == 1 and 0 <= exponent <= 20 and experts <= 4096:
        return np.array([Fraction(1, rank ** int(exponent)) for rank in range(1, experts + 1)], dtype=object)
    value = _number("exponent", exponent)
    weights = np.arange(1, experts + 1, dtype=float) ** -value if 0 <= value < 1e3 else np.zeros(1)
    if not weights[-1] > 0:
        raise ModelError(f"exponent is {exponent}: the weights i^-s are from s = 0 (all alike) to about 2 (few experts "
                         f"do most), and the last of {experts} must stay above 0.")
    return weights


def inclusion(weights: Sequence[float] | np.ndarray, active: int) -> np.ndarray:
    """Chance of each expert to be among the k of one token, drawn one after another without replacement. Shape (E,).

    k = 1: q, the share of its weight. k = 2: q_e + sum over j of q_j q_e / (1 - q_j). Both exact, in Fractions where
    the weights are. More: expert e rings after a time of rate w_e and is picked if fewer than k of the others rang
    before: the integral of w_e exp(-w_e t) P(fewer than k others by t) dt, the number of others being a sum of
    independent 0s and 1s (a dynamic program without subtractions). The trapezoidal rule over log t is halved until
    nothing changes by more than 1e-12, relative. Sum: k. Raises ModelError for weights that are not above 0.
    """
    rates, active = _rates(weights, active)
    if active == len(rates):
        return np.full(len(rates), rates[0] / rates[0], dtype=rates.dtype)
    share: np.ndarray = rates / rates.sum()
    if active == 1:
        return share
    if active == 2:
        pairs: np.ndarray = share + share * _sum_of_others(share / _sum_of_others(share))
        return pairs
    found = _integrated(_as_floats(rates), active, _densities, ACCURACY)
    return np.where(found > 1, 1.0, found)  # by rounding, where an expert is picked nearly always


def pair_inclusion(weights: Sequence[float] | np.ndarray, active: int) -> np.ndarray:
    """Chance of each pair of experts to be picked for the same token, as `inclusion`; its diagonal is the inclusion.

    Shape (E, E). k = 2: q_e q_f (1 / (1 - q_e) + 1 / (1 - q_f)), exact. More: both rang and fewer than k - 1 others
    before the later of them, integrated to 1e-10. Time grows with E^2 k: 500 experts with 8 for a token take seconds,
    where all are alike none. Raises ModelError for more than MOST_PAIRED experts.
    """
    rates, active = _rates(weights, active)
    _check_paired(len(rates))
    single = inclusion(weights, active)
    if active == 1:
        pairs = np.zeros((len(rates), len(rates)), dtype=rates.dtype)
    elif active == len(rates):
        pairs = np.full((len(rates), len(rates)), single[0], dtype=rates.dtype)
    elif active == 2:
        share = rates / rates.sum()
        after = 1 / _sum_of_others(share)
        pairs = np.outer(share, share) * np.add.outer(after, after)
    elif (rates == rates[0]).all():
        pairs = uniform_pairs(len(rates), active).astype(rates.dtype)
    else:
        pairs = _integrated(_as_floats(rates), active, _pair_densities, PAIR_ACCURACY)
    np.fill_diagonal(pairs, single)
    return pairs


def uniform_pairs(experts: int, active: int) -> np.ndarray:
    """Chance of each pair where all experts are alike: k(k-1) / (E(E-1)), on the diagonal k/E. Shape (E, E)."""
    experts, active = check_picked(experts, active)
    _check_paired(experts)
    together = active * (active - 1) / (experts * (experts - 1)) if experts > 1 else 1.0
    pairs = np.full((experts, experts), together)
    np.fill_diagonal(pairs, active / experts)
    return pairs


def _check_paired(experts: int) -> None:
    if experts > MOST_PAIRED:
        raise ModelError(f"chances of pairs are found of up to {MOST_PAIRED:,} experts of a layer, and these are "
                         f"{experts:,}.")


def check_picked(experts: Any, active: Any) -> tuple[int, int]:
    """Both as whole numbers. Raises ModelError unless a token can be routed to `active` of `experts`."""
    experts, active = plain(experts), plain(active)
    check_whole("experts", experts, 1, MOST_EXPERTS)
    check_whole("active (experts for each token)", active, 1, MOST_EXPERTS)
    if active > experts:
        raise ModelError(f"active is {active}: a token cannot go to more than the {experts} experts that there are. "
                         "Give the experts of one layer and those that one token uses.")
    return experts, active


def _number(name: str, value: Any) -> float:
    value = plain(value)
    try:
        if is_number(value):
            return float(value)
    except OverflowError:
        pass
    raise ModelError(f"{name} is {one_line(value)!r}; it must be a number.")


def _rates(weights: Sequence[float] | np.ndarray, active: Any) -> tuple[np.ndarray, int]:
    """The weights as rates: Fractions as they are, anything else as floats of which the largest is 1."""
    rates = as_numbers("weights", weights)
    _, active = check_picked(len(rates), active)
    if not (rates > 0).all():
        raise ModelError("weights: each expert's must be above 0. Leave out experts that are never picked.")
    if rates.dtype == object:
        return rates, active
    rates = rates / rates.max()
    if not (rates > 0).all():
        raise ModelError("weights: the smallest is too small beside the largest to be counted.")
    return rates, active


def as_numbers(name: str, values: Any) -> np.ndarray:
    """A list of numbers as an array: of Fractions if there is one and the rest are Fractions or whole, else floats.

    Raises ModelError for anything but one dimension of 1 to 65,536 finite numbers.
    """
    try:
        array = array_of(values)
        exact = array.dtype == object and all(isinstance(one, Fraction | int) for one in array.ravel())
        if array.dtype.kind not in "iufO" or (array.dtype == object and not all(map(is_real, array.ravel()))):
            raise TypeError
        found = np.array([Fraction(one) for one in array], dtype=object) if exact else array.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"{name}: give a list of numbers, one for each expert.") from None
    if found.ndim != 1 or not 1 <= len(found) <= MOST_EXPERTS:
        raise ModelError(f"{name}: give a list of 1 to {MOST_EXPERTS:,} numbers, one for each expert; this has the "
                         f"shape {found.shape}.")
    if not exact and not np.isfinite(found).all():
        raise ModelError(f"{name}: each must be a number; one is not (nan or inf).")
    return found


def array_of(values: Any) -> np.ndarray:
    """An array of what is given; raises TypeError where a list has truths or times among its numbers, ValueError where
    its rows differ in length."""
    if isinstance(values, list | tuple) and any(isinstance(one, NO_NUMBERS) for one in values):
        raise TypeError
    if np.ma.is_masked(values):
        raise TypeError
    return np.asarray(values)


def _sum_of_others(values: np.ndarray) -> np.ndarray:
    """For each value the sum of all others, without the cancellation of 1 - q where q is nearly all."""
    before, after = np.cumsum(values), np.cumsum(values[::-1])[::-1]
    nothing = values[:1] * 0
    others: np.ndarray = np.concatenate([nothing, before[:-1]]) + np.concatenate([after[1:], nothing])
    return others


def _as_floats(rates: np.ndarray) -> np.ndarray:
    floats: np.ndarray = (rates / rates.max()).astype(float)
    return floats


def _integrated(rates: np.ndarray, active: int, densities: Any, accuracy: float) -> np.ndarray:
    """The integral over log t of densities(t, rates, active), by the trapezoidal rule with halved steps.

    Below `low` all that is left out is e^-40 of the whole; above `high` one of the k + 1 fastest experts is late by
    50 mean times. The integrand is smooth and dies off at both ends, where the rule converges faster than any power.
    """
    order = np.argsort(-rates, kind="stable")  # fast ones first
    rates, low = rates[order], -np.log(rates.sum()) - 40
    high = np.log(50 + np.log(len(rates))) - np.log(rates[active])
    count = int(np.ceil((high - low) / 0.5))
    step = (high - low) / count
    total = _summed(np.linspace(low, high, count + 1), rates, active, densities)
    found = total * step
    for _ in range(FINEST):
        total = total + _summed(low + step * (np.arange(count) + 0.5), rates, active, densities)
        step, count, before = step / 2, count * 2, found
        found = total * step
        if (abs(found - before) <= accuracy * abs(found)).all():
            break
    else:
        raise ModelError("weights: they are too far apart for the chances to be found by integration.")
    back = np.argsort(order, kind="stable")
    ordered: np.ndarray = found[back] if found.ndim == 1 else found[np.ix_(back, back)]
    return ordered


def _summed(logs: np.ndarray, rates: np.ndarray, active: int, densities: Any) -> np.ndarray:
    nodes = max(1, LARGEST_TABLE // (active * len(rates)))
    found: np.ndarray = sum(densities(np.exp(logs[i : i + nodes]), rates, active) for i in range(0, len(logs), nodes))
    return found


def _times_one_more(counts: np.ndarray, rung: np.ndarray) -> np.ndarray:
    """Chances of 0, 1, ... rung experts (last axis) once one more is looked at, which rang with chance `rung`."""
    more: np.ndarray = counts * (1 - rung)[..., None]
    more[..., 1:] += counts[..., :-1] * rung[..., None]
    return more


def _suffixes(rung: np.ndarray, length: int) -> list[np.ndarray]:
    """For each place e: chances that at most 0, 1, ... of the experts e, e+1, ... rang. rung : (nodes, experts)."""
    counts = np.zeros((rung.shape[0], length))
    counts[:, 0] = 1
    found = [np.cumsum(counts, axis=-1)]
    for place in range(rung.shape[1] - 1, -1, -1):
        counts = _times_one_more(counts, rung[:, place])
        found.append(np.cumsum(counts, axis=-1))
    return found[::-1]


def _densities(times: np.ndarray, rates: np.ndarray, active: int) -> np.ndarray:
    """Sum over times of t w exp(-w t) P(fewer than k others rang by t), for each expert."""
    work = np.multiply.outer(times, rates)
    rung = -np.expm1(-work)
    after = _suffixes(rung, active)
    before = np.zeros((len(times), active))
    before[:, 0] = 1
    found = np.empty(len(rates))
    for place in range(len(rates)):
        fewer = (before * after[place + 1][:, ::-1]).sum(axis=1)  # i before, at most k - 1 - i after
        found[place] = (work[:, place] * np.exp(-work[:, place]) * fewer).sum()
        before = _times_one_more(before, rung[:, place])
    return found


def _pair_densities(times: np.ndarray, rates: np.ndarray, active: int) -> np.ndarray:
    """Sum over times of t d/dt P(both rang) x P(fewer than k - 1 others rang by t), for each pair."""
    work = np.multiply.outer(times, rates)
    rung, rings = -np.expm1(-work), work * np.exp(-work)
    after = _suffixes(rung, active - 1)
    size = len(rates)
    found = np.zeros((size, size))
    before = np.zeros((len(times), active - 1))
    before[:, 0] = 1
    without = np.empty((len(times), size, active - 1))  # [:, e]: those before the present place, without e
    for place in range(size):
        fewer = (without[:, :place] * after[place + 1][:, None, ::-1]).sum(axis=2)
        late = rings[:, [place]] * rung[:, :place] + rings[:, :place] * rung[:, [place]]
        found[:place, place] = found[place, :place] = (late * fewer).sum(axis=0)
        without[:, :place] = _times_one_more(without[:, :place], np.broadcast_to(rung[:, [place]], (len(times), place)))
        without[:, place] = before
        before = _times_one_more(before, rung[:, place])
    return found
