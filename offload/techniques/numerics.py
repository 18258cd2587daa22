"""How fast a sweep can be, and which whole numbers a float holds exactly."""

from __future__ import annotations

from dataclasses import dataclass

from offload.errors import FormulaError, shown
from offload.given import all_positive, finite, flag, plainly
from offload.models.whole import check_whole
from offload.plan import Amount

WORD = 8  # bytes of a float64


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """What bounds a sweep of load bounds over inputs that are all held in memory.

    bytes_per_point, ops_per_point : of one configuration. by_memory, by_compute : points per second that each allows;
    limit : the smaller.
    """

    bytes_per_point: int
    ops_per_point: int
    by_memory: Amount
    by_compute: Amount
    limit: Amount


@finite
def sweep_limits(
    resources: int, transfers: int, *, stream_rate: Amount, flop_rate: Amount, vary_capacity: bool = True
) -> SweepLimits:
    """The roofline of max_r (sum_j a_rj D_j) / B_r in float64: R resources, J transfers, dense coefficients.

    Bytes: 8 (J + R + 1) for the D, the B and the answer of each point; 8 (J + 1) where the B are the same at all
    (vary_capacity False). Operations: 2 R J + R divisions + R - 1 maxima. stream_rate : of memory [B/s]; flop_rate :
    operations per second. An answer that is written past the cache; with write-allocate 8 bytes more. Raises
    FormulaError. Source: roofline model (Williams et al. 2009).
    """
    check_whole("resources", resources, 1, 10**6)
    check_whole("transfers", transfers, 1, 10**6)
    all_positive(stream_rate=stream_rate, flop_rate=flop_rate)
    size = WORD * (transfers + (resources if flag("vary_capacity", vary_capacity) else 0) + 1)
    operations = 2 * resources * transfers + resources + (resources - 1)
    by_memory, by_compute = stream_rate / size, flop_rate / operations
    return SweepLimits(size, operations, by_memory, by_compute, min(by_memory, by_compute))


@dataclass(frozen=True, slots=True)
class Exactness:
    """Whether a whole number is one that each kind of number holds without rounding."""

    value: int
    float64: bool
    float32: bool
    int64: bool


@plainly
def exactness(value: int) -> Exactness:
    """Whether 53 bits (float64), 24 bits (float32) and 63 bits (int64) hold a whole number from 0 exactly.

    A float holds m x 2^e with m of its own width, so a large number with few ones among its bits is exact. Raises
    FormulaError for anything but a whole number from 0. Source: IEEE 754.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormulaError(f"{shown(value)} is no whole number from 0.")
    width = (value // (value & -value)).bit_length() if value else 0
    length = value.bit_length()
    return Exactness(value, width <= 53 and length <= 1024, width <= 24 and length <= 128, length <= 63)
