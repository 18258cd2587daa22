"""Servers, or plans, in order: what each is ranked by with its interval, what is impossible, and how sure the order is.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast

from offload.bounds import Floor
from offload.comparison import Comparison, Entry
from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import ROW, per_second, rows_page, set_rows
from offload.plots.style import drawn
from offload.printing import and_text, clean
from offload.ranges import fold
from offload.schedules import Schedule
from offload.units import format_seconds

MOST = 40  # rows; from MANY on they are closer to each other
MANY, CLOSE = 12, 6.2
RATIO = 8.0  # between the ends of an axis: further apart it is logarithmic
FEW = 1e-3  # of a unit for a token: less is told for a million tokens
BY = {"expected": "expected time of a step", "floor": "floor of a step", "tokens": "expected time of a token"}
ORDERS = {"certain": "certain", "at all ends": "so at all ends of the rates", "same": "no difference", "open": "open"}


@drawn
def ranking(found: Comparison, *, ax: Any = None, subject: str = "") -> Any:
    """What plans on servers are ranked by, the best at the top: the value, its interval, and left of its floor nothing.

    found : from `compare`. Between two whose order is not certain stands a bracket. Those that have no place are told
    under the figure. Returns the axes. Raises PlotError where none has a place.
    """
    if not found.ranked:
        raise PlotError(f"no figure: nothing fits. {_out(found.rest[0]) if found.rest else ''}".rstrip())
    shown = found.ranked[:MOST]
    costs = found.costs[: len(shown)]
    page = rows_page(ax, len(shown), ROW if len(shown) < MANY else CLOSE)
    unit, unit_name = _unit(found, [value for _, value, _ in costs])
    floors = [_floor(found, entry) for entry in shown]
    every = [end for cost in costs for end in cost] + [one for one in floors if one]
    low, high = min(every) / unit, max(every) / unit
    log = low > 0 and high / low >= RATIO
    page.limits("x", low / 1.5 if log else 0.0, high * (1.25 if log else 1.06) or 1.0, log=log)
    page.words(page.axes, f"{BY[found.by]} ({unit_name})" if found.by in BY else
               f"{found.by}{' of a token' if unit_name == found.unit else ''} ({unit_name})")  # fmt: skip
    plans = len({entry.plan for entry in shown}) > 1
    set_rows(page, [f"{place}  {_name(entry, plans, found)}" for place, entry in enumerate(shown, 1)],
             [_figures(found, entry, cost, unit, unit_name) for entry, cost in zip(shown, costs, strict=True)])
    for row, (floor, cost) in enumerate(zip(floors, costs, strict=True)):
        _row(page.axes, row, floor, cost, unit)
    open_ = [place for place, pair in enumerate(found.pairs[: len(shown) - 1]) if pair.order == "open"]
    for place in open_:
        x = page.axes.get_xlim()[1]
        page.axes.plot([x, x], [place - 0.16, place + 1.16], color=style.colour(1), linewidth=4.5, zorder=7,
                       solid_capstyle="butt", clip_on=False, gid="faint", label="open")  # fmt: skip
    return page.finish(_finding(found, plans), subject or _subject(found, plans), _entries(found, floors, open_),
                       _notes(found, len(shown), plans))  # fmt: skip


def _unit(found: Comparison, values: list[float]) -> tuple[float, str]:
    """What costs are divided by, and the unit that they are then in."""
    if found.by in BY:
        return style.time_unit(max(min(values), 1e-9))
    if max(values) < FEW and found.unit.endswith("/token"):
        return 1e-6, found.unit.replace("/token", " per million tokens")
    return 1.0, found.unit


def _floor(found: Comparison, entry: Entry) -> float | None:
    """What it is ranked by at the floor; None where that is nothing a floor says."""
    if found.by not in BY or entry.floor is None or not entry.floor.seconds > 0:
        return None
    return entry.floor.seconds / (entry.tokens if found.by == "tokens" else 1)


def _name(entry: Entry, plans: bool, found: Comparison) -> str:
    servers = len({one.server for one in (*found.ranked, *found.rest)}) > 1
    plan = _short(entry.plan, [one.plan for one in (*found.ranked, *found.rest)])
    return " on ".join([plan] * (plans or not servers) + [entry.server] * servers)


def _short(name: str, names: list[str]) -> str:
    """A plan's file without its folder and ending, where no other has that name."""
    path = PurePath(name)
    if path.suffix.lower() not in (".yaml", ".yml"):
        return name
    alike = {one for one in names if PurePath(one).stem == path.stem}
    return path.stem if len(alike) == 1 else name


def _seconds(found: Comparison, entry: Entry) -> float:
    """Of the floor or the expected time of an entry that has both."""
    return cast(Floor, entry.floor).seconds if found.by == "floor" else cast(Schedule, entry.expected).seconds


def _figures(found: Comparison, entry: Entry, cost: tuple[float, float, float], unit: float, name: str) -> str:
    if found.by in BY:
        seconds = _seconds(found, entry)
        return f"{format_seconds(cost[1])}, {per_second(entry.tokens, seconds)}"
    return f"{style.three(cost[1] / unit)} {name}"


def _row(axes: Any, row: int, floor: float | None, cost: tuple[float, float, float], unit: float) -> None:
    low, value, high = (end / unit for end in cost)
    if floor is not None:
        axes.barh([row], [floor / unit - axes.get_xlim()[0]], left=axes.get_xlim()[0], height=0.62, zorder=0.5,
                  label="impossible", **style.forbidden())  # fmt: skip
        axes.plot([floor / unit] * 2, [row - 0.31, row + 0.31], color=style.colour(0), linewidth=2.6, zorder=4,
                  solid_capstyle="butt", label="floor")  # fmt: skip
    if high > low:
        axes.plot([low, high], [row, row], color=style.now().ink, alpha=0.3, linewidth=7, solid_capstyle="butt",
                  zorder=3, label="interval")  # fmt: skip
    axes.plot([value], [row], zorder=6, label="value", **_DOT | {"color": style.now().ink,
              "markerfacecolor": style.now().paper})  # fmt: skip


_DOT = {"marker": "o", "markersize": 5.5, "linestyle": "none", "markeredgewidth": 1.4}


def _entries(found: Comparison, floors: list[float | None], open_: list[int]) -> list[tuple[str, dict[str, Any]]]:
    what = BY.get(found.by, found.by)
    entries = [(what, _DOT | {"color": style.now().ink, "markerfacecolor": style.now().paper})]
    if any(low < high for low, _, high in found.costs):
        entries.append(("from fast to slow rates", {"patch": style.band()}))
    if any(floors) and found.by == "floor":
        entries.append(("impossible on that server", {"patch": style.forbidden()}))
    elif any(floors):
        entries += [("floor", {"color": style.colour(0), "linewidth": 2.6}),
                    ("impossible on that server", {"patch": style.forbidden()})]  # fmt: skip
    if open_:
        entries.append(("order is open between these two", {"color": style.colour(1), "linewidth": 4.5}))
    return entries


def _subject(found: Comparison, plans: bool) -> str:
    titles = dict.fromkeys(entry.title or entry.plan for entry in found.ranked)
    return next(iter(titles)) if len(titles) == 1 and not plans else ""


def _finding(found: Comparison, plans: bool) -> str:
    first = found.ranked[0]
    name = clean(_name(first, plans, found))
    value = found.costs[0][1]
    told = format_seconds(value)
    if found.by not in BY:
        worth, unit = _unit(found, [one for _, one, _ in found.costs])
        told = f"{style.three(value / worth)} {unit}"
    text = f"{name} comes first with {told}"
    if found.by in BY and first.expected is not None:
        seconds = _seconds(found, first)
        text += f" ({per_second(first.tokens, seconds)})"
    if len(found.ranked) == 1:
        return f"{text}, alone of {len(found.rest) + 1}" if found.rest else text
    pair, second = found.pairs[0], clean(_name(found.ranked[1], plans, found))
    what = "time" if found.by in BY else found.by
    margin = f"{1 + pair.margin:.2g} times that" if pair.margin >= 1 else (
        f"{100 * pair.margin:.2g} % more" if pair.margin >= 1e-3 else f"the same {what} to a thousandth")
    if pair.order == "same":
        return f"{text}; {second} differs by nothing"
    return f"{text}; {second} takes {margin}, and that order is {ORDERS[pair.order]}"


def _notes(found: Comparison, shown: int, plans: bool) -> list[str]:
    notes = [] if found.by in BY else [f"Less {found.by} is better"]
    by_binding: dict[str, list[str]] = {}
    for one in found.ranked[:shown]:
        names = one.floor_binding if found.by == "floor" else one.binding
        by_binding.setdefault(clean(fold(names)), []).append(clean(_name(one, plans, found)))
    told = sorted(by_binding.items(), key=lambda item: -len(item[1]))
    if len(told) == 1 and told[0][0]:
        notes.append(f"What binds: {told[0][0]} on all")
    else:
        notes += [f"{names} {_bind(names)} on {and_text(own)}" for names, own in told[1:] if names]
        notes += [f"{told[0][0]} {_bind(told[0][0])} on "
                  f"{'the others' if len(told[0][1]) > 3 else and_text(told[0][1])}"] if told[0][0] else []
    if len(found.ranked) > shown:
        notes.append(f"{len(found.ranked) - shown} further ones come after and are not drawn")
    return notes + [_out(entry) for entry in found.rest[:6]] + (
        [f"And {len(found.rest) - 6} more do not fit"] if len(found.rest) > 6 else [])  # fmt: skip


def _bind(names: str) -> str:
    """The verb of what binds: of several, not of a range that stands for one thing."""
    return "bind" if ", " in names else "binds"


def _out(entry: Entry) -> str:
    return clean(f"{entry.server} {entry.state}: {entry.why}" if entry.why else f"{entry.server}: no such figure")
