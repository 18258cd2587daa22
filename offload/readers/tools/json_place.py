"""The lines of texts within a JSON value that stands in a tool's output."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from offload.readers.tools.text import Text

QUOTED = re.compile(r'"(?=([^"\\\n]{1,200})")')  # what stands between any two quotation marks that follow each other


@dataclass(frozen=True, slots=True)
class Place:
    """A JSON value that starts at a line of a text."""

    text: Text
    line: int

    def of(self, *texts: object) -> int:
        """The line of the last of some quoted texts, each looked for behind the one before; the value's own if absent.

        Texts are found as JSON writes them without escapes, up to 200 characters long.
        """
        index, at = self.text.once("quoted", lambda: _quoted(self.text.whole)), self.text.start_of(self.line)
        for one in texts:
            places = index.get(one, []) if isinstance(one, str) else []
            place = bisect_left(places, at)
            if place == len(places):
                return self.line
            at = places[place]
        return self.text.line_of(at)


def _quoted(whole: str) -> dict[str, list[int]]:
    """Where each quoted text begins."""
    found: dict[str, list[int]] = {}
    for quoted in QUOTED.finditer(whole):
        found.setdefault(quoted[1], []).append(quoted.start())
    return found
