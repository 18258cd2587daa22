"""What is measured, as values: a figure with all of its repeats and its conditions; what could not be measured.

Units: bytes/s, FLOP/s or seconds. The value of a figure is the median of its repeats, its ends the least and the most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Tell = Callable[[str], None]  # progress, a line at a time


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    about : "memory", "drive", "host" (copies within host memory and between processes), "processor" or "gpu".
    source, destination, access, when, streams, size, depth, threads : as offload.readers.tools.finding.Measured has
    them. repeats : the figure of each run. unit : "B/s", "FLOP/s" or "s". rate : whether it is the rate of a part that
    a topology has; others are facts. format : of FLOP/s, the number format.
    """

    about: str
    source: str
    destination: str
    repeats: tuple[float, ...]
    access: str = ""
    unit: str = "B/s"
    when: str = "alone"
    streams: int = 1
    size: int | None = None
    depth: int | None = None
    threads: int | None = None
    note: str = ""
    rate: bool = True
    format: str = ""

    @property
    def value(self) -> float:
        """The median of the repeats, to four digits, as its ends are."""
        return _rounded(median(self.repeats))

    @property
    def low(self) -> float:
        """The least of the repeats."""
        return _rounded(min(self.repeats))

    @property
    def high(self) -> float:
        """The most of the repeats."""
        return _rounded(max(self.repeats))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "about": self.about, "source": self.source, "destination": self.destination, "access": self.access,
            "value": self.value, "low": self.low, "high": self.high, "unit": self.unit,
            "repeats": [float(f"{one:.6g}") for one in self.repeats],
            "when": self.when, "streams": self.streams, "size": self.size, "depth": self.depth,
            "threads": self.threads, "note": self.note, "rate": self.rate, "format": self.format,
        }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


@dataclass(slots=True)
class Collected:
    """Figures so far, what was not measured and why, and what makes figures doubtful; nothing is told twice."""

    figures: list[Figure] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def add(self, figure: Figure) -> None:
        """One more figure."""
        self.figures.append(figure)

    def left_out(self, what: str, why: str) -> None:
        """Say what is not measured, and why."""
        self.missing[f"{what}: {why}"] = None

    def warn(self, text: str) -> None:
        """Say what makes figures doubtful."""
        self.warnings[text] = None


class Budget:
    """How much of the time is left; None : no end. clock : seconds that only go up."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic):
        self._clock, self._seconds, self._begun = clock, seconds, clock()

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._begun

    def share(self, count: int) -> Budget:
        """One of so many even parts of what is left."""
        return Budget(None if self._seconds is None else max(0.0, self._seconds - self.spent) / count, self._clock)

    def left(self) -> bool:
        """Whether there is time for one thing more."""
        return self._seconds is None or self.spent < self._seconds
