"""What `offload measure --json` prints: rates of memories, drives and links, each with its repeats and conditions.

Units are bytes/s, FLOP/s and seconds throughout. Copies within host memory and between processes, figures through the
page cache and FLOP/s are facts: no memory and no link of a topology has them as its rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from offload.errors import ReadingError
from offload.readers.tools.finding import Delay, Fact, Finding, Measured, describe_rate
from offload.readers.tools.text import Text
from offload.units import many

LOOKS_LIKE = "offload measure --json"
SIGN = re.compile(r'"offload_measure"\s*:')
FORMAT = 1
ENDS = re.compile(r"(?:(?:gpu|numa|drive)\d{1,4}|drive|host|process|cpus|gpus|hosts|drives)")
WHEN = ("alone", "together", "both directions")
ACCESS = ("", "read", "write", "copy", "mixed", "gemv", "pinned", "pageable", "zero_copy")
UNITS = ("B/s", "FLOP/s", "s")


def is_it(text: Text) -> bool:
    """Whether a measurement of ours stands in the text."""
    return SIGN.search(text.whole) is not None


def read(text: Text) -> Finding:
    """The figures of a measurement. Raises ReadingError for JSON that is cut, another format or no figure in it."""
    found = [(line, value) for line, value in text.json_values("offload_measure") if isinstance(value, dict)]
    if not found:
        raise ReadingError("looks like offload measure --json, but the JSON is not whole. Give all of it.")
    if len(found) > 1:
        raise ReadingError(f"holds {len(found)} measurements. Give each as a file of its own.")
    line, data = found[0]
    lines = [one.number for one in text if one.number >= line and re.match(r'\s*"about":', one.text)]
    return finding_of(data, lines)


def finding_of(data: Mapping[str, Any], lines: list[int] | None = None) -> Finding:
    """The same of the data itself. lines : where each figure stands. Raises ReadingError."""
    if data.get("offload_measure") != FORMAT:
        raise ReadingError(f"is of a format that this version does not read; measure again (format {FORMAT} is read).")
    figures = data.get("figures")
    given = figures if isinstance(figures, list) else []
    at = lines if lines is not None and len(lines) == len(given) else [0] * len(given)
    rates: list[Measured] = []
    delays: list[Delay] = []
    facts: list[Fact] = []
    odd: list[str] = []
    for place, figure in zip(at, given, strict=True):
        try:
            one = _figure(figure, place)
        except ValueError as error:
            odd.append(f"line {place}: a figure {error}, left out.")
            continue
        if isinstance(one, Measured):
            rates.append(one)
        elif isinstance(one, Delay):
            delays.append(one)
        else:
            facts.append(one)
    if not (rates or delays or facts):
        raise ReadingError(f"is a measurement without a figure. {' '.join(odd)}".strip())
    for number, model in enumerate(data.get("gpus") or ()):
        facts.append(Fact(f"model of gpu{number}", str(model)[:100]))
    day, mode = data.get("date"), data.get("mode")
    said = [f"of {day}"] if isinstance(day, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", day) else []
    runs = {len(one["repeats"]) for one in given if isinstance(one, dict) and isinstance(one.get("repeats"), list)}
    if mode in ("quick", "thorough") and runs:
        said.append(f"({mode}, {'' if len(runs) == 1 else f'{min(runs)} to '}{many(max(runs), 'run')})")
    warned = data.get("warnings")
    odd += [str(one)[:300] for one in warned if isinstance(one, str)] if isinstance(warned, list) else []
    return Finding(" ".join(["offload measure", *said]), rates=tuple(rates), delays=tuple(delays), facts=tuple(facts),
                   odd=tuple(odd))  # fmt: skip


def _figure(figure: Any, line: int) -> Measured | Delay | Fact:
    """One figure; raises ValueError that says what is wrong with it."""
    if not isinstance(figure, dict):
        raise ValueError("is no map")
    value, low, high = (_number(figure, key) for key in ("value", "low", "high"))
    if not low <= value <= high:
        raise ValueError("has ends that are not around its value")
    source, destination = _end(figure.get("source")), _end(figure.get("destination"))
    unit, when, access = figure.get("unit"), figure.get("when", "alone"), figure.get("access", "")
    if unit not in UNITS or when not in WHEN or access not in ACCESS:
        raise ValueError("has a unit, a kind of access or a condition that is not known")
    note = str(figure.get("note", ""))[:200]
    counts = {key: _count(figure, key) for key in ("size", "depth", "threads")}
    rate = Measured(source, destination, value, access, when, counts["size"], counts["depth"],
                    _count(figure, "streams") or 1, low=low, high=high, note=note, line=line,
                    threads=counts["threads"])  # fmt: skip
    if unit == "s":
        return Delay(source, destination, value, when, note, line)
    if unit == "FLOP/s":
        return Fact(f"FLOP/s in {str(figure.get('format', ''))[:8]}, {note}", value, "FLOP/s", line)
    if figure.get("rate") is not True:
        return Fact(", ".join(filter(None, (describe_rate(rate), note))), value, "B/s", line)
    return rate


def _end(name: Any) -> str:
    if not isinstance(name, str) or not ENDS.fullmatch(name):
        raise ValueError("has an end that is not known")
    return name


def _number(figure: Mapping[str, Any], key: str) -> float:
    value = figure.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"has no {key} above 0")
    return float(value)


def _count(figure: Mapping[str, Any], key: str) -> int | None:
    value = figure.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 2**60:
        raise ValueError(f"has a {key} that is no whole number above 0")
    return value
