"""What training moves when optimizer states or activations live in host memory."""

from __future__ import annotations

from dataclasses import dataclass

from offload.bounds import LoadBound, load_bound
from offload.errors import FormulaError, shown
from offload.given import all_not_negative, all_positive, finite, flag
from offload.models.whole import check_whole
from offload.plan import Amount

STATES = 12  # bytes of a parameter's 32-bit master copy, momentum and variance: read and written by each update
HALF = 2  # bytes of a 16-bit parameter


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """One step with the optimizer on the host's processor.

    adam_bytes : that an update reads and writes of host memory for each parameter. host_bytes : the same with what
    copies to and from the device put there [B]. bound : of one step, over "d2h", "h2d", "dram" and "gpu".
    """

    adam_bytes: int
    host_bytes: int
    bound: LoadBound


@finite
def zero_offload(
    parameters: Amount, *, to_host: Amount, to_device: Amount, host_memory: Amount, gradient_bytes: int = 2,
    gpu_seconds: Amount = 0, write_allocate: bool = False,
) -> OptimizerStep:
    """The load bound of a step with Adam on the host: gradients go down, 16-bit parameters come up.

    For each parameter: gradient_bytes (2, or 4 in 32 bits) over `to_host` and 2 over `to_device` [B/s]. Host memory
    (`host_memory`, [B/s]): the update reads master copy, momentum and variance (12) and the gradient, writes 12 and the
    16-bit parameter (2); both copies pass it once more: 32 in all, 36 with 32-bit gradients; 2 more where storing the
    16-bit parameter first reads its cache line (write_allocate). gpu_seconds : forward and backward passes [s]. All
    overlap in the bound; an update that is delayed by a step overlaps so, a plain one does not. Exact for Fractions.
    Raises FormulaError. Source: Ren et al. 2021 (ZeRO-Offload).
    """
    all_not_negative(parameters=parameters, gpu_seconds=gpu_seconds)
    all_positive(to_host=to_host, to_device=to_device, host_memory=host_memory)
    if not isinstance(gradient_bytes, int) or gradient_bytes not in (2, 4):
        raise FormulaError(f"gradient_bytes is {shown(gradient_bytes)}; gradients have 2 bytes or 4.")
    adam = (STATES + gradient_bytes) + (STATES + HALF)
    host = adam + gradient_bytes + HALF + (HALF if flag("write_allocate", write_allocate) else 0)
    rates = {"d2h": to_host, "h2d": to_device, "dram": host_memory, "gpu": 1}
    use = {"d2h": gradient_bytes, "h2d": HALF, "dram": host}
    return OptimizerStep(adam, host, load_bound(rates, [(parameters, use), (gpu_seconds, {"gpu": 1})]))


@dataclass(frozen=True, slots=True)
class CheckpointTraffic:
    """Activation checkpoints that leave the device in a forward pass and come back in the backward one.

    bytes : each way. to_host_seconds, to_device_seconds : of the link alone [s].
    """

    bytes: Amount
    to_host_seconds: Amount
    to_device_seconds: Amount


@finite
def checkpoint_traffic(
    layers: int, *, hidden: int, tokens: Amount, interval: int = 1, element_bytes: Amount = 2, to_host: Amount,
    to_device: Amount,
) -> CheckpointTraffic:
    """Bytes of activation checkpoints and their time on the link: layers / interval x hidden x tokens x bytes.

    One checkpoint for each `interval` layers; where those do not divide the layers the last counts by its share, so
    that the bytes are no more than move. tokens : sequence x batch. to_host, to_device : rates [B/s]. Whole numbers
    that divide give whole bytes, Fractions are exact. Raises FormulaError. Source: Rajbhandari et al. 2021
    (ZeRO-Infinity), there 2 x batch x sequence x hidden x layers / interval for 16 bits.
    """
    check_whole("layers", layers, 1, 10**6)
    check_whole("hidden", hidden, 1, 10**9)
    check_whole("interval", interval, 1, 10**6)
    if interval > layers:
        raise FormulaError(f"interval is {interval}: no checkpoint in {layers} layers. Give at most {layers}.")
    all_not_negative(tokens=tokens)
    all_positive(element_bytes=element_bytes, to_host=to_host, to_device=to_device)
    whole, rest = divmod(layers, interval)
    each = hidden * tokens * element_bytes
    size = whole * each + (each * rest / interval if rest else 0)
    bound = load_bound({"d2h": to_host, "h2d": to_device}, [(size, {"d2h": 1, "h2d": 1})]).resource_seconds
    return CheckpointTraffic(size, bound["d2h"], bound["h2d"])
