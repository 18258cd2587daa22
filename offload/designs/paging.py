"""What of a placed model lies on drives, and what a page cache in host memory comes to for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offload.designs.homes import home_names, shares_of_home
from offload.designs.outside import Outside, homes_of_ends
from offload.designs.page_cache import Cached, cached, on_drives, slots_of
from offload.designs.parts import Part
from offload.designs.placement import Placement
from offload.errors import PlanError
from offload.models import Weights
from offload.plan import Overlap
from offload.ranges import listed
from offload.topology import Topology
from offload.topology.shares import DRIVES


def paging(
    topology: Topology, placement: Placement, layers: Sequence[tuple[Part, ...]], drives: dict[str, int],
    left: int | None, overlap: Overlap,
) -> tuple[Cached | None, int]:
    """The page cache of a placement, and bytes of the slots that reads into it take turns in [B]; (None, 0) without.

    drives : of `weights_on_drives`. left : what the plan leaves free with everything in the cache [B], None where that
    is stated. Raises PlanError as `page_cache.cached`, and where experts are chosen among pages that do not all stay.
    """
    asked = placement.page_cache
    if asked is None:
        return None, 0
    sizes: dict[str, list[int]] = {}
    chosen = False
    for parts in layers:
        for part in parts:
            for piece in part.pieces:
                if any(topology.memories[name].kind in DRIVES for name in home_names(piece.memory)):
                    sizes.setdefault(piece.name, []).append(piece.size)
                    chosen = chosen or piece.surely < piece.size
    slots = sum(slots_of(overlap, one) for one in sizes.values())
    found = cached(topology, asked, drives, None if left is None else left + sum(drives.values()), slots)
    if not found.fits and chosen:
        raise PlanError("placement.page_cache: of a mixture's file a token touches the pages of some experts, and "
                        "which of them stay is not known. Give it room for the whole file, or place experts in a "
                        "memory.")
    return found, slots


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
