"""How many requests a KV memory takes: what fits now, each at its worst, or by the risk that all together overflow it.

Each request held at its own high quantile is far too careful: not all are long at once. The stored lengths of requests
that are drawn independently have a sum, and its distribution is one length's, convolved with itself; the risk is the
probability that the sum exceeds the positions that there are. A quantile of each is no quantile of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from offload.errors import ModelError
from offload.models.cache import blocks_of
from offload.models.lengths import Lengths
from offload.models.whole import LARGEST_AMOUNT, check_whole

if TYPE_CHECKING:
    import numpy as np

MOST_CELLS = 2**17  # of a distribution; beyond, several blocks are counted as one
ERROR = 1e-10  # of a probability, absolute: rounding of the transforms, summed over all of them
LEAST_RISK = 1e-8


class Stored(Protocol):
    """A distribution of stored positions."""

    def below(self, ends: np.ndarray) -> np.ndarray:
        """P(stored <= end) for each end."""


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


@dataclass(frozen=True, slots=True)
class PrivateLengths:
    """What a request stores besides a prefix that is held once: whole blocks of it are taken off its length."""

    lengths: Stored
    shared: int

    def below(self, ends: np.ndarray) -> np.ndarray:
        """P(stored besides <= end) for each end, in positions."""
        return self.lengths.below(ends + self.shared)


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


@dataclass(frozen=True, slots=True)
class Risk:
    """Probability that the stored positions of `requests` exceed what there is.

    error : how far it may be off. 1e-10, rounding, up to 131,072 blocks; beyond, several blocks are one cell, and it is
    the difference to cells twice as wide: about three times the error, which falls with the square of the width.
    """

    requests: int
    value: float
    error: float


def overflow_risk(lengths: Stored, requests: int, positions: int, block: int = 1) -> Risk:
    """P(sum of the stored lengths of `requests` > positions), each rounded up to whole blocks.

    By convolution; lengths above the positions overflow by themselves and need no cell, so nothing is cut off.
    """
    return Risks(lengths, positions, block).risk(requests)


def admitted_by_risk(lengths: Stored, positions: int, risk: float, block: int = 1) -> Risk:
    """The most requests whose risk of overflow is at most `risk`, and that risk.

    Raises ModelError unless 1e-8 <= risk < 1.
    """
    risks = Risks(lengths, positions, block)
    return risks.risk(risks.most(risk))


def risk_curve(lengths: Stored, positions: int, block: int = 1, *, most: int, points: int = 60) -> tuple[Risk, ...]:
    """Risk of overflow against concurrency: up to `points` whole numbers of requests, evenly from 1 to `most`."""
    check_whole("most requests", most, 1, 10**9)
    check_whole("points", points, 1, 10_000)
    return Risks(lengths, positions, block).curve(evenly(1, most, points))


def evenly(first: int, last: int, points: int) -> list[int]:
    """Up to `points` whole numbers from first to last."""
    return sorted({first + (last - first) * index // max(1, points - 1) for index in range(points)})


class Risks:
    """The sums of any number of requests in up to `positions`, worked out once for several questions.

    In cells of one block where they are few enough; otherwise in wider ones, and in twice as wide ones.
    """

    def __init__(self, lengths: Stored, positions: int, block: int = 1):
        check_whole("positions", positions, 0, LARGEST_AMOUNT)
        check_whole("block", block, 1, LARGEST_AMOUNT)
        self.positions, self.block = positions, block
        width = -(-(positions // block) // MOST_CELLS) or 1
        self.sums = _Sums(lengths, positions // block, block, width)
        self.all_sums = [self.sums]
        if width > 1:
            self.all_sums.append(_Sums(lengths, positions // block, block, 2 * width))

    def risk(self, requests: int, positions: int | None = None) -> Risk:
        """The risk of overflow in no more positions than there are (default: all)."""
        check_whole("requests", requests, 0, 10**9)
        return self.curve([requests], None if positions is None else lambda _: positions)[0]

    def curve(self, counts: Sequence[int], room: Callable[[int], int] | None = None) -> tuple[Risk, ...]:
        """The risk for each number of requests, given in rising order. room : as for `most`."""
        blocks = [self._blocks(count, room) for count in counts]
        found = []
        rows = zip(*(one.risks(counts, blocks) for one in self.all_sums), strict=True)
        for count, values in zip(counts, rows, strict=True):
            error = max(ERROR, abs(values[0] - values[-1]))
            found.append(Risk(count, min(max(values[0], 0.0), 1.0), error))  # rounding may leave [0, 1] by 1e-10
        return tuple(found)

    def _blocks(self, requests: int, room: Callable[[int], int] | None) -> int:
        return (self.positions if room is None else room(requests)) // self.block

    def most(self, risk: float, room: Callable[[int], int] | None = None) -> int:
        """The most requests whose risk of overflow is at most `risk`: 1e-8 to below 1.

        room : positions that there are for a number of requests, no more than those of this value (default: these).
        """
        if isinstance(risk, bool) or not isinstance(risk, int | float) or not LEAST_RISK <= risk < 1:
            raise ModelError(f"the risk of overflow is {str(risk)[:60]}; it must be from {LEAST_RISK:g} to below 1.")
        return self.sums.most(risk + ERROR, lambda requests: self._blocks(requests, room))


class _Sums:
    """Distributions of sums over cells of `width` blocks; what is missing to 1 has overflowed.

    A length inside a wide cell counts half at either end, which keeps the mean of lengths that are spread evenly in it.
    A sum at a cell's end stands for the sums within half a cell of it; of the last ones a part fits.
    """

    def __init__(self, lengths: Stored, blocks: int, block: int, width: int):
        self.lengths, self.block, self.width = lengths, block, width
        self.cells = sum(self.fitting(blocks)[:2])
        self.size = 1 << (2 * self.cells - 1).bit_length()  # of a transform: nothing wraps around
        self.steps: list[np.ndarray] = []  # sums of 1, 2, 4, ... requests

    def one(self) -> np.ndarray:
        """The distribution of one request."""
        import numpy as np

        ends = np.arange(self.cells, dtype=np.float64) * (self.block * self.width)
        below = self.lengths.below(ends)
        if self.width > 1:  # rounded down, a cell has all lengths up to one block short of the next
            below = (below + self.lengths.below(ends + (self.width - 1) * self.block)) / 2
        return np.diff(below, prepend=0.0)

    def fitting(self, blocks: int) -> tuple[int, bool, float]:
        """Cells whose sums fit, whether a part of the next fits too, and which, as if sums were spread evenly."""
        whole, part = divmod(2 * blocks + 1 + self.width, 2 * self.width)
        return whole, part > 0, part / (2 * self.width)

    def step(self, power: int) -> np.ndarray:
        """The sum of 2^power requests."""
        while len(self.steps) <= power:
            self.steps.append(self.add(self.steps[-1], self.steps[-1]) if self.steps else self.one())
        return self.steps[power]

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        import numpy as np

        first = np.fft.rfft(left, self.size)
        product = first * (first if left is right else np.fft.rfft(right, self.size))
        return np.fft.irfft(product, self.size)[: self.cells]

    def sum_of(self, requests: int) -> np.ndarray | None:
        """The sum of one or more requests; None of none."""
        total = None
        for power in range(requests.bit_length()):
            if requests >> power & 1:
                total = self.step(power) if total is None else self.add(total, self.step(power))
        return total

    def risks(self, counts: Sequence[int], blocks: Sequence[int]) -> list[float]:
        """The risk of each number of requests in its blocks, each sum made from the one before."""
        found, total, last = [], None, 0
        more: dict[int, np.ndarray | None] = {}
        for count, room in zip(counts, blocks, strict=True):
            ahead = count - last
            if ahead not in more:
                more[ahead] = self.sum_of(ahead)
            step, last = more[ahead], count
            total = step if total is None else total if step is None else self.add(total, step)
            found.append(0.0 if total is None else self.risk_of(total, room))
        return found

    def risk_of(self, total: np.ndarray, blocks: int) -> float:
        whole, more, part = self.fitting(blocks)
        return float(1 - total[:whole].sum() - (part * total[whole] if more else 0.0))

    def most(self, limit: float, blocks: Callable[[int], int]) -> int:
        """The largest number of requests whose risk is at most `limit`: bit by bit, from the highest."""
        power = 0
        while power < 30 and self.risk_of(self.step(power), blocks(1 << power)) <= limit:
            power += 1
        count, held = 0, None
        while power:
            power -= 1
            tried = self.step(power) if held is None else self.add(held, self.step(power))
            more = count + (1 << power)
            if self.risk_of(tried, blocks(more)) <= limit:
                count, held = more, tried
        return count


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
        known = self.recompute_seconds is not None and self.fetch_seconds is not None
        return self.fetch_seconds < self.recompute_seconds if known else None


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
