"""How many requests fit against how long each is: the values of a figure, each the budget evaluated again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, cast

from offload.errors import ModelError, PlotError
from offload.memory import SHARE, Memory
from offload.models.cache import blocks_of
from offload.models.levers import changes, longest_context, most_requests
from offload.models.serving import Serving, serving_budget
from offload.units import format_bytes

POINTS = 48
STAIRS = 8  # so few requests fall in steps that are seen
FURTHEST = 10**7  # positions that are drawn where nothing ends the curve


@dataclass(frozen=True, slots=True)
class Fit:
    """How many requests of a length fit, on the tightest rank."""

    length: int
    requests: int


@dataclass(frozen=True, slots=True)
class FitCurve:
    """Requests that fit, each of the same length, in one KV format: exact at every point, drawn straight between.

    endless : no length ends it, as nothing of a request grows without end; from the last point on it is level.
    """

    format: str
    points: tuple[Fit, ...]
    endless: bool = False


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A figure's values. curves : of the KV format now, and of fp8 where that changes a count. marks : lengths that
    were asked about, (name, length). admitted : at the mean length, by risk; None without. limit : the model's own
    context.
    """

    curves: tuple[FitCurve, ...]
    marks: tuple[tuple[str, int], ...]
    admitted: Fit | None
    asked: Fit | None
    limit: int | None


def concurrency_of(answer: Memory) -> Concurrency:
    """The values of the figure of an answer. Raises PlotError where nothing fits, or requests keep nothing."""
    now = answer.serving
    served = [now]
    for _, values in changes(now):
        if "format" in values:
            try:
                setting: dict[str, Any] = values
                served.append(replace(now, **setting))
                serving_budget(served[-1])
            except ModelError:  # blocks of the format do not divide a head
                served.pop()
    lengths = answer.lengths
    named = [("mean", max(1, round(lengths.mean))), ("99 %", lengths.quantile(SHARE))]
    if answer.alike:
        named = [("length", cast(int, lengths.largest))]
    elif lengths.kind == "list":
        named = [("mean", max(1, round(lengths.mean))), ("longest", cast(int, lengths.largest))]
    elif lengths.kind == "lognormal":
        named[0] = ("median", lengths.quantile(0.5))
    first = max(now.shared_prefix + 1, min(64, *(length // 2 or 1 for _, length in named)))
    admitted = asked = None
    if answer.by_risk is not None:
        admitted = Fit(max(1, ceil(lengths.mean)), answer.by_risk.requests)
    if answer.asked is not None and answer.alike:
        asked = Fit(cast(int, lengths.largest), answer.asked)
    curves = tuple(_curve(one, first, answer.model.max_positions, named) for one in served)
    if not curves[0].points:
        lacking = -answer.budget.tightest.left
        why = f"{format_bytes(lacking)} too much is taken" if lacking >= 0 else "not one short request fits"
        raise PlotError(f"no figure: nothing fits ({why}). Give more memory, or smaller weights.")
    shown = (curves[0], *(one for one in curves[1:] if one.points and one.points != curves[0].points))
    return Concurrency(shown, tuple(named), admitted, asked, answer.model.max_positions)


def _curve(serving: Serving, first: int, limit: int | None, named: list[tuple[str, int]]) -> FitCurve:
    last = longest_context(serving)
    endless = last is None
    if last is None:
        longest = 2 * max(length for _, length in named)
        last = max(longest, min(FURTHEST, 2 * (limit or FURTHEST)))
    if last < first:
        return FitCurve(serving.format, ())
    lengths = {first, last, *(length for _, length in named if first <= length <= last)}
    evenly = (round(first * (last / first) ** (index / POINTS)) for index in range(1, POINTS))
    lengths |= {min(last, blocks_of(length, serving.block) * serving.block) for length in evenly}  # the most of a block
    found: dict[int, int] = {}
    for length in sorted(lengths):
        count = most_requests(serving, length)
        if count is None:
            raise PlotError("no figure: the model keeps nothing of a request, so any number fits.")
        found[length] = count
    for count in range(1, STAIRS):  # the last length at which so many fit, and the one after it
        ends = [length for length in sorted(found) if found[length] >= count]
        beyond = [length for length in sorted(found) if found[length] < count]
        if ends and beyond:
            low, high = ends[-1], beyond[0]
            while high - low > 1:
                middle = (low + high) // 2
                number = cast(int, most_requests(serving, middle))
                low, high = (middle, high) if number >= count else (low, middle)
            found[low], found[high] = (cast(int, most_requests(serving, length)) for length in (low, high))
    points = tuple(Fit(length, found[length]) for length in sorted(found) if found[length])
    return FitCurve(serving.format, points, endless)


def concurrency_to_json(found: Concurrency) -> dict[str, Any]:
    """The key `plot` of an answer."""
    return {
        "curves": [{"format": one.format, "points": [[fit.length, fit.requests] for fit in one.points]}
                   for one in found.curves],
        "marks": [{"name": name, "length": length} for name, length in found.marks],
        "admitted": None if found.admitted is None else asdict(found.admitted),
        "asked": None if found.asked is None else asdict(found.asked),
        "limit": found.limit,
    }  # fmt: skip
