"""A cached prefix: load its keys and values, or compute them again.

Loading n positions takes n k / B + t, computing them (2 N n + a n^2) / P: the first grows evenly, the second faster, so
that loading wins from some length on, at once, or (without attention's share) never. Closed forms over plain numbers,
exact with Fractions. k and a : models.cache.growing_bytes, 2 n_q d for each layer (causal attention).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, lcm

from offload.given import as_written, finite, not_negative, positive, whole
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of some positions, loaded or computed.

    bytes : of its KV [B]. load_seconds, compute_seconds : [s]. rate_needed : at which loading takes as long as
    computing [B/s]; None where no rate does. wins_from : the fewest positions for which loading takes no longer; None
    where it never does.
    """

    bytes: Amount
    load_seconds: Amount
    compute_seconds: Amount
    rate_needed: Amount | None
    wins_from: int | None


@finite
def load_or_compute(
    positions: int, kv_bytes: Amount, rate: Amount, active_params: Amount, flops: Amount, attention: Amount = 0,
    fixed: Amount = 0,
) -> Prefix:
    """What a prefix of `positions` costs from a tier and from the processor.

    kv_bytes : k of one position in all layers [B]; rate : B, of the narrowest thing on the way [B/s]; active_params :
    N, 2 FLOP each; flops : P [FLOP/s]; attention : a, FLOP for each square of the positions; fixed : t of a load
    whatever its length [s]. Arithmetic alone on one side, bytes alone on the other. Raises FormulaError.
    """
    whole("positions", positions, 1)
    _checked(kv_bytes, rate, active_params, flops, attention, fixed)
    size = positions * kv_bytes
    compute = (2 * active_params * positions + attention * positions * positions) / flops
    left = compute - fixed
    needed = size / left if left > 0 and size else (0 * size if left >= 0 and not size else None)
    return Prefix(size, size / rate + fixed, compute, needed,
                  wins_from(kv_bytes, rate, active_params, flops, attention, fixed))


@finite
def wins_from(
    kv_bytes: Amount, rate: Amount, active_params: Amount, flops: Amount, attention: Amount = 0, fixed: Amount = 0
) -> int | None:
    """The fewest positions whose load takes no longer than computing them; None where it always does.

    Of n: a n^2 / P + (2 N / P - k / B) n >= t. The left side is convex and 0 at 0, so that loading wins for every
    longer prefix too. Worked out in fractions. Arguments as of `load_or_compute`. Raises FormulaError.
    """
    _checked(kv_bytes, rate, active_params, flops, attention, fixed)
    k, b, n, p, a, t = map(as_written, (kv_bytes, rate, active_params, flops, attention, fixed))
    square, slope = a / p, 2 * n / p - k / b
    if square * 1 + slope >= t:
        return 1
    if not square:
        return None if slope <= 0 else -(-t // slope)
    # In whole numbers the root (sqrt(e^2 + 4 c d) - e) / 2c lies in the next two above its floor.
    unit = lcm(square.denominator, slope.denominator, t.denominator)
    c, e, d = int(square * unit), int(slope * unit), int(t * unit)
    first = (isqrt(e * e + 4 * c * d) - e) // (2 * c)
    return next(x for x in range(max(1, first), max(1, first) + 3) if c * x * x + e * x >= d)


def _checked(
    kv_bytes: Amount, rate: Amount, active_params: Amount, flops: Amount, attention: Amount, fixed: Amount
) -> None:
    for name, value in (("kv_bytes", kv_bytes), ("attention", attention), ("fixed", fixed)):
        not_negative(name, value)
    for name, value in (("rate", rate), ("active_params", active_params), ("flops", flops)):
        positive(name, value)
