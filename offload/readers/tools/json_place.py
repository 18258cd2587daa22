"""The lines of texts within a JSON value that stands in a tool's output."""

from __future__ import annotations

from dataclasses import dataclass

from offload.readers.tools.text import Text


@dataclass(frozen=True, slots=True)
class Place:
    """A JSON value that starts at a line of a text."""

    text: Text
    line: int

    def of(self, *texts: object) -> int:
        """The line of the last of some quoted texts, each looked for behind the one before; the value's own if absent.

        Texts are found as JSON writes them without escapes.
        """
        whole, at = self.text.whole, 0
        for _ in range(self.line - 1):
            at = whole.find("\n", at) + 1
        for one in texts:
            at = whole.find(f'"{one}"', at)
            if at < 0:
                return self.line
        return self.text.line_of(at)
