"""What an import has to tell beside the topology: what it wrote, from where, what it assumed, what contradicts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from offload.readers.tools.finding import Finding, Measured, describe_rate
from offload.units import format_rate


@dataclass(frozen=True, slots=True)
class Written:
    """One thing that went into the topology: what (a part or a rate), its value, the file and line."""

    what: str
    value: Any
    origin: str


@dataclass(slots=True)
class Notes:
    """Collected while files are put together, each list in the order in which it was found, nothing twice."""

    written: dict[Written, None] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)
    contradicts: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    not_used: dict[str, None] = field(default_factory=dict)
    _alike: dict[tuple[object, ...], list[str]] = field(default_factory=dict)

    def wrote(self, what: str, value: Any, origin: str) -> None:
        self.written[Written(what, value, origin)] = None

    def assume(self, text: str) -> None:
        self.assumed[text] = None

    def contradict(self, text: str) -> None:
        self.contradicts[text] = None

    def leave_open(self, text: str) -> None:
        self.unknown[text] = None

    def leave_out(self, text: str) -> None:
        self.not_used[text] = None

    def many(self, told: Told, why: str, contradicts: bool = False) -> None:
        """A figure that is not written, and why; of those alike the first is told, and how many more there are."""
        measured = told.measured
        kind = (id(told.finding), measured.access, measured.when, measured.size, measured.note, measured.source,
                measured.destination, why)  # fmt: skip
        self.gather(kind, f"{told.words}: {why}", contradicts)

    def gather(self, kind: tuple[object, ...], text: str, contradicts: bool = False) -> None:
        """A text of a kind: it is the same kind whatever the numbers in it are."""
        plain = (re.sub(r"[0-9]+", "", one) if isinstance(one, str) else one for one in kind)
        self._alike.setdefault((contradicts, *plain), []).append(text)

    def close(self) -> None:
        """Tell what `many` gathered."""
        for (contradicts, *_), texts in self._alike.items():
            more = len(texts) - 1
            text = texts[0] + (f" (and {more} more like it)" if more else "")
            (self.contradicts if contradicts else self.not_used)[text] = None
        self._alike.clear()


def where(finding: Finding, line: int) -> str:
    """Where something stands: "topo.txt:12"; the tool where it was given without a file."""
    return f"{finding.file or finding.tool}:{line}" if line else finding.file or finding.tool


@dataclass(frozen=True, slots=True)
class Told:
    """A measured rate and the finding that it is in."""

    measured: Measured
    finding: Finding

    @property
    def origin(self) -> str:
        return where(self.finding, self.measured.line)

    @property
    def words(self) -> str:
        return f"{self.origin}: {describe_rate(self.measured)}: {format_rate(self.measured.rate)}"
