"""A family's loads as arrays: what each layer takes each way, and so lower bounds of all of its placements at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload.compiler import compile_step
from offload.designs import Placement, Workload, plan_model
from offload.errors import OffloadError
from offload.models import Model, weigh
from offload.placing.loads import CHAIN, GRADES, Load, Loads, loads_by_layer
from offload.placing.problem import Family, Key
from offload.plan import UNLIMITED, Overlap
from offload.step import Step
from offload.topology import Topology
from offload.uncounted import uncounted

QUEUE = "queue of "  # before a processor's name: all of a step between its first task and its last
CHUNK = 4096  # placements whose loads are added up at once
Counts = tuple[tuple[int, ...], tuple[int, ...]]  # layers in each home, parts in each home of parts


@dataclass(frozen=True, slots=True)
class Question:
    """What is placed: a model in formats (`weights`, `kv`) on a server, and what is asked of it."""

    model: Model
    topology: Topology
    workload: Workload
    weights: str
    kv: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each layer."""
        return weigh(self.model, self.weights).layers

    @property
    def embedding(self) -> int:
        """Bytes of the input embedding."""
        return weigh(self.model, self.weights).embedding

    def step(self, placement: Placement, overlap: Overlap) -> Step:
        """The compiled step of a placement. Raises as `plan_model` and `compile_step` do."""
        plan = plan_model(self.model, self.topology, self.workload, placement, weights=self.weights, kv=self.kv,
                          overlap=overlap)  # fmt: skip
        return compile_step(self.topology, plan)


@dataclass(frozen=True, slots=True)
class Table:
    """A family at one workload.

    ways : those that can be, with each layer's loads that way. unknown : of these the ones whose time depends on parts
    without a rate, and which parts: they are in the floor of any plan alone. held : memory -> bytes that every
    placement of it keeps free or fills otherwise. in_flight : steps that share a chain of computes; 0 where there is
    none. apart : whether replicas each do a part of some task. caches : memory -> seconds that the cache in front of it
    may spare a floor. peaks : resource -> peak rate [B/s, FLOP/s]. sustained : the same of the rates of expected times.
    """

    family: Family
    question: Question
    ways: dict[Key, Loads]
    held: dict[str, float]
    in_flight: int
    apart: bool
    caches: dict[str, float]
    peaks: dict[str, float]
    sustained: dict[str, float]
    unknown: dict[Key, tuple[str, ...]]

    def told(self) -> Table | None:
        """The table of the ways whose time is known; None where there are none."""
        ways = {key: loads for key, loads in self.ways.items() if key not in self.unknown}
        return replace(self, ways=ways, unknown={}) if ways else None


def table_of(family: Family, question: Question, known: dict[Any, Any] | None = None) -> Table | None:
    """The table of a family; None where none of its ways can be on this server.

    known : ways that other families have too, by batch and placement; added to.
    """
    layers, steps, ways, unknown = question.model.layers, [], {}, {}
    known = {} if known is None else known
    costs = tuple(cost for cost in family.base.costs if cost.each != "hand-over")
    for key in family.ways():
        placement = _in_plain_words(replace(family.pure(key, layers), costs=costs), question.topology)
        asked = (question.workload.batch, placement, family.overlaps[0])
        if asked not in known:
            try:
                step = question.step(placement, family.overlaps[0])
                known[asked] = step, loads_by_layer(step, layers), uncounted(step)
            except OffloadError:
                known[asked] = None  # no way there, heads that do not split, a drive that is not read in place
        if known[asked] is not None:
            steps.append(known[asked][0])
            ways[key] = known[asked][1]
            if known[asked][2]:
                unknown[key] = known[asked][2]
    if not ways:
        return None
    held = {name: min(one.held.get(name, 0.0) for one in ways.values())
            for name in {name for one in ways.values() for name in one.held}}
    caches, peaks, sustained = {}, {}, {}
    for step in steps:
        for name, one in step.resources.items():
            if one.peak is not None:
                peaks[name] = one.peak
                if one.cache:
                    caches[name] = one.cache / one.peak
            found = one.sustained_at("")
            rate = found.value if found is not None else one.peak
            if rate is not None:
                sustained[name] = rate
    in_flight = steps[0].plan.in_flight if steps[0].plan.data_cycle else 0
    apart = any(row.apart != 1 for step in steps for row in step.rows)
    return Table(family, question, ways, held, in_flight, apart, caches, peaks, sustained, unknown)


def _in_plain_words(placement: Placement, topology: Topology) -> Placement:
    """The same placement in the words in which most families say it, where all layers live in one memory and run there.

    Experts that are with their layers need no home of their own; what the one processor there runs needs no word.
    """
    homes = {name for name, portion in placement.weights if portion.value}
    memory = next(iter(homes), "")
    if len(homes) != 1 or memory not in topology.memories or len(topology.processors_of(memory)) != 1:
        return placement
    there = topology.processors_of(memory)[0]
    if placement.compute not in ("local", there):
        return placement
    experts = placement.experts
    if experts is not None:
        if {name for name, portion in experts.home if portion.value} != homes or experts.compute not in ("", "local"):
            return placement
        placement = replace(placement, experts=None)
    return replace(placement, compute="local", access="copy")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds of a family's placements, in the order of `counts`.

    seconds : of the expected time of a step. floors : of its floor. work : seconds of all resources together. stored :
    memory -> bytes at least [B], buffers apart. ways : layers that go each way. exact : whether each layer's own loads
    were added up, in the place it has; else the lightest layers stand for those that a memory holds.
    """

    counts: Sequence[Counts]
    seconds: Any
    floors: Any
    work: Any
    stored: dict[str, Any]
    ways: Any
    exact: bool


class Adder:
    """A family's table as arrays: layers x ways x resources [s], layers x ways x memories [B]."""

    def __init__(self, table: Table):
        import numpy

        self.table = table
        layers = table.question.model.layers
        self.order = list(table.family.ways())
        self.known = [key in table.ways and key not in table.unknown for key in self.order]
        every = [load for one in table.ways.values() for load in (*one.layers, one.rest)]
        self.resources = sorted({name for load in every for grade in GRADES for name in load.seconds[grade]})
        self.resources += [] if table.apart else sorted({f"{QUEUE}{name}" for load in every for name in load.on})
        self.memories = sorted({name for load in every for name in load.stored} | set(table.held))
        self.seconds = {grade: numpy.zeros((layers, len(self.order), len(self.resources))) for grade in GRADES}
        self.kept = numpy.zeros((layers, len(self.order), len(self.memories)))
        for place, key in enumerate(self.order):
            for number, load in enumerate(table.ways[key].layers if self.known[place] else ()):
                for grade in GRADES:
                    self.seconds[grade][number, place] = self._column(load, grade)
                self.kept[number, place] = [load.stored.get(name, 0.0) for name in self.memories]
        rests = [one.rest for one in table.ways.values()]
        self.rest = {grade: numpy.min([self._column(one, grade) for one in rests], axis=0) for grade in GRADES}
        self.rest_kept = numpy.min([[one.stored.get(name, 0.0) for name in self.memories] for one in rests], axis=0)
        self.held = numpy.array([table.held.get(name, 0.0) for name in self.memories])
        self.ends = 2 * self.seconds["value"].max(axis=(0, 1))

    def _column(self, load: Load, grade: str) -> list[float]:
        """Seconds by resource; of a processor's queue the chain of what runs partly there."""
        chain = load.seconds[grade].get(CHAIN, 0.0) if grade == "value" else 0.0
        return [(chain if name.removeprefix(QUEUE) in load.on else 0.0) if name.startswith(QUEUE)
                else load.seconds[grade].get(name, 0.0) for name in self.resources]

    def bounds(self) -> Bounds:
        """Bounds of every placement of the family that its ways allow."""
        import numpy

        family, question = self.table.family, self.table.question
        counts = list(family.counts(question.model.layers))
        if family.parts:
            return self._exact(counts)
        counts = [one for one in counts if all(ok for count, ok in zip(one[0], self.known, strict=True) if count)]
        chosen = numpy.array([one[0] for one in counts], dtype=int).reshape(len(counts), len(self.known))
        return self._bounds(counts, {grade: _least(values, chosen) for grade, values in self.seconds.items()},
                            _least(self.kept, chosen), chosen, exact=False)

    def one(self, counts: Counts) -> Bounds:
        """The bound of one placement, each layer in its place; without any count where it cannot be."""
        return self._exact([counts])

    def room(self, found: Bounds, overlap: Overlap) -> tuple[dict[str, Any], Any]:
        """Memory -> bytes at least with so many buffers [B], and where no memory surely lacks room."""
        import numpy

        topology, buffers = self.table.question.topology, overlap.buffers if overlap.kind == "buffers" else 1
        stored = {}
        for name, amounts in found.stored.items():
            # Several ways may share their buffers: the most that one of them takes.
            held = [_slots_taken(self.table.ways[key], name, found.ways[:, place], buffers)
                    for place, key in enumerate(self.order) if self.known[place]]
            stored[name] = amounts + numpy.max(held, axis=0)
        # Parts of a tensor over several memories may be rounded: some bytes of each layer are forgiven.
        slack = 4 * self.table.question.model.layers
        within = [amounts <= room + slack for name, amounts in stored.items()
                  if (room := _room(topology, name)) is not None]  # fmt: skip
        return stored, numpy.all(within, axis=0) if within else numpy.ones(len(found.counts), bool)

    def _exact(self, counts: Sequence[Counts]) -> Bounds:
        import numpy

        chosen, counts = _keys(self.table, counts, self.known)
        rows = numpy.arange(self.table.question.model.layers)
        ways = numpy.stack([(chosen == place).sum(axis=1) for place in range(len(self.order))], axis=1)
        return self._bounds(counts, {grade: _summed(values, rows, chosen) for grade, values in self.seconds.items()},
                            _summed(self.kept, rows, chosen), ways, exact=True)

    def _bounds(self, counts: Sequence[Counts], sums: Mapping[str, Any], kept: Any, ways: Any, exact: bool) -> Bounds:
        import numpy

        if not counts:
            return Bounds([], numpy.zeros(0), numpy.zeros(0), numpy.zeros(0), {}, ways, exact)
        table = self.table
        stored = kept + self.rest_kept + self.held
        chain = numpy.array([name == CHAIN for name in self.resources])
        spared = numpy.array([table.caches.get(name, 0.0) for name in self.resources])
        value, peak = sums["value"] + self.rest["value"], sums["peak"] + self.rest["peak"]
        queue = numpy.array([name.startswith(QUEUE) for name in self.resources])
        value = numpy.where(queue, sums["value"] - self.ends, value)
        peak = peak - numpy.where(chain, sum(table.caches.values()), spared)
        share = numpy.where(chain, 1 / table.in_flight if table.in_flight else 0.0, 1.0)
        return Bounds(counts, (value * share).max(axis=1), numpy.maximum((peak * share).max(axis=1), 0.0),
                      (value * ~queue).sum(axis=1),
                      {name: stored[:, place] for place, name in enumerate(self.memories)}, ways, exact)


def _slots_taken(loads: Loads, memory: str, layers: Any, buffers: int) -> Any:
    """Bytes of buffers in a memory at least, where so many layers go one way [B]."""
    import numpy

    total = numpy.zeros(len(layers))
    for slot in loads.slots:
        if memory in slot.size:
            fetches = numpy.maximum(layers - slot.without, 0)
            taken = fetches if buffers == UNLIMITED else numpy.minimum(fetches, buffers)
            total = total + taken * slot.size[memory]
    return total


def _keys(table: Table, counts: Sequence[Counts], known: Sequence[bool]) -> tuple[Any, list[Counts]]:
    """The way of each layer for each of some counts, and the counts that can be so."""
    import numpy

    family, topology, sizes = table.family, table.question.topology, table.question.sizes
    found, kept = [], []
    homes: dict[tuple[int, ...], Any] = {}
    parts: dict[tuple[int, ...], Any] = {}
    shut = [place for place, ok in enumerate(known) if not ok]
    for one in counts:
        try:
            if one[0] not in homes:
                homes[one[0]] = numpy.array(family.homes_of(topology, sizes, one[0]))
            if family.parts and one[1] not in parts:
                parts[one[1]] = numpy.array(family.parts_of(topology, sizes, one[1]))
        except OffloadError:
            continue
        keys = homes[one[0]] * len(family.parts) + parts[one[1]] if family.parts else homes[one[0]]
        if not any((keys == place).any() for place in shut):
            found.append(keys)
            kept.append(one)
    return numpy.array(found, dtype=int).reshape(len(found), len(sizes)), kept


def _least(values: Any, counts: Any) -> Any:
    """The least that so many layers may put each way, whichever they are: the lightest ones."""
    import numpy

    ahead = numpy.concatenate([numpy.zeros((1, *values.shape[1:])), numpy.cumsum(numpy.sort(values, axis=0), axis=0)])
    return sum(ahead[counts[:, place], place] for place in range(values.shape[1]))


def _summed(values: Any, rows: Any, chosen: Any) -> Any:
    import numpy

    if not len(chosen):
        return numpy.zeros((0, values.shape[2]))
    return numpy.concatenate([values[rows, chosen[start : start + CHUNK]].sum(axis=1)
                              for start in range(0, len(chosen), CHUNK)])  # fmt: skip


def _room(topology: Topology, name: str) -> int | None:
    memory = topology.memories[name]
    return None if memory.capacity is None else memory.capacity * memory.count
