"""Where a page's sliders stop: values of batch, context and residency, at each of which the step is compiled.

A stop is what `offload step` would be given for it, as `--set workload.batch=8` or, where a model is named in words,
`--batch 8`. At the stops of now the step is the plan's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product

from offload.capacity import LayersIn, Room, layers_that_fit, room
from offload.designs.homes import home_names
from offload.designs.parallel import batch_unit
from offload.documents.settings import Setting, read_setting
from offload.errors import OffloadError
from offload.step import Step
from offload.sweeps.axes import Axis
from offload.sweeps.sources import WORDS

At = Callable[[Sequence[Setting]], Step]  # the step with some settings
MOST_POINTS = 400  # steps that are compiled, at about a tenth of a second each
USUAL = ((200, (4, 4, 6)), (1000, (3, 3, 4)), (float("inf"), (2, 2, 3)))  # by tasks of a step, which cost time: stops
# of batch, of context and of residency, if nobody says otherwise
LABELS = {"batch": "Batch (sequences)", "context": "Context (positions)", "prompt": "Prompt (positions)",
          "on": "Server", "topology": "Server", "gpu-layers": "Layers at the GPU"}  # fmt: skip
LONGEST = {"prefill": "prompt", "generate": "prompt"}  # what grows with the text, by phase; else the context


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop. setting : what it sets, None where the plan says it itself. words : of the command line, for it."""

    shown: str
    setting: Setting | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stops:
    """The stops of one slider. name : of what is set; label : for a person; now : the place of what the plan has.

    numbers : by stop, to draw along an axis; None where a stop is no number.
    """

    name: str
    label: str
    stops: tuple[Stop, ...]
    now: int
    numbers: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return len(self.stops)


def usual(step: Step, without: Callable[[str], At], in_words: bool, said: Collection[str]) -> list[Stops]:
    """Stops of batch, context (or prompt) and residency of a plan that has them; none of one by hand.

    without : by the name of a slider, the step with settings, without what else says its value. in_words : whether a
    model is named in words. said : the names of sliders whose value the command line says.
    """
    if step.plan.origin is None:
        return []
    layers = layers_that_fit(step)
    rooms = {one.what: one for one in room(step, layers) if one.what != "layers"}
    workload = step.plan.origin[1]
    found = []
    longest = LONGEST.get(workload.phase, "context")
    unit = batch_unit(step.topology, step.plan.origin[2])
    tasks = len(step.instances) + len(step.rows)
    batches, contexts, residencies = next(counts for most, counts in USUAL if tasks <= most)
    for what, count in (("batch", batches), (longest, contexts)):
        now = getattr(workload, what)
        if what == "context" and (workload.phase == "denoise" or now < 2):
            continue
        values = _doubled(now, count, rooms.get(what), unit if what == "batch" else 1)
        found.append(_counted(f"workload.{what}", what, values, now, in_words, said))
    place = next((one for one in layers if _is_near(step, one.memory) and one.most > 0), None)
    if place is not None:
        found.append(_layers(step, place, residencies, in_words, said))
    made = [_that_can_be(one, without(one.name), step) for one in found]
    return [one for one in made if one is not None and len(one) > 1]


def _that_can_be(stops: Stops, at: At, base: Step) -> Stops | None:
    """Those of some stops at which there is a step; None where that of now is not the plan's."""
    kept = []
    for place, stop in enumerate(stops.stops):
        settings = [] if stop.setting is None else [stop.setting]
        if place == stops.now:
            if not same_step(at, settings, base):
                return None
        else:
            try:
                at(settings)
            except OffloadError:
                continue
        kept.append(place)
    numbers = None if stops.numbers is None else tuple(stops.numbers[one] for one in kept)
    return Stops(stops.name, stops.label, tuple(stops.stops[one] for one in kept), kept.index(stops.now), numbers)


def _is_near(step: Step, memory: str) -> bool:
    """Whether a memory, or a range of them, is not the host's own."""
    return all(step.topology.memories[name].kind != "dram" for name in home_names(memory))


def _doubled(now: int, count: int, most: Room | None, unit: int) -> list[int]:
    """Values in steps of two around what a plan has, as far as fits, and one value further than that."""
    least = unit if unit > 1 else 1
    below: list[int] = []
    above: list[int] = []
    value = now
    while value % 2 == 0 and value // 2 >= least and (value // 2) % unit == 0 and len(below) < 1:
        value //= 2
        below.append(value)
    value = now
    while len(below) + 1 + len(above) < count:
        value *= 2
        above.append(value)
        if most is not None and most.most is not None and value > most.most:
            break
    return [*reversed(below), now, *above]


def _counted(
    path: str, what: str, values: Sequence[int], now: int, in_words: bool, said: Collection[str]
) -> Stops:
    stops = []
    for value in values:
        words = (f"--{what}", str(value)) if in_words else ("--set", f"{path}={value}")
        setting = read_setting(f"{path}={value}") if value != now or path in said else None
        stops.append(Stop(f"{value:,}", setting, words if setting is not None else ()))
    return Stops(path, LABELS[what], tuple(stops), values.index(now), tuple(map(float, values)))


def _layers(step: Step, place: LayersIn, stops_at_most: int, in_words: bool, said: Collection[str]) -> Stops:
    """Layers in a memory, from none to the most that fit, evenly. In words each is told: else as many as fit are meant,
    which are others at another batch.
    """
    most = max(place.most, place.now)
    even = {round(most * part / (stops_at_most - 1)) for part in range(stops_at_most)}
    if place.now not in even:  # in place of the nearest, the ends kept
        near = min(sorted(even - {0, most}) or [most], key=lambda one: abs(one - place.now))
        even = (even - {near} if 0 < near < most else even) | {place.now}
    counts = sorted(even)
    stops = []
    for count in counts:
        if in_words:
            stops.append(Stop(f"{count}", read_setting(f"gpu-layers={count}"), ("--gpu-layers", str(count))))
        elif count == place.now and "placement.weights" not in said:
            stops.append(Stop(f"{count}", None, ()))
        else:
            text = _portions(step, place, count)
            stops.append(Stop(f"{count}", read_setting(text), ("--set", text)))
    path = "gpu-layers" if in_words else "placement.weights"
    return Stops(path, f"Layers in {place.memory}", tuple(stops), counts.index(place.now), tuple(map(float, counts)))


def _portions(step: Step, place: LayersIn, count: int) -> str:
    """The setting of so many layers in a memory."""
    texts = []
    for name, portion in place.placement.weights:
        if name == place.memory:
            texts.append(f"{name}: {count} layers")
        elif portion.kind == "layers":
            texts.append(f"{name}: {int(portion.value)} layers")
        elif portion.kind == "rest":
            texts.append(f"{name}: rest")
        else:
            share = portion.kind == "share"
            texts.append(f"{name}: {100 * portion.value:.12g}%" if share else f"{name}: {int(portion.value)} B")
    return f"placement.weights={{{', '.join(texts)}}}"


def of_axis(axis: Axis, in_words: bool, said: bool, at: At, base: Step) -> Stops:
    """The stops of an axis that a person gave. That of now is where the step is the plan's own; where none of them is,
    one more comes first, at which nothing is set.

    said : whether the command line says the value too. Raises OffloadError where that is none of the stops.
    """
    stops, now = [], None
    for place in range(len(axis)):
        text, setting = axis.text(place), axis.setting(place)
        option = axis.path.rpartition(".")[2]
        words = (f"--{option}", text) if in_words and f"--{option}" in WORDS else ("--set", f"{axis.path}={text}")
        stops.append(Stop(axis.shown(place), setting, words))
        if now is None and same_step(at, [setting], base):
            now = place
    label = LABELS.get(axis.path.rpartition(".")[2], axis.path)
    if now is None and said:
        raise OffloadError(f"--over {axis.path}: the command line says its value too, and that is none of these. Add "
                           "it to them, or say it once.")  # fmt: skip
    if now is None:
        return Stops(axis.path, label, (Stop("as it is", None, ()), *stops), 0)
    numbers = None if axis.numbers is None else tuple(float(one) for one in axis.numbers)
    return Stops(axis.path, label, tuple(stops), now, numbers)


def same_step(at: At, settings: Sequence[Setting], base: Step) -> bool:
    """Whether with these settings the step does what another one does, on the same resources."""
    try:
        found = at(settings)
    except OffloadError:
        return False
    return (found.rows, found.resources, found.instances, found.occupied) == (
        base.rows, base.resources, base.instances, base.occupied)  # fmt: skip


def points(axes: Sequence[Stops]) -> list[tuple[int, ...]]:
    """The places of all points, the last axis first to move. Raises OffloadError where they are too many."""
    found = list(product(*(range(len(one)) for one in axes)))
    if len(found) > MOST_POINTS:
        lengths = " x ".join(str(len(one)) for one in axes)
        raise OffloadError(f"{lengths} stops are {len(found):,} steps, and a page holds at most {MOST_POINTS}. Give "
                           "fewer values with --over.")  # fmt: skip
    return found


def settings_at(axes: Sequence[Stops], place: Sequence[int]) -> list[Setting]:
    """What is set at a point."""
    found = [axis.stops[at].setting for axis, at in zip(axes, place, strict=True)]
    return [one for one in found if one is not None]
