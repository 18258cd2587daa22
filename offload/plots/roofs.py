"""The offload roofline: a roof for each memory, link and processor, and a plan's way beneath them."""

from __future__ import annotations

from typing import Any

from offload.plots import style
from offload.plots.labels import around
from offload.plots.page import Page
from offload.plots.style import Colours, drawn, short
from offload.printing import and_text, clean
from offload.rooflines import Roofline, Stand
from offload.units import format_flops, format_rate, format_share

APART = 0.01  # relative: a processor that does less of the work than all of it
SAME = 0.02  # relative: roofs that lie on each other
ROOM = 2.2  # in ratios: kept free round what is drawn


@drawn
def roofline_chart(result: Roofline, *, ax: Any = None, subject: str = "") -> Any:
    """FLOP per second over FLOP per byte at each level, log-log, and the plan's path as its batch grows.

    result : from `roofline`. A level's roof and its path have one colour; a step stands at one height under all of
    them, and what binds is the roof that it touches. A roof of a peak is solid, one of a sustained rate dashed (no
    certain bound). Returns the axes.
    """
    page = Page(ax)
    axes = page.axes
    paths = [level for level in result.levels if level.kind != "processor"]
    flats = [level for level in result.levels if level.kind == "processor"]
    colours = Colours([level.name for level in result.levels])
    xs = [stand.intensity(level.name) for stand in result.stands for level in paths if level.name in stand.amounts]
    ys = [stand.flop / time for stand in result.stands for time in (stand.seconds, stand.expected)]
    final = result.stands[-1]
    tops = {level.name: _flat(level.name, level.rate, final) for level in flats if level.name in final.amounts}
    low, high = min(xs) / ROOM, max(xs) * ROOM
    bottom, top = min(ys) / ROOM, max([*ys, *(one for one in tops.values() if one < 30 * max(ys))]) * ROOM
    page.limits("x", low, high, log=True)
    page.limits("y", bottom / 1e12, top / 1e12, log=True)
    page.words(axes, "FLOP per byte that crosses the level", "TFLOP/s of the step")
    for place, level in enumerate(paths):
        look = colours.look(level.name) | {"linestyle": "solid" if level.certain else (0, (5, 2)), "linewidth": 2.2}
        over = sum(abs(other.rate / level.rate - 1) < SAME for other in paths[place + 1 :])
        look["linewidth"] += 2.6 * over  # a border of it is seen beside each that lies on it
        ends = [low, high]
        axes.plot(ends, [level.rate * x / 1e12 for x in ends], zorder=3, label=f"roof: {level.name}", **look)
        rate = format_rate(level.rate)
        page.along(*_seen(level.rate / 1e12, low, high, bottom / 1e12, top / 1e12), f"{level.name} {rate}", 1,
                   color=colours[level.name], weight="bold")  # fmt: skip
        stands = [stand for stand in result.stands if level.name in stand.amounts]
        axes.plot([stand.intensity(level.name) for stand in stands], [_height(stand) for stand in stands],
                  color=colours[level.name], linewidth=1.2, marker="o", markersize=4.5, zorder=5,
                  label=f"path: {level.name}")  # fmt: skip
    for level in (one for one in flats if one.name in tops):
        height = tops[level.name]
        look = {"color": colours[level.name], "linewidth": 2.2, "linestyle": "solid" if level.certain else (0, (5, 2))}
        axes.plot([low, high], [height / 1e12] * 2, zorder=3, label=f"roof: {level.name}", **look)
        if height < top:
            page.along([low, high], [height / 1e12] * 2, f"{level.name} {format_flops(level.rate)}", -1,
                       color=colours[level.name], weight="bold")  # fmt: skip
    _stands(page, result, [level.name for level in paths])
    edge = [max(level.rate * x for level in paths if level.certain) / 1e12 for x in (low, high)] if any(
        level.certain for level in paths) else None  # fmt: skip
    if edge is not None:
        axes.fill_between([low, high], edge, top / 1e12, zorder=0.4, **style.forbidden())
    for stand in (result.stands[0], result.stands[-1], *result.turns) if len(paths) > 1 else ():
        across = [stand.intensity(level.name) for level in paths if level.name in stand.amounts]
        axes.plot([min(across), max(across)], [_height(stand)] * 2, color=style.now().grey, linewidth=0.8, zorder=2.5,
                  linestyle=(0, (1, 1.5)), gid="faint", label="same step")  # fmt: skip
    entries = [(f"{clean(level.name)}: {'peak' if level.certain else 'sustained, no certain bound'}",
                {"color": colours[level.name], "linewidth": 2.2,
                 "linestyle": "solid" if level.certain else (0, (5, 2))}) for level in result.levels]  # fmt: skip
    entries.append((f"floor at each {result.over}", {"color": style.now().grey, "linewidth": 1.2, "marker": "o",
                                                    "markersize": 4.5}))  # fmt: skip
    entries.append(("expected", style.expected()))
    if result.turns:
        entries.append(("another thing binds", _TURN | {"color": style.now().ink,
                                                         "markerfacecolor": style.now().paper}))  # fmt: skip
    if edge is not None:
        entries.append(("impossible at every level", {"patch": style.forbidden()}))
    notes = ["A step stands at one height at every level, below each level's roof; what binds is the roof that it "
             "touches"]  # fmt: skip
    for other in dict.fromkeys(result.covered.values()):
        names = [name for name, one in result.covered.items() if one == other]
        notes.append(f"Not drawn: {clean(and_text(names))}; {clean(other)} carries as much at no higher a rate")
    if any(stand.adds for stand in result.stands):
        notes.append("Where times add, a step stands below every roof")
    for level in flats:
        height = tops.get(level.name, 0.0)
        if height > level.rate * (1 + APART):
            share = format_share(level.rate / height, 2)
            notes.append(f"{clean(level.name)} takes {share} of the work: its roof stands at {format_flops(height)} of "
                         "the step")  # fmt: skip
    return page.finish(_finding(result), subject, entries, notes)


_TURN = {"linestyle": "none", "marker": "D", "markersize": 6}


def _height(stand: Stand) -> float:
    return stand.flop / stand.seconds / 1e12


def _flat(name: str, rate: float, stand: Stand) -> float:
    """The height of a processor's roof: all the step's work while this one does its part of it."""
    return rate * stand.flop / stand.amounts[name]


def _seen(rate: float, low: float, high: float, bottom: float, top: float) -> tuple[list[float], list[float]]:
    """The part of a roof that is inside of the axes."""
    left, right = max(low, bottom / rate), min(high, top / rate)
    return [left, right], [rate * left, rate * right]


def _stands(page: Page, result: Roofline, levels: list[str]) -> None:
    """The expected times, the values along the path, and where it turns."""
    first = levels[0]
    shown = [stand for stand in result.stands if first in stand.amounts]
    page.axes.plot([stand.intensity(first) for stand in shown],
                   [stand.flop / stand.expected / 1e12 for stand in shown], zorder=4, label="expected",
                   **style.expected())  # fmt: skip
    turns = result.turns
    for stand in turns:
        name = next((one for one in stand.binding if one in levels), first)
        x, y = stand.intensity(name), _height(stand)
        page.axes.plot([x], [y], zorder=7, color=style.now().ink, markerfacecolor=style.now().paper, label="turn",
                       **_TURN)  # fmt: skip
        page.label(f"{result.over} {short(stand.value)}: {_bound(stand)}", around(x, y, [(1, -1), (1, 0)]))
    for stand in (shown[0], shown[-1]):
        if stand not in turns:
            page.label(f"{result.over} {short(stand.value)}",
                       around(stand.intensity(first), _height(stand), [(0, -1), (1, -1)]))  # fmt: skip


def _bound(stand: Stand) -> str:
    names = and_text(stand.binding[:3])
    if not names:
        return "something else binds"
    return f"times add on {names}" if stand.adds and len(stand.binding) > 1 else f"{names} binds"


def _finding(result: Roofline) -> str:
    first, last = result.stands[0], result.stands[-1]
    rates = f"at most {format_flops(first.flop / first.seconds)} to {format_flops(last.flop / last.seconds)}"
    ends = f"from {result.over} {short(first.value)} to {short(last.value)}"
    if not result.turns:
        return _sentence(f"{clean(_bound(first))} {ends}: {rates}")
    turn = result.turns[0]
    return _sentence(f"{clean(_bound(first))} up to {result.over} {_before(result, turn)}, then {clean(_bound(turn))}: "
                     f"{rates}")  # fmt: skip


def _sentence(text: str) -> str:
    """A sentence with its capital; names of resources stay as they are."""
    return text[0].upper() + text[1:] if text.startswith(("times add", "something")) else text


def _before(result: Roofline, turn: Stand) -> str:
    return short(result.stands[result.stands.index(turn) - 1].value)
