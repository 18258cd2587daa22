"""What a bound gains where a rate or an amount changes a little, and what an upgrade gains until something else binds.

A maximum has a kink where several of its terms tie: there the derivative of a change upwards differs from that of one
downwards, and both are given. Numbers may be ints, floats or Fractions; with Fractions everything is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offload.bounds import TIE, load_bound
from offload.errors import FormulaError, did_you_mean, one_line, shown
from offload.given import as_long, each_not_negative, finite, listed, load_rows, positive, whole
from offload.plan import UNLIMITED, Amount

Transfers = Sequence[tuple[Amount, Mapping[str, Amount]]]


@dataclass(frozen=True, slots=True)
class Slope:
    """A derivative from both sides. down : of a smaller argument; up : of a larger one. They differ at a kink."""

    down: Amount
    up: Amount

    @property
    def smooth(self) -> bool:
        """Whether both sides agree, so that there is one derivative."""
        agree: bool = self.down == self.up
        return agree


@dataclass(frozen=True, slots=True)
class LoadGradient:
    """The load bound [s], its tie set, and its slopes: by rate [s per B/s], by amount of each transfer [s per B]."""

    seconds: Amount
    bottleneck: tuple[str, ...]
    rates: Mapping[str, Slope]
    amounts: tuple[Slope, ...]

    @property
    def smooth(self) -> bool:
        """Whether the bound has a gradient here: no slope differs between its sides."""
        return all(slope.smooth for slope in (*self.rates.values(), *self.amounts))


@finite
def load_gradient(rates: Mapping[str, Amount], transfers: Transfers) -> LoadGradient:
    """Slopes of T = max_r L_r / B_r, L_r = sum_j a_rj D_j, in every B_r and D_j.

    rates : resource -> B_r > 0. transfers : (D_j, {resource: a_rj}). Where one resource r binds alone, dT/dB_r =
    -T / B_r, dT/dD_j = a_rj / B_r, and 0 elsewhere (the maximum is differentiable there). Where several tie, a faster
    one alone gains nothing and a slower one costs: dT/dB_r is -T / B_r downwards and 0 upwards; dT/dD_j is the least
    of the tied a_rj / B_r downwards and the largest upwards (one-sided derivatives of a maximum: Danskin 1967). Euler:
    sum_r B_r dT/dB_r = -T and sum_j D_j dT/dD_j = T where it is smooth. At T = 0 everything ties; a slope downwards
    from an amount of 0 is a continuation only. Floats tie within 1e-12, fractions exactly. Raises FormulaError.
    """
    transfers = _checked(rates, transfers)
    bound = load_bound(rates, transfers)
    total = bound.seconds
    tied = _tied(bound.resource_seconds)
    zero = 0 * total
    slopes = {}
    for name, rate in rates.items():
        steep = -total / rate if name in tied and total else zero
        slopes[name] = Slope(steep, steep if len(tied) == 1 else zero)
    amounts = []
    for _, use in transfers:
        each = [use.get(name, 0) / rates[name] for name in tied]
        amounts.append(Slope(min(each, default=zero), max(each, default=zero)))
    return LoadGradient(total, tuple(tied) if total else (), slopes, tuple(amounts))


def _tied(seconds: Mapping[str, Amount]) -> list[str]:
    """The names whose time is the largest: exactly so of fractions and ints, within `TIE` of floats."""
    largest = max(seconds.values(), default=0)
    exact = all(isinstance(time, int | Fraction) for time in seconds.values())
    least = largest if exact else largest * (1 - TIE)
    return sorted(name for name, time in seconds.items() if time >= least)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What faster resources gain. seconds : the bound with them at `factor` times their rates; gain : old over new.

    most : the useful speed-up, T over the largest time of the others; None where nothing else takes any time, so that
    no end to it is known. factor_of_use : the factor beyond which nothing more is gained. following : what binds then.
    """

    seconds: Amount
    gain: Amount
    most: Amount | None
    factor_of_use: Amount | None
    following: tuple[str, ...]


@finite
def upgrade(
    rates: Mapping[str, Amount], transfers: Transfers, names: Collection[str], factor: Amount = 2
) -> Upgrade:
    """The load bound with some resources `factor` (>= 1) times as fast, and how far that could go.

    names : the resources that the upgrade makes faster together. The useful speed-up is T / T', T' the load bound
    without them (Amdahl's law for a maximum). Raises FormulaError.
    """
    transfers = _checked(rates, transfers)
    positive("factor", factor)
    if factor < 1:
        raise FormulaError(f"factor: {shown(factor)} makes it slower; write one of at least 1.")
    for name in _names(names):
        if not isinstance(name, str) or name not in rates:
            raise FormulaError(f'no resource "{one_line(name)}". {did_you_mean(one_line(name), rates, "Resources")}')
    before = load_bound(rates, transfers)
    after = load_bound({name: rate * factor if name in names else rate for name, rate in rates.items()}, transfers)
    own = max((before.resource_seconds[name] for name in names), default=0)
    others = {name: time for name, time in before.resource_seconds.items() if name not in names}
    least = max(others.values(), default=0)
    now = before.seconds
    gain = now / after.seconds if now else 1
    if not least:
        return Upgrade(after.seconds, gain, None if now else 1, None if now else 1, ())
    return Upgrade(after.seconds, gain, now / least, max(own / least, own * 0 + 1), tuple(_tied(others)))


@dataclass(frozen=True, slots=True)
class SumGradient:
    """Slopes of the sum of all resources' times: by rate [s per B/s] and by amount of each transfer [s per B]."""

    seconds: Amount
    rates: Mapping[str, Amount]
    amounts: tuple[Amount, ...]


@finite
def sum_gradient(rates: Mapping[str, Amount], transfers: Transfers) -> SumGradient:
    """The gradient of T = sum_r L_r / B_r, where nothing overlaps.

    dT/dB_r = -L_r / B_r^2 for every r and dT/dD_j = sum_r a_rj / B_r, by differentiating each term; everything gains,
    in the measure of its share. Arguments as of `load_gradient`. Raises FormulaError.
    """
    transfers = _checked(rates, transfers)
    seconds = load_bound(rates, transfers).resource_seconds
    amounts = tuple(sum(coefficient / rates[name] for name, coefficient in use.items()) for _, use in transfers)
    return SumGradient(
        sum(seconds.values()), {name: -time / rates[name] for name, time in seconds.items()}, amounts
    )


@dataclass(frozen=True, slots=True)
class ChainGradient:
    """A prefetch chain from empty buffers: its time [s], and its slopes in the time of each fetch and compute [1]."""

    seconds: Amount
    fetch: tuple[Slope, ...]
    compute: tuple[Slope, ...]


@finite
def chain_gradient(fetch: Sequence[Amount], compute: Sequence[Amount], buffers: int) -> ChainGradient:
    """Slopes of F_i = max(F_{i-1}, C_{i-k}) + f_i, C_i = max(C_{i-1}, F_i) + c_i, T = C_N, in every f_i and c_i.

    fetch, compute : seconds of each layer (N,). buffers : k, `UNLIMITED` (0) for no limit. T is a longest path, so
    dT/df_i is 1 where the fetch lies on the critical path and 0 where it does not. Where several paths are critical it
    is 1 upwards on any of them, and 1 downwards only on all of them. Raises FormulaError.
    """
    each_not_negative("fetch", fetch)
    each_not_negative("compute", compute)
    as_long("compute", compute, "fetch", fetch)
    whole("buffers", buffers, UNLIMITED)
    count = len(fetch)
    before: list[list[int]] = []
    for i in range(count):  # event 2i is the fetch of layer i, 2i + 1 its compute
        slot = [2 * (i - buffers) + 1] if buffers != UNLIMITED and i >= buffers else []
        before.append([*([2 * i - 2] if i else []), *slot])
        before.append([2 * i, *([2 * i - 1] if i else [])])
    seconds = [time for pair in zip(fetch, compute, strict=True) for time in pair]
    total, slopes = longest_path(before, seconds)
    return ChainGradient(total, tuple(slopes[::2]), tuple(slopes[1::2]))


@finite
def longest_path(before: Sequence[Collection[int]], seconds: Sequence[Amount]) -> tuple[Amount, list[Slope]]:
    """The longest path of a graph without circles [s], and its slope in the time of each event.

    before[i] : earlier events that event i waits for, in a legal order. Upwards 1 on any longest path, downwards 1
    where every longest path leads through the event (their numbers are counted), else 0. Floats tie within 1e-12.
    """
    each_not_negative("seconds", seconds)
    as_long("before", before, "seconds", seconds)
    count = len(seconds)
    zero = 0 * seconds[0]
    starts, tails = [zero] * count, [zero] * count
    for i, waits in enumerate(before):
        for j in listed(f"before[{i}]", waits, "events"):
            if whole(f"before[{i}]", j, 0) >= i:
                raise FormulaError(f"event {i} waits for event {shown(j)}: events come after all that they wait for.")
        starts[i] = max((starts[j] + seconds[j] for j in waits), default=zero)
    for i in reversed(range(count)):
        for j in before[i]:
            tails[j] = max(tails[j], seconds[i] + tails[i])
    through = [starts[i] + seconds[i] + tails[i] for i in range(count)]
    total = max(through)
    exact = all(isinstance(time, int | Fraction) for time in seconds)
    slack = 0 if exact else total * TIE
    critical = [time >= total - slack for time in through]
    # Every event of a longest path starts when one before it on the path ends, the first at 0; the last ends at T.
    after: list[list[int]] = [[] for _ in range(count)]
    ways_in, ways_out = [0] * count, [0] * count
    for i, waits in enumerate(before):
        tight = [j for j in dict.fromkeys(waits) if critical[j] and starts[j] + seconds[j] >= starts[i] - slack]
        if critical[i]:
            ways_in[i] = sum(ways_in[j] for j in tight) if tight else 1
            for j in tight:
                after[j].append(i)
    for i in reversed(range(count)):
        if critical[i]:
            ways_out[i] = sum(ways_out[j] for j in after[i]) if after[i] else 1
    ways = sum(ways_in[i] for i in range(count) if critical[i] and not after[i])
    return total, [
        Slope(int(critical[i] and ways_in[i] * ways_out[i] == ways), int(critical[i])) for i in range(count)
    ]


def _checked(rates: Mapping[str, Amount], transfers: Transfers) -> Transfers:
    found = load_rows(rates, transfers)
    if not rates:
        raise FormulaError("rates: give the rate of at least one resource.")
    return found


def _names(names: Collection[str]) -> Collection[str]:
    if isinstance(names, str) or not isinstance(names, Collection):
        raise FormulaError(f"names: {shown(names)} is no list of resources.")
    return names
