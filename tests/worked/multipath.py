"""Cases of demands that are split over routes or tiers, and of the prices that prove what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.multipath import best_cut, dual_bound, fixed_bound, multipath
from offload.tiers import Item, Tier, tier_placement
from tests.worked import exactly, kind
from tests.worked.shapes import commodities, number, rates


def ships_of(given: Mapping[str, Any]) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    return [(one["bytes"], one["paths"]) for one in given["commodities"]]


def every(names: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the zeros that an answer leaves out."""
    return {name: found.get(name, 0) for name in names}


@kind("lp_min_makespan", caps=rates, commodities=commodities)
def lp_min_makespan(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The split over routes, its prices, the first routes alone and the best cut (where a case has few resources)."""
    given = exactly(inputs)
    rates, ships = given["caps"], ships_of(given)
    found = multipath(rates, ships)
    answers = {
        "T_lp": found.bound,
        "T_first_route_only": fixed_bound(rates, ships),
        "price_normalised": every(rates, found.prices),
        "dT_dB": every(rates, found.per_rate),
        "dT_dD": list(found.distances),
    }
    if len(rates) <= 16:
        answers["T_best_cut"] = best_cut(rates, ships)[0]
    return answers


@kind("dual_certificate", caps=rates, commodities=commodities, price=rates)
def dual_certificate(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What given prices prove."""
    given = exactly(inputs)
    return {"certified_lower_bound": dual_bound(given["caps"], ships_of(given), given["price"])}


@kind(
    "tier_placement",
    weight_bytes=number, hbm_free=number, host_free=number, link_bw=number, nvme_bw=number, dram_bw=number,
)
def three_tiers(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Weights over HBM, host memory and a drive; what comes from the drive passes host memory twice."""
    given = exactly(inputs)
    found = tier_placement(
        {"link": given["link_bw"], "nvme": given["nvme_bw"], "dram": given["dram_bw"]},
        [
            Tier("hbm", given["hbm_free"], {}),
            Tier("host", given["host_free"], {"link": 1, "dram": 1}),
            Tier("nvme", None, {"nvme": 1, "dram": 2, "link": 1}),
        ],
        [Item(given["weight_bytes"])],
    )
    return {
        "gpu_bytes": found.stored["hbm"],
        "host_bytes": found.stored["host"],
        "nvme_bytes": found.stored["nvme"],
        "resource_time": found.resource_seconds,
        "T": found.bound,
        "dT_dM": every(found.stored, found.per_room),
    }
