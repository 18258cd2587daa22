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
from offload.step import Step, loads
from offload.sweeps.axes import number_text
from offload.topology import Limit, Link, Memory, Processor, Rate, Resource, Topology
from offload.topology.resources import directions

AGREE = 1e-9  # relative: of the times with a setting, and with the rates that the page takes for it
TRIED = 2.0  # a factor with which that is looked at
ORDER = {"memory": 0, "link": 1, "limit": 2, "processor": 3}

At = Callable[[Sequence[Setting]], Step]


@dataclass(frozen=True, slots=True)
class Dial:
    """A slider of the rates of some resources, as those of ranks that work alike. together : the other dials that one
    upgrade of the part moves too.
    """

    name: str
    names: tuple[str, ...]
    kind: str
    unit: str
    together: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a dial shows on one server at a factor of 1.

    rate : the peak where there is one (grade "peak"), else what is sustained [B/s or FLOP/s]; None where its resources
    have several rates. sets : (path, rate) of settings that do the same as the dial; none where no setting does.
    """

    rate: float | None
    grade: str
    sets: tuple[tuple[str, float], ...] = ()


def dials(steps: Sequence[Step]) -> tuple[Dial, ...]:
    """A dial for each resource that some step loads, those that are as fast and loaded as much in all of them as one;
    none of given times.
    """
    kinds: dict[str, Resource] = {}
    keys: dict[str, list[object]] = {}
    for number, step in enumerate(steps):
        carried = loads(step, least=False)
        for name in _moved(step):
            one = kinds.setdefault(name, step.resources[name])
            served = (one.kind, one.unit, one.peak, tuple(sorted(one.sustained.items())), carried[name])
            keys.setdefault(name, [None] * len(steps))[number] = served
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, key in keys.items():
        groups.setdefault(tuple(key), []).append(name)
    found = [Dial(fold(run), tuple(run), kinds[run[0]].kind, kinds[run[0]].unit)
             for names in groups.values() for run in runs(names)]  # fmt: skip
    found.sort(key=lambda one: (ORDER.get(one.kind, len(ORDER)), one.unit, one.name))
    moved = {
        one.name: set().union(*(together(step.topology, name) for step in _one_of_each(steps) for name in one.names))
        for one in found
    }
    return tuple(
        replace(one, together=tuple(other.name for other in found
                                    if other is not one and moved[one.name] & set(other.names)))
        for one in found
    )  # fmt: skip


def dials_by_kind(steps: Sequence[Step]) -> tuple[Dial, ...]:
    """A dial for all parts of a kind that some step loads, whatever they are called: for servers that differ."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    for step in steps:
        for name in _moved(step):
            one = step.resources[name]
            key = (ORDER.get(one.kind, len(ORDER)), one.unit, _kind(step.topology, one))
            names = groups.setdefault(key, [])
            if name not in names:
                names.append(name)
    kinds = {place: kind for kind, place in ORDER.items()}
    return tuple(Dial(kind, tuple(names), kinds.get(place, ""), unit)
                 for (place, unit, kind), names in sorted(groups.items()))  # fmt: skip


def _kind(topology: Topology, one: Resource) -> str:
    """What a resource is, in words that fit any server."""
    part = _part(topology, one.name)
    if isinstance(part, Memory):
        words = {"dram": "host memory", "hbm": "GPU memory", "nvme": "NVMe drives", "disk": "disks"}
        return words.get(part.kind, f"{part.kind} memory")
    if isinstance(part, Processor):
        return f"{part.kind.upper()} {'arithmetic' if one.unit == 'FLOP' else one.name.rpartition('.')[2]}"
    if isinstance(part, Link):
        words = {"": "other", "pcie": "PCIe", "nvlink": "NVLink", "infiniband": "InfiniBand", "ethernet": "Ethernet"}
        technology = part.technology
        return f"{words.get(technology, technology.upper() if len(technology) < 4 else technology)} links"
    return "limits over links"


def _moved(step: Step) -> list[str]:
    """The resources that a step loads, without given times."""
    return [name for name, load in loads(step, least=False).items() if load > 0 and step.resources[name].unit != "s"]


def _one_of_each(steps: Sequence[Step]) -> list[Step]:
    """A step of each server."""
    return list({server_key(step): step for step in reversed(steps)}.values())


def server_key(step: Step) -> tuple[object, ...]:
    """What is the same where a step's server is, as far as rates and sizes go."""
    rates = tuple((name, one.peak, tuple(one.sustained.items())) for name, one in step.topology.resources.items())
    return (step.topology.name, rates, tuple((one.name, one.capacity) for one in step.topology.memories.values()))


def reading_of(dial: Dial, steps: Sequence[tuple[Step, At | None]]) -> Reading | None:
    """What a dial shows on a server; None where the server has none of its resources.

    steps : of that server, each with how it is made with further settings (None: no setting is looked for).
    """
    topology = steps[0][0].topology
    names = [name for name in dial.names if name in topology.resources]
    if not names:
        return None
    found = [_figure(topology.resources[name]) for name in names]
    rate = found[0][0] if len(set(found)) == 1 else None
    loading = next(((step, at) for step, at in steps if names[0] in step.resources), None)
    if rate is None or loading is None or loading[1] is None:
        return Reading(rate, found[0][1])
    sets = _paths(topology, names)
    good = sets and _says_the_same(loading[0], names, sets, loading[1])
    return Reading(rate, found[0][1], tuple(sets) if good else ())


def _figure(one: Resource) -> tuple[float, str]:
    """The rate that a dial shows, and its grade."""
    if one.peak is not None:
        return one.peak, "peak"
    return (one.sustained_at("") or next(iter(one.sustained.values()))).value, "sustained"


def _part(topology: Topology, name: str) -> Memory | Processor | Link | Limit | None:
    """The part that a resource is of."""
    groups = (topology.memories, topology.processors, topology.links, topology.limits)
    return next((group[one] for group in groups for one in sorted(group, key=len, reverse=True)
                 if name == one or name.startswith(f"{one}.")), None)  # fmt: skip


def _paths(topology: Topology, names: Sequence[str]) -> list[tuple[str, float]]:
    """Settings of the rate of resources, with the figures that they have now."""
    here, first = fold(names), names[0]
    part = _part(topology, first)
    if part is None:
        return []
    rest = first[len(part.name) + 1 :]
    rates: dict[str, Rate | None] = {}
    if isinstance(part, Memory):
        rates[f"{here}.rate"] = getattr(part, rest or "rate")
    elif isinstance(part, Processor) and rest == "flops":
        rates = {f"{here}.{form}.rate": rate for form, rate in part.flops.items()}
    elif isinstance(part, Processor):
        rates[f"{here}.rate"] = getattr(part, rest)
    elif isinstance(part, Link):
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


def _says_the_same(step: Step, names: Sequence[str], sets: Sequence[tuple[str, float]], at: At) -> bool:
    """Whether the settings give the times that the dial gives, for a faster and for a slower part."""
    unit = "FLOP/s" if step.resources[names[0]].unit == "FLOP" else "B/s"
    for factor in (TRIED, 1 / TRIED):
        try:
            texts = [f"{path}={number_text(rate * factor, unit)}" for path, rate in sets]
            other = at(list(map(read_setting, texts)))
        except OffloadError:
            return False
        mine = scaled_by(step, dict.fromkeys(names, factor))
        pairs = [(floor_seconds(one), floor_seconds(one, "value"), serial(one).seconds) for one in (mine, other)]
        if any(abs(a - b) > AGREE * max(a, b) for a, b in zip(*pairs, strict=True)):
            return False
    return True
