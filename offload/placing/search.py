"""The best of all placements of some families: evaluated whole, in the order of their bounds, until none can be better.

A bound of a placement is the sum of its layers' loads over sustained rates (`tables`), which its expected time is never
below; then its own floor at sustained rates; then its schedule. What is passed over cannot be better than what was
found, so the best is the best of all that the families have, unless the search ends early, and says how far it got.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from offload.bounds import floor, floor_seconds
from offload.capacity import missing
from offload.designs import Placement
from offload.errors import OffloadError
from offload.need_rates import CLOSE, Target
from offload.placing.beside import beside_seconds, queue_seconds
from offload.placing.problem import Family
from offload.placing.tables import Adder, Bounds, Counts, Question, Table
from offload.plan import Overlap
from offload.schedules import ALWAYS, GAINED, schedule
from offload.step import Step

OBJECTIVES = ("latency", "throughput")
MOST = 1500  # plans that are compiled before the search ends early
ENOUGH = 48  # plans after which it ends too where what is left is better ...
NEAR = 1e-3  # ... by no more than this share
OTHERS = 5  # families besides that of the best one of which one plan is shown
TRIES = 6  # placements of such a family that are tried, until one fits
ROUND = 1e-12  # relative: what two sums of the same loads in another order may differ by
INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Objective:
    """What is wanted: the least time of a step ("latency"), the most tokens per second over batches ("throughput"), or
    the least GPU memory with which a `target` is reached ("target").
    """

    kind: str
    target: Target | None = None

    @property
    def reached(self) -> Target:
        """`target`, where it is what is wanted."""
        return cast("Target", self.target)


@dataclass(frozen=True, slots=True)
class Found:
    """A plan that was evaluated: its step, the family and counts that it is of, and its times [s].

    hbm : bytes taken in the memories of GPUs.
    """

    family: Family
    question: Question
    counts: Counts
    overlap: Overlap
    placement: Placement
    step: Step
    seconds: float
    floor: float
    hbm: int

    @property
    def tokens_per_s(self) -> float:
        """Expected tokens of all sequences per second."""
        return self.step.plan.tokens / self.seconds if self.seconds > 0 else 0.0


def _rounded_down(values: Any) -> Any:
    """Numbers to some eleven digits, so that sums of the same in another order are ties."""
    import numpy

    mantissa, exponent = numpy.frexp(values)
    return numpy.ldexp(numpy.floor(mantissa * 2**36) / 2**36, exponent)


class _Rows:
    """Placements of a family with one number of buffers, in the order of what they cost at least, and then of work."""

    def __init__(self, adder: Adder, found: Bounds, overlap: Overlap, rank: int, least: Any, fits: Any):
        import numpy

        self.adder, self.found, self.overlap, self.rank = adder, found, overlap, rank
        self.least, self.work = _rounded_down(least), _rounded_down(found.work)
        self.order = [place_ for place_ in numpy.lexsort((self.work, self.least))
                      if fits[place_] and least[place_] < INFINITE]  # fmt: skip
        self.next = 0

    def first(self) -> tuple[float, float] | None:
        """The least cost, and the work, of what comes next."""
        if self.next == len(self.order):
            return None
        place_ = self.order[self.next]
        return float(self.least[place_]), float(self.work[place_])

    def take(self) -> Counts:
        """What comes next."""
        self.next += 1
        counts: Counts = self.found.counts[self.order[self.next - 1]]
        return counts


class Search:
    """Best first: the placement with the least bound comes next; its bound is made better, or it is evaluated."""

    def __init__(self, objective: Objective, most: int, enough: int, tick: Callable[[str], None]):
        self.objective, self.most, self.enough, self.tick = objective, most, enough, tick
        self.heap: list[tuple[float, float, int, int, int, _Rows]] = []
        self.best: Found | None = None
        self.by_family: dict[str, Found] = {}
        self.placements = self.compiled = self.timed = self.number = self.opened = 0
        self.unseen: float | None = None
        self.seen: set[tuple[Any, ...]] = set()
        self.plain: set[tuple[Any, ...]] = set()  # placements that no number of buffers changes
        # The most buffers with which one was timed, and what it cost.
        self.more: dict[tuple[Any, ...], tuple[int, float]] = {}

    # What a placement costs: seconds, seconds a token, or bytes of GPU memory.

    def cost(self, found: Found) -> float:
        """What is to be small of a plan."""
        if self.objective.kind == "target":
            return found.hbm if self._reaches(found) else INFINITE
        return found.seconds / (found.step.plan.tokens if self.objective.kind == "throughput" else 1)

    def _reaches(self, found: Found) -> bool:
        return found.seconds <= self.objective.reached.due(found.step) * (1 + CLOSE)

    def too_slow(self, seconds: float, question: Question) -> bool:
        """Whether what takes so long at least cannot be the best of tokens per second."""
        return (self.objective.kind == "throughput" and self.best is not None
                and seconds / _tokens(question) >= self.cost(self.best))

    def _least(self, adder: Adder, found: Bounds, stored: Mapping[str, Any]) -> Any:
        """The least that placements may cost by their bounds; infinite where they cannot do."""
        import numpy

        question, seconds = adder.table.question, found.seconds
        tokens = _tokens(question)
        if self.objective.kind == "throughput":
            return seconds / tokens
        if self.objective.kind == "latency":
            return seconds
        target = self.objective.reached
        due = target.seconds if target.seconds is not None else tokens / cast(float, target.tokens_per_s)
        of_gpus = sum((amounts for name, amounts in stored.items() if name in _of_gpus(question)),
                      numpy.zeros(len(seconds)))
        return numpy.where(seconds > due * (1 + CLOSE) * (1 + ROUND), INFINITE, of_gpus)

    def open(self, table: Table) -> float:
        """Take in all placements of a family by their bounds; the least seconds of those that may fit."""
        adder = Adder(table)
        found = adder.bounds()
        self.placements += len(found.counts) * len(table.family.overlaps)
        # Of equal bounds the most buffers come first: their schedules try fewer too.
        overlaps = sorted(table.family.overlaps, key=lambda one: -one.buffers)
        self.opened += 1
        return min(self._take_in(adder, found, overlap, self.opened) for overlap in overlaps)

    def _take_in(self, adder: Adder, found: Bounds, overlap: Overlap, rank: int) -> float:
        if not len(found.counts):
            return INFINITE
        stored, fits = adder.room(found, overlap)
        self._push(_Rows(adder, found, overlap, rank, self._least(adder, found, stored), fits))
        return float(found.seconds[fits].min()) if fits.any() else INFINITE

    def _push(self, rows: _Rows) -> None:
        first = rows.first()
        if first is not None:
            self.number += 1
            heapq.heappush(self.heap, (*first, rows.rank, -rows.overlap.buffers, self.number, rows))

    def _pop(self) -> tuple[_Rows, Counts]:
        rows = heapq.heappop(self.heap)[-1]
        counts = rows.take()
        self._push(rows)
        return rows, counts

    def run(self, few: bool = False) -> None:
        """Look at placements until none that is left can be better, or by little. few : or one was timed."""
        self.unseen = None
        timed = self.timed
        while self.heap and not (few and self.timed > timed):
            least = self.heap[0][0]
            if self.best is not None:
                cost = self.cost(self.best)
                if least >= cost * (1 - ROUND):
                    return
                if self.compiled >= self.enough and least >= cost * (1 - NEAR):
                    self.unseen = least
                    return
            if self.compiled >= self.most:
                self.unseen = least
                return
            rows, counts = self._pop()
            if not rows.found.exact:
                self._take_in(rows.adder, rows.adder.one(counts), rows.overlap, rows.rank)
            else:
                self._try(rows.adder.table, counts, rows.overlap)

    def fewer_buffers(self) -> None:
        """Of the best placement take the first number of buffers, in the order of its family, that costs no more."""
        best = self.best
        if best is None or not streams(best.step):
            return
        for overlap in best.family.overlaps:
            if overlap == best.overlap:
                return
            step = best.question.step(best.placement, overlap)
            found = None if missing(step) else self._found(best.family, best.question, best.counts, overlap,
                                                           best.placement, step)  # fmt: skip
            if found is not None and self.cost(found) <= self.cost(best) * (1 + ROUND):
                self.best = self.by_family[best.family.name] = found
                return

    @staticmethod
    def _found(family: Family, question: Question, counts: Counts, overlap: Overlap, placement: Placement,
               step: Step) -> Found:  # fmt: skip
        hbm = sum(sum(step.occupied[name].values()) for name in _of_gpus(question) if name in step.occupied)
        return Found(family, question, counts, overlap, placement, step, schedule(step, ends=False).seconds,
                     floor(step).seconds, hbm)  # fmt: skip

    def others(self) -> None:
        """Evaluate of the families that were passed over the placements with the least bounds, the first that does."""
        left = OTHERS if self.best is not None else 0
        done = {one.family.name for one in self.by_family.values()}
        tried: dict[str, int] = {}
        while self.heap and left:
            rows, counts = self._pop()
            family = rows.adder.table.family
            if family.name in done or tried.get(family.name, 0) >= TRIES:
                continue
            if not rows.found.exact:
                self._take_in(rows.adder, rows.adder.one(counts), rows.overlap, rows.rank)
                continue
            tried[family.name] = tried.get(family.name, 0) + 1
            self._try(rows.adder.table, counts, rows.overlap, show=True)
            if family.name in self.by_family:
                done.add(family.name)
                left -= 1

    def _try(self, table: Table, counts: Counts, overlap: Overlap, show: bool = False) -> None:
        """Evaluate a placement. show : though its bounds say that it is not the best."""
        family, question = table.family, table.question
        placement = family.placed(*counts)
        asked = (placement, question.workload.batch)
        if asked in self.plain or (*asked, str(overlap)) in self.seen:
            return  # two families say the same, or buffers change nothing
        self.seen.add((*asked, str(overlap)))
        buffers, cost = self.more.get(asked, (0, 0.0))
        if not show and overlap.buffers in ALWAYS and buffers > overlap.buffers and self.best is not None \
                and cost * (1 - GAINED) >= self.cost(self.best):
            return  # a schedule with more buffers tries so few too
        self.compiled += 1
        best = f"best {self.best.seconds * 1e3:.4g} ms" if self.best is not None else "none of them does yet"
        self.tick(f"{self.compiled} plans of {self.placements:,} placements; {best}: {family.name}")
        try:
            step = question.step(placement, overlap)
        except OffloadError:
            self.plain.add(asked)  # no such plan on this server
            return
        if not streams(step):
            self.plain.add(asked)
        if missing(step):
            return
        hbm = sum(sum(step.occupied[name].values()) for name in _of_gpus(question) if name in step.occupied)
        if self.best is not None and not show:
            if self.objective.kind == "target":
                if hbm >= self.best.hbm:
                    return
            else:
                tokens = step.plan.tokens if self.objective.kind == "throughput" else 1
                if any(bound(step) / tokens >= self.cost(self.best)
                       for bound in (lambda step: floor_seconds(step, "value"), queue_seconds, beside_seconds)):
                    return
        found = self._found(family, question, counts, overlap, placement, step)
        self.timed += 1
        if self.objective.kind == "target":
            if not self._reaches(found):
                return
        elif overlap.buffers > self.more.get(asked, (0, 0.0))[0]:
            self.more[asked] = (overlap.buffers, self.cost(found))
        known = self.by_family.get(family.name)
        if known is None or self.cost(found) < self.cost(known):
            self.by_family[family.name] = found
        if self.best is None or self.cost(found) < self.cost(self.best):
            self.best = found


def streams(step: Step) -> bool:
    """Whether something takes buffers: it is fetched ahead, and is no small state."""
    return any(not step.rows[step.instances[slot.fetches[0]]].urgent for slot in step.slots)


def _tokens(question: Question) -> float:
    """What one step yields."""
    asked = question.workload
    if asked.phase == "denoise":
        return 1.0
    return float(asked.batch * (asked.prompt if asked.phase == "prefill" else 1))


def _of_gpus(question: Question) -> list[str]:
    """The memories in which GPUs work."""
    processors = question.topology.processors.values()
    return list(dict.fromkeys(one.memory for one in processors if one.kind == "gpu"))
