"""Which experts a step touches, which of them a cache serves, and what is fetched ahead: counts of one layer.

Expected counts are means over steps: tokens choose by themselves (`models.experts`). What one step surely does is told
apart: a token goes through k experts, and a cache of m holds at most m of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from offload.designs.slot_sizes import larger
from offload.errors import ModelError, PlanError
from offload.models.attention import smaller

ROUTING = "placement.experts.routing"
CACHE = "placement.experts.cache"


@dataclass(frozen=True, slots=True)
class Routing:
    """How often tokens choose each expert of a layer.

    kind : "uniform", "zipf" (weights i^-exponent, drawn without replacement) or "chances" (that a token picks each
    expert; they sum to the experts of a token).
    """

    kind: str = "uniform"
    exponent: float = 0.0
    chances: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"zipf {self.exponent:g}" if self.kind == "zipf" else self.kind

    def inclusion(self, count: int, used: int) -> Any:
        """The chance of each of `count` experts to be among the `used` of a token; shape (count,), sum `used`.

        Raises PlanError where the chances are not of so many experts, or sum to another number.
        """
        return _inclusion(self, count, used)

    def possible(self, count: int) -> int:
        """How many of `count` experts a token may choose at all."""
        return sum(1 for one in self.chances if one > 0) if self.kind == "chances" else count

    def distinct(self, count: int, used: int, tokens: Any) -> Any:
        """Expected different experts that `tokens` touch. Raises PlanError as `inclusion`."""
        if self.kind == "uniform":
            return count * (1 - (1 - used / count) ** tokens)
        found = _used(self.inclusion(count, used), tokens).sum(axis=-1)
        return found if found.ndim else float(found)


UNIFORM = Routing()


@lru_cache(maxsize=64)
def _inclusion(routing: Routing, count: int, used: int) -> Any:
    from offload.models.experts import distinct
    from offload.models.popularity import inclusion, uniform_inclusion, zipf_weights

    if routing.kind == "uniform":
        return uniform_inclusion(count, used)
    try:
        if routing.kind == "zipf":
            return inclusion(zipf_weights(count, routing.exponent), used)
        if len(routing.chances) != count:
            raise PlanError(f"{ROUTING}: {len(routing.chances)} chances are given, and a layer has {count} experts.")
        distinct(routing.chances, 1)
    except ModelError as error:
        raise PlanError(f"{ROUTING}: {error}") from None
    if abs(sum(routing.chances) - used) > 1e-9 * used:
        raise PlanError(f"{ROUTING}: the chances sum to {sum(routing.chances):.6g}, and a token goes through {used} "
                        "experts: divide counts of a trace by its tokens.")
    import numpy

    return numpy.array(routing.chances)


@dataclass(frozen=True, slots=True)
class ExpertCache:
    """Experts that are kept in a memory, the same number in each layer that fetches its experts.

    experts : a layer; or bytes : in all layers together [B], of which whole experts fit. hit : the share of the experts
    that a step touches which it serves; None is computed from the routing. policy : "static" (the most popular ones for
    good) or "lru".
    """

    memory: str
    experts: int | None = None
    bytes: int | None = None
    hit: float | None = None
    policy: str = "static"


@dataclass(frozen=True, slots=True)
class Touched:
    """Experts of one layer in one step. distinct : touched; misses : of them not in the cache; expected both.

    surely_missed, surely_hit : in any one step. most_missed, most_hit : that one step may need at once; most_wrong :
    that it may need though as many as it misses were foreseen. slots : what the cache holds.
    activation_hit : share of activations (token and expert) that the cache serves; None where the rate was given.
    """

    distinct: Any
    misses: Any
    surely_missed: int
    surely_hit: int
    most_missed: Any
    most_hit: Any = 0
    most_wrong: Any = 0
    slots: int = 0
    activation_hit: float | None = None


def touched(
    routing: Routing, cache: ExpertCache | None, slots: int, count: int, used: int, tokens: Any
) -> Touched:
    """What a step of `tokens` touches of `count` experts of which a token goes through `used`.

    slots : experts that the cache holds of the layer. Of a given hit rate a batch has no more hits than that. Raises
    PlanError where they are more than there are, or where the hit rate needs more of them for a single token.
    """
    different = routing.distinct(count, used, tokens)
    if cache is None:
        possible = routing.possible(count)
        return Touched(different, different, used, 0, *_most(possible, possible, count, used * tokens, used))
    if slots > count:
        raise PlanError(f"{CACHE}.experts: {slots} is more than the {count} experts of a layer. Write fewer, or put "
                        "the experts there for good: `home`.")
    surely = (max(0, used - slots), max(0, used - (count - slots)))
    # What a cache of a given rate keeps is not known, so it may be what nobody chooses.
    possible = routing.possible(count)
    left = min(possible, count - slots) if cache.hit is not None else max(0, possible - slots)
    most = _most(left, possible, count - slots, used * tokens, surely[0], slots)
    if cache.hit is not None:
        if cache.hit * used > slots * (1 + 1e-12):
            raise PlanError(f"{CACHE}.hit: {100 * cache.hit:g} % of the {used} experts of a token are "
                            f"{cache.hit * used:.4g}, and the cache holds {slots} of a layer. Write at most "
                            f"{100 * slots / used:.4g}%, or a larger cache.")
        # A batch that touches more than the cache holds finds no more than that there, and misses no more than others.
        hits = larger(smaller(cache.hit * different, slots), different - (count - slots))
        return Touched(different, different - hits, *surely, *most, slots)
    if routing.kind == "uniform":
        share = slots / count
        return Touched(different, different * ((count - slots) / count), *surely, *most, slots, share)
    import numpy

    from offload.models.experts import lru_cache_of_experts

    chances = numpy.sort(routing.inclusion(count, used))[::-1]
    if cache.policy == "lru":
        found = lru_cache_of_experts(chances, 1, slots)
        reach = cast(float, found.reach)
        absent = numpy.exp(-chances * reach) if reach < float("inf") else numpy.where(chances > 0, 0.0, 1.0)
        hit = float(found.activation_hit)
    else:
        absent, hit = numpy.arange(count) >= slots, float(chances[:slots].sum()) / used
    misses = (_used(chances, tokens) * absent).sum(axis=-1)
    return Touched(different, misses if misses.ndim else float(misses), *surely, *most, slots, hit)


def _most(left: int, possible: int, pool: int, chosen: Any, surely: int, slots: int = 0) -> tuple[Any, Any, Any]:
    """The most different experts that a step may miss, hit, and miss though as many were foreseen.

    possible : experts that a step may choose; left : those that no cache holds. pool : all that no cache holds, of
    which n are foreseen where n are missed: no more of them can be wrong than there are others. chosen : activations of
    the step, which may all be of different experts. surely : the fewest that are missed.
    """
    missed = smaller(left, chosen)
    return missed, smaller(min(slots, possible), chosen), smaller(missed, min(pool // 2, pool - surely))


def _used(chances: Any, tokens: Any) -> Any:
    """The chance that a batch touches each expert, 1 - (1 - p)^B, along the last axis; of any number of tokens.

    `models.experts` has the same, exact and up to 10^9 tokens; plans are tried with more to see what fits.
    """
    import numpy

    with numpy.errstate(divide="ignore"):
        return -numpy.expm1(numpy.multiply.outer(numpy.asarray(tokens, dtype=float), numpy.log1p(-chances)))


def touch_chances(routing: Routing, count: int, used: int, tokens: Any) -> Any:
    """The chance of each of `count` experts that a step of `tokens` touches it; shape (count,)."""
    return _used(routing.inclusion(count, used), tokens)


def slots_of(cache: ExpertCache, expert_bytes: list[int], counts: list[int]) -> int:
    """Experts of each layer that a cache holds.

    expert_bytes, counts : of one expert, and how many there are, in each layer that fetches its experts. Raises
    PlanError where bytes hold none of each layer, or all.
    """
    if cache.bytes is None:
        return cache.experts or 0
    slots = cache.bytes // max(1, sum(expert_bytes))
    if not slots:
        from offload.units import format_bytes

        raise PlanError(f"{CACHE}.bytes: one expert of each of the {len(counts)} layers that fetch theirs takes "
                        f"{format_bytes(sum(expert_bytes))}. Write at least that.")
    if slots > max(counts):
        raise PlanError(f"{CACHE}.bytes: that holds all {max(counts)} experts of each layer. Put them there for good: "
                        "`home`.")
    return slots
