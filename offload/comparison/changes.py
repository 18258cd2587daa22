"""What differs between two plans on one server: whose load rose or fell, by how much, what binds before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from offload.comparison.entries import Entry, LoadRow, times_of

NOISE = 1e-9  # relative: loads that are the same


@dataclass(frozen=True, slots=True)
class Changed:
    """A resource whose load differs: before and after [B or FLOP], and the times they take at sustained rates [s]."""

    resource: str
    unit: str
    before: float
    after: float
    seconds_before: float | None
    seconds_after: float | None

    @property
    def difference(self) -> float:
        """By how much the load rose; below zero where it fell [B or FLOP]."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Changes:
    """From one plan to another on one server. seconds : expected time before and after [s]; binding : what binds.

    changed : resources whose load differs, the largest difference in time first. same : how many loads do not.
    """

    server: str
    before: str
    after: str
    seconds: tuple[float, float]
    binding: tuple[tuple[str, ...], tuple[str, ...]]
    tokens: tuple[float, float]
    changed: tuple[Changed, ...]
    same: int


def changes_between(before: Entry, after: Entry) -> Changes:
    """Whose load differs from one plan to another. Both have times."""
    ours, theirs = ({row.name: row for row in one.loads} for one in (before, after))
    found, same = [], 0
    for name in dict.fromkeys([*ours, *theirs]):
        a, b = ours.get(name), theirs.get(name)
        amounts = [0.0 if row is None else row.load for row in (a, b)]
        if abs(amounts[1] - amounts[0]) <= NOISE * max(amounts):
            same += 1
            continue
        times = [0.0 if row is None else row.seconds for row in (a, b)]
        found.append(Changed(name, cast(LoadRow, a or b).unit, *amounts, *times))
    found.sort(key=lambda one: (-abs((one.seconds_after or 0.0) - (one.seconds_before or 0.0)), one.resource))
    return Changes(before.server, before.plan, after.plan, (times_of(before).seconds, times_of(after).seconds),
                   (before.binding, after.binding), (before.tokens, after.tokens), tuple(found), same)
