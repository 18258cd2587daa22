"""Which requests fit: those of a list in order, as many as are at the accepted risk, and the rank that decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import cast

from offload.models.concurrency import stored_positions
from offload.models.kept import kept_on
from offload.models.lengths import Lengths
from offload.models.levers import most_requests
from offload.models.overflow import ERROR, Overflow, Part, Risk, evenly
from offload.models.serving import LONG, PREFILLED, RankBudget, Serving, ServingBudget, serving_budget

UNSEEN = 0.01  # of the accepted risk: that a request is longer than the one whose windows a chunk is held beside
CLEAR = 4  # times, beyond which the larger of two bounds is not tried
FINEST = 1e-15  # of a share, in a float


@dataclass(frozen=True, slots=True)
class Admission:
    """How many requests fit.

    serving : with as many as are asked for or admitted. budget : its ranks, the tightest that which overflows first;
    its windows may be widened (`admit_by_risk`).
    by_risk, beyond : the admitted and one more; curve : risks; None and empty where it was not asked, and where all
    requests keep the same. mean_used : mean bytes of the admitted on the tightest rank, a shared prefix once. mean_base
    : what that rank has for KV [B]. now, used, stored : of a list, as of `offload.memory.Memory`.
    """

    serving: Serving
    budget: ServingBudget
    by_risk: Risk | None = None
    beyond: Risk | None = None
    curve: tuple[Risk, ...] = ()
    mean_used: float | None = None
    mean_base: int | None = None
    now: int | None = None
    used: int | None = None
    stored: int | None = None


def admit(serving: Serving, lengths: Lengths, risk: float, drawn: bool) -> Admission:
    """The requests of a list in order, or of a distribution as many as are at the accepted risk.

    drawn : of a list, tell both: the budget and its tightest rank are the list's in order, and the risk is that of as
    many requests drawn from it, each of its lengths as likely.
    """
    if lengths.kind != "list":
        return admit_by_risk(serving, lengths, risk)
    listed = admit_list(serving, lengths.values)
    if not drawn:
        return listed
    found = admit_by_risk(serving, lengths, risk)
    return replace(listed, by_risk=found.by_risk, beyond=found.beyond, curve=found.curve, mean_used=found.mean_used,
                   mean_base=found.mean_base)  # fmt: skip


# --- a list ---


def admit_list(serving: Serving, lengths: tuple[int, ...]) -> Admission:
    """The requests of a list in order, as long as each next one fits on all ranks with those before it.

    Activations are those of the requests that are held, and windows beside a chunk those of the longest of them. The
    tightest rank is the one on which the fewest fit, of those the one with the least share left.
    """
    budget = serving_budget(serving)
    sums = [_sums(serving, rank, lengths) for rank in budget.ranks]
    longest = list(accumulate(lengths, max))

    def fitting(count: int) -> list[bool]:
        held = replace(serving, requests=count, context=max(longest[count - 1], serving.shared_prefix + 1))
        return [rank.left >= rank.shared + own[count - 1]
                for rank, own in zip(serving_budget(held).ranks, sums, strict=True)]  # fmt: skip

    counts = []
    for stage in range(len(budget.ranks)):
        low, high = 0, len(lengths)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fitting(middle)[stage] else (low, middle - 1)
        counts.append(low)
    used = [rank.shared + own[-1] for rank, own in zip(budget.ranks, sums, strict=True)]
    stage = min(range(len(used)), key=lambda at: (counts[at], _share(budget.ranks[at].left, used[at])))
    return Admission(serving, replace(budget, tightest=budget.ranks[stage]), now=min(counts), used=used[stage],
                     stored=stored_positions(lengths, serving.block))  # fmt: skip


def _share(left: int, used: int) -> tuple[float, int]:
    """How much of what is left for KV stays, least first."""
    return ((left - used) / left if left > 0 else float("-inf") if used else 1.0, left - used)


def _sums(serving: Serving, rank: RankBudget, lengths: tuple[int, ...]) -> list[int]:
    """Bytes of the first requests together, besides the prefix that is held once."""
    kept = kept_on(serving, rank)
    known = {length: kept.bytes(length) for length in Counter(lengths)}
    return list(accumulate(map(known.__getitem__, lengths)))


# --- by risk ---


def most_by_risk(serving: Serving, lengths: Lengths, risk: float) -> int:
    """The number that `admit_by_risk` admits, and nothing besides."""
    ranks = _Ranks(serving, lengths, risk)
    if (overflow := ranks.overflow) is None:
        return most_requests(serving) or 0
    count = overflow.most(risk)
    if not ranks.widening_may_pay(count + 1):
        return count
    wide = cast(Overflow, _Ranks(replace(serving, widened=True), lengths, risk).overflow)
    return max(count, wide.most(risk))


def admit_by_risk(serving: Serving, lengths: Lengths, risk: float) -> Admission:
    """The most requests of which all together overflow any rank with at most the accepted risk.

    Windows hold the new positions of one step besides. Two bounds are tried, and the one that admits more is taken: all
    of them beside the longest request (all but a hundredth of the accepted risk is that none is longer), or beside
    every request (`Serving.widened`).
    """
    ranks = _Ranks(serving, lengths, risk)
    if (overflow := ranks.overflow) is None:
        found = replace(serving, requests=max(1, most_requests(serving) or 0))
        return Admission(found, serving_budget(found))
    count = overflow.most(risk)
    by_risk, beyond = overflow.curve([count, count + 1])
    if ranks.widening_may_pay(count + 1):
        wide = _Ranks(replace(serving, widened=True), lengths, risk)
        widened = cast(Overflow, wide.overflow)
        most = widened.most(risk)
        one, two = widened.curve([most, most + 1])
        if (most, -two.value) > (count, -beyond.value):
            ranks, overflow, count, by_risk, beyond = wide, widened, most, one, two
    first, last = (overflow.most(share) for share in (1e-5, 0.99))
    risks = overflow.curve(evenly(max(1, first), last + 1, 20))
    budget = ranks.budget(count)
    tight = budget.tightest
    mean = tight.shared + count * ranks.kept[tight.stage].mean_bytes(lengths)
    return Admission(replace(serving, requests=max(1, count)), budget, by_risk, beyond, risks, mean, tight.left)


class _Ranks:
    """The ranks of all stages, those of which requests keep amounts that are in proportion as one part."""

    def __init__(self, serving: Serving, lengths: Lengths, risk: float):
        self.serving, self.lengths, self.unseen = serving, lengths, UNSEEN * risk
        self.known: dict[int, ServingBudget] = {}
        self.kept = [kept_on(serving, rank) for rank in self.at(1).ranks]
        amounts = [kept.amount(lengths) for kept in self.kept]
        shapes: dict[object, list[int]] = {}
        for stage, amount in enumerate(amounts):
            shapes.setdefault(None if amount is None else amount.shape, []).append(stage)
        self.groups = sorted(shapes.values(), key=lambda own: min(map(self.about, own)))  # the tightest first
        self.overflow: Overflow | None = None
        if any(amount is not None for amount in amounts):
            self.overflow = Overflow([Part(amounts[own[0]], self.room_of(own)) for own in self.groups])

    def at(self, count: int) -> ServingBudget:
        """The budget with so many requests."""
        count = max(1, count)
        if count not in self.known:
            self.known[count] = serving_budget(replace(self.serving, requests=count, context=self.longest(count)))
        return self.known[count]

    def longest(self, count: int) -> int:
        """The longest of so many requests, but with a small part of the accepted risk where nothing bounds it."""
        if self.lengths.largest is not None:
            return self.lengths.largest
        unseen = self.unseen / count
        return self.lengths.quantile(1 - unseen) if unseen > FINEST else LONG

    def about(self, stage: int) -> float:
        """About how many requests of mean bytes fit."""
        return self.at(1).ranks[stage].left / max(1, self.kept[stage].bytes(round(self.lengths.mean) + 1))

    def widening_may_pay(self, count: int) -> bool:
        """Whether a chunk beside each of so many requests' windows takes no more than several times the one line."""
        wide = replace(self.serving, widened=True)
        for rank, kept in zip(self.at(count).ranks, self.kept, strict=True):
            once = sum(line.bytes for line in rank.lines if line.what == PREFILLED)
            each = kept_on(wide, rank).mean(self.lengths) - kept.mean(self.lengths)
            if count * each < CLEAR * once:
                return True
        return False

    def room(self, stage: int, count: int) -> int:
        """Units for what so many requests keep besides what is the same for each; negative where that does not fit."""
        rank, kept = self.at(count).ranks[stage], self.kept[stage]
        return (rank.left - rank.shared - count * kept.constant) // max(1, kept.unit)

    def room_of(self, stages: Sequence[int]) -> Callable[[int], int]:
        """`room` on the fullest of some stages, by how many requests."""
        return lambda count: min(self.room(stage, count) for stage in stages)

    def budget(self, count: int) -> ServingBudget:
        """The budget with so many requests, whose tightest rank is that which one more overflows most likely."""
        found = self.at(count)
        values = cast(Overflow, self.overflow).by_part([count + 1])[0][0]
        if max(values) <= ERROR:
            return found
        own = self.groups[values.index(max(values))]
        return replace(found, tightest=found.ranks[min(own, key=lambda stage: self.room(stage, count + 1))])
