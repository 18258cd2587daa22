"""What a target needs: the least single changes and the cheapest pairs that reach it, or what forbids it.

Two answers, never mixed. The floor says from where on a target is not forbidden: below that no schedule reaches it. The
expected time says from where on the modelled machine reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import cast

from offload.capacity import missing
from offload.errors import FormulaError
from offload.need_designs import axes, levers
from offload.need_pairs import Two, WithPart, least_left, two_parts, two_settings, with_parts
from offload.need_rates import CLOSE, Lever, Limit, Pair, Search, Target, groups_of
from offload.prompts import in_chunks, least, tokens_of, with_all_resources
from offload.step import Step


@dataclass(frozen=True, slots=True)
class Need:
    """What `need` returns. due : the longest that a step may take now [s]; floor, expected : what it takes now [s].

    A prompt in chunks counts as one step: chunks is their number, all times are to its first token, tokens its
    positions; chunks is 0 for what is no such prompt.

    forbidden_by : the rows that bind the floor now. floor_pair, expected_pair : only where cheaper than every single
    part. best_pair : where the floor allows no part and no pair, the pair that it falls furthest with, infinitely fast;
    best_expected_pair : the same at sustained rates, where no part and no pair reaches it (`Limit`). with_parts :
    changes of the plan that are not enough, each with the part that then is. two : two changes of the plan.
    everything : all parts infinitely fast, with the floor; everything_expected : the expected time then (latencies and
    stated times are left). lacks : bytes that the plan lacks, by memory: a target reached without room is not reached.
    full : what could help and has no room left ("batch", "layers in hbm0").
    """

    target: Target
    title: str
    topology: str
    tokens: float
    due: float
    floor: float
    expected: float
    forbidden_by: tuple[str, ...]
    levers: tuple[Lever, ...]
    floor_pair: Pair | None
    expected_pair: Pair | None
    best_pair: Limit | None
    best_expected_pair: Limit | None
    with_parts: tuple[WithPart, ...]
    two: tuple[Two, ...]
    everything: Limit
    everything_expected: float
    lacks: Mapping[str, int]
    phase: str = ""
    full: tuple[str, ...] = ()
    chunks: int = 0

    @property
    def allowed(self) -> bool:
        """Whether the floor allows the target now."""
        return self.floor <= self.due * (1 + CLOSE)

    @property
    def met(self) -> bool:
        """Whether the plan reaches it as it is."""
        return not self.lacks and self.expected <= self.due * (1 + CLOSE)

    @property
    def reachable(self) -> bool:
        """Whether it is reached, as it is, by one of the changes or by two of them."""
        found = {lever.kind == "rate" for lever in self.levers if lever.expected is not None}
        faster = True in found or self.expected_pair is not None
        parts = any(one.expected is not None for one in self.with_parts)
        both = parts or any(one.expected is not None for one in self.two)
        return self.met or False in found or both or (faster and not self.lacks)


def need(step: Step, target: Target) -> Need:
    """The single changes and pairs of changes that bring a step's period, or a prompt in chunks, to a target.

    Changes that do not fit in the memories do not count. Raises FormulaError for a target that is no time.
    """
    for value in (target.seconds, target.tokens_per_s):
        if value is not None and not 0 < value < inf:
            raise FormulaError(f'"{target.text}" is no target: give a time or a rate above zero.')
    step = with_all_resources(step)
    search = Search(step, target)
    bound, expected = least(step), search.expected(step)
    groups = groups_of(step)
    slow = expected > search.due * (1 + CLOSE)
    varied, full = axes(step, target) if slow or missing(step) else ([], [])
    rates = [search.rate(names) for names in groups] if slow else []
    designs = list(levers(step, target, search, varied))
    # Of rates both are factors.
    floors = [cast(float | None, lever.floor) for lever in rates]
    times = [cast(float | None, lever.expected) for lever in rates]
    floor_pair = two_parts(search, groups, floors, "peak") if rates else None
    expected_pair = two_parts(search, groups, times, "value") if rates else None
    forbidden = rates and floor_pair is None and not any(floors)
    unreached = rates and expected_pair is None and not any(times)
    return Need(
        target=target, title=step.plan.title, topology=step.topology.name, tokens=tokens_of(step),
        due=search.due, floor=bound.seconds, expected=expected, forbidden_by=bound.bottleneck,
        levers=(*rates, *designs), floor_pair=floor_pair, expected_pair=expected_pair,
        best_pair=least_left(search, groups, "peak") if forbidden else None,
        best_expected_pair=least_left(search, groups, "value") if unreached else None,
        with_parts=tuple(with_parts(target, varied, designs, [] if missing(step) else rates)),
        two=tuple(two_settings(step, target, varied, designs)),
        everything=search.limit(*groups),
        everything_expected=search.expected(search.faster(*((names, 0.0) for names in groups))), lacks=missing(step),
        phase=str(step.plan.workload.get("phase", "")), full=tuple(full), chunks=in_chunks(step),
    )  # fmt: skip
