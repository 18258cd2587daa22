"""KV cache bytes and how many positions and requests a memory holds; whole numbers throughout."""

from __future__ import annotations

from dataclasses import dataclass

from offload.errors import ModelError
from offload.models.architecture import Model, check_whole
from offload.models.formats import kv_format


def kv_bytes(model: Model, format: str = "f16") -> int:
    """KV cache bytes of one position in one layer: keys and values of every KV head. [B]

    2 x kv_heads x head_dim x bytes per element; quantised formats store whole blocks along a head. Raises ModelError
    for an unknown format.
    """
    _, blocks = kv_format(format)
    if model.head_dim % blocks.size:
        raise ModelError(
            f"KV format {format} stores blocks of {blocks.size}; a head of {model.head_dim} is no multiple. Use f16."
        )
    return 2 * model.kv_heads * blocks.row_bytes(model.head_dim)


LARGEST = 10**30  # of an amount, so that shares stay floats


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
        """What is left of the memory, 0 to 1 (negative where it lacks some)."""
        return self.left / self.available


def memory_budget(
    available: int, bytes_per_position: int, *, context: int, requests: int | None = None
) -> MemoryBudget:
    """Positions and requests that fit in `available` bytes of KV memory.

    positions = floor(available / bytes per position), requests = floor(positions / context): floors of whole numbers,
    so none is lost to rounding. requests : how many are asked for (default: all that fit). Raises ModelError unless
    all are whole and positive (requests may be 0).
    """
    for name, value, least in (("available", available, 1), ("bytes_per_position", bytes_per_position, 1),
                               ("context", context, 1), ("requests", 0 if requests is None else requests, 0)):
        check_whole(name, value, least, LARGEST)
    positions = available // bytes_per_position
    fitting = positions // context
    asked = fitting if requests is None else requests
    used = asked * context * bytes_per_position
    return MemoryBudget(available, bytes_per_position, positions, context, fitting, asked, used, available - used)
