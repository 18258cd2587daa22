"""Break-evens: from which rate, batch, context or hit rate on something no longer costs time, or meets a target.

Closed forms over plain numbers, exact with Fractions. None says that no value of the kind does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isqrt, lcm

from offload.given import as_written, finite, flag, not_negative, positive, share, whole
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class Split:
    """A step whose weights a CPU reads in place in part, while the rest streams to a GPU.

    seconds : the least time [s]; rate : bytes over it [B/s]; share_least, share_most : the CPU's shares that reach it
    [1]; cpu_seconds, stream_seconds : all on the CPU, all streamed [s], None where that never ends.
    """

    seconds: Amount
    rate: Amount
    share_least: Amount
    share_most: Amount
    cpu_seconds: Amount | None
    stream_seconds: Amount | None


@finite
def cpu_gpu_split(bytes: Amount, dram: Amount, cpu: Amount, link: Amount) -> Split:
    """The CPU's share of W bytes in host memory that takes least time, the rest streamed over a link.

    dram, cpu, link : rates of host memory, of the CPU's own reads and of the link [B/s]; one of the last two may be 0.
    X = min(B_dram, B_cpu + B_link), T = W / X, for any share from 1 - B_link / X to B_cpu / X: each of the three
    resources serves its part in T. Where the CPU alone saturates host memory, streaming beside it gains nothing. A load
    bound: both read at the same time, and compute takes less than reading. Raises FormulaError.
    """
    positive("bytes", bytes)
    positive("dram", dram)
    not_negative("cpu", cpu)
    not_negative("link", link)
    rate = min(dram, positive("cpu + link", cpu + link))
    cpu, link = min(cpu, dram), min(link, dram)
    none = 0 * rate
    return Split(
        bytes / rate, rate, max(none, (rate - link) / rate), cpu / rate if cpu < rate else none + 1,
        bytes / cpu if cpu else None, bytes / link if link else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostAttention:
    """Bytes over the link for one layer of one sequence in one step, attention at the GPU or at the host.

    kv_bytes : keys and values of the whole context, moved to the GPU; row_bytes : the query and the output, moved
    instead; new_kv_bytes : the new position's keys and values, which move to the host. ratio : first over the others.
    break_even : the context at which both move as much; wins_from : the first whole one at which the host moves less.
    """

    kv_bytes: Amount
    row_bytes: Amount
    new_kv_bytes: Amount
    ratio: Amount
    break_even: Fraction
    wins_from: int


@finite
def host_attention(q_heads: int, kv_heads: int, head_dim: int, bytes: Amount, context: int) -> HostAttention:
    """What attention at the host saves of a link: 2 n_kv d b L against 2 n_q d b + 2 n_kv d b.

    bytes : b of one value; one format for all of it. Both are equal at L0 = n_q / n_kv + 1, whatever d and b are. It
    then costs the host's memory and processor, of which this says nothing. Raises FormulaError.
    """
    for name, value in (("q_heads", q_heads), ("kv_heads", kv_heads), ("head_dim", head_dim)):
        whole(name, value, 1)
    whole("context", context, 0)
    positive("bytes", bytes)
    new = 2 * kv_heads * head_dim * bytes
    rows = 2 * q_heads * head_dim * bytes
    equal = Fraction(int(q_heads), int(kv_heads)) + 1
    ratio = new * context / (rows + new) if isinstance(bytes, float) else Fraction(new * context) / (rows + new)
    return HostAttention(new * context, rows, new, ratio, equal, floor(equal) + 1)


@finite
def rate_that_hides(streamed: Amount, compute_seconds: Amount) -> Amount | None:
    """The link rate [B/s] from which `streamed` bytes a step hide behind compute: W / T_compute.

    Complete overlap is meant. None where something is streamed behind no compute. Raises FormulaError.
    """
    not_negative("streamed", streamed)
    not_negative("compute_seconds", compute_seconds)
    if not compute_seconds:
        return None if streamed else streamed
    return streamed / compute_seconds


@dataclass(frozen=True, slots=True)
class Tokens:
    """A number of tokens: `exact` where both sides are equal, `whole` the first whole number that reaches it."""

    exact: Amount
    whole: int


@finite
def batch_that_hides(
    streamed: Amount, active_params: Amount, flops: Amount, link: Amount, streamed_each: Amount = 0
) -> Tokens | None:
    """The tokens in a step from which arithmetic takes as long as what is streamed.

    streamed : bytes a step whatever the batch, W; streamed_each : bytes for each token (KV), k. 2 N B / P >=
    (W + B k) / B_link, so B = W / (2 N B_link / P - k); with k = 0 P W / (2 N B_link), and with all weights streamed
    P b / (2 B_link) of b bytes each, whatever the model's size. None where each token streams for at least as long as
    it computes: no batch hides that. 2 FLOP for each parameter and token; arithmetic alone. Raises FormulaError.
    """
    not_negative("streamed", streamed)
    not_negative("streamed_each", streamed_each)
    for name, value in (("active_params", active_params), ("flops", flops), ("link", link)):
        positive(name, value)
    due = [as_written(value) for value in (streamed, streamed_each, active_params, flops, link)]
    spare = 2 * due[2] * due[4] - due[1] * due[3]
    if not streamed and spare >= 0:  # nothing but what each token streams and hides itself
        return Tokens(streamed, 0)
    return None if spare <= 0 else _tokens(due[3] * due[0] / spare, streamed, streamed_each, active_params, flops, link)


def _tokens(exact: Fraction, *given: Amount) -> Tokens:
    """Worked out in fractions, so that the whole number is right; a float where a float was given."""
    return Tokens(float(exact) if any(isinstance(one, float) for one in given) else exact, ceil(exact))


@finite
def prompt_that_hides(
    streamed: Amount, active_params: Amount, flops: Amount, link: Amount, attention: Amount = 0
) -> int:
    """The fewest prompt tokens in one pass whose arithmetic takes as long as streaming `streamed` bytes.

    attention : FLOP for each square of the number of tokens, over all layers (2 n_q d each, causal). The first whole t
    with (2 N t + a t^2) / P >= W / B_link. Raises FormulaError.
    """
    not_negative("streamed", streamed)
    not_negative("attention", attention)
    for name, value in (("active_params", active_params), ("flops", flops), ("link", link)):
        positive(name, value)
    due = as_written(streamed) * as_written(flops) / as_written(link)
    each, square = 2 * as_written(active_params), as_written(attention)
    if not square:
        return ceil(due / each)
    # In whole numbers the root (sqrt(e^2 + 4 a d) - e) / 2a lies in the next two above its floor.
    unit = lcm(due.denominator, each.denominator, square.denominator)
    d, e, a = int(due * unit), int(each * unit), int(square * unit)
    first = (isqrt(e * e + 4 * a * d) - e) // (2 * a)
    return next(t for t in range(first, first + 3) if a * t * t + e * t >= d)


@finite
def batch_for_rate(weights: Amount, kv: Amount, link: Amount, tokens_per_s: Amount) -> Tokens | None:
    """The batch at which one link that carries weights once a step and KV for each sequence gives so many tokens/s.

    T = (W + B k) / B_link, so B = r W / (B_link - r k). None where r >= B_link / k: throughput rises towards that and
    does not reach it (but for W = 0, where any batch has it). Raises FormulaError.
    """
    not_negative("weights", weights)
    not_negative("kv", kv)
    positive("link", link)
    positive("tokens_per_s", tokens_per_s)
    due = [as_written(value) for value in (weights, kv, link, tokens_per_s)]
    spare = due[2] - due[3] * due[1]
    if not weights:
        return Tokens(weights, 1) if spare >= 0 else None
    return None if spare <= 0 else _tokens(due[3] * due[0] / spare, weights, kv, link, tokens_per_s)


@finite
def hit_rate_needed(
    bytes: Amount, link: Amount, seconds: Amount, other_seconds: Amount = 0, overlapped: bool = True
) -> Amount | None:
    """The share of `bytes` that a cache has to spare a link so that a step takes at most `seconds` [1].

    other_seconds : everything else, beside the transfers where they are overlapped (T = max) and before them where not
    (T = sum). 1 - t B / D, t what is left for the link; None where everything else alone takes longer. A share of
    bytes, not of look-ups. Raises FormulaError.
    """
    not_negative("bytes", bytes)
    positive("link", link)
    left = _left(seconds, other_seconds, overlapped)
    if left is None:
        return None
    none = 0 * left
    return share("hit rate", max(none, 1 - left * link / bytes)) if bytes else none


@finite
def rate_needed(
    bytes: Amount, seconds: Amount, other_seconds: Amount = 0, overlapped: bool = True
) -> Amount | None:
    """The rate [B/s] at which `bytes` a step take no longer than is left of `seconds`: D / t.

    other_seconds, overlapped : as of `hit_rate_needed`. None where no rate does. Raises FormulaError.
    """
    not_negative("bytes", bytes)
    left = _left(seconds, other_seconds, overlapped)
    if left is None or (bytes and not left):
        return None
    return bytes / left if bytes else 0 * bytes


def _left(seconds: Amount, other_seconds: Amount, overlapped: bool) -> Amount | None:
    positive("seconds", seconds)
    not_negative("other_seconds", other_seconds)
    flag("overlapped", overlapped)
    if other_seconds > seconds:
        return None
    return seconds if overlapped else seconds - other_seconds
