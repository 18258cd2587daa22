"""A layer as the parts that run one after another: attention, feed-forward, experts.

Where all of a layer lives in one memory and runs on one processor it is one part. Where experts live or run elsewhere,
what is in one place runs together and the hidden row passes from part to part: the router stays with the feed-forward,
so experts are known only when it has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload.designs.amounts import Amounts
from offload.designs.kv import Keeping
from offload.designs.placement import LayerHome
from offload.models import Layer, Matrix
from offload.models.architecture import CORRECTION

STAGES = ("attention", "feed-forward", "experts")  # of a layer, in the order in which they run


@dataclass(frozen=True, slots=True)
class Part:
    """Stages of a layer that live in one memory and run on one processor, and what a pass counts of them.

    name : "layer" where it is all of it. stages : which. access : how weights that live elsewhere come: "copy",
    "in_place" (read where they are) or "on_demand" (fetched once what runs before is done). kept : what the layer
    keeps, where the part attends.
    """

    name: str
    stages: tuple[str, ...]
    home: LayerHome
    amounts: Amounts
    access: str = "copy"
    kept: Keeping | None = None

    @property
    def attends(self) -> bool:
        """Whether it reads and writes what the layer keeps."""
        return "attention" in self.stages

    @property
    def sums(self) -> int:
        """How often its ranks add up their hidden rows: after attention and after the feed-forward."""
        return ("attention" in self.stages) + bool({"feed-forward", "experts"} & set(self.stages))


def stage_of(one: Matrix) -> str:
    """The stage of a layer that a tensor is of; norms and biases are with attention."""
    if one.used is not None:
        return "experts"
    return "feed-forward" if one.role.startswith(("ffn", "router")) or one.role == CORRECTION else "attention"


def whole_layer(home: LayerHome, amounts: Amounts, access: str = "copy") -> tuple[Part, ...]:
    """A layer that lives and runs in one place."""
    return (Part("layer", STAGES, home, amounts, access),)


def parts_of(
    layer: Layer, tensors: Sequence[tuple[Matrix, int]], homes: Sequence[tuple[LayerHome, str]], whole: Amounts,
    tokens: Any,
) -> tuple[Part, ...]:
    """A layer by its stages' places.

    tensors : its tensors with their bytes. homes : a home and an access for each of `STAGES`. whole : what the pass
    counts of all of it. tokens : new positions of all sequences.
    """
    there = [stage for stage in STAGES if stage == "attention" or any(stage_of(one) == stage for one, _ in tensors)]
    groups: list[tuple[list[str], tuple[LayerHome, str]]] = []
    for stage in there:
        place = homes[STAGES.index(stage)]
        if groups and groups[-1][1] == place:
            groups[-1][0].append(stage)
        else:
            groups.append(([stage], place))
    if len(groups) == 1:
        home, access = groups[0][1]
        return whole_layer(home, whole, access)
    parts = [
        Part("attention" if "attention" in stages else stages[-1], tuple(stages), home,
             _amounts(layer, tensors, stages, whole, tokens), access)
        for stages, (home, access) in groups
    ]
    return tuple(parts)


def _amounts(
    layer: Layer, tensors: Sequence[tuple[Matrix, int]], stages: Sequence[str], whole: Amounts, tokens: Any
) -> Amounts:
    """What a pass counts of some stages of a layer; attention has what is no other's: their sum is `whole`."""
    sizes = {stage: sum(size for one, size in tensors if stage_of(one) == stage) for stage in STAGES}
    flops = {
        stage: 2 * sum(one.active for one in layer.matrices if one.is_matrix and stage_of(one) == stage)
        for stage in STAGES
    }
    others = sizes["feed-forward"] + sizes["experts"]
    read = whole.size - sizes["experts"]  # of what is no expert, all is touched
    size = touched = surely = work = 0
    for stage in stages:
        if stage == "experts":
            size, touched, surely = size + sizes[stage], touched + whole.touched - read, surely + whole.surely - read
        else:
            own = whole.size - others if stage == "attention" else sizes[stage]
            size, touched, surely = size + own, touched + own, surely + own
        if stage == "attention":
            work = work + whole.flops - tokens * (flops["feed-forward"] + flops["experts"])
        else:
            work = work + tokens * flops[stage]
    if "attention" in stages:
        return replace(whole, size=size, touched=touched, surely=surely, flops=work)
    return Amounts(size, touched, surely, 0, 0, 0, 0, 0, work)
