"""What is to be told beside an answer: assumed, contradicting, unknown; each in the order found, nothing twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from offload.readers.engines.run import Run


@dataclass(slots=True)
class Notes:
    """Collected while a run becomes a plan. taken : what the plan says, with the line of the log that says it."""

    taken: dict[tuple[str, str, int], None] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)
    contradicts: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)

    def took(self, what: str, value: object, line: int) -> None:
        """What went into the plan, from which line (0: none)."""
        self.taken[what, str(value), line] = None

    def assume(self, text: str) -> None:
        """What the log does not say and was taken for granted, by its name."""
        self.assumed[text] = None

    def contradict(self, text: str) -> None:
        """What the log says and something else that is said otherwise."""
        self.contradicts[text] = None

    def leave_open(self, text: str) -> None:
        """What nothing says, and is not counted."""
        self.unknown[text] = None


def notes_of(run: Run) -> Notes:
    """Notes with what the reader of the log had to tell."""
    notes = Notes()
    for text in run.assumed:
        notes.assume(text)
    for text in run.odd:
        notes.contradict(text)
    for text in run.unknown:
        notes.leave_open(text)
    return notes
