"""One decode step of equal layers on a device that holds some of them and streams the rest."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from offload.bounds import LoadBound, load_bound
from offload.errors import CapacityError, one_line
from offload.given import all_not_negative, all_positive, finite
from offload.models.whole import check_whole
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """A decode step, all times in [s].

    resident, streamed : layers. fetch_seconds, compute_seconds : of one layer alone. loads : the load bound over
    "link", "memory" and "flop". compute_serial : all layers one after another. lower_bound : the larger of both.
    no_overlap : each fetch, then its compute. tokens_per_s : at most.
    """

    resident: int
    streamed: int
    fetch_seconds: Amount
    compute_seconds: Amount
    loads: LoadBound
    compute_serial: Amount
    lower_bound: Amount
    no_overlap: Amount
    tokens_per_s: Amount


@finite
def decode_step(
    layers: int, *, layer_bytes: Amount, active_parameters: Amount, kv_bytes: Amount, batch: int, context: int,
    room: Amount, memory_rate: Amount, flop_rate: Amount, link_rate: Amount, buffers: int = 2,
) -> DecodeStep:
    """The floor of a decode step and its time without overlap.

    room : bytes for weights on the device. R = floor(room / w) - buffers layers stay, all of them where all fit; S =
    layers - R are streamed. Loads: link S w; memory N (w + kv) + S w, as a copy writes what compute then reads; FLOP
    2 x batch x active_parameters (of a layer). Layers wait for each other, so N x max((w + kv) / memory, FLOP / peak)
    is a floor too; a fetch alone takes w over the slower of link and memory. kv = batch x context x kv_bytes (of a
    position in a layer). What a schedule with these buffers attains lies between lower_bound and no_overlap
    (`offload.events.prefetch_chain`). Exact for Fractions. Raises FormulaError, and CapacityError where the buffers
    alone do not fit.
    """
    check_whole("layers", layers, 1, 10**6)
    check_whole("buffers", buffers, 1, 10**6)
    check_whole("batch", batch, 1, 10**9)
    check_whole("context", context, 0, 10**12)
    all_not_negative(active_parameters=active_parameters, kv_bytes=kv_bytes, room=room)
    all_positive(layer_bytes=layer_bytes, memory_rate=memory_rate, flop_rate=flop_rate, link_rate=link_rate)
    resident = _resident(layers, layer_bytes, room, buffers)
    streamed = layers - resident
    reads, flops = layer_bytes + batch * context * kv_bytes, 2 * batch * active_parameters
    loads = load_bound(
        {"link": link_rate, "memory": memory_rate, "flop": flop_rate},
        [(streamed * layer_bytes, {"link": 1, "memory": 1}), (layers * reads, {"memory": 1}),
         (layers * flops, {"flop": 1})],
    )  # fmt: skip
    fetch = layer_bytes / min(link_rate, memory_rate)
    compute = max(reads / memory_rate, flops / flop_rate)
    serial = layers * compute
    lower = max(loads.seconds, serial)
    return DecodeStep(resident, streamed, fetch, compute, loads, serial, lower, streamed * fetch + serial,
                      batch / lower)  # fmt: skip


def _resident(layers: int, layer_bytes: Amount, room: Amount, buffers: int) -> int:
    held = Fraction(room) // Fraction(layer_bytes)  # the quotient of floats may be infinite
    if held >= layers:
        return layers
    if held < buffers:
        raise CapacityError(f"{buffers} buffers of a layer do not fit: there is room for {held}. Take fewer, or give "
                            f"{one_line(buffers * layer_bytes)} bytes.")
    return held - buffers
