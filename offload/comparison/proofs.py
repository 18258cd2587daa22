"""Proofs that one is nowhere worse than another while the figures that both have move together.

Times fall as a rate rises and rise with a load, so in a box of figures both are known from its corners: where the first
with the slow corner costs no more than the second with the fast one, it is nowhere worse inside. Boxes are cut as large
as that allows: from the slow end on, each as far as the second's cost there stays above the first's, and where several
figures matter by halves. Where both do the same tasks and nothing serves the first slower, no box is needed.
"""

from __future__ import annotations

from typing import Any

from offload.bounds import load_seconds
from offload.comparison.sides import Box, Key, Side, by_source, key_of
from offload.step import Step, Use, peak_of, seconds_of_rows

CLOSE = 1e-5  # relative: costs that are one
CUTS = 160  # costs that are looked at


def may_be_worse(one: Side, other: Side, box: Box) -> bool:
    """Whether one may cost more than the other in a box, as far as its corners tell; exact where it is a point."""
    return lead(one, other, box) < 0


def lead(one: Side, other: Side, box: Box) -> float:
    """By how much one surely leads in a box, besides what its cost and the other's may miss; below zero: it may not."""
    return other.at(box, slow=False) * (1 + CLOSE) - one.at(box, slow=True) * (1 + max(one.near, other.near))


def never_worse(first: Side, second: Side, common: Box, most: int = CUTS) -> bool:
    """Whether it is proved that the first costs no more than the second at any point of their common figures.

    most : how many costs are looked at along one figure, and a third as many boxes.
    """
    if not may_be_worse(first, second, common):
        return True
    if not common:
        return False
    leading = _leading(first, second, common)
    if len(common) > 1 and _halved(first, second, common, most // 3):
        return True
    return _along(first, second, common, leading, most) or (
        len(common) == 1 and _halved(first, second, common, most // 3))


def _leading(first: Side, second: Side, box: Box) -> Key:
    """The figure of a box with the largest effect on the two."""
    return max(box, key=lambda key: _weight(first, second, box, key))


def _weight(first: Side, second: Side, box: Box, key: Key) -> float:
    low, high = box[key]
    if low == high:
        return 0.0
    wide = (high - low) / high if high > 0 else 1.0
    return wide * (max(first.effect(key), second.effect(key)) if len(box) > 1 else 1.0)


def _along(first: Side, second: Side, box: Box, key: Key, most: int) -> bool:
    """Whether boxes along one figure, all of the others in each, prove it. They start at the figure's slow end."""
    low, high = box[key]
    at, end = (high, low) if key[0] == "load" else (low, high)
    looked = 0
    while at != end:
        reach = end
        while may_be_worse(first, second, {**box, key: (min(at, reach), max(at, reach))}):
            looked += 1
            nearer = _nearer(first, second, box, key, at, reach)
            if looked > most or nearer in (at, reach):
                return False
            reach = nearer
        at = reach
    return True


def _nearer(first: Side, second: Side, box: Box, key: Key, at: float, reach: float) -> float:
    """About up to where the second costs more than the first at `at`: by a line in what a unit of work takes."""
    cost = first.at({**box, key: (at, at)}, slow=True)
    here, there = (second.at({**box, key: (value, value)}, slow=False) for value in (at, reach))
    share = 0.95 * (here - cost) / (here - there) if here > there else 0.0
    if not 0.0 < share < 1.0 or min(at, reach) <= 0:
        return at
    if key[0] == "load":
        return at + (reach - at) * share
    return 1 / (1 / at + (1 / reach - 1 / at) * share)


def _halved(first: Side, second: Side, common: Box, most: int) -> bool:
    """Whether halves of boxes prove it, each cut where that brings the two closest together."""
    waiting = [dict(common)]
    for _ in range(most):
        if not waiting:
            return True
        box = waiting.pop()
        if not may_be_worse(first, second, box):
            continue
        wide = max(box, key=lambda key: _gained(first, second, box, key))
        low, high = box[wide]
        if low == high:
            return False
        middle = (low + high) / 2
        waiting += [{**box, wide: (low, middle)}, {**box, wide: (middle, high)}]
    return not waiting


def _gained(first: Side, second: Side, box: Box, key: Key) -> float:
    """By how much the corners of a box come closer where a figure is known; below zero where it is known already."""
    low, high = box[key]
    if low == high:
        return -1.0
    slow, fast = (high, low) if key[0] == "load" else (low, high)
    ours = first.at(box, slow=True) - first.at({**box, key: (fast, fast)}, slow=True)
    return ours + second.at({**box, key: (slow, slow)}, slow=False) - second.at(box, slow=False)


def no_slower(first: Step, second: Step) -> bool:
    """Whether both do the same tasks in the same order, and nothing that matters serves the first slower.

    Rates that both have by one key (`key_of`) are at one point of their ends; others are taken at the first's slow and
    the second's fast end. Left aside is what the first cannot feel: resources that in every task of one lane are done
    before another one, and those that all together keep it busy for less than what counts as the same (`CLOSE`).
    """
    ours, theirs = first.plan, second.plan
    if (ours.overlap, ours.in_flight, ours.tokens) != (theirs.overlap, theirs.in_flight, theirs.tokens):
        return False
    if any(getattr(first, what) != getattr(second, what)
           for what in ("instances", "waits", "wraps", "first_compute", "last_compute")):  # fmt: skip
        return False
    if _slots(first) != _slots(second) or len(first.rows) != len(second.rows):
        return False
    pairs, lanes = set(), set()
    odd: dict[str, None] = {}  # resources of the first alone
    for one, other in zip(first.rows, second.rows, strict=True):
        if any(getattr(one, what) != getattr(other, what) for what in ("transfer", "every", "urgent", "apart")) or any(
                mine > its for mine, its in zip(one.latency, other.latency, strict=True)):
            return False
        lanes.add((one.lane, other.lane))
        left = list(other.uses)
        for use in one.uses:
            kind = first.resources[use.resource].kind
            like = next((its for its in left if second.resources[its.resource].kind == kind and _amounts(its) ==
                         _amounts(use)), None)  # fmt: skip
            if like is None:
                odd[use.resource] = None
            else:
                left.remove(like)
                pairs.add((use.resource, like.resource))
    if len({one for one, _ in lanes}) < len(lanes) or len({other for _, other in lanes}) < len(lanes):
        return False
    keys = _keys(first), _keys(second)
    for name, its in sorted(pairs):
        several = sum(name == one for one, _ in pairs) > 1 or sum(its == one for _, one in pairs) > 1
        if several or not _serves(first, second, name, its, keys):
            odd[name] = None
    busy = load_seconds(first, "low").resource_seconds
    felt = sum(busy.get(name, 0.0) for name in odd if not _hidden(first, name))
    close: bool = felt <= CLOSE * load_seconds(first, "high").seconds
    return close


def _slots(step: Step) -> list[tuple[Any, ...]]:
    return [(one.fetches, one.releases, one.buffers) for one in step.slots]


def _amounts(use: Use) -> tuple[Any, ...]:
    return use.access, use.load, use.fewest, use.most


def _hidden(step: Step, name: str) -> bool:
    """Whether a resource serves one lane alone, and each of its tasks is longer at another one, wherever rates are."""
    rows = [number for number, row in enumerate(step.rows) if any(use.resource == name for use in row.uses)]
    slow, fast = seconds_of_rows(step, "low"), seconds_of_rows(step, "high")
    return len({step.rows[number].lane for number in rows}) == 1 and all(
        any(seconds > slow[number][name] for other, seconds in fast[number].items() if other != name)
        for number in rows
    )


def _keys(step: Step) -> dict[tuple[str, str], Key]:
    return {(name, access): key_of(step, figure) for figure in by_source(step) if not figure.load
            for name in figure.names for access in figure.accesses}  # fmt: skip


def _serves(first: Step, second: Step, name: str, other: str, keys: tuple[Any, Any]) -> bool:
    """Whether a resource of the first is nowhere slower than the second's that stands for it."""
    mine, its = first.resources[name], second.resources[other]
    if mine.follows or its.follows:
        return False  # its rate is another one's
    for access in {use.access for row in first.rows for use in row.uses if use.resource == name}:
        rate, beside = mine.sustained_at(access), its.sustained_at(access)
        if rate is None or beside is None:
            return rate is None and beside is None and peak_of(mine) >= peak_of(its)
        spelled = [access if access in one.sustained else "" for one in (mine, its)]
        key = keys[0].get((name, spelled[0]))
        together = key is not None and key == keys[1].get((other, spelled[1]))
        if not (rate.value >= beside.value if together else rate.low >= beside.high):
            return False
    return True
