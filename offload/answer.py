"""A study as plain data for a program: versioned keys, plain units, and no number that JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from offload import __version__
from offload.bounds import Floor, Term
from offload.capacity import Room
from offload.curves import Curve, Piece, Point
from offload.explain import Buffers, Explanation, GivenTerm, Part, Sum, Summand, Work
from offload.intervals import Figure, Open
from offload.kv_tiers import HandOver, Hit
from offload.measured import Standing
from offload.passed import Passed
from offload.requests import Generation, Regime, Times
from offload.step import Movement
from offload.study import ResourceRow, Study
from offload.training import TierNeed, TierTraffic, TrainingTimes

if TYPE_CHECKING:
    from offload.rerouting import AnyRoutes

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away


def to_json(study: Study) -> dict[str, Any]:
    """The study as plain data with versioned keys; a number that is not finite becomes null.

    Bytes, seconds, bytes/s, FLOP and FLOP/s throughout. `seconds` is the period of back-to-back steps.
    """
    floor, sustained, tokens = study.floor, study.floor_sustained, study.tokens_per_s
    then = study.next_bottleneck
    return _plain_map(
        {
            **_answer_head(study),
            "floor": _bound(floor),
            "floor_sustained": {**_bound(sustained), "of_mean": study.of_mean},
            "serial": _times(study.serial, "seconds", "cold_seconds"),
            "overlapped": _times(study.overlapped, "seconds", "low", "high", "cold_seconds", "policy"),
            "hideable_share": study.hideable_share,
            "hideable_among_transfers": study.hideable_among_transfers,
            "tokens_per_s": _fields(tokens, "floor", "overlapped", "serial", "per_sequence"),
            "passed": [_fields(row, *Passed.__dataclass_fields__) for row in study.passed],
            "open": _open(study.open),
            "request": _request(study.request),
            "hit": None if study.hit is None else _fields(study.hit, *Hit.__dataclass_fields__),
            "hand_over": None if study.hand_over is None else _fields(
                study.hand_over, *HandOver.__dataclass_fields__),
            "training": _training(study.training),
            "resources": [_fields(row, *ResourceRow.__dataclass_fields__) for row in study.resources],
            "memory": _memory(study),
            "first_limit": study.first_limit,
            "room": _room(study),
            "next_bottleneck": None if then is None else {"name": then.name, "gain": then.gain},
            "changes": [_fields(change, "what", "seconds", "gain", "floor_seconds") for change in study.changes],
            "not_modelled": study.not_modelled,
            "assumptions": study.assumptions,
            "uncounted": study.uncounted,
        }
    )


def _times(times: Any, *names: str) -> dict[str, Any]:
    """Times by name; null where they are 0: no rate that the step needs is known, as of a bound."""
    found = _fields(times, *names)
    if times.seconds > 0:
        return found
    return {name: None if isinstance(value, float | int) else value for name, value in found.items()}


def _open(found: Open | None) -> dict[str, Any] | None:
    if found is None:
        return None
    left = found.measure
    return {
        "figures": [_figure(one) for one in found.figures],
        **{name: dict(zip(("low", "high"), getattr(found, name), strict=True))
           for name in ("expected", "floor_sustained", "serial")},
        "may_bind": list(found.may_bind),
        "measure": None if left is None else {**_figure(left.figure), **_fields(left, "low", "high", "binding")},
    }  # fmt: skip


def _figure(figure: Figure) -> dict[str, Any]:
    interval = figure.interval
    ends = {"low": interval.low, "value": interval.value, "high": interval.high}
    return {"names": list(figure.names), "accesses": list(figure.accesses), "unit": figure.unit,
            "load" if figure.load else "rate": ends}  # fmt: skip


def measured_to_json(standing: Standing) -> dict[str, Any]:
    """How a measurement stands, as plain data; shares are of time: floor or expected time over the measured one."""
    names = ("text", "seconds", "tokens_per_s", "per_sequence", "floor_share", "expected_share")
    other = standing.other_reading
    reading = None if other is None else {"rate_is_of": other[0], "seconds": other[1]}
    return _plain_map({
        **_fields(standing, *names),
        "of": standing.of or None,
        "serial_slow_seconds": standing.slow,
        "verdict": standing.verdict,
        "other_reading": reading,
        "causes": standing.causes,
    })


def refusal_to_json(study: Study) -> dict[str, Any]:
    """The answer for a plan that does not fit: `fits` is false and every time is absent."""
    return _plain_map(
        {
            **_answer_head(study),
            "memory": _memory(study),
            "first_limit": study.first_limit,
            "room": _room(study),
            "not_modelled": study.not_modelled,
            "assumptions": study.assumptions,
        }
    )


def curve_to_json(curve: Curve) -> dict[str, Any]:
    """The times of a step over the peak rate of one link or memory: rates [B/s], times [s]."""
    return _plain_map(
        {
            **_fields(curve, "over", "rate", "scaled", "policy"),
            "points": [_fields(point, *Point.__dataclass_fields__) for point in curve.points],
            "pieces": [_fields(piece, *Piece.__dataclass_fields__) for piece in curve.pieces],
        }
    )


def explanation_to_json(explanation: Explanation) -> dict[str, Any]:
    """Every term of an answer; a summand names its task by its number in `tasks`, from 0."""
    tasks = [
        {
            **_fields(task, "name", "transfer", "runs_on", "count", "every", "links", "latency", "seconds", "longest"),
            "moved": [_movement(part) for part in task.moved],
            "work": [_fields(work, *Work.__dataclass_fields__) for work in task.work],
        }
        for task in explanation.tasks
    ]
    sums = [
        {
            **_fields(one, *Sum.__dataclass_fields__),
            "terms": [_fields(term, *Summand.__dataclass_fields__) for term in one.terms],
            "parts": [_fields(part, *Part.__dataclass_fields__) for part in one.parts],
        }
        for one in explanation.sums
    ]
    waits = [
        {
            **_fields(waiting, "task", "on", "streams"),
            "before": [{"task": name, "steps": steps} for name, steps in waiting.before],
        }
        for waiting in explanation.waits
    ]
    return _plain_map(
        {
            "tasks": tasks,
            "sums": sums,
            "queues": [{"name": name, "count": count} for name, count in explanation.queues],
            "waits": waits,
            "buffers": [_fields(slots, *Buffers.__dataclass_fields__) for slots in explanation.buffers],
            "estimates": [_fields(given, *GivenTerm.__dataclass_fields__) for given in explanation.estimates],
        }
    )


def routes_to_json(routes: AnyRoutes) -> dict[str, Any]:
    """The load floor over any routes, as plain data; null times where nothing is proved."""
    proved = routes.seconds > 0
    return _plain_map(
        {
            "seconds": routes.seconds if proved else None,
            "attained_seconds": routes.attained if proved else None,
            **_fields(routes, "exact", "gap", "fixed_seconds"),
            "prices": [_fields(price, "resource", "unit", "share", "seconds_per_rate") for price in routes.prices],
            "cut": routes.cut,
            "full": routes.full,
            "splits": [
                {
                    **_fields(split, "what", "bytes"),
                    "from": split.source,
                    "to": split.destination,
                    "parts": [_fields(part, "way", "bytes", "planned") for part in split.parts],
                }
                for split in routes.splits
            ],
        }
    )


def _movement(part: Movement) -> dict[str, Any]:
    return {**_fields(part, "what", "bytes", "runs_on"), "from": part.source, "to": part.destination}


def _answer_head(study: Study) -> dict[str, Any]:
    moves = [
        {
            "what": move.what,
            "bytes": move.bytes,
            "from": move.source,
            "to": move.destination,
            "every": move.every,
            "count": move.count,
            "runs_on": move.runs_on,
        }
        for move in study.moves
    ]
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "title": study.title,
        "topology": study.topology,
        "topology_title": study.topology_title,
        "workload": study.workload,
        "fits": study.fits,
        "moves": moves,
    }


def _bound(floor: Floor) -> dict[str, Any]:
    keys = ("seconds", "rule", "bottleneck", "load_seconds", "cycle_seconds", "cold_seconds", "spared_seconds")
    terms = [_fields(term, *Term.__dataclass_fields__) for term in floor.terms]
    bound = {**_fields(floor, *keys), "in_flight": floor.in_flight, "terms": terms}
    if floor.seconds <= 0:  # nothing is proved: no resource that the step loads has a known rate
        bound |= dict.fromkeys(("seconds", "load_seconds", "cycle_seconds", "cold_seconds"))
    return bound


def _request(request: Generation | None) -> dict[str, Any] | None:
    if request is None:
        return None
    parts = {name: None if (times := getattr(request, name)) is None else _fields(times, *Times.__dataclass_fields__)
             for name in ("prefill", "drafted", "decode", "total", "without_speculation")}  # fmt: skip
    keys = ("prompt", "steps", "first_context", "last_context", "tokens", "tokens_per_s", "rule", "bottleneck",
            "chunks", "prompt_tokens", "prompt_tokens_per_s", "time_per_token", "rounds", "least_rounds")
    regimes = [_fields(one, *Regime.__dataclass_fields__) for one in request.regimes]
    return {**_fields(request, *keys), **parts, "regimes": regimes}


def _training(times: TrainingTimes | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        **_fields(times, *TrainingTimes.__dataclass_fields__),
        "traffic": [_fields(one, *TierTraffic.__dataclass_fields__) for one in times.traffic],
        "needs": [_fields(one, *TierNeed.__dataclass_fields__) for one in times.needs],
    }


def _room(study: Study) -> list[dict[str, Any]]:
    return [_fields(one, *Room.__dataclass_fields__) for one in study.room]


def _memory(study: Study) -> list[dict[str, Any]]:
    return [_fields(row, "name", "capacity", "used", "parts", "missing", "missing_at_mean") for row in study.memory]


def _fields(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _plain_map(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): _plain(item) for key, item in value.items()}


def _plain(value: Any) -> Any:
    """Only what JSON has: maps, lists, text, true and false, whole and finite numbers, null."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Mapping):
        return _plain_map(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
