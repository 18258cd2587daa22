"""Collectives in closed form: bounds that hold for every algorithm, times of known ones, and who sends what to whom.

n ranks, each with B bytes/s in and B out; D is the whole buffer, as nccl-tests count it: of an all-gather what each
rank has in the end, of a reduce-scatter what each has in the beginning, of an all-to-all what each rank holds. A single
rank sends nothing. Figures may be ints, floats or Fractions, and are exact with Fractions.

All bounds are for data that cannot be compressed and sums that cannot be guessed. What a switch that adds up may spare
is said where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offload.errors import FormulaError, did_you_mean, one_line, shown
from offload.given import finite, flag, is_number, listed, plainly

Number = Any  # int, float or Fraction

# What each collective may run by; the first is what is expected where none is named.
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": ("ring", "rabenseifner", "recursive_doubling", "tree", "pairwise", "in_network"),
    "all_gather": ("ring", "pairwise"),
    "reduce_scatter": ("ring", "pairwise"),
    "all_to_all": ("pairwise",),
    "broadcast": ("ring", "binomial"),
    "reduce": ("ring", "binomial"),
}
MOST_FLOWS = 10**5  # pairs of ranks that are listed
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Cost:
    """T = steps x alpha + share x D / B of an algorithm on ranks that each send and receive at B at once."""

    steps: int
    share: Fraction

    @finite
    def seconds(self, bytes: Number, rate: Number, alpha: Number = 0) -> Number:
        """The time [s] for D [B], B [B/s] and the latency of a step [s]."""
        _check(bytes, rate, alpha)
        return self.steps * alpha + _times(self.share, bytes) / rate


@dataclass(frozen=True, slots=True)
class Flow:
    """Rank `source` sends `share` of D to rank `destination`, over all steps; ranks count from 0."""

    source: int
    destination: int
    share: Fraction


# Bounds.


@plainly
def bus_factor(kind: str, n: int) -> Fraction:
    """busbw / algbw: what each rank must send of D where nothing but ranks adds up.

    2 (n - 1) / n for an all-reduce, (n - 1) / n for all-gather, reduce-scatter and all-to-all, 1 for broadcast and
    reduce, 0 for a single rank. Source: nccl-tests, doc/PERFORMANCE.md; of the all-reduce Patarasuk and Yuan 2009.
    """
    _known(kind, n)
    if n == 1:
        return Fraction(0)
    if kind in ROOTED:
        return Fraction(1)
    return Fraction((2 if kind == "all_reduce" else 1) * (n - 1), n)


@finite
def endpoint_bound(kind: str, n: int, bytes: Number, rate: Number, *, switches_add: bool = False) -> Number:
    """The least time of a collective on n ranks with `rate` [B/s] each way [s]: `bus_factor` x D / B.

    switches_add : switches may add up and copy: then an all-reduce sends D once and receives it once. Raises
    FormulaError.
    """
    _check(bytes, rate)
    factor = bus_factor(kind, n)
    if flag("switches_add", switches_add) and kind == "all_reduce":
        factor = min(factor, Fraction(1))
    return _times(factor, bytes) / rate


@finite
def unequal_bound(bytes: Number, rates_out: Sequence[Number], rates_in: Sequence[Number] | None = None) -> Number:
    """The least time of an all-reduce among unequal ranks, nothing but ranks adding up [s].

    max(2 (n - 1) D / sum of B_out, 2 (n - 1) D / sum of B_in, D / each B): all that is sent is 2 (n - 1) D or more
    (Patarasuk and Yuan 2009), each rank sends what it alone knows and receives what it does not know, D or more.
    rates_in : the same as out where not given. Raises FormulaError.
    """
    rates_in = rates_out if rates_in is None else rates_in
    n = len(listed("rates_out", rates_out))
    _known("all_reduce", n)
    listed("rates_in", rates_in)
    if len(rates_in) != n:
        raise FormulaError(f"{n} rates out and {len(rates_in)} in: give one of each for every rank.")
    for rate in (*rates_out, *rates_in):
        _check(bytes, rate)
    if n == 1:
        return 0 * bytes
    total = 2 * (n - 1) * bytes
    return max(total / sum(rates_out), total / sum(rates_in), *(bytes / rate for rate in (*rates_out, *rates_in)))


@finite
def latency_bound(n: int, alpha: Number, *, single_port: bool = True) -> Number:
    """The least latency until every rank has heard of every other [s].

    single_port : a rank talks to one other at a time, so at most twice as many know after each step: ceil(log2 n)
    alpha. Otherwise, where each reaches all others at once (a switch, a full mesh), one alpha. 0 for one rank.
    """
    _known("all_reduce", n)
    _check(0, 1, alpha)
    return ((n - 1).bit_length() if flag("single_port", single_port) else min(n - 1, 1)) * alpha


@plainly
def across(kind: str, n: int, s: int, *, root_inside: bool = True) -> Fraction:
    """The least that s of n ranks must send to the others, as a share of D, whoever adds up.

    all-reduce 1; all-gather s/n (their parts); reduce-scatter (n - s)/n (sums of the others' parts); all-to-all
    s (n - s)/n; broadcast 1 where the root is among the s, reduce where it is not, else 0.
    """
    _known(kind, n)
    if not isinstance(s, int) or isinstance(s, bool) or not 0 < s < n:
        raise FormulaError(f"a cut has from 1 to {one_line(n - 1)} of {one_line(n)} ranks on one side, not {shown(s)}.")
    flag("root_inside", root_inside)
    if kind in ROOTED:
        return Fraction(int(root_inside == (kind == "broadcast")))
    shares = {"all_reduce": Fraction(1), "all_gather": Fraction(s, n), "reduce_scatter": Fraction(n - s, n)}
    return shares.get(kind, Fraction(s * (n - s), n))


@finite
def cut_bound(kind: str, n: int, bytes: Number, s: int, rate: Number) -> Number:
    """The least time over a cut with s of n ranks on one side and `rate` [B/s] each way [s]: `across` x D / C.

    The larger direction counts. Holds for every algorithm, with switches that add up too; the root of a broadcast or a
    reduce is on one of the sides. Take the largest of it over all cuts of interest and `endpoint_bound`.
    """
    _check(bytes, rate)
    across(kind, n, s)  # raises where one of the two is no whole number
    sides = [across(kind, n, side, root_inside=inside) for side in (s, n - s) for inside in (True, False)]
    return _times(max(sides), bytes) / rate


# Known algorithms.


@plainly
def cost(kind: str, algorithm: str, n: int) -> Cost:
    """Steps and bytes of an algorithm on n ranks. Raises FormulaError for what is not in `ALGORITHMS`.

    ring : 2 (n - 1) steps for an all-reduce, n - 1 otherwise; D/n in each, so it meets the endpoint bound. Broadcast
    and reduce pass chunks on from rank to rank, so small that the last one adds no time of its own.
    rabenseifner : recursive halving, then doubling: 2 log2 n steps, the ring's bytes (Thakur et al. 2005).
    recursive_doubling : log2 n steps of D. Both need a power of two: of other n the n - m ranks above the largest power
    m first send D to one of the m and get the sum back in the end, two steps of D more.
    tree : two binary trees with half of D each, up and down: 2 ceil(log2 n) steps and 2 D, as NCCL counts it (an
    inner rank serves two children; two or three ranks have fewer).
    pairwise : everyone with everyone, D/n to each other rank: n - 1 steps, for an all-reduce twice.
    binomial : ceil(log2 n) steps of D.
    in_network : a switch adds up what all send and copies the sum to all. Each rank has the switch add up its n-th and
    sends the sum of it back: D (1 + 1/n) each way, 2 steps.
    """
    _known(kind, n, algorithm)
    if n == 1:
        return Cost(0, Fraction(0))
    if algorithm == "in_network":
        return Cost(2, 1 + Fraction(1, n))
    if algorithm in ("ring", "pairwise"):
        return Cost((2 if kind == "all_reduce" else 1) * (n - 1), bus_factor(kind, n))
    if algorithm == "binomial":
        return Cost((n - 1).bit_length(), Fraction((n - 1).bit_length()))
    if algorithm == "tree":
        # With four ranks or more some are inside one tree: a half up, two down, and as a leaf of the other one up.
        most = 2 if n > 3 else max(max(sent, received) for sent, received in traffic(kind, algorithm, n))
        return Cost(2 * (n - 1).bit_length(), Fraction(most))
    log = n.bit_length() - 1
    folded = 0 if n == 1 << log else 2
    share = Fraction(log) if algorithm == "recursive_doubling" else bus_factor(kind, 1 << log)
    steps = log if algorithm == "recursive_doubling" else 2 * log
    return Cost(steps + folded, share + folded)


@plainly
def first_of(kind: str) -> str:
    """The algorithm that is expected of a collective where none is named. Raises FormulaError."""
    _known(kind, 1)
    return ALGORITHMS[kind][0]


@plainly
def in_network_speedup(n: int) -> Fraction:
    """How much less a rank sends where a switch adds up than in a ring: 2 (n - 1) / (n + 1), below 2 for any n.

    A ring's 2 (n - 1)/n over (1 + 1/n): latencies and the switch's own efficiency are not in it.
    """
    _known("all_reduce", n)
    return Fraction(2 * (n - 1), n + 1)


# Bandwidths.


@finite
def algorithm_bandwidth(bytes: Number, seconds: Number) -> Number:
    """algbw [B/s]: D over the time it took. Raises FormulaError for a time that is not above 0."""
    _check(bytes, 1)
    if not is_number(seconds) or not seconds > 0:
        raise FormulaError(f"a collective took {shown(seconds)} s: a bandwidth needs a finite time above 0.")
    return bytes / seconds


@finite
def bus_bandwidth(kind: str, n: int, bytes: Number, seconds: Number) -> Number:
    """busbw [B/s]: algbw x `bus_factor`; never above a rank's rate where nothing but ranks adds up."""
    return _times(bus_factor(kind, n), algorithm_bandwidth(bytes, seconds))


@finite
def seconds_at(kind: str, n: int, bytes: Number, busbw: Number) -> Number:
    """The time [s] of a collective whose bus bandwidth [B/s] was measured: `bus_factor` x D / busbw."""
    _check(bytes, busbw)
    return _times(bus_factor(kind, n), bytes) / busbw


# Who sends what to whom.


@plainly
def flows(kind: str, algorithm: str, n: int) -> tuple[Flow, ...]:
    """What each rank sends to which, over all steps, as shares of D; the root is rank 0. Sorted, no pair twice.

    in_network : each rank sends to the switch and receives from it; given as a ring whose flows pass the switch, which
    loads the same links. Raises FormulaError, also for more than `MOST_FLOWS` pairs.
    """
    _known(kind, n, algorithm)
    if n == 1:
        return ()
    _few(algorithm, n)
    sent: dict[tuple[int, int], Fraction] = {}

    def send(source: int, destination: int, share: Fraction | int) -> None:
        sent[source, destination] = sent.get((source, destination), Fraction(0)) + share

    if algorithm in ("ring", "in_network"):
        each = cost(kind, algorithm, n).share
        for rank in range(n):
            ends = (rank, (rank + 1) % n) if kind != "reduce" else ((rank + 1) % n, rank)
            if kind in ROOTED and rank == n - 1:
                continue  # a chain: nothing comes back to the root, or starts there
            send(*ends, each)
    elif algorithm == "pairwise":
        each = Fraction(2 if kind == "all_reduce" else 1, n)
        for rank in range(n):
            for other in range(n):
                if other != rank:
                    send(rank, other, each)
    elif algorithm == "binomial":
        for rank in range(1, n):
            parent = rank & (rank - 1)
            send(*((parent, rank) if kind == "broadcast" else (rank, parent)), 1)
    elif algorithm == "tree":
        for tree in range(2):
            for rank in range(n):
                above = _parent(rank, n, tree)
                if above is not None:
                    send(rank, above, Fraction(1, 2))
                    send(above, rank, Fraction(1, 2))
    else:
        _by_powers(algorithm, n, send)
    return tuple(Flow(*ends, share) for ends, share in sorted(sent.items()))


@plainly
def traffic(kind: str, algorithm: str, n: int) -> tuple[tuple[Fraction, Fraction], ...]:
    """What each rank sends and receives in all, as shares of D. Raises FormulaError as `flows`."""
    pairs = flows(kind, algorithm, n)
    sent, received = [Fraction(0)] * n, [Fraction(0)] * n
    for flow in pairs:
        sent[flow.source] += flow.share
        received[flow.destination] += flow.share
    return tuple(zip(sent, received, strict=True))


def _few(algorithm: str, n: int) -> None:
    """Raises FormulaError where more pairs send than may be listed."""
    each = {"pairwise": n - 1, "tree": 4, "rabenseifner": n.bit_length(), "recursive_doubling": n.bit_length()}
    count = n * each.get(algorithm, 1)
    if count > MOST_FLOWS:
        raise FormulaError(f"{one_line(n)} ranks by {algorithm} are {one_line(count)} pairs; at most {MOST_FLOWS:,} "
                           "are listed. `cost` has what a rank sends, for any number.")


def _by_powers(algorithm: str, n: int, send: Any) -> None:
    """Recursive doubling and Rabenseifner's: with the rank that differs in one bit, for each bit."""
    power = 1 << (n.bit_length() - 1)
    for rank in range(power, n):
        send(rank, rank - power, 1)
        send(rank - power, rank, 1)
    distance = power >> 1
    share = Fraction(1, 2)
    while distance:
        for rank in range(power):
            # Halving sends a half, a quarter, ... and doubling as much again the other way round.
            send(rank, rank ^ distance, 1 if algorithm == "recursive_doubling" else 2 * share)
        distance, share = distance >> 1, share / 2


def _parent(rank: int, n: int, tree: int) -> int | None:
    """The parent in one of two binary trees in which hardly any rank is inside both (Sanders, Speck and Traeff 2009).

    The first tree: odd ranks are leaves, rank r with the lowest bit b hangs below r - b + 2 b or, where that is none,
    below r - b. The second is its mirror image, for odd n its shift by one.
    """
    place = rank if tree == 0 else (n - 1 - rank if n % 2 == 0 else (rank - 1) % n)
    if place == 0:
        return None
    low = place & -place
    up = (place ^ low) | (low << 1)
    up = place ^ low if up >= n else up
    return up if tree == 0 else (n - 1 - up if n % 2 == 0 else (up + 1) % n)


# Figures.


def _known(kind: str, n: int, algorithm: str | None = None) -> None:
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        kind = one_line(kind)
        raise FormulaError(f'no collective "{kind}". {did_you_mean(kind, ALGORITHMS, "Collectives")}')
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise FormulaError(f"a collective is among {shown(n)} ranks: give a whole number from 1 on.")
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ALGORITHMS[kind]):
        hint = did_you_mean(one_line(algorithm), ALGORITHMS[kind], f"Algorithms of {kind}")
        raise FormulaError(f'no algorithm "{one_line(algorithm)}" for {kind}. {hint}')


def _check(bytes: Number, rate: Number, alpha: Number = 0) -> None:
    if not is_number(bytes) or bytes < 0:
        raise FormulaError(f"{shown(bytes)} bytes: give a finite number from 0 on.")
    if not is_number(rate) or rate <= 0:
        raise FormulaError(f"a rate of {shown(rate)} B/s: give a finite one above 0.")
    if not is_number(alpha) or alpha < 0:
        raise FormulaError(f"a latency of {shown(alpha)} s: give a finite one from 0 on.")


def _times(share: Fraction, amount: Number) -> Number:
    """share x amount, exact with ints and Fractions; a float is rounded once for each of the two steps."""
    if isinstance(amount, int | Fraction):
        return share * amount
    return float(share) * amount if share.denominator == 1 else share.numerator * amount / share.denominator
