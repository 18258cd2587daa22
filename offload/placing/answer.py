"""The whole answer: the best placement beside the plan that was asked with, and what both lose to any plan's floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offload.bounds import floor
from offload.capacity import missing
from offload.displayed import Displayed, Pictured
from offload.errors import PlanError
from offload.placing.batches import BATCHES, Placing, place
from offload.placing.bound import Relaxation, regret
from offload.placing.problem import LEFT_OUT, families, uncounted
from offload.placing.search import MOST, Objective
from offload.placing.tables import Question
from offload.plan import Overlap, Plan
from offload.ranges import fold
from offload.schedules import schedule
from offload.step import Step
from offload.topology import Topology

MOST_MEMORIES = 512  # of a server: ten seconds

CLOSE = 1e-9  # relative: sums of the same loads in another order


@dataclass(frozen=True, slots=True)
class Compared:
    """The plan that the question came with. missing : bytes that lack, by memory."""

    step: Step
    seconds: float
    floor: float
    missing: dict[str, int]


@dataclass(frozen=True, slots=True)
class Answer(Displayed, Pictured):
    """What `best_of` returns. families : how many were looked at. uncounted : processors on which none of them runs,
    as their FLOP/s are not known, and those of another one in their memory are.
    """

    placing: Placing
    compared: Compared
    families: int
    uncounted: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """What was not searched, in words."""
        told = []
        if self.uncounted:
            told.append(f"what {fold(self.uncounted)} might run, whose FLOP/s are not known: it would look faster than "
                        "it is")  # fmt: skip
        if self.placing.unknown:
            told.append(f"what depends on {fold(self.placing.unknown)}, of which no rate is known: it would look "
                        "faster than it is")  # fmt: skip
        return *told, *LEFT_OUT

    @property
    def any_plan(self) -> Relaxation | None:
        """The floor of any plan."""
        return self.placing.any_plan

    @property
    def like(self) -> bool:
        """Whether the plan that the question came with does the same work as the best one, and fits."""
        best, compared = self.placing.best, self.compared
        return best is not None and not compared.missing and best.question.workload == compared.step.plan.origin[1]

    def regret(self, seconds: float) -> float | None:
        """How much longer a plan's floor is than that of any plan, as a share of it.

        None where it is less: a floor that leaves open which of two memories is read counts neither, and says less of
        its plan than the floor of any plan does.
        """
        found = None if self.any_plan is None else regret(seconds, self.any_plan.seconds)
        return None if found is None or found < -CLOSE else found


def plan_question(plan: Plan, topology: Topology) -> Question:
    """The question that a plan by placement answers. Raises PlanError for plans that have no placement to change, and
    for too large a server.
    """
    if plan.training is not None:
        raise PlanError("a training step has no layers to place: what it has is under `training`. offload step "
                        "answers it.")
    if plan.origin is None:
        raise PlanError("a plan by hand says itself where everything lives; place needs a model: name one, or give a "
                        "plan file by placement.")
    model, workload, _, weights, kv = plan.origin
    if len(topology.memories) > MOST_MEMORIES:
        raise PlanError(f"{topology.name} has {len(topology.memories):,} memories, more than the {MOST_MEMORIES} that "
                        "place weighs: write a server of those that the layers may lie in.")
    if workload.phase == "generate":
        raise PlanError("place is of one step: ask for decode (--context) or for the prompt alone (--prompt without "
                        "--generate).")
    if workload.chunk or workload.cached is not None or workload.speculation is not None:
        raise PlanError("place is of one plain step: leave out chunks, what is cached of a prompt, and speculation.")
    return Question(model, topology, workload, weights, kv)


def powers_of_two() -> tuple[int, ...]:
    """Batches to start with, from one on; what lies between the best ones is tried afterwards."""
    return tuple(batch for batch in BATCHES if batch & (batch - 1) == 0)


def best_of(
    question: Question, step: Step, objective: Objective, batches: Sequence[int] = (), *, most: int = MOST,
    overlap: Overlap | None = None, tick: Callable[[str], None] = lambda text: None,
) -> Answer:
    """The best placement for a question, beside the plan that it came with (`step`).

    overlap : buffers of all placements; None tries some. Raises OffloadError where the server has no way at all.
    """
    some = families(question.model, question.topology, step.plan.origin[2], question.weights, overlap)
    found = place(question, some, objective, batches, most, tick, between=BATCHES if batches else ())
    compared = Compared(step, schedule(step, ends=False).seconds, floor(step).seconds, missing(step))
    return Answer(found, compared, sum(one.counted for one in some), uncounted(question.topology))
