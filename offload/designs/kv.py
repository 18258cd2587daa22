"""Where the KV cache of each layer lives, and what follows: fetches, attention elsewhere, blocks, a cached prefix.

A layer's keys and values lie in one memory or in several: whole layers in each (`{hbm0: 20 layers, dram0: rest}`), or a
share of the positions of every layer in each (`{hbm0: 60%, dram0: rest}`). What lies elsewhere is brought to the
processor that runs the layer, or attended to where it is: then the query and the new position's keys and values go
there and the output comes back (FastDecode, NEO). Positions of a prompt that were found in a cache are brought layer by
layer instead of computed (LMCache, Mooncake), and what a prefill makes can be sent on to another server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload.designs.amounts import Amounts, Positions
from offload.designs.placement import (
    LayerHome,
    Placement,
    Portion,
    Workload,
    memories_of,
    portions_in_layers,
    spread,
)
from offload.designs.receivers import receivers_of
from offload.errors import PlanError, RouteError
from offload.models import Cache, Layer, Matrix
from offload.models.attention import before, seen, smaller
from offload.models.cache import index_bytes, row_bytes, states_bytes
from offload.plan import Compute, Plan, Transfer
from offload.ranges import fold, listed
from offload.topology import Topology
from offload.topology.shares import DRIVES
from offload.units import format_bytes, percent

KEY = "placement.kv"
CACHE = "placement.cache"
ROW_BYTES = 2  # queries and outputs of attention are 16-bit
STATISTICS = 8  # the largest score and the sum of a head's softmax, 32 bits each, where parts of it are put together
AFTER = ("attn_output", "attn_linear", "ffn", "router", "per_layer")  # roles that work on what attention gives

Homes = tuple[tuple[str, float], ...]  # (memory or range of them, share)


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """What a pass counts of what one layer keeps, beside `Amounts`: bytes [B], FLOP, and positions of one sequence.

    attend : FLOP of attention itself. rows : positions that are read. query, output : what attention takes and gives,
    least_query, least_output where a latent is expanded there. loaded : of positions found in a cache, for all
    sequences, a copy for each rank that needs them; lies : the same where it lies, once; loaded_rows : of one sequence.
    used : the share of what is read that was found. sent : what is handed over, of sent_rows positions. picks : whether
    an indexer picks what is read. alike : so many ranks keep the same (all of them a latent), while elsewhere it lies
    once. written : of new keys and values those that a later position may see, of all ranks; some_pass : whether there
    are others.
    """

    attend: Any
    rows: Any
    query: Any
    output: Any
    least_query: Any
    least_output: Any
    loaded: Any
    lies: Any
    loaded_rows: Any
    used: Any
    sent: Any
    sent_rows: Any
    statistics: Any
    picks: bool
    sides: int
    alike: int
    written: Any
    some_pass: bool


@dataclass(frozen=True, slots=True, eq=False)
class Keeping:
    """Where a layer keeps what it keeps. homes : of keys and values. attention : what attends to those elsewhere. own :
    the memory of the processor that runs the layer.
    """

    homes: Homes
    counts: Counts
    attention: str = ""
    own: str = ""


def cached_of(workload: Workload) -> int:
    """Positions of a prompt that were found: all but the last one at most, which is computed to yield a token."""
    asked = workload.cached
    if asked is None or workload.phase == "decode":
        return 0
    found = int(asked.value * workload.prompt + 1e-9) if asked.kind == "share" else int(asked.value)
    most: int = workload.prompt - 1
    return min(found, most)


def counts_of(
    positions: Positions, layer: Layer, amounts: Amounts, cached: Any, format: str, ranks: int, receivers: int = 1
) -> Counts:
    """What the pass counts of what a layer keeps, of all ranks. receivers : ranks that share each sequence
    where it is handed over."""
    cache, batch, new, past = layer.cache, positions.batch, positions.new, positions.past
    kept = replace(cache, shared=False)
    once = 0 if cache.shared else row_bytes(kept, format) + index_bytes(kept, format)
    alike = alike_of(cache, ranks)
    own = alike * once
    all_of_it = before(cache, past)
    found = smaller(cached, all_of_it)
    state = batch * states_bytes((layer.state,))
    of_latent = cache.kind == "latent"
    query = layer.heads * (cache.latent + cache.rope if of_latent else cache.key_dim) + layer.index // 2
    output = layer.heads * (cache.latent if of_latent else cache.value_dim or cache.key_dim)
    rows = {one.role: one for one in layer.matrices}
    least = (query, output)
    if of_latent:
        made, used = rows.get("attn_q_b", rows.get("attn_q")), rows.get("attn_output")
        least = (min(query, made.rows if made else query), min(output, used.row if used else output))
    each = batch * new * ROW_BYTES
    window = cache.window if cache.kind in ("window", "chunk") else None
    sent_rows = new + cached if window is None else smaller(new + cached, window)
    is_sent = cache.kind != "none"
    stays = new if positions.decode else smaller(new, before(cache, past + new))
    return Counts(
        amounts.attend, seen(cache, past + 1) if positions.decode else all_of_it,
        each * query, each * output, each * least[0], each * least[1],
        batch * found * own + (state if cached else 0), batch * found * once + (state if cached else 0), found,
        found / all_of_it if cached and all_of_it else 0,
        (batch * sent_rows * alike_of(cache, receivers) * once if is_sent else 0) + state, sent_rows if is_sent else 0,
        batch * new * layer.heads * STATISTICS, bool(cache.picks),
        1 if of_latent or cache.one_side else 2, alike,
        batch * stays * own, is_sent and _any(stays < new),
    )  # fmt: skip


def alike_of(cache: Cache, ranks: int) -> int:
    """How many of the ranks that share a layer's heads keep the same keys and values: all a latent, of heads those
    beyond one each.
    """
    if cache.kind == "none":
        return 1
    if cache.kind == "latent":
        return ranks
    return ranks // cache.heads if ranks > cache.heads and ranks % cache.heads == 0 else 1


def _any(amount: Any) -> bool:
    return bool(amount.any()) if hasattr(amount, "any") else bool(amount)


def once_of(amount: Any, alike: int) -> Any:
    """What lies once of an amount that `alike` ranks have; whole numbers stay whole."""
    if alike == 1:
        return amount
    return amount // alike if isinstance(amount, int) else amount / alike


def keepings(
    topology: Topology, placement: Placement, positions: Positions, layers: Sequence[Layer],
    homes: Sequence[LayerHome], amounts: Sequence[Amounts], cached: int, format: str, ranks: Sequence[int], design: Any,
) -> list[Keeping]:
    """What each layer keeps and where; those of alike layers are one object. `design` learns the totals of all layers.

    amounts : of each layer for all sequences. cached : positions of the prompt that were found. ranks : processors that
    share each layer's heads. Raises PlanError for a placement that cannot be.
    """
    known: dict[tuple[Any, ...], Keeping] = {}
    found = []
    receivers = receivers_of(topology, placement, positions.batch)[0]
    tiers = {name: 0 for name, _ in placement.cache}
    for layer, home, whole, lies, split in zip(
        layers, homes, amounts, kv_homes(topology, placement, layers, homes), ranks, strict=True
    ):
        key = (id(layer), home.processor, id(whole), lies)
        if key not in known:
            own = memories_of(topology, home.processor)
            counts = counts_of(positions, layer, whole, cached, format, split, receivers)
            attention = attends_elsewhere(topology, placement, lies, own, layer)
            known[key] = Keeping(lies, counts, attention, own)
        found.append(known[key])
        counts, own = known[key].counts, memories_of(topology, home.processor)
        for name in tiers:
            tiers[name] = tiers[name] + (counts.loaded if name == own else counts.lies)
    design.sequences = positions.batch // design.teams.replicas
    design.keeping = max(1, sum(layer.cache.kind != "none" for layer in layers))
    design.found_bytes = tiers
    away = any(name != memories_of(topology, home.processor)
               for one, home in zip(found, homes, strict=True) for name, _ in one.homes)
    for asked, given in (("cache", placement.cache), ("hand_over", placement.hand_over)):
        if given and away:
            raise PlanError(f"placement.{asked}: goes with `kv: with layer`; here KV lies elsewhere already. Drop one.")
    return found


def without_effect(plan: Plan) -> tuple[str, str] | None:
    """(key, what is wrong) of what a plan asks of KV and would change nothing; None where all of it does something."""
    placement = plan.origin[2]
    plans = [plan] if plan.request is None else [plan, plan.request.prefill]
    tasks = [task for one in plans for block in one.blocks for task in block.tasks]
    if placement.attention and not any(task.name == f"attention on {placement.attention}" for task in tasks):
        if any(isinstance(task, Compute) and placement.attention in (task.ranks or (task.processor,))
               and any(name.startswith("KV") for name in task.reads) for task in tasks):  # fmt: skip
            return "placement.attention", (
                f"{placement.attention} runs the layers itself and attends with them. Drop it, or name the processor "
                "that is next to the KV, as cpu0."
            )
        return "placement.attention", (
            f"no layer has KV outside of the memory of the processor that runs it, so {placement.attention} attends to "
            "nothing. Place some elsewhere, as kv: dram0, or drop it."
        )
    if placement.kv_block is not None and not any(isinstance(task, Transfer) and "KV" in task.name and
                                                  not task.name.startswith(("new", "write")) for task in tasks):
        return "placement.kv_block", (
            "no KV is copied in this plan, so that blocks change nothing. Drop it, or say where KV lives (kv), is "
            "found (cache) or goes (hand_over)."
        )
    return None


def kv_notes(placement: Placement, found: Sequence[Keeping], design: Any) -> list[str]:
    """What is assumed of what layers keep."""
    notes = []
    found_any = any(_any(size) for size in design.found_bytes.values())
    if not isinstance(placement.kv, str):
        if shares_of(placement.kv) is None:
            places = [name for one in found for name, _ in one.homes]
            shown = ", ".join(f"{places.count(name)} in {name}" for name in dict.fromkeys(places))
            notes.append(f"KV of whole layers: {shown}")
        else:
            ways = dict.fromkeys(", ".join(f"{percent(share, 6)} in {name}" for name, share in one.homes)
                                 for one in found)  # fmt: skip
            notes.append("KV by share: of the positions of every layer, new ones too; " + "; or by layer ".join(ways))
    away = [one for one in found if any(name != one.own for name, _ in one.homes)]
    loading = [(one, name) for one in found for name, _ in placement.cache if name != one.own and found_any]
    taken = [(one, name) for one in away if not one.attention for name, _ in one.homes if name != one.own]
    if copied := {name: one.counts.alike for one, name in (*taken, *loading) if one.counts.alike > 1}:
        notes.append(f"KV in {' and '.join(copied)} lies there once, and {max(copied.values())} ranks that need the "
                     "same of it each bring a copy; floors count one read of a memory that has a cache")
    if any(one.counts.some_pass for one in found):
        notes.append("new KV of layers with a window: floors, and what is written away from the layer, count the "
                     "positions of the prompt that a later one may see; where a processor attends all are written")
    if placement.attention and not any(one.attention for one in found):
        notes.append(f"no layer has KV where {placement.attention} would attend to it")
    elif placement.attention:
        notes.append(f"attention on {placement.attention}: queries and outputs of 16 bits go there and back; what "
                     "makes keys and values and what follows attention stays with the layer")
        if any(one.attention and len(one.homes) > 1 for one in found):
            notes.append("attention in two places: each attends to its own positions, and the outputs are put together")
    if (blocks := placement.kv_block) is not None:
        each = {"side": "keys and values of a layer by themselves", "layer": "a layer", "model": "all layers at once"}
        cost = "the latency of its links" if blocks.per_copy is None else "a given time"
        if blocks.per_copy is not None and blocks.per_copy.source:
            cost += f" ({blocks.per_copy.source})"
        notes.append(f"KV is copied in blocks of {blocks.tokens} positions, {each[blocks.each]}: each copy takes {cost}"
                     " beside its bytes, one after another; floors count none of it")
    if placement.cache and not found_any:
        notes.append("placement.cache serves nothing: nothing of the prompt is found in it (workload.cached)")
    if placement.cache and found_any:
        served = served_by(placement.cache, design.found_bytes)
        shown = ", ".join(f"{percent(share)} from {name}" for name, share in served if share)
        notes.append(f"a hit is served by the first tier that holds it: {shown}")
        if idle := [name for name, share in served if not share]:
            serve = "serves" if len(idle) == 1 else "serve"
            notes.append(f"{' and '.join(idle)} {serve} nothing: what is found lies in the tiers before")
        notes.append("what is found is loaded layer by layer, ahead of its layer as buffers allow")
    if placement.hand_over:
        notes.append(f"{placement.hand_over} receives each layer's KV as it is made; what runs there is another plan")
    return notes


# --- homes ---


def kv_homes(topology: Topology, placement: Placement, layers: Sequence[Layer], homes: Sequence[LayerHome]) -> list[
    Homes
]:  # fmt: skip
    """Where each layer's keys and values lie, as shares of its positions. Raises PlanError where that cannot be."""
    owns = [memories_of(topology, home.processor) for home in homes]
    if isinstance(placement.kv, str):
        return [((own if placement.kv == "with layer" else placement.kv, 1.0),) for own in owns]
    shares = shares_of(placement.kv)
    if shares is not None:
        return [_together((own if name == "with layer" else name, share) for name, share in shares) for own in owns]
    return _by_layers(placement, placement.kv, layers, owns)


def _together(homes: Iterable[tuple[str, float]]) -> Homes:
    """Homes with the shares of each memory added up: "with layer" may be one that is named too."""
    found: dict[str, float] = {}
    for name, share in homes:
        found[name] = found.get(name, 0.0) + share
    return tuple((name, 1.0 if abs(share - 1) < 1e-12 else share) for name, share in found.items())


def shares_of(portions: Sequence[tuple[str, Portion]]) -> Homes | None:
    """The shares of positions that portions stand for; None where they are whole layers. Raises PlanError."""
    kinds = {portion.kind for _, portion in portions}
    if "bytes" in kinds:
        raise PlanError(f"{KEY}: bytes say neither which layers nor which positions. Write whole layers, "
                        '"20 layers", or a share of the positions of every layer, "60%".')
    if {"layers", "share"} <= kinds:
        raise PlanError(f"{KEY}: layers and shares do not mix. Whole layers in each memory: {{hbm0: 20 layers, "
                        "dram0: rest}; a share of the positions of every layer: {hbm0: 60%, dram0: rest}.")
    rests = [name for name, portion in portions if portion.kind == "rest"]
    if len(rests) > 1:
        raise PlanError(f"{KEY}: {' and '.join(rests)} both take the rest; one memory may.")
    if "layers" in kinds:
        return None
    given = sum(portion.value for _, portion in portions if portion.kind == "share")
    if given > 1 + 1e-9:
        raise PlanError(f"{KEY}: {100 * given:.6g}% are more than all positions. Place {percent(given - 1, 6)} less.")
    if not rests and given < 1 - 1e-9:
        raise PlanError(f"{KEY}: {100 * given:.6g}% of the positions are placed; add `MEMORY: rest`.")
    left = max(0.0, 1 - given)
    found = [(name, left if portion.kind == "rest" else portion.value) for name, portion in portions]
    return tuple((name, share) for name, share in found if share > 1e-12)


def _by_layers(
    placement: Placement, kv: tuple[tuple[str, Portion], ...], layers: Sequence[Layer], owns: Sequence[str]
) -> list[Homes]:
    """Whole layers in each memory, first those that run there, spread evenly among the others."""
    if any(layer.cache.shared for layer in layers):
        raise PlanError(f"{KEY}: some layers of this model read the cache of another one, so that layers cannot be "
                        'placed one by one. Write a share of the positions of every layer: "60%".')
    keeping = [i for i, layer in enumerate(layers) if layer.cache.kind != "none"]
    found: dict[int, str] = {}
    left: dict[str, int] = {}
    counts = portions_in_layers(replace(placement, weights=kv), [1] * len(keeping), KEY)
    for name, count in counts:
        here = [i for i in keeping if i not in found and name in ("with layer", owns[i])]
        taken = min(count, len(here))
        pattern = spread([name] * taken, "", len(here) - taken)
        found |= {i: owns[i] for i, one in zip(here, pattern, strict=True) if one}
        left[name] = count - taken
    others, pattern = [i for i in keeping if i not in found], []
    for name, count in left.items():
        pattern = spread(pattern, name, count)
    for i, name in zip(others, pattern, strict=True):
        found[i] = owns[i] if name == "with layer" else name
    return [((found.get(i, own), 1.0),) for i, own in enumerate(owns)]


def stop_on_the_way(topology: Topology, memory: str, to: str) -> str:
    """The host memory where what lies once is taken from by each of several ranks; "" where that is its home, or no
    way leads (the move says so).
    """
    first, goal = listed(memory)[0], listed(to)[0]
    try:
        staged = topology.route(first, goal).staged_in
    except RouteError:
        return ""
    if staged:
        return staged[-1]
    if not on_drive(topology, memory):
        return ""
    near = topology.memory_of(topology.nearest_processor(first))
    return near if topology.ways.may_stage(near) and near not in listed(to) else ""


def memories_named(kv: Any) -> tuple[str, ...]:
    """The memories, or ranges of them, that a placement of KV names; "with layer" is none."""
    names = (kv,) if isinstance(kv, str) else tuple(name for name, _ in kv)
    return tuple(name for name in names if name != "with layer")


def on_drive(topology: Topology, memory: str) -> bool:
    """Whether a memory is a drive: no processor reads or writes it without a copy."""
    return any(topology.memories[name].kind in DRIVES for name in listed(memory))


# --- attention elsewhere ---


def attends_elsewhere(topology: Topology, placement: Placement, homes: Homes, own: str, layer: Layer) -> str:
    """The processor that attends to a layer's keys and values where they are; "" where its own one does."""
    asked = placement.attention
    if not asked or layer.cache.kind == "none" or memories_of(topology, asked) == own:
        return ""
    there = memories_of(topology, asked)
    away = [name for name, _ in homes if name != own]
    both = [name for name in listed(there) if name in listed(own)]
    if away and both:
        raise PlanError(f"placement.attention: {asked} works in {there}, and in {fold(both)} the layer runs itself. "
                        "Name a processor that works in no memory of the layer's, or let "
                        f"{asked} run the layers too, as `compute: {asked}`.")  # fmt: skip
    if wrong := [name for name in away if name != there and not on_drive(topology, name)]:
        raise PlanError(f"placement.attention: {asked} works in {there}, and keys and values lie in {wrong[0]} too. "
                        "Place them in its memory, on a drive, or with their layer.")
    return asked if away else ""


def projected(tensors: Sequence[tuple[Matrix, int]]) -> tuple[int, int]:
    """(bytes, FLOP of one token) of what makes queries, keys and values: all of attention before itself."""
    ahead = [(one, size) for one, size in tensors if not one.role.startswith(AFTER) and one.used is None]
    return sum(size for _, size in ahead), 2 * sum(one.active for one, _ in ahead if one.is_matrix)


# --- tiers of a cache of prefixes ---


def served_by(tiers: Sequence[tuple[str, Portion]], total: Any) -> list[tuple[str, float]]:
    """(memory, share) of what is found in a cache, each part from the first tier that holds it.

    tiers : in the order in which they are asked, each with the share of it or the bytes that it has room for. total :
    bytes that are found, of each tier where they differ (ranks keep copies) [B]; 0 says nothing of bytes. A tier that
    holds nothing that those before it do not hold serves nothing (share 0). Raises PlanError where the tiers together
    do not hold all that is found.
    """
    left, given, found = 1.0, 0.0, []
    totals = total if isinstance(total, Mapping) else {name: total for name, _ in tiers}
    for name, portion in tiers:
        if portion.kind == "layers":
            raise PlanError(f'{CACHE}: layers are no part of a prefix. Write the share that {name} serves, "30%", or '
                            'what it has room for, "20 GB".')
        held = left if portion.kind == "rest" else portion.value
        if portion.kind == "bytes":
            held = portion.value / totals[name] if totals[name] else 1.0
        if portion.kind == "share":
            if held > 1 - given + 1e-9:
                raise PlanError(f"{CACHE}: shares add up to more than all that is cached at {name}: "
                                f"{percent(1 - given, 6)} are left for it.")
            given += held
        share = min(held, left)
        found.append((name, share))
        left = max(0.0, left - share)
    if left > 1e-9:
        sizes = [name for name, portion in tiers if portion.kind == "bytes"]
        if not sizes:
            raise PlanError(f"{CACHE}: {percent(left, 6)} of what is cached are in no tier; add `MEMORY: rest`.")
        size = totals[sizes[-1]]
        raise PlanError(f"{CACHE}: {format_bytes(left * size)} of the {format_bytes(size)} that are found are in no "
                        f"tier: {' and '.join(sizes)} {'has' if len(sizes) == 1 else 'have'} no more room. Add "
                        "`MEMORY: rest`, give more room, or find less (workload.cached).")
    return found
