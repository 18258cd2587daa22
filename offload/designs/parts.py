"""A layer as the parts that run one after another: attention, feed-forward, experts.

Where all of a layer lives in one memory and runs on one processor it is one part. Where experts or other tensors live
or run elsewhere, what is in one place runs together and the hidden row passes from part to part: the router stays with
the feed-forward, so experts are known only when it has run. A part may read pieces from several memories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from offload.designs.amounts import Amounts
from offload.designs.kv import Keeping
from offload.designs.placement import LayerHome
from offload.designs.split import Share
from offload.models import Matrix
from offload.models.architecture import CORRECTION

STAGES = ("attention", "feed-forward", "experts")  # of a layer, in the order in which they run


@dataclass(frozen=True, slots=True)
class Piece:
    """What a part reads from one memory.

    name : of its tensor and its fetch. memory : where it lives. access : how it comes to where it is used: "copy" (all
    of it, each step), "in_place" (read where it is), "on_demand" (what is used, once what runs before is done) or
    "ahead" (what is thought to be used, while the layer before runs). size : as it lies there [B]. touched, surely :
    what is read of it, expected and at least [B]. moved, surely_moved : what is fetched where that is not what is read
    [B]. most : the most that one step may fetch of it, where fewer bytes are expected [B]. what : the row of a report.
    alone : it stays a piece of its own beside others that live and come as it does. paged, surely_paged : of chosen
    experts, what is read into a page cache [B].
    """

    name: str
    memory: str
    access: str
    size: Any
    touched: Any
    surely: Any
    moved: Any = None
    surely_moved: Any = None
    what: str = "layer weights"
    most: Any = None
    alone: bool = False
    paged: Any = None
    surely_paged: Any = None


@dataclass(frozen=True, slots=True)
class Part:
    """Stages of a layer that run on one processor, and what a pass counts of them.

    name : "layer" where it is all of it. stages : which. home : where most of it lives, and its processor. amounts : of
    all of it; KV and FLOP are its own, weights those of its pieces. attends : whether it reads and writes what the
    layer keeps, which is `kept`. shares : of a layer whose rows several processors share, what each reads; matrices :
    FLOP of its matrices. copies : of replicas, each of which has all of it; amounts are of one. sums_of : instead of
    what its stages need. exchanged : what each rank has of rows that go to experts on other ranks and back [B]; None
    where none do.
    """

    name: str
    stages: tuple[str, ...]
    home: LayerHome
    amounts: Amounts
    pieces: tuple[Piece, ...]
    attends: bool = True
    shares: tuple[Share, ...] = ()
    matrices: Any = 0
    copies: int = 1
    sums_of: int | None = None
    exchanged: Any = None
    kept: Keeping | None = None

    @property
    def keeping(self) -> Keeping:
        """`kept` of a part that attends."""
        return cast("Keeping", self.kept)

    @property
    def sums(self) -> int:
        """How often ranks that share it add up their hidden rows: after attention and after the feed-forward."""
        if self.exchanged is not None:
            return 0
        if self.sums_of is not None:
            return self.sums_of
        return self.attends + bool({"feed-forward", "experts"} & set(self.stages))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage, or some tensors of it, live and run, and how they come there. own : of a pattern of tensors."""

    home: LayerHome
    access: str = "copy"
    own: bool = False


def stage_of(one: Matrix) -> str:
    """The stage of a layer that a tensor is of; norms and biases are with attention."""
    if one.used is not None:
        return "experts"
    return "feed-forward" if one.role.startswith(("ffn", "router")) or one.role == CORRECTION else "attention"


def whole_layer(home: LayerHome, amounts: Amounts, access: str = "copy") -> tuple[Part, ...]:
    """A layer that lives and runs in one place."""
    return (Part("layer", STAGES, home, amounts, (piece_of("weights", home, amounts, access),)),)


def piece_of(name: str, home: LayerHome, amounts: Amounts, access: str) -> Piece:
    """All that a pass reads of the weights at a home, in one piece."""
    what = "experts" if name == "experts" else "layer weights"
    return Piece(name, home.memory, access, amounts.size, amounts.touched, amounts.surely, what=what)


Pieces = Callable[[Place, Any, Any, Any], tuple[Piece, ...]]


def parts_of(
    tensors: Sequence[tuple[Matrix, int]], places: Sequence[Place], whole: Amounts, tokens: Any,
    pieces_of_experts: Pieces | None = None, moved: Sequence[Place | None] = (),
) -> tuple[Part, ...]:
    """A layer by its stages' places.

    tensors : its tensors with their bytes. places : one for each of `STAGES`. whole : what the pass counts of all of
    it. tokens : new positions of all sequences. pieces_of_experts : from the place and the bytes (size, touched,
    surely) of experts to what is read of them; None reads them in one piece. moved : for each tensor the place that a
    pattern gives it, or None.
    """
    at = [place or places[STAGES.index(stage_of(one))]
          for (one, _), place in zip(tensors, moved or [None] * len(tensors), strict=True)]  # fmt: skip
    groups: list[tuple[list[str], LayerHome]] = []  # what runs together: stages, and most of it lives there
    for stage in STAGES:
        base = places[STAGES.index(stage)]
        there = [place for (one, _), place in zip(tensors, at, strict=True) if stage_of(one) == stage]
        if stage == "attention":
            there = [base, *there]  # it has the KV cache, wherever its tensors are
        for processor in dict.fromkeys(place.home.processor for place in there):
            here = [place for place in there if place.home.processor == processor]
            home = next((place.home for place in here if place == base), here[0].home)
            alike = groups and groups[-1][1] == home and _same_access(places, groups[-1][0], stage)
            if alike and stage not in groups[-1][0]:
                groups[-1][0].append(stage)
            else:
                groups.append(([stage], home))
    if len(groups) == 1 and len(set(at)) == 1 and pieces_of_experts is None:
        return whole_layer(groups[0][1], whole, at[0].access)
    parts: list[Part] = []
    for stages, home in groups:
        attends = "attention" in stages and home.processor == places[0].home.processor
        name = "attention" if attends else stages[-1]
        if any(part.name == name for part in parts):
            name = f"{name} on {home.processor}"
        chosen = [stage_of(one) in stages and place.home.processor == home.processor
                  for (one, _), place in zip(tensors, at, strict=True)]  # fmt: skip
        parts.append(_part(name, tuple(stages), home, attends, tensors, at, chosen, whole, tokens,
                           pieces_of_experts, places[0].access))  # fmt: skip
    return tuple(_named_apart(parts))


def part_at(
    name: str, stages: tuple[str, ...], place: Place, tensors: Sequence[tuple[Matrix, int]], whole: Amounts, tokens: Any
) -> Part:
    """Some stages of a layer at one place, as a part; attention has what is no other's. Else as `parts_of`."""
    chosen = [stage_of(one) in stages for one, _ in tensors]
    return _part(name, stages, place.home, "attention" in stages, tensors, [place] * len(tensors), chosen, whole,
                 tokens, None, place.access)  # fmt: skip


def _same_access(places: Sequence[Place], stages: Sequence[str], stage: str) -> bool:
    """Whether a stage may run with others: experts that come by a way of their own wait for the router."""
    return places[STAGES.index(stages[-1])].access == places[STAGES.index(stage)].access


def _part(
    name: str, stages: tuple[str, ...], home: LayerHome, attends: bool,
    tensors: Sequence[tuple[Matrix, int]], at: Sequence[Place], chosen: Sequence[bool], whole: Amounts, tokens: Any,
    pieces_of_experts: Pieces | None, access: str,
) -> Part:
    """Some tensors of a layer as a part; the one that attends has what is no other's, so that all sum to `whole`."""
    experts = sum(size for one, size in tensors if stage_of(one) == "experts")
    others = whole.size - experts  # of what is no expert, all is touched
    left = whole.size - sum(size for _, size in tensors)  # what no tensor accounts for: rounding
    pieces: list[Piece] = []
    base = Place(home, access)
    groups: dict[tuple[str, Place], int] = {}
    for (one, size), place, here in zip(tensors, at, chosen, strict=True):
        if here:
            kind = "experts" if stage_of(one) == "experts" else ""
            groups[kind, place] = groups.get((kind, place), 0) + size
    if attends:
        key = next((key for key in groups if not key[0] and key[1].home == home), ("", base))
        if left or key in groups:
            groups[key] = groups.get(key, 0) + left
    for (kind, place), size in groups.items():
        if not kind:
            named = "weights" if attends else name
            pieces.append(Piece(named, place.home.memory, place.access, size, size, size))
            continue
        share = size / experts
        touched = whole.touched - others if share == 1 else (whole.touched - others) * share
        surely = whole.surely - others if share == 1 else (whole.surely - others) * share
        if pieces_of_experts is not None:
            pieces += pieces_of_experts(place, size, touched, surely)
        else:
            pieces.append(Piece("experts", place.home.memory, place.access, size, touched, surely, what="experts"))
    pieces = _together(pieces) if stages != ("experts",) else pieces
    own_flops, elsewhere = (2 * sum(one.active for (one, _), own in zip(tensors, chosen, strict=True)
                               if own == side and one.is_matrix) for side in (True, False))  # fmt: skip
    flops = whole.flops - tokens * elsewhere if attends else tokens * own_flops
    size, touched, surely = (sum(getattr(piece, key) for piece in pieces) for key in ("size", "touched", "surely"))
    amounts = (replace(whole, size=size, touched=touched, surely=surely, flops=flops) if attends
               else Amounts(size, touched, surely, 0, 0, 0, 0, 0, flops))  # fmt: skip
    return Part(name, stages, home, amounts, tuple(pieces), attends)


def _together(pieces: Sequence[Piece]) -> list[Piece]:
    """Experts that live and come as the rest of a part are one piece with it."""
    found: dict[tuple[str, ...], Piece] = {}
    for one in pieces:
        key = (one.memory, one.access)
        if key in found and one.moved is None and one.access in ("copy", "in_place") and not one.alone:
            old = found[key]
            found[key] = replace(old, size=old.size + one.size, touched=old.touched + one.touched,
                                 surely=old.surely + one.surely)  # fmt: skip
        else:
            found[key if key not in found else (*key, one.name)] = one
    return list(found.values())


def _named_apart(parts: Sequence[Part]) -> list[Part]:
    """Parts whose pieces have names of their own: those of one name say where they live, and who reads them."""
    taken: set[str] = set()

    def named(piece: Piece, part: Part) -> Piece:
        names = (piece.name, f"{piece.name} of {piece.memory}", f"{piece.name} of {piece.memory}, {part.name}")
        name = next(name for name in names if name not in taken)
        taken.add(name)
        return replace(piece, name=name)

    return [replace(part, pieces=tuple(named(piece, part) for piece in part.pieces)) for part in parts]
