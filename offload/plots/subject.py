"""What a figure is of, in words: the plan and the server, the workload, and where each measured mark comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offload.printing import and_text, clean
from offload.ranges import fold, folded, runs
from offload.study import Study
from offload.units import format_seconds

TOLD = ("batch", "prompt", "generate", "context", "tokens")


@dataclass(frozen=True, slots=True)
class Dot:
    """Something measured. x : where on the axis, in plain units; seconds : of a step; source : who says so."""

    x: float
    seconds: float
    name: str
    source: str


def machine(title: str, name: str) -> str:
    """A server by its title and name."""
    return f"{title} ({name})" if title and name and title != name else title or name


def subject(study: Study | None) -> str:
    """The plan on its server; nothing where none is told."""
    if study is None:
        return ""
    return f"{study.title}, on {machine(study.topology_title, study.topology)}"


def without(title: str, paths: Sequence[str]) -> str:
    """A title without the values that are swept, by the paths of the axes."""
    for path in paths:
        name = re.escape(path.rpartition(".")[2])
        title = re.sub(rf", {name} [^ ,]+", "", title)
    return title


def workload(values: Any) -> str:
    """A workload in words."""
    words = [str(values["phase"])] if "phase" in values else []
    words += [f"{key} {values[key]}" for key in TOLD if values.get(key) is not None]
    return ", ".join(words)


def alike(names: Sequence[str]) -> str:
    """Resources in few words: those that are alike as one range ("gpu0..71")."""
    return clean(and_text([folded(run) for run in runs(names)]))


def at_least(uncounted: Sequence[str], seconds: float, word: str = "at least") -> str:
    """An expected time; where much of a step goes by parts without a rate, which are given, it is only a least one."""
    return f"{word} {format_seconds(seconds)}" if uncounted else format_seconds(seconds)


def without_rate(uncounted: Sequence[str]) -> str:
    """That no rate of some parts is known, as the end of a sentence."""
    return f"no rate is known of {clean(fold(uncounted))}"


def left_out(uncounted: Sequence[str]) -> list[str]:
    """A note that tells parts without a rate by which much of a step goes, where there are some."""
    if not uncounted:
        return []
    return [f"No time here counts {clean(fold(uncounted))}, whose rate is unknown: a step may take far longer"]


def sources(dots: Sequence[Dot]) -> list[str]:
    """A note for each measured mark."""
    return [f"{_begin(clean(dot.name))}: {clean(dot.source)}" for dot in dots]


def _begin(name: str) -> str:
    """A name at the begin of a note: of a measurement that has no other with a capital."""
    return name.capitalize() if name.startswith("measured") else name
