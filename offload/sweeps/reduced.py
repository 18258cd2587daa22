"""What reductions found in a grid that was not held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy

from offload.sweeps.axes import Axis
from offload.sweeps.chunks import Arrays, Job
from offload.sweeps.grid import NOTHING, ORDER_NAME
from offload.sweeps.points import Point
from offload.sweeps.reductions import Reduction
from offload.sweeps.structure import Structure


@dataclass(frozen=True, slots=True)
class Reduced:
    """Answers over a grid. made : points with a step, fit : those that fit too, binds : how many points each binds;
    these are None where the reduction "binding" was not asked. answers : by reduction the points it keeps. wrong : why
    no step can be made, by how many points say so. uncounted : by the parts without a rate on which the time of a step
    depends, how many points; their times are not known, and none is among the answers but by `spare`.
    """

    axes: tuple[Axis, ...]
    answers: Mapping[Reduction, tuple[Point, ...]]
    made: int | None
    fit: int | None
    binds: Mapping[str, int] | None
    wrong: Mapping[str, int]
    uncounted: Mapping[str, int] | None = None

    @property
    def size(self) -> int:
        """How many points the grid has."""
        return prod(len(axis) for axis in self.axes)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "axes": [{"path": axis.path, "unit": axis.unit, "count": len(axis), "first": axis.text(0),
                      "last": axis.text(len(axis) - 1)} for axis in self.axes],
            "points": self.size, "made": self.made, "fit": self.fit,
            "binds": None if self.binds is None else dict(self.binds),
            "reductions": [_told(one, points, self.axes) for one, points in self.answers.items()],
            "wrong": [{"text": text, "points": count} for text, count in self.wrong.items()],
            "uncounted": None if self.uncounted is None else [
                {"parts": text, "points": count} for text, count in self.uncounted.items()],
        }  # fmt: skip


def _told(one: Reduction, points: tuple[Point, ...], axes: tuple[Axis, ...]) -> dict[str, Any]:
    what: dict[str, Any] = {"kind": one.kind}
    if one.kind in ("best", "min"):
        what["by"] = one.by
    if one.kind == "min":
        what["axis"] = axes[one.axis].path
    if one.kind == "pareto":
        what["of"] = list(one.names)
    return what | {"points": [{
        "values": dict(point.values), "texts": dict(point.texts), "floor_seconds": point.floor,
        "serial_seconds": point.serial, "overlapped_seconds": point.overlapped, "tokens_per_step": point.tokens,
        "tokens_per_s": point.tokens_per_s, "binding": point.binding, "fits": point.fits, "spare_bytes": point.spare,
        "uncounted": point.uncounted,
    } for point in points]}  # fmt: skip


def reduced(job: Job, found: Arrays) -> Reduced:
    """The answers of a job from what its chunks give together."""
    structure = job.structure
    answers: dict[Reduction, tuple[Point, ...]] = {}
    made = fit = binds = uncounted = None
    names = [*structure.names, NOTHING, ORDER_NAME]
    for place, one in enumerate(job.reductions):
        state = {name.partition(".")[2]: array for name, array in found.items() if name.startswith(f"{place}.")}
        if one.kind == "binding":
            count_of = state["counts"].tolist()
            counts, (made, fit, *parts) = count_of[: len(names)], count_of[len(names) :]
            uncounted = {text: count for text, count in zip(structure.uncounted, parts, strict=True) if count}
            order = sorted(range(len(counts)), key=lambda at: -counts[at])
            binds = {names[at]: counts[at] for at in order if counts[at]}
        else:
            answers[one] = tuple(_point(structure, names, state, at) for at in _order(one, state))
    wrong = {text: int(count) for text, count in zip(structure.texts, found["wrong"], strict=True) if count}
    return Reduced(structure.axes, answers, made, fit, binds, wrong, uncounted)


def _order(one: Reduction, state: Arrays) -> list[int]:
    """The kept points: the best first, along an axis by its values, a front by its first figure."""
    if one.kind == "min":
        order: list[int] = numpy.argsort(state["values"], kind="stable").tolist()
    else:
        order = numpy.lexsort((state["places"], state["keys"][:, 0])).tolist()
    return order


def _point(structure: Structure, names: list[str], state: Arrays, at: int) -> Point:
    axes, shape = structure.axes, structure.shape
    place = tuple(int(one) for one in numpy.unravel_index(int(state["places"][at]), shape)) if shape else ()

    def number(name: str) -> float | None:
        return None if name not in state or numpy.isnan(state[name][at]) else state[name][at].item()

    floor, tokens, spare = number("floor"), number("tokens"), number("spare")
    values = {axis.path: axis.numbers[one].item() if axis.numbers is not None else axis.text(one)
              for axis, one in zip(axes, place, strict=True)}  # fmt: skip
    parts = int(state["uncounted"][at]) if "uncounted" in state else -1
    texts = {axis.path: axis.text(one) for axis, one in zip(axes, place, strict=True)}
    return Point(place, values, texts, floor, number("serial"), number("overlapped"), tokens,
                 tokens / floor if floor and tokens is not None else None, spare, not (spare is not None and spare < 0),
                 names[int(state["binding"][at])],
                 uncounted=structure.uncounted[parts] if parts >= 0 else "")  # fmt: skip
