"""Cases of pipelines, overlap, and latency and message size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from offload.errors import FormulaError, shown
from offload.events import double_buffer, prefetch_chain
from offload.messages import AlphaBeta, best_chunks
from offload.overlap import FORMS, combine, copy_in, efficiency, evaluate, intensities, rooflines
from offload.pipelines import flow_shop, path_times, steps_of_chain, streamed_layers, tandem
from tests.worked import exactly, kind
from tests.worked.shapes import (
    Optional,
    list_of,
    nothing_or,
    number,
    numbers,
    one_or_each,
    pair_of,
    table,
    text,
    whole,
    wholes,
)


def keyed(keys: Sequence[Any], answer: Callable[[Any], Any]) -> dict[Any, Any]:
    """Answers by key, as a number and as the text that it is in JSON."""
    answers = {key: answer(key) for key in keys}
    return answers | {str(key): value for key, value in answers.items()}


def per_layer(given: Any, count: int) -> list[Fraction]:
    """A time for each layer, where one is given for all."""
    return exactly(given) if isinstance(given, list) else [exactly(given)] * count


@kind("path_times", bytes=number, hop_bandwidth=numbers, chunks=whole)
def path(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cut-through, store-and-forward and chunked."""
    times = path_times(exactly(inputs["bytes"]), exactly(inputs["hop_bandwidth"]), inputs["chunks"])
    return {"cut_through": times.cut_through, "store_and_forward": times.store_and_forward, "chunked": times.chunked}


@kind(
    "tandem_pipeline",
    stage_times=numbers, items=whole, slots=Optional(nothing_or(list_of(nothing_or(whole)))),
    pool=Optional(nothing_or(whole)),
)
def stages(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stages in a row with slots between or one pool."""
    made = tandem(exactly(inputs["stage_times"]), inputs["items"], inputs.get("slots"), inputs.get("pool"))
    return {"makespan": made.makespan, "steady_period": made.period}


@kind("prefetch_chain", fetch=numbers, compute=numbers, buffers=wholes)
def chain(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Layers fetched ahead, by number of buffers."""
    fetch, compute = exactly(inputs["fetch"]), exactly(inputs["compute"])
    chains = {buffers: prefetch_chain(fetch, compute, buffers) for buffers in inputs["buffers"]}
    return {
        "makespan": keyed(inputs["buffers"], lambda buffers: chains[buffers].cold_seconds),
        "steady_period": keyed(inputs["buffers"], lambda buffers: chains[buffers].seconds),
        "makespan_unbounded": flow_shop(fetch, compute),
        "sum": combine([*fetch, *compute], 0).total,
        "max": combine([sum(fetch), sum(compute)], 1).longest,
    }


@kind("double_buffer_closed_form", fetch=numbers, compute=numbers)
def two_buffers(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two buffers in closed form, between full overlap and none."""
    fetch, compute = exactly(inputs["fetch"]), exactly(inputs["compute"])
    made = double_buffer(fetch, compute)
    ends = combine([sum(fetch), sum(compute)], 0)
    return {"cold": made.cold_seconds, "steady": made.seconds, "lower": ends.longest, "upper": ends.total}


@kind(
    "resident_layout",
    pattern=text, fetch=one_or_each(number), compute=one_or_each(number), buffers=whole, steps=whole,
)
def layout(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Steps of a pattern of streamed and resident layers."""
    pattern = inputs["pattern"]
    if not pattern or set(pattern) - set("SR"):
        raise FormulaError(f"pattern: {shown(pattern)} is no text of S (streamed) and R (resident)")
    fetch, compute = (per_layer(inputs[name], len(pattern)) for name in ("fetch", "compute"))
    resident = [letter == "R" for letter in pattern]
    run = steps_of_chain(fetch, compute, inputs["buffers"], inputs["steps"], resident)
    return {"first_step": run.first_step, "steady_step": run.steady_step, "total": run.total}


@kind("streamed_layers", layers=whole, layers_that_fit=whole, buffers=whole)
def streamed(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What buffers leave for resident layers."""
    kept = streamed_layers(inputs["layers"], inputs["layers_that_fit"], inputs["buffers"])
    return {"resident": kept.resident, "streamed": kept.streamed}


@kind("overlap_combine", component_times=numbers, omega=number)
def overlap(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Partial overlap of component times."""
    made = combine(exactly(inputs["component_times"]), exactly(inputs["omega"]))
    return {"max": made.longest, "sum": made.total, "adjusted": made.seconds}


@kind("flexgen_forms", comp=number, ctog=number, gtoc=number, ctod=number, dtoc=number)
def flexgen(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """FlexGen's forms, as published and as released."""
    given = exactly(inputs)
    names = {"max_of_five": "flexgen paper", "grouped_prefill": "flexgen prefill", "grouped_decode": "flexgen decode"}
    return {key: evaluate(FORMS[name].form, given) for key, name in names.items()} | {
        "sum": evaluate(" + ".join(given), given)}  # fmt: skip


@kind("roofline_ops", peak_flops=number, mem_bw=number, ops=list_of(table(flops=number, bytes=number)))
def ops(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rooflines of operations, one by one and together."""
    given = exactly(inputs)
    made = rooflines([(op["flops"], op["bytes"]) for op in given["ops"]], given["peak_flops"], given["mem_bw"])
    return {"per_op": list(made.per_op), "serial_sum": made.serial, "aggregate_bound": made.aggregate,
            "no_overlap_sum": made.no_overlap}  # fmt: skip


@kind(
    "hbm_contention",
    flops=number, peak_flops=number, compute_hbm_bytes=number, copy_in_bytes=number,
    copy_out_bytes=Optional(number), link_bw=number, hbm_bw=number,
)
def contention(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copies in beside compute."""
    given = exactly(inputs)
    made = copy_in(given["flops"], given["compute_hbm_bytes"], given["copy_in_bytes"], flops=given["peak_flops"],
                   hbm=given["hbm_bw"], link=given["link_bw"], copied_out=given.get("copy_out_bytes", 0))  # fmt: skip
    return {"resource_time": made.resource_seconds, "T": made.seconds, "T_ignoring_contention": made.ignoring,
            "T_exclusive_port": made.exclusive_port}  # fmt: skip


@kind("zero_infinity_eff", seq=number, batch=number, hidden=number, ckpt_interval=number, bw=number, peak=number)
def zero_infinity(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arithmetic intensities of training and the efficiency that they allow."""
    given = exactly(inputs)
    found = intensities(given["seq"], given["batch"], given["hidden"], given["ckpt_interval"])
    ait = {name: getattr(found, name) for name in ("params_grads", "optimizer", "activations")}
    return {"ait": ait, "efficiency": {name: efficiency(one, given["bw"], given["peak"]) for name, one in ait.items()}}


@kind("alpha_beta", alpha=number, bandwidth=number, message=number, total=number, queue_depths=wholes)
def alpha_beta(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message, a total in serial messages, and messages in a queue."""
    given = exactly(inputs)
    link, size = AlphaBeta(given["alpha"], given["bandwidth"]), given["message"]
    return {
        "n_half": link.half,
        "time": link.seconds(size),
        "effective_bandwidth": link.rate(size),
        "serial_total_time": link.in_turn(given["total"], size),
        "throughput_by_queue_depth": keyed(inputs["queue_depths"], lambda depth: link.throughput(size, depth)),
    }


@kind("chunk_pipeline_opt", bytes=number, bandwidth=number, alpha=number, hops=whole)
def chunks(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The best chunk over hops."""
    given = exactly(inputs)
    best = best_chunks(given["bytes"], AlphaBeta(given["alpha"], given["bandwidth"]), inputs["hops"])
    return {"chunk_bytes": best.chunk_bytes, "time": best.seconds}


@kind("step_table_time", bandwidth=number, table=list_of(pair_of(number, number)), sizes=numbers)
def step_table(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Efficiency as steps of size, which the library has not: a larger message would be faster than a smaller one."""
    given = exactly(inputs)
    steps = sorted(given["table"], reverse=True)  # (from this size on, efficiency)

    def seconds(size: int) -> Fraction:
        share = next((share for least, share in steps if size >= least), None)
        if share is None:
            raise FormulaError(f"sizes: {shown(size)} is below every size of the table")
        return Fraction(size) / (share * given["bandwidth"])

    return {"time_by_size": keyed(inputs["sizes"], seconds)}
