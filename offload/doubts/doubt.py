"""One doubt, and the kinds there are."""

from __future__ import annotations

from dataclasses import dataclass

CODES = {  # stable: scripts name them
    "both-directions": "a link's rate is a figure that data sheets print for both directions together",
    "idle-link": "a GPU's PCIe link is as slow as an idle one reports itself, or as narrow as a riser",
    "line-rate": "a link or a memory is said to sustain its peak, which nothing measured does",
    "dram-rate": "host memory is faster than any platform's channels",
    "dram-speed": "memory channels run faster than any module",
    "dram-channels": "more memory channels than a socket has",
    "above-link": "a drive, or a stripe of drives, is faster than the links behind it",
    "unified-twice": "one memory that GPU and CPU share seems to be drawn as two",
    "not-for-sale": "figures of what is not for sale yet: results that use them are a what-if",
    "no-way": "nothing can be moved between a memory and a GPU's",
    "no-kind": "a direct link between two GPUs is of no kind, so that copies between them do not take it",
    "does-not-fit": "the plan needs more memory than there is",
    "moved-for-nothing": "what is moved each step would fit where it is moved to",
    "drive-for-nothing": "what is read from a drive each step would fit in host memory",
    "same-bytes-again": "one copy of a tensor is moved again in each repetition",
    "kv-for-nothing": "keys and values lie elsewhere, and would fit where their layers run",
    "kv-fat": "keys and values of a model without grouped heads are moved",
    "through-host": "a copy between GPUs passes host memory, though a direct way joins them",
    "one-buffer": "a single buffer: the next copy waits for the layer that uses the last one",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing that is probably not meant.

    place : where a file declares what it is about, as keys from the top: ("links", "pcie0"). says : the figure and what
    it suggests. meant : what to write, or that nothing need be, where it is meant.
    """

    code: str
    place: tuple[str, ...]
    says: str
    meant: str

    @property
    def part(self) -> str:
        """The name of what it is about."""
        return self.place[-1]
