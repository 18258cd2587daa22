"""The last layer of a pass that yields no token: what software may leave out there, and floors do not count.

Its keys and values are kept for later passes; queries, attention, and what follows serve no output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offload.designs.homes import shares_of_home
from offload.designs.kv_tasks import PROJECTIONS
from offload.designs.outside import Outside
from offload.designs.parts import Part
from offload.models import Layer, Matrix, Model, Weights, layers_of
from offload.models.weights import layer_tensors
from offload.ranges import listed
from offload.topology import Topology
from offload.topology.shares import DRIVES

KEEP = ("attn_k", "attn_v", "attn_kv_a", "index_k")  # roles of tensors that make what is kept
FUSED = "attn_qkv"


def keeping_bytes(layer: Layer, tensors: Sequence[tuple[Matrix, int]]) -> int:
    """Bytes of the matrices that make what a layer keeps, of queries, keys and values in one their rows alone. [B]

    None are counted of a layer that keeps nothing of its own, or a state, for which it may need others.
    """
    if layer.cache.shared or layer.state.elements or layer.state.conv:
        return 0
    size = sum(size for one, size in tensors if one.role in KEEP)
    heads = 2 * (layer.cache.heads or 0)
    fused = sum(size for one, size in tensors if one.role == FUSED)
    return size + fused * heads // (layer.heads + heads)


def without_outputs(model: Model, weights: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of the last layer with what is surely read and moved of them where no position of it has an output.

    What the keys and values need lies in the part that makes them, whichever of its pieces have it: a piece surely has
    what the others have no room for.
    """
    needed = keeping_bytes(layers_of(model)[-1], layer_tensors(model, weights)[-1])
    first = next((part for part in parts if part.name == PROJECTIONS), None)
    making = parts if first is None else [first]
    room = sum(piece.size for part in making for piece in part.pieces)

    def least(part: Part, size: Any) -> Any:
        return max(0, needed - (room - size)) if first is None or part is first else 0

    found = []
    for part in parts:
        pieces = tuple(replace(piece, surely=least(part, piece.size), surely_moved=least(part, piece.size),
                               surely_paged=None if piece.surely_paged is None else 0)
                       for piece in part.pieces)  # fmt: skip
        amounts = replace(part.amounts, surely=sum(piece.surely for piece in pieces), surely_read=0)
        found.append(replace(part, amounts=amounts, pieces=pieces))
    return tuple(found)


def left_out(
    topology: Topology, outside: Outside, weighed: Weights, parts: Sequence[Part]
) -> tuple[float, float]:
    """Bytes on drives that such a pass may leave unread: of the last layer's `parts`, and of the head [B]."""

    def on_drives(home: str, processor: str, size: Any) -> Any:
        return sum(share * size for memory, share in shares_of_home(topology, home, listed(processor)[0])
                   if topology.memories[memory].kind in DRIVES)  # fmt: skip

    spared = sum(on_drives(piece.memory, part.home.processor, piece.size - piece.surely)
                 for part in parts for piece in part.pieces)  # fmt: skip
    return spared, (on_drives(outside.head, outside.head_on, weighed.head)
                    + on_drives(outside.norm, outside.norm_on, weighed.norm))
