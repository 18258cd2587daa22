"""A page cache that is smaller than a mixture's file: which pages of chosen experts are there when a step wants them.

A step touches all that is no expert, and of each layer the experts that its tokens choose. LRU keeps what was touched
last: of whole steps as many as fit, since a tensor comes round once a step. So an expert is there where one of these
steps chose it. With a chance q that a step touches it, each by itself (Che's approximation, whose reach is here a
number of steps), n steps touch the sum of 1 - (1 - q)^n experts, and a step reads again the sum of q (1 - q)^n of them.
Where not even one step's pages fit, all that it touches is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from offload.designs.homes import reads_in_place
from offload.designs.parts import Part, Piece
from offload.designs.placement import Experts, memories_of
from offload.designs.routing import Routing, touch_chances
from offload.errors import PlanError
from offload.models import Layer
from offload.ranges import listed
from offload.topology import Topology

if TYPE_CHECKING:
    from offload.designs.page_cache import Cached

KEY = "placement.page_cache"
MOST_STEPS = 1 << 20  # that are tried: what so many do not touch is never chosen


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a step touches of a file of which tokens choose a part, and how much of it LRU keeps.

    dense : bytes that every step touches, by drive. experts : of each kind of layer, (experts, of a token), the bytes
    of one expert in all of its layers. surely : what a step touches at least [B]. chances : of each kind, that a step
    touches an expert. steps : whole steps whose pages stay.
    """

    dense: Mapping[str, int]
    experts: Mapping[tuple[int, int], float]
    surely: float
    chances: Mapping[tuple[int, int], Any]
    steps: int = 0

    @property
    def touched(self) -> float:
        """Bytes that a step touches, on average [B]."""
        return self.held(1)

    def held(self, steps: int) -> float:
        """Different bytes that so many steps in a row touch, on average [B]."""
        return sum(self.dense.values()) + sum(
            each * float((1 - (1 - self.chances[kind]) ** steps).sum()) for kind, each in self.experts.items())

    def missing(self, kind: tuple[int, int]) -> float:
        """Experts of a layer that a step touches and that are not there any more, on average."""
        chances = self.chances[kind]
        return float((chances * (1 - chances) ** self.steps).sum())

    @property
    def read(self) -> float:
        """Bytes that a step reads again, on average [B]."""
        dense = 0 if self.steps else sum(self.dense.values())
        return dense + sum(each * self.missing(kind) for kind, each in self.experts.items())


def is_chosen(topology: Topology, piece: Piece, processor: str, memory: str) -> bool:
    """Whether only a part of a piece's pages is touched: experts that are read in the cache's memory, or on demand."""
    if piece.access == "on_demand" or piece.surely == piece.size:
        part: bool = piece.surely < piece.size
        return part
    own = listed(memories_of(topology, processor))
    there = memory in own or piece.access == "in_place" or reads_in_place(topology, listed(processor)[0], [memory])
    return there or piece.moved is not None  # else all of it is fetched, chosen or not


def check_apart(experts: Experts | None, piece: Piece) -> None:
    """Raises PlanError where chosen experts do not come by themselves, once the router has run."""
    if experts is not None and (experts.cache is not None or experts.prefetch is not None):
        raise PlanError(f"{KEY}: with a cache of experts, or experts fetched ahead, which pages stay is not known "
                        "where the file does not fit. Drop them, or give it room for the whole file.")
    if piece.access != "on_demand":
        raise PlanError(f"{KEY}: of a mixture's file that does not fit a token touches the pages of some experts, once "
                        "the router has run. Write `experts: {access: on_demand}`, place experts in a memory, or give "
                        "it room for the whole file.")


def chosen_of(
    layers: Sequence[tuple[Part, ...]], kinds: Sequence[Layer], routing: Routing, tokens: Any, free: int,
    dense: Mapping[str, int], on_drive: Any, surely: float,
) -> Chosen:
    """What LRU keeps in `free` bytes. on_drive : whether a piece's pages are chosen ones of a drive.

    kinds : of the layers. tokens : new positions of all sequences. dense, surely : as of `Chosen`. Raises PlanError for
    tokens as arrays, and where all that is ever chosen fits.
    """
    if hasattr(tokens, "shape"):
        raise PlanError(f"{KEY}: several batches at once do not go with a mixture's file that does not fit. Ask for "
                        "one.")
    experts: dict[tuple[int, int], float] = {}
    for parts, layer in zip(layers, kinds, strict=True):
        for part in parts:
            for piece in part.pieces:
                if on_drive(piece, part) and layer.experts is not None:
                    experts[layer.experts] = experts.get(layer.experts, 0.0) + piece.size / layer.experts[0]
    chances = {kind: touch_chances(routing, *kind, tokens) for kind in experts}
    found = Chosen(dense, experts, surely, chances)
    if found.held(MOST_STEPS) <= free:
        raise PlanError(f"{KEY}: all experts that tokens ever choose by these chances fit, and the file does not: the "
                        "others are never read. Give it room for the whole file.")
    low, high = 0, MOST_STEPS  # held(0) is what is dense: it may be more than fits, and then no step's pages are kept
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if found.held(middle) <= free else (low, middle)
    return replace(found, steps=low)


def with_reads(
    layers: Sequence[tuple[Part, ...]], kinds: Sequence[Layer], chosen: Chosen, on_drive: Any, cache: Cached
) -> list[tuple[Part, ...]]:
    """The layers with what a step reads of each piece of chosen experts, on average and at least.

    cache : of it the parts of what is surely touched that no cache keeps. Where it is pinned an equal part of each
    expert is there for good, and the rest of those touched is read.
    """
    def read_of(piece: Piece, part: Part, layer: Layer) -> Piece:
        if not on_drive(piece, part) or layer.experts is None:
            return piece
        if cache.asked.pinned:
            return replace(piece, paged=piece.touched, surely_paged=piece.surely * cache.pinned_share)
        missing = piece.size / layer.experts[0] * chosen.missing(layer.experts)
        return replace(piece, paged=missing, surely_paged=min(missing, piece.surely * cache.least_share))

    return [tuple(replace(part, pieces=tuple(read_of(piece, part, layer) for piece in part.pieces)) for part in parts)
            for parts, layer in zip(layers, kinds, strict=True)]
