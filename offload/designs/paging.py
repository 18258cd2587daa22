"""What of a placed model lies on drives, and what a page cache in host memory comes to for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from offload.designs.chosen_pages import check_apart, chosen_of, is_chosen, with_reads
from offload.designs.experts import routing_of
from offload.designs.homes import home_names, shares_of_home
from offload.designs.outside import Outside, homes_of_ends
from offload.designs.page_cache import Cached, cached, on_drives, slots_of
from offload.designs.parts import Part, Piece
from offload.designs.placement import Placement
from offload.models import Layer, Weights
from offload.plan import Overlap
from offload.ranges import listed
from offload.topology import Topology
from offload.topology.shares import DRIVES


def paging(
    topology: Topology, placement: Placement, layers: Sequence[tuple[Part, ...]], kinds: Sequence[Layer], tokens: Any,
    ends: Sequence[tuple[str, str, int]], drives: dict[str, int], left: int | None, overlap: Overlap,
    spared: tuple[float, float] = (0, 0),
) -> tuple[Cached | None, int, Sequence[tuple[Part, ...]]]:
    """The page cache of a placement, bytes of the slots that reads into it take turns in [B], and the layers with what
    is read of chosen experts; (None, 0, layers) without a cache.

    kinds : of the layers. tokens : new positions of all sequences. ends : of `homes_of_ends`. drives : of
    `weights_on_drives`. left : what the plan leaves free with everything in the cache [B], None where that is stated.
    spared : bytes on drives that a step may leave out and that it does not read. Raises PlanError as
    `page_cache.cached`, and as `chosen_pages` where experts are chosen of pages that do not all
    stay.
    """
    asked = placement.page_cache
    if asked is None:
        return None, 0, layers

    def on_drive(memory: str) -> bool:
        return any(topology.memories[name].kind in DRIVES for name in home_names(memory))

    def chosen_here(piece: Piece, part: Part) -> bool:
        return on_drive(piece.memory) and is_chosen(topology, piece, part.home.processor, asked.memory)

    def slots(layers: Sequence[tuple[Part, ...]], stays: bool) -> int:
        sizes: dict[str, list[int]] = {}
        for parts in layers:
            for part in parts:
                for piece in part.pieces:
                    if on_drive(piece.memory) and not (stays and piece.paged is None):
                        sizes.setdefault(piece.name, []).append(piece.size if piece.paged is None else
                                                                math.ceil(piece.paged))  # fmt: skip
        after = 0 if stays else sum(size for home, _, size in ends if on_drive(home))
        return after + sum(slots_of(overlap, one) for one in sizes.values())

    pieces = [(piece, part) for parts in layers for part in parts for piece in part.pieces if chosen_here(piece, part)]
    taken = slots(layers, False)
    found = cached(topology, asked, drives, None if left is None else left + sum(drives.values()), taken)
    found = replace(found, spared=spared[0], idle=spared[1])
    if found.fits or not pieces:
        return found, taken, layers
    for piece, _ in pieces:
        check_apart(placement.experts, piece)
    picked: dict[str, float] = {}
    for piece, part in pieces:
        for memory, share in shares_of_home(topology, piece.memory, listed(part.home.processor)[0]):
            picked[memory] = picked.get(memory, 0) + piece.size * share
    dense = {name: round(size - picked.get(name, 0)) for name, size in drives.items()}
    surely = sum(dense.values()) + sum(piece.surely for piece, _ in pieces)
    chosen = chosen_of(layers, kinds, routing_of(placement), tokens, found.free, dense, chosen_here, surely)
    found = replace(found, chosen=chosen)
    layers = with_reads(layers, kinds, chosen, chosen_here, found)
    return found, slots(layers, found.dense_stays), layers


def weights_on_drives(
    topology: Topology, layers: Sequence[tuple[Part, ...]], weighed: Weights, outside: Outside
) -> dict[str, int]:
    """Bytes of weights on each drive [B]."""
    sizes: dict[str, float] = {}
    for home, processor, size in _pieces(layers, weighed, outside):
        for memory, share in shares_of_home(topology, home, listed(processor)[0]):
            sizes[memory] = sizes.get(memory, 0) + (size if share == 1 else size * share)
    return on_drives(topology, {name: round(size) for name, size in sizes.items()})


def _pieces(
    layers: Sequence[tuple[Part, ...]], weighed: Weights, outside: Outside
) -> Iterator[tuple[str, str, int]]:
    """(home, processor, bytes) of all weights that a step reads."""
    for parts in layers:
        for part in parts:
            yield from ((piece.memory, part.home.processor, piece.size) for piece in part.pieces)
    yield from homes_of_ends(outside, weighed)
