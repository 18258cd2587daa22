"""How many requests a KV memory takes: what fits now, each at its worst, or by the risk that all together overflow it.

Each request held at its own high quantile is far too careful: not all are long at once. The stored lengths of requests
that are drawn independently have a sum, and its distribution is one length's, convolved with itself; the risk is the
probability that the sum exceeds the positions that there are. A quantile of each is no quantile of the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from offload.errors import ModelError
from offload.models.cache import blocks_of
from offload.models.lengths import Lengths, summed_blocks
from offload.models.overflow import Overflow, Part, Risk, evenly
from offload.models.whole import LARGEST_AMOUNT, check_whole

if TYPE_CHECKING:
    import numpy as np


class Stored(Protocol):
    """A distribution of stored positions."""

    def below(self, ends: np.ndarray) -> np.ndarray:
        """P(stored <= end) for each end."""

    def blocks_up_to(self, ends: np.ndarray, block: int) -> np.ndarray:
        """E[the smaller of the blocks that are stored and the end] for each end, in blocks."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The whole blocks that a request stores, as an amount of `overflow`."""

    lengths: Stored
    block: int = 1

    def at_most(self, ends: np.ndarray) -> np.ndarray:
        """P(blocks <= end) for each end."""
        return self.lengths.below(ends * float(self.block))

    def mean_up_to(self, ends: np.ndarray) -> np.ndarray:
        """E[the smaller of blocks and end] for each end."""
        return self.lengths.blocks_up_to(ends, self.block)


@dataclass(frozen=True, slots=True)
class SteadyLengths:
    """What a request has stored at a random moment of its life: the prompt, and what has come of its output.

    The output grows evenly, so a long request is seen more often, in proportion to its length, and each part of its
    life is as likely: P(output so far <= x) = E[min(output, x)] / E[output].
    """

    outputs: Lengths
    prompt: int = 0

    def __post_init__(self) -> None:
        check_whole("prompt", self.prompt, 0, LARGEST_AMOUNT)

    @property
    def mean(self) -> float:
        """Mean stored positions: prompt + E[output^2] / (2 E[output])."""
        return self.prompt + self.outputs.mean_square / (2 * self.outputs.mean)

    def below(self, ends: np.ndarray) -> np.ndarray:
        """P(stored <= end) for each end, in positions."""
        import numpy as np

        return self.outputs.mean_up_to(np.maximum(ends - self.prompt, 0)) / self.outputs.mean * (ends >= self.prompt)

    def mean_up_to(self, ends: np.ndarray) -> np.ndarray:
        """Mean of the smaller of stored and end, for each end of 0 or more: the integral of P(stored > x) up to it."""
        import numpy as np

        outputs, past = self.outputs, np.maximum(ends - self.prompt, 0)
        integral = past * outputs.mean_up_to(past) - outputs.square_up_to(past) / 2  # of the mean of the smaller
        up_to: np.ndarray = ends - integral / outputs.mean
        return up_to

    def blocks_up_to(self, ends: np.ndarray, block: int) -> np.ndarray:
        """Mean of the smaller of stored blocks and end, for each end in blocks."""
        return summed_blocks(self, ends, block)


def steady_mean(lengths: Lengths, prefix: int = 0) -> float:
    """Mean positions of a request at a random moment of its life, if all of its length but a prefix is output.

    The prefix is there from the start: prefix + E[output^2] / (2 E[output]), of outputs of max(0, length - prefix).
    Raises ModelError where no length exceeds the prefix.
    """
    import numpy as np

    if not prefix:
        return SteadyLengths(lengths).mean
    end = np.array([float(prefix)])
    output = lengths.mean - float(lengths.mean_up_to(end)[0])
    square = lengths.mean_square - float(lengths.square_up_to(end)[0]) - 2 * prefix * output
    if output <= 0:
        raise ModelError(f"a prompt or prefix of {prefix:,} positions leaves no output to any request.")
    return prefix + square / (2 * output)


def mean_stored(prompts: Sequence[int], outputs: Sequence[int]) -> float:
    """Mean positions that a request has stored at a random moment, for requests with these prompts and outputs.

    sum of output x (prompt + output / 2) over sum of outputs: a request lives as long as its output, and half of that
    is there on average. Raises ModelError unless there are as many of both, whole and positive (a prompt may be 0).
    """
    if len(prompts) != len(outputs) or not outputs:
        raise ModelError(f"{len(prompts)} prompts and {len(outputs)} outputs; each request has one of both.")
    for prompt, output in zip(prompts, outputs, strict=True):
        check_whole("prompt", prompt, 0, LARGEST_AMOUNT)
        check_whole("output", output, 1, LARGEST_AMOUNT)
    halves = sum(output * (2 * prompt + output) for prompt, output in zip(prompts, outputs, strict=True))
    return halves / (2 * sum(outputs))


# --- what is stored for certain ---


def stored_positions(lengths: Iterable[int], block: int = 1) -> int:
    """Positions that requests of these lengths take in blocks of `block`: the true sum."""
    check_whole("block", block, 1, LARGEST_AMOUNT)
    return sum(blocks_of(length, block) for length in lengths) * block


def fitting_now(lengths: Iterable[int], positions: int, block: int = 1) -> int:
    """How many requests fit, admitted in the order given as long as each next one does."""
    check_whole("positions", positions, 0, LARGEST_AMOUNT)
    check_whole("block", block, 1, LARGEST_AMOUNT)
    left, count = positions // block, 0
    for length in lengths:
        left -= blocks_of(length, block)
        if left < 0:
            break
        count += 1
    return count


def fitting_worst(lengths: Lengths, positions: int, block: int = 1, share: float | None = None) -> int | None:
    """How many requests fit where each is held at the longest that it can be, or at its quantile `share` (0.99).

    None where nothing bounds a request's length: then no number is safe.
    """
    check_whole("positions", positions, 0, LARGEST_AMOUNT)
    check_whole("block", block, 1, LARGEST_AMOUNT)
    longest = lengths.largest if share is None else lengths.quantile(share)
    return None if longest is None else positions // block // blocks_of(longest, block)


# --- by risk ---


def overflow_risk(lengths: Stored, requests: int, positions: int, block: int = 1) -> Risk:
    """P(sum of the stored lengths of `requests` > positions), each rounded up to whole blocks.

    By convolution; lengths above the positions overflow by themselves and need no cell, so nothing is cut off.
    """
    return _overflow(lengths, positions, block).risk(requests)


def admitted_by_risk(lengths: Stored, positions: int, risk: float, block: int = 1) -> Risk:
    """The most requests whose risk of overflow is at most `risk`, and that risk.

    Raises ModelError unless 1e-8 <= risk < 1.
    """
    overflow = _overflow(lengths, positions, block)
    return overflow.risk(overflow.most(risk))


def risk_curve(lengths: Stored, positions: int, block: int = 1, *, most: int, points: int = 60) -> tuple[Risk, ...]:
    """Risk of overflow against concurrency: up to `points` whole numbers of requests, evenly from 1 to `most`."""
    check_whole("most requests", most, 1, 10**9)
    check_whole("points", points, 1, 10_000)
    return _overflow(lengths, positions, block).curve(evenly(1, most, points))


def _overflow(lengths: Stored, positions: int, block: int) -> Overflow:
    check_whole("positions", positions, 0, LARGEST_AMOUNT)
    check_whole("block", block, 1, LARGEST_AMOUNT)
    return Overflow([Part(Blocks(lengths, block), lambda _: positions // block)])


# --- what one preemption costs ---


def swap_seconds(size: int, out: float, back: float | None = None) -> float:
    """Seconds that it costs to move a sequence of `size` bytes out of the KV memory and back. [s]

    out, back : rates of the link each way [B/s] (back: as out). Raises ModelError unless all are positive.
    """
    check_whole("bytes of the sequence", size, 1, LARGEST_AMOUNT)
    return size / _positive("rate out", out) + size / _positive("rate back", out if back is None else back)


def recompute_seconds(
    positions: int, rate: float, *, flops_per_position: float, attention_flops: float = 0.0
) -> float:
    """Seconds that it costs to compute a sequence's KV again from its tokens, all at once (a prefill). [s]

    positions x flops_per_position + positions (positions + 1) / 2 x attention_flops, over `rate` [FLOP/s].
    flops_per_position : of all matrices, 2 x active parameters. attention_flops : of one pair of positions in all
    layers, 4 x heads x head size each. Raises ModelError unless all are positive (attention may be 0).
    """
    check_whole("positions", positions, 1, LARGEST_AMOUNT)
    pairs = positions * (positions + 1) // 2
    attention = _positive("attention FLOP", attention_flops) if attention_flops else 0.0
    work = positions * _positive("FLOP per position", flops_per_position) + pairs * attention
    return work / _positive("FLOP rate", rate)


@dataclass(frozen=True, slots=True)
class KvTier:
    """What a slower memory for KV adds, and what using it costs.

    positions : that it holds besides, None where no layer grows; requests : whole ones. fetch_seconds : to bring one
    request's KV back, at the rate given (at a peak rate the least that it takes). recompute_seconds : to compute it
    again instead; break_even : the rate at which both take as long [B/s]. None where it is not known.
    """

    positions: int | None
    fetch_seconds: float | None
    recompute_seconds: float | None = None
    break_even: float | None = None
    requests: int = 0

    @property
    def pays(self) -> bool | None:
        """Whether fetching is faster than computing again; None where that is not known."""
        if self.recompute_seconds is None or self.fetch_seconds is None:
            return None
        return self.fetch_seconds < self.recompute_seconds


def kv_tier(
    capacity: int, bytes_per_position: int, *, context: int, rate: float | None, recompute: float | None = None,
    size: int | None = None,
) -> KvTier:
    """A tier of `capacity` bytes behind a link of `rate` [B/s] for requests of `context` positions.

    rate : None where it is not known. recompute : seconds to compute one request's KV again (`recompute_seconds`).
    size : bytes of one request, where they are not context x bytes per position (whole blocks, windows, states);
    with it bytes_per_position may be 0, where no layer grows. Raises ModelError unless all are positive.
    """
    least = 1 if size is None else 0
    for name, value, lowest in (("capacity", capacity, 1), ("bytes_per_position", bytes_per_position, least),
                                ("context", context, 1)):
        check_whole(name, value, lowest, LARGEST_AMOUNT)
    if size is None:
        size = context * bytes_per_position
    check_whole("bytes of a request", size, 1, LARGEST_AMOUNT)
    fetch = None if rate is None else size / _positive("rate", rate)
    again = None if recompute is None else _positive("seconds to recompute", recompute)
    positions = capacity // bytes_per_position if bytes_per_position else None
    return KvTier(positions, fetch, again, None if again is None else size / again, capacity // size)


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e300:
        raise ModelError(f"{name} is {str(value)[:60]}; it must be a number above 0.")
    return float(value)
