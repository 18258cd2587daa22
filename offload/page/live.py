"""What a page's sliders need, as plain data: dials, stops, and at each point the programs and what a memory holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offload.bounds import load_seconds
from offload.capacity import missing
from offload.compiler import compile_step
from offload.documents.settings import Setting
from offload.errors import OffloadError
from offload.page.programs import COMPARED, OPERATIONS, Program, Programs, scaled_by, trace_figures
from offload.page.rates import At, Dial, dials, reading_of, server_key
from offload.page.searching import searched
from offload.page.stops import Stops, points, settings_at
from offload.schedules import serial
from offload.step import Step, loads
from offload.sweeps.sources import Source
from offload.uncounted import uncounted

Tell = Callable[[str], None]
ALONG = (-1.0, -0.6, -0.3, 0.3, 0.6, 1.0)  # powers of ten of one rate at which an expected time is searched for too
BUSY = 0.01  # share of the serial time from which that is done


@dataclass(frozen=True, slots=True)
class Live:
    """The data of the sliders. dials, axes : what they move. points : by place, the step there or why there is none.

    data : all of it, ready for JSON. formula : where the expected time is one: "everywhere", "nowhere", or "partly", at
    some stops and rates.
    """

    dials: tuple[Dial, ...]
    axes: tuple[Stops, ...]
    points: dict[tuple[int, ...], Step | str]
    data: dict[str, Any]
    formula: str


def at_of(source: Source) -> At:
    """The step of a source with settings."""

    def at(settings: Sequence[Setting]) -> Step:
        plan, server = source.load(settings)
        return compile_step(server, plan)

    return at


def live(base: Step, axes: Sequence[Stops], at: At, tell: Tell = lambda text: None) -> Live:
    """The sliders of a step. at : the step with settings. tell : is told in words how far it is.

    Raises OffloadError where there are more stops than a page holds.
    """
    now = tuple(axis.now for axis in axes)
    steps: dict[tuple[int, ...], Step | str] = {}
    for place in points(axes):
        try:
            steps[place] = base if place == now else at(settings_at(axes, place))
        except OffloadError as error:
            steps[place] = str(error)

    def further(place: tuple[int, ...]) -> At:
        return lambda settings: at([*settings_at(axes, place), *settings])

    found = dials(_first(now, steps))
    return assembled(axes, steps, found, {place: further(place) for place in steps}, tell)


def assembled(
    axes: Sequence[Stops], steps: dict[tuple[int, ...], Step | str], found: Sequence[Dial],
    further: Mapping[tuple[int, ...], At], tell: Tell = lambda text: None,
) -> Live:
    """The sliders of steps that are made. further : by place, the step there with further settings."""
    now = tuple(axis.now for axis in axes)
    tell("rates")
    of_server: dict[object, list[tuple[Step, At | None]]] = {}
    made_at = {place: step for place, step in steps.items() if isinstance(step, Step)}
    for place, one_step in made_at.items():
        of_server.setdefault(server_key(one_step), []).append((one_step, further.get(place)))
    servers = list(of_server)
    programs = Programs()
    told: list[dict[str, Any]] = []
    for number, step in enumerate(steps.values()):
        tell(f"{number} of {len(steps)} stops")
        told.append({"wrong": step} if isinstance(step, str)
                    else {"server": servers.index(server_key(step))} | _point(step, found, programs))
    points_of = dict(zip(steps, told, strict=True))
    without = [place for place, one in points_of.items() if "known" in one]
    along = _along(made_at[now], found) if now in without else []
    others = [scaled_by(made_at[now], dict.fromkeys(found[dial].names, factor)) for dial, factor in along]
    times = searched([*(made_at[place] for place in without), *others],
                     lambda done, of: tell(f"{done} of {of} expected times"))  # fmt: skip
    for place, seconds in zip(without, times, strict=False):
        points_of[place]["known"] = seconds
    data: dict[str, Any] = {
        "formula": _formula(told, programs),
        "along": [(*one, seconds) for one, seconds in zip(along, times[len(without) :], strict=True)],
        "operations": OPERATIONS, "comparisons": COMPARED,
        "dials": [_dial(one, found) for one in found],
        "servers": [_server(found, made) for made in of_server.values()],
        "axes": [_axis(one) for one in axes],
        "resources": {name: one.unit for made in of_server.values() for step, _ in made
                      for name, one in step.resources.items()},
        "programs": [_program(one) for one in programs.kept],
        "points": told,
    }  # fmt: skip
    return Live(tuple(found), tuple(axes), steps, data, data["formula"])


def _formula(told: Sequence[Mapping[str, Any]], programs: Programs) -> str:
    """Where the expected time of these points is a formula."""
    kept = list(programs.kept)
    made = [one for one in told if "wrong" not in one]
    free = [one for one in made if "expected" in one and not kept[one["expected"][0]].guards]
    if len(free) == len(made):
        return "everywhere"
    return "partly" if any("expected" in one for one in made) else "nowhere"


def _first(now: tuple[int, ...], steps: Mapping[tuple[int, ...], Step | str]) -> list[Step]:
    """The steps that are made, the plan's own first."""
    ordered = sorted(steps, key=lambda place: place != now)
    return [one for place in ordered if isinstance(one := steps[place], Step)]


def _server(found: Sequence[Dial], made: Sequence[tuple[Step, At | None]]) -> dict[str, Any]:
    """What the dials show on a server, and how much its memories hold."""
    readings = [reading_of(dial, made) for dial in found]
    topology = made[0][0].topology
    return {
        "readings": [None if one is None else {"rate": one.rate, "grade": one.grade, "sets": one.sets}
                     for one in readings],
        "memories": {name: memory.capacity * memory.count for name, memory in topology.memories.items()
                     if memory.capacity is not None},
    }  # fmt: skip


def _point(step: Step, found: Sequence[Dial], programs: Programs) -> dict[str, Any]:
    """A point: its programs with their numbers, what it yields, and what memories hold."""
    inputs = {dial.name: [name for name in dial.names if name in step.resources] for dial in found}
    figures, expected = trace_figures(programs, step, inputs)
    told: dict[str, Any] = {
        "figures": figures,
        "tokens": float(step.plan.tokens), "most": float(step.plan.tokens_at_most),
        "loads": {name: float(amount) for name, amount in loads(step, least=False).items() if amount},
        "held": {name: {part: int(size) for part, size in parts.items() if size}
                 for name, parts in sorted(step.occupied.items())},
        "open": bool(uncounted(step)),
        "lacks": {name: int(size) for name, size in missing(step).items()},
    }  # fmt: skip
    if expected is not None:
        return told | {"expected": expected}
    return told | {"known": None}  # until it is searched for


def _along(base: Step, found: Sequence[Dial]) -> list[tuple[int, float]]:
    """(dial, factor) of the rates that matter, at which the plan's own step is searched for too."""
    busy, least = load_seconds(base, "value").resource_seconds, BUSY * serial(base).seconds
    return [
        (place, factor)
        for place, dial in enumerate(found)
        if any(busy.get(name, 0.0) >= least for name in dial.names)
        for factor in (10.0**power for power in ALONG)
    ]


def _program(one: Program) -> dict[str, Any]:
    calls = [{"function": call.function, "fixed": call.fixed, "operands": call.operands} for call in one.calls]
    return {"inputs": one.inputs, "code": one.code, "outputs": one.outputs, "guards": one.guards, "calls": calls}


def _dial(one: Dial, found: Sequence[Dial]) -> dict[str, Any]:
    names = [other.name for other in found]
    mates = [names.index(other) for other in one.together]
    return {"name": one.name, "names": one.names, "kind": one.kind, "unit": one.unit, "together": mates}


def _axis(one: Stops) -> dict[str, Any]:
    return {"name": one.name, "label": one.label, "now": one.now, "shown": [stop.shown for stop in one.stops],
            "words": [stop.words for stop in one.stops], "numbers": one.numbers}  # fmt: skip
