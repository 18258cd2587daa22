"""Labels that lie on nothing: each takes the first of its places that is free of text, and of lines where it can.

Everything is measured in pixels of the figure. What finds no place is not drawn and is told to who asked, who says it
in the legend or under the figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy

from offload.plots.style import now, readable

NEAR = 1.6  # between a label and anything else [mm]
FAR = 4.5  # a label that stands further from its point has a line to it [mm]
SAMPLE = 3.0  # pixels between points that stand for a line
ON_LINE = 12.0  # what each sample of a line under a place costs, in mm of distance
ACROSS = 12.0  # what a text costs that the line to a label would cross [mm]
OTHER_SIDE = 5.0  # what another side than a preferred one costs [mm]
LEADING = 1.28  # from one line of text to the next, in letters' heights
DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))
ABOVE = ((1, 1), (-1, 1), (0, 1), (1, 0))  # a floor is below what is measured
DISTANCES = (2.0, 3.5, 6.0, 10.0, 15.0)


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a label: its middle is `gap` mm and half of its size away from a point of the data.

    towards : in which direction, (0, 0) for on the point. angle : degrees. cost : more of it is taken later [mm].
    """

    x: float
    y: float
    towards: tuple[float, float] = (0.0, 0.0)
    gap: float = 0.0
    angle: float = 0.0
    cost: float = 0.0


@dataclass(slots=True)
class Label:
    """A text with the places it may take, the best first. spots : or a function of the axes that tells them once they
    have their size. full : what is said of it where it has no place, in one line. leader : whether a line leads to the
    point where it stands far from it.
    """

    text: str
    spots: Sequence[Spot] | Callable[[Any], Sequence[Spot]]
    full: str = ""
    look: dict[str, Any] = field(default_factory=dict)
    leader: bool = True
    avoid_lines: bool = True


def around(x: float, y: float, first: Sequence[tuple[float, float]] = (), far: bool = True) -> list[Spot]:
    """Places around a point, the nearest first. first : directions that are preferred."""
    directions = [*first, *(one for one in DIRECTIONS if one not in first)]
    found = [Spot(x, y, one, gap, 0.0, 0.0 if one in first or not first else OTHER_SIDE)
             for gap in (DISTANCES if far else DISTANCES[:2]) for one in directions]  # fmt: skip
    return sorted(found, key=lambda spot: spot.gap + spot.cost)


def beside_line(x: float, ys: Sequence[float]) -> list[Spot]:
    """Places at either side of a vertical line, at the first of its heights that is free."""
    return [Spot(x, y, towards, NEAR) for y in ys for towards in ((1, 0), (-1, 0))]


def along(xs: Sequence[float], ys: Sequence[float], side: float) -> Callable[[Any], list[Spot]]:
    """Places beside a line of the data, turned with it. side : 1 above it, -1 below, 0 on either side."""

    def spots(axes: Any) -> list[Spot]:
        places = axes.transData.transform(numpy.column_stack([xs, ys]))
        places = places[numpy.isfinite(places).all(axis=1)]
        if len(places) < 2:
            return []
        box = axes.bbox
        inside = axes.transData.inverted()
        length = numpy.concatenate([[0.0], numpy.cumsum(numpy.hypot(*numpy.diff(places, axis=0).T))])
        found = []
        for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.12, 0.88):
            at = part * length[-1]
            here = numpy.array([numpy.interp(at, length, places[:, one]) for one in (0, 1)])
            before, after = (numpy.array([numpy.interp(at + shift, length, places[:, one]) for one in (0, 1)])
                             for shift in (-0.1 * length[-1], 0.1 * length[-1]))  # fmt: skip
            angle = math.atan2(*(after - before)[::-1])
            if not (box.x0 <= here[0] <= box.x1 and box.y0 <= here[1] <= box.y1):
                continue
            angle = (angle + math.pi / 2) % math.pi - math.pi / 2  # never upside down
            x, y = inside.transform(here)
            for one in (side,) if side else (1, -1):
                towards = (-one * math.sin(angle), one * math.cos(angle))
                found.append(Spot(x, y, towards, NEAR, math.degrees(angle)))
        return found

    return spots


class Room:
    """What is taken on a figure whose axes have their size."""

    def __init__(self, axes: Any, others: Sequence[Any] = ()):
        from matplotlib.backends.backend_agg import RendererAgg

        self.axes, self.figure = axes, axes.get_figure()
        self.mm = self.figure.dpi / 25.4
        width, height = self.figure.bbox.size
        self.renderer = cast("Any", RendererAgg)(width, height, self.figure.dpi)
        self.texts: list[numpy.ndarray] = []  # corners, (4, 2) each
        self.points = self._lines([axes, *others])
        for one in (axes, *others):
            self._take_texts(one)

    def _take_texts(self, axes: Any) -> None:
        from matplotlib.text import Text

        axes.get_tightbbox(self.renderer)  # which moves the axes' own labels to their places
        for text in axes.findobj(Text):
            if text.get_text() and text.get_visible() and text.get_rotation() % 90 == 0:
                box = text.get_window_extent(self.renderer)
                self.texts.append(corners(box.x0, box.y0, box.x1, box.y1))

    def _lines(self, every: Sequence[Any]) -> numpy.ndarray:
        found = [numpy.empty((0, 2))]
        for axes in every:
            for line in axes.get_lines():
                if line.get_gid() == "faint" or not line.get_visible():
                    continue
                places = line.get_transform().transform(line.get_xydata())
                places = places[numpy.isfinite(places).all(axis=1)]
                if line.get_linestyle() not in ("none", "None", " ", ""):
                    found += [numpy.linspace(a, b, max(2, min(2000, int(math.hypot(*(b - a)) / SAMPLE))))
                              for a, b in zip(places, places[1:], strict=False)]  # fmt: skip
                if line.get_marker() not in ("none", "None", None, "", " "):
                    half = line.get_markersize() / 72 * self.figure.dpi / 2
                    for shift in ((0, 0), (half, half), (half, -half), (-half, half), (-half, -half)):
                        found.append(places + shift)
            for many in axes.collections:
                offsets = many.get_offsets() if hasattr(many, "get_offsets") else ()
                if many.get_gid() != "faint" and len(offsets) and len(many.get_paths()):
                    found.append(many.get_offset_transform().transform(numpy.asarray(offsets, dtype=float)))
        points = numpy.concatenate(found)
        return points[numpy.isfinite(points).all(axis=1)]

    def size(self, text: str, look: dict[str, Any]) -> tuple[float, float]:
        """Width and height of a text [pixels], not turned."""
        shown = self.figure.text(0, 0, text, **{key: value for key, value in look.items() if key not in _PLACES})
        box = shown.get_window_extent(self.renderer)
        lines = text.count("\n") + 1
        high = box.height if lines == 1 else lines * shown.get_fontsize() * LEADING / 72 * self.figure.dpi
        shown.remove()
        return box.width, high

    def take(self, polygon: numpy.ndarray) -> None:
        """Let nothing else be written there."""
        self.texts.append(polygon)

    def put(self, label: Label) -> bool:
        """Draw a label at the cheapest of its places; False where none is free."""
        look = {"color": now().ink, **label.look}
        look["color"] = readable(look["color"])
        wide, high = self.size(label.text, look)
        found = label.spots(self.axes) if callable(label.spots) else label.spots
        best = None
        for spot in found:
            cost, middle, polygon = self._cost(spot, wide, high, label.avoid_lines)
            if label.leader and spot.gap > FAR and math.isfinite(cost):
                cost += ACROSS * self._crossed(spot, middle)
            if best is None or cost < best[0]:
                best = (cost, middle, polygon, spot)
            if cost <= spot.gap + spot.cost:
                break
        if best is None or math.isinf(best[0]):
            return False
        _, middle, polygon, spot = best
        lines = label.text.split("\n")
        ground = {"facecolor": now().paper, "edgecolor": "none", "alpha": 0.82, "pad": 0.6}
        x, y = self.axes.transAxes.inverted().transform(middle)
        points = 72 / self.figure.dpi
        for number, line in enumerate(lines):  # evenly spaced, which lines of one text are not
            across = -wide / 2 if len(lines) > 1 else 0.0
            up = (len(lines) - 1 - 2 * number) * high / len(lines) / 2
            self.axes.annotate(
                line, (x, y), xycoords="axes fraction", xytext=(across * points, up * points),
                textcoords="offset points", annotation_clip=False, ha="left" if len(lines) > 1 else "center",
                va="center", rotation=spot.angle, rotation_mode="anchor", zorder=12, bbox=ground, **look)  # fmt: skip
        self.take(polygon)
        if label.leader and spot.gap > FAR:
            self.points = numpy.concatenate([self.points, self._leader(spot, middle)])
            for color, width in ((now().paper, 2.2), (now().grey, 0.8)):
                self.axes.annotate("", (spot.x, spot.y), xytext=(x, y), textcoords=self.axes.transAxes, zorder=4,
                                   arrowprops={"arrowstyle": "-", "color": color, "linewidth": width})
        return True

    def _leader(self, spot: Spot, middle: numpy.ndarray) -> numpy.ndarray:
        """Points on the line from a label to its point. Shape (points, 2)."""
        anchor = self.axes.transData.transform((spot.x, spot.y))
        return numpy.linspace(anchor, middle, max(2, int(math.hypot(*(middle - anchor)) / SAMPLE)))

    def _crossed(self, spot: Spot, middle: numpy.ndarray) -> int:
        """How many texts the line from a label to its point would cross."""
        way = self._leader(spot, middle)[[0, -1]]
        return sum(overlap(numpy.concatenate([way, way[::-1]]), other) for other in self.texts)

    def _cost(self, spot: Spot, wide: float, high: float, avoid: bool) -> tuple[float, Any, Any]:
        turned = math.radians(spot.angle)
        anchor = self.axes.transData.transform((spot.x, spot.y))
        towards = numpy.array(spot.towards, dtype=float)
        if spot.angle:  # beside a line: half a height away, at a right angle to it
            reach = towards * (high / 2 + spot.gap * self.mm)
        else:
            reach = towards * (wide / 2, high / 2) + towards * spot.gap * self.mm
        middle = anchor + reach
        edge = NEAR / 2 * self.mm
        half = numpy.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (wide / 2 + edge, high / 2 + edge / 2)
        turn = numpy.array([[math.cos(turned), -math.sin(turned)], [math.sin(turned), math.cos(turned)]])
        polygon = half @ turn.T + middle
        box = self.axes.bbox
        if (not numpy.isfinite(polygon).all() or polygon[:, 0].min() < box.x0 or polygon[:, 0].max() > box.x1
                or polygon[:, 1].min() < box.y0 or polygon[:, 1].max() > box.y1):  # fmt: skip
            return math.inf, middle, polygon
        if any(overlap(polygon, other) for other in self.texts):
            return math.inf, middle, polygon
        cost = spot.gap + spot.cost
        if avoid and len(self.points):
            back = (self.points - middle) @ turn
            cost += ON_LINE * float((numpy.abs(back) <= (wide / 2 + edge / 2, high / 2 + edge / 2)).all(axis=1).sum())
        return cost, middle, polygon


def corners(x0: float, y0: float, x1: float, y1: float) -> numpy.ndarray:
    """The corners of a box. Shape (4, 2)."""
    return numpy.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], dtype=float)


def overlap(one: numpy.ndarray, other: numpy.ndarray) -> bool:
    """Whether two convex shapes have a point in common: no straight line parts them. Shapes (corners, 2)."""
    for shape in (one, other):
        sides = numpy.roll(shape, -1, axis=0) - shape
        normals = numpy.column_stack([-sides[:, 1], sides[:, 0]])
        a, b = one @ normals.T, other @ normals.T
        if ((a.max(axis=0) < b.min(axis=0)) | (b.max(axis=0) < a.min(axis=0))).any():
            return False
    return True


_PLACES = {"ha", "va", "transform", "zorder", "rotation", "rotation_mode"}
