"""Doubts about where a plan keeps keys and values: away though they fit, or moved though every head has its own."""

from __future__ import annotations

from collections.abc import Iterator

from offload.doubts.doubt import Doubt
from offload.kv_tiers import fits_near
from offload.models import layers_of
from offload.plan import Transfer
from offload.step import Step
from offload.units import format_bytes

MOVED = ("KV cache", "cached KV", "KV handed over")


def doubts_of_kv(step: Step, explained: set[str]) -> Iterator[Doubt]:
    """What of a plan's KV is probably not meant. explained : tensors that another doubt told of already."""
    plan = step.plan
    if plan.origin is None:
        return
    model, _, placement, _, _ = plan.origin
    away = [name for name, tensor in plan.tensors.items() if tensor.what == "KV cache"]
    if not explained & set(away) and (found := fits_near(step)) is not None:
        memory, size, free = found
        yield Doubt(
            "kv-for-nothing", ("placement", "kv"),
            f"{format_bytes(size)} of KV lie elsewhere, and {format_bytes(free)} are free in {memory}, where its "
            "layers run: all of it could live there.",
            "keep it, to see what offloading costs.",
        )  # fmt: skip
    moved = any(isinstance(task, Transfer) and plan.tensors[task.tensor].what in MOVED
                for block in plan.blocks for task in block.tasks)  # fmt: skip
    layers = [layer for layer in layers_of(model) if layer.cache.heads]
    if moved and layers and all(layer.cache.heads == layer.heads > 8 for layer in layers):
        heads = layers[0].heads
        yield Doubt(
            "kv-fat", ("placement", "cache" if placement.cache else "kv"),
            f"each of {model.name}'s {heads} heads has keys and values of its own: with 8 for all of them, as newer "
            f"models have, KV would be {heads / 8:g} x smaller. Moving so much is seldom faster than computing it.",
            "keep it, where the report shows that it pays.",
        )  # fmt: skip
