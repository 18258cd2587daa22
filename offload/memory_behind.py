"""What lies behind the GPUs: weights that stay in host memory, and slower memories that KV may be moved to.

Each rank moves its own part, all at once; host memory and drives are shared by all ranks. Rates are peaks, so every
time here is the least that it can take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from offload.errors import ModelError
from offload.models import Model, layer_flops, layers_of
from offload.models.attention import prefill_flops
from offload.models.concurrency import KvTier, kv_tier, recompute_seconds, swap_seconds
from offload.models.ranks import tensor_pieces
from offload.models.serving import Line, Serving, ServingBudget, host_lines, stage_layers
from offload.models.whole import LARGEST_AMOUNT, check_whole

PINNED = ("pages", "powers", "no")  # buffers rounded up to pages, to powers of two, or not pinned at all


@dataclass(frozen=True, slots=True)
class Way:
    """Something of a peak rate that bytes pass on their way to the GPUs.

    peak : [B/s]. ranks : those whose bytes pass it, from 0; None is all of them.
    """

    name: str
    peak: float
    ranks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.peak < math.inf:
            raise ModelError(f"{self.name}: a rate of {self.peak:g} B/s brings nothing; it must be above 0.")


@dataclass(frozen=True, slots=True)
class Drives:
    """Drives that KV may be kept on: their bytes together, and what a byte passes from them to the GPUs."""

    capacity: int
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class Hosting:
    """Weights of all layers after the first `gpu_layers` stay in host memory.

    pinned : "pages", "powers" or "no", as `host_lines` rounds buffers. mapped : also read from a mapped file. copies :
    one for each socket.
    """

    gpu_layers: int
    pinned: str = "pages"
    mapped: bool = False
    copies: int = 1

    def __post_init__(self) -> None:
        check_whole("layers on the GPU", self.gpu_layers, 0, LARGEST_AMOUNT)
        check_whole("copies", self.copies, 1, 1024)
        if self.pinned not in PINNED:
            raise ModelError(f'pinned is "{str(self.pinned)[:60]}"; it must be one of {", ".join(PINNED)}.')


@dataclass(frozen=True, slots=True)
class Behind:
    """What is known of the memories behind the GPUs.

    host : bytes of host memory in all, None where not known. ways : from it to the GPUs. host_kv : bytes of it for KV,
    None for all that is left. drives : for KV. hosting : what of the weights stays in host memory.
    """

    host: int | None = None
    ways: tuple[Way, ...] = ()
    host_kv: int | None = None
    drives: Drives | None = None
    hosting: Hosting | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """Host memory line by line [B]. capacity : None where not known.

    step_bytes : of weights that each step brings to the GPUs, on all ranks; step_seconds : the least that it takes.
    """

    lines: tuple[Line, ...]
    capacity: int | None
    step_bytes: int
    step_seconds: float | None

    @property
    def total(self) -> int:
        """All lines together."""
        return sum(line.bytes for line in self.lines)

    @property
    def missing(self) -> int:
        """Bytes by which it does not fit; 0 where it does, or where the capacity is not known."""
        return 0 if self.capacity is None else max(0, self.total - self.capacity)


@dataclass(frozen=True, slots=True)
class Tier:
    """A slower memory for KV: of what it holds, and what bounds a fetch ("" where no rate is known).

    request_bytes : of one request of mean length on all ranks, besides a prefix that is held once.
    """

    name: str
    capacity: int
    request_bytes: int
    bound: str
    kv: KvTier


@dataclass(frozen=True, slots=True)
class Preemption:
    """Seconds that one preemption of a request of mean length costs; None where no rate is known.

    What it shares with others stays. swap : its KV out and back, each rank's part over its own link at once. recompute
    : computed again, which stage after stage does, so with the tensor-parallel ranks of one at a time. link : that
    of swapping; None where it was given or is not known. link_rate, flops : of each GPU [B/s, FLOP/s].
    """

    swap: float | None = None
    recompute: float | None = None
    link: str | None = None
    link_rate: float | None = None
    flops: float | None = None


def preemption_of(
    model: Model, serving: Serving, budget: ServingBudget, length: int, link: Way | float | None, flops: float | None,
    ways: Sequence[Way] = (),
) -> Preemption:
    """What one preemption of a request of `length` positions costs.

    budget : with requests of that length. link : the narrowest from host memory to a GPU, or a rate that was given.
    ways : what else bytes pass between them, as the host memory's port that all ranks share: the slowest counts.
    """
    sizes = _by_gpu(serving, [rank.sequence.total - rank.shared for rank in budget.ranks])
    name, rate = (link.name, link.peak) if isinstance(link, Way) else (None, link)
    swap = None
    if rate is not None and max(sizes):
        swap = swap_seconds(max(sizes), rate)
        once, bound = least_seconds(ways, sizes)
        if once is not None and 2 * once > swap * (1 + 1e-9):
            swap, name = 2 * once, bound
            rate = next(way.peak for way in ways if way.name == bound)
    if flops is None:
        return Preemption(swap, None, name, rate)
    past = serving.shared_prefix // serving.block * serving.block
    new = length - past
    matrices = sum(layer_flops(model, index) for index in range(model.layers))
    attention = sum(prefill_flops(layer, past, new) for layer in layers_of(model))
    again = recompute_seconds(new, flops * serving.tp, flops_per_position=matrices + attention / new)
    return Preemption(swap, again, name, rate, flops)


def least_seconds(ways: Sequence[Way], sizes: Sequence[int]) -> tuple[float | None, str]:
    """The least time in which `sizes` [B], one of each rank, pass the ways, and what bounds it; None without any."""
    times = []
    for way in ways:
        passed = sizes if way.ranks is None else [sizes[rank] for rank in way.ranks if rank < len(sizes)]
        times.append((sum(passed) / way.peak, way.name))
    return max(times, key=lambda one: one[0], default=(None, ""))


def _by_gpu(serving: Serving, stages: Sequence[int], *, every_group: bool = False) -> list[int]:
    """What each GPU moves, of each stage's amount for a rank: one group's ranks, or those of every group.

    Where experts are spread over more GPUs than heads, `groups_of` groups of tensor-parallel ranks have requests and
    copies of their own.
    """
    others = groups_of(serving) - 1
    return [amount for one in stages
            for amount in [one] * serving.tp + [one if every_group else 0] * (others * serving.tp)]  # fmt: skip


def groups_of(serving: Serving) -> int:
    """Groups of tensor-parallel ranks that hold the model's attention each: ep / tp, at least one."""
    return max(1, serving.ep // serving.tp)


def host_of(model: Model, weights: str | None, serving: Serving, behind: Behind) -> Host | None:
    """What host memory holds; None where nothing is said to be there."""
    lines: tuple[Line, ...] = ()
    stages, hosting = [], behind.hosting
    if hosting is not None and weights is not None and hosting.gpu_layers < model.layers:
        pieces = tensor_pieces(model, weights, serving.tp, serving.ep)
        first, sizes = 0, []
        for count in serving.stages or stage_layers(len(serving.layers), serving.pp):
            own = [size for layer in range(max(first, hosting.gpu_layers), first + count) for size in pieces[layer]]
            first += count
            sizes += own * (serving.tp * groups_of(serving))  # each GPU's process keeps its own
            stages.append(sum(own))
        lines = host_lines(sizes, mapped=hosting.mapped, pinned=hosting.pinned != "no",
                           power_of_two=hosting.pinned == "powers", copies=hosting.copies)  # fmt: skip
        lines = tuple(line for line in lines if line.bytes)
    if behind.host_kv is not None and (lines or behind.host is not None):
        lines += (Line("KV moved here from the GPUs", behind.host_kv, "given"),)
    if not lines:
        return None
    step = _by_gpu(serving, stages, every_group=True)
    seconds = least_seconds(behind.ways, step)[0] if step else None
    return Host(lines, behind.host, sum(step), seconds)


def tiers_of(
    behind: Behind, host: Host | None, budget: ServingBudget, serving: Serving, length: int,
    recompute: float | None,
) -> tuple[Tier, ...]:
    """What host memory and drives add for KV; where there are several `groups_of` ranks, for one's share of them.

    budget : with requests of `length` positions; a fetch brings what one has besides a shared prefix.
    recompute : seconds to compute that again, None where not known.
    """
    room = behind.host_kv
    if room is None and behind.host is not None:
        room = behind.host - (0 if host is None else host.total)
    sizes = _by_gpu(serving, [rank.sequence.total - rank.shared for rank in budget.ranks])
    each = serving.tp * sum(rank.growing for rank in budget.ranks)
    found = []
    drives = behind.drives
    for name, capacity, ways in (
        ("host memory", room, behind.ways),
        ("drives", None if drives is None else drives.capacity, () if drives is None else drives.ways),
    ):
        if capacity is None or capacity <= 0 or not sum(sizes):
            continue
        seconds, bound = least_seconds(ways, sizes)
        rate = None if seconds is None else sum(sizes) / seconds
        kv = kv_tier(capacity // groups_of(serving), each, context=length, rate=rate, recompute=recompute,
                     size=sum(sizes))  # fmt: skip
        found.append(Tier(name, capacity, sum(sizes), bound, kv))
    return tuple(found)
