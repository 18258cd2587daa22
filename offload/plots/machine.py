"""A server drawn as a machine: every part in its place, links as wide as they are fast, and as dark as they are busy.

Two lines stand for the two directions of a link. Widths go with the square root of the rate: rates differ by a
thousand and more. What binds the floor has a border of its own colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from offload.describe import link_text, summary_of
from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import share_text
from offload.plots.labels import Spot
from offload.plots.page import EDGE, Page, text_width
from offload.plots.places import Node, Places, places
from offload.plots.style import INCH, WIDTH, drawn
from offload.plots.subject import alike, left_out, machine, subject, without_rate
from offload.printing import clean
from offload.study import Study
from offload.topology import Topology
from offload.topology.parts import Link, Memory, Processor, Rate
from offload.topology.resources import directions
from offload.units import format_bytes, format_rate, format_seconds

WIDEST, LEAST = 2.8, 0.22  # mm of a direction's line
LETTERS = style.LETTERS - 2  # pt in boxes, the least that is read in print
STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of utilisation, in the legend
MOST_TRIED = 16  # parts or links that are alike, beside which there is looked for room for their name
MOST_NAMES = 24  # letters of links' names; of more their number and kind are written
BORDER = 2.4  # pt round what binds
INSIDE = 0.5  # mm between a text and its box
MOST_DRAWN = 800  # parts, as of three racks of 72 GPUs: of more none is read, and each keeps clear of all others


@drawn
def server(topology: Topology, *, study: Study | None = None, ax: Any = None) -> Any:
    """A server with its sockets, switches, memories, processors, drives and links.

    study : of a plan on it; then each part has the colour of its utilisation, that is the time that its expected loads
    need over the expected time of a step. Returns the axes, in mm of the drawing. Raises PlotError for too many parts.
    """
    count = len(topology.memories) + len(topology.switches) + len(topology.processors)
    if count > MOST_DRAWN:
        raise PlotError(f"{topology.name} has {count:,} memories, switches and processors, more than the {MOST_DRAWN} "
                        "that are drawn. Draw one of its racks, written as a server of its own.")  # fmt: skip
    own = WIDTH - 2 * EDGE
    place = places(topology, own)
    page = Page(ax, place.high)
    axes = page.axes
    axes.set_xlim(0, own)
    axes.set_ylim(0, place.high)
    axes.set_axis_off()
    scale = 1.0 if page.own else min(axes.bbox.width / axes.get_figure().dpi * INCH / own,
                                     axes.bbox.height / axes.get_figure().dpi * INCH / place.high)  # fmt: skip
    use = _Use(topology, study)
    drawing = _Drawing(page, topology, place, use, scale)
    for link, how in place.links:
        drawing.link(link, how)
    for node in dict.fromkeys(place.nodes.values()):
        drawing.node(node)
    drawing.name_links()
    drawing.name_rest()
    return page.finish(_finding(topology, study, use), _subject(topology, study), drawing.entries(),
                       _notes(topology, study, use))  # fmt: skip


class _Use:
    """How busy each part is in a step, and what binds it; of no step None."""

    def __init__(self, topology: Topology, study: Study | None):
        self.known = study is not None
        self.shares = {} if study is None else {row.name: row.share for row in study.resources if row.share is not None}
        self.binds = set() if study is None else {row.name for row in study.resources if row.binding}

    def of(self, names: Iterable[str]) -> float | None:
        """The highest utilisation of some resources; 0 of what the step does not load."""
        return max((self.shares.get(name, 0.0) for name in names), default=0.0) if self.known else None

    def colour(self, share: float | None) -> str:
        """The colour of a utilisation."""
        from matplotlib.colors import LinearSegmentedColormap, to_hex

        if share is None:
            return style.now().grey
        return to_hex(LinearSegmentedColormap.from_list("busy", _ramp())(min(share, 1.0)))


def _ramp() -> list[str]:
    """From idle to busy, ever further from the paper in lightness."""
    there = style.now()
    if there.name == "dark":
        return ["#3A4046", there.colours[0], there.colours[4], "#F4FBFF"]
    return ["#D9D9D9", there.colours[4], there.colours[0], "#00304D"]


class _Drawing:
    """What is put on a page."""

    def __init__(self, page: Page, topology: Topology, place: Places, use: _Use, scale: float):
        self.page, self.axes, self.topology, self.place = page, page.axes, topology, place
        self.use, self.scale = use, scale
        rates = [rate for link in topology.links.values() for _, _, one in directions(link) if (rate := _rate(one))]
        self.fastest = max(rates, default=1.0)
        narrowest = min((node.wide for node in place.nodes.values() if node.kind != "nvswitch"), default=10.0)
        arcs = sum(how == "arc" for _, how in place.links)
        self.widest = max(0.5, min(WIDEST, 0.3 * narrowest, place.deep / 2 / max(1, arcs)))
        self.starts = self._starts()
        self.nameless: dict[tuple[str, ...], list[tuple[str, Node]]] = {}
        self.drawn: list[tuple[Link, str, list[tuple[float, float]]]] = []

    def _starts(self) -> dict[tuple[str, str], float]:
        """Where at a part each of its arcs starts, by (part, link): spread, the furthest arc outside of the others."""
        at: dict[str, list[tuple[float, str]]] = {}
        for link, how in self.place.links:
            if how == "arc":
                far = self.place.nodes[link.b].x - self.place.nodes[link.a].x
                at.setdefault(link.a, []).append((far, link.name))
                at.setdefault(link.b, []).append((-far, link.name))
        found = {}
        for name, some in at.items():
            order = sorted(some, key=lambda one: (one[0] > 0, abs(one[0]) if one[0] < 0 else -one[0]))
            node = self.place.nodes[name]
            for place, (_, arc) in enumerate(order):
                found[name, arc] = node.x + 0.8 * node.wide * ((place + 0.5) / len(order) - 0.5)
        return found

    def width(self, rate: float | None) -> float:
        """The width of a line for a rate [mm]."""
        return LEAST if not rate else max(LEAST, self.widest * math.sqrt(rate / self.fastest))

    def line(self, xs: Any, ys: Any, rate: float | None, share: float | None, binds: bool, name: str) -> None:
        points = self.width(rate) / INCH * 72 * self.scale
        if binds:
            self.axes.plot(xs, ys, color=style.colour(1), linewidth=points + BORDER, zorder=1.8, gid="faint",
                           solid_capstyle="butt", label=f"binds: {name}")  # fmt: skip
        self.axes.plot(xs, ys, color=self.use.colour(share), linewidth=points, zorder=2, label=name,
                       linestyle="solid" if rate else (0, (1, 1)), solid_capstyle="butt")  # fmt: skip

    def link(self, link: Link, how: str) -> None:
        """Both directions of a link."""
        a, b = self.place.nodes[link.a], self.place.nodes[link.b]
        ways = [(name, end, _rate(rate)) for name, end, rate in directions(link)]
        if link.half_duplex:
            ways = [(link.name, link.b, _rate(link.forward))]
        wide = [self.width(rate) for _, _, rate in ways]
        shift = (sum(wide) / len(wide) + 0.35) / 2 if len(ways) > 1 else 0.0
        middle = []
        for number, (name, _, rate) in enumerate(ways):
            share, binds = self.use.of([name]), name in self.use.binds
            side = (shift if number else -shift)
            xs, ys = self._way(a, b, how, side, link.name)
            self.line(xs, ys, rate, share, binds, name)
            middle.append((float(xs[len(xs) // 2]), float(ys[len(ys) // 2])))
        self.drawn.append((link, how, middle))

    def _way(self, a: Node, b: Node, how: str, side: float, name: str) -> tuple[list[float], list[float]]:
        """The course of a direction: straight in three points, or an arc below both ends."""
        if how in ("down", "bar"):
            upper, lower = (a, b) if a.y > b.y else (b, a)
            x = (lower if how == "down" else upper).x + side
            return [x, x, x], [upper.bottom, (upper.bottom + lower.top) / 2, lower.top]
        left, right = (a, b) if a.x < b.x else (b, a)
        ends = left.x + left.wide / 2, right.x - right.wide / 2
        between = [one for one in dict.fromkeys(self.place.nodes.values())
                   if one.y == left.y and left.x < one.x < right.x]  # fmt: skip
        if how == "aside" or (left.y == right.y and left.kind == "socket" and not between):
            return [ends[0], sum(ends) / 2, ends[1]], [left.y + side] * 3
        down = -1.0 if left.kind != "socket" else 1.0
        far = abs(right.x - left.x)
        most = max(abs(self.place.nodes[link.a].x - self.place.nodes[link.b].x)
                   for link, one in self.place.links if one == "arc")  # fmt: skip
        deep = down * self.place.deep * (0.22 + 0.78 * (far / most) ** 0.8) * (1.0 if down < 0 else 0.5)
        start = min(left.bottom, right.bottom) if down < 0 else max(left.top, right.top)
        turns = [math.pi * step / 24 for step in range(25)]
        begin, end = (self.starts[one.name, name] for one in (left, right))
        middle, half = (begin + end) / 2, (end - begin) / 2
        return ([middle - (half + side) * math.cos(one) for one in turns],
                [start + (deep + side * math.copysign(1, deep)) * math.sin(one) for one in turns])  # fmt: skip

    def node(self, node: Node) -> None:
        """The box of a part, with what is written in it."""
        if isinstance(node.part, Memory):
            halves: list[tuple[Memory | Processor, list[str]]] = [(node.part, _port(node.part, self.topology))]
            halves += [(one, _work(one, self.topology)) for one in _first_of_kind(node.processors)]
            high = node.high / len(halves)
            for number, (part, resources) in enumerate(halves):
                text = [_named(node, part), _figure(part)]
                self.box(node, node.top - (number + 1) * high, high, resources, text)
            return
        reduces = "(reduces)" if node.part.reduces else ""
        self.box(node, node.bottom, node.high, [], [alike(node.names), reduces], plain=True)

    def box(self, node: Node, bottom: float, high: float, resources: list[str], text: list[str],
            plain: bool = False) -> None:  # fmt: skip
        from matplotlib.patches import Rectangle

        share = None if plain else self.use.of(resources)
        fill = style.now().fill if share is None else self.use.colour(share)
        binds = bool(self.use.binds & set(resources))
        self.axes.add_patch(Rectangle(
            (node.x - node.wide / 2, bottom), node.wide, high, facecolor=fill, zorder=5.5 if binds else 5,
            edgecolor=style.colour(1) if binds else style.now().ink, linewidth=BORDER if binds else 0.7,
            label=f"{text[0]}"))  # fmt: skip
        self.page.keep_free(node.x - node.wide / 2, bottom, node.x + node.wide / 2, bottom + high)
        ink = "#000000" if style.contrast("#000000", fill) > style.contrast("#FFFFFF", fill) else "#FFFFFF"
        room = (node.wide - INSIDE) * self.scale
        tall = (high - INSIDE) * self.scale
        name, figure = text
        line = LETTERS / 72 * INCH * 1.15
        for words in ((f"{name} {figure}",) if figure else (name,), (name, figure) if figure else (name,), (name,)):
            if len(words) * line <= tall and all(text_width(word, LETTERS) <= room for word in words):
                for number, word in enumerate(words):
                    y = bottom + high / 2 + ((len(words) - 1) / 2 - number) * line / self.scale
                    self.axes.text(node.x, y, word, ha="center", va="center", size=LETTERS, color=ink, zorder=9)
                return
        if line <= room and text_width(name, LETTERS) <= tall:
            self.axes.text(node.x, bottom + high / 2, name, ha="center", va="center", size=LETTERS, color=ink,
                           rotation=90, zorder=9)  # fmt: skip
            return
        key = (node.kind, str(node.level), figure, name.rstrip("0123456789"))
        self.nameless.setdefault(key, []).append((name, node))

    def name_rest(self) -> None:
        """Parts whose boxes are too small for their names, each run once, beside them."""
        for (_, _, figure, _), some in self.nameless.items():
            each = " each" if len(some) > 1 else ""
            text = f"{alike([name for name, _ in some])}{f', {figure}{each}' if figure else ''}"
            spots = []
            nearest = sorted(some, key=lambda one: abs(one[1].x - some[len(some) // 2][1].x))
            for _, node in nearest[:MOST_TRIED]:
                for y, way in ((node.bottom, -1), (node.top, 1)):
                    spots += [Spot(node.x, y, (0, way), gap) for gap in (0.8, 4.5, 8.0)]
                    spots += [Spot(node.x + side * node.wide / 2, node.y, (side, 0), 1.0) for side in (1, -1)]
            self.page.label(text, spots, leader=False, size=LETTERS)

    def name_links(self) -> None:
        """Links that are alike have their name and rate once, beside one of them."""
        groups: dict[object, list[int]] = {}
        for number, (link, how, _) in enumerate(self.drawn):
            ends = sorted((self.place.nodes[link.a].kind, self.place.nodes[link.b].kind))
            rates = [_rate(link.forward), _rate(link.backward)]
            groups.setdefault((how, *ends, *rates, link.technology), []).append(number)
        for numbers in groups.values():
            some = [self.drawn[number] for number in numbers]
            names = alike([link.name for link, _, _ in some])
            if len(names) > MOST_NAMES:
                names = f"{len(some)} x {link_text(some[0][0]) or 'links'}"
            arc = some[0][1] == "arc"  # which leave no room for two lines
            text = f"{names}{' ' if arc else chr(10)}{_rates(some[0][0])}"
            binds = any(name in self.use.binds for link, _, _ in some for name in _rows(link))
            look: dict[str, Any] = {"color": style.colour(1), "weight": "bold"} if binds else {}
            self.page.label(text, list(self._beside(some)), leader=False, size=LETTERS, **look)

    def _beside(self, some: list[tuple[Link, str, list[tuple[float, float]]]]) -> Iterable[Spot]:
        """Places beside links: at their middle, a little above and below it."""
        gap = 0.4
        for shift in (0.0, 2.6, -2.6, 4.6, -4.6):
            for link, how, middle in some[:: -(-len(some) // MOST_TRIED)]:
                wide = [self.width(rate) / 2 for _, _, one in directions(link) if (rate := _rate(one)) or True]
                right, left = max(middle), min(middle)
                if how in ("down", "bar"):
                    yield Spot(right[0] + wide[-1], right[1] + shift, (1, 0), gap, cost=abs(shift) / 4)
                    yield Spot(left[0] - wide[0], left[1] + shift, (-1, 0), gap, cost=abs(shift) / 4)
                else:
                    y = sum(at for _, at in middle) / len(middle)
                    if how == "aside":
                        small = min((self.place.nodes[link.a], self.place.nodes[link.b]), key=lambda one: one.wide)
                        yield Spot(small.x, small.bottom, (0, -1), gap + abs(shift))
                        yield Spot(small.x, small.top, (0, 1), gap + abs(shift))
                    else:
                        ends = [self.starts[one, link.name] for one in (link.a, link.b)
                                if (one, link.name) in self.starts]  # fmt: skip
                        low = min(self.place.nodes[link.a].bottom, self.place.nodes[link.b].bottom)
                        for end, way in ((max(ends), 1), (min(ends), -1)) if ends else ():
                            yield Spot(end + way * sum(wide), (low + y) / 2, (way, 0), gap + abs(shift), cost=2.0)
                    for way in (1, -1):
                        yield Spot(middle[0][0], y + way * (sum(wide) / len(wide) + 0.6), (0, way), gap + abs(shift))

    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """What widths and colours mean."""
        rates = sorted({self.fastest, *(float(f"{self.fastest / part:.1g}") for part in (8, 64))})
        slowest = min((rate for link in self.topology.links.values() for _, _, one in directions(link)
                       if (rate := _rate(one))), default=0.0)  # fmt: skip
        shown = [rate for rate in rates if rate >= slowest / 2] if slowest else []
        found = [(f"{format_rate(rate)} each way",
                  {"color": style.now().grey, "linewidth": self.width(rate) / INCH * 72 * self.scale,
                   "solid_capstyle": "butt"})
                 for rate in shown]  # fmt: skip
        if any(_rate(one) is None for link in self.topology.links.values() for _, _, one in directions(link)):
            found.append(("rate not known", {"color": style.now().grey, "linewidth": 1.0, "linestyle": (0, (1, 1))}))
        if self.use.known:
            found += [(f"busy {100 * share:.0f} %", {"patch": {"facecolor": self.use.colour(share),
                       "edgecolor": style.now().ink, "linewidth": 0.5}}) for share in STEPS]  # fmt: skip
            if self.use.binds:
                found.append(("binds the floor", {"patch": {"facecolor": "none", "edgecolor": style.colour(1),
                                                            "linewidth": BORDER}}))  # fmt: skip
        return found


def _rate(rate: Rate) -> float | None:
    """The rate that a width stands for: peak, else rated, else sustained [B/s]; None where it is not known."""
    from offload.topology.resources import widest

    return widest(rate) or None


def _rows(link: Link) -> list[str]:
    return [link.name] if link.half_duplex else [name for name, _, _ in directions(link)]


def _rates(link: Link) -> str:
    there, back = _rate(link.forward), _rate(link.backward)
    if there is None and back is None:
        return "unknown"
    shown = [format_rate(one) if one else "?" for one in (there, back)]
    return shown[0] if shown[0] == shown[1] or link.half_duplex else f"{shown[0]} to {link.b}, {shown[1]} back"


def _port(memory: Memory, topology: Topology) -> list[str]:
    return [name for name in (memory.name, f"{memory.name}.read", f"{memory.name}.write") if name in topology.resources]


def _work(one: Processor, topology: Topology) -> list[str]:
    return [name for kind in ("flops", "reads", "writes") if (name := f"{one.name}.{kind}") in topology.resources]


def _first_of_kind(processors: list[Processor]) -> list[Processor]:
    """Processors of a memory, GPUs first."""
    return sorted(processors, key=lambda one: (one.kind != "gpu", one.name))


def _named(node: Node, part: Any) -> str:
    return clean(alike(node.names) if part is node.part else part.name)


def _figure(part: Any) -> str:
    if not isinstance(part, Memory):
        return ""
    count = f"{part.count} x " if part.count > 1 else ""
    return "" if part.capacity is None else f"{count}{format_bytes(part.capacity)}"


def _subject(topology: Topology, study: Study | None) -> str:
    return machine(topology.title, topology.name) if study is None else subject(study)


def _finding(topology: Topology, study: Study | None, use: _Use) -> str:
    if study is not None and study.resources:
        first = [row for row in study.resources if row.share == study.resources[0].share]
        verb = "is" if len(first) == 1 else "are each"
        names = alike([row.name for row in first])
        if study.uncounted:
            busy = format_seconds(first[0].sustained_seconds or 0.0)
            return f"{names} {verb} busy for {busy} of a step; its length is open: {without_rate(study.uncounted)}"
        return (f"{names} {verb} busy for {share_text(first[0].share or 0.0)} of a step of "
                f"{format_seconds(study.overlapped.seconds)}")  # fmt: skip
    found = summary_of(topology)
    gpus = f"{found.gpus} GPU{'s' * (found.gpus != 1)}"
    if found.unified:
        size = f" of {format_bytes(found.gpu_memory)}" if found.gpu_memory else ""
        return f"{gpus} and the host in one memory{size}"
    if not found.host_links:
        return gpus
    ways = [f"{one.what or one.link} ({format_rate(one.peak)})" if one.peak else one.what or one.link
            for one in found.host_links]  # fmt: skip
    return f"{gpus}, {'each ' * (found.gpus > 1)}behind {' or '.join(ways)} from host memory"


def _notes(topology: Topology, study: Study | None, use: _Use) -> list[str]:
    notes = ["Two lines are the two directions of a link, as wide as the square root of its peak rate"]
    if study is not None:
        notes.append("Busy: the time that expected loads need at sustained rates, over the expected time of a step")
        notes += left_out(study.uncounted)
    busy = {name: use.shares.get(name, 0.0) for name in topology.limits}
    if topology.limits:
        told = alike(list(topology.limits))
        most = max(busy.values())
        notes.append(f"Not drawn, limits that links have in common: {told}"
                     f"{f' (busy {share_text(most)} at most)' if study is not None else ''}")  # fmt: skip
    return notes
