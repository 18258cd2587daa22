"""Which experts a batch touches: how many different ones, how many a cache serves, and the bytes that a step moves.

Tokens choose k of E experts, each token by itself (independent tokens). Uniform routing then touches the most experts
for a given k, so it bounds the expected traffic from above; skewed routing touches fewer, and so do tokens that are
alike. Routing that is balanced by force can touch more, up to min(E, k B): the hard limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from offload.errors import ModelError, one_line
from offload.given import is_real, plain, plainly
from offload.models.popularity import array_of, as_numbers, check_picked, uniform_inclusion
from offload.models.whole import check_whole

MOST_TOKENS = 10**9
MOST_EXACT = 10_000  # tokens of an exact answer: its fractions have that many digits
SLACK = 1e-9  # by which the chances of a token's experts may miss a whole number


# --- how many different experts ---


def distinct_uniform(experts: int, active: int, tokens: Any, *, exact: bool = False) -> Any:
    """Expected different experts that a batch touches where all are alike: E (1 - (1 - k/E)^B).

    tokens : B, a whole number or an array of them; the answer has its shape. exact : as Fractions. Raises ModelError
    unless 1 <= k <= E and B >= 0. Source: each expert is missed by all tokens with chance (1 - k/E)^B.
    """
    return distinct(uniform_inclusion(experts, active, exact=exact), tokens)


def distinct_uniform_variance(experts: int, active: int, tokens: Any, *, exact: bool = False) -> Any:
    """Variance of the number of different experts where all are alike. Shape of `tokens`.

    E q^B + E(E-1) r^B - (E q^B)^2 with q = 1 - k/E and r = (E-k)(E-k-1) / (E(E-1)), the chances that a token misses
    one expert and two. Raises ModelError as `distinct_uniform`.
    """
    experts, active = check_picked(experts, active)
    batch = _tokens(tokens, exact)
    missed = experts - active
    if experts == active:
        return _shaped(np.full(batch.shape, Fraction(0) if exact else 0.0))
    if exact:
        one, two = Fraction(missed, experts), Fraction(missed * (missed - 1), experts * max(1, experts - 1))
        one, two = (np.power(np.full(batch.shape, base), batch) for base in (one, two))
        return _shaped(experts * one + experts * (experts - 1) * two - (experts * one) ** 2)
    log = np.log1p(-active / experts) * batch
    # r = q^2 (1 - k / ((E-k)(E-1))): the difference of two powers without the loss of digits.
    ratio = -active / (missed * (experts - 1)) if experts > 1 else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = np.where(batch > 0, np.expm1(batch * np.log1p(ratio)), 0.0)
    found = experts * np.exp(log) * -np.expm1(log) + experts * (experts - 1) * np.exp(2 * log) * pairs
    return _shaped(np.where(batch <= 1, 0.0, found))  # one token touches k, always


def distinct(inclusion: Any, tokens: Any) -> Any:
    """Expected different experts that a batch touches: sum over experts of 1 - (1 - p_e)^B.

    inclusion : p_e, chance that a token picks expert e; their sum is k. Fractions give a Fraction. tokens : B, a whole
    number or an array; the answer has its shape. Raises ModelError for chances outside 0 to 1 or that sum to no k.
    """
    chances, _ = _chances(inclusion)
    return _shaped(_used(chances, _tokens(tokens, chances.dtype == object)).sum(axis=-1))


def distinct_variance(inclusion: Any, tokens: Any, pairs: Any = None) -> Any:
    """Variance of the number of different experts that a batch touches. Shape of `tokens`.

    Sum over e of u_e (1 - u_e) and over e != f of u_ef - u_e u_f, with u_e = (1 - p_e)^B and
    u_ef = (1 - p_e - p_f + p_ef)^B, the chances that all tokens miss one expert and two. pairs : p_ef, shape (E, E)
    (`popularity.pair_inclusion`, `uniform_pairs`); needed where a token picks more than one expert, as the chances of
    single experts do not tell it. Raises ModelError where they are missing or contradict the inclusion.
    """
    chances, active = _chances(inclusion)
    batch = _tokens(tokens, False)
    single = chances.astype(float)
    joint = _pairs(pairs, single, active)
    neither = 1 - np.add.outer(single, single) + joint
    neither[abs(neither) < SLACK] = 0  # the rounding of a pair of which every token picks one
    found = np.empty(batch.shape)
    for place, count in np.ndenumerate(batch):
        missed = _missed(single, count)
        spread = neither ** float(count) - np.outer(missed, missed)
        np.fill_diagonal(spread, missed * (1 - missed))
        found[place] = spread.sum() if count > 1 else 0.0  # one token touches k, always
    return _shaped(found)


def distinct_limits(experts: int, active: int, tokens: Any) -> tuple[Any, Any]:
    """(least, most) different experts that a batch can touch: k (0 without tokens) and min(E, k B)."""
    experts, active = check_picked(experts, active)
    batch = _tokens(tokens, False)
    return _shaped(np.where(batch > 0, active, 0)), _shaped(np.minimum(experts, active * batch))


# --- caches of experts ---


@dataclass(frozen=True, slots=True)
class ExpertCache:
    """What a cache of `cached` experts in each layer serves; numbers or arrays.

    distinct : different experts that a step touches. misses : those of them that are fetched. activation_hit : share
    of activations (token and expert) that are served: what hit counters count. byte_hit : share of the experts touched
    that are not fetched: what saves bytes; with more than one token it is the smaller one for a static cache, because
    popular experts are activated often and fetched once. reach : for LRU, tokens that an expert stays unused.
    """

    cached: Any
    distinct: Any
    misses: Any
    activation_hit: Any
    byte_hit: Any
    reach: float | None = None


def static_cache(inclusion: Any, tokens: Any, cached: Any) -> ExpertCache:
    """The m most popular experts of a layer kept for good: the fewest misses of any fixed choice.

    misses = sum over the others of 1 - (1 - p_e)^B; activation_hit = sum over the kept of p_e / k; byte_hit =
    1 - misses / distinct. Experts weigh alike. tokens (B) and cached (m) broadcast. Fractions give Fractions. Raises
    ModelError as `distinct`, and unless m is a whole number from 0 to E. Source: exchange argument; under independent
    references no policy without foresight does better.
    """
    chances, active = _chances(inclusion)
    kept = _cached(cached, len(chances))
    ordered = np.sort(chances)[::-1]
    used = _used(ordered, _tokens(tokens, chances.dtype == object))
    total = np.asarray(used.sum(axis=-1))  # a sum of Fractions is no array
    batch_shape = _together(tokens=total, cached=kept)
    # The sum over experts from place m on, for every m; then the one that is asked for.
    rest = np.concatenate([np.cumsum(used[..., ::-1], axis=-1)[..., ::-1], 0 * used[..., :1]], axis=-1)
    rest = np.broadcast_to(rest, (*batch_shape, rest.shape[-1]))
    misses = np.take_along_axis(rest, np.broadcast_to(kept, batch_shape)[..., None], axis=-1)[..., 0]
    first = np.concatenate([0 * ordered[:1], np.cumsum(ordered)])
    hit = first[kept] / first[-1]  # all of them are the k, to the last digit
    return ExpertCache(*map(_shaped, (kept, total, misses, hit, _share_left(misses, total))))


def lru_cache_of_experts(inclusion: Any, tokens: Any, cached: int) -> ExpertCache:
    """A cache of m experts in a layer that drops the one unused for longest: Che's approximation.

    An expert is in the cache if it was used within the last t tokens, and t fills the cache: sum over e of
    1 - exp(-p_e t) = m. activation_hit = sum of p_e (1 - exp(-p_e t)) / k; misses of a step of B tokens = sum of
    (1 - (1 - p_e)^B) exp(-p_e t): those that it touches and that were not there when it began. An estimate for
    independent references (Che, Tung and Wang 2002): a token's k experts are taken one by one, so it needs a cache
    well above k, and above what a step touches. Raises ModelError as `static_cache`. t is in `reach`.
    """
    chances, active = _chances(inclusion)
    kept = int(_cached(check_one("cached", cached), len(chances)))
    chances = chances.astype(float)
    used = _used(chances, _tokens(tokens, False))
    reach = _reach(chances, kept)
    with np.errstate(invalid="ignore"):
        absent = np.where(chances > 0, np.exp(-np.where(chances > 0, chances, 1) * reach), 1.0)
    total, misses = used.sum(axis=-1), (used * absent).sum(axis=-1)
    hit = float((chances * (1 - absent)).sum()) / active
    return ExpertCache(kept, _shaped(total), _shaped(misses), hit, _shaped(_share_left(misses, total)), reach)


def check_one(name: str, value: Any) -> int:
    """A whole number, of NumPy's too. Raises ModelError."""
    number: int = plain(value)
    check_whole(name, number, 0, MOST_TOKENS)
    return number


def _reach(chances: np.ndarray, kept: int) -> float:
    """t with sum of 1 - exp(-p t) = m; endless where every expert that is ever used fits."""
    ever = chances[chances > 0]
    if kept >= len(ever):
        return float("inf")
    low, high = 0.0, float(kept / ever.mean())
    while -np.expm1(-ever * high).sum() < kept:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return float(middle)
        if -np.expm1(-ever * middle).sum() < kept:
            low = middle
        else:
            high = middle


@dataclass(frozen=True, slots=True)
class CyclicScan:
    """Hit ratios of a cache that is read round and round, as a memory-mapped file of weights is in every step.

    lru : least recently used. best_demand : the best policy that keeps what it just read (Belady's MIN). pinned : a
    fixed part kept for good. random : a random victim (an estimate). Exact ones are Fractions. *_misses : items read
    from below in a cycle.
    """

    items: int
    capacity: int
    lru: Fraction
    best_demand: Fraction
    pinned: Fraction
    random: float

    @property
    def lru_misses(self) -> Fraction:
        return self.items * (1 - self.lru)

    @property
    def best_demand_misses(self) -> Fraction:
        return self.items * (1 - self.best_demand)

    @property
    def pinned_misses(self) -> Fraction:
        return self.items * (1 - self.pinned)

    @property
    def random_misses(self) -> float:
        return self.items * (1 - self.random)


@plainly
def cyclic_scan(items: int, capacity: int) -> CyclicScan:
    """Hit ratios of N items read in a circle through a cache of C: layers, pages or experts that all are needed.

    C >= N: everything hits. Else LRU 0 (each is dropped just before it is read again), MIN (C-1)/(N-1), pinned C/N,
    random the smallest root of h = exp(-(1 - h) N/C). A real page cache lies between LRU and pinned. Raises ModelError
    unless N >= 1 and C >= 0 are whole.
    """
    check_whole("items", items, 1, 10**15)
    check_whole("capacity", capacity, 0, 10**15)
    if capacity >= items:
        return CyclicScan(items, capacity, Fraction(1), Fraction(1), Fraction(1), 1.0)
    best = Fraction(max(0, capacity - 1), items - 1) if items > 1 else Fraction(0)
    return CyclicScan(items, capacity, Fraction(0), best, Fraction(capacity, items), _random_hit(items, capacity))


def _random_hit(items: int, capacity: int) -> float:
    if capacity == 0:
        return 0.0
    turns, hit = items / capacity, 0.0
    for _ in range(200):  # Newton from below on a concave function: it rises to the smallest root and never passes it
        power = np.exp(-turns * (1 - hit))
        better = hit + (power - hit) / (1 - turns * power)
        if not hit < better < 1:
            break
        hit = float(better)
    return hit


# --- what a step moves ---


def tokens_per_step(acceptance: Any, draft: Any) -> Any:
    """Expected tokens of one pass with speculation: 1 + a + a^2 + ... + a^g = (1 - a^(g+1)) / (1 - a).

    acceptance : a, chance that one drafted token is kept, each independent of the others. draft : g, tokens drafted.
    Numbers or arrays, which broadcast; a Fraction gives a Fraction. What a pass streams over a link is divided by it.
    Raises ModelError unless a is from 0 to 1 and g a whole number from 0 to 1,000. Source: Leviathan et al. 2023.
    """
    exact = isinstance(acceptance, Fraction)
    try:
        chance = array_of(acceptance)
        if chance.dtype.kind not in "iufO" or (chance.dtype.kind == "O" and not all(map(is_real, chance.flat))):
            raise TypeError
        chance = chance.astype(object if exact else float)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"acceptance is {_in_line(acceptance)!r}; it must be a number from 0 to 1.") from None
    if not ((chance >= 0) & (chance <= 1)).all():
        raise ModelError(f"acceptance is {_in_line(acceptance)}; it is a chance, from 0 to 1 (80 % is 0.8).")
    length = _whole_array("draft", draft, 1000)
    shape = _together(acceptance=chance, draft=length)
    chance, length = np.broadcast_to(chance, shape), np.broadcast_to(length, shape)
    found = np.full(chance.shape, Fraction(1), dtype=object) if exact else np.ones(chance.shape)
    for place in range(int(length.max(initial=0))):
        found = np.where(place < length, 1 + chance * found, found)
    return _shaped(found)


def verified_tokens(batch: Any, draft: Any) -> Any:
    """Tokens that one pass routes when it checks g drafted tokens of each of B sequences: B (g + 1)."""
    sequences, length = _tokens(batch, False), _whole_array("draft", draft, 1000)
    _together(batch=sequences, draft=length)
    return _shaped(sequences * (length + 1))


@dataclass(frozen=True, slots=True)
class ExpertTraffic:
    """Bytes of routed experts in one step, over all layers [B]; numbers or arrays.

    fetched : expected, from where experts are kept to where they run. least, most : hard limits of the fetched.
    touched : expected, what arithmetic reads. misses, distinct : experts in one layer.
    """

    distinct: Any
    misses: Any
    touched: Any
    fetched: Any
    least: Any
    most: Any


def expert_traffic(inclusion: Any, tokens: Any, *, layers: int, expert_bytes: int, cached: Any = 0) -> ExpertTraffic:
    """Bytes of routed experts that a step of B tokens touches and fetches, the m most popular of each layer cached.

    fetched = layers x misses x expert_bytes with the misses of `static_cache`; limits: max(0, k - m) and
    min(E - m, k B) experts in each layer, whatever the routing. expert_bytes : one expert in one layer [B]. All layers
    are alike. Raises ModelError as `static_cache`, and unless k is whole and layers and bytes are whole and positive.
    """
    layers, expert_bytes = plain(layers), plain(expert_bytes)
    check_whole("layers", layers, 1, 10**6)
    check_whole("expert_bytes", expert_bytes, 1, 10**15)
    chances, active = _chances(inclusion)
    held = static_cache(chances, tokens, cached)
    batch, kept = _tokens(tokens, False), _cached(cached, len(chances))
    per_expert = layers * expert_bytes
    least = np.where(batch > 0, np.maximum(0, active - kept), 0)
    most = np.minimum(len(chances) - kept, active * batch)
    return ExpertTraffic(held.distinct, held.misses, held.distinct * per_expert, held.misses * per_expert,
                         _times(least, per_expert), _times(most, per_expert))  # fmt: skip


# --- inputs ---


def _chances(inclusion: Any) -> tuple[np.ndarray, int]:
    """The chances of a layer's experts, and the k that they sum to."""
    chances = as_numbers("inclusion", inclusion)
    if not ((chances >= 0) & (chances <= 1)).all():
        raise ModelError("inclusion: each is the chance that a token picks the expert, from 0 to 1. Weights become "
                         "chances by offload.models.popularity.inclusion(weights, k).")
    total = chances.sum()
    active = round(total)
    if active < 1 or abs(total - active) > (0 if chances.dtype == object else SLACK * max(1, active)):
        raise ModelError(f"inclusion: the chances sum to {float(total):.9g}; they sum to the experts that a token "
                         "picks, a whole number from 1. Counts from a trace are divided by the tokens it has.")
    return chances, active


def _pairs(pairs: Any, single: np.ndarray, active: int) -> np.ndarray:
    if pairs is None:
        if active > 1:
            raise ModelError(f"pairs: with {active} experts for a token, the chance of each pair of experts is needed: "
                             "offload.models.popularity.pair_inclusion(weights, k), or uniform_pairs(experts, k).")
        return np.diag(single)
    try:
        joint = array_of(pairs)
        joint = joint.astype(float) if joint.dtype.kind in "iufO" else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        joint = np.empty(0)
    size = len(single)
    if joint.shape != (size, size):
        raise ModelError(f"pairs: give a table of {size} x {size} numbers, one for each pair of experts.")
    joint = joint.copy()
    np.fill_diagonal(joint, single)
    near = SLACK * max(1, active)
    neither = 1 - np.add.outer(single, single) + joint
    astray = (-joint, -neither, abs(joint - joint.T), abs(joint.sum(axis=0) - active * single) / active)
    if not all(one.max() <= near for one in astray):
        raise ModelError(f"pairs: they contradict the inclusion. Each column sums to {active} x the expert's chance, "
                         "and a pair's chance is the same both ways.")
    return joint


def _whole_array(name: str, values: Any, most: int) -> np.ndarray:
    try:
        array = array_of(values)
    except (TypeError, ValueError):
        array = None
    if array is None or array.dtype.kind not in "iu":
        told = f"it must be a whole number from 0 to {most:,}, or an array of them."
        raise ModelError(f"{name} is {_in_line(values)!r}; {told}")
    if array.size and not (0 <= array.min() and array.max() <= most):
        raise ModelError(f"{name} is {array.min()} to {array.max()}; it must be from 0 to {most:,}.")
    return array.astype(np.int64)


def _in_line(values: Any) -> str:
    """Values for a message, an array's rows one after another."""
    return one_line(" ".join(str(values).split()) if isinstance(values, np.ndarray) else values)


def _together(**arrays: np.ndarray) -> tuple[int, ...]:
    """The shape of arrays that go together. Raises ModelError where they do not."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = " and ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ModelError(f"the shapes of {shapes} do not go together. Give one of them an axis more.") from None


def _tokens(tokens: Any, exact: bool) -> np.ndarray:
    batch = _whole_array("tokens", tokens, MOST_EXACT if exact else MOST_TOKENS)
    return batch.astype(object) if exact else batch


def _cached(cached: Any, experts: int) -> np.ndarray:
    kept = _whole_array("cached", cached, MOST_TOKENS)
    if kept.size and kept.max() > experts:
        raise ModelError(f"cached is {kept.max()}: a layer has {experts} experts. Give those kept in one layer.")
    return kept


def _missed(chances: np.ndarray, batch: Any) -> np.ndarray:
    """(1 - p)^B, experts along the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.multiply.outer(batch, np.log1p(-chances))
    return np.exp(np.where(np.isnan(power), 0.0, power))  # no tokens miss everything, even what is always picked


def _used(chances: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """1 - (1 - p)^B, experts along the last axis."""
    if chances.dtype == object:
        exact: np.ndarray = 1 - (1 - chances) ** batch[..., None]
        return exact
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.multiply.outer(batch, np.log1p(-chances))
    return -np.expm1(np.where(np.isnan(power), 0.0, power))


def _share_left(misses: np.ndarray, total: np.ndarray) -> np.ndarray:
    """1 - misses / total; without tokens nothing is touched and nothing missed: 1."""
    nothing = total == 0
    return 1 - np.where(nothing, 0, misses) / np.where(nothing, 1, total)


def _times(counts: np.ndarray, each: int) -> Any:
    """Whole counts x bytes: exact, or floats where an array of 64-bit integers would wrap."""
    found = np.asarray(np.asarray(counts).astype(object) * each)
    if not found.ndim:
        return found.item()
    return found.astype(np.int64 if found.size and found.max() < 2**63 else float)


def _shaped(array: Any) -> Any:
    """An array, or the plain number that an array without axes holds."""
    array = np.asarray(array)
    return array if array.ndim else array.item()
