"""Cases of models: experts, caches, KV bytes, concurrency, formats of weights."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from offload.bounds import load_bound
from offload.errors import FormulaError, one_line
from offload.models.budget import block_budget
from offload.models.cache import Cache, allocated_positions, blocks_of, kept_positions
from offload.models.experts import (
    MOST_EXACT,
    cyclic_scan,
    distinct_limits,
    distinct_uniform,
    distinct_uniform_variance,
    expert_traffic,
    static_cache,
)
from offload.models.packings import Part
from offload.models.popularity import inclusion, uniform_inclusion
from offload.models.token_bytes import token_bytes_of_heads, token_bytes_of_latents
from tests.worked import exactly, kind
from tests.worked.shapes import Optional, list_of, named, number, numbers, pair_of, text, whole

MOST_POWERS = 10**6  # digits or so of exact answers: those of more take for ever
SHAPES = {"mla": ("latent", "rope"), **dict.fromkeys(("mha", "gqa", "mqa"), ("n_kv", "head_dim"))}


def short(experts: int, tokens: int) -> bool:
    """Whether an answer in fractions is worked out."""
    return tokens <= MOST_EXACT and experts * tokens <= MOST_POWERS


@kind("moe_distinct_uniform", experts=whole, topk=whole, tokens=whole)
def moe_distinct_uniform(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Mean and variance of the different experts that a batch touches, and the hard limits."""
    given = inputs["experts"], inputs["topk"], inputs["tokens"]
    exact = short(inputs["experts"], inputs["tokens"])
    lower, upper = distinct_limits(*given)
    return {
        "mean": distinct_uniform(*given, exact=exact),
        "variance": distinct_uniform_variance(*given, exact=exact),
        "lower": lower,
        "upper": upper,
    }


@kind("moe_distinct_probs", inclusion=numbers, tokens=whole, cached_top=Optional(whole))
def moe_distinct_probs(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same by chances, with a static cache of the most popular."""
    tokens, chances = inputs["tokens"], exactly(inputs["inclusion"])
    total = sum(chances)
    if total.denominator != 1 or not short(len(chances), tokens):  # rounded decimals, or fractions too long
        chances = [float(one) for one in chances]
    held = static_cache(chances, tokens, inputs.get("cached_top", 0))
    topk = round(total)
    uniform = distinct_uniform(len(chances), topk, tokens, exact=short(len(chances), tokens))
    return {
        "topk": topk,
        "mean_distinct": held.distinct,
        "mean_distinct_if_uniform": uniform,
        "mean_misses_static_cache": held.misses,
        "activation_hit_ratio": held.activation_hit,
    }


@kind("plackett_luce_top2", weights=numbers)
def plackett_luce_top2(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Chances to be the first and to be among the first two."""
    weights = exactly(inputs["weights"])
    return {"first_choice": list(inclusion(weights, 1)), "inclusion": list(inclusion(weights, 2))}


@kind("cyclic_cache", items=whole, capacity=whole)
def cyclic_cache(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hit ratios of a cyclic scan."""
    scan = cyclic_scan(inputs["items"], inputs["capacity"])
    return {
        "lru": scan.lru,
        "min_demand": scan.best_demand,
        "pinned": scan.pinned,
        "lru_misses_per_cycle": scan.lru_misses,
        "pinned_misses_per_cycle": scan.pinned_misses,
    }


@kind(
    "kv_token_bytes",
    layers=whole, kind=text, n_kv=Optional(whole), head_dim=Optional(whole), latent=Optional(whole),
    rope=Optional(whole), tp=Optional(whole), elem_bits=Optional(whole), scale_bytes_per_head=Optional(whole),
)
def kv_token_bytes(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """KV bytes of a position: in one layer, in all, on each rank, on all ranks."""
    given = dict(inputs)
    others = {"bits": given.pop("elem_bits", 16), "tp": given.pop("tp", 1)}
    shape, layers = given.pop("kind"), given.pop("layers")
    wanted = SHAPES.get(shape, ())
    if not wanted or not set(wanted) <= set(given) <= {*wanted, "scale_bytes_per_head"} or (
            shape == "mla" and "scale_bytes_per_head" in given):  # fmt: skip
        raise FormulaError(f"{one_line(shape)} of {', '.join(given)}: mla has latent and rope, mha, gqa and mqa have "
                           "n_kv, head_dim and perhaps scale_bytes_per_head")
    if shape == "mla":
        found = token_bytes_of_latents(layers, **given, **others)
    else:
        heads, scale = given.pop("n_kv"), given.pop("scale_bytes_per_head", 0)
        found = token_bytes_of_heads(layers, heads, **given, scale_bytes=scale, **others)
    return {
        "per_layer": found.layer,
        "per_token_model": found.model,
        "per_token_per_rank": found.rank,
        "per_token_all_ranks": found.all_ranks,
    }


@kind(
    "kv_concurrency",
    kv_bytes_available=whole, per_token_per_rank=whole, block=whole, context=whole, shared_prefix=Optional(whole),
)
def kv_concurrency(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sequences that fit in blocks, a prefix shared."""
    given = dict(inputs)
    found = block_budget(given.pop("kv_bytes_available"), given.pop("per_token_per_rank"), **given)
    return {
        "block_bytes": found.block_bytes,
        "blocks_total": found.blocks,
        "blocks_per_seq_private": found.private_blocks,
        "shared_blocks": found.shared_blocks,
        "max_sequences": found.sequences,
        "waste_tokens": found.waste,
    }


@kind("swa_blocks", window=whole, max_batched_tokens=whole, context=whole, block=whole)
def swa_blocks(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Positions and blocks that an engine allocates for a sliding window, and positions that it reads."""
    context, batched, block = inputs["context"], inputs["max_batched_tokens"], inputs["block"]
    window = Cache("window", heads=1, key_dim=1, value_dim=1, window=inputs["window"])
    return {
        "tokens": allocated_positions(window, context, batched=batched),
        "blocks": blocks_of(allocated_positions(window, context, block=block, batched=batched), block),
        "steady_decode_tokens": kept_positions(window, context),
    }


@kind("weight_bits", formats=named(list_of(pair_of(whole, whole))))
def weight_bits(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bits per weight of packings, given as bits for each group."""
    packings = {name: [Part(bits, 1, group) for bits, group in parts] for name, parts in inputs["formats"].items()}
    bits = {name: sum((part.per_weight for part in parts), Fraction(0)) for name, parts in packings.items()}
    return {"bits_per_weight": bits}


@kind(
    "moe_step",
    layers=whole, experts=whole, topk=whole, tokens=whole, expert_bytes=whole, cached_per_layer=Optional(whole),
    link_bw=number,
)
def moe_step(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Experts that a step fetches over a link, the most popular of each layer cached."""
    tokens = inputs["tokens"]
    found = expert_traffic(
        uniform_inclusion(inputs["experts"], inputs["topk"], exact=short(inputs["experts"], tokens)),
        tokens,
        layers=inputs["layers"],
        expert_bytes=inputs["expert_bytes"],
        cached=inputs.get("cached_per_layer", 0),
    )
    link = load_bound({"link": exactly(inputs["link_bw"])}, [(found.fetched, {"link": 1})])
    return {
        "mean_misses_per_layer": found.misses,
        "mean_bytes": found.fetched,
        "link_time_at_mean": link.seconds,
        "max_bytes": found.most,
    }
