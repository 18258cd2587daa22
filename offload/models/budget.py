"""KV cache bytes and how many positions and requests a memory holds; whole numbers throughout."""

from __future__ import annotations

from dataclasses import dataclass

from offload.errors import ModelError
from offload.models.architecture import Model, layers_of
from offload.models.cache import Cache, blocks_of, position_bytes
from offload.models.formats import kv_name
from offload.models.whole import LARGEST_AMOUNT, check_whole


def kv_bytes(model: Model, format: str = "f16") -> int:
    """KV cache bytes of one position in one layer: keys and values of every KV head. [B]

    2 x kv_heads x head_dim x bytes per element; quantised formats store whole blocks along a head. Raises ModelError
    for an unknown format, and for one whose blocks do not divide a head.
    """
    return position_bytes(Cache("full", model.kv_heads, model.head_dim, model.head_dim), format)


def check_kv_format(model: Model, format: str) -> None:
    """Raises ModelError for a format that is unknown, or that the caches of a model's layers cannot be stored in."""
    kv_name(format)
    for cache in {layer.cache for layer in layers_of(model)}:
        position_bytes(cache, format)


def kv_format_of(model: Model, asked: str | None = None) -> tuple[str, str]:
    """The KV cache's format, and where it comes from: "asked", "checkpoint" (its config states it) or "default" (f16).

    Raises ModelError for an unknown one.
    """
    if asked is not None:
        return kv_name(asked), "asked"
    stated = None if model.quantised is None else model.quantised.kv
    if stated is None:
        return "f16", "default"
    try:
        return kv_name(stated), "checkpoint"
    except ModelError:
        raise ModelError(f'{model.name}: its config states a KV cache in "{stated[:60]}", which is not known. Say the '
                         "format: `kv: fp8` in a plan file, --kv-format fp8 without one.") from None


def kv_notes(model: Model, asked: str | None = None) -> tuple[str, ...]:
    """What a reader should know of where the KV cache's format comes from; nothing where it was asked for, or f16."""
    name, origin = kv_format_of(model, asked)
    return (f"the KV cache is in {name}, as the model's checkpoint states",) if origin == "checkpoint" else ()


def positions(available: int, bytes_per_position: int) -> int:
    """Positions that fit in `available` bytes of KV memory: floor(available / bytes per position).

    Raises ModelError unless both are whole and positive.
    """
    check_whole("available", available, 1, LARGEST_AMOUNT)
    check_whole("bytes_per_position", bytes_per_position, 1, LARGEST_AMOUNT)
    return available // bytes_per_position


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What a KV memory holds. All counts are whole; bytes in [B].

    positions : that fit in all. requests : of `context` positions that fit. used, left : by those asked for (or all
    that fit). fits : whether what was asked for does.
    """

    available: int
    bytes_per_position: int
    positions: int
    context: int
    requests: int
    asked: int
    used: int
    left: int

    @property
    def fits(self) -> bool:
        return self.left >= 0

    @property
    def left_share(self) -> float:
        """What is left of `available`, the whole KV memory: 0 to 1 (negative where it lacks some)."""
        return self.left / self.available


def memory_budget(
    available: int, bytes_per_position: int, *, context: int, requests: int | None = None
) -> MemoryBudget:
    """Positions and requests that fit in `available` bytes of KV memory.

    positions = floor(available / bytes per position), requests = floor(positions / context): floors of whole numbers,
    so none is lost to rounding. requests : how many are asked for (default: all that fit). Raises ModelError unless
    all are whole and positive (requests may be 0).

    >>> from offload import memory_budget
    >>> memory_budget(16 * 10**9, 131_072, context=4096).requests
    29
    """
    for name, value, least in (("available", available, 1), ("bytes_per_position", bytes_per_position, 1),
                               ("context", context, 1), ("requests", 0 if requests is None else requests, 0)):
        check_whole(name, value, least, LARGEST_AMOUNT)
    fitting_positions = positions(available, bytes_per_position)
    fitting = fitting_positions // context
    asked = fitting if requests is None else requests
    used = asked * context * bytes_per_position
    return MemoryBudget(
        available, bytes_per_position, fitting_positions, context, fitting, asked, used, available - used
    )


@dataclass(frozen=True, slots=True)
class BlockBudget:
    """What a KV memory holds that is dealt out in blocks of `block` positions. All counts are whole.

    block_bytes : of a block in all layers [B]. blocks : in all. shared_blocks : of the prefix that all sequences share.
    private_blocks : of each sequence besides. sequences : that fit. waste : positions of a sequence's blocks that stay
    empty.
    """

    block_bytes: int
    blocks: int
    shared_blocks: int
    private_blocks: int
    sequences: int
    waste: int


def block_budget(
    available: int, bytes_per_position: int, *, block: int, context: int, shared_prefix: int = 0
) -> BlockBudget:
    """Sequences of `context` positions that fit in blocks of `block`, the first `shared_prefix` positions held once.

    Only full blocks of a prefix are shared: floor(prefix / block). sequences = floor((floor(available / block bytes) -
    shared) / (ceil(context / block) - shared)). Raises ModelError unless all are whole and positive (the prefix may be
    0, and is shorter than the context).
    """
    for name, value in (("available", available), ("bytes_per_position", bytes_per_position), ("block", block),
                        ("context", context)):
        check_whole(name, value, 1, LARGEST_AMOUNT)
    shared = shared_blocks(shared_prefix, block, context)
    size, whole = block * bytes_per_position, blocks_of(context, block)
    blocks = available // size
    private = whole - shared
    return BlockBudget(size, blocks, shared, private, max(0, blocks - shared) // private, whole * block - context)


def shared_blocks(prefix: int, block: int, context: int) -> int:
    """Full blocks of a prefix that sequences of `context` positions share. Raises ModelError for one too long."""
    check_whole("shared prefix", prefix, 0, LARGEST_AMOUNT)
    if prefix >= context:
        raise ModelError(f"a shared prefix of {prefix:,} positions leaves none of the {context:,} to each sequence.")
    return prefix // block
