"""How many rounds of speculation a run of tokens takes: the fewest, and on average.

A round yields j tokens with chance a^(j-1) (1 - a) for j up to g, and g + 1 with a^g (each of g guesses is kept with
chance a, by itself). Rounds follow each other until all tokens are there, so they are a renewal process: u(0) = 1 and
u(i) = sum over j of P(j) u(i - j) is the chance that a round starts when i tokens are there. The rounds of a run of M
tokens number u(0) + ... + u(M - 1) on average, more than M over the tokens of a round: the last one may yield more than
is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

MOST_TOKENS = 10**6  # of a run: each has a chance of its own


def start_chances(tokens: int, accept: Any, draft: int) -> list[Any]:
    """The chance that a round starts when 0, 1, ... of `tokens` are there; their sum is the expected number of rounds.

    accept : a, the chance that a guess is kept [1], a Fraction for exact chances. draft : g, guesses of a round.
    Source: renewal theory (Feller, vol. 1, XIII) on the tokens of a round of Leviathan et al. 2023.
    """
    found: list[Any] = []
    all_kept = accept**draft
    recent = accept * 0  # the sum over j of 1..g of a^(j-1) u(i-j)
    for i in range(tokens):
        if not i:
            found.append(accept * 0 + 1)
        else:
            recent = found[i - 1] + accept * recent
            if i > draft:
                recent -= all_kept * found[i - draft - 1]
            whole = all_kept * found[i - draft - 1] if i > draft else 0
            found.append((1 - accept) * recent + whole if draft else found[i - 1])
    return found


def least_starts(tokens: int, draft: int) -> list[int]:
    """How many tokens are surely there when each of the fewest rounds starts, in order.

    Rounds yield g + 1 tokens at most, so the r-th from the end starts with `tokens` - r (g + 1) or more.
    """
    most = draft + 1
    return [max(0, tokens - rank * most) for rank in range(-(-tokens // most), 0, -1)]


class Weights:
    """Sums of some weights over pieces of them, as they are needed to sum what grows evenly over a piece."""

    def __init__(self, weights: Sequence[float]):
        self._sums = [0.0, *accumulate(weights)]
        self._moments = [0.0, *accumulate(place * weight for place, weight in enumerate(weights))]

    def ends(self, start: int, end: int) -> tuple[float, float]:
        """What the values at both ends of start..end (both included) count of a line between them."""
        whole = self._sums[end + 1] - self._sums[start]
        if end == start:
            return whole, 0.0
        moment = self._moments[end + 1] - self._moments[start] - start * whole
        return whole - moment / (end - start), moment / (end - start)
