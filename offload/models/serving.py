"""One GPU's memory while it serves: what takes a part of it, line by line, and what is left for KV on each rank.

Each line says whether it was counted from the model, given by a person, or estimated. Layers that ranks do not share
evenly leave the least room on one stage: that rank, the tightest, decides for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offload.errors import ModelError
from offload.models.budget import shared_blocks
from offload.models.cache import (
    Cache,
    SequenceBytes,
    State,
    blocks_of,
    growing_bytes,
    sequence_bytes,
)
from offload.models.whole import LARGEST_AMOUNT, ceil_div, check_whole

MOST_RANKS = 100_000
ACTIVATION_BYTES = 2
LOGIT_BYTES = 4
LONG = 10**12  # positions: longer than any window
NO_CACHE = Cache("none")


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer's weights [B] and what it keeps of a sequence.

    split : shared among tensor-parallel ranks. whole : held by each of them (norms, routers). experts, expert_bytes :
    routed experts, which expert-parallel ranks share whole. cache, state : what it keeps. hosted : its weights stay in
    host memory and pass through a buffer; what it keeps of sequences is on the GPU all the same.
    """

    split: int
    whole: int = 0
    experts: int = 0
    expert_bytes: int = 0
    cache: Cache = NO_CACHE
    state: State | None = None
    hosted: bool = False

    def __post_init__(self) -> None:
        for name in ("split", "whole", "experts", "expert_bytes"):
            check_whole(f"layer, {name}", getattr(self, name), 0, LARGEST_AMOUNT)

    def on_rank(self, tp: int, ep: int) -> int:
        """Bytes on each rank: shares are rounded up, and so is the number of experts.

        Without expert parallelism (ep = 1) tensor-parallel ranks share each expert too.
        """
        if ep > 1:
            experts = ceil_div(self.experts, ep) * self.expert_bytes
        else:
            experts = self.experts * ceil_div(self.expert_bytes, tp)
        return ceil_div(self.split, tp) + self.whole + experts


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an estimate of activations needs: elements of a hidden row, of all queries, of keys (or values), of the
    feed-forward's inside, and of the vocabulary."""

    hidden: int
    queries: int
    keys: int
    ffn: int
    vocab: int

    def __post_init__(self) -> None:
        for name in ("hidden", "queries", "keys", "ffn", "vocab"):
            check_whole(name, getattr(self, name), 0 if name == "keys" else 1, 10**9)


def activation_estimate(sizes: Sizes, tokens: int, rows: int, tp: int = 1) -> int:
    """Activation workspace of one step: an estimate, which engines exceed by what their kernels need. [B]

    tokens x (2 hidden + max(queries + 2 keys, 2 ffn / tp)) x 2 bytes, and logits of `rows` rows in 4 bytes. tokens : of
    the step (the prefill chunk, or one for each request in decode), rows : those that a token is drawn from.
    """
    check_whole("tokens of a step", tokens, 1, LARGEST_AMOUNT)
    check_whole("rows of logits", rows, 0, LARGEST_AMOUNT)
    check_whole("ranks (tp)", tp, 1, MOST_RANKS)
    widest = max(sizes.queries + 2 * sizes.keys, ceil_div(2 * sizes.ffn, tp))
    return tokens * (2 * sizes.hidden + widest) * ACTIVATION_BYTES + rows * sizes.vocab * LOGIT_BYTES


def stage_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, as even as they can be; those over go to the stages before the last.

    As vLLM does, whose last stage also has the head: 10 over 4 is 2, 3, 3, 2. Raises ModelError for more stages than
    layers.
    """
    check_whole("layers", layers, 1, LARGEST_AMOUNT)
    check_whole("stages (pp)", pp, 1, min(layers, MOST_RANKS))
    each, over = divmod(layers, pp)
    counts = [each] * pp
    for index in range(over):  # over < pp, so the last stage gets one more only where pp is 1
        counts[pp - 2 - index] += 1
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class Serving:
    """What a GPU's memory is asked to hold. Bytes are of one rank's GPU [B].

    layers : of the whole model. embedding, head : tables that ranks share by rows (head None: the embedding, of which
    the last stage has a copy). other : what every rank has besides (the final norm). tp, pp, ep : ranks that share
    tensors, stages, experts. stages : layers of each stage, where not as `stage_layers`. sizes : for the estimate of
    activations; without them there is none. format, block, index_format : of the KV cache. context, requests : asked
    for. shared_prefix : positions that all requests have in common, held once. chunk : new positions in one prefill
    step. widened : whether every request's windows hold a whole chunk besides; otherwise the new positions of one step
    are a line, held once. buffers : for weights of hosted layers, each as large as the largest of them on the rank.
    usable : share of the capacity that the engine takes at most. overhead : scales and repacked copies that the
    weights' bytes leave out. communication, graphs, allocator, reserve, alignment, duplicates : given, each a line of
    its own.
    """

    capacity: int
    layers: tuple[LayerBytes, ...]
    embedding: int = 0
    head: int | None = 0
    other: int = 0
    tp: int = 1
    pp: int = 1
    ep: int = 1
    stages: tuple[int, ...] | None = None
    sizes: Sizes | None = None
    format: str = "f16"
    index_format: str | None = None
    block: int = 16
    context: int = 4096
    requests: int = 1
    shared_prefix: int = 0
    chunk: int = 2048
    widened: bool = False
    buffers: int = 2
    usable: Fraction = Fraction(1)
    overhead: int = 0
    communication: int = 0
    graphs: int = 0
    allocator: int = 0
    reserve: int = 0
    alignment: int = 0
    duplicates: int = 0

    def __post_init__(self) -> None:
        check_whole("layers", len(self.layers), 1, 10**6)
        for name in ("capacity", "context", "requests", "chunk", "block", "buffers", "tp", "pp", "ep"):
            check_whole(name, getattr(self, name), 1, MOST_RANKS if name in ("tp", "pp", "ep") else LARGEST_AMOUNT)
        for name in ("embedding", "other", *GIVEN):
            check_whole(name, getattr(self, name), 0, LARGEST_AMOUNT)
        if self.head is not None:
            check_whole("head", self.head, 0, LARGEST_AMOUNT)
        if not isinstance(self.usable, Fraction) or not 0 < self.usable <= 1:
            raise ModelError(f"the usable share is {str(self.usable)[:60]}; it must be a fraction above 0, up to 1.")
        counts = self.stages or stage_layers(len(self.layers), self.pp)
        if len(counts) != self.pp or sum(counts) != len(self.layers) or min(counts) < 1:
            raise ModelError(f"stages of {', '.join(map(str, counts))} layers are not the {len(self.layers)} layers in "
                             f"{self.pp} stages.")
        shared_blocks(self.shared_prefix, self.block, self.context)


def gpus_of(tp: int, pp: int = 1, ep: int = 1) -> int:
    """GPUs of so many ranks: pp x max(tp, ep), as expert-parallel ranks are the same GPUs.

    With ep above tp each of ep / tp groups of tp ranks holds all other tensors, and serves requests of its own.
    """
    return pp * max(tp, ep)


PREFILLED = "windows while a chunk is prefilled"
UNUSED = "not used by the engine"
GIVEN = {
    "overhead": "scales and repacked copies of weights",
    "communication": "communication buffers",
    "graphs": "captured graphs",
    "allocator": "allocator's reservation",
    "alignment": "alignment",
    "duplicates": "duplicates",
    "reserve": "reserve",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a memory: what it is, its bytes, and where they come from ("counted", "given", "estimate")."""

    what: str
    bytes: int
    kind: str


@dataclass(frozen=True, slots=True)
class RankBudget:
    """One rank's memory; the tp ranks of a stage are alike. Bytes in [B]; amounts left may be negative.

    stage : from 0. layers : first and last, from 0. lines : what is taken before KV. left : for KV. growing : bytes of
    a position in the layers that grow. fixed : of each request besides, in windows, chunks and states. sequence : of
    one request in decode, in blocks. shared : of the prefix that is held once. asked : requests.
    """

    stage: int
    layers: tuple[int, int]
    lines: tuple[Line, ...]
    left: int
    growing: int
    fixed: int
    sequence: SequenceBytes
    shared: int
    asked: int
    block: int
    full: int
    left_to_long: int

    @property
    def used(self) -> int:
        """Bytes of KV of the requests that are asked for."""
        return self.shared + self.asked * (self.sequence.total - self.shared)

    @property
    def free(self) -> int:
        """Bytes that are left besides the requests that are asked for."""
        return self.left - self.used

    @property
    def free_share(self) -> float | None:
        """What of the KV memory (`left`) stays free; None where there is none."""
        return self.free / self.left if self.left > 0 else None

    @property
    def positions(self) -> int | None:
        """Positions that fit beside what each request keeps whatever its length; None where nothing grows."""
        room = self.left - self.asked * self.fixed
        return None if not self.growing else max(0, room) // self.growing

    @property
    def blocks(self) -> int | None:
        """Whole blocks that fit, as `positions`."""
        return None if self.positions is None else self.positions // self.block

    @property
    def alone(self) -> int | None:
        """Positions that fit if one request has them all, its windows full; None where nothing grows."""
        return None if not self.growing else max(0, self.left_to_long - self.full) // self.growing

    @property
    def requests(self) -> int | None:
        """Requests as asked that fit; None where they keep nothing."""
        each = self.sequence.total - self.shared
        return None if not each else max(0, self.left - self.shared) // each


@dataclass(frozen=True, slots=True)
class ServingBudget:
    """The memory of every stage's rank, and the tightest of them: that with the fewest requests, then positions."""

    ranks: tuple[RankBudget, ...]
    tightest: RankBudget

    @property
    def fits(self) -> bool:
        """Whether the requests that are asked for fit on every rank."""
        return all(rank.free >= 0 for rank in self.ranks)


def serving_budget(serving: Serving) -> ServingBudget:
    """What is left for KV on the rank of each stage. Raises ModelError as `position_bytes` does."""
    ranks = []
    first = 0
    for stage, count in enumerate(serving.stages or stage_layers(len(serving.layers), serving.pp)):
        ranks.append(_rank(serving, stage, first, count))
        first += count
    free = [rank for rank in ranks if rank.requests is not None] or ranks
    tightest = min(free, key=lambda rank: (rank.requests or 0, _many(rank.positions), rank.free))
    return ServingBudget(tuple(ranks), tightest)


def _many(count: int | None) -> int:
    return LARGEST_AMOUNT if count is None else count


def _rank(serving: Serving, stage: int, first: int, count: int) -> RankBudget:
    own = serving.layers[first : first + count]
    tp, last = serving.tp, stage == serving.pp - 1
    weights = sum(layer.on_rank(tp, serving.ep) for layer in own if not layer.hosted)
    lines = [Line("weights of layers", weights, "counted")] if weights else []
    if streamed := max((layer.on_rank(tp, serving.ep) for layer in own if layer.hosted), default=0):
        hosted = sum(layer.hosted for layer in own)
        buffers = min(serving.buffers, hosted)  # more buffers than layers hold nothing
        text = f"{buffers} buffer{'s' * (buffers > 1)} for weights of {hosted} layer{'s' * (hosted > 1)} in host memory"
        lines.append(Line(text, buffers * streamed, "counted"))
    if stage == 0 and serving.embedding:
        lines.append(Line("embedding", ceil_div(serving.embedding, tp), "counted"))
    if last and serving.head:
        lines.append(Line("output head", ceil_div(serving.head, tp), "counted"))
    if last and stage and serving.head is None:
        lines.append(Line("copy of the tied embedding", ceil_div(serving.embedding, tp), "counted"))
    if serving.other:
        lines.append(Line("tensors outside of layers", serving.other, "counted"))
    if serving.sizes is not None:
        tokens = max(serving.chunk, serving.requests)
        size = activation_estimate(serving.sizes, tokens, serving.requests if last else 0, tp)
        lines.append(Line("activations", size, "estimate"))
    outside = serving.capacity - int(serving.capacity * serving.usable)
    if outside:
        lines.append(Line(UNUSED, outside, "given"))
    lines += [Line(words, getattr(serving, name), "given") for name, words in GIVEN.items() if getattr(serving, name)]
    caches, states = [layer.cache for layer in own], [layer.state for layer in own if layer.state is not None]
    kv: dict[str, Any] = {"tp": tp, "index_format": serving.index_format}
    growing = growing_bytes(caches, serving.format, **kv)
    counted = Counter(caches)  # once: there are many layers, and budgets

    def held(context: int) -> tuple[SequenceBytes, int]:
        """What one request keeps, and what windows hold besides while a chunk is prefilled."""
        one, wide = (sequence_bytes(counted, context, serving.format, states=states, block=serving.block, batched=new,
                                    **kv) for new in (1, serving.chunk))  # fmt: skip
        return (wide, 0) if serving.widened else (one, max(0, wide.limited - one.limited))

    sequence, once = held(serving.context)
    if once:  # the new positions of one step are shared among the requests
        lines.append(Line(PREFILLED, once, "counted"))
    shared = serving.shared_prefix // serving.block * serving.block * growing
    left = serving.capacity - sum(line.bytes for line in lines)
    full, most = held(LONG)
    return RankBudget(
        stage, (first, first + count - 1), tuple(lines), left, growing, sequence.total - sequence.growing, sequence,
        shared, serving.requests, serving.block, full.total - full.growing, left + once - most,
    )  # fmt: skip


# --- the host, and what allocators add ---


def alignment_bytes(sizes: Sequence[int], multiple: int) -> int:
    """What is lost where each size is rounded up to a multiple (pages, 512 B of a GPU's allocator). [B]"""
    check_whole("multiple", multiple, 1, LARGEST_AMOUNT)
    for size in sizes:
        check_whole("size", size, 0, LARGEST_AMOUNT)
    return sum(blocks_of(size, multiple) * multiple - size for size in sizes)


def power_of_two_bytes(sizes: Sequence[int]) -> int:
    """What is lost where each size is rounded up to a power of two. [B]

    PyTorch's allocator of pinned host memory does so (github.com/pytorch/pytorch/issues/95823).
    """
    for size in sizes:
        check_whole("size", size, 0, LARGEST_AMOUNT)
    return sum((1 << (size - 1).bit_length()) - size for size in sizes if size)


def host_lines(
    sizes: Sequence[int], *, mapped: bool = False, pinned: bool = True, power_of_two: bool = False, page: int = 4096,
    copies: int = 1,
) -> tuple[Line, ...]:
    """What offloaded tensors of these sizes take in host memory. [B]

    mapped : they are also read from a mapped file, whose pages stay in the page cache beside pinned copies (the system
    may drop them). power_of_two : pinned buffers are rounded up so, otherwise to pages. copies : one for each socket.
    """
    check_whole("copies", copies, 1, 1024)
    total = sum(sizes)
    lines = [Line("offloaded tensors", total, "counted")]
    if copies > 1:
        lines.append(Line(f"copies for {copies - 1} more socket{'s' * (copies > 2)}", (copies - 1) * total, "counted"))
    rounding = power_of_two_bytes(sizes) if pinned and power_of_two else alignment_bytes(sizes, page)
    words = "rounding of pinned buffers to powers of two" if pinned and power_of_two else f"rounding to {page} B pages"
    lines.append(Line(words, copies * rounding, "counted"))
    if mapped and pinned:
        lines.append(Line("page cache of the mapped file, beside the pinned copy", total, "counted"))
    return tuple(lines)
