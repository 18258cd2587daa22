"""A plan by hand: tensors with their homes, and tasks that move and compute, as a Plan.

What a compiled step would refuse is found here first, where the file still has a line for it: a name in `after` that no
task bears, tasks that wait for each other, a move to where the tensor lives, a read over no route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from offload.collectives import ALGORITHMS
from offload.documents.marks import Document, Location
from offload.documents.named import no_nodes, no_stop
from offload.documents.plan_shape import (
    MOST_INSTANCES,
    MOST_NAMED,
    MOST_TIMED,
    BlockShape,
    CollectiveShape,
    ComputeShape,
    MoveShape,
    PlanShape,
    TensorShape,
    task_written_out,
    tensor_written_out,
)
from offload.documents.shapes import as_key, validate
from offload.documents.ways_by_hand import Known, Ways, place_of
from offload.errors import PlanError, did_you_mean
from offload.plan import (
    PREVIOUS,
    Block,
    Collective,
    Compute,
    Overlap,
    Plan,
    Task,
    Tensor,
    Transfer,
    stands_alone,
)
from offload.ranges import is_range, listed
from offload.topology import Interval, Topology

KINDS: dict[str, type[MoveShape | ComputeShape | CollectiveShape]] = {
    "move": MoveShape, "compute": ComputeShape, "collective": CollectiveShape,
}  # fmt: skip
SAYS = {"move": "moves", "compute": "computes", "collective": "exchanges"}
TWIN_FORMATS = {"bf16": "fp16", "fp16": "bf16"}  # either counts at the other's rate


def plan_by_hand(document: Document, shape: PlanShape, topology: Topology | None, title: str) -> Plan | None:
    """The plan of `tensors` and `tasks` or `blocks`; None where the document has mistakes, which are noted in it.

    topology : None where it could not be read; what needs it is then not checked.
    """
    _check_form(document)
    reader = _Reader(document, topology, shape.tensors)
    blocks = reader.blocks(shape)
    if document.mistakes:
        return None
    has_compute = any(isinstance(task, Compute) for block in blocks for task in block.tasks)
    try:
        return Plan(title=title, tensors=reader.tensors, blocks=tuple(blocks), tokens=shape.tokens,
                    in_flight=shape.in_flight, overlap=shape.overlap, data_cycle=has_compute)
    except PlanError as error:
        document.mistake((), str(error))
        return None


def _check_form(document: Document) -> None:
    given = document.value
    if "blocks" in given and "tasks" in given:
        document.mistake(("blocks",), 'give "tasks" (with "repeat") or "blocks", not both.', key=True)
    elif "blocks" in given and "repeat" in given:
        document.mistake(("repeat",), "each block has its own repeat; move it there.", key=True)
    elif "blocks" not in given and "tasks" not in given:
        document.mistake((), 'a plan by hand needs "tasks" or "blocks".')


class _Reader:
    """Tensors first, then the tasks that name them, block by block."""

    def __init__(self, document: Document, topology: Topology | None, tensors: Mapping[str, Any] | None):
        self.document = document
        self.topology = topology
        self.named = {*(tensors or {}), *_names_in(document, ("tensors",))}
        self.listed = "tensors" not in document.value or tensors is not None
        self.tensors: dict[str, Tensor] = {}
        self.earlier: dict[str, None] = {}  # names of tasks of earlier blocks
        self.sound = True  # whether everything waits for what is there, so far
        self.buffers: dict[str, int] = {}  # of each move, in the block that first has it
        for name, value in (tensors or {}).items():
            self.check_name(name, ("tensors", name))
            tensor = self.tensor(name, value)
            if tensor is not None:
                self.tensors[name] = tensor

    def check_name(self, name: str, place: Location) -> None:
        if is_range(name):
            self.document.mistake(place, f'a range of names ("{name}") stands for parts of a topology only: write each '
                                  "name out.", key=True)

    # Tensors.

    def tensor(self, name: str, value: Any) -> Tensor | None:
        place = ("tensors", name)
        shape = validate(self.document, TensorShape, tensor_written_out(value), place)
        if shape is None:
            return None
        interval = _ends(shape.bytes)
        if interval is not None:
            for memory, (kind, _) in shape.home.items():
                if kind == "bytes":
                    text = "a part in bytes of a tensor whose bytes are a range is no fixed share of it: write a " \
                           'percentage, like "50%", or make it a tensor of its own.'
                    self.document.mistake((*place, "home", memory), text)
                    return None
        size = shape.bytes[1]
        home = [
            (memory, figure if kind == "share" else None if kind == "rest" else figure / max(1, size))
            for memory, (kind, figure) in shape.home.items()
        ]
        if not self.check_home(home, (*place, "home")):
            return None
        left = 1.0 - sum(share for _, share in home if share is not None)
        shares = [(memory, max(0.0, left) if share is None else share) for memory, share in home]
        shares = [one for one in shares if one[1] > 0] or shares[:1]
        shares = [(name, share / len(names)) for names, share in ((listed(text), share) for text, share in shares)
                  for name in names]
        return Tensor(name, size, tuple(shares), shape.shared, shape.what, interval=interval)

    def check_home(self, home: list[tuple[str, float | None]], place: Location) -> bool:
        """Whether every memory, or range of memories with equal parts, can be told apart; what is wrong is noted."""
        seen: list[str] = []
        for memory, _ in home:
            self.check_node(memory, "memory", (*place, memory))
            try:
                seen += listed(memory)
            except ValueError as error:
                self.document.mistake((*place, memory), str(error))
                return False
        for name in {name for name in seen if seen.count(name) > 1}:
            self.document.mistake(place, f"{name} is named twice.")
            return False
        rests = [memory for memory, share in home if share is None]
        for memory in rests[1:]:
            self.document.mistake((*place, memory), f"{rests[0]} already takes the rest; one memory may.")
        left = 1.0 - sum(share for _, share in home if share is not None)
        if left < -1e-9:
            self.document.mistake(place, f"{(1 - left):.4g} times the tensor is placed, more than all of it.")
        elif not rests and left > 1e-9 and not self.has_refused(place):
            self.document.mistake(place, f"{100 * left:.3g} % of the tensor has no home. Add `MEMORY: rest`.")
        return True

    def has_refused(self, place: Location) -> bool:
        return any(refused[: len(place)] == place for refused in self.document.refused)

    # Blocks and tasks.

    def blocks(self, shape: PlanShape) -> list[Block]:
        parts: list[tuple[Mapping[str, Any], int, Location]] = []
        if shape.tasks is not None:
            parts.append((shape.tasks, shape.repeat or 1, ()))
        for index, value in enumerate(shape.blocks or ()):
            block = validate(self.document, BlockShape, value, ("blocks", index))
            if block is not None:
                parts.append((block.tasks, block.repeat, ("blocks", index)))
        if shape.blocks == []:
            self.document.mistake(("blocks",), "there is no block: give at least one, with tasks.", key=True)
        if not self.few_enough(parts):
            return []
        found = []
        ways = None if self.topology is None else Ways(self.document, self.topology, self.tensors)
        later = {name for tasks, _, _ in parts for name in tasks}
        alike: dict[object, tuple[Task, ...]] = {}  # of sound blocks that stand alone, by what is written there
        for tasks, repeat, place in parts:
            # What is set is apart whatever its value, so that all points of a sweep add up the same rows.
            written = None if len(parts) == 1 or self.document.was_set(place) else as_key(tasks)
            if written in alike and not self.document.mistakes:
                found.append(Block(alike[written], repeat))
                if ways is not None:
                    ways.remember(found[-1].tasks)
                continue
            known = self.tasks(tasks, (*place, "tasks"))
            self.check_orders(known, tasks, self.earlier, later)
            self.check_unread(tasks, known, (*place, "tasks"), later)
            self.check_buffers(known, shape.overlap)
            self.sound = self.sound and len(known) == len(tasks)
            if ways is not None:
                ways.find_copies(known, self.earlier, self.sound)
                ways.check_ways(known)
            self.earlier |= dict.fromkeys(tasks)
            found.append(Block(tuple(one.task for one in known.values()), repeat))
            if written is not None and stands_alone(found[-1].tasks, self.tensors):
                alike[written] = found[-1].tasks
        count = sum(1 if task.once else block.repeat for block in found for task in block.tasks)
        place = ("repeat",) if "repeat" in self.document.value else ("blocks",)
        if count > MOST_INSTANCES:
            self.document.mistake(place, f"{count:,} tasks (each times its repetitions) are more than the "
                                  f"{MOST_INSTANCES:,} that are laid out: write fewer, with more bytes each.")
        elif (names := len(later)) * count > MOST_TIMED:
            self.document.mistake(place, f"{count:,} tasks (each times its repetitions) of {names:,} names are more "
                                  f"than the {MOST_TIMED // names:,} that are laid out of so many names: repeat fewer "
                                  "times, with more bytes each, or write fewer.")
        return found

    def few_enough(self, parts: list[tuple[Mapping[str, Any], int, Location]]) -> bool:
        """Whether so many tasks are laid out, asked before any of them is read; where not, it is noted."""
        names = sum(len(tasks) for tasks, _, _ in parts)
        if names > MOST_NAMED:
            place = ("blocks",) if "blocks" in self.document.value else ("tasks",)
            text = f"{names:,} tasks are written, more than the {MOST_NAMED:,} names that are laid out. Write what " \
                   "comes again once, with repeat, or write fewer, with more bytes each."
            self.document.mistake(place, text, key=True)
        return names <= MOST_NAMED

    def tasks(self, values: Mapping[str, Any], at: Location) -> dict[str, Known]:
        found: dict[str, Known] = {}
        if not values and not self.has_refused(at):
            self.document.mistake(at, "there is no task: give at least one move or compute.", key=True)
        for name, value in values.items():
            place = (*at, name)
            self.check_name(name, place)
            if name.startswith(PREVIOUS):
                self.document.mistake(place, f'"{PREVIOUS}" in `after` means the repetition before: rename the task.',
                                      key=True)
            task = self.task(name, value, place)
            if task is not None:
                found[name] = Known(task, place, value)
        return found

    def task(self, name: str, value: Any, place: Location) -> Task | None:
        kinds = [kind for kind in KINDS if isinstance(value, dict) and kind in value]
        if len(kinds) != 1:
            if place not in self.document.refused:
                text = f"a task either {' or '.join(SAYS[kind] for kind in kinds)}: split it in two." if kinds else (
                    'a task is a map with "move: TENSOR" or "compute: PROCESSOR" (or "collective: all_reduce").')
                self.document.mistake(place, text, key=True)
            return None
        written = task_written_out(value)
        shape = validate(self.document, KINDS[kinds[0]], written, place)
        for key in ("after", "reads", "writes", "via"):
            self.check_list(value, written.get(key), key, place)
        if shape is None:  # its names are looked up all the same
            for key in ("reads", "writes"):
                for index, entry in enumerate(written[key] if isinstance(written.get(key), list) else ()):
                    if isinstance(entry, str):
                        self.check_tensor(entry, place_of(value, place, key, index))
            for key in ("move", "of"):
                if isinstance(value.get(key), str):
                    self.check_tensor(value[key], (*place, key))
            return None
        task = self.made(name, shape, place)
        if task is not None:
            self.check_names(Known(task, place, value))
        return task

    def made(self, name: str, shape: MoveShape | ComputeShape | CollectiveShape, place: Location) -> Task | None:
        """The task of a shape; None where a range of names is none, or its time is none, which is noted."""
        every, once = shape.every
        if isinstance(shape, MoveShape):
            to = self.ranks(shape.to, (*place, "to"))
            if not to:
                return None
            return Transfer(name, shape.move, to[0], tuple(shape.after), every, once, tuple(shape.via),
                            shape.host_memory, shape.buffers, to if len(to) > 1 else ())
        if isinstance(shape, CollectiveShape):
            over = self.ranks(shape.over, (*place, "over"))
            if len(over) == 1 and (self.topology is None or over[0] in self.topology.memories):
                text = f'"{over[0]}" is a single memory. A collective is over several: a range, like "hbm0..7".'
                self.document.mistake((*place, "over"), text)
            if shape.algorithm is not None and shape.algorithm not in ALGORITHMS[shape.collective]:
                hint = did_you_mean(shape.algorithm, ALGORITHMS[shape.collective], f"Of {shape.collective}")
                self.document.mistake((*place, "algorithm"),
                                      f"{shape.collective} has no algorithm {shape.algorithm}. {hint}")
                return None
            return None if not over else Collective(name, shape.of, over, tuple(shape.after), every, once,
                                                    kind=shape.collective, algorithm=shape.algorithm)
        ranks = self.ranks(shape.compute, (*place, "compute"))
        time = None
        if shape.time is not None:
            try:
                time = shape.time.given()
            except ValueError as error:
                self.document.mistake((*place, "time"), str(error))
        if not ranks:
            return None
        return Compute(name, ranks[0], shape.flops[1], shape.format, tuple(shape.reads), tuple(shape.writes),
                       tuple(shape.after), every, once, time=time, ranks=ranks if len(ranks) > 1 else (),
                       interval=_ends(shape.flops))

    def ranks(self, text: str, place: Location) -> tuple[str, ...]:
        """The names that a text stands for; none where it is no range, which is noted."""
        try:
            return tuple(dict.fromkeys(listed(text)))
        except ValueError as error:
            self.document.mistake(place, str(error))
            return ()

    def check_list(self, value: Mapping[str, Any], entries: object, key: str, place: Location) -> None:
        """No entry of a list is given twice, and `via` has at least one."""
        if not isinstance(entries, list):
            return
        if key == "via" and not entries:
            self.document.mistake((*place, key), "an empty `via` names no way: name a node, or remove the key.")
        for index, entry in enumerate(entries):
            if isinstance(entry, str) and entry in entries[:index]:
                self.document.mistake(place_of(value, place, key, index), f'"{entry}" is given twice. Keep one.')

    # Names.

    def check_names(self, known: Known) -> None:
        task, place = known.task, known.place
        if isinstance(task, Transfer):
            self.check_tensor(task.tensor, (*place, "move"))
            self.check_node(known.given["to"], "memory", (*place, "to"))
            if self.topology is not None:
                for index, node in enumerate(task.via):
                    if wrong := no_stop(self.topology, node):
                        self.document.mistake(known.at("via", index), wrong)
            self.check_not_processor(task.name, place)
            return
        if isinstance(task, Collective):
            self.check_tensor(task.tensor, (*place, "of"))
            self.check_node(known.given["over"], "memory", (*place, "over"))
            self.check_not_processor(task.name, place)
            return
        self.check_node(known.given["compute"], "processor", (*place, "compute"))
        for key, names in (("reads", task.reads), ("writes", task.writes)):
            for index, name in enumerate(names):
                self.check_tensor(name, known.at(key, index))
        self.check_format(task, place)

    def check_not_processor(self, name: str, place: Location) -> None:
        """A processor's name is the queue of its computes, so nothing else queues under it."""
        if self.topology is not None and name in self.topology.processors:
            text = f'"{name}" is a processor of the topology: give the move another name.'
            self.document.mistake(place, text, key=True)

    def check_tensor(self, name: str, place: Location) -> None:
        if name not in self.named and self.listed:
            several = [part.strip() for part in name.split(",")]
            text = did_you_mean(name, self.named, "Tensors")
            if len(several) > 1 and self.named.issuperset(several):
                text = f"Several are a list: [{', '.join(several)}]."
            self.document.mistake(place, f'no tensor "{name}". {text}')

    def check_node(self, name: str, kind: str, place: Location) -> None:
        if self.topology is not None and (text := no_nodes(self.topology, name, kind)):
            self.document.mistake(place, text)

    def check_format(self, task: Compute, place: Location) -> None:
        engine = self.topology.resources.get(f"{task.processor}.flops") if self.topology is not None else None
        offered = set(engine.sustained) if engine is not None else set()
        if task.format and offered and not offered & {task.format, TWIN_FORMATS.get(task.format)}:
            hint = did_you_mean(task.format, offered, "Formats")
            self.document.mistake((*place, "format"), f'{task.processor} states no FLOP/s for "{task.format}". {hint}')

    # What waits for what.

    def check_orders(
        self, known: Mapping[str, Known], names: Iterable[str], earlier: Iterable[str], everywhere: Iterable[str]
    ) -> None:
        """`after` names a task of the same block or an earlier one, and no task waits for itself."""
        allowed = {*names, *earlier}
        sound: dict[str, list[str]] = {}
        for name, one in known.items():
            sound[name] = []
            for index, text in enumerate(one.task.after):
                previous, awaited = text.startswith(PREVIOUS), text.removeprefix(PREVIOUS)
                if awaited not in allowed:
                    self.sound = False
                    self.document.mistake(one.at("after", index), _no_task(awaited, allowed, everywhere))
                elif awaited == name and not previous:
                    self.sound = False
                    text = f'a task cannot wait for itself. The repetition before is "{PREVIOUS}{name}".'
                    self.document.mistake(one.at("after", index), text)
                elif not previous and awaited in known:
                    sound[name].append(awaited)
        try:
            TopologicalSorter(sound).prepare()
        except CycleError as error:
            self.sound = False
            circle = error.args[1]
            first = min(circle[:-1], key=list(known).index)
            start = circle.index(first)
            turned = [*circle[start:-1], *circle[: start + 1]][::-1]
            text = ", which waits for ".join(f'"{name}"' for name in turned).replace(", which waits", " waits", 1)
            text += f": a circle. Drop one `after`, or wait for the repetition before ({PREVIOUS}NAME)."
            self.document.mistake((*known[first].place, "after"), text)

    def check_unread(
        self, values: Mapping[str, Any], known: Mapping[str, Known], at: Location, everywhere: Iterable[str]
    ) -> None:
        """Tasks with a mistake of their own wait for tasks that there are, too."""
        allowed = {*values, *self.earlier}
        for name, value in values.items():
            entries = task_written_out(value).get("after") if isinstance(value, dict) and name not in known else None
            for index, text in enumerate(entries if isinstance(entries, list) else ()):
                if isinstance(text, str) and text.removeprefix(PREVIOUS) not in allowed:
                    place = place_of(value, (*at, name), "after", index)
                    self.document.mistake(place, _no_task(text.removeprefix(PREVIOUS), allowed, everywhere))

    def check_buffers(self, known: Mapping[str, Known], overlap: Overlap) -> None:
        """Moves of one name in several blocks share their buffers, so they have one number of them."""
        for name, one in known.items():
            if isinstance(one.task, Transfer) and overlap.kind != "none":
                buffers = overlap.buffers if one.task.buffers is None else one.task.buffers
                first = self.buffers.setdefault(name, buffers)
                if first != buffers:
                    counts = f"{first or 'all'} buffers, this one {buffers or 'all'}"
                    text = f'"{name}" of an earlier block has {counts}: give both one number, or other names.'
                    self.document.mistake((*one.place, "buffers"), text)


def _ends(figures: tuple[float, float, float]) -> Interval | None:
    """The interval of low end, value and high end; None where they are one figure."""
    return Interval(*figures) if figures[0] < figures[2] else None


def _no_task(name: str, allowed: Iterable[str], everywhere: Iterable[str]) -> str:
    if name in everywhere:
        return f'"{name}" is in a later block; wait for a task of this block or of an earlier one.'
    hint = did_you_mean(name, allowed, "Tasks")
    return f'no task "{name}". {hint}' + (' Write "previous.NAME".' if name in ("previous", "") else "")


def _names_in(document: Document, place: Location) -> list[str]:
    """The keys that stand in a map of the file, refused values too."""
    value = document.get(place)
    refused = [one[len(place)] for one in document.refused if len(one) > len(place) and one[: len(place)] == place]
    return [*(value if isinstance(value, dict) else ()), *(name for name in refused if isinstance(name, str))]
