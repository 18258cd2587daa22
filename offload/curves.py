"""The floor, the expected time and the serial time of a step over the rate of one link or memory, as values.

Over 1/rate the floor is a maximum of sums of straight lines, so it is convex and made of straight pieces. Its corners,
where what binds changes, follow exactly: two neighbouring pieces meet where their lines do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from offload.bounds import Floor, floor, load_seconds
from offload.displayed import Drawing
from offload.errors import PlotError, did_you_mean
from offload.ranges import fold, folded, listed, runs
from offload.schedules import schedule, serial
from offload.sensitivity import scaled, together
from offload.step import Step, distinct, loads, peak_of
from offload.units import format_rate, pcie_rate

SPAN = 10.0  # the curve runs from the present rate / SPAN to the present rate x SPAN
SIDE = 30  # rates on each side of the present one
EACH = 5  # of them every so many with a schedule, which costs a hundred floors
BUSY = 0.01  # share of the serial time below which a link is not what a reader asks about
SAME = 1e-9  # relative: times that are equal but for rounding
GENERATIONS = (3, 4, 5, 6)


@dataclass(frozen=True, slots=True)
class Point:
    """Times of a step [s] at one peak rate [B/s]; the schedule and the floor at sustained rates not at every one."""

    rate: float
    floor: float
    serial: float
    floor_sustained: float | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the floor, from one rate to another [B/s], along which the same binds.

    rule : "load" (each of `resources` alone takes that long) or "cycle" (along a token's chain times add).
    parts : the resources in few words, those that are alike as one ("hbm0..7"): what ties, or what adds up.
    """

    start: float
    end: float
    rule: str
    resources: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """What binds, in words: "dram0", or "dram0 + hbm0" where times add."""
        return (" + " if self.rule == "cycle" else " and ").join(self.parts)

    @property
    def adds(self) -> bool:
        """Whether times add up."""
        return self.rule == "cycle" and len(self.parts) > 1


@dataclass(frozen=True, slots=True)
class Mark:
    """The rate of a well-known link [B/s]."""

    name: str
    rate: float


@dataclass(frozen=True, slots=True)
class Curve(Drawing):
    """Times of a step over the peak rate of `over`; points and pieces in order of the rate.

    over : a resource, or several that are alike ("pcie0..7.hbm0..7") and have that rate each. scaled : every resource
    of the step that is scaled with it; its sustained rates keep their share of the peak.
    policy : that of the schedule. tokens : what one step yields. kind : of what products are on its axis, "link",
    "memory" or "drive".
    """

    over: str
    rate: float
    scaled: tuple[str, ...]
    points: tuple[Point, ...]
    pieces: tuple[Piece, ...]
    marks: tuple[Mark, ...]
    tokens: float
    policy: str
    kind: str = "link"

    @property
    def present(self) -> Point:
        """The point at the present rate."""
        return next(point for point in self.points if point.rate == self.rate)


def floor_curve(step: Step, over: str | None = None) -> Curve:
    """The times of a step over the peak rate of one link or memory, from a tenth to ten times the present rate.

    over : a link, a direction of it, a memory, or a range of them that are alike (None: see `busiest`). Whatever an
    upgrade of it makes faster is scaled with it. Amounts must be numbers. Raises PlotError where the step does not load
    it, or nothing is proved.
    """
    axes = busiest(step) if over is None else _axes(step, over)
    group = set().union(*(together(step.topology, name) for name in axes))
    rate = peak_of(step.resources[axes[0]])
    known: dict[float, Floor] = {}

    def bound(factor: float) -> Floor:
        if factor not in known:
            known[factor] = floor(scaled(step, group, factor))
        return known[factor]

    factors = [SPAN ** (i / SIDE) for i in range(-SIDE, SIDE + 1)]
    if any(bound(factor).seconds <= 0 for factor in factors):
        raise PlotError("no figure: the floor is 0, as caches may hold all that the resources with a peak rate serve.")
    corners: list[float] = []
    for left, right in pairwise(factors):
        for corner in _corners(bound, group, left, right):
            if not corners or corner > corners[-1] * (1 + SAME):
                corners.append(corner)
    points = []
    for factor in sorted({*factors, *corners}):
        there = scaled(step, group, factor)
        sustained = expected = None
        if factor in factors and factors.index(factor) % EACH == 0:
            sustained, expected = floor(there, "value").seconds, schedule(there, ends=False).seconds
        points.append(Point(rate * factor, bound(factor).seconds, serial(there).seconds, sustained, expected))
    return Curve(
        over=fold(axes),
        rate=rate,
        scaled=tuple(name for name in step.resources if name in group),
        points=tuple(points),
        pieces=_pieces(bound, rate, [factors[0], *corners, factors[-1]]),
        marks=_marks(step, axes[0], rate),
        tokens=step.plan.tokens,
        policy=schedule_policy(step),
        kind=_kind(step, axes[0]),
    )


def schedule_policy(step: Step) -> str:
    """How much the schedule of a step overlaps, in words."""
    return "no overlap" if step.plan.overlap.kind == "none" else str(step.plan.overlap)


# Which rate.


def busiest(step: Step) -> tuple[str, ...]:
    """The link that is busy longest, if for a hundredth of the serial time, else the memory (at sustained rates).

    The name of its resource with a peak rate, and of those that are loaded as much and as fast (ranks that work alike).
    Raises PlotError where none has one.
    """
    carried, seconds = loads(step, least=False), load_seconds(step, "value").resource_seconds
    total = serial(step).seconds
    links = [name for name, resource in step.resources.items()
             if resource.kind == "link" and seconds[name] > BUSY * total]  # fmt: skip
    memories = [name for name, resource in step.resources.items() if resource.kind == "memory" and carried[name] > 0]
    links.sort(key=lambda name: (-seconds[name], name))
    memories.sort(key=lambda name: (-seconds[name], name))
    for name in (*links, *memories):
        if step.resources[name].peak is not None:
            alike = [{first, *others} for first, others in distinct(step)[1].items() if name in (first, *others)]
            return tuple(next(run for run in runs(sorted(alike[0])) if name in run)) if alike else (name,)
    raise PlotError("no figure: no link and no memory that this step loads has a known peak rate. State a `peak` in "
                    "the topology.")  # fmt: skip


def _axes(step: Step, over: str) -> tuple[str, ...]:
    """The resources whose peak rates are meant by a name or a range of names; all have one rate."""
    try:
        names = tuple(dict.fromkeys(_axis(step, name) for name in listed(over)))
    except ValueError as error:
        raise error if isinstance(error, PlotError) else PlotError(f"--plot-over {over}: {error}") from None
    peaks = {step.resources[name].peak for name in names}
    if len(peaks) > 1:
        shown = ", ".join(f"{name} {format_rate(peak_of(step.resources[name]))}" for name in names)
        raise PlotError(f"--plot-over {over}: their peak rates differ ({shown}); one axis cannot show them. Name one.")
    return names


def _axis(step: Step, over: str) -> str:
    """The resource whose peak rate is meant by the name of a link, of a direction or of a memory."""
    carried = loads(step, least=False)
    loaded = {name for name, resource in step.resources.items()
              if resource.kind in ("link", "memory") and carried[name] > 0}  # fmt: skip
    named = [name for name in loaded if over == name] or [name for name in loaded if name.startswith(f"{over}.")]
    if not named:
        topology = step.topology
        there = over in topology.links or over in topology.memories or over in topology.resources
        parts = {name.split(".")[0] for name in loaded}
        allowed = loaded | {part for part in parts if part in topology.links or part in topology.memories}
        hint = did_you_mean(over, allowed, "Links and memories that this step loads")
        what = f"{over} is no link or memory that this step loads" if there else f'no link or memory "{over}"'
        raise PlotError(f"--plot-over: {what}. {hint}")
    group = together(step.topology, named[0])
    # A drive's own rate is rated, and its peak that of its link.
    for names in (named, [name for name in loaded if name in group]):
        proved = [name for name in names if step.resources[name].peak is not None]
        if proved:
            return min(proved, key=lambda name: (-carried[name], name))
    raise PlotError(f"--plot-over {over}: its peak rate is not known, so there is no rate to vary. State its `peak` in "
                    "the topology, or choose another.")  # fmt: skip


def _kind(step: Step, axis: str) -> str:
    memory = step.topology.memories.get(axis.split(".")[0])
    return "link" if memory is None else "drive" if memory.kind in ("nvme", "disk") else "memory"


def _marks(step: Step, axis: str, rate: float) -> tuple[Mark, ...]:
    link = step.topology.links.get(axis.split(".")[0])
    if link is None or link.technology != "pcie":
        return ()
    lanes = link.lanes or 16
    rates = {f"PCIe {generation} x{lanes}": pcie_rate(generation, lanes) for generation in GENERATIONS}
    return tuple(Mark(name, known) for name, known in rates.items() if rate / SPAN <= known <= rate * SPAN)


# The pieces of the floor.


def _line(bound: Floor, group: set[str], factor: float) -> tuple[float, float]:
    """(fixed, varied) [s] of the piece that a floor is on: it is fixed + varied / factor."""
    if bound.rule == "load":
        return (0.0, bound.seconds * factor) if bound.bottleneck[0] in group else (bound.seconds, 0.0)
    varied = sum(term.seconds for term in bound.terms if term.resource in group)
    varied -= sum(term.seconds for term in bound.spared if term.resource in group)
    varied /= bound.in_flight
    return bound.seconds - varied, varied * factor


def _corners(bound: Callable[[float], Floor], group: set[str], left: float, right: float) -> Iterator[float]:
    """The factors between two others, ends included, at which a floor goes from one piece to the next, rising."""
    fixed, varied = _line(bound(left), group, left)
    then, then_varied = _line(bound(right), group, right)
    if abs(varied - then_varied) <= SAME * max(varied, then_varied):
        return  # convex, and as steep at one end as at the other: straight in between
    meets = (varied - then_varied) / (then - fixed) if then != fixed else 0.0
    if not left * (1 + SAME) < meets < right * (1 - SAME):
        yield left if meets <= left * (1 + SAME) else right  # both bind at that end
        return
    if bound(meets).seconds <= (fixed + varied / meets) * (1 + SAME):
        yield meets
        return
    yield from _corners(bound, group, left, meets)
    yield from _corners(bound, group, meets, right)


def _pieces(bound: Callable[[float], Floor], rate: float, ends: Sequence[float]) -> tuple[Piece, ...]:
    """What binds between neighbouring corners, told in the middle; neighbours on which the same binds are one piece."""
    pieces: list[Piece] = []
    for left, right in pairwise(ends):
        if right <= left * (1 + SAME):
            continue
        middle = bound((left * right) ** 0.5)
        parts = binding_parts(middle)
        last = pieces[-1] if pieces else None
        if last and last.rule == middle.rule and set(last.parts) == set(parts):
            pieces[-1] = replace(last, end=rate * right)
        else:
            pieces.append(Piece(rate * left, rate * right, middle.rule, middle.bottleneck, parts))
    return tuple(pieces)


def binding_parts(bound: Floor) -> tuple[str, ...]:
    """What ties, or what adds up, each in few words."""
    if bound.rule == "load":
        return tuple(folded(run) for run in runs(bound.bottleneck))
    names = [(term.resource, *term.also) for term in bound.terms if term.resource in bound.bottleneck]
    return tuple(fold(alike) for alike in names) or ("latency",)


def describe(curve: Curve) -> list[str]:
    """What binds at which rate, in words: a line for each piece of the floor."""
    lines = []
    for piece in curve.pieces:
        ends = []
        if piece is not curve.pieces[0]:
            ends.append(f"from {format_rate(piece.start, 4)}")
        if piece is not curve.pieces[-1]:
            ends.append(f"up to {format_rate(piece.end, 4)}")
        add = "; their times add" if piece.adds else ""
        lines.append(f"{' '.join(ends) or 'throughout'}: {piece.name}{add}")
    return lines
