"""What a training step surely moves: floors count nothing that an engine may leave out, or keep where it was brought.

Why each figure is a least one:

- A parameter changes once a step, where it is updated. So it comes to the GPUs at least once a step. (Where they update
  it themselves they have what is new already, and need not even that.)
- Whatever a pass over the layers does not bring was there when the pass began, and the GPUs' memory holds no more
  than its capacity (behind a drive, all memories that are none). Of bytes that every pass uses, each pass after the
  first brings at least what exceeds that. The same holds of checkpoints between the forward and the backward pass.
  Buffers do not count: an engine may keep more than a plan's two layers (DeepSpeed's `stage3_max_reuse_distance`).
- Which layers are kept is open. A floor takes those that are used first: what is brought then has the least left to
  wait for it, so that no chain or queue is longer than with any others kept.
- Of an embedding that is no head too, one row: all tokens may be alike, gradients of other rows are 0 and need neither
  be written nor moved (sparse gradients), and a sparse Adam leaves their states alone. A tied one is a head as well,
  whose gradient has every row.
- Gradients leave for where the plan keeps them in each micro-batch. Between GPUs they need not be summed before the
  last one where they stay in the GPUs' memory, as far as that holds them. What earlier micro-batches made need not come
  back: a CPU may add what is new to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from offload.designs.training_pieces import HALF, Homes, Kept, Piece
from offload.ranges import listed
from offload.topology import Topology
from offload.topology.shares import DRIVES


@dataclass(frozen=True, slots=True)
class Passes:
    """What the passes of a micro-batch surely move of each piece, in their order (the head is in the backward one)."""

    forward: tuple[Kept, ...]
    backward: tuple[Kept, ...]


def brought(sizes: Sequence[int], room: float | None) -> list[float | None]:
    """Bytes of each piece that a pass must bring where `room` bytes were kept of those that it uses first [B].

    None where room is None: nothing is brought, or all of it.
    """
    if room is None:
        return [None] * len(sizes)
    found: list[float | None] = []
    for size in sizes:
        kept = size if room >= size else room
        room -= kept
        found.append(size - kept)
    return found


def room_before(topology: Topology, own: str, home: str) -> float:
    """Bytes that may be kept nearer to the GPUs than a home is; infinite where a capacity is not known [B]."""
    names = set(listed(own))
    if any(topology.memories[name].kind in DRIVES for name in listed(home)):
        names |= {name for name, memory in topology.memories.items() if memory.kind not in DRIVES}
    return sum(_room(topology, name) for name in names)


def _room(topology: Topology, name: str) -> float:
    memory = topology.memories[name]
    return math.inf if memory.capacity is None else memory.capacity * memory.count + memory.cache


def passes_of(
    topology: Topology, homes: Homes, pieces: Sequence[Piece], checkpoint: int, micro_batches: int
) -> list[Passes]:
    """The passes of each micro-batch, in order. checkpoint : bytes of one, of a micro-batch on all GPUs [B]."""
    ranks = len(listed(homes.own))
    room = room_before(topology, homes.own, homes.parameters) if homes.parameters != homes.own else None
    # A GPU has its own part of what is gathered and summed, and gets or gives all others: (ranks - 1) / ranks.
    each = min(_room(topology, name) for name in listed(homes.own)) * ranks / (ranks - 1) if ranks > 1 else None
    far = homes.checkpoints not in ("none", homes.own)
    saved = room_before(topology, homes.own, homes.checkpoints) if far else None
    *before, head = pieces
    layers = list(reversed(before))[:-1]  # as the backward pass has them
    checkpoints = brought([checkpoint * piece.needs for piece in layers], saved)
    sizes = [HALF * piece.touched for piece in layers]
    backward = list(zip(brought(sizes, room), brought(sizes, each), checkpoints, _twice(layers, room),
                        _twice(layers, each), strict=True))  # fmt: skip
    found = []
    for number in range(micro_batches):
        first, last = number == 0, number == micro_batches - 1
        twice = pieces[0].touched if first and pieces[0].sure == pieces[0].parameters else 0  # a tied head's row
        sizes = [*(HALF * piece.touched for piece in before), HALF * (head.touched - twice)]
        fetched = brought(sizes, 0 if first and room is not None and homes.update != homes.own else room)
        gathered = brought(sizes, 0 if first and each is not None else each)
        # Of sums that may wait, those that are made last do.
        sums = brought([HALF * piece.sure for piece in pieces], each if homes.gradients == homes.own and not last
                       else None)[::-1]  # fmt: skip
        found.append(Passes(
            tuple(Kept(*both) for both in zip(fetched[:-1], gathered[:-1], strict=True)),
            (Kept(fetched[-1], gathered[-1], reduced=sums[0]),
             *(Kept(*one[:3], reduced, *one[3:]) for one, reduced in zip(backward, sums[1:-1], strict=True)),
             Kept(reduced=sums[-1])),
        ))  # fmt: skip
    return found


def _twice(layers: Sequence[Piece], room: float | None) -> list[float | None]:
    """Of each layer what its backward pass brings that was just brought to compute its group again [B]."""
    found: list[float | None] = []
    group: list[int] = []
    for piece in layers:
        if piece.needs and group:
            found += brought(group, room)
            group = []
        group.append(HALF * piece.touched)
    return found + brought(group, room)
