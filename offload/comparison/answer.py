"""A comparison as plain data for a program; null stands for what is not known or cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offload import __version__
from offload.comparison.changes import Changes
from offload.comparison.entries import Entry
from offload.comparison.orders import Measure, Pair
from offload.comparison.ranking import Comparison
from offload.comparison.readings import Reading

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away


def comparison_to_json(found: Comparison) -> dict[str, Any]:
    """A comparison as plain data. Times in [s], sizes in [B], rates in [B/s] and [FLOP/s]."""
    costs = [*found.costs, *[None] * len(found.rest)]
    pairs = [*found.pairs, *[None] * (len(found.rest) + 1)]
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "by": found.by,
        "unit": found.unit,
        "certain": found.certain,
        "meters": [_meter(one) for one in found.meters],
        "entries": [
            {"rank": rank + 1 if rank < len(found.ranked) else None, **_entry(entry), "ranked_by": _ends(cost),
             "next": None if pair is None else _pair(pair)}
            for rank, (entry, cost, pair) in enumerate(zip([*found.ranked, *found.rest], costs, pairs, strict=False))
        ],
        "changes": [_changes(one) for one in found.changes],
    }  # fmt: skip


def _meter(meter: Any) -> dict[str, Any]:
    terms = [{"written": one.written, "per": one.per, "of": one.of or None} for one in meter.terms]
    return {"name": meter.name, "unit": meter.unit, "terms": terms, "written_to": meter.drive or None,
            "endurance": meter.endurance, "stated": meter.stated or None}  # fmt: skip


def _entry(entry: Entry) -> dict[str, Any]:
    expected = entry.expected
    return {
        "plan": entry.plan,
        "server": entry.server,
        "state": entry.state,
        "why": entry.why or None,
        "title": entry.title or None,
        "server_title": entry.server_title or None,
        "names": dict(entry.names),
        "notes": entry.notes,
        "floor": None if entry.floor is None else entry.floor.seconds,
        "floor_binding": list(entry.floor_binding),
        "exact": entry.exact,
        "expected": None if expected is None else _ends((expected.low, expected.seconds, expected.high)),
        "binding": list(entry.binding),
        "tokens_per_step": entry.tokens if entry.memory or entry.fits else None,
        "tokens_per_s": _ends(entry.tokens_per_s),
        "memory": [{"name": one.name, "capacity": one.capacity, "used": one.used, "free": one.free,
                    "missing": one.missing} for one in entry.memory],
        "loads": [{"name": one.name, "unit": one.unit, "load": one.load, "seconds": one.seconds}
                  for one in entry.loads],
        "meters": [_reading(one) for one in entry.readings],
    }  # fmt: skip


def _ends(ends: Sequence[float] | None) -> dict[str, float] | None:
    return None if ends is None else dict(zip(("low", "value", "high"), ends, strict=True))


def _reading(one: Reading) -> dict[str, Any]:
    wear = one.wear
    return {
        "name": one.name,
        "unit": one.unit,
        "why": one.why or None,
        "per_step": _ends(one.per_step),
        "per_token": _ends(one.per_token),
        "per_million_tokens": _ends(one.per_million_tokens),
        "terms": [{"written": term.written, "of": term.of or None, "per_step": _ends(term.per_step)}
                  for term in one.terms],
        "uncounted": list(one.uncounted),
        "wear": None if wear is None else {
            "drive": wear.drive, "drives": wear.drives, "endurance": wear.endurance, "tokens_until_worn": wear.tokens,
            "seconds_until_worn": _ends(wear.seconds),
        },
    }  # fmt: skip


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "plan": pair.second[0],
        "server": pair.second[1],
        "margin": pair.margin,
        "order": pair.order,
        "common_figures": pair.common,
        "sought": pair.sought,
        "measure": None if pair.measure is None else _measure(pair.measure),
    }


def _measure(one: Measure) -> dict[str, Any]:
    return {
        "of": [{"plan": plan, "server": server, "names": list(names)} for plan, server, names in one.sides],
        "what": one.what,
        "unit": one.unit if one.what == "load" or one.unit == "s" else f"{one.unit}/s",
        "low": one.low,
        "high": one.high,
        "first_if": None if one.first is None else {"low": one.first[0], "high": one.first[1]},
        "second_if": None if one.second is None else {"low": one.second[0], "high": one.second[1]},
        "settles": one.settles,
    }


def _changes(one: Changes) -> dict[str, Any]:
    return {
        "server": one.server,
        "from": one.before,
        "to": one.after,
        "expected": list(one.seconds),
        "binding": [list(names) for names in one.binding],
        "tokens_per_step": list(one.tokens),
        "changed": [{"resource": row.resource, "unit": row.unit, "before": row.before, "after": row.after,
                     "difference": row.difference, "seconds_before": row.seconds_before,
                     "seconds_after": row.seconds_after} for row in one.changed],
        "same": one.same,
    }  # fmt: skip
