"""Cases of techniques in closed form: batches, speculation, training, a decode step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.techniques import checkpoint_traffic, decode_step, speculated_pass, streamed_batch, zero_offload
from tests.worked import exactly, kind
from tests.worked.shapes import Optional, number, whole, wholes


@kind("spec_decode", accept=number, draft_len=whole, weight_bytes=number, link_bw=number)
def spec_decode(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Link time per token with speculation."""
    given = exactly(inputs)
    found = speculated_pass(given["weight_bytes"], given["link_bw"], given["accept"], inputs["draft_len"])
    return {
        "tokens_per_step": found.tokens,
        "step_time_link": found.seconds,
        "time_per_token_link": found.seconds_per_token,
    }


@kind("batching", weight_stream_bytes=number, kv_stream_bytes_per_seq=number, link_bw=number, batches=wholes)
def batching(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Weights once a step, KV for each sequence."""
    given = exactly(inputs)
    streamed = given["weight_stream_bytes"], given["kv_stream_bytes_per_seq"], given["link_bw"]
    found = {batch: streamed_batch(*streamed, batch) for batch in given["batches"]}
    return {
        "by_batch": {
            batch: {"step_time": one.seconds, "tokens_per_s": one.tokens_per_s} for batch, one in found.items()
        },
        "limit_tokens_per_s": next(iter(found.values())).limit,
    }


@kind("zero_offload", params=number, d2h_bw=number, h2d_bw=number, dram_bw=number)
def zero_offload_step(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A step with the optimizer on the host."""
    given = exactly(inputs)
    rates = {"to_host": given["d2h_bw"], "to_device": given["h2d_bw"], "host_memory": given["dram_bw"]}
    found = zero_offload(given["params"], **rates)
    return {
        "adam_dram_bytes_per_param": found.adam_bytes,
        "dram_bytes_per_param_total": found.host_bytes,
        "resource_time": found.bound.resource_seconds,
        "T": found.bound.seconds,
    }


@kind(
    "activation_ckpt",
    layers=whole, interval=Optional(whole), hidden=whole, seq=number, batch=number, elem_bytes=number,
    d2h_bw=number, h2d_bw=number,
)
def activation_ckpt(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Activation checkpoints that leave and come back."""
    given = exactly(inputs)
    found = checkpoint_traffic(
        inputs["layers"],
        hidden=inputs["hidden"],
        tokens=given["seq"] * given["batch"],
        interval=inputs.get("interval", 1),
        element_bytes=given["elem_bytes"],
        to_host=given["d2h_bw"],
        to_device=given["h2d_bw"],
    )
    return {"bytes_each_way": found.bytes, "d2h_time": found.to_host_seconds, "h2d_time": found.to_device_seconds}


@kind(
    "llm_decode_step",
    layers=whole, layer_weight_bytes=number, active_params_per_layer=number, kv_bytes_per_token_layer=number,
    batch=whole, context=whole, hbm_for_weights=number, hbm_bw=number, peak_flops=number, link_bw=number,
    buffers=Optional(whole),
)
def llm_decode_step(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A decode step of equal layers, some of them streamed."""
    given = exactly(inputs)
    found = decode_step(
        inputs["layers"],
        layer_bytes=given["layer_weight_bytes"],
        active_parameters=given["active_params_per_layer"],
        kv_bytes=given["kv_bytes_per_token_layer"],
        batch=inputs["batch"],
        context=inputs["context"],
        room=given["hbm_for_weights"],
        memory_rate=given["hbm_bw"],
        flop_rate=given["peak_flops"],
        link_rate=given["link_bw"],
        buffers=inputs.get("buffers", 2),
    )
    return {
        "resident": found.resident,
        "streamed": found.streamed,
        "fetch_per_layer": found.fetch_seconds,
        "compute_per_layer": found.compute_seconds,
        "link_time": found.loads.resource_seconds["link"],
        "hbm_time": found.loads.resource_seconds["memory"],
        "flop_time": found.loads.resource_seconds["flop"],
        "compute_serial": found.compute_serial,
        "lower_bound": found.lower_bound,
        "no_overlap": found.no_overlap,
        "tokens_per_s_upper": found.tokens_per_s,
    }
