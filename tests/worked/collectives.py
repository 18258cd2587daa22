"""Cases of collectives, and of what amplifies loads: pages, packets, stripes, drives that are read and written."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from offload.amplification import mixed_rows, packets, pages, raid
from offload.bounds import load_bound
from offload.collectives import (
    ALGORITHMS,
    algorithm_bandwidth,
    bus_bandwidth,
    cost,
    cut_bound,
    endpoint_bound,
    in_network_speedup,
    latency_bound,
)
from tests.worked import exactly, kind
from tests.worked.shapes import Optional, number, text, whole

NAMES = {name.replace("_", ""): name for name in ALGORITHMS}


@kind("collective_time", op=text, n=whole, bytes=number, node_bw=number, alpha=Optional(number))
def collective_time(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bounds and times of the algorithms of a collective on equal ranks; algbw and busbw are those of the first."""
    given, n = exactly(inputs), inputs["n"]
    name = NAMES[inputs["op"].replace("_", "").replace("-", "")]
    bytes, rate, alpha = given["bytes"], given["node_bw"], given.get("alpha", Fraction(0))
    answers = {
        f"{algorithm}_time": cost(name, algorithm, n).seconds(bytes, rate, alpha) for algorithm in ALGORITHMS[name]
    }
    first = answers[f"{ALGORITHMS[name][0]}_time"]
    answers |= {"bandwidth_bound": endpoint_bound(name, n, bytes, rate), "latency_bound": latency_bound(n, alpha)}
    if first > 0:
        answers |= {"algbw": algorithm_bandwidth(bytes, first), "busbw": bus_bandwidth(name, n, bytes, first)}
    if name == "all_reduce":
        answers |= {
            "nvls_traffic_time": cost(name, "in_network", n).seconds(bytes, rate),
            "in_network_bound": endpoint_bound(name, n, bytes, rate, switches_add=True),
            "nvls_speedup_over_ring_bw": in_network_speedup(n),
        }
    return answers


@kind("cut_bounds", n=whole, bytes=number, node_bw=number, cut_size=whole, cut_bw=number)
def cut_bounds(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The larger of the endpoint bound and the one of a cut, for each collective."""
    given, n, s = exactly(inputs), inputs["n"], inputs["cut_size"]
    return {
        short: max(endpoint_bound(name, n, given["bytes"], given["node_bw"]),
                   cut_bound(name, n, given["bytes"], s, given["cut_bw"]))
        for short, name in NAMES.items()
    }  # fmt: skip


@kind("page_round", count=whole, item_bytes=whole, page=whole)
def page_round(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    found = pages(inputs["count"], inputs["item_bytes"], inputs["page"])
    return {"item_device_bytes": found.item_bytes, "total_device_bytes": found.total_bytes,
            "amplification": found.amplification}  # fmt: skip


@kind(
    "pcie_tlp",
    gt_per_s=number, lanes=whole, enc_num=whole, enc_den=whole, mps=whole, mrrs=whole, cpl_overhead=whole,
    mwr_overhead=whole, mrd_overhead=whole,
)
def pcie_tlp(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    given = exactly(inputs)
    raw = given["gt_per_s"] * 10**9 * given["lanes"] * given["enc_num"] / given["enc_den"] / 8
    found = packets(inputs["mps"], inputs["mrrs"], completion=inputs["cpl_overhead"], write=inputs["mwr_overhead"],
                    request=inputs["mrd_overhead"])  # fmt: skip
    read, write = found.rates(raw)
    return {"raw_bytes_per_s": raw, "read_payload_bytes_per_s": read, "write_payload_bytes_per_s": write,
            "request_bytes_per_payload_byte_reverse": found.request}  # fmt: skip


@kind("raid", disks=whole, disk_bw=number, uplink_bw=number, bytes=number, level=text)
def raid_case(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A drive of the set and the link that all share, as two rows."""
    given = exactly(inputs)
    found = raid(inputs["level"], inputs["disks"])
    use = {"device": found.reads + found.writes, "uplink": max(found.uplink_reads, found.uplink_writes)}
    bound = load_bound({"device": given["disk_bw"], "uplink": given["uplink_bw"]}, [(given["bytes"], use)])
    return {"device_time": bound.resource_seconds["device"], "uplink_time": bound.resource_seconds["uplink"],
            "T": bound.seconds}  # fmt: skip


@kind("mixed_io", read_bytes=number, write_bytes=number, read_bw=number, write_bw=number, total_bw=Optional(number))
def mixed_io(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    given = exactly(inputs)
    total = given.get("total_bw")
    figures = [given[key] for key in ("read_bytes", "write_bytes", "read_bw", "write_bw")]
    return {
        "time_shared": load_bound(*mixed_rows(*figures, time_shared=True)).seconds,
        "independent": load_bound(*mixed_rows(*figures)).seconds,
        "with_total_cap": load_bound(*mixed_rows(*figures, total)).seconds,
    }
