"""What fits: bytes that memories lack, and the most layers, sequences and positions that they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model, portions_in_layers
from offload.designs.homes import home_names
from offload.designs.parallel import batch_unit
from offload.designs.placement import memories_of
from offload.designs.placement import runs as runs_on
from offload.errors import OffloadError, PlanError
from offload.models import weigh
from offload.ranges import fold, runs
from offload.step import Step

NO_LIMIT = 10**12  # of a batch or a context: nothing stops it


@dataclass(frozen=True, slots=True)
class Room:
    """The most of one thing that fits, all else as it is.

    what : "layers", "batch", "context" or "prompt". memory : where the layers are; of the others the memory that is
    full first, "" where no plan can be made of more. most : None where not even one fits; now : what the plan has.
    """

    what: str
    memory: str
    most: int | None
    now: int

    @property
    def fits(self) -> bool:
        """Whether what the plan has is no more than fits."""
        return self.most is not None and self.now <= self.most


def missing(step: Step) -> dict[str, int]:
    """Bytes that do not fit, by memory (only those that lack some)."""
    return _lacking(step, step.occupied)


def missing_at_mean(step: Step) -> dict[str, int]:
    """Bytes that would not fit if buffers held what is fetched on average, by memory (only those that lack some)."""
    occupied = {name: dict(parts) for name, parts in step.occupied.items()}
    for slot in step.slots:
        for memory, share in slot.places if slot.expected is not slot.size else ():
            spared = (slot.size - slot.expected) * share * slot.count
            occupied[memory]["buffers"] -= math.floor(spared)
    return _lacking(step, occupied)


def _lacking(step: Step, occupied: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    lacking = {}
    for name, parts in occupied.items():
        memory = step.topology.memories[name]
        if memory.capacity is not None:
            over = sum(parts.values()) - memory.capacity * memory.count
            if over > 0:
                lacking[name] = over
    return lacking


def again(step: Step, workload: Workload | None = None, placement: Placement | None = None) -> Step:
    """The step of the same model with another workload or placement. Raises as `plan_model` does."""
    model, asked, placed, weights, kv = step.plan.origin
    return compile_step(step.topology, plan_model(
        model, step.topology, workload or asked, placement or placed, weights=weights, kv=kv,
        overlap=step.plan.overlap,
    ))  # fmt: skip


def room(step: Step, layers: Sequence[LayersIn]) -> tuple[Room, ...]:
    """The largest batch and context that fit, and the most layers in each memory; nothing for a plan by hand.

    layers : of `layers_that_fit`.
    """
    if step.plan.origin is None:
        return ()
    workload = step.plan.origin[1]
    longest = {"prefill": "prompt", "generate": "prompt"}.get(workload.phase, "context")
    found = []
    for what in ("batch", longest):
        most, memory = _most(step, what, getattr(workload, what))
        if most is not None and (tier := _last_with_a_size(step.plan.origin[2].cache)):
            held = _held_by_tiers(step, what, getattr(workload, what), most)
            most, memory = (held, tier) if held < most else (most, memory)
        if most is None or most < NO_LIMIT:
            found.append(Room(what, memory, most, getattr(workload, what)))
    found += [Room("layers", one.memory, one.most, one.now) for one in layers]
    return tuple(found)


def _most(step: Step, what: str, now: int) -> tuple[int | None, str]:
    """The largest whole number of what a workload asks that fits in every memory, and which memory is full first; ""
    where no plan can be made of more, as of a mixture's file that ceases to fit beside what grows."""
    workload, placement = step.plan.origin[1:3]
    occupied: dict[int, Mapping[str, Mapping[str, int]] | None] = {now: step.occupied}  # by count
    roomy = replace(placement, cache=without_sizes(placement.cache))
    unit = batch_unit(step.topology, step.plan.origin[2])

    def with_count(count: int) -> Mapping[str, Mapping[str, int]] | None:
        if count not in occupied:
            asked = count if what != "batch" else -(-count // unit) * unit
            occupied[count] = None
            with suppress(PlanError):
                occupied[count] = again(step, replace(workload, **{what: asked}), roomy).occupied
        return occupied[count]

    def lacking(count: int) -> dict[str, int]:
        found = with_count(count)
        return {"": 1} if found is None else _lacking(step, found)

    def fullest(count: int) -> str:
        over = lacking(count)
        return "" if "" in over else fold(runs(sorted(name for name in over if over[name] == max(over.values())))[0])

    first = 1 if with_count(1) is not None else now  # of a prompt shorter than what is found of it there is no plan
    if lacking(first):
        return (None, fullest(1)) if first == 1 else (NO_LIMIT, "")
    # What is occupied grows evenly with both, so two steps tell how far it reaches; then it is tried.
    unit = unit if what == "batch" else 1
    now = now if now > max(unit, first) else 2 * max(unit, first)
    least, ahead = with_count(first) or {}, with_count(now)
    reach = first if ahead is None else NO_LIMIT
    for name, more in (ahead or {}).items():
        memory, used = step.topology.memories[name], sum(least.get(name, {}).values())
        grown = sum(more.values()) - used
        if memory.capacity is not None and grown > 0:
            reach = min(reach, first + (memory.capacity * memory.count - used) * (now - first) // grown)
    if reach >= NO_LIMIT or (not lacking(reach + 1) and not lacking(NO_LIMIT)):  # full windows grow no further
        return NO_LIMIT, ""
    most = largest(lambda count: count <= first or not lacking(count), reach)
    return most, fullest(most + 1)


def without_sizes(tiers: Sequence[tuple[str, Portion]]) -> tuple[tuple[str, Portion], ...]:
    """Tiers of a cache that hold whatever is found: where none takes the rest, the last that has a size does."""
    last = _last_with_a_size(tiers)
    return tuple((name, Portion("rest") if name == last else portion) for name, portion in tiers)


def _last_with_a_size(tiers: Sequence[tuple[str, Portion]]) -> str:
    """The last tier that holds some bytes and no more, where none takes the rest; else ""."""
    sizes = [name for name, portion in tiers if portion.kind == "bytes"]
    return sizes[-1] if sizes and all(portion.kind != "rest" for _, portion in tiers) else ""


def _held_by_tiers(step: Step, what: str, now: int, most: int) -> int:
    """The largest number of what a workload asks, up to `most`, of which the tiers of its cache hold what is found."""
    unit = batch_unit(step.topology, step.plan.origin[2]) if what == "batch" else 1

    def holds(count: int) -> bool:
        asked = -(-count // unit) * unit
        try:
            again(step, replace(step.plan.origin[1], **{what: asked}))
        except PlanError:
            return False
        return count <= most

    return largest(holds, now)


def largest(fits: Callable[[int], bool], guess: int) -> int:
    """The largest number from 1 on for which `fits` holds (as it does for 1), searched outwards from a guess."""
    low, high, stride = 1, None, 1
    guess = max(1, guess)
    while high is None or high - low > 1:
        if fits(guess):
            low = guess
        else:
            high = guess
        if high is None:
            guess, stride = low + stride, stride * 2
        elif low == 1 and high > 2:
            guess, stride = max(1, high - stride), stride * 2
        else:
            guess = (low + high) // 2
        if guess == low:
            guess = low + 1
    return low


@dataclass(frozen=True, slots=True)
class LayersIn:
    """The most whole layers that fit in a memory, how many are there now, and a placement with the most."""

    memory: str
    most: int
    now: int
    placement: Placement
    takes_rest: bool = False  # whether others give way to it in this placement


def layers_that_fit(step: Step) -> list[LayersIn]:
    """The most layers that fit in each memory that a plan may fill.

    Those are the memories that the plan names, and the processors' own. The rest of the layers goes to the memory that
    takes the rest; where that is the memory itself, to the host's. Empty for a plan by hand.
    """
    if step.plan.origin is None:
        return []
    model, _, placement, weights, _ = step.plan.origin
    sizes = weigh(model, weights).layers
    counts = dict(portions_in_layers(placement, sizes))
    found = []
    for memory, portions, takes_rest in _fillable(step, placement, counts):
        kept = {name for name, portion in portions if portion.kind != "rest"} - {memory}
        most = len(sizes) - sum(counts.get(name, 0) for name in kept)
        try:
            answer = _layers_in(step, memory, replace(placement, weights=portions), most, counts.get(memory, 0),
                                max(sizes))
        except OffloadError:
            continue  # no such placement on this machine
        found += [] if answer is None else [LayersIn(memory, answer[0], counts.get(memory, 0), answer[1], takes_rest)]
    return found


def _layers_in(
    step: Step, memory: str, placement: Placement, most: int, now: int, size: int
) -> tuple[int, Placement] | None:
    """The most layers that fit in a memory, with the placement; None where it is full without any."""

    def there(count: int) -> Placement:
        portions = tuple((name, Portion("layers", count) if name == memory else portion)
                         for name, portion in placement.weights)  # fmt: skip
        return replace(placement, weights=portions)

    def fits(count: int) -> bool:
        return count <= most and not set(missing(again(step, placement=there(count)))) & set(home_names(memory))

    if not fits(0):
        return None
    free = _free(step, memory)
    guess = most if free is None else min(most, now + int(free // size))
    count = largest(fits, guess) if fits(1) else 0
    return count, there(count)


def _fillable(
    step: Step, placement: Placement, counts: Mapping[str, int]
) -> list[tuple[str, tuple[tuple[str, Portion], ...], bool]]:
    """Each memory with the portions of a plan in which its number of layers is free, and whether it takes the rest."""
    topology = step.topology
    rest = next((name for name, portion in placement.weights if portion.kind == "rest"), None)
    if rest is None:
        return []
    found = [(name, placement.weights, False) for name, portion in placement.weights if portion.kind != "rest"]
    own = memories_of(topology, runs_on(topology, placement, placement.weights[0][0]))
    if own not in counts and placement.compute != "local":
        found.append((own, ((own, Portion("layers", 0)), *placement.weights), False))
    hosts = sorted(name for name, memory in topology.memories.items() if memory.kind == "dram")
    other = next((name for name, _ in placement.weights if name != rest), None)
    spill = next((name for name in hosts if name not in counts), None)
    changed = {rest: Portion("layers", 0)} | ({} if other is None else {other: Portion("rest")})
    portions = tuple((name, changed.get(name, portion)) for name, portion in placement.weights)
    if other is not None:
        found.append((rest, portions, True))
    elif spill is not None and topology.memories[home_names(rest)[0]].kind in ("hbm", "unified"):
        found.append((rest, (*portions, (spill, Portion("rest"))), False))
    return found


def _free(step: Step, memory: str) -> int | None:
    """Bytes that are free in a memory, or in all of a range of them; None where a capacity is not known."""
    names = home_names(memory)
    free = []
    for name in names:
        part = step.topology.memories[name]
        if part.capacity is None:
            return None
        free.append(part.capacity * part.count - sum(step.occupied.get(name, {}).values()))
    return min(free) * len(names)
