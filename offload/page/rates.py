"""The sliders of a page that move rates: which resources each moves, what it is now, and how a command says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offload.bounds import floor_seconds
from offload.documents.settings import Setting, read_setting
from offload.errors import OffloadError
from offload.page.programs import scaled_by
from offload.ranges import fold, runs
from offload.schedules import serial
from offload.sensitivity import together
from offload.step import Step, distinct, loads
from offload.sweeps.axes import number_text
from offload.topology import Rate, Topology
from offload.topology.resources import directions

AGREE = 1e-9  # relative: of the times with a setting, and with the rates that the page takes for it
TRIED = 2.0  # a factor with which that is looked at
ORDER = {"memory": 0, "link": 1, "limit": 2, "processor": 3}

At = Callable[[Sequence[Setting]], Step]


@dataclass(frozen=True, slots=True)
class Dial:
    """A slider of the rates of resources that are alike and loaded alike.

    rate : what it shows at a factor of 1 [B/s or FLOP/s]: the peak where there is one (grade "peak"), else what is
    sustained. sets : (path, rate at a factor of 1) of settings that do the same; none where no setting does.
    together : the other dials that one upgrade of the part moves too, by name.
    """

    name: str
    names: tuple[str, ...]
    kind: str
    unit: str
    rate: float
    grade: str
    sets: tuple[tuple[str, float], ...] = ()
    together: tuple[str, ...] = ()


def dials(steps: Sequence[tuple[Step, Sequence[Setting]]], at: At) -> tuple[Dial, ...]:
    """A dial for each resource that some step loads, those that are alike in all of them as one; none of given times.

    steps : each with the settings that make it. at : the step with settings, by which it is seen which of them say the
    same as a dial.
    """
    first_of: dict[str, int] = {}
    keys: dict[str, list[str | None]] = {}
    for number, (step, _) in enumerate(steps):
        carried = loads(step, least=False)
        head = {name: first for first, others in distinct(step)[1].items() for name in (first, *others)}
        for name in step.resources:
            if carried[name] > 0 and step.resources[name].unit != "s":
                first_of.setdefault(name, number)
                keys.setdefault(name, [None] * len(steps))[number] = head[name]
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for name, key in keys.items():
        groups.setdefault(tuple(key), []).append(name)
    found = [_dial(*steps[first_of[run[0]]], tuple(run), at) for names in groups.values() for run in runs(names)]
    found.sort(key=lambda one: (ORDER.get(one.kind, len(ORDER)), one.unit, one.name))
    topology = steps[0][0].topology
    moved = {one.name: set().union(*(together(topology, name) for name in one.names)) for one in found}
    return tuple(
        replace(one, together=tuple(other.name for other in found
                                    if other is not one and moved[one.name] & set(other.names)))
        for one in found
    )  # fmt: skip


def _dial(step: Step, settings: Sequence[Setting], names: tuple[str, ...], at: At) -> Dial:
    one = step.resources[names[0]]
    usual = one.sustained_at("") or next(iter(one.sustained.values()), None)
    rate = one.peak if one.peak is not None else usual.value
    sets = _paths(step.topology, names)
    if sets and not _says_the_same(step, settings, names, sets, at):
        sets = []
    return Dial(fold(names), names, one.kind, one.unit, rate, "sustained" if one.peak is None else "peak", tuple(sets))


def _paths(topology: Topology, names: Sequence[str]) -> list[tuple[str, float]]:
    """Settings of the rate of resources, with the figures that they have now."""
    here, first = fold(names), names[0]
    groups = (topology.memories, topology.processors, topology.links, topology.limits)
    part = next((group[name] for group in groups for name in sorted(group, key=len, reverse=True)
                 if first == name or first.startswith(f"{name}.")), None)  # fmt: skip
    if part is None:
        return []
    rest = first[len(part.name) + 1 :]
    rates: dict[str, Rate | None] = {}
    if part.name in topology.memories:
        rates[f"{here}.rate"] = getattr(part, rest or "rate")
    elif part.name in topology.processors and rest == "flops":
        rates = {f"{here}.{form}.rate": rate for form, rate in part.flops.items()}
    elif part.name in topology.processors:
        rates[f"{here}.rate"] = getattr(part, rest)
    elif part.name in topology.links:
        rates[f"{here}.rate"] = next((rate for name, _, rate in directions(part) if name == first), part.forward)
    else:
        rates[f"{here}.rate"] = part.rate
    figures = [(path, None if rate is None else _leading(rate)) for path, rate in rates.items()]
    return [(path, figure) for path, figure in figures if figure is not None]


def _leading(rate: Rate) -> float | None:
    """The figure that a setting of a rate replaces: the peak, else the rated one, else a sustained one."""
    if rate.peak is not None or rate.rated is not None:
        return rate.rated if rate.peak is None else rate.peak
    usual = rate.sustained.get("", rate.sustained.get("pinned"))
    return max((one.value for one in rate.sustained.values()), default=None) if usual is None else usual.value


def _says_the_same(
    step: Step, settings: Sequence[Setting], names: Sequence[str], sets: Sequence[tuple[str, float]], at: At
) -> bool:
    """Whether the settings give the times that the dial gives, for a faster and for a slower part."""
    unit = "FLOP/s" if step.resources[names[0]].unit == "FLOP" else "B/s"
    for factor in (TRIED, 1 / TRIED):
        try:
            texts = [f"{path}={number_text(rate * factor, unit)}" for path, rate in sets]
            other = at([*settings, *map(read_setting, texts)])
        except OffloadError:
            return False
        mine = scaled_by(step, dict.fromkeys(names, factor))
        pairs = [(floor_seconds(one), floor_seconds(one, "value"), serial(one).seconds) for one in (mine, other)]
        if any(abs(a - b) > AGREE * max(a, b) for a, b in zip(*pairs, strict=True)):
            return False
    return True
