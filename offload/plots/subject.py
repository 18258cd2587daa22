"""What a figure is of, in words: the plan and the server, the workload, and where each measured mark comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offload.printing import and_text, clean
from offload.ranges import folded, runs
from offload.study import Study

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


def sources(dots: Sequence[Dot]) -> list[str]:
    """A note for each measured mark."""
    return [f"{clean(dot.name)}: {clean(dot.source)}" for dot in dots]
