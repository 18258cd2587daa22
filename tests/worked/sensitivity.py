"""Cases of gradients, upgrades, break-evens and what is worth choosing from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.breakeven import batch_that_hides, cpu_gpu_split, host_attention, rate_that_hides
from offload.gradients import load_gradient, upgrade
from offload.pareto import pareto
from tests.worked import exactly, kind
from tests.worked.shapes import list_of, number, numbers, rates, transfers, whole


@kind("cpu_gpu_split", bytes=number, dram_bw=number, cpu_bw=number, link_bw=number)
def split(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The CPU reads a share in place, the rest streams."""
    given = exactly(inputs)
    found = cpu_gpu_split(given["bytes"], given["dram_bw"], given["cpu_bw"], given["link_bw"])
    return {
        "T": found.seconds,
        "aggregate_rate": found.rate,
        "cpu_share_min": found.share_least,
        "cpu_share_max": found.share_most,
        "T_cpu_only": found.cpu_seconds,
        "T_stream_only": found.stream_seconds,
    }


@kind("attention_offload_ratio", n_q=whole, n_kv=whole, head_dim=whole, elem_bytes=number, context=whole)
def attention(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Activations over the link instead of the KV cache."""
    found = host_attention(
        inputs["n_q"], inputs["n_kv"], inputs["head_dim"], exactly(inputs["elem_bytes"]), inputs["context"]
    )
    return {
        "kv_bytes": found.kv_bytes,
        "activation_bytes": found.row_bytes,
        "new_kv_bytes": found.new_kv_bytes,
        "ratio": found.ratio,
        "break_even_context": found.break_even,
    }


@kind("bound_gradient", caps=rates, transfers=transfers)
def gradient(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The load bound's slope of faster resources, and the upgrade of one that binds."""
    given = exactly(inputs)
    transfers = [(one["bytes"], one["use"]) for one in given["transfers"]]
    found = load_gradient(given["caps"], transfers)
    doubled = upgrade(given["caps"], transfers, found.bottleneck[:1])
    return {
        "T": found.seconds,
        "bottleneck": list(found.bottleneck),
        "dT_dB": {name: slope.up for name, slope in found.rates.items()},
        "T_after_doubling_bottleneck": doubled.seconds,
        "useful_speedup": doubled.most,
    }


@kind("breakeven", streamed_bytes=number, active_params=number, peak_flops=number, link_bw=number, compute_time=number)
def breakeven(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The batch and the link rate that hide what is streamed."""
    given = exactly(inputs)
    streamed = given["streamed_bytes"]
    batch = batch_that_hides(streamed, given["active_params"], given["peak_flops"], given["link_bw"])
    return {
        "batch_exact": batch.exact,
        "batch_tokens": batch.whole,
        "link_bw_to_hide": rate_that_hides(streamed, given["compute_time"]),
    }


@kind("pareto", points=list_of(numbers))
def front(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Points that no other beats."""
    return {"minimise_both_indices": pareto(exactly(inputs["points"]))}
