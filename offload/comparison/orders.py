"""Whether the order of two is certain when uncertain rates move within their ends, and what measurement settles it.

What is one figure in both moves together: the same rate of the same source on two servers, or the same load of one
model. Every other figure moves by itself. So the first may be overtaken exactly where, at some point of the common
figures, it takes longer with its own figures at their slow ends than the second with its own at their fast ends. That
is looked for at all ends of the common figures. Where none is found, `proofs` proves it between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from offload.comparison.proofs import CLOSE, CUTS, lead, may_be_worse, never_worse, no_slower
from offload.comparison.sides import Box, Key, Side, ends_of, signature, value_of

LEFT_OUT = "left out"
MOST_COMMON = 3  # common figures whose ends are tried together; further ones move apart, which settles less
TOLD = 1e-3  # of a figure's interval: a part that is too small to be told, or to stay open
NO_EFFECT = 1e-8  # relative: what a figure may change and still be left aside
MOST_TRIED = 3  # figures, those with the largest effect, of which one may settle it
TRIES = 3  # at the part of a figure's interval in which it settles the order


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure whose measurement settles which of two is better. low, high : its interval now [B/s, FLOP/s, B or FLOP].

    sides : the entries (plan, server) that have it, with its names there. first, second : the part of the interval in
    which the first, or the second, is certainly the better one; None where there is none. settles : whether the order
    is known whatever it turns out to be (at most a point aside).
    """

    sides: tuple[tuple[str, str, tuple[str, ...]], ...]
    what: str
    unit: str
    low: float
    high: float
    first: tuple[float, float] | None
    second: tuple[float, float] | None
    settles: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbours in a ranking, and whether the first is the better one throughout.

    order : "certain" (the first is nowhere worse), "at all ends" (nor at any ends of the figures; between them it is
    not proved), "same" (at no ends do they differ by more than a hundred-thousandth), "open" (the second is better at
    some, or nearer than searched schedules are found) or "left out" (it was not looked for). margin : the second's cost
    over the first's, less 1. common : how many figures they share. measure : of an open one, the single figure that
    settles it in the largest part of its interval; None where none was found. sought : whether it was looked for.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    order: str
    margin: float
    common: int
    measure: Measure | None = None
    sought: bool = True


def compare_pair(first: Side, second: Side, margin: float, *, most: int = CUTS) -> Pair:
    """Whether the first is certainly no worse than the second; of an open pair nothing is sought (`settled`).

    margin : as of `Pair`. most : how many costs a proof may look at.
    """
    shared = [key for key in first.figures if key in second.figures]

    def pair(order: str) -> Pair:
        return Pair(first.name, second.name, order, margin, len(shared), None, order != "open")

    seen = at_once(first, second, margin)
    if seen == "same" or seen == "certain" and abs(margin) > CLOSE:
        return pair(seen)
    common = _common(first, second, shared)
    corners = _corners(common)
    if abs(margin) <= CLOSE and all(_alike(first, second, corner) for corner in corners):
        return pair("same")
    proved = seen == "certain" or not may_be_worse(first, second, {})  # even if nothing moved together
    if not proved and any(may_be_worse(first, second, corner) for corner in corners):
        return pair("open")
    return pair("certain" if proved or never_worse(first, second, common, most) else "at all ends")


def _alike(first: Side, second: Side, corner: Box) -> bool:
    """Whether both cost the same at an end of their common figures, wherever the others are."""
    pairs = ((first, second), (second, first))
    return all(one.at(corner, slow=True) <= other.at(corner, slow=False) * (1 + CLOSE) for one, other in pairs)


def at_once(first: Side, second: Side, margin: float) -> str | None:
    """The order, where it is seen without any schedule; else None."""
    if abs(margin) <= CLOSE and signature(first.step) == signature(second.step):
        return "same"
    if not (first.by_time and second.by_time and no_slower(first.step, second.step)):
        return None
    return "same" if abs(margin) <= CLOSE and no_slower(second.step, first.step) else "certain"


def settled(pair: Pair, first: Side, second: Side) -> Pair:
    """An open pair with the figure whose measurement settles it in the largest part of its interval."""
    shared = [key for key in first.figures if key in second.figures]
    return replace(pair, measure=_measure(first, second, _common(first, second, shared)), sought=True)


def _common(first: Side, second: Side, shared: Sequence[Key]) -> dict[Key, tuple[float, float]]:
    """The figures that both have, with their ends, as far as they matter: the largest effects first."""
    effects = {key: max(first.effect(key), second.effect(key)) for key in shared}
    kept = sorted((key for key in shared if effects[key] > NO_EFFECT), key=lambda key: -effects[key])[:MOST_COMMON]
    return {key: ends_of(first.figures[key][0]) for key in kept}


def _corners(box: Box) -> list[dict[Key, tuple[float, float]]]:
    """All ends of the figures of a box."""
    return [dict(zip(box, ((end, end) for end in ends), strict=True)) for ends in product(*box.values())]


# What would settle it.


def _measure(first: Side, second: Side, common: Box) -> Measure | None:
    """The figure that settles the order in the largest part of its interval, when it alone becomes known."""
    best: tuple[float, Measure] | None = None
    keys = dict.fromkeys([*first.figures, *second.figures])
    needed = 1 - second.at({}, slow=False) / first.at({}, slow=True), 1 - first.at({}, False) / second.at({}, True)
    effects = {key: first.effect(key) + second.effect(key) for key in keys}
    for key in sorted(keys, key=lambda key: -effects[key])[:MOST_TRIED]:
        if effects[key] < min(needed) * 0.5 and key not in common:
            continue  # it changes less than is open
        figure = (first.figures.get(key) or second.figures[key])[0]
        ends = ends_of(figure)
        parts = _settled(first, second, {one: common[one] for one in common if one != key}, key, ends)
        share = sum(high - low for low, high in parts.values()) / (ends[1] - ends[0])
        nothing = share <= 0 or parts.get("first") == ends  # no measurement settles what it leaves as it is
        if nothing or (best is not None and share <= best[0] * (1 + 1e-9)):
            continue
        value = value_of(figure)
        found = {word: (low * value, high * value) for word, (low, high) in parts.items()}
        sides = tuple((*side.name, tuple(dict.fromkeys(name for one in side.figures[key] for name in one.names)))
                      for side in (first, second) if key in side.figures)  # fmt: skip
        whole = share >= 1 - TOLD
        best = share, Measure(sides, "load" if figure.load else "rate", figure.unit, ends[0] * value, ends[1] * value,
                              found.get("first"), found.get("second"), whole)  # fmt: skip
    return None if best is None else best[1]


def _settled(
    first: Side, second: Side, others: Box, key: Key, ends: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    """By which of two is the better one, the part of a figure's interval in which it is that at all other ends."""
    corners = _corners(others)

    def sure_lead(word: str, at: float) -> float:
        """By how much one surely leads, at the worst ends of the others; below zero where it may not."""
        one, other = (first, second) if word == "first" else (second, first)
        least = inf
        for corner in corners:
            point = {**corner, key: (at, at)}
            least = min(least, lead(one, other, point))
            if least < 0:
                break
        return least

    found: dict[str, tuple[float, float]] = {}
    for end, far in (ends, ends[::-1]):
        for word in ("first", "second"):
            here = sure_lead(word, end)
            if here < 0 or word in found:
                continue
            there = sure_lead(word, far)
            sure, leads = end, here
            if there >= 0:
                return {word: ends}
            unsure, lacks = far, there
            for number in range(TRIES):  # by the crossing of a line in what a unit of work takes, then by halves
                if number % 2 == 0:
                    slope = leads / (leads - lacks)
                    middle = sure + (unsure - sure) * slope if key[0] == "load" else (
                        1 / (1 / sure + (1 / unsure - 1 / sure) * slope * 0.999))
                else:
                    middle = (sure + unsure) / 2
                reached = sure_lead(word, middle)
                if reached >= 0:
                    sure, leads = middle, reached
                else:
                    unsure, lacks = middle, reached
            if abs(sure - end) > TOLD * (ends[1] - ends[0]):
                found[word] = min(end, sure), max(end, sure)
    return found
