"""The best of all placements of some families: evaluated whole, in the order of their bounds, until none can be better.

A bound of a placement is the sum of its layers' loads over sustained rates (`tables`), which its expected time is never
below; then its own floor at sustained rates; then its schedule. What is passed over cannot be better than what was
found, so the best is the best of all that the families have, unless the search ends early, and says how far it got.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offload.bounds import floor, floor_seconds
from offload.capacity import missing
from offload.designs import Placement
from offload.errors import OffloadError
from offload.need_rates import CLOSE, Target
from offload.placing.bound import Relaxation, relaxed
from offload.placing.problem import Family
from offload.placing.tables import Adder, Counts, Question, Table, table_of
from offload.plan import Overlap
from offload.schedules import schedule
from offload.step import Step

OBJECTIVES = ("latency", "throughput")
MOST = 1500  # plans that are compiled before the search ends early
BATCHES = tuple(sorted({2**power * part // 2 for power in range(1, 15) for part in (2, 3)}))  # 1, 2, 3, 4, 6, ...
OTHERS = 5  # families besides that of the best one of which one plan is shown
TRIES = 6  # placements of such a family that are tried, until one fits
ROUND = 1e-12  # relative: what two sums of the same loads in another order may differ by


@dataclass(frozen=True, slots=True)
class Objective:
    """What is wanted: the least time of a step ("latency"), the most tokens per second over batches ("throughput"), or
    the least GPU memory with which a `target` is reached ("target").
    """

    kind: str
    target: Target | None = None


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


@dataclass(frozen=True, slots=True)
class Placing:
    """What `place` returns.

    best : None where nothing fits, or none reaches the target. of_families : the best of each that was evaluated, best
    first. placements : how many there are; evaluated : how many plans were compiled for it; unseen : the least bound of
    those that were not, in what is small of a plan, None where all were or cannot be better. no_peak : links and
    memories that some way uses and whose peak is not known, so that floors leave them out. any_plan : the floor of any
    plan; floors, expected : the bounds of all mixes of the families, of floors and of expected times; None where
    nothing can fit.
    """

    objective: Objective
    best: Found | None
    of_families: tuple[Found, ...]
    placements: int
    evaluated: int
    unseen: float | None
    any_plan: Relaxation | None
    floors: Relaxation | None
    expected: Relaxation | None
    batches: tuple[int, ...]
    no_peak: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether no placement of the families is better."""
        return self.unseen is None


def place(
    question: Question, families: Sequence[Family], objective: Objective, batches: Sequence[int] = (),
    most: int = MOST, tick: Callable[[str], None] = lambda text: None, bounds: bool = True,
) -> Placing:
    """Find the best placement of some families.

    batches : those to try, the question's own where there are none. most : plans to compile at most. tick : is told how
    far it is, in words. bounds : solve the linear programs too. Raises OffloadError where SciPy is missing for them.
    """
    questions = [replace(question, workload=replace(question.workload, batch=batch)) for batch in batches] or [question]
    search = _Search(objective, most, tick)
    tables: dict[int, list[Table]] = {}
    for number, one in enumerate(questions):
        some = [table_of(family, one) for family in families]
        tables[number] = [table for table in some if table is not None]
        for place_, table in enumerate(tables[number]):
            tick(f"bounds of family {place_ + 1} of {len(tables[number])}"
                 + (f", batch {one.workload.batch}" if len(questions) > 1 else ""))
            search.open(table)
        if len(questions) > 1 and not search.opened_some:
            break  # nothing fits at this batch, nor at a larger one
        search.opened_some = False
    search.run()
    search.others()
    of_best = tables.get(next((number for number, one in enumerate(questions)
                               if search.best is not None and one == search.best.question), 0), [])
    found = dict.fromkeys(("any_plan", "floors", "expected"))
    if bounds and of_best:
        tick("bounds of any plan")
        found = {"any_plan": relaxed(of_best, "peak", any_plan=True), "floors": relaxed(of_best, "peak"),
                 "expected": relaxed(of_best, "value")}  # fmt: skip
    ranked = tuple(sorted(search.by_family.values(), key=search.cost))
    return Placing(objective, search.best, ranked, search.placements, search.compiled, search.unseen,
                   batches=tuple(one.workload.batch for one in questions), no_peak=_without_peak(of_best),
                   **found)  # fmt: skip


class _Search:
    """Best first: the placement with the least bound comes next; its bound is made better, or it is evaluated."""

    def __init__(self, objective: Objective, most: int, tick: Callable[[str], None]):
        self.objective, self.most, self.tick = objective, most, tick
        self.heap: list[tuple[float, int, Adder, Counts, bool]] = []
        self.best: Found | None = None
        self.by_family: dict[str, Found] = {}
        self.placements = self.compiled = self.number = 0
        self.opened_some = False
        self.unseen: float | None = None
        self.seen: set[tuple] = set()

    # What a placement costs: seconds, seconds a token, or bytes of GPU memory.

    def cost(self, found: Found) -> float:
        """What is to be small of a plan."""
        if self.objective.kind == "target":
            return found.hbm if self._reaches(found) else float("inf")
        return found.seconds / (found.step.plan.tokens if self.objective.kind == "throughput" else 1)

    def _reaches(self, found: Found) -> bool:
        return found.seconds <= self.objective.target.due(found.step) * (1 + CLOSE)

    def _least(self, adder: Adder, seconds: float, stored: dict[str, float]) -> float:
        """The least that a placement may cost by its bounds; infinite where it cannot do."""
        question = adder.table.question
        tokens = _tokens(question)
        if self.objective.kind == "throughput":
            return seconds / tokens
        if self.objective.kind == "latency":
            return seconds
        target = self.objective.target
        due = target.seconds if target.seconds is not None else tokens / target.tokens_per_s
        if seconds > due * (1 + CLOSE) * (1 + ROUND):
            return float("inf")
        return sum(amount for name, amount in stored.items() if name in _of_gpus(question))

    def open(self, table: Table) -> None:
        """Take in all placements of a family by their bounds."""
        adder = Adder(table)
        found = adder.bounds()
        self.placements += len(found.counts) * len(table.family.overlaps)
        for place_, counts in enumerate(found.counts):
            if found.fits[place_]:
                self._push(adder, found, place_, counts)

    def _push(self, adder: Adder, found: object, place_: int, counts: Counts) -> None:
        stored = {name: float(amounts[place_]) for name, amounts in found.stored.items()}
        least = self._least(adder, float(found.seconds[place_]), stored)
        self.opened_some = True
        if least < float("inf"):
            self.number += 1
            heapq.heappush(self.heap, (least, self.number, adder, counts, found.exact))

    def run(self) -> None:
        """Look at placements until none that is left can be better."""
        while self.heap:
            least, _, adder, counts, exact = self.heap[0]
            if self.best is not None and least >= self.cost(self.best) * (1 - ROUND):
                return
            if self.compiled >= self.most:
                self.unseen = least
                return
            heapq.heappop(self.heap)
            if not exact:
                closer = adder.one(counts)
                if len(closer.counts) and closer.fits[0]:
                    self._push(adder, closer, 0, counts)
                continue
            for overlap in adder.table.family.overlaps:
                if not self._try(adder.table, counts, overlap):
                    break

    def others(self) -> None:
        """Evaluate of the families that were passed over the placements with the least bounds, the first that does."""
        left = OTHERS if self.best is not None else 0
        done = {one.family.name for one in self.by_family.values()}
        tried: dict[str, int] = {}
        while self.heap and left:
            _, _, adder, counts, exact = heapq.heappop(self.heap)
            family = adder.table.family
            if family.name in done or tried.get(family.name, 0) >= TRIES:
                continue
            if not exact:
                closer = adder.one(counts)
                if len(closer.counts) and closer.fits[0]:
                    self._push(adder, closer, 0, counts)
                continue
            tried[family.name] = tried.get(family.name, 0) + 1
            for overlap in family.overlaps:
                if not self._try(adder.table, counts, overlap):
                    break
            if family.name in self.by_family:
                done.add(family.name)
                left -= 1

    def _try(self, table: Table, counts: Counts, overlap: Overlap) -> bool:
        """Evaluate a placement; whether other buffers may change it."""
        family, question = table.family, table.question
        placement = family.placed(*counts)
        asked = (placement, question.workload.batch, str(overlap))
        if asked in self.seen:
            return False  # two families say the same
        self.seen.add(asked)
        self.compiled += 1
        best = f"best {self.best.seconds * 1e3:.4g} ms" if self.best is not None else "none of them does yet"
        self.tick(f"{self.compiled} plans of {self.placements:,} placements; {best}: {family.name}")
        try:
            step = question.step(placement, overlap)
        except OffloadError:
            return False  # no such plan on this server
        buffered = streams(step)
        if missing(step):
            return buffered
        hbm = sum(sum(step.occupied[name].values()) for name in _of_gpus(question) if name in step.occupied)
        known = self.by_family.get(family.name)
        if self.best is not None:
            if self.objective.kind == "target":
                if hbm >= self.best.hbm:
                    return buffered
            else:
                least = floor_seconds(step, "value") / (step.plan.tokens if self.objective.kind == "throughput" else 1)
                if least >= self.cost(self.best) and known is not None:
                    return buffered
        found = Found(family, question, counts, overlap, placement, step, schedule(step, ends=False).seconds,
                      floor(step).seconds, hbm)  # fmt: skip
        if self.objective.kind == "target" and not self._reaches(found):
            return buffered
        if known is None or self.cost(found) < self.cost(known):
            self.by_family[family.name] = found
        if self.best is None or self.cost(found) < self.cost(self.best):
            self.best = found
        return buffered


def streams(step: Step) -> bool:
    """Whether something takes buffers: it is fetched ahead, and is no small state."""
    return any(not step.rows[step.instances[slot.fetches[0]]].urgent for slot in step.slots)


def _without_peak(tables: Sequence[Table]) -> tuple[str, ...]:
    """Links, memories and limits with expected loads and no peak rate."""
    found = {name for table in tables for loads in table.ways.values() for load in (*loads.layers[:1], loads.rest)
             for name in load.seconds["value"] if name not in table.peaks}  # fmt: skip
    resources = tables[0].question.topology.resources if tables else {}
    return tuple(sorted(name for name in found if name in resources and resources[name].kind in ("memory", "link")
                        and not name.endswith(".reads")))  # fmt: skip


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
