"""The best placement over batches: families' tables made where one of them may win, searched, and bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload.placing.bound import Relaxation, relaxed
from offload.placing.problem import Family
from offload.placing.search import ENOUGH, INFINITE, MOST, Found, Objective, Search
from offload.placing.tables import Question, Table, table_of

BATCHES = tuple(sorted({2**power * part // 2 for power in range(15) for part in (2, 3)}))  # 1, 2, 3, 4, 6, ...
COARSE = 4  # of batches each fourth one is looked at first


@dataclass(frozen=True, slots=True)
class Placing:
    """What `place` returns.

    best : None where nothing fits, or none reaches the target. of_families : the best of each that was evaluated, best
    first. placements : how many there are; evaluated : how many plans were compiled for it; unseen : the least bound of
    those that were not, in what is small of a plan, None where none of them can be better. no_peak : links and
    memories that some way uses and whose peak is not known, so that floors leave them out. unknown : parts without a
    rate on which the time of some way depends, which is so not looked at. any_plan : the floor of any
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
    unknown: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether no placement of the families is better."""
        return self.unseen is None

    @property
    def left(self) -> float:
        """The share by which a placement that was not looked at may be better at most."""
        if self.unseen is None or self.best is None:
            return 0.0
        kind, best = self.objective.kind, self.best
        cost = best.hbm if kind == "target" else best.seconds / (best.step.plan.tokens if kind == "throughput" else 1)
        return 1 - self.unseen / cost if cost else 0.0


def place(
    question: Question, families: Sequence[Family], objective: Objective, batches: Sequence[int] = (),
    most: int = MOST, tick: Callable[[str], None] = lambda text: None, bounds: bool = True, *,
    between: Sequence[int] = (), enough: int = ENOUGH,
) -> Placing:
    """Find the best placement of some families.

    batches : those to try, in order, the question's own where there are none; between : of these those around the best
    one are tried afterwards. most : plans to compile at most; enough : after so many the search ends too where what is
    left is not better by more than NEAR. tick : is told how far it is, in words. bounds : solve the linear programs
    too. Raises OffloadError where SciPy is missing for them.
    """
    search = Search(objective, most, enough, tick)
    batch = _Batches(question, families, search)
    found = list(batches) or [question.workload.batch]
    tried, fit = [], 0
    for one in found[::COARSE]:
        tried.append(one)
        if not batch.open(one):
            break  # nothing fits at this batch, nor at a larger one
        fit = one
    search.run(few=True)
    for one in found:
        if one > fit and one not in tried and (fit == tried[-1] or one < tried[-1]):
            tried.append(one)
            if not batch.open(one):
                break
            search.run(few=True)
    for one in reversed(found):  # with larger ones known, few families need a look at smaller ones
        if one < fit and one not in tried:
            tried.append(one)
            batch.open(one)
            search.run(few=True)
    search.run(few=bool(between))
    while search.best is not None:
        now = search.best.question.workload.batch
        around = [one for one in between if one not in tried and now / 2 < one < now * 2]
        for one in around:
            tried.append(one)
            batch.open(one)
            search.run(few=True)
        search.run()
        if not around:
            break
    search.fewer_buffers()
    search.others()
    of_best = batch.tables(search.best.question.workload.batch if search.best is not None else found[0])
    three = dict.fromkeys(("any_plan", "floors", "expected"))
    searched = [told for one in of_best if one.family.counted and (told := one.told()) is not None]
    if bounds and searched:
        tick("bounds of any plan")
        three = {"any_plan": relaxed(of_best, "peak", any_plan=True), "floors": relaxed(searched, "peak"),
                 "expected": relaxed(searched, "value")}  # fmt: skip
    ranked = tuple(sorted(search.by_family.values(), key=search.cost))
    return Placing(objective, search.best, ranked, search.placements, search.compiled, search.unseen,
                   batches=tuple(sorted(tried)), no_peak=_without_peak(of_best), unknown=_unknown(of_best),
                   **three)  # fmt: skip


class _Batches:
    """Tables of families by batch, made where some placement of one may be the best.

    A step of more sequences puts no less on any resource and keeps no less in any memory. So what a family takes at
    least at one batch it takes at larger ones too, and where that is too much for their tokens it needs no table there.
    """

    def __init__(self, question: Question, families: Sequence[Family], search: Search):
        self.question, self.families, self.search = question, families, search
        self.known: dict[int, dict[int, Table | None]] = {}
        self.least: dict[int, dict[int, float]] = {}  # of a step: seconds of what fits, by batch and family
        self.placements: dict[int, int] = {}
        self.ways: dict[Any, Any] = {}  # what families share

    def open(self, batch: int) -> bool:
        """Take in a batch; False where no placement fits at it."""
        asked = replace(self.question, workload=replace(self.question.workload, batch=batch))
        fits, least = False, self.least.setdefault(batch, {})
        for number in range(len(self.families)):
            if not self.families[number].counted:
                continue
            low = max((some[number] for one, some in self.least.items() if one < batch and number in some), default=0.0)
            if low == INFINITE:
                least[number] = INFINITE
                continue
            if self.search.too_slow(low, asked):
                self.search.placements += self.placements.get(number, 0)
                fits = True  # for all that is known
                continue
            table = self._table(batch, number, asked)
            if table is None:
                least[number] = INFINITE
                continue
            self.search.tick(f"bounds of family {number + 1} of {len(self.families)}, batch {batch}")
            before = self.search.placements
            least[number] = self.search.open(table)
            self.placements[number] = self.search.placements - before
            fits |= least[number] < INFINITE
        return fits

    def tables(self, batch: int) -> list[Table]:
        """All tables of a batch."""
        asked = replace(self.question, workload=replace(self.question.workload, batch=batch))
        every = (self._table(batch, number, asked) for number in range(len(self.families)))
        return [one for one in every if one is not None]

    def _table(self, batch: int, number: int, asked: Question) -> Table | None:
        known = self.known.setdefault(batch, {})
        if number not in known:
            known[number] = table_of(self.families[number], asked, self.ways)
        return known[number]


def _unknown(tables: Sequence[Table]) -> tuple[str, ...]:
    """Parts without a rate on which the time of some way depends."""
    return tuple(dict.fromkeys(part for one in tables if one.family.counted for parts in one.unknown.values()
                               for part in parts))  # fmt: skip


def _without_peak(tables: Sequence[Table]) -> tuple[str, ...]:
    """Links, memories and limits with expected loads and no peak rate."""
    found = {name for table in tables for loads in table.ways.values() for load in (*loads.layers[:1], loads.rest)
             for name in load.seconds["value"] if name not in table.peaks}  # fmt: skip
    resources = tables[0].question.topology.resources if tables else {}
    return tuple(sorted(name for name in found if name in resources and resources[name].kind in ("memory", "link")
                        and not name.endswith(".reads")))  # fmt: skip
