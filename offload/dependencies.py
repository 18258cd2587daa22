"""Dependencies that forbid overlap: routers before fetches, stages in a row, barriers between ranks.

Pure functions of times [s], exact where those are Fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload.errors import FormulaError, shown
from offload.events import Chain, prefetch_chain
from offload.given import as_long, each_not_negative, finite, listed, whole
from offload.pipelines import tandem
from offload.plan import UNLIMITED, Amount


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """A step of mixture layers [s]: experts fetched on demand, and fetched as if the router's choice were known.

    on_demand : serial, so one step alone and each of many take the same. foreseen : one step alone and the period.
    """

    on_demand: Amount
    foreseen: Chain


@finite
def routed_experts(
    attention: Sequence[Amount], fetch: Sequence[Amount], experts: Sequence[Amount], buffers: int = UNLIMITED
) -> RoutedExperts:
    """What a layer's router, which runs after its attention and before its experts are fetched, costs.

    attention, fetch, experts : seconds per layer (N,). On demand nothing overlaps: sum a_i + f_i + e_i. Foreseen, only
    the experts wait: F_i = max(F_{i-1}, E_{i-k}) + f_i, E_i = max(E_{i-1} + a_i, F_i) + e_i; with buffers without
    limit one step is max(sum a + e, max_i sum_{j<=i} f_j + e_i + sum_{j>i} a_j + e_j) and the period
    max(sum f, sum a + e). It is a prefetch chain in which attention is a resident layer.
    """
    for name, times in (("attention", attention), ("fetch", fetch), ("experts", experts)):
        each_not_negative(name, times)
        as_long(name, times, "attention", attention)
    whole("buffers", buffers, 0)
    on_demand = 0
    loads: list[Amount] = []
    works: list[Amount] = []
    for before, load, after in zip(attention, fetch, experts, strict=True):
        on_demand = on_demand + before + load + after
        loads += [0, load]
        works += [before, after]
    return RoutedExperts(on_demand, prefetch_chain(loads, works, buffers, [True, False] * len(attention)))


@dataclass(frozen=True, slots=True)
class Stages:
    """Pipeline-parallel stages [s]: latency of one token, and the period between tokens of any request."""

    latency: Amount
    period: Amount


@finite
def pipeline_stages(stage_times: Sequence[Amount], in_flight: int) -> Stages:
    """Decoding through pipeline-parallel stages: latency is the sum, throughput is that of the slowest stage.

    stage_times : seconds of a (micro-)batch in each stage. A batch's next token waits for its last stage, so with
    `in_flight` batches the period is max(max p, sum p / in_flight): one batch alone gains nothing from more stages.
    """
    whole("in_flight", in_flight, 1)
    return Stages(sum(each_not_negative("stage_times", stage_times)), tandem(stage_times, 1, pool=in_flight).period)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ranks that wait for each other [s]: seconds with the barriers, without : the slowest rank if none waited."""

    seconds: Amount
    without: Amount


@finite
def barriers(times: Sequence[Sequence[Amount]]) -> Barrier:
    """Ranks that meet after each part: sum_i max_r t_ir, never below max_r sum_i t_ir.

    times[part][rank] : seconds. Tensor- and expert-parallel ranks meet at each collective.
    """
    _table(times)
    ranks = len(times[0])
    return Barrier(sum(max(part) for part in times), max(sum(part[rank] for part in times) for rank in range(ranks)))


@dataclass(frozen=True, slots=True)
class ExpectedBarrier:
    """expected : the mean of the slowest rank's time; of_means : the slowest rank's mean, a lower bound on it [s]."""

    expected: Amount
    of_means: Amount


@finite
def expected_barrier(chances: Sequence[Amount], times: Sequence[Sequence[Amount]]) -> ExpectedBarrier:
    """The mean time of a barrier, E[max_r t_r] >= max_r E[t_r] (Jensen): a bound at expected loads bounds the mean.

    chances : the probability of each case; they add up to 1. times[case][rank] : seconds. Raises FormulaError where
    the chances do not add up (exactly for Fractions, to 1e-9 else).
    """
    each_not_negative("chances", chances)
    _table(times)
    as_long("chances", chances, "times", times)
    if abs(sum(chances) - 1) > (1e-9 if any(isinstance(chance, float) for chance in chances) else 0):
        raise FormulaError(f"chances: they add up to {shown(sum(chances))}; give the chance of every case, 1 in all.")
    cases = list(zip(chances, times, strict=True))
    means = [sum(chance * case[rank] for chance, case in cases) for rank in range(len(times[0]))]
    return ExpectedBarrier(sum(chance * max(case) for chance, case in cases), max(means))


def _table(times: Sequence[Sequence[Amount]]) -> None:
    """Raises FormulaError where rows are missing, differ in length or hold other than times."""
    if not len(listed("times", times, "rows")):
        raise FormulaError("times: give at least one row, with the seconds of each rank.")
    for number, row in enumerate(times):
        each_not_negative(f"times[{number}]", row)
        as_long(f"times[{number}]", row, "times[0]", times[0])
