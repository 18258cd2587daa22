"""Plans and servers side by side: ranked, with what fits, how sure the order is, what differs, and meters.

`entries` evaluates one plan on one server, `readings` its meters, `orders` whether the order of two is certain and
which measurement would settle it (`sides` and `proofs` below it), `changes` whose load differs, and `ranking` puts them
together. `efforts` says what that takes, `halves` shares it out between processes.
"""

from offload.comparison.changes import Changed, Changes, changes_between
from offload.comparison.entries import Candidate, Entry, LoadRow, MemoryUse
from offload.comparison.orders import Measure, Pair
from offload.comparison.ranking import BY, Comparison, compare
from offload.comparison.readings import Reading, Summand, Wear

__all__ = [
    "BY",
    "Candidate",
    "Changed",
    "Changes",
    "Comparison",
    "Entry",
    "LoadRow",
    "Measure",
    "MemoryUse",
    "Pair",
    "Reading",
    "Summand",
    "Wear",
    "changes_between",
    "compare",
]
