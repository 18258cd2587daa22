"""One doubt, and the kinds there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offload.topology import Memory

CODES = {  # stable: scripts name them
    "both-directions": "a link's rate is a figure that data sheets print for both directions together",
    "idle-link": "a PCIe link is as slow as an idle one reports itself, or as narrow as a riser",
    "line-rate": "a link or a memory is said to sustain its peak, which nothing measured does",
    "pageable": "a GPU's PCIe link sustains so little that its copies were not from pinned memory",
    "counted-once": "a memory sustains less than half of its peak, as a copy counted once or one thread does",
    "above-card": "a link or a memory is faster than that of the card that is named",
    "gpu-ports": "each of several links of a GPU has the rate of all its links together",
    "socket-lanes": "more PCIe lanes leave a socket than it has",
    "mig-slices": "a slice of a GPU has the memory rate or the PCIe link of the whole card",
    "dram-rate": "host memory is faster than any platform's channels",
    "dram-speed": "memory channels run faster than any module, or than the one that is named",
    "dram-channels": "more memory channels than a socket has",
    "dram-uneven": "modules do not fill a socket's channels alike, or not those of both sockets",
    "no-numa": "it is not said at which of several sockets host memory is",
    "sockets-apart": "nothing can be moved between two host memories",
    "above-link": "a drive, or a stripe of drives, is faster than the links behind it",
    "shared-uplink": "drives are together faster than a link that all of them pass",
    "raid": "a set of drives is no plain stripe, or has the rate of the whole set for each drive",
    "one-rate": "a drive has one rate for reads and writes",
    "unified-twice": "one memory that GPU and CPU share seems to be drawn as two",
    "not-for-sale": "figures of what is not for sale yet: results that use them are a what-if",
    "no-way": "nothing can be moved between a GPU's memory, or a drive, and any other memory",
    "no-kind": "a direct link between two GPUs is of no kind, so that copies between them do not take it",
    "parallel-links": "two links join the same two nodes, and a copy takes one of them",
    "sparse-flops": "a FLOP rate is a figure that data sheets print with sparsity",
    "unit-slip": "a figure is far from any of its kind: a wrong unit, ms for us",
    "bits-bytes": "a rate or a size is in bits where bytes are usual, or the other way round",
    "percent": "a percentage below 1 %: a share with a percent sign",
    "billions": "a size of a few bytes: billions of parameters",
    "does-not-fit": "the plan needs more memory than there is",
    "moved-for-nothing": "what is moved each step would fit where it is moved to",
    "drive-for-nothing": "what is read from a drive each step would fit in host memory",
    "same-bytes-again": "one copy of a tensor is moved again in each repetition",
    "kv-for-nothing": "keys and values lie elsewhere, and would fit where their layers run",
    "kv-fat": "keys and values of a model without grouped heads are moved",
    "through-host": "a copy between GPUs passes host memory, though a direct way joins them",
    "no-latency": "many small copies go over links that have no latency",
    "one-buffer": "a single buffer: the next copy waits for the layer that uses the last one",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing that is probably not meant.

    place : where a file declares what it is about, as keys from the top: ("links", "pcie0"). says : the figure and what
    it suggests. meant : what to write, or that nothing need be, where it is meant. key : the keys below the place whose
    value is doubted, ("rate", "peak"); empty where it is the whole part.
    """

    code: str
    place: tuple[str, ...]
    says: str
    meant: str
    key: tuple[str | int, ...] = ()

    @property
    def part(self) -> str:
        """The name of what it is about."""
        return self.place[-1]


KEPT = "keep it, with its source."


def unlike(memories: Iterable[Memory]) -> list[Memory]:
    """The first of those with the same kind, size, count and peak: racks have thousands alike, and pairs are many."""
    found: dict[tuple[object, ...], Memory] = {}
    for one in memories:
        found.setdefault((one.kind, one.capacity, one.count, one.rate.peak if one.rate else None), one)
    return list(found.values())
